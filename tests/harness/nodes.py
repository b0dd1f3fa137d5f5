"""Run nodes over a store that outlives them. Nothing is saved at their end, as after `kill -9`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx

from learners.config import Config
from learners.learner import Learner
from service.api.app import create_app
from service.engine.engine import Engine
from service.engine.records.codec import Created, unpack_record
from service.settings import Settings
from service.storage.store_protocol import Store
from tests.harness.apps import client_of
from tests.harness.store_records import whole_log

__all__ = ["T0", "app_over", "digest", "fetched", "node", "over", "posted", "replayed", "serving"]

T0 = 1_700_000_000.0  # the first event's time, in seconds


@asynccontextmanager
async def node(store: Store, **settings: Any) -> AsyncIterator[Engine]:
    """Run an engine that is never stopped in order."""
    engine = Engine(store, Settings(**{"follow_seconds": 60, "store": "memory:", **settings}))
    await engine.start()
    try:
        yield engine
    finally:
        hosts = engine.registry.all()
        tasks = [host.mailbox.task for host in hosts]
        tasks += [saving for item in hosts if (saving := item.snapshots._saving) is not None]
        tasks += [fit for replica in engine.replicas.values() if (fit := replica.fits._task) is not None]
        tasks += [
            task
            for task in (
                engine.sync.task,
                engine.residency.eviction,
                *(each._task for each in engine.node.webhooks.by_learner.values()),
            )
            if task is not None
        ]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        engine.node._threads.shutdown()
        engine.node._learning.shutdown()


def app_over(engine: Engine) -> Any:
    """Return the application of a running engine."""
    app = create_app(engine.node.settings)
    app.state.start(engine)
    return app


@asynccontextmanager
async def over(engine: Engine) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a client of an engine's application."""
    async with client_of(app_over(engine), "/v1") as http:
        yield http


@asynccontextmanager
async def serving(store: Store, **settings: Any) -> AsyncIterator[tuple[httpx.AsyncClient, Engine]]:
    """Run a node; yield a client of it, and its engine."""
    async with node(store, **settings) as engine, over(engine) as http:
        yield http, engine


async def posted(http: httpx.AsyncClient, path: str, events: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Post a request that must succeed, and return the reply."""
    reply = await http.post(path, json={"events": list(events)})
    assert reply.status_code == 200, reply.text
    answer: dict[str, Any] = reply.json()
    return answer


async def fetched(http: httpx.AsyncClient, path: str, **query: Any) -> dict[str, Any]:
    """Get a document that must exist."""
    reply = await http.get(path, params=query)
    assert reply.status_code == 200, reply.text
    document: dict[str, Any] = reply.json()
    return document


async def digest(http: httpx.AsyncClient, name: str = "a") -> tuple[int, str]:
    """Return the position and the hash of a learner's state."""
    result = (await http.get(f"/learners/{name}/digest")).json()
    return result["position"], result["digest"]


async def replayed(store: Store, name: str = "a") -> tuple[int, str]:
    """Replay the whole log on a library learner; return the same pair."""
    birth = (await store.heads())[name].birth
    learner, position = None, 0
    for entry in await whole_log(store, name, birth):
        record = unpack_record(entry.data, f"record {entry.position}")
        position = entry.position
        if isinstance(record, Created):
            learner = Learner(Config.of_stored(record.config))
        else:
            assert learner is not None
            learner.apply(record)
    assert learner is not None
    return position, learner.digest()
