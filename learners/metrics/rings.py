"""Rings whose length follows from the number of events that entered them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["lengthen", "ring_capacity"]

_LEAST = 64  # slots at the start


def ring_capacity(count: int, size: int) -> int:
    """Return the slots of a ring that `count` events entered: a power of two from 64, but at most `size`."""
    return min(size, max(_LEAST, 1 << max(count - 1, 0).bit_length()))


def lengthen(ring: NDArray[Any], slots: int) -> NDArray[Any]:
    """Copy a ring into a longer one of so many slots, (slots, ...); the new slots are 0."""
    longer = np.zeros((slots, *ring.shape[1:]), dtype=ring.dtype)
    longer[: len(ring)] = ring
    return longer
