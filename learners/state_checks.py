"""Whether the values of a restored state are such as a stream of events can lead to.

Names, dtypes and shapes are checked elsewhere, and before. Here it is about what could make a kernel read or write out
of bounds, divide by a count of 0, or say NaN of everything: each stage tells of its own arrays, and of an algorithm's
hold, besides what its module says by `problems`: floats are finite, signed whole numbers are counts or places, from 0
to `MAX_COUNT`, and unsigned ones are random state, which may be anything. Then that the parts agree: `agreement.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learners.algorithms import registry
from learners.config import Config
from learners.decisions import CalibrationState, calibration, threshold
from learners.deduplication import RecentIds, Sources
from learners.features import ScalingState, Table, columns_of, retained_events, scaling
from learners.metrics import BinaryMetrics, RankMetrics, consistency
from learners.numerics import Issues, counters, not_finite
from learners.settings import InvalidInput, Problem

__all__ = ["check_values"]

Arrays = dict[str, NDArray[np.generic]]


def check_values(config: Config, state: Mapping[str, NDArray[np.generic]]) -> None:
    """Refuse arrays whose values no stream of events can have led to. O(state) time.

    `state` holds arrays by "part.name", of the right names, dtypes and shapes: the whole state of such a learner, or
    some parts of it, such as what a fit gave. Raises `InvalidInput` with a pointer to each array that is wrong.
    """
    groups: defaultdict[str, Arrays] = defaultdict(dict)
    for name, array in state.items():
        part, _, field = name.partition(".")
        groups[part][field] = array
    checks = _checks(config)
    found: dict[str, str] = {}
    for part, arrays in groups.items():
        for name, detail in checks[part](arrays):
            found.setdefault(f"/{part}.{name}", detail)  # the first thing that is wrong with an array will do
    if {"ids", "metrics"} <= groups.keys() and not any(name.startswith(("/ids.", "/metrics.")) for name in found):
        ranks = config.labels.ranks
        for name, detail in consistency.id_disagreements(groups["ids"], groups["metrics"], config.window, ranks):
            found.setdefault(f"/ids.{name}", detail)
    if found:
        raise InvalidInput([Problem(pointer, detail) for pointer, detail in found.items()])


def _checks(config: Config) -> dict[str, Callable[[Arrays], Issues]]:
    """What tells of the arrays of each part."""
    ranks = config.labels.ranks
    table = isinstance(config.features, Table)
    window = config.window, config.window_seconds
    metrics = BinaryMetrics(*window, config.figures) if ranks is None else RankMetrics(*window, ranks)
    checks: dict[str, Callable[[Arrays], Issues]] = {
        "algorithm": lambda arrays: _algorithm(config, arrays),
        "columns": columns_of(config.features).problems,
        "embedding": _finite,
        "fits": counters,
        "life": counters,
        "ids": lambda arrays: RecentIds(config.remembered_ids).problems(arrays, ranks),
        "metrics": metrics.problems,
        "retained": lambda arrays: retained_events.problems(arrays, ranks, missing=table),
        "scaling": lambda arrays: scaling.problems(_of(ScalingState, arrays)),
        "sources": Sources().problems,
    }
    if (calibrated := config.calibration) is not None:
        checks["calibration"] = lambda arrays: calibration.problems(calibrated, _of(CalibrationState, arrays))
    if (objective := config.threshold) is not None:
        checks["threshold"] = lambda arrays: threshold.problems(objective, _of(threshold.ThresholdState, arrays))
    return checks


def _of(kind: Any, arrays: Arrays) -> Any:
    return kind(**arrays)


def _finite(arrays: Arrays) -> Issues:
    for name, array in arrays.items():
        yield from not_finite(name, array)


def _algorithm(config: Config, arrays: Arrays) -> Issues:
    algorithm: Any = registry.algorithms()[config.algorithm]
    wrong = [
        *_finite({name: array for name, array in arrays.items() if array.dtype.kind == "f"}),
        *counters({name: array for name, array in arrays.items() if array.dtype.kind == "i"}),
    ]
    yield from wrong
    if not wrong and hasattr(algorithm, "problems"):
        yield from algorithm.problems(config.params, _of(algorithm.State, arrays), config.features.sparse)
