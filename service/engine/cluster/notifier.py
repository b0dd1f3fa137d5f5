"""Announces appended records to the other nodes over a store, and subscribes to their announcements.

An announcement is only a hint. If a node dies before its announcement, or misses one, the others only lose time,
because every node checks all heads now and then (`store_sync.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from service.errors import StoreError
from service.storage import LogNotice, SnapshotInfo, Store
from service.telemetry import BackgroundTasks

__all__ = ["Notifier"]

logger = logging.getLogger("rarestream.notifier")

_PAUSE = 0.02  # seconds between two announcements of a node, and between two polls


class Notifier:
    """The notifier of one node."""

    def __init__(self, store: Store, node: bytes, background: BackgroundTasks) -> None:
        """`node`: the sender of announcements in the store."""
        self._background = background
        self._store = store
        self._node = node
        self._moves: dict[str, LogNotice] = {}  # not announced yet
        self._publishing: asyncio.Task[None] | None = None

    def announce(self, log: str, position: int, snapshot: SnapshotInfo | None = None) -> None:
        """Announce that this node has appended up to `position`, deleted the log (0), or saved a snapshot.

        The first announcement after a pause is sent at once, those of the next milliseconds together. Takes about a
        microsecond.
        """
        move = LogNotice(position, snapshot)
        before = self._moves.get(log)
        self._moves[log] = move if before is None else move.merge(before)
        if self._publishing is None:
            publishing = asyncio.create_task(self._publish_all(), name="notify")
            self._publishing = self._background.watch(publishing, "announce records")

    async def subscribe(self, callback: Callable[[dict[str, LogNotice] | None], None], seconds: float) -> None:
        """Call back with the announcements of other nodes, by log, until cancelled; None: any log may have moved.

        `seconds`: how long a call of the store may wait, and the pause after a failure.
        """
        after = b""
        while True:
            try:
                after, moves = await self._store.poll(self._node, after, seconds)
            except StoreError as error:
                logger.debug("cannot poll for announcements of other nodes: %s", error.detail)
                after = b""  # the next poll also returns what was announced meanwhile
                await asyncio.sleep(seconds)
                continue
            if moves is None or moves:
                callback(moves)
            await asyncio.sleep(_PAUSE)  # collects several announcements; our own wake us too

    async def close(self) -> None:
        """Send the pending announcements."""
        publishing = self._publishing
        if publishing is not None:
            publishing.cancel()
            await asyncio.wait([publishing])
        if self._moves:
            await self._publish()

    async def _publish_all(self) -> None:
        try:
            while self._moves:
                await self._publish()
                await asyncio.sleep(_PAUSE)
        finally:
            self._publishing = None

    async def _publish(self) -> None:
        moves, self._moves = self._moves, {}
        try:
            await self._store.publish(self._node, moves)
        except StoreError as error:
            logger.debug("cannot announce the new records of %d logs: %s", len(moves), error.detail)
