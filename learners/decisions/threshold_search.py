"""Search of the best threshold in a sketch of probabilities, for most objectives of `threshold.py`.

The sketch counts faded negatives and positives in 256 bins of equal width in log-odds over [-12, 12]. With a threshold
at the edge of bin b, events from this bin on are predicted positive. Of these tp are positive and fp negative; P and N
are all positives and negatives:

    F-beta     the largest (1 + beta^2) tp / (beta^2 P + tp + fp + 1 + beta^2), the highest edge of several such
    fpr        the lowest edge with fp + 1 <= target (N + 1)
    precision  the lowest edge with tp >= target (tp + fp + 1)
    recall     the highest edge with tp >= target P
    accuracy   the largest tp - fp, the highest edge of several such

Without such an edge the threshold is 1. The 1s are imagined errors: one missed positive and one false alarm (F-beta),
one negative above all (fpr), one false alarm (precision). Without them the first few events would decide everything.
With the imagined negative, the expected false positive rate is at most `target` even after few negatives, as in
conformal prediction. Jaccard's tp / (P + fp) = F / (2 - F) rises with F1, so one threshold is best for both.

An event has weight 1/e after min(memory, max(1,000, events / 8)) more events. The log-odds of a young model move most,
so its first events soon describe another model. With a `memory` of null nothing fades.

If log-odds drift, counts of the past miss the target. So the search uses an aim that starts at the target and follows
feedback. After each labelled negative (fpr), positive (recall), or predicted positive (precision),

    aim += step (target - o)       o: 1 if predicted positive (fpr, recall) or positive (precision), else 0
    step = min(.005, target / 4, (1 - target) / 4)

within [0, 1]. This drives the mean of o to the target. The prediction is that of the present threshold, for a late
label too, because feedback is for the present threshold. If no edge has a precision as high as the aim, nothing is
predicted positive and there is no feedback. Then each search moves an aim above the target back by a 20th of the way.

O(256) per search; finding an event's bin takes 8 comparisons.

References
----------
Gibbs, Candès. Adaptive Conformal Inference Under Distribution Shift. NeurIPS 2021, eq. (2): the aim. Departures: kept
within [0, 1]; recall and precision; a step that a small share of errors allows; searches lag by up to 31 events.
Lipton, Elkan, Naryanaswamy. Optimal Thresholding of Classifiers to Maximize F1 Measure. ECML-PKDD 2014.
"""

from __future__ import annotations

import functools

import numpy as np

from learners.numerics import Vector, bare_kernel, inlined, sigmoid

__all__ = [
    "ACCURACY",
    "BINS",
    "FPR",
    "F_BETA",
    "PRECISION",
    "REACH",
    "RECALL",
    "bin_of",
    "edges",
    "effective_memory",
    "feedback_aim",
    "relax_aim",
    "search",
]

BINS = 256
REACH = 12.0  # log-odds

F_BETA, FPR, PRECISION, RECALL, ACCURACY = range(5)  # what `search` optimises

_STEP, _PART = 0.005, 0.25  # largest step of the aim: absolute, and relative to the target and to 1 - target
_BACK = 0.05  # share of the way back to the target
_YOUNG, _SHARE = 1000.0, 0.125  # memory of a young learner: least events, and share of all events


@functools.cache
def edges() -> Vector:
    """Return the lowest probability of each bin, (BINS,); the first bin includes everything below."""
    lowest = np.array([sigmoid(-REACH + i * (2 * REACH / BINS)) for i in range(BINS)])
    lowest[0] = 0.0
    return lowest


@inlined
def bin_of(edges, p):  # type: ignore[no-untyped-def]
    """Return the index of a probability's bin: the last edge at or below it. BINS is a power of two."""
    low = 0
    half = BINS // 2
    while half > 0:  # a fixed number of steps, without a branch on the comparison
        low += half if edges[low + half] <= p else 0
        half //= 2
    return low


@inlined
def effective_memory(memory, events):  # type: ignore[no-untyped-def]
    """Return after how many events an event has weight 1/e, with so many so far; infinite if `memory` is."""
    return memory if memory == np.inf else min(memory, max(_YOUNG, _SHARE * events))


@bare_kernel
def feedback_aim(goal, aim, target, positive, decision):  # type: ignore[no-untyped-def]
    """Return the aim after a labelled event; unchanged for an objective without a target."""
    if (goal == FPR and positive == 0) or (goal == RECALL and positive == 1):
        outcome = decision
    elif goal == PRECISION and decision == 1:
        outcome = positive
    else:
        return aim
    step = min(_STEP, _PART * target, _PART * (1.0 - target))
    return min(max(aim + step * (target - outcome), 0.0), 1.0)


@bare_kernel
def relax_aim(goal, aim, target, live):  # type: ignore[no-untyped-def]
    """Return the aim after a search with the result `live`."""
    if goal == PRECISION and live == 1.0 and aim > target:
        return aim + _BACK * (target - aim)
    return aim


@bare_kernel
def search(goal, aim, bins, edges):  # type: ignore[no-untyped-def]
    """Find the best threshold for `bins` (at least 2, BINS): negatives and positives.

    `aim` is beta^2 for F-beta, else a share. Returns 0 for F-beta before any event, and for recall before any positive.
    """
    negatives = positives = 0.0
    for b in range(BINS):
        negatives += bins[0, b]
        positives += bins[1, b]
    if (goal == F_BETA and negatives + positives == 0.0) or (goal == RECALL and positives == 0.0):
        return 0.0
    best = -1.0 if goal == F_BETA else 0.0
    edge = BINS
    hits = predicted = alarms = 0.0
    for b in range(BINS - 1, -1, -1):
        hits += bins[1, b]
        alarms += bins[0, b]
        predicted += bins[0, b] + bins[1, b]
        if goal == F_BETA:
            value = (1.0 + aim) * hits / (aim * positives + predicted + (1.0 + aim))
            if value > best:
                best, edge = value, b
        elif goal == FPR:
            if alarms + 1.0 > aim * (negatives + 1.0):
                break
            edge = b
        elif goal == PRECISION:
            if hits >= aim * (predicted + 1.0):
                edge = b
        elif goal == RECALL:
            if hits >= aim * positives or b == 0:  # the first bin includes all, however the sums are rounded
                edge = b
                break
        elif hits - alarms > best:
            best, edge = hits - alarms, b
    return edges[edge] if edge < BINS else 1.0
