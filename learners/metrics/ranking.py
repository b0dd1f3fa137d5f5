"""Metrics of the scores' order: one merge of the sorted scores of the two classes.

The merge goes from the highest score down, one group of equal positives at a time. It crosses the negatives between two
groups by galloping: steps that double, then a binary search. So few positives among many negatives, or the reverse,
cost little more than their own number.

On the way the merge has every point of the ROC curve, the pairs that each event wins (for DeLong's variance), and the
precision at each group. Counts are whole numbers; they do not overflow with up to 10^6 events.

References
----------
Fawcett. An introduction to ROC analysis. Pattern Recognition Letters 27, 2006, Algorithms 1 and 2.
Sun, Xu. Fast Implementation of DeLong's Algorithm. IEEE Signal Processing Letters 21, 2014.
McSherry, Najork. Computing Information Retrieval Performance Measures Efficiently in the Presence of Tied Scores.
ECIR 2008 (precision at k).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from learners.metrics.definitions import (
    NO_SPREAD,
    MetricSettings,
    Undefined,
    auc_interval,
    interval_reason,
    missing_class,
    standardised,
)
from learners.numerics import Vector, bare_kernel

__all__ = ["auc_with_interval", "ranking_figures", "ranking_values"]

_NEAR = 8  # scores compared one by one before galloping

# what `_sweep` fills
_SQUARES_NEGATIVE, _SQUARES_POSITIVE, _PAIRS, _GAP, _RECALLED = range(5)  # whole numbers
_PRECISIONS, _AREA, _TOP = range(3)  # real ones


@bare_kernel
def _passed(ascending, left, x, equal):  # type: ignore[no-untyped-def]
    """Count which of the first `left` scores stay after passing those above x (with `equal`: also equal to x)."""
    at = left
    near = max(left - _NEAR, 0)
    while at > near:
        value = ascending[at - 1]
        if value < x or (value == x and not equal):
            return at
        at -= 1
    # all from `at` on are passed; at least `low` stay, found by steps that double
    step = _NEAR
    low = at
    while low > 0:
        value = ascending[low - 1]
        if value < x or (value == x and not equal):
            break
        at = low - 1
        low = max(at - step, 0)
        step *= 2
    while low < at:
        middle = (low + at) // 2
        value = ascending[middle]
        if value < x or (value == x and not equal):
            low = middle + 1
        else:
            at = middle
    return at


@bare_kernel
def _sweep(negatives, positives, max_fpr, k, counts, real):  # type: ignore[no-untyped-def]
    """Fill `counts` (5,) int64 and `real` (3,) from the ascending scores of the classes; constants name the indices.

    `counts`: sums of squared pairs of each class, pairs, the largest TP n - FP m, the largest TP with FP / n <=
    max_fpr. `real`: the sum over positives of the precision at their score, the area left of max_fpr in units of one
    pair, the expected positives among the k highest scores (-1 if there are fewer events).
    """
    n = negatives.shape[0]
    m = positives.shape[0]
    limit = max_fpr * n
    allowed = np.int64(limit)  # the largest count with count / n <= max_fpr, as floats divide
    while allowed < n and (allowed + 1) / n <= max_fpr:
        allowed += 1
    while allowed > 0 and allowed / n > max_fpr:
        allowed -= 1
    squares_negative = squares_positive = pairs = gap = recalled = 0
    precisions = area = 0.0
    top = -1.0
    tp = fp = 0
    while tp < m:
        x = positives[m - tp - 1]
        below = _passed(negatives, n - fp, x, False)
        run = n - fp - below  # negatives above this group
        if run > 0:
            squares_negative += run * (4 * tp * tp)
            if fp < limit:
                area += min(float(run), limit - fp) * tp
            if top < 0.0 and tp + fp + run >= k:
                top = float(tp)
            fp += run
        tied = 0
        if below > 0 and negatives[below - 1] == x:
            tied = below - _passed(negatives, below, x, True)
        left = m - tp - 1
        if left > 0 and positives[left - 1] == x:
            left = _passed(positives, left, x, True)
        group = m - tp - left
        won = 2 * (below - tied) + tied
        pairs += group * won
        squares_positive += group * (won * won)
        if tied > 0:
            squares_negative += tied * ((2 * tp + group) * (2 * tp + group))
            if fp < limit:
                width = min(float(tied), limit - fp)
                area += width * (tp + 0.5 * (group * (width / tied)))
        if top < 0.0 and tp + fp + group + tied >= k:
            top = tp + (k - tp - fp) * (group / (group + tied))
        tp += group
        fp += tied
        precisions += group * (tp / (tp + fp))
        gap = max(gap, tp * n - fp * m)
        if fp <= allowed:
            recalled = tp
    run = n - fp
    squares_negative += run * (4 * m * m)
    if fp < limit:
        area += (limit - fp) * m
    if top < 0.0 and m + n >= k:
        top = float(m)
    counts[_SQUARES_NEGATIVE] = squares_negative
    counts[_SQUARES_POSITIVE] = squares_positive
    counts[_PAIRS] = pairs
    counts[_GAP] = gap
    counts[_RECALLED] = recalled
    real[_PRECISIONS] = precisions
    real[_AREA] = area
    real[_TOP] = top


_OTHERS = ("average_precision", "partial_auc", "ks", "recall_at_fpr", "precision_at_k")


def ranking_values(
    negatives: Vector, positives: Vector, settings: MetricSettings
) -> tuple[float | None, list[float] | None, tuple[float | None, ...]]:
    """Compute AUC, its interval, and the metrics named in `_OTHERS`; None if undefined.

    Takes the scores of each class, ascending, without NaN. O(positives + min(negatives, positives log negatives)).
    """
    n, m = len(negatives), len(positives)
    filled, real = np.zeros(5, dtype=np.int64), np.zeros(3)
    _sweep(negatives, positives, settings.max_fpr, settings.k, filled, real)
    squares_negative, squares_positive, pairs, gap, recalled = filled.tolist()
    precisions, area, top = real.tolist()
    at_k = top / settings.k if m and n + m >= settings.k else None
    if not (n and m):
        return None, None, (precisions / m if m else None, None, None, None, at_k)
    interval = auc_interval(n, m, pairs, (squares_negative, squares_positive)) if n > 1 and m > 1 else None
    others = precisions / m, standardised(area / n / m, settings.max_fpr), gap / (n * m), recalled / m, at_k
    return pairs / (2 * n * m), interval, others


def auc_with_interval(negatives: Vector, positives: Vector) -> tuple[float | None, list[float] | None]:
    """Compute the AUC from ascending scores of each class, and its 95 % interval; None where undefined."""
    return ranking_values(negatives, positives, MetricSettings())[:2]


def ranking_figures(
    negatives: Vector, positives: Vector, settings: MetricSettings, undefined: Undefined
) -> dict[str, Any]:
    """Compute the same by name; `undefined` collects the reasons."""
    n, m = len(negatives), len(positives)
    auc, interval, others = ranking_values(negatives, positives, settings)
    out = {"auc": auc, "auc_interval": interval, **dict(zip(_OTHERS, others, strict=True))}
    lacking = missing_class(n, m)
    reasons = {"auc_interval": interval_reason(n, m) or NO_SPREAD}
    reasons["precision_at_k"] = f"fewer than {settings.k} labelled events" if n + m < settings.k else "no positives"
    for name, value in out.items():
        if value is None:
            undefined.add(name, reasons.get(name) or lacking or "")
    return out
