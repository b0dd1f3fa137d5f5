"""How much a batch is, in memory and in work, and how long such work will take; what a thread does instead."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import ClassVar, TypeVar, TypeVarTuple

import numpy as np

from learners import BatchOutcome, Config, LabelledBatch, warm_metrics
from learners.numerics import Sparse
from service.engine.cost_estimate import event_nanoseconds, kernels_of

__all__ = ["LARGE", "Pace", "numbers_of", "run_by_size", "size_of", "values_of"]

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")

_BATCH = 1e-4  # seconds that a batch takes however small it is: on such a machine as that of `effort.py`
LARGE = 2**18  # bytes of a body or a record from which on a thread reads and writes it, so that others go on meanwhile


async def run_by_size(size: int, call: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
    """What a call gives that reads or writes about so many bytes, made in a thread where these are many."""
    return await asyncio.to_thread(call, *arguments) if size >= LARGE else call(*arguments)


def size_of(batch: LabelledBatch) -> int:
    """Roughly the bytes that a batch keeps in memory."""
    arrays = [*(batch.rows if isinstance(batch.rows, tuple) else (batch.rows,)), batch.labels]
    arrays += [array for array in (batch.weights, batch.times, batch.costs) if array is not None]
    arrays += batch.late or ()
    ids = 0 if batch.ids is None else 64 * len(batch.ids) + sum(map(len, filter(None, batch.ids)))
    return ids + 512 + sum(int(array.nbytes) for array in arrays)


def values_of(batch: LabelledBatch) -> int:
    """A batch's feature values."""
    return len(batch.rows.data) if isinstance(batch.rows, Sparse) else int(batch.rows.size)


def numbers_of(batch: LabelledBatch) -> int:
    """How much work a batch is: its feature values, and something for each event."""
    return 8 * len(batch) + values_of(batch)


class _Factor:
    """How many times as long batches take as is estimated.

    Dear measurements are remembered for longer than cheap ones, but one alone is chance: the machine was busy, or a row
    of the history was due.
    """

    def __init__(self) -> None:
        self.value = 1.0
        self.notes = 0
        self._last = 1.0  # by the last measurement alone

    def note(self, now: float) -> None:
        """Take in a measurement."""
        self.notes += 1
        if self.notes <= 2:  # the first ones load or compile kernels: that is not what learning costs
            self.value = now
        else:
            lasting = min(now, self._last)
            self.value = lasting if lasting > self.value else 0.9 * self.value + 0.1 * lasting
        self._last = now


class Pace:
    """What a batch costs to learn: something however small it is, and something for each event, as `effort.py` has it.

    Measurements then say how many times that it takes here: small batches for small ones, where the batch counts, large
    ones for large ones, where its events do.
    """

    _loaded: ClassVar[set[Hashable]] = set()  # kernels that have run in this process

    def __init__(self, config: Config) -> None:
        """Of a learner with this configuration, of which nothing has been measured."""
        self._config = config
        self._kernels = kernels_of(config)
        kinds = config.calibration and config.calibration.kind, config.threshold and config.threshold.objective
        self._figures = ("figures", config.labels.ranks is None, *kinds)
        self._event = None if config.features.sparse else self._each(config.features.columns, config.features.columns)
        self._small, self._large = _Factor(), _Factor()

    @property
    def loaded(self) -> bool:
        """Whether what the learner runs has run in this process before, and so need not be compiled, for seconds."""
        return self._small.notes + self._large.notes > 0 or self._kernels in self._loaded

    @property
    def figures_loaded(self) -> bool:
        """The same of what the learner runs beside its model."""
        return self._figures in self._loaded

    def load_figures(self) -> None:
        """See `warm_metrics`; for a thread."""
        warm_metrics(self._config)
        self._loaded.add(self._figures)

    def seconds(self, batch: LabelledBatch, columns: int) -> float:
        """What a batch will probably take, of a learner that has met so many columns."""
        estimated = self._estimated(batch, columns, len(batch))
        return self._factor(estimated).value * estimated

    def note(self, batch: LabelledBatch, columns: int, seconds: float, outcome: BatchOutcome) -> None:
        """Take in a measurement. Duplicates cost nothing and tell nothing."""
        learnt = int(np.count_nonzero(outcome.applied))
        if not learnt:
            return
        self._loaded.add(self._kernels)
        estimated = self._estimated(batch, columns, learnt)
        (self._small if estimated < 2 * _BATCH else self._large).note(seconds / estimated)

    def _factor(self, estimated: float) -> _Factor:
        """That of such batches; of the others, while there was none of them."""
        these, others = (self._small, self._large) if estimated < 2 * _BATCH else (self._large, self._small)
        return these if these.notes or not others.notes else others

    def _estimated(self, batch: LabelledBatch, columns: int, events: int) -> float:
        """The seconds that so many of a batch's events take."""
        if not events:
            return 0.0
        each = self._event
        if each is None:
            values = values_of(batch)
            most = min(self._config.features.columns, columns + values)  # each value may be the first of its column
            each = self._each(most, values / len(batch))
        return _BATCH + events * each

    def _each(self, columns: int, values: float) -> float:
        """The seconds of an event."""
        return 1e-9 * event_nanoseconds(self._config, columns, values)
