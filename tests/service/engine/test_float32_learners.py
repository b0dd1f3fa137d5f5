"""A learner of precision "float32" over HTTP: created, logged, snapshotted and rolled back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from learners import Learner
from learners.config import Config
from service.engine.records.codec import pack_snapshot, unpack_snapshot
from tests.harness.apps import DENSE, client, events

pytestmark = pytest.mark.integration

SINGLE: dict[str, Any] = {**DENSE, "algorithm": "cbr", "precision": "float32"}
URL = "/v1/learners/half"


async def test_a_float32_learner_is_created_and_shown() -> None:
    async with client() as http:
        created = await http.put(URL, json=SINGLE)
        assert created.status_code == 201
        assert (await http.get(URL)).json()["config"]["precision"] == "float32"
        assert (await http.put(URL, json=SINGLE)).status_code == 200
        other = await http.put(URL, json={**SINGLE, "precision": "float64"})
        assert other.status_code == 409
        assert [error["pointer"] for error in other.json()["errors"]] == ["/precision"]
        assert (await http.put("/v1/learners/usual", json=DENSE)).json()["config"]["precision"] == "float64"
        changed = await http.patch(URL, json={"precision": "float64"})
        assert changed.status_code == 422


async def test_an_unknown_precision_is_refused_by_name() -> None:
    async with client() as http:
        for value in ("float16", 32):
            refused = await http.put(URL, json={**SINGLE, "precision": value})
            assert refused.status_code == 422
            assert [error["pointer"] for error in refused.json()["errors"]] == ["/precision"]
        assert (await http.get(URL)).status_code == 404


async def test_the_catalogue_lists_precisions_and_costs() -> None:
    async with client() as http:
        document = (await http.get("/v1/algorithms")).json()
    assert document["parts"]["learner"]["properties"]["precision"]["enum"] == ["float64", "float32"]
    costs = {algorithm["name"]: algorithm["cost"] for algorithm in document["algorithms"]}
    assert costs["loam-ilsc"].startswith("O(dim^2)")
    assert all(cost.startswith("O(") for cost in costs.values())


async def test_the_log_and_snapshots_keep_float32(tmp_path: Any) -> None:
    store = f"sqlite:///{tmp_path / 'half.db'}"
    async with client(store) as http:
        await http.put(URL, json=SINGLE)
        await http.post(URL + "/update", json={"events": events(40)})
        document = (await http.post(URL + "/snapshots")).json()["position"]
        before = (await http.get(URL + "/digest")).json()["digest"]
        await http.post(URL + "/update", json={"events": events(40, 40)})
        after = (await http.get(URL + "/digest")).json()["digest"]
        rolled = await http.post(f"{URL}/snapshots/{document}/restore")
        assert rolled.status_code == 200
        assert (await http.get(URL + "/digest")).json()["digest"] == before
        await http.post(URL + "/update", json={"events": events(40, 40)})
        assert (await http.get(URL + "/digest")).json()["digest"] == after
    async with client(store) as http:  # from the last snapshot, or from the log
        assert (await http.get(URL + "/digest")).json()["digest"] == after


@pytest.mark.parametrize("algorithm", ["cbr", "ranksvm"])
def test_a_float32_snapshot_has_half_the_bytes(algorithm: str) -> None:
    sizes = []
    for precision in ("float64", "float32"):
        config = {"algorithm": algorithm, "features": {"kind": "dense", "dim": 200}, "remembered_ids": 1, "window": 1}
        learner = Learner(Config.of({**config, "precision": precision}))
        X = np.random.default_rng(0).normal(size=(300, 200))
        learner.learn(X, (X[:, 0] > 1.0) * 1.0)
        packed = pack_snapshot(7, learner.config, learner.state())
        snapshot = unpack_snapshot(packed, "it")
        assert snapshot.config == learner.config
        assert {name: array.dtype for name, array in snapshot.state.items()} == {
            name: array.dtype for name, array in learner.state().items()
        }
        assert Learner.restored(learner.config, snapshot.state).digest() == learner.digest()
        sizes.append(len(packed))
    assert sizes[1] < 0.65 * sizes[0]
