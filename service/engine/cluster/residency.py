"""Evicts learners from memory and loads them on demand: at most `max_resident` are in memory.

The store has the snapshot and the log of an evicted learner, and the next request loads it. The least recently used
learners are evicted first, and all unused ones that other nodes host (`placement.py`). A learner in use stays in
memory. Requests wait while a learner is evicted or loaded.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from itertools import islice
from operator import attrgetter

from service.engine.cluster.placement import Placement
from service.engine.replica import LearnerReplica
from service.engine.replica_registry import Registry
from service.errors import LearnerGone, LearnerMissing, ServiceError, StoreUnavailable

__all__ = ["Residency"]

_GUEST = 10.0  # times `follow_seconds`: how long a learner of other nodes stays after its last use
_SPARE = 32  # evict `max_resident` / _SPARE more than necessary
_ABREAST = 4  # parallel evictions if memory is short: the store commits their snapshots together


class Residency:
    """Evicts and loads the learners of a node."""

    def __init__(self, registry: Registry, placement: Placement) -> None:
        self._registry = registry
        self._placement = placement
        self.eviction: asyncio.Task[None] | None = None  # the last round of evictions
        self._freed = asyncio.Event()  # set for a moment by each eviction, and at the end of a round
        self._loading = 0  # learners that are being loaded, for which there is space
        self._loaded = asyncio.Event()  # set for a moment by each load

    async def load(self, name: str) -> None:
        """Load the learner of this name if it is evicted or in transition. Raises `ServiceError`."""
        registry = self._registry
        while name not in registry.replicas and (name in registry.evicted or name in registry.moving):
            if name in registry.moving:
                await self.wait_for_transition(name)
            else:
                await self.transition(name, self._load)

    async def wait_for_transition(self, name: str) -> None:
        """Wait until the transition of a learner has ended."""
        await asyncio.shield(self._registry.moving[name])

    async def transition(self, name: str, move: Callable[[str], Awaitable[None]]) -> None:
        """Evict, load or delete a learner by `move`; requests for it wait meanwhile."""
        moving = self._registry.moving[name] = asyncio.get_running_loop().create_future()
        try:
            await move(name)
        finally:
            del self._registry.moving[name]
            moving.set_result(None)

    async def _load(self, name: str) -> None:
        await self.wait_for_space()
        self._loading += 1
        try:
            await self._load_now(name)
        finally:
            self._loading -= 1
            self._loaded.set()
            self._loaded.clear()

    async def _load_now(self, name: str) -> None:
        registry = self._registry
        try:
            replica, behind = await registry.host(name, registry.evicted[name])
            if behind:
                try:
                    await replica.log.catch_up()  # before it is listed: those records were acknowledged
                except ServiceError:
                    await replica.close(save=False)
                    raise
        except (LearnerGone, LearnerMissing) as error:
            await registry.drop_evicted(name, error)
            return
        except StoreUnavailable:
            raise
        except ServiceError as error:
            registry.unavailable[name] = error
            raise
        del registry.evicted[name]
        registry.add(replica)
        self.evict_idle()

    async def _evict(self, name: str) -> None:
        replica = self._registry.replicas.pop(name)
        self._registry.evicted[name] = replica.birth
        self._notify()
        await replica.close(save=True)

    def _notify(self, _: object = None) -> None:
        self._freed.set()
        self._freed.clear()

    @property
    def _over(self) -> int:
        """How many learners are in memory beyond the limit; negative: how many more fit."""
        return len(self._registry.replicas) - self._registry.node.settings.max_resident

    @property
    def full(self) -> bool:
        """Whether no more learners fit into memory."""
        return self._over >= 0

    def evict_idle(self) -> None:
        """Start a round of evictions if it is necessary."""
        over = self._over > 0 or any(self._foreign())
        if over and (self.eviction is None or self.eviction.done()):
            round_ = asyncio.create_task(self._evict_round(), name="rest")
            self.eviction = self._registry.node.background.watch(round_, "evict learners")
            self.eviction.add_done_callback(self._notify)

    def _foreign(self) -> Iterator[LearnerReplica]:
        """Yield the replicas of learners that other nodes host, and that were not used here for a while."""
        if self._placement.spread and not self._placement.settling:
            since = time.monotonic() - _GUEST * self._registry.node.settings.follow_seconds
            for replica in self._registry.replicas.values():
                if replica.last_used < since and not self._placement.hosts(replica.name):
                    yield replica

    @property
    def _most_over(self) -> int:
        """How many learners beyond the limit make a load wait."""
        return self._registry.node.settings.max_resident // 8 + _ABREAST

    async def wait_for_space(self) -> None:
        """Wait until one more learner fits into memory, as long as evictions go on.

        It does not wait for the end of a round, which lasts as long as other learners are loaded.
        """
        if self._over >= self._most_over:
            self.evict_idle()
            round_ = self.eviction
            assert round_ is not None
            while self._over >= self._most_over and not round_.done():
                await self._freed.wait()

    async def _evict_round(self) -> None:
        """Evict foreign and least recently used learners until the rest fits, or none is idle."""
        while self._registry.node.unreachable is None:
            over = self._over
            if over > 0:  # some more, because sorting all takes longer than a few evictions
                over += self._registry.node.settings.max_resident // _SPARE
            by_use = sorted(self._registry.replicas.values(), key=attrgetter("last_used")) if over > 0 else []
            candidates = list(islice(filter(self._is_evictable, by_use), max(over, 0)))
            candidates += [
                replica for replica in self._foreign() if replica not in candidates and self._is_evictable(replica)
            ]
            if not candidates:
                return
            running: set[asyncio.Task[None]] = set()
            async with asyncio.TaskGroup() as tasks:
                for replica in candidates:
                    while len(running) >= await self._parallel():
                        _, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                    running.add(tasks.create_task(self.evict(replica)))

    async def _parallel(self) -> int:
        """Return how many evictions may run in parallel: each one delays loads.

        If there is space enough, evictions run one at a time and wait for loads.
        """
        while self._over <= self._most_over // 4:
            if not self._loading:
                return 1
            await self._loaded.wait()
        return _ABREAST if self._over > self._most_over // 2 else 2

    async def evict(self, replica: LearnerReplica) -> None:
        """Evict a learner unless it is in use."""
        if self._is_evictable(replica):  # it may be in use by now
            await self.transition(replica.name, self._evict)

    def _is_evictable(self, replica: LearnerReplica) -> bool:
        registry = self._registry
        return replica.idle and replica.name not in registry.moving and registry.replicas.get(replica.name) is replica
