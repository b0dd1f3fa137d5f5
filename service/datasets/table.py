"""Turns the cells of a table's rows into events: which columns are features, and what each of their cells means."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from learners.features import column_number, declared_number, is_missing, is_plain, normalised
from rarestream.values import plain_value
from service.datasets.identifiers import check_ids, unnamed_ids
from service.datasets.notes import ColumnNote
from service.datasets.number_cells import NumberForm, Plain, column_kind, number_form, quote
from service.datasets.rows import Event, Shape
from service.datasets.times import EventTimes
from service.datasets.values import RowColumns
from service.text import counted

__all__ = ["CellTable", "place_columns"]

Cell = Any  # text, or a value of a typed file
Read = Callable[[Cell], Any]  # turns a cell of one column into the value of a feature


def place_columns(
    header: Sequence[str], columns: RowColumns, needed: Sequence[str]
) -> tuple[dict[str, int], list[str]]:
    """Return the places of the columns that are not dropped, by their unique names, and what was renamed.

    `columns.drop` has names, or positions from 1; after that, names lose blanks around them, and empty and repeated
    ones become unique. Raises ValueError if a dropped or a `needed` column does not exist, or exists twice.
    """
    names = [normalised(name) for name in header]
    drop = {normalised(name) for name in columns.drop}
    left = {name for name in drop if name in names}
    positions = {int(name) - 1 for name in drop - left if name.isdecimal() and 1 <= int(name) <= len(names)}
    remaining = [k for k, name in enumerate(names) if name not in left and k not in positions]
    repeated = {name for name, count in Counter(names[k] for k in remaining).items() if count > 1}
    place: dict[str, int] = {}
    notes = []
    for k in remaining:
        name = unique = names[k] or f"column_{k + 1}"
        number_ = 1
        while unique in place or (unique != name and unique in names):
            number_ += 1
            unique = f"{name}_{number_}"
        if unique != names[k]:
            had = f"has the name of another one, {name!r}," if names[k] else "has no name"
            notes.append(f"column {k + 1} {had} and is called {unique!r}")
        place[unique] = k
    blank = [name for name in header if name != name.strip()]
    if blank:
        notes.append(f"blanks around {counted(len(blank), 'column name')} are left out, such as {quote(blank[0])}")
    for name in sorted(drop - left):
        if not (name.isdecimal() and int(name) - 1 in positions):
            if name not in place:
                raise ValueError(f"there is no column {name!r}")
            del place[name]
    for name in needed:
        if normalised(name) in repeated:
            last = max(k for k in remaining if names[k] == normalised(name))
            raise ValueError(f"the header names {name!r} twice: leave one out by its position, --drop {last + 1}")
        if normalised(name) not in place:
            like = next((other for other in place if other.casefold() == name.casefold()), None)
            but = "" if like is None else f", but {like!r}: names differ by case"
            raise ValueError(f"there is no column {name!r}{but}")
    return place, notes


class CellTable:
    """The columns of a file with rows of cells. `event` turns a row into an event.

    `label_of` decodes a label, to None if there is none. Without `labelled`, the label is omitted. `declared`: columns
    of known type, and whether they are numeric. `typed` tells whether the cells of a column are values, not text; None
    if the file has only text, as CSV has. `note_missing` is called with column and text of cells that are not empty and
    count as missing, `guesses` gets what is taken of a column. `undo` gets
    what takes back a decision that a row has made. Raises ValueError if a column is missing.
    """

    def __init__(
        self,
        header: Sequence[str],
        columns: RowColumns,
        label_of: Callable[[Any], int | None],
        declared: Mapping[str, bool],
        *,
        labelled: bool,
        typed: Callable[[int], bool] | None = None,
        note_missing: Callable[[str, str], None],
        guesses: list[str],
        undo: list[Callable[[], None]],
    ) -> None:
        self._names = header
        self._width = len(header)
        self._label_of = label_of
        self._declared = declared
        self._typed = typed
        self._note_missing = note_missing
        self._guesses = guesses
        self._undo = undo
        members = [(member, name, read) for member, name, read in columns.about if name is not None]
        needed = [columns.label] * labelled + [name for _, name, _ in members]
        self._place, notes = place_columns(header, columns, needed)
        guesses += notes
        self.label = self._place[normalised(columns.label)] if labelled else None
        self._about = [(member, self._place[normalised(name)], read) for member, name, read in members]
        aside = {normalised(columns.label), *(normalised(name) for _, name, _ in members)}
        self.columns = [(k, name) for name, k in self._place.items() if name not in aside]
        self.places = [k for name, k in self._place.items() if labelled or name != normalised(columns.label)]
        form = columns.form
        self._number_form = NumberForm(form.decimal, form.thousands) if form.decimal or form.thousands else None
        self._features: list[tuple[int, str, Read | None]] = []

    def survey(self, rows: Sequence[Sequence[Cell]]) -> Shape:
        """Decide the types of the columns by the first rows, and return the shape.

        Raises ValueError if the ids of labelled rows repeat.
        """
        for member, k, _ in self._about:
            if member == "id" and self.label is not None:
                check_ids(self._names[k], [row[k] for row in rows])
        self._guesses += [read.note for _, _, read in self._about if isinstance(read, EventTimes) and read.note]
        undeclared = ((k, name) for k, name in self.columns if name not in self._declared)
        self._guesses += unnamed_ids((name, [row[k] for row in rows]) for k, name in undeclared)
        self._features = [(k, name, self._reader(k, name, [row[k] for row in rows])) for k, name in self.columns]
        texts = [name for _, name, read in self._features if read is None]
        return Shape("named", columns=tuple(name for _, name in self.columns), texts=tuple(texts))

    def good(self, row: Sequence[Cell]) -> bool:
        """Tell whether id, time and weight of a row are well-formed."""
        with suppress(ValueError):
            for _, k, read in self._about:
                read(row[k])
            return True
        return False

    def check(self, row: Sequence[Cell]) -> None:
        """Raise ValueError if a row has too many or too few cells."""
        if len(row) != self._width:
            raise ValueError(f"has {counted(len(row), 'cell')}; the header names {counted(self._width, 'column')}")

    def event(self, row: Sequence[Cell]) -> Event:
        """Decode a row. Raises ValueError if it is malformed."""
        self.check(row)
        event: Event = {
            "features": {name: (row[k] or None) if read is None else read(row[k]) for k, name, read in self._features}
        }
        if self.label is not None:
            label = self._label_of(row[self.label])
            if label is not None:
                event["label"] = label
        for member, k, read in self._about:
            value = read(row[k])
            if value is not None:
                event[member] = value
        return event

    def _say(self, name: str, text: str) -> None:
        self._guesses.append(ColumnNote(name, text))

    def _reader(self, place: int, name: str, cells: Sequence[Cell]) -> Read | None:
        """Return the reader of a column's cells; None for text."""
        if self._typed is None:
            return self._read(name, cells)
        if self._typed(place):
            return self._value(name, cells)
        if name in self._declared or self._number_form is not None:
            return self._read(name, cells)
        kind = column_kind(cells)
        if kind.numeric and kind.fractions:  # which no learner takes for names
            return self._read(name, cells)
        if kind.numeric:
            self._say(
                name,
                f"taken as names because the file has it as text; --decimal . reads text such as "
                f"{quote(next(cell for cell in cells if cell))} as numbers",
            )
        return None

    def _value(self, name: str, cells: Sequence[Cell]) -> Read:
        """Return the reader of values. NaN is missing, an infinite number is its text; large integers are names."""
        large = next((cell for cell in cells if type(cell) is int and abs(cell) > 2**53), None)
        if large is not None and name not in self._declared:
            self._say(name, f"taken as names because {large} is beyond 2^53")
            return lambda cell: None if cell is None else str(cell)

        def read(cell: Any) -> Any:
            value = plain_value(cell) if type(cell) is float else cell
            if type(value) is str and self._declared.get(name, True):
                self._note_missing(name, value)
            return value

        return read

    def _read(self, name: str, cells: Sequence[Cell]) -> Read | None:
        """Return the reader of cells of text; None if they stay text."""
        if not self._declared.get(name, True):
            return None
        form: Plain | None = self._number_form
        numeric, note, _ = column_kind(cells, form)
        if numeric is False and self._number_form is None:
            other, ambiguous = number_form(cells)
            if other is not None:
                numeric, note, _ = column_kind(cells, other)
                form = other
                if numeric:
                    self._say(name, f"numbers with {other}, as in {_example(cells)}")
            note = ambiguous or note
        if name in self._declared:
            return self._declared_number(name, form)
        if note is not None:
            self._say(name, note)
        if numeric is None:
            return self._undecided(name, len(cells))
        return self._number(name, form) if numeric else None

    def _number(self, name: str, plain: Plain | None) -> Read:
        def read(cell: str) -> float | None:
            if plain is None and is_plain(cell):
                return float(cell)  # the most frequent case
            try:
                value = column_number(cell if plain is None else plain(cell))
            except ValueError:
                value = None
            if value is None and cell:
                self._note_missing(name, cell)
            return value

        return read

    def _declared_number(self, name: str, plain: Plain | None) -> Read:
        def read(cell: str) -> float | None:
            if plain is None and is_plain(cell):
                return float(cell)  # the most frequent case
            try:
                value = declared_number(cell if plain is None else plain(cell))
            except ValueError as error:
                raise ValueError(
                    f"column {name} {error}, because the learner declares it numeric; --missing {quote(cell)} takes "
                    "such cells as missing"
                ) from None
            if value is None and cell:
                self._note_missing(name, cell)
            return value

        return read

    def _undecided(self, name: str, rows: int) -> Read:
        """Return the reader of a column that was empty in all surveyed rows: its first cell with a value decides."""
        decided: Read | None = None
        is_text = False

        def reset(guesses: int) -> None:
            nonlocal decided, is_text
            decided, is_text = None, False
            del self._guesses[guesses:]

        def read(cell: str) -> Any:
            nonlocal decided, is_text
            if not is_text and decided is None:
                if is_missing(cell):
                    if cell:
                        self._note_missing(name, cell)
                    return None
                before = len(self._guesses)
                decided = self._read(name, [cell])
                is_text = decided is None
                kind = "text" if is_text else "a number"
                self._say(name, f"empty in the first {counted(rows, 'row')}; its first value is {kind}, {quote(cell)}")
                self._undo.append(partial(reset, before))
            return (cell or None) if decided is None else decided(cell)

        return read


def _example(cells: Sequence[str]) -> str:
    """Quote the first cell that is not a plain number."""
    for cell in cells:
        if not is_missing(cell) and not column_kind([cell]).numeric:
            return quote(cell.strip())
    return quote(cells[0])
