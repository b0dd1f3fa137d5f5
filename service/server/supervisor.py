"""Several processes behind one port: `rarestream serve --workers N`.

    supervisor: the listening socket, a directory that all share
        |- worker 1   a fresh interpreter that inherits the socket (`worker.py`)
        |- worker 2
        ...

The supervisor serves nothing itself. It starts the first worker, and the others once that is ready, so an error of the
start is reported once and kernels are compiled once. It restarts a worker that exits unexpectedly. At SIGHUP it
replaces the workers one by one: each successor is ready before its predecessor leaves. The socket stays open, so
connections that nobody has accepted yet wait. A worker that hangs dumps its stacks, is killed and restarted:
`worker_process.py`.

    the shared directory      NUMBER.GENERATION   socket on which this process reports its metrics (`worker_peers.py`)
                              open                number of connections of each process
                              log                 locked while a process writes lines
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import math
import mmap
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from service.exits import ExitStatus
from service.server.listen import NOBODY, CannotServe, WrongSettings, announce, listen, url_of, warn
from service.server.worker_process import Start, WorkerProcess, show_stacks
from service.settings import Settings
from service.telemetry import LineWriter, Stream, configure

__all__ = ["Supervisor", "connection_counts", "one_at_a_time", "supervise"]

logger = logging.getLogger("rarestream.workers")

_SETTLED = 10.0  # seconds of service after which an exit does not count with the one before
_MOST = 5  # exits in a row after which a worker is restarted
_FIRST, _LONGEST = 0.1, 10.0  # seconds of back-off: after the first exit, and at most
_ABANDONED = "abandoning the rolling restart, keeping the other workers"
_LEAVE = 120.0  # seconds allowed for the last snapshots at shutdown


def connection_counts(directory: Path, workers: int) -> memoryview:
    """Return the number of connections of each worker, in memory that all processes share; each sets its own."""
    path = directory / "open"
    with path.open("a+b") as file:
        file.truncate(8 * workers)
        return memoryview(mmap.mmap(file.fileno(), 8 * workers)).cast("q")


class _OneAtATime:
    """A stream that several processes write whole lines to; the system may mix long writes to a pipe."""

    def __init__(self, stream: Stream, lock: Path) -> None:
        self._stream = stream
        self._lock = lock.open("ab")  # opened anew, because the lock belongs to the open file

    def write(self, data: bytes, /) -> None:
        """Write while no other process does."""
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            self._stream.write(data)
            self._stream.flush()
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def flush(self) -> None:
        """Do nothing: no data is buffered."""


def one_at_a_time(directory: Path) -> Stream:
    """Return standard error, locked by all processes that share the directory."""
    return _OneAtATime(sys.stderr.buffer, directory / "log")


def supervise(settings: Settings, warnings: Sequence[str] = (), *, as_json: bool = False) -> None:
    """Serve with `settings.workers` processes until Ctrl-C or SIGTERM, and exit as `run.serve` does.

    `warnings` are printed first; `as_json`: see `announce`. Raises `CannotListen`, or `CannotServe` if the workers do
    not start or do not stay.
    """
    if settings.store.startswith(("sqlite:", "memory:")):
        why = "only one process can write to SQLite" if "sqlite" in settings.store else "processes do not share memory"
        raise WrongSettings(f"several workers need a Redis store, for example redis://localhost:6379/0: {why}")
    with tempfile.TemporaryDirectory(prefix="rarestream-") as folder:
        directory = Path(folder)
        directory_fd = os.open(directory, os.O_RDONLY)
        fcntl.flock(directory_fd, fcntl.LOCK_SH)  # systemd does not clean up locked folders
        lines = configure(one_at_a_time(directory), settings.log_format, settings.log_level)
        warn(settings, warnings)
        with listen(settings.host, settings.port) as listener:
            ended_by = asyncio.run(Supervisor(settings, listener, directory, lines, as_json=as_json).run())
        lines.close()
        os.close(directory_fd)
    if ended_by is signal.SIGTERM:  # as a single process would; process 1 of a container ignores it
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTERM)


class Supervisor:
    """Keeps `settings.workers` processes behind a listening socket."""

    def __init__(
        self,
        settings: Settings,
        listener: socket.socket,
        directory: Path,
        lines: LineWriter,
        *,
        as_json: bool = False,
    ) -> None:
        """Take an empty directory that only this user may read; `as_json`: see `announce`."""
        self._settings = settings
        self._as_json = as_json
        self._show = partial(show_stacks, lines, settings.log_format)
        self._listener = listener
        self._directory = directory
        self._counts = connection_counts(directory, settings.workers)
        self._generation = 0
        self._running: set[WorkerProcess] = set()
        self._current: dict[int, WorkerProcess] = {}  # by number, without successors that are not ready
        self._placing: dict[int, asyncio.Lock] = {}  # locked while the worker of a number is replaced
        self._stopping = asyncio.Event()
        self._restart = asyncio.Event()
        self._signal: signal.Signals | None = None
        self._failure: CannotServe | None = None

    async def run(self) -> signal.Signals | None:
        """Run until a signal, and return it. Raises `CannotServe`."""
        loop = asyncio.get_running_loop()
        for ending in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(ending, self._stop, ending)
        loop.add_signal_handler(signal.SIGHUP, self._restart.set)
        numbers = range(1, self._settings.workers + 1)
        for number in numbers:
            self._counts[number - 1] = NOBODY
            self._placing[number] = asyncio.Lock()
        tasks: list[asyncio.Task[None]] = []
        if await self._are_ready(numbers[:1]) and await self._are_ready(numbers[1:]):
            url = url_of(self._listener, tls=self._settings.tls_certificate is not None)
            announce(self._settings, url, as_json=self._as_json)
            work: list[Coroutine[Any, Any, None]] = [*map(self._keep, numbers), self._restart_on_demand()]
            tasks = [asyncio.create_task(worker) for worker in work]
            for task in tasks:
                task.add_done_callback(lambda _: self._stopping.set())  # a task ends earlier only by a fault of ours
            await self._stopping.wait()
        await self._end(tasks)
        if self._failure is not None:
            raise self._failure
        return self._signal

    def _stop(self, number: signal.Signals) -> None:
        if self._stopping.is_set():  # the second signal: do not wait; acknowledged data is safe
            for worker in self._running:
                worker.send(signal.SIGKILL)
            return
        self._signal = number
        self._stopping.set()
        for worker in self._running:
            worker.send(signal.SIGTERM)

    def _fail(self, why: str, kind: type[CannotServe] = CannotServe) -> None:
        if not self._stopping.is_set():
            self._failure = kind(why)
            self._stopping.set()

    async def _end(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        """Stop all workers and wait for their exits."""
        self._listener.close()  # no new connection may wait for workers that leave
        self._restart.set()  # wakes the task that waits for it
        for worker in self._running:
            worker.send(signal.SIGTERM)
        loop = asyncio.get_running_loop()
        until = loop.time() + _LEAVE
        while waiting := [*(worker.ended for worker in self._running), *(task for task in tasks if not task.done())]:
            left = max(0.0, until - loop.time())
            finished, _ = await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if not finished:
                logger.error("workers still running after %.0f s; sending SIGKILL (acknowledged data is safe)", _LEAVE)
                for worker in self._running:
                    worker.send(signal.SIGKILL)
                until = math.inf
        for task in tasks:
            task.result()  # raises a fault of ours

    async def _are_ready(self, numbers: Sequence[int]) -> bool:
        """Start the workers of these numbers; return whether all of them became ready."""
        try:
            started = [await self._started(number) for number in numbers]
        except OSError as error:
            self._fail(f"cannot start a worker: {error}")
            return False
        ready = await asyncio.gather(*(worker.until_ready() for worker in started))
        for worker, well in zip(started, ready, strict=True):
            self._current[worker.number] = worker
            if not well:
                kind = WrongSettings if worker.ended.result() == ExitStatus.USAGE else CannotServe
                self._fail(f"worker {worker.number} exited {worker.end} before it was ready", kind)
        return not self._stopping.is_set()

    async def _started(self, number: int) -> WorkerProcess:
        """Start a worker. Raises `OSError` if the system cannot."""
        self._generation += 1
        settings = self._settings
        start = Start(
            settings.model_dump(mode="json"),
            number,
            self._generation,
            self._listener.fileno(),
            str(self._directory),
        )
        patience = settings.worker_seconds, settings.worker_start_seconds
        worker = await WorkerProcess.started(start, self._listener, patience, self._show)

        def over(_: asyncio.Task[int]) -> None:
            self._running.discard(worker)
            worker.over()
            (self._directory / f"{number}.{start.generation}").unlink(
                missing_ok=True
            )  # a killed process leaves its socket

        self._running.add(worker)
        worker.ended.add_done_callback(over)
        if self._stopping.is_set():
            worker.send(signal.SIGTERM)
        return worker

    # While the workers run

    async def _keep(self, number: int) -> None:
        """Restart the worker of this number whenever it exits unexpectedly."""
        deaths = 0
        while not self._stopping.is_set():
            worker = self._current[number]
            await asyncio.wait([worker.ended])
            async with self._placing[number]:
                if self._stopping.is_set() or self._current[number] is not worker:
                    continue
                settled = worker.ready_at is not None and asyncio.get_running_loop().time() - worker.ready_at > _SETTLED
                deaths = 1 if settled else deaths + 1
                if deaths > _MOST:
                    self._fail(f"worker {number} exited {deaths} times in a row, the last time {worker.end}")
                    return
                self._counts[number - 1] = NOBODY
                delay = min(_FIRST * 2 ** (deaths - 1), _LONGEST)
                logger.error("worker %d exited unexpectedly (%s); restarting in %.1f s", number, worker.end, delay)
                while not await self._stopped(delay):
                    try:
                        self._current[number] = await self._started(number)
                        break
                    except OSError as error:  # the machine's fault, not the worker's: keep the others
                        delay = min(2 * delay, _LONGEST)
                        logger.error("cannot start worker %d: %s; trying again in %.1f s", number, error, delay)
            if not self._stopping.is_set() and await self._current[number].until_ready():
                logger.info("worker %d is ready again", number)

    async def _stopped(self, seconds: float) -> bool:
        """Wait for so many seconds, or until the stop; return whether it came."""
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return False
        return True

    async def _restart_on_demand(self) -> None:
        """Replace all workers at each SIGHUP, and once more if another SIGHUP arrives meanwhile."""
        while not self._stopping.is_set():
            await self._restart.wait()
            self._restart.clear()
            if not self._stopping.is_set():
                await self._replace_all()

    async def _replace_all(self) -> None:
        """Replace the workers one by one; each successor is ready before its predecessor leaves."""
        logger.info("replacing the workers, one at a time")
        for number, placing in self._placing.items():
            async with placing:
                if self._stopping.is_set():
                    return
                try:
                    successor = await self._started(number)
                except OSError as error:
                    logger.error("cannot start the next worker %d: %s; %s", number, error, _ABANDONED)
                    return
                if not await successor.until_ready():
                    if not self._stopping.is_set():
                        why = f"the next worker {number} exited {successor.end} before it was ready"
                        logger.error("%s; %s", why, _ABANDONED)
                    return
                predecessor, self._current[number] = self._current[number], successor
                await predecessor.leave()
        logger.info("replaced all workers")
