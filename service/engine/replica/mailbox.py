"""A task with a queue: what waits there has its turn in order, one at a time, so nothing meets another half done.

    put (a job) -> its turn -> whoever waits for it is answered

What the task owns is said by the classes that build on this one (`logged.py`, `hosted.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from service.errors import Damaged, LearnerGone, ServiceError
from service.names import called

__all__ = ["GIVEN_UP_SECONDS", "Turns", "settle"]

logger = logging.getLogger("rarestream.log")

GIVEN_UP_SECONDS = 15.0  # that an end waits for the piece that a thread has of it; a store does not get more


@dataclass
class _Job:
    """Something that needs all else at rest."""

    run: Callable[[], Awaitable[None]]
    done: asyncio.Future[Any]


def settle(future: asyncio.Future[Any], error: ServiceError) -> None:
    """Tell whoever waits that it failed; a caller may have hung up."""
    if not future.done():
        future.set_exception(error)


class Turns:
    """One such task, and all who wait for it."""

    def __init__(self, name: str, gone: Callable[[Any], None]) -> None:
        """`name`: of what the task owns; `gone` is called once when the store no longer has that."""
        self.name = name
        self.failed: ServiceError | None = None  # why it cannot move on; a restart may help, deleting always does
        self.abandon = asyncio.Event()  # set when a long record or fit is to be given up half-way
        self._gone = gone
        self._watchers: set[asyncio.Event] = set()
        self._waiting: deque[Any] = deque()  # each is answered by its future, `done`
        self._current: list[Any] = []  # taken from the queue, not answered yet
        self._wake = asyncio.Event()
        self._closing = False
        self.task = asyncio.create_task(self._run(), name=f"log of {name}")
        self.task.add_done_callback(self._ended)

    # What the classes that build on this one say

    async def _turn(self) -> None:
        """Take what stands first in the queue, which is no job, and see to it; only learners put such things there."""
        raise AssertionError(f"{self.name} has {self._waiting[0]!r} in its queue")

    def _considered(self) -> None:
        """Nothing moves for a moment: is anything due?"""

    # What callers use

    @property
    def busy(self) -> bool:
        """Whether something waits that will bring it up to date anyway."""
        return bool(self._waiting)

    @contextmanager
    def watch(self) -> Iterator[asyncio.Event]:
        """An event that is set whenever there is something new, or it has come to its end."""
        changed = asyncio.Event()
        self._watchers.add(changed)
        try:
            yield changed
        finally:
            self._watchers.discard(changed)

    def _tell(self) -> None:
        for changed in self._watchers:
            changed.set()

    async def at_rest(self, run: Callable[[], Awaitable[None]]) -> None:
        """Run a job in its turn, when nothing moves."""
        self._check()
        await asyncio.shield(self.put(run))

    async def end(self) -> None:
        """Answer everyone who waits, and stop; what takes long is given up half-way."""
        if not self.task.done():
            patience = 1.0 if self.abandon.is_set() else GIVEN_UP_SECONDS
            self.abandon.set()
            self._closing = True
            self._wake.set()
            done, _ = await asyncio.wait([self.task], timeout=patience)
            if not done:
                self.task.cancel()
                await asyncio.wait([self.task])
        if self.failed is None:
            self.failed = LearnerGone(f"{called(self.name)} is no longer here")
        self._tell()

    # The task

    def _check_alive(self) -> None:
        if self.failed is not None:
            raise self.failed

    def _check(self) -> None:
        self._check_alive()
        if self._closing or self.task.done():
            raise LearnerGone(f"{called(self.name)} is no longer here")

    def _ended(self, task: asyncio.Task[None]) -> None:
        """The task is over: nobody may be left waiting for it."""
        error = None if task.cancelled() else task.exception()
        if error is not None:  # a fault of ours: it stops here, the log keeps everything
            logger.critical("the task of %s ended by an error", called(self.name), exc_info=error)
            self.failed = ServiceError(f"{called(self.name)} stopped after an internal error; a restart recovers it")
        reason = self.failed or LearnerGone(f"{called(self.name)} is no longer here")
        for item in (*self._current, *self._waiting):
            settle(item.done, reason)
        self._waiting.clear()
        self._tell()

    def put(self, run: Callable[[], Awaitable[None]], first: bool = False) -> asyncio.Future[None]:
        """Have something done while all else is at rest, next or in turn; the future is when it is done."""
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
                self._current = [job]
                try:
                    self._check_alive()
                    await job.run()
                except ServiceError as error:
                    self._notice(error)
                    settle(job.done, error)
                else:
                    if not job.done.done():
                        job.done.set_result(None)
            else:
                await self._turn()
            self._current = []
            if self.failed is None and not self._closing:
                self._considered()

    def _notice(self, error: ServiceError) -> None:
        """A turn has failed: can there be another?"""
        if isinstance(error, LearnerGone):
            self.failed = error
            self._gone(self)
            self._closing = True  # the task ends once everyone who waits is answered
        elif isinstance(error, Damaged):
            logger.error("%s cannot move on: %s", called(self.name), error.detail)
            self.failed = error
            self._tell()
