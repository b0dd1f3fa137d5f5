"""uvicorn's HTTP with fewer writes: each is a call of the system, and costs more than a small event does.

The head of a reply goes out together with what follows it. And an end for clients that send nothing, that send the head
of a request slowly or without end, or that do not read: uvicorn would wait for them for good. Websockets are in
`ws_protocol.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container, Sized
from typing import Any, cast

import msgspec
from uvicorn.config import Config
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from service.direct import Asked, Direct
from service.errors import HeadTooLarge
from service.problems import request_id

__all__ = ["HttpProtocol"]

_HEAD_SECONDS = 30.0  # in which a head has to come, where the application does not say
_HEAD_BYTES = 2**16  # of a request's line and its headers
_STALL_SECONDS = 30.0  # after which a client is dropped that has read nothing more of what it was sent at the end
_REFUSAL = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n"
    b"content-type: application/problem+json\r\ncontent-length: %d\r\n\r\n%b"
)


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


class _Flow(FlowControl):
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
        self._in_head = False  # some of the next request's head has come, not all of it
        self._head_bytes = 0  # that have come of it, with what came before it in the same piece
        self._waits_since: float | None = None  # for a head, by the loop's clock; None: something is under way
        self._head_timer: asyncio.TimerHandle | None = None
        self._head_seconds: float = getattr(app, "head_seconds", _HEAD_SECONDS)  # from its first byte, or the beginning
        self._upgraded = False  # to a websocket
        self._defaults: list[tuple[bytes, bytes]] | None = None  # the headers of every reply,
        self._head = b""  # and what a reply begins with that has them

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """It is open."""
        super().connection_made(transport)
        self.flow = _Flow(transport, self.pipeline)
        self._plain = transport
        self._joining = _Joining(transport)
        self.transport = cast(asyncio.Transport, self._joining)
        self._peer = {"client": self.client}
        self._proxied = self.client is not None and self.client[0] in self._trusted
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        if self._head_timer is not None:
            self._head_timer.cancel()
        super().connection_lost(exc)

    # A request is read

    def data_received(self, data: bytes) -> None:
        """Some of it has come. What is not whole by then is waited for by ASGI, which has the bounds for that."""
        direct = self._direct if self._between else None
        if direct is not None:
            known = direct.known(data)  # most clients send the same head each time: then nothing is parsed
            if known is not None and self._free():
                if self._answered(*known):
                    self._waits_since = None
                    return
                self._declined = True
        self._last = None
        self._head_bytes += len(data)
        super().data_received(data)
        self._declined = False
        self._mind_head()
        if self._asked is not None:
            self._to_application()
        elif direct is not None and self._last is not None:
            direct.know(data, self._last)

    def on_message_begin(self) -> None:
        """One begins; its scope is made where ASGI is to see it."""
        self._between = False
        self._in_head = True
        self.url = b""
        self.expect_100_continue = False
        self.headers = []

    def on_headers_complete(self) -> None:
        """Its body follows, and only that may still say that it cannot be answered at once."""
        if self._head_bytes > _HEAD_BYTES:
            size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size > _HEAD_BYTES:
                raise _too_large()
        self._in_head = False
        self._head_bytes = 0  # what follows in this piece, and may be another's head, is bounded by the piece
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

    # Heads that do not come

    def _mind_head(self) -> None:
        """Some bytes have been read: is it, after them, a head that is waited for?"""
        if self._in_head:
            if self._head_bytes > _HEAD_BYTES:
                self._refuse_head()
                return
        else:
            self._head_bytes = 0
        if self._upgraded:
            return
        idle = not self.pipeline and (self.cycle is None or self.cycle.response_complete)
        if not (self._in_head or (idle and self.timeout_keep_alive_task is None)):
            self._waits_since = None
        elif self._waits_since is None:
            self._wait_for_head()

    def _wait_for_head(self) -> None:
        """From now on; what was answered at once meanwhile has left the timer as it was, as that would be dear."""
        self._waits_since = self.loop.time()
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self._head_seconds, self._look_for_head)

    def _look_for_head(self) -> None:
        self._head_timer = None
        if self._waits_since is None or self.transport.is_closing():
            return
        if not self._free():  # requests before it are under way, which have bounds of their own
            self._waits_since = self.loop.time()
        left = self._waits_since + self._head_seconds - self.loop.time()
        if left > 0:
            self._head_timer = self.loop.call_later(left, self._look_for_head)
        else:
            self._close()

    def send_400_response(self, msg: str) -> None:
        """What came is no request; or too large a head."""
        if self._in_head and self._head_bytes > _HEAD_BYTES:
            self._refuse_head()
        else:
            super().send_400_response(msg)

    def _refuse_head(self) -> None:
        if not self.transport.is_closing():
            document = msgspec.json.encode(_too_large().document(request_id(b"")))
            self.transport.write(_REFUSAL % (len(document), document))
            self._close()

    def _close(self) -> None:
        """Close it, and if the client does not read what is left to be sent, without that."""
        self.transport.close()
        self._drop_unread(-1)

    def _drop_unread(self, left: int) -> None:
        """`left`: bytes that the client had not read when this was looked at before."""
        now = self._plain.get_write_buffer_size()
        if now and now == left:
            self._plain.abort()
        elif now:
            self.loop.call_later(_STALL_SECONDS, self._drop_unread, now)

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
        elif not self.transport.is_closing():
            self._close()

    def _set_timer(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    # A reply of ASGI's

    def on_response_complete(self) -> None:
        """A reply of ASGI's is whole; one without a body has nothing but its head."""
        self._joining.release()
        super().on_response_complete()

    def handle_websocket_upgrade(self) -> None:
        """From here on it is another protocol's."""
        self._upgraded, self._waits_since = True, None
        if self._head_timer is not None:
            self._head_timer.cancel()
        self.transport = self._joining.release()
        super().handle_websocket_upgrade()


def _too_large() -> HeadTooLarge:
    return HeadTooLarge(f"the request's line and its headers are over {_HEAD_BYTES} bytes")
