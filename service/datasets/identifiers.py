"""Judges by the first rows of a file which columns name the rows: the one given as id, and others. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from service.datasets.notes import UniqueColumn
from service.datasets.values import identity

__all__ = ["check_ids", "unnamed_ids"]

_ROWS = 100  # fewer tell nothing
_REPEATED = 0.1  # share of rows: more repeated ids are no ids
_NAME = re.compile(r"\S+")
_FRACTION = re.compile(r"[+-]?[0-9]*[.,][0-9]*([eE][+-]?[0-9]+)?")


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
