"""Linear online AUC maximization by incremental least squares with class means (LOAM_ILSC).

The pairwise squared loss has the same minimiser as a loss of single examples against the other class's mean c-, c+.
Online, with n events so far, n_own of them of y's class, this one counted, and S = I/lam at the start:

    s = 1 / sqrt(2 n_own / n);   xh = s (x - c-) if y > 0 else s (c+ - x)
    u = S xh,  v = xh.u,  f = 1 / (1 + v);   w += f (s - w.xh) u;   S -= f u u^T

so that w is always the minimiser of lam |w|^2 + sum (s - w.xh)^2 over the xh met, and S its inverse Hessian. Nothing
but counts and sums moves until both classes have been seen. The score is w.x. An event's weight k multiplies its loss:
f = k / (1 + k v). O(dim^2) time per event and memory: two passes over S, about 0.2 ns for each of its entries.

Guards, none of which standardised data meets: k v is at most 2^30, by a smaller k (one event that takes nearly all of a
variance leaves only rounding of it); an event is skipped that would leave a diagonal entry of S not above 0 (the others
are then bounded by 1/lam); and w is scaled back to lam |w|^2 <= sum k s^2, which holds for every minimiser.

References
----------
Zhu, Zhai, Ye. A Linear Method for Online AUC Maximization. Journal of Computer Research and Development, 2018,
objective (3), Theorem 1, LOAM_ILSC.
Departures: the downdate is bitwise symmetric, see `_learn`; class sums are kept and divided when used; the guards.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from learners.algorithm import Linear, Traits
from learners.arrays import Counts, Matrix, Rows, Vector, dot
from learners.jit import kernel
from learners.parameters import Parameters, param

__all__ = ["TRAITS", "Params", "State", "init", "learn", "weights"]

TRAITS = Traits(sparse=False, max_dim=4096)

_MOST_INFORMATION = 2.0**30  # cap of k v: at least 2^-30 of a variance is left, which rounding (2^-53) leaves meaning


@dataclass(frozen=True)
class Params(Parameters):
    """Settings of loam-ilsc."""

    lam: float = param(1.0, "weight of the L2 penalty", least=2.0**-40, most=2.0**40)


class State(NamedTuple):
    """The minimiser, the inverse of its Hessian, and what the class means are made of."""

    w: Vector  # (dim,)
    S: Matrix  # (dim, dim), symmetric to the bit, its diagonal in (0, 1/lam]
    energy: Vector  # (1,) sum of weight s^2 over the steps made: the objective at w = 0
    sums: Matrix  # (2, dim) sum of the rows of a class: negatives, positives
    seen: Counts  # (2,) events met per class


def init(params: Params, dim: int, seed: int) -> State:  # noqa: ARG001
    """The state before any event."""
    return State(
        w=np.zeros(dim),
        S=np.eye(dim) / params.lam,
        energy=np.zeros(1),
        sums=np.zeros((2, dim)),
        seen=np.zeros(2, dtype=np.int64),
    )


def learn(params: Params, state: State, rows: Rows, y: Vector, weight: Vector, scores: Vector) -> State:
    """Score each row, then learn from it, in order; `state` changes in place, `scores` (n,) is filled."""
    _learn(state, rows, y, weight, params.lam, scores)
    return state


def weights(params: Params, state: State) -> Linear:  # noqa: ARG001
    """What scoring needs."""
    return Linear(state.w, np.zeros(1))


@kernel
def _learn(state, X, y, weight, lam, scores):  # type: ignore[no-untyped-def]
    w, S, energy, sums, seen = state
    dim = w.shape[0]
    xh = np.empty(dim)
    u = np.empty(dim)
    g = np.empty(dim)
    for t in range(X.shape[0]):
        x = X[t]
        scores[t] = dot(x, w)
        own = 1 if y[t] > 0.0 else 0
        seen[own] += 1
        for j in range(dim):
            sums[own, j] += x[j]
        if seen[1 - own] == 0 or weight[t] == 0.0:
            continue
        s = 1.0 / math.sqrt(2.0 * seen[own] / (seen[0] + seen[1]))
        other = sums[1 - own]
        share = 1.0 / seen[1 - own]
        for j in range(dim):
            xh[j] = s * y[t] * (x[j] - share * other[j])
        _multiply(S, xh, u)
        v = dot(xh, u)
        if v < 0.0:  # by rounding alone
            continue
        k = weight[t] if weight[t] * v <= _MOST_INFORMATION else _MOST_INFORMATION / v
        f = k / (1.0 + k * v)
        root = math.sqrt(f)
        sound = True
        for j in range(dim):
            g[j] = root * u[j]
            sound = sound and g[j] * g[j] < S[j, j]
        if not sound:
            continue
        energy[0] += k * (s * s)
        step = f * (s - dot(xh, w))
        for j in range(dim):
            w[j] += step * u[j]
        # g_i g_j is the same number as g_j g_i, so S stays symmetric to the bit. With (f u_i) u_j it would not, and on
        # badly scaled data it would stop being positive definite.
        for i in range(dim):
            gi = g[i]
            for j in range(dim):
                S[i, j] -= gi * g[j]
        norm = lam * dot(w, w)
        if norm > energy[0]:
            back = math.sqrt(energy[0] / norm)
            for j in range(dim):
                w[j] *= back


@kernel
def _multiply(S, z, u):  # type: ignore[no-untyped-def]
    """u = S z as a sum of S's rows (it is symmetric), first to last: a fixed order that vectorises."""
    dim = z.shape[0]
    u[:] = 0.0
    for i in range(dim):
        zi = z[i]
        for j in range(dim):
            u[j] += zi * S[i, j]
