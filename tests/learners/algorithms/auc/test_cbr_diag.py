"""cbr-diag: three modes, dense and sparse, and the width of its sparse buffers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from learners.algorithms.auc import cbr_diag
from learners.numerics.arrays import Sparse
from tests.learners.algorithms import naive
from tests.learners.streams import as_sparse, run, same_bits, stream


@pytest.mark.parametrize("mode", ["covariance", "exact", "paper"])
@pytest.mark.parametrize(
    "settings", [{}, {"C": 1.0, "capacity": 3}, {"buffer": "reservoir", "capacity": 4, "C": 0.1, "eta": 0.9}], ids=str
)
@pytest.mark.parametrize(("dim", "density"), [(4, 1.0), (11, 0.4)])
def test_matches_the_naive_version(mode: str, settings: dict[str, Any], dim: int, density: float) -> None:
    X, y = stream(80, dim, seed=dim, density=density)
    weight = np.random.default_rng(1).choice([0.0, 0.5, 1.0, 3.0], len(y))
    params = cbr_diag.Params(**settings, mode=mode)
    expected, mu, G = naive.cbr_diag(X, y, weight, **settings, mode=mode, seed=5)
    for rows in (X, as_sparse(X)):
        state, scores = run(cbr_diag, params, rows, y, weight=weight, dim=dim, seed=5)
        np.testing.assert_allclose(scores, expected, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(state.mu, mu, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(state.G, G, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("mode", ["covariance", "exact", "paper"])
def test_sparse_equals_dense(mode: str) -> None:
    X, y = stream(300, 40, seed=2, density=0.2)
    params = cbr_diag.Params(mode=mode)
    _, dense = run(cbr_diag, params, X, y)
    _, sparse = run(cbr_diag, params, as_sparse(X), y)
    np.testing.assert_allclose(sparse, dense, rtol=1e-12, atol=1e-12)


def _row(*indices: int) -> Sparse:
    return Sparse(np.ones(len(indices)), np.array(indices, dtype=np.int64), np.array([0, len(indices)]))


def test_columns_absent_from_both_rows_stay() -> None:
    params = cbr_diag.Params()
    state = cbr_diag.init(params, 8, 0)
    for rows, label in ((_row(1, 3), -1.0), (_row(3, 6), 1.0)):
        state = cbr_diag.learn(params, state, rows, np.array([label]), np.ones(1), np.empty(1))
    assert np.flatnonzero(state.mu).tolist() == [1, 6]  # of column 3 nothing is left in x - b
    assert np.flatnonzero(state.G < 1).tolist() == [1, 6]


def test_width_follows_the_longest_row() -> None:
    params = cbr_diag.Params(capacity=2)
    state = cbr_diag.init(params, 200, 0)
    widths = []
    for length in (0, 3, 16, 17, 5, 100, 100, 1):
        rows = _row(*range(length))
        state = cbr_diag.learn(params, state, rows, np.ones(1), np.ones(1), np.empty(1))
        widths.append(state.values.shape[2])
    assert widths == [16, 16, 16, 32, 32, 128, 128, 128]
    assert state.columns.shape == state.values.shape == (2, 2, 128)
    assert state.lengths.tolist() == [[0, 0], [100, 1]]
    assert np.count_nonzero(state.values[1, 1]) == 1  # what a longer row left behind is gone


def test_the_time_of_buffer_growth_does_not_matter() -> None:
    X, y = stream(60, 100, seed=4, density=0.1)
    X[40] = 1.0  # only then the buffers have to grow
    rows = as_sparse(X)
    params = cbr_diag.Params(C=1.0)
    at_once, _ = run(cbr_diag, params, rows, y)
    one_by_one, _ = run(cbr_diag, params, rows, y, cuts=range(1, 60))
    assert same_bits(at_once, one_by_one)


def test_mixing_dense_and_sparse_rows_is_refused() -> None:
    X, y = stream(4, 40, seed=0)
    params = cbr_diag.Params()
    for first, second in ((X, as_sparse(X)), (as_sparse(X), X)):
        state, _ = run(cbr_diag, params, first, y, dim=40)
        with pytest.raises(ValueError, match="sparse"):
            cbr_diag.learn(params, state, second, y, np.ones(4), np.empty(4))


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("mode", ["covariance", "exact"])
def test_variance_stays_in_range_despite_rounding(mode: str, sparse: bool) -> None:
    """A mean so wrong, and a cap so high, that exact arithmetic would leave nothing but a trace of the variance."""
    params = cbr_diag.Params(C=2.0**20, mode=mode)
    random = np.random.default_rng(0)
    X, y = random.normal(size=(60, 1)), random.choice([-1.0, 1.0], 60)
    state = cbr_diag.init(params, 1, 0)
    for row, label in zip(X, y, strict=True):
        state.mu[:] = -1e25 * label * row
        state.G[:] = random.random()
        rows = as_sparse(row[None, :]) if sparse else row[None, :]
        state = cbr_diag.learn(params, state, rows, np.array([label]), np.array([1e6]), np.empty(1))
        assert 0 <= state.G[0] < 1
        assert np.isfinite(state.mu[0])
