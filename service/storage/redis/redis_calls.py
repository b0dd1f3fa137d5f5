"""How the Redis store calls Redis: time-outs, repetition, errors and acknowledgements.

`_twice` repeats a call, `_acked` waits for what `acks` requires (`durability`), and `_look` warns operators.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Self, TypeVar

from redis.asyncio.sentinel import MasterNotFoundError
from redis.exceptions import ConnectionError, RedisClusterException, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from service.errors import Damaged, StoreFull, StoreUnavailable
from service.storage.redis.durability import SETTINGS, Acks, Command
from service.storage.redis.key_names import KeyNames, prefix_of
from service.storage.redis.leases import LeaseWatch
from service.storage.redis.notifications import LISTEN_SECONDS
from service.storage.redis.scripts import RESERVE
from service.storage.redis.server_info import INFO, eviction, refusal
from service.storage.redis.stall_watch import StallWatch
from service.storage.redis.topology import CONNECTIONS, REPLY_SECONDS, ClusterServers, servers_of
from service.storage.store_protocol import CLOSED

__all__ = ["RedisCalls"]

logger = logging.getLogger("rarestream.store")

T = TypeVar("T")

WAITED_SECONDS = 60  # lifetime of a key that is written only to wait for its acknowledgement
_WAIT = f"{RESERVE}redis.call('SET', KEYS[1], '', 'EX', {WAITED_SECONDS})"  # in a full Redis, too
_PATIENCE = 0.4  # of the time-out of a reply: without any answer for as long, all calls are given up
LOOK_SECONDS = 2.0  # interval between two looks at the settings and the durability of the servers


class RedisCalls:
    """Calls to one logical Redis. Connects with the first call, not before."""

    def __init__(self, url: str, acks: str = "memory", prefix: str | None = None) -> None:
        """Parse `url` (see `topology`), `acks` (see `durability`) and the setting `prefix` (see `key_names`).

        A `ValueError` never shows the URL.
        """
        self._servers, options = servers_of(url, further=("prefix",))
        self._keys = KeyNames(prefix_of(options.get("prefix"), prefix))
        self._redis = self._servers.client
        self._listening, _ = servers_of(url, LISTEN_SECONDS, further=("prefix",))
        self._secrets = [value for name, value in options.items() if name.endswith("password") and value]
        self._reply_seconds: float = options.get("socket_timeout") or REPLY_SECONDS
        self._acks = Acks(acks, self._reply_seconds)
        self._watch = StallWatch(_PATIENCE * self._reply_seconds, lambda: self._listening.everywhere(("PING",)))
        self._room = asyncio.Semaphore(options.get("max_connections", CONNECTIONS))
        self.caution: str | None = None
        self.fault: str | None = None
        self.certain = False
        self.leases = LeaseWatch()
        self._look_at = 0.0  # time of the next look at the servers
        self._calls = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False

    @classmethod
    async def open(cls, url: str, acks: str, prefix: str | None = None) -> Self:
        """Construct the store; raise `ValueError` if Redis answers but cannot be the store or provide `acks`."""
        store = cls(url, acks, prefix)
        try:
            async with store._call():
                fault = await store._twice(store._fault)
                await store._twice(store._look)
        except StoreUnavailable:  # unreachable: the first write checks
            return store
        if fault is not None:
            await store.close()
            raise ValueError(fault)
        return store

    @asynccontextmanager
    async def _call(self, *, listening: bool = False) -> AsyncIterator[None]:
        """Count the calls in progress, so that `close` can wait for them, and convert Redis's errors.

        A `listening` call has its own connection.
        """
        if self._closed:
            raise StoreUnavailable(CLOSED)
        task = asyncio.current_task()
        cancelled = task.cancelling() if task else 0
        self._calls += 1
        self._idle.clear()
        try:
            if listening:
                yield
            else:
                async with asyncio.timeout(None) as limit:
                    with self._watch.call(limit):
                        await self._enter()
                        try:
                            yield
                        finally:
                            self._room.release()
        except TimeoutError:
            raise StoreUnavailable(self.stall or "Redis: no call was answered in time") from None
        except (RedisError, RedisClusterException) as error:
            # Unreachable, loading, read-only, out of memory, a wrong password, ...: its own words say which.
            # Not `from error`: a server without AUTH repeats the password in its reply.
            self._look_at = 0.0  # the next server may be another one
            text = "no Sentinel knows the master" if isinstance(error, MasterNotFoundError) else str(error)
            for secret in self._secrets:
                text = text.replace(secret, "***")
            if "WRONGTYPE" in text:  # another program changed one of our keys
                raise Damaged(f"Redis: {text}") from None
            if "> 'maxmemory'" in text:
                raise StoreFull("Redis has no room; delete learners, or raise its maxmemory") from None
            raise StoreUnavailable(f"Redis: {text}") from None
        except RuntimeError as error:  # in a call that is not repeated
            if not _was_closed(error):
                raise
            raise StoreUnavailable("Redis: the connection was closed") from None
        finally:
            self._calls -= 1
            if self._calls == 0:
                self._idle.set()
            # redis-py sends under `asyncio.wait_for`, which in Python 3.11 can swallow a cancellation.
            if task and task.cancelling() > cancelled:
                raise asyncio.CancelledError

    @property
    def stall(self) -> str | None:
        """Why calls wait, and what to do, if Redis answers none of them."""
        seconds = self._watch.stall_seconds
        if seconds is None:
            return None
        return (
            f"Redis has answered nothing for {seconds:.0f} s or more. Check whether it is stopped, unreachable, out "
            "of processor time, in a slow command or waiting for its disk: see INFO, SLOWLOG GET and its log"
        )

    async def _enter(self) -> None:
        """Wait until a connection is free for this call."""
        if not self._room.locked():
            await self._room.acquire()
            return
        try:
            async with asyncio.timeout(self._reply_seconds):
                await self._room.acquire()
        except TimeoutError:
            raise RedisTimeoutError("too many calls in progress; none finished in time") from None

    async def close(self) -> None:
        self._closed = True
        self._watch.close()
        await self._listening.close()  # ends the blocked poll, if there is one
        await self._idle.wait()
        await self._servers.close()

    async def _twice(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat a call once if the connection broke; mostly it was idle, or a fail-over is complete by now.

        Also repeats a write that reached a replica, if there is another server to go to.
        """
        try:
            return await _connected(call)
        except (ConnectionError, RedisClusterException):
            return await _connected(call)
        except ResponseError as error:
            if "READONLY" not in str(error) or not await self._servers.left():
                raise
            return await _connected(call)

    # Durability

    async def _fault(self) -> str | None:
        """Return why the servers cannot be the store, or cannot provide what `acks` requires, if so.

        `caution` covers replicas.
        """
        refused = refusal(await self._infos(), cluster=isinstance(self._servers, ClusterServers))
        if refused is not None or not self._acks.aof:
            return refused
        command = self._acks.command()
        replies = await self._servers.everywhere(command, SETTINGS)
        return next((why for reply in replies if (why := self._acks.fault_at_start(command, *reply)) is not None), None)

    async def _infos(self) -> list[Mapping[str, Any]]:
        """Return INFO of all servers that take writes, without those that refuse it."""
        replies = await self._servers.everywhere(INFO)
        return [info for (info,) in replies if isinstance(info, Mapping)]

    async def _look(self) -> None:
        """Check now and then whether the servers keep what they acknowledge; log what changed."""
        if time.monotonic() < self._look_at:
            return
        infos = await self._infos()
        self._look_at = time.monotonic() + LOOK_SECONDS
        fault_before, caution_before = self.fault, self.caution
        self.fault = refusal(infos, cluster=isinstance(self._servers, ClusterServers))
        cautions = (None if self.fault else eviction(infos), self._acks.caution(infos))
        self.caution = "; ".join(filter(None, cautions)) or None
        if self.fault not in (None, fault_before):
            logger.error("%s", self.fault)
        if self.caution not in (None, caution_before):
            logger.warning("%s", self.caution)
        if (fault_before and not self.fault) or (caution_before and not self.caution):
            logger.info("a problem of this Redis is solved; remaining: %s", self.fault or self.caution or "none")

    async def _acked(self, key: str, waited: str, *command: Any) -> Any:
        """Run a command on `key` and return its reply once its write is acknowledged as `acks` requires.

        `waited`, a key of the same slot, is always written after it. A repeated command that finds everything
        in place writes nothing itself, and an acknowledgement covers the connection's last write.
        """
        again: Command = ("EVAL", _WAIT, 1, waited)
        wait = self._acks.command()
        reply, wrote, acked = await self._servers.together(key, command, again, wait)
        if isinstance(reply, Exception):
            raise reply
        if substitute := self._acks.substitute(wait, acked):
            wait = substitute
            wrote, acked = await self._servers.together(key, again, wait)
        if isinstance(wrote, Exception):
            raise wrote
        self._acks.check(wait, acked)
        return reply


async def _connected(call: Callable[[], Awaitable[T]]) -> T:
    """Await a call; convert uvloop's error of a connection that was just closed."""
    try:
        return await call()
    except RuntimeError as error:
        if not _was_closed(error):
            raise
        raise ConnectionError("the connection was closed") from None


def _was_closed(error: RuntimeError) -> bool:
    return "the handler is closed" in str(error)
