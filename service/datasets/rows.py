"""The base of all file readers: rows in order, each an API event, and places in the file for errors."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import sys
import zlib
from abc import ABC, abstractmethod
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Literal, Self, TypeVar

from service.datasets.values import BinaryLabels, Ranks, RowColumns
from service.exits import WrongUsage
from service.text import counted

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["GZIP", "READ", "Event", "ReadError", "Rows", "Shape", "TextRows", "lines_of", "standard_input", "text_of"]

Event = dict[str, Any]  # an event of the API, with its label
Record = TypeVar("Record")
Text = TypeVar("Text", str, list[str])

GZIP = b"\x1f\x8b"  # beginning of gzipped files
_PACKED: dict[bytes, Callable[[Any], Any]] = {  # other compressions by their beginnings
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\0": lzma.LZMAFile,
    b"\x28\xb5\x2f\xfd": zstd.ZstdFile,
}
_NO_TEXT = {  # beginnings of files that are often taken for text
    BOM_UTF16_LE: "UTF-16 text",
    BOM_UTF16_BE: "UTF-16 text",
    b"PK\x03\x04": "a zip archive, as spreadsheets and .npz files are",
    b"PAR1": "a Parquet file",
}
READ = "CSV, TSV, JSON lines or LIBSVM text in UTF-8, gzipped or not, or an .npz archive"
_AHEAD_ROWS = 10_000  # rows that are surveyed before the first is yielded
_AHEAD_CHARACTERS = 4_000_000  # or fewer, if they are long


class ReadError(WrongUsage):
    """A file cannot be read as labelled rows. The text names the file, and the line if possible."""


@dataclass(frozen=True)
class Shape:
    """The kind and the columns of a file's rows."""

    kind: Literal["named", "dense", "sparse"]
    columns: tuple[str, ...] = ()  # named: the features in order (JSONL: of the first row)
    texts: tuple[str, ...] = ()  # named: the features with strings
    width: int | None = None  # dense: numbers per row; sparse: columns, if known

    def __str__(self) -> str:
        if self.kind == "named":
            return f"{len(self.columns)} named features"
        return f"{self.kind} rows" if self.width is None else f"{self.kind} rows of {counted(self.width, 'column')}"


class _Counting(io.RawIOBase):
    """Wraps an unseekable stream, such as a pipe, to count the bytes read."""

    def __init__(self, stream: io.BufferedReader) -> None:
        self._stream = stream
        self._read = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read1(len(buffer))
        buffer[: len(data)] = data
        self._read += len(data)
        return len(data)

    def tell(self) -> int:
        return self._read


def standard_input() -> io.BufferedReader:
    """Return standard input for the readers of files."""
    return io.BufferedReader(_Counting(sys.stdin.buffer))  # type: ignore[arg-type]


def text_of(stream: io.BufferedReader) -> io.TextIOWrapper:
    """Return the text of a stream, compressed by gzip, bz2, xz or zstd or not."""
    head = stream.peek(6)
    source: Any = gzip.GzipFile(fileobj=stream) if head.startswith(GZIP) else stream
    for begin, opener in _PACKED.items():
        if head.startswith(begin):
            source = io.BufferedReader(opener(stream))
    return io.TextIOWrapper(source, encoding="utf-8-sig", newline="")


def lines_of(text: io.TextIOWrapper, path: Path, expected: str = READ) -> Iterator[str]:
    """Yield the lines of a text from its beginning; `path` names it in messages.

    Raises `ReadError` at the first line that is damaged or not UTF-8, and at once for binary data, with the `expected`
    formats.
    """
    count = 0
    try:
        head: bytes = text.buffer.peek(1)  # type: ignore[attr-defined]  # the buffers of `text_of` have it
        kind = next((what for begin, what in _NO_TEXT.items() if head.startswith(begin)), None)
        if kind is not None or b"\0" in head:
            raise ReadError(f"{path} is {kind or 'binary data'}; expected {expected}")
        for line in text:
            count += 1
            yield line
    except UnicodeDecodeError as error:
        place = count + 1 + error.object.count(b"\n", 0, error.start)
        reason = f"not UTF-8 text: it contains the byte 0x{error.object[error.start]:02x}; save the file as UTF-8"
        raise ReadError(f"{path}, line {place:,}: {reason}") from None
    except (zlib.error, lzma.LZMAError, zstd.ZstdError, EOFError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # of the disk
            raise
        kind = "gzip" if isinstance(text.buffer, gzip.GzipFile) else "compressed"
        raise ReadError(f"{path}, line {count + 1:,}: the {kind} data is damaged or cut short ({error})") from None


@dataclass
class _MissingCells:
    """Cells of a column that are not empty and count as missing."""

    count: int
    text: str  # of the first
    place: int  # of the first


class Rows(ABC, Generic[Record]):
    """An open file: `shape` describes its rows, `events` yields them once, in order. A context manager."""

    shape: Shape
    total: int | None = None  # rows, if the format has their number
    adapt: Callable[[Event], Event] | None = None  # applied to each event; may raise ValueError
    _unit: str = "line"  # unit of places in the file

    def __init__(self, path: Path, labels: BinaryLabels | Ranks) -> None:
        self.path = path
        self.labels = labels  # the meaning of labels, and those that occurred
        self.guesses: list[str] = []  # what is taken of columns that could be meant otherwise
        self._place = 0  # of the current row
        self._missing: dict[str, _MissingCells] = {}  # by numeric column

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def events(self, skip: int = 0) -> Iterator[Event]:
        """Yield every row from number `skip` on, counted from 0. Raises `ReadError` at the first malformed row."""
        for place, record in self._records(skip):
            self._place = place
            try:
                event = self._event(record)
                if self.adapt is not None:
                    event = self.adapt(event)
            except ValueError as error:
                raise self._at(place, error) from None
            yield event

    def missing_cells(self) -> list[str]:
        """Describe the cells of numeric columns that are not empty and count as missing, by column."""
        return [
            f"{name}: {counted(cells.count, 'non-numeric cell')} taken as missing, the first in {self._unit} "
            f"{cells.place:,}: {cells.text!r}"
            for name, cells in self._missing.items()
        ]

    def _note_missing(self, name: str, text: str) -> None:
        cells = self._missing.get(name)
        if cells is None:
            self._missing[name] = _MissingCells(1, text[:60], self._place)
        else:
            cells.count += 1

    @abstractmethod
    def fraction(self) -> float:
        """Return the fraction of the file that `events` has yielded, 0 to 1, without surveyed rows."""

    def close(self) -> None:
        """Close the file; the context manager does it."""
        return

    @abstractmethod
    def _records(self, skip: int) -> Iterator[tuple[int, Record]]:
        """Yield each raw row with its place, from row `skip` on."""

    @abstractmethod
    def _event(self, record: Record) -> Event:
        """Decode a row to an event. Raises ValueError if it is malformed."""

    def _at(self, place: int, error: object) -> ReadError:
        return ReadError(f"{self.path}, {self._unit} {place:,}: {error}")


class TextRows(Rows[Text]):
    """A text file, gzipped or not, whose first rows are surveyed before any is yielded."""

    def __init__(
        self, path: Path, columns: RowColumns, labels: BinaryLabels | Ranks, stream: io.BufferedReader | None = None
    ) -> None:
        """Open a file; `stream` is read instead of it, and `path` then only names it in messages."""
        super().__init__(path, labels)
        self._columns = columns
        self._raw = path.open("rb") if stream is None else stream
        try:
            self._size = max(1, os.fstat(self._raw.fileno()).st_size) if stream is None else 0
            self._text = text_of(self._raw)
            self._rest: Iterator[tuple[int, Text]] = self._read()
            self._head: deque[tuple[int, Text, int]] = deque(
                (place, record, self._raw.tell()) for place, record in self._first()
            )
            if not self._head:
                raise ReadError(f"{path}: the file has no rows")
            self.shape = self._survey([(place, record) for place, record, _ in self._head])
            self._bytes_read: int | None = 0  # up to the last yielded row; None after the head
        except BaseException:
            self._raw.close()
            raise

    def fraction(self) -> float:
        if not self._size:  # unknown for a stream
            return 0.0
        return (self._raw.tell() if self._bytes_read is None else self._bytes_read) / self._size

    def close(self) -> None:
        self._raw.close()

    def _records(self, skip: int) -> Iterator[tuple[int, Text]]:
        return islice(chain(self._out_of_head(), self._rest), skip, None)

    def _out_of_head(self) -> Iterator[tuple[int, Text]]:
        while self._head:
            place, record, self._bytes_read = self._head.popleft()
            yield place, record
        self._bytes_read = None

    def _first(self) -> Iterator[tuple[int, Text]]:
        room = _AHEAD_CHARACTERS
        for place, record in islice(self._rest, _AHEAD_ROWS):
            yield place, record
            room -= len(record) if isinstance(record, str) else sum(map(len, record))
            if room < 0:
                return

    def _check_labels(self, values: Iterator[Any]) -> None:
        try:
            self.labels.check(values)
        except ValueError as error:
            raise ReadError(f"{self.path}: {error}") from None

    @abstractmethod
    def _read(self) -> Iterator[tuple[int, Text]]:
        """Yield every raw row with its line number, without blank lines. Raises `ReadError`."""

    @abstractmethod
    def _survey(self, head: list[tuple[int, Text]]) -> Shape:
        """Derive the shape from the first rows. Raises `ReadError` if their labels are unclear."""

    def _lines(self) -> Iterator[str]:
        """Yield the text line by line."""
        return lines_of(self._text, self.path)
