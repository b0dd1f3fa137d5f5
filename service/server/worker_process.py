"""A worker process as its supervisor sees it: heartbeats, stack dumps, and the end of a worker that hangs.

    supervisor -> worker    `Start`: a line of JSON with its settings
    worker -> supervisor    `Heartbeat`: a line of JSON every second
    worker -> supervisor    stacks, through a pipe: the bytes that `faulthandler` writes at SIGUSR2

A ready worker without heartbeats hangs; a starting worker whose heartbeats report no progress is stuck. The supervisor
has it dump its stacks, waits some seconds for a sign of life, and kills it without one.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any, Literal, Self

import msgspec

from service.telemetry import BackgroundTasks, LineWriter

__all__ = ["HEARTBEAT_EVERY", "Heartbeat", "Start", "WorkerProcess", "show_stacks"]

logger = logging.getLogger("rarestream.workers")

# Register the handler before any import that could hang, because SIGUSR2 would end the process without it. The worker
# gets the supervisor's import path: another installed copy would be other code, with kernels of its own.
_PROGRAM = (
    "import faulthandler, signal, sys; faulthandler.register(signal.SIGUSR2, file=int(sys.argv[1]));"
    "sys.path[:] = sys.argv[3:]; from service.server.worker import main; main()"
)
HEARTBEAT_EVERY = 1.0  # seconds between two heartbeats, and between two checks of the supervisor
_STACKS = signal.SIGUSR2
_WRITING = 5.0  # seconds to write the stacks, and for a sign of life
_GATHER = 0.3  # seconds without more bytes after which the stacks are complete
_LEAVE = 120.0  # seconds allowed for the last snapshots after SIGTERM
_REPORTS = 10  # log lines about a stuck start before it is killed


class Start(msgspec.Struct):
    """The first line that a worker reads."""

    settings: dict[str, Any]
    number: int  # from 1 on; a successor has the number of its predecessor
    generation: int  # ordinal among the started processes
    listener: int  # file descriptor of the shared socket
    directory: str  # that all processes share


class Heartbeat(msgspec.Struct, frozen=True):
    """What a worker reports every second. Another one than before is progress of the start."""

    stage: Literal["import", "settings", "open", "wait", "recover", "serve"]
    learners: int = 0  # and groups, recovered so far
    records: int = 0  # of their logs
    reason: str = ""  # why the store does not answer, while the worker waits for it

    @property
    def activity(self) -> str:
        """What the worker does, for log lines."""
        if self.stage == "recover":
            return (
                f"recovers the learners of the store: {self.learners} so far, by their logs at {self.records} records "
                "in all"
            )
        return {
            "import": "starts its interpreter and imports its modules; no heartbeat yet",
            "settings": "reads its settings and makes the application",
            "open": "opens the store",
            "wait": f"waits for the store, which does not answer: {self.reason}",
            "serve": "serves",
        }[self.stage]


class WorkerProcess:
    """A worker process under supervision."""

    def __init__(
        self,
        number: int,
        process: asyncio.subprocess.Process,
        channel: socket.socket,
        stacks: int,
        patience: tuple[float, float],
        show: Callable[[int, str], None],
    ) -> None:
        """Supervise a process. `channel`: closing it makes the worker leave. `stacks`: descriptor of its stack dumps.

        `patience`: seconds without a heartbeat, and seconds without progress of the start. `show` gets the number and
        each stack dump.
        """
        self.number = number
        self.ready_at: float | None = None
        self.ended = asyncio.create_task(process.wait(), name=f"worker {number}")
        self._process = process
        self._channel = channel
        self._stacks = stacks
        self._patience, self._start_patience = patience
        self._show = show
        self._partial_line = b""  # of the next line
        self._heartbeat = Heartbeat("import")
        self._silent = 0.0  # seconds without a heartbeat
        self._stuck = 0.0  # seconds without progress of the start
        self._killed_for = ""
        self._is_ready = asyncio.Event()
        self._dumped = b""
        self._dump_timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(channel, self._receive)
        self._loop.add_reader(stacks, self._gather)
        self._watching = BackgroundTasks().keep(f"watch worker {number}", self._watch)

    @classmethod
    async def started(
        cls, start: Start, listener: socket.socket, patience: tuple[float, float], show: Callable[[int, str], None]
    ) -> Self:
        """Start the process; `patience` and `show` as above.

        Raises `OSError` if the system runs out of processes, threads or descriptors, or cannot execute it.
        """
        with ExitStack() as handed, ExitStack() as cleanup:
            channel, theirs = socket.socketpair()
            cleanup.callback(channel.close)  # a process that was started after all leaves then
            handed.callback(theirs.close)
            stacks, their_stacks = os.pipe()
            cleanup.callback(os.close, stacks)
            handed.callback(os.close, their_stacks)
            os.set_blocking(stacks, False)
            os.set_blocking(their_stacks, False)  # bytes that do not fit are lost: a signal handler must not wait
            channel.sendall(msgspec.json.encode(start) + b"\n")  # stays there until the worker reads it
            channel.setblocking(False)
            try:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-P", "-c", _PROGRAM, str(their_stacks), str(theirs.fileno()), *sys.path),
                    stdin=subprocess.DEVNULL,
                    pass_fds=(their_stacks, theirs.fileno(), listener.fileno()),
                    process_group=0,  # Ctrl-C in a terminal reaches the supervisor alone
                )
            except RuntimeError as error:  # Python 3.11 needs a thread for it, and cannot start one
                raise OSError(errno.EAGAIN, str(error)) from error
            cleanup.pop_all()
        return cls(start.number, process, channel, stacks, patience, show)

    async def until_ready(self) -> bool:
        """Wait until it is ready or has exited; return whether it is ready."""
        ready = asyncio.create_task(self._is_ready.wait())
        await asyncio.wait([ready, self.ended], return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        return self._is_ready.is_set()

    def _receive(self) -> None:
        try:
            data = self._channel.recv(4096)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        if not data:
            self._loop.remove_reader(self._channel)  # it ends
            return
        *lines, self._partial_line = (self._partial_line + data).split(b"\n")
        for line in lines:
            try:
                heartbeat = msgspec.json.decode(line, type=Heartbeat)
            except msgspec.DecodeError:  # a line that was cut while this process stood still
                continue
            self._silent = 0.0
            if heartbeat.stage == "wait" or heartbeat != self._heartbeat:  # a wait may take any time
                self._stuck = 0.0
            self._heartbeat = heartbeat
            if heartbeat.stage == "serve" and self.ready_at is None:
                self.ready_at = self._loop.time()
                self._is_ready.set()

    async def _watch(self) -> None:
        """Kill it once it hangs. Time while this process is paused, too, does not count."""
        since, reported = 0.0, 0.0  # seconds since the start, and at the last log line
        while True:
            await asyncio.sleep(HEARTBEAT_EVERY)
            self._silent += HEARTBEAT_EVERY
            self._stuck += HEARTBEAT_EVERY
            since += HEARTBEAT_EVERY
            if self.ready_at is None and since - reported >= self._start_patience / _REPORTS:
                reported = since
                age = f" ({self._silent:.0f} s ago)" if 2 * HEARTBEAT_EVERY <= self._silent < since else ""
                logger.warning(
                    "worker %d is not ready after %.0f s: it %s%s", self.number, since, self._heartbeat.activity, age
                )
            why = self._wrong()
            if why and not await self._recovers(why):
                self._killed_for = f" (it {why})"
                self.send(signal.SIGKILL)
                return

    def _wrong(self) -> str:
        """Return why it has to be killed; empty if it need not."""
        if self.ready_at is not None:
            hangs = self._silent >= self._patience
            return f"sent no heartbeat for {self._silent:.0f} s" if hangs else ""
        stuck = self._stuck >= self._start_patience
        return (
            f"made no progress with its start for {self._stuck:.0f} s: it {self._heartbeat.activity}" if stuck else ""
        )

    async def _recovers(self, why: str) -> bool:
        """Dump its stacks; return whether a heartbeat arrives meanwhile. A stopped process is continued."""
        logger.error("worker %d %s; dumping its stacks, then killing it unless it recovers", self.number, why)
        self.send(_STACKS)
        self.send(signal.SIGCONT)  # a stopped process would not write
        await asyncio.sleep(_WRITING)
        if self._wrong():
            logger.error("killing worker %d (acknowledged data is safe)", self.number)
            return False
        logger.warning("worker %d has recovered", self.number)
        return True

    def _gather(self) -> None:
        """Read a part of the stacks; show them when no more bytes arrive."""
        with suppress(BlockingIOError):
            data = os.read(self._stacks, 2**16)
            if not data:
                self._loop.remove_reader(self._stacks)  # it exits
            self._dumped += data
        if self._dump_timer is not None:
            self._dump_timer.cancel()
        self._dump_timer = self._loop.call_later(_GATHER, self._show_all)

    def _show_all(self) -> None:
        dumped, self._dumped = self._dumped, b""
        if dumped:
            self._show(self.number, dumped.decode(errors="backslashreplace"))

    def over(self) -> None:
        """Release what belongs to an exited process."""
        self._watching.cancel()
        self._gather()
        if self._dump_timer is not None:
            self._dump_timer.cancel()
        self._show_all()
        self._loop.remove_reader(self._channel)
        self._loop.remove_reader(self._stacks)
        self._channel.close()
        os.close(self._stacks)

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless it has exited."""
        if not self.ended.done():
            with suppress(ProcessLookupError):  # it has just exited
                self._process.send_signal(number)

    async def leave(self) -> None:
        """Send SIGTERM and wait for the exit."""
        self.send(signal.SIGTERM)
        exited, _ = await asyncio.wait([self.ended], timeout=_LEAVE)
        if not exited:
            logger.error("worker %d still running after %.0f s; sending SIGKILL (data is safe)", self.number, _LEAVE)
            self.send(signal.SIGKILL)
            await asyncio.wait([self.ended])

    @property
    def end(self) -> str:
        """Exit status or signal, in words."""
        status = self.ended.result()
        if status >= 0:
            return f"with status {status}"
        return f"by {signal.Signals(-status).name}{self._killed_for}"


def show_stacks(lines: LineWriter, form: str, number: int, dumped: str) -> None:
    """Log the stacks of a worker: in JSON a line for each thread, as text one block."""
    if form == "json":
        for stack in dumped.strip().split("\n\n"):
            logger.warning("stack of worker %d: %s", number, stack)
        return
    logger.warning("stacks of worker %d:", number)
    lines.put("".join(f"    {line}\n" for line in dumped.strip().splitlines()).encode(errors="backslashreplace"))
