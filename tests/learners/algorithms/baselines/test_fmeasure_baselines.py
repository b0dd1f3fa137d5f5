"""The baselines of the F-measure: the naive ones, and what each is known to do. Golden vectors: `test_golden.py`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from learners import algorithms
from learners.algorithms.baselines import lr, ofo, omcsl, stamp
from learners.algorithms.fmeasure import fofo
from learners.decisions import threshold
from learners.numerics.arrays import Vector
from tests.learners.algorithms import naive_fmeasure as naive_f
from tests.learners.streams import as_sparse, run, same_bits, stream

SHAPES = pytest.mark.parametrize(("dim", "density"), [(1, 1.0), (11, 1.0), (20, 0.3)])
WEIGHTED = pytest.mark.parametrize("weighted", [False, True], ids=["alike", "weighted"])


def _weights(n: int, weighted: bool) -> Vector:
    return np.random.default_rng(1).choice([0.0, 0.5, 1.0, 3.0], n) if weighted else np.ones(n)


# lr, ofo


@pytest.mark.parametrize("algorithm", [lr, ofo], ids=["lr", "ofo"])
def test_posterior_equals_that_of_fofo(algorithm: Any) -> None:
    X, y = stream(200, 5, seed=1)
    state, scores = run(algorithm, algorithm.Params(c=0.5), X, y)
    other, expected = run(fofo, fofo.Params(c=0.5), X, y)
    assert same_bits(state, other)
    assert scores.tobytes() == expected.tobytes()


# omcsl


@SHAPES
@WEIGHTED
@pytest.mark.parametrize(
    "values", [{}, {"learners": 1}, {"learners": 3, "power": 1, "c": 0.5}, {"learners": 32, "power": 37}], ids=str
)
def test_omcsl_matches_the_naive_version(values: dict[str, Any], dim: int, density: float, weighted: bool) -> None:
    X, y = stream(150, dim, seed=dim, share=0.15, density=density)
    weight = _weights(len(y), weighted)
    expected, w, draws = naive_f.omcsl(X, y, weight, **values, seed=5)
    for rows in (X, as_sparse(X)):
        params = omcsl.Params(**values)
        state, scores = run(omcsl, params, rows, y, weight=weight, dim=dim, seed=5)
        np.testing.assert_allclose(scores, expected, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(np.column_stack([state.w, state.bias]), w, rtol=1e-9, atol=1e-12)
        assert state.drawn.tolist() == [draws]
        linear = omcsl.weights(params, state)
        assert [*linear.w, *linear.bias] == [*state.w[draws], state.bias[draws]]


def test_omcsl_counts_the_decisions_of_each_learner() -> None:
    X, y = stream(300, 4, seed=2)
    state, _ = run(omcsl, omcsl.Params(learners=4), X, y, weight=_weights(300, True))
    assert state.positives.tolist() == [np.sum(y > 0)]
    assert (state.called[:, 1] <= state.positives).all()
    # the lower the F that a learner stands for, the cheaper it is to call an event positive
    assert (np.diff(state.called[:, 0]) < 0).all()


def test_omcsl_draws_in_proportion_to_f_or_uniformly_without_one() -> None:
    params = omcsl.Params(learners=4, power=2)
    state = omcsl.init(params, 1, 3)
    rows, tiny = np.array([[1.0]]), np.full(1, 1e-300)  # a step too small to change what the learners call

    def shares(label: float) -> Vector:
        draws = np.zeros(4)
        for _ in range(4000):
            omcsl.learn(params, state, rows, np.array([label]), tiny, np.empty(1))
            draws[state.drawn[0]] += 1 / 4000
        return draws

    state.bias[:] = -1.0
    np.testing.assert_allclose(shares(-1.0), 0.25, atol=0.03)
    state.positives[0] = 10**9
    state.called[:] = np.array([[1.0, 1.0], [0.0, 0.0], [2.0, 2.0], [3.0, 3.0]]) * 10**8
    reached = np.array([1 / 11, 0, 2 / 12, 3 / 13]) ** 2
    np.testing.assert_allclose(shares(-1.0), reached / reached.sum(), atol=0.03)


def test_omcsl_with_a_high_power_follows_the_best_learner() -> None:
    X, y = stream(4000, 3, seed=4, share=0.1)
    state, scores = run(omcsl, omcsl.Params(power=1024), X, y)
    best = max(2 * state.called[:, 1] / (state.positives + state.called[:, 0]))
    _, alike = run(omcsl, omcsl.Params(power=1), X, y)
    assert naive_f.f_measure(scores >= 0, y) > best - 0.02
    assert naive_f.f_measure(scores >= 0, y) > naive_f.f_measure(alike >= 0, y) + 0.02


# stamp


@SHAPES
@WEIGHTED
@pytest.mark.parametrize("level", ["calls", "logistic"])
@pytest.mark.parametrize("length", [4, 7, 64])
def test_stamp_matches_the_naive_version(level: str, length: int, dim: int, density: float, weighted: bool) -> None:
    X, y = stream(300, dim, seed=dim, share=0.15, density=density)
    weight = _weights(len(y), weighted)
    expected, w, v = naive_f.stamp(X, y, weight, c=0.5, level=level, length=length)
    for rows in (X, as_sparse(X)):
        state, scores = run(stamp, stamp.Params(c=0.5, level=level, length=length), rows, y, weight=weight, dim=dim)
        np.testing.assert_allclose(scores, expected, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose([*state.w, *state.bias], w, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(state.level, v, rtol=1e-9)


def test_stamp_reaches_its_measured_level() -> None:
    X, y = stream(40_000, 3, seed=5, share=0.1)
    state, scores = run(stamp, stamp.Params(), X, y)
    assert state.level[0] == pytest.approx(naive_f.f_measure(scores[20_000:] >= 0, y[20_000:]), abs=0.02)
    # of a posterior that is right, and v the best F: positive where it is at least v / 2
    linear = stamp.weights(stamp.Params(), state)
    posterior = 1 / (1 + np.exp(-(X @ np.ones(3) + math.log(1 / 9))))  # means 1 apart in each column, unit variance
    called = X @ linear.w + linear.bias >= 0
    assert np.mean(called == (posterior >= state.level[0] / 2)) > 0.97


def test_stamp_keeps_learning_negatives_while_nothing_is_called_positive() -> None:
    X, y = stream(80, 3, seed=6, share=0.2)
    state, scores = run(stamp, stamp.Params(c=1e-9), X, np.where(np.arange(80) < 64, -1.0, y))
    assert (scores[64:] < 0.0).any()
    share = float(np.mean(y[64:] > 0))
    assert state.level[0] == pytest.approx(2 * share / (1 + share))
    assert share > 0
    unchanged, _ = run(stamp, stamp.Params(c=1e-9), X, np.full(80, -1.0))
    assert unchanged.level.tolist() == [1.0]
    assert unchanged.stage.tolist() == [1, 0, 0]


@pytest.mark.parametrize("m", [-1e30, -1.0, -0.0, 5e-324, 1e-9, 0.1, 1.0, 5.0, 36.0, 700.0, 1e30])
def test_clipped_logistic_reward_values(m: float) -> None:
    expected = max(0.0, 1 - math.log1p(math.exp(-m)) / math.log(2)) if m > 0 else 0.0
    assert stamp._reward(m) == pytest.approx(expected, abs=1e-15)


# all of them


@pytest.mark.parametrize("name", ["lr", "ofo", "fofo", "omcsl", "stamp"])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_beats_calling_everything_positive(name: str, sparse: bool) -> None:
    algorithm = algorithms()[name]
    X, y = stream(6000, 4, seed=7, share=0.05, gap=1.2)
    _, scores = run(algorithm, algorithm.Params(), as_sparse(X) if sparse else X, y, dim=4)
    p = 1 / (1 + np.exp(-scores))
    setting = threshold.Threshold(**algorithm.TRAITS.defaults.get("threshold", {}))
    thresholds, decisions = np.empty(len(y)), np.empty(len(y), dtype=np.int64)
    decided, costs, clocks = np.ones(len(y), dtype=np.bool_), np.ones(len(y)), np.full(len(y), np.nan)
    threshold.learn(setting, threshold.init(setting), p, y, decided, costs, clocks, thresholds, decisions)
    trivial = naive_f.f_measure(np.ones(len(y), dtype=bool), y)
    assert naive_f.f_measure(decisions > 0, y) > 4 * trivial
