"""What is broken: nodes behind proxies, over a Redis, which may have a replica, or over one SQLite file."""

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

from tests.campaigns.chaos.disk import Disk
from tests.campaigns.chaos.proxy import Proxy
from tests.harness.process import Process
from tests.harness.redis_server import RedisServer

__all__ = ["Cluster", "Node", "Servers"]

_CLOCK = Path(__file__).parent / "clock"
_LINK_SECONDS = 60.0


class Servers:
    """A Redis, and its replica if it has one, of which either may be the master then."""

    def __init__(self, binary: str, appendfsync: str, replica: bool, history: Path | None = None) -> None:
        """`history`: the folder for the append-only file, which is never written anew, of one without a replica."""
        assert history is None or not replica
        options = {} if history is None else {"dir": str(history), "auto_aof_rewrite_percentage": "0"}
        self.all = [RedisServer(binary, appendfsync=appendfsync, **options) for _ in range(1 + replica)]
        self._master = 0

    @property
    def master(self) -> RedisServer:
        """The one that takes writes."""
        return self.all[self._master]

    @property
    def _replicas(self) -> list[RedisServer]:
        return [server for server in self.all if server is not self.master]

    async def start(self) -> None:
        """All, linked."""
        for server in self.all:
            await asyncio.to_thread(server.start)
        self._link()
        await self.linked()

    def fail_over(self) -> None:
        """Kill the master; its replica takes over."""
        self.master.kill()
        self._master = 1 - self._master
        self.master.command("REPLICAOF", "NO", "ONE")

    def rejoin(self) -> None:
        """Start the killed server again, as the replica."""
        for server in self._replicas:
            server.start()
        self._link()

    def _link(self) -> None:
        for server in self._replicas:
            server.command("REPLICAOF", "127.0.0.1", self.master.port)

    async def linked(self) -> None:
        """Until the replica follows."""
        async with asyncio.timeout(_LINK_SECONDS):
            for server in self._replicas:
                while not _follows(server):  # noqa: ASYNC110 (another program is asked)
                    await asyncio.sleep(0.05)

    def close(self) -> None:
        """End all."""
        for server in self.all:
            server.__exit__(None, None, None)


def _follows(server: RedisServer) -> bool:
    try:
        with redis.Redis(port=server.port) as client:
            report = client.info("replication")
    except redis.RedisError:
        return False
    return isinstance(report, dict) and report.get("master_link_status") == "up"


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
            "PYTHONPATH": os.pathsep.join(item for item in folders if item),
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

    def limit_files(self, limited: bool) -> None:
        """Whether the files it writes are kept from growing beyond a few pages."""
        _, hard = resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (4096 if limited else hard, hard))


class Cluster:
    """`async with Cluster(...) as cluster`: everything runs, from the start to the end of the block."""

    def __init__(self, folder: Path, nodes: int, store: Servers | Disk, **settings: object) -> None:
        """`store`: the Redis that they share, or the disk with their SQLite file; `folder`: for the nodes' logs."""
        self.servers = store if isinstance(store, Servers) else None
        self.disk = store if isinstance(store, Disk) else None
        self.nodes: list[Node] = []
        self._folder, self._count = folder, nodes
        self._settings: dict[str, object] = {
            "trim_log": False, "snapshot_events": 500, "snapshot_seconds": 2, "follow_seconds": 0.3, **settings,
        }  # fmt: skip

    @property
    def store_url(self) -> str:
        """Of the file, or of the present master."""
        if self.servers is not None:
            return self.servers.master.url
        assert self.disk is not None
        return f"sqlite:///{self.disk.file}"

    async def __aenter__(self) -> Self:
        if self.servers is not None:
            await self.servers.start()
        for number in range(self._count):
            store: Proxy | str = self.store_url
            if self.servers is not None:
                store = Proxy(self.servers.master.port)
                await store.start()
            self.nodes.append(Node(number, self._folder, store, **self._settings))
        await asyncio.gather(*(asyncio.to_thread(node.process.start) for node in self.nodes))
        for node in self.nodes:
            await node.front.start()
        return self

    def aim(self) -> None:
        """Every node is to find the present master."""
        assert self.servers is not None
        for node in self.nodes:
            assert node.store is not None
            node.store.target = self.servers.master.port
            node.store.reset()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for node in self.nodes:
            await asyncio.to_thread(node.process.kill)
            await node.front.close()
            if node.store is not None:
                await node.store.close()
        if self.servers is not None:
            await asyncio.to_thread(self.servers.close)
