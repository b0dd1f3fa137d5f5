"""The body of a forwarded request: sent on as it arrives, and buffered if another node may have to get it again.

The time limit of the host excludes the time spent waiting for the client.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from starlette.types import Message, Receive, Scope

from service.api.body import BODY_BREAKS
from service.errors import ServiceError

__all__ = ["ForwardedBody", "is_large", "retry_bytes"]

_SOCKET_BYTES = 2**15  # that any system buffers of a connection that nobody reads
_RETRY_BYTES = 2**20  # of a body that is buffered for another host


def retry_bytes(length: bytes) -> int:
    """Return how many bytes to buffer of a body of this Content-Length for a retry; 0: it is too long."""
    size = int(length) if length.isdigit() and len(length) < 10 else _RETRY_BYTES
    return size if size <= _RETRY_BYTES else 0


def is_large(length: bytes) -> bool:
    """Tell whether a body of this Content-Length may exceed the buffers of a connection that nobody reads."""
    return not (length.isdigit() and len(length) < 10 and int(length) <= _SOCKET_BYTES)


class ForwardedBody:
    """The body of one forwarded request, piece by piece."""

    def __init__(self, receive: Receive, scope: Scope, *, has_any: bool, keep: int, large: bool = False) -> None:
        """`keep`: bytes to buffer for a retry; `large`: see `is_large`."""
        self.large = large
        self._receive = receive
        self._scope = scope
        self._has_any = has_any
        self._keep = keep
        self._buffer: list[bytes] | None = []  # None: the body is too large to buffer
        self._complete = asyncio.Event()
        self._limit: asyncio.Timeout | None = None
        self._seconds = 0.0
        self.left = False  # the client left before the end of the body

    @property
    def broken(self) -> ServiceError | None:
        """Return why the rest of the body is missing."""
        return self._scope.get(BODY_BREAKS)

    @property
    def repeatable(self) -> bool:
        """Tell whether the body is complete and buffered, so that it can be sent again."""
        return self._complete.is_set() and self._buffer is not None

    def limit_host(self, limit: asyncio.Timeout | None, seconds: float = 0.0) -> None:
        """Give the host so many seconds, without those spent waiting for the client."""
        self._limit, self._seconds = limit, seconds
        self._run_clock(True)

    def give_up(self) -> None:
        """End the wait for the host."""
        self._reschedule(0.0)
        self._limit = None

    def _run_clock(self, running: bool) -> None:
        self._reschedule(asyncio.get_running_loop().time() + self._seconds if running else None)

    def _reschedule(self, when: float | None) -> None:
        """Move the end of the host's time, unless it is over already."""
        if self._limit is not None and not self._limit.expired():
            self._limit.reschedule(when)

    def pieces(self) -> AsyncIterator[bytes] | None:
        """Return the pieces of the body from its beginning; None if the request has no body."""
        if not self._has_any:
            self._complete.set()
            return None
        return self._repeat() if self._complete.is_set() else self._pieces()

    async def _repeat(self) -> AsyncIterator[bytes]:
        for piece in self._buffer or ():
            yield piece

    async def _pieces(self) -> AsyncIterator[bytes]:
        while True:
            self._run_clock(False)
            message = await self._receive()
            self._run_clock(True)
            if message["type"] == "http.disconnect":
                self.left = True
                raise ConnectionResetError("the client went away")
            more = message.get("more_body", False)
            if not more and self.broken:
                raise ConnectionResetError("the body breaks off")
            piece: bytes = message.get("body", b"")
            self._keep -= len(piece)
            if self._keep < 0:
                self._buffer = None
            elif self._buffer is not None and piece:
                self._buffer.append(piece)
            if piece:
                yield piece
            if not more:
                self._complete.set()
                return

    async def receive(self) -> Message:
        """Receive the request from its beginning, as the application does, if this node answers it after all."""
        if self._has_any and self.repeatable:
            body, self._buffer = b"".join(self._buffer or ()), None
            return {"type": "http.request", "body": body, "more_body": False}
        return await self._receive()

    async def wait_for_disconnect(self) -> None:
        """Wait until the client leaves after the end of the body."""
        await self._complete.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass
