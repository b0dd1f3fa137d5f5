"""Runs learners in the service over predictions, late labels, corrections and label expiry.

Every event and label has a time of its own, so nothing depends on the clock of the machine.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

from learners import algorithms, create
from tests.compatibility.events import KINDS, START, events, labels, ranks
from tests.compatibility.serving import Service
from tests.compatibility.streams import AS_RECORDED, FEATURES

__all__ = ["run_served", "served_cases"]

_EVENTS = 120
_TTL = 10_000.0
_NOTHING = {"label_ttl": _TTL, "unlabelled": "nothing"}
_NEGATIVE = {"label_ttl": _TTL, "unlabelled": "negative"}
_SMALL = {"window": 60, "seed": 7, "embedding": {"kind": "none"}}


def served_cases() -> Iterator[dict[str, Any]]:
    """List every case: a name and the body that creates the learner."""
    for name in algorithms():
        yield from _case(name, name, "dense")
    for kind in KINDS[1:]:
        for name in ("cbr-diag", "npsvor"):
            yield from _case(f"{name}-{kind}", name, kind)
    yield from _case("float32", "cbr-diag", "dense", precision="float32")
    for objective in (
        {"objective": "budget", "alerts": 4, "unit_seconds": 3600.0},
        {"objective": "budget", "rate": 0.2},
    ):
        yield from _case(f"budget-{'rate' if 'rate' in objective else 'alerts'}", "fofo", "dense", threshold=objective)
    cost = {"objective": "cost", "false_negative": 3.0, "field": "amount"}
    yield from _case("cost-of-field", "fofo", "table", threshold=cost)
    yield from _case("few-served-events", "fofo", "dense", late={"label_ttl": _TTL, "max_events": 12})
    yield from _case("window-seconds", "fofo", "dense", window_seconds=2000.0)


def _case(label: str, algorithm: str, kind: str, **settings: Any) -> Iterator[dict[str, Any]]:
    for late in (_NOTHING, _NEGATIVE):
        config = {"features": FEATURES[kind], **_SMALL, **AS_RECORDED, "late": late, **settings}
        try:
            learner = create(algorithm, **config)
        except ValueError:
            continue
        if config["late"] is not late and late is _NEGATIVE:
            continue
        yield {
            "name": f"{label}-{late['unlabelled']}",
            "kind": kind,
            "ordinal": "ranks" in learner.config.to_json()["params"],
            "config": {"algorithm": algorithm, **config},
        }


def run_served(service: Service, case: dict[str, Any]) -> dict[str, Any]:
    """Send a learner its requests; tell the digest of each reply, of the whole state, and the metrics."""
    path = f"/v1/learners/{case['name']}"
    carried = list(events(case["kind"], _EVENTS, seed=3))
    truth = ranks(_EVENTS, 3) if case["ordinal"] else labels(_EVENTS, 3)
    wrong = [6 - y if case["ordinal"] else 1 - y for y in truth]

    def labelled(start: int, stop: int, **more: Any) -> dict[str, Any]:
        return {
            "events": [
                {**carried[i], "label": truth[i], "id": f"e-{i}", "time": START + 60 * i, **more}
                for i in range(start, stop)
            ]
        }

    def unlabelled(start: int, stop: int) -> dict[str, Any]:
        return {"events": [{**carried[i], "id": f"e-{i}", "time": START + 60 * i} for i in range(start, stop)]}

    def late(numbers: Any, values: Any, after: float) -> dict[str, Any]:
        return {
            "events": [{"id": f"e-{i}", "label": values[i % _EVENTS], "time": START + 60 * i + after} for i in numbers]
        }

    steps: list[tuple[str, dict[str, Any]]] = [
        ("update", labelled(0, 30)),
        ("predict", unlabelled(30, 60)),
        ("labels", late(range(30, 60, 3), truth, 900.0)),
        ("labels", late([30, 33, 200], truth, 1000.0)),  # twice the same, and an id that nobody knows
        ("labels", late([30, 36], wrong, 1100.0)),  # corrections
        ("predict", unlabelled(40, 44)),  # served again
        ("update", labelled(50, 53)),  # labels that come with the features
        ("update", labelled(60, 70, weight=0.5)),
        ("predict", {"events": [{**carried[i], "time": START + 60 * i} for i in range(70, 75)]}),  # without ids
        ("predict", unlabelled(75, 100)),
        ("labels", late(range(75, 80), truth, 1200.0)),
        ("update", labelled(100, 104, time=START + 60 * 57 + _TTL)),  # some served events are over their time
        ("labels", late([31, 32, 58, 59], truth, _TTL + 500.0)),
        ("labels", late(range(81, 85), truth, 2000.0)),
        ("update", labelled(104, 108, time=START + 60 * 110 + 3 * _TTL)),  # and now all
        ("labels", late([86, 87], wrong, 3 * _TTL)),
        ("update", labelled(108, _EVENTS, time=START + 60 * 120 + 3 * _TTL)),
    ]
    replies = [service.request("PUT", path, case["config"])]
    replies += [service.request("POST", f"{path}/{name}", body) for name, body in steps]
    refused = [reply.body for reply in replies if reply.status >= 300]
    assert not refused, refused
    state = service.request("GET", f"{path}/digest").document
    pending = service.request("GET", path).document["pending"]
    return {
        "replies": [_digest(reply.document) for reply in replies[1:]],
        "position": state["position"],
        "digest": state["digest"],
        "pending": [pending[name] for name in ("events", "expired", "evicted")],
        "metrics": service.request("GET", f"{path}/metrics").document,
    }


def _digest(document: dict[str, Any]) -> str:
    """Return the digest of what a reply says of the events; how current the node is depends on the machine."""
    document.pop("stale_seconds", None)
    return blake2b(json.dumps(document, sort_keys=True).encode(), digest_size=4).hexdigest()
