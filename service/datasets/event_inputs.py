"""Reads events of arguments, files and standard input in chunks, for `update`, `predict` and `labels`.

    JSON    one event, a list of events, {"events": [...]}, or one event per line; an event of the API, or a flat object
            of features with the label and other members beside them
    others  the formats of `replay`: CSV and TSV with a header, LIBSVM text, .npz; see `readers.py`
    labels  JSON as above; CSV and TSV of id, label and optionally time and weight, in any order if there is a header;
            also arguments ID=LABEL

Everything except a JSON document of many lines is read in bounded memory.
"""

from __future__ import annotations

import csv
import io
import sys
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from service.datasets.rows import GZIP, READ, Event, ReadError, lines_of, standard_input, text_of
from service.datasets.values import BinaryLabels, Ranks, RowColumns
from service.exits import WrongUsage
from service.text import counted

__all__ = ["EventChunk", "Inputs", "chunks"]

_MAX_BODY = 4 * 2**20  # bytes of a chunk
_LABELS_READ = "JSON, CSV or TSV in UTF-8, gzipped or not"
_LABEL_COLUMNS = ("id", "label", "time", "weight")
_JSON = frozenset({"json", "jsonl", "ndjson"})
_STDIN = Path("standard input")  # its name in messages
_DASH = "-"


@dataclass(frozen=True)
class EventChunk:
    """Some events as the body of a request."""

    first: int  # number of the first event, from 0
    count: int
    body: bytes
    identified: bool  # every event has an id


def chunks(events: Iterable[Event], size: int) -> Iterator[EventChunk]:
    """Yield the events in bodies of up to `size` events or about 4 MB."""
    encode = msgspec.json.Encoder().encode
    parts: list[bytes] = []
    first, room, identified = 0, _MAX_BODY, True
    for event in events:
        parts.append(encode(event))
        room -= len(parts[-1])
        identified = identified and event.get("id") is not None
        if len(parts) == size or room <= 0:
            yield EventChunk(first, len(parts), b'{"events":[%b]}' % b",".join(parts), identified)
            first, parts, room, identified = first + len(parts), [], _MAX_BODY, True
    if parts:
        yield EventChunk(first, len(parts), b'{"events":[%b]}' % b",".join(parts), identified)


@dataclass
class Inputs:
    """The inputs of a command; `events()` yields their events once, in order."""

    arguments: Sequence[str]  # JSON, ID=LABEL, paths, "-"; empty: standard input
    kind: Literal["update", "predict", "labels"]
    learner: Mapping[str, Any] | None  # its document; None: the key may not read it
    columns: RowColumns
    format: str = ""
    labels: Callable[[Any], int] = field(default_factory=BinaryLabels)
    notes: list[str] = field(default_factory=list)  # of the files that were read: guesses and missing cells

    def __post_init__(self) -> None:
        if not self.arguments:
            if sys.stdin is None or sys.stdin.isatty():
                raise WrongUsage("no events: pass JSON or a file, or pipe them to standard input")
            self.arguments = [_DASH]
        if self.arguments.count(_DASH) > 1:
            raise WrongUsage("standard input can only be read once")

    def events(self) -> Iterator[Event]:
        """Yield every event. Raises `ReadError` at the first malformed one."""
        for argument in self.arguments:
            if argument.lstrip()[:1] in ("{", "["):
                yield from self._from_json(_documents(argument, "the argument"))
            elif self.kind == "labels" and "=" in argument and not Path(argument).exists():
                id, _, label = argument.rpartition("=")
                yield {"id": id, "label": self._label(label, f"the argument {argument!r}")}
            elif not argument:
                raise WrongUsage("an argument is empty; expected JSON, a file, or -")
            elif argument == _DASH:
                yield from self._from_stream(standard_input(), _STDIN)
            else:
                yield from self._from_file(Path(argument))

    def _from_file(self, path: Path) -> Iterator[Event]:
        try:
            stream = path.open("rb")
        except OSError as error:
            else_ = ", ID=LABEL" if self.kind == "labels" else ""
            raise ReadError(f"{path}: {error.strerror or error}; expected JSON{else_}, a file, or -") from None
        with stream:
            yield from self._from_stream(stream, path)

    def _from_stream(self, stream: io.BufferedReader, path: Path) -> Iterator[Event]:
        format = self.format or _format(path, stream)
        if format in _JSON:
            yield from self._from_json(_json_rows(_lines(stream, path, READ), path))
        elif self.kind == "labels":
            if format not in ("csv", "tsv"):
                raise ReadError(f"{path}: labels are read from JSON, CSV and TSV, not from {format}")
            lines = _lines(stream, path, _LABELS_READ)
            yield from self._label_rows(lines, path, "," if format == "csv" else "\t")
        else:
            yield from self._rows(stream, path, format)

    def _rows(self, stream: io.BufferedReader, path: Path, format: str) -> Iterator[Event]:
        from service.datasets.readers import open_rows
        from service.datasets.schema_match import adapter, declared

        if self.learner is None:
            raise ReadError(
                f"{path}: reading {format} needs the learner's document, and that a key with the scope read; JSON "
                "does not"
            )
        assert isinstance(self.labels, BinaryLabels | Ranks)  # `labels_of_options` is for other inputs
        features = self.learner["config"]["features"]
        arguments = None if format == "npz" and path != _STDIN else stream
        labelled = self.kind == "update"
        with open_rows(
            path, self.columns, declared(features), format, self.labels, labelled=labelled, stream=arguments
        ) as rows:
            rows.adapt = adapter(rows.shape, features)
            try:
                for event in rows.events():
                    yield event if labelled else _unlabelled(event)
            finally:
                self.notes += [*rows.guesses, *rows.missing_cells()]

    def _from_json(self, rows: Iterable[tuple[str, Any]]) -> Iterator[Event]:
        for place, row in rows:
            if not isinstance(row, dict):
                raise ReadError(f"{place}: expected an event, a JSON object, not {str(row)[:60]}")
            try:
                event = row if self._is_event(row) else self._flat(row)
            except ValueError as error:
                raise ReadError(f"{place}: {error}") from None
            yield _unlabelled(event) if self.kind == "predict" else event

    def _is_event(self, row: Event) -> bool:
        """Tell whether a row is an event of the API, not a flat object of features."""
        api = any(isinstance(row.get(name), kind) for name, kind in (("features", dict), ("x", list), ("values", list)))
        return api or self.kind == "labels" or (self.kind == "update" and row.keys() <= set(_LABEL_COLUMNS))

    def _flat(self, row: Event) -> Event:
        columns = self.columns
        aside = {columns.label, *columns.named}
        event: Event = {"features": {name: value for name, value in row.items() if name not in aside}}
        if self.kind == "update":
            if columns.label not in row:
                raise ValueError(f"there is no {columns.label!r}; the row has {', '.join(row)[:300]}")
            event["label"] = self.labels(row[columns.label])
        for member, name, read in columns.about:
            if name is not None and (value := read(row.get(name))) is not None:
                event[member] = value
        return event

    def _label(self, text: str, place: str) -> int:
        try:
            return self.labels(text)
        except ValueError as error:
            raise ReadError(f"{place}: {error}") from None

    def _label_rows(self, lines: Iterable[str], path: Path, delimiter: str) -> Iterator[Event]:
        reads = {member: read for member, _, read in self.columns.about}
        order: Sequence[str] | None = None
        reader = csv.reader(lines, delimiter=delimiter, strict=True)
        try:
            for row in reader:
                place = f"{path}, line {reader.line_num:,}"
                if not row:
                    continue
                if order is None:
                    names = [cell.strip().lower() for cell in row]
                    if {"id", "label"} <= set(names):
                        order = names
                        continue
                    order = _LABEL_COLUMNS[: len(row)]
                if not 2 <= len(row) == len(order):
                    raise ReadError(
                        f"{place}: has {counted(len(row), 'cell')}; expected id,label[,time[,weight]], as in the first"
                    )
                cells = dict(zip(order, row, strict=True))
                event: Event = {"id": cells["id"], "label": self._label(cells["label"], place)}
                for name in ("time", "weight"):
                    if (value := reads[name](cells.get(name, ""))) is not None:
                        event[name] = value
                if not cells["id"]:
                    raise ReadError(f"{place}: has no id")
                yield event
            if order is None:
                raise ReadError(f"{path}: the file has no rows")
        except (csv.Error, ValueError) as error:
            raise ReadError(f"{path}, line {reader.line_num:,}: {error}") from None


def _unlabelled(event: Event) -> Event:
    """Remove label and weight from an event to score."""
    return {name: value for name, value in event.items() if name not in ("label", "weight")}


def _format(path: Path, stream: io.BufferedReader) -> str:
    """Return the format by the file's name, for standard input by its first character."""
    if path != _STDIN:
        if path.suffix == ".json" or path.suffixes[-2:] == [".json", ".gz"]:
            return "json"
        from service.datasets.readers import format_of

        return format_of(path)
    head = stream.peek(1)
    if head[: len(GZIP)] == GZIP:
        raise ReadError(f"{path} is gzipped: give its --format")
    return "json" if head.removeprefix(BOM_UTF8).lstrip()[:1] in (b"{", b"[", b"") else "csv"


def _lines(stream: io.BufferedReader, path: Path, expected: str) -> Iterator[str]:
    with text_of(stream) as text:
        yield from lines_of(text, path, expected)


def _json_rows(lines: Iterator[str], path: Path) -> Iterator[tuple[str, Any]]:
    """Yield each event with its place, from lines of one event each, or from one document."""
    numbered = ((number, line) for number, line in enumerate(lines, 1) if not line.isspace())
    place, first = next(numbered, (0, ""))
    if not first:
        raise ReadError(f"{path}: no events")
    try:
        row = msgspec.json.decode(first)
    except msgspec.DecodeError:  # the document continues in the next line
        row = None
    if not isinstance(row, dict) or isinstance(row.get("events"), list):
        yield from _documents(first + "".join(line for _, line in numbered), str(path))
        return
    yield f"{path}, line {place:,}", row
    for number, line in numbered:
        try:
            yield f"{path}, line {number:,}", msgspec.json.decode(line)
        except msgspec.DecodeError as error:
            raise ReadError(f"{path}, line {number:,}: not JSON: {error}") from None


def _documents(text: str, what: str) -> Iterator[tuple[str, Any]]:
    """Yield the events of a document, each with its place."""
    try:
        document = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ReadError(f"{what}: not JSON: {error}") from None
    if isinstance(document, dict):
        if not isinstance(document.get("events"), list):
            yield what, document
            return
        document = document["events"]
    if not isinstance(document, list):
        raise ReadError(f"{what}: expected an event, a list of events or {{'events': [...]}}")
    for number, row in enumerate(document):
        yield f"{what}, event {number:,}", row
