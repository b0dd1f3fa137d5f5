"""Batches of 1,000 events into loam-ada, durable and not, beside what the stores take in blobs of that size.

The events are float32 in MessagePack, or JSON, without ids. Four requests are under way at a time. Each turn has a
learner of its own, so that logs do not grow from round to round. A store's ceiling is a program that does nothing but
write: as many blobs in each commit, or pipeline, as requests are under way here, on the core that the server has else.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from itertools import count, cycle
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
from redis import Redis

from benchmarks.service.bodies import DIM, JSON, MSGPACK, requests, stream, update
from benchmarks.service.http_load import drive
from benchmarks.service.processors import Cores, pinned
from benchmarks.service.rounds import Case, Measure, Run, Sample, Verdict, contest, sample
from benchmarks.service.servers import STORES, Server, fsync_note, rarestream, store_urls

__all__ = ["measure"]

BATCH = 1000  # events of a request
BLOB = BATCH * DIM * 4  # bytes of their features
IN_FLIGHT = 4
OF_CEILING = 0.6  # durable, of what the store takes of such blobs
JSON_EVENTS = 200_000  # a second, durable in SQLite
MEMORY_EVENTS = 3_000_000  # a second, without a log
CODINGS = {"MessagePack": MSGPACK, "JSON": JSON}


def measure(run: Run) -> Case:
    """Events per second."""
    batches = run.few(8, 1)
    events = stream(batches * BATCH)
    parts = [slice(at, at + BATCH) for at in range(0, batches * BATCH, BATCH)]
    bodies = {
        media: [update(events.X[part], events.y[part], media, ids=False) for part in parts]
        for media in CODINGS.values()
    }
    with (
        store_urls(run.cores, run.folder) as urls,
        rarestream(run.cores, run.folder, urls["memory"]) as memory,
        rarestream(run.cores, run.folder, urls["sqlite"]) as sqlite,
        rarestream(run.cores, run.folder, urls["redis"]) as redis,
        _sqlite(run.folder / "ceiling.db") as sqlite_write,
        _redis(urls["redis"]) as redis_write,
    ):
        numbers = count()
        contestants: dict[str, Measure] = {}
        for coding, media in CODINGS.items():
            for store, server in zip(STORES, (memory, sqlite, redis), strict=True):
                contestants[_named(store, coding)] = partial(_turn, server, bodies[media], media, numbers)
        contestants["ceiling of sqlite"] = partial(_ceiling, sqlite_write, run.cores)
        contestants["ceiling of redis"] = partial(_ceiling, redis_write, run.cores)
        result = contest(contestants, run.rounds, run.seconds)
    verdicts = [
        Verdict(
            f"events/s by the ceiling of {store}, MessagePack",
            result.ratio(_named(store, "MessagePack"), f"ceiling of {store}", _rate),
            OF_CEILING,
        )
        for store in STORES[1:]
    ]
    verdicts.append(Verdict("events/s, JSON, sqlite", result.median(_named("sqlite", "JSON"), _rate), JSON_EVENTS))
    reached = result.median(_named("memory", "MessagePack"), _rate)
    verdicts.append(Verdict("events/s, MessagePack, no log", reached, MEMORY_EVENTS))
    title = f"/update, {BATCH:,} x {DIM} float32 a request into loam-ada, {IN_FLIGHT} in flight"
    notes = [f"a ceiling's row counts blobs of {BLOB:,} bytes, {BATCH:,} events each", fsync_note(run.folder)]
    return Case(title, result.rows(), verdicts, notes)


def _rate(item: Sample) -> float:
    return item.events_per_second


def _named(store: str, coding: str) -> str:
    return f"{'no log' if store == 'memory' else store}, {coding}"


def _turn(server: Server, bodies: list[dict[str, object]], media: str, numbers: count[int], seconds: float) -> Sample:
    path = server.taught(f"batches-{next(numbers)}")
    try:
        messages = cycle(requests(f"{path}/update", bodies, media))
        return sample(drive(server.port, messages, IN_FLIGHT, seconds, server.cpu), BATCH)
    finally:
        server.delete(path)


Write = Callable[[list[bytes] | None], None]  # blobs, durable on return; None: forget all that was written


def _ceiling(write: Write, cores: Cores, seconds: float) -> Sample:
    random = np.random.default_rng(0)
    blobs = [random.bytes(BLOB) for _ in range(IN_FLIGHT)]
    milliseconds: list[float] = []
    with pinned(cores.server):
        used, began = process_time(), perf_counter()
        while (now := perf_counter()) < began + seconds or not milliseconds:
            write(blobs)
            milliseconds.append(1000 * (perf_counter() - now))
        elapsed, used = perf_counter() - began, process_time() - used
    write(None)
    answered = len(milliseconds) * IN_FLIGHT
    p50, p99, p999 = np.percentile(milliseconds, [50, 99, 99.9]).tolist()
    return Sample(answered, answered * BATCH, elapsed, used, used, (p50, p99, p999))


@contextmanager
def _sqlite(path: Path) -> Iterator[Write]:
    """Open a table of blobs in a new file with WAL and synchronous=FULL, like the store."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("CREATE TABLE log (position INTEGER PRIMARY KEY, data BLOB)")

        def write(blobs: list[bytes] | None) -> None:
            if blobs is None:
                db.execute("DELETE FROM log")
                return
            db.execute("BEGIN IMMEDIATE")
            db.executemany("INSERT INTO log (data) VALUES (?)", [(blob,) for blob in blobs])
            db.execute("COMMIT")

        yield write


@contextmanager
def _redis(url: str) -> Iterator[Write]:
    """Open a Redis stream of blobs."""
    with Redis.from_url(url) as client:

        def write(blobs: list[bytes] | None) -> None:
            if blobs is None:
                client.delete("ceiling")
                return
            pipeline = client.pipeline(transaction=False)
            for blob in blobs:
                pipeline.xadd("ceiling", {"data": blob})
            pipeline.execute()

        yield write
