"""The stored alarms of one learner, and their life: open until the figure is back, perhaps reopened.

    back = (value - after) / (before - after)
    resolved if back >= 3/4,   reopened if back < 1/4

`before` and `after` are those of the alarm, and the detector says what the present `value` is. The gap between the
limits is some standard deviations of the value, so chance seldom moves an alarm to and fro. If an alarm is resolved, so
are the later ones of its kind and field, for good: the value is where it was before all of them. Of the others only the
last is reopened: an earlier one would say the same twice.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from learners.numerics import MAX_COUNT, Counts, Issues, Matrix, kernel, outside

__all__ = [
    "ALARMS",
    "CLOSED",
    "COLUMNS",
    "FIELD",
    "FIELDS",
    "KIND",
    "KINDS",
    "MARK",
    "OPEN",
    "STATE",
    "STATES",
    "AlarmsView",
    "judge",
    "not_followed",
    "problems",
    "store",
]

# of alarms; those from "missing" on are of fields
KINDS = ("auc", "scores", "positives", "missing", "new_categories", "contradictions", "out_of_range")
STATES = ("open", "resolved", "resolved", "unknown")  # unknown: of an earlier release, which followed no alarm
OPEN, RESOLVED, CLOSED, UNKNOWN = range(4)  # a closed alarm is resolved for good
ALARMS = 64  # stored
COLUMNS = 13  # of a stored alarm
KIND, EVENTS, CLOCK, BEFORE, AFTER, FIELD, FIELDS = range(7)
MARK, STATE, REOPENED = range(7, 10)  # what the detector compares by; of `STATES`; how often
CHANGE, SINCE, SINCE_CLOCK = range(10, 13)  # the last change: its ordinal, the events and the clock by then

_RESOLVE_SHARE = 0.75  # of the way back at which an alarm is resolved
_REOPEN_SHARE = 0.25  # below which it is reopened


@kernel
def _change(changes, row, state, events, clock):  # type: ignore[no-untyped-def]
    """Give an alarm another state."""
    row[STATE] = state
    row[CHANGE] = changes[0]
    row[SINCE] = events
    row[SINCE_CLOCK] = clock
    changes[0] += 1


@kernel
def store(rows, by_kind, changes, kind, events, clock, before, after, field, fields, mark):  # type: ignore[no-untyped-def]
    """Store an alarm in place of the oldest.

    `rows` is (ALARMS, COLUMNS): alarm number i at i % ALARMS; `by_kind` (7,) counts the alarms since the start, and
    `changes` (1,) those raised, resolved and reopened.
    """
    row = rows[by_kind.sum() % ALARMS]
    row[KIND] = kind
    row[EVENTS] = events
    row[CLOCK] = clock
    row[BEFORE] = before
    row[AFTER] = after
    row[FIELD] = field
    row[FIELDS] = fields
    row[MARK] = mark
    row[REOPENED] = 0
    _change(changes, row, OPEN, events, clock)
    by_kind[kind] += 1


@kernel
def _close(rows, changes, start, stop, kind, field, events, clock):  # type: ignore[no-untyped-def]
    """Resolve alarms of a kind and a field for good, from number `start` to `stop`."""
    for number in range(start, stop):
        row = rows[number % ALARMS]
        if row[KIND] == kind and row[FIELD] == field:
            if row[STATE] == OPEN:
                _change(changes, row, CLOSED, events, clock)
            elif row[STATE] == RESOLVED:
                row[STATE] = CLOSED


@kernel
def judge(rows, by_kind, changes, kind, field, mark, value, events, clock):  # type: ignore[no-untyped-def]
    """Resolve and reopen alarms of a kind, a field and a mark by the present value of their figure. O(ALARMS).

    Returns whether one was resolved.
    """
    total, last, resolved = by_kind.sum(), True, False
    for number in range(total - 1, max(total - ALARMS, 0) - 1, -1):
        row = rows[number % ALARMS]
        if row[KIND] != kind or row[FIELD] != field or row[STATE] == CLOSED:
            continue
        if row[MARK] == mark:
            step = row[BEFORE] - row[AFTER]
            way = (value - row[AFTER]) * step
            if row[STATE] == OPEN:
                if way >= _RESOLVE_SHARE * step * step:
                    _change(changes, row, RESOLVED, events, clock)
                    _close(rows, changes, number + 1, total, kind, field, events, clock)
                    resolved = True
            elif row[STATE] == RESOLVED and last and way < _REOPEN_SHARE * step * step:
                row[REOPENED] += 1
                _change(changes, row, OPEN, events, clock)
        last = False
    return resolved


def problems(rows: Matrix, by_kind: Counts, changes: Counts, first_of_fields: int) -> Issues:
    """Report what no stream can have led to in arrays of the right shapes; see `store`. Names the array `alarms`."""
    rows = rows[: min(max(int(by_kind.sum()), 0), ALARMS)]
    if not np.isin(rows[:, KIND], range(len(KINDS))).all():
        yield "alarms", f"has kinds that are none of {', '.join(KINDS)}"
    if np.isinf(rows[:, (CLOCK, SINCE_CLOCK)]).any():
        yield "alarms", "has clocks that are infinite"
    yield from outside("alarms", rows[:, (BEFORE, AFTER)], 0.0, 1.0)
    yield from outside("alarms", rows[:, (EVENTS, FIELD, FIELDS, REOPENED, SINCE)], 0, MAX_COUNT)
    if ((rows[:, KIND] < first_of_fields) != (rows[:, FIELDS] == 0)).any():
        yield "alarms", "has fields that do not go with the kinds"
    yield from outside("alarms", rows[:, STATE], 0, len(STATES) - 1)
    yield from outside("alarms", rows[:, CHANGE], 0, max(int(changes[0]) - 1, 0))
    if np.isnan(rows[:, MARK]).any():
        yield "alarms", "has marks that are NaN"


def not_followed(rows: Matrix, count: int) -> Matrix:
    """Return the alarms of a state of an earlier release, which had only the columns up to `FIELDS`."""
    more = np.zeros((len(rows), COLUMNS))
    more[:, : rows.shape[1]] = rows
    for number in range(max(count - ALARMS, 0), count):
        row = more[number % ALARMS]
        row[STATE], row[CHANGE], row[SINCE], row[SINCE_CLOCK] = UNKNOWN, number, row[EVENTS], row[CLOCK]
    return more


class AlarmsView(NamedTuple):
    """The stored alarms at one moment."""

    rows: Matrix  # as of `store`
    by_kind: Counts
    changes: Counts

    def frozen(self) -> AlarmsView:
        """Return a copy that stays as it is."""
        return AlarmsView(self.rows.copy(), self.by_kind.copy(), self.changes.copy())

    def last_changes(self) -> dict[int, int]:
        """Return the ordinal of the last change of each stored alarm, by the alarm's number."""
        total = int(self.by_kind.sum())
        return {number: int(self.rows[number % ALARMS, CHANGE]) for number in range(max(total - ALARMS, 0), total)}

    def alarms(self, since: int = 0, change: int = 0) -> list[dict[str, Any]]:
        """Return the alarms from number `since` on as JSON, the oldest first; the last 64 are stored.

        With `change`, only those whose last change has this ordinal or a later one. `number` counts all alarms
        from 0; `kind` is one of `KINDS`; `events` counts labelled events so far; `clock` is None if unknown. For "auc",
        `before` and `after` are the AUC of the reference, and the AUC since the fall seems to have begun. For "scores",
        they are the shares of earlier and of latest served events above the score where both differ most. For
        "positives", `before` is the share of positives among events, and `after` is 0. For the other kinds, they are
        the shares of the field that got worse most: `field` is its place, None for other kinds, and `fields` is the
        number of fields that got worse. `state` is one of `STATES`, `reopened` counts how often, and `changed` has the
        `events` and the `clock` of the last change.
        """
        total = int(self.by_kind.sum())
        alarms = []
        for number in range(max(since, total - ALARMS, 0), total):
            row = self.rows[number % ALARMS].tolist()
            if row[CHANGE] < change:
                continue
            alarms.append(
                {
                    "number": number,
                    "kind": KINDS[int(row[KIND])],
                    "events": int(row[EVENTS]),
                    "clock": _moment(row[CLOCK]),
                    "before": row[BEFORE],
                    "after": row[AFTER],
                    "field": int(row[FIELD]) if row[FIELDS] else None,
                    "fields": int(row[FIELDS]),
                    "state": STATES[int(row[STATE])],
                    "reopened": int(row[REOPENED]),
                    "changed": {"events": int(row[SINCE]), "clock": _moment(row[SINCE_CLOCK])},
                }
            )
        return alarms


def _moment(clock: float) -> float | None:
    return None if math.isnan(clock) else clock
