"""A Redis stream as a feed of one partition, by XREAD, from a server, Sentinel's master, or a Cluster.

The committed position is the last id of a consumer group, which XINFO GROUPS shows; it is only set, never used to read.
An entry's offset is its whole id: milliseconds * 2^64 + sequence. Its number in the learner's source is milliseconds *
4096 + sequence, which stays below 2^53 until the year 2039. Only the first 4,096 entries of a millisecond have one. The
learner knows the others by their events' ids, so a reader that resumes among them reads them all again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Self, TypeVar
from urllib.parse import quote, urlsplit

import redis.asyncio as redis
from redis.asyncio.sentinel import MasterNotFoundError
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

from service.connectors.connection_errors import reason_of
from service.connectors.feed import Document, FeedError, Message, OffsetRange, Output
from service.exits import WrongUsage
from service.storage.redis import Servers, servers_of

__all__ = ["RedisFeed", "id_of", "offset_of"]

_SEQUENCES = 4096  # entries per millisecond that have a number
_BITS = 64  # of a sequence
_ALL = 1 << _BITS  # sequences of a millisecond
_MILLISECONDS = 2**53 // _SEQUENCES  # 2039: ids from then on have no number
_FORMS = "redis+sentinel://HOST:PORT,HOST:PORT/DB?master=NAME or redis+cluster://HOST:PORT,HOST:PORT"
_BLOCKS = 60.0  # most seconds that a read waits for entries
_PAUSE = 0.2  # seconds between attempts
_PASSING = (redis.ConnectionError, redis.TimeoutError)  # the server is away or loading
_OF_SEVERAL = (RedisClusterException, ClusterError, TryAgainError)  # a slot moves or has no master
_REFUSED = (AuthenticationError, AuthorizationError)  # ConnectionErrors that retries do not help
Result = TypeVar("Result")


def offset_of(id: str) -> int:
    """Return the offset of an entry. Raises `FeedError` if its milliseconds are too large."""
    milliseconds, _, sequence = id.partition("-")
    if int(milliseconds) >= _MILLISECONDS:
        raise FeedError(f"the entry {id} is later than the year 2039, which is not supported")
    return (int(milliseconds) << _BITS) + int(sequence or 0)


def id_of(offset: int) -> str:
    """Return the id of the entry at this offset."""
    return f"{offset >> _BITS}-{offset % _ALL}"


class RedisFeed:
    """A feed of one stream. `patience`: seconds of retries if the server is away, which `note` reports."""

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
        self._keep = keep  # approximate entries of an output; None: all
        self._patience = patience
        self.note = note
        parts = urlsplit(url)
        places = parts.netloc.rpartition("@")[2]
        self._where = f"{parts.scheme}://{places}"
        self._servers: Servers | None = None  # if there are several
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
                raise WrongUsage(f"{self._where} or one of its options is malformed; expected {_FORMS}") from None
            self._client = self._servers.client
        else:
            credentials = {"username": username, "password": password}
            try:
                login_options: dict[str, Any] = {
                    name: value for name, value in credentials.items() if value is not None
                }
                self._client = redis.from_url(url, **{"protocol": 2, "decode_responses": False, **login_options})
            except ValueError as error:
                raise WrongUsage(f"{self._where} is not the URL of a Redis server: {error}") from None
            options = self._client.connection_pool.connection_kwargs
        self._secrets = [value for name, value in options.items() if name.endswith("password") and value]
        self._partition = RedisPartition(self, stream, group, prefix, flat)

    async def __aenter__(self) -> Self:
        self.partitions = [self._partition]
        return self

    async def __aexit__(self, *_: object) -> None:
        await (self._client.aclose() if self._servers is None else self._servers.close())

    def added(self) -> list[str]:
        """See `Feed.added`; a stream is one partition."""
        return []

    async def produce(self, to: str, outputs: Sequence[Output]) -> None:
        """See `Feed.produce`; entries have one field, `event`."""

        async def add(client: Any) -> None:
            async with client.pipeline(transaction=False) as pipe:
                for output in outputs:
                    pipe.xadd(to, {"event": output.value}, maxlen=self._keep, approximate=True)
                await pipe.execute()

        await self.ask(add)

    async def ask(self, call: Callable[[Any], Awaitable[Result]]) -> Result:
        """Return the result of a call of the client; retry it while the server is away. Raises `FeedError`."""
        failing_since: float | None = None
        while True:
            try:
                return await call(self._client)
            except _REFUSED as error:
                raise FeedError(self._describe(str(error))) from None
            except (RedisError, RedisClusterException) as error:
                if isinstance(error, InvalidResponse):
                    raise FeedError(f"the server at {self._where} is not Redis") from None
                if not await self._passes(error):
                    raise FeedError(self._describe(str(error))) from None
                # its own text has the representation of every Sentinel's client
                reason = "no Sentinel knows the master" if isinstance(error, MasterNotFoundError) else reason_of(error)
                why = self._describe(reason, " cannot be reached")
            if failing_since is None:
                failing_since = time.monotonic()
                self.note(f"{why}; retrying for {self._patience:g} s")
            if time.monotonic() + _PAUSE > failing_since + self._patience:
                raise FeedError(f"{why}\nGave up after {self._patience:g} s (--retry-seconds)")
            await asyncio.sleep(_PAUSE)

    async def _passes(self, error: Exception) -> bool:
        """Tell whether another attempt may succeed, because the server or its successor may come back."""
        if self._servers is not None:
            if isinstance(error, ReadOnlyError):
                return await self._servers.left()
            if isinstance(error, _OF_SEVERAL):
                return True
        return isinstance(error, _PASSING)

    def _describe(self, text: str, of: str = "") -> str:
        """Return the server's text with its address and without passwords, which it may repeat."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return f"{self._where}{of}: {text}"


class RedisPartition:
    """The stream as a partition."""

    counted = False

    def __init__(self, feed: RedisFeed, stream: str, group: str, prefix: str, flat: bool) -> None:
        self.source = f"{prefix}{stream}"
        self._ask = feed.ask
        self._stream = stream
        self._group = group
        self._flat = flat
        self._next = 0
        self._note = feed.note
        self._ever = 0  # one beyond the last entry ever, at the last check
        self._went_back: int | None = None  # the same, if it is before the position
        self._added: int | None = None  # entries that the stream ever had, up to the position

    async def bounds(self) -> OffsetRange:
        """See `Partition.bounds`; an empty stream begins and ends at 0."""
        stream = await self._look()
        if stream is None:
            return OffsetRange(0, 0, 0)
        first, last = stream["first-entry"], stream["last-entry"]
        ever = offset_of(stream["last-generated-id"].decode())
        ever = ever + 1 if ever else 0  # 0 if nothing was ever written
        if not first or not last:
            return OffsetRange(0, 0, ever)
        return OffsetRange(offset_of(first[0].decode()), offset_of(last[0].decode()) + 1, ever)

    async def _look(self) -> Document | None:
        """Return what Redis knows of the stream; None if it does not exist."""

        async def look(client: Any) -> Document | None:
            try:
                information: Document = await client.xinfo_stream(self._stream)
            except ResponseError:
                if not await client.exists(self._stream):
                    return None
                information = await client.xinfo_stream(self._stream)  # it may have been created just now
            return information

        return await self._ask(look)

    async def committed(self) -> int | None:
        """See `Partition.committed`."""

        group = await self._ask(self._read_group)
        return None if group is None else offset_of(group["last-delivered-id"].decode()) + 1

    async def _read_group(self, client: Any) -> Document | None:
        """Return what Redis knows of the consumer group; None if the stream or the group does not exist."""
        try:
            groups: list[Document] = await client.xinfo_groups(self._stream)
        except ResponseError:
            if not await client.exists(self._stream):
                return None
            groups = await client.xinfo_groups(self._stream)  # it may have been created just now
        return next((group for group in groups if group["name"] == self._group.encode()), None)

    def seek(self, offset: int) -> None:
        """See `Partition.seek`."""
        self._next = offset
        self._ever, self._went_back, self._added = 0, None, None

    async def read(self, most: int, seconds: float) -> list[Message]:
        """See `Partition.read`."""
        await self._check()
        after = id_of(max(0, self._next - 1))
        wait = max(1, int(seconds * 1000))
        streams = await self._ask(lambda client: client.xread({self._stream: after}, count=most, block=wait))
        messages = [Message(offset_of(id.decode()), self._value(fields)) for _, read in streams for id, fields in read]
        if messages:
            self._next = messages[-1].offset + 1
            if self._added is not None:
                self._added += len(messages)
        return messages

    async def _check(self) -> None:
        """Check for trimmed entries since the last read, with a warning, and for a new stream, with `FeedError`.

        From the first time that all entries are read, the number of entries ever added tells how many were trimmed
        (Redis 7 and newer). Before that, and on older Redis, trimming shows only if an unread entry has gone.
        """
        stream = await self._look()
        if stream is None:
            return
        ever = offset_of(stream["last-generated-id"].decode()) + 1
        if ever < self._next:
            if self._went_back not in (None, ever):
                raise FeedError(
                    f"stream {self._stream} was probably deleted and created again: its entry {id_of(ever - 1)} "
                    f"is before position {id_of(self._next - 1)}. Read it under another name, with --prefix and --group"
                )
            self._went_back = ever
            return
        self._went_back = None
        first = offset_of(stream["first-entry"][0].decode()) if stream["first-entry"] else ever
        added: int | None = stream.get("entries-added")
        losses = 0
        if ever == self._next:  # all entries are read
            losses = 0 if added is None or self._added is None else added - self._added
            self._added = added
        elif first >= self._next and added is not None and self._added is not None:
            losses = added - stream["length"] - self._added
            self._added += losses
        if losses > 0:
            were = "entry was" if losses == 1 else "entries were"
            self._note(f"{self.source}: {losses} {were} trimmed before being read")
        elif self._added is None and self._next < self._ever < first:
            self._note(f"{self.source}: entries before {id_of(first)} were trimmed before being read")
        self._ever = ever

    async def position(self) -> int:
        """See `Partition.position`."""
        return self._next

    async def commit(self, offset: int) -> None:
        """See `Partition.commit`; it creates the group if necessary."""

        async def move(client: Any) -> None:
            last = id_of(offset - 1)
            try:
                await client.xgroup_setid(self._stream, self._group, last)
            except ResponseError:
                if await self._read_group(client) is not None:
                    raise
                await client.xgroup_create(self._stream, self._group, last, mkstream=True)

        if offset:
            await self._ask(move)

    def number(self, offset: int) -> int:
        """See `Partition.number`."""
        return (offset >> _BITS) * _SEQUENCES + min(offset % _ALL, _SEQUENCES)

    def numbered(self, offset: int) -> bool:
        """See `Partition.numbered`."""
        return offset % _ALL < _SEQUENCES

    def resume(self, number: int) -> int:
        """See `Partition.resume`: behind the last entry with a number, so before those of its millisecond without."""
        if not number:
            return 0
        milliseconds, sequence = divmod(number - 1, _SEQUENCES)
        return (milliseconds << _BITS) + sequence + 1

    def show(self, offset: int) -> str:
        """See `Partition.show`: the id of the last entry before the offset."""
        return id_of(max(0, offset - 1))

    def place(self, offset: int) -> str:
        """See `Partition.place`."""
        return f"stream {self._stream}, entry {id_of(offset)}"

    def origin(self, offset: int) -> Document:
        """See `Partition.origin`."""
        return {"stream": self._stream, "entry": id_of(offset)}

    def _value(self, fields: dict[bytes, bytes] | None) -> Any:
        if not fields:
            return None
        if not self._flat:
            return fields.get(b"event", b"")
        return {name.decode("utf-8", "replace"): value.decode("utf-8", "replace") for name, value in fields.items()}
