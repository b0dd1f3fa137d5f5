"""One-pass AUC optimisation with sparse covariances (OPAUCs): of the class second moments the largest entries only.

The step is OPAUC's. With c and G the mean and the estimated covariance of the other class, and s = +-1 the label:

    z = x - c;   g = lam w - s z + z (z.w) + G w;   w -= eta g

What a class keeps of M = sum x x^T, in at most (tau + 1) dim numbers: its diagonal, and for each column j up to tau of
the entries M_ij with i < j. An event changes column j only where x_j is not 0:

    1. a kept M_ij takes in x_i x_j;
    2. each product x_i x_j not 0 of a pair that is not kept gets a place while there are free ones, in the order of i;
    3. of the products that got none, the largest in size, p, challenges the smallest kept entry q (ties: the first):
       |q| > |p|: q moves to 0 by |p|;   else the pair takes q's place, with p shrunk by |q|.

So kept entries may fall short of their sums, and never lie beyond them; a pair that is often large gets in, whenever it
begins. (Exact selection would need all dim^2 sums.) Then G_ij = M_ij / n - c_i c_j for kept pairs, clipped to
+-sqrt(G_ii G_jj), and 0 for others. With tau >= dim - 1 everything is kept, and this is OPAUC.

Nothing but sums moves until the other class has been seen. The score is w.x. An event's weight multiplies eta.
O(tau * dim + non-zeros^2) time per event, about 3 ns for each entry kept and each pair of non-zeros. O(tau * dim)
memory.

Guards: eta, times the weight, is at most 2 / (lam + z.z + trace G): by the clipping the trace bounds |G|. And |w| is
kept within 1 / sqrt(lam), which the minimiser never leaves: G need not be positive where entries are missing.

References
----------
Gao, Wang, Jin, Zhu, Zhou. One-Pass AUC Optimization. Artificial Intelligence 236, 2016, OPAUCs.
Departures: the choice of the entries as above, the clipping, the guards.
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
    tau: int = param(50, "entries of a covariance kept per column", least=1, most=256)


class State(NamedTuple):
    """Weights, and the moments of negatives and positives."""

    w: Vector  # (dim,)
    sums: Matrix  # (2, dim) sum of the rows of a class
    squares: Matrix  # (2, dim) the diagonal of M
    products: Cube  # (2, dim, tau) kept M_ij of each column j; the first `kept` are in use
    partners: NDArray[np.int64]  # (2, dim, tau) the i of each
    kept: NDArray[np.int64]  # (2, dim)
    seen: Counts  # (2,) events met per class


def init(params: Params, dim: int, seed: int) -> State:  # noqa: ARG001
    """The state before any event."""
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
    """The state for `dim` columns.

    Where dimensions are multiples of 8, it makes no difference to a bit when a state grows: see `arrays.dot`.
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
    """Score each row, then learn from it, in order; `state` changes in place, `scores` (n,) is filled."""
    if isinstance(rows, Sparse):
        _learn_sparse(state, *rows, y, weight, params.eta, params.lam, scores)
    else:
        _learn_dense(state, rows, y, weight, params.eta, params.lam, scores)
    return state


def weights(params: Params, state: State) -> Linear:  # noqa: ARG001
    """What scoring needs."""
    return Linear(state.w, np.zeros(1))


def problems(params: Params, state: State, sparse: bool) -> Issues:  # noqa: ARG001
    """What no events can have led to in a state from elsewhere."""
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
    x = np.zeros(dim)  # the row with its zeros: the dense step is then the sparse one, to the bit
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
def _absorb(x, at, own, state, mark):  # type: ignore[no-untyped-def]
    """Take the row `x` (dim,), not 0 in the columns `at`, into its class; `mark` (dim,) is -1, and is so again after.

    mark[i] = j says that column j keeps the pair (i, j) already.
    """
    _, sums, squares, products, partners, kept, seen = state
    seen[own] += 1
    tau = products.shape[2]
    for n in range(at.shape[0]):
        j = at[n]
        xj = x[j]
        sums[own, j] += xj
        squares[own, j] += xj * xj
        row = products[own, j]
        places = partners[own, j]
        used = kept[own, j]
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
        kept[own, j] = used
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
    """Move w by an event whose row is taken in already; `scratch` (4, dim) is overwritten."""
    w, sums, squares, products, partners, kept, seen = state
    other = 0 if y > 0.0 else 1
    if seen[other] == 0 or rate == 0.0:
        return
    c, spread, z, g = scratch
    share = 1.0 / seen[other]
    trace = 0.0
    for j in range(x.shape[0]):
        c[j] = share * sums[other, j]
        variance = max(share * squares[other, j] - c[j] * c[j], 0.0)  # by rounding alone can it come out below
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
