"""Reads files of labelled rows as API events: CSV, TSV, JSON lines, .npz and LIBSVM text, also gzipped.

Text may be compressed by bz2, xz or zstd, too.

Text files are read once, from front to back, in constant memory and time per row; the arrays of an .npz are loaded.

    CSV, TSV   A header names the columns; all except the label are features. A column whose first cells (up to 10,000
               rows) are numbers, with at most 1 other in 100, is numeric in the whole file. Its other cells are null,
               as are empty ones, NaN, NA, null, none, ? and -; `missing_cells` counts those that are not empty. In
               other columns cells are strings, and empty ones null. So a column never changes its type. A column with
               leading zeros or whole numbers beyond 2^53 holds names; `guesses` says so. The learner's declaration of
               a column takes precedence; in a column that it declares numeric, text is an error.
    JSONL      Each line is a flat object of features and the label, or an API event:
               {"features": {...}}, {"x": [...]} or {"indices": [...], "values": [...]} with the label beside it.
    .npz       Dense `X` (n, dim), or the CSR parts `data`, `indices`, `indptr`, `shape`; labels `y` (n,).
    LIBSVM     `label index:value ...`, indices from 1 (they become 0-based and ascending);
               `qid:` is ignored; # begins a comment.
"""

from __future__ import annotations

import csv
import gzip
import io
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from itertools import count, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from service.datasets.rows import GZIP, Event, ReadError, Rows, Shape, TextRows
from service.datasets.values import BinaryLabels, Ranks, RowColumns, column_kind, is_number, number
from service.text import counted

__all__ = ["FORMATS", "check_regular", "form_of", "format_of", "open_rows"]

FORMATS = ("csv", "tsv", "jsonl", "npz", "libsvm")
_SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".npz": "npz",
    ".libsvm": "libsvm",
    ".svm": "libsvm",
    ".txt": "libsvm",
}
_PACKED_SUFFIXES = (".gz", ".bz2", ".xz", ".zst")
_TAB = "\t"
_SEPARATORS = {",": "commas", ";": "semicolons", _TAB: "tabs", "|": "bars"}
_ZIP, _ARRAY = b"PK", b"\x93NUMPY"  # beginnings of NumPy's files of several arrays, and of one
_BLOCK = 1000  # rows of an array that are converted to Python numbers at once


def check_regular(path: Path) -> None:
    """Refuse a file that cannot be read twice. Raises `ReadError`; `open_rows` reports missing files.

    A pipe can only be recognised by its first bytes, so a resumed replay could skip rows that it has never read. A
    silent writer would also delay Ctrl-C.
    """
    again = "a resumed replay reads its file again: write the rows to a file first"
    if path.is_fifo() or path.is_char_device() or path.is_socket():
        raise ReadError(f"{path} is a pipe or a device, not a file; {again}")
    if str(path) == "-" and not path.exists():
        raise ReadError(f"standard input is not read; {again}")


def format_of(path: Path) -> str:
    """Return the format by the file's name. Raises `ReadError` if the name does not tell."""
    suffixes = path.suffixes[-2:] if path.suffix.lower() in _PACKED_SUFFIXES else path.suffixes[-1:]
    name = _SUFFIXES.get(suffixes[0].lower()) if suffixes else None
    if name is None:
        raise ReadError(f"{path}: unknown format; use --format with one of {', '.join(FORMATS)}")
    return name


def open_rows(
    path: Path,
    columns: RowColumns,
    declared: Mapping[str, bool] | None = None,
    format: str = "",
    labels: BinaryLabels | Ranks | None = None,
    *,
    labelled: bool = True,
    stream: io.BufferedReader | None = None,
) -> Rows[Any]:
    """Open a file of labelled rows.

    `declared`: columns of known type, and whether they are numeric. `labels`: the meaning of labels; by default two
    classes by `columns.positive`. Without `labelled`, a CSV or TSV file needs no label, and its label is omitted.
    `stream`: text to read instead of the file. Raises `ReadError` if the file cannot be opened, lacks a column, or has
    labels that `labels` refuses.
    """
    format = format or format_of(path)
    if labels is None:
        labels = BinaryLabels(columns.positive)
    if format in ("npz", "libsvm") and columns.named:
        raise ReadError(f"{path}: {format} files have no column names such as {', '.join(columns.named)}")
    try:
        match format:
            case "csv" | "tsv":
                delimiter = "," if format == "csv" else "\t"
                return _CsvRows(path, columns, labels, declared or {}, delimiter, labelled, stream)
            case "jsonl":
                return _JsonRows(path, columns, labels, stream)
            case "libsvm":
                return _LibsvmRows(path, columns, labels, stream)
            case "npz":
                if stream is not None:
                    raise ReadError(f"{path}: npz is read from files only")
                return _ArrayRows(path, columns, labels)
    except OSError as error:
        raise ReadError(f"{path}: {error.strerror or error}") from None
    raise ReadError(f"{format!r} is not a format; expected one of {', '.join(FORMATS)}")


class _CsvRows(TextRows[list[str]]):
    def __init__(
        self,
        path: Path,
        columns: RowColumns,
        labels: BinaryLabels | Ranks,
        declared: Mapping[str, bool],
        delimiter: str,
        labelled: bool,
        stream: io.BufferedReader | None,
    ) -> None:
        self._declared = declared
        self._delimiter = delimiter
        self._labelled = labelled
        super().__init__(path, columns, labels, stream)

    def _read(self) -> Iterator[tuple[int, list[str]]]:
        reader = csv.reader(self._lines(), delimiter=self._delimiter, strict=True)
        try:
            self._header = next(reader, [])
            for row in reader:
                if row:
                    yield reader.line_num, row
        except csv.Error as error:
            raise self._at(reader.line_num, error) from None

    def _columns_of(self, header: list[str]) -> str:
        """Describe the columns of a header, or their wrong separator."""
        others = [mark for mark in _SEPARATORS if mark != self._delimiter and mark in header[0]] if header else []
        if len(header) > 1 or not others:
            return f"the columns are {', '.join(header)[:500]}"
        mark = others[0]
        column = f"its only column is {header[0][:500]!r}, which contains {_SEPARATORS[mark]}"
        separator = _SEPARATORS[self._delimiter]
        return f"{column}: {'use --format tsv' if mark == _TAB else f'columns must be separated by {separator}'}"

    def _survey(self, head: list[tuple[int, list[str]]]) -> Shape:
        header, options = self._header, self._columns
        twice = {name for name in header if header.count(name) > 1}
        if twice:
            raise ReadError(f"{self.path}: the header names {', '.join(sorted(twice))} twice")
        place = {name: k for k, name in enumerate(header)}
        for name in (*([options.label] if self._labelled else []), *options.named):
            if name not in place:
                raise ReadError(f"{self.path}: there is no column {name!r}; {self._columns_of(header)}")
        complete = [row for _, row in head if len(row) == len(header)]
        self._label = place[options.label] if self._labelled else None
        if self._label is not None:
            self._check_labels(row[self._label] for row in complete)
        aside = {options.label, *options.named}
        self._features = [
            (k, name, self._is_numeric(name, (row[k] for row in complete)))
            for name, k in place.items()
            if name not in aside
        ]
        self._about = [(member, place[name], read) for member, name, read in options.about if name is not None]
        return Shape(
            "named",
            columns=tuple(name for _, name, _ in self._features),
            texts=tuple(name for _, name, numeric in self._features if not numeric),
        )

    def _event(self, record: list[str]) -> Event:
        if len(record) != len(self._header):
            raise ValueError(
                f"has {counted(len(record), 'cell')}; the header names {counted(len(self._header), 'column')}"
            )
        features: dict[str, float | str | None] = {}
        for k, name, numeric in self._features:
            if numeric:
                features[name] = self._number(name, record[k])
            else:
                features[name] = record[k] or None
        event: Event = {"features": features}
        if self._label is not None:
            event["label"] = self.labels(record[self._label])
        for member, k, read in self._about:
            value = read(record[k])
            if value is not None:
                event[member] = value
        return event

    def _is_numeric(self, name: str, cells: Iterator[str]) -> bool:
        """Tell whether a column is numeric, by its declaration or else by its first cells."""
        if name in self._declared:
            return self._declared[name]
        numeric, why_not = column_kind(cells)
        if why_not is not None:
            self.guesses.append(f"{name}: taken as names because {why_not}")
        return numeric

    def _number(self, name: str, cell: str) -> float | None:
        """Parse a cell of a numeric column; None if it is missing. Raises ValueError for text in a declared one."""
        try:
            value = number(cell)
        except ValueError as error:
            if name in self._declared:
                raise ValueError(f"column {name}: {error}; the learner declares it numeric") from None
            value = None
        if value is None and cell:
            self._note_missing(name, cell)
        return value


class _JsonRows(TextRows[str]):
    def __init__(
        self, path: Path, columns: RowColumns, labels: BinaryLabels | Ranks, stream: io.BufferedReader | None
    ) -> None:
        self._decode = msgspec.json.Decoder().decode
        super().__init__(path, columns, labels, stream)

    def _read(self) -> Iterator[tuple[int, str]]:
        return ((place, line) for place, line in enumerate(self._lines(), 1) if not line.isspace())

    def _survey(self, head: list[tuple[int, str]]) -> Shape:
        rows = []
        for place, line in head:
            try:
                rows.append(self._object(line))
            except ValueError as error:
                raise self._at(place, error) from None
        self._check_labels(row.get(self._columns.label) for row in rows)
        self._form = form_of(rows[0])
        flat = self._form == "flat"
        self._about = [(member, name or member, read) for member, name, read in self._columns.about if name or not flat]
        self._aside = {self._columns.label, *self._columns.named} if flat else set(self._columns.drop)
        if self._form == "x":
            return Shape("dense", width=len(rows[0]["x"]))
        if self._form == "indices":
            return Shape("sparse")
        features = self._features(rows[0])
        texts = [name for name, value in features.items() if value is not None and type(value) not in (int, float)]
        return Shape("named", columns=tuple(features), texts=tuple(texts))

    def _event(self, record: str) -> Event:
        row = self._object(record)
        form = form_of(row)
        if form != self._form:
            raise ValueError(f"the features are in the form {form}; those of the first row in the form {self._form}")
        label = self._columns.label
        if label not in row:
            raise ValueError(f"there is no {label!r}; the row has {', '.join(row)[:500]}")
        event: Event = {"label": self.labels(row[label])}
        if form in ("flat", "features"):
            event["features"] = self._features(row)
        else:
            event |= {name: row[name] for name in ("x", "indices", "values") if name in row}
        for member, name, read in self._about:
            value = read(row.get(name))
            if value is not None:
                event[member] = value
        return event

    def _object(self, line: str) -> dict[str, Any]:
        try:
            row = self._decode(line)
        except msgspec.DecodeError as error:
            raise ValueError(f"not JSON: {error}") from None
        if not isinstance(row, dict):
            raise ValueError("not a JSON object")
        return row

    def _features(self, row: dict[str, Any]) -> dict[str, Any]:
        features = row if self._form == "flat" else row["features"]
        return {name: value for name, value in features.items() if name not in self._aside}


def form_of(row: dict[str, Any]) -> str:
    """Return the member of an API event with the features; "flat" if the row has them itself."""
    if isinstance(row.get("features"), dict):
        return "features"
    if isinstance(row.get("x"), list):
        return "x"
    return "indices" if isinstance(row.get("indices"), list) and isinstance(row.get("values"), list) else "flat"


class _LibsvmRows(TextRows[str]):
    _queries = 0  # rows with qid

    def missing_cells(self) -> list[str]:
        ignored = [f"qid is ignored in {counted(self._queries, 'row')}"] if self._queries else []
        return [*ignored, *super().missing_cells()]

    def _read(self) -> Iterator[tuple[int, str]]:
        for place, line in enumerate(self._lines(), 1):
            content = line.partition("#")[0].strip()
            if content:
                yield place, content

    def _survey(self, head: list[tuple[int, str]]) -> Shape:
        self._check_labels(line.split(maxsplit=1)[0] for _, line in head)
        return Shape("sparse")

    def _event(self, record: str) -> Event:
        label, *pairs = record.split()
        if pairs and pairs[0].startswith("qid:"):
            self._queries += 1
            del pairs[0]
        entries = sorted(map(_pair, pairs))
        indices = [index for index, _ in entries]
        if len(set(indices)) < len(indices):
            raise ValueError("names an index twice")
        return {"label": self.labels(label), "indices": indices, "values": [value for _, value in entries]}


def _pair(text: str) -> tuple[int, float]:
    index, colon, value = text.partition(":")
    if not colon or not index.isdecimal() or not is_number(value):
        raise ValueError(f"{text[:60]!r} is not index:value")
    if int(index) < 1:
        raise ValueError(f"{text[:60]!r}: indices begin at 1")
    number_ = number(value)
    if number_ is None:
        raise ValueError(f"{text[:60]!r} has no finite value")
    return int(index) - 1, number_


class _ArrayRow(NamedTuple):
    features: Event
    label: Any
    finite: bool


class _ArrayRows(Rows[_ArrayRow]):
    _unit = "row"

    def __init__(self, path: Path, columns: RowColumns, labels: BinaryLabels | Ranks) -> None:
        super().__init__(path, labels)
        self._next = 0
        try:
            self._X, y = _arrays(path, "y" if columns.label == "label" else columns.label)
            self._y = y.tolist()
            self.labels.check(set(self._y))
        except (ValueError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise ReadError(f"{path}: {error}") from None
        self.total = len(self._y)
        if not self._y:
            raise ReadError(f"{path}: the file has no rows")
        self.shape = Shape("dense" if isinstance(self._X, np.ndarray) else "sparse", width=self._X.shape[1])

    def fraction(self) -> float:
        return self._next / len(self._y)

    def _records(self, skip: int) -> Iterator[tuple[int, _ArrayRow]]:
        for start in range(skip, len(self._y), _BLOCK):
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
        return {**record.features, "label": self.labels(record.label)}


def _arrays(path: Path, name: str) -> tuple[Any, NDArray[Any]]:
    """Load X, an (n, dim) matrix or a CSR matrix in canonical form, and the labels (n,).

    Raises ValueError or TypeError for other arrays, and the errors of NumPy for a damaged archive.
    """
    with path.open("rb") as file:
        packed = file.read(len(GZIP)) == GZIP
        file.seek(0)
        archive: Any = io.BytesIO(gzip.decompress(file.read())) if packed else file
        if not archive.read(len(_ARRAY)).startswith((_ZIP, _ARRAY)):  # np.load would read it as a pickle
            raise ValueError(
                f"not an .npz archive; the other formats are {', '.join(name_ for name_ in FORMATS if name_ != 'npz')}"
            )
        archive.seek(0)
        parts = np.load(archive, allow_pickle=False)
        if isinstance(parts, np.ndarray):
            raise ValueError("one bare array; expected an .npz archive")
        expected = ["X", name] if "X" in parts else ["data", "indices", "indptr", "shape", name]
        absent = [name_ for name_ in expected if name_ not in parts]
        if absent:
            raise ValueError(f"has {', '.join(parts.files)}; expected X or CSR parts, and {name}: no {absent[0]}")
        loaded = [parts[name_] for name_ in expected]
    *arrays, y = loaded
    if any(array.dtype.kind not in "biuf" for array in arrays):
        raise ValueError("has features that are not numbers")
    X: Any = arrays[0].astype(np.float64) if arrays[0].dtype.kind == "b" else arrays[0]
    if len(arrays) > 1:
        X = csr_array((X, arrays[1], arrays[2]), shape=tuple(arrays[3].tolist()))
        X.sum_duplicates()
    if X.ndim != 2 or y.shape != X.shape[:1]:
        raise ValueError(f"the features are {X.shape} and {name} is {y.shape}; expected (n, dim) and (n,)")
    return X, y
