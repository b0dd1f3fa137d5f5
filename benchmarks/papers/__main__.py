"""The papers' tables and figures, run anew: ours beside the paper's.

    python -m benchmarks.papers --datasets DIR [--table cbr3] [--only heart] [--printed] [--runs 5] [--quick]

Runs each paper's protocol on the data sets that are found in DIR (see benchmarks/papers/datasets.py for the files) and
prints, per data set and method, the paper's figure, ours with its standard deviation, the difference, and the methods'
order; at the end, how many of the papers' figures hold, by method. The protocols take days on two cores: --runs takes
only the first runs of each protocol, and --printed only what a paper prints a figure of. With --only, tables that have
none of those data sets are left out. Each finished run is kept in a file under --out: after an interruption, the same
command goes on where it stopped. A table's JSON and, for figures, a PNG are written there too. Without --datasets it
says where the public data sets are.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from benchmarks.papers.cells import cells_of
from benchmarks.papers.datasets import PAGES, file_of
from benchmarks.papers.plots import can_draw, draw
from benchmarks.papers.pool import run_missing
from benchmarks.papers.protocol import Table
from benchmarks.papers.report import Row, as_json, print_head, print_rows, print_summary, rows_of
from benchmarks.papers.tables import TABLES

__all__ = ["main"]

_NARROWEST = 120  # columns: a table that is not printed on a terminal should not be folded


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(
        "python -m benchmarks.papers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--table", action="append", choices=TABLES, help="only this table (may be repeated)")
    parser.add_argument("--datasets", type=Path, help="folder of the data sets")
    parser.add_argument("--only", action="append", metavar="NAME", help="only this data set (may be repeated)")
    parser.add_argument("--printed", action="store_true", help="only data sets and methods with a figure in the paper")
    parser.add_argument("--runs", type=int, metavar="N", help="only the first N runs of a method on a data set")
    parser.add_argument(
        "--quick", action="store_true", help="on samples, with few runs and coarse grids: a few minutes"
    )
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"), help="folder of what is written")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes; default: one per core")
    options = parser.parse_args(arguments)
    console = Console()
    if console.width < _NARROWEST:
        console = Console(width=_NARROWEST)
    tables = [TABLES[name] for name in options.table or TABLES]
    if options.datasets is not None and not options.datasets.is_dir():
        parser.error(f"{options.datasets} is not a folder")
    if options.only:
        if unknown := _unknown(options.only, tables, options.datasets):
            parser.error(unknown)
        tables = [_narrowed(table, options.only) for table in tables]
        tables = [table for table in tables if table.tasks]
    if options.runs is not None and options.runs < 1:
        parser.error(f"--runs is {options.runs}; expected at least 1")
    if options.printed:
        tables = [table for table in map(Table.only_printed, tables) if table.tasks]
    if options.datasets is None:
        _print_pages(tables, console)
        return
    if options.quick:
        tables = [replace(table, protocol=table.protocol.quickly()) for table in tables]
    if options.runs is not None:
        tables = [replace(table, protocol=replace(table.protocol, most_runs=options.runs)) for table in tables]
    judged = []
    try:
        for table in tables:
            rows = _run(table, options.datasets.resolve(), options.out, options.workers, console)
            judged.append((table, rows))
    except KeyboardInterrupt:
        parser.exit(130, "stopped; the same command goes on from here\n")
    if not options.quick:
        print_summary(judged, console)


def _unknown(names: Sequence[str], tables: Sequence[Table], folder: Path | None) -> str | None:
    """Describe the names of data sets that no table has; return None if there are none."""
    files = sorted({task.file for table in tables for task in table.tasks})
    unknown = [name for name in names if name not in files]
    if not unknown:
        return None
    message = f"no data set of {'this table' if len(tables) == 1 else 'these tables'}: {', '.join(unknown)}"
    message += f"; expected some of {', '.join(files)}"
    absent = [name for name in files if folder is not None and file_of(folder, name) is None]
    return message + (f" (of which not in {folder}: {', '.join(absent)})" if absent else "")


def _narrowed(table: Table, names: Sequence[str]) -> Table:
    """Restrict a table to these data sets."""
    return replace(table, tasks=tuple(task for task in table.tasks if task.file in names))


def _run(table: Table, folder: Path, out: Path, workers: int, console: Console) -> list[Row]:
    print_head(table, folder, console)
    cells = cells_of(table, folder)
    if not cells:
        console.print("Nothing to run.")
        return []
    finished = run_missing(cells, folder, out, workers, console)
    rows = rows_of(table, folder, out)
    print_rows(table, rows, console)
    path = out / f"{table.name}{'-quick' if table.protocol.quick else ''}.json"
    path.write_text(json.dumps(as_json(table, rows, finished, cells), indent=1))
    written = [path]
    if table.plot and can_draw():
        written.append(path.with_suffix(".png"))
        draw(table, rows, written[-1])
    elif table.plot:
        console.print("No PNG: matplotlib is not installed.")
    console.print(f"Written: {', '.join(map(str, written))}", highlight=False, soft_wrap=True)
    return rows


def _print_pages(tables: Sequence[Table], console: Console) -> None:
    """Where each data set of the tables can be had, and which tables want it."""
    console.print(
        "Put NAME.npz (arrays X and y) or NAME.svm (LIBSVM's format) into a folder and give it as --datasets:"
    )
    for name, page in PAGES.items():
        names = [table.name for table in tables if any(name in task.files for task in table.tasks)]
        if names:
            console.print(f"{name}: {page}  for {', '.join(names)}", highlight=False, markup=False, soft_wrap=True)


if __name__ == "__main__":
    main()
