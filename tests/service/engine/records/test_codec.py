"""Records and snapshots are encoded and decoded to the bit, and malformed ones are refused."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import msgspec
import numpy as np
import pytest

import learners
from learners.comparison import ComparedBatch, GroupComparison, GroupConfig
from learners.config import Config
from learners.numerics.arrays import Sparse
from learners.records import FitResult, LabelledBatch, LateColumns, Note, Rollback, Segment, ServedBatch, SettingsChange
from service.engine.records.codec import (
    Created,
    Record,
    config_of,
    pack_record,
    pack_snapshot,
    unpack_record,
    unpack_snapshot,
)
from service.errors import Damaged
from tests.service.engine.replica.test_served_events import SETUPS, labelled, library

GROUP = GroupConfig.of({"learners": ["one", "two"]})
ODD = np.array([0.1, -0.0, np.nan])
LATE = LateColumns.none(3)._replace(
    served=np.array([True, False, True]),
    bare=np.array([False, True, False]),
    assumed=np.array([False, False, True]),
    scores=ODD,
    decisions=np.array([1, 0, 127]),
    labelled=np.array([1e10, np.nan, -5.0]),
)
SPARSE = Sparse(np.array([1.5, np.nan]), np.array([7, 2**24 - 1]), np.array([0, 0, 2, 2]))
RECORDS: dict[str, Record] = {
    "creation": Created(Config.of(SETUPS["table"]).to_json()),
    "creation of a copy": Created(Config.of(SETUPS["table"]).to_json(), {"a.b": np.zeros((2, 0, 3)), "ids.ring": ODD}),
    "creation of a group": Created(GROUP.to_json()),
    "batch": LabelledBatch(np.arange(6.0).reshape(3, 2), np.array([1.0, -1.0, 3.0])),
    "batch with everything": LabelledBatch(
        rows=SPARSE,
        labels=np.array([1.0, -1.0, -1.0]),
        weights=np.array([0.0, 1.0, 1e6]),
        times=ODD,
        ids=("a", None, "\U0001f980"),
        segments=(Segment(0, 2, "file", 5, 5), Segment(2, 3, "é", 2**53, 7)),
        costs=np.array([1.0, 0.0, 1e15]),
        late=LATE,
    ),
    "served": ServedBatch(np.array([1, 2**64 - 1, 0], dtype=np.uint64), ODD, ODD, np.array([0, 1, 1]), ODD, ODD),
    "served ranks": ServedBatch(np.zeros(3, dtype=np.uint64), ODD, ODD, np.array([1, 2, 127])),
    "served nothing": ServedBatch(np.zeros(0, dtype=np.uint64), np.zeros(0), np.zeros(0), np.zeros(0, dtype=np.int64)),
    "note": Note("deployed < 2.31\n", 1.7e9, "Ann", "desk"),
    "acknowledgement": Note("", 1.7e9, alarm=3),
    "change": SettingsChange({"late": {"label_ttl": 5.0, "unlabelled": "negative"}, "figures": {"k": 3}}),
    "roll-back": Rollback(7, {"ids.ring": np.array([2**63], dtype=np.uint64)}),
    "roll-back of settings": Rollback(7, {"a.b": np.zeros((2, 0, 3))}, {"figures": {"k": 3}}),
    "fit": FitResult(10, 2, 3, {"algorithm.w": ODD}),
    "comparison": ComparedBatch(
        np.array([5, 0, 6], dtype=np.uint64), np.array([1.0, -1.0, 1.0]), np.ones((3, 2)) * ODD[:, None], ODD
    ),
}
EACH = pytest.mark.parametrize("name", RECORDS)


def same(first: Any, other: Any) -> bool:
    """Compare to the bit, including dtypes."""
    if isinstance(first, np.ndarray):
        return (first.dtype, first.shape, first.tobytes()) == (other.dtype, other.shape, other.tobytes())
    if type(first) is not type(other):
        return False
    if is_dataclass(first):
        return all(same(getattr(first, field.name), getattr(other, field.name)) for field in fields(first))
    if isinstance(first, msgspec.Struct):
        return same(msgspec.structs.asdict(first), msgspec.structs.asdict(other))
    if isinstance(first, dict):
        return first.keys() == other.keys() and all(same(first[name], other[name]) for name in first)
    if isinstance(first, tuple):
        return len(first) == len(other) and all(same(*pair) for pair in zip(first, other, strict=True))
    return bool(first == other)


@EACH
def test_a_record_is_decoded_bit_for_bit(name: str) -> None:
    record = RECORDS[name]
    data = pack_record(record)
    back = unpack_record(data, "record 2 of a")
    assert same(back, record)
    assert pack_record(back) == data


@EACH
def test_a_truncated_or_changed_record_is_refused(name: str) -> None:
    data = pack_record(RECORDS[name])
    for cut in (0, 5, 9, 10, len(data) - 1):
        with pytest.raises(Damaged, match=r"^it\b"):
            unpack_record(data[:cut], "it")
    for place in range(len(data)):
        if place == 5:  # the kind has no checksum: another one has other members
            continue
        changed = bytearray(data)
        changed[place] ^= 0x10
        with pytest.raises(Damaged, match=r"^it\b"):
            unpack_record(bytes(changed), "it")


@EACH
def test_the_arrays_of_a_record_are_writable(name: str) -> None:
    """Read-only arrays would make numba compile a kernel a second time."""
    record = unpack_record(pack_record(RECORDS[name]), "record 2 of a")
    arrays = list(vars(record).values()) if is_dataclass(record) else []
    arrays += [column for group in arrays if isinstance(group, tuple) for column in group]
    for array in arrays:
        if isinstance(array, np.ndarray):
            assert array.flags.writeable
            assert array.flags.c_contiguous


def test_unknown_records_and_snapshots_in_their_place_are_refused() -> None:
    learner = library("dense", [labelled("dense", 0, 5)])
    snapshot = pack_snapshot(3, learner.config, learner.state())
    with pytest.raises(Damaged, match=r"^it\b.*\b4\b"):
        unpack_record(snapshot, "it")
    with pytest.raises(Damaged, match=r"^it\b.*\b2\b"):
        unpack_snapshot(pack_record(RECORDS["batch"]), "it")


def test_snapshots_of_learners_and_groups_are_decoded() -> None:
    learner = library("dense", [labelled("dense", 0, 50)])
    comparison = GroupComparison(GROUP)
    comparison.apply(ComparedBatch(np.arange(4, dtype=np.uint64), np.ones(4), np.ones((4, 2)), np.full(4, np.nan)))
    for machine in (learner, comparison):
        snapshot = unpack_snapshot(pack_snapshot(9, machine.config, machine.state()), "snapshot 9 of a")
        assert (snapshot.position, snapshot.config) == (9, machine.config)
        assert same(snapshot.state, {name: np.asarray(array) for name, array in machine.state().items()})


def test_a_configuration_identifies_learners_and_groups() -> None:
    assert config_of(GROUP.to_json()) == GROUP
    config = Config.of(SETUPS["named"])
    assert config_of(config.to_json()) == config


SINGLE = np.array([[1.5, -0.0, 2.0**-149], [3e38, 1 / 3, 0.0]], dtype=np.float32).astype(np.float64)
ROWS = {
    "float32": (SINGLE, True),
    "whole numbers": (np.array([[0.0, 2.0**24], [-7.0, 1.0]]), True),
    "no float32 in the first row": (np.array([[0.1, 0.0], [1.0, 1.0]]), False),
    "one number that is no float32": (np.array([[1.0, 0.0], [1.0, 2.0**24 + 1]]), False),
    "below the least float32": (np.array([[1.0], [1e-300]]), False),
    "beyond the largest float32": (np.array([[1.0], [1e39]]), False),
    "a number is missing": (np.array([[1.0], [np.nan]]), False),
    "no rows": (np.empty((0, 3)), True),
}


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("sparse", [False, True])
def test_float32_arrays_take_half_the_space_and_are_decoded_bit_for_bit(name: str, sparse: bool) -> None:
    X, narrow = ROWS[name]
    n = len(X)
    if sparse:
        X = X.ravel()
        rows: Any = Sparse(X, np.arange(X.size), np.linspace(0, X.size, n + 1).astype(np.int64))
    else:
        rows = X
    data = pack_record(LabelledBatch(rows, np.ones(n)))
    assert (b"<f4" in data) == narrow
    back = unpack_record(data, "it")
    assert isinstance(back, LabelledBatch)
    result = back.rows.data if isinstance(back.rows, Sparse) else back.rows
    assert (result.dtype, result.shape, result.tobytes()) == (np.float64, X.shape, X.tobytes())
    assert result.flags.writeable


@pytest.mark.parametrize("algorithm", learners.algorithms())
def test_the_state_of_every_algorithm_can_be_stored(algorithm: str) -> None:
    for features in ({"kind": "dense", "dim": 3}, {"kind": "sparse", "dim": 9}, {"kind": "named", "bits": 6}):
        try:
            learner = learners.create(algorithm, features=features)
        except ValueError:  # it takes no such events
            continue
        state = {name: np.asarray(array) for name, array in learner.state().items()}
        fit = FitResult(10, 2, 3, {name: array for name, array in state.items() if name.startswith("algorithm.")})
        assert same(unpack_record(pack_record(fit), "record 2 of a"), fit)
        assert same(unpack_snapshot(pack_snapshot(9, learner.config, state), "snapshot 9 of a").state, state)
