"""Accepts connections while there are file descriptors for them, from a socket that several processes may share."""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
import sys
from collections.abc import Callable, Collection, MutableSequence
from functools import partial
from ssl import SSLContext
from typing import Any

from service.auth import GRACE, Handshake, Handshakes
from service.server.http_protocol import HttpProtocol
from service.server.listen import NOBODY
from service.settings import Settings

__all__ = ["Acceptor", "capacity", "limit_connections"]

logger = logging.getLogger("rarestream.connections")

_YIELD = 0.001  # seconds that a process leaves to others with fewer connections
_WAIT = 0.02  # seconds until the next try, if every connection is in use
_FULL = 1.0  # seconds for which all are in use before the log says so
_RETRY = 1.0  # seconds until the next try to accept, if the system has run out of a resource
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_SPARE = 64  # file descriptors for the store, the log and files, or a quarter of all if that is more


def capacity() -> int:
    """Return how many connections this process may have open, by its limit of file descriptors."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if limit == resource.RLIM_INFINITY else max(1, limit - max(_SPARE, limit // 4))


def limit_connections(settings: Settings) -> Settings:
    """Return settings with at most a quarter of the file descriptors for websockets, and for streams of live metrics.

    They stay open for long, so requests would find none left.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = {name: getattr(settings, name) for name in ("ws_connections", "max_streams")}
    lower = {name: limit // 4 for name, count in most.items() if limit != resource.RLIM_INFINITY and count > limit // 4}
    for name, count in lower.items():
        logger.warning(
            "%s is %d, not %d: the limit of file descriptors (ulimit -n) is %d", name, count, most[name], limit
        )
    return settings.model_copy(update=lower)


class Acceptor:
    """Accepts one connection in each iteration of the event loop, so that its request is read before more come.

    The system wakes all processes that share the socket, and the quickest would get nearly all connections of a burst.
    So a process that has more connections than another waits for a millisecond before it accepts.

    If all descriptors for connections are in use, a connection that is not authenticated is closed for the next one,
    or else the one whose client has owed a request, or the rest of one, for longest.
    """

    def __init__(
        self,
        listener: socket.socket,
        connections: Collection[Any],
        protocol: Callable[[Handshake], asyncio.Protocol],
        handshakes: Handshakes,
        counts: MutableSequence[int] | memoryview,
        place: int,
        ssl: SSLContext | None = None,
    ) -> None:
        """Accept until `close`. `connections`: the open ones; `counts[place]`: their number, for the others."""
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        self._connections = connections
        self._protocol = protocol
        self._handshakes = handshakes
        self._counts = counts
        self._place = place
        self._ssl = ssl
        self._connecting: set[asyncio.Task[None]] = set()
        self._later: asyncio.TimerHandle | None = None
        self._full_since: float | None = None
        listener.setblocking(False)
        self.count()
        self._loop.add_reader(listener, self._wake)

    def count(self) -> int:
        """Publish and return the number of connections of this process."""
        open_connections = self._counts[self._place] = len(self._connections) + len(self._connecting)
        return open_connections

    def close(self) -> None:
        """Stop accepting; waiting connections are left to the other processes."""
        self._counts[self._place] = NOBODY
        if self._later is None:
            self._loop.remove_reader(self._listener)
        else:
            self._later.cancel()

    def _wake(self) -> None:
        if self.count() > min(self._counts):
            self._pause(_YIELD)
        else:
            self._take()

    def _pause(self, seconds: float) -> None:
        self._loop.remove_reader(self._listener)
        self._later = self._loop.call_later(seconds, self._go_on)

    def _go_on(self) -> None:
        self._later = None
        self._loop.add_reader(self._listener, self._wake)
        self._take()

    def _take(self) -> None:
        if self.count() >= capacity() and not self._make_room():
            self._report_full()
            self._pause(_WAIT)
            return
        self._full_since = None
        try:
            connection, address = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return  # another process was quicker, or the client has gone
        except OSError as error:
            if error.errno not in _EXHAUSTED:
                raise
            logger.error("cannot accept a connection: %s", error.strerror)
            self._pause(_YIELD if self._make_room() else _RETRY)
            return
        opening = _Opening()
        handshake = self._handshakes.begin(address[0], opening)
        opening.task = task = self._loop.create_task(self._connect(connection, handshake))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)
        self.count()

    def _make_room(self) -> bool:
        """Close a connection that another one may need more; return whether there was any."""
        if self._handshakes.make_room():
            return True
        before = self._loop.time() - GRACE
        idle = [(item.idle_since, item) for item in self._connections if isinstance(item, HttpProtocol)]
        since, longest = min(idle, key=lambda pair: pair[0], default=(before, None))
        if longest is None or since >= before:
            return False
        self._handshakes.count("idle", longest.client[0] if longest.client else "an unknown address")
        longest.abort()
        return True

    def _report_full(self) -> None:
        now = self._loop.time()
        self._full_since = self._full_since or now
        if now - self._full_since > _FULL:
            self._full_since = now
            logger.error(
                "cannot accept connections: %d are in use; raise the limit of file descriptors (ulimit -n)",
                self.count(),
            )

    async def _connect(self, connection: socket.socket, handshake: Handshake) -> None:
        """Connect the socket with a protocol; with TLS, once both sides have agreed on keys."""
        opening = handshake.connection
        try:
            await self._loop.connect_accepted_socket(partial(self._protocol, handshake), connection, ssl=self._ssl)
        except OSError as error:  # the client has gone
            logger.debug("a connection ended before it began: %r", error)
            connection.close()
        finally:
            if handshake.connection is opening:  # no protocol has taken it over
                handshake.finish()


class _Opening:
    """A connection that has no protocol yet."""

    task: asyncio.Task[None]
    authenticated = False
    receiving = True

    def abort(self) -> None:
        """Close the connection."""
        self.task.cancel()

    expire_handshake = abort
