"""The connection of a stream that blocks: TLS that one thread reads while another writes, and an end for Ctrl-C.

OpenSSL lets nobody do that on one connection, and Python's `SSLSocket` does not prevent it: data is lost, or both sides
wait for good. Here every call of OpenSSL has the connection to itself, and none of them waits: what waits, waits for
the network, without the lock.
"""

from __future__ import annotations

import select
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar, cast

from websockets.exceptions import WebSocketException
from websockets.frames import CloseCode
from websockets.sync.client import ClientConnection

__all__ = ["SecuredSocket", "StreamConnection"]

Result = TypeVar("Result")


class SecuredSocket:
    """As much of a socket as websockets uses, around one whose handshake is done. One thread reads at a time."""

    def __init__(self, sock: ssl.SSLSocket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._timeout: float | None = None
        self._sending = threading.Lock()  # a message is sent whole
        self._lock = threading.Lock()  # OpenSSL's, and of what follows
        self._waiting = 0  # threads for the network
        self._closed = False

    def fileno(self) -> int:
        """Of the connection; -1 once it is closed."""
        return self._sock.fileno()

    def getsockname(self) -> Any:
        """This side's address."""
        return self._sock.getsockname()

    def getpeername(self) -> Any:
        """The other side's."""
        return self._sock.getpeername()

    def settimeout(self, seconds: float | None) -> None:
        """How long one call may wait for the network."""
        self._timeout = seconds

    def recv(self, size: int) -> bytes:
        """What has come, at most `size` bytes, once something has; nothing: it is at its end, or closed here.

        Raises TimeoutError and OSError (`ssl.SSLError` is one).
        """
        return self._call(self._sock.recv, size, self._until(), b"")

    def sendall(self, data: bytes | bytearray | memoryview) -> None:
        """Send it whole. Raises TimeoutError and OSError, BrokenPipeError once it is closed here."""
        until = self._until()
        with self._sending, memoryview(data).cast("B") as view:
            sent = 0
            while sent < len(view):
                more = self._call(self._sock.send, view[sent:], until, 0)
                if more == 0:
                    raise BrokenPipeError("the connection was closed")
                sent += more

    def shutdown(self, how: int) -> None:
        """End the connection's one direction, or both; `SSLSocket` would take TLS off and read on without."""
        socket.socket.shutdown(self._sock, how)

    def close(self) -> None:
        """End it; whoever waits for the network returns."""
        with self._lock:
            self._closed = True
            with suppress(OSError):  # the other side has closed it
                socket.socket.shutdown(self._sock, socket.SHUT_RDWR)
            if not self._waiting:  # else the last of them closes it: its number may not be another's meanwhile
                self._sock.close()

    def _until(self) -> float | None:
        return None if self._timeout is None else time.monotonic() + self._timeout

    def _call(self, call: Callable[[Any], Result], what: Any, until: float | None, closed: Result) -> Result:
        """What `call` of `what` returns once it need not wait; `closed` where the connection was closed here."""
        while True:
            with self._lock:
                if self._closed:
                    return closed
                try:
                    return call(what)
                except ssl.SSLWantReadError:
                    event = select.POLLIN
                except ssl.SSLWantWriteError:
                    event = select.POLLOUT
                self._waiting += 1
            try:
                self._wait(event, until)
            finally:
                with self._lock:
                    self._waiting -= 1
                    if self._closed and not self._waiting:
                        self._sock.close()

    def _wait(self, event: int, until: float | None) -> None:
        poll = select.poll()
        poll.register(self._sock, event)
        left = None if until is None else max(0.0, until - time.monotonic()) * 1000
        if not poll.poll(left):
            raise TimeoutError("timed out")


class StreamConnection(ClientConnection):
    """websockets' connection, with TLS that its two threads may use, and which ends though a call was interrupted."""

    _in_send = False  # True stays where Ctrl-C, or what else a signal raises, comes in the midst of `send`

    def __init__(self, sock: socket.socket, *arguments: Any, **named: Any) -> None:
        if isinstance(sock, ssl.SSLSocket):
            sock = cast(socket.socket, SecuredSocket(sock))
        elif not isinstance(sock, socket.socket):  # TLS within that of a proxy, which is websockets' own
            raise WebSocketException("a stream with TLS cannot go through a proxy at an https:// address")
        super().__init__(sock, *arguments, **named)

    def send(self, message: Any, **how: Any) -> None:
        """As websockets'."""
        self._in_send = True
        super().send(message, **how)
        self._in_send = False

    def close(self, code: CloseCode | int = CloseCode.NORMAL_CLOSURE, reason: str = "") -> None:
        """As websockets'; after half a message the connection just ends.

        The other side would take a close for the message's rest, and not answer it. And the lock that it takes may be
        the interrupted call's for as long as the exception lives: websockets' `send_context` is a generator.
        """
        if not self._in_send:
            super().close(code, reason)
            return
        self.protocol.data_to_send()  # what is left of the message is not tried again at the end
        with suppress(OSError):  # it has ended
            self.socket.shutdown(socket.SHUT_RDWR)
