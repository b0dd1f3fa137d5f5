"""NSVMSGD2: a naive version, the effect of weights, and what it learns behind an embedding."""

from __future__ import annotations

import numpy as np
import pytest

from learners import create
from learners.algorithms.baselines import nsvmsgd2
from learners.numerics.arrays import Vector
from tests.learners.streams import auc, run, same_bits, stream


def naive(X, y, weight, *, lam=1e-6):  # type: ignore[no-untyped-def]
    """Return scores and w, in the words of the paper: a loop with a countdown to the next decay."""
    t0, t, count, scores = lam ** (-3 / 4), 0, 16, []
    w = np.zeros(X.shape[1])
    for x, label, k in zip(X, y, weight, strict=True):
        scores.append(w @ x)
        if k == 0:
            continue
        t += 1
        if label * (w @ x) < 1:
            w = w + k * label * x / (lam * (t + t0))
        count -= 1
        if count <= 0:
            w = w * (1 - 16 / (t + t0))
            count = 16
    return np.array(scores), w


def _weights(y: Vector) -> Vector:
    return np.random.default_rng(1).choice([0.0, 0.5, 1.0, 3.0], len(y))


@pytest.mark.parametrize("lam", [1e-6, 0.01, 1.0])
@pytest.mark.parametrize("dim", [1, 4, 11])
def test_matches_the_naive_version(lam: float, dim: int) -> None:
    X, y = stream(150, dim, seed=dim)
    weight = _weights(y)
    state, scores = run(nsvmsgd2, nsvmsgd2.Params(lam=lam), X, y, weight=weight, cuts=[70])
    expected, w = naive(X, y, weight, lam=lam)
    np.testing.assert_allclose(scores, expected, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(state.w, w, rtol=1e-8, atol=1e-10)
    assert state.steps.tolist() == [np.count_nonzero(weight)]


def test_events_of_weight_zero_are_only_scored() -> None:
    X, y = stream(60, 3, seed=2)
    weight = np.concatenate([np.ones(30), np.zeros(30)])
    before, _ = run(nsvmsgd2, nsvmsgd2.Params(), X[:30], y[:30])
    after, _ = run(nsvmsgd2, nsvmsgd2.Params(), X, y, weight=weight)
    assert same_bits(before, after)


def test_it_learns_rings_behind_its_embedding_only() -> None:
    random = np.random.default_rng(0)
    y = np.where(random.random(3000) < 0.3, 1.0, 0.0)
    X = random.normal(size=(3000, 2))
    X *= ((1.0 + y) / np.linalg.norm(X, axis=1) + 0.1 * random.normal(size=3000))[:, None]
    learner = create("nsvmsgd2", dim=2)
    assert learner.config.embedding.kind == "nystroem"
    learner.learn(X[:2000], y[:2000])
    plain = create("nsvmsgd2", dim=2, embedding="none")
    plain.learn(X[:2000], y[:2000])
    labels = np.where(y[2000:] > 0, 1.0, -1.0)
    assert auc(learner.score(X[2000:]), labels) > 0.95
    assert auc(plain.score(X[2000:]), labels) < 0.7
