"""The engine: every learner and group on this node. It creates, finds, deletes and recovers them, and follows others.

Of the learners, so many are in memory as the settings say. Those used longest ago sleep: a snapshot of each is in the
store, and it is read back for whoever asks for it. Whoever has a learner in hand (`held`) has it awake. Learners that
other nodes host (`placement.py`) sleep here, too: requests for them are passed on (`forwarding.py`), and what is asked
here all the same, by a websocket, for a group, or because no host answers, is answered here: any node may.

The log of a group has its name behind an @, which no learner's name begins with.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

from numpy import generic
from numpy.typing import NDArray

from learners.comparison import Comparison, GroupConfig
from learners.config import Config
from learners.parameters import Problem, pointer, show
from service.codec import Created, pack_record
from service.errors import (
    Damaged,
    Invalid,
    LearnerGone,
    LimitReached,
    NameTaken,
    ServiceError,
    StoreError,
    StoreUnavailable,
    TooLarge,
    UnknownGroup,
    UnknownLearner,
)
from service.grants import FREE, Grant
from service.groups import HostedGroup
from service.hosted import Hosted
from service.node import Node
from service.placement import Placement
from service.settings import Settings
from service.store import RECORD_BYTES, Head, Moved, Store

__all__ = ["Engine"]

logger = logging.getLogger("rarestream.engine")

_GROUP = "@"  # before a group's name, as the name of its log
_GUEST = 10.0  # times `follow_seconds`: so long after its last use a learner stays here that other nodes host
_ABREAST = 8  # learners that fall asleep side by side: the store commits their snapshots together


class Engine:
    """All learners of this node over one store."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self.node = Node(store, settings)
        self.placement = Placement(self.node)
        self.hosted: dict[str, Hosted] = {}
        self.asleep: dict[str, bytes] = {}  # learners that are in the store only: their birth
        self.groups: dict[str, HostedGroup] = {}
        self.unavailable: dict[str, ServiceError] = {}  # learners of the store that cannot be hosted, and why
        self.ready = False  # every learner of the store is here
        self._creating = asyncio.Lock()
        self._following: asyncio.Task[None] | None = None
        self._look = asyncio.Event()  # set where what was heard asks for a look at all heads
        self._looked = 0.0  # seconds that the last look took
        self._moving_in = asyncio.Event()  # set where nodes came or went
        self._moving: dict[str, asyncio.Future[None]] = {}  # learners that fall asleep or awake just now
        self._resting: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Load every learner of the store, and keep looking for what other nodes do.

        A store that is away does not fail the start: the node is not ready until it comes back.
        """
        try:
            await self.placement.meet(alive=False)  # that it is, it says once it is ready
            await self._look_around()
        except StoreUnavailable as error:
            logger.warning("the store is not there yet, and is waited for: %s", error.detail)
        self._following = asyncio.create_task(self._follow_and_listen(), name="follow")
        self._following.add_done_callback(self._follow_ended)

    async def stop(self) -> None:
        """Finish what waits, snapshot what changed, release the store."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait([self._following])
        try:
            await self.placement.leave()
        except StoreUnavailable as error:
            logger.warning("other nodes hear of the end of this one by its silence: %s", error.detail)
        if self._resting is not None:
            await asyncio.wait([self._resting])
        await asyncio.gather(*(hosted.close(save=True) for hosted in self._all()))
        await self.node.close()

    # Learners

    def get(self, name: str) -> Hosted:
        """The learner of this name, which is awake. Raises as `wake`."""
        hosted = self.hosted.get(name)
        if hosted is None:
            self._known(name)
            raise UnknownLearner(f"there is no learner named {name}")
        return hosted

    def check(self, name: str) -> None:
        """That there is a learner of this name, asleep or awake. Raises as `wake`."""
        if name not in self.asleep and name not in self._moving:
            self.get(name)

    async def wake(self, name: str) -> Hosted:
        """The learner of this name; it may fall asleep whenever something else is awaited: see `held`.

        Raises `UnknownLearner`, or `StoreUnavailable` while it cannot be known or read.
        """
        if name not in self.hosted:
            await self.seek(name)
        while name not in self.hosted and (name in self.asleep or name in self._moving):
            if name in self._moving:
                await asyncio.shield(self._moving[name])
            else:
                await self._moved(name, self._wake)
        return self.get(name)

    async def seek(self, log: str) -> None:
        """Meet what another node created a moment ago, if it did. Raises `StoreUnavailable` where that is not known."""
        if self._find(log) is not None or self._knows(log) or not self.ready:
            return
        head = await self.node.reached(self.node.store.head(log))
        if head is not None:
            await self._meet(log, head)
            found = self._find(log)
            if found is not None:  # as far as it was when it was asked for
                await found.catch_up()

    @asynccontextmanager
    async def held(self, name: str) -> AsyncIterator[Hosted]:
        """The learner of this name, awake until it is let go of. Raises as `wake`."""
        hosted = await self.hold(name)
        try:
            yield hosted
        finally:
            hosted.let_go()

    async def hold(self, name: str) -> Hosted:
        """As `held`, for those who let go of it elsewhere: by its `let_go`."""
        hosted = await self.wake(name)
        hosted.uses += 1
        return hosted

    async def group(self, name: str) -> HostedGroup:
        """The group of this name. Raises `UnknownGroup`, or `StoreUnavailable` while that cannot be known."""
        await self.seek(_GROUP + name)
        return self._group(name)

    def _group(self, name: str) -> HostedGroup:
        group = self.groups.get(name)
        if group is None:
            self._known(_GROUP + name)
            raise UnknownGroup(f"there is no group named {name}")
        return group

    def _known(self, log: str) -> None:
        """Raise what stands in the way of knowing whether there is such a log."""
        if log in self.unavailable:
            raise self.unavailable[log]
        if not self.ready:
            raise StoreUnavailable("this node has not loaded its learners yet")

    @asynccontextmanager
    async def members(self, group: HostedGroup) -> AsyncIterator[dict[str, Hosted]]:
        """The learners of a group, in its order, awake until they are let go of.

        Raises `UnknownLearner` with all that were deleted, `Invalid` where one was created anew that cannot be
        compared.
        """
        gone = self.gone(group)
        if gone:
            told = f"{', '.join(gone)} of this group no longer {'exists' if len(gone) == 1 else 'exist'}"
            raise UnknownLearner(f"{told}; nothing was changed. Create what is missing, or delete the group")
        async with AsyncExitStack() as hands:
            members = {name: await hands.enter_async_context(self.held(name)) for name in group.config.learners}
            for name, member in members.items():
                if member.learner.config.labels.ranks is not None:
                    raise Invalid(f"{name} of this group tells ranks by now; groups compare AUCs. Nothing was changed")
            yield members

    def gone(self, group: HostedGroup) -> list[str]:
        """The learners of a group that were deleted, in its order; not those that this node cannot host just now."""
        if not self.ready:
            return []
        here = self.hosted.keys() | self.asleep.keys() | self._moving.keys() | self.unavailable.keys()
        return [name for name in group.config.learners if name not in here]

    async def create(self, name: str, config: Config, grant: Grant = FREE) -> tuple[Hosted, bool]:
        """The learner of this name and configuration, and whether it is new.

        Raises `NameTaken` if the name exists with another configuration, with each setting that differs, `Invalid` if
        it is new and the configuration has objections or is not within what is granted, `LimitReached`, or a
        `StoreError`.
        """
        async with self._creating:
            hosted = await self._there(name)
            new = hosted is None
            if hosted is None:
                if problems := config.objections():
                    raise Invalid("the configuration is refused; nothing was created", problems)
                grant.check_config(config)
                self._room(grant)
                await self._space()
                found, new = await self._created(name, config)
                assert isinstance(found, Hosted)
                hosted = found
        if hosted.learner.config != config:
            changed = hosted.learner.config.fixed == config.fixed
            remedy = "PATCH changes what differs" if changed else "delete it first, or choose another name"
            problems = list(_differences(hosted.learner.config.to_json(), config.to_json()))
            raise NameTaken(f"{name} exists with another configuration; {remedy}", problems)
        return hosted, new

    def check_free(self, name: str) -> None:
        """That there is no learner of this name, asleep or awake, here. Raises `NameTaken`."""
        if any(name in known for known in (self.hosted, self.asleep, self._moving, self.unavailable)):
            raise NameTaken(f"there is a learner named {name}; delete it first, or choose another name")

    async def copy(
        self, name: str, config: Config, state: Mapping[str, NDArray[generic]], grant: Grant = FREE
    ) -> Hosted:
        """A new learner that begins with this state, which has been checked against the configuration.

        There is no objecting to the configuration but that it is not within what is granted: a learner has lived by
        it. Raises `NameTaken`, `Invalid`, `LimitReached`, `TooLarge`, or a `StoreError`.
        """
        grant.check_config(config)
        async with self._creating:
            self.check_free(name)
            self._room(grant)
            await self._space()
            found, new = await self._created(name, config, state)
        assert isinstance(found, Hosted)
        if not new:  # another node was quicker
            raise NameTaken(f"there is a learner named {name}; delete it first, or choose another name")
        return found

    async def create_group(self, name: str, config: GroupConfig, grant: Grant = FREE) -> tuple[HostedGroup, bool]:
        """The group of this name and configuration, and whether it is new.

        Raises `Invalid` where a learner of it is not there or tells ranks, and as `create`.
        """
        problems = []
        for i, member in enumerate(config.learners):
            try:
                grant.find(member)
                hosted = await self.wake(member)
            except UnknownLearner:
                problems.append(Problem(f"/learners/{i}", f"is {member}; there is no learner of this name"))
                continue
            if hosted.learner.config.labels.ranks is not None:
                problems.append(Problem(f"/learners/{i}", f"is {member}, which tells ranks; groups compare AUCs"))
        if problems:
            raise Invalid("the group is refused; nothing was created", problems)
        async with self._creating:
            group = self.groups.get(name)
            new = group is None
            if group is None:
                self._room(grant)
                found, new = await self._created(_GROUP + name, config)
                assert isinstance(found, HostedGroup)
                group = found
        if group.config != config:
            seen = grant.sees_group(name, group.config.learners)
            problems = list(_differences(group.config.to_json(), config.to_json())) if seen else []
            raise NameTaken(f"the group {name} exists with another configuration; delete it first", problems)
        return group, new

    async def _there(self, name: str) -> Hosted | None:
        """The learner of this name if there is one, asleep or awake."""
        if name in self.asleep or name in self._moving:
            try:
                return await self.wake(name)
            except UnknownLearner:  # deleted meanwhile, here or by another node
                return None
        return self.hosted.get(name)

    def _room(self, grant: Grant = FREE) -> None:
        if self.learners + len(self.groups) >= self.node.settings.max_learners:
            raise LimitReached(f"this node has {self.learners + len(self.groups)} learners and groups, its limit")
        there = self.hosted.keys() | self.asleep.keys() | self._moving.keys()
        grant.check_room(there, ((name, group.config.learners) for name, group in self.groups.items()))

    @property
    def learners(self) -> int:
        """How many there are on this node, asleep or awake."""
        return len(self.hosted) + len(self.asleep)

    async def _created(
        self, log: str, config: Config | GroupConfig, state: Mapping[str, NDArray[generic]] | None = None
    ) -> tuple[Hosted | HostedGroup, bool]:
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
            self.node.bell.moved(log, head.position)
        found = await self._host(log, head.birth)
        self._take_in(found)
        if head.birth != token:
            found.follow()
        return found, head.birth == token

    async def delete(self, name: str) -> None:
        """Remove a learner, its log and its snapshots, also one that cannot be hosted."""
        while name in self._moving:
            await asyncio.shield(self._moving[name])
        if name in self.asleep:
            await self._moved(name, self._delete_asleep)
        elif name in self.unavailable:
            await self._delete(name, lambda: self.get(name))
        else:
            async with self.held(name) as hosted:
                await self._delete(name, lambda: hosted)

    async def _delete_asleep(self, name: str) -> None:
        try:
            await self._deleted(name, self.asleep[name])
        except LearnerGone:
            del self.asleep[name]
            raise
        del self.asleep[name]
        self.unavailable.pop(name, None)

    async def delete_group(self, name: str) -> None:
        """Remove a group and its comparison; its learners stay."""
        await self.seek(_GROUP + name)
        await self._delete(_GROUP + name, lambda: self._group(name))

    async def _delete(self, log: str, find: Callable[[], Hosted | HostedGroup]) -> None:
        if log in self.unavailable:
            head = await self.node.reached(self.node.store.head(log))
            if head is not None:
                await self._deleted(log, head.birth)
            self.unavailable.pop(log, None)
            return
        hosted = find()
        await self._deleted(log, hosted.birth)
        hosted.failed = LearnerGone(f"{hosted.name} was deleted")
        self.forget(hosted)
        await hosted.close(save=False)

    async def _deleted(self, log: str, birth: bytes) -> None:
        await self.node.reached(self.node.store.delete(log, birth))
        self.node.bell.moved(log, 0)

    def forget(self, hosted: Hosted | HostedGroup) -> None:
        """Host it no longer."""
        if self._find(hosted.name) is hosted:
            if isinstance(hosted, Hosted):
                del self.hosted[hosted.name]
            else:
                del self.groups[hosted.name.removeprefix(_GROUP)]

    def _find(self, log: str) -> Hosted | HostedGroup | None:
        """What is hosted of the log of this name."""
        return self.groups.get(log[1:]) if log.startswith(_GROUP) else self.hosted.get(log)

    def _all(self) -> list[Hosted | HostedGroup]:
        return [*self.hosted.values(), *self.groups.values()]

    async def _host(self, log: str, birth: bytes) -> Hosted | HostedGroup:
        """What the log of this name is of, as its newest snapshot has it; nobody finds it yet."""
        machine, position, snapshot, token = await self.node.recover(log, birth)
        if isinstance(machine, Comparison):
            group = HostedGroup(log, birth, machine, position, self.node, self.forget, snapshot)
            group.token = token
            return group
        pending = await self.node.reached(self.node.store.pending(log, birth))
        hosted = Hosted(log, birth, machine, position, self.node, self.forget, snapshot)
        hosted.serving.pending = pending
        hosted.token = token
        return hosted

    def _take_in(self, one: Hosted | HostedGroup) -> None:
        """From here on it is found by its name."""
        if isinstance(one, Hosted):
            self.hosted[one.name] = one
        else:
            self.groups[one.name.removeprefix(_GROUP)] = one

    # Sleep

    async def _moved(self, name: str, move: Callable[[str], Awaitable[None]]) -> None:
        """Have a learner fall asleep or awake; whoever wants it meanwhile waits."""
        moving = self._moving[name] = asyncio.get_running_loop().create_future()
        try:
            await move(name)
        finally:
            del self._moving[name]
            moving.set_result(None)

    async def _wake(self, name: str) -> None:
        await self._space()
        try:
            hosted = await self._host(name, self.asleep[name])
            try:
                await hosted.catch_up()  # before anybody finds it: what is behind its snapshot has been acknowledged
            except ServiceError:
                await hosted.close(save=False)
                raise
        except LearnerGone:
            del self.asleep[name]
            return
        except StoreUnavailable:
            raise
        except ServiceError as error:
            self.unavailable[name] = error
            raise
        del self.asleep[name]
        self.unavailable.pop(name, None)
        self._take_in(hosted)
        self._rest()

    async def _sleep(self, name: str) -> None:
        hosted = self.hosted.pop(name)
        self.asleep[name] = hosted.birth
        await hosted.close(save=True)

    def _rest(self) -> None:
        """See to it that no more learners are in memory than may be, and none for long that others host."""
        over = len(self.hosted) > self.node.settings.max_resident or any(self._guests())
        if over and (self._resting is None or self._resting.done()):
            self._resting = asyncio.create_task(self._let_sleep(), name="rest")

    def _guests(self) -> Iterator[Hosted]:
        """Those in memory that other nodes host, and that nobody has used here for a while."""
        if self.placement.spread and not self.placement.settling:
            since = time.monotonic() - _GUEST * self.node.settings.follow_seconds
            for hosted in self.hosted.values():
                if hosted.used < since and not self.placement.here(hosted.name):
                    yield hosted

    async def _space(self) -> None:
        """Until one more may come into memory, if any that are there can go."""
        limit = self.node.settings.max_resident
        if len(self.hosted) >= limit + limit // 16 + _ABREAST:
            self._rest()
            assert self._resting is not None
            await asyncio.wait([self._resting])

    async def _let_sleep(self) -> None:
        """Put guests to sleep, and those used longest ago, until no more are awake than may be, or none is idle."""
        while self.node.unreachable is None:
            over = len(self.hosted) - self.node.settings.max_resident
            idle = [hosted for hosted in self.hosted.values() if self._may_sleep(hosted)]
            tired = heapq.nsmallest(over, idle, key=lambda hosted: hosted.used) if over > 0 else []
            tired += [hosted for hosted in self._guests() if hosted not in tired and self._may_sleep(hosted)]
            if not tired:
                return
            for start in range(0, len(tired), _ABREAST):
                await asyncio.gather(*(self._put_to_sleep(one) for one in tired[start : start + _ABREAST]))

    async def _put_to_sleep(self, hosted: Hosted) -> None:
        if self._may_sleep(hosted):  # still
            await self._moved(hosted.name, self._sleep)

    def _may_sleep(self, hosted: Hosted) -> bool:
        return hosted.idle and hosted.name not in self._moving and self.hosted.get(hosted.name) is hosted

    def left_out(self, groups: bool) -> dict[str, str]:
        """The learners of the store that cannot be hosted, or else the groups, by name: why."""
        found = {log: error.detail for log, error in sorted(self.unavailable.items())}
        return {log.removeprefix(_GROUP): why for log, why in found.items() if log.startswith(_GROUP) == groups}

    # Other nodes

    async def _follow_and_listen(self) -> None:
        """Hear of what others do at once; and look at all heads now and then, for whoever did something and died."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow(), name="look around")
            if self.placement.spread:
                tasks.create_task(self._live(), name="say that it is alive")
                tasks.create_task(self._move_in(), name="move in")
            tasks.create_task(self.node.bell.listen(self._hear, self.node.settings.follow_seconds), name="listen")

    def _hear(self, told: dict[str, Moved] | None) -> None:
        """What other nodes have told: those that are in memory read on, those that sleep are left asleep."""
        for log, moved in (told or {}).items():
            hosted = self._find(log)
            if hosted is not None and moved.position:
                hosted.hear(moved)
            elif hosted is not None or not moved.position or not self._knows(log):
                self._look.set()
        if told is None:
            self._look.set()

    def _knows(self, log: str) -> bool:
        return log in self.asleep or log in self._moving or log in self.unavailable

    async def _next_look(self) -> None:
        """Wait until it is time for one. However much is heard, no more than a tenth of the time goes into looking."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.node.settings.follow_seconds):
                await asyncio.sleep(9 * self._looked)
                await self._look.wait()
        self._look.clear()

    async def _follow(self) -> None:
        failures = 0
        while True:
            await self._next_look()
            began = time.monotonic()
            try:
                await self._look_around()
            except StoreUnavailable as error:
                logger.debug("the store does not answer: %s", error.detail)
            except Damaged as error:  # of what is asked for all learners at once
                logger.error("other nodes cannot be followed: %s", error.detail)
            else:
                if failures != self.node.timings.failures:
                    # another server may have taken over, that lacks records: each compares, though none is new
                    failures = self.node.timings.failures
                    for hosted in self._all():
                        hosted.follow()
            for hosted in self._all():
                hosted.tick()
            self._rest()
            self._looked = time.monotonic() - began

    async def _live(self) -> None:
        """Say that this node is alive, and see who else is, however long anything else takes."""
        while True:
            try:
                if await self.placement.meet(alive=self.ready):
                    self._moving_in.set()
            except StoreError as error:
                logger.debug("the store does not answer: %s", error.detail)
            await asyncio.sleep(self.node.settings.follow_seconds)

    async def _move_in(self) -> None:
        """Have awake what is to be hosted here since other nodes came or went, as far as there is room."""
        while True:
            await self._moving_in.wait()
            self._moving_in.clear()
            for name in list(self.asleep):
                if not self.placement.here(name) or len(self.hosted) >= self.node.settings.max_resident:
                    continue
                try:
                    await self.wake(name)
                except ServiceError as error:  # whoever asks for it next is told, or wakes it
                    logger.warning("%s: %s", name, error.detail)

    async def _look_around(self) -> None:
        """Host what is new in the store, drop what is gone, catch up with what other nodes appended."""
        heads = await self.node.reached(self.node.store.heads())
        for hosted in self._all():
            name = hosted.name
            head = heads.get(name)
            if head is None or head.birth != hosted.birth:
                # created here a moment ago, after the heads were read? then the store still knows it
                fresh = await self.node.reached(self.node.store.head(name))
                if fresh is None or fresh.birth != hosted.birth:
                    hosted.failed = LearnerGone(f"{name} was deleted")
                    self.forget(hosted)
                    await hosted.close(save=False)
        gone = self.asleep.keys() - heads.keys()
        if gone:
            fresh_heads = await self.node.reached(self.node.store.heads())
            for name in gone - fresh_heads.keys() - self._moving.keys():
                self.asleep.pop(name, None)
        for name, head in heads.items() if self.ready else sorted(heads.items()):
            if self._sleeps(name, head):  # of thousands most do
                continue
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
            learners = self._all()
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

    async def _meet(self, log: str, head: Head) -> None:
        hosted = self._find(log)
        if hosted is None:
            if self._sleeps(log, head):
                return
            async with self._creating:  # what is created here just now is in the store, and not found yet
                hosted = self._find(log)
                if hosted is None and self._sleeps(log, head):
                    return
                if hosted is None:
                    self.asleep.pop(log, None)  # of another birth
                    self._room()
                    full = len(self.hosted) >= self.node.settings.max_resident
                    if (full or not self.placement.here(log)) and not log.startswith(_GROUP):
                        if not self.ready or await self._still(log, head):
                            self.asleep[log] = head.birth
                        return
                    hosted = await self._host(log, head.birth)
                    self._take_in(hosted)
            hosted.follow()
        elif hosted.position != head.position and hosted.failed is None and not hosted.busy:
            hosted.follow()

    def _sleeps(self, log: str, head: Head) -> bool:
        return log in self._moving or self.asleep.get(log) == head.birth

    async def _still(self, log: str, head: Head) -> bool:
        """Whether the store has this log yet: the heads were read a while ago."""
        fresh = await self.node.reached(self.node.store.head(log))
        return fresh is not None and fresh.birth == head.birth and log not in self.hosted


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
        yield Problem(at, f"is {show(stands)}; by this request, with its defaults, it would be {show(asked)}")
