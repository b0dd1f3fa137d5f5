"""A Redis that answers nothing: it is reported, and then all calls are given up together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from service.errors import StoreUnavailable
from service.storage.redis.redis_store import RedisStore
from service.storage.redis.stall_watch import StallWatch
from service.storage.store_protocol import LogHead
from tests.harness.redis_server import RedisServer
from tests.harness.waiting import eventually_async

BIRTH = b"birth-of-a-12345"


async def silence() -> None:
    """Wait for an answer that never comes."""
    await asyncio.Event().wait()


async def answer() -> None:
    """Answer at once."""


async def refusal() -> None:
    """Answer by an error."""
    raise LookupError


async def make_call(watch: StallWatch, call: Callable[[], Awaitable[None]] = silence) -> None:
    """Make a call."""
    with suppress(LookupError):
        async with asyncio.timeout(None) as limit:
            with watch.call(limit):
                await call()


async def tick(watch: StallWatch, count: int) -> None:
    """Let some ticks pass."""
    for _ in range(count):
        watch._tick()
        for _ in range(3):  # for the task that asks
            await asyncio.sleep(0)


async def test_all_calls_are_given_up_together() -> None:
    watch = StallWatch(0.4, silence)
    assert watch.stall_seconds is None
    outcomes = await asyncio.gather(*(make_call(watch) for _ in range(3)), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [TimeoutError] * 3
    assert watch.stall_seconds == pytest.approx(0.2)
    with pytest.raises(TimeoutError):
        await make_call(watch)
    watch.close()


@pytest.mark.parametrize("call", [answer, refusal])
async def test_any_answer_ends_a_stall(call: Callable[[], Awaitable[None]]) -> None:
    watch = StallWatch(0.2, silence)
    with pytest.raises(TimeoutError):
        await make_call(watch)
    assert watch.stall_seconds is not None
    await make_call(watch, call)
    assert watch.stall_seconds is None
    watch.close()


async def test_a_stall_is_reported_before_calls_are_given_up() -> None:
    watch = StallWatch(60.0, silence)
    waiting = asyncio.create_task(make_call(watch))
    await asyncio.sleep(0)
    await tick(watch, 300)
    assert watch.stall_seconds == pytest.approx(30.0)
    assert not waiting.done()
    watch.close()
    waiting.cancel()
    await asyncio.wait([waiting])


async def test_a_long_call_is_not_given_up_while_redis_answers() -> None:
    """As a wait for replicas, or a call of many commands."""
    watch = StallWatch(0.8, answer)
    waiting = asyncio.create_task(make_call(watch))
    await asyncio.sleep(0)
    await tick(watch, 50)
    assert watch.stall_seconds is None
    assert not waiting.done()
    waiting.cancel()
    await asyncio.wait([waiting])


async def test_time_without_calls_is_no_stall() -> None:
    watch = StallWatch(0.2, silence)
    await tick(watch, 50)
    assert watch.stall_seconds is None


async def test_a_stopped_redis_ends_all_calls_and_is_back_when_it_answers(redis_server: RedisServer) -> None:
    store = RedisStore(f"{redis_server.url}?socket_timeout=1&max_connections=2")
    try:
        await store.create("a", BIRTH, b"")
        assert store.stall is None
        redis_server.pause()
        try:
            outcomes = await asyncio.gather(*(store.heads() for _ in range(6)), return_exceptions=True)
            stall = store.stall
        finally:
            redis_server.resume()
        assert {type(outcome) for outcome in outcomes} == {StoreUnavailable}
        assert stall is not None
        assert stall in {str(outcome) for outcome in outcomes}  # without processor, calls may wait too long for room

        async def answers() -> bool:
            try:
                return await store.heads() == {"a": LogHead(BIRTH, 1)}
            except StoreUnavailable:
                return False

        await eventually_async(answers)
        assert store.stall is None
    finally:
        await store.close()
