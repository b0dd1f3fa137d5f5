"""Prequential figures of an ordinal learner: over the last `window` labelled events, and since the start.

Every figure is about ranks that were predicted before the label was known, and exact: mean absolute and mean squared
error and accuracy all follow from the confusion matrix of counts, true ranks by predicted ones. Each event changes one
entry of it, and one more when it leaves the window: O(1).

All of it is part of the deterministic state; the window's matrix is derived from the ring and rebuilt on restore.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from learners.arrays import Counts, Matrix, Vector
from learners.batch import Outcome
from learners.jit import kernel
from learners.metrics import HISTORY_POINTS, HISTORY_STRIDE, history_problems
from learners.ranges import Issues, counters, outside

__all__ = ["ORDINAL_HISTORY_COLUMNS", "OrdinalFigures", "OrdinalMetrics", "OrdinalMetricsState"]

ORDINAL_HISTORY_COLUMNS = ("events", "mae", "accuracy")


class OrdinalMetricsState(NamedTuple):
    """The arrays of the state."""

    counts: Counts  # (ranks,) labelled events by rank
    duplicates: Counts  # (1,)
    total: Counts  # (ranks, ranks) confusion since the start: true ranks by predicted ones
    labels: NDArray[np.int8]  # (capacity,) the window as a ring: event i stands at i % window
    decisions: NDArray[np.int8]  # (capacity,)
    history: Matrix  # (HISTORY_POINTS, 3)
    points: Counts  # (2,) how many points, stride


class _Window(NamedTuple):
    """What is derived from the ring."""

    confusion: Counts  # (ranks, ranks)
    errors: Counts  # (2,) sum of |true - predicted|, wrong predictions


@kernel
def _count(window, label, decision, sign):  # type: ignore[no-untyped-def]
    """An event enters the window (`sign` 1) or leaves it (-1)."""
    window.confusion[label - 1, decision - 1] += sign
    window.errors[0] += sign * abs(label - decision)
    if label != decision:
        window.errors[1] += sign


@kernel
def _note(state, window, events, held):  # type: ignore[no-untyped-def]
    """Add a point to the history; thin it when full."""
    n = state.points[0]
    if n == state.history.shape[0]:
        n = n // 2
        for k in range(n):
            state.history[k] = state.history[2 * k + 1]
        state.history[n:] = 0.0
        state.points[1] *= 2
    if events % state.points[1] == 0:
        point = state.history[n]
        point[0] = events
        point[1] = window.errors[0] / held
        point[2] = (held - window.errors[1]) / held
        n += 1
    state.points[0] = n


@kernel
def _learn(state, window, size, events, y, decisions):  # type: ignore[no-untyped-def]
    for i in range(y.shape[0]):
        label = np.int64(y[i])
        decision = decisions[i]
        slot = events % size
        if events >= size:
            _count(window, np.int64(state.labels[slot]), np.int64(state.decisions[slot]), -1)
        _count(window, label, decision, 1)
        state.labels[slot] = label
        state.decisions[slot] = decision
        state.counts[label - 1] += 1
        state.total[label - 1, decision - 1] += 1
        events += 1
        if events % state.points[1] == 0:
            _note(state, window, events, min(events, size))


@kernel
def _refill(state, window, held):  # type: ignore[no-untyped-def]
    for i in range(held):
        _count(window, np.int64(state.labels[i]), np.int64(state.decisions[i]), 1)


class OrdinalMetrics:
    """The live figures of one learner whose labels are the ranks 1 to `ranks` (at most 127)."""

    def __init__(self, window: int, ranks: int) -> None:
        self.window = window
        self.ranks = ranks
        self.arrays = OrdinalMetricsState(
            counts=np.zeros(ranks, dtype=np.int64),
            duplicates=np.zeros(1, dtype=np.int64),
            total=np.zeros((ranks, ranks), dtype=np.int64),
            labels=np.zeros(min(window, 64), dtype=np.int8),
            decisions=np.zeros(min(window, 64), dtype=np.int8),
            history=np.zeros((HISTORY_POINTS, len(ORDINAL_HISTORY_COLUMNS))),
            points=np.array([0, HISTORY_STRIDE], dtype=np.int64),
        )
        self._rebuild()

    @property
    def events(self) -> int:
        """Labelled events learnt."""
        return int(self.arrays.counts.sum())

    def _rebuild(self) -> None:
        self._derived = _Window(np.zeros((self.ranks, self.ranks), dtype=np.int64), np.zeros(2, dtype=np.int64))
        _refill(self.arrays, self._derived, min(self.events, self.window))

    def reserve(self, events: int) -> None:
        """Room in the window: powers of two up to its size, so that the length follows from the count alone."""
        held, most = len(self.arrays.labels), min(events, self.window)
        if held >= most:
            return
        capacity = min(self.window, 1 << (most - 1).bit_length())
        labels, decisions = np.zeros(capacity, np.int8), np.zeros(capacity, np.int8)
        labels[:held], decisions[:held] = self.arrays.labels, self.arrays.decisions
        self.arrays = self.arrays._replace(labels=labels, decisions=decisions)

    def learn(self, outcome: Outcome, y: Vector) -> None:
        """Count n events: their ranks, and the ranks `outcome.decisions` predicted for those that were applied."""
        self.arrays.duplicates[0] += int(np.count_nonzero(~outcome.applied & ~outcome.beyond))
        kept = outcome.applied
        labels, decisions = y[kept].astype(np.float64), outcome.decisions[kept].astype(np.int64)
        events = self.events
        self.reserve(events + len(labels))
        _learn(self.arrays, self._derived, self.window, events, labels, decisions)

    def state(self) -> dict[str, NDArray[np.generic]]:
        """The arrays of the state."""
        return dict(self.arrays._asdict())

    def problems(self, state: dict[str, NDArray[np.generic]]) -> Issues:
        """What no events can have led to in a state of the right shapes. O(window + ranks^2)."""
        arrays = OrdinalMetricsState(**state)  # type: ignore[arg-type]
        wrong = list(counters({name: state[name] for name in ("counts", "duplicates", "total")}))
        yield from wrong
        if not wrong and (arrays.total.sum(axis=1) != arrays.counts).any():
            yield "total", "does not add up to the counts of the ranks"
        if not wrong:
            held = min(int(arrays.counts.sum()), self.window)
            for name in ("labels", "decisions"):
                yield from outside(name, state[name][:held], 1, self.ranks)
                yield from outside(name, state[name][held:], 0, 0)
        yield from history_problems(arrays.history, arrays.points, [0, 1, 2])

    def restore(self, state: dict[str, NDArray[np.generic]]) -> None:
        """Take the arrays of a state."""
        own = self.arrays._asdict()
        self.arrays = OrdinalMetricsState(
            **{name: np.array(state[name], dtype=own[name].dtype, order="C") for name in own}
        )
        self._rebuild()

    def view(self) -> OrdinalFigures:
        """The figures as they stand: right until the next `learn`, or for good once `frozen()`."""
        state = self.arrays
        return OrdinalFigures(
            self.window,
            state.counts,
            state.duplicates,
            state.total,
            self._derived.confusion,
            state.history,
            state.points,
        )


class OrdinalFigures(NamedTuple):
    """What a reader of the figures needs: a small part of the state, so that it can be copied at any time."""

    window: int
    counts: Counts  # (ranks,)
    duplicates: Counts  # (1,)
    total: Counts  # (ranks, ranks) confusion since the start
    recent: Counts  # (ranks, ranks) confusion of the window
    points: Matrix
    stride: Counts

    def frozen(self) -> OrdinalFigures:
        """A copy that stays as it is. O(ranks^2): some 12 KB, with 64 ranks 77 KB."""
        return OrdinalFigures._make((self.window, *(array.copy() for array in self[1:])))

    def class_counts(self) -> dict[str, int]:
        """Labelled events by rank, "1" first."""
        return _by_rank(self.counts)

    def as_json(self) -> dict[str, Any]:
        """The figures as JSON: numbers, or null with the reason under `undefined`."""
        undefined: dict[str, str] = {}
        window = _figures("window", self.recent, undefined)
        since = _figures("since_start", self.total, undefined)
        return {
            "events": int(self.counts.sum()),
            "class_counts": self.class_counts(),
            "duplicates": int(self.duplicates[0]),
            "window": {"size": self.window, "events": int(self.recent.sum()), **window},
            "since_start": since,
            "undefined": undefined,
        }

    def history(self) -> dict[str, Any]:
        """Points over the stream: figures of the window at every `stride` events, thinned as the stream grows."""
        count, stride = self.stride.tolist()
        points: list[dict[str, Any]] = []
        for row in self.points[:count].tolist():
            point: dict[str, Any] = dict(zip(ORDINAL_HISTORY_COLUMNS, row, strict=True))
            point["events"] = int(point["events"])
            points.append(point)
        return {"stride": stride, "points": points}


def _by_rank(counts: Counts) -> dict[str, int]:
    return {str(rank): count for rank, count in enumerate(counts.tolist(), start=1)}


def _figures(scope: str, confusion: Counts, undefined: dict[str, str]) -> dict[str, Any]:
    """The figures of one confusion matrix, sums in whole numbers: exact however many events."""
    rank = np.arange(len(confusion))
    distance = np.abs(rank[:, None] - rank)
    sums = {
        "mae": int((confusion * distance).sum()),
        "mse": int((confusion * distance**2).sum()),
        "accuracy": int(np.trace(confusion)),
    }
    events = int(confusion.sum())
    if not events:
        reason = "no labelled events " + ("in the window" if scope == "window" else "yet")
        undefined.update({f"/{scope}/{name}": reason for name in sums})
    return {
        "class_counts": _by_rank(confusion.sum(axis=1)),
        **{name: total / events if events else None for name, total in sums.items()},
        "confusion": confusion.tolist(),
    }
