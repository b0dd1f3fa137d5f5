"""Figures over the whole stream in bounded room: rows at every so many steps, thinned with their age.

A step is an event that was served under an id, or a labelled one that was learnt; an event whose label comes later is
two. A row is due after every `stride` steps, the n-th after n strides: also while a learner serves, and no label comes.

Level j keeps the last `ROWS` rows whose number n is a multiple of 2^j; a level is added just before the one below it
would forget a row that nothing else holds. So the levels together cover everything since the start, finely near its
end: a row that is `a` strides old is never more than a / 16 + 1 strides from a neighbour. A row takes O(columns) per
level it is in, two levels on average.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from learners.numerics import MAX_COUNT, Counts, Cube, Issues, Matrix, Vector, outside

__all__ = ["LEVELS", "ROWS", "Axis", "MetricHistory", "MetricHistoryView"]

ROWS = 64  # of a level
LEVELS = 32  # at most: 2^37 rows until the first of them is forgotten

Axis = Literal["events", "clock"]
_FIRST = ("events", "clock", "served")  # columns
_EVENTS, _CLOCK, _SERVED = range(3)  # their places
_ROUNDED = 1e-9  # how far a figure may be out of its range: sums of many terms are rounded


def _levels(count: int) -> int:
    """How many levels there are after `count` rows: the last one has met at most ROWS of them."""
    return min(LEVELS, 1 + max(0, (max(count, 1) - 1) // ROWS).bit_length())


class MetricHistory:
    """Rows of figures by columns, of which the first are `events`, `clock` and `served`; NaN stands for undefined.

    `events` were learnt with their labels, and `served` under an id, since the start: a row's steps are their sum.
    `ranges` has from where to where the other columns are, where they are defined; a column that it does not name may
    be any finite number. Those of `counts` are defined in each row, and whole.

    The state is `count` (1,), how many rows there were, and `rows` (levels, ROWS, columns): the row of number n stands
    in level j at (n / 2^j) % ROWS. The shape follows from the count; see `shapes`.
    """

    def __init__(
        self,
        columns: tuple[str, ...],
        stride: int,
        ranges: Mapping[str, tuple[float, float]] | None = None,
        counts: tuple[str, ...] = (),
    ) -> None:
        if columns[: len(_FIRST)] != _FIRST:
            raise ValueError(f"the columns begin with {columns[: len(_FIRST)]}; expected {', '.join(_FIRST)}")
        self.columns = columns
        self.stride = stride
        self.ranges = {} if ranges is None else dict(ranges)
        self.counts = counts
        self.count: Counts = np.zeros(1, dtype=np.int64)
        self.rows: Cube = np.zeros((1, ROWS, len(columns)))

    def due(self, steps: int) -> int:
        """How many steps after `steps`, which are no fewer than the last row's, the next row is due; 0: it is now."""
        return (int(self.count[0]) + 1) * self.stride - steps

    def add(self, row: Vector) -> None:
        """Take the row (columns,) that is due: its steps are a stride more than those of the last one."""
        number = int(self.count[0]) + 1
        steps = row[_EVENTS] + row[_SERVED]
        if steps != number * self.stride:
            raise ValueError(f"a row of {steps:g} steps; expected {number * self.stride}")
        if _levels(number) > len(self.rows):
            self._deepen()
        for level, rows in enumerate(self.rows):
            if number % (1 << level):
                break
            rows[(number >> level) % ROWS] = row
        self.count[0] = number

    def _deepen(self) -> None:
        """Add a level, with every second row of the last one."""
        last, level = self.rows[-1], len(self.rows)
        rows = np.zeros((level + 1, *last.shape))
        rows[:level] = self.rows
        newest = int(self.count[0]) >> level
        for n in range(max(1, newest - ROWS // 2 + 1), newest + 1):
            rows[level, n % ROWS] = last[2 * n % ROWS]
        self.rows = rows

    def state(self) -> dict[str, NDArray[np.generic]]:
        """The arrays of the state."""
        return {"count": self.count, "rows": self.rows}

    def shapes(self, state: dict[str, NDArray[np.generic]]) -> dict[str, tuple[int, ...]]:
        """The shapes that the arrays of a state have by its count: a level by doubling of ROWS, at most LEVELS."""
        return {"count": (1,), "rows": (_levels(int(state["count"][0])), ROWS, len(self.columns))}

    def problems(self, state: dict[str, NDArray[np.generic]]) -> Issues:
        """What no events can have led to in a state of the right shapes. O(rows)."""
        wrong = list(outside("count", state["count"], 0, 2 * MAX_COUNT // self.stride))  # of events, and of served ones
        yield from wrong
        if wrong:
            return
        count = int(state["count"][0])
        rows: Cube = state["rows"]  # type: ignore[assignment]
        if len(rows) != _levels(count):
            yield "count", f"is {count}, which goes with {_levels(count)} levels, not {len(rows)}"
            return
        if np.isinf(rows).any():
            yield "rows", "has infinite numbers"
            return
        for level, part in enumerate(rows):
            newest = count >> level
            numbers = np.arange(max(1, newest - ROWS + 1), newest + 1)
            kept = part[numbers % ROWS]
            counts = kept[:, [_EVENTS, _SERVED]]
            if (counts.sum(axis=1) != (numbers << level) * float(self.stride)).any():  # true for NaN
                yield "rows", f"has steps in level {level} that are not those of rows {1 << level} strides apart"
                return
            if (counts < 0).any() or (counts % 1 != 0).any() or (counts[1:] < counts[:-1]).any():
                yield "rows", f"has events in level {level} that are not whole, or become fewer"
                return
            clocks = kept[:, _CLOCK]
            known = clocks[np.isnan(clocks).sum() :]  # the clock never goes back, nor becomes unknown
            if np.isnan(known).any() or (known[1:] < known[:-1]).any():
                yield "rows", f"has a clock that goes back in level {level}"
                return
            for name, (least, most) in self.ranges.items():
                figure = kept[:, self.columns.index(name)]
                if ((figure < least - _ROUNDED) | (figure > most + _ROUNDED)).any():  # false for NaN
                    yield "rows", f"has a column {name} in level {level} that is not from {least:g} to {most:g}"
                    return
            for name in self.counts:
                if (kept[:, self.columns.index(name)] % 1 != 0).any():  # true for NaN
                    yield "rows", f"has a column {name} in level {level} that is not whole"
                    return

    def restore(self, state: dict[str, NDArray[np.generic]]) -> None:
        """Take the arrays of a state."""
        self.count = np.array(state["count"], dtype=np.int64, order="C")
        self.rows = np.array(state["rows"], dtype=np.float64, order="C")

    def view(self) -> MetricHistoryView:
        """The rows as they stand: right until the next `add`, or for good once `frozen()`."""
        return MetricHistoryView(self.columns, self.stride, self.count, self.rows)


class MetricHistoryView(NamedTuple):
    """What a reader of the history needs."""

    columns: tuple[str, ...]
    stride: int
    met: Counts  # (1,) rows so far
    rows: Cube  # (levels, ROWS, columns)

    def frozen(self) -> MetricHistoryView:
        """A copy that stays as it is. O(rows): with 37 columns 19 KB for each level, so some 200 KB."""
        return self._replace(met=self.met.copy(), rows=self.rows.copy())

    def points(
        self, start: float | None = None, stop: float | None = None, step: float | None = None, by: Axis = "events"
    ) -> list[dict[str, Any]]:
        """The rows from `start` to `stop` on an axis (both allowed), ascending, as dicts by column; None for NaN.

        Rows between which nothing was learnt have the same place on the axis "events". With `step` only the last one
        of each (k step, (k + 1) step], k a whole number, so the same rows are left whatever `start` is. By "clock"
        rows of an unknown clock are left out. Raises ValueError where `step` is not above 0.
        """
        if step is not None and not step > 0.0:
            raise ValueError(f"step is {step}; expected more than 0")
        rows = self._ascending()
        axis = rows[:, self.columns.index(by)]
        low, high = -math.inf if start is None else start, math.inf if stop is None else stop
        rows = rows[(low <= axis) & (axis <= high)]  # false for NaN
        if step is not None and len(rows):
            interval = [_interval(x, step) for x in rows[:, self.columns.index(by)].tolist()]
            rows = rows[[a != b for a, b in pairwise(interval)] + [True]]
        return self._as_dicts(rows)

    def since(self, number: int) -> list[tuple[int, dict[str, Any]]]:
        """The rows after row `number`, each behind its own number, as `points` gives them."""
        rows = self._ascending()
        numbers = (rows[:, _EVENTS] + rows[:, _SERVED]) / self.stride
        later = numbers > number
        return list(zip(map(int, numbers[later].tolist()), self._as_dicts(rows[later]), strict=True))

    def _ascending(self) -> Matrix:
        """The rows of all levels, (n, columns), in the order of their numbers, each once."""
        parts, upto = [], int(self.met[0])  # the number of the newest row not taken yet
        for level, part in enumerate(self.rows):
            oldest = max(1, (int(self.met[0]) >> level) - ROWS + 1)
            newest = upto >> level
            if newest >= oldest:
                parts.append(part[np.arange(oldest, newest + 1) % ROWS])
                upto = (oldest << level) - 1
        return np.concatenate(parts[::-1]) if parts else np.empty((0, len(self.columns)))

    def _as_dicts(self, rows: Matrix) -> list[dict[str, Any]]:
        points: list[dict[str, Any]] = []
        for row in rows.tolist():
            point = {name: None if math.isnan(x) else x for name, x in zip(self.columns, row, strict=True)}
            points.append({**point, "events": int(row[_EVENTS]), "served": int(row[_SERVED])})
        return points


def _interval(x: float, step: float) -> float:
    """The k of the interval ((k - 1) step, k step] that x is in; x itself where the steps are too many to count."""
    quotient = x / step
    return math.ceil(quotient) if math.isfinite(quotient) else x
