"""Confidence-weighted bipartite ranking (CBR) with the full covariance.

A Gaussian N(mu, Sigma) over linear rankers, at first N(0, I), moves for each stored example b of the other class to the
nearest Gaussian (in KL) that ranks the pair rightly with probability eta:

    z = x - b,  u = Sigma z,  v = z.u,  m = y mu.z;  nothing to do where m >= phi sqrt(v), phi = Phi^-1(eta)
    mu += alpha y u,  Sigma -= beta u u^T         alpha <= C and beta: see `learners.algorithms._scw`

The score is mu.x. An event's weight multiplies C, the cap of alpha.

Most pairs are right already, and v is not needed to know it: Sigma only ever shrinks, whatever C and eta are or become,
so b.Sigma b of some time ago is a bound of what it is now. With s = Sigma x, which each move brings up to date by
s -= (g.x) g, g = sqrt(beta) u,

    v = x.s - 2 b.s + b.Sigma b <= 2 z.s - x.s + bound,    and what v then is, is the next bound: v - 2 z.s + x.s

and a pair that is right even by the bound is skipped. So an event costs O(dim^2) for s and for each pair that moves, or
that the bound leaves open: one pass over half of Sigma, about 0.05 ns for each of its entries, and O(capacity * dim).
The downdate of a pair and Sigma z of the next share the pass. Were Sigma b of each stored example kept up to date, too,
only downdates would need passes, of several pairs at once; but each pair that moves would correct 2 * capacity vectors.
Measured, that loses at a capacity of 50, and gains up to a third at 10 from some 120 columns on: so this is the only
form, for all shapes. O(dim^2 + capacity * dim) memory.

Held as float32, Sigma does not only shrink: each downdate rounds its entries, by up to 2^-24 of sqrt(Sigma_ii Sigma_jj)
each, which may raise b.Sigma b by up to 2^-24 trace(Sigma) b.b. So there each downdate raises every bound by four times
that, and a row that is stored starts from a bound raised likewise for its own rounding. Bounds thus stay bounds, and
the skip is kept: a bound that has become loose only costs the pass that brings it up to date.

References
----------
Khalid, Ray, Chitsaz. Confidence-Weighted Bipartite Ranking. ADMA 2016, Algorithm 3, eq. (5), (8)-(10).
Departures: the paper's z^T z is read as the outer product, C as the cap of alpha alone (both by its own derivation from
SCW-I); FIFO buffers of 10 by default where the paper has reservoirs of 50; the downdate is bitwise symmetric and keeps
the diagonal positive, see `learners.numerics.packed_symmetric` and `_learn`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from learners.algorithms._buffers import filled, slot
from learners.algorithms._scw import coefficients
from learners.algorithms.base import Cost, Linear, Traits
from learners.numerics import (
    Counts,
    Cube,
    Issues,
    Matrix,
    Rows,
    Vector,
    Words,
    dot,
    kernel,
    normal_quantile,
    outside,
    packed_symmetric,
    simd,
)
from learners.settings import Parameters, param

__all__ = ["TRAITS", "Params", "State", "init", "learn", "problems", "weights"]

TRAITS = Traits(
    sparse=False,
    max_dim=4096,
    cost=Cost(
        "O(dim^2) per event and for each pair that moves, and O(capacity * dim) per event",
        lambda params, size: 100 + params.capacity * (5 + 0.1 * size.dim) + 0.15 * size.dim**2,
    ),
    halved=("mu", "packed", "buffer"),
)

_ROUNDING = 2.0**-50  # by which a bound is raised, times its terms' size and number
_SINGLE_ROUNDING = 2.0**-22  # likewise where Sigma is float32: four times what rounding to nearest may be off


@dataclass(frozen=True)
class Params(Parameters):
    """Settings of cbr."""

    C: float = param(2.0**-8, "how far one pair (a positive, a negative) may move the ranker", above=0, most=2.0**20)
    eta: float = param(0.7, "probability of a right order that is asked of each pair", above=0.5, most=0.999999)
    capacity: int = param(10, "stored examples per class", least=1, most=1000)
    buffer: Literal["fifo", "reservoir"] = param("fifo", "keep the last examples of a class, or a uniform sample")


class State(NamedTuple):
    """N(mu, Sigma) and the stored examples; p is the next multiple of 8 from dim."""

    mu: Vector  # (dim,)
    packed: Matrix  # (p, p) Sigma, see `learners.numerics.packed_symmetric`; its diagonal in (0, 1]
    buffer: Cube  # (2, capacity, p): negatives, positives; 0 beyond dim
    bounds: Matrix  # (2, capacity) at least b.Sigma b of each stored example b
    seen: Counts  # (2,) events met per class
    rng: Words  # (1,) splitmix64

    @property
    def sigma(self) -> Matrix:
        """Sigma in full, (dim, dim): a copy, bitwise symmetric."""
        return packed_symmetric.unpacked(self.packed, len(self.mu))


def init(params: Params, dim: int, seed: int) -> State:
    """The state before any event."""
    return State(
        mu=np.zeros(dim),
        packed=packed_symmetric.identity(dim, 1.0),
        buffer=packed_symmetric.lines(2, params.capacity, simd.padded(dim)),
        bounds=np.zeros((2, params.capacity)),
        seen=np.zeros(2, dtype=np.int64),
        rng=np.array([seed], dtype=np.uint64),
    )


def learn(params: Params, state: State, rows: Rows, y: Vector, weight: Vector, scores: Vector) -> State:
    """Score each row, then learn from it, in order; `state` changes in place, `scores` (n,) is filled.

    A state whose large arrays do not begin at a multiple of 64 bytes gets others that do.
    """
    if not (packed_symmetric.begins_line(state.packed) and packed_symmetric.begins_line(state.buffer)):
        state = state._replace(
            packed=packed_symmetric.at_lines(state.packed), buffer=packed_symmetric.at_lines(state.buffer)
        )
    _learn(state, rows, y, weight, params.C, normal_quantile(params.eta), params.buffer == "fifo", scores)
    return state


def weights(params: Params, state: State) -> Linear:  # noqa: ARG001
    """What scoring needs."""
    return Linear(state.mu, np.zeros(1))


def problems(params: Params, state: State, sparse: bool) -> Issues:  # noqa: ARG001
    """What no events can have led to in a state from elsewhere."""
    dim = len(state.mu)
    yield from packed_symmetric.problems("packed", state.packed, dim)
    if state.buffer[:, :, dim:].any():
        yield "buffer", f"has numbers other than 0 beyond column {dim}"
    yield from outside("bounds", state.bounds, 0.0, np.inf)


@kernel
def _learn(state, X, y, weight, C, phi, fifo, scores):  # type: ignore[no-untyped-def]
    mean, packed, buffer, bounds, seen, rng = state
    dim = mean.shape[0]
    width = packed.shape[0]
    capacity = buffer.shape[1]
    x, s, z, u, g = (
        simd.aligned(width),
        simd.aligned(width),
        simd.aligned(width),
        simd.aligned(width),
        simd.aligned(width),
    )
    mu = simd.aligned_like(mean, width)
    variances = simd.aligned_like(packed, width)  # Sigma's diagonal, with what is pending taken off already
    single = packed.itemsize == 4
    squares = _squares(buffer, seen, capacity if single else 0)
    simd.pad(mean, dim, mu)
    for i in range(width):
        variances[i] = packed[i, i] if i < dim else 1.0
    rounding = _ROUNDING * (width + capacity)
    pending = False  # Sigma -= g g^T is yet to be done: it rides on the next pass over Sigma, which halves the traffic
    for t in range(X.shape[0]):
        simd.pad(simd.row(X, t), dim, x)
        scores[t] = dot(x, mu)
        own = 1 if y[t] > 0.0 else 0
        seen[own] += 1
        cap = C * weight[t]
        others = filled(seen[1 - own], capacity) if cap > 0.0 else 0
        xx = dot(x, x)
        xs = xx
        slack = 0.0  # by how much at most b.Sigma b has risen since the event began, for b.b = 1
        each = _SINGLE_ROUNDING * _trace(variances, dim) if single else 0.0  # by which one downdate raises it
        if others > 0 or single:  # rounded, Sigma need not be at most I, and x.Sigma x at most x.x
            if pending:
                packed_symmetric.downdate_and_multiply(packed, dim, g, x, s)
                pending = False
            else:
                packed_symmetric.multiply(packed, dim, x, s)
            xs = dot(x, s)
        for k in range(others):
            m, zs, zz = _compare(x, simd.row(buffer, 1 - own, k), mu, s, z)
            m *= y[t]
            noise = (rounding + 4.0 * slack) * (xx + zz)  # z.z, x.x, b.b and twice x.z are each at most twice the sum
            if m > 0.0 and m >= phi * math.sqrt(max(2.0 * zs - xs + bounds[1 - own, k] + noise, 0.0)):
                continue
            if pending:
                packed_symmetric.downdate_and_multiply(packed, dim, g, z, u)
                pending = False
            else:
                packed_symmetric.multiply(packed, dim, z, u)
            v, xu = _products(u, z, x)
            bounds[1 - own, k] = min(bounds[1 - own, k], max(v - 2.0 * zs + xs, 0.0) + noise)
            if v <= 0.0:
                continue
            alpha, beta, _ = coefficients(m, v, cap, phi)
            if alpha == 0.0:
                continue
            root = math.sqrt(beta)
            # g_i^2 < Sigma_ii holds in exact arithmetic. Where it fails by rounding, the pair is skipped: a positive
            # diagonal bounds every entry by 1 (each downdate takes g_i^2 off it), whatever the input.
            failing = 0
            for i in range(width):
                g[i] = root * u[i]
                failing += g[i] * g[i] >= variances[i]
            if failing:
                continue
            pending = True
            slack += each
            xg = root * xu
            xs -= xg * xg
            move, along = simd.spread(alpha * y[t]), simd.spread(xg)
            for j in range(0, width, 8):
                gj = simd.load(g, j)
                simd.store(mu, j, simd.load(mu, j) + move * simd.load(u, j))
                simd.store(s, j, simd.load(s, j) - along * gj)
                simd.store(variances, j, simd.load(variances, j) - gj * gj)
        if slack > 0.0:
            for c in range(2):
                for k in range(capacity):
                    bounds[c, k] += slack * squares[c, k]
        kept = slot(seen[own], capacity, fifo, rng)
        if kept >= 0:
            b = simd.row(buffer, own, kept)
            simd.pad(x, width, b)
            bounds[own, kept] = max(xs, 0.0) + (rounding + 4.0 * slack + each) * xx  # b is not x to the last bit
            if single:
                squares[own, kept] = _square(b, width)
    if pending:
        packed_symmetric.downdate(packed, dim, g)
    simd.unpad(mu, dim, mean)


@kernel
def _trace(variances, dim):  # type: ignore[no-untyped-def]
    """The sum of the diagonal: at least |Sigma|."""
    trace = 0.0
    for i in range(dim):
        trace += np.float64(variances[i])
    return trace


@kernel
def _square(b, width):  # type: ignore[no-untyped-def]
    """b.b of a stored example, which is a `row`."""
    lanes = simd.spread(0.0)
    for j in range(0, width, 8):
        lanes = lanes + simd.load(b, j) * simd.load(b, j)
    return simd.total(lanes)


@kernel
def _squares(buffer, seen, capacity):  # type: ignore[no-untyped-def]
    """b.b of each stored example, (2, capacity); 0 where a slot is free."""
    squares = np.zeros((2, capacity))
    for c in range(2):
        for k in range(filled(seen[c], capacity)):
            squares[c, k] = _square(simd.row(buffer, c, k), buffer.shape[2])
    return squares


@kernel
def _compare(x, b, mu, s, z):  # type: ignore[no-untyped-def]
    """z = x - b in place, and (mu.z, s.z, z.z)."""
    m = v = square = simd.spread(0.0)
    for j in range(0, x.shape[0], 8):
        zj = simd.load(x, j) - simd.load(b, j)
        simd.store(z, j, zj)
        m = m + zj * simd.load(mu, j)
        v = v + zj * simd.load(s, j)
        square = square + zj * zj
    return simd.total(m), simd.total(v), simd.total(square)


@kernel
def _products(u, z, x):  # type: ignore[no-untyped-def]
    """(u.z, u.x)."""
    v = along = simd.spread(0.0)
    for j in range(0, u.shape[0], 8):
        uj = simd.load(u, j)
        v = v + uj * simd.load(z, j)
        along = along + uj * simd.load(x, j)
    return simd.total(v), simd.total(along)
