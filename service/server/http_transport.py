"""Replacements for parts of a uvicorn connection: its transport, flow control and request cycle."""

from __future__ import annotations

import asyncio
from collections.abc import Sized
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl

__all__ = ["Begun", "Flow", "JoiningTransport"]


class JoiningTransport:
    """A transport that joins the head of a reply with its body, to save a system call.

    It holds back only heads with a content length, because their bodies follow at once; heads of streams go out.
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
        """Write a pending head, if any, and return the wrapped transport."""
        if self._pending_head:
            head, self._pending_head = self._pending_head, b""
            self._transport.write(head)
        return self._transport

    def close(self) -> None:
        self.release().close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Flow(FlowControl):
    """Flow control that reads nothing while requests wait for the one before them.

    uvicorn reads on after each reply, so a client that sends requests faster than they are answered would fill the
    memory.
    """

    def __init__(self, transport: asyncio.Transport, pipeline: Sized) -> None:
        """Control a transport; `pipeline`: the waiting requests."""
        super().__init__(transport)
        self._pipeline = pipeline

    def resume_reading(self) -> None:
        """Resume reading unless requests wait."""
        if not self._pipeline:
            super().resume_reading()


class Begun:
    """Stands in for the ASGI request cycle of an update in progress: later requests wait for its end."""

    message_event = asyncio.Event()  # nobody waits for it

    def __init__(self, headers: list[tuple[bytes, bytes]]) -> None:
        """Begin a request. `headers`: of every reply at this moment; a server that stops meanwhile closes later."""
        self.response_complete = False
        self.disconnected = False
        self.keep_alive = True
        self._headers = headers

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """Headers of the reply, with `connection: close` if the connection ends with it."""
        return self._headers if self.keep_alive else [*self._headers, (b"connection", b"close")]
