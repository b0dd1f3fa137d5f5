"""Bin scores of any scale by sign and binary exponent: 16 bins per octave, each about 4 % wide.

Magnitudes from 2^-24 up to 2^16 have their own bins. Smaller ones share the middle bin, larger ones the outermost bin
of their sign.
"""

from __future__ import annotations

import math

import numpy as np

from learners.numerics.jit import kernel

__all__ = ["BINS", "SIDE", "evened", "position", "typical"]

LOW, HIGH = -24, 16  # exponents with bins of their own: 2^-24 <= |score| < 2^16
PER_OCTAVE = 16
SIDE = (HIGH - LOW) * PER_OCTAVE + 1  # one more for everything larger
BINS = 2 * SIDE + 1  # negative scores, (almost) zero, positive scores

_SIZES = np.array(
    [2.0 ** (LOW + j // PER_OCTAVE) * (1.0 + j % PER_OCTAVE / PER_OCTAVE) for j in range(SIDE)]
)  # of edges
_STEP = math.log(2.0) / PER_OCTAVE


@kernel
def position(score):  # type: ignore[no-untyped-def]
    """Return a score's position among the bins, in [0, BINS), non-decreasing; NaN counts as 0.

    The integer part is the bin, the fraction the position inside it. The outermost bins have no width.
    """
    size = 0.0 if math.isnan(score) else abs(score)
    if size < 2.0**LOW:
        return SIDE + 0.5 if size == 0.0 else SIDE + 0.5 + score * 2.0 ** (-LOW - 1)
    if size >= 2.0**HIGH:
        return BINS - 1.0 if score > 0.0 else 0.0
    fraction, exponent = math.frexp(size)  # size = fraction 2^exponent, 1/2 <= fraction < 1: exact
    steps = (exponent - 1 - LOW) * PER_OCTAVE + (fraction - 0.5) * (2 * PER_OCTAVE)
    return SIDE + 1 + steps if score > 0.0 else SIDE - steps


@kernel
def typical(bins):  # type: ignore[no-untyped-def]
    """Return the median magnitude of the scores counted in `bins` (2, BINS), as the number of an edge from 0."""
    total = 0.0
    for b in range(BINS):
        total += bins[0, b] + bins[1, b]
    above = 0.0
    for step in range(SIDE - 1, 0, -1):
        low, high = SIDE - 1 - step, SIDE + 1 + step
        above += bins[0, low] + bins[1, low] + bins[0, high] + bins[1, high]
        if above + above >= total:
            return step
    return 0


@kernel
def evened(b, step):  # type: ignore[no-untyped-def]
    """Return the lower edge of bin b (or the end, BINS): linear up to the typical magnitude, then logarithmic.

    Bins alone would spread scores around 0 over hundreds of them, and scores alone would follow the largest.
    """
    j = b - SIDE - 1 if b > SIDE else SIDE - b
    size = _SIZES[j] / _SIZES[step] if j <= step else 1.0 + (j - step) * _STEP
    return size if b > SIDE else -size
