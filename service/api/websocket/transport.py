"""The ASGI extension of our server for websockets: read and write several messages at once, and abort."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

__all__ = ["EXTENSION", "Message", "Transport"]


EXTENSION = "rarestream.transport"

Message = str | bytes


class Transport(NamedTuple):
    """Operations of a connection beyond ASGI."""

    read: Callable[[], Awaitable[Sequence[Message]]]  # all messages that arrived; none: the connection ended
    write: Callable[[Sequence[bytes], bool], Awaitable[None]]  # messages, and whether they are binary
    turn: Callable[[], Awaitable[None]]  # wait for the connection's turn among those that have much to do
    abort: Callable[[], None]  # end the connection at once, without sending what is buffered
