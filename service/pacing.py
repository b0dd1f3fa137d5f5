"""Controls a stream: a limit of its rate, a meter of its speed, and Ctrl-C as a flag."""

from __future__ import annotations

import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

__all__ = ["Interruption", "Meter", "Pace", "WaitInterrupted", "interruptible_sleep"]

_REPEAT = 1.0  # seconds after which a second signal raises
_CATCH_UP = 1.0  # seconds that a late stream makes up for


class WaitInterrupted(Exception):
    """A wait between attempts was interrupted; the outcome of the request is unknown."""


def interruptible_sleep(wait: Callable[[float], bool]) -> Callable[[float], None]:
    """Return a sleep that raises `WaitInterrupted` if `wait` returns True."""

    def sleep(seconds: float) -> None:
        if wait(seconds):
            raise WaitInterrupted

    return sleep


class Interruption:
    """Notes Ctrl-C (SIGINT) and SIGTERM inside its context, so that a request in flight gets its response.

    A second signal, a second or more after the first, raises KeyboardInterrupt. (Earlier it counts as the same one,
    because wrappers such as `timeout` signal both the process and its group.) Enter it in the main thread.
    """

    def __init__(self) -> None:
        self.signal: int | None = None  # the first one
        self._since = 0.0
        self._arrived = threading.Event()
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
        return self._arrived.is_set()

    def wait(self, seconds: float) -> bool:
        """Pause; return True at once if a signal has arrived or arrives."""
        return self._arrived.wait(seconds)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if self.signal is None:
            self.signal = number
            self._since = time.monotonic()
        elif time.monotonic() - self._since >= _REPEAT:
            raise KeyboardInterrupt
        self._arrived.set()


class Pace:
    """Limits a stream to `rate` events per second; None: no limit."""

    def __init__(
        self, rate: float | None, wait: Callable[[float], bool], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = rate
        self._wait = wait
        self._clock = clock
        self._next_time = clock()

    def __call__(self, events: int) -> bool:
        """Pause until the next `events` may be sent; return True if the pause was interrupted."""
        if self._rate is None:
            return self._wait(0)
        now = self._clock()
        self._next_time = max(self._next_time, now - _CATCH_UP)
        stopped = self._wait(max(0.0, self._next_time - now))
        self._next_time += events / self._rate
        return stopped


class Meter:
    """Measures events per second over the last few seconds, in O(1) memory per second.

    The first events only start it: their time is unknown, because kernels may have been compiled before.
    """

    def __init__(self, seconds: float = 5.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._shortest = seconds / 20  # least time between marks, and for a speed
        self._clock = clock
        self._marks: deque[tuple[float, int]] = deque()  # time, events by then; the last mark is the newest
        self.events = 0  # in total

    def add(self, events: int) -> None:
        """Count more events."""
        self.events += events
        now = self._clock()
        if len(self._marks) > 1 and self._marks[-1][0] - self._marks[-2][0] < self._shortest:
            self._marks.pop()
        self._marks.append((now, self.events))
        self._forget(now)

    def speed(self) -> float | None:
        """Return the present events per second; None until there is enough time to measure."""
        now = self._clock()
        self._forget(now)
        if not self._marks or now - self._marks[0][0] < self._shortest:
            return None
        since, events = self._marks[0]
        return (self.events - events) / (now - since)

    def _forget(self, now: float) -> None:
        while len(self._marks) > 1 and now - self._marks[1][0] >= self._seconds:
            self._marks.popleft()
