"""Prequential figures of a learner: over the last `window` labelled events, and since the start.

Every figure is about scores and decisions that were made before the label was known. In the window AUC is exact, ties
counting one half: the scores of each class are kept sorted (`ordered.py`), and each event that comes or goes moves the
count of rightly ordered pairs by its own pairs. Since the start AUC comes
from a histogram of fixed size whose bins follow the score's binary exponent, 16 to an octave; pairs that share a bin
count one half, so the error is at most half their share of all pairs, and that bound is reported beside the figure.

All of it is part of the deterministic state; the sorted arrays are derived from the window and rebuilt on restore.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from learners.arrays import Counts, Matrix, Vector
from learners.batch import Outcome
from learners.jit import kernel
from learners.ordered import Ordered, add, counts, empty, remove, reserved
from learners.ranges import MAX_COUNT, Issues, counters, outside

__all__ = ["HISTORY_COLUMNS", "HISTORY_POINTS", "Figures", "Metrics", "MetricsState", "history_problems"]

_LOW, _HIGH = -24, 16  # exponents with bins of their own: 2^-24 <= |score| < 2^16
_PER_OCTAVE = 16
_SIDE = (_HIGH - _LOW) * _PER_OCTAVE + 1  # one more for everything larger
_BINS = 2 * _SIDE + 1  # negative scores, (almost) zero, positive scores

HISTORY_POINTS = 512  # kept: when they are full, every second one goes and the stride doubles
HISTORY_STRIDE = 64  # events between points at the start
HISTORY_COLUMNS = ("events", "auc", "f1", "threshold", "positives", "alerts")


class MetricsState(NamedTuple):
    """The arrays of the state."""

    counts: Counts  # (2,) labelled events by class: negatives, positives
    duplicates: Counts  # (1,)
    confusion: Counts  # (4,) since the start: tn, fp, fn, tp
    sketch: NDArray[np.int64]  # (2, _BINS) since the start
    scores: Vector  # (capacity,) the window as a ring: event i stands at i % window
    labels: NDArray[np.int8]  # (capacity,) 0 or 1
    decisions: NDArray[np.int8]  # (capacity,) 0 or 1
    history: Matrix  # (HISTORY_POINTS, 6)
    points: Counts  # (2,) how many points, stride


class _Window(NamedTuple):
    """What is derived from the ring."""

    negatives: Ordered  # scores
    positives: Ordered
    sizes: Counts  # (2,)
    pairs: Counts  # (1,) twice the number of rightly ordered pairs, ties one half
    confusion: Counts  # (4,)


@kernel
def _own_pairs(window, label, score):  # type: ignore[no-untyped-def]
    """Twice the number of rightly ordered pairs of this event with the window's events of the other class."""
    if label == 1:
        below, upto = counts(window.negatives, score)
        return below + upto
    below, upto = counts(window.positives, score)
    return 2 * window.sizes[1] - below - upto


@kernel
def _enter(window, label, score, decision):  # type: ignore[no-untyped-def]
    window.pairs[0] += _own_pairs(window, label, score)
    add(window.positives if label == 1 else window.negatives, score)
    window.sizes[label] += 1
    window.confusion[2 * label + decision] += 1


@kernel
def _leave(window, label, score, decision):  # type: ignore[no-untyped-def]
    remove(window.positives if label == 1 else window.negatives, score)
    window.sizes[label] -= 1
    window.pairs[0] -= _own_pairs(window, label, score)
    window.confusion[2 * label + decision] -= 1


@kernel
def _bin(score):  # type: ignore[no-untyped-def]
    size = abs(score)
    if size < 2.0**_LOW:
        return _SIDE
    if size >= 2.0**_HIGH:
        step = _SIDE
    else:
        fraction, exponent = math.frexp(size)  # size = fraction 2^exponent, 1/2 <= fraction < 1: exact
        step = (exponent - 1 - _LOW) * _PER_OCTAVE + int((fraction - 0.5) * (2 * _PER_OCTAVE)) + 1
    return _SIDE + step if score > 0.0 else _SIDE - step


@kernel
def _note(state, window, events, threshold):  # type: ignore[no-untyped-def]
    """Add a point to the history; thin it when full."""
    n = state.points[0]
    if n == state.history.shape[0]:
        n = n // 2
        for k in range(n):
            state.history[k] = state.history[2 * k + 1]
        state.history[n:] = 0.0
        state.points[1] *= 2
    if events % state.points[1] == 0:
        positives, negatives = window.sizes[1], window.sizes[0]
        alerts = window.confusion[1] + window.confusion[3]
        point = state.history[n]
        point[0] = events
        point[1] = window.pairs[0] / 2.0 / (positives * negatives) if positives * negatives > 0 else np.nan
        point[2] = 2.0 * window.confusion[3] / (positives + alerts) if positives + alerts > 0 else np.nan
        point[3] = threshold
        point[4] = positives
        point[5] = alerts
        n += 1
    state.points[0] = n


@kernel
def _learn(state, window, size, y, scores, thresholds, decisions):  # type: ignore[no-untyped-def]
    for i in range(y.shape[0]):
        label = 1 if y[i] > 0.0 else 0
        decision = decisions[i]
        events = state.counts[0] + state.counts[1]
        # weights near overflow may say NaN, which has no place in an order, nor a bin: it counts as 0
        score = 0.0 if np.isnan(scores[i]) else scores[i]
        slot = events % size
        if events >= size:
            _leave(window, state.labels[slot], state.scores[slot], state.decisions[slot])
        _enter(window, label, score, decision)
        state.scores[slot] = score
        state.labels[slot] = label
        state.decisions[slot] = decision
        state.counts[label] += 1
        state.confusion[2 * label + decision] += 1
        state.sketch[label, _bin(score)] += 1
        if (events + 1) % state.points[1] == 0:
            _note(state, window, events + 1, thresholds[i])


@kernel
def _refill(state, window, held):  # type: ignore[no-untyped-def]
    for i in range(held):
        _enter(window, state.labels[i], state.scores[i], state.decisions[i])


def history_problems(history: Matrix, points: Counts, defined: list[int]) -> Issues:
    """What cannot be in `history` and `points` of a state; the columns `defined` are never NaN, nor below 0."""
    stride = int(points[1])
    yield from outside("points", points[:1], 0, len(history))
    if not HISTORY_STRIDE <= stride <= MAX_COUNT or stride & (stride - 1):
        yield "points", f"has a stride of {stride}; expected {HISTORY_STRIDE}, doubled some times"
    yield from outside("history", history[:, defined], 0, MAX_COUNT)
    if np.isinf(history).any():
        yield "history", "has infinite numbers"


class Metrics:
    """The live figures of one learner."""

    def __init__(self, window: int) -> None:
        self.window = window
        self.arrays = MetricsState(
            counts=np.zeros(2, dtype=np.int64),
            duplicates=np.zeros(1, dtype=np.int64),
            confusion=np.zeros(4, dtype=np.int64),
            sketch=np.zeros((2, _BINS), dtype=np.int64),
            scores=np.zeros(min(window, 64)),
            labels=np.zeros(min(window, 64), dtype=np.int8),
            decisions=np.zeros(min(window, 64), dtype=np.int8),
            history=np.zeros((HISTORY_POINTS, len(HISTORY_COLUMNS))),
            points=np.array([0, HISTORY_STRIDE], dtype=np.int64),
        )
        self._rebuild()

    @property
    def events(self) -> int:
        """Labelled events learnt."""
        return int(self.arrays.counts.sum())

    def _rebuild(self) -> None:
        held = min(self.events, self.window)
        self._derived = _Window(
            negatives=reserved(empty(), held),
            positives=reserved(empty(), held),
            sizes=np.zeros(2, dtype=np.int64),
            pairs=np.zeros(1, dtype=np.int64),
            confusion=np.zeros(4, dtype=np.int64),
        )
        _refill(self.arrays, self._derived, held)

    def reserve(self, events: int) -> None:
        """Room in the window: powers of two up to its size, so that the length follows from the count alone."""
        held, most = len(self.arrays.scores), min(events, self.window)
        if held >= most:
            return
        capacity = min(self.window, 1 << (most - 1).bit_length())
        state = self.arrays
        longer = MetricsState(*state)._replace(
            scores=np.zeros(capacity), labels=np.zeros(capacity, np.int8), decisions=np.zeros(capacity, np.int8)
        )
        longer.scores[:held], longer.labels[:held] = state.scores, state.labels
        longer.decisions[:held] = state.decisions
        self.arrays = longer

    def learn(self, outcome: Outcome, y: Vector) -> None:
        """Count n events: their labels (-1, +1) and what was said of them before."""
        self.arrays.duplicates[0] += int(np.count_nonzero(~outcome.applied & ~outcome.beyond))
        kept = outcome.applied
        assert outcome.thresholds is not None
        scores, thresholds, decisions = outcome.scores[kept], outcome.thresholds[kept], outcome.decisions[kept]
        self.reserve(self.events + len(scores))
        more = min(len(scores), 2 * self.window + 2)  # what comes beyond the window takes the place of what goes
        self._derived = self._derived._replace(
            negatives=reserved(self._derived.negatives, more), positives=reserved(self._derived.positives, more)
        )
        _learn(self.arrays, self._derived, self.window, y[kept], scores, thresholds, decisions)

    def state(self) -> dict[str, NDArray[np.generic]]:
        """The arrays of the state."""
        return dict(self.arrays._asdict())

    def problems(self, state: dict[str, NDArray[np.generic]]) -> Issues:
        """What no events can have led to in a state of the right shapes. O(window)."""
        arrays = MetricsState(**state)  # type: ignore[arg-type]
        wrong = list(counters({name: state[name] for name in ("counts", "duplicates", "confusion", "sketch")}))
        yield from wrong
        if not wrong and (arrays.confusion.reshape(2, 2).sum(axis=1) != arrays.counts).any():
            yield "confusion", "does not add up to the counts of the classes"
        if not wrong and (arrays.sketch.sum(axis=1) != arrays.counts).any():
            yield "sketch", "does not add up to the counts of the classes"
        yield from outside("labels", arrays.labels, 0, 1)
        yield from outside("decisions", arrays.decisions, 0, 1)
        if np.isnan(arrays.scores).any():
            yield "scores", "has NaN"
        yield from history_problems(arrays.history, arrays.points, [0, 4, 5])

    def restore(self, state: dict[str, NDArray[np.generic]]) -> None:
        """Take the arrays of a state."""
        own = self.arrays._asdict()
        self.arrays = MetricsState(**{name: np.array(state[name], dtype=own[name].dtype, order="C") for name in own})
        self._rebuild()

    def view(self) -> Figures:
        """The figures as they stand: right until the next `learn`, or for good once `frozen()`."""
        derived, state = self._derived, self.arrays
        return Figures(
            self.window,
            state.counts,
            state.duplicates,
            state.confusion,
            state.sketch,
            derived.sizes,
            derived.pairs,
            derived.confusion,
            state.history,
            state.points,
        )


class Figures(NamedTuple):
    """What a reader of the figures needs: a small part of the state, so that it can be copied at any time."""

    window: int
    counts: Counts
    duplicates: Counts
    total: Counts  # confusion since the start
    sketch: NDArray[np.int64]
    sizes: Counts  # of the window, by class
    pairs: Counts
    recent: Counts  # confusion of the window
    points: Matrix
    stride: Counts

    def frozen(self) -> Figures:
        """A copy that stays as it is. O(1): some 40 KB."""
        return Figures._make((self.window, *(array.copy() for array in self[1:])))

    def as_json(self) -> dict[str, Any]:
        """The figures as JSON: numbers, or null with the reason under `undefined`."""
        counts = self.counts.tolist()
        undefined: dict[str, str] = {}
        window = self._figures("window", self.recent, undefined)
        since = self._figures("since_start", self.total, undefined)
        negatives, positives = self.sizes.tolist()
        auc, error = self._sketched()
        exact = int(self.pairs[0]) / 2 / (positives * negatives) if positives * negatives else None
        for scope, figure, n in (("window", exact, (negatives, positives)), ("since_start", auc, counts)):
            if figure is None:
                which = "labelled events" if sum(n) == 0 else "positives" if n[1] == 0 else "negatives"
                reason = f"no {which} {'in the window' if scope == 'window' else 'yet'}"
                undefined[f"/{scope}/auc"] = reason
                if scope == "since_start":
                    undefined["/since_start/auc_error"] = reason
        return {
            "events": sum(counts),
            "class_counts": {"negative": counts[0], "positive": counts[1]},
            "duplicates": int(self.duplicates[0]),
            "window": {
                "size": self.window,
                "events": negatives + positives,
                "class_counts": {"negative": negatives, "positive": positives},
                "auc": exact,
                **window,
            },
            "since_start": {"auc": auc, "auc_error": error, **since},
            "undefined": undefined,
        }

    def _figures(self, scope: str, confusion: Counts, undefined: dict[str, str]) -> dict[str, Any]:
        tn, fp, fn, tp = confusion.tolist()
        ratios = {
            "f1": (2 * tp, 2 * tp + fp + fn, "no positive, met or predicted"),
            "precision": (tp, tp + fp, "no positive was predicted"),
            "recall": (tp, tp + fn, "no positive"),
            "accuracy": (tp + tn, tp + tn + fp + fn, "no labelled events"),
        }
        out: dict[str, Any] = {}
        for name, (part, whole, reason) in ratios.items():
            out[name] = part / whole if whole else None
            if not whole:
                undefined[f"/{scope}/{name}"] = reason + (" in the window" if scope == "window" else " yet")
        return {**out, "confusion": {"tp": tp, "fp": fp, "tn": tn, "fn": fn}}

    def _sketched(self) -> tuple[float | None, float | None]:
        """AUC since the start and its largest possible error."""
        negatives, positives = self.sketch.tolist()
        pairs = sum(negatives) * sum(positives)
        if not pairs:
            return None, None
        twice = shared = below = 0  # in whole numbers: exact however many events
        for n, p in zip(negatives, positives, strict=True):
            twice += p * (2 * below + n)
            shared += p * n
            below += n
        return twice / (2 * pairs), shared / (2 * pairs)

    def history(self) -> dict[str, Any]:
        """Points over the stream: figures of the window at every `stride` events, thinned as the stream grows."""
        count, stride = self.stride.tolist()
        points = []
        for row in self.points[:count].tolist():
            point: dict[str, Any] = {
                name: None if math.isnan(value) else value for name, value in zip(HISTORY_COLUMNS, row, strict=True)
            }
            for name in ("events", "positives", "alerts"):
                point[name] = int(point[name])
            points.append(point)
        return {"stride": stride, "points": points}
