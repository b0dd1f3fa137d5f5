"""The store in memory: the protocol in plain Python, for tests. Nothing survives the process."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from service.errors import BehindLog, LearnerGone, LostRecords, StoreUnavailable
from service.names import called_in_full
from service.storage.store_protocol import (
    AHEAD,
    BEHIND,
    CLOSED,
    DROPS,
    GONE,
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
    ServeReceipt,
    SnapshotInfo,
    gathered,
    latest,
    together,
)

__all__ = ["MemoryStore"]


def _size(event: ServedEvent) -> int:
    return len(event.id.encode()) + len(event.data)


@dataclass
class _Served:
    """What is remembered of one learner, oldest served first, and the tombstones of what is not any more."""

    events: OrderedDict[str, ServedEvent] = field(default_factory=OrderedDict)
    numbers: dict[str, int] = field(default_factory=dict)  # id -> the how manieth event ever served it was
    labelled: set[str] = field(default_factory=set)  # those whose label has come
    count: int = 0  # ever served
    settled: int = 0  # the cursor, a number
    bytes: int = 0
    expired: int = 0
    evicted: int = 0
    tombstones: OrderedDict[str, int] = field(default_factory=OrderedDict)  # id -> the how manieth drop it was
    removed: int = 0  # drops whose tombstones have gone

    def pending(self) -> ServedCounts:
        return ServedCounts(len(self.events), self.bytes, self.expired, self.evicted)

    @property
    def dropped(self) -> int:
        """Ever."""
        return self.expired + self.evicted

    def take(self, id: str) -> bool:
        """Whether it was remembered; it is not any more."""
        event = self.events.pop(id, None)
        if event is None:
            return False
        del self.numbers[id]
        self.labelled.discard(id)
        self.bytes -= _size(event)
        return True

    def serve(self, remembered: Sequence[ServedEvent], bounds: ServedLimits) -> None:
        """Remember, then drop what has expired or exceeds the bounds."""
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
            if oldest.time < bounds.before:
                self.expired += 1
            elif len(self.events) > bounds.events or self.bytes > bounds.bytes:
                self.evicted += 1
            else:
                break
            self.take(oldest.id)
            self.bury(oldest.id)
        excess = self.dropped - bounds.events - self.removed
        self.removed += max(0, min(excess, len(events) + DROPS))
        while self.tombstones and next(iter(self.tombstones.values())) <= self.removed:
            self.tombstones.popitem(last=False)

    def bury(self, id: str) -> None:
        """Leave a tombstone for what was dropped and counted."""
        self.tombstones[id] = self.dropped

    def oldest(self, before: float, limit: int, after: int) -> ExpiredEvents:
        """What has expired after the cursor, from the oldest on: as many as one reply carries."""
        found: list[ServedEvent] = []
        size, large = 0, False
        upto = max(self.settled, after)
        for event in self.events.values():
            number = self.numbers[event.id]
            if number <= max(self.settled, after):
                continue
            size += len(event.data)
            large = bool(found) and size > REPLY_BYTES
            if large or len(found) >= limit or not event.time < before:
                break
            found.append(event)
            upto = number
        return ExpiredEvents(upto, found, [event.id in self.labelled for event in found], large or len(found) == limit)


@dataclass
class _Log:
    """What is kept of one learner: entries `trimmed + 1` to `head`, the snapshots by position, what was served."""

    birth: bytes
    head: int
    trimmed: int = 0
    entries: list[LogEntry] = field(default_factory=list)
    snapshots: dict[int, tuple[bytes, float]] = field(default_factory=dict)  # bytes and time
    served: _Served = field(default_factory=_Served)
    claim: tuple[bytes, float] = (b"", 0.0)  # the node that holds it, and until when, by the monotonic clock

    def token(self, learner: str, position: int) -> bytes:
        """The token of the record at a position, which the log has to have; empty where it was trimmed."""
        if position > self.head:
            raise LostRecords(AHEAD.format(log=called_in_full(learner), after=position, head=self.head))
        return self.entries[position - self.trimmed - 1].token if position > self.trimmed else b""

    def compare(self, learner: str, position: int, known: bytes) -> None:
        """Raise `LostRecords` where another record stands at a position."""
        if known and self.token(learner, position) not in (b"", known):
            raise LostRecords(OTHER.format(log=called_in_full(learner), after=position))

    def after(self, position: int, limit: int | None = None) -> list[LogEntry]:
        """Entries after `position`, which is not behind the log: as many as one reply carries."""
        found: list[LogEntry] = []
        size = 0
        for entry in self.entries[position - self.trimmed :][:limit]:
            size += len(entry.data)
            if found and size > REPLY_BYTES:
                break
            found.append(entry)
        return found


@dataclass
class _Bell:
    """What nodes told each other last."""

    told: deque[tuple[bytes, Mapping[str, LogNotice]]] = field(default_factory=lambda: deque(maxlen=NOTICES))
    count: int = 0  # ever
    rang: asyncio.Event = field(default_factory=asyncio.Event)  # another one after each time

    def ring(self, node: bytes, moved: Mapping[str, LogNotice]) -> None:
        self.told.append((node, moved))
        self.count += 1
        self.rang.set()
        self.rang = asyncio.Event()

    def since(self, node: bytes, after: int) -> dict[str, LogNotice] | None:
        """What others told; None where it is not known any more."""
        if not self.count - len(self.told) <= after <= self.count:
            return None
        last = list(self.told)[len(self.told) - (self.count - after) :]
        return together(moved for other, moved in last if other != node)


class MemoryStore:
    """Keeps the promises of `Store` but the durable ones. `like` shares its data, as two nodes share one Redis."""

    caution: str | None = None
    certain = False

    def __init__(self, like: MemoryStore | None = None) -> None:
        self._logs: dict[str, _Log] = {} if like is None else like._logs
        self._bell: _Bell = _Bell() if like is None else like._bell
        self._closed = False

    def _log(self, learner: str, birth: bytes) -> _Log:
        self._open()
        log = self._logs.get(learner)
        if log is None or log.birth != birth:
            raise LearnerGone(GONE.format(log=called_in_full(learner)))
        return log

    def _reaching(self, learner: str, birth: bytes, after: int, known: bytes) -> _Log:
        """The log, where it reaches back to `after`, and the record there is the one that is known."""
        log = self._log(learner, birth)
        log.compare(learner, after, known)
        if after < log.trimmed:
            raise BehindLog(BEHIND.format(log=called_in_full(learner), after=after, trimmed=log.trimmed))
        return log

    def _open(self) -> None:
        if self._closed:
            raise StoreUnavailable(CLOSED)

    async def create(self, learner: str, token: bytes, data: bytes) -> LogHead:
        self._open()
        log = self._logs.get(learner)
        if log is None:
            log = self._logs[learner] = _Log(birth=token, head=1, entries=[LogEntry(1, token, data)])
        return LogHead(log.birth, log.head)

    async def append(
        self, learner: str, birth: bytes, records: Sequence[tuple[bytes, bytes]], after: int, known: bytes = b""
    ) -> list[LogEntry]:
        log = self._reaching(learner, birth, after, known)
        if after > log.head:
            raise LostRecords(AHEAD.format(log=called_in_full(learner), after=after, head=log.head))
        standing = {entry.token for entry in log.entries[after - log.trimmed :]}
        for token, data in records:
            if token not in standing:
                standing.add(token)
                log.head += 1
                log.entries.append(LogEntry(log.head, token, data))
        return log.after(after)

    async def read(self, learner: str, birth: bytes, after: int, limit: int, known: bytes = b"") -> list[LogEntry]:
        return self._reaching(learner, birth, after, known).after(after, limit)

    async def token(self, learner: str, birth: bytes, position: int) -> bytes:
        return self._log(learner, birth).token(learner, position)

    async def head(self, learner: str) -> LogHead | None:
        self._open()
        log = self._logs.get(learner)
        return None if log is None else LogHead(log.birth, log.head)

    async def heads(self) -> dict[str, LogHead]:
        self._open()
        return {learner: LogHead(log.birth, log.head) for learner, log in self._logs.items()}

    async def delete(self, learner: str, birth: bytes) -> None:
        self._log(learner, birth)
        del self._logs[learner]

    async def save(
        self, learner: str, birth: bytes, position: int, snapshot: bytes, keep: int, trim: bool, known: bytes = b""
    ) -> SnapshotInfo | None:
        log = self._log(learner, birth)
        if position > log.head:
            raise LostRecords(AHEAD.format(log=called_in_full(learner), after=position, head=log.head))
        log.compare(learner, position, known)
        if position < log.trimmed:
            return None  # newer ones are retained, and the log that would lead on from this one is gone
        info = SnapshotInfo(position, len(snapshot), time.time())
        log.snapshots[position] = (snapshot, info.time)
        for old in sorted(log.snapshots, reverse=True)[keep:]:
            del log.snapshots[old]
        if trim and log.snapshots:
            oldest = min(log.snapshots)
            del log.entries[: oldest - log.trimmed]
            log.trimmed = oldest
        return info if position in log.snapshots else None

    async def load(self, learner: str, birth: bytes, position: int | None = None) -> tuple[int, bytes] | None:
        log = self._log(learner, birth)
        chosen = max(log.snapshots, default=None) if position is None else position
        if chosen is None or chosen not in log.snapshots:
            return None
        return chosen, log.snapshots[chosen][0]

    async def snapshots(self, learner: str, birth: bytes) -> list[SnapshotInfo]:
        kept = self._log(learner, birth).snapshots
        return [SnapshotInfo(position, len(kept[position][0]), kept[position][1]) for position in sorted(kept)[::-1]]

    async def load_newest(self, learner: str, birth: bytes) -> NewestSnapshot:
        return await gathered(self, learner, birth)

    async def lease(self, learner: str, birth: bytes, node: bytes, seconds: float) -> bool:
        log = self._log(learner, birth)
        now = time.monotonic()
        holder, until = log.claim
        if holder != node and now < until:
            return False
        log.claim = node, now + seconds
        return True

    async def publish(self, node: bytes, moved: Mapping[str, LogNotice]) -> None:
        self._open()
        self._bell.ring(node, dict(moved))

    async def poll(self, node: bytes, after: bytes, seconds: float) -> tuple[bytes, dict[str, LogNotice] | None]:
        self._open()
        bell = self._bell
        if not after:
            return b"%d" % bell.count, None
        ends = time.monotonic() + seconds
        while (told := bell.since(node, int(after))) is not None and not told and time.monotonic() < ends:
            with suppress(TimeoutError):
                async with asyncio.timeout(ends - time.monotonic()):
                    await bell.rang.wait()
            self._open()
        return b"%d" % bell.count, told

    async def serve(
        self,
        learner: str,
        birth: bytes,
        record: tuple[bytes, bytes],
        after: int,
        remembered: Sequence[ServedEvent],
        bounds: ServedLimits,
    ) -> ServeReceipt:
        log = self._log(learner, birth)
        token, data = record
        position = next((entry.position for entry in log.entries if entry.token == token), None)
        if position is None:
            if after < log.trimmed:
                raise BehindLog(BEHIND.format(log=called_in_full(learner), after=after, trimmed=log.trimmed))
            position = log.head = log.head + 1
            log.entries.append(LogEntry(log.head, token, data))
            log.served.serve(remembered, bounds)
        before = next((entry.token for entry in log.entries if entry.position == position - 1), b"")
        return ServeReceipt(position, before, log.served.pending())

    async def recall(self, learner: str, birth: bytes, ids: Sequence[str]) -> list[ServedEvent | bool | None]:
        served = self._log(learner, birth).served
        return [served.events.get(id, True if id in served.tombstones else None) for id in ids]

    async def expired(self, learner: str, birth: bytes, before: float, limit: int, after: int = 0) -> ExpiredEvents:
        return self._log(learner, birth).served.oldest(before, limit, after)

    async def settle(self, learner: str, birth: bytes, upto: int) -> None:
        served = self._log(learner, birth).served
        served.settled = max(served.settled, upto)

    async def reopen(self, learner: str, birth: bytes) -> None:
        self._log(learner, birth).served.settled = 0

    async def labelled(self, learner: str, birth: bytes, ids: Sequence[str]) -> None:
        served = self._log(learner, birth).served
        served.labelled.update(served.events.keys() & set(ids))

    async def pending(self, learner: str, birth: bytes) -> ServedCounts:
        return self._log(learner, birth).served.pending()

    async def close(self) -> None:
        self._closed = True
