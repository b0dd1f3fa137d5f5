"""The live figures by their definitions: scikit-learn's where it has them, else plain NumPy over all pairs."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import metrics as sk

from learners.metrics.definitions import MetricSettings

__all__ = ["auc_interval", "calibration_error", "exact_figures", "precision_at_k"]


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


def exact_figures(
    label: NDArray[np.bool_],
    scores: NDArray[np.float64],
    probabilities: NDArray[np.float64],
    called: NDArray[np.bool_],
    settings: MetricSettings,
) -> dict[str, Any]:
    """Every figure of a scope from `auc` to `calibration_error` and its counts; None where it is undefined."""
    n, m = int((~label).sum()), int(label.sum())
    both, some = bool(n and m), bool(n + m)
    out: dict[str, Any] = dict.fromkeys(
        ("auc", "partial_auc", "ks", "recall_at_fpr", "auc_interval", "precision_at_k", "mcc")
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if both:
            fpr, tpr, _ = sk.roc_curve(label, scores, drop_intermediate=False)
            out["auc"] = sk.roc_auc_score(label, scores)
            out["partial_auc"] = sk.roc_auc_score(label, scores, max_fpr=settings.max_fpr)
            out["ks"] = (tpr - fpr).max()
            out["recall_at_fpr"] = tpr[fpr <= settings.max_fpr].max()
        if min(n, m) > 1:
            out["auc_interval"] = auc_interval(label, scores)
        if m and n + m >= settings.k:
            out["precision_at_k"] = precision_at_k(label, scores, settings.k)
        if both and 0 < called.sum() < n + m:
            out["mcc"] = sk.matthews_corrcoef(label, called)
        return out | {
            "events": n + m,
            "class_counts": {"negative": n, "positive": m},
            "average_precision": sk.average_precision_score(label, scores) if m else None,
            "f1": sk.f1_score(label, called) if m else None,
            "fbeta": sk.fbeta_score(label, called, beta=settings.beta) if m else None,
            "precision": sk.precision_score(label, called) if called.any() else None,
            "recall": sk.recall_score(label, called) if m else None,
            "fpr": called[~label].mean() if n else None,
            "accuracy": sk.accuracy_score(label, called) if some else None,
            "alert_rate": called.mean() if some else None,
            "brier": sk.brier_score_loss(label, probabilities) if some else None,
            "log_loss": sk.log_loss(label, probabilities, labels=[False, True]) if some else None,
            "calibration_error": calibration_error(label, probabilities) if some else None,
            "confusion": {
                "tp": int((label & called).sum()),
                "fp": int((~label & called).sum()),
                "tn": int((~label & ~called).sum()),
                "fn": int((label & ~called).sum()),
            },
        }
