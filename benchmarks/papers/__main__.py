"""The papers' tables and figures, run anew: ours beside the paper's.

    python -m benchmarks.papers --datasets DIR [--table cbr3] [--table loam2] [--only heart] [--quick] [--out DIR]

Runs each paper's protocol on the data sets that are found in DIR (see benchmarks/papers/datasets.py for the files) and
prints, per data set and method, the paper's figure, ours with its standard deviation, the difference, and the methods'
order. With --only, tables that have none of those data sets are left out. Each finished run is kept in a file under
--out: after an interruption, the same command goes on where it stopped. A table's JSON and, for figures, a PNG are
written there too. Without --datasets it says where the public data sets are.
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
from benchmarks.papers.report import as_json, print_head, print_rows, rows_of
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
    parser.add_argument(
        "--quick", action="store_true", help="on samples, with few runs and coarse grids: a few minutes"
    )
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"), help="folder of what is written")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes; default: one per core")
    chosen = parser.parse_args(arguments)
    console = Console()
    if console.width < _NARROWEST:
        console = Console(width=_NARROWEST)
    tables = [TABLES[name] for name in chosen.table or TABLES]
    if chosen.datasets is not None and not chosen.datasets.is_dir():
        parser.error(f"{chosen.datasets} is not a folder")
    if chosen.only:
        if unknown := _unknown(chosen.only, tables, chosen.datasets):
            parser.error(unknown)
        tables = [_narrowed(table, chosen.only) for table in tables]
        tables = [table for table in tables if table.tasks]
    if chosen.datasets is None:
        _print_pages(tables, console)
        return
    if chosen.quick:
        tables = [replace(table, protocol=table.protocol.quickly()) for table in tables]
    try:
        for table in tables:
            _run(table, chosen.datasets.resolve(), chosen.out, chosen.workers, console)
    except KeyboardInterrupt:
        parser.exit(130, "stopped; the same command goes on from here\n")


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


def _run(table: Table, folder: Path, out: Path, workers: int, console: Console) -> None:
    print_head(table, folder, console)
    cells = cells_of(table, folder)
    if not cells:
        console.print("Nothing to run.")
        return
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


def _print_pages(tables: Sequence[Table], console: Console) -> None:
    """Where each data set of the tables can be had, and which tables want it."""
    console.print(
        "Put NAME.npz (arrays X and y) or NAME.svm (LIBSVM's format) into a folder and give it as --datasets:"
    )
    for name, page in PAGES.items():
        wanted = [table.name for table in tables if any(name in task.files for task in table.tasks)]
        if wanted:
            console.print(f"{name}: {page}  for {', '.join(wanted)}", highlight=False, markup=False, soft_wrap=True)


if __name__ == "__main__":
    main()
