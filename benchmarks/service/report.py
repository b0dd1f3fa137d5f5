"""Results as tables."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.service.rounds import Case

__all__ = ["print_case"]


def print_case(case: Case, console: Console) -> None:
    """Print a case: its rows, then its targets and whether they are reached."""
    console.print(_rows(case))
    for row in case.rows:
        if "absent" in row:
            console.print(f"  {row['what']}: {row['absent']}", highlight=False, markup=False)
    if case.verdicts:
        table = Table(box=box.SIMPLE_HEAD, title_justify="left")
        for name in ("asked for", "", "reached", "verdict"):
            table.add_column(name, justify="right" if name == "reached" else "left")
        for verdict in case.verdicts:
            reached = "-" if verdict.reached is None else _figure(verdict.reached)
            table.add_row(verdict.what, f"{verdict.bound} {_figure(verdict.target)}", reached, verdict.text)
        console.print(table)
    for note in case.notes:
        console.print(f"  {note}", highlight=False)


def _rows(case: Case) -> Table:
    rows = [row for row in case.rows if "absent" not in row]
    names = list(dict.fromkeys(name for row in rows for name in row))
    table = Table(title=case.title, box=box.SIMPLE_HEAD, title_justify="left")
    for name in names:
        numbers = any(isinstance(row.get(name), int | float) for row in rows)
        table.add_column(name, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_cell(name, row.get(name)) for name in names))
    return table


def _cell(name: str, value: Any) -> str:
    if isinstance(value, int | float):
        return f"{value:.0%}" if name == "sender busy" else _figure(value)
    return value or ""


def _figure(value: float) -> str:
    """Three digits that count."""
    if isinstance(value, int) or value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 100 else f"{value:.2f}" if value >= 1 else f"{value:.3f}"
