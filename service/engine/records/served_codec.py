"""Encodes served events: the data that a store keeps of an event until its label arrives.

    MessagePack: [version, score, probability, threshold, decision, cost, position, numbers, columns]

`numbers` are the little-endian float64 values of the event's encoded row, `columns` the uint32 columns of a sparse one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import msgspec
import numpy as np

from learners import Predictions
from learners.numerics import Counts, Rows, Sparse, Vector
from service.engine.records.codec import NOT_READABLE
from service.errors import Damaged

__all__ = ["ServedColumns", "pack_served", "unpack_served"]

_VERSION = 1


class _PackedEvent(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    version: int
    score: float
    probability: float  # NaN for ordinal learners
    threshold: float
    decision: Annotated[int, msgspec.Meta(ge=0, le=127)]
    cost: float
    position: int
    numbers: bytes
    columns: bytes | None


class ServedColumns(NamedTuple):
    """n served events: their encoded rows and predictions."""

    rows: Rows
    scores: Vector
    probabilities: Vector
    thresholds: Vector
    decisions: Counts
    costs: Vector


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_PackedEvent)


def pack_served(rows: Rows, scores: Predictions, costs: Vector | None, position: int) -> list[bytes]:
    """Encode n events that were scored at `position`. O(numbers)."""
    n = len(scores.scores)
    nan = [float("nan")] * n
    columns: list[bytes | None] = [None] * n
    if isinstance(rows, Sparse):
        ends, data, indices = rows.indptr.tolist(), rows.data.astype("<f8"), rows.indices.astype("<u4")
        numbers = [data[ends[i] : ends[i + 1]].tobytes() for i in range(n)]
        columns = [indices[ends[i] : ends[i + 1]].tobytes() for i in range(n)]
    else:
        numbers = [row.tobytes() for row in np.ascontiguousarray(rows, dtype="<f8")]
    events = zip(
        scores.scores.tolist(),
        nan if scores.probabilities is None else scores.probabilities.tolist(),
        nan if scores.thresholds is None else scores.thresholds.tolist(),
        scores.decisions.tolist(),
        [1.0] * n if costs is None else costs.tolist(),
        numbers,
        columns,
        strict=True,
    )
    return [
        _encoder.encode(
            _PackedEvent(_VERSION, score, probability, threshold, decision, cost, position, values, event_columns)
        )
        for score, probability, threshold, decision, cost, values, event_columns in events
    ]


def unpack_served(packed: Sequence[bytes], like: Rows, what: str) -> ServedColumns:
    """Decode n events; `like` is any row of the learner's kind of features. Raises `Damaged`."""
    try:
        events = [_decoder.decode(data) for data in packed]
    except NOT_READABLE as error:
        raise Damaged(f"{what} is not readable: {error}") from error
    if any(event.version != _VERSION for event in events):
        raise Damaged(f"{what} has events served by another release")
    if not all(_is_complete(event, isinstance(like, Sparse)) for event in events):
        raise Damaged(f"{what} has incomplete rows")
    numbers = [np.frombuffer(event.numbers, dtype="<f8") for event in events]
    rows: Rows
    if isinstance(like, Sparse):
        columns = [np.frombuffer(event.columns or b"", dtype="<u4") for event in events]
        indptr = np.zeros(len(events) + 1, dtype=np.int64)
        np.cumsum([len(values) for values in numbers], out=indptr[1:])
        indices = np.concatenate([*columns, np.empty(0, dtype="<u4")]).astype(np.int64)
        rows = Sparse(np.concatenate([*numbers, np.empty(0)]), indices, indptr)
    elif any(len(values) != like.shape[1] for values in numbers):
        raise Damaged(f"{what} has rows of the wrong width")
    else:
        rows = np.array(numbers, dtype=np.float64).reshape(len(events), like.shape[1])
    return ServedColumns(
        rows,
        np.array([event.score for event in events], dtype=np.float64),
        np.array([event.probability for event in events], dtype=np.float64),
        np.array([event.threshold for event in events], dtype=np.float64),
        np.array([event.decision for event in events], dtype=np.int64),
        np.array([event.cost for event in events], dtype=np.float64),
    )


def _is_complete(event: _PackedEvent, sparse: bool) -> bool:
    """Tell whether a row has complete numbers, and if sparse a column for each."""
    count, rest = divmod(len(event.numbers), 8)
    if rest or event.columns is None:
        return not rest and not sparse
    return sparse and len(event.columns) == 4 * count
