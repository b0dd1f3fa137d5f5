"""The embedded store: one SQLite file, shared by any number of processes on one machine.

WAL with `synchronous=FULL`: a write is through fsync when its call returns. One thread writes. It puts all waiting
writes, of all learners, into one transaction (`group_commit`) while the next group gathers. Another thread reads
through its own connection, so reads never wait for an fsync. A third one copies the WAL into the file (`checkpoints`),
so commits hardly ever wait for that.

A snapshot larger than `SNAPSHOT_PART` is written in parts, each in its own transaction, so that appends run between
them. It counts from the last step on, which is atomic. A later save deletes the parts that a crash left behind.
Likewise the served events of a deleted learner are deleted in steps after it; a later delete continues after a crash.

Nodes need not publish here. `PRAGMA data_version` of the writer's connection changes with the commits of other
processes. The writer's thread reads it `LOOKS` times a second, in tens of microseconds. A table of publications would
cost one more commit, with its fsync, per append. The version does not tell which learners changed. Publications are
counted for nodes that share one object, as in tests.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from service.errors import LearnerGone, LostRecords, StoreError, StoreFull, StoreUnavailable
from service.names import called_in_full
from service.storage.served_labels import ServedLabel
from service.storage.sqlite import served_rows as served
from service.storage.sqlite.checkpoints import Checkpoints
from service.storage.sqlite.file_identity import FileIdentity
from service.storage.sqlite.group_commit import Work, Write, commit, consistent, deliver, unavailable
from service.storage.sqlite.log import (
    bookmark,
    checked_log,
    entries_after,
    fit_reply,
    load_newest,
    log_of,
    move_bookmark,
    prune,
    retain,
    snapshot_data,
    token_at,
)
from service.storage.sqlite.reserve import Reserve
from service.storage.sqlite.schema import BUSY_SECONDS, connect
from service.storage.store_protocol import (
    AHEAD,
    CLOSED,
    DELETIONS,
    LOG_DELETED,
    SNAPSHOT_PART,
    ExpiredEvents,
    LogEntry,
    LogHead,
    LogNotice,
    NewestSnapshot,
    ServedCounts,
    ServedEvent,
    ServedLimits,
    ServedPage,
    ServeReceipt,
    SnapshotInfo,
    in_steps,
)

__all__ = ["SqliteStore"]

T = TypeVar("T")

LOOKS = 20  # per second, for writes of other processes
STALE_SECONDS = 3600.0  # a snapshot that is half-written for so long was left by a crash


class SqliteStore:
    """The store in one SQLite file. Create it with `open`."""

    caution: str | None = None
    fault: str | None = None
    stall: str | None = None
    certain = True

    def __init__(
        self,
        write: sqlite3.Connection,
        read: sqlite3.Connection,
        checkpoint: sqlite3.Connection,
        identity: FileIdentity,
        reserve: Reserve,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._checkpoints = Checkpoints(checkpoint)
        self._identity = identity
        self._reserve = reserve
        self._read_connection = read
        self._reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sqlite-reader")
        self._waiting: queue.SimpleQueue[Write | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._write_groups, args=(write,), name="sqlite-writer", daemon=True)
        self._writer.start()
        self._calls = 0
        # publications of nodes over this object: they share one connection, which does not show its own commits
        self._publications: Counter[bytes] = Counter()
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False

    @classmethod
    async def open(cls, path: str | Path, busy_seconds: float = BUSY_SECONDS) -> SqliteStore:
        """Open or create the file. `StoreUnavailable` says why that failed."""
        connections = await asyncio.to_thread(connect, Path(path), busy_seconds)
        identity = await asyncio.to_thread(FileIdentity, Path(path))
        return cls(*connections, identity, await asyncio.to_thread(Reserve, Path(path)))

    # The two threads

    @contextmanager
    def _call(self) -> Iterator[None]:
        """Count the calls in progress, so that `close` can wait for them."""
        if self._closed:
            raise StoreUnavailable(CLOSED)
        self._calls += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._calls -= 1
            if self._calls == 0:
                self._idle.set()

    async def _write(self, work: Work[T], outside: bool = False, size: int = 0, reserve: bool = False) -> T:
        """Run `work` in the writer's next transaction, or `outside` of any; return its result once it is durable.

        `size`: the bytes that it adds. `reserve`: it may take the room that a full disk keeps in reserve.
        """
        future: asyncio.Future[T] = self._loop.create_future()
        self._waiting.put(Write(work, future, outside, size, reserve))
        return await future

    async def _read(self, work: Work[T]) -> T:
        def run() -> T:
            self._identity.check()
            return consistent(self._read_connection, work)

        return await self._loop.run_in_executor(self._reader, run)

    def _write_groups(self, connection: sqlite3.Connection) -> None:
        """Run the writer thread: commit all waiting writes as a group, until None arrives."""
        with closing(connection):
            last = False
            while not last:
                batch = [self._waiting.get()] + [self._waiting.get() for _ in range(self._waiting.qsize())]
                group = [write for write in batch if write is not None]
                last = len(group) < len(batch)
                self._commit(connection, group)
                try:
                    self._loop.call_soon_threadsafe(deliver, group)
                except RuntimeError:  # the loop was closed before the store: no caller waits
                    self._checkpoints.close()
                    return
                self._checkpoints.wrote(group, connection)

    def _commit(self, connection: sqlite3.Connection, group: list[Write]) -> None:
        """Commit a group; on a full disk, release the reserve for the writes that may take it."""
        try:
            self._identity.check()
            admitted = self._reserve.admit(group, connection)
        except (StoreUnavailable, sqlite3.Error) as error:
            for write in group:
                write.error = unavailable(error) if isinstance(error, sqlite3.Error) else error
            return
        commit(connection, admitted)
        refused = [write for write in group if write.reserve and isinstance(write.error, StoreFull)]
        if refused:
            self._reserve.release()
            commit(connection, refused)
            with suppress(sqlite3.Error):  # as far as it comes: it makes the WAL's room free again
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    async def close(self) -> None:
        self._closed = True
        await self._idle.wait()
        await asyncio.to_thread(self._release)

    def _release(self) -> None:
        self._reader.shutdown()
        self._read_connection.close()
        self._checkpoints.close()
        self._waiting.put(None)
        self._writer.join()  # closes the last connection: SQLite empties and removes the WAL

    # The protocol

    async def create(self, learner: str, token: bytes, data: bytes) -> LogHead:
        def work(db: sqlite3.Connection) -> LogHead:
            inserted = db.execute(
                "INSERT INTO learner (name, birth, head, trimmed) VALUES (?, ?, 1, 0) ON CONFLICT DO NOTHING",
                (learner, token),
            )
            if inserted.rowcount:
                db.execute("INSERT INTO entry VALUES (?, 1, ?, ?)", (inserted.lastrowid, token, data))
            return LogHead(*db.execute("SELECT birth, head FROM learner WHERE name = ?", (learner,)).fetchone())

        with self._call():
            return await self._write(work, size=len(data))

    async def append(
        self,
        learner: str,
        birth: bytes,
        records: Sequence[tuple[bytes, bytes]],
        after: int,
        expected_token: bytes = b"",
        reserve: bool = False,
    ) -> list[LogEntry]:
        def work(db: sqlite3.Connection) -> list[LogEntry]:
            log = checked_log(db, learner, birth, after, expected_token)
            if after > log.head:
                raise LostRecords(AHEAD.format(log=called_in_full(learner), after=after, head=log.head))
            tokens = "SELECT token FROM entry WHERE learner = ? AND position > ?"
            logged = {token for (token,) in db.execute(tokens, (log.id, after))} if log.head > after else set()
            added: list[LogEntry] = []
            for token, data in records:
                if token not in logged:
                    logged.add(token)
                    added.append(LogEntry(log.head + len(added) + 1, token, data))
                    db.execute("INSERT INTO entry VALUES (?, ?, ?, ?)", (log.id, *added[-1]))
            db.execute("UPDATE learner SET head = ? WHERE id = ?", (log.head + len(added), log.id))
            return fit_reply(added) if log.head == after else entries_after(db, log.id, after)

        with self._call():
            return await self._write(work, size=sum(len(data) for _, data in records), reserve=reserve)

    async def read(
        self, learner: str, birth: bytes, after: int, limit: int, expected_token: bytes = b""
    ) -> list[LogEntry]:
        with self._call():
            log = partial(checked_log, learner=learner, birth=birth, after=after, expected_token=expected_token)
            return await self._read(lambda db: entries_after(db, log(db).id, after, limit))

    async def token(self, learner: str, birth: bytes, position: int) -> bytes:
        with self._call():
            return await self._read(lambda db: token_at(db, log_of(db, learner, birth), learner, position))

    async def head(self, learner: str) -> LogHead | None:
        def work(db: sqlite3.Connection) -> LogHead | None:
            row = db.execute("SELECT birth, head FROM learner WHERE name = ?", (learner,)).fetchone()
            return None if row is None else LogHead(*row)

        with self._call():
            return await self._read(work)

    async def heads(self) -> dict[str, LogHead]:
        def work(db: sqlite3.Connection) -> dict[str, LogHead]:
            rows = db.execute("SELECT name, birth, head FROM learner")
            return {name: LogHead(birth, head) for name, birth, head in rows}

        with self._call():
            return await self._read(work)

    async def losses(self) -> dict[str, bytes]:
        return {}  # the list is made of the logs

    async def delete(self, learner: str, birth: bytes) -> None:
        def work(db: sqlite3.Connection) -> int:
            removed = db.execute("DELETE FROM learner WHERE name = ? AND birth = ?", (learner, birth)).rowcount
            number = db.execute("INSERT OR REPLACE INTO deletion (birth) VALUES (?)", (birth,)).lastrowid
            assert number is not None  # an INSERT sets it
            db.execute("DELETE FROM deletion WHERE number <= ?", (number - DELETIONS,))
            return removed

        with self._call():
            if not await self._write(work, reserve=True):
                raise LearnerGone(LOG_DELETED.format(log=called_in_full(learner)))
            rows = served.CLEARED
            with suppress(StoreError):  # the learner is deleted in any case
                while rows:
                    try:
                        if not await self._write(partial(served.clear, most=rows), reserve=True):
                            break
                    except StoreFull:
                        rows //= 8

    async def deleted(self, births: Sequence[bytes]) -> list[bytes]:
        def work(db: sqlite3.Connection) -> list[bytes]:
            query = "SELECT 1 FROM deletion WHERE birth = ?"
            return [birth for birth in births if db.execute(query, (birth,)).fetchone()]

        with self._call():
            return await self._read(work)

    async def save(
        self,
        learner: str,
        birth: bytes,
        position: int,
        snapshot: bytes,
        keep: int,
        trim: bool,
        expected_token: bytes = b"",
    ) -> SnapshotInfo | None:
        info = SnapshotInfo(position, len(snapshot), time.time())

        def begin(db: sqlite3.Connection) -> int:
            log = log_of(db, learner, birth)
            db.execute("DELETE FROM snapshot WHERE NOT whole AND time < ?", (info.time - STALE_SECONDS,))
            row = (log.id, *info)
            cursor = db.execute(
                "INSERT INTO snapshot (learner, position, size, time, whole) VALUES (?, ?, ?, ?, 0)", row
            )
            assert cursor.lastrowid is not None  # an INSERT sets it
            return cursor.lastrowid

        def part(id: int, number: int) -> Work[None]:
            def work(db: sqlite3.Connection) -> None:
                log_of(db, learner, birth)
                data = memoryview(snapshot)[number * SNAPSHOT_PART : (number + 1) * SNAPSHOT_PART]
                db.execute("INSERT INTO part VALUES (?, ?, ?)", (id, number, data))

            return work

        def finish(id: int) -> Work[bool]:
            def work(db: sqlite3.Connection) -> bool:
                return retain(db, learner, birth, id, position, keep, trim, expected_token)

            return work

        def forget(id: int) -> Work[None]:
            def work(db: sqlite3.Connection) -> None:
                db.execute("DELETE FROM snapshot WHERE id = ?", (id,))

            return work

        def at_once(db: sqlite3.Connection) -> bool:
            id = begin(db)
            part(id, 0)(db)
            return finish(id)(db)

        with self._call():
            if len(snapshot) <= SNAPSHOT_PART:
                return info if await self._write(at_once, size=len(snapshot)) else None
            id = await self._write(begin)
            try:
                for number in range(-(-len(snapshot) // SNAPSHOT_PART)):
                    await self._write(part(id, number), size=SNAPSHOT_PART)
                return info if await self._write(finish(id)) else None
            except StoreError:
                with suppress(StoreError):  # else a later save deletes it as stale
                    await self._write(forget(id))
                raise

    async def prune(self, learner: str, birth: bytes, position: int, trim: bool) -> None:
        with self._call():
            await self._write(lambda db: prune(db, learner, birth, position, trim), reserve=True)

    async def load(self, learner: str, birth: bytes, position: int | None = None) -> tuple[int, bytes] | None:
        def work(db: sqlite3.Connection) -> tuple[int, bytes] | None:
            log = log_of(db, learner, birth)
            row = db.execute(
                "SELECT id, position FROM snapshot WHERE learner = ? AND whole AND position = coalesce(?, position)"
                " ORDER BY position DESC LIMIT 1",
                (log.id, position),
            ).fetchone()
            if row is None:
                return None
            return row[1], snapshot_data(db, row[0])

        with self._call():
            return await self._read(work)

    async def snapshots(self, learner: str, birth: bytes) -> list[SnapshotInfo]:
        def work(db: sqlite3.Connection) -> list[SnapshotInfo]:
            rows = db.execute(
                "SELECT position, size, time FROM snapshot WHERE learner = ? AND whole ORDER BY position DESC",
                (log_of(db, learner, birth).id,),
            )
            return [SnapshotInfo(*row) for row in rows]

        with self._call():
            return await self._read(work)

    async def load_newest(self, learner: str, birth: bytes) -> NewestSnapshot:
        with self._call():
            return await self._read(lambda db: load_newest(db, learner, birth))

    async def lease(self, learner: str, birth: bytes, node: bytes, seconds: float) -> bool:
        def work(db: sqlite3.Connection) -> bool:
            log = log_of(db, learner, birth)
            now = time.monotonic()
            held_by_other = "SELECT 1 FROM claim WHERE learner = ? AND node != ? AND ? >= since AND ? < since + seconds"
            if db.execute(held_by_other, (log.id, node, now, now)).fetchone():
                return False
            db.execute("INSERT OR REPLACE INTO claim VALUES (?, ?, ?, ?)", (log.id, node, now, seconds))
            return True

        with self._call():
            return await self._write(work, reserve=True)

    async def publish(self, node: bytes, moved: Mapping[str, LogNotice]) -> None:  # noqa: ARG002 (`poll` sees the writes)
        with self._call():
            self._publications[node] += 1

    async def poll(self, node: bytes, after: bytes, seconds: float) -> tuple[bytes, dict[str, LogNotice] | None]:
        ends = time.monotonic() + seconds
        while True:
            with self._call():
                version = await self._write(_version, outside=True)
                version += b".%d" % (self._publications.total() - self._publications[node])
            left = ends - time.monotonic()
            if version != after:
                return version, None
            if left <= 0:
                return version, {}
            await asyncio.sleep(min(1 / LOOKS, left))

    async def serve(
        self,
        learner: str,
        birth: bytes,
        record: tuple[bytes, bytes],
        after: int,
        remembered: Sequence[ServedEvent],
        limits: ServedLimits,
    ) -> ServeReceipt:
        def work(db: sqlite3.Connection) -> ServeReceipt:
            log = log_of(db, learner, birth)
            token, data = record
            query = "SELECT position FROM entry WHERE learner = ? AND token = ?"
            logged = db.execute(query, (log.id, token)).fetchone()
            if logged:
                return ServeReceipt(logged[0], token_at(db, log, learner, logged[0] - 1), served.pending(db, log.id))
            checked_log(db, learner, birth, after, b"")
            before = token_at(db, log, learner, log.head)
            db.execute("INSERT INTO entry VALUES (?, ?, ?, ?)", (log.id, log.head + 1, token, data))
            db.execute("UPDATE learner SET head = ? WHERE id = ?", (log.head + 1, log.id))
            return ServeReceipt(log.head + 1, before, served.remember(db, log.id, remembered, limits))

        with self._call():
            return await self._write(work, size=len(record[1]) + sum(len(event.data) for event in remembered))

    async def recall(self, learner: str, birth: bytes, ids: Sequence[str]) -> list[ServedEvent | bool | None]:
        def work(step: Sequence[str]) -> Work[list[ServedEvent | bool | None]]:
            return lambda db: served.recall(db, log_of(db, learner, birth).id, step)

        with self._call():
            return [event for step in in_steps(ids) for event in await self._read(work(step))]

    async def labels(self, learner: str, birth: bytes, ids: Sequence[str]) -> list[list[ServedLabel] | None]:
        def work(step: Sequence[str]) -> Work[list[list[ServedLabel] | None]]:
            return lambda db: served.labels(db, log_of(db, learner, birth).id, step)

        with self._call():
            return [labels for step in in_steps(ids) for labels in await self._read(work(step))]

    async def served(self, learner: str, birth: bytes, limit: int, below: int = 0) -> ServedPage:
        with self._call():
            return await self._read(lambda db: served.newest(db, log_of(db, learner, birth).id, limit, below))

    async def served_after(self, learner: str, birth: bytes, limit: int, after: int) -> ServedPage:
        with self._call():
            return await self._read(lambda db: served.following(db, log_of(db, learner, birth).id, limit, after))

    async def expired(self, learner: str, birth: bytes, before: float, limit: int, after: int = 0) -> ExpiredEvents:
        with self._call():
            return await self._read(lambda db: served.expired(db, log_of(db, learner, birth).id, before, limit, after))

    async def settle(self, learner: str, birth: bytes, upto: int) -> None:
        with self._call():
            await self._write(lambda db: served.settle(db, log_of(db, learner, birth).id, upto))

    async def reopen(self, learner: str, birth: bytes) -> None:
        with self._call():
            await self._write(lambda db: served.reopen(db, log_of(db, learner, birth).id))

    async def labelled(self, learner: str, birth: bytes, labels: Mapping[str, Sequence[ServedLabel]]) -> None:
        def work(step: Sequence[tuple[str, Sequence[ServedLabel]]]) -> Work[None]:
            return lambda db: served.labelled(db, log_of(db, learner, birth).id, dict(step))

        with self._call():
            for step in in_steps(list(labels.items())):
                await self._write(work(step))

    async def erase(self, learner: str, birth: bytes, id: str) -> bool:
        def empty_wal(db: sqlite3.Connection) -> None:  # earlier pages in it have the event
            with suppress(sqlite3.Error):  # a reader that goes on for long; the next long WAL is emptied, too
                db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

        with self._call():
            erased = await self._write(lambda db: served.erase(db, log_of(db, learner, birth).id, id), reserve=True)
            await self._write(empty_wal, outside=True)
            return erased

    async def pending(self, learner: str, birth: bytes) -> ServedCounts:
        with self._call():
            return await self._read(lambda db: served.pending(db, log_of(db, learner, birth).id))

    async def bookmark(self, learner: str, birth: bytes, reader: str) -> int | None:
        with self._call():
            return await self._read(lambda db: bookmark(db, log_of(db, learner, birth), reader))

    async def move_bookmark(self, learner: str, birth: bytes, reader: str, place: int) -> None:
        with self._call():
            await self._write(lambda db: move_bookmark(db, log_of(db, learner, birth), reader, place), reserve=True)


def _version(db: sqlite3.Connection) -> bytes:
    """Read a version that changes with each commit of another connection."""
    return b"%d" % db.execute("PRAGMA data_version").fetchone()
