"""Records of a learner's log, with events as columns, and the outcomes that `Learner.apply` returns."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from learners.numerics import Counts, Floats, Rows, Sparse, Vector, Words
from learners.segments import SegmentColumns, join_segment_columns

__all__ = [
    "BatchOutcome",
    "FitResult",
    "LabelledBatch",
    "LateColumns",
    "Note",
    "Rollback",
    "Segment",
    "ServedBatch",
    "SettingsChange",
    "Status",
    "join_batches",
    "join_outcomes",
    "merge_batches",
    "scatter_rows",
    "select_rows",
    "slice_rows",
]


class Status(IntEnum):
    """The outcome of an event."""

    APPLIED = 0
    DUPLICATE = 1  # its id was learnt with this label, or its offset in the source was learnt
    BEYOND = 2  # it is beyond a gap in its source
    RELABELLED = 3  # its id was learnt with another label
    UNKNOWN = 4  # a label without features, for an id that is neither remembered nor learnt


class Segment(NamedTuple):
    """Events `start` to `stop` of a batch have offsets `offset`, `offset + 1`, ... in the source `name`.

    The source has no offsets from `after` to `offset - 1`.
    """

    start: int
    stop: int
    name: str
    offset: int
    after: int

    @classmethod
    def of(cls, start: int, name: str, numbers: Sequence[int], after: int | None = None) -> tuple[Segment, ...]:
        """Cut events `start`, `start + 1`, ... with ascending offsets `numbers` into segments; the rest do not exist.

        Offsets from `after` to the first one do not exist either. O(n).
        """
        segments: list[Segment] = []
        first = 0
        for i in range(1, len(numbers) + 1):
            if i == len(numbers) or numbers[i] != numbers[i - 1] + 1:
                offset = numbers[first]
                segments.append(cls(start + first, start + i, name, offset, offset if after is None else after))
                first, after = i, numbers[i - 1] + 1
        return tuple(segments)


class LateColumns(NamedTuple):
    """Columns for the late labels of a batch, n entries each; False, 0 or NaN for other events."""

    served: NDArray[np.bool_]  # the event was served before: it has the features and predictions from then
    bare: NDArray[np.bool_]  # only the id is known: it has no row
    assumed: NDArray[np.bool_]  # its label expired: it counts as negative
    scores: Vector
    probabilities: Vector
    thresholds: Vector
    decisions: Counts
    labelled: Vector  # time of the label in seconds since the epoch, NaN if unknown

    def part(self, start: int, stop: int) -> LateColumns:
        """Return neighbouring events, as views."""
        return LateColumns._make(column[start:stop] for column in self)

    @classmethod
    def none(cls, n: int) -> LateColumns:
        """Return the columns of n events with features and label."""
        no, unknown = np.zeros(n, dtype=np.bool_), np.full(n, np.nan)
        return cls(
            no, no.copy(), no.copy(), unknown, unknown.copy(), unknown.copy(), np.zeros(n, np.int64), unknown.copy()
        )


@dataclass(frozen=True)
class LabelledBatch:
    """n labelled events, encoded (see `learners.features`) but neither scaled nor mapped to a learner's columns."""

    rows: Rows  # (n, k), without the rows of `late.bare` events
    labels: Vector  # (n,) -1 or +1, or a rank from 1
    weights: Vector | None = None  # (n,) at least 0; None: all 1
    times: Vector | None = None  # (n,) seconds since the epoch, NaN if unknown
    ids: tuple[str | None, ...] | None = None  # n of them
    segments: tuple[Segment, ...] = ()  # ascending, disjoint
    costs: Vector | None = None  # (n,) at least 0: cost of a miss, in the threshold's units; None: 1
    late: LateColumns | None = None  # None: no late labels
    fields: tuple[str, ...] = ()  # names of fields that the learner may not remember yet, by first appearance
    segment_values: SegmentColumns | None = None  # None: no segment fields

    def __len__(self) -> int:
        return len(self.labels)

    def rows_of(self, start: int, stop: int) -> Rows:
        """Return the rows of events from `start` to `stop`, as views; `late.bare` events have none."""
        if self.late is not None:
            has = ~self.late.bare
            start, stop = int(np.count_nonzero(has[:start])), int(np.count_nonzero(has[:stop]))
        return slice_rows(self.rows, start, stop)

    def rows_at(self, mask: NDArray[np.bool_]) -> Rows:
        """Return the rows of the events in `mask` (n,), which must all have one."""
        return select_rows(self.rows, mask if self.late is None else mask[~self.late.bare])

    def part(self, start: int, stop: int) -> LabelledBatch:
        """Return neighbouring events, as views. Learning all parts in turn equals learning the whole."""
        if start == 0 and stop >= len(self):
            return self
        cut = slice(start, stop)
        return LabelledBatch(
            self.rows_of(start, stop),
            self.labels[cut],
            None if self.weights is None else self.weights[cut],
            None if self.times is None else self.times[cut],
            None if self.ids is None else self.ids[cut],
            tuple(
                Segment(
                    max(segment.start, start) - start,
                    min(segment.stop, stop) - start,
                    segment.name,
                    segment.offset + late,
                    segment.offset + late if late else segment.after,
                )
                for segment in self.segments
                if segment.start < stop and segment.stop > start
                for late in [max(0, start - segment.start)]
            ),
            None if self.costs is None else self.costs[cut],
            None if self.late is None else self.late.part(start, stop),
            self.fields,
            None if self.segment_values is None else self.segment_values.of(cut),
        )


@dataclass(frozen=True)
class ServedBatch:
    """The record of n events that were scored and decided, and wait for their labels; n entries each."""

    hashes: Words  # of their ids
    times: Vector  # seconds since the epoch
    scores: Vector
    decisions: Counts  # 0 or 1, or a rank from 1
    probabilities: Vector | None = None  # None: an ordinal learner has none
    thresholds: Vector | None = None
    ready: bool = True  # whether the scores meant anything by then
    fields: tuple[str, ...] = ()  # as of a `LabelledBatch`

    def __len__(self) -> int:
        return len(self.scores)


@dataclass(frozen=True)
class SettingsChange:
    """The record of changed settings: the parts that change, as JSON."""

    parts: dict[str, Any]


@dataclass(frozen=True)
class Rollback:
    """The record of a rollback: the whole state to return to."""

    position: int  # of the state
    state: dict[str, NDArray[np.generic]]
    parts: dict[str, Any] | None = None  # changeable settings at that position; None: the present ones


@dataclass(frozen=True)
class Note:
    """The record of what a person notes: about this moment, or of an alarm, which it acknowledges."""

    text: str  # at most `MAX_NOTE` characters; of an alarm it may be empty
    time: float  # seconds since the epoch
    by: str | None = None  # what the person calls themselves
    key: str | None = None  # id of their key
    alarm: int | None = None  # number


@dataclass(frozen=True)
class FitResult:
    """The record of a fit: the fitted arrays, so that every node has the same bits."""

    events: int  # events learnt when the fit took its data
    restores: int  # rollbacks before it
    dim: int  # columns at that time
    arrays: dict[str, NDArray[np.generic]]  # by part and name, like a state's


_APPLIED, _BEYOND = int(Status.APPLIED), int(Status.BEYOND)  # NumPy compares with an enum's member far more slowly


@dataclass(frozen=True)
class BatchOutcome:
    """The outcomes of a batch's n events, n entries each; NaN and 0 for events without a prediction."""

    status: NDArray[np.int8]  # a `Status`
    scores: Vector  # like the other predictions: from before the event was learnt, or from when it was served
    decisions: Counts  # 1 for an alert, else 0; or a rank
    probabilities: Vector | None = None  # None: an ordinal learner has none
    thresholds: Vector | None = None

    @property
    def applied(self) -> NDArray[np.bool_]:
        """Mask of the learnt events."""
        applied: NDArray[np.bool_] = self.status == _APPLIED
        return applied

    @property
    def beyond(self) -> NDArray[np.bool_]:
        """Mask of the events that were left out because they are beyond a gap in their source."""
        beyond: NDArray[np.bool_] = self.status == _BEYOND
        return beyond

    def part(self, start: int, stop: int) -> BatchOutcome:
        """Return the outcomes of neighbouring events."""
        return self.of(slice(start, stop))

    def of(self, selection: slice | NDArray[np.int64]) -> BatchOutcome:
        """Return the outcomes of some events."""
        return BatchOutcome(*(None if column is None else column[selection] for column in _columns(self)))  # type: ignore[arg-type]


def _columns(outcome: BatchOutcome) -> list[NDArray[Any] | None]:
    return [getattr(outcome, item.name) for item in fields(outcome)]


def join_outcomes(outcomes: Sequence[BatchOutcome]) -> BatchOutcome:
    """Combine the outcomes of a batch's parts."""
    if len(outcomes) == 1:
        return outcomes[0]
    columns = zip(*(_columns(outcome) for outcome in outcomes), strict=True)
    return BatchOutcome(*(None if column[0] is None else np.concatenate(column) for column in columns))  # type: ignore[arg-type]


def slice_rows(rows: Rows, start: int, stop: int) -> Rows:
    """Return the rows from `start` to `stop`, as views."""
    if not isinstance(rows, Sparse):
        return rows[start:stop]
    indptr = rows.indptr[start : stop + 1]
    inner = slice(int(indptr[0]), int(indptr[-1]))
    return Sparse(rows.data[inner], rows.indices[inner], indptr - indptr[0])


def select_rows(rows: Rows, mask: NDArray[np.bool_]) -> Rows:
    """Copy the rows in `mask`, in order."""
    if not isinstance(rows, Sparse):
        return np.ascontiguousarray(rows[mask])
    sizes = np.diff(rows.indptr)
    selected = np.repeat(mask, sizes)
    indptr = np.zeros(int(mask.sum()) + 1, dtype=np.int64)
    np.cumsum(sizes[mask], out=indptr[1:])
    return Sparse(rows.data[selected], rows.indices[selected], indptr)


def scatter_rows(parts: Sequence[tuple[Rows, NDArray[np.int64]]], n: int, like: Rows) -> Rows:
    """Build n rows from parts (rows, places), where places are the indices of a part's rows; other rows are empty.

    `like` has the kind of the result, and if dense its number of columns.
    """
    if not isinstance(like, Sparse):
        dense = np.zeros((n, like.shape[1]))
        for rows, places in parts:
            dense[places] = rows
        return dense
    sizes = np.zeros(n, dtype=np.int64)
    for rows, places in parts:
        assert isinstance(rows, Sparse)
        sizes[places] = np.diff(rows.indptr)
    indptr = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(sizes, out=indptr[1:])
    data, indices = np.empty(indptr[-1]), np.empty(indptr[-1], dtype=np.int64)
    for rows, places in parts:
        assert isinstance(rows, Sparse)
        each = np.diff(rows.indptr)
        # the place of each number: the start of its new row, plus its distance from the start of its old row
        to = np.repeat(indptr[places] - rows.indptr[:-1], each) + np.arange(len(rows.data))
        data[to], indices[to] = rows.data, rows.indices
    return Sparse(data, indices, indptr)


def _stack(parts: Sequence[Rows]) -> Rows:
    first = parts[0]
    if not isinstance(first, Sparse):
        return np.concatenate([part for part in parts if not isinstance(part, Sparse)])
    sparse = [part for part in parts if isinstance(part, Sparse)]
    sizes = np.concatenate([np.diff(part.indptr) for part in sparse])
    indptr = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=indptr[1:])
    return Sparse(
        np.concatenate([part.data for part in sparse]), np.concatenate([part.indices for part in sparse]), indptr
    )


def _column(parts: Sequence[Floats | None], sizes: Sequence[int], missing: float) -> Vector | None:
    if all(part is None for part in parts):
        return None
    filled = [np.full(size, missing) if part is None else part for part, size in zip(parts, sizes, strict=True)]
    return np.concatenate(filled)


def join_batches(batches: Sequence[LabelledBatch]) -> LabelledBatch:
    """Join batches in order. Learning the result equals learning the batches one after the other."""
    if len(batches) == 1:
        return batches[0]
    sizes = [len(batch) for batch in batches]
    starts = np.concatenate([[0], np.cumsum(sizes)]).tolist()
    ids: tuple[str | None, ...] | None = None
    if any(batch.ids is not None for batch in batches):
        ids = tuple(name for batch in batches for name in (batch.ids or (None,) * len(batch)))
    return LabelledBatch(
        rows=_stack([batch.rows for batch in batches]),
        labels=np.concatenate([batch.labels for batch in batches]),
        weights=_column([batch.weights for batch in batches], sizes, 1.0),
        times=_column([batch.times for batch in batches], sizes, np.nan),
        ids=ids,
        segments=tuple(
            part._replace(start=start + part.start, stop=start + part.stop)
            for start, batch in zip(starts, batches, strict=False)
            for part in batch.segments
        ),
        costs=_column([batch.costs for batch in batches], sizes, 1.0),
        late=_late(batches),
        fields=tuple(dict.fromkeys(name for batch in batches for name in batch.fields)),
        segment_values=join_segment_columns([batch.segment_values for batch in batches], sizes),
    )


def merge_batches(
    batch: LabelledBatch, others: LabelledBatch, places: NDArray[np.int64]
) -> tuple[LabelledBatch, NDArray[np.int64]]:
    """Insert the k `others` into a batch; return the new batch, and the indices of the n events of `batch` in it, (n,).

    Other event i, which has no source, goes before event `places[i]` of `batch`, or after all if that is n; others with
    equal places keep their order. O(n + k) and a sort.
    """
    n, k = len(batch), len(others)
    order = np.argsort(np.concatenate([2 * np.arange(n) + 1, 2 * places]), kind="stable")
    at = np.empty(n + k, dtype=np.int64)
    at[order] = np.arange(n + k)
    joined = join_batches([batch, others])
    has = np.ones(n + k, dtype=np.bool_) if joined.late is None else ~joined.late.bare
    row = np.cumsum(has[order]) - 1  # index of the row of each event in the new order
    segments = []
    for segment in batch.segments:
        moved = at[segment.start : segment.stop]
        runs = np.concatenate([[0], 1 + np.flatnonzero(np.diff(moved) != 1), [len(moved)]]).tolist()
        for start, stop in itertools.pairwise(runs):
            first = int(moved[start])
            after = segment.offset + start if start else segment.after
            segments.append(Segment(first, first + stop - start, segment.name, segment.offset + start, after))
    return LabelledBatch(
        scatter_rows([(joined.rows, row[at[has]])], int(np.count_nonzero(has)), joined.rows),
        joined.labels[order],
        None if joined.weights is None else joined.weights[order],
        None if joined.times is None else joined.times[order],
        None if joined.ids is None else tuple(joined.ids[i] for i in order.tolist()),
        tuple(segments),
        None if joined.costs is None else joined.costs[order],
        None if joined.late is None else LateColumns._make(column[order] for column in joined.late),
        joined.fields,
        None if joined.segment_values is None else joined.segment_values.of(order),
    ), at[:n]


def _late(batches: Sequence[LabelledBatch]) -> LateColumns | None:
    if all(batch.late is None for batch in batches):
        return None
    parts = [LateColumns.none(len(batch)) if batch.late is None else batch.late for batch in batches]
    return LateColumns._make(np.concatenate(columns) for columns in zip(*parts, strict=True))
