"""Confidence-weighted bipartite ranking (CBR) with the full covariance.

A Gaussian N(mu, Sigma) over linear rankers starts as N(0, I). For each stored example b of the other class it moves to
the nearest Gaussian (in KL) that ranks the pair correctly with probability eta:

    z = x - b,  u = Sigma z,  v = z.u,  m = y mu.z;  no step if m >= phi sqrt(v), phi = Phi^-1(eta)
    mu += alpha y u,  Sigma -= beta u u^T         alpha <= C and beta: see `learners.algorithms._scw`

The score is mu.x. The weight of an event multiplies C, the cap of alpha.

Most pairs need no step, and a bound of v shows it. Sigma only ever shrinks, for any C and eta, so an earlier value of
b.Sigma b bounds the current one. With s = Sigma x, which each move updates by s -= (g.x) g, g = sqrt(beta) u,

    v = x.s - 2 b.s + b.Sigma b <= 2 z.s - x.s + bound;    the computed v gives the next bound: v - 2 z.s + x.s

A pair that needs no step even by the bound is skipped. So an event costs O(capacity * dim), and O(dim^2) for s and for
each pair that moves or that the bound leaves open. One such pass covers half of Sigma, at about 0.05 ns for each entry.
The downdate of a pair and Sigma z of the next pair share the pass. An alternative updates Sigma b of each stored
example as well: then only downdates need passes, of several pairs at once, but each pair that moves corrects 2 *
capacity vectors. Measured, that loses at a capacity of 50, and gains up to a third at 10 for more than about 120
columns. So there is only this form, for all shapes. O(dim^2 + capacity * dim) memory.

As float32, Sigma does not only shrink. Each downdate rounds its entries by up to 2^-24 of sqrt(Sigma_ii Sigma_jj),
which may raise b.Sigma b by up to 2^-24 trace(Sigma) b.b. So each downdate then raises every bound by four times that,
and the bound of a newly stored row is raised in the same way for its rounding. The bounds stay valid, and skipping
stays correct: a loose bound only costs the pass that updates it.

References
----------
Khalid, Ray, Chitsaz. Confidence-Weighted Bipartite Ranking. ADMA 2016, Algorithm 3, eq. (5), (8)-(10).
Departures: the paper's z^T z is read as the outer product, C as the cap of alpha alone (both by its own derivation from
SCW-I); buffers of 10 by default, where the paper has 50; the downdate is bitwise symmetric and keeps the diagonal
positive, see `learners.numerics.packed_symmetric` and `_learn`. The paper has both kinds of buffer, reservoir sampling
(CBR_RS) and FIFO (CBR_FIFO).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from learners.algorithms._buffers import choose_slot, slots_in_use
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

_ROUNDING = 2.0**-50  # raises a bound, times the size and number of its terms
_SINGLE_ROUNDING = 2.0**-22  # the same for a Sigma in float32: four times the error of rounding to nearest


@dataclass(frozen=True)
class Params(Parameters):
    """Settings of cbr."""

    C: float = param(2.0**-8, "how far one pair (a positive, a negative) may move the ranker", above=0, most=2.0**20)
    eta: float = param(0.7, "probability of the correct order that each pair must reach", above=0.5, most=0.999999)
    capacity: int = param(10, "stored examples per class", least=1, most=1000)
    buffer: Literal["fifo", "reservoir"] = param("fifo", "keep the last examples of a class, or a uniform sample")


class State(NamedTuple):
    """N(mu, Sigma) and the stored examples; p is the next multiple of 8 from dim."""

    mu: Vector  # (dim,)
    packed: Matrix  # (p, p) Sigma, see `learners.numerics.packed_symmetric`; its diagonal in (0, 1]
    buffer: Cube  # (2, capacity, p): negatives, positives; 0 beyond dim
    bounds: Matrix  # (2, capacity) at least b.Sigma b of each stored example b
    seen: Counts  # (2,) events per class
    rng: Words  # (1,) splitmix64

    @property
    def sigma(self) -> Matrix:
        """Sigma in full, (dim, dim): a copy, bitwise symmetric."""
        return packed_symmetric.unpacked(self.packed, len(self.mu))


def init(params: Params, dim: int, seed: int) -> State:
    """Return the state before any event."""
    return State(
        mu=np.zeros(dim),
        packed=packed_symmetric.identity(dim, 1.0),
        buffer=packed_symmetric.lines(2, params.capacity, simd.padded(dim)),
        bounds=np.zeros((2, params.capacity)),
        seen=np.zeros(2, dtype=np.int64),
        rng=np.array([seed], dtype=np.uint64),
    )


def learn(params: Params, state: State, rows: Rows, y: Vector, weight: Vector, scores: Vector) -> State:
    """Score each row, then learn from it, in order. Changes `state` in place and fills `scores` (n,).

    If the large arrays of a state do not begin at a multiple of 64 bytes, copies that do replace them.
    """
    if not (packed_symmetric.begins_line(state.packed) and packed_symmetric.begins_line(state.buffer)):
        state = state._replace(
            packed=packed_symmetric.at_lines(state.packed), buffer=packed_symmetric.at_lines(state.buffer)
        )
    _learn(state, rows, y, weight, params.C, normal_quantile(params.eta), params.buffer == "fifo", scores)
    return state


def weights(params: Params, state: State) -> Linear:  # noqa: ARG001
    """Return the weights that score events."""
    return Linear(state.mu, np.zeros(1))


def problems(params: Params, state: State, sparse: bool) -> Issues:  # noqa: ARG001
    """Find values in a restored state that no events lead to."""
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
    variances = simd.aligned_like(packed, width)  # the diagonal of Sigma, the pending downdate included
    single = packed.itemsize == 4
    squares = _squares(buffer, seen, capacity if single else 0)
    simd.pad(mean, dim, mu)
    for i in range(width):
        variances[i] = packed[i, i] if i < dim else 1.0
    rounding = _ROUNDING * (width + capacity)
    pending = False  # Sigma -= g g^T waits for the next pass over Sigma, which halves the memory traffic
    for t in range(X.shape[0]):
        simd.pad(simd.row(X, t), dim, x)
        scores[t] = dot(x, mu)
        side = 1 if y[t] > 0.0 else 0
        seen[side] += 1
        cap = C * weight[t]
        others = slots_in_use(seen[1 - side], capacity) if cap > 0.0 else 0
        xx = dot(x, x)
        xs = xx
        slack = 0.0  # most that b.Sigma b has risen since the event began, for b.b = 1
        each = _SINGLE_ROUNDING * _trace(variances, dim) if single else 0.0  # that one downdate adds
        if others > 0 or single:  # a rounded Sigma may exceed I, and x.Sigma x may exceed x.x
            if pending:
                packed_symmetric.downdate_and_multiply(packed, dim, g, x, s)
                pending = False
            else:
                packed_symmetric.multiply(packed, dim, x, s)
            xs = dot(x, s)
        for k in range(others):
            m, zs, zz = _compare(x, simd.row(buffer, 1 - side, k), mu, s, z)
            m *= y[t]
            noise = (rounding + 4.0 * slack) * (xx + zz)  # z.z, x.x, b.b and twice x.z are each at most twice the sum
            if m > 0.0 and m >= phi * math.sqrt(max(2.0 * zs - xs + bounds[1 - side, k] + noise, 0.0)):
                continue
            if pending:
                packed_symmetric.downdate_and_multiply(packed, dim, g, z, u)
                pending = False
            else:
                packed_symmetric.multiply(packed, dim, z, u)
            v, xu = _products(u, z, x)
            bounds[1 - side, k] = min(bounds[1 - side, k], max(v - 2.0 * zs + xs, 0.0) + noise)
            if v <= 0.0:
                continue
            alpha, beta, _ = coefficients(m, v, cap, phi)
            if alpha == 0.0:
                continue
            root = math.sqrt(beta)
            # g_i^2 < Sigma_ii holds in exact arithmetic. If it fails by rounding, the pair is skipped: a positive
            # diagonal bounds every entry by 1 for any input, because each downdate subtracts g_i^2 from it.
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
        place = choose_slot(seen[side], capacity, fifo, rng)
        if place >= 0:
            b = simd.row(buffer, side, place)
            simd.pad(x, width, b)
            bounds[side, place] = max(xs, 0.0) + (rounding + 4.0 * slack + each) * xx  # rounding: b is not x
            if single:
                squares[side, place] = _square(b, width)
    if pending:
        packed_symmetric.downdate(packed, dim, g)
    simd.unpad(mu, dim, mean)


@kernel
def _trace(variances, dim):  # type: ignore[no-untyped-def]
    """Return the sum of the diagonal, which is at least |Sigma|."""
    trace = 0.0
    for i in range(dim):
        trace += np.float64(variances[i])
    return trace


@kernel
def _square(b, width):  # type: ignore[no-untyped-def]
    """Compute b.b of a stored example, which is a `row`."""
    lanes = simd.spread(0.0)
    for j in range(0, width, 8):
        lanes = lanes + simd.load(b, j) * simd.load(b, j)
    return simd.total(lanes)


@kernel
def _squares(buffer, seen, capacity):  # type: ignore[no-untyped-def]
    """Compute b.b of each stored example, (2, capacity); 0 for a free slot."""
    squares = np.zeros((2, capacity))
    for c in range(2):
        for k in range(slots_in_use(seen[c], capacity)):
            squares[c, k] = _square(simd.row(buffer, c, k), buffer.shape[2])
    return squares


@kernel
def _compare(x, b, mu, s, z):  # type: ignore[no-untyped-def]
    """Fill z = x - b; return (mu.z, s.z, z.z)."""
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
    """Return (u.z, u.x)."""
    v = along = simd.spread(0.0)
    for j in range(0, u.shape[0], 8):
        uj = simd.load(u, j)
        v = v + uj * simd.load(z, j)
        along = along + uj * simd.load(x, j)
    return simd.total(v), simd.total(along)
