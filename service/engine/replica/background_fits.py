"""Fit one learner in the background: when a fit begins, where it runs, and how its outcome comes into the log.

    due -> lease -> copies (the learner at rest) -> a thread -> still needed? -> append, like any other record

One of the nodes that have the learner makes the fit: the one with the lease (`lease.py`). The others wait for its
record for a while. After that they make the fit too, and the first one in the log counts.

A fit of a batch algorithm runs in the background. Events in the queue wait for the fit of an online learner's
embedding, because anything learnt without it would have to be learnt again. If the store is away, the append of an
outcome is retried after the other jobs.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from contextlib import suppress

from learners import BatchOutcome, FitJob, FitResult, LabelledBatch, Learner, join_outcomes
from service.engine.batch_cost import memory_bytes
from service.engine.replica.learner_machine import LearnerMachine
from service.engine.replica.lease import Lease
from service.engine.replica.log_follower import LogFollower
from service.engine.replica.mailbox import Job, Mailbox
from service.errors import ServiceError, StoreUnavailable, TooLarge

__all__ = ["BackgroundFits"]

logger = logging.getLogger("rarestream.fits")

_PAUSE = 1.0  # seconds before an outcome that could not be appended is retried
_LOOK = 0.05  # seconds between two looks for another node's fit, while events wait
_PATIENCE, _URGENT_PATIENCE = 600.0, 60.0  # seconds to wait for another node's fit, and for one that events wait for
_PACKED_BYTES = 2**21  # of a record's columns, which take less than half a millisecond to pack


class BackgroundFits:
    """The fits of one learner, at most one at a time."""

    def __init__(self, log: LogFollower[LearnerMachine], mailbox: Mailbox, lease: Lease) -> None:
        self._log = log
        self._mailbox = mailbox
        self._lease = lease
        self._queued = False  # a job begins one next
        self._started = False  # it has its thread: a node makes one background fit at a time
        self._task: asyncio.Task[FitResult] | None = None
        self._renewal: asyncio.Task[None] | None = None
        self._since: float | None = None  # on the monotonic clock: waiting for another node's fit
        self._not_before = 0.0  # for asking for the lease again
        self._outcome: FitResult | None = None  # not in the log yet
        self._log_due = self._release_due = False
        self.failure: str | None = None  # why the last fit failed

    @property
    def running(self) -> bool:
        """Tell whether a fit is queued, waits for its turn, runs, or is not in the log yet."""
        return self._queued or self._task is not None or self._outcome is not None

    @property
    def waiting(self) -> bool:
        """Tell whether it waits for other learners' fits."""
        return self._task is not None and not self._started

    def jobs(self) -> Iterator[Job]:
        """Give the jobs that are due."""
        if self._log_due:
            self._log_due = False
            yield Job(self._append_outcome)
        if self._release_due:
            self._release_due = False
            yield Job(self._lease.release)
        if not self._learner.fit_due:
            self._since = None
        elif not self.running and not self._abandoned and time.monotonic() >= self._not_before:
            self._queued = True
            yield Job(self._begin, urgent=True)

    def note_fitted(self) -> None:
        """Note that a fit of the log, whichever node made it, has been applied."""
        self.failure = None
        self._since, self._not_before = None, 0.0

    async def learn(self, batch: LabelledBatch) -> BatchOutcome:
        """Append a batch and learn it: as one record, unless it goes beyond the end of a warm-up. Only in a job.

        A fit that later events wait for is made in between.
        """
        outcomes: list[BatchOutcome] = []
        learnt = 0
        while learnt < len(batch) or not outcomes:
            part = batch.part(learnt, len(batch))
            learner = self._learner
            if learner.fit_urgent and not learner.fit_due:
                part = part.part(0, learner.events_until_fit(part))
            outcome: BatchOutcome = await self._log.append(part, small=memory_bytes(part) < _PACKED_BYTES)
            outcomes.append(outcome)
            learnt += len(part)
            if self._learner.fit_urgent:
                await self._begin()
        return join_outcomes(outcomes)

    async def close(self) -> None:
        """Cancel the running fit; its thread ends later, without a use for the outcome."""
        for task in (self._renewal, self._task):
            if task is not None and not task.done():
                task.cancel()
                await asyncio.wait([task])

    @property
    def _learner(self) -> Learner:
        return self._log.machine.core

    @property
    def _abandoned(self) -> bool:
        return self._mailbox.abandon.is_set()

    async def _begin(self) -> None:
        """Begin a fit if one is due; an urgent one is in the log, or refused, on return. Only in a job."""
        learner, node = self._learner, self._log.node
        if self._task is not None or self._outcome is not None or not learner.fit_due:
            self._queued = False
            return
        self._queued = True
        urgent = learner.fit_urgent
        try:
            if not await (self._acquire_urgently() if urgent else self._acquire()):
                return
            fitting = await node.in_thread(self._learner.fit_job)
        except MemoryError:
            self._refuse("there is not enough memory for the retained events")
            return
        finally:
            self._queued = False
        self._started = False
        self._task = asyncio.create_task(
            node.in_background(lambda: self._run(fitting), urgent=urgent), name=f"fit of {self._log.name}"
        )
        self._task.add_done_callback(self._handle_end)
        renewal = asyncio.create_task(self._renew(self._task), name=f"lease of {self._log.name}")
        self._renewal = node.background.watch(renewal, "renew leases")
        if urgent:
            abandon = asyncio.ensure_future(self._mailbox.abandon.wait())
            await asyncio.wait([self._task, abandon], return_when=asyncio.FIRST_COMPLETED)
            abandon.cancel()
            await asyncio.sleep(0)  # let `_handle_end` note the outcome
            await self._append_outcome()

    async def _acquire(self) -> bool:
        """Tell whether this node makes the fit that is due; if not, it asks again after a while."""
        lease, now = self._lease, time.monotonic()
        patience = _URGENT_PATIENCE if self._learner.fit_urgent else _PATIENCE
        if self._since is not None and now >= self._since + patience:
            logger.warning("no node has logged a fit of %s in time; this node makes it", self._log.name)
            return True
        if now < self._not_before:
            return False
        try:
            if await lease.take():
                return True
        except StoreUnavailable:  # it can be made, and is logged when the store is back
            return True
        self._since = now if self._since is None else self._since
        self._not_before = now + lease.seconds / 4
        asyncio.get_running_loop().call_later(lease.seconds / 4, self._mailbox.wake)
        return False

    async def _acquire_urgently(self) -> bool:
        """Wait until this node makes the fit, or another node's fit is in the log; tell which."""
        abandon = self._mailbox.abandon
        while not await self._acquire():
            with suppress(TimeoutError):
                await asyncio.wait_for(abandon.wait(), _LOOK)
            if abandon.is_set():
                return False
            await self._log.read_on()
            if not self._learner.fit_due:
                return False
        return True

    async def _renew(self, task: asyncio.Task[FitResult]) -> None:
        """Renew the lease for as long as the fit takes."""
        lease = self._lease
        while not (await asyncio.wait([task], timeout=lease.seconds / 4))[0]:
            try:
                await lease.take()
            except ServiceError as error:  # another node may make the fit too
                logger.debug("cannot renew the lease on %s: %s", self._log.name, error.detail)

    def _run(self, fitting: FitJob) -> FitResult:
        self._started = True
        return fitting.run()

    def _handle_end(self, task: asyncio.Task[FitResult]) -> None:
        self._task = None
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self._outcome = task.result()
            self._log_due = True
            self._mailbox.wake()
        elif isinstance(error, ValueError):
            self._refuse(str(error))
        elif isinstance(error, MemoryError):
            self._refuse("there is not enough memory")
        else:  # a bug: the last model continues to serve
            logger.critical("internal error in the fit of %s", self._log.name, exc_info=error)
            self._refuse("an internal error, which the node's log shows")

    def _refuse(self, why: str) -> None:
        logger.warning("%s could not be fitted to its last events: %s", self._log.name, why)
        self.failure = why
        self._learner.postpone_fit()
        self._release_due = True  # another node may have the memory
        self._mailbox.wake()

    async def _append_outcome(self) -> None:
        if self._outcome is None:
            return
        try:
            await self._log.read_on()
            if self._learner.accepts(self._outcome):  # not made by another node, not from before a roll-back
                await self._log.append(self._outcome)
        except StoreUnavailable:
            asyncio.get_running_loop().call_later(_PAUSE, self._retry)
            raise
        except TooLarge as error:  # for a record of the log: the last model continues to serve
            self._refuse(error.detail)
        self._outcome = None

    def _retry(self) -> None:
        if not self._abandoned:
            self._log_due = True
            self._mailbox.wake()
