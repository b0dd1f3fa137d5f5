"""The pairwise squared hinge against a list of all pairs, and its minimiser against another optimiser."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from learners.algorithms._pairwise_hinge import Minimum, PairLoss, minimise
from learners.numerics.arrays import Matrix, Vector
from tests.learners.streams import auc, same_bits, stream


class Pairwise(NamedTuple):
    """The loss with its derivatives by the scores, pair by pair."""

    value: float
    slopes: Vector  # (n,)
    hessian: Matrix  # (n, n)


def pairwise(scores: Vector, y: Vector, weight: Vector) -> Pairwise:
    value, slopes, hessian, total = 0.0, np.zeros(len(y)), np.zeros((len(y), len(y))), 0.0
    for i in np.flatnonzero(y > 0):
        for j in np.flatnonzero(y < 0):
            pair = weight[i] * weight[j]
            total += pair
            loss = 1 - (scores[i] - scores[j])
            if loss > 0:
                value += pair * loss**2 / 2
                slopes[i] -= pair * loss
                slopes[j] += pair * loss
                hessian[[i, j], [i, j]] += pair
                hessian[[i, j], [j, i]] -= pair
    return Pairwise(value / total, slopes / total, hessian / total)


def full(loss: PairLoss, scores: Vector) -> Pairwise:
    at = loss.at(scores)
    return Pairwise(at.value, at.slopes, np.stack([at.curve(item) for item in np.eye(len(scores))], axis=1))


def assert_same(actual: Pairwise, expected: Pairwise) -> None:
    for item, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(item, other, rtol=1e-12, atol=1e-13)


def weights_of(y: Vector, seed: int = 1) -> Vector:
    return np.random.default_rng(seed).choice([0.0, 0.5, 1.0, 3.0], len(y))


# The loss


@pytest.mark.parametrize("spread", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_value_gradient_and_hessian_equal_those_over_all_pairs(spread: float, weighted: bool) -> None:
    _, y = stream(60, 1, seed=1)
    weight = weights_of(y) if weighted else np.ones(60)
    scores = spread * np.random.default_rng(2).normal(size=60) + 5.0
    assert_same(full(PairLoss(y, weight), scores), pairwise(scores, y, weight))


@given(
    events=st.lists(
        st.tuples(
            st.sampled_from([-1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5]),
            st.sampled_from([-1.0, 1.0]),
            st.sampled_from([0.0, 0.25, 1.0, 2.0]),
        ),
        max_size=12,
    )
)
def test_tied_scores_and_margins_of_exactly_one(events: list[tuple[float, float, float]]) -> None:
    """Scores are halves, and both ends of their range occur as often: centring them rounds nothing."""
    events = [(score, y, weight) for score, y, weight in events for score in (score, -score)]
    events += [(0.5, 1.0, 1.0), (-0.5, -1.0, 1.0), (0.5, -1.0, 0.5), (-0.5, 1.0, 0.5)]
    scores, y, weight = np.array(events).T
    assert_same(full(PairLoss(y, weight), scores), pairwise(scores, y, weight))


def test_hessian_is_symmetric_despite_margin_rounding() -> None:
    """Tenths: whether p - q < 1 depends on how the sides are written, and must not differ between them."""
    scores = np.random.default_rng(3).integers(-30, 30, 200) / 10
    _, y = stream(200, 1, seed=3)
    hessian = full(PairLoss(y, np.ones(200)), scores).hessian
    np.testing.assert_allclose(hessian, hessian.T, rtol=0, atol=1e-15)
    assert np.linalg.eigvalsh(hessian)[0] > -1e-15
    np.testing.assert_allclose(hessian.sum(axis=0), 0.0, atol=1e-15)


def test_loss_is_independent_of_the_scale_of_the_weights() -> None:
    _, y = stream(50, 1, seed=4)
    scores, weight = np.random.default_rng(4).normal(size=50), weights_of(y)
    expected = PairLoss(y, weight).at(scores)
    for unit in (2.0**-1000, 0.125, 2.0**20):
        loss = PairLoss(y, unit * weight).at(scores)
        assert loss.value == expected.value
        assert loss.slopes.tobytes() == expected.slopes.tobytes()


def test_scores_far_from_0_keep_their_precision() -> None:
    _, y = stream(100, 1, seed=14)
    scores = np.random.default_rng(14).integers(-2000, 2000, 100) / 2.0**10
    offset = 2.0**36  # leaves each score exact, but not its square
    loss = PairLoss(y, weights_of(y))
    near, far = full(loss, scores), full(loss, scores + offset)
    for item, other in zip(far, near, strict=True):
        np.testing.assert_allclose(item, other, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("label", [-1.0, 1.0])
def test_a_class_with_zero_total_weight_is_refused(label: float) -> None:
    y = np.array([1.0, -1.0, 1.0, -1.0])
    for labels, weight in [(np.full(4, label), np.ones(4)), (y, np.where(y == label, 1.0, 0.0))]:
        with pytest.raises(ValueError, match=rf"\{-label:+.0f};"):
            PairLoss(labels, weight)


# The minimiser


def objective(w: Vector, X: Matrix, y: Vector, weight: Vector, C: float) -> tuple[float, Vector]:
    """F and its gradient by all pairs, as matrices."""
    positive, negative = (y > 0) & (weight > 0), (y < 0) & (weight > 0)
    pairs = np.outer(weight[positive], weight[negative])
    pairs /= pairs.sum()
    loss = np.maximum(0.0, 1.0 - np.subtract.outer(X[positive] @ w, X[negative] @ w))
    gradient = w - C * (X[positive].T @ (pairs * loss).sum(axis=1) - X[negative].T @ (pairs * loss).sum(axis=0))
    return 0.5 * float(w @ w) + 0.5 * C * float((pairs * loss**2).sum()), gradient


@pytest.mark.parametrize("C", [0.01, 1.0, 100.0, 1e5])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("gap", [0.5, 4.0])
def test_minimiser_equals_that_of_another_optimiser(C: float, weighted: bool, gap: float) -> None:
    X, y = stream(80, 5, seed=5, gap=gap)
    weight = weights_of(y) if weighted else np.ones(80)
    result = minimise(X, PairLoss(y, weight), C, tolerance=1e-12)
    other = optimize.minimize(
        objective,
        np.zeros(5),
        (X, y, weight, C),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 5000, "maxfun": 10_000, "ftol": 0.0, "gtol": 1e-10 * C},
    )
    value, _ = objective(result.w, X, y, weight, C)
    assert value <= other.fun * (1 + 1e-13)
    np.testing.assert_allclose(result.objective, value, rtol=1e-10)
    np.testing.assert_allclose(result.w, other.x, rtol=1e-4, atol=1e-6 * np.abs(other.x).max())


@pytest.mark.parametrize("tolerance", [0.1, 1e-3, 1e-6, 1e-10])
def test_stops_at_the_tolerance(tolerance: float) -> None:
    X, y = stream(80, 5, seed=6)
    weight = weights_of(y)
    result = minimise(X, PairLoss(y, weight), 50.0, tolerance=tolerance)
    norms = [np.linalg.norm(objective(w, X, y, weight, 50.0)[1]) for w in (result.w, np.zeros(5))]
    assert norms[0] <= 1.01 * tolerance * norms[1]
    np.testing.assert_allclose(result.gradient, norms[0] / norms[1], rtol=1e-2)
    fewer = minimise(X, PairLoss(y, weight), 50.0, tolerance=tolerance, iterations=int(result.iterations[0]) - 1)
    assert fewer.iterations == result.iterations - 1
    assert fewer.gradient > tolerance


def test_an_unreachable_tolerance_stops_at_rounding_precision() -> None:
    X, y = stream(80, 5, seed=7)
    result = minimise(X, PairLoss(y, np.ones(80)), 50.0, tolerance=1e-300, iterations=1000)
    assert result.iterations < 100
    assert result.gradient < 1e-12


def test_objective_decreases_at_each_step_and_bounds_the_weights() -> None:
    X, y = stream(200, 10, seed=8, gap=0.2)
    X[:5] *= 100.0
    loss, C = PairLoss(y, np.ones(200)), 1e4
    path = [minimise(X, loss, C, iterations=k) for k in range(8)]
    values = [float(item.objective[0]) for item in path]
    assert values[0] == pytest.approx(C / 2)
    assert values == sorted(values, reverse=True)
    assert values[3] < values[0]
    assert all(item.w @ item.w <= C for item in path)


def test_matches_the_golden_values() -> None:
    document: Any = json.loads((Path(__file__).parent / "golden" / "nbauc.json").read_text())
    X, y, w, direction = (np.array(document[name]) for name in ("x", "y", "w", "direction"))
    loss = PairLoss(y, np.ones(len(y)))
    C = document["C_of_a_pair"] * np.sum(y > 0) * np.sum(y < 0)
    at = loss.at(X @ w)
    np.testing.assert_allclose(0.5 * w @ w + C * at.value, document["objective"], rtol=1e-9)
    np.testing.assert_allclose(w + C * (X.T @ at.slopes), document["gradient"], rtol=1e-9)
    np.testing.assert_allclose(
        direction + C * (X.T @ at.curve(X @ direction)), document["hessian_direction"], rtol=1e-9
    )
    np.testing.assert_allclose(minimise(X, loss, C, tolerance=1e-12).w, document["minimiser"], rtol=1e-9)


def test_weight_equals_repetition() -> None:
    X, y = stream(60, 4, seed=9)
    counts = np.random.default_rng(9).integers(0, 4, 60)
    weighted = minimise(X, PairLoss(y, counts.astype(float)), 100.0, tolerance=1e-11)
    repeated = np.repeat(np.arange(60), counts)
    plain = minimise(X[repeated], PairLoss(y[repeated], np.ones(len(repeated))), 100.0, tolerance=1e-11)
    np.testing.assert_allclose(weighted.w, plain.w, rtol=1e-8)


def test_pairs_are_never_materialised() -> None:
    """4 * 10^8 pairs in the memory of a few vectors, with the result of the 10^6 pairs that they repeat."""
    random = np.random.default_rng(10)
    y = np.repeat([1.0, -1.0], 1000)
    X = random.normal(size=(2000, 5)) + 0.3 * y[:, None]
    expected = minimise(X, PairLoss(y, np.ones(2000)), 1e4)
    order = random.permutation(40_000) % 2000
    many, labels = X[order], y[order]
    tracemalloc.start()
    actual = minimise(many, PairLoss(labels, np.ones(40_000)), 1e4)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 40 * 8 * 40_000  # a bit for each pair would be 50 MB
    np.testing.assert_allclose(actual.w, expected.w, rtol=1e-9)
    assert actual.iterations == expected.iterations


def test_reproducible_without_modifying_inputs() -> None:
    X, y = stream(100, 6, seed=11)
    weight = weights_of(y)
    before = [item.copy() for item in (X, y, weight)]
    first, second = (minimise(X, PairLoss(y, weight), 100.0) for _ in range(2))
    assert same_bits(first, second)
    assert same_bits(before, (X, y, weight))


# The extremes


def finite(minimum: Minimum) -> bool:
    return all(bool(np.isfinite(part).all()) for part in minimum)


@given(
    events=st.lists(
        st.tuples(
            st.lists(
                st.sampled_from([0.0, 5e-324, -1e-310, 1e-160, -1e-30, 1.0, -1.0, 3.5, -1e15, 1e30, -1e30, 1e100]),
                min_size=3,
                max_size=3,
            ),
            st.sampled_from([-1.0, 1.0]),
            st.sampled_from([0.0, 5e-324, 1e-9, 1.0, 1e6]),
        ),
        max_size=12,
    ),
    C=st.sampled_from([2.0**-40, 1.0, 2.0**14, 2.0**40]),
    tolerance=st.sampled_from([1e-300, 1e-3]),
)
@settings(max_examples=80)
def test_finite_for_any_rows(events: list[Any], C: float, tolerance: float) -> None:
    events = [*events, ([1.0, 0.0, -1.0], 1.0, 5e-324), ([0.0, 1e30, 1.0], -1.0, 5e-324)]
    X = np.array([x for x, _, _ in events])
    y, weight = (np.array([event[k] for event in events]) for k in (1, 2))
    result = minimise(X, PairLoss(y, weight), C, tolerance=tolerance)
    assert finite(result)
    assert np.linalg.norm(result.w) <= np.sqrt(C) * (1 + 1e-6)
    assert np.isfinite(X @ result.w).all()


@pytest.mark.parametrize("size", [1e-100, 1e-20, 1.0, 1e30, 1e100])
def test_ranks_rows_of_any_scale(size: float) -> None:
    X, y = stream(500, 6, seed=12, gap=1.0)
    result = minimise(size * X, PairLoss(y, np.ones(500)), 1e4)
    assert finite(result)
    assert auc(X @ result.w, y) > 0.94


def test_nearly_zero_rows_give_zero_weights() -> None:
    X, y = stream(50, 3, seed=13)
    result = minimise(1e-200 * X, PairLoss(y, np.ones(50)), 1e4)
    assert not result.w.any()
    assert result.iterations == 0


@pytest.mark.parametrize("rows", [np.zeros((4, 3)), np.ones((4, 3)), np.zeros((4, 0))], ids=["zero", "equal", "none"])
def test_uninformative_rows_give_zero_weights(rows: Matrix) -> None:
    result = minimise(rows, PairLoss(np.array([1.0, -1.0, 1.0, -1.0]), np.ones(4)), 8.0)
    assert not result.w.any()
    assert result.objective == 4.0
