"""Websocket load: one connection, a window of messages under way, every latency taken.

Frames are built beforehand (RFC 6455). A client's frames have to be masked: the mask is zero, which leaves the bytes as
they are, so that a number can be put into a frame that is built already; to the server it is a mask as any other.
Replies have to come in the order of the messages, as they do on one learner.
"""

from __future__ import annotations

import asyncio
import gc
import json
from array import array
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Iterator
from time import perf_counter_ns, process_time
from typing import cast

import numpy as np
import uvloop

from benchmarks.service.http_load import LoadFailed, Traffic

__all__ = ["BINARY", "TEXT", "drive", "frame"]

_PATIENCE = 60.0  # seconds for the handshake, and beyond the end for the last replies
TEXT, BINARY = 1, 2  # opcodes of messages
_CLOSE, _PING, _PONG = 8, 9, 10
_ERRORS = (b'"code":', b"\xa4code")  # members of an error, in JSON and in MessagePack; no reply has them


def frame(payload: bytes, opcode: int = TEXT) -> bytes:
    """Return a client frame in one piece, masked by zero."""
    size = len(payload)
    if size < 126:
        head = bytes([0x80 | opcode, 0x80 | size])
    elif size < 2**16:
        head = bytes([0x80 | opcode, 0xFE]) + size.to_bytes(2, "big")
    else:
        head = bytes([0x80 | opcode, 0xFF]) + size.to_bytes(8, "big")
    return head + bytes(4) + payload


class _Socket(asyncio.Protocol):
    """One connection. `greeted` completes with the handshake, or with the first message of a greeting server."""

    def __init__(self, window: int, greeting: bool) -> None:
        loop = asyncio.get_running_loop()
        self.greeted: asyncio.Future[None] = loop.create_future()
        self.finished: asyncio.Future[None] = loop.create_future()
        self.window = window
        self.latencies = array("q")
        self.last = 0
        self._greeting = greeting
        self._upgraded = False
        self._over = False  # failed or finished: later events are no failure
        self._buffer = b""
        self._under_way: deque[int] = deque()  # time of sending of each
        self._messages: Iterator[bytes] = iter(())
        self._until = 0
        self._transport: asyncio.Transport  # from connection_made on

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # the transport of uvloop has another base class

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(0, f"the server closed the connection: {exc or 'no reason given'}")

    def write(self, data: bytes) -> None:
        self._transport.write(data)

    def close(self) -> None:
        self._over = True
        self._transport.abort()

    def start(self, messages: Iterator[bytes], until: int) -> None:
        """Fill the window, and refill it until `until`, in nanoseconds of perf_counter."""
        self._messages, self._until = messages, until
        self._send(self.window)

    def _fail(self, status: int, detail: str) -> None:
        if not self._over:
            self._over = True
            future = self.finished if self.greeted.done() else self.greeted
            future.set_exception(LoadFailed(status, detail))

    def _send(self, most: int) -> None:
        now = perf_counter_ns()
        messages = []
        if now < self._until:
            for _, message in zip(range(most), self._messages, strict=False):  # range first, so no message is lost
                messages.append(message)
                self._under_way.append(now)
        if messages:
            self.write(b"".join(messages))
        elif not self._under_way and not self._over:
            self._over = True
            self.finished.set_result(None)

    def data_received(self, data: bytes) -> None:
        self._buffer = self._buffer + data if self._buffer else data
        if not self._upgraded and not self._handshake():
            return
        buffer, at, size = self._buffer, 0, len(self._buffer)
        now, answered = perf_counter_ns(), 0
        while size - at >= 2:
            length, start = buffer[at + 1], at + 2
            if length == 126:
                length, start = int.from_bytes(buffer[at + 2 : at + 4], "big"), at + 4
            elif length == 127:
                length, start = int.from_bytes(buffer[at + 2 : at + 10], "big"), at + 10
            end = start + length
            if end > size:
                break
            opcode = buffer[at] & 15
            if opcode >= _CLOSE:
                self._control(opcode, buffer[start:end])
            elif not self.greeted.done():
                self._hello(buffer[start:end])
            else:
                if buffer.find(_ERRORS[0], start, end) >= 0 or buffer.find(_ERRORS[1], start, end) >= 0:
                    self._fail(0, f"a message was refused: {buffer[start:end][:500].decode(errors='replace')}")
                    return
                self.latencies.append(now - self._under_way.popleft())
                answered += 1
            at = end
        self._buffer = buffer[at:]
        if answered:
            self.last = now
            self._send(answered)

    def _handshake(self) -> bool:
        """Return whether the server has accepted; then `_buffer` has the bytes after its reply."""
        head, end, rest = self._buffer.partition(b"\r\n\r\n")
        if not end:
            return False
        if not head.startswith(b"HTTP/1.1 101"):
            line = head.partition(b"\r\n")[0].decode(errors="replace")
            self._fail(int(head[9:12]), f"no websocket here: {line}")
            return False
        self._upgraded, self._buffer = True, rest
        if not self._greeting:
            self.greeted.set_result(None)
        return True

    def _hello(self, payload: bytes) -> None:
        self.window = min(self.window, json.loads(payload)["credit"])
        self.greeted.set_result(None)

    def _control(self, opcode: int, payload: bytes) -> None:
        if opcode == _PING:
            self.write(frame(payload, _PONG))
        elif opcode == _CLOSE:
            self._fail(0, f"the server closed: {payload[:2].hex()} {payload[2:].decode(errors='replace')}")


def drive(
    port: int,
    path: str,
    messages: Iterator[bytes],
    window: int,
    seconds: float,
    meter: Callable[[], float] = lambda: 0.0,
    greeting: bool = True,
) -> Traffic:
    """Send frames on one websocket, `window` under way at a time (or the greeting's credit), until `seconds` are over.

    `greeting`: the server speaks first. `meter` is read before the first message and after the last reply. Raises
    `LoadFailed` where the server takes no websocket, refuses a message, closes, or is silent.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_drive(port, path, messages, window, seconds, meter, greeting))


async def _drive(
    port: int,
    path: str,
    messages: Iterator[bytes],
    window: int,
    seconds: float,
    meter: Callable[[], float],
    greeting: bool,
) -> Traffic:
    loop = asyncio.get_running_loop()
    _, socket = await loop.create_connection(lambda: _Socket(window, greeting), "127.0.0.1", port)
    collected = gc.isenabled()
    gc.disable()  # a collection here would be seen as the server's tail
    try:
        key = b64encode(bytes(16)).decode()
        socket.write(
            f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
            f"sec-websocket-version: 13\r\nsec-websocket-key: {key}\r\n\r\n".encode()
        )
        await asyncio.wait_for(asyncio.shield(socket.greeted), _PATIENCE)
        server, client = meter(), process_time()
        began = perf_counter_ns()
        socket.start(messages, began + int(seconds * 1e9))
        await asyncio.wait_for(asyncio.shield(socket.finished), seconds + _PATIENCE)
        client, server = process_time() - client, meter() - server
    except TimeoutError:
        raise LoadFailed(0, f"silence for {_PATIENCE:.0f} s") from None
    finally:
        if collected:
            gc.enable()
        socket.close()
    return Traffic(np.array(socket.latencies) / 1e6, (socket.last - began) / 1e9, client, server, [])
