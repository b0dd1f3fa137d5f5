"""Leases on Redis: a key with a time to live, and a watch on it that does not depend on wall clocks.

The key's value begins with the learner's birth, so a learner that is created anew is free. It ends with a token that
changes with each renewal, and with the lease's duration. Redis counts the time to live by its wall clock. If that is
set back, the key outlives its holder. So each store notes when it first saw the present value, on its monotonic clock.
It replaces a value that it has seen for longer than the lease lasts: the holder has not renewed it.
"""

from __future__ import annotations

import logging
import os
import struct
import time
from collections.abc import Callable
from typing import NamedTuple

from service.names import called_in_full
from service.storage.redis.scripts import RESERVE, Script

__all__ = ["LEASE", "LeaseWatch", "lease_tail"]

logger = logging.getLogger("rarestream.store")

_TAIL = struct.Struct(">16sd")  # token of the renewal, seconds of the lease
_WATCHED = 10_000  # learners whose leases of other nodes are watched; the node asks for each of them again soon

# keys: meta, lease; birth, node, milliseconds, tail, overdue value -> '' if this node holds the lease, else its value
LEASE = Script(
    RESERVE,
    """
if redis.call('HGET', KEYS[1], 'birth') ~= ARGV[1] then return false end
local this, holder = ARGV[1] .. ARGV[2], redis.call('GET', KEYS[2])
local other = holder and string.sub(holder, 1, #this) ~= this and string.sub(holder, 1, #ARGV[1]) == ARGV[1]
if other and (holder ~= ARGV[5] or ARGV[3] == '0') then return holder end
if ARGV[3] ~= '0' then
  redis.call('SET', KEYS[2], this .. ARGV[4], 'PX', ARGV[3])
elseif holder then
  redis.call('DEL', KEYS[2])
end
return ''
""",
)


def lease_tail(seconds: float) -> bytes:
    """Return the end of the value of a lease that is acquired or renewed."""
    return _TAIL.pack(os.urandom(16), seconds)


class _Sighting(NamedTuple):
    value: bytes
    since: float  # by the clock of the watch
    seconds: float  # that the lease lasts


class LeaseWatch:
    """Notes since when this process has seen the present leases of other nodes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sightings: dict[str, _Sighting] = {}

    def overdue(self, learner: str) -> bytes:
        """Return the value of a lease that its holder has not renewed in time; empty if there is none."""
        sighting = self._sightings.get(learner)
        return sighting.value if sighting is not None and self._clock() - sighting.since > sighting.seconds else b""

    def note(self, learner: str, value: bytes, overdue: bytes, expected_size: int, seconds: float) -> None:
        """Note the value of another node's lease; empty if this node holds it now.

        A value of another size than `expected_size` is of an earlier release: its lease lasts for `seconds`.
        """
        before = self._sightings.pop(learner, None)
        if not value:
            if overdue:
                logger.warning(
                    "%s: took over a lease that nobody renewed; the clock of Redis was set back, or runs slowly",
                    called_in_full(learner),
                )
            return
        if before is None or before.value != value:
            if len(value) == expected_size:
                seconds = _TAIL.unpack(value[-_TAIL.size :])[1]
            before = _Sighting(value, self._clock(), seconds)
        self._sightings[learner] = before
        if len(self._sightings) > _WATCHED:
            del self._sightings[next(iter(self._sightings))]
