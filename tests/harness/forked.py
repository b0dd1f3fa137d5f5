"""Starts `python -m service` by a fork of a process that has imported it, which saves the seconds of the imports."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["ForkedProgram", "start_program"]

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["service.cli.commands.consume", "service.connectors.run", "service.server.run"])
# What modules read when they are imported is in force in the fork server. Not compared: our own settings, pytest's
# notes on the current test, and what scikit-learn sets for OpenMP when a test imports it.
_SINCE_THE_START = ("RARESTREAM_", "PYTEST_", "KMP_")


def _imports_read(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.startswith(_SINCE_THE_START)}


_INHERITED = _imports_read(os.environ)


def start_program(
    arguments: Sequence[str], environment: Mapping[str, str], output: Path, errors: Path | None = None
) -> subprocess.Popen[bytes] | ForkedProgram:
    """Start `python -m service` with its streams in files: by a fork, unless its imports would read other variables."""
    if _imports_read(environment) == _INHERITED:
        return ForkedProgram(arguments, environment, output, errors)
    with output.open("ab") as out, (errors or output).open("ab") as err:
        command = [sys.executable, "-m", "service", *arguments]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment)


class ForkedProgram:
    """A forked `python -m service`, with the methods of `subprocess.Popen` that the harness uses."""

    def __init__(
        self, arguments: Sequence[str], environment: Mapping[str, str], output: Path, errors: Path | None = None
    ) -> None:
        """Append standard output to a file, and standard error to another or the same."""
        files = str(output), str(errors or output)
        self._process = _CONTEXT.Process(
            target=_run, args=(list(arguments), dict(environment), files, os.getcwd()), daemon=False
        )
        for file in files:
            Path(file).touch()  # readers need not wait for the fork
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    @property
    def returncode(self) -> int | None:
        """Exit code, the negative number of a signal; None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return the exit code; the negative number of a signal. Raises `TimeoutExpired`."""
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired("python -m service", timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL, unless it has ended."""
        self.send_signal(signal.SIGKILL)


def _run(arguments: list[str], environment: dict[str, str], files: tuple[str, str], directory: str) -> None:
    """Become the program: its environment, streams, folder and arguments are as a shell would set them."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    for stream, file in enumerate(files, start=1):
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(descriptor, stream)
        os.close(descriptor)
    sys.argv = ["service", *arguments]
    from service.cli import main

    main()
