"""What is said of dense events, from their columns to the decisions, in one compiled call.

    scaling -> w.x + bias -> calibration -> threshold

The same functions as the stages' own `look`, one after the other, so the same bits; but where a call of each stage and
its arrays take ten times as long as the work on one event, here they are paid once.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from learners.algorithms import Linear, dense_scores
from learners.decisions import Calibration, CalibrationState, calibration, threshold_kernels
from learners.features import Scaling, ScalingState, scaling
from learners.numerics import Counts, Matrix, Vector, bare_kernel

__all__ = ["dense_inputs", "score_dense"]

_NONE, _UNIT, _STANDARD, _MAXABS = range(4)
_SCALINGS = {"none": _NONE, "unit": _UNIT, "standard": _STANDARD, "maxabs": _MAXABS}
_POSTERIOR, _PLATT, _PLAIN, _BINNED = range(4)
_CALIBRATIONS = {
    "posterior": _POSTERIOR,
    "platt": _PLATT,
    "none": _PLAIN,
    "histogram": _BINNED,
    "isotonic": _BINNED,
}
_ONE = np.ones(1)  # of a single event: to make it anew would take longer than to score it


@bare_kernel
def _look(  # type: ignore[no-untyped-def]
    kind,
    clip,
    scaled,
    seen,
    mean,
    m2,
    largest,
    w,
    bias,
    calibrated,
    rising,
    coefficients,
    power,
    odds,
    rule,
    false_positive,
    false_negative,
    live,
    X,
    costs,
    Z,
    scores,
    probabilities,
    thresholds,
    decisions,
):
    if kind == _STANDARD:
        scaling.dense_standard(X, scaled, seen, mean, m2, clip, False, Z)
    elif kind == _MAXABS:
        scaling.dense_maxabs(X, scaled, largest, clip, False, Z)
    elif kind == _UNIT:
        scaling.dense_unit(X, clip, Z)
    else:
        scaling.dense_none(X, clip, Z)
    dense_scores(Z, w, bias[0], scores)
    if calibrated == _PLATT:
        calibration.platt_look(scores, coefficients, power, probabilities)
    elif calibrated == _POSTERIOR:
        calibration.posterior_look(scores, probabilities)
    elif calibrated == _PLAIN:
        calibration.none_look(scores, power, probabilities)
    else:
        calibration.binned_look(scores, rising, odds, probabilities)
    threshold_kernels.look(rule, false_positive, false_negative, live, probabilities, costs, thresholds, decisions)


def dense_inputs(
    settings: Scaling,
    scales: ScalingState,
    scaled: Any,
    weights: Linear,
    calibrated: Calibration,
    fit: CalibrationState,
    said: tuple[int, float, float, Vector],
) -> tuple[Any, ...]:
    """What `score_dense` reads of a learner, as views; `said` is `threshold.scoring_inputs`."""
    return (
        _SCALINGS[settings.kind],
        math.inf if settings.clip is None else settings.clip,
        scaled,
        scales.seen,
        scales.mean,
        scales.m2,
        scales.largest,
        weights.w,
        weights.bias,
        _CALIBRATIONS[calibrated.kind],
        calibrated.kind == "isotonic",
        fit.coefficients,
        fit.power,
        fit.odds,
        *said,
    )


def score_dense(by: tuple[Any, ...], rows: Matrix, costs: Vector | None) -> tuple[Vector, Counts, Vector, Vector]:
    """Scores, decisions, probabilities and thresholds of n events, (n,) each, by what `dense_inputs` has given.

    `rows` (n, dim) are in the learner's own columns, C-ordered; `costs` (n,) of a miss of each, None: 1. O(n dim).
    """
    n = len(rows)
    scores, probabilities, thresholds = np.empty(n), np.empty(n), np.empty(n)
    decisions = np.empty(n, dtype=np.int64)
    factors = costs if costs is not None else _ONE if n == 1 else np.ones(n)
    _look(*by, rows, factors, np.empty_like(rows), scores, probabilities, thresholds, decisions)
    return scores, decisions, probabilities, thresholds
