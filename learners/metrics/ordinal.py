"""Prequential figures of an ordinal learner: over the last `window` labelled events, and since the start.

Every figure is about ranks that were predicted before the label was known, and exact: mean absolute and mean squared
error and accuracy all follow from the confusion matrix of counts, true ranks by predicted ones. Each event changes one
entry of it, and one more when it leaves the window: O(1). A corrected label moves its event to another row.

All of it is part of the deterministic state; the window's matrix is derived from the ring and rebuilt on restore.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from learners.metrics.consistency import metric_disagreements
from learners.metrics.definitions import MetricSettings
from learners.metrics.drift import KINDS, Drift, DriftView
from learners.metrics.history import Axis, MetricHistory, MetricHistoryView
from learners.metrics.label_delays import MAX_DELAY
from learners.metrics.stream_stats import StreamStats, StreamStatsView
from learners.numerics import Counts, Issues, Vector, Words, counters, kernel, outside

__all__ = ["ORDINAL_HISTORY", "RankMetrics", "RankMetricsState", "RankMetricsView"]

ORDINAL_HISTORY = (
    "events",
    "clock",
    "served",
    "mae",
    "mse",
    "accuracy",
    "label_delay_median",
    "label_delay_p90",
    "label_coverage",
    "events_per_second",
    "since_start_mae",
    "since_start_accuracy",
    "since_start_label_coverage",
)
_STRIDE = 64  # steps between rows of the history
_LEAST = 64  # slots of the ring at first
_TOLD = ("label_delay_median", "label_delay_p90", "label_coverage", "events_per_second")  # by the traffic


class RankMetricsState(NamedTuple):
    """The arrays of the state that are not of another part."""

    counts: Counts  # (ranks,) labelled events by rank
    counters: Counts  # (2,) duplicates, corrections
    total: Counts  # (ranks, ranks) confusion since the start: true ranks by predicted ones
    span: Counts  # (2,) number of the window's first event, and of the next one to come
    labels: NDArray[np.int8]  # (capacity,) the window as a ring: event i stands at i % window
    decisions: NDArray[np.int8]  # (capacity,)
    clocks: Vector  # (capacity,)


class _Window(NamedTuple):
    """What is derived from the ring."""

    confusion: Counts  # (ranks, ranks)
    errors: Counts  # (3,) sums of |true - predicted| and of its square, wrong predictions


@kernel
def _count(window, label, decision, sign):  # type: ignore[no-untyped-def]
    """An event enters the window (`sign` 1) or leaves it (-1)."""
    distance = abs(label - decision)
    window.confusion[label - 1, decision - 1] += sign
    window.errors[0] += sign * distance
    window.errors[1] += sign * distance * distance
    if label != decision:
        window.errors[2] += sign


@kernel
def _errors(confusion):  # type: ignore[no-untyped-def]
    """Of a confusion matrix: the sums of |true - predicted| and of its square, and how many predictions are right."""
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
    slot = state.span[0] % size
    _count(window, np.int64(state.labels[slot]), np.int64(state.decisions[slot]), -1)
    state.span[0] += 1


@kernel
def _expire(state, window, size, seconds, clock):  # type: ignore[no-untyped-def]
    """Events leave that are too old at `clock`, and with a clock known those from before there was one."""
    if np.isnan(clock) or seconds == np.inf:
        return
    while state.span[0] < state.span[1] and not state.clocks[state.span[0] % size] > clock - seconds:
        _leave(state, window, size)


@kernel
def _learn(state, window, size, seconds, y, decisions, clocks):  # type: ignore[no-untyped-def]
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
        _expire(state, window, size, seconds, clocks[i])  # the clock may not resolve the seconds: it leaves at once


@kernel
def _refill(state, window, size):  # type: ignore[no-untyped-def]
    for number in range(state.span[0], state.span[1]):
        slot = number % size
        _count(window, np.int64(state.labels[slot]), np.int64(state.decisions[slot]), 1)


def _capacity(events: int, size: int) -> int:
    """Slots of the ring after so many events: powers of two up to its size."""
    return min(size, max(_LEAST, 1 << (max(1, min(events, size)) - 1).bit_length()))


class RankMetrics:
    """The live figures of one learner whose labels are the ranks 1 to `ranks` (at most 127)."""

    counted = (
        "span",
        "traffic_span",
        "traffic_served",
        "history_count",
        "drift_negatives",
    )  # what the shapes of a state follow from

    def __init__(self, size: int, seconds: float | None, ranks: int) -> None:
        self.size = size
        self.seconds = seconds
        self.ranks = ranks
        capacity = _capacity(0, size)
        self.arrays = RankMetricsState(
            counts=np.zeros(ranks, dtype=np.int64),
            counters=np.zeros(2, dtype=np.int64),
            total=np.zeros((ranks, ranks), dtype=np.int64),
            span=np.zeros(2, dtype=np.int64),
            labels=np.zeros(capacity, dtype=np.int8),
            decisions=np.zeros(capacity, dtype=np.int8),
            clocks=np.zeros(capacity),
        )
        self._traffic = StreamStats(size, seconds)
        farthest = ranks - 1.0
        ranges = {
            **dict.fromkeys(("mae", "since_start_mae"), (0.0, farthest)),
            "mse": (0.0, farthest**2),
            **dict.fromkeys(("accuracy", "since_start_accuracy"), (0.0, 1.0)),
            **dict.fromkeys(("label_coverage", "since_start_label_coverage"), (0.0, 1.0)),
            **dict.fromkeys(("label_delay_median", "label_delay_p90"), (0.0, MAX_DELAY)),
            "events_per_second": (0.0, math.inf),
        }
        self._history = MetricHistory(ORDINAL_HISTORY, _STRIDE, ranges)
        self._drift = Drift()
        self._rebuild()

    @property
    def events(self) -> int:
        """Labelled events learnt."""
        return int(self.arrays.span[1])

    @property
    def steps(self) -> int:
        """Labelled events learnt, and events served under an id: what the rows of the history are counted by."""
        return self.events + self._traffic.served

    @property
    def clock(self) -> float:
        """The largest time so far, in seconds; NaN before there was one."""
        return self._traffic.clock

    @property
    def counts(self) -> Counts:
        """Labelled events learnt, (ranks,)."""
        return self.arrays.counts

    @property
    def alarm_count(self) -> int:
        """Drift alarms so far."""
        return int(self._drift.count.sum())

    def _rebuild(self) -> None:
        self._derived = _Window(np.zeros((self.ranks, self.ranks), dtype=np.int64), np.zeros(3, dtype=np.int64))
        _refill(self.arrays, self._derived, self.size)

    # Moving forward

    def tick(self, times: Vector) -> Vector:
        """The clock after each of n times, (n,), which move it; NaN does not."""
        return self._traffic.tick(times)

    def learn(
        self,
        scores: Vector,  # noqa: ARG002 - the figures of ranks have no use for what is behind them
        probabilities: Vector | None,  # noqa: ARG002
        thresholds: Vector | None,  # noqa: ARG002
        y: Vector,
        decisions: Counts,
        clocks: Vector,
        delays: Vector,
        hashes: Words,
        late: NDArray[np.bool_],
    ) -> None:
        """Count n new events: their ranks `y`, and the ranks `decisions` predicted before; columns of (n,)."""
        start = 0
        while start < len(y):
            cut = slice(start, min(len(y), start + self._history.due(self.steps)))
            self._reserve(self.events + len(y[cut]))
            labels = y[cut].astype(np.float64)
            seconds = math.inf if self.seconds is None else self.seconds
            _learn(self.arrays, self._derived, self.size, seconds, labels, decisions[cut], clocks[cut])
            self._traffic.learn(clocks[cut], delays[cut], hashes[cut], late[cut])
            self._note(float(clocks[cut.stop - 1]))
            start = cut.stop

    def serve(
        self,
        hashes: Words,
        scores: Vector,
        thresholds: Vector | None,  # noqa: ARG002 - as in `learn`
        decisions: Counts,
        clocks: Vector,
        ready: bool = True,
    ) -> None:
        """Count n events that were served, their labels unknown; columns of (n,). See `Metrics.serve`."""
        called = np.zeros_like(decisions)  # ranks are no alerts
        start = 0
        while start < len(hashes):
            start += self._traffic.serve(hashes[start:], called[start:], self._history.due(self.steps))
            self.advance(float(clocks[start - 1]))
            self._note(float(clocks[start - 1]))
        if ready:
            self._drift.serve(scores, self.events, clocks)

    def advance(self, clock: float) -> None:
        """Nothing happened until `clock` (NaN: unknown), no earlier than any so far: what is too old leaves the window.

        `learn` and `serve` do so by themselves.
        """
        seconds = math.inf if self.seconds is None else self.seconds
        _expire(self.arrays, self._derived, self.size, seconds, clock)
        self._traffic.advance(clock)

    def correct(
        self,
        number: int,
        was: float,
        label: float,
        score: float,  # noqa: ARG002
        probability: float,  # noqa: ARG002
        decision: int,
    ) -> None:
        """Event `number`, of rank `was`, has another: all is as if it had been so from the start."""
        before, after = int(was), int(label)
        state = self.arrays
        state.counters[1] += 1
        state.counts[before - 1] -= 1
        state.counts[after - 1] += 1
        state.total[before - 1, decision - 1] -= 1
        state.total[after - 1, decision - 1] += 1
        if number >= state.span[0]:
            state.labels[number % self.size] = after
            _count(self._derived, before, decision, -1)
            _count(self._derived, after, decision, 1)

    def change(self, settings: MetricSettings) -> None:
        """The settings are about two classes."""

    def label(self, h: int) -> None:
        """The label of a served event, by the hash of its id, has come after another; see `StreamStats.label`."""
        self._traffic.label(h)

    def skip(self, duplicates: int) -> None:
        """So many events were duplicates."""
        self.arrays.counters[0] += duplicates

    def assume(self, count: int) -> None:
        """Labels of ranks are never assumed."""
        assert not count

    def _note(self, clock: float) -> None:
        """Add the row that is due at this moment, if one is; the clock of traffic may be that of a later event."""
        if self._history.due(self.steps):
            return
        traffic = self._traffic.view()._replace(clock=clock)
        figures, _ = traffic.figures("window")
        held = int(self.arrays.span[1] - self.arrays.span[0])
        errors, squares, wrong = self._derived.errors.tolist()
        of_window = [one / held if held else None for one in (errors, squares, held - wrong)]
        absolute, _, right = _errors(self.arrays.total)
        since_start = [one / self.events if self.events else None for one in (absolute, right)]
        told = [figures[name] for name in _TOLD]
        row = [self.events, clock, self._traffic.served, *of_window, *told, *since_start, traffic.coverage]
        self._history.add(np.array([math.nan if one is None else one for one in row]))

    def _reserve(self, events: int) -> None:
        held, capacity = len(self.arrays.labels), _capacity(events, self.size)
        if held < capacity:
            labels, decisions, clocks = np.zeros(capacity, np.int8), np.zeros(capacity, np.int8), np.zeros(capacity)
            labels[:held], decisions[:held] = self.arrays.labels, self.arrays.decisions
            clocks[:held] = self.arrays.clocks
            self.arrays = self.arrays._replace(labels=labels, decisions=decisions, clocks=clocks)

    # Saving

    def state(self) -> dict[str, NDArray[np.generic]]:
        """The arrays of the state."""
        parts = {"traffic": self._traffic.state(), "history": self._history.state(), "drift": self._drift.state()}
        inner = {f"{part}_{name}": array for part, arrays in parts.items() for name, array in arrays.items()}
        return {**self.arrays._asdict(), **inner}

    def shapes(self, state: dict[str, NDArray[np.generic]]) -> dict[str, tuple[int, ...]]:
        """The shapes that the arrays of a state have by its counts."""
        ring = (_capacity(int(state["span"][1]), self.size),)
        own = {name: array.shape for name, array in self.arrays._asdict().items()}
        own |= dict.fromkeys(("labels", "decisions", "clocks"), ring)
        for part, machine in (("traffic", self._traffic), ("history", self._history), ("drift", self._drift)):
            own |= {f"{part}_{name}": shape for name, shape in machine.shapes(_part(part, state)).items()}
        return own

    def problems(self, state: dict[str, NDArray[np.generic]]) -> Issues:
        """What no events can have led to in a state of the right shapes. O(window + ranks^2)."""
        wrong = list(counters({name: state[name] for name in ("counts", "counters", "total", "span")}))
        if np.isinf(state["clocks"].astype(np.float64)).any():
            wrong.append(("clocks", "has infinite numbers"))
        for part, machine in (("traffic", self._traffic), ("history", self._history), ("drift", self._drift)):
            wrong += [(f"{part}_{name}", detail) for name, detail in machine.problems(_part(part, state))]
        yield from wrong
        if wrong:
            return
        arrays = RankMetricsState(**{name: state[name] for name in RankMetricsState._fields})  # type: ignore[arg-type]
        if (arrays.total.sum(axis=1) != arrays.counts).any():
            yield "total", "does not add up to the counts of the ranks"
        first, following = arrays.span.tolist()
        oldest = max(0, following - self.size)
        if following != arrays.counts.sum():
            yield "span", f"ends at {following}, which is not how many events there were"
        elif not oldest <= first <= following or (self.seconds is None and first != oldest):
            yield "span", f"begins at {first}; expected {oldest} to {following}"
        elif len(arrays.labels) != _capacity(following, self.size):
            yield "span", f"ends at {following}, which does not go with {len(arrays.labels)} slots"
        else:
            held = np.arange(first, following) % self.size
            ranked = [(name, getattr(arrays, name)[held]) for name in ("labels", "decisions")]
            wrong = [issue for name, array in ranked for issue in outside(name, array, 1, self.ranks)]
            yield from wrong
            if not wrong:
                rest = arrays.total.copy()
                np.subtract.at(rest, tuple(array.astype(np.int64) - 1 for _, array in ranked), 1)
                if (rest < 0).any():
                    yield "total", "is less than that of the window"
            yield from metric_disagreements(state, "", self.size, _STRIDE)

    def restore(self, state: dict[str, NDArray[np.generic]]) -> None:
        """Take the arrays of a state."""
        own = self.arrays._asdict()
        self.arrays = RankMetricsState(
            **{name: np.array(state[name], dtype=own[name].dtype, order="C") for name in own}
        )
        self._traffic.restore(_part("traffic", state))
        self._history.restore(_part("history", state))
        self._drift.restore(_part("drift", state))
        self._rebuild()

    def view(self) -> RankMetricsView:
        """The figures as they stand: right until the next `learn`, or for good once `frozen()`."""
        state = self.arrays
        return RankMetricsView(
            self.size,
            self.seconds,
            self.clock,
            state.counts,
            state.counters,
            state.total,
            self._derived.confusion,
            self._traffic.view(),
            self._history.view(),
            self._drift.view(),
        )


def _part(part: str, state: dict[str, NDArray[np.generic]]) -> dict[str, NDArray[np.generic]]:
    prefix = f"{part}_"
    return {name.removeprefix(prefix): array for name, array in state.items() if name.startswith(prefix)}


class RankMetricsView(NamedTuple):
    """What a reader of the figures needs: a small part of the state, so that it can be copied at any time."""

    size: int
    seconds: float | None
    clock: float
    counts: Counts  # (ranks,)
    counters: Counts  # (2,)
    total: Counts  # (ranks, ranks) confusion since the start
    recent: Counts  # (ranks, ranks) confusion of the window
    traffic: StreamStatsView
    rows: MetricHistoryView
    drift: DriftView

    def frozen(self) -> RankMetricsView:
        """A copy that stays as it is. O(ranks^2 + history): some 100 KB."""
        return self._replace(
            counts=self.counts.copy(),
            counters=self.counters.copy(),
            total=self.total.copy(),
            recent=self.recent.copy(),
            traffic=self.traffic.frozen(),
            rows=self.rows.frozen(),
            drift=self.drift.frozen(),
        )

    def class_counts(self) -> dict[str, int]:
        """Labelled events by rank, "1" first."""
        return _by_rank(self.counts)

    def as_json(self) -> dict[str, Any]:
        """The figures as JSON: numbers, or null with the reason under `undefined`."""
        undefined: dict[str, str] = {}
        window = _figures("window", self.recent, undefined)
        since = _figures("since_start", self.total, undefined)
        told, served = {}, {}
        for scope in ("window", "since_start"):
            figures, reasons = self.traffic.figures("window" if scope == "window" else "since_start")
            served[scope] = figures.pop("served")
            figures.pop("served_alert_rate")
            told[scope] = figures
            undefined |= {name: reason for name, reason in reasons.items() if not name.endswith("alert_rate")}
        return {
            "events": int(self.counts.sum()),
            "class_counts": self.class_counts(),
            "duplicates": int(self.counters[0]),
            "corrections": int(self.counters[1]),
            "served": served["since_start"],
            "clock": None if math.isnan(self.clock) else self.clock,
            "window": {
                "size": self.size,
                "seconds": self.seconds,
                "events": int(self.recent.sum()),
                **window,
                **told["window"],
            },
            "since_start": {**since, **told["since_start"]},
            "undefined": undefined,
        }

    def curves(self, points: int = 200) -> dict[str, Any]:  # noqa: ARG002 - as for two classes
        """The confusion matrix of the window: rows true ranks, columns predicted ones."""
        return {"confusion": self.recent.tolist()}

    def history(
        self,
        start: float | None = None,
        stop: float | None = None,
        step: float | None = None,
        by: Axis = "events",
    ) -> dict[str, Any]:
        """The figures over the stream; see `MetricHistoryView.points`."""
        return {"columns": list(ORDINAL_HISTORY), "points": self.rows.points(start, stop, step, by)}

    @property
    def point_count(self) -> int:
        """Points of the history so far: the number of the latest one."""
        return int(self.rows.met[0])

    def points_since(self, number: int) -> list[tuple[int, dict[str, Any]]]:
        """The points after the one of that number, each behind its own."""
        return self.rows.since(number)

    @property
    def alarm_counts(self) -> dict[str, int]:
        """Alarms so far, by kind."""
        return dict(zip(KINDS, self.drift.by_kind.tolist(), strict=True))

    @property
    def alarm_count(self) -> int:
        """Alarms so far."""
        return sum(self.alarm_counts.values())

    def alarms(self, since: int = 0) -> list[dict[str, Any]]:
        """The alarms from number `since` on."""
        return self.drift.alarms(since)


def _by_rank(counts: Counts) -> dict[str, int]:
    return {str(rank): count for rank, count in enumerate(counts.tolist(), start=1)}


def _figures(scope: str, confusion: Counts, undefined: dict[str, str]) -> dict[str, Any]:
    """The figures of one confusion matrix, sums in whole numbers: exact however many events."""
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
