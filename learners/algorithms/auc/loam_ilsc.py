"""Linear online AUC maximization by incremental least squares with class means (LOAM_ILSC).

The pairwise squared loss has the same minimiser as a loss of single examples against the other class's mean c-, c+.
Online, with n events so far, n_own of them of y's class, this one counted, and S = I/lam at the start:

    s = 1 / sqrt(2 n_own / n);   xh = s (x - c-) if y > 0 else s (c+ - x)
    u = S xh,  v = xh.u,  f = 1 / (1 + v);   w += f (s - w.xh) u;   S -= f u u^T

so that w is always the minimiser of lam |w|^2 + sum (s - w.xh)^2 over the xh met, and S its inverse Hessian. Nothing
but counts and sums moves until both classes have been seen. The score is w.x. An event's weight k multiplies its loss:
f = k / (1 + k v). O(dim^2) time per event and memory: one pass over half of S, about 0.05 ns for each of its entries.

Guards, none of which standardised data meets: k v is at most 2^30, by a smaller k (one event that takes nearly all of a
variance leaves only rounding of it); an event is skipped that would leave a diagonal entry of S not above 0 (the others
are then bounded by 1/lam); and w is scaled back to lam |w|^2 <= sum k s^2, which holds for every minimiser.

References
----------
Zhu, Zhai, Ye. A Linear Method for Online AUC Maximization. Journal of Computer Research and Development, 2018,
objective (3), Theorem 1, LOAM_ILSC.
Departures: the downdate is bitwise symmetric, see `learners.numerics.packed_symmetric`; class sums are kept and divided
when used; the guards.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from learners.algorithms.base import Cost, Linear, Traits
from learners.numerics import Counts, Issues, Matrix, Rows, Vector, dot, kernel, packed_symmetric, simd
from learners.settings import Parameters, param

__all__ = ["TRAITS", "Params", "State", "init", "learn", "problems", "weights"]

TRAITS = Traits(
    sparse=False,
    max_dim=4096,
    cost=Cost("O(dim^2) per event", lambda _, size: 60 + size.dim + 0.06 * size.dim**2),
    halved=("w", "packed"),
)

_MOST_INFORMATION = 2.0**30  # cap of k v: at least 2^-30 of a variance is left, which rounding (2^-53) leaves meaning


@dataclass(frozen=True)
class Params(Parameters):
    """Settings of loam-ilsc."""

    lam: float = param(1.0, "weight of the L2 penalty", least=2.0**-40, most=2.0**40)


class State(NamedTuple):
    """The minimiser, the inverse of its Hessian, and what the class means are made of."""

    w: Vector  # (dim,)
    packed: Matrix  # (p, p) S, see `learners.numerics.packed_symmetric`; its diagonal in (0, 1/lam]
    energy: Vector  # (1,) sum of weight s^2 over the steps made: the objective at w = 0
    sums: Matrix  # (2, dim) sum of the rows of a class: negatives, positives
    seen: Counts  # (2,) events met per class

    @property
    def S(self) -> Matrix:
        """S in full, (dim, dim): a copy, bitwise symmetric."""
        return packed_symmetric.unpacked(self.packed, len(self.w))


def init(params: Params, dim: int, seed: int) -> State:  # noqa: ARG001
    """The state before any event."""
    return State(
        w=np.zeros(dim),
        packed=packed_symmetric.identity(dim, 1.0 / params.lam),
        energy=np.zeros(1),
        sums=np.zeros((2, dim)),
        seen=np.zeros(2, dtype=np.int64),
    )


def learn(params: Params, state: State, rows: Rows, y: Vector, weight: Vector, scores: Vector) -> State:
    """Score each row, then learn from it, in order; `state` changes in place, `scores` (n,) is filled.

    A state whose matrix does not begin at a multiple of 64 bytes gets another one that does.
    """
    if not packed_symmetric.begins_line(state.packed):
        state = state._replace(packed=packed_symmetric.at_lines(state.packed))
    _learn(state, rows, y, weight, params.lam, scores)
    return state


def weights(params: Params, state: State) -> Linear:  # noqa: ARG001
    """What scoring needs."""
    return Linear(state.w, np.zeros(1))


def problems(params: Params, state: State, sparse: bool) -> Issues:  # noqa: ARG001
    """What no events can have led to in a state from elsewhere."""
    yield from packed_symmetric.problems("packed", state.packed, len(state.w))


@kernel
def _learn(state, X, y, weight, lam, scores):  # type: ignore[no-untyped-def]
    minimiser, packed, energy, sums, seen = state
    dim = minimiser.shape[0]
    width = packed.shape[0]
    x, xh, u, g = simd.aligned(width), simd.aligned(width), simd.aligned(width), simd.aligned(width)
    w, variances = (
        simd.aligned_like(minimiser, width),
        simd.aligned_like(packed, width),
    )  # S's diagonal, with what is pending taken off already
    simd.pad(minimiser, dim, w)
    for i in range(width):
        variances[i] = packed[i, i] if i < dim else 1.0
    pending = False  # S -= g g^T is yet to be done: it rides on the next pass over S, which halves the traffic
    for t in range(X.shape[0]):
        simd.pad(simd.row(X, t), dim, x)
        scores[t] = dot(x, w)
        own = 1 if y[t] > 0.0 else 0
        seen[own] += 1
        for j in range(dim):
            sums[own, j] += x[j]
        if seen[1 - own] == 0 or weight[t] == 0.0:
            continue
        s = 1.0 / math.sqrt(2.0 * seen[own] / (seen[0] + seen[1]))
        share = 1.0 / seen[1 - own]
        for j in range(dim):
            xh[j] = s * y[t] * (x[j] - share * sums[1 - own, j])
        if pending:
            packed_symmetric.downdate_and_multiply(packed, dim, g, xh, u)
            pending = False
        else:
            packed_symmetric.multiply(packed, dim, xh, u)
        v = dot(xh, u)
        if v < 0.0:  # by rounding alone
            continue
        k = weight[t] if weight[t] * v <= _MOST_INFORMATION else _MOST_INFORMATION / v
        f = k / (1.0 + k * v)
        root = math.sqrt(f)
        failing = 0
        for j in range(width):
            g[j] = root * u[j]
            failing += g[j] * g[j] >= variances[j]
        if failing:
            continue
        pending = True
        energy[0] += k * (s * s)
        step = f * (s - dot(xh, w))
        for j in range(width):
            w[j] = simd.within(w, w[j] + step * u[j])
            variances[j] = simd.within(variances, variances[j] - g[j] * g[j])
        norm = lam * dot(w, w)
        if norm > energy[0]:
            back = math.sqrt(energy[0] / norm)
            for j in range(width):
                w[j] = simd.within(w, np.float64(w[j]) * back)
    if pending:
        packed_symmetric.downdate(packed, dim, g)
    simd.unpad(w, dim, minimiser)
