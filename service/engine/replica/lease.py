"""Which of the nodes that host a machine does what need be done once: snapshots, fits, labels that never come.

A node claims the machine in the store when something of that is due, and again while more is. The others wait, and look
every now and then whether the claim has run out: where the node that had it is gone, the next takes its place. Nothing
depends on it but that work is done once: two nodes that do the same harm nothing.
"""

from __future__ import annotations

import math
import time
import weakref
from typing import Protocol

from service.engine.node import Node

__all__ = ["Lease", "Owner"]

_SECONDS = 10.0  # longer than most snapshots take to write; after so long another node takes the place of one that died
_LEAST = 0.01  # a store counts milliseconds: a claim of less than one would be none


class Owner(Protocol):
    """What a claim needs of the machine's host."""

    name: str
    birth: bytes
    node: Node


class Lease:
    """This node's claim on one machine, if it has it."""

    def __init__(self, owner: Owner) -> None:
        self._owner: Owner = weakref.proxy(owner)
        self._held = False  # perhaps
        self._sure_until = -math.inf  # on the monotonic clock: till then nobody need be asked

    @property
    def seconds(self) -> float:
        """For which it holds; those who were refused ask again after a quarter of them."""
        return min(max(self._owner.node.settings.snapshot_seconds, _LEAST), _SECONDS)

    async def take(self) -> bool:
        """Whether this node has it, for half of its `seconds` at least. Raises `StoreError`."""
        asked = time.monotonic()
        if asked >= self._sure_until:
            self._held = await self._asked(self.seconds)
            self._sure_until = asked + self.seconds / 2 if self._held else -math.inf
        return self._held

    async def release(self) -> None:
        """Let another node have it at once. Raises `StoreError`."""
        if self._held:
            self._held, self._sure_until = False, -math.inf
            await self._asked(0.0)

    async def _asked(self, seconds: float) -> bool:
        owner = self._owner
        return await owner.node.reached(owner.node.store.claim(owner.name, owner.birth, owner.node.id, seconds))
