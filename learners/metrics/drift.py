"""Drift alarms: a fall of the AUC, a material change of the served scores, and positive labels that stop arriving.

The last is in `positive_arrivals.py`. Alarms of fields that got worse come from `learners/features/field_quality.py`,
and are stored with the others.

A fall of the AUC. The placement V of a labelled positive is the share of the last 8192 negatives below its score. If
some negatives have the same score, V is uniform between the share below and the share not above. The mean of V is the
AUC. Each placement is ranked among older placements, and the ranks run a CUSUM with reflection at 0:

    U = E(F(V)),   X = sqrt(12) (1/2 - U),   S = max(0, S + X - 0.2)
    alarm if S >= max(15, 21.5 + 2.5 ln(2 min(p, 1/2))),   p the share of positives since the reference began

F is the reference: the placements up to 128 positives ago in 256 bins of equal width, with a memory of 2048 positives.
Two placements in one bin count one half for each other. The reference is used once it holds 256 placements. Placements
before the 100th negative are left out. Reasons:
- On a stationary stream the rank U is uniform, whatever the AUC and the scores. So one threshold gives one rate of
  false alarms. Placements themselves would not: at an AUC of .99 they are almost constant with a long tail. The
  Wilcoxon score X has bounded steps and 95 % of the efficiency of the best score for binormal shifts.
- Ties only make X smaller. With the middle of its ends as the placement they would not. As negatives come and go, all
  positives of one frequent score would then step into the next bin at once, a change of many ranks.
- 0.2 is half the shift of X, in standard deviations, when an AUC of .75 falls to .65. (From .85 to .75 the shift is
  .49, from .9 to .8 it is .58.) A fall of less than half that size never adds up. So the small changes of a learner
  that learns raise no alarm, nor does a rise.
- False alarms per positive fall with the limit h as exp(-0.4 h). The limit gives about the same number in 100,000
  events for any p. So if positives are rare, a fall is found after fewer of them.
- 21.5 and the other constants come from simulation; `benchmarks/alarms.py` measures their effect. False alarms come
  from the error of the reference: up to 1 / sqrt(256) of a standard deviation at first, plus that of the few negatives
  at the start, which all placements share. The delay of 128 keeps a fall out of the reference until it is found. A
  longer delay would leave fewer placements in the reference after 500 positives.
- Placements share the sampling error of their negatives, and the CUSUM adds it up like a change. So the negatives are
  many, and independent of the window of the metrics. More than 8192 would not reduce false alarms. A corrected label
  leaves negatives and alarms as they are.

The scores of served events. After every 512 served events, their scores are compared with the 2048 before. D is the
largest distance of the two distribution functions (Kolmogorov-Smirnov):

    alarm if D >= max(0.15, 1.5 D_max),   D_max the largest of the 32 distances before the last 4, without alarms

This needs at least 12 such distances. A distance of 0.15 means that 15 of 100 events moved past some score, which is
material. It is also a test: with stationary scores such a distance has a probability of about
2 exp(-2 * 0.15^2 * 512 * 2048 / 2560) = 2e-8. A learner moves its own scores, mostly while it is young; D_max measures
how far. The last 4 distances are left out because a change within a block shows in two of them or more. The reference
follows the stream, so slow changes over thousands of events raise no alarm. Infinite scores are larger than any. The
first 10,240 served events give the first 16 distances and no alarm.

An alarm is open until its figure is back; see `alarm_life.py`. The present value of the figure is:
- "auc": the mean placement of the positives since the last alarm; it begins at `after` and has a memory of 256.
- "scores": the share of each 512 served events above the score at which the two samples differed most.
- "positives": the share of positives since the first one after the alarm, from the fourth gap on, at each positive and
  when the silence is a power of 2.
- fields: the share of each 512 learnt events, of the field that got worse most.

After an alarm its reference starts anew; the negatives stay. A negative is sorted in with others, about 0.05
microseconds each; a positive takes about 0.4. A served score costs O(1), plus two sorts of 2560 numbers per 512.

References
----------
Page. Continuous inspection schemes. Biometrika 41, 1954: the CUSUM.
Hanley, Hajian-Tilaki. Sampling variability of nonparametric estimates of the areas under receiver operating
characteristic curves: an update. Academic Radiology 4, 1997: placements.
Smirnov. Table for estimating the goodness of fit of empirical distributions. Annals of Mathematical Statistics 19,
1948: the distance of two samples.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from learners.metrics import alarm_life
from learners.metrics import positive_arrivals as arrivals
from learners.metrics.alarm_life import AlarmsView
from learners.metrics.definitions import ordinary
from learners.metrics.rings import lengthen, ring_capacity
from learners.numerics import (
    MAX_COUNT,
    WAITING,
    Counts,
    Issues,
    Matrix,
    MultisetArrays,
    Vector,
    bare_kernel,
    counters,
    inlined,
    kernel,
    log,
    not_finite,
    order_statistics,
    outside,
)

__all__ = ["Drift", "DriftState"]

_AUC, _SCORES, _POSITIVES, _MISSING = range(4)  # kinds of alarms; those from the last on are of fields

_RESERVOIR = 8192  # negatives, among which positives are placed

_NEGATIVES = 100  # before the first placement that counts
_BINS = 256  # of the reference of placements
_DELAY = 128  # positives until a placement enters the reference
_FEWEST = 256  # placements in the reference before it is used
_MEMORY = 2048  # positives: the reference fades by 1 / _MEMORY per placement once it holds so many
_NEGLIGIBLE = 1e-30  # a bin's weight below this is 0: subnormal numbers are slow
_SLACK = 0.2  # standard deviations of the rank
_LIMIT, _LEAST_LIMIT = 21.5, 15.0  # of S: the limit if half of the events are positives, and the least limit
_STEEP = 2.5  # change of the limit with the logarithm of the positives' share: 1 / (2 _SLACK)
_UNIT = math.sqrt(12.0)  # 1 / standard deviation of a uniform variable
_MOMENT, _CUSUM, _EXCURSION = range(3)  # indices of `sums`

_BLOCK = 512  # served scores of one comparison
_RING = 5 * _BLOCK  # with the reference before them
_MATERIAL = 0.15  # distance
_DISTANCES = 32  # distances of blocks that measure how far the scores move by themselves
_MEASURED = 12  # distances at least, before the first alarm
_LATEST = 4  # latest distances, which are left out
_BEYOND = 1.5  # times the largest distance

_LEVEL_MEMORY = 256  # positives: of the AUC after an alarm
_FEWEST_GAPS = 4  # after an alarm of positive labels, before their share is known


class DriftState(NamedTuple):
    """The arrays of the state."""

    recent: (
        Matrix  # (_DELAY, 2) the last placements as a ring, low and high; placement i of the reference at i % _DELAY
    )
    reference: Vector  # (_BINS,) faded counts of older placements
    sums: Vector  # (3,) faded sum of older placements; S; sum of the placements since S was 0
    placements: Counts  # (2,) since the reference began; since S was 0
    began: Counts  # (1,) labelled events before the first placement since the reference began
    negatives: Counts  # (1,) since the start
    scores: Vector  # (capacity,) of the last negatives as a ring; negative number i at i % _KEPT
    served: Vector  # (_RING,) the last served scores as a ring
    serves: Counts  # (1,) served scores since their reference began
    distances: Vector  # (_DISTANCES + _LATEST,) of the last blocks without an alarm, as a ring
    blocks: Counts  # (1,) such blocks since the start
    gaps: Vector  # (UNITS, GAPS) of `positive_arrivals.arrive`,
    gap_totals: Vector  # (UNITS,)
    gap_count: Counts  # (1,)
    silence: Counts  # (UNITS,)
    silence_limits: Vector  # (UNITS,)
    alarms: Matrix  # (ALARMS, COLUMNS) of `alarm_life.store`
    by_kind: Counts  # (7,)
    changes: Counts  # (1,)
    level: Vector  # (1,) mean placement of the positives since the last alarm of the AUC


@kernel
def _judge(state, kind, mark, value, events, clock):  # type: ignore[no-untyped-def]
    """Resolve and reopen alarms of a kind and a mark; tell whether one was resolved. See `alarm_life.judge`."""
    return alarm_life.judge(state.alarms, state.by_kind, state.changes, kind, 0, mark, value, events, clock)


@kernel
def _judge_scores(state, scores, events, clock):  # type: ignore[no-untyped-def]
    """Judge the alarms of the scores by a block of served ones; tell whether one was resolved."""
    total, last, resolved = state.by_kind.sum(), True, False
    for number in range(total - 1, max(total - alarm_life.ALARMS, 0) - 1, -1):
        row = state.alarms[number % alarm_life.ALARMS]
        if row[alarm_life.KIND] != _SCORES or row[alarm_life.STATE] == alarm_life.CLOSED:
            continue
        if last or row[alarm_life.STATE] == alarm_life.OPEN:
            above = 0
            for i in range(scores.shape[0]):
                if scores[i] > row[alarm_life.MARK]:
                    above += 1
            if _judge(state, _SCORES, row[alarm_life.MARK], above / scores.shape[0], events, clock):
                resolved = True
        last = False
    return resolved


@kernel
def _judge_positives(state, events, clock):  # type: ignore[no-untyped-def]
    """Judge the alarms of positive labels by their share since they began to arrive again."""
    count = min(state.gap_count[0], arrivals.GAPS)
    if count >= _FEWEST_GAPS:
        for unit in range(arrivals.UNITS):
            seen = max(state.gap_totals[unit] + state.silence[unit], 1.0)  # served events may be none
            _judge(state, _POSITIVES, np.float64(unit), min(count / seen, 1.0), events, clock)


@kernel
def _judge_fields(state, shares, events, clock):  # type: ignore[no-untyped-def]
    """Judge the alarms of fields by their shares in a block, (fields, 4)."""
    for number in range(min(state.by_kind.sum(), alarm_life.ALARMS)):
        kind, field = int(state.alarms[number, alarm_life.KIND]), int(state.alarms[number, alarm_life.FIELD])
        if kind >= _MISSING:
            share = shares[field, kind - _MISSING]
            alarm_life.judge(state.alarms, state.by_kind, state.changes, kind, field, 0.0, share, events, clock)


@kernel
def _forget_scores(state):  # type: ignore[no-untyped-def]
    """Restart the reference of the served scores."""
    state.served[:] = 0.0
    state.serves[0] = 0


@kernel
def _alarm(state, kind, events, clock, before, after, mark):  # type: ignore[no-untyped-def]
    """Store an alarm, and restart its reference."""
    alarm_life.store(state.alarms, state.by_kind, state.changes, kind, events, clock, before, after, 0, 0, mark)
    if kind == _AUC:
        state.level[0] = after
        state.recent[:] = 0.0
        state.reference[:] = 0.0
        state.sums[:] = 0.0
        state.placements[:] = 0
    elif kind == _SCORES:
        _forget_scores(state)
    else:
        arrivals.forget(state.gap_totals, state.gap_count, state.silence_limits)


@kernel
def _miss(state, unit, events, clock):  # type: ignore[no-untyped-def]
    """Take an event without a positive label, counted in this unit."""
    if arrivals.too_silent(state.gaps, state.gap_totals, state.gap_count, state.silence, state.silence_limits, unit):
        share = min(state.gap_count[0], arrivals.GAPS) / state.gap_totals[unit]
        _alarm(state, _POSITIVES, events, clock, min(share, 1.0), 0.0, float(unit))
    elif state.by_kind[_POSITIVES] > 0 and state.silence[unit] & (state.silence[unit] - 1) == 0:
        _judge_positives(state, events, clock)


@inlined
def _bin(placement):  # type: ignore[no-untyped-def]
    """Return the index of a placement's bin."""
    return min(int(placement * _BINS), _BINS - 1)


@inlined
def _part(low, high, b):  # type: ignore[no-untyped-def]
    """Return the share of a placement from `low` to `high` that is in bin b, with _bin(low) <= b <= _bin(high)."""
    if low == high:
        return 1.0
    return max(min(high, (b + 1) / _BINS) - max(low, b / _BINS), 0.0) / (high - low)


@bare_kernel
def _enter(state, low, high, count):  # type: ignore[no-untyped-def]
    """Add a placement to the reference, which took `count` so far."""
    if count >= _MEMORY:
        keep = 1.0 - 1.0 / _MEMORY
        for b in range(_BINS):
            faded = state.reference[b] * keep
            state.reference[b] = faded if faded > _NEGLIGIBLE else 0.0
        state.sums[_MOMENT] *= keep
    for b in range(_bin(low), _bin(high) + 1):
        state.reference[b] += _part(low, high, b)
    state.sums[_MOMENT] += 0.5 * (low + high)


@bare_kernel
def _place(state, low, high, number, clock):  # type: ignore[no-untyped-def]
    """Compare the placement of a positive, labelled event `number` from 1, with the reference."""
    sums = state.sums
    seen = state.placements[0]
    if seen == 0:
        state.began[0] = number - 1
    slot = seen % _DELAY
    if seen >= _DELAY:
        _enter(state, state.recent[slot, 0], state.recent[slot, 1], seen - _DELAY)
    state.recent[slot, 0] = low
    state.recent[slot, 1] = high
    state.placements[0] = seen + 1
    if state.by_kind[_AUC] > 0:
        state.level[0] += (0.5 * (low + high) - state.level[0]) / _LEVEL_MEMORY
        _judge(state, _AUC, 0.0, state.level[0], number, clock)
    if seen < _DELAY + _FEWEST:
        return
    first, last = _bin(low), _bin(high)
    total = 0.0
    for b in range(first):
        total += state.reference[b]
    rank = 0.0
    for b in range(first, last + 1):
        rank += _part(low, high, b) * (total + 0.5 * state.reference[b])
        total += state.reference[b]
    for b in range(last + 1, _BINS):
        total += state.reference[b]
    cusum = sums[_CUSUM] + _UNIT * (0.5 - rank / total) - _SLACK
    if cusum <= 0.0:
        sums[_CUSUM] = 0.0
        sums[_EXCURSION] = 0.0
        state.placements[1] = 0
        return
    sums[_CUSUM] = cusum
    sums[_EXCURSION] += 0.5 * (low + high)
    state.placements[1] += 1
    share = (seen + 1) / (number - state.began[0])
    if cusum >= max(_LEAST_LIMIT, _LIMIT + _STEEP * log(2.0 * min(share, 0.5))):
        before = min(sums[_MOMENT] / total, 1.0)
        _alarm(state, _AUC, number, clock, before, min(sums[_EXCURSION] / state.placements[1], 1.0), 0.0)


@kernel
def _arrive(state, events, clock):  # type: ignore[no-untyped-def]
    """Take a positive label."""
    arrivals.arrive(state.gaps, state.gap_totals, state.gap_count, state.silence, state.silence_limits)
    if state.by_kind[_POSITIVES] > 0:
        _judge_positives(state, events, clock)


@bare_kernel
def _learn(parts, members, events, scores, y, clocks):  # type: ignore[no-untyped-def]
    """Take labelled events in order.

    `parts` and `members` are plain tuples, because numba unpacks them in a third of the time of named ones.
    """
    state, negatives = DriftState(*parts), MultisetArrays(*members)
    for i in range(y.shape[0]):
        score = ordinary(scores[i])
        seen = state.negatives[0]
        if y[i] > 0.0:
            _arrive(state, events + i + 1, clocks[i])
            if seen >= _NEGATIVES:
                below, not_above = order_statistics.counts(negatives, score)
                recent = min(seen, _RESERVOIR)
                _place(state, below / recent, not_above / recent, events + i + 1, clocks[i])
            continue
        _miss(state, arrivals.LABELLED, events + i + 1, clocks[i])
        slot = seen % _RESERVOIR
        if seen >= _RESERVOIR:
            order_statistics.leave(negatives, state.scores[slot])
        order_statistics.enter(negatives, score)
        state.scores[slot] = score
        state.negatives[0] = seen + 1


@kernel
def _distance(before, after):  # type: ignore[no-untyped-def]
    """Find the score where two ascending samples differ most; return it, and the share of each above it."""
    n, m = before.shape[0], after.shape[0]
    i = j = 0
    most, mark, share, other = -1.0, 0.0, 0.0, 0.0
    while i < n and j < m:
        score = min(before[i], after[j])
        while i < n and before[i] <= score:
            i += 1
        while j < m and after[j] <= score:
            j += 1
        left, right = (n - i) / n, (m - j) / m
        if abs(left - right) > most:
            most, mark, share, other = abs(left - right), score, left, right
    return mark, share, other


@kernel
def _furthest(state):  # type: ignore[no-untyped-def]
    """Return the largest distance, without the latest ones."""
    count, most = state.blocks[0], 0.0
    for k in range(max(0, count - _DISTANCES - _LATEST), count - _LATEST):
        most = max(most, state.distances[k % (_DISTANCES + _LATEST)])
    return most


@kernel
def _serve(state, scores, events, clocks):  # type: ignore[no-untyped-def]
    """Take served scores in order, and compare each full block."""
    for i in range(scores.shape[0]):
        _miss(state, arrivals.SERVED, events, clocks[i])
        slot = state.serves[0] % _RING
        state.served[slot] = ordinary(scores[i])
        state.serves[0] += 1
        if state.serves[0] % _BLOCK != 0:
            continue
        start = slot + 1 - _BLOCK  # blocks do not straddle the ring's end
        back = False
        if state.by_kind[_SCORES] > 0:
            back = _judge_scores(state, state.served[start : slot + 1], events, clocks[i])
        if state.serves[0] < _RING:
            continue
        past, present = np.empty(_RING - _BLOCK), np.empty(_BLOCK)
        for k in range(_RING - _BLOCK):
            past[k] = state.served[k if k < start else k + _BLOCK]
        for k in range(_BLOCK):
            present[k] = state.served[start + k]
        order_statistics.sort(past, _RING - _BLOCK)
        order_statistics.sort(present, _BLOCK)
        mark, before, after = _distance(past, present)
        distance, count = abs(before - after), state.blocks[0]
        if count >= _MEASURED + _LATEST and distance >= max(_MATERIAL, _BEYOND * _furthest(state)):
            if back:  # a return to what was before an alarm is no news
                _forget_scores(state)
            else:
                _alarm(state, _SCORES, events, clocks[i], before, after, mark)
            continue
        state.distances[count % (_DISTANCES + _LATEST)] = distance
        state.blocks[0] = count + 1


class Drift:
    """The drift alarms of one learner: a deterministic state machine.

    Its state takes 43 KB, or 107 KB with 8192 negatives; the negatives in order take 270 KB at most.
    """

    def __init__(self) -> None:
        self.arrays = DriftState(
            recent=np.zeros((_DELAY, 2)),
            reference=np.zeros(_BINS),
            sums=np.zeros(3),
            placements=np.zeros(2, dtype=np.int64),
            began=np.zeros(1, dtype=np.int64),
            negatives=np.zeros(1, dtype=np.int64),
            scores=np.zeros(self.capacity(0)),
            served=np.zeros(_RING),
            serves=np.zeros(1, dtype=np.int64),
            distances=np.zeros(_DISTANCES + _LATEST),
            blocks=np.zeros(1, dtype=np.int64),
            gaps=np.zeros((arrivals.UNITS, arrivals.GAPS)),
            gap_totals=np.zeros(arrivals.UNITS),
            gap_count=np.full(1, -1, dtype=np.int64),
            silence=np.zeros(arrivals.UNITS, dtype=np.int64),
            silence_limits=np.full(arrivals.UNITS, np.inf),
            alarms=np.zeros((alarm_life.ALARMS, alarm_life.COLUMNS)),
            by_kind=np.zeros(len(alarm_life.KINDS), dtype=np.int64),
            changes=np.zeros(1, dtype=np.int64),
            level=np.zeros(1),
        )
        self._rebuild()

    def capacity(self, negatives: int) -> int:
        """Return the slots of the ring after so many negatives: a power of two from 64 to 8192."""
        return ring_capacity(negatives, _RESERVOIR)

    def _rebuild(self) -> None:
        """Derive the negatives in order from the ring."""
        recent = min(int(self.arrays.negatives[0]), _RESERVOIR)
        self._negatives: MultisetArrays = order_statistics.ordered(np.sort(self.arrays.scores[:recent]))

    def _reserve(self, negatives: int) -> None:
        """Make room for so many negatives since the start."""
        capacity = self.capacity(negatives)
        if len(self.arrays.scores) < capacity:
            self.arrays = self.arrays._replace(scores=lengthen(self.arrays.scores, capacity))

    def learn(self, scores: Vector, y: Vector, events: int, clocks: Vector) -> None:
        """Take n labelled events in order.

        `scores` (n,) are from before the label was known, NaN counts as 0. `y` (n,) is above 0 for positives. `events`
        is the number of labelled events before these. `clocks` (n,) is the learner's clock after each, NaN if unknown.
        An alarm notes the events learnt so far, including its own.
        """
        if len(self.arrays.scores) < _RESERVOIR:
            self._reserve(int(self.arrays.negatives[0]) + len(y) - int(np.count_nonzero(y > 0)))
        for start in range(0, len(y), WAITING):
            part = slice(start, start + WAITING)
            columns = (scores, y, clocks) if len(y) <= WAITING else (scores[part], y[part], clocks[part])
            self._negatives = order_statistics.reserved(self._negatives, len(self.arrays.scores), len(columns[1]))
            _learn(tuple(self.arrays), tuple(self._negatives), events + start, *columns)

    def serve(self, scores: Vector, events: int, clocks: Vector) -> None:
        """Take n served events in order: `scores` (n,), NaN counts as 0; labelled `events` so far; `clocks` (n,)."""
        _serve(self.arrays, scores, events, clocks)

    def note_positive(self, events: int, clock: float) -> None:
        """Take a positive label that corrects another, after `events` labelled events and at this clock."""
        _arrive(self.arrays, events, clock)

    def note_fields(
        self, kind: str, events: int, clock: float, before: float, after: float, field: int, fields: int
    ) -> None:
        """Store an alarm of a kind of fields: `fields` of them got worse, most of all the one at place `field`."""
        stored = self.arrays.alarms, self.arrays.by_kind, self.arrays.changes
        alarm_life.store(*stored, alarm_life.KINDS.index(kind), events, clock, before, after, field, fields, 0.0)

    def judge_fields(self, shares: Matrix, events: int, clock: float) -> None:
        """Resolve and reopen alarms of fields by the shares of a block, (fields, 4), after `events` labelled events."""
        _judge_fields(self.arrays, shares, events, clock)

    @property
    def of_fields(self) -> bool:
        """Tell whether fields have raised alarms."""
        return bool(self.arrays.by_kind[_MISSING:].any())

    @property
    def count(self) -> Counts:
        """Alarms since the start by kind, (7,), as in `alarm_life.KINDS`."""
        return self.arrays.by_kind

    def alarms(self, since: int = 0) -> list[dict[str, Any]]:
        """Return the stored alarms from number `since` on; see `AlarmsView.alarms`."""
        return self.view().alarms(since)

    def view(self) -> AlarmsView:
        """Return the alarms as they stand: right until the next call, or for good once `frozen()`."""
        return AlarmsView(self.arrays.alarms, self.arrays.by_kind, self.arrays.changes)

    # Saving

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return the arrays of the state."""
        return dict(self.arrays._asdict())

    def shapes(self, state: dict[str, NDArray[np.generic]]) -> dict[str, tuple[int, ...]]:
        """Return the shapes of a state's arrays that follow from its number of negatives; see `capacity`."""
        current = {name: array.shape for name, array in self.arrays._asdict().items()}
        return current | {"scores": (self.capacity(int(state["negatives"][0])),)}

    def restore(self, state: dict[str, NDArray[np.generic]]) -> None:
        """Take copies of the arrays of a state."""
        current = self.arrays._asdict()
        self.arrays = DriftState(
            **{name: np.array(state[name], dtype=current[name].dtype, order="C") for name in current}
        )
        self._rebuild()

    def problems(self, state: dict[str, NDArray[np.generic]]) -> Issues:
        """Report what no stream can have led to in a state of the right shapes. O(1): the state is bounded."""
        arrays = DriftState(**state)  # type: ignore[arg-type]
        counted = ("placements", "began", "negatives", "serves", "blocks", "silence", "by_kind", "changes")
        yield from counters({name: state[name] for name in counted})
        yield from outside("distances", arrays.distances, 0.0, 1.0)
        yield from outside("recent", arrays.recent, 0.0, 1.0)
        if (arrays.recent[:, 0] > arrays.recent[:, 1]).any():
            yield "recent", "has placements whose low end is above the high one"
        yield from outside("reference", arrays.reference, 0.0, float(_MEMORY + 1))
        yield from not_finite("sums", arrays.sums)
        yield from outside("sums", arrays.sums, 0.0, float(MAX_COUNT))
        if not arrays.sums[_CUSUM] < _LIMIT:
            yield "sums", f"has a CUSUM of {arrays.sums[_CUSUM]}; expected less than {_LIMIT}"
        if arrays.placements[0] > _DELAY and not arrays.reference.sum() > 0.0:
            yield "reference", "is empty although placements have entered it"
        if arrays.placements[1] > arrays.placements[0]:
            yield "placements", "has more since the CUSUM was 0 than since the reference began"
        for name in ("scores", "served"):
            if np.isnan(state[name]).any():
                yield name, "has NaN"
        yield from arrivals.problems(arrays.gaps, arrays.gap_totals, arrays.gap_count, arrays.silence_limits)
        yield from alarm_life.problems(arrays.alarms, arrays.by_kind, arrays.changes, _MISSING)
        yield from outside("level", arrays.level, 0.0, 1.0)
