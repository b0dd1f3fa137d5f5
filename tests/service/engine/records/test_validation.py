"""Records and rows that this service cannot have written are refused before the learner applies them."""

from __future__ import annotations

import sqlite3
import struct
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from learners.comparison import ComparedBatch
from learners.config import Config
from learners.learner import Learner
from learners.numerics.arrays import Sparse
from learners.records import FitResult, LabelledBatch, LateColumns, Rollback, Segment, ServedBatch
from service.engine.records.codec import pack_record, pack_snapshot, unpack_record
from service.engine.records.validation import check_compared, check_record
from service.errors import Damaged
from service.storage.memory import MemoryStore
from service.storage.open_store import open_store
from tests.harness.nodes import digest, node, over, posted, serving
from tests.service.engine.replica.test_served_events import SETUPS, labelled

DENSE, SPARSE, ORDINAL = (Config.of(SETUPS[name]) for name in ("dense", "sparse", "ordinal"))
ROWS = LabelledBatch(np.ones((3, 3)), np.array([1.0, -1.0, 1.0]))
CSR = Sparse(np.ones(3), np.array([4, 7, 2]), np.array([0, 2, 2, 3]))
LATE = LateColumns.none(3)._replace(bare=np.array([False, True, False]))
SERVED = ServedBatch(
    np.arange(1, 4, dtype=np.uint64), np.ones(3), np.ones(3), np.array([0, 1, 1]), np.full(3, 0.5), np.full(3, 0.5)
)
BATCHES: dict[str, tuple[dict[str, Any], str]] = {
    "a label": ({"labels": np.array([1.0, 0.0, 1.0])}, "labels"),
    "a row too few": ({"rows": np.ones((2, 3))}, "shape"),
    "a column too many": ({"rows": np.ones((3, 4))}, "shape"),
    "no number": ({"rows": np.full((3, 3), np.nan)}, "numbers"),
    "beyond what is taken": ({"rows": np.full((3, 3), 1e31)}, "numbers"),
    "sparse rows": ({"rows": CSR}, "dense"),
    "a weight": ({"weights": np.array([1.0, -1.0, 1.0])}, "weights"),
    "weights of others": ({"weights": np.ones(2)}, "weights"),
    "a time": ({"times": np.array([1.0, np.inf, 1.0])}, "times"),
    "a cost": ({"costs": np.array([1.0, np.nan, 1.0])}, "costs"),
    "ids of others": ({"ids": ("a",)}, "1 id "),
    "a source beyond the end": ({"segments": (Segment(0, 4, "file", 0, 0),)}, "source"),
    "sources that overlap": ({"segments": (Segment(0, 2, "a", 0, 0), Segment(1, 3, "b", 0, 0))}, "source"),
    "an offset below 0": ({"segments": (Segment(0, 3, "file", -1, -1),)}, "at -1"),
    "a source without a name": ({"segments": (Segment(0, 3, "", 0, 0),)}, "empty"),
    "a label without its id": ({"rows": np.ones((2, 3)), "late": LATE, "ids": ("a", None, "b")}, "id"),
    "what was served": (
        {"late": LateColumns.none(3)._replace(served=np.ones(3, np.bool_)), "ids": ("a", "b", "c")},
        "probabilities",
    ),
    "late labels of others": ({"late": LateColumns.none(2), "ids": ("a", "b", "c")}, "late"),
}


@pytest.mark.parametrize("name", BATCHES)
def test_an_impossible_batch_is_refused(name: str) -> None:
    changes, word = BATCHES[name]
    check_record(ROWS, DENSE, "it")
    with pytest.raises(Damaged, match=rf"^it\b.*{word}"):
        check_record(replace(ROWS, **changes), DENSE, "it")


@pytest.mark.parametrize(
    "rows",
    [
        CSR._replace(indices=np.array([4, 50, 2])),
        CSR._replace(indices=np.array([4, -1, 2])),
        CSR._replace(indices=np.array([7, 4, 2])),
        CSR._replace(indptr=np.array([0, 3, 2, 3])),
        CSR._replace(indptr=np.array([0, 2, 2, 9])),
        CSR._replace(indptr=np.array([1, 2, 2, 3])),
        CSR._replace(indptr=np.array([0, 3])),
        CSR._replace(data=np.ones(2)),
        CSR._replace(data=np.array([1.0, np.nan, 1.0])),
    ],
)
def test_sparse_rows_that_would_mislead_a_kernel_are_refused(rows: Sparse) -> None:
    check_record(replace(ROWS, rows=CSR), SPARSE, "it")
    with pytest.raises(Damaged):
        check_record(replace(ROWS, rows=rows), SPARSE, "it")


def test_invalid_ranks_and_expired_ordinal_labels_are_refused() -> None:
    check_record(replace(ROWS, labels=np.array([1.0, 2.0, 3.0])), ORDINAL, "it")
    assumed = LateColumns.none(3)._replace(assumed=np.ones(3, dtype=np.bool_))
    for changes in ({"labels": np.array([1.0, 2.0, 4.0])}, {"late": assumed, "ids": ("a", "b", "c")}):
        with pytest.raises(Damaged):
            check_record(replace(ROWS, **{"labels": np.ones(3), **changes}), ORDINAL, "it")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes",
    [
        {"decisions": np.array([0, 1, 2])},
        {"probabilities": np.array([0.5, 1.5, 0.5])},
        {"probabilities": None},
        {"scores": np.zeros(2)},
        {"times": np.ones(2)},
        {"times": np.array([1.0, 1e13, 1.0])},
        {"hashes": np.ones(2, dtype=np.uint64)},
    ],
)
def test_an_invalid_served_record_is_refused(changes: dict[str, Any]) -> None:
    check_record(SERVED, DENSE, "it")
    check_record(replace(SERVED, scores=np.full(3, np.nan)), DENSE, "it")  # they have overflowed
    with pytest.raises(Damaged):
        check_record(replace(SERVED, **changes), DENSE, "it")


def test_an_invalid_fit_or_comparison_is_refused() -> None:
    check_record(FitResult(10, 0, 3, {}), DENSE, "it")
    with pytest.raises(Damaged):
        check_record(FitResult(10, 0, -3, {}), DENSE, "it")
    good = ComparedBatch(np.zeros(2, dtype=np.uint64), np.array([1.0, -1.0]), np.ones((2, 2)), np.full(2, np.nan))
    check_compared(good, "it")
    for changes in ({"labels": np.zeros(2)}, {"clocks": np.array([1.0, np.inf])}, {"hashes": np.zeros(2)}):
        with pytest.raises(Damaged):
            check_compared(replace(good, **changes), "it")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["change", "batch"])
def test_text_that_is_not_utf8_is_refused(name: str) -> None:
    data = {"change": b"\x81\xa1\xff\x01", "batch": b"\x81\xa6label\xff\xc0"}[name]
    kind = pack_record(ROWS)[5] if name == "batch" else 7

    framed = struct.pack("<4sBBI", b"rare", 1, kind, zlib.crc32(data)) + data
    with pytest.raises(Damaged, match=r"^it\b.*\breadable\b"):
        unpack_record(framed, "it")


SCALED = {**SETUPS["dense"], "scaling": {"kind": "standard"}}
BEYOND = [("mean", 1e300), ("m2", 1e300), ("mean", -1e40)]


def scaled(name: str, value: float) -> tuple[Learner, dict[str, Any]]:
    """Return a learner, and its state with such a number in its scaling."""
    learner = Learner(Config.of(SCALED))
    learner.learn(np.arange(30.0).reshape(10, 3), np.arange(10) % 2)
    state = {key: array.copy() for key, array in learner.state().items()}
    state[f"scaling.{name}"][1] = value
    return learner, state


@pytest.mark.parametrize(("name", "value"), BEYOND)
async def test_a_state_scaling_every_feature_to_nan_is_refused(name: str, value: float) -> None:
    learner, state = scaled(name, value)
    with pytest.raises(Damaged, match=rf"^it\b.*\b{name}\b"):
        check_record(Rollback(3, state), learner.config, "it")
    check_record(Rollback(3, learner.state()), learner.config, "record 9 of a")
    async with serving(MemoryStore()) as (http, _):
        file = pack_snapshot(9, learner.config, state)
        reply = await http.post("/learners/a/import", content=file)
        assert reply.status_code == 422
        assert f"scaling.{name}" in reply.json()["detail"]
        file = pack_snapshot(9, learner.config, learner.state())
        assert (await http.post("/learners/a/import", content=file)).status_code == 201


async def test_a_snapshot_scaling_every_feature_to_nan_is_skipped() -> None:
    store = MemoryStore()
    async with serving(store, trim_log=False) as (http, engine):
        await http.put("/learners/a", json=SCALED)
        await posted(http, "/learners/a/update", labelled("dense", 0, 20))
        learner = engine.replicas["a"].learner
        state = {key: array.copy() for key, array in learner.state().items()}
        state["scaling.mean"][0] = 1e300
        await store.save("a", engine.replicas["a"].birth, 2, pack_snapshot(2, learner.config, state), 3, trim=False)
        reply = await http.post("/learners/a/snapshots/2/restore")
        assert (reply.status_code, reply.json()["code"]) == (500, "damaged")
        before = await digest(http)
    async with serving(store) as (http, _):
        assert await digest(http) == before


def test_a_rollback_needs_a_valid_position() -> None:
    learner, _ = scaled("mean", 0.0)
    with pytest.raises(Damaged, match="position"):
        check_record(Rollback(-1, learner.state()), learner.config, "record 9 of a")


async def test_a_state_is_limited_to_the_record_size(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(MemoryStore()) as (http, engine):
        await http.put("/learners/a", json=SCALED)
        await posted(http, "/learners/a/update", labelled("dense", 0, 20))
        position = (await http.post("/learners/a/snapshots")).json()["position"]
        size = len(pack_record(Rollback(position, engine.replicas["a"].learner.state())))
        before = await digest(http)
        monkeypatch.setattr("service.engine.replica.log_follower.RECORD_BYTES", size - 1)
        reply = await http.post(f"/learners/a/snapshots/{position}/restore")
        assert (reply.status_code, reply.json()["code"]) == (413, "too-large")
        assert await digest(http) == before
        monkeypatch.setattr("service.engine.replica.log_follower.RECORD_BYTES", size + 1000)
        assert (await http.post(f"/learners/a/snapshots/{position}/restore")).status_code == 200
    monkeypatch.setattr("service.engine.records.validation.RECORD_BYTES", 1000)
    learner, _ = scaled("mean", 0.0)
    with pytest.raises(Damaged, match=r"\b1000\b"):
        check_record(Rollback(1, learner.state()), learner.config, "record 9 of a")


async def test_a_follower_stops_before_an_impossible_record() -> None:
    store = MemoryStore()
    async with serving(store) as (http, engine):
        await http.put("/learners/a", json=SETUPS["dense"])
        await posted(http, "/learners/a/update", labelled("dense", 0, 20))
        before = await digest(http)
        wide = pack_record(replace(ROWS, rows=np.ones((3, 500))))
        birth = (await store.heads())["a"].birth
        await store.append("a", birth, [(b"t" * 16, wide)], before[0])
        reply = await http.post("/learners/a/update", json={"events": labelled("dense", 20, 21)})
        assert (reply.status_code, reply.json()["code"]) == (500, "damaged")
        assert "(3, 500)" in reply.json()["detail"]
        assert (engine.replicas["a"].position, engine.replicas["a"].learner.digest()) == before


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE entry SET data = 'dGV4dA==' WHERE position = 3",
        "UPDATE entry SET position = x'00' WHERE position = 3",
        "UPDATE part SET data = 7",
        "UPDATE learner SET head = 'text'",
        "UPDATE learner SET head = 9223372036854775807",  # no position follows
        "UPDATE learner SET trimmed = 102",  # beyond every snapshot: there is no way on, and nothing to wait for
        "UPDATE pending SET bytes = x'00'",
        "UPDATE served SET time = x'00'",
        "UPDATE snapshot SET time = 'text'",
    ],
)
async def test_a_row_of_wrong_type_is_reported_and_affects_one_learner(tmp_path: Path, change: str) -> None:
    path = tmp_path / "store.db"
    store = await open_store(f"sqlite:///{path}")
    async with node(store) as engine, over(engine) as http:
        for name in ("a", "b"):
            await http.put(f"/learners/{name}", json=SETUPS["dense"])
            await posted(http, f"/learners/{name}/update", labelled("dense", 0, 20))
            await http.post(f"/learners/{name}/snapshots")
            await posted(http, f"/learners/{name}/predict", [{"id": "s", "x": [1.0, 2.0, 3.0]}])
    await store.close()
    table = change.split()[1]
    conditions = {"part": "snapshot IN (SELECT id FROM snapshot WHERE learner = 1)", "learner": "id = 1"}
    where = f"{'AND' if 'WHERE' in change else 'WHERE'} {conditions.get(table, 'learner = 1')}"
    with sqlite3.connect(path) as db:
        assert db.execute(f"{change} {where}").rowcount > 0
    db.close()
    store = await open_store(f"sqlite:///{path}")
    refusal = ""
    try:
        try:
            async with node(store) as engine, over(engine) as http:
                body = {"events": [{"id": "s", "label": 1}]}
                for path_of in ("update", "labels"):
                    assert (await http.post(f"/learners/b/{path_of}", json=body)).status_code == 200
                    reply = await http.post(f"/learners/a/{path_of}", json=body)
                    assert reply.status_code == 200 or reply.json()["code"] in ("damaged", "store-unavailable")
                reply = await http.get("/learners/a/snapshots")
                assert reply.status_code == 200 or reply.json()["code"] == "damaged"
        except Damaged as error:  # the node does not start
            refusal = error.detail
    finally:
        await store.close()
    asked_for_all = change.endswith("head = 'text'")
    assert ("release" in refusal) == asked_for_all, refusal
