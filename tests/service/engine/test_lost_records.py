"""A store that has lost acknowledged records: tokens show it, and nodes begin again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from service.engine.engine import Engine
from service.errors import BehindLog, LostRecords
from service.storage.memory import MemoryStore
from service.storage.open_store import open_store
from service.storage.redis.redis_store import RedisStore
from service.storage.store_protocol import LogEntry, Store
from tests.harness.log_records import logged_data
from tests.harness.nodes import T0, digest, posted, replayed, serving
from tests.harness.redis_fleet import watched
from tests.harness.redis_server import RedisServer
from tests.harness.store_records import BIRTH, filled, record, token, whole_log
from tests.harness.waiting import eventually, eventually_async

pytestmark = pytest.mark.integration

DENSE = {"algorithm": "loam-ada", "features": {"kind": "dense", "dim": 3}}


@asynccontextmanager
async def following_by_hand(store: Store, **settings: Any) -> AsyncIterator[tuple[httpx.AsyncClient, Engine]]:
    """Run a node that follows the store by `caught_up` only, so that a test decides who notices a loss."""
    async with serving(store, **settings) as (http, node):
        await node.sync.stop()
        yield http, node


# What every store says of it


async def test_a_log_containing_the_known_record_continues(store: Store) -> None:
    log = await filled(store, 4)
    assert await store.token("a", BIRTH, 1) == BIRTH
    assert await store.token("a", BIRTH, 4) == token(4)
    assert await store.read("a", BIRTH, 2, 9, token(2)) == log[2:]
    assert await store.append("a", BIRTH, [record(5)], 4, token(4)) == [LogEntry(5, *record(5))]
    assert await store.append("a", BIRTH, [record(5)], 4, token(4)) == [LogEntry(5, *record(5))]
    await store.save("a", BIRTH, 3, b"three", 2, trim=True, expected_token=token(3))
    assert await store.append("a", BIRTH, [record(6)], 3, token(3)) == [
        *(LogEntry(number, *record(number)) for number in (4, 5, 6))
    ]
    with pytest.raises(BehindLog):
        await store.read("a", BIRTH, 2, 9, token(2))


async def test_a_log_with_other_records_is_detected_and_not_written(store: Store) -> None:
    log = await filled(store, 4)
    with pytest.raises(LostRecords, match=r"\b3\b.*\ba\b"):
        await store.append("a", BIRTH, [record(5)], 3, token(9))
    with pytest.raises(LostRecords):
        await store.append("a", BIRTH, [record(5)], 3, token(4))  # a record of it, elsewhere
    with pytest.raises(LostRecords):
        await store.read("a", BIRTH, 4, 9, token(9))
    with pytest.raises(LostRecords):
        await store.save("a", BIRTH, 4, b"four", 2, trim=True, expected_token=token(9))
    assert await store.snapshots("a", BIRTH) == []
    assert await whole_log(store) == log


async def test_a_log_ending_too_early_is_detected(store: Store) -> None:
    log = await filled(store, 4)
    for call in (
        store.append("a", BIRTH, [record(7)], 6, token(6)),
        store.append("a", BIRTH, [record(7)], 6),
        store.read("a", BIRTH, 6, 9, token(6)),
        store.save("a", BIRTH, 6, b"six", 2, trim=True, expected_token=token(6)),
        store.token("a", BIRTH, 6),
    ):
        with pytest.raises(LostRecords, match=r"\b6\b.*\ba\b.*\b4\b"):
            await call
    assert await whole_log(store) == log


# What is Redis's


@pytest.fixture
async def redis_store(redis_server: RedisServer) -> AsyncIterator[RedisStore]:
    store = RedisStore(redis_server.url)
    yield store
    await store.close()


async def test_the_last_trimmed_record_is_remembered(redis_store: RedisStore) -> None:
    store = redis_store
    await filled(store, 4)
    await store.save("a", BIRTH, 4, b"four", 2, trim=True)
    assert await store.token("a", BIRTH, 4) == token(4)
    for refused in (
        store.append("a", BIRTH, [record(5)], 4, token(9)),
        store.read("a", BIRTH, 4, 9, token(9)),
        store.save("a", BIRTH, 4, b"other", 2, trim=True, expected_token=token(9)),
    ):
        with pytest.raises(LostRecords):
            await refused
    assert await store.append("a", BIRTH, [record(5)], 4, token(4)) == [LogEntry(5, *record(5))]
    assert await store.load("a", BIRTH) == (4, b"four")


async def test_a_snapshot_beyond_the_log_is_removed_with_the_next_one(
    redis_store: RedisStore, redis_server: RedisServer
) -> None:
    store = redis_store
    await filled(store, 4)
    backup = copied(redis_server)
    await store.append("a", BIRTH, [record(5), record(6)], 4)
    await store.save("a", BIRTH, 6, b"six", 1, trim=False)
    put_back(redis_server, backup, but=":snapshots")
    with pytest.raises(LostRecords):
        await store.token("a", BIRTH, 6)
    await store.save("a", BIRTH, 3, b"three", 1, trim=True, expected_token=token(3))
    assert [info.position for info in await store.snapshots("a", BIRTH)] == [3]
    assert [key for key in redis_server.key_names() if ":part:" in key and redis_server.command("TTL", key) != -1] == []
    assert await store.append("a", BIRTH, [record(7)], 4, token(4)) == [LogEntry(5, *record(7))]


def copied(server: RedisServer) -> dict[str, Any]:
    """Return a copy of the store's content."""
    return {key: server.command("DUMP", key) for key in server.key_names()}


def put_back(server: RedisServer, backup: dict[str, Any], but: str = "nothing") -> None:
    """Restore a copy, like a fail-over to a replica that lacks later writes."""
    for key in server.key_names():
        if not key.endswith(but) and ":part:" not in key:
            server.command("DEL", key)
    for key, value in backup.items():
        server.command("RESTORE", key, 0, value, "REPLACE")


# Nodes


def events(start: int, stop: int, label: int | None = None) -> list[dict[str, Any]]:
    return [
        {"id": f"{label}-{i}", "x": [i % 7, i % 3, 1], "label": i % 4 == 0 if label is None else label, "time": T0 + i}
        for i in range(start, stop)
    ]


URL = "/learners/a/update"


@pytest.mark.parametrize("others", [0, 3, 20], ids=["none", "as many", "more"])
@pytest.mark.parametrize("quiet", [False, True], ids=["by an update", "by following"])
async def test_a_node_ahead_of_the_log_restarts_from_the_log(
    others: int, quiet: bool, redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Either nobody has appended since, or another node has, up to this node's position or beyond."""
    first, second = RedisStore(redis_server.url), RedisStore(redis_server.url)
    async with (
        following_by_hand(first, trim_log=False) as (http, node),
        following_by_hand(second, trim_log=False) as (other, peer),
    ):
        assert (await http.put("/learners/a", json=DENSE)).status_code == 201
        await posted(http, URL, events(0, 20))
        backup = copied(redis_server)
        for i in range(3):  # acknowledged, applied, saved, and lost
            await posted(http, URL, events(20 + i, 21 + i))
        await http.post("/learners/a/snapshots")
        put_back(redis_server, backup)
        await caught_up(peer)
        for i in range(others):
            await posted(other, URL, events(100 + i, 101 + i, label=1))
        with caplog.at_level(logging.ERROR, "rarestream.log"):
            if quiet:
                await caught_up(node)
            else:
                reply = await posted(http, URL, events(200, 201))
                assert reply["applied"] == 1
        assert (5, 1) in [data[1:] for data in logged_data(caplog, "rarestream.log", "ERROR")]  # of this node
        assert node.node.timings.rewound == 1
        assert await digest(http) == await replayed(first)
        again = await posted(http, URL, events(20, 23))  # the log has none of them, so they are new to it
        assert again["applied"] == 3
        assert await digest(http) == await replayed(first)
        text = (await http.get("http://rarestream/metrics")).text
        assert "rarestream_log_rewound_total 1.0" in text
        await caught_up(peer)
        assert await digest(other) == await replayed(first)


async def caught_up(engine: Engine) -> None:
    """Let a node catch up with the store."""
    await engine.sync.check_heads()
    await engine.get("a").log.catch_up()


async def test_a_snapshot_of_lost_records_is_not_kept(redis_server: RedisServer) -> None:
    first, second = RedisStore(redis_server.url), RedisStore(redis_server.url)
    async with following_by_hand(first) as (http, node), following_by_hand(second) as (other, peer):
        assert (await http.put("/learners/a", json=DENSE)).status_code == 201
        await posted(http, URL, events(0, 20))
        backup = copied(redis_server)
        await posted(http, URL, events(20, 30))
        put_back(redis_server, backup)
        await caught_up(peer)
        saved = asyncio.Event()  # until then the first node does not follow, so it finds no loss before it saves
        node.get("a").mailbox.submit(saved.wait)
        await posted(other, URL, events(100, 110, label=1))
        with pytest.raises(LostRecords):
            await node.get("a").snapshots._save()
        saved.set()
        assert await first.snapshots("a", node.get("a").birth) == []
        reply = await http.post("/learners/a/snapshots")  # which reads on before
        assert reply.status_code == 201, reply.text
        await caught_up(peer)
        assert await digest(http) == await digest(other)
        assert [info.position for info in await first.snapshots("a", node.get("a").birth)] == [3]


@pytest.mark.parametrize("follows", [True, False], ids=["it follows directly", "others in between"])
async def test_lost_served_events_are_released(
    follows: bool, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """If the next record was applied already, the node begins again; else no record follows."""
    store = RedisStore(redis_server.url)
    budget = {**DENSE, "threshold": {"objective": "budget", "alerts": 7}}
    async with following_by_hand(store) as (http, node):
        assert (await http.put("/learners/a", json=budget)).status_code == 201
        await posted(http, URL, events(0, 20))
        replica, serve, backup = node.get("a"), store.serve, copied(redis_server)

        async def fail(*value: Any) -> Any:
            result = await serve(*value)
            put_back(redis_server, backup)
            return result if follows else result._replace(before=b"")

        monkeypatch.setattr(store, "serve", fail)
        await posted(http, "/learners/a/predict", [{"id": "q", "x": [1, 2, 3], "time": T0 + 30}])
        monkeypatch.setattr(store, "serve", serve)
        await caught_up(node)
        await eventually_async(lambda: replica.idle and not replica.served_events.busy)
        lost_in_flight = logged_data(caplog, "rarestream.serving", "ERROR")
        rewound = [data[1:] for data in logged_data(caplog, "rarestream.log", "ERROR")]
        assert (lost_in_flight, rewound) == (([], [(3, 1)]) if follows else ([("1 record", "a")], []))
        await posted(http, "/learners/a/predict", [{"id": "r", "x": [1, 2, 3], "time": T0 + 30}])
        await caught_up(node)
        assert not replica.served_events.busy
        counts = [len(logged_data(caplog, name, "ERROR")) for name in ("rarestream.serving", "rarestream.log")]
        assert counts == [int(not follows), int(follows)]
        assert await digest(http) == await replayed(store)


async def test_a_group_ahead_of_its_log_restarts_too(redis_server: RedisServer) -> None:
    first, second = RedisStore(redis_server.url), RedisStore(redis_server.url)
    group = "/groups/g/update"
    async with following_by_hand(first) as (http, node), following_by_hand(second) as (_, peer):
        for name in ("a", "b"):
            assert (await http.put(f"/learners/{name}", json=DENSE)).status_code == 201
        assert (await http.put("/groups/g", json={"learners": ["a", "b"]})).status_code == 201
        await posted(http, group, events(0, 20))
        backup = copied(redis_server)
        for i in range(3):
            await posted(http, group, events(20 + i, 21 + i))
        before = (await http.get("/groups/g/compare")).json()
        put_back(redis_server, backup)
        for i in range(3):  # to the same position, by other events
            await posted(http, group, events(100 + i, 101 + i, label=1))
        document = (await http.get("/groups/g/compare")).json()
        assert (document["position"], document != before) == (before["position"], True)
        await peer.sync.check_heads()
        for hosts in (node, peer):
            await (await hosts.group("g")).log.catch_up()
        assert await (await node.group("g")).log.digest() == await (await peer.group("g")).log.digest()
        assert node.node.timings.rewound == 3  # the group, and its two learners


async def test_a_failover_losing_records_needs_no_restart() -> None:
    """Sentinel promotes a replica that had stopped following, so only later acknowledged records are lost."""
    with watched() as servers:
        first, second = await open_store(servers.url), await open_store(servers.url)
        quick = {"follow_seconds": 0.1, "trim_log": False}
        async with serving(first, **quick) as (http, node), serving(second, **quick) as (other, peer):
            assert (await http.put("/learners/a", json=DENSE)).status_code == 201
            await posted(http, URL, events(0, 20))
            await caught_up(peer)
            old, new = servers.master, servers.replica
            eventually(lambda: new.command("XLEN", "rarestream:{a}:log") == 2, "a replica that has it")
            new.command("REPLICAOF", "127.0.0.1", 1)
            for i in range(5):
                await posted(http, URL, events(20 + i, 21 + i))
            old.kill()
            await asyncio.to_thread(servers.failed_over, old)
            for client in (other, http):
                await eventually_async(lambda client=client: accepts(client))  # type: ignore[misc]
            position, result = await digest(http)
            assert (position, result) == await replayed(first)
            await caught_up(peer)
            assert await digest(other) == (position, result)
            assert node.node.timings.rewound == 1
        await first.close()
        await second.close()


async def accepts(client: httpx.AsyncClient) -> bool:
    """Tell whether an update succeeds; until then it is refused as one that may be repeated."""
    reply = await client.post(URL, json={"events": events(300, 305)})
    assert reply.status_code in {200, 503}
    return reply.status_code == 200


async def test_a_snapshot_overtaken_by_another_node_is_not_reported_as_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    """The snapshot falls behind while it is written, and the reply names the newer one."""
    store = MemoryStore()
    settings: dict[str, Any] = {"snapshots_kept": 1, "trim_log": True}
    async with serving(store, **settings) as (http, _), serving(store, **settings) as (other, _):
        assert (await http.put("/learners/a", json=DENSE)).status_code == 201
        await posted(http, URL, events(0, 20))
        save = store.save
        overtaking: dict[str, Any] = {}

        async def overtaken(*value: Any) -> bool:
            monkeypatch.setattr(store, "save", save)
            await posted(other, URL, events(20, 40))
            overtaking.update((await other.post("/learners/a/snapshots")).json())
            return await save(*value)

        async def unheard(*_: Any) -> None:
            """Drop the announcements of snapshots, on which no node may rely."""

        monkeypatch.setattr(store, "publish", unheard)
        monkeypatch.setattr(store, "save", overtaken)
        reply = await http.post("/learners/a/snapshots")
        assert reply.status_code == 201
        listed = (await other.get("/learners/a/snapshots")).json()["snapshots"]
        assert [item["position"] for item in listed] == [overtaking["position"]] == [reply.json()["position"]] == [3]
