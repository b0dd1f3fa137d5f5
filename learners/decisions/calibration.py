"""Score -> probability, so that a threshold means the same for every algorithm.

    posterior  sigmoid(score): for algorithms whose score is a log-odds
    platt      sigmoid(a s / rms + b): a and b follow the stream by online Newton steps on the log loss
    logistic   sigmoid(a s + b): likewise, for a score that is a log-odds; begins as posterior
    none       sigmoid(s / rms): in the order of scores, but not calibrated
    histogram  the share of positives in groups of a score histogram, see `calibration_histogram.py`; may fall
    isotonic   the rising function of the score that fits this histogram best

rms is the running root mean square of the score. For platt, with u = (s / rms, 1) and forgetting g = 1 - 1/m:

    H = g H + p (1 - p) u u^T,   (a, b) -= (H + P)^-1 (p - y) u,   m = min(memory, max(50, events / 10))

P = I is a prior worth one event: without it, rare positives let H vanish and the steps explode. m grows with the stream
because a young learner's scores change quickly. In the step, but not in the probability, u is limited to [-10, 10], so
that one outlier does not tip the line. a is at least 0.001, and log-odds are rounded to multiples of 2^-40. So a higher
score never gives a lower probability, not even by rounding. A NaN score counts as 0. O(1) per event.

For logistic, u = (s, 1) and P = diag(100, 10), because a = 1 and b = 0 are near the truth. It corrects a posterior that
is too sure, or that follows a base rate too slowly.

References
----------
Platt. Probabilistic Outputs for Support Vector Machines. Advances in Large Margin Classifiers, 1999.
Departure: online, second order, with forgetting; the original fits once, on held-out scores.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from learners.decisions import calibration_histogram
from learners.numerics import (
    BINS,
    MAX_COUNT,
    Counts,
    Issues,
    Matrix,
    Vector,
    bare_kernel,
    kernel,
    not_finite,
    outside,
    sigmoid,
)
from learners.settings import Parameters, param

__all__ = [
    "Calibration",
    "CalibrationState",
    "apply",
    "apply_binned",
    "apply_none",
    "apply_platt",
    "apply_posterior",
    "init",
    "learn",
    "problems",
]


_GRID = 2.0**40  # steps per unit of log-odds: too fine to see, and far coarser than rounding errors
_OUTLIER = 10.0  # root mean squares
_LEAST_SLOPE, _LARGEST_SLOPE = 1e-3, 100.0
_LARGEST_INTERCEPT = 30.0
_LARGEST_SQUARE = 1e290  # of a score: the sum over 10^9 events is still finite


@dataclass(frozen=True)
class Calibration(Parameters):
    """Settings of the calibration."""

    kind: Literal["posterior", "platt", "none", "histogram", "isotonic", "logistic"] = param(
        "platt", "how a score becomes a probability"
    )
    memory: int = param(
        10_000,
        "How fast old events fade: an event this many events ago has weight 1/e (37 %).",
        least=10,
        most=10**9,
        applies_to={"kind": ["platt", "histogram", "isotonic", "none", "logistic"]},
    )


class CalibrationState(NamedTuple):
    """Arrays of the running fit; arrays that the kind does not use are empty."""

    coefficients: Vector  # (2,) a, b
    hessian: Matrix  # (2, 2)
    power: Vector  # (2,) faded sum of s^2, faded count
    events: Counts  # (1,)
    bins: Matrix  # (2, BINS) events by score, faded: negatives, positives
    odds: Vector  # (BINS + 1,) fitted log-odds at the lower edge of each bin, and at the upper edge of the last


def init(settings: Calibration) -> CalibrationState:
    """Return the state before any event: slope 1, intercept 0; an empty histogram, which gives 1/2 for every score."""
    kind = settings.kind
    fits, binned = kind in ("platt", "logistic"), kind in ("histogram", "isotonic")
    return CalibrationState(
        coefficients=np.array([1.0, 0.0][: 2 * fits]),
        hessian=np.zeros((2 * fits, 2)),
        power=np.zeros(2 * (kind in ("platt", "none"))),
        events=np.zeros(1 * (kind != "posterior"), dtype=np.int64),
        bins=np.zeros((2, BINS * binned)),
        odds=np.zeros((BINS + 1) * binned),
    )


def problems(settings: Calibration, state: CalibrationState) -> Issues:
    """Report what no scores can have led to in a state of the right shapes."""
    yield from outside("coefficients", state.coefficients[:1], _LEAST_SLOPE, _LARGEST_SLOPE)
    yield from outside("coefficients", state.coefficients[1:], -_LARGEST_INTERCEPT, _LARGEST_INTERCEPT)
    yield from not_finite("hessian", state.hessian)
    yield from outside("power", state.power, 0.0, sys.float_info.max)
    yield from outside("events", state.events, 0, MAX_COUNT)
    yield from outside("bins", state.bins, 0.0, MAX_COUNT)
    yield from outside("odds", state.odds, -calibration_histogram.LARGEST, calibration_histogram.LARGEST)
    if settings.kind == "isotonic" and (np.diff(state.odds) < 0.0).any():
        yield "odds", "falls from one score to a higher one"


@bare_kernel
def _scaled(score, power):  # type: ignore[no-untyped-def]
    """Compute s / rms, limited to [-100, 100]; 0 before any score. The score has its own scale if `power` is empty."""
    if power.shape[0] == 0:
        return min(max(score, -100.0), 100.0)
    if power[0] <= 0.0 or power[1] <= 0.0:
        return 0.0
    rms = math.sqrt(power[0] / power[1])
    if rms == 0.0:  # squares too small for their mean
        return 0.0
    most = 100.0 * rms  # limited before the division, which could overflow
    return min(max(score, -most), most) / rms


@bare_kernel
def _probability(x):  # type: ignore[no-untyped-def]
    """Compute sigmoid(x), non-decreasing to the last bit."""
    return sigmoid(math.floor(min(max(x, -750.0), 750.0) * _GRID + 0.5) / _GRID)


@bare_kernel
def _number(score):  # type: ignore[no-untyped-def]
    """Return the score, or 0 for NaN."""
    return 0.0 if math.isnan(score) else score


@bare_kernel
def _measure(score, memory, power, events):  # type: ignore[no-untyped-def]
    """Add a score to the running square, if there is one; return the factor by which older events fade."""
    keep = 1.0 - 1.0 / min(memory, max(50.0, events[0] / 10.0))
    events[0] += 1
    if power.shape[0] == 0:
        return keep
    power[0] = keep * power[0] + min(score * score, _LARGEST_SQUARE)
    power[1] = keep * power[1] + 1.0
    return keep


@bare_kernel
def _platt(scores, y, memory, coefficients, H, power, events, probabilities):  # type: ignore[no-untyped-def]
    """Fill the probability of each event, then learn its label."""
    of_slope, of_intercept = (1.0, 1.0) if power.shape[0] else (100.0, 10.0)  # the prior
    for i in range(scores.shape[0]):
        score = _number(scores[i])
        probabilities[i] = _probability(coefficients[0] * _scaled(score, power) + coefficients[1])
        keep = _measure(score, memory, power, events)
        u = min(max(_scaled(score, power), -_OUTLIER), _OUTLIER)
        p = sigmoid(coefficients[0] * u + coefficients[1])
        curvature = p * (1.0 - p)
        H[0, 0] = keep * H[0, 0] + curvature * u * u
        H[0, 1] = keep * H[0, 1] + curvature * u
        H[1, 0] = H[0, 1]
        H[1, 1] = keep * H[1, 1] + curvature
        aa, ab, bb = H[0, 0] + of_slope, H[0, 1], H[1, 1] + of_intercept
        step = (p - (1.0 if y[i] > 0.0 else 0.0)) / (aa * bb - ab * ab)
        coefficients[0] = min(max(coefficients[0] - step * (bb * u - ab), _LEAST_SLOPE), _LARGEST_SLOPE)
        intercept = coefficients[1] - step * (aa - ab * u)
        coefficients[1] = min(max(intercept, -_LARGEST_INTERCEPT), _LARGEST_INTERCEPT)


@bare_kernel
def apply_platt(scores, coefficients, power, probabilities):  # type: ignore[no-untyped-def]
    """Fill the probabilities of the kinds "platt" and "logistic"."""
    for i in range(scores.shape[0]):
        scaled = _scaled(_number(scores[i]), power)
        probabilities[i] = _probability(coefficients[0] * scaled + coefficients[1])


@bare_kernel
def apply_posterior(scores, probabilities):  # type: ignore[no-untyped-def]
    """Fill the probabilities of kind "posterior"."""
    for i in range(scores.shape[0]):
        probabilities[i] = _probability(_number(scores[i]))


@bare_kernel
def _none(scores, memory, power, events, probabilities):  # type: ignore[no-untyped-def]
    """Fill the probability of each event, then learn its score."""
    for i in range(scores.shape[0]):
        score = _number(scores[i])
        probabilities[i] = _probability(_scaled(score, power))
        _measure(score, memory, power, events)


@bare_kernel
def apply_none(scores, power, probabilities):  # type: ignore[no-untyped-def]
    """Fill the probabilities of kind "none"."""
    for i in range(scores.shape[0]):
        probabilities[i] = _probability(_scaled(_number(scores[i]), power))


@kernel
def _binned(scores, y, memory, rising, events, bins, odds, probabilities):  # type: ignore[no-untyped-def]
    """Fill the probability of each event, then learn its label."""
    for i in range(scores.shape[0]):
        probabilities[i] = _probability(calibration_histogram.log_odds(scores[i], rising, odds))
        events[0] += 1
        calibration_histogram.count(scores[i], 1 if y[i] > 0.0 else 0, bins)
        if events[0] <= calibration_histogram.FIRST or events[0] % calibration_histogram.EVERY == 0:
            calibration_histogram.fit(bins, rising, odds)
        if events[0] % calibration_histogram.EVERY == 0:
            calibration_histogram.fade(bins, memory, events[0])


@bare_kernel
def apply_binned(scores, rising, odds, probabilities):  # type: ignore[no-untyped-def]
    """Fill the probabilities of kinds "histogram" and "isotonic"."""
    for i in range(scores.shape[0]):
        probabilities[i] = _probability(calibration_histogram.log_odds(scores[i], rising, odds))


def learn(settings: Calibration, state: CalibrationState, scores: Vector, y: Vector) -> Vector:
    """Compute the probability of each event before its label, (n,), and learn the labels, in order."""
    probabilities = np.empty_like(scores)
    memory = float(settings.memory)
    if settings.kind == "posterior":
        apply_posterior(scores, probabilities)
    elif settings.kind in ("platt", "logistic"):
        _platt(scores, y, memory, state.coefficients, state.hessian, state.power, state.events, probabilities)
    elif settings.kind == "none":
        _none(scores, memory, state.power, state.events, probabilities)
    else:
        _binned(scores, y, memory, settings.kind == "isotonic", state.events, state.bins, state.odds, probabilities)
    return probabilities


def apply(settings: Calibration, state: CalibrationState, scores: Vector) -> Vector:
    """Compute the probability of each score under the present fit, (n,)."""
    probabilities = np.empty_like(scores)
    if settings.kind == "posterior":
        apply_posterior(scores, probabilities)
    elif settings.kind in ("platt", "logistic"):
        apply_platt(scores, state.coefficients, state.power, probabilities)
    elif settings.kind == "none":
        apply_none(scores, state.power, probabilities)
    else:
        apply_binned(scores, settings.kind == "isotonic", state.odds, probabilities)
    return probabilities
