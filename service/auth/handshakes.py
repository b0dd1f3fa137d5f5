"""Bounds the connections that are not authenticated yet: their time, their number by address, and in all.

A handshake lasts from the accept of a connection to its first request with a key; without keys, to the end of its first
request. Nobody knows who holds such a connection, so it must end by a deadline, and it is the first to go when there is
no room for others:

    deadline       `seconds` after the accept; a request that is being answered by then is the last one
    address        one address has `max_handshakes`; the oldest is closed for the next, after a reply in progress
    descriptors    the process runs short of file descriptors; the address with most handshakes loses its oldest

The connections of a proxy have its address. They count only until their first request, so it may open any number.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import Literal, Protocol

from service.auth.addresses import network_of
from service.settings import Settings
from service.text import counted

__all__ = ["GRACE", "Handshake", "Handshakes", "UnauthenticatedConnection"]

logger = logging.getLogger("rarestream.connections")

Reason = Literal["deadline", "address", "descriptors", "idle"]

GRACE = 0.25  # seconds for which a new connection stays open, even if descriptors run short
_REPORT_SECONDS = 1.0  # seconds between two reports in the log


class UnauthenticatedConnection(Protocol):
    """A connection in its handshake."""

    @property
    def authenticated(self) -> bool:
        """Tell whether a request came with a key or, if none is needed, was complete."""

    @property
    def receiving(self) -> bool:
        """Tell whether a request is still arriving, also the first one, of which nothing has arrived."""

    def abort(self) -> None:
        """Close the connection at once."""

    def expire_handshake(self) -> None:
        """Close the connection, after the reply to a request that is being answered."""


class Handshake:
    """The handshake of one connection."""

    __slots__ = ("_all", "address", "connection", "needs_key", "since")

    def __init__(
        self, handshakes: Handshakes, address: str, connection: UnauthenticatedConnection, since: float
    ) -> None:
        self._all = handshakes
        self.address = address  # or network
        self.connection = connection
        self.since = since
        self.needs_key = handshakes.needs_key  # whether requests need a key

    def finish(self) -> None:
        """End the handshake: the client is authenticated or gone."""
        self._all.remove(self)


class Handshakes:
    """The handshakes of one process, oldest first."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        """Take the bounds of the settings. `clock` gives the seconds that deadlines are counted by."""
        self.needs_key = settings.keys is not None
        self.seconds = settings.body_seconds
        self.closed: dict[Reason, int] = {"deadline": 0, "address": 0, "descriptors": 0, "idle": 0}
        self._most = settings.max_handshakes
        self._clock = clock
        self._open: dict[Handshake, None] = {}
        self._by_address: dict[str, dict[Handshake, None]] = {}
        self._unreported: Counter[tuple[Reason, str]] = Counter()
        self._report_at = 0.0

    def __len__(self) -> int:
        """Count the connections that are not authenticated yet."""
        return sum(not handshake.connection.authenticated for handshake in self._open)

    def begin(self, address: str, connection: UnauthenticatedConnection) -> Handshake:
        """Begin the handshake of a connection from an address."""
        network = network_of(address)
        same = self._by_address.setdefault(network, {})
        while len(same) >= self._most:
            self._close(next(iter(same)), "address")
        handshake = Handshake(self, network, connection, self._clock())
        self._open[handshake] = None
        self._by_address.setdefault(network, same)[handshake] = None
        return handshake

    def remove(self, handshake: Handshake) -> None:
        """Forget a handshake, if it has not ended already."""
        if handshake in self._open:
            del self._open[handshake]
            same = self._by_address[handshake.address]
            del same[handshake]
            if not same:
                del self._by_address[handshake.address]

    def make_room(self) -> bool:
        """Close the oldest handshake of the address that has most; return False if there is none to close yet."""
        before = self._clock() - GRACE
        while self._open:
            address = max(self._by_address, key=lambda address: len(self._by_address[address]))
            oldest = next(iter(self._by_address[address]))
            if oldest.since > before and not oldest.connection.authenticated:
                return False
            if self._close(oldest, "descriptors"):
                return True
        return False

    def expire(self) -> None:
        """Close the connections whose deadline has passed, and report what was closed. Call it often."""
        now = self._clock()
        while self._open and (oldest := next(iter(self._open))).since + self.seconds <= now:
            self._close(oldest, "deadline")
        if self._unreported and now >= self._report_at:
            self._report_at = now + _REPORT_SECONDS
            self._report()

    def count(self, reason: Reason, address: str) -> None:
        """Count a connection of an address that was closed."""
        self.closed[reason] += 1
        self._unreported[reason, address] += 1

    def _close(self, handshake: Handshake, reason: Reason) -> bool:
        """Close a connection, unless it was authenticated meanwhile; return whether it is closed."""
        authenticated = handshake.connection.authenticated
        self.remove(handshake)
        if authenticated:
            return False
        self.count(reason, handshake.address)
        if reason == "deadline" or (reason == "address" and not handshake.connection.receiving):
            handshake.connection.expire_handshake()
        else:
            handshake.connection.abort()
        return True

    def _report(self) -> None:
        for reason, (level, why) in _REPORTS.items():
            counts = {address: n for (actual, address), n in self._unreported.items() if actual == reason}
            if counts:
                most = max(counts, key=counts.__getitem__)
                total = counted(sum(counts.values()), "connection")
                text = why.format(seconds=self.seconds, most=self._most)
                logger.log(level, _REPORT, total, counts[most], most, text, len(self))
        self._unreported.clear()


_REPORT = "closed %s (%d from %s): %s; %d unauthenticated connections are open"
_REPORTS: dict[Reason, tuple[int, str]] = {
    "deadline": (logging.INFO, "not authenticated within {seconds:g} s (body_seconds)"),
    "address": (logging.WARNING, "one address has {most} unauthenticated connections (max_handshakes)"),
    "descriptors": (logging.WARNING, "not authenticated, and file descriptors run short (ulimit -n)"),
    "idle": (logging.WARNING, "idle or slow, and file descriptors run short (ulimit -n)"),
}
