"""The service as a process of its own, for tests that kill it, and its commands."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from tests.harness.forked import ForkedProgram, start_program
from tests.harness.waiting import eventually

__all__ = [
    *("Commands", "Process", "free_port", "nodes"),
    *(
        "RESTART_FAILURE",
        "ROLLING_RESTART",
        "DUMP",
        "CRASH",
        "LIVE_NODES",
        "READY",
        "REPLACEMENT",
        "RECOVERY",
        "STACKS",
    ),
]

# Parts of lines in the log that tests wait for
READY, REPLACEMENT = "rarestream is ready", "ready again"
CRASH, RESTART_FAILURE, ROLLING_RESTART = "unexpectedly", "abandoning", "replaced all workers"
DUMP, RECOVERY, STACKS = "dumping", "recovered", "stacks of worker"
LIVE_NODES = "live nodes: http://127.0.0.1:"

_START = 300.0  # seconds for a start: a cold kernel cache on a busy machine
_PATIENCE = 300.0  # seconds for what the service logs, and for its end


def free_port() -> int:
    """Find a loopback port on which nobody listens now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


class Process:
    """`python -m service serve` on one port, which stays the same over kills and restarts."""

    def __init__(self, store: str, log: Path, *, advertised: bool = False, **settings: object) -> None:
        """`advertised`: it tells other nodes its address."""
        self.store = store
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._log_file = log
        if advertised:
            settings["advertise"] = self.url
        self.environment = {
            **os.environ,
            **{f"RARESTREAM_{name.upper()}": str(value) for name, value in settings.items()},
        }
        self._process: subprocess.Popen[bytes] | ForkedProgram | None = None

    def start(self, *, ready: bool = True) -> None:
        """Start it, and wait until it is ready (or only alive); one that does not get there is killed."""
        with ExitStack() as failing:
            failing.callback(self.kill)
            self.launch()
            self.wait("ready" if ready else "live")
            failing.pop_all()

    def launch(self) -> None:
        """Start it, and do not wait."""
        arguments = ["serve", "--store", self.store, "--port", str(self.port)]
        self._process = start_program(arguments, self.environment, self._log_file)

    def wait(self, what: str) -> None:
        """Until /v1/health/ready (or live) answers 200."""

        def answers() -> bool:
            if self._process is None or self._process.poll() is not None:
                raise RuntimeError(f"the service ended: {self.log()[-3000:]}")
            try:
                return httpx.get(f"{self.url}/v1/health/{what}", timeout=5, trust_env=False).status_code == 200
            except httpx.TransportError:
                return False

        eventually(answers, lambda: f"{what}: {self.log()[-3000:]}", seconds=_START)

    def wait_for(self, text: str, times: int = 1) -> None:
        """Wait until the log has this text so many times."""
        eventually(
            lambda: self.log().count(text) >= times, lambda: f"{text!r} in {self.log()[-3000:]}", seconds=_PATIENCE
        )

    def log(self) -> str:
        """Return everything that was logged so far."""
        return self._log_file.read_text()

    @property
    def pid(self) -> int:
        """Return the id of the process. Raises `ProcessLookupError` if it does not run."""
        if self._process is None:
            raise ProcessLookupError("it does not run")
        return self._process.pid

    def children(self) -> list[int]:
        """List the ids of its running child processes, for example the workers."""
        tasks = Path(f"/proc/{self.pid}/task").glob("*/children")
        return sorted(int(child) for file in tasks for child in file.read_text().split())

    def hang_up(self) -> None:
        """SIGHUP: several workers are replaced, one at a time."""
        os.kill(self.pid, signal.SIGHUP)

    def ended(self) -> int:
        """Wait for an unexpected end; return the exit code."""
        process, self._process = self._process, None
        assert process is not None
        return _end_of(process, _PATIENCE)

    def kill(self) -> None:
        """SIGKILL: no handler runs, nothing is flushed."""
        self._signal(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM, and wait for the clean end; its exit code."""
        return self._signal(signal.SIGTERM)

    def pause(self) -> None:
        """SIGSTOP: it stands still, and its connections stay open."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def interrupt(self) -> int:
        """Ctrl-C, and wait for the clean end; its exit code."""
        return self._signal(signal.SIGINT)

    def _signal(self, number: signal.Signals) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(number)
        return _end_of(process, _PATIENCE)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()


def _end_of(process: subprocess.Popen[bytes] | ForkedProgram, seconds: float) -> int:
    """Its exit code, once it has ended by itself; one that does not in this time is killed. Raises `TimeoutExpired`."""
    try:
        return process.wait(seconds)
    finally:
        process.kill()  # nothing where it has ended
        process.wait()


@contextmanager
def nodes(store: str, folder: Path, count: int, **settings: object) -> Iterator[list[Process]]:
    """Run so many nodes over one store; kill them at the end."""
    with ExitStack() as running:
        processes = [Process(store, folder / f"node-{i}.log", **settings) for i in range(count)]
        for process in processes:
            running.enter_context(process)
        yield processes


class Commands:
    """Starts commands in the background. Those that still run at the end of the block are killed, whatever ends it."""

    def __init__(self) -> None:
        self._started = ExitStack()

    def __call__(self, *arguments: object, stderr: int = subprocess.PIPE, **environment: str) -> subprocess.Popen[str]:
        """`python -m service` with these arguments; `stderr`: as of Popen."""
        process = subprocess.Popen(
            [sys.executable, "-m", "service", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env={**os.environ, **environment},
        )
        self._started.enter_context(process)  # which waits for it, and closes what it was read by
        self._started.callback(process.kill)
        return process

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._started.close()
