"""What a store gives back, by the types that `Store` promises: another program may have written other things into it.

A database holds what it is told to: text where bytes belong, a number that is none. Found here it is the damage of one
learner, told in plain words; found later it would be a fault of ours.
"""

from __future__ import annotations

import struct
from typing import Any

import msgspec

from service.errors import Damaged

__all__ = ["UNREADABLE", "checked", "damaged"]

# what reading such things raises within a store, before they have a type that could be checked
UNREADABLE = (TypeError, ValueError, OverflowError, struct.error)

# the tuples of `Store` by what they hold: msgspec looks into plain tuples only
_Entries = list[tuple[int, bytes, bytes]]
_Head = tuple[bytes, int]
_Event = tuple[str, float, bytes]
_Counts = tuple[int, int, int, int]
_GIVES: dict[str, Any] = {
    "create": _Head,
    "append": _Entries,
    "read": _Entries,
    "head": _Head | None,
    "heads": dict[str, _Head],
    "load": tuple[int, bytes] | None,
    "save": tuple[int, int, float] | None,
    "snapshots": list[tuple[int, int, float]],
    "serve": tuple[int, bytes, _Counts],
    "recall": list[_Event | bool | None],
    "expired": tuple[int, list[_Event], list[bool], bool],
    "pending": _Counts,
    "load_newest": tuple[int, tuple[int, int, float] | None, bytes, bytes, _Counts],
    "key": bytes,
}


def checked(operation: str, found: Any) -> None:
    """Refuse what this method of a store does not give. Raises `Damaged`. Below a microsecond for each entry."""
    kind = _GIVES.get(operation)
    if kind is not None:
        try:
            msgspec.convert(found, kind, builtin_types=(bytes,))  # else text in base64 is taken for some
        except msgspec.ValidationError as error:
            raise damaged(operation, error) from error


def damaged(operation: str, error: Exception) -> Damaged:
    """What is said of it."""
    return Damaged(f"the store holds what no release has written there ({operation}: {error})")
