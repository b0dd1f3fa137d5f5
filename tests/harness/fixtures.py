"""Fixtures: commands, a Redis server, and every kind of store."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from service.storage.memory import MemoryStore
from service.storage.store_protocol import Store, open_store
from tests.harness.process import Commands
from tests.harness.redis_server import RedisServer

Opener = Callable[[], Awaitable[Store]]


@pytest.fixture
def start() -> Iterator[Commands]:
    """Starts commands of the service, which do not outlive the test."""
    with Commands() as commands:
        yield commands


@pytest.fixture(scope="session")
def running_redis() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture
def redis_server(running_redis: RedisServer) -> RedisServer:
    """The session's server, up and empty."""
    running_redis.start()
    running_redis.flush()
    return running_redis


@pytest.fixture(params=["memory", "sqlite", "redis"])
def kind(request: pytest.FixtureRequest) -> str:
    """Tests that use `open_again` or `store` run once with each kind."""
    return str(request.param)


@pytest.fixture
async def open_again(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Opener]:
    """Opens one more store on the same data, as another node does; all are closed after the test."""
    url = f"sqlite:///{tmp_path / 'store.db'}"
    if kind == "redis":
        url = request.getfixturevalue("redis_server").url
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
    """An empty store of each kind."""
    return await open_again()


@pytest.fixture
def root_logger() -> Iterator[None]:
    """Puts the standard library's logging back to what it was."""
    root, own = logging.getLogger(), logging.getLogger("rarestream")
    handlers, levels = root.handlers[:], (root.level, own.level)
    yield
    for handler in root.handlers[:]:
        root.removeHandler(handler)
    for handler in handlers:
        root.addHandler(handler)
    root.setLevel(levels[0])
    own.setLevel(levels[1])
    logging.captureWarnings(False)
