"""Describe the fields of named events: their kinds, what is counted of each, and what is odd about it."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from learners.features.value_rule import EXACT

__all__ = ["COUNTS", "REMARKS", "VALUES", "FieldKind", "FieldSummary"]

REMARKS = ("constant", "unique", "stopped", "rounded")  # see `FieldSummary.remarks`
_MANY = 1000  # values, or events
_EXPECTED = 100  # values in the events without one
_EXPECTED_CHANGES = 20  # in the events with the same value

COUNTS = (
    "numbers",
    "numbers_as_text",
    "booleans",
    "texts",
    "lists",
    "missing_texts",
    "contradictions",
    "new_categories",
    "out_of_range",
)
VALUES = COUNTS.index("lists") + 1  # the first counts add up to the values


class FieldKind(IntEnum):
    """What the values of a field are. The numbers are part of the stored format."""

    UNKNOWN = 0
    NUMBER = 1
    CATEGORY = 2
    TEXT = 3
    LIST = 4
    MIXED = 5


class FieldSummary(NamedTuple):
    """What a learner remembers of one field."""

    name: str
    kind: FieldKind
    declared: bool
    counts: dict[str, int]  # by `COUNTS`
    smallest: float | None  # of the numbers, as they are learnt; None if there were none
    largest: float | None
    low: float | None  # about the 1 % quantile of the numbers that are not 0; None before `field_range` knows it
    high: float | None  # and the 99 % quantile
    last: int | None  # ordinal of the last learnt event that had a value, from 1
    changes: int  # values unlike the one before
    last_change: int  # ordinal of the event that had the last of them
    new_run: int  # values of the last blocks of which nearly all were new

    @property
    def values(self) -> int:
        """Number of events that had a value."""
        return sum(self.counts[name] for name in COUNTS[:VALUES])

    def remarks(self, events: int) -> list[str]:
        """Return what is odd after so many events, of `REMARKS`.

        `constant`: one value so far, or in the last 1,000 events or more, and before, so many had 20 changes or more.
        `unique`: nearly all of the last 1,000 values or more were new, as of an id. `stopped`: the last 1,000 events or
        more have none, and before, so many had 100 or more. `rounded`: numbers beyond 2^53 of an undeclared field,
        which have lost their last digits if they are ids.
        """
        values, last = self.values, self.last or 0
        category = self.kind == FieldKind.CATEGORY
        single = self.counts["new_categories"] <= 1 if category else self.smallest == self.largest
        same = last + 1 - self.last_change
        odd = {
            "constant": (category or self.kind == FieldKind.NUMBER)
            and (single or (same >= _MANY and same * self.changes >= _EXPECTED_CHANGES * self.last_change > 0)),
            "unique": category and self.new_run >= _MANY,
        }
        remarks = [remark for remark, holds in odd.items() if holds and values >= _MANY]
        gap = events - last
        remarks += ["stopped"] * (gap >= _MANY and gap * values >= _EXPECTED * last > 0)
        largest = max(abs(self.smallest or 0.0), abs(self.largest or 0.0))
        return remarks + ["rounded"] * (largest > EXACT and not self.declared)
