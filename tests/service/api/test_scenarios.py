"""One stream by HTTP and by library calls gives the same scores and the same state, however it is cut."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest

from learners import create
from service.api.schemas import examples
from tests.harness.apps import client

pytestmark = pytest.mark.integration

TABLE = [
    {"name": "amount", "kind": "numeric", "log": True},
    {"name": "country", "kind": "categorical", "categories": 3},
]
SETUPS: dict[str, dict[str, Any]] = {
    "cbr, table": {"algorithm": "cbr", "features": {"kind": "table", "fields": TABLE, "extra": "ignore"}},
    "cbr reservoir, dense": {
        "algorithm": "cbr",
        "params": {"buffer": "reservoir", "capacity": 4},
        "features": {"kind": "dense", "dim": 3},
        "seed": 5,
    },
    "cbr-diag, named": {"algorithm": "cbr-diag", "features": {"kind": "named", "bits": 12, "text": ["note"]}},
    "loam-ada, named": {"algorithm": "loam-ada", "features": {"kind": "named", "bits": 4}},
    "fofo, sparse": {
        "algorithm": "fofo",
        "features": {"kind": "sparse", "dim": 100},
        "scaling": {"kind": "standard", "clip": 1.0},
    },
}


def stream(count: int) -> list[dict[str, Any]]:
    """Events that carry every kind of features at once."""
    rng = random.Random(3)
    made = []
    for _ in range(count):
        label = int(rng.random() < 0.15)
        amount = round(math.exp(rng.gauss(2 + label, 1)), 2) if rng.random() < 0.9 else None
        country = rng.choice(["DE", "FR", "XX", "US", "NL"])
        made.append(
            {
                "x": [rng.gauss(label, 1), rng.gauss(0, 1), 1.0],
                "sparse": (sorted(rng.sample(range(100), 5)), [rng.gauss(label, 1) for _ in range(5)]),
                "features": {
                    "amount": amount, "country": country, "items": ["a", "b"][: rng.randrange(3)], "note": "Pay me NOW"
                },
                "label": label,
                "weight": rng.choice([1.0, 1.0, 2.0, 0.0]),
            }
        )  # fmt: skip
    return made


def carried(event: dict[str, Any], kind: str) -> Any:
    return event[{"dense": "x", "sparse": "sparse"}.get(kind, "features")]


def as_event(event: dict[str, Any], kind: str, number: int) -> dict[str, Any]:
    features = carried(event, kind)
    if kind == "sparse":
        body = {"indices": features[0], "values": features[1]}
    else:
        body = {"x" if kind == "dense" else "features": features}
    return {"id": f"e{number}", **body, "label": event["label"], "weight": event["weight"]}


@pytest.mark.parametrize("name", SETUPS)
@pytest.mark.parametrize("size", [1, 10, 400])
async def test_http_and_library_agree_bit_for_bit(name, size):
    config = SETUPS[name]
    kind = config["features"]["kind"]
    events = stream(400)
    settings = {key: value for key, value in config.items() if key not in ("algorithm", "params")}
    learner = create(config["algorithm"], **config.get("params", {}), **settings)
    expected = learner.learn(
        [carried(event, kind) for event in events],
        [event["label"] for event in events],
        weights=[event["weight"] for event in events],
        ids=[f"e{i}" for i in range(len(events))],
    )
    url = "/v1/learners/a"
    scores: list[float] = []
    async with client() as http:
        assert (await http.put(url, json=config)).status_code == 201
        for start in range(0, len(events), size):
            part = [as_event(event, kind, start + i) for i, event in enumerate(events[start : start + size])]
            reply = await http.post(f"{url}/update", json={"events": part})
            scores += [result["score"] for result in reply.json()["results"]]
        digest = (await http.get(f"{url}/digest")).json()["digest"]
        figures = (await http.get(f"{url}/metrics")).json()
    assert np.array_equal(expected, scores)
    assert digest == learner.digest()
    local = learner.figures()
    assert {key: figures[key] for key in local} == local
    assert figures["window"]["auc"] > 0.55


def test_every_feature_kind_has_an_example():
    assert {item["features"]["kind"] for item in examples.CREATE.values()} >= {"dense", "named", "table"}
