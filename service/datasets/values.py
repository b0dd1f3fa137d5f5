"""What the cells of a file mean: labels and ranks, numbers, times, ids, weights. No I/O.

Every function here raises `ValueError` with a text that says what is wrong; the readers put file and line before it.
"""

from __future__ import annotations

import math
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
    "identity",
    "is_number",
    "known_labels",
    "number",
    "timestamp",
    "weight",
]

MISSING = frozenset({"", "nan", "na", "n/a", "null", "none", "?"})  # of a number, in any case

_PAIRS: tuple[tuple[str, str], ...] = (
    ("0", "1"),
    ("-1", "1"),
    ("false", "true"),
    ("no", "yes"),
)  # negative, positive: read without being told
_CACHED = 1000  # distinct labels whose meaning is kept
_NAMED = 10  # distinct labels that a message quotes,
_QUOTED = 60  # and characters of each


def known_labels() -> str:
    """The label pairs that need no `--positive`, as messages name them."""
    return ", ".join("/".join(pair) for pair in _PAIRS)


@dataclass(frozen=True)
class RowColumns:
    """Which columns are not features, and what the label's values mean: everything that shapes the rows of a file."""

    label: str = "label"
    positive: tuple[str, ...] = ()  # label values that are positive, all others negative; empty: one of the known pairs
    ranks: tuple[str, ...] = ()  # label values from the lowest rank to the highest; empty: two classes, or the ranks
    drop: tuple[str, ...] = ()
    id: str | None = None
    time: str | None = None
    weight: str | None = None

    @property
    def about(self) -> list[tuple[str, str | None, Callable[[Any], Any]]]:
        """What is said of an event beside its features: the API's member, the column, and what reads its cells."""
        return [("id", self.id, identity), ("time", self.time, timestamp), ("weight", self.weight, weight)]

    @property
    def named(self) -> list[str]:
        """The columns asked for besides the label, those that a file without column names cannot have."""
        return [name for name in (*self.drop, self.id, self.time, self.weight) if name is not None]


class BinaryLabels:
    """Label values to 0 and 1.

    With `positive`, those values are 1 and all others 0. Without, the values must fit one of the known pairs; a value
    that leaves no pair possible (2; or 0 where -1 was seen) raises, with the values seen so far: a guess would turn
    the classes round without a word. For the same reason `check` refuses values that are positive but for their case,
    and `unmet` tells of named labels that never came.
    """

    def __init__(self, positive: Sequence[str] = ()) -> None:
        self._positive = dict.fromkeys(map(_canonical, positive))  # a set in the order given
        self._met = False  # a positive one was seen
        self._pairs = _PAIRS
        self._seen: dict[str, None] = {}  # the first few
        self._known: dict[Any, int] = {}

    def __call__(self, value: Any) -> int:
        """0 or 1."""
        kind = type(value)
        label = self._known.get((kind, value)) if kind in (str, int, float, bool) else None
        if label is None:
            label = self._decide(_canonical(value))
            if len(self._known) < _CACHED:
                self._known[kind, value] = label
        return label

    def check(self, values: Iterable[Any]) -> None:
        """Refuse a set of values that the rows will turn out to have, before the first row is read."""
        distinct: dict[str, None] = {}
        for value in values:
            with suppress(ValueError):  # missing: said where the row is read
                distinct[_canonical(value)] = None
        if self._positive:
            named = {text.casefold(): text for text in self._positive}
            for text in distinct:
                meant = named.get(text.casefold())
                if not self._decide(text) and meant is not None:
                    raise ValueError(
                        f"the file has the label {text!r}, --positive says {meant!r}: give it as the file spells it, "
                        f"once for each spelling; the labels seen are {_quoted(distinct)}"
                    )
        elif not any({text.lower() for text in distinct} <= set(pair) for pair in _PAIRS):
            raise ValueError(_unclear(distinct))

    def unmet(self) -> str | None:
        """What to say after "no row" where positive labels were named and none of them came; else None."""
        if self._met or not self._positive:
            return None
        return f"had the label {' or '.join(map(repr, self._positive))}; labels seen: {_quoted(self._seen)}"

    def _decide(self, text: str) -> int:
        if len(self._seen) <= _NAMED:
            self._seen[text] = None
        if self._positive:
            self._met |= text in self._positive
            return int(text in self._positive)
        folded = text.lower()
        self._pairs = tuple(pair for pair in self._pairs if folded in pair)
        if not self._pairs:
            raise ValueError(_unclear(self._seen))
        return int(folded == self._pairs[0][1])


class Ranks:
    """Label values to the ranks 1 to p of an ordinal learner; `lowest_first` names the p values, each once.

    A value that is not among them raises: where it belongs in the order cannot be guessed.
    """

    def __init__(self, lowest_first: Sequence[str]) -> None:
        self._ranks = {_canonical(text): rank for rank, text in enumerate(lowest_first, 1)}
        if len(self._ranks) < len(lowest_first):
            raise ValueError(f"of the ranks {_quoted(lowest_first)} two are the same label")
        self._known: dict[Any, int] = {}

    def __call__(self, value: Any) -> int:
        """1 to p."""
        kind = type(value)
        rank = self._known.get((kind, value)) if kind in (str, int, float) else None
        if rank is None:
            text = _canonical(value)
            rank = self._ranks.get(text)
            if rank is None:
                raise ValueError(f"the label is {_quote(text)}; {self._expected()}")
            if len(self._known) < _CACHED:
                self._known[kind, value] = rank
        return rank

    def check(self, values: Iterable[Any]) -> None:
        """Refuse a set of values that the rows will turn out to have, before the first row is read."""
        distinct: dict[str, None] = {}
        for value in values:
            with suppress(ValueError):  # missing: said where the row is read
                distinct[_canonical(value)] = None
        if not distinct.keys() <= self._ranks.keys():
            seen, order = list(distinct), "LOWEST,...,HIGHEST"
            with suppress(ValueError):  # words have no order that we know of
                seen.sort(key=float)
                order = ",".join(seen) if len(seen) == len(self._ranks) else order
            expected = self._expected()
            raise ValueError(f"the labels seen are {_quoted(seen)}; {expected}: name the file's with --ranks {order}")

    def unmet(self) -> None:
        """Nothing: a rank that no row has is no mistake."""
        return

    def _expected(self) -> str:
        return f"expected the learner's {len(self._ranks)} ranks as {_quoted(self._ranks)}"


def _unclear(seen: Iterable[str]) -> str:
    return f"the labels seen are {_quoted(seen)}; expected {known_labels()}, or the positive one named with --positive"


def _quoted(labels: Iterable[str]) -> str:
    """The first few, and whether there are more."""
    first = list(islice(labels, _NAMED + 1))
    return ", ".join(map(_quote, first[:_NAMED])) + (", ..." if len(first) > _NAMED else "")


def _quote(label: str) -> str:
    return repr(label if len(label) <= _QUOTED else f"{label[:_QUOTED]}...")


def _canonical(value: Any) -> str:
    """One spelling per label: 1, 1.0, "+1" and "1.0" are "1"."""
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
    """The number that a cell spells, None where it spells a missing one. JSON has no infinite numbers: refused."""
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
    """Whether `number` takes the cell."""
    try:
        number(text)
    except ValueError:
        return False
    return True


def timestamp(value: Any) -> float | None:
    """Seconds since the epoch from a number of them or ISO 8601 (UTC where no zone is given), None where missing."""
    if isinstance(value, str):
        text = value.strip()
        if is_number(text):
            return number(text)
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise ValueError(f"{text[:60]!r} is neither seconds since the epoch nor an ISO 8601 time") from None
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return _plain_number("time", value)


def identity(value: Any) -> str | None:
    """An event's id, None where missing; 7, 7.0 and "7" are the same."""
    if isinstance(value, str):
        return value or None
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"the id is {str(value)[:60]}; expected a string or a number")
    return _spelling(value)


def weight(value: Any) -> float | None:
    """An event's weight, None where missing (the service then takes 1)."""
    given = number(value) if isinstance(value, str) else _plain_number("weight", value)
    if given is not None and given < 0:
        raise ValueError(f"the weight is {given:g}; expected at least 0")
    return given


def _plain_number(what: str, value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"the {what} is {str(value)[:60]!r}; expected a number")
    return float(value)


def _spelling(value: float) -> str:
    """7 and 7.0 are both "7"."""
    return str(int(value)) if math.isfinite(value) and value == int(value) else str(value)
