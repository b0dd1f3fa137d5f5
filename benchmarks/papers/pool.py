"""Run cells in parallel processes with a progress bar; finished cells stay finished."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from benchmarks.papers.cells import Cell, finish

__all__ = ["run_missing"]

# The kernels are single-threaded, and every core has a process: threads of BLAS would only fight over them.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")


def run_missing(cells: Sequence[Cell], folder: Path, out: Path, workers: int, console: Console) -> int:
    """Run the cells that are not finished yet, each once; how many that were. With one worker, in this process."""
    waiting = {cell.path(folder, out): cell for cell in cells}
    waiting = {path: cell for path, cell in waiting.items() if not path.is_file()}
    if not waiting:
        return 0
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        bar = progress.add_task("", total=len(waiting))
        for cell in _finished(list(waiting.values()), folder, out, min(workers, len(waiting))):
            progress.update(bar, advance=1, description=f"{cell.task.name}: {cell.method.name}")
        progress.update(bar, description="done")
    return len(waiting)


def _finished(cells: Sequence[Cell], folder: Path, out: Path, workers: int) -> Iterator[Cell]:
    """Each cell when it is finished."""
    if workers <= 1:
        for cell in cells:
            finish(cell, folder, out)
            yield cell
        return
    os.environ.update(_ONE_THREAD)  # read by the libraries when a new process loads them, hence not a fork
    fresh = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, fresh, signal.signal, (signal.SIGINT, signal.SIG_IGN))
    try:
        running = {pool.submit(finish, cell, folder, out): cell for cell in cells}
        for future in as_completed(running):
            future.result()
            yield running[future]
    finally:  # on an error or an interrupt: drop waiting cells, wait for running ones, and store their results
        pool.shutdown(wait=True, cancel_futures=True)
