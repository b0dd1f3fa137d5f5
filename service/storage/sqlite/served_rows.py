"""The served events of the SQLite store: each function runs inside a transaction, on one learner's rows.

An event is a row, in served order. A dropped event leaves its row without data as a tombstone, until that is removed.
So the large index on ids changes only when an event arrives and when its tombstone is removed.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from service.storage.served_labels import ServedLabel, add_labels, pack_labels, unpack_labels
from service.storage.store_protocol import (
    DROPS,
    MAX_POSITION,
    REPLY_BYTES,
    ExpiredEvents,
    ServedCounts,
    ServedEvent,
    ServedLimits,
    ServedPage,
    latest,
)

__all__ = [
    "CLEARED",
    "clear",
    "erase",
    "expired",
    "labelled",
    "labels",
    "newest",
    "pending",
    "recall",
    "remember",
    "reopen",
    "settle",
]

CLEARED = 50_000  # rows of a deleted learner removed in one transaction: a third of a second at most


@dataclass
class _CountsRow:
    """A row of the pending table, without its learner."""

    events: int = 0
    bytes: int = 0
    expired: int = 0
    evicted: int = 0
    removed: int = 0  # drops whose tombstones were removed

    @classmethod
    def of(cls, db: sqlite3.Connection, learner: int) -> _CountsRow:
        """Read the learner's counts; all are 0 before its first event."""
        query = "SELECT events, bytes, expired, evicted, removed FROM pending WHERE learner = ?"
        return cls(*db.execute(query, (learner,)).fetchone() or ())

    def put(self, db: sqlite3.Connection, learner: int) -> ServedCounts:
        """Write the counts and return them."""
        row = (learner, self.events, self.bytes, self.expired, self.evicted, self.removed)
        db.execute("INSERT OR REPLACE INTO pending VALUES (?, ?, ?, ?, ?, ?)", row)
        return self.served_counts()

    def served_counts(self) -> ServedCounts:
        return ServedCounts(self.events, self.bytes, self.expired, self.evicted)

    @property
    def dropped(self) -> int:
        """Count all drops."""
        return self.expired + self.evicted

    def drop(self, size: int) -> int:
        """Count the removal of an event of so many bytes; return its ordinal among all drops."""
        self.events -= 1
        self.bytes -= size
        return self.dropped


def pending(db: sqlite3.Connection, learner: int) -> ServedCounts:
    """Count the served events that are stored and dropped."""
    return _CountsRow.of(db, learner).served_counts()


def remember(
    db: sqlite3.Connection, learner: int, remembered: Sequence[ServedEvent], limits: ServedLimits
) -> ServedCounts:
    """Store events, then drop those that expired or exceed the limits."""
    counts = _CountsRow.of(db, learner)
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
    _drop(db, learner, counts, limits, most)
    excess = counts.dropped - limits.events - counts.removed
    if excess > 0:
        counts.removed += min(excess, most)
        db.execute("DELETE FROM served WHERE learner = ? AND dropped <= ?", (learner, counts.removed))
    return counts.put(db, learner)


def _drop(db: sqlite3.Connection, learner: int, counts: _CountsRow, limits: ServedLimits, most: int) -> None:
    """Drop the oldest events while they have expired or exceed the limits, at most `most`."""
    drops: list[tuple[int, int]] = []
    query = (
        "SELECT number, id, time, length(data) FROM served WHERE learner = ? AND dropped IS NULL"
        " ORDER BY number LIMIT ?"
    )
    with closing(db.execute(query, (learner, most))) as rows:
        for number, id, time, length in rows:
            if time is not None and time < limits.before:
                counts.expired += 1
            elif counts.events > limits.events or counts.bytes > limits.bytes:
                counts.evicted += 1
            else:
                break
            drops.append((counts.drop(len(id.encode()) + length), number))
    db.executemany("UPDATE served SET dropped = ?, data = NULL WHERE number = ?", drops)


def recall(db: sqlite3.Connection, learner: int, ids: Sequence[str]) -> list[ServedEvent | bool | None]:
    """Look up served events by id: True for a tombstone, None for an unknown id."""
    query = "SELECT time, data FROM served WHERE learner = ? AND id = ?"
    events: list[ServedEvent | bool | None] = []
    for id in ids:
        row = db.execute(query, (learner, id)).fetchone()
        if row is None:
            events.append(None)
        else:
            events.append(True if row[1] is None else _event_of(id, *row))
    return events


def expired(db: sqlite3.Connection, learner: int, before: float, limit: int, after: int) -> ExpiredEvents:
    """List expired events after the cursor, oldest first: as many as fit in one reply."""
    events: list[ServedEvent] = []
    has_label: list[bool] = []
    size, large = 0, False
    (settled,) = db.execute("SELECT settled FROM learner WHERE id = ?", (learner,)).fetchone()
    upto = max(settled, after)
    query = (
        "SELECT number, labelled, id, time, data FROM served WHERE learner = ? AND dropped IS NULL AND number > ?"
        " ORDER BY number LIMIT ?"
    )
    with closing(db.execute(query, (learner, upto, limit))) as rows:
        for number, labelled, *row in rows:
            event = _event_of(*row)
            size += len(event.data)
            large = bool(events) and size > REPLY_BYTES
            if large or not event.time < before:
                break
            events.append(event)
            has_label.append(bool(labelled))
            upto = number
    return ExpiredEvents(upto, events, has_label, large or len(events) == limit)


def labels(db: sqlite3.Connection, learner: int, ids: Sequence[str]) -> list[list[ServedLabel] | None]:
    """Return the labels of events that are stored."""
    query = "SELECT labelled FROM served WHERE learner = ? AND id = ? AND dropped IS NULL"
    rows = [db.execute(query, (learner, id)).fetchone() for id in ids]
    return [None if row is None else _labels_of(row[0]) for row in rows]


def newest(db: sqlite3.Connection, learner: int, limit: int, below: int) -> ServedPage:
    """List events below a number, newest served first: as many as fit in one reply."""
    return _page(db, "number < ? ORDER BY number DESC", learner, below or MAX_POSITION, limit)


def following(db: sqlite3.Connection, learner: int, limit: int, after: int) -> ServedPage:
    """List events above a number, oldest served first: as many as fit in one reply."""
    return _page(db, "number > ? ORDER BY number", learner, after, limit)


def _page(db: sqlite3.Connection, listed: str, learner: int, bound: int, limit: int) -> ServedPage:
    events: list[ServedEvent] = []
    numbers: list[int] = []
    arrived: list[list[ServedLabel] | None] = []
    size = 0
    columns = "number, labelled, id, time, data"
    query = f"SELECT {columns} FROM served WHERE learner = ? AND dropped IS NULL AND {listed} LIMIT ?"
    with closing(db.execute(query, (learner, bound, limit + 1))) as rows:
        for number, labelled, *row in rows:
            event = _event_of(*row)
            size += len(event.data)
            if len(events) == limit or (events and size > REPLY_BYTES):
                return ServedPage(events, numbers, arrived, more=True)
            events.append(event)
            numbers.append(number)
            arrived.append(_labels_of(labelled))
    return ServedPage(events, numbers, arrived, more=False)


def settle(db: sqlite3.Connection, learner: int, upto: int) -> None:
    """Move the cursor forward."""
    db.execute("UPDATE learner SET settled = max(settled, ?) WHERE id = ?", (upto, learner))


def reopen(db: sqlite3.Connection, learner: int) -> None:
    """Move the cursor to the beginning."""
    db.execute("UPDATE learner SET settled = 0 WHERE id = ?", (learner,))


def labelled(db: sqlite3.Connection, learner: int, arrived: Mapping[str, Sequence[ServedLabel]]) -> None:
    """Add labels that arrived."""
    query = "SELECT number, labelled FROM served WHERE learner = ? AND id = ? AND dropped IS NULL"
    changes = []
    for id, new in arrived.items():
        for number, stored in db.execute(query, (learner, id)):
            packed = add_labels(stored if isinstance(stored, bytes) else b"", pack_labels(new))
            if packed != stored:
                changes.append((packed, number))
    db.executemany("UPDATE served SET labelled = ? WHERE number = ?", changes)


def erase(db: sqlite3.Connection, learner: int, id: str) -> bool:
    """Delete an event or its tombstone, and overwrite its bytes; return whether there was one."""
    query = "SELECT number, length(data) FROM served WHERE learner = ? AND id = ?"
    row = db.execute(query, (learner, id)).fetchone()
    if row is None:
        return False
    number, length = row
    db.execute("PRAGMA secure_delete = ON")  # also of whole pages
    try:
        db.execute("DELETE FROM served WHERE number = ?", (number,))
    finally:
        db.execute("PRAGMA secure_delete = FAST")
    if length is not None:
        counts = _CountsRow.of(db, learner)
        counts.drop(len(id.encode()) + length)
        counts.put(db, learner)
    return True


def clear(db: sqlite3.Connection, most: int) -> bool:
    """Delete at most `most` rows of deleted learners; return whether there may be more."""
    left = db.execute("SELECT learner FROM pending WHERE learner NOT IN (SELECT id FROM learner) LIMIT 1").fetchone()
    if left is None:
        return False
    room = most
    for rows in (
        "dropped IS NULL ORDER BY number",
        "dropped IS NOT NULL ORDER BY dropped",
    ):  # adjacent rows of the file
        query = f"DELETE FROM served WHERE number IN (SELECT number FROM served WHERE learner = ? AND {rows} LIMIT ?)"
        room -= db.execute(query, (*left, room)).rowcount
    if room > 0:
        db.execute("DELETE FROM pending WHERE learner = ?", left)
    return True


def _labels_of(labelled: int | bytes) -> list[ServedLabel] | None:
    """Decode the column `labelled`."""
    if isinstance(labelled, bytes):
        return unpack_labels(labelled)
    return [] if labelled else None


def _event_of(id: str, time: float | None, data: bytes) -> ServedEvent:
    return ServedEvent(id, math.nan if time is None else time, data)
