"""uvicorn's websockets with less work for each message, and an end for peers that do not read.

    bytes -> frames, here -> a whole, plain message: unmasked on the spot  -> all of one read, to the application
                          -> anything else: websockets' own parser         -> its events, through uvicorn

Plain are the frames that nearly all messages are: in one piece, masked, not too large, and whole in what was read. The
library sees the others (pieces, pings, a close, what is no frame, what goes on in the next read), and everything once
a close is under way; it is always given a frame to its end before the next one is looked at here, so its state is the
same as if it had seen them all. The application finds what ASGI does not have, reading and writing many messages at
once, in its scope, under the extension `rarestream.transport`.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Sequence
from typing import Any, cast

from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode
from websockets.http11 import Request
from websockets.protocol import State

from service.api.websocket import EXTENSION, Message, Transport
from service.wire.kernels import BINARY, MASKED, TEXT, payloads

__all__ = ["WebSocketProtocol"]


_CAME = "rarestream.receive"  # messages in the queue; all other events there are ASGI's


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """One connection.

    uvicorn closes a connection once all that was written has been read, which a peer may put off for good; here that
    has an end.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._in_step = False  # whether the library has been given whole frames, but for
        self._owed = 0  # so many bytes of the last one, which are to come
        self._begun = b""  # of a frame whose length is not known yet
        self._rest: deque[Message] = deque()  # out of the queue, not received yet

    # What comes

    def data_received(self, data: bytes) -> None:
        """Some of the stream."""
        if self._in_step and self.conn.state is State.OPEN:
            self._frames(data)
            return
        if not self.handshake_initiated:
            self._in_step = data.find(_HEAD_END) == len(data) - len(_HEAD_END) >= 0
        else:  # frames before the handshake's end, or a close is under way
            self._in_step = False
        super().data_received(self._begun + data)
        self._begun = b""

    def _frames(self, data: bytes) -> None:
        """Frames, the first and the last of which may be here in part. What is behind a close is not looked at."""
        if self._begun:
            data, self._begun = self._begun + data, b""
        at = min(self._owed, len(data))
        if at:
            self._owed -= at
            super().data_received(data[:at])
        while at < len(data) and self.conn.state is State.OPEN:
            at = self._plain(data, at)
            if at < len(data):
                at = self._other(data, at)

    def _plain(self, data: bytes, at: int) -> int:
        """Deliver the messages that are there from `at` on, up to what is no plain frame; where that begins."""
        came: list[Message] = []
        complete = self.conn.current_size is None  # else a message has come in part
        while complete and at < len(data):
            plain, spans, at = payloads(data, at, self.config.ws_max_size)
            text = plain.decode("ascii") if plain.isascii() else None
            for first, start, stop in spans:
                if first == BINARY:
                    came.append(plain[start:stop])
                elif text is not None:
                    came.append(text[start:stop])
                else:
                    try:
                        came.append(plain[start:stop].decode())
                    except UnicodeDecodeError as error:
                        self._deliver(came)
                        self._no_text(error)
                        return len(data)
            complete = bool(spans)
        self._deliver(came)
        return at

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
            self._begun = data[at:]
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
        self.queue.put_nowait(cast(Any, {"type": _CAME, "messages": messages}))
        if not self.read_paused:
            self.read_paused = True
            self.transport.pause_reading()

    def send_receive_event_to_app(self) -> None:
        """A message that the library has read is whole."""
        data, self.frames = b"".join(self.frames), []
        if self.close_sent:  # what comes behind a close is nobody's
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
        """A text is none, which is the client's fault; uvicorn would log it as an error of ours."""
        if self.conn.state is State.OPEN:  # else the client, or we, have begun to close it further on in what came
            self.conn.send_close(CloseCode.INVALID_DATA, f"the text is not UTF-8 from byte {error.start} on")
            self.handle_parser_exception()

    def handle_parser_exception(self) -> None:
        """What came is no frame, or too large a one. The messages before it have come all the same."""
        self.handle_events()
        super().handle_parser_exception()

    # What the application reads

    async def receive(self) -> Any:
        """What has come next: ASGI, for applications that do not use `Transport.read` from the handshake on."""
        if not self._rest:
            event: Any = await self.queue.get()
            if event["type"] == _CAME:
                self._rest.extend(event["messages"])
        payload = self._rest.popleft() if self._rest else None
        if not self._rest:
            self._resume()
        if payload is None:
            return event
        kind = "text" if isinstance(payload, str) else "bytes"
        return {"type": "websocket.receive", kind: payload}

    async def read_messages(self) -> Sequence[Message]:
        """All messages that one piece of the stream has brought, in order; none: the connection has come to its end."""
        event: Any = await self.queue.get()
        self._resume()
        messages: list[Message] = event.get("messages", [])
        return messages

    def _resume(self) -> None:
        """Read on, if nothing waits for the application any more."""
        if self.read_paused and self.queue.empty():
            self.read_paused = False
            self.transport.resume_reading()

    # What it sends

    def handle_connect(self, event: Request) -> None:
        """The application is about to be called."""
        super().handle_connect(event)
        if self.response.status_code == 101:
            transport = Transport(self.read_messages, self.write_messages, self.transport.abort)
            extensions = cast(dict[str, object], self.scope["extensions"])  # of ASGI, whose values are dictionaries
            extensions[EXTENSION] = transport

    async def send(self, message: Any) -> None:
        """What the application says. A handshake that it refuses by a reply of its own is over as well."""
        await super().send(message)
        if self.close_sent and self.initial_response is not None:
            self.handshake_complete = True  # uvicorn leaves that out, and would log an error of ours

    async def write_messages(self, messages: Sequence[bytes], binary: bool) -> None:
        """Send messages in one write, when the peer has read enough of what was sent before.

        Raises `OSError` where the connection is closed, or being closed.
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

    # The end

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


_HEAD_END = b"\r\n\r\n"  # of the handshake's request
_EXTRA = {MASKED | 126: 2, MASKED | 127: 8}  # bytes of the length behind the second one
_OPCODES = frozenset({0, 1, 2, 8, 9, 10})

_SHORT = struct.Struct("!BB").pack
_LONG = struct.Struct("!BBH").pack
_LONGEST = struct.Struct("!BBQ").pack
