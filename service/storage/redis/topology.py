"""Where the Redis store's commands go: one server, the master that Sentinels name, or the nodes of a Cluster.

    redis://[user:password@]host:port/db
    redis+sentinel://[user:password@]host:port,host:port/db?master=name[&sentinel_username=..][&sentinel_password=..]
    redis+cluster://[user:password@]host:port,host:port

and each with `rediss`, which is TLS, to the Sentinels too. All take redis-py's options, as in `?socket_timeout=10`.

Sentinel: every new connection asks where the master is, and makes sure that it is one; where that has changed, or a
server turns out to be a replica, the old connections are closed. Cluster: MOVED and ASK are followed, and what does not
answer has the map of slots read anew.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlencode, urlsplit

from redis.asyncio import Connection, ConnectionPool, Redis, RedisCluster, Sentinel, SSLConnection
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AskError,
    ConnectionError,
    RedisClusterException,
    RedisError,
    ResponseError,
    TimeoutError,
    TryAgainError,
)

from service.storage.redis.durability import Command
from service.storage.store_protocol import URL_FORMS

__all__ = ["CONNECTIONS", "Servers", "servers_of"]

CONNECT_SECONDS = 2.0
REPLY_SECONDS = 5.0  # for one command, and for a free connection
CONNECTIONS = 64  # so many calls are under way at once; the others wait
OWN = ("master", "sentinel_username", "sentinel_password")  # what is not redis-py's, of Sentinels
PORTS = {"": 6379, "sentinel": 26379, "cluster": 6379}


class Servers(Protocol):
    """One logical Redis."""

    client: Any  # redis-py's, a `Redis` or a `RedisCluster`

    async def together(self, key: str, *commands: Command) -> list[Any]:
        """The replies to commands sent in one go, on one connection, to the server of the key; errors are replies."""
        ...

    async def everywhere(self, *commands: Command) -> list[list[Any]]:
        """The same of every server that takes writes."""
        ...

    async def left(self) -> bool:
        """A server refused a write as a replica's; whether the next command may go to another one."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


def servers_of(url: str, patience: float = 0.0) -> tuple[Servers, dict[str, Any]]:
    """The servers that a URL names, and its options with those that are not given; nothing is connected yet.

    `patience`: seconds that a reply may take longer than the options say.

    A `ValueError` lists the forms, and never shows the URL.
    """
    try:
        return _servers_of(url, patience)
    except (ValueError, TypeError, RedisError, RedisClusterException):
        raise ValueError(f"the Redis URL or one of its options cannot be read; {URL_FORMS}") from None


def _servers_of(url: str, patience: float) -> tuple[Servers, dict[str, Any]]:
    parts = urlsplit(url)
    scheme, _, kind = parts.scheme.partition("+")
    if not re.fullmatch("/?|/[0-9]+", parts.path):  # redis-py would take database 0
        raise ValueError
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    own: dict[str, str] = {name: given.pop(name) for name in OWN if name in given}
    user, at, places = parts.netloc.rpartition("@")
    hosts = [_host(place, PORTS[kind]) for place in places.split(",")]
    options: dict[str, Any] = {
        "max_connections": CONNECTIONS,
        "socket_timeout": REPLY_SECONDS,
        "socket_connect_timeout": CONNECT_SECONDS,
        "retry": Retry(NoBackoff(), 0),  # the store knows what may be repeated
        "protocol": 2,  # all that is needed, and every server's
        **parse_url(f"{scheme}://{user}{at}{places.split(',')[0]}{parts.path}?{urlencode(given)}"),
    }
    if options["socket_timeout"] is not None:
        options["socket_timeout"] += patience
    connection: type[Connection] = options.pop("connection_class", Connection)
    for name in ("host", "port"):
        options.pop(name, None)
    # An option that does not exist shows here; this connection stays closed.
    connection(**{name: value for name, value in options.items() if name != "max_connections"})
    tls = connection is SSLConnection
    if (kind == "sentinel") != ("master" in own) or (own.keys() - {"master"} and kind != "sentinel"):
        raise ValueError
    if kind == "sentinel":
        return SentinelServers(hosts, own, options, tls), {**options, **own}
    if kind == "cluster":
        if options.pop("db", 0):
            raise ValueError
        return ClusterServers(hosts, options, tls), options
    if len(hosts) > 1:
        raise ValueError
    return OneServer(ConnectionPool(connection, host=hosts[0][0], port=hosts[0][1], **options)), options


def _host(place: str, port: int) -> tuple[str, int]:
    """Of one `host`, `host:port` or `[address]:port`."""
    parts = urlsplit(f"//{place}")
    return parts.hostname or "localhost", parts.port or port


class OneServer:
    """A server, or an address behind which there always is one."""

    def __init__(self, pool: ConnectionPool) -> None:
        self.client: Redis = Redis.from_pool(pool)

    async def together(self, key: str, *commands: Command) -> list[Any]:  # noqa: ARG002 (it has every key)
        async with self.client.pipeline(transaction=False) as pipe:
            for command in commands:
                pipe.execute_command(*command)
            return await pipe.execute(raise_on_error=False)

    async def everywhere(self, *commands: Command) -> list[list[Any]]:
        return [await self.together("", *commands)]

    async def left(self) -> bool:
        return False

    async def close(self) -> None:
        await self.client.aclose()


class SentinelServers(OneServer):
    """The master of a name, wherever that is at the moment."""

    def __init__(
        self, hosts: Sequence[tuple[str, int]], own: Mapping[str, str], options: dict[str, Any], tls: bool
    ) -> None:
        kept = {name: value for name, value in options.items() if name.startswith(("socket_", "ssl_"))}
        logins = {name.removeprefix("sentinel_"): value for name, value in own.items() if name != "master"}
        asking = {**kept, **logins, "ssl": tls, "protocol": 2, "retry": options["retry"]}
        self._sentinel = Sentinel(hosts, sentinel_kwargs=asking)  # type: ignore[no-untyped-call]
        self.client = self._sentinel.master_for(own["master"], ssl=tls, redis_connect_func=_on_master, **options)

    async def left(self) -> bool:
        await self.client.connection_pool.disconnect(inuse_connections=False)
        return True

    async def close(self) -> None:
        await super().close()
        await self._sentinel.aclose()


async def _on_master(connection: Connection) -> None:
    """What a new connection begins with: a Sentinel may not know yet that its master has become a replica."""
    await connection.on_connect()
    await connection.send_command("ROLE")
    try:
        role = (await connection.read_response())[0]
    except ResponseError:  # a user that may not ask: the Sentinel's word has to do
        return
    if role != b"master":
        raise ConnectionError("the server that the Sentinels name as the master is none")


class ClusterServers:
    """The nodes of a Cluster."""

    def __init__(self, hosts: Sequence[tuple[str, int]], options: dict[str, Any], tls: bool) -> None:
        nodes = [ClusterNode(host, port) for host, port in hosts]
        self.client = RedisCluster(startup_nodes=nodes, ssl=tls, **options)

    async def together(self, key: str, *commands: Command) -> list[Any]:
        await self.client.initialize()
        try:
            replies = await self._at(self.client.get_node_from_key(key), commands)
            if isinstance(replies[0], (AskError, TryAgainError)):  # a MOVED is an ASK, too
                first = await self.client.execute_command(*commands[0])  # follows, and learns where the slot is
                replies = [first, *(await self._at(self.client.get_node_from_key(key), commands[1:]))]
        except (ConnectionError, TimeoutError):
            with suppress(RedisError, RedisClusterException):
                await self.client.execute_command("EXISTS", key)  # which has the map read anew, where it fails too
            raise
        return replies

    async def everywhere(self, *commands: Command) -> list[list[Any]]:
        await self.client.initialize()
        return [await self._at(node, commands) for node in self.client.get_primaries()]

    async def _at(self, node: ClusterNode | None, commands: Sequence[Command]) -> list[Any]:
        if node is None:
            raise ConnectionError("the Cluster has no node for this slot")
        async with self.client.pipeline(transaction=False) as pipe:
            for command in commands:
                pipe.execute_command(*command, target_nodes=node)
            replies: list[Any] = await pipe.execute(raise_on_error=False, allow_redirections=False)
        for reply in replies:
            if isinstance(reply, (ConnectionError, TimeoutError)):
                raise reply
        return replies

    async def left(self) -> bool:
        return False

    async def close(self) -> None:
        await self.client.aclose()
        for nodes in ("nodes_cache", "startup_nodes"):  # which redis-py leaves open where it was about to look anew
            await self.client.nodes_manager.aclose(nodes)
