"""How long events will take to learn, estimated from what they and their learner are, before any has been measured.

An algorithm says what an event costs it (`TRAITS.cost`); the stages around it are added here. The estimate is for one
core of a server of these years and good to a factor of about three: enough to tell work for a thread from work that is
done on the spot, and how many events make a fifth of a second. It is not a promise, and no result depends on it.
"""

from __future__ import annotations

from collections.abc import Hashable

from learners import Config
from learners.algorithms import Size, registry

__all__ = ["event_nanoseconds", "kernels_of"]

_STAGES = 1_000.0  # ids, calibration, threshold and figures of an event
_NUMBER, _NON_ZERO = 1.5, 10.0  # to map a number of dense or of sparse rows to its column, and to scale it
_COMPONENT = 15.0  # an exponential or a cosine


def event_nanoseconds(config: Config, columns: int, values: float) -> float:
    """About how long an event takes that has so many numbers (dense rows: columns; sparse ones: non-zeros).

    `columns` are those that the learner has by then; of a learner of sparse rows, those that it has met.
    """
    size = Size(columns, values, config.features.sparse)
    total = _STAGES + size.each(_NUMBER, _NON_ZERO)
    if config.embedding.kind != "none":
        parts = config.embedding.components
        projected = parts if config.embedding.kind == "nystroem" else 0
        total += parts * (_COMPONENT + 0.5 * columns + 0.3 * projected)
        size = Size(parts, parts, sparse=False)
    return total + registry.algorithms()[config.algorithm].TRAITS.cost.nanoseconds(config.params, size)


def kernels_of(config: Config) -> Hashable:
    """Equal for learners that run the same compiled code, which the first of them loads or compiles."""
    return (
        config.algorithm,
        config.precision,
        config.features.KIND,
        config.scaling.kind,
        config.embedding.kind,
        None if config.calibration is None else config.calibration.kind,
        None if config.threshold is None else config.threshold.objective,
    )
