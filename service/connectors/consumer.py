"""A feed into a learner until it is stopped: every partition by a task of its own, progress in lines.

SIGTERM and Ctrl-C let what is under way be answered, and its position be committed.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack

from rarestream import Client
from service.connectors.connection_errors import log_to_notes
from service.connectors.feed import Document, Feed
from service.connectors.message_decoding import Reading
from service.connectors.partition import ConsumePlan, Consumption
from service.connectors.progress import ReadCounts
from service.datasets import Interruption, RowColumns, Stopped, declared, labels_for
from service.exits import CommandFailed

__all__ = ["consume"]

_TELL_EVERY = 10.0  # seconds between lines on progress
_LOOK_EVERY = 10.0  # seconds between looks for what came to the feed
_NOTICE = 0.1  # seconds between looks for a signal
_GRACE = 10.0  # seconds that what is under way has after a stop; what is cut off then is read again, as after a kill
_SOURCES = 64  # whose positions a learner keeps
_THREADS = 32  # requests under way at most: one of each partition


def consume(
    plan: ConsumePlan,
    feed: Feed,
    connect: Callable[[Callable[[float], bool]], AbstractContextManager[Client]],
    note: Callable[[str], None],
) -> Document:
    """Blocks until it is stopped, or `plan.once` ends it; what was done, for programs. To be called in the main thread.

    `connect` opens a connection to the service, of which each partition has one; it is given what its pauses are to be
    made with. Raises `CommandFailed` or `ClientError`.
    """
    with Interruption() as interruption:
        return asyncio.run(_consume(plan, feed, connect, note, interruption))


async def _consume(
    plan: ConsumePlan,
    feed: Feed,
    connect: Callable[[Callable[[float], bool]], AbstractContextManager[Client]],
    note: Callable[[str], None],
    interruption: Interruption,
) -> Document:
    stop, counts = threading.Event(), ReadCounts()
    tasks = [asyncio.create_task(_watch(interruption, stop, counts, note))]
    try:
        with ExitStack() as stack:
            stack.enter_context(log_to_notes("Kafka", "aiokafka", note))
            client = stack.enter_context(connect(stop.wait))
            document = await asyncio.to_thread(client.learner(plan.learner).describe)
            texts = frozenset(name for name, numeric in declared(document["config"]["features"]).items() if not numeric)
            async with feed:
                if len(feed.partitions) > _SOURCES:
                    count = (
                        f"{len(feed.partitions)} partitions are more than the {_SOURCES} sources that a learner keeps"
                    )
                    raise CommandFailed(f"{count}: name some with --partition")
                threads = stack.enter_context(ThreadPoolExecutor(min(_THREADS, len(feed.partitions))))
                consumptions = [
                    Consumption(
                        plan,
                        feed,
                        partition,
                        Reading(plan.what, labels_for(RowColumns(), document), texts),
                        stack.enter_context(connect(stop.wait)).learner(plan.learner),
                        threads,
                        stop,
                        counts,
                        note,
                    )
                    for partition in feed.partitions
                ]
                empty = [partition for partition in feed.partitions if (await partition.bounds()).end == 0]
                note(f"reading {', '.join(partition.source for partition in feed.partitions)}")
                for partition in empty:
                    note(f"{partition.source} is empty or does not exist yet: awaiting its first message")
                tasks.append(asyncio.create_task(_tell_added(feed, note)))
                ends = await asyncio.gather(*(_until(one, stop) for one in consumptions), return_exceptions=True)
        for end in ends:
            if isinstance(end, BaseException):
                raise end
    except Stopped:  # before the first batch
        return counts.document() | {"positions": {}}
    finally:
        for task in tasks:
            task.cancel()
        if counts.read or sys.exc_info()[0] is None:  # where it never began, why is all there is to tell
            note(counts.line())
    positions = zip(feed.partitions, consumptions, strict=True)
    return counts.document() | {"positions": {partition.source: one.done for partition, one in positions}}


async def _until(consumption: Consumption, stop: threading.Event) -> None:
    """Run it; where it fails, the others stop. One that does not end after a stop, as its broker is away, is left."""
    running = asyncio.create_task(consumption.run())
    try:
        while not stop.is_set() and not running.done():
            await asyncio.wait([running], timeout=_NOTICE)
        done, _ = await asyncio.wait([running], timeout=_GRACE)
        if done:
            await running
    except Stopped:
        return
    except BaseException:
        stop.set()
        raise
    finally:
        running.cancel()


async def _watch(
    interruption: Interruption, stop: threading.Event, counts: ReadCounts, note: Callable[[str], None]
) -> None:
    """A signal stops everything; until then, tell what was done."""
    loop = asyncio.get_running_loop()
    told, last = loop.time(), ""
    while True:
        if interruption and not stop.is_set():
            stop.set()
            note("stopping")
        if loop.time() - told >= _TELL_EVERY:
            told = loop.time()
            line = counts.line().rpartition(",")[0]
            if line != last and counts.read:
                note(counts.line())
            last = line
        await asyncio.sleep(_NOTICE)


async def _tell_added(feed: Feed, note: Callable[[str], None]) -> None:
    """Whoever reads all that there is learns of what is not read."""
    told: set[str] = set()
    while True:
        for source in feed.added():
            if source not in told:
                note(f"{source} is new and is not read: start again to read it, too")
                told.add(source)
        await asyncio.sleep(_LOOK_EVERY)
