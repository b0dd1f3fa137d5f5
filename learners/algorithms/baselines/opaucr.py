"""One-pass AUC optimisation with low-rank covariances by random projection (OPAUCr).

Each row x comes with a random vector a of tau numbers from N(0, 1/tau). A class keeps Z = sum x a^T (dim by tau) for
the sum of x x^T, as the expectation of a_i.a_j is 1 for i = j, else 0. With n rows of the other class, their mean c,
the mean abar of their a, and s = +-1 the label:

    z = x - c;   g = lam w - s z + z (z.w) + Z (Z^T w) / n - (w.c)(abar.abar) c;   w -= eta g

Nothing but sums moves until the other class has been seen. The score is w.x. An event's weight multiplies eta.
O(tau * dim) time per event, for sparse rows too, and memory: about 0.7 ns for each entry of Z, and 20 ns for each
random number.

A normal number is the sum of twelve uniform ones less 6: the 16-bit quarters of three words of splitmix64, each taken
at its middle, summed as whole numbers. That is exact, so the same on every machine (a C library's log is not); its
variance is 1 to ten digits, and what the projection needs of the distribution is no more than that and light tails.

Guards: eta, times the weight, is at most 2 / (lam + z.z + |Z|^2 / n + (c.c)(abar.abar)), |Z| by Frobenius, a bound of
the curvature; and |w| is kept within 1 / sqrt(lam), which the minimiser never leaves.

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
    seen: Counts  # (2,) events met per class
    rng: Words  # (1,) splitmix64


def init(params: Params, dim: int, seed: int) -> State:
    """The state before any event."""
    return State(
        w=np.zeros(dim),
        sums=np.zeros((2, dim)),
        Z=np.zeros((2, params.tau, dim)),
        noise=np.zeros((2, params.tau)),
        seen=np.zeros(2, dtype=np.int64),
        rng=np.array([seed], dtype=np.uint64),
    )


def grow(params: Params, state: State, dim: int) -> State:  # noqa: ARG001
    """The state for `dim` columns.

    Where dimensions are multiples of 8, it makes no difference to a bit when a state grows: see `arrays.dot`.
    """
    return state._replace(w=grown(state.w, dim), sums=grown(state.sums, dim), Z=grown(state.Z, dim))


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


@kernel
def _learn_dense(state, X, y, weight, eta, lam, scores):  # type: ignore[no-untyped-def]
    w, sums, Z, noise, seen, rng = state
    a = np.empty(Z.shape[1])
    z = np.empty(w.shape[0])
    g = np.empty(w.shape[0])
    for t in range(X.shape[0]):
        x = X[t]
        scores[t] = dot(x, w)
        own = 1 if y[t] > 0.0 else 0
        _project(a, noise[own], rng)
        for j in range(w.shape[0]):
            sums[own, j] += x[j]
        for k in range(a.shape[0]):
            for j in range(w.shape[0]):
                Z[own, k, j] = simd.within(Z, Z[own, k, j] + a[k] * x[j])
        _step(x, y[t], eta * weight[t], lam, w, sums, Z, noise, seen, z, g)


@kernel
def _learn_sparse(state, data, indices, indptr, y, weight, eta, lam, scores):  # type: ignore[no-untyped-def]
    w, sums, Z, noise, seen, rng = state
    a = np.empty(Z.shape[1])
    z = np.empty(w.shape[0])
    g = np.empty(w.shape[0])
    x = np.zeros(w.shape[0])  # the row with its zeros: the dense step is then the sparse one, to the bit
    for t in range(y.shape[0]):
        own = 1 if y[t] > 0.0 else 0
        _project(a, noise[own], rng)
        score = 0.0
        for i in range(indptr[t], indptr[t + 1]):
            j = indices[i]
            score += data[i] * w[j]
            x[j] = data[i]
            sums[own, j] += data[i]
            for k in range(a.shape[0]):
                Z[own, k, j] = simd.within(Z, Z[own, k, j] + a[k] * data[i])
        scores[t] = score
        _step(x, y[t], eta * weight[t], lam, w, sums, Z, noise, seen, z, g)
        for i in range(indptr[t], indptr[t + 1]):
            x[indices[i]] = 0.0


@kernel
def _normal(rng):  # type: ignore[no-untyped-def]
    """A draw from about N(0, 1), within +-6: twelve uniform numbers (q + 1/2) / 2^16, less 6."""
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
    """Draw a row's random vector `a` (tau,) and count it in its class's `noise`."""
    scale = 1.0 / math.sqrt(a.shape[0])
    for k in range(a.shape[0]):
        a[k] = scale * _normal(rng)
        noise[k] += a[k]


@kernel
def _step(x, y, rate, lam, w, sums, Z, noise, seen, z, g):  # type: ignore[no-untyped-def]
    """Count the event, whose row is in the sums already, and move w. `z` and `g` (dim,) are scratch."""
    own = 1 if y > 0.0 else 0
    seen[own] += 1
    if seen[1 - own] == 0 or rate == 0.0:
        return
    other = sums[1 - own]
    share = 1.0 / seen[1 - own]
    drift = share * share * dot(noise[1 - own], noise[1 - own])  # abar.abar
    for j in range(x.shape[0]):
        z[j] = x[j] - share * other[j]
    pull = dot(z, w) - y
    centre = drift * share * share * dot(other, w)
    for j in range(x.shape[0]):
        g[j] = lam * np.float64(w[j]) + pull * z[j] - centre * other[j]
    square = 0.0
    for k in range(noise.shape[1]):
        row = Z[1 - own, k]
        square += dot(row, row)
        along = share * dot(row, w)
        for j in range(x.shape[0]):
            g[j] += along * row[j]
    bound = lam + dot(z, z) + share * square + drift * share * share * dot(other, other)
    descend_in_ball(w, g, rate, bound, lam)
