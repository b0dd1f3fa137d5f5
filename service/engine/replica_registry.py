"""The registry of a node: its learners and groups in memory, the evicted ones, and those that it cannot host.

`engine.py`, `cluster/residency.py` and `cluster/store_sync.py` read and update it. The log of a group is named @NAME;
no learner's name begins with @.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from learners import GroupComparison
from service.auth import Permissions
from service.engine.node_resources import Node
from service.engine.replica import GroupReplica, LearnerReplica
from service.errors import LearnerGone, LearnerMissing, LimitReached, ServiceError
from service.names import GROUP
from service.storage import LogHead

__all__ = ["Registry"]

logger = logging.getLogger("rarestream.sync")


class Registry:
    """The learners and groups of the store, as this node hosts them."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.replicas: dict[str, LearnerReplica] = {}
        self.evicted: dict[str, bytes] = {}  # learners that are only in the store: name -> birth
        self.groups: dict[str, GroupReplica] = {}
        self.moving: dict[str, asyncio.Future[None]] = {}  # learners that are being evicted, loaded or deleted
        self.unavailable: dict[str, ServiceError] = {}  # logs that cannot be hosted, and why
        self.ready = False  # whether every learner of the store is listed
        self.creating = asyncio.Lock()  # locked during a creation, while a log is in the store but not listed yet

    def find(self, log: str) -> LearnerReplica | GroupReplica | None:
        """Return the replica in memory of the log of this name."""
        return self.groups.get(log[1:]) if log.startswith(GROUP) else self.replicas.get(log)

    def all(self) -> list[LearnerReplica | GroupReplica]:
        """Return all replicas in memory."""
        return [*self.replicas.values(), *self.groups.values()]

    @property
    def learners(self) -> int:
        """The number of learners on this node, in memory or evicted."""
        return len(self.replicas) + len(self.evicted)

    def is_listed(self, log: str) -> bool:
        """Tell whether a log is listed though it is not in memory."""
        return log in self.evicted or log in self.moving or log in self.unavailable

    def has(self, name: str) -> bool:
        """Tell whether a learner of this name exists, in memory or not, even if it cannot be hosted."""
        return name in self.replicas or self.is_listed(name)

    def is_evicted(self, log: str, head: LogHead) -> bool:
        """Tell whether the learner whose log has this head is evicted, or in transition."""
        return log in self.moving or self.evicted.get(log) == head.birth

    def check_room(self) -> None:
        """Check that this node may have one more learner or group. Raises `LimitReached`."""
        if self.learners + len(self.groups) >= self.node.settings.max_learners:
            raise LimitReached(f"this node has {self.learners + len(self.groups)} learners and groups, its limit")

    async def check_new(self, permissions: Permissions) -> None:
        """Check the limit of this node, and that of the key for the whole store; call it with `creating` locked.

        Learners that other nodes have created count even if this node has not met them yet. Raises `LimitReached`, or
        a `StoreError`.
        """
        self.check_room()
        if not permissions.counts_learners:
            return
        learners: list[str] = []
        groups: list[tuple[str, Sequence[str]]] = []
        for log in await self.node.call(self.node.store.heads()):
            if log.startswith(GROUP):
                group = self.groups.get(log[1:])  # None for a moment if it is new on this node
                groups.append((log[1:], () if group is None else group.config.learners))
            else:
                learners.append(log)
        permissions.check_room(learners, groups)

    async def host(self, log: str, birth: bytes) -> tuple[LearnerReplica | GroupReplica, bool]:
        """Return a replica of this log at its newest snapshot, not listed yet, and whether later records may exist."""
        recovered = await self.node.recover(log, birth)
        if isinstance(recovered.machine, GroupComparison):
            return GroupReplica(log, birth, recovered, self.node, self._miss), recovered.behind
        pending = recovered.pending or await self.node.call(self.node.store.pending(log, birth))
        return LearnerReplica(log, birth, recovered, pending, self.node, self._miss), recovered.behind

    def add(self, replica: LearnerReplica | GroupReplica) -> None:
        """List a replica: `find` returns it from now on."""
        if isinstance(replica, LearnerReplica):
            self.replicas[replica.name] = replica
        else:
            self.groups[replica.name.removeprefix(GROUP)] = replica
        self.unavailable.pop(replica.name, None)

    def _miss(self, replica: LearnerReplica | GroupReplica) -> None:
        """Remove a replica whose log the store no longer has."""
        if self.find(replica.name) is replica:
            self.forget(replica)
            if isinstance(replica.failure, LearnerMissing):
                self.report_loss(replica.name, replica.failure)

    def report_loss(self, log: str, error: LearnerMissing) -> None:
        """List a log that the store lost as unavailable, until it is deleted or back."""
        if self.find(log) is None and log not in self.evicted and log not in self.unavailable:
            logger.error("%s", error.detail)
            self.unavailable[log] = error

    async def drop_evicted(self, name: str, error: LearnerGone | LearnerMissing) -> None:
        """Drop an evicted learner that the store no longer has. Raises `StoreUnavailable` if the store cannot tell."""
        if isinstance(error, LearnerGone):
            error = await self.node.explain_loss(name, self.evicted[name], error)
        del self.evicted[name]
        if isinstance(error, LearnerMissing):
            self.report_loss(name, error)

    async def check_not_lost(self, log: str) -> None:
        """Check that the store has not lost a log of this name: it is not created anew before somebody deletes it.

        Raises `LearnerMissing`, or `StoreUnavailable`.
        """
        await self.drop_deleted_losses()
        error = self.unavailable.get(log)
        if isinstance(error, LearnerMissing):
            raise error.with_traceback(None)

    async def drop_deleted_losses(self) -> None:
        """Drop the lost logs that were deleted since, here or by another node. Raises `StoreUnavailable`."""
        births = {log: error.birth for log, error in self.unavailable.items() if isinstance(error, LearnerMissing)}
        if births:
            deleted = await self.node.call(self.node.store.deleted(list(births.values())))
            for log in [log for log, birth in births.items() if birth in deleted]:
                self.unavailable.pop(log, None)

    def forget(self, replica: LearnerReplica | GroupReplica) -> None:
        """Remove a replica from the list."""
        if self.find(replica.name) is replica:
            if isinstance(replica, LearnerReplica):
                del self.replicas[replica.name]
            else:
                del self.groups[replica.name.removeprefix(GROUP)]
