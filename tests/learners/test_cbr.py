"""cbr: against the naive one, and the traps of its covariance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from learners import cbr
from tests.learners import naive
from tests.learners.streams import auc, run, stream


@pytest.mark.parametrize(
    "settings",
    [{}, {"C": 1.0, "capacity": 3}, {"C": 4.0, "eta": 0.95}, {"buffer": "reservoir", "capacity": 4, "C": 0.1}],
    ids=str,
)
@pytest.mark.parametrize("dim", [1, 4, 11])
def test_same_as_naive(settings: dict[str, Any], dim: int) -> None:
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
def test_a_pair_that_would_lose_positive_definiteness_is_skipped(second: float) -> None:
    params = cbr.Params(C=1.0)
    state = cbr.init(params, 2, 0)
    state.sigma[:] = [[1.0, 1.25], [1.25, 1.0]]  # as if rounding had made it indefinite
    before = state.sigma.copy()
    X, y = np.array([[0.0, 0.0], [1.0, second]]), np.array([-1.0, 1.0])
    cbr.learn(params, state, X, y, np.ones(2), np.empty(2))
    assert state.sigma.tolist() == before.tolist()
    assert state.mu.tolist() == [0, 0]
    assert state.seen.tolist() == [1, 1]
