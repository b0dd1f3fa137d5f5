"""A Redis stream as a feed of one partition, by XREAD: of a server, of the master that Sentinels name, of a Cluster.

The position that is kept is the last id of a consumer group, which is set, never read through: XINFO GROUPS shows it.
An entry's number is made of its id: milliseconds * 4096 + sequence, which stays below 2^53 until the year 2039.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Self, TypeVar
from urllib.parse import quote, urlsplit

import redis.asyncio as redis
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    ClusterError,
    InvalidResponse,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    ResponseError,
    TryAgainError,
)

from service.commands.failure import WrongUsage
from service.consume.feed import Document, FeedError, Message, Output
from service.consume.reasons import reason_of
from service.store.redis_servers import Servers, servers_of

__all__ = ["RedisFeed", "id_of", "number_of"]

_SEQUENCES = 4096  # entries of one millisecond that can be told apart
_FORMS = "redis+sentinel://HOST:PORT,HOST:PORT/DB?master=NAME or redis+cluster://HOST:PORT,HOST:PORT"
_BLOCKS = 60.0  # seconds that a read waits for entries, at most
_PAUSE = 0.2  # seconds between attempts
_PASSING = (redis.ConnectionError, redis.TimeoutError)  # it is away, or loading
_OF_SEVERAL = (RedisClusterException, ClusterError, TryAgainError)  # a slot is being moved, or has no master
_REFUSED = (AuthenticationError, AuthorizationError)  # which are ConnectionErrors, and do not pass
Result = TypeVar("Result")


def number_of(id: str) -> int:
    """The number of an entry. Raises `FeedError` where its sequence is too large for one."""
    milliseconds, _, sequence = id.partition("-")
    if int(sequence) >= _SEQUENCES:
        raise FeedError(f"the entry {id} is one of more than {_SEQUENCES} in its millisecond: it has no number here")
    return int(milliseconds) * _SEQUENCES + int(sequence)


def id_of(number: int) -> str:
    """The id of the entry that has, or had, this number."""
    return f"{number // _SEQUENCES}-{number % _SEQUENCES}"


class RedisFeed:
    """One stream. `patience`: seconds for which a server that is away is asked again, of which `note` is told."""

    def __init__(
        self,
        url: str,
        stream: str,
        group: str,
        prefix: str,
        *,
        flat: bool = False,
        username: str | None = None,
        password: str | None = None,
        keep: int | None = None,
        patience: float = 60.0,
        note: Callable[[str], None],
    ) -> None:
        self.partitions: list[RedisPartition] = []
        self._keep = keep  # entries of an output, about; None: all
        self._patience = patience
        self._note = note
        parts = urlsplit(url)
        places = parts.netloc.rpartition("@")[2]
        self._where = f"{parts.scheme}://{places}"
        self._servers: Servers | None = None  # where there are several
        self._secrets: list[str] = []
        number = parts.path.strip("/")
        if number and not number.isdecimal():
            raise WrongUsage(f"{self._where} has no database {number!r}; expected redis://HOST:PORT/NUMBER")
        if "+" in parts.scheme:
            if username is not None or password is not None:
                login = f"{quote(username or '', safe='')}:{quote(password or '', safe='')}"
                url = parts._replace(netloc=f"{login}@{places}").geturl()
            try:
                self._servers, options = servers_of(url, _BLOCKS)
            except ValueError:
                raise WrongUsage(f"{self._where} cannot be read, or one of its options; expected {_FORMS}") from None
            self._client = self._servers.client
            self._secrets = [value for name, value in options.items() if name.endswith("password") and value]
        else:
            given = {"username": username, "password": password}
            try:
                login_options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
                self._client = redis.from_url(url, decode_responses=False, **login_options)
            except ValueError as error:
                raise WrongUsage(f"{self._where} is not the URL of a Redis server: {error}") from None
        self._partition = RedisPartition(self, stream, group, prefix, flat)

    async def __aenter__(self) -> Self:
        self.partitions = [self._partition]
        return self

    async def __aexit__(self, *_: object) -> None:
        await (self._client.aclose() if self._servers is None else self._servers.close())

    async def produce(self, to: str, outputs: Sequence[Output]) -> None:
        """As `Feed.produce`: entries of one field, `event`."""

        async def add(client: Any) -> None:
            async with client.pipeline(transaction=False) as pipe:
                for one in outputs:
                    pipe.xadd(to, {"event": one.value}, maxlen=self._keep, approximate=True)
                await pipe.execute()

        await self.ask(add)

    async def ask(self, call: Callable[[Any], Awaitable[Result]]) -> Result:
        """What a call of the client gives; made again while the server is away. Raises `FeedError`."""
        failing_since: float | None = None
        while True:
            try:
                return await call(self._client)
            except _REFUSED as error:
                raise FeedError(self._told(str(error))) from None
            except (RedisError, RedisClusterException) as error:
                if isinstance(error, InvalidResponse):
                    raise FeedError(f"what answers at {self._where} is no Redis server") from None
                if not await self._passes(error):
                    raise FeedError(self._told(str(error))) from None
                why = self._told(reason_of(error), " cannot be reached")
            if failing_since is None:
                failing_since = time.monotonic()
                self._note(f"{why}; trying again, for {self._patience:g} s in all")
            if time.monotonic() + _PAUSE > failing_since + self._patience:
                raise FeedError(f"{why}\nGiven up after {self._patience:g} s (--retry-seconds)")
            await asyncio.sleep(_PAUSE)

    async def _passes(self, error: Exception) -> bool:
        """Whether another attempt may succeed; of several servers also where another one is about to take over."""
        if self._servers is not None:
            if isinstance(error, ReadOnlyError):
                return await self._servers.left()
            if isinstance(error, _OF_SEVERAL):
                return True
        return isinstance(error, _PASSING)

    def _told(self, said: str, of: str = "") -> str:
        """What the server said, without the passwords that it may repeat."""
        for secret in self._secrets:
            said = said.replace(secret, "***")
        return f"{self._where}{of}: {said}"


class RedisPartition:
    """The stream."""

    counted = False

    def __init__(self, feed: RedisFeed, stream: str, group: str, prefix: str, flat: bool) -> None:
        self.source = f"{prefix}{stream}"
        self._ask = feed.ask
        self._stream = stream
        self._group = group
        self._flat = flat
        self._next = 0

    async def bounds(self) -> tuple[int, int]:
        """As `Partition.bounds`; an empty stream begins and ends at 0."""
        first = await self._ask(lambda client: client.xrange(self._stream, count=1))
        last = await self._ask(lambda client: client.xrevrange(self._stream, count=1))
        if not first or not last:
            return 0, 0
        return number_of(first[0][0].decode()), number_of(last[0][0].decode()) + 1

    async def committed(self) -> int | None:
        """As `Partition.committed`."""

        async def groups(client: Any) -> list[dict[str, Any]]:
            try:
                found: list[dict[str, Any]] = await client.xinfo_groups(self._stream)
            except ResponseError as error:
                if "no such key" not in str(error):
                    raise
                return []
            return found

        for one in await self._ask(groups):
            if one["name"] == self._group.encode():
                return number_of(one["last-delivered-id"].decode()) + 1
        return None

    def seek(self, offset: int) -> None:
        """As `Partition.seek`."""
        self._next = offset

    async def read(self, most: int, seconds: float) -> list[Message]:
        """As `Partition.read`."""
        after = id_of(max(0, self._next - 1))
        wait = max(1, int(seconds * 1000))
        found = await self._ask(lambda client: client.xread({self._stream: after}, count=most, block=wait))
        messages = [Message(number_of(id.decode()), self._value(fields)) for _, read in found for id, fields in read]
        if messages:
            self._next = messages[-1].offset + 1
        return messages

    async def position(self) -> int:
        """As `Partition.position`."""
        return self._next

    async def commit(self, offset: int) -> None:
        """As `Partition.commit`; the group is made where it is not there."""

        async def move(client: Any) -> None:
            last = id_of(offset - 1)
            try:
                await client.xgroup_setid(self._stream, self._group, last)
            except ResponseError as error:
                if "NOGROUP" not in str(error) and "requires the key to exist" not in str(error):
                    raise
                await client.xgroup_create(self._stream, self._group, last, mkstream=True)

        if offset:
            await self._ask(move)

    def place(self, offset: int) -> str:
        """As `Partition.place`."""
        return f"stream {self._stream}, entry {id_of(offset)}"

    def origin(self, offset: int) -> Document:
        """As `Partition.origin`."""
        return {"stream": self._stream, "entry": id_of(offset)}

    def _value(self, fields: dict[bytes, bytes] | None) -> Any:
        if not fields:
            return None
        if not self._flat:
            return fields.get(b"event", b"")
        return {name.decode("utf-8", "replace"): value.decode("utf-8", "replace") for name, value in fields.items()}
