"""The base of all file readers: rows in order, each an API event, and places in the file for errors."""

from __future__ import annotations

import io
import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from types import TracebackType
from typing import Any, Generic, Literal, Self, TypeVar

from learners.features import LARGEST, is_too_large
from service.datasets.bad_rows import BadRows, ReadError, RowOrigin
from service.datasets.identifiers import RoundedNumbers
from service.datasets.notes import ColumnNote, LongTexts
from service.datasets.packed_text import File, lines_of
from service.datasets.values import BinaryLabels, Ranks, RowColumns, Unlabelled
from service.text import counted

__all__ = ["AHEAD_ROWS", "Event", "ReadError", "RowEvent", "Rows", "Shape", "TextRows", "describe_unlabelled"]

Event = dict[str, Any]  # an event of the API, with its label
Record = TypeVar("Record")
Text = TypeVar("Text", str, list[str])
Decoded = TypeVar("Decoded")


class RowEvent(dict[str, Any]):
    """An event, and where it was read."""

    __slots__ = ("origin",)

    def __init__(self, event: Event, origin: RowOrigin) -> None:
        super().__init__(event)
        self.origin = origin


AHEAD_ROWS = 10_000  # rows that are surveyed before the first is yielded
_BEYOND = f" beyond {LARGEST:g}"
_AHEAD_CHARACTERS = 4_000_000  # or fewer, if they are long


@dataclass(frozen=True)
class Shape:
    """The kind and the columns of a file's rows."""

    kind: Literal["named", "dense", "sparse"]
    columns: tuple[str, ...] = ()  # named: the features in order (JSONL: of the first row)
    texts: tuple[str, ...] = ()  # named: the features with strings
    width: int | None = None  # dense: numbers per row; sparse: columns, if known
    base: int = 0  # sparse: the file's index of the first column

    def __str__(self) -> str:
        if self.kind == "named":
            return f"{len(self.columns)} named features"
        return f"{self.kind} rows" if self.width is None else f"{self.kind} rows of {counted(self.width, 'column')}"


@dataclass
class _MissingCells:
    """Cells of a column that are not empty and count as missing."""

    count: int
    text: str  # of the first
    place: int  # of the first


def describe_unlabelled(count: int, done: str, first: str) -> list[str]:
    """Return a line about rows without a label: what was `done` with them, and the first; none without such rows."""
    return [f"{counted(count, 'row')} without a label: {done}, the first in {first}"] if count else []


class Rows(ABC, Generic[Record]):
    """An open file: `shape` describes its rows, `events` yields them once, in order. A context manager."""

    shape: Shape
    header: Sequence[str] = ()  # names of columns, if the file has them apart from its rows
    total: int | None = None  # rows, if the format has their number
    adapt: Callable[[Event], Event] | None = None  # applied to each event; may raise ValueError
    long_texts: LongTexts | None = None  # counts texts that are cut
    unlabelled: str = "stop"  # what happens to a row without a label, as in `FileOptions`
    _unit: str = "line"  # unit of places in the file

    def __init__(self, file: File, labels: BinaryLabels | Ranks, bad: BadRows) -> None:
        self.file = file
        self.labels = labels  # the meaning of labels, and those that occurred
        self.rounded = RoundedNumbers()
        self.guesses: list[str] = []  # what is taken of the file that could be meant otherwise
        self._bad = bad
        self._place = 0  # of the current row
        self._missing: dict[tuple[str, bool], _MissingCells] = {}  # by numeric column, and whether they are too large
        self._surveyed = 0  # guesses before the first row
        self._unlabelled = 0  # rows without a label
        self._first_unlabelled = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def events(self, skip: int = 0) -> Iterator[RowEvent]:
        """Yield every good row from number `skip` on, counted from 0. Bad rows go to `BadRows`, or end it.

        Skipped rows are decoded, too: bad ones and those without a label do not count. Raises `ReadError`.
        """
        self._surveyed = len(self.guesses)
        undo = self.labels.undo
        for place, record in self._records():
            self._place = place
            try:
                event = self._event(record)
                if self.adapt is not None:
                    event = self.adapt(event)
            except ValueError as error:
                self._withdraw()
                self._bad.add(self._origin(place, record), error)
                continue
            undo.clear()
            self.rounded.note(event, f"{self._unit} {place:,}")
            if self.long_texts is not None:
                self.long_texts.note(event, f"{self._unit} {place:,}")
            if skip:
                skip -= "label" in event
            elif "label" in event or self.unlabelled != "skip":
                yield RowEvent(event, self._origin(place, record))

    @property
    def unlabelled_count(self) -> int:
        """Number of rows without a label so far."""
        return self._unlabelled

    def notes(self, labels: bool = True) -> list[str]:
        """Describe what the rows that were read had: missing `labels`, guesses after the survey, missing cells."""
        done = "left out" if self.unlabelled == "skip" else "scored and not learnt"
        return (
            describe_unlabelled(self._unlabelled * labels, done, self._first_unlabelled)
            + self.guesses[self._surveyed :]
            + [
                ColumnNote(
                    name,
                    f"{counted(cells.count, 'number' if large else 'non-numeric cell')}{_BEYOND * large} taken as "
                    f"missing, the first in {self._unit} {cells.place:,}: {cells.text!r}",
                )
                for (name, large), cells in self._missing.items()
            ]
            + list[str](self.rounded.notes())
            + (self.long_texts.notes() if self.long_texts is not None else [])
        )

    def _label(self, value: Any, absent: str | None = None) -> int | None:
        """Return the label of the current row; None if it has none and that is no error. `absent` says that it has."""
        try:
            if absent is not None:
                raise Unlabelled(absent)
            return self.labels(value)
        except Unlabelled as error:
            if self.unlabelled == "stop":
                raise
            self.labels.undo.append(partial(self._uncount_unlabelled, self._first_unlabelled))
            self._first_unlabelled = self._first_unlabelled or f"{self._unit} {self._place:,}: {error}"
            self._unlabelled += 1
            return None

    def _withdraw(self) -> None:
        """Take back what the last rows have decided about others, because they are bad or were only surveyed."""
        while self.labels.undo:
            self.labels.undo.pop()()

    def _labelled_only(self, rows: list[Decoded], label_of: Callable[[Decoded], Any]) -> list[Decoded]:
        """Return the rows that are not refused or left out for their label; all if none is left."""
        labelled = [row for row in rows if self._is_labelled(label_of(row))] or rows
        self._withdraw()
        return labelled

    def _is_labelled(self, value: Any) -> bool:
        """Tell whether a row with this label is read; a missing label is none unless such rows are scored."""
        try:
            self.labels(value)
        except Unlabelled:
            return self.unlabelled == "score"
        except ValueError:
            return False
        return True

    def _note_missing(self, name: str, text: str) -> None:
        key = name, is_too_large(text)
        self._missing.setdefault(key, _MissingCells(0, text[:60], self._place)).count += 1
        self.labels.undo.append(partial(self._uncount_missing, key))

    def _uncount_missing(self, key: tuple[str, bool]) -> None:
        self._missing[key].count -= 1
        if not self._missing[key].count:
            del self._missing[key]

    def _uncount_unlabelled(self, first: str) -> None:
        self._first_unlabelled = first
        self._unlabelled -= 1

    @abstractmethod
    def fraction(self) -> float:
        """Return the fraction of the file that `events` has yielded, 0 to 1, without surveyed rows."""

    def close(self) -> None:
        """Close the file; the context manager does it."""
        return

    @abstractmethod
    def _records(self) -> Iterator[tuple[int, Record]]:
        """Yield each raw row with its place."""

    @abstractmethod
    def _event(self, record: Record) -> Event:
        """Decode a row to an event. Raises ValueError if it is malformed."""

    def _origin(self, place: int, record: Record) -> RowOrigin:
        return RowOrigin(self.file, self._unit, place, self._original(record))

    def _original(self, record: Record) -> Any:
        """Return a row for the file of bad rows."""
        return record


class TextRows(Rows[Text]):
    """A text file, compressed or not, whose first rows are surveyed before any is yielded."""

    def __init__(
        self,
        file: File,
        columns: RowColumns,
        labels: BinaryLabels | Ranks,
        bad: BadRows,
        stream: io.BufferedReader | None = None,
    ) -> None:
        """Open a file; `stream` is read instead of it, and `file` then only names it in messages."""
        super().__init__(file, labels, bad)
        self._columns = columns
        self._raw = file.path.open("rb") if stream is None else stream
        try:
            self._size = max(1, os.fstat(self._raw.fileno()).st_size) if stream is None else 0
            self._lines = lines_of(self._raw, file, encoding=columns.form.encoding)
            self._rest: Iterator[tuple[int, Text]] = self._read()
            self._head: deque[tuple[int, Text, int]] = deque(
                (place, record, self._offset()) for place, record in self._first()
            )
            if not self._head:
                raise ReadError(f"{file}: the file has no rows")
            self.shape = self._survey([(place, record) for place, record, _ in self._head])
            self._bytes_read: int | None = 0  # up to the last yielded row; None after the head
        except BaseException:
            self._raw.close()
            raise

    def fraction(self) -> float:
        if not self._size:  # unknown for a stream
            return 0.0
        if self._bytes_read is not None:
            return self._bytes_read / self._size
        return self._offset() / self._size

    def _offset(self) -> int:
        """Return how many bytes were read; the file is closed behind its last line."""
        return self._size if self._raw.closed else self._raw.tell()

    def close(self) -> None:
        self._raw.close()

    def _records(self) -> Iterator[tuple[int, Text]]:
        return chain(self._out_of_head(), self._rest)

    def _out_of_head(self) -> Iterator[tuple[int, Text]]:
        while self._head:
            place, record, self._bytes_read = self._head.popleft()
            yield place, record
        self._bytes_read = None

    def _first(self) -> Iterator[tuple[int, Text]]:
        room = _AHEAD_CHARACTERS
        for place, record in islice(self._rest, AHEAD_ROWS):
            yield place, record
            room -= len(record) if isinstance(record, str) else sum(map(len, record))
            if room < 0:
                return

    def _check_labels(self, values: Iterator[Any]) -> None:
        try:
            self.labels.check(values)
        except ValueError as error:
            raise ReadError(f"{self.file}: {error}") from None

    @abstractmethod
    def _read(self) -> Iterator[tuple[int, Text]]:
        """Yield every raw row with its line number, without blank lines. Raises `ReadError`."""

    @abstractmethod
    def _survey(self, head: list[tuple[int, Text]]) -> Shape:
        """Derive the shape from the first rows, bad ones included. Raises `ReadError` if their labels are unclear."""

    def _good(self, head: Iterable[tuple[int, Text]], decode: Callable[[Text], Decoded]) -> list[Decoded]:
        """Return the first rows that `decode` accepts. Raises `ReadError` at a bad one if it ends the command."""
        good, first = [], ""
        for place, record in head:
            try:
                good.append(decode(record))
            except ValueError as error:
                if self._bad.stop:
                    self._bad.add(self._origin(place, record), error)
                first = first or f"{self._unit} {place:,}: {error}"
        if not good:
            raise ReadError(f"{self.file}: the first rows are all bad; {first}")
        return good
