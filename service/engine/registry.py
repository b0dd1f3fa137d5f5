"""The register of a node: which learners and groups are in its memory, which sleep, which it cannot host, and why.

The engine (`engine.py`), what puts learners to sleep (`sleeping.py`) and what follows other nodes (`following.py`) all
read it, and enter in it what they did. The log of a group has its name behind an @, which no learner's name begins
with.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from learners import GroupComparison
from service.auth import Grant
from service.engine.node import Node
from service.engine.replica import GroupReplica, LearnerReplica
from service.errors import LimitReached, ServiceError
from service.names import GROUP
from service.storage import Head

__all__ = ["Registry"]


class Registry:
    """What of the store is on this node, and how."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.replicas: dict[str, LearnerReplica] = {}
        self.evicted: dict[str, bytes] = {}  # learners that are in the store only: their birth
        self.groups: dict[str, GroupReplica] = {}
        self.moving: dict[str, asyncio.Future[None]] = {}  # learners that fall asleep or awake just now
        self.unavailable: dict[str, ServiceError] = {}  # logs of the store that cannot be hosted, and why
        self.ready = False  # every learner of the store is here
        self.creating = asyncio.Lock()  # held while one is created: it is in the store then, and not found here yet

    def find(self, log: str) -> LearnerReplica | GroupReplica | None:
        """What is hosted of the log of this name."""
        return self.groups.get(log[1:]) if log.startswith(GROUP) else self.replicas.get(log)

    def all(self) -> list[LearnerReplica | GroupReplica]:
        """All that is in memory."""
        return [*self.replicas.values(), *self.groups.values()]

    @property
    def learners(self) -> int:
        """How many there are on this node, asleep or awake."""
        return len(self.replicas) + len(self.evicted)

    def knows(self, log: str) -> bool:
        """Whether a log that is not hosted is known all the same."""
        return log in self.evicted or log in self.moving or log in self.unavailable

    def has(self, name: str) -> bool:
        """Tell whether there is a learner of this name, in memory or not, even if it cannot be hosted."""
        return name in self.replicas or self.knows(name)

    def sleeps(self, log: str, head: Head) -> bool:
        """Whether the learner whose log has this head sleeps, or is about to move."""
        return log in self.moving or self.evicted.get(log) == head.birth

    def check_room(self) -> None:
        """That there may be one more here. Raises `LimitReached`."""
        if self.learners + len(self.groups) >= self.node.settings.max_learners:
            raise LimitReached(f"this node has {self.learners + len(self.groups)} learners and groups, its limit")

    async def check_new(self, grant: Grant) -> None:
        """That there may be one more here, and by what is granted over the store: what other nodes have made counts
        though this one has not heard of it. To be asked with `creating` held.

        Raises `LimitReached`, or a `StoreError`.
        """
        self.check_room()
        if not grant.counts_learners:
            return
        learners: list[str] = []
        groups: list[tuple[str, Sequence[str]]] = []
        for log in await self.node.reached(self.node.store.heads()):
            if log.startswith(GROUP):
                group = self.groups.get(log[1:])  # of one that is new here only the name is known, for a moment
                groups.append((log[1:], () if group is None else group.config.learners))
            else:
                learners.append(log)
        grant.check_room(learners, groups)

    async def host(self, log: str, birth: bytes) -> tuple[LearnerReplica | GroupReplica, bool]:
        """What the log of this name is of, as its newest snapshot has it, and whether the log may go on behind that;
        nobody finds it yet."""
        found = await self.node.recover(log, birth)
        if isinstance(found.machine, GroupComparison):
            return GroupReplica(log, birth, found, self.node, self.forget), found.behind
        pending = found.pending or await self.node.reached(self.node.store.pending(log, birth))
        return LearnerReplica(log, birth, found, pending, self.node, self.forget), found.behind

    def take_in(self, one: LearnerReplica | GroupReplica) -> None:
        """From here on it is found by its name."""
        if isinstance(one, LearnerReplica):
            self.replicas[one.name] = one
        else:
            self.groups[one.name.removeprefix(GROUP)] = one

    def forget(self, one: LearnerReplica | GroupReplica) -> None:
        """Host it no longer."""
        if self.find(one.name) is one:
            if isinstance(one, LearnerReplica):
                del self.replicas[one.name]
            else:
                del self.groups[one.name.removeprefix(GROUP)]
