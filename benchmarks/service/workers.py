"""One, two and four processes behind one port, over one Redis: what more of them give, by what is asked of them.

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
LEARNERS = 16  # that are many
IN_FLIGHT = 32
_A_TURN = 10**8  # numbers that a turn has for its ids


def measure(run: Run) -> Case:
    """Requests per second, tails, and what a request costs."""
    drawn = stream(64)
    learners = run.few(LEARNERS, 2)
    spent: dict[str, list[float]] = {}
    with redis(run.cores) as url, client.Redis.from_url(url) as asked, ExitStack() as running:
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
                    sent = requests(f"{paths[0]}/predict", (event(x, JSON) for x in drawn.X), JSON)
                else:
                    each = [
                        requests(
                            f"{path}/update",
                            (update(drawn.X[[i]], drawn.y[[i]], JSON, ids=True) for i in range(len(drawn.y))),
                            JSON,
                        )
                        for path in paths
                    ]
                    sent = list(chain.from_iterable(zip(*each, strict=True)))
                name = _named(job, processes)
                spent[name] = []
                contestants[name] = partial(_turn, server, sent, turns, asked, spent[name])
        held = contest(contestants, run.rounds, run.seconds)
    costs = {name: 1e6 * median(found[1:] or found) for name, found in spent.items()}  # the first turn does not count
    rows = [{**row, "Redis us each": costs[row["what"]]} for row in held.rows()]
    title = f"processes behind one port over one Redis, one event a request, {IN_FLIGHT} in flight"
    return Case(title, rows, notes=[f"{os.cpu_count()} cores for all of it", *_implied(held, costs)])


def _implied(held: Contest, costs: Mapping[str, float]) -> Iterator[str]:
    """What a request costs, and what as many cores as there are processes would carry by that."""
    for job in JOBS:
        told = []
        for processes in PROCESSES:
            name = _named(job, processes)
            cost = held.median(name, lambda one: 1e6 * one.server / one.answered)
            assert cost is not None
            carried = min(1e6 * processes / cost, 1e6 / max(costs[name], 1e-3))
            told.append(f"{processes}: {cost:.0f} us, at most {carried:,.0f}/s")
        yield f"{job}, with a core for each process and one for Redis: {'; '.join(told)}"


def _named(job: str, processes: int) -> str:
    return f"{job}, {processes} process{'es' if processes > 1 else ''}"


def _database(url: str, number: int) -> str:
    """Another database of the same Redis: who shares one shares all learners."""
    return f"{url.rpartition('/')[0]}/{number}"


@contextmanager
def _served(folder: Path, store: str, processes: int) -> Iterator[Server]:
    """So many processes, each on whichever core is free."""
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
            said="rarestream is ready",
        )
        with process as running:
            os.sched_setaffinity(0, before)
            yield Server(port, running.pid)
    finally:
        os.sched_setaffinity(0, before)


def _turn(
    server: Server,
    sent: Sequence[bytes],
    turns: count[int],
    asked: client.Redis,
    spent: list[float],
    seconds: float,
) -> Sample:
    before = _redis_seconds(asked)
    found = sample(drive(server.port, numbered(sent, next(turns)), IN_FLIGHT, seconds, server.cpu))
    spent.append((_redis_seconds(asked) - before) / found.answered)
    return found


def _redis_seconds(asked: client.Redis) -> float:
    """Processor seconds that Redis has used."""
    told: Any = asked.info("cpu")
    return float(told["used_cpu_sys"]) + float(told["used_cpu_user"])
