"""Adaptive online AUC maximization (AdaOAM): the gradient of OPAUC, with the steps of AdaGrad, inside a ball.

With c and Gamma the mean and covariance of the other class so far, and s = +-1 the label:

    z = x - c;   g = lam w - s z + z (z.w) + Gamma w;   h += g^2;   w -= eta g / (delta + sqrt(h))
    w is scaled back to |w| <= 1 / sqrt(lam)

Only means and covariances change until the other class has occurred. The score is w.x. An event's weight
multiplies g. O(dim^2) time per event and memory: two passes over a covariance, about 0.2 ns for each entry.

Large rows need no guard: a step moves no coordinate by more than eta.

References
----------
Ding, Zhao, Hoi, Ong. An Adaptive Gradient Method for Online AUC Maximization. AAAI 2015, Algorithm 1.
Duchi, Hazan, Singer. Adaptive Subgradient Methods for Online Learning and Stochastic Optimization. JMLR 2011.
Departure: w is scaled back into the ball, not projected in the norm of the steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from learners.algorithms._class_moments import absorb, gradient
from learners.algorithms.base import Cost, Linear, Traits
from learners.numerics import Counts, Cube, Matrix, Rows, Vector, dot, kernel, simd
from learners.settings import Parameters, param

__all__ = ["TRAITS", "Params", "State", "init", "learn", "weights"]

TRAITS = Traits(
    sparse=False,
    max_dim=2048,  # two covariances: 64 MiB
    cost=Cost("O(dim^2) per event", lambda _, size: 60 + 0.25 * size.dim**2),
    halved=("w", "h", "gamma"),
)


@dataclass(frozen=True)
class Params(Parameters):
    """Settings of adaoam."""

    eta: float = param(2.0**-4, "step size", above=0, most=2.0**10)
    lam: float = param(2.0**-10, "weight of the L2 penalty; the ball's radius is 1 / sqrt(lam)", least=0, most=2.0**10)
    delta: float = param(0.5, "keeps the first steps of a coordinate small", least=1e-12, most=2.0**10)


class State(NamedTuple):
    """Weights, the sums of squares of AdaGrad, and the moments of negatives and positives."""

    w: Vector  # (dim,)
    h: Vector  # (dim,) sum of squared gradients
    means: Matrix  # (2, dim)
    gamma: Cube  # (2, dim, dim) covariances, bitwise symmetric
    seen: Counts  # (2,) events per class


def init(params: Params, dim: int, seed: int) -> State:  # noqa: ARG001
    """Return the state before any event."""
    return State(
        w=np.zeros(dim),
        h=np.zeros(dim),
        means=np.zeros((2, dim)),
        gamma=np.zeros((2, dim, dim)),
        seen=np.zeros(2, dtype=np.int64),
    )


def learn(params: Params, state: State, rows: Rows, y: Vector, weight: Vector, scores: Vector) -> State:
    """Score each row, then learn from it, in order. Changes `state` in place and fills `scores` (n,)."""
    _learn(state, rows, y, weight, params.eta, params.lam, params.delta, scores)
    return state


def weights(params: Params, state: State) -> Linear:  # noqa: ARG001
    """Return the weights that score events."""
    return Linear(state.w, np.zeros(1))


@kernel
def _learn(state, X, y, weight, eta, lam, delta, scores):  # type: ignore[no-untyped-def]
    w, h, means, gamma, seen = state
    dim = w.shape[0]
    z = np.empty(dim)
    g = np.empty(dim)
    for t in range(X.shape[0]):
        x = X[t]
        scores[t] = dot(x, w)
        side = 1 if y[t] > 0.0 else 0
        seen[side] += 1
        absorb(x, seen[side], means[side], gamma[side], z)
        if seen[1 - side] == 0 or weight[t] == 0.0:
            continue
        gradient(x, y[t], w, lam, means[1 - side], gamma[1 - side], z, g)
        for j in range(dim):
            gj = weight[t] * g[j]
            hj = h[j] + gj * gj
            h[j] = simd.within(h, hj)
            w[j] = simd.within(w, w[j] - eta * gj / (delta + math.sqrt(hj)))
        norm = lam * dot(w, w)
        if norm > 1.0:
            back = 1.0 / math.sqrt(norm)
            for j in range(dim):
                w[j] = simd.within(w, np.float64(w[j]) * back)
