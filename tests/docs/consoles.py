"""Commands of `console` blocks, one by one: those that run on, or that go to servers which only a test has.

What a whole block does by itself is a session's: `sessions.py`.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tests.docs.documents import ROOT
from tests.docs.sessions import programs
from tests.harness.process import free_port

__all__ = ["Console", "kill_group"]

_SECONDS = 600.0  # that a command may take: compiling all kernels, on a busy machine


class Console:
    """A shell in a folder, where `rarestream` is of this very code; it has none of our variables but those given."""

    def __init__(self, folder: Path, **variables: object) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("RARESTREAM_")}
        self._environment = {
            **inherited,
            "PATH": os.pathsep.join([str(programs(folder)), str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PYTHONPATH": str(ROOT),
            "RARESTREAM_PORT": str(free_port()),
            **{name: str(value) for name, value in variables.items()},
        }

    def run(self, command: str, *, status: int = 0, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """To its end. Raises RuntimeError where that is another than `status`."""
        completed = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=cwd or self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        if completed.returncode != status:
            raise RuntimeError(f"{command} ended with {completed.returncode}: {completed.stdout}\n{completed.stderr}")
        return completed

    @contextmanager
    def start(self, command: str) -> Iterator[subprocess.Popen[str]]:
        """In the background, in a process group of its own; its standard error is in `errors.txt`.

        At the end of the block its own end is waited for; where the block fails, the group is killed.
        """
        with (self.folder / "errors.txt").open("wb") as errors:
            started = subprocess.Popen(
                ["bash", "-euo", "pipefail", "-c", command],
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        with started, ExitStack() as failing:
            failing.callback(kill_group, started)
            yield started
            failing.pop_all()

    def errors(self) -> str:
        """On standard error, by what was started last."""
        return (self.folder / "errors.txt").read_text()

    @contextmanager
    def serving(self, command: str) -> Iterator[str]:
        """Start a service, wait until it is ready, yield it and its address; stop it in order at the end."""
        with self.start(command) as process:
            assert process.stdout is not None
            ready = process.stdout.readline()
            match = re.search(r"is ready in .*: (https?://\S+) \(dashboard\)", ready)
            if match is None:
                raise RuntimeError(f"{command} is not ready: {ready}{self.errors()}")
            yield match[1]
            process.send_signal(signal.SIGTERM)
            if process.wait(_SECONDS) not in (0, -signal.SIGTERM):
                raise RuntimeError(f"{command} ended with {process.returncode}: {self.errors()}")


def kill_group(process: subprocess.Popen[str]) -> None:
    """End it and what it has started, where any of it still runs."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
