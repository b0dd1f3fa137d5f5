"""Definitions of the live metrics: their settings, and each metric from the counts that it follows from.

A scope is the window, or everything since the start. Its metrics come from a confusion matrix, from the ordered scores
of each class, and from sums over the probabilities. This module holds what does not depend on how a scope is stored. An
undefined metric is null, and its reason says which events are missing.

Counts are whole numbers and are divided once. So a metric is rounded once, however many events there are. Sums of
losses and probabilities are whole multiples of 2^-60, so they can be subtracted again without a trace, in any order.

References
----------
DeLong, DeLong, Clarke-Pearson. Comparing the Areas under Two or More Correlated Receiver Operating Characteristic
Curves: A Nonparametric Approach. Biometrics 44, 1988.
McClish. Analyzing a Portion of the ROC Curve. Medical Decision Making 9, 1989.
Naeini, Cooper, Hauskrecht. Obtaining Well Calibrated Probabilities Using Bayesian Binning. AAAI 2015.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from learners.numerics import bare_kernel, inlined, log
from learners.settings import InvalidInput, Parameters, Problem, param, show

__all__ = [
    "CONFIDENCE_95",
    "EPSILON",
    "FIGURES",
    "LARGEST_LOSS",
    "MAX_SEGMENT_FIELDS",
    "NO_SPREAD",
    "RELIABILITY_BINS",
    "MetricSettings",
    "Undefined",
    "auc_interval",
    "brier",
    "confusion_figures",
    "confusion_values",
    "distances",
    "in_order",
    "interval_reason",
    "log_loss",
    "missing_class",
    "ordinary",
    "parted",
    "probability_bin",
    "probability_figures",
    "probability_values",
    "standardised",
    "tallied",
    "tallies",
    "tally",
]

EPSILON = 2.220446049250313e-16  # least distance of a probability from 0 and 1 in the log loss
MAX_SEGMENT_FIELDS = 16
LARGEST_LOSS = 36.05  # log loss of a probability of EPSILON for the true label, rounded up
CONFIDENCE_95 = 1.959963984540054  # the normal quantile of 0.975
NO_SPREAD = "no two placements that differ"  # DeLong's variance is then 0, and an interval of width 0 bounds nothing
RELIABILITY_BINS = 15  # of equal width
_STEP = 30  # bits of each of the two whole numbers of a sum

FIGURES = (  # the keys of a scope, in order; only those since the start have an error of the delay
    "events",
    "class_counts",
    "auc",
    "auc_interval",
    "average_precision",
    "partial_auc",
    "ks",
    "recall_at_fpr",
    "precision_at_k",
    "f1",
    "fbeta",
    "precision",
    "recall",
    "fpr",
    "accuracy",
    "mcc",
    "alert_rate",
    "brier",
    "log_loss",
    "calibration_error",
    "label_delay_median",
    "label_delay_p90",
    "label_delay_error",
    "label_coverage",
    "events_per_second",
    "confusion",
)
_SO_FAR = ("since_start", "served")  # scopes of all events so far
_IN_ORDER = tuple(name for figure in FIGURES for name in (figure, f"{figure}_error"))


@dataclass(frozen=True)
class MetricSettings(Parameters):
    """Settings of the live metrics."""

    beta: float = param(1.0, "F-beta: weight of recall relative to precision", above=0, most=100)
    max_fpr: float = param(0.05, "partial AUC and recall at FPR: the largest false positive rate", above=0, most=1)
    k: int = param(100, "precision at k: number of highest scores", least=1, most=1_000_000)
    segments: tuple[str, ...] = param((), "fields of categories whose values have metrics of their own; at most 16")

    def __post_init__(self) -> None:
        """Check that the segment fields are distinct and few."""
        super().__post_init__()
        problems = [
            Problem(f"/segments/{i}", f"is {show(field)} again; expected distinct fields", "conflict")
            for i, field in enumerate(self.segments[:MAX_SEGMENT_FIELDS])
            if field in self.segments[:i]
        ]
        if len(self.segments) > MAX_SEGMENT_FIELDS:
            detail = f"names {len(self.segments)} fields; expected at most {MAX_SEGMENT_FIELDS}"
            problems.append(Problem("/segments", detail, expected={"maxItems": MAX_SEGMENT_FIELDS}))
        if problems:
            raise InvalidInput(problems)


class Undefined(NamedTuple):
    """Collects why metrics of one scope are undefined: a JSON pointer for each, and the reason."""

    scope: str  # "window", "since_start" or another part of a document
    reasons: dict[str, str]

    def add(self, name: str, reason: str) -> None:
        """Note that a metric is undefined. `reason` says what is missing; where it is missing is added."""
        self.reasons[f"/{self.scope}/{name}"] = f"{reason} {'yet' if self.scope in _SO_FAR else 'in the window'}"

    def ratio(self, name: str, part: float, total: float, reason: str) -> float | None:
        """Return part / whole; None, and note the reason, if `total` is 0."""
        if total:
            return part / total
        self.add(name, reason)
        return None


@inlined
def ordinary(score):  # type: ignore[no-untyped-def]
    """Return the score, or 0 for NaN: weights near overflow may give NaN, which has no place in an order."""
    return 0.0 if math.isnan(score) else score


@inlined
def log_loss(probability, label):  # type: ignore[no-untyped-def]
    """Compute -ln of the probability of the true label (0 or 1): from 2.2e-16 to 36.05."""
    likelihood = probability if label == 1 else 1.0 - probability
    return -log(min(max(likelihood, EPSILON), 1.0 - EPSILON))


@inlined
def brier(probability, label):  # type: ignore[no-untyped-def]
    """Compute the squared distance of a probability from the label (0 or 1)."""
    return (probability - label) * (probability - label)


@inlined
def probability_bin(probability):  # type: ignore[no-untyped-def]
    """Return the index of a probability's bin; the RELIABILITY_BINS have equal width, and the last includes 1."""
    return min(int(probability * RELIABILITY_BINS), RELIABILITY_BINS - 1)


@inlined
def parted(x):  # type: ignore[no-untyped-def]
    """Split x in [0, 64) into whole numbers (high, low): high 2^-30 + low 2^-60, rounded down."""
    scaled = x * 2.0**_STEP
    high = math.floor(scaled)
    return np.int64(high), np.int64((scaled - high) * 2.0**_STEP)


@inlined
def tally(sums, part, sign):  # type: ignore[no-untyped-def]
    """Add a `parted` number to a sum (`sign` 1), or subtract it (-1).

    `sums` (2,) int64 stands for sums[0] 2^-30 + sums[1] 2^-60. Exact for up to 2^27 numbers.
    """
    sums[0] += sign * part[0]
    sums[1] += sign * part[1]


@bare_kernel
def distances(bins, mass):  # type: ignore[no-untyped-def]
    """Sum |probabilities - positives| over the bins; return a sum as of `tally`, (high, low).

    `bins` (2, RELIABILITY_BINS) counts events by class; `mass` (RELIABILITY_BINS, 2) sums their probabilities.
    """
    high = low = 0
    for i in range(bins.shape[1]):
        below = -mass[i, 1]
        apart = (bins[1, i] << _STEP) - mass[i, 0] + (below >> _STEP)
        rest = below & ((1 << _STEP) - 1)
        high += apart if apart >= 0 else -apart
        low += rest if apart >= 0 else -rest
    return high, low


@inlined
def tallies(probability, label):  # type: ignore[no-untyped-def]
    """Compute an event's terms of the sums: its bin, and `parted` the probability, Brier loss and log loss."""
    return (
        probability_bin(probability),
        parted(probability),
        parted(brier(probability, label)),
        parted(log_loss(probability, label)),
    )


def tallied(sums: Sequence[int]) -> int:
    """Return the sum that `tally` maintains as a whole multiple of 2^-60."""
    return (sums[0] << _STEP) + sums[1]


def missing_class(negatives: int, positives: int) -> str | None:
    """Say which class is missing; None if both have events."""
    if negatives and positives:
        return None
    return "no labelled events" if not negatives + positives else "no negatives" if positives else "no positives"


_CONFUSION = ("f1", "fbeta", "precision", "recall", "fpr", "accuracy", "mcc", "alert_rate")


def confusion_values(confusion: Sequence[int], beta: float) -> tuple[float | None, ...]:
    """Compute the metrics named in `_CONFUSION` from the counts tn, fp, fn, tp; None if undefined."""
    tn, fp, fn, tp = confusion
    negatives, positives, alerts, events = tn + fp, fn + tp, fp + tp, tn + fp + fn + tp
    b2 = beta * beta
    has_positives = positives > 0  # without positives F is undefined, not 0: there was nothing to find
    mcc = None
    if negatives and positives and alerts and events - alerts:
        # whole numbers under the root: each factor is rounded once
        norm = math.sqrt(alerts * positives) * math.sqrt((events - alerts) * negatives)
        mcc = (tp * tn - fp * fn) / norm
    return (
        2 * tp / (2 * tp + fp + fn) if has_positives else None,
        (1 + b2) * tp / ((1 + b2) * tp + b2 * fn + fp) if has_positives else None,
        tp / alerts if alerts else None,
        tp / positives if has_positives else None,
        fp / negatives if negatives else None,
        (tp + tn) / events if events else None,
        mcc,
        alerts / events if events else None,
    )


def confusion_figures(confusion: Sequence[int], beta: float, undefined: Undefined) -> dict[str, float | None]:
    """Compute the same by name; `undefined` collects the reasons."""
    tn, fp, fn, tp = (int(count) for count in confusion)
    out = dict(zip(_CONFUSION, confusion_values((tn, fp, fn, tp), beta), strict=True))
    lacking = missing_class(tn + fp, fn + tp) or ("no negative" if fp + tp else "no positive") + " was predicted"
    reasons = {
        "precision": "no positive was predicted",
        "fpr": "no negative",
        "accuracy": "no labelled events",
        "mcc": lacking,
        "alert_rate": "no labelled events",
    }
    for name, value in out.items():
        if value is None:
            undefined.add(name, reasons.get(name, "no positive"))
    return out


_PROBABILITY = ("brier", "log_loss", "calibration_error")


def probability_values(events: int, brier: int, log_loss: int, gap: int) -> tuple[float | None, ...]:
    """Compute the metrics named in `_PROBABILITY` of so many events; None if undefined.

    Takes sums, each a multiple of 2^-60: Brier losses, log losses, and from `distances` the `gap` between probabilities
    and positives over the bins. So the calibration error is the mean over events of |mean probability - share of
    positives| of their bin (Naeini et al.).
    """
    if not events:
        return None, None, None
    total = events << 2 * _STEP
    return brier / total, log_loss / total, gap / total


def probability_figures(
    events: int, brier: int, log_loss: int, gap: int, undefined: Undefined
) -> dict[str, float | None]:
    """Compute the same by name; `undefined` collects the reasons."""
    out = dict(zip(_PROBABILITY, probability_values(events, brier, log_loss, gap), strict=True))
    if not events:
        for name in _PROBABILITY:
            undefined.add(name, "no labelled events")
    return out


def auc_interval(negatives: int, positives: int, pairs: int, squares: tuple[int, int]) -> list[float] | None:
    """Compute AUC +- 1.96 standard errors by DeLong's variance, within [0, 1]; None if that is 0, see `NO_SPREAD`.

    Let c be, for each positive, twice the number of negatives below it, and for each negative, twice the number of
    positives above it; a tie counts one half. `pairs` is the sum of c over either class, which is the same number.
    `squares` are the sums of c^2 over negatives and positives. Each class needs at least two events.
    """
    n, m = negatives, positives
    if m * squares[1] == n * squares[0] == pairs * pairs:
        return None
    variance = (m * squares[1] - pairs * pairs) / (4 * m * m * (m - 1) * n * n)
    variance += (n * squares[0] - pairs * pairs) / (4 * n * n * (n - 1) * m * m)
    auc = pairs / (2 * n * m)
    reach = CONFIDENCE_95 * math.sqrt(max(variance, 0.0))
    return [max(auc - reach, 0.0), min(auc + reach, 1.0)]


def standardised(area: float, max_fpr: float) -> float:
    """Scale the area under the ROC curve up to `max_fpr` by McClish: 1/2 for chance, 1 for a perfect order."""
    least = 0.5 * max_fpr * max_fpr
    return 0.5 * (1.0 + (area - least) / (max_fpr - least))


def interval_reason(negatives: int, positives: int) -> str | None:
    """Say which events the interval of the AUC needs; None if each class has two."""
    lacking = missing_class(negatives, positives)
    if lacking or min(negatives, positives) > 1:
        return lacking
    return f"only one {'negative' if negatives == 1 else 'positive'}"


def in_order(figures: dict[str, Any]) -> dict[str, Any]:
    """Sort the metrics of a scope as in `FIGURES`, each `<name>_error` right after its metric."""
    return {name: figures[name] for name in _IN_ORDER if name in figures}
