"""One of several processes behind one port, each a fresh interpreter that the supervisor starts.

A worker reads its settings from a socket and writes heartbeats to it. When the supervisor closes the socket or dies,
the worker shuts down cleanly. So a killed supervisor leaves no process behind.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import sys
from collections.abc import Callable, Sized
from contextlib import suppress
from pathlib import Path
from ssl import SSLContext
from typing import NoReturn

import msgspec

from service.api import Siblings
from service.exits import CommandFailed
from service.server.listen import CannotServe
from service.server.run import Server, freeze_heap, leave_background
from service.server.supervisor import NOBODY, connection_counts, one_at_a_time
from service.server.worker_process import HEARTBEAT_EVERY, Heartbeat, Start
from service.settings import Settings
from service.telemetry import LineWriter, configure

__all__ = ["Acceptor", "Worker", "main"]

logger = logging.getLogger("rarestream.workers")

_YIELD = 0.001  # seconds that a process leaves to others with fewer connections
_RETRY = 1.0  # seconds until the next try to accept, if the system has run out of a resource
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Acceptor:
    """Accepts connections from a socket that several processes share.

    The system wakes all of them, and the quickest would get nearly all connections of a burst. So a process that has
    more connections than another waits for a millisecond before it accepts.
    """

    def __init__(
        self,
        listener: socket.socket,
        connections: Sized,
        protocol: Callable[[], asyncio.Protocol],
        counts: memoryview,
        place: int,
        ssl: SSLContext | None = None,
    ) -> None:
        """Accept until `close`. `connections`: the open ones; `counts[place]`: their number, for the others."""
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        self._connections = connections
        self._protocol = protocol
        self._counts = counts
        self._place = place
        self._ssl = ssl
        self._connecting: set[asyncio.Task[None]] = set()
        self._later: asyncio.TimerHandle | None = None
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
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return  # another process was quicker, or the client has gone
        except OSError as error:
            if error.errno not in _EXHAUSTED:
                raise
            logger.error("cannot accept a connection: %s", error.strerror)
            self._pause(_RETRY)
            return
        task = self._loop.create_task(self._connect(connection))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)
        self.count()

    async def _connect(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._protocol, connection, ssl=self._ssl)
        except OSError as error:  # the client has gone
            logger.debug("a connection ended before it began: %r", error)
            connection.close()


class Worker(Server):
    """The service in one of several processes."""

    def __init__(self, settings: Settings, start: Start, channel: socket.socket, lines: LineWriter) -> None:
        """Make the application. `channel`: the socket to the supervisor."""
        self._directory = Path(start.directory)
        self._place = start.number - 1
        self._counts = connection_counts(self._directory, settings.workers)
        self._channel = channel
        self._siblings = Siblings(self._directory, start.number, start.generation)
        self._acceptor: Acceptor | None = None
        self.orphaned = False  # the supervisor is gone
        self._was_ready = False
        super().__init__(settings, socket.socket(fileno=start.listener), ready=self._report_ready, lines=lines)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the app and accept connections, unless the supervisor exited meanwhile."""
        asyncio.get_running_loop().add_reader(self._channel, self._receive)
        self._beat()
        await super().startup(sockets)

    async def _open(self, sockets: list[socket.socket] | None) -> None:
        exposition = self._app.exposition
        try:
            await self._siblings.listen(exposition.answer)
        except OSError as error:  # the directory has gone, or its path is too long for a socket
            raise CannotServe(f"cannot create a socket in {self._directory}: {error}") from error
        exposition.siblings = self._siblings
        await super()._open([])
        assert sockets is not None
        (listener,) = sockets
        self._acceptor = Acceptor(
            listener, self.server_state.connections, self._protocol, self._counts, self._place, self.config.ssl
        )

    def _protocol(self) -> asyncio.Protocol:
        http_protocol: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return http_protocol

    async def on_tick(self, counter: int) -> bool:
        """Publish the number of connections, ten times a second."""
        if self._acceptor is not None:
            self._acceptor.count()
        return await super().on_tick(counter)

    def _close(self, sockets: list[socket.socket] | None) -> None:
        if self._acceptor is not None:
            self._acceptor.close()
        self._siblings.close()
        super()._close(sockets)

    def _report_ready(self) -> None:
        freeze_heap()
        self._was_ready = True
        _send(self._channel, self._heartbeat())

    def _beat(self) -> None:
        """Send heartbeats while the event loop runs: before the worker is ready, too, and while it shuts down."""
        _send(self._channel, self._heartbeat())
        asyncio.get_running_loop().call_later(HEARTBEAT_EVERY, self._beat)

    def _heartbeat(self) -> Heartbeat:
        """Return the stage of the worker's start, and how far it is."""
        if self._was_ready:
            return Heartbeat("serve")
        if not self._app.state.is_open:
            return Heartbeat("open")
        engine = self._app.state.engine
        if engine.node.unreachable is not None:
            return Heartbeat("wait", reason=str(engine.node.unreachable))
        positions = [replica.position for replica in engine.replicas.values()]
        positions += [group.position for group in engine.groups.values()]
        return Heartbeat("recover", len(positions) + len(engine.evicted), sum(positions))

    def _receive(self) -> None:
        try:
            data = self._channel.recv(64)
        except ConnectionError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._channel)
            logger.error("the supervisor exited; shutting down")
            self.orphaned = self.should_exit = True


def _send(channel: socket.socket, heartbeat: Heartbeat) -> None:
    with suppress(OSError):  # the supervisor exited, which `_receive` notices, or it is paused and the buffer is full
        channel.send(msgspec.json.encode(heartbeat) + b"\n")


def main() -> NoReturn:
    """Run a worker. The second argument is the file descriptor of the socket to the supervisor."""
    channel = socket.socket(fileno=int(sys.argv[2]))
    with channel.makefile("rb") as stream:
        line = stream.readline()
    if not line:
        sys.exit(0)  # the supervisor exited already
    channel.setblocking(False)
    start = msgspec.json.decode(line, type=Start)
    _send(channel, Heartbeat("settings"))
    settings = Settings(**start.settings)
    directory = Path(start.directory)
    try:
        lines = configure(one_at_a_time(directory), settings.log_format, settings.log_level, start.number)
        worker = Worker(settings, start, channel, lines)
    except OSError as error:
        print(f"error: cannot use the workers' directory {directory}: {error.strerror}", file=sys.stderr, flush=True)
        sys.exit(1)
    except CommandFailed as error:
        _fail(error)
    if worker.warning is not None and start.number == 1:
        logger.warning(worker.warning)
    try:
        with suppress(KeyboardInterrupt):
            worker.run()
    except CommandFailed as error:
        _fail(error)
    finally:
        if worker.orphaned:
            _remove(directory)
    leave_background()
    sys.exit(0)


def _fail(error: CommandFailed) -> NoReturn:
    print(f"error: {error}", file=sys.stderr, flush=True)
    sys.exit(error.exit_status)


def _remove(directory: Path) -> None:
    """Remove what a dead supervisor left behind, once the last worker leaves."""
    with suppress(OSError):
        for name in ("open", "log"):
            (directory / name).unlink(missing_ok=True)
        directory.rmdir()
