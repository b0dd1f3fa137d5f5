"""Restored states: what one of an earlier release lacks, and checks of the values.

No kernel must read out of bounds, divide by 0, or score everything NaN.

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

from learners.algorithms import registry, traits_of
from learners.config import Config
from learners.decisions import CalibrationState, calibration, threshold
from learners.deduplication import RecentIds, Sources
from learners.features import ScalingState, Table, columns_of, completed_fields, retained_events, scaling
from learners.metrics import BinaryMetrics, Journal, RankMetrics, alarm_life, consistency
from learners.numerics import Issues, counters, not_finite
from learners.segments import SegmentRing
from learners.settings import InvalidInput, Problem

__all__ = ["check_values", "completed"]

Arrays = dict[str, NDArray[np.generic]]
States = Mapping[str, NDArray[np.generic]]

# Alarms of positive labels that stop arriving: these arrays, and a third kind in the count of alarms.
_ARRIVALS = tuple(f"metrics.drift_{name}" for name in ("gaps", "gap_totals", "gap_count", "silence", "silence_limits"))
# Alarms of fields that got worse: three more kinds, then a fourth, and two more columns of an alarm.
_KINDS = "metrics.drift_by_kind"
_ALARMS = "metrics.drift_alarms"
# The life of alarms: more columns of one, whose state was not followed, and a count of changes.
_CHANGES, _LEVEL = "metrics.drift_changes", "metrics.drift_level"
# The values of segment fields.
_SEGMENTS = ("segments.codes", "segments.names")
# What people and changes of the learner left on its time line.
_JOURNAL = "life.journal"
# Thresholds that hold while no positive labels arrive.
_SILENCE = "threshold.silence"
# Thresholds that are cautious until some positive labels are known: at least those that were learnt.
_LABELS, _SEEN = "threshold.labels", "threshold.seen"


def completed(state: States, start: States) -> dict[str, NDArray[np.generic]]:
    """Return a learner's state with what one of an earlier release lacks, from the state at the `start`. O(fields)."""
    complete = dict(state)
    if _KINDS in state and state[_KINDS].shape == (2,) and not any(name in state for name in _ARRIVALS):
        complete |= {name: start[name] for name in _ARRIVALS}
    if _KINDS in state and state[_KINDS].shape in ((2,), (3,), (6,)) and _ALARMS in state:
        kinds, alarms = state[_KINDS], state[_ALARMS]
        complete[_KINDS] = np.append(kinds, start[_KINDS][len(kinds) :])
        if alarms.shape == (len(start[_ALARMS]), 5):
            complete[_ALARMS] = np.hstack([alarms, start[_ALARMS][:, 5:7]])
    columns = {name.removeprefix("columns."): array for name, array in state.items() if name.startswith("columns.")}
    complete |= {f"columns.{name}": array for name, array in completed_fields(columns).items()}
    if (
        _ALARMS in complete
        and complete[_ALARMS].shape == (alarm_life.ALARMS, alarm_life.FIELDS + 1)
        and _KINDS in complete
    ):
        total = max(int(complete[_KINDS].sum()), 0)
        complete[_ALARMS] = alarm_life.not_followed(complete[_ALARMS].astype(np.float64), total)
        complete |= {_CHANGES: np.array([total], dtype=np.int64), _LEVEL: start[_LEVEL]}
    if _JOURNAL not in state:
        complete[_JOURNAL] = start[_JOURNAL]
    if not any(name in state for name in _SEGMENTS):
        complete |= {"segments.codes": np.zeros((0, 0), np.uint8), "segments.names": np.zeros(0, np.uint8)}
    if _SILENCE in start and _SILENCE not in state:
        complete[_SILENCE] = start[_SILENCE]
    if _SEEN in state and _LABELS not in state:
        complete[_LABELS] = state[_SEEN]
    return complete


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
    if {"columns", "metrics"} <= groups.keys() and "/metrics.drift_alarms" not in details:
        fields = len(groups["columns"].get("field_lengths", ()))
        places, counts = groups["metrics"]["drift_alarms"][:, 5:7].astype(np.int64).T
        if ((counts > 0) & (places >= fields)).any():
            details["/metrics.drift_alarms"] = f"refers to a field that is not among the {fields} registered"
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
        "life": _life,
        "ids": lambda arrays: RecentIds(config.remembered_ids).problems(arrays, ranks),
        "metrics": metrics.problems,
        "retained": lambda arrays: retained_events.problems(arrays, ranks, missing=table),
        "scaling": lambda arrays: scaling.problems(_of(ScalingState, arrays)),
        "segments": SegmentRing.problems,
        "sources": Sources().problems,
    }
    if (calibrated := config.calibration) is not None:
        checks["calibration"] = lambda arrays: calibration.problems(calibrated, _of(CalibrationState, arrays))
    if (objective := config.threshold) is not None:
        checks["threshold"] = lambda arrays: threshold.problems(objective, _of(threshold.ThresholdState, arrays))
    return checks


def _of(kind: Any, arrays: Arrays) -> Any:
    return kind(**arrays)


def _life(arrays: Arrays) -> Issues:
    yield from counters({"rollbacks": arrays["rollbacks"]})
    yield from Journal.problems(arrays["journal"])


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
    if wrong:
        return
    params, sparse = config.params, config.features.sparse
    if arrays.keys() == set(traits_of(algorithm, params).fitted):
        yield from algorithm.fit_problems(params, arrays, sparse)
    elif hasattr(algorithm, "problems"):
        yield from algorithm.problems(params, _of(type(algorithm.init(params, 0, config.seed)), arrays), sparse)
