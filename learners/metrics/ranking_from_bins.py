"""Ranking figures from histograms of the scores of each class: what is given, and how far the exact figure may be.

What follows from the order of the scores is certain between bins and unknown within one. What is given takes the events
of a bin as evenly mixed, and comes with the largest possible distance of the exact figure, which lies between what the
worst and the best order of each bin's events, with whatever ties, would give. With TP and FP what lies above a bin, p
and n what is in it, P and N all there is (TP and FP are certain, so each bin may be taken by itself):

    auc                a pair in one bin counts one half; it may be right or wrong, so half the share of such pairs
    average_precision  the mean over positives of the precision at their score. At or above the k-th of the bin's
                       positives from above are j >= k of them and between 0 and n of its negatives. So at best it is
                       (TP + p) / (TP + p + FP), where the positives tie above the negatives; at worst
                       (TP + k) / (TP + k + FP + n), where they are distinct and below; mixed, j = k and n k / (p + 1)
    partial_auc        whatever the order, the ROC curve rises from one corner of the bin's rectangle to the other, so
                       between the path along its lower and right sides and that along its left and upper ones; mixed,
                       straight
    ks                 TPR - FPR is certain at the bins' edges, and the largest there, which is given, never too large;
                       within a bin it is at most that of the upper left corner, (TP + p) / P - FP / N
    recall_at_fpr      of the bin where FPR would become too large none of the p may count, or all
    precision_at_k     of the bin where the k-th place falls, with w places left, from max(0, w - n) to min(p, w) of
                       them are positives; mixed or tied, in proportion

O(bins) time and memory.
"""

from __future__ import annotations

import numpy as np

from learners.numerics import bare_kernel

__all__ = ["mixed", "reciprocals", "sweep"]

_SINGLY = 16  # terms of a sum over positives that are added one by one

_AUC, _PRECISIONS, _AREA, _KS, _RECALL, _TOP = range(6)  # what `sweep` fills, each in a row: see there
_WORST, _GIVEN, _BEST = range(3)


@bare_kernel
def reciprocals(a, count):  # type: ignore[no-untyped-def]
    """The sum of 1 / (a + k) over k = 1..count, a >= 0, or a little more, however large count is. O(log count).

    After the first terms c more at once: as 1 / x is convex, 1 / (a + k) is at most its integral from a + k - 1/2 to
    a + k + 1/2, and all of them at most ln(1 + c / (a + 1/2)) = 2 atanh(s), s = c / (2 a + 1 + c); c <= a has s <= 1/3.
    """
    done = min(count, _SINGLY)
    total = 0.0
    for k in range(1, done + 1):
        total += 1.0 / (a + k)
    while done < count:
        from_ = a + done
        c = min(count - done, np.int64(from_))
        s = c / (2.0 * from_ + 1.0 + c)
        square = s * s
        series = 0.0
        for k in range(33, 0, -2):
            series = series * square + 1.0 / k
        total += 2.0 * s * series
        done += c
    return total


@bare_kernel
def _precisions(tp, fp, p, n):  # type: ignore[no-untyped-def]
    """The sum over j = 1..p of (TP + j) / (TP + j + FP + n j / (p + 1)): r times it is that of (TP + j) / (a + j)."""
    r = 1.0 + n / (p + 1.0)
    a = (tp + fp) / r
    return (p + (tp - a) * reciprocals(a, p)) / r


@bare_kernel
def _allowed(negatives, max_fpr):  # type: ignore[no-untyped-def]
    """The largest count with count / negatives <= max_fpr, as floats divide."""
    count = np.int64(max_fpr * negatives)
    while count < negatives and (count + 1) / negatives <= max_fpr:
        count += 1
    while count > 0 and count / negatives > max_fpr:
        count -= 1
    return count


@bare_kernel
def mixed(bins, N, P):  # type: ignore[no-untyped-def]
    """AUC and the sum of precisions as they are given: of the events of a bin as evenly mixed. (2,), see `sweep`."""
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


@bare_kernel
def sweep(bins, N, P, max_fpr, k, out, squares):  # type: ignore[no-untyped-def]
    """Go through the bins from the highest scores down; the letters are those of the top of this file.

    Fills `out` (6, 3), for each figure its worst, the given and the best: the share of right pairs, the sum of
    precisions, the area left of max_fpr in units of one pair, TPR - FPR, positives recalled, and positives among the
    first k (as far as there are events). `squares` (2,): of the distances of each negative's and each positive's share
    of right pairs from AUC, the sum. Each class that is empty counts as one event where it is divided by.
    """
    out[:] = 0.0
    squares[:] = 0.0
    all_negatives, all_positives = max(N, 1), max(P, 1)
    limit = max_fpr * N
    allowed = _allowed(N, max_fpr) if N > 0 else 0
    auc, out[_PRECISIONS, _GIVEN] = mixed(bins, N, P)
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
            out[_PRECISIONS, _WORST] += max(least, 0.0)  # rounded, where it is next to nothing of p
            out[_PRECISIONS, _BEST] += p * ((tp + p) / (tp + p + fp))
        if n > 0 and fp < limit:
            width = min(float(n), limit - fp)
            out[_AREA, _WORST] += width * tp
            out[_AREA, _GIVEN] += width * (tp + 0.5 * (p * (width / n)))
            out[_AREA, _BEST] += width * (tp + p)
        out[_KS, _BEST] = max(out[_KS, _BEST], (tp + p) / all_positives - fp / all_negatives)
        out[_KS, _GIVEN] = max(out[_KS, _GIVEN], (tp + p) / all_positives - (fp + n) / all_negatives)
        if within:
            within = fp + n <= allowed
            out[_RECALL, _WORST] = tp + p if within else tp
            out[_RECALL, _GIVEN] = tp + p if within else tp + p * ((allowed - fp) / n)
            out[_RECALL, _BEST] = tp + p
        if tp + fp < k:
            w = min(k - tp - fp, n + p)
            out[_TOP, _WORST] = tp + max(0, w - n)
            out[_TOP, _GIVEN] = tp + w * (p / (n + p))
            out[_TOP, _BEST] = tp + min(p, w)
        tp += p
        fp += n
    out[_KS, _WORST] = out[_KS, _GIVEN]
    pairs = 2.0 * all_negatives * all_positives
    out[_AUC, _WORST] = auc - shared / pairs
    out[_AUC, _GIVEN] = auc
    out[_AUC, _BEST] = auc + shared / pairs
    above = 0  # positives
    below = N
    for i in range(bins.shape[1] - 1, -1, -1):
        n, p = bins[0, i], bins[1, i]
        below -= n
        squares[0] += n * ((above + 0.5 * p) / all_positives - auc) ** 2
        squares[1] += p * ((below + 0.5 * n) / all_negatives - auc) ** 2
        above += p
