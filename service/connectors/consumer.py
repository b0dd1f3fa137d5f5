"""Consumes a feed into a learner until it is stopped: one task per partition, and lines of progress.

After SIGTERM or Ctrl-C, requests in progress are answered and their positions committed.
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
from service.datasets import RowColumns, declared, labels_for
from service.exits import CommandFailed
from service.pacing import Interruption, WaitInterrupted

__all__ = ["consume"]

_PROGRESS_EVERY = 10.0  # seconds between lines of progress
_LOOK_EVERY = 10.0  # seconds between checks for new partitions
_NOTICE = 0.1  # seconds between checks for a signal
_GRACE = 10.0  # grace period in seconds for requests at a stop; cut-off messages are read again, as after a crash
_SOURCES = 64  # sources per learner
_THREADS = 32  # most requests in progress: one per partition


def consume(
    plan: ConsumePlan,
    feed: Feed,
    connect: Callable[[Callable[[float], bool]], AbstractContextManager[Client]],
    note: Callable[[str], None],
) -> Document:
    """Consume until stopped, or until `plan.once` ends it; return the counts. Call it in the main thread.

    `connect(wait)` opens a connection to the service, one per partition, whose pauses use `wait`. Raises
    `CommandFailed` or `ClientError`.
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
    tasks = [asyncio.create_task(_report_progress(interruption, stop, counts, note))]
    try:
        with ExitStack() as stack:
            stack.enter_context(log_to_notes("Kafka", "aiokafka", note))
            client = stack.enter_context(connect(stop.wait))
            document = await asyncio.to_thread(client.learner(plan.learner).describe)
            kinds = declared(document["config"]["features"])
            texts = frozenset(name for name, numeric in kinds.items() if not numeric)
            async with feed:
                if len(feed.partitions) > _SOURCES:
                    count = f"{len(feed.partitions)} partitions are more than the {_SOURCES} sources of a learner"
                    raise CommandFailed(f"{count}: choose some with --partition")
                threads = stack.enter_context(ThreadPoolExecutor(min(_THREADS, len(feed.partitions))))
                consumptions = [
                    Consumption(
                        plan,
                        feed,
                        partition,
                        Reading(
                            plan.what,
                            labels_for(RowColumns(), document, stream=True),
                            texts,
                            plan.time_format,
                            plan.time_unit,
                        ),
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
                    note(f"{partition.source} is empty or does not exist yet: waiting for its first message")
                tasks.append(asyncio.create_task(_note_added(feed, note)))
                ends = await asyncio.gather(
                    *(_run_until(consumption, stop) for consumption in consumptions), return_exceptions=True
                )
        for end in ends:
            if isinstance(end, BaseException):
                raise end
    except WaitInterrupted:  # before the first batch
        return counts.document() | {"positions": {}}
    finally:
        for task in tasks:
            task.cancel()
        if counts.read or sys.exc_info()[0] is None:  # if it never began, only the error matters
            note(counts.line())
    positions = zip(feed.partitions, consumptions, strict=True)
    return counts.document() | {
        "positions": {partition.source: partition.show(consumption.handled_to) for partition, consumption in positions}
    }


async def _run_until(consumption: Consumption, stop: threading.Event) -> None:
    """Run one partition; if it fails, stop the others. After a stop, cancel it if its broker does not answer."""
    running = asyncio.create_task(consumption.run())
    try:
        while not stop.is_set() and not running.done():
            await asyncio.wait([running], timeout=_NOTICE)
        ended, _ = await asyncio.wait([running], timeout=_GRACE)
        if ended:
            await running
    except WaitInterrupted:
        return
    except BaseException:
        stop.set()
        raise
    finally:
        running.cancel()


async def _report_progress(
    interruption: Interruption, stop: threading.Event, counts: ReadCounts, note: Callable[[str], None]
) -> None:
    """Print progress until a signal stops everything."""
    loop = asyncio.get_running_loop()
    noted, last = loop.time(), ""
    while True:
        if interruption and not stop.is_set():
            stop.set()
            note("stopping")
        if loop.time() - noted >= _PROGRESS_EVERY:
            noted = loop.time()
            line = counts.line().rpartition(",")[0]
            if line != last and counts.read:
                note(counts.line())
            last = line
        await asyncio.sleep(_NOTICE)


async def _note_added(feed: Feed, note: Callable[[str], None]) -> None:
    """Report new partitions, which are not read until the next start."""
    noted: set[str] = set()
    while True:
        for source in feed.added():
            if source not in noted:
                note(f"{source} is new and is not read: restart to read it too")
                noted.add(source)
        await asyncio.sleep(_LOOK_EVERY)
