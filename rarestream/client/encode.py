"""Arguments of a call to MessagePack bodies of bounded size.

Values keep their type: float32 travels as float32. Only the number of entries is checked here, because a body holds a
part of the events. The service checks the values.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from rarestream.client.batch import EventBatch, RequestBounds
from rarestream.client.decode import Ids
from rarestream.client.source import Source, SourceNumbers, checked_source
from rarestream.values import LARGEST, plain_id, plain_times, plain_value

__all__ = ["BodyPart", "EncodedEvents", "encode_labelled", "encode_unlabelled"]


_FIRST = 1024  # events in a call's first request, as long as their size is unknown
_LABEL = 64  # bytes of a label by id, about


class BodyPart(NamedTuple):
    """Consecutive events of a call, as one body."""

    body: bytes
    start: int
    stop: int


class _FeatureRows(ABC):
    """The features of n events."""

    event_bytes: int = 0  # of one event, about; 0: unknown until it is encoded

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def members(self, start: int, stop: int) -> dict[str, Any]:
        """Return the features of events `start` to `stop` as members of a body."""


@dataclass
class _Dense(_FeatureRows):
    X: NDArray[Any]  # (n, d) float32 or float64

    def __post_init__(self) -> None:
        self.event_bytes = self.X.shape[1] * self.X.itemsize

    def __len__(self) -> int:
        return len(self.X)

    def members(self, start: int, stop: int) -> dict[str, Any]:
        return {"x": _array(self.X[start:stop])}


@dataclass
class _Csr(_FeatureRows):
    indptr: NDArray[Any]  # (n + 1,) int32 or int64
    indices: NDArray[Any]  # (nnz,)
    values: NDArray[Any]  # (nnz,) float32 or float64

    def __post_init__(self) -> None:
        stored = self.values.itemsize + self.indices.itemsize
        self.event_bytes = len(self.values) * stored // max(1, len(self)) + self.indptr.itemsize

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def members(self, start: int, stop: int) -> dict[str, Any]:
        ends = self.indptr[start : stop + 1]
        stored = slice(int(ends[0]), int(ends[-1]))
        parts = {"indptr": ends - ends[0], "indices": self.indices[stored], "values": self.values[stored]}
        return {"csr": {name: _array(part) for name, part in parts.items()}}


@dataclass
class _NamedEvents(_FeatureRows):
    events: Sequence[
        Mapping[str, Any]
    ]  # one mapping per event; a missing feature is sent as null, which means the same

    def __post_init__(self) -> None:
        for i, event in enumerate(self.events):
            if not isinstance(event, Mapping):
                raise ValueError(f"X[{i}] is a {type(event).__name__}; expected named features, as X[0] has")

    def __len__(self) -> int:
        return len(self.events)

    def members(self, start: int, stop: int) -> dict[str, Any]:
        events = self.events[start:stop]
        names = {name: None for event in events for name in event}
        return {"features": {name: _plain_list([event.get(name) for event in events], name, start) for name in names}}


@dataclass
class _NamedColumns(_FeatureRows):
    columns: Mapping[str, Any]  # n values each

    def __post_init__(self) -> None:
        lengths = {name: len(column) for name, column in self.columns.items()}
        if len(set(lengths.values())) != 1:
            raise ValueError(f"X has columns of {lengths} entries; expected at least one, and as many in each")

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def members(self, start: int, stop: int) -> dict[str, Any]:
        columns = {name: column[start:stop] for name, column in self.columns.items()}
        return {"features": {name: _column(_plain_column(column, name, start)) for name, column in columns.items()}}


@dataclass
class EncodedEvents:
    """The n events of one call, sent in as many bodies as their size needs."""

    features: _FeatureRows | None  # None: labels by id alone
    columns: dict[str, Any]  # labels, weights, times and ids, if given: arrays or lists of n
    ids: Ids | None
    size: int
    source: SourceNumbers | None = None

    @property
    def repeatable(self) -> bool:
        """Whether the service recognises these events if they are sent again."""
        return self.source is not None or (self.ids is not None and all(event_id is not None for event_id in self.ids))

    def body(self, start: int, stop: int, **more: Any) -> bytes:
        """Encode events `start` to `stop` with other members."""
        members = {} if self.features is None else self.features.members(start, stop)
        members |= {name: _column(column[start:stop]) for name, column in self.columns.items()}
        if members == {"features": {}}:  # events without any feature: another column tells their number
            members["times"] = [None] * (stop - start)
        if self.source is not None:
            members["source"] = self.source.member(start, stop)
        try:
            return _encoder.encode({**more, **members})
        except OverflowError:
            names = {"features": _spelt(members["features"])} if "features" in members else {}
        try:
            return _encoder.encode({**more, **members, **names})
        except OverflowError as error:
            raise ValueError(f"a number is too large to be sent: {error}") from None

    def parts(self, bounds: RequestBounds) -> Iterator[BodyPart]:
        """Yield bodies of at most `bounds` but at least one event, each encoded when needed."""
        event_bytes = _LABEL if self.features is None else self.features.event_bytes
        step = max(1, min(bounds.events, bounds.bytes // event_bytes if event_bytes else _FIRST))
        start = 0
        while start < self.size:
            stop = min(start + step, self.size)
            body = self.body(start, stop)
            if len(body) > bounds.bytes and stop - start > 1:
                step = max(1, min((stop - start) // 2, (stop - start) * bounds.bytes // len(body)))
                continue
            yield BodyPart(body, start, stop)
            start = stop
            if 2 * len(body) < bounds.bytes:
                step = min(bounds.events, 2 * step)


def encode_labelled(batch: EventBatch, source: Source | None = None) -> EncodedEvents:
    """Prepare labelled events. Raises ValueError if the arguments do not fit together."""
    columns = _columns(batch.X, batch.ids, batch.times, len(batch.y))
    if columns.features is None and source is not None:
        raise ValueError("labels by id take no source: their ids identify a repeat")
    columns.source = checked_source(source)
    numbers = None if columns.source is None else columns.source.first
    if isinstance(numbers, list) and len(numbers) != columns.size:
        raise ValueError(f"source has {len(numbers)} numbers for {columns.size} events")
    columns.columns["labels"] = _labels(batch.y)
    if batch.weights is not None:
        columns.columns["weights"] = _numbers(batch.weights)
    return _check_lengths(columns)


def encode_unlabelled(X: Any, ids: Any, times: Any) -> EncodedEvents:
    """Prepare events without labels. Raises as `encode_labelled`."""
    if X is None:
        raise ValueError("X is None; expected the features of at least one event")
    features = _features(X)
    return _check_lengths(_columns(features, ids, times, len(features)))


def _columns(X: Any, ids: Any, times: Any, count: int) -> EncodedEvents:
    features = X if isinstance(X, _FeatureRows) else None if X is None else _features(X)
    names = _ids(ids, count)
    if features is None and names is None:
        raise ValueError("X and ids are both missing; a label without features needs the id of a served event")
    columns: dict[str, Any] = {}
    if names is not None:
        columns["ids"] = names
    if times is not None:
        columns["times"] = _times(times)
    event_ids: Ids | None = names.tolist() if isinstance(names, np.ndarray) else names
    return EncodedEvents(features, columns, event_ids, count if features is None else len(features))


def _check_lengths(columns: EncodedEvents) -> EncodedEvents:
    for name, column in columns.columns.items():
        if len(column) != columns.size:
            raise ValueError(f"{name} have {len(column)} entries for {columns.size} events")
    if columns.size == 0:
        raise ValueError("there are no events; expected at least one")
    return columns


def _features(X: Any) -> _FeatureRows:
    if hasattr(X, "tocsr"):  # any scipy sparse matrix or array, without importing scipy
        matrix = X.tocsr()
        if not matrix.has_canonical_format:
            matrix = matrix.copy()
            matrix.sum_duplicates()
        return _Csr(matrix.indptr, matrix.indices, _floats(matrix.data))
    if isinstance(X, Mapping):
        return _NamedColumns(X)
    if hasattr(X, "columns") and hasattr(X, "to_dict"):  # a data frame of any library, without importing pandas
        return _frame(X)
    if isinstance(X, Sequence) and X and isinstance(X[0], Mapping):
        return _NamedEvents(X)
    array = _floats(X)
    if array.ndim != 2:
        raise ValueError(f"X has the shape {array.shape}; expected (n, d), a sparse matrix, or named features")
    return _Dense(array)


def _frame(frame: Any) -> _FeatureRows:
    """Return the columns of a data frame. Raises ValueError for a column that cannot be a feature."""
    columns: dict[str, Any] = {}
    for name in frame.columns:
        if not isinstance(name, str):
            raise ValueError(f"X has a column named {name!r}; expected text, or X.to_numpy() for dense features")
        if name in columns:
            raise ValueError(f"X has more than one column named {name!r}; expected different names")
        columns[name] = np.asarray(frame[name])
    return _NamedColumns(columns) if columns else _NamedEvents([{}] * len(frame))


def _plain_column(column: Any, name: str, start: int) -> Any:
    """Return a column as it is if its numbers, booleans or text are plain, else a list of plain values."""
    if hasattr(column, "__array__"):
        array = np.asarray(column)
        if array.dtype.kind in "biuU" or (array.dtype.kind == "f" and np.isfinite(array).all()):
            return column
        column = array
    return _plain_list(column, name, start)


def _plain_list(values: Iterable[Any], name: str, start: int) -> list[Any]:
    """Return the plain values of a feature; the first is that of event `start`. Raises ValueError if one has none."""
    plain: list[Any] = []
    try:
        plain += map(plain_value, values)  # keeps what it has appended when it fails
    except ValueError as error:
        raise ValueError(f"X[{start + len(plain)}][{name!r}] {error}") from None
    return plain


def _spelt(value: Any) -> Any:
    """Replace whole numbers beyond 64 bits, which MessagePack does not have, by text: they are names either way."""
    if isinstance(value, dict):
        return {name: _spelt(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_spelt(item) for item in value]
    large = isinstance(value, int) and not -(2**63) <= value < 2**64 and abs(value) <= LARGEST
    return str(value) if large else value


def _floats(values: Any) -> NDArray[Any]:
    """Keep float32, convert float16 to float32 and other numbers to float64."""
    array = np.asarray(values)
    if array.dtype.kind not in _NUMBERS:
        raise ValueError(f"X is of {array.dtype}; expected numbers, or named features")
    if array.dtype == np.float16:
        return array.astype(np.float32)
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)


def _numbers(values: Any) -> Any:
    """Convert a column of numbers; send anything else as a list, which the service checks."""
    array = np.asarray(values)
    return _floats(array) if array.dtype.kind in _NUMBERS else list(values)


def _times(times: Any) -> Any:
    """Convert times to seconds since the epoch, and leave text to the service; NaN or None for no time."""
    plain = plain_times(times)
    return _floats(plain) if isinstance(plain, np.ndarray) else plain


def _labels(y: Any) -> Any:
    """Convert labels to the smallest exact column."""
    array = np.asarray(y)
    if array.ndim != 1:
        raise ValueError(f"y has the shape {array.shape}; expected (n,)")
    if array.dtype.kind in "biu" and ((array >= -128) & (array <= 127)).all():
        return array.astype(np.int8)
    return _numbers(y)


def _ids(ids: Any, count: int) -> Any:
    if ids is None:
        return None
    if isinstance(ids, str):
        if ids != "auto":
            raise ValueError(f"ids are {ids!r}; expected one for each event, or 'auto'")
        call = uuid.uuid4().hex
        return [f"{call}-{i}" for i in range(count)]
    if isinstance(ids, Sequence):
        return ids if {str}.issuperset(map(type, ids)) else [plain_id(value) for value in ids]
    array = np.asarray(ids)
    if array.dtype.kind == "u" or (array.dtype.kind == "i" and (array >= 0).all()):
        return array.astype(np.uint64)
    return [plain_id(value) for value in array]


def _column(column: Any) -> Any:
    """Encode a column: floats and whole numbers as an array, anything else as a list."""
    if hasattr(column, "__array__"):  # also of a data frame
        column = np.asarray(column)
    else:
        return column if isinstance(column, list) else list(column)
    if column.dtype.name in _DTYPES:
        return _array(column)
    return _array(column.astype(np.int64)) if column.dtype.kind in "iu" else column.tolist()


_NUMBERS = "biuf"  # kinds of dtypes
_DTYPES = ("float32", "float64", "bool", "int8", "uint8", "int32", "int64", "uint64")


def _array(array: NDArray[Any]) -> dict[str, Any]:
    flat = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return {"dtype": array.dtype.name, "shape": array.shape, "data": flat.data}


def _plain(value: Any) -> Any:
    """Convert a NumPy number, string or array inside Python objects."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise ValueError(f"a {type(value).__name__} cannot be sent: {value!r}")


_encoder = msgspec.msgpack.Encoder(enc_hook=_plain)
