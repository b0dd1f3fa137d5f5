"""Servers that may delete acknowledged data are refused at the start, or warned of."""

from __future__ import annotations

import logging

import pytest

from service.storage.open_store import open_store
from service.storage.redis.server_info import refusal
from tests.harness.redis_server import RedisServer


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-lfu", "allkeys-random"])
async def test_a_server_that_evicts_any_key_is_refused(policy: str) -> None:
    with RedisServer(maxmemory_policy=policy) as server:
        with pytest.raises(ValueError, match=policy):
            await open_store(server.url)
        server.command("CONFIG", "SET", "maxmemory-policy", "noeviction")
        await (await open_store(server.url)).close()


async def test_a_server_that_evicts_expiring_keys_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with RedisServer(maxmemory_policy="volatile-ttl", appendonly="yes") as server:
        store = await open_store(server.url)
        assert store.caution is not None
        assert "volatile-ttl" in store.caution
        assert [record.levelno for record in caplog.records if record.name == "rarestream.store"] == [logging.WARNING]
        await store.close()


async def test_a_policy_that_changes_later_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.storage.redis.redis_calls.LOOK_SECONDS", 0.0)
    with RedisServer(appendonly="yes") as server:
        store = await open_store(server.url)
        assert store.caution is None
        server.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        await store.heads()
        assert store.caution is not None
        assert "allkeys-lru" in store.caution
        await store.close()


async def test_the_url_of_one_server_of_a_cluster_is_refused() -> None:
    with RedisServer(cluster_enabled="yes") as server, pytest.raises(ValueError, match="redis\\+cluster://"):
        await open_store(server.url)


def test_servers_that_show_nothing_are_accepted() -> None:
    assert refusal([], cluster=False) is None
    assert refusal([{}], cluster=False) is None
    assert refusal([{"cluster_enabled": 1}], cluster=True) is None
