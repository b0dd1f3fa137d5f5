"""One of several processes behind one port, each a fresh interpreter that the supervisor starts.

A worker reads its settings from a socket and writes heartbeats to it. When the supervisor closes the socket or dies,
the worker shuts down cleanly. So a killed supervisor leaves no process behind.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import msgspec

from service.api import Siblings
from service.exits import CommandFailed
from service.server.listen import CannotServe
from service.server.run import Server, freeze_heap, leave_background
from service.server.supervisor import connection_counts, one_at_a_time
from service.server.worker_process import HEARTBEAT_EVERY, Heartbeat, Start
from service.settings import Settings
from service.telemetry import LineWriter, configure

__all__ = ["Worker", "main"]

logger = logging.getLogger("rarestream.workers")


class Worker(Server):
    """The service in one of several processes."""

    def __init__(self, settings: Settings, start: Start, channel: socket.socket, lines: LineWriter) -> None:
        """Make the application. `channel`: the socket to the supervisor."""
        self._directory = Path(start.directory)
        self._channel = channel
        self._siblings = Siblings(self._directory, start.number, start.generation)
        self.orphaned = False  # the supervisor is gone
        self._was_ready = False
        super().__init__(settings, socket.socket(fileno=start.listener), ready=self._report_ready, lines=lines)
        self._counts, self._place = connection_counts(self._directory, settings.workers), start.number - 1

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
        await super()._open(sockets)

    def _close(self, sockets: list[socket.socket] | None) -> None:
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
