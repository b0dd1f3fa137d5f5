"""Follow the robust range of a field's numbers, and find values far outside it.

The range is from about the 1 % to the 99 % quantile of the numbers that are not 0. The eight largest and the eight
smallest are collected. At the end of a block of events with n >= 256 numbers since the last time, those of rank
n // 100 + 1 are the block's quantiles, and the collection starts anew. The first ones are the range. Later ones move
its edges:

    outwards by a quarter of the distance, but at most by an eighth of the range's size
    inwards by 1/32 of the distance

The size of the range is the larger |edge|. An edge that moves towards 0 moves by at most an eighth of itself.

A number x that is not 0 is out of range if

    |x| > 4 size,   or   |x| < least / 4 on the same side of 0 as the range

`least` is the smaller |edge| of a range that does not contain 0. Numbers declared under `log` are logarithms: there, 4
is a summand ln 4, and the eighth is ln 9/8. Reasons:
- A block's quantiles ignore five absurd values in 512. More of them widen the range by an eighth per block.
- At most 2 % of the numbers are outside their quantiles, so stationary numbers are seldom out of range, whatever their
  tail is: at most one in 400 beyond 4 times the 99 % quantile if the tail is that of Pareto's law with exponent 1.
- Amounts that come in cents are out of range: 70 % or more of normal, uniform, exponential and log-normal (sigma 1)
  numbers times 100, 15 % if sigma is 2. So are amounts divided by 100, 15 % or more, but not in a range around 0.
- A trend or a counter is not: the range follows it. A change of scale that stays becomes the range: of a hundred times
  within some 15,000 events, of a million times within 50,000.
- 0 is a value of its own: often it means none. Most numbers of many fields are 0, which would be the whole range.

A number within the two gates of its row can neither be out of range nor enter the collection. So most numbers cost two
comparisons. A row also remembers the last value, how often it changed, and for how long nearly all values were new: see
`FieldSummary.remarks`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from learners.numerics import MAX_COUNT, Issues, Matrix, kernel, outside

__all__ = [
    "CHANGES",
    "COLUMNS",
    "GATE_HIGH",
    "GATE_LOW",
    "HIGH",
    "LAST_CHANGE",
    "LOW",
    "NEW_MARK",
    "NEW_RUN",
    "PREVIOUS",
    "SAMPLES",
    "VALUES_MARK",
    "end_block",
    "initial_ranges",
    "problems",
    "take",
]

_EXTREMES = 8  # smallest, and largest numbers of a collection
_LARGEST = _EXTREMES  # first column of the largest, ascending; before them the smallest, negated
GATE_LOW, GATE_HIGH = range(2 * _EXTREMES, 2 * _EXTREMES + 2)
LOW, HIGH = range(GATE_HIGH + 1, GATE_HIGH + 3)  # the range; LOW > HIGH before the first
SAMPLES = HIGH + 1  # numbers in the collection
PREVIOUS = SAMPLES + 1  # the last value, or the column of the last category; infinite before the first
CHANGES, LAST_CHANGE = PREVIOUS + 1, PREVIOUS + 2  # values unlike the one before, and the event of the last of them
NEW_RUN = LAST_CHANGE + 1  # values of the last blocks of which nearly all were new;
VALUES_MARK, NEW_MARK = NEW_RUN + 1, NEW_RUN + 2  # values and new ones at the end of the last block
COLUMNS = NEW_MARK + 1

_FEWEST = 256  # numbers of a collection
_PER_RANK = 100
_FAR, _STEP = 4.0, 0.125
_LOG_FAR, _LOG_STEP = 1.3862943611198906, 0.11778303565638346  # their logarithms: of 4, and of 9/8
_OUTWARDS, _INWARDS = 0.25, 0.03125


def initial_ranges(count: int) -> Matrix:
    """Return the rows of `count` fields before their first value."""
    rows = np.zeros((count, COLUMNS))
    rows[:, : 2 * _EXTREMES] = -np.inf
    rows[:, [GATE_LOW, LOW, PREVIOUS]] = np.inf
    rows[:, [GATE_HIGH, HIGH]] = -np.inf
    return rows


@kernel
def _limits(row, logged):  # type: ignore[no-untyped-def]
    """Return (smallest, largest) size in range."""
    low, high = row[LOW], row[HIGH]
    if low > high:
        return 0.0, np.inf
    size = max(abs(low), abs(high))
    least = min(abs(low), abs(high)) if (low > 0.0) == (high > 0.0) else 0.0
    if logged:
        return max(least - _LOG_FAR, 0.0), size + _LOG_FAR
    return least / _FAR, size * _FAR


@kernel
def _set_gates(row, logged):  # type: ignore[no-untyped-def]
    least, most = _limits(row, logged)
    row[GATE_LOW] = max(-row[0], -most)
    row[GATE_HIGH] = min(row[_LARGEST], most)
    if least > 0.0 and row[LOW] > 0.0:
        row[GATE_LOW] = max(row[GATE_LOW], least)
    elif least > 0.0:
        row[GATE_HIGH] = min(row[GATE_HIGH], -least)


@kernel
def _enter(row, start, x):  # type: ignore[no-untyped-def]
    """Put x in place of the smallest of the ascending numbers from `start`, if it is larger."""
    if not x > row[start]:
        return
    at = start
    while at + 1 < start + _EXTREMES and row[at + 1] < x:
        row[at] = row[at + 1]
        at += 1
    row[at] = x


@kernel
def take(row, x, logged):  # type: ignore[no-untyped-def]
    """Collect a number that is not 0 and beyond the gates; tell whether it is out of range."""
    least, most = _limits(row, logged)
    size = abs(x)
    _enter(row, 0, -x)
    _enter(row, _LARGEST, x)
    _set_gates(row, logged)
    return size > most or (size < least and (x > 0.0) == (row[HIGH] > 0.0))


@kernel
def _move_edge(edge, quantile, size, logged):  # type: ignore[no-untyped-def]
    """Return the upper edge of a range of this size after a block with this quantile."""
    if quantile <= edge:
        return edge + _INWARDS * (quantile - edge)
    step = _LOG_STEP if logged else _STEP * (-edge if quantile < 0.0 else size)
    return edge + min(step, _OUTWARDS * (quantile - edge))


@kernel
def end_block(rows, logged):  # type: ignore[no-untyped-def]
    """Move the ranges of all fields after a block of events; `logged` (f,) marks fields of logarithms."""
    for place in range(rows.shape[0]):
        row = rows[place]
        if row[SAMPLES] < _FEWEST:
            continue
        at = max(_EXTREMES - 1 - int(row[SAMPLES]) // _PER_RANK, 0)
        low, high = -row[at], row[_LARGEST + at]
        if row[LOW] > row[HIGH]:
            row[LOW] = low
            row[HIGH] = high
        else:
            size = max(abs(row[LOW]), abs(row[HIGH]))
            row[HIGH] = _move_edge(row[HIGH], high, size, logged[place])
            row[LOW] = min(-_move_edge(-row[LOW], -low, size, logged[place]), row[HIGH])
        row[: 2 * _EXTREMES] = -np.inf
        row[SAMPLES] = 0.0
        _set_gates(row, logged[place])


def problems(rows: Matrix, logged: NDArray[np.bool_]) -> Issues:
    """Report what no stream can have led to in rows of the right shape."""
    if np.isnan(rows).any():
        yield "ranges", "has numbers that are NaN"
        return
    yield from outside("ranges", rows[:, [SAMPLES, *range(CHANGES, COLUMNS)]], 0.0, float(MAX_COUNT))
    for row, is_logged in zip(rows.copy(), logged, strict=True):
        gates = row[[GATE_LOW, GATE_HIGH]].tolist()
        _set_gates(row, is_logged)
        if row[[GATE_LOW, GATE_HIGH]].tolist() != gates:
            yield "ranges", "has gates that do not match the numbers"
            return
