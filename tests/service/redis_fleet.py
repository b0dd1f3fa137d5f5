"""Several Redis servers that belong together: a master with replicas and a Sentinel, and a Cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import redis

from tests.service.redis_server import REDIS, RedisServer

__all__ = ["Cluster", "Watched", "cluster", "soon", "watched"]

NAME = "main"  # of the master, to its Sentinel
DOWN_MS = 1500  # without an answer, after which a server counts as down
SOON_SECONDS = 60.0


def soon(done: Callable[[], bool], what: str) -> None:
    """Return once it is so."""
    deadline = time.monotonic() + SOON_SECONDS
    while not done():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.05)


class Watched:
    """A master, its replica, and the Sentinel that watches both."""

    def __init__(self, servers: list[RedisServer], sentinel: RedisServer, login: str = "", query: str = "") -> None:
        self.servers = servers
        self.sentinel = sentinel
        nobody = "127.0.0.1:1"  # a Sentinel that is away is passed over
        self.url = f"redis+sentinel://{login}{nobody},127.0.0.1:{sentinel.port}/0?master={NAME}{query}"

    @property
    def master(self) -> RedisServer:
        """By the Sentinel's word."""
        found = self.sentinel.command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME)
        assert isinstance(found, (list, tuple))
        return next(server for server in self.servers if server.port == int(found[1]))

    @property
    def replica(self) -> RedisServer:
        """The other one."""
        master = self.master
        return next(server for server in self.servers if server is not master)

    def failed_over(self, old: RedisServer) -> None:
        """Return once another server is the master, and takes writes."""
        soon(lambda: self.master is not old and role(self.master) == "master", "a new master")


def role(server: RedisServer) -> str:
    """What it says of itself; empty while it is away."""
    try:
        found = server.command("ROLE")
    except (redis.ConnectionError, redis.TimeoutError):
        return ""
    assert isinstance(found, list)
    return bytes(found[0]).decode()


def linked(replica: RedisServer) -> bool:
    """Whether it follows its master."""
    found = replica.command("ROLE")
    assert isinstance(found, list)
    return bytes(found[0]) == b"slave" and bytes(found[3]) == b"connected"


@contextmanager
def watched(binary: str = REDIS, password: str = "", sentinel_password: str = "", **options: str) -> Iterator[Watched]:
    """A master and its replica, which follows it, and a Sentinel that knows both."""
    secret = {"requirepass": password, "masterauth": password} if password else {}
    with ExitStack() as stack:
        master = stack.enter_context(RedisServer(binary, **secret, **options))
        of_master = {"replicaof": f"127.0.0.1 {master.port}"}
        master.command("CONFIG", "SET", "repl-diskless-sync-delay", "0")
        replica = stack.enter_context(RedisServer(binary, **secret, **of_master, **options))
        soon(lambda: linked(replica), "a replica that follows")
        lines = {
            f"sentinel monitor {NAME}": f"127.0.0.1 {master.port} 1",
            f"sentinel down-after-milliseconds {NAME}": str(DOWN_MS),
            f"sentinel failover-timeout {NAME}": "3000",
        }
        login, query = "", ""
        if password:
            lines[f"sentinel auth-pass {NAME}"] = password
            login = f":{password}@"
        if sentinel_password:
            lines["requirepass"] = sentinel_password
            query = f"&sentinel_password={sentinel_password}"
        sentinel = stack.enter_context(RedisServer(binary, sentinel=True, **lines))
        found = Watched([master, replica], sentinel, login, query)
        soon(lambda: _replicas(sentinel) == 1, "a Sentinel that knows the replica")
        yield found


def _replicas(sentinel: RedisServer) -> int:
    found = sentinel.command("SENTINEL", "REPLICAS", NAME)
    assert isinstance(found, list)
    return len(found)


class Cluster:
    """Three masters, each with a third of the slots, and a replica of the first."""

    def __init__(self, masters: list[RedisServer], replica: RedisServer) -> None:
        self.masters = masters
        self.replica = replica
        first = ",".join(f"127.0.0.1:{server.port}" for server in (*masters[1:], masters[0]))
        self.url = f"redis+cluster://{first}"

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
def cluster(binary: str = REDIS) -> Iterator[Cluster]:
    """A Cluster that is up."""
    options = {"cluster_enabled": "yes", "cluster_node_timeout": "1000", "cluster_replica_validity_factor": "0"}
    with ExitStack() as stack:
        servers = [stack.enter_context(RedisServer(binary, **options)) for _ in range(4)]
        masters, replica = servers[:3], servers[3]
        for epoch, (server, (start, stop)) in enumerate(zip(masters, SHARES, strict=True), 1):
            server.command("CLUSTER", "ADDSLOTS", *range(start, stop + 1))
            server.command("CLUSTER", "SET-CONFIG-EPOCH", epoch)
        for server in servers[1:]:
            server.command("CLUSTER", "MEET", "127.0.0.1", servers[0].port)
        soon(lambda: all(_knows(server, 4) for server in servers), "a Cluster whose nodes know each other")
        first = masters[0].command("CLUSTER", "MYID")
        assert isinstance(first, (bytes, str))
        replica.command("CLUSTER", "REPLICATE", first)
        soon(lambda: linked(replica), "a replica that follows")
        soon(lambda: all(_well(server) for server in servers), "a Cluster that is well")
        yield Cluster(masters, replica)


def _knows(server: RedisServer, nodes: int) -> bool:
    return _info(server).get("cluster_known_nodes") == str(nodes)


def _well(server: RedisServer) -> bool:
    info = _info(server)
    return info.get("cluster_state") == "ok" and info.get("cluster_slots_ok") == "16384"


def _info(server: RedisServer) -> dict[str, str]:
    found = server.command("CLUSTER INFO")
    assert isinstance(found, dict)
    return found
