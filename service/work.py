"""How much a batch is, in memory and in work, and how long such work has taken lately; what a thread does instead."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

import numpy as np

from learners.arrays import Sparse
from learners.batch import Batch, Outcome

__all__ = ["LARGE", "Pace", "apart", "numbers_of", "size_of"]

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")

LARGE = 2**18  # bytes of a body or a record from which on a thread reads and writes it, so that others go on meanwhile


async def apart(size: int, call: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
    """What a call gives that reads or writes about so many bytes, made in a thread where these are many."""
    return await asyncio.to_thread(call, *arguments) if size >= LARGE else call(*arguments)


def size_of(batch: Batch) -> int:
    """Roughly the bytes that a batch keeps in memory."""
    arrays = [*(batch.rows if isinstance(batch.rows, tuple) else (batch.rows,)), batch.labels]
    arrays += [array for array in (batch.weights, batch.times, batch.costs) if array is not None]
    arrays += batch.late or ()
    ids = 0 if batch.ids is None else 64 * len(batch.ids) + sum(map(len, filter(None, batch.ids)))
    return ids + 512 + sum(int(array.nbytes) for array in arrays)


def numbers_of(batch: Batch) -> int:
    """How much work a batch is: its feature values, and something for each event."""
    return 8 * len(batch) + (len(batch.rows.data) if isinstance(batch.rows, Sparse) else int(batch.rows.size))


class Pace:
    """What a feature value has cost to learn lately; the dear ones are remembered for longer than the cheap ones."""

    def __init__(self) -> None:
        self._seconds = 1.0  # per value: the first batch goes to a thread
        self._notes = 0

    def seconds(self, numbers: int) -> float:
        """What so many values will probably take."""
        return self._seconds * numbers

    def note(self, numbers: int, seconds: float, outcome: Outcome) -> None:
        """Take in a measurement. Duplicates cost nothing and tell nothing."""
        events = len(outcome.status)
        learnt = numbers * int(np.count_nonzero(outcome.applied)) / events if events else 0.0
        if learnt == 0.0:
            return
        self._notes += 1
        now = seconds / learnt
        if self._notes <= 2:  # the first ones load or compile kernels: that is not what a value costs
            self._seconds = now
        else:
            self._seconds = now if now > self._seconds else 0.9 * self._seconds + 0.1 * now
