"""uvicorn's HTTP protocol with fewer writes, time limits, and the inline path.

Each write is a system call, and costs more than a small event, so the head of a reply goes out together with its body.
Clients that send nothing, send a head slowly or without end, or do not read are dropped; uvicorn would wait for ever.
Websockets are in `ws_protocol.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Container
from typing import Any, cast

import httptools
from uvicorn.config import Config
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from service.api import BODY_BREAKS, BODY_ENDS
from service.api.fast_path import InlinePath, PendingUpdate, RequestHead
from service.errors import ServiceError
from service.server.bad_request import HEAD_BYTES, breaks_off, endless, no_request, refusal, too_large
from service.server.http_transport import Begun, Flow, JoiningTransport
from service.telemetry import Access
from service.wire import request_id

__all__ = ["HttpProtocol"]

logger = logging.getLogger("rarestream.http")

_HEAD_SECONDS = 30.0  # allowed for a head, unless the application sets it
_STALL_SECONDS = 30.0  # without reading after which a client is dropped


class HttpProtocol(HttpToolsProtocol):
    """One connection.

    The inline path (`fast_path/inline.py`) answers plain requests without a task. ASGI gets all others, as in uvicorn.
    Replies go out in the order of their requests.
    """

    def __init__(self, config: Config, *args: Any, **kwargs: Any) -> None:
        """Take the arguments of uvicorn's protocol."""
        super().__init__(config, *args, **kwargs)
        app: Any = config.loaded_app
        self._trusted: Container[str] = ()  # proxies whose headers name the client
        if isinstance(app, ProxyHeadersMiddleware):
            app, self._trusted = app.app, app.trusted_hosts
        by_uvicorn = (
            config.access_log or self.limit_concurrency is not None
        )  # features that only uvicorn's own path has
        self._inline: InlinePath | None = None if by_uvicorn else getattr(app, "inline", None)
        self._access: Access | None = getattr(app, "access", None)
        self._between = True  # no byte of the next request has arrived
        self._parsed_head: RequestHead | None = None  # of a request that may be answered inline
        self._body = b""  # of that request, so far
        self._held_bytes = 0  # bytes of that body that count as memory in use
        self._declined = False  # the inline path has declined the request
        self._last: RequestHead | None = None  # of the last request in this read that was answered inline
        self._answered_at = 0.0  # time of the last inline reply, by the loop's clock
        self._in_head = False  # a part of the next head has arrived
        self._head_bytes = 0  # of the head or of chunk framing so far
        self._waits_since: float | None = None  # start of waiting for a head or an inline body; None: busy
        self._head_timer: asyncio.TimerHandle | None = None
        self._head_seconds: float = getattr(
            app, "head_seconds", _HEAD_SECONDS
        )  # from the first byte, or from the start of the connection
        self._upgraded = False  # to a websocket
        self._paused = False  # the client reads too slowly
        self._stuck = False  # paused since the last `_look_at_unread`
        self._unread_timer: asyncio.TimerHandle | None = None
        self._over = False  # later bytes cannot be parsed
        self._refusal: ServiceError | None = None  # to send once the requests before are answered
        self._defaults: list[tuple[bytes, bytes]] | None = None  # headers of every reply
        self._head = b""  # their encoded form

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self.flow = Flow(transport, self.pipeline)
        self._plain = transport
        self._joining = JoiningTransport(transport)
        self.transport = cast(asyncio.Transport, self._joining)
        self._peer = {"client": self.client}
        self._proxied = self.client is not None and self.client[0] in self._trusted
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers, and let ASGI count a request that broke off."""
        for timer in (self._head_timer, self._unread_timer):
            if timer is not None:
                timer.cancel()
        if self._parsed_head is not None:  # in its body: that is counted, and told
            self._to_application()
        super().connection_lost(exc)

    # A request is read

    def data_received(self, data: bytes) -> None:
        """Parse received bytes, and answer inline what can be. Many clients send the body in a piece of its own."""
        if self._over:
            return
        inline = self._inline if self._between else None
        if inline is not None:
            request = inline.match(data)  # most clients send the same head each time: then nothing is parsed
            if request is not None and self._free():
                if self._answered(*request):
                    self._waits_since = None
                    return
                self._declined = True
        self._last = None
        self._head_bytes += len(data)
        self._unset_keepalive_if_required()
        self._parse(data)
        self._declined = False
        if self._parsed_head is not None:
            self._unset_keepalive_if_required()  # that of a reply to what came before it in the same piece
        self._mind_head()
        if self._parsed_head is not None:
            if not self._waits():
                self._to_application()
        elif inline is not None and self._last is not None:
            inline.remember(data, self._last)

    def _parse(self, data: bytes) -> None:
        """As uvicorn does; but what cannot be read is refused as all else is."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            if self._should_upgrade():
                self.handle_websocket_upgrade()
            else:
                self._unsupported_upgrade_warning()
        except httptools.HttpParserError as error:
            if not (self._between or self._in_head):
                self._break_off(breaks_off(error))
            elif self._in_head and self._head_bytes > HEAD_BYTES:
                self._refuse(too_large())
            else:
                self._refuse(no_request(error, data))

    def on_message_begin(self) -> None:
        """One begins; its scope is made where ASGI is to see it."""
        self._between = False
        self._in_head = True
        self.url = b""
        self.expect_100_continue = False
        self.headers = []

    def on_headers_complete(self) -> None:
        """Its body follows, and only that may still say that it cannot be answered at once."""
        if self._head_bytes > HEAD_BYTES:
            size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size > HEAD_BYTES:
                raise too_large()
        self._parsed_head = self._wanted()
        if self._parsed_head is None:
            self._to_application()  # which may find that there is no such URL
        else:
            self._waits_since = None  # the time of the body begins
        self._in_head = False
        self._head_bytes = 0  # what follows in this piece, and may be another's head, is bounded by the piece

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self._head_bytes = 0
        if self._parsed_head is None:
            super().on_body(body)
        else:
            self._body += body

    def on_message_complete(self) -> None:
        """Answer the complete request inline, or pass it to ASGI."""
        self._between = True
        self._head_bytes = 0  # another's head may follow in this piece
        self._let_go()
        if self._parsed_head is not None:
            if self._answered(self._parsed_head, self._body):
                self._last, self._parsed_head, self._body = self._parsed_head, None, b""
                return
            self._to_application()
        super().on_message_complete()

    def _free(self) -> bool:
        """Whether a reply would go out now: those before it are written, and the client reads them."""
        return not self.flow.write_paused and not self.pipeline and (self.cycle is None or self.cycle.response_complete)

    def _wanted(self) -> RequestHead | None:
        """Parse the head for the inline path; None if ASGI has to answer."""
        parser = self.parser
        if self._inline is None or self._declined or not self._free():
            return None
        if parser.get_method() != b"POST" or self.expect_100_continue or parser.should_upgrade():
            return None
        if parser.get_http_version() != "1.1" or not parser.should_keep_alive():
            return None
        if not self.url.isascii():
            return None  # uvicorn refuses it
        if self._proxied and any(name.startswith(b"x-forwarded-") for name, _ in self.headers):
            return None  # uvicorn finds out who the client is
        return self._inline.parse(self.url, self.headers)

    def _waits(self) -> bool:
        """Whether the rest of a body is waited for: there is room, and who sends it may."""
        if self._inline is None or self._parsed_head is None:
            return False
        more = len(self._body) - self._held_bytes
        if not self._inline.hold(self._parsed_head, more, self._peer):
            return False
        self._held_bytes += more
        return True

    def _let_go(self) -> None:
        """Stop counting the body as memory in use."""
        if self._held_bytes and self._inline is not None:
            self._inline.release(self._held_bytes)
        self._held_bytes = 0

    def _to_application(self) -> None:
        """Have ASGI answer it: as much of it as has come, as if that had just come, in what is left of its time."""
        self._let_go()
        since = None if self._parsed_head is None else self._waits_since
        url, headers, expect = self.url, self.headers, self.expect_100_continue
        body, self._parsed_head, self._body = self._body, None, b""
        self._unset_keepalive_if_required()  # that of a reply to what came before it in the same piece
        super().on_message_begin()
        if since is not None:
            cast(dict[str, Any], self.scope)[BODY_ENDS] = since + self._head_seconds
            self._waits_since = None
        self.url, self.expect_100_continue = url, expect
        self.headers, self.scope["headers"] = headers, list(headers)  # which what comes behind a body does not join
        super().on_headers_complete()
        if body:
            super().on_body(body)

    # Heads that do not come

    def _mind_head(self) -> None:
        """Check the limits of a head, and begin or end waiting for one, after a read."""
        if self._between:
            self._head_bytes = 0
        elif self._head_bytes > HEAD_BYTES:
            if self._in_head:
                self._refuse(too_large())
            else:
                self._break_off(endless())
            return
        if self._upgraded:
            return
        idle = not self.pipeline and (self.cycle is None or self.cycle.response_complete)
        if not (self._in_head or (idle and self.timeout_keep_alive_task is None)):
            self._waits_since = None
        elif self._waits_since is None:
            self._wait_for_head()

    def _wait_for_head(self) -> None:
        """Begin to wait for a head. Inline replies leave the timer alone, because resetting it is expensive."""
        self._waits_since = self.loop.time()
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self._head_seconds, self._look_for_head)

    def _look_for_head(self) -> None:
        self._head_timer = None
        if self._waits_since is None or self.transport.is_closing():
            return
        if not self._free():  # requests in progress have limits of their own
            self._waits_since = self.loop.time()
        left = self._waits_since + self._head_seconds - self.loop.time()
        if left > 0:
            self._head_timer = self.loop.call_later(left, self._look_for_head)
        elif self._parsed_head is not None:  # ASGI refuses the missing body
            self._to_application()
        else:
            self._close()

    def _refuse(self, error: ServiceError) -> None:
        """Refuse malformed bytes after the replies before them, and close the connection."""
        if self.transport.is_closing():
            return
        self._over = True
        if self.pipeline or not (self.cycle is None or self.cycle.response_complete):
            self._refusal = error  # until the requests before it are answered
            self.flow.pause_reading()
            return
        own_id = request_id(b"")
        if self._access is not None:
            self._access.unread(error, own_id, self.client)
        self._write(error.status, self.server_state.default_headers, refusal(error, own_id))
        self._close()

    def _break_off(self, error: ServiceError) -> None:
        """Let the application see that a body breaks off, and close the connection after its reply.

        If it has replied already, close at once.
        """
        self._over = True
        cycle = self.cycle
        if cycle.response_complete:
            if not self.transport.is_closing():
                self._close()
            return
        cast(dict[str, Any], cycle.scope)[BODY_BREAKS] = error
        cycle.keep_alive = False
        cycle.more_body = False
        cycle.message_event.set()

    def _refuse_in_turn(self) -> None:
        """Send a pending refusal, once the requests before it are answered."""
        if self._refusal is not None and not self.pipeline:
            error, self._refusal = self._refusal, None
            self._refuse(error)

    def _close(self) -> None:
        """Close the connection; drop unsent bytes if the client does not read them."""
        self.transport.close()
        self._drop_unread(-1)

    def _drop_unread(self, left: int) -> None:
        """Drop the connection unless the client has read since `left` bytes were unsent."""
        now = self._plain.get_write_buffer_size()
        if now and now == left:
            self._plain.abort()
        elif now:
            self.loop.call_later(_STALL_SECONDS, self._drop_unread, now)

    def pause_writing(self) -> None:
        """Pause, because the client reads too slowly; drop it if it reads nothing for a while."""
        super().pause_writing()
        self._paused = True
        if self._unread_timer is None:
            self._look_at_unread(-1)

    def resume_writing(self) -> None:
        """Resume, because the client has read."""
        super().resume_writing()
        self._paused = self._stuck = False

    def _look_at_unread(self, left: int) -> None:
        """`left`: bytes that it had not read when this was looked at before, if nothing was resumed since."""
        self._unread_timer = None
        now = self._plain.get_write_buffer_size()
        if self._stuck and now == left:
            logger.warning("a client was dropped: nothing of its reply was read in %g s", _STALL_SECONDS)
            self._plain.abort()
        elif self._paused:
            self._stuck = True
            self._unread_timer = self.loop.call_later(_STALL_SECONDS, self._look_at_unread, now)

    def shutdown(self) -> None:
        """Answer a request that has begun to arrive, then close the connection."""
        if self._parsed_head is not None:
            self._to_application()
        super().shutdown()

    # A reply at once

    def _answered(self, head: RequestHead, body: bytes) -> bool:
        """Answer now, or as soon as an update is learnt; False if ASGI has to."""
        if self._inline is None:
            return False
        outcome = self._inline.answer(head, body, self._peer)
        if outcome is None:
            return False
        if isinstance(outcome, PendingUpdate):
            self._wait_for(outcome)
            return True
        status, reply = outcome
        self._write(status, self.server_state.default_headers, reply)
        self._written()
        return True

    def _write(self, status: int, headers: list[tuple[bytes, bytes]], reply: bytes) -> None:
        """Write a whole reply behind the headers of every reply."""
        if self._defaults is not headers:  # every second there are others
            self._defaults = headers
            self._head = b"".join(b"%b: %b\r\n" % header for header in headers)
        self._plain.write(b"".join((STATUS_LINE[status], self._head, reply)))

    def _wait_for(self, update: PendingUpdate) -> None:
        """Answer once it is learnt; a server that stops waits for it as for a task, which it cancels in the end."""
        begun = Begun(self.server_state.default_headers)
        self.cycle = cast(Any, begun)
        tasks = cast("set[asyncio.Future[Any]]", self.tasks)
        tasks.add(update.future)

        def answer(result_future: asyncio.Future[Any]) -> None:
            tasks.discard(result_future)
            status, reply = update.reply()
            begun.response_complete = True
            if not begun.disconnected and not self.transport.is_closing():
                self._write(status, begun.headers, reply)
                if not begun.keep_alive:
                    self.transport.close()
            if self.pipeline:  # uvicorn goes on with what came meanwhile
                self.on_response_complete()
            else:
                self._written()
                self._refuse_in_turn()

        update.future.add_done_callback(answer)

    def _written(self) -> None:
        """Count a reply that is written; the connection is idle from now on."""
        self.server_state.total_requests += 1
        self._answered_at = self.loop.time()
        if self.timeout_keep_alive_task is None and not self.transport.is_closing():
            self._set_timer(self.timeout_keep_alive)

    def timeout_keep_alive_handler(self) -> None:
        """So long nothing came, or it was answered here: that does not set the timer anew, which would be dear."""
        left = self._answered_at + self.timeout_keep_alive - self.loop.time()
        if self.cycle is not None and not self.cycle.response_complete:
            self._set_timer(self.timeout_keep_alive)
        elif left > 0:
            self._set_timer(left)
        elif not self.transport.is_closing():
            self._close()

    def _set_timer(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    # A reply of ASGI's

    def on_response_complete(self) -> None:
        """Finish a reply of ASGI; flush the head of a reply without a body."""
        self._joining.release()
        super().on_response_complete()
        self._refuse_in_turn()
        if self.transport.is_closing():
            self._drop_unread(-1)

    def handle_websocket_upgrade(self) -> None:
        """From here on it is another protocol's."""
        self._upgraded, self._waits_since = True, None
        if self._head_timer is not None:
            self._head_timer.cancel()
        self.transport = self._joining.release()
        super().handle_websocket_upgrade()
