"""The engine: every learner and group on this node, as whoever serves them finds, creates, copies and deletes them.

What there is stands in a register (`register.py`). Not all learners are in memory, the others sleep (`sleeping.py`);
whoever has one in hand (`held`) has it awake. What other nodes over the same store do is followed (`following.py`).
Learners that other nodes host (`placement.py`) sleep here, too: requests for them are passed on (`forwarding.py`), and
what is asked here all the same, by a websocket, for a group, or because no host answers, is answered here: any node
may.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from numpy import generic
from numpy.typing import NDArray

from learners import Config, GroupConfig, Problem, pointer, show
from service.auth import FREE, Grant
from service.engine.cluster import Placement, Residency, StoreSync
from service.engine.node import Node
from service.engine.records import Created, pack_record
from service.engine.registry import Registry
from service.engine.replica import GroupReplica, LearnerReplica
from service.errors import Invalid, LearnerGone, NameTaken, StoreUnavailable, TooLarge, UnknownGroup, UnknownLearner
from service.names import GROUP, called
from service.settings import Settings
from service.storage import RECORD_BYTES, Store

__all__ = ["Engine"]

logger = logging.getLogger("rarestream.engine")

_SLOW = 3.0  # seconds after which it is said why a creation takes long
_COMPILING = (
    "the creation of %s takes a while: an algorithm's kernels are compiled where this machine has not run it yet, "
    "once for all, in up to a minute or two"
)


class Engine:
    """All learners of this node over one store."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self.node = Node(store, settings)
        self.placement = Placement(self.node)
        self.registry = Registry(self.node)
        self.replicas = self.registry.replicas  # these three are the register's own, which changes
        self.evicted = self.registry.evicted
        self.groups = self.registry.groups
        self.residency = Residency(self.registry, self.placement)
        self.sync = StoreSync(self.registry, self.placement, self.residency)
        self.creations: list[tuple[str, float]] = []  # learners that are being created, and since when (monotonic)

    async def start(self) -> None:
        """Load every learner of the store, and keep looking for what other nodes do; see `Following.start`."""
        await self.sync.start()

    async def stop(self) -> None:
        """Finish what waits, snapshot what changed, release the store."""
        await self.sync.stop()
        try:
            await self.placement.leave()
        except StoreUnavailable as error:
            logger.warning(
                "could not deregister from the store (%s); other nodes will notice by heartbeat timeout", error.detail
            )
        if self.residency.resting is not None:
            await asyncio.wait([self.residency.resting])
        await asyncio.gather(*(replica.close(save=True) for replica in self.registry.all()))
        await self.node.close()

    @property
    def ready(self) -> bool:
        """Whether every learner of the store is here."""
        return self.registry.ready

    @property
    def learners(self) -> int:
        """How many there are on this node, asleep or awake."""
        return self.registry.learners

    # Learners

    def get(self, name: str) -> LearnerReplica:
        """The learner of this name, which is awake. Raises as `load`."""
        replica = self.replicas.get(name)
        if replica is None:
            self._known(name)
            raise UnknownLearner(f"there is no learner named {name}")
        return replica

    def check_exists(self, name: str) -> None:
        """That there is a learner of this name, asleep or awake. Raises as `load`."""
        if name not in self.evicted and name not in self.registry.moving:
            self.get(name)

    async def load(self, name: str) -> LearnerReplica:
        """The learner of this name; it may fall asleep whenever something else is awaited: see `use`.

        Raises `UnknownLearner`, or `StoreUnavailable` while it cannot be known or read.
        """
        if name not in self.replicas:
            await self.discover(name)
            await self.residency.load(name)
        return self.get(name)

    async def discover(self, log: str) -> None:
        """Meet what another node created a moment ago, if it did. Raises `StoreUnavailable` where that is not known."""
        await self.sync.discover(log)

    @asynccontextmanager
    async def use(self, name: str) -> AsyncIterator[LearnerReplica]:
        """The learner of this name, awake until it is let go of. Raises as `load`."""
        replica = await self.acquire(name)
        try:
            yield replica
        finally:
            replica.release()

    async def acquire(self, name: str) -> LearnerReplica:
        """As `use`, for those who let go of it elsewhere: by its `release`."""
        replica = await self.load(name)
        replica.users += 1
        return replica

    async def group(self, name: str) -> GroupReplica:
        """The group of this name. Raises `UnknownGroup`, or `StoreUnavailable` while that cannot be known."""
        await self.discover(GROUP + name)
        return self._group(name)

    def _group(self, name: str) -> GroupReplica:
        group = self.groups.get(name)
        if group is None:
            self._known(GROUP + name)
            raise UnknownGroup(f"there is no group named {name}")
        return group

    def _known(self, log: str) -> None:
        """Raise what stands in the way of knowing whether there is such a log."""
        if log in self.registry.unavailable:
            raise self.registry.unavailable[log]
        if not self.registry.ready:
            raise StoreUnavailable("this node has not loaded its learners yet")

    @asynccontextmanager
    async def members(self, group: GroupReplica) -> AsyncIterator[dict[str, LearnerReplica]]:
        """The learners of a group, in its order, awake until they are let go of.

        Raises `UnknownLearner` with all that were deleted, `Invalid` where one was created anew that cannot be
        compared.
        """
        gone = self.missing_members(group)
        if gone:
            told = f"{', '.join(gone)} of this group no longer {'exists' if len(gone) == 1 else 'exist'}"
            raise UnknownLearner(f"{told}; nothing was changed. Create what is missing, or delete the group")
        async with AsyncExitStack() as hands:
            members = {name: await hands.enter_async_context(self.use(name)) for name in group.config.learners}
            for name, member in members.items():
                if member.learner.config.labels.ranks is not None:
                    raise Invalid(f"{name} of this group tells ranks by now; groups compare AUCs. Nothing was changed")
            yield members

    def missing_members(self, group: GroupReplica) -> list[str]:
        """The learners of a group that were deleted, in its order; not those that this node cannot host just now."""
        if not self.registry.ready:
            return []
        return [name for name in group.config.learners if not self.registry.has(name)]

    async def create(self, name: str, config: Config, grant: Grant = FREE) -> tuple[LearnerReplica, bool]:
        """The learner of this name and configuration, and whether it is new.

        Raises `NameTaken` if the name exists with another configuration, with each setting that differs, `Invalid` if
        it is new and the configuration has objections or is not within what is granted, `LimitReached`, or a
        `StoreError`.
        """
        async with self._made(name):
            replica = await self._there(name)
            new = replica is None
            if replica is None:
                if problems := config.objections(new=True):
                    raise Invalid("the configuration is refused; nothing was created", problems)
                grant.check_config(config)
                await self.registry.check_new(grant)
                await self.residency.space()
                found, new = await self._created(name, config)
                assert isinstance(found, LearnerReplica)
                replica = found
        if replica.learner.config != config:
            changed = replica.learner.config.immutable_part == config.immutable_part
            remedy = "PATCH changes what differs" if changed else "delete it first, or choose another name"
            problems = list(_differences(replica.learner.config.to_json(), config.to_json()))
            raise NameTaken(f"{name} exists with another configuration; {remedy}", problems)
        return replica, new

    def check_free(self, name: str) -> None:
        """That there is no learner of this name, asleep or awake, here. Raises `NameTaken`."""
        if self.registry.has(name):
            raise NameTaken(f"there is a learner named {name}; delete it first, or choose another name")

    async def copy(
        self, name: str, config: Config, state: Mapping[str, NDArray[generic]], grant: Grant = FREE
    ) -> LearnerReplica:
        """A new learner that begins with this state, which has been checked against the configuration.

        There is no objecting to the configuration but that it is not within what is granted: a learner has lived by
        it. Raises `NameTaken`, `Invalid`, `LimitReached`, `TooLarge`, or a `StoreError`.
        """
        grant.check_config(config)
        async with self._made(name):
            self.check_free(name)
            await self.registry.check_new(grant)
            await self.residency.space()
            found, new = await self._created(name, config, state)
        assert isinstance(found, LearnerReplica)
        if not new:  # another node was quicker
            raise NameTaken(f"there is a learner named {name}; delete it first, or choose another name")
        return found

    @asynccontextmanager
    async def _made(self, name: str) -> AsyncIterator[None]:
        """This learner's turn to be created. That it is on its way is told from now on: kernels that it is the first
        to need are compiled meanwhile."""
        under_way = (name, time.monotonic())
        self.creations.append(under_way)
        try:
            async with self.registry.creating:
                yield
        finally:
            self.creations.remove(under_way)

    async def create_group(self, name: str, config: GroupConfig, grant: Grant = FREE) -> tuple[GroupReplica, bool]:
        """The group of this name and configuration, and whether it is new.

        Raises `Invalid` where a learner of it is not there or tells ranks, and as `create`.
        """
        problems = []
        for i, member in enumerate(config.learners):
            try:
                grant.find(member)
                replica = await self.load(member)
            except UnknownLearner:
                problems.append(Problem(f"/learners/{i}", f"is {member}; there is no learner of this name", "unknown"))
                continue
            if replica.learner.config.labels.ranks is not None:
                problems.append(
                    Problem(f"/learners/{i}", f"is {member}, which tells ranks; groups compare AUCs", "conflict")
                )
        if problems:
            raise Invalid("the group is refused; nothing was created", problems)
        async with self.registry.creating:
            group = self.groups.get(name)
            new = group is None
            if group is None:
                await self.registry.check_new(grant)
                found, new = await self._created(GROUP + name, config)
                assert isinstance(found, GroupReplica)
                group = found
        if group.config != config:
            seen = grant.sees_group(name, group.config.learners)
            problems = list(_differences(group.config.to_json(), config.to_json())) if seen else []
            raise NameTaken(f"the group {name} exists with another configuration; delete it first", problems)
        return group, new

    async def _there(self, name: str) -> LearnerReplica | None:
        """The learner of this name if there is one, asleep or awake."""
        if name in self.evicted or name in self.registry.moving:
            try:
                return await self.load(name)
            except UnknownLearner:  # deleted meanwhile, here or by another node
                return None
        return self.replicas.get(name)

    async def _created(
        self, log: str, config: Config | GroupConfig, state: Mapping[str, NDArray[generic]] | None = None
    ) -> tuple[LearnerReplica | GroupReplica, bool]:
        """What the log of this name is of, which begins with this configuration if it is new; and whether it is.

        With a `state`, which is that of a copy, it begins with that, too.
        """
        token = uuid.uuid4().bytes
        record = Created(config.to_json(), None if state is None else dict(state))
        data = pack_record(record) if state is None else await self.node.in_thread(lambda: pack_record(record))
        if len(data) > RECORD_BYTES:
            raise TooLarge(f"the state of {len(data)} bytes is more than a store takes as one record, {RECORD_BYTES}")
        head = await self.node.reached(self.node.store.create(log, token, data))
        if head.birth == token:
            self.node.notifier.announce(log, head.position)
        slow = asyncio.get_running_loop().call_later(_SLOW, logger.info, _COMPILING, log.removeprefix(GROUP))
        try:
            found, _ = await self.registry.host(log, head.birth)
        finally:
            slow.cancel()
        self.registry.take_in(found)
        if head.birth != token:
            found.log.follow()
        return found, head.birth == token

    async def delete(self, name: str) -> None:
        """Remove a learner, its log and its snapshots, also one that cannot be hosted."""
        while name in self.registry.moving:
            await self.residency.settled(name)
        if name in self.evicted:
            await self.residency.moved(name, self._delete_asleep)
        elif name in self.registry.unavailable:
            await self._delete(name, lambda: self.get(name))
        else:
            async with self.use(name) as replica:
                await self._delete(name, lambda: replica)

    async def _delete_asleep(self, name: str) -> None:
        try:
            await self._deleted(name, self.evicted[name])
        except LearnerGone:
            del self.evicted[name]
            raise
        del self.evicted[name]
        self.registry.unavailable.pop(name, None)

    async def delete_group(self, name: str) -> None:
        """Remove a group and its comparison; its learners stay."""
        await self.discover(GROUP + name)
        await self._delete(GROUP + name, lambda: self._group(name))

    async def _delete(self, log: str, find: Callable[[], LearnerReplica | GroupReplica]) -> None:
        if log in self.registry.unavailable:
            head = await self.node.reached(self.node.store.head(log))
            if head is not None:
                await self._deleted(log, head.birth)
            self.registry.unavailable.pop(log, None)
            return
        replica = find()
        await self._deleted(log, replica.birth)
        replica.mailbox.failure = LearnerGone(f"{called(replica.name)} was deleted")
        self.registry.forget(replica)
        await replica.close(save=False)

    async def _deleted(self, log: str, birth: bytes) -> None:
        await self.node.reached(self.node.store.delete(log, birth))
        self.node.notifier.announce(log, 0)

    def unavailable(self, groups: bool) -> dict[str, str]:
        """The learners of the store that cannot be hosted, or else the groups, by name: why."""
        found = {log: error.detail for log, error in sorted(self.registry.unavailable.items())}
        return {log.removeprefix(GROUP): why for log, why in found.items() if log.startswith(GROUP) == groups}


def _differences(stands: Any, asked: Any, at: str = "") -> Iterator[Problem]:
    """Each setting in which what was asked for, with its defaults, differs from what stands.

    A setting that only one of them has follows from a kind or an algorithm that differs, which is given itself.
    """
    if isinstance(stands, Mapping) and isinstance(asked, Mapping):
        for name in stands:
            if name in asked:
                yield from _differences(stands[name], asked[name], at + pointer(name))
    elif isinstance(stands, list) and isinstance(asked, list) and len(stands) == len(asked):
        for i, (one, other) in enumerate(zip(stands, asked, strict=True)):
            yield from _differences(one, other, f"{at}/{i}")
    elif stands != asked:
        detail = f"is {show(stands)}; this request, with its defaults, would make it {show(asked)}"
        yield Problem.mismatch(at, asked, "", {"const": stands})._replace(detail=detail, code="conflict")
