"""Confidence-weighted bipartite ranking (CBR) with the full covariance.

A Gaussian N(mu, Sigma) over linear rankers, at first N(0, I), moves for each stored example b of the other class to the
nearest Gaussian (in KL) that ranks the pair rightly with probability eta:

    z = x - b,  u = Sigma z,  v = z.u,  m = y mu.z;  nothing to do where m >= phi sqrt(v), phi = Phi^-1(eta)
    mu += alpha y u,  Sigma -= beta u u^T         alpha <= C and beta: see `learners.confidence`

The score is mu.x. An event's weight multiplies C, the cap of alpha. O(capacity * dim^2) time per event: about 0.1 ns
for each entry of Sigma and pair, but O(dim) for a pair that the ranker is sure of. O(dim^2 + capacity * dim) memory.

References
----------
Khalid, Ray, Chitsaz. Confidence-Weighted Bipartite Ranking. ADMA 2016, Algorithm 3, eq. (5), (8)-(10).
Departures: the paper's z^T z is read as the outer product, C as the cap of alpha alone (both by its own derivation from
SCW-I); FIFO buffers of 10 by default where the paper has reservoirs of 50; the downdate is bitwise symmetric and keeps
the diagonal positive, see `_learn`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from learners.algorithm import Linear, Traits
from learners.arrays import Counts, Cube, Matrix, Rows, Vector, Words, dot
from learners.buffers import filled, slot
from learners.confidence import coefficients, normal_quantile
from learners.jit import kernel
from learners.parameters import Parameters, param

__all__ = ["TRAITS", "Params", "State", "init", "learn", "weights"]

TRAITS = Traits(sparse=False, max_dim=4096)


@dataclass(frozen=True)
class Params(Parameters):
    """Settings of cbr."""

    C: float = param(2.0**-8, "cap of alpha: how far one pair may move the ranker", above=0, most=2.0**20)
    eta: float = param(0.7, "probability of a right order that is asked of each pair", above=0.5, most=0.999999)
    capacity: int = param(10, "stored examples per class", least=1, most=1000)
    buffer: Literal["fifo", "reservoir"] = param("fifo", "keep the last examples of a class, or a uniform sample")


class State(NamedTuple):
    """N(mu, Sigma) and the stored examples."""

    mu: Vector  # (dim,)
    sigma: Matrix  # (dim, dim), symmetric to the bit, its diagonal in (0, 1]
    buffer: Cube  # (2, capacity, dim): negatives, positives
    seen: Counts  # (2,) events met per class
    rng: Words  # (1,) splitmix64


def init(params: Params, dim: int, seed: int) -> State:
    """The state before any event."""
    return State(
        mu=np.zeros(dim),
        sigma=np.eye(dim),
        buffer=np.zeros((2, params.capacity, dim)),
        seen=np.zeros(2, dtype=np.int64),
        rng=np.array([seed], dtype=np.uint64),
    )


def learn(params: Params, state: State, rows: Rows, y: Vector, weight: Vector, scores: Vector) -> State:
    """Score each row, then learn from it, in order; `state` changes in place, `scores` (n,) is filled."""
    _learn(state, rows, y, weight, params.C, normal_quantile(params.eta), params.buffer == "fifo", scores)
    return state


def weights(params: Params, state: State) -> Linear:  # noqa: ARG001
    """What scoring needs."""
    return Linear(state.mu, np.zeros(1))


@kernel
def _learn(state, X, y, weight, C, phi, fifo, scores):  # type: ignore[no-untyped-def]
    mu, sigma, buffer, seen, rng = state
    dim = mu.shape[0]
    z = np.empty(dim)
    u = np.empty(dim)
    g = np.empty(dim)
    pending = False  # Sigma -= g g^T is yet to be done: it rides on the next pass over Sigma, which halves the traffic
    for t in range(X.shape[0]):
        x = X[t]
        scores[t] = dot(x, mu)
        own = 1 if y[t] > 0.0 else 0
        seen[own] += 1
        s = slot(seen[own], buffer.shape[1], fifo, rng)
        if s >= 0:
            buffer[own, s, :] = x
        cap = C * weight[t]
        if cap == 0.0:
            continue
        for k in range(filled(seen[1 - own], buffer.shape[1])):
            square, m = _compare(x, buffer[1 - own, k], mu, z)
            m *= y[t]
            # Sigma <= I, so v <= z.z: where even that is met (by more than v can be off by rounding), v is not needed
            if m > 0.0 and m >= phi * math.sqrt(1.000001 * square):
                continue
            if pending:
                _downdate_and_multiply(sigma, g, z, u)
                pending = False
            else:
                _multiply(sigma, z, u)
            v = dot(z, u)
            if v <= 0.0:
                continue
            alpha, beta, _ = coefficients(m, v, cap, phi)
            if alpha == 0.0:
                continue
            root = math.sqrt(beta)
            # g_i^2 < Sigma_ii holds in exact arithmetic. Where it fails by rounding, the pair is skipped: a positive
            # diagonal bounds every entry by 1 (each downdate takes g_i^2 off it), whatever the input.
            for i in range(dim):
                g[i] = root * u[i]
                if g[i] * g[i] >= sigma[i, i]:
                    alpha = 0.0
            if alpha > 0.0:
                pending = True
                for i in range(dim):
                    mu[i] += (alpha * y[t]) * u[i]
    if pending:
        for i in range(dim):
            for j in range(dim):
                sigma[i, j] -= g[i] * g[j]


@kernel
def _compare(x, b, mu, z):  # type: ignore[no-untyped-def]
    """z = x - b in place, and (z.z, mu.z) in a fixed order of four running sums each: all in one pass."""
    whole = x.shape[0] - x.shape[0] % 4
    s0 = s1 = s2 = s3 = m0 = m1 = m2 = m3 = 0.0
    for i in range(0, whole, 4):
        z0, z1, z2, z3 = x[i] - b[i], x[i + 1] - b[i + 1], x[i + 2] - b[i + 2], x[i + 3] - b[i + 3]
        s0 += z0 * z0
        s1 += z1 * z1
        s2 += z2 * z2
        s3 += z3 * z3
        m0 += z0 * mu[i]
        m1 += z1 * mu[i + 1]
        m2 += z2 * mu[i + 2]
        m3 += z3 * mu[i + 3]
        z[i], z[i + 1], z[i + 2], z[i + 3] = z0, z1, z2, z3
    square = (s0 + s1) + (s2 + s3)
    m = (m0 + m1) + (m2 + m3)
    for i in range(whole, x.shape[0]):
        z[i] = x[i] - b[i]
        square += z[i] * z[i]
        m += z[i] * mu[i]
    return square, m


@kernel
def _multiply(sigma, z, u):  # type: ignore[no-untyped-def]
    """u = Sigma z as a sum of Sigma's rows (it is symmetric), first to last: a fixed order that vectorises."""
    dim = z.shape[0]
    u[:] = 0.0
    for i in range(dim):
        zi = z[i]
        for j in range(dim):
            u[j] += zi * sigma[i, j]


@kernel
def _downdate_and_multiply(sigma, g, z, u):  # type: ignore[no-untyped-def]
    """Sigma -= g g^T, then u = Sigma z, in one pass.

    g_i g_j is the same number as g_j g_i, so Sigma stays symmetric to the bit. With (beta u_i) u_j it would not, and
    on badly scaled data it would stop being positive definite.
    """
    dim = z.shape[0]
    u[:] = 0.0
    for i in range(dim):
        zi = z[i]
        gi = g[i]
        for j in range(dim):
            entry = sigma[i, j] - gi * g[j]
            sigma[i, j] = entry
            u[j] += zi * entry
