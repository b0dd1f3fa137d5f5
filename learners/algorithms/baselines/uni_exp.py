"""Bipartite ranking by a univariate exponential loss, weighted by class (Uni-Exp).

Stochastic gradient descent, with n events so far, n_own of them of the class of y, this one included:

    w_y = n / (2 n_own);   w += eta w_y exp(-y w.x) y x

Only counts change until both classes have occurred: one class alone does not determine the weights w_y. The score is
w.x. The weight of an event multiplies eta. O(dim) time per event, O(non-zeros) with sparse rows; O(dim) memory.

Guard: a step raises the margin y w.x at most to max(0, y w.x) + 1. Otherwise one large or rare row (large w_y) could
determine w. With the default eta the guard acts if w_y |x|^2 is above about 1000. For standardised data of 20 columns,
that takes a class below 1 %.

References
----------
Kotlowski, Dembczynski, Hüllermeier. Bipartite Ranking through Minimization of Univariate Loss. ICML 2011.
Departures: the running n / (2 n_own) for the class's share, the wait for both classes, and the guard.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from learners.algorithms.base import Cost, Linear, Traits
from learners.numerics import Counts, Rows, Sparse, Vector, dot, exp, grown, kernel, simd
from learners.settings import Parameters, param

__all__ = ["TRAITS", "Params", "State", "grow", "init", "learn", "weights"]

TRAITS = Traits(
    cost=Cost("O(values) per event", lambda _, size: 35 + size.each(0.25, 1.4)),
    halved=("w",),
)


@dataclass(frozen=True)
class Params(Parameters):
    """Settings of uni-exp."""

    eta: float = param(
        2.0**-10, "step size: suits standardised features; shorter rows need more", above=0, most=2.0**10
    )


class State(NamedTuple):
    """Weights and class counts."""

    w: Vector  # (dim,)
    seen: Counts  # (2,) events per class: negatives, positives


def init(params: Params, dim: int, seed: int) -> State:  # noqa: ARG001
    """Return the state before any event."""
    return State(np.zeros(dim), np.zeros(2, dtype=np.int64))


def grow(params: Params, state: State, dim: int) -> State:  # noqa: ARG001
    """Return the state with `dim` columns."""
    return state._replace(w=grown(state.w, dim))


def learn(params: Params, state: State, rows: Rows, y: Vector, weight: Vector, scores: Vector) -> State:
    """Score each row, then learn from it, in order. Changes `state` in place and fills `scores` (n,)."""
    if isinstance(rows, Sparse):
        _learn_sparse(state, *rows, y, weight, params.eta, scores)
    else:
        _learn_dense(state, rows, y, weight, params.eta, scores)
    return state


def weights(params: Params, state: State) -> Linear:  # noqa: ARG001
    """Return the weights that score events."""
    return Linear(state.w, np.zeros(1))


@kernel
def _learn_dense(state, X, y, weight, eta, scores):  # type: ignore[no-untyped-def]
    w, seen = state
    for t in range(X.shape[0]):
        x = X[t]
        scores[t] = dot(x, w)
        step = _step(scores[t], dot(x, x), y[t], eta * weight[t], seen)
        if step != 0.0:
            for j in range(w.shape[0]):
                w[j] = simd.within(w, w[j] + step * x[j])


@kernel
def _learn_sparse(state, data, indices, indptr, y, weight, eta, scores):  # type: ignore[no-untyped-def]
    w, seen = state
    for t in range(y.shape[0]):
        score = square = 0.0
        for k in range(indptr[t], indptr[t + 1]):
            score += data[k] * w[indices[k]]
            square += data[k] * data[k]
        scores[t] = score
        step = _step(score, square, y[t], eta * weight[t], seen)
        if step != 0.0:
            for k in range(indptr[t], indptr[t + 1]):
                j = indices[k]
                w[j] = simd.within(w, w[j] + step * data[k])


@kernel
def _step(score, square, y, rate, seen):  # type: ignore[no-untyped-def]
    """Count the event; return the signed step for w += step x. `square` is x.x."""
    side = 1 if y > 0.0 else 0
    seen[side] += 1
    if seen[1 - side] == 0 or rate == 0.0:
        return 0.0
    margin = y * score
    share = (seen[0] + seen[1]) / (2.0 * seen[side])
    step = rate * share * exp(min(-margin, 300.0))  # beyond 300 `most` decides; no product overflows
    most = 1.0 if margin >= 0.0 else 1.0 - margin
    if step * square > most:
        step = most / square
    return y * step
