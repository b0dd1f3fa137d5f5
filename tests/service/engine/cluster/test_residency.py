"""Learners are evicted to the store, and their users do not notice."""

from __future__ import annotations

import asyncio
import gc
import random
import weakref
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest

from service.errors import UnknownLearner
from service.storage.memory import MemoryStore
from service.storage.store_protocol import Store
from tests.harness.fixtures import Opener
from tests.harness.nodes import T0, digest, posted, replayed, serving
from tests.harness.waiting import eventually_async

pytestmark = pytest.mark.integration

CONFIG = {"algorithm": "loam-ada", "features": {"kind": "dense", "dim": 2}, "window": 100, "late": {"label_ttl": 3600}}
NAMES = [f"l{i}" for i in range(6)]


def events(name: str, start: int, stop: int) -> list[dict[str, Any]]:
    seed = NAMES.index(name)
    return [
        {"id": f"e{i}", "x": [(i * 7 + seed) % 11 / 11, i % 5], "label": int(i % 4 == 0), "time": T0 + i}
        for i in range(start, stop)
    ]


def unlabelled(name: str, start: int, stop: int) -> list[dict[str, Any]]:
    return [{key: value for key, value in event.items() if key != "label"} for event in events(name, start, stop)]


async def created(http: httpx.AsyncClient) -> None:
    for name in NAMES:
        reply = await http.put(f"/learners/{name}", json=CONFIG)
        assert reply.status_code in (200, 201), reply.text


async def rested(engine: Any) -> None:
    """Wait until no more learners are in memory than allowed."""
    async with asyncio.timeout(300):
        while len(engine.replicas) > engine.node.settings.max_resident:
            engine.residency.evict_idle()
            await engine.residency.eviction
    assert sorted([*engine.replicas, *engine.evicted]) == NAMES


async def course(http: httpx.AsyncClient) -> dict[str, tuple[int, str]]:
    """Run some weeks of several learners in turn; return their final states."""
    for start in range(0, 40, 10):
        for name in NAMES:
            await posted(http, f"/learners/{name}/update", events(name, start, start + 5))
            predictions = await posted(http, f"/learners/{name}/predict", unlabelled(name, start + 5, start + 10))
            assert predictions["remembered"] == 5
        for name in reversed(NAMES):
            batch_events = events(name, start + 5, start + 10)
            late = [{key: item[key] for key in ("id", "label", "time")} for item in batch_events]
            answer = await posted(http, f"/learners/{name}/labels", late)
            assert answer["applied"] == 5
            assert (await posted(http, f"/learners/{name}/labels", late))["duplicate"] == 5
    return {name: await digest(http, name) for name in NAMES}


async def test_eviction_is_invisible_to_clients(open_again: Opener) -> None:
    async with serving(await open_again(), max_resident=1, trim_log=False) as (http, engine):
        await created(http)
        result = await course(http)
        await rested(engine)
        assert len(engine.evicted) == 5
    again = await open_again()
    for name in NAMES:
        assert result[name] == await replayed(again, name)
        assert result[name][0] == 1 + 4 * 4  # a record each: learnt, served, and labelled; a duplicate is one too


async def test_metrics_continue_across_an_eviction(store: Store) -> None:
    async with serving(store, max_resident=2) as (http, engine):
        await created(http)
        await course(http)
        await rested(engine)
        asleep = sorted(engine.evicted)[0]
        figures = (await http.get(f"/learners/{asleep}/metrics")).json()
        assert figures["events"] == 40
        assert figures["window"]["auc"] is not None
        assert asleep in engine.replicas


async def test_evicted_learners_are_listed(store: Store) -> None:
    async with serving(store, max_resident=2) as (http, engine):
        await created(http)
        await rested(engine)
        listed = (await http.get("/learners")).json()
        assert [learner["name"] for learner in listed["learners"]] == NAMES[-2:]  # those that were used last
        assert listed["asleep"] == NAMES[:-2]
        assert (await http.get("/health/ready")).json()["learners"] == 6
        reply = await http.get("/learners/l0")
        assert (reply.status_code, reply.json()["name"]) == (200, "l0")


async def test_an_evicted_learner_is_created_found_and_deleted_like_any_other(store: Store) -> None:
    async with serving(store, max_resident=1) as (http, engine):
        await created(http)
        await rested(engine)
        assert (await http.put("/learners/l0", json=CONFIG)).status_code == 200
        await rested(engine)
        other = await http.put("/learners/l1", json={**CONFIG, "window": 7})
        assert (other.status_code, other.json()["code"]) == (409, "name-taken")
        await rested(engine)
        assert "l2" in engine.evicted
        assert (await http.delete("/learners/l2")).status_code == 204
        assert (await http.get("/learners/l2")).status_code == 404
        assert "l2" not in await store.heads()
        assert (await http.put("/learners/l2", json={**CONFIG, "window": 7})).status_code == 201
        assert (await http.get("/learners/l2")).json()["config"]["window"] == 7
        with pytest.raises(UnknownLearner):
            await engine.load("nobody")


async def test_evicted_learners_count_towards_the_limit(store: Store) -> None:
    async with serving(store, max_resident=1, max_learners=6) as (http, engine):
        await created(http)
        await rested(engine)
        full = await http.put("/learners/l9", json=CONFIG)
        assert (full.status_code, full.json()["code"]) == (409, "limit-reached")


async def test_many_learners_are_used_concurrently(open_again: Opener) -> None:
    """Requests wait while a learner is evicted or loaded, and each event is learnt once."""
    draw = random.Random(4)
    requests = [(name, i) for i in range(30) for name in NAMES]
    draw.shuffle(requests)
    async with serving(await open_again(), max_resident=1, trim_log=False) as (http, engine):
        await created(http)
        answers = await asyncio.gather(
            *(posted(http, f"/learners/{name}/update", events(name, i, i + 1)) for name, i in requests)
        )
        assert sum(answer["applied"] for answer in answers) == len(requests)
        await rested(engine)
        for name in NAMES:
            reply = (await http.get(f"/learners/{name}")).json()
            assert reply["events"] == 30
            assert await digest(http, name) == await replayed(await open_again(), name)


async def test_a_learner_being_loaded_shows_all_acknowledged_records(open_again: Opener) -> None:
    """A load first applies the records after the newest snapshot, which may be many after a crash."""
    async with serving(await open_again(), snapshot_events=10**6, snapshot_seconds=10**6) as (http, _):
        await created(http)
        for i in range(300):
            last = (await posted(http, "/learners/l5/update", events("l5", i, i + 1)))["position"]
    async with serving(await open_again(), max_resident=1) as (http, engine):
        assert "l5" in engine.evicted

        async def predict_at(i: int) -> int:
            for _ in range(i):
                await asyncio.sleep(0)
            return int((await posted(http, "/learners/l5/predict", [{"x": [0.5, 1]}]))["position"])

        assert await asyncio.gather(*(predict_at(i) for i in range(0, 400, 20))) == [last] * 20


@pytest.mark.campaign
async def test_a_burst_of_requests_does_not_fill_the_memory(store: Store) -> None:
    """Only a few learners beyond the limit are in memory, plus those with concurrent requests."""
    many = [f"m{i}" for i in range(120)]
    most = 0
    async with serving(store, max_resident=10) as (http, engine):

        async def sweep(part: list[str]) -> None:
            nonlocal most
            for name in part:
                assert (await http.put(f"/learners/{name}", json=CONFIG)).status_code == 201
            for name in part * 2:
                await posted(http, f"/learners/{name}/update", events("l0", 0, 1))
                most = max(most, len(engine.replicas))

        await asyncio.gather(*(sweep(many[i::4]) for i in range(4)))
        assert len(engine.replicas) + len(engine.evicted) == 120
    assert most <= 10 + 8 + 2 * 4


async def test_a_learner_deleted_on_another_node_can_be_recreated_immediately(open_again: Opener) -> None:
    first, second = await open_again(), await open_again()
    async with serving(first, max_resident=1) as (local, engine), serving(second) as (remote, _):
        await created(local)
        await rested(engine)
        for name in ("l0", "l1"):
            assert name in engine.evicted
            await there_until(remote, name)
            assert (await remote.delete(f"/learners/{name}")).status_code == 204
        assert (await local.put("/learners/l0", json={**CONFIG, "window": 9})).status_code == 201
        assert (await local.delete("/learners/l1")).status_code == 404
        assert "l1" not in engine.evicted
        answers = await asyncio.gather(local.delete("/learners/l2"), local.put("/learners/l2", json=CONFIG))
        assert [first.status_code for first in answers] == [204, 201]


async def test_a_node_loads_as_many_learners_as_its_limit_at_start(open_again: Opener) -> None:
    async with serving(await open_again()) as (http, _):
        await created(http)
        result = await course(http)
    async with serving(await open_again(), max_resident=2) as (http, engine):
        assert len(engine.replicas) == 2
        assert len(engine.evicted) == 4
        assert {name: await digest(http, name) for name in NAMES} == result
        await rested(engine)


async def test_an_evicted_learner_is_changed_by_another_node(open_again: Opener) -> None:
    first, second = await open_again(), await open_again()
    async with serving(first, max_resident=1) as (local, engine), serving(second) as (remote, _):
        await created(local)
        await rested(engine)
        assert "l0" in engine.evicted
        await remote.get("/learners")
        await there_until(remote, "l0")
        await posted(remote, "/learners/l0/update", events("l0", 0, 20))
        assert (await local.get("/learners/l0")).json()["events"] == 20
        await rested(engine)
        assert "l1" in engine.evicted
        await there_until(remote, "l1")
        assert (await remote.delete("/learners/l1")).status_code == 204
        assert (await local.get("/learners/l1")).status_code == 404  # before this node has looked around
        assert "l1" not in engine.evicted
        await there_until(remote, "l3")
        assert (await remote.delete("/learners/l3")).status_code == 204
        await engine.sync.check_heads()
        assert "l3" not in engine.evicted
        assert (await local.get("/learners/l3")).status_code == 404
        assert (await remote.put("/learners/l2", json=CONFIG)).status_code == 200
        assert (await remote.delete("/learners/l2")).status_code == 204
        assert (await remote.put("/learners/l2", json={**CONFIG, "window": 9})).status_code == 201
        await engine.sync.check_heads()
        assert (await local.get("/learners/l2")).json()["config"]["window"] == 9


async def there_until(http: httpx.AsyncClient, name: str) -> None:
    """Wait until another node lists a learner."""
    while (await http.get(f"/learners/{name}")).status_code != 200:
        app: Any = http._transport.app  # type: ignore[attr-defined]
        await app.state.engine.sync.check_heads()


async def test_a_group_loads_its_learners(store: Store) -> None:
    async with serving(store, max_resident=1) as (http, engine):
        await created(http)
        await rested(engine)
        group = await http.put("/groups/g", json={"learners": NAMES[:4], "window": 50})
        assert group.status_code == 201
        for start in range(0, 30, 10):
            answer = await posted(http, "/groups/g/update", events("l0", start, start + 10))
            assert answer["compared"] == 10
            await rested(engine)
        compared = (await http.get("/groups/g/compare")).json()
        assert compared["gone"] == []
        assert len(compared["window"]["auc"]) == 4
        await rested(engine)
        assert (await http.delete("/learners/l0")).status_code == 204
        assert (await http.get("/groups/g/compare")).json()["gone"] == ["l0"]


async def test_learners_in_use_are_not_evicted(store: Store) -> None:
    async with serving(store, max_resident=1) as (http, engine):
        await created(http)
        await rested(engine)
        async with engine.use("l0") as first, engine.use("l1") as second:
            engine.residency.evict_idle()
            await asyncio.sleep(0.05)
            assert {"l0", "l1"} <= set(engine.replicas)
            with first.mailbox.watch(), second.mailbox.watch():
                engine.residency.evict_idle()
        engine.residency.evict_idle()
        await rested(engine)
        assert set(engine.replicas) == {"l0"}  # the one that was let go of last


async def test_a_load_does_not_wait_for_the_slowest_eviction() -> None:
    """A load waits for space, not for the end of all evictions."""
    go_on = asyncio.Event()
    names = [f"l{i}" for i in range(12)]
    async with serving(MemoryStore(), max_resident=1) as (http, engine), AsyncExitStack() as hands:
        for name in names:
            assert (await http.put(f"/learners/{name}", json=CONFIG)).status_code == 201
        slow = await hands.enter_async_context(engine.use("l0"))
        for name in names[1:11]:
            await hands.enter_async_context(engine.use(name))
        while "l11" in engine.replicas:
            engine.residency.evict_idle()
            await asyncio.wait([engine.residency.eviction])
        close = slow.close

        async def closed(save: bool) -> None:
            await go_on.wait()
            await close(save)

        slow.close = closed  # type: ignore[method-assign]
        await hands.aclose()
        slow.last_used = 0.0  # longest ago
        async with asyncio.timeout(300):
            await engine.load("l11")
            assert not engine.residency.eviction.done()
            go_on.set()
            await engine.residency.eviction
        assert set(engine.replicas) == {"l11"}


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Disable the garbage collector of cycles."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def collected(first: weakref.ref[Any]) -> None:
    """Wait until nothing refers to an object; a reply arrives before its handler has ended."""
    await eventually_async(lambda: first() is None)


@pytest.mark.usefixtures("uncollected")
async def test_evicted_and_deleted_learners_free_their_memory_immediately(store: Store) -> None:
    nystroem = {**CONFIG, "algorithm": "nsauc", "embedding": {"components": 4, "warmup": 30}}
    async with serving(store, max_resident=2) as (http, engine):
        for name, config in zip(NAMES[:2], (CONFIG, nystroem), strict=True):
            assert (await http.put(f"/learners/{name}", json=config)).status_code == 201
            for start in range(0, 400, 50):
                await posted(http, f"/learners/{name}/update", events(name, start, start + 50))
            await posted(http, f"/learners/{name}/predict", unlabelled(name, 400, 410))
            late = [{key: event[key] for key in ("id", "label", "time")} for event in events(name, 400, 410)]
            await posted(http, f"/learners/{name}/labels", late)
            assert (await http.post(f"/learners/{name}/snapshots")).status_code in (200, 201)
            assert (await http.get(f"/learners/{name}")).status_code == 200
        group = {"learners": NAMES[:2]}
        assert (await http.put("/groups/both", json=group)).status_code == 201
        await posted(http, "/groups/both/update", events("l0", 500, 520))

        awake = {name: weakref.ref(engine.replicas[name].log.machine.core) for name in NAMES[:2]}
        compared = weakref.ref(engine.groups["both"].log.machine.core)
        assert (await http.delete("/groups/both")).status_code == 204
        await collected(compared)
        await engine.residency.evict(engine.get("l0"))
        await collected(awake["l0"])
        assert awake["l1"]() is not None
        assert (await http.delete("/learners/l1")).status_code == 204
        await collected(awake["l1"])
        await posted(http, "/learners/l0/update", events("l0", 600, 610))  # awake again
        again = weakref.ref(engine.replicas["l0"].log.machine.core)
        assert (await http.delete("/learners/l0")).status_code == 204
        await collected(again)
