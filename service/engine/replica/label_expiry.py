"""Treat served events whose label does not arrive within `label_ttl` as negatives.

    the clock passes an event's time + label_ttl -> has its label arrived? -> a batch of labels, before the event that
                                                                              moved the clock, in the same record

Only the log decides which events are overdue: an event waits for those served before it, labelled or not. If the store
does not know yet that a label has arrived, the learner does. So the result does not depend on the batching of requests.

The node that appends a record also expires the events that become overdue by it: before the events of a batch, or after
another record. A node may die between the two, so the node with the lease (`lease.py`) checks now and then. Labels that
another node has expired meanwhile are not learnt again. The same node reports to the store which labels have arrived
and how far labels have expired, now and then and before each snapshot. The other nodes keep their reports until they
hear of a snapshot. After a crash, the records beyond that snapshot are applied again. Labels by id are reported of
every learner, because the store keeps them as the history of the event.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from learners import (
    BatchOutcome,
    LabelledBatch,
    LateColumns,
    Learner,
    Rollback,
    join_outcomes,
    merge_batches,
)
from service.engine.records import check_record, unpack_served
from service.engine.replica.label_join import join_step
from service.engine.replica.learner_machine import LearnerMachine
from service.engine.replica.learner_store import LearnerStore
from service.engine.replica.lease import Lease
from service.engine.replica.log_follower import LogFollower, RecordApplied, SnapshotJump
from service.engine.replica.mailbox import Job
from service.storage import ServedEvent, ServedLabel

__all__ = ["LabelExpiry"]

ArrivedLabels = dict[str, list[ServedLabel]]  # by id of the event

_EXPIRED = 5000  # labels per record, at most
_UNREPORTED = 100_000  # ids of labels kept for a report; beyond that each node reports, even without the lease


class _Overdue(NamedTuple):
    """Events whose label has not arrived in time."""

    labels: LabelledBatch  # that they are negative
    places: NDArray[np.int64]  # (n,) of the event in the batch before which each is overdue
    stop: int  # up to this event of the batch no others are overdue
    upto: int  # number up to which the store settles once they are learnt
    more: bool  # whether more events may be overdue


class LabelExpiry:
    """The label expiry of one learner."""

    def __init__(
        self,
        log: LogFollower[LearnerMachine],
        stored: LearnerStore,
        lease: Lease,
        learn: Callable[[LabelledBatch], Awaitable[BatchOutcome]],
    ) -> None:
        """`learn` appends a batch and learns it, in a job."""
        self._log = log
        self._lease = lease
        self._learn = learn
        self._stored = stored
        self._busy = False  # a job is queued or runs
        self._expire_due = self._report_due = self._check_due = False
        self._upto = 0  # events served up to this number are expired or labelled
        self._settled = 0  # the same, as reported to the store
        self._since = -math.inf  # events overdue by this time are expired or labelled
        self._reopened = 0  # position of a roll-back that the store does not know yet; 0: none
        # positions, and by id the labels that arrived there and the store does not know yet
        self._labelled: deque[tuple[int, ArrivedLabels]] = deque()
        self._unreported = 0  # ids
        self._reported = 0  # up to this position another node has told the store everything
        self._unchecked = True  # something has happened since everything was checked
        self._not_before = 0.0  # for asking for the lease again

    # What happens

    def observe(self, step: RecordApplied | SnapshotJump) -> None:
        """Note a step of the log follower."""
        if isinstance(step, SnapshotJump):
            self._note_jump(step.back)
            return
        if isinstance(step.record, LabelledBatch):
            self._note_labels(step.record)
        elif isinstance(step.record, Rollback):
            self._note_roll_back()
        self._unchecked = True
        # a batch of this node already includes the events that it makes overdue
        if step.appended_here and not isinstance(step.record, LabelledBatch) and self._assumes and not self._busy:
            self._expire_due = True

    def note_report(self, position: int) -> None:
        """Note that another node has told the store everything up to a position: it has saved a snapshot there."""
        self._reported = max(self._reported, position)
        while self._labelled and self._labelled[0][0] <= self._reported:
            self._unreported -= len(self._labelled.popleft()[1])
        if self._reopened <= self._reported:
            self._reopened = 0

    def tick(self) -> bool:
        """Look now and then whether something was overlooked; tell whether that makes a job due."""
        if self._assumes and self._unchecked and not self._busy and time.monotonic() >= self._not_before:
            self._check_due = True
        return self._check_due

    def unreported(self) -> ArrivedLabels:
        """Give the labels that have arrived and which the store may not know yet, by id and in order."""
        arrived: ArrivedLabels = {}
        for _, labels in self._labelled:
            for id, new in labels.items():
                arrived[id] = arrived.get(id, []) + new
        return arrived

    def jobs(self) -> Iterator[Job]:
        """Give the job that is due."""
        if self._busy:
            return
        run: Callable[[], Awaitable[None]]
        if self._expire_due:
            run = self._expire
        elif self._report_due:
            run = self._report
        elif self._check_due:
            run = self._check
        else:
            return
        self._busy, self._expire_due, self._report_due, self._check_due = True, False, False, False

        async def job() -> None:
            try:
                await run()
            finally:
                self._busy = False

        yield Job(job)

    @property
    def _assumes(self) -> bool:
        return self._learner.config.late.unlabelled == "negative"

    @property
    def _learner(self) -> Learner:
        return self._log.machine.core

    def _note_labels(self, batch: LabelledBatch) -> None:
        """Keep for the store whose labels have arrived."""
        position = self._log.position
        if batch.ids is None or position <= self._reported or not (self._assumes or batch.late):
            return
        late = batch.late or LateColumns.none(len(batch))
        arrived_here = ~late.assumed if self._assumes else late.served & ~late.assumed
        columns = batch.ids, batch.labels.tolist(), late.labelled.tolist(), arrived_here.tolist()
        labelled = [
            (id, ServedLabel(position, max(0, int(label)), time))
            for id, label, time, arrives in zip(*columns, strict=True)
            if id is not None and arrives
        ]
        learnt = self._learner.find_learnt([id for id, _ in labelled])  # neither unknown ids nor those beyond a gap
        arrived: ArrivedLabels = {}
        for (id, label), is_learnt in zip(labelled, learnt.tolist(), strict=True):
            if is_learnt:
                arrived.setdefault(id, []).append(label)
        self._labelled.append((position, arrived))
        self._unreported += len(arrived)
        if self._unreported > _UNREPORTED and not self._busy:
            self._report_due = True

    def _note_jump(self, back: bool) -> None:
        """Start again from a snapshot of another node: the store knows how far that had come.

        If the follower went `back` to what the store kept, labels that were learnt since have not arrived.
        """
        self._upto = self._settled = 0
        if back:
            self._labelled.clear()
            self._unreported = self._reported = 0
            self._since = -math.inf

    def _note_roll_back(self) -> None:
        """Start again from the beginning: labels that expired after the snapshot are open again.

        What was overdue by the clock of the snapshot had expired before it was taken, see `flush`.
        """
        learner = self._learner
        self._upto = self._settled = 0
        if self._log.position > self._reported:
            self._reopened = self._log.position
        self._since = float(np.fmax(learner.metrics.clock - learner.config.late.label_ttl, -math.inf))

    # What is done about it, only in a job

    async def learn(self, batch: LabelledBatch) -> BatchOutcome:
        """Append a batch and learn it; before each of its events, learn the events that are overdue by its time.

        So it does not matter how events are cut into batches. The outcome is that of the batch alone.
        """
        outcomes: list[BatchOutcome] = []
        while len(batch) and (overdue := await self._find_overdue(batch)) is not None:
            stop = overdue.stop if overdue.more else len(batch)  # what follows may find others overdue
            part, at = batch.part(0, stop), np.arange(stop)
            if len(overdue.labels):
                part, at = merge_batches(part, overdue.labels, overdue.places)
            if len(part):
                outcomes.append((await self._learn(part)).of(at))
            self._upto = overdue.upto
            batch = batch.part(stop, len(batch))
        if len(batch) or not outcomes:
            outcomes.append(await self._learn(batch))
        return join_outcomes(outcomes)

    async def flush(self) -> None:
        """Expire all overdue events and report to the store, before a snapshot covers these records."""
        while await self._expire_some():
            pass
        await self._report()

    async def _check(self) -> None:
        """Expire overdue events and report to the store, unless another node has the lease."""
        if await self._take_lease():
            await self._expire()

    async def _expire(self) -> None:
        """Expire overdue events, then report to the store if this node has the lease."""
        if await self._expire_some():
            self._expire_due = True  # after whatever else waits
        elif await self._take_lease():
            await self._report()
            self._unchecked = False

    async def _take_lease(self) -> bool:
        """Tell whether this node has the lease."""
        if time.monotonic() < self._not_before:
            return False
        if not await self._lease.take():
            self._not_before = time.monotonic() + self._lease.seconds / 4
            return False
        return True

    async def _expire_some(self) -> bool:
        """Learn overdue events without a new event; tell whether there were any."""
        overdue = await self._find_overdue(None)
        if overdue is None:
            return False
        if len(overdue.labels):
            await self._learn(overdue.labels)
        self._upto = overdue.upto
        return True

    async def _report(self) -> None:
        """Tell the store whose labels have arrived, and how far labels have expired."""
        if self._labelled:
            last = self._labelled[-1][0]
            await self._stored.labelled(self.unreported())
            while self._labelled and self._labelled[0][0] <= last:
                self._unreported -= len(self._labelled.popleft()[1])
        await self._reopen()
        if self._upto > self._settled:
            await self._stored.settle(self._upto)
            self._settled = self._upto

    async def _reopen(self) -> None:
        if self._reopened:
            await self._stored.reopen()
            self._reopened, self._settled = 0, 0

    async def _find_overdue(self, batch: LabelledBatch | None) -> _Overdue | None:
        """Find the events that are overdue by the end of a batch, or by now."""
        log = self._log
        while self._assumes:
            learner, ttl = self._learner, self._learner.config.late.label_ttl
            clocks = np.array([learner.metrics.clock]) if batch is None else learner.clocks(batch)
            if math.isnan(clocks[-1]):
                return None
            await self._reopen()
            limit, position = min(_EXPIRED, join_step(learner.config)), log.position
            expired = await self._stored.expired(float(clocks[-1]) - ttl, limit, self._upto)
            if not expired.events:
                return None
            await log.read_on()
            if log.position != position:  # another node has moved the clock, changed the policy, or learnt these
                continue
            # an event waits for those served before it, whether they have their labels or not
            latest = np.maximum.accumulate([event.time for event in expired.events])
            before = np.fmax(clocks - ttl, -math.inf)
            places = np.searchsorted(before, latest, side="right")
            missing = ~np.array(expired.labelled) & ~learner.find_learnt([event.id for event in expired.events])
            missing &= latest >= self._since
            events = [expired.events[i] for i in np.flatnonzero(missing).tolist()]
            return _Overdue(self._negatives(events, ttl), places[missing], int(places[-1]), expired.upto, expired.more)
        return None

    def _negatives(self, events: Sequence[ServedEvent], ttl: float) -> LabelledBatch:
        n, config = len(events), self._learner.config
        what = f"a served event of {self._log.name}"
        columns = unpack_served([event.data for event in events], config.encode([]), what)
        times = np.array([event.time for event in events])
        late = LateColumns(
            np.ones(n, dtype=np.bool_),
            np.zeros(n, dtype=np.bool_),
            np.ones(n, dtype=np.bool_),
            columns.scores,
            columns.probabilities,
            columns.thresholds,
            columns.decisions,
            times + ttl,
        )
        ids = tuple(event.id for event in events)
        values = columns.segment_values
        batch = LabelledBatch(
            columns.rows, np.full(n, -1.0), None, times, ids, costs=columns.costs, late=late, segment_values=values
        )
        check_record(batch, config, what)
        return batch
