"""Judge scores: ranking, decisions at the threshold that was live, and calibration."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

__all__ = ["Quality", "interval", "judge"]

Floats = np.ndarray[Any, np.dtype[np.float64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]


class Quality(NamedTuple):
    """Metrics of some events; NaN where a contestant has none."""

    auc: float
    ap: float
    recall: float  # at a false-positive rate of 1 %
    f1: float
    alerts: float  # share of events
    ece: float  # expected calibration error, 15 groups of equal size


def judge(
    positive: Flags, scores: Floats, decisions: Floats | None = None, probabilities: Floats | None = None
) -> Quality:
    """Judge n events, both classes among them."""
    if positive.all() or not positive.any():
        return Quality(*[np.nan] * len(Quality._fields))
    false, true, _ = roc_curve(positive, scores)
    f1 = alerts = ece = np.nan
    if decisions is not None:
        alerts = float(decisions.mean())
        f1 = float(2 * (decisions * positive).sum() / max(decisions.sum() + positive.sum(), 1))
    if probabilities is not None:
        groups = np.array_split(np.argsort(probabilities, kind="stable"), 15)
        gaps = [len(g) * abs(probabilities[g].mean() - positive[g].mean()) for g in groups if len(g)]
        ece = float(sum(gaps) / len(positive))
    return Quality(
        float(roc_auc_score(positive, scores)),
        float(average_precision_score(positive, scores)),
        float(np.interp(0.01, false, true)),
        f1,
        alerts,
        ece,
    )


def interval(positive: Flags, ours: Floats, theirs: Floats, rounds: int = 200) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of the difference in AUC; events are drawn again."""
    random = np.random.default_rng(0)
    gaps = []
    for _ in range(rounds):
        sample = random.integers(0, len(positive), len(positive))
        if 0 < positive[sample].sum() < len(sample):
            y = positive[sample]
            gaps.append(roc_auc_score(y, ours[sample]) - roc_auc_score(y, theirs[sample]))
    if not gaps:
        return np.nan, np.nan
    low, high = np.quantile(gaps, (0.025, 0.975))
    return float(low), float(high)
