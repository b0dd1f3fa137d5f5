"""The weights that a learner scores by, largest first, by the names of their features.

    score(x) = intercept + sum_j weight_j x_j

x are the features *as scored*: encoded, and scaled as the learner's `scaling` says. So under standard scaling a weight
is what the score moves by for one standard deviation of the feature, under maxabs for the largest value met, and with
none for one unit of the number itself (of its logarithm, where that is taken). An indicator is 0 or 1, and not scaled.

    dense    `x[3]`; sparse: `[7]`, as in `indices`
    table    `amount`; `amount (missing)`, what it moves by where the number is not there; of a categorical field
             `country=DE` for each of its own columns, and `country (others)`
    named    `amount`, `country=DE`: as an explanation of an event calls them

The names of hashed features and of categories are in no log and no state: each request for the weights has events that
come later looked at for those of its answer (`feature_names.py`). Until one has come it is `column 4711`, whose weight
is that of the hashed feature, with the sign of its hash; and `country (category 1)` and so on, in the order in which
they first appeared. The numbers that are declared under `log` have their names at once.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from learners import Config, LearnerView
from learners.features import Field, Named, OneHot, Table
from learners.numerics import Counts, Vector
from service.engine.feature_names import FeatureNames, Key

__all__ = ["MAX_TOP", "Weights", "copy_weights", "rank_weights"]

MAX_TOP = 1000


class Weights(NamedTuple):
    """A copy of what a learner scores by, at one position."""

    position: int
    config: Config
    intercept: float | None
    values: Vector  # (n,) by place; none where there is a reason
    columns: Counts  # (n,) the encoded column of each place
    categories: Vector | None  # (n,) the hash of a table's category that each place is of, NaN where it is of none
    reason: str | None  # why there are no weights, if there are none


def copy_weights(view: LearnerView, position: int) -> Weights:
    """A copy of the weights of a view, at rest; one array is copied. O(columns met)."""
    scorer = view.scorer
    reason = _lacking(view)
    if reason is not None:
        return Weights(position, scorer.config, None, np.empty(0), np.empty(0, dtype=np.int64), None, reason)
    columns = scorer.columns.sources().copy()
    weights = scorer.weights.w[: len(columns)].copy()
    categories = _categories(scorer.columns) if isinstance(scorer.columns, OneHot) else None
    return Weights(position, scorer.config, float(scorer.weights.bias[0]), weights, columns, categories, None)


def rank_weights(weights: Weights, top: int, names: FeatureNames) -> dict[str, Any]:
    """The reply: the `top` weights that are largest by their absolute value, ties in the order of the columns.

    Those of hashed columns are looked for from now on. O(columns + top log top).
    """
    size = np.nan_to_num(np.abs(weights.values), nan=np.inf)
    told = np.arange(len(size))
    if top < len(size):
        told = np.flatnonzero(size >= np.partition(size, -top)[-top])  # with all that tie with the last
    told = told[np.argsort(-size[told], kind="stable")][:top]
    places = told.tolist()
    keys = [_hashed(weights, place) for place in places]
    asked = iter(names.asked([key for key in keys if key is not None]))
    known = [None if key is None else next(asked) for key in keys]
    layout = _layout(weights, places)
    found = []
    for place, otherwise, one in zip(places, layout, known, strict=True):
        name, sign = one or (otherwise, 1.0)
        found.append({"name": name, "weight": _finite(sign * float(weights.values[place]))})
    return {
        "position": weights.position,
        "intercept": None if weights.intercept is None else _finite(weights.intercept),
        "weights": found,
        "total": len(weights.values),
        "unnamed": sum(key is not None and one is None for key, one in zip(keys, known, strict=True)),
        "reason": weights.reason,
    }


def _lacking(view: LearnerView) -> str | None:
    """Why a learner scores by no weights of features, if it does not."""
    scorer = view.scorer
    algorithm = scorer.config.algorithm
    if scorer.embedding is not None or scorer.config.embedding.kind != "none":
        kind = scorer.config.embedding.kind
        return f"{algorithm} scores behind a {kind} embedding: its weights are of components, not of features"
    if not scorer.has_model:
        return f"{view.not_ready or 'there is no model yet'}: there is no model to have weights"
    if scorer.weights.w.ndim > 1:
        return f"{algorithm} tells ranks by {len(scorer.weights.w)} planes, each with weights of its own"
    return None


def _hashed(weights: Weights, place: int) -> Key | None:
    """By what the column of a place is known where its name is hashed."""
    column = int(weights.columns[place])
    if weights.categories is None:
        return column if isinstance(weights.config.features, Named) else None
    category = float(weights.categories[place])
    return None if math.isnan(category) else (column, category)


def _layout(weights: Weights, places: list[int]) -> list[str]:
    """What the column of each place is called where it has no name of a feature."""
    features = weights.config.features
    if isinstance(features, Table):
        layout = [name for field in features.fields for name in _field_names(field)]
        return [layout[place] for place in places]
    encoded = weights.columns[places].tolist()
    if isinstance(features, Named):
        return [f"column {column}" for column in encoded]
    return features.names(None, encoded)


def _field_names(field: Field) -> list[str]:
    """The columns of one field of a table, in their order."""
    if field.kind == "numeric":
        return [field.name, f"{field.name} (missing)"]
    return [*(f"{field.name} (category {k})" for k in range(1, field.categories + 1)), f"{field.name} (others)"]


def _categories(columns: OneHot) -> Vector:
    """The hash of the category of each column of a table; NaN of numbers, and of columns that no category has yet."""
    found = []
    slot = 0
    for field, copy_weights in zip(columns.table.fields, columns.taken.tolist(), strict=True):
        own = np.full(field.width, math.nan)
        if field.kind == "categorical":
            own[:copy_weights] = columns.values[slot : slot + copy_weights]
            slot += field.categories
        found.append(own)
    return np.concatenate(found)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
