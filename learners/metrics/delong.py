"""AUCs of several scorers on the same events, and the covariance of their errors.

The placements of scorer j are V10[i, j], the share of negatives below positive i, and V01[k, j], the share of positives
above negative k. A tie counts one half. Then

    AUC_j = mean V10[:, j] = mean V01[:, j],   S = cov(V10) / positives + cov(V01) / negatives

where S (m, m) estimates the covariance of the m AUCs. O(m n log n) by sorting; the definition would take O(m n^2).

References
----------
DeLong, DeLong, Clarke-Pearson. Comparing the areas under two or more correlated receiver operating characteristic
curves: a nonparametric approach. Biometrics 44, 1988.
Sun, Xu. Fast implementation of DeLong's algorithm for comparing the areas under correlated receiver operating
characteristic curves. IEEE Signal Processing Letters 21, 2014: by sorting.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from learners.numerics import Matrix, Vector, normal_quantile

__all__ = ["AucEstimates", "estimate_aucs", "interval"]


class AucEstimates(NamedTuple):
    """Estimates of m AUCs."""

    auc: Vector  # (m,)
    covariance: Matrix | None  # (m, m); None with fewer than two events of a class

    def variance(self, a: int, b: int) -> float | None:
        """Return the variance of the difference of the AUCs of scorers a and b, at least 0; None if unknown."""
        S = self.covariance
        return None if S is None else max(0.0, float(S[a, a] + S[b, b] - 2.0 * S[a, b]))


def estimate_aucs(negatives: Matrix, positives: Matrix) -> AucEstimates:
    """Estimate the AUCs of m scorers from scores of negatives (n0, m) and positives (n1, m), at least one of each.

    Scores may be infinite, but not NaN.
    """
    n0, n1 = len(negatives), len(positives)
    V10, V01 = np.empty(positives.shape), np.empty(negatives.shape)
    for j in range(negatives.shape[1]):
        V10[:, j] = _below(np.sort(negatives[:, j]), positives[:, j])
        V01[:, j] = 1.0 - _below(np.sort(positives[:, j]), negatives[:, j])
    auc: Vector = V10.mean(axis=0)
    if n0 < 2 or n1 < 2:
        return AucEstimates(auc, None)
    return AucEstimates(auc, _covariance(V10) / n1 + _covariance(V01) / n0)


def _below(ordered: Vector, scores: Vector) -> Vector:
    """Compute the share of `ordered` below each of the scores; a tie counts one half."""
    twice = np.searchsorted(ordered, scores, "left") + np.searchsorted(ordered, scores, "right")
    shares: Vector = twice / (2 * len(ordered))
    return shares


def _covariance(V: Matrix) -> Matrix:
    """Estimate the covariance of the columns of V."""
    centred = V - V.mean(axis=0)
    covariance: Matrix = centred.T @ centred / (len(V) - 1)
    return covariance


def interval(estimate: float, variance: float | None, low: float, high: float, confidence: float) -> list[float] | None:
    """Compute estimate -+ z sqrt(variance), cut to [low, high]; None without a variance."""
    if variance is None:
        return None
    reach = normal_quantile(0.5 + confidence / 2) * math.sqrt(variance)
    return [max(low, estimate - reach), min(high, estimate + reach)]
