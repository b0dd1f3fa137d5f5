"""The fits of one learner on this node: when one is begun, where it runs, and how its outcome comes into the log.

    due -> copies (the learner at rest) -> a thread -> wanted still? -> append, like any other record

A fit of a batch algorithm runs in the background. An online learner's embedding is waited for, with the events in the
queue: what is learnt without it would have to be learnt anew. An outcome that cannot be appended, because the store is
away, is kept and tried again behind whatever else waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from learners.batch import Fitted
from learners.fitting import Fitting
from learners.learner import Learner
from service.errors import StoreUnavailable
from service.node import Node

__all__ = ["Fits", "Owner"]

logger = logging.getLogger("rarestream.fits")

_PAUSE = 1.0  # seconds before an outcome that could not be appended is tried again


class Owner(Protocol):
    """What fits need of the learner's host."""

    name: str
    node: Node
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

    async def log_fit(self, fitted: Fitted) -> None:
        """Append a record and apply everything up to it. Only in what was `put`."""
        ...


class Fits:
    """At most one fit at a time."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._asked = False  # one is to be begun next
        self._started = False  # its turn has come: a node makes one background fit at a time
        self._task: asyncio.Task[Fitted] | None = None
        self._fitted: Fitted | None = None  # not in the log yet
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
        """Begin a fit if one is due."""
        if not self.running and not self._owner.abandon.is_set() and self._owner.learner.due:
            self._asked = True
            self._owner.put(self.begin, first=True)

    def applied(self) -> None:
        """A fit of the log, whoever made it, has been applied."""
        self.failed = None

    async def close(self) -> None:
        """Let go of what is under way: its thread is left behind, and what it finds is not needed any more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def begin(self) -> None:
        """Begin a fit if one is due; an urgent one is in the log, or refused, on return. Only in what was `put`."""
        learner, node = self._owner.learner, self._owner.node
        if self._task is not None or self._fitted is not None or not learner.due:
            self._asked = False
            return
        self._asked = True
        urgent = learner.urgent
        try:
            fitting = await node.in_thread(learner.fitting)
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
        if urgent:
            giving_up = asyncio.ensure_future(self._owner.abandon.wait())
            await asyncio.wait([self._task, giving_up], return_when=asyncio.FIRST_COMPLETED)
            giving_up.cancel()
            await asyncio.sleep(0)  # let `_ended` note the outcome
            await self._log()

    def _run(self, fitting: Fitting) -> Fitted:
        self._started = True
        return fitting.run()

    def _ended(self, task: asyncio.Task[Fitted]) -> None:
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
        self._owner.learner.unfit()

    async def _log(self) -> None:
        if self._fitted is None:
            return
        try:
            await self._owner.read_on()
            if self._owner.learner.wants(self._fitted):  # not made by another node, not from before a roll-back
                await self._owner.log_fit(self._fitted)
        except StoreUnavailable:
            asyncio.get_running_loop().call_later(_PAUSE, self._again)
            raise
        self._fitted = None

    def _again(self) -> None:
        if not self._owner.abandon.is_set():
            self._owner.put(self._log)
