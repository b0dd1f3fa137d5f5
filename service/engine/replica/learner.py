"""One learner on this node.

    update -> queue -> (drain) one record -> store.append -> Learner.apply, in log order -> reply

What waits in the queue are batches, and jobs that need the learner at rest (snapshot, restore, digest, catching up with
other nodes; `logged.py`). The view that readers take is a live one while learning happens on the event loop itself, and
a frozen copy while a thread learns. A fit that is due works on copies, in the background, and what comes out is
appended like any other record.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learners import (
    CHANGEABLE,
    BatchOutcome,
    FitResult,
    InvalidInput,
    LabelledBatch,
    Learner,
    LearnerView,
    Rollback,
    Segment,
    ServedBatch,
    SettingsChange,
    Sources,
    join_batches,
    join_outcomes,
)
from learners.numerics import Vector
from service.auth import FREE, Grant
from service.engine.batch_cost import Pace, numbers_of, size_of
from service.engine.feature_names import FeatureNames
from service.engine.node import Node
from service.engine.records import check_record
from service.engine.replica.background_fits import BackgroundFits
from service.engine.replica.label_expiry import LabelExpiry
from service.engine.replica.mailbox import settle
from service.engine.replica.replica import Logged
from service.engine.replica.rollbacks import roll_back
from service.engine.replica.served_events import ServedEvents
from service.errors import Damaged, Invalid, QueueFull, ServiceError, SourceGap, StoreUnavailable
from service.storage import Entry, SnapshotInfo
from service.wire import Labelled, Learnt

__all__ = ["LearnerReplica"]

_INLINE_SECONDS = 1e-3  # work expected to be shorter than this stays on the event loop,
_INLINE_NUMBERS = 2**17  # unless it is of more feature values than this, whatever is expected
_PACKED_BYTES = 2**21  # of a record's columns, which take less than half a millisecond to pack
_FROZEN = 2**16  # numbers of a view, which take about as long to copy as a thread takes to begin
_INLINE_SERVED = 2**10  # events of a record of what was served, of which more are counted by a thread
_PIECE_SECONDS = 0.2  # of a long record, after which others have their turn

LearnerRecord = LabelledBatch | SettingsChange | FitResult | Rollback | ServedBatch


@dataclass
class _Update:
    """A batch that waits to be learnt."""

    batch: LabelledBatch
    size: int  # bytes, of the queue's bound
    done: asyncio.Future[Learnt]


class LearnerReplica(Logged[Learner, LearnerView]):
    """One learner on this node."""

    def __init__(
        self,
        name: str,
        birth: bytes,
        machine: Learner,
        position: int,
        node: Node,
        gone: Callable[[LearnerReplica], None],
        snapshot: SnapshotInfo | None = None,
    ) -> None:
        """See `Logged`."""
        self.queued_bytes = 0
        self.queued_events = 0
        self.users = 0  # requests that it is in the hands of just now
        self.last_used = time.monotonic()  # when the last one let go of it
        self.feature_names = FeatureNames(machine.config.features)
        self._pace = Pace(machine.config)
        self._alarms = machine.metrics.alarm_count
        super().__init__(name, birth, machine, position, node, gone, snapshot)
        self.fits = BackgroundFits(self)
        self.served_events = serving = ServedEvents(self)
        self.label_expiry = LabelExpiry(self, lambda: serving.step)

    @property
    def learner(self) -> Learner:
        """What is hosted."""
        return self.machine

    # What callers use

    def update(self, batch: LabelledBatch) -> asyncio.Future[Learnt]:
        """Queue events to be logged and learnt; what becomes of each, or a `StoreError`. Raises `QueueFull`.

        Who cancels the future before they are logged takes them back.
        """
        self._check()
        size = size_of(batch)
        limit = self.node.settings.queue_bytes
        if self.queued_bytes and self.queued_bytes + size > limit:
            raise QueueFull(f"{self.queued_events} events wait already; try again in a moment")
        return self._queued(batch, size)

    def _queued(self, batch: LabelledBatch, size: int) -> asyncio.Future[Learnt]:
        """As `update`, whatever waits already."""
        self._check()
        done: asyncio.Future[Learnt] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Update(batch, size, done))
        self._wake.set()
        self.queued_bytes += size
        self.queued_events += len(batch)
        return done

    def refusal(self, events: Labelled) -> ServiceError | None:
        """Why labelled events would be refused just now, if they would."""
        if self.failed is not None:
            return self.failed
        if self.queued_bytes >= self.node.settings.queue_bytes:
            return QueueFull(f"{self.queued_events} events wait already; try again in a moment")
        gaps = Sources.gaps(events.segments, self.view.sources) if events.segments else []
        return self._gap(gaps[:1]) if gaps else None

    async def label(self, events: Labelled) -> Learnt:
        """As `update`, with events among them that carry no features but the id of one that was served.

        Many of these become several records: what was served is read back in steps of a bounded size. `QueueFull` is
        raised before the first only, so that it always means that nothing was taken: the queue may go over its bound
        by one record of each request that is under way.
        """
        self._check()
        if events.plain:
            return await self.update(events.batch())
        n, step = len(events.labels), self.served_events.step
        learnt: list[Learnt] = []
        expired: list[NDArray[np.bool_]] = []
        for start in range(0, n, step):
            batch, late = await self.served_events.joined(events.part(start, start + step) if step < n else events)
            learnt.append(await (self._queued(batch, size_of(batch)) if learnt else self.update(batch)))
            expired.append(late)
        outcome = join_outcomes([one.outcome for one in learnt])
        return learnt[-1]._replace(outcome=outcome, expired=np.concatenate(expired))

    async def learnt_scores(self, ids: Sequence[str]) -> Vector:
        """The score that each of n ids was learnt with, (n,); NaN of one that is not remembered."""
        found: list[Vector] = []

        async def run() -> None:
            found.append(self.learner.learnt_scores(ids))

        await self.at_rest(run)
        return found[0]

    async def change(self, values: object, grant: Grant = FREE) -> bool:
        """Change settings that may change; what was learnt stays. Whether anything did. Raises `Invalid`."""
        changed = False

        async def run() -> None:
            nonlocal changed
            await self.read_on()
            present = self.learner.config
            try:
                config = present.with_changes(values)
            except InvalidInput as error:
                raise Invalid("the change is refused; nothing was changed", error.problems) from None
            parts = {
                name: getattr(config, name).to_json()
                for name in CHANGEABLE
                if getattr(config, name) != getattr(present, name)
            }
            if "late" in parts:
                grant.check_config(config, new=False)
            if "threshold" in parts and (problems := config.objections()):
                raise Invalid("the change is refused; nothing was changed", problems)
            if parts:
                changed = True
                await self.append(SettingsChange(parts))

        await self.at_rest(run)
        return changed

    async def restore(self, position: int) -> int:
        """Roll back to a retained snapshot, on every node: the roll-back is a record of the log. Its position."""
        record = await roll_back(self.node, self.name, self.birth, self.learner.config, position)

        async def run() -> None:
            await self.append(record)

        await self.at_rest(run)
        return self.position

    def release(self) -> None:
        """A request that it was in the hands of is done with it."""
        self.users -= 1
        self.last_used = time.monotonic()

    @property
    def at_work(self) -> bool:
        """Whether events are being learnt, or it changes otherwise, or somebody waits for that."""
        return bool(self._waiting or self._current)

    @property
    def idle(self) -> bool:
        """Whether nobody has it in hand, watches it or waits for it, and nothing of it is under way."""
        under_way = self.at_work or self._watchers or self.fits.running or self.served_events.busy
        return not self.users and self.failed is None and not under_way

    async def close(self, save: bool) -> None:
        """Answer everyone who waits, take a last snapshot if asked to, and stop."""
        await super().close(save)
        await self.fits.close()

    def tick(self) -> None:
        """Called now and then: besides its snapshot, labels that never came are assumed."""
        super().tick()
        self.label_expiry.tick()

    # The task

    def _considered(self) -> None:
        super()._considered()
        self.fits.consider()

    def _applied(self, entry: Entry, record: Any, own: bool) -> None:
        if isinstance(record, FitResult):
            self.fits.applied()
        elif isinstance(record, LabelledBatch):
            self.label_expiry.learnt(record)
        elif isinstance(record, Rollback):
            self.label_expiry.rolled_back()
        if self.served_events.applied(entry.token):  # appended past the task
            own = True
            self.node.notifier.moved(self.name, entry.position)
        self.label_expiry.moved(
            own=own and not isinstance(record, LabelledBatch)
        )  # in a batch of ours what was due is there
        alarms = self.machine.metrics.alarm_count
        if own and alarms > self._alarms:
            for alarm in self.view.figures.alarms(self._alarms):
                self.node.webhook.tell(self.name, alarm)
        self._alarms = alarms

    def saved_elsewhere(self, position: int) -> None:
        """See `Logged`."""
        self.label_expiry.told(position)

    async def settle_up(self) -> None:
        """See to what has to be in the store before a snapshot. Only in what was `put`."""
        await self.label_expiry.settle_up()

    def _jumped(self, back: bool) -> None:
        self.served_events.jumped()
        self.label_expiry.jumped(back)
        self._alarms = self.machine.metrics.alarm_count

    def _weight(self, record: LearnerRecord) -> int:
        return len(record) if isinstance(record, (LabelledBatch, ServedBatch)) else 1

    async def _turn(self) -> None:
        self._current = updates = self._drain()
        await self._learn(updates)

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
                settle(update.done, self.failed)
            return
        try:
            outcome = await self.label_expiry.learn(join_batches([update.batch for update in updates]))
        except ServiceError as error:
            self._notice(error)
            for update in updates:
                settle(update.done, error)
            return
        counts = self.machine.class_counts
        start = 0
        for update in updates:
            stop = start + len(update.batch)
            part = outcome if len(updates) == 1 else outcome.part(start, stop)
            if part.beyond.any():
                settle(update.done, self._gap(update.batch.segments[:1]))
            elif not update.done.done():
                update.done.set_result(Learnt(part, self.position, counts))
            start = stop

    async def log_batch(self, batch: LabelledBatch) -> BatchOutcome:
        """Append a batch and learn it: as one record, but for one that goes on beyond the end of a warm-up.

        Only in what was `put`, or in turn.
        """
        outcomes: list[BatchOutcome] = []
        done = 0
        while done < len(batch) or not outcomes:
            part = batch.part(done, len(batch))
            if self.learner.fit_urgent and not self.learner.fit_due:
                part = part.part(0, self.learner.events_until_fit(part))
            outcome: BatchOutcome = await self.append(part, small=size_of(part) < _PACKED_BYTES)
            outcomes.append(outcome)
            done += len(part)
            if self.learner.fit_urgent:
                await self.fits.begin()
        return join_outcomes(outcomes)

    def _gap(self, segments: Sequence[Segment]) -> SourceGap:
        said = [
            f"the source {one.name!r} goes on at {self.view.sources.get(one.name, 0)}, not at {one.after}"
            for one in segments
        ]
        return SourceGap(f"{'; '.join(said)}; nothing of the request was learnt")

    async def read_on(self) -> None:
        """See `Logged`. What was served here, and stood in the log before, is applied then, or the store lost it."""
        mark = self.served_events.mark
        await super().read_on()
        self.served_events.read_up_to(mark)

    async def log_fit(self, fitted: FitResult) -> None:
        """Append what was fitted, and apply everything up to it; only in what was `put`."""
        await self.append(fitted)

    def _check_read(self, record: Any, what: str) -> None:
        if not isinstance(record, LearnerRecord):
            raise Damaged(f"{what} is of a group, not of a learner")
        check_record(record, self.machine.config, what)

    async def _move(self, record: LearnerRecord) -> BatchOutcome | None:
        """Apply a record: here if that is short work, else piece by piece in a thread.

        Pieces (the result is the same to the bit) let other learners have the thread, and let a stop or a deletion end
        a long record half-way: the log has it, and the next start learns it whole.
        """
        if not self._pace.figures_loaded:  # compiling them here would hold up every request
            await self.node.in_thread(self._pace.load_figures)
        if isinstance(record, ServedBatch) and len(record) <= _INLINE_SERVED:
            return self._apply_record(record)
        if not isinstance(record, LabelledBatch):
            await self._freeze()
            await self.node.in_thread(lambda: self._apply_record(record))
            return None
        short = numbers_of(record) <= _INLINE_NUMBERS and self._seconds(record) < _INLINE_SECONDS
        if short and self._pace.loaded:
            return self._apply_timed(record)
        await self._freeze()
        outcomes = []
        start = 0
        while start < len(record):
            if self.abandon.is_set():  # the state is between two positions: nothing may be made of it any more
                self.failed = StoreUnavailable(f"{self.name} stops here; the events are in the log and will be learnt")
                raise self.failed
            share = _PIECE_SECONDS / max(self._seconds(record), 1e-9)
            stop = min(len(record), start + max(1, int(share * len(record))))
            piece = record.part(start, stop)
            outcomes.append(await self.node.in_thread(functools.partial(self._apply_timed, piece)))
            start = stop
        return join_outcomes(outcomes)

    async def _freeze(self) -> None:
        """Let readers see the present moment while the learner moves in a thread; nothing moves while it is copied."""
        view = self.view
        small = view.figures.size + sum(array.size for array in view.scorer.weights) <= _FROZEN
        self.view = view.frozen() if small else await self.node.in_thread(view.frozen)

    def _seconds(self, batch: LabelledBatch) -> float:
        """What a batch will probably take to learn."""
        return self._pace.seconds(batch, self.machine.columns)

    def _apply_timed(self, batch: LabelledBatch) -> BatchOutcome:
        """Apply a batch, and note its pace: by the thread's own clock, as a busy machine's waits are no work."""
        began = time.thread_time()
        outcome = self._apply_record(batch)
        assert outcome is not None
        self._pace.note(batch, self.machine.columns, time.thread_time() - began, outcome)
        return outcome

    def _apply_record(self, record: LearnerRecord) -> BatchOutcome | None:
        try:
            return self.learner.apply(record)
        except InvalidInput as error:
            raise Damaged(f"a record of {self.name} does not fit its configuration: {error}") from error
