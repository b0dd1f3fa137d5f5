"""What an event costs: nanoseconds per event of every online algorithm of the catalogue.

    python -m benchmarks.kernels [--quick] [--algorithm cbr] [--json FILE]

Three tables. First each algorithm at 10, 54 and 300 dense columns: standard normal rows of which a tenth is positive
and hard to tell apart, so that most events move the model; buffers are those of the papers, 50 examples per class. The
model has met both classes before the clock starts: compiling and filling buffers do not count. The figure is the median
of several calls, each long enough for the clock, in the thread's processor time; the spread is that of their quartiles.
Batch algorithms are not among these: they are fitted now and then, and learn nothing from a single event.

Then each that takes sparse rows: 30 words of a vocabulary of 4,096, the frequent ones much oftener, hashed to 2^12 and
to 2^22 columns, and renumbered as a learner does, which is part of the time; with the memory of the state in the end:
of 2^12 columns fewer are met, as words meet in one. Then the kernels that have a target, beside it and beside C, where
there is a compiler: see `targets.py`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks import native, targets
from learners import algorithms
from learners.features.base import Dense, SparseColumns
from learners.features.column_map import Columns, columns_of
from learners.numerics.arrays import Rows, Sparse, Vector

__all__ = ["Cost", "SparseCost", "main", "measure", "measure_sparse"]

DIMS = (10, 54, 300)
SPARSE_DIMS = (2**12, 2**22)
CAPACITY = 50  # stored examples per class, where an algorithm is one that the papers give buffers of 50
BUFFERED = ("cbr", "cbr-diag", "oam")
RANKS = 5
WARM = 600  # events before the clock starts: both buffers are full then
MOST = 2**20  # numbers in the rows of one call: 8 MiB
NON_ZEROS, WORDS = 30, 2**12


class Cost(NamedTuple):
    """What one algorithm costs at one width."""

    algorithm: str
    dim: int
    ns: float  # per event, median of the calls
    low: float  # their lower
    high: float  # and upper quartile
    events: int  # of one call


class SparseCost(NamedTuple):
    """What one algorithm costs with sparse rows of so many columns."""

    algorithm: str
    dim: int
    ns: float  # per event, median of the calls
    met: int  # columns
    memory: int  # bytes of its state in the end


def labels(n: int, ranks: int | None, random: np.random.Generator) -> Vector:
    """Labels of which a tenth is +1, or ranks that come equally often."""
    if ranks is not None:
        return random.integers(1, ranks + 1, n).astype(np.float64)
    return np.where(random.random(n) < 0.1, 1.0, -1.0)


def dense(n: int, dim: int, ranks: int | None, seed: int) -> tuple[Rows, Vector]:
    """Rows (n, dim) and labels."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, dim))
    y = labels(n, ranks, random)
    if ranks is None:
        X[:, 0] += 0.3 * y
    return X, y


def hashed(n: int, dim: int, ranks: int | None, seed: int) -> tuple[Rows, Vector]:
    """Rows of up to 30 words, the k-th of which is drawn in proportion to 1 / k, in columns of their hashes; labels."""
    random = np.random.default_rng(seed)
    columns = np.random.default_rng(0).integers(0, dim, WORDS)
    words = np.minimum(np.exp(random.random((n, NON_ZEROS)) * math.log(WORDS)), WORDS - 1).astype(np.int64)
    rows = [np.unique(columns[row]) for row in words]
    indices = np.concatenate(rows)
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    return Sparse(random.normal(size=len(indices)), indices, indptr), labels(n, ranks, random)


def _settings(name: str, algorithm: Any) -> tuple[Any, int | None]:
    """The parameters that it is measured with, and its number of ranks."""
    ranks = RANKS if algorithm.TRAITS.ordinal else None
    chosen: dict[str, Any] = {"ranks": ranks} if ranks else {}
    if name in BUFFERED:
        chosen["capacity"] = CAPACITY
    return algorithm.Params(**chosen), ranks


def _calls(name: str, stage: Columns, made: Any, most: int, calls: int, seconds: float) -> tuple[list[float], int, Any]:
    """ns per event of so many calls of about so many seconds each, their events, and the state in the end."""
    algorithm: Any = algorithms()[name]
    params, ranks = _settings(name, algorithm)

    def learn(state: Any, n: int, seed: int) -> tuple[Any, float]:
        X, y = made(n, stage.features.columns, ranks, seed)
        weight, scores = np.ones(n), np.empty((n, ranks) if ranks else n)
        began, dim = time.thread_time(), stage.dim
        rows = stage.learn(X)
        if stage.dim > dim:
            state = algorithm.grow(params, state, stage.dim)
        state = algorithm.learn(params, state, rows, y, weight, scores)
        return state, time.thread_time() - began

    state, _ = learn(algorithm.init(params, stage.dim, 0), WARM, 0)
    n = 16
    state, taken = learn(state, n, 1)
    while taken < seconds / 4 and n < most:  # the clock's steps and the call itself must not show
        n = min(most, 4 * n)
        state, taken = learn(state, n, 1)
    n = int(min(most, max(16, n * seconds / max(taken, 1e-9))))
    each = []
    for call in range(calls):
        state, taken = learn(state, n, 2 + call)
        each.append(1e9 * taken / n)
    return each, n, state


def measure(name: str, dim: int, calls: int, seconds: float) -> Cost:
    """Time dense rows."""
    each, n, _ = _calls(name, columns_of(Dense(dim)), dense, MOST // dim, calls, seconds)
    low, middle, high = np.percentile(each, [25, 50, 75])
    return Cost(name, dim, float(middle), float(low), float(high), n)


def measure_sparse(name: str, dim: int, calls: int, seconds: float) -> SparseCost:
    """Time sparse rows."""
    stage = columns_of(SparseColumns(dim))
    each, _, state = _calls(name, stage, hashed, 2**13, calls, seconds)
    return SparseCost(name, dim, float(np.median(each)), stage.used, sum(array.nbytes for array in state))


def _dense_table(costs: list[Cost], calls: int) -> Table:
    title = f"online algorithms: ns per event, median of {calls} calls, half the distance of their quartiles"
    table = Table("algorithm", box=box.SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left")
    for dim in DIMS:
        table.add_column(f"{dim} columns", justify="right")
    for name in dict.fromkeys(cost.algorithm for cost in costs):
        mine = [cost for cost in costs if cost.algorithm == name]
        spreads = [50 * (cost.high - cost.low) / cost.ns for cost in mine]
        table.add_row(name, *(f"{c.ns:,.0f} ±{s:.0f} %" for c, s in zip(mine, spreads, strict=True)))
    return table


def _sparse_table(costs: list[SparseCost]) -> Table:
    title = f"sparse rows of {NON_ZEROS} words hashed to so many columns: ns per event, median; memory of the state"
    table = Table("algorithm", box=box.SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left")
    for dim in SPARSE_DIMS:
        table.add_column(f"{dim:,}", justify="right")
        table.add_column("memory", justify="right")
    for name in dict.fromkeys(cost.algorithm for cost in costs):
        mine = [cost for cost in costs if cost.algorithm == name]
        table.add_row(name, *(said for cost in mine for said in (f"{cost.ns:,.0f}", f"{cost.memory / 1024:,.0f} KiB")))
    return table


def _target_table(found: list[targets.Measured]) -> Table:
    beside = f"C: {native.version()}, {' '.join(native.FLAGS)}" if found and found[0].c > 0 else "no C compiler here"
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title_justify="left")
    table.title = f"kernels with a target: ns per event, medians of turns; {beside}"
    for column in ("algorithm", "capacity", "columns", "steps", "target", "measured", "C", "ratio to C"):
        table.add_column(column, justify="left" if column == "algorithm" else "right")
    for one in found:
        figures = [f"{one.steps:.1f}", f"{one.target:,}" if one.target else "", f"{one.ns:,.0f}", f"{one.c:,.0f}"]
        shown = ["" if figure == "nan" else figure for figure in (*figures, f"{one.ratio:.2f}")]
        table.add_row(one.algorithm, str(one.capacity or ""), str(one.dim), *shown)
    return table


def main() -> None:
    """Measure, print tables, write JSON."""
    online = [name for name, one in algorithms().items() if hasattr(one, "learn") and one.TRAITS.dense]
    parser = argparse.ArgumentParser(
        "python -m benchmarks.kernels", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer and shorter calls: within a minute once compiled")
    parser.add_argument(
        "--algorithm", action="append", choices=online, help="only this online algorithm (may be repeated)"
    )
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/kernels.json"), help="written here")
    chosen = parser.parse_args()
    calls, seconds = (3, 0.02) if chosen.quick else (9, 0.2)
    turns, turn = (5, 0.002) if chosen.quick else (41, 0.004)
    names = chosen.algorithm or online
    sparse = [name for name in names if (t := algorithms()[name].TRAITS).sparse and t.max_dim >= max(SPARSE_DIMS)]
    console = Console(width=120)

    def each(pairs: Any, what: str) -> Any:
        return track(list(pairs), what, console=console, transient=True)

    costs = [measure(name, dim, calls, seconds) for name, dim in each(_pairs(names, DIMS), "dense rows")]
    hashes = [measure_sparse(name, dim, 3, seconds) for name, dim in each(_pairs(sparse, SPARSE_DIMS), "sparse rows")]
    aimed = _pairs([key for key in targets.TARGETS if key[0] in names], DIMS)
    with tempfile.TemporaryDirectory() as folder:
        library = native.compiled(Path(folder))
        found = [targets.against(*key, dim, library, turns, turn) for key, dim in each(aimed, "beside C")]
    console.print(_dense_table(costs, calls))
    if hashes:
        console.print(_sparse_table(hashes))
    if found:
        console.print(_target_table(found))
    machine = {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()}
    versions = {"python": platform.python_version(), "numpy": np.__version__, "numba": numba.__version__}
    if library is not None:
        versions |= {"c": native.version(), "c_flags": " ".join(native.FLAGS)}
    figures = {
        "quick": chosen.quick,
        "machine": machine | versions,
        "costs": [cost._asdict() for cost in costs],
        "sparse": [cost._asdict() for cost in hashes],
        "targets": [{k: None if v != v else v for k, v in one._asdict().items()} for one in found],
    }
    chosen.json.parent.mkdir(parents=True, exist_ok=True)
    chosen.json.write_text(json.dumps(figures, indent=1))
    console.print(f"Written: {chosen.json}", highlight=False, soft_wrap=True)


def _pairs(first: Any, second: Any) -> list[tuple[Any, Any]]:
    return [(one, other) for one in first for other in second]


if __name__ == "__main__":
    main()
