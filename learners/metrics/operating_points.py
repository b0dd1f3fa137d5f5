"""Metrics of decisions on the events of a window: those that a threshold would make, or those that were made.

Each figure is a share of events, or follows from shares, so its 95 % interval is Wilson's. It holds for independent
events: what comes in bursts varies more.

    precision, recall, fpr, alert_rate    shares
    f1                                    2 j / (1 + j) rises with j = tp / (tp + fp + fn), which is a share
    alerts_per_day                        alert_rate times the labelled events of a day
    cost                                  c fp + d fn. With the intervals [a, b] of fp and [k, l] of fn, it reaches from
                                          cost - sqrt((c (fp - a))^2 + (d (fn - k))^2), and up to the same with b and l

References
----------
Wilson. Probable Inference, the Law of Succession, and Statistical Inference. JASA 22, 1927.
Zou, Donner. Construction of Confidence Limits about Effect Measures: A General Approach. Statistics in Medicine 27,
2008: the interval of a sum from those of its terms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from learners.metrics.curves import alert_counts
from learners.metrics.definitions import CONFIDENCE_95, Undefined, confusion_figures
from learners.numerics import Counts, Vector

__all__ = ["DecisionFigures", "ErrorCosts", "choose_thresholds", "confusions_at", "share_interval"]

_FIGURES = ("precision", "recall", "f1", "fpr", "alert_rate", "alerts_per_day", "cost")
_DIGITS = 17  # decimals of a threshold, from 0 on
_DAY = 86_400.0  # seconds


class ErrorCosts(NamedTuple):
    """What each kind of error costs."""

    false_positive: float
    false_negative: float


def share_interval(part: int, total: int) -> list[float]:
    """Compute Wilson's 95 % interval of the share part / total, which it includes."""
    z2, share = CONFIDENCE_95**2, part / total
    centre = (part + z2 / 2.0) / (total + z2)
    reach = CONFIDENCE_95 * math.sqrt(share * (total - part) + z2 / 4.0) / (total + z2)
    return [min(max(centre - reach, 0.0), share), max(min(centre + reach, 1.0), share)]


class DecisionFigures(NamedTuple):
    """Computes the figures of decisions, and collects by JSON pointer why some are undefined."""

    rate: float | None  # labelled events per second
    costs: ErrorCosts | None
    reasons: dict[str, str]  # why there is no rate or cost: by `alerts_per_day` and `cost`
    undefined: dict[str, str]

    def of(self, confusion: Sequence[int], scope: str) -> dict[str, Any]:
        """Compute the figures of the counts tn, fp, fn, tp as JSON; `scope` is the member that they become."""
        tn, fp, fn, tp = (int(count) for count in confusion)
        events = tn + fp + fn + tp
        reasons: dict[str, str] = {}
        values = confusion_figures((tn, fp, fn, tp), 1.0, Undefined(scope, reasons))
        shares = {
            "precision": (tp, tp + fp),
            "recall": (tp, tp + fn),
            "fpr": (fp, fp + tn),
            "alert_rate": (tp + fp, events),
        }
        intervals = {name: share_interval(part, total) for name, (part, total) in shares.items() if total}
        if values["f1"] is not None:
            intervals["f1"] = [2.0 * overlap / (1.0 + overlap) for overlap in share_interval(tp, tp + fp + fn)]
        if events and self.rate is not None:
            daily = self.rate * _DAY
            values["alerts_per_day"] = daily * (tp + fp) / events
            intervals["alerts_per_day"] = [daily * share for share in intervals["alert_rate"]]
        if events and self.costs is not None:
            values["cost"], intervals["cost"] = _cost(self.costs, fp, fn, events)
        figures: dict[str, Any] = {}
        for name in _FIGURES:
            figures[name] = values.get(name)
            figures[f"{name}_interval"] = intervals.get(name)
            if figures[name] is None:
                at, none = f"/{scope}/{name}", "no labelled events in the window"
                self.undefined[at] = reasons.get(at) or self.reasons.get(name, none)
        return {**figures, "confusion": {"tp": tp, "fp": fp, "tn": tn, "fn": fn}}

    def table(self, confusions: Counts, scope: str) -> dict[str, Any]:
        """Compute the figures of n confusion matrices (n, 4): for each figure a list, or None if it is undefined.

        A figure must be undefined for all of them or for none. O(n).
        """
        rows = [self.of(row, scope) for row in confusions.tolist()]
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        counts = columns.pop("confusion")
        figures: dict[str, Any] = {name: None if None in column else column for name, column in columns.items()}
        return {**figures, "confusion": {cell: [row[cell] for row in counts] for cell in counts[0]}}


def _cost(costs: ErrorCosts, fp: int, fn: int, events: int) -> tuple[float, list[float]]:
    """Compute the cost of all errors, and its interval."""
    cost = costs.false_positive * fp + costs.false_negative * fn
    reach = [0.0, 0.0]
    for price, count in zip(costs, (fp, fn), strict=True):
        for i, share in enumerate(share_interval(count, events)):
            reach[i] = math.hypot(reach[i], price * (events * share - count))
    return cost, [max(cost - reach[0], 0.0), cost + reach[1]]


def confusions_at(negatives: Vector, positives: Vector, thresholds: Vector) -> Counts:
    """Count tn, fp, fn, tp at each of k thresholds, (k, 4), from the ascending probabilities of each class."""
    fp, tp = alert_counts(negatives, positives, thresholds)
    return np.stack([len(negatives) - fp, fp, len(positives) - tp, tp], axis=1)


def choose_thresholds(negatives: Vector, positives: Vector, most: int) -> Vector:
    """Choose at most `most` (2 or more) thresholds, ascending, from the ascending probabilities of each class.

    Half of them are evenly spread over the logarithm of the number of alerts, half over recall. Each has another set
    of alerts, and is the shortest decimal that has this set. O(n log n) for n events.
    """
    ascending = np.sort(np.concatenate([negatives, positives]))
    n, m = len(ascending), len(positives)
    if not n:
        return np.empty(0)
    half = most // 2 if m else 0
    alerts = np.rint(np.geomspace(1, n, most - half)).astype(np.int64)
    recalls = np.rint(np.linspace(0, m - 1, half)).astype(np.int64)
    lowest = np.unique(np.concatenate([ascending[n - alerts], positives[recalls]]))  # probabilities that are alerts
    first = np.searchsorted(ascending, lowest).tolist()
    below = [float(ascending[i - 1]) if i else -1.0 for i in first]
    return np.array([_shortest(*ends) for ends in zip(below, lowest.tolist(), strict=True)])


def _shortest(above: float, most: float) -> float:
    """Return the shortest decimal that is above a number, and at most another one in [0, 1]."""
    for digits in range(_DIGITS):
        scale = 10.0**digits
        value = math.floor(most * scale) / scale
        if above < value <= most:
            return value
    return most
