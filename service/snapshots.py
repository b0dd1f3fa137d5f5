"""The snapshots of one machine on this node: when one is due, and how it comes into the store.

The state is copied while the machine is at rest, and packed and written behind; what is not written yet is in the log.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from service.codec import pack_snapshot
from service.errors import ServiceError, StoreUnavailable
from service.node import Node
from service.store import SnapshotInfo

__all__ = ["Owner", "Snapshots"]

logger = logging.getLogger("rarestream.snapshots")


class Owner(Protocol):
    """What snapshots need of the machine's host."""

    name: str
    birth: bytes
    position: int
    token: bytes  # of the record there
    node: Node

    @property
    def machine(self) -> Any:
        """What has `config` and `state()`."""
        ...

    async def settle_up(self) -> None:
        """See to what has to be in the store before a snapshot."""
        ...

    def put(self, run: Callable[[], Awaitable[None]], first: bool = False) -> asyncio.Future[None]:
        """Have something done while the machine is at rest."""
        ...


class Snapshots:
    """At most one is written at a time behind the machine's back."""

    def __init__(self, owner: Owner, newest: SnapshotInfo | None) -> None:
        self._owner = owner
        self.newest = newest
        self._changed = 0  # events since the newest one
        self._due = time.monotonic() + owner.node.settings.snapshot_seconds
        self._not_before = 0.0  # after one has failed, the next is not tried at once
        self._saving: asyncio.Task[None] | None = None

    @property
    def unsaved(self) -> int:
        """Events, and other records, since the newest one."""
        return self._changed

    @property
    def changed(self) -> bool:
        """Whether anything has happened since the newest one."""
        return self._changed > 0

    def note(self, events: int) -> None:
        """So many events, or another record, were learnt."""
        self._changed += events

    @property
    def late(self) -> bool:
        """Whether one is due by time."""
        return self.changed and time.monotonic() >= self._due

    def consider(self) -> None:
        """Take one if it is due, by events or by time."""
        due = self.late or self._changed >= self._owner.node.settings.snapshot_events
        if due and time.monotonic() >= self._not_before and (self._saving is None or self._saving.done()):
            self._owner.put(self._begin, first=True)

    async def save(self) -> None:
        """Take one now; written on return. Only in what was `put`."""
        await self._owner.settle_up()
        await self._write(*await self._copy())

    async def close(self) -> None:
        """Wait until the one that is being written is."""
        if self._saving is not None:
            await asyncio.wait([self._saving])

    async def _begin(self) -> None:
        try:
            await self._owner.settle_up()
        except StoreUnavailable as error:
            self._failed(error)
            return
        changed = self._changed
        copy = await self._copy()

        async def write() -> None:
            try:
                await self._write(*copy)
            except ServiceError as error:
                self._changed += changed  # they are in no snapshot yet
                self._failed(error)

        self._saving = asyncio.create_task(write(), name=f"snapshot of {self._owner.name}")

    def _failed(self, error: ServiceError) -> None:
        """Nothing is lost: the log has it all. The next one is tried when it is due by time."""
        self._due = self._not_before = time.monotonic() + self._owner.node.settings.snapshot_seconds
        logger.warning("no snapshot of %s: %s", self._owner.name, error.detail)

    async def _copy(self) -> tuple[int, bytes, Callable[[], bytes]]:
        owner = self._owner
        position, token = owner.position, owner.token
        config, state = owner.machine.config, owner.machine.state()
        copied = await owner.node.in_thread(lambda: {name: array.copy() for name, array in state.items()})
        self._changed = 0
        self._due = time.monotonic() + owner.node.settings.snapshot_seconds
        return position, token, lambda: pack_snapshot(position, config, copied)

    async def _write(self, position: int, token: bytes, pack: Callable[[], bytes]) -> None:
        owner = self._owner
        data = await owner.node.in_thread(pack)
        kept, trim = owner.node.settings.snapshots_kept, owner.node.settings.trim_log
        saving = owner.node.store.save(owner.name, owner.birth, position, data, kept, trim, token)
        await owner.node.reached(saving)
        self.newest = SnapshotInfo(position, len(data), time.time())
