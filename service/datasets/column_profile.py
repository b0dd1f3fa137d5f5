"""Describes the columns of a file by the values of its first rows: numbers, names, text, times, identifiers. No I/O."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise, product
from statistics import median
from typing import Any, NamedTuple

from learners.features import FieldKind, ValueKind, column_number, kind_after, sent_as
from rarestream.values import EARLIEST_TIME
from service.datasets.number_cells import quote
from service.datasets.times import is_day, timestamp
from service.datasets.values import known_label
from service.text import counted

__all__ = ["ColumnProfile", "FieldPast", "LabelValues", "likely_label", "profile_column", "reveals_label"]

_UNIQUE = 0.99  # share of different values of an identifier
_FEW_ROWS = 20  # too few to call a column unique
_COUNTED_ROWS = 100  # too few to call numbers that rise a counter, such as the ages of a sorted table
_MANY_ROWS = 1000  # in which words that are no identifiers repeat
_WITH_DIGITS = 0.5  # share of identifiers
_MAX_CHARACTERS = 23  # characters of a frequent value
_WORDS = 4  # of a cell of text on average
_TRIED = 500  # cells by which times are recognised
_SKEWED = 30  # times the median is the maximum of an amount
_ID = re.compile(r"(^|[^a-z])(id|uuid|guid|key|nr|code|zip|port)s?$|(?<=[a-z])(Id|ID|Nr|Key|Port)$")
_PERSON = re.compile("name", re.IGNORECASE)
_MOMENT = re.compile(r"time|date|when|stamp|(^|_)(at|ts|day)$", re.IGNORECASE)
_TARGETS = {"label", "class", "target", "y", "fraud", "spam", "churn", "attack", "outcome", "default", "response"}
_EPOCH = (5e8, 5e9)  # seconds from 1985 to 2128
_UNITS = {"seconds": 1, "milliseconds": 1e3, "microseconds": 1e6, "nanoseconds": 1e9}
_DAYS = [f"%{a}{mark}%{b}{mark}%{c}" for mark in "/-." for a, b, c in ("dmY", "mdY", "Ymd", "dmy", "mdy")]
_DAYS += ["%d %b %Y", "%d-%b-%Y", "%b %d %Y", "%b %d, %Y", "%d %B %Y", "%B %d, %Y"]
_TIMES = ["", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f", " %I:%M %p", " %I:%M:%S %p", "T%H:%M:%S"]
_HEADERS = ["%a, %d %b %Y %H:%M:%S %Z", "%a, %d %b %Y %H:%M:%S %z", "%d/%b/%Y:%H:%M:%S %z"]  # of mails and Apache
_SEVERAL = 20  # values at most of a label, and of a column that may reveal it


class FieldPast(NamedTuple):
    """What a learner of named features remembers of a field."""

    kind: FieldKind = FieldKind.UNKNOWN
    contradictions: int = 0
    values: int = 0
    declared: bool = False


@dataclass(frozen=True)
class ColumnProfile:
    """What a column seems to be, and why."""

    name: str
    kind: str  # number, names, text, time, identifier, list, mixed, constant, empty
    why: str
    missing: int
    values: int  # different ones
    skewed: bool = False  # numbers from 0 on, of which a few are much larger than the others
    named_as_id: bool = False  # an identifier or whole numbers, whose column is called like an id
    time_format: str = ""  # of times; empty: read without one
    ambiguous: bool = False  # times: the day or the month may be first


@dataclass(frozen=True)
class LabelValues:
    """The values of a label with their counts, most frequent first."""

    counts: dict[str, int]

    @property
    def binary(self) -> bool:
        """Whether they are of a pair that needs no option."""
        return known_label(self.counts)

    def rarest(self) -> str:
        """Return the value with the fewest rows; the last one of several."""
        return min(reversed(self.counts), key=lambda value: self.counts[value])

    def __str__(self) -> str:
        texts = [f"{value} {count:,}" for value, count in list(self.counts.items())[:6]]
        return ", ".join(texts) + (f" and {len(self.counts) - 6} more" if len(self.counts) > 6 else "")


def profile_column(
    name: str, values: Sequence[Any], *, timed: bool = False, past: FieldPast | None = None
) -> ColumnProfile:
    """Describe a column by its values, in the order of the rows: numbers, booleans, text, lists, or None.

    Its kind is the one that the field has in a learner of named features after these rows. `past`: what the learner
    remembers; None if it is still to be created, as text or anything else.

    `timed`: its numbers are read as times.
    """
    present = [value for value in values if value is not None]
    missing = len(values) - len(present)
    if not present:
        return ColumnProfile(name, "empty", "no value yet", missing, 0)
    field = FieldKind.UNKNOWN if timed else _field_kind(present, past or FieldPast())
    distinct = Counter(map(str, present) if any(type(value) in (list, dict) for value in present) else present)
    match field:
        case FieldKind.LIST:
            lists = [value for value in present if type(value) in (list, dict)]
            share = "" if len(lists) == len(present) else f"in {counted(len(lists), 'row')} of {len(present):,}, "
            return ColumnProfile(name, "list", f"{share}such as {quote(str(lists[0]))}", missing, len(distinct))
        case FieldKind.MIXED:
            texts = [value for value in present if type(value) is str]
            share = f"{counted(len(texts), 'text')}, such as {quote(texts[0])}, among " if texts else ""
            why = f"{share}{counted(len(present), 'value')}: numbers are learnt as numbers, others as names"
            return ColumnProfile(name, "mixed", why + _missing(missing), missing, len(distinct))
        case FieldKind.TEXT:
            return ColumnProfile(name, "text", _words(present) + _missing(missing), missing, len(distinct))
        case FieldKind.UNKNOWN if not timed:
            return ColumnProfile(name, "empty", f"no value yet, only {quote(str(present[0]))}", missing, len(distinct))
        case FieldKind.NUMBER if others := [value for value in present if sent_as(value) != ValueKind.NUMBER]:
            numbers = [_number_in_field(value) for value in values]
            profile = profile_column(name, numbers, past=FieldPast(field))
            others_are = counted(len(others), "text" if all(type(value) is str for value in others) else "other value")
            why = f"{profile.why}; {others_are}, such as {quote(str(others[0]))}"
            kind = "number" if profile.kind == "empty" else profile.kind
            return replace(profile, kind=kind, why=why, missing=missing, values=len(distinct))
    if len(distinct) == 1 and len(values) >= _FEW_ROWS:
        (value,) = distinct
        return ColumnProfile(name, "constant", f"{_format(value)} in all these rows{_missing(missing)}", missing, 1)
    if all(type(value) in (int, float) for value in present):
        kind, why, options = _numbers(name, present, len(distinct), timed)
        if kind == "number" and field == FieldKind.CATEGORY:
            large = next((value for value in present if sent_as(value) == ValueKind.TEXT), None)
            reason = "earlier values were names" if large is None else f"{large} is beyond 2^53"
            kind, why, options = "names", f"{counted(len(distinct), 'value')}; {reason}", {}
    else:
        kind, why, options = _texts(name, list(map(str, present)), distinct)
        if kind == "text" and past is not None:
            kind, why = "names", f"{why}; it is not declared as text"
    return ColumnProfile(name, kind, why + _missing(missing), missing, len(distinct), **options)


def likely_label(columns: Mapping[str, Sequence[Any]]) -> str | None:
    """Return the column that is probably the label: by its name, else the last or first one if it has two values."""
    few = [name for name, values in columns.items() if 0 < len(set(map(str, values[:10_000])) - {"None"}) <= _SEVERAL]
    for name in few:
        words = re.split(r"[^a-z]+", name.lower())
        if name.lower() in _TARGETS or words[-1] in _TARGETS or words[0] == "is":
            return name
    for name in [*columns][-1:] + [*columns][:1]:
        if name in few and len(set(map(str, columns[name])) - {"None"}) == 2:
            return name
    return None


def reveals_label(values: Sequence[Any], labels: Sequence[Any]) -> bool:
    """Tell whether each of a few values occurs with one label only, although there are several labels."""
    pairs = {(str(value), str(label)) for value, label in zip(values, labels, strict=True)}
    distinct = {value for value, _ in pairs}
    return 1 < len({label for _, label in pairs}) <= len(distinct) == len(pairs) <= _SEVERAL < len(values) / 10


def _field_kind(values: Sequence[Any], past: FieldPast) -> FieldKind:
    if past.declared:
        return past.kind
    return kind_after([way for way in map(sent_as, values) if way], past.kind, past.contradictions, past.values)


def _number_in_field(value: Any) -> float | None:
    """Return what is learnt of a value in a field of numbers; None if that is nothing."""
    if type(value) is str:
        return column_number(value)
    return float(value) if sent_as(value) in (ValueKind.NUMBER, ValueKind.BOOLEAN) else None


def _numbers(name: str, values: Sequence[float], distinct: int, timed: bool) -> tuple[str, str, dict[str, Any]]:
    whole = all(value == int(value) for value in values)
    low, high, middle = min(values), max(values), median(values)
    ordered = all(a <= b for a, b in pairwise(values))
    if timed:
        return "time", _moments(low, high, named=True) or _counter(low, high), {}
    called_id = _called_id(name)
    named = _MOMENT.search(name) is not None
    if whole and (ordered or named) and (moments := _moments(low, high, named=named)):
        return "time", moments, {}
    if whole and _unique(distinct, len(values)) and (called_id or (ordered and len(values) >= _COUNTED_ROWS)):
        return "identifier", _uniqueness(distinct, len(values), called_id), {"named_as_id": called_id}
    why = f"{_number_text(low)} to {_number_text(high)}, median {_number_text(middle)}"
    if whole and called_id:
        return (
            "number",
            f"{why}; {counted(distinct, 'whole number')} named like an id (--categorical)",
            {"named_as_id": True},
        )
    if whole and ordered and distinct > _SEVERAL:
        return "number", f"{why}; never falls, like a clock or a counter", {}
    skewed = low >= 0 and high >= _SKEWED * middle > 0
    return "number", why, {"skewed": skewed}


def _moments(low: float, high: float, *, named: bool) -> str | None:
    """Describe whole numbers from `low` to `high` that are probably times; None if they are not.

    `named`: the column is called like a time. Else only seconds are recognised: identifiers may be as large as others.
    """
    for unit, size in _UNITS.items():
        if (named or size == 1) and _EPOCH[0] * size <= low and high <= _EPOCH[1] * size:
            return f"{unit} since the epoch, {_day(low / size)} to {_day(high / size)}"
    first, last = str(int(low)), str(int(high))
    if named and is_day(first) and is_day(last):
        return f"dates such as {first}"
    return None


def _texts(name: str, values: Sequence[str], distinct: Counter[Any]) -> tuple[str, str, dict[str, Any]]:
    moment = _time_form(values)
    if moment is not None:
        format, why, ambiguous = moment
        return "time", f"{why}, first {values[0][:30]}", {"time_format": format, "ambiguous": ambiguous}
    if _word_count(values) >= _WORDS and len(distinct) > _SEVERAL:
        return "text", _words(values), {}
    if _unique(len(distinct), len(values)) and _identifies(name, values):
        called_id = _called_id(name)
        return "identifier", _uniqueness(len(distinct), len(values), called_id), {"named_as_id": called_id}
    top = ", ".join(f"{_cut(str(value))} {_percent(count, len(values))}" for value, count in distinct.most_common(3))
    return "names", f"{counted(len(distinct), 'value')}: {top}", {}


def _word_count(values: Sequence[Any]) -> float:
    """Return the words of a value on average."""
    return sum(len(str(value).split()) for value in values[:_TRIED]) / len(values[:_TRIED])


def _words(values: Sequence[Any]) -> str:
    return f"{_word_count(values):.0f} words a row, such as {quote(str(values[0]))}"


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_CHARACTERS else f"{text[: _MAX_CHARACTERS - 3]}..."


def _called_id(name: str) -> bool:
    return _ID.search(name) is not None or _ID.search(name.lower()) is not None


def _identifies(name: str, values: Sequence[str]) -> bool:
    """Tell whether unique texts are likely to be identifiers, and not names of people, of which a few rows repeat none.

    The column is called like an id, its values are words with digits, or words that stay unique over many rows.
    """
    if _called_id(name):
        return True
    if _PERSON.search(name) or any(" " in value.strip() for value in values):
        return False
    digits = sum(any(character.isdigit() for character in value) for value in values)
    numbers = sum(column_number(value) is not None for value in values)
    if numbers > digits - numbers and len(values) - digits > digits - numbers:  # a few words among numbers
        return False
    return digits >= _WITH_DIGITS * len(values) or len(values) >= _MANY_ROWS


def _time_form(values: Sequence[str]) -> tuple[str, str, bool] | None:
    """Return the format of times, a description, and whether it is ambiguous; None if the values are no times."""
    tried = values[:: max(1, len(values) // _TRIED)]
    if all(not value.isdecimal() and _parses(value, "") for value in tried):
        return "", "date and time" if any(":" in value for value in tried) else "date", False
    formats = [format for format in (*map("".join, product(_DAYS, _TIMES)), *_HEADERS) if _parses(tried[0], format)]
    formats = [format for format in formats if all(_parses(value, format) for value in tried)]
    if not formats:
        return None
    if len(formats) > 1:  # a file is usually sorted by time
        formats = [format for format in formats if _ordered(tried, format)] or formats
    if len({format.replace("%d", "%m") for format in formats}) < len(formats):
        return "", f"is the day or the month first? --time-format {formats[0]!r} or {formats[1]!r}", True
    return formats[0], f"in the form {formats[0]}", False


def _ordered(values: Sequence[str], format: str) -> bool:
    moments = [datetime.strptime(value.strip(), format) for value in values]
    return all(a <= b for a, b in pairwise(moments))


def _parses(text: str, format: str) -> bool:
    try:
        return timestamp(text, format) is not None
    except ValueError:
        return False


def _unique(distinct: int, rows: int) -> bool:
    return rows >= _FEW_ROWS and distinct >= _UNIQUE * rows


def _uniqueness(distinct: int, rows: int, called_id: bool) -> str:
    unique = "another value in each row" if distinct == rows else f"{_percent(distinct, rows)} of the values are unique"
    return f"{unique}, and named like an id" if called_id else unique


def _percent(part: int, whole: int) -> str:
    share = 100 * part / whole
    return f"{share:.0f} %" if share >= 10 or part == 0 else f"{share:.2g} %"


def _missing(count: int) -> str:
    return f"; {count:,} missing" if count else ""


def _format(value: Any) -> str:
    return f"{value:g}" if type(value) in (int, float) else quote(str(value))


def _counter(low: float, high: float) -> str:
    counted_from = "; with --time-unit they count from 1980-01-01" if low >= 0 and high < EARLIEST_TIME else ""
    return f"{_number_text(low)} to {_number_text(high)}, no moments since 1980{counted_from}"


def _number_text(number: float) -> str:
    """Show a number with 6 digits, or as many as it has before the point."""
    return f"{number:,.0f}" if 1e6 <= abs(number) < 1e15 else f"{number:,.6g}"


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()
