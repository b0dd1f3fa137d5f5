"""Which events were learnt already: hashes of the last ids, and the next offset of each source.

Both are part of the learner's state, so that every node and every replay decides alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from learners.arrays import Words
from learners.batch import Segment
from learners.hashing import hash_strings
from learners.jit import kernel
from learners.ranges import MAX_COUNT, Issues, outside

__all__ = ["MAX_SOURCES", "MAX_SOURCE_NAME", "RecentIds", "Sources"]

MAX_SOURCES = 64  # the one that was quiet for longest is forgotten first
MAX_SOURCE_NAME = 200  # UTF-8 bytes
_MAX_OFFSET = 2**62  # no producer counts so far, and sums stay within int64


@kernel
def _place(table, h):  # type: ignore[no-untyped-def]
    mask = table.shape[0] - 1
    at = np.int64(h & np.uint64(mask))
    while table[at] != 0 and table[at] != h:
        at = (at + 1) & mask
    return at


@kernel
def _remove(table, h):  # type: ignore[no-untyped-def]
    """Take `h` out and close the gap, so that every chain stays whole."""
    mask = table.shape[0] - 1
    gap = _place(table, h)
    at = gap
    while True:
        at = (at + 1) & mask
        if table[at] == 0:
            break
        home = np.int64(table[at] & np.uint64(mask))
        if ((at - home) & mask) >= ((at - gap) & mask):
            table[gap] = table[at]
            gap = at
    table[gap] = 0


@kernel
def _admit(hashes, fresh, ring, table, capacity, count):  # type: ignore[no-untyped-def]
    for i in range(hashes.shape[0]):
        h = hashes[i]
        if h == 0 or not fresh[i]:  # without an id, or a duplicate for another reason
            continue
        at = _place(table, h)
        if table[at] == h:
            fresh[i] = False
            continue
        if count >= capacity:
            _remove(table, ring[count % capacity])
            at = _place(table, h)
        table[at] = h
        ring[count % capacity] = h
        count += 1
    return count


@kernel
def _fill(table, ring):  # type: ignore[no-untyped-def]
    for i in range(ring.shape[0]):
        table[_place(table, ring[i])] = ring[i]


class RecentIds:
    """The 64-bit hashes of the last `capacity` distinct ids. O(1) per event; 8 bytes of state per id."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.count = 0  # ids ever admitted
        self._ring: Words = np.zeros(min(capacity, 64), dtype=np.uint64)
        self._table: Words = np.zeros(256, dtype=np.uint64)

    @property
    def held(self) -> int:
        """How many are remembered."""
        return min(self.count, self.capacity)

    def admit(self, ids: Sequence[str | None], fresh: NDArray[np.bool_]) -> None:
        """Clear `fresh` (n,) where an id was seen before; remember the others that are fresh."""
        hashes = hash_strings([one or "" for one in ids])
        hashes[hashes == 0] = 1  # 0 means "no id"
        hashes[[one is None for one in ids]] = 0
        self._reserve(min(self.held + len(ids), self.capacity))
        self.count = _admit(hashes, fresh, self._ring, self._table, self.capacity, self.count)

    def _reserve(self, most: int) -> None:
        if len(self._ring) < most:
            longer = np.zeros(min(self.capacity, 1 << (most - 1).bit_length()), dtype=np.uint64)
            longer[: self.held] = self._ring[: self.held]
            self._ring = longer
        if len(self._table) < 2 * most:
            self._table = np.zeros(1 << (4 * most - 1).bit_length(), dtype=np.uint64)
            _fill(self._table, self._ring[: self.held])

    def state(self) -> dict[str, NDArray[np.generic]]:
        """The arrays of the state."""
        return {"count": np.array([self.count], dtype=np.int64), "ring": self._ring[: self.held]}

    def problems(self, state: dict[str, NDArray[np.generic]]) -> Issues:
        """What no ids can have led to in a state of the right shapes."""
        yield from outside("count", state["count"], 0, MAX_COUNT)
        if not state["ring"].all():
            yield "ring", "has 0, which stands for no id"

    def restore(self, state: dict[str, NDArray[np.generic]]) -> None:
        """Take the arrays of a state."""
        self.count = int(state["count"][0])
        self._ring = np.array(state["ring"], dtype=np.uint64)
        self._table = np.zeros(1 << max(8, (4 * max(self.held, 1) - 1).bit_length()), dtype=np.uint64)
        _fill(self._table, self._ring)


class Sources:
    """For each named source, the number of the next event that is new."""

    def __init__(self) -> None:
        self.next: dict[str, int] = {}  # in order of use, the latest last

    def admit(self, segments: Sequence[Segment], fresh: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Clear `fresh` (n,) for events that are not next in their source, and move the offsets on.

        Returns which events lie beyond a gap, (n,): a segment that begins after the next event of a known source is
        left out as a whole, since learning it would turn the events of the gap into duplicates. A source that is not
        known yet may begin anywhere.
        """
        beyond = np.zeros(len(fresh), dtype=np.bool_)
        for start, stop, name, offset in segments:
            new = self.next.get(name, offset)
            if offset > new:
                fresh[start:stop] = False
                beyond[start:stop] = True
                continue
            self.next.pop(name, None)
            fresh[start : min(stop, start + new - offset)] = False
            self.next[name] = max(new, offset + stop - start)
            if len(self.next) > MAX_SOURCES:
                self.next.pop(next(iter(self.next)))
        return beyond

    def state(self) -> dict[str, NDArray[np.generic]]:
        """The arrays of the state."""
        names = [name.encode("utf-8", "surrogatepass") for name in self.next]
        return {
            "names": np.frombuffer(b"".join(names), dtype=np.uint8),
            "lengths": np.array([len(name) for name in names], dtype=np.int64),
            "offsets": np.array(list(self.next.values()), dtype=np.int64),
        }

    def problems(self, state: dict[str, NDArray[np.generic]]) -> Issues:
        """What no segments can have led to in a state of the right shapes."""
        if len(state["lengths"]) > MAX_SOURCES:
            yield "lengths", f"has {len(state['lengths'])} sources; expected at most {MAX_SOURCES}"
        yield from outside("offsets", state["offsets"], 0, _MAX_OFFSET)
        wrong = list(outside("lengths", state["lengths"], 0, len(state["names"])))
        yield from wrong
        if wrong:
            return
        try:
            names = _names(state)
        except UnicodeDecodeError:
            yield "names", "is not UTF-8 when cut by the lengths"
        else:
            if len(set(names)) < len(names):
                yield "names", "has a source twice"

    def restore(self, state: dict[str, NDArray[np.generic]]) -> None:
        """Take the arrays of a state."""
        self.next = dict(zip(_names(state), state["offsets"].tolist(), strict=True))


def _names(state: dict[str, NDArray[np.generic]]) -> list[str]:
    """The sources of a state, in order of use."""
    text, ends = state["names"].tobytes(), np.cumsum(state["lengths"].astype(np.int64)).tolist()
    return [text[start:end].decode("utf-8", "surrogatepass") for start, end in pairwise([0, *ends])]
