"""Lines about a file that people read, with what a program has to know of them."""

from __future__ import annotations

from typing import Self

__all__ = ["ColumnNote", "UniqueColumn"]


class UniqueColumn(str):
    """A warning that a column may name the rows."""

    column: str

    def __new__(cls, column: str, line: str) -> Self:
        """Make the line of a column."""
        note = super().__new__(cls, line)
        note.column = column
        return note


class ColumnNote(str):
    """A line about the values of one column: `column: text`."""

    column: str
    text: str

    def __new__(cls, column: str, text: str) -> Self:
        """Make the line of a column."""
        note = super().__new__(cls, f"{column}: {text}")
        note.column, note.text = column, text
        return note
