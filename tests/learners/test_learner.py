"""The whole pipeline: one stream gives one state, however it is cut, copied, frozen or looked at."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from numba.core import config as numba_config
from numba.core.dispatcher import Dispatcher

import learners as library
from learners import InvalidInput, Learner, restore
from learners import model as model_module
from learners.numerics.arrays import Sparse
from learners.records import LabelledBatch, Segment, join_batches
from tests.learners.pipelines import EVERY, ONLINE, PIPELINES, Pipeline, batch, bits, crossed, cut, events, stream

DENSE = [pipeline for pipeline in PIPELINES if pipeline.kind == "dense"]
SCALINGS = ("none", "unit", "standard", "maxabs")
FEW = pytest.mark.parametrize("pipeline", DENSE, ids=lambda item: item.algorithm)


@EVERY
@given(cuts=st.lists(st.integers(0, 60), max_size=8), seed=st.integers(0, 2))
@settings(max_examples=6)
def test_batching_changes_no_bit(pipeline: Pipeline, cuts: list[int], seed: int) -> None:
    full, parts, singles = pipeline.learner(), pipeline.learner(), pipeline.learner()
    record, carried = stream(pipeline, full, 60, seed)
    outcomes = [full.apply(record)]
    assert outcomes[0] is not None
    assert 30 < outcomes[0].applied.sum() < 60
    for other, where in ((parts, cuts), (singles, list(range(1, 60)))):
        pieces = [other.apply(piece) for piece in cut(record, other, carried, where)]
        assert bits(pieces) == bits(outcomes)  # type: ignore[arg-type]
        assert other.digest() == full.digest()
        assert other.figures() == full.figures()


@EVERY
def test_joined_batches_equal_consecutive_batches(pipeline: Pipeline) -> None:
    joined, apart = pipeline.learner(), pipeline.learner()
    carried, y = events(pipeline, 40)
    pieces = [
        batch(apart, carried[:10], y[:10]),
        batch(apart, carried[10:15], y[10:15], ids=("a", None, "b", "a", "c"), times=np.arange(5.0)),
        batch(apart, [], y[:0]),
        batch(apart, carried[15:30], y[15:30], weights=np.full(15, 0.5), segments=(Segment(0, 15, "s", 3, 3),)),
        batch(apart, carried[30:], y[30:], segments=(Segment(0, 4, "s", 10, 10), Segment(4, 10, "t", 0, 0))),
    ]
    full = join_batches(pieces)
    assert len(full) == 40
    assert join_batches([full]) is full
    outcome = joined.apply(full)
    assert outcome is not None
    assert bits([outcome]) == bits([apart.apply(piece) for piece in pieces])  # type: ignore[misc]
    assert joined.digest() == apart.digest()
    assert bits([outcome.part(0, 7), outcome.part(7, 40)]) == bits([outcome])


@pytest.mark.integration
@pytest.mark.long
@FEW
def test_thousands_of_events_in_one_batch(pipeline: Pipeline) -> None:
    """In one call of each stage."""
    n = 4200
    carried, y = events(pipeline, n)
    X = np.array(carried)
    full, parts = pipeline.learner(window=1000), pipeline.learner(window=1000)
    scores = full.learn(X, y)
    pieces = [parts.learn(X[a:b], y[a:b]) for a, b in pairwise([0, 1, 2, 3, 500, 501, 3000, n])]
    assert np.concatenate(pieces).tobytes() == scores.tobytes()
    assert full.digest() == parts.digest()


@EVERY
def test_the_chunk_size_has_no_effect(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    usual, narrow = pipeline.learner(), pipeline.learner()
    record, _ = stream(pipeline, usual, 60)
    outcome = usual.apply(record)
    for numbers in (1, 20, 100):
        monkeypatch.setattr(model_module, "CHUNK_NUMBERS", numbers)
        narrow = pipeline.learner()
        assert bits([narrow.apply(record)]) == bits([outcome])  # type: ignore[list-item]
        assert narrow.digest() == usual.digest()


@crossed("scaling", SCALINGS, usual=lambda place: SCALINGS[place // 4 % 4])
def test_predict_equals_the_scores_of_learning_bit_for_bit(pipeline: Pipeline, scaling: str) -> None:
    learner = pipeline.learner(scaling={"kind": scaling})
    carried, y = events(pipeline, 40)
    for i, event in enumerate(carried):
        rows = learner.encode([event])
        before = learner.digest()
        predictions = learner.scorer().score(rows)
        together = learner.scorer().frozen().score(learner.encode(carried[i:]))
        assert learner.digest() == before
        learnt = learner.apply(LabelledBatch(rows, y[i : i + 1]))
        assert learnt is not None
        for name, column in predictions._asdict().items():
            expected = getattr(learnt, name)
            assert (column is None) == (expected is None) == pipeline.traits.ordinal or column is not None
            if column is not None:
                assert column.tobytes() == getattr(together, name)[:1].tobytes() == expected.tobytes()
    assert learner.score(carried).tobytes() == learner.scorer().score(learner.encode(carried)).scores.tobytes()


@ONLINE
def test_frozen_views_stay_while_the_learner_continues(pipeline: Pipeline) -> None:
    learner = pipeline.learner()
    carried, y = events(pipeline, 60)
    learner.apply(batch(learner, carried[:30], y[:30], segments=(Segment(0, 30, "s", 0, 0),)))
    rows = learner.encode(carried)
    view = learner.view().frozen()
    scores, figures, history = view.scorer.score(rows), view.figures.as_json(), view.figures.history()
    assert (view.sources, view.columns) == ({"s": 30}, learner.view().columns)
    assert scores.scores.tobytes() == learner.scorer().score(rows).scores.tobytes()
    learner.apply(batch(learner, carried[30:], y[30:], segments=(Segment(0, 30, "s", 30, 30),)))
    again = view.scorer.score(rows)
    for before, after in zip(scores, again, strict=True):
        assert before is after is None or before.tobytes() == after.tobytes()
    assert (view.figures.as_json(), view.figures.history()) == (figures, history)
    assert view.sources == {"s": 30}
    assert learner.view().sources == {"s": 60}
    assert learner.scorer().score(rows).scores.tobytes() != scores.scores.tobytes()


def without_duplicates(learner: Learner) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in learner.state().items() if name != "metrics.counters"}


@EVERY
def test_duplicates_change_nothing_but_their_count(pipeline: Pipeline) -> None:
    learner = pipeline.learner()
    carried, y = events(pipeline, 20)
    ids = tuple(f"e{i}" for i in range(20))
    first = batch(learner, carried, y, ids=ids)
    outcome = learner.apply(first)
    assert outcome is not None
    assert outcome.applied.all()
    before = without_duplicates(learner)
    again = learner.apply(first)
    assert again is not None
    assert not again.applied.any()
    assert not again.decisions.any()
    columns = [column for column in (again.scores, again.probabilities, again.thresholds) if column is not None]
    assert len(columns) == (1 if pipeline.traits.ordinal else 3)
    assert np.isnan(columns).all()
    assert without_duplicates(learner) == before
    assert learner.figures()["duplicates"] == 20

    by_source = batch(learner, carried[:3], y[:3], segments=(Segment(0, 3, "s", 0, 0),))
    learner.apply(by_source)
    before = without_duplicates(learner)
    learner.apply(by_source)
    learner.apply(dataclasses.replace(by_source, ids=("x", "y", None)))  # such ids are not remembered
    assert without_duplicates(learner) == before
    assert learner.figures()["duplicates"] == 26


@EVERY
def test_duplicates_among_new_events_do_not_affect_them(pipeline: Pipeline) -> None:
    learner, without = pipeline.learner(), pipeline.learner()
    carried, y = events(pipeline, 12)
    weights = np.linspace(0.0, 2.0, 12)
    ids = ("a", "b", None, "a", "c", "b", "d", None, "e", "e", "e", "f")
    new = [0, 1, 2, 4, 6, 7, 8, 11]
    y[3], y[5], y[9:11] = y[0], y[1], y[8]  # with other labels they would be corrections
    outcome = learner.apply(batch(learner, carried, y, ids=ids, weights=weights))
    alone = without.apply(
        batch(without, [carried[i] for i in new], y[new], ids=tuple(ids[i] for i in new), weights=weights[new])
    )
    assert outcome is not None
    assert alone is not None
    assert np.flatnonzero(outcome.applied).tolist() == new
    assert outcome.scores[new].tobytes() == alone.scores.tobytes()
    assert outcome.decisions[new].tobytes() == alone.decisions.tobytes()
    assert without_duplicates(learner) == without_duplicates(without)


@FEW
def test_weights_multiply_steps(pipeline: Pipeline) -> None:
    carried, y = events(pipeline, 40)
    plain, ones, heavy, none = (pipeline.learner() for _ in range(4))
    plain.learn(carried, y)
    ones.learn(carried, y, weights=[1] * 40)
    heavy.learn(carried, y, weights=np.linspace(1.0, 5.0, 40))
    none.learn(carried, y, weights=np.zeros(40))
    assert ones.digest() == plain.digest()
    assert not np.array_equal(heavy.score(carried), plain.score(carried))
    assert np.ptp(none.score(carried)) == 0.0
    assert none.figures()["class_counts"] == plain.figures()["class_counts"]


@EVERY
def test_refused_events_change_nothing(pipeline: Pipeline) -> None:
    learner = pipeline.learner()
    learner.apply(stream(pipeline, learner, 30)[0])
    carried, y = events(pipeline, 2)
    before = learner.digest()
    broken: list[tuple[Any, Any, dict[str, Any]]] = [
        ([carried[0], 7], y, {}),
        ([carried[0], None], y, {}),
        (carried, [1], {}),
        (carried, [1, 2 if not pipeline.traits.ordinal else 6], {}),
        (carried, [1, None], {}),
        (carried, [1, "1"], {}),
        (carried, [[1, 0]], {}),
        (carried, [[1], [1, 0]], {}),
        (carried, 1, {}),
        (carried, [1, np.nan], {}),
        (carried, [1, 10**400], {}),
        (carried, y, {"weights": [1.0]}),
        (carried, y, {"weights": [1.0, -1.0]}),
        (carried, y, {"weights": [1.0, np.nan]}),
        (carried, y, {"weights": [1.0, 2e6]}),
        (carried, y, {"weights": ["1", "2"]}),
        (carried, y, {"weights": [1, None]}),
        (carried, y, {"weights": [[1], [1, 2]]}),
        (carried, y, {"weights": 1.0}),
        (carried, y, {"times": [1e9]}),
        (carried, y, {"times": [1e9, np.inf]}),
        (carried, y, {"times": [1e9, 299]}),
        (carried, y, {"times": [1e9, "2"]}),
        (carried, y, {"times": [1e9, b"2019-11-30"]}),
        (carried, y, {"times": 1e9}),
        (carried, y, {"ids": ["a"]}),
        (carried, y, {"ids": ["a", 5.5]}),
    ]
    for X, labels, more in broken:
        with pytest.raises(InvalidInput):
            learner.learn(X, labels, **more)
        assert learner.digest() == before
    with pytest.raises(InvalidInput):
        learner.score([carried[0], 7])
    assert learner.learn([], []).shape == (0,)
    assert learner.digest() == before


def _other(pipeline: Pipeline, y: Any) -> Any:
    return y % 5 + 1 if pipeline.traits.ordinal else -y


def test_unusual_arrays_trigger_no_recompilation() -> None:
    """It would cost seconds in the middle of a stream."""
    infos = pkgutil.walk_packages(library.__path__, "learners.")
    modules = [importlib.import_module(info.name) for info in infos]

    def compiled() -> dict[str, int]:
        return {
            f"{module.__name__}.{name}": len(var.signatures)
            for module in modules
            for name, var in vars(module).items()
            if isinstance(var, Dispatcher)
        }

    learners = [pipeline.learner() for pipeline in PIPELINES]
    for pipeline, learner in zip(PIPELINES, learners, strict=True):
        carried, y = events(pipeline, 20)
        learner.learn(carried, y, ids=[str(i) for i in range(20)], times=1e9 + np.arange(20.0))
        learner.learn(carried[:1], _other(pipeline, y[:1]), ids=["0"])
        learner.score(carried)
    before = compiled()
    for pipeline, learner in zip(PIPELINES, learners, strict=True):
        carried, y = events(pipeline, 20, seed=1)
        fortran = {name: np.asfortranarray(array) for name, array in learner.state().items()}
        other = restore(learner.config.to_json(), fortran)
        other.learn(carried, y.astype(np.int8), weights=np.ones(20, dtype=np.int32), ids=[str(i) for i in range(20)])
        other.learn(carried, y.tolist() if pipeline.traits.ordinal else (y > 0).tolist())
        other.learn(carried[:1], _other(pipeline, y[:1]).astype(np.int8), ids=["0"], times=[np.float32(1e9)])
        other.score(carried)
        if pipeline.kind == "dense":
            X = np.asfortranarray(np.array(carried, dtype=np.float32))
            X.flags.writeable = False
            other.learn(X, y)
            other.score(X[::-2])
        elif pipeline.kind == "sparse":
            rows = other.encode(carried)
            assert isinstance(rows, Sparse)
            X = scipy.sparse.csc_matrix(scipy.sparse.csr_array((rows.data, rows.indices, rows.indptr), (20, 300)))
            other.learn(X.astype(np.float32), y)
            other.score(X)
    assert not {name for name, versions in compiled().items() if versions > max(1, before[name])}
    assert any(before.values()) != bool(numba_config.DISABLE_JIT)
