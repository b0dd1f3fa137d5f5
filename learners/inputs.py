"""Arguments of the Python API: checks arrays and lists, and turns them into a batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from learners.config import Config
from learners.features import MAX_PROBLEMS, SparseColumns, as_array
from learners.numerics import Rows, Sparse, Vector, length
from learners.records import LabelledBatch
from learners.settings import InvalidInput, Problem, length_mismatch, show
from rarestream.values import EARLIEST_TIME, LATEST_TIME, id_text, parse_time, plain_times

__all__ = ["MAX_TIME", "MAX_WEIGHT", "encode_features", "read_batch"]

MAX_WEIGHT = 1e6  # of an event
MAX_TIME = 1e12  # seconds since the epoch, either way: of records
_TIME_WORDS = "seconds since the epoch or an ISO 8601 time, from 1980 to 2100 (no counter of hours or rows)"


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
    ids: Sequence[Any] | None = None,
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
    try:
        plain = plain_times(times)
    except (TypeError, ValueError):  # no list, ragged, or with values that are no times
        plain = []
    if len(plain) != n or (isinstance(plain, np.ndarray) and plain.ndim != 1):
        raise InvalidInput([Problem("/times", f"is {show(times)}; expected {n} times, or NaN")])
    if isinstance(plain, np.ndarray):
        seconds = plain.astype(np.float64)
    else:
        seconds = np.array([_second(value) for value in plain], dtype=np.float64)
    bad = np.flatnonzero((seconds < EARLIEST_TIME) | (seconds > LATEST_TIME))
    if len(bad):
        values = plain.tolist() if isinstance(plain, np.ndarray) else plain
        raise InvalidInput(
            [Problem.mismatch(f"/times/{i}", values[i], _TIME_WORDS) for i in bad[:MAX_PROBLEMS].tolist()]
        )
    return seconds


def _second(value: Any) -> float:
    """Return the seconds of a plain time, NaN without one, and infinity if it is none."""
    if value is None or isinstance(value, str):
        seconds = math.nan if value is None else parse_time(value)
        return math.inf if seconds is None else seconds
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number else math.inf


def _ids(ids: Sequence[Any], n: int) -> tuple[str | None, ...]:
    if isinstance(ids, str) or len(ids) != n:
        raise InvalidInput([Problem("/ids", f"expected {n} strings, whole numbers or nulls")])
    problems: list[Problem] = []
    texts: list[str | None] = []
    for i, value in enumerate(ids):
        try:
            texts.append(id_text(value))
        except ValueError as error:
            problems.append(Problem(f"/ids/{i}", str(error)))
    if problems:
        raise InvalidInput(problems[:MAX_PROBLEMS])
    return tuple(texts)
