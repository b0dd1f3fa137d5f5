"""What `GET /v1/learners?figures=true` tells of learners that are being created, and of those that are busy."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.api import schemas
from service.api.routes.learners import _merge_creations
from service.storage.memory import MemoryStore
from service.storage.store_protocol import LogEntry, LogHead
from tests.harness.keyring import Keyring, keyed
from tests.harness.nodes import posted, serving
from tests.harness.waiting import eventually_async
from tests.service.engine.replica.test_served_events import SETUPS, labelled

DENSE = SETUPS["dense"]


class Gated(MemoryStore):
    """A store that writes no log until it may."""

    def __init__(self) -> None:
        super().__init__()
        self.open = asyncio.Event()

    async def create(self, learner: str, token: bytes, data: bytes) -> LogHead:
        await self.open.wait()
        return await super().create(learner, token, data)

    async def append(self, *send: Any, **options: Any) -> list[LogEntry]:
        await self.open.wait()
        return await super().append(*send, **options)


async def overview(http: httpx.AsyncClient, headers: dict[str, str] | None = None) -> schemas.LearnerFigureList:
    reply = await http.get("/learners?figures=true", headers=headers)
    return schemas.LearnerFigureList.model_validate_json(reply.content, strict=True)


async def creating(http: httpx.AsyncClient, headers: dict[str, str] | None = None) -> list[str]:
    return [item.name for item in (await overview(http, headers)).creating]


async def asked_for(http: httpx.AsyncClient, name: str) -> bool:
    return await creating(http) == [name]


async def test_learners_being_created_are_listed_immediately() -> None:
    store = Gated()
    async with serving(store) as (http, engine):
        request = [asyncio.create_task(http.put(f"/learners/{name}", json=DENSE)) for name in ("b", "a", "b")]
        await eventually_async(lambda: len(engine.creations) == 3)
        assert sorted(await creating(http)) == ["a", "b"]  # each once
        actual = await overview(http)
        assert actual.learners == []
        before = actual.creating[0].seconds
        await asyncio.sleep(0.2)
        assert (await overview(http)).creating[0].seconds > before
        store.open.set()
        assert sorted(reply.status_code for reply in await asyncio.gather(*request)) == [200, 201, 201]
        actual = await overview(http)
        assert ([learner.name for learner in actual.learners], actual.creating, engine.creations) == (
            ["a", "b"],
            [],
            [],
        )


@pytest.mark.parametrize("refused", [True, False])
async def test_a_failed_creation_is_removed_from_the_list(refused: bool) -> None:
    store = Gated()
    async with serving(store, max_learners=1) as (http, engine):
        if refused:
            store.open.set()
            assert (await http.put("/learners/first", json=DENSE)).status_code == 201
        request = asyncio.create_task(http.put("/learners/a", json=DENSE))
        if refused:
            assert (await request).status_code == 409
        else:
            await eventually_async(lambda: bool(engine.creations))
            request.cancel()  # the client hangs up
            with pytest.raises(asyncio.CancelledError):
                await request
        assert (await creating(http), engine.creations) == ([], [])


async def test_clones_being_created_are_listed() -> None:
    store = Gated()
    store.open.set()
    async with serving(store) as (http, _):
        await http.put("/learners/a", json=DENSE)
        store.open.clear()
        request = asyncio.create_task(http.post("/learners/a/clone", json={"to": "c"}))
        await eventually_async(lambda: asked_for(http, "c"))
        store.open.set()
        assert (await request).status_code == 201
        assert await creating(http) == []


async def test_a_restricted_key_sees_only_creations_of_its_learners(tmp_path: Path) -> None:
    ring = Keyring(tmp_path)
    root, partial = ring.make("root", "admin"), ring.make("some", "read", pattern="fraud-*")
    async with keyed(ring) as (app, http):
        engine = app.state.engine
        engine.creations += [("spam", 0.0), ("fraud-a", 0.0)]
        assert await creating(http, root) == ["spam", "fraud-a"]
        assert await creating(http, partial) == ["fraud-a"]


async def test_the_overview_reports_whether_a_learner_is_busy() -> None:
    store = Gated()
    store.open.set()
    async with serving(store) as (http, engine):
        await http.put("/learners/a", json=DENSE)
        assert not (await overview(http)).learners[0].busy
        store.open.clear()
        learnt = asyncio.create_task(posted(http, "/learners/a/update", labelled("dense", 0, 20)))
        await eventually_async(lambda: engine.get("a").mailbox.busy)
        assert (await overview(http)).learners[0].busy
        store.open.set()
        await learnt
        await eventually_async(lambda: not engine.get("a").mailbox.busy)
        assert not (await overview(http)).learners[0].busy


def test_a_creation_on_several_nodes_is_listed_once() -> None:
    def node(learners: list[str], *making: str) -> dict[str, object]:
        return {
            "learners": [{"name": name} for name in learners],
            "creating": [{"name": name, "seconds": 1.0} for name in making],
        }

    older = {"learners": [{"name": "old"}]}  # a node of the release before
    actual = _merge_creations(node(["there"], "a", "b"), [node(["b"], "a", "there", "c"), older])
    assert sorted(item["name"] for item in actual) == ["a", "c"]
