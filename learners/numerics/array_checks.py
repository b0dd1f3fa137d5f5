"""Check the arrays of a restored state: whether a stream of events can produce their values.

Kernels trust a state: they use its numbers as indices and divide by its counts. So each part of the learner checks its
arrays before a state is restored; see `state_checks.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

__all__ = ["MAX_COUNT", "Issues", "counters", "not_finite", "outside"]

Issues = Iterator[tuple[str, str]]  # the name of an array, and what is wrong with it

MAX_COUNT = 2**53  # of events: beyond any stream, and far enough from the end of int64 for sums


def outside(name: str, array: NDArray[np.generic], low: float, high: float) -> Issues:
    """Report values of `array` outside [low, high], and NaN. O(size) time, O(1) memory."""
    if not array.size:
        return
    least, most = array.min().item(), array.max().item()
    if not (low <= least and most <= high):
        yield name, f"has numbers from {least} to {most}; expected {low} to {high}"


def not_finite(name: str, array: NDArray[np.generic]) -> Issues:
    """Report values of `array` that are not finite. O(size) time and memory."""
    if not np.isfinite(array).all():
        yield name, "has numbers that are not finite"


def counters(arrays: dict[str, NDArray[np.generic]]) -> Issues:
    """Report arrays whose values are no counts of events."""
    for name, array in arrays.items():
        yield from outside(name, array, 0, MAX_COUNT)
