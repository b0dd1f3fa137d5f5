"""The log of a learner in the SQLite store: each function runs inside a transaction.

A learner is a row, its log the rows of another table, in order. What it raises is what `Store` says.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from typing import NamedTuple

from service.errors import BehindLog, LearnerGone, LostRecords
from service.names import called_in_full
from service.storage.sqlite import served_rows as served
from service.storage.store_protocol import (
    AHEAD,
    BEHIND,
    GONE,
    OTHER,
    REPLY_BYTES,
    LogEntry,
    NewestSnapshot,
    SnapshotInfo,
)

__all__ = [
    "Log",
    "carried",
    "compare",
    "entries_after",
    "log_of",
    "newest",
    "reaching",
    "retain",
    "snapshot_data",
    "token_at",
]


class Log(NamedTuple):
    """A row of the learner table, without its name and birth."""

    id: int
    head: int
    trimmed: int


def log_of(db: sqlite3.Connection, learner: str, birth: bytes) -> Log:
    row = db.execute("SELECT id, head, trimmed FROM learner WHERE name = ? AND birth = ?", (learner, birth)).fetchone()
    if row is None:
        raise LearnerGone(GONE.format(log=called_in_full(learner)))
    return Log(*row)


def token_at(db: sqlite3.Connection, log: Log, learner: str, position: int) -> bytes:
    """Of the record at a position, which the log has to have; empty where it was trimmed."""
    if position > log.head:
        raise LostRecords(AHEAD.format(log=called_in_full(learner), after=position, head=log.head))
    row = db.execute("SELECT token FROM entry WHERE learner = ? AND position = ?", (log.id, position)).fetchone()
    return row[0] if row else b""


def compare(db: sqlite3.Connection, log: Log, learner: str, position: int, known: bytes) -> None:
    """Raise `LostRecords` where another record stands at a position."""
    if known and token_at(db, log, learner, position) not in (b"", known):
        raise LostRecords(OTHER.format(log=called_in_full(learner), after=position))


def reaching(db: sqlite3.Connection, learner: str, birth: bytes, after: int, known: bytes) -> Log:
    """The log, where it reaches back to `after`, and the record there is the one that is known."""
    log = log_of(db, learner, birth)
    compare(db, log, learner, after, known)
    if after < log.trimmed:
        raise BehindLog(BEHIND.format(log=called_in_full(learner), after=after, trimmed=log.trimmed))
    return log


def entries_after(db: sqlite3.Connection, log: int, after: int, limit: int = -1) -> list[LogEntry]:
    """Entries after `after`, as many as one reply carries; a negative limit is none."""
    query = "SELECT position, token, data FROM entry WHERE learner = ? AND position > ? ORDER BY position LIMIT ?"
    with closing(db.execute(query, (log, after, limit))) as rows:
        return carried(LogEntry(*row) for row in rows)


def carried(entries: Iterable[LogEntry]) -> list[LogEntry]:
    """As many as one reply carries, from the first on."""
    found: list[LogEntry] = []
    size = 0
    for entry in entries:
        size += len(entry.data)
        if found and size > REPLY_BYTES:
            break
        found.append(entry)
    return found


def snapshot_data(db: sqlite3.Connection, id: int) -> bytes:
    """The bytes of a snapshot."""
    parts = db.execute("SELECT data FROM part WHERE snapshot = ? ORDER BY number", (id,))
    return b"".join(data for (data,) in parts)


def newest(db: sqlite3.Connection, learner: str, birth: bytes) -> NewestSnapshot:
    """The newest snapshot, and what goes with it."""
    log = log_of(db, learner, birth)
    found = db.execute(
        "SELECT id, position, size, time FROM snapshot WHERE learner = ? AND whole ORDER BY position DESC LIMIT 1",
        (log.id,),
    ).fetchone()
    pending = served.pending(db, log.id)
    if found is None:
        return NewestSnapshot(log.head, None, b"", b"", pending)
    info = SnapshotInfo(*found[1:])
    token = token_at(db, log, learner, info.position)
    return NewestSnapshot(log.head, info, snapshot_data(db, found[0]), token, pending)


def retain(
    db: sqlite3.Connection, learner: str, birth: bytes, id: int, position: int, keep: int, trim: bool, known: bytes
) -> bool:
    """The atomic step of `save`: the snapshot counts, older ones and the log below them go; whether it is kept."""
    log = log_of(db, learner, birth)
    if position > log.head:
        raise LostRecords(AHEAD.format(log=called_in_full(learner), after=position, head=log.head))
    compare(db, log, learner, position, known)
    if position < log.trimmed:  # newer ones are retained, and the log that would lead on from this one is gone
        db.execute("DELETE FROM snapshot WHERE id = ?", (id,))
        return False
    db.execute("DELETE FROM snapshot WHERE learner = ? AND position = ? AND whole", (log.id, position))
    db.execute("UPDATE snapshot SET whole = 1 WHERE id = ?", (id,))
    db.execute(
        "DELETE FROM snapshot WHERE id IN (SELECT id FROM snapshot WHERE learner = ? AND whole"
        " ORDER BY position DESC LIMIT -1 OFFSET ?)",
        (log.id, keep),
    )
    (oldest,) = db.execute("SELECT min(position) FROM snapshot WHERE learner = ? AND whole", (log.id,)).fetchone()
    if trim and oldest is not None:
        db.execute("DELETE FROM entry WHERE learner = ? AND position <= ?", (log.id, oldest))
        db.execute("UPDATE learner SET trimmed = ? WHERE id = ?", (oldest, log.id))
    return bool(db.execute("SELECT count(*) FROM snapshot WHERE id = ?", (id,)).fetchone()[0])
