"""Lists the weights of a learner, largest first, by the names of their features.

    score(x) = intercept + sum_j weight_j x_j

x are the features *as scored*: encoded, then scaled by the learner's `scaling`. A weight is the change of the score
for one unit of x. With standard scaling that is one standard deviation of the feature, with maxabs its largest value so
far, and without scaling one unit of the number or of its logarithm. Indicators are 0 or 1 and not scaled.

    dense    `x[3]`; sparse: `[7]`, as in `indices`
    table    `amount`; `amount (missing)` is the change if the number is missing; a categorical field has `country=DE`
             for each of its own columns, and `country (others)`
    named    `amount`, `country=DE`: the names of an explanation

Neither the log nor the state has the names of hashed features and of categories. A request for the weights starts a
search for them in later events (`feature_names.py`). Until an event has the feature, it is called `column 4711`, and
its weight has the sign of the hash. Categories are called `country (category 1)` and so on, in the order of their first
appearance. Numbers that are declared under `log` have their names at once.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from learners import Config, LearnerView
from learners.algorithms import Ensemble, Linear
from learners.features import Field, Named, OneHot, Table
from learners.numerics import Counts, Vector
from service.engine.feature_names import FeatureNames, Key
from service.wire import finite_or_none

__all__ = ["MAX_TOP", "ModelWeights", "copy_weights", "rank_weights"]

MAX_TOP = 1000


class ModelWeights(NamedTuple):
    """A copy of a learner's weights at one position."""

    position: int
    config: Config
    intercept: float | None
    values: Vector  # (n,); empty if there is a `reason`
    columns: Counts  # (n,) the encoded column of each weight
    categories: Vector | None  # (n,) for a table, the hash of each weight's category, or NaN
    reason: str | None  # why there are no weights


def copy_weights(view: LearnerView, position: int) -> ModelWeights:
    """Copy the weights of a view. O(columns)."""
    scorer = view.scorer
    reason = _lacking(view)
    if reason is not None or not isinstance(scorer.weights, Linear):
        return ModelWeights(position, scorer.config, None, np.empty(0), np.empty(0, dtype=np.int64), None, reason)
    columns = scorer.columns.sources().copy()
    weights = scorer.weights.w[: len(columns)].copy()
    categories = _categories(scorer.columns) if isinstance(scorer.columns, OneHot) else None
    return ModelWeights(position, scorer.config, float(scorer.weights.bias[0]), weights, columns, categories, None)


def rank_weights(weights: ModelWeights, top: int, names: FeatureNames) -> dict[str, Any]:
    """Return the reply: the `top` weights of the largest absolute value, ties in the order of the columns.

    The names of hashed columns are searched for from now on. O(columns + top log top).
    """
    size = np.nan_to_num(np.abs(weights.values), nan=np.inf)
    order = np.arange(len(size))
    if top < len(size):
        order = np.flatnonzero(size >= np.partition(size, -top)[-top])  # with all ties of the last
    order = order[np.argsort(-size[order], kind="stable")][:top]
    places = order.tolist()
    keys = [_hashed(weights, place) for place in places]
    names_ = iter(names.request([key for key in keys if key is not None]))
    column_names = [None if key is None else next(names_) for key in keys]
    layout = _layout(weights, places)
    ranked = []
    for place, otherwise, column_name in zip(places, layout, column_names, strict=True):
        name, sign = column_name or (otherwise, 1.0)
        ranked.append({"name": name, "weight": finite_or_none(sign * weights.values[place])})
    return {
        "position": weights.position,
        "intercept": None if weights.intercept is None else finite_or_none(weights.intercept),
        "weights": ranked,
        "total": len(weights.values),
        "unnamed": sum(key is not None and name is None for key, name in zip(keys, column_names, strict=True)),
        "reason": weights.reason,
    }


def _lacking(view: LearnerView) -> str | None:
    """Return why a learner has no weights of features; None if it has."""
    scorer = view.scorer
    algorithm = scorer.config.algorithm
    if scorer.embedding is not None or scorer.config.embedding.kind != "none":
        kind = scorer.config.embedding.kind
        return f"{algorithm} scores behind a {kind} embedding: its weights belong to components, not to features"
    if not scorer.has_model:
        return f"{view.not_ready or 'there is no model yet'}: weights need a model"
    if isinstance(scorer.weights, Ensemble):
        return (
            f"{algorithm} combines several models, which have weights of their own; explanations show what features add"
        )
    if not isinstance(scorer.weights, Linear):
        read = f"they read {len(scorer.weights.columns):,} of {view.columns:,} columns"
        return (
            f"{algorithm} scores by decision trees, which have no weights; {read}; explanations show what features add"
        )
    if scorer.weights.w.ndim > 1:
        return f"{algorithm} predicts ranks by {len(scorer.weights.w)} planes, each with its own weights"
    return None


def _hashed(weights: ModelWeights, place: int) -> Key | None:
    """Return the key of a weight's column if its name is hashed, else None."""
    column = int(weights.columns[place])
    if weights.categories is None:
        return column if isinstance(weights.config.features, Named) else None
    category = float(weights.categories[place])
    return None if math.isnan(category) else (column, category)


def _layout(weights: ModelWeights, places: list[int]) -> list[str]:
    """Return the names of the columns at these places by their layout, for those without a feature's name."""
    features = weights.config.features
    if isinstance(features, Table):
        layout = [name for field in features.fields for name in _field_names(field)]
        return [layout[place] for place in places]
    encoded = weights.columns[places].tolist()
    if isinstance(features, Named):
        return [f"column {column}" for column in encoded]
    return features.names(None, encoded)


def _field_names(field: Field) -> list[str]:
    """Return the names of a table field's columns, in order."""
    if field.kind == "numeric":
        return [field.name, f"{field.name} (missing)"]
    return [*(f"{field.name} (category {k})" for k in range(1, field.categories + 1)), f"{field.name} (others)"]


def _categories(columns: OneHot) -> Vector:
    """Return the hash of the category of each column of a table; NaN for numbers and for unassigned columns."""
    parts = []
    slot = 0
    for field, assigned in zip(columns.table.fields, columns.category_counts.tolist(), strict=True):
        hashes = np.full(field.width, math.nan)
        if field.kind == "categorical":
            hashes[:assigned] = columns.values[slot : slot + assigned]
            slot += field.categories
        parts.append(hashes)
    return np.concatenate(parts)
