"""Confidence-weighted bipartite ranking with a diagonal covariance, for dense and for sparse rows.

As `learners.algorithms.auc.cbr` with Sigma = diag(G), G = 1 at the start. For each stored example b of the other class:

    z = x - b,  m = y mu.z;  no step if m >= phi sqrt(v), phi = Phi^-1(eta)
    covariance   v = sum z^2 G        mu += alpha y G z    G -= beta (G z)^2
    exact        v = sum z^2 G        mu += alpha y G z    1/G += growth z^2
    paper        v = sum z^2 / (G+C)  mu += alpha y z / G  G += beta z^2      G is the inverse covariance here

alpha <= C, beta and growth: see `learners.algorithms._scw`. The score is mu.x. The weight of an event multiplies C as
the cap of alpha. O(capacity * dim) time per event and memory. Sparse rows take O(capacity * non-zeros) time: only the
columns of x or b move, and z is a merge of two sorted rows.

References
----------
Khalid, Ray, Chitsaz. Confidence-Weighted Bipartite Ranking. ADMA 2016, CBR_diag. The mode "paper" follows its text
exactly; "covariance" keeps the diagonal of the downdate of cbr; "exact" is the minimiser over diagonal Gaussians.
Departures: those of `learners.algorithms.auc.cbr`. "covariance" is the default: the printed form is far worse once
(australian: AUC .75 against .87).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from learners.algorithms._buffers import (
    buffer_problems,
    choose_slot,
    prepare_dense,
    prepare_sparse,
    slots_in_use,
    store_row,
    subtract_rows,
)
from learners.algorithms._scw import coefficients
from learners.algorithms.base import Cost, Linear, Traits
from learners.numerics import (
    Counts,
    Cube,
    Issues,
    Rows,
    Sparse,
    Vector,
    Words,
    dot,
    grown,
    kernel,
    normal_quantile,
    simd,
)
from learners.settings import Parameters, param

__all__ = ["TRAITS", "Params", "State", "grow", "init", "learn", "problems", "weights"]

TRAITS = Traits(
    cost=Cost("O(capacity * values) per event", lambda params, size: 60 + params.capacity * (4 + size.each(0.13, 13))),
    halved=("mu", "G", "values"),
)

_COVARIANCE, _EXACT, _PAPER = 0, 1, 2
_MODES = {"covariance": _COVARIANCE, "exact": _EXACT, "paper": _PAPER}


@dataclass(frozen=True)
class Params(Parameters):
    """Settings of cbr-diag."""

    C: float = param(2.0**-8, "how far one pair (a positive, a negative) may move the ranker", above=0, most=2.0**20)
    eta: float = param(0.7, "probability of the correct order that each pair must reach", above=0.5, most=0.999999)
    capacity: int = param(10, "stored examples per class", least=1, most=1000)
    buffer: Literal["fifo", "reservoir"] = param("fifo", "keep the last examples of a class, or a uniform sample")
    mode: Literal["covariance", "exact", "paper"] = param("covariance", "how the diagonal of the covariance changes")


class State(NamedTuple):
    """N(mu, diag G) and the stored examples; see `learners.algorithms._buffers` for `width`."""

    mu: Vector  # (dim,)
    G: Vector  # (dim,) diagonal of the covariance; in mode "paper" of its inverse
    values: Cube  # (2, capacity, width): negatives, positives
    columns: NDArray[np.int64]  # (2, capacity, width) ascending; (2, capacity, 0) for dense rows
    lengths: NDArray[np.int64]  # (2, capacity)
    seen: Counts  # (2,) events per class
    rng: Words  # (1,) splitmix64


def init(params: Params, dim: int, seed: int) -> State:
    """Return the state before any event."""
    return State(
        mu=np.zeros(dim),
        G=np.ones(dim),
        values=np.zeros((2, params.capacity, 0)),
        columns=np.zeros((2, params.capacity, 0), dtype=np.int64),
        lengths=np.zeros((2, params.capacity), dtype=np.int64),
        seen=np.zeros(2, dtype=np.int64),
        rng=np.array([seed], dtype=np.uint64),
    )


def grow(params: Params, state: State, dim: int) -> State:  # noqa: ARG001
    """Return the state of sparse rows with `dim` columns."""
    return state._replace(mu=grown(state.mu, dim), G=grown(state.G, dim, 1.0))


def learn(params: Params, state: State, rows: Rows, y: Vector, weight: Vector, scores: Vector) -> State:
    """Score each row, then learn from it, in order; fill `scores` (n,) and return the state.

    The arrays change in place, but wider buffers replace narrow ones for a long sparse row. Raises ValueError for
    sparse rows after dense ones and for dense rows after sparse ones.
    """
    if not len(y):
        return state
    phi, fifo, mode = normal_quantile(params.eta), params.buffer == "fifo", _MODES[params.mode]
    if isinstance(rows, Sparse):
        state = prepare_sparse(state, int(np.diff(rows.indptr).max()))
        _learn_sparse(state, *rows, y, weight, params.C, phi, fifo, mode, scores)
    else:
        state = prepare_dense(state, len(state.mu))
        _learn_dense(state, rows, y, weight, params.C, phi, fifo, mode, scores)
    return state


def weights(params: Params, state: State) -> Linear:  # noqa: ARG001
    """Return the weights that score events."""
    return Linear(state.mu, np.zeros(1))


def problems(params: Params, state: State, sparse: bool) -> Issues:  # noqa: ARG001
    """Find values in a restored state that no events lead to."""
    yield from buffer_problems(state, len(state.mu), sparse)


@kernel
def _learn_dense(state, X, y, weight, C, phi, fifo, mode, scores):  # type: ignore[no-untyped-def]
    mean, diagonal, values, _, lengths, seen, rng = state
    dim = mean.shape[0]
    capacity = values.shape[1]
    rest, width = dim % 8, simd.padded(dim)
    even = dim - rest
    mu, G, x, z = (
        simd.aligned_like(mean, width),
        simd.aligned_like(diagonal, width),
        simd.aligned(width),
        simd.aligned(width),
    )
    inverses = simd.aligned_like(diagonal, width if mode == _PAPER else 0)
    simd.pad(mean, dim, mu)
    simd.pad(diagonal, dim, G)
    for i in range(dim, width):
        G[i] = 1.0
    for i in range(inverses.shape[0]):
        inverses[i] = 1.0 / (np.float64(G[i]) + C)
    variances = inverses if mode == _PAPER else G  # the weights of z^2 in v
    zero, unit, prior = simd.spread(0.0), simd.spread(1.0), simd.spread(C)
    for t in range(X.shape[0]):
        simd.pad(simd.row(X, t), dim, x)
        scores[t] = dot(x, mu)
        side = 1 if y[t] > 0.0 else 0
        seen[side] += 1
        cap = C * weight[t]
        for k in range(slots_in_use(seen[1 - side], capacity) if cap > 0.0 else 0):
            b = simd.row(values, 1 - side, k)
            lanes_v = lanes_m = zero
            for j in range(0, even, 8):
                zj = simd.load(x, j) - simd.load(b, j)
                simd.store(z, j, zj)
                lanes_v = lanes_v + zj * (zj * simd.load(variances, j))
                lanes_m = lanes_m + zj * simd.load(mu, j)
            for j in range(even, dim, 8):  # the last columns: at most one round
                zj = simd.load(x, j) - simd.load_first(b, j, rest)
                simd.store(z, j, zj)
                lanes_v = lanes_v + zj * (zj * simd.load(variances, j))
                lanes_m = lanes_m + zj * simd.load(mu, j)
            v, m = simd.total(lanes_v), y[t] * simd.total(lanes_m)
            if v <= 0.0:
                continue
            alpha, beta, growth = coefficients(m, v, cap, phi)
            if alpha == 0.0:
                continue
            move, shrink = simd.spread(alpha * y[t]), simd.spread(beta)
            if mode == _COVARIANCE:
                for j in range(0, width, 8):
                    Gj = simd.load(G, j)
                    u = simd.load(z, j) * Gj
                    simd.store(mu, j, simd.load(mu, j) + move * u)
                    simd.store(G, j, simd.larger(Gj - (shrink * u) * u, zero))  # only rounding takes it below 0
            elif mode == _EXACT:
                grow = simd.spread(growth)
                for j in range(0, width, 8):
                    zj, Gj = simd.load(z, j), simd.load(G, j)
                    u = zj * Gj
                    simd.store(mu, j, simd.load(mu, j) + move * u)
                    simd.store(G, j, Gj / (unit + grow * (zj * u)))
            else:
                for j in range(0, width, 8):
                    zj, Gj = simd.load(z, j), simd.load(G, j)
                    simd.store(mu, j, simd.load(mu, j) + move * (zj / Gj))
                    simd.store(G, j, Gj + shrink * (zj * zj))
                    simd.store(inverses, j, unit / (simd.load(G, j) + prior))
        place = choose_slot(seen[side], capacity, fifo, rng)
        if place >= 0:
            simd.unpad(x, dim, simd.row(values, side, place))
            lengths[side, place] = dim
    simd.unpad(mu, dim, mean)
    simd.unpad(G, dim, diagonal)


@kernel
def _learn_sparse(state, data, indices, indptr, y, weight, C, phi, fifo, mode, scores):  # type: ignore[no-untyped-def]
    mu, G, values, columns, lengths, seen, rng = state
    capacity = values.shape[1]
    z = np.empty(2 * values.shape[2])
    at = np.empty(2 * values.shape[2], dtype=np.int64)
    for t in range(y.shape[0]):
        x = data[indptr[t] : indptr[t + 1]]
        ix = indices[indptr[t] : indptr[t + 1]]
        score = 0.0
        for k in range(x.shape[0]):
            score += x[k] * mu[ix[k]]
        scores[t] = score
        side = 1 if y[t] > 0.0 else 0
        seen[side] += 1
        s = choose_slot(seen[side], capacity, fifo, rng)
        if s >= 0:
            store_row(x, ix, values[side, s], columns[side, s], lengths[side, s : s + 1])
        cap = C * weight[t]
        if cap == 0.0:
            continue
        for k in range(slots_in_use(seen[1 - side], capacity)):
            length = lengths[1 - side, k]
            n = subtract_rows(x, ix, values[1 - side, k, :length], columns[1 - side, k, :length], z, at)
            v = m = 0.0
            for i in range(n):
                j = at[i]
                v += z[i] * (z[i] / (np.float64(G[j]) + C) if mode == _PAPER else z[i] * G[j])
                m += mu[j] * z[i]
            m *= y[t]
            if v <= 0.0:
                continue
            alpha, beta, growth = coefficients(m, v, cap, phi)
            if alpha == 0.0:
                continue
            move = alpha * y[t]
            for i in range(n):
                j = at[i]
                Gj = np.float64(G[j])
                u = z[i] * Gj
                if mode == _COVARIANCE:
                    mu[j] = simd.within(mu, mu[j] + move * u)
                    G[j] = simd.within(G, max(Gj - (beta * u) * u, 0.0))
                elif mode == _EXACT:
                    mu[j] = simd.within(mu, mu[j] + move * u)
                    G[j] = simd.within(G, Gj / (1.0 + growth * (z[i] * u)))
                else:
                    mu[j] = simd.within(mu, mu[j] + move * (z[i] / Gj))
                    G[j] = simd.within(G, Gj + beta * (z[i] * z[i]))
