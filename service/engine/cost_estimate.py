"""Estimates the time to learn events from the configuration, before any measurement.

An algorithm gives its own cost of an event (`TRAITS.cost`); this module adds the stages around it. The estimate is for
one core of a current server and good to a factor of about three. That is enough to decide whether work needs a thread,
and how many events take a fifth of a second. No result depends on it.
"""

from __future__ import annotations

from collections.abc import Hashable

from learners import Config
from learners.algorithms import Size, registry
from learners.features import kernel_approximation

__all__ = ["event_nanoseconds", "kernel_key"]

_STAGES = 1_000.0  # ids, calibration, threshold and metrics of an event
_NUMBER, _NON_ZERO = 1.5, 10.0  # to map a number of a dense or a sparse row to its column, and to scale it


def event_nanoseconds(config: Config, columns: int, values: float) -> float:
    """Estimate the time of an event with `values` numbers (columns of dense rows, non-zeros of sparse ones).

    `columns`: of the learner; for sparse rows, those that it has seen.
    """
    size = Size(columns, values, config.features.sparse)
    total = _STAGES + size.each(_NUMBER, _NON_ZERO)
    if config.embedding.kind != "none":
        parts = config.embedding.components
        total += kernel_approximation.nanoseconds(config.embedding, columns)
        size = Size(parts, parts, sparse=False)
    return total + registry.algorithms()[config.algorithm].TRAITS.cost.nanoseconds(config.params, size)


def kernel_key(config: Config) -> Hashable:
    """Return a key that is equal for learners that run the same compiled code."""
    return (
        config.algorithm,
        getattr(config.params, "members", None),
        config.precision,
        config.features.KIND,
        config.scaling.kind,
        config.embedding.kind,
        None if config.calibration is None else config.calibration.kind,
        None if config.threshold is None else config.threshold.objective,
    )
