"""Stochastic online AUC maximization (SOLAM): the pairwise squared loss as a saddle point of single examples.

Start w = (R / sqrt(dim)) 1, a = b = R, alpha = 2R. With n events so far, a share p of them positive, this one included:

    g = c / sqrt(n),  f = w.x;   the average adds w with weight g;   then, from the old a, b, alpha:
    y > 0   k = 2(1-p)(f - a) - 2(1 + alpha)(1-p)   a += 2g(1-p)(f - a)   alpha += g(-2(1-p) f - 2p(1-p) alpha)
    y < 0   k = 2p(f - b) + 2(1 + alpha) p          b += 2gp(f - b)       alpha += g(2p f - 2p(1-p) alpha)
    w -= g k x,  scaled back to |w| <= R;   a, b at most R;   alpha in [-2R, 2R]

The average scores, 0 before the first event. Until both classes have occurred, the average is the start.
The weight of an event multiplies g. O(dim) time per event and memory.

Only dense rows: the start is not 0, but a sparse column that has never occurred must have weight 0.

Guard: a and b are at least -R max(1, kappa), with kappa the largest |x| so far. This holds for the class means of w.x,
which they follow; without the guard, steps g above 1 could make them diverge.

References
----------
Ying, Wen, Lyu. Stochastic Online AUC Maximization. NeurIPS 2016, Algorithm 1, with the start and the bounds of the
authors' program.
Departure: the guard.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from learners.algorithms.base import Cost, Linear, Traits
from learners.numerics import Counts, Rows, Vector, dot, kernel, simd
from learners.settings import Parameters, param

__all__ = ["TRAITS", "Params", "State", "init", "learn", "weights"]

TRAITS = Traits(
    sparse=False,
    max_dim=2**20,
    cost=Cost("O(dim) per event", lambda _, size: 35 + 0.45 * size.dim),
    halved=("w",),
)


@dataclass(frozen=True)
class Params(Parameters):
    """Settings of solam."""

    R: float = param(0.5, "radius of the ball that the weights stay in", least=2.0**-20, most=2.0**20)
    c: float = param(0.5, "step size", above=0, most=2.0**10)


class State(NamedTuple):
    """The iterate, the average that scores, and the other variables of the saddle point."""

    w: Vector  # (dim,)
    average: Vector  # (dim,) of the iterates before each step, weighted by step
    levels: Vector  # (3,) a, b, alpha
    total: Vector  # (1,) sum of the steps
    kappa: Vector  # (1,) largest |x| so far
    seen: Counts  # (2,) events per class: negatives, positives


def init(params: Params, dim: int, seed: int) -> State:  # noqa: ARG001
    """Return the state before any event."""
    return State(
        w=np.full(dim, params.R / math.sqrt(max(dim, 1))),  # no columns: before an embedding is fitted
        average=np.zeros(dim),
        levels=np.array([params.R, params.R, 2.0 * params.R]),
        total=np.zeros(1),
        kappa=np.zeros(1),
        seen=np.zeros(2, dtype=np.int64),
    )


def learn(params: Params, state: State, rows: Rows, y: Vector, weight: Vector, scores: Vector) -> State:
    """Score each row, then learn from it, in order. Changes `state` in place and fills `scores` (n,)."""
    _learn(state, rows, y, weight, params.R, params.c, scores)
    return state


def weights(params: Params, state: State) -> Linear:  # noqa: ARG001
    """Return the weights that score events."""
    return Linear(state.average, np.zeros(1))


@kernel
def _learn(state, X, y, weight, R, c, scores):  # type: ignore[no-untyped-def]
    w, average, levels, total, kappa, seen = state
    dim = w.shape[0]
    for t in range(X.shape[0]):
        x = X[t]
        scores[t] = dot(x, average)
        seen[1 if y[t] > 0.0 else 0] += 1
        kappa[0] = max(kappa[0], math.sqrt(dot(x, x)))
        n = seen[0] + seen[1]
        g = weight[t] * (c / math.sqrt(n))
        if g == 0.0:
            continue
        total[0] += g
        part = g / total[0]
        for j in range(dim):
            average[j] += part * (w[j] - average[j])
        p = seen[1] / n
        f = dot(x, w)
        a, b, alpha = levels
        if y[t] > 0.0:
            k = 2.0 * (1.0 - p) * (f - a) - 2.0 * (1.0 + alpha) * (1.0 - p)
            a += 2.0 * g * (1.0 - p) * (f - a)
            alpha += g * (-2.0 * (1.0 - p) * f - 2.0 * p * (1.0 - p) * alpha)
        else:
            k = 2.0 * p * (f - b) + 2.0 * (1.0 + alpha) * p
            b += 2.0 * g * p * (f - b)
            alpha += g * (2.0 * p * f - 2.0 * p * (1.0 - p) * alpha)
        for j in range(dim):
            w[j] = simd.within(w, w[j] - g * k * x[j])
        norm = math.sqrt(dot(w, w))
        if norm > R:
            back = R / norm
            for j in range(dim):
                w[j] = simd.within(w, np.float64(w[j]) * back)
        least = -R * max(1.0, kappa[0])
        levels[0] = max(least, min(a, R))
        levels[1] = max(least, min(b, R))
        levels[2] = max(-2.0 * R, min(alpha, 2.0 * R))
