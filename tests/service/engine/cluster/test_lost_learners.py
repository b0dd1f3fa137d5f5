"""Learners that the store lost, or that cannot be read back, are reported; damage of one snapshot loses nothing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from service.engine.engine import Engine
from service.errors import StoreUnavailable
from service.storage.memory import MemoryStore
from service.storage.open_store import open_store
from service.storage.store_protocol import LogHead, Store
from tests.harness.apps import DENSE, events
from tests.harness.fixtures import Opener
from tests.harness.log_records import logged_data
from tests.harness.nodes import digest, node, posted, serving
from tests.harness.redis_server import RedisServer
from tests.harness.waiting import eventually_async
from tests.service.storage.test_full_stores import metrics

pytestmark = pytest.mark.integration

URL = "/learners/a/update"


async def vanish(store: Store, name: str) -> None:
    """Remove a learner from the store as no deletion does."""
    if isinstance(store, MemoryStore):
        del store._logs[name]
    elif hasattr(store, "_redis"):
        await store._redis.delete(f"rarestream:{{{name}}}:meta")
    else:
        await store._write(lambda db: db.execute("DELETE FROM learner WHERE name = ?", (name,)).rowcount)  # type: ignore[attr-defined]


async def vanish_everywhere(store: Store, name: str, *engines: Engine) -> None:
    """Remove a learner from the store after all nodes have met it, and let them notice."""
    for engine in engines:
        await engine.sync.check_heads()
    await vanish(store, name)
    for engine in engines:
        await engine.sync.check_heads()
        assert name in engine.registry.unavailable


def errors(caplog: pytest.LogCaptureFixture) -> list[Any]:
    return logged_data(caplog, "rarestream.sync", "ERROR")


@pytest.mark.parametrize("noticed", ["by a check", "by a request", "by a load"])
async def test_a_learner_that_vanished_is_an_error(
    open_again: Opener, noticed: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = await open_again()
    async with serving(store, follow_seconds=3600) as (http, engine):
        for name in "ab":
            assert (await http.put(f"/learners/{name}", json=DENSE)).status_code == 201
        if noticed == "by a load":
            await engine.residency.evict(engine.get("a"))
        await vanish(store, "a")
        if noticed != "by a check":
            reply = await http.post(URL, json={"events": events(3)})
            assert (reply.status_code, reply.json()["code"]) == (500, "vanished")
            assert (await http.get("/health/ready")).json()["status"] == "degraded"  # before any check
        await engine.sync.check_heads()
        assert [re.findall(r"\b(?:group|learner) \w+", str(name)) for (name,) in errors(caplog)] == [["learner a"]]
        reply = await http.get("/learners/a")
        assert (reply.status_code, reply.json()["code"]) == (500, "vanished")
        assert list((await http.get("/learners")).json()["unavailable"]) == ["a"]
        health = await http.get("/health/ready")
        assert health.status_code == 200
        assert (health.json()["status"], health.json()["unavailable"], health.json()["learners"]) == ("degraded", 1, 1)
        assert b'rarestream_learners{state="unavailable"} 1.0' in await metrics(engine)
        await engine.sync.check_heads()
        assert len(errors(caplog)) == 1  # and it stays listed
        assert (await http.delete("/learners/a")).status_code == 204
        assert (await http.get("/health/ready")).json()["status"] == "ok"


@pytest.mark.parametrize("noticed", ["by a check", "by a request"])
async def test_a_learner_that_vanished_is_created_anew_only_after_a_deletion(open_again: Opener, noticed: str) -> None:
    """Else a client that creates its learner at each start would hide the loss."""
    store = await open_again()
    async with serving(store, follow_seconds=3600) as (http, engine):
        assert (await http.put("/learners/a", json=DENSE)).status_code == 201
        await vanish(store, "a")
        if noticed == "by a check":
            await engine.sync.check_heads()
        for reply in (
            await http.post(URL, json={"events": events(3)}),
            await http.put("/learners/a", json=DENSE),
            await http.post(URL, json={"events": events(3)}),
        ):
            assert (reply.status_code, reply.json()["code"]) == (500, "vanished")
        assert await store.heads() == {}
        assert (await http.delete("/learners/a")).status_code == 204
        assert (await http.get("/health/ready")).json()["status"] == "ok"
        assert (await http.put("/learners/a", json=DENSE)).status_code == 201
        assert (await http.get("/learners/a")).status_code == 200
        await engine.sync.check_heads()
        assert (await http.get("/health/ready")).json()["status"] == "ok"


@pytest.mark.parametrize("loss", ["FLUSHALL", "DEL of its keys", "an old dump"])
async def test_what_redis_forgot_is_reported(
    redis_server: RedisServer, loss: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = await open_store(redis_server.url)
    async with serving(store, follow_seconds=3600) as (http, engine):
        dump = {key: redis_server.command("DUMP", key) for key in redis_server.key_names()}
        assert (await http.put("/learners/a", json=DENSE)).status_code == 201
        await posted(http, URL, events(20))
        if loss == "DEL of its keys":
            redis_server.command("DEL", *(key for key in redis_server.key_names() if "{a}" in key))
        else:
            redis_server.flush()
        if loss == "an old dump":  # of before the creation
            for key, value in dump.items():
                redis_server.command("RESTORE", key, 0, value)  # type: ignore[arg-type]
        reply = await http.post(URL, json={"events": events(3)})
        assert (reply.status_code, reply.json()["code"]) == (500, "vanished")
        assert await store.heads() == {}
        assert len(errors(caplog)) == 1
        health = (await http.get("/health/ready")).json()
        assert (health["status"], health["unavailable"]) == ("degraded", 1)
        assert b'rarestream_learners{state="unavailable"} 1.0' in await metrics(engine)


async def test_a_deletion_by_another_node_ends_the_report(open_again: Opener) -> None:
    store = await open_again()
    async with (
        serving(store, follow_seconds=3600) as (http, engine),
        serving(await open_again(), follow_seconds=3600) as (other_http, other),
    ):
        for name in "ab":
            assert (await http.put(f"/learners/{name}", json=DENSE)).status_code == 201
            await vanish_everywhere(store, name, engine, other)
        assert (await http.delete("/learners/a")).status_code == 204
        assert (await other_http.put("/learners/a", json=DENSE)).status_code == 201  # at once
        assert (await http.delete("/learners/b")).status_code == 204
        for each, nodes_http in ((engine, http), (other, other_http)):
            await each.sync.check_heads()
            assert (await nodes_http.get("/health/ready")).json()["status"] == "ok"


async def test_a_restart_reports_what_redis_lost(redis_server: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    """Else it would end the alarm, and the next `PUT` create the learner anew."""
    redis_server.flush()
    async with serving(await open_store(redis_server.url)) as (http, _):
        for name in "abc":
            assert (await http.put(f"/learners/{name}", json=DENSE)).status_code == 201
        assert (await http.delete("/learners/c")).status_code == 204
    redis_server.command("DEL", "rarestream:{a}:meta")
    for _ in range(2):
        async with serving(await open_store(redis_server.url)) as (http, engine):
            assert (await http.get("/health/ready")).json()["status"] == "degraded"
            assert list((await http.get("/learners")).json()["unavailable"]) == ["a"]
            reply = await http.put("/learners/a", json=DENSE)
            assert (reply.status_code, reply.json()["code"]) == (500, "vanished")
    assert len(errors(caplog)) == 2
    async with serving(await open_store(redis_server.url)) as (http, _):
        assert (await http.delete("/learners/a")).status_code == 204
        assert (await http.get("/health/ready")).json()["status"] == "ok"
    async with serving(await open_store(redis_server.url)) as (http, engine):
        assert (await http.get("/health/ready")).json()["status"] == "ok"
        assert list(engine.replicas) == ["b"]
        assert (await http.put("/learners/a", json=DENSE)).status_code == 201


async def test_a_creation_that_was_cut_off_is_no_loss(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    redis_server.flush()
    store = await open_store(redis_server.url)

    async def cut_off(*_: object) -> None:
        raise StoreUnavailable("cut off")

    with monkeypatch.context() as broken:
        broken.setattr(store, "_durably", cut_off)
        with pytest.raises(StoreUnavailable):
            await store.create("a", bytes(16), b"data")
    async with serving(store) as (http, _):
        assert (await http.get("/health/ready")).json()["status"] == "ok"
        assert (await http.put("/learners/a", json=DENSE)).status_code == 201


async def test_a_file_that_was_moved_away_is_in_health(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with serving(await open_store(f"sqlite:///{path}"), follow_seconds=0.05) as (http, _):

        async def ready() -> bool:
            return (await http.get("/health/ready")).status_code == 200

        async def away() -> bool:
            return not await ready()

        assert (await http.put("/learners/a", json=DENSE)).status_code == 201
        path.rename(tmp_path / "away")
        await eventually_async(away, "health without an update")
        health = (await http.get("/health/ready")).json()
        assert health["status"] == "store-unavailable"
        assert "was moved or deleted while the service runs" in health["detail"]
        reply = await http.post(URL, json={"events": events(3)})
        assert (reply.status_code, reply.json()["code"]) == (503, "store-unavailable")
        (tmp_path / "away").rename(path)
        await eventually_async(ready, "the file that is back")
        assert (await posted(http, URL, events(3)))["applied"] == 3


async def test_a_learner_that_is_back_is_served_again(open_again: Opener) -> None:
    """As after a backup of the store was restored while the service runs."""
    store = await open_again()
    async with serving(store, follow_seconds=3600) as (http, engine):
        assert (await http.put("/learners/a", json=DENSE)).status_code == 201
        (head,) = (await store.heads()).values()
        (creation,) = await store.read("a", head.birth, 0, 9)
        await posted(http, URL, events(20))
        await vanish(store, "a")
        await engine.sync.check_heads()
        assert (await http.get("/health/ready")).json()["unavailable"] == 1
        await store.create("a", creation.token, creation.data)
        await engine.sync.check_heads()
        assert (await http.get("/health/ready")).json()["unavailable"] == 0
        await posted(http, URL, events(20))


async def test_lost_records_are_in_health_for_ten_minutes(open_again: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store goes back in time: it has an older log of the same learner."""
    store = await open_again()
    async with serving(store, follow_seconds=3600) as (http, engine):
        assert (await http.put("/learners/a", json=DENSE)).status_code == 201
        (head,) = (await store.heads()).values()
        (creation,) = await store.read("a", head.birth, 0, 9)
        await posted(http, URL, events(20))
        await vanish(store, "a")
        await store.create("a", creation.token, creation.data)
        await posted(http, URL, events(5))
        health = await http.get("/health/ready")
        assert (health.status_code, health.json()["status"]) == (200, "degraded")
        assert "lost acknowledged records of 1 log in the last ten minutes" in health.json()["detail"]
        assert b"rarestream_log_rewound_total 1.0" in await metrics(engine)
        monkeypatch.setattr("service.engine.node_resources._RECENT_SECONDS", 0.0)
        assert (await http.get("/health/ready")).json()["status"] == "ok"


@pytest.mark.parametrize("evicted", [False, True])
async def test_a_deletion_by_another_node_is_no_error(
    open_again: Opener, evicted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    store = await open_again()
    async with serving(store, follow_seconds=3600) as (http, engine), node(await open_again()) as other:
        assert (await http.put("/learners/a", json=DENSE)).status_code == 201
        if evicted:
            await engine.residency.evict(engine.get("a"))
        await eventually_async(lambda: "a" in other.replicas)
        await other.delete("a")
        await engine.sync.check_heads()
        assert (await http.get("/learners/a")).status_code == 404
        assert errors(caplog) == []
        assert (await http.get("/health/ready")).json()["status"] == "ok"


async def test_a_learner_deleted_while_its_log_is_taken_in_is_no_error(
    open_again: Opener, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The heads name it, and it is gone when its snapshot is read."""
    first, second = await open_again(), await open_again()
    async with node(first) as node_one, node(second, follow_seconds=3600) as node_two:
        heads: dict[str, LogHead] = {"a": LogHead(bytes(16), 3)}

        async def old_heads() -> dict[str, LogHead]:
            return heads

        monkeypatch.setattr(second, "heads", old_heads)
        await node_two.sync.check_heads()
        assert errors(caplog) == []
        assert node_two.registry.unavailable == {}
        assert "a" not in node_one.replicas


# Damaged snapshots


def flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


async def damage(store: Store, engine: Engine, position: int) -> None:
    """Flip a bit of a retained snapshot."""
    birth = engine.get("a").birth
    loaded = await store.load("a", birth, position)
    assert loaded is not None
    await store.save("a", birth, position, flipped(loaded[1]), 99, trim=False)


async def saved(http: Any, times: int) -> list[int]:
    """Learn and take a snapshot some times; return the positions of the snapshots."""
    positions = []
    for _ in range(times):
        await posted(http, URL, events(20))
        reply = await http.post("/learners/a/snapshots")
        assert reply.status_code == 201
        positions.append(reply.json()["position"])
    return positions


@pytest.mark.parametrize("limit", [1, 3])
@pytest.mark.parametrize("snapshots", [1, 2, 3, 4, 6])
async def test_a_damaged_newest_snapshot_loses_nothing(
    open_again: Opener, snapshots: int, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(await open_again(), snapshots_kept=limit) as (http, engine):
        assert (await http.put("/learners/a", json=DENSE)).status_code == 201
        positions = await saved(http, snapshots)
        await posted(http, URL, events(20))
        before = await digest(http)
        await damage(await open_again(), engine, positions[-1])
    async with serving(await open_again(), snapshots_kept=limit) as (http, _):
        assert await digest(http) == before
        health = (await http.get("/health/ready")).json()
        assert (health["status"], health["unavailable"]) == ("degraded", 0)
        assert "damaged snapshots of 1 log in the last ten minutes" in health["detail"]
        monkeypatch.setattr("service.engine.node_resources._RECENT_SECONDS", 0.0)
        assert (await http.get("/health/ready")).json()["status"] == "ok"


async def test_the_log_is_trimmed_behind_the_older_of_two_intact_snapshots(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(store, snapshots_kept=1) as (http, engine):
        assert (await http.put("/learners/a", json=DENSE)).status_code == 201
        birth = engine.get("a").birth

        async def retained() -> list[int]:
            return [info.position for info in await store.snapshots("a", birth)][::-1]

        p1, p2 = await saved(http, 2)
        assert await retained() == [p1, p2]
        assert len(await store.read("a", birth, 0, 99)) == p2  # nothing is trimmed
        (p3,) = await saved(http, 1)
        assert await retained() == [p1, p2, p3]
        assert len(await store.read("a", birth, p1, 99)) == p3 - p1
        await damage(store, engine, p3)
        p4, p5 = await saved(http, 2)
        assert await retained() == [p2, p3, p4, p5]  # p3 does not count
        assert logged_data(caplog, "rarestream.node", "ERROR") != []
        (p6,) = await saved(http, 1)
        assert await retained() == [p4, p5, p6]


async def test_a_learner_whose_log_is_damaged_is_in_health(open_again: Opener) -> None:
    async with serving(await open_again()) as (http, engine):
        assert (await http.put("/learners/a", json=DENSE)).status_code == 201
        birth = engine.get("a").birth
        (position,) = await saved(http, 1)
    store = await open_again()
    await store.append("a", birth, [(bytes(16), b"no record")], position)
    async with serving(await open_again()) as (http, _):
        reply = await http.post(URL, json={"events": events(3)})
        assert (reply.status_code, reply.json()["code"]) == (500, "damaged")
        assert "Export it" in reply.json()["detail"]
        assert (await http.get("/learners/a")).json()["failed"] == reply.json()["detail"]
        health = await http.get("/health/ready")
        assert (health.status_code, health.json()["status"], health.json()["unavailable"]) == (200, "degraded", 0)
        assert "learners or groups that cannot continue: 1" in health.json()["detail"]
        assert (await http.get("/learners/a/export")).status_code == 200
        assert (await http.delete("/learners/a")).status_code == 204
        assert (await http.get("/health/ready")).json()["status"] == "ok"


async def test_a_learner_whose_snapshots_are_all_damaged_is_reported(open_again: Opener) -> None:
    async with serving(await open_again()) as (http, engine):
        assert (await http.put("/learners/a", json=DENSE)).status_code == 201
        assert (await http.put("/learners/b", json=DENSE)).status_code == 201
        store = await open_again()
        for position in (await saved(http, 3))[::-1]:
            await damage(store, engine, position)
    async with serving(await open_again()) as (http, engine):
        health = await http.get("/health/ready")
        assert health.status_code == 200
        assert (health.json()["status"], health.json()["unavailable"], health.json()["learners"]) == ("degraded", 1, 1)
        assert health.json()["detail"]
        assert list((await http.get("/learners")).json()["unavailable"]) == ["a"]
        assert (await http.get("/learners/a")).json()["code"] == "damaged"
        export = await http.get("/learners/a/export")  # no state is whole, and none is made up
        assert (export.status_code, export.json()["code"]) == (500, "damaged")
        assert b'rarestream_learners{state="unavailable"} 1.0' in await metrics(engine)
        assert (await http.delete("/learners/a")).status_code == 204
        assert (await http.get("/health/ready")).json()["status"] == "ok"
