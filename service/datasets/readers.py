"""Reads files of labelled rows as API events: CSV, TSV, JSON lines, Parquet, .npz and LIBSVM text.

Text may be compressed by gzip, bz2, xz, zstd or zip. It is read once, from front to back, in constant memory and time
per row, except that LIBSVM text is searched for an index 0 before; the arrays of an .npz are loaded. `FileOptions` says
how a file is written; what it leaves open is found out, and said in `guesses`.

    CSV, TSV   A header or `FileOptions.columns` names the columns; all except the label are features. A column whose
               first cells (up to 10,000 rows) are numbers, with at most 1 other in 100, or fewer others than numbers if
               there are fractions, is numeric in the whole file. Its other cells are null, as are empty ones; `notes`
               counts those that are not empty. In other columns cells are strings, and empty ones null. A column that
               is empty in these rows becomes what its first cell is. So a column never changes its type. What a cell
               means is said by the rule of values, see `learners.features`. The learner's declaration of a column takes
               precedence; in a column that it declares numeric, text is an error.
    JSONL      Each line is a flat object of features and the label, or an API event:
               {"features": {...}}, {"x": [...]} or {"indices": [...], "values": [...]} with the label beside it. A file
               may also be one list of such objects, or {"events": [...]}; then it is in memory as a whole. NaN and
               Infinity, which JSON does not have, are null; `notes` counts them.
    Parquet    Columns keep their types; see `parquet.py`. `FileOptions.decimal` reads numbers in columns of text.
    .npz       Dense `X` (n, dim), or the CSR parts `data`, `indices`, `indptr`, `shape`; labels `y` (n,).
    LIBSVM     `label index:value ...`, indices from 1, or from 0 by `FileOptions.zero_based` (they become 0-based and
               ascending); `qid:` is ignored; # begins a comment.
"""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from itertools import chain, count, islice, pairwise
from pathlib import Path
from tokenize import TokenError
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from service.datasets.bad_rows import BadRows
from service.datasets.delimited import DelimitedText, MalformedRow
from service.datasets.identifiers import RoundedNumbers, check_ids, unnamed_ids
from service.datasets.json_rows import ONE_EACH, JsonEvents, LenientJson, form_of, json_texts
from service.datasets.missing_cells import MissingCells
from service.datasets.number_cells import is_number, number
from service.datasets.packed_text import (
    PACKED_SUFFIXES,
    File,
    head_of,
    lines_of,
    temporary_copy,
    unpacked,
    zipped_name,
)
from service.datasets.parquet import ParquetFile
from service.datasets.rows import AHEAD_ROWS, Event, ReadError, Rows, Shape, TextRows
from service.datasets.table import CellTable
from service.datasets.values import BinaryLabels, Ranks, RowColumns
from service.text import counted

__all__ = ["FORMATS", "format_of", "format_of_content", "open_rows", "resolve_format"]

FORMATS = ("csv", "tsv", "jsonl", "parquet", "npz", "libsvm")
_SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".json": "jsonl",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".npz": "npz",
    ".libsvm": "libsvm",
    ".svm": "libsvm",
    ".txt": "libsvm",
}
_ZIP, _ARRAY = b"PK\x03\x04", b"\x93NUMPY"  # beginnings of NumPy's files of several arrays, and of one
# what NumPy and zipfile raise for a damaged archive
_FAULTS = (ValueError, EOFError, MemoryError, RuntimeError, TokenError, zipfile.BadZipFile, zlib.error)
_PARQUET = b"PAR1"
_PAIRS = re.compile(rb"\S+([ \t]+(qid|[0-9]+):\S+)+[ \t]*(#.*)?\r?\n")  # a line of LIBSVM text
_PAIR = re.compile(r"(qid|[0-9]+):\S*")  # in the place of the label: there is none
_ZERO = re.compile(r"\s0+:")  # an index 0 in it
_RELATION = re.compile(rb"(\s*%.*\n)*\s*@relation\b", re.IGNORECASE)  # how an ARFF file begins
_ARFF = (
    "ARFF is not read, but its rows are CSV: write them to a file with sed '1,/^ *@data/Id' FILE.arff > FILE.csv, and "
    "name the columns with --columns; --missing '?' and --quote \"'\" may be needed, too"
)
_GLUED = re.compile(r"\}\s*\{")  # objects in one line
_BLOCK = 1000  # rows of an array that are converted to Python numbers at once


def format_of(path: Path) -> str:
    """Return the format by the file's name. Raises `ReadError` if the name does not tell."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in PACKED_SUFFIXES:
        packing = suffixes.pop()
        inner = Path(zipped_name(path)).suffix.lower() if packing == ".zip" and path.is_file() else ""
        suffixes += [inner] if inner else []
    if suffixes and suffixes[-1] == ".arff":
        raise ReadError(f"{path}: {_ARFF}")
    name = _SUFFIXES.get(suffixes[-1]) if suffixes else None
    if name is None:
        raise ReadError(f"{path}: unknown format; use --format with one of {', '.join(FORMATS)}")
    return name


def format_of_content(stream: io.BufferedReader, file: object) -> str:
    """Return the format by the first bytes of an unpacked stream; "jsonl" if it is empty. `file` names it in errors."""
    head = head_of(stream, file)
    if _RELATION.match(head):
        raise ReadError(f"{file}: {_ARFF}")
    if head.startswith((_ZIP, _ARRAY)):
        return "npz"
    if head.startswith(_PARQUET):
        return "parquet"
    if head.lstrip()[:1] in (b"{", b"[", b""):
        return "jsonl"
    return "libsvm" if _PAIRS.match(head) else "csv"


def resolve_format(file: File) -> str:
    """Return the format by the file's name, or for a pipe's copy by its first bytes. Raises `ReadError`."""
    if str(file.path) == file.name:
        return format_of(file.path)
    with file.path.open("rb") as stream:
        return format_of_content(unpacked(stream, file), file)


def open_rows(
    path: Path | File,
    columns: RowColumns,
    declared: Mapping[str, bool] | None = None,
    format: str = "",
    labels: BinaryLabels | Ranks | None = None,
    *,
    labelled: bool = True,
    stream: io.BufferedReader | None = None,
    bad: BadRows | None = None,
) -> Rows[Any]:
    """Open a file of labelled rows.

    `declared`: columns of known type, and whether they are numeric. `labels`: the meaning of labels; by default two
    classes by `columns.positive`. Without `labelled`, a CSV or TSV file needs no label, and its label is omitted.
    `stream`: CSV, TSV or JSON lines to read instead of the file, without compression. `bad` takes malformed rows; by
    default the first one ends the reading. Raises `ReadError` if the file cannot be opened, lacks a column, or has
    labels that `labels` refuses.
    """
    file = File.of(path) if isinstance(path, Path) else path
    format = format or format_of(file.path)
    if labels is None:
        labels = BinaryLabels(columns.positive, columns.negative)
    bad = bad or BadRows()
    if format in ("npz", "libsvm") and columns.named:
        raise ReadError(f"{file}: {format} files have no column names such as {', '.join(columns.named)}")
    rows: Rows[Any]
    try:
        columns.form.check(format)
        match format:
            case "csv" | "tsv":
                rows = _CsvRows(file, columns, labels, bad, declared or {}, format, labelled, stream)
            case "parquet":
                rows = _ParquetRows(file, columns, labels, bad, declared or {}, labelled)
            case "jsonl":
                rows = _JsonRows(file, columns, labels, bad, stream)
            case "libsvm":
                rows = _LibsvmRows(file, columns, labels, bad)
            case "npz":
                rows = _ArrayRows(file, columns, labels, bad)
            case _:
                raise ReadError(f"{format!r} is not a format; expected one of {', '.join(FORMATS)}")
    except OSError as error:
        raise ReadError(f"{file}: {error.strerror or error}") from None
    except ValueError as error:
        raise ReadError(f"{file}: {error}") from None
    rows.unlabelled = columns.form.unlabelled
    rows.rounded = RoundedNumbers(declared)
    return rows


class _CsvRows(TextRows[list[str]]):
    def __init__(
        self,
        file: File,
        columns: RowColumns,
        labels: BinaryLabels | Ranks,
        bad: BadRows,
        declared: Mapping[str, bool],
        format: str,
        labelled: bool,
        stream: io.BufferedReader | None,
    ) -> None:
        self._declared = declared
        self._format = format
        self._labelled = labelled
        super().__init__(file, columns, labels, bad, stream)

    def _read(self) -> Iterator[tuple[int, list[str]]]:
        columns = {self._columns.label, *self._columns.named}
        self._delimited = DelimitedText(self._lines, self._format, self._columns.form, columns)
        self._missing_cells = MissingCells(self._columns.form.missing)
        return self._missing_cells.rows(self._delimited.rows())

    def _survey(self, head: list[tuple[int, list[str]]]) -> Shape:
        self.guesses += self._delimited.guesses
        self._check_header(head)
        self.header = names = self._delimited.names
        try:
            self._table = CellTable(
                names,
                self._columns,
                self._label,
                self._declared,
                labelled=self._labelled,
                note_missing=self._note_missing,
                guesses=self.guesses,
                undo=self.labels.undo,
            )
        except ValueError as error:
            raise ValueError(f"{error}; {self._delimited.describe_names()}") from None
        rows = self._good(head, self._row)
        label = self._table.label
        rows = [row for row in rows if self._table.good(row)] or rows
        if label is not None:
            self._check_labels(row[label] for row in rows)
            rows = self._labelled_only(rows, lambda row: row[label])
        return self._table.survey(rows)

    def notes(self, labels: bool = True) -> list[str]:
        return self._delimited.notes() + self._missing_cells.notes() + super().notes(labels)

    def _check_header(self, head: list[tuple[int, list[str]]]) -> None:
        """Raise ValueError if all rows have the same number of cells, and the header another one."""
        widths = {len(record) for _, record in head if not isinstance(record, MalformedRow)}
        columns = len(self._delimited.names)
        if self._delimited.header and len(widths) == 1 and columns not in widths:
            raise ValueError(
                f"the header names {counted(columns, 'column')}, and every row has {counted(widths.pop(), 'cell')}; if "
                "the first line is no header, name the columns with --columns, and leave the line out by --on-bad skip"
            )

    def _event(self, record: list[str]) -> Event:
        if type(record) is not list:
            self._row(record)
        return self._table.event(record)

    def _row(self, record: list[str]) -> list[str]:
        """Return a row. Raises ValueError if it is malformed."""
        if isinstance(record, MalformedRow):
            raise ValueError(record.reason)
        self._table.check(record)
        return record

    def _original(self, record: list[str]) -> Any:
        return record.text if isinstance(record, MalformedRow) else record


class _ParquetRows(Rows[list[Any]]):
    _unit = "row"

    def __init__(
        self,
        file: File,
        columns: RowColumns,
        labels: BinaryLabels | Ranks,
        bad: BadRows,
        declared: Mapping[str, bool],
        labelled: bool,
    ) -> None:
        super().__init__(file, labels, bad)
        self._parquet = ParquetFile(file)
        try:
            self.total = self._parquet.total
            self.header = self._parquet.names
            self._table = CellTable(
                self._parquet.names,
                columns,
                self._label,
                declared,
                labelled=labelled,
                typed=self._parquet.typed,
                note_missing=self._note_missing,
                guesses=self.guesses,
                undo=self.labels.undo,
            )
            self._missing_cells = MissingCells(columns.form.missing)
            rows = self._missing_cells.rows(enumerate(self._parquet.rows(self._table.places)))
            head = list(islice(rows, AHEAD_ROWS))
            if not head:
                raise ReadError(f"{file}: the file has no rows")
            surveyed = [row for _, row in head]
            surveyed = [row for row in surveyed if self._table.good(row)] or surveyed
            if (label := self._table.label) is not None:
                labels.check(row[label] for row in surveyed)
                surveyed = self._labelled_only(surveyed, lambda row: row[label])
            self.shape = self._table.survey(surveyed)
            self._rows = chain(head, rows)
        except BaseException:
            self._parquet.close()
            raise

    def fraction(self) -> float:
        return (self._place + 1) / (self.total or 1)

    def notes(self, labels: bool = True) -> list[str]:
        return self._missing_cells.notes() + super().notes(labels)

    def close(self) -> None:
        self._parquet.close()

    def _records(self) -> Iterator[tuple[int, list[Any]]]:
        return self._rows

    def _event(self, record: list[Any]) -> Event:
        return self._table.event(record)

    def _original(self, record: list[Any]) -> Any:
        """Spell whole numbers as texts: a missing cell makes pandas write a column of integers as floats."""
        return [str(int(cell)) if type(cell) in (int, float) and cell % 1 == 0 else cell for cell in record]


class _JsonRows(TextRows[str]):
    def __init__(
        self,
        file: File,
        columns: RowColumns,
        labels: BinaryLabels | Ranks,
        bad: BadRows,
        stream: io.BufferedReader | None,
    ) -> None:
        self._json = LenientJson()
        self._events = JsonEvents(columns, self._label)
        super().__init__(file, columns, labels, bad, stream)

    def notes(self, labels: bool = True) -> list[str]:
        return super().notes(labels) + self._json.notes()

    def _read(self) -> Iterator[tuple[int, str]]:
        for unit, place, text in json_texts(self._lines, self.file, self._json):
            self._unit = unit
            yield place, text

    def _survey(self, head: list[tuple[int, str]]) -> Shape:
        rows = self._good(head, self._object)
        label = self._columns.label
        rows = [row for row in rows if self._is_good(row)] or rows
        self.guesses += self._events.time_notes()
        self._check_labels(row.get(label) for row in rows)
        rows = self._labelled_only(rows, lambda row: row.get(label))
        self._form = form = form_of(rows[0])
        if form == "x":
            return Shape("dense", width=len(rows[0]["x"]))
        if form == "indices":
            return Shape("sparse")
        if (id_name := self._events.names(form).get("id")) is not None:
            check_ids(id_name, [row.get(id_name) for row in rows])
        features = self._events.features(rows[0], form)
        members = rows if form == "flat" else [row["features"] for row in rows if form_of(row) == "features"]
        self.guesses += unnamed_ids((name, [row.get(name) for row in members]) for name in features)
        texts = [name for name, value in features.items() if value is not None and type(value) not in (int, float)]
        return Shape("named", columns=tuple(features), texts=tuple(texts))

    def _is_good(self, row: dict[str, Any]) -> bool:
        """Tell whether id, time and weight of a row are well-formed."""
        with suppress(ValueError):
            self._events.members(row, form_of(row))
            return True
        return False

    def _event(self, record: str) -> Event:
        row = self._object(record, f"{self._unit} {self._place:,}")
        form = form_of(row)
        if form != self._form:
            raise ValueError(f"the features are in the form {form}; those of the first row in the form {self._form}")
        return self._events.event(row, form)

    def _object(self, line: str, place: str = "") -> dict[str, Any]:
        try:
            row = self._json.decode(line, place, undo=self.labels.undo)
        except msgspec.DecodeError as error:
            raise ValueError(f"not JSON: {error}{ONE_EACH if _GLUED.search(line) else ''}") from None
        if not isinstance(row, dict):
            raise ValueError("not a JSON object")
        return row


def _labelled(label: int | None) -> Event:
    return {} if label is None else {"label": label}


class _LibsvmRows(TextRows[str]):
    def __init__(self, file: File, columns: RowColumns, labels: BinaryLabels | Ranks, bad: BadRows) -> None:
        self._queries = 0  # rows with qid
        zero_based = columns.form.zero_based
        if zero_based not in ("auto", "yes", "no"):
            raise ValueError(f"--zero-based {zero_based}: expected auto, yes or no")
        zero = zero_based == "yes" or (zero_based == "auto" and _has_zero(file, columns.form.encoding))
        self._base = 0 if zero else 1
        super().__init__(file, columns, labels, bad)
        if zero_based == "auto":
            other = "no" if zero else "yes"
            finding = "has an index 0" if zero else "has no index 0"
            self.guesses.append(f"the file {finding}: indices count from {self._base}; else use --zero-based {other}")

    def _read(self) -> Iterator[tuple[int, str]]:
        for place, line in enumerate(self._lines, 1):
            content = line.partition("#")[0].strip()
            if content:
                yield place, content

    def _survey(self, head: list[tuple[int, str]]) -> Shape:
        labels = (line.split(maxsplit=1)[0] for _, line in head)
        self._check_labels(None if _PAIR.fullmatch(label) else label for label in labels)
        return Shape("sparse", base=self._base)

    def _event(self, record: str) -> Event:
        label, *pairs = record.split()
        absent = f"there is no label before {label[:60]!r}" if _PAIR.fullmatch(label) else None
        if absent is not None:
            pairs.insert(0, label)
        if pairs and pairs[0].startswith("qid:"):
            self._queries += 1
            self.labels.undo.append(self._uncount_query)
            del pairs[0]
        entries = sorted(self._pair(pair) for pair in pairs)
        indices = [index for index, _ in entries]
        if len(set(indices)) < len(indices):
            raise ValueError("names an index twice")
        return _labelled(self._label(label, absent)) | {"indices": indices, "values": [value for _, value in entries]}

    def _uncount_query(self) -> None:
        self._queries -= 1

    def _pair(self, text: str) -> tuple[int, float]:
        index, colon, value = text.partition(":")
        if not colon or not index.isdecimal() or not is_number(value):
            raise ValueError(f"{text[:60]!r} is not index:value")
        if int(index) < self._base:
            raise ValueError(f"{text[:60]!r}: indices begin at {self._base}")
        number_ = number(value)
        if number_ is None:
            raise ValueError(f"{text[:60]!r} has no finite value")
        return int(index) - self._base, number_

    def notes(self, labels: bool = True) -> list[str]:
        ignored = [f"qid is ignored in {counted(self._queries, 'row')}"] if self._queries else []
        return [*ignored, *super().notes(labels)]


def _has_zero(file: File, encoding: str) -> bool:
    """Tell whether any row of a LIBSVM file has an index 0, which costs a pass over the file."""
    with file.path.open("rb") as raw:
        lines = lines_of(raw, file, encoding=encoding)
        return any(_ZERO.search(line.partition("#")[0]) for line in lines)


class _ArrayRow(NamedTuple):
    features: Event
    label: Any
    finite: bool


class _ArrayRows(Rows[_ArrayRow]):
    _unit = "row"

    def __init__(self, file: File, columns: RowColumns, labels: BinaryLabels | Ranks, bad: BadRows) -> None:
        super().__init__(file, labels, bad)
        self._next = 0
        try:
            self._X, y = _arrays(file.path, "y" if columns.label == "label" else columns.label)
            self._y = y.tolist()
            self.labels.check(self._y)
        except (ValueError, TypeError) as error:
            raise ReadError(f"{file}: {error}") from None
        self.total = len(self._y)
        if not self._y:
            raise ReadError(f"{file}: the file has no rows")
        self.shape = Shape("dense" if isinstance(self._X, np.ndarray) else "sparse", width=self._X.shape[1])

    def fraction(self) -> float:
        return self._next / len(self._y)

    def _records(self) -> Iterator[tuple[int, _ArrayRow]]:
        for start in range(0, len(self._y), _BLOCK):
            labels = self._y[start : start + _BLOCK]
            for place, (features, finite), label in zip(count(start), self._block(start), labels, strict=False):
                self._next = place + 1
                yield place, _ArrayRow(features, label, finite)

    def _block(self, start: int) -> Iterator[tuple[Event, bool]]:
        block = self._X[start : start + _BLOCK]
        if isinstance(block, np.ndarray):
            is_finite: NDArray[np.bool_] = np.all(np.isfinite(block), axis=1)
            return zip(({"x": row} for row in block.tolist()), map(bool, is_finite), strict=True)
        ends = block.indptr.tolist()
        indices, values = block.indices.tolist(), block.data.tolist()
        finite = np.isfinite(block.data).tolist()
        return (({"indices": indices[a:b], "values": values[a:b]}, all(finite[a:b])) for a, b in pairwise(ends))

    def _event(self, record: _ArrayRow) -> Event:
        if not record.finite:
            raise ValueError("has a number that is not finite")
        return record.features | _labelled(self._label(record.label))

    def _original(self, record: _ArrayRow) -> Any:
        return {**record.features, "label": record.label}


def _array(archive: Any, name: str) -> NDArray[Any]:
    """Read an array of an .npz archive. Raises ValueError for one that is damaged or holds objects, as pickles do."""
    try:
        array = archive[name]
    except _FAULTS:  # NumPy's reasons say how to trust the file
        array = None
    if not isinstance(array, np.ndarray):  # bytes, if it does not begin as an array does
        raise ValueError(f"the array {name} is damaged, or holds objects instead of numbers")
    return array


def _arrays(path: Path, name: str) -> tuple[Any, NDArray[Any]]:
    """Load X, an (n, dim) matrix or a CSR matrix in canonical form, and the labels (n,).

    Raises ValueError or TypeError for other arrays, and ValueError for a damaged archive.
    """
    with ExitStack() as stack:
        file = stack.enter_context(path.open("rb"))
        stream = file if file.peek(len(_ZIP)).startswith(_ZIP) else unpacked(file, path)
        archive: Any = file if stream is file else stack.enter_context(temporary_copy(stream))
        if not archive.read(len(_ARRAY)).startswith((_ZIP, _ARRAY)):  # np.load would read it as a pickle
            raise ValueError(
                f"not an .npz archive; the other formats are {', '.join(name_ for name_ in FORMATS if name_ != 'npz')}"
            )
        archive.seek(0)
        try:
            parts = np.load(archive, allow_pickle=False)
        except _FAULTS:
            raise ValueError("the .npz archive is damaged or cut short") from None
        if isinstance(parts, np.ndarray):
            raise ValueError("one bare array; expected an .npz archive")
        expected = ["X", name] if "X" in parts else ["data", "indices", "indptr", "shape", name]
        absent = [name_ for name_ in expected if name_ not in parts]
        if absent:
            raise ValueError(f"has {', '.join(parts.files)}; expected X or CSR parts, and {name}: no {absent[0]}")
        loaded = [_array(parts, name_) for name_ in expected]
    *arrays, y = loaded
    if any(array.dtype.kind not in "biuf" for array in arrays):
        raise ValueError("has features that are not numbers")
    X: Any = arrays[0].astype(np.float64) if arrays[0].dtype.kind == "b" else arrays[0]
    if len(arrays) > 1:
        from scipy.sparse import csr_array

        X = csr_array((X, arrays[1], arrays[2]), shape=tuple(arrays[3].tolist()))
        X.sum_duplicates()
    if X.ndim != 2 or y.shape != X.shape[:1]:
        raise ValueError(f"the features are {X.shape} and {name} is {y.shape}; expected (n, dim) and (n,)")
    return X, y
