"""The further cells that are missing, which `--missing` names: texts, and numbers however they are spelt. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from learners.features import cell_value

__all__ = ["MissingCells"]


class MissingCells:
    """Empties the cells that an option names: -999 is also -999.0, and a number in a file that has numbers.

    `notes` has the names that no cell had.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names: dict[Any, str] = {}  # by text, and by the number that the text spells
        for name in names:
            self._names |= {name: name, cell_value(name): name}
        self._unmet = dict.fromkeys(self._names.values())

    def rows(self, rows: Iterator[tuple[int, list[Any]]]) -> Iterator[tuple[int, list[Any]]]:
        """Return the rows with such text empty, and with null for such numbers. O(cells)."""
        return ((place, self.empty(row)) for place, row in rows) if self._names else rows

    def empty(self, row: list[Any]) -> list[Any]:
        """Empty the cells of a row in place, and return it."""
        if self._names:
            row[:] = map(self._cell, row)
        return row

    def notes(self) -> list[str]:
        """Name those that no cell had so far."""
        return [f"--missing {name!r}: no cell has it" for name in self._unmet]

    def _cell(self, cell: Any) -> Any:
        if type(cell) is str:
            text = cell.strip()
            name = self._names.get(text) or self._names.get(cell_value(text))
        else:
            name = self._names.get(cell) if type(cell) in (int, float) else None
        if name is None:
            return cell
        self._unmet.pop(name, None)
        return "" if type(cell) is str else None
