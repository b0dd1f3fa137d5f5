"""Compile kernels in another process while their plain Python runs.

Within `compile_in_background`, a call of a kernel that is not in the cache runs its plain Python at once, which gives
the same bits. It also queues the kernel for a process of the lowest priority, which compiles one after the other into
the cache. A later call finds it there, and runs machine code from then on. The process starts when it has work, ends
when it has none, and ends with its parent.

Kernels are compiled in the order of their first calls. After them come those that rehearsals call: functions that the
process runs as plain Python, only to see which kernels they would need.

If the process ends by itself, for example because it was killed, another one continues after a pause, which doubles up
to a minute until one of them gets something done. A kernel at which three of them ended, or which cannot be compiled,
stays plain Python. A rehearsal that fails leaves its kernels to their first calls. The log and `kernel_trouble` say so.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import logging
import os
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

from learners.numerics import compiler_process
from learners.numerics.compiler_process import CompileFailure, Demand, Rehearsal
from learners.numerics.kernel_cache import cache_directory

__all__ = [
    "KernelCounts",
    "Rehearsal",
    "compile_in_background",
    "kernel_counts",
    "kernel_trouble",
    "needs_plain",
    "rehearse_here",
    "wait_for_kernels",
    "waiting_kernels",
]

logger = logging.getLogger("rarestream.kernels")

_ATTEMPTS = 3  # processes that may end at one kernel or rehearsal
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 60.0  # seconds before another process starts


class KernelCounts(NamedTuple):
    """Kernels that this process has called or rehearsed."""

    compiled: int
    waiting: int  # that were called, and run as plain Python until they are compiled
    failed: int  # that cannot be compiled, and run as plain Python until the next start
    all: int


class _Kernel:
    """A kernel that was called or rehearsed."""

    def __init__(self, compiled: bool = False) -> None:
        self.compiled = compiled
        self.demanded = False  # in the queue of those that were called
        self.unshared = False  # another process has compiled it, but cannot save what this one needs
        self.failure: str | None = None  # why it cannot be compiled


_kernels: dict[Path, _Kernel] = {}


class _RehearsalRecord:
    """A file in the cache: what rehearsals of the present sources need, so that no process rehearses again."""

    def __init__(self, rehearsals: Sequence[Rehearsal]) -> None:
        self._rehearsals = rehearsals
        self._paths: set[Path] = set()

    def read(self) -> list[Path]:
        """Return the files of the kernels if all are there, else nothing."""
        path = self._path()
        try:
            paths = [path.parent / name for name in path.read_text().split()]
        except OSError:  # there is none, or it is another user's
            return []
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
        self._failures: list[str] = []  # of rehearsals, and of the start of a process
        self._ends = 0  # processes that ended by themselves since one got something done
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
            if not (compiled or kernel.demanded or kernel.failure):
                kernel.demanded = True
                if work in self._rehearsed:
                    self._rehearsed.remove(work)
                self._demands.append(work)
                self._changed.notify_all()
        return not compiled

    @property
    def troubles(self) -> list[str]:
        """What keeps kernels from being compiled by another process."""
        ended = f"the process that compiles kernels ended {self._ends} times in a row, and is started again"
        dead = "the thread that has kernels compiled ended by an error; stderr says why"
        stopped = not (self._stopping or self._alone or self._thread.is_alive())
        return [*self._failures, *([ended] if self._ends else []), *([dead] if stopped else [])]

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
        try:
            for path in self._record.read():  # earlier processes have rehearsed the same, and compiled all of it
                self._rehearsals.clear()
                _kernels.setdefault(path, _Kernel(compiled=True))
            while (work := self._next()) is not None:
                if isinstance(work, Rehearsal):
                    self._rehearse(work)
                else:
                    self._compile(*work)
        except OSError as error:
            logger.error("cannot start a process that compiles kernels (%s); this one will, at first calls", error)
            with self._changed:
                self._failures.append(
                    f"cannot start a process that compiles kernels ({error}): this one does, while requests wait"
                )
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
        reply = None if path.exists() else self._carry_out(demand)
        with self._changed:
            kernel.compiled, kernel.demanded = path.exists(), False
            if isinstance(reply, CompileFailure) and not self._stopping:
                kernel.failure = f"the kernel {demand} cannot be compiled: {reply.reason}"
            kernel.unshared = not (kernel.compiled or kernel.failure or self._stopping)
            for queue in (self._demands, self._rehearsed):
                if (demand, path) in queue:
                    queue.remove((demand, path))
            self._changed.notify_all()
        if kernel.unshared:
            logger.warning("the kernel %s cannot be shared: the disk is full, or another version is installed", demand)
        elif kernel.failure and not kernel.compiled:
            logger.error("%s. It runs as plain Python, slowly, until the next start", kernel.failure)

    def _rehearse(self, rehearsal: Rehearsal) -> None:
        """Find what kernels a function needs, and queue them."""
        reply: list[tuple[Demand, str]] | CompileFailure = self._carry_out(rehearsal)
        failure = None
        if isinstance(reply, CompileFailure):
            failure, reply = f"the rehearsal {rehearsal} failed: {reply.reason}", []
        with self._changed:
            self._rehearsals.popleft()
            for demand, name in reply:
                path = Path(name)
                self._record.add(path)
                if path not in _kernels:
                    _kernels[path] = _Kernel()
                    self._rehearsed.append((demand, path))
            if failure:
                self._failures.append(f"{failure}. The kernels that it needs are compiled after their first calls")
            if not (self._rehearsals or self._failures):
                self._record.write()
        if failure and not self._stopping:
            logger.error("%s. The kernels that it needs are compiled after their first calls", failure)

    def _carry_out(self, work: Demand | Rehearsal) -> Any:
        """Return the reply of the process to a piece of work. Raises `OSError` if no process starts."""
        status = None
        for _ in range(_ATTEMPTS):
            try:
                if self._connection is None:
                    self._start_process()
                assert self._connection is not None
                self._connection.send(work)
                reply = self._connection.recv()
            except (EOFError, ConnectionError):
                status = self._end_process()
                if self._stopping:
                    break
                self._pause(work, status)
            else:
                self._ends = 0
                return reply
        return CompileFailure(f"the process that compiles kernels ended {_ATTEMPTS} times at it (exit status {status})")

    def _pause(self, work: Demand | Rehearsal, status: int | None) -> None:
        """Wait before the next process, longer after each one that ended."""
        seconds = min(_FIRST_PAUSE * 2**self._ends, _LONGEST_PAUSE)
        self._ends += 1
        logger.warning(
            "the process that compiles kernels ended at %s (exit status %s); starting another in %g s",
            work,
            status,
            seconds,
        )
        with self._changed:
            self._changed.wait_for(lambda: self._stopping, seconds)

    def _start_process(self) -> None:
        parent, child = Pipe()
        with child, self._changed:
            if self._stopping:
                raise EOFError
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", compiler_process.PROGRAM, json.dumps(sys.path), str(child.fileno())],
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


def rehearse_here(rehearsals: Sequence[Rehearsal]) -> None:
    """Compile what rehearsals need in this process, and note that no other process needs to rehearse."""
    for rehearsal in rehearsals:
        compiler_process.find(rehearsal)(*rehearsal.arguments)
    record = _RehearsalRecord(rehearsals)
    for path in _kernels:
        record.add(path)
    record.write()


def kernel_counts() -> KernelCounts:
    """Count the kernels that this process has called or rehearsed."""
    kernels = list(_kernels.values())
    compiled = sum(kernel.compiled for kernel in kernels)
    return KernelCounts(compiled, waiting_kernels(), len(_failures()), len(kernels))


def kernel_trouble() -> str | None:
    """Say what keeps kernels from being compiled in the background, and why; None if nothing does."""
    failures, unshared = _failures(), sum(kernel.unshared for kernel in list(_kernels.values()))
    troubles = [] if _compiler is None else _compiler.troubles
    if failures:
        troubles.append(f"kernels that stay plain Python, slowly, until the next start: {len(failures)}. {failures[0]}")
    if unshared:
        troubles.append(
            f"kernels that each process compiles by itself: {unshared}. The disk of the kernel cache is full, "
            "or another version is installed"
        )
    return "; ".join(troubles) or None


def _failures() -> list[str]:
    return [kernel.failure for kernel in list(_kernels.values()) if kernel.failure and not kernel.compiled]


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
    if compiler_process.collected is not None:
        compiler_process.collected[demand, str(path)] = None
        return not path.exists()
    named = demand.module != "__main__" and "<locals>" not in demand.name  # so another process finds it
    compiler = _compiler
    if compiler is None or not named:
        _kernels[path] = _Kernel(compiled=True)  # in a moment, by this process
        return False
    return compiler.needs_plain(demand, path)
