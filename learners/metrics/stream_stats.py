"""Statistics of a stream beside its scores: clock, event rate, label delays, label coverage.

The clock is the largest time of any event or label so far, in seconds since the epoch. It is NaN before the first time.
An event is served if it is scored with an id before its label arrives. The delay of a label is in seconds, NaN if
unknown.

    window           exact quantiles of the delays of the last `size` labelled events. With `seconds`, only of those
                     learnt after clock - seconds.
                     Label coverage of the last `size` served events with distinct ids.
    since the start  quantiles of the delays from a histogram, within 1 %

O(1) time per labelled or served event. 16 bytes of state per labelled event in the window, 9 per served one.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from learners.metrics.definitions import Undefined
from learners.metrics.label_delays import (
    DELAY_BINS,
    DELAY_ERROR,
    MAX_DELAY,
    bounded,
    delay_bin,
    histogram_quantile,
    quantile,
)
from learners.metrics.rings import lengthen, ring_capacity
from learners.numerics import (
    Counts,
    Issues,
    MultisetArrays,
    Vector,
    Words,
    bare_kernel,
    counters,
    hash_table,
    inlined,
    order_statistics,
    outside,
)

__all__ = ["Scope", "StreamStats", "StreamStatsState", "StreamStatsView", "StreamTotals", "take"]

Scope = Literal["window", "since_start"]

_POSITIVE, _LABELLED = 1, 2  # flags of a served event: predicted positive, label arrived
_NO_LIMIT = 2**62  # events: more than there can be
_TENTHS = (5, 9)  # the reported quantiles of the delays: median, 90th percentile


class StreamStatsState(NamedTuple):
    """The arrays of the state; event i is at i % size of a ring."""

    clock: Vector  # (1,)
    start: Vector  # (1,) the clock at the first labelled event with a clock, else NaN
    timed: Counts  # (1,) labelled events with a clock
    histogram: Counts  # (DELAY_BINS,) delays since the start
    span: Counts  # (2,) number of the window's first labelled event, and of the next event
    delays: Vector  # (capacity,) of labelled events; NaN if unknown
    clocks: Vector  # (capacity,) NaN if unknown
    served: Counts  # (3,) since the start: served events, of those predicted positive, of those labelled
    ids: Words  # (capacity,) hashes of the last served events
    flags: NDArray[np.int8]  # (capacity,)


class StreamTotals(NamedTuple):
    """What is derived from the rings."""

    delays: MultisetArrays  # the known delays of the window
    table: Counts  # the slot of each id
    flagged: Counts  # (2,) of the served ring: predicted positive, labelled


@bare_kernel
def _tick(clock, times, clocks):  # type: ignore[no-untyped-def]
    """Move the clock by n times; fill `clocks` (n,) with the clock after each."""
    for i in range(times.shape[0]):
        if np.isfinite(times[i]) and not times[i] <= clock[0]:
            clock[0] = times[i]
        clocks[i] = clock[0]


@inlined
def _leave(state, derived, size):  # type: ignore[no-untyped-def]
    """Remove the oldest event from the window."""
    delay = state.delays[state.span[0] % size]
    state.span[0] += 1
    if not np.isnan(delay):
        order_statistics.leave(derived.delays, delay)


@bare_kernel
def _expire(state, derived, size, seconds, clock):  # type: ignore[no-untyped-def]
    """Remove events that are too old at `clock`; once a clock is known, also those from before the first."""
    if np.isnan(clock) or seconds == np.inf:
        return
    while state.span[0] < state.span[1] and not state.clocks[state.span[0] % size] > clock - seconds:
        _leave(state, derived, size)


@bare_kernel
def _mark(state, derived, size, h):  # type: ignore[no-untyped-def]
    """Flag a served event as labelled, by the hash of its id; of an event that left the ring only the total counts."""
    slot = hash_table.find(state.ids, derived.table, h)
    if slot >= 0:
        if state.flags[slot] & _LABELLED:
            return
        state.flags[slot] |= _LABELLED
        derived.flagged[1] += 1
    elif state.served[0] <= size:  # no event left the ring yet: this one was served in a history that was rolled back
        return
    if state.served[2] < state.served[0]:
        state.served[2] += 1


@inlined
def take(state, derived, size, seconds, clock, delay, h, late):  # type: ignore[no-untyped-def]
    """Count a labelled event: its clock, its label's delay, and if `late` the served event with this id hash."""
    aging = seconds < np.inf
    if state.span[1] - state.span[0] == size:
        _leave(state, derived, size)
    if aging:
        _expire(state, derived, size, seconds, clock)
    delay = bounded(delay)
    slot = state.span[1] % size
    state.delays[slot] = delay
    state.clocks[slot] = clock
    state.span[1] += 1
    if not np.isnan(delay):
        order_statistics.enter(derived.delays, delay)
        state.histogram[delay_bin(delay)] += 1
    if not np.isnan(clock):
        if state.timed[0] == 0:
            state.start[0] = clock
        state.timed[0] += 1
    if late:
        _mark(state, derived, size, h)
    if aging:  # a clock too coarse for `seconds`: the event leaves at once
        _expire(state, derived, size, seconds, clock)


@bare_kernel
def _learn(state, derived, size, seconds, clocks, delays, hashes, late):  # type: ignore[no-untyped-def]
    """Count labelled events in order; there are slots for them."""
    for i in range(clocks.shape[0]):
        take(state, derived, size, seconds, clocks[i], delays[i], hashes[i], late[i])


@bare_kernel
def _serve(state, derived, size, hashes, decisions, begin, most):  # type: ignore[no-untyped-def]
    """Take served events from `begin` on, up to `most` since the start; return the index of the first not taken.

    Stops early at an event for which the ring must grow first.
    """
    for i in range(begin, hashes.shape[0]):
        if state.served[0] == most:
            return i
        h = hashes[i]
        if h == 0:
            continue
        positive = 1 if decisions[i] > 0 else 0
        slot = hash_table.find(state.ids, derived.table, h)
        if slot < 0:
            if state.served[0] < size and state.served[0] == state.ids.shape[0]:
                return i
            slot = state.served[0] % size
            derived.flagged[0] -= state.flags[slot] & _POSITIVE
            if state.flags[slot] & _LABELLED:
                derived.flagged[1] -= 1
            hash_table.put(state.ids, derived.table, slot, h)
            state.flags[slot] = 0
            state.served[0] += 1
        change = positive - (state.flags[slot] & _POSITIVE)  # the last answer counts
        state.flags[slot] = (state.flags[slot] & _LABELLED) | positive
        state.served[1] += change
        derived.flagged[0] += change
    return hashes.shape[0]


class StreamStats:
    """Clock, label delays, label coverage and rates of one learner."""

    def __init__(self, size: int, seconds: float | None) -> None:
        self.size = size
        self.seconds = math.inf if seconds is None else float(seconds)
        capacity = ring_capacity(0, size)
        self.arrays = StreamStatsState(
            clock=np.full(1, np.nan),
            start=np.full(1, np.nan),
            timed=np.zeros(1, dtype=np.int64),
            histogram=np.zeros(DELAY_BINS, dtype=np.int64),
            span=np.zeros(2, dtype=np.int64),
            delays=np.zeros(capacity),
            clocks=np.zeros(capacity),
            served=np.zeros(3, dtype=np.int64),
            ids=np.zeros(capacity, dtype=np.uint64),
            flags=np.zeros(capacity, dtype=np.int8),
        )
        self._rebuild()

    @property
    def clock(self) -> float:
        """The largest time so far, in seconds; NaN before the first."""
        return float(self.arrays.clock[0])

    def _rebuild(self) -> None:
        """Derive what follows from the rings."""
        arrays = self.arrays
        delays = arrays.delays[np.arange(*arrays.span.tolist()) % self.size]
        positive, labelled = (np.count_nonzero(arrays.flags & flag) for flag in (_POSITIVE, _LABELLED))
        self.derived = StreamTotals(
            delays=order_statistics.ordered(np.sort(delays[~np.isnan(delays)])),
            table=hash_table.table_for(arrays.ids, 0),
            flagged=np.array([positive, labelled], dtype=np.int64),
        )

    def tick(self, times: Vector) -> Vector:
        """Move the clock; return it after each of n times, (n,). NaN and infinity do not move it."""
        clocks = np.empty(len(times))
        _tick(self.arrays.clock, times, clocks)
        return clocks

    def advance(self, clock: float) -> None:
        """Drop labelled events that are too old at `clock` from the window."""
        _expire(self.arrays, self.derived, self.size, self.seconds, float(clock))

    @property
    def served(self) -> int:
        """Events served with an id since the start."""
        return int(self.arrays.served[0])

    def serve(self, hashes: Words, decisions: NDArray[np.int64], most: int | None = None) -> int:
        """Count served events by the hashes of their ids (`hashes_of`); return how many of the n were taken.

        An event without an id (0) is not counted. An id that is still among the last `size` keeps its place and counts
        once, with its last decision. Stops after the event with which `most` (at least 1; None: any number) counted.
        """
        alerts = decisions.astype(np.int64, copy=False)
        until = _NO_LIMIT if most is None else self.served + most
        position = 0
        while (position := _serve(self.arrays, self.derived, self.size, hashes, alerts, position, until)) < len(hashes):
            if self.served == until:
                break
            arrays, slots = self.arrays, ring_capacity(self.served + 1, self.size)
            self.arrays = arrays._replace(ids=lengthen(arrays.ids, slots), flags=lengthen(arrays.flags, slots))
            self.derived = self.derived._replace(table=hash_table.table_for(self.arrays.ids, 0))
        return position

    def reserve(self, events: int, delayed: int) -> None:
        """Make room for so many labelled events, of which `delayed` have a known delay."""
        arrays = self.arrays
        first, following = arrays.span.tolist()
        slots = ring_capacity(following + events, self.size)
        if slots > len(arrays.delays):
            self.arrays = arrays._replace(delays=lengthen(arrays.delays, slots), clocks=lengthen(arrays.clocks, slots))
        if delayed:
            room = order_statistics.reserved(self.derived.delays, min(following - first + delayed, self.size), delayed)
            if room is not self.derived.delays:
                self.derived = self.derived._replace(delays=room)

    def learn(self, clocks: Vector, delays: Vector, hashes: Words, late: NDArray[np.bool_]) -> None:
        """Count n labelled events; columns of (n,).

        `clocks` are from `tick`. `delays` are in seconds (NaN: unknown; below 0 counts as 0). `hashes` (`hashes_of`)
        are of the ids under which events with a `late` label were served. `BinaryMetrics` calls `take` instead, once
        for all of its parts.
        """
        self.reserve(len(clocks), len(clocks) - int(np.count_nonzero(np.isnan(delays))))
        _learn(self.arrays, self.derived, self.size, self.seconds, clocks, delays, hashes, late)

    def mark_labelled(self, h: int) -> None:
        """Count a label that arrived after its expiry, if the served event with this id hash is still in the ring."""
        slot = hash_table.find(self.arrays.ids, self.derived.table, np.uint64(h))
        if slot >= 0 and not self.arrays.flags[slot] & _LABELLED:
            _mark(self.arrays, self.derived, self.size, np.uint64(h))

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return the arrays of the state."""
        return dict(self.arrays._asdict())

    def shapes(self, state: dict[str, NDArray[np.generic]]) -> dict[str, tuple[int, ...]]:
        """Return the shapes of a state's arrays that follow from its counts; see `ring_capacity`."""
        labelled = (ring_capacity(int(state["span"][1]), self.size),)
        served = (ring_capacity(int(state["served"][0]), self.size),)
        rings = {"delays": labelled, "clocks": labelled, "ids": served, "flags": served}
        return {name: rings.get(name, array.shape) for name, array in self.arrays._asdict().items()}

    def problems(self, state: dict[str, NDArray[np.generic]]) -> Issues:
        """Report what no events can have led to in a state of the right shapes. O(size log size)."""
        wrong = list(counters({name: state[name] for name in ("timed", "histogram", "span", "served")}))
        yield from wrong
        if wrong:
            return
        arrays = StreamStatsState(**state)  # type: ignore[arg-type]
        yield from self._clock_problems(arrays)
        yield from self._window_problems(arrays)
        yield from self._served_problems(arrays)

    def _clock_problems(self, arrays: StreamStatsState) -> Issues:
        clock, start, timed = float(arrays.clock[0]), float(arrays.start[0]), int(arrays.timed[0])
        if math.isinf(clock):
            yield "clock", "is not finite"
        if timed > arrays.span[1]:
            yield "timed", f"is {timed} of {arrays.span[1]} labelled events"
        elif math.isnan(start) if timed else not math.isnan(start):
            yield "start", f"is {start} after {timed} events with a clock"
        elif timed and not -math.inf < start <= clock:
            yield "start", f"is {start} at the clock {clock}"

    def _window_problems(self, arrays: StreamStatsState) -> Issues:
        first, following = arrays.span.tolist()
        slots, oldest = ring_capacity(following, self.size), max(0, following - self.size)
        if not len(arrays.delays) == len(arrays.clocks) == slots:
            yield "span", f"ends at {following}, which needs {slots} slots, not {len(arrays.delays)}"
            return
        if not oldest <= first <= following or (math.isinf(self.seconds) and first != oldest):
            yield (
                "span",
                f"begins at {first}; expected {oldest}{'' if math.isinf(self.seconds) else f' to {following}'}",
            )
            return
        inside = np.arange(first, following) % self.size
        delays, clocks = arrays.delays[inside], arrays.clocks[inside]
        finite = delays[~np.isnan(delays)]
        yield from outside("delays", finite, 0, MAX_DELAY)
        if not len(finite) <= arrays.histogram.sum(dtype=np.float64) <= following:
            yield "histogram", "does not add up to the events with a delay"
        clocks = clocks[max(0, following - int(arrays.timed[0]) - first) :]
        if len(clocks) and not (float(arrays.start[0]) <= clocks[0] and clocks[-1] <= float(arrays.clock[0])):
            yield "clocks", "has times before the start, or after the clock"
        elif not (clocks[1:] >= clocks[:-1]).all():
            yield "clocks", "goes back"

    def _served_problems(self, arrays: StreamStatsState) -> Issues:
        served, positive, labelled = arrays.served.tolist()
        recent, slots = min(served, self.size), ring_capacity(served, self.size)
        if not len(arrays.ids) == len(arrays.flags) == slots:
            yield "served", f"is {served}, which needs {slots} slots, not {len(arrays.ids)}"
            return
        ids, flags = arrays.ids[:recent], arrays.flags
        if max(positive, labelled) > served:
            yield "served", f"has {positive} predicted positive and {labelled} labelled of {served}"
        if not ids.all() or len(np.unique(ids)) < recent:
            yield "ids", "has an id twice, or 0, which stands for no id"
        if arrays.ids[recent:].any():
            yield "ids", f"has more than {recent}"
        yield from outside("flags", flags[:recent], 0, _POSITIVE | _LABELLED)
        yield from outside("flags", flags[recent:], 0, 0)
        if ((flags & _POSITIVE) > 0).sum() > positive or ((flags & _LABELLED) > 0).sum() > labelled:
            yield "flags", "has more events predicted positive, or labelled, than there were"

    def restore(self, state: dict[str, NDArray[np.generic]]) -> None:
        """Take copies of the arrays of a state."""
        current = self.arrays._asdict()
        self.arrays = StreamStatsState(
            **{name: np.array(state[name], dtype=current[name].dtype, order="C") for name in current}
        )
        self._rebuild()

    def view(self) -> StreamStatsView:
        """Return the statistics as they stand: right until the next change, or for good once `frozen()`. O(1)."""
        arrays, derived = self.arrays, self.derived
        first, following = arrays.span.tolist()
        timed = int(arrays.timed[0])
        oldest = max(first, following - timed)  # the first event in the window with a clock: all later ones have it
        since = float(arrays.clocks[oldest % self.size]) if oldest < following else math.nan
        return StreamStatsView(
            self.clock,
            TimedEvents(following - oldest, since),
            TimedEvents(timed, float(arrays.start[0])),
            WindowDelays(derived.delays),
            arrays.histogram,
            (min(int(arrays.served[0]), self.size), *derived.flagged.tolist()),
            tuple(arrays.served.tolist()),
        )


class TimedEvents(NamedTuple):
    """Labelled events with a clock."""

    events: int
    since: float  # the clock at the first of them


class WindowDelays(NamedTuple):
    """The known label delays in the window: in order, or once frozen their quantiles alone."""

    ordered: MultisetArrays | None
    computed: tuple[float, ...] = ()

    def quantiles(self) -> tuple[float, ...]:
        """Return median and 90th percentile; NaN without a known delay. O(known delays)."""
        if self.ordered is None:
            return self.computed
        ascending = order_statistics.values(self.ordered)
        return tuple(quantile(ascending, tenths) for tenths in _TENTHS)

    def frozen(self) -> WindowDelays:
        """Return a copy that stays as it is."""
        return self if self.ordered is None else WindowDelays(None, self.quantiles())


class StreamStatsView(NamedTuple):
    """The statistics at one moment."""

    clock: float
    window: TimedEvents
    since_start: TimedEvents
    delays: WindowDelays
    histogram: Counts  # of delays since the start
    served_window: tuple[int, ...]  # of the last `size`: events, predicted positive, labelled
    served: tuple[int, ...]  # the same since the start

    def frozen(self) -> StreamStatsView:
        """Return a copy that stays as it is: about 32 KB. O(size)."""
        return self._replace(histogram=self.histogram.copy(), delays=self.delays.frozen())

    @property
    def coverage(self) -> float | None:
        """The label coverage since the start; None without served events."""
        served, _, labelled = self.served
        return labelled / served if served else None

    def values(self) -> tuple[float | None, ...]:
        """Compute the window's delays (NaN if undefined), label coverage, rate and alert rate (None). O(size)."""
        served, positive, labelled = self.served_window
        ratios = (labelled / served, positive / served) if served else (None, None)
        return *self.delays.quantiles(), ratios[0], self._rate(self.window), ratios[1]

    def figures(self, scope: Scope) -> tuple[dict[str, Any], dict[str, str]]:
        """Compute the metrics of a scope, and by pointer why the others are undefined. O(size)."""
        undefined = Undefined(scope, {})
        in_window = scope == "window"
        metrics: dict[str, Any] = {}
        if in_window:
            delays = self.delays.quantiles()
        else:
            delays = tuple(histogram_quantile(self.histogram, tenths) for tenths in _TENTHS)
        names = ("label_delay_median", "label_delay_p90") + (() if in_window else ("label_delay_error",))
        for name, value in zip(names, (*delays, DELAY_ERROR), strict=False):
            metrics[name] = None if math.isnan(delays[0]) else value
            if metrics[name] is None:
                undefined.add(name, "no label with a known delay")
        served, positive, labelled = self.served_window if in_window else self.served
        metrics["label_coverage"] = undefined.ratio("label_coverage", labelled, served, "no served events")
        timed = self.window if in_window else self.since_start
        metrics["events_per_second"] = self._rate(timed)
        if metrics["events_per_second"] is None:
            few = "fewer than two labelled events with a time"
            undefined.add("events_per_second", few if timed.events < 2 else "no time has passed")
        metrics["served"] = served
        metrics["served_alert_rate"] = undefined.ratio("served_alert_rate", positive, served, "no served events")
        return metrics, undefined.reasons

    def _rate(self, events: TimedEvents) -> float | None:
        """Divide the events after the first by the seconds of the clock since it; None if undefined."""
        if events.events < 2:
            return None
        seconds = self.clock - events.since
        rate = (events.events - 1) / seconds if seconds > 0.0 else math.inf
        return rate if math.isfinite(rate) else None
