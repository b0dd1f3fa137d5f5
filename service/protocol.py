"""uvicorn's protocols with fewer writes: each is a call of the system, and costs more than a small event does.

HTTP: the head of a reply goes out together with what follows it. Websockets: one write for many messages, and an end
for peers that do not read; the application finds both in the scope, under the extension `rarestream.transport`.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Container, Sequence
from typing import Any, NamedTuple, cast

from uvicorn.config import Config
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode
from websockets.http11 import Request
from websockets.protocol import State

from service.direct import Asked, Direct

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
    """One connection.

    A request that the application answers at once (`direct.py`) never becomes a task: its reply is written as soon as
    it is whole. All others are ASGI's, as uvicorn has it; replies go out in the order in which their requests came.
    """

    def __init__(self, config: Config, *args: Any, **kwargs: Any) -> None:
        """As uvicorn's."""
        super().__init__(config, *args, **kwargs)
        app: Any = config.loaded_app
        self._trusted: Container[str] = ()  # peers whose word is taken for who the client is
        if isinstance(app, ProxyHeadersMiddleware):
            app, self._trusted = app.app, app.trusted_hosts
        by_uvicorn = config.access_log or self.limit_concurrency is not None  # what only its own way sees to
        self._direct: Direct | None = None if by_uvicorn else getattr(app, "direct", None)
        self._between = True  # nothing has come of the next request
        self._asked: Asked | None = None  # the request that is being read, where it may be answered at once,
        self._body = b""  # and what has come of its body
        self._declined = False  # it may not: that was tried
        self._last: Asked | None = None  # the last one in what has just come that was answered at once
        self._answered_at = 0.0  # when that was done last, by the loop's clock
        self._defaults: list[tuple[bytes, bytes]] | None = None  # the headers of every reply,
        self._head = b""  # and what a reply begins with that has them

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """It is open."""
        super().connection_made(transport)
        self._plain = transport
        self._joining = _Joining(transport)
        self.transport = cast(asyncio.Transport, self._joining)
        self._peer = {"client": self.client}
        self._proxied = self.client is not None and self.client[0] in self._trusted

    # A request is read

    def data_received(self, data: bytes) -> None:
        """Some of it has come. What is not whole by then is waited for by ASGI, which has the bounds for that."""
        direct = self._direct if self._between else None
        if direct is not None:
            known = direct.known(data)  # most clients send the same head each time: then nothing is parsed
            if known is not None and self._free():
                if self._answered(*known):
                    return
                self._declined = True
        self._last = None
        super().data_received(data)
        self._declined = False
        if self._asked is not None:
            self._to_application()
        elif direct is not None and self._last is not None:
            direct.know(data, self._last)

    def on_message_begin(self) -> None:
        """One begins; its scope is made where ASGI is to see it."""
        self._between = False
        self.url = b""
        self.expect_100_continue = False
        self.headers = []

    def on_headers_complete(self) -> None:
        """Its body follows, and only that may still say that it cannot be answered at once."""
        self._asked = self._wanted()
        if self._asked is None:
            self._to_application()

    def on_body(self, body: bytes) -> None:
        """Some of its body."""
        if self._asked is None:
            super().on_body(body)
        else:
            self._body += body

    def on_message_complete(self) -> None:
        """It is whole."""
        self._between = True
        if self._asked is not None:
            if self._answered(self._asked, self._body):
                self._last, self._asked, self._body = self._asked, None, b""
                return
            self._to_application()
        super().on_message_complete()

    def _free(self) -> bool:
        """Whether a reply would go out now: those before it are written, and the client reads them."""
        return not self.flow.write_paused and not self.pipeline and (self.cycle is None or self.cycle.response_complete)

    def _wanted(self) -> Asked | None:
        """What is asked, where it may be answered at once."""
        parser = self.parser
        if self._direct is None or self._declined or not self._free():
            return None
        if parser.get_method() != b"POST" or self.expect_100_continue or parser.should_upgrade():
            return None
        if parser.get_http_version() != "1.1" or not parser.should_keep_alive():
            return None
        if self._proxied and any(name.startswith(b"x-forwarded-") for name, _ in self.headers):
            return None  # uvicorn finds out who the client is
        return self._direct.asked(self.url, self.headers)

    def _to_application(self) -> None:
        """Have ASGI answer it: as much of it as has come, as if that had just come."""
        url, headers, expect = self.url, self.headers, self.expect_100_continue
        body, self._asked, self._body = self._body, None, b""
        self._unset_keepalive_if_required()  # that of a reply to what came before it in the same piece
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expect
        self.headers += headers  # in place: they are the scope's
        super().on_headers_complete()
        if body:
            super().on_body(body)

    # A reply at once

    def _answered(self, asked: Asked, body: bytes) -> bool:
        """Answer here and now; whether that could be done."""
        reply = None if self._direct is None else self._direct.answer(asked, body, self._peer)
        if reply is None:
            return False
        if self._defaults is not self.server_state.default_headers:  # every second there are others
            self._defaults = self.server_state.default_headers
            self._head = STATUS_LINE[200] + b"".join(b"%b: %b\r\n" % one for one in self._defaults)
        self._plain.write(self._head + reply)
        self.server_state.total_requests += 1
        self._answered_at = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._set_timer(self.timeout_keep_alive)
        return True

    def timeout_keep_alive_handler(self) -> None:
        """So long nothing came, or it was answered at once: that does not set the timer anew, which would be dear."""
        left = self._answered_at + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self._set_timer(left)
        else:
            super().timeout_keep_alive_handler()

    def _set_timer(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    # A reply of ASGI's

    def on_response_complete(self) -> None:
        """A reply of ASGI's is whole; one without a body has nothing but its head."""
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
