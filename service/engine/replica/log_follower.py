"""Follow a log of the store: append records, and apply everything in log order.

    append(record) -> store.append (durable) -> apply every entry up to it, those of other nodes included
    read_on()      -> apply what other nodes have appended

It does not read back what this node has just appended, unless records of other nodes lie in between. The follower moves
a machine (a learner, or a group's comparison) and reports each step to one observer. If the store lost records, or
trimmed the log past this node's position, it continues from the newest snapshot.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import sys
import uuid
from collections.abc import Callable
from time import perf_counter
from typing import Any, Generic, NamedTuple, Protocol, TypeVar
from weakref import WeakMethod

import msgspec

from service.engine.batch_cost import LARGE
from service.engine.node_resources import Node, RecoveredState
from service.engine.records import Created, Record, pack_record, unpack_record
from service.engine.replica.in_flight import InFlight, InFlightRecords
from service.engine.replica.learner_store import LearnerStore
from service.engine.replica.mailbox import Mailbox
from service.errors import BehindLog, BeyondLog, Damaged, LostRecords, PositionNotReached, StoreUnavailable, TooLarge
from service.names import called
from service.storage import RECORD_BYTES, LogEntry, SnapshotInfo

__all__ = ["LogFollower", "RecordApplied", "SnapshotJump"]

logger = logging.getLogger("rarestream.log")

_READ_ENTRIES = 256  # per page while catching up
_REWINDS = 5  # per reading: a log that loses records again and again is damaged
_ANY = sys.maxsize  # beyond every position


class Machine(Protocol):
    """What the log moves."""

    @property
    def core(self) -> Any:
        """The pure state machine: it has `config`, `state()` and `digest()`."""
        ...

    def replace(self, core: Any) -> None:
        """Continue with a core of the same log that was recovered from the store."""
        ...

    def check(self, record: Any, what: str) -> None:
        """Check the values of a record that was read from the log. Raises `Damaged`, which names it as `what`."""
        ...

    async def apply(self, record: Any) -> Any:
        """Move by a record that is no creation and return the outcome. Raises `ServiceError`."""
        ...


class RecordApplied(NamedTuple):
    """A step of the follower: it has applied the record at its position."""

    record: Any
    appended_here: bool  # by this node


class SnapshotJump(NamedTuple):
    """A step of the follower: it has continued from a snapshot."""

    snapshot: SnapshotInfo | None  # None: from the creation
    back: bool  # to before its position, because the store lost records


MachineT = TypeVar("MachineT", bound=Machine)


class LogFollower(Generic[MachineT]):
    """The follower of one log on this node."""

    def __init__(
        self,
        stored: LearnerStore,
        recovered: RecoveredState,
        machine: MachineT,
        node: Node,
        mailbox: Mailbox,
        observe: Callable[[RecordApplied | SnapshotJump], None],
    ) -> None:
        """`observe` is a bound method, whose object the follower does not keep in memory."""
        self.name = stored.name
        self._stored = stored
        self.machine = machine
        self.position = recovered.position
        self.token = recovered.token  # of the record at the position: by it the store tells whether its log led here
        self.node = node
        self.mailbox = mailbox
        self.in_flight = InFlightRecords(called(stored.name))
        self._observe = WeakMethod(observe)
        self._follow_to = 0  # a position up to which a queued job catches up, or _ANY

    # For callers

    async def digest(self) -> tuple[int, str]:
        """Return the position and the hash of the state there."""

        async def run() -> tuple[int, str]:
            return self.position, await self.node.in_thread(self.machine.core.digest)

        return await self.mailbox.run(run)

    async def catch_up(self) -> None:
        """Apply what other nodes have appended."""
        await self.mailbox.run(self.read_on)

    def follow(self, position: int = _ANY) -> None:
        """Queue catching up with the log, up to a `position` at least: later jobs find what is in the log by now."""
        queued, self._follow_to = self._follow_to > 0, max(self._follow_to, position)
        if queued:
            return

        async def run() -> None:
            position, self._follow_to = self._follow_to, 0
            await self._apply_in_flight()
            if self.position < position:
                await self.read_on()

        self.mailbox.submit(run)

    async def wait_for(self, position: int | None) -> None:
        """Wait until the log up to `position` is applied here, for `at_least_seconds` at most; None: no wait.

        Raises `PositionNotReached` if it is not applied by then, `BeyondLog` if the log does not reach so far, or
        `StoreUnavailable`.
        """
        if position is None or self.position >= position:
            return
        seconds = self.node.settings.at_least_seconds
        try:
            async with asyncio.timeout(seconds):
                with self.mailbox.watch() as changed:
                    self.follow(position)
                    while self.position < position:
                        self.mailbox.check()
                        await changed.wait()
                        changed.clear()
        except TimeoutError:
            await self._check_reached(position, seconds)

    async def _check_reached(self, position: int, seconds: float) -> None:
        """Raise the reason why a position was not reached, unless it is now."""
        try:
            in_log = bool(await self._stored.read(position - 1, 1))
        except BehindLog:  # and trimmed since
            in_log = True
        if self.position >= position:
            return
        missed = f"up to position {self.position}, not {position}, within {seconds:g} s"
        where = f"this node has applied {called(self.name)} {missed}"
        raise PositionNotReached(where) if in_log else BeyondLog(f"{where}: the log has no such position")

    # For jobs of the mailbox

    async def append(self, record: Any, small: bool = False, reserve: bool = False) -> Any:
        """Log a record, apply everything up to it in log order, and return its outcome. Only in a job.

        A `small` record is packed on the event loop, another by a thread. With `reserve`, a full store takes it.
        """
        data = await self._pack(record, small)
        await self._apply_in_flight()
        token = uuid.uuid4().bytes
        try:
            entries = await self._append(token, data, reserve)
        except (BehindLog, LostRecords):  # nothing was written; catching up leads past the newest snapshot
            await self.read_on()
            entries = await self._append(token, data, reserve)
        self.node.notifier.announce(self.name, entries[-1].position)  # other nodes learn while this one does
        applied = False
        outcome = None
        while True:
            for entry in entries:
                if entry.token == token:  # need not be unpacked
                    applied, outcome = True, await self._apply(entry, record)
                else:
                    await self._apply(entry)
            if applied:
                return outcome
            entries = await self._read()
            if not entries:
                raise LostRecords(f"the log of {called(self.name)} has lost a record that was just appended to it")

    async def read_on(self) -> None:
        """Apply what other nodes have appended. Only in a job."""
        rewinds = 0
        with self.in_flight.reading() as clear:
            while True:
                try:
                    entries = await self._read()
                except (BehindLog, LostRecords) as error:
                    rewinds += isinstance(error, LostRecords)
                    if rewinds > _REWINDS:
                        raise Damaged(f"{error.detail}; this repeats however often the log is read") from None
                    await self._jump(error)
                    clear()
                    continue
                if not entries:
                    return
                for entry in entries:
                    await self._apply(entry)

    async def _apply_in_flight(self) -> None:
        """Apply what this node appended past the mailbox and what follows directly, without reading it back."""
        while (following := self._following()) is not None:
            await self._apply(LogEntry(following.position, following.token, b""), following.record)

    def _following(self) -> InFlight | None:
        """Return the record in flight that directly follows what is applied."""
        for record in self.in_flight:
            if record.position == self.position + 1 and record.before == self.token and record.record is not None:
                return record
        return None

    async def _pack(self, record: Any, small: bool) -> bytes:
        try:
            data = pack_record(record) if small else await self.node.in_thread(lambda: pack_record(record))
        except (msgspec.EncodeError, OverflowError) as error:  # an array of more than 4 GB
            raise TooLarge(f"a record of {called(self.name)} is too large to be logged: send less at once") from error
        if len(data) > RECORD_BYTES:
            raise TooLarge(
                f"{len(data)} bytes of {called(self.name)} are more than a store takes as one record, {RECORD_BYTES}"
            )
        return data

    async def _append(self, token: bytes, data: bytes, reserve: bool) -> list[LogEntry]:
        return await self._stored.append((token, data), self.position, self.token, reserve)

    async def _read(self) -> list[LogEntry]:
        return await self._stored.read(self.position, _READ_ENTRIES, self.token)

    async def _jump(self, error: StoreUnavailable) -> None:
        """Continue from the newest snapshot: the log lacks what follows here, or has other records than were applied.

        The log is the truth: what the store lost is lost here too, and operators are told.
        """
        back, before = isinstance(error, LostRecords), self.position
        recovered = await self.node.recover(self.name, self._stored.birth)
        if (
            not back and recovered.position <= before
        ):  # the log was trimmed behind a newer snapshot, which is unreadable
            raise Damaged(f"{error.detail}, and no readable snapshot leads on") from None
        self.machine.replace(recovered.machine)
        self.position, self.token = recovered.position, recovered.token
        if back:
            self.node.note_rewind(self.name)
            logger.error(
                "%s; this node had applied records up to %d; restarting from position %d",
                error.detail,
                before,
                self.position,
            )
        else:
            logger.info("%s; this node continues from %d with the snapshot at %d", error.detail, before, self.position)
        self._report(SnapshotJump(recovered.snapshot, back))

    def _unpack(self, data: bytes, what: str) -> Record:
        """Unpack and check a record; `what` names it in errors. Raises `Damaged`."""
        record = unpack_record(data, what)
        if not isinstance(record, Created):
            self.machine.check(record, what)
        return record

    async def _apply(self, entry: LogEntry, appended: Any = None) -> Any:
        """Move the machine by one entry and return the outcome; `appended` is its record, if this node appended it."""
        if entry.position <= self.position:
            return None
        if entry.position != self.position + 1:
            raise Damaged(f"the log of {called(self.name)} goes from {self.position} to {entry.position}")
        with self.in_flight.applying(entry.token) as in_flight:
            record = await self._record_of(entry, in_flight) if appended is None else appended
            if isinstance(record, Created):
                self.position, self.token = entry.position, entry.token
                return None
            began = perf_counter()
            outcome = await self.machine.apply(record)
            self.node.timings.apply.observe(perf_counter() - began)
            self.position, self.token = entry.position, entry.token
        if in_flight is not None:
            self.node.notifier.announce(self.name, entry.position)
        self._report(RecordApplied(record, appended is not None or in_flight is not None))
        return outcome

    async def _record_of(self, entry: LogEntry, in_flight: InFlight | None) -> Record:
        if in_flight is not None and in_flight.record is not None:
            return in_flight.record
        unpack = functools.partial(self._unpack, entry.data, f"record {entry.position} of {called(self.name)}")
        return unpack() if len(entry.data) < LARGE else await self.node.in_thread(unpack)

    def _report(self, step: RecordApplied | SnapshotJump) -> None:
        observe = self._observe()
        if observe is not None:
            observe(step)
        self.mailbox.notify()
