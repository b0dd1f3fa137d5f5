"""Where the Redis store's commands go: one server, the master that Sentinels name, or the nodes of a Cluster.

    redis://[user:password@]host:port/db
    redis+sentinel://[user:password@]host:port,host:port/db?master=name[&sentinel_username=..][&sentinel_password=..]
    redis+cluster://[user:password@]host:port,host:port

`rediss` in place of `redis` means TLS, also to the Sentinels. All forms take options of redis-py, such as
`?socket_timeout=10`, the seconds of a reply and of the wait for a free connection.

Sentinel: every new connection asks for the master and checks its role. If the master changed, or a server turns out to
be a replica, the old connections are closed. Cluster: MOVED and ASK are followed, and the slot map is reloaded if a
node does not answer.
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
from service.storage.store_protocol import URL_FORMS, UnknownOption

__all__ = ["CONNECTIONS", "Servers", "servers_of"]

CONNECT_SECONDS = 2.0
REPLY_SECONDS = 5.0  # for one command, and for a free connection
CONNECTIONS = 64  # most calls at once; the others wait
SENTINEL_OPTIONS = ("master", "sentinel_username", "sentinel_password")  # options that redis-py does not have
OPTIONS = (  # of redis-py, in all forms
    *("username", "password", "db", "client_name", "protocol", "max_connections", "socket_timeout"),
    *("socket_connect_timeout", "socket_keepalive", "socket_read_size", "health_check_interval"),
)
TLS_OPTIONS = (  # of redis-py, with TLS
    *("ssl_keyfile", "ssl_certfile", "ssl_cert_reqs", "ssl_ca_certs", "ssl_ca_data", "ssl_check_hostname"),
    *("ssl_min_version", "ssl_ciphers", "ssl_include_verify_flags", "ssl_exclude_verify_flags"),
)
TLS_OPTIONS_BESIDE_CLUSTER = ("ssl_ca_path", "ssl_password")
PORTS = {"": 6379, "sentinel": 26379, "cluster": 6379}


class Servers(Protocol):
    """One logical Redis."""

    client: Any  # redis-py's, a `Redis` or a `RedisCluster`

    async def together(self, key: str, *commands: Command) -> list[Any]:
        """Send commands in one go to the server of the key, on one connection; errors are returned as replies."""
        ...

    async def everywhere(self, *commands: Command) -> list[list[Any]]:
        """Send commands to every server that takes writes."""
        ...

    async def left(self) -> bool:
        """Return whether another server may take the command that this one refused as a replica."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


def servers_of(url: str, patience: float = 0.0, further: Sequence[str] = ()) -> tuple[Servers, dict[str, Any]]:
    """Parse a URL into its servers and its options with defaults; nothing is connected yet.

    `patience`: seconds added to the reply time-out. `further`: options that the caller reads, beside those of redis-py.
    A `ValueError` names an unknown option, or lists the forms. It never shows the URL.
    """
    try:
        return _servers_of(url, patience, further)
    except UnknownOption:
        raise
    except (ValueError, TypeError, RedisError, RedisClusterException):
        raise ValueError(f"the Redis URL or one of its options cannot be read; {URL_FORMS}") from None


def _accepted_options(kind: str, *, tls: bool) -> tuple[str, ...]:
    """Return the options of this kind of URL."""
    tls_options = (*TLS_OPTIONS, *(() if kind == "cluster" else TLS_OPTIONS_BESIDE_CLUSTER)) if tls else ()
    return (*OPTIONS, *tls_options, *(SENTINEL_OPTIONS if kind == "sentinel" else ()))


def _servers_of(url: str, patience: float, further: Sequence[str]) -> tuple[Servers, dict[str, Any]]:
    parts = urlsplit(url)
    scheme, _, kind = parts.scheme.partition("+")
    if not re.fullmatch("/?|/[0-9]+", parts.path):  # redis-py would take database 0
        raise ValueError
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    callers = {name: query.pop(name) for name in further if name in query}
    accepted = _accepted_options(kind, tls=scheme == "rediss")
    for name in query:
        if name not in accepted:
            raise UnknownOption("" if "@" in parts.query else name, (*further, *accepted))  # @: part of a password
    sentinel: dict[str, str] = {name: query.pop(name) for name in SENTINEL_OPTIONS if name in query}
    user, at, places = parts.netloc.rpartition("@")
    hosts = [_host(place, PORTS[kind]) for place in places.split(",")]
    options: dict[str, Any] = {
        "max_connections": CONNECTIONS,
        "socket_timeout": REPLY_SECONDS,
        "socket_connect_timeout": CONNECT_SECONDS,
        "retry": Retry(NoBackoff(), 0),  # the store decides what may be repeated
        "protocol": 2,  # sufficient, and supported by every server
        **parse_url(f"{scheme}://{user}{at}{places.split(',')[0]}{parts.path}?{urlencode(query)}"),
    }
    if options["socket_timeout"] is not None:
        options["socket_timeout"] += patience
    connection: type[Connection] = options.pop("connection_class", Connection)
    for name in ("host", "port"):
        options.pop(name, None)
    # A value that cannot be read raises here; this connection stays closed.
    connection(**{name: value for name, value in options.items() if name != "max_connections"})
    tls = connection is SSLConnection
    if (kind == "sentinel") != ("master" in sentinel) or (sentinel.keys() - {"master"} and kind != "sentinel"):
        raise ValueError
    if kind == "sentinel":
        return SentinelServers(hosts, sentinel, options, tls), {**options, **sentinel, **callers}
    if kind == "cluster":
        if options.pop("db", 0):
            raise ValueError
        return ClusterServers(hosts, options, tls), {**options, **callers}
    if len(hosts) > 1:
        raise ValueError
    return OneServer(ConnectionPool(connection, host=hosts[0][0], port=hosts[0][1], **options)), {
        **options,
        **callers,
    }


def _host(place: str, port: int) -> tuple[str, int]:
    """Parse `host`, `host:port` or `[address]:port`."""
    parts = urlsplit(f"//{place}")
    return parts.hostname or "localhost", parts.port or port


class OneServer:
    """A server, or an address that always leads to one."""

    def __init__(self, pool: ConnectionPool) -> None:
        self.client: Redis = Redis.from_pool(pool)

    async def together(self, key: str, *commands: Command) -> list[Any]:  # noqa: ARG002 (one server has every key)
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
    """The current master of a name."""

    def __init__(
        self, hosts: Sequence[tuple[str, int]], sentinel: Mapping[str, str], options: dict[str, Any], tls: bool
    ) -> None:
        sockets = {name: value for name, value in options.items() if name.startswith(("socket_", "ssl_"))}
        logins = {name.removeprefix("sentinel_"): value for name, value in sentinel.items() if name != "master"}
        connecting = {**sockets, **logins, "ssl": tls, "protocol": 2, "retry": options["retry"]}
        self._sentinel = Sentinel(hosts, sentinel_kwargs=connecting)  # type: ignore[no-untyped-call]
        self.client = self._sentinel.master_for(sentinel["master"], ssl=tls, redis_connect_func=_on_master, **options)

    async def left(self) -> bool:
        await self.client.connection_pool.disconnect(inuse_connections=False)
        return True

    async def close(self) -> None:
        await super().close()
        await self._sentinel.aclose()


async def _on_master(connection: Connection) -> None:
    """Check the role of a new connection: a Sentinel may not know yet that its master became a replica."""
    await connection.on_connect()
    await connection.send_command("ROLE")
    try:
        role = (await connection.read_response())[0]
    except ResponseError:  # the user may not run ROLE: trust the Sentinel
        return
    if role != b"master":
        raise ConnectionError("the server that the Sentinels call the master is not a master")


class ClusterServers:
    """The nodes of a Cluster."""

    def __init__(self, hosts: Sequence[tuple[str, int]], options: dict[str, Any], tls: bool) -> None:
        nodes = [ClusterNode(host, port) for host, port in hosts]
        self.client = RedisCluster(startup_nodes=nodes, ssl=tls, **options)

    async def together(self, key: str, *commands: Command) -> list[Any]:
        await self.client.initialize()
        try:
            replies = await self._at(self.client.get_node_from_key(key), commands)
            if isinstance(replies[0], (AskError, TryAgainError)):  # MOVED is a subclass of ASK
                first = await self.client.execute_command(
                    *commands[0]
                )  # follows the redirection and updates the slot map
                replies = [first, *(await self._at(self.client.get_node_from_key(key), commands[1:]))]
        except (ConnectionError, TimeoutError):
            with suppress(RedisError, RedisClusterException):
                await self.client.execute_command("EXISTS", key)  # on failure it reloads the slot map
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
        for nodes in ("nodes_cache", "startup_nodes"):  # redis-py leaves these open if it was about to reload the map
            await self.client.nodes_manager.aclose(nodes)
