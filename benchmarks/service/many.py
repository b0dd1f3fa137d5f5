"""10,000 learners of 50 columns in one process: its memory, and how long one untouched the longest takes to answer.

Each is created over HTTP on an SQLite store and learns a few events. Then the learners that were created first, which
nothing has asked for since, are asked for a prediction each, one after the other: the first request to each counts.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.service.bodies import JSON, event, requests, stream, update
from benchmarks.service.http_load import Traffic, drive
from benchmarks.service.rounds import Case, Run, Verdict
from benchmarks.service.servers import rarestream, sqlite

__all__ = ["measure"]

LEARNERS, QUICK = 10_000, 20
DIM = 50
TAUGHT = 20  # events of each learner
TIMED_LEARNERS = 100  # learners whose first request is timed
CONNECTIONS = 8
GIBIBYTE = 2**30
MEMORY = 1.0  # GiB of the process
BACK = 20.0  # milliseconds until a learner that was swapped out answers
_CONFIG: dict[str, Any] = {"algorithm": "loam-ada", "features": {"kind": "dense", "dim": DIM}}


def measure(run: Run) -> Case:
    """Memory and first requests."""
    n = run.few(LEARNERS, QUICK)
    events = stream(TAUGHT + 1)
    X = events.X[:, :DIM]
    taught = update(X[:TAUGHT], events.y[:TAUGHT], JSON, ids=False)
    paths = [f"/v1/learners/{number}" for number in range(n)]
    with rarestream(run.cores, run.folder, sqlite(run.folder), max_learners=n) as server:
        empty = server.resident()
        created = _each(server.port, [requests(path, [_CONFIG], JSON, "PUT")[0] for path in paths], CONNECTIONS)
        learnt = _each(server.port, [requests(f"{path}/update", [taught], JSON)[0] for path in paths], CONNECTIONS)
        full = server.resident()
        oldest = paths[: run.few(TIMED_LEARNERS, QUICK // 2)]
        messages = [requests(f"{path}/predict", [event(X[TAUGHT], JSON)], JSON)[0] for path in oldest]
        first, second = _each(server.port, messages, 1), _each(server.port, messages, 1)
    rows = [
        _row("create", created),
        _row(f"learn {TAUGHT} events", learnt),
        _row("predict, untouched the longest", first),
        _row("predict, once more", second),
    ]
    verdicts = [
        Verdict(f"GiB of the process with {n:,} learners", full / GIBIBYTE, MEMORY, "at most"),
        Verdict(
            "ms of the first request to a cold learner, the slowest", float(first.latencies.max()), BACK, "at most"
        ),
    ]
    each = (full - empty) / n
    notes = [
        f"memory: {empty / 2**20:,.0f} MiB without learners, {full / 2**20:,.0f} MiB with {n:,}: {each:,.0f} B each"
    ]
    return Case(f"{n:,} learners of {DIM} columns (loam-ada) in one process", rows, verdicts, notes)


def _each(port: int, messages: list[bytes], connections: int) -> Traffic:
    return drive(port, iter(messages), connections)


def _row(what: str, traffic: Traffic) -> dict[str, Any]:
    p50, p99, most = np.percentile(traffic.latencies, [50, 99, 100]).tolist()
    rate = len(traffic.latencies) / traffic.seconds
    return {
        "what": what,
        "requests": len(traffic.latencies),
        "per second": rate,
        "p50 ms": p50,
        "p99 ms": p99,
        "max ms": most,
    }
