"""What is particular to the SQLite store: group commit, several processes, crashes, full disks, foreign files."""

from __future__ import annotations

import asyncio
import errno
import math
import re
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from service.errors import StoreUnavailable, WrongStore
from service.storage.open_store import open_store
from service.storage.sqlite import checkpoints, schema, served_rows
from service.storage.sqlite import sqlite_store as sqlite
from service.storage.sqlite.group_commit import Write
from service.storage.sqlite.sqlite_store import STALE_SECONDS, SqliteStore
from service.storage.store_protocol import LogEntry, LogHead, ServedCounts, ServedLimits
from tests.harness.store_records import (
    BIRTH,
    UNBOUNDED,
    event,
    events,
    filled,
    labels_of,
    record,
    served,
    token,
    whole_log,
)
from tests.harness.waiting import eventually_async


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    store = await SqliteStore.open(path)
    yield store
    await store.close()


def other_process(path: Path) -> closing[sqlite3.Connection]:
    """Return a connection as another process has it."""
    return closing(sqlite3.connect(path, isolation_level=None))


async def test_every_commit_is_durable_by_fsync(store: SqliteStore) -> None:
    pragmas = [("journal_mode", "wal"), ("synchronous", 2), ("foreign_keys", 1)]
    for name, value in pragmas:
        assert await store._write(lambda db, name=name: db.execute(f"PRAGMA {name}").fetchone()) == (value,)


async def test_waiting_writes_share_one_transaction(store: SqliteStore, path: Path) -> None:
    names = [f"learner-{number}" for number in range(25)]
    for name in names:
        await store.create(name, BIRTH, b"")
    statements: list[str] = []
    await store._write(lambda db: db.set_trace_callback(statements.append))
    statements.clear()
    with other_process(path) as other:
        other.execute("BEGIN IMMEDIATE")  # so that the first append has not ended when the others come
        appends = [asyncio.create_task(store.append(name, BIRTH, [record(2)], 1)) for name in names for _ in range(2)]
        await asyncio.sleep(0)
        other.execute("ROLLBACK")
    for entries in await asyncio.gather(*appends):
        assert entries == [LogEntry(2, *record(2))]
    assert statements.count("COMMIT") <= 2


async def test_a_failed_call_does_not_fail_concurrent_calls(store: SqliteStore, path: Path) -> None:
    await store.create("a", BIRTH, b"")
    with other_process(path) as other:
        other.execute("BEGIN IMMEDIATE")
        appends = [asyncio.create_task(store.append("a", BIRTH, [record(number)], 1)) for number in range(2, 8)]
        failing = asyncio.create_task(store.create("not UTF-8: \ud800", BIRTH, b""))
        half = asyncio.create_task(store.append("a", BIRTH, [record(8), (token(9), "no bytes: \ud800")], 1))  # type: ignore[list-item]
        appends += [asyncio.create_task(store.append("a", BIRTH, [record(number)], 1)) for number in range(10, 16)]
        await asyncio.sleep(0)
        other.execute("ROLLBACK")
    await asyncio.gather(*appends)
    for task in (failing, half):
        with pytest.raises(UnicodeEncodeError):
            await task
    numbers = [*range(2, 8), *range(10, 16)]
    assert await whole_log(store) == [
        LogEntry(1, BIRTH, b""),
        *(LogEntry(position, *record(number)) for position, number in enumerate(numbers, 2)),
    ]


async def test_a_full_disk_fails_only_the_writes_that_do_not_fit(store: SqliteStore, path: Path) -> None:
    await store.create("a", BIRTH, b"")

    def limit(pages: int) -> int:
        with other_process(path) as other:
            (present,) = other.execute("PRAGMA page_count").fetchone()
        return int(present) + pages

    pages = limit(50)
    await store._write(lambda db: db.execute(f"PRAGMA max_page_count = {pages}").fetchone())
    with other_process(path) as other:
        other.execute("BEGIN IMMEDIATE")
        small = [asyncio.create_task(store.append("a", BIRTH, [record(number)], 1)) for number in range(2, 6)]
        large = asyncio.create_task(store.append("a", BIRTH, [(token(99), bytes(2_000_000))], 1))
        small += [asyncio.create_task(store.append("a", BIRTH, [record(number)], 1)) for number in range(6, 10)]
        await asyncio.sleep(0)
        other.execute("ROLLBACK")
    await asyncio.gather(*small)
    with pytest.raises(StoreUnavailable, match="full"):
        await large
    with pytest.raises(StoreUnavailable, match="full"):
        await store.save("a", BIRTH, 5, bytes(2_000_000), 1, trim=True)
    assert [entry.position for entry in await whole_log(store)] == list(range(1, 10))
    assert await store.snapshots("a", BIRTH) == []

    await store._write(lambda db: db.execute("PRAGMA max_page_count = 1000000").fetchone())
    assert [entry.position for entry in await store.append("a", BIRTH, [(token(99), bytes(2_000_000))], 9)] == [10]


async def test_a_locked_file_is_unavailable_until_it_is_unlocked(path: Path) -> None:
    store = await SqliteStore.open(path, busy_seconds=0.05)
    try:
        log = await filled(store, 2)
        with other_process(path) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreUnavailable, match="locked"):
                await store.append("a", BIRTH, [record(3)], 2)
            assert await whole_log(store) == log  # reading goes on
            await store.heads()
            other.execute("ROLLBACK")
        assert await store.append("a", BIRTH, [record(3)], 2) == [LogEntry(3, *record(3))]
    finally:
        await store.close()


async def test_a_read_does_not_wait_for_a_write(store: SqliteStore, path: Path) -> None:
    log = await filled(store, 3)
    with other_process(path) as other:
        other.execute("BEGIN IMMEDIATE")
        append = asyncio.create_task(store.append("a", BIRTH, [record(4)], 3))
        await asyncio.sleep(0)
        assert await whole_log(store) == log
        assert await store.heads() == {"a": LogHead(BIRTH, 3)}
        assert not append.done()
        other.execute("ROLLBACK")
    assert await append == [LogEntry(4, *record(4))]


async def test_committed_data_is_checkpointed_while_the_store_is_open(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "_STEP", 8)
    await store.create("a", BIRTH, b"")
    await store.append("a", BIRTH, [(token(2), bytes(100_000))], 1)
    await eventually_async(lambda: path.stat().st_size > 100_000)


async def test_the_wal_restarts_under_continuous_writes(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "WAL_PAGES", 64)
    monkeypatch.setattr(checkpoints, "_STEP", 16)
    await store.create("a", BIRTH, b"")
    wal = path.with_name(f"{path.name}-wal")
    salts, number = {wal.read_bytes()[16:24]}, 1  # the salts, others each time
    async with asyncio.timeout(300):
        while len(salts) < 4:
            number += 1
            await store.append("a", BIRTH, [(token(number), bytes(20_000))], number - 1)
            salts.add(wal.read_bytes()[16:24])
    assert len(await whole_log(store)) == number


async def test_the_wal_is_bounded_if_the_checkpoint_thread_falls_behind(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "_STEP", 2**40)  # it does nothing at all
    monkeypatch.setattr(checkpoints, "_MOST", 256)
    await store.create("a", BIRTH, b"")
    wal = path.with_name(f"{path.name}-wal")
    for number in range(2, 102):
        await store.append("a", BIRTH, [(token(number), bytes(100_000))], number - 1)
    assert wal.stat().st_size < 2 * 2**20  # 1 MiB, and the record that goes beyond it
    assert len(await whole_log(store)) == 101


async def test_remains_of_a_crashed_snapshot_are_invisible_and_removed(store: SqliteStore, path: Path) -> None:
    await filled(store, 3)
    with other_process(path) as other:
        for age in (STALE_SECONDS + 60, 0):
            other.execute(
                "INSERT INTO snapshot (learner, position, size, time, whole) VALUES (1, 2, 9, unixepoch('now') - ?, 0)",
                (age,),
            )
            other.execute("INSERT INTO part VALUES (last_insert_rowid(), 0, 'half')")
        assert await store.snapshots("a", BIRTH) == []
        assert await store.load("a", BIRTH) is None
        await store.save("a", BIRTH, 2, b"whole", 3, trim=False)
        assert [row[0] for row in other.execute("SELECT data FROM part ORDER BY rowid")] == ["half", b"whole"]
        await store.delete("a", BIRTH)
        for table in ("learner", "entry", "snapshot", "part"):
            assert other.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)


async def test_forgotten_and_refused_data_leaves_no_row(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "SNAPSHOT_PART", 3)
    await filled(store, 9)
    for position in (4, 6, 8, 8, 2):
        await store.save("a", BIRTH, position, b"in parts", 2, trim=True)
    with pytest.raises(StoreUnavailable, match=r"\b99\b.*\b9\b"):
        await store.save("a", BIRTH, 99, b"in parts", 2, trim=True)
    with other_process(path) as other:
        assert other.execute("SELECT position FROM snapshot ORDER BY position").fetchall() == [(6,), (8,)]
        assert other.execute("SELECT count(*) FROM part").fetchone() == (6,)
        assert other.execute("SELECT position FROM entry ORDER BY position").fetchall() == [(7,), (8,), (9,)]


async def test_served_events_are_removed_in_steps_without_leftovers(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served_rows, "CLEARED", 4)
    await served(store, events(0, 15), "a")
    await served(store, events(0, 5), "b")
    await store.labelled("a", BIRTH, labels_of(["3", "7"]))
    await store.serve("a", BIRTH, record(99), 1, [], ServedLimits(13, 2**53, -math.inf))
    statements: list[str] = []
    await store._write(lambda db: db.set_trace_callback(statements.append))
    await store.delete("a", BIRTH)
    assert statements.count("COMMIT") > 4
    with other_process(path) as other:
        assert other.execute("SELECT learner, count(*) FROM served").fetchall() == [(2, 5)]
        assert other.execute("SELECT learner, events FROM pending").fetchall() == [(2, 5)]
    assert await store.recall("b", BIRTH, ["0", "4"]) == [event(0), event(4)]


async def test_remains_of_a_crashed_deletion_are_removed_by_the_next_one(store: SqliteStore, path: Path) -> None:
    await served(store, events(0, 15), "a")
    await served(store, events(0, 5), "b")
    with other_process(path) as other:
        other.execute("DELETE FROM learner WHERE name = 'a'")  # and then the process died
        await served(store, events(0, 3), "a")
        assert (await store.pending("a", BIRTH)).events == 3
        await store.delete("b", BIRTH)
        assert other.execute("SELECT learner, count(*) FROM served").fetchall() == [(3, 3)]
        assert other.execute("SELECT learner FROM pending").fetchall() == [(3,)]


async def test_events_without_a_tombstone_have_no_row(store: SqliteStore, path: Path) -> None:
    await store.create("a", BIRTH, b"")
    for number in range(100):
        await store.serve(
            "a", BIRTH, record(number + 2), 1, events(number, number + 3), ServedLimits(5, 999, -math.inf)
        )
    with other_process(path) as other:
        query = "SELECT count(*), count(data), count(dropped) FROM served"
        assert other.execute(query).fetchone() == (10, 5, 5)


def test_an_event_loop_closed_before_the_store_leaves_no_thread(path: Path) -> None:
    before = set(threading.enumerate())

    async def go() -> None:
        store = await SqliteStore.open(path)
        await store.create("a", BIRTH, b"")
        store._waiting.put(Write(lambda _: time.sleep(0.2), asyncio.get_running_loop().create_future()))

    asyncio.run(go())
    for thread in set(threading.enumerate()) - before:
        if thread.name.startswith(("sqlite-writer", "sqlite-checkpoints")):
            thread.join(60)
            assert not thread.is_alive(), thread.name


APPENDING = """
import asyncio, sys
from service.storage.open_store import open_store
from tests.harness.store_records import labels_of, BIRTH, token

async def append(store, node):
    after = 1
    for number in range(1, 1_000_000):
        own = token(node * 1_000_000 + number)
        entries = await store.append("a", BIRTH, [(own, own * 64)], after)
        after = entries[-1].position
        print(next(entry.position for entry in entries if entry.token == own), own.hex(), flush=True)

async def main():
    store = await open_store(sys.argv[1])
    await store.create("a", BIRTH, b"")
    await asyncio.gather(*(append(store, node) for node in range(1, 9)))

asyncio.run(main())
"""


def append_and_kill(url: str) -> list[bytes]:
    """Let a process append, and kill it in the middle: a line, position and token, for each append that returned."""
    command = [sys.executable, "-c", APPENDING, url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[4]) as process:
        assert process.stdout is not None
        returned = [process.stdout.readline() for _ in range(200)]
        process.kill()
        return returned + [line for line in process.stdout if line.endswith(b"\n")]


async def test_a_process_killed_during_appends_loses_no_returned_data(path: Path) -> None:
    returned = await asyncio.to_thread(append_and_kill, f"sqlite:///{path}")
    store = await open_store(f"sqlite:///{path}")
    try:
        log = await whole_log(store)
        assert [entry.position for entry in log] == list(range(1, len(log) + 1))
        for line in returned:
            position, local = line.split()
            entry = log[int(position) - 1]
            assert entry == LogEntry(int(position), bytes.fromhex(local.decode()), bytes.fromhex(local.decode()) * 64)
    finally:
        await store.close()


async def test_many_stores_open_a_new_file_concurrently(path: Path) -> None:
    stores = await asyncio.gather(*(SqliteStore.open(path) for _ in range(8)))
    try:
        heads = await asyncio.gather(*(store.create("a", BIRTH, b"") for store in stores))
        assert set(heads) == {LogHead(BIRTH, 1)}
    finally:
        for store in stores:
            await store.close()


async def test_open_waits_for_a_process_creating_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="locked"):
            await SqliteStore.open(path, busy_seconds=0)

        def sleep(_: float) -> None:
            other.execute("ROLLBACK")

        monkeypatch.setattr(schema, "time", SimpleNamespace(sleep=sleep, monotonic=time.monotonic))
        store = await SqliteStore.open(path)
        assert not other.in_transaction
        await store.close()


async def test_the_url_is_relative_with_three_slashes_and_absolute_with_four(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for url, name in [("sqlite:///relative.db", "relative.db"), (f"sqlite:///{tmp_path}/absolute.db", "absolute.db")]:
        store = await open_store(url)
        await store.close()
        assert (tmp_path / name).exists()


async def test_a_missing_directory_is_reported(tmp_path: Path) -> None:
    with pytest.raises(WrongStore, match="nowhere"):
        await SqliteStore.open(tmp_path / "nowhere" / "store.db")


async def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=re.escape(str(tmp_path))):
        await SqliteStore.open(tmp_path)


def test_a_file_other_than_a_database_is_refused_and_unchanged(path: Path) -> None:
    path.write_bytes(b"a letter to my aunt" * 100)
    with pytest.raises(WrongStore, match=path.stem):
        asyncio.run(SqliteStore.open(path))
    assert path.read_bytes() == b"a letter to my aunt" * 100


def test_the_database_of_another_program_is_refused_and_unchanged(path: Path) -> None:
    with other_process(path) as other:
        other.execute("CREATE TABLE recipe (name)")
    before = path.read_bytes()
    with pytest.raises(WrongStore, match=path.stem):
        asyncio.run(SqliteStore.open(path))
    assert path.read_bytes() == before


async def test_a_file_of_a_newer_version_is_refused(path: Path) -> None:
    store = await SqliteStore.open(path)
    await store.close()
    with other_process(path) as other:
        other.execute("PRAGMA user_version = 7")
    with pytest.raises(WrongStore, match=r"\b7\b.*\b1\b.*\b6\b"):
        await SqliteStore.open(path)


async def test_a_version_2_file_keeps_its_served_events(path: Path) -> None:
    with other_process(path) as other:
        for statement in (*schema.FIRST, *schema.SERVED):
            other.execute(statement)
        other.execute(f"PRAGMA application_id = {schema.APPLICATION}")
        other.execute("PRAGMA user_version = 2")
        other.execute("INSERT INTO learner VALUES (1, 'a', ?, 2, 0, 0)", (BIRTH,))
        other.executemany("INSERT INTO entry VALUES (1, ?, ?, ?)", [(1, BIRTH, b"created"), (2, *record(2))])
        for number, (id, at, data) in enumerate(events(0, 4), 1):
            dropped = 1 if number == 1 else None
            other.execute(
                "INSERT INTO served VALUES (?, 1, ?, ?, ?, ?)", (number, id, at, dropped, None if dropped else data)
            )
        other.execute("INSERT INTO pending VALUES (1, 3, 33, 1, 0, 0)")
    store = await SqliteStore.open(path)
    try:
        assert await store.pending("a", BIRTH) == ServedCounts(3, 33, 1, 0)
        await store.labelled("a", BIRTH, labels_of(["2"]))
        assert (await store.expired("a", BIRTH, 99.0, 9)).labelled == [False, True, False]
        bounds = ServedLimits(events=1, bytes=2**53, before=-math.inf)
        assert (await store.serve("a", BIRTH, record(3), 1, [], bounds)).pending == ServedCounts(1, 11, 1, 2)
        assert await store.recall("a", BIRTH, ["0", "1", "2", "3"]) == [None, None, True, event(3)]
    finally:
        await store.close()


async def test_a_version_1_file_is_migrated(path: Path) -> None:
    with other_process(path) as other:
        for statement in schema.FIRST:
            other.execute(statement)
        other.execute(f"PRAGMA application_id = {schema.APPLICATION}")
        other.execute("PRAGMA user_version = 1")
        other.execute("INSERT INTO learner VALUES (1, 'a', ?, 2, 0)", (BIRTH,))
        other.executemany("INSERT INTO entry VALUES (1, ?, ?, ?)", [(1, BIRTH, b"created"), (2, *record(2))])
    stores = await asyncio.gather(*(SqliteStore.open(path) for _ in range(4)))
    try:
        assert await whole_log(stores[0]) == [LogEntry(1, BIRTH, b"created"), LogEntry(2, *record(2))]
        for number, store in enumerate(stores):
            again = await store.serve("a", BIRTH, record(2), 1, [event(1)], UNBOUNDED)  # it is in the log
            assert (again.position, again.pending.events) == (2, number)
            receipt = await store.serve("a", BIRTH, record(number + 3), 1, [event(number)], UNBOUNDED)
            assert (receipt.position, receipt.pending.events) == (number + 3, number + 1)
        assert (await stores[0].expired("a", BIRTH, 99.0, 9)).events == events(0, 4)
    finally:
        for store in stores:
            await store.close()


# A file that goes away while it is open


@pytest.mark.parametrize("suffix", ["", "-wal"])
@pytest.mark.parametrize("event", ["moved", "deleted", "replaced"])
async def test_a_file_that_was_moved_away_is_reported_and_takes_nothing(
    tmp_path: Path, event: str, suffix: str
) -> None:
    path = tmp_path / "store.db"
    store = await SqliteStore.open(path)
    try:
        await filled(store, 3)
        file, away = tmp_path / f"store.db{suffix}", tmp_path / "away"
        file.rename(away)
        if event == "deleted":
            away.unlink()
        if event == "replaced":
            file.write_bytes(away.read_bytes())
        what = "replaced" if event == "replaced" else "moved or deleted"
        for call in (
            store.append("a", BIRTH, [record(4)], 3),
            store.head("a"),
            store.heads(),
            store.delete("a", BIRTH),
        ):
            with pytest.raises(StoreUnavailable, match=f"store.db{suffix} of the store was {what} while the service"):
                await call
        if event != "deleted":
            away.rename(file)  # the same file
            await store.append("a", BIRTH, [record(4)], 3)
            assert await store.heads() == {"a": LogHead(BIRTH, 4)}
    finally:
        await store.close()


@pytest.mark.parametrize(
    ("replacement", "message"),
    [("a file", "was moved or deleted while the service"), ("a loop", "Too many levels of symbolic links")],
)
async def test_a_folder_that_something_else_replaces_is_reported_until_it_is_back(
    tmp_path: Path, replacement: str, message: str
) -> None:
    folder, away = tmp_path / "data", tmp_path / "away"
    folder.mkdir()
    store = await SqliteStore.open(folder / "store.db")
    try:
        await filled(store, 3)
        folder.rename(away)
        if replacement == "a file":
            folder.write_bytes(b"")
        else:
            folder.symlink_to(folder)
        for call in (store.append("a", BIRTH, [record(4)], 3), store.heads(), store.delete("a", BIRTH)):
            with pytest.raises(StoreUnavailable, match=message):
                await call
        folder.unlink()
        away.rename(folder)
        await store.append("a", BIRTH, [record(4)], 3)
        assert await store.heads() == {"a": LogHead(BIRTH, 4)}
    finally:
        await store.close()


async def test_a_full_disk_that_cannot_be_read_refuses_writes_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    store = await SqliteStore.open(tmp_path / "store.db")
    try:
        await filled(store, 3)
        store._reserve.release()
        with monkeypatch.context() as patch:
            patch.setattr("shutil.disk_usage", fail)
            with pytest.raises(StoreUnavailable, match=r"cannot look at .* of the store \(Input/output error\)"):
                await store.append("a", BIRTH, [record(4)], 3)
        await store.append("a", BIRTH, [record(4)], 3)
    finally:
        await store.close()
