"""Does reading wait for learning? `/predict` while a full-covariance CBR of 300 columns learns flat out.

A process of its own posts batches of 500 events to the learner without a pause, while the same learner is asked for one
prediction after the other; beside it, in the same run, the same predictions while nothing learns.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from typing import Any

import numpy as np

from benchmarks.service.bodies import JSON, event, requests, update
from benchmarks.service.http_load import drive
from benchmarks.service.processors import pinned
from benchmarks.service.rounds import Case, Run, Sample, Verdict, contest, sample
from benchmarks.service.servers import rarestream, sqlite

__all__ = ["measure"]

DIM, QUICK = 300, 10
BATCH = 500
TAIL = 10.0  # milliseconds: p99 of a prediction meanwhile


def measure(run: Run) -> Case:
    """Measure the latency of a prediction."""
    dim = run.few(DIM, QUICK)
    config: dict[str, Any] = {
        "algorithm": "cbr",
        "params": {"capacity": 50},
        "features": {"kind": "dense", "dim": dim},
    }
    with rarestream(run.cores, run.folder, sqlite(run.folder)) as server:
        path = server.blank("wide", config)
        taught = requests(f"{path}/update", _batches(dim, 8), JSON)
        drive(server.port, iter(taught[:2]), 1)  # compile, and fill the buffers
        messages = requests(f"{path}/predict", [event(np.linspace(-1, 1, dim, dtype=np.float32), JSON)], JSON)

        def idle(seconds: float) -> Sample:
            return sample(drive(server.port, cycle(messages), 1, seconds, server.cpu))

        def busy(seconds: float) -> Sample:
            with _learning(server.port, taught, run.cores.client):
                return idle(seconds)

        result = contest({"nothing learns": idle, "cbr learns flat out": busy}, run.rounds, run.seconds)
    p99 = result.median("cbr learns flat out", lambda item: item.p99)
    verdicts = [Verdict("p99 of a prediction while cbr learns, ms", p99, TAIL, "at most")]
    return Case(f"/predict while a cbr of {dim} columns learns batches of {BATCH}", result.rows(), verdicts)


def _batches(dim: int, count: int) -> Iterator[dict[str, Any]]:
    """Yield update requests of a noisy stream with 5 % positives, so hard that most pairs move the model."""
    random = np.random.default_rng(1)
    for _ in range(count):
        y = (random.random(BATCH) < 0.05).astype(np.int8)
        X = random.normal(size=(BATCH, dim)).astype(np.float32)
        X[:, 0] += 0.3 * y
        yield update(X, y, JSON, ids=False)


@contextmanager
def _learning(port: int, taught: list[bytes], core: int) -> Iterator[None]:
    """Run a process that posts batches, one after the other, during the block."""
    spawning = multiprocessing.get_context("spawn")
    ready = spawning.Event()
    with pinned(core):
        process = spawning.Process(target=_learn, args=(port, taught, ready), daemon=True)
        process.start()
    try:
        if not ready.wait(60):
            raise RuntimeError("the process that posts batches did not start")
        yield
    finally:
        process.terminate()
        process.join()


def _learn(port: int, taught: list[bytes], ready: Any) -> None:
    drive(port, iter(taught[:1]), 1)
    ready.set()
    drive(port, cycle(taught), 1)
