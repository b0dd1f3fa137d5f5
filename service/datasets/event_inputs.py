"""Reads events of arguments, files and standard input in chunks, for `update`, `predict` and `labels`.

    JSON    one event, a list of events, {"events": [...]}, or one event per line; an event of the API, or a flat object
            of features with the label and other members beside them
    others  the formats of `replay`: CSV, TSV, Parquet, LIBSVM text, .npz; see `readers.py`
    labels  JSON as above; Parquet, CSV and TSV of id, label and optionally time and weight, in any order with a header;
            also arguments ID=LABEL

Everything except a JSON document of many lines is read in bounded memory.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

import msgspec

from service.datasets.bad_rows import BadRows, ReadError, RowOrigin
from service.datasets.identifiers import check_ids, unnamed_ids
from service.datasets.json_rows import LABEL, LABEL_MEMBERS, JsonEvents, LenientJson, form_of, json_texts
from service.datasets.missing_cells import MissingCells
from service.datasets.notes import LongTexts
from service.datasets.packed_text import (
    READ,
    STDIN,
    File,
    lines_of,
    local_file,
    standard_input,
    unpacked,
)
from service.datasets.rows import Event, RowEvent, describe_unlabelled
from service.datasets.values import BinaryLabels, Ranks, RowColumns, Unlabelled, identity, weight
from service.exits import WrongUsage
from service.text import counted

__all__ = ["Inputs"]

_LABELS_READ = "Parquet, or JSON, CSV or TSV text, also by gzip, bz2, xz, zstd or zip"
_JSON = frozenset({"json", "jsonl", "ndjson"})
_DASH = "-"
_AHEAD = 1000  # rows of a JSON file by which ids are judged


@dataclass
class Inputs:
    """The inputs of a command; `events()` yields their events once, in order. The caller closes `bad`."""

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
        self.bad = BadRows(self.columns.form.on_bad)
        self._json = JsonEvents(self.columns, None if self.kind == "predict" else self._read_label)

    def events(self) -> Iterator[Event]:
        """Yield every event. Malformed ones go to `bad`, or end it. Raises `ReadError`."""
        for number, argument in enumerate(self.arguments, 1):
            if argument.lstrip()[:1] in ("{", "["):
                yield from self._from_json(self._json_rows(iter([argument]), "the argument"))
            elif self.kind == "labels" and "=" in argument and not Path(argument).exists():
                id, _, label = argument.rpartition("=")
                event = {"id": identity(id) or id, "label": self._label(label, f"the argument {argument!r}")}
                yield RowEvent(event, RowOrigin("the command line", "argument", number, argument))
            elif not argument:
                raise WrongUsage("an argument is empty; expected JSON, a file, or -")
            elif argument == _DASH:
                yield from self._from_stream(standard_input(), None)
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

    def _from_stream(self, stream: io.BufferedReader, path: Path | None) -> Iterator[Event]:
        """Yield the events of an open file, or of standard input."""
        name = STDIN if path is None else str(path)
        stream = unpacked(stream, name)
        format = self.format or _format(path, stream, name)
        lines = lines_of(stream, name, _LABELS_READ if self.kind == "labels" else READ, self.columns.form.encoding)
        if format in _JSON:
            rows = self._json_rows(lines, name)
            yield from self._from_json(rows if path is None else self._checked_ids(rows, name))
        elif self.kind == "labels" and format in ("csv", "tsv"):
            yield from self._label_rows(lines, name, format)
        elif self.kind == "labels" and format != "parquet":
            raise ReadError(f"{name}: labels are read from JSON, CSV, TSV and Parquet, not from {format}")
        elif format in ("csv", "tsv"):
            yield from self._rows(File(Path(name), name), format, stream)
        else:
            with local_file(Path(_DASH) if path is None else path, None if path and path.is_file() else stream) as file:
                if self.kind == "labels":
                    yield from self._parquet_labels(file)
                else:
                    yield from self._rows(file, format, None)

    def _rows(self, file: File, format: str, stream: io.BufferedReader | None) -> Iterator[Event]:
        from service.datasets.readers import open_rows
        from service.datasets.schema_match import adapter, declared

        learner, labels = self._known_learner(file, format)
        features = learner["config"]["features"]
        labelled = self.kind == "update"
        with open_rows(
            file,
            self.columns,
            declared(features),
            format,
            labels,
            labelled=labelled,
            stream=stream,
            bad=self.bad,
        ) as rows:
            rows.adapt = adapter(rows.shape, features)
            rows.long_texts = LongTexts(learner["config"])
            self.notes += rows.guesses
            try:
                for event in rows.events():
                    yield event if labelled else RowEvent(_unlabelled(event), event.origin)
            finally:
                self.notes += rows.notes()

    def _known_learner(self, file: File, format: str) -> tuple[Mapping[str, Any], BinaryLabels | Ranks]:
        """Return the learner's document and the meaning of labels. Raises `ReadError` if the key may not read it."""
        if self.learner is None:
            raise ReadError(
                f"{file}: reading {format} needs the learner's document, and that a key with the scope read; JSON "
                "does not"
            )
        assert isinstance(self.labels, BinaryLabels | Ranks)  # `labels_of_options` is for an unknown learner
        return self.learner, self.labels

    def _from_json(self, rows: Iterable[RowOrigin]) -> Iterator[Event]:
        undo = self.labels.undo if isinstance(self.labels, BinaryLabels | Ranks) else []
        skips = self.columns.form.unlabelled == "skip"
        skipped, first = 0, ""
        texts = LongTexts(None if self.learner is None else self.learner["config"])
        for origin in rows:
            row, place = origin.row, f"{origin.unit} {origin.place:,}"
            try:
                if not isinstance(row, dict):
                    raise ValueError(f"expected an event, a JSON object, not {str(row)[:60]}")
                event = self._json.event(row, self._form(row))
            except ValueError as error:
                while undo:
                    undo.pop()()
                if skips and isinstance(error, Unlabelled):
                    skipped, first = skipped + 1, first or f"{place}: {error}"
                    continue
                self.bad.add(origin, error)
                continue
            undo.clear()
            texts.note(event, place)
            yield RowEvent(event, origin)
        self.notes += [*describe_unlabelled(skipped, "left out", first), *texts.notes()]

    def _json_rows(self, lines: Iterator[str], name: str) -> Iterator[RowOrigin]:
        """Yield each decoded object with its place."""
        json = LenientJson()
        try:
            for unit, place, text in json_texts(lines, name, json):
                try:
                    row = json.decode(text, f"{unit} {place:,}")
                except (msgspec.DecodeError, RecursionError) as error:
                    self.bad.add(RowOrigin(name, unit, place, text), f"not JSON: {error}")
                    continue
                yield RowOrigin(name, unit, place, row)
        finally:
            self.notes += json.notes()

    def _checked_ids(self, rows: Iterator[RowOrigin], name: str) -> Iterator[RowOrigin]:
        """Judge by the first rows of a file, as replays do, whether the id names rows. Raises `ReadError`."""
        head = list(islice(rows, _AHEAD))
        flat = [row for row in (origin.row for origin in head) if isinstance(row, dict) and self._form(row) == "flat"]
        if not flat:
            return chain(head, rows)
        id_name = self._json.names("flat").get("id")
        if id_name is not None and self.kind != "predict":  # which may score an event again
            try:
                check_ids(id_name, [row.get(id_name) for row in flat])
            except ValueError as error:
                raise ReadError(f"{name}: {error}") from None
        if self.kind == "update":
            features = self._json.features(flat[0], "flat")
            self.notes += unnamed_ids((name, [row.get(name) for row in flat]) for name in features)
        return chain(head, rows)

    def _form(self, row: Event) -> str:
        """Return the form of an object; events that are updated may be labels."""
        form = form_of(row)
        if self.kind == "labels" or (self.kind == "update" and form == "flat" and row.keys() <= set(LABEL_MEMBERS)):
            return LABEL
        return form

    def _read_label(self, value: Any, absent: str | None) -> int:
        if absent is not None:
            raise Unlabelled(absent)
        return self.labels(value)

    def _label(self, text: str, place: str) -> int:
        try:
            return self.labels(text)
        except ValueError as error:
            raise ReadError(f"{place}: {error}") from None

    def _parquet_labels(self, file: File) -> Iterator[Event]:
        from service.datasets.parquet import ParquetFile
        from service.datasets.readers import open_rows

        _, labels = self._known_learner(file, "parquet")
        with closing(ParquetFile(file)) as parquet:
            names = parquet.names
        time, weight = ("time" if "time" in names else None), ("weight" if "weight" in names else None)
        drop = tuple(name for name in names if name not in LABEL_MEMBERS)
        columns = replace(self.columns, id="id", time=time, weight=weight, drop=drop)
        with open_rows(file, columns, None, "parquet", labels, bad=self.bad) as rows:
            rows.adapt = _without_features
            yield from rows.events()

    def _label_rows(self, lines: Iterator[str], name: str, format: str) -> Iterator[Event]:
        from service.datasets.delimited import DelimitedText, MalformedRow

        form = self.columns.form
        try:
            form.check(format)
            text = DelimitedText(lines, format, form, LABEL_MEMBERS)
        except ValueError as error:
            raise ReadError(f"{name}: {error}") from None
        if not text.names:
            raise ReadError(f"{name}: the file has no rows")
        order = [cell.strip().lower() for cell in text.names]
        rows = text.rows()
        if not {"id", "label"} <= set(order):
            if not text.header:
                raise ReadError(f"{name}: --columns must name id and label")
            order = list(LABEL_MEMBERS[: len(text.names)])
            rows = chain([(1, text.names)], rows)
        read_time = self.columns.about[1][2]
        missing = MissingCells(form.missing)
        for place, row in rows:
            origin = RowOrigin(name, "line", place, row.text if isinstance(row, MalformedRow) else row)
            try:
                if isinstance(row, MalformedRow):
                    raise ValueError(row.reason)
                if not 2 <= len(row) == len(order):
                    raise ValueError(
                        f"has {counted(len(row), 'cell')}; expected id,label[,time[,weight]], as in the first"
                    )
                cells = dict(zip(order, missing.empty(row), strict=True))
                event: Event = {"id": identity(cells["id"]), "label": self.labels(cells["label"])}
                if event["id"] is None:
                    raise ValueError("has no id")
                for member, read in (("time", read_time), ("weight", weight)):
                    if (value := read(cells.get(member, ""))) is not None:
                        event[member] = value
            except ValueError as error:
                self.bad.add(origin, error)
                continue
            yield RowEvent(event, origin)
        self.notes += text.guesses + missing.notes()


def _without_features(event: Event) -> Event:
    """Leave out the features of a label. Raises ValueError if it has no id."""
    del event["features"]
    if "id" not in event:
        raise ValueError("has no id")
    return event


def _unlabelled(event: Event) -> Event:
    """Remove label and weight from an event to score."""
    return {name: value for name, value in event.items() if name not in ("label", "weight")}


def _format(path: Path | None, stream: io.BufferedReader, name: str) -> str:
    """Return the format by the file's name, for standard input and pipes by the first bytes."""
    from service.datasets.readers import format_of, format_of_content

    if path is not None and not path.is_fifo():
        return format_of(path)
    return format_of_content(stream, name)
