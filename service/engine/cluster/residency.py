"""Which learners are in memory: so many as the settings say. The others sleep, and awake for whoever wants them.

Of a learner that sleeps the store has a snapshot, and its log; it is read back when it is asked for. Those used longest
ago fall asleep first, and of learners that other nodes host (`placement.py`) all that nobody has used here for a while.
One that is in somebody's hands stays awake. While one falls asleep or awakes, whoever wants it waits.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from itertools import islice
from operator import attrgetter

from service.engine.cluster.placement import Placement
from service.engine.registry import Registry
from service.engine.replica import LearnerReplica
from service.errors import LearnerGone, ServiceError, StoreUnavailable

__all__ = ["Residency"]

_GUEST = 10.0  # times `follow_seconds`: so long after its last use a learner stays here that other nodes host
_SPARE = 32  # room is made for a part of all that may be in memory, one in so many
_ABREAST = 4  # learners that fall asleep side by side where room is short: the store commits their snapshots together


class Residency:
    """What puts the learners of a node to sleep, and wakes them."""

    def __init__(self, registry: Registry, placement: Placement) -> None:
        self._registry = registry
        self._placement = placement
        self.resting: asyncio.Task[None] | None = None  # the last round in which learners fell asleep
        self._fewer = asyncio.Event()  # set for a moment when one falls asleep, and at the end of a round
        self._waking = 0  # learners that awake just now, for whom there is room
        self._awoken = asyncio.Event()  # set for a moment when one has

    async def load(self, name: str) -> None:
        """Have the learner of this name awake, if it sleeps or is about to. Raises `ServiceError`."""
        here = self._registry
        while name not in here.replicas and (name in here.evicted or name in here.moving):
            if name in here.moving:
                await self.settled(name)
            else:
                await self.moved(name, self._wake)

    async def settled(self, name: str) -> None:
        """Until a learner that falls asleep or awake just now has done so."""
        await asyncio.shield(self._registry.moving[name])

    async def moved(self, name: str, move: Callable[[str], Awaitable[None]]) -> None:
        """Have a learner fall asleep or awake, or go; whoever wants it meanwhile waits."""
        moving = self._registry.moving[name] = asyncio.get_running_loop().create_future()
        try:
            await move(name)
        finally:
            del self._registry.moving[name]
            moving.set_result(None)

    async def _wake(self, name: str) -> None:
        await self.space()
        self._waking += 1
        try:
            await self._wake_now(name)
        finally:
            self._waking -= 1
            self._awoken.set()
            self._awoken.clear()

    async def _wake_now(self, name: str) -> None:
        here = self._registry
        try:
            replica, behind = await here.host(name, here.evicted[name])
            if behind:
                try:
                    await (
                        replica.log.catch_up()
                    )  # before anybody finds it: what is behind its snapshot was acknowledged
                except ServiceError:
                    await replica.close(save=False)
                    raise
        except LearnerGone:
            del here.evicted[name]
            return
        except StoreUnavailable:
            raise
        except ServiceError as error:
            here.unavailable[name] = error
            raise
        del here.evicted[name]
        here.unavailable.pop(name, None)
        here.take_in(replica)
        self.rest()

    async def _sleep(self, name: str) -> None:
        replica = self._registry.replicas.pop(name)
        self._registry.evicted[name] = replica.birth
        self._tell()
        await replica.close(save=True)

    def _tell(self, _: object = None) -> None:
        self._fewer.set()
        self._fewer.clear()

    @property
    def _over(self) -> int:
        """How many more are in memory than may be; below 0: that many more may."""
        return len(self._registry.replicas) - self._registry.node.settings.max_resident

    @property
    def full(self) -> bool:
        """Whether as many are in memory as may be."""
        return self._over >= 0

    def rest(self) -> None:
        """See to it that no more learners are in memory than may be, and none for long that others host."""
        over = self._over > 0 or any(self._guests())
        if over and (self.resting is None or self.resting.done()):
            self.resting = asyncio.create_task(self._let_sleep(), name="rest")
            self.resting.add_done_callback(self._tell)

    def _guests(self) -> Iterator[LearnerReplica]:
        """Those in memory that other nodes host, and that nobody has used here for a while."""
        if self._placement.spread and not self._placement.settling:
            since = time.monotonic() - _GUEST * self._registry.node.settings.follow_seconds
            for replica in self._registry.replicas.values():
                if replica.last_used < since and not self._placement.here(replica.name):
                    yield replica

    @property
    def _most_over(self) -> int:
        """How many more than may be in memory are there before who needs room has to wait."""
        return self._registry.node.settings.max_resident // 8 + _ABREAST

    async def space(self) -> None:
        """Until one more may come into memory, if any that are there can go.

        It is not the end of a round that is waited for: a round goes on for as long as others come.
        """
        if self._over >= self._most_over:
            self.rest()
            round_ = self.resting
            assert round_ is not None
            while self._over >= self._most_over and not round_.done():
                await self._fewer.wait()

    async def _let_sleep(self) -> None:
        """Put guests to sleep, and those used longest ago, until no more are awake than may be, or none is idle."""
        while self._registry.node.unreachable is None:
            over = self._over
            if over > 0:  # some more than that: to look at all of them takes longer than to put a few to sleep
                over += self._registry.node.settings.max_resident // _SPARE
            by_use = sorted(self._registry.replicas.values(), key=attrgetter("last_used")) if over > 0 else []
            tired = list(islice(filter(self._may_sleep, by_use), max(over, 0)))
            tired += [replica for replica in self._guests() if replica not in tired and self._may_sleep(replica)]
            if not tired:
                return
            going: set[asyncio.Task[None]] = set()
            async with asyncio.TaskGroup() as tasks:
                for one in tired:
                    while len(going) >= await self._abreast():
                        _, going = await asyncio.wait(going, return_when=asyncio.FIRST_COMPLETED)
                    going.add(tasks.create_task(self.put_to_sleep(one)))

    async def _abreast(self) -> int:
        """How many may fall asleep side by side: each of them holds up who wakes one meanwhile.

        While there is room enough, one at a time, and none as long as others awake.
        """
        while self._over <= self._most_over // 4:
            if not self._waking:
                return 1
            await self._awoken.wait()
        return _ABREAST if self._over > self._most_over // 2 else 2

    async def put_to_sleep(self, replica: LearnerReplica) -> None:
        """Have a learner fall asleep, unless it is wanted."""
        if self._may_sleep(replica):  # still
            await self.moved(replica.name, self._sleep)

    def _may_sleep(self, replica: LearnerReplica) -> bool:
        here = self._registry
        return replica.idle and replica.name not in here.moving and here.replicas.get(replica.name) is replica
