"""Judges by the first rows of a file which columns name the rows: the one given as id, and others. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from learners.features import normalised
from service.datasets.notes import ColumnNote, UniqueColumn
from service.datasets.values import identity
from service.text import counted

__all__ = ["RoundedNumbers", "check_ids", "unnamed_ids"]

_EXACT = 2**53  # whole numbers beyond it are not all different as floats
_ROWS = 100  # fewer tell nothing
_REPEATED = 0.1  # share of rows: more repeated ids are no ids
_NAME = re.compile(r"\S+")
_FRACTION = re.compile(r"[+-]?[0-9]*[.,][0-9]*([eE][+-]?[0-9]+)?")


class RoundedNumbers:
    """Counts whole numbers beyond 2^53 in exponent form, such as 3.5e+18: as ids, they have lost their last digits.

    A field that is `declared`, with whether it is numeric, is left out: its numbers are quantities, or are refused.
    """

    def __init__(self, declared: Mapping[str, bool] | None = None) -> None:
        self._declared = declared or {}
        self._counts: dict[str, tuple[int, str]] = {}  # how many, and the first

    def note(self, event: Mapping[str, Any], place: str) -> None:
        """Count those of an event. O(fields)."""
        features = event.get("features")
        if not isinstance(features, Mapping):
            return
        for name, value in features.items():
            if type(value) is float and not -_EXACT <= value <= _EXACT and normalised(name) not in self._declared:
                count, first = self._counts.get(name, (0, f"{place}: {value}"))
                self._counts[name] = count + 1, first

    def notes(self) -> Sequence[ColumnNote]:
        """Warn of each field."""
        return [
            ColumnNote(
                name,
                f"warning: {counted(count, 'number')} beyond 2^53 in exponent form, the first in {first}. If they are "
                "ids, their last digits are lost: export the column as text. A quantity is declared with --log",
            )
            for name, (count, first) in self._counts.items()
        ]


def check_ids(column: str, values: Iterable[Any]) -> None:
    """Raise ValueError if too many of the first rows repeat an id, because only the first of each would be learnt."""
    ids = [id for id in map(_id, values) if id is not None]
    repeated = 1 - len(set(ids)) / max(1, len(ids))
    if len(ids) >= _ROWS and repeated > _REPEATED:
        raise ValueError(
            f"{100 * repeated:.0f} % of the first {len(ids):,} rows repeat an id, so {column!r} does not name rows: "
            "only the first row of each id would be learnt. Use another column as --id, or none"
        )


def unnamed_ids(columns: Iterable[tuple[str, Sequence[Any]]]) -> Iterator[UniqueColumn]:
    """Yield a warning for each feature with another word or whole number in each of the first rows."""
    for name, values in columns:
        present = [value for value in values if value is not None and value != ""]
        if len(present) >= _ROWS and all(map(_names, present)) and len(set(map(str, present))) == len(present):
            yield UniqueColumn(
                name,
                f"warning: {name} has another value in each of the first {len(present):,} rows: if it names the rows, "
                f"use --id {_quoted(name)}; else --drop {_quoted(name)} unless it is a quantity",
            )


def _id(value: Any) -> str | None:
    try:
        return identity(value)
    except ValueError:  # the row reports it
        return None


def _names(value: Any) -> bool:
    """Tell whether a value may name a row: a whole number, or a word that is no fraction."""
    if isinstance(value, str):
        text = value.strip()
        return _NAME.fullmatch(text) is not None and _FRACTION.fullmatch(text) is None
    return type(value) is int


def _quoted(name: str) -> str:
    return f"'{name}'" if " " in name else name
