"""Metrics of decisions, and of the best fixed threshold for the same probabilities in hindsight."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from learners.numerics.arrays import Vector

__all__ = ["COSTS", "DAY", "Curve", "Figures", "Flags", "figures_of"]

COSTS = (1.0, 10.0)  # of a false alarm, of a missed positive
DAY = 86_400.0  # seconds

Flags = NDArray[np.bool_]
Figures = dict[str, float]


class Curve(NamedTuple):
    """Counts for every fixed threshold, from no predicted positives to all, (thresholds + 1,)."""

    hits: Vector  # true positives
    calls: Vector
    positives: int
    negatives: int

    @classmethod
    def of(cls, probabilities: Vector, y: Vector) -> Curve:
        """From probabilities and labels -1/+1, (n,). O(n log n)."""
        order = np.argsort(-probabilities, kind="stable")
        falls = np.flatnonzero(np.diff(probabilities[order]))  # events of one probability are called alike
        ends = np.append(falls, len(y) - 1) + 1 if len(y) else falls
        hits = np.append(0.0, np.cumsum(y[order] > 0.0))
        positives = int(hits[-1])
        at = np.append(0, ends)
        return cls(hits[at], at.astype(np.float64), positives, len(y) - positives)

    def f_beta(self, beta: float) -> float:
        """Return the largest F_beta."""
        bottom = beta**2 * self.positives + self.calls
        return float(np.max((1 + beta**2) * self.hits / np.maximum(bottom, 1e-9)))

    def jaccard(self) -> float:
        """Return the largest Jaccard index."""
        return float(np.max(self.hits / np.maximum(self.positives + self.calls - self.hits, 1)))

    def accuracy(self) -> float:
        """Return the largest accuracy."""
        alarms = self.calls - self.hits
        return float(np.max(self.hits + self.negatives - alarms)) / max(self.positives + self.negatives, 1)

    def recall_at_fpr(self, target: float) -> float:
        """Return the largest recall at a false positive rate of at most `target`."""
        allowed = self.calls - self.hits <= target * self.negatives
        return float(self.hits[allowed].max()) / max(self.positives, 1)

    def recall_at_precision(self, target: float) -> float:
        """Return the largest recall at a precision of at least `target`; 0 if no threshold has it."""
        allowed = self.hits >= target * self.calls
        return float(self.hits[allowed].max()) / max(self.positives, 1)

    def precision_at_recall(self, target: float) -> float:
        """Return the largest precision at a recall of at least `target`."""
        allowed = self.hits >= target * self.positives
        return float(np.max(self.hits[allowed] / np.maximum(self.calls[allowed], 1)))

    def precision_at(self, calls: int) -> float:
        """Return the precision of the `calls` highest events, NaN for 0; ties count by expectation."""
        return float(np.interp(calls, self.calls, self.hits)) / calls if calls else np.nan

    def cost(self) -> float:
        """Return the least cost per event."""
        alarm, miss = COSTS
        costs = alarm * (self.calls - self.hits) + miss * (self.positives - self.hits)
        return float(np.min(costs)) / max(self.positives + self.negatives, 1)


def figures_of(called: Flags, y: Vector, clocks: Vector) -> Figures:
    """Compute the metrics of decisions."""
    positive = y > 0.0
    n, positives, calls = len(y), int(positive.sum()), int(called.sum())
    hits = int((called & positive).sum())
    alarms, misses = calls - hits, positives - hits
    alarm, miss = COSTS
    return {
        "f1": 2 * hits / max(positives + calls, 1),
        "f2": 5 * hits / max(4 * positives + calls, 1),
        "jaccard": hits / max(positives + alarms, 1),
        "accuracy": 1 - (alarms + misses) / n,
        "precision": hits / calls if calls else np.nan,
        "recall": hits / max(positives, 1),
        "fpr": alarms / max(n - positives, 1),
        "alert_rate": calls / n,
        "most_a_day": int(np.bincount((clocks[called] // DAY).astype(np.int64)).max(initial=0)),
        "cost": (alarm * alarms + miss * misses) / n,
    }
