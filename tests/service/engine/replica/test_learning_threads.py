"""Learners share the learning threads fairly, and what is not learning does not wait for them."""

from __future__ import annotations

import asyncio
import threading

import pytest

from learners.config import Config
from service.storage.memory import MemoryStore
from tests.harness.apps import DENSE
from tests.harness.nodes import node
from tests.service.engine.test_engine import batch_of

pytestmark = pytest.mark.integration


async def test_packing_and_light_updates_do_not_wait_for_heavy_learners() -> None:
    """All learning threads are busy, and what is not learning goes on; a light batch is learnt at once."""
    async with node(MemoryStore(), threads=2) as engine:
        light, _ = await engine.create("light", Config.of(DENSE))
        for start in range(0, 60, 20):
            await light.label(batch_of(20, start))  # the kernels are loaded, and the cost is known
        busy = threading.Event()
        pieces = [asyncio.ensure_future(engine.node.in_learning_thread(busy.wait)) for _ in range(3)]
        try:
            assert await engine.node.in_thread(lambda: 7) == 7
            assert (await light.label(batch_of(1, 60))).outcome is not None
            await light.snapshots.save()
        finally:
            busy.set()
        assert await asyncio.gather(*pieces) == [True] * 3


async def test_learners_wait_in_line_for_the_learning_threads() -> None:
    """A learner has one piece in the line, so a light one comes before the next piece of a heavy one."""
    async with node(MemoryStore(), threads=1) as engine:
        order: list[str] = []

        async def learn(name: str, count: int) -> None:
            for _ in range(count):
                await engine.node.in_learning_thread(lambda: order.append(name))

        gate = threading.Event()
        first = asyncio.ensure_future(engine.node.in_learning_thread(gate.wait))
        learners = [asyncio.ensure_future(learn(name, count)) for name, count in (("a", 9), ("b", 9), ("light", 1))]
        await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(first, *learners)
        assert order[:3] == ["a", "b", "light"]
