"""The time of day for events: the machine's clock, as long as that runs evenly.

    now()  ->  does the machine's clock go on from where it was, by the monotonic clock?
                 yes: the machine's time        no: the time from before the step, plus the seconds since

A learner's clock never goes back. So one request while the machine's clock is days ahead would expire every waiting
label, and would hold an alert budget for days. Therefore a step by more than a minute does not count until the clock is
right again, or until `service.engine.clock_check` finds that the store's clock confirms it.

Nothing else in the service gives events and labels a time. A process has one clock, `CLOCK`, as the machine has.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

__all__ = ["CLOCK", "STEP_SECONDS", "Clock", "ReferenceTime", "now"]

STEP_SECONDS = 60.0  # a longer step of a clock, or difference of two clocks, does not count
_SLEW = 1e-3  # largest gradual correction of a machine's clock, in seconds per second


class ReferenceTime(NamedTuple):
    """A time of day that goes on by the monotonic clock."""

    time: float
    elapsed: float

    def at(self, elapsed: float) -> float:
        """Return the time of day at a reading of the monotonic clock."""
        return self.time + (elapsed - self.elapsed)


def _machine_time() -> float:
    return time.time()


_elapsed_time = time.monotonic
if hasattr(time, "CLOCK_BOOTTIME"):  # on Linux: with the time that the machine slept, which is no step
    _elapsed_time = partial(time.clock_gettime, time.CLOCK_BOOTTIME)


class Clock:
    """The machine's clock, held against the monotonic clock."""

    def __init__(
        self, machine: Callable[[], float] = _machine_time, elapsed: Callable[[], float] = _elapsed_time
    ) -> None:
        """`machine` and `elapsed` give seconds: since the epoch, and on the monotonic clock."""
        self.machine = machine
        self.elapsed = elapsed
        self.offset = 0.0  # seconds by which the machine's clock is ahead of the time that counts; 0: it counts itself
        self._steady = ReferenceTime(machine(), elapsed())  # the machine's time, without a step
        self._reference = self._steady  # the time that counts

    def now(self) -> float:
        """Return the time of day that counts, in seconds since the epoch."""
        machine, elapsed = self.machine(), self.elapsed()
        expected = self._reference.at(elapsed)
        offset = machine - expected
        if abs(offset) > STEP_SECONDS:
            self.offset = offset
            return expected
        self.offset = 0.0
        slewed = _SLEW * (elapsed - self._reference.elapsed)
        if slewed > _SLEW:  # once a second
            corrected = expected + min(max(offset, -slewed), slewed)
            self._reference = self._steady = ReferenceTime(corrected, elapsed)
        return machine

    @property
    def stepped(self) -> bool:
        """Whether the machine's clock has stepped since it was last in use, or since the start."""
        return abs(self.machine() - self._steady.at(self.elapsed())) > STEP_SECONDS

    def count_from(self, time: float) -> None:
        """Let another time of day count from now on, until the machine's clock agrees with it."""
        self._reference = ReferenceTime(time, self.elapsed())

    def accept(self) -> None:
        """Let the machine's clock count as it is."""
        self._reference = self._steady = ReferenceTime(self.machine(), self.elapsed())


CLOCK = Clock()  # of this process


def now() -> float:
    """Return the time of day that counts in this process, in seconds since the epoch."""
    return CLOCK.now()
