"""Records with which the stores are tested."""

from __future__ import annotations

from service.store import Entry, Store

__all__ = ["BIRTH", "EVERY_BYTE", "filled", "log_after", "record", "token", "whole_log"]

EVERY_BYTE = bytes(range(256)) * 3


def token(number: int) -> bytes:
    """The token of record `number`: 16 bytes, some of them zero and some not UTF-8."""
    return b"\x00\xff" + number.to_bytes(14, "big")


BIRTH = token(0)


def record(number: int) -> tuple[bytes, bytes]:
    return token(number), f"record {number}".encode()


async def filled(store: Store, entries: int, learner: str = "a") -> list[Entry]:
    """Create a learner and append until its log has so many entries; the log."""
    await store.create(learner, BIRTH, b"created")
    appended = await store.append(learner, BIRTH, [record(number) for number in range(2, entries + 1)], 1)
    return [Entry(1, BIRTH, b"created"), *appended]


async def log_after(store: Store, after: int, learner: str = "a", birth: bytes = BIRTH) -> list[Entry]:
    """Every entry after `after`."""
    log: list[Entry] = []
    while entries := await store.read(learner, birth, after, 1000):
        log += entries
        after = entries[-1].position
    return log


async def whole_log(store: Store, learner: str = "a", birth: bytes = BIRTH) -> list[Entry]:
    """Every entry of a log that was not trimmed."""
    return await log_after(store, 0, learner, birth)
