"""Joins several messages of a websocket into one body, and splits its reply.

In text it joins the raw JSON of the events. In binary it joins columns of equal types and, for dense rows, equal width.
Messages that cannot be joined run alone.
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

__all__ = ["JSON_JOINER", "MSGPACK_JOINER", "BodyJoiner", "JoinedMessages"]


class JoinedMessages(Protocol):
    """Several messages whose bodies are joined."""

    @property
    def seqs(self) -> Sequence[int | None]:
        """The sequence number of each."""
        ...

    @property
    def counts(self) -> Sequence[int]:
        """The number of events of each."""
        ...

    @property
    def contents(self) -> Sequence[Any]:
        """The events of each, as received."""
        ...


class BodyJoiner(Protocol):
    """Joins bodies and splits replies of one coding."""

    def join(self, contents: Sequence[Any]) -> bytes:
        """Join the contents into one body."""
        ...

    def split_learnt(self, messages: JoinedMessages, learnt: Learnt, ids: tuple[str | None, ...] | None) -> list[bytes]:
        """Return each message's reply to labelled events."""
        ...

    def split_scores(
        self, messages: JoinedMessages, reply: bytes, count_remembered: Callable[[Any], int]
    ) -> list[bytes]:
        """Return each message's reply to a predict.

        `count_remembered` counts the remembered events of a content. It is called only if some but not all of the
        events with an id are remembered.
        """
        ...

    def ids_and_times(self, content: Any) -> tuple[list[str], list[float | None]]:
        """Return the ids of the events that have one, and their times."""
        ...


def _remembered(
    total: int, messages: JoinedMessages, count_ids: Callable[[Any], int], count_remembered: Callable[[Any], int]
) -> list[int]:
    """Count the remembered events of each message, given their total."""
    if not total:
        return [0] * len(messages.counts)
    counts = list(map(count_ids, messages.contents))
    return counts if sum(counts) == total else list(map(count_remembered, messages.contents))


def _count_statuses(statuses: Sequence[str]) -> dict[str, int]:
    return {name: statuses.count(name) for name in STATUSES}


# Text: a content is the raw JSON of events, separated by commas


class _EventId(msgspec.Struct):
    id: str | int | None = None
    time: float | None = None


_encode = msgspec.json.Encoder().encode
_members_of = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_list_of = msgspec.json.Decoder(list[msgspec.Raw]).decode
_ids_of = msgspec.json.Decoder(list[_EventId]).decode
_REPLY = b'{"seq":%d,"status":200,%b,%b,"results":[%b]}'
_SINGLE = {name: _encode(_count_statuses([name]))[1:-1] for name in STATUSES}


class _JsonJoiner:
    """Bodies in JSON."""

    def join(self, contents: Sequence[bytes]) -> bytes:
        return b'{"events":[%b]}' % b",".join(contents)

    def split_learnt(self, messages: JoinedMessages, learnt: Learnt, ids: tuple[str | None, ...] | None) -> list[bytes]:
        statuses, results = became(learnt, ids)
        tail = _encode({"position": learnt.position, "class_counts": learnt.class_counts})[1:-1]
        replies = []
        start = 0
        for seq, count in zip(messages.seqs, messages.counts, strict=True):
            if count == 1:
                replies.append(_REPLY % (seq, _SINGLE[statuses[start]], tail, _encode(results[start])))
                start += 1
                continue
            stop = start + count
            counts = _encode(_count_statuses(statuses[start:stop]))[1:-1]
            replies.append(_REPLY % (seq, counts, tail, _encode(results[start:stop])[1:-1]))
            start = stop
        return replies

    def split_scores(
        self, messages: JoinedMessages, reply: bytes, count_remembered: Callable[[Any], int]
    ) -> list[bytes]:
        members = _members_of(reply)
        results = _list_of(members["results"])
        total = msgspec.json.decode(members["remembered"])
        remembered = _remembered(total, messages, lambda content: len(self.ids_and_times(content)[0]), count_remembered)
        tail = _shared(members, "remembered", "results")
        replies = []
        start = 0
        for seq, count, remembered_count in zip(messages.seqs, messages.counts, remembered, strict=True):
            stop = start + count
            replies.append(_REPLY % (seq, b'"remembered":%d' % remembered_count, tail, b",".join(results[start:stop])))
            start = stop
        return replies

    def ids_and_times(self, content: bytes) -> tuple[list[str], list[float | None]]:
        events = [event for event in _ids_of(b"[%b]" % content) if event.id is not None]
        return [str(event.id) for event in events], [event.time for event in events]


def _shared(members: dict[str, msgspec.Raw], *without: str) -> bytes:
    """Encode the members that all replies share."""
    return _encode({name: value for name, value in members.items() if name not in without})[1:-1]


# Binary: a content is a message and its row of `columnar_heads`

_REPLY_TYPES: dict[str, np.dtype[Any]] = {
    "float64": np.dtype("f8"),
    "int8": np.dtype("i1"),
}  # byte order does not matter: the values are only copied
_IDS, _TIMES = COLUMNS.index("ids"), COLUMNS.index("times")

Content = tuple[bytes, Sequence[int]]

_pack = msgspec.msgpack.Encoder().encode


class _MsgpackJoiner:
    """Bodies in MessagePack."""

    def join(self, contents: Sequence[Content]) -> bytes:
        body: dict[str, Any] = {}
        _, first = contents[0]
        n = sum([head[COUNT] for _, head in contents])
        for column, name in enumerate(COLUMNS):
            kind = first[KINDS + column]
            if kind:
                shape = [n] if column else [n, first[WIDTH]]
                body[name] = _column(kind, shape, _join_column(contents, column))
        return _pack(body)

    def split_learnt(self, messages: JoinedMessages, learnt: Learnt, ids: tuple[str | None, ...] | None) -> list[bytes]:  # noqa: ARG002
        return learnt_in_parts(learnt, messages.seqs, messages.counts)

    def split_scores(
        self, messages: JoinedMessages, reply: bytes, count_remembered: Callable[[Any], int]
    ) -> list[bytes]:
        members: dict[str, Any] = msgspec.msgpack.decode(reply)
        total = members.pop("remembered")
        counts = _remembered(total, messages, lambda content: len(self.ids_and_times(content)[0]), count_remembered)
        arrays = {name: members.pop(name) for name, value in list(members.items()) if type(value) is dict}
        columns = {name: np.frombuffer(array["data"], _REPLY_TYPES[array["dtype"]]) for name, array in arrays.items()}
        heads = [_pack({"remembered": count}) for count in counts]
        return in_parts(messages.seqs, messages.counts, heads, members, columns)

    def ids_and_times(self, content: Content) -> tuple[list[str], list[float | None]]:
        ids, times = (_values(content, column) for column in (_IDS, _TIMES))
        pairs = [(str(id), when) for id, when in zip(ids, times, strict=True) if id is not None]
        return [id for id, _ in pairs], [None if when is None or math.isnan(when) else when for _, when in pairs]


def _join_column(contents: Sequence[Content], column: int) -> bytes:
    """Concatenate the data of a column."""
    first, last = PLACES + 2 * column, PLACES + 2 * column + 1
    return b"".join([body[head[first] : head[last]] for body, head in contents])


def _column(kind: int, shape: list[int], data: bytes) -> Any:
    """Return a column as a body has it."""
    if kind == LIST:
        return msgspec.Raw(_LIST(0xDD, shape[0]) + data)
    return {"dtype": DTYPES[kind], "shape": shape, "data": data}


_LIST = struct.Struct("!BI").pack


def _values(content: Content, column: int) -> list[Any]:
    _, head = content
    n, kind = head[COUNT], head[KINDS + column]
    if not kind:
        return [None] * n
    data = _join_column([content], column)
    if kind == LIST:
        return list(msgspec.msgpack.decode(_LIST(0xDD, n) + data))
    return list(np.frombuffer(data, dtype=np.dtype(DTYPES[kind]).newbyteorder("<")).tolist())


JSON_JOINER: BodyJoiner = _JsonJoiner()
MSGPACK_JOINER: BodyJoiner = _MsgpackJoiner()
