"""A state machine whose state follows a log of the store, on this node: its task moves it, record by record.

    put (a job) -> the machine at rest -> append a record -> apply everything up to it, in log order

The task (`turns.py`) owns the machine. Readers take `view`, which is replaced after every record, so reading waits for
nothing and never sees half a record. What the machine is, a learner or a comparison of some, is said by the classes
that build on this one (`hosted.py`, `groups.py`).
"""

from __future__ import annotations

import asyncio
import functools
import logging
import sys
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from time import perf_counter
from typing import Any, Generic, Protocol, TypeVar, cast

import msgspec
from numpy import generic
from numpy.typing import NDArray

from learners import Config, GroupConfig
from service.engine.batch_cost import LARGE
from service.engine.node import Node
from service.engine.records import Created, Record, pack_record, unpack_record
from service.engine.replica.lease import Lease
from service.engine.replica.mailbox import GIVEN_UP_SECONDS, Turns
from service.engine.replica.snapshots import Snapshots
from service.errors import Behind, BehindLog, BeyondLog, Damaged, LostRecords, StoreUnavailable, TooLarge
from service.names import called
from service.storage import RECORD_BYTES, Entry, Moved, SnapshotInfo

__all__ = ["Logged", "Machine"]

logger = logging.getLogger("rarestream.log")

_READ_ENTRIES = 256  # per page while catching up
_REWINDS = 5  # of one reading: a log that has lost records again and again is none
_LAST_SECONDS = 5.0  # that a stop waits for what is being applied, before it is given up
_ANY = sys.maxsize  # beyond every position


class Machine(Protocol):
    """What is moved: a function of its log."""

    @property
    def config(self) -> Config | GroupConfig:
        """What it was created with."""
        ...

    def state(self) -> dict[str, NDArray[generic]]:
        """Every array of the state by name, as views."""
        ...

    def digest(self) -> str:
        """A hash of the configuration and the state."""
        ...

    def view(self) -> Any:
        """What readers see."""
        ...


MachineT = TypeVar("MachineT", bound=Machine)
ViewT = TypeVar("ViewT")


class Logged(Turns, ABC, Generic[MachineT, ViewT]):
    """One machine on this node."""

    def __init__(
        self,
        name: str,
        birth: bytes,
        machine: MachineT,
        position: int,
        node: Node,
        gone: Callable[[Any], None],
        snapshot: SnapshotInfo | None = None,
    ) -> None:
        """`name`: of the log; `gone` is called once when the store no longer has it; `snapshot`: the newest."""
        super().__init__(name, gone)
        self.birth = birth
        self.machine = machine
        self.position = position
        self.token = b""  # of the record at the position, by which the store tells whether its log still led here
        self.node = node
        self._view: ViewT | None = None
        self.lease = Lease(self)
        self.snapshots = Snapshots(self, snapshot)
        self._follow_to = 0  # a position that the queue holds catching up with, or _ANY

    # What the classes that build on this one say

    @abstractmethod
    async def _move(self, record: Any) -> Any:
        """Move the machine by a record that is no creation; what comes of it. Raises `ServiceError`."""

    @abstractmethod
    def _check_read(self, record: Any, what: str) -> None:
        """Look at the values of a record that was read from the log. Raises `Damaged`, which names it as `what`."""

    @abstractmethod
    def _weight(self, record: Any) -> int:
        """Events that a record counts as towards the next snapshot."""

    def _applied(self, entry: Entry, record: Any, own: bool) -> None:
        """An entry of the log has been applied; its `own`, if it was appended by this node's task."""

    def _jumped(self, back: bool) -> None:
        """The machine has come to where it is by another node's snapshot, or went `back` to what the store kept."""

    def saved_elsewhere(self, position: int) -> None:
        """Another node has saved a snapshot of this position, which may be ahead of this node's."""

    def _considered(self) -> None:
        self.snapshots.consider()

    @property
    def view(self) -> ViewT:
        """What readers see: of the present moment, or a copy of an earlier one while the machine moves in a thread."""
        if self._view is None:  # made for the first who asks after a record: most records of many have no reader
            self._view = self.machine.view()
        return self._view

    @view.setter
    def view(self, view: ViewT) -> None:
        self._view = view

    async def settle_up(self) -> None:
        """See to what has to be in the store before a snapshot. Only in what was `put`."""

    # What callers use

    async def digest(self) -> tuple[int, str]:
        """The position and the hash of the state there."""
        found: list[tuple[int, str]] = []

        async def run() -> None:
            found.append((self.position, await self.node.in_thread(self.machine.digest)))

        await self.at_rest(run)
        return found[0]

    async def save(self) -> SnapshotInfo:
        """Take a snapshot now, of everything that is in the log."""

        async def run() -> None:
            await self.read_on()  # a snapshot older than what other nodes retain would not be kept
            await self.snapshots.save()

        await self.at_rest(run)
        assert self.snapshots.newest is not None
        return self.snapshots.newest

    async def catch_up(self) -> None:
        """Apply what other nodes have appended."""
        await self.at_rest(self.read_on)

    def follow(self, position: int = _ANY) -> None:
        """Catch up in turn: what is asked of the machine after this finds what is in the log by now.

        With a `position`, only if it is not there by then.
        """
        waits, self._follow_to = self._follow_to > 0, max(self._follow_to, position)
        if waits:
            return

        async def run() -> None:
            position, self._follow_to = self._follow_to, 0
            if self.position < position:
                await self.read_on()

        self.put(run)

    def hear(self, told: Moved) -> None:
        """Another node has told where the log is by now, or of its snapshot."""
        if told.snapshot is not None:
            self.snapshots.others(told.snapshot)
        if self.position < told.position and self.failed is None:
            self.follow(told.position)

    async def wait_for_position(self, position: int | None) -> None:
        """Until what is in the log up to `position` is applied here; None: no wait at all.

        For the node's `at_least_seconds` at most. Raises `Behind` where it is not by then, `BeyondLog` where the log
        does not reach so far, or `StoreUnavailable`.
        """
        if position is None or self.position >= position:
            return
        seconds = self.node.settings.at_least_seconds
        try:
            async with asyncio.timeout(seconds):
                with self.watch() as changed:
                    self.follow(position)
                    while self.position < position:
                        self._check()
                        await changed.wait()
                        changed.clear()
        except TimeoutError:
            await self._not_there(position, seconds)

    async def _not_there(self, position: int, seconds: float) -> None:
        """Say why a position was not reached, unless it is now."""
        try:
            there = bool(await self.node.reached(self.node.store.read(self.name, self.birth, position - 1, 1)))
        except BehindLog:  # and trimmed since
            there = True
        if self.position >= position:
            return
        where = (
            f"in {seconds:g} s {called(self.name)} has come to position {self.position} on this node, not to {position}"
        )
        raise Behind(where) if there else BeyondLog(f"{where}, which is not in its log")

    async def close(self, save: bool) -> None:
        """Answer everyone who waits, take a last snapshot if asked to, and stop.

        A record that takes long is given up half-way, and then there is no snapshot: the log has everything. So is a
        call of a store that does not answer: what became of it shows when the log is read again.
        """
        if save and self.failed is None and not self.task.done():
            await self._last()
        await self.end()
        await self.snapshots.close()

    async def _last(self) -> None:
        waiting = asyncio.ensure_future(self.at_rest(self.snapshots.last))
        waiting.add_done_callback(
            lambda ended: ended.cancelled() or ended.exception()
        )  # also where nobody waits for it
        done, _ = await asyncio.wait([waiting], timeout=_LAST_SECONDS)
        if not done:
            self.abandon.set()
            done, _ = await asyncio.wait([waiting], timeout=GIVEN_UP_SECONDS)
        error = waiting.exception() if done else "the store does not answer"
        if error is not None:
            logger.warning("no snapshot of %s at shutdown: %s", called(self.name), error)

    # The log

    async def append(self, record: Any, small: bool = False) -> Any:
        """Log a record, then apply everything up to it in log order; what came of this one. Only in what was `put`.

        A `small` one is packed here, another by a thread.
        """
        try:
            data = pack_record(record) if small else await self.node.in_thread(lambda: pack_record(record))
        except (msgspec.EncodeError, OverflowError) as error:  # an array of more than 4 GB
            raise TooLarge(f"a record of {called(self.name)} is too large to be logged: send less at once") from error
        if len(data) > RECORD_BYTES:
            raise TooLarge(
                f"{len(data)} bytes of {called(self.name)} are more than a store takes as one record, {RECORD_BYTES}"
            )
        token = uuid.uuid4().bytes
        records = [(token, data)]
        store = self.node.store
        try:
            entries = await self.node.reached(store.append(self.name, self.birth, records, self.position, self.token))
        except (BehindLog, LostRecords):  # nothing was written; catching up goes by way of the newest snapshot
            await self.read_on()
            entries = await self.node.reached(store.append(self.name, self.birth, records, self.position, self.token))
        self.node.notifier.moved(
            self.name, entries[-1].position
        )  # before it is learnt here: others may learn meanwhile
        found = False
        outcome = None
        while True:
            for entry in entries:
                if entry.token == token:  # our own: no need to read it back
                    found, outcome = True, await self._apply(entry, record)
                else:
                    await self._apply(entry)
            if found:
                return outcome
            entries = await self._read()
            if not entries:
                raise LostRecords(f"the log of {called(self.name)} has lost a record that was just appended to it")

    async def read_on(self) -> None:
        """Apply what other nodes have appended; only in what was `put`."""
        lost = 0
        while True:
            try:
                entries = await self._read()
            except (BehindLog, LostRecords) as error:
                lost += isinstance(error, LostRecords)
                if lost > _REWINDS:
                    raise Damaged(f"{error.detail}; it stays so however often the log is read") from None
                await self._begin_again(error)
                continue
            if not entries:
                return
            for entry in entries:
                await self._apply(entry)

    async def _read(self) -> list[Entry]:
        read = self.node.store.read(self.name, self.birth, self.position, _READ_ENTRIES, self.token)
        return await self.node.reached(read)

    async def _begin_again(self, error: StoreUnavailable) -> None:
        """Go on from the newest snapshot: the log has none of what follows here, or other records than were applied.

        The log is the truth: what the store lost is lost here too, and told to operators.
        """
        back, before = isinstance(error, LostRecords), self.position
        found = await self.node.recover(self.name, self.birth)
        if not back and found.position <= before:  # a newer one stood there as the log was trimmed: it is not readable
            raise Damaged(f"{error.detail}, and no snapshot that can be read leads on") from None
        self.machine = cast(MachineT, found.machine)  # of the same log, so of the same kind
        self.position, self.token = found.position, found.token
        self._view = None
        self.snapshots.jumped(found.snapshot)
        if back:
            self.node.timings.rewound += 1
            logger.error(
                "%s; this node had applied records up to %d, and begins again from %d, by the log as it is now",
                error.detail,
                before,
                self.position,
            )
        else:
            logger.info("%s; this node goes on from %d with the snapshot at %d", error.detail, before, self.position)
        self._jumped(back)
        self._tell()

    def _unpacked(self, data: bytes, what: str) -> Record:
        """A record from its bytes, whole and sound; `what` names it in errors. Raises `Damaged`."""
        record = unpack_record(data, what)
        if not isinstance(record, Created):
            self._check_read(record, what)
        return record

    async def _apply(self, entry: Entry, known: Any = None) -> Any:
        """Move by one entry; `known` is its record where that is at hand."""
        if entry.position <= self.position:
            return None
        if entry.position != self.position + 1:
            raise Damaged(f"the log of {called(self.name)} goes from {self.position} to {entry.position}")
        record: Record | None = known
        if record is None:
            read = functools.partial(self._unpacked, entry.data, f"record {entry.position} of {called(self.name)}")
            record = read() if len(entry.data) < LARGE else await self.node.in_thread(read)
        if isinstance(record, Created):
            self.position, self.token = entry.position, entry.token
            return None
        began = perf_counter()
        outcome = await self._move(record)
        self.node.timings.apply.observe(perf_counter() - began)
        self.position, self.token = entry.position, entry.token
        self.snapshots.note(self._weight(record))
        self._view = None
        self._applied(entry, record, known is not None)
        self._tell()
        return outcome

    def tick(self) -> None:
        """Called now and then: a quiet machine gets its snapshot too."""
        if self.snapshots.late and not self._waiting:
            self.put(self._look)

    async def _look(self) -> None:
        """Nothing: after each turn the task looks whether something is due."""
