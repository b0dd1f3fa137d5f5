"""Checks of the values of a restored state: no kernel must read out of bounds, divide by 0, or score everything NaN.

Names, dtypes and shapes are checked before, elsewhere. Here each stage checks its own arrays. Those of an algorithm are
checked by its `problems`, and by three rules: floats are finite, signed integers are counts or indices from 0 to
`MAX_COUNT`, unsigned integers are random state and may have any value. Last, `metrics/consistency.py` checks that the
parts belong to one stream.
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
    """Check that a stream of events can have led to the values of arrays. O(state) time.

    `state` has arrays by "part.name", of the right names, dtypes and shapes: a whole state, or some parts such as those
    of a fit. Raises `InvalidInput` with a pointer to each invalid array.
    """
    groups: defaultdict[str, Arrays] = defaultdict(dict)
    for name, array in state.items():
        part, _, field = name.partition(".")
        groups[part][field] = array
    checks = _checks(config)
    details: dict[str, str] = {}
    for part, arrays in groups.items():
        for name, detail in checks[part](arrays):
            details.setdefault(f"/{part}.{name}", detail)  # the first problem of an array is enough
    if {"ids", "metrics"} <= groups.keys() and not any(name.startswith(("/ids.", "/metrics.")) for name in details):
        ranks = config.labels.ranks
        for name, detail in consistency.id_disagreements(groups["ids"], groups["metrics"], config.window, ranks):
            details.setdefault(f"/ids.{name}", detail)
    if details:
        raise InvalidInput([Problem(pointer, detail) for pointer, detail in details.items()])


def _checks(config: Config) -> dict[str, Callable[[Arrays], Issues]]:
    """Return the check of each part's arrays."""
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
