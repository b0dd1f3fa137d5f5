"""Curves for charts: ROC, precision-recall, histograms of scores, reliability of probabilities.

A curve has a point for each distinct score, far more than a screen shows. So it is simplified by Douglas and Peucker:
starting with both ends, the point farthest from the polyline so far is added, until there are enough points. Corners
come first, and straight parts need no points.

References
----------
Douglas, Peucker. Algorithms for the reduction of the number of points required to represent a digitized line or its
caricature. Cartographica 10, 1973.
"""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learners.metrics.definitions import RELIABILITY_BINS
from learners.numerics import Counts, Vector

__all__ = ["HISTOGRAM_BINS", "alert_counts", "curves", "thin"]

HISTOGRAM_BINS = 40
_LARGEST = float(np.finfo(np.float64).max)


def thin(x: Vector, y: Vector, points: int) -> Counts:
    """Choose at most `points` (2 or more) of a curve's n points; return their indices, ascending, with both ends."""
    n = len(x)
    if n <= points:
        return np.arange(n)
    indices = [0, n - 1]
    farthest = [_farthest(x, y, 0, n - 1)]
    while farthest and len(indices) < points:
        distance, at, start, stop = heapq.heappop(farthest)
        if distance == 0.0:  # all other points lie on the lines between the chosen ones
            break
        indices.append(at)
        for part in ((start, at), (at, stop)):
            if part[1] - part[0] > 1:
                heapq.heappush(farthest, _farthest(x, y, *part))
    return np.sort(np.array(indices))


def _farthest(x: Vector, y: Vector, start: int, stop: int) -> tuple[float, int, int, int]:
    """Find the point between `start` and `stop` that is farthest from the line through both.

    Returns (minus the distance, index of the point, start, stop).
    """
    dx, dy = x[start + 1 : stop] - x[start], y[start + 1 : stop] - y[start]
    along, up = x[stop] - x[start], y[stop] - y[start]
    length = np.hypot(along, up)
    distances = np.abs(along * dy - up * dx) / length if length > 0.0 else np.hypot(dx, dy)
    at = int(np.argmax(distances))
    return -float(distances[at]), start + 1 + at, start, stop


def _numbers(values: NDArray[np.float64]) -> list[float | None]:
    return [value if np.isfinite(value) else None for value in values.tolist()]


def _share(part: float, total: float) -> float | None:
    return part / total if total else None


def curves(
    negatives: Vector,
    positives: Vector,
    confusion: Counts,
    bins: NDArray[np.int64],
    mass: Vector,
    points: int,
) -> dict[str, Any]:
    """Compute all curves of a scope as JSON: finite numbers, None if undefined, empty lists if there is no curve.

    `negatives` and `positives` are ascending scores, `confusion` (4,) the counts tn, fp, fn, tp. `bins`
    (2, RELIABILITY_BINS) counts events by class and probability, and `mass` (RELIABILITY_BINS,) sums their
    probabilities. O(n log n + n * points) for n distinct scores. Raises ValueError for fewer than two points.
    """
    if points < 2:
        raise ValueError(f"points is {points}; expected at least 2")
    tn, fp, fn, tp = confusion.tolist()
    return {
        **_by_threshold(negatives, positives, points),
        "histogram": _histogram(negatives, positives),
        "reliability": _reliability(bins, mass),
        "confusion": {"tp": tp, "fp": fp, "tn": tn, "fn": fn},
        "operating_point": {"fpr": _share(fp, fp + tn), "tpr": _share(tp, tp + fn), "precision": _share(tp, tp + fp)},
    }


def alert_counts(negatives: Vector, positives: Vector, thresholds: Vector) -> tuple[Counts, Counts]:
    """Count the false and the true positives at each of k thresholds, (k,), from the ascending values of each class."""
    return (
        len(negatives) - np.searchsorted(negatives, thresholds),
        len(positives) - np.searchsorted(positives, thresholds),
    )


def _by_threshold(negatives: Vector, positives: Vector, points: int) -> dict[str, Any]:
    """Compute the ROC curve from (0, 0) on, and precision by recall: at every score from the highest down, thinned."""
    n, m = len(negatives), len(positives)
    thresholds = np.unique(np.concatenate([negatives, positives]))[::-1]
    fp, tp = alert_counts(negatives, positives, thresholds)
    roc: dict[str, list[float | None]] = {"fpr": [], "tpr": [], "threshold": []}
    if n and m:
        fpr, tpr = np.append(0.0, fp / n), np.append(0.0, tp / m)
        indices = thin(fpr, tpr, points)
        roc = {
            "fpr": _numbers(fpr[indices]),
            "tpr": _numbers(tpr[indices]),
            "threshold": _numbers(np.append(np.inf, thresholds)[indices]),
        }
    precision_recall: dict[str, list[float | None]] = {"recall": [], "precision": [], "threshold": []}
    if m:
        recall, precision = tp / m, tp / (tp + fp)
        indices = thin(recall, precision, points)
        precision_recall = {
            "recall": _numbers(recall[indices]),
            "precision": _numbers(precision[indices]),
            "threshold": _numbers(thresholds[indices]),
        }
    return {"roc": roc, "precision_recall": precision_recall}


def _histogram(negatives: Vector, positives: Vector) -> dict[str, Any]:
    """Count events by class and score in bins of equal width; each bin includes its lower edge, the last one both."""
    if not len(negatives) + len(positives):
        return {"edges": [], "negative": [], "positive": []}
    ends = [end for scores in (negatives, positives) if len(scores) for end in (scores[0], scores[-1])]
    low, high = np.clip([min(ends), max(ends)], -_LARGEST / 2, _LARGEST / 2)
    if low == high:
        low, high = low - 0.5, high + 0.5
    share = np.arange(HISTOGRAM_BINS + 1) / HISTOGRAM_BINS
    edges = np.maximum.accumulate(low * (1.0 - share) + high * share)
    out: dict[str, Any] = {"edges": edges.tolist()}
    for name, scores in (("negative", negatives), ("positive", positives)):
        below = np.searchsorted(scores, edges[1:-1])
        out[name] = np.diff(below, prepend=0, append=len(scores)).tolist()
    return out


def _reliability(bins: NDArray[np.int64], mass: Vector) -> dict[str, Any]:
    """Compute the mean probability and the share of positives in each bin of the probability."""
    count = bins.sum(axis=0).tolist()
    return {
        "edges": [i / RELIABILITY_BINS for i in range(RELIABILITY_BINS + 1)],
        "count": count,
        "mean_probability": [_share(total, events) for total, events in zip(mass.tolist(), count, strict=True)],
        "share_positive": [_share(part, events) for part, events in zip(bins[1].tolist(), count, strict=True)],
    }
