"""Ranking metrics from score histograms of each class: estimates, and bounds on their errors.

The order of the scores is certain between bins and unknown within a bin. The estimate assumes that the events of a bin
are evenly mixed. Its error is at most the distance to the metric of the worst or best possible order, ties included.
TP and FP are the events above a bin, p and n those in it, P and N all events. TP and FP are certain, so each bin can be
treated by itself:

    auc                Pairs in one bin count one half. Each may be right or wrong, so the error is half their share.
    average_precision  The mean over positives of the precision at their score. At or above the k-th positive of the
                       bin are j >= k of its positives and 0 to n of its negatives. Best: the positives tie above the
                       negatives, (TP + p) / (TP + p + FP). Worst: they are distinct and below,
                       (TP + k) / (TP + k + FP + n). Mixed: j = k and n k / (p + 1) negatives.
    partial_auc        The ROC curve joins two corners of the bin's rectangle. Worst: along its lower and right sides.
                       Best: along its left and upper sides. Mixed: straight.
    ks                 TPR - FPR is certain at the edges of bins. The estimate is the largest there, never too large.
                       Within a bin it is at most that of the upper left corner, (TP + p) / P - FP / N.
    recall_at_fpr      In the bin where FPR becomes too large, none or all of the p may count.
    precision_at_k     In the bin of the k-th score, with w places left, max(0, w - n) to min(p, w) are positives.
                       Mixed or tied: in proportion.

O(bins) time and memory.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from learners.numerics import bare_kernel

__all__ = ["mixed", "ranking", "reciprocals", "sweep"]

_SINGLY = 16  # terms of a sum over positives that are added one by one

_AUC, _PRECISIONS, _AREA, _KS, _RECALL, _TOP = range(6)  # the rows that `sweep` fills
_WORST, _ESTIMATE, _BEST = range(3)


@bare_kernel
def reciprocals(a, count):  # type: ignore[no-untyped-def]
    """Sum 1 / (a + k) over k = 1..count, a >= 0, or slightly more, for any count. O(log count).

    After the first terms c more are added at once. As 1 / x is convex, 1 / (a + k) is at most its integral from
    a + k - 1/2 to a + k + 1/2. So c terms are at most ln(1 + c / (a + 1/2)) = 2 atanh(s), s = c / (2 a + 1 + c);
    c <= a makes s <= 1/3.
    """
    count_so_far = min(count, _SINGLY)
    total = 0.0
    for k in range(1, count_so_far + 1):
        total += 1.0 / (a + k)
    while count_so_far < count:
        from_ = a + count_so_far
        c = min(count - count_so_far, np.int64(from_))
        s = c / (2.0 * from_ + 1.0 + c)
        square = s * s
        series = 0.0
        for k in range(33, 0, -2):
            series = series * square + 1.0 / k
        total += 2.0 * s * series
        count_so_far += c
    return total


@bare_kernel
def _precisions(tp, fp, p, n):  # type: ignore[no-untyped-def]
    """Sum (TP + j) / (TP + j + FP + n j / (p + 1)) over j = 1..p; r times this is the sum of (TP + j) / (a + j)."""
    r = 1.0 + n / (p + 1.0)
    a = (tp + fp) / r
    return (p + (tp - a) * reciprocals(a, p)) / r


@bare_kernel
def _allowed(negatives, max_fpr):  # type: ignore[no-untyped-def]
    """Find the largest count with count / negatives <= max_fpr in floating point."""
    count = np.int64(max_fpr * negatives)
    while count < negatives and (count + 1) / negatives <= max_fpr:
        count += 1
    while count > 0 and count / negatives > max_fpr:
        count -= 1
    return count


@bare_kernel
def mixed(bins, N, P):  # type: ignore[no-untyped-def]
    """Estimate AUC and the sum of precisions, assuming evenly mixed events in a bin; see `sweep`."""
    twice = 0.0  # pairs: beyond 2^53 they are rounded, and never overflow
    precisions = 0.0
    tp = fp = 0
    for i in range(bins.shape[1] - 1, -1, -1):
        n, p = bins[0, i], bins[1, i]
        if p > 0:
            twice += float(p) * (2 * (N - fp - n) + n)
            precisions += _precisions(float(tp), float(fp), p, n)
        tp += p
        fp += n
    return twice / (2.0 * max(N, 1) * max(P, 1)), precisions


def ranking(bins: NDArray[np.int64]) -> tuple[float | None, float | None]:
    """Estimate AUC and average precision of the scores counted in `bins` (2, n); None without an event of a class."""
    negatives, positives = bins.sum(axis=1).tolist()
    auc, precisions = mixed(bins, negatives, positives)
    return auc if negatives and positives else None, precisions / positives if positives else None


@bare_kernel
def sweep(bins, N, P, max_fpr, k, out, squares):  # type: ignore[no-untyped-def]
    """Go through the bins from the highest scores down; the letters are those of the module's docstring.

    Fills `out` (6, 3): per metric the worst, the estimate and the best. The metrics are the share of right pairs, the
    sum of precisions, the area left of max_fpr in units of one pair, TPR - FPR, recalled positives, and positives among
    the first k. Fills `squares` (2,): the sum, per class, of squared distances of an event's share of right pairs from
    the AUC. An empty class counts as one event in divisors.
    """
    out[:] = 0.0
    squares[:] = 0.0
    all_negatives, all_positives = max(N, 1), max(P, 1)
    limit = max_fpr * N
    allowed = _allowed(N, max_fpr) if N > 0 else 0
    auc, out[_PRECISIONS, _ESTIMATE] = mixed(bins, N, P)
    shared = 0.0  # pairs, as in `mixed`
    within = True  # FPR is not too large yet
    tp = fp = 0
    for i in range(bins.shape[1] - 1, -1, -1):
        n, p = bins[0, i], bins[1, i]
        if n + p == 0:
            continue
        shared += float(p) * n
        if p > 0:
            least = p - (fp + n) * reciprocals(float(tp + fp + n), p)
            out[_PRECISIONS, _WORST] += max(least, 0.0)  # rounding may take it below 0
            out[_PRECISIONS, _BEST] += p * ((tp + p) / (tp + p + fp))
        if n > 0 and fp < limit:
            width = min(float(n), limit - fp)
            out[_AREA, _WORST] += width * tp
            out[_AREA, _ESTIMATE] += width * (tp + 0.5 * (p * (width / n)))
            out[_AREA, _BEST] += width * (tp + p)
        out[_KS, _BEST] = max(out[_KS, _BEST], (tp + p) / all_positives - fp / all_negatives)
        out[_KS, _ESTIMATE] = max(out[_KS, _ESTIMATE], (tp + p) / all_positives - (fp + n) / all_negatives)
        if within:
            within = fp + n <= allowed
            out[_RECALL, _WORST] = tp + p if within else tp
            out[_RECALL, _ESTIMATE] = tp + p if within else tp + p * ((allowed - fp) / n)
            out[_RECALL, _BEST] = tp + p
        if tp + fp < k:
            w = min(k - tp - fp, n + p)
            out[_TOP, _WORST] = tp + max(0, w - n)
            out[_TOP, _ESTIMATE] = tp + w * (p / (n + p))
            out[_TOP, _BEST] = tp + min(p, w)
        tp += p
        fp += n
    out[_KS, _WORST] = out[_KS, _ESTIMATE]
    pairs = 2.0 * all_negatives * all_positives
    out[_AUC, _WORST] = auc - shared / pairs
    out[_AUC, _ESTIMATE] = auc
    out[_AUC, _BEST] = auc + shared / pairs
    above = 0  # positives
    below = N
    for i in range(bins.shape[1] - 1, -1, -1):
        n, p = bins[0, i], bins[1, i]
        below -= n
        share = (above + 0.5 * p) / all_positives - auc
        squares[0] += n * (share * share)
        share = (below + 0.5 * n) / all_negatives - auc
        squares[1] += p * (share * share)
        above += p
