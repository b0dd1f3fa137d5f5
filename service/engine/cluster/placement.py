"""Decides which nodes host which learners: all nodes, or with `replication` only so many of the live nodes.

Every node computes the same placement by rendezvous hashing (Thaler and Ravishankar 1998). It hashes each address with
the learner's name, and the addresses with the highest hashes host the learner. A new address takes its share from all
others, a lost one leaves its share to all others, and nothing else moves. Processes behind one address are one place,
because a request to the address may reach any of them.

The store has a key with a time to live for each live node. Nodes may disagree for a moment. That only costs one more
replica, because any node may append to any log.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import time
from hashlib import blake2b

from service.engine.node_resources import Node
from service.errors import StoreUnavailable
from service.settings import node_address
from service.storage import SharedStore

__all__ = ["Placement"]

logger = logging.getLogger("rarestream.placement")

ALIVE = 5.0  # times `follow_seconds`: how long a silent node counts as alive
LEAST_ALIVE = 5.0  # seconds that it counts as alive at least: a busy machine may stop a process for some
_SETTLING = 10.0  # times `follow_seconds` after a change: learners are still served at their old places
_CACHED = 100_000  # names in the cache of places


class Placement:
    """The placement of learners, as this node sees it."""

    def __init__(self, node: Node) -> None:
        """Raise `ValueError` if the store does not support the settings."""
        settings, store = node.settings, node.store
        self._node = node
        self.replication = settings.replication
        self.address = settings.advertise or ""
        self.id = secrets.token_hex(8)
        self.keys: tuple[bytes, ...] = ()  # secrets of the nodes: the current one and the one before it
        self.addresses: tuple[str, ...] = ()  # of the live nodes
        self._seconds = max(LEAST_ALIVE, ALIVE * settings.follow_seconds)
        self._lenient_until = -math.inf  # on the monotonic clock; inf: the store does not answer
        self._places: dict[str, tuple[str, ...]] = {}
        self._settling = _SETTLING * settings.follow_seconds
        self._changed = -self._settling
        self._change = asyncio.Event()  # replaced after each change
        self._store: SharedStore | None = None
        if self.replication:
            if not isinstance(store, SharedStore):
                raise ValueError("replication needs a store that nodes share: use Redis")
            if not self.address:
                raise ValueError("replication needs advertise: the address at which other nodes reach this one")
            self._store = store

    @property
    def spread(self) -> bool:
        """Whether other nodes may host learners that this one does not."""
        return self._store is not None

    @property
    def settling(self) -> bool:
        """Whether the live nodes have changed lately."""
        return time.monotonic() < self._changed + self._settling

    async def update_membership(self, alive: bool = True) -> bool:
        """Send a heartbeat if `alive`, read the live nodes, and return whether they have changed.

        After an outage of the store, the former nodes count as alive until they have had time for a heartbeat. Raises
        `StoreUnavailable`.
        """
        if self._store is None:
            return False
        try:
            key = await self._node.call(self._store.key(self.keys[0] if self.keys else secrets.token_bytes(32)))
            if key not in self.keys[:1]:
                self.keys = (key, *self.keys[:1])
            address = self.address if alive else None
            nodes = await self._node.call(self._store.meet(self.id, address, self._seconds))
        except StoreUnavailable:
            self._lenient_until = math.inf
            raise
        now = time.monotonic()
        if self._lenient_until == math.inf:
            self._lenient_until = now + self._seconds
        lenient = self.addresses if now < self._lenient_until else ()
        addresses = tuple(sorted({*filter(_is_valid, nodes.values()), *lenient}))
        if addresses == self.addresses:
            return False
        logger.info("live nodes: %s", ", ".join(addresses))
        if self.addresses:
            self._changed = time.monotonic()
        self.addresses = addresses
        self._places.clear()
        self._change.set()
        self._change = asyncio.Event()
        return True

    async def wait_until_gone(self, address: str) -> None:
        """Wait until no live node has this address, and none comes back within the time of a silent one.

        A busy node may miss its heartbeats while it still works on a request.
        """
        while True:
            while address in self.addresses:
                await self._change.wait()
            try:
                async with asyncio.timeout(self._seconds):
                    while address not in self.addresses:
                        await self._change.wait()
            except TimeoutError:
                return

    async def leave(self) -> None:
        """Deregister this node. Raises `StoreUnavailable`."""
        if self._store is not None:
            await self._node.call(self._store.leave(self.id))

    def places(self, name: str) -> tuple[str, ...]:
        """Return the addresses that host a learner, highest hash first. O(nodes), cached."""
        addresses = self._places.get(name)
        if addresses is None:
            if len(self._places) >= _CACHED:
                self._places.clear()
            if not self.addresses:
                return ()
            ranked = sorted(self.addresses, key=lambda address: _weight(address, name), reverse=True)
            addresses = self._places[name] = tuple(ranked[: self.replication])
        return addresses

    def hosts(self, name: str) -> bool:
        """Tell whether this node hosts a learner."""
        return self._store is None or not self.addresses or self.address in self.places(name)


def _is_valid(address: str) -> bool:
    """Tell whether requests can be sent to an address; nodes of other releases may register malformed ones."""
    try:
        return node_address(address) == address
    except ValueError:
        return False


def _weight(address: str, name: str) -> bytes:
    return blake2b(f"{address}\n{name}".encode(), digest_size=8).digest()
