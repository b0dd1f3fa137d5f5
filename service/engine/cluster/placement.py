"""Which nodes host which learners: all of them, or, with `replication`, so many of those that are alive.

Every node works it out alone and alike, by rendezvous hashing (Thaler and Ravishankar 1998): of each pair of an address
and a learner's name a hash, and the learner is hosted at the addresses with the highest. An address that comes takes
its share from all others, one that goes leaves its share to all others, and nothing else moves. Processes behind one
address are one place: whatever is sent there may come to any of them.

Who is alive is in the store: a key of each node, with a time to live. Nodes may disagree for a moment, which costs no
more than a learner that is hosted once more than it need be: any node may append to any log.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import time
from hashlib import blake2b

from service.engine.node import Node
from service.errors import StoreUnavailable
from service.settings import node_address
from service.storage import SharedStore

__all__ = ["Placement"]

logger = logging.getLogger("rarestream.placement")

ALIVE = 5.0  # times `follow_seconds`: how long a node that is not heard of counts as alive
_SETTLING = 10.0  # times `follow_seconds`, after a change: learners are still served where they were
_KNOWN = 100_000  # names whose places are kept


class Placement:
    """Where learners are hosted, as this node sees it."""

    def __init__(self, node: Node) -> None:
        """Raises `ValueError` where the settings ask for what the store cannot do."""
        settings, store = node.settings, node.store
        self._node = node
        self.replication = settings.replication
        self.address = settings.advertise or ""
        self.id = secrets.token_hex(8)
        self.keys: tuple[bytes, ...] = ()  # that only nodes know: the one that they all have, and the one before it
        self.addresses: tuple[str, ...] = ()  # of the nodes that are alive
        self._seconds = max(1.0, ALIVE * settings.follow_seconds)
        self._lenient_until = -math.inf  # on the monotonic clock; inf: the store does not answer
        self._places: dict[str, tuple[str, ...]] = {}
        self._settling = _SETTLING * settings.follow_seconds
        self._changed = -self._settling
        self._change = asyncio.Event()  # another one after each
        self._store: SharedStore | None = None
        if self.replication:
            if not isinstance(store, SharedStore):
                raise ValueError("replication is for nodes that share a store: it needs one of Redis")
            if not self.address:
                raise ValueError("replication needs advertise: the address at which other nodes reach this one")
            self._store = store

    @property
    def spread(self) -> bool:
        """Whether some learners may not be hosted here."""
        return self._store is not None

    @property
    def settling(self) -> bool:
        """Whether the nodes that are alive have changed a moment ago."""
        return time.monotonic() < self._changed + self._settling

    async def meet(self, alive: bool = True) -> bool:
        """Say that this node is alive, if it is, and see who else is; whether that has changed.

        Where the store was away, nobody could say so: those who were alive count as that until they have had the time.
        Raises `StoreUnavailable`.
        """
        if self._store is None:
            return False
        try:
            key = await self._node.reached(self._store.key(self.keys[0] if self.keys else secrets.token_bytes(32)))
            if key not in self.keys[:1]:
                self.keys = (key, *self.keys[:1])
            told = self.address if alive else None
            nodes = await self._node.reached(self._store.meet(self.id, told, self._seconds))
        except StoreUnavailable:
            self._lenient_until = math.inf
            raise
        now = time.monotonic()
        if self._lenient_until == math.inf:
            self._lenient_until = now + self._seconds
        kept = self.addresses if now < self._lenient_until else ()
        addresses = tuple(sorted({*filter(_readable, nodes.values()), *kept}))
        if addresses == self.addresses:
            return False
        logger.info("nodes are alive at %s", ", ".join(addresses))
        if self.addresses:
            self._changed = time.monotonic()
        self.addresses = addresses
        self._places.clear()
        self._change.set()
        self._change = asyncio.Event()
        return True

    async def without(self, address: str) -> None:
        """Until no node is alive at this address."""
        while address in self.addresses:
            await self._change.wait()

    async def leave(self) -> None:
        """Say that this node goes. Raises `StoreUnavailable`."""
        if self._store is not None:
            await self._node.reached(self._store.leave(self.id))

    def places(self, name: str) -> tuple[str, ...]:
        """The addresses at which a learner is hosted, the one with the highest hash first. O(nodes), once for each."""
        found = self._places.get(name)
        if found is None:
            if len(self._places) >= _KNOWN:
                self._places.clear()
            if not self.addresses:
                return ()
            ranked = sorted(self.addresses, key=lambda address: _weight(address, name), reverse=True)
            found = self._places[name] = tuple(ranked[: self.replication])
        return found

    def here(self, name: str) -> bool:
        """Whether a learner is to be hosted here."""
        return self._store is None or not self.addresses or self.address in self.places(name)


def _readable(address: str) -> bool:
    """Whether a request can be sent there. A node of another release may have told what this one would refuse."""
    try:
        return node_address(address) == address
    except ValueError:
        return False


def _weight(address: str, name: str) -> bytes:
    return blake2b(f"{address}\n{name}".encode(), digest_size=8).digest()
