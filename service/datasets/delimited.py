"""Reads the rows of CSV and TSV text: finds delimiter and quotes; a bad quote does not swallow other rows."""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from itertools import chain, islice
from typing import NamedTuple

from service.datasets.file_options import FileOptions
from service.datasets.number_cells import quote
from service.text import counted

__all__ = ["DelimitedText", "MalformedRow"]

_TAB = "\t"
_BLANK = " "
_DELIMITERS = {",": "commas", ";": "semicolons", _TAB: "tabs", "|": "bars", _BLANK: "blanks"}
_LISTED = 12  # columns in a message
_SAMPLE = 100  # lines that the delimiter is detected in
_TITLES = 10  # lines at most before the table
_CELL_LINES = 10  # a longer run of lines that all look like rows is hardly one cell
_QUOTE_OPTIONS = """--quote '"' reads cells of several lines, --quote none quotes as text"""
_UNIFORM = 0.95  # share of the rows of a sample that have as many cells as the first
_LEAST = 1e-9  # fit of blanks, so that any other delimiter is preferred
_CELL = 2**20  # characters of a cell; a quote that never closes reads no further

csv.field_size_limit(_CELL)


class MalformedRow(list[str]):
    """A row that cannot be read: it has no cells, only the reason and its text."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__()
        self.reason = reason
        self.text = text


class _Dialect(NamedTuple):
    delimiter: str
    quote: str  # empty: quotes are text

    def rows(self, lines: Iterable[str], *, strict: bool = False) -> Iterator[list[str]]:
        blanks = self.delimiter == _BLANK  # of which several are one
        return csv.reader(
            (f"{line.strip()}\n" for line in lines) if blanks else lines,
            delimiter=self.delimiter,
            quotechar=self.quote or None,
            quoting=csv.QUOTE_MINIMAL if self.quote else csv.QUOTE_NONE,
            skipinitialspace=blanks,
            strict=strict and bool(self.quote),
        )


class DelimitedText:
    """The rows of a text, in order. `names` has the header's cells, or the names that the options give.

    `columns`: columns that the caller needs; a header with them confirms the delimiter. Without `options.quote` quotes
    are `'` if all names in the header have them, else `"`, or text if tabs separate the cells and the header has no
    quotes. Memory is that of one row and 100 lines.
    """

    def __init__(
        self, lines: Iterator[str], format: str, options: FileOptions, columns: Collection[str] = frozenset()
    ) -> None:
        self._line = 0  # number of the last line that was read
        self._row_lines: list[str] = []  # lines of the current row
        self._again: deque[str] = deque()  # lines that an earlier row swallowed
        sample = list(islice(lines, _SAMPLE))
        usual = "," if format == "csv" else _TAB
        self.guesses: list[str] = []
        self.headers = 0  # rows that repeat the header
        self._first_header = 0  # line of the first one
        if titles := _titles(sample, options.delimiter or "".join(_DELIMITERS).strip(_BLANK)):
            self.guesses.append(
                f"{counted(titles, 'line')} before the table left out, such as {quote(sample[0].strip())}"
            )
            self._line = titles
            del sample[:titles]
        self._lines = chain(sample, lines)
        self._sure = bool(options.quote)  # whether a row may have several lines that look like rows
        self._dialect = _dialect(sample, usual, options, columns)
        delimiter = self._dialect.delimiter
        self.quoted = bool(self._dialect.quote)
        self.separator = _DELIMITERS.get(delimiter, repr(delimiter))
        if not options.delimiter and delimiter != usual:
            self.guesses.append(f"the cells are separated by {self.separator}, not by {_DELIMITERS[usual]}")
        if self._dialect.quote == "'" and not options.quote:
            self.guesses.append("the cells are in single quotes; else use --quote none")
        self.names = list(options.columns)
        self.header = not options.columns
        if self.header:
            self.names = next((row for _, row in self._rows(0)), [])

    def rows(self) -> Iterator[tuple[int, list[str]]]:
        """Yield each row with the number of its first line; bad ones as `MalformedRow`.

        Leaves out blank lines, and rows that repeat the header, as files that were joined have.
        """
        header = self.names if self.header and len(self.names) > 1 else []
        for place, row in self._rows(len(self.names)):
            if header and row == header:
                self.headers += 1
                self._first_header = self._first_header or place
            else:
                yield place, row

    def notes(self) -> list[str]:
        """Describe the rows that were left out so far."""
        if not self.headers:
            return []
        first = f"the first in line {self._first_header:,}"
        return [f"{counted(self.headers, 'row')} like the header left out, {first}"]

    def describe_names(self) -> str:
        """Describe the columns for a message about one that is not there."""
        if not self.names:
            return "the file is empty"
        others = len(self.names) - _LISTED
        more = f" and {others:,} more" if others > 0 else ""
        listed = f"the columns are {', '.join(self.names[:_LISTED])[:500]}{more}"
        if len(self.names) == 1:
            listed = f"its only column is {self.names[0][:500]!r}, as {self.separator} separate the cells (--delimiter)"
        return listed + "; if that is a row, name the columns with --columns" * self.header

    def _rows(self, width: int) -> Iterator[tuple[int, list[str]]]:
        while True:
            reader = self._dialect.rows(self._feed(), strict=True)
            place = self._line + 1
            try:
                for row in reader:
                    if len(self._row_lines) > 1 and (reason := self._swallowed(row, width)):
                        if len(row) == width and len(self._row_lines) <= _CELL_LINES:
                            yield from self._reject_lines(place, reason)
                            place = self._line + 1
                            continue
                        yield place, self._reject(reason)
                        break
                    self._row_lines.clear()
                    if row:
                        yield place, row
                    place = self._line + 1
                else:
                    return
            except csv.Error as error:
                yield place, self._reject(str(error))

    def _feed(self) -> Iterator[str]:
        """Yield the lines, those that are read again first."""
        row_lines, again = self._row_lines, self._again
        while True:
            line = again.popleft() if again else next(self._lines, None)
            if line is None:
                return
            self._line += 1
            row_lines.append(line)
            yield line

    def _swallowed(self, row: list[str], width: int) -> str | None:
        """Say why a row of several lines is probably several rows; None if it is one."""
        if self._sure or not width:
            return None
        if len(row) == width and any(
            len(cells) != width for cells in _Dialect(self._dialect.delimiter, "").rows(self._row_lines)
        ):
            return None
        return f"a quote opens in this line and closes {len(self._row_lines) - 1:,} lines later"

    def _reject_lines(self, place: int, reason: str) -> Iterator[tuple[int, MalformedRow]]:
        """Reject each line of the current row: perhaps they are one cell, and a part of it must not become a row."""
        first, *others = (line.rstrip("\r\n") for line in self._row_lines)
        self._row_lines.clear()
        yield place, MalformedRow(f"{reason}: {_QUOTE_OPTIONS}", first)
        for line, text in enumerate(others, place + 1):
            yield line, MalformedRow(f"stands behind the quote that opens in line {place:,}: {_QUOTE_OPTIONS}", text)

    def _reject(self, reason: str) -> MalformedRow:
        """Reject the first line of the current row; its other lines are read again."""
        if not self._row_lines:  # an error before the first line
            return MalformedRow(reason, "")
        first, *others = self._row_lines
        if '\\"' in first:
            reason += """: quotes within a cell are doubled, not after a backslash: sed 's/\\\\"/""/g' FILE"""
        elif others:
            reason += f": {_QUOTE_OPTIONS}"
        self._again.extendleft(reversed(others))
        self._line -= len(others)
        self._row_lines.clear()
        return MalformedRow(reason, first.rstrip("\r\n"))


def _titles(sample: list[str], delimiters: str) -> int:
    """Return how many lines stand before the rows of a table: titles, comments, or the `sep=;` of Excel."""
    first = next((k for k, line in enumerate(sample) if not _is_title(line, delimiters)), 0)
    if not 0 < first <= _TITLES:
        return 0
    for delimiter in delimiters:
        dialect = _Dialect(delimiter, '"')
        widths = [len(next(dialect.rows([line]), [])) for line in sample]
        rows = [width for width in widths[first:] if width]
        if len(rows) > 2 and rows[0] > 1 and rows.count(rows[0]) > _UNIFORM * len(rows):
            commented = any(widths[k] == rows[0] and sample[k].startswith("#") for k in range(first))
            return 0 if commented else first  # a comment with as many cells is the header
    return 0


def _is_title(line: str, delimiters: str) -> bool:
    if line.startswith(("#", "|", "sep=")):
        return True
    text = line.strip()
    return not any(delimiter in line for delimiter in delimiters) and (not text or _BLANK in text)


def _dialect(sample: list[str], usual: str, options: FileOptions, columns: Collection[str]) -> _Dialect:
    marks = [options.delimiter] if options.delimiter else [usual, *(mark for mark in _DELIMITERS if mark != usual)]
    dialects = [_Dialect(mark, _quote(sample, mark, options)) for mark in marks]
    return max(dialects, key=lambda dialect: _fit(sample, dialect, options, columns))


def _quote(sample: list[str], delimiter: str, options: FileOptions) -> str:
    if options.quote:
        return "" if options.quote == "none" else options.quote
    first = sample[0].strip() if sample and not options.columns else ""
    header = first.split(None if delimiter == _BLANK else delimiter) if first else []
    if header and all(_is_in(cell, "'") for cell in header):
        return "'"
    return '"' if delimiter != _TAB or any(_is_in(cell, '"') for cell in header) else ""


def _is_in(cell: str, quote: str) -> bool:
    return len(cell) > 1 and cell[0] == cell[-1] == quote


def _fit(sample: list[str], dialect: _Dialect, options: FileOptions, columns: Collection[str]) -> tuple[int, float]:
    """Return how well the rows of a sample agree: wanted columns in the header, then the share of rows of its width."""
    rows = [row for row in dialect.rows(sample) if row]
    header = list(options.columns) or (rows[0] if rows else [])
    if len(header) < 2:
        return 0, 0.0
    matches = 0 if options.columns else sum(cell.strip() in columns for cell in header)
    share = sum(len(row) == len(header) for row in rows) / len(rows)
    if dialect.delimiter == _BLANK and not options.delimiter:  # text has blanks, too
        return matches, _LEAST if share == 1.0 and len(header) > 2 else 0.0
    return matches, share
