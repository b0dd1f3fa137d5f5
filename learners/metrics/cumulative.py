"""The live figures since the start in a fixed size: histograms of scores and of probabilities by class, and exact sums.

The bins of the scores follow the binary exponent, 16 to an octave from 2^-24 to 2^16, so a score is told apart from one
6 % larger; beyond there is one bin for all larger ones, one for all (almost) zero, and the same for negative scores.
What follows from decisions or probabilities is exact. What follows from the order of the scores is within bounds, which
are told: `binned.py`.

Everything is a count, or a sum of whole multiples of 2^-60, in its one normal form: sketches of parts of a stream add
up to that of the whole, and an event taken back leaves no trace. O(1) time per event; 21 KB; a poll is O(bins).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from learners.metrics.definitions import (
    CONFIDENCE_95,
    LARGEST_LOSS,
    NO_SPREAD,
    RELIABILITY_BINS,
    MetricSettings,
    Undefined,
    confusion_figures,
    confusion_values,
    in_order,
    interval_reason,
    missing_class,
    ordinary,
    probability_figures,
    standardised,
    tallied,
    tallies,
    tally,
)
from learners.metrics.ranking_from_bins import mixed, sweep
from learners.numerics import MAX_COUNT, Counts, Issues, Vector, bare_kernel, counters, inlined, outside

__all__ = [
    "BRIEF",
    "SCORE_BINS",
    "CumulativeSketch",
    "CumulativeSketchState",
    "CumulativeSketchView",
    "score_bin",
    "take",
]

_LOW, _HIGH = -24, 16  # exponents with bins of their own: 2^-24 <= |score| < 2^16
_PER_OCTAVE = 16
_SIDE = (_HIGH - _LOW) * _PER_OCTAVE + 1  # one more for everything larger
SCORE_BINS = 2 * _SIDE + 1  # negative scores, (almost) zero, positive scores

_LOW_BITS, _HIGH_BITS = 30, 60  # of the last two words of a sum; see `_carry`
_SLACK = 2**12  # in multiples of 2^-60: a probability at an edge may be rounded into the bin beside it

_RANKED = ("auc", "average_precision", "partial_auc", "ks", "recall_at_fpr", "precision_at_k")  # as `sweep` has them
BRIEF = ("auc", "average_precision", "f1", "precision", "recall", "alert_rate")  # see `CumulativeSketchView.brief`


class CumulativeSketchState(NamedTuple):
    """The arrays of the state; a sum is three words, see `_carry`."""

    counts: Counts  # (2,) labelled events by class: negatives, positives
    confusion: Counts  # (4,) tn, fp, fn, tp
    bins: NDArray[np.int64]  # (2, SCORE_BINS) scores by class
    losses: NDArray[np.int64]  # (2, 3) sums of Brier's and of log loss
    reliability: NDArray[np.int64]  # (2, RELIABILITY_BINS) events by class and bin of their probability
    mass: NDArray[np.int64]  # (RELIABILITY_BINS, 3) sums of the probabilities


@inlined
def score_bin(score):  # type: ignore[no-untyped-def]
    """Which of the SCORE_BINS a score is in, ascending with it; not for NaN."""
    size = abs(score)
    if size < 2.0**_LOW:
        return _SIDE
    if size >= 2.0**_HIGH:
        step = _SIDE
    else:
        fraction, exponent = math.frexp(size)  # size = fraction 2^exponent, 1/2 <= fraction < 1: exact
        step = (exponent - 1 - _LOW) * _PER_OCTAVE + int((fraction - 0.5) * (2 * _PER_OCTAVE)) + 1
    return _SIDE + step if score > 0.0 else _SIDE - step


@inlined
def _carry(words):  # type: ignore[no-untyped-def]
    """Bring a sum, words[0] 2^30 + words[1] 2^-30 + words[2] 2^-60, to its normal form: one for each sum.

    In it the second word is from 0 to 2^60 - 1 and the third from 0 to 2^30 - 1, so there is room for more events than
    can be counted.
    """
    words[1] += words[2] >> _LOW_BITS
    words[2] &= (1 << _LOW_BITS) - 1
    words[0] += words[1] >> _HIGH_BITS
    words[1] &= (1 << _HIGH_BITS) - 1


@inlined
def _add(words, part, sign):  # type: ignore[no-untyped-def]
    tally(words[1:], part, sign)
    _carry(words)


@inlined
def take(state, label, score, decision, told, sign):  # type: ignore[no-untyped-def]
    """Take an event in (`sign` 1) or out (-1); label and decision 0 or 1, of probabilities what `tallies` says."""
    at, probability, brier, log_loss = told
    state.bins[label, score_bin(score)] += sign
    state.counts[label] += sign
    state.confusion[2 * label + decision] += sign
    state.reliability[label, at] += sign
    _add(state.mass[at], probability, sign)
    _add(state.losses[0], brier, sign)
    _add(state.losses[1], log_loss, sign)


@bare_kernel
def _learn(state, scores, probabilities, y, decisions, sign):  # type: ignore[no-untyped-def]
    for i in range(y.shape[0]):
        label = 1 if y[i] > 0.0 else 0
        take(state, label, ordinary(scores[i]), decisions[i], tallies(probabilities[i], label), sign)


@bare_kernel
def _add_sums(sums, more):  # type: ignore[no-untyped-def]
    for i in range(sums.shape[0]):
        for j in range(3):
            sums[i, j] += more[i, j]
        _carry(sums[i])


class CumulativeSketch:
    """What is kept of all labelled events since the start."""

    def __init__(self) -> None:
        self.arrays = CumulativeSketchState(
            counts=np.zeros(2, dtype=np.int64),
            confusion=np.zeros(4, dtype=np.int64),
            bins=np.zeros((2, SCORE_BINS), dtype=np.int64),
            losses=np.zeros((2, 3), dtype=np.int64),
            reliability=np.zeros((2, RELIABILITY_BINS), dtype=np.int64),
            mass=np.zeros((RELIABILITY_BINS, 3), dtype=np.int64),
        )

    @property
    def events(self) -> int:
        """Labelled events learnt."""
        return int(self.arrays.counts.sum())

    def learn(self, scores: Vector, probabilities: Vector, y: Vector, decisions: NDArray[np.int64]) -> None:
        """Count n events, columns of (n,): what was said of them, and their labels (-1, +1).

        `Metrics` takes events into all of its parts together instead, by `take`.
        """
        _learn(self.arrays, scores, probabilities, y, decisions, 1)

    def correct(self, was: int, label: int, score: float, probability: float, decision: int) -> None:
        """An event learnt with the label `was` (0 or 1) has the label `label`, just as if it had been learnt so."""
        said = np.array([score], np.float64), np.array([probability], np.float64)
        called = np.array([decision], np.int64)
        for one, sign in ((was, -1), (label, 1)):
            _learn(self.arrays, *said, np.array([2.0 * one - 1.0]), called, sign)

    def merge(self, other: CumulativeSketch) -> None:
        """Add the events of another sketch."""
        for name, array in self.arrays._asdict().items():
            more = getattr(other.arrays, name)
            if name in ("losses", "mass"):
                _add_sums(array, more)
            else:
                array += more

    def state(self) -> dict[str, NDArray[np.generic]]:
        """The arrays of the state, of the same shapes always."""
        return dict(self.arrays._asdict())

    def problems(self, state: dict[str, NDArray[np.generic]]) -> Issues:
        """What no events can have led to in a state of the right shapes. O(bins)."""
        arrays = CumulativeSketchState(**state)  # type: ignore[arg-type]
        wrong = list(counters({name: array for name, array in state.items() if name not in ("losses", "mass")}))
        for name, sums in (("losses", arrays.losses), ("mass", arrays.mass)):
            wrong += outside(name, sums[:, 0], 0, MAX_COUNT)
            wrong += outside(name, sums[:, 1], 0, 2**_HIGH_BITS - 1)
            wrong += outside(name, sums[:, 2], 0, 2**_LOW_BITS - 1)
        yield from wrong
        if wrong:
            return
        counts = arrays.counts
        if (arrays.confusion.reshape(2, 2).sum(axis=1) != counts).any():
            yield "confusion", "does not add up to the counts of the classes"
        for name in ("bins", "reliability"):  # as floats: the sum of many large counts has no place in int64
            if (state[name].sum(axis=1, dtype=np.float64) != counts).any():
                yield name, "does not add up to the counts of the classes"
        events = int(counts.sum())
        for words, largest in zip(arrays.losses.tolist(), (1.0, LARGEST_LOSS), strict=True):
            if _total(words) > events * int(largest * 2**_HIGH_BITS):
                yield "losses", f"has a sum of more than {largest} for each event"
        upto = [math.ceil(i * 2**_HIGH_BITS / RELIABILITY_BINS) for i in range(RELIABILITY_BINS + 1)]
        held = arrays.reliability.sum(axis=0).tolist()
        for i, (words, count) in enumerate(zip(arrays.mass.tolist(), held, strict=True)):
            if not count * (upto[i] - _SLACK) <= _total(words) <= count * (upto[i + 1] + _SLACK):
                yield "mass", f"has a mean probability in bin {i} that is not in the bin"
                return

    def restore(self, state: dict[str, NDArray[np.generic]]) -> None:
        """Take the arrays of a state."""
        self.arrays = CumulativeSketchState(
            **{name: np.array(state[name], dtype=np.int64, order="C") for name in self.state()}
        )

    def view(self) -> CumulativeSketchView:
        """The figures as they stand: right until the next change, or for good once `frozen()`."""
        return CumulativeSketchView._make(self.arrays)


class CumulativeSketchView(NamedTuple):
    """What a reader of the figures needs: the arrays of the state."""

    counts: Counts
    confusion: Counts
    bins: NDArray[np.int64]
    losses: NDArray[np.int64]
    reliability: NDArray[np.int64]
    mass: NDArray[np.int64]

    def frozen(self) -> CumulativeSketchView:
        """A copy that stays as it is. O(1): some 20 KB."""
        return CumulativeSketchView._make(array.copy() for array in self)

    def figures(self, settings: MetricSettings) -> tuple[dict[str, Any], dict[str, str]]:
        """The figures since the start, and by pointer why those that are None are undefined. O(bins)."""
        undefined = Undefined("since_start", {})
        negatives, positives = self.counts.tolist()
        figures: dict[str, Any] = {
            "events": negatives + positives,
            "class_counts": {"negative": negatives, "positive": positives},
        }
        figures |= self._ranked(settings, undefined)
        figures |= confusion_figures(self.confusion.tolist(), settings.beta, undefined)
        losses, mass = ([_total(words) for words in sums.tolist()] for sums in (self.losses, self.mass))
        apart = sum(abs((hits << _HIGH_BITS) - x) for hits, x in zip(self.reliability[1].tolist(), mass, strict=True))
        figures |= probability_figures(negatives + positives, losses[0], losses[1], apart, undefined)
        tn, fp, fn, tp = self.confusion.tolist()
        figures["confusion"] = {"tp": tp, "fp": fp, "tn": tn, "fn": fn}
        return in_order(figures), undefined.reasons

    def brief(self) -> list[float | None]:
        """The figures named in `BRIEF` as `figures` gives them, without errors and reasons. O(bins): some 10 us."""
        n, m = self.counts.tolist()
        auc, precisions = mixed(self.bins, n, m)
        f1, _, precision, recall, _, _, _, alert_rate = confusion_values(self.confusion.tolist(), 1.0)
        return [auc if n and m else None, precisions / m if m else None, f1, precision, recall, alert_rate]

    def _ranked(self, settings: MetricSettings, undefined: Undefined) -> dict[str, Any]:
        """The figures that follow from the order of the scores, each with its error."""
        n, m = self.counts.tolist()
        found, squares = np.zeros((len(_RANKED), 3)), np.zeros(2)
        sweep(self.bins, n, m, settings.max_fpr, settings.k, found, squares)
        rows = found.tolist()
        lacking = missing_class(n, m)
        reasons: dict[str, str | None] = dict.fromkeys(_RANKED, lacking)
        reasons["average_precision"] = None if m else lacking
        few = f"fewer than {settings.k} labelled events"
        reasons["precision_at_k"] = few if n + m < settings.k else None if m else lacking
        scales = dict(zip(_RANKED, (1.0, max(m, 1), 1.0, 1.0, max(m, 1), settings.k), strict=True))
        out: dict[str, Any] = {}
        for name, row in zip(_RANKED, rows, strict=True):
            reason = reasons[name]
            if reason is not None:
                out[name] = out[f"{name}_error"] = None
                undefined.of(name, reason)
                undefined.of(f"{name}_error", reason)
                continue
            if name == "partial_auc":
                worst, given, best = (standardised(area / n / m, settings.max_fpr) for area in row)
            else:
                worst, given, best = (x / scales[name] for x in row)
            out[name], out[f"{name}_error"] = given, max(best - given, given - worst, 0.0)
        alone = interval_reason(n, m)
        if alone is None and not any(squares) and not out["auc_error"]:
            alone = NO_SPREAD
        if alone is None:
            deviation = math.sqrt(squares[0] / (n - 1) / n + squares[1] / (m - 1) / m)
            reach = CONFIDENCE_95 * deviation + out["auc_error"]
            out["auc_interval"] = [max(out["auc"] - reach, 0.0), min(out["auc"] + reach, 1.0)]
        else:
            out["auc_interval"] = None
            undefined.of("auc_interval", alone)
        return out


def _total(words: list[int]) -> int:
    """A sum as a whole multiple of 2^-60."""
    return (words[0] << (_LOW_BITS + _HIGH_BITS)) + tallied(words[1:])
