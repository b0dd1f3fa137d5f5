"""The promises of `Store`, kept by every store: snapshots, and the log that they let go."""

from __future__ import annotations

import asyncio
import time

import pytest

from service.errors import BehindLog, LostRecords
from service.storage.store_protocol import SNAPSHOT_PART, LogEntry, LogHead, NewestSnapshot, ServedCounts, Store
from tests.harness.fixtures import Opener
from tests.harness.store_records import BIRTH, EVERY_BYTE, UNBOUNDED, events, filled, log_after, record, whole_log


async def test_a_snapshot_is_saved_and_loaded(store: Store) -> None:
    await filled(store, 9)
    before = time.time()
    assert await store.load("a", BIRTH) is None
    assert await store.snapshots("a", BIRTH) == []
    saved = [
        await store.save("a", BIRTH, position, data, 5, trim=False)
        for position, data in ((3, EVERY_BYTE), (9, b""), (6, b"six"))
    ]
    assert await store.load("a", BIRTH) == (9, b"")
    assert await store.load("a", BIRTH, 3) == (3, EVERY_BYTE)
    assert await store.load("a", BIRTH, 6) == (6, b"six")
    assert await store.load("a", BIRTH, 4) is None
    retained = await store.snapshots("a", BIRTH)
    assert [(snapshot.position, snapshot.size) for snapshot in retained] == [(9, 0), (6, 3), (3, len(EVERY_BYTE))]
    assert all(before - 1 <= snapshot.time <= time.time() + 1 for snapshot in retained)
    assert sorted(retained) == sorted(saved)
    assert len(await whole_log(store)) == 9


async def test_load_newest_returns_the_newest_snapshot_and_its_context(store: Store) -> None:
    await filled(store, 9)
    nothing = ServedCounts(0, 0, 0, 0)
    assert await store.load_newest("a", BIRTH) == NewestSnapshot(9, None, b"", b"", nothing)
    await store.save("a", BIRTH, 3, b"three", 5, trim=False)
    await store.save("a", BIRTH, 6, EVERY_BYTE, 5, trim=False)
    served = (await store.serve("a", BIRTH, record(10), 9, events(0, 3), UNBOUNDED)).pending
    assert served.events == 3
    (info, _) = await store.snapshots("a", BIRTH)
    assert await store.load_newest("a", BIRTH) == NewestSnapshot(10, info, EVERY_BYTE, record(6)[0], served)
    await store.save("a", BIRTH, 10, b"", 1, trim=True)
    (info,) = await store.snapshots("a", BIRTH)
    assert await store.load_newest("a", BIRTH) == NewestSnapshot(
        10, info, b"", await store.token("a", BIRTH, 10), served
    )


async def test_a_snapshot_at_the_same_position_replaces_the_previous_one(store: Store) -> None:
    await filled(store, 3)
    await store.save("a", BIRTH, 2, b"first", 2, trim=False)
    await store.save("a", BIRTH, 2, b"second!", 2, trim=False)
    assert await store.load("a", BIRTH) == (2, b"second!")
    assert [snapshot[:2] for snapshot in await store.snapshots("a", BIRTH)] == [(2, 7)]


async def test_save_keeps_the_newest_snapshots_and_trims_up_to_the_oldest_kept(store: Store) -> None:
    log = await filled(store, 10)
    for position, retained, first in [(2, [2], 3), (5, [5, 2], 3), (7, [7, 5], 6), (6, [7, 6], 7), (10, [10, 7], 8)]:
        await store.save("a", BIRTH, position, b"at %d" % position, 2, trim=True)
        assert [snapshot.position for snapshot in await store.snapshots("a", BIRTH)] == retained
        assert await log_after(store, first - 1) == log[first - 1 :]
        if first > 1:
            with pytest.raises(BehindLog):
                await store.read("a", BIRTH, first - 2, 9)
        for stored in retained:
            assert await store.load("a", BIRTH, stored) == (stored, b"at %d" % stored)
    assert await store.load("a", BIRTH, 5) is None
    assert await store.heads() == {"a": LogHead(BIRTH, 10)}


async def test_positions_continue_after_the_whole_log_is_trimmed(store: Store) -> None:
    await filled(store, 4)
    await store.save("a", BIRTH, 4, b"all", 1, trim=True)
    assert await store.read("a", BIRTH, 4, 9) == []
    assert await store.heads() == {"a": LogHead(BIRTH, 4)}
    assert await store.append("a", BIRTH, [record(5)], 4) == [LogEntry(5, *record(5))]


async def test_without_trim_the_log_is_kept(store: Store) -> None:
    log = await filled(store, 5)
    await store.save("a", BIRTH, 2, b"two", 1, trim=False)
    await store.save("a", BIRTH, 4, b"four", 1, trim=False)
    assert [snapshot.position for snapshot in await store.snapshots("a", BIRTH)] == [4]
    assert await whole_log(store) == log


async def test_a_snapshot_older_than_the_retained_ones_is_not_kept(store: Store) -> None:
    await filled(store, 9)
    assert await store.save("a", BIRTH, 7, b"seven", 2, trim=False)
    assert await store.save("a", BIRTH, 8, b"eight", 2, trim=True)
    assert not await store.save("a", BIRTH, 3, b"three", 2, trim=True)
    assert not await store.save("a", BIRTH, 3, b"three", 2, trim=False)
    assert [snapshot.position for snapshot in await store.snapshots("a", BIRTH)] == [8, 7]
    assert [entry.position for entry in await log_after(store, 7)] == [8, 9]


async def test_a_snapshot_from_before_the_trimmed_log_is_not_kept(store: Store) -> None:
    """Between it and the log would be a hole, however many snapshots there is room for."""
    await filled(store, 9)
    assert await store.save("a", BIRTH, 6, b"six", 3, trim=True)
    assert not await store.save("a", BIRTH, 5, b"five", 3, trim=True)
    assert [snapshot.position for snapshot in await store.snapshots("a", BIRTH)] == [6]
    assert await store.load("a", BIRTH) == (6, b"six")
    assert [entry.position for entry in await log_after(store, 6)] == [7, 8, 9]


async def test_a_snapshot_ahead_of_the_log_is_refused(store: Store) -> None:
    log = await filled(store, 3)
    with pytest.raises(LostRecords, match=r"\b4\b.*\b3\b"):
        await store.save("a", BIRTH, 4, b"four", 1, trim=True)
    assert await store.snapshots("a", BIRTH) == []
    assert await whole_log(store) == log


async def test_a_reader_behind_the_trimmed_log_gets_an_error(store: Store) -> None:
    """A reader behind the trimmed log gets an error, not an empty list, which would be the end of the log.

    Nothing is appended, either: the token may be in the trimmed part, and a repetition must not land twice."""
    await filled(store, 5)
    await store.save("a", BIRTH, 4, b"four", 1, trim=True)
    for after in (0, 3):
        with pytest.raises(BehindLog, match=rf"\b{after}\b.*\b4\b"):
            await store.read("a", BIRTH, after, 10)
        for number in (3, 9):
            with pytest.raises(BehindLog, match=rf"\b{after}\b.*\b4\b"):
                await store.append("a", BIRTH, [record(number)], after)
            with pytest.raises(BehindLog, match=rf"\b{after}\b.*\b4\b"):
                await store.serve("a", BIRTH, record(number), after, events(0, 3), UNBOUNDED)
    assert (await store.pending("a", BIRTH)).events == 0
    assert await store.append("a", BIRTH, [record(5)], 4) == [LogEntry(5, *record(5))]
    assert await store.heads() == {"a": LogHead(BIRTH, 5)}


async def test_a_large_snapshot_is_saved_and_loaded(store: Store) -> None:
    await filled(store, 2)
    for size in (SNAPSHOT_PART, 2 * SNAPSHOT_PART + 1):
        snapshot = bytes(range(251)) * (size // 251) + bytes(size % 251)
        await store.save("a", BIRTH, 2, snapshot, 1, trim=True)
        assert await store.load("a", BIRTH) == (2, snapshot)
        assert [stored[:2] for stored in await store.snapshots("a", BIRTH)] == [(2, size)]


async def test_a_snapshot_is_loaded_completely_while_newer_ones_replace_it(open_again: Opener) -> None:
    writer, reader = await open_again(), await open_again()
    log = await filled(writer, 41)
    await writer.save("a", BIRTH, 1, bytes([1]) * 1000, 1, trim=False)

    async def save() -> None:
        for entry in log[1:]:
            await writer.save("a", BIRTH, entry.position, bytes([entry.position]) * 1000, 1, trim=True)

    saving = asyncio.create_task(save())
    newest = 1
    while newest < 41:
        loaded = await reader.load("a", BIRTH)
        assert loaded is not None
        position, snapshot = loaded
        assert snapshot == bytes([position]) * 1000
        assert position >= newest
        newest = position
        await asyncio.sleep(0)
    await saving
