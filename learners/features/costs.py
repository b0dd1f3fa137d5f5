"""What a miss of each event costs, read from a field that the events carry: for the threshold objective `cost`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from learners.features.base import MAX_PROBLEMS, Dense, Features, SparseColumns
from learners.features.named import MAX_NAME, Named, Table
from learners.numerics import Vector
from learners.settings import InvalidInput, Problem, pointer, show

__all__ = ["MAX_COST", "costs_of", "futile", "misfit"]

MAX_COST = 1e15


def misfit(features: Features, field: str) -> str | None:
    """Why `field` cannot name what a miss costs where events carry such features; None where it can."""
    if isinstance(features, (Dense, SparseColumns)):
        if not field.isascii() or not field.isdecimal() or int(field) >= features.dim:
            return f"is {show(field)}; expected the number of a column, from 0 to {features.dim - 1}"
    elif isinstance(features, Table):
        numeric = [one.name for one in features.fields if one.kind != "categorical"]
        if field not in numeric:
            return f"is {show(field)}; expected one of the numeric fields: {', '.join(numeric)[:300]}"
    return None


def futile(features: Features, field: str) -> str | None:
    """Why no event that is meant so carries what a miss costs under `field`; None where it may.

    Hashed features declare only what numbers and texts mean: of any other name the events themselves tell.
    """
    if isinstance(features, Named):
        if len(field) > MAX_NAME:
            return f"has {len(field)} characters; expected at most {MAX_NAME}"
        for kind, fields in (("text", features.text), ("categorical", features.categorical)):
            if field in fields:
                return f"is {show(field)}, which is declared as {kind}; expected a feature whose numbers are amounts"
    return None


def costs_of(features: Features, field: str, values: Any) -> Vector:
    """The field of each of n events, (n,), from what they carry, which `Features.encode` has let through.

    `values` is a list of that, or a (n, dim) array, or a scipy sparse matrix.

    A column that a sparse event does not have is 0. Raises `InvalidInput` with a pointer to each that is missing, is no
    number, or is not from 0 to 1e15.
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
            where, found = f"/{i}/{field}", carried[int(field)]
        elif isinstance(features, SparseColumns) and not isinstance(carried, np.ndarray):
            indices, numbers = carried
            at = [k for k, index in enumerate(indices) if index == int(field)]
            where, found = f"/{i}/values/{at[0] if at else ''}", numbers[at[0]] if at else 0
        else:
            assert isinstance(carried, Mapping)
            where, found = f"/{i}{pointer(field)}", carried.get(field)
        if not isinstance(found, (int, float, np.number)) or isinstance(found, bool) or not 0 <= found <= MAX_COST:
            what = "is missing" if found is None else f"is {show(found)}"
            problems.append(Problem(where, f"{what}; expected a number from 0 to 1e15: the cost of a miss"))
            if len(problems) == MAX_PROBLEMS:
                break
            continue
        costs[i] = found
    if problems:
        raise InvalidInput(problems)
    return costs
