"""A multiset of numbers that tells how many of its members are below a given one: what an exact windowed AUC counts.

Sorted blocks of at most `WIDTH` numbers, themselves in order. A block that is full is split in two; two neighbours that
together fill less than half a block become one, so there are never more than 4 n / WIDTH + 1 of them. Adding, removing
and counting cost a binary search, a shift within one block, and a sum over the block sizes: some hundred nanoseconds
for ten thousand members, half as much again for a hundred thousand.

Where many members come and go before anybody looks, they can wait (`Pending`), to be sorted by themselves and worked in
by one pass over all members, one or two nanoseconds for each, into new blocks with some room.

What is held follows from the numbers alone, however they came: -0.0 counts as 0.0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from learners.arrays import Counts, Matrix, Vector
from learners.jit import bare_kernel, inlined

__all__ = [
    "AT_ONCE",
    "FEW",
    "WIDTH",
    "Ordered",
    "Pending",
    "add",
    "awaited",
    "counts",
    "empty",
    "enter",
    "leave",
    "opened",
    "packed",
    "remove",
    "reserved",
    "select",
    "settled",
    "values",
]

WIDTH = 512
_FILLED = 384  # of a block that a pass over all members makes: room for some additions until it has to be split
FEW = 64  # additions: as many or fewer are made at once, see `opened`
_PER_MOVE = 120  # members that a pass goes over in the time of one addition or removal
_PASS = 4000  # members: likewise, in the time that a pass takes whatever it goes over

# Loops over many members have unsigned indices: a signed one may count from the end, and to allow for that the compiler
# moves one number after the other, which takes up to six times as long.
_NONE, _ONE = np.uint64(0), np.uint64(1)


class Ordered(NamedTuple):
    """The arrays of a multiset; `blocks[order[i], :sizes[i]]` ascend within each i < used[0], and from i to i + 1."""

    blocks: Matrix  # (capacity, WIDTH)
    order: Counts  # (capacity,) a permutation: the blocks in use in order of their values, then the free ones
    sizes: Counts  # (capacity,)
    used: Counts  # (1,)


class Pending(NamedTuple):
    """What comes to a multiset and goes from it, and has not been worked in yet; see `opened`.

    With no room at all, as in `AT_ONCE`, whatever comes or goes does so at once.
    """

    come: Vector  # (most,)
    gone: Vector  # (most,)
    moves: Counts  # (2,) how many of `come`, of `gone`


AT_ONCE = Pending(np.empty(0), np.empty(0), np.zeros(2, dtype=np.int64))


def empty() -> Ordered:
    """No members, and room for a few."""
    return Ordered(np.empty((2, WIDTH)), np.arange(2), np.zeros(2, dtype=np.int64), np.zeros(1, dtype=np.int64))


def reserved(ordered: Ordered, more: int) -> Ordered:
    """The same multiset with room for `more` members to be added, whatever they are."""
    held, used = len(ordered.sizes), int(ordered.used[0])
    if used + more < held:
        return ordered
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


@inlined
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


@inlined
def _within(ordered, at, x, upto):  # type: ignore[no-untyped-def]
    """How many members of the block at place `at` are below x (with `upto`: are not above x)."""
    block = ordered.order[at]
    low, high = 0, ordered.sizes[at]
    while low < high:
        middle = (low + high) // 2
        member = ordered.blocks[block, middle]
        if member < x or (upto and member == x):
            low = middle + 1
        else:
            high = middle
    return low


@inlined
def _count(ordered, x, upto):  # type: ignore[no-untyped-def]
    at = _block(ordered, x, upto)
    total = 0
    for i in range(at):
        total += ordered.sizes[i]
    if at < ordered.used[0]:
        total += _within(ordered, at, x, upto)
    return total


@bare_kernel
def counts(ordered, x):  # type: ignore[no-untyped-def]
    """(how many members are below x, how many are not above x)."""
    return _count(ordered, x, False), _count(ordered, x, True)


@bare_kernel
def select(ordered, rank):  # type: ignore[no-untyped-def]
    """The member with `rank` members before it, from 0: the smallest; NaN where there are not so many. O(blocks)."""
    if rank >= 0:
        for i in range(ordered.used[0]):
            if rank < ordered.sizes[i]:
                return ordered.blocks[ordered.order[i], rank]
            rank -= ordered.sizes[i]
    return np.nan


@bare_kernel
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


@bare_kernel
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


@inlined
def _shift_up(blocks, block, place, n):  # type: ignore[no-untyped-def]
    """Move the members from `place` on, of n, one place up."""
    i, first = np.uint64(n), np.uint64(place)
    while i > first:
        blocks[block, i] = blocks[block, i - _ONE]
        i -= _ONE


@inlined
def _shift_down(blocks, block, place, n):  # type: ignore[no-untyped-def]
    """Move the members behind `place`, of n, one place down, over the one there."""
    for i in range(np.uint64(place + 1), np.uint64(n)):
        blocks[block, i - _ONE] = blocks[block, i]


@bare_kernel
def add(ordered, x):  # type: ignore[no-untyped-def]
    """Add x once. There must be room; see `reserved`."""
    if ordered.used[0] == 0:
        _open(ordered, 0)
    at = min(_block(ordered, x, True), ordered.used[0] - 1)
    if ordered.sizes[at] == WIDTH:
        _open(ordered, at + 1)
        half = WIDTH // 2
        lower, upper = ordered.order[at], ordered.order[at + 1]
        for i in range(half):
            ordered.blocks[upper, i] = ordered.blocks[lower, half + i]
        ordered.sizes[at] = half
        ordered.sizes[at + 1] = half
        if x >= ordered.blocks[upper, 0]:
            at += 1
    block, n = ordered.order[at], ordered.sizes[at]
    place = _within(ordered, at, x, True)
    _shift_up(ordered.blocks, block, place, n)
    ordered.blocks[block, place] = x + 0.0  # -0.0 becomes 0.0
    ordered.sizes[at] = n + 1


@bare_kernel
def _merge(ordered, at):  # type: ignore[no-untyped-def]
    """Make one block of those at `at` and `at + 1` if both are there and half a block holds them."""
    if at < 0 or at + 1 >= ordered.used[0] or ordered.sizes[at] + ordered.sizes[at + 1] > WIDTH // 2:
        return
    lower, upper = ordered.order[at], ordered.order[at + 1]
    n = ordered.sizes[at]
    for i in range(ordered.sizes[at + 1]):
        ordered.blocks[lower, n + i] = ordered.blocks[upper, i]
    ordered.sizes[at] = n + ordered.sizes[at + 1]
    _close(ordered, at + 1)


@bare_kernel
def remove(ordered, x):  # type: ignore[no-untyped-def]
    """Take x out once; it must be a member."""
    at = _block(ordered, x, False)
    block, n = ordered.order[at], ordered.sizes[at]
    _shift_down(ordered.blocks, block, _within(ordered, at, x, False), n)
    ordered.sizes[at] = n - 1
    if n == 1:
        _close(ordered, at)
    else:
        _merge(ordered, at)
        _merge(ordered, at - 1)


def opened(ordered: Ordered, come: int, gone: int) -> tuple[Ordered, Pending]:
    """The same multiset, ready for up to `come` calls of `enter` and `gone` of `leave`, and what those are to be given.

    A few of them act at once. More than that wait, until `settled` works them in: up to then what is held is what was.
    """
    if come <= FEW:
        return reserved(ordered, come), AT_ONCE
    return ordered, Pending(np.empty(come), np.empty(gone), np.zeros(2, dtype=np.int64))


@inlined
def enter(ordered, pending, x):  # type: ignore[no-untyped-def]
    """Add x once, now or later."""
    if pending.come.shape[0] == 0:
        add(ordered, x)
    else:
        pending.come[pending.moves[0]] = x
        pending.moves[0] += 1


@inlined
def leave(ordered, pending, x):  # type: ignore[no-untyped-def]
    """Take x out once, now or later; it must be a member, or have entered and wait to become one."""
    if pending.come.shape[0] == 0:
        remove(ordered, x)
    else:
        pending.gone[pending.moves[1]] = x
        pending.moves[1] += 1


@bare_kernel
def awaited(pending, x):  # type: ignore[no-untyped-def]
    """What is to be added to `counts` of the multiset because of what waits. O(what waits), some 0.1 ns for each."""
    below = upto = 0
    for i in range(pending.moves[0]):
        below += pending.come[i] < x
        upto += pending.come[i] <= x
    for i in range(pending.moves[1]):
        below -= pending.gone[i] < x
        upto -= pending.gone[i] <= x
    return below, upto


@bare_kernel
def _one_by_one(ordered, pending):  # type: ignore[no-untyped-def]
    for i in range(pending.moves[0]):
        add(ordered, pending.come[i])
    for i in range(pending.moves[1]):
        remove(ordered, pending.gone[i])


@inlined
def _put(blocks, block, at, x):  # type: ignore[no-untyped-def]
    """Write x behind the last place written, (block, at - 1); the new one, likewise."""
    if at == _FILLED:
        block += _ONE
        at = _NONE
    blocks[block, at] = x
    return block, at + _ONE


@bare_kernel
def _pass(ordered, come, gone, blocks):  # type: ignore[no-untyped-def]
    """Fill blocks with the members and with `come`, but without `gone`; both of these ascend."""
    # beyond the ends: infinity is below no member, and NaN equals none
    coming = come[0] if come.shape[0] > 0 else np.inf
    going = gone[0] if gone.shape[0] > 0 else np.nan
    c = g = 0
    block = at = _NONE
    for i in range(ordered.used[0]):
        row = ordered.order[i]
        for j in range(np.uint64(ordered.sizes[i])):
            x = ordered.blocks[row, j]
            while coming < x:
                if coming == going:
                    g += 1
                    going = gone[g] if g < gone.shape[0] else np.nan
                else:
                    block, at = _put(blocks, block, at, coming + 0.0)  # -0.0 becomes 0.0
                c += 1
                coming = come[c] if c < come.shape[0] else np.inf
            if x == going:
                g += 1
                going = gone[g] if g < gone.shape[0] else np.nan
            else:
                block, at = _put(blocks, block, at, x)
    for i in range(c, come.shape[0]):
        if come[i] == going:
            g += 1
            going = gone[g] if g < gone.shape[0] else np.nan
        else:
            block, at = _put(blocks, block, at, come[i] + 0.0)


def settled(ordered: Ordered, pending: Pending) -> Ordered:
    """The multiset once what waited has come and gone. O(members) at most; `ordered` is not to be used any more.

    What has gone needs to have been a member, or to have come.
    """
    came, went = pending.moves.tolist()
    if not came and not went:
        return ordered
    members = int(ordered.sizes.sum())
    if _PER_MOVE * (came + went) < members + _PASS:
        ordered = reserved(ordered, came)
        _one_by_one(ordered, pending)
        return ordered
    out = _blocks_of(members + came - went, _FILLED, len(ordered.sizes))
    _pass(ordered, np.sort(pending.come[:came]), np.sort(pending.gone[:went]), out.blocks)
    return out


@bare_kernel
def _copy_out(ordered, out):  # type: ignore[no-untyped-def]
    at = _NONE
    for i in range(ordered.used[0]):
        block = ordered.order[i]
        for j in range(np.uint64(ordered.sizes[i])):
            out[at] = ordered.blocks[block, j]
            at += _ONE


def values(ordered: Ordered) -> Vector:
    """All members, ascending, as an array of its own. O(members)."""
    out = np.empty(int(ordered.sizes.sum()))
    _copy_out(ordered, out)
    return out


def _blocks_of(members: int, filled: int, least: int = 0) -> Ordered:
    """Blocks for so many members, `filled` in each but the last, to be written; `least` blocks, free ones counted."""
    used = -(-members // filled)
    capacity = max(used + 1, least)
    sizes = np.zeros(capacity, dtype=np.int64)
    sizes[:used] = filled
    if members % filled:
        sizes[used - 1] = members % filled
    return Ordered(np.empty((capacity, WIDTH)), np.arange(capacity), sizes, np.array([used], dtype=np.int64))


def packed(ascending: Vector) -> Ordered:
    """The multiset of some ascending numbers, in full blocks, with room for no more. O(members)."""
    out = _blocks_of(len(ascending), WIDTH)
    np.add(ascending, 0.0, out=out.blocks.reshape(-1)[: len(ascending)])  # -0.0 becomes 0.0
    return out
