"""Nodes over a store that outlives them, spoken to over HTTP: as after `kill -9` nothing is saved at their end."""

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

__all__ = ["T0", "app_over", "digest", "node", "over", "posted", "replayed", "serving"]

T0 = 1_700_000_000.0  # the first event's time, in seconds


@asynccontextmanager
async def node(store: Store, **settings: Any) -> AsyncIterator[Engine]:
    """An engine that is never asked to stop."""
    engine = Engine(store, Settings(**{"follow_seconds": 60, "store": "memory:", **settings}))
    await engine.start()
    try:
        yield engine
    finally:
        hosts = engine.registry.all()
        tasks = [one.mailbox.task for one in hosts]
        tasks += [saving for one in hosts if (saving := one.snapshots._saving) is not None]
        tasks += [fit for one in engine.replicas.values() if (fit := one.fits._task) is not None]
        tasks += [
            task
            for task in (engine.sync.task, engine.residency.eviction, engine.node.webhook._task)
            if task is not None
        ]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        engine.node._threads.shutdown()


def app_over(engine: Engine) -> Any:
    """The application of an engine that runs already."""
    app = create_app(engine.node.settings)
    app.state.engine = engine
    return app


@asynccontextmanager
async def over(engine: Engine) -> AsyncIterator[httpx.AsyncClient]:
    """A client of it."""
    async with client_of(app_over(engine), "/v1") as http:
        yield http


@asynccontextmanager
async def serving(store: Store, **settings: Any) -> AsyncIterator[tuple[httpx.AsyncClient, Engine]]:
    """A node and a client of it."""
    async with node(store, **settings) as engine, over(engine) as http:
        yield http, engine


async def posted(http: httpx.AsyncClient, path: str, events: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The answer to a request that has to succeed."""
    reply = await http.post(path, json={"events": list(events)})
    assert reply.status_code == 200, reply.text
    answer: dict[str, Any] = reply.json()
    return answer


async def digest(http: httpx.AsyncClient, name: str = "a") -> tuple[int, str]:
    """The position and the hash of a learner's state there."""
    found = (await http.get(f"/learners/{name}/digest")).json()
    return found["position"], found["digest"]


async def replayed(store: Store, name: str = "a") -> tuple[int, str]:
    """The same of a library learner that is moved by the whole log from its start."""
    birth = (await store.heads())[name].birth
    learner, position = None, 0
    for entry in await whole_log(store, name, birth):
        record = unpack_record(entry.data, f"record {entry.position}")
        position = entry.position
        if isinstance(record, Created):
            learner = Learner(Config.of(record.config))
        else:
            assert learner is not None
            learner.apply(record)
    assert learner is not None
    return position, learner.digest()
