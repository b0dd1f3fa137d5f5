"""A learner on this node: its mailbox, its log, and its background work.

    update -> queue -> (drain) one record -> store.append -> Learner.apply, in log order -> reply

Updates wait in the mailbox with jobs that need the learner at rest (snapshot, restore, digest, catching up with other
nodes). Updates that wait one behind the other become one record.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from learners import (
    ABSENT_AFTER,
    CHANGEABLE,
    BatchOutcome,
    Config,
    FitResult,
    InvalidInput,
    LabelledBatch,
    Learner,
    LearnerView,
    Segment,
    ServedBatch,
    SettingsChange,
    Sources,
    join_batches,
    join_outcomes,
)
from service.auth import UNRESTRICTED, Permissions
from service.engine.batch_cost import memory_bytes
from service.engine.feature_names import FeatureNames
from service.engine.node_resources import Node, RecoveredState
from service.engine.replica.background_fits import BackgroundFits
from service.engine.replica.label_expiry import LabelExpiry
from service.engine.replica.label_join import ServedEvents, join_step
from service.engine.replica.learner_machine import LearnerMachine
from service.engine.replica.learner_store import LearnerStore
from service.engine.replica.lease import Lease
from service.engine.replica.log_follower import LogFollower, RecordApplied, SnapshotJump
from service.engine.replica.mailbox import Job, Mailbox, reject
from service.engine.replica.news import Alert, News, alerts_after, newest_number
from service.engine.replica.snapshots import Snapshots, load_roll_back
from service.errors import Invalid, QueueFull, ServiceError, SourceGap
from service.storage import ServedCounts
from service.wire import Labelled, Learnt

__all__ = ["LearnerReplica"]

logger = logging.getLogger("rarestream.serving")
alarm_logger = logging.getLogger("rarestream.webhook")

Value = TypeVar("Value")


class _Update(NamedTuple):
    """A batch that waits to be learnt."""

    batch: LabelledBatch
    size: int  # bytes, of the queue's bound
    future: asyncio.Future[Learnt]


class LearnerReplica:
    """One learner on this node."""

    def __init__(
        self,
        name: str,
        birth: bytes,
        recovered: RecoveredState,
        pending: ServedCounts | None,
        node: Node,
        forget: Callable[[LearnerReplica], None],
    ) -> None:
        """Host the learner `recovered`; `pending`: its served events; `forget` is called if the store lost it."""
        assert isinstance(recovered.machine, Learner)
        self.name = name
        self.birth = birth
        self.node = node
        self.queued_bytes = 0
        self.queued_events = 0
        self.users = 0  # requests that use it just now
        self.last_used = time.monotonic()  # when the last one released it
        self.feature_names = FeatureNames(recovered.machine.config.features)
        self.times_ahead = 0  # times ahead of this node's clock, which became now
        self._forget = forget
        self._changes = recovered.machine.metrics.alarm_changes  # of alarms, that were logged
        self._fields_checked = False  # whether declared fields that never come were looked for
        self._fields_full = False  # whether it was reported
        self._waiting: tuple[asyncio.Future[None], deque[_Update]] | None = (
            None  # the last job that learns, its updates
        )
        self.mailbox = Mailbox(name, self._plan, self._report_deletion)
        stored = self._stored = LearnerStore(node, name, birth)
        machine = LearnerMachine(name, recovered.machine, node, self.mailbox)
        self.log = LogFollower(stored, recovered, machine, node, self.mailbox, self._observe)
        lease = self.lease = Lease(stored, node.settings)
        self.fits = BackgroundFits(self.log, self.mailbox, lease)
        self.served_events = ServedEvents(self.log, stored, pending)
        self.label_expiry = LabelExpiry(self.log, stored, lease, self.fits.learn)
        self.snapshots = Snapshots(self.log, stored, lease, recovered.snapshot, self.label_expiry)
        self._news = News(self.log, stored, lease, node.settings.posts_alerts(name))
        node.webhooks.note(self._news)  # what was not posted before a restart

    @property
    def learner(self) -> Learner:
        """The learner itself."""
        return self.log.machine.core

    @property
    def position(self) -> int:
        """How far the log is applied."""
        return self.log.position

    @property
    def view(self) -> LearnerView:
        """The view for readers."""
        return self.log.machine.view

    @property
    def failure(self) -> ServiceError | None:
        """The reason why the learner cannot continue."""
        return self.mailbox.failure

    @property
    def idle(self) -> bool:
        """Tell whether nobody uses it, watches it or waits for it, and no work on it is in progress."""
        mailbox = self.mailbox
        in_progress = mailbox.busy or mailbox.watched or self.fits.running or self.served_events.busy
        return not self.users and mailbox.failure is None and not in_progress

    def newest_time(self) -> float:
        """Return the learner's clock: the largest time of any event or label so far; NaN if there is none."""
        return self.learner.metrics.clock

    # For callers

    def update(self, batch: LabelledBatch) -> asyncio.Future[Learnt]:
        """Queue events to be logged and learnt; the future has the result of each, or a `StoreError`.

        Cancelling the future before they are logged withdraws them. Raises `QueueFull`.
        """
        self.mailbox.check()
        size = memory_bytes(batch)
        if self.queued_bytes and self.queued_bytes + size > self.node.settings.queue_bytes:
            raise self._queue_full()
        return self._queue(batch, size)

    def refusal(self, events: Labelled) -> ServiceError | None:
        """Return the error with which labelled events would be refused just now."""
        if self.mailbox.failure is not None:
            return self.mailbox.failure
        if self.queued_bytes >= self.node.settings.queue_bytes:
            return self._queue_full()
        gaps = Sources.gaps(events.segments, self.view.sources) if events.segments else []
        return self._gap(gaps[:1]) if gaps else None

    async def label(self, events: Labelled) -> Learnt:
        """Learn as `update` does, with events among them that carry no features but the id of a served event.

        Many of these become several records, because the served events are read back in steps of a bounded size.
        `QueueFull` is raised only before the first, so that it always means that nothing was learnt. So each request in
        progress may exceed the bound of the queue by one record.
        """
        self.mailbox.check()
        if events.plain:
            return await self.update(events.batch())
        n, step = len(events.labels), join_step(self.learner.config)
        learnt: list[Learnt] = []
        expired: list[NDArray[np.bool_]] = []
        for start in range(0, n, step):
            batch, late = await self.served_events.join(events.part(start, start + step) if step < n else events)
            learnt.append(await (self._queue(batch, memory_bytes(batch)) if learnt else self.update(batch)))
            expired.append(late)
        outcome = join_outcomes([part.outcome for part in learnt])
        return learnt[-1]._replace(outcome=outcome, expired=np.concatenate(expired))

    async def alerts_after(self, number: int) -> tuple[list[Alert], int]:
        """List the remembered alerts that were scored after the event with this number: see `news.alerts_after`."""
        return await alerts_after(self._stored, self.log.machine, number)

    async def newest_served(self) -> int:
        """Return the number of the newest served event; 0 if none is remembered."""
        return await newest_number(self._stored)

    def note_ahead(self, count: int) -> None:
        """Count times that were ahead of this node's clock, and warn of the first ones."""
        if count and not self.times_ahead:
            logger.warning(
                "%s: some times are ahead of this node's clock and count as now; see rarestream_times_ahead_total",
                self.name,
            )
        self.times_ahead += count

    async def read(self, value: Callable[[Learner], Value], *, in_thread: bool = False) -> Value:
        """Return a value of the learner at rest, after the jobs that wait already; in a thread if it takes long."""

        async def run() -> Value:
            return await self.node.in_thread(lambda: value(self.learner)) if in_thread else value(self.learner)

        return await self.mailbox.run(run)

    async def change(self, values: object, permissions: Permissions = UNRESTRICTED) -> bool:
        """Change settings that may change, and keep the model; tell whether anything changed.

        Raises `Invalid`.
        """

        async def run() -> bool:
            await self.log.read_on()
            present, config = self.learner.config, self.changed_config(values)
            parts = {
                name: getattr(config, name).to_json()
                for name in CHANGEABLE
                if getattr(config, name) != getattr(present, name)
            }
            if "late" in parts:
                permissions.check_config(config, new=False)
            if parts:
                await self.log.append(SettingsChange(parts), small=True, reserve=True)
            return bool(parts)

        return await self.mailbox.run(run)

    def changed_config(self, values: object) -> Config:
        """Return the configuration that a change would lead to. Raises `Invalid`."""
        present = self.learner.config
        try:
            config = present.with_changes(values)
            if config.threshold != present.threshold and (problems := config.objections()):
                raise InvalidInput(problems)
        except InvalidInput as error:
            raise Invalid("the change is refused; nothing was changed", error.problems) from None
        return config

    async def restore(self, position: int) -> int:
        """Roll back to a retained snapshot, on every node, by a record of the log; return its position."""
        record = await load_roll_back(self.node, self._stored, self.learner.config, position)

        async def run() -> None:
            await self.log.append(record)

        await self.mailbox.run(run)
        return self.position

    def release(self) -> None:
        """End the use by a request."""
        self.users -= 1
        self.last_used = time.monotonic()

    def tick(self) -> None:
        """Look now and then for work that is due by time: a quiet learner gets its snapshot too."""
        if self.label_expiry.tick() or self.snapshots.overdue:
            self.mailbox.wake()

    async def close(self, save: bool) -> None:
        """Answer everyone who waits and stop, after a last snapshot if asked to `save`."""
        if save:
            await self.snapshots.save_last()
        await self.mailbox.close()
        await self.snapshots.close()
        await self.fits.close()

    # For the mailbox and the log

    def _plan(self) -> Iterator[Job]:
        yield from self.snapshots.jobs()
        yield from self.fits.jobs()
        yield from self.label_expiry.jobs()

    def _report_deletion(self) -> None:
        self._forget(self)

    def _observe(self, step: RecordApplied | SnapshotJump) -> None:
        self.snapshots.observe(step)
        self.label_expiry.observe(step)
        if isinstance(step, RecordApplied) and isinstance(step.record, FitResult):
            self.fits.note_fitted()
        self._note_news(step)
        if not self._fields_checked and self.learner.metrics.events >= ABSENT_AFTER:
            self._fields_checked = True
            if absent := self.view.absent_fields:
                names = ", ".join(map(repr, absent))
                logger.warning("no event of %s has had its declared fields %s; are they misspelt?", self.name, names)

    def _note_news(self, step: RecordApplied | SnapshotJump) -> None:
        """Log alarms that a request of this node changed, and have news posted."""
        changes, before = self.learner.metrics.alarm_changes, self._changes
        self._changes = changes
        record = step.record if isinstance(step, RecordApplied) else None
        if isinstance(step, RecordApplied) and step.appended_here and changes > before:
            for alarm in self.view.alarms(change=before):
                level = logging.INFO if alarm["state"] == "resolved" else logging.WARNING
                kind, state = alarm["kind"], alarm["state"]
                alarm_logger.log(level, "%s: %s alarm at %d events is %s", self.name, kind, alarm["events"], state)
        if changes < before:
            self._news.note_rollback(changes)
        if changes != before or record is None or (self._news.alerts and isinstance(record, ServedBatch)):
            self.node.webhooks.note(self._news)

    # Updates

    def _queue(self, batch: LabelledBatch, size: int) -> asyncio.Future[Learnt]:
        """Queue a batch without a check of the bound; it joins the updates at the end of the queue."""
        self.mailbox.check()
        update = _Update(batch, size, asyncio.get_running_loop().create_future())
        if self._waiting is None or self.mailbox.last is not self._waiting[0]:
            self._submit(deque())
        assert self._waiting is not None
        self._waiting[1].append(update)
        self.queued_bytes += size
        self.queued_events += len(batch)
        return update.future

    def _submit(self, updates: deque[_Update], urgent: bool = False) -> None:
        """Submit the job that learns some of the updates."""
        learning: list[_Update] = []
        future = self.mailbox.submit(partial(self._learn_some, updates, learning), urgent)
        future.add_done_callback(partial(self._reject_all, updates, learning))
        if self.mailbox.last is future:
            self._waiting = future, updates

    async def _learn_some(self, updates: deque[_Update], learning: list[_Update]) -> None:
        """Learn the updates that fit one record; another job does the rest."""
        self._drain(updates, learning, self.node.settings.record_events)
        if updates:
            self._submit(updates, urgent=True)
        if not learning:
            return
        try:
            batch = join_batches([update.batch for update in learning])
            if batch.fields:
                batch = replace(batch, fields=self.learner.new_fields(batch.fields))
            outcome = await self.label_expiry.learn(batch)
            if batch.fields and not self._fields_full and self.view.fields_full:
                self._fields_full = True
                logger.warning("%s remembers no further fields: values of others are learnt, not counted", self.name)
        except ServiceError as error:
            reason = self.mailbox.note_failure(error)
            for update in learning:
                reject(update.future, reason)
        else:
            self._answer(learning, outcome)

    def _drain(self, updates: deque[_Update], learning: list[_Update], limit: float) -> None:
        """Take updates of so many events together out of the queue, at least one."""
        events = 0
        while updates and (not learning or events + len(updates[0].batch) <= limit):
            update = updates.popleft()
            self.queued_bytes -= update.size
            self.queued_events -= len(update.batch)
            if not update.future.cancelled():  # else the caller hung up before anything was logged
                learning.append(update)
                events += len(update.batch)

    def _answer(self, learning: list[_Update], outcome: BatchOutcome) -> None:
        counts = self.learner.class_counts
        start = 0
        for update in learning:
            stop = start + len(update.batch)
            part = outcome if len(learning) == 1 else outcome.part(start, stop)
            if part.beyond.any():
                reject(update.future, self._gap(update.batch.segments[:1]))
            elif not update.future.done():
                update.future.set_result(Learnt(part, self.position, counts))
            start = stop

    def _reject_all(self, updates: deque[_Update], learning: list[_Update], future: asyncio.Future[None]) -> None:
        """Answer the updates of a job that did not run to its end."""
        error = None if future.cancelled() else future.exception()
        if isinstance(error, ServiceError):
            self._drain(updates, learning, math.inf)
            for update in learning:
                reject(update.future, error)

    def _queue_full(self) -> QueueFull:
        return QueueFull(f"{self.queued_events} events wait already; try again in a moment")

    def _gap(self, segments: Sequence[Segment]) -> SourceGap:
        gaps = [
            f"the source {segment.name!r} goes on at {self.view.sources.get(segment.name, 0)}, not at {segment.after}"
            for segment in segments
        ]
        return SourceGap(f"{'; '.join(gaps)}; nothing of the request was learnt")
