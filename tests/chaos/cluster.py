"""What is broken: nodes behind proxies, over a Redis with a replica or over one SQLite file."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import struct
from pathlib import Path
from types import TracebackType
from typing import Self

import redis

from tests.chaos.proxy import Proxy
from tests.service.process import Process
from tests.service.redis_server import RedisServer

__all__ = ["Cluster", "Node", "Pair"]

_CLOCK = Path(__file__).parent / "clock"
_LINK_SECONDS = 60.0


class Pair:
    """A Redis and its replica, of which either may be the master."""

    def __init__(self, appendfsync: str) -> None:
        self.servers = [RedisServer(appendfsync=appendfsync) for _ in range(2)]
        self.master = 0

    @property
    def port(self) -> int:
        """Of the master."""
        return self.servers[self.master].port

    @property
    def url(self) -> str:
        """Of the master."""
        return self.servers[self.master].url

    def start(self) -> None:
        """Both, linked."""
        for server in self.servers:
            server.start()
        self._link()

    def restart(self) -> None:
        """The master once more, after it was killed."""
        self.servers[self.master].start()

    def fail_over(self) -> None:
        """The master dies, its replica takes over."""
        self.servers[self.master].kill()
        self.master = 1 - self.master
        self.servers[self.master].command("REPLICAOF", "NO", "ONE")

    def rejoin(self) -> None:
        """The one that was killed comes back, as the replica."""
        self.servers[1 - self.master].start()
        self._link()

    def _link(self) -> None:
        self.servers[1 - self.master].command("REPLICAOF", "127.0.0.1", self.port)

    async def linked(self) -> None:
        """Until the replica follows."""
        async with asyncio.timeout(_LINK_SECONDS):
            while not self._follows():  # noqa: ASYNC110 (another program is asked)
                await asyncio.sleep(0.05)

    def _follows(self) -> bool:
        try:
            with redis.Redis(port=self.servers[1 - self.master].port) as client:
                told = client.info("replication")
        except redis.RedisError:
            return False
        return isinstance(told, dict) and told.get("master_link_status") == "up"

    def close(self) -> None:
        """End both."""
        for server in self.servers:
            server.__exit__(None, None, None)


class Node:
    """A node, the proxy before it and the proxy between it and its store, if that is a Redis."""

    def __init__(self, number: int, folder: Path, store: Proxy | str, **settings: object) -> None:
        self.number = number
        self.store = store if isinstance(store, Proxy) else None
        self.clock = folder / f"clock-{number}"
        self.jump(0)
        url = store if isinstance(store, str) else f"redis://127.0.0.1:{store.port}/0"
        self.process = Process(url, folder / f"node-{number}.log", **settings)
        folders = [str(_CLOCK), os.environ.get("PYTHONPATH", "")]
        self.process.environment |= {
            "CHAOS_CLOCK": str(self.clock),
            "PYTHONPATH": os.pathsep.join(one for one in folders if one),
        }
        self.front = Proxy(self.process.port)

    @property
    def url(self) -> str:
        """By way of its proxy."""
        return f"http://127.0.0.1:{self.front.port}"

    def jump(self, seconds: int) -> None:
        """Its clock is so many seconds ahead, or behind, from now on."""
        with self.clock.open("r+b" if self.clock.exists() else "wb") as file:  # in place: the process has it mapped
            file.write(struct.pack("d", seconds))

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        os.kill(self.process.pid, number)

    def fill_disk(self, full: bool) -> None:
        """Whether the files it writes may grow beyond a few pages."""
        _, hard = resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (4096 if full else hard, hard))


class Cluster:
    """`async with Cluster(...) as cluster`: everything runs, from the start to the end of the block."""

    def __init__(self, folder: Path, nodes: int, pair: Pair | None, **settings: object) -> None:
        """`pair`: where they share a Redis; else they share an SQLite file."""
        self.pair = pair
        self.nodes: list[Node] = []
        self._folder, self._count = folder, nodes
        self._settings: dict[str, object] = {
            "trim_log": False, "snapshot_events": 500, "snapshot_seconds": 2, "follow_seconds": 0.3, **settings,
        }  # fmt: skip
        self.store_url = f"sqlite:///{folder / 'log.db'}"

    async def __aenter__(self) -> Self:
        if self.pair is not None:
            await asyncio.to_thread(self.pair.start)
            await self.pair.linked()
        for number in range(self._count):
            store: Proxy | str = self.store_url
            if self.pair is not None:
                store = Proxy(self.pair.port)
                await store.start()
            self.nodes.append(Node(number, self._folder, store, **self._settings))
        await asyncio.gather(*(asyncio.to_thread(node.process.start) for node in self.nodes))
        for node in self.nodes:
            await node.front.start()
        return self

    def aim(self) -> None:
        """Every node is to find the present master."""
        assert self.pair is not None
        for node in self.nodes:
            assert node.store is not None
            node.store.target = self.pair.port
            node.store.reset()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for node in self.nodes:
            await asyncio.to_thread(node.process.kill)
            await node.front.close()
            if node.store is not None:
                await node.store.close()
        if self.pair is not None:
            await asyncio.to_thread(self.pair.close)
