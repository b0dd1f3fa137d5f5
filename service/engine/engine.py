"""The engine: finds, creates, copies and deletes the learners and groups of this node.

The registry (`replica_registry.py`) lists them. Not all learners are in memory: the others are evicted to the store
(`cluster/residency.py`), and `use` keeps a learner in memory. `cluster/store_sync.py` follows the other nodes over the
same store.

Learners that other nodes host (`cluster/placement.py`) are evicted here, and the API forwards requests for them. Some
requests are served here all the same: those of websockets and groups, and those whose host does not answer. Any node
may serve any learner.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

from numpy import generic
from numpy.typing import NDArray

from learners import Config, GroupConfig, Problem, pointer, show
from service.auth import UNRESTRICTED, Permissions
from service.engine.cluster import Placement, Residency, StoreSync
from service.engine.node_resources import Node
from service.engine.records import Created, pack_record
from service.engine.replica import GroupReplica, LearnerReplica
from service.engine.replica_registry import Registry
from service.errors import (
    Invalid,
    LearnerGone,
    LearnerMissing,
    NameTaken,
    StoreUnavailable,
    TooLarge,
    UnknownGroup,
    UnknownLearner,
)
from service.names import GROUP, called
from service.settings import Settings
from service.storage import RECORD_BYTES, Store

__all__ = ["Engine"]

logger = logging.getLogger("rarestream.engine")


class Engine:
    """All learners of this node over one store."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self.node = Node(store, settings)
        self.placement = Placement(self.node)
        self.registry = Registry(self.node)
        self.replicas = self.registry.replicas  # these three are the registry's own dictionaries
        self.evicted = self.registry.evicted
        self.groups = self.registry.groups
        self.residency = Residency(self.registry, self.placement)
        self.sync = StoreSync(self.registry, self.placement, self.residency)
        self.creations: list[tuple[str, float]] = []  # learners in creation, and the monotonic time of its start

    async def start(self) -> None:
        """Load every learner of the store, and follow the other nodes; see `StoreSync.start`."""
        await self.sync.start()

    async def stop(self) -> None:
        """Finish queued jobs, snapshot changed learners, release the store."""
        await self.sync.stop()
        try:
            await self.placement.leave()
        except StoreUnavailable as error:
            logger.warning(
                "could not deregister from the store (%s); other nodes will notice by heartbeat timeout", error.detail
            )
        if self.residency.eviction is not None:
            await asyncio.wait([self.residency.eviction])
        await asyncio.gather(*(replica.close(save=True) for replica in self.registry.all()))
        await self.node.close()

    @property
    def ready(self) -> bool:
        """Whether this node has loaded every learner of the store."""
        return self.registry.ready

    @property
    def learners(self) -> int:
        """The number of learners on this node, in memory or evicted."""
        return self.registry.learners

    # Learners

    def get(self, name: str) -> LearnerReplica:
        """Return the learner of this name, which is in memory. Raises as `load`."""
        replica = self.replicas.get(name)
        if replica is None:
            self._check_available(name)
            raise UnknownLearner(f"there is no learner named {name}")
        return replica

    def check_exists(self, name: str) -> None:
        """Check that a learner of this name exists, in memory or evicted. Raises as `load`."""
        if name not in self.evicted and name not in self.registry.moving:
            self.get(name)

    async def load(self, name: str) -> LearnerReplica:
        """Return the learner of this name; any later await may evict it, see `use`.

        Raises `UnknownLearner`, or `StoreUnavailable` if the store cannot tell or cannot be read.
        """
        if name not in self.replicas:
            await self.discover(name)
            await self.residency.load(name)
        return self.get(name)

    async def discover(self, log: str) -> None:
        """Take in a log that another node has just created. Raises `StoreUnavailable` if the store does not answer."""
        await self.sync.discover(log)

    @asynccontextmanager
    async def use(self, name: str) -> AsyncIterator[LearnerReplica]:
        """Return the learner of this name and keep it in memory inside the context. Raises as `load`."""
        replica = await self.acquire(name)
        try:
            yield replica
        finally:
            replica.release()

    async def acquire(self, name: str) -> LearnerReplica:
        """Return the learner of this name and keep it in memory until its `release`. Raises as `load`."""
        replica = await self.load(name)
        replica.users += 1
        return replica

    async def group(self, name: str) -> GroupReplica:
        """Return the group of this name. Raises `UnknownGroup`, or `StoreUnavailable` if the store does not answer."""
        await self.discover(GROUP + name)
        return self._group(name)

    def _group(self, name: str) -> GroupReplica:
        group = self.groups.get(name)
        if group is None:
            self._check_available(GROUP + name)
            raise UnknownGroup(f"there is no group named {name}")
        return group

    def _check_available(self, log: str) -> None:
        """Raise the error that keeps this node from knowing whether such a log exists."""
        if log in self.registry.unavailable:
            raise self.registry.unavailable[log].with_traceback(None)  # see `Mailbox._check_alive`
        if not self.registry.ready:
            raise StoreUnavailable("this node has not loaded its learners yet")

    @asynccontextmanager
    async def members(self, group: GroupReplica) -> AsyncIterator[dict[str, LearnerReplica]]:
        """Return the learners of a group, in its order, and keep them in memory inside the context.

        Raises `UnknownLearner` with all deleted members, `Invalid` if a new member of the same name cannot be compared.
        """
        deletions = self.missing_members(group)
        if deletions:
            missing = f"{', '.join(deletions)} of this group no longer {'exists' if len(deletions) == 1 else 'exist'}"
            raise UnknownLearner(f"{missing}; nothing was changed. Create what is missing, or delete the group")
        async with AsyncExitStack() as hands:
            members = {name: await hands.enter_async_context(self.use(name)) for name in group.config.learners}
            for name, member in members.items():
                if member.learner.config.labels.ranks is not None:
                    raise Invalid(
                        f"{name} of this group is an ordinal learner now; groups compare AUCs. Nothing was changed"
                    )
            yield members

    def missing_members(self, group: GroupReplica) -> list[str]:
        """Return the deleted learners of a group, in its order; not those that this node cannot host just now."""
        if not self.registry.ready:
            return []
        return [name for name in group.config.learners if not self.registry.has(name)]

    async def create(
        self, name: str, config: Config, permissions: Permissions = UNRESTRICTED, earlier: Config | None = None
    ) -> tuple[LearnerReplica, bool]:
        """Return the learner of this name and configuration, and whether it is new.

        `earlier` is what the same request meant to an earlier version: a learner that it created is the same one.
        Raises `NameTaken`, with each setting that differs, if the name exists with another configuration. Raises
        `Invalid` if a new configuration has objections or exceeds the permissions. Also raises `LimitReached` or a
        `StoreError`.
        """
        async with self._creation(name):
            await self.registry.check_not_lost(name)
            replica = await self._find(name)
            new = replica is None
            if replica is None:
                if problems := config.objections(new=True):
                    raise Invalid("the configuration is refused; nothing was created", problems)
                permissions.check_config(config)
                await self.registry.check_new(permissions)
                await self.residency.wait_for_space()
                created, new = await self._create_log(name, config)
                assert isinstance(created, LearnerReplica)
                replica = created
        if replica.learner.config not in (config, earlier):
            changed = replica.learner.config.immutable_part == config.immutable_part
            remedy = "PATCH changes these settings" if changed else "delete it first, or choose another name"
            problems = list(_differences(replica.learner.config.to_json(), config.to_json()))
            raise NameTaken(f"{name} exists with another configuration; {remedy}", problems)
        return replica, new

    def check_free(self, name: str) -> None:
        """Check that this node has no learner of this name, in memory or evicted. Raises `NameTaken`."""
        if self.registry.has(name):
            raise NameTaken(f"there is a learner named {name}; delete it first, or choose another name")

    async def copy(
        self, name: str, config: Config, state: Mapping[str, NDArray[generic]], permissions: Permissions = UNRESTRICTED
    ) -> LearnerReplica:
        """Create a learner that begins with this state, which the caller has checked against the configuration.

        Only the permissions may object to the configuration, because another learner has used it already. Raises
        `NameTaken`, `Invalid`, `LimitReached`, `TooLarge`, or a `StoreError`.
        """
        permissions.check_config(config)
        async with self._creation(name):
            self.check_free(name)
            await self.registry.check_new(permissions)
            await self.residency.wait_for_space()
            created, new = await self._create_log(name, config, state)
        assert isinstance(created, LearnerReplica)
        if not new:  # another node was quicker
            raise NameTaken(f"there is a learner named {name}; delete it first, or choose another name")
        return created

    @asynccontextmanager
    async def _creation(self, name: str) -> AsyncIterator[None]:
        """Wait for the lock of creations, and list this creation meanwhile."""
        under_way = (name, time.monotonic())
        self.creations.append(under_way)
        try:
            async with self.registry.creating:
                yield
        finally:
            self.creations.remove(under_way)

    async def create_group(
        self, name: str, config: GroupConfig, permissions: Permissions = UNRESTRICTED
    ) -> tuple[GroupReplica, bool]:
        """Return the group of this name and configuration, and whether it is new.

        Raises `Invalid` if a member does not exist or is an ordinal learner, else as `create`.
        """
        problems = []
        for i, member in enumerate(config.learners):
            try:
                permissions.find(member)
                replica = await self.load(member)
            except UnknownLearner:
                problems.append(Problem(f"/learners/{i}", f"is {member}; there is no learner of this name", "unknown"))
                continue
            if replica.learner.config.labels.ranks is not None:
                problems.append(
                    Problem(f"/learners/{i}", f"is {member}, an ordinal learner; groups compare AUCs", "conflict")
                )
        if problems:
            raise Invalid("the group is refused; nothing was created", problems)
        async with self.registry.creating:
            await self.registry.check_not_lost(GROUP + name)
            group = self.groups.get(name)
            new = group is None
            if group is None:
                await self.registry.check_new(permissions)
                created, new = await self._create_log(GROUP + name, config)
                assert isinstance(created, GroupReplica)
                group = created
        if group.config != config:
            seen = permissions.sees_group(name, group.config.learners)
            problems = list(_differences(group.config.to_json(), config.to_json())) if seen else []
            raise NameTaken(f"the group {name} exists with another configuration; delete it first", problems)
        return group, new

    async def _find(self, name: str) -> LearnerReplica | None:
        """Return the learner of this name, in memory or evicted; None if there is none."""
        if name in self.evicted or name in self.registry.moving:
            try:
                return await self.load(name)
            except UnknownLearner:  # deleted meanwhile, here or by another node
                return None
        return self.replicas.get(name)

    async def _create_log(
        self, log: str, config: Config | GroupConfig, state: Mapping[str, NDArray[generic]] | None = None
    ) -> tuple[LearnerReplica | GroupReplica, bool]:
        """Create the log of this name unless it exists; return what it hosts, and whether it is new.

        A new log begins with the configuration, and with the `state` of a copy.
        """
        token = uuid.uuid4().bytes
        record = Created(config.to_json(), None if state is None else dict(state))
        data = pack_record(record) if state is None else await self.node.in_thread(lambda: pack_record(record))
        if len(data) > RECORD_BYTES:
            raise TooLarge(f"the state has {len(data)} bytes; a record of the store has at most {RECORD_BYTES}")
        head = await self.node.call(self.node.store.create(log, token, data), len(data))
        if head.birth == token:
            self.node.notifier.announce(log, head.position)
        created, _ = await self.registry.host(log, head.birth)
        self.registry.add(created)
        if head.birth != token:
            created.log.follow()
        return created, head.birth == token

    async def delete(self, name: str) -> None:
        """Remove a learner, its log and its snapshots, also one that cannot be hosted."""
        while name in self.registry.moving:
            await self.residency.wait_for_transition(name)
        if name in self.evicted:
            await self.residency.transition(name, self._delete_evicted)
        elif name in self.registry.unavailable:
            await self._delete(name, lambda: self.get(name))
        else:
            async with self.use(name) as replica:
                await self._delete(name, lambda: replica)

    async def _delete_evicted(self, name: str) -> None:
        try:
            await self._delete_log(name, self.evicted[name])
        except LearnerGone as error:
            await self.registry.drop_evicted(name, error)
            raise
        del self.evicted[name]
        self.registry.unavailable.pop(name, None)

    async def delete_group(self, name: str) -> None:
        """Delete a group and its comparison; its learners stay."""
        await self.discover(GROUP + name)
        await self._delete(GROUP + name, lambda: self._group(name))

    async def _delete(self, log: str, find: Callable[[], LearnerReplica | GroupReplica]) -> None:
        if log in self.registry.unavailable:
            error = self.registry.unavailable[log]
            head = await self.node.call(self.node.store.head(log))
            if head is not None:
                await self._delete_log(log, head.birth)
            elif isinstance(error, LearnerMissing):
                with suppress(LearnerGone):  # the store records the deletion, for other nodes and the next start
                    await self._delete_log(log, error.birth)
            self.registry.unavailable.pop(log, None)
            return
        replica = find()
        await self._delete_log(log, replica.birth)
        replica.mailbox.failure = LearnerGone(f"{called(replica.name)} was deleted")
        self.registry.forget(replica)
        await replica.close(save=False)

    async def _delete_log(self, log: str, birth: bytes) -> None:
        await self.node.call(self.node.store.delete(log, birth))
        self.node.notifier.announce(log, 0)

    def unavailable(self, groups: bool) -> dict[str, str]:
        """Return why learners of the store, or else groups, cannot be hosted, by name."""
        reasons = {log: error.detail for log, error in sorted(self.registry.unavailable.items())}
        return {log.removeprefix(GROUP): why for log, why in reasons.items() if log.startswith(GROUP) == groups}


def _differences(current: Any, requested: Any, at: str = "") -> Iterator[Problem]:
    """Yield each setting whose requested value, defaults included, differs from the current one.

    A setting that only one of them has follows from another kind or algorithm, which is a difference itself.
    """
    if isinstance(current, Mapping) and isinstance(requested, Mapping):
        for name in current:
            if name in requested:
                yield from _differences(current[name], requested[name], at + pointer(name))
    elif isinstance(current, list) and isinstance(requested, list) and len(current) == len(requested):
        for i, (value, other) in enumerate(zip(current, requested, strict=True)):
            yield from _differences(value, other, f"{at}/{i}")
    elif current != requested:
        detail = f"is {show(current)}; this request, with its defaults, would make it {show(requested)}"
        yield Problem.mismatch(at, requested, "", {"const": current})._replace(detail=detail, code="conflict")
