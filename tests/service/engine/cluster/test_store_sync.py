"""Nodes follow each other at once, and one of them takes the snapshots."""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest

from learners.config import Config
from service.engine.cluster import store_sync
from service.engine.engine import Engine
from service.errors import BeyondLog, LearnerGone, PositionNotReached, StoreUnavailable
from service.settings import Settings
from service.storage.memory import MemoryStore
from service.storage.redis.key_names import LEASE_KEY, KeyNames
from service.storage.redis.redis_store import RedisStore
from service.storage.store_protocol import LogHead, LogNotice, Store
from tests.harness.apps import DENSE, events
from tests.harness.fixtures import Opener
from tests.harness.log_records import logged_data
from tests.harness.nodes import app_over, digest, node, posted, serving
from tests.harness.redis_server import RedisServer
from tests.harness.waiting import eventually_async
from tests.harness.websocket import websocket
from tests.service.engine.test_engine import batch_of

pytestmark = pytest.mark.integration

SLOW = {"follow_seconds": 3600}  # nothing is found by looking


def deaf(engine: Engine) -> None:
    """Stop the node from following the store."""
    assert engine.sync.task is not None
    engine.sync.task.cancel()


# Following


async def test_a_node_is_notified_of_changes_by_another(open_again: Opener, kind: str) -> None:
    settings = SLOW if kind != "sqlite" else {"follow_seconds": 60}
    async with node(await open_again(), **settings) as first, node(await open_again(), **settings) as second:
        local, _ = await first.create("a", Config.of(DENSE))
        await eventually_async(lambda: "a" in second.replicas)
        remote = second.get("a")
        for i in range(5):
            await local.label(batch_of(3, 3 * i))
            await eventually_async(lambda: remote.position == local.position)
        await remote.label(batch_of(3, 15))
        await eventually_async(lambda: remote.position == local.position)
        assert await remote.log.digest() == await local.log.digest()
        await second.delete("a")
        await eventually_async(lambda: "a" not in first.replicas)


async def test_a_node_is_notified_of_group_changes(open_again: Opener) -> None:
    async with serving(await open_again(), **SLOW) as (http, _), node(await open_again(), **SLOW) as two:
        for name in "ab":
            assert (await http.put(f"/learners/{name}", json=DENSE)).status_code == 201
        assert (await http.put("/groups/both", json={"learners": ["a", "b"]})).status_code == 201
        reply = await http.post("/groups/both/update", json={"events": events(5)})
        assert reply.status_code == 200
        await eventually_async(lambda: "both" in two.groups and two.groups["both"].position == reply.json()["position"])


async def test_a_node_is_notified_of_served_events(open_again: Opener) -> None:
    async with serving(await open_again(), **SLOW) as (http, first), node(await open_again(), **SLOW) as second:
        await http.put("/learners/a", json=DENSE)
        await posted(http, "/learners/a/predict", [{"id": "x", "x": [1, 2, 3]}])
        await eventually_async(
            lambda: "a" in second.replicas and second.get("a").position == first.get("a").position == 2
        )


async def test_notifications_do_not_load_evicted_learners(open_again: Opener) -> None:
    resident = {**SLOW, "max_resident": 1}
    async with node(await open_again(), **SLOW) as first, node(await open_again(), **resident) as second:
        names = "abcd"
        for name in names:
            await first.create(name, Config.of(DENSE))
        await eventually_async(lambda: {*second.replicas, *second.evicted} == {*names})
        sleeping = set(second.evicted)
        assert len(sleeping) == 3
        for i in range(3):
            for name in names:
                await first.get(name).label(batch_of(3, 3 * i))
        (awake,) = second.replicas
        await eventually_async(lambda: second.get(awake).position == first.get(awake).position)
        assert set(second.evicted) == sleeping
        result = await second.load(sleeping.pop())
        assert await result.log.digest() == await first.get(result.name).log.digest()


async def test_changes_without_notification_are_found_by_polling() -> None:
    class Mute(MemoryStore):
        async def publish(self, node: bytes, moved: Any) -> None:  # noqa: ARG002
            raise StoreUnavailable("nobody hears this")

    first = Mute()
    async with node(first, follow_seconds=0.05) as node_a, node(MemoryStore(like=first), follow_seconds=0.05) as node_b:
        local, _ = await node_a.create("a", Config.of(DENSE))
        await local.label(batch_of(5))
        await eventually_async(lambda: "a" in node_b.replicas and node_b.get("a").position == local.position)


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
async def test_a_sqlite_node_checks_the_logs_after_writes_of_other_processes(
    open_again: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_again()
    looks = 0
    heads, head = store.heads, store.head

    async def counted() -> dict[str, LogHead]:
        nonlocal looks
        looks += 1
        return await heads()

    checked = asyncio.Event()

    async def probed(name: str) -> LogHead | None:
        checked.set()
        return await head(name)

    monkeypatch.setattr(store, "heads", counted)
    monkeypatch.setattr(store, "head", probed)
    async with node(store, follow_seconds=0.05) as first:
        local, _ = await first.create("a", Config.of(DENSE))
        for i in range(5):
            await local.label(batch_of(1, i))
        await eventually_async(lambda: looks >= 1)  # as at first nobody knows what others did
        checked.clear()
        await asyncio.wait_for(checked.wait(), 300)  # instead of looking it asks whether the store is there
        async with node(await open_again(), **SLOW) as second:
            before = looks
            await second.create("b", Config.of(DENSE))
            await eventually_async(lambda: "b" in first.replicas)
            assert looks > before
        monkeypatch.setattr(store_sync, "_QUIET", 1.0)
        before = looks
        await eventually_async(lambda: looks > before + 1)  # and now and then in any case


async def test_a_node_keeps_polling_after_notifier_failures() -> None:
    class Broken(MemoryStore):
        broken = 0

        async def poll(self, node: bytes, after: bytes, seconds: float) -> tuple[bytes, dict[str, LogNotice] | None]:
            self.broken += 1
            if self.broken in (2, 3):
                raise StoreUnavailable("away")
            return await super().poll(node, after, seconds)

    first = MemoryStore()
    async with node(first, **SLOW) as node_a, node(Broken(like=first), follow_seconds=0.2) as node_b:
        local, _ = await node_a.create("a", Config.of(DENSE))
        for i in range(20):
            await local.label(batch_of(1, i))
            await eventually_async(lambda: "a" in node_b.replicas and node_b.get("a").position == local.position)


async def test_an_unreachable_store_is_reported_occasionally(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Away(MemoryStore):
        away = True

        async def heads(self) -> dict[str, LogHead]:
            if self.away:
                raise StoreUnavailable("unreachable")
            return await super().heads()

    monkeypatch.setattr(store_sync, "_WARN_SECONDS", 0.05)
    store = Away()
    async with node(store, follow_seconds=0.01) as observer:

        def count_warnings() -> int:
            return sum(data[-1] == "unreachable" for data in logged_data(caplog, "rarestream.sync", "WARNING"))

        await eventually_async(lambda: count_warnings() > 3)
        assert any(len(data) == 2 for data in logged_data(caplog, "rarestream.sync", "WARNING"))  # with the seconds
        store.away = False
        await eventually_async(lambda: observer.ready)
        before = count_warnings()
        await asyncio.sleep(0.2)
        assert count_warnings() == before


# Snapshots


async def test_one_node_takes_snapshots_and_the_others_count_from_them(open_again: Opener, kind: str) -> None:
    settings = {"follow_seconds": 0.05, "snapshot_events": 20, "snapshot_seconds": 3600, "snapshots_kept": 3}
    stores = [await open_again() for _ in range(3)]
    async with AsyncExitStack() as running:
        engines = [await running.enter_async_context(node(store, **settings)) for store in stores]
        await engines[0].create("a", Config.of(DENSE))
        await eventually_async(lambda: all("a" in engine.replicas for engine in engines))
        hosts = [engine.get("a") for engine in engines]
        for i in range(30):
            position = (await hosts[i % 3].label(batch_of(5, 5 * i))).position
            await eventually_async(lambda at=position: all(host.position == at for host in hosts))

        def snapshots() -> int:
            return sum(engine.node.timings.store["save"].count for engine in engines)

        await eventually_async(lambda: all(not host.snapshots._writing for host in hosts))
        assert snapshots() <= 150 // 20 + 1
        retained = await stores[0].snapshots("a", hosts[0].birth)
        assert len(retained) == 3
        if kind != "sqlite":  # whose nodes hear of snapshots when one of their own is due
            newest = retained[0].position
            await eventually_async(
                lambda: all(store.snapshots.newest and store.snapshots.newest.position == newest for store in hosts)
            )
            after = 150 - 5 * (newest - 1)
            assert [host.snapshots.unsaved for host in hosts] == [after] * 3


async def test_another_node_takes_snapshots_if_the_lease_holder_is_gone(open_again: Opener, monkeypatch) -> None:
    monkeypatch.setattr("service.engine.replica.lease._SECONDS", 0.5)
    settings = {"follow_seconds": 0.05, "snapshot_events": 10, "snapshot_seconds": 3600}
    async with AsyncExitStack() as running:
        async with node(await open_again(), **settings) as first:
            local, _ = await first.create("a", Config.of(DENSE))
            await local.label(batch_of(10))
            await eventually_async(lambda: local.snapshots.newest is not None)  # with the lease
            second = await running.enter_async_context(node(await open_again(), **settings))
            await eventually_async(lambda: "a" in second.replicas and second.get("a").position == local.position)
        remote = second.get("a")
        position = (await remote.label(batch_of(20, 10))).position
        await eventually_async(lambda: remote.mailbox.wake() or remote.snapshots.newest is not None)
        await eventually_async(lambda: (remote.mailbox.wake() or remote.snapshots.newest.position) == position)


async def test_snapshots_go_on_if_the_clock_of_redis_steps_back_during_the_lease_of_a_dead_node(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.engine.replica.lease._SECONDS", 0.5)
    store = RedisStore(redis_server.url)
    async with node(store, follow_seconds=0.05, snapshot_events=10) as engine:
        replica, _ = await engine.create("a", Config.of(DENSE))
        assert await store.lease("a", replica.birth, b"another node, 16", 10.0)
        assert redis_server.command("PEXPIRE", KeyNames().of("a", LEASE_KEY), 7_205_000) == 1
        start = time.monotonic()
        monkeypatch.setattr(store.leases, "_clock", lambda: start)
        await replica.label(batch_of(10))
        assert not await replica.lease.take()
        monkeypatch.setattr(store.leases, "_clock", lambda: start + 10.1)
        await eventually_async(lambda: replica.mailbox.wake() or replica.snapshots.newest is not None)
    await store.close()


async def test_a_snapshot_ahead_of_this_node_counts_from_its_position(open_again: Opener) -> None:
    async with node(await open_again(), **SLOW) as first, node(await open_again(), **SLOW) as second:
        local, _ = await first.create("a", Config.of(DENSE))
        await eventually_async(lambda: "a" in second.replicas)
        deaf(second)
        remote = second.get("a")
        for i in range(4):
            await local.label(batch_of(5, 5 * i))
        info = await local.snapshots.save()
        await local.label(batch_of(7, 20))
        remote.snapshots.note_foreign(info)
        assert remote.snapshots.unsaved == 0
        await remote.log.catch_up()
        assert remote.snapshots.unsaved == local.snapshots.unsaved == 7


async def test_a_stopping_node_releases_its_lease(open_again: Opener) -> None:
    keeping = await open_again()
    item = Engine(await open_again(), Settings(store="memory:"))
    await item.start()
    local, _ = await item.create("a", Config.of(DENSE))
    await local.label(batch_of(5))
    await item.stop()
    assert [snapshot.position for snapshot in await keeping.snapshots("a", local.birth)] == [2]
    assert await keeping.lease("a", local.birth, b"another node, 16", 60.0)


# Reading what was written elsewhere


async def test_a_predict_waits_for_the_requested_position(open_again: Opener) -> None:
    async with (
        serving(await open_again(), **SLOW) as (local, _),
        serving(await open_again(), **SLOW) as (remote, second),
    ):
        await local.put("/learners/a", json=DENSE)
        await eventually_async(lambda: "a" in second.replicas)
        deaf(second)
        for i in range(5):
            position = (await posted(local, "/learners/a/update", events(4, 4 * i)))["position"]
            first = (await posted(local, "/learners/a/predict", [{"x": [1, 2, 3]}]))["results"]
            predictions = await posted(remote, f"/learners/a/predict?at_least={position}", [{"x": [1, 2, 3]}])
            assert (predictions["position"], predictions["results"]) == (position, first)
        for i, path in enumerate(("", "/metrics", "/digest", "/weights"), 5):
            position = (await posted(local, "/learners/a/update", events(4, 4 * i)))["position"]
            reply = await remote.get(f"/learners/a{path}?at_least={position}")
            assert reply.status_code == 200
            assert reply.json()["position"] == position
        reply = await remote.post(
            f"/learners/a/predict?at_least={position}&explain=1",
            content=b'{"x": [1, 2, 3]}\n',
            headers={"content-type": "application/x-ndjson"},
        )
        assert reply.status_code == 200
        assert b'"done":true' in reply.content
        assert await digest(local) == await digest(remote)


async def test_a_position_after_a_rollback_is_a_later_one(open_again: Opener) -> None:
    async with serving(await open_again(), **SLOW) as (local, _), serving(await open_again(), **SLOW) as (remote, two):
        await local.put("/learners/a", json=DENSE)
        await eventually_async(lambda: "a" in two.replicas)
        deaf(two)
        await posted(local, "/learners/a/update", events(10))
        saved = (await local.post("/learners/a/snapshots")).json()["position"]
        before = (await posted(local, "/learners/a/update", events(10, 10)))["position"]
        restored = (await local.post(f"/learners/a/snapshots/{saved}/restore")).json()["position"]
        assert restored == before + 1
        seen = (await remote.get(f"/learners/a?at_least={restored}")).json()
        assert (seen["position"], seen["events"]) == (restored, 10)
        after = (await posted(remote, "/learners/a/update", events(1, 30)))["position"]
        assert after == restored + 1
        assert (await local.get(f"/learners/a/digest?at_least={after}")).json()["position"] == after
        assert await digest(local) == await digest(remote)


async def test_a_position_beyond_the_log_differs_from_one_not_yet_learnt(store: Store) -> None:
    async with serving(store, at_least_seconds=0.1, **SLOW) as (http, engine):
        await http.put("/learners/a", json=DENSE)
        await posted(http, "/learners/a/update", events(5))
        for path in ("/predict", "/digest"):
            ask = http.get if path == "/digest" else http.post
            reply = await ask(f"/learners/a{path}?at_least=3")
            assert (reply.status_code, reply.json()["code"]) == (409, "beyond-log")
            assert re.search(r"\b2\b.*\b3\b", reply.json()["detail"])
        learner = engine.get("a")
        going_on = asyncio.Event()
        resting = asyncio.ensure_future(learner.mailbox.run(going_on.wait))  # as if it learnt for long
        await asyncio.sleep(0)
        await store.append("a", learner.birth, [(b"t" * 16, b"rubbish")], 2)
        reply = await http.post("/learners/a/predict?at_least=3")
        assert (reply.status_code, reply.json()["code"], reply.headers["retry-after"]) == (503, "behind", "1")
        going_on.set()
        await resting
        reply = await http.post("/learners/a/predict?at_least=3")
        assert (reply.status_code, reply.json()["code"]) == (500, "damaged")
        assert learner.failure is not None


async def test_a_waiting_caller_is_informed_of_a_deletion(open_again: Opener) -> None:
    async with (
        node(await open_again(), **SLOW) as first,
        node(await open_again(), at_least_seconds=60, **SLOW) as second,
    ):
        await first.create("a", Config.of(DENSE))
        await eventually_async(lambda: "a" in second.replicas)
        waiting = asyncio.create_task(second.get("a").log.wait_for(99))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await first.delete("a")
        with pytest.raises(LearnerGone):
            await waiting


async def test_a_waiting_caller_is_served_when_the_learner_arrives(open_again: Opener) -> None:
    async with (
        node(await open_again(), **SLOW) as first,
        node(await open_again(), at_least_seconds=60, **SLOW) as second,
    ):
        local, _ = await first.create("a", Config.of(DENSE))
        await eventually_async(lambda: "a" in second.replicas)
        remote = second.get("a")
        waiting = [asyncio.create_task(remote.log.wait_for(local.position + 1 + i)) for i in range(3)]
        for i in range(3):
            await asyncio.sleep(0.02)
            assert not waiting[i].done()
            await local.label(batch_of(1, i))
            await waiting[i]
        with pytest.raises((PositionNotReached, BeyondLog)):
            async with node(await open_again(), at_least_seconds=0.05, **SLOW) as hasty:
                await hasty.get("a").log.wait_for(99)


@pytest.mark.parametrize("position", ["0", "-1", "x", "1.5", "", str(2**53 + 1)])
async def test_an_invalid_position_is_refused(position: str) -> None:
    async with serving(MemoryStore(), **SLOW) as (http, _):
        await http.put("/learners/a", json=DENSE)
        for reply in (
            await http.post(f"/learners/a/predict?at_least={position}", json={"events": [{"x": [1, 2, 3]}]}),
            await http.get(f"/learners/a/digest?at_least={position}"),
        ):
            assert reply.status_code == 422
            assert reply.json()["errors"][0]["pointer"] == "/at_least"
        reply = await http.post("/learners/a/update?at_least=1", json={"events": events(1)})
        assert reply.status_code == 422


async def test_a_websocket_message_waits_for_a_position(open_again: Opener) -> None:
    async with (
        node(await open_again(), **SLOW) as first,
        node(await open_again(), at_least_seconds=0.2, **SLOW) as second,
    ):
        local, _ = await first.create("a", Config.of(DENSE))
        await eventually_async(lambda: "a" in second.replicas)
        deaf(second)
        async with websocket(app_over(second), "/v1/learners/a/ws") as client:
            for i in range(3):
                position = (await local.label(batch_of(4, 4 * i))).position
                client.send({"seq": i, "op": "predict", "events": [{"x": [1, 2, 3]}], "at_least": position})
                assert (await client.reply())["position"] == position
            client.send({"seq": 7, "op": "predict", "events": [{"x": [1, 2, 3]}], "at_least": 99})
            assert (await client.reply())["code"] == "beyond-log"
            client.send({"seq": 8, "op": "update", "events": events(1), "at_least": 1})
            refused = await client.reply()
            assert (refused["code"], refused["errors"][0]["pointer"]) == ("invalid", "/at_least")
            client.send({"seq": 9, "op": "predict", "events": [{"x": [1, 2, 3]}], "at_least": 0})
            assert [error["pointer"] for error in (await client.reply())["errors"]] == ["/at_least"]


async def test_without_a_position_nothing_waits(open_again: Opener) -> None:
    async with serving(await open_again(), **SLOW) as (local, _), serving(await open_again(), **SLOW) as (remote, two):
        await local.put("/learners/a", json=DENSE)
        await eventually_async(lambda: "a" in two.replicas)
        deaf(two)
        await posted(local, "/learners/a/update", events(4))
        reply: httpx.Response = await remote.post("/learners/a/predict", json={"events": [{"x": [1, 2, 3]}]})
        assert reply.json()["position"] == 1
