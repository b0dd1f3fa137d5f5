"""How nodes over one store hear of each other at once: each tells what has moved, and listens to what others tell.

What is told is only a hint. A node that dies between an append and its ring, or does not hear one, costs the others
time, nothing else: all look at all heads now and then (`following.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from service.errors import StoreError
from service.storage import Moved, SnapshotInfo, Store

__all__ = ["Notifier"]

logger = logging.getLogger("rarestream.bell")

_PAUSE = 0.02  # seconds between two rings of a node, and between two times that it listens


class Notifier:
    """That of one node."""

    def __init__(self, store: Store, node: bytes) -> None:
        """`node`: by which the store knows who rang."""
        self._store = store
        self._node = node
        self._moved: dict[str, Moved] = {}  # not told yet
        self._ringing: asyncio.Task[None] | None = None

    def moved(self, log: str, position: int, snapshot: SnapshotInfo | None = None) -> None:
        """This node has appended up to `position`, or deleted the log (0), or saved a snapshot.

        It is told at once after a silence, otherwise together with all else that comes within some milliseconds. About
        a microsecond.
        """
        told = Moved(position, snapshot)
        before = self._moved.get(log)
        self._moved[log] = told if before is None else told.after(before)
        if self._ringing is None:
            self._ringing = asyncio.create_task(self._ring(), name="ring")

    async def _ring(self) -> None:
        try:
            while self._moved:
                await self._tell()
                await asyncio.sleep(_PAUSE)
        finally:
            self._ringing = None

    async def _tell(self) -> None:
        moved, self._moved = self._moved, {}
        try:
            await self._store.ring(self._node, moved)
        except StoreError as error:
            logger.debug("%d logs have moved, and nobody was told: %s", len(moved), error.detail)

    async def listen(self, hear: Callable[[dict[str, Moved] | None], None], seconds: float) -> None:
        """Hand on what other nodes tell, by the logs' names; None: anything may have moved. Until it is cancelled.

        `seconds`: that a call of the store may wait, and that pass before the next where it failed.
        """
        after = b""
        while True:
            try:
                after, told = await self._store.rung(self._node, after, seconds)
            except StoreError as error:
                logger.debug("other nodes are not heard: %s", error.detail)
                after = b""  # whatever was told meanwhile
                await asyncio.sleep(seconds)
                continue
            if told is None or told:
                hear(told)
            await asyncio.sleep(_PAUSE)  # what comes meanwhile is heard together; our own, too, wakes us up

    async def close(self) -> None:
        """Tell what has not been told."""
        ringing = self._ringing
        if ringing is not None:
            ringing.cancel()
            await asyncio.wait([ringing])
        if self._moved:
            await self._tell()
