"""Servers that may delete acknowledged data are refused at the start, or warned of."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from service.settings import Settings
from service.storage.open_store import open_store
from service.storage.redis.server_info import refusal
from tests.harness.apps import application
from tests.harness.redis_server import RedisServer
from tests.harness.waiting import eventually_async


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


async def test_a_policy_that_changes_later_is_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rarestream.store")
    monkeypatch.setattr("service.storage.redis.redis_calls.LOOK_SECONDS", 0.0)
    with RedisServer(appendonly="yes") as server:
        store = await open_store(server.url)
        assert store.caution is None
        server.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        await store.heads()
        assert (store.fault is not None, store.caution) == (True, None)
        assert "allkeys-lru" in str(store.fault)
        server.command("CONFIG", "SET", "maxmemory-policy", "volatile-lru")
        await store.heads()
        assert store.fault is None
        assert "volatile-lru" in str(store.caution)
        server.command("CONFIG", "SET", "maxmemory-policy", "noeviction")
        await store.heads()
        assert (store.fault, store.caution) == (None, None)
        await store.close()
    levels = [record.levelname for record in caplog.records if record.name == "rarestream.store"]
    assert levels == ["ERROR", "WARNING", "INFO", "INFO"]


async def test_operators_see_a_policy_that_changes_while_the_service_runs() -> None:
    with RedisServer(appendonly="yes") as server:
        async with application(Settings(store=server.url, follow_seconds=0.05)) as (_, http):

            async def health() -> dict[str, Any]:
                return dict((await http.get("/v1/health/ready")).json())

            await eventually_async(lambda: _is(health, "ok"), "a node that is ready")
            assert "rarestream_store_fault 0.0" in (await http.get("/metrics")).text
            server.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
            await eventually_async(lambda: _is(health, "degraded"), "a degraded node")
            assert "set `maxmemory-policy noeviction` there" in (await health())["detail"]
            assert (await http.get("/v1/health/ready")).status_code == 200
            assert "rarestream_store_fault 1.0" in (await http.get("/metrics")).text
            server.command("CONFIG", "SET", "maxmemory-policy", "volatile-lru")
            await eventually_async(lambda: _is(health, "ok"), "a node that is well")
            assert "volatile-lru" in (await health())["detail"]
            metrics = (await http.get("/metrics")).text
            assert "rarestream_store_fault 0.0" in metrics
            assert "rarestream_store_caution 1.0" in metrics


async def _is(health: Callable[[], Awaitable[dict[str, Any]]], status: str) -> bool:
    return bool((await health())["status"] == status)


async def test_the_url_of_one_server_of_a_cluster_is_refused() -> None:
    with RedisServer(cluster_enabled="yes") as server, pytest.raises(ValueError, match="redis\\+cluster://"):
        await open_store(server.url)


def test_servers_that_show_nothing_are_accepted() -> None:
    assert refusal([], cluster=False) is None
    assert refusal([{}], cluster=False) is None
    assert refusal([{"cluster_enabled": 1}], cluster=True) is None
