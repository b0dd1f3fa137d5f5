"""A multiset of numbers that tells how many of its members are below a given one: what an exact windowed AUC counts.

Sorted blocks of at most `WIDTH` numbers, themselves in order. A block that is full is split in two; two neighbours that
together fill less than half a block become one, so there are never more than 4 n / WIDTH + 1 of them. Adding, removing
and counting cost a binary search, a shift within one block, and a sum over the block sizes: some hundred nanoseconds
for ten thousand members, and twice that for a hundred thousand.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from learners.arrays import Counts, Matrix, Vector
from learners.jit import kernel

__all__ = ["WIDTH", "Ordered", "add", "counts", "empty", "packed", "remove", "reserved", "select", "values"]

WIDTH = 512


class Ordered(NamedTuple):
    """The arrays of a multiset; `blocks[order[i], :sizes[i]]` ascend within each i < used[0], and from i to i + 1."""

    blocks: Matrix  # (capacity, WIDTH)
    order: Counts  # (capacity,) a permutation: the blocks in use in order of their values, then the free ones
    sizes: Counts  # (capacity,)
    used: Counts  # (1,)


def empty() -> Ordered:
    """No members, and room for a few."""
    return Ordered(np.empty((2, WIDTH)), np.arange(2), np.zeros(2, dtype=np.int64), np.zeros(1, dtype=np.int64))


def reserved(ordered: Ordered, more: int) -> Ordered:
    """The same multiset with room for `more` members to be added, whatever they are."""
    held, used = len(ordered.sizes), int(ordered.used[0])
    # an addition opens one block at most; and any two neighbours hold more than half a block together
    need = min(used + more, 4 * (int(ordered.sizes.sum()) + more) // WIDTH + 1) + 1
    if need <= held:
        return ordered
    capacity = max(need, 2 * held)
    blocks = np.empty((capacity, WIDTH))
    blocks[:held] = ordered.blocks
    sizes = np.zeros(capacity, dtype=np.int64)
    sizes[:held] = ordered.sizes
    order = np.arange(capacity)
    order[:held] = ordered.order
    return Ordered(blocks, order, sizes, ordered.used.copy())


@kernel
def _block(ordered, x, upto):  # type: ignore[no-untyped-def]
    """The first block whose last member is not below x (with `upto`: is above x); `used` if there is none."""
    low, high = 0, ordered.used[0]
    while low < high:
        middle = (low + high) // 2
        last = ordered.blocks[ordered.order[middle], ordered.sizes[middle] - 1]
        if last < x or (upto and last == x):
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def _within(row, n, x, upto):  # type: ignore[no-untyped-def]
    """How many of the first n of ascending `row` are below x (with `upto`: are not above x)."""
    low, high = 0, n
    while low < high:
        middle = (low + high) // 2
        if row[middle] < x or (upto and row[middle] == x):
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def _count(ordered, x, upto):  # type: ignore[no-untyped-def]
    at = _block(ordered, x, upto)
    total = 0
    for i in range(at):
        total += ordered.sizes[i]
    if at < ordered.used[0]:
        total += _within(ordered.blocks[ordered.order[at]], ordered.sizes[at], x, upto)
    return total


@kernel
def counts(ordered, x):  # type: ignore[no-untyped-def]
    """(how many members are below x, how many are not above x)."""
    return _count(ordered, x, False), _count(ordered, x, True)


@kernel
def select(ordered, rank):  # type: ignore[no-untyped-def]
    """The member with `rank` members before it, from 0: the smallest; NaN where there are not so many. O(blocks)."""
    if rank >= 0:
        for i in range(ordered.used[0]):
            if rank < ordered.sizes[i]:
                return ordered.blocks[ordered.order[i], rank]
            rank -= ordered.sizes[i]
    return np.nan


@kernel
def _open(ordered, at):  # type: ignore[no-untyped-def]
    """Put a free, empty block at place `at`."""
    used = ordered.used[0]
    free = ordered.order[used]
    for i in range(used, at, -1):
        ordered.order[i] = ordered.order[i - 1]
        ordered.sizes[i] = ordered.sizes[i - 1]
    ordered.order[at] = free
    ordered.sizes[at] = 0
    ordered.used[0] = used + 1


@kernel
def _close(ordered, at):  # type: ignore[no-untyped-def]
    """Take the block at place `at` out of use."""
    used = ordered.used[0]
    free = ordered.order[at]
    for i in range(at, used - 1):
        ordered.order[i] = ordered.order[i + 1]
        ordered.sizes[i] = ordered.sizes[i + 1]
    ordered.order[used - 1] = free
    ordered.sizes[used - 1] = 0
    ordered.used[0] = used - 1


@kernel
def add(ordered, x):  # type: ignore[no-untyped-def]
    """Add x once. There must be room; see `reserved`."""
    if ordered.used[0] == 0:
        _open(ordered, 0)
    at = min(_block(ordered, x, True), ordered.used[0] - 1)
    if ordered.sizes[at] == WIDTH:
        _open(ordered, at + 1)
        half = WIDTH // 2
        lower, upper = ordered.blocks[ordered.order[at]], ordered.blocks[ordered.order[at + 1]]
        for i in range(half):
            upper[i] = lower[half + i]
        ordered.sizes[at] = half
        ordered.sizes[at + 1] = half
        if x >= upper[0]:
            at += 1
    row = ordered.blocks[ordered.order[at]]
    n = ordered.sizes[at]
    place = _within(row, n, x, True)
    for i in range(n, place, -1):
        row[i] = row[i - 1]
    row[place] = x
    ordered.sizes[at] = n + 1


@kernel
def _merge(ordered, at):  # type: ignore[no-untyped-def]
    """Make one block of those at `at` and `at + 1` if both are there and half a block holds them."""
    if at < 0 or at + 1 >= ordered.used[0] or ordered.sizes[at] + ordered.sizes[at + 1] > WIDTH // 2:
        return
    lower, upper = ordered.blocks[ordered.order[at]], ordered.blocks[ordered.order[at + 1]]
    n = ordered.sizes[at]
    for i in range(ordered.sizes[at + 1]):
        lower[n + i] = upper[i]
    ordered.sizes[at] = n + ordered.sizes[at + 1]
    _close(ordered, at + 1)


@kernel
def remove(ordered, x):  # type: ignore[no-untyped-def]
    """Take x out once; it must be a member."""
    at = _block(ordered, x, False)
    row = ordered.blocks[ordered.order[at]]
    n = ordered.sizes[at]
    for i in range(_within(row, n, x, False), n - 1):
        row[i] = row[i + 1]
    ordered.sizes[at] = n - 1
    if n == 1:
        _close(ordered, at)
    else:
        _merge(ordered, at)
        _merge(ordered, at - 1)


@kernel
def _copy_out(ordered, out):  # type: ignore[no-untyped-def]
    at = 0
    for i in range(ordered.used[0]):
        row = ordered.blocks[ordered.order[i]]
        n = ordered.sizes[i]
        out[at : at + n] = row[:n]
        at += n


def values(ordered: Ordered) -> Vector:
    """All members, ascending, as an array of its own. O(members)."""
    out = np.empty(int(ordered.sizes.sum()))
    _copy_out(ordered, out)
    return out


def packed(ascending: Vector) -> Ordered:
    """The multiset of some ascending numbers, in full blocks, with room for no more. O(members)."""
    n = len(ascending)
    used = -(-n // WIDTH)
    blocks = np.zeros((used + 1, WIDTH))
    blocks.reshape(-1)[:n] = ascending
    sizes = np.zeros(used + 1, dtype=np.int64)
    sizes[:used] = WIDTH
    if n % WIDTH:
        sizes[used - 1] = n % WIDTH
    return Ordered(blocks, np.arange(used + 1), sizes, np.array([used], dtype=np.int64))
