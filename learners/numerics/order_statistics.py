"""A sorted multiset of numbers, for exact windowed AUC and quantiles.

The members are one ascending array. Insertions and removals are buffered beside it, up to 1024 of each. They are merged
when a buffer is full or when a caller needs the sorted members: the buffers are sorted, and one pass copies the runs of
members between them. An insertion or removal costs a few nanoseconds, and a merge about 10 microseconds for ten
thousand members. Readers (`values`, `counts`) include the buffers and change nothing, so they may run concurrently.

The members depend on the numbers alone, not on their order of arrival; -0.0 counts as 0.0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from learners.numerics.arrays import Counts, Matrix, Vector
from learners.numerics.jit import bare_kernel, inlined
from learners.numerics.simd import WIDTH, load, store

__all__ = ["WAITING", "MultisetArrays", "counts", "enter", "leave", "ordered", "reserved", "settled", "sort", "values"]

_LEAST = 64  # initial capacity for members and buffers
WAITING = 1024  # capacity of each buffer
_BLOCK = 64  # members that a merge moves at once
_GAPS = (701, 301, 132, 57, 23, 10, 4, 1)  # of a Shell sort (Ciura 2001)

_MEMBERS, _INSERTED, _REMOVED, _SIDE = range(4)  # places in `sizes`


class MultisetArrays(NamedTuple):
    """The arrays of a multiset; `sizes` has their counts and the side of `sides` with the members."""

    sides: Matrix  # (2, capacity): the members, ascending; a merge writes to the other side
    inserted: Vector  # (capacity of a buffer,)
    removed: Vector  # likewise; each is a member, or among `inserted`
    sizes: Counts  # (4,) members, inserted, removed, the side


def ordered(ascending: Vector) -> MultisetArrays:
    """Create the multiset of ascending numbers without NaN. O(members)."""
    multiset = _empty(len(ascending))
    np.add(ascending, 0.0, out=multiset.sides[0, : len(ascending)])  # -0.0 becomes 0.0
    multiset.sizes[_MEMBERS] = len(ascending)
    return multiset


def _empty(members: int) -> MultisetArrays:
    """Create an empty multiset with room for `members`."""
    capacity = max(_LEAST, 1 << max(members - 1, 0).bit_length())
    waiting = min(WAITING, capacity)
    return MultisetArrays(np.empty((2, capacity)), np.empty(waiting), np.empty(waiting), np.zeros(4, dtype=np.int64))


def reserved(multiset: MultisetArrays, members: int, moves: int) -> MultisetArrays:
    """Return the multiset with room for `members`, and for `moves` insertions or removals within the buffers.

    O(1), or O(members) if the buffers must be merged or the arrays must grow.
    """
    _, inserted, removed, _ = multiset.sizes.tolist()
    if members <= multiset.sides.shape[1]:
        if max(inserted, removed) + moves > len(multiset.inserted):
            settled(multiset)
        return multiset
    current, larger = settled(multiset), _empty(members)
    larger.sides[0, : len(current)] = current
    larger.sizes[_MEMBERS] = len(current)
    return larger


@bare_kernel
def sort(x, n):  # type: ignore[no-untyped-def]
    """Sort x[:n], without NaN, in place by Shell's method; numba compiles `np.sort` for more than a second."""
    for gap in _GAPS:
        for i in range(gap, n):
            moved = x[i]
            j = i
            while j >= gap and x[j - gap] > moved:
                x[j] = x[j - gap]
                j -= gap
            x[j] = moved


@bare_kernel
def _merge(members, n, inserted, c, removed, g, out):  # type: ignore[no-untyped-def]
    """Fill `out` with members[:n] and inserted[:c] without removed[:g], all ascending; return their number."""
    i = j = k = at = 0
    while j < c or k < g:
        if j < c and k < g and inserted[j] == removed[k]:
            j += 1
            k += 1
            continue
        removal = k < g and (j == c or removed[k] < inserted[j])
        x = removed[k] if removal else inserted[j]
        below = _BLOCK
        while below == _BLOCK and i + _BLOCK <= n and at + _BLOCK <= out.shape[0]:
            # comparing and moving a whole block takes less time than finding where to stop
            below = 0
            for m in range(np.uint64(_BLOCK)):  # unsigned, so that the loop is vectorised
                below += members[np.uint64(i) + m] < x
            for m in range(0, _BLOCK, WIDTH):
                store(out, at + m, load(members, i + m))
            i += below
            at += below
        while i < n and members[i] < x:
            out[at] = members[i]
            i += 1
            at += 1
        if removal:
            i += 1  # the member itself
            k += 1
        else:
            out[at] = x + 0.0  # -0.0 becomes 0.0
            at += 1
            j += 1
    for m in range(np.uint64(n - i)):
        out[np.uint64(at) + m] = members[np.uint64(i) + m]
    return at + n - i


@bare_kernel
def _merge_buffers(multiset):  # type: ignore[no-untyped-def]
    """Merge the buffers, which are sorted already."""
    sizes = multiset.sizes
    side = sizes[_SIDE]
    sizes[_MEMBERS] = _merge(
        multiset.sides[side],
        sizes[_MEMBERS],
        multiset.inserted,
        sizes[_INSERTED],
        multiset.removed,
        sizes[_REMOVED],
        multiset.sides[1 - side],
    )
    sizes[_INSERTED] = sizes[_REMOVED] = 0
    sizes[_SIDE] = 1 - side


@bare_kernel
def _settle(multiset):  # type: ignore[no-untyped-def]
    sort(multiset.inserted, multiset.sizes[_INSERTED])
    sort(multiset.removed, multiset.sizes[_REMOVED])
    _merge_buffers(multiset)


@inlined
def enter(multiset, x):  # type: ignore[no-untyped-def]
    """Insert x, which is not NaN. There must be room; see `reserved`."""
    if multiset.sizes[_INSERTED] == multiset.inserted.shape[0]:
        _settle(multiset)
    multiset.inserted[multiset.sizes[_INSERTED]] = x
    multiset.sizes[_INSERTED] += 1


@inlined
def leave(multiset, x):  # type: ignore[no-untyped-def]
    """Remove x, which must be a member."""
    if multiset.sizes[_REMOVED] == multiset.removed.shape[0]:
        _settle(multiset)
    multiset.removed[multiset.sizes[_REMOVED]] = x
    multiset.sizes[_REMOVED] += 1


@inlined
def _below(ascending, n, x, upto):  # type: ignore[no-untyped-def]
    """Count the numbers of ascending[:n] below x (with `upto`: not above x)."""
    low, high = 0, n
    while low < high:
        middle = (low + high) // 2
        member = ascending[middle]
        if member < x or (upto and member == x):
            low = middle + 1
        else:
            high = middle
    return low


@bare_kernel
def counts(multiset, x):  # type: ignore[no-untyped-def]
    """Count (members below x, members not above x). O(log members), plus about 0.1 ns per buffered number."""
    n, side = multiset.sizes[_MEMBERS], multiset.sizes[_SIDE]
    below, upto = _below(multiset.sides[side], n, x, False), _below(multiset.sides[side], n, x, True)
    for i in range(multiset.sizes[_INSERTED]):
        below += multiset.inserted[i] < x
        upto += multiset.inserted[i] <= x
    for i in range(multiset.sizes[_REMOVED]):
        below -= multiset.removed[i] < x
        upto -= multiset.removed[i] <= x
    return below, upto


def settled(multiset: MultisetArrays) -> Vector:
    """Merge the buffers and return all members, ascending: a view, valid until the next change. O(members)."""
    members, inserted, removed, side = multiset.sizes.tolist()
    if inserted or removed:
        multiset.inserted[:inserted].sort()
        multiset.removed[:removed].sort()
        _merge_buffers(multiset)
        members, _, _, side = multiset.sizes.tolist()
    return multiset.sides[side, :members]


def values(multiset: MultisetArrays) -> Vector:
    """Copy all members, ascending, without changing the multiset. O(members)."""
    return settled(MultisetArrays._make(array.copy() for array in multiset))
