"""Lines about a file that people read, with what a program has to know of them, and the count of texts that are cut."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from learners import Config, InvalidInput
from learners.features import Named
from service.text import counted

__all__ = ["ColumnNote", "LongTexts", "UniqueColumn"]


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


class LongTexts:
    """Counts the texts of which a learner of this configuration learns only the first words, as at every door."""

    def __init__(self, config: Mapping[str, Any] | None) -> None:
        self._config = None if config is None else _with_texts(config)
        self._cut: dict[str, tuple[int, str]] = {}  # how many, and the place of the first

    def note(self, event: Mapping[str, Any], place: str) -> None:
        """Count the long texts of an event. O(words) if it has many characters."""
        if self._config is not None and isinstance(features := event.get("features"), Mapping):
            assert isinstance(self._config.features, Named)
            for name in self._config.features.cut_texts(features, self._config.most_nonzero):
                count, first = self._cut.get(name, (0, place))
                self._cut[name] = count + 1, first

    def notes(self) -> list[str]:
        """Describe the texts that are cut."""
        return [
            ColumnNote(name, f"{counted(count, 'text')} learnt only by the first words, the first in {place}")
            for name, (count, place) in self._cut.items()
        ]


def _with_texts(config: Mapping[str, Any]) -> Config | None:
    """Read a configuration whose events have texts; None if they have none, or a later service wrote it."""
    try:
        read = Config.of_stored(config)
    except InvalidInput:
        return None
    return read if isinstance(read.features, Named) and read.features.text else None
