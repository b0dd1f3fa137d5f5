"""Whether a record that was read from a log is such as this service can have written, for a learner of its kind.

A checksum tells of bits that have fallen over, not of what another program, or a fault of ours, has put into the log.
Kernels trust what they are given: a column, a label or a rank out of its bounds would have them read and write where
nothing is theirs. So a record's values are looked at once when it is read, before the learner moves. States and fits
are checked by the library as they are applied, and so are changes of settings; only what features are scaled by is
looked at here, by how large features may be.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learners import (
    MAX_SOURCE_NAME,
    MAX_TIME,
    MAX_WEIGHT,
    ComparedBatch,
    Config,
    FitResult,
    InvalidInput,
    LabelledBatch,
    LateColumns,
    Problem,
    Rollback,
    Segment,
    ServedBatch,
    SettingsChange,
    length,
)
from learners.features import LARGEST, MAX_COLUMNS, MAX_NONZERO, Named, Table
from learners.numerics import Rows, Sparse
from service.errors import Damaged
from service.storage import MAX_POSITION, RECORD_BYTES

__all__ = ["check_compared", "check_record", "check_scaling"]

_MAX_OFFSET = 2**54  # of a source: the edge takes 2^53, and a batch goes on from there
_LATE = LateColumns.none(0)  # of the dtypes that there are


def check_record(
    record: LabelledBatch | SettingsChange | FitResult | Rollback | ServedBatch, config: Config, what: str
) -> None:
    """Refuse what no learner of this configuration has ever logged. Raises `Damaged`. O(numbers)."""
    if isinstance(record, LabelledBatch):
        fault = _of_batch(record, config)
    elif isinstance(record, ServedBatch):
        fault = _of_served(record, config)
    elif isinstance(record, FitResult):
        fault = None if 0 <= record.dim <= max(config.features.columns, MAX_COLUMNS) else f"has {record.dim} columns"
    elif isinstance(record, Rollback):
        fault = _of_restored(record, config)
    else:
        return
    if fault is not None:
        raise Damaged(f"{what} {fault}")


def check_scaling(config: Config, state: Mapping[str, NDArray[np.generic]]) -> None:
    """Refuse a state by whose means, variances or largest values no feature that is taken can be scaled to a number.

    `state` holds arrays by "part.name", all or some of a learner's. Raises `InvalidInput` with a pointer to each array
    that is wrong. O(columns).
    """
    most = 2 * _most(config)  # sums are rounded
    met = state.get("scaling.seen")
    events = float(met.max()) + 1 if met is not None and met.size else 1.0
    bounds = {"scaling.mean": most, "scaling.m2": events * most * most, "scaling.largest": most}
    problems = [
        Problem(f"/{name}", f"has numbers beyond {bound:g}, which no features that are taken lead to")
        for name, bound in bounds.items()
        if (array := state.get(name)) is not None and array.size and not bool(np.abs(array).max() <= bound)
    ]
    if problems:
        raise InvalidInput(problems)


def _of_restored(restored: Rollback, config: Config) -> str | None:
    """What is wrong with a roll-back, if anything that the library does not look at."""
    if not 0 <= restored.position <= MAX_POSITION:
        return f"goes back to {restored.position}, which is no position"
    size = sum(array.nbytes for array in restored.state.values())
    if size > RECORD_BYTES:
        return f"has a state of {size} bytes; a record has at most {RECORD_BYTES}"
    try:
        check_scaling(config, restored.state)
    except InvalidInput as error:
        return f"has a state that no learner can have: {error}"
    return None


def _most(config: Config) -> float:
    """The largest magnitude of a number in a row of features."""
    # what falls on one hashed column is added up
    return LARGEST * (MAX_NONZERO if isinstance(config.features, Named) else 1)


def check_compared(record: ComparedBatch, what: str) -> None:
    """The same of a group's record, whose shapes the library checks. Raises `Damaged`. O(numbers)."""
    if not _column(record.labels, len(record.labels)) or not _within(np.abs(record.labels), 1, 1):
        raise Damaged(f"{what} has labels that are not -1 or 1")
    if record.hashes.dtype != np.uint64 or record.scores.dtype != np.float64 or record.clocks.dtype != np.float64:
        raise Damaged(f"{what} has columns of other numbers")
    if not _seconds(record.clocks):
        raise Damaged(f"{what} has times beyond {MAX_TIME:g}")


def _of_batch(batch: LabelledBatch, config: Config) -> str | None:
    """What is wrong with a batch, if anything."""
    n, ranks = len(batch.labels), config.labels.ranks
    if not bool(config.labels.good(batch.labels).all()) or not batch.labels.all():
        return f"has labels that are not {'-1 or 1' if ranks is None else f'ranks from 1 to {ranks}'}"
    numbers = ((batch.weights, MAX_WEIGHT, "weights"), (batch.costs, np.finfo(np.float64).max, "costs"))
    for column, most, name in numbers:
        if column is not None and not (_column(column, n) and _within(column, 0.0, most)):
            return f"has other {name} than {n} numbers of at least 0"
    if batch.times is not None and not (_column(batch.times, n) and _seconds(batch.times)):
        return f"has other times than {n} numbers of seconds"
    if batch.ids is not None and len(batch.ids) != n:
        return f"has {len(batch.ids)} ids for {n} events"
    rows = n
    if batch.late is not None:
        fault = _of_late(batch.late, batch.ids, n, ranks)
        if fault is not None:
            return fault
        rows -= int(np.count_nonzero(batch.late.bare))
    return _of_segments(batch.segments, n) or _of_rows(batch.rows, rows, config)


def _of_late(late: LateColumns, ids: tuple[str | None, ...] | None, n: int, ranks: int | None) -> str | None:
    for name, column, like in zip(LateColumns._fields, late, _LATE, strict=True):
        if column.dtype != like.dtype or column.shape != (n,):
            return f"has late labels whose {name} are not {n} of {like.dtype}"
    if ids is None or any(ids[i] is None for i in np.flatnonzero(late.bare).tolist()):
        return "has late labels without an id"
    if ranks is not None and late.assumed.any():
        return "has ranks that nobody has given"
    said = late.served
    fault = _of_said(late.probabilities[said], late.decisions[said], ranks)
    if fault is None and not _seconds(late.labelled):
        fault = "has labels of times beyond all"
    return fault


def _of_segments(segments: tuple[Segment, ...], n: int) -> str | None:
    end = 0
    for one in segments:
        if not end <= one.start < one.stop <= n:
            return f"has events {one.start} to {one.stop} of a source, of {n} events, behind {end}"
        if not 0 <= one.after <= one.offset <= _MAX_OFFSET:
            return f"has a source at {one.offset}, after {one.after}"
        if not 0 < len(one.name.encode()) <= 4 * MAX_SOURCE_NAME:
            return "has a source without a name, or with too long a one"
        end = one.stop
    return None


def _of_rows(rows: Rows, n: int, config: Config) -> str | None:
    """What is wrong with the rows of n events, if anything."""
    features, most = config.features, _most(config)
    if isinstance(rows, Sparse) != features.sparse:
        return f"has other features than {features.KIND} ones"
    if not isinstance(rows, Sparse):
        wide = len(features.fields) if isinstance(features, Table) else features.columns
        if rows.dtype != np.float64 or rows.shape != (n, wide):
            return f"has features of shape {rows.shape}; expected {(n, wide)}"
        good = _numbers(rows, most, or_missing=isinstance(features, Table))
        return None if good else f"has features that are not numbers of at most {most:g}"
    data, indices, ends = rows.data, rows.indices, rows.indptr
    if not all(part.ndim == 1 for part in rows) or ends.dtype != np.int64 or len(indices) != len(data):
        return "has features that are no sparse rows"
    if length(rows) != n or ends[0] != 0 or ends[-1] != len(data):
        return f"has features of other events than {n}"
    sizes = np.diff(ends)
    if sizes.size and not (sizes.min() >= 0 and sizes.max() <= MAX_NONZERO):
        return f"has rows of other lengths than 0 to {MAX_NONZERO}"
    if indices.size:
        falls = np.flatnonzero(indices[1:] <= indices[:-1]) + 1  # only where a row begins
        if not (indices.min() >= 0 and indices.max() < features.columns) or not np.isin(falls, ends).all():
            return f"has columns that do not ascend from 0 to {features.columns - 1}"
    return None if _numbers(data, most) else f"has features that are not numbers of at most {most:g}"


def _of_served(served: ServedBatch, config: Config) -> str | None:
    n, ranks = len(served.scores), config.labels.ranks
    if not _column(served.scores, n) or not _column(served.times, n) or not _seconds(served.times):
        return f"has other times than {n} numbers of seconds"
    if served.hashes.dtype != np.uint64 or served.hashes.shape != (n,) or served.decisions.shape != (n,):
        return f"has other ids or decisions than {n}"
    for column in (served.probabilities, served.thresholds):
        if (column is None) != (ranks is not None) or (column is not None and not _column(column, n)):
            return f"has other probabilities and thresholds than {n}"
    return _of_said(served.probabilities, served.decisions, ranks)


def _of_said(probabilities: NDArray[Any] | None, decisions: NDArray[Any], ranks: int | None) -> str | None:
    """What is wrong with what was said of events, if anything. A score may be anything, NaN too: it can overflow."""
    low, high = (0, 1) if ranks is None else (1, ranks)
    if not _within(decisions, low, high):
        return f"has decisions that are not from {low} to {high}"
    if ranks is None and probabilities is not None and not _within(probabilities, 0.0, 1.0):
        return "has probabilities that are not from 0 to 1"
    return None


def _column(column: NDArray[Any], n: int) -> bool:
    """Whether this is n numbers."""
    return column.dtype == np.float64 and column.shape == (n,)


def _within(column: NDArray[Any], low: float, high: float) -> bool:
    """Whether all numbers are from `low` to `high`; NaN is not."""
    return not column.size or bool(low <= column.min() and column.max() <= high)


def _seconds(times: NDArray[Any]) -> bool:
    """Whether all are times, or NaN."""
    return not bool((np.abs(times) > MAX_TIME).any())


def _numbers(values: NDArray[Any], most: float, or_missing: bool = False) -> bool:
    """Whether all are at most `most` in magnitude; NaN, which stands for what is missing, may be."""
    if not or_missing:
        return _within(values, -most, most)
    return not bool((np.abs(values) > most).any())
