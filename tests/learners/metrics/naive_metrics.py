"""The live metrics by their definitions, in plain NumPy. `test_naive_metrics.py` holds them against scikit-learn.

scikit-learn itself takes 60 ms for these figures, of which all but 1 ms checks its arguments.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from learners.metrics.definitions import MetricSettings

__all__ = ["auc_interval", "calibration_error", "exact_figures", "precision_at_k", "ranking_figures"]

_LIMITS = np.finfo(np.float64).eps, 1 - np.finfo(np.float64).eps  # of a probability in the log loss


def auc_interval(label: NDArray[np.bool_], scores: NDArray[np.float64]) -> list[float] | None:
    """DeLong, DeLong and Clarke-Pearson (1988), equations (1) to (5), by the matrix of all pairs."""
    above = scores[label][:, None] - scores[~label][None, :]
    psi = (above > 0) + 0.5 * (above == 0)
    variance = psi.mean(axis=1).var(ddof=1) / len(psi) + psi.mean(axis=0).var(ddof=1) / psi.shape[1]
    if variance == 0:
        return None
    reach = 1.959963984540054 * np.sqrt(variance)
    return [max(psi.mean() - reach, 0.0), min(psi.mean() + reach, 1.0)]


def precision_at_k(label: NDArray[np.bool_], scores: NDArray[np.float64], k: int) -> float:
    """Return the expected share of positives among the k highest, with ties at the edge drawn at random."""
    edge = np.sort(scores)[::-1][k - 1]
    above, at = scores > edge, scores == edge
    return float((label[above].sum() + (k - above.sum()) * label[at].mean()) / k)


def calibration_error(label: NDArray[np.bool_], probabilities: NDArray[np.float64]) -> float:
    """|share of positives - mean probability| of each of 15 bins of equal width, weighted by its events."""
    bins = np.minimum((probabilities * 15).astype(int), 14)
    return float(
        sum(
            (bins == b).mean() * abs(label[bins == b].mean() - probabilities[bins == b].mean()) for b in np.unique(bins)
        )
    )


def ranking_figures(
    label: NDArray[np.bool_], scores: NDArray[np.float64], settings: MetricSettings
) -> dict[str, float | None]:
    """Every figure of the order of the scores but the interval; None where it is undefined."""
    out: dict[str, float | None] = dict.fromkeys(
        ("auc", "average_precision", "partial_auc", "ks", "recall_at_fpr", "precision_at_k")
    )
    n, m = int((~label).sum()), int(label.sum())
    levels = np.unique(scores, return_inverse=True)[1]
    order = np.argsort(-levels, kind="stable")
    last = np.flatnonzero(np.diff(levels[order], append=-1))  # of the events with each score, the highest first
    tp = np.cumsum(label[order])[last]
    fp = last + 1 - tp
    if m:
        out["average_precision"] = float(np.sum(np.diff(tp / m, prepend=0.0) * tp / (tp + fp)))
    if n and m:
        fpr, tpr = np.append(0.0, fp / n), np.append(0.0, tp / m)
        out["auc"] = _area(fpr, tpr)
        out["partial_auc"] = _standardised_area(fpr, tpr, settings.max_fpr)
        out["ks"] = float((tpr - fpr).max())
        out["recall_at_fpr"] = float(tpr[fpr <= settings.max_fpr].max())
    if m and n + m >= settings.k:
        out["precision_at_k"] = precision_at_k(label, scores, settings.k)
    return out


def _area(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    return float(np.sum(np.diff(x) * (y[1:] + y[:-1]) / 2))


def _standardised_area(fpr: NDArray[np.float64], tpr: NDArray[np.float64], limit: float) -> float:
    """Return the area up to an FPR of `limit`, scaled to 0.5 for chance and 1 for the best (McClish 1989)."""
    if limit == 1.0:
        return _area(fpr, tpr)
    inside = fpr <= limit
    part = _area(np.append(fpr[inside], limit), np.append(tpr[inside], np.interp(limit, fpr, tpr)))
    least = limit**2 / 2
    return 0.5 * (1 + (part - least) / (limit - least))


def exact_figures(
    label: NDArray[np.bool_],
    scores: NDArray[np.float64],
    probabilities: NDArray[np.float64],
    called: NDArray[np.bool_],
    settings: MetricSettings,
) -> dict[str, Any]:
    """Every figure of a scope from `auc` to `calibration_error` and its counts; None where it is undefined."""
    n, m = int((~label).sum()), int(label.sum())
    has_events = bool(n + m)
    tp, fp = int((label & called).sum()), int((~label & called).sum())
    fn, tn = m - tp, n - fp
    alerts, square = tp + fp, settings.beta**2
    clipped = np.clip(np.where(label, probabilities, 1 - probabilities), *_LIMITS)
    return {
        **ranking_figures(label, scores, settings),
        "auc_interval": auc_interval(label, scores) if min(n, m) > 1 else None,
        "mcc": (tp * tn - fp * fn) / np.sqrt(float(alerts * m * (tn + fp) * (tn + fn)))
        if n and m and 0 < alerts < n + m
        else None,
        "events": n + m,
        "class_counts": {"negative": n, "positive": m},
        "f1": 2 * tp / (2 * tp + fp + fn) if m else None,
        "fbeta": (1 + square) * tp / ((1 + square) * tp + square * fn + fp) if m else None,
        "precision": tp / alerts if alerts else None,
        "recall": tp / m if m else None,
        "fpr": fp / n if n else None,
        "accuracy": (tp + tn) / (n + m) if has_events else None,
        "alert_rate": alerts / (n + m) if has_events else None,
        "brier": np.square(probabilities - label).mean() if has_events else None,
        "log_loss": -np.log(clipped).mean() if has_events else None,
        "calibration_error": calibration_error(label, probabilities) if has_events else None,
        "confusion": {"tp": tp, "fp": fp, "tn": tn, "fn": fn},
    }
