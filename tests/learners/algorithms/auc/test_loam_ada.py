"""loam-ada: against the naive one; sparse rows take the same steps to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from learners.algorithms.auc import loam_ada
from tests.learners.algorithms import naive
from tests.learners.streams import as_sparse, run, stream


@pytest.mark.parametrize("settings", [{}, {"eta": 0.05, "lam": 0.1}, {"lam": 0.0, "delta": 1.0}], ids=str)
@pytest.mark.parametrize(("dim", "density"), [(1, 1.0), (11, 1.0), (20, 0.3)])
def test_matches_the_naive_version(settings: dict[str, Any], dim: int, density: float) -> None:
    X, y = stream(120, dim, seed=dim, density=density)
    weight = np.random.default_rng(1).choice([0.0, 0.5, 1.0, 3.0], len(y))
    expected, w, h = naive.loam_ada(X, y, weight, **settings)
    for rows in (X, as_sparse(X)):
        state, scores = run(loam_ada, loam_ada.Params(**settings), rows, y, weight=weight, dim=dim)
        np.testing.assert_allclose(scores, expected, rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(state.w, w, rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(state.h, h, rtol=1e-8, atol=1e-9)


def test_sparse_steps_equal_dense_steps_bit_for_bit() -> None:
    X, y = stream(300, 24, seed=2, density=0.2)
    dense, _ = run(loam_ada, loam_ada.Params(), X, y)
    sparse, _ = run(loam_ada, loam_ada.Params(), as_sparse(X), y)
    assert dense.w.tobytes() == sparse.w.tobytes()
    assert dense.h.tobytes() == sparse.h.tobytes()
    assert dense.sums.tobytes() == sparse.sums.tobytes()


def test_weights_stay_zero_until_both_classes_arrive() -> None:
    X, y = stream(50, 3, seed=0, share=0.0)
    state, scores = run(loam_ada, loam_ada.Params(), X, y)
    assert not scores.any()
    assert not state.w.any()
    np.testing.assert_allclose(state.sums[0], X.sum(axis=0), rtol=1e-12)
