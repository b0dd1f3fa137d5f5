"""One of several processes behind one port, as its supervisor sees it: what it says, and what is done if it does not.

    supervisor -> worker    a line of JSON, `Start`: what to be
    worker -> supervisor    lines of JSON, `Word`, now and then: that it is alive, and what it does
    worker -> supervisor    its stacks, by a pipe: the bytes that `faulthandler` writes at SIGUSR2

One that is ready and says nothing for long hangs; one that is not ready and gets no further with its start is stuck.
Either shows its stacks and has some seconds to write them; unless it has been heard of by then, it is killed.
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
from typing import Any, Self

import msgspec

from service.telemetry import LineWriter

__all__ = ["ALIVE_EVERY", "Start", "Supervised", "Word", "show_stacks"]

logger = logging.getLogger("rarestream.workers")

# Before anything is imported that could hang; without it the signal would end the process. Then comes what the
# supervisor itself imports, from wherever: another copy that is installed would be other code, with kernels of its own.
_PROGRAM = (
    "import faulthandler, signal, sys; faulthandler.register(signal.SIGUSR2, file=int(sys.argv[1]));"
    "sys.path[:] = sys.argv[3:]; from service.server.worker import main; main()"
)
ALIVE_EVERY = 1.0  # seconds: how often a worker says that it is alive, and its supervisor looks whether it has
_STACKS = signal.SIGUSR2
_WRITING = 5.0  # seconds that it has for its stacks, and to be heard of again
_GATHER = 0.3  # seconds without more of them, after which stacks are whole
_LEAVE = 120.0  # seconds in which a worker that is asked to leaves: its last snapshots
_REPORTS = 10  # how often a start that gets no further is told of, up to the end of the patience with it


class Start(msgspec.Struct):
    """What a worker is told: the first line that it reads."""

    settings: dict[str, Any]
    number: int  # from 1 on: its place, which it takes over from the process that had it before
    generation: int  # of the processes that are started, the how manieth
    listener: int  # file descriptor of the shared socket
    directory: str  # that all processes share


class Word(msgspec.Struct):
    """What a worker says every second."""

    doing: str  # before it is ready; one that gets further with it says something else each time
    ready: bool = False
    waiting: bool = False  # for something that is not its own, and may take as long as it takes: the store


class Supervised:
    """A worker's process."""

    def __init__(
        self,
        number: int,
        process: asyncio.subprocess.Process,
        channel: socket.socket,
        stacks: int,
        patience: tuple[float, float],
        show: Callable[[int, str], None],
    ) -> None:
        """`channel`: to the worker, which leaves when it is closed; `stacks`: file descriptor that it writes them to.

        `patience`: seconds without a word from it, and seconds in which it gets no further with its start. `show` is
        told the number and stacks that have come.
        """
        self.number = number
        self.ready_at: float | None = None
        self.ended = asyncio.create_task(process.wait(), name=f"worker {number}")
        self._process = process
        self._channel = channel
        self._stacks = stacks
        self._patience, self._start_patience = patience
        self._show = show
        self._partial_line = b""  # of a line that is not whole yet
        self._word = Word("starts its interpreter and imports what it needs, and has said nothing yet")
        self._silent = 0.0  # seconds without a word
        self._stuck = 0.0  # seconds in which it got no further, while it starts
        self._killed_for = ""
        self._is_ready = asyncio.Event()
        self._dumped = b""
        self._shown: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(channel, self._hear)
        self._loop.add_reader(stacks, self._gather)
        self._watching = asyncio.create_task(self._watch(), name=f"watch worker {number}")

    @classmethod
    async def started(
        cls, start: Start, listener: socket.socket, patience: tuple[float, float], show: Callable[[int, str], None]
    ) -> Self:
        """Start the process; `patience` and `show` as above.

        Raises `OSError` where the system has no process, thread or descriptor to give, or cannot execute it.
        """
        with ExitStack() as handed, ExitStack() as cleanup:
            channel, theirs = socket.socketpair()
            cleanup.callback(channel.close)  # at which one that has been started after all leaves
            handed.callback(theirs.close)
            stacks, their_stacks = os.pipe()
            cleanup.callback(os.close, stacks)
            handed.callback(os.close, their_stacks)
            os.set_blocking(stacks, False)
            os.set_blocking(their_stacks, False)  # what is more than fits is lost: nobody waits in a signal's handler
            channel.sendall(msgspec.json.encode(start) + b"\n")  # waits there until it is read
            channel.setblocking(False)
            try:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-P", "-c", _PROGRAM, str(their_stacks), str(theirs.fileno()), *sys.path),
                    stdin=subprocess.DEVNULL,
                    pass_fds=(their_stacks, theirs.fileno(), listener.fileno()),
                    process_group=0,  # a terminal's Ctrl-C is for the supervisor
                )
            except RuntimeError as error:  # Python 3.11 waits for it in a thread, and no more can be started
                raise OSError(errno.EAGAIN, str(error)) from error
            cleanup.pop_all()
        return cls(start.number, process, channel, stacks, patience, show)

    async def until_ready(self) -> bool:
        """Whether it gets ready: else it has ended."""
        ready = asyncio.create_task(self._is_ready.wait())
        await asyncio.wait([ready, self.ended], return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        return self._is_ready.is_set()

    def _hear(self) -> None:
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
                word = msgspec.json.decode(line, type=Word)
            except msgspec.DecodeError:  # while this process stood still there was room for half of it alone
                continue
            self._silent = 0.0
            if word.waiting or word.doing != self._word.doing:
                self._stuck = 0.0
            self._word = word
            if word.ready and self.ready_at is None:
                self.ready_at = self._loop.time()
                self._is_ready.set()

    async def _watch(self) -> None:
        """Kill it once it hangs. Seconds in which this process stands still, too, as all are paused, do not count."""
        since, reported = 0.0, 0.0  # seconds since its start, and at the last line about it
        while True:
            await asyncio.sleep(ALIVE_EVERY)
            self._silent += ALIVE_EVERY
            self._stuck += ALIVE_EVERY
            since += ALIVE_EVERY
            if self.ready_at is None and since - reported >= self._start_patience / _REPORTS:
                reported = since
                heard = f" ({self._silent:.0f} s ago)" if 2 * ALIVE_EVERY <= self._silent < since else ""
                logger.warning(
                    "worker %d is not ready after %.0f s: it %s%s", self.number, since, self._word.doing, heard
                )
            why = self._wrong()
            if why and not await self._recovers(why):
                self._killed_for = f" (it {why})"
                self.send(signal.SIGKILL)
                return

    def _wrong(self) -> str:
        """What there is to kill it for, if anything."""
        if self.ready_at is not None:
            hangs = self._silent >= self._patience
            return f"has not said for {self._silent:.0f} s that it is alive" if hangs else ""
        stuck = self._stuck >= self._start_patience
        return f"got no further with its start for {self._stuck:.0f} s: it {self._word.doing}" if stuck else ""

    async def _recovers(self, why: str) -> bool:
        """Whether it is heard of again while it shows its stacks; one that was stopped goes on then."""
        logger.error("worker %d %s; it shows its stacks, and is killed unless it goes on", self.number, why)
        self.send(_STACKS)
        self.send(signal.SIGCONT)  # one that was stopped would not write
        await asyncio.sleep(_WRITING)
        if self._wrong():
            logger.error("worker %d is killed, which loses nothing acknowledged", self.number)
            return False
        logger.warning("worker %d goes on, and is left alone", self.number)
        return True

    def _gather(self) -> None:
        """Take what it has written of its stacks, which are shown when no more of them comes."""
        with suppress(BlockingIOError):
            data = os.read(self._stacks, 2**16)
            if not data:
                self._loop.remove_reader(self._stacks)  # it ends
            self._dumped += data
        if self._shown is not None:
            self._shown.cancel()
        self._shown = self._loop.call_later(_GATHER, self._show_all)

    def _show_all(self) -> None:
        dumped, self._dumped = self._dumped, b""
        if dumped:
            self._show(self.number, dumped.decode(errors="backslashreplace"))

    def over(self) -> None:
        """It has ended."""
        self._watching.cancel()
        self._gather()
        if self._shown is not None:
            self._shown.cancel()
        self._show_all()
        self._loop.remove_reader(self._channel)
        self._loop.remove_reader(self._stacks)
        self._channel.close()
        os.close(self._stacks)

    def send(self, number: signal.Signals) -> None:
        """A signal, unless it has ended."""
        if not self.ended.done():
            with suppress(ProcessLookupError):  # it has ended just now
                self._process.send_signal(number)

    async def leave(self) -> None:
        """Ask it to, and wait for that."""
        self.send(signal.SIGTERM)
        exited, _ = await asyncio.wait([self.ended], timeout=_LEAVE)
        if not exited:
            logger.error("worker %d has not left in %.0f s: it is killed, which loses nothing", self.number, _LEAVE)
            self.send(signal.SIGKILL)
            await asyncio.wait([self.ended])

    @property
    def end(self) -> str:
        """How it ended."""
        status = self.ended.result()
        if status >= 0:
            return f"with status {status}"
        return f"by {signal.Signals(-status).name}{self._killed_for}"


def show_stacks(lines: LineWriter, form: str, number: int, dumped: str) -> None:
    """Write a worker's stacks into the log: in JSON a line for each thread, as text in one piece behind a line."""
    if form == "json":
        for stack in dumped.strip().split("\n\n"):
            logger.warning("stack of worker %d: %s", number, stack)
        return
    logger.warning("the stacks of worker %d:", number)
    lines.put("".join(f"    {line}\n" for line in dumped.strip().splitlines()).encode(errors="backslashreplace"))
