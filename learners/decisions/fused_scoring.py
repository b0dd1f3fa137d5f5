"""Scores dense events, from their columns to the decisions, in one compiled call.

    scaling -> w.x + bias, or the models of an ensemble and their combination -> calibration -> threshold

It calls the same functions as the stages one by one, so the bits are the same. For one event, the calls and arrays of
the stages take ten times as long as the work; here they are paid once. Every array is an argument of its own: numba
takes longer to find the type of a tuple.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from learners.algorithms import (
    Crosses,
    Ensemble,
    Linear,
    MixState,
    Trees,
    dense_scores,
    layout,
    mix_scores,
    score_members,
)
from learners.decisions import Calibration, CalibrationState, calibration, threshold_kernels
from learners.features import Scaling, ScalingState, scaling
from learners.numerics import Counts, Matrix, Vector, bare_kernel, kernel

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
_OF_LINEAR = 19  # inputs of `_score`
_UNIT_COST = np.ones(1)  # cost of a single event: a new array would take longer than scoring it


@bare_kernel
def _scale(kind, clip, scaled, seen, mean, m2, largest, values, X, Z):  # type: ignore[no-untyped-def]
    if kind == _STANDARD:
        scaling.dense_standard(X, scaled, seen, mean, m2, values, clip, False, Z)
    elif kind == _MAXABS:
        scaling.dense_maxabs(X, scaled, largest, values, clip, False, Z)
    elif kind == _UNIT:
        scaling.dense_unit(X, clip, Z)
    else:
        scaling.dense_none(X, clip, Z)


@bare_kernel
def _calibrate(calibrated, rising, coefficients, power, odds, scores, probabilities):  # type: ignore[no-untyped-def]
    if calibrated == _PLATT:
        calibration.apply_platt(scores, coefficients, power, probabilities)
    elif calibrated == _POSTERIOR:
        calibration.apply_posterior(scores, probabilities)
    elif calibrated == _PLAIN:
        calibration.apply_none(scores, power, probabilities)
    else:
        calibration.apply_binned(scores, rising, odds, probabilities)


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
    _scale(kind, clip, scaled, seen, mean, m2, largest, values, X, Z)
    dense_scores(Z, w, bias[0], scores)
    _calibrate(calibrated, rising, coefficients, power, odds, scores, probabilities)
    threshold_kernels.preview(rule, false_positive, false_negative, live, probabilities, costs, thresholds, decisions)


@kernel
def _score_ensemble(  # type: ignore[no-untyped-def]
    kind,
    clip,
    scaled,
    seen,
    mean,
    m2,
    largest,
    values,
    scoring,
    w0,
    bias0,
    w1,
    bias1,
    w2,
    bias2,
    cross_w,
    cross_bias,
    cross_edges,
    cross_chosen,
    cross_keys,
    cross_cells,
    cross_paired,
    tree_gain,
    tree_columns,
    tree_starts,
    tree_right,
    tree_slot,
    tree_missing,
    tree_threshold,
    tree_value,
    tree_cover,
    tree_bias,
    mix_mean,
    mix_variance,
    mix_factors,
    mix_hessian,
    mix_events,
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
    indices,
    indptr,
):
    linear = Linear(w0, bias0), Linear(w1, bias1), Linear(w2, bias2)
    crosses = Crosses(cross_w, cross_bias, cross_edges, cross_chosen, cross_keys, cross_cells, cross_paired)
    trees = Trees(
        tree_gain,
        tree_columns,
        tree_starts,
        tree_right,
        tree_slot,
        tree_missing,
        tree_threshold,
        tree_value,
        tree_cover,
        tree_bias,
    )
    mix = MixState(mix_mean, mix_variance, mix_factors, mix_hessian, mix_events)
    members = np.zeros((X.shape[0], scoring.shape[0]))
    _scale(kind, clip, scaled, seen, mean, m2, largest, values, X, Z)
    score_members(scoring, linear, crosses, trees, Z, indices, indptr, members)
    mix_scores(mix, members, scores)
    _calibrate(calibrated, rising, coefficients, power, odds, scores, probabilities)
    threshold_kernels.preview(rule, false_positive, false_negative, live, probabilities, costs, thresholds, decisions)


def dense_inputs(
    settings: Scaling,
    scales: ScalingState,
    scaled: Any,
    weights: Linear | Ensemble,
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
        *_arrays(weights),
        _CALIBRATIONS[calibrated.kind],
        calibrated.kind == "isotonic",
        fit.coefficients,
        fit.power,
        fit.odds,
        *rule,
    )


def _arrays(weights: Linear | Ensemble) -> tuple[Any, ...]:
    if isinstance(weights, Linear):
        return weights
    linear = (array for model in weights.linear for array in model)
    return (weights.scoring, *linear, *weights.crosses, *weights.trees, *weights.mix)


def score_dense(inputs: tuple[Any, ...], rows: Matrix, costs: Vector | None) -> tuple[Vector, Counts, Vector, Vector]:
    """Compute scores, decisions, probabilities and thresholds of n events, (n,) each; `inputs` from `dense_inputs`.

    `rows` (n, dim) are in the learner's columns, C-ordered. `costs` (n,) are of a miss of each event (None: 1).
    O(n dim).
    """
    n = len(rows)
    scores, probabilities, thresholds = np.empty(n), np.empty(n), np.empty(n)
    decisions = np.empty(n, dtype=np.int64)
    factors = costs if costs is not None else _UNIT_COST if n == 1 else np.ones(n)
    out = rows, factors, np.empty_like(rows), scores, probabilities, thresholds, decisions
    if len(inputs) == _OF_LINEAR:
        _score(*inputs, *out)
    else:
        _score_ensemble(*inputs, *out, *layout(*rows.shape))
    return scores, decisions, probabilities, thresholds
