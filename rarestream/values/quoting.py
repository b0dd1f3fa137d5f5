"""Quotes values in messages."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Any

__all__ = ["show", "show_feature"]


def show(value: Any) -> str:
    """Quote a value for an error message: short, whatever it is."""
    text = _Quote().repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def show_feature(value: Any) -> str:
    """Quote a value of an event as every door does: only MessagePack leaves maps and lists undecoded."""
    if isinstance(value, Mapping):
        return f"a map of {len(value)}"
    return f"a list of {len(value)}" if isinstance(value, (list, tuple)) else show(value)


class _Quote(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxstring, self.maxother, self.maxlong = 2, 60, 60, 40

    def repr_NoneType(self, x: None, level: int) -> str:  # noqa: ARG002 - found by the type's name
        """Write null as in JSON."""
        return "null"

    def repr_bool(self, x: bool, level: int) -> str:  # noqa: ARG002
        return "true" if x else "false"

    def repr_int(self, x: int, level: int) -> str:
        """Write an integer; Python refuses to convert more than 4,300 digits."""
        return super().repr_int(x, level) if x.bit_length() < 4096 else f"a number of {x.bit_length()} bits"
