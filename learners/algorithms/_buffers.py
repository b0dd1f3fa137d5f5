"""Class buffers: the stored examples of each class, as dense or sparse rows.

Pairwise algorithms keep `capacity` examples of each class. FIFO keeps the last ones, so it follows a drift. A reservoir
keeps a uniform sample of all examples (Vitter, Random Sampling with a Reservoir, ACM TOMS 1985, Algorithm R). Both
fill the slots 0, 1, ... in order first, so the slots in use are always the first `slots_in_use(count, capacity)`.

Three arrays hold rows of either kind. `values` (2, capacity, width) and `columns` (2, capacity, width), ascending, hold
a row's non-zeros in the first `lengths` (2, capacity) places; the other places are 0. For sparse rows `width` is the
smallest power of two, at least 16, that the longest row so far fits in. For dense rows `width` is the dimension and
`columns` is empty. Before the first event `width` is 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import overload

from learners.numerics import Issues, kernel, next_random, outside, simd

__all__ = [
    "buffer_problems",
    "choose_slot",
    "prepare_dense",
    "prepare_sparse",
    "read_row",
    "slots_in_use",
    "store_row",
    "subtract_rows",
]

_NARROWEST = 16  # places for the non-zeros of a row


@kernel
def choose_slot(count, capacity, fifo, rng):  # type: ignore[no-untyped-def]
    """Choose the slot for the newest of `count` examples of its class (itself included); -1: do not store it.

    A full reservoir draws one number from `rng` (1,) uint64 per call; otherwise `rng` does not change. O(1).
    """
    if fifo or count <= capacity:
        return (count - 1) % capacity
    index = np.int64(next_random(rng) % np.uint64(count))
    return index if index < capacity else -1


@kernel
def slots_in_use(count, capacity):  # type: ignore[no-untyped-def]
    """Return the number of slots that hold an example after `count` examples of the class."""
    return min(count, capacity)


def prepare_sparse(state: Any, longest: int) -> Any:
    """Make room for sparse rows of up to `longest` non-zeros in a state with `values` and `columns`.

    Wider arrays replace narrow ones. The width depends on the longest row so far only, not on how a stream is cut into
    calls. Raises ValueError if the state holds dense rows.
    """
    values, columns = state.values, state.columns
    old = values.shape[2]
    if columns.shape[2] < old:
        raise ValueError("this state holds dense rows; it cannot learn sparse ones")
    width = max(_NARROWEST, 1 << (longest - 1).bit_length())
    if width <= old:
        return state
    wide_values = np.zeros((*values.shape[:2], width), values.dtype)
    wide_columns = np.zeros((*columns.shape[:2], width), np.int64)
    wide_values[:, :, :old] = values
    wide_columns[:, :, :old] = columns
    return state._replace(values=wide_values, columns=wide_columns)


def prepare_dense(state: Any, dim: int) -> Any:
    """Make room for dense rows of `dim` columns. Raises ValueError if the state holds sparse rows."""
    if state.columns.shape[2]:
        raise ValueError("this state holds sparse rows; it cannot learn dense ones")
    if state.values.shape[2]:
        return state
    return state._replace(values=np.zeros((*state.values.shape[:2], dim), state.values.dtype))


def buffer_problems(state: Any, dim: int, sparse: bool) -> Issues:
    """Find impossible values in the buffers of a restored state with `values`, `columns` and `lengths`.

    `dim`: columns of the state. `sparse`: the learner's rows are sparse. O(size of the buffers).
    """
    values, columns, lengths = state.values, state.columns, state.lengths
    width = values.shape[2]
    possible = width >= _NARROWEST and width & (width - 1) == 0 if sparse else width == dim
    if values.shape[:2] != lengths.shape or (width and not possible):
        yield "values", f"has shape {values.shape}, which buffers of such rows never have"
    elif columns.shape != (*lengths.shape, width if sparse else 0):
        yield "columns", f"has shape {columns.shape}, where the values have {values.shape}"
    else:
        yield from outside("columns", columns, 0, dim - 1)
        yield from outside("lengths", lengths, 0, width)


def read_row(values: Any, room: Any) -> Any:
    """Return the values of a stored row as float64; a float32 row is copied to the first places of `room`.

    A kernel decides between the two when it is compiled.
    """
    if values.itemsize == room.itemsize:
        return values
    room[: values.shape[0]] = values
    return room[: values.shape[0]]


@overload(read_row)
def _read_row(values, room):  # type: ignore[no-untyped-def]
    def unchanged(values, room):  # type: ignore[no-untyped-def]  # noqa: ARG001
        return values

    def converted(values, room):  # type: ignore[no-untyped-def]
        for i in range(values.shape[0]):
            room[i] = values[i]
        return room[: values.shape[0]]

    return unchanged if values.dtype == room.dtype else converted


@kernel
def store_row(x, ix, values, columns, length):  # type: ignore[no-untyped-def]
    """Store the row with values `x` in columns `ix` in one slot; `length` (1,) belongs to the slot."""
    n = x.shape[0]
    for i in range(n):
        values[i] = simd.within(values, x[i])
    for i in range(ix.shape[0]):  # dense rows have none
        columns[i] = ix[i]
    for i in range(n, length[0]):
        values[i] = 0.0
        columns[i] = 0
    length[0] = n


@kernel
def subtract_rows(x, ix, b, ib, z, at):  # type: ignore[no-untyped-def]
    """Compute z = x - b of two sparse rows: fill the values `z` and columns `at`, return their number. O(non-zeros)."""
    i = k = n = 0
    while i < x.shape[0] or k < b.shape[0]:
        if k == b.shape[0] or (i < x.shape[0] and ix[i] < ib[k]):
            z[n] = x[i]
            at[n] = ix[i]
            i += 1
        elif i == x.shape[0] or ib[k] < ix[i]:
            z[n] = -b[k]
            at[n] = ib[k]
            k += 1
        else:
            z[n] = x[i] - b[k]
            at[n] = ix[i]
            i += 1
            k += 1
        n += 1
    return n
