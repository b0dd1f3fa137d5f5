"""Server processes of a benchmark, each on a free loopback port."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

__all__ = ["free_port", "serving", "started"]

_START = 120.0  # seconds: a cold kernel cache on a busy machine
_STOP = 120.0  # seconds: the last snapshots of thousands of learners


def free_port() -> int:
    """Return a free loopback port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


@contextmanager
def serving(store: str, folder: Path) -> Iterator[str]:
    """Start `rarestream serve` over `store`; its URL, once it is ready."""
    port = free_port()
    command = [sys.executable, "-m", "service", "serve", "--store", store, "--port", str(port)]
    with started(command, f"http://127.0.0.1:{port}/v1/health/ready", folder / "server.log"):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def started(
    command: Sequence[str], ready: str, log: Path, environment: Mapping[str, str] | None = None, log_line: str = ""
) -> Iterator[subprocess.Popen[bytes]]:
    """Run `command` during the block, with its output in `log`.

    The block begins when GET `ready` answers 200 and the log contains `log_line`. `environment` extends that of this
    process. Raises RuntimeError with the end of the log if the command does not start.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, **(environment or {})})
    try:
        until = time.monotonic() + _START
        # another process may answer at that port
        while not _answers(ready) or log_line not in log.read_text(errors="replace") or process.poll() is not None:
            if process.poll() is not None or time.monotonic() > until:
                ending = log.read_text(errors="replace")[-2000:]
                raise RuntimeError(f"{' '.join(command[:4])} did not start: {ending}")
            time.sleep(0.05)
        yield process
    finally:
        process.terminate()
        try:
            process.wait(_STOP)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5, trust_env=False).status_code == 200
    except httpx.TransportError:
        return False
