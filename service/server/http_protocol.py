"""uvicorn's HTTP protocol with fewer writes, time limits, and the inline path.

Requests that a client sends without waiting are answered in turns (`http_transport.py`), so that others need not wait.
Each write is a system call, and costs more than a small event, so the head of a reply goes out together with its body.
Clients that send nothing, send a head slowly or without end, or do not read are dropped; uvicorn would wait for ever.
Websockets are in `ws_protocol.py`.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Container
from time import perf_counter
from typing import Any, cast

import httptools
from uvicorn.config import Config
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from service.api import BODY_BREAKS, BODY_ENDS
from service.api.fast_path import InlinePath, PendingUpdate, RequestHead
from service.auth import Handshake, plain_address
from service.errors import BadRequest, ServiceError
from service.server.bad_request import HEAD_BYTES, breaks_off, endless, no_request, refusal, too_large
from service.server.http_transport import LARGE, FairScheduler, Flow, InlineCycle, JoiningTransport
from service.server.ws_protocol import WebSocketProtocol
from service.telemetry import Access
from service.wire import request_id

__all__ = ["HttpProtocol"]

logger = logging.getLogger("rarestream.http")

_HEAD_SECONDS = 30.0  # allowed for a head, unless the application sets it
_PIECE = 4096  # bytes parsed in a turn, and more of a body: about 30 of the shortest predictions, a millisecond or two
_TURN = 0.001  # seconds after which a turn parses no more of a body: small chunks take much more time than their bytes
_STALL_SECONDS = 30.0  # without reading after which a client is dropped
_END_SECONDS = 0.5  # for the client to see the end of an idle connection; what it sent meanwhile is read and dropped


class HttpProtocol(HttpToolsProtocol):
    """One connection.

    The inline path (`fast_path/inline.py`) answers plain requests without a task. ASGI gets all others, as in uvicorn.
    Replies go out in the order of their requests.
    """

    def __init__(self, config: Config, *args: Any, handshake: Handshake | None = None, **kwargs: Any) -> None:
        """Take the arguments of uvicorn's protocol; `handshake`: None if it has no deadline."""
        super().__init__(config, *args, **kwargs)
        self._handshake = handshake  # None once the client is authenticated
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
        self._active_at = self.loop.time()  # time of the accept, or of the last request or reply of ASGI
        self._in_head = False  # a part of the next head has arrived
        self._head_bytes = 0  # of the head or of chunk framing so far
        self._waits_since: float | None = None  # start of waiting for a head or an inline body; None: busy
        self._head_timer: asyncio.TimerHandle | None = None
        self._head_seconds: float = getattr(
            app, "head_seconds", _HEAD_SECONDS
        )  # from the first byte, or from the start of the connection
        self._wants_upgrade = False  # the head asks for another protocol
        self._upgraded = False  # to a websocket
        self._paused = False  # the client reads too slowly
        self._stuck = False  # paused since the last `_look_at_unread`
        self._unread_timer: asyncio.TimerHandle | None = None
        self._unparsed: memoryview | None = None  # bytes that wait for the connection's turn
        self._queued = False  # for a turn
        self._requests = 0  # complete requests so far
        self._body_bytes = 0  # of the present body so far
        self._over = False  # later bytes cannot be parsed
        self._refusal: ServiceError | None = None  # to send once the requests before are answered
        self._defaults: list[tuple[bytes, bytes]] | None = None  # headers of every reply
        self._head = b""  # their encoded form

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self.flow = Flow(transport, self.pipeline, self._parse_on)
        self._scheduler = FairScheduler.of(self.loop)
        self._plain = transport
        self._joining = JoiningTransport(transport)
        self.transport = cast(asyncio.Transport, self._joining)
        if self.client is not None:
            self.client = (plain_address(self.client[0]), self.client[1])
        self._peer = {"client": self.client}
        if self._handshake is not None:
            self._handshake.connection = self
        self._proxied = self.client is not None and self.client[0] in self._trusted
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers, and let ASGI count a request that broke off."""
        for timer in (self._head_timer, self._unread_timer):
            if timer is not None:
                timer.cancel()
        self._unparsed = None
        self._finish_handshake()
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
        rest: memoryview | None = memoryview(data)
        if len(data) <= _PIECE or not self._scheduler.busy:  # else behind the others that sent as much
            rest = self._take_turn(memoryview(data))
        if rest or (rest is not None and len(data) > LARGE):
            self._wait_for_turn(rest)
        elif inline is not None and self._last is not None:
            inline.remember(data, self._last)

    def _take_turn(self, data: memoryview) -> memoryview | None:
        """Parse a piece, or more of them until a request is complete or the time is up; return the rest."""
        began, piece = self._requests, _PIECE
        until = perf_counter() + _TURN
        while data and began == self._requests and not (self._over or self._upgraded):
            if piece > _PIECE and not self._in_head and perf_counter() >= until:
                break
            size = max(piece, self._missing_bytes())
            self._parse_piece(bytes(data[:size]))
            data, piece = data[size:], 2 * piece  # a chunked body takes few pieces
        if self._upgraded and data:
            self._websocket.data_received(bytes(data))
            return None
        return None if self._over else data

    def _missing_bytes(self) -> int:
        """Return how many bytes of a body of a known length are missing."""
        if self._between or self._in_head:
            return 0
        length = next((value for name, value in self.headers if name == b"content-length"), b"0")
        return int(length) - self._body_bytes

    def _wait_for_turn(self, data: memoryview) -> None:
        """Read no more until these bytes are parsed, in later turns."""
        self._unparsed = data
        self._plain.pause_reading()
        if not self.flow.read_paused:
            self._parse_on()

    def _parse_on(self) -> bool:
        """Queue for a turn if bytes wait; return whether they do."""
        if self._unparsed is None:
            return False
        if not self._queued:
            self._queued = True
            self._scheduler.queue(self._turn)
        return True

    def _turn(self) -> None:
        """Parse some of the bytes that wait, unless the requests before them wait for their replies."""
        self._queued = False
        data = self._unparsed
        if data is None or self.flow.read_paused:  # `Flow.resume_reading` queues again
            return
        self._unparsed = None
        rest = self._take_turn(data)
        if rest:
            self._wait_for_turn(rest)
        elif not (self._upgraded or self.flow.read_paused or self._over or self.transport.is_closing()):
            self._plain.resume_reading()

    def _parse_piece(self, data: bytes) -> None:
        """Parse bytes, answer the requests that are complete, and mind the limits of what is not."""
        self._last = None
        self._head_bytes += len(data)
        self._unset_keepalive_if_required()
        self._parse(data)
        self._declined = False
        if self._parsed_head is not None:
            self._unset_keepalive_if_required()  # that of a reply to what came before it in the same piece
        self._mind_head()
        if self._parsed_head is not None and not self._waits():
            self._to_application()

    def _parse(self, data: bytes) -> None:
        """Parse data as uvicorn does, but refuse malformed requests with a problem document."""
        rest = memoryview(data)
        try:
            while rest:
                try:
                    self.parser.feed_data(rest)
                except httptools.HttpParserUpgrade as upgrade:
                    rest = rest[upgrade.args[0] :]
                    if self._opens_websocket():
                        self._open_websocket(bytes(rest))
                        return
                    self._ignore_upgrade()
                else:
                    return
        except httptools.HttpParserError as error:
            if not (self._between or self._in_head):
                self._break_off(breaks_off(error))
            elif isinstance(error.__context__, ServiceError):  # of `on_headers_complete`
                self._refuse(error.__context__)
            elif self._in_head and self._head_bytes > HEAD_BYTES:
                self._refuse(too_large())
            else:
                self._refuse(no_request(error, data))

    def _opens_websocket(self) -> bool:
        """Tell whether the head is a handshake: a GET without a body, and no earlier request waits for its reply."""
        if self.ws_protocol_class is None or not self.url.isascii() or not self._replied():
            return False
        if self.parser.get_method() != b"GET" or self.parser.get_http_version() != "1.1":
            return False
        fields = dict(self.headers)
        bare = fields.get(b"content-length", b"0") == b"0" and b"transfer-encoding" not in fields
        return bare and fields[b"upgrade"].lower() == b"websocket"

    def _ignore_upgrade(self) -> None:
        """Parse the head again without its wish for another protocol, which a server may ignore (RFC 9110, 7.8).

        The parser takes what follows such a head for the other protocol, even a body, so a new one goes on.
        """
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        headers = (b"%b: %b\r\n" % header for header in self.headers if header[0] != b"upgrade")
        head = b"%b %b HTTP/%b\r\n%b\r\n" % (method, self.url, version, b"".join(headers))
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does: it is not read
        self.parser.feed_data(head)

    def on_message_begin(self) -> None:
        """Start a request. Its ASGI scope is made later, and only if ASGI answers it."""
        self._between = False
        self._in_head = True
        self._body_bytes = 0
        self.url = b""
        self.expect_100_continue = False
        self.headers = []

    def on_headers_complete(self) -> None:
        """Choose between the inline path and ASGI by the complete head; the body follows."""
        if [name for name, _ in self.headers].count(b"host") > 1:  # programs may read different ones (RFC 9112, 3.2)
            raise BadRequest("the request has several Host headers; the connection is closed")
        if self._head_bytes > HEAD_BYTES:
            size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size > HEAD_BYTES:
                raise too_large()
        self._wants_upgrade = self.parser.should_upgrade()
        if self._wants_upgrade:
            if self.parser.get_method() == b"CONNECT":
                raise BadRequest("CONNECT is a request to a proxy; the connection is closed")
            return  # `_parse` decides
        self._parsed_head = self._request_head()
        if self._parsed_head is None:
            self._to_application()  # which may find that there is no such URL
        self._waits_since = None  # the time of the body begins, and later that of the next head
        self._in_head = False
        self._head_bytes = 0  # what follows in this piece, and may be another's head, is bounded by the piece

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self._head_bytes = 0
        self._body_bytes += len(body)
        if self._parsed_head is None:
            super().on_body(body)
        else:
            self._body += body

    def on_message_complete(self) -> None:
        """Answer the complete request inline, or pass it to ASGI."""
        if self._wants_upgrade:
            return
        self._between = True
        self._requests += 1
        self._head_bytes = 0  # another's head may follow in this piece
        self._let_go()
        if self._parsed_head is not None:
            if self._answered(self._parsed_head, self._body):
                self._last, self._parsed_head, self._body = self._parsed_head, None, b""
                return
            self._to_application()
        super().on_message_complete()

    def _free(self) -> bool:
        """Tell whether a reply would be sent now: the earlier ones are written, and the client reads."""
        return not self.flow.write_paused and self._replied()

    def _replied(self) -> bool:
        """Tell whether all earlier requests have their replies."""
        return not self.pipeline and (self.cycle is None or self.cycle.response_complete)

    def _request_head(self) -> RequestHead | None:
        """Parse the head for the inline path; None if ASGI has to answer."""
        parser = self.parser
        if self._inline is None or self._declined or not self._free():
            return None
        if parser.get_method() != b"POST" or self.expect_100_continue:
            return None
        if parser.get_http_version() != "1.1" or not parser.should_keep_alive():
            return None
        if not self.url.isascii():
            return None  # uvicorn refuses it
        if self._proxied and any(name.startswith(b"x-forwarded-") for name, _ in self.headers):
            return None  # uvicorn finds out who the client is
        return self._inline.parse(self.url, self.headers)

    def _waits(self) -> bool:
        """Tell whether to wait for the rest of a body: there is room for it, and the key allows it."""
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
        self._active_at = self.loop.time()
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

    # The handshake

    @property
    def authenticated(self) -> bool:
        """Tell whether a request came with a key or, if none is needed, was complete."""
        if self._handshake is None:
            return True
        if not self._handshake.needs_key:
            return self._requests > 0
        scope: Any = getattr(self.cycle, "scope", None)
        return self._parsed_head is not None or (scope is not None and "key" in scope["state"])

    def abort(self) -> None:
        """Close the connection at once."""
        self._plain.abort()

    @property
    def receiving(self) -> bool:
        """Tell whether a request is still arriving, also the first one, of which nothing has arrived."""
        return not (self._between and self._requests)

    def expire_handshake(self) -> None:
        """Close the connection, after the reply to a request that is being answered."""
        if self.cycle is not None and not self._replied():
            self.cycle.keep_alive = False
        elif self.receiving:
            self._close()
        elif not self._over:
            self._end_idle()

    def _finish_handshake(self) -> None:
        if self._handshake is not None:
            self._handshake.finish()
            self._handshake = None

    @property
    def idle_since(self) -> float:
        """The loop's time since which the client owes a request or the rest of one; infinite while one is answered.

        NDJSON bodies count as answered, too: their replies begin while they arrive.
        """
        receiving = not self.pipeline and getattr(self.cycle, "more_body", False) and not self.cycle.response_started
        if not (receiving or self._replied()):
            return math.inf
        return max(self._active_at, self._answered_at, self._waits_since or 0.0)

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
        if not (self._in_head or (self._replied() and self.timeout_keep_alive_task is None)):
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
        if not self._replied():
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

    def _end_idle(self) -> None:
        """Tell the client that nothing more comes, and close a little later.

        Closing while a request is on its way would reset the connection. So the client sees an orderly end instead.
        """
        self._over = True
        if self._plain.can_write_eof():
            self._plain.write_eof()
            self.loop.call_later(_END_SECONDS, self._close)
        else:  # TLS has an end of its own
            self._close()

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
        if self.cycle is None or self.cycle.response_complete:
            self._end_idle()
        else:
            super().shutdown()

    # A reply at once

    def _answered(self, head: RequestHead, body: bytes) -> bool:
        """Answer now, or as soon as an update is learnt; False if ASGI has to."""
        if self._inline is None:
            return False
        outcome = self._inline.answer(head, body, self._peer)
        if outcome is None:
            return False
        if self._handshake is not None:
            self._finish_handshake()
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
        cycle = InlineCycle(self.server_state.default_headers)
        self.cycle = cast(Any, cycle)
        tasks = cast("set[asyncio.Future[Any]]", self.tasks)
        tasks.add(update.future)

        def answer(result_future: asyncio.Future[Any]) -> None:
            tasks.discard(result_future)
            status, reply = update.reply()
            cycle.response_complete = True
            if not cycle.disconnected and not self.transport.is_closing():
                self._write(status, cycle.headers, reply)
                if not cycle.keep_alive:
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
        """Close an idle connection, or wait on: an inline reply does not set the timer anew, because that is slow."""
        left = self._answered_at + self.timeout_keep_alive - self.loop.time()
        if self.cycle is not None and not self.cycle.response_complete:
            self._set_timer(self.timeout_keep_alive)
        elif left > 0:
            self._set_timer(left)
        elif not self.transport.is_closing():
            self._end_idle()

    def _set_timer(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    # A reply of ASGI's

    def on_response_complete(self) -> None:
        """Finish a reply of ASGI; flush the head of a reply without a body."""
        self._joining.release()
        self._active_at = self.loop.time()
        if self._handshake is not None and self.authenticated:
            self._finish_handshake()
        super().on_response_complete()
        self._refuse_in_turn()
        if self.transport.is_closing():
            self._drop_unread(-1)

    def _open_websocket(self, rest: bytes) -> None:
        """Leave the connection to the websocket's protocol, with the bytes that came behind the head."""
        parsed = httptools.parse_url(self.url)  # it may be absolute, with scheme and host
        target = (parsed.path or b"/") + (b"" if parsed.query is None else b"?" + parsed.query)
        self._upgraded, self._waits_since = True, None
        if self._head_timer is not None:
            self._head_timer.cancel()
        self.connections.discard(self)
        self._websocket = websocket = cast(type[WebSocketProtocol], self.ws_protocol_class)(
            self.config, self.server_state, self.app_state
        )
        transport = self._joining.release()
        transport.set_protocol(websocket)
        transport.resume_reading()  # which a turn may have paused
        websocket.connection_made(transport)
        websocket.client = self.client
        if self._handshake is not None:
            websocket.handshake, self._handshake.connection = self._handshake, websocket
            self._handshake = None
        websocket.open(target, self.headers, rest, self._access)
