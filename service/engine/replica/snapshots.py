"""Take the snapshots of one replica: when one is due, and how it comes into the store; and roll back to one.

The state is copied at rest, then packed and written behind. What is not written yet is in the log.

The log is trimmed only behind the older of two snapshots that were read back and are intact, besides the new one. If
one is damaged afterwards, the other and the log recover the learner. In a full store one intact snapshot is enough.

One of the nodes that have the replica takes the snapshots: the one with the lease (`lease.py`). The others hear of each
one (`notifier.py`) and count from there as if it were their own.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from learners import CHANGEABLE, ComparedBatch, Config, InvalidInput, LabelledBatch, Rollback, ServedBatch, check_state
from service.engine.node_resources import Node
from service.engine.records import check_scaling, pack_snapshot, unpack_snapshot
from service.engine.replica.label_expiry import LabelExpiry
from service.engine.replica.learner_store import LearnerStore
from service.engine.replica.lease import Lease
from service.engine.replica.log_follower import LogFollower, RecordApplied, SnapshotJump
from service.engine.replica.mailbox import STOP_SECONDS, Job
from service.errors import Damaged, ServiceError, StoreFull, StoreUnavailable, UnknownSnapshot
from service.names import called
from service.settings import Settings
from service.storage import SnapshotInfo

__all__ = ["Snapshots", "load_roll_back"]

logger = logging.getLogger("rarestream.snapshots")

_LAST_SECONDS = 5.0  # grace period at a stop for running applications and writes
_INTACT = 2  # snapshots that are read back before the log behind the older one is trimmed
_RECORDS = 2**16  # whose events are counted one by one, for another node's snapshot that lies before the last of them


class Snapshots:
    """The snapshots of one replica; at most one at a time is written in the background."""

    def __init__(
        self,
        log: LogFollower[Any],
        stored: LearnerStore,
        lease: Lease,
        newest: SnapshotInfo | None,
        expiry: LabelExpiry | None = None,
    ) -> None:
        """`expiry`: it is flushed before each snapshot."""
        self._log = log
        self._stored = stored
        self._lease = lease
        self._expiry = expiry
        self.newest = newest
        self._intact: dict[SnapshotInfo, bool] = {}  # whether each retained snapshot that was read back is
        if newest is not None:
            self._intact[newest] = True
        self._events = 0  # that were learnt here, and other records,
        self._saved = 0  # and how many of these are in the newest snapshot
        self._counted: deque[tuple[int, int]] = deque(maxlen=_RECORDS)  # position, events by then; since the newest
        self._save_at = time.monotonic() + self._settings.snapshot_seconds
        self._not_before = 0.0  # after one has failed, the next is not tried at once
        self._queued = False  # a job begins one
        self._saving: asyncio.Task[None] | None = None

    @property
    def unsaved(self) -> int:
        """Events, and other records, since the newest snapshot of this node or another."""
        return self._events - self._saved

    def observe(self, step: RecordApplied | SnapshotJump) -> None:
        """Count what a record brings, or start counting from the snapshot that the log continued from."""
        if isinstance(step, SnapshotJump):
            self.newest = step.snapshot
            self._saved = self._events
            self._counted.clear()
        elif self.newest is None or self._log.position > self.newest.position:  # else in a snapshot of another node
            self._events += (
                len(step.record) if isinstance(step.record, (LabelledBatch, ServedBatch, ComparedBatch)) else 1
            )
            self._counted.append((self._log.position, self._events))

    def note_foreign(self, info: SnapshotInfo) -> None:
        """Count from a snapshot that another node has saved."""
        if self._expiry is not None:
            self._expiry.note_report(info.position)
        if self.newest is None or info.position > self.newest.position:
            self._note_saved(info)
            self._put_off(self._settings.snapshot_seconds)

    @property
    def overdue(self) -> bool:
        """Tell whether one is due by time."""
        return self.unsaved > 0 and time.monotonic() >= self._save_at

    def jobs(self) -> Iterator[Job]:
        """Give the job that takes one, if it is due by events or by time."""
        full = self.unsaved > 0 and self._log.node.full is not None  # a snapshot lets the log go
        is_due = full or self.overdue or self.unsaved >= self._settings.snapshot_events
        if is_due and time.monotonic() >= self._not_before and not self._queued and not self._writing:
            self._queued = True
            yield Job(self._begin, urgent=True)

    async def save(self) -> SnapshotInfo:
        """Take a snapshot now, of everything that is in the log."""
        await self._log.mailbox.run(self._save_all)
        assert self.newest is not None
        return self.newest

    async def save_last(self) -> None:
        """Take one before a stop, if anything has changed and no other node takes them.

        A record that takes long is given up half-way, and then there is no snapshot: the log has everything. So is a
        call of a store that does not answer: the outcome shows when the log is read again.
        """
        mailbox = self._log.mailbox
        if mailbox.failure is not None or mailbox.task.done():
            return
        saving = asyncio.ensure_future(mailbox.run(self._save_last))
        saving.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # perhaps nobody awaits it
        ended, _ = await asyncio.wait([saving], timeout=_LAST_SECONDS)
        if not ended:
            mailbox.abandon.set()
            ended, _ = await asyncio.wait([saving], timeout=STOP_SECONDS)
        error = saving.exception() if ended else "the store does not answer"
        if error is not None:
            logger.warning("cannot save a snapshot of %s at shutdown: %s", called(self._log.name), error)

    async def close(self) -> None:
        """Wait until the one that is being written is, or cancel it."""
        if self._saving is not None:
            ended, _ = await asyncio.wait([self._saving], timeout=_LAST_SECONDS)
            if not ended:
                self._saving.cancel()
                await asyncio.wait([self._saving])

    # Jobs

    async def _save_all(self) -> None:
        await self._log.read_on()  # a snapshot older than what other nodes retain would not be kept
        await self._save()

    async def _save(self) -> None:
        if self._expiry is not None:
            await self._expiry.flush()
        await self._write(*await self._copy())

    async def _save_last(self) -> None:
        await self.close()
        if not (self.unsaved and await self._lease.take()):
            await self._lease.release()
            return
        # in parallel, because each takes a commit, and a load that needs the memory waits for both
        await asyncio.gather(self._save(), self._lease.release())

    async def _begin(self) -> None:
        self._queued = False
        try:
            if not await self._lease.take():
                await self._look()
                return
            if self._expiry is not None:
                await self._expiry.flush()
        except StoreUnavailable as error:
            self._note_failure(error)
            return
        copy = await self._copy()

        async def write() -> None:
            try:
                await self._write(*copy)
            except ServiceError as error:
                self._note_failure(error)

        saving = asyncio.create_task(write(), name=f"snapshot of {self._log.name}")
        self._saving = self._log.node.background.watch(saving, "save snapshots")

    async def _look(self) -> None:
        """See how far the snapshots of another node are, in case this one has not heard of them."""
        retained = await self._stored.snapshots()
        if retained:
            self.note_foreign(retained[0])
        self._not_before = time.monotonic() + self._lease.seconds / 4

    async def _copy(self) -> tuple[int, bytes, int, Callable[[], bytes]]:
        log = self._log
        position, token = log.position, log.token
        config, state = log.machine.core.config, log.machine.core.state()
        size = sum(array.nbytes for array in state.values())
        copied = await log.node.by_size(size, lambda: {name: array.copy() for name, array in state.items()})
        self._put_off(self._settings.snapshot_seconds)
        return position, token, size, lambda: pack_snapshot(position, config, copied)

    async def _write(self, position: int, token: bytes, size: int, pack: Callable[[], bytes]) -> None:
        log = self._log
        trusted = log.node.trusted_snapshots

        def pack_and_hash() -> tuple[bytes, bytes]:
            data = pack()
            return data, trusted.digest(data)

        data, digest = await log.node.by_size(size, pack_and_hash)
        keep, trim = await self._retention(position)
        save = functools.partial(self._stored.save, position, data, keep, trim, token)
        try:
            info = await save()
        except StoreFull:
            if not await self._make_room(position):
                raise
            info = await save()
        if info is None:
            await self._look()
            return
        trusted.add(self._stored.birth, digest)
        if self.newest is None or position >= self.newest.position:
            self._note_saved(info)
        log.node.notifier.announce(log.name, position, info)

    async def _retention(self, position: int) -> tuple[int, bool]:
        """Return how many snapshots remain beside a new one at `position`, and whether the log may be trimmed."""
        number, intact = 1, 0
        for info in await self._retained():
            number += info.position != position  # else the new one replaces it
            if info.position < position:
                intact += await self._reads_back(info)
            if intact == _INTACT:
                return max(self._settings.snapshots_kept, number), self._settings.trim_log
        return max(self._settings.snapshots_kept, number), False

    async def _make_room(self, position: int) -> bool:
        """Delete what the newest intact snapshot up to `position` makes superfluous; return whether there is one."""
        for info in await self._retained():
            if info.position <= position and await self._reads_back(info):
                await self._stored.prune(info.position, self._settings.trim_log)
                return True
        return False

    async def _retained(self) -> list[SnapshotInfo]:
        retained = await self._stored.snapshots()
        self._intact = {info: self._intact[info] for info in retained if info in self._intact}
        return retained

    async def _reads_back(self, info: SnapshotInfo) -> bool:
        """Read a retained snapshot once, and tell whether it is intact."""
        if info not in self._intact:
            log = self._log
            what = f"snapshot {info.position} of {called(log.name)}"
            try:
                stored = await self._stored.load(info.position)
                if stored is None:  # another node has deleted it since
                    return False
                await log.node.by_size(info.size, functools.partial(unpack_snapshot, stored[1], what))
            except Damaged as error:
                log.node.note_damage(log.name, error.detail)
                self._intact[info] = False
            else:
                self._intact[info] = True
        return self._intact[info]

    @property
    def _settings(self) -> Settings:
        return self._log.node.settings

    @property
    def _writing(self) -> bool:
        return self._saving is not None and not self._saving.done()

    def _note_saved(self, info: SnapshotInfo) -> None:
        """Count from this snapshot, the newest one in the store."""
        self.newest = info
        counted, before = self._counted, self._saved
        while counted and counted[0][0] <= info.position:
            _, before = counted.popleft()
        self._saved = before

    def _put_off(self, seconds: float) -> None:
        self._save_at = time.monotonic() + seconds

    def _note_failure(self, error: ServiceError) -> None:
        """Try the next one when it is due by time. Nothing is lost: the log has it all."""
        self._put_off(self._settings.snapshot_seconds)
        self._not_before = self._save_at
        logger.warning("cannot save a snapshot of %s: %s", called(self._log.name), error.detail)


async def load_roll_back(node: Node, stored: LearnerStore, config: Config, position: int) -> Rollback:
    """Load the record that takes a learner of this configuration back to its snapshot at a position.

    Nothing may fail once the record is in the log. Raises `UnknownSnapshot`, or `Damaged` if the snapshot is of another
    learner or has no valid state. O(state).
    """
    loaded, name = await stored.load(position), stored.name
    if loaded is None:
        raise UnknownSnapshot(f"{name} has no snapshot at position {position}")
    what = f"snapshot {position} of {name}"
    snapshot = await node.in_thread(lambda: unpack_snapshot(loaded[1], what))
    then = snapshot.config
    if not isinstance(then, Config) or then.immutable_part != config.immutable_part:
        raise Damaged(f"{what} is of another configuration")
    parts = {part: then.to_json()[part] for part in CHANGEABLE if getattr(then, part) is not None}
    try:
        await node.in_thread(lambda: check_state(then, snapshot.state))
        check_scaling(then, snapshot.state)
    except InvalidInput as error:
        raise Damaged(f"{what} does not fit its configuration: {error}") from error
    return Rollback(snapshot.position, snapshot.state, parts)
