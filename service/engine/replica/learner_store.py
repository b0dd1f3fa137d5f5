"""The store as one replica sees it: the log, the snapshots and the served events of one learner or group.

`service.storage.Store` says what each call does. `Node.call` says how long it waits, and what it raises.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from service.engine.node_resources import Node
from service.errors import LearnerGone
from service.storage import (
    ExpiredEvents,
    LogEntry,
    ServedEvent,
    ServedLabel,
    ServedLimits,
    ServedPage,
    ServeReceipt,
    SnapshotInfo,
)

__all__ = ["LearnerStore"]

Result = TypeVar("Result")


class LearnerStore:
    """What the store has of one learner or group."""

    def __init__(self, node: Node, name: str, birth: bytes) -> None:
        self.name = name
        self.birth = birth
        self._node = node
        self._store = node.store

    async def _call(self, request: Coroutine[Any, Any, Result], size: int = 0) -> Result:
        """Await a call of the store; if the store no longer has the log, find out whether it was deleted or lost."""
        try:
            return await self._node.call(request, size)
        except LearnerGone as error:
            raise await self._node.explain_loss(self.name, self.birth, error) from None

    # The log

    async def append(
        self, record: tuple[bytes, bytes], after: int, expected_token: bytes, reserve: bool
    ) -> list[LogEntry]:
        """Append a record; return every entry after `after`."""
        append = self._store.append(self.name, self.birth, [record], after, expected_token, reserve)
        return await self._call(append, 0 if reserve else len(record[1]))

    async def read(self, after: int, limit: int, expected_token: bytes = b"") -> list[LogEntry]:
        """Return up to `limit` entries after `after`."""
        return await self._call(self._store.read(self.name, self.birth, after, limit, expected_token))

    # Snapshots

    async def save(
        self, position: int, snapshot: bytes, keep: int, trim: bool, expected_token: bytes
    ) -> SnapshotInfo | None:
        """Store a snapshot, and delete all but the newest `keep`."""
        save = self._store.save(self.name, self.birth, position, snapshot, keep, trim, expected_token)
        return await self._call(save, len(snapshot))

    async def snapshots(self) -> list[SnapshotInfo]:
        """List the retained snapshots, newest first."""
        return await self._call(self._store.snapshots(self.name, self.birth))

    async def load(self, position: int) -> tuple[int, bytes] | None:
        """Load the snapshot at a position."""
        return await self._call(self._store.load(self.name, self.birth, position))

    async def prune(self, position: int, trim: bool) -> None:
        """Delete the snapshots before a position, and with `trim` the log up to there."""
        await self._call(self._store.prune(self.name, self.birth, position, trim))

    async def lease(self, seconds: float) -> bool:
        """Acquire, extend or release this node's lease."""
        return await self._call(self._store.lease(self.name, self.birth, self._node.id, seconds))

    # Served events

    async def serve(
        self, record: tuple[bytes, bytes], after: int, remembered: Sequence[ServedEvent], limits: ServedLimits
    ) -> ServeReceipt:
        """Append a record and store served events, in one atomic step."""
        serve = self._store.serve(self.name, self.birth, record, after, remembered, limits)
        return await self._call(serve, len(record[1]) + sum(len(event.data) for event in remembered))

    async def recall(self, ids: Sequence[str]) -> list[ServedEvent | bool | None]:
        """Look up served events by id."""
        return await self._call(self._store.recall(self.name, self.birth, ids))

    async def served(self, limit: int, below: int = 0) -> ServedPage:
        """List served events, newest first."""
        return await self._call(self._store.served(self.name, self.birth, limit, below))

    async def served_after(self, limit: int, after: int) -> ServedPage:
        """List served events above a number, oldest first."""
        return await self._call(self._store.served_after(self.name, self.birth, limit, after))

    async def expired(self, before: float, limit: int, after: int) -> ExpiredEvents:
        """List served events that expired."""
        return await self._call(self._store.expired(self.name, self.birth, before, limit, after))

    async def labels(self, ids: Sequence[str]) -> list[list[ServedLabel] | None]:
        """Return the labels of served events that are stored."""
        return await self._call(self._store.labels(self.name, self.birth, ids))

    async def labelled(self, labels: Mapping[str, Sequence[ServedLabel]]) -> None:
        """Add the labels of these events that arrived."""
        await self._call(self._store.labelled(self.name, self.birth, labels))

    async def settle(self, upto: int) -> None:
        """Move the cursor of expired events forward."""
        await self._call(self._store.settle(self.name, self.birth, upto))

    async def reopen(self) -> None:
        """Move the cursor of expired events back to the beginning."""
        await self._call(self._store.reopen(self.name, self.birth))

    # Bookmarks

    async def bookmark(self, reader: str) -> int | None:
        """Return the place of a reader; None: it noted none."""
        return await self._call(self._store.bookmark(self.name, self.birth, reader))

    async def move_bookmark(self, reader: str, place: int) -> None:
        """Note the place of a reader."""
        await self._call(self._store.move_bookmark(self.name, self.birth, reader, place))
