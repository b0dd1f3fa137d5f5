"""Read the values of segment fields from events, where these arrive.

Encoded rows hold a hash of each category, not its text. So the values travel beside the rows: in the records of
the log, and in the served events until their labels arrive. A batch has each distinct value once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from learners.features import Dense, Features, Named, SparseColumns, Table, normalised, spelt_category, value_of
from learners.settings import show

__all__ = [
    "MAX_SEGMENT_VALUE",
    "NO_VALUE",
    "POOLED",
    "UNRECORDED",
    "SegmentColumns",
    "join_segment_columns",
    "segment_misfit",
    "segments_of",
]

MAX_SEGMENT_VALUE = 64  # characters of a value; a longer one is pooled

NO_VALUE = -1  # the event lacks the field
POOLED = -2  # a list, or too long: it belongs to "other"
UNRECORDED = -3  # the event arrived before the field was declared


class SegmentColumns(NamedTuple):
    """The values of n events in some fields."""

    fields: tuple[str, ...]
    values: tuple[str, ...]  # distinct, of all fields
    codes: NDArray[np.int32]  # (n, fields): a place in `values`, or a negative code

    def of(self, selection: slice | NDArray[Any]) -> SegmentColumns:
        """Return the values of some events."""
        return self._replace(codes=self.codes[selection])

    def event(self, i: int) -> dict[str, str | int]:
        """Return the values of one event by field, or their negative codes."""
        codes = self.codes[i].tolist()
        return {field: self.values[code] if code >= 0 else code for field, code in zip(self.fields, codes, strict=True)}

    @classmethod
    def gather(cls, events: Sequence[Mapping[str, str | int] | None]) -> SegmentColumns | None:
        """Combine what `event` returned for n events, or None for an event without; None if all are without."""
        fields = tuple(dict.fromkeys(field for event in events if event is not None for field in event))
        if not fields:
            return None
        places: dict[str, int] = {}
        codes = np.full((len(events), len(fields)), UNRECORDED, dtype=np.int32)
        for i, event in enumerate(events):
            for k, field in enumerate(fields if event is not None else ()):
                value = (event or {}).get(field, UNRECORDED)
                codes[i, k] = value if isinstance(value, int) else places.setdefault(value, len(places))
        return cls(fields, tuple(places), codes)


def join_segment_columns(parts: Sequence[SegmentColumns | None], sizes: Sequence[int]) -> SegmentColumns | None:
    """Join the values of batches of these sizes in order; None if no part has any."""
    present = [part for part in parts if part is not None]
    if not present:
        return None
    fields = tuple(dict.fromkeys(field for part in present for field in part.fields))
    places: dict[str, int] = {}
    joined = np.full((sum(sizes), len(fields)), UNRECORDED, dtype=np.int32)
    start = 0
    for part, size in zip(parts, sizes, strict=True):
        if part is not None:
            # negative codes stay: they are places from the end of the table
            table = [places.setdefault(value, len(places)) for value in part.values] + [UNRECORDED, POOLED, NO_VALUE]
            translated = np.array(table, dtype=np.int32)[part.codes]
            for k, field in enumerate(part.fields):
                joined[start : start + size, fields.index(field)] = translated[:, k]
        start += size
    return SegmentColumns(fields, tuple(places), joined)


def segment_misfit(features: Features, field: str) -> str | None:
    """Explain why `field` cannot be a segment field with these features; None if it can."""
    if isinstance(features, (Dense, SparseColumns)):
        if not field.isascii() or not field.isdecimal() or str(int(field)) != field or int(field) >= features.dim:
            return f"has {show(field)}; expected numbers of columns, from 0 to {features.dim - 1}"
    elif isinstance(features, Table):
        names = [declared.name for declared in features.fields if declared.kind == "categorical"]
        if field not in names:
            return f"has {show(field)}; expected categorical fields: {', '.join(names)[:300] or 'there are none'}"
    elif isinstance(features, Named):
        if not field or field != normalised(field):
            return f"has {show(field)}; expected names of fields, trimmed and in form NFC"
        for kind, others in (("text", features.text), ("log", features.log)):
            if field in others:
                return f"has {show(field)}, which is declared as {kind}; expected fields of categories"
    return None


def segments_of(features: Features, fields: tuple[str, ...], values: Any) -> SegmentColumns:
    """Read the values of n events from features that `Features.encode` accepted; see `costs_of`. O(n fields)."""
    columns = [_column(features, field, values) for field in fields]
    places: dict[str, int] = {}
    codes = np.empty((_count(values), len(fields)), dtype=np.int32)
    for k, column in enumerate(columns):
        codes[:, k] = [value if isinstance(value, int) else places.setdefault(value, len(places)) for value in column]
    return SegmentColumns(fields, tuple(places), codes)


def _count(values: Any) -> int:
    return int(values.shape[0]) if hasattr(values, "shape") else len(values)


def _column(features: Features, field: str, values: Any) -> list[str | int]:
    """Return the text of each event's value, or its negative code."""
    if hasattr(values, "tocsc"):
        values, field = values.tocsc()[:, [int(field)]].toarray(), "0"
    if isinstance(values, np.ndarray) and values.ndim == 2:
        distinct, places = np.unique(values[:, int(field)], return_inverse=True)
        texts = [_text(value) for value in distinct.tolist()]
        return [texts[place] for place in places.ravel().tolist()]
    if isinstance(features, Dense):
        return [_text(_plain(event[int(field)])) for event in values]
    if isinstance(features, SparseColumns):
        return [_text(_entry(indices, numbers, int(field))) for indices, numbers in values]
    texts_of_strings: dict[str, str | int] = {}  # few values make most of a stream
    column: list[str | int] = []
    for event in values:
        value = value_of(event, field)
        if type(value) is str:
            text = texts_of_strings.get(value)
            if text is None:
                text = texts_of_strings[value] = _text(value)
            column.append(text)
        else:
            column.append(_text(_plain(value)))
    return column


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _entry(indices: Any, numbers: Any, column: int) -> Any:
    """Return the number in a column of a sparse event; 0 if it lacks the column."""
    return next((_plain(number) for index, number in zip(indices, numbers, strict=True) if index == column), 0)


def _text(value: Any) -> str | int:
    if isinstance(value, (list, tuple)):
        return POOLED
    text = spelt_category(value)
    if text is None:
        return NO_VALUE
    return text if len(text) <= MAX_SEGMENT_VALUE else POOLED
