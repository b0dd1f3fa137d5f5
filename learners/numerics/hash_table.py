"""Find the slot of a ring that holds an id: a hash table beside the ring's 64-bit hashes.

The ring is part of a state. The table is derived from it and rebuilt on restore. It uses open addressing with linear
probing and is at most half full, so a look-up is O(1). 0 stands for no id; `hashes_of` never returns it for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from learners.numerics.arrays import Counts, Words
from learners.numerics.hashing import hash_strings
from learners.numerics.jit import bare_kernel

__all__ = ["find", "hashes_of", "put", "table_for"]


def hashes_of(ids: Sequence[str | None]) -> Words:
    """Hash each id to 64 bits, (n,); 0 for None."""
    incomplete = None in ids
    hashes = hash_strings([text or "" for text in ids] if incomplete else cast(Sequence[str], ids))
    hashes[hashes == 0] = 1
    if incomplete:
        hashes[[text is None for text in ids]] = 0
    return hashes


def table_for(ring: Words, room: int) -> Counts:
    """Build the table of a ring (slots,), with room for `room` ids."""
    table: Counts = np.zeros(1 << max(8, (2 * max(room, len(ring), 1) - 1).bit_length()), dtype=np.int64)
    _fill(ring, table)
    return table


@bare_kernel
def _place(ring, table, h):  # type: ignore[no-untyped-def]
    """Return the place of h in the table, or the free place for it."""
    mask = table.shape[0] - 1
    at = np.int64(h & np.uint64(mask))
    while table[at] != 0 and ring[table[at] - 1] != h:
        at = (at + 1) & mask
    return at


@bare_kernel
def find(ring, table, h):  # type: ignore[no-untyped-def]
    """Return the slot that holds h, or -1; -1 for 0."""
    if h == 0:
        return -1
    return table[_place(ring, table, h)] - 1


@bare_kernel
def _remove(ring, table, h):  # type: ignore[no-untyped-def]
    """Remove h and close the gap, so that every chain stays connected."""
    mask = table.shape[0] - 1
    gap = _place(ring, table, h)
    at = gap
    while True:
        at = (at + 1) & mask
        if table[at] == 0:
            break
        home = np.int64(ring[table[at] - 1] & np.uint64(mask))
        if ((at - home) & mask) >= ((at - gap) & mask):
            table[gap] = table[at]
            gap = at
    table[gap] = 0


@bare_kernel
def put(ring, table, slot, h):  # type: ignore[no-untyped-def]
    """Replace the slot's hash by h, which no other slot holds; h may be 0."""
    if ring[slot] != 0:
        _remove(ring, table, ring[slot])
    ring[slot] = h
    if h != 0:
        table[_place(ring, table, h)] = slot + 1


@bare_kernel
def _fill(ring, table):  # type: ignore[no-untyped-def]
    for slot in range(ring.shape[0]):
        if ring[slot] != 0:
            table[_place(ring, table, ring[slot])] = slot + 1
