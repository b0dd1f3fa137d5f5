"""The life of alarms in plain Python, from its definition."""

from __future__ import annotations

from collections.abc import Callable, Sequence

__all__ = ["NaiveAlarm", "judge_naively"]


class NaiveAlarm:
    """The life of one alarm, from the definition."""

    def __init__(self, kind: int, mark: float, before: float, after: float) -> None:
        self.kind, self.mark, self.before, self.after = kind, mark, before, after
        self.state, self.reopened, self.changes, self.closed = "open", 0, 1, False

    def turn(self, state: str) -> None:
        self.changes += self.state != state
        self.state = state

    def judge(self, value: float, later: Sequence[NaiveAlarm]) -> bool:
        """Take the present value, with the later alarms of the kind; tell whether this resolved the alarm."""
        back = (value - self.after) / (self.before - self.after)
        if self.closed:
            return False
        if self.state == "open" and back >= 0.75:
            self.turn("resolved")
            for alarm in later:
                alarm.turn("resolved")
                alarm.closed = True
            return True
        if self.state == "resolved" and all(alarm.closed for alarm in later) and back < 0.25:
            self.turn("open")
            self.reopened += 1
        return False


def judge_naively(alike: Sequence[NaiveAlarm], value: Callable[[NaiveAlarm], float | None]) -> bool:
    """Judge alarms of a kind by their values, None: unknown; tell whether one was resolved."""
    resolved = False
    for i in reversed(range(len(alike))):
        present = value(alike[i])
        if present is not None:
            resolved |= alike[i].judge(present, alike[i + 1 :])
    return resolved
