"""What the live metrics of two classes and of ranks share: clock, label delays, history, drift alarms, saved state.

Every metric is about scores and decisions that were made before the label was known. `binary.py` and `ordinal.py` add
the window and the totals since the start, each for its kind of labels.

All of it is part of the deterministic state: the bits do not depend on how the stream is cut into calls.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields, replace
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from learners.metrics.alarm_life import KINDS, AlarmsView
from learners.metrics.definitions import MetricSettings
from learners.metrics.drift import Drift
from learners.metrics.history import Axis, MetricHistory, MetricHistoryView
from learners.metrics.stream_stats import StreamStats, StreamStatsView
from learners.numerics import Counts, Issues, Matrix, Vector, Words

__all__ = ["Arrays", "LiveMetrics", "LiveMetricsView"]

Arrays = dict[str, NDArray[np.generic]]

DUPLICATES, CORRECTIONS, EXPIRED = range(3)  # places in the counters


class MetricPart(Protocol):
    """A part of the metrics with a state of its own."""

    def state(self) -> Arrays: ...
    def shapes(self, state: Arrays) -> dict[str, tuple[int, ...]]: ...
    def problems(self, state: Arrays) -> Issues: ...
    def restore(self, state: Arrays) -> None: ...


@dataclass(eq=False, kw_only=True)
class LiveMetricsView(ABC):
    """The metrics at one moment: right until the next change, or for good once `frozen()`."""

    size: int
    seconds: float | None
    settings: MetricSettings
    counts: Counts  # (classes,) labelled events
    counters: Counts  # duplicates, corrections, and of two classes labels that expired
    stats: StreamStatsView
    rows: MetricHistoryView
    drift: AlarmsView
    memory: dict[str, Any] = field(default_factory=dict)  # results computed so far

    @property
    def clock(self) -> float:
        """The learner's clock, in seconds; NaN before the first event or label with a time."""
        return self.stats.clock

    def frozen(self) -> Self:
        """Copy the view, so that it stays as it is; readers of one moment share the copy. O(window)."""
        if "frozen" not in self.memory:
            copies = {item.name: _copy(getattr(self, item.name)) for item in fields(self)}
            copy = replace(self, **copies)
            copy.memory["frozen"] = copy
            self.memory["frozen"] = copy
        frozen: Self = self.memory["frozen"]
        return frozen

    def as_json(self) -> dict[str, Any]:
        """Return the metrics as JSON: numbers, or null with the reason under `undefined`.

        Computed once and cached: callers must not change it. O(window) at most.
        """
        if "document" not in self.memory:
            self.memory["document"] = self._document()
        document: dict[str, Any] = self.memory["document"]
        return document

    @abstractmethod
    def _document(self) -> dict[str, Any]:
        """Compute what `as_json` returns."""

    @abstractmethod
    def curves(self, points: int = 200) -> dict[str, Any]:
        """Return what charts of the window need, as JSON."""

    def history(
        self,
        start: float | None = None,
        stop: float | None = None,
        step: float | None = None,
        by: Axis = "events",
    ) -> dict[str, Any]:
        """Return the metrics over time; see `MetricHistoryView.points`. Raises ValueError for a `step` not above 0."""
        return {"columns": list(self.rows.columns), "points": self.rows.points(start, stop, step, by)}

    @property
    def point_count(self) -> int:
        """Points of the history so far: the number of the latest point."""
        return int(self.rows.number[0])

    def points_since(self, number: int) -> list[tuple[int, dict[str, Any]]]:
        """Return the history's points after that number, as pairs (number, point)."""
        return self.rows.since(number)

    @property
    def alarm_counts(self) -> dict[str, int]:
        """Drift alarms so far, by kind."""
        return dict(zip(KINDS, self.drift.by_kind.tolist(), strict=True))

    @property
    def alarm_count(self) -> int:
        """Drift alarms so far."""
        return int(self.drift.by_kind.sum())

    @property
    def alarm_changes(self) -> int:
        """Drift alarms raised, resolved and reopened so far."""
        return int(self.drift.changes[0])

    def alarms(self, since: int = 0, change: int = 0) -> list[dict[str, Any]]:
        """Return the drift alarms from number `since` on; see `AlarmsView.alarms`."""
        return self.drift.alarms(since, change)


def _copy(value: Any) -> Any:
    """Copy an array, a dict or a view; anything else never changes."""
    if hasattr(value, "frozen"):
        return value.frozen()
    return value.copy() if isinstance(value, (np.ndarray, dict)) else value


ViewT = TypeVar("ViewT", bound=LiveMetricsView)


class LiveMetrics(ABC, Generic[ViewT]):
    """The live metrics of one learner: a deterministic state machine.

    The state of a part has names `<part>_<name>`; the arrays of the metrics themselves have no prefix.
    """

    #: Arrays with the same shape in every state; the shapes of the others follow from their values.
    counted: tuple[str, ...] = ("traffic_span", "traffic_served", "history_count", "drift_negatives")

    def __init__(self, size: int, seconds: float | None, settings: MetricSettings | None, rows: MetricHistory) -> None:
        self.size = size
        self.seconds = seconds
        self.settings = MetricSettings() if settings is None else settings
        self._stats = StreamStats(size, seconds)
        self._history = rows
        self._drift = Drift()
        self._parts: dict[str, MetricPart] = {"traffic": self._stats, "history": self._history, "drift": self._drift}
        self._view: ViewT | None = None  # of the present moment, made for its first reader

    @property
    @abstractmethod
    def events(self) -> int:
        """Labelled events learnt."""

    @property
    @abstractmethod
    def counts(self) -> Counts:
        """Labelled events learnt by class, (classes,)."""

    @property
    @abstractmethod
    def counters(self) -> Counts:
        """Duplicates, corrections, and of two classes labels that expired."""

    @property
    def steps(self) -> int:
        """Labelled events learnt plus events served with an id: the steps of the history."""
        return self.events + self._stats.served

    @property
    def clock(self) -> float:
        """The largest time of an event or a label so far, in seconds; NaN before the first."""
        return self._stats.clock

    @property
    def alarm_changes(self) -> int:
        """Drift alarms raised, resolved and reopened so far."""
        return int(self._drift.arrays.changes[0])

    # Moving forward

    def tick(self, times: Vector) -> Vector:
        """Move the clock; return it after each of n times, (n,). NaN does not move it.

        Call it before the method that takes the events themselves.
        """
        self._view = None
        return self._stats.tick(times)

    @abstractmethod
    def learn(
        self,
        scores: Vector,
        probabilities: Vector | None,
        thresholds: Vector | None,
        y: Vector,
        decisions: NDArray[np.int64],
        clocks: Vector,
        delays: Vector,
        hashes: Words,
        late: NDArray[np.bool_],
    ) -> None:
        """Take n new labelled events in order, columns of (n,), with their predictions from before the label.

        `clocks` are from `tick`, `delays` in seconds (NaN: unknown), `hashes` of the ids; `late` marks events that were
        served under their id before.
        """

    def serve(
        self,
        hashes: Words,
        scores: Vector,
        thresholds: Vector | None,
        decisions: NDArray[np.int64],
        clocks: Vector,
        ready: bool = True,
    ) -> None:
        """Take n served events without a label: columns of (n,) in order, as in `learn`.

        Scores from before the learner was `ready` are no reference for drift.
        """
        self._view = None
        alerts = self._alerts(decisions)
        start = 0
        while start < len(hashes):
            stop = start + self._stats.serve(hashes[start:], alerts[start:], self._history.steps_to_next(self.steps))
            clock = float(clocks[stop - 1])
            self.advance(clock)
            self._add_due_row(None if thresholds is None else float(thresholds[stop - 1]), clock)
            start = stop
        if ready:
            self._drift.serve(scores, self.events, clocks)

    @abstractmethod
    def _alerts(self, decisions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return which of n decisions are alerts, (n,) of 0 and 1."""

    def _add_due_row(self, threshold: float | None, clock: float) -> None:
        """Add the history's row if one is due now. `clock` and `threshold` are those of the last event.

        The clock of the stream statistics may be that of a later event.
        """
        if not self._history.steps_to_next(self.steps):
            row = self._row(threshold, self._stats.view()._replace(clock=clock))
            self._history.add(np.array(row, dtype=np.float64))  # None becomes NaN

    @abstractmethod
    def _row(self, threshold: float | None, stats: StreamStatsView) -> tuple[float | None, ...]:
        """Compute a row of the history."""

    def advance(self, clock: float) -> None:
        """Drop what is too old at `clock` from the window, as if nothing happened until then; NaN: unknown.

        `learn` and `serve` do so by themselves.
        """
        self._view = None
        self._expire(clock)
        self._stats.advance(clock)

    @abstractmethod
    def _expire(self, clock: float) -> None:
        """Drop labelled events that are too old at `clock` from the window."""

    def correct(self, number: int, before: int, label: int, score: float, probability: float, decision: int) -> None:
        """Change the label of event `number` from `before`, as if it had been so from the start.

        Takes the predictions that the event was learnt with. Rows of the history and alarms stay as they were.
        """
        if before == label:
            return
        self._view = None
        self._correct(int(number), int(before), int(label), score, probability, int(decision))
        self.counters[CORRECTIONS] += 1

    @abstractmethod
    def _correct(self, number: int, before: int, label: int, score: float, probability: float, decision: int) -> None:
        """Move an event to another label, in the window and in the totals."""

    def change(self, settings: MetricSettings) -> None:
        """Use other settings from now on; rows of the history stay as they were."""
        self._view = None
        self.settings = settings

    def mark_labelled(self, h: int) -> None:
        """Count the label of a served event, by the hash of its id, that arrived after its expiry."""
        self._view = None
        self._stats.mark_labelled(h)

    def count_duplicates(self, duplicates: int) -> None:
        """Count duplicates, which were left out."""
        self._view = None
        self.counters[DUPLICATES] += duplicates

    def count_expired(self, count: int) -> None:
        """Count learnt events whose label expired; ranks never do."""
        if count:
            self._view = None
            self.counters[EXPIRED] += count

    def note_fields(self, kind: str, clock: float, before: float, after: float, field: int, fields: int) -> None:
        """Store an alarm of fields that got worse after the events so far; see `Drift.note_fields`."""
        self._view = None
        self._drift.note_fields(kind, self.events, clock, before, after, field, fields)

    def judge_fields(self, shares: Matrix, clock: float) -> None:
        """Resolve and reopen alarms of fields after the events so far; see `Drift.judge_fields`."""
        self._view = None
        self._drift.judge_fields(shares, self.events, clock)

    @property
    def field_alarms(self) -> bool:
        """Tell whether fields have raised alarms."""
        return self._drift.of_fields

    # Saving

    def state(self) -> Arrays:
        """Return the arrays of the state, as views."""
        arrays = self._arrays()
        for part, machine in self._parts.items():
            arrays |= {f"{part}_{name}": array for name, array in machine.state().items()}
        return arrays

    @abstractmethod
    def _arrays(self) -> Arrays:
        """Return the arrays of the state that belong to no part."""

    def _part_of(self, part: str, state: Arrays) -> Arrays:
        return {name: state[f"{part}_{name}"] for name in self._parts[part].state()}

    def shapes(self, state: Arrays) -> dict[str, tuple[int, ...]]:
        """Return the shapes of a state's arrays that follow from its counts; see `counted`.

        Rings have the power of two that holds what entered them, from 64 up to the window's size or, of `drift`, to
        8192. The history has one more level for each doubling of its rows.
        """
        shapes = {name: array.shape for name, array in self.state().items()} | self._shapes(state)
        for part, machine in self._parts.items():
            inner = machine.shapes(self._part_of(part, state))
            shapes |= {f"{part}_{name}": shape for name, shape in inner.items()}
        return shapes

    def _shapes(self, state: Arrays) -> dict[str, tuple[int, ...]]:  # noqa: ARG002
        """Return the shapes of arrays of no part that differ from those at the start."""
        return {}

    def problems(self, state: Arrays) -> Issues:
        """Report what no events can have led to in a state of the right shapes. O(window log window)."""
        wrong = list(self._own_problems(state))
        for part, machine in self._parts.items():
            wrong += [(f"{part}_{name}", detail) for name, detail in machine.problems(self._part_of(part, state))]
        yield from wrong
        if not wrong:
            yield from self._disagreements(state)

    @abstractmethod
    def _own_problems(self, state: Arrays) -> Issues:
        """Report problems of each array that belongs to no part."""

    @abstractmethod
    def _disagreements(self, state: Arrays) -> Issues:
        """Report where valid parts contradict each other."""

    def restore(self, state: Arrays) -> None:
        """Take copies of the arrays of a state."""
        self._view = None
        self._restore(state)
        for part, machine in self._parts.items():
            machine.restore(self._part_of(part, state))

    @abstractmethod
    def _restore(self, state: Arrays) -> None:
        """Take copies of the arrays that belong to no part."""

    # Reading

    def view(self) -> ViewT:
        """Return the metrics as they stand: right until the next change, or for good once `frozen()`."""
        if self._view is None:
            self._view = self._make_view()
        return self._view

    @abstractmethod
    def _make_view(self) -> ViewT:
        """Make a view of the present moment."""

    def _shared(self) -> dict[str, Any]:
        """Return the fields of a view that all kinds of labels share."""
        return {
            "size": self.size,
            "seconds": self.seconds,
            "settings": self.settings,
            "counts": self.counts,
            "counters": self.counters,
            "stats": self._stats.view(),
            "rows": self._history.view(),
            "drift": self._drift.view(),
        }
