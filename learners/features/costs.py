"""Read the cost of missing each event from one of its fields, for the threshold objective `cost`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from learners.features.feature_kinds import MAX_PROBLEMS, Dense, Features, SparseColumns
from learners.features.named import MAX_NAME, Named, Table
from learners.features.value_rule import ValueKind, read_declared, value_of
from learners.numerics import Vector
from learners.settings import InvalidInput, Problem, pointer, show

__all__ = ["MAX_COST", "costs_of", "futile", "misfit"]

MAX_COST = 1e15


def misfit(features: Features, field: str) -> str | None:
    """Explain why `field` cannot be a cost with these features; None if it can."""
    if isinstance(features, (Dense, SparseColumns)):
        if not field.isascii() or not field.isdecimal() or int(field) >= features.dim:
            return f"is {show(field)}; expected the number of a column, from 0 to {features.dim - 1}"
    elif isinstance(features, Table):
        numeric = [declared.name for declared in features.fields if declared.kind != "categorical"]
        if field not in numeric:
            return f"is {show(field)}; expected one of the numeric fields: {', '.join(numeric)[:300]}"
    return None


def futile(features: Features, field: str) -> str | None:
    """Explain why no event can have its cost in `field` of hashed features; None if one can.

    Hashed features declare only the meaning of numbers and texts. Other names are known only from events.
    """
    if isinstance(features, Named):
        if len(field) > MAX_NAME:
            return f"has {len(field)} characters; expected at most {MAX_NAME}"
        for kind, fields in (("text", features.text), ("categorical", features.categorical)):
            if field in fields:
                return f"is {show(field)}, which is declared as {kind}; expected a feature whose numbers are amounts"
    return None


def costs_of(features: Features, field: str, values: Any) -> Vector:
    """Read the cost of each of n events, (n,), from features that `Features.encode` accepted.

    `values` is a list of features, an (n, dim) array, or a scipy sparse matrix. A column that a sparse event lacks is
    0.
    Raises `InvalidInput` with a pointer to each cost that is missing, no number, or not from 0 to 1e15. O(n).
    """
    if hasattr(values, "tocsc"):
        values = values.tocsc()[:, [int(field)]].toarray()
        field = "0"
    if isinstance(values, np.ndarray) and values.dtype.kind in "fiu":
        column: Vector = values[:, int(field)].astype(np.float64)
        if bool(((column >= 0) & (column <= MAX_COST)).all()):
            return column
    costs = np.zeros(len(values))
    problems: list[Problem] = []
    for i, carried in enumerate(values):
        if isinstance(features, Dense) or isinstance(carried, np.ndarray):
            where, cost = f"/{i}/{field}", carried[int(field)]
        elif isinstance(features, SparseColumns) and not isinstance(carried, np.ndarray):
            indices, numbers = carried
            at = [k for k, index in enumerate(indices) if index == int(field)]
            where, cost = f"/{i}/values/{at[0] if at else ''}", numbers[at[0]] if at else 0
        else:
            assert isinstance(carried, Mapping)
            where, cost = f"/{i}{pointer(field)}", value_of(carried, field)
            if isinstance(cost, str):
                kind, number, _ = read_declared(cost)
                cost = number if kind in (ValueKind.WHOLE_TEXT, ValueKind.NUMBER_TEXT) else cost
        if not isinstance(cost, (int, float, np.number)) or isinstance(cost, bool) or not 0 <= cost <= MAX_COST:
            what = "is missing" if cost is None else f"is {show(cost)}"
            problems.append(Problem(where, f"{what}; expected a number from 0 to 1e15: the cost of a miss"))
            if len(problems) == MAX_PROBLEMS:
                break
            continue
        costs[i] = cost
    if problems:
        raise InvalidInput(problems)
    return costs
