"""Prequential figures of a learner of two classes: over the last labelled events, since the start, and over time.

Every figure is about scores and decisions that were made before the label was known. Five parts see the events:

    window   exact figures of the last `size` labelled events, or `seconds`    `window.py`
    sketch   the same since the start, in fixed room, with bounds              `sketch.py`
    traffic  clock, delays of labels, coverage, rates                          `traffic.py`
    history  the figures at every so many steps, thinned with age              `history.py`
    drift    alarms: a fall of the AUC, a change of the scores                 `drift.py`

All of it is part of the deterministic state: the same to the bit however the stream is cut into calls.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from learners.metrics import cumulative as sketch
from learners.metrics import stream_stats as traffic
from learners.metrics import window
from learners.metrics.consistency import metric_disagreements
from learners.metrics.cumulative import BRIEF, CumulativeSketch, CumulativeSketchState, CumulativeSketchView
from learners.metrics.definitions import FIGURES, LARGEST_LOSS, MetricSettings, Undefined, in_order, ordinary, tallies
from learners.metrics.drift import KINDS, Drift, DriftView
from learners.metrics.history import Axis, MetricHistory, MetricHistoryView
from learners.metrics.label_delays import MAX_DELAY
from learners.metrics.stream_stats import Derived, Scope, StreamStats, StreamStatsState, StreamStatsView
from learners.metrics.window import Sums, Window, WindowState, WindowView
from learners.numerics import WAITING, Counts, Issues, Ordered, Vector, Words, bare_kernel, counters

__all__ = ["HISTORY_COLUMNS", "BinaryMetrics", "BinaryMetricsView", "history_stride"]

_OF_WINDOW = (
    "events",
    "clock",
    "served",
    "auc",
    "auc_low",
    "auc_high",
    "average_precision",
    "partial_auc",
    "ks",
    "recall_at_fpr",
    "precision_at_k",
    "f1",
    "fbeta",
    "precision",
    "recall",
    "fpr",
    "accuracy",
    "mcc",
    "alert_rate",
    "brier",
    "log_loss",
    "calibration_error",
    "label_delay_median",
    "label_delay_p90",
    "label_coverage",
    "events_per_second",
    "served_alert_rate",
    "threshold",
    "positives",
    "alerts",
)
_SINCE_START = (*(f"since_start_{name}" for name in BRIEF), "since_start_label_coverage")
HISTORY_COLUMNS = (*_OF_WINDOW, *_SINCE_START)
_WHOLE = ("positives", "alerts")
_RANGES = {  # of what a figure can be; `threshold` may be any number
    **dict.fromkeys((*_OF_WINDOW[_OF_WINDOW.index("auc") : _OF_WINDOW.index("threshold")], *_SINCE_START), (0.0, 1.0)),
    "mcc": (-1.0, 1.0),
    "log_loss": (0.0, LARGEST_LOSS),
    "label_delay_median": (0.0, MAX_DELAY),
    "label_delay_p90": (0.0, MAX_DELAY),
    "events_per_second": (0.0, math.inf),
}
_DUPLICATES, _CORRECTIONS, _ASSUMED = range(3)


class _Part(Protocol):
    def state(self) -> dict[str, NDArray[np.generic]]: ...
    def restore(self, state: dict[str, NDArray[np.generic]]) -> None: ...
    def problems(self, state: dict[str, NDArray[np.generic]]) -> Issues: ...


def history_stride(size: int) -> int:
    """Steps (see `history.py`) between two rows of the history of a window of `size`.

    A row takes a pass over the window, and one over the sketch: so many steps apart, that is well under a microsecond
    for each of them.
    """
    return 1 << (max(64, -(-size // 64)) - 1).bit_length()


@bare_kernel
def _counted(y, delays):  # type: ignore[no-untyped-def]
    """How many labels are positive, and how many delays are known."""
    positives = known = 0
    for i in range(y.shape[0]):
        if y[i] > 0.0:
            positives += 1
        if not np.isnan(delays[i]):
            known += 1
    return positives, known


@bare_kernel
def _take(parts, size, seconds, scores, probabilities, y, decisions, clocks, delays, hashes, late):  # type: ignore[no-untyped-def]
    """Take labelled events into window, sketch and traffic, one after the other; see `BinaryMetrics.learn`.

    `parts` as plain tuples, which a call takes in a third of the time of named ones.
    """
    ring, counts = WindowState(*parts[0]), CumulativeSketchState(*parts[2])
    negatives, positives, confusion, losses, bins, mass = parts[1]
    sums = Sums(Ordered(*negatives), Ordered(*positives), confusion, losses, bins, mass)
    flow, (known, table, flagged) = StreamStatsState(*parts[3]), parts[4]
    derived = Derived(Ordered(*known), table, flagged)
    for i in range(y.shape[0]):
        label, decision, score = (1 if y[i] > 0.0 else 0), decisions[i], ordinary(scores[i])
        told = tallies(probabilities[i], label)
        window.take(ring, sums, size, seconds, score, probabilities[i], label, decision, clocks[i], told)
        sketch.take(counts, label, score, decision, told, 1)
        traffic.take(flow, derived, size, seconds, clocks[i], delays[i], hashes[i], late[i])


class BinaryMetrics:
    """The live figures of one learner."""

    # what the shapes of a state follow from
    counted = ("window_span", "traffic_span", "traffic_served", "history_count", "drift_negatives")

    def __init__(self, size: int, seconds: float | None = None, settings: MetricSettings | None = None) -> None:
        self.size = size
        self.seconds = seconds
        self.settings = MetricSettings() if settings is None else settings
        self._counters: Counts = np.zeros(3, dtype=np.int64)  # duplicates, corrections, labels assumed negative
        self._window = Window(size, seconds)
        self._sketch = CumulativeSketch()
        self._traffic = StreamStats(size, seconds)
        ranges = {**_RANGES, **dict.fromkeys(_WHOLE, (0.0, float(size)))}
        self._history = MetricHistory(HISTORY_COLUMNS, history_stride(size), ranges, _WHOLE)
        self._drift = Drift()
        self._view: BinaryMetricsView | None = None  # of the present moment, once somebody has asked for it

    @property
    def _parts(self) -> dict[str, _Part]:
        return {
            "window": self._window,
            "sketch": self._sketch,
            "traffic": self._traffic,
            "history": self._history,
            "drift": self._drift,
        }

    @property
    def events(self) -> int:
        """Labelled events learnt."""
        return self._window.events

    @property
    def steps(self) -> int:
        """Labelled events learnt, and events served under an id: what the rows of the history are counted by."""
        return self._window.events + self._traffic.served

    @property
    def counts(self) -> Counts:
        """Labelled events learnt, (2,): negatives, positives."""
        return self._sketch.arrays.counts

    @property
    def clock(self) -> float:
        """The largest time of an event or a label so far; NaN before there was one."""
        return self._traffic.clock

    @property
    def alarm_count(self) -> int:
        """Drift alarms so far."""
        return int(self._drift.count.sum())

    # What happens

    def tick(self, times: Vector) -> Vector:
        """The clock after each of n times, (n,); NaN does not move it. Goes before what else is told of the events."""
        self._view = None
        return self._traffic.tick(times)

    def learn(
        self,
        scores: Vector,
        probabilities: Vector,
        thresholds: Vector,
        y: Vector,
        decisions: NDArray[np.int64],
        clocks: Vector,
        delays: Vector,
        hashes: Words,
        late: NDArray[np.bool_],
    ) -> None:
        """Take n labelled events that are new, columns of (n,) in order.

        What was said of each before its label was known: `scores` (NaN counts as 0), `probabilities`, the `thresholds`
        in force, `decisions` 0 or 1; labels `y` -1 and +1, `clocks` from `tick`; the label's delay in seconds (NaN:
        unknown), and the hash of the id and whether the event had been served under it.
        """
        self._view = None
        n, first = len(y), self.events
        columns = scores, probabilities, y, decisions, clocks, delays, hashes, late, thresholds
        if n <= WAITING:
            self._take(*columns)
        else:
            for start in range(0, n, WAITING):
                self._take(*(column[start : start + WAITING] for column in columns))
        self._drift.learn(scores, y, first, clocks)

    def _take(self, *columns: Any) -> None:
        """Take so many events that they may wait together, columns as of `learn`, the thresholds last."""
        _, _, y, _, clocks, delays, _, _, thresholds = columns
        n = len(y)
        positives, known = _counted(y, delays)
        self._window.reserve(n - positives, positives)
        self._traffic.reserve(n, known)
        sums, derived = self._window.sums, self._traffic.derived
        parts = (
            tuple(self._window.arrays),
            (tuple(sums.negatives), tuple(sums.positives), *sums[2:]),
            tuple(self._sketch.arrays),
            tuple(self._traffic.arrays),
            (tuple(derived.delays), *derived[1:]),
        )
        start = 0
        while start < n:
            due = start + self._history.due(self.steps)
            stop = min(n, due)
            part = columns[:-1] if stop - start == n else [column[start:stop] for column in columns[:-1]]
            _take(parts, self.size, self._window.age, *part)
            if stop == due:
                self._note(float(thresholds[stop - 1]), float(clocks[stop - 1]))
            start = stop

    def _note(self, threshold: float, clock: float) -> None:
        """Add the row of the history that is due at this moment, if one is.

        `threshold` is that of the last event, and `clock` that at it: the one of traffic may be that of a later event.
        """
        if self._history.due(self.steps):
            return
        traffic_view = self._traffic.view()._replace(clock=clock)
        _, fp, fn, tp = self._window.sums.confusion.tolist()
        row = (
            *(self.events, clock, self._traffic.served),
            *self._window.values(self.settings),
            *traffic_view.values(),
            *(threshold, fn + tp, fp + tp),
            *self._sketch.view().brief(),
            traffic_view.coverage,
        )
        self._history.add(np.array(row, dtype=np.float64))  # None is NaN then

    def serve(
        self,
        hashes: Words,
        scores: Vector,
        thresholds: Vector | None,
        decisions: NDArray[np.int64],
        clocks: Vector,
        ready: bool = True,
    ) -> None:
        """Take n events that were answered without a label: columns of (n,) in order, as in `learn`.

        `thresholds` may be unknown (None). What was said before the learner was `ready` is no reference: that it
        changes then is no drift.
        """
        self._view = None
        start = 0
        while start < len(hashes):
            stop = start + self._traffic.serve(hashes[start:], decisions[start:], self._history.due(self.steps))
            self.advance(float(clocks[stop - 1]))
            self._note(math.nan if thresholds is None else float(thresholds[stop - 1]), float(clocks[stop - 1]))
            start = stop
        if ready:
            self._drift.serve(np.where(np.isnan(scores), 0.0, scores), self.events, clocks)

    def advance(self, clock: float) -> None:
        """Nothing happened until `clock` (NaN: unknown), no earlier than any so far: what is too old leaves the window.

        `learn` and `serve` do so by themselves.
        """
        self._view = None
        self._window.advance(clock)
        self._traffic.advance(clock)

    def correct(self, number: int, was: int, label: int, score: float, probability: float, decision: int) -> None:
        """The event of that number has the label 0 or 1, not `was`: from now on as if it had been so from the start.

        With what was said of it when it was learnt. The rows of the history and the alarms stay as they were.
        """
        if was == label:
            return
        self._view = None
        self._window.correct(int(number), int(label))
        self._sketch.correct(int(was), int(label), 0.0 if math.isnan(score) else score, probability, int(decision))
        self._counters[_CORRECTIONS] += 1

    def change(self, settings: MetricSettings) -> None:
        """Tell the figures by other settings from now on; the rows of the history stay as they were."""
        self._view = None
        self.settings = settings

    def label(self, h: int) -> None:
        """The label of a served event, by the hash of its id, has come after another; see `StreamStats.label`."""
        self._view = None
        self._traffic.label(h)

    def skip(self, duplicates: int) -> None:
        """So many events were duplicates, and were left out."""
        self._view = None
        self._counters[_DUPLICATES] += duplicates

    def assume(self, count: int) -> None:
        """So many of the labels learnt were not given, but assumed to be negative."""
        self._view = None
        self._counters[_ASSUMED] += count

    # Saving

    def state(self) -> dict[str, NDArray[np.generic]]:
        """The arrays of the state: those of each part as <part>_<name>, and `counters`."""
        out: dict[str, NDArray[np.generic]] = {"counters": self._counters}
        for part, one in self._parts.items():
            out.update({f"{part}_{name}": array for name, array in one.state().items()})
        return out

    def _of(self, part: str, state: dict[str, NDArray[np.generic]]) -> dict[str, NDArray[np.generic]]:
        return {name: state[f"{part}_{name}"] for name in self._parts[part].state()}

    def shapes(self, state: dict[str, NDArray[np.generic]]) -> dict[str, tuple[int, ...]]:
        """The shapes that the arrays of a state have by the counts in it.

        Those counts, `window_span`, `traffic_span`, `traffic_served`, `history_count` and `drift_negatives`, have the
        same shape in every state. Rings are of the power of two that holds what entered them, from 64 up to the
        window's size or, of `drift`, to 8192; the history has a level more for each doubling of its rows.
        """
        out = {name: array.shape for name, array in self.state().items()}
        for part in (self._window, self._traffic, self._history, self._drift):
            name = next(name for name, one in self._parts.items() if one is part)
            own = part.shapes(self._of(name, state))
            out.update({f"{name}_{array}": shape for array, shape in own.items()})
        return out

    def problems(self, state: dict[str, NDArray[np.generic]]) -> Issues:
        """What no events can have led to in a state of the right shapes. O(window log window)."""
        wrong = list(counters({"counters": state["counters"]}))
        for part, one in self._parts.items():
            wrong += [(f"{part}_{name}", detail) for name, detail in one.problems(self._of(part, state))]
        yield from wrong
        if wrong:
            return
        events, counts = int(state["window_span"][1]), state["sketch_counts"]
        if counts.sum() != events:
            yield "sketch_counts", f"is of {counts.sum()} labelled events; the window has met {events}"
        if state["drift_negatives"][0] > events:
            yield "drift_negatives", f"is {state['drift_negatives'][0]} after {events} events"
        if int(state["drift_began"][0]) + int(state["drift_placements"][0]) > events:
            yield "drift_began", f"is {state['drift_began'][0]} after {events} events"
        yield from metric_disagreements(state, "window_", self.size, self._history.stride)
        held = np.arange(*state["window_span"].tolist()) % self.size
        cells = 2 * state["window_labels"][held].astype(np.int64) + state["window_decisions"][held]
        total: Counts = state["sketch_confusion"]  # type: ignore[assignment]
        if (np.bincount(cells, minlength=4) > total).any():
            yield "sketch_confusion", "is less than that of the window"

    def restore(self, state: dict[str, NDArray[np.generic]]) -> None:
        """Take the arrays of a state."""
        self._view = None
        self._counters = np.array(state["counters"], dtype=np.int64)
        for part, one in self._parts.items():
            one.restore(self._of(part, state))

    # Looking

    def view(self) -> BinaryMetricsView:
        """The figures as they stand: right until the next change, or for good once `frozen()`."""
        if self._view is None:
            self._view = BinaryMetricsView(
                self.size,
                self.seconds,
                self.settings,
                self.counts,
                self._counters,
                self._window.view(),
                self._sketch.view(),
                self._traffic.view(),
                self._history.view(),
                self._drift.view(),
                {},
            )
        return self._view


class BinaryMetricsView(NamedTuple):
    """What readers of the figures need, at one moment."""

    size: int
    seconds: float | None
    settings: MetricSettings
    counts: Counts  # (2,) labelled events: negatives, positives
    counters: Counts  # (3,) duplicates, corrections, labels assumed negative
    window: WindowView
    sketch: CumulativeSketchView
    traffic: StreamStatsView
    rows: MetricHistoryView
    drift: DriftView
    memory: dict[str, Any]  # what has been worked out already

    @property
    def clock(self) -> float:
        """The learner's clock, in seconds; NaN while it is not known."""
        return self.traffic.clock

    def frozen(self) -> BinaryMetricsView:
        """A copy that stays as it is; the same one for all who ask at one moment. O(window): 8 bytes an event."""
        if "frozen" not in self.memory:
            copy = self._replace(
                counts=self.counts.copy(),
                counters=self.counters.copy(),
                window=self.window.frozen(),
                sketch=self.sketch.frozen(),
                traffic=self.traffic.frozen(),
                rows=self.rows.frozen(),
                drift=self.drift.frozen(),
                memory=self.memory.copy(),
            )
            copy.memory["frozen"] = copy
            self.memory["frozen"] = copy
        frozen: BinaryMetricsView = self.memory["frozen"]
        return frozen

    def as_json(self) -> dict[str, Any]:
        """The figures as JSON: numbers, or null with the reason under `undefined`.

        Worked out once for each moment, then kept: not to be changed by those who get it. O(window) at most.
        """
        if "document" not in self.memory:
            self.memory["document"] = self._document()
        document: dict[str, Any] = self.memory["document"]
        return document

    def _document(self) -> dict[str, Any]:
        undefined: dict[str, str] = {}
        counts, traffic = self.counts.tolist(), self.traffic
        served, alerts, labelled = traffic.served
        alert_rate = Undefined("served", undefined).ratio("alert_rate", alerts, served, "no served events")
        if math.isnan(traffic.clock):
            undefined["/clock"] = "no event and no label with a time yet"
        scopes: dict[Scope, dict[str, Any]] = {}
        parts: dict[Scope, WindowView | CumulativeSketchView] = {"window": self.window, "since_start": self.sketch}
        for scope, part in parts.items():
            figures, reasons = part.figures(self.settings)
            more, why = traffic.figures(scope)
            undefined.update(reasons)
            undefined.update({at: reason for at, reason in why.items() if at.rpartition("/")[2] in FIGURES})
            scopes[scope] = in_order({**figures, **more})
        return {
            "events": sum(counts),
            "class_counts": {"negative": counts[0], "positive": counts[1]},
            "duplicates": int(self.counters[_DUPLICATES]),
            "corrections": int(self.counters[_CORRECTIONS]),
            "assumed": int(self.counters[_ASSUMED]),
            "served": {"events": served, "labelled": labelled, "alert_rate": alert_rate},
            "clock": None if math.isnan(traffic.clock) else traffic.clock,
            "settings": self.settings.to_json(),
            "window": {"size": self.size, "seconds": self.seconds, **scopes["window"]},
            "since_start": scopes["since_start"],
            "undefined": undefined,
        }

    def curves(self, points: int = 200) -> dict[str, Any]:
        """The curves of the window; see `curves.py`. Some tens of milliseconds for a window of 100,000."""
        return self.window.curves(points)

    def history(
        self,
        start: float | None = None,
        stop: float | None = None,
        step: float | None = None,
        by: Axis = "events",
    ) -> dict[str, Any]:
        """The figures over time; see `MetricHistoryView.points`. Raises ValueError for a `step` not above 0."""
        points = self.rows.points(start, stop, step, by)
        return {"columns": list(self.rows.columns), "points": [_whole(point) for point in points]}

    @property
    def point_count(self) -> int:
        """Points of the history so far: the number of the latest one."""
        return int(self.rows.met[0])

    def points_since(self, number: int) -> list[tuple[int, dict[str, Any]]]:
        """The points of the history after the one of that number, each behind its own."""
        return [(one, _whole(point)) for one, point in self.rows.since(number)]

    @property
    def alarm_counts(self) -> dict[str, int]:
        """Alarms so far, by kind."""
        return dict(zip(KINDS, self.drift.by_kind.tolist(), strict=True))

    @property
    def alarm_count(self) -> int:
        """Alarms so far."""
        return int(self.drift.by_kind.sum())

    def alarms(self, since: int = 0) -> list[dict[str, Any]]:
        """The drift alarms from number `since` on, as far as they are kept."""
        return self.drift.alarms(since)


def _whole(point: dict[str, Any]) -> dict[str, Any]:
    """The point, these counts as whole numbers too."""
    return {**point, **{name: int(point[name]) for name in _WHOLE}}
