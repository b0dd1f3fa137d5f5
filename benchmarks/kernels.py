"""What an event costs: nanoseconds per event of every online algorithm of the catalogue at 10, 50 and 300 columns.

    python -m benchmarks.kernels [--quick] [--algorithm cbr] [--json FILE]

Each algorithm learns dense standard normal rows of which a tenth is positive and hard to tell apart, so that most
events move the model; buffers are those of the papers, 50 examples per class. The model has met both classes before the
clock starts: compiling and filling buffers do not count. The figure is the median of several calls, each long enough
for the clock; the spread is that of their quartiles. Batch algorithms are not among these: they are fitted now and
then, and learn nothing from a single event.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Table

from learners import algorithms
from learners.arrays import Matrix, Vector

__all__ = ["Cost", "main", "measure"]

DIMS = (10, 50, 300)
CAPACITY = 50  # stored examples per class, where an algorithm is one that the papers give buffers of 50
BUFFERED = ("cbr", "cbr-diag", "oam")
RANKS = 5
WARM = 600  # events before the clock starts: both buffers are full then
MOST = 2**24  # numbers in the rows of one call: 128 MiB


class Cost(NamedTuple):
    """What one algorithm costs at one width."""

    algorithm: str
    dim: int
    ns: float  # per event, median of the calls
    low: float  # their lower
    high: float  # and upper quartile
    events: int  # of one call


def stream(n: int, dim: int, ranks: int | None, seed: int) -> tuple[Matrix, Vector]:
    """Rows (n, dim), and labels of which a tenth is +1, or ranks that come equally often."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, dim))
    if ranks is not None:
        return X, random.integers(1, ranks + 1, n).astype(np.float64)
    y = np.where(random.random(n) < 0.1, 1.0, -1.0)
    X[:, 0] += 0.3 * y
    return X, y


def measure(name: str, dim: int, calls: int, seconds: float) -> Cost:
    """Time `calls` calls of about so many seconds each."""
    algorithm: Any = algorithms()[name]
    ranks = RANKS if algorithm.TRAITS.ordinal else None
    chosen: dict[str, Any] = {"ranks": ranks} if ranks else {}
    if name in BUFFERED:
        chosen["capacity"] = CAPACITY
    params = algorithm.Params(**chosen)

    def learn(state: Any, n: int, seed: int) -> tuple[Any, float]:
        X, y = stream(n, dim, ranks, seed)
        weight, scores = np.ones(n), np.empty((n, ranks) if ranks else n)
        began = time.perf_counter()
        state = algorithm.learn(params, state, X, y, weight, scores)
        return state, time.perf_counter() - began

    state, _ = learn(algorithm.init(params, dim, 0), WARM, 0)
    n = 16
    state, taken = learn(state, n, 1)
    most = MOST // dim
    while taken < seconds / 4 and n < most:  # the clock's steps and the call itself must not show
        n = min(most, 4 * n)
        state, taken = learn(state, n, 1)
    n = int(min(most, max(n, n * seconds / max(taken, 1e-9))))
    each = []
    for call in range(calls):
        state, taken = learn(state, n, 2 + call)
        each.append(1e9 * taken / n)
    low, middle, high = np.percentile(each, [25, 50, 75])
    return Cost(name, dim, float(middle), float(low), float(high), n)


def main() -> None:
    """Measure, print a table, write JSON."""
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
    names = chosen.algorithm or online
    console = Console()
    pairs = [(name, dim) for name in names for dim in DIMS]
    costs = [measure(name, dim, calls, seconds) for name, dim in track(pairs, "measuring", console=console)]
    table = Table("algorithm", box=box.SIMPLE_HEAD, pad_edge=False)
    for dim in DIMS:
        table.add_column(f"{dim} columns", justify="right")
    for name in names:
        mine = [cost for cost in costs if cost.algorithm == name]
        spreads = [50 * (cost.high - cost.low) / cost.ns for cost in mine]
        table.add_row(name, *(f"{c.ns:,.0f} ±{s:.0f} %" for c, s in zip(mine, spreads, strict=True)))
    console.print(
        f"online algorithms: ns per event, median of {calls} calls, half the distance of their quartiles",
        highlight=False,
    )
    console.print(table)
    machine = {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()}
    versions = {"python": platform.python_version(), "numpy": np.__version__, "numba": numba.__version__}
    chosen.json.parent.mkdir(parents=True, exist_ok=True)
    figures = {"quick": chosen.quick, "machine": machine | versions, "costs": [cost._asdict() for cost in costs]}
    chosen.json.write_text(json.dumps(figures, indent=1))
    console.print(f"Written: {chosen.json}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
