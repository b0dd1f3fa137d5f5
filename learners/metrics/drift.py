"""Drift alarms: a fall of the AUC, and a material change of the scores that are served.

A fall of the AUC. The placement V of a labelled positive is the share of the last 8192 negatives below its score; where
some have the very score, V is uniform from the share below to that not above. The mean of V is the AUC. Each placement
is ranked among older ones, and the ranks run a CUSUM with reflection at 0:

    U = E(F(V)),   X = sqrt(12) (1/2 - U),   S = max(0, S + X - 0.2)
    alarm where S >= max(15, 21.5 + 2.5 ln(2 min(p, 1/2))),   p the share of positives since the reference began

F is the reference: the placements up to 128 positives ago in 256 bins of equal width, those of a bin counting one half
for each other, with a memory of 2048 positives; it is there once it holds 256. Placements before the 100th negative are
left out. Why so:
- The rank U is uniform on a stationary stream whatever the AUC and the scores are, so one threshold gives one rate of
  false alarms. The placements themselves would not: at an AUC of .99 they are all but constant with a long tail. The
  Wilcoxon score X has 95 % of the efficiency of the best score for binormal shifts, and bounded steps.
- Ties only make X smaller. They would not if a placement were the middle of its ends: as negatives come and go, that
  of all positives with a frequent score would at some time step into the next bin, a change of many ranks at once.
- 0.2 is half the shift of X, in its standard deviations, when an AUC of .75 falls to .65. (From .85 to .75 it is .49,
  from .9 to .8 .58.) A fall by less than half as much never adds up: small changes, such as a learner that learns makes
  all the time, are no alarms. Nor is a rise.
- False alarms per positive fall with the limit h as exp(-0.4 h). The limit makes for about as many in 100,000 events
  whatever p is, so that where positives are rare a fall is found after fewer of them.
- 21.5 and the rest come from simulation; `benchmarks/alarms.py` measures what comes of them. What costs false alarms
  is the error of the reference, up to 1 / sqrt(256) of a standard deviation at first and beside it that of the few
  negatives at the start of a stream, which all placements share. And a fall must not enter the reference before it is
  found, which is what the 128 are for: a longer wait would make for a reference of fewer placements after 500.
- Placements share the error of the negatives that they are taken among; the CUSUM adds it up as if it were a change. So
  these negatives are many, and not those of the window of the figures, which may hold any number; more than 8192 would
  not make for fewer false alarms. A label that is corrected later leaves them as they are, as it does the alarms.

The scores of served events. After every 512 of them, they are held against the 2048 before: an alarm where D, the
largest distance of the two distribution functions (Kolmogorov-Smirnov), is

    D >= max(0.15, 1.5 D_max),   D_max the largest of the 32 distances before the last 4, alarms left out; 12 at least.

0.15 says that 15 of 100 events have moved past some score, which is material. It is the test as well where the scores
are stationary: the distance of two such samples is as large with a probability of about
2 exp(-2 * 0.15^2 * 512 * 2048 / 2560) = 2e-8. But a learner moves its own scores, most of all while it is young, some
for as long as they live: D_max is how far, so that what is told is news. The last 4 are left out because a change that
begins within a block shows in two of them, or more. The reference moves along with the stream, so what changes by less
within some thousand events is no alarm. Infinite scores are larger than any. The first 10,240 served events make the
first 16 distances, and none of them an alarm.

After an alarm the reference starts anew, of the kind that was found; the negatives stay. A negative waits to be worked
in together with others, some 0.05 microseconds for each; a positive, which is counted among those that wait too, takes
about 0.4. A served score costs O(1), and two sorts of 2560 numbers in all after every 512.

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

_KEPT = 8192  # negatives that placements are taken among

_NEGATIVES = 100  # before the first placement that counts
_BINS = 256  # of the reference of placements
_DELAY = 128  # positives until a placement enters the reference
_FEWEST = 256  # placements in the reference before anything is held against it
_MEMORY = 2048  # positives: the reference fades by 1 / _MEMORY per placement once it holds so many
_NOTHING = 1e-30  # a bin's weight below this is 0: numbers that are not normal are slow
_SLACK = 0.2  # standard deviations of the rank
_LIMIT, _LEAST_LIMIT = 21.5, 15.0  # likewise: the limit where half of the events are positives, and at least
_STEEP = 2.5  # of it by the logarithm of their share: 1 / (2 _SLACK)
_UNIT = math.sqrt(12.0)  # 1 / standard deviation of a uniform variable
_MOMENT, _CUSUM, _EXCURSION = range(3)  # places in `sums`

_BLOCK = 512  # served scores that are looked at together
_RING = 5 * _BLOCK  # and those they are held against
_MATERIAL = 0.15
_DISTANCES = 32  # of blocks, that say how far the scores move by themselves,
_KNOWN = 12  # at least,
_LATEST = 4  # without those of the last blocks
_BEYOND = 1.5  # times the largest of them

_ALARMS = 64  # kept


class DriftState(NamedTuple):
    """The arrays of the state."""

    recent: Matrix  # (_DELAY, 2) the last placements as a ring, low and high: the i-th of this reference at i % _DELAY
    reference: Vector  # (_BINS,) faded counts of the older ones
    sums: Vector  # (3,) faded sum of the older ones; S; sum of the placements since S was 0
    placements: Counts  # (2,) since the reference began; since S was 0
    began: Counts  # (1,) labelled events before the first placement since the reference began
    negatives: Counts  # (1,) met since the start
    scores: Vector  # (capacity,) of the last ones as a ring: that of negative number i stands at i % _KEPT
    served: Vector  # (_RING,) the last served scores as a ring
    serves: Counts  # (1,) served scores since their reference began
    distances: Vector  # (_DISTANCES + _LATEST,) of the last blocks that were no alarms, as a ring
    blocks: Counts  # (1,) such blocks since the start
    alarms: Matrix  # (_ALARMS, 5) kind, events, clock, before, after: alarm number i stands at i % _ALARMS
    by_kind: Counts  # (2,) alarms since the start


@kernel
def _alarm(state, kind, events, clock, before, after):  # type: ignore[no-untyped-def]
    """Keep an alarm in place of the oldest, and let its reference start anew."""
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
    return min(int(placement * _BINS), _BINS - 1)


@inlined
def _part(low, high, b):  # type: ignore[no-untyped-def]
    """The share of a placement from `low` to `high` that is in bin b, one of those from _bin(low) to _bin(high)."""
    if low == high:
        return 1.0
    return max(min(high, (b + 1) / _BINS) - max(low, b / _BINS), 0.0) / (high - low)


@bare_kernel
def _enter(state, low, high, held):  # type: ignore[no-untyped-def]
    """A placement enters the reference, which has met `held` so far."""
    if held >= _MEMORY:
        keep = 1.0 - 1.0 / _MEMORY
        for b in range(_BINS):
            faded = state.reference[b] * keep
            state.reference[b] = faded if faded > _NOTHING else 0.0
        state.sums[_MOMENT] *= keep
    for b in range(_bin(low), _bin(high) + 1):
        state.reference[b] += _part(low, high, b)
    state.sums[_MOMENT] += 0.5 * (low + high)


@bare_kernel
def _place(state, low, high, number, clock):  # type: ignore[no-untyped-def]
    """Hold the placement of a positive, labelled event `number` from 1, against the reference."""
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
    """`parts` and `members` as plain tuples, which a call takes in a third of the time of named ones."""
    state, negatives = DriftState(*parts), Ordered(*members)
    for i in range(y.shape[0]):
        score = ordinary(scores[i])
        met = state.negatives[0]
        if y[i] > 0.0:
            if met >= _NEGATIVES:
                below, upto = order_statistics.counts(negatives, score)
                held = min(met, _KEPT)
                _place(state, below / held, upto / held, events + i + 1, clocks[i])
            continue
        slot = met % _KEPT
        if met >= _KEPT:
            order_statistics.leave(negatives, state.scores[slot])
        order_statistics.enter(negatives, score)
        state.scores[slot] = score
        state.negatives[0] = met + 1


@kernel
def _distance(before, after):  # type: ignore[no-untyped-def]
    """(share of `before`, share of `after`) above the score where the two, both ascending, differ most."""
    n, m = before.shape[0], after.shape[0]
    i = j = 0
    most, share, other = -1.0, 0.0, 0.0
    while i < n and j < m:
        score = min(before[i], after[j])
        while i < n and before[i] <= score:
            i += 1
        while j < m and after[j] <= score:
            j += 1
        one, two = (n - i) / n, (m - j) / m
        if abs(one - two) > most:
            most, share, other = abs(one - two), one, two
    return share, other


@kernel
def _furthest(state):  # type: ignore[no-untyped-def]
    """The largest of the distances, the last few left out."""
    known, most = state.blocks[0], 0.0
    for k in range(max(0, known - _DISTANCES - _LATEST), known - _LATEST):
        most = max(most, state.distances[k % (_DISTANCES + _LATEST)])
    return most


@kernel
def _serve(state, scores, events, clocks):  # type: ignore[no-untyped-def]
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
        distance, known = abs(before - after), state.blocks[0]
        if known >= _KNOWN + _LATEST and distance >= max(_MATERIAL, _BEYOND * _furthest(state)):
            _alarm(state, 1, events, clocks[i], before, after)
            continue
        state.distances[known % (_DISTANCES + _LATEST)] = distance
        state.blocks[0] = known + 1


class Drift:
    """The drift alarms of one learner: a deterministic state machine.

    Its state takes 27 KB, with 8192 negatives 91 KB; beside it are the negatives in order, 270 KB at most.
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
        return ring_capacity(negatives, _KEPT)

    def _rebuild(self) -> None:
        held = min(int(self.arrays.negatives[0]), _KEPT)
        self._negatives: Ordered = order_statistics.ordered(np.sort(self.arrays.scores[:held]))

    def _reserve(self, negatives: int) -> None:
        """Make room for so many negatives since the start."""
        capacity = self.capacity(negatives)
        if len(self.arrays.scores) < capacity:
            self.arrays = self.arrays._replace(scores=lengthen(self.arrays.scores, capacity))

    def learn(self, scores: Vector, y: Vector, events: int, clocks: Vector) -> None:
        """Look at n labelled events in order.

        `scores` (n,) are those from before the label was known, NaN counts as 0; `y` (n,) is above 0 for positives;
        `events` is the number of labelled events before the first of these; `clocks` (n,) is the learner's clock after
        each, NaN while unknown. An alarm says how many events had been learnt, its own among them.
        """
        if len(self.arrays.scores) < _KEPT:
            self._reserve(int(self.arrays.negatives[0]) + len(y) - int(np.count_nonzero(y > 0)))
        for start in range(0, len(y), WAITING):
            part = slice(start, start + WAITING)
            own = (scores, y, clocks) if len(y) <= WAITING else (scores[part], y[part], clocks[part])
            self._negatives = order_statistics.reserved(self._negatives, len(self.arrays.scores), len(own[1]))
            _learn(tuple(self.arrays), tuple(self._negatives), events + start, *own)

    def serve(self, scores: Vector, events: int, clocks: Vector) -> None:
        """Look at n served events in order: `scores` (n,), NaN counts as 0; `events` labelled so far; `clocks` (n,)."""
        _serve(self.arrays, scores, events, clocks)

    @property
    def count(self) -> Counts:
        """Alarms since the start, (2,): by kind, as in `KINDS`."""
        return self.arrays.by_kind

    def alarms(self, since: int = 0) -> list[dict[str, Any]]:
        """The alarms from number `since` on, as far as they are kept; see `DriftView.alarms`."""
        return self.view().alarms(since)

    def view(self) -> DriftView:
        """What a reader needs: right until the next call, or for good once `frozen()`."""
        return DriftView(self.arrays.alarms, self.arrays.by_kind)

    # Saving

    def state(self) -> dict[str, NDArray[np.generic]]:
        """The arrays of the state."""
        return dict(self.arrays._asdict())

    def shapes(self, state: dict[str, NDArray[np.generic]]) -> dict[str, tuple[int, ...]]:
        """The shapes that the arrays of a state have by its number of negatives; see `capacity`."""
        own = {name: array.shape for name, array in self.arrays._asdict().items()}
        return own | {"scores": (self.capacity(int(state["negatives"][0])),)}

    def restore(self, state: dict[str, NDArray[np.generic]]) -> None:
        """Take copies of the arrays of a state."""
        own = self.arrays._asdict()
        self.arrays = DriftState(**{name: np.array(state[name], dtype=own[name].dtype, order="C") for name in own})
        self._rebuild()

    def problems(self, state: dict[str, NDArray[np.generic]]) -> Issues:
        """What no stream can have led to in a state of the right shapes. O(1): the state is bounded."""
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
                yield name, "has numbers that are not a number"
        kept = arrays.alarms[: min(max(int(arrays.by_kind.sum()), 0), _ALARMS)]
        if not np.isin(kept[:, 0], range(len(KINDS))).all():
            yield "alarms", f"has kinds that are none of {', '.join(KINDS)}"
        yield from outside("alarms", kept[:, 1], 0, MAX_COUNT)
        if np.isinf(kept[:, 2]).any():
            yield "alarms", "has clocks that are infinite"
        yield from outside("alarms", kept[:, 3:], 0.0, 1.0)


class DriftView(NamedTuple):
    """The alarms that are kept."""

    rows: Matrix  # (_ALARMS, 5)
    by_kind: Counts  # (2,) alarms since the start

    def frozen(self) -> DriftView:
        """A copy that stays as it is."""
        return DriftView(self.rows.copy(), self.by_kind.copy())

    def alarms(self, since: int = 0) -> list[dict[str, Any]]:
        """The alarms from number `since` on, the oldest first; the last 64 are kept. JSON-ready.

        `number` counts all alarms from 0; `kind` is "auc" or "scores"; `events` labelled events had been learnt;
        `clock` is None where unknown. Of kind "auc", `before` and `after` are the AUC of the reference and since the
        fall seems to have begun; of kind "scores", the shares of the earlier and of the latest served events above the
        score at which they differ most.
        """
        total = int(self.by_kind.sum())
        found = []
        for number in range(max(since, total - _ALARMS, 0), total):
            kind, events, clock, before, after = self.rows[number % _ALARMS].tolist()
            found.append(
                {
                    "number": number,
                    "kind": KINDS[int(kind)],
                    "events": int(events),
                    "clock": None if math.isnan(clock) else clock,
                    "before": before,
                    "after": after,
                }
            )
        return found
