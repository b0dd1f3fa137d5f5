"""What a connection of `protocol.py` has in the place of parts of uvicorn's: how it writes, reads on, and waits."""

from __future__ import annotations

import asyncio
from collections.abc import Sized
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl

__all__ = ["Begun", "Flow", "JoiningTransport"]


class JoiningTransport:
    """A transport that holds the head of a reply back until there is more to write, or nothing more will come.

    Only a head that tells the length of its body, which then follows at once: a stream's goes out by itself.
    """

    __slots__ = ("_pending_head", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._pending_head = b""

    def write(self, data: bytes) -> None:
        if self._pending_head:
            data, self._pending_head = self._pending_head + data, b""
        elif data.startswith(b"HTTP/1.") and data.endswith(b"\r\n\r\n") and b"\r\ncontent-length: " in data:
            self._pending_head = data
            return
        self._transport.write(data)

    def release(self) -> asyncio.Transport:
        """Write what is held back, if anything is; the transport itself."""
        if self._pending_head:
            head, self._pending_head = self._pending_head, b""
            self._transport.write(head)
        return self._transport

    def close(self) -> None:
        self.release().close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Flow(FlowControl):
    """As uvicorn's, but nothing more is read while requests wait for the one before them.

    uvicorn reads on after each reply: a client that sends requests faster than they are answered, and does not wait,
    would have all of them kept here.
    """

    def __init__(self, transport: asyncio.Transport, pipeline: Sized) -> None:
        """`pipeline`: the requests that wait."""
        super().__init__(transport)
        self._pipeline = pipeline

    def resume_reading(self) -> None:
        """Unless requests wait."""
        if not self._pipeline:
            super().resume_reading()


class Begun:
    """Stands where uvicorn has a request of ASGI's that is under way: what comes after it waits for its end."""

    message_event = asyncio.Event()  # that nobody waits for

    def __init__(self, headers: list[tuple[bytes, bytes]]) -> None:
        """`headers`: of every reply as it begins: a server that stops meanwhile may close the connection later."""
        self.response_complete = False
        self.disconnected = False
        self.keep_alive = True
        self._headers = headers

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """Of its reply, which says whether the connection ends by it."""
        return self._headers if self.keep_alive else [*self._headers, (b"connection", b"close")]
