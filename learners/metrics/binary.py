"""Live metrics of a learner of two classes: over the last labelled events, since the start, and over time.

Five parts see the events:

    window   exact metrics of the last `size` labelled events, or `seconds`     `window.py`
    sketch   the same since the start, in fixed memory, with error bounds       `cumulative.py`
    traffic  clock, label delays, label coverage, rates                         `stream_stats.py`
    history  the metrics at regular steps, thinned with age                     `history.py`
    drift    alarms: a fall of the AUC, a change of the scores                  `drift.py`, `alarm_life.py`
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learners.metrics import cumulative, stream_stats, window
from learners.metrics.consistency import metric_disagreements
from learners.metrics.cumulative import BRIEF, CumulativeSketch, CumulativeSketchState, CumulativeSketchView
from learners.metrics.definitions import FIGURES, LARGEST_LOSS, MetricSettings, Undefined, in_order, ordinary, tallies
from learners.metrics.history import MetricHistory
from learners.metrics.label_delays import MAX_DELAY
from learners.metrics.live import CORRECTIONS, DUPLICATES, EXPIRED, Arrays, LiveMetrics, LiveMetricsView
from learners.metrics.stream_stats import Scope, StreamStatsState, StreamStatsView, StreamTotals
from learners.metrics.window import Sums, Window, WindowColumns, WindowState, WindowView
from learners.numerics import WAITING, Counts, Issues, MultisetArrays, Vector, Words, bare_kernel, counters

__all__ = ["HISTORY_COLUMNS", "BinaryMetrics", "BinaryMetricsView", "history_stride"]

_WINDOW_COLUMNS = (
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
_SHARES = _WINDOW_COLUMNS[_WINDOW_COLUMNS.index("auc") : _WINDOW_COLUMNS.index("threshold")]
_SINCE_START = (*(f"since_start_{name}" for name in BRIEF), "since_start_label_coverage")
HISTORY_COLUMNS = (*_WINDOW_COLUMNS, *_SINCE_START)
_COUNTS = ("positives", "alerts")
_RANGES = {  # of the columns; `threshold` may be any number
    **dict.fromkeys((*_SHARES, *_SINCE_START), (0.0, 1.0)),
    "mcc": (-1.0, 1.0),
    "log_loss": (0.0, LARGEST_LOSS),
    "label_delay_median": (0.0, MAX_DELAY),
    "label_delay_p90": (0.0, MAX_DELAY),
    "events_per_second": (0.0, math.inf),
}


def history_stride(size: int) -> int:
    """Return the steps between two rows of the history of a window of `size`; see `history.py`.

    A row takes a pass over the window and one over the sketch. Spread over its steps, that is well under a microsecond
    each.
    """
    return 1 << (max(64, -(-size // 64)) - 1).bit_length()


@bare_kernel
def _count(y, delays):  # type: ignore[no-untyped-def]
    """Count the positive labels and the known delays."""
    positives = delayed = 0
    for i in range(y.shape[0]):
        if y[i] > 0.0:
            positives += 1
        if not np.isnan(delays[i]):
            delayed += 1
    return positives, delayed


@bare_kernel
def _take(parts, size, seconds, scores, probabilities, y, decisions, clocks, delays, hashes, late):  # type: ignore[no-untyped-def]
    """Take labelled events into window, sketch and stream statistics, one by one; see `BinaryMetrics.learn`.

    `parts` are plain tuples, because numba unpacks them in a third of the time of named ones.
    """
    ring, counts = WindowState(*parts[0]), CumulativeSketchState(*parts[2])
    negatives, positives, confusion, losses, bins, mass = parts[1]
    sums = Sums(MultisetArrays(*negatives), MultisetArrays(*positives), confusion, losses, bins, mass)
    stream, (delays_in_order, table, flagged) = StreamStatsState(*parts[3]), parts[4]
    derived = StreamTotals(MultisetArrays(*delays_in_order), table, flagged)
    for i in range(y.shape[0]):
        label, decision, score = (1 if y[i] > 0.0 else 0), decisions[i], ordinary(scores[i])
        terms = tallies(probabilities[i], label)
        window.take(ring, sums, size, seconds, score, probabilities[i], label, decision, clocks[i], terms)
        cumulative.take(counts, label, score, decision, terms, 1)
        stream_stats.take(stream, derived, size, seconds, clocks[i], delays[i], hashes[i], late[i])


@dataclass(eq=False, kw_only=True)
class BinaryMetricsView(LiveMetricsView):
    """The metrics of two classes at one moment."""

    window: WindowView
    sketch: CumulativeSketchView

    def _document(self) -> dict[str, Any]:
        undefined: dict[str, str] = {}
        counts, stats = self.counts.tolist(), self.stats
        served, alerts, labelled = stats.served
        alert_rate = Undefined("served", undefined).ratio("alert_rate", alerts, served, "no served events")
        if math.isnan(stats.clock):
            undefined["/clock"] = "no event and no label with a time yet"
        scopes: dict[Scope, dict[str, Any]] = {}
        parts: dict[Scope, WindowView | CumulativeSketchView] = {"window": self.window, "since_start": self.sketch}
        for scope, part in parts.items():
            metrics, reasons = part.figures(self.settings)
            more, why = stats.figures(scope)
            undefined.update(reasons)
            undefined.update({at: reason for at, reason in why.items() if at.rpartition("/")[2] in FIGURES})
            scopes[scope] = in_order({**metrics, **more})
        return {
            "events": sum(counts),
            "class_counts": {"negative": counts[0], "positive": counts[1]},
            "duplicates": int(self.counters[DUPLICATES]),
            "corrections": int(self.counters[CORRECTIONS]),
            "assumed": int(self.counters[EXPIRED]),
            "served": {"events": served, "labelled": labelled, "alert_rate": alert_rate},
            "clock": None if math.isnan(stats.clock) else stats.clock,
            "settings": self.settings.to_json(),
            "window": {"size": self.size, "seconds": self.seconds, **scopes["window"]},
            "since_start": scopes["since_start"],
            "undefined": undefined,
        }

    def curves(self, points: int = 200) -> dict[str, Any]:
        """Return the curves of the window; see `curves.py`. Takes tens of milliseconds for a window of 100,000."""
        return self.window.curves(points)


class BinaryMetrics(LiveMetrics[BinaryMetricsView]):
    """The live metrics of one learner of two classes."""

    counted = ("window_span", *LiveMetrics.counted)

    def __init__(self, size: int, seconds: float | None = None, settings: MetricSettings | None = None) -> None:
        ranges = {**_RANGES, **dict.fromkeys(_COUNTS, (0.0, float(size)))}
        super().__init__(size, seconds, settings, MetricHistory(HISTORY_COLUMNS, history_stride(size), ranges, _COUNTS))
        self._counters: Counts = np.zeros(3, dtype=np.int64)
        self._window = Window(size, seconds)
        self._sketch = CumulativeSketch()
        self._parts = {"window": self._window, "sketch": self._sketch, **self._parts}

    @property
    def events(self) -> int:
        """Labelled events learnt."""
        return self._window.events

    @property
    def counts(self) -> Counts:
        """Labelled events learnt, (2,): negatives, positives."""
        return self._sketch.arrays.counts

    @property
    def counters(self) -> Counts:
        """Duplicates, corrections, labels that expired."""
        return self._counters

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
        """Take n new labelled events; see `LiveMetrics.learn`.

        Labels are -1 and +1, decisions 0 and 1. A score of NaN counts as 0.
        """
        assert probabilities is not None
        assert thresholds is not None
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
        """Take at most `WAITING` events, with the columns of `learn`, the thresholds last."""
        _, _, y, _, clocks, delays, _, _, thresholds = columns
        n = len(y)
        positives, delayed = _count(y, delays)
        self._window.reserve(n - positives, positives)
        self._stats.reserve(n, delayed)
        sums, derived = self._window.sums, self._stats.derived
        parts = (
            tuple(self._window.arrays),
            (tuple(sums.negatives), tuple(sums.positives), *sums[2:]),
            tuple(self._sketch.arrays),
            tuple(self._stats.arrays),
            (tuple(derived.delays), *derived[1:]),
        )
        start = 0
        while start < n:
            end = start + self._history.steps_to_next(self.steps)
            stop = min(n, end)
            part = columns[:-1] if stop - start == n else [column[start:stop] for column in columns[:-1]]
            _take(parts, self.size, self._window.age, *part)
            if stop == end:
                self._add_due_row(float(thresholds[stop - 1]), float(clocks[stop - 1]))
            start = stop

    def columns(self) -> WindowColumns:
        """Copy the decisions on the events of the window. O(window)."""
        return self._window.columns()

    def _row(self, threshold: float | None, stats: StreamStatsView) -> tuple[float | None, ...]:
        _, fp, fn, tp = self._window.sums.confusion.tolist()
        return (
            *(self.events, stats.clock, self._stats.served),
            *self._window.values(self.settings),
            *stats.values(),
            *(threshold, fn + tp, fp + tp),
            *self._sketch.view().brief(),
            stats.coverage,
        )

    def _alerts(self, decisions: NDArray[np.int64]) -> NDArray[np.int64]:
        return decisions

    def _expire(self, clock: float) -> None:
        self._window.advance(clock)

    def _correct(self, number: int, before: int, label: int, score: float, probability: float, decision: int) -> None:
        if label > 0:
            self._drift.note_positive(self.events, self.clock)
        self._window.correct(number, label)
        self._sketch.correct(before, label, 0.0 if math.isnan(score) else score, probability, decision)

    def _arrays(self) -> Arrays:
        return {"counters": self._counters}

    def _own_problems(self, state: Arrays) -> Issues:
        yield from counters({"counters": state["counters"]})

    def _disagreements(self, state: Arrays) -> Issues:
        events, counts = int(state["window_span"][1]), state["sketch_counts"]
        if counts.sum() != events:
            yield "sketch_counts", f"is of {counts.sum()} labelled events; the window counted {events}"
        if state["drift_negatives"][0] > events:
            yield "drift_negatives", f"is {state['drift_negatives'][0]} after {events} events"
        if int(state["drift_began"][0]) + int(state["drift_placements"][0]) > events:
            yield "drift_began", f"is {state['drift_began'][0]} after {events} events"
        yield from metric_disagreements(state, "window_", self.size, self._history.stride)
        slots = np.arange(*state["window_span"].tolist()) % self.size
        cells = 2 * state["window_labels"][slots].astype(np.int64) + state["window_decisions"][slots]
        total: Counts = state["sketch_confusion"]  # type: ignore[assignment]
        if (np.bincount(cells, minlength=4) > total).any():
            yield "sketch_confusion", "is less than that of the window"

    def _restore(self, state: Arrays) -> None:
        self._counters = np.array(state["counters"], dtype=np.int64)

    def _make_view(self) -> BinaryMetricsView:
        return BinaryMetricsView(**self._shared(), window=self._window.view(), sketch=self._sketch.view())
