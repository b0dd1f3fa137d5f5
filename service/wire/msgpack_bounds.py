"""Decode MessagePack of unknown structure within bounds, because one byte may become a hundred in memory.

Values of a known structure are decoded as that. All others stay encoded (`msgspec.Raw`) and are decoded only as far as
an error message quotes them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from service.wire.json_errors import MAX_EVENTS

__all__ = [
    "MAX_SIZE",
    "NIL",
    "Cell",
    "Entries",
    "PackedArray",
    "Scalar",
    "UndecodedValue",
    "cells",
    "glance",
    "length",
    "members",
    "opened",
    "scalars",
]

Scalar = bool | int | float | str | None
Cell = Scalar | list[Scalar]  # what an event carries by a name
Entries = Annotated[list[Scalar], msgspec.Meta(max_length=MAX_EVENTS)]

MAX_SIZE = 2**31  # of one size of a shape
NIL = msgspec.Raw(b"\xc0")

_SMALL = 512  # bytes of a value that is decoded whatever it is
_FEW = 16  # members of a map that is opened
_SIZES = {0xDC: 2, 0xDE: 2, 0xDD: 4, 0xDF: 4}  # bytes of the length, after the first byte of a list or a map


class PackedArray(msgspec.Struct, forbid_unknown_fields=True):
    """Numbers in their form in memory, little-endian; `data` is a view of the message."""

    dtype: Literal["float32", "float64", "bool", "int8", "uint8", "int32", "int64", "uint64"]
    shape: Annotated[list[Annotated[int, msgspec.Meta(ge=0, lt=MAX_SIZE)]], msgspec.Meta(max_length=2)]
    data: memoryview


class UndecodedValue:
    """A stand-in for a value that was not decoded; its text describes the value."""

    __slots__ = ("_text",)

    def __init__(self, raw: msgspec.Raw) -> None:
        kind, n = length(raw)
        self._text = f"{len(memoryview(raw))} bytes" if kind is None else f"a {kind} of {n}"

    def __repr__(self) -> str:
        return self._text


_Key = bool | int | float | str | None
_value = msgspec.msgpack.Decoder().decode
_scalar = msgspec.msgpack.Decoder(Scalar).decode
_cell = msgspec.msgpack.Decoder(Cell).decode
_list = msgspec.msgpack.Decoder(Annotated[list[msgspec.Raw], msgspec.Meta(max_length=MAX_EVENTS)]).decode
_map = msgspec.msgpack.Decoder(dict[_Key, msgspec.Raw]).decode


def length(raw: msgspec.Raw | bytes) -> tuple[Literal["list", "map"] | None, int]:
    """Tell by its first bytes whether a value is a list or a map, and its number of entries. O(1)."""
    head = bytes(memoryview(raw)[:5])
    first = head[0] if head else 0
    if first & 0xE0 == 0x80:  # 0x8n: a map of n, 0x9n: a list of n
        return "list" if first & 0x10 else "map", first & 0x0F
    size = _SIZES.get(first)
    if size is None:
        return None, 0
    return "list" if first < 0xDE else "map", int.from_bytes(head[1 : 1 + size], "big")


def members(raw: msgspec.Raw | bytes, most: int) -> dict[Any, msgspec.Raw] | None:
    """Return the members of a map; None if it is no map or has more than `most`. O(bytes) time, O(most) memory.

    Raises `msgspec.DecodeError` and `UnicodeError`: malformed, or with names that are neither text nor numbers.
    `RecursionError`: nested too deeply.
    """
    view = memoryview(raw)
    if view and view[0] & 0xF0 == 0x80 and most >= 0x0F:  # the usual make
        return _map(raw)
    kind, n = length(raw)
    return _map(raw) if kind == "map" and n <= most else None


def glance(raw: msgspec.Raw) -> Any:
    """Return a value that is small or no container; else a stand-in that shows what it is."""
    first = memoryview(raw)[0]
    if len(memoryview(raw)) > _SMALL and not (0xA0 <= first < 0xC0 or 0xC4 <= first <= 0xC6 or 0xD9 <= first <= 0xDB):
        return UndecodedValue(raw)  # neither text nor bytes
    try:
        return _value(raw)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return UndecodedValue(raw)


def opened(raw: msgspec.Raw) -> Any:
    """Return a value as `glance` does; of a map with few members, glance at each."""
    try:
        actual = members(raw, _FEW)
    except (msgspec.DecodeError, UnicodeError):
        return UndecodedValue(raw)
    return glance(raw) if actual is None else {name: glance(item) for name, item in actual.items()}


def scalars(raw: msgspec.Raw) -> list[Any]:
    """Read a list of at most `MAX_EVENTS` entries; others become `UndecodedValue`. Raises `UnicodeError`."""
    return [_or_unread(_scalar, item) for item in _list(raw)]


def cells(raw: msgspec.Raw) -> list[Any]:
    """Read a list as `scalars` does, with lists of scalars among its entries."""
    return [_or_unread(_cell, item) for item in _list(raw)]


def _or_unread(decode: Any, raw: msgspec.Raw) -> Any:
    try:
        return decode(raw)
    except msgspec.DecodeError:
        return UndecodedValue(raw)
