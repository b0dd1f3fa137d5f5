"""Cost of remembering the fields of named events: its share of the time to learn an event.

    python -m benchmarks.fields [--quick] [--json FILE]

Two learners of each algorithm learn the same batches in turn. One remembers the fields. The other gets no fields, so it
counts nothing and reads each value as it was sent. The time has everything from the events to the learnt batch:
encoding, the names of the fields, learning. The numbers are medians over the batches, in processor time. The share is
the median over the pairs, because other work of the machine slows both. Small batches show what each batch costs.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console

from learners import Config, Learner
from learners.inputs import read_batch

__all__ = ["Cost", "main", "measure"]

ALGORITHMS = ("cbr-diag", "fofo", "auto")
SIZES = {1: 1500, 10: 500, 200: 60, 1000: 60}  # events of a batch, and number of batches
QUICK = {200: 40}
TARGET = 0.03  # of the time to learn an event


class Cost(NamedTuple):
    """Microseconds per event with and without the fields, and the share that they cost."""

    algorithm: str
    size: int  # events of a batch
    remembered: float
    without: float
    share: float


def events(count: int, random: np.random.Generator) -> tuple[list[dict[str, Any]], list[int]]:
    """Return card payments of ten fields, with their labels."""
    made = [
        {
            "amount": float(random.lognormal(3, 1)),
            "balance": float(random.normal(500, 200)),
            "age": int(random.integers(18, 90)),
            "distance": float(random.exponential(20)),
            "attempts": int(random.integers(0, 4)),
            "country": ("DE", "FR", "IT", "ES")[int(random.integers(4))],
            "merchant": f"m{int(random.integers(300))}",
            "device": f"d{int(random.integers(50))}",
            "new_device": bool(random.random() < 0.1),
            "channel": ("web", "app", "shop")[int(random.integers(3))],
        }
        for _ in range(count)
    ]
    return made, [int(random.random() < 0.05) for _ in range(count)]


def measure(algorithm: str, rounds: int, size: int) -> Cost:
    """Learn `rounds` batches of `size` events by both learners in turn."""
    random = np.random.default_rng(3)
    config = Config.of({"algorithm": algorithm, "features": {"kind": "named"}, "seed": 3})
    learners = Learner(config), Learner(config)
    seconds: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds):
        X, y = events(size, random)
        for k in (0, 1) if number % 2 else (1, 0):
            began = time.process_time()
            batch = read_batch(config, X, y)
            spent = time.process_time() - began
            if k:
                began = time.process_time()
                config.features.field_names(X)
                spent -= time.process_time() - began
                batch = replace(batch, fields=())
            began = time.process_time()
            learners[k].apply(batch)
            seconds[k].append(spent + time.process_time() - began)
    pairs = list(zip(*seconds, strict=True))[rounds // 5 :]  # the first ones compile
    remembered, without = (median(times) / size * 1e6 for times in zip(*pairs, strict=True))
    return Cost(algorithm, size, remembered, without, median(1 - pair[1] / pair[0] for pair in pairs))


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few batches of one algorithm")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    options = parser.parse_args(arguments)
    console = Console()
    costs = []
    for algorithm in ALGORITHMS[:1] if options.quick else ALGORITHMS:
        for size, rounds in (QUICK if options.quick else SIZES).items():
            cost = measure(algorithm, rounds, size)
            costs.append(cost)
            console.print(
                f"{algorithm}, batches of {size}: {cost.remembered:.2f} us per event with fields, "
                f"{cost.without:.2f} us without: {cost.share:.1%} (target: at most {TARGET:.0%})",
                soft_wrap=True,
            )
    if options.json:
        options.json.write_text(json.dumps([cost._asdict() for cost in costs], indent=1) + "\n")


if __name__ == "__main__":
    main()
