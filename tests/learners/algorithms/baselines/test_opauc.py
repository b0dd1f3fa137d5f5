"""opauc, adaoam, opaucr and opaucs: against the naive ones, and what their estimates and guards promise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from learners.algorithms._class_moments import descend_in_ball
from learners.algorithms.baselines import adaoam, opauc, opaucr, opaucs
from learners.numerics.arrays import Vector
from tests.learners.algorithms import naive_auc
from tests.learners.streams import as_sparse, auc, run, same_bits, stream


def _weights(y: Vector) -> Vector:
    return np.random.default_rng(1).choice([0.0, 0.5, 1.0, 3.0], len(y))


# opauc and adaoam


@pytest.mark.parametrize("options", [{}, {"eta": 0.03, "lam": 0.5}], ids=str)
@pytest.mark.parametrize("dim", [1, 4, 11])
def test_opauc_matches_the_naive_version(options: dict[str, Any], dim: int) -> None:
    X, y = stream(120, dim, seed=dim)
    X /= np.sqrt(dim)
    weight = _weights(y)
    state, scores = run(opauc, opauc.Params(**options), X, y, weight=weight)
    expected, w, means, gamma = naive_auc.opauc(X, y, weight, **options)
    for actual, right in ((scores, expected), (state.w, w), (state.means, means), (state.gamma, gamma)):
        np.testing.assert_allclose(actual, right, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("options", [{}, {"eta": 1.0, "lam": 0.5}, {"delta": 0.01, "lam": 0.0}], ids=str)
@pytest.mark.parametrize("dim", [1, 4, 11])
def test_adaoam_matches_the_naive_version(options: dict[str, Any], dim: int) -> None:
    X, y = stream(120, dim, seed=dim)
    weight = _weights(y)
    state, scores = run(adaoam, adaoam.Params(**options), X, y, weight=weight)
    expected, w, h = naive_auc.adaoam(X, y, weight, **options)
    for actual, right in ((scores, expected), (state.w, w), (state.h, h)):
        np.testing.assert_allclose(actual, right, rtol=1e-8, atol=1e-10)


def test_opauc_does_not_diverge_on_raw_rows() -> None:
    X, y = stream(600, 6, seed=3, gap=1.5)
    X[300:] += 1e3
    _, scores = run(opauc, opauc.Params(eta=100.0), 1e3 * X, y)
    assert np.abs(scores).max() < 1e4
    _, scores = run(opauc, opauc.Params(eta=100.0), 1e3 * X[:300], y[:300])
    assert auc(scores[100:], y[100:300]) > 0.9


def test_opauc_caps_overshooting_steps() -> None:
    X, y = np.array([[0.0], [4.0]]), np.array([-1.0, 1.0])
    for eta, expected in ((0.01, 0.04), (1e3, 2 / 17 * 4)):  # g = -4; the cap is 2 / (lam + 4^2)
        state, _ = run(opauc, opauc.Params(eta=eta, lam=1.0), X, y)
        assert state.w[0] == pytest.approx(expected)


def test_adaoam_stays_in_its_ball() -> None:
    X, y = stream(200, 5, seed=1)
    state, _ = run(adaoam, adaoam.Params(eta=64.0, lam=4.0), 1e3 * X, y)
    assert np.linalg.norm(state.w) <= 0.5 * (1 + 1e-12)


# opaucr and opaucs


@pytest.mark.parametrize("options", [{}, {"eta": 0.02, "lam": 0.5, "tau": 3}, {"lam": 4.0, "tau": 1}], ids=str)
@pytest.mark.parametrize(("dim", "density"), [(1, 1.0), (11, 0.4)])
def test_opaucr_matches_the_naive_version(options: dict[str, Any], dim: int, density: float) -> None:
    X, y = stream(80, dim, seed=dim, density=density)
    X /= np.sqrt(dim)
    weight = _weights(y)
    expected, w = naive_auc.opaucr(X, y, weight, **options, seed=5)
    for rows in (X, as_sparse(X)):
        state, scores = run(opaucr, opaucr.Params(**options), rows, y, weight=weight, dim=dim, seed=5)
        np.testing.assert_allclose(scores, expected, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(state.w, w, rtol=1e-8, atol=1e-10)


def test_opaucr_projects_by_nearly_orthonormal_vectors() -> None:
    state, _ = run(opaucr, opaucr.Params(tau=256), np.eye(64), np.ones(64), seed=3)
    np.testing.assert_allclose(state.Z[1].sum(axis=1), state.noise[1], rtol=1e-12)
    draws = state.Z[1].ravel() * 16
    assert abs(draws.mean()) < 4 / np.sqrt(len(draws))
    assert abs(draws.var() - 1) < 4 * np.sqrt(2 / len(draws))
    assert 2.7 < np.mean(draws**4) < 3.1  # 2.9 for twelve uniform numbers, 3 for the normal
    gram = state.Z[1].T @ state.Z[1]
    assert np.abs(gram - np.eye(64)).max() < 5 / 16


@pytest.mark.parametrize("options", [{}, {"eta": 0.02, "lam": 0.5, "tau": 3}, {"lam": 4.0, "tau": 1}], ids=str)
@pytest.mark.parametrize(("dim", "density"), [(1, 1.0), (11, 0.4), (7, 1.0)])
def test_opaucs_matches_the_naive_version(options: dict[str, Any], dim: int, density: float) -> None:
    X, y = stream(60, dim, seed=dim, density=density)
    X /= np.sqrt(dim)
    weight = _weights(y)
    expected, w = naive_auc.opaucs(X, y, weight, **options)
    for rows in (X, as_sparse(X)):
        params = opaucs.Params(**options)
        state, scores = run(opaucs, params, rows, y, weight=weight, dim=dim)
        np.testing.assert_allclose(scores, expected, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(state.w, w, rtol=1e-8, atol=1e-10)
        for side, label in enumerate((-1, 1)):
            for j, mine in enumerate(naive_auc.kept_products(X[y == label], params.tau)):
                n = state.kept[side, j]
                assert state.partners[side, j, :n].tolist() == list(mine)
                np.testing.assert_allclose(state.products[side, j, :n], list(mine.values()), rtol=1e-8, atol=1e-12)


def test_opaucs_equals_opauc_while_all_columns_fit() -> None:
    X, y = stream(200, 9, seed=1)
    weight = _weights(y)
    expected, right = run(opauc, opauc.Params(), X, y, weight=weight)
    for tau in (8, 50):
        state, scores = run(opaucs, opaucs.Params(tau=tau), X, y, weight=weight)
        np.testing.assert_allclose(scores, right, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(state.w, expected.w, rtol=1e-8, atol=1e-10)


def test_opaucs_takes_columns_that_never_occur_together_as_uncorrelated() -> None:
    random = np.random.default_rng(3)
    X = np.eye(6)[random.integers(0, 6, 400)]
    y = np.where(random.random(400) < 0.3, 1.0, -1.0)
    state, scores = run(opaucs, opaucs.Params(tau=5), X, y)
    _, _, _, gamma = naive_auc.opauc(X, y, np.ones(400))
    assert not state.kept.any()
    assert all(covariance[0, 1] < -0.01 for covariance in gamma)  # -c_0 c_1, which OPAUC uses
    _, right = run(opauc, opauc.Params(), X, y)
    assert np.abs(scores - right).max() > 1e-4


def test_opaucs_finds_the_largest_entries_even_if_they_start_late() -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(2000, 40))
    X[500:, 39] += 2 * X[500:, 17]
    X[500:, 38] -= X[500:, 20]
    state, _ = run(opaucs, opaucs.Params(tau=4), X, np.ones(2000))
    for column, partner in ((39, 17), (38, 20)):
        products = dict(zip(state.partners[1, column], state.products[1, column], strict=True))
        full = X[:, column] @ X[:, partner]
        assert max(products, key=lambda i: abs(products[i])) == partner
        assert 0.8 < products[partner] / full <= 1


@pytest.mark.parametrize("algorithm", [opaucr, opaucs], ids=["opaucr", "opaucs"])
def test_sparse_steps_equal_dense_steps_bit_for_bit(algorithm: Any) -> None:
    X, y = stream(200, 24, seed=2, density=0.2)
    params = algorithm.Params(tau=5)
    dense, _ = run(algorithm, params, X, y)
    sparse, _ = run(algorithm, params, as_sparse(X), y)
    assert same_bits(dense, sparse)


def test_opaucs_stays_in_the_ball_despite_an_indefinite_covariance() -> None:
    """Four columns that are nearly one: what tau = 2 keeps of their covariance has an eigenvalue below -.5."""
    random = np.random.default_rng(0)
    y = random.choice([-1.0, 1.0], 1000)
    X = random.normal(size=(1000, 1)) + 0.1 * random.normal(size=(1000, 4)) + 0.1 * y[:, None]
    state, _ = run(opaucs, opaucs.Params(tau=2, eta=0.05), X, y)
    assert np.linalg.norm(state.w) == pytest.approx(32.0, rel=1e-3)
    assert np.linalg.norm(state.w) <= 32.0 * (1 + 1e-12)


@pytest.mark.parametrize("algorithm", [opaucr, opaucs], ids=["opaucr", "opaucs"])
def test_estimated_covariances_cap_the_step(algorithm: Any) -> None:
    X, y = stream(6, 5, seed=4)
    y[:] = [-1, -1, -1, -1, -1, 1]
    state, _ = run(algorithm, algorithm.Params(tau=1, eta=1e3, lam=0.5), X, y, seed=2)
    others, z = X[:5], X[5] - X[:5].mean(axis=0)
    size = others.var(axis=0).sum()
    if algorithm is opaucr:
        c, abar = others.mean(axis=0), state.noise[0] / 5
        size = np.sum(state.Z[0] ** 2) / 5 + (c @ c) * (abar @ abar)
    np.testing.assert_allclose(state.w, 2 / (0.5 + z @ z + size) * z, rtol=1e-12)


def test_a_step_ends_in_the_ball() -> None:
    for lam, expected in ((1.0, 1.0), (0.25, 2.0), (0.01, 8.0)):
        w, g = np.array([3.0, -4.0]), np.array([-2.0, 8.0 / 3.0])
        descend_in_ball(w, g, 0.9, 1.0, lam)
        np.testing.assert_allclose(w, np.array([0.6, -0.8]) * expected, rtol=1e-12)
        w = np.array([3.0, -4.0])
        descend_in_ball(w, g, 1e6, 2.0 / 0.9, lam)  # the step is capped at .9
        np.testing.assert_allclose(w, np.array([0.6, -0.8]) * expected, rtol=1e-12)
