"""Parses the cells of a file: labels and ranks, numbers, times, ids, weights. No I/O.

Every function raises `ValueError` with a text that says what is wrong; the readers add file and line.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

from service.datasets.file_options import FileOptions
from service.datasets.number_cells import is_absent, number, plain_number, quote
from service.datasets.times import EventTimes

__all__ = [
    "ANY_LABEL",
    "BinaryLabels",
    "Ranks",
    "RowColumns",
    "Unlabelled",
    "identity",
    "known_label",
    "known_labels",
    "label_text",
    "weight",
]

_PAIRS: tuple[tuple[str, str], ...] = (
    ("0", "1"),
    ("-1", "1"),
    ("false", "true"),
    ("no", "yes"),
)  # negative, positive: recognised without options
_OPTIONS = ("--negative", "--positive")  # by label
ANY_LABEL = "*"  # names all labels that have no other name
_HOW_TO_NAME = f"with --negative, or all but the positive ones with --negative '{ANY_LABEL}'"
_UNDECIDED = {"pending", "undecided", "unlabelled", "unlabeled", "tbd", "tobedetermined", "tobedecided"} | {
    "unreviewed",
    "notreviewed",
    "inreview",
    "underreview",
    "notavailable",
    "notapplicable",
    "notyet",
    "noneyet",
    "nd",
}  # no labels, unless options name them
_WHOLE_ID = re.compile(r"(-?[1-9][0-9]{0,15}|0)\.0+")  # as spreadsheets and data frames write whole numbers
_FLOAT_ID = re.compile(r"[+-]?[0-9]+(\.[0-9]*[eE]\+?[0-9]+|[eE]\+[0-9]+)")  # not a word such as 12e5
_EXACT_FLOAT = 1e11  # spreadsheets write longer numbers with 6 digits
_EXACT = 2**53  # the largest float that is one whole number only
_ID_CHARACTERS = 256  # at most, by the service
_CACHED = 1000  # distinct labels in the cache
_NAMED = 10  # labels that a message quotes


def known_labels() -> str:
    """Return the label pairs that need no `--positive`, for messages."""
    return ", ".join("/".join(pair) for pair in _PAIRS)


def known_label(values: Iterable[str]) -> bool:
    """Tell whether labels are of a pair that needs no option."""
    folded = {text.lower() for text in values}
    return any(folded <= set(pair) for pair in _PAIRS)


def label_text(value: Any) -> str | None:
    """Return the spelling of a label in options; None if it is missing."""
    try:
        text = _canonical(value)
    except ValueError:
        return None
    return None if _is_no_label(text) else text


def _is_no_label(text: str) -> bool:
    return is_absent(text, _UNDECIDED)


class Unlabelled(ValueError):
    """A row has no label; the options say whether that is an error."""


@dataclass(frozen=True)
class RowColumns:
    """The options of a file's rows: which columns are not features, and what the values of the label mean."""

    label: str = "label"
    positive: tuple[str, ...] = ()  # positive label values; see `BinaryLabels`
    ranks: tuple[str, ...] = ()  # label values, lowest rank first; empty: two classes, or ranks 1 to p
    drop: tuple[str, ...] = ()
    id: str | None = None
    time: str | None = None
    weight: str | None = None
    form: FileOptions = field(default_factory=FileOptions)  # how the file is written
    negative: tuple[str, ...] = ()  # negative label values

    @property
    def about(self) -> list[tuple[str, str | None, Callable[[Any], Any]]]:
        """The other members of an event: the API's name, the column, and the parser of its cells in one file."""
        read_time = EventTimes(self.form.time_format, self.form.time_unit)
        return [("id", self.id, identity), ("time", self.time, read_time), ("weight", self.weight, weight)]

    @property
    def named(self) -> list[str]:
        """The columns of the options except the label, which files without column names cannot have."""
        return [name for name in (*self.drop, self.id, self.time, self.weight) if name is not None]


class BinaryLabels:
    """Maps label values to 0 and 1; a missing label, such as NULL or pending, raises `Unlabelled`.

    With `positive`, those values are 1, and one other value is 0. A third class raises `Unlabelled`, because it may
    be of either class. With `negative`, those values are 0 and all others 1. With both, other values are no labels, but
    `*` names them all. With neither, the values must fit one of the known pairs. A value that fits none (2, or 0 after
    -1) raises an error with the values so far, because a guess could swap the classes silently. For the same reason it
    refuses other spellings of values that are named, see `_folded`. So does `check` for the next rows. `unmet` reports
    named labels that never occurred. A refused value changes nothing.

    In a `stream`, values of several known pairs may occur, because a value must mean the same to a reader that starts
    at it and to one that read or skipped those before. `mixture` reports them.
    """

    def __init__(self, positive: Sequence[str] = (), negative: Sequence[str] = (), *, stream: bool = False) -> None:
        self._named: dict[str, int] = {}
        self._any: int | None = None  # the label of all values without a name
        for label, values in ((1, positive), (0, negative)):
            for text in map(_canonical, values):
                if text == ANY_LABEL and self._any is None:
                    self._any = label
                elif text == ANY_LABEL or self._named.setdefault(text, label) != label:
                    raise ValueError(f"{quote(text)} is both --positive and --negative")
        classes = set(self._named.values())
        if self._any is not None and classes != {1 - self._any}:
            raise ValueError(f"'{ANY_LABEL}' names all other labels; expected {_OPTIONS[1 - self._any]} beside it")
        self._one_class = len(classes) == 1  # is named
        if classes == {0}:
            self._any = 1
        self._two_classes = self._one_class and self._any is None  # one other value is negative
        self._other: str | None = None  # that value
        self._minus = self._named.get("+") == 1  # whether - is a label
        self._folded = {_folded(text): text for text in self._named}
        self._named_seen = False  # whether a named label occurred
        self._stream = stream
        self._pairs: Sequence[tuple[str, str]] = _PAIRS
        self._seen: dict[str, None] = {}  # the first few labels
        self._cache: dict[Any, int] = {}
        self.undo: list[Callable[[], None]] = []  # takes back what labels have decided since the reader emptied it

    def __call__(self, value: Any) -> int:
        """Return 0 or 1."""
        kind = type(value)
        label = self._cache.get((kind, value)) if kind in (str, int, float, bool) else None
        if label is None:
            before = self._pairs, self._named_seen, self._other
            label = self._decide(_canonical(value))
            if len(self._cache) < _CACHED:
                self._cache[kind, value] = label
                if not self._stream:  # there, a label decides nothing
                    self.undo.append(partial(self._restore, *before, (kind, value)))
        return label

    def _restore(
        self, pairs: Sequence[tuple[str, str]], named_seen: bool, other: str | None, cached: tuple[type, Any]
    ) -> None:
        self._pairs, self._named_seen, self._other = pairs, named_seen, other
        del self._cache[cached]

    def check(self, values: Iterable[Any]) -> None:
        """Refuse the label values of the next rows, before the first row is read."""
        distinct = _distinct(values)
        if self._named:
            self._seen |= dict.fromkeys(islice(distinct, _NAMED + 1))
            others = {}
            for text, count in distinct.items():
                with suppress(Unlabelled):
                    if self._spelt(text) is None:
                        others[text] = count
                    else:
                        self._named_seen = True
            if self._two_classes:
                if len(others) > 1 and self._named.keys() & distinct.keys():
                    raise ValueError(self._several({text: distinct.get(text, 0) for text in self._named} | others))
                self._other = next(iter(others), self._other)
        elif not known_label(text for text in distinct if not _is_no_label(text)):
            raise ValueError(_unclear(distinct))

    def _several(self, rows: Mapping[str, int]) -> str:
        """Say that labels without a name are of several classes; `rows` has the number of rows of each label."""
        counts = [f"{quote(text)} ({count:,})" for text, count in islice(rows.items(), _NAMED)]
        listed = ", ".join(counts) + (", ..." if len(rows) > _NAMED else "")
        return f"the labels are of several classes, {listed}; name the negative ones {_HOW_TO_NAME}"

    @property
    def named_are_bad(self) -> bool:
        """Whether named labels occurred, but in bad rows only."""
        return not self._named_seen and not self._named.keys().isdisjoint(self._seen)

    def unmet(self) -> str | None:
        """Return the end of a message "no row ..." if no named label occurred, else None.

        If both classes are named, no other label is taken for one of them, so that one of them may not occur.
        """
        if self._named_seen or not self._one_class:
            return None
        which = "that is not bad " if self.named_are_bad else ""
        return f"{which}had the label {' or '.join(map(repr, self._named))}; labels seen: {_quoted(self._seen)}"

    def mixture(self) -> str | None:
        """Return a warning if labels of a stream are of several known pairs, else None."""
        if self._named or self._pairs:
            return None
        negative = ", ".join(dict.fromkeys(pair[0] for pair in _PAIRS))
        return f"labels are of several kinds, such as {_quoted(self._seen)}: {negative} are all taken as negative"

    def _spelt(self, text: str) -> int | None:
        """Return the label of a named value, None of another one. Raises ValueError if it is no label."""
        label = self._named.get(text)
        if label is not None:
            return label
        if (spelling := self._folded.get(_folded(text))) is not None:
            option = _OPTIONS[self._named[spelling]]
            raise ValueError(
                f"the file has the label {text!r}, {option} says {spelling!r}: give it as in the file, "
                f"once for each spelling; the labels seen are {_quoted({text: None} if self._stream else self._seen)}"
            )
        if _is_no_label(text) and not (text == "-" and self._minus):
            raise Unlabelled(f"{quote(text)} is no label; if it is one, name it with --negative or --positive")
        return None

    def _decide(self, text: str) -> int:
        if not self._stream:
            self._note(text)
        label = self._spelt(text)
        if label is not None:
            self._named_seen = True
            return label
        if self._named:
            return self._unnamed(text)
        folded = text.lower()
        pairs = [pair for pair in (_PAIRS if self._stream else self._pairs) if folded in pair]
        if not pairs:
            raise ValueError(_unclear({text: None} if self._stream else self._seen))
        self._note(text)
        self._pairs = [pair for pair in self._pairs if pair in pairs]
        return int(folded == pairs[0][1])

    def _unnamed(self, text: str) -> int:
        """Return the label of a value without a name, beside values with one."""
        if self._any is not None:
            return self._any
        if not self._two_classes:
            raise Unlabelled(f"the label {quote(text)} is neither --positive nor --negative")
        if self._other is None:
            self._other = text
        if text != self._other:
            classes = _quoted([*self._named, self._other])
            raise Unlabelled(f"the label {quote(text)} is of a third class beside {classes}; name it {_HOW_TO_NAME}")
        return 0

    def _note(self, text: str) -> None:
        if len(self._seen) <= _NAMED:
            self._seen[text] = None


class Ranks:
    """Maps label values to the ranks 1 to p of an ordinal learner; `lowest_first` has the p values in order.

    Other values raise an error, because their order is unknown.
    """

    def __init__(self, lowest_first: Sequence[str]) -> None:
        self._ranks = {_canonical(text): rank for rank, text in enumerate(lowest_first, 1)}
        if len(self._ranks) < len(lowest_first):
            raise ValueError(f"two of the ranks {_quoted(lowest_first)} are the same label")
        self._cache: dict[Any, int] = {}
        self.undo: list[Callable[[], None]] = []  # as of `BinaryLabels`; a rank decides nothing

    def __call__(self, value: Any) -> int:
        """Return the rank, 1 to p."""
        kind = type(value)
        rank = self._cache.get((kind, value)) if kind in (str, int, float) else None
        if rank is None:
            text = _canonical(value)
            rank = self._ranks.get(text)
            if rank is None and _is_no_label(text):
                raise Unlabelled(f"{quote(text)} is no label; if it is one, name it with --ranks")
            if rank is None:
                raise ValueError(f"the label is {quote(text)}; {self._expected()}")
            if len(self._cache) < _CACHED:
                self._cache[kind, value] = rank
        return rank

    def check(self, values: Iterable[Any]) -> None:
        """Refuse the label values of the next rows, before the first row is read."""
        distinct = [text for text in _distinct(values) if text in self._ranks or not _is_no_label(text)]
        if not self._ranks.keys() >= set(distinct):
            seen, order = distinct, "LOWEST,...,HIGHEST"
            with suppress(ValueError):  # words have no known order
                seen.sort(key=float)
                order = ",".join(seen) if len(seen) == len(self._ranks) else order
            expected = self._expected()
            raise ValueError(f"the labels seen are {_quoted(seen)}; {expected}: name the file's with --ranks {order}")

    named_are_bad = False

    def unmet(self) -> None:
        """Return None: a rank may be missing in a file."""
        return

    def _expected(self) -> str:
        return f"expected the learner's {len(self._ranks)} ranks as {_quoted(self._ranks)}"


def _distinct(values: Iterable[Any]) -> dict[str, int]:
    """Count the distinct labels in their order, without missing ones: their rows report them."""
    distinct: dict[str, int] = {}
    for value in values:
        with suppress(ValueError):
            text = _canonical(value)
            distinct[text] = distinct.get(text, 0) + 1
    return distinct


def _unclear(seen: Iterable[str]) -> str:
    return f"the labels seen are {_quoted(seen)}; expected {known_labels()}, or the positive one named with --positive"


def _quoted(labels: Iterable[str]) -> str:
    """Quote the first few labels."""
    first = list(islice(labels, _NAMED + 1))
    return ", ".join(map(quote, first[:_NAMED])) + (", ..." if len(first) > _NAMED else "")


def _folded(text: str) -> str:
    """Return what spellings of the same label share: those that differ in case, a point at the end, or invisibly."""
    normal = unicodedata.normalize("NFKC", text)
    bare = "".join(mark for mark in normal if unicodedata.category(mark) != "Cf").casefold()
    return bare.rstrip(".").strip() or bare


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
                raise Unlabelled("the label is missing") from None
            return text
    if value is None or value != value:
        raise Unlabelled("the label is missing")
    if isinstance(value, (int, float)):
        return _spelling(value)
    raise ValueError(f"the label is {str(value)[:60]}; expected a string, number or boolean")


def identity(value: Any) -> str | None:
    """Parse an id; None if it is missing. 7, 7.0, "7", "7.0" and " 7 " are the same, up to 2^53.

    Raises ValueError for a float beyond 2^53, which several ids share.
    """
    if isinstance(value, str):
        text = value.strip()
        if len(text) > _ID_CHARACTERS or not text.isprintable():
            raise ValueError(f"the id is {quote(text)}; expected at most {_ID_CHARACTERS} printable characters")
        whole = _WHOLE_ID.fullmatch(text)
        if whole is not None and abs(int(whole[1])) <= _EXACT:
            return whole[1]
        if _FLOAT_ID.fullmatch(text) and abs(float(text)) > _EXACT_FLOAT:
            raise ValueError(f"the id is {quote(text)}, a number whose last digits are lost; export the column as text")
        return None if is_absent(text) else text
    if value is None or value != value:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"the id is {str(value)[:60]}; expected a string or a number")
    if isinstance(value, float) and abs(value) > _EXACT:
        raise ValueError(f"the id is {value}, a float beyond 2^53, which several ids share; send text or an integer")
    return str(value) if isinstance(value, int) else _spelling(value)


def weight(value: Any) -> float | None:
    """Parse a weight; None if it is missing (the service then uses 1)."""
    weight_ = number(value) if isinstance(value, str) else plain_number("weight", value)
    if weight_ is not None and weight_ < 0:
        raise ValueError(f"the weight is {weight_:g}; expected at least 0")
    return weight_


def _spelling(value: float) -> str:
    """Spell a number: 7 and 7.0 are both "7"."""
    return str(int(value)) if math.isfinite(value) and value == int(value) else str(value)
