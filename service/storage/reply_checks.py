"""Checks the types of what a store returns, because another program may have written to it.

A database accepts text in place of bytes, or a malformed number. Detected here, that is damage of one learner with a
clear message. Detected later, it would look like a bug of the service.
"""

from __future__ import annotations

import struct
from typing import Any

import msgspec

from service.errors import Damaged

__all__ = ["UNREADABLE", "checked", "damaged"]

# raised within a store by unreadable data, before it has a type to check
UNREADABLE = (TypeError, ValueError, OverflowError, struct.error)

# plain tuples in place of the NamedTuples of `Store`: msgspec checks only the items of plain tuples
_Entries = list[tuple[int, bytes, bytes]]
_Head = tuple[bytes, int]
_Event = tuple[str, float, bytes]
_Counts = tuple[int, int, int, int]
_GIVES: dict[str, Any] = {
    "create": _Head,
    "append": _Entries,
    "read": _Entries,
    "head": _Head | None,
    "deleted": list[bytes],
    "heads": dict[str, _Head],
    "load": tuple[int, bytes] | None,
    "save": tuple[int, int, float] | None,
    "snapshots": list[tuple[int, int, float]],
    "serve": tuple[int, bytes, _Counts],
    "recall": list[_Event | bool | None],
    "expired": tuple[int, list[_Event], list[bool], bool],
    "erase": bool,
    "pending": _Counts,
    "bookmark": int | None,
    "load_newest": tuple[int, tuple[int, int, float] | None, bytes, bytes, _Counts],
    "key": bytes,
}


def checked(operation: str, reply: Any) -> None:
    """Raise `Damaged` if a store's method returned something else than `Store` declares. Below 1 us per entry."""
    kind = _GIVES.get(operation)
    if kind is not None:
        try:
            msgspec.convert(reply, kind, builtin_types=(bytes,))  # else base64 text would pass as bytes
        except msgspec.ValidationError as error:
            raise damaged(operation, error) from error


def damaged(operation: str, error: Exception) -> Damaged:
    """Describe unreadable data in the store."""
    return Damaged(f"the store contains data that no release has written ({operation}: {error})")
