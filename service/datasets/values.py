"""Parses the cells of a file: labels and ranks, numbers, times, ids, weights. No I/O.

Every function raises `ValueError` with a text that says what is wrong; the readers add file and line.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any

__all__ = [
    "BinaryLabels",
    "Ranks",
    "RowColumns",
    "column_kind",
    "identity",
    "is_number",
    "known_labels",
    "number",
    "timestamp",
    "weight",
]

# of a number or an id, in any case; the last is that of databases
MISSING = frozenset({"", "nan", "na", "n/a", "<na>", "#n/a", "#na", "null", "none", "?", "-", "--", "\\n"})

_PAIRS: tuple[tuple[str, str], ...] = (
    ("0", "1"),
    ("-1", "1"),
    ("false", "true"),
    ("no", "yes"),
)  # negative, positive: recognised without options
_WHOLE = re.compile(r"[+-]?[0-9]+")
_EXACT_DIGITS = 16  # of 2^53, up to which float64 has every whole number
_DAY = re.compile(r"(19|20)[0-9]{2}(0[1-9]|1[0-2])(0[1-9]|[12][0-9]|3[01])")
_DOTTED = re.compile(r"(?P<day>[0-9]{1,2})\.(?P<month>[0-9]{1,2})\.(?P<year>[0-9]{4})(?P<rest>([ T].*)?)")
_INFINITE = re.compile(r"[+-]?inf(inity)?", re.IGNORECASE)
_CACHED = 1000  # distinct labels in the cache
_NAMED = 10  # labels that a message quotes,
_QUOTED = 60  # and characters of each


def known_labels() -> str:
    """Return the label pairs that need no `--positive`, for messages."""
    return ", ".join("/".join(pair) for pair in _PAIRS)


@dataclass(frozen=True)
class RowColumns:
    """The options of a file's rows: which columns are not features, and what the values of the label mean."""

    label: str = "label"
    positive: tuple[str, ...] = ()  # positive label values, all others are negative; empty: a known pair
    ranks: tuple[str, ...] = ()  # label values, lowest rank first; empty: two classes, or ranks 1 to p
    drop: tuple[str, ...] = ()
    id: str | None = None
    time: str | None = None
    weight: str | None = None

    @property
    def about(self) -> list[tuple[str, str | None, Callable[[Any], Any]]]:
        """The other members of an event: the API's name, the column, and the parser of its cells."""
        return [("id", self.id, identity), ("time", self.time, timestamp), ("weight", self.weight, weight)]

    @property
    def named(self) -> list[str]:
        """The columns of the options except the label, which files without column names cannot have."""
        return [name for name in (*self.drop, self.id, self.time, self.weight) if name is not None]


class BinaryLabels:
    """Maps label values to 0 and 1.

    With `positive`, those values are 1 and all others 0. Without, the values must fit one of the known pairs. A value
    that fits none (2, or 0 after -1) raises an error with the values so far, because a guess could swap the classes
    silently. For the same reason it refuses values that are positive except for their case, `check` does so for the
    next rows at once, and `unmet` reports positive labels that never occurred.
    """

    def __init__(self, positive: Sequence[str] = ()) -> None:
        self._positive = dict.fromkeys(map(_canonical, positive))  # an ordered set
        self._folded = {text.casefold(): text for text in self._positive}
        self._positive_seen = False  # whether a positive label occurred
        self._pairs = _PAIRS
        self._seen: dict[str, None] = {}  # the first few labels
        self._cache: dict[Any, int] = {}

    def __call__(self, value: Any) -> int:
        """Return 0 or 1."""
        kind = type(value)
        label = self._cache.get((kind, value)) if kind in (str, int, float, bool) else None
        if label is None:
            label = self._decide(_canonical(value))
            if len(self._cache) < _CACHED:
                self._cache[kind, value] = label
        return label

    def check(self, values: Iterable[Any]) -> None:
        """Refuse the label values of the next rows, before the first row is read."""
        distinct: dict[str, None] = {}
        for value in values:
            with suppress(ValueError):  # missing: the row reports it
                distinct[_canonical(value)] = None
        if self._positive:
            self._seen |= dict.fromkeys(islice(distinct, _NAMED + 1))
            for text in distinct:
                self._decide(text)
        elif not any({text.lower() for text in distinct} <= set(pair) for pair in _PAIRS):
            raise ValueError(_unclear(distinct))

    def unmet(self) -> str | None:
        """Return the end of a message "no row ..." if no positive label occurred, else None."""
        if self._positive_seen or not self._positive:
            return None
        return f"had the label {' or '.join(map(repr, self._positive))}; labels seen: {_quoted(self._seen)}"

    def _decide(self, text: str) -> int:
        if len(self._seen) <= _NAMED:
            self._seen[text] = None
        if self._positive:
            spelling = self._folded.get(text.casefold(), text)
            if spelling != text and text not in self._positive:
                raise ValueError(
                    f"the file has the label {text!r}, --positive says {spelling!r}: give it as in the file, "
                    f"once for each spelling; the labels seen are {_quoted(self._seen)}"
                )
            self._positive_seen |= text in self._positive
            return int(text in self._positive)
        folded = text.lower()
        self._pairs = tuple(pair for pair in self._pairs if folded in pair)
        if not self._pairs:
            raise ValueError(_unclear(self._seen))
        return int(folded == self._pairs[0][1])


class Ranks:
    """Maps label values to the ranks 1 to p of an ordinal learner; `lowest_first` has the p values in order.

    Other values raise an error, because their order is unknown.
    """

    def __init__(self, lowest_first: Sequence[str]) -> None:
        self._ranks = {_canonical(text): rank for rank, text in enumerate(lowest_first, 1)}
        if len(self._ranks) < len(lowest_first):
            raise ValueError(f"two of the ranks {_quoted(lowest_first)} are the same label")
        self._cache: dict[Any, int] = {}

    def __call__(self, value: Any) -> int:
        """Return the rank, 1 to p."""
        kind = type(value)
        rank = self._cache.get((kind, value)) if kind in (str, int, float) else None
        if rank is None:
            text = _canonical(value)
            rank = self._ranks.get(text)
            if rank is None:
                raise ValueError(f"the label is {_quote(text)}; {self._expected()}")
            if len(self._cache) < _CACHED:
                self._cache[kind, value] = rank
        return rank

    def check(self, values: Iterable[Any]) -> None:
        """Refuse the label values of the next rows, before the first row is read."""
        distinct: dict[str, None] = {}
        for value in values:
            with suppress(ValueError):  # missing: the row reports it
                distinct[_canonical(value)] = None
        if not distinct.keys() <= self._ranks.keys():
            seen, order = list(distinct), "LOWEST,...,HIGHEST"
            with suppress(ValueError):  # words have no known order
                seen.sort(key=float)
                order = ",".join(seen) if len(seen) == len(self._ranks) else order
            expected = self._expected()
            raise ValueError(f"the labels seen are {_quoted(seen)}; {expected}: name the file's with --ranks {order}")

    def unmet(self) -> None:
        """Return None: a rank may be missing in a file."""
        return

    def _expected(self) -> str:
        return f"expected the learner's {len(self._ranks)} ranks as {_quoted(self._ranks)}"


def _unclear(seen: Iterable[str]) -> str:
    return f"the labels seen are {_quoted(seen)}; expected {known_labels()}, or the positive one named with --positive"


def _quoted(labels: Iterable[str]) -> str:
    """Quote the first few labels."""
    first = list(islice(labels, _NAMED + 1))
    return ", ".join(map(_quote, first[:_NAMED])) + (", ..." if len(first) > _NAMED else "")


def _quote(label: str) -> str:
    return repr(label if len(label) <= _QUOTED else f"{label[:_QUOTED]}...")


def _canonical(value: Any) -> str:
    """Return the canonical spelling of a label: 1, 1.0, "+1" and "1.0" are "1"."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        text = value.strip()
        try:
            value = float(text)
        except ValueError:
            if not text:
                raise ValueError("the label is missing") from None
            return text
    if value is None or value != value:
        raise ValueError("the label is missing")
    if isinstance(value, (int, float)):
        return _spelling(value)
    raise ValueError(f"the label is {str(value)[:60]}; expected a string, number or boolean")


def number(text: str) -> float | None:
    """Parse a number; None if it is missing. Infinite numbers are refused, because JSON has none."""
    try:
        value = float(text)
    except ValueError:
        if text.strip().lower() in MISSING:
            return None
        raise ValueError(f"{text[:60]!r} is not a number") from None
    if value != value:
        return None
    if value in (math.inf, -math.inf) or "_" in text:
        raise ValueError(f"{text[:60]!r} is not a finite decimal number")
    return value


def is_number(text: str) -> bool:
    """Tell whether `number` accepts a cell."""
    try:
        number(text)
    except ValueError:
        return False
    return True


def column_kind(cells: Iterable[str]) -> tuple[bool, str | None]:
    """Tell whether a column with these cells is numeric, and why it is not although it looks like it, else None.

    A numeric column may have a few other cells, at most 1 in 100. Numbers with leading zeros, and whole numbers that
    float64 cannot tell apart, are names.
    """
    numbers = others = 0
    first = ""
    for cell in cells:
        text = cell.strip()
        if text.lower() in MISSING:
            continue
        if _WHOLE.fullmatch(text):
            digits = text.lstrip("+-")
            if digits[0] == "0" and len(digits) > 1:
                return False, f"{_quote(text)} has a leading zero"
            if len(digits) > _EXACT_DIGITS or int(digits) > 2**53:
                return False, f"{_quote(text)} is beyond 2^53"
        if is_number(text) or _INFINITE.fullmatch(text):
            numbers += 1
        else:
            others += 1
            first = first or text
    if 100 * others <= numbers + others:
        return True, None
    cells_are = "1 cell is" if others == 1 else f"{others:,} cells are"
    return False, f"{cells_are} not a number, such as {_quote(first)}" if numbers >= others else None


def timestamp(value: Any) -> float | None:
    """Parse a time: seconds since the epoch, ISO 8601 or day.month.year; UTC without a zone. None if it is missing.

    Eight digits such as 20191130 are a date, because as seconds they would be a day of 1970.
    """
    if isinstance(value, str):
        text = value.strip()
        day = _DAY.fullmatch(text)
        if day is None and is_number(text):
            return number(text)
        dotted = _DOTTED.fullmatch(text)
        if dotted is not None:
            text = f"{dotted['year']}-{dotted['month']:0>2}-{dotted['day']:0>2}{dotted['rest']}"
        try:
            moment = datetime.fromisoformat(text.removesuffix(" UTC"))
        except ValueError:
            raise ValueError(f"{text[:60]!r} is neither seconds since the epoch nor an ISO 8601 time") from None
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return _plain_number("time", value)


def identity(value: Any) -> str | None:
    """Parse an id; None if it is missing. 7, 7.0 and "7" are the same."""
    if isinstance(value, str):
        return None if value.strip().lower() in MISSING else value
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"the id is {str(value)[:60]}; expected a string or a number")
    return _spelling(value)


def weight(value: Any) -> float | None:
    """Parse a weight; None if it is missing (the service then uses 1)."""
    weight_ = number(value) if isinstance(value, str) else _plain_number("weight", value)
    if weight_ is not None and weight_ < 0:
        raise ValueError(f"the weight is {weight_:g}; expected at least 0")
    return weight_


def _plain_number(what: str, value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"the {what} is {str(value)[:60]!r}; expected a number")
    return float(value)


def _spelling(value: float) -> str:
    """Spell a number: 7 and 7.0 are both "7"."""
    return str(int(value)) if math.isfinite(value) and value == int(value) else str(value)
