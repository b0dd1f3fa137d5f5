"""The engine: every learner on this node. It creates, finds, deletes and recovers them, and follows other nodes."""

from __future__ import annotations

import asyncio
import logging
import uuid

from learners.config import Config
from service.codec import Created, pack_record
from service.errors import LearnerGone, LimitReached, NameTaken, ServiceError, StoreUnavailable, UnknownLearner
from service.hosted import Hosted
from service.node import Node
from service.settings import Settings
from service.store import Head, Store

__all__ = ["Engine"]

logger = logging.getLogger("rarestream.engine")


class Engine:
    """All learners of this node over one store."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self.node = Node(store, settings)
        self.hosted: dict[str, Hosted] = {}
        self.unavailable: dict[str, ServiceError] = {}  # learners of the store that cannot be hosted, and why
        self.ready = False  # every learner of the store is here
        self._creating = asyncio.Lock()
        self._following: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Load every learner of the store, and keep looking for what other nodes do.

        A store that is away does not fail the start: the node is not ready until it comes back.
        """
        try:
            await self._look_around()
        except StoreUnavailable as error:
            logger.warning("the store is not there yet: %s", error.detail)
        self._following = asyncio.create_task(self._follow(), name="follow")
        self._following.add_done_callback(self._follow_ended)

    async def stop(self) -> None:
        """Finish what waits, snapshot what changed, release the store."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait([self._following])
        await asyncio.gather(*(hosted.close(save=True) for hosted in list(self.hosted.values())))
        await self.node.close()

    # Learners

    def get(self, name: str) -> Hosted:
        """The learner of this name. Raises `UnknownLearner`, or `StoreUnavailable` while that cannot be known."""
        hosted = self.hosted.get(name)
        if hosted is None:
            if name in self.unavailable:
                raise self.unavailable[name]
            if not self.ready:
                raise StoreUnavailable("this node has not loaded its learners yet")
            raise UnknownLearner(f"there is no learner named {name}")
        return hosted

    async def create(self, name: str, config: Config) -> tuple[Hosted, bool]:
        """The learner of this name and configuration, and whether it is new.

        Raises `NameTaken` if the name exists with another configuration, `LimitReached`, or a `StoreError`.
        """
        async with self._creating:
            hosted = self.hosted.get(name)
            if hosted is None and len(self.hosted) >= self.node.settings.max_learners:
                raise LimitReached(f"this node has {len(self.hosted)} learners, its limit")
            if hosted is None:
                token = uuid.uuid4().bytes
                data = pack_record(Created(config.to_json()))
                head = await self.node.reached(self.node.store.create(name, token, data))
                hosted = await self._host(name, head)
                if head.birth == token:
                    return hosted, True
                hosted.follow()
        if hosted.learner.config != config:
            raise NameTaken(f"{name} exists with another configuration; delete it first, or choose another name")
        return hosted, False

    async def delete(self, name: str) -> None:
        """Remove a learner, its log and its snapshots, also one that cannot be hosted."""
        if name in self.unavailable:
            head = (await self.node.reached(self.node.store.heads())).get(name)
            if head is not None:
                await self.node.reached(self.node.store.delete(name, head.birth))
            self.unavailable.pop(name, None)
            return
        hosted = self.get(name)
        await self.node.reached(self.node.store.delete(name, hosted.birth))
        hosted.failed = LearnerGone(f"{name} was deleted")
        self.forget(hosted)
        await hosted.close(save=False)

    def forget(self, hosted: Hosted) -> None:
        """Host it no longer."""
        if self.hosted.get(hosted.name) is hosted:
            del self.hosted[hosted.name]

    async def _host(self, name: str, head: Head) -> Hosted:
        learner, position, snapshot = await self.node.recover(name, head.birth)
        hosted = Hosted(name, head.birth, learner, position, self.node, self.forget, snapshot=snapshot)
        self.hosted[name] = hosted
        return hosted

    # Other nodes

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(self.node.settings.follow_seconds)
            try:
                await self._look_around()
            except StoreUnavailable as error:
                logger.debug("the store does not answer: %s", error.detail)
            for hosted in list(self.hosted.values()):
                hosted.tick()

    async def _look_around(self) -> None:
        """Host what is new in the store, drop what is gone, catch up with what other nodes appended."""
        heads = await self.node.reached(self.node.store.heads())
        for name, hosted in list(self.hosted.items()):
            head = heads.get(name)
            if head is None or head.birth != hosted.birth:
                # created here a moment ago, after the heads were read? then the store still knows it
                fresh = (await self.node.reached(self.node.store.heads())).get(name)
                if fresh is None or fresh.birth != hosted.birth:
                    hosted.failed = LearnerGone(f"{name} was deleted")
                    self.forget(hosted)
                    await hosted.close(save=False)
        for name, head in heads.items():
            try:
                await self._meet(name, head)
            except StoreUnavailable:
                raise
            except ServiceError as error:  # this learner's trouble is not the others'
                known = self.unavailable.get(name)
                if known is None or known.detail != error.detail:
                    logger.error("%s: %s", name, error.detail)
                    self.unavailable[name] = error
            else:
                self.unavailable.pop(name, None)
        for name in self.unavailable.keys() - heads.keys():
            del self.unavailable[name]
        if not self.ready:  # at the start, all of them side by side
            learners = list(self.hosted.values())
            done = await asyncio.gather(*(hosted.catch_up() for hosted in learners), return_exceptions=True)
            for hosted, failure in zip(learners, done, strict=True):
                if isinstance(failure, StoreUnavailable):
                    raise failure
                if failure is not None:  # `failed` says so to whoever asks for it
                    logger.error("%s: %s", hosted.name, failure)
            self.ready = True

    def _follow_ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:  # a fault of ours: this node serves what it has, and says that it is not ready
            logger.critical("other nodes are no longer followed", exc_info=error)
            self.ready = False

    async def _meet(self, name: str, head: Head) -> None:
        hosted = self.hosted.get(name)
        if hosted is None:
            async with self._creating:
                if name not in self.hosted:
                    if len(self.hosted) >= self.node.settings.max_learners:
                        raise LimitReached(f"{name} is not hosted: this node has its limit of learners")
                    await self._host(name, head)
            self.hosted[name].follow()
        elif hosted.position < head.position and hosted.failed is None and not hosted.queued_events:
            hosted.follow()
