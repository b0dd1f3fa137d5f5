"""Live metrics of an ordinal learner: over the last `window` labelled events, and since the start.

Mean absolute error, mean squared error and accuracy follow from a confusion matrix of counts, true ranks by predicted
ranks. So they are exact. Each event changes one entry, and one more when it leaves the window: O(1). A corrected label
moves its event to another row.

The window's matrix is derived from the ring and rebuilt on restore.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from learners.metrics.consistency import metric_disagreements
from learners.metrics.history import MetricHistory
from learners.metrics.label_delays import MAX_DELAY
from learners.metrics.live import CORRECTIONS, DUPLICATES, Arrays, LiveMetrics, LiveMetricsView
from learners.metrics.rings import lengthen, ring_capacity
from learners.metrics.stream_stats import Scope, StreamStatsView
from learners.numerics import Counts, Issues, Vector, Words, counters, kernel, outside

__all__ = ["ORDINAL_HISTORY", "RankMetrics", "RankMetricsState", "RankMetricsView"]

_SHARED = ("label_delay_median", "label_delay_p90", "label_coverage", "events_per_second")  # with two classes
ORDINAL_HISTORY = (
    "events",
    "clock",
    "served",
    "mae",
    "mse",
    "accuracy",
    *_SHARED,
    "since_start_mae",
    "since_start_accuracy",
    "since_start_label_coverage",
)
_STRIDE = 64  # steps between rows of the history
_RINGS = ("labels", "decisions", "clocks")


class RankMetricsState(NamedTuple):
    """The arrays of the state that belong to no other part."""

    counts: Counts  # (ranks,) labelled events by rank
    counters: Counts  # (2,) duplicates, corrections
    total: Counts  # (ranks, ranks) confusion since the start: true ranks by predicted ones
    span: Counts  # (2,) number of the window's first event, and of the next event
    labels: NDArray[np.int8]  # (capacity,) the window as a ring: event i is at i % window
    decisions: NDArray[np.int8]  # (capacity,)
    clocks: Vector  # (capacity,)


class WindowConfusion(NamedTuple):
    """What is derived from the ring."""

    confusion: Counts  # (ranks, ranks)
    errors: Counts  # (3,) sums of |true - predicted| and of its square, wrong predictions


@kernel
def _count(window, label, decision, sign):  # type: ignore[no-untyped-def]
    """Add an event to the window (`sign` 1) or remove it (-1)."""
    distance = abs(label - decision)
    window.confusion[label - 1, decision - 1] += sign
    window.errors[0] += sign * distance
    window.errors[1] += sign * distance * distance
    if label != decision:
        window.errors[2] += sign


@kernel
def _errors(confusion):  # type: ignore[no-untyped-def]
    """Sum up a confusion matrix: |true - predicted|, its square, and right predictions."""
    absolute = squared = right = 0
    for i in range(confusion.shape[0]):
        for j in range(confusion.shape[1]):
            distance = abs(i - j)
            absolute += distance * confusion[i, j]
            squared += distance * distance * confusion[i, j]
        right += confusion[i, i]
    return absolute, squared, right


@kernel
def _leave(state, window, size):  # type: ignore[no-untyped-def]
    """Remove the oldest event from the window."""
    slot = state.span[0] % size
    _count(window, np.int64(state.labels[slot]), np.int64(state.decisions[slot]), -1)
    state.span[0] += 1


@kernel
def _expire(state, window, size, seconds, clock):  # type: ignore[no-untyped-def]
    """Remove events that are too old at `clock`; once a clock is known, also those from before the first."""
    if np.isnan(clock) or seconds == np.inf:
        return
    while state.span[0] < state.span[1] and not state.clocks[state.span[0] % size] > clock - seconds:
        _leave(state, window, size)


@kernel
def _learn(state, window, size, seconds, y, decisions, clocks):  # type: ignore[no-untyped-def]
    """Take labelled events in order; there are slots for them."""
    for i in range(y.shape[0]):
        label = np.int64(y[i])
        decision = decisions[i]
        if state.span[1] - state.span[0] == size:
            _leave(state, window, size)
        _expire(state, window, size, seconds, clocks[i])
        slot = state.span[1] % size
        _count(window, label, decision, 1)
        state.labels[slot] = label
        state.decisions[slot] = decision
        state.clocks[slot] = clocks[i]
        state.counts[label - 1] += 1
        state.total[label - 1, decision - 1] += 1
        state.span[1] += 1
        _expire(state, window, size, seconds, clocks[i])  # a clock too coarse for `seconds`: the event leaves at once


@kernel
def _refill(state, window, size):  # type: ignore[no-untyped-def]
    """Count the events of the ring into an empty window."""
    for number in range(state.span[0], state.span[1]):
        slot = number % size
        _count(window, np.int64(state.labels[slot]), np.int64(state.decisions[slot]), 1)


@dataclass(eq=False, kw_only=True)
class RankMetricsView(LiveMetricsView):
    """The metrics of ranks at one moment."""

    total: Counts  # (ranks, ranks) confusion since the start
    recent: Counts  # (ranks, ranks) confusion of the window

    def _document(self) -> dict[str, Any]:
        undefined: dict[str, str] = {}
        scopes: dict[Scope, dict[str, Any]] = {}
        confusions: dict[Scope, Counts] = {"window": self.recent, "since_start": self.total}
        for scope, confusion in confusions.items():
            scopes[scope] = _confusion_metrics(scope, confusion, undefined)
        for scope, metrics in scopes.items():
            shared, reasons = self.stats.figures(scope)
            metrics |= {name: value for name, value in shared.items() if name not in ("served", "served_alert_rate")}
            undefined |= {name: reason for name, reason in reasons.items() if not name.endswith("alert_rate")}
        return {
            "events": int(self.counts.sum()),
            "class_counts": _by_rank(self.counts),
            "duplicates": int(self.counters[DUPLICATES]),
            "corrections": int(self.counters[CORRECTIONS]),
            "served": self.stats.served[0],
            "clock": None if math.isnan(self.clock) else self.clock,
            "window": {
                "size": self.size,
                "seconds": self.seconds,
                "events": int(self.recent.sum()),
                **scopes["window"],
            },
            "since_start": scopes["since_start"],
            "undefined": undefined,
        }

    def curves(self, points: int = 200) -> dict[str, Any]:  # noqa: ARG002 - as for two classes
        """Return the confusion matrix of the window: rows are true ranks, columns predicted ones."""
        return {"confusion": self.recent.tolist()}


class RankMetrics(LiveMetrics[RankMetricsView]):
    """The live metrics of one learner whose labels are the ranks 1 to `ranks` (at most 127)."""

    counted = ("span", *LiveMetrics.counted)

    def __init__(self, size: int, seconds: float | None, ranks: int) -> None:
        self.ranks = ranks
        farthest = ranks - 1.0
        ranges = {
            **dict.fromkeys(("mae", "since_start_mae"), (0.0, farthest)),
            "mse": (0.0, farthest**2),
            **dict.fromkeys(("accuracy", "since_start_accuracy"), (0.0, 1.0)),
            **dict.fromkeys(("label_coverage", "since_start_label_coverage"), (0.0, 1.0)),
            **dict.fromkeys(("label_delay_median", "label_delay_p90"), (0.0, MAX_DELAY)),
            "events_per_second": (0.0, math.inf),
        }
        super().__init__(size, seconds, None, MetricHistory(ORDINAL_HISTORY, _STRIDE, ranges))
        self._age = math.inf if seconds is None else seconds
        capacity = ring_capacity(0, size)
        self.arrays = RankMetricsState(
            counts=np.zeros(ranks, dtype=np.int64),
            counters=np.zeros(2, dtype=np.int64),
            total=np.zeros((ranks, ranks), dtype=np.int64),
            span=np.zeros(2, dtype=np.int64),
            labels=np.zeros(capacity, dtype=np.int8),
            decisions=np.zeros(capacity, dtype=np.int8),
            clocks=np.zeros(capacity),
        )
        self._rebuild()

    @property
    def events(self) -> int:
        """Labelled events learnt."""
        return int(self.arrays.span[1])

    @property
    def counts(self) -> Counts:
        """Labelled events learnt by rank, (ranks,)."""
        return self.arrays.counts

    @property
    def counters(self) -> Counts:
        """Duplicates, corrections."""
        return self.arrays.counters

    def _rebuild(self) -> None:
        """Derive the window's matrix from the ring."""
        self._derived = WindowConfusion(np.zeros((self.ranks, self.ranks), dtype=np.int64), np.zeros(3, dtype=np.int64))
        _refill(self.arrays, self._derived, self.size)

    def learn(
        self,
        scores: Vector,  # noqa: ARG002 - metrics of ranks use the decisions alone
        probabilities: Vector | None,  # noqa: ARG002
        thresholds: Vector | None,  # noqa: ARG002
        y: Vector,
        decisions: NDArray[np.int64],
        clocks: Vector,
        delays: Vector,
        hashes: Words,
        late: NDArray[np.bool_],
    ) -> None:
        """Take n new labelled events; see `LiveMetrics.learn`. Labels and decisions are ranks from 1."""
        self._view = None
        start = 0
        while start < len(y):
            cut = slice(start, min(len(y), start + self._history.steps_to_next(self.steps)))
            self._reserve(self.events + len(y[cut]))
            labels = y[cut].astype(np.float64)
            _learn(self.arrays, self._derived, self.size, self._age, labels, decisions[cut], clocks[cut])
            self._stats.learn(clocks[cut], delays[cut], hashes[cut], late[cut])
            self._add_due_row(None, float(clocks[cut.stop - 1]))
            start = cut.stop

    def _reserve(self, events: int) -> None:
        """Make room in the ring for so many events since the start."""
        capacity = ring_capacity(events, self.size)
        if len(self.arrays.labels) < capacity:
            rings = {name: lengthen(getattr(self.arrays, name), capacity) for name in _RINGS}
            self.arrays = self.arrays._replace(**rings)

    def _row(self, threshold: float | None, stats: StreamStatsView) -> tuple[float | None, ...]:  # noqa: ARG002
        shared, _ = stats.figures("window")
        inside = int(self.arrays.span[1] - self.arrays.span[0])
        errors, squares, wrong = self._derived.errors.tolist()
        absolute, _, right = _errors(self.arrays.total)
        return (
            *(self.events, stats.clock, self._stats.served),
            *(total / inside if inside else None for total in (errors, squares, inside - wrong)),
            *(shared[name] for name in _SHARED),
            *(total / self.events if self.events else None for total in (absolute, right)),
            stats.coverage,
        )

    def _alerts(self, decisions: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.zeros_like(decisions)  # ranks are no alerts

    def _expire(self, clock: float) -> None:
        _expire(self.arrays, self._derived, self.size, self._age, clock)

    def _correct(
        self,
        number: int,
        before: int,
        label: int,
        score: float,  # noqa: ARG002
        probability: float,  # noqa: ARG002
        decision: int,
    ) -> None:
        state = self.arrays
        state.counts[before - 1] -= 1
        state.counts[label - 1] += 1
        state.total[before - 1, decision - 1] -= 1
        state.total[label - 1, decision - 1] += 1
        if number >= state.span[0]:
            state.labels[number % self.size] = label
            _count(self._derived, before, decision, -1)
            _count(self._derived, label, decision, 1)

    def _arrays(self) -> Arrays:
        return dict(self.arrays._asdict())

    def _shapes(self, state: Arrays) -> dict[str, tuple[int, ...]]:
        ring = (ring_capacity(int(state["span"][1]), self.size),)
        return dict.fromkeys(_RINGS, ring)

    def _own_problems(self, state: Arrays) -> Issues:
        yield from counters({name: state[name] for name in ("counts", "counters", "total", "span")})
        if np.isinf(state["clocks"].astype(np.float64)).any():
            yield "clocks", "has infinite numbers"

    def _disagreements(self, state: Arrays) -> Issues:
        arrays = RankMetricsState(**{name: state[name] for name in RankMetricsState._fields})  # type: ignore[arg-type]
        if (arrays.total.sum(axis=1) != arrays.counts).any():
            yield "total", "does not add up to the counts of the ranks"
        first, following = arrays.span.tolist()
        oldest = max(0, following - self.size)
        if following != arrays.counts.sum():
            yield "span", f"ends at {following}, which is not how many events there were"
        elif not oldest <= first <= following or (self.seconds is None and first != oldest):
            yield "span", f"begins at {first}; expected {oldest} to {following}"
        elif len(arrays.labels) != ring_capacity(following, self.size):
            yield "span", f"ends at {following}, which does not go with {len(arrays.labels)} slots"
        else:
            slots = np.arange(first, following) % self.size
            ranked = [(name, getattr(arrays, name)[slots]) for name in ("labels", "decisions")]
            wrong = [issue for name, array in ranked for issue in outside(name, array, 1, self.ranks)]
            yield from wrong
            if not wrong:
                rest = arrays.total.copy()
                np.subtract.at(rest, tuple(array.astype(np.int64) - 1 for _, array in ranked), 1)
                if (rest < 0).any():
                    yield "total", "is less than that of the window"
            yield from metric_disagreements(state, "", self.size, _STRIDE)

    def _restore(self, state: Arrays) -> None:
        current = self.arrays._asdict()
        self.arrays = RankMetricsState(
            **{name: np.array(state[name], dtype=current[name].dtype, order="C") for name in current}
        )
        self._rebuild()

    def _make_view(self) -> RankMetricsView:
        return RankMetricsView(**self._shared(), total=self.arrays.total, recent=self._derived.confusion)


def _by_rank(counts: Counts) -> dict[str, int]:
    return {str(rank): count for rank, count in enumerate(counts.tolist(), start=1)}


def _confusion_metrics(scope: Scope, confusion: Counts, undefined: dict[str, str]) -> dict[str, Any]:
    """Compute the metrics of one confusion matrix from whole-number sums: exact for any number of events."""
    sums = dict(zip(("mae", "mse", "accuracy"), map(int, _errors(confusion)), strict=True))
    events = int(confusion.sum())
    if not events:
        reason = "no labelled events " + ("in the window" if scope == "window" else "yet")
        undefined.update({f"/{scope}/{name}": reason for name in sums})
    return {
        "class_counts": _by_rank(confusion.sum(axis=1)),
        **{name: total / events if events else None for name, total in sums.items()},
        "confusion": confusion.tolist(),
    }
