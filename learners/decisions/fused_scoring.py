"""Scores dense events, from their columns to the decisions, in one compiled call.

    scaling -> w.x + bias -> calibration -> threshold

It calls the same functions as the stages one by one, so the bits are the same. For one event, the calls and arrays of
the stages take ten times as long as the work; here they are paid once.
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
    "logistic": _PLATT,
    "none": _PLAIN,
    "histogram": _BINNED,
    "isotonic": _BINNED,
}
_UNIT_COST = np.ones(1)  # cost of a single event: a new array would take longer than scoring it


@bare_kernel
def _score(  # type: ignore[no-untyped-def]
    kind,
    clip,
    scaled,
    seen,
    mean,
    m2,
    largest,
    values,
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
        scaling.dense_standard(X, scaled, seen, mean, m2, values, clip, False, Z)
    elif kind == _MAXABS:
        scaling.dense_maxabs(X, scaled, largest, values, clip, False, Z)
    elif kind == _UNIT:
        scaling.dense_unit(X, clip, Z)
    else:
        scaling.dense_none(X, clip, Z)
    dense_scores(Z, w, bias[0], scores)
    if calibrated == _PLATT:
        calibration.apply_platt(scores, coefficients, power, probabilities)
    elif calibrated == _POSTERIOR:
        calibration.apply_posterior(scores, probabilities)
    elif calibrated == _PLAIN:
        calibration.apply_none(scores, power, probabilities)
    else:
        calibration.apply_binned(scores, rising, odds, probabilities)
    threshold_kernels.preview(rule, false_positive, false_negative, live, probabilities, costs, thresholds, decisions)


def dense_inputs(
    settings: Scaling,
    scales: ScalingState,
    scaled: Any,
    weights: Linear,
    calibrated: Calibration,
    fit: CalibrationState,
    rule: tuple[int, float, float, Vector],
) -> tuple[Any, ...]:
    """Collect what `score_dense` reads of a learner, as views; `rule` is from `threshold.scoring_inputs`."""
    return (
        _SCALINGS[settings.kind],
        math.inf if settings.clip is None else settings.clip,
        scaled,
        scales.seen,
        scales.mean,
        scales.m2,
        scales.largest,
        scales.values,
        weights.w,
        weights.bias,
        _CALIBRATIONS[calibrated.kind],
        calibrated.kind == "isotonic",
        fit.coefficients,
        fit.power,
        fit.odds,
        *rule,
    )


def score_dense(inputs: tuple[Any, ...], rows: Matrix, costs: Vector | None) -> tuple[Vector, Counts, Vector, Vector]:
    """Compute scores, decisions, probabilities and thresholds of n events, (n,) each; `inputs` from `dense_inputs`.

    `rows` (n, dim) are in the learner's columns, C-ordered. `costs` (n,) are of a miss of each event (None: 1).
    O(n dim).
    """
    n = len(rows)
    scores, probabilities, thresholds = np.empty(n), np.empty(n), np.empty(n)
    decisions = np.empty(n, dtype=np.int64)
    factors = costs if costs is not None else _UNIT_COST if n == 1 else np.ones(n)
    _score(*inputs, rows, factors, np.empty_like(rows), scores, probabilities, thresholds, decisions)
    return scores, decisions, probabilities, thresholds
