"""One learner on this node, and the task that moves it along its log.

    update -> queue -> (drain) one record -> store.append -> Learner.apply, in log order -> reply

The task owns the learner. What has to happen to it waits in its queue, in order: batches, and jobs that need it at rest
(snapshot, restore, digest, catching up with other nodes). Readers take `Hosted.view`, which is replaced after every
record: a live view while learning happens on the event loop itself, a frozen copy while a thread learns. So reading
waits for nothing and never sees half an event. A fit that is due works on copies, in the background, and what comes
out is appended like any other record.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import InitVar, dataclass, field
from typing import NamedTuple

from learners.arrays import Rows
from learners.batch import Batch, Fitted, Outcome, Restored, Segment, join, joined
from learners.learner import Learner, check_state
from learners.parameters import Refused
from learners.scorer import Scores, View
from service.codec import Created, Record, pack_record, unpack_record, unpack_snapshot
from service.errors import (
    BehindLog,
    Damaged,
    LearnerGone,
    QueueFull,
    ServiceError,
    SourceGap,
    StoreUnavailable,
    UnknownSnapshot,
)
from service.fits import Fits
from service.node import Node
from service.snapshots import Snapshots
from service.store import Entry, SnapshotInfo
from service.work import Pace, numbers_of, size_of

__all__ = ["Hosted", "Learnt"]

logger = logging.getLogger("rarestream.learner")

_INLINE_SECONDS = 1e-3  # work expected to be shorter than this stays on the event loop,
_INLINE_NUMBERS = 2**17  # unless it is of more feature values than this, whatever is expected
_INLINE_WORK = 2**23  # multiplications of a request to score, some milliseconds, above which a thread makes them
_PIECE_SECONDS = 0.2  # of a long record, after which others have their turn
_READ_ENTRIES = 256  # per page while catching up
_LAST_SECONDS = 5.0  # that a stop waits for what is being learnt
_LARGE = 2**18  # bytes of a record from which on it is packed by a thread


class Learnt(NamedTuple):
    """The answer to one update."""

    outcome: Outcome
    position: int
    class_counts: dict[str, int]


@dataclass
class _Update:
    """A batch that waits to be learnt."""

    batch: Batch
    size: int  # bytes, of the queue's bound
    done: asyncio.Future[Learnt]


@dataclass
class _Job:
    """Something that needs the learner at rest."""

    run: Callable[[], Awaitable[None]]
    done: asyncio.Future[None]


def _settle(future: asyncio.Future[Learnt] | asyncio.Future[None], error: ServiceError) -> None:
    if not future.done():  # a caller may have hung up
        future.set_exception(error)


@dataclass
class Hosted:
    """One learner on this node."""

    name: str
    birth: bytes
    learner: Learner
    position: int
    node: Node
    gone: Callable[[Hosted], None]  # called once when the store no longer has it
    view: View = field(init=False)
    snapshot: InitVar[SnapshotInfo | None] = None  # the newest, where there is one
    queued_bytes: int = 0
    queued_events: int = 0
    failed: ServiceError | None = None  # why it cannot move on; a restart may help, deleting always does

    def __post_init__(self, snapshot: SnapshotInfo | None) -> None:
        self.view = self.learner.view()
        self._waiting: deque[_Update | _Job] = deque()
        self._current: list[_Update] | list[_Job] = []  # taken from the queue, not answered yet
        self._wake = asyncio.Event()
        self._pace = Pace()
        self.abandon = asyncio.Event()  # set when a long record or fit is to be given up half-way
        self.snapshots = Snapshots(self, snapshot)
        self.fits = Fits(self)
        self._following: asyncio.Future[None] | None = None
        self._closing = False
        self.task = asyncio.create_task(self._run(), name=f"learner {self.name}")
        self.task.add_done_callback(self._ended)

    # What callers use

    async def update(self, batch: Batch) -> Learnt:
        """Log the events, learn them, and say what became of each. Raises `QueueFull` or a `StoreError`."""
        self._check()
        size = size_of(batch)
        limit = self.node.settings.queue_bytes
        if self.queued_bytes and self.queued_bytes + size > limit:
            raise QueueFull(f"{self.queued_events} events wait already; try again in a moment")
        done: asyncio.Future[Learnt] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Update(batch, size, done))
        self._wake.set()
        self.queued_bytes += size
        self.queued_events += len(batch)
        return await done

    async def score(self, rows: Rows) -> tuple[View, Scores]:
        """Score events by the present view: here where that is short work, else by a thread and on a copy."""
        view = self.view
        if view.scorer.work(rows) > _INLINE_WORK:
            view = view.frozen()
            return view, await asyncio.to_thread(view.scorer.score, rows)
        return view, view.scorer.score(rows)

    async def at_rest(self, run: Callable[[], Awaitable[None]]) -> None:
        """Run a job between two records, when nothing moves."""
        self._check()
        await asyncio.shield(self.put(run))

    async def digest(self) -> tuple[int, str]:
        """The position and the hash of the state there."""
        found: list[tuple[int, str]] = []

        async def run() -> None:
            found.append((self.position, await self.node.in_thread(self.learner.digest)))

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

    async def restore(self, position: int) -> int:
        """Roll back to a retained snapshot, on every node: the roll-back is a record of the log. Its position."""
        found = await self.node.store.load(self.name, self.birth, position)
        if found is None:
            raise UnknownSnapshot(f"{self.name} has no snapshot at position {position}")
        what = f"snapshot {position} of {self.name}"
        snapshot = await self.node.in_thread(lambda: unpack_snapshot(found[1], what))
        if snapshot.config != self.learner.config:  # nothing may fail once it is in the log
            raise Damaged(f"{what} is of another configuration")
        try:
            await self.node.in_thread(lambda: check_state(snapshot.config, snapshot.state))
        except Refused as error:
            raise Damaged(f"{what} does not fit its configuration: {error}") from error

        async def run() -> None:
            await self._append(Restored(snapshot.position, snapshot.state))

        await self.at_rest(run)
        return self.position

    async def catch_up(self) -> None:
        """Apply what other nodes have appended."""
        await self.at_rest(self.read_on)

    def follow(self) -> None:
        """Start catching up, unless that is under way."""
        if self._following is None or self._following.done():
            self._following = self.put(self.read_on)

    async def close(self, save: bool) -> None:
        """Answer everyone who waits, take a last snapshot if asked to, and stop.

        A record that takes long is given up half-way, and then there is no snapshot: the log has everything.
        """
        if not self.task.done():
            if save and self.failed is None:
                await self._last()
            self.abandon.set()
            self._closing = True
            self._wake.set()
            await asyncio.wait([self.task])
        await self.snapshots.close()
        await self.fits.close()

    async def _last(self) -> None:
        async def run() -> None:
            if self.snapshots.changed:
                await self.snapshots.save()

        waiting = asyncio.ensure_future(self.at_rest(run))
        done, _ = await asyncio.wait([waiting], timeout=_LAST_SECONDS)
        if not done:
            self.abandon.set()
            await asyncio.wait([waiting])
        error = waiting.exception()
        if error is not None:
            logger.warning("no snapshot of %s at shutdown: %s", self.name, error)

    # The task

    def _check_alive(self) -> None:
        if self.failed is not None:
            raise self.failed

    def _check(self) -> None:
        self._check_alive()
        if self._closing or self.task.done():
            raise LearnerGone(f"{self.name} is no longer here")

    def _ended(self, task: asyncio.Task[None]) -> None:
        """The task is over: nobody may be left waiting for it."""
        error = None if task.cancelled() else task.exception()
        if error is not None:  # a fault of ours: the learner stops here, the log keeps everything
            logger.critical("the task of %s ended by an error", self.name, exc_info=error)
            self.failed = ServiceError(f"{self.name} stopped after an internal error; a restart recovers it")
        reason = self.failed or LearnerGone(f"{self.name} is no longer here")
        for item in (*self._current, *self._waiting):
            _settle(item.done, reason)
        self._waiting.clear()

    def put(self, run: Callable[[], Awaitable[None]], first: bool = False) -> asyncio.Future[None]:
        """Have something done while the learner is at rest, next or in turn; the future is when it is done."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # also where nobody waits for it
        job = _Job(run, done)
        if first:
            self._waiting.appendleft(job)
        else:
            self._waiting.append(job)
        self._wake.set()
        return done

    async def _run(self) -> None:
        while True:
            while not self._waiting:
                if self._closing:
                    return
                self._wake.clear()
                await self._wake.wait()
            if isinstance(self._waiting[0], _Job):
                job = self._waiting.popleft()
                assert isinstance(job, _Job)
                self._current = [job]
                try:
                    self._check_alive()
                    await job.run()
                except ServiceError as error:
                    self._notice(error)
                    _settle(job.done, error)
                else:
                    if not job.done.done():
                        job.done.set_result(None)
            else:
                self._current = updates = self._drain()
                await self._learn(updates)
            self._current = []
            if self.failed is None and not self._closing:
                self.snapshots.consider()
                self.fits.consider()

    def _drain(self) -> list[_Update]:
        """The waiting updates that fit one record; at least one."""
        updates: list[_Update] = []
        events = 0
        while self._waiting and isinstance(self._waiting[0], _Update):
            if updates and events + len(self._waiting[0].batch) > self.node.settings.record_events:
                break
            update = self._waiting.popleft()
            assert isinstance(update, _Update)
            self.queued_bytes -= update.size
            self.queued_events -= len(update.batch)
            if update.done.cancelled():  # the caller hung up before anything was logged
                continue
            updates.append(update)
            events += len(update.batch)
        return updates

    async def _learn(self, updates: list[_Update]) -> None:
        if not updates:
            return
        if self.failed is not None:
            for update in updates:
                _settle(update.done, self.failed)
            return
        try:
            outcome = await self._log(join([update.batch for update in updates]))
        except ServiceError as error:
            self._notice(error)
            for update in updates:
                _settle(update.done, error)
            return
        counts = self.view.class_counts
        start = 0
        for update in updates:
            stop = start + len(update.batch)
            part = outcome.part(start, stop)
            if part.beyond.any():
                _settle(update.done, self._gap(update.batch.segments))
            elif not update.done.done():
                update.done.set_result(Learnt(part, self.position, counts))
            start = stop

    async def _log(self, batch: Batch) -> Outcome:
        """Append a batch and learn it: as one record, but for one that goes on beyond the end of a warm-up."""
        outcomes: list[Outcome] = []
        while len(batch) or not outcomes:
            warming = self.learner.urgent and not self.learner.due
            part = batch.part(0, self.learner.step(batch)) if warming else batch
            outcome = await self._append(part)
            assert outcome is not None
            outcomes.append(outcome)
            batch = batch.part(len(part), len(batch))
            if self.learner.urgent:
                await self.fits.begin()
        return joined(outcomes)

    def _gap(self, segments: Sequence[Segment]) -> SourceGap:
        said = [
            f"the source {one.name!r} goes on at {self.view.sources.get(one.name, 0)}, not at {one.offset}"
            for one in segments
        ]
        return SourceGap(f"{'; '.join(said)}; nothing of the request was learnt")

    def _notice(self, error: ServiceError) -> None:
        if isinstance(error, LearnerGone):
            self.failed = error
            self.gone(self)
            self._closing = True  # the task ends once everyone who waits is answered
        elif isinstance(error, Damaged):
            logger.error("%s cannot move on: %s", self.name, error.detail)
            self.failed = error

    async def log_fit(self, fitted: Fitted) -> None:
        """Append what was fitted, and apply everything up to it; only in what was `put`."""
        await self._append(fitted)

    async def _append(self, record: Batch | Fitted | Restored) -> Outcome | None:
        """Log a record, then apply everything up to it in log order; the outcome of this one."""
        small = isinstance(record, Batch) and size_of(record) < _LARGE
        data = pack_record(record) if small else await self.node.in_thread(lambda: pack_record(record))
        token = uuid.uuid4().bytes
        records = [(token, data)]
        store = self.node.store
        try:
            entries = await self.node.reached(store.append(self.name, self.birth, records, self.position))
        except BehindLog:  # nothing was written; catching up goes by way of the newest snapshot
            await self.read_on()
            entries = await self.node.reached(store.append(self.name, self.birth, records, self.position))
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
            entries = await self.node.reached(store.read(self.name, self.birth, self.position, _READ_ENTRIES))
            if not entries:
                raise Damaged(f"the log of {self.name} has lost a record that was just appended to it")

    async def read_on(self) -> None:
        """Apply what other nodes have appended; only in what was `put`."""
        while True:
            try:
                entries = await self.node.reached(
                    self.node.store.read(self.name, self.birth, self.position, _READ_ENTRIES)
                )
            except BehindLog:
                learner, self.position, self.snapshots.newest = await self.node.recover(self.name, self.birth)
                self.learner = learner
                self.view = learner.view()
                continue
            if not entries:
                return
            for entry in entries:
                await self._apply(entry)

    async def _apply(self, entry: Entry, known: Batch | Fitted | Restored | None = None) -> Outcome | None:
        """Move by one entry; `known` is its record where that is at hand."""
        if entry.position <= self.position:
            return None
        if entry.position != self.position + 1:
            raise Damaged(f"the log of {self.name} goes from {self.position} to {entry.position}")
        record: Record | None = known
        if record is None:
            unpack = functools.partial(unpack_record, entry.data, f"record {entry.position} of {self.name}")
            record = unpack() if len(entry.data) < _LARGE else await self.node.in_thread(unpack)
        if isinstance(record, Created):
            self.position = entry.position
            return None
        outcome = await self._advance(record)
        if isinstance(record, Fitted):
            self.fits.applied()
        self.snapshots.note(len(record) if isinstance(record, Batch) else 1)
        self.position = entry.position
        self.view = self.learner.view()
        return outcome

    async def _advance(self, record: Batch | Fitted | Restored) -> Outcome | None:
        """Apply a record: here if that is short work, else piece by piece in a thread.

        Pieces (the result is the same to the bit) let other learners have the thread, and let a stop or a deletion end
        a long record half-way: the log has it, and the next start learns it whole.
        """
        if not isinstance(record, Batch):
            self.view = await self.node.in_thread(self.view.frozen)
            await self.node.in_thread(lambda: self._move(record))
            return None
        numbers = numbers_of(record)
        if numbers <= _INLINE_NUMBERS and self._pace.seconds(numbers) < _INLINE_SECONDS:
            began = time.perf_counter()
            outcome = self._move(record)
            assert outcome is not None
            self._pace.note(numbers, time.perf_counter() - began, outcome)
            return outcome
        self.view = await self.node.in_thread(self.view.frozen)  # nothing moves while it is copied
        outcomes = []
        start = 0
        while start < len(record):
            if self.abandon.is_set():  # the state is between two positions: nothing may be made of it any more
                self.failed = StoreUnavailable(f"{self.name} stops here; the events are in the log and will be learnt")
                raise self.failed
            share = _PIECE_SECONDS / max(self._pace.seconds(numbers), 1e-9)
            stop = min(len(record), start + max(1, int(share * len(record))))
            piece = record.part(start, stop)
            began = time.perf_counter()
            outcome = await self.node.in_thread(functools.partial(self._move, piece))
            assert outcome is not None
            outcomes.append(outcome)
            self._pace.note(numbers_of(piece), time.perf_counter() - began, outcome)
            start = stop
        return joined(outcomes)

    def _move(self, record: Batch | Fitted | Restored) -> Outcome | None:
        try:
            return self.learner.apply(record)
        except Refused as error:
            raise Damaged(f"a record of {self.name} does not fit its configuration: {error}") from error

    def tick(self) -> None:
        """Called now and then: a quiet learner gets its snapshot too."""
        if self.snapshots.late and not self._waiting:
            self.put(self._look)

    async def _look(self) -> None:
        """Nothing: after each turn the task looks whether something is due."""
