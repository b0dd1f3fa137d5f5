"""What the process that compiles kernels does: one piece of work after the other, as its parent asks."""

from __future__ import annotations

import fcntl
import importlib
import os
import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from learners.numerics.kernel_cache import cache_directory

__all__ = ["PROGRAM", "CompileFailure", "Demand", "Rehearsal", "find", "work"]

_LOWEST_PRIORITY = 19
_TURN = 60  # seconds to wait for another process that compiles into this cache
_REASON = 300  # characters of an error's text

PROGRAM = f"""
import json, os, sys
os.nice({_LOWEST_PRIORITY})  # before the imports, which take a second
sys.path[:] = json.loads(sys.argv[1])
from learners.numerics.compiler_process import work
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
        return f"{self.module}.{self.name}({', '.join(map(str, self.arguments))})"


class CompileFailure(NamedTuple):
    """The reply to work that ended by an error."""

    reason: str


collected: dict[tuple[Demand, str], None] | None = None  # the kernels, and their files, that a rehearsal needs


def work(descriptor: int) -> None:
    """Compile and rehearse what the parent process asks for, until it closes the connection."""
    turns = os.open(cache_directory() / "background", os.O_RDONLY | os.O_CREAT, 0o666)
    signal.signal(signal.SIGALRM, _interrupt)
    with Connection(descriptor) as connection:
        while True:
            try:
                task = connection.recv()
                with _turn(turns):
                    reply = _carry_out(task)
                connection.send(reply)
            except (EOFError, ConnectionError):  # the parent ended
                return


@contextmanager
def _turn(turns: int) -> Iterator[None]:
    """Wait while another process compiles into this cache, but not for long: it may be stopped."""
    with suppress(TimeoutError):
        signal.alarm(_TURN)
        fcntl.flock(turns, fcntl.LOCK_EX)
        signal.alarm(0)
    yield
    fcntl.flock(turns, fcntl.LOCK_UN)


def _interrupt(*_: object) -> None:
    raise TimeoutError


def _carry_out(task: Demand | Rehearsal) -> Any:
    """Compile a kernel, or return those that a rehearsal needs; return a `CompileFailure` for an error of any kind."""
    try:
        function = find(task)
        if isinstance(task, Demand):
            function.compile(task.types)
            return None
        return _rehearse(function, task.arguments)
    except Exception as error:  # whatever it is, other kernels can be compiled
        traceback.print_exc()
        return CompileFailure(f"{type(error).__name__}: {' '.join(str(error).split())[:_REASON]}")


def find(task: Demand | Rehearsal) -> Any:
    """Import the function or kernel of a task."""
    function: Any = importlib.import_module(task.module)
    for name in task.name.split("."):
        function = getattr(function, name)
    return function


def _rehearse(function: Any, arguments: tuple[Any, ...]) -> list[tuple[Demand, str]]:
    global collected
    collected = {}
    try:
        function(*arguments)
        return list(collected)
    finally:
        collected = None
