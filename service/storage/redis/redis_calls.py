"""How the Redis store calls Redis: what bounds and repeats a call, what its errors become, and what it waits for.

`_twice` repeats, `_acked` waits for what `acks` asks (`redis_acks`), and `_look` sees what operators should know.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Self, TypeVar

from redis.asyncio.sentinel import MasterNotFoundError
from redis.exceptions import ConnectionError, RedisClusterException, RedisError, ResponseError

from service.errors import Damaged, StoreUnavailable
from service.storage.redis.durability import SETTINGS, Acks, Command
from service.storage.redis.notifications import LISTEN_SECONDS
from service.storage.redis.topology import CONNECTIONS, REPLY_SECONDS, servers_of
from service.storage.store_protocol import CLOSED

__all__ = ["Calls"]

logger = logging.getLogger("rarestream.store")

T = TypeVar("T")

WAITED_SECONDS = 60  # that a key stays which is written for the sake of waiting
LOOK_SECONDS = 30.0  # how often the servers are asked how durable they are


class Calls:
    """One logical Redis. Connects with the first call, not before."""

    def __init__(self, url: str, acks: str = "memory") -> None:
        """`url`, `acks`: see `redis_servers` and `redis_acks`; a `ValueError` never shows the URL."""
        self._servers, options = servers_of(url)
        self._redis = self._servers.client
        self._listening, _ = servers_of(url, LISTEN_SECONDS)
        self._secrets = [value for name, value in options.items() if name.endswith("password") and value]
        self._acks = Acks(acks, options.get("socket_timeout") or REPLY_SECONDS)
        self._room = asyncio.Semaphore(options.get("max_connections", CONNECTIONS))
        self.caution: str | None = None
        self.certain = False
        self._look_at = 0.0  # when to look at the servers again
        self._calls = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False

    @classmethod
    async def open(cls, url: str, acks: str) -> Self:
        """As made by its constructor; if Redis answers, it can give what `acks` asks for, else a `ValueError`."""
        store = cls(url, acks)
        try:
            async with store._call():
                amiss = await store._twice(store._amiss)
                await store._twice(store._look)
        except StoreUnavailable:  # away: the first write finds out
            return store
        if amiss is not None:
            await store.close()
            raise ValueError(amiss)
        return store

    @asynccontextmanager
    async def _call(self, *, listening: bool = False) -> AsyncIterator[None]:
        """Around each call: `close` waits for those under way, and Redis's errors become ours.

        The one that is `listening` has a connection of its own.
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
                await self._enter()
                try:
                    yield
                finally:
                    self._room.release()
        except (RedisError, RedisClusterException) as error:
            # Away, loading, read-only, out of memory, a full disk, a wrong password, ...: its own words say which.
            # Not `from error`: a server that knows no AUTH repeats the password in its reply.
            self._look_at = 0.0  # the next server may be another one
            text = "no Sentinel knows the master" if isinstance(error, MasterNotFoundError) else str(error)
            for secret in self._secrets:
                text = text.replace(secret, "***")
            if "WRONGTYPE" in text:  # a key of ours is not what we made it
                raise Damaged(f"Redis: {text}") from None
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

    async def _enter(self) -> None:
        """Wait until there is a connection for this call."""
        if not self._room.locked():
            await self._room.acquire()
            return
        try:
            async with asyncio.timeout(REPLY_SECONDS):
                await self._room.acquire()
        except TimeoutError:
            raise StoreUnavailable("Redis: as many calls as may be are under way, and none has ended in time") from None

    async def close(self) -> None:
        self._closed = True
        await self._listening.close()  # which ends the call that listens, if there is one
        await self._idle.wait()
        await self._servers.close()

    async def _twice(self, call: Callable[[], Awaitable[T]]) -> T:
        """Call again at once where the connection broke: most often it was an idle one, or a fail-over is done by now.

        The same where a write met a replica, and there is another server to go to.
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

    async def _amiss(self) -> str | None:
        """Why the servers cannot give what `acks` asks for, if they cannot; of replicas `caution` tells."""
        if not self._acks.aof:
            return None
        command = self._acks.command()
        replies = await self._servers.everywhere(command, SETTINGS)
        return next((why for found in replies if (why := self._acks.amiss_at_start(command, *found)) is not None), None)

    async def _look(self) -> None:
        """See what operators should know of the servers, now and then; a change is logged."""
        if time.monotonic() < self._look_at:
            return
        replies = await self._servers.everywhere(self._acks.about())
        self._look_at = time.monotonic() + LOOK_SECONDS
        before, self.caution = self.caution, self._acks.caution([reply for (reply,) in replies])
        if self.caution is not None and self.caution != before:
            logger.warning("%s", self.caution)

    async def _acked(self, key: str, waited: str, *command: Any) -> Any:
        """The reply to a command on `key`, once what it wrote is acknowledged as `acks` asks.

        `waited`, a key of the same slot, is written behind it in any case: a command that repeats another, and finds
        everything there, writes nothing itself, and an acknowledgement is of what was written up to then.
        """
        again: Command = ("SET", waited, b"", "EX", WAITED_SECONDS)
        wait = self._acks.command()
        reply, wrote, acked = await self._servers.together(key, command, again, wait)
        if isinstance(reply, Exception):
            raise reply
        if instead := self._acks.instead(wait, acked):
            wait = instead
            wrote, acked = await self._servers.together(key, again, wait)
        if isinstance(wrote, Exception):
            raise wrote
        self._acks.check(wait, acked)
        return reply


async def _connected(call: Callable[[], Awaitable[T]]) -> T:
    """Await a call; what uvloop says of a connection that was closed a moment before is told as redis-py would."""
    try:
        return await call()
    except RuntimeError as error:
        if not _was_closed(error):
            raise
        raise ConnectionError("the connection was closed") from None


def _was_closed(error: RuntimeError) -> bool:
    return "the handler is closed" in str(error)
