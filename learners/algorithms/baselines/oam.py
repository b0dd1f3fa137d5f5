"""Online AUC maximization with class buffers and sequential passive-aggressive steps (OAM_seq).

For each stored example b of the other class, in slot order:

    z = x - b,  m = y w.z;  nothing to do where m >= 1;   w += min(C_t, (1 - m) / |z|^2) y z
    C_t = C max(1, n_other / capacity) where `weighted`: the buffer stands for all n_other examples met; else C_t = C

The score is w.x. An event's weight multiplies C_t. O(capacity * dim) time per event and memory; with sparse rows
O(capacity * non-zeros): only the columns of x or b move, and z is a merge of two sorted rows.

No guard is needed for large rows: a step goes no further than the nearest w that ranks the pair with margin 1, so
|w|^2 grows by less than 2 C_t per pair.

References
----------
Zhao, Hoi, Jin, Yang. Online AUC Maximization. ICML 2011, OAM_seq with reservoir sampling.
Departures, both as in Khalid, Ray, Chitsaz, ADMA 2016: buffers of 50 where the paper has 100, and C_t = C by default
where the paper has the weighted one (which is .01 to .04 of AUC worse on simulated streams). "fifo" is added.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from learners.algorithms import _sparse_buffers
from learners.algorithms._buffers import filled, slot
from learners.algorithms._sparse_buffers import for_dense, for_sparse, store, subtract
from learners.algorithms.base import Cost, Linear, Traits
from learners.numerics import Counts, Cube, Issues, Rows, Sparse, Vector, Words, dot, grown, kernel, simd
from learners.settings import Parameters, param

__all__ = ["TRAITS", "Params", "State", "grow", "init", "learn", "problems", "weights"]

TRAITS = Traits(
    cost=Cost("O(capacity * values) per event", lambda params, size: 40 + params.capacity * (18 + size.each(0.1, 11))),
    halved=("w", "values"),
)


@dataclass(frozen=True)
class Params(Parameters):
    """Settings of oam."""

    C: float = param(2.0**-10, "cap of a step: how far one pair may move the ranker", above=0, most=2.0**20)
    capacity: int = param(50, "stored examples per class", least=1, most=1000)
    buffer: Literal["fifo", "reservoir"] = param("reservoir", "keep the last examples of a class, or a uniform sample")
    weighted: bool = param(False, "let the stored examples stand for all that were met: C grows with their number")


class State(NamedTuple):
    """Weights and the stored examples: `values` by column, or with sparse rows by place in `columns`.

    For dense rows `width` is dim and `columns` stays empty; for sparse rows see `learners.algorithms._sparse_buffers`.
    It is 0 until the first event tells which kind it is.
    """

    w: Vector  # (dim,)
    values: Cube  # (2, capacity, width): negatives, positives
    columns: NDArray[np.int64]  # (2, capacity, width) ascending; (2, capacity, 0) for dense rows
    lengths: NDArray[np.int64]  # (2, capacity)
    seen: Counts  # (2,) events met per class
    rng: Words  # (1,) splitmix64


def init(params: Params, dim: int, seed: int) -> State:
    """The state before any event."""
    return State(
        w=np.zeros(dim),
        values=np.zeros((2, params.capacity, 0)),
        columns=np.zeros((2, params.capacity, 0), dtype=np.int64),
        lengths=np.zeros((2, params.capacity), dtype=np.int64),
        seen=np.zeros(2, dtype=np.int64),
        rng=np.array([seed], dtype=np.uint64),
    )


def grow(params: Params, state: State, dim: int) -> State:  # noqa: ARG001
    """The state of sparse rows for `dim` columns."""
    return state._replace(w=grown(state.w, dim))


def learn(params: Params, state: State, rows: Rows, y: Vector, weight: Vector, scores: Vector) -> State:
    """Score each row, then learn from it, in order; fill `scores` (n,) and return the state.

    The arrays change in place, but the buffers are replaced by wider ones where a sparse row needs that. Raises
    ValueError for sparse rows after dense ones and for dense after sparse.
    """
    if not len(y):
        return state
    fifo = params.buffer == "fifo"
    if isinstance(rows, Sparse):
        state = for_sparse(state, int(np.diff(rows.indptr).max()))
        _learn_sparse(state, *rows, y, weight, params.C, fifo, params.weighted, scores)
    else:
        state = for_dense(state, len(state.w))
        _learn_dense(state, rows, y, weight, params.C, fifo, params.weighted, scores)
    return state


def weights(params: Params, state: State) -> Linear:  # noqa: ARG001
    """What scoring needs."""
    return Linear(state.w, np.zeros(1))


def problems(params: Params, state: State, sparse: bool) -> Issues:  # noqa: ARG001
    """What no events can have led to in a state from elsewhere."""
    yield from _sparse_buffers.problems(state, len(state.w), sparse)


@kernel
def _learn_dense(state, X, y, weight, C, fifo, weighted, scores):  # type: ignore[no-untyped-def]
    w, values, _, lengths, seen, rng = state
    dim = w.shape[0]
    capacity = values.shape[1]
    z = np.empty(dim)
    for t in range(X.shape[0]):
        x = X[t]
        scores[t] = dot(x, w)
        own = 1 if y[t] > 0.0 else 0
        seen[own] += 1
        s = slot(seen[own], capacity, fifo, rng)
        if s >= 0:
            simd.unpad(x, dim, simd.row(values, own, s))
            lengths[own, s] = dim
        cap = weight[t] * _cap(C, weighted, seen[1 - own], capacity)
        if cap == 0.0:
            continue
        for k in range(filled(seen[1 - own], capacity)):
            b = values[1 - own, k]
            for j in range(dim):
                z[j] = x[j] - b[j]
            step = y[t] * _step(y[t] * dot(z, w), dot(z, z), cap)
            if step != 0.0:
                for j in range(dim):
                    w[j] = simd.within(w, w[j] + step * z[j])


@kernel
def _learn_sparse(state, data, indices, indptr, y, weight, C, fifo, weighted, scores):  # type: ignore[no-untyped-def]
    w, values, columns, lengths, seen, rng = state
    capacity = values.shape[1]
    z = np.empty(2 * values.shape[2])
    at = np.empty(2 * values.shape[2], dtype=np.int64)
    for t in range(y.shape[0]):
        x = data[indptr[t] : indptr[t + 1]]
        ix = indices[indptr[t] : indptr[t + 1]]
        score = 0.0
        for k in range(x.shape[0]):
            score += x[k] * w[ix[k]]
        scores[t] = score
        own = 1 if y[t] > 0.0 else 0
        seen[own] += 1
        s = slot(seen[own], capacity, fifo, rng)
        if s >= 0:
            store(x, ix, values[own, s], columns[own, s], lengths[own, s : s + 1])
        cap = weight[t] * _cap(C, weighted, seen[1 - own], capacity)
        if cap == 0.0:
            continue
        for k in range(filled(seen[1 - own], capacity)):
            length = lengths[1 - own, k]
            n = subtract(x, ix, values[1 - own, k, :length], columns[1 - own, k, :length], z, at)
            m = square = 0.0
            for i in range(n):
                m += w[at[i]] * z[i]
                square += z[i] * z[i]
            step = y[t] * _step(y[t] * m, square, cap)
            if step != 0.0:
                for i in range(n):
                    j = at[i]
                    w[j] = simd.within(w, w[j] + step * z[i])


@kernel
def _cap(C, weighted, others, capacity):  # type: ignore[no-untyped-def]
    """C_t: as large as the buffer's share of the `others` examples met is small."""
    return C * max(1.0, others / capacity) if weighted else C


@kernel
def _step(m, square, cap):  # type: ignore[no-untyped-def]
    """min(cap, (1 - m) / square) for m < 1, else 0, without a division that could overflow."""
    loss = 1.0 - m
    if loss <= 0.0:
        return 0.0
    return cap if loss >= cap * square else loss / square
