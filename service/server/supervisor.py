"""Several processes behind one port: `rarestream serve --workers N`.

    supervisor: the listening socket, a directory that all share
        |- worker 1   a fresh interpreter that inherits the socket (`worker.py`)
        |- worker 2
        ...

The supervisor serves nothing itself. It starts the first worker, and the others once that is ready: what keeps one from
starting is said once, and kernels are compiled once. A worker that ends unasked is started again, as soon as the system
has a process to give; SIGHUP has each replaced by a new one, which is ready before the old one is asked to leave. The
socket stays open meanwhile, so that connections which nobody has accepted yet wait, and are lost with nobody. One that
hangs, or gets no further with its start, shows its stacks, is killed, and started again: `supervised.py`.

    the shared directory      NUMBER.GENERATION   the socket on which this process tells of its figures (`siblings.py`)
                              open                how many connections each process has
                              log                 locked by whoever writes lines
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
from service.server.listen import CannotServe, WrongSettings, announce, listen, url_of, warn
from service.server.worker_process import Start, Supervised, show_stacks
from service.settings import Settings
from service.telemetry import LineWriter, Stream, configure

__all__ = ["NOBODY", "Supervisor", "connection_counts", "one_at_a_time", "supervise"]

logger = logging.getLogger("rarestream.workers")

NOBODY = 2**62  # as many connections has a process that accepts none
_SETTLED = 10.0  # seconds after which a worker's death is no longer one in a row with the one before
_MOST = 5  # deaths in a row after which a worker is started again
_FIRST, _LONGEST = 0.1, 10.0  # seconds until it is, after the first and at most
_GIVEN_UP = "the restart is given up, the others stay"
_LEAVE = 120.0  # seconds in which they leave at a stop: their last snapshots


def connection_counts(directory: Path, workers: int) -> memoryview:
    """How many connections each worker has, shared by all processes that ask for it; set by each at its own place."""
    path = directory / "open"
    with path.open("a+b") as file:
        file.truncate(8 * workers)
        return memoryview(mmap.mmap(file.fileno(), 8 * workers)).cast("q")


class _OneAtATime:
    """A stream that several processes write to, each of which finishes its lines: longer writes to a pipe may mix."""

    def __init__(self, stream: Stream, lock: Path) -> None:
        self._stream = stream
        self._lock = lock.open("ab")  # a description of its own, for the lock is the description's

    def write(self, data: bytes, /) -> None:
        """All of it, once no other process writes."""
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            self._stream.write(data)
            self._stream.flush()
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def flush(self) -> None:
        """Nothing is held back."""


def one_at_a_time(directory: Path) -> Stream:
    """Standard error, which all processes that share the directory write their lines to."""
    return _OneAtATime(sys.stderr.buffer, directory / "log")


def supervise(settings: Settings, warnings: Sequence[str] = (), *, as_json: bool = False) -> None:
    """Serve by `settings.workers` processes, until Ctrl-C or SIGTERM, with the ends that `server.serve` has.

    `warnings` are told first; `as_json`: see `announce`. Raises `CannotListen`, and `CannotServe` where the workers do
    not start or stay.
    """
    if settings.store.startswith(("sqlite:", "memory:")):
        why = (
            "one process at a time can write to SQLite" if "sqlite" in settings.store else "memory is one process's own"
        )
        raise WrongSettings(f"several workers need a store that is a Redis, such as redis://localhost:6379/0: {why}")
    with tempfile.TemporaryDirectory(prefix="rarestream-") as folder:
        directory = Path(folder)
        directory_fd = os.open(directory, os.O_RDONLY)
        fcntl.flock(directory_fd, fcntl.LOCK_SH)  # systemd's cleaning of temporary files passes by what is locked
        lines = configure(one_at_a_time(directory), settings.log_format, settings.log_level)
        warn(settings, warnings)
        with listen(settings.host, settings.port) as listener:
            ended_by = asyncio.run(Supervisor(settings, listener, directory, lines, as_json=as_json).run())
        lines.close()
        os.close(directory_fd)
    if ended_by is signal.SIGTERM:  # as one process ends; the first process of a container does not
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
        """`directory`: an empty one, which only this user may read; `as_json`: see `announce`."""
        self._settings = settings
        self._as_json = as_json
        self._show = partial(show_stacks, lines, settings.log_format)
        self._listener = listener
        self._directory = directory
        self._counts = connection_counts(directory, settings.workers)
        self._generation = 0
        self._running: set[Supervised] = set()
        self._current: dict[int, Supervised] = {}  # by number; not the one that is to take its place
        self._placing: dict[int, asyncio.Lock] = {}  # held by whoever puts another there
        self._stopping = asyncio.Event()
        self._restart = asyncio.Event()
        self._signal: signal.Signals | None = None
        self._failure: CannotServe | None = None

    async def run(self) -> signal.Signals | None:
        """Until a signal, which is told. Raises `CannotServe`."""
        loop = asyncio.get_running_loop()
        for ending in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(ending, self._stop, ending)
        loop.add_signal_handler(signal.SIGHUP, self._restart.set)
        numbers = range(1, self._settings.workers + 1)
        for number in numbers:
            self._counts[number - 1] = NOBODY
            self._placing[number] = asyncio.Lock()
        tasks: list[asyncio.Task[None]] = []
        if await self._begun(numbers[:1]) and await self._begun(numbers[1:]):
            url = url_of(self._listener, tls=self._settings.tls_certificate is not None)
            announce(self._settings, url, as_json=self._as_json)
            work: list[Coroutine[Any, Any, None]] = [*map(self._keep, numbers), self._restart_on_demand()]
            tasks = [asyncio.create_task(worker) for worker in work]
            for task in tasks:
                task.add_done_callback(lambda _: self._stopping.set())  # none ends before that but by an error of ours
            await self._stopping.wait()
        await self._end(tasks)
        if self._failure is not None:
            raise self._failure
        return self._signal

    def _stop(self, number: signal.Signals) -> None:
        if self._stopping.is_set():  # whoever says it twice does not want to wait; nothing acknowledged is lost
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
        """Have all of them leave."""
        self._listener.close()  # what waits would wait for nobody
        self._restart.set()  # whoever waits for it finds that there is no more
        for worker in self._running:
            worker.send(signal.SIGTERM)
        loop = asyncio.get_running_loop()
        until = loop.time() + _LEAVE
        while waiting := [*(worker.ended for worker in self._running), *(task for task in tasks if not task.done())]:
            left = max(0.0, until - loop.time())
            finished, _ = await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if not finished:
                logger.error("what has not left in %.0f s is killed, which loses nothing", _LEAVE)
                for worker in self._running:
                    worker.send(signal.SIGKILL)
                until = math.inf
        for task in tasks:
            task.result()  # an error of ours is raised

    async def _begun(self, numbers: Sequence[int]) -> bool:
        """Start the workers of these numbers; whether all of them are ready."""
        try:
            started = [await self._started(number) for number in numbers]
        except OSError as error:
            self._fail(f"a worker cannot be started: {error}")
            return False
        ready = await asyncio.gather(*(worker.until_ready() for worker in started))
        for worker, well in zip(started, ready, strict=True):
            self._current[worker.number] = worker
            if not well:
                kind = WrongSettings if worker.ended.result() == ExitStatus.USAGE else CannotServe
                self._fail(f"worker {worker.number} ended {worker.end} before it was ready", kind)
        return not self._stopping.is_set()

    async def _started(self, number: int) -> Supervised:
        """Raises `OSError` where the system does not let it."""
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
        worker = await Supervised.started(start, self._listener, patience, self._show)

        def over(_: asyncio.Task[int]) -> None:
            self._running.discard(worker)
            worker.over()
            (self._directory / f"{number}.{start.generation}").unlink(missing_ok=True)  # after a kill it is still there

        self._running.add(worker)
        worker.ended.add_done_callback(over)
        if self._stopping.is_set():
            worker.send(signal.SIGTERM)
        return worker

    # While they run

    async def _keep(self, number: int) -> None:
        """Start the worker of this number again where it ends unasked."""
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
                    self._fail(f"worker {number} ended {deaths} times in a row, the last time {worker.end}")
                    return
                self._counts[number - 1] = NOBODY
                delay = min(_FIRST * 2 ** (deaths - 1), _LONGEST)
                logger.error("worker %d ended unasked, %s: it is started again in %.1f s", number, worker.end, delay)
                while not await self._stopped(delay):
                    try:
                        self._current[number] = await self._started(number)
                        break
                    except OSError as error:  # of the machine, not of the worker: the others stay, however long
                        delay = min(2 * delay, _LONGEST)
                        logger.error("worker %d cannot be started: %s; again in %.1f s", number, error, delay)
            if not self._stopping.is_set() and await self._current[number].until_ready():
                logger.info("worker %d is ready again", number)

    async def _stopped(self, seconds: float) -> bool:
        """Wait so long; whether it is to stop meanwhile."""
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return False
        return True

    async def _restart_on_demand(self) -> None:
        """At each SIGHUP; one that comes meanwhile has all of them replaced once more."""
        while not self._stopping.is_set():
            await self._restart.wait()
            self._restart.clear()
            if not self._stopping.is_set():
                await self._replace_all()

    async def _replace_all(self) -> None:
        """One after the other, each by a process that is ready by then."""
        logger.info("the workers are replaced, one at a time")
        for number, placing in self._placing.items():
            async with placing:
                if self._stopping.is_set():
                    return
                try:
                    successor = await self._started(number)
                except OSError as error:
                    logger.error("the next worker %d cannot be started: %s: %s", number, error, _GIVEN_UP)
                    return
                if not await successor.until_ready():
                    if not self._stopping.is_set():
                        why = f"the next worker {number} ended {successor.end} before it was ready"
                        logger.error("%s: %s", why, _GIVEN_UP)
                    return
                predecessor, self._current[number] = self._current[number], successor
                await predecessor.leave()
        logger.info("all workers are replaced")
