"""Sends one application a fixed course of HTTP and websocket exchanges, and notes what it replies.

`course` has at least one success and the usual refusals of every route. It runs in one process over ASGI, so the same
file records an earlier version and tests the present one. Events have times of their own; nothing depends on the clock.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import msgpack
import numpy as np

from service.settings import Settings
from tests.compatibility.events import START, events, labels
from tests.compatibility.recordings import plain

__all__ = ["all_courses"]

JSON = "application/json"
MSGPACK = "application/msgpack"
NDJSON = "application/x-ndjson"
DENSE = {"algorithm": "cbr-diag", "features": {"kind": "dense", "dim": 4}, "window": 60, "seed": 7}
NAMED = {"algorithm": "fofo", "features": {"kind": "named", "bits": 10, "log": ["amount"]}, "window": 60, "seed": 7}
_SECONDS = 600  # until a reply: kernels may have to be compiled
_HEADERS = ("content-type", "allow", "www-authenticate", "retry-after", "location", "content-disposition", "vary")
_SECRETS = {name: sha256(name.encode()).hexdigest() for name in ("ann", "bob", "eve")}
KEYS = {
    "keys": [
        {
            "id": name * 4,
            "name": name,
            "sha256": sha256(_SECRETS[name].encode()).hexdigest(),
            "scopes": scopes,
            "limits": {},
            "created": "2026-01-01T00:00:00Z",
            **more,
        }
        for name, scopes, more in (
            ("ann", ["read", "predict"], {}),
            ("bob", ["admin"], {"learners": "b*"}),
            ("eve", ["admin"], {}),
        )
    ]
}


class Reply(NamedTuple):
    """A reply over ASGI."""

    status: int
    headers: dict[str, str]
    body: bytes


@asynccontextmanager
async def application(create_app: Any, **settings: Any) -> AsyncIterator[Any]:
    """Start the application of either version on a store in memory."""
    app = create_app(Settings(store="memory:", snapshot_seconds=1e6, **settings))
    async with app.router.lifespan_context(app):
        yield app


async def request(
    app: Any, method: str, target: str, headers: Sequence[tuple[str, str]] = (), body: bytes = b""
) -> Reply:
    """Send one request; hang up after the first event of a stream."""
    path, _, query = target.partition("?")
    raw = [(b"host", b"localhost"), *((name.encode(), value.encode()) for name, value in headers)]
    if body or method not in ("GET", "DELETE", "HEAD"):
        raw.append((b"content-length", str(len(body)).encode()))
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": raw,
        "client": ("127.0.0.1", 1),
        "server": ("localhost", 8000),
        "state": {},
    }
    status, reply_headers, parts = 0, {}, bytearray()
    arrived, hung_up = [body], asyncio.Event()

    async def receive() -> dict[str, Any]:
        if arrived:
            return {"type": "http.request", "body": arrived.pop(), "more_body": False}
        await hung_up.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
            reply_headers.update({name.decode().lower(): value.decode() for name, value in message["headers"]})
        else:
            parts.extend(message.get("body", b""))
            if reply_headers.get("content-type", "").startswith("text/event-stream") and b"\n\n" in parts:
                hung_up.set()

    await asyncio.wait_for(app(scope, receive, send), _SECONDS)
    return Reply(status, {name: reply_headers[name] for name in _HEADERS if name in reply_headers}, bytes(parts))


def note(reply: Reply) -> list[Any]:
    """Return status, headers and body of a reply without what changes from run to run."""
    kind = reply.headers.get("content-type", "")
    if kind.startswith("text/event-stream"):
        first = reply.body.split(b"\n\n")[0].decode()
        data = [json.loads(line.removeprefix("data:")) for line in first.splitlines() if line.startswith("data:")]
        body: Any = plain(data)
    elif "ndjson" in kind:
        body = [plain(json.loads(line)) for line in reply.body.splitlines()]
    elif "json" in kind:
        body = plain(json.loads(reply.body)) if reply.body else None
    elif kind.startswith(MSGPACK):
        body = plain(_printable(msgpack.unpackb(reply.body)))
    elif kind.startswith("text/html"):
        body = "<!doctype html>" in reply.body.decode().lower()
    else:
        body = len(reply.body) > 0
    return [reply.status, reply.headers, body]


def _printable(value: Any) -> Any:
    """Replace bytes by their hexadecimal digits."""
    if isinstance(value, dict):
        return {name: _printable(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_printable(member) for member in value]
    return value.hex() if isinstance(value, bytes) else value


def _events(kind: str, start: int, stop: int, *, labelled: bool = True) -> list[dict[str, Any]]:
    truth = labels(200, 4)
    return [
        {**events(kind, 200, 4)[i], "id": f"e-{i}", "time": START + 60 * i, **({"label": truth[i]} if labelled else {})}
        for i in range(start, stop)
    ]


def _columns(start: int, stop: int, *, labelled: bool = True) -> bytes:
    rows = _events("dense", start, stop)
    body: dict[str, Any] = {
        "x": [row["x"] for row in rows],
        "ids": [row["id"] for row in rows],
        "times": [row["time"] for row in rows],
    }
    x = np.array(body["x"], dtype="<f8")
    body["x"] = {"dtype": "float64", "shape": list(x.shape), "data": x.tobytes()}
    if labelled:
        body["labels"] = [row["label"] for row in rows]
    return msgpack.packb(body)


def _requests() -> list[tuple[str, str, list[tuple[str, str]], bytes]]:
    """Return the course: method, target, headers, body."""
    made: list[tuple[str, str, list[tuple[str, str]], bytes]] = []

    def add(method: str, target: str, body: Any = None, kind: str = JSON, **headers: str) -> None:
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        names = [(name.replace("_", "-"), value) for name, value in headers.items()]
        made.append((method, f"/v1{target}", ([("content-type", kind)] if body is not None else []) + names, data))

    for target in (
        "/health/live",
        "/health/ready",
        "/version",
        "/key",
        "/algorithms",
        "/nodes",
        "/learners",
        "/groups",
        "/nothing",
    ):
        add("GET", target)
    # creation
    add("PUT", "/learners/a", DENSE)
    add("PUT", "/learners/a", DENSE)
    add("PUT", "/learners/a", {**DENSE, "seed": 8})
    add("PUT", "/learners/b", NAMED)
    add("PUT", "/learners/-x", DENSE)
    add("PUT", "/learners/c", {**DENSE, "algorithm": "nothing"})
    add("PUT", "/learners/c", {**DENSE, "params": {"C": -1, "surplus": 1}})
    add("PUT", "/learners/c", {"algorithm": "cbr-diag"})
    add("PUT", "/learners/c", {**DENSE, "window": "many", "features": {"kind": "dense", "dim": 0}})
    add("PUT", "/learners/c", {**DENSE, "threshold": {"objective": "budget"}})
    add("PUT", "/learners/c", [1])
    add("PUT", "/learners/c", b"{")
    add("PUT", "/learners/c", b'{"seed": 1, "seed": 2}')
    add("PUT", "/learners/c", json.dumps(DENSE).encode(), "text/plain")
    add("PUT", "/learners/r", {"algorithm": "npsvor", "features": {"kind": "dense", "dim": 4}, "params": {"ranks": 3}})
    add("POST", "/learners", DENSE)
    # updates
    add("POST", "/learners/a/update", {"events": _events("dense", 0, 40)})
    add("POST", "/learners/a/update", {"events": _events("dense", 39, 41)})
    add("POST", "/learners/a/update", _columns(41, 50), MSGPACK)
    add("POST", "/learners/a/update", _columns(50, 52), MSGPACK, accept=JSON)
    lines = b"".join(json.dumps(event).encode() + b"\n" for event in _events("dense", 52, 60))
    add("POST", "/learners/a/update", lines, NDJSON)
    add("POST", "/learners/a/update", lines + b'{"x": [1]}\n', NDJSON)
    source = [{"x": event["x"], "label": event["label"]} for event in _events("dense", 60, 64)]
    for offset in (0, 2, 9):
        add("POST", "/learners/a/update", {"source": {"name": "f", "offset": offset}, "events": source})
    add("POST", "/learners/b/update", {"events": _events("named", 0, 30)})
    ranked = [{**event, "label": 1 + i % 3} for i, event in enumerate(_events("dense", 0, 20))]
    add("POST", "/learners/r/update", {"events": ranked})
    bad_events: list[Any] = [
        {},
        {"events": []},
        {"events": {}},
        {"events": [1]},
        {"events": [{"x": [1, 2], "label": 1}]},
        {"events": [{"x": [1, 2, 3, "4"], "label": 1}]},
        {"events": [{"x": [1, 2, 3, 4], "label": 2}]},
        {"events": [{"x": [1, 2, 3, 4]}]},
        {"events": [{"features": {"a": 1}, "label": 1}]},
        {"events": [{"x": [1, 2, 3, 4], "label": 1, "id": ""}]},
        {"events": [{"x": [1, 2, 3, 4], "label": 1, "time": "now"}]},
        {"events": [{"x": [1, 2, 3, 4], "label": 1, "time": 1e12}]},
        {"events": [{"x": [1, 2, 3, 4], "label": 1, "weight": -1}]},
        {"events": [{"x": [1, 2, 3, 4], "label": 1, "surplus": 1}]},
        {"events": source, "source": {"name": ""}},
        {"events": source, "source": {"name": "f", "offset": -1}},
        {"events": source, "source": {"name": "f", "offsets": [3, 2, 1, 0]}},
        {"events": source, "surplus": 1},
    ]
    for body in bad_events:
        add("POST", "/learners/a/update", body)
    for raw in (b"", b"nonsense", b'{"events": [{"x": [1, 2, 3, NaN], "label": 1}]}', b"\xff", b"[" * 5000):
        add("POST", "/learners/a/update", raw or b" ")
        add("POST", "/learners/a/predict", raw or b" ")
    add("POST", "/learners/a/update", {"events": source}, "text/csv")
    add("POST", "/learners/a/update", {"events": source}, accept="text/html")
    add("POST", "/learners/a/update", {"events": source}, content_encoding="br")
    add("POST", "/learners/a/update", b"not gzip", content_encoding="gzip")
    add("POST", "/learners/nobody/update", {"events": source})
    add("POST", "/learners/a/update?surplus=1", {"events": source})
    add("GET", "/learners/a/update")
    add("POST", "/learners/a/update", msgpack.packb({"x": 1}), MSGPACK)
    add("POST", "/learners/a/update", b"\xc1", MSGPACK)
    # predicts, late labels
    add("POST", "/learners/a/predict", {"events": _events("dense", 70, 80, labelled=False)})
    add("POST", "/learners/a/predict", _columns(80, 84, labelled=False), MSGPACK)
    add("POST", "/learners/a/predict?explain=2", {"events": _events("dense", 84, 86, labelled=False)})
    add("POST", "/learners/b/predict?explain=3", {"events": _events("named", 40, 43, labelled=False)})
    add("POST", "/learners/r/predict", {"events": _events("dense", 40, 43, labelled=False)})
    add("POST", "/learners/r/predict", _columns(43, 45, labelled=False), MSGPACK)
    unlabelled = b"".join(json.dumps(event).encode() + b"\n" for event in _events("dense", 86, 90, labelled=False))
    add("POST", "/learners/a/predict", unlabelled, NDJSON)
    for query in ("explain=0", "explain=x", "explain=1&surplus=2", "at_least=0", "at_least=2"):
        add("POST", f"/learners/a/predict?{query}", {"events": _events("dense", 90, 91, labelled=False)})
    add("POST", "/learners/a/predict", {"events": _events("dense", 90, 91)})
    late = [
        {"id": f"e-{i}", "label": labels(200, 4)[i], "time": START + 60 * i + 900} for i in (70, 71, 72, 72, 199, 3)
    ]
    add("POST", "/learners/a/labels", {"events": late})
    add("POST", "/learners/a/labels", {"events": late})
    add("POST", "/learners/a/labels", {"events": [{"id": "e-73"}]})
    add("POST", "/learners/a/labels", {"events": [{"label": 1}]})
    add("POST", "/learners/a/labels", msgpack.packb({"ids": ["e-74", "e-75"], "labels": [1, 0]}), MSGPACK)
    # reading
    for name in ("a", "b", "r", "nobody"):
        for part in (
            "",
            "/digest",
            "/weights",
            "/fields",
            "/events",
            "/metrics",
            "/metrics/history",
            "/metrics/curves",
            "/thresholds",
            "/segments?by=amount",
            "/alarms",
            "/annotations",
            "/snapshots",
        ):
            add("GET", f"/learners/{name}{part}")
    for target in (
        "/learners?figures=true",
        "/learners?figures=maybe",
        "/learners?limit=1",
        "/learners?limit=1&cursor=a&figures=true",
        "/learners?limit=0",
        "/learners/b/fields?limit=1&cursor=1",
        "/learners/a/weights?top=2",
        "/learners/a/weights?top=0",
        "/learners/a/metrics/history?by=clock&step=600",
        "/learners/a/metrics/history?by=moon",
        "/learners/a/metrics/history?from=5&to=1",
        "/learners/a/metrics/curves?points=5",
        "/learners/a/metrics/curves?points=0",
        "/learners/a/thresholds?points=4&false_negative=5",
        "/learners/a/thresholds?points=1",
        "/learners/a/alarms?since=3",
        "/learners/a/events?status=labelled&sort=score&limit=3",
        "/learners/a/events?status=open&limit=0",
        "/learners/r/events?status=alert",
        "/learners/a/events/e-71",
        "/learners/a/events/nobody",
        "/learners/a/events?id=e-71",
        "/learners/a/events?id=..",
        "/learners/a/metrics/stream",
        "/learners/nobody/metrics/stream",
        "/learners/r/alerts/stream",
        "/learners/nobody/alerts/stream",
        "/stream",
        "/stream?learners=a",
    ):
        add("GET", target)
    for target in ("events/e-71", "events/e-71", "events?id=e-72", "events", "events/e-72?id=e-72"):
        add("DELETE", f"/learners/a/{target}")
    # what people write
    for target, body in (
        ("/learners/a/annotations", {"by": "CI"}),
        ("/learners/a/annotations", {"text": "\u0007", "who": "CI"}),
        ("/learners/nobody/annotations", {"text": "deployed"}),
        ("/learners/a/alarms/0/acknowledge", {"note": "known"}),
        ("/learners/a/alarms/first/acknowledge", {}),
    ):
        add("POST", target, body)
    # settings, snapshots, copies
    for settings in (
        {"objective": "budget", "alerts": 5},
        {"objective": "fixed", "value": 0.5},
        {"objective": "recall"},
    ):
        add("POST", "/learners/a/thresholds/preview", settings)
    add("POST", "/learners/r/thresholds/preview", {})
    add("POST", "/learners/nobody/thresholds/preview", {})
    add("PATCH", "/learners/b", {"figures": {"segments": ["amount"]}})
    add("PATCH", "/learners/b", {"figures": {"segments": ["country", "country"]}})
    add("PATCH", "/learners/b", {"figures": {"segments": ["country", "merchant"]}})
    add("POST", "/learners/b/update", {"events": _events("named", 43, 60)})
    add("GET", "/learners/b/segments?by=country&limit=2&positives=1")
    add("GET", "/learners/b/segments?limit=0")
    add("PATCH", "/learners/a", {"threshold": {"objective": "recall", "target": 0.9}})
    add("PATCH", "/learners/a", {"threshold": {"objective": "recall", "target": 2}})
    add("PATCH", "/learners/a", {"algorithm": "lr"})
    add("PATCH", "/learners/a", {})
    add("PATCH", "/learners/nobody", {"threshold": {"objective": "recall", "target": 0.9}})
    add("POST", "/learners/a/snapshots")
    add("GET", "/learners/a/snapshots")
    add("GET", "/learners/a/snapshots?limit=1&cursor=1")
    add("POST", "/learners/a/snapshots/1/restore")
    add("POST", "/learners/a/snapshots/x/restore")
    add("POST", "/learners/a/clone", {"to": "a2"})
    add("POST", "/learners/a/clone", {"to": "a2"})
    add("POST", "/learners/a/clone", {"to": "-"})
    add("POST", "/learners/a/clone", {})
    add("GET", "/learners/a2/digest")
    add("GET", "/learners/a2/annotations")
    add("GET", "/learners/nobody/export")
    add("POST", "/learners/new/import", b"nonsense", "application/octet-stream")
    add("POST", "/learners/new/import", b"nonsense", JSON)
    # groups
    add("PUT", "/groups/g", {"learners": ["a", "a2"], "window": 30})
    add("PUT", "/groups/g", {"learners": ["a", "a2"], "window": 30})
    add("PUT", "/groups/g", {"learners": ["a", "b"]})
    add("PUT", "/groups/h", {"learners": ["a", "nobody"]})
    add("PUT", "/groups/h", {"learners": ["a"]})
    add("PUT", "/groups/h", {"learners": ["a", "r"]})
    add("POST", "/groups/g/update", {"events": _events("dense", 100, 130)})
    add("POST", "/groups/g/update", {"events": [{"x": [1], "label": 1}]})
    add("POST", "/groups/g/predict", {"events": _events("dense", 130, 136, labelled=False)})
    add("POST", "/groups/g/predict", {"events": [{"x": [1]}]})
    add("POST", "/groups/g/labels", {"events": [{"id": "e-130", "label": 1, "time": START + 60 * 140}]})
    for target in (
        "/groups",
        "/groups?tests=true",
        "/groups?limit=1",
        "/groups?cursor=g",
        "/groups/g",
        "/groups/g/compare",
        "/groups/x",
        "/groups/x/compare",
    ):
        add("GET", target)
    for target in (
        "events?limit=2",
        "events?learner=a2&status=labelled",
        "events?learner=b",
        "events/e-130",
        "events/nobody",
    ):
        add("GET", f"/groups/g/{target}")
    add("GET", "/groups/g/compare/stream")
    add("DELETE", "/groups/g")
    add("DELETE", "/groups/g")
    add("DELETE", "/learners/a2")
    add("DELETE", "/learners/a2")
    add("GET", "/learners")
    made.extend(("GET", target, [], b"") for target in ("/", "/docs", "/openapi.json.x", "/v1", "/metrics.x"))
    made.extend(("GET", target, [], b"") for target in ("/healthz", "/livez", "/readyz", "/readyz?verbose"))
    return made


async def course(create_app: Any) -> dict[str, Any]:
    """Run the course without keys; return a note of each exchange, by number and request."""
    notes = {}
    async with application(create_app) as app:
        for number, (method, target, headers, body) in enumerate(_requests()):
            notes[f"{number} {method} {target}"] = note(await request(app, method, target, headers, body))
        export = await request(app, "GET", "/v1/learners/a/export")
        octets = [("content-type", "application/octet-stream")]
        imported = await request(app, "POST", "/v1/learners/copy/import", octets, export.body)
        notes["export and import"] = [export.status, export.headers, *note(imported)]
        digests = [await request(app, "GET", f"/v1/learners/{name}/digest") for name in ("a", "copy")]
        notes["digests"] = [note(digest) for digest in digests]
    return notes


async def keyed_course(create_app: Any, folder: Path) -> dict[str, Any]:
    """Run every route once for each key, and without one."""
    file = folder / "keys.json"
    file.write_text(json.dumps(KEYS))
    file.chmod(0o600)
    routes = [
        ("GET", "/v1/key", None),
        ("GET", "/v1/learners", None),
        ("GET", "/v1/learners/b", None),
        ("PUT", "/v1/learners/b", DENSE),
        ("PUT", "/v1/learners/x", DENSE),
        ("POST", "/v1/learners/b/update", {"events": _events("dense", 0, 3)}),
        ("POST", "/v1/learners/b/labels", {"events": [{"id": "e-1", "label": 1}]}),
        ("POST", "/v1/learners/b/predict", {"events": _events("dense", 0, 3, labelled=False)}),
        ("POST", "/v1/learners/x/predict", {"events": _events("dense", 0, 3, labelled=False)}),
        ("PUT", "/v1/groups/bs", {"learners": ["b", "x"]}),
        ("GET", "/v1/groups", None),
        ("POST", "/v1/groups/bs/predict", {"events": _events("dense", 0, 3, labelled=False)}),
        ("PATCH", "/v1/learners/b", {"threshold": {"objective": "recall", "target": 0.9}}),
        ("POST", "/v1/learners/x/thresholds/preview", {"objective": "recall", "target": 0.9}),
        ("GET", "/v1/learners/b/export", None),
        ("GET", "/v1/nodes", None),
        ("DELETE", "/v1/groups/bs", None),
        ("DELETE", "/v1/learners/x", None),
        ("GET", "/v1/health/ready", None),
        ("GET", "/v1/algorithms", None),
    ]
    notes = {}
    async with application(create_app, keys=str(file)) as app:
        keys = {name: f"rs_{name * 4}_{_SECRETS[name]}" for name in ("eve", "bob", "ann")}
        for name, key in {**keys, "none": None, "wrong": "rs_nobody_1"}.items():
            for number, (method, target, document) in enumerate(routes):
                headers = [] if key is None else [("authorization", f"Bearer {key}")]
                body = b"" if document is None else json.dumps(document).encode()
                headers += [("content-type", JSON)] if body else []
                notes[f"{name}: {number} {method} {target}"] = note(await request(app, method, target, headers, body))
    return notes


async def websocket_course(create_app: Any) -> dict[str, Any]:
    """Send messages of every kind over websockets, in text and in binary; return the replies of each."""
    notes: dict[str, Any] = {}
    async with application(create_app) as app:
        for name in ("a", "b"):
            await request(app, "PUT", f"/v1/learners/{name}", [("content-type", JSON)], json.dumps(DENSE).encode())
        good = [{"seq": i, "op": "update", "events": _events("dense", 3 * i, 3 * i + 3)} for i in range(4)]
        texts: list[Any] = [
            *good,
            {"seq": 4, "op": "predict", "events": _events("dense", 20, 24, labelled=False)},
            {"seq": 5, "op": "predict", "explain": 2, "events": _events("dense", 24, 25, labelled=False)},
            {"seq": 6, "op": "labels", "events": [{"id": "e-20", "label": 1, "time": START + 60 * 30}]},
            {"seq": 7, "op": "update", "events": [{"x": [1], "label": 1}]},
            {"seq": 8, "op": "dance", "events": []},
            {"seq": -1, "op": "update", "events": _events("dense", 30, 31)},
            {"seq": 9, "op": "update"},
            {"seq": 10, "op": "predict", "explain": 0, "events": _events("dense", 30, 31, labelled=False)},
            "nonsense",
            [1],
        ]
        notes["text"] = await _converse(app, "/v1/learners/a/ws", [_text(message) for message in texts])
        shared = [{**good[0], "learner": name} for name in ("a", "b", "nobody")]
        shared = [{**message, "seq": i} for i, message in enumerate(shared)]
        notes["shared"] = await _converse(app, "/v1/ws", [_text(message) for message in shared])
        binary = [{"seq": 0, "op": "update"}, {"seq": 1, "op": "predict"}, {"seq": 2, "op": "update"}]
        bodies = [_columns(40, 44), _columns(44, 46, labelled=False), msgpack.packb({"x": 1})]
        packed = [msgpack.packb({**head, **msgpack.unpackb(body)}) for head, body in zip(binary, bodies, strict=True)]
        notes["binary"] = await _converse(app, "/v1/learners/a/ws", [*packed, b"\xc1"])
        notes["nobody"] = await _converse(app, "/v1/learners/nobody/ws", [])
        for name in ("a", "b"):
            notes[f"digest {name}"] = note(await request(app, "GET", f"/v1/learners/{name}/digest"))
    return notes


def _text(message: Any) -> str:
    return message if isinstance(message, str) else json.dumps(message)


async def _converse(app: Any, path: str, messages: list[str | bytes]) -> list[Any]:
    """Open a websocket, send each message once the one before is answered, and return what came back."""
    scope = {
        "type": "websocket",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "scheme": "ws",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"localhost")],
        "client": ("127.0.0.1", 1),
        "server": ("localhost", 8000),
        "subprotocols": [],
        "state": {},
        "extensions": {"websocket.http.response": {}},
    }
    incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    outgoing: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    incoming.put_nowait({"type": "websocket.connect"})
    running = asyncio.ensure_future(app(scope, incoming.get, outgoing.put))
    notes: list[Any] = []

    async def next_note() -> bool:
        message = await asyncio.wait_for(outgoing.get(), _SECONDS)
        if message["type"] != "websocket.send":
            body = message.get("body")
            document = plain(json.loads(body)) if body else None
            notes.append([message["type"], message.get("status"), message.get("code"), document])
            return message["type"] == "websocket.accept"
        text, data = message.get("text"), message.get("bytes")
        notes.append(plain(json.loads(text) if text is not None else _printable(msgpack.unpackb(data))))
        return True

    opened = await next_note()
    if opened:
        await next_note()  # the greeting
    for message in messages:
        kind = "text" if isinstance(message, str) else "bytes"
        incoming.put_nowait({"type": "websocket.receive", kind: message})
        if not await next_note():
            break
    incoming.put_nowait({"type": "websocket.disconnect", "code": 1000})
    while not running.done() and not outgoing.empty():
        await next_note()
    await asyncio.wait_for(running, _SECONDS)
    return notes


async def all_courses(create_app: Any, folder: Path) -> dict[str, dict[str, Any]]:
    """Run all courses; the folder gets a keys file."""
    return {
        "http": await course(create_app),
        "keys": await keyed_course(create_app, folder),
        "websocket": await websocket_course(create_app),
    }
