"""One, two and four processes behind one port over one Redis: the gain of more processes, by kind of request.

The processes may run on any core, as the sender and Redis (append-only file, fsync every second) do: on a machine of
few cores they take each other's. So beside what was reached stands what an answer costs in processor time, of all the
processes and of Redis, which tells what as many cores would carry. Each process learns every event of every learner.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import chain, count
from pathlib import Path
from statistics import median
from typing import Any

import redis as client

from benchmarks.service.bodies import FIRST, JSON, event, numbered, requests, stream, update
from benchmarks.service.http_load import drive
from benchmarks.service.rounds import Case, Contest, Measure, Run, Sample, contest, sample
from benchmarks.service.servers import Server, redis
from benchmarks.serving import free_port, started

__all__ = ["measure"]

PROCESSES = (1, 2, 4)
JOBS = ("update of one learner", "update of many learners", "predict")
LEARNERS = 16
IN_FLIGHT = 32
_A_TURN = 10**8  # numbers for the ids of a turn


def measure(run: Run) -> Case:
    """Measure requests per second, tail latencies, and the cost of a request."""
    events = stream(64)
    learners = run.few(LEARNERS, 2)
    spent: dict[str, list[float]] = {}
    with redis(run.cores) as url, client.Redis.from_url(url) as connection, ExitStack() as running:
        turns = count(FIRST, _A_TURN)
        contestants: dict[str, Measure] = {}
        servers = {
            processes: running.enter_context(_served(run.folder, _database(url, processes), processes))
            for processes in PROCESSES
        }
        for job in JOBS:
            for processes, server in servers.items():
                named = job.replace(" ", "-")
                paths = [server.taught(f"{named}-{n}") for n in range(learners if "many" in job else 1)]
                if job == "predict":
                    messages = requests(f"{paths[0]}/predict", (event(x, JSON) for x in events.X), JSON)
                else:
                    each = [
                        requests(
                            f"{path}/update",
                            (update(events.X[[i]], events.y[[i]], JSON, ids=True) for i in range(len(events.y))),
                            JSON,
                        )
                        for path in paths
                    ]
                    messages = list(chain.from_iterable(zip(*each, strict=True)))
                name = _named(job, processes)
                spent[name] = []
                contestants[name] = partial(_turn, server, messages, turns, connection, spent[name])
        result = contest(contestants, run.rounds, run.seconds)
    costs = {
        name: 1e6 * median(costs_of_job[1:] or costs_of_job) for name, costs_of_job in spent.items()
    }  # the first turn does not count
    rows = [{**row, "Redis us each": costs[row["what"]]} for row in result.rows()]
    title = f"processes behind one port over one Redis, one event a request, {IN_FLIGHT} in flight"
    return Case(title, rows, notes=[f"{os.cpu_count()} cores for all of it", *_implied(result, costs)])


def _implied(result: Contest, costs: Mapping[str, float]) -> Iterator[str]:
    """Describe the cost of a request, and the rate that one core per process would carry."""
    for job in JOBS:
        parts = []
        for processes in PROCESSES:
            name = _named(job, processes)
            cost = result.median(name, lambda item: 1e6 * item.server / item.answered)
            assert cost is not None
            carried = min(1e6 * processes / cost, 1e6 / max(costs[name], 1e-3))
            parts.append(f"{processes}: {cost:.0f} us, at most {carried:,.0f}/s")
        yield f"{job}, with a core for each process and one for Redis: {'; '.join(parts)}"


def _named(job: str, processes: int) -> str:
    return f"{job}, {processes} process{'es' if processes > 1 else ''}"


def _database(url: str, number: int) -> str:
    """Return another database of the same Redis; nodes with the same database share all learners."""
    return f"{url.rpartition('/')[0]}/{number}"


@contextmanager
def _served(folder: Path, store: str, processes: int) -> Iterator[Server]:
    """Run `processes` workers on any cores."""
    port = free_port()
    command = [sys.executable, "-m", "service", "serve", "--store", store, "--port", str(port)]
    log = folder / f"server-{port}.log"
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, range(os.cpu_count() or 1))
    try:
        process = started(
            [*command, "--workers", str(processes)],
            f"http://127.0.0.1:{port}/v1/health/ready",
            log,
            {"RARESTREAM_LOG_REQUESTS": "errors"},
            log_line="rarestream is ready",
        )
        with process as running:
            os.sched_setaffinity(0, before)
            yield Server(port, running.pid)
    finally:
        os.sched_setaffinity(0, before)


def _turn(
    server: Server,
    messages: Sequence[bytes],
    turns: count[int],
    connection: client.Redis,
    spent: list[float],
    seconds: float,
) -> Sample:
    before = _redis_seconds(connection)
    result = sample(drive(server.port, numbered(messages, next(turns)), IN_FLIGHT, seconds, server.cpu))
    spent.append((_redis_seconds(connection) - before) / result.answered)
    return result


def _redis_seconds(connection: client.Redis) -> float:
    """Return the processor seconds of Redis."""
    parts: Any = connection.info("cpu")
    return float(parts["used_cpu_sys"]) + float(parts["used_cpu_user"])
