"""The batch rankers that share one objective: linear, behind an embedding, and with the exact kernel."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from scipy import optimize

from learners.algorithms.auc import nbauc
from learners.algorithms.base import linear_scores
from learners.algorithms.baselines import ranksvm, rbf_ranksvm
from learners.features import kernel_approximation
from learners.numerics.arrays import Matrix, Rows, Sparse, Vector
from tests.learners.streams import as_sparse, auc, same_bits, stream

KINDS = pytest.mark.parametrize(
    ("algorithm", "convert"),
    [
        pytest.param(nbauc, np.ascontiguousarray, id="nbauc"),
        pytest.param(rbf_ranksvm, np.ascontiguousarray, id="rbf-ranksvm"),
        pytest.param(ranksvm, np.ascontiguousarray, id="ranksvm-dense"),
        pytest.param(ranksvm, as_sparse, id="ranksvm-sparse"),
    ],
)


def fitted(algorithm: Any, rows: Rows, dim: int, y: Vector, weight: Vector | None = None, **params: Any) -> Any:
    return algorithm.fit(algorithm.Params.of(params), rows, dim, y, np.ones(len(y)) if weight is None else weight, 0)


def rings(n: int, seed: int) -> tuple[Matrix, Vector]:
    """Positives around the origin within a ring of negatives: no linear ranker tells them apart."""
    random = np.random.default_rng(seed)
    y = np.where(random.random(n) < 0.4, 1.0, -1.0)
    angle = random.uniform(0, 2 * np.pi, n)
    radius = np.where(y > 0, 0.5, 2.0) + 0.3 * random.normal(size=n)
    return radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1), y


@KINDS
def test_before_the_first_fit_all_scores_are_0(algorithm: Any, convert: Any) -> None:
    X, _ = stream(10, 5, seed=1)
    params = algorithm.Params()
    linear = algorithm.weights(params, algorithm.init(params, 5, 0))
    assert not linear_scores(linear, convert(X)).any()


@KINDS
def test_rank_order_is_learnt(algorithm: Any, convert: Any) -> None:
    X, y = stream(1500, 8, seed=2, share=0.05, gap=1.5)
    params = algorithm.Params()
    state = fitted(algorithm, convert(X[:500]), 8, y[:500])
    assert isinstance(state, algorithm.State)
    scores = linear_scores(algorithm.weights(params, state), convert(X[500:]))
    assert auc(scores, y[500:]) > 0.95


@KINDS
def test_reproducible_without_modifying_inputs(algorithm: Any, convert: Any) -> None:
    X, y = stream(90, 5, seed=3, density=0.6)
    rows, weight = convert(X), np.random.default_rng(3).choice([0.0, 0.5, 2.0], 90)
    arrays = [*(rows if isinstance(rows, Sparse) else [rows]), y, weight]
    before = [array.copy() for array in arrays]
    first, second = (fitted(algorithm, rows, 5, y, weight) for _ in range(2))
    assert same_bits(first, second)
    assert same_bits(before, arrays)


@KINDS
@pytest.mark.parametrize("label", [-1.0, 1.0])
def test_one_class_is_refused(algorithm: Any, convert: Any, label: float) -> None:
    X, y = stream(30, 5, seed=4)
    with pytest.raises(ValueError, match="label"):
        fitted(algorithm, convert(X), 5, np.full(30, label))
    with pytest.raises(ValueError, match="label"):
        fitted(algorithm, convert(X), 5, y, np.where(y == label, 1.0, 0.0))


@KINDS
def test_events_of_weight_0_are_ignored(algorithm: Any, convert: Any) -> None:
    X, y = stream(120, 5, seed=5)
    weight = np.where(np.arange(120) % 3 == 0, 0.0, 1.0)
    mask = weight > 0
    state = fitted(algorithm, convert(X), 5, y, weight, tolerance=1e-10)
    np.testing.assert_allclose(state.w, fitted(algorithm, convert(X[mask]), 5, y[mask], tolerance=1e-10).w, rtol=1e-7)


@KINDS
def test_settings_reach_the_solver(algorithm: Any, convert: Any) -> None:
    X, y = stream(200, 5, seed=6)
    loose, strict = (fitted(algorithm, convert(X), 5, y, tolerance=tolerance) for tolerance in (0.5, 1e-8))
    assert loose.iterations < strict.iterations
    assert strict.gradient <= 1e-8
    assert fitted(algorithm, convert(X), 5, y, tolerance=1e-8, iterations=2).iterations == 2
    sizes = [float(np.linalg.norm(fitted(algorithm, convert(X), 5, y, C=C).w)) for C in (0.01, 1.0, 100.0)]
    assert sizes == sorted(sizes)


# Sparse rows


@pytest.mark.parametrize("C", [1.0, 64.0, 1e4])
def test_sparse_rows_equal_dense_rows(C: float) -> None:
    X, y = stream(150, 12, seed=7, density=0.3)
    X[:, 4] = 0.0  # a column that no event has
    X[10:20] = 0.0  # events without a column
    weight = np.random.default_rng(7).choice([0.0, 0.5, 2.0], 150)
    dense = fitted(ranksvm, X, 12, y, weight, C=C, tolerance=1e-9)
    result = fitted(ranksvm, as_sparse(X), 16, y, weight, C=C, tolerance=1e-9)
    assert result.w.shape == (16,)
    assert not result.w[[4, 12, 13, 14, 15]].any()
    np.testing.assert_allclose(result.w[:12], dense.w, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(result.objective, dense.objective, rtol=1e-10)


def test_sparse_rows_without_any_column_are_accepted() -> None:
    state = fitted(ranksvm, as_sparse(np.zeros((4, 8))), 8, np.array([1.0, -1.0, 1.0, -1.0]))
    assert not state.w.any()
    assert state.objective == ranksvm.Params().C / 2


def test_sparse_rows_stay_sparse() -> None:
    """2000 rows of 2^21 columns, which would be 34 GB dense: beside w itself, memory goes by the non-zeros."""
    dim, n, each = 2**21, 2000, 20
    random = np.random.default_rng(8)
    _, y = stream(n, 1, seed=8)
    indices = np.sort(random.integers(0, dim // each, (n, each)) + np.arange(each) * (dim // each), axis=1)
    indices[:, 0] = np.where(y > 0, 0, 1)  # the one column that tells
    rows = Sparse(random.random(n * each), indices.ravel(), np.arange(0, n * each + 1, each))
    tracemalloc.start()
    state = fitted(ranksvm, rows, dim, y)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * dim + 40 * 8 * n * each
    assert state.w[0] > 0 > state.w[1]


def test_grow_adds_columns() -> None:
    X, y = stream(60, 8, seed=9, density=0.5)
    params = ranksvm.Params()
    assert same_bits(ranksvm.grow(params, ranksvm.init(params, 8, 0), 24), ranksvm.init(params, 24, 0))
    small, large = (fitted(ranksvm, as_sparse(X), dim, y) for dim in (8, 24))
    assert same_bits(ranksvm.grow(params, small, 24), large)


# Behind an embedding


def kernel_expansion(X: Matrix, y: Vector, width: float, C: float) -> Vector:
    """Score the events of the kernel ranker by its minimiser, from all pairs and with another optimiser."""
    K = np.exp(-((X[:, None] - X[None]) ** 2).sum(axis=2) / width)
    root = np.linalg.cholesky(K + 1e-12 * np.eye(len(X)))  # f = root beta, |f|^2 = |beta|^2

    def objective(beta: Vector) -> tuple[float, Vector]:
        f = root @ beta
        loss = np.maximum(0.0, 1.0 - np.subtract.outer(f[y > 0], f[y < 0]))
        slopes = np.zeros(len(y))
        slopes[y > 0], slopes[y < 0] = -loss.sum(axis=1), loss.sum(axis=0)
        value = 0.5 * float(beta @ beta) + 0.5 * C * float((loss**2).mean())
        return value, beta + C / loss.size * (root.T @ slopes)

    options = {"maxiter": 20_000, "maxfun": 40_000, "ftol": 0.0, "gtol": 1e-9}
    result = optimize.minimize(objective, np.zeros(len(X)), jac=True, method="L-BFGS-B", options=options)
    return np.asarray(root @ result.x)


def test_rbf_ranksvm_equals_the_kernel_machine() -> None:
    X, y = rings(80, seed=10)
    settings = kernel_approximation.Embedding.of({**rbf_ranksvm.TRAITS.defaults["embedding"], "width": 1.0})
    space = kernel_approximation.fit(settings, X, 0)
    phi = kernel_approximation.transform(settings, space, X)
    state = fitted(rbf_ranksvm, phi, phi.shape[1], y, C=100.0, tolerance=1e-9)
    expected = kernel_expansion(X, y, 1.0, 100.0)
    # scores of the two differ by nothing but the eigenvalues that the embedding drops
    np.testing.assert_allclose(phi @ state.w, expected, atol=1e-3 * np.ptp(expected))


def test_rbf_ranksvm_ranks_data_beyond_linear_rankers() -> None:
    X, y = rings(400, seed=11)
    settings = kernel_approximation.Embedding.of(rbf_ranksvm.TRAITS.defaults["embedding"])
    phi = kernel_approximation.transform(settings, kernel_approximation.fit(settings, X[:200], 0), X)
    state = fitted(rbf_ranksvm, phi[:200], phi.shape[1], y[:200])
    assert auc(phi[200:] @ state.w, y[200:]) > 0.98
    assert auc(X[200:] @ fitted(ranksvm, X[:200], 2, y[:200]).w, y[200:]) < 0.7


def test_rbf_ranksvm_retains_no_more_than_its_landmarks() -> None:
    defaults = rbf_ranksvm.TRAITS.defaults
    assert defaults["learner"]["refit_window"] <= defaults["embedding"]["components"]
    assert defaults["embedding"]["components"] <= rbf_ranksvm.TRAITS.max_dim
