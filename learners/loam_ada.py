"""Linear online AUC maximization by a univariate squared loss and AdaGrad (LOAM_Ada).

The pairwise squared loss has the same minimiser as a loss of single examples against the other class's mean c-, c+.
Online, with n events so far, n_own of them of y's class, this one counted:

    s = 1 / sqrt(2 n_own / n);   xh = s (x - c-) if y > 0 else s (c+ - x)
    g = lam w - (s - w.xh) xh;   h += g^2;   w -= eta g / (delta + sqrt(h))        each coordinate for itself

Nothing but counts and sums moves until both classes have been seen. The score is w.x. An event's weight multiplies g.
O(dim) time per event and memory; for sparse rows too, as the class means are dense (about 1 ns per column).

References
----------
Zhu, Zhai, Ye. A Linear Method for Online AUC Maximization. Journal of Computer Research and Development, 2018,
objective (3), Theorem 1, LOAM_Ada.
Duchi, Hazan, Singer. Adaptive Subgradient Methods for Online Learning and Stochastic Optimization. JMLR 2011.
Departure: class sums are kept and divided when used, so that an event writes to the columns it has, no others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from learners.algorithm import Linear, Traits, grown
from learners.arrays import Counts, Matrix, Rows, Sparse, Vector, dot
from learners.jit import kernel
from learners.parameters import Parameters, param

__all__ = ["TRAITS", "Params", "State", "grow", "init", "learn", "weights"]

TRAITS = Traits()


@dataclass(frozen=True)
class Params(Parameters):
    """Settings of loam-ada."""

    eta: float = param(2.0**-2, "step size; 2^-4 suits unit-norm text", above=0, most=2.0**10)
    lam: float = param(2.0**-11, "weight of the L2 penalty", least=0, most=2.0**10)
    delta: float = param(1e-8, "keeps the first steps of a coordinate finite", least=1e-12, most=2.0**10)


class State(NamedTuple):
    """Weights, AdaGrad's sums of squares, and what the class means are made of."""

    w: Vector  # (dim,)
    h: Vector  # (dim,) sum of squared gradients
    sums: Matrix  # (2, dim) sum of the rows of a class: negatives, positives
    seen: Counts  # (2,) events met per class


def init(params: Params, dim: int, seed: int) -> State:  # noqa: ARG001
    """The state before any event."""
    return State(w=np.zeros(dim), h=np.zeros(dim), sums=np.zeros((2, dim)), seen=np.zeros(2, dtype=np.int64))


def grow(params: Params, state: State, dim: int) -> State:  # noqa: ARG001
    """The state for `dim` columns.

    Where dimensions are multiples of 8, it makes no difference to a bit when a state grows: see `arrays.dot`.
    """
    return state._replace(w=grown(state.w, dim), h=grown(state.h, dim), sums=grown(state.sums, dim))


def learn(params: Params, state: State, rows: Rows, y: Vector, weight: Vector, scores: Vector) -> State:
    """Score each row, then learn from it, in order; `state` changes in place, `scores` (n,) is filled."""
    if isinstance(rows, Sparse):
        _learn_sparse(state, *rows, y, weight, params.eta, params.lam, params.delta, scores)
    else:
        _learn_dense(state, rows, y, weight, params.eta, params.lam, params.delta, scores)
    return state


def weights(params: Params, state: State) -> Linear:  # noqa: ARG001
    """What scoring needs."""
    return Linear(state.w, np.zeros(1))


@kernel
def _learn_dense(state, X, y, weight, eta, lam, delta, scores):  # type: ignore[no-untyped-def]
    w, h, sums, seen = state
    for t in range(X.shape[0]):
        x = X[t]
        scores[t] = dot(x, w)
        own = 1 if y[t] > 0.0 else 0
        for j in range(x.shape[0]):
            sums[own, j] += x[j]
        _step(x, scores[t], y[t], weight[t], eta, lam, delta, w, h, sums, seen)


@kernel
def _learn_sparse(state, data, indices, indptr, y, weight, eta, lam, delta, scores):  # type: ignore[no-untyped-def]
    w, h, sums, seen = state
    x = np.zeros(w.shape[0])  # the row with its zeros: the dense step is then the sparse one, to the bit
    for t in range(y.shape[0]):
        own = 1 if y[t] > 0.0 else 0
        score = 0.0
        for k in range(indptr[t], indptr[t + 1]):
            score += data[k] * w[indices[k]]
            x[indices[k]] = data[k]
            sums[own, indices[k]] += data[k]
        scores[t] = score
        _step(x, dot(x, w), y[t], weight[t], eta, lam, delta, w, h, sums, seen)
        for k in range(indptr[t], indptr[t + 1]):
            x[indices[k]] = 0.0


@kernel
def _step(x, product, y, weight, eta, lam, delta, w, h, sums, seen):  # type: ignore[no-untyped-def]
    """Count the event, whose row is in the sums already, and move w. `product` is w.x."""
    own = 1 if y > 0.0 else 0
    seen[own] += 1
    if seen[1 - own] == 0 or weight == 0.0:
        return
    s = 1.0 / math.sqrt(2.0 * seen[own] / (seen[0] + seen[1]))
    other = sums[1 - own]
    share = 1.0 / seen[1 - own]
    error = s - s * y * (product - share * dot(other, w))
    pull = s * y * error
    for j in range(x.shape[0]):
        g = weight * (lam * w[j] - pull * (x[j] - share * other[j]))
        h[j] += g * g
        w[j] -= eta * g / (delta + math.sqrt(h[j]))
