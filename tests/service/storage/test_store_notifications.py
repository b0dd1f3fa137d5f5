"""The promises of `Store`, kept by every store: how nodes hear of each other, and which of them takes snapshots."""

from __future__ import annotations

import asyncio
import time

import pytest

from service.errors import LearnerGone, StoreUnavailable
from service.storage.redis.key_names import LEASE_KEY, KeyNames
from service.storage.redis.leases import LeaseWatch
from service.storage.redis.redis_store import RedisStore
from service.storage.store_protocol import NOTICES, LogNotice, SnapshotInfo, Store
from tests.harness.fixtures import Opener
from tests.harness.redis_server import RedisServer
from tests.harness.store_records import BIRTH, filled, record, token
from tests.harness.waiting import eventually_async

LOCAL, REMOTE = b"h" * 16, b"t" * 16
INFO = SnapshotInfo(3, 1000, 1.5)


async def wait_for_notice(
    store: Store, after: bytes, seconds: float = 30.0
) -> tuple[bytes, dict[str, LogNotice] | None]:
    """Collect the notices since; some stores answer early without any."""
    ends = time.monotonic() + seconds
    while True:
        after, report = await store.poll(LOCAL, after, ends - time.monotonic())
        if report is None or report or time.monotonic() >= ends:
            return after, report


async def test_the_first_poll_reports_that_anything_may_have_changed(store: Store) -> None:
    after, report = await store.poll(LOCAL, b"", 0.0)
    assert report is None
    assert await wait_for_notice(store, after, 0.0) == (after, {})


async def test_appends_of_another_node_are_notified_immediately(open_again: Opener, kind: str) -> None:
    first, second = await open_again(), await open_again()
    await filled(first, 2)
    after, _ = await first.poll(LOCAL, b"", 0.0)
    listening = asyncio.create_task(wait_for_notice(first, after))
    await asyncio.sleep(0.1)
    assert not listening.done()
    await second.append("a", BIRTH, [record(3)], 2)
    await second.publish(REMOTE, {"a": LogNotice(3)})
    after, report = await listening
    assert report == (None if kind == "sqlite" else {"a": LogNotice(3)})
    assert await wait_for_notice(first, after, 0.0) == (after, {})


async def test_earlier_notices_are_returned_without_waiting(open_again: Opener, kind: str) -> None:
    first, second = await open_again(), await open_again()
    await filled(first, 2)
    after, _ = await first.poll(LOCAL, b"", 0.0)
    await second.append("a", BIRTH, [record(3)], 2)
    await second.publish(REMOTE, {"a": LogNotice(3, INFO), "b": LogNotice(7)})
    await second.publish(REMOTE, {"a": LogNotice(2), "b": LogNotice(0)})
    _, report = await wait_for_notice(first, after)
    assert report == (None if kind == "sqlite" else {"a": LogNotice(3, INFO), "b": LogNotice(0)})


async def test_a_node_is_not_notified_of_its_own_changes(store: Store) -> None:
    await filled(store, 2)
    after, _ = await store.poll(LOCAL, b"", 0.0)
    await store.append("a", BIRTH, [record(3)], 2)
    await store.publish(LOCAL, {"a": LogNotice(3)})
    _, report = await wait_for_notice(store, after, 0.3)
    assert report == {}


async def test_a_subscriber_does_not_block_writers(store: Store) -> None:
    await filled(store, 2)
    after, _ = await store.poll(LOCAL, b"", 0.0)
    listening = asyncio.create_task(wait_for_notice(store, after, 30.0))
    async with asyncio.timeout(20):
        await asyncio.gather(*(store.append("a", BIRTH, [record(number)], 2) for number in range(3, 80)))
    listening.cancel()
    await asyncio.wait([listening])
    assert listening.cancelled()


async def test_a_subscriber_far_behind_is_asked_to_check_everything(store: Store, kind: str) -> None:
    if kind == "sqlite":  # which tells so each time
        return
    after, _ = await store.poll(LOCAL, b"", 0.0)
    await store.publish(REMOTE, {"a": LogNotice(1)})
    after, report = await wait_for_notice(store, after)
    assert report == {"a": LogNotice(1)}
    for start in range(0, 3 * NOTICES, 100):
        await asyncio.gather(*(store.publish(REMOTE, {"a": LogNotice(number)}) for number in range(start, start + 100)))
    after, report = await wait_for_notice(store, after)
    assert report is None
    await store.publish(REMOTE, {"a": LogNotice(5)})
    assert (await wait_for_notice(store, after))[1] == {"a": LogNotice(5)}


async def test_a_closed_store_sends_no_notices(open_again: Opener) -> None:
    store = await open_again()
    await filled(store, 2)
    after, _ = await store.poll(LOCAL, b"", 0.0)
    listening = asyncio.create_task(store.poll(LOCAL, after, 1.0))
    await asyncio.sleep(0)
    async with asyncio.timeout(300):
        await store.close()
        await asyncio.wait([listening])
    listening.exception()
    for call in (store.poll(LOCAL, after, 1.0), store.publish(LOCAL, {}), store.lease("a", BIRTH, LOCAL, 1.0)):
        with pytest.raises(StoreUnavailable, match="closed"):
            await call


async def test_a_flushed_or_restarted_redis_requires_a_full_check(redis_server: RedisServer) -> None:
    store = RedisStore(redis_server.url)
    try:
        await store.publish(REMOTE, {"a": LogNotice(1)})
        after, _ = await store.poll(LOCAL, b"", 0.0)
        redis_server.flush()
        assert (await store.poll(LOCAL, after, 0.01))[1] is None
        await store.publish(REMOTE, {"a": LogNotice(2)})
        after, _ = await store.poll(LOCAL, b"", 0.0)
        listening = asyncio.create_task(wait_for_notice(store, after))
        await eventually_async(lambda: redis_server.statistics("clients")["blocked_clients"] == 1)
        await asyncio.to_thread(redis_server.restart)
        with pytest.raises(StoreUnavailable):
            await listening
    finally:
        await store.close()


# Leases


async def test_one_node_holds_the_lease_until_it_releases_it(open_again: Opener) -> None:
    first, second = await open_again(), await open_again()
    await filled(first, 2)
    results = await asyncio.gather(first.lease("a", BIRTH, LOCAL, 60.0), second.lease("a", BIRTH, REMOTE, 60.0))
    assert sorted(results) == [False, True]
    (local, mine), (other, other_node) = [(first, LOCAL), (second, REMOTE)][:: 1 if results[0] else -1]
    assert await local.lease("a", BIRTH, mine, 60.0)
    assert not await other.lease("a", BIRTH, other_node, 60.0)
    assert not await other.lease("a", BIRTH, other_node, 0.0)  # it has none to let go of
    assert not await other.lease("a", BIRTH, other_node, 60.0)
    assert await local.lease("a", BIRTH, mine, 0.0)
    assert await other.lease("a", BIRTH, other_node, 60.0)
    assert not await local.lease("a", BIRTH, mine, 60.0)


async def test_a_lease_expires(store: Store) -> None:
    await filled(store, 2)
    assert await store.lease("a", BIRTH, LOCAL, 0.05)
    assert await eventually_async(lambda: store.lease("a", BIRTH, REMOTE, 60.0))
    assert not await store.lease("a", BIRTH, LOCAL, 60.0)


async def test_leases_are_per_learner_and_creation(store: Store) -> None:
    await filled(store, 2)
    await store.create("b", token(100), b"b")
    assert await store.lease("a", BIRTH, LOCAL, 60.0)
    assert await store.lease("b", token(100), REMOTE, 60.0)
    await store.delete("a", BIRTH)
    with pytest.raises(LearnerGone):
        await store.lease("a", BIRTH, LOCAL, 60.0)
    await store.create("a", token(50), b"anew")
    with pytest.raises(LearnerGone):
        await store.lease("a", BIRTH, LOCAL, 60.0)
    assert await store.lease("a", token(50), REMOTE, 60.0)


async def test_a_step_of_the_machine_clock_makes_no_lease_longer(
    open_again: Opener, kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = await open_again(), await open_again()
    await filled(first, 2)
    assert await first.lease("a", BIRTH, LOCAL, 0.2)
    step_clock_back(request, kind, monkeypatch)
    assert await eventually_async(lambda: second.lease("a", BIRTH, REMOTE, 60.0))
    assert not await first.lease("a", BIRTH, LOCAL, 0.2)


async def test_a_lease_that_is_renewed_is_never_taken(redis_server: RedisServer) -> None:
    first, second = RedisStore(redis_server.url), RedisStore(redis_server.url)
    now = 0.0
    second.leases = LeaseWatch(lambda: now)
    try:
        await filled(first, 2)
        for _ in range(5):  # it lasts 10 s, and the other node asks later than that
            assert await first.lease("a", BIRTH, LOCAL, 10.0)
            now += 11.0
            assert not await second.lease("a", BIRTH, REMOTE, 1.0)
        now += 9.0
        assert not await second.lease("a", BIRTH, REMOTE, 1.0)  # its own lease is shorter
        now += 2.0
        assert not await second.lease("a", BIRTH, REMOTE, 0.0)  # it has none to let go of
        assert await second.lease("a", BIRTH, REMOTE, 1.0)
        assert not await first.lease("a", BIRTH, LOCAL, 10.0)
    finally:
        await first.close()
        await second.close()


def step_clock_back(request: pytest.FixtureRequest, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Step the clock that a kind of store counts leases by back by two hours."""
    if kind == "redis":  # a key with an expiry time lasts as much longer
        server = request.getfixturevalue("redis_server")
        assert server.command("PEXPIRE", KeyNames().of("a", LEASE_KEY), 7_200_000) == 1
    else:
        real = time.time
        monkeypatch.setattr(time, "time", lambda: real() - 7200.0)
