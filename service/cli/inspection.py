"""Looks at the first rows of a file: what each column is taken for and why, rejected rows, and commands to paste."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from learners.features import is_missing
from service.datasets import (
    ANY_LABEL,
    BadRows,
    BinaryLabels,
    ColumnNote,
    ColumnProfile,
    FieldPast,
    File,
    LabelValues,
    RowColumns,
    Rows,
    UniqueColumn,
    is_number,
    label_text,
    likely_label,
    open_rows,
    profile_column,
    reveals_label,
)
from service.text import counted

__all__ = ["Inspection", "inspect_file"]

_WIDTH = 200  # characters of a row of the table
_LINES = 20  # of a table at most
_HEADER_CELL = 60  # characters of a column's name at most
_NEGATIVE = {"benign", "normal", "ok", "ham", "legit", "legitimate", "good", "genuine", "negative"}
_NAMED = ("csv", "tsv", "parquet")  # formats whose rows have named cells
_ROLES = ("label", "id", "time", "weight")


class _CountedLabels(BinaryLabels):
    """Counts labels of any kind."""

    def __init__(self) -> None:
        super().__init__()
        self.values: list[Any] = []

    def __call__(self, value: Any) -> int:
        """Return 0."""
        self.values.append(value)
        self.undo.append(self.values.pop)
        return 0

    def check(self, values: Iterable[Any]) -> None:
        """Accept all labels."""
        del values


@dataclass(frozen=True)
class Inspection:
    """What the first rows of a file say; `columns` are the options, with those that were found."""

    file: File
    format: str
    shape: str
    rows: int  # that were read
    complete: bool  # they are all
    columns: RowColumns
    profiles: tuple[ColumnProfile, ...]
    roles: dict[str, str]  # label, id, time, weight or a reason to drop it, by column
    label: LabelValues | None
    unlabelled: int
    notes: tuple[str, ...]  # of the file
    reasons: dict[str, str]  # why a column is taken for what it is, if that may be wrong
    rejected: tuple[str, ...]  # the first bad rows, with place and reason
    dim: int | None  # columns of rows without names
    guesses: dict[str, tuple[str, ...]]  # options that were not given but found, with their values
    header_is_row: bool = False

    def lines(self, learner: str | None) -> list[str]:
        """Return everything for people: the table, the first bad rows, and the commands."""
        rows = f"{'all' if self.complete else 'the first'} {counted(self.rows, 'row')}"
        lines = [f"{self.file}: {self.format}, {self.shape} rows; {rows} read", *self.notes, "", *self.table()]
        if self.label is None:
            lines += ["", "no label was found: name its column with --label"]
        guesses = ["the first line is no header"] if self.header_is_row else []
        guesses += [shlex.join([f"--{option}", text]) for option, texts in self.guesses.items() for text in texts]
        if guesses:
            lines += ["", f"guesses to check: {', '.join(guesses)}"]
        if self.label is not None and len(self.label.counts) != 2 and self.guesses.keys() & {"positive", "negative"}:
            several = "several values" if len(self.label.counts) > 2 else "one value only"
            lines += ["", f"the label has {several}: choose what is positive"]
        if self.rejected:
            lines += ["", "bad rows, the first ones:", *(f"  {text}" for text in self.rejected)]
        return [*lines, "", *self.commands(learner)]

    def table(self, lines: int = _LINES) -> list[str]:
        """Return a table of the columns; of many the ordinary ones are only counted. Rows without names have labels."""
        cells = [(profile.name, *self._row(profile)) for profile in self.profiles]
        apart = self.label is not None and self.roles.get(self.columns.label) != "label"  # as JSON has it
        lines -= apart and bool(cells)
        if len(cells) > lines - 1:
            special = [cell for cell in cells if self._special(cell[0])]
            ordinary = [cell for cell in cells if not self._special(cell[0])]
            rows = (special + ordinary)[: lines - 2]
            rest = Counter(kind for _, kind, _ in cells) - Counter(kind for _, kind, _ in rows)
            cells = [cell for cell in cells if cell in rows]
            others = ", ".join(f"{count:,} {kind}" for kind, count in rest.items())
            cells.append((f"and {rest.total():,} more", "", others))
        where = "" if self.complete else f", in the first {counted(self.rows, 'row')}"
        if not cells:
            return [] if self.label is None else [f"labels{where}: {self._labels()}"]
        if apart:
            cells.append((self.columns.label, "label", self._labels()))
        cells.insert(0, ("column", "taken for", f"because{where}"))
        names, kinds = (min(30, max(len(cell[k]) for cell in cells)) for k in (0, 1))
        return [f"{name[:30]:{names}}  {kind:{kinds}}  {why}".rstrip()[:_WIDTH] for name, kind, why in cells]

    def commands(self, learner: str | None) -> list[str]:
        """Return the proposed `create`, unless the learner exists, and `replay`."""
        name = learner or _learner_name(self.file)
        replay = ["rarestream", "replay", self.file.argument, "--learner", name, *self._options()]
        if learner is not None:
            return [shlex.join(replay)]
        create = ["rarestream", "create", name, "--features", *self._features()]
        return [shlex.join(create), shlex.join(replay)]

    def to_json(self, learner: str | None) -> dict[str, Any]:
        """Return the inspection for programs."""
        columns = [
            {
                "name": profile.name,
                "kind": profile.kind,
                "role": self.roles.get(profile.name),
                "why": self._why(profile),
            }
            | {"missing": profile.missing, "values": profile.values}
            for profile in self.profiles
        ]
        return {
            "file": self.file.name,
            "format": self.format,
            "rows": self.rows,
            "complete": self.complete,
            "columns": columns,
            "labels": None if self.label is None else self.label.counts,
            "unlabelled": self.unlabelled,
            "notes": list(self.notes),
            "guesses": {option: list(texts) for option, texts in self.guesses.items()},
            "header_is_row": self.header_is_row,
            "rejected": list(self.rejected),
            "commands": self.commands(learner),
        }

    def _row(self, profile: ColumnProfile) -> tuple[str, str]:
        role = self.roles.get(profile.name)
        if role == "label":
            return "label", self._labels()
        return (role if role in ("id", "time", "weight") else profile.kind), self._why(profile)

    def _labels(self) -> str:
        missing = f"; {self.unlabelled:,} without a label" if self.unlabelled else ""
        return f"{self.label}{missing}"

    def _why(self, profile: ColumnProfile) -> str:
        reason = self.reasons.get(profile.name, profile.why)
        role = self.roles.get(profile.name)
        return reason if role is None or role in _ROLES else f"{reason}: {role}"

    def _special(self, name: str) -> bool:
        return name in self.roles or name in self.reasons

    def _features(self) -> list[str]:
        if not self.profiles:
            return [self.shape.split()[0], "--dim", str(self.dim)]
        options = ["named"]
        for profile in self.profiles:
            if profile.name in self.roles:
                continue
            option = "--text" if profile.kind == "text" else "--categorical" if profile.named_as_id else ""
            option = option or ("--log" if profile.skewed else "")
            if option:
                options += [option, profile.name]
        return options

    def _options(self) -> list[str]:
        columns = self.columns
        form = columns.form.shaping()
        if self.rejected:
            form["on_bad"] = "skip" if columns.form.on_bad == "stop" else columns.form.on_bad
        if self.unlabelled:
            form["unlabelled"] = "skip" if columns.form.unlabelled == "stop" else columns.form.unlabelled
        options: list[str] = []
        for option, value in form.items():
            for text in value if option == "missing" else [",".join(value) if option == "columns" else value]:
                options += [f"--{option.replace('_', '-')}", _mark(text)] if text else []
        if columns.label != "label":
            options += ["--label", columns.label]
        for option, values in (("positive", columns.positive), ("negative", columns.negative)):
            for value in values:
                options += [f"--{option}", value]
        for option, name in (("id", columns.id), ("time", columns.time), ("weight", columns.weight)):
            options += [f"--{option}", name] if name else []
        for name in columns.drop:
            options += ["--drop", name]
        return options


def inspect_file(
    file: File,
    columns: RowColumns,
    format: str,
    limit: int,
    declared: Mapping[str, bool] | None = None,
    remembered: Mapping[str, FieldPast] | None = None,
    *,
    find: bool,
) -> Inspection:
    """Read up to `limit` rows and describe the columns; with `find`, also look for label, id and time.

    `declared` and `remembered`: what the learner's options and its past say of columns. Rows are read as features only,
    so that wrong options end nothing. Raises `ReadError` if the file has no good row.
    """
    form = replace(columns.form, unlabelled="score")
    bare = RowColumns(columns.label, drop=columns.drop, form=form)
    if format in _NAMED:
        bare = replace(bare, label="")
    labels, bad = _CountedLabels(), BadRows("skip")
    with open_rows(file, bare, declared, format, labels, labelled=False, bad=bad) as rows:
        if find and format in ("csv", "tsv") and not form.columns and not columns.drop and _is_row(rows.shape.columns):
            names = tuple(f"column_{k}" for k in range(1, len(rows.shape.columns) + 1))
            columns = replace(columns, form=replace(columns.form, columns=names))
            inspection = inspect_file(file, columns, format, limit, declared, remembered, find=find)
            return replace(inspection, header_is_row=True)
        values, count, width = _values(rows, limit)
        complete = rows.fraction() == 1.0 and count < limit
        notes = [*rows.guesses, *rows.notes(labels=bool(labels.values))]
        kind, dim = rows.shape.kind, rows.shape.width
    reasons: dict[str, str] = {}
    for note in list(notes):
        if isinstance(note, ColumnNote) and (name := note.column) in values:
            reasons[name] = f"{reasons[name]}; {note.text}" if name in reasons else note.text
            notes.remove(note)
    unique = {note.column for note in notes if isinstance(note, UniqueColumn)}
    notes = [note for note in notes if not isinstance(note, UniqueColumn)]
    profiles = tuple(
        profile_column(
            name,
            column,
            timed=name == columns.time,
            past=None if remembered is None else remembered.get(name, FieldPast()),
        )
        for name, column in values.items()
    )
    for profile in profiles:
        if profile.name in unique and profile.kind == "number":
            reasons.setdefault(profile.name, f"{profile.why}; another value in each row: a quantity, or --drop it?")
    options = columns
    raw = labels.values
    if find and not raw and columns.label not in values and (likely := likely_label(values)) is not None:
        columns = replace(columns, label=likely)
    raw = raw or list(values.get(columns.label, ()))
    spelled = [label_text(value) for value in raw]
    counts = LabelValues(dict(Counter(text for text in spelled if text is not None).most_common()))
    roles = {} if columns.label not in values else {columns.label: "label"}
    roles |= {
        name: role for role, name in (("id", columns.id), ("time", columns.time), ("weight", columns.weight)) if name
    }
    if find:
        columns = _find(columns, profiles, roles, counts)
    features = {name: column for name, column in values.items() if name not in roles}
    if columns.label in values:
        for name in (name for name, column in features.items() if reveals_label(column, spelled)):
            roles[name] = "its values tell the label, --drop it unless they are known before"
    for profile in profiles:
        if profile.kind == "identifier" and profile.name not in roles:
            roles[profile.name] = "--drop it, or name it with --id"
        if profile.kind == "time" and profile.name not in roles:
            roles[profile.name] = "--drop it, or name it with --time"
    if find:
        columns = replace(
            columns, drop=columns.drop + tuple(name for name, role in roles.items() if role not in _ROLES)
        )
    return Inspection(
        file,
        format,
        kind,
        count,
        complete,
        columns,
        profiles,
        roles,
        counts if counts.counts else None,
        len(spelled) - sum(counts.counts.values()),
        tuple(notes),
        reasons,
        tuple(bad.examples),
        dim or (width if complete else 1 << (2 * width).bit_length()),
        _new_options(options, columns),
    )


def _values(rows: Rows[Any], limit: int) -> tuple[dict[str, list[Any]], int, int]:
    """Return the values of each named column, the number of rows, and the largest index of rows without names."""
    values: dict[str, list[Any]] = {name: [] for name in rows.shape.columns}
    count = width = 0
    for event in islice(rows.events(), limit):
        for name, value in event.get("features", {}).items():
            column = values.setdefault(name, [])
            if len(column) < count:  # it is new
                column.extend([None] * (count - len(column)))
            column.append(value)
        width = max([width - 1, *event.get("indices", ())]) + 1
        count += 1
    for column in values.values():
        column.extend([None] * (count - len(column)))
    return values, count, width


def _find(
    columns: RowColumns, profiles: Iterable[ColumnProfile], roles: dict[str, str], label: LabelValues
) -> RowColumns:
    """Add the options of label, id and time that are not given, and their roles."""
    for profile in profiles:
        if profile.name in roles:
            continue
        if profile.kind == "identifier" and profile.named_as_id and columns.id is None:  # a counter is no id elsewhere
            columns = replace(columns, id=profile.name)
            roles[profile.name] = "id"
        elif profile.kind == "time" and columns.time is None and not profile.ambiguous:
            columns = replace(columns, time=profile.name)
            if profile.time_format:
                columns = replace(columns, form=replace(columns.form, time_format=profile.time_format))
            roles[profile.name] = "time"
    if columns.positive or columns.negative or columns.ranks or not label.counts or label.binary:
        return columns
    negative = tuple(value for value in label.counts if value.lower() in _NEGATIVE)
    others = [value for value in label.counts if value not in negative]
    if len(label.counts) == 1 or (negative and len(others) != 1):
        return replace(columns, negative=negative or tuple(label.counts))
    positive = others[0] if negative else label.rarest()
    return replace(columns, positive=(positive,), negative=(ANY_LABEL,) if len(label.counts) > 2 else ())


def _new_options(options: RowColumns, columns: RowColumns) -> dict[str, tuple[str, ...]]:
    """Return the options that were found, with their values; the table has the reasons for columns to drop."""
    named = ("label", "positive", "negative", "id", "time")
    values = {name: getattr(columns, name) for name in named if getattr(columns, name) != getattr(options, name)}
    return {name: value if isinstance(value, tuple) else (value,) for name, value in values.items()}


def _is_row(names: Iterable[str]) -> bool:
    """Tell whether a header is a row: a cell is a number, or long text."""
    return any(len(name) > _HEADER_CELL or (is_number(name) and not is_missing(name)) for name in names)


def _learner_name(file: File) -> str:
    stem = Path(file.argument).name.split(".")[0].lower()
    name = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in stem).strip("-")
    return name[:60] or "learner"


def _mark(text: str) -> str:
    return {"\t": "tab"}.get(text, text)
