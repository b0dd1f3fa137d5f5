"""What an algorithm is: a module of this package that holds Params, State, init, learn and weights; nothing else.

The catalogue finds it by its file: `learners/cbr_diag.py` is the algorithm "cbr-diag". A state is a NamedTuple of
arrays only, so that saving, hashing and comparing it is one generic function for all algorithms.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from learners.arrays import Rows, Sparse, Vector, dot
from learners.jit import kernel
from learners.parameters import Parameters

__all__ = ["Algorithm", "Linear", "grown", "linear_scores"]


class Linear(NamedTuple):
    """What scoring needs of a linear algorithm: score = w.x + bias[0]."""

    w: Vector  # (dim,)
    bias: Vector  # (1,)


class Algorithm(Protocol):
    """The contract. `state` is whatever NamedTuple of arrays `init` returns.

    Attributes
    ----------
    Params
        The parameters: a frozen dataclass derived from `Parameters`, each field made by `param`.
    State
        The state: a NamedTuple of arrays.
    DENSE, SPARSE
        Which kinds of rows `learn` takes. An algorithm that takes sparse rows also has `grow`.
    MAX_DIM
        The largest dimension that it can be created with (memory and time of its state).
    POSTERIOR
        True where the score is a log-odds, so that sigmoid(score) is already a probability.
    """

    Params: type[Parameters]
    State: type[Any]
    DENSE: bool
    SPARSE: bool
    MAX_DIM: int
    POSTERIOR: bool

    def init(self, params: Any, dim: int, seed: int) -> Any:
        """The state before any event. Its arrays depend on nothing but the arguments."""
        ...

    def learn(self, params: Any, state: Any, rows: Rows, y: Vector, weight: Vector, scores: Vector) -> Any:
        """Score each row, then learn from it, in order; fill `scores` (n,) and return the state.

        The arrays of `state` change in place (an array may be replaced by a longer one, hence the return); `rows`,
        `y` and `weight` are not written to. `y` is -1 or +1. `weight` (n,), at least 0, multiplies the step that an
        event makes: 1 is the paper's update, 0 counts the event in class counts, means and buffers without moving
        the model. The result is bitwise the same however a stream is cut into calls.
        """
        ...

    def grow(self, params: Any, state: Any, dim: int) -> Any:
        """The state for `dim` columns instead of the fewer it has: new columns as `init` makes them."""
        ...

    def weights(self, params: Any, state: Any) -> Linear:
        """What scoring needs: views of the live state, not copies."""
        ...


def grown(array: Vector, dim: int, fill: float = 0.0) -> Vector:
    """`array` (..., k) with its last axis extended to `dim` by `fill`."""
    out = np.full((*array.shape[:-1], dim), fill)
    out[..., : array.shape[-1]] = array
    return out


@kernel
def _dense_scores(X, w, bias, scores):  # type: ignore[no-untyped-def]
    for i in range(X.shape[0]):
        scores[i] = dot(X[i], w) + bias


@kernel
def _sparse_scores(data, indices, indptr, w, bias, scores):  # type: ignore[no-untyped-def]
    for i in range(indptr.shape[0] - 1):
        total = 0.0
        for k in range(indptr[i], indptr[i + 1]):
            if indices[k] >= 0:  # -1: a column that was never met
                total += data[k] * w[indices[k]]
        scores[i] = total + bias


def linear_scores(weights: Linear, rows: Rows) -> Vector:
    """The score of each row, (n,)."""
    if isinstance(rows, Sparse):
        scores = np.empty(len(rows.indptr) - 1)
        _sparse_scores(rows.data, rows.indices, rows.indptr, weights.w, weights.bias[0], scores)
        return scores
    scores = np.empty(len(rows))
    _dense_scores(rows, weights.w, weights.bias[0], scores)
    return scores
