"""fofo's posterior: against the naive one, last iterate and suffix mean, dense and sparse."""

from __future__ import annotations

import numpy as np
import pytest

from learners.algorithms.fmeasure import fofo
from tests.learners.algorithms import naive
from tests.learners.streams import as_sparse, run, stream


@pytest.mark.parametrize("averaging", ["last", "suffix"])
@pytest.mark.parametrize("c", [0.25, 4.0])
@pytest.mark.parametrize(("dim", "density"), [(1, 1.0), (11, 1.0), (20, 0.3)])
@pytest.mark.parametrize("n", [1, 2, 7, 8, 150])
def test_matches_the_naive_version(averaging: str, c: float, dim: int, density: float, n: int) -> None:
    X, y = stream(n, dim, seed=dim, density=density)
    weight = np.random.default_rng(1).choice([0.0, 0.5, 1.0, 3.0], n)
    params = fofo.Params(c=c, averaging=averaging)
    expected, w = naive.fofo(X, y, weight, c=c, averaging=averaging)
    for rows in (X, as_sparse(X)):
        state, scores = run(fofo, params, rows, y, weight=weight, dim=dim)
        np.testing.assert_allclose(scores, expected, rtol=1e-10, atol=1e-12)
        linear = fofo.weights(params, state)
        np.testing.assert_allclose([*linear.w, *linear.bias], w, rtol=1e-10, atol=1e-12)


def test_probabilities_are_calibrated() -> None:
    X, y = stream(20_000, 3, seed=1, share=0.1)
    _, scores = run(fofo, fofo.Params(), X, y)
    p = 1 / (1 + np.exp(-scores[2000:]))
    for low, high in ((0.0, 0.02), (0.02, 0.1), (0.1, 0.4), (0.4, 1.0)):
        mask = (p >= low) & (p < high)
        assert abs(p[mask].mean() - np.mean(y[2000:][mask] > 0)) < 0.02
