"""Deduplication of events: the last ids with their predictions, and the next offset of each source.

Both are part of the learner's state. So every node and every replay decides alike what is a duplicate, and what
corrects a label.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from learners.metrics import lengthen, ring_capacity
from learners.numerics import MAX_COUNT, Counts, Issues, Vector, Words, bare_kernel, hash_table, hashes_of, outside
from learners.records import LateColumns, Segment, Status

__all__ = ["MAX_SOURCES", "MAX_SOURCE_NAME", "RecentIds", "Sources"]

MAX_SOURCES = 64  # the least recently used one is dropped first
MAX_SOURCE_NAME = 200  # UTF-8 bytes
_MAX_OFFSET = 2**62  # no producer counts this far, and sums stay within int64


_APPLIED, _DUPLICATE = int(Status.APPLIED), int(Status.DUPLICATE)
_RELABELLED, _UNKNOWN = int(Status.RELABELLED), int(Status.UNKNOWN)


class RememberedEvents(NamedTuple):
    """The remembered events, by slot of the ring, (slots,) each."""

    ring: Words  # hash of the id
    labels: NDArray[np.int8]  # -1 or +1, or the rank: the latest label
    numbers: Counts  # number of the labelled event, from 0
    scores: Vector  # the prediction from before the label, like the following
    probabilities: Vector
    decisions: NDArray[np.int8]


@bare_kernel
def _admit(hashes, y, bare, assumed, status, slots, start, learnt, table, capacity, count):  # type: ignore[no-untyped-def]
    """Admit events up to the next whose id has another label; return its index, or n, and the new count of ids."""
    for i in range(start, hashes.shape[0]):
        h = hashes[i]
        if h == 0 or status[i] != _APPLIED:  # without an id, or left out for another reason
            continue
        slot = hash_table.find(learnt.ring, table, h)
        if slot >= 0:
            if assumed[i] or learnt.labels[slot] == y[i]:
                status[i] = _DUPLICATE
                continue
            status[i] = _RELABELLED
            slots[i] = slot
            return i, count
        if bare[i]:
            status[i] = _UNKNOWN
            continue
        slot = count % capacity
        hash_table.put(learnt.ring, table, slot, h)
        learnt.labels[slot] = np.int8(y[i])
        slots[i] = slot
        count += 1
    return hashes.shape[0], count


@bare_kernel
def _note(learnt, slots, number, scores, probabilities, decisions):  # type: ignore[no-untyped-def]
    """Store the predictions of events that have a slot."""
    for i in range(slots.shape[0]):
        slot = slots[i]
        if slot >= 0:
            learnt.numbers[slot] = number + i
            learnt.scores[slot] = scores[i]
            learnt.probabilities[slot] = probabilities[i]
            learnt.decisions[slot] = decisions[i]


class RecentIds:
    """The last `capacity` distinct learnt ids, by their 64-bit hashes, with what a correction needs.

    O(1) per event; 34 bytes of state per id.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.count = 0  # ids ever admitted
        self._learnt = _allocate(ring_capacity(0, capacity))
        self._table = hash_table.table_for(self._learnt.ring, 0)

    @property
    def remembered(self) -> int:
        """Number of remembered ids."""
        return min(self.count, self.capacity)

    def admit(
        self,
        hashes: Words,
        y: Vector,
        late: LateColumns,
        status: NDArray[np.int8],
        slots: Counts,
        start: int,
    ) -> int:
        """Admit events from `start` on, up to the next whose id has another label; return its index, or n.

        Fills `status` (n,) where an id decides it, and `slots` (n,) with the slots of ids. The caller learns the events
        before the index, stores their predictions (`note`), corrects the event at the index, and goes on after it.
        """
        self._reserve(min(self.remembered + len(hashes) - start, self.capacity))
        stop, self.count = _admit(
            hashes,
            y,
            late.bare,
            late.assumed,
            status,
            slots,
            start,
            self._learnt,
            self._table,
            self.capacity,
            self.count,
        )
        return int(stop)

    def note(self, slots: Counts, number: int, scores: Vector, probabilities: Vector, decisions: Counts) -> None:
        """Store the predictions of n events, numbered from `number`; a slot of -1 in `slots` (n,) means no id."""
        _note(self._learnt, slots, number, scores, probabilities, decisions)

    def relabel(self, slot: int, label: float) -> tuple[int, float, float, float, int]:
        """Change the label of a remembered event; return (number, label before, score, probability, decision)."""
        learnt = self._learnt
        before = float(learnt.labels[slot])
        learnt.labels[slot] = int(label)
        values = float(learnt.scores[slot]), float(learnt.probabilities[slot])
        return int(learnt.numbers[slot]), before, *values, int(learnt.decisions[slot])

    def find_learnt(self, ids: Sequence[str]) -> NDArray[np.bool_]:
        """Return which of n ids are remembered, (n,)."""
        return np.array([slot >= 0 for slot in self._slots(ids)], dtype=np.bool_)

    def _slots(self, ids: Sequence[str]) -> list[int]:
        """Find the slot of each id; -1 if it is not remembered."""
        return [hash_table.find(self._learnt.ring, self._table, h) for h in hashes_of(ids)]

    def scores(self, ids: Sequence[str]) -> Vector:
        """Return the score of each of n ids from before its label, (n,); NaN if it is not remembered."""
        return np.array([self._learnt.scores[slot] if slot >= 0 else np.nan for slot in self._slots(ids)])

    def labels(self, ids: Sequence[str]) -> Vector:
        """Return the latest label of each of n ids, (n,): -1, +1, or the rank; NaN if it is not remembered."""
        return np.array([self._learnt.labels[slot] if slot >= 0 else np.nan for slot in self._slots(ids)])

    def _reserve(self, most: int) -> None:
        """Make room for so many ids."""
        if len(self._learnt.ring) < most:
            slots = ring_capacity(most, self.capacity)
            self._learnt = RememberedEvents._make(lengthen(array, slots) for array in self._learnt)
        if len(self._table) < 2 * most:
            self._table = hash_table.table_for(self._learnt.ring, 2 * most)

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return the arrays of the state."""
        arrays = {name: array[: self.remembered] for name, array in self._learnt._asdict().items()}
        return {"count": np.array([self.count], dtype=np.int64), **arrays}

    def problems(self, state: dict[str, NDArray[np.generic]], ranks: int | None) -> Issues:
        """Report what no ids can have led to in a state of the right shapes. O(capacity log capacity).

        If `ranks` is None, labels are -1 and +1, and decisions 0 and 1. Else both are ranks without probabilities.
        """
        if len(np.unique(state["ring"])) < len(state["ring"]):
            yield "ring", "has an id twice"
        elif not state["ring"].all():
            yield "ring", "has 0, which stands for no id"
        if ranks is None:
            if not np.isin(state["labels"], (-1, 1)).all():
                yield "labels", "has numbers that are not -1 or 1"
            yield from outside("decisions", state["decisions"], 0, 1)
            yield from outside("probabilities", state["probabilities"], 0.0, 1.0)
        else:
            yield from outside("labels", state["labels"], 1, ranks)
            yield from outside("decisions", state["decisions"], 1, ranks)
            if not np.isnan(state["probabilities"].astype(np.float64)).all():
                yield "probabilities", "has numbers, but ranks have no probabilities"
        wrong = [*outside("count", state["count"], 0, MAX_COUNT), *outside("numbers", state["numbers"], 0, MAX_COUNT)]
        yield from wrong
        if not wrong:
            oldest = int(state["count"][0]) % self.capacity if len(state["numbers"]) == self.capacity else 0
            if (np.diff(np.roll(state["numbers"].astype(np.int64), -oldest)) <= 0).any():
                yield "numbers", "does not ascend from the oldest id to the latest"

    def restore(self, state: dict[str, NDArray[np.generic]]) -> None:
        """Take copies of the arrays of a state."""
        self.count = int(state["count"][0])
        self._learnt = _allocate(max(self.remembered, ring_capacity(0, self.capacity)))
        for name, array in self._learnt._asdict().items():
            array[: self.remembered] = state[name]
        self._table = hash_table.table_for(self._learnt.ring, 2 * self.remembered)


def _allocate(slots: int) -> RememberedEvents:
    return RememberedEvents(
        np.zeros(slots, dtype=np.uint64),
        np.zeros(slots, dtype=np.int8),
        np.zeros(slots, dtype=np.int64),
        np.zeros(slots),
        np.zeros(slots),
        np.zeros(slots, dtype=np.int8),
    )


class Sources:
    """The offset of the next new event of each named source."""

    def __init__(self) -> None:
        self.next: dict[str, int] = {}  # in order of use, the latest last

    def copy(self) -> Sources:
        """Return an independent copy."""
        other = Sources()
        other.next = dict(self.next)
        return other

    def admit(self, segments: Sequence[Segment], status: NDArray[np.int8]) -> None:
        """Mark events in `status` (n,) that are not next in their source, and move the offsets on.

        They are duplicates, or beyond a gap. A segment beyond a gap is left out as a whole, because learning it would
        turn the events of the gap into duplicates. A new source may start anywhere.
        """
        for start, stop, name, offset, after in segments:
            new = self.next.get(name, after)
            if after > new:
                status[start:stop] = Status.BEYOND
                continue
            self.next.pop(name, None)
            status[start : min(stop, start + max(0, new - offset))] = Status.DUPLICATE
            self.next[name] = max(new, offset + stop - start)
            if len(self.next) > MAX_SOURCES:
                self.next.pop(next(iter(self.next)))

    @staticmethod
    def gaps(segments: Sequence[Segment], following: Mapping[str, int]) -> list[Segment]:
        """Return the segments that `admit` would leave out if `following` are the next offsets of the sources."""
        reached = dict(following)
        beyond = []
        for segment in segments:
            new = reached.get(segment.name, segment.after)
            if segment.after > new:
                beyond.append(segment)
            else:
                reached[segment.name] = max(new, segment.offset + segment.stop - segment.start)
        return beyond

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return the arrays of the state."""
        names = [name.encode("utf-8", "surrogatepass") for name in self.next]
        return {
            "names": np.frombuffer(b"".join(names), dtype=np.uint8),
            "lengths": np.array([len(name) for name in names], dtype=np.int64),
            "offsets": np.array(list(self.next.values()), dtype=np.int64),
        }

    def problems(self, state: dict[str, NDArray[np.generic]]) -> Issues:
        """Report what no segments can have led to in a state of the right shapes."""
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
        """Take copies of the arrays of a state."""
        self.next = dict(zip(_names(state), state["offsets"].tolist(), strict=True))


def _names(state: dict[str, NDArray[np.generic]]) -> list[str]:
    """Decode the sources of a state, in order of use."""
    text, ends = state["names"].tobytes(), np.cumsum(state["lengths"].astype(np.int64)).tolist()
    return [text[start:end].decode("utf-8", "surrogatepass") for start, end in pairwise([0, *ends])]
