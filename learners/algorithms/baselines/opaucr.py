"""One-pass AUC optimisation with low-rank covariances by random projection (OPAUCr).

Each row x gets a random vector a of tau numbers from N(0, 1/tau). A class has Z = sum x a^T (dim by tau) instead of the
sum of x x^T, because the expectation of a_i.a_j is 1 for i = j, else 0. With n rows of the other class, their mean c,
the mean abar of their a, and s = +-1 the label:

    z = x - c;   g = lam w - s z + z (z.w) + Z (Z^T w) / n - (w.c)(abar.abar) c;   w -= eta g

Only sums change until the other class has occurred. The score is w.x. The weight of an event multiplies eta.
O(tau * dim) time per event, for sparse rows too, and memory: about 0.7 ns for each entry of Z, and 20 ns for each
random number.

A normal number is the sum of twelve uniform numbers less 6. These are the 16-bit quarters of three words of splitmix64,
each plus one half, summed as integers. The sum is exact, so it is the same on every machine, unlike the log of a C
library. Its variance is 1 to ten digits and its tails are light; the projection needs no more.

Guards: eta times the weight is at most 2 / (lam + z.z + |Z|^2 / n + (c.c)(abar.abar)), a bound of the curvature with
the Frobenius norm of Z. And |w| is at most 1 / sqrt(lam), which holds for the minimiser.

References
----------
Gao, Jin, Zhu, Zhou. One-Pass AUC Optimization. ICML 2013, OPAUCr.
Departures: the sum of uniforms, the guards.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from learners.algorithms._class_moments import descend_in_ball
from learners.algorithms.base import Cost, Linear, Traits
from learners.numerics import Counts, Cube, Matrix, Rows, Sparse, Vector, Words, dot, grown, kernel, next_random, simd
from learners.settings import Parameters, param

__all__ = ["TRAITS", "Params", "State", "grow", "init", "learn", "weights"]

TRAITS = Traits(
    max_dim=2**16,  # with tau = 50 two matrices of 25 MiB
    cost=Cost(
        "O(tau * dim) per event", lambda params, size: 60 + params.tau * (10 + 0.27 * size.dim + size.each(0, 0.8))
    ),
    halved=("w", "Z"),
)


@dataclass(frozen=True)
class Params(Parameters):
    """Settings of opaucr."""

    eta: float = param(2.0**-10, "step size", above=0, most=2.0**10)
    lam: float = param(2.0**-10, "weight of the L2 penalty", least=2.0**-20, most=2.0**10)
    tau: int = param(50, "rank of the covariances", least=1, most=256)


class State(NamedTuple):
    """Weights, and the moments of negatives and positives."""

    w: Vector  # (dim,)
    sums: Matrix  # (2, dim) sum of the rows of a class
    Z: Cube  # (2, tau, dim) sum of a x^T
    noise: Matrix  # (2, tau) sum of the random vectors a
    seen: Counts  # (2,) events per class
    rng: Words  # (1,) splitmix64


def init(params: Params, dim: int, seed: int) -> State:
    """Return the state before any event."""
    return State(
        w=np.zeros(dim),
        sums=np.zeros((2, dim)),
        Z=np.zeros((2, params.tau, dim)),
        noise=np.zeros((2, params.tau)),
        seen=np.zeros(2, dtype=np.int64),
        rng=np.array([seed], dtype=np.uint64),
    )


def grow(params: Params, state: State, dim: int) -> State:  # noqa: ARG001
    """Return the state with `dim` columns.

    If dimensions are multiples of 8, the time of growth changes no bit of the results; see `arrays.dot`.
    """
    return state._replace(w=grown(state.w, dim), sums=grown(state.sums, dim), Z=grown(state.Z, dim))


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


@kernel
def _learn_dense(state, X, y, weight, eta, lam, scores):  # type: ignore[no-untyped-def]
    w, sums, Z, noise, seen, rng = state
    a = np.empty(Z.shape[1])
    z = np.empty(w.shape[0])
    g = np.empty(w.shape[0])
    for t in range(X.shape[0]):
        x = X[t]
        scores[t] = dot(x, w)
        side = 1 if y[t] > 0.0 else 0
        _project(a, noise[side], rng)
        for j in range(w.shape[0]):
            sums[side, j] += x[j]
        for k in range(a.shape[0]):
            for j in range(w.shape[0]):
                Z[side, k, j] = simd.within(Z, Z[side, k, j] + a[k] * x[j])
        _step(x, y[t], eta * weight[t], lam, w, sums, Z, noise, seen, z, g)


@kernel
def _learn_sparse(state, data, indices, indptr, y, weight, eta, lam, scores):  # type: ignore[no-untyped-def]
    w, sums, Z, noise, seen, rng = state
    a = np.empty(Z.shape[1])
    z = np.empty(w.shape[0])
    g = np.empty(w.shape[0])
    x = np.zeros(w.shape[0])  # the row with its zeros: the step gives the same bits as for a dense row
    for t in range(y.shape[0]):
        side = 1 if y[t] > 0.0 else 0
        _project(a, noise[side], rng)
        score = 0.0
        for i in range(indptr[t], indptr[t + 1]):
            j = indices[i]
            score += data[i] * w[j]
            x[j] = data[i]
            sums[side, j] += data[i]
            for k in range(a.shape[0]):
                Z[side, k, j] = simd.within(Z, Z[side, k, j] + a[k] * data[i])
        scores[t] = score
        _step(x, y[t], eta * weight[t], lam, w, sums, Z, noise, seen, z, g)
        for i in range(indptr[t], indptr[t + 1]):
            x[indices[i]] = 0.0


@kernel
def _normal(rng):  # type: ignore[no-untyped-def]
    """Draw from about N(0, 1), within +-6: twelve uniform numbers (q + 1/2) / 2^16, less 6."""
    quarter = np.uint64(0xFFFF)
    total = np.uint64(0)
    for _ in range(3):
        word = next_random(rng)
        total += (
            (word & quarter)
            + ((word >> np.uint64(16)) & quarter)
            + ((word >> np.uint64(32)) & quarter)
            + (word >> np.uint64(48))
        )
    return (np.float64(total) + 6.0) / 65536.0 - 6.0


@kernel
def _project(a, noise, rng):  # type: ignore[no-untyped-def]
    """Draw the random vector `a` (tau,) of a row and add it to the `noise` of its class."""
    scale = 1.0 / math.sqrt(a.shape[0])
    for k in range(a.shape[0]):
        a[k] = scale * _normal(rng)
        noise[k] += a[k]


@kernel
def _step(x, y, rate, lam, w, sums, Z, noise, seen, z, g):  # type: ignore[no-untyped-def]
    """Count the event and move w; the sums already include the row. `z` and `g` (dim,) are scratch."""
    side = 1 if y > 0.0 else 0
    seen[side] += 1
    if seen[1 - side] == 0 or rate == 0.0:
        return
    other = sums[1 - side]
    share = 1.0 / seen[1 - side]
    drift = share * share * dot(noise[1 - side], noise[1 - side])  # abar.abar
    for j in range(x.shape[0]):
        z[j] = x[j] - share * other[j]
    pull = dot(z, w) - y
    centre = drift * share * share * dot(other, w)
    for j in range(x.shape[0]):
        g[j] = lam * np.float64(w[j]) + pull * z[j] - centre * other[j]
    square = 0.0
    for k in range(noise.shape[1]):
        row = Z[1 - side, k]
        square += dot(row, row)
        along = share * dot(row, w)
        for j in range(x.shape[0]):
            g[j] += along * row[j]
    bound = lam + dot(z, z) + share * square + drift * share * share * dot(other, other)
    descend_in_ball(w, g, rate, bound, lam)
