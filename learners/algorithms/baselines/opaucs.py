"""One-pass AUC optimisation with sparse covariances (OPAUCs): only the largest second moments of each class.

The step is that of OPAUC. With c and G the mean and the estimated covariance of the other class, and s = +-1 the label:

    z = x - c;   g = lam w - s z + z (z.w) + G w;   w -= eta g

A class stores at most (tau + 1) dim numbers of M = sum x x^T: the diagonal, and for each column j up to tau of the
entries M_ij with i < j. An event changes column j only if x_j is not 0:

    1. a stored M_ij grows by x_i x_j;
    2. a product x_i x_j that is not 0, of a pair that is not stored, gets a free place if there is one, in order of i;
    3. the largest product p without a place challenges the smallest stored entry q, both by size (ties: the first):
       |q| > |p|: q moves to 0 by |p|;   else the pair replaces q, with p shrunk by |q|.

So the size of a stored entry is at most that of its sum, and a pair that is often large gets a place, whenever it
begins. (Exact selection would need all dim^2 sums.) Then G_ij = M_ij / n - c_i c_j for stored pairs, clipped to
+-sqrt(G_ii G_jj), and 0 for others. With tau >= dim - 1 this is OPAUC, except for two columns that no event of the
class has had together: OPAUC gives them the covariance -c_i c_j, and here it is 0. Sparse rows have many such pairs.

Only sums change until the other class has occurred. The score is w.x. The weight of an event multiplies eta.
O(tau * dim + non-zeros^2) time per event, about 3 ns for each stored entry and each pair of non-zeros. O(tau * dim)
memory.

Guards: eta times the weight is at most 2 / (lam + z.z + trace G); thanks to the clipping the trace bounds |G|. And |w|
is at most 1 / sqrt(lam), which holds for the minimiser; with missing entries G need not be positive.

References
----------
Gao, Wang, Jin, Zhu, Zhou. One-Pass AUC Optimization. Artificial Intelligence 236, 2016, OPAUCs.
Departures: the choice of the entries as above, the covariance 0 of pairs without a place, the clipping, the guards.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from learners.algorithms._class_moments import descend_in_ball
from learners.algorithms.base import Cost, Linear, Traits
from learners.numerics import Counts, Cube, Issues, Matrix, Rows, Sparse, Vector, dot, grown, kernel, outside, simd
from learners.settings import Parameters, param

__all__ = ["TRAITS", "Params", "State", "grow", "init", "learn", "problems", "weights"]

TRAITS = Traits(
    max_dim=2**16,  # with tau = 50 four arrays of 25 MiB
    cost=Cost(
        "O(tau * dim + values^2) per event",
        lambda params, size: 100 + min(params.tau, size.dim) * size.dim + 2.0 * size.values**2,
    ),
    halved=("w", "products"),
)


@dataclass(frozen=True)
class Params(Parameters):
    """Settings of opaucs."""

    eta: float = param(2.0**-8, "step size", above=0, most=2.0**10)
    lam: float = param(2.0**-10, "weight of the L2 penalty", least=2.0**-20, most=2.0**10)
    tau: int = param(50, "stored entries of a covariance per column", least=1, most=256)


class State(NamedTuple):
    """Weights, and the moments of negatives and positives."""

    w: Vector  # (dim,)
    sums: Matrix  # (2, dim) sum of the rows of a class
    squares: Matrix  # (2, dim) the diagonal of M
    products: Cube  # (2, dim, tau) stored M_ij of each column j; the first `kept` are in use
    partners: NDArray[np.int64]  # (2, dim, tau) the i of each
    kept: NDArray[np.int64]  # (2, dim)
    seen: Counts  # (2,) events per class


def init(params: Params, dim: int, seed: int) -> State:  # noqa: ARG001
    """Return the state before any event."""
    return State(
        w=np.zeros(dim),
        sums=np.zeros((2, dim)),
        squares=np.zeros((2, dim)),
        products=np.zeros((2, dim, params.tau)),
        partners=np.zeros((2, dim, params.tau), dtype=np.int64),
        kept=np.zeros((2, dim), dtype=np.int64),
        seen=np.zeros(2, dtype=np.int64),
    )


def grow(params: Params, state: State, dim: int) -> State:
    """Return the state with `dim` columns.

    If dimensions are multiples of 8, the time of growth changes no bit of the results; see `arrays.dot`.
    """
    wide = init(params, dim, 0)
    old = len(state.w)
    products = wide.products.astype(state.products.dtype, copy=False)
    products[:, :old] = state.products
    for part in ("partners", "kept"):
        getattr(wide, part)[:, :old] = getattr(state, part)
    return wide._replace(
        w=grown(state.w, dim),
        sums=grown(state.sums, dim),
        squares=grown(state.squares, dim),
        products=products,
        seen=state.seen,
    )


def learn(params: Params, state: State, rows: Rows, y: Vector, weight: Vector, scores: Vector) -> State:
    """Score each row, then learn from it, in order. Changes `state` in place and fills `scores` (n,)."""
    if isinstance(rows, Sparse):
        _learn_sparse(state, *rows, y, weight, params.eta, params.lam, scores)
    else:
        _learn_dense(state, rows, y, weight, params.eta, params.lam, scores)
    return state


def weights(params: Params, state: State) -> Linear:  # noqa: ARG001
    """Return the weights that score events."""
    return Linear(state.w, np.zeros(1))


def problems(params: Params, state: State, sparse: bool) -> Issues:  # noqa: ARG001
    """Find values in a restored state that no events lead to."""
    yield from outside("partners", state.partners, 0, len(state.w) - 1)
    yield from outside("kept", state.kept, 0, params.tau)


@kernel
def _learn_dense(state, X, y, weight, eta, lam, scores):  # type: ignore[no-untyped-def]
    w = state.w
    dim = w.shape[0]
    at = np.empty(dim, dtype=np.int64)
    mark = np.full(dim, -1, dtype=np.int64)
    scratch = np.empty((4, dim))
    for t in range(X.shape[0]):
        x = X[t]
        scores[t] = dot(x, w)
        n = 0
        for j in range(dim):
            if x[j] != 0.0:
                at[n] = j
                n += 1
        _absorb(x, at[:n], 1 if y[t] > 0.0 else 0, state, mark)
        _step(x, y[t], eta * weight[t], lam, state, scratch)


@kernel
def _learn_sparse(state, data, indices, indptr, y, weight, eta, lam, scores):  # type: ignore[no-untyped-def]
    w = state.w
    dim = w.shape[0]
    at = np.empty(dim, dtype=np.int64)
    mark = np.full(dim, -1, dtype=np.int64)
    scratch = np.empty((4, dim))
    x = np.zeros(dim)  # the row with its zeros: the step gives the same bits as for a dense row
    for t in range(y.shape[0]):
        score = 0.0
        n = 0
        for k in range(indptr[t], indptr[t + 1]):
            score += data[k] * w[indices[k]]
            x[indices[k]] = data[k]
            if data[k] != 0.0:
                at[n] = indices[k]
                n += 1
        scores[t] = score
        _absorb(x, at[:n], 1 if y[t] > 0.0 else 0, state, mark)
        _step(x, y[t], eta * weight[t], lam, state, scratch)
        for k in range(indptr[t], indptr[t + 1]):
            x[indices[k]] = 0.0


@kernel
def _absorb(x, at, side, state, mark):  # type: ignore[no-untyped-def]
    """Add the row `x` (dim,), not 0 in the columns `at`, to its class; `mark` (dim,) is -1 before and after.

    mark[i] = j: column j stores the pair (i, j).
    """
    _, sums, squares, products, partners, kept, seen = state
    seen[side] += 1
    tau = products.shape[2]
    for n in range(at.shape[0]):
        j = at[n]
        xj = x[j]
        sums[side, j] += xj
        squares[side, j] += xj * xj
        row = products[side, j]
        places = partners[side, j]
        used = kept[side, j]
        for k in range(used):
            row[k] = simd.within(row, row[k] + x[places[k]] * xj)
            mark[places[k]] = j
        largest = 0.0
        challenger = -1
        for m in range(n):
            i = at[m]
            p = x[i] * xj
            if mark[i] == j or p == 0.0:
                continue
            if used < tau:
                row[used] = simd.within(row, p)
                places[used] = i
                used += 1
            elif abs(p) > abs(largest):
                largest = p
                challenger = i
        kept[side, j] = used
        if challenger >= 0:
            k = 0
            for other in range(1, tau):
                if abs(row[other]) < abs(row[k]):
                    k = other
            left = abs(row[k]) - abs(largest)
            if left > 0.0:
                row[k] = math.copysign(left, np.float64(row[k]))
            else:
                row[k] = simd.within(row, math.copysign(-left, largest))
                places[k] = challenger
    mark[:] = -1


@kernel
def _step(x, y, rate, lam, state, scratch):  # type: ignore[no-untyped-def]
    """Move w by an event; the moments already include its row. `scratch` (4, dim) is overwritten."""
    w, sums, squares, products, partners, kept, seen = state
    other = 0 if y > 0.0 else 1
    if seen[other] == 0 or rate == 0.0:
        return
    c, spread, z, g = scratch
    share = 1.0 / seen[other]
    trace = 0.0
    for j in range(x.shape[0]):
        c[j] = share * sums[other, j]
        variance = max(share * squares[other, j] - c[j] * c[j], 0.0)  # only rounding takes it below 0
        trace += variance
        spread[j] = math.sqrt(variance)
        z[j] = x[j] - c[j]
        g[j] = (lam + variance) * np.float64(w[j])
    pull = dot(z, w) - y
    for j in range(x.shape[0]):
        g[j] += pull * z[j]
    for j in range(x.shape[0]):
        for k in range(kept[other, j]):
            i = partners[other, j, k]
            most = spread[i] * spread[j]
            entry = max(-most, min(share * products[other, j, k] - c[i] * c[j], most))
            g[j] += entry * w[i]
            g[i] += entry * w[j]
    descend_in_ball(w, g, rate, lam + dot(z, z) + trace, lam)
