"""Records and served events with which the stores are tested."""

from __future__ import annotations

import math
from collections.abc import Sequence

from service.storage.served_labels import ServedLabel
from service.storage.store_protocol import LogEntry, ServedEvent, ServedLimits, Store

__all__ = [
    "BIRTH",
    "EVERY_BYTE",
    "UNBOUNDED",
    "event",
    "events",
    "filled",
    "labels_of",
    "log_after",
    "record",
    "served",
    "token",
    "whole_log",
]

EVERY_BYTE = bytes(range(256)) * 3
UNBOUNDED = ServedLimits(events=2**53, bytes=2**53, before=-math.inf)


def token(number: int) -> bytes:
    """Return the token of record `number`: 16 bytes, some of them zero and some not UTF-8."""
    return b"\x00\xff" + number.to_bytes(14, "big")


BIRTH = token(0)


def record(number: int) -> tuple[bytes, bytes]:
    return token(number), f"record {number}".encode()


async def filled(store: Store, entries: int, learner: str = "a") -> list[LogEntry]:
    """Create a learner, append until its log has `entries` entries, and return them."""
    await store.create(learner, BIRTH, b"created")
    appended = await store.append(learner, BIRTH, [record(number) for number in range(2, entries + 1)], 1)
    return [LogEntry(1, BIRTH, b"created"), *appended]


async def log_after(store: Store, after: int, learner: str = "a", birth: bytes = BIRTH) -> list[LogEntry]:
    """Read every entry after `after`."""
    log: list[LogEntry] = []
    while entries := await store.read(learner, birth, after, 1000):
        log += entries
        after = entries[-1].position
    return log


async def whole_log(store: Store, learner: str = "a", birth: bytes = BIRTH) -> list[LogEntry]:
    """Read every entry of a log that was not trimmed."""
    return await log_after(store, 0, learner, birth)


def event(number: int, size: int = 10) -> ServedEvent:
    """Return a served event with `number` as its id and time, and `size` bytes of data."""
    return ServedEvent(str(number), float(number), f"{number:010}".encode().ljust(size, b".")[:size])


def events(start: int, stop: int) -> list[ServedEvent]:
    """Return events `start` to `stop - 1`."""
    return [event(number) for number in range(start, stop)]


def labels_of(ids: Sequence[str], position: int = 5) -> dict[str, list[ServedLabel]]:
    """Return a positive label for each id, as the record at a position has it."""
    return {id: [ServedLabel(position, 1, 9.5)] for id in ids}


async def served(store: Store, remembered: Sequence[ServedEvent], learner: str = "a") -> None:
    """Create a learner, and serve these events in its second record."""
    await store.create(learner, BIRTH, b"created")
    await store.serve(learner, BIRTH, record(2), 1, remembered, UNBOUNDED)
