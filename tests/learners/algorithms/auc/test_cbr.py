"""cbr: against the naive one, the bounds by which it skips pairs, and the traps of its covariance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba.core import config as numba_config

from learners.algorithms.auc import cbr
from learners.numerics.arrays import Matrix, Vector, normal_quantile
from tests.learners.algorithms import naive
from tests.learners.streams import auc, run, same_bits, stream


@pytest.mark.parametrize(
    "settings",
    [{}, {"C": 1.0, "capacity": 3}, {"C": 4.0, "eta": 0.95}, {"buffer": "reservoir", "capacity": 4, "C": 0.1}],
    ids=str,
)
@pytest.mark.parametrize("dim", [1, 4, 11])
def test_matches_the_naive_version(settings: dict[str, Any], dim: int) -> None:
    X, y = stream(80, dim, seed=dim)
    weight = np.random.default_rng(1).choice([0.0, 0.5, 1.0, 3.0], len(y))
    state, scores = run(cbr, cbr.Params(**settings), X, y, weight=weight, seed=5)
    expected, mu, sigma = naive.cbr(X, y, weight, **settings, seed=5)
    np.testing.assert_allclose(scores, expected, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(state.mu, mu, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(state.sigma, sigma, rtol=1e-7, atol=1e-9)


def test_covariance_stays_positive_definite_on_badly_scaled_rows() -> None:
    X, y = stream(600, 6, seed=3, gap=1.5)
    X = X * 10.0 ** np.arange(-4, 8, 2) @ (np.eye(6) + 0.1)
    state, scores = run(cbr, cbr.Params(C=1.0), X, y)
    assert (state.sigma == state.sigma.T).all()
    assert (np.diag(state.sigma) > 0).all()
    scaled = state.sigma / np.sqrt(np.outer(np.diag(state.sigma), np.diag(state.sigma)))
    assert np.linalg.eigvalsh(scaled).min() > -1e-9
    assert auc(scores[300:], y[300:]) > 0.9


@pytest.mark.parametrize("second", [-1.0, -0.5 + 1e-6], ids=["v below 0", "v above 0 but small for its u"])
def test_pairs_that_break_positive_definiteness_are_skipped(second: float) -> None:
    params = cbr.Params(C=1.0)
    state = cbr.init(params, 2, 0)
    state.packed[:2, :2] = [[1.0, 1.25], [1.25, 1.0]]  # as if rounding had made it indefinite
    before = state.sigma.copy()
    X, y = np.array([[0.0, 0.0], [1.0, second]]), np.array([-1.0, 1.0])
    cbr.learn(params, state, X, y, np.ones(2), np.empty(2))
    assert state.sigma.tolist() == before.tolist()
    assert state.mu.tolist() == [0, 0]
    assert state.seen.tolist() == [1, 1]


def _plainly(X: Matrix, y: Vector, params: cbr.Params) -> tuple[Vector, Matrix, float]:
    """Scores, Sigma, and the share of the pairs that moved the model, each pair compared by all of Sigma."""
    phi = normal_quantile(params.eta)
    mu, sigma, buffers = np.zeros(X.shape[1]), np.eye(X.shape[1]), naive.Buffers(params.capacity, "fifo", 0)
    scores, pairs, moves = [], 0, 0
    for x, label in zip(X, y, strict=True):
        scores.append(mu @ x)
        buffers.add(int(label), x)
        for b in buffers.rows[-int(label)]:
            pairs += 1
            u = sigma @ (x - b)
            m, v = label * (mu @ (x - b)), (x - b) @ u
            if m < phi * np.sqrt(v):
                moves += 1
                alpha, beta, _ = naive.scw(m, v, params.C, phi)
                mu = mu + alpha * label * u
                sigma = sigma - beta * np.outer(u, u)
    return np.array(scores), sigma, moves / pairs


@pytest.mark.parametrize(
    ("settings", "gap", "share"),
    [({}, 1.2, (0.02, 0.3)), ({"C": 2.0**-13, "eta": 0.999999}, 0.0, (1.0, 1.0))],
    ids=["few move", "every pair moves"],
)
def test_skipping_pairs_has_no_effect_over_10000_events(
    settings: dict[str, Any], gap: float, share: tuple[float, float]
) -> None:
    n = 500 if numba_config.DISABLE_JIT else 10_000
    X, y = stream(n, 5, seed=1, gap=gap)
    params = cbr.Params(**settings, capacity=6)
    state, scores = run(cbr, params, X, y)
    expected, sigma, moved = _plainly(X, y, params)
    assert share[0] <= moved <= share[1]
    np.testing.assert_allclose(scores, expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(state.sigma, sigma, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("scale", [1.0, 1e5])
def test_bounds_hold_when_the_settings_change(scale: float) -> None:
    X, y = stream(240, 9, seed=7)
    X[:, 0] *= scale
    state = cbr.init(cbr.Params(capacity=7), 9, 0)
    for i, settings in enumerate(({}, {"C": 10.0}, {"eta": 0.99}, {"C": 2.0**-12, "eta": 0.51})):
        cut = slice(60 * i, 60 * i + 60)
        weight = np.where(np.arange(60) % 5, 1.0, 0.0)
        state = cbr.learn(cbr.Params(**settings, capacity=7), state, X[cut], y[cut], weight, np.empty(60))
        stored = state.buffer[:, :, :9]
        variances = np.einsum("ckd,de,cke->ck", stored, state.sigma, stored)
        assert (state.bounds >= variances * (1 - 1e-12)).all()
    assert (state.bounds < np.sum(stored**2, axis=2)).mean() > 0.5  # the bound without Sigma


def test_array_alignment_changes_no_bit() -> None:
    X, y = stream(80, 13, seed=2)
    params = cbr.Params()
    state, _ = run(cbr, params, X[:40], y[:40])
    moved = []
    for array in state:
        block = np.zeros(array.size + 1, dtype=array.dtype)
        moved.append(block[1:].reshape(array.shape))
        moved[-1][...] = array
    other = cbr.State(*moved)
    scores, others = np.empty(40), np.empty(40)
    state = cbr.learn(params, state, X[40:], y[40:], np.ones(40), scores)
    other = cbr.learn(params, other, X[40:], y[40:], np.ones(40), others)
    assert same_bits(state, other)
    assert scores.tobytes() == others.tobytes()
    assert state.packed.ctypes.data % 64 == other.packed.ctypes.data % 64 == 0


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        ("packed", (8, 0), 0.5),  # below the blocks of the diagonal
        ("packed", (2, 1), 0.5),  # within one, but not as (1, 2) is
        ("packed", (3, 13), 0.5),  # beyond the last column
        ("packed", (14, 14), 0.5),
        ("buffer", (1, 2, 13), 1.0),
        ("bounds", (0, 0), -1.0),
    ],
)
def test_impossible_states_are_detected(name: str, place: tuple[int, ...], value: float) -> None:
    X, y = stream(60, 13, seed=3)
    params = cbr.Params()
    state, _ = run(cbr, params, X, y)
    assert list(cbr.problems(params, state, False)) == []
    getattr(state, name)[place] = value
    assert [array for array, _ in cbr.problems(params, state, False)] == [name]
