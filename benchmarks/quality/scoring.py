"""Judge scores: ranking, calibration, and decisions at the threshold that was live."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from benchmarks.hindsight import Curve

__all__ = ["ENOUGH", "FEW", "YOUNG", "Decisions", "Quality", "decisions_of", "interval", "judge"]

FEW, ENOUGH, YOUNG = 20, 100, 10_000  # known positives, known positives, events

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
        ece = _calibration_error(positive, probabilities)
    return Quality(
        float(roc_auc_score(positive, scores)),
        float(average_precision_score(positive, scores)),
        float(np.interp(0.01, false, true)),
        f1,
        alerts,
        ece,
    )


class Decisions(NamedTuple):
    """Decisions beside the one threshold that is best in hindsight; NaN where a stream is too short."""

    early: float  # share of events that are alerts until FEW positives are known
    early_positive: float  # share of these events that are positive
    alerts: float  # from ENOUGH known positives on, by the number of alerts with the largest F1
    f1: float  # of the same events
    best_f1: float  # at the best threshold on the probability
    ece: float  # calibration error after YOUNG events


def decisions_of(positive: Flags, known_positives: Floats, decisions: Floats, probabilities: Floats) -> Decisions:
    """Judge the decisions of n events; `known_positives` (n,) are known before each."""
    young = known_positives < FEW
    later = known_positives >= ENOUGH
    alerts = f1 = best = np.nan
    if positive[later].any():
        curve = Curve.of(probabilities[later], np.where(positive[later], 1.0, -1.0))
        scores = 2 * curve.hits / np.maximum(curve.positives + curve.calls, 1)
        best = float(scores.max())
        alerts = float(decisions[later].sum() / max(curve.calls[scores.argmax()], 1))
        f1 = float(2 * (decisions * positive)[later].sum() / (decisions[later].sum() + curve.positives))
    return Decisions(
        float(decisions[young].mean()),
        float(positive[young].mean()),
        alerts,
        f1,
        best,
        _calibration_error(positive[YOUNG:], probabilities[YOUNG:]) if len(positive) > YOUNG else np.nan,
    )


def _calibration_error(positive: Flags, probabilities: Floats) -> float:
    groups = np.array_split(np.argsort(probabilities, kind="stable"), 15)
    gaps = [len(g) * abs(probabilities[g].mean() - positive[g].mean()) for g in groups if len(g)]
    return float(sum(gaps) / len(positive))


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
