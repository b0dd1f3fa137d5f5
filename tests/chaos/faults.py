"""The faults: each is injected, lasts for a while, and is healed; then how long it took to be served again."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from tests.chaos.cluster import Cluster, Node
from tests.chaos.traffic import Traffic

__all__ = ["Faults"]

_RECOVERY_SECONDS = 90.0


@dataclass
class Faults:
    """Breaks nodes, and beside that their store, one thing after the other each."""

    cluster: Cluster
    traffic: Traffic
    rng: random.Random
    fail_over: bool = True
    injected: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    recovered: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))  # seconds
    stuck: list[str] = field(default_factory=list)  # what was not served again
    fail_overs: list[float] = field(default_factory=list)  # on the monotonic clock: when a master died
    stopping: bool = False

    async def run(self) -> None:
        """Until told to stop, and the last fault is healed."""
        of_store = self._of_redis() if self.cluster.pair is not None else {"disk full": self._disk_full}
        await asyncio.gather(self._each(self._of_nodes(), 0.3, 1.5), self._each(of_store, 2.0, 6.0))

    async def _each(self, kinds: dict[str, Callable[[], Awaitable[list[Node]]]], least: float, most: float) -> None:
        waiting: list[str] = []
        while not self.stopping:
            await asyncio.sleep(self.rng.uniform(least, most))
            if not waiting:  # each kind once, in a new order each time
                waiting = self.rng.sample(list(kinds), len(kinds))
            kind = waiting.pop()
            self.injected[kind] += 1
            nodes = await kinds[kind]()
            await self._served_again(kind, nodes)

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

    def _of_nodes(self) -> dict[str, Callable[[], Awaitable[list[Node]]]]:
        kinds = {
            "node killed": self._killed,
            "node stopped": self._stopped,
            "node paused": self._paused,
            "clock jumped": self._jumped,
            "clients cut off": self._clients_cut,
            "clients' pieces truncated": self._clients_truncated,
            "clients' requests duplicated": self._clients_duplicated,
        }
        if self.cluster.pair is not None:
            kinds |= {
                "node cut off from Redis": self._store_cut,
                "packets to Redis lost": self._store_held,
                "Redis far away": self._store_delayed,
                "pieces to Redis truncated": self._store_truncated,
                "commands to Redis duplicated": self._store_duplicated,
            }
        return kinds

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

    async def _clients_cut(self) -> list[Node]:
        node = self._node()
        node.front.cut()
        await self._for(0.2, 3)
        node.front.heal()
        return [node]

    async def _clients_truncated(self) -> list[Node]:
        node = self._node()
        node.front.truncate = 5
        await self._for(0.5, 2)
        node.front.heal()
        return [node]

    async def _clients_duplicated(self) -> list[Node]:
        node = self._node()
        node.front.duplicate = 20
        await self._for(0.5, 2)
        node.front.heal()
        return [node]

    async def _jumped(self) -> list[Node]:
        node = self._node()
        node.jump(self.rng.choice([-86_400, -3600, -5, 5, 3600, 7200]))
        await self._for(1, 4)
        return [node]

    # Between a node and Redis

    async def _store_cut(self) -> list[Node]:
        node = self._node()
        assert node.store is not None
        node.store.cut()
        await self._for(0.2, 6)
        node.store.heal()
        return [node]

    async def _store_held(self) -> list[Node]:
        node = self._node()
        assert node.store is not None
        node.store.hold()
        await self._for(0.5, 8)
        node.store.heal()
        return [node]

    async def _store_delayed(self) -> list[Node]:
        node = self._node()
        assert node.store is not None
        node.store.delay = self.rng.uniform(0.01, 0.3)
        await self._for(1, 4)
        node.store.heal()
        return [node]

    async def _store_truncated(self) -> list[Node]:
        node = self._node()
        assert node.store is not None
        node.store.truncate = 5
        await self._for(0.5, 2)
        node.store.heal()
        return [node]

    async def _store_duplicated(self) -> list[Node]:
        node = self._node()
        assert node.store is not None
        node.store.duplicate = 20
        await self._for(0.5, 2)
        node.store.heal()
        return [node]

    # The store

    def _of_redis(self) -> dict[str, Callable[[], Awaitable[list[Node]]]]:
        kinds = {"Redis killed": self._redis_killed, "Redis paused": self._redis_paused}
        if self.fail_over:
            kinds["Redis failed over"] = self._redis_failed_over
        return kinds

    async def _redis_killed(self) -> list[Node]:
        pair = self.cluster.pair
        assert pair is not None
        pair.servers[pair.master].kill()
        await self._for(0, 2)
        await asyncio.to_thread(pair.restart)
        return self.cluster.nodes

    async def _redis_paused(self) -> list[Node]:
        pair = self.cluster.pair
        assert pair is not None
        pair.servers[pair.master].pause()
        await self._for(0.5, 8)
        pair.servers[pair.master].resume()
        return self.cluster.nodes

    async def _redis_failed_over(self) -> list[Node]:
        pair = self.cluster.pair
        assert pair is not None
        await pair.linked()
        self.fail_overs.append(time.monotonic())
        await asyncio.to_thread(pair.fail_over)
        await self._for(0, 2)
        self.cluster.aim()
        await self._for(0, 2)
        await asyncio.to_thread(pair.rejoin)
        return self.cluster.nodes

    async def _disk_full(self) -> list[Node]:
        node = self._node()
        try:
            node.fill_disk(True)
            await self._for(0.5, 4)
            node.fill_disk(False)
        except ProcessLookupError:  # it was killed meanwhile: the next one has room
            pass
        return [node]
