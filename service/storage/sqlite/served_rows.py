"""What the SQLite store remembers of served events: each function runs inside a transaction, on one learner's rows.

An event is a row, in served order; what is dropped leaves its row without data, as the tombstone, until that goes too.
So an event moves no entry of the large index on ids but when it comes and when its tombstone goes.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from service.storage.store_protocol import (
    DROPS,
    REPLY_BYTES,
    ExpiredEvents,
    ServedCounts,
    ServedEvent,
    ServedLimits,
    latest,
)

__all__ = ["clear", "expired", "labelled", "pending", "recall", "remember", "reopen", "settle"]

CLEARED = 50_000  # rows of a deleted learner that go in one transaction: a third of a second at most


@dataclass
class _Counts:
    """A row of the pending table, without its learner."""

    events: int = 0
    bytes: int = 0
    expired: int = 0
    evicted: int = 0
    removed: int = 0  # drops whose tombstones have gone

    @classmethod
    def of(cls, db: sqlite3.Connection, learner: int) -> _Counts:
        """The learner's counts; all 0 before its first event."""
        query = "SELECT events, bytes, expired, evicted, removed FROM pending WHERE learner = ?"
        return cls(*db.execute(query, (learner,)).fetchone() or ())

    def put(self, db: sqlite3.Connection, learner: int) -> ServedCounts:
        """Write them, and tell them."""
        row = (learner, self.events, self.bytes, self.expired, self.evicted, self.removed)
        db.execute("INSERT OR REPLACE INTO pending VALUES (?, ?, ?, ?, ?, ?)", row)
        return self.told()

    def told(self) -> ServedCounts:
        return ServedCounts(self.events, self.bytes, self.expired, self.evicted)

    @property
    def dropped(self) -> int:
        """Ever."""
        return self.expired + self.evicted

    def drop(self, size: int) -> int:
        """One event of so many bytes has gone and was counted: the how manieth drop that is."""
        self.events -= 1
        self.bytes -= size
        return self.dropped


def pending(db: sqlite3.Connection, learner: int) -> ServedCounts:
    """How much is remembered."""
    return _Counts.of(db, learner).told()


def remember(
    db: sqlite3.Connection, learner: int, remembered: Sequence[ServedEvent], bounds: ServedLimits
) -> ServedCounts:
    """Remember, then drop what has expired or exceeds the bounds."""
    counts = _Counts.of(db, learner)
    events = latest(remembered)
    query = "SELECT number, coalesce(length(data), -1) FROM served WHERE learner = ? AND id = ?"
    for id, time, data in events:
        size = len(id.encode())
        for number, old in db.execute(query, (learner, id)).fetchall():
            db.execute("DELETE FROM served WHERE number = ?", (number,))
            if old >= 0:
                counts.events -= 1
                counts.bytes -= size + old
        db.execute("INSERT INTO served (learner, id, time, data) VALUES (?, ?, ?, ?)", (learner, id, time, data))
        counts.events += 1
        counts.bytes += size + len(data)
    most = len(events) + DROPS
    _drop(db, learner, counts, bounds, most)
    excess = counts.dropped - bounds.events - counts.removed
    if excess > 0:
        counts.removed += min(excess, most)
        db.execute("DELETE FROM served WHERE learner = ? AND dropped <= ?", (learner, counts.removed))
    return counts.put(db, learner)


def _drop(db: sqlite3.Connection, learner: int, counts: _Counts, bounds: ServedLimits, most: int) -> None:
    """Drop the oldest as long as it has expired or there are too many, `most` at most."""
    drops: list[tuple[int, int]] = []
    query = (
        "SELECT number, id, time, length(data) FROM served WHERE learner = ? AND dropped IS NULL"
        " ORDER BY number LIMIT ?"
    )
    with closing(db.execute(query, (learner, most))) as rows:
        for number, id, time, length in rows:
            if time is not None and time < bounds.before:
                counts.expired += 1
            elif counts.events > bounds.events or counts.bytes > bounds.bytes:
                counts.evicted += 1
            else:
                break
            drops.append((counts.drop(len(id.encode()) + length), number))
    db.executemany("UPDATE served SET dropped = ?, data = NULL WHERE number = ?", drops)


def recall(db: sqlite3.Connection, learner: int, ids: Sequence[str]) -> list[ServedEvent | bool | None]:
    """For each id what was served; True for a tombstone, None for what is not known."""
    query = "SELECT time, data FROM served WHERE learner = ? AND id = ?"
    found: list[ServedEvent | bool | None] = []
    for id in ids:
        row = db.execute(query, (learner, id)).fetchone()
        if row is None:
            found.append(None)
        else:
            found.append(True if row[1] is None else _remembered(id, *row))
    return found


def expired(db: sqlite3.Connection, learner: int, before: float, limit: int, after: int) -> ExpiredEvents:
    """What has expired after the cursor, from the oldest on: as many as one reply carries."""
    found: list[ServedEvent] = []
    known: list[bool] = []
    size, large = 0, False
    (settled,) = db.execute("SELECT settled FROM learner WHERE id = ?", (learner,)).fetchone()
    upto = max(settled, after)
    query = (
        "SELECT number, labelled, id, time, data FROM served WHERE learner = ? AND dropped IS NULL AND number > ?"
        " ORDER BY number LIMIT ?"
    )
    with closing(db.execute(query, (learner, upto, limit))) as rows:
        for number, has_label, *row in rows:
            event = _remembered(*row)
            size += len(event.data)
            large = bool(found) and size > REPLY_BYTES
            if large or not event.time < before:
                break
            found.append(event)
            known.append(bool(has_label))
            upto = number
    return ExpiredEvents(upto, found, known, large or len(found) == limit)


def settle(db: sqlite3.Connection, learner: int, upto: int) -> None:
    """Move the cursor, and never back."""
    db.execute("UPDATE learner SET settled = max(settled, ?) WHERE id = ?", (upto, learner))


def reopen(db: sqlite3.Connection, learner: int) -> None:
    """Move the cursor to the beginning."""
    db.execute("UPDATE learner SET settled = 0 WHERE id = ?", (learner,))


def labelled(db: sqlite3.Connection, learner: int, ids: Sequence[str]) -> None:
    """The labels of these have come."""
    db.executemany("UPDATE served SET labelled = 1 WHERE learner = ? AND id = ?", [(learner, id) for id in ids])


def clear(db: sqlite3.Connection) -> bool:
    """Delete some rows whose learner was deleted; whether there may be more."""
    left = db.execute("SELECT learner FROM pending WHERE learner NOT IN (SELECT id FROM learner) LIMIT 1").fetchone()
    if left is None:
        return False
    room = CLEARED
    for rows in ("dropped IS NULL ORDER BY number", "dropped IS NOT NULL ORDER BY dropped"):  # neighbours in the file
        query = f"DELETE FROM served WHERE number IN (SELECT number FROM served WHERE learner = ? AND {rows} LIMIT ?)"
        room -= db.execute(query, (*left, room)).rowcount
    if room > 0:
        db.execute("DELETE FROM pending WHERE learner = ?", left)
    return True


def _remembered(id: str, time: float | None, data: bytes) -> ServedEvent:
    return ServedEvent(id, math.nan if time is None else time, data)
