"""What the tables measure."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from learners.numerics.arrays import Counts, Vector

__all__ = ["LOWER_IS_BETTER", "NAMES", "auc", "f1", "f1_curve", "optroc_accuracy", "ordinal", "ranking"]

NAMES = {
    "auc": "AUC",
    "optroc": "accuracy at OPTROC",
    "f1": "online F",
    "mae": "MAE",
    "mse": "MSE",
    "accuracy": "accuracy",
    "seconds": "training seconds",
    "learning": "training seconds without the embedding",
}
LOWER_IS_BETTER = frozenset({"mae", "mse", "seconds", "learning"})


def auc(scores: Vector, y: Vector) -> float:
    """Share of (positive, negative) pairs in the right order, ties counting half. Both classes must be there."""
    positives = y > 0
    p, n = int(positives.sum()), int((~positives).sum())
    return float((rankdata(scores)[positives].sum() - p * (p + 1) / 2) / (p * n))


def optroc_accuracy(scores: Vector, y: Vector) -> float:
    """Accuracy at the ROC curve's optimal operating point for equal costs: the most that any threshold reaches."""
    order = np.argsort(-scores, kind="stable")
    hits = np.cumsum(y[order] > 0)
    calls = np.arange(1, len(y) + 1)
    ends = np.append(np.flatnonzero(np.diff(scores[order])), len(y) - 1)  # events of one score are called alike
    negatives = int((y < 0).sum())
    right = hits[ends] + negatives - (calls[ends] - hits[ends])
    return float(max(negatives, int(right.max())) / len(y))


def f1_curve(y: Vector, called: NDArray[np.bool_], points: int = 200) -> tuple[list[int], list[float]]:
    """Online F = 2 TP / (positives + called positive) after so many events, at `points` places up to the last one."""
    hits = np.cumsum(called & (y > 0))
    total = np.cumsum(y > 0) + np.cumsum(called)
    at = np.unique(np.linspace(1, len(y), min(points, len(y))).round().astype(np.int64))
    curve = 2.0 * hits[at - 1] / np.maximum(total[at - 1], 1)
    return at.tolist(), curve.tolist()


def f1(y: Vector, called: NDArray[np.bool_]) -> float:
    """F = 2 TP / (positives + called positive) of all events, 0 where that is 0 / 0."""
    positive = y > 0
    return float(2.0 * np.sum(called & positive) / max(int(positive.sum() + called.sum()), 1))


def ranking(scores: Vector, y: Vector) -> dict[str, float]:
    """Compute the metrics of a ranker."""
    return {"auc": auc(scores, y), "optroc": optroc_accuracy(scores, y)}


def ordinal(ranks: Counts, y: Vector) -> dict[str, float]:
    """Compute the metrics of predicted ranks."""
    off = ranks - y
    return {"mae": float(np.abs(off).mean()), "mse": float((off * off).mean()), "accuracy": float((off == 0).mean())}
