"""Gain and cost of precision "float32": nanoseconds per event, bytes of the state and AUC, compared with float64.

    python -m benchmarks.precision [--quick] [--json FILE]

Each algorithm learns the same stream in both precisions, call by call in turn, so a busy machine slows both equally. A
first call compiles and fills buffers. The times are medians of the later calls, in processor time of the thread. Dense
rows are normal with correlated columns of variance 1, a twentieth of them positive. Sparse rows have 30 numbers in
random columns; the state has all columns from the start. Bytes are those of the state of the algorithm. The AUC is
prequential, over all events.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from learners import algorithms
from learners.algorithms.base import initial
from learners.numerics.arrays import Rows, Sparse, Vector
from learners.numerics.float32 import Precision

__all__ = ["Case", "Figures", "main", "measure"]

NON_ZEROS = 30


class Case(NamedTuple):
    """An algorithm on events of one size."""

    algorithm: str
    dim: int
    sparse: bool = False
    params: dict[str, Any] = {}  # noqa: RUF012 - never changed


class Figures(NamedTuple):
    """Measurements of a case in one precision."""

    precision: Precision
    ns: float  # per event
    bytes: int
    auc: float


CASES = (
    Case("cbr", 54, params={"capacity": 50}),
    Case("cbr", 500, params={"capacity": 50}),
    Case("loam-ilsc", 54),
    Case("loam-ilsc", 500),
    Case("loam-ilsc", 2000),
    Case("loam-ada", 54),
    Case("fofo", 54),
    Case("loam-ada", 10**6, sparse=True),
    Case("fofo", 10**6, sparse=True),
)


def rows_of(case: Case, n: int, random: np.random.Generator) -> tuple[Rows, Vector]:
    """n events of a case, and their labels."""
    y = np.where(random.random(n) < 0.05, 1.0, -1.0)
    if not case.sparse:
        mixed = np.random.default_rng(1).normal(size=(case.dim, case.dim)) / np.sqrt(case.dim)
        X = random.normal(size=(n, case.dim)) @ (np.eye(case.dim) + 0.5 * mixed)
        X[:, : case.dim // 2] += 2.0 / np.sqrt(case.dim) * (y[:, None] > 0)
        return X, y
    # a positive draws half of its columns from the first hundredth of them
    numbers = random.random((n, NON_ZEROS))
    numbers[:, ::2] *= np.where(y > 0, 0.01, 1.0)[:, None]
    each = [np.unique((row * case.dim).astype(np.int64)) for row in numbers]
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in each])]).astype(np.int64)
    return Sparse(np.ones(indptr[-1]) / np.sqrt(NON_ZEROS), np.concatenate(each), indptr), y


def measure(case: Case, events: int, calls: int) -> list[Figures]:
    """Learn `calls` times `events` events in both precisions."""
    algorithm: Any = algorithms()[case.algorithm]
    params = algorithm.Params(**case.params)
    precisions = get_args(Precision)
    states = [initial(algorithm, params, case.dim, 0, precision) for precision in precisions]
    nanoseconds: list[list[float]] = [[] for _ in precisions]
    scores_of: list[list[Vector]] = [[] for _ in precisions]
    labels = []
    random = np.random.default_rng(0)
    for _ in range(1 + calls):
        rows, y = rows_of(case, events, random)
        labels.append(y)
        for k in range(len(precisions)):
            scores = np.empty(events)
            began = time.thread_time()
            states[k] = algorithm.learn(params, states[k], rows, y, np.ones(events), scores)
            nanoseconds[k].append(1e9 * (time.thread_time() - began) / events)
            scores_of[k].append(scores)
    truth = np.concatenate(labels)
    return [
        Figures(
            precision,
            float(np.median(nanoseconds[k][1:])),
            sum(array.nbytes for array in states[k]),
            _auc(np.concatenate(scores_of[k]), truth),
        )
        for k, precision in enumerate(precisions)
    ]


def _auc(scores: Vector, y: Vector) -> float:
    """By ranks: events of equal scores are few here, and count as they come."""
    ranks = np.argsort(np.argsort(scores, kind="stable"), kind="stable")
    positive = y > 0
    first = int(positive.sum())
    return float((ranks[positive].sum() - first * (first - 1) / 2) / (first * (len(y) - first)))


def main() -> None:
    """Measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(
        "python -m benchmarks.precision", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer events")
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/precision.json"), help="written here")
    options = parser.parse_args()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title="float64 | float32", title_justify="left")
    for column in ("algorithm", "columns", "ns per event", "", "bytes", "", "AUC", ""):
        table.add_column(column, justify="left" if column == "algorithm" else "right")
    results = []
    for case in CASES:
        events = 50 if case.sparse else max(50, min(2_000, 100_000 // case.dim))
        double, single = measure(case, events, 3 if options.quick else 15)
        pair = (double, single)
        table.add_row(
            case.algorithm + "".join(f" {name}={value}" for name, value in case.params.items()),
            f"{case.dim:,}" + (" sparse" if case.sparse else ""),
            *(f"{item.ns:,.0f}" for item in pair),
            *(f"{item.bytes:,}" for item in pair),
            *(f"{item.auc:.4f}" for item in pair),
        )
        results += [{**case._asdict(), **item._asdict()} for item in pair]
    console = Console(width=120)
    console.print(table)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(results, indent=1))
    console.print(f"Written: {options.json}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
