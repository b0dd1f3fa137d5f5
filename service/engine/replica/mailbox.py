"""Run the jobs of one replica one at a time, in order, so that no job sees another's work half done.

    submit(job) -> queue -> the job runs alone -> its future resolves

After each job the mailbox asks `plan` for background work that is due, and queues that. It knows nothing of logs or
learners.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar
from weakref import WeakMethod

from service.errors import Damaged, LearnerGone, LearnerMissing, ServiceError
from service.names import GROUP, called

__all__ = ["STOP_SECONDS", "Job", "Mailbox", "reject"]

logger = logging.getLogger("rarestream.log")

STOP_SECONDS = 15.0  # grace period for the job that is running at a stop; a store call does not get more

_REMEDY = (  # for a log that cannot be read on
    "Export it: the file has the state before that. Import it under another name, and send the events since then"
)
_GROUP_REMEDY = "Delete it, and create it anew"

Result = TypeVar("Result")
Run = Callable[[], Awaitable[Any]]


class Job(NamedTuple):
    """Background work that is due."""

    run: Run
    urgent: bool = False  # ahead of everything that waits


class _Queued(NamedTuple):
    run: Run
    future: asyncio.Future[Any]


def _resolve(future: asyncio.Future[Any], result: Any) -> None:
    """Give a future its result, unless its caller has hung up."""
    if not future.done():
        future.set_result(result)


def reject(future: asyncio.Future[Any], error: ServiceError) -> None:
    """Fail a future, unless its caller has hung up."""
    if not future.done():
        future.set_exception(error)


class Mailbox:
    """A task with a queue of jobs, and everyone who waits for them."""

    def __init__(self, name: str, plan: Callable[[], Iterable[Job]], on_fatal: Callable[[], None]) -> None:
        """Start the task for the log of this name.

        `plan` returns the background work that is due. `on_fatal` is called once if the store no longer has the log.
        Both are bound methods of the owner, which the mailbox does not keep in memory.
        """
        self.name = name
        self.failure: ServiceError | None = None  # why nothing can run any more; a restart may help, deleting does
        self.abandon = asyncio.Event()  # set at a stop: a long record or fit is given up half-way
        self._plan, self._on_fatal = WeakMethod(plan), WeakMethod(on_fatal)
        self._watchers: set[asyncio.Event] = set()
        self._queue: deque[_Queued] = deque()
        self._running: _Queued | None = None
        self._wake = asyncio.Event()
        self._closing = False
        self.task = asyncio.create_task(self._run(), name=f"log of {name}")
        self.task.add_done_callback(self._handle_end)

    @property
    def has_jobs(self) -> bool:
        """Tell whether jobs wait in the queue."""
        return bool(self._queue)

    @property
    def busy(self) -> bool:
        """Tell whether a job runs or waits."""
        return bool(self._queue or self._running)

    @property
    def watched(self) -> bool:
        """Tell whether somebody watches for changes."""
        return bool(self._watchers)

    @property
    def last(self) -> asyncio.Future[Any] | None:
        """Return the future of the job at the end of the queue."""
        return self._queue[-1].future if self._queue else None

    @contextmanager
    def watch(self) -> Iterator[asyncio.Event]:
        """Give an event that is set whenever a record was applied, or the mailbox has ended."""
        changed = asyncio.Event()
        self._watchers.add(changed)
        try:
            yield changed
        finally:
            self._watchers.discard(changed)

    def notify(self) -> None:
        """Set the event of every watcher."""
        for changed in self._watchers:
            changed.set()

    def check(self) -> None:
        """Raise the reason if no further job can run."""
        self._check_alive()
        if self._closing or self.task.done():
            raise self._no_longer_here()

    def submit(self, run: Run, urgent: bool = False) -> asyncio.Future[Any]:
        """Queue a job for exclusive execution, an `urgent` one as the next; the future gets what it returns."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        future.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # perhaps nobody awaits it
        job = _Queued(run, future)
        if urgent:
            self._queue.appendleft(job)
        else:
            self._queue.append(job)
        self._wake.set()
        return future

    async def run(self, run: Callable[[], Awaitable[Result]]) -> Result:
        """Queue a job, wait until it has run, and return its result. A caller that hangs up does not stop it."""
        self.check()
        result: Result = await asyncio.shield(self.submit(run))
        return result

    def wake(self) -> None:
        """Ask `plan` soon, although no job has run."""
        self._wake.set()

    def note_failure(self, error: ServiceError) -> ServiceError:
        """Decide by the error of a job whether further jobs can run; return the error for its callers."""
        if error is self.failure:
            return error
        error.with_traceback(None)  # its frames would keep the replica in memory
        if isinstance(error, (LearnerGone, LearnerMissing)):
            self.failure = error
            on_fatal = self._on_fatal()
            if on_fatal is not None:
                on_fatal()
            self._closing = True  # the task ends once everyone who waits has an answer
        elif isinstance(error, Damaged):
            error = Damaged(f"{error.detail}. {_GROUP_REMEDY if self.name.startswith(GROUP) else _REMEDY}")
            logger.error("%s cannot continue: %s", called(self.name), error.detail)
            self.failure = error
            self.notify()
        return error

    async def close(self) -> None:
        """Run what waits, then end the task; a job that takes long is given up half-way."""
        if not self.task.done():
            seconds = 1.0 if self.abandon.is_set() else STOP_SECONDS
            self.abandon.set()
            self._closing = True
            self._wake.set()
            ended, _ = await asyncio.wait([self.task], timeout=seconds)
            if not ended:
                self.task.cancel()
                await asyncio.wait([self.task])
        if self.failure is None:
            self.failure = self._no_longer_here()
        self.notify()

    def _no_longer_here(self) -> LearnerGone:
        return LearnerGone(f"{called(self.name)} is no longer here")

    def _check_alive(self) -> None:
        if self.failure is not None:
            raise self.failure.with_traceback(None)  # else it would keep the frames of all requests that it ended

    async def _run(self) -> None:
        while True:
            while not self._queue:
                if self._closing:
                    return
                self._wake.clear()
                await self._wake.wait()
                if not self._queue:
                    self._queue_due()
            self._running = job = self._queue.popleft()
            try:
                self._check_alive()
                _resolve(job.future, await job.run())
            except ServiceError as error:
                reject(job.future, self.note_failure(error))
            self._running = None
            del job  # and its references: the next job may take long to arrive
            self._queue_due()

    def _queue_due(self) -> None:
        """Queue the background work that is due."""
        plan = self._plan()
        if plan is not None and self.failure is None and not self._closing:
            for run, urgent in plan():
                self.submit(run, urgent)

    def _handle_end(self, task: asyncio.Task[None]) -> None:
        """Answer everyone who still waits when the task has ended."""
        error = None if task.cancelled() else task.exception()
        if error is not None:  # a bug: the replica stops here, the log has everything
            logger.critical("internal error in the task of %s", called(self.name), exc_info=error)
            self.failure = ServiceError(f"{called(self.name)} stopped after an internal error; a restart recovers it")
        reason = self.failure or self._no_longer_here()
        for job in (*(() if self._running is None else (self._running,)), *self._queue):
            reject(job.future, reason)
        self._queue.clear()
        self.notify()
