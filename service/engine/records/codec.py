"""Records and snapshots as bytes: MessagePack behind a magic, a format version and a CRC. No pickle anywhere.

    "rare" | version u8 | kind u8 | CRC-32 u32 of what follows | MessagePack

An array is (dtype, shape, bytes), little-endian. If all numbers of events are float32, they are stored as float32, in
half the space, and read back as float64. Unreadable data raises `Damaged`, which says what is wrong.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Set
from functools import lru_cache, partial
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from learners import (
    ComparedBatch,
    Config,
    FitResult,
    GroupConfig,
    InvalidInput,
    LabelledBatch,
    LateColumns,
    Note,
    Rollback,
    Segment,
    ServedBatch,
    SettingsChange,
)
from learners.numerics import Sparse
from learners.segments import SegmentColumns
from service.errors import Damaged
from service.wire.kernels import narrowed

__all__ = [
    "NOT_READABLE",
    "Created",
    "Record",
    "Snapshot",
    "config_of",
    "pack_indices",
    "pack_record",
    "pack_snapshot",
    "unpack_record",
    "unpack_snapshot",
]

# errors of the MessagePack decoder; invalid UTF-8 and too deep nesting have their own
NOT_READABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_MAGIC = b"rare"
_VERSION = 1
_HEADER = struct.Struct("<4sBBI")
_CREATED, _BATCH, _RESTORED, _SNAPSHOT, _FITTED, _SERVED, _CHANGED, _COMPARED, _NOTED = range(1, 10)


class _StoredArray(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    dtype: str
    shape: list[int]
    data: bytes


class _BatchParts(msgspec.Struct, forbid_unknown_fields=True):
    labels: bytes  # int8: -1 or +1, or ranks
    x: _StoredArray | None = None
    data: _StoredArray | None = None
    indices: _StoredArray | None = None
    indptr: _StoredArray | None = None
    weights: _StoredArray | None = None
    times: _StoredArray | None = None
    ids: list[str | None] | None = None
    segments: list[tuple[int, int, str, int]] = []
    afters: list[int] | None = None  # of the segments; None if each equals its offset
    costs: _StoredArray | None = None
    late: dict[str, _StoredArray] | None = None


class _FieldBatchParts(_BatchParts, forbid_unknown_fields=True):
    fields: list[str] = []  # new ones; without any, the bytes are those of earlier versions


class _SegmentedBatchParts(_FieldBatchParts, forbid_unknown_fields=True):
    segment_fields: list[str] = []
    segment_values: list[str] = []
    segment_codes: _StoredArray | None = None


class _ServedParts(msgspec.Struct, forbid_unknown_fields=True):
    hashes: _StoredArray
    times: _StoredArray
    scores: _StoredArray
    decisions: bytes  # int8
    probabilities: _StoredArray | None = None
    thresholds: _StoredArray | None = None
    ready: bool = True


class _FieldServedParts(_ServedParts, forbid_unknown_fields=True):
    fields: list[str] = []


class _RestoredParts(msgspec.Struct, forbid_unknown_fields=True):
    position: int
    state: dict[str, _StoredArray]
    parts: dict[str, Any] | None = None


class _FittedParts(msgspec.Struct, forbid_unknown_fields=True):
    events: int
    restores: int
    dim: int
    arrays: dict[str, _StoredArray]


class _NoteParts(msgspec.Struct, forbid_unknown_fields=True):
    text: str
    time: float
    by: str | None = None
    key: str | None = None
    alarm: int | None = None


class _SnapshotParts(msgspec.Struct, forbid_unknown_fields=True):
    position: int
    config: msgspec.Raw
    state: dict[str, _StoredArray]


class Created(msgspec.Struct, frozen=True):
    """The first record of a log: the configuration of a learner or a group as JSON; see `config_of`.

    A copy of another learner has that one's `state`. Its record is a snapshot at position 1, so that the store has the
    complete copy or none.
    """

    config: dict[str, Any]
    state: dict[str, NDArray[np.generic]] | None = None


class Snapshot(msgspec.Struct, frozen=True):
    """The whole state of a learner or a group after the record at `position`."""

    position: int
    config: Config | GroupConfig
    state: dict[str, NDArray[np.generic]]


Record = Created | LabelledBatch | SettingsChange | ComparedBatch | FitResult | Rollback | ServedBatch | Note

_DTYPES = frozenset({"<f8", "<i8", "<u8", "<i4", "<u4", "|i1", "|u1", "|b1"})
_INTEGERS = frozenset({"<i8", "<u4"})
_WITH_SINGLES = _DTYPES | {"<f4"}
_encoder = msgspec.msgpack.Encoder()


def _frame(kind: int, body: bytes) -> bytes:
    return _HEADER.pack(_MAGIC, _VERSION, kind, zlib.crc32(body)) + body


def _unframe(data: bytes, what: str) -> tuple[int, memoryview]:
    if len(data) < _HEADER.size:
        raise Damaged(f"{what} is cut short: {len(data)} bytes")
    magic, version, kind, crc = _HEADER.unpack_from(data)
    body = memoryview(data)[_HEADER.size :]
    if magic != _MAGIC:
        raise Damaged(f"{what} is not a record or snapshot of rarestream")
    if version != _VERSION:
        raise Damaged(f"{what} has format version {version}; this release reads version {_VERSION}")
    if zlib.crc32(body) != crc:
        raise Damaged(f"{what} does not match its checksum")
    return kind, body


def _array(array: NDArray[np.generic] | None) -> _StoredArray | None:
    if array is None:
        return None
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return _StoredArray(little.dtype.str, list(array.shape), little.tobytes())


def _narrow(values: NDArray[np.float64]) -> NDArray[np.floating[Any]]:
    """Return the numbers as float32 if that is exact; see `narrowed`."""
    single = narrowed(np.ascontiguousarray(values))
    return values if single is None else single


def _wide(array: _StoredArray, what: str) -> NDArray[Any]:
    """Return the float64 numbers that `_narrow` took."""
    with np.errstate(invalid="ignore"):  # signalling NaNs of other writers
        return _numpy(array, what, _WITH_SINGLES).astype(np.float64, copy=False)


def _numpy(array: _StoredArray, what: str, dtypes: Set[str] = _DTYPES) -> NDArray[Any]:
    if array.dtype not in dtypes:
        raise Damaged(f"{what} has an array of unknown dtype {array.dtype!r}")
    dtype = np.dtype(array.dtype)
    if any(size < 0 for size in array.shape) or math.prod(array.shape) * dtype.itemsize != len(array.data):
        raise Damaged(f"{what} has an array whose size does not match its shape")
    # a writable copy: a read-only array would make numba compile each kernel a second time
    flat: NDArray[Any] = np.frombuffer(bytearray(array.data), dtype=dtype)
    try:
        return flat.reshape(array.shape)
    except (ValueError, OverflowError) as error:  # too many axes, or a huge axis beside one of length 0
        raise Damaged(f"{what} has an array of an impossible shape: {error}") from error


def pack_indices(indices: NDArray[np.int64]) -> NDArray[np.unsignedinteger[Any] | np.int64]:
    """Return columns, below 2^24, as uint32; entries of fields, which are larger, as they are."""
    return indices if indices.size and indices.max() >= 2**32 else indices.astype(np.uint32)


def _state_of(state: dict[str, _StoredArray], what: str) -> dict[str, NDArray[np.generic]]:
    """Return the arrays that `_state` packed."""
    return {name: _numpy(array, what, _WITH_SINGLES) for name, array in state.items()}


def _state(state: dict[str, NDArray[np.generic]]) -> dict[str, _StoredArray]:
    return {name: packed for name, array in state.items() if (packed := _array(array)) is not None}


def _batch_parts(batch: LabelledBatch) -> _BatchParts:
    kind: Any = partial(_FieldBatchParts, fields=list(batch.fields)) if batch.fields else _BatchParts
    if (columns := batch.segment_values) is not None:
        kind = partial(
            _SegmentedBatchParts,
            fields=list(batch.fields),
            segment_fields=list(columns.fields),
            segment_values=list(columns.values),
            segment_codes=_array(columns.codes),
        )
    parts: _BatchParts = kind(
        labels=batch.labels.astype(np.int8).tobytes(),
        weights=_array(batch.weights),
        times=_array(batch.times),
        ids=None if batch.ids is None else list(batch.ids),
        segments=[(segment.start, segment.stop, segment.name, segment.offset) for segment in batch.segments],
        afters=[segment.after for segment in batch.segments]
        if any(segment.after != segment.offset for segment in batch.segments)
        else None,
        costs=_array(batch.costs),
        late=None if batch.late is None else _state(batch.late._asdict()),
    )
    rows = batch.rows
    if isinstance(rows, Sparse):
        parts.data, parts.indptr = _array(_narrow(rows.data)), _array(rows.indptr)
        parts.indices = _array(pack_indices(rows.indices))
    else:
        parts.x = _array(_narrow(rows))
    return parts


def _batch(parts: _SegmentedBatchParts, what: str) -> LabelledBatch:
    def floats(array: _StoredArray | None) -> NDArray[np.float64] | None:
        return None if array is None else _numpy(array, what)

    labels = np.frombuffer(parts.labels, dtype=np.int8).astype(np.float64)
    if parts.x is not None:
        rows: Any = _wide(parts.x, what)
    elif parts.data is not None and parts.indices is not None and parts.indptr is not None:
        if parts.indices.dtype not in _INTEGERS:
            raise Damaged(f"{what} has columns that are not integers")
        indices = _numpy(parts.indices, what).astype(np.int64)
        rows = Sparse(_wide(parts.data, what), indices, _numpy(parts.indptr, what))
    else:
        raise Damaged(f"{what} has no features")
    afters = [segment[3] for segment in parts.segments] if parts.afters is None else parts.afters
    if len(afters) != len(parts.segments):
        raise Damaged(f"{what} has malformed sources")
    segments = tuple(Segment(*segment, after) for segment, after in zip(parts.segments, afters, strict=True))
    ids = None if parts.ids is None else tuple(parts.ids)
    late = None
    if parts.late is not None:
        if set(parts.late) != set(LateColumns._fields):
            raise Damaged(f"{what} has malformed late labels")
        late = LateColumns(**{name: _numpy(column, what) for name, column in parts.late.items()})
    return LabelledBatch(
        rows,
        labels,
        floats(parts.weights),
        floats(parts.times),
        ids,
        segments,
        floats(parts.costs),
        late,
        tuple(parts.fields),
        None
        if parts.segment_codes is None
        else SegmentColumns(
            tuple(parts.segment_fields), tuple(parts.segment_values), _numpy(parts.segment_codes, what)
        ),
    )


def _served_parts(served: ServedBatch) -> _ServedParts:
    kind: Any = partial(_FieldServedParts, fields=list(served.fields)) if served.fields else _ServedParts
    parts: _ServedParts = kind(
        **_state({"hashes": served.hashes, "times": served.times, "scores": served.scores}),
        decisions=served.decisions.astype(np.int8).tobytes(),
        probabilities=_array(served.probabilities),
        thresholds=_array(served.thresholds),
        ready=served.ready,
    )
    return parts


def _served(parts: _FieldServedParts, what: str) -> ServedBatch:
    return ServedBatch(
        _numpy(parts.hashes, what),
        _numpy(parts.times, what),
        _numpy(parts.scores, what),
        np.frombuffer(parts.decisions, dtype=np.int8).astype(np.int64),
        None if parts.probabilities is None else _numpy(parts.probabilities, what),
        None if parts.thresholds is None else _numpy(parts.thresholds, what),
        parts.ready,
        tuple(parts.fields),
    )


def pack_record(record: Record) -> bytes:
    """Encode a record. O(bytes)."""
    if isinstance(record, Created):
        if record.state is not None:
            return _snapshot(1, record.config, record.state)
        return _frame(_CREATED, _encoder.encode(record.config))
    if isinstance(record, Rollback):
        restored = _RestoredParts(record.position, _state(record.state), record.parts)
        return _frame(_RESTORED, _encoder.encode(restored))
    if isinstance(record, ServedBatch):
        return _frame(_SERVED, _encoder.encode(_served_parts(record)))
    if isinstance(record, ComparedBatch):
        return _frame(_COMPARED, _encoder.encode(_state(vars(record))))
    if isinstance(record, SettingsChange):
        return _frame(_CHANGED, _encoder.encode(record.parts))
    if isinstance(record, Note):
        return _frame(_NOTED, _encoder.encode(_NoteParts(**vars(record))))
    if isinstance(record, FitResult):
        return _frame(
            _FITTED, _encoder.encode(_FittedParts(record.events, record.restores, record.dim, _state(record.arrays)))
        )
    return _frame(_BATCH, _encoder.encode(_batch_parts(record)))


def unpack_record(data: bytes, what: str) -> Record:
    """Decode a record; `what` names it in errors. Raises `Damaged`."""
    kind, body = _unframe(data, what)
    try:
        if kind == _CREATED:
            return Created(msgspec.msgpack.decode(body, type=dict[str, Any]))
        if kind == _SNAPSHOT:
            copied = msgspec.msgpack.decode(body, type=_SnapshotParts)
            if copied.position == 1:  # no other snapshot belongs in a log
                return Created(
                    msgspec.msgpack.decode(copied.config, type=dict[str, Any]), _state_of(copied.state, what)
                )
        if kind == _RESTORED:
            restored = msgspec.msgpack.decode(body, type=_RestoredParts)
            state = _state_of(restored.state, what)
            return Rollback(restored.position, state, restored.parts)
        if kind == _FITTED:
            fitted = msgspec.msgpack.decode(body, type=_FittedParts)
            arrays = _state_of(fitted.arrays, what)
            return FitResult(fitted.events, fitted.restores, fitted.dim, arrays)
        if kind == _SERVED:
            return _served(msgspec.msgpack.decode(body, type=_FieldServedParts), what)
        if kind == _CHANGED:
            return SettingsChange(msgspec.msgpack.decode(body, type=dict[str, Any]))
        if kind == _NOTED:
            return Note(**msgspec.structs.asdict(msgspec.msgpack.decode(body, type=_NoteParts)))
        if kind == _COMPARED:
            columns = msgspec.msgpack.decode(body, type=dict[str, _StoredArray])
            if set(columns) != set(ComparedBatch.__annotations__):
                raise Damaged(f"{what} is a malformed comparison")
            return ComparedBatch(**{name: _numpy(column, what) for name, column in columns.items()})
        if kind == _BATCH:
            return _batch(msgspec.msgpack.decode(body, type=_SegmentedBatchParts), what)
    except NOT_READABLE as error:
        raise Damaged(f"{what} is not readable: {error}") from error
    raise Damaged(f"{what} has the unknown kind {kind}")


def config_of(values: dict[str, Any]) -> Config | GroupConfig:
    """Return the stored configuration of a learner or of a group. Raises `InvalidInput`."""
    return GroupConfig.of(values) if "learners" in values else Config.of_stored(values)


def pack_snapshot(position: int, config: Config | GroupConfig, state: dict[str, NDArray[np.generic]]) -> bytes:
    """Encode a snapshot. O(bytes)."""
    return _snapshot(position, config.to_json(), state)


def _snapshot(position: int, config: dict[str, Any], state: dict[str, NDArray[np.generic]]) -> bytes:
    return _frame(
        _SNAPSHOT, _encoder.encode(_SnapshotParts(position, msgspec.Raw(_encoder.encode(config)), _state(state)))
    )


@lru_cache(maxsize=256)  # many learners share a configuration, which takes time and memory once
def _config(packed: bytes) -> Config | GroupConfig:
    return config_of(msgspec.msgpack.decode(packed, type=dict[str, Any]))


def unpack_snapshot(data: bytes, what: str) -> Snapshot:
    """Decode a snapshot; `what` names it in errors. Raises `Damaged`."""
    kind, body = _unframe(data, what)
    if kind != _SNAPSHOT:
        raise Damaged(f"{what} is not a snapshot (kind {kind})")
    try:
        parts = msgspec.msgpack.decode(body, type=_SnapshotParts)
        config = _config(bytes(parts.config))
    except (*NOT_READABLE, InvalidInput) as error:
        raise Damaged(f"{what} is not readable: {error}") from error
    return Snapshot(parts.position, config, _state_of(parts.state, what))
