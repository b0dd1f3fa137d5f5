"""Several Redis servers that belong together: a master with replicas and a Sentinel, and a Cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from urllib.parse import urlencode

import redis

from tests.harness.redis_server import REDIS, Certificate, RedisServer
from tests.harness.waiting import eventually

__all__ = ["Cluster", "Watched", "cluster", "watched"]

NAME = "main"  # of the master, to its Sentinel
DOWN_MS = 3000  # without an answer, after which a server counts as down
NEVER_MS = 60_000  # the same in a Cluster where no server ends: a busy machine must not cause a failover


class Watched:
    """A master, its replica, and the Sentinel that watches both."""

    def __init__(
        self, servers: list[RedisServer], sentinel: RedisServer, login: str = "", query: str = "", secured: bool = False
    ) -> None:
        self.servers = servers
        self.sentinel = sentinel
        nobody = "127.0.0.1:1"  # a Sentinel that is away is passed over
        scheme = "rediss" if secured else "redis"
        self.url = f"{scheme}+sentinel://{login}{nobody},127.0.0.1:{sentinel.port}/0?master={NAME}{query}"

    @property
    def master(self) -> RedisServer:
        """By the Sentinel's word."""
        result = self.sentinel.command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME)
        assert isinstance(result, (list, tuple))
        return next(server for server in self.servers if server.port == int(result[1]))

    @property
    def replica(self) -> RedisServer:
        """The other one."""
        master = self.master
        return next(server for server in self.servers if server is not master)

    def failed_over(self, old: RedisServer) -> None:
        """Return once another server is the master, and takes writes."""
        eventually(lambda: self.master is not old and role(self.master) == "master", "a new master")


def role(server: RedisServer) -> str:
    """Return the server's role; empty while it does not respond."""
    try:
        result = server.command("ROLE")
    except (redis.ConnectionError, redis.TimeoutError):
        return ""
    assert isinstance(result, list)
    return bytes(result[0]).decode()


def linked(replica: RedisServer) -> bool:
    """Whether it follows its master."""
    result = replica.command("ROLE")
    assert isinstance(result, list)
    return bytes(result[0]) == b"slave" and bytes(result[3]) == b"connected"


@contextmanager
def watched(
    binary: str = REDIS,
    password: str = "",
    sentinel_password: str = "",
    user: str = "",
    sentinel_user: str = "",
    tls: Certificate | None = None,
    **options: str,
) -> Iterator[Watched]:
    """Start a master, its replica, and a Sentinel that knows both; optionally for these users alone."""
    secret = {"requirepass": password, "masterauth": password} if password else {}
    if user:
        secret = {**of_user(user, password), "masteruser": user, "masterauth": password}
    with ExitStack() as stack:
        master = stack.enter_context(RedisServer(binary, tls=tls, **secret, **options))
        of_master = {"replicaof": f"127.0.0.1 {master.port}"}
        master.command("CONFIG", "SET", "repl-diskless-sync-delay", "0")
        replica = stack.enter_context(RedisServer(binary, tls=tls, **secret, **of_master, **options))
        eventually(lambda: linked(replica), "a replica that follows")
        lines = {
            f"sentinel monitor {NAME}": f"127.0.0.1 {master.port} 1",
            f"sentinel down-after-milliseconds {NAME}": str(DOWN_MS),
            f"sentinel failover-timeout {NAME}": "3000",
        }
        login, query = "", ""
        if password:
            lines[f"sentinel auth-pass {NAME}"] = password
            login = f"{user}:{password}@"
        if user:
            lines[f"sentinel auth-user {NAME}"] = user
        if sentinel_password:
            lines |= of_user(sentinel_user, sentinel_password) if sentinel_user else {"requirepass": sentinel_password}
            query = f"&sentinel_password={sentinel_password}"
        if sentinel_user:
            query += f"&sentinel_username={sentinel_user}"
        if tls is not None:
            query += f"&{urlencode(tls.options)}"
        sentinel = stack.enter_context(RedisServer(binary, sentinel=True, tls=tls, **lines))
        result = Watched([master, replica], sentinel, login, query, secured=tls is not None)
        eventually(lambda: _replicas(sentinel) == 1, "a Sentinel that knows the replica")
        yield result


def of_user(name: str, password: str) -> dict[str, str]:
    """Return the options of a server that admits only this user."""
    return {"user default": "off", f"user {name}": f"on >{password} ~* &* +@all"}


def _replicas(sentinel: RedisServer) -> int:
    result = sentinel.command("SENTINEL", "REPLICAS", NAME)
    assert isinstance(result, list)
    return len(result)


class Cluster:
    """Three masters, each with a third of the slots, and a replica of the first."""

    def __init__(self, masters: list[RedisServer], replica: RedisServer, login: str, tls: Certificate | None) -> None:
        self.masters = masters
        self.replica = replica
        first = ",".join(f"127.0.0.1:{server.port}" for server in (*masters[1:], masters[0]))
        self.url = f"redis+cluster://{login}{first}"
        if tls is not None:
            self.url = f"rediss+cluster://{login}{first}?{urlencode(tls.options)}"

    @property
    def servers(self) -> list[RedisServer]:
        return [*self.masters, self.replica]

    def home(self, key: str) -> int:
        """Which of the masters had the slot of a key at the beginning."""
        return next(i for i, (start, stop) in enumerate(SHARES) if start <= slot_of(key) <= stop)


SHARES = ((0, 5460), (5461, 10922), (10923, 16383))


def slot_of(key: str) -> int:
    return redis.crc.key_slot(key.encode())


@contextmanager
def cluster(
    binary: str = REDIS,
    user: str = "",
    password: str = "",
    tls: Certificate | None = None,
    node_timeout_ms: int = NEVER_MS,
) -> Iterator[Cluster]:
    """Start a Cluster and wait for it; optionally for one user alone."""
    options = {"cluster_enabled": "yes", "cluster_node_timeout": str(node_timeout_ms)}
    options["cluster_replica_validity_factor"] = "0"
    if user:
        options |= {**of_user(user, password), "masteruser": user, "masterauth": password}
    if tls is not None:
        options["tls_cluster"] = "yes"
    with ExitStack() as stack:
        servers = [stack.enter_context(RedisServer(binary, tls=tls, **options)) for _ in range(4)]
        masters, replica = servers[:3], servers[3]
        for epoch, (server, (start, stop)) in enumerate(zip(masters, SHARES, strict=True), 1):
            server.command("CLUSTER", "ADDSLOTS", *range(start, stop + 1))
            server.command("CLUSTER", "SET-CONFIG-EPOCH", epoch)
        for server in servers[1:]:
            server.command("CLUSTER", "MEET", "127.0.0.1", servers[0].port)
        eventually(lambda: all(_has_nodes(server, 4) for server in servers), "a Cluster whose nodes know each other")
        first = masters[0].command("CLUSTER", "MYID")
        assert isinstance(first, (bytes, str))
        replica.command("CLUSTER", "REPLICATE", first)
        eventually(lambda: linked(replica), "a replica that follows")
        eventually(lambda: all(_well(server) for server in servers), "a Cluster that is well")
        yield Cluster(masters, replica, f"{user}:{password}@" if user else "", tls)


def _has_nodes(server: RedisServer, nodes: int) -> bool:
    return _info(server).get("cluster_known_nodes") == str(nodes)


def _well(server: RedisServer) -> bool:
    info = _info(server)
    return info.get("cluster_state") == "ok" and info.get("cluster_slots_ok") == "16384"


def _info(server: RedisServer) -> dict[str, str]:
    result = server.command("CLUSTER INFO")
    assert isinstance(result, dict)
    return result
