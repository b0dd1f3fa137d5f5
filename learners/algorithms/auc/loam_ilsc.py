"""Linear online AUC maximization by incremental least squares with class means (LOAM_ILSC).

The pairwise squared loss has the same minimiser as a loss of single examples against the mean c-, c+ of the other
class. Online, with n events so far, n_own of them of the class of y, this one included, and S = I/lam at the start:

    s = 1 / sqrt(2 n_own / n);   xh = s (x - c-) if y > 0 else s (c+ - x)
    u = S xh,  v = xh.u,  f = 1 / (1 + v);   w += f (s - w.xh) u;   S -= f u u^T

So w always minimises lam |w|^2 + sum (s - w.xh)^2 over all xh so far, and S is the inverse Hessian. Only counts and
sums change until both classes have occurred. The score is w.x. The weight k of an event multiplies its loss: f = k / (1
+ k v). O(dim^2) time per event and memory: one pass over half of S, about 0.05 ns for each entry.

Guards, which do not matter for standardised data. A smaller k bounds k v by 2^30: one event that takes nearly all of a
variance would leave only rounding of it. An event that would leave a diagonal entry of S at or below 0 is skipped; a
positive diagonal bounds the other entries by 1/lam. And w is scaled back to lam |w|^2 <= sum k s^2, which holds for
every minimiser.

References
----------
Zhu, Zhai, Ye. A Linear Method for Online AUC Maximization. Journal of Computer Research and Development, 2018,
objective (3), Theorem 1, LOAM_ILSC.
Departures: weights wait for both classes, which the paper's algorithm does not ask for: it has no rule for a class
without a mean. The downdate is bitwise symmetric, see `learners.numerics.packed_symmetric`; class sums, divided when
used; the guards. A residual within the rounding of such a mean (n 2^-54 of x_j for n rows) is taken as 0, as it is with
the paper's running means: so a column that never changes keeps weight 0 and changes no score.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from learners.algorithms._class_moments import rounding
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

_MOST_INFORMATION = 2.0**30  # cap of k v: at least 2^-30 of a variance remains, well above rounding (2^-53)


@dataclass(frozen=True)
class Params(Parameters):
    """Settings of loam-ilsc."""

    lam: float = param(1.0, "weight of the L2 penalty", least=2.0**-40, most=2.0**40)


class State(NamedTuple):
    """The minimiser, its inverse Hessian, and the class sums."""

    w: Vector  # (dim,)
    packed: Matrix  # (p, p) S, see `learners.numerics.packed_symmetric`; its diagonal in (0, 1/lam]
    energy: Vector  # (1,) sum of weight s^2 over the steps: the objective at w = 0
    sums: Matrix  # (2, dim) sum of the rows of a class: negatives, positives
    seen: Counts  # (2,) events per class

    @property
    def S(self) -> Matrix:
        """S in full, (dim, dim): a copy, bitwise symmetric."""
        return packed_symmetric.unpacked(self.packed, len(self.w))


def init(params: Params, dim: int, seed: int) -> State:  # noqa: ARG001
    """Return the state before any event."""
    return State(
        w=np.zeros(dim),
        packed=packed_symmetric.identity(dim, 1.0 / params.lam),
        energy=np.zeros(1),
        sums=np.zeros((2, dim)),
        seen=np.zeros(2, dtype=np.int64),
    )


def learn(params: Params, state: State, rows: Rows, y: Vector, weight: Vector, scores: Vector) -> State:
    """Score each row, then learn from it, in order. Changes `state` in place and fills `scores` (n,).

    If the matrix of a state does not begin at a multiple of 64 bytes, a copy that does replaces it.
    """
    if not packed_symmetric.begins_line(state.packed):
        state = state._replace(packed=packed_symmetric.at_lines(state.packed))
    _learn(state, rows, y, weight, params.lam, scores)
    return state


def weights(params: Params, state: State) -> Linear:  # noqa: ARG001
    """Return the weights that score events."""
    return Linear(state.w, np.zeros(1))


def problems(params: Params, state: State, sparse: bool) -> Issues:  # noqa: ARG001
    """Find values in a restored state that no events lead to."""
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
    )  # the diagonal of S, the pending downdate included
    simd.pad(minimiser, dim, w)
    for i in range(width):
        variances[i] = packed[i, i] if i < dim else 1.0
    pending = False  # S -= g g^T waits for the next pass over S, which halves the memory traffic
    for t in range(X.shape[0]):
        simd.pad(simd.row(X, t), dim, x)
        scores[t] = dot(x, w)
        side = 1 if y[t] > 0.0 else 0
        seen[side] += 1
        for j in range(dim):
            sums[side, j] += x[j]
        if seen[1 - side] == 0 or weight[t] == 0.0:
            continue
        s = 1.0 / math.sqrt(2.0 * seen[side] / (seen[0] + seen[1]))
        share = 1.0 / seen[1 - side]
        noise = rounding(seen[1 - side])
        for j in range(dim):
            residual = x[j] - share * sums[1 - side, j]
            xh[j] = s * y[t] * residual if abs(residual) > noise * abs(x[j]) else 0.0
        if pending:
            packed_symmetric.downdate_and_multiply(packed, dim, g, xh, u)
            pending = False
        else:
            packed_symmetric.multiply(packed, dim, xh, u)
        v = dot(xh, u)
        if v < 0.0:  # only by rounding
            continue
        k = weight[t] if weight[t] * v <= _MOST_INFORMATION else _MOST_INFORMATION / v
        f = k / (1.0 + k * v)
        root = math.sqrt(f)
        violations = 0
        for j in range(width):
            g[j] = root * u[j]
            violations += g[j] * g[j] >= variances[j]
        if violations:
            continue
        pending = True
        energy[0] += k * (s * s)
        step = f * (s - dot(xh, w))
        for j in range(width):
            w[j] = simd.within(w, w[j] + step * u[j])
            variances[j] = simd.within(variances, variances[j] - g[j] * g[j])
        norm = lam * dot(w, w)
        if norm > energy[0]:
            shrinkage = math.sqrt(energy[0] / norm)
            for j in range(width):
                w[j] = simd.within(w, np.float64(w[j]) * shrinkage)
    if pending:
        packed_symmetric.downdate(packed, dim, g)
    simd.unpad(w, dim, minimiser)
