"""Random streams, and running an algorithm over them in pieces."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learners.algorithms.base import initial
from learners.numerics.arrays import Matrix, Rows, Sparse, Vector
from learners.numerics.float32 import Precision

Stream = tuple[Matrix, Vector]


def stream(n: int, dim: int, seed: int, *, share: float = 0.3, gap: float = 1.0, density: float = 1.0) -> Stream:
    """Rows (n, dim) and labels: `share` of positives, the classes' means `gap` apart in each column."""
    random = np.random.default_rng(seed)
    y = np.where(random.random(n) < share, 1.0, -1.0)
    X = random.normal(size=(n, dim)) + 0.5 * gap * y[:, None]
    X[random.random((n, dim)) >= density] = 0.0
    return X, y


def as_sparse(X: Matrix) -> Sparse:
    """Return the rows without their zeros."""
    row, column = np.nonzero(X)
    counts = np.bincount(row, minlength=len(X))
    return Sparse(X[row, column], column.astype(np.int64), np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))


def piece(rows: Rows, start: int, stop: int) -> Rows:
    """Rows from `start` up to `stop`, as arrays of their own."""
    if not isinstance(rows, Sparse):
        return rows[start:stop].copy()
    indptr = rows.indptr[start : stop + 1]
    inner = slice(int(indptr[0]), int(indptr[-1]))
    return Sparse(rows.data[inner].copy(), rows.indices[inner].copy(), indptr - indptr[0])


def columns(rows: Rows) -> int:
    """Return a dimension for the rows: for sparse rows a multiple of 8, as from the column map."""
    if isinstance(rows, Sparse):
        return 8 * (1 + int(rows.indices.max(initial=0)) // 8)
    return rows.shape[1]


def run(
    algorithm: Any,
    params: Any,
    rows: Rows,
    y: Vector,
    *,
    weight: Vector | None = None,
    cuts: Sequence[int] = (),
    dim: int | None = None,
    seed: int = 0,
    precision: Precision = "float64",
) -> tuple[Any, Vector]:
    """Learn a stream in pieces with ends at `cuts`; return the state and the prequential scores (or values)."""
    state = initial(algorithm, params, columns(rows) if dim is None else dim, seed, precision)
    weight = np.ones(len(y)) if weight is None else weight
    scores = values(algorithm, params, state, len(y))
    for start, stop in pairwise([0, *sorted(cuts), len(y)]):
        state = algorithm.learn(
            params,
            state,
            piece(rows, start, stop),
            y[start:stop].copy(),
            weight[start:stop].copy(),
            scores[start:stop],
        )
    return state, scores


def values(algorithm: Any, params: Any, state: Any, n: int) -> Matrix:
    """Room for what `learn` says of n events: (n,), or (n, planes) of an ordinal algorithm."""
    shape = (n, len(algorithm.weights(params, state).w)) if algorithm.TRAITS.ordinal else (n,)
    return np.full(shape, np.nan)


def labels_for(algorithm: Any, y: Vector) -> Vector:
    """Labels -1 and +1 as the algorithm takes them: for an ordinal one the low and the high ranks of five in turn."""
    if not algorithm.TRAITS.ordinal:
        return y
    turn = np.arange(len(y))
    return np.where(y > 0, 4.0 + turn % 2, 1.0 + turn % 3)


def same_bits(a: Any, b: Any) -> bool:
    """Whether two states hold the same arrays, to the bit."""
    return all(
        x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes() for x, y in zip(a, b, strict=True)
    )


def auc(scores: Vector, y: Vector) -> float:
    """Share of pairs with unequal labels whose scores are in the same order, ties counting half."""
    higher = y[:, None] > y[None, :]
    difference: NDArray[np.float64] = (scores[:, None] - scores[None, :])[higher]
    return float(np.mean((difference > 0) + 0.5 * (difference == 0)))
