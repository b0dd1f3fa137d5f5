"""uvicorn's protocols with fewer writes: each is a call of the system, and costs more than a small event does.

HTTP: the head of a reply goes out together with what follows it. Websockets: one write for many messages, and an end
for peers that do not read; the application finds both in the scope, under the extension `rarestream.transport`.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode
from websockets.http11 import Request
from websockets.protocol import State

__all__ = ["EXTENSION", "HttpProtocol", "Transport", "WebSocketProtocol"]

EXTENSION = "rarestream.transport"


class Transport(NamedTuple):
    """What an application may do with its connection beside what ASGI has."""

    write: Callable[[Sequence[bytes], bool], Awaitable[None]]  # text, or binary, messages
    abort: Callable[[], None]  # end it at once; what is not sent yet is lost


class _Joining:
    """A transport that holds the head of a reply back until there is more to write, or nothing more will come.

    Only a head that tells the length of its body, which then follows at once: a stream's goes out by itself.
    """

    __slots__ = ("_held", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._held = b""

    def write(self, data: bytes) -> None:
        if self._held:
            data, self._held = self._held + data, b""
        elif data.startswith(b"HTTP/1.") and data.endswith(b"\r\n\r\n") and b"\r\ncontent-length: " in data:
            self._held = data
            return
        self._transport.write(data)

    def release(self) -> asyncio.Transport:
        """Write what is held back, if anything is; the transport itself."""
        if self._held:
            held, self._held = self._held, b""
            self._transport.write(held)
        return self._transport

    def close(self) -> None:
        self.release().close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class HttpProtocol(HttpToolsProtocol):
    """One connection."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """It is open."""
        super().connection_made(transport)
        self._joining = _Joining(transport)
        self.transport = cast(asyncio.Transport, self._joining)

    def on_response_complete(self) -> None:
        """A reply is whole; one without a body has nothing but its head."""
        self._joining.release()
        super().on_response_complete()

    def handle_websocket_upgrade(self) -> None:
        """From here on it is another protocol's."""
        self.transport = self._joining.release()
        super().handle_websocket_upgrade()


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """One connection.

    uvicorn closes a connection once all that was written has been read, which a peer may put off for good; here that
    has an end.
    """

    def handle_connect(self, event: Request) -> None:
        """The application is about to be called."""
        super().handle_connect(event)
        if self.response.status_code == 101:
            transport = Transport(self.write_messages, self.transport.abort)
            extensions = cast(dict[str, object], self.scope["extensions"])  # of ASGI, whose values are dictionaries
            extensions[EXTENSION] = transport

    async def send(self, message: Any) -> None:
        """What the application says. A handshake that it refuses by a reply of its own is over as well."""
        await super().send(message)
        if self.close_sent and self.initial_response is not None:
            self.handshake_complete = True  # uvicorn leaves that out, and would log an error of ours

    def handle_parser_exception(self) -> None:
        """What came is no frame, or too large a one. The messages before it have come all the same."""
        self.handle_events()
        super().handle_parser_exception()

    def send_receive_event_to_app(self) -> None:
        """A message is whole. A text that is none is the client's fault; uvicorn would log it as an error of ours."""
        if self.curr_msg_data_type != "text" or self.close_sent:
            super().send_receive_event_to_app()
            return
        data = b"".join(self.frames)
        self.frames = []
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            if self.conn.state is State.OPEN:  # else the client, or we, have begun to close it further on in what came
                self.conn.send_close(CloseCode.INVALID_DATA, f"the text is not UTF-8 from byte {error.start} on")
                self.handle_parser_exception()
            return
        self.queue.put_nowait({"type": "websocket.receive", "text": text})
        if not self.read_paused:  # until the application has taken it
            self.read_paused = True
            self.transport.pause_reading()

    def keepalive_timeout(self) -> None:
        """No pong came in time."""
        super().keepalive_timeout()
        self._end()

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        """The application is done with it."""
        super().on_task_complete(task)
        self._end()

    def _end(self) -> None:
        if not self.disconnected:
            self.loop.call_later(self.close_timeout, self.transport.abort)

    async def write_messages(self, messages: Sequence[bytes], binary: bool) -> None:
        """Send messages in one write, when the peer has read enough of what was sent before.

        Raises `OSError` where the connection is closed, or being closed.
        """
        await self.writable.wait()
        if self.disconnected or self.close_sent or self.conn.state is not State.OPEN:
            raise ClientDisconnected
        opcode = 0x82 if binary else 0x81
        parts: list[bytes] = []
        for message in messages:  # each a frame, not masked (RFC 6455, section 5.2)
            size = len(message)
            if size < 126:
                parts.append(_SHORT(opcode, size))
            elif size < 65536:
                parts.append(_LONG(opcode, 126, size))
            else:
                parts.append(_LONGEST(opcode, 127, size))
            parts.append(message)
        self.transport.write(b"".join(parts))


_SHORT = struct.Struct("!BB").pack
_LONG = struct.Struct("!BBH").pack
_LONGEST = struct.Struct("!BBQ").pack
