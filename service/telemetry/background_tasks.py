"""Keeps the background tasks of a process running: an error is logged, and the task starts again.

keep(name, run)    a task for as long as the process: started again after an error, with growing pauses
watch(task)        a task that ends by itself: its error is reported; what started it starts the next one
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from service.text import counted

__all__ = ["BackgroundTasks"]

logger = logging.getLogger("rarestream.tasks")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 60.0  # seconds before a new start
_REPORTED_SECONDS = 600.0  # how long health reports an error

Result = TypeVar("Result")


class BackgroundTasks:
    """The background tasks of one process, and their errors."""

    def __init__(self) -> None:
        self.errors: Counter[str] = Counter()  # by the name of the task; 0 for one that has had none
        self._last: dict[str, float] = {}  # monotonic time of the last error

    def keep(self, name: str, run: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        """Run `run` until the returned task is cancelled, or it returns; again after each error."""
        self.errors.setdefault(name, 0)
        return asyncio.create_task(self._keep(name, run), name=name)

    async def _keep(self, name: str, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        pause = _FIRST_PAUSE
        while True:
            began = time.monotonic()
            attempt = asyncio.create_task(run(), name=name)
            try:
                await asyncio.wait([attempt])
            finally:
                if not attempt.done():  # this task was cancelled
                    attempt.cancel()
                    await asyncio.wait([attempt])
            error = None if attempt.cancelled() else attempt.exception()
            if error is None:
                return
            if time.monotonic() - began > _LONGEST_PAUSE:
                pause = _FIRST_PAUSE
            self._note(name, error, f"starts again in {pause:g} s")
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def watch(self, task: asyncio.Task[Result], name: str) -> asyncio.Task[Result]:
        """Report the error of a task if it ends by one; return the task."""

        def report(task: asyncio.Task[Result]) -> None:
            error = None if task.cancelled() else task.exception()
            if error is not None:
                self._note(name, error, "starts again when it is due")

        task.add_done_callback(report)
        return task

    @property
    def trouble(self) -> str | None:
        """The tasks that ended by an error lately, for health."""
        since = time.monotonic() - _REPORTED_SECONDS
        lately = sorted(name for name, moment in self._last.items() if moment > since)
        if not lately:
            return None
        tasks = ", ".join(f"{name} ({counted(self.errors[name], 'error')})" for name in lately)
        return f"background tasks ended by an error in the last ten minutes, and start again: {tasks}. The log says why"

    def _note(self, name: str, error: BaseException, outlook: str) -> None:
        self.errors[name] += 1
        self._last[name] = time.monotonic()
        logger.error("the background task %s ended by an error; it %s", name, outlook, exc_info=error)
