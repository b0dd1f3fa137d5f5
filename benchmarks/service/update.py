"""One event through `/update`, durable, by the number of requests in flight: the gain of group commit.

Each event has a new id. The same server without a log (its store is memory) shows the cost of durability.
"""

from __future__ import annotations

from functools import partial
from itertools import count

from benchmarks.service.bodies import FIRST, JSON, numbered, requests, stream, update
from benchmarks.service.http_load import drive
from benchmarks.service.rounds import Case, Measure, Run, Sample, Verdict, contest, sample
from benchmarks.service.servers import STORES, Server, fsync_note, rarestream, store_urls

__all__ = ["measure"]

IN_FLIGHT = (1, 16, 64, 256)
TARGETS = {64: 0.5, 256: 0.8}  # by requests in flight: events/s, as a share of the server without a log
_A_TURN = 10**8  # numbers for the ids of a turn


def measure(run: Run) -> Case:
    """Measure events per second and tail latencies."""
    events = stream(64)
    with (
        store_urls(run.cores, run.folder) as urls,
        rarestream(run.cores, run.folder, urls["memory"]) as memory,
        rarestream(run.cores, run.folder, urls["sqlite"]) as sqlite,
        rarestream(run.cores, run.folder, urls["redis"]) as redis,
    ):
        turns = count(FIRST, _A_TURN)
        contestants: dict[str, Measure] = {}
        for in_flight in IN_FLIGHT:
            for store, server in zip(STORES, (memory, sqlite, redis), strict=True):
                path = server.taught(f"in-flight-{in_flight}")
                bodies = (update(events.X[[i]], events.y[[i]], JSON, ids=True) for i in range(len(events.y)))
                messages = requests(f"{path}/update", bodies, JSON)
                contestants[_named(store, in_flight)] = partial(_turn, server, messages, turns, in_flight)
        result = contest(contestants, run.rounds, run.seconds)
    fsync = fsync_note(run.folder)
    verdicts = [
        Verdict(
            f"events/s by those without a log, {store}, {in_flight} in flight",
            result.ratio(_named(store, in_flight), _named("memory", in_flight), lambda item: item.events_per_second),
            target,
        )
        for store in STORES[1:]
        for in_flight, target in TARGETS.items()
    ]
    return Case(
        "/update, one event a request: SQLite synchronous=FULL, Redis AOF everysec", result.rows(), verdicts, [fsync]
    )


def _named(store: str, in_flight: int) -> str:
    return f"{'no log' if store == 'memory' else store}, {in_flight} in flight"


def _turn(server: Server, messages: list[bytes], turns: count[int], in_flight: int, seconds: float) -> Sample:
    return sample(drive(server.port, numbered(messages, next(turns)), in_flight, seconds, server.cpu))
