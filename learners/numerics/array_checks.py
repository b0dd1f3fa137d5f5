"""What the arrays of a restored state are asked: whether their values are within what a stream of events can lead to.

Kernels trust a state: they use its numbers as indices and divide by its counts. So before a state that came from
elsewhere is taken, each part of the learner that has such arrays says what is wrong with them; see `soundness.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

__all__ = ["MAX_COUNT", "Issues", "counters", "not_finite", "outside"]

Issues = Iterator[tuple[str, str]]  # the name of an array, and what is wrong with it

MAX_COUNT = 2**53  # of events: beyond any stream, and sums and doublings of counts are far from the end of int64


def outside(name: str, array: NDArray[np.generic], low: float, high: float) -> Issues:
    """Whether all of `array` is from `low` to `high`, both allowed; NaN is not. O(size) time, O(1) memory."""
    if not array.size:
        return
    least, most = array.min().item(), array.max().item()
    if not (low <= least and most <= high):
        yield name, f"has numbers from {least} to {most}; expected {low} to {high}"


def not_finite(name: str, array: NDArray[np.generic]) -> Issues:
    """Whether all of `array` is finite. O(size) time and memory."""
    if not np.isfinite(array).all():
        yield name, "has numbers that are not finite"


def counters(arrays: dict[str, NDArray[np.generic]]) -> Issues:
    """Whether all of these arrays by name hold counts of events."""
    for name, array in arrays.items():
        yield from outside(name, array, 0, MAX_COUNT)
