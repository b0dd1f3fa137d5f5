"""uvicorn's websocket protocol with less work for each message, and a time limit for peers that do not read.

    bytes -> frames -> a plain message: unmasked here                 -> all messages of one read, to the application
                    -> anything else: the parser of `websockets`      -> its events, through uvicorn

A plain message is one masked frame, not too large, and complete in one read; nearly all are. The library parses the
others: fragments, pings, closes, malformed frames, frames that continue in the next read, and everything once a close
is in progress. It always gets a frame to its end, so its state is as if it had parsed every frame. It is slow, so it
parses for a millisecond in a turn (`http_transport.py`), and nothing is read before the rest is parsed.

The application has the extension `rarestream.transport` in its scope: it reads and writes many messages at once; ASGI
cannot.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Sequence
from time import perf_counter
from typing import Any, cast

import msgspec
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.datastructures import Headers
from websockets.frames import CloseCode, Frame
from websockets.http11 import Request, Response
from websockets.protocol import State
from websockets.server import ServerProtocol

from service.api.websocket import EXTENSION, Message, Transport
from service.auth import Handshake
from service.errors import BadRequest, ServiceError, Stopping
from service.server.http_transport import LARGE, FairScheduler
from service.telemetry import Access
from service.wire import PROBLEM, headers_of, heading_of, request_id
from service.wire.kernels import BINARY, MASKED, TEXT, payloads

__all__ = ["WebSocketProtocol"]


_PIECE = 512  # bytes that the library parses at a time, if it parses all: up to 85 frames
_MESSAGES = 1024  # of a turn, or a few more: their heads are parsed all at once
_TURN = 0.001  # seconds after which the rest of the received bytes waits for the connection's next turn
_MESSAGE = "rarestream.receive"  # type of our events in the queue; all others are ASGI's


class _ServerSide(ServerProtocol):
    """The library's side of a connection, but its refusals are problem documents instead of plain text."""

    access: Access | None = None
    client: tuple[str, int] | None = None
    headers: Sequence[tuple[bytes, bytes]] = ()  # of the handshake

    def reject(self, status: Any, text: str) -> Response:
        """Return the refusal of a malformed handshake, or of one that ended by an internal error."""
        reason = text.partition("\n")[0].rstrip(".")
        return self.refusal(BadRequest(reason) if int(status) < 500 else ServiceError(_FAULT))

    def refusal(self, error: ServiceError) -> Response:
        """Return the reply to a handshake that is refused by an error, and count it."""
        own_id = request_id(heading_of(self.headers).request_id)
        if self.access is not None:
            self.access.unread(error, own_id, self.client)
        response = super().reject(error.status, msgspec.json.encode(error.document(own_id)).decode())
        del response.headers["Content-Type"]
        response.headers.update({"Content-Type": PROBLEM, "X-Request-ID": own_id, **headers_of(error)})
        return response


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """One connection, which is aborted if the peer does not read what was written before a close."""

    conn: _ServerSide
    handshake: Handshake | None = None  # None once it is complete, or if it has no deadline

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.conn = _ServerSide(max_size=self.config.ws_max_size, logger=self.conn.logger)
        self._headers: list[tuple[bytes, bytes]] = []  # of the handshake
        self._target = ""  # of the handshake, with its query
        self._in_step = True  # the library has parsed whole frames, except for
        self._owed = 0  # these missing bytes of the last frame
        self._frame_start = b""  # the start of a frame whose length has not arrived
        self._rest: deque[Message] = deque()  # taken from the queue, not received yet
        self._unparsed = b""  # bytes that wait for the connection's turn
        self._queued = False  # for a turn
        self._pong = b""  # to send once the client reads
        self._scheduler = FairScheduler.of(self.loop)

    def open(
        self, target: bytes, headers: list[tuple[bytes, bytes]], data: bytes, access: Access | None = None
    ) -> None:
        """Begin with a handshake whose head is parsed, and the bytes behind it. `access` counts a refusal.

        The library's parser would refuse heads that HTTP requests may have, so it is shown an empty one.
        """
        self._target, self._headers = target.decode("ascii"), headers
        self.conn.headers, self.conn.client, self.conn.access = headers, self.client, access
        super().data_received(_EMPTY_HEAD)
        if data:
            self.data_received(data)

    # Incoming messages

    def data_received(self, data: bytes) -> None:
        """Parse received bytes. What takes longer than a turn waits for further ones."""
        self._unparsed += data
        if self._queued:
            self._pause()  # the library resumes reading when it sends a close
        else:
            self._parse_on()

    def _parse_on(self) -> None:
        """Parse bytes for a turn. Nothing more is read until all are parsed."""
        data, self._unparsed = self._unparsed, b""
        self._unparsed = self._parse(data)
        if self._unparsed or len(data) > LARGE:
            self._pause()
            self._queue_turn()

    def _queue_turn(self) -> None:
        if not self._queued:
            self._queued = True
            self._scheduler.queue(self._turn)

    def _turn(self) -> None:
        """Parse some of the bytes that wait, unless the application has to take messages first."""
        self._queued = False
        if self.queue.empty() or self.close_sent:  # else `_resume` queues again
            self._parse_on()
            self._resume()

    def _parse(self, data: bytes) -> bytes:
        """Parse bytes for the time of a turn; return the rest."""
        if self._in_step and self.conn.state is State.OPEN:
            return self._frames(data)
        self._in_step = False  # these are frames before the handshake's end, or a close is under way
        data, self._frame_start = self._frame_start + data, b""
        until = perf_counter() + _TURN
        while data and not self.transport.is_closing():
            super().data_received(data[:_PIECE])
            data = data[_PIECE:]
            if perf_counter() >= until:
                return data
        return b""

    def _frames(self, data: bytes) -> bytes:
        """Frames, the first and the last of which may be here in part. What is behind a close is not looked at."""
        until = perf_counter() + _TURN
        if self._frame_start:
            data, self._frame_start = self._frame_start + data, b""
        at = min(self._owed, len(data))
        if at:
            self._owed -= at
            super().data_received(data[:at])
        count = 0  # of messages
        while at < len(data) and self.conn.state is State.OPEN:
            spans: list[list[int]] = []
            if self.conn.current_size is None:  # else a message has come in part
                plain, spans, at = payloads(data, at, self.config.ws_max_size)
                self._deliver_plain(plain, spans)
            if not spans:
                at = self._other(data, at)
            count += len(spans)
            if (count >= _MESSAGES or perf_counter() >= until) and self.conn.state is State.OPEN:
                return data[at:]
        return b""

    def _deliver_plain(self, plain: bytes, spans: list[list[int]]) -> None:
        """Deliver the payloads of plain frames."""
        messages: list[Message] = []
        text = plain.decode("ascii") if plain.isascii() else None
        for first, start, stop in spans:
            if first == BINARY:
                messages.append(plain[start:stop])
            elif text is not None:
                messages.append(text[start:stop])
            else:
                try:
                    messages.append(plain[start:stop].decode())
                except UnicodeDecodeError as error:
                    self._deliver(messages)
                    self._no_text(error)
                    return
        self._deliver(messages)

    def _other(self, data: bytes, at: int) -> int:
        """Have the library see to the frame that begins at `at`, as far as it is here; where the next one begins."""
        size = len(data)
        head = data[at : at + 10]
        if len(head) > 1 and (head[1] < MASKED or head[0] & 0x0F not in _OPCODES):
            self._in_step = False  # no frame of a client: the library ends the connection for it
            super().data_received(data[at:])
            return size
        extra = 0 if len(head) < 2 else _EXTRA.get(head[1], 0)
        if len(head) < 2 + extra:
            self._frame_start = data[at:]
            return size
        length = int.from_bytes(head[2 : 2 + extra], "big") if extra else head[1] - MASKED
        end = at + 2 + extra + 4 + length
        self._owed = max(0, end - size)
        super().data_received(data[at:end])
        return min(end, size)

    def _deliver(self, messages: list[Message]) -> None:
        """Messages for the application. Nothing more is read until it has taken them."""
        if not messages:
            return
        self.queue.put_nowait(cast(Any, {"type": _MESSAGE, "messages": messages}))
        self._pause()

    def _pause(self) -> None:
        """Read nothing until `_resume`."""
        if not self.read_paused:
            self.read_paused = True
            self.transport.pause_reading()

    def handle_text(self, event: Frame) -> None:
        """Take the first frame of a text; the library would keep the data of its last frame in memory."""
        super().handle_text(event)
        event.data = b""

    def handle_bytes(self, event: Frame) -> None:
        """Take the first frame of a binary message, likewise."""
        super().handle_bytes(event)
        event.data = b""

    def handle_cont(self, event: Frame) -> None:
        """Take a further frame of a message, likewise; in one buffer, because a message may have millions of frames."""
        if not isinstance(self.frames[0], bytearray):
            self.frames = [cast(Any, bytearray(self.frames[0]))]
        self.frames[0] += event.data
        event.data = b""
        if event.fin:
            self.send_receive_event_to_app()

    def handle_ping(self) -> None:
        """Send the pong; to a client that does not read, only the newest one (RFC 6455, section 5.5.3)."""
        output = b"".join(self.conn.data_to_send())
        closes = self.conn.close_rcvd is not None or self.conn.parser_exc is not None
        if self.writable.is_set() or closes:  # our close frame may be behind the pong
            self.transport.write(output)
        else:
            self._pong = output or self._pong

    def resume_writing(self) -> None:
        """Send the pong that waits."""
        super().resume_writing()
        pong, self._pong = self._pong, b""
        if pong and not self.transport.is_closing():
            self.transport.write(pong)

    def send_receive_event_to_app(self) -> None:
        """Deliver a message that the library has parsed."""
        data, self.frames = b"".join(self.frames), []
        if self.close_sent:  # messages behind a close are ignored
            return
        if self.curr_msg_data_type != "text":
            self._deliver([data])
            return
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            self._no_text(error)
        else:
            self._deliver([text])

    def _no_text(self, error: UnicodeDecodeError) -> None:
        """Close with INVALID_DATA; uvicorn would log the malformed text as a fault of the server."""
        if self.conn.state is State.OPEN:  # else a close has begun in the same read
            self.conn.send_close(CloseCode.INVALID_DATA, f"the text is not UTF-8 from byte {error.start} on")
            self.handle_parser_exception()

    def handle_parser_exception(self) -> None:
        """Deliver the messages before a malformed or too large frame, then close."""
        self.handle_events()
        super().handle_parser_exception()

    # Reading by the application

    async def receive(self) -> Any:
        """Return the next event of ASGI, for applications that do not use `Transport.read`."""
        if not self._rest:
            event: Any = await self.queue.get()
            if event["type"] == _MESSAGE:
                self._rest.extend(event["messages"])
        payload = self._rest.popleft() if self._rest else None
        if not self._rest:
            self._resume()
        if payload is None:
            return event
        kind = "text" if isinstance(payload, str) else "bytes"
        return {"type": "websocket.receive", kind: payload}

    async def read_messages(self) -> Sequence[Message]:
        """Return all messages of one read, in order; none if the connection has ended."""
        event: Any = await self.queue.get()
        self._resume()
        messages: list[Message] = event.get("messages", [])
        return messages

    async def wait_for_turn(self) -> None:
        """Wait for a turn among the connections that have much to do."""
        turn = asyncio.Event()
        self._scheduler.queue(turn.set)
        await turn.wait()

    def _resume(self) -> None:
        """Resume reading if no bytes wait for their turn, and no message for the application.

        After a close the application takes no messages.
        """
        if self._unparsed:
            self._queue_turn()
        elif self.read_paused and (self.queue.empty() or self.close_sent):
            self.read_paused = False
            self.transport.resume_reading()

    # Writing by the application

    def handle_connect(self, event: Request) -> None:
        """Answer the handshake, and offer the transport to the application before it is called."""
        event.path = self._target
        event.headers = Headers((name.decode(), _readable(value)) for name, value in self._headers)
        super().handle_connect(event)
        if self.response.status_code == 101:
            self.scope["headers"] = self._headers
            transport = Transport(self.read_messages, self.write_messages, self.wait_for_turn, self.transport.abort)
            extensions = cast(dict[str, object], self.scope["extensions"])  # of ASGI, whose values are dictionaries
            extensions[EXTENSION] = transport

    async def send(self, message: Any) -> None:
        """Send a message of ASGI, and complete a handshake that the application refuses with a reply."""
        await super().send(message)
        if self.close_sent and self.initial_response is not None:
            self.handshake_complete = True  # uvicorn does not set it, and would log a fault
        if self.handshake is not None and self.handshake_complete:
            self._finish_handshake()

    async def write_messages(self, messages: Sequence[bytes], binary: bool) -> None:
        """Send messages in one write, once the peer has read enough of the earlier ones.

        Raises `OSError` if the connection is closed or closing.
        """
        await self.writable.wait()
        if self.disconnected or self.close_sent or self.conn.state is not State.OPEN:
            raise ClientDisconnected
        opcode = BINARY if binary else TEXT
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

    # The handshake

    @property
    def authenticated(self) -> bool:
        """Tell whether the handshake is complete, for which a key was needed if keys are."""
        return self.handshake_complete

    def abort(self) -> None:
        """Close the connection at once."""
        self.transport.abort()

    expire_handshake = abort
    receiving = True

    def _finish_handshake(self) -> None:
        if self.handshake is not None:
            self.handshake.finish()
            self.handshake = None

    def connection_lost(self, exc: Exception | None) -> None:
        """End the handshake, too."""
        self._unparsed = b""
        self._finish_handshake()
        super().connection_lost(exc)

    # The end

    def refuse(self, error: ServiceError) -> None:
        """Refuse a handshake that the application has not answered."""
        if self.handshake_complete or self.disconnected or self.close_sent:
            return
        self.conn.send_response(self.conn.refusal(error))
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.disconnected = True  # what the application sends finds the client gone
        self.transport.close()

    def shutdown(self) -> None:
        """End the websocket, because the server stops."""
        self.refuse(Stopping("this node stops"))
        super().shutdown()

    def keepalive_timeout(self) -> None:
        """Close, because no pong arrived in time."""
        super().keepalive_timeout()
        self._end()

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        """Close, because the application has returned."""
        super().on_task_complete(task)
        self._end()

    def _end(self) -> None:
        if not self.disconnected:
            self.loop.call_later(self.close_timeout, self.transport.abort)


_FAULT = "an error of the service's own; it was logged"
_EMPTY_HEAD = b"GET / HTTP/1.1\r\n\r\n"
_EXTRA = {MASKED | 126: 2, MASKED | 127: 8}  # bytes of the extended length
_OPCODES = frozenset({0, 1, 2, 8, 9, 10})

_SHORT = struct.Struct("!BB").pack
_LONG = struct.Struct("!BBH").pack
_LONGEST = struct.Struct("!BBQ").pack


def _readable(value: bytes) -> str:
    """Decode a header for the library, whose releases encode what is not ASCII differently."""
    return value.decode("ascii", "replace").replace("\ufffd", "?")
