"""What the Redis store keeps where: its keys, and that what is forgotten leaves none."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.crc import key_slot
from redis.exceptions import ConnectionError

from service.errors import LearnerGone, StoreUnavailable
from service.storage.redis import redis_store as redis
from service.storage.redis.key_names import KeyNames
from service.storage.redis.redis_store import STAGED_SECONDS, RedisStore
from service.storage.redis.scripts import RETAIN, Script
from service.storage.store_protocol import LogHead, ServedCounts, ServedLimits
from tests.harness.redis_server import RedisServer
from tests.harness.store_records import BIRTH, event, events, filled, labels_of, record, served, token


@pytest.fixture
async def store(redis_server: RedisServer) -> AsyncIterator[RedisStore]:
    store = RedisStore(redis_server.url)
    yield store
    await store.close()


async def test_all_keys_of_a_learner_are_in_one_slot(
    store: RedisStore, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis, "SNAPSHOT_PART", 3)
    for name in ("fraud-EU_2.v1", "a}b{c"):
        await filled(store, 5, name)
        await store.save(name, BIRTH, 4, b"in parts", 2, trim=False)
        await store.serve(name, BIRTH, record(6), 1, events(0, 5), ServedLimits(3, 99, -math.inf))
        await store.labelled(name, BIRTH, labels_of(["4"]))
        local = redis_server.key_names() - {KeyNames().learners}
        assert len(local) == 8 + 3
        assert len({key_slot(key.encode()) for key in local}) == 1
        await store.delete(name, BIRTH)
        assert redis_server.key_names() == {KeyNames().deleted}
        redis_server.flush()


async def test_deleted_data_leaves_no_key(
    store: RedisStore, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis, "SNAPSHOT_PART", 3)
    await filled(store, 9)
    parts = {}
    for position in (4, 6, 8, 8, 2):
        await store.save("a", BIRTH, position, b"in parts", 2, trim=True)
        parts[position] = len([key for key in redis_server.key_names() if ":part:" in key])
    assert parts == {4: 3, 6: 6, 8: 6, 2: 6}
    with pytest.raises(StoreUnavailable):
        await store.save("a", BIRTH, 99, b"in parts", 2, trim=True)
    with pytest.raises(LearnerGone):
        await store.save("a", token(9), 8, b"in parts", 2, trim=True)
    left = [key for key in redis_server.key_names() if ":part:" in key]
    assert len(left) == 6
    assert {redis_server.command("TTL", key) for key in left} == {-1}  # what is retained does not expire
    assert redis_server.command("ZCARD", "rarestream:{a}:tokens") == 3
    assert redis_server.command("XLEN", "rarestream:{a}:log") == 3


async def test_events_without_a_tombstone_use_no_memory(store: RedisStore, redis_server: RedisServer) -> None:
    await store.create("a", BIRTH, b"")
    for number in range(100):
        await store.serve(
            "a", BIRTH, record(number + 2), 1, events(number, number + 3), ServedLimits(5, 999, -math.inf)
        )
    holder = [("XLEN", "served"), ("HLEN", "ids"), ("LLEN", "dropped"), ("HLEN", "histories")]
    assert [redis_server.command(command, f"rarestream:{{a}}:{key}") for command, key in holder] == [5, 10, 5, 0]
    await store.labelled("a", BIRTH, labels_of([str(number) for number in range(102)]))
    assert redis_server.command("HLEN", "rarestream:{a}:histories") == 5
    await store.serve("a", BIRTH, record(200), 1, [], ServedLimits(0, 999, -math.inf))
    assert [redis_server.command(command, f"rarestream:{{a}}:{key}") for command, key in holder] == [0, 0, 0, 0]


async def test_leftovers_of_an_older_release_do_not_reach_a_new_learner(
    store: RedisStore, redis_server: RedisServer
) -> None:
    await served(store, events(0, 5))
    await store.labelled("a", BIRTH, labels_of(["1"]))
    await store.serve("a", BIRTH, record(9), 1, [], ServedLimits(4, 999, -math.inf))
    redis_server.command("DEL", *(f"rarestream:{{a}}:{key}" for key in ("meta", "log", "tokens", "snapshots")))
    await served(store, events(3, 6))
    assert await store.recall("a", BIRTH, ["0", "1", "5"]) == [None, None, event(5)]
    assert await store.pending("a", BIRTH) == ServedCounts(3, 33, 0, 0)


async def test_labels_of_an_earlier_release_count(store: RedisStore, redis_server: RedisServer) -> None:
    await served(store, events(0, 3))
    redis_server.command("SADD", "rarestream:{a}:labels", "2")
    assert await store.labels("a", BIRTH, ["0", "1", "2"]) == [None, [], None]
    assert (await store.served("a", BIRTH, 9)).labels == [None, [], None]
    assert (await store.expired("a", BIRTH, 99.0, 9)).labelled == [False, True, False]
    await store.labelled("a", BIRTH, labels_of(["1"]))
    assert await store.labels("a", BIRTH, ["1"]) == [labels_of([""])[""]]
    await store.serve("a", BIRTH, record(3), 1, [event(1)], ServedLimits(9, 999, -math.inf))
    assert await store.labels("a", BIRTH, ["1"]) == [None]


async def test_parts_of_an_incomplete_snapshot_expire(
    store: RedisStore, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(store, 3)
    run = store._run

    async def cut(script: Script, *args: Any) -> Any:
        if script is RETAIN:
            raise ConnectionError("cut")
        return await run(script, *args)

    monkeypatch.setattr(store, "_run", cut)
    with pytest.raises(StoreUnavailable, match="cut"):
        await store.save("a", BIRTH, 2, b"two", 2, trim=True)
    (part,) = [key for key in redis_server.key_names() if ":part:" in key]
    remaining = redis_server.command("TTL", part)
    assert isinstance(remaining, int)
    assert 0 < remaining <= STAGED_SECONDS
    assert await store.load("a", BIRTH) is None


async def test_a_crash_during_creation_does_not_prevent_a_new_creation(
    store: RedisStore, redis_server: RedisServer
) -> None:
    redis_server.command("SADD", KeyNames().learners, f"{token(5).hex()}:a")  # listed, and then the node died
    assert await store.heads() == {}
    assert await store.create("a", BIRTH, b"") == LogHead(BIRTH, 1)
    assert await store.heads() == {"a": LogHead(BIRTH, 1)}
    assert await store.create("b", token(6), b"") == LogHead(token(6), 1)
    assert await store.create("b", token(7), b"") == LogHead(token(6), 1)
    assert redis_server.command("SCARD", KeyNames().learners) == 3  # the loser of a race has gone


async def test_heads_reads_many_learners_in_steps(store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis, "LISTED", 3)
    for number in range(10):
        await store.create(f"learner-{number}", token(number), b"")
    assert await store.heads() == {f"learner-{number}": LogHead(token(number), 1) for number in range(10)}
