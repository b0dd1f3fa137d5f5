"""What the Redis store waits for before it reports a write as durable: the setting `acks`.

    memory      the reply: the write is in the memory of Redis, and as durable as Redis is configured
    aof         the write is on the disk of the server: WAITAOF if the server has it (Redis 7.2 and newer, Valkey),
                else `appendfsync always`, with which the reply follows the fsync
    replicas:n  n replicas have the write in their memory: WAIT

The request follows the write on the same connection in the same round trip. So it reaches whatever server took the
write, and the next write detects a server that was promoted or reconfigured. A write without its acknowledgement exists
all the same: its outcome is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from redis.exceptions import RedisError, ResponseError

from service.errors import StoreUnavailable
from service.settings import ACKS

__all__ = ["SETTINGS", "Acks", "Command"]

ACK_SECONDS = 3.0  # time-out; `appendfsync everysec` takes up to two seconds while the disk is busy
OF_REPLY = 0.6  # largest share of the connection's reply time-out

Command = tuple[str | bytes | int, ...]

SETTINGS: Command = ("CONFIG", "GET", "*append*")  # the request to a server without WAITAOF

NO_AOF = "acks=aof, but this Redis has no append-only file: set `appendonly yes` there, or change acks here"
NEVER = (
    "acks=aof, but this Redis has `appendfsync no`, so it never syncs its file to the disk: set everysec or always "
    "there, or change acks here"
)
SLOW_DISK = "acks=aof, but the write was not on the disk of Redis after {seconds:g} s"
NOT_ALWAYS = (
    "acks=aof, but this Redis has no WAITAOF (it is older than 7.2) and lacks `appendonly yes`, `appendfsync always` "
    "or `no-appendfsync-on-rewrite no`: set these there, use a newer Redis, or change acks here"
)
FORBIDDEN = (
    "acks=aof, but this Redis has no WAITAOF (it is older than 7.2) and refuses to show its settings ({error}): "
    "allow CONFIG GET there, use a newer Redis, or change acks here"
)
NO_REPLICA = "acks={acks}, but only {got} of {n} replicas had the write after {seconds:g} s"
FEW = "acks={acks}, but this Redis has {got} replicas: no write is acknowledged; add replicas, or change acks"
LOSSES = (
    "acks=memory, and this Redis has no append-only file: a crash of Redis loses acknowledged data; set "
    "`appendonly yes` there, or change acks here"
)
UNKNOWN = "; the last write may or may not be lost: repeat it"


class Acks:
    """One value of the setting, and what is known of the servers."""

    def __init__(self, acks: str, reply_seconds: float) -> None:
        """Parse the setting; `reply_seconds`: reply time-out of the connection. Raises `ValueError`."""
        if not re.fullmatch(ACKS, acks):
            raise ValueError(f"acks is {acks!r}; expected memory, aof or replicas:n")
        kind, _, number = acks.partition(":")
        self.name = acks
        self.aof = kind == "aof"
        self.replicas = int(number or 0)
        self.waits = kind != "memory"
        self._seconds = min(ACK_SECONDS, OF_REPLY * reply_seconds)
        self._waitaof = True  # until a server reports that it lacks the command

    def command(self) -> Command:
        """Return the command to send after a write."""
        milliseconds = int(1000 * self._seconds)
        if self.replicas:
            return ("WAIT", self.replicas, milliseconds)
        return ("WAITAOF", 1, 0, milliseconds) if self._waitaof else SETTINGS

    def substitute(self, command: Command, reply: Any) -> Command | None:
        """Return the substitute command if `reply` says that the server lacks `command`, else None."""
        if command[0] != "WAITAOF" or not (isinstance(reply, ResponseError) and "unknown command" in str(reply)):
            return None
        self._waitaof = False
        return SETTINGS

    def fault(self, command: Command, reply: Any) -> str | None:
        """Return what is missing according to the `reply` to `command`, if anything; raise unrelated errors.

        Decides by the command that was sent, not by the one that would be sent now: several are under way at
        once.
        """
        if command[0] == "WAITAOF" and isinstance(reply, ResponseError) and "appendonly" in str(reply):
            return NO_AOF
        if command == SETTINGS and isinstance(reply, ResponseError):
            self._waitaof = True
            return FORBIDDEN.format(error=reply)
        if isinstance(reply, RedisError):
            raise reply
        if command[0] == "WAIT":
            few = NO_REPLICA.format(acks=self.name, got=reply, n=self.replicas, seconds=self._seconds)
            return None if reply >= self.replicas else few
        if command[0] == "WAITAOF":
            return None if reply[0] else SLOW_DISK.format(seconds=self._seconds)
        expected = {b"appendonly": b"yes", b"appendfsync": b"always", b"no-appendfsync-on-rewrite": b"no"}
        if expected.items() <= _settings_in(reply).items():
            return None
        self._waitaof = True  # try again next time: a newer server may replace this one
        return NOT_ALWAYS

    def fault_at_start(self, command: Command, reply: Any, settings: Any) -> str | None:
        """Return what `fault` does, before the first write; check the reply to SETTINGS too if the server shows it."""
        if self.substitute(command, reply):
            return self.fault(SETTINGS, settings)
        never = not isinstance(settings, RedisError) and _settings_in(settings).get(b"appendfsync") == b"no"
        return self.fault(command, reply) or (NEVER if never else None)

    def check(self, command: Command, reply: Any) -> None:
        """Raise `StoreUnavailable` unless `reply`, to the `command` after a write, acknowledges that write."""
        why = self.fault(command, reply)
        if why is not None:
            raise StoreUnavailable(why + UNKNOWN)

    def caution(self, infos: Sequence[Mapping[str, Any]]) -> str | None:
        """Return a warning for operators, given INFO of the servers that take writes."""
        if self.replicas:
            few = min((info["connected_slaves"] for info in infos), default=self.replicas)
            return FEW.format(acks=self.name, got=few) if few < self.replicas else None
        return LOSSES if not self.aof and any(info.get("aof_enabled") == 0 for info in infos) else None


def _settings_in(reply: Sequence[bytes]) -> dict[bytes, bytes]:
    """Parse the reply to CONFIG GET."""
    return dict(zip(reply[::2], reply[1::2], strict=True))
