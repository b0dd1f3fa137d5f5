"""The weights that a learner scores by, largest first, by the names of their features.

    score(x) = intercept + sum_j weight_j x_j

x are the features *as scored*: encoded, and scaled as the learner's `scaling` says. So under standard scaling a weight
is what the score moves by for one standard deviation of the feature, under maxabs for the largest value met, and with
none for one unit of the number itself (of its logarithm, where that is taken). An indicator is 0 or 1, and not scaled.

    dense    `x[3]`; sparse: `[7]`, as in `indices`
    table    `amount`; `amount (missing)`, what it moves by where the number is not there; of a categorical field
             `country (category 1)` and so on, in the order in which they first appeared, and `country (others)`: the
             categories' own names are kept nowhere
    named    `amount`, where the field is declared as one whose log is taken; else `column 4711`, as the names of hashed
             features are kept nowhere. The weight of a column is that of the hashed feature, whose sign is the hash's:
             `/predict?explain=` names the features of an event, and tells what each contributes
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from learners.arrays import Counts, Vector
from learners.config import Config
from learners.features import Features
from learners.hashing import hash_strings
from learners.named import Named, Table
from learners.scorer import View

__all__ = ["MAX_TOP", "Weights", "largest", "taken"]

MAX_TOP = 1000


class Weights(NamedTuple):
    """A copy of what a learner scores by, at one position."""

    position: int
    config: Config
    intercept: float | None
    values: Vector  # (n,) by place; none where there is a reason
    columns: Counts  # (n,) the encoded column of each place
    reason: str | None  # why there are no weights, if there are none


def taken(view: View, position: int) -> Weights:
    """A copy of the weights of a view, at rest; one array is copied. O(columns met)."""
    scorer = view.scorer
    reason = _lacking(view)
    if reason is not None:
        return Weights(position, scorer.config, None, np.empty(0), np.empty(0, dtype=np.int64), reason)
    columns = scorer.columns.sources().copy()
    weights = scorer.weights.w[: len(columns)].copy()
    return Weights(position, scorer.config, float(scorer.weights.bias[0]), weights, columns, None)


def largest(weights: Weights, top: int) -> dict[str, Any]:
    """The reply: the `top` weights that are largest by their absolute value, ties in the order of the columns.

    O(columns + top log top).
    """
    size = np.nan_to_num(np.abs(weights.values), nan=np.inf)
    told = np.arange(len(size))
    if top < len(size):
        told = np.flatnonzero(size >= np.partition(size, -top)[-top])  # with all that tie with the last
    told = told[np.argsort(-size[told], kind="stable")][:top]
    named = _named(weights.config.features, weights.columns, told.tolist())
    found = [
        {"name": name, "weight": _finite(sign * float(weights.values[place]))}
        for (name, sign), place in zip(named, told.tolist(), strict=True)
    ]
    return {
        "position": weights.position,
        "intercept": None if weights.intercept is None else _finite(weights.intercept),
        "weights": found,
        "total": len(weights.values),
        "reason": weights.reason,
    }


def _lacking(view: View) -> str | None:
    """Why a learner scores by no weights of features, if it does not."""
    scorer = view.scorer
    algorithm = scorer.config.algorithm
    if scorer.embedding is not None or scorer.config.embedding.kind != "none":
        kind = scorer.config.embedding.kind
        return f"{algorithm} scores behind a {kind} embedding: its weights are of components, not of features"
    if not scorer.says:
        return f"{view.not_ready or 'there is no model yet'}: there is no model to have weights"
    if scorer.weights.w.ndim > 1:
        return f"{algorithm} tells ranks by {len(scorer.weights.w)} planes, each with weights of its own"
    return None


def _named(features: Features, columns: Counts, places: Sequence[int]) -> list[tuple[str, float]]:
    """What the weight of each place is called, and the sign that it has to be told with."""
    if isinstance(features, Table):
        layout = [name for field in features.fields for name in _field_names(field.name, field.kind, field.categories)]
        return [(layout[place], 1.0) for place in places]
    encoded = columns[list(places)].tolist()
    if isinstance(features, Named):
        known = _hashed(features)
        return [known.get(column, (f"column {column}", 1.0)) for column in encoded]
    return [(name, 1.0) for name in features.names(None, encoded)]


def _field_names(name: str, kind: str, categories: int) -> list[str]:
    """The columns of one field of a table, in their order."""
    if kind == "numeric":
        return [name, f"{name} (missing)"]
    return [*(f"{name} (category {k})" for k in range(1, categories + 1)), f"{name} (others)"]


def _hashed(features: Named) -> dict[int, tuple[str, float]]:
    """The columns of the numbers that are declared, by their names, with the sign of their hash.

    One that two of them share cannot be told apart, and is left out.
    """
    names = [name for name in features.log if name not in features.categorical]
    hashes = hash_strings(names)
    found: dict[int, tuple[str, float]] = {}
    shared: set[int] = set()
    for name, hashed in zip(names, hashes.tolist(), strict=True):
        column = hashed & (features.columns - 1)
        if column in found:
            shared.add(column)
        found[column] = (name, -1.0 if hashed >> 63 else 1.0)
    return {column: named for column, named in found.items() if column not in shared}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
