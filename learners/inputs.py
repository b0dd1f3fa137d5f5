"""Arguments of the Python API: checks arrays and lists, and turns them into a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from learners.config import Config
from learners.features import SparseColumns, as_array
from learners.numerics import Rows, Sparse, Vector, length
from learners.records import LabelledBatch
from learners.settings import InvalidInput, Problem, length_mismatch, show

__all__ = ["MAX_TIME", "MAX_WEIGHT", "encode_features", "read_batch"]

MAX_WEIGHT = 1e6  # of an event
MAX_TIME = 1e12  # seconds since the epoch, either way


def encode_features(config: Config, X: Any) -> Rows:
    """Encode n events' features as columns; see `learners.features`. Raises `InvalidInput`."""
    if hasattr(X, "tocsr"):  # any scipy sparse matrix or array
        matrix = X.tocsr().astype(np.float64)
        matrix.sum_duplicates()
        features = config.features
        if not isinstance(features, SparseColumns) or matrix.shape[1:] != (features.dim,):
            raise InvalidInput(
                [Problem("", f"is a sparse matrix of shape {matrix.shape}, which this learner does not take")]
            )
        X = Sparse(matrix.data, matrix.indices.astype(np.int64), matrix.indptr.astype(np.int64))
    return config.encode(X)


def read_batch(
    config: Config,
    X: Any,
    y: Any,
    weights: Any = None,
    ids: Sequence[str | None] | None = None,
    times: Any = None,
) -> LabelledBatch:
    """Read n labelled events, as for `Learner.learn`. Raises `InvalidInput` with a pointer to what is wrong."""
    rows = encode_features(config, X)
    labels = config.labels.read(y)
    n = len(labels)
    if n != length(rows):
        raise InvalidInput([Problem("/labels", length_mismatch(n, length(rows)))])
    names = None if ids is None else _ids(ids, n)
    return LabelledBatch(
        rows,
        labels,
        _weights(weights, n),
        _times(times, n),
        names,
        costs=config.costs(X),
        fields=config.features.field_names(X),
        segment_values=config.segment_values(X),
    )


def _weights(weights: Any, n: int) -> Vector | None:
    if weights is None:
        return None
    w = as_array(weights)
    if w is None or w.dtype.kind not in "biuf" or w.shape != (n,) or not bool(((w >= 0) & (w <= MAX_WEIGHT)).all()):
        raise InvalidInput([Problem("/weights", f"is {show(weights)}; expected {n} numbers from 0 to {MAX_WEIGHT:g}")])
    return w.astype(np.float64)


def _times(times: Any, n: int) -> Vector | None:
    if times is None:
        return None
    seconds = as_array(times)
    if seconds is None or seconds.dtype.kind not in "iuf" or seconds.shape != (n,) or (abs(seconds) > MAX_TIME).any():
        raise InvalidInput(
            [Problem("/times", f"is {show(times)}; expected {n} numbers of seconds since the epoch, or NaN")]
        )
    return seconds.astype(np.float64)


def _ids(ids: Sequence[str | None], n: int) -> tuple[str | None, ...]:
    if len(ids) != n or not all(name is None or isinstance(name, str) for name in ids):
        raise InvalidInput([Problem("/ids", f"expected {n} strings or nulls")])
    return tuple(ids)
