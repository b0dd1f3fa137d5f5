"""Several services in one Redis: the prefix of their keys."""

from __future__ import annotations

import asyncio
import math
from contextlib import AsyncExitStack
from typing import Any

import pytest
from pydantic import ValidationError
from redis.crc import key_slot

from service.settings import Settings
from service.storage.open_store import open_store
from service.storage.redis.redis_store import RedisStore
from service.storage.store_protocol import LogNotice, ServedLimits
from tests.harness.apps import DENSE, application, events
from tests.harness.redis_server import RedisServer
from tests.harness.store_records import BIRTH, event, filled, labels_of, record
from tests.harness.waiting import eventually_async

DEFAULT_KEYS = {  # what a service without a prefix writes
    "rarestream:learners",
    "rarestream:bell",
    "rarestream:nodes:{nodes}",
    "rarestream:node:{nodes}:n1",
    "rarestream:nodes:{nodes}:key",
    "{rarestream:learners}:deleted",
    *(f"rarestream:{{a%2Fb}}:{part}" for part in ("meta", "log", "tokens", "snapshots", "claim")),
    *(f"rarestream:{{a%2Fb}}:{part}" for part in ("served", "ids", "dropped", "histories")),
}


async def use_everything(store: RedisStore, name: str = "a/b") -> None:
    """Write every kind of key."""
    await filled(store, 2, "gone")
    await store.delete("gone", BIRTH)
    await filled(store, 2, name)
    await store.serve(name, BIRTH, record(3), 1, [event(0), event(1), event(2)], ServedLimits(2, 999, -math.inf))
    await store.labelled(name, BIRTH, labels_of(["2"]))
    await store.save(name, BIRTH, 2, b"snapshot", 2, trim=False)
    await store.lease(name, BIRTH, b"n1", 60.0)
    await store.publish(b"n1", {name: LogNotice(3)})
    await store.meet("n1", "http://127.0.0.1:1", 60.0)
    await store.key(b"secret")


@pytest.mark.parametrize("acks", ["memory", "replicas:1"])
async def test_keys_without_a_prefix_are_those_of_all_releases(redis_server: RedisServer, acks: str) -> None:
    store = RedisStore(redis_server.url, acks)
    if acks != "memory":  # the keys that are written while an acknowledgement is awaited; nothing has a replica here
        store._acks.check = lambda *_: None  # type: ignore[method-assign]
    try:
        await use_everything(store)
        names = {key for key in redis_server.key_names() if ":part:" not in key}
        waited = {f"rarestream:{{{name}}}:waited" for name in ("a%2Fb", "gone")} | {"{rarestream:learners}:waited"}
        assert names == DEFAULT_KEYS | (waited if acks != "memory" else set())
    finally:
        await store.close()


async def test_every_key_has_the_prefix_and_hash_tags_hold(redis_server: RedisServer) -> None:
    store = RedisStore(f"{redis_server.url}?prefix=staging")
    try:
        await use_everything(store)
        names = redis_server.key_names()
        changed = {key.replace("rarestream", "staging") for key in DEFAULT_KEYS}
        assert {key for key in names if ":part:" not in key} == changed
        assert all(key.startswith(("staging:", "{staging:")) for key in names)
        assert len({key_slot(key.encode()) for key in names if "{a%2Fb}" in key}) == 1
        assert len({key_slot(key.encode()) for key in names if "{nodes}" in key}) == 1
    finally:
        await store.close()


async def test_stores_with_different_prefixes_share_nothing(redis_server: RedisServer) -> None:
    async with AsyncExitStack() as stack:
        stores = [
            RedisStore(redis_server.url),
            RedisStore(f"{redis_server.url}?prefix=staging"),
            RedisStore(redis_server.url, prefix="prod.eu-1"),
        ]
        for store in stores:
            stack.push_async_callback(store.close)
        usual, staging, production = stores
        start = [(await store.poll(b"n2", b"", 0.0))[0] for store in stores]
        await use_everything(staging)
        for other, after in ((usual, start[0]), (production, start[2])):
            assert await other.heads() == {}
            assert await other.deleted([BIRTH]) == []
            assert await other.meet("n2", None, 60.0) == {}
            assert await other.key(b"another") == b"another"
            assert await other.poll(b"n2", after, 0.01) == (after, {})
        assert (await staging.poll(b"n2", start[1], 0.01))[1] == {"a/b": LogNotice(3)}
        await use_everything(usual)
        await usual.delete("a/b", BIRTH)
        assert list(await staging.heads()) == ["a/b"]
        assert await staging.load("a/b", BIRTH) == (2, b"snapshot")


@pytest.mark.integration
async def test_two_services_in_one_redis_see_nothing_of_each_other(redis_server: RedisServer) -> None:
    async with AsyncExitStack() as stack:
        services: list[Any] = []
        for prefix in ("staging", "production"):
            settings = Settings(
                store=redis_server.url,
                store_prefix=prefix,
                replication=1,
                advertise="http://127.0.0.1:1",
                follow_seconds=0.1,
            )
            services.append(await stack.enter_async_context(application(settings)))
        (_, staging), (production_app, production) = services
        assert (await staging.put("/v1/learners/fraud", json=DENSE)).status_code == 201
        assert (await staging.post("/v1/learners/fraud/update", json={"events": events(20)})).status_code == 200
        looks = production_app.state.engine.node.timings.store["heads"]
        before = looks.count
        await eventually_async(lambda: looks.count > before, "another look at the store")
        assert (await production.get("/v1/learners")).json()["learners"] == []
        assert (await production.get("/v1/learners/fraud")).status_code == 404
        assert "fraud" not in (await production.get("/metrics")).text
        assert "fraud" in (await staging.get("/metrics")).text
        keys = [service[0].state.engine.placement.keys for service in services]
        assert keys[0] != keys[1]
        assert (await production.put("/v1/learners/fraud", json=DENSE)).status_code == 201
        assert (await staging.delete("/v1/learners/fraud")).status_code == 204
        assert (await production.get("/v1/learners/fraud")).status_code == 200


@pytest.mark.parametrize("prefix", ["", "a:b", "{a}", "a b", "a\nb", "x" * 65, "é"])
async def test_a_malformed_prefix_is_refused(prefix: str) -> None:
    with pytest.raises(ValidationError, match="store_prefix"):
        Settings(store_prefix=prefix)
    with pytest.raises(ValueError, match="prefix of the store's keys is"):
        await open_store("redis://127.0.0.1:1", prefix=prefix)


async def test_a_prefix_of_the_url_and_another_of_the_setting_are_refused(redis_server: RedisServer) -> None:
    with pytest.raises(ValueError, match="prefix of the store's URL is a, but RARESTREAM_STORE_PREFIX is b"):
        await open_store(f"{redis_server.url}?prefix=a", prefix="b")
    store = await open_store(f"{redis_server.url}?prefix=a", prefix="a")
    await store.close()


@pytest.mark.parametrize("url", ["sqlite:///a.db", "memory:"])
async def test_other_stores_have_no_prefix(url: str) -> None:
    with pytest.raises(ValueError, match="RARESTREAM_STORE_PREFIX applies to Redis stores only"):
        await open_store(url, prefix="a")


@pytest.mark.parametrize(
    ("url", "option", "takes"),
    [
        ("sqlite:///a.db?timeout=hunter2", "timeout", "none"),
        ("sqlite:////a.db?mode=ro&prefix=x", "mode", "none"),
        ("memory:?prefix=a", "prefix", "none"),
        ("redis://:hunter2@localhost?socket_timout=hunter2", "socket_timout", "prefix, "),
        ("redis://localhost?ssl_ca_certs=a.pem", "ssl_ca_certs", "prefix, "),
        ("redis://localhost?retry=3", "retry", "prefix, "),  # not text
        ("redis://localhost?decode_responses=1", "decode_responses", "prefix, "),  # the store reads bytes
        ("rediss://localhost?ssl_ca=a.pem", "ssl_ca", "prefix, .*ssl_ca_certs"),
        ("redis+sentinel://localhost?master=main&masters=x", "masters", "prefix, .*master, "),
        ("redis+cluster://localhost?master=main", "master", "prefix, "),
        ("rediss+cluster://localhost?ssl_ca_path=x", "ssl_ca_path", "prefix, .*ssl_ca_certs"),
        ("redis://:hunter2?hunter2&x@localhost", r"\(not shown\)", "prefix, "),  # the end of a password
    ],
)
async def test_an_unknown_option_is_named(url: str, option: str, takes: str) -> None:
    with pytest.raises(
        ValueError, match=rf"the store's URL has the unknown option {option}; it takes {takes}"
    ) as caught:
        await open_store(url)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("scheme", ["redis", "rediss", "redis+sentinel", "redis+cluster", "rediss+cluster"])
async def test_every_option_that_is_listed_is_accepted(scheme: str) -> None:
    values = {"protocol": "2", "ssl_cert_reqs": "none", "socket_keepalive": "yes", "ssl_min_version": "771"}
    values |= dict.fromkeys(("ssl_include_verify_flags", "ssl_exclude_verify_flags"), "VERIFY_X509_STRICT")
    with pytest.raises(ValueError, match="it takes ") as caught:
        await open_store(f"{scheme}://127.0.0.1:1?x=1&master=m")
    for name in str(caught.value).split("it takes ")[1].split(".")[0].split(", "):
        required = "&master=m" if "sentinel" in scheme and name != "master" else ""
        value = values.get(name, "0" if name == "db" else "1")
        store = await open_store(f"{scheme}://127.0.0.1:1?{name}={value}{required}")
        await asyncio.wait_for(store.close(), 60)
