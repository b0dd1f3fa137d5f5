"""Several messages as one: their events are put together to one body, and its reply is cut for each of them.

In text this takes the events as they stand, without knowing what they are. In binary it takes columns of the same make:
of one type and, of dense rows, of one width. What cannot be put together is carried out alone.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec
import numpy as np

from service.wire import STATUSES, Learnt, became, in_parts, learnt_in_parts
from service.wire.kernels import COLUMNS, COUNT, DTYPES, KINDS, LIST, PLACES, WIDTH

__all__ = ["COLUMNWISE", "EVENTS", "Joining", "Parts"]


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


# Binary: a content is a message, and its head of `columnar_heads`

_SENT: dict[str, np.dtype[Any]] = {
    "float64": np.dtype("f8"),
    "int8": np.dtype("i1"),
}  # types of replies; their bytes are moved, not read
_IDS, _TIMES = COLUMNS.index("ids"), COLUMNS.index("times")

Content = tuple[bytes, Sequence[int]]

_pack = msgspec.msgpack.Encoder().encode


class _Columns:
    """Bodies in MessagePack."""

    def body(self, contents: Sequence[Content]) -> bytes:
        body: dict[str, Any] = {}
        _, first = contents[0]
        n = sum([head[COUNT] for _, head in contents])
        for column, name in enumerate(COLUMNS):
            kind = first[KINDS + column]
            if kind:
                shape = [n] if column else [n, first[WIDTH]]
                body[name] = _column(kind, shape, _joined(contents, column))
        return _pack(body)

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

    def named(self, content: Content) -> tuple[list[str], list[float | None]]:
        ids, times = (_values(content, column) for column in (_IDS, _TIMES))
        pairs = [(str(one), when) for one, when in zip(ids, times, strict=True) if one is not None]
        return [one for one, _ in pairs], [None if when is None or math.isnan(when) else when for _, when in pairs]


def _joined(contents: Sequence[Content], column: int) -> bytes:
    """What stands in a column of each, one behind the other."""
    first, last = PLACES + 2 * column, PLACES + 2 * column + 1
    return b"".join([body[head[first] : head[last]] for body, head in contents])


def _column(kind: int, shape: list[int], data: bytes) -> Any:
    """A column as it stands in a body."""
    if kind == LIST:
        return msgspec.Raw(_LIST(0xDD, shape[0]) + data)
    return {"dtype": DTYPES[kind], "shape": shape, "data": data}


_LIST = struct.Struct("!BI").pack


def _values(content: Content, column: int) -> list[Any]:
    _, head = content
    n, kind = head[COUNT], head[KINDS + column]
    if not kind:
        return [None] * n
    data = _joined([content], column)
    if kind == LIST:
        return list(msgspec.msgpack.decode(_LIST(0xDD, n) + data))
    return list(np.frombuffer(data, dtype=np.dtype(DTYPES[kind]).newbyteorder("<")).tolist())


EVENTS: Joining = _Events()
COLUMNWISE: Joining = _Columns()
