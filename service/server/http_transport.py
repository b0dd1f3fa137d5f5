"""Replacements for parts of a uvicorn connection: its transport, flow control and request cycle."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sized
from typing import Any
from weakref import WeakKeyDictionary

from uvicorn.protocols.http.flow_control import FlowControl

__all__ = ["LARGE", "FairScheduler", "Flow", "InlineCycle", "JoiningTransport"]

LARGE = 2**16  # bytes of a read after which others have their turns; libuv may follow it by 31 more of 250 kB


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
    """Flow control that reads nothing while requests wait for the one before them, or bytes for their turn.

    uvicorn reads on after each reply, so a client that sends requests faster than they are answered would fill the
    memory.
    """

    def __init__(self, transport: asyncio.Transport, pipeline: Sized, parse_on: Callable[[], bool]) -> None:
        """Control a transport.

        `pipeline`: the waiting requests. `parse_on`: parses bytes that wait; returns whether there are any.
        """
        super().__init__(transport)
        self._pipeline = pipeline
        self._parse_on = parse_on

    def resume_reading(self) -> None:
        """Resume reading, unless requests or bytes wait."""
        if self._pipeline:
            return
        if self._parse_on():
            self.read_paused = False
        else:
            super().resume_reading()


class FairScheduler:
    """Gives connections that sent many requests at once their turns: one connection in each iteration of the loop.

    So between two turns the loop serves everybody else.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Callable[[], None]] = deque()

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop) -> FairScheduler:
        """Return the scheduler of one event loop."""
        if loop not in _schedulers:
            _schedulers[loop] = cls(loop)
        return _schedulers[loop]

    @property
    def busy(self) -> bool:
        """Tell whether connections wait for their turns."""
        return bool(self._waiting)

    def queue(self, turn: Callable[[], None]) -> None:
        """Call `turn` behind those that wait already."""
        self._waiting.append(turn)
        if len(self._waiting) == 1:
            self._loop.call_soon(self._next)

    def _next(self) -> None:
        turn = self._waiting[0]
        try:
            turn()
        finally:
            self._waiting.popleft()
            if self._waiting:
                self._loop.call_soon(self._next)


class InlineCycle:
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


_schedulers: WeakKeyDictionary[asyncio.AbstractEventLoop, FairScheduler] = WeakKeyDictionary()
