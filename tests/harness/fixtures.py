"""Fixtures: commands, a Redis server, every kind of store, and the clocks of a machine."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from service import clock
from service.storage.memory import MemoryStore
from service.storage.open_store import open_store
from service.storage.store_protocol import Store
from tests.harness.process import Commands
from tests.harness.redis_server import RedisServer

Opener = Callable[[], Awaitable[Store]]
START = 1_800_000_000.0  # 2027-01-15, 08:00 UTC


class Machine:
    """The clocks of a machine; both stand still between calls."""

    def __init__(self) -> None:
        self.time = START  # of day
        self.elapsed = 1000.0  # on the monotonic clock

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.time += seconds
        self.elapsed += seconds

    def step(self, seconds: float) -> None:
        """Set the time of day forward, or back."""
        self.time += seconds

    @property
    def even(self) -> float:
        """The time of day without steps, as another machine shows it."""
        return START + (self.elapsed - 1000.0)

    def clock(self) -> clock.Clock:
        """Return the clock of a process that starts now."""
        return clock.Clock(lambda: self.time, lambda: self.elapsed)


@pytest.fixture
def start() -> Iterator[Commands]:
    """Start commands of the service; they end with the test."""
    with Commands() as commands:
        yield commands


@pytest.fixture(scope="session")
def running_redis() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture
def redis_server(running_redis: RedisServer) -> RedisServer:
    """Return the session's server, running and empty."""
    running_redis.start()
    running_redis.flush()
    return running_redis


@pytest.fixture(params=["memory", "sqlite", "redis"])
def kind(request: pytest.FixtureRequest) -> str:
    """Run tests that use `open_again` or `store` once with each kind."""
    return str(request.param)


@pytest.fixture
async def open_again(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Opener]:
    """Open another store on the same data, as another node does; all are closed after the test."""
    url = f"sqlite:///{tmp_path / 'store.db'}"
    if kind == "redis":
        server = request.getfixturevalue("redis_server")
        url = f"{server.url}?socket_timeout=60&socket_connect_timeout=60"  # for a busy machine
    opened: list[Store] = []
    shared = MemoryStore()

    async def opener() -> Store:
        opened.append(MemoryStore(like=shared) if kind == "memory" else await open_store(url))
        return opened[-1]

    yield opener
    for store in opened:
        await store.close()


@pytest.fixture
async def store(open_again: Opener) -> Store:
    """Return an empty store of each kind."""
    return await open_again()


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Return the clocks by which this process dates events, from now on."""
    machine = Machine()
    monkeypatch.setattr("service.clock.CLOCK", machine.clock())
    return machine


@pytest.fixture
def root_logger() -> Iterator[None]:
    """Restore the standard library's logging after the test."""
    root, service_logger = logging.getLogger(), logging.getLogger("rarestream")
    handlers, levels = root.handlers[:], (root.level, service_logger.level)
    yield
    for handler in root.handlers[:]:
        root.removeHandler(handler)
    for handler in handlers:
        root.addHandler(handler)
    root.setLevel(levels[0])
    service_logger.setLevel(levels[1])
    logging.captureWarnings(False)
