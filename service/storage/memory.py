"""The store in memory: the protocol in plain Python, for tests. It does not outlive the process."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from service.errors import BehindLog, LearnerGone, LostRecords, StoreUnavailable
from service.names import called_in_full
from service.storage.served_labels import ServedLabel, add_labels, pack_labels, unpack_labels
from service.storage.store_protocol import (
    AHEAD,
    BEHIND,
    CLOSED,
    DELETIONS,
    DROPS,
    LOG_DELETED,
    NOTICES,
    OTHER,
    REPLY_BYTES,
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
    latest,
    load_newest_stepwise,
    merge_notices,
)

__all__ = ["MemoryStore"]


def _size(event: ServedEvent) -> int:
    return len(event.id.encode()) + len(event.data)


@dataclass
class _ServedLog:
    """The served events of one learner, oldest first, and the tombstones of dropped ones."""

    events: OrderedDict[str, ServedEvent] = field(default_factory=OrderedDict)
    numbers: dict[str, int] = field(default_factory=dict)  # id -> ordinal among all events ever served
    labels: dict[str, bytes] = field(default_factory=dict)  # id -> the labels that arrived, see `served_labels`
    count: int = 0  # events ever served
    settled: int = 0  # the cursor: an ordinal
    bytes: int = 0
    expired: int = 0
    evicted: int = 0
    tombstones: OrderedDict[str, int] = field(default_factory=OrderedDict)  # id -> ordinal among all drops
    removed: int = 0  # drops whose tombstones were removed

    def pending(self) -> ServedCounts:
        return ServedCounts(len(self.events), self.bytes, self.expired, self.evicted)

    @property
    def dropped(self) -> int:
        """Count all drops."""
        return self.expired + self.evicted

    def take(self, id: str) -> bool:
        """Remove an event; return whether it was stored."""
        event = self.events.pop(id, None)
        if event is None:
            return False
        del self.numbers[id]
        self.labels.pop(id, None)
        self.bytes -= _size(event)
        return True

    def serve(self, remembered: Sequence[ServedEvent], limits: ServedLimits) -> None:
        """Store events, then drop those that expired or exceed the limits."""
        events = latest(remembered)
        for event in events:
            self.take(event.id)
            self.tombstones.pop(event.id, None)
            self.count += 1
            self.numbers[event.id] = self.count
            self.events[event.id] = event
            self.bytes += _size(event)
        for _ in range(len(events) + DROPS):
            oldest = next(iter(self.events.values()), None)
            if oldest is None:
                break
            if oldest.time < limits.before:
                self.expired += 1
            elif len(self.events) > limits.events or self.bytes > limits.bytes:
                self.evicted += 1
            else:
                break
            self.take(oldest.id)
            self.bury(oldest.id)
        excess = self.dropped - limits.events - self.removed
        self.removed += max(0, min(excess, len(events) + DROPS))
        while self.tombstones and next(iter(self.tombstones.values())) <= self.removed:
            self.tombstones.popitem(last=False)

    def newest(self, limit: int, below: int) -> ServedPage:
        """List events below a number, newest served first: as many as fit in one reply."""
        newest = reversed(self.events.values())
        return self._page((event for event in newest if not below or self.numbers[event.id] < below), limit)

    def following(self, limit: int, after: int) -> ServedPage:
        """List events above a number, oldest served first: as many as fit in one reply."""
        return self._page((event for event in self.events.values() if self.numbers[event.id] > after), limit)

    def _page(self, listed: Iterable[ServedEvent], limit: int) -> ServedPage:
        events: list[ServedEvent] = []
        numbers: list[int] = []
        labels: list[list[ServedLabel] | None] = []
        size = 0
        for event in listed:
            size += len(event.data)
            if len(events) == limit or (events and size > REPLY_BYTES):
                return ServedPage(events, numbers, labels, more=True)
            events.append(event)
            numbers.append(self.numbers[event.id])
            labels.append(self.labels_of(event.id))
        return ServedPage(events, numbers, labels, more=False)

    def labels_of(self, id: str) -> list[ServedLabel] | None:
        packed = self.labels.get(id)
        return None if packed is None else unpack_labels(packed)

    def bury(self, id: str) -> None:
        """Leave a tombstone for an event that was dropped and counted."""
        self.tombstones[id] = self.dropped

    def oldest(self, before: float, limit: int, after: int) -> ExpiredEvents:
        """List expired events after the cursor, oldest first: as many as fit in one reply."""
        events: list[ServedEvent] = []
        size, large = 0, False
        upto = max(self.settled, after)
        for event in self.events.values():
            number = self.numbers[event.id]
            if number <= max(self.settled, after):
                continue
            size += len(event.data)
            large = bool(events) and size > REPLY_BYTES
            if large or len(events) >= limit or not event.time < before:
                break
            events.append(event)
            upto = number
        return ExpiredEvents(upto, events, [event.id in self.labels for event in events], large or len(events) == limit)


@dataclass
class _MemoryLog:
    """The data of one learner: entries `trimmed + 1` to `head`, snapshots by position, served events."""

    birth: bytes
    head: int
    trimmed: int = 0
    entries: list[LogEntry] = field(default_factory=list)
    snapshots: dict[int, tuple[bytes, float]] = field(default_factory=dict)  # position -> bytes and time
    served: _ServedLog = field(default_factory=_ServedLog)
    lease: tuple[bytes, float] = (b"", 0.0)  # holder, and expiry on the monotonic clock
    bookmarks: dict[str, int] = field(default_factory=dict)  # reader -> place

    def token(self, learner: str, position: int) -> bytes:
        """Return the token of the record at a position; empty if it was trimmed.

        Raises `LostRecords` beyond the log's end.
        """
        if position > self.head:
            raise LostRecords(AHEAD.format(log=called_in_full(learner), after=position, head=self.head))
        return self.entries[position - self.trimmed - 1].token if position > self.trimmed else b""

    def compare(self, learner: str, position: int, expected_token: bytes) -> None:
        """Raise `LostRecords` if another record is at the position."""
        if expected_token and self.token(learner, position) not in (b"", expected_token):
            raise LostRecords(OTHER.format(log=called_in_full(learner), after=position))

    def after(self, position: int, limit: int | None = None) -> list[LogEntry]:
        """List entries after `position`, which is not trimmed: as many as fit in one reply."""
        entries: list[LogEntry] = []
        size = 0
        for entry in self.entries[position - self.trimmed :][:limit]:
            size += len(entry.data)
            if entries and size > REPLY_BYTES:
                break
            entries.append(entry)
        return entries


@dataclass
class _Publications:
    """The latest publications of all nodes."""

    recent: deque[tuple[bytes, Mapping[str, LogNotice]]] = field(default_factory=lambda: deque(maxlen=NOTICES))
    count: int = 0  # of all publications
    changed: asyncio.Event = field(default_factory=asyncio.Event)  # replaced after each publication

    def add(self, node: bytes, moved: Mapping[str, LogNotice]) -> None:
        self.recent.append((node, moved))
        self.count += 1
        self.changed.set()
        self.changed = asyncio.Event()

    def since(self, node: bytes, after: int) -> dict[str, LogNotice] | None:
        """Merge what other nodes published after a count; None if some of it was forgotten."""
        if not self.count - len(self.recent) <= after <= self.count:
            return None
        last = list(self.recent)[len(self.recent) - (self.count - after) :]
        return merge_notices(moved for other, moved in last if other != node)


class MemoryStore:
    """Implements `Store` except for durability. `like` shares the data of another one, as two nodes share one Redis."""

    caution: str | None = None
    fault: str | None = None
    stall: str | None = None
    certain = False

    def __init__(self, like: MemoryStore | None = None) -> None:
        self._logs: dict[str, _MemoryLog] = {} if like is None else like._logs
        self._deleted: deque[bytes] = deque(maxlen=DELETIONS) if like is None else like._deleted
        self._publications: _Publications = _Publications() if like is None else like._publications
        self._closed = False

    def _log(self, learner: str, birth: bytes) -> _MemoryLog:
        self._check_open()
        log = self._logs.get(learner)
        if log is None or log.birth != birth:
            raise LearnerGone(LOG_DELETED.format(log=called_in_full(learner)))
        return log

    def _checked_log(self, learner: str, birth: bytes, after: int, expected_token: bytes) -> _MemoryLog:
        """Return the log if it reaches back to `after` and has the expected record there."""
        log = self._log(learner, birth)
        log.compare(learner, after, expected_token)
        if after < log.trimmed:
            raise BehindLog(BEHIND.format(log=called_in_full(learner), after=after, trimmed=log.trimmed))
        return log

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable(CLOSED)

    async def create(self, learner: str, token: bytes, data: bytes) -> LogHead:
        self._check_open()
        log = self._logs.get(learner)
        if log is None:
            log = self._logs[learner] = _MemoryLog(birth=token, head=1, entries=[LogEntry(1, token, data)])
        return LogHead(log.birth, log.head)

    async def append(
        self,
        learner: str,
        birth: bytes,
        records: Sequence[tuple[bytes, bytes]],
        after: int,
        expected_token: bytes = b"",
        reserve: bool = False,  # noqa: ARG002 (the memory of the process is the limit)
    ) -> list[LogEntry]:
        log = self._checked_log(learner, birth, after, expected_token)
        if after > log.head:
            raise LostRecords(AHEAD.format(log=called_in_full(learner), after=after, head=log.head))
        logged_tokens = {entry.token for entry in log.entries[after - log.trimmed :]}
        for token, data in records:
            if token not in logged_tokens:
                logged_tokens.add(token)
                log.head += 1
                log.entries.append(LogEntry(log.head, token, data))
        return log.after(after)

    async def read(
        self, learner: str, birth: bytes, after: int, limit: int, expected_token: bytes = b""
    ) -> list[LogEntry]:
        return self._checked_log(learner, birth, after, expected_token).after(after, limit)

    async def token(self, learner: str, birth: bytes, position: int) -> bytes:
        return self._log(learner, birth).token(learner, position)

    async def head(self, learner: str) -> LogHead | None:
        self._check_open()
        log = self._logs.get(learner)
        return None if log is None else LogHead(log.birth, log.head)

    async def heads(self) -> dict[str, LogHead]:
        self._check_open()
        return {learner: LogHead(log.birth, log.head) for learner, log in self._logs.items()}

    async def losses(self) -> dict[str, bytes]:
        return {}  # the list is made of the logs

    async def delete(self, learner: str, birth: bytes) -> None:
        self._check_open()
        self._deleted.append(birth)
        self._log(learner, birth)
        del self._logs[learner]

    async def deleted(self, births: Sequence[bytes]) -> list[bytes]:
        self._check_open()
        return [birth for birth in births if birth in self._deleted]

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
        log = self._log(learner, birth)
        if position > log.head:
            raise LostRecords(AHEAD.format(log=called_in_full(learner), after=position, head=log.head))
        log.compare(learner, position, expected_token)
        if position < log.trimmed:
            return None  # newer snapshots are retained, and the log after this one is trimmed
        info = SnapshotInfo(position, len(snapshot), time.time())
        log.snapshots[position] = (snapshot, info.time)
        for old in sorted(log.snapshots, reverse=True)[keep:]:
            del log.snapshots[old]
        if trim and log.snapshots:
            oldest = min(log.snapshots)
            del log.entries[: oldest - log.trimmed]
            log.trimmed = oldest
        return info if position in log.snapshots else None

    async def prune(self, learner: str, birth: bytes, position: int, trim: bool) -> None:
        log = self._log(learner, birth)
        if position in log.snapshots:
            for old in [old for old in log.snapshots if old < position]:
                del log.snapshots[old]
            if trim:
                del log.entries[: max(position - log.trimmed, 0)]
                log.trimmed = max(position, log.trimmed)

    async def load(self, learner: str, birth: bytes, position: int | None = None) -> tuple[int, bytes] | None:
        log = self._log(learner, birth)
        newest = max(log.snapshots, default=None) if position is None else position
        if newest is None or newest not in log.snapshots:
            return None
        return newest, log.snapshots[newest][0]

    async def snapshots(self, learner: str, birth: bytes) -> list[SnapshotInfo]:
        retained = self._log(learner, birth).snapshots
        return [
            SnapshotInfo(position, len(retained[position][0]), retained[position][1])
            for position in sorted(retained)[::-1]
        ]

    async def load_newest(self, learner: str, birth: bytes) -> NewestSnapshot:
        return await load_newest_stepwise(self, learner, birth)

    async def lease(self, learner: str, birth: bytes, node: bytes, seconds: float) -> bool:
        log = self._log(learner, birth)
        now = time.monotonic()
        holder, until = log.lease
        if holder != node and now < until:
            return False
        log.lease = node, now + seconds
        return True

    async def publish(self, node: bytes, moved: Mapping[str, LogNotice]) -> None:
        self._check_open()
        self._publications.add(node, dict(moved))

    async def poll(self, node: bytes, after: bytes, seconds: float) -> tuple[bytes, dict[str, LogNotice] | None]:
        self._check_open()
        publications = self._publications
        if not after:
            return b"%d" % publications.count, None
        ends = time.monotonic() + seconds
        while (notices := publications.since(node, int(after))) is not None and not notices and time.monotonic() < ends:
            with suppress(TimeoutError):
                async with asyncio.timeout(ends - time.monotonic()):
                    await publications.changed.wait()
            self._check_open()
        return b"%d" % publications.count, notices

    async def serve(
        self,
        learner: str,
        birth: bytes,
        record: tuple[bytes, bytes],
        after: int,
        remembered: Sequence[ServedEvent],
        limits: ServedLimits,
    ) -> ServeReceipt:
        log = self._log(learner, birth)
        token, data = record
        position = next((entry.position for entry in log.entries if entry.token == token), None)
        if position is None:
            if after < log.trimmed:
                raise BehindLog(BEHIND.format(log=called_in_full(learner), after=after, trimmed=log.trimmed))
            position = log.head = log.head + 1
            log.entries.append(LogEntry(log.head, token, data))
            log.served.serve(remembered, limits)
        before = next((entry.token for entry in log.entries if entry.position == position - 1), b"")
        return ServeReceipt(position, before, log.served.pending())

    async def recall(self, learner: str, birth: bytes, ids: Sequence[str]) -> list[ServedEvent | bool | None]:
        served = self._log(learner, birth).served
        return [served.events.get(id, True if id in served.tombstones else None) for id in ids]

    async def labels(self, learner: str, birth: bytes, ids: Sequence[str]) -> list[list[ServedLabel] | None]:
        served = self._log(learner, birth).served
        return [served.labels_of(id) for id in ids]

    async def served(self, learner: str, birth: bytes, limit: int, below: int = 0) -> ServedPage:
        return self._log(learner, birth).served.newest(limit, below)

    async def served_after(self, learner: str, birth: bytes, limit: int, after: int) -> ServedPage:
        return self._log(learner, birth).served.following(limit, after)

    async def expired(self, learner: str, birth: bytes, before: float, limit: int, after: int = 0) -> ExpiredEvents:
        return self._log(learner, birth).served.oldest(before, limit, after)

    async def settle(self, learner: str, birth: bytes, upto: int) -> None:
        served = self._log(learner, birth).served
        served.settled = max(served.settled, upto)

    async def reopen(self, learner: str, birth: bytes) -> None:
        self._log(learner, birth).served.settled = 0

    async def labelled(self, learner: str, birth: bytes, labels: Mapping[str, Sequence[ServedLabel]]) -> None:
        served = self._log(learner, birth).served
        for id in served.events.keys() & labels.keys():
            served.labels[id] = add_labels(served.labels.get(id, b""), pack_labels(labels[id]))

    async def erase(self, learner: str, birth: bytes, id: str) -> bool:
        served = self._log(learner, birth).served
        return served.take(id) or served.tombstones.pop(id, None) is not None

    async def pending(self, learner: str, birth: bytes) -> ServedCounts:
        return self._log(learner, birth).served.pending()

    async def bookmark(self, learner: str, birth: bytes, reader: str) -> int | None:
        return self._log(learner, birth).bookmarks.get(reader)

    async def move_bookmark(self, learner: str, birth: bytes, reader: str, place: int) -> None:
        self._log(learner, birth).bookmarks[reader] = place

    async def close(self) -> None:
        self._closed = True
