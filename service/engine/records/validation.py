"""Validates records that were read from a log: this service must be able to have written them for this learner.

A checksum finds flipped bits, but not a record that another program or a bug of ours has written. Kernels trust their
arguments: a column, label or rank out of bounds would make them access foreign memory. So the values of a record are
checked once, before the learner applies it. The library checks states, fits and changes of settings itself; this module
adds the bounds of the scaling, which follow from those of features.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learners import (
    MAX_NOTE,
    MAX_SOURCE_NAME,
    MAX_TIME,
    MAX_WEIGHT,
    MAX_WRITER,
    ComparedBatch,
    Config,
    FitResult,
    InvalidInput,
    LabelledBatch,
    LateColumns,
    Note,
    Problem,
    Rollback,
    Segment,
    ServedBatch,
    SettingsChange,
    length,
    text_fault,
)
from learners.features import LARGEST, MAX_COLUMNS, MAX_FIELDS, MAX_NAME, MAX_NONZERO, Named, Table, is_entry
from learners.numerics import Rows, Sparse
from learners.segments import MAX_SEGMENT_VALUE, UNRECORDED, SegmentColumns
from service.errors import Damaged
from service.storage import MAX_POSITION, RECORD_BYTES
from service.text import counted

__all__ = ["check_compared", "check_record", "check_scaling"]

_MAX_OFFSET = 2**54  # of a source: the API accepts 2^53, and a batch continues from there
_LATE = LateColumns.none(0)  # has the expected dtypes


def check_record(
    record: LabelledBatch | SettingsChange | FitResult | Rollback | ServedBatch | Note, config: Config, what: str
) -> None:
    """Refuse a record that no learner of this configuration can have logged. Raises `Damaged`. O(numbers)."""
    if isinstance(record, LabelledBatch):
        fault = _batch_fault(record, config)
    elif isinstance(record, ServedBatch):
        fault = _served_fault(record, config)
    elif isinstance(record, FitResult):
        fault = None if 0 <= record.dim <= max(config.features.columns, MAX_COLUMNS) else f"has {record.dim} columns"
    elif isinstance(record, Rollback):
        fault = _rollback_fault(record, config)
    elif isinstance(record, Note):
        fault = _note_fault(record)
    else:
        return
    if fault is not None:
        raise Damaged(f"{what} {fault}")


def check_scaling(config: Config, state: Mapping[str, NDArray[np.generic]]) -> None:
    """Refuse a state whose means, variances or largest values no valid features lead to. O(columns).

    `state` has arrays by "part.name", all or some of a learner's. Raises `InvalidInput` with a pointer to each wrong
    array.
    """
    most = 2 * _largest_value(config)  # because sums are rounded
    seen = state.get("scaling.seen")
    events = float(seen.max()) + 1 if seen is not None and seen.size else 1.0
    bounds = {"scaling.mean": most, "scaling.m2": events * most * most, "scaling.largest": most}
    problems = [
        Problem(f"/{name}", f"has numbers beyond {bound:g}, which no valid features lead to")
        for name, bound in bounds.items()
        if (array := state.get(name)) is not None and array.size and not bool(np.abs(array).max() <= bound)
    ]
    if problems:
        raise InvalidInput(problems)


def _rollback_fault(restored: Rollback, config: Config) -> str | None:
    """Return what is wrong with a roll-back, apart from the checks of the library."""
    if not 0 <= restored.position <= MAX_POSITION:
        return f"goes back to the impossible position {restored.position}"
    size = sum(array.nbytes for array in restored.state.values())
    if size > RECORD_BYTES:
        return f"has a state of {size} bytes; a record has at most {RECORD_BYTES}"
    try:
        check_scaling(config, restored.state)
    except InvalidInput as error:
        return f"has a state that no learner can have: {error}"
    return None


def _note_fault(note: Note) -> str | None:
    if fault := text_fault(note.text, MAX_NOTE, empty=note.alarm is not None):
        return f"has a note whose text {fault}"
    if any(name is not None and text_fault(name, MAX_WRITER) for name in (note.by, note.key)):
        return "has a note whose writer has no name"
    if not abs(note.time) <= MAX_TIME or (note.alarm is not None and not 0 <= note.alarm <= MAX_POSITION):
        return "has a note of an impossible time or alarm"
    return None


def _largest_value(config: Config) -> float:
    """Return the largest magnitude of a number in a row of features."""
    # features that share a hashed column are added up
    return LARGEST * (MAX_NONZERO if isinstance(config.features, Named) else 1)


def check_compared(record: ComparedBatch, what: str) -> None:
    """Refuse a wrong record of a group; the library checks its shapes. Raises `Damaged`. O(numbers)."""
    if not _is_column(record.labels, len(record.labels)) or not _in_range(np.abs(record.labels), 1, 1):
        raise Damaged(f"{what} has labels that are not -1 or 1")
    if record.hashes.dtype != np.uint64 or record.scores.dtype != np.float64 or record.clocks.dtype != np.float64:
        raise Damaged(f"{what} has columns of wrong types")
    if not _are_times(record.clocks):
        raise Damaged(f"{what} has times beyond {MAX_TIME:g}")


def _batch_fault(batch: LabelledBatch, config: Config) -> str | None:
    """Return what is wrong with a batch, or None."""
    n, ranks = len(batch.labels), config.labels.ranks
    if not bool(config.labels.good(batch.labels).all()) or not batch.labels.all():
        return f"has labels that are not {'-1 or 1' if ranks is None else f'ranks from 1 to {ranks}'}"
    numbers = ((batch.weights, MAX_WEIGHT, "weights"), (batch.costs, np.finfo(np.float64).max, "costs"))
    for column, most, name in numbers:
        if column is not None and not (_is_column(column, n) and _in_range(column, 0.0, most)):
            return f"has {name} that are not {n} numbers of at least 0"
    if batch.times is not None and not (_is_column(batch.times, n) and _are_times(batch.times)):
        return f"has times that are not {n} numbers of seconds"
    if batch.ids is not None and len(batch.ids) != n:
        return f"has {counted(len(batch.ids), 'id')} for {counted(n, 'event')}"
    rows = n
    if batch.late is not None:
        fault = _late_fault(batch.late, batch.ids, n, ranks)
        if fault is not None:
            return fault
        rows -= int(np.count_nonzero(batch.late.bare))
    return (
        _segments_fault(batch.segments, n)
        or _fields_fault(batch.fields, config)
        or _segment_values_fault(batch.segment_values, n)
        or _rows_fault(batch.rows, rows, config)
    )


def _late_fault(late: LateColumns, ids: tuple[str | None, ...] | None, n: int, ranks: int | None) -> str | None:
    for name, column, like in zip(LateColumns._fields, late, _LATE, strict=True):
        if column.dtype != like.dtype or column.shape != (n,):
            return f"has late labels with the column {name}, which is not {n} values of {like.dtype}"
    if ids is None or any(ids[i] is None for i in np.flatnonzero(late.bare).tolist()):
        return "has late labels without an id"
    if ranks is not None and late.assumed.any():
        return "has assumed labels, which an ordinal learner has not"
    served = late.served
    fault = _predictions_fault(late.probabilities[served], late.decisions[served], ranks)
    if fault is None and not _are_times(late.labelled):
        fault = f"has times of labels beyond {MAX_TIME:g}"
    return fault


def _segments_fault(segments: tuple[Segment, ...], n: int) -> str | None:
    end = 0
    for segment in segments:
        if not end <= segment.start < segment.stop <= n:
            return f"has a source segment {segment.start} to {segment.stop}; expected one from {end} to at most {n}"
        if not 0 <= segment.after <= segment.offset <= _MAX_OFFSET:
            return f"has a source at {segment.offset}, after {segment.after}"
        if not 0 < len(segment.name.encode()) <= 4 * MAX_SOURCE_NAME:
            return "has a source whose name is empty or too long"
        end = segment.stop
    return None


def _fields_fault(fields: tuple[str, ...], config: Config) -> str | None:
    features = config.features
    if fields and not isinstance(features, Named):
        return "has names of fields, which this learner does not remember"
    if len(fields) > MAX_FIELDS or any(len(name) > MAX_NAME for name in fields):
        return f"has more than {MAX_FIELDS} names of fields, or one of more than {MAX_NAME} characters"
    return None


def _segment_values_fault(columns: SegmentColumns | None, n: int) -> str | None:
    if columns is None:
        return None
    fields, values, codes = columns
    if not 0 < len(set(fields)) == len(fields) or any(len(name) > MAX_NAME for name in fields):
        return "has segment fields that no learner declares"
    if len(set(values)) < len(values) or not all(0 < len(value) <= MAX_SEGMENT_VALUE for value in values):
        return "has values of segments that are repeated, empty or too long"
    if codes.dtype != np.int32 or codes.shape != (n, len(fields)) or not _in_range(codes, UNRECORDED, len(values) - 1):
        return f"has values of segments that are not of {n} events"
    return None


def _rows_fault(rows: Rows, n: int, config: Config) -> str | None:
    """Return what is wrong with the rows of n events, or None."""
    features, most = config.features, _largest_value(config)
    if isinstance(rows, Sparse) != features.sparse:
        return f"has features that are not {features.KIND}"
    if not isinstance(rows, Sparse):
        wide = len(features.fields) if isinstance(features, Table) else features.columns
        if rows.dtype != np.float64 or rows.shape != (n, wide):
            return f"has features of shape {rows.shape}; expected {(n, wide)}"
        good = _are_numbers(rows, most, or_missing=isinstance(features, Table))
        return None if good else f"has features that are not numbers of at most {most:g}"
    data, indices, ends = rows.data, rows.indices, rows.indptr
    if not all(part.ndim == 1 for part in rows) or ends.dtype != np.int64 or len(indices) != len(data):
        return "has features that are not sparse rows"
    if length(rows) != n or ends[0] != 0 or ends[-1] != len(data):
        return f"has features of a number of events other than {n}"
    sizes = np.diff(ends)
    if sizes.size and not (sizes.min() >= 0 and sizes.max() <= MAX_NONZERO):
        return f"has rows whose lengths are not from 0 to {MAX_NONZERO}"
    if indices.size:
        falls = np.flatnonzero(indices[1:] <= indices[:-1]) + 1  # allowed only at the beginning of a row
        possible = (indices >= 0) & (indices < features.columns)
        if isinstance(features, Named):
            possible |= is_entry(indices, features.columns)
        if not possible.all() or not np.isin(falls, ends).all():
            return f"has columns that do not ascend from 0 to {features.columns - 1}"
    return None if _are_numbers(data, most) else f"has features that are not numbers of at most {most:g}"


def _served_fault(served: ServedBatch, config: Config) -> str | None:
    n, ranks = len(served.scores), config.labels.ranks
    if not _is_column(served.scores, n) or not _is_column(served.times, n) or not _are_times(served.times):
        return f"has scores or times that are not {n} numbers"
    if fault := _fields_fault(served.fields, config):
        return fault
    if served.hashes.dtype != np.uint64 or served.hashes.shape != (n,) or served.decisions.shape != (n,):
        return f"has ids or decisions that are not {n}"
    for column in (served.probabilities, served.thresholds):
        if (column is None) != (ranks is not None) or (column is not None and not _is_column(column, n)):
            return f"has probabilities or thresholds that are not {n}"
    return _predictions_fault(served.probabilities, served.decisions, ranks)


def _predictions_fault(probabilities: NDArray[Any] | None, decisions: NDArray[Any], ranks: int | None) -> str | None:
    """Return what is wrong with predictions, or None. Scores may be any number or NaN, because they can overflow."""
    low, high = (0, 1) if ranks is None else (1, ranks)
    if not _in_range(decisions, low, high):
        return f"has decisions that are not from {low} to {high}"
    if ranks is None and probabilities is not None and not _in_range(probabilities, 0.0, 1.0):
        return "has probabilities that are not from 0 to 1"
    return None


def _is_column(column: NDArray[Any], n: int) -> bool:
    """Tell whether a column has n float64 numbers."""
    return column.dtype == np.float64 and column.shape == (n,)


def _in_range(column: NDArray[Any], low: float, high: float) -> bool:
    """Tell whether all numbers are from `low` to `high`; NaN is not."""
    return not column.size or bool(low <= column.min() and column.max() <= high)


def _are_times(times: NDArray[Any]) -> bool:
    """Tell whether all are times or NaN."""
    return not bool((np.abs(times) > MAX_TIME).any())


def _are_numbers(values: NDArray[Any], most: float, or_missing: bool = False) -> bool:
    """Tell whether all are at most `most` in magnitude; NaN, a missing number, is allowed by `or_missing`."""
    if not or_missing:
        return _in_range(values, -most, most)
    return not bool((np.abs(values) > most).any())
