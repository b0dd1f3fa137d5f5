"""The connection of a blocking stream: one thread may read TLS while another writes, and Ctrl-C can end it.

OpenSSL allows one call at a time per connection, and Python's `SSLSocket` does not enforce that: data is lost, or both
sides wait forever. Here a lock protects each call of OpenSSL, and no call blocks. Threads wait for the network without
the lock.
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
    """The part of a socket that websockets uses, after the TLS handshake. One thread reads at a time."""

    def __init__(self, sock: ssl.SSLSocket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._timeout: float | None = None
        self._sending = threading.Lock()  # one message at a time
        self._lock = threading.Lock()  # protects OpenSSL and the two fields below
        self._waiting = 0  # threads that wait for the network
        self._closed = False

    def fileno(self) -> int:
        """Return the file descriptor; -1 once the connection is closed."""
        return self._sock.fileno()

    def getsockname(self) -> Any:
        """Return the local address."""
        return self._sock.getsockname()

    def getpeername(self) -> Any:
        """Return the address of the peer."""
        return self._sock.getpeername()

    def settimeout(self, seconds: float | None) -> None:
        """Set how long one call may wait for the network."""
        self._timeout = seconds

    def recv(self, size: int) -> bytes:
        """Wait for data; return at most `size` bytes, or none at the end of the stream and after `close`.

        Raises TimeoutError and OSError (`ssl.SSLError` is one).
        """
        return self._call(self._sock.recv, size, self._until(), b"")

    def sendall(self, data: bytes | bytearray | memoryview) -> None:
        """Send all of `data`. Raises TimeoutError and OSError; BrokenPipeError after `close`."""
        until = self._until()
        with self._sending, memoryview(data).cast("B") as view:
            count = 0
            while count < len(view):
                more = self._call(self._sock.send, view[count:], until, 0)
                if more == 0:
                    raise BrokenPipeError("the connection was closed")
                count += more

    def shutdown(self, how: int) -> None:
        """Shut down one direction or both; `SSLSocket.shutdown` would drop TLS and go on in plain text."""
        socket.socket.shutdown(self._sock, how)

    def close(self) -> None:
        """Close the connection; threads that wait for the network return."""
        with self._lock:
            self._closed = True
            with suppress(OSError):  # the peer has closed it
                socket.socket.shutdown(self._sock, socket.SHUT_RDWR)
            if not self._waiting:  # else the last of them closes it: no other file may get its descriptor before
                self._sock.close()

    def _until(self) -> float | None:
        return None if self._timeout is None else time.monotonic() + self._timeout

    def _call(self, call: Callable[[Any], Result], what: Any, until: float | None, closed: Result) -> Result:
        """Call `call(what)` until it need not wait, and return its result; return `closed` after `close`."""
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
    """A connection of websockets with TLS for two threads; it ends even after an interrupted call."""

    _in_send = False  # stays True if Ctrl-C or another signal interrupts `send`

    def __init__(self, sock: socket.socket, *arguments: Any, **named: Any) -> None:
        if isinstance(sock, ssl.SSLSocket):
            sock = cast(socket.socket, SecuredSocket(sock))
        elif not isinstance(sock, socket.socket):  # TLS within the TLS of a proxy: a class of websockets
            raise WebSocketException("a stream with TLS cannot go through a proxy at an https:// address")
        super().__init__(sock, *arguments, **named)

    def send(self, message: Any, **how: Any) -> None:
        """Send a message, as the base class."""
        self._in_send = True
        super().send(message, **how)
        self._in_send = False

    def close(self, code: CloseCode | int = CloseCode.NORMAL_CLOSURE, reason: str = "") -> None:
        """Close the connection, as the base class; after half a message only shut it down.

        The peer would read the close frame as the rest of the message. The interrupted call may also hold the lock
        that a close needs for as long as its exception lives: `send_context` of websockets is a generator.
        """
        if not self._in_send:
            super().close(code, reason)
            return
        self.protocol.data_to_send()  # drop the rest of the message
        with suppress(OSError):  # it has ended
            self.socket.shutdown(socket.SHUT_RDWR)
