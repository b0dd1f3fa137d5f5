"""Linear online AUC maximization by a univariate squared loss and AdaGrad (LOAM_Ada).

The pairwise squared loss has the same minimiser as a loss of single examples against the mean c-, c+ of the other
class. Online, with n events so far, n_own of them of the class of y, this one included:

    s = 1 / sqrt(2 n_own / n);   xh = s (x - c-) if y > 0 else s (c+ - x)
    g = lam w - (s - w.xh) xh;   h += g^2;   w -= eta g / (delta + sqrt(h))        per coordinate

Only counts and sums change until both classes have occurred. The score is w.x. The weight of an event multiplies g.
O(dim) time per event and memory, about 0.6 ns for each column, for sparse rows too: the class means are dense. But a
learner of sparse or hashed rows has only the columns that it has seen, not all that are possible.

References
----------
Zhu, Zhai, Ye. A Linear Method for Online AUC Maximization. Journal of Computer Research and Development, 2018,
objective (3), Theorem 1, LOAM_Ada.
Duchi, Hazan, Singer. Adaptive Subgradient Methods for Online Learning and Stochastic Optimization. JMLR 2011.
Departures: weights wait for both classes, which the paper's algorithm does not ask for: it has no rule for a class
without a mean. The state has class sums, divided when used, so an event writes only to the columns that it has. A
residual x_j - c_j within the rounding of such a mean (n 2^-54 of x_j for n rows) is taken as 0, as it is with the
paper's running means: so a column that never changes keeps weight 0 and changes no score. AdaGrad would enlarge the
rounding to whole steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from learners.algorithms._class_moments import rounding
from learners.algorithms.base import Cost, Linear, Traits
from learners.numerics import Counts, Matrix, Rows, Sparse, Vector, dot, grown, kernel, simd
from learners.settings import Parameters, param

__all__ = ["TRAITS", "Params", "State", "grow", "init", "learn", "weights"]

TRAITS = Traits(
    cost=Cost("O(dim) per event", lambda _, size: 35 + 0.55 * size.dim + size.each(0, 1)),
    halved=("w", "h"),
)


@dataclass(frozen=True)
class Params(Parameters):
    """Settings of loam-ada."""

    eta: float = param(2.0**-2, "step size; 2^-4 suits unit-norm text", above=0, most=2.0**10)
    lam: float = param(2.0**-11, "weight of the L2 penalty", least=0, most=2.0**10)
    delta: float = param(1e-8, "keeps the first steps of a coordinate finite", least=1e-12, most=2.0**10)


class State(NamedTuple):
    """Weights, the sums of squares of AdaGrad, and the class sums."""

    w: Vector  # (dim,)
    h: Vector  # (dim,) sum of squared gradients
    sums: Matrix  # (2, dim) sum of the rows of a class: negatives, positives
    seen: Counts  # (2,) events per class


def init(params: Params, dim: int, seed: int) -> State:  # noqa: ARG001
    """Return the state before any event."""
    return State(w=np.zeros(dim), h=np.zeros(dim), sums=np.zeros((2, dim)), seen=np.zeros(2, dtype=np.int64))


def grow(params: Params, state: State, dim: int) -> State:  # noqa: ARG001
    """Return the state with `dim` columns.

    If dimensions are multiples of 8, the time of growth changes no bit of the results; see `arrays.dot`.
    """
    return state._replace(w=grown(state.w, dim), h=grown(state.h, dim), sums=grown(state.sums, dim))


def learn(params: Params, state: State, rows: Rows, y: Vector, weight: Vector, scores: Vector) -> State:
    """Score each row, then learn from it, in order. Changes `state` in place and fills `scores` (n,)."""
    if isinstance(rows, Sparse):
        _learn_sparse(state, *rows, y, weight, params.eta, params.lam, params.delta, scores)
    else:
        _learn_dense(state, rows, y, weight, params.eta, params.lam, params.delta, scores)
    return state


def weights(params: Params, state: State) -> Linear:  # noqa: ARG001
    """Return the weights that score events."""
    return Linear(state.w, np.zeros(1))


@kernel
def _learn_dense(state, X, y, weight, eta, lam, delta, scores):  # type: ignore[no-untyped-def]
    w_out, h_out, sums_out, seen = state
    dim = w_out.shape[0]
    width = simd.padded(dim)
    x, w, h = simd.aligned(width), simd.aligned_like(w_out, width), simd.aligned_like(h_out, width)
    sums = simd.aligned(2 * width)  # of the negatives, then of the positives
    simd.pad(w_out, dim, w)
    simd.pad(h_out, dim, h)
    for c in range(2):
        for j in range(dim):
            sums[c * width + j] = sums_out[c, j]
    lams, rate, least = simd.spread(lam), simd.spread(eta), simd.spread(delta)
    zeros = simd.spread(0.0)
    for t in range(X.shape[0]):
        simd.pad(simd.row(X, t), dim, x)
        side = 1 if y[t] > 0.0 else 0
        at, other = side * width, (1 - side) * width
        lanes_x = lanes_c = simd.spread(0.0)
        for j in range(0, width, 8):
            xj, wj = simd.load(x, j), simd.load(w, j)
            simd.store(sums, at + j, simd.load(sums, at + j) + xj)
            lanes_x = lanes_x + xj * wj
            lanes_c = lanes_c + simd.load(sums, other + j) * wj
        scores[t] = simd.total(lanes_x)
        pull, share = _pull(scores[t], simd.total(lanes_c), side, y[t], weight[t], seen)
        if share == 0.0:
            continue
        noise = simd.spread(rounding(seen[1 - side]))
        pulls, shares, weights = simd.spread(pull), simd.spread(share), simd.spread(weight[t])
        for j in range(0, width, 8):
            xj, wj = simd.load(x, j), simd.load(w, j)
            residual = simd.beyond(xj - shares * simd.load(sums, other + j), noise * simd.larger(xj, zeros - xj))
            g = weights * (lams * wj - pulls * residual)
            hj = simd.load(h, j) + g * g
            simd.store(h, j, hj)
            simd.store(w, j, wj - rate * g / (least + simd.square_root(hj)))
    simd.unpad(w, dim, w_out)
    simd.unpad(h, dim, h_out)
    for c in range(2):
        for j in range(dim):
            sums_out[c, j] = sums[c * width + j]


@kernel
def _learn_sparse(state, data, indices, indptr, y, weight, eta, lam, delta, scores):  # type: ignore[no-untyped-def]
    w, h, sums, seen = state
    x = np.zeros(w.shape[0])  # the row with its zeros: the step gives the same bits as for a dense row
    for t in range(y.shape[0]):
        side = 1 if y[t] > 0.0 else 0
        score = 0.0
        for k in range(indptr[t], indptr[t + 1]):
            score += data[k] * w[indices[k]]
            x[indices[k]] = data[k]
            sums[side, indices[k]] += data[k]
        scores[t] = score
        other = sums[1 - side]
        pull, share = _pull(dot(x, w), dot(other, w), side, y[t], weight[t], seen)
        if share > 0.0:
            noise = rounding(seen[1 - side])
            for j in range(w.shape[0]):
                residual = x[j] - share * other[j]
                if abs(residual) <= noise * abs(x[j]):
                    residual = 0.0
                g = weight[t] * (lam * np.float64(w[j]) - pull * residual)
                hj = h[j] + g * g
                h[j] = simd.within(h, hj)
                w[j] = simd.within(w, w[j] - eta * g / (delta + math.sqrt(hj)))
        for k in range(indptr[t], indptr[t + 1]):
            x[indices[k]] = 0.0


@kernel
def _pull(product, at_sums, side, y, weight, seen):  # type: ignore[no-untyped-def]
    """Count the event; return (pull, share) for g = weight (lam w - pull (x - share sums)); share 0: no step.

    `product` is w.x, `at_sums` the product of w and the sums of the other class.
    """
    seen[side] += 1
    if seen[1 - side] == 0 or weight == 0.0:
        return 0.0, 0.0
    s = 1.0 / math.sqrt(2.0 * seen[side] / (seen[0] + seen[1]))
    share = 1.0 / seen[1 - side]
    return s * y * (s - s * y * (product - share * at_sums)), share
