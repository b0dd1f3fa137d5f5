"""Metrics over the whole stream in bounded memory: rows at regular steps, thinned with age.

A step is an event served with an id, or a labelled event learnt. An event whose label arrives later is two steps. Row
number n is due after n * `stride` steps. So rows also appear while a learner serves and no label arrives.

Level j keeps the last `ROWS` rows whose number is a multiple of 2^j. A new level is added just before the highest level
would drop a row. So the levels together cover everything since the start, finely near its end: a row that is `a`
strides old is at most a / 16 + 1 strides from a neighbour.

A row takes O(columns) per level, in two levels on average.
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
LEVELS = 32  # at most: 2^37 rows until the first row is dropped

Axis = Literal["events", "clock"]
_FIRST = ("events", "clock", "served")  # columns
_EVENTS, _CLOCK, _SERVED = range(3)  # their indices
_ROUNDED = 1e-9  # how far a metric may be out of its range: sums of many terms are rounded


def _levels(count: int) -> int:
    """Return the number of levels after `count` rows: the highest took at most ROWS of them."""
    return min(LEVELS, 1 + max(0, (max(count, 1) - 1) // ROWS).bit_length())


class MetricHistory:
    """Rows of metrics by columns, of which the first are `events`, `clock` and `served`; NaN stands for undefined.

    `events` and `served` count labelled and served events since the start; a row's steps are their sum. `ranges` bounds
    the other columns where they are defined; a column without a range may be any finite number. The columns in `counts`
    are whole numbers, defined in each row.

    The state is `count` (1,), the rows so far, and `rows` (levels, ROWS, columns): row number n is in level j at
    (n / 2^j) % ROWS. The shape follows from the count; see `shapes`.
    """

    def __init__(
        self,
        columns: tuple[str, ...],
        stride: int,
        ranges: Mapping[str, tuple[float, float]] | None = None,
        counts: tuple[str, ...] = (),
    ) -> None:
        if columns[: len(_FIRST)] != _FIRST:
            raise ValueError(f"the first columns are {columns[: len(_FIRST)]}; expected {', '.join(_FIRST)}")
        self.columns = columns
        self.stride = stride
        self.ranges = {} if ranges is None else dict(ranges)
        self.counts = counts
        self.count: Counts = np.zeros(1, dtype=np.int64)
        self.rows: Cube = np.zeros((1, ROWS, len(columns)))

    def steps_to_next(self, steps: int) -> int:
        """Return the steps until the next row is due; 0: now. `steps` so far are at least those of the last row."""
        return (int(self.count[0]) + 1) * self.stride - steps

    def add(self, row: Vector) -> None:
        """Add the row (columns,) that is due: one stride after the last row. Raises ValueError for any other."""
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
        """Add a level, with every second row of the highest level."""
        last, level = self.rows[-1], len(self.rows)
        rows = np.zeros((level + 1, *last.shape))
        rows[:level] = self.rows
        newest = int(self.count[0]) >> level
        for n in range(max(1, newest - ROWS // 2 + 1), newest + 1):
            rows[level, n % ROWS] = last[2 * n % ROWS]
        self.rows = rows

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return the arrays of the state."""
        return {"count": self.count, "rows": self.rows}

    def shapes(self, state: dict[str, NDArray[np.generic]]) -> dict[str, tuple[int, ...]]:
        """Return the shapes of a state's arrays that follow from its count: one more level per doubling of the rows."""
        return {"count": (1,), "rows": (_levels(int(state["count"][0])), ROWS, len(self.columns))}

    def problems(self, state: dict[str, NDArray[np.generic]]) -> Issues:
        """Report what no events can have led to in a state of the right shapes. O(rows)."""
        wrong = list(outside("count", state["count"], 0, 2 * MAX_COUNT // self.stride))  # of events, and of served ones
        yield from wrong
        if wrong:
            return
        count = int(state["count"][0])
        rows: Cube = state["rows"]  # type: ignore[assignment]
        if len(rows) != _levels(count):
            yield "count", f"is {count}, which needs {_levels(count)} levels, not {len(rows)}"
            return
        if np.isinf(rows).any():
            yield "rows", "has infinite numbers"
            return
        for level, part in enumerate(rows):
            newest = count >> level
            numbers = np.arange(max(1, newest - ROWS + 1), newest + 1)
            block = part[numbers % ROWS]
            counts = block[:, [_EVENTS, _SERVED]]
            if (counts.sum(axis=1) != (numbers << level) * float(self.stride)).any():  # true for NaN
                yield "rows", f"has steps in level {level} that are not those of rows {1 << level} strides apart"
                return
            if (counts < 0).any() or (counts % 1 != 0).any() or (counts[1:] < counts[:-1]).any():
                yield "rows", f"has events in level {level} that are not whole, or become fewer"
                return
            clocks = block[:, _CLOCK]
            times = clocks[np.isnan(clocks).sum() :]  # the clock never goes back, nor becomes unknown again
            if np.isnan(times).any() or (times[1:] < times[:-1]).any():
                yield "rows", f"has a clock that goes back in level {level}"
                return
            for name, (least, most) in self.ranges.items():
                values = block[:, self.columns.index(name)]
                if ((values < least - _ROUNDED) | (values > most + _ROUNDED)).any():  # false for NaN
                    yield "rows", f"has a column {name} in level {level} that is not from {least:g} to {most:g}"
                    return
            for name in self.counts:
                if (block[:, self.columns.index(name)] % 1 != 0).any():  # true for NaN
                    yield "rows", f"has a column {name} in level {level} that is not whole"
                    return

    def restore(self, state: dict[str, NDArray[np.generic]]) -> None:
        """Take copies of the arrays of a state."""
        self.count = np.array(state["count"], dtype=np.int64, order="C")
        self.rows = np.array(state["rows"], dtype=np.float64, order="C")

    def view(self) -> MetricHistoryView:
        """Return the rows as they stand: right until the next `add`, or for good once `frozen()`."""
        return MetricHistoryView(self.columns, self.counts, self.stride, self.count, self.rows)


class MetricHistoryView(NamedTuple):
    """The history at one moment."""

    columns: tuple[str, ...]
    counts: tuple[str, ...]  # columns of whole numbers
    stride: int
    number: Counts  # (1,) rows so far
    rows: Cube  # (levels, ROWS, columns)

    def frozen(self) -> MetricHistoryView:
        """Return a copy that stays as it is. O(rows): 19 KB per level with 37 columns, so about 200 KB."""
        return self._replace(number=self.number.copy(), rows=self.rows.copy())

    def points(
        self, start: float | None = None, stop: float | None = None, step: float | None = None, by: Axis = "events"
    ) -> list[dict[str, Any]]:
        """Return the rows from `start` to `stop` inclusive, ascending on an axis, as dicts by column; None for NaN.

        Several rows may have the same place on the axis "events": nothing was learnt between them. On the axis "clock",
        rows with an unknown clock are left out. With `step`, only the last row of each interval (k step, (k + 1) step]
        is returned, so the choice does not depend on `start`. Raises ValueError if `step` is not above 0.
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
        """Return the rows after row `number` as pairs (number, row), each row as `points` returns it."""
        rows = self._ascending()
        numbers = (rows[:, _EVENTS] + rows[:, _SERVED]) / self.stride
        later = numbers > number
        return list(zip(map(int, numbers[later].tolist()), self._as_dicts(rows[later]), strict=True))

    def _ascending(self) -> Matrix:
        """Collect the rows of all levels, (n, columns), ascending by number, each once."""
        parts, upto = [], int(self.number[0])  # the number of the newest row not taken yet
        for level, part in enumerate(self.rows):
            oldest = max(1, (int(self.number[0]) >> level) - ROWS + 1)
            newest = upto >> level
            if newest >= oldest:
                parts.append(part[np.arange(oldest, newest + 1) % ROWS])
                upto = (oldest << level) - 1
        return np.concatenate(parts[::-1]) if parts else np.empty((0, len(self.columns)))

    def _as_dicts(self, rows: Matrix) -> list[dict[str, Any]]:
        integers = {"events", "served", *self.counts}
        convert = [int if name in integers else _number for name in self.columns]
        return [{name: to(x) for name, to, x in zip(self.columns, convert, row, strict=True)} for row in rows.tolist()]


def _number(x: float) -> float | None:
    return None if math.isnan(x) else x


def _interval(x: float, step: float) -> float:
    """Return the k of the interval ((k - 1) step, k step] that x is in, or x itself if x / step overflows."""
    quotient = x / step
    return math.ceil(quotient) if math.isfinite(quotient) else x
