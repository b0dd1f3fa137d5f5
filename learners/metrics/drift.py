"""Drift alarms: a fall of the AUC, and a material change of the served scores.

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

from learners.metrics.definitions import ordinary
from learners.metrics.rings import lengthen, ring_capacity
from learners.numerics import (
    MAX_COUNT,
    WAITING,
    Counts,
    Issues,
    Matrix,
    Ordered,
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

__all__ = ["KINDS", "Drift", "DriftState", "DriftView"]

KINDS = ("auc", "scores")  # of alarms

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

_ALARMS = 64  # stored


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
    alarms: Matrix  # (_ALARMS, 5) kind, events, clock, before, after; alarm number i at i % _ALARMS
    by_kind: Counts  # (2,) alarms since the start


@kernel
def _alarm(state, kind, events, clock, before, after):  # type: ignore[no-untyped-def]
    """Store an alarm in place of the oldest, and restart its reference."""
    row = state.alarms[(state.by_kind[0] + state.by_kind[1]) % _ALARMS]
    row[0] = kind
    row[1] = events
    row[2] = clock
    row[3] = before
    row[4] = after
    state.by_kind[kind] += 1
    if kind == 0:
        state.recent[:] = 0.0
        state.reference[:] = 0.0
        state.sums[:] = 0.0
        state.placements[:] = 0
    else:
        state.served[:] = 0.0
        state.serves[0] = 0


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
        _alarm(state, 0, number, clock, before, min(sums[_EXCURSION] / state.placements[1], 1.0))


@bare_kernel
def _learn(parts, members, events, scores, y, clocks):  # type: ignore[no-untyped-def]
    """Take labelled events in order.

    `parts` and `members` are plain tuples, because numba unpacks them in a third of the time of named ones.
    """
    state, negatives = DriftState(*parts), Ordered(*members)
    for i in range(y.shape[0]):
        score = ordinary(scores[i])
        seen = state.negatives[0]
        if y[i] > 0.0:
            if seen >= _NEGATIVES:
                below, not_above = order_statistics.counts(negatives, score)
                recent = min(seen, _RESERVOIR)
                _place(state, below / recent, not_above / recent, events + i + 1, clocks[i])
            continue
        slot = seen % _RESERVOIR
        if seen >= _RESERVOIR:
            order_statistics.leave(negatives, state.scores[slot])
        order_statistics.enter(negatives, score)
        state.scores[slot] = score
        state.negatives[0] = seen + 1


@kernel
def _distance(before, after):  # type: ignore[no-untyped-def]
    """Find the score where two ascending samples differ most; return the share of each above it."""
    n, m = before.shape[0], after.shape[0]
    i = j = 0
    most, share, other = -1.0, 0.0, 0.0
    while i < n and j < m:
        score = min(before[i], after[j])
        while i < n and before[i] <= score:
            i += 1
        while j < m and after[j] <= score:
            j += 1
        left, right = (n - i) / n, (m - j) / m
        if abs(left - right) > most:
            most, share, other = abs(left - right), left, right
    return share, other


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
        slot = state.serves[0] % _RING
        state.served[slot] = ordinary(scores[i])
        state.serves[0] += 1
        if state.serves[0] < _RING or state.serves[0] % _BLOCK != 0:
            continue
        start = slot + 1 - _BLOCK  # blocks do not straddle the ring's end
        past = np.empty(_RING - _BLOCK)
        past[:start] = state.served[:start]
        past[start:] = state.served[slot + 1 :]
        before, after = _distance(np.sort(past), np.sort(state.served[start : slot + 1]))
        distance, count = abs(before - after), state.blocks[0]
        if count >= _MEASURED + _LATEST and distance >= max(_MATERIAL, _BEYOND * _furthest(state)):
            _alarm(state, 1, events, clocks[i], before, after)
            continue
        state.distances[count % (_DISTANCES + _LATEST)] = distance
        state.blocks[0] = count + 1


class Drift:
    """The drift alarms of one learner: a deterministic state machine.

    Its state takes 27 KB, or 91 KB with 8192 negatives; the negatives in order take 270 KB at most.
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
            alarms=np.zeros((_ALARMS, 5)),
            by_kind=np.zeros(2, dtype=np.int64),
        )
        self._rebuild()

    def capacity(self, negatives: int) -> int:
        """Return the slots of the ring after so many negatives: a power of two from 64 to 8192."""
        return ring_capacity(negatives, _RESERVOIR)

    def _rebuild(self) -> None:
        """Derive the negatives in order from the ring."""
        recent = min(int(self.arrays.negatives[0]), _RESERVOIR)
        self._negatives: Ordered = order_statistics.ordered(np.sort(self.arrays.scores[:recent]))

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

    @property
    def count(self) -> Counts:
        """Alarms since the start by kind, (2,), as in `KINDS`."""
        return self.arrays.by_kind

    def alarms(self, since: int = 0) -> list[dict[str, Any]]:
        """Return the stored alarms from number `since` on; see `DriftView.alarms`."""
        return self.view().alarms(since)

    def view(self) -> DriftView:
        """Return the alarms as they stand: right until the next call, or for good once `frozen()`."""
        return DriftView(self.arrays.alarms, self.arrays.by_kind)

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
        counted = ("placements", "began", "negatives", "serves", "blocks", "by_kind")
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
        rows = arrays.alarms[: min(max(int(arrays.by_kind.sum()), 0), _ALARMS)]
        if not np.isin(rows[:, 0], range(len(KINDS))).all():
            yield "alarms", f"has kinds that are none of {', '.join(KINDS)}"
        yield from outside("alarms", rows[:, 1], 0, MAX_COUNT)
        if np.isinf(rows[:, 2]).any():
            yield "alarms", "has clocks that are infinite"
        yield from outside("alarms", rows[:, 3:], 0.0, 1.0)


class DriftView(NamedTuple):
    """The stored alarms at one moment."""

    rows: Matrix  # (_ALARMS, 5)
    by_kind: Counts  # (2,) alarms since the start

    def frozen(self) -> DriftView:
        """Return a copy that stays as it is."""
        return DriftView(self.rows.copy(), self.by_kind.copy())

    def alarms(self, since: int = 0) -> list[dict[str, Any]]:
        """Return the alarms from number `since` on as JSON, the oldest first; the last 64 are stored.

        `number` counts all alarms from 0; `kind` is "auc" or "scores"; `events` counts labelled events so far; `clock`
        is None if unknown. For "auc", `before` and `after` are the AUC of the reference, and the AUC since the fall
        seems to have begun. For "scores", they are the shares of earlier and of latest served events above the score
        where both differ most.
        """
        total = int(self.by_kind.sum())
        alarms = []
        for number in range(max(since, total - _ALARMS, 0), total):
            kind, events, clock, before, after = self.rows[number % _ALARMS].tolist()
            alarms.append(
                {
                    "number": number,
                    "kind": KINDS[int(kind)],
                    "events": int(events),
                    "clock": None if math.isnan(clock) else clock,
                    "before": before,
                    "after": after,
                }
            )
        return alarms
