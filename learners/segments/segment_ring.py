"""The values that the labelled events of the window have in the segment fields.

A ring has a byte for each event and field: the slot of its value. A field has 64 slots. A new value takes the lowest
free slot, or is pooled as "other" if there is none. A slot is free again once no event of the ring has its value. So
memory is bounded, values that are frequent get a slot sooner or later, and the result depends on the events alone, not
on batches.

The window's other arrays have the labels, scores and decisions of the same events. Corrected labels and events that
grow too old therefore need no work here.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learners.metrics import MAX_SEGMENT_FIELDS, lengthen, ring_capacity
from learners.numerics import Counts, Issues
from learners.segments.segment_values import (
    MAX_SEGMENT_VALUE,
    NO_VALUE,
    POOLED,
    UNRECORDED,
    SegmentColumns,
)

__all__ = ["BEFORE", "MISSING_VALUE", "OTHER", "SLOTS", "SegmentRing"]

SLOTS = 64  # values of a field
OTHER, MISSING_VALUE, BEFORE = 253, 254, 255  # bytes that are no slots; `BEFORE`: learnt before the field was declared
_BYTES = {POOLED: OTHER, NO_VALUE: MISSING_VALUE, UNRECORDED: BEFORE}


class SegmentRing:
    """The values of the last `size` labelled events; empty if no field is declared."""

    def __init__(self, size: int, fields: tuple[str, ...] = ()) -> None:
        self._size = size
        self._set(fields, [[None] * SLOTS for _ in fields], np.zeros((0, len(fields)), dtype=np.uint8))

    def _set(self, fields: tuple[str, ...], names: list[list[str | None]], codes: NDArray[np.uint8]) -> None:
        self.fields = fields
        self.names = names  # of each field, by slot
        self.codes = codes  # (slots of the ring, fields); event number i is at i % size
        self._slots = [{name: slot for slot, name in enumerate(row) if name is not None} for row in names]
        self._counts = [np.bincount(codes[:, k], minlength=256).tolist() for k in range(len(fields))]

    def change(self, fields: tuple[str, ...], events: int) -> None:
        """Switch to other fields after so many labelled events; the values of fields that stay are kept."""
        if fields == self.fields:
            return
        codes = np.full((ring_capacity(events, self._size) if events and fields else 0, len(fields)), BEFORE, np.uint8)
        names: list[list[str | None]] = [[None] * SLOTS for _ in fields]
        for k, field in enumerate(fields):
            if field in self.fields:
                before = self.fields.index(field)
                codes[:, k], names[k] = self.codes[:, before], self.names[before]
        self._set(fields, names, codes)

    def learn(self, number: int, n: int, columns: SegmentColumns | None) -> None:
        """Take the labelled events `number` to `number + n - 1` with their values. O(n fields)."""
        slots = ring_capacity(number + n, self._size)
        if slots > len(self.codes):
            before = len(self.codes)
            self.codes = lengthen(self.codes, slots)
            self.codes[before:] = BEFORE
            for counts in self._counts:
                counts[BEFORE] += slots - before
        places = (np.arange(number, number + n) % self._size).tolist()
        for k, field in enumerate(self.fields):
            texts: list[str | int] = [UNRECORDED] * n
            if columns is not None and field in columns.fields:
                codes = columns.codes[:, columns.fields.index(field)].tolist()
                texts = [columns.values[code] if code >= 0 else code for code in codes]
            self._learn(k, places, texts)

    def _learn(self, k: int, places: list[int], texts: list[str | int]) -> None:
        """Take the values of one field."""
        ring, counts, slots, names = self.codes[:, k], self._counts[k], self._slots[k], self.names[k]
        for place, text in zip(places, texts, strict=True):
            leaving = int(ring[place])
            counts[leaving] -= 1
            if leaving < SLOTS and not counts[leaving]:
                name, names[leaving] = names[leaving], None
                assert name is not None
                del slots[name]
            if isinstance(text, int):
                code = _BYTES[text]
            elif (code := slots.get(text, OTHER)) == OTHER and len(slots) < SLOTS:
                code = slots[text] = names.index(None)
                names[code] = text
            counts[code] += 1
            ring[place] = code

    def window(self, field: str, numbers: Counts) -> NDArray[np.uint8]:
        """Copy the bytes of the events with these numbers, which must be among the last `size`."""
        column: NDArray[np.uint8] = self.codes[numbers % self._size, self.fields.index(field)]
        return column

    # Saving

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return the arrays of the state, as views; the fields with their values are JSON in ASCII."""
        document = json.dumps([[field, row] for field, row in zip(self.fields, self.names, strict=True)])
        names = np.frombuffer(bytearray(document.encode()), dtype=np.uint8) if self.fields else np.zeros(0, np.uint8)
        return {"codes": self.codes, "names": names}

    def shapes(self, state: dict[str, Any], events: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes of a state's arrays after so many labelled events."""
        fields = state["codes"].shape[1]
        slots = ring_capacity(events, self._size) if fields and events else 0
        return {"codes": (slots, fields), "names": (state["names"].size,)}

    def restore(self, state: dict[str, Any]) -> None:
        """Take copies of the arrays of a state."""
        rows = _rows(state["names"])
        codes = np.array(state["codes"], dtype=np.uint8, order="C")
        self._set(tuple(field for field, _ in rows), [row for _, row in rows], codes)

    @staticmethod
    def problems(state: dict[str, Any]) -> Issues:
        """Report what no events can have led to."""
        try:
            rows = _rows(state["names"])
        except ValueError as error:
            yield "names", str(error)
            return
        codes = state["codes"]
        if len(rows) != codes.shape[1]:
            yield "codes", f"has {codes.shape[1]} fields; names has {len(rows)}"
            return
        for k, (_, row) in enumerate(rows):
            used = np.bincount(codes[:, k], minlength=256)
            if used[SLOTS:OTHER].any():
                yield "codes", "has slots that do not exist"
            elif [name is not None for name in row] != (used[:SLOTS] > 0).tolist():
                yield "names", "does not go with the values of the events"


def _rows(names: NDArray[Any]) -> list[tuple[str, list[str | None]]]:
    """Read the array of fields and values. Raises ValueError for one that no ring has."""
    if not names.size:
        return []
    try:
        rows = [(field, row) for field, row in json.loads(names.astype(np.uint8).tobytes())]
        for field, row in rows:
            texts = [name for name in row if name is not None]
            if not isinstance(field, str) or len(row) != SLOTS or len(set(texts)) < len(texts):
                raise ValueError
            if not all(isinstance(text, str) and 0 < len(text) <= MAX_SEGMENT_VALUE for text in texts):
                raise ValueError
    except (ValueError, TypeError, RecursionError):
        raise ValueError("is not a list of fields, each with its values") from None
    if not len({field for field, _ in rows}) == len(rows) <= MAX_SEGMENT_FIELDS:
        raise ValueError("has a field twice, or too many")
    return rows
