"""Cost of the live metrics: microseconds per labelled event in a batch, and milliseconds per poll.

    python -m benchmarks.figures [--quick] [--json FILE]

Windows of 10,000 and 100,000 events with 1 % and 50 % positives are filled. Then batches of 1,000 events go through all
metrics of a learner: window, sketch since the start, stream statistics, history and drift detectors. A poll makes the
document of `/metrics` after one more event, so nothing is cached from the poll before. The numbers are medians of
several calls, in processor time. For comparison, the same run times a poll that sorts the window: AUC and average
precision of scikit-learn for the same scores.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table
from sklearn.metrics import average_precision_score, roc_auc_score

from learners.metrics.binary import BinaryMetrics
from learners.numerics.arrays import Vector, sigmoid

__all__ = ["Cost", "main", "measure"]

WINDOWS = (10_000, 100_000)
SHARES = (0.01, 0.5)
BATCH = 1000


class Cost(NamedTuple):
    """What the figures of one window cost."""

    window: int
    share: float  # of positives
    event: float  # microseconds per labelled event
    poll: float  # milliseconds
    sorted_poll: float  # milliseconds of AUC and average precision by sorting


def feed(metrics: BinaryMetrics, n: int, share: float, random: np.random.Generator) -> tuple[float, Vector, Vector]:
    """Learn n events; return the seconds, scores and labels."""
    y = np.where(random.random(n) < share, 1.0, -1.0)
    scores = random.normal(size=n) + 0.8 * y
    probabilities = np.array([sigmoid(score) for score in scores])
    decisions = (probabilities >= 0.5).astype(np.int64)
    clocks = metrics.tick(np.full(n, np.nan))
    nan, no = np.full(n, np.nan), np.zeros(n, dtype=np.bool_)
    thresholds, hashes = np.full(n, 0.5), np.zeros(n, dtype=np.uint64)
    seconds = timed(lambda: metrics.learn(scores, probabilities, thresholds, y, decisions, clocks, nan, hashes, no))
    return seconds, scores, y


def timed(call: Callable[[], Any]) -> float:
    """Seconds of processor time."""
    began = time.process_time()
    call()
    return time.process_time() - began


def measure(window: int, share: float, batches: int, polls: int) -> Cost:
    """Fill a window, then time batches and polls."""
    random = np.random.default_rng(0)
    metrics = BinaryMetrics(window)
    _, scores, y = feed(metrics, window, share, random)
    metrics.view().as_json()
    seconds = [feed(metrics, BATCH, share, random)[0] for _ in range(batches)]
    waits = []
    for _ in range(polls):
        feed(metrics, 1, share, random)
        waits.append(timed(lambda: metrics.view().as_json()))
    by_sorting = [
        timed(lambda: (roc_auc_score(y, scores), average_precision_score(y, scores))) for _ in range(max(3, polls // 5))
    ]
    return Cost(window, share, median(seconds) / BATCH * 1e6, median(waits) * 1e3, median(by_sorting) * 1e3)


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small window and few calls")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    options = parser.parse_args(arguments)
    windows, batches, polls = ((1000,), 5, 5) if options.quick else (WINDOWS, 100, 50)
    costs = [measure(window, share, batches, polls) for window in windows for share in SHARES]
    table = Table(title="cost of the live metrics", box=box.SIMPLE_HEAD)
    for name in ("window", "positives", "an event", "a poll", "AUC and AP by sorting"):
        table.add_column(name, justify="right")
    for cost in costs:
        times = f"{cost.event:.2f} us", f"{cost.poll:.3f} ms", f"{cost.sorted_poll:.1f} ms"
        table.add_row(f"{cost.window:,}", f"{cost.share:.0%}", *times)
    Console().print(table)
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps([cost._asdict() for cost in costs], indent=1))


if __name__ == "__main__":
    main()
