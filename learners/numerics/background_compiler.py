"""Compile kernels in another process while their plain Python runs.

Within `compile_in_background`, a call of a kernel that is not in the cache runs its plain Python at once, which gives
the same bits. It also queues the kernel for a process of the lowest priority, which compiles one after the other into
the cache. A later call finds it there, and runs machine code from then on. The process starts when it has work, ends
when it has none, and ends with its parent.

Kernels are compiled in the order of their first calls. After them come those that rehearsals call: functions that the
process runs as plain Python, only to see which kernels they would need.

If the process ends by itself, for example because it was killed, another one continues. A kernel at which three of them
ended stays plain Python, and the log says so.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from learners.numerics.kernel_cache import cache_directory

__all__ = [
    "KernelCounts",
    "Rehearsal",
    "compile_in_background",
    "kernel_counts",
    "needs_plain",
    "wait_for_kernels",
    "waiting_kernels",
]

logger = logging.getLogger("rarestream.kernels")

_ATTEMPTS = 3  # processes that may end at one kernel
_LOWEST_PRIORITY = 19
_TURN = 60  # seconds to wait for another process that compiles into this cache
_PROGRAM = f"""
import json, os, sys
os.nice({_LOWEST_PRIORITY})  # before the imports, which take a second
sys.path[:] = json.loads(sys.argv[1])
from learners.numerics.background_compiler import work
work(int(sys.argv[2]))
"""


class Demand(NamedTuple):
    """A kernel for these types of arguments."""

    module: str
    name: str
    types: tuple[Any, ...]

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


class Rehearsal(NamedTuple):
    """A function that needs kernels, by its name, and its arguments."""

    module: str
    name: str
    arguments: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


class KernelCounts(NamedTuple):
    """Kernels that this process has called or rehearsed."""

    compiled: int
    waiting: int  # that were called, and run as plain Python until they are compiled
    all: int


class _Kernel:
    """A kernel that was called or rehearsed."""

    def __init__(self, compiled: bool = False) -> None:
        self.compiled = compiled
        self.demanded = False  # in the queue of those that were called
        self.unshared = False  # another process has compiled it, but cannot save what this one needs
        self.attempts = 0  # processes that ended while they compiled it


_kernels: dict[Path, _Kernel] = {}


class _RehearsalRecord:
    """A file in the cache: what rehearsals of the present sources need, so that no process rehearses again."""

    def __init__(self, rehearsals: Sequence[Rehearsal]) -> None:
        self._rehearsals = rehearsals
        self._paths: set[Path] = set()

    def read(self) -> list[Path]:
        """Return the files of the kernels if all are there, else nothing."""
        path = self._path()
        if not self._rehearsals or not path.exists():
            return []
        paths = [path.parent / name for name in path.read_text().split()]
        return paths if all(path.exists() for path in paths) else []

    def add(self, path: Path) -> None:
        """Add a kernel's file, which may not be there yet."""
        self._paths.add(path)

    def write(self) -> None:
        """Save the list."""
        path = self._path()
        with suppress(OSError):  # a full disk: the next process rehearses again
            temporary = path.with_suffix(f".{os.urandom(8).hex()}")
            temporary.write_text("\n".join(sorted(item.name for item in self._paths)))
            temporary.replace(path)

    def _path(self) -> Path:
        digest = hashlib.blake2b(repr(self._rehearsals).encode(), digest_size=16)
        for module in sorted({rehearsal.module for rehearsal in self._rehearsals}):
            specification = importlib.util.find_spec(module)
            if specification is not None and specification.origin is not None:
                for source in sorted(Path(specification.origin).parent.rglob("*.py")):
                    digest.update(source.read_bytes())
        return cache_directory() / f"{digest.hexdigest()}.rehearsed"


class _Compiler:
    """The queue of kernels, and the thread that hands them to the process."""

    def __init__(self, rehearsals: Sequence[Rehearsal]) -> None:
        self._changed = threading.Condition()
        self._demands: deque[tuple[Demand, Path]] = deque()
        self._rehearsed: deque[tuple[Demand, Path]] = deque()
        self._rehearsals = deque(rehearsals)
        self._record = _RehearsalRecord(rehearsals)
        self._ended = 0  # processes that ended during a rehearsal
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._stopping = False
        self._idle = False  # there is no more work, and no process
        self._alone = False  # no process can be started
        self._thread = threading.Thread(target=self._run, name="kernels", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the process, even half-way through a kernel."""
        with self._changed:
            self._stopping = True
            self._kill_process()
            self._changed.notify_all()
        self._thread.join()

    def needs_plain(self, demand: Demand, path: Path) -> bool:
        """Return whether the machine code is missing, and ask for it."""
        work = demand, path
        with self._changed:
            kernel = _kernels.setdefault(path, _Kernel())
            compiled = self._alone or kernel.unshared or path.exists()  # or in a moment, by this process
            kernel.compiled = compiled
            if not (compiled or kernel.demanded) and kernel.attempts < _ATTEMPTS:
                kernel.demanded = True
                if work in self._rehearsed:
                    self._rehearsed.remove(work)
                self._demands.append(work)
                self._changed.notify_all()
        return not compiled

    @property
    def waiting(self) -> int:
        """How many kernels that were called run as plain Python until they are compiled."""
        return len(self._demands)

    def wait(self, seconds: float) -> bool:
        """Wait until none of these is left; return whether that is so."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._demands, seconds)

    def finish(self) -> None:
        """Wait until nothing is left to do."""
        with self._changed:
            self._changed.wait_for(lambda: self._idle)

    def _run(self) -> None:
        for path in self._record.read():  # earlier processes have rehearsed the same, and compiled all of it
            self._rehearsals.clear()
            _kernels.setdefault(path, _Kernel(compiled=True))
        try:
            while (work := self._next()) is not None:
                if isinstance(work, Rehearsal):
                    self._rehearse(work)
                else:
                    self._compile(*work)
        except OSError as error:
            logger.error("cannot start a process that compiles kernels (%s); this one will, at first calls", error)
            with self._changed:
                self._alone = self._idle = True
                self._demands.clear()
                self._changed.notify_all()
        self._end_process()

    def _next(self) -> tuple[Demand, Path] | Rehearsal | None:
        """Wait for work; it stays in its queue until it is done. Return None at the end."""
        if not self._has_work():
            self._kill_process()
            self._end_process()  # without the lock, for which requests would wait
        with self._changed:
            self._idle = not self._has_work()
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._stopping or self._has_work())
            if self._stopping:
                return None
            self._idle = False
            queue = self._demands or self._rehearsed
            return queue[0] if queue else self._rehearsals[0]

    def _has_work(self) -> bool:
        return bool(self._demands or self._rehearsed or self._rehearsals)

    def _compile(self, demand: Demand, path: Path) -> None:
        """Have one kernel compiled."""
        kernel = _kernels[path]
        while not (path.exists() or kernel.unshared or self._stopping) and kernel.attempts < _ATTEMPTS:
            kernel.attempts += 1
            kernel.unshared = bool(self._ask(demand)) and not path.exists()
        with self._changed:
            kernel.compiled, kernel.demanded = path.exists(), False
            for queue in (self._demands, self._rehearsed):
                if (demand, path) in queue:
                    queue.remove((demand, path))
            self._changed.notify_all()
        if kernel.unshared:
            logger.warning("the kernel %s cannot be shared: the disk is full, or another version is installed", demand)
        elif not (kernel.compiled or self._stopping):
            logger.error("cannot compile the kernel %s; it runs as plain Python, slowly, until the next start", demand)

    def _rehearse(self, rehearsal: Rehearsal) -> None:
        demands: list[tuple[Demand, str]] | None = self._ask(rehearsal)
        with self._changed:
            self._ended = self._ended + 1 if demands is None else 0
            if demands is None and self._ended < _ATTEMPTS:
                return
            self._rehearsals.popleft()
            for demand, name in demands or ():
                path = Path(name)
                self._record.add(path)
                if path not in _kernels:
                    _kernels[path] = _Kernel()
                    self._rehearsed.append((demand, path))
            if not self._rehearsals:
                self._record.write()

    def _ask(self, work: Demand | Rehearsal) -> Any:
        """Return the reply of the process to a piece of work; None if it ended. Raises `OSError` if none starts."""
        try:
            if self._connection is None:
                self._start_process()
            assert self._connection is not None
            self._connection.send(work)
            return self._connection.recv()
        except (EOFError, ConnectionError):
            status = self._end_process()
            if not self._stopping:
                logger.warning(
                    "the process that compiles kernels ended at %s (exit status %s); starting another", work, status
                )
            return None

    def _start_process(self) -> None:
        parent, child = Pipe()
        with child, self._changed:
            if self._stopping:
                raise EOFError
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _PROGRAM, json.dumps(sys.path), str(child.fileno())],
                pass_fds=[child.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # or a reader of the service's would wait for this process, too
                process_group=0,  # Ctrl-C is for this process
                env={**os.environ, "NUMBA_CACHE_DIR": str(cache_directory().parents[1])},
            )
        self._connection = parent

    def _end_process(self) -> int | None:
        """Wait for the end of the process and return its exit status; None if there is none."""
        if self._process is None or self._connection is None:
            return None
        self._connection.close()  # which it takes as the end
        status = self._process.wait()
        with self._changed:
            self._process = self._connection = None
        return status

    def _kill_process(self) -> None:
        with self._changed:
            if self._process is not None:
                self._process.kill()


_compilers: list[_Compiler] = []  # of the blocks that run, which may end in any order
_compiler: _Compiler | None = None  # the last of them
_collected: list[tuple[Demand, str]] | None = None  # kernels that a rehearsal needs


@contextmanager
def compile_in_background(rehearsals: Sequence[Rehearsal] = ()) -> Iterator[None]:
    """Let this process run kernels as plain Python until another process has compiled them."""
    global _compiler
    compiler = _compiler = _Compiler(rehearsals)
    _compilers.append(compiler)
    try:
        yield
    finally:
        _compilers.remove(compiler)
        _compiler = _compilers[-1] if _compilers else None
        compiler.stop()


def kernel_counts() -> KernelCounts:
    """Count the kernels that this process has called or rehearsed."""
    kernels = list(_kernels.values())
    return KernelCounts(sum(kernel.compiled for kernel in kernels), waiting_kernels(), len(kernels))


def waiting_kernels() -> int:
    """Return how many kernels that were called run as plain Python until they are compiled."""
    compiler = _compiler  # another thread may end the block
    return 0 if compiler is None else compiler.waiting


def wait_for_kernels(seconds: float) -> bool:
    """Wait until no kernel that was called runs as plain Python any more; return whether that is so."""
    compiler = _compiler
    return compiler is None or compiler.wait(seconds)


def needs_plain(function: Callable[..., Any], types: tuple[Any, ...], path: Path) -> bool:
    """Return whether a call has to run as plain Python. If so, the kernel is compiled as soon as possible."""
    demand = Demand(function.__module__, function.__qualname__, types)
    if _collected is not None:
        if (demand, str(path)) not in _collected:
            _collected.append((demand, str(path)))
        return not path.exists()
    named = demand.module != "__main__" and "<locals>" not in demand.name  # so another process finds it
    compiler = _compiler
    if compiler is None or not named:
        _kernels[path] = _Kernel(compiled=True)  # in a moment, by this process
        return False
    return compiler.needs_plain(demand, path)


def work(descriptor: int) -> None:
    """Compile and rehearse what the parent process asks for, until it closes the connection."""
    turns = os.open(cache_directory() / "background", os.O_RDONLY | os.O_CREAT, 0o666)
    signal.signal(signal.SIGALRM, _interrupt)
    with Connection(descriptor) as connection:
        while True:
            try:
                task = connection.recv()
                _take_turn(turns)
                connection.send(_carry_out(task))
                fcntl.flock(turns, fcntl.LOCK_UN)
            except (EOFError, ConnectionError):  # the parent ended
                return


def _take_turn(turns: int) -> None:
    """Wait while another process compiles into this cache, but not for long: it may be stopped."""
    with suppress(TimeoutError):
        signal.alarm(_TURN)
        fcntl.flock(turns, fcntl.LOCK_EX)
        signal.alarm(0)


def _interrupt(*_: object) -> None:
    raise TimeoutError


def _carry_out(task: Demand | Rehearsal) -> Any:
    global _collected
    function = importlib.import_module(task.module)
    for name in task.name.split("."):
        function = getattr(function, name)
    actual: Any = function
    if isinstance(task, Demand):
        actual.compile(task.types)
        return True
    _collected = []
    try:
        actual(*task.arguments)
        return _collected
    finally:
        _collected = None
