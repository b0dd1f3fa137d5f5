"""Combine the scores of several models online: stacking by a logistic regression of standardised scores.

With s_k the score of model k, m_k and d_k its running mean and standard deviation:

    z_k = (s_k - m_k) / d_k, from -8 to 8;   u = (z, 1);   score = a.u;   p = sigma(score)

a follows the log loss of p by Newton steps that forget, with g = 1 - 1/m and m = min(memory, max(50, events / 10)):

    H = g H + p (1 - p) u u^T,   a -= (H + PRIOR I)^-1 (p - y) u

The factors begin equal. The last of a, the intercept, begins at log-odds of -3, because events of interest are rare.
m_k and d_k forget over as many events. A model may come later, or never: until its first score it counts nothing.
O(models^3) per event.

References
----------
Wolpert. Stacked Generalization. Neural Networks 5, 1992.
Departure: online, second order, with forgetting, as the Platt scaling in `learners.decisions.calibration`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from learners.numerics import Counts, Issues, Matrix, Vector, kernel, outside, sigmoid

__all__ = ["MixState", "init", "learn", "mix", "mix_scores", "problems", "shares"]

PRIOR = 10.0
_LIMIT, _SLOPE, _INTERCEPT = 8.0, 2.0, -3.0
_LARGEST = 1e6  # of a factor: keeps scores finite


class MixState(NamedTuple):
    """The combination of k models."""

    mean: Vector  # (k,)
    variance: Vector  # (k,)
    factors: Vector  # (k + 1,) a: of the models, and the intercept
    hessian: Matrix  # (k + 1, k + 1)
    events: Counts  # (k + 1,) that each model scored, and all


def init(models: int, expected: int) -> MixState:
    """Return the state before any event, for as many models, of which so many are expected to score at all."""
    factors = np.full(models + 1, _SLOPE / expected)
    factors[models] = _INTERCEPT
    return MixState(
        np.zeros(models),
        np.zeros(models),
        factors,
        np.zeros((models + 1, models + 1)),
        np.zeros(models + 1, dtype=np.int64),
    )


def mix(state: MixState, scores: Matrix) -> Vector:
    """Combine the scores (n, k) of n events: (n,)."""
    out = np.empty(len(scores))
    mix_scores(state, scores, out)
    return out


def shares(state: MixState, scores: Matrix) -> tuple[Matrix, Vector]:
    """Split the combined score: it is the sum of slope times score, with slopes (n, k), and of a rest (n,)."""
    deviation = np.sqrt(state.variance)
    factors = state.factors[:-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.where(deviation > 0.0, factors / deviation, 0.0)
        z = np.abs(np.where(deviation > 0.0, (scores - state.mean) / deviation, 0.0))
        slopes = np.where(z > _LIMIT, slope * _LIMIT / z, slope)
    return slopes, state.factors[-1] - slopes @ state.mean


def learn(
    state: MixState,
    scores: Matrix,
    y: Vector,
    weight: Vector,
    out: Vector,
    scoring: NDArray[np.bool_],
    memory: float,
) -> None:
    """Combine the scores (n, k) of each event, then learn from it, in order; fill `out` (n,).

    `scoring` (k,) tells which models score already; the scores of the others are 0. `memory` is in events.
    """
    _learn(state, scores, y, weight, out, scoring, memory)


def problems(state: MixState) -> Issues:
    """Find values in a restored state that no events lead to."""
    yield from outside("variance", state.variance, 0.0, math.inf)
    yield from outside("factors", state.factors, -_LARGEST, _LARGEST)
    if (np.diagonal(state.hessian) < 0).any() or not np.allclose(state.hessian, state.hessian.T):
        yield "hessian", "is not symmetric, or has a negative diagonal"


@kernel
def _standardised(mean, variance, score):  # type: ignore[no-untyped-def]
    if variance <= 0.0:
        return 0.0
    return min(max((score - mean) / math.sqrt(variance), -_LIMIT), _LIMIT)


@kernel
def mix_scores(state, scores, out):  # type: ignore[no-untyped-def]
    """Combine the scores (n, k) of n events: fill `out` (n,)."""
    mean, variance, factors, _, _ = state
    models = mean.shape[0]
    for t in range(scores.shape[0]):
        s = factors[models]
        for k in range(models):
            s += factors[k] * _standardised(mean[k], variance[k], scores[t, k])
        out[t] = s


@kernel
def _solved(H, u, factor, x):  # type: ignore[no-untyped-def]
    """Solve (H + PRIOR I) x = u by Cholesky's method; `factor` is working memory."""
    n = u.shape[0]
    for i in range(n):
        for j in range(i + 1):
            total = H[i, j] + (PRIOR if i == j else 0.0)
            for k in range(j):
                total -= factor[i, k] * factor[j, k]
            # only rounding takes a pivot below the prior
            factor[i, j] = math.sqrt(max(total, 1e-3 * PRIOR)) if i == j else total / factor[j, j]
    for i in range(n):
        total = u[i]
        for k in range(i):
            total -= factor[i, k] * x[k]
        x[i] = total / factor[i, i]
    for i in range(n - 1, -1, -1):
        total = x[i]
        for k in range(i + 1, n):
            total -= factor[k, i] * x[k]
        x[i] = total / factor[i, i]


@kernel
def _learn(state, scores, y, weight, out, scoring, memory):  # type: ignore[no-untyped-def]
    mean, variance, factors, hessian, events = state
    models = mean.shape[0]
    u, step, factor = np.ones(models + 1), np.empty(models + 1), np.empty((models + 1, models + 1))
    for t in range(scores.shape[0]):
        s = factors[models]
        for k in range(models):
            u[k] = _standardised(mean[k], variance[k], scores[t, k])
            s += factors[k] * u[k]
        out[t] = s
        if weight[t] == 0.0:
            continue
        events[models] += 1
        p = sigmoid(s)
        keep = 1.0 - 1.0 / min(memory, max(50.0, 0.1 * events[models]))
        slope = weight[t] * p * (1.0 - p)
        for i in range(models + 1):
            for j in range(models + 1):
                hessian[i, j] = keep * hessian[i, j] + slope * u[i] * u[j]
        _solved(hessian, u, factor, step)
        error = weight[t] * (p - (1.0 if y[t] > 0.0 else 0.0))
        for k in range(models + 1):
            factors[k] = min(max(factors[k] - error * step[k], -_LARGEST), _LARGEST)
        for k in range(models):
            if not scoring[k]:
                continue
            events[k] += 1
            share = max(1.0 / memory, 1.0 / events[k])
            away = scores[t, k] - mean[k]
            mean[k] += share * away
            variance[k] = (1.0 - share) * (variance[k] + share * away * away)
