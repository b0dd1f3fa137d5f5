"""Find fields of named events that got worse: more missing values, new categories, values of the wrong kind or range.

After every 512 learnt events, four shares p of each field are compared with their means q over the blocks before:

    rise = sqrt(p (1 - q)) - sqrt(q (1 - p))
    limit = max(0.15, (2 + 44 / max(n, 22)) largest),   largest: the largest rise so far, without that of the last block
    alarm if rise >= limit in two blocks in a row, the second within 15 % of the first; or if rise >= max(0.85, limit)

p is (k + 3/8) / (512 + 3/4) for a count k. q is a mean of 8 blocks: the first 8 count alike, and older ones fade. The
first 2 have no rise; n is the number of blocks since. If n < 22, the second of two blocks must rise by 0.85 - 0.015 n,
and one block is not enough. Reasons:
- The rise is the sine of the difference of arcsin sqrt(p) and arcsin sqrt(q), whose variance hardly depends on p. If
  nothing but chance decides, the standard deviation is 1 / (2 sqrt(512)) sqrt(1 + 1/15) = 0.023, so 0.15 is 6.5 of
  them. It needs no logarithm and no arc sine, so it has the same bits on every machine.
- 0.15 is material: from 0 to 2.5 %, from 1 to 6 %, from 10 to 21 %, from 50 to 65 %.
- Missing values come in bursts and cycles. They show in the largest rise. The fewer blocks it is known from, the more
  it may be exceeded: hence 44 / n. On a stream without bursts it is far below 0.15, and does not matter.
- A burst ends and a change stays: so the next block must be like the one that rose. The first may have a part of the
  change, and a short burst may lie in two blocks: then they are not alike, and a third decides. Until then these blocks
  are in neither the mean nor the largest rise. If the rise ends without an alarm, it was a burst, and is known.
- 0.85 is from 0 to 72 % of a block: a field that goes missing need not wait.
- A young field has few rises, so only a large one counts: at first from 0 to 72 %, after 5,000 events from 0 to 57 %,
  after 10,000 from 0 to 38 %. Two such blocks are seldom a burst. So a field that goes missing, or comes in cents, is
  found from 1,536 events on. `benchmarks/alarms.py` counts the false alarms of the first 12,800 events apart: there are
  about as many as later. Two blocks that rise alike, but less, are what the field is like, and enter the mean.
- The last block is left out, because a change within a block shows in two of them. The largest rise fades with a memory
  of 4096 blocks.
- A fall raises no alarm: new categories become fewer as a field is learnt, a mixed field has no wrong kind,
  and a range follows its field.
- The first block begins after that of a field's first value.

One alarm per block and kind names the field that rose most, and counts the others. After an alarm these fields
start a new reference. O(fields) per 512 events.

References
----------
Anscombe. The transformation of Poisson, binomial and negative-binomial data. Biometrika 35, 1948: p.
Cohen. Statistical power analysis for the behavioral sciences. 1988: differences of arcsin sqrt(p) as sizes of effects.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from learners.numerics import MAX_COUNT, Counts, Issues, Matrix, kernel, outside

__all__ = [
    "BLOCK",
    "QUALITY_KINDS",
    "FieldAlarm",
    "FieldBlock",
    "Quality",
    "alarms_of",
    "end_block",
    "initial_quality",
    "problems",
    "report_buffer",
]

QUALITY_KINDS = ("missing", "new_categories", "contradictions", "out_of_range")  # of alarms, and of shares
BLOCK = 512  # events of one comparison

_KINDS = len(QUALITY_KINDS)
_FIRST = 2  # blocks without a rise
_FEWEST = 22  # blocks with one; a field is young before
_MATERIAL = 0.15  # rise
_SUDDEN = 0.85  # rise that needs no second block; that a young field needs,
_EASE = 0.015  # less with each block
_ALIKE = 0.15  # share of the last rise by which one that confirms it may differ
_BEYOND, _UNSURE = 2.0, 44.0  # times the largest rise: at last, and more by so many over the number of blocks
_MEMORY = 8  # blocks: of the mean,
_KEEP = 1.0 - 1.0 / 4096  # and, per block, of the largest rise
_LARGEST, _LAST = range(2)  # rises
_COLUMNS = 6  # of a report


class Quality(NamedTuple):
    """The arrays of the detector, one entry per field and kind."""

    marks: Counts  # (f, 4) the total at the end of the last block
    blocks: (
        Counts  # (f, 4) blocks since the reference began, and 1; 0 before the block of the field's first value ended
    )
    shares: Matrix  # (f, 4) mean share of the blocks
    rises: NDArray[np.float64]  # (f, 4, 2) the largest one before the last block, and that of the last block; from 0


class FieldAlarm(NamedTuple):
    """Fields that got worse within the last block."""

    event: int  # ordinal of the learnt event that ended the block
    kind: str  # of `QUALITY_KINDS`
    field: int  # the place of the field that got worse most
    fields: int  # number of fields that did
    before: float  # share of that field
    after: float


class FieldBlock(NamedTuple):
    """The end of a block of learnt events."""

    event: int  # ordinal of its last event
    shares: Matrix  # (f, 4) of its events
    alarms: list[FieldAlarm]


def initial_quality(count: int) -> Quality:
    """Return the arrays of `count` fields before their first value."""
    return Quality(
        np.zeros((count, _KINDS), dtype=np.int64),
        np.zeros((count, _KINDS), dtype=np.int64),
        np.zeros((count, _KINDS)),
        np.zeros((count, _KINDS, 2)),
    )


def report_buffer() -> Matrix:
    """Return an array with room for the reports of a block."""
    return np.empty((_KINDS, _COLUMNS))


def alarms_of(reports: Matrix) -> list[FieldAlarm]:
    """Read reports of `end_block`."""
    return [
        FieldAlarm(int(event), QUALITY_KINDS[int(kind)], int(field), int(fields), before, after)
        for event, kind, field, fields, before, after in reports.tolist()
    ]


@kernel
def _rise(quality, place, kind, share):  # type: ignore[no-untyped-def]
    """Return how far a share is above those before; at most 0 if it is not, or if these are too few."""
    if quality.blocks[place, kind] <= _FIRST:
        return 0.0
    mean = quality.shares[place, kind]
    return np.sqrt(share * (1.0 - mean)) - np.sqrt(mean * (1.0 - share))


@kernel
def _take(quality, place, kind, share, rise):  # type: ignore[no-untyped-def]
    """Add a block to the reference, or start it anew if the rise is too large and stays; tell whether it does."""
    rises = quality.rises[place, kind]
    count = quality.blocks[place, kind] - 1
    earlier = count - _FIRST
    young = earlier < _FEWEST
    limit = max(_MATERIAL, (_BEYOND + _UNSURE / max(earlier, _FEWEST)) * rises[_LARGEST])
    if rise >= limit:
        last = rises[_LAST]
        alike = last >= limit and abs(rise - last) <= _ALIKE * last
        if (alike and rise >= _SUDDEN - _EASE * earlier) if young else (alike or rise >= _SUDDEN):
            quality.blocks[place, kind] = 1
            quality.shares[place, kind] = 0.0
            rises[:] = 0.0
            return True
        if not alike:
            rises[_LAST] = rise
            quality.blocks[place, kind] += 1
            return False
    rises[_LARGEST] = max(_KEEP * rises[_LARGEST], rises[_LAST])
    rises[_LAST] = max(rise, 0.0)
    quality.shares[place, kind] += (share - quality.shares[place, kind]) / min(count + 1, _MEMORY)
    quality.blocks[place, kind] += 1
    return False


@kernel
def end_block(quality, totals, has_values, event, reports):  # type: ignore[no-untyped-def]
    """Judge a block of all fields; write at most one report per kind to `reports`, and return their number.

    `totals` (f, 4) are the counts of each kind so far, `has_values` (f,) whether the field had a value, `event` the
    ordinal of the block's last event.
    """
    count = 0
    for kind in range(_KINDS):
        most, worst, fields, before, after = 0.0, -1, 0, 0.0, 0.0
        for place in range(totals.shape[0]):
            if not has_values[place]:
                continue
            number = totals[place, kind] - quality.marks[place, kind]
            quality.marks[place, kind] = totals[place, kind]
            if quality.blocks[place, kind] == 0:  # the field began within the block
                quality.blocks[place, kind] = 1
                continue
            rise = _rise(quality, place, kind, (number + 0.375) / (BLOCK + 0.75))
            mean = quality.shares[place, kind]
            if _take(quality, place, kind, number / BLOCK, rise):
                fields += 1
                if rise > most:
                    most, worst, before, after = rise, place, mean, number / BLOCK
        if fields > 0:
            reports[count, 0] = event
            reports[count, 1] = kind
            reports[count, 2] = worst
            reports[count, 3] = fields
            reports[count, 4] = before
            reports[count, 5] = after
            count += 1
    return count


def problems(quality: Quality) -> Issues:
    """Report what no stream can have led to in arrays of the right shapes."""
    yield from outside("marks", quality.marks, 0, MAX_COUNT)
    yield from outside("blocks", quality.blocks, 0, MAX_COUNT)
    yield from outside("shares", quality.shares, 0.0, 1.0)
    yield from outside("rises", quality.rises, 0.0, 1.0)
