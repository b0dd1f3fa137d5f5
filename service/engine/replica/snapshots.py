"""The snapshots of one machine on this node: when one is due, and how it comes into the store.

The state is copied while the machine is at rest, and packed and written behind; what is not written yet is in the log.

Of the nodes that have the same machine one takes the snapshots: the one that claims it (`claims.py`) when the first is
due, and again each time. The others hear of each (`bell.py`), and count from there as if it were their own.
"""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from service.engine.node import Node
from service.engine.records import pack_snapshot
from service.engine.replica.lease import Lease
from service.errors import ServiceError, StoreUnavailable
from service.names import called
from service.storage import SnapshotInfo

__all__ = ["Owner", "Snapshots"]

logger = logging.getLogger("rarestream.snapshots")

_LAST_SECONDS = 5.0  # that a stop waits for the one that is being written
_RECORDS = 2**16  # whose events are known one by one, for another node's snapshot that stands before the last of them


class Owner(Protocol):
    """What snapshots need of the machine's host."""

    name: str
    birth: bytes
    position: int
    token: bytes  # of the record there
    node: Node
    lease: Lease

    @property
    def machine(self) -> Any:
        """What has `config` and `state()`."""
        ...

    async def settle_up(self) -> None:
        """See to what has to be in the store before a snapshot."""
        ...

    def saved_elsewhere(self, position: int) -> None:
        """Another node has saved one."""
        ...

    def put(self, run: Callable[[], Awaitable[None]], first: bool = False) -> asyncio.Future[None]:
        """Have something done while the machine is at rest."""
        ...


class Snapshots:
    """At most one is written at a time behind the machine's back."""

    def __init__(self, owner: Owner, newest: SnapshotInfo | None) -> None:
        self._owner: Owner = weakref.proxy(owner)
        self.newest = newest
        self._events = 0  # that were learnt here, and other records,
        self._saved = 0  # and how many of these are in the newest one
        self._counted: deque[tuple[int, int]] = deque(maxlen=_RECORDS)  # position, and how many by then; since that one
        self._due = time.monotonic() + owner.node.settings.snapshot_seconds
        self._not_before = 0.0  # after one has failed, the next is not tried at once
        self._saving: asyncio.Task[None] | None = None

    @property
    def unsaved(self) -> int:
        """Events, and other records, since the newest one, of this node or another."""
        return self._events - self._saved

    def note(self, events: int) -> None:
        """So many events, or another record, were learnt, up to the owner's position."""
        if self.newest is not None and self._owner.position <= self.newest.position:
            return  # another node's snapshot, which this one has not come to yet
        self._events += events
        self._counted.append((self._owner.position, self._events))

    def others(self, info: SnapshotInfo) -> None:
        """Another node has saved one: count from there on."""
        self._owner.saved_elsewhere(info.position)
        if self.newest is None or info.position > self.newest.position:
            self._stands(info)
            self._put_off(self._owner.node.settings.snapshot_seconds)

    def jumped(self, info: SnapshotInfo | None) -> None:
        """The machine is as this one has it, or at its creation."""
        self.newest = info
        self._saved = self._events
        self._counted.clear()

    @property
    def late(self) -> bool:
        """Whether one is due by time."""
        return self.unsaved > 0 and time.monotonic() >= self._due

    @property
    def _busy(self) -> bool:
        """Whether one is being written."""
        return self._saving is not None and not self._saving.done()

    def consider(self) -> None:
        """Take one if it is due, by events or by time."""
        due = self.late or self.unsaved >= self._owner.node.settings.snapshot_events
        if due and time.monotonic() >= self._not_before and not self._busy:
            self._owner.put(self._begin, first=True)

    async def save(self) -> None:
        """Take one now; written on return. Only in what was `put`."""
        await self._owner.settle_up()
        await self._write(*await self._copy())

    async def last(self) -> None:
        """Take one at the end, if anything has changed and no other node takes them. Only in what was `put`."""
        await self.close()
        claim = self._owner.lease
        if not (self.unsaved and await claim.take()):
            await claim.release()
            return
        # side by side, as each takes a commit, and whoever wants the room of one that falls asleep waits for both
        await asyncio.gather(self.save(), claim.release())

    async def close(self) -> None:
        """Wait until the one that is being written is, or give it up."""
        if self._saving is not None:
            done, _ = await asyncio.wait([self._saving], timeout=_LAST_SECONDS)
            if not done:
                self._saving.cancel()
                await asyncio.wait([self._saving])

    async def _begin(self) -> None:
        try:
            if not await self._owner.lease.take():
                await self._look()
                return
            await self._owner.settle_up()
        except StoreUnavailable as error:
            self._failed(error)
            return
        copy = await self._copy()

        async def write() -> None:
            try:
                await self._write(*copy)
            except ServiceError as error:
                self._failed(error)

        self._saving = asyncio.create_task(write(), name=f"snapshot of {self._owner.name}")

    async def _look(self) -> None:
        """Another node has taken them: see how far it is, in case that nothing was heard of it."""
        owner = self._owner
        retained = await owner.node.reached(owner.node.store.snapshots(owner.name, owner.birth))
        if retained:
            self.others(retained[0])
        self._not_before = time.monotonic() + owner.lease.seconds / 4

    def _stands(self, info: SnapshotInfo) -> None:
        """The newest one, in the store."""
        self.newest = info
        counted, before = self._counted, self._saved
        while counted and counted[0][0] <= info.position:
            _, before = counted.popleft()
        self._saved = before

    def _put_off(self, seconds: float) -> None:
        self._due = time.monotonic() + seconds

    def _failed(self, error: ServiceError) -> None:
        """Nothing is lost: the log has it all. The next one is tried when it is due by time."""
        self._put_off(self._owner.node.settings.snapshot_seconds)
        self._not_before = self._due
        logger.warning("no snapshot of %s: %s", called(self._owner.name), error.detail)

    async def _copy(self) -> tuple[int, bytes, int, Callable[[], bytes]]:
        owner = self._owner
        position, token = owner.position, owner.token
        config, state = owner.machine.config, owner.machine.state()
        size = sum(array.nbytes for array in state.values())
        copied = await owner.node.by_size(size, lambda: {name: array.copy() for name, array in state.items()})
        self._put_off(owner.node.settings.snapshot_seconds)
        return position, token, size, lambda: pack_snapshot(position, config, copied)

    async def _write(self, position: int, token: bytes, size: int, pack: Callable[[], bytes]) -> None:
        owner = self._owner
        sound = owner.node.trusted_snapshots

        def packed() -> tuple[bytes, bytes]:
            data = pack()
            return data, sound.digest(data)

        data, digest = await owner.node.by_size(size, packed)
        kept, trim = owner.node.settings.snapshots_kept, owner.node.settings.trim_log
        saving = owner.node.store.save(owner.name, owner.birth, position, data, kept, trim, token)
        info = await owner.node.reached(saving)
        if info is None:
            await self._look()
            return
        sound.tell(owner.birth, digest)
        if self.newest is None or position >= self.newest.position:
            self._stands(info)
        owner.node.notifier.moved(owner.name, position, info)
