"""The memory and the work of a batch, the estimated time of that work, and when to run it in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import ClassVar, TypeVar, TypeVarTuple

import numpy as np

from learners import BatchOutcome, Config, LabelledBatch, warm_metrics
from learners.numerics import Sparse
from service.engine.cost_estimate import event_nanoseconds, kernel_key

__all__ = ["LARGE", "LARGE_WINDOW", "BatchCost", "memory_bytes", "run_by_size", "value_count", "work_units"]

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")

_BATCH = 1e-4  # seconds per batch, whatever its size, on the machine of `cost_estimate.py`
LARGE = 2**18  # bytes of a body or a record from which on a thread reads and writes it, to keep the event loop free

LARGE_WINDOW = 200_000  # events of a window that a thread reads: it takes more than a millisecond or two


async def run_by_size(size: int, call: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
    """Run a call that reads or writes about `size` bytes: in a thread if they are many."""
    return await asyncio.to_thread(call, *arguments) if size >= LARGE else call(*arguments)


def memory_bytes(batch: LabelledBatch) -> int:
    """Return about how many bytes a batch takes in memory."""
    arrays = [*(batch.rows if isinstance(batch.rows, tuple) else (batch.rows,)), batch.labels]
    arrays += [array for array in (batch.weights, batch.times, batch.costs) if array is not None]
    arrays += batch.late or ()
    ids = 0 if batch.ids is None else 64 * len(batch.ids) + sum(map(len, filter(None, batch.ids)))
    return ids + 512 + sum(int(array.nbytes) for array in arrays)


def value_count(batch: LabelledBatch) -> int:
    """Return the number of feature values of a batch."""
    return len(batch.rows.data) if isinstance(batch.rows, Sparse) else int(batch.rows.size)


def work_units(batch: LabelledBatch) -> int:
    """Return the work of a batch: its feature values plus a constant per event."""
    return 8 * len(batch) + value_count(batch)


class _Factor:
    """The measured time of batches relative to the estimate.

    A slow measurement counts for longer than a fast one, but only if a second one confirms it. A single one may be
    chance: the machine was busy, or a row of the history was due.
    """

    def __init__(self) -> None:
        self.value = 1.0
        self.notes = 0
        self._last = 1.0  # by the last measurement alone

    def note(self, now: float) -> None:
        """Record a measurement."""
        self.notes += 1
        if self.notes <= 2:  # the first ones load or compile kernels, which is not the cost of learning
            self.value = now
        else:
            lasting = min(now, self._last)
            self.value = lasting if lasting > self.value else 0.9 * self.value + 0.1 * lasting
        self._last = now


class BatchCost:
    """The time to learn a batch: a constant plus a time per event, from `cost_estimate.py`.

    Measurements give the factor of this machine. Small batches, where the constant dominates, and large ones, where
    the events do, have separate factors.
    """

    _loaded: ClassVar[set[Hashable]] = set()  # kernels that have run in this process

    def __init__(self, config: Config) -> None:
        """Begin for a configuration without any measurement."""
        self._config = config
        self._kernels = kernel_key(config)
        kinds = config.calibration and config.calibration.kind, config.threshold and config.threshold.objective
        self._metrics = ("figures", config.labels.ranks is None, *kinds)
        self._event = None if config.features.sparse else self._each(config.features.columns, config.features.columns)
        self._small, self._large = _Factor(), _Factor()

    @property
    def loaded(self) -> bool:
        """Whether this process has run the learner's kernels before, so that none has to be compiled for seconds."""
        return self._small.notes + self._large.notes > 0 or self._kernels in self._loaded

    @property
    def metrics_loaded(self) -> bool:
        """Whether this process has run the kernels of the learner's metrics before."""
        return self._metrics in self._loaded

    def load_metrics(self) -> None:
        """Load the kernels of the learner's metrics; for a thread."""
        warm_metrics(self._config)
        self._loaded.add(self._metrics)

    def seconds(self, batch: LabelledBatch, columns: int) -> float:
        """Estimate the seconds to learn a batch, for a learner with so many columns."""
        estimated = self._estimated(batch, columns, len(batch))
        return self._factor(estimated).value * estimated

    def note(self, batch: LabelledBatch, columns: int, seconds: float, outcome: BatchOutcome) -> None:
        """Record a measurement. Duplicates cost no time, so they do not count."""
        learnt = int(np.count_nonzero(outcome.applied))
        if not learnt:
            return
        self._loaded.add(self._kernels)
        estimated = self._estimated(batch, columns, learnt)
        (self._small if estimated < 2 * _BATCH else self._large).note(seconds / estimated)

    def _factor(self, estimated: float) -> _Factor:
        """Return the factor of batches of this size, or that of the others if only those were measured."""
        samples, others = (self._small, self._large) if estimated < 2 * _BATCH else (self._large, self._small)
        return samples if samples.notes or not others.notes else others

    def _estimated(self, batch: LabelledBatch, columns: int, events: int) -> float:
        """Return the estimated seconds for so many events of a batch."""
        if not events:
            return 0.0
        each = self._event
        if each is None:
            values = value_count(batch)
            most = min(self._config.features.columns, columns + values)  # each value may add a column
            each = self._each(most, values / len(batch))
        return _BATCH + events * each

    def _each(self, columns: int, values: float) -> float:
        """Return the estimated seconds of an event."""
        return 1e-9 * event_nanoseconds(self._config, columns, values)
