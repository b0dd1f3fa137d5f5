"""A multiset of numbers in order: what an exact windowed AUC, and a quantile, are counted from.

The members stand in one ascending array. What comes and what goes waits beside it, up to 1024 numbers of each, and is
worked in together when there is no more room, or somebody needs the members themselves: the numbers that wait are
sorted, and one pass copies the runs of members between them. So a number that comes or goes costs a few nanoseconds,
and a pass some 10 microseconds for ten thousand members, or what it takes to copy them where there are many more.
Readers (`values`, `counts`) count in what waits and change nothing, so they may look while others do.

What is held follows from the numbers alone, however they came: -0.0 counts as 0.0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from learners.numerics.arrays import Counts, Matrix, Vector
from learners.numerics.jit import bare_kernel, inlined
from learners.numerics.simd import WIDTH, load, store

__all__ = ["WAITING", "Ordered", "counts", "enter", "leave", "ordered", "reserved", "settled", "values"]

_LEAST = 64  # room for members and for what waits, at first
WAITING = 1024  # numbers that wait, of either sort
_BLOCK = 64  # members that a pass moves at once
_GAPS = (701, 301, 132, 57, 23, 10, 4, 1)  # of a Shell sort (Ciura 2001)

_MEMBERS, _COME, _GONE, _SIDE = range(4)  # places in `sizes`


class Ordered(NamedTuple):
    """The arrays of a multiset; `sizes` counts what is in them, and says which side of `sides` the members are on."""

    sides: Matrix  # (2, capacity): the members, ascending; the other one is where a pass writes
    come: Vector  # (waiting,)
    gone: Vector  # (waiting,) each a member, or among those that come
    sizes: Counts  # (4,) members, of `come`, of `gone`, the side


def ordered(ascending: Vector) -> Ordered:
    """The multiset of some ascending numbers, without NaN. O(members)."""
    held = _empty(len(ascending))
    np.add(ascending, 0.0, out=held.sides[0, : len(ascending)])  # -0.0 becomes 0.0
    held.sizes[_MEMBERS] = len(ascending)
    return held


def _empty(members: int) -> Ordered:
    """No members, and room for so many."""
    capacity = max(_LEAST, 1 << max(members - 1, 0).bit_length())
    waiting = min(WAITING, capacity)
    return Ordered(np.empty((2, capacity)), np.empty(waiting), np.empty(waiting), np.zeros(4, dtype=np.int64))


def reserved(held: Ordered, members: int, moves: int) -> Ordered:
    """The same multiset with room for so many members, and for so many that come or go, as far as may be.

    O(1), or O(members) where what waits has to be worked in, or the room has to grow.
    """
    _, come, gone, _ = held.sizes.tolist()
    if members <= held.sides.shape[1]:
        if max(come, gone) + moves > len(held.come):
            settled(held)
        return held
    kept, larger = settled(held), _empty(members)
    larger.sides[0, : len(kept)] = kept
    larger.sizes[_MEMBERS] = len(kept)
    return larger


@bare_kernel
def _sort(x, n):  # type: ignore[no-untyped-def]
    """Sort x[:n], without NaN, in its place, by Shell's method."""
    for gap in _GAPS:
        for i in range(gap, n):
            moved = x[i]
            j = i
            while j >= gap and x[j - gap] > moved:
                x[j] = x[j - gap]
                j -= gap
            x[j] = moved


@bare_kernel
def _pass(members, n, come, c, gone, g, out):  # type: ignore[no-untyped-def]
    """Fill `out` with members[:n] and come[:c], but without gone[:g]; all ascend. How many those are."""
    i = j = k = at = 0
    while j < c or k < g:
        if j < c and k < g and come[j] == gone[k]:
            j += 1
            k += 1
            continue
        goes = k < g and (j == c or gone[k] < come[j])
        x = gone[k] if goes else come[j]
        below = _BLOCK
        while below == _BLOCK and i + _BLOCK <= n and at + _BLOCK <= out.shape[0]:
            # all of a block are compared and moved: that takes less time than to find out where to stop
            below = 0
            for m in range(np.uint64(_BLOCK)):  # unsigned, so that several are compared at once
                below += members[np.uint64(i) + m] < x
            for m in range(0, _BLOCK, WIDTH):
                store(out, at + m, load(members, i + m))
            i += below
            at += below
        while i < n and members[i] < x:
            out[at] = members[i]
            i += 1
            at += 1
        if goes:
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
def _work_in(held):  # type: ignore[no-untyped-def]
    """Work in what waits, which is in order by now."""
    sizes = held.sizes
    side = sizes[_SIDE]
    sizes[_MEMBERS] = _pass(
        held.sides[side], sizes[_MEMBERS], held.come, sizes[_COME], held.gone, sizes[_GONE], held.sides[1 - side]
    )
    sizes[_COME] = sizes[_GONE] = 0
    sizes[_SIDE] = 1 - side


@bare_kernel
def _settle(held):  # type: ignore[no-untyped-def]
    _sort(held.come, held.sizes[_COME])
    _sort(held.gone, held.sizes[_GONE])
    _work_in(held)


@inlined
def enter(held, x):  # type: ignore[no-untyped-def]
    """Add x once, which is not NaN. There must be room; see `reserved`."""
    if held.sizes[_COME] == held.come.shape[0]:
        _settle(held)
    held.come[held.sizes[_COME]] = x
    held.sizes[_COME] += 1


@inlined
def leave(held, x):  # type: ignore[no-untyped-def]
    """Take x out once, which has to be in it."""
    if held.sizes[_GONE] == held.gone.shape[0]:
        _settle(held)
    held.gone[held.sizes[_GONE]] = x
    held.sizes[_GONE] += 1


@inlined
def _below(ascending, n, x, upto):  # type: ignore[no-untyped-def]
    """How many of ascending[:n] are below x (with `upto`: are not above x)."""
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
def counts(held, x):  # type: ignore[no-untyped-def]
    """(how many are below x, how many are not above x). O(log members), and some 0.1 ns for each number that waits."""
    n, side = held.sizes[_MEMBERS], held.sizes[_SIDE]
    below, upto = _below(held.sides[side], n, x, False), _below(held.sides[side], n, x, True)
    for i in range(held.sizes[_COME]):
        below += held.come[i] < x
        upto += held.come[i] <= x
    for i in range(held.sizes[_GONE]):
        below -= held.gone[i] < x
        upto -= held.gone[i] <= x
    return below, upto


def settled(held: Ordered) -> Vector:
    """All members, ascending: a view, right until something comes or goes. O(members) where something waits."""
    members, come, gone, side = held.sizes.tolist()
    if come or gone:
        held.come[:come].sort()
        held.gone[:gone].sort()
        _work_in(held)
        members, _, _, side = held.sizes.tolist()
    return held.sides[side, :members]


def values(held: Ordered) -> Vector:
    """All members, ascending, as an array of its own; nothing is changed. O(members)."""
    members, come, gone, side = held.sizes.tolist()
    if not (come or gone):
        return held.sides[side, :members].copy()
    out = np.empty(members + come)
    n = _pass(held.sides[side], members, np.sort(held.come[:come]), come, np.sort(held.gone[:gone]), gone, out)
    return out[:n]
