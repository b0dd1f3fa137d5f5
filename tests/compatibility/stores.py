"""Fills a store with learners of every family and a group, and continues such a store.

`write` is how the stores of the recording were made. `proceed` reads every learner and then sends it more requests.
Every event and label has a time of its own, so nothing depends on the clock of the machine.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any

from redis import Redis

from tests.compatibility.events import START, events, labels, ranks
from tests.compatibility.recordings import plain
from tests.compatibility.serving import Reply, Service
from tests.compatibility.streams import FEATURES
from tests.harness.waiting import eventually

__all__ = ["LEARNERS", "SETTINGS", "dump", "load", "proceed", "write"]

# Snapshots are taken on request only, and two are retained, so the logs are trimmed.
SETTINGS = {
    "snapshots_kept": 2,
    "snapshot_seconds": 1_000_000,
    "snapshot_events": 1_000_000,
}
_TTL = 10_000.0
_EVENTS = 200
_SMALL = {"window": 60, "seed": 7, "remembered_ids": 1000}
_BUDGET = {"objective": "budget", "alerts": 4, "unit_seconds": 3600.0}
_COST = {"objective": "cost", "false_negative": 3.0, "field": "amount"}

# By name: the kind of the events, and the settings.
LEARNERS: dict[str, tuple[str, dict[str, Any]]] = {
    "cbr": (
        "dense",
        {"algorithm": "cbr-diag", "late": {"label_ttl": _TTL, "unlabelled": "negative"}, "remembered_ids": 131072},
    ),
    "nsauc": ("dense", {"algorithm": "nsauc", "precision": "float32", "threshold": _BUDGET}),
    "nbauc": ("table", {"algorithm": "nbauc", "embedding": {"kind": "none"}, "refit_every": 60, "refit_window": 80}),
    "fofo": ("table", {"algorithm": "fofo", "threshold": _COST, "late": {"label_ttl": _TTL}}),
    "names": ("named", {"algorithm": "cbr-diag", "calibration": {"kind": "isotonic", "memory": 50}}),
    "npsvor": ("named", {"algorithm": "npsvor", "window_seconds": 2000.0}),
    "loam": ("sparse", {"algorithm": "loam-ada", "scaling": {"kind": "maxabs"}}),
    "ranksvm": ("dense", {"algorithm": "ranksvm", "refit_every": 60, "refit_window": 80}),
    "svc": ("sparse", {"algorithm": "svc", "refit_every": 60, "refit_window": 80}),
    "space": (
        "dense",
        {"algorithm": "cbr-diag", "embedding": {"kind": "nystroem", "components": 8, "warmup": 30}},
    ),
    "few": ("dense", {"algorithm": "fofo", "late": {"label_ttl": _TTL, "max_events": 8}}),
}
_COPIES = {"clone": "dense", "imported": "table", "anew": "dense"}  # more learners, by the kind of their events
_ORDINAL = ("npsvor", "svc")
_KINDS = {name: kind for name, (kind, _) in LEARNERS.items()} | _COPIES


class _Requests:
    """The bodies of one learner's requests. Event i happens i minutes after the start."""

    def __init__(self, name: str) -> None:
        ordinal = name in _ORDINAL
        self._events = events(_KINDS[name], _EVENTS, seed=4)
        self._labels = ranks(_EVENTS, 4) if ordinal else labels(_EVENTS, 4)
        self._wrong = [6 - y if ordinal else 1 - y for y in self._labels]

    def update(self, *spans: range, wrong: bool = False, after: float = 0.0) -> dict[str, Any]:
        """Labelled events with ids."""
        labelled = self._wrong if wrong else self._labels
        numbers = [i for span in spans for i in span]
        return {
            "events": [
                {**self._events[i], "label": labelled[i], "id": f"e-{i}", "time": START + 60 * i + after}
                for i in numbers
            ]
        }

    def source(self, offset: int, stop: int) -> dict[str, Any]:
        """Labelled events without ids, which are the numbers `offset` to `stop` of a source."""
        numbers = range(100 + offset, 100 + stop)
        return {
            "source": {"name": "file", "offset": offset},
            "events": [
                {**self._events[i], "label": self._labels[i], "weight": 0.5, "time": START + 60 * i} for i in numbers
            ],
        }

    def predict(self, numbers: range, ids: bool = True) -> dict[str, Any]:
        """Events without labels."""
        named = [{"id": f"e-{i}"} if ids else {} for i in numbers]
        return {
            "events": [
                {**self._events[i], **name, "time": START + 60 * i} for i, name in zip(numbers, named, strict=True)
            ]
        }

    def labels(self, *numbers: int, wrong: bool = False, after: float = 900.0) -> dict[str, Any]:
        """Labels by id."""
        labelled = self._wrong if wrong else self._labels
        return {
            "events": [{"id": f"e-{i}", "label": labelled[i], "time": START + 60 * i + after} for i in numbers],
        }


def _send(service: Service, method: str, path: str, body: Any = None) -> Reply:
    reply = service.request(method, path, body)
    assert reply.status < 300, (method, path, reply)
    return reply


def _wait_for_fit(service: Service, path: str) -> None:
    """Wait until a fit in the background is over: its record has a place in the log."""

    def fitted() -> bool:
        fit = _send(service, "GET", path).document["fit"]
        return fit is None or not (fit["running"] or fit["waiting"])

    eventually(fitted, path)


def write(service: Service) -> bytes:
    """Fill the store, and return an export of one learner."""
    for name, (kind, settings) in LEARNERS.items():
        _write_learner(service, name, {"features": FEATURES[kind], **_SMALL, **settings})
    _send(service, "POST", "/v1/learners/nsauc/snapshots/3/restore")
    _send(service, "PATCH", "/v1/learners/fofo", {"threshold": {"objective": "fbeta", "beta": 2.0}})
    _send(service, "POST", "/v1/learners/cbr/clone", {"to": "clone"})
    export = _send(service, "GET", "/v1/learners/fofo/export").body
    _send(service, "POST", "/v1/learners/imported/import", export)
    anew = {"algorithm": "lr", "features": FEATURES["dense"], **_SMALL}
    _send(service, "PUT", "/v1/learners/anew", {**anew, "seed": 8})
    _send(service, "POST", "/v1/learners/anew/update", _Requests("anew").update(range(5)))
    _send(service, "DELETE", "/v1/learners/anew")
    _send(service, "PUT", "/v1/learners/anew", anew)
    for name in _COPIES:
        requests = _Requests(name)
        _send(service, "POST", f"/v1/learners/{name}/update", requests.update(range(60, 70)))
        _send(service, "POST", f"/v1/learners/{name}/predict", requests.predict(range(40, 50)))
    duel = _Requests("cbr")
    _send(service, "PUT", "/v1/groups/duel", {"learners": ["cbr", "space"], "window": 50})
    _send(service, "POST", "/v1/groups/duel/update", duel.update(range(130, 150)))
    _send(service, "POST", "/v1/groups/duel/predict", duel.predict(range(150, 158)))
    _send(service, "POST", "/v1/groups/duel/labels", duel.labels(150, 151, 152))
    return export


def _write_learner(service: Service, name: str, config: dict[str, Any]) -> None:
    path, requests = f"/v1/learners/{name}", _Requests(name)
    _send(service, "PUT", path, config)
    _send(service, "POST", f"{path}/update", requests.update(range(40)))
    _wait_for_fit(service, path)
    _send(service, "POST", f"{path}/predict", requests.predict(range(40, 60)))
    _send(service, "POST", f"{path}/snapshots")
    _send(service, "POST", f"{path}/labels", requests.labels(40, 42, 44))
    _send(service, "POST", f"{path}/snapshots")
    _send(service, "POST", f"{path}/labels", requests.labels(44, 45, 46, wrong=True))
    _send(service, "POST", f"{path}/update", requests.source(0, 20))
    _wait_for_fit(service, path)
    if name in ("cbr", "fofo", "names", "svc"):
        _send(service, "POST", f"{path}/snapshots")
    _send(service, "POST", f"{path}/update", requests.update(range(2), wrong=True))
    _send(service, "POST", f"{path}/update", requests.update(range(60, 64)))


def proceed(service: Service, export: bytes) -> dict[str, Any]:
    """Read every learner of the store, then send it more requests; return what each reply says, by learner."""
    outcome: dict[str, Any] = {"all": {"learners": sorted(_names(service)), "nodes": "one"}}
    outcome["all"]["groups"] = _note(service.request("GET", "/v1/groups?tests=true"))
    before = {name: _state(service, name) for name in _KINDS}
    outcome["duel"] = _proceed_group(service)
    for name in _KINDS:
        outcome[name] = {"before": before[name], **_proceed_learner(service, name)}
        outcome[name]["after"] = _state(service, name)
    imported = service.request("POST", "/v1/learners/export/import", export)
    outcome["export"] = {
        "import": _note(imported),
        "digest": _note(service.request("GET", "/v1/learners/export/digest")),
    }
    return outcome


def _names(service: Service) -> list[str]:
    document = service.request("GET", "/v1/learners").document
    return [learner["name"] for learner in document["learners"]] + document["asleep"] + list(document["unavailable"])


def _note(reply: Reply) -> Any:
    return [reply.status, plain(reply.document)]


def _state(service: Service, name: str) -> dict[str, Any]:
    """Read everything about a learner, and score some events."""
    path = f"/v1/learners/{name}"
    parts = ("", "/digest", "/metrics", "/metrics/history", "/metrics/curves?points=10", "/alarms", "/snapshots")
    state = {part: _note(service.request("GET", path + part)) for part in (*parts, "/weights?top=5")}
    body = _Requests(name).predict(range(160, 165), ids=False)
    return {**state, "scores": _note(service.request("POST", f"{path}/predict", body))}


def _proceed_learner(service: Service, name: str) -> dict[str, Any]:
    path, requests = f"/v1/learners/{name}", _Requests(name)
    steps = {
        "predict": ("predict", requests.predict(range(64, 68))),
        "update": ("update", requests.update(range(66, 70), range(3, 5))),  # served, new, learnt before
        "correction": ("update", requests.update(range(5, 7), wrong=True)),
        "labels": ("labels", requests.labels(41, 43, 44, 47, 64, 199)),
        "source": ("update", requests.source(18, 22)),
        "source with a gap": ("update", requests.source(30, 31)),
        "time passes": ("update", requests.update(range(70, 72), after=_TTL)),
        "late labels": ("labels", requests.labels(48, 49, 65, after=_TTL + 3000.0)),
    }
    replies = {step: _note(service.request("POST", f"{path}/{route}", body)) for step, (route, body) in steps.items()}
    retained = service.request("GET", f"{path}/snapshots").document["snapshots"]
    if retained:
        oldest = retained[-1]["position"]
        replies["restore"] = _note(service.request("POST", f"{path}/snapshots/{oldest}/restore"))
        replies["scores then"] = _note(
            service.request("POST", f"{path}/predict", requests.predict(range(3), ids=False))
        )
        replies["labels once more"] = _note(service.request("POST", f"{path}/labels", requests.labels(41, 47)))
    replies["snapshot"] = _note(service.request("POST", f"{path}/snapshots"))
    return replies


def _proceed_group(service: Service) -> dict[str, Any]:
    path, duel = "/v1/groups/duel", _Requests("cbr")
    steps = {
        "labels": ("labels", duel.labels(153, 154, 155)),
        "predict": ("predict", duel.predict(range(156, 159))),
        "update": ("update", duel.update(range(157, 160))),
        "repeated": ("update", duel.update(range(131, 133))),
    }
    replies: dict[str, Any] = {"before": _note(service.request("GET", f"{path}/compare"))}
    for step, (route, body) in steps.items():
        replies[step] = _note(service.request("POST", f"{path}/{route}", body))
    replies["comparison"] = _note(service.request("GET", f"{path}/compare"))
    return replies


def dump(redis: Redis) -> dict[str, Any]:
    """Read every key of Redis that does not expire: its type and its value, with base64 for bytes."""
    keys = sorted(key for key in redis.keys("*") if redis.ttl(key) == -1)
    return {key.decode(): {"type": redis.type(key).decode(), "value": _value(redis, key)} for key in keys}


def _value(redis: Redis, key: bytes) -> Any:
    kind = redis.type(key).decode()
    if kind == "string":
        return _text(redis.get(key))
    if kind == "hash":
        return {_text(name): _text(value) for name, value in sorted(redis.hgetall(key).items())}
    if kind == "set":
        return [_text(value) for value in sorted(redis.smembers(key))]
    if kind == "list":
        return [_text(value) for value in redis.lrange(key, 0, -1)]
    if kind == "zset":
        return [[_text(value), score] for value, score in redis.zrange(key, 0, -1, withscores=True)]
    assert kind == "stream", kind
    entries = [
        [entry.decode(), [_text(part) for pair in fields.items() for part in pair]]
        for entry, fields in redis.xrange(key)
    ]
    return {"last": redis.xinfo_stream(key)["last-generated-id"].decode(), "entries": entries}


def load(redis: Redis, keys: dict[str, Any]) -> None:
    """Write what `dump` read."""
    for key, content in keys.items():
        kind, value = content["type"], content["value"]
        if kind == "string":
            redis.set(key, b64decode(value))
        elif kind == "hash":
            redis.hset(key, mapping={b64decode(name): b64decode(item) for name, item in value.items()})
        elif kind == "set":
            redis.sadd(key, *map(b64decode, value))
        elif kind == "list":
            redis.rpush(key, *map(b64decode, value))
        elif kind == "zset":
            redis.zadd(key, {b64decode(item): score for item, score in value})
        else:
            for entry, parts in value["entries"]:
                redis.execute_command("XADD", key, entry, *map(b64decode, parts))
            if not value["entries"]:  # it was trimmed to its end
                redis.execute_command("XADD", key, value["last"], "t", "")
                redis.xtrim(key, maxlen=0, approximate=False)
            redis.execute_command("XSETID", key, value["last"])


def _text(data: bytes) -> str:
    return b64encode(data).decode()
