"""Quantiles of label delays in seconds: exact from ordered delays, approximate from a histogram of fixed size.

The histogram has 64 bins per octave. A bin is at most 1/64 of its lower edge wide, so a delay is at most 1/128 of
itself from the middle of its bin. Delays below 2^-22 seconds count as 0: float64 cannot resolve them in a present time.
Quantiles are interpolated linearly, as by numpy.quantile.
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
    """Limit a delay to 0 to MAX_DELAY, or NaN. A label that claims to be older than its event has a delay of 0."""
    if np.isnan(delay):
        return delay
    return min(max(delay, 0.0), MAX_DELAY)


@bare_kernel
def delay_bin(delay):  # type: ignore[no-untyped-def]
    """Return the index of a bounded delay's bin among DELAY_BINS."""
    if delay < 2.0**_LOW:
        return 0
    fraction, exponent = math.frexp(delay)  # delay = fraction 2^exponent, 1/2 <= fraction < 1: exact
    return (exponent - 1 - _LOW) * _PER_OCTAVE + int((fraction - 0.5) * (2 * _PER_OCTAVE)) + 1


def _middle(place: int) -> float:
    """Return the delay in the middle of a bin."""
    if place == 0:
        return 0.0
    exponent, step = divmod(place - 1, _PER_OCTAVE)
    return math.ldexp(1.0 + (step + 0.5) / _PER_OCTAVE, exponent + _LOW)


def _between(a: float, b: float, share: float) -> float:
    """Compute a + share (b - a) from the nearer end, so that rounding never leaves [a, b]."""
    return a + (b - a) * share if share < 0.5 else b - (b - a) * (1.0 - share)


def quantile(ascending: Vector, tenths: int) -> float:
    """Compute the quantile of ascending delays at so many tenths (0 to 9); NaN without delays. O(1)."""
    if not len(ascending):
        return math.nan
    rank, rest = divmod((len(ascending) - 1) * tenths, 10)
    below = float(ascending[rank])
    return _between(below, float(ascending[rank + 1]), rest / 10) if rest else below


def histogram_quantile(histogram: Counts, tenths: int) -> float:
    """Compute the quantile of a histogram (DELAY_BINS,) at so many tenths (0 to 9); NaN if it is empty. O(bins)."""
    upto = np.cumsum(histogram)
    rank, rest = divmod((int(upto[-1]) - 1) * tenths, 10)
    if rank < 0:
        return math.nan
    below, above = (_middle(int(np.searchsorted(upto, k, side="right"))) for k in (rank, rank + (rest > 0)))
    return _between(below, above, rest / 10)
