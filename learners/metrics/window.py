"""The last labelled events, limited in number and age, and the exact metrics that follow from them.

A ring holds each event's predictions from before its label was known. Three things are derived from it, and rebuilt on
restore: the scores of each class in order, the confusion matrix, and sums over the probabilities. The sums lose nothing
when an event leaves (`definitions.tally`). So no metric drifts, however many events come and go.

An event is in the window while it is among the last `size`. With `seconds` its clock must also be later than the
present clock less `seconds`. Events from before the first known clock leave as soon as a clock is known.

An event that enters, leaves or changes its label costs O(1); scores are sorted into their class in groups.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from learners.metrics.curves import curves
from learners.metrics.definitions import (
    RELIABILITY_BINS,
    MetricSettings,
    Undefined,
    confusion_figures,
    confusion_values,
    distances,
    in_order,
    ordinary,
    probability_figures,
    probability_values,
    tallied,
    tallies,
    tally,
)
from learners.metrics.ranking import ranking_figures, ranking_values
from learners.metrics.rings import lengthen, ring_capacity
from learners.numerics import (
    MAX_COUNT,
    Counts,
    Issues,
    MultisetArrays,
    Vector,
    bare_kernel,
    inlined,
    order_statistics,
    outside,
)

__all__ = ["Sums", "Window", "WindowColumns", "WindowState", "WindowView", "take"]


class WindowState(NamedTuple):
    """The arrays of the state; event number i is at i % size."""

    scores: Vector  # (capacity,)
    probabilities: Vector  # (capacity,)
    labels: NDArray[np.int8]  # (capacity,) 0 or 1
    decisions: NDArray[np.int8]  # (capacity,) 0 or 1
    clocks: Vector  # (capacity,) of the learner after the event; NaN if unknown
    span: Counts  # (2,) number of the window's first event, and of the next event


class WindowColumns(NamedTuple):
    """The decisions on the events of the window, in the order in which they were labelled."""

    scores: Vector  # (n,)
    probabilities: Vector  # (n,)
    labels: NDArray[np.int8]  # (n,) 0 or 1
    decisions: NDArray[np.int8]  # (n,) 0 or 1
    clocks: Vector  # (n,) NaN if unknown
    numbers: Counts  # (n,) ordinals among all labelled events, from 0


class Sums(NamedTuple):
    """What is derived from the ring."""

    negatives: MultisetArrays  # scores
    positives: MultisetArrays
    confusion: Counts  # (4,) tn, fp, fn, tp
    losses: NDArray[np.int64]  # (2, 2) tallies of Brier's and of log loss
    bins: NDArray[np.int64]  # (2, RELIABILITY_BINS) events by class and probability
    mass: NDArray[np.int64]  # (RELIABILITY_BINS, 2) tallies of their probabilities


@inlined
def _count(sums, label, terms, decision, sign):  # type: ignore[no-untyped-def]
    """Add an event to the sums (`sign` 1) or remove it (-1); `terms` are from `tallies`."""
    at, probability, brier, log_loss = terms
    sums.confusion[2 * label + decision] += sign
    sums.bins[label, at] += sign
    tally(sums.losses[0], brier, sign)
    tally(sums.losses[1], log_loss, sign)
    tally(sums.mass[at], probability, sign)


@bare_kernel
def _leave(state, sums, slot):  # type: ignore[no-untyped-def]
    """Remove the event in a slot from what is derived."""
    label = np.int64(state.labels[slot])
    order_statistics.leave(sums.positives if label == 1 else sums.negatives, state.scores[slot])
    _count(sums, label, tallies(state.probabilities[slot], label), np.int64(state.decisions[slot]), -1)


@bare_kernel
def _advance(state, sums, size, seconds, clock):  # type: ignore[no-untyped-def]
    """Remove events that are too old at `clock`, which is NaN if unknown."""
    if np.isnan(clock):
        return
    oldest = clock - seconds
    while state.span[0] < state.span[1]:
        slot = state.span[0] % size
        if state.clocks[slot] > oldest:  # false for NaN
            break
        _leave(state, sums, slot)
        state.span[0] += 1


@inlined
def take(state, sums, size, seconds, score, probability, label, decision, clock, terms):  # type: ignore[no-untyped-def]
    """Take a labelled event; there is room for it. Label and decision are 0 or 1; `terms` are from `tallies`."""
    aging = seconds < np.inf
    slot = state.span[1] % size
    if state.span[1] - state.span[0] == size:
        _leave(state, sums, slot)
        state.span[0] += 1
    if aging:
        _advance(state, sums, size, seconds, clock)
    state.scores[slot] = score
    state.probabilities[slot] = probability
    state.labels[slot] = label
    state.decisions[slot] = decision
    state.clocks[slot] = clock
    state.span[1] += 1
    order_statistics.enter(sums.positives if label == 1 else sums.negatives, score)
    _count(sums, label, terms, decision, 1)
    if aging:  # a clock too coarse for `seconds`: the event leaves at once
        _advance(state, sums, size, seconds, clock)


@bare_kernel
def _learn(state, sums, size, seconds, scores, probabilities, y, decisions, clocks):  # type: ignore[no-untyped-def]
    """Take labelled events in order."""
    for i in range(y.shape[0]):
        label = 1 if y[i] > 0.0 else 0
        terms, score = tallies(probabilities[i], label), ordinary(scores[i])
        take(state, sums, size, seconds, score, probabilities[i], label, decisions[i], clocks[i], terms)


@bare_kernel
def _relabel(state, sums, slot, label):  # type: ignore[no-untyped-def]
    """Change the label of the event in a slot."""
    _leave(state, sums, slot)
    state.labels[slot] = label
    order_statistics.enter(sums.positives if label == 1 else sums.negatives, state.scores[slot])
    _count(sums, label, tallies(state.probabilities[slot], label), np.int64(state.decisions[slot]), 1)


@bare_kernel
def _refill(state, sums, size):  # type: ignore[no-untyped-def]
    """Count the events of the ring into empty sums."""
    for number in range(state.span[0], state.span[1]):
        slot = number % size
        label = np.int64(state.labels[slot])
        _count(sums, label, tallies(state.probabilities[slot], label), np.int64(state.decisions[slot]), 1)


class Window:
    """The window of one learner: at most `size` events, not older than `seconds` (None: of any age)."""

    def __init__(self, size: int, seconds: float | None) -> None:
        self.size = size
        self.seconds = seconds
        self.age = np.inf if seconds is None else float(seconds)
        slots = self.capacity(0)
        self.arrays = WindowState(
            scores=np.zeros(slots),
            probabilities=np.zeros(slots),
            labels=np.zeros(slots, dtype=np.int8),
            decisions=np.zeros(slots, dtype=np.int8),
            clocks=np.zeros(slots),
            span=np.zeros(2, dtype=np.int64),
        )
        self._rebuild()

    def capacity(self, number: int) -> int:
        """Return the slots of the ring once the next event has that number; see `ring_capacity`."""
        return ring_capacity(number, self.size)

    @property
    def events(self) -> int:
        """Labelled events learnt so far: the number of the next one."""
        return int(self.arrays.span[1])

    def _rebuild(self) -> None:
        """Derive the orders and the sums from the ring."""
        state = self.arrays
        slots = np.arange(state.span[0], state.span[1]) % self.size
        labels, scores = state.labels[slots], state.scores[slots]
        self.sums = Sums(
            negatives=order_statistics.ordered(np.sort(scores[labels == 0])),
            positives=order_statistics.ordered(np.sort(scores[labels == 1])),
            confusion=np.zeros(4, dtype=np.int64),
            losses=np.zeros((2, 2), dtype=np.int64),
            bins=np.zeros((2, RELIABILITY_BINS), dtype=np.int64),
            mass=np.zeros((RELIABILITY_BINS, 2), dtype=np.int64),
        )
        _refill(state, self.sums, self.size)

    def reserve(self, negatives: int, positives: int) -> None:
        """Make room for so many more events of each class."""
        capacity = self.capacity(self.events + negatives + positives)
        if len(self.arrays.scores) < capacity:
            rings = {name: array for name, array in self.arrays._asdict().items() if name != "span"}
            self.arrays = self.arrays._replace(**{name: lengthen(ring, capacity) for name, ring in rings.items()})
        self._reserve_orders(negatives, positives)

    def _reserve_orders(self, negatives: int, positives: int) -> None:
        """Make room for so many more scores in the orders of the classes."""
        tn, fp, fn, tp = self.sums.confusion.tolist()
        first, second = self.sums.negatives, self.sums.positives
        if negatives:
            first = order_statistics.reserved(first, min(tn + fp + negatives, self.size), negatives)
        if positives:
            second = order_statistics.reserved(second, min(fn + tp + positives, self.size), positives)
        if first is not self.sums.negatives or second is not self.sums.positives:
            self.sums = self.sums._replace(negatives=first, positives=second)

    def learn(
        self,
        scores: Vector,
        probabilities: Vector,
        y: Vector,
        decisions: NDArray[np.int64],
        clocks: Vector,
    ) -> None:
        """Take n labelled events (labels -1 and +1) with their predictions; columns of (n,).

        A score of NaN counts as 0. `clocks` are those of the learner after each event, ascending, NaN if unknown.
        `BinaryMetrics` calls `take` instead, once for all of its parts.
        """
        positives = int(np.count_nonzero(y > 0.0))
        self.reserve(len(y) - positives, positives)
        _learn(self.arrays, self.sums, self.size, self.age, scores, probabilities, y, decisions, clocks)

    def advance(self, clock: float) -> None:
        """Drop events that are too old at `clock` (NaN: unknown)."""
        if self.seconds is not None:
            _advance(self.arrays, self.sums, self.size, self.age, float(clock))

    def correct(self, number: int, label: int) -> None:
        """Change the label of an event to 0 or 1, as if from the start; does nothing once the event has left."""
        state = self.arrays
        slot = number % self.size
        if state.span[0] <= number < state.span[1] and state.labels[slot] != label:
            self._reserve_orders(1, 1)
            _relabel(self.arrays, self.sums, slot, label)

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return the arrays of the state."""
        return dict(self.arrays._asdict())

    def shapes(self, state: dict[str, NDArray[np.generic]]) -> dict[str, tuple[int, ...]]:
        """Return the shapes of a state's arrays that follow from its span; see `capacity`."""
        ring = (self.capacity(int(state["span"][1])),)
        return {name: (2,) if name == "span" else ring for name in self.arrays._fields}

    def problems(self, state: dict[str, NDArray[np.generic]]) -> Issues:
        """Report what no events can have led to in a state of the right shapes. O(capacity)."""
        arrays = WindowState(**state)  # type: ignore[arg-type]
        yield from outside("labels", arrays.labels, 0, 1)
        yield from outside("decisions", arrays.decisions, 0, 1)
        yield from outside("probabilities", arrays.probabilities, 0.0, 1.0)
        if np.isnan(arrays.scores).any():
            yield "scores", "has NaN"
        if np.isinf(arrays.clocks).any():
            yield "clocks", "has infinite numbers"
        wrong = list(outside("span", arrays.span, 0, MAX_COUNT))
        yield from wrong
        if wrong:
            return
        first, last = arrays.span.tolist()
        oldest = max(0, last - self.size)
        if len(arrays.scores) != self.capacity(last):
            yield "span", f"ends at {last}, which needs {self.capacity(last)} slots, not {len(arrays.scores)}"
            return
        if not oldest <= first <= last or (self.seconds is None and first != oldest):
            yield "span", f"begins at {first}; expected {oldest}{'' if self.seconds is None else f' to {last}'}"
            return
        clocks = arrays.clocks[np.arange(first, last) % self.size]
        times = clocks[int(np.isnan(clocks).sum()) :]  # unknown ones are the oldest
        if np.isnan(times).any() or (times[1:] < times[:-1]).any():
            yield "clocks", "goes back, or becomes unknown again"
        elif self.seconds is not None and 0 < len(times) < len(clocks):
            yield "clocks", "is unknown for events that have left"

    def restore(self, state: dict[str, NDArray[np.generic]]) -> None:
        """Take copies of the arrays of a state."""
        current = self.arrays._asdict()
        self.arrays = WindowState(
            **{name: np.array(state[name], dtype=current[name].dtype, order="C") for name in current}
        )
        self._rebuild()

    def columns(self) -> WindowColumns:
        """Copy the decisions. O(events)."""
        numbers = np.arange(*self.arrays.span.tolist())
        slots = numbers % self.size
        columns = {name: getattr(self.arrays, name)[slots] for name in WindowColumns._fields[:-1]}
        return WindowColumns(**columns, numbers=numbers)

    def view(self) -> WindowView:
        """Return the window as it stands: right until the next change, or for good once `frozen()`."""
        return WindowView(self.size, self.seconds, *self.sums)

    def values(self, settings: MetricSettings) -> tuple[float | None, ...]:
        """Compute the metrics of `WindowView.figures` from `auc` to `calibration_error`, the interval as two."""
        sums = self.sums
        negatives, positives = order_statistics.settled(sums.negatives), order_statistics.settled(sums.positives)
        auc, interval, others = ranking_values(negatives, positives, settings)
        confusion = confusion_values(sums.confusion.tolist(), settings.beta)
        probability = probability_values(len(negatives) + len(positives), *_losses(sums))
        return auc, *(interval or (None, None)), *others, *confusion, *probability


class WindowView(NamedTuple):
    """The window at one moment, and the metrics that follow from it."""

    size: int
    seconds: float | None
    negatives: MultisetArrays  # scores
    positives: MultisetArrays
    confusion: Counts  # (4,) tn, fp, fn, tp
    losses: NDArray[np.int64]  # (2, 2)
    bins: NDArray[np.int64]  # (2, RELIABILITY_BINS)
    mass: NDArray[np.int64]  # (RELIABILITY_BINS, 2)

    def frozen(self) -> WindowView:
        """Return a copy that stays as it is. O(events): 8 bytes for each."""
        return self._replace(
            negatives=order_statistics.ordered(order_statistics.values(self.negatives)),
            positives=order_statistics.ordered(order_statistics.values(self.positives)),
            confusion=self.confusion.copy(),
            losses=self.losses.copy(),
            bins=self.bins.copy(),
            mass=self.mass.copy(),
        )

    def figures(self, settings: MetricSettings) -> tuple[dict[str, Any], dict[str, str]]:
        """Compute the exact metrics of the window, and by pointer why the others are undefined.

        From `events` to `calibration_error`, and `confusion`. One merge of the ordered scores of both classes:
        O(events), or about O(rarer class) if one is rare.
        """
        undefined = Undefined("window", {})
        tn, fp, fn, tp = confusion = self.confusion.tolist()
        metrics = {
            "events": tn + fp + fn + tp,
            "class_counts": {"negative": tn + fp, "positive": fn + tp},
            **ranking_figures(
                order_statistics.values(self.negatives), order_statistics.values(self.positives), settings, undefined
            ),
            **confusion_figures(confusion, settings.beta, undefined),
            **probability_figures(tn + fp + fn + tp, *_losses(self), undefined),
            "confusion": {"tp": tp, "fp": fp, "tn": tn, "fn": fn},
        }
        return in_order(metrics), undefined.reasons

    def curves(self, points: int = 200) -> dict[str, Any]:
        """Return the curves of the window as JSON; see `curves.curves`. O(events * points) at most."""
        mass = np.array([tallied(sums) / 2.0**60 for sums in self.mass.tolist()])
        return curves(
            order_statistics.values(self.negatives),
            order_statistics.values(self.positives),
            self.confusion,
            self.bins,
            mass,
            points,
        )


def _losses(sums: Sums | WindowView) -> tuple[int, int, int]:
    """Return the sums of Brier and log loss, and of the calibration gaps of the bins: multiples of 2^-60."""
    brier, log_loss = sums.losses.tolist()
    high, low = distances(sums.bins, sums.mass)
    return tallied(brier), tallied(log_loss), tallied((int(high), int(low)))
