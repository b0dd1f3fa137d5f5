"""When positive labels stop arriving: an alarm by the chance that a stream as before would be silent for so long.

A gap is the number of events from one positive label to the next. It is counted in labelled events and in served ones,
because a broken feed of labels brings no labelled events. Of the last n = 1024 gaps, g is the mean, k are longer than
g, and e and v are the mean and the variance of what these exceed g by:

    d = (k v / e^2 + 10) / (k + 10), but 1 if it is between 0.5 and 1
    P(silence >= m) = (k / n) (1 + (m - g) / (k e))^(-k / d)
    alarm if P <= min(1e-6 g, 1e-3) and m >= 2 times the longest gap

- If nothing but chance decides, gaps are geometric, and so is the excess of the long ones: d is about 1. The rate 1 / e
  is known from k gaps, so its posterior is a gamma distribution, and the excess is a Lomax variable.
- If positives come in bursts, or labels in batches, only the gaps between them are long. Irregular ones have d > 1:
  each tells as much as 1 / d gaps, the quasi-likelihood of overdispersed counts. Regular ones have d < 1, so that a few
  weekly files that do not come are enough. Ten more gaps of d = 1 are assumed, since few long gaps tell little of d.
- A gap is one chance of a false alarm, and comes every g events: 1e-6 g per gap is one false alarm in a million events.
- At least 20 gaps are needed, and the first one begins with a positive label. After an alarm the gaps start anew.

A positive label costs O(1). In a silence of 2 g, which is the least that could be too long, the gaps are read once.

References
----------
Lomax. Business failures: another example of the analysis of failure data. JASA 49, 1954: the mixture.
Pickands. Statistical inference using extreme order statistics. Annals of Statistics 3, 1975: excesses over a threshold.
Wedderburn. Quasi-likelihood functions, generalized linear models, and the Gauss-Newton method. Biometrika 61, 1974.
"""

from __future__ import annotations

import numpy as np

from learners.numerics import MAX_COUNT, Counts, Issues, Matrix, Vector, bare_kernel, exp, inlined, kernel, log, outside

__all__ = ["GAPS", "LABELLED", "SERVED", "UNITS", "arrive", "forget", "problems", "too_silent"]

UNITS = 2
LABELLED, SERVED = range(UNITS)  # what a gap is counted in
GAPS = 1024  # remembered

_FEWEST = 20  # gaps before an alarm
_FALSE_ALARMS = 1e-6  # per event
_MOST_CHANCE = 1e-3
_LONGEST = 2.0  # times the longest gap
_ASSUMED = 10  # long gaps of dispersion 1
_REGULAR = 0.5  # dispersion


@kernel
def _limit(gaps, n, total):  # type: ignore[no-untyped-def]
    """Return the silence that is too long after these gaps, the first n of (GAPS,), which add up to `total`."""
    mean = total / n
    count, excess, squares, longest = 0, 0.0, 0.0, 0.0
    for i in range(n):
        longest = max(longest, gaps[i])
        if gaps[i] > mean:
            count += 1
            excess += gaps[i] - mean
            squares += (gaps[i] - mean) * (gaps[i] - mean)
    least = _LONGEST * longest
    if count == 0:
        return least
    excess /= count
    dispersion = (squares / (excess * excess) - count + _ASSUMED) / (count + _ASSUMED)
    if dispersion >= _REGULAR:
        dispersion = max(dispersion, 1.0)
    odds = count / n / min(_FALSE_ALARMS * mean, _MOST_CHANCE)
    return max(mean + count * excess * (exp(log(odds) * dispersion / count) - 1.0), least)


@bare_kernel
def arrive(gaps, totals, count, silence, limits):  # type: ignore[no-untyped-def]
    """Take a positive label.

    `gaps` (UNITS, GAPS) is a ring, `totals` (UNITS,) its sums, `count` (1,) the gaps since the first or since an alarm,
    -1 before a positive; `silence` (UNITS,) the events since the last positive, `limits` (UNITS,) a silence that is not
    too long.
    """
    for unit in range(UNITS):
        if count[0] >= 0:
            slot = count[0] % GAPS
            gap = silence[unit] + (1.0 if unit == LABELLED else 0.0)
            totals[unit] += gap - (gaps[unit, slot] if count[0] >= GAPS else 0.0)  # whole numbers: exact
            gaps[unit, slot] = gap
            n = min(count[0] + 1, GAPS)
            if n >= _FEWEST and totals[unit] > 0.0:  # served events may be none
                limits[unit] = _LONGEST * totals[unit] / n
        silence[unit] = 0
    count[0] += 1


@inlined
def too_silent(gaps, totals, count, silence, limits, unit):  # type: ignore[no-untyped-def]
    """Take an event without a positive label; tell whether the silence is too long now. See `arrive`."""
    silence[unit] += 1
    if silence[unit] < limits[unit]:
        return False
    limits[unit] = _limit(gaps[unit], min(count[0], GAPS), totals[unit])
    return silence[unit] >= limits[unit]


@bare_kernel
def forget(totals, count, limits):  # type: ignore[no-untyped-def]
    """Start the gaps anew, with the next positive."""
    totals[:] = 0.0
    count[0] = -1
    limits[:] = np.inf


def problems(gaps: Matrix, totals: Vector, count: Counts, limits: Vector) -> Issues:
    """Report what no stream can have led to in arrays of the right shapes; see `arrive`."""
    yield from outside("gaps", gaps, 0.0, float(MAX_COUNT))
    yield from outside("gap_count", count, -1, MAX_COUNT)
    n = max(0, min(int(count[0]), GAPS))
    if not np.array_equal(totals, gaps[:, :n].sum(axis=1)):
        yield "gap_totals", "are not the sums of the gaps"
    if not (np.isposinf(limits) | ((totals > 0.0) & (n >= _FEWEST) & (limits > 0.0))).all():
        yield "silence_limits", "has limits that do not follow from the gaps"
