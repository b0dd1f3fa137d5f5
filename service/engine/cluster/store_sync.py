"""Keeps this node in step with the others over the same store: new, deleted, changed and moved learners.

Nodes announce their records (`notifier.py`), and this one checks all heads now and then, because a node may die before
its announcement. A new learner is hosted here (`placement.py`) if there is space, else it is evicted. Deleted learners
are dropped, and new records are read.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress

from service.engine.cluster.placement import Placement
from service.engine.cluster.residency import Residency
from service.engine.node_resources import loss_of
from service.engine.replica_registry import Registry
from service.errors import Damaged, LearnerGone, LearnerMissing, ServiceError, StoreError, StoreUnavailable
from service.names import GROUP, called
from service.storage import LogHead, LogNotice

__all__ = ["StoreSync"]

logger = logging.getLogger("rarestream.sync")

_PIECE = 1000  # logs that are checked without a pause, in about a millisecond
_QUIET = 30.0  # times `follow_seconds`: interval of checks if the store reports every write of others
_LONGEST_PAUSE = 5.0  # longest pause after a check, which may have compiled kernels
_WARN_SECONDS = 60.0  # interval of the warnings that the store is away


class StoreSync:
    """Follows the store on behalf of one node."""

    def __init__(self, registry: Registry, placement: Placement, residency: Residency) -> None:
        self._registry = registry
        self._node = registry.node
        self._placement = placement
        self._residency = residency
        self.task: asyncio.Task[None] | None = None  # from `start` on
        self._check = asyncio.Event()  # set if an announcement requires a check of all heads
        self._check_seconds = 0.0  # seconds that the last check took
        self._check_by = 0.0  # monotonic time of the next check, even without announcements
        self._next_warning: float | None = None  # monotonic time of the next warning that the store is away
        self._nodes_changed = asyncio.Event()  # set if the live nodes have changed

    async def start(self) -> None:
        """Load every learner of the store, and follow the other nodes from then on.

        The start does not fail if the store is away: the node is not ready until it is back.
        """
        try:
            await self._node.check_clock()  # before any event gets a time
            await self._placement.update_membership(alive=False)  # the heartbeats begin when it is ready
            await self.check_heads()
        except StoreUnavailable as error:
            self._warn_store_away(error)
        self.task = self._node.background.keep("follow the store", self._follow_and_listen)

    async def stop(self) -> None:
        """Stop following."""
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait([self.task])

    async def _follow_and_listen(self) -> None:
        """Subscribe to announcements, and check all heads now and then."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow(), name="check heads")
            if self._placement.spread:
                tasks.create_task(self._send_heartbeats(), name="heartbeats")
                tasks.create_task(self._load_moved(), name="load moved learners")
            subscription = self._node.notifier.subscribe(self._handle_moves, self._node.settings.follow_seconds)
            tasks.create_task(subscription, name="subscribe")

    def _handle_moves(self, moves: dict[str, LogNotice] | None) -> None:
        """Read the records that other nodes announced, of learners in memory; evicted ones stay evicted."""
        for log, moved in (moves or {}).items():
            replica = self._registry.find(log)
            if replica is not None and moved.position:
                if moved.snapshot is not None:
                    replica.snapshots.note_foreign(moved.snapshot)
                if replica.position < moved.position and replica.failure is None:
                    replica.log.follow(moved.position)
            elif replica is not None or not moved.position or not self._registry.is_listed(log):
                self._check.set()
        if moves is None:
            self._check.set()

    def _is_check_due(self, now: float) -> bool:
        """Tell whether a check is due without an announcement.

        It is if the store does not report every write, or if something is wrong. It also is now and then, because a
        cancelled request may have left its work unfinished.
        """
        registry = self._registry
        incomplete = registry.unavailable or not registry.ready or self._node.unreachable is not None
        return not self._node.store.certain or bool(incomplete) or now >= self._check_by

    async def _next_check(self) -> bool:
        """Wait for the time of the next check; return whether an announcement requires it.

        At most about a tenth of the time is spent on checks.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(self._node.settings.follow_seconds):
                await asyncio.sleep(min(9 * self._check_seconds, _LONGEST_PAUSE))
                await self._check.wait()
        announced = self._check.is_set()
        self._check.clear()
        return announced

    def _warn_store_away(self, error: StoreUnavailable) -> None:
        """Warn that the store does not answer: at once, and then now and then."""
        now = time.monotonic()
        if self._next_warning is None:
            logger.warning("waiting for the store: %s", error.detail)
        elif now < self._next_warning:
            return
        else:
            seconds = self._node.stale_seconds
            logger.warning("still waiting for the store, which has not answered for %.0f s: %s", seconds, error.detail)
        self._next_warning = now + _WARN_SECONDS

    async def _follow(self) -> None:
        failures = 0
        while True:
            announced = await self._next_check()
            began = time.monotonic()
            try:
                await self._node.check_clock()
                if announced or failures != self._node.timings.failures or self._is_check_due(began):
                    await self.check_heads()
                    self._check_by = time.monotonic() + _QUIET * self._node.settings.follow_seconds
                else:  # is the store there?
                    await self._node.call(self._node.store.head(GROUP))
            except StoreUnavailable as error:
                self._check_by = 0.0
                self._warn_store_away(error)
            except Damaged as error:  # a reply about all learners
                self._check_by = 0.0
                logger.error("cannot follow the other nodes: %s", error.detail)
            else:
                if self._next_warning is not None:
                    logger.info("the store answers again")
                self._next_warning = None
                if failures != self._node.timings.failures:
                    # a server that lacks records may have taken over: every replica compares
                    failures = self._node.timings.failures
                    self._all_follow()
            self._all_tick()
            self._check_newest()
            self._residency.evict_idle()
            self._check_seconds = time.monotonic() - began

    # In separate functions: a loop variable in `_follow` would keep the last replica in memory until the next check.

    def _all_follow(self) -> None:
        for replica in self._registry.all():
            replica.log.follow()

    def _all_tick(self) -> None:
        for replica in self._registry.all():
            replica.tick()

    def _check_newest(self) -> None:
        """Compare this node's clock with the newest event, and log what differs."""
        times = [(replica.newest_time(), name) for name, replica in self._registry.replicas.items()]
        self._node.clock_check.note_newest(*max((pair for pair in times if pair[0] == pair[0]), default=(0.0, "")))
        self._node.clock_check.report()

    async def _send_heartbeats(self) -> None:
        """Send heartbeats and read the live nodes, however long anything else takes."""
        while True:
            try:
                if await self._placement.update_membership(alive=self._registry.ready):
                    self._nodes_changed.set()
            except StoreError as error:
                logger.debug("the store does not answer: %s", error.detail)
            await asyncio.sleep(self._node.settings.follow_seconds)

    async def _load_moved(self) -> None:
        """Load the learners that this node hosts after a change of the live nodes, as far as they fit."""
        while True:
            await self._nodes_changed.wait()
            self._nodes_changed.clear()
            for name in list(self._registry.evicted):
                if not self._placement.hosts(name) or self._residency.full:
                    continue
                try:
                    await self._residency.load(name)
                except ServiceError as error:  # the next request reports it, or loads the learner
                    logger.warning("%s: %s", name, error.detail)

    async def check_heads(self) -> None:
        """Host new logs of the store, drop deleted ones, read the records of other nodes."""
        registry = self._registry
        heads = await self._node.call(self._node.store.heads())
        await self._drop(heads)
        await registry.drop_deleted_losses()
        if not registry.ready:  # later, this node has what the store loses
            for name, birth in (await self._node.call(self._node.store.losses())).items():
                registry.report_loss(name, loss_of(name, birth))
        for number, (name, head) in enumerate(heads.items() if registry.ready else sorted(heads.items())):
            if number % _PIECE == _PIECE - 1:
                await asyncio.sleep(0)  # let other tasks run
            if registry.is_evicted(name, head):  # most of thousands are
                continue
            try:
                await self._take_in(name, head)
            except StoreUnavailable:
                raise
            except LearnerGone:  # deleted since these heads were read
                continue
            except ServiceError as error:  # other learners are not affected
                error_before = registry.unavailable.get(name)
                if error_before is None or error_before.detail != error.detail:
                    logger.error("%s: %s", called(name), error.detail)
                    registry.unavailable[name] = error
            else:
                registry.unavailable.pop(name, None)
        for name in registry.unavailable.keys() - heads.keys():
            if not isinstance(registry.unavailable[name], LearnerMissing):
                del registry.unavailable[name]
        if not registry.ready:
            await self._catch_up()
            registry.ready = True

    async def _drop(self, heads: dict[str, LogHead]) -> None:
        """Drop what is neither in these heads nor in the store now: it was deleted, or is reported as lost."""
        registry = self._registry
        births: dict[str, bytes] = {}
        for replica in registry.all():
            head = heads.get(replica.name)
            if (head is None or head.birth != replica.birth) and not await self._exists(replica.name, replica.birth):
                births[replica.name] = replica.birth
        absent = registry.evicted.keys() - heads.keys()
        if absent:
            fresh_heads = await self._node.call(self._node.store.heads())
            for name in absent - fresh_heads.keys() - registry.moving.keys():
                if name in registry.evicted:
                    births[name] = registry.evicted[name]
        if not births:
            return
        deleted = await self._node.call(self._node.store.deleted(list(births.values())))
        for name, birth in births.items():
            await self._drop_log(name, birth, deleted=birth in deleted)

    async def _drop_log(self, name: str, birth: bytes, *, deleted: bool) -> None:
        registry = self._registry
        error = LearnerGone(f"{called(name)} was deleted") if deleted else loss_of(name, birth)
        if registry.evicted.get(name) == birth:
            del registry.evicted[name]
        replica = registry.find(name)
        if replica is not None and replica.birth == birth:
            replica.mailbox.failure = error
            registry.forget(replica)
            await replica.close(save=False)
        if isinstance(error, LearnerMissing):
            registry.report_loss(name, error)

    async def _catch_up(self) -> None:
        """Read the logs of all replicas in parallel, at the start."""
        everyone = self._registry.all()
        outcomes = await asyncio.gather(*(replica.log.catch_up() for replica in everyone), return_exceptions=True)
        for replica, failure in zip(everyone, outcomes, strict=True):
            if isinstance(failure, StoreUnavailable):
                raise failure
            if failure is not None and not isinstance(failure, LearnerGone):  # requests for it report `failed`
                logger.error("%s: %s", called(replica.name), failure)

    async def discover(self, log: str) -> None:
        """Take in a log that another node has just created. Raises `StoreUnavailable` if the store does not answer."""
        registry = self._registry
        if registry.find(log) is not None or registry.is_listed(log) or not registry.ready:
            return
        head = await self._node.call(self._node.store.head(log))
        if head is not None:
            await self._take_in(log, head)
            replica = registry.find(log)
            if replica is not None:  # up to the head at the time of the request
                await replica.log.catch_up()

    async def _take_in(self, log: str, head: LogHead) -> None:
        """Host the log with this head, or let its replica read new records."""
        registry = self._registry
        replica = registry.find(log)
        if replica is not None:
            if replica.position != head.position and replica.failure is None and not replica.mailbox.has_jobs:
                replica.log.follow()
            return
        if registry.is_evicted(log, head):
            return
        async with registry.creating:  # a log in creation is in the store but not listed yet
            replica = registry.find(log)
            if replica is None and registry.is_evicted(log, head):
                return
            if replica is None:
                registry.evicted.pop(log, None)  # an earlier learner of this name
                registry.check_room()
                if (self._residency.full or not self._placement.hosts(log)) and not log.startswith(GROUP):
                    # the heads may be outdated
                    if not registry.ready or (await self._exists(log, head.birth) and log not in registry.replicas):
                        registry.evicted[log] = head.birth
                    return
                replica, _ = await registry.host(log, head.birth)
                registry.add(replica)
        replica.log.follow()

    async def _exists(self, log: str, birth: bytes) -> bool:
        """Tell whether the store has the log of this birth now."""
        head = await self._node.call(self._node.store.head(log))
        return head is not None and head.birth == birth
