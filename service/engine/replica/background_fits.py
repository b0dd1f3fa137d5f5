"""The fits of one learner on this node: when one is begun, where it runs, and how its outcome comes into the log.

    due -> this node's? -> copies (the learner at rest) -> a thread -> wanted still? -> append, like any other record

Of the nodes that host the learner one makes the fit: the one that claims it (`claims.py`). The others wait for its
record, but no longer than a while: then they make it, too, and the first that is in the log counts.

A fit of a batch algorithm runs in the background. An online learner's embedding is waited for, with the events in the
queue: what is learnt without it would have to be learnt anew. An outcome that cannot be appended, because the store is
away, is kept and tried again behind whatever else waits.
"""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol

from learners import FitJob, FitResult, Learner
from service.engine.node import Node
from service.engine.replica.lease import Lease
from service.errors import ServiceError, StoreUnavailable, TooLarge

__all__ = ["BackgroundFits", "Owner"]

logger = logging.getLogger("rarestream.fits")

_PAUSE = 1.0  # seconds before an outcome that could not be appended is tried again
_LOOK = 0.05  # seconds after which a node whose events wait looks for another node's fit again
_PATIENCE, _URGENT_PATIENCE = 600.0, 60.0  # seconds that another node's fit is waited for, and one that events wait for


class Owner(Protocol):
    """What fits need of the learner's host."""

    name: str
    node: Node
    lease: Lease
    abandon: asyncio.Event  # set when the host is about to end

    @property
    def learner(self) -> Learner:
        """What is fitted."""
        ...

    def put(self, run: Callable[[], Awaitable[None]], first: bool = False) -> asyncio.Future[None]:
        """Have something done while the learner is at rest."""
        ...

    async def read_on(self) -> None:
        """Apply what other nodes have appended. Only in what was `put`."""
        ...

    async def log_fit(self, fitted: FitResult) -> None:
        """Append a record and apply everything up to it. Only in what was `put`."""
        ...


class BackgroundFits:
    """At most one fit at a time."""

    def __init__(self, owner: Owner) -> None:
        self._owner: Owner = weakref.proxy(owner)
        self._asked = False  # one is to be begun next
        self._started = False  # its turn has come: a node makes one background fit at a time
        self._task: asyncio.Task[FitResult] | None = None
        self._holding: asyncio.Task[None] | None = None
        self._since: float | None = None  # on the monotonic clock: another node's fit is waited for
        self._not_before = 0.0  # is the claim asked for again
        self._fitted: FitResult | None = None  # not in the log yet
        self.failed: str | None = None  # why the last fit failed

    @property
    def running(self) -> bool:
        """Whether a fit is under way: asked for, waiting for its turn, being made, or not in the log yet."""
        return self._asked or self._task is not None or self._fitted is not None

    @property
    def waiting(self) -> bool:
        """Whether it waits for other learners' fits."""
        return self._task is not None and not self._started

    def consider(self) -> None:
        """Begin a fit if one is due, or see whether another node does."""
        if not self._owner.learner.fit_due:
            self._since = None
        elif not self.running and not self._owner.abandon.is_set() and time.monotonic() >= self._not_before:
            self._asked = True
            self._owner.put(self.begin, first=True)

    def applied(self) -> None:
        """A fit of the log, whoever made it, has been applied."""
        self.failed = None
        self._since, self._not_before = None, 0.0

    async def close(self) -> None:
        """Let go of what is under way: its thread is left behind, and what it finds is not needed any more."""
        for task in (self._holding, self._task):
            if task is not None and not task.done():
                task.cancel()
                await asyncio.wait([task])

    async def begin(self) -> None:
        """Begin a fit if one is due; an urgent one is in the log, or refused, on return. Only in what was `put`."""
        learner, node = self._owner.learner, self._owner.node
        if self._task is not None or self._fitted is not None or not learner.fit_due:
            self._asked = False
            return
        self._asked = True
        urgent = learner.fit_urgent
        try:
            if not await (self._urgently_own() if urgent else self._own()):
                return
            fitting = await node.in_thread(self._owner.learner.fit_job)
        except MemoryError:
            self._refuse("there is not enough memory for the retained events")
            return
        finally:
            self._asked = False
        self._started = False
        self._task = asyncio.create_task(
            node.in_background(lambda: self._run(fitting), urgent=urgent), name=f"fit of {self._owner.name}"
        )
        self._task.add_done_callback(self._ended)
        self._holding = asyncio.create_task(self._hold(self._task), name=f"claim of {self._owner.name}")
        if urgent:
            giving_up = asyncio.ensure_future(self._owner.abandon.wait())
            await asyncio.wait([self._task, giving_up], return_when=asyncio.FIRST_COMPLETED)
            giving_up.cancel()
            await asyncio.sleep(0)  # let `_ended` note the outcome
            await self._log()

    async def _own(self) -> bool:
        """Whether the fit that is due is this node's to make; else it is asked again after a while."""
        claim, now = self._owner.lease, time.monotonic()
        patience = _URGENT_PATIENCE if self._owner.learner.fit_urgent else _PATIENCE
        if self._since is not None and now >= self._since + patience:
            logger.warning("no node has logged a fit of %s in time: this one makes it", self._owner.name)
            return True
        if now < self._not_before:
            return False
        try:
            if await claim.take():
                return True
        except StoreUnavailable:  # it can be made, and is logged when the store is there again
            return True
        self._since = now if self._since is None else self._since
        self._not_before = now + claim.seconds / 4
        asyncio.get_running_loop().call_later(claim.seconds / 4, self.consider)
        return False

    async def _urgently_own(self) -> bool:
        """The same of one that events wait for: it is this node's, or in the log, on return."""
        owner = self._owner
        while not await self._own():
            with suppress(TimeoutError):
                await asyncio.wait_for(owner.abandon.wait(), _LOOK)
            if owner.abandon.is_set():
                return False
            await owner.read_on()
            if not owner.learner.fit_due:
                return False
        return True

    async def _hold(self, task: asyncio.Task[FitResult]) -> None:
        """Have the claim for as long as the fit takes."""
        claim = self._owner.lease
        while not (await asyncio.wait([task], timeout=claim.seconds / 4))[0]:
            try:
                await claim.take()
            except ServiceError as error:  # another node may make it, too
                logger.debug("the claim of %s is not held: %s", self._owner.name, error.detail)

    def _run(self, fitting: FitJob) -> FitResult:
        self._started = True
        return fitting.run()

    def _ended(self, task: asyncio.Task[FitResult]) -> None:
        self._task = None
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self._fitted = task.result()
            self._owner.put(self._log)
        elif isinstance(error, ValueError):
            self._refuse(str(error))
        elif isinstance(error, MemoryError):
            self._refuse("there is not enough memory")
        else:  # a fault of ours: the last model goes on serving
            logger.critical("the fit of %s ended by an error", self._owner.name, exc_info=error)
            self._refuse("an internal error, which the node's log shows")

    def _refuse(self, why: str) -> None:
        logger.warning("%s could not be fitted to its last events: %s", self._owner.name, why)
        self.failed = why
        self._owner.learner.postpone_fit()
        self._owner.put(self._owner.lease.release)  # another node may have the memory

    async def _log(self) -> None:
        if self._fitted is None:
            return
        try:
            await self._owner.read_on()
            if self._owner.learner.accepts(self._fitted):  # not made by another node, not from before a roll-back
                await self._owner.log_fit(self._fitted)
        except StoreUnavailable:
            asyncio.get_running_loop().call_later(_PAUSE, self._again)
            raise
        except TooLarge as error:  # for a record of the log: the last model goes on serving
            self._refuse(error.detail)
        self._fitted = None

    def _again(self) -> None:
        if not self._owner.abandon.is_set():
            self._owner.put(self._log)
