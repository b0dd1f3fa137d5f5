"""How the papers scale their features. What depends on the data is taken from the training rows alone."""

from __future__ import annotations

from typing import Literal

import numpy as np

from learners.numerics.arrays import Rows, Sparse, Vector

__all__ = ["WORDS", "Kind", "scaled"]

Kind = Literal["none", "unit", "range", "zero-one", "standard"]

WORDS: dict[Kind, str] = {
    "none": "as they are",
    "unit": "at unit L2 norm",
    "range": "each column in [-1, 1]",
    "zero-one": "each column in [0, 1]",
    "standard": "standardised by column",
}


def scaled(kind: Kind, train: Rows, test: Rows, dim: int) -> tuple[Rows, Rows]:
    """Both parts; constant columns become 0.

    Sparse rows stay sparse: "range" and "zero-one" only divide by each column's largest magnitude, and "standard"
    raises ValueError.
    """
    if kind == "none":
        return train, test
    if kind == "unit":
        return _unit(train), _unit(test)
    if isinstance(train, Sparse) or isinstance(test, Sparse):
        assert isinstance(train, Sparse)
        assert isinstance(test, Sparse)
        if kind == "standard":
            raise ValueError("sparse rows cannot be standardised: they would no longer be sparse")
        largest = np.zeros(dim)
        np.maximum.at(largest, train.indices, np.abs(train.data))
        factor = _inverse(largest)
        return (
            train._replace(data=train.data * factor[train.indices]),
            test._replace(data=test.data * factor[test.indices]),
        )
    if kind == "standard":
        centre, factor = train.mean(axis=0), _inverse(train.std(axis=0))
    else:
        low, high = train.min(axis=0), train.max(axis=0)
        centre, factor = (low, _inverse(high - low)) if kind == "zero-one" else ((low + high) / 2, _inverse(high - low))
        if kind == "range":
            factor = 2 * factor
    return (train - centre) * factor, (test - centre) * factor


def _unit(rows: Rows) -> Rows:
    if not isinstance(rows, Sparse):
        lengths: Vector = np.sqrt((rows * rows).sum(axis=1))
        return np.asarray(rows * _inverse(lengths)[:, None])
    owner = np.repeat(np.arange(len(rows.indptr) - 1), np.diff(rows.indptr))
    squares = np.bincount(owner, rows.data * rows.data, minlength=len(rows.indptr) - 1)
    return rows._replace(data=rows.data * _inverse(np.sqrt(squares))[owner])


def _inverse(x: Vector) -> Vector:
    """1 / x, and 0 where x is 0 but for rounding."""
    positive = x > 1e-12
    inverse: Vector = np.where(positive, 1.0 / np.where(positive, x, 1.0), 0.0)
    return inverse
