"""Joins several messages of a websocket into one body.

In text it joins the raw JSON of the events. In binary it joins columns of equal types and, for dense rows, equal width.
Messages that cannot be joined run alone.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import msgspec

from service.wire.kernels import COLUMNS, COUNT, DTYPES, KINDS, LIST, PLACES, WIDTH

__all__ = ["join_columns", "join_events"]

Content = tuple[bytes, Sequence[int]]  # a binary message and its row of `columnar_heads`

_pack = msgspec.msgpack.Encoder().encode


def join_events(contents: Sequence[bytes]) -> bytes:
    """Return one body in JSON; a content is the raw JSON of events, separated by commas."""
    return b'{"events":[%b]}' % b",".join(contents)


def join_columns(contents: Sequence[Content]) -> bytes:
    """Return one body in MessagePack."""
    body: dict[str, Any] = {}
    _, first = contents[0]
    n = sum([head[COUNT] for _, head in contents])
    for column, name in enumerate(COLUMNS):
        kind = first[KINDS + column]
        if kind:
            shape = [n] if column else [n, first[WIDTH]]
            body[name] = _column(kind, shape, _join_column(contents, column))
    return _pack(body)


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
