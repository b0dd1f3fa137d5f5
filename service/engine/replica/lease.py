"""The lease on a replica: which node does the work that need be done only once.

Such work is snapshots, fits and label expiry. A node takes the lease in the store when some of that is due, and renews
it while more is. The others ask again now and then: if the node that held it is gone, the lease runs out and the next
node takes over. Correctness does not depend on it: two nodes that do the same work harm nothing.
"""

from __future__ import annotations

import math
import time

from service.engine.replica.learner_store import LearnerStore
from service.settings import Settings

__all__ = ["Lease"]

_SECONDS = 10.0  # longer than most snapshots take to write; after this long another node replaces one that died
_LEAST = 0.01  # a store counts milliseconds: a shorter lease would be none


class Lease:
    """This node's lease on one log."""

    def __init__(self, stored: LearnerStore, settings: Settings) -> None:
        self._stored = stored
        self._settings = settings
        self._ours = False  # perhaps
        self._sure_until = -math.inf  # on the monotonic clock: until then the store need not be asked

    @property
    def seconds(self) -> float:
        """How long it lasts; nodes that were refused ask again after a quarter of that."""
        return min(max(self._settings.snapshot_seconds, _LEAST), _SECONDS)

    async def take(self) -> bool:
        """Take or renew the lease; tell whether this node has it, for half of `seconds` at least.

        Raises `StoreError`.
        """
        now = time.monotonic()
        if now >= self._sure_until:
            self._ours = await self._stored.lease(self.seconds)
            self._sure_until = now + self.seconds / 2 if self._ours else -math.inf
        return self._ours

    async def release(self) -> None:
        """Let another node have it at once. Raises `StoreError`."""
        if self._ours:
            self._ours, self._sure_until = False, -math.inf
            await self._stored.lease(0.0)
