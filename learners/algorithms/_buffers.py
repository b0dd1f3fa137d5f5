"""Class buffers: which stored example of a class a newcomer replaces.

Pairwise algorithms keep `capacity` examples of each class. FIFO keeps the last ones, so it follows a drift; a reservoir
keeps a uniform sample of all that came (Vitter, Random Sampling with a Reservoir, ACM TOMS 1985, Algorithm R). Both
fill the slots 0, 1, ... in order first, so the filled slots are always the first `filled(count, capacity)`.
"""

from __future__ import annotations

import numpy as np

from learners.numerics import kernel, next_random

__all__ = ["filled", "slot"]


@kernel
def slot(count, capacity, fifo, rng):  # type: ignore[no-untyped-def]
    """The slot for the newest of `count` examples of its class (itself included), or -1: it is not kept.

    A full reservoir draws one number from `rng` (1,) uint64 per call; otherwise `rng` is left alone. O(1).
    """
    if fifo or count <= capacity:
        return (count - 1) % capacity
    drawn = np.int64(next_random(rng) % np.uint64(count))
    return drawn if drawn < capacity else -1


@kernel
def filled(count, capacity):  # type: ignore[no-untyped-def]
    """How many slots hold an example once `count` examples of the class have come."""
    return min(count, capacity)
