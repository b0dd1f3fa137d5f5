"""The journal of a learner: what people noted, and what changed it, each at its place on the learner's time line.

The last 64 entries of each kind are stored:

    note             of a person, about this moment: a deployment, a campaign
    acknowledgement  of a person, of an alarm; one for each time that the alarm was raised or reopened
    settings         settings changed
    restore          the learner was rolled back; the journal is not, because notes are about what happened
    fit              a fit in the background was applied

The state is one array of JSON.
"""

from __future__ import annotations

import json
import math
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from learners.numerics import MAX_COUNT, Issues

__all__ = ["JOURNAL_KINDS", "MAX_NOTE", "MAX_WRITER", "Journal", "JournalEntry", "text_fault"]

JOURNAL_KINDS = ("note", "acknowledgement", "settings", "restore", "fit")
MAX_NOTE, MAX_WRITER = 1000, 100  # characters
_STORED = 64  # entries of a kind
_LINES = "\n\t"  # control characters of a text


def text_fault(text: object, longest: int, *, empty: bool = False) -> str | None:
    """Return why a text cannot be shown as it is, or None."""
    if not isinstance(text, str):
        return "is not text"
    if not (empty or text.strip()):
        return "is blank"
    if len(text) > longest:
        return f"has {len(text)} characters; expected at most {longest}"
    if any(unicodedata.category(character) in ("Cc", "Cs") and character not in _LINES for character in text):
        return "has control characters"
    return None


class JournalEntry(NamedTuple):
    """One entry."""

    number: int  # ordinal among all entries
    kind: str  # of `JOURNAL_KINDS`
    events: int  # labelled events by then
    clock: float | None  # the learner's clock by then
    time: float | None  # seconds since the epoch, by the clock of the node; None: not of a person
    by: str | None  # what the person calls themselves
    key: str | None  # id of the key that the person had
    text: str
    data: dict[
        str, Any
    ]  # {"alarm", "reopened"}, the changed settings, {"position"}, {"events"} of the fit; of a note {}


@dataclass(frozen=True)
class Journal:
    """The entries at one moment, in order; it never changes."""

    count: int = 0  # of all entries so far
    entries: tuple[JournalEntry, ...] = ()

    def add(
        self,
        kind: str,
        events: int,
        clock: float,
        data: Mapping[str, Any],
        *,
        time: float | None = None,
        by: str | None = None,
        key: str | None = None,
        text: str = "",
    ) -> Journal:
        """Return a journal with one more entry, without the oldest of its kind if there are too many. O(entries).

        `clock` is NaN if unknown.
        """
        moment = None if math.isnan(clock) else clock
        entry = JournalEntry(self.count, kind, events, moment, time, by, key, text, dict(data))
        alike = [other.number for other in self.entries if other.kind == kind]
        least = alike[1 - _STORED] if len(alike) >= _STORED else 0
        rest = (other for other in self.entries if other.kind != kind or other.number >= least)
        return replace(self, count=self.count + 1, entries=(*rest, entry))

    @cached_property
    def acknowledged(self) -> dict[tuple[int, int], JournalEntry]:
        """The acknowledgements by the number of the alarm, and how often it was reopened before."""
        return {
            (entry.data["alarm"], entry.data["reopened"]): entry
            for entry in self.entries
            if entry.kind == "acknowledgement"
        }

    # Saving

    @cached_property
    def array(self) -> NDArray[np.uint8]:
        """The array of the state: JSON in ASCII; empty before the first entry."""
        if not self.count:
            return np.zeros(0, dtype=np.uint8)
        document = {"count": self.count, "entries": self.entries}
        return np.frombuffer(bytearray(json.dumps(document, separators=(",", ":")).encode()), dtype=np.uint8)

    @classmethod
    def of(cls, array: NDArray[Any]) -> Journal:
        """Read an array of the state. Raises ValueError for one that no journal has."""
        if not array.size:
            return cls()
        try:
            document = json.loads(array.astype(np.uint8).tobytes())
            count, rows = document["count"], document["entries"]
            entries = tuple(JournalEntry(*row) for row in rows)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise ValueError(f"is not readable: {type(error).__name__}") from error
        if document.keys() != {"count", "entries"} or not _is_count(count):
            raise ValueError("is not a count and entries")
        last = -1
        for entry in entries:
            if fault := _fault(entry):
                raise ValueError(f"has an entry whose {fault}")
            if not last < entry.number < count:
                raise ValueError("has entries whose numbers do not ascend up to the count")
            last = entry.number
        if any(sum(entry.kind == kind for entry in entries) > _STORED for kind in JOURNAL_KINDS):
            raise ValueError(f"has more than {_STORED} entries of a kind")
        return cls(count, entries)

    @staticmethod
    def problems(array: NDArray[Any]) -> Issues:
        """Report an array that no journal has."""
        try:
            Journal.of(array)
        except ValueError as error:
            yield "journal", str(error)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT


def _is_moment(value: object) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value))


def _fault(entry: JournalEntry) -> str | None:
    """Return the member of an entry that no journal has, or None."""
    if entry.kind not in JOURNAL_KINDS:
        return "kind is unknown"
    if not (_is_count(entry.number) and _is_count(entry.events)):
        return "number or events are no counts"
    if not (_is_moment(entry.clock) and _is_moment(entry.time)):
        return "times are no numbers"
    if any(name is not None and text_fault(name, MAX_WRITER) for name in (entry.by, entry.key)):
        return "writer is no name"
    if text_fault(entry.text, MAX_NOTE, empty=entry.kind != "note"):
        return "text is none"
    if not isinstance(entry.data, dict):
        return "data are no object"
    counts = {"acknowledgement": {"alarm", "reopened"}, "restore": {"position"}, "fit": {"events"}, "note": set()}
    if entry.kind in counts and not (
        entry.data.keys() == counts[entry.kind] and all(map(_is_count, entry.data.values()))
    ):
        return "data do not go with its kind"
    return None
