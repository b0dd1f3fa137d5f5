"""What the Redis store waits for before it says that something is durable: the setting `acks`.

    memory      the reply: it is in Redis's memory, and as durable as Redis is set up to make it
    aof         it is on the disk of the server that wrote it: WAITAOF, where the server has it (Redis 7.2 and newer,
                Valkey), else `appendfsync always`, by which a reply comes after the fsync
    replicas:n  n replicas have it in their memory: WAIT

What is asked goes to the server behind the write, on the same connection in the same round trip, so it is asked anew of
whatever server took the write: one that a fail-over has promoted, or that was set up otherwise since, is found out by
the next write. A write whose acknowledgement is missing is there all the same: its outcome is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from redis.exceptions import RedisError, ResponseError

from service.errors import StoreUnavailable
from service.settings import ACKS

__all__ = ["SETTINGS", "Acks", "Command"]

ACK_SECONDS = 3.0  # in which it has to come; `appendfsync everysec` takes up to two seconds while the disk is busy
OF_REPLY = 0.6  # of the time that a command has on the connection, at most

Command = tuple[str | bytes | int, ...]

SETTINGS: Command = ("CONFIG", "GET", "*append*")  # what a server without WAITAOF is asked instead

NO_AOF = "acks=aof, and this Redis has no append-only file: set `appendonly yes` there, or another acks here"
NEVER = (
    "acks=aof, and this Redis has `appendfsync no`, so that nobody asks the disk for what is written: set everysec or "
    "always there, or another acks here"
)
SLOW_DISK = "acks=aof, and the write was not on the disk of Redis after {seconds:g} s"
NOT_ALWAYS = (
    "acks=aof, and this Redis has no WAITAOF (it is older than 7.2) and not `appendonly yes`, `appendfsync always` and "
    "`no-appendfsync-on-rewrite no`: set these there, take a newer Redis, or another acks here"
)
FORBIDDEN = (
    "acks=aof, and this Redis has no WAITAOF (it is older than 7.2) and does not tell how it is set up ({error}): "
    "allow CONFIG GET there, take a newer Redis, or another acks here"
)
NO_REPLICA = "acks={asked}, and only {got} of {n} replicas had the write after {seconds:g} s"
FEW = "acks={asked}, and this Redis has {got} replicas: no write is acknowledged"
LOSSES = (
    "acks=memory, and this Redis has no append-only file: what is acknowledged is lost with it; set `appendonly yes` "
    "there, or acks here"
)
UNKNOWN = "; whether the last write stays is not known: repeat it"


class Acks:
    """One setting of it, and what is known of the servers."""

    def __init__(self, asked: str, reply_seconds: float) -> None:
        """`reply_seconds`: that a command has on the connection. Raises `ValueError` where it is none of the forms."""
        if not re.fullmatch(ACKS, asked):
            raise ValueError(f"acks is {asked!r}; expected memory, aof or replicas:n")
        kind, _, number = asked.partition(":")
        self.asked = asked
        self.aof = kind == "aof"
        self.replicas = int(number or 0)
        self.waits = kind != "memory"
        self._seconds = min(ACK_SECONDS, OF_REPLY * reply_seconds)
        self._waitaof = True  # until a server says that it does not know it

    def command(self) -> Command:
        """What is sent behind a write."""
        milliseconds = int(1000 * self._seconds)
        if self.replicas:
            return ("WAIT", self.replicas, milliseconds)
        return ("WAITAOF", 1, 0, milliseconds) if self._waitaof else SETTINGS

    def instead(self, command: Command, reply: Any) -> Command | None:
        """What to send where the reply to `command` says that the server lacks it; None where it does not."""
        if command[0] != "WAITAOF" or not (isinstance(reply, ResponseError) and "unknown command" in str(reply)):
            return None
        self._waitaof = False
        return SETTINGS

    def amiss(self, command: Command, reply: Any) -> str | None:
        """What `reply`, to `command`, says is missing, if anything is. Raises an error that is no answer.

        By the command that was sent, not by the one that would be sent now: several are under way at once.
        """
        if command[0] == "WAITAOF" and isinstance(reply, ResponseError) and "appendonly" in str(reply):
            return NO_AOF
        if command == SETTINGS and isinstance(reply, ResponseError):
            self._waitaof = True
            return FORBIDDEN.format(error=reply)
        if isinstance(reply, RedisError):
            raise reply
        if command[0] == "WAIT":
            few = NO_REPLICA.format(asked=self.asked, got=reply, n=self.replicas, seconds=self._seconds)
            return None if reply >= self.replicas else few
        if command[0] == "WAITAOF":
            return None if reply[0] else SLOW_DISK.format(seconds=self._seconds)
        wanted = {b"appendonly": b"yes", b"appendfsync": b"always", b"no-appendfsync-on-rewrite": b"no"}
        if wanted.items() <= _told(reply).items():
            return None
        self._waitaof = True  # asked anew the next time: this server may be replaced by one that has it
        return NOT_ALWAYS

    def amiss_at_start(self, command: Command, reply: Any, settings: Any) -> str | None:
        """As `amiss`, before there is a write to wait for: by the reply to SETTINGS, too, where the server tells."""
        if self.instead(command, reply):
            return self.amiss(SETTINGS, settings)
        never = not isinstance(settings, RedisError) and _told(settings).get(b"appendfsync") == b"no"
        return self.amiss(command, reply) or (NEVER if never else None)

    def check(self, command: Command, reply: Any) -> None:
        """Raise `StoreUnavailable` where the write behind which `command` went is not acknowledged by `reply`."""
        why = self.amiss(command, reply)
        if why is not None:
            raise StoreUnavailable(why + UNKNOWN)

    def about(self) -> Command:
        """What `caution` is told by."""
        return ("INFO", "replication" if self.replicas else "persistence")

    def caution(self, replies: Sequence[Any]) -> str | None:
        """What operators should know, by the reply of each server that takes writes to `about`."""
        told = [reply for reply in replies if isinstance(reply, Mapping)]  # a server may refuse it
        if self.replicas:
            few = min((info["connected_slaves"] for info in told), default=self.replicas)
            return FEW.format(asked=self.asked, got=few) if few < self.replicas else None
        return LOSSES if not self.aof and any(info.get("aof_enabled") == 0 for info in told) else None


def _told(reply: Sequence[bytes]) -> dict[bytes, bytes]:
    """The settings in a reply to CONFIG GET."""
    return dict(zip(reply[::2], reply[1::2], strict=True))
