"""The Redis store behind Sentinels: a master that ends, hangs or is demoted, and the one that takes over."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from service.errors import StoreUnavailable
from service.storage.open_store import open_store
from service.storage.redis.redis_store import RedisStore
from service.storage.store_protocol import URL_FORMS, LogEntry, LogHead, Store
from tests.harness.redis_fleet import watched
from tests.harness.redis_server import REDIS, VALKEY
from tests.harness.store_records import BIRTH, filled, record, token, whole_log
from tests.harness.waiting import eventually, eventually_async

pytestmark = pytest.mark.integration

T = TypeVar("T")


async def in_time(call: Callable[[], Awaitable[T]]) -> T:
    """Return what a call gives once the store is there again; as clients repeat what was answered with 503."""

    async def attempt() -> list[T]:
        try:
            return [await call()]
        except StoreUnavailable:
            return []

    return (await eventually_async(attempt))[0]


async def append(store: Store, number: int, after: int) -> list[LogEntry]:
    return await in_time(lambda: store.append("a", BIRTH, [record(number)], after))


@pytest.mark.parametrize("binary", [REDIS, VALKEY], ids=["redis", "valkey"])
@pytest.mark.campaign
async def test_a_killed_master_loses_nothing_a_replica_had(binary: str) -> None:
    """Eight writers, who repeat what failed by its token, go on over the fail-over."""
    with watched(binary, password="hunter2", sentinel_password="hunter3") as servers:
        store = await open_store(servers.url, "replicas:1")
        try:
            await filled(store, 3)
            returned: list[LogEntry] = []
            failures: list[str] = []
            old = servers.master

            async def write(node: int) -> None:
                after, number = 3, 0
                while not failures:
                    number += 1
                    local = token(node * 1_000_000 + number)
                    try:
                        entries = await store.append("a", BIRTH, [(local, b"data")], after)
                    except StoreUnavailable as error:
                        failures.append(error.detail)
                        return
                    returned.extend(entry for entry in entries if entry.token == local)
                    after = entries[-1].position
                    if len(returned) == 100:
                        old.kill()

            await asyncio.gather(*(write(node) for node in range(1, 9)))
            await asyncio.to_thread(servers.failed_over, old)
            log = await in_time(lambda: whole_log(store))
            assert len(returned) >= 100
            assert not any("hunter" in failure for failure in failures)
            assert all(log[entry.position - 1] == entry for entry in returned)
            old.start()  # it is to come back as the replica of the new one
            entries = await append(store, 9, len(log))
            assert [entry.token for entry in entries] == [token(9)]
        finally:
            await store.close()


async def test_a_hanging_master_is_abandoned_and_never_written_to_again() -> None:
    with watched() as servers:
        store = await open_store(f"{servers.url}&socket_timeout=1", "memory")
        try:
            await filled(store, 3)
            await asyncio.gather(*(store.read("a", BIRTH, 0, 9) for _ in range(8)))  # as many connections
            old, new = servers.master, servers.replica
            eventually(lambda: new.command("XLEN", "rarestream:{a}:log") == 3, "a replica that has it")
            old.pause()
            await asyncio.to_thread(servers.failed_over, old)
            await append(store, 4, 3)
            old.resume()
            await asyncio.gather(*(append(store, number, 3) for number in range(5, 25)))
            assert len(await in_time(lambda: whole_log(store))) == 24
            assert new.command("XLEN", "rarestream:{a}:log") == 24
        finally:
            old.resume()
            await store.close()


async def test_a_replica_mistaken_for_the_master_is_neither_read_nor_written() -> None:
    with watched() as servers:
        first = await open_store(servers.url)
        second = None
        try:
            await filled(first, 3)
            servers.master.command("REPLICAOF", "127.0.0.1", 1)  # the Sentinel does not know yet
            second = RedisStore(servers.url)
            with pytest.raises(StoreUnavailable, match="master"):
                await second.heads()
            with pytest.raises(StoreUnavailable, match="master"):
                await first.append("a", BIRTH, [record(4)], 3)  # by a connection from before
            servers.servers[0].command("REPLICAOF", "NO", "ONE")
            assert await append(first, 4, 3) == [LogEntry(4, *record(4))]
            assert await in_time(second.heads) == {"a": LogHead(BIRTH, 4)}
        finally:
            await first.close()
            if second is not None:
                await second.close()


async def test_a_wrong_password_of_a_sentinel_or_a_master_is_masked() -> None:
    with watched(password="right", sentinel_password="correct") as servers:
        for url in (
            servers.url.replace(":right@", ":hunter2@"),
            servers.url.replace("=correct", "=hunter2"),
            servers.url.replace("master=main", "master=other"),
        ):
            store = RedisStore(url)
            with pytest.raises(StoreUnavailable, match=r"^Redis:") as caught:
                await store.heads()
            await store.close()
            for secret in ("hunter2", "right", "correct"):
                assert secret not in caught.value.detail


@pytest.mark.parametrize(
    "url",
    [
        "redis+sentinel://:hunter2@localhost",  # of which master?
        "redis+sentinel://:hunter2@localhost?master=main&no_such_option=1",
        "redis+sentinel://:hunter2@localhost/x?master=main",
        "redis+sentinel://:hunter2@localhost:port?master=main",
        "redis+cluster://:hunter2@localhost?master=main",
        "redis+cluster://:hunter2@localhost/1",  # a Cluster has one database
        "redis+cluster://:hunter2@localhost?sentinel_password=x",
        "redis+other://:hunter2@localhost",
        "rediss+cluster://:hunter2@localhost?ssl_cert_reqs=hunter2",
        "redis://:hunter2@one,two",
    ],
)
async def test_an_invalid_url_lists_the_forms_and_masks_passwords(url: str) -> None:
    with pytest.raises(ValueError, match="redis\\+sentinel://") as caught:
        await open_store(url)
    assert URL_FORMS in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "rediss+sentinel://ann:hunter2@127.0.0.1:1,[::1]:1/2?master=main&sentinel_username=x&sentinel_password=hunter3"
        "&ssl_cert_reqs=none",
        "rediss+cluster://ann:hunter2@127.0.0.1:1,[::1]:1?ssl_cert_reqs=none",
        "redis+cluster://127.0.0.1:1",
    ],
)
async def test_unreachable_servers_are_unavailable(url: str) -> None:
    store = await open_store(url)
    try:
        with pytest.raises(StoreUnavailable, match=r"^Redis:") as caught:
            await store.create("a", BIRTH, b"")
        assert "hunter" not in caught.value.detail
    finally:
        await store.close()
