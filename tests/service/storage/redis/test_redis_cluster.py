"""The Redis store on a Cluster: learners in every part of it, slots that move, and a node that ends."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator

import pytest

from service.errors import StoreUnavailable
from service.storage.open_store import open_store
from service.storage.redis.key_names import KeyNames
from service.storage.store_protocol import LogEntry, LogHead, SharedStore, Store
from tests.harness.redis_fleet import Cluster, cluster, slot_of
from tests.harness.redis_server import RedisServer
from tests.harness.store_records import BIRTH, UNBOUNDED, event, events, filled, labels_of, log_after, record, whole_log
from tests.harness.waiting import eventually
from tests.service.storage.redis.test_redis_failover import in_time

pytestmark = pytest.mark.integration

NAMES = "abcdef"


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    with cluster() as actual:
        yield actual


@pytest.fixture(params=["memory", "aof"])
async def store(running: Cluster, request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    """Return an empty cluster."""
    store = await open_store(running.url, request.param)
    yield store
    for name, head in (await store.heads()).items():
        await store.delete(name, head.birth)
    await store.close()


def meta(name: str) -> str:
    return f"rarestream:{{{name}}}:meta"


async def test_learners_are_spread_and_every_operation_works_on_each_node(store: Store, running: Cluster) -> None:
    assert {running.home(meta(name)) for name in NAMES} == {0, 1, 2}
    for name in NAMES:
        await filled(store, 3, name)
        await store.serve(name, BIRTH, record(4), 1, events(0, 5), UNBOUNDED)
        await store.labelled(name, BIRTH, labels_of(["1"]))
        await store.settle(name, BIRTH, 2)
        await store.reopen(name, BIRTH)
        await store.save(name, BIRTH, 2, b"two", 2, trim=True)
    assert await store.heads() == {name: LogHead(BIRTH, 4) for name in NAMES}
    for name in NAMES:
        assert [entry.token for entry in await log_after(store, 2, name)] == [record(3)[0], record(4)[0]]
        assert await store.load(name, BIRTH) == (2, b"two")
        assert await store.recall(name, BIRTH, ["1", "9"]) == [event(1), None]
        assert (await store.expired(name, BIRTH, 9.0, 9)).labelled == [False, True, False, False, False]
        assert (await store.pending(name, BIRTH)).events == 5
        assert await store.token(name, BIRTH, 2) == record(2)[0]
        await store.delete(name, BIRTH)
    assert await store.heads() == {}
    left = [key for server in running.masters for key in server.key_names() if not key.endswith(":waited")]
    assert left == [KeyNames().deleted]  # the records of the deletions


async def test_a_prefix_keeps_the_hash_tags(running: Cluster) -> None:
    first = await open_store(f"{running.url}?prefix=staging")
    second = await open_store(running.url, "aof", "production")
    try:
        for store in (first, second):
            for name in NAMES:
                await filled(store, 3, name)
                await store.serve(name, BIRTH, record(4), 1, events(0, 5), UNBOUNDED)
                await store.save(name, BIRTH, 2, b"two", 2, trim=True)
        for name in NAMES:
            await first.delete(name, BIRTH)
        assert await first.heads() == {}
        assert await second.heads() == {name: LogHead(BIRTH, 4) for name in NAMES}
        assert await second.deleted([BIRTH]) == []
        for name in NAMES:
            await second.delete(name, BIRTH)
        for server in running.masters:  # of acks=aof: a slot with keys cannot be moved
            for key in server.key_names():
                server.command("DEL", key)
    finally:
        for store in (first, second):
            await store.close()


async def test_a_node_of_the_cluster_tells_the_time(store: Store) -> None:
    assert isinstance(store, SharedStore)
    before = time.time()
    assert before - 1 <= await store.time() <= time.time() + 1


async def test_heads_lists_many_learners(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.storage.redis.redis_store.LISTED", 7)
    names = [f"learner-{number}" for number in range(30)]
    for name in names:
        await store.create(name, BIRTH, b"")
    assert await store.heads() == {name: LogHead(BIRTH, 1) for name in names}


def identity(server: RedisServer) -> str:
    actual = server.command("CLUSTER MYID")
    return actual.decode() if isinstance(actual, bytes) else str(actual)


async def test_a_moved_slot_is_followed(store: Store, running: Cluster) -> None:
    """ASK while its keys go over: scripts have to wait then, as some of their keys are nowhere. MOVED after it."""
    name = next(name for name in NAMES if running.home(meta(name)) == 1)
    await filled(store, 3, name)
    slot = slot_of(meta(name))
    old, new = running.masters[1], running.masters[2]
    new.command("CLUSTER", "SETSLOT", slot, "IMPORTING", identity(old))
    old.command("CLUSTER", "SETSLOT", slot, "MIGRATING", identity(new))
    try:
        keys = old.command("CLUSTER", "GETKEYSINSLOT", slot, 100)
        assert isinstance(keys, list)
        old.command("MIGRATE", "127.0.0.1", new.port, "", 0, 5000, "KEYS", *keys)
        with pytest.raises(StoreUnavailable):
            await store.append(name, BIRTH, [record(4)], 3)
        for server in (new, old, running.masters[0]):
            server.command("CLUSTER", "SETSLOT", slot, "NODE", identity(new))
        assert await store.append(name, BIRTH, [record(4)], 3) == [LogEntry(4, *record(4))]
        assert await store.append(name, BIRTH, [record(5)], 4) == [LogEntry(5, *record(5))]
        assert await store.append(name, BIRTH, [record(5)], 4) == [LogEntry(5, *record(5))]
        assert len(await whole_log(store, name)) == 5
        assert await store.heads() == {name: LogHead(BIRTH, 5)}
        assert old.command("CLUSTER", "COUNTKEYSINSLOT", slot) == 0
        await store.delete(name, BIRTH)
        new.command("DEL", f"rarestream:{{{name}}}:waited")
    finally:
        for server in (old, new, running.masters[0]):
            server.command("CLUSTER", "SETSLOT", slot, "NODE", identity(old))


@pytest.mark.parametrize("acks", ["memory", "aof"])
async def test_the_replica_of_a_killed_node_takes_over(acks: str) -> None:
    with cluster(node_timeout_ms=3000) as servers:
        store = await open_store(servers.url, acks)
        try:
            for name in NAMES:
                await filled(store, 3, name)
            mine = [name for name in NAMES if servers.home(meta(name)) == 0]
            eventually(
                lambda: all(f"rarestream:{{{name}}}:log" in servers.replica.key_names() for name in mine),
                "a replica that has it",
            )
            servers.masters[0].kill()
            for name in NAMES:
                entries = await in_time(lambda name=name: store.append(name, BIRTH, [record(4)], 3))
                assert entries == [LogEntry(4, *record(4))]
            assert await in_time(store.heads) == {name: LogHead(BIRTH, 4) for name in NAMES}
        finally:
            await store.close()


async def test_passwords_are_masked(running: Cluster) -> None:
    store = await open_store(running.url.replace("//", "//ann:hunter2@"))
    try:
        with pytest.raises(StoreUnavailable, match=r"^Redis:") as caught:
            await store.heads()
        assert "hunter2" not in str(caught.value)
    finally:
        await store.close()
