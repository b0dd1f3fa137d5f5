"""The faults: each is injected, lasts for a while, and is healed; then how long it took to be served again.

One counts as injected where it was seen to take hold: where a proxy broke something, a clock was wrong, a write failed.
So one that has come to do nothing shows in the report as one that is never injected.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime

import httpx

from tests.campaigns.chaos.cluster import Cluster, Node, Servers
from tests.campaigns.chaos.proxy import Proxy
from tests.campaigns.chaos.traffic import Traffic

__all__ = ["DISK_FULL", "Faults"]

DISK_FULL = "disk full"

_RECOVERY_SECONDS = 90.0
_FULL_SECONDS = 10.0  # that a disk stays full, or files small, for a write to fail, where none does before
_FULL = "database or disk is full"  # SQLite's words for that, and for nothing else
_CLOCK_SECONDS = 3.0  # that the clock of a busy node may be told late by; half of the least jump


@dataclass
class Faults:
    """Breaks nodes, and beside that their store, one thing after the other each."""

    cluster: Cluster
    traffic: Traffic
    rng: random.Random
    of_nodes: tuple[str, ...]  # the kinds that belong to the course
    of_store: tuple[str, ...]
    injected: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    vain: dict[str, int] = field(default_factory=lambda: defaultdict(int))  # injected, and nothing was hit
    recovered: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))  # seconds
    reports: Counter[tuple[str, str]] = field(default_factory=Counter)  # by kind: how a node said that its store fails
    stuck: list[str] = field(default_factory=list)  # what was not served again
    jumps: dict[str, int] = field(default_factory=dict)  # by node: how far ahead its clock is
    kills: list[float] = field(default_factory=list)  # on the monotonic clock: when Redis was killed, to start again
    fail_overs: list[float] = field(default_factory=list)  # likewise: when a master died
    stopping: bool = False

    async def run(self) -> None:
        """Until told to stop, and the last fault is healed."""
        await asyncio.gather(self._each(self.of_nodes, 0.3, 1.5), self._each(self.of_store, 2.0, 6.0))

    async def _each(self, kinds: tuple[str, ...], least: float, most: float) -> None:
        ways = self.ways()
        waiting: list[str] = []
        while not self.stopping:
            await asyncio.sleep(self.rng.uniform(least, most))
            if not waiting:  # each kind once, in a new order each time
                waiting = self.rng.sample(kinds, len(kinds))
            kind = waiting.pop()
            nodes = await ways[kind]()
            if nodes:
                self.injected[kind] += 1
                await self._served_again(kind, nodes)
            else:
                self.vain[kind] += 1

    def ways(self) -> dict[str, Callable[[], Awaitable[list[Node]]]]:
        """How each kind is injected; what comes back are the nodes that were hit, which are to serve again."""
        return {
            "node killed": self._killed,
            "node stopped": self._stopped,
            "node paused": self._paused,
            "clock jumped": self._jumped,
            "clients cut off": self._clients_cut,
            "clients' pieces truncated": self._clients_truncated,
            "clients' requests duplicated": self._clients_duplicated,
            "node cut off from Redis": self._store_cut,
            "packets to Redis lost": self._store_held,
            "Redis far away": self._store_delayed,
            "pieces to Redis truncated": self._store_truncated,
            "commands to Redis duplicated": self._store_duplicated,
            "Redis killed": self._redis_killed,
            "Redis paused": self._redis_paused,
            "Redis failed over": self._redis_failed_over,
            DISK_FULL: self._disk_full,
            "files kept from growing": self._files_limited,
        }

    async def _served_again(self, kind: str, nodes: list[Node]) -> None:
        """Until each of the nodes has acknowledged something again."""
        healed = time.monotonic()
        waiting = [node.url for node in nodes]
        while waiting:
            await asyncio.sleep(0.01)
            waiting = [url for url in waiting if self.traffic.answered.get(url, 0.0) <= healed]
            if time.monotonic() - healed > _RECOVERY_SECONDS:
                self.stuck.append(f"{kind}: {', '.join(waiting)}")
                return
        self.recovered[kind].append(time.monotonic() - healed)

    # Nodes

    def _node(self) -> Node:
        return self.rng.choice(self.cluster.nodes)

    async def _for(self, least: float, most: float) -> None:
        await asyncio.sleep(self.rng.uniform(least, most))

    async def _killed(self) -> list[Node]:
        node = self._node()
        node.process.kill()
        await self._for(0, 1)
        await asyncio.to_thread(node.process.start, ready=False)
        return [node]

    async def _stopped(self) -> list[Node]:
        node = self._node()
        await asyncio.to_thread(node.process.stop)
        await asyncio.to_thread(node.process.start, ready=False)
        return [node]

    async def _paused(self) -> list[Node]:
        node = self._node()
        node.signal(signal.SIGSTOP)
        await self._for(0.5, 8)
        node.signal(signal.SIGCONT)
        return [node]

    async def _healed(self, node: Node, proxy: Proxy | None, least: float, most: float) -> list[Node]:
        """Let a proxy of a node do for a while what it was told to, and be a wire then."""
        assert proxy is not None
        await self._for(least, most)
        return [node] if proxy.heal() else []

    async def _clients_cut(self) -> list[Node]:
        node = self._node()
        node.front.cut()
        return await self._healed(node, node.front, 0.2, 3)

    async def _clients_truncated(self) -> list[Node]:
        node = self._node()
        node.front.truncate = 5
        return await self._healed(node, node.front, 0.5, 2)

    async def _clients_duplicated(self) -> list[Node]:
        node = self._node()
        node.front.duplicate = 20
        return await self._healed(node, node.front, 0.5, 2)

    async def _jumped(self) -> list[Node]:
        node = self._node()
        jump = self.rng.choice(
            [item for item in (-86_400, -3600, -6, 6, 3600, 7200) if item != self.jumps.get(node.url)]
        )
        self.jumps[node.url] = jump
        node.jump(jump)
        await self._for(1, 4)
        return [node] if await self._is_ahead(node, jump) else []

    async def _is_ahead(self, node: Node, seconds: int) -> bool:
        """Whether the clock by which a node dates its replies is so far ahead."""
        try:
            async with httpx.AsyncClient(timeout=_RECOVERY_SECONDS, trust_env=False) as http:
                reply = await http.get(f"{node.url}/v1/health/live")
        except httpx.TransportError:
            return False
        report = parsedate_to_datetime(reply.headers["date"]).timestamp()
        return abs(report - time.time() - seconds) < _CLOCK_SECONDS

    # Between a node and Redis

    async def _store_cut(self) -> list[Node]:
        node = self._node()
        assert node.store is not None
        node.store.cut()
        return await self._healed(node, node.store, 0.2, 6)

    async def _store_held(self) -> list[Node]:
        node = self._node()
        assert node.store is not None
        node.store.hold()
        return await self._healed(node, node.store, 0.5, 8)

    async def _store_delayed(self) -> list[Node]:
        node = self._node()
        assert node.store is not None
        node.store.delay = self.rng.uniform(0.01, 0.3)
        return await self._healed(node, node.store, 1, 4)

    async def _store_truncated(self) -> list[Node]:
        node = self._node()
        assert node.store is not None
        node.store.truncate = 5
        return await self._healed(node, node.store, 0.5, 2)

    async def _store_duplicated(self) -> list[Node]:
        node = self._node()
        assert node.store is not None
        node.store.duplicate = 20
        return await self._healed(node, node.store, 0.5, 2)

    # The store

    @property
    def _servers(self) -> Servers:
        assert self.cluster.servers is not None
        return self.cluster.servers

    async def _redis_killed(self) -> list[Node]:
        master = self._servers.master
        master.kill()
        self.kills.append(time.monotonic())
        await self._for(0, 2)
        await asyncio.to_thread(master.start)
        return self.cluster.nodes

    async def _redis_paused(self) -> list[Node]:
        master = self._servers.master
        master.pause()
        await self._for(0.5, 8)
        master.resume()
        return self.cluster.nodes

    async def _redis_failed_over(self) -> list[Node]:
        servers = self._servers
        await servers.linked()
        await asyncio.to_thread(servers.fail_over)
        self.fail_overs.append(time.monotonic())
        await self._for(0, 2)
        self.cluster.aim()
        await self._for(0, 2)
        await asyncio.to_thread(servers.rejoin)
        return self.cluster.nodes

    async def _disk_full(self) -> list[Node]:
        """Fill the file system: SQLITE_FULL for all nodes."""
        disk = self.cluster.disk
        assert disk is not None
        began = time.monotonic()
        await asyncio.to_thread(disk.fill)
        try:
            return await self._failing(DISK_FULL, self.cluster.nodes, began, _FULL)
        finally:
            disk.empty()

    async def _files_limited(self) -> list[Node]:
        """RLIMIT_FSIZE of one node: its writes fail with EFBIG, which SQLite calls an I/O error."""
        node = self._node()
        began = time.monotonic()
        failed: list[Node] = []
        try:
            node.limit_files(True)
            failed = await self._failing("files kept from growing", [node], began, "")
            node.limit_files(False)
        except ProcessLookupError:  # it was killed meanwhile: the next one may write
            pass
        return failed

    async def _failing(self, kind: str, nodes: list[Node], began: float, words: str) -> list[Node]:
        """Those of the nodes that have said since then, in such words, that their store fails; once one has."""
        await self._for(0.5, 4)
        while True:
            report = [(node, *self.traffic.without_store.get(node.url, (0.0, ""))) for node in nodes]
            failed = [(node, message) for node, at, message in report if at > began and words in message]
            if failed or time.monotonic() - began > _FULL_SECONDS:
                self.reports.update((kind, message) for _, message in failed)
                return [node for node, _ in failed]
            await asyncio.sleep(0.05)
