"""From finished cells to the printed table and its JSON: ours beside the paper's, and the order of the methods."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numba
import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table as PrintedTable

from benchmarks.papers.cells import Cell, cells_of, read
from benchmarks.papers.figures import Printed as Figure
from benchmarks.papers.measures import LOWER_IS_BETTER, NAMES
from benchmarks.papers.protocol import Table
from learners import algorithms

__all__ = [
    "Row",
    "Verdict",
    "as_json",
    "order",
    "print_head",
    "print_rows",
    "print_summary",
    "ranks",
    "rows_of",
    "verdicts_of",
]

Verdict = Literal["equal", "better", "worse"]


@dataclass(frozen=True)
class Row:
    """One method on one task."""

    task: str
    method: str
    printed: Figure | None  # in the paper
    values: tuple[float, ...]  # one per run; none where it could not run
    seconds: float | None  # of the final training of one run, median
    why_not: str  # where it could not run
    lower_is_better: bool
    curve: tuple[tuple[int, ...], tuple[float, ...]] | None = None  # online: events, mean F

    @property
    def paper(self) -> float | None:
        """The paper's."""
        return None if self.printed is None else self.printed.mean

    @property
    def mean(self) -> float | None:
        """Ours."""
        return float(np.mean(self.values)) if self.values else None

    @property
    def sd(self) -> float | None:
        """Ours, over the runs; None with a single one."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else None

    @property
    def difference(self) -> float | None:
        """Ours less the paper's."""
        return None if self.paper is None or self.mean is None else self.mean - self.paper

    @property
    def tolerance(self) -> float:
        """The paper's standard deviation, or ours if it prints none; at least the rounding of what it prints."""
        if self.printed is None:
            return self.sd or 0.0
        return max(self.sd or 0.0 if self.printed.sd is None else self.printed.sd, self.printed.rounding)

    @property
    def verdict(self) -> Verdict | None:
        """Whether ours equals the paper's within the tolerance, or is better or worse."""
        if self.difference is None:
            return None
        if abs(self.difference) <= self.tolerance:
            return "equal"
        return "worse" if (self.difference > 0) == self.lower_is_better else "better"


def rows_of(table: Table, folder: Path, out: Path) -> list[Row]:
    """Return the rows of all finished cells, task by task."""
    finished: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for cell in cells_of(table, folder):
        result = read(cell, folder, out)
        if result is not None:
            finished.setdefault((cell.task.name, cell.method.name), []).append(result)
    return [_row(table, task, method, results) for (task, method), results in finished.items()]


def _row(table: Table, task: str, method: str, results: Sequence[Mapping[str, Any]]) -> Row:
    good = [result for result in results if table.measure in result]
    reasons = sorted({result.get("unfit") or result["failed"] for result in results if table.measure not in result})
    curve = None
    if good and "curve" in good[0]:
        curve = tuple(good[0]["at"]), tuple(np.mean([result["curve"] for result in good], axis=0).tolist())
    return Row(
        task,
        method,
        table.figures.get((task, method)),
        tuple(result[table.measure] for result in good),
        float(np.median([result["seconds"] for result in good])) if good else None,
        "; ".join(reasons),
        table.measure in LOWER_IS_BETTER,
        curve,
    )


def ranks(values: Sequence[float | None], lower_is_better: bool) -> list[int | None]:
    """Places from 1, the best; equal values share the better one, None has none."""
    sign = 1.0 if lower_is_better else -1.0
    keys = [None if value is None else sign * value for value in values]
    return [None if key is None else 1 + sum(other is not None and other < key for other in keys) for key in keys]


def order(rows: Sequence[Row], paper: bool) -> str:
    """Sort the methods from best to worst by our results or those of the paper, if there are any."""
    values = [row.paper if paper else row.mean for row in rows]
    places = ranks(values, rows[0].lower_is_better) if rows else []
    tiers: dict[int, list[str]] = {}
    for place, row in zip(places, rows, strict=True):
        if place is not None:
            tiers.setdefault(place, []).append(row.method)
    return " > ".join(" = ".join(tiers[place]) for place in sorted(tiers))


def print_head(table: Table, folder: Path, console: Console) -> None:
    """Print the title and protocol of a table, and the parts that cannot run."""
    console.rule(f"[bold]{table.name}[/bold]  {table.heading}" + ("  (quick)" if table.protocol.quick else ""))
    console.print(f"Protocol: {table.protocol.words}.", highlight=False)
    for method in table.methods:
        console.print(f"  {method.words(table.protocol.grid_points)}", highlight=False, markup=False)
    for note in table.notes:
        console.print(note, highlight=False, markup=False)
    for line in _legend(table):
        console.print(line, highlight=False, markup=False)
    computed = {cell.task.name for cell in cells_of(table, folder)}
    absent = [task.name for task in table.tasks if task.name not in computed]
    unknown = sorted({method.algorithm for method in table.methods} - algorithms().keys())
    if absent:
        console.print(f"Not in {folder}: {', '.join(absent)}", highlight=False, markup=False)
    if unknown:
        console.print(f"Not in the catalogue: {', '.join(unknown)}", highlight=False)


def _legend(table: Table) -> list[str]:
    """How the table is to be read."""
    lines = []
    example = next((task for task in table.tasks if task.positive), None)
    if example is not None:
        lines.append(f"In brackets, as of {example.name}: the labels that count as positive; all others are negative.")
    lines.append("The seconds are those of the final training of one run, without its tuning: the median of the runs.")
    if table.protocol.quick:
        lines.append("This quick run is a sample of the protocol: its figures are not comparable with the paper's.")
    elif table.figures:
        lines.append(
            "The paper's figure is - if it prints none. Ours is equal within the paper's standard deviation, or ours if"
            " the paper prints none; a figure holds if ours is equal or better."
        )
    return lines


def print_rows(table: Table, rows: Sequence[Row], console: Console) -> None:
    """Print the table, the orders, and how many results of the paper are reached; a quick run says nothing there."""
    judged = not table.protocol.quick
    printed = PrintedTable(box=box.SIMPLE_HEAD, pad_edge=False)
    printed.add_column("data set", no_wrap=True)
    printed.add_column("method", no_wrap=True)
    verdict = ("ours is",) if judged else ()
    for heading in ("paper", "sd", f"ours: {NAMES[table.measure]}", "sd", "difference", *verdict, "place", "seconds"):
        printed.add_column(heading, justify="right")
    orders, remarks = [], []
    for task in dict.fromkeys(row.task for row in rows):
        group = [row for row in rows if row.task == task]
        ours = ranks([row.mean for row in group], group[0].lower_is_better)
        theirs = ranks([row.paper for row in group], group[0].lower_is_better)
        in_paper = sum(row.paper is not None for row in group)
        for k, row in enumerate(group):
            cells = [
                task if k == 0 else "",
                row.method,
                _number(row.paper),
                _number(None if row.printed is None else row.printed.sd),
                _number(row.mean),
                _number(row.sd),
                _number(row.difference, "+.4f"),
                *((row.verdict or "",) if judged else ()),
                f"{ours[k] or '-'} / {theirs[k] or '-'}" if in_paper > 1 else str(ours[k] or "-"),
                _number(row.seconds, ".3g"),
            ]
            printed.add_row(*cells, end_section=k == len(group) - 1)
            if row.why_not:
                remarks.append(f"{task}, {row.method}: {row.why_not}")
        orders.append(f"{task}  ours: {order(group, paper=False)}")
        if in_paper > 1:
            orders.append(f"{'':{len(task)}}  the paper's: {order(group, paper=True)}")
    console.print(printed, markup=False)
    for line in orders + remarks:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if judged and table.figures:
        console.print(_counts(verdicts_of(rows)) + f" of {table.cells} figures of the paper's table.", highlight=False)


def verdicts_of(rows: Sequence[Row]) -> Counter[Verdict]:
    """Count the verdicts of the rows that have one."""
    return Counter(row.verdict for row in rows if row.verdict is not None)


def _counts(verdicts: Counter[Verdict]) -> str:
    judged, worse = verdicts.total(), verdicts["worse"]
    return f"{judged - worse} hold and {worse} do not, of {judged} judged"


def print_summary(judged: Sequence[tuple[Table, Sequence[Row]]], console: Console) -> None:
    """Print how many figures of the papers hold, by paper and method, and how many could be judged."""
    by_method: dict[tuple[str, str], Counter[Verdict]] = {}
    for table, rows in judged:
        for row in rows:
            if row.verdict is not None:
                by_method.setdefault((table.paper, row.method), Counter())[row.verdict] += 1
    if not by_method:
        return
    printed = PrintedTable(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("paper", "method"):
        printed.add_column(heading, no_wrap=True)
    for heading in ("judged", "hold", "equal", "better", "worse"):
        printed.add_column(heading, justify="right")
    for (paper, method), verdicts in by_method.items():
        holding = verdicts["equal"] + verdicts["better"]
        counts = (verdicts.total(), holding, verdicts["equal"], verdicts["better"], verdicts["worse"])
        printed.add_row(paper, method, *map(str, counts))
    console.print(printed, markup=False)
    total: Counter[Verdict] = sum(by_method.values(), Counter())
    cells = sum(table.cells for table, _ in judged)
    console.print(f"In all {_counts(total)} of {cells} figures of these tables.", highlight=False)


def _number(value: float | None, form: str = ".4f") -> str:
    return "-" if value is None else format(value, form)


def as_json(table: Table, rows: Sequence[Row], finished: int, cells: Sequence[Cell]) -> dict[str, Any]:
    """Everything that was printed, with the figures of each run."""
    return {
        "table": table.name,
        "title": table.heading,
        "quick": table.protocol.quick,
        "protocol": table.protocol.words,
        "methods": [method.words(table.protocol.grid_points) for method in table.methods],
        "notes": list(table.notes),
        "measure": table.measure,
        "runs": len(cells),
        "runs_new": finished,
        "machine": {"python": platform.python_version(), "numpy": np.__version__, "numba": numba.__version__},
        "rows": [
            {
                "task": row.task,
                "method": row.method,
                "paper": row.paper,
                "paper_sd": None if row.printed is None else row.printed.sd,
                "mean": row.mean,
                "sd": row.sd,
                "difference": row.difference,
                **({} if table.protocol.quick else {"verdict": row.verdict}),
                "seconds": row.seconds,
                "values": list(row.values),
                **({"events": list(row.curve[0]), "curve": list(row.curve[1])} if row.curve else {}),
                **({"why_not": row.why_not} if row.why_not else {}),
            }
            for row in rows
        ],
    }
