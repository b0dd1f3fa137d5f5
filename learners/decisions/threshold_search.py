"""The threshold that a sketch of probabilities says is best: what most objectives of `threshold.py` search.

The sketch counts the negatives and the positives, faded, in 256 bins of equal width in log-odds over [-12, 12]; events
from the edge of bin b on are called positive. From the counts tp, fp of those, P positives and N negatives in all:

    F-beta     the largest (1 + beta^2) tp / (beta^2 P + tp + fp + 1 + beta^2), the highest edge of several such
    fpr        the lowest edge with fp + 1 <= target (N + 1)
    precision  the lowest edge with tp >= target (tp + fp + 1)
    recall     the highest edge with tp >= target P
    accuracy   the largest tp - fp, the highest edge of several such

Where there is no such edge the threshold is 1. The 1s are imagined errors (one missed positive and one false alarm; one
negative above all; one false alarm): without them the first few events, or the few at the top, decide everything. With
the imagined negative the share of negatives called positive is at most `target` in expectation even after few of them,
as in conformal prediction. Jaccard's tp / (P + fp) = F / (2 - F) rises with F1, so one threshold is best for both.

An event counts 1/e after min(memory, max(1,000, events / 8)) more. The model's log-odds move most while it is young, so
that its first events soon tell of a model that is no more; where all are to count alike ("memory" null), none fades.

Where log-odds drift, counts of the past break a promise all the same: what is searched for is therefore not the target
but an aim that starts there and is led by what became of it. After each labelled negative (fpr), positive (recall), or
event called positive (precision),

    aim += step (target - o)       o: 1 if it was called positive (fpr, recall), or was positive (precision), else 0
    step = min(.005, target / 4, (1 - target) / 4)

within [0, 1]: so the mean of o is led to the target. "Called" is what the present threshold says of the event, of a
late label too: it is this threshold that is led, not the one of back then. Where no edge has a precision as high as the
aim, nothing is called and nothing would be learnt: each such search takes an aim above the target a 20th of the way
back.

O(256) per search; finding an event's bin is a search of its edges, 8 comparisons.

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
    "edges",
    "led",
    "memory_of",
    "place",
    "relaxed",
    "search",
]

BINS = 256
REACH = 12.0  # log-odds

F_BETA, FPR, PRECISION, RECALL, ACCURACY = range(5)  # what `search` seeks

_STEP, _PART = 0.005, 0.25  # of the aim: at most, and of the share that is asked for or against
_BACK = 0.05  # of the way to the target
_YOUNG, _SHARE = 1000.0, 0.125  # events that a young learner looks back on: at least, and of those met


@functools.cache
def edges() -> Vector:
    """The lowest probability of each bin, (BINS,). The first bin takes in all that is below."""
    lowest = np.array([sigmoid(-REACH + i * (2 * REACH / BINS)) for i in range(BINS)])
    lowest[0] = 0.0
    return lowest


@inlined
def place(edges, p):  # type: ignore[no-untyped-def]
    """The bin of a probability: the last edge at or below it. BINS is a power of two."""
    low = 0
    half = BINS // 2
    while half > 0:  # always as many steps, and no branch on what is compared
        low += half if edges[low + half] <= p else 0
        half //= 2
    return low


@inlined
def memory_of(memory, events):  # type: ignore[no-untyped-def]
    """Events after which one counts 1/e, when so many were met; infinite where `memory` is."""
    return memory if memory == np.inf else min(memory, max(_YOUNG, _SHARE * events))


@bare_kernel
def led(sought, aim, target, positive, called):  # type: ignore[no-untyped-def]
    """The aim after a labelled event; of an objective that has no target as it was."""
    if (sought == FPR and positive == 0) or (sought == RECALL and positive == 1):
        outcome = called
    elif sought == PRECISION and called == 1:
        outcome = positive
    else:
        return aim
    step = min(_STEP, _PART * target, _PART * (1.0 - target))
    return min(max(aim + step * (target - outcome), 0.0), 1.0)


@bare_kernel
def relaxed(sought, aim, target, live):  # type: ignore[no-untyped-def]
    """The aim after a search that found this threshold."""
    if sought == PRECISION and live == 1.0 and aim > target:
        return aim + _BACK * (target - aim)
    return aim


@bare_kernel
def search(sought, aim, bins, edges):  # type: ignore[no-untyped-def]
    """The threshold that `bins` (at least 2, BINS), negatives and positives, make best.

    `aim` is beta^2 of F-beta, else a share. Before any event F-beta calls all positive, recall before any positive.
    """
    negatives = positives = 0.0
    for b in range(BINS):
        negatives += bins[0, b]
        positives += bins[1, b]
    if (sought == F_BETA and negatives + positives == 0.0) or (sought == RECALL and positives == 0.0):
        return 0.0
    best = -1.0 if sought == F_BETA else 0.0
    found = BINS
    hits = called = alarms = 0.0
    for b in range(BINS - 1, -1, -1):
        hits += bins[1, b]
        alarms += bins[0, b]
        called += bins[0, b] + bins[1, b]
        if sought == F_BETA:
            value = (1.0 + aim) * hits / (aim * positives + called + (1.0 + aim))
            if value > best:
                best, found = value, b
        elif sought == FPR:
            if alarms + 1.0 > aim * (negatives + 1.0):
                break
            found = b
        elif sought == PRECISION:
            if hits >= aim * (called + 1.0):
                found = b
        elif sought == RECALL:
            if hits >= aim * positives or b == 0:  # the first takes in all, whatever sums in another order round to
                found = b
                break
        elif hits - alarms > best:
            best, found = hits - alarms, b
    return edges[found] if found < BINS else 1.0
