"""When a stream goes on, pauses or stops: a rate to keep, the speed it has, and Ctrl-C as a flag."""

from __future__ import annotations

import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

__all__ = ["Interruption", "Meter", "Pace", "Stopped", "interruptible_sleep"]

_INSISTS = 1.0  # seconds
_CATCH_UP = 1.0  # seconds: a stream that fell behind its rate makes up for no more than this


class Stopped(Exception):
    """A wait between attempts was interrupted; the outcome of the request is unknown."""


def interruptible_sleep(wait: Callable[[float], bool]) -> Callable[[float], None]:
    """Return a sleep that raises `Stopped` if `wait` returns True."""

    def sleep(seconds: float) -> None:
        if wait(seconds):
            raise Stopped

    return sleep


class Interruption:
    """Ctrl-C (SIGINT) and SIGTERM while the block runs: noted, not raised, so that what is in flight gets its answer.

    A signal that comes a second or more after the first raises KeyboardInterrupt: someone insists. (Sooner it is the
    same one: wrappers such as `timeout` send theirs both to the process and to its group.) To be entered in the main
    thread.
    """

    def __init__(self) -> None:
        self.signal: int | None = None  # the first that came
        self._since = 0.0
        self._came = threading.Event()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def __bool__(self) -> bool:
        return self._came.is_set()

    def wait(self, seconds: float) -> bool:
        """Pause; True, and at once, where the signal has come or comes."""
        return self._came.wait(seconds)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if self.signal is None:
            self.signal = number
            self._since = time.monotonic()
        elif time.monotonic() - self._since >= _INSISTS:
            raise KeyboardInterrupt
        self._came.set()


class Pace:
    """Holds a stream to `rate` events per second; None is as fast as it goes."""

    def __init__(
        self, rate: float | None, wait: Callable[[float], bool], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = rate
        self._wait = wait
        self._clock = clock
        self._due = clock()

    def __call__(self, events: int) -> bool:
        """Pause until the next `events` may go. True where the pause was ended from outside."""
        if self._rate is None:
            return self._wait(0)
        now = self._clock()
        self._due = max(self._due, now - _CATCH_UP)
        stopped = self._wait(max(0.0, self._due - now))
        self._due += events / self._rate
        return stopped


class Meter:
    """Events per second over the last few seconds, in O(1) memory per second.

    The first events only begin it: how long they took is not known, as kernels may have been compiled before.
    """

    def __init__(self, seconds: float = 5.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._shortest = seconds / 20  # between marks, and that a speed is told of
        self._clock = clock
        self._marks: deque[tuple[float, int]] = deque()  # when, and how many there were; the last is of the newest
        self.events = 0  # in all

    def add(self, events: int) -> None:
        """Count some more."""
        self.events += events
        now = self._clock()
        if len(self._marks) > 1 and self._marks[-1][0] - self._marks[-2][0] < self._shortest:
            self._marks.pop()
        self._marks.append((now, self.events))
        self._forget(now)

    def speed(self) -> float | None:
        """Events per second, now; None until there is a time to tell it of."""
        now = self._clock()
        self._forget(now)
        if not self._marks or now - self._marks[0][0] < self._shortest:
            return None
        since, events = self._marks[0]
        return (self.events - events) / (now - since)

    def _forget(self, now: float) -> None:
        while len(self._marks) > 1 and now - self._marks[1][0] >= self._seconds:
            self._marks.popleft()
