"""The store in memory: the protocol in plain Python, for tests. Nothing survives the process."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from service.errors import BehindLog, LearnerGone, StoreUnavailable
from service.store import AHEAD, BEHIND, CLOSED, GONE, REPLY_BYTES, Entry, Head, SnapshotInfo

__all__ = ["MemoryStore"]


@dataclass
class _Log:
    """What is kept of one learner: entries `trimmed + 1` to `head`, and the snapshots by position."""

    birth: bytes
    head: int
    trimmed: int = 0
    entries: list[Entry] = field(default_factory=list)
    snapshots: dict[int, tuple[bytes, float]] = field(default_factory=dict)  # bytes and time

    def after(self, position: int, limit: int | None = None) -> list[Entry]:
        """Entries after `position`, which is not behind the log: as many as one reply carries."""
        found: list[Entry] = []
        size = 0
        for entry in self.entries[position - self.trimmed :][:limit]:
            size += len(entry.data)
            if found and size > REPLY_BYTES:
                break
            found.append(entry)
        return found


class MemoryStore:
    """Keeps the promises of `Store` but the durable ones. `like` shares its data, as two nodes share one Redis."""

    def __init__(self, like: MemoryStore | None = None) -> None:
        self._logs: dict[str, _Log] = {} if like is None else like._logs
        self._closed = False

    def _log(self, learner: str, birth: bytes) -> _Log:
        self._open()
        log = self._logs.get(learner)
        if log is None or log.birth != birth:
            raise LearnerGone(GONE.format(learner=learner))
        return log

    def _reaching(self, learner: str, birth: bytes, after: int) -> _Log:
        """The log, where it reaches back to `after`."""
        log = self._log(learner, birth)
        if after < log.trimmed:
            raise BehindLog(BEHIND.format(learner=learner, after=after, trimmed=log.trimmed))
        return log

    def _open(self) -> None:
        if self._closed:
            raise StoreUnavailable(CLOSED)

    async def create(self, learner: str, token: bytes, data: bytes) -> Head:
        self._open()
        log = self._logs.get(learner)
        if log is None:
            log = self._logs[learner] = _Log(birth=token, head=1, entries=[Entry(1, token, data)])
        return Head(log.birth, log.head)

    async def append(
        self, learner: str, birth: bytes, records: Sequence[tuple[bytes, bytes]], after: int
    ) -> list[Entry]:
        log = self._reaching(learner, birth, after)
        if after > log.head:
            raise StoreUnavailable(AHEAD.format(learner=learner, after=after, head=log.head))
        standing = {entry.token for entry in log.entries[after - log.trimmed :]}
        for token, data in records:
            if token not in standing:
                standing.add(token)
                log.head += 1
                log.entries.append(Entry(log.head, token, data))
        return log.after(after)

    async def read(self, learner: str, birth: bytes, after: int, limit: int) -> list[Entry]:
        return self._reaching(learner, birth, after).after(after, limit)

    async def heads(self) -> dict[str, Head]:
        self._open()
        return {learner: Head(log.birth, log.head) for learner, log in self._logs.items()}

    async def delete(self, learner: str, birth: bytes) -> None:
        self._log(learner, birth)
        del self._logs[learner]

    async def save(self, learner: str, birth: bytes, position: int, snapshot: bytes, keep: int, trim: bool) -> None:
        log = self._log(learner, birth)
        if position > log.head:
            raise StoreUnavailable(AHEAD.format(learner=learner, after=position, head=log.head))
        if position < log.trimmed:
            return  # newer ones are retained, and the log that would lead on from this one is gone
        log.snapshots[position] = (snapshot, time.time())
        for old in sorted(log.snapshots, reverse=True)[keep:]:
            del log.snapshots[old]
        if trim and log.snapshots:
            oldest = min(log.snapshots)
            del log.entries[: oldest - log.trimmed]
            log.trimmed = oldest

    async def load(self, learner: str, birth: bytes, position: int | None = None) -> tuple[int, bytes] | None:
        log = self._log(learner, birth)
        chosen = max(log.snapshots, default=None) if position is None else position
        if chosen is None or chosen not in log.snapshots:
            return None
        return chosen, log.snapshots[chosen][0]

    async def snapshots(self, learner: str, birth: bytes) -> list[SnapshotInfo]:
        kept = self._log(learner, birth).snapshots
        return [SnapshotInfo(position, len(kept[position][0]), kept[position][1]) for position in sorted(kept)[::-1]]

    async def close(self) -> None:
        self._closed = True
