"""Quantiles of delays, in seconds: exact ones of those kept in order, and near ones of a histogram of fixed size.

The histogram has 64 bins to an octave, each at most 1/64 of its lower edge wide, so that a delay is at most 1/128 of
itself from the middle of its bin. Below 2^-22 seconds, less than what a time of our days in float64 can tell apart, a
delay counts as 0. Quantiles lie between two delays in proportion, as numpy.quantile has them.
"""

from __future__ import annotations

import math

import numpy as np

from learners.numerics import Counts, Vector, bare_kernel

__all__ = ["DELAY_BINS", "DELAY_ERROR", "MAX_DELAY", "bounded", "delay_bin", "histogram_quantile", "quantile"]

DELAY_ERROR = 0.01  # relative, of a quantile from the histogram: 1/128, rounded up
_LOW, _HIGH = -22, 40  # exponents with bins of their own: 2^-22 <= delay < 2^40
_PER_OCTAVE = 64
DELAY_BINS = (_HIGH - _LOW) * _PER_OCTAVE + 1  # one for 0
MAX_DELAY = math.nextafter(2.0**_HIGH, 0.0)  # some 35,000 years


@bare_kernel
def bounded(delay):  # type: ignore[no-untyped-def]
    """A delay as it counts: from 0 to MAX_DELAY, or NaN. A label that is said to be older than its event took none."""
    if np.isnan(delay):
        return delay
    return min(max(delay, 0.0), MAX_DELAY)


@bare_kernel
def delay_bin(delay):  # type: ignore[no-untyped-def]
    """Which of the DELAY_BINS a bounded delay is in."""
    if delay < 2.0**_LOW:
        return 0
    fraction, exponent = math.frexp(delay)  # delay = fraction 2^exponent, 1/2 <= fraction < 1: exact
    return (exponent - 1 - _LOW) * _PER_OCTAVE + int((fraction - 0.5) * (2 * _PER_OCTAVE)) + 1


def _middle(place: int) -> float:
    """The delay in the middle of a bin."""
    if place == 0:
        return 0.0
    octave, step = divmod(place - 1, _PER_OCTAVE)
    return math.ldexp(1.0 + (step + 0.5) / _PER_OCTAVE, octave + _LOW)


def _between(a: float, b: float, share: float) -> float:
    """a + share (b - a), from the end that is nearer: never beyond either."""
    return a + (b - a) * share if share < 0.5 else b - (b - a) * (1.0 - share)


def quantile(ascending: Vector, tenths: int) -> float:
    """The quantile at so many tenths (0 to 9) of some delays; NaN of none. O(1)."""
    if not len(ascending):
        return math.nan
    rank, rest = divmod((len(ascending) - 1) * tenths, 10)
    below = float(ascending[rank])
    return _between(below, float(ascending[rank + 1]), rest / 10) if rest else below


def histogram_quantile(histogram: Counts, tenths: int) -> float:
    """The quantile at so many tenths (0 to 9) of the delays in a histogram (DELAY_BINS,); NaN of none. O(bins)."""
    upto = np.cumsum(histogram)
    rank, rest = divmod((int(upto[-1]) - 1) * tenths, 10)
    if rank < 0:
        return math.nan
    below, above = (_middle(int(np.searchsorted(upto, k, side="right"))) for k in (rank, rank + (rest > 0)))
    return _between(below, above, rest / 10)
