"""Any concurrent sequence of requests leaves a valid state that follows from the log, also after a crash."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable
from typing import Any

import httpx
import pytest

from learners.learner import check_state
from service.engine.engine import Engine
from service.storage.memory import MemoryStore
from tests.harness.nodes import digest, posted, replayed, serving
from tests.harness.waiting import eventually_async
from tests.service.engine.replica.test_served_events import SETUPS, event, labelled, late

pytestmark = pytest.mark.integration

REQUESTS = 40


def config(rng: random.Random) -> tuple[str, dict[str, Any]]:
    """Return the configuration of a learner whose windows, ids and memory overflow soon."""
    setup = rng.choice(list(SETUPS))
    two = setup != "ordinal"
    assumed = two and rng.random() < 0.5  # which asks for many ids
    settings = {
        **SETUPS[setup],
        "window": rng.choice([1, 5, 50]),
        "window_seconds": rng.choice([None, 100.0]),
        "remembered_ids": 2**17 if assumed else rng.choice([3, 1000]),
        "late": {
            "label_ttl": rng.choice([50.0, 1e4]),
            "max_events": rng.choice([2, 1000]),
            "unlabelled": "negative" if assumed else "nothing",
        },
    }
    if two and rng.random() < 0.5:
        settings["threshold"] = {"objective": "budget", "alerts": 3, "unit_seconds": 100}
    return setup, settings


async def rolled_back(http: httpx.AsyncClient) -> None:
    position = (await http.post("/learners/a/snapshots")).json()["position"]
    reply = await http.post(f"/learners/a/snapshots/{position}/restore")
    assert reply.status_code in (200, 404)  # later ones may have taken its place


async def changed(http: httpx.AsyncClient, values: dict[str, Any]) -> None:
    assert (await http.patch("/learners/a", json=values)).status_code == 200


def random_request(rng: random.Random, http: httpx.AsyncClient, setup: str, start: int) -> Awaitable[Any]:
    """Send a request about events from `start` on."""
    stop = start + rng.randrange(1, 8)
    kind = rng.choice(["update", "predict", "labels", "mixed", "change", "roll back"])
    if kind == "update":
        return posted(http, "/learners/a/update", labelled(setup, start, stop))
    if kind == "predict":
        return posted(http, "/learners/a/predict", [event(setup, i) for i in range(start, stop)])
    if kind == "change":
        values = {"late": {"label_ttl": rng.choice([50.0, 1e4])}, "figures": {"k": rng.randrange(1, 5)}}
        return changed(http, values)
    if kind == "roll back":
        return rolled_back(http)
    events = late(setup, start, stop, rng.choice([0.0, 10.0, 1000.0]))
    events = [{**item, "label": rng.choice([item["label"], 1])} for item in events]
    if kind == "labels":
        return posted(http, "/learners/a/labels", events)
    mixed = events + labelled(setup, start + 2, stop + 2)
    rng.shuffle(mixed)
    return posted(http, "/learners/a/update", mixed)


async def at_rest(engine: Engine) -> None:
    """Stop the node's checks and its label expiry."""
    replica = engine.get("a")
    assert engine.sync.task is not None
    engine.sync.task.cancel()
    await eventually_async(lambda: not replica.label_expiry._busy)
    await replica.log.catch_up()


@pytest.mark.parametrize("seed", range(12))
async def test_the_state_equals_a_replay_of_the_log(seed: int) -> None:
    rng = random.Random(seed)
    setup, settings = config(rng)
    store = MemoryStore()
    options = {"snapshot_events": rng.choice([5, 100_000]), "trim_log": False, "follow_seconds": 0.01}
    async with serving(store, **options) as (http, engine):
        assert (await http.put("/learners/a", json=settings)).status_code == 201
        replica = engine.get("a")
        start = 0
        under_way: list[asyncio.Future[Any]] = []
        for _ in range(REQUESTS):
            start += rng.randrange(3)
            request = random_request(rng, http, setup, start + rng.randrange(60))
            under_way.append(asyncio.ensure_future(request))
            if rng.random() < 0.5:
                await asyncio.gather(*under_way)
                under_way.clear()
        await asyncio.gather(*under_way)
        await at_rest(engine)
        assert replica.failure is None
        assert not replica.served_events.busy
        check_state(replica.learner.config, {name: array.copy() for name, array in replica.learner.state().items()})
        assert await digest(http) == await replayed(store)
    expected = await replayed(store)
    async with serving(store) as (http, _):  # from a snapshot, where one was taken
        assert await digest(http) == expected


@pytest.mark.parametrize("seed", range(100, 108))
async def test_two_nodes_agree(seed: int) -> None:
    rng = random.Random(seed)
    setup, settings = config(rng)
    store = MemoryStore()
    options = {"snapshot_events": rng.choice([5, 100_000]), "trim_log": False, "follow_seconds": 0.01}
    async with (
        serving(store, **options) as (local, first),
        serving(MemoryStore(like=store), **options) as (remote, second),
    ):
        for http in (local, remote):
            assert (await http.put("/learners/a", json=settings)).status_code in (200, 201)
        start = 0
        under_way: list[asyncio.Future[Any]] = []
        for _ in range(REQUESTS):
            start += rng.randrange(3)
            request = random_request(rng, rng.choice([local, remote]), setup, start + rng.randrange(60))
            under_way.append(asyncio.ensure_future(request))
            if rng.random() < 0.4:
                await asyncio.gather(*under_way)
                under_way.clear()
        await asyncio.gather(*under_way)
        await at_rest(first)
        await at_rest(second)
        await first.get("a").log.catch_up()  # what the other has assumed since
        assert await digest(local) == await digest(remote) == await replayed(store)
        assert not first.get("a").served_events.busy
        assert not second.get("a").served_events.busy
