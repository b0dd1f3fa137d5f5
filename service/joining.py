"""Several messages as one: their events are put together to one body, and its reply is cut for each of them.

In text this takes the events as they stand, without knowing what they are. In binary it takes columns of the same make:
of one type and, of dense rows, of one width. What cannot be put together is carried out alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, Protocol, cast

import msgspec
import numpy as np

from service.columnar_parts import in_parts
from service.columnar_replies import learnt_in_parts
from service.hosted import Learnt
from service.replies import STATUSES, became
from service.unpacking import Entries

__all__ = ["COLUMNS", "EVENTS", "Array", "Columns", "Joining", "Parts"]


class Parts(Protocol):
    """What several messages bring."""

    @property
    def seqs(self) -> Sequence[int | None]:
        """Their numbers; there are some."""
        ...

    @property
    def counts(self) -> Sequence[int]:
        """The events of each."""
        ...

    @property
    def contents(self) -> Sequence[Any]:
        """What these are, as they came."""
        ...


class Joining(Protocol):
    """One way to put bodies together and to cut replies."""

    def body(self, contents: Sequence[Any]) -> bytes:
        """One body of them all."""
        ...

    def labelled(self, parts: Parts, learnt: Learnt, ids: tuple[str | None, ...] | None) -> list[bytes]:
        """The replies to labelled events."""
        ...

    def predicted(self, parts: Parts, reply: bytes, standing: Callable[[Any], int]) -> list[bytes]:
        """The replies to predicts.

        `standing` tells how many events of a content are remembered. It is asked only where neither all of the events
        with an id are, nor none.
        """
        ...

    def named(self, content: Any) -> tuple[list[str], list[float | None]]:
        """The ids of those events that have one, and their times."""
        ...


def _remembered(total: int, parts: Parts, named: Callable[[Any], int], standing: Callable[[Any], int]) -> list[int]:
    """How many events of each part are remembered, of a `total` that are."""
    if not total:
        return [0] * len(parts.counts)
    counts = list(map(named, parts.contents))
    return counts if sum(counts) == total else list(map(standing, parts.contents))


def _counted(statuses: Sequence[str]) -> dict[str, int]:
    return {name: statuses.count(name) for name in STATUSES}


# Text: a content is events as they stand, with commas between them


class _Named(msgspec.Struct):
    id: str | int | None = None
    time: float | None = None


_encode = msgspec.json.Encoder().encode
_members_of = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_list_of = msgspec.json.Decoder(list[msgspec.Raw]).decode
_named_of = msgspec.json.Decoder(list[_Named]).decode
_REPLY = b'{"seq":%d,"status":200,%b,%b,"results":[%b]}'
_SINGLE = {name: _encode(_counted([name]))[1:-1] for name in STATUSES}


class _Events:
    """Bodies in JSON."""

    def body(self, contents: Sequence[bytes]) -> bytes:
        return b'{"events":[%b]}' % b",".join(contents)

    def labelled(self, parts: Parts, learnt: Learnt, ids: tuple[str | None, ...] | None) -> list[bytes]:
        statuses, results = became(learnt, ids)
        tail = _encode({"position": learnt.position, "class_counts": learnt.class_counts})[1:-1]
        replies = []
        start = 0
        for seq, count in zip(parts.seqs, parts.counts, strict=True):
            if count == 1:
                replies.append(_REPLY % (seq, _SINGLE[statuses[start]], tail, _encode(results[start])))
                start += 1
                continue
            stop = start + count
            counts = _encode(_counted(statuses[start:stop]))[1:-1]
            replies.append(_REPLY % (seq, counts, tail, _encode(results[start:stop])[1:-1]))
            start = stop
        return replies

    def predicted(self, parts: Parts, reply: bytes, standing: Callable[[Any], int]) -> list[bytes]:
        members = _members_of(reply)
        results = _list_of(members["results"])
        total = msgspec.json.decode(members["remembered"])
        remembered = _remembered(total, parts, lambda content: len(self.named(content)[0]), standing)
        tail = _shared(members, "remembered", "results")
        replies = []
        start = 0
        for seq, count, known in zip(parts.seqs, parts.counts, remembered, strict=True):
            stop = start + count
            replies.append(_REPLY % (seq, b'"remembered":%d' % known, tail, b",".join(results[start:stop])))
            start = stop
        return replies

    def named(self, content: bytes) -> tuple[list[str], list[float | None]]:
        found = [one for one in _named_of(b"[%b]" % content) if one.id is not None]
        return [str(one.id) for one in found], [one.time for one in found]


def _shared(members: dict[str, msgspec.Raw], *without: str) -> bytes:
    """The members that all replies have alike."""
    return _encode({name: value for name, value in members.items() if name not in without})[1:-1]


# Binary: a content is some columns

_SENT: dict[str, np.dtype[Any]] = {
    "float64": np.dtype("f8"),
    "int8": np.dtype("i1"),
}  # types of replies; their bytes are moved, not read
_SIZES = {"float32": 4, "float64": 8, "int8": 1, "uint64": 8}


class Array(msgspec.Struct, forbid_unknown_fields=True):
    """Numbers as they are in memory, little-endian."""

    dtype: Literal["float32", "float64", "int8", "uint64"]
    shape: Annotated[list[int], msgspec.Meta(max_length=2)]
    data: memoryview

    def fits(self, n: int) -> bool:
        """Whether it is what it says, and of this length."""
        return self.shape == [n] and len(self.data) == n * _SIZES[self.dtype]


_Column = Array | Entries | None


class Columns(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """The columns that can be put together; dense rows alone, of all features."""

    x: Array | None = None
    labels: _Column = None
    weights: _Column = None
    times: _Column = None
    ids: _Column = None

    def looked_at(self) -> tuple[int, int, tuple[Any, ...]]:
        """How many events there are, 0 where the columns do not agree; how many columns are lists; and the make.

        The make is what has to be the same to be put together. One pass: it is done for each message.
        """
        rows, lists = self.x, 0
        if rows is None:
            n = _length(self.ids)
            make: list[Any] = [None]
        else:
            if len(rows.shape) != 2:
                return 0, 0, ()
            n, width = rows.shape
            if len(rows.data) != n * width * _SIZES[rows.dtype]:
                return 0, 0, ()
            make = [rows.dtype, width]
        for one in (self.labels, self.weights, self.times, self.ids):
            if one is None:
                make.append(None)
            elif isinstance(one, list):
                if len(one) != n:
                    return 0, 0, ()
                make.append(list)
                lists += 1
            else:
                if not one.fits(n):
                    return 0, 0, ()
                make.append(one.dtype)
        return max(n, 0), lists, tuple(make)

    @property
    def others(self) -> tuple[_Column, ...]:
        """The columns beside the rows."""
        return self.labels, self.weights, self.times, self.ids


def _length(column: _Column) -> int:
    if isinstance(column, Array):
        return column.shape[0] if column.shape else 0
    return 0 if column is None else len(column)


_pack = msgspec.msgpack.Encoder().encode


class _Columns:
    """Bodies in MessagePack."""

    def body(self, contents: Sequence[Columns]) -> bytes:
        rows = None
        first = contents[0].x
        if first is not None:
            arrays = [one.x for one in contents if one.x is not None]
            shape = [sum([one.shape[0] for one in arrays]), first.shape[1]]
            rows = Array(first.dtype, shape, memoryview(b"".join([one.data for one in arrays])))
        labels, weights, times, ids = map(_together, zip(*[one.others for one in contents], strict=True))
        return _pack(Columns(x=rows, labels=labels, weights=weights, times=times, ids=ids))

    def labelled(self, parts: Parts, learnt: Learnt, ids: tuple[str | None, ...] | None) -> list[bytes]:  # noqa: ARG002
        return learnt_in_parts(learnt, parts.seqs, parts.counts)

    def predicted(self, parts: Parts, reply: bytes, standing: Callable[[Any], int]) -> list[bytes]:
        members: dict[str, Any] = msgspec.msgpack.decode(reply)
        total = members.pop("remembered")
        known = _remembered(total, parts, lambda content: len(self.named(content)[0]), standing)
        arrays = {name: members.pop(name) for name, value in list(members.items()) if type(value) is dict}
        columns = {name: np.frombuffer(one["data"], _SENT[one["dtype"]]) for name, one in arrays.items()}
        told = [_pack({"remembered": one}) for one in known]
        return in_parts(parts.seqs, parts.counts, told, members, columns)

    def named(self, content: Columns) -> tuple[list[str], list[float | None]]:
        count = content.looked_at()[0]
        ids, times = _values(content.ids, count), _values(content.times, count)
        pairs = [(str(one), when) for one, when in zip(ids, times, strict=True) if one is not None]
        return [one for one, _ in pairs], [None if when is None or math.isnan(when) else when for _, when in pairs]


def _together(columns: tuple[_Column, ...]) -> _Column:
    """Columns of one make as one."""
    if columns[0] is None:
        return None
    if isinstance(columns[0], list):
        return [value for one in cast(tuple[list[Any], ...], columns) for value in one]
    arrays = cast(tuple[Array, ...], columns)
    data = memoryview(b"".join([one.data for one in arrays]))
    return Array(arrays[0].dtype, [sum([one.shape[0] for one in arrays])], data)


def _values(column: _Column, count: int) -> list[Any]:
    if isinstance(column, Array):
        return list(np.frombuffer(column.data, dtype=np.dtype(column.dtype).newbyteorder("<")).tolist())
    return [None] * count if column is None else column


EVENTS: Joining = _Events()
COLUMNS: Joining = _Columns()
