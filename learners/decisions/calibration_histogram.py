"""Calibration from a fading histogram of scores: the kinds "histogram" and "isotonic" of `calibration.py`.

The scores of each class are counted in logarithmic bins (`log_bins`). A fit walks the bins from the lowest score up and
joins them to groups, each with at least 1/K of the mass. Each class has half of the mass, whatever its size. So if
positives are rare, a group has some of them or a large share of the negatives. K is a quarter of the events of the
rarer class, from 1 to 16 (isotonic: 64).

    p = (positives + c pi) / (events + c)       of a group; pi: share of positives in all, c = 2 imagined events

histogram: p holds for all scores of the group.

isotonic: neighbouring groups with falling p are pooled until p rises (pool adjacent violators). The log-odds of a pool
hold at the middle between its mean event and its mean positive. With linear log-odds and normal scores, that is the
right place. Scores between two pools are interpolated, so a higher score means a higher probability. Beyond the
outermost pools the log-odds go on to 1 less, or 1 more, at the end of the bins.

A fit follows each of the first 64 events, then every 64th, when the counts also fade. An event has weight 1/e after
min(memory, max(5,000, events / 2)) more events, or after min(memory / (50 r), 10 memory, events / 8) if that is more,
with r the share of the rarer class. So the memory holds about memory / 50 events of a rare class. With only a dozen,
noise would hide the order of the scores. O(1) per event, O(1,283) per fit.

References
----------
Zadrozny, Elkan. Obtaining Calibrated Probability Estimates from Decision Trees and Naive Bayesian Classifiers. ICML
2001 (histogram); Transforming Classifier Scores into Accurate Multiclass Probability Estimates. KDD 2002 (isotonic).
Oron, Flournoy. Centered Isotonic Regression. Statistics in Biopharmaceutical Research 9(3), 2017: the interpolation.
Departures: online, fading, groups of class-balanced mass, shrinkage; log-odds are interpolated, not probabilities.
"""

from __future__ import annotations

import numpy as np

from learners.numerics import BINS, kernel, log, log_bins

__all__ = ["EVERY", "FIRST", "LARGEST", "count", "fade", "fit", "log_odds"]

FIRST = 64  # number of first events with a fit after each
EVERY = 64  # events between later fits
LARGEST = 100.0  # log-odds; counts are finite
_IMAGINED = 2.0  # imagined events per group, with the average share of positives
_GROUPS, _RISING_GROUPS = 16, 64
_FORGOTTEN = 1e-9  # events: faded so far that dividing by them is meaningless, and may overflow
_LEAST = 1e-6  # negatives, if counts are so large that rounding loses the imagined ones
_PER_GROUP = 4.0  # events of the rarer class
_YOUNG, _SHARE = 5000.0, 0.5
_RARE, _LONGEST = 0.02, 10.0  # share of the rarer class below which `memory` is longer, and the largest factor
_RARE_SHARE = 0.125  # of all events, the longest memory beyond `memory`
_BEYOND = 1.0  # log-odds from the outermost pools to the end of the bins


@kernel
def log_odds(score, rising, odds):  # type: ignore[no-untyped-def]
    """Return the log-odds of a score: of its bin or, if `rising`, interpolated, non-decreasing to the last bit."""
    at = log_bins.position(score)
    b = int(at)
    if not rising:
        return odds[b]
    return min(odds[b] + (odds[b + 1] - odds[b]) * (at - b), odds[b + 1])


@kernel
def count(score, positive, bins):  # type: ignore[no-untyped-def]
    """Count an event."""
    bins[positive, int(log_bins.position(score))] += 1.0


@kernel
def fade(bins, memory, events):  # type: ignore[no-untyped-def]
    """Fade the counts, after so many events in all."""
    negatives = positives = 0.0
    for b in range(bins.shape[1]):
        negatives += bins[0, b]
        positives += bins[1, b]
    rarer = max(min(negatives, positives), _FORGOTTEN)
    longer = memory * min(_RARE * ((negatives + positives) / rarer), _LONGEST)
    memory = max(min(memory, max(_YOUNG, events * _SHARE)), min(longer, events * _RARE_SHARE))
    keep = max(1.0 - EVERY / memory, 0.0)
    for b in range(bins.shape[1]):
        bins[0, b] *= keep
        bins[1, b] *= keep


@kernel
def fit(bins, rising, odds):  # type: ignore[no-untyped-def]
    """Fill `odds` (BINS + 1,) with the log-odds at the edges of the bins; `bins` (2, BINS), with an event at least."""
    negatives = positives = 0.0
    for b in range(BINS):
        negatives += bins[0, b]
        positives += bins[1, b]
    rate = (positives + 0.5) / (negatives + positives + 1.0)
    most = _RISING_GROUPS if rising else _GROUPS
    mass = (1.0 - 1e-9) / max(1.0, min(float(most), np.floor(min(negatives, positives) / _PER_GROUP)))
    # slightly less, so that rounding does not decide; a forgotten class has no mass
    present = (negatives > _FORGOTTEN, positives > _FORGOTTEN)
    half = (0.5 / negatives if present[0] else 0.0, 0.5 / positives if present[1] else 0.0)
    # per group or pool: positives, events, sums of the positions of events and of positives, and positives and events
    # with the imagined ones
    groups = np.zeros((_RISING_GROUPS + 1, 6))
    stops = np.zeros(_RISING_GROUPS + 1, dtype=np.int64)  # the bin after the last of each group
    step = log_bins.typical(bins) if rising else 0
    number = 0
    hits = weight = moment = lead = reached = 0.0
    left = (0.5 if present[0] else 0.0) + (0.5 if present[1] else 0.0)
    for b in range(BINS):
        inside = bins[0, b] + bins[1, b]
        if inside > 0.0:
            hits += bins[1, b]
            weight += inside
            if rising:
                at = 0.5 * (log_bins.evened(b, step) + log_bins.evened(b + 1, step))
                moment += inside * at
                lead += bins[1, b] * at
            gained = half[0] * bins[0, b] + half[1] * bins[1, b]
            reached += gained
            left -= gained
        if b < BINS - 1 and (reached < mass or left < mass or number == _RISING_GROUPS):
            continue
        group = groups[number]
        group[0], group[1], group[2], group[3] = hits, weight, moment, lead
        group[4], group[5] = hits + _IMAGINED * rate, weight + _IMAGINED
        stops[number] = b + 1
        number += 1
        hits = weight = moment = lead = reached = 0.0
        while rising and number > 1 and _falls(groups[number - 2], groups[number - 1]):
            number -= 1
            for i in range(6):
                groups[number - 1, i] += groups[number, i]
            stops[number - 1] = stops[number]
    if rising:
        _interpolate(groups, number, step, odds)
        return
    b = 0
    for g in range(number):
        value = _odds(groups[g])
        while b < stops[g]:
            odds[b] = value
            b += 1
    odds[BINS] = odds[BINS - 1]


@kernel
def _odds(group):  # type: ignore[no-untyped-def]
    """Compute the log-odds of a group, with the imagined events."""
    return log(group[4] / max(group[5] - group[4], _LEAST))


@kernel
def _falls(lower, upper):  # type: ignore[no-untyped-def]
    """Return whether the share of positives does not rise from one group to the next."""
    return lower[4] * upper[5] >= upper[4] * lower[5]


@kernel
def _centre(group):  # type: ignore[no-untyped-def]
    """Return the position where a pool's log-odds hold; an imagined positive is at the mean of its events."""
    mean = group[2] / group[1]
    return 0.5 * (mean + (group[3] + mean) / (group[0] + 1.0))


@kernel
def _interpolate(groups, pools, step, odds):  # type: ignore[no-untyped-def]
    """Fill `odds` along the line through the pools' centres."""
    x0, x1 = log_bins.evened(0, step), _centre(groups[0])
    v1 = _odds(groups[0])
    v0 = v1 - _BEYOND
    g = 0
    highest = v0
    for b in range(BINS + 1):
        x = log_bins.evened(b, step)
        while g < pools and x > x1:
            g += 1
            x0, v0 = x1, v1
            if g < pools:
                x1, v1 = _centre(groups[g]), _odds(groups[g])
            else:
                x1, v1 = log_bins.evened(BINS, step), v0 + _BEYOND
        highest = max(highest, v0 + (v1 - v0) * ((x - x0) / (x1 - x0)))  # rounding must not reverse the order
        odds[b] = highest
