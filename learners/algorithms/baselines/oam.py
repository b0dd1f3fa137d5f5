"""Online AUC maximization with class buffers and sequential passive-aggressive steps (OAM_seq).

For each stored example b of the other class, in slot order:

    z = x - b,  m = y w.z;  no step if m >= 1;   w += min(C_t, (1 - m) / |z|^2) y z
    C_t = C max(1, n_other / capacity) if `weighted`: the buffer represents all n_other examples; else C_t = C

The score is w.x. The weight of an event multiplies C_t. O(capacity * dim) time per event and memory; sparse rows
take O(capacity * non-zeros): only the columns of x or b move, and z is a merge of two sorted rows.

Large rows need no guard: a step ends at the latest at the nearest w that ranks the pair with margin 1, so |w|^2 grows
by less than 2 C_t per pair.

References
----------
Zhao, Hoi, Jin, Yang. Online AUC Maximization. ICML 2011, OAM_seq with reservoir sampling.
Departures, both as in Khalid, Ray, Chitsaz, ADMA 2016: buffers of 50 (the paper: 100), and C_t = C by default (the
paper: weighted, which has .01 to .04 less AUC on simulated streams). "fifo" is new.
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
    weighted: bool = param(False, "let the stored examples represent all examples so far: C grows with their number")


class State(NamedTuple):
    """Weights and the stored examples; see `learners.algorithms._buffers` for `width`."""

    w: Vector  # (dim,)
    values: Cube  # (2, capacity, width): negatives, positives
    columns: NDArray[np.int64]  # (2, capacity, width) ascending; (2, capacity, 0) for dense rows
    lengths: NDArray[np.int64]  # (2, capacity)
    seen: Counts  # (2,) events per class
    rng: Words  # (1,) splitmix64


def init(params: Params, dim: int, seed: int) -> State:
    """Return the state before any event."""
    return State(
        w=np.zeros(dim),
        values=np.zeros((2, params.capacity, 0)),
        columns=np.zeros((2, params.capacity, 0), dtype=np.int64),
        lengths=np.zeros((2, params.capacity), dtype=np.int64),
        seen=np.zeros(2, dtype=np.int64),
        rng=np.array([seed], dtype=np.uint64),
    )


def grow(params: Params, state: State, dim: int) -> State:  # noqa: ARG001
    """Return the state of sparse rows with `dim` columns."""
    return state._replace(w=grown(state.w, dim))


def learn(params: Params, state: State, rows: Rows, y: Vector, weight: Vector, scores: Vector) -> State:
    """Score each row, then learn from it, in order; fill `scores` (n,) and return the state.

    The arrays change in place, but wider buffers replace narrow ones for a long sparse row. Raises ValueError for
    sparse rows after dense ones and for dense rows after sparse ones.
    """
    if not len(y):
        return state
    fifo = params.buffer == "fifo"
    if isinstance(rows, Sparse):
        state = prepare_sparse(state, int(np.diff(rows.indptr).max()))
        _learn_sparse(state, *rows, y, weight, params.C, fifo, params.weighted, scores)
    else:
        state = prepare_dense(state, len(state.w))
        _learn_dense(state, rows, y, weight, params.C, fifo, params.weighted, scores)
    return state


def weights(params: Params, state: State) -> Linear:  # noqa: ARG001
    """Return the weights that score events."""
    return Linear(state.w, np.zeros(1))


def problems(params: Params, state: State, sparse: bool) -> Issues:  # noqa: ARG001
    """Find values in a restored state that no events lead to."""
    yield from buffer_problems(state, len(state.w), sparse)


@kernel
def _learn_dense(state, X, y, weight, C, fifo, weighted, scores):  # type: ignore[no-untyped-def]
    w, values, _, lengths, seen, rng = state
    dim = w.shape[0]
    capacity = values.shape[1]
    z = np.empty(dim)
    for t in range(X.shape[0]):
        x = X[t]
        scores[t] = dot(x, w)
        side = 1 if y[t] > 0.0 else 0
        seen[side] += 1
        s = choose_slot(seen[side], capacity, fifo, rng)
        if s >= 0:
            simd.unpad(x, dim, simd.row(values, side, s))
            lengths[side, s] = dim
        cap = weight[t] * _cap(C, weighted, seen[1 - side], capacity)
        if cap == 0.0:
            continue
        for k in range(slots_in_use(seen[1 - side], capacity)):
            b = values[1 - side, k]
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
        side = 1 if y[t] > 0.0 else 0
        seen[side] += 1
        s = choose_slot(seen[side], capacity, fifo, rng)
        if s >= 0:
            store_row(x, ix, values[side, s], columns[side, s], lengths[side, s : s + 1])
        cap = weight[t] * _cap(C, weighted, seen[1 - side], capacity)
        if cap == 0.0:
            continue
        for k in range(slots_in_use(seen[1 - side], capacity)):
            length = lengths[1 - side, k]
            n = subtract_rows(x, ix, values[1 - side, k, :length], columns[1 - side, k, :length], z, at)
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
    """Compute C_t, inverse to the share of the buffer in the `others` examples."""
    return C * max(1.0, others / capacity) if weighted else C


@kernel
def _step(m, square, cap):  # type: ignore[no-untyped-def]
    """Compute min(cap, (1 - m) / square) for m < 1, else 0, without a division that could overflow."""
    loss = 1.0 - m
    if loss <= 0.0:
        return 0.0
    return cap if loss >= cap * square else loss / square
