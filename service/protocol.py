"""uvicorn's HTTP with fewer writes: each is a call of the system, and costs more than a small event does.

The head of a reply goes out together with what follows it. Websockets are in `ws_protocol.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container
from typing import Any, cast

from uvicorn.config import Config
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from service.direct import Asked, Direct

__all__ = ["HttpProtocol"]


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
