"""Labelled events as columns, and what happened to each: what a learner's log holds and what `apply` returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from learners.arrays import Counts, Floats, Rows, Sparse, Vector

__all__ = ["Batch", "Fitted", "Outcome", "Restored", "Segment", "join", "joined", "length", "part_of", "take"]


class Segment(NamedTuple):
    """Events `start` to `stop` of a batch are numbers `offset`, `offset + 1`, ... of the source called `name`."""

    start: int
    stop: int
    name: str
    offset: int


@dataclass(frozen=True)
class Batch:
    """n labelled events, encoded (see `features.py`) but neither scaled nor mapped to a learner's own columns."""

    rows: Rows  # (n, k)
    labels: Vector  # (n,) -1 or +1, or a rank from 1
    weights: Vector | None = None  # (n,) at least 0; None: all 1
    times: Vector | None = None  # (n,) seconds since the epoch, NaN where not given
    ids: tuple[str | None, ...] | None = None  # n of them
    segments: tuple[Segment, ...] = ()  # ascending, disjoint

    def __len__(self) -> int:
        return len(self.labels)

    def part(self, start: int, stop: int) -> Batch:
        """Some neighbouring events, as views. Learning the parts in turn is the same as learning the whole."""
        cut = slice(start, stop)
        return Batch(
            part_of(self.rows, start, stop),
            self.labels[cut],
            None if self.weights is None else self.weights[cut],
            None if self.times is None else self.times[cut],
            None if self.ids is None else self.ids[cut],
            tuple(
                Segment(max(one.start, start) - start, min(one.stop, stop) - start, one.name, one.offset + late)
                for one in self.segments
                if one.start < stop and one.stop > start
                for late in [max(0, start - one.start)]
            ),
        )


@dataclass(frozen=True)
class Restored:
    """The record of a roll-back: the whole state that the learner goes on from."""

    position: int  # that the state stood at
    state: dict[str, NDArray[np.generic]]


@dataclass(frozen=True)
class Fitted:
    """The record of a fit: what was fitted, with the arrays that came out, so that every node has the same bits."""

    events: int  # that the learner had learnt when the fit took its data
    restores: int  # that it had been through by then
    dim: int  # columns that it had
    arrays: dict[str, NDArray[np.generic]]  # by part and name, like a state's


@dataclass(frozen=True)
class Outcome:
    """What became of each event of a batch, n entries each; NaN and 0 for an event that was not learnt."""

    applied: NDArray[np.bool_]
    beyond: NDArray[np.bool_]  # left out: it lies beyond a gap in its source; what is neither is a duplicate
    scores: Vector  # before the event was learnt, like all that follows
    decisions: Counts  # 1 where probability >= threshold, else 0; of an ordinal learner the rank
    probabilities: Vector | None = None  # None: an ordinal learner has none
    thresholds: Vector | None = None

    def part(self, start: int, stop: int) -> Outcome:
        """The outcome of some neighbouring events."""
        cut = slice(start, stop)
        return Outcome(*(None if column is None else column[cut] for column in _columns(self)))  # type: ignore[arg-type]


def _columns(outcome: Outcome) -> list[NDArray[Any] | None]:
    return [getattr(outcome, one.name) for one in fields(outcome)]


def joined(outcomes: Sequence[Outcome]) -> Outcome:
    """The outcome of a batch from those of its parts."""
    if len(outcomes) == 1:
        return outcomes[0]
    columns = zip(*(_columns(one) for one in outcomes), strict=True)
    return Outcome(*(None if one[0] is None else np.concatenate(one) for one in columns))  # type: ignore[arg-type]


def length(rows: Rows) -> int:
    """How many rows."""
    return len(rows.indptr) - 1 if isinstance(rows, Sparse) else len(rows)


def part_of(rows: Rows, start: int, stop: int) -> Rows:
    """The rows from `start` to `stop`, as views."""
    if not isinstance(rows, Sparse):
        return rows[start:stop]
    indptr = rows.indptr[start : stop + 1]
    inner = slice(int(indptr[0]), int(indptr[-1]))
    return Sparse(rows.data[inner], rows.indices[inner], indptr - indptr[0])


def take(rows: Rows, mask: NDArray[np.bool_]) -> Rows:
    """The rows where `mask` holds, in order."""
    if not isinstance(rows, Sparse):
        return np.ascontiguousarray(rows[mask])
    sizes = np.diff(rows.indptr)
    kept = np.repeat(mask, sizes)
    indptr = np.zeros(int(mask.sum()) + 1, dtype=np.int64)
    np.cumsum(sizes[mask], out=indptr[1:])
    return Sparse(rows.data[kept], rows.indices[kept], indptr)


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


def join(batches: Sequence[Batch]) -> Batch:
    """One batch of all events in order. Learning it is the same as learning the batches one after the other."""
    if len(batches) == 1:
        return batches[0]
    sizes = [len(batch) for batch in batches]
    starts = np.concatenate([[0], np.cumsum(sizes)]).tolist()
    ids: tuple[str | None, ...] | None = None
    if any(batch.ids is not None for batch in batches):
        ids = tuple(one for batch in batches for one in (batch.ids or (None,) * len(batch)))
    return Batch(
        rows=_stack([batch.rows for batch in batches]),
        labels=np.concatenate([batch.labels for batch in batches]),
        weights=_column([batch.weights for batch in batches], sizes, 1.0),
        times=_column([batch.times for batch in batches], sizes, np.nan),
        ids=ids,
        segments=tuple(
            Segment(start + part.start, start + part.stop, part.name, part.offset)
            for start, batch in zip(starts, batches, strict=False)
            for part in batch.segments
        ),
    )
