"""What is known of a stream beside its scores: its clock, how fast events come, how late and how many labels.

The clock is the largest time of any event or label so far, in seconds since the epoch; NaN until one with a time has
come. An event was served if it was answered under an id before its label was known. A labelled event's delay is what
its label took, in seconds; NaN where that is not known.

    in the window    the last `size` labelled events, and with `seconds` of those only what was learnt at a clock later
                     than clock - seconds: quantiles of the delays are exact;
                     the last `size` served events, with distinct ids: how many of them have their label by now
    since the start  quantiles of the delays from a histogram, within 1 %

O(1) time per labelled event, whose delay is worked into the order together with others, and per served one; 16 bytes of
state per labelled event in the window, 9 per served one.
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
from learners.numerics import (
    Counts,
    Issues,
    Ordered,
    Vector,
    Words,
    bare_kernel,
    counters,
    hash_table,
    inlined,
    order_statistics,
    outside,
)

__all__ = ["Derived", "Scope", "StreamStats", "StreamStatsState", "StreamStatsView", "take"]

Scope = Literal["window", "since_start"]

_POSITIVE, _LABELLED = 1, 2  # flags of a served event: it was called positive, its label came
_LEAST = 64  # slots of a ring at first
_ANY = 2**62  # events: more than there can be
_TENTHS = (5, 9)  # the quantiles of the delays that are told: median, 90th percentile


class StreamStatsState(NamedTuple):
    """The arrays of the state; the rings hold event i at i % size."""

    clock: Vector  # (1,)
    start: Vector  # (1,) the clock at the first labelled event that had one, else NaN
    timed: Counts  # (1,) labelled events with a clock
    histogram: Counts  # (DELAY_BINS,) delays since the start
    span: Counts  # (2,) number of the window's first labelled event, and of the next one to come
    delays: Vector  # (capacity,) of labelled events; NaN where unknown
    clocks: Vector  # (capacity,) NaN where unknown
    served: Counts  # (3,) since the start: events served, of those called positive, of those labelled
    ids: Words  # (capacity,) hashes of the last served events
    flags: NDArray[np.int8]  # (capacity,)


class Derived(NamedTuple):
    """What is derived from the rings."""

    delays: Ordered  # those of the window that are known
    table: Counts  # which slot an id is in
    flagged: Counts  # (2,) of the served ring: called positive, labelled


@bare_kernel
def _tick(clock, times, clocks):  # type: ignore[no-untyped-def]
    for i in range(times.shape[0]):
        if np.isfinite(times[i]) and not times[i] <= clock[0]:
            clock[0] = times[i]
        clocks[i] = clock[0]


@inlined
def _leave(state, derived, size):  # type: ignore[no-untyped-def]
    """The window's first event leaves."""
    delay = state.delays[state.span[0] % size]
    state.span[0] += 1
    if not np.isnan(delay):
        order_statistics.leave(derived.delays, delay)


@bare_kernel
def _expire(state, derived, size, seconds, clock):  # type: ignore[no-untyped-def]
    """Events leave that are too old at `clock`, and with a clock known those from before there was one."""
    if np.isnan(clock) or seconds == np.inf:
        return
    while state.span[0] < state.span[1] and not state.clocks[state.span[0] % size] > clock - seconds:
        _leave(state, derived, size)


@bare_kernel
def _mark(state, derived, size, h):  # type: ignore[no-untyped-def]
    """The label of a served event has come; of one that has left the ring it is only known that it had been served."""
    slot = hash_table.find(state.ids, derived.table, h)
    if slot >= 0:
        if state.flags[slot] & _LABELLED:
            return
        state.flags[slot] |= _LABELLED
        derived.flagged[1] += 1
    elif state.served[0] <= size:  # none has left the ring: it was served in a course that was rolled back
        return
    if state.served[2] < state.served[0]:
        state.served[2] += 1


@inlined
def take(state, derived, size, seconds, clock, delay, h, late):  # type: ignore[no-untyped-def]
    """Count a labelled event: its clock, its label's delay, and by the hash of its id whether it had been served."""
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
    if aging:  # the clock may not resolve the seconds
        _expire(state, derived, size, seconds, clock)


@bare_kernel
def _learn(state, derived, size, seconds, clocks, delays, hashes, late):  # type: ignore[no-untyped-def]
    for i in range(clocks.shape[0]):
        take(state, derived, size, seconds, clocks[i], delays[i], hashes[i], late[i])


@bare_kernel
def _serve(state, derived, size, hashes, decisions, begin, most):  # type: ignore[no-untyped-def]
    """Take served events from `begin` on, until `most` have been since the start; the place of the first one not taken.

    That may also be the one for which the ring has to grow first.
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
        change = positive - (state.flags[slot] & _POSITIVE)  # the answer that counts is the last one
        state.flags[slot] = (state.flags[slot] & _LABELLED) | positive
        state.served[1] += change
        derived.flagged[0] += change
    return hashes.shape[0]


def _capacity(count: int, size: int) -> int:
    """Slots of a ring that `count` events have entered: the power of two that holds them, up to `size`."""
    return min(size, max(_LEAST, 1 << (max(1, min(count, size)) - 1).bit_length()))


def _longer(ring: NDArray[Any], more: int) -> NDArray[Any]:
    """The ring with `more` empty slots at its end."""
    return np.concatenate([ring, np.zeros(more, dtype=ring.dtype)])


class StreamStats:
    """Clock, delays, coverage and rates of one learner; see the top of this file."""

    def __init__(self, size: int, seconds: float | None) -> None:
        self.size = size
        self.seconds = math.inf if seconds is None else float(seconds)
        capacity = _capacity(0, size)
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
        """The largest time so far, in seconds; NaN before there was one."""
        return float(self.arrays.clock[0])

    def _rebuild(self) -> None:
        arrays = self.arrays
        delays = arrays.delays[np.arange(*arrays.span.tolist()) % self.size]
        known = np.sort(delays[~np.isnan(delays)])
        called, labelled = (np.count_nonzero(arrays.flags & flag) for flag in (_POSITIVE, _LABELLED))
        self.derived = Derived(
            delays=order_statistics.ordered(known),
            table=hash_table.table_for(arrays.ids, 0),
            flagged=np.array([called, labelled], dtype=np.int64),
        )

    def tick(self, times: Vector) -> Vector:
        """The clock after each of n times, (n,), which move it; NaN and infinite ones do not."""
        clocks = np.empty(len(times))
        _tick(self.arrays.clock, times, clocks)
        return clocks

    def advance(self, clock: float) -> None:
        """Labelled events that are too old at `clock` leave the window."""
        _expire(self.arrays, self.derived, self.size, self.seconds, float(clock))

    @property
    def served(self) -> int:
        """Events served under an id since the start."""
        return int(self.arrays.served[0])

    def serve(self, hashes: Words, decisions: NDArray[np.int64], most: int | None = None) -> int:
        """Count events served under these ids (`hashes_of`); what has no id (0) could not be found again, and is not.

        An id that is still among the last `size` keeps its place and counts once, with its last decision. After the
        one with which `most` (at least 1; None: any number) have counted in this call, no more are taken. How many of
        the n were.
        """
        called = decisions.astype(np.int64, copy=False)
        until = _ANY if most is None else self.served + most
        done = 0
        while (done := _serve(self.arrays, self.derived, self.size, hashes, called, done, until)) < len(hashes):
            if self.served == until:
                break
            arrays = self.arrays
            more = _capacity(self.served + 1, self.size) - len(arrays.ids)
            self.arrays = arrays._replace(ids=_longer(arrays.ids, more), flags=_longer(arrays.flags, more))
            self.derived = self.derived._replace(table=hash_table.table_for(self.arrays.ids, 0))
        return done

    def reserve(self, events: int, known: int) -> None:
        """Room for so many labelled events to come, of so many a known delay."""
        arrays = self.arrays
        first, following = arrays.span.tolist()
        more = _capacity(following + events, self.size) - len(arrays.delays)
        if more:
            self.arrays = arrays._replace(delays=_longer(arrays.delays, more), clocks=_longer(arrays.clocks, more))
        if known:
            room = order_statistics.reserved(self.derived.delays, min(following - first + known, self.size), known)
            if room is not self.derived.delays:
                self.derived = self.derived._replace(delays=room)

    def learn(self, clocks: Vector, delays: Vector, hashes: Words, late: NDArray[np.bool_]) -> None:
        """Count n labelled events; columns of (n,).

        `clocks` are those of `tick`, `delays` what each label took in seconds (NaN: unknown; below 0 counts as 0), and
        `hashes` the ids (`hashes_of`) that those with a `late` label were served under. `Metrics` takes events into all
        of its parts together instead, by `take`.
        """
        self.reserve(len(clocks), len(clocks) - int(np.count_nonzero(np.isnan(delays))))
        _learn(self.arrays, self.derived, self.size, self.seconds, clocks, delays, hashes, late)

    def label(self, h: int) -> None:
        """The label of a served event has come after one that was assumed: it counts, where the id is still known."""
        slot = hash_table.find(self.arrays.ids, self.derived.table, np.uint64(h))
        if slot >= 0 and not self.arrays.flags[slot] & _LABELLED:
            _mark(self.arrays, self.derived, self.size, np.uint64(h))

    def state(self) -> dict[str, NDArray[np.generic]]:
        """The arrays of the state."""
        return dict(self.arrays._asdict())

    def shapes(self, state: dict[str, NDArray[np.generic]]) -> dict[str, tuple[int, ...]]:
        """The shapes that the arrays of a state have by its counts: rings are of powers of two from 64 up to `size`."""
        labelled = (_capacity(int(state["span"][1]), self.size),)
        served = (_capacity(int(state["served"][0]), self.size),)
        rings = {"delays": labelled, "clocks": labelled, "ids": served, "flags": served}
        return {name: rings.get(name, array.shape) for name, array in self.arrays._asdict().items()}

    def problems(self, state: dict[str, NDArray[np.generic]]) -> Issues:
        """What no events can have led to in a state of the right shapes. O(size log size)."""
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
        slots, oldest = _capacity(following, self.size), max(0, following - self.size)
        if not len(arrays.delays) == len(arrays.clocks) == slots:
            yield "span", f"ends at {following}, which goes with {slots} slots, not {len(arrays.delays)}"
            return
        if not oldest <= first <= following or (math.isinf(self.seconds) and first != oldest):
            yield (
                "span",
                f"begins at {first}; expected {oldest}{'' if math.isinf(self.seconds) else f' to {following}'}",
            )
            return
        held = np.arange(first, following) % self.size
        delays, clocks = arrays.delays[held], arrays.clocks[held]
        known = delays[~np.isnan(delays)]
        yield from outside("delays", known, 0, MAX_DELAY)
        if not len(known) <= arrays.histogram.sum(dtype=np.float64) <= following:
            yield "histogram", "does not add up to the events that had a delay"
        clocks = clocks[max(0, following - int(arrays.timed[0]) - first) :]
        if len(clocks) and not (float(arrays.start[0]) <= clocks[0] and clocks[-1] <= float(arrays.clock[0])):
            yield "clocks", "has times before the start, or after the clock"
        elif not (clocks[1:] >= clocks[:-1]).all():
            yield "clocks", "goes back"

    def _served_problems(self, arrays: StreamStatsState) -> Issues:
        served, positive, labelled = arrays.served.tolist()
        held, slots = min(served, self.size), _capacity(served, self.size)
        if not len(arrays.ids) == len(arrays.flags) == slots:
            yield "served", f"is {served}, which goes with {slots} slots, not {len(arrays.ids)}"
            return
        ids, flags = arrays.ids[:held], arrays.flags
        if max(positive, labelled) > served:
            yield "served", f"has {positive} called positive and {labelled} labelled of {served}"
        if not ids.all() or len(np.unique(ids)) < held:
            yield "ids", "has one twice, or 0, which stands for no id"
        if arrays.ids[held:].any():
            yield "ids", f"has more than {held}"
        yield from outside("flags", flags[:held], 0, _POSITIVE | _LABELLED)
        yield from outside("flags", flags[held:], 0, 0)
        if ((flags & _POSITIVE) > 0).sum() > positive or ((flags & _LABELLED) > 0).sum() > labelled:
            yield "flags", "has more events called positive, or labelled, than there were"

    def restore(self, state: dict[str, NDArray[np.generic]]) -> None:
        """Take the arrays of a state."""
        own = self.arrays._asdict()
        self.arrays = StreamStatsState(
            **{name: np.array(state[name], dtype=own[name].dtype, order="C") for name in own}
        )
        self._rebuild()

    def view(self) -> StreamStatsView:
        """What is known as it stands: right until the next change, or for good once `frozen()`. O(1)."""
        arrays, derived = self.arrays, self.derived
        first, following = arrays.span.tolist()
        timed = int(arrays.timed[0])
        from_ = max(first, following - timed)  # the first one in the window that has a clock: all after it have
        since = float(arrays.clocks[from_ % self.size]) if from_ < following else math.nan
        return StreamStatsView(
            self.clock,
            _Events(following - from_, since),
            _Events(timed, float(arrays.start[0])),
            _Delays(derived.delays),
            arrays.histogram,
            (min(int(arrays.served[0]), self.size), *derived.flagged.tolist()),
            tuple(arrays.served.tolist()),
        )


class _Events(NamedTuple):
    """Labelled events that had a clock."""

    events: int
    since: float  # the clock at the first of them


class _Delays(NamedTuple):
    """Those in the window that are known."""

    ordered: Ordered | None
    told: tuple[float, ...] = ()  # their quantiles, worked out already

    def quantiles(self) -> tuple[float, ...]:
        """Median and 90th percentile; NaN where no delay is known. O(known)."""
        if self.ordered is None:
            return self.told
        known = order_statistics.values(self.ordered)
        return tuple(quantile(known, tenths) for tenths in _TENTHS)

    def frozen(self) -> _Delays:
        """What stays as it is."""
        return self if self.ordered is None else _Delays(None, self.quantiles())


class StreamStatsView(NamedTuple):
    """What a reader of the figures needs."""

    clock: float
    window: _Events
    since_start: _Events
    delays: _Delays  # in the window
    histogram: Counts  # of delays since the start
    served_window: tuple[int, ...]  # of the last `size`: events, called positive, labelled
    served: tuple[int, ...]  # the same since the start

    def frozen(self) -> StreamStatsView:
        """A copy that stays as it is: some 32 KB. O(size)."""
        return self._replace(histogram=self.histogram.copy(), delays=self.delays.frozen())

    @property
    def coverage(self) -> float | None:
        """The label coverage since the start; None where no events were served."""
        served, _, labelled = self.served
        return labelled / served if served else None

    def values(self) -> tuple[float | None, ...]:
        """The window's delays (NaN where undefined), label coverage, rate and alert rate (None); as `figures` has them.

        O(size).
        """
        served, positive, labelled = self.served_window
        ratios = (labelled / served, positive / served) if served else (None, None)
        return *self.delays.quantiles(), ratios[0], self._rate(self.window), ratios[1]

    def figures(self, scope: Scope) -> tuple[dict[str, Any], dict[str, str]]:
        """The figures of a scope, and by pointer why those that are None are undefined. O(size)."""
        undefined = Undefined(scope, {})
        within = scope == "window"
        figures: dict[str, Any] = {}
        delays = (
            self.delays.quantiles()
            if within
            else tuple(histogram_quantile(self.histogram, tenths) for tenths in _TENTHS)
        )
        names = ("label_delay_median", "label_delay_p90") + (() if within else ("label_delay_error",))
        for name, value in zip(names, (*delays, DELAY_ERROR), strict=False):
            figures[name] = None if math.isnan(delays[0]) else value
            if figures[name] is None:
                undefined.of(name, "no label with a known delay")
        served, positive, labelled = self.served_window if within else self.served
        figures["label_coverage"] = undefined.ratio("label_coverage", labelled, served, "no served events")
        events = self.window if within else self.since_start
        figures["events_per_second"] = self._rate(events)
        if figures["events_per_second"] is None:
            few = "fewer than two labelled events with a time"
            undefined.of("events_per_second", few if events.events < 2 else "no time has passed")
        figures["served"] = served
        figures["served_alert_rate"] = undefined.ratio("served_alert_rate", positive, served, "no served events")
        return figures, undefined.reasons

    def _rate(self, events: _Events) -> float | None:
        """Events after the first, by second of the clock, which may have gone on since the last one; or None."""
        if events.events < 2:
            return None
        seconds = self.clock - events.since
        rate = (events.events - 1) / seconds if seconds > 0.0 else math.inf
        return rate if math.isfinite(rate) else None
