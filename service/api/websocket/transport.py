"""What an application may do with its websocket beside what ASGI has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

__all__ = ["EXTENSION", "Message", "Transport"]


EXTENSION = "rarestream.transport"

Message = str | bytes


class Transport(NamedTuple):
    """What an application may do with its connection beside what ASGI has."""

    read: Callable[[], Awaitable[Sequence[Message]]]  # all that have come, at least one; none: that was the end
    write: Callable[[Sequence[bytes], bool], Awaitable[None]]  # text, or binary, messages
    abort: Callable[[], None]  # end it at once; what is not sent yet is lost
