"""Live metrics since the start in fixed memory: histograms of scores and probabilities by class, and exact sums.

Score bins follow the binary exponent, 16 bins per octave from 2^-24 to 2^16. So two scores that differ by 6 % are in
different bins. One bin holds everything larger, one everything close to zero, and the same for negative scores.

Metrics of decisions or probabilities are exact. Metrics of the scores' order come with an error bound; see
`ranking_from_bins.py`.

Everything is a count or a sum of whole multiples of 2^-60, in one normal form. So the sketches of parts of a stream add
up to that of the whole, and an event that is taken back leaves no trace.

O(1) time per event; 21 KB; reading the metrics is O(bins).
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
_SIDE = (_HIGH - _LOW) * _PER_OCTAVE + 1  # one more bin for everything larger
SCORE_BINS = 2 * _SIDE + 1  # negative scores, (almost) zero, positive scores

_LOW_BITS, _HIGH_BITS = 30, 60  # of the last two words of a sum; see `_carry`
_SLACK = 2**12  # in multiples of 2^-60: a probability at an edge may be rounded into the bin beside it

_RANKED = ("auc", "average_precision", "partial_auc", "ks", "recall_at_fpr", "precision_at_k")  # in `sweep`'s order
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
    """Return the index of a score's bin among SCORE_BINS, ascending with the score; not for NaN."""
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
    """Normalise a sum, words[0] 2^30 + words[1] 2^-30 + words[2] 2^-60: each sum has one normal form.

    The second word is then from 0 to 2^60 - 1 and the third from 0 to 2^30 - 1. That is room for more events than can
    be counted.
    """
    words[1] += words[2] >> _LOW_BITS
    words[2] &= (1 << _LOW_BITS) - 1
    words[0] += words[1] >> _HIGH_BITS
    words[1] &= (1 << _HIGH_BITS) - 1


@inlined
def _add(words, part, sign):  # type: ignore[no-untyped-def]
    """Add a `parted` number to a sum (`sign` 1), or subtract it (-1)."""
    tally(words[1:], part, sign)
    _carry(words)


@inlined
def take(state, label, score, decision, terms, sign):  # type: ignore[no-untyped-def]
    """Take an event in (`sign` 1) or out (-1). Label and decision are 0 or 1; `terms` are from `tallies`."""
    at, probability, brier, log_loss = terms
    state.bins[label, score_bin(score)] += sign
    state.counts[label] += sign
    state.confusion[2 * label + decision] += sign
    state.reliability[label, at] += sign
    _add(state.mass[at], probability, sign)
    _add(state.losses[0], brier, sign)
    _add(state.losses[1], log_loss, sign)


@bare_kernel
def _learn(state, scores, probabilities, y, decisions, sign):  # type: ignore[no-untyped-def]
    """Take n events in or out."""
    for i in range(y.shape[0]):
        label = 1 if y[i] > 0.0 else 0
        take(state, label, ordinary(scores[i]), decisions[i], tallies(probabilities[i], label), sign)


@bare_kernel
def _add_sums(sums, more):  # type: ignore[no-untyped-def]
    """Add sums to sums, word by word."""
    for i in range(sums.shape[0]):
        for j in range(3):
            sums[i, j] += more[i, j]
        _carry(sums[i])


class CumulativeSketch:
    """The labelled events since the start, as histograms and sums."""

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
        """Count n events, columns of (n,): their predictions and their labels (-1, +1).

        `BinaryMetrics` calls `take` instead, once for all of its parts.
        """
        _learn(self.arrays, scores, probabilities, y, decisions, 1)

    def correct(self, before: int, label: int, score: float, probability: float, decision: int) -> None:
        """Change an event's label from `before` to `label` (0 or 1), as if it had been learnt so."""
        scores, probabilities = np.array([score], np.float64), np.array([probability], np.float64)
        decisions = np.array([decision], np.int64)
        for value, sign in ((before, -1), (label, 1)):
            _learn(self.arrays, scores, probabilities, np.array([2.0 * value - 1.0]), decisions, sign)

    def merge(self, other: CumulativeSketch) -> None:
        """Add the events of another sketch."""
        for name, array in self.arrays._asdict().items():
            more = getattr(other.arrays, name)
            if name in ("losses", "mass"):
                _add_sums(array, more)
            else:
                array += more

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return the arrays of the state; their shapes never change."""
        return dict(self.arrays._asdict())

    def shapes(self, state: dict[str, NDArray[np.generic]]) -> dict[str, tuple[int, ...]]:  # noqa: ARG002
        """Return the shapes of a state's arrays."""
        return {name: array.shape for name, array in self.state().items()}

    def problems(self, state: dict[str, NDArray[np.generic]]) -> Issues:
        """Report what no events can have led to in a state of the right shapes. O(bins)."""
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
        for name in ("bins", "reliability"):  # as floats: the sum of many large counts may overflow int64
            if (state[name].sum(axis=1, dtype=np.float64) != counts).any():
                yield name, "does not add up to the counts of the classes"
        events = int(counts.sum())
        for words, largest in zip(arrays.losses.tolist(), (1.0, LARGEST_LOSS), strict=True):
            if _total(words) > events * int(largest * 2**_HIGH_BITS):
                yield "losses", f"has a sum of more than {largest} for each event"
        edges = [math.ceil(i * 2**_HIGH_BITS / RELIABILITY_BINS) for i in range(RELIABILITY_BINS + 1)]
        in_bin = arrays.reliability.sum(axis=0).tolist()
        for i, (words, count) in enumerate(zip(arrays.mass.tolist(), in_bin, strict=True)):
            if not count * (edges[i] - _SLACK) <= _total(words) <= count * (edges[i + 1] + _SLACK):
                yield "mass", f"has a mean probability in bin {i} that is not in the bin"
                return

    def restore(self, state: dict[str, NDArray[np.generic]]) -> None:
        """Take copies of the arrays of a state."""
        self.arrays = CumulativeSketchState(
            **{name: np.array(state[name], dtype=np.int64, order="C") for name in self.state()}
        )

    def view(self) -> CumulativeSketchView:
        """Return the arrays as they stand: right until the next change, or for good once `frozen()`."""
        return CumulativeSketchView._make(self.arrays)


class CumulativeSketchView(NamedTuple):
    """The arrays of the state at one moment, and the metrics that follow from them."""

    counts: Counts
    confusion: Counts
    bins: NDArray[np.int64]
    losses: NDArray[np.int64]
    reliability: NDArray[np.int64]
    mass: NDArray[np.int64]

    def frozen(self) -> CumulativeSketchView:
        """Return a copy that stays as it is. O(1): about 20 KB."""
        return CumulativeSketchView._make(array.copy() for array in self)

    def figures(self, settings: MetricSettings) -> tuple[dict[str, Any], dict[str, str]]:
        """Compute the metrics since the start, and by pointer why the others are undefined. O(bins)."""
        undefined = Undefined("since_start", {})
        negatives, positives = self.counts.tolist()
        metrics: dict[str, Any] = {
            "events": negatives + positives,
            "class_counts": {"negative": negatives, "positive": positives},
        }
        metrics |= self._ranked(settings, undefined)
        metrics |= confusion_figures(self.confusion.tolist(), settings.beta, undefined)
        losses, mass = ([_total(words) for words in sums.tolist()] for sums in (self.losses, self.mass))
        gap = sum(abs((hits << _HIGH_BITS) - x) for hits, x in zip(self.reliability[1].tolist(), mass, strict=True))
        metrics |= probability_figures(negatives + positives, losses[0], losses[1], gap, undefined)
        tn, fp, fn, tp = self.confusion.tolist()
        metrics["confusion"] = {"tp": tp, "fp": fp, "tn": tn, "fn": fn}
        return in_order(metrics), undefined.reasons

    def brief(self) -> list[float | None]:
        """Compute the metrics named in `BRIEF`, without errors and reasons. O(bins): about 10 us."""
        n, m = self.counts.tolist()
        auc, precisions = mixed(self.bins, n, m)
        f1, _, precision, recall, _, _, _, alert_rate = confusion_values(self.confusion.tolist(), 1.0)
        return [auc if n and m else None, precisions / m if m else None, f1, precision, recall, alert_rate]

    def _ranked(self, settings: MetricSettings, undefined: Undefined) -> dict[str, Any]:
        """Compute the metrics of the scores' order, each with its error bound."""
        n, m = self.counts.tolist()
        bounds, squares = np.zeros((len(_RANKED), 3)), np.zeros(2)
        sweep(self.bins, n, m, settings.max_fpr, settings.k, bounds, squares)
        rows = bounds.tolist()
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
                undefined.add(name, reason)
                undefined.add(f"{name}_error", reason)
                continue
            if name == "partial_auc":
                worst, estimate, best = (standardised(area / n / m, settings.max_fpr) for area in row)
            else:
                worst, estimate, best = (x / scales[name] for x in row)
            out[name], out[f"{name}_error"] = estimate, max(best - estimate, estimate - worst, 0.0)
        no_interval = interval_reason(n, m)
        if no_interval is None and not any(squares) and not out["auc_error"]:
            no_interval = NO_SPREAD
        if no_interval is None:
            deviation = math.sqrt(squares[0] / (n - 1) / n + squares[1] / (m - 1) / m)
            reach = CONFIDENCE_95 * deviation + out["auc_error"]
            out["auc_interval"] = [max(out["auc"] - reach, 0.0), min(out["auc"] + reach, 1.0)]
        else:
            out["auc_interval"] = None
            undefined.add("auc_interval", no_interval)
        return out


def _total(words: list[int]) -> int:
    """Return a sum as a whole multiple of 2^-60."""
    return (words[0] << (_LOW_BITS + _HIGH_BITS)) + tallied(words[1:])
