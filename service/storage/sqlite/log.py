"""A learner's log in the SQLite store: each function runs inside a transaction.

A learner is a row; its log is a set of rows of another table, in order. Errors are those that `Store` documents.
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
    LOG_DELETED,
    OTHER,
    REPLY_BYTES,
    LogEntry,
    NewestSnapshot,
    SnapshotInfo,
)

__all__ = [
    "LogRow",
    "bookmark",
    "checked_log",
    "compare",
    "entries_after",
    "fit_reply",
    "load_newest",
    "log_of",
    "move_bookmark",
    "prune",
    "retain",
    "snapshot_data",
    "token_at",
]


class LogRow(NamedTuple):
    """A row of the learner table, without its name and birth."""

    id: int
    head: int
    trimmed: int


def log_of(db: sqlite3.Connection, learner: str, birth: bytes) -> LogRow:
    row = db.execute("SELECT id, head, trimmed FROM learner WHERE name = ? AND birth = ?", (learner, birth)).fetchone()
    if row is None:
        raise LearnerGone(LOG_DELETED.format(log=called_in_full(learner)))
    return LogRow(*row)


def token_at(db: sqlite3.Connection, log: LogRow, learner: str, position: int) -> bytes:
    """Return the token of the record at a position; empty if it was trimmed.

    Raises `LostRecords` beyond the log's end.
    """
    if position > log.head:
        raise LostRecords(AHEAD.format(log=called_in_full(learner), after=position, head=log.head))
    row = db.execute("SELECT token FROM entry WHERE learner = ? AND position = ?", (log.id, position)).fetchone()
    return row[0] if row else b""


def compare(db: sqlite3.Connection, log: LogRow, learner: str, position: int, expected_token: bytes) -> None:
    """Raise `LostRecords` if another record is at the position."""
    if expected_token and token_at(db, log, learner, position) not in (b"", expected_token):
        raise LostRecords(OTHER.format(log=called_in_full(learner), after=position))


def checked_log(db: sqlite3.Connection, learner: str, birth: bytes, after: int, expected_token: bytes) -> LogRow:
    """Return the log if it reaches back to `after` and has the expected record there."""
    log = log_of(db, learner, birth)
    compare(db, log, learner, after, expected_token)
    if after < log.trimmed:
        raise BehindLog(BEHIND.format(log=called_in_full(learner), after=after, trimmed=log.trimmed))
    return log


def entries_after(db: sqlite3.Connection, log: int, after: int, limit: int = -1) -> list[LogEntry]:
    """List entries after `after`, as many as fit in one reply; a negative limit means no limit."""
    query = "SELECT position, token, data FROM entry WHERE learner = ? AND position > ? ORDER BY position LIMIT ?"
    with closing(db.execute(query, (log, after, limit))) as rows:
        return fit_reply(LogEntry(*row) for row in rows)


def fit_reply(entries: Iterable[LogEntry]) -> list[LogEntry]:
    """Take entries from the first on, as many as fit in one reply."""
    fitting: list[LogEntry] = []
    size = 0
    for entry in entries:
        size += len(entry.data)
        if fitting and size > REPLY_BYTES:
            break
        fitting.append(entry)
    return fitting


def snapshot_data(db: sqlite3.Connection, id: int) -> bytes:
    """Return the bytes of a snapshot."""
    parts = db.execute("SELECT data FROM part WHERE snapshot = ? ORDER BY number", (id,))
    return b"".join(data for (data,) in parts)


def load_newest(db: sqlite3.Connection, learner: str, birth: bytes) -> NewestSnapshot:
    """Load the newest snapshot and the data around it."""
    log = log_of(db, learner, birth)
    row = db.execute(
        "SELECT id, position, size, time FROM snapshot WHERE learner = ? AND whole ORDER BY position DESC LIMIT 1",
        (log.id,),
    ).fetchone()
    pending = served.pending(db, log.id)
    if row is None:
        return NewestSnapshot(log.head, None, b"", b"", pending)
    info = SnapshotInfo(*row[1:])
    token = token_at(db, log, learner, info.position)
    return NewestSnapshot(log.head, info, snapshot_data(db, row[0]), token, pending)


def retain(
    db: sqlite3.Connection,
    learner: str,
    birth: bytes,
    id: int,
    position: int,
    keep: int,
    trim: bool,
    expected_token: bytes,
) -> bool:
    """Complete `save` in one atomic step: count the new snapshot, delete older ones, trim the log.

    Returns whether the new snapshot is retained.
    """
    log = log_of(db, learner, birth)
    if position > log.head:
        raise LostRecords(AHEAD.format(log=called_in_full(learner), after=position, head=log.head))
    compare(db, log, learner, position, expected_token)
    if position < log.trimmed:  # newer snapshots are retained, and the log after this one is trimmed
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
        _trim(db, log.id, oldest)
    return bool(db.execute("SELECT count(*) FROM snapshot WHERE id = ?", (id,)).fetchone()[0])


def prune(db: sqlite3.Connection, learner: str, birth: bytes, position: int, trim: bool) -> None:
    """Delete the snapshots before a retained one, and with `trim` the log up to it."""
    log = log_of(db, learner, birth)
    retained = db.execute("SELECT 1 FROM snapshot WHERE learner = ? AND whole AND position = ?", (log.id, position))
    if retained.fetchone() is None:
        return
    db.execute("DELETE FROM snapshot WHERE learner = ? AND whole AND position < ?", (log.id, position))
    if trim and position > log.trimmed:
        _trim(db, log.id, position)


def _trim(db: sqlite3.Connection, log: int, position: int) -> None:
    db.execute("DELETE FROM entry WHERE learner = ? AND position <= ?", (log, position))
    db.execute("UPDATE learner SET trimmed = ? WHERE id = ?", (position, log))


def bookmark(db: sqlite3.Connection, log: LogRow, reader: str) -> int | None:
    """Return the place of a reader; None if it noted none."""
    query = "SELECT place FROM bookmark WHERE learner = ? AND reader = ?"
    row = db.execute(query, (log.id, reader)).fetchone()
    return None if row is None else row[0]


def move_bookmark(db: sqlite3.Connection, log: LogRow, reader: str, place: int) -> None:
    """Note the place of a reader."""
    db.execute("INSERT OR REPLACE INTO bookmark VALUES (?, ?, ?)", (log.id, reader, place))
