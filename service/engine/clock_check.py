"""Checks this node's clock against the store: its own clock, if it has one, and the newest event.

    start          the machine's clock is ahead of the store's      -> the store's time counts
    now and then   the machine's clock does not count, and agrees
                   with the store's as read before the step         -> the machine's clock counts
    now and then   something differs by more than a minute          -> log, `/v1/health/ready`, metric

A step that moves the store's clock, too, confirms nothing: both may be one clock. Nor does the newest event move this
node's clock: one learner with a wrong clock would spoil all others.
"""

from __future__ import annotations

import logging
from datetime import timedelta

from service import clock
from service.clock import STEP_SECONDS, ReferenceTime

__all__ = ["ClockCheck"]

logger = logging.getLogger("rarestream.clock")

_CORRECT_NODE = "times of events do not follow it, so nothing expires early. Correct the clock"
_RESTART = f"{_CORRECT_NODE}; if it is right now, restart the service"
_CORRECT_EITHER = "correct the clock that is wrong"


class ClockCheck:
    """Compares the clock of this node with others."""

    def __init__(self) -> None:
        self.store_offset = 0.0  # seconds by which the machine's clock is ahead of the store's; 0: unknown
        self._store: ReferenceTime | None = None  # the store's clock, as read before the machine's clock stepped
        self._newest = 0.0  # largest time of an event or label of the learners in memory,
        self._name = ""  # and the learner that has it
        self._reported: str | None = None  # what differs, as logged

    def compare(self, store_time: float, seconds: float) -> None:
        """Compare with the store's clock, which was read within the last `seconds`."""
        local = clock.CLOCK
        local.now()
        machine, elapsed = local.machine(), local.elapsed()
        ahead = machine - store_time
        self.store_offset = min(ahead, max(ahead - seconds, 0.0))
        if not local.stepped:
            if self._store is None and self.store_offset > STEP_SECONDS:
                local.count_from(store_time)
            self._store = ReferenceTime(store_time, elapsed)
        if local.offset and self._store is not None and abs(machine - self._store.at(elapsed)) < STEP_SECONDS:
            local.accept()

    def note_newest(self, newest: float, name: str) -> None:
        """Note the largest time of an event or label, which is one of the learner `name`."""
        self._newest, self._name = newest, name

    def report(self) -> None:
        """Log what differs if it is not logged yet."""
        difference = self._difference()
        what = None if difference is None else difference[0]
        if what == self._reported:
            return
        self._reported = what
        if difference is None:
            logger.warning("this node's clock is right again; times of events follow it")
        else:
            logger.error("%s", _describe(*difference))

    @property
    def problem(self) -> str | None:
        """What is wrong with this node's clock, and what to do; None if nothing is known."""
        difference = self._difference()
        return None if difference is None else _describe(*difference)

    @property
    def offset(self) -> float:
        """Seconds by which the machine's clock is ahead of the time that counts; 0 if it counts itself."""
        clock.now()
        return clock.CLOCK.offset

    def _difference(self) -> tuple[str, float, str] | None:
        """Return from what the machine's clock differs, by how many seconds it is ahead, and what to do."""
        now, offset = clock.now(), clock.CLOCK.offset
        if abs(self.store_offset) > STEP_SECONDS:
            return "the store's clock", self.store_offset, _CORRECT_NODE if offset else _CORRECT_EITHER
        if offset:
            return "the time expected by the monotonic clock", offset, _RESTART
        if self._newest - now > STEP_SECONDS:
            return f"the newest event of {self._name}", now - self._newest, _CORRECT_EITHER
        return None


def _describe(what: str, ahead: float, remedy: str) -> str:
    duration = timedelta(seconds=round(abs(ahead)))
    return f"this node's clock is {duration} {'ahead of' if ahead > 0 else 'behind'} {what}; {remedy}"
