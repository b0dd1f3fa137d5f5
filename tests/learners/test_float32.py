"""Precision "float32": half the memory, nearly the same scores, and the same bits after cuts and restores."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import typing
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numba.core import config as numba_config

from learners import Config, InvalidInput, Learner, algorithms, create, restore
from learners.algorithms import model_scores
from learners.algorithms.auc import cbr
from learners.algorithms.base import initial
from learners.features import kernel_approximation
from learners.model import FitJob
from learners.numerics import packed_symmetric
from learners.numerics.arrays import Matrix, Sparse, Vector
from learners.numerics.float32 import nearest, stored
from learners.records import Rollback
from tests.learners.numerics.bits import hashes
from tests.learners.pipelines import EVERY, PIPELINES, Pipeline, copied, events
from tests.learners.streams import as_sparse, auc, labels_for, run, stream

pytestmark = pytest.mark.integration

LARGEST = float(np.finfo(np.float32).max)

NAMED = pytest.mark.parametrize(
    "algorithm", [pytest.param(algorithm, id=name) for name, algorithm in algorithms().items()]
)
ONLINE = pytest.mark.parametrize(
    ("algorithm", "convert"),
    [
        pytest.param(algorithm, convert, id=f"{name}-{convert.__name__}")
        for name, algorithm in algorithms().items()
        if hasattr(algorithm, "learn")
        for convert in [np.ascontiguousarray] * algorithm.TRAITS.dense + [as_sparse] * algorithm.TRAITS.sparse
    ],
)


# The state


@NAMED
def test_the_declared_arrays_are_float32_and_the_others_unchanged(algorithm: Any) -> None:
    double, single = (initial(algorithm, algorithm.Params(), 40, 3, item) for item in ("float64", "float32"))
    assert algorithm.TRAITS.halved
    for name, item, other in zip(double._fields, double, single, strict=True):
        halved = name in algorithm.TRAITS.halved
        assert (item.dtype, other.dtype) == ((np.float64, np.float32) if halved else (item.dtype, item.dtype)), name
        assert item.shape == other.shape
        assert np.array_equal(item.astype(other.dtype), other)


# Of the bytes of a state with many columns: sums and means over the whole stream, of rows or of weights, stay float64,
# and the places of numbers are whole numbers.
_SHARE = {"auto": 0.873, "loam-ada": 0.75, "solam": 0.75, "nsolam": 0.75, "opaucs": 0.76}


@pytest.mark.parametrize("name", algorithms())
def test_a_state_uses_half_the_memory(name: str) -> None:
    algorithm = algorithms()[name]
    dim = 500 if name in ("cbr", "opauc", "adaoam", "loam-ilsc", "opaucs") else 5000
    params = algorithm.Params()
    states = [initial(algorithm, params, dim, 0, item) for item in ("float64", "float32")]
    if "values" in states[0]._fields and hasattr(algorithm, "learn"):  # buffers as wide as the rows that come
        row = np.ones((1, dim))
        scores = np.empty((1, params.ranks)) if algorithm.TRAITS.ordinal else np.empty(1)
        states = [algorithm.learn(params, state, row, np.ones(1), np.ones(1), scores) for state in states]
    double, single = (sum(array.nbytes for array in state) for state in states)
    assert single / double == pytest.approx(_SHARE.get(name, 0.5), abs=0.01)


@EVERY
@pytest.mark.campaign
def test_dtypes_are_preserved_during_learning(pipeline: Pipeline) -> None:
    learner = pipeline.learner(precision="float32")
    carried, y = events(pipeline, 70)
    before = {name: array.dtype for name, array in learner.state().items()}
    learner.learn(carried, _labels(pipeline, y))
    after = {name: array.dtype for name, array in learner.state().items()}
    assert after == before
    halved = {f"algorithm.{name}" for name in pipeline.traits.halved} | {"retained.values"}
    halved |= {f"embedding.{name}" for name in kernel_approximation.HALVED}
    assert {name for name, dtype in after.items() if dtype == np.float32} == halved


def _labels(pipeline: Pipeline, y: Vector) -> Vector:
    return y if pipeline.traits.ordinal else (y > 0) * 1.0


# Scores


@pytest.mark.long
@ONLINE
def test_scores_are_close_to_those_of_float64(algorithm: Any, convert: Any) -> None:
    X, y = stream(1000, 12, seed=5, share=0.2, gap=0.5, density=0.8)
    labels = labels_for(algorithm, y)
    params = algorithm.Params()
    (_, double), (_, single) = (
        run(algorithm, params, convert(X), labels, precision=item) for item in ("float64", "float32")
    )
    spread = double.std()
    np.testing.assert_allclose(single[:300], double[:300], atol=1e-3 * spread)
    assert single.tobytes() != double.tobytes()
    if algorithm.TRAITS.ordinal:
        double, single = (algorithm.decide(params, planes).scores for planes in (double, single))
    assert abs(auc(single[300:], y[300:]) - auc(double[300:], y[300:])) < 2e-3


@pytest.mark.parametrize("name", [name for name, algorithm in algorithms().items() if not hasattr(algorithm, "learn")])
def test_fits_are_close_to_those_of_float64(name: str) -> None:
    algorithm = algorithms()[name]
    X, y = stream(600, 6, seed=2, share=0.3, gap=0.7)
    labels = labels_for(algorithm, y) if algorithm.TRAITS.ordinal else (y > 0) * 1.0
    space = {"embedding": {"components": 20}} if "embedding" in algorithm.TRAITS.defaults else {}
    scores = []
    for precision in ("float64", "float32"):
        learner = create(name, dim=6, precision=precision, refit_every=10**6, **space)
        learner.fit(X[:400], labels[:400])
        scores.append(learner.scorer().values(learner.encode(X[400:])))
    assert scores[0].tobytes() != scores[1].tobytes()
    # of an embedding the directions of the smallest eigenvalues are magnified, and with them what rounding does there
    np.testing.assert_allclose(scores[1], scores[0], atol=(1e-2 if space else 1e-4) * scores[0].std())


def test_cbr_stays_valid_on_nearly_dependent_columns() -> None:
    """Where variances differ by more than 2^24, cbr cannot learn the smallest; it stays sound, and above chance."""
    random = np.random.default_rng(0)
    y = np.where(random.random(3000) < 0.1, 1.0, -1.0)
    X = random.normal(size=(3000, 2)) @ random.normal(size=(2, 12)) + 1e-5 * random.normal(size=(3000, 12))
    X += 0.5 * (y[:, None] > 0)
    state, scores = run(cbr, cbr.Params(), X, y, precision="float32")
    assert (np.diag(state.sigma) > 0).all()
    assert np.abs(state.sigma).max() <= 1.0
    assert auc(scores[500:], y[500:]) > 0.6


@pytest.mark.long
@pytest.mark.parametrize("spread", [1.0, 1e-2, 1e-4])
@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_the_bounds_of_cbr_hold_despite_rounding(spread: float, precision: Any) -> None:
    """Sigma as rounded does not only shrink, so without a margin bounds of some time ago would fail."""
    random = np.random.default_rng(1)
    y = np.where(random.random(2500) < 0.2, 1.0, -1.0)
    X = random.normal(size=(2500, 3)) @ random.normal(size=(3, 16)) + spread * random.normal(size=(2500, 16))
    X += 0.3 * (y[:, None] > 0)
    params = cbr.Params(capacity=20, C=1.0)
    state = initial(cbr, params, 16, 0, precision)
    for start in range(0, 2500, 250):
        piece = slice(start, start + 250)
        weight = random.choice([0.0, 1.0], 250, p=[0.1, 0.9])  # those of weight 0 are stored, too
        state = cbr.learn(params, state, X[piece], y[piece], weight, np.empty(250))
        sigma, stored_rows = state.sigma.astype(np.float64), state.buffer.astype(np.float64)
        exact = np.einsum("cki,ij,ckj->ck", stored_rows, sigma, stored_rows)
        assert (state.bounds >= exact * (1.0 - 1e-12)).all()


# The same bits


@pytest.mark.skipif(bool(numba_config.DISABLE_JIT), reason="compares with what is compiled")
def test_pure_python_gives_the_same_bits() -> None:
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, "-m", "tests.learners.numerics.bits"]
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert json.loads(process.stdout) == hashes()


@EVERY
@pytest.mark.parametrize("cuts", [[1, 2, 30, 55], [26, 27]], ids=str)
def test_a_stream_split_and_restored_gives_the_same_bits(pipeline: Pipeline, cuts: list[int]) -> None:
    full = pipeline.learner(precision="float32")
    carried, y = events(pipeline, 70, seed=3)
    labels = _labels(pipeline, y)
    predictions = full.learn(carried, labels)
    parts: list[Vector] = []
    other = pipeline.learner(precision="float32")
    for start, stop in pairwise([0, *cuts, 70]):
        other = restore(other.config.to_json(), copied(other))
        parts.append(other.learn(carried[start:stop], labels[start:stop]))
    assert np.concatenate(parts).tobytes() == predictions.tobytes()
    assert other.digest() == full.digest()


@EVERY
def test_a_frozen_scorer_stays_and_predicts_the_learnt_scores(pipeline: Pipeline) -> None:
    learner = pipeline.learner(precision="float32")
    carried, y = events(pipeline, 80, seed=4)
    labels = _labels(pipeline, y)
    learner.learn(carried[:60], labels[:60])
    rows = learner.encode(carried[60:61])
    live, frozen = learner.scorer(), learner.scorer().frozen()
    before = frozen.score(rows)
    assert (
        before.scores.tobytes() == live.score(rows).scores.tobytes() == live.decide(live.values(rows)).scores.tobytes()
    )
    predictions = learner.learn(carried[60:61], labels[60:61])
    if not pipeline.traits.ordinal:
        assert predictions.tobytes() == before.scores.tobytes()
    learner.learn(carried[61:], labels[61:])
    assert frozen.score(rows).scores.tobytes() == before.scores.tobytes()
    every = learner.encode(carried)
    moved = learner.scorer().score(every).scores.tobytes() != frozen.score(every).scores.tobytes()
    assert moved or pipeline.traits.ordinal


# Numbers beyond float32


@pytest.mark.parametrize("size", [1e30, 1e38])
@ONLINE
def test_rows_beyond_float32_keep_the_state_finite(algorithm: Any, convert: Any, size: float) -> None:
    X, y = stream(40, 5, seed=1)
    X[20:25] *= size
    params = algorithm.Params()
    state, scores = run(algorithm, params, convert(X), labels_for(algorithm, y), precision="float32")
    for array in (*state, model_scores(algorithm.weights(params, state), convert(X[:20])), scores):
        assert np.isfinite(array).all()


@pytest.mark.parametrize("convert", [np.ascontiguousarray, as_sparse])
@pytest.mark.parametrize("name", ["oam", "cbr-diag", "npsvor"])
def test_a_stored_example_is_the_nearest_float32(name: str, convert: Any) -> None:
    algorithm = algorithms()[name]
    rows = convert(np.array([[1e39, -1e120, 0.1], [0.1, 1e-50, -3.0]]))
    state, _ = run(
        algorithm, algorithm.Params(), rows, labels_for(algorithm, np.array([1.0, 1.0])), precision="float32"
    )
    stored_rows = state.values[-1, :2, :3]
    assert stored_rows.tolist() == [[LARGEST, -LARGEST, np.float32(0.1)], [np.float32(0.1), 0.0, -3.0]]


def test_values_beyond_float32_become_the_largest_float32() -> None:
    class State(typing.NamedTuple):
        large: Vector
        small: Vector

    rows = np.array([1e39, -1e300, 1e38, 1e-50, 0.1])
    rounded = stored("float32", State(rows, rows), ["large"])
    assert rounded.large.tolist() == [LARGEST, -LARGEST, np.float32(1e38), 0.0, np.float32(0.1)]
    assert rounded.small is rows
    assert stored("float64", rounded, ["large"]) is rounded


# Retained events


def test_features_are_rounded_to_float32_if_events_are_retained() -> None:
    """Else a column that is always 0.1 would lie off its mean in a fit, by the rounding, and have no spread."""
    X, y = stream(60, 3, seed=0)
    X[:, 2] = 0.1
    learner = create("ranksvm", dim=3, precision="float32", refit_every=30, scaling="standard")
    learner.learn(X, (y > 0) * 1.0)
    retained: Any = learner.state()["retained.values"]
    assert np.array_equal(retained, X.astype(np.float32))
    fitting: FitJob = learner.fit_job()
    assert not isinstance(fitting.rows, Sparse)
    assert not fitting.rows[:, 2].any()
    assert np.abs(fitting.rows).max() < 5.0
    scorer = learner.scorer()
    exact, rounded = (scorer.score(learner.encode(rows)).scores for rows in (X, X.astype(np.float32)))
    assert exact.tobytes() == rounded.tobytes()
    online = create("oam", dim=3, precision="float32")
    assert online.config.input_precision == "float64"
    assert create("nsauc", dim=3, precision="float32").config.input_precision == "float32"


def test_rounded_rows_keep_their_missing_values_and_type() -> None:
    rows: Matrix = np.array([[0.1, np.nan], [1e39, 2.0]])
    near = nearest("float32", rows)
    assert not isinstance(near, Sparse)
    np.testing.assert_array_equal(near, [[np.float32(0.1), np.nan], [LARGEST, 2.0]])
    assert near.dtype == np.float64
    few = as_sparse(np.array([[0.1, 0.0], [0.0, 3.0]]))
    rounded = nearest("float32", few)
    assert isinstance(rounded, Sparse)
    assert rounded.data.tolist() == [np.float32(0.1), 3.0]
    assert rounded.indices is few.indices
    assert nearest("float64", rows) is rows


def test_a_float32_matrix_multiplies_in_float32() -> None:
    random = np.random.default_rng(0)
    S, g, z = packed_symmetric.identity(13, 1.0).astype(np.float32), np.zeros(16), np.zeros(16)
    g[:13], z[:13] = random.normal(size=(2, 13)) / 10.0
    first, other = packed_symmetric.at_lines(S), packed_symmetric.at_lines(S)
    assert first.dtype == np.float32
    assert packed_symmetric.begins_line(first)
    u, v = np.zeros(16), np.zeros(16)
    packed_symmetric.downdate_and_multiply(first, 13, g, z, u)
    packed_symmetric.downdate(other, 13, g)
    packed_symmetric.multiply(other, 13, z, v)
    assert first.tobytes() == other.tobytes()
    assert u.tobytes() == v.tobytes()
    np.testing.assert_allclose(u[:13], packed_symmetric.unpacked(other, 13).astype(np.float64) @ z[:13], rtol=1e-12)


# Refused states


@EVERY
def test_a_state_of_the_wrong_precision_is_refused(pipeline: Pipeline) -> None:
    learners = [pipeline.learner(precision=learner) for learner in ("float64", "float32")]
    carried, y = events(pipeline, 30)
    for learner in learners:
        learner.learn(carried, _labels(pipeline, y))
    for learner, other, dtype in ((*learners, "float64"), (*learners[::-1], "float32")):
        digest = learner.digest()
        with pytest.raises(InvalidInput) as refused:
            learner.apply(Rollback(1, copied(other)))
        details = {problem.pointer: problem.detail for problem in refused.value.problems}
        for name in pipeline.traits.halved:
            assert f"expected {dtype} of" in details[f"/algorithm.{name}"]
        assert learner.digest() == digest
        with pytest.raises(InvalidInput, match=dtype):
            restore(learner.config.to_json(), copied(other))
    assert learners[0].digest() != learners[1].digest()


@pytest.mark.parametrize("value", ["float16", "single", 32, True, ["float32"]], ids=str)
def test_an_unknown_precision_is_refused_by_name(value: Any) -> None:
    with pytest.raises(InvalidInput, match="float32") as refused:
        create("oam", dim=3, precision=value)
    assert [problem.pointer for problem in refused.value.problems] == ["/precision"]


def test_the_precision_is_part_of_the_configuration() -> None:
    usual = create("oam", dim=3).config
    assert usual.precision == "float64"
    assert usual.to_json()["precision"] == "float64"
    before = {name: value for name, value in usual.to_json().items() if name != "precision"}
    assert Config.of(before) == usual  # a log from before there was a choice
    single = Config.of({**before, "precision": "float32"})
    assert Config.of(single.to_json()) == single
    assert single != usual
    assert single.immutable_part != usual.immutable_part
    assert Learner(single).digest() != Learner(usual).digest()
    with pytest.raises(InvalidInput, match=r"^/precision:"):
        usual.with_changes({"precision": "float32"})


def test_every_algorithm_is_tested() -> None:
    assert {pipeline.algorithm for pipeline in PIPELINES} == set(algorithms())
