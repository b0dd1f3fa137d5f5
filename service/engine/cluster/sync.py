"""What other nodes over the same store do, as this one follows it: learners come, go, move on, and change their place.

Nodes tell each other what they appended (`bell.py`), and this one looks at all heads now and then, for whoever did
something and died. What is new in the store is hosted here if it is to be (`placement.py`) and there is room, or else
sleeps; what is gone is dropped; what others appended is read.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress

from service.engine.cluster.placement import Placement
from service.engine.cluster.residency import Residency
from service.engine.registry import Registry
from service.errors import Damaged, LearnerGone, ServiceError, StoreError, StoreUnavailable
from service.names import GROUP, called
from service.storage import Head, Moved

__all__ = ["StoreSync"]

logger = logging.getLogger("rarestream.following")

_STRETCH = 1000  # logs that are looked at in one go, in about a millisecond
_QUIET = 30.0  # times `follow_seconds`: so often is looked where the store tells for certain that others wrote
_REST_SECONDS = 5.0  # at most, between two looks that are asked for: one that took long may have compiled kernels
_TELL_SECONDS = 60.0  # from one word that the store is away to the next


class StoreSync:
    """How this node comes to know what the store has."""

    def __init__(self, registry: Registry, placement: Placement, sleeping: Residency) -> None:
        self._registry = registry
        self._node = registry.node
        self._placement = placement
        self._residency = sleeping
        self.task: asyncio.Task[None] | None = None  # from `start` on
        self._look = asyncio.Event()  # set where what was heard asks for a look at all heads
        self._looked = 0.0  # seconds that the last look took
        self._look_by = 0.0  # on the monotonic clock: when the next is due, whatever is heard
        self._told_again: float | None = None  # on the monotonic clock: when it is told next that the store is away
        self._moving_in = asyncio.Event()  # set where nodes came or went

    async def start(self) -> None:
        """Load every learner of the store, and keep looking for what other nodes do.

        A store that is away does not fail the start: the node is not ready until it comes back.
        """
        try:
            await self._placement.meet(alive=False)  # that it is, it says once it is ready
            await self.look_around()
        except StoreUnavailable as error:
            logger.warning("the store is not there yet, and is waited for: %s", error.detail)
            self._told_again = time.monotonic() + _TELL_SECONDS
        self.task = asyncio.create_task(self._follow_and_listen(), name="follow")
        self.task.add_done_callback(self._ended)

    async def stop(self) -> None:
        """Look no more."""
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait([self.task])

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:  # a fault of ours: this node serves what it has, and says that it is not ready
            logger.critical("other nodes are no longer followed", exc_info=error)
            self._registry.ready = False

    async def _follow_and_listen(self) -> None:
        """Hear of what others do at once; and look at all heads now and then, for whoever did something and died."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow(), name="look around")
            if self._placement.spread:
                tasks.create_task(self._live(), name="say that it is alive")
                tasks.create_task(self._move_in(), name="move in")
            subscription = self._node.notifier.subscribe(self._handle_moves, self._node.settings.follow_seconds)
            tasks.create_task(subscription, name="subscribe")

    def _handle_moves(self, told: dict[str, Moved] | None) -> None:
        """Read on what other nodes announced, if it is in memory; evicted learners stay evicted."""
        for log, moved in (told or {}).items():
            replica = self._registry.find(log)
            if replica is not None and moved.position:
                if moved.snapshot is not None:
                    replica.snapshots.note_foreign(moved.snapshot)
                if replica.position < moved.position and replica.failure is None:
                    replica.log.follow(moved.position)
            elif replica is not None or not moved.position or not self._registry.knows(log):
                self._look.set()
        if told is None:
            self._look.set()

    def _due(self, now: float) -> bool:
        """Whether a look is due though nothing was heard: where others may not be heard, or something may be amiss.

        And now and then in any case: what a request left half-done that was given up is seen then.
        """
        here = self._registry
        amiss = here.unavailable or not here.ready or self._node.unreachable is not None
        return not self._node.store.certain or bool(amiss) or now >= self._look_by

    async def _next_look(self) -> bool:
        """Wait until it is time for one; whether what was heard asks for it.

        However much is heard, about a tenth of the time goes into looking.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(self._node.settings.follow_seconds):
                await asyncio.sleep(min(9 * self._looked, _REST_SECONDS))
                await self._look.wait()
        heard = self._look.is_set()
        self._look.clear()
        return heard

    def _away(self, error: StoreUnavailable) -> None:
        """The store does not answer: that is told when it has been so for a while, and then now and then."""
        now = time.monotonic()
        if self._told_again is None:
            self._told_again = now + _TELL_SECONDS
        elif now >= self._told_again:
            self._told_again = now + _TELL_SECONDS
            seconds = self._node.stale_seconds
            logger.warning("the store has not answered for %.0f s, and is waited for: %s", seconds, error.detail)

    async def _follow(self) -> None:
        failures = 0
        while True:
            heard = await self._next_look()
            began = time.monotonic()
            try:
                if heard or failures != self._node.timings.failures or self._due(began):
                    await self.look_around()
                    self._look_by = time.monotonic() + _QUIET * self._node.settings.follow_seconds
                else:  # is it there?
                    await self._node.reached(self._node.store.head(GROUP))
            except StoreUnavailable as error:
                self._look_by = 0.0
                self._away(error)
            except Damaged as error:  # of what is asked for all learners at once
                self._look_by = 0.0
                logger.error("other nodes cannot be followed: %s", error.detail)
            else:
                self._told_again = None
                if failures != self._node.timings.failures:
                    # another server may have taken over, that lacks records: each compares, though none is new
                    failures = self._node.timings.failures
                    self._all_follow()
            self._all_tick()
            self._residency.rest()
            self._looked = time.monotonic() - began

    # Loops in functions of their own: the last one of a loop in `_follow` would stay in memory until the next look.

    def _all_follow(self) -> None:
        for replica in self._registry.all():
            replica.log.follow()

    def _all_tick(self) -> None:
        for replica in self._registry.all():
            replica.tick()

    async def _live(self) -> None:
        """Say that this node is alive, and see who else is, however long anything else takes."""
        while True:
            try:
                if await self._placement.meet(alive=self._registry.ready):
                    self._moving_in.set()
            except StoreError as error:
                logger.debug("the store does not answer: %s", error.detail)
            await asyncio.sleep(self._node.settings.follow_seconds)

    async def _move_in(self) -> None:
        """Have awake what is to be hosted here since other nodes came or went, as far as there is room."""
        while True:
            await self._moving_in.wait()
            self._moving_in.clear()
            for name in list(self._registry.evicted):
                if not self._placement.here(name) or self._residency.full:
                    continue
                try:
                    await self._residency.load(name)
                except ServiceError as error:  # whoever asks for it next is told, or wakes it
                    logger.warning("%s: %s", name, error.detail)

    async def look_around(self) -> None:
        """Host what is new in the store, drop what is gone, catch up with what other nodes appended."""
        here = self._registry
        heads = await self._node.reached(self._node.store.heads())
        await self._drop(heads)
        for number, (name, head) in enumerate(heads.items() if here.ready else sorted(heads.items())):
            if number % _STRETCH == _STRETCH - 1:
                await asyncio.sleep(0)  # others have their turn
            if here.sleeps(name, head):  # of thousands most do
                continue
            try:
                await self._meet(name, head)
            except StoreUnavailable:
                raise
            except ServiceError as error:  # this learner's trouble is not the others'
                known = here.unavailable.get(name)
                if known is None or known.detail != error.detail:
                    logger.error("%s: %s", called(name), error.detail)
                    here.unavailable[name] = error
            else:
                here.unavailable.pop(name, None)
        for name in here.unavailable.keys() - heads.keys():
            del here.unavailable[name]
        if not here.ready:
            await self._catch_up()
            here.ready = True

    async def _drop(self, heads: dict[str, Head]) -> None:
        """Let go of what the store has no longer, by these heads and, as they were read a while ago, by new ones."""
        here = self._registry
        for replica in here.all():
            name = replica.name
            head = heads.get(name)
            if (head is None or head.birth != replica.birth) and not await self._still(name, replica.birth):
                replica.mailbox.failure = LearnerGone(f"{called(name)} was deleted")
                here.forget(replica)
                await replica.close(save=False)
        gone = here.evicted.keys() - heads.keys()
        if gone:
            fresh_heads = await self._node.reached(self._node.store.heads())
            for name in gone - fresh_heads.keys() - here.moving.keys():
                here.evicted.pop(name, None)

    async def _catch_up(self) -> None:
        """At the start: have all that is hosted read its log, side by side."""
        everyone = self._registry.all()
        done = await asyncio.gather(*(replica.log.catch_up() for replica in everyone), return_exceptions=True)
        for replica, failure in zip(everyone, done, strict=True):
            if isinstance(failure, StoreUnavailable):
                raise failure
            if failure is not None:  # `failed` says so to whoever asks for it
                logger.error("%s: %s", called(replica.name), failure)

    async def discover(self, log: str) -> None:
        """Meet what another node created a moment ago, if it did. Raises `StoreUnavailable` where that is not known."""
        here = self._registry
        if here.find(log) is not None or here.knows(log) or not here.ready:
            return
        head = await self._node.reached(self._node.store.head(log))
        if head is not None:
            await self._meet(log, head)
            found = here.find(log)
            if found is not None:  # as far as it was when it was asked for
                await found.log.catch_up()

    async def _meet(self, log: str, head: Head) -> None:
        """Take in a log of which the store has this head, or have what is hosted of it read on."""
        here = self._registry
        replica = here.find(log)
        if replica is not None:
            if replica.position != head.position and replica.failure is None and not replica.mailbox.has_jobs:
                replica.log.follow()
            return
        if here.sleeps(log, head):
            return
        async with here.creating:  # what is created here just now is in the store, and not found yet
            replica = here.find(log)
            if replica is None and here.sleeps(log, head):
                return
            if replica is None:
                here.evicted.pop(log, None)  # of another birth
                here.check_room()
                if (self._residency.full or not self._placement.here(log)) and not log.startswith(GROUP):
                    # the heads were read a while ago
                    if not here.ready or (await self._still(log, head.birth) and log not in here.replicas):
                        here.evicted[log] = head.birth
                    return
                replica, _ = await here.host(log, head.birth)
                here.take_in(replica)
        replica.log.follow()

    async def _still(self, log: str, birth: bytes) -> bool:
        """Whether the store has the log of this birth just now."""
        head = await self._node.reached(self._node.store.head(log))
        return head is not None and head.birth == birth
