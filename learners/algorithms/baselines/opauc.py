"""One-pass AUC optimisation (OPAUC): gradient descent on the pairwise squared loss by class means and covariances.

With c and Gamma the mean and covariance of the other class so far, and s = +-1 the label:

    z = x - c;   g = lam w - s z + z (z.w) + Gamma w;   w -= eta g

Only means and covariances change until the other class has occurred. The score is w.x. An event's weight
multiplies eta. O(dim^2) time per event and memory: two passes over a covariance, about 0.2 ns for each entry.

Guard: eta times the weight is at most 2 / (lam + z.z + trace Gamma). The trace bounds the largest eigenvalue, so no
step ends farther from the minimum than it began, and w stays bounded for rows of any scale. With the default eta, the
guard rarely acts on standardised data of up to about 150 columns; with more columns it lowers eta as needed.

References
----------
Gao, Jin, Zhu, Zhou. One-Pass AUC Optimization. ICML 2013, Algorithm 1.
Departure: the guard.
"""

from __future__ import annotations

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
    halved=("w", "gamma"),
)


@dataclass(frozen=True)
class Params(Parameters):
    """Settings of opauc."""

    eta: float = param(2.0**-8, "step size", above=0, most=2.0**10)
    lam: float = param(2.0**-10, "weight of the L2 penalty", least=0, most=2.0**10)


class State(NamedTuple):
    """Weights, and the moments of negatives and positives."""

    w: Vector  # (dim,)
    means: Matrix  # (2, dim)
    gamma: Cube  # (2, dim, dim) covariances, bitwise symmetric
    seen: Counts  # (2,) events per class


def init(params: Params, dim: int, seed: int) -> State:  # noqa: ARG001
    """Return the state before any event."""
    return State(np.zeros(dim), np.zeros((2, dim)), np.zeros((2, dim, dim)), np.zeros(2, dtype=np.int64))


def learn(params: Params, state: State, rows: Rows, y: Vector, weight: Vector, scores: Vector) -> State:
    """Score each row, then learn from it, in order. Changes `state` in place and fills `scores` (n,)."""
    _learn(state, rows, y, weight, params.eta, params.lam, scores)
    return state


def weights(params: Params, state: State) -> Linear:  # noqa: ARG001
    """Return the weights that score events."""
    return Linear(state.w, np.zeros(1))


@kernel
def _learn(state, X, y, weight, eta, lam, scores):  # type: ignore[no-untyped-def]
    w, means, gamma, seen = state
    z = np.empty(w.shape[0])
    g = np.empty(w.shape[0])
    for t in range(X.shape[0]):
        x = X[t]
        scores[t] = dot(x, w)
        side = 1 if y[t] > 0.0 else 0
        seen[side] += 1
        absorb(x, seen[side], means[side], gamma[side], z)
        if seen[1 - side] == 0 or weight[t] == 0.0:
            continue
        bound = gradient(x, y[t], w, lam, means[1 - side], gamma[1 - side], z, g)
        step = eta * weight[t]
        if step * bound > 2.0:
            step = 2.0 / bound
        for j in range(w.shape[0]):
            w[j] = simd.within(w, w[j] - step * g[j])
