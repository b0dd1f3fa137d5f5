"""Fits: what a learner computes from many events at once.

Two things are fitted instead of learnt event by event: an embedding, once, over the events of the warm-up; and the
model of a batch algorithm, every `refit_every` events, over the retained events. The result is a record of the
learner's log (`FitResult`). So a fit may run on a thread, and may use libraries whose last bits differ between
machines. Every node and every replay still has the same state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from learners.algorithms import BatchAlgorithm, registry
from learners.config import Config
from learners.features import kernel_approximation
from learners.numerics import Rows, Sparse, Vector, stored
from learners.records import FitResult

__all__ = ["FitJob"]


@dataclass(frozen=True)
class FitJob:
    """The input of a fit: copies, so that the learner may move on meanwhile."""

    config: Config
    events: int  # learnt so far
    restores: int  # rollbacks so far: a fit from before a rollback is void after it
    rows: Rows  # scaled
    dim: int
    y: Vector
    weights: Vector

    def run(self) -> FitResult:
        """Run the fit. Raises ValueError if these events cannot be fitted."""
        config = self.config
        arrays: dict[str, NDArray[np.generic]] = {}
        rows, dim = self.rows, self.dim
        if config.embedding.kind != "none":
            assert not isinstance(rows, Sparse)
            space = kernel_approximation.fit(config.embedding, rows, config.seed, config.precision)
            arrays |= {f"embedding.{name}": array for name, array in space._asdict().items()}
            rows = kernel_approximation.look(config.embedding, space, rows)
            dim = kernel_approximation.columns(space)
        algorithm: Any = registry.algorithms()[config.algorithm]
        if config.batch:
            model = cast(BatchAlgorithm, algorithm).fit(config.params, rows, dim, self.y, self.weights, config.seed)
            model = stored(config.precision, model, algorithm.TRAITS.halved)
            arrays |= {f"algorithm.{name}": array for name, array in model._asdict().items()}
        for name, array in arrays.items():
            if not np.isfinite(array).all():
                raise ValueError(f"the fit gave numbers in {name} that are not finite")
        return FitResult(self.events, self.restores, self.dim, arrays)
