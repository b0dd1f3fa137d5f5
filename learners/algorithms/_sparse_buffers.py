"""Class buffers of sparse or dense rows. Sparse: three arrays that hold them, and z = x - b of a row and a stored one.

`values` (2, capacity, width) and `columns` (2, capacity, width), ascending, hold each row's non-zeros in its first
`lengths` (2, capacity) places; what lies beyond is 0. `width` follows the longest row met.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import overload
from numpy.typing import NDArray

from learners.numerics import Cube, Issues, kernel, outside, simd

__all__ = ["for_dense", "for_sparse", "problems", "read", "store", "subtract", "widened"]

_NARROWEST = 16  # places for the non-zeros of a row


def widened(values: Cube, columns: NDArray[np.int64], longest: int) -> tuple[Cube, NDArray[np.int64]]:
    """The two arrays for rows of up to `longest` non-zeros: as they are, or copied to the next power of two >= 16.

    How wide they are depends on the longest row so far alone, not on how a stream is cut.
    """
    old = values.shape[2]
    width = max(_NARROWEST, 1 << (longest - 1).bit_length())
    if width <= old:
        return values, columns
    wide_values = np.zeros((*values.shape[:2], width), values.dtype)
    wide_columns = np.zeros((*columns.shape[:2], width), np.int64)
    wide_values[:, :, :old] = values
    wide_columns[:, :, :old] = columns
    return wide_values, wide_columns


def for_sparse(state: Any, longest: int) -> Any:
    """A state (a NamedTuple with `values` and `columns`), ready for sparse rows of up to `longest` non-zeros.

    Raises ValueError where it holds dense rows.
    """
    if state.columns.shape[2] < state.values.shape[2]:
        raise ValueError("this state holds dense rows; it cannot learn sparse ones")
    values, columns = widened(state.values, state.columns, longest)
    return state._replace(values=values, columns=columns)


def for_dense(state: Any, dim: int) -> Any:
    """The same, ready for dense rows. Raises ValueError where it holds sparse ones."""
    if state.columns.shape[2]:
        raise ValueError("this state holds sparse rows; it cannot learn dense ones")
    if state.values.shape[2]:
        return state
    return state._replace(values=np.zeros((*state.values.shape[:2], dim), state.values.dtype))


def problems(state: Any, dim: int, sparse: bool) -> Issues:
    """What cannot be in the buffers of a state (a NamedTuple with `values`, `columns` and `lengths`) for `dim` columns.

    `sparse`: the learner's rows are sparse. O(size of the buffers).
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


def read(values: Any, room: Any) -> Any:
    """A stored row's values as float64: the row itself, or a copy in the first places of `room` of a float32 one.

    In a kernel which of the two is known when it is compiled.
    """
    if values.itemsize == room.itemsize:
        return values
    room[: values.shape[0]] = values
    return room[: values.shape[0]]


@overload(read)
def _read(values, room):  # type: ignore[no-untyped-def]
    def itself(values, room):  # type: ignore[no-untyped-def]  # noqa: ARG001
        return values

    def copied(values, room):  # type: ignore[no-untyped-def]
        room[: values.shape[0]] = values
        return room[: values.shape[0]]

    return itself if values.dtype == room.dtype else copied


@kernel
def store(x, ix, values, columns, length):  # type: ignore[no-untyped-def]
    """Put the row with the values `x` in the columns `ix` into one slot; `length` (1,) is the slot's."""
    n = x.shape[0]
    for i in range(n):
        values[i] = simd.within(values, x[i])
    columns[:n] = ix
    for i in range(n, length[0]):
        values[i] = 0.0
        columns[i] = 0
    length[0] = n


@kernel
def subtract(x, ix, b, ib, z, at):  # type: ignore[no-untyped-def]
    """z = x - b of two sparse rows: fill the values `z` and their columns `at`; how many there are. O(non-zeros)."""
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
