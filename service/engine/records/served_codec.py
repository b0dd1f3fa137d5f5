"""Encodes served events: the data that a store keeps of an event until its label arrives.

    MessagePack: [version, score, probability, threshold, decision, cost, position, numbers, columns, features]

`numbers` are the little-endian float64 values of the event's encoded row. `columns` are the uint32 columns of a sparse
one, or int64 if some are entries of fields. `features` are what the event carried, as JSON, if the learner keeps them.
With segment fields a last member follows: the event's value of each field, or a negative code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np

from learners import Predictions
from learners.numerics import Counts, Rows, Sparse, Vector
from learners.segments import SegmentColumns
from service.engine.records.codec import NOT_READABLE, pack_indices
from service.errors import Damaged
from service.storage import ServedEvent
from service.wire import finite_or_none, iso_time

__all__ = ["ServedColumns", "pack_features", "pack_served", "served_document", "unpack_served"]

_VERSION = 1
_MAX_FEATURES = 2**16  # bytes of an event's features; longer ones are not kept


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
    features: bytes | None = None  # earlier releases do not write it


class _SegmentedEvent(_PackedEvent, array_like=True, forbid_unknown_fields=True):
    segment_values: dict[str, str | int] | None = None


class ServedColumns(NamedTuple):
    """n served events: their encoded rows and predictions."""

    rows: Rows
    scores: Vector
    probabilities: Vector
    thresholds: Vector
    decisions: Counts
    costs: Vector
    positions: Counts  # of the log, at which they were scored
    features: list[bytes | None]  # n of them, as JSON; None: not kept
    segment_values: SegmentColumns | None  # None: no event has any


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_SegmentedEvent)


def pack_served(
    rows: Rows,
    scores: Predictions,
    costs: Vector | None,
    position: int,
    features: Sequence[bytes | None] | None = None,
    segment_values: SegmentColumns | None = None,
) -> list[bytes]:
    """Encode n events that were scored at `position`; `features`: those to be kept, by `pack_features`. O(numbers)."""
    n = len(scores.scores)
    nan = [float("nan")] * n
    columns: list[bytes | None] = [None] * n
    if isinstance(rows, Sparse):
        ends, data, indices = rows.indptr.tolist(), rows.data.astype("<f8"), pack_indices(rows.indices)
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
        [None] * n if features is None else features,
        strict=True,
    )
    members = [
        (_VERSION, score, probability, threshold, decision, cost, position, values, event_columns, carried)
        for score, probability, threshold, decision, cost, values, event_columns, carried in events
    ]
    if segment_values is None:
        return [_encoder.encode(_PackedEvent(*event)) for event in members]
    return [_encoder.encode(_SegmentedEvent(*event, segment_values.event(i))) for i, event in enumerate(members)]


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
        columns = [_columns(event) for event in events]
        indptr = np.zeros(len(events) + 1, dtype=np.int64)
        np.cumsum([len(values) for values in numbers], out=indptr[1:])
        indices = np.concatenate([*columns, np.empty(0, dtype=np.int64)])
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
        np.array([event.position for event in events], dtype=np.int64),
        [event.features for event in events],
        SegmentColumns.gather([event.segment_values for event in events]),
    )


def served_document(event: ServedEvent, columns: ServedColumns, place: int) -> dict[str, Any]:
    """Describe a served event by its columns at a place: when and how it was scored."""
    return {
        "id": event.id,
        "time": event.time,
        "time_iso": iso_time(event.time),
        "position": int(columns.positions[place]),
        "score": finite_or_none(columns.scores[place]),
        "probability": finite_or_none(columns.probabilities[place]),
        "threshold": finite_or_none(columns.thresholds[place]),
        "decision": int(columns.decisions[place]),
    }


def pack_features(features: Any) -> bytes | None:
    """Encode what an event carried, to be kept; None if that is too large."""
    packed = msgspec.json.encode(features, enc_hook=lambda value: value.tolist())  # of NumPy's arrays and scalars
    return packed if len(packed) <= _MAX_FEATURES else None


def _is_complete(event: _PackedEvent, sparse: bool) -> bool:
    """Tell whether a row has complete numbers, and if sparse a column for each."""
    count, rest = divmod(len(event.numbers), 8)
    if rest or event.columns is None:
        return not rest and not sparse
    return sparse and len(event.columns) in (4 * count, 8 * count)


def _columns(event: _PackedEvent) -> Counts:
    data = event.columns or b""
    return np.frombuffer(data, dtype="<i8" if len(data) == len(event.numbers) else "<u4").astype(np.int64)
