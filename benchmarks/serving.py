"""A service process of its own for a benchmark, on a free loopback port."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

__all__ = ["serving"]


@contextmanager
def serving(store: str, folder: Path) -> Iterator[str]:
    """Start `rarestream serve` over `store`; its URL, once it is ready."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "service", "serve", "--store", store, "--port", str(port)]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        until = time.monotonic() + 120
        while not _ready(url):
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"the service did not start: {(folder / 'server.log').read_text()[-2000:]}")
            time.sleep(0.05)
        yield url
    finally:
        process.terminate()
        process.wait(60)


def _ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/v1/health/ready", timeout=5, trust_env=False).status_code == 200
    except httpx.TransportError:
        return False
