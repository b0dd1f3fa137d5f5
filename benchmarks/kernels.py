"""Cost of an event: nanoseconds per event of every online algorithm.

    python -m benchmarks.kernels [--quick] [--algorithm cbr] [--json FILE]

There are three tables. The first has each algorithm at 10, 54 and 300 dense columns, with standard normal rows. A tenth
of them is positive and hard to separate, so most events move the model. Buffers have 50 examples per class, as in the
papers. The model has seen both classes before the clock starts, so compiling and filling buffers do not count. The
number is the median of several calls in processor time of the thread, each long enough for the clock; the spread is
half the distance of the quartiles. Batch algorithms are excluded: they learn nothing from a single event.

The second has each algorithm for sparse rows: 30 words of a Zipf-like vocabulary of 4,096, hashed to 2^12 and to 2^22
columns. The time includes the renumbering of columns. The table shows the memory of the final state; 2^12 columns take
less because several words share one. The third compares the kernels that have a target with it, and with C if there is
a compiler: see `targets.py`. The fourth has what an event of `auto` costs, at 54 dense columns and 30 words, beside the
sum of its members: see `members.py`.
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

from benchmarks import members, native, targets
from learners import algorithms
from learners.features.column_map import ColumnMap, columns_of
from learners.features.feature_kinds import Dense, SparseColumns
from learners.numerics.arrays import Rows, Sparse, Vector

__all__ = ["Cost", "SparseCost", "main", "measure", "measure_sparse"]

DIMS = (10, 54, 300)
SPARSE_DIMS = (2**12, 2**22)
CAPACITY = 50  # stored examples per class for algorithms with buffers of 50 in the papers
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
    """Cost of one algorithm with sparse rows of `dim` columns."""

    algorithm: str
    dim: int
    ns: float  # per event, median of the calls
    columns: int  # used by the learner
    memory: int  # bytes of its state in the end


def labels(n: int, ranks: int | None, random: np.random.Generator) -> Vector:
    """Draw labels, a tenth of them +1, or equally frequent ranks."""
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
    """Return the parameters for the measurement, and the number of ranks."""
    ranks = RANKS if algorithm.TRAITS.ordinal else None
    params: dict[str, Any] = {"ranks": ranks} if ranks else {}
    if name in BUFFERED:
        params["capacity"] = CAPACITY
    return algorithm.Params(**params), ranks


def _calls(
    name: str, stage: ColumnMap, rows_of: Any, most: int, calls: int, seconds: float
) -> tuple[list[float], int, Any]:
    """Time `calls` calls of about `seconds` each; return ns per event of each, events per call, and the final state."""
    algorithm: Any = algorithms()[name]
    params, ranks = _settings(name, algorithm)

    def learn(state: Any, n: int, seed: int) -> tuple[Any, float]:
        X, y = rows_of(n, stage.features.columns, ranks, seed)
        weight, scores = np.ones(n), np.empty((n, ranks) if ranks else n)
        began, dim = time.thread_time(), stage.dim
        rows = stage.learn(X)
        if stage.dim > dim:
            state = algorithm.grow(params, state, stage.dim)
        state = algorithm.learn(params, state, rows, y, weight, scores)
        return state, time.thread_time() - began

    state, _ = learn(algorithm.init(params, stage.dim, 0), WARM, 0)
    n = 16
    state, spent = learn(state, n, 1)
    while spent < seconds / 4 and n < most:  # neither the resolution of the clock nor the call itself may matter
        n = min(most, 4 * n)
        state, spent = learn(state, n, 1)
    n = int(min(most, max(16, n * seconds / max(spent, 1e-9))))
    each = []
    for call in range(calls):
        state, spent = learn(state, n, 2 + call)
        each.append(1e9 * spent / n)
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
        table.add_row(name, *(cell for cost in mine for cell in (f"{cost.ns:,.0f}", f"{cost.memory / 1024:,.0f} KiB")))
    return table


def _target_table(measurements: list[targets.Measured]) -> Table:
    beside = (
        f"C: {native.version()}, {' '.join(native.FLAGS)}"
        if measurements and measurements[0].c > 0
        else "no C compiler here"
    )
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title_justify="left")
    table.title = f"kernels with a target: ns per event, medians of turns; {beside}"
    for column in ("algorithm", "capacity", "columns", "steps", "target", "measured", "C", "ratio to C"):
        table.add_column(column, justify="left" if column == "algorithm" else "right")
    for item in measurements:
        figures = [f"{item.steps:.1f}", f"{item.target:,}" if item.target else "", f"{item.ns:,.0f}", f"{item.c:,.0f}"]
        cells = ["" if figure == "nan" else figure for figure in (*figures, f"{item.ratio:.2f}")]
        table.add_row(item.algorithm, str(item.capacity or ""), str(item.dim), *cells)
    return table


def _members_table(costs: list[members.MembersCost]) -> Table:
    title = f"auto: ns per event; the learner at most {members.MOST} times the sum of its members"
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left")
    for column in ("rows", "each member", "their sum", "auto", "the learner", "ratio"):
        table.add_column(column, justify="left" if column in ("rows", "each member") else "right")
    for item in costs:
        each = ", ".join(f"{name} {cost:,.0f}" for name, cost in item.members.items())
        figures = [f"{figure:,.0f}" for figure in (sum(item.members.values()), item.algorithm, item.learner)]
        table.add_row(item.features, each, *figures, f"{item.ratio:.2f}")
    return table


def main() -> None:
    """Measure, print tables, write JSON."""
    online = [
        name for name, algorithm in algorithms().items() if hasattr(algorithm, "learn") and algorithm.TRAITS.dense
    ]
    parser = argparse.ArgumentParser(
        "python -m benchmarks.kernels", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer and shorter calls: within a minute once compiled")
    parser.add_argument(
        "--algorithm", action="append", choices=online, help="only this online algorithm (may be repeated)"
    )
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/kernels.json"), help="written here")
    params = parser.parse_args()
    calls, seconds = (3, 0.02) if params.quick else (9, 0.2)
    turns, turn = (5, 0.002) if params.quick else (41, 0.004)
    names = params.algorithm or online
    sparse = [name for name in names if (t := algorithms()[name].TRAITS).sparse and t.max_dim >= max(SPARSE_DIMS)]
    console = Console(width=120)

    def each(pairs: Any, what: str) -> Any:
        return track(list(pairs), what, console=console, transient=True)

    costs = [measure(name, dim, calls, seconds) for name, dim in each(_pairs(names, DIMS), "dense rows")]
    hashes = [measure_sparse(name, dim, 3, seconds) for name, dim in each(_pairs(sparse, SPARSE_DIMS), "sparse rows")]
    aimed = _pairs([key for key in targets.TARGETS if key[0] in names], DIMS)
    with tempfile.TemporaryDirectory() as folder:
        library = native.compiled(Path(folder))
        measurements = [targets.against(*key, dim, library, turns, turn) for key, dim in each(aimed, "beside C")]
    ensembles = []
    if "auto" in names:
        n = 500 if params.quick else 5000
        shapes = [("dense", dense(n, 54, None, 1)), ("sparse", hashed(n, WORDS, None, 1))]
        ensembles = [members.measure(kind, *rows, calls) for kind, rows in each(shapes, "members of auto")]
    console.print(_dense_table(costs, calls))
    if hashes:
        console.print(_sparse_table(hashes))
    if measurements:
        console.print(_target_table(measurements))
    if ensembles:
        console.print(_members_table(ensembles))
    machine = {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()}
    versions = {"python": platform.python_version(), "numpy": np.__version__, "numba": numba.__version__}
    if library is not None:
        versions |= {"c": native.version(), "c_flags": " ".join(native.FLAGS)}
    figures = {
        "quick": params.quick,
        "machine": machine | versions,
        "costs": [cost._asdict() for cost in costs],
        "sparse": [cost._asdict() for cost in hashes],
        "members": [item._asdict() for item in ensembles],
        "targets": [{k: None if v != v else v for k, v in item._asdict().items()} for item in measurements],
    }
    params.json.parent.mkdir(parents=True, exist_ok=True)
    params.json.write_text(json.dumps(figures, indent=1))
    console.print(f"Written: {params.json}", highlight=False, soft_wrap=True)


def _pairs(first: Any, second: Any) -> list[tuple[Any, Any]]:
    return [(item, other) for item in first for other in second]


if __name__ == "__main__":
    main()
