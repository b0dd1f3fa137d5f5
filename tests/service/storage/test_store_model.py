"""Every store does what the one in memory does, whatever is done in whatever order."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.errors import StoreError
from service.storage import memory
from service.storage import store_protocol as stores
from service.storage.memory import MemoryStore
from service.storage.open_store import open_store
from service.storage.redis import redis_store as redis
from service.storage.redis import served_scripts as redis_served
from service.storage.served_labels import ServedLabel
from service.storage.sqlite import log as sqlite_log
from service.storage.sqlite import served_rows as sqlite_served
from service.storage.sqlite import sqlite_store as sqlite
from service.storage.store_protocol import (
    ExpiredEvents,
    LogHead,
    NewestSnapshot,
    ServedEvent,
    ServedLimits,
    ServedPage,
    ServeReceipt,
    SnapshotInfo,
    Store,
)
from tests.harness.store_records import token

pytestmark = pytest.mark.integration

ABSENT = LogHead(token(99), 0)

learners = st.sampled_from(["a", "b"])
records = st.integers(0, 9).map(lambda i: (token(i), bytes(6 * i)))  # a token names one record
data = st.binary(max_size=60)
births = st.sampled_from([True, True, True, False])  # the present one, mostly
relative = st.integers(-6, 1)  # to the head of the log
IDS = ["", "a", "ä", "漢字", "0", "1"]
ids = st.lists(st.sampled_from(IDS), max_size=8)
times = st.integers(0, 9).map(float)
served = st.lists(st.builds(ServedEvent, st.sampled_from(IDS), times, st.binary(max_size=60)), max_size=8)
labels = st.dictionaries(
    st.sampled_from(IDS),
    st.lists(st.builds(ServedLabel, st.integers(1, 9), st.integers(0, 2), times), max_size=3),
    max_size=4,
)
bounds = st.builds(
    ServedLimits,
    st.integers(0, 7),
    st.integers(0, 250) | st.just(2**63),
    st.just(-math.inf) | times | st.just(math.inf),
)
step = st.one_of(
    st.tuples(st.just("create"), learners, records),
    st.tuples(st.just("append"), learners, births, st.lists(records, max_size=4), relative),
    st.tuples(st.just("append"), learners, births, st.lists(records, max_size=4), st.integers(-1, 0)),
    st.tuples(st.just("read"), learners, births, relative, st.integers(1, 5)),
    st.tuples(st.just("save"), learners, births, relative, data, st.integers(0, 3), st.booleans()),
    st.tuples(st.just("load"), learners, births, st.none() | relative),
    st.tuples(st.just("snapshots"), learners, births),
    st.tuples(st.just("load_newest"), learners, births),
    st.tuples(st.just("delete"), learners, births),
    st.tuples(st.just("serve"), learners, births, records, relative, served, bounds),
    st.tuples(st.just("serve"), learners, births, records, st.integers(-1, 0), served, bounds),
    st.tuples(st.just("recall"), learners, births, ids),
    st.tuples(st.just("expired"), learners, births, times, st.integers(0, 5)),
    st.tuples(st.just("settle"), learners, births, times, st.lists(st.integers(0, 5), max_size=3)),
    st.tuples(st.just("labelled"), learners, births, labels),
    st.tuples(st.just("labels"), learners, births, ids),
    st.tuples(st.just("reopen"), learners, births),
    st.tuples(st.just("erase"), learners, births, st.sampled_from(IDS)),
)


async def outcome(call: Awaitable[Any]) -> Any:
    """Return what a call returns, without the clock; or the error that it raises."""
    try:
        result = await call
    except StoreError as error:
        return type(error), error.detail
    if isinstance(result, list) and result and isinstance(result[0], SnapshotInfo):
        return [(snapshot.position, snapshot.size) for snapshot in result]
    if isinstance(result, SnapshotInfo):
        return result[:2]
    if isinstance(result, NewestSnapshot) and result.snapshot is not None:
        return result._replace(snapshot=result.snapshot[:2])
    if isinstance(result, ExpiredEvents):
        return result.events, result.labelled, result.more  # the numbers are each store's own
    if isinstance(result, ServedPage):
        return result.events, result.labels, result.more
    return result


async def settle(store: Store, learner: str, birth: bytes, before: float, limits: list[int]) -> None:
    """As nodes do that have found what has expired at the same moment, some of which are late."""
    for expired in [await store.expired(learner, birth, before, limit) for limit in limits]:
        await store.settle(learner, birth, expired.upto)


async def compare(url: str, steps: list[tuple[Any, ...]]) -> None:
    model, store = MemoryStore(), await open_store(url)
    try:
        for name, learner, *arguments in steps:
            if name == "create":
                arguments = list(arguments[0])
            else:
                head = (await model.heads()).get(learner, ABSENT)
                present = arguments.pop(0)
                birth = head.birth if present else token(98)
                if name in ("append", "serve", "read", "save", "load"):
                    at = 1 if name in ("append", "serve") else 0
                    if arguments[at] is not None:
                        arguments[at] = max(head.position + arguments[at], 0)
                arguments.insert(0, birth)

            def call(on: Store, name: str = name, of: str = learner, value: list[Any] = arguments) -> Awaitable[Any]:
                result: Awaitable[Any] = settle(on, of, *value) if name == "settle" else getattr(on, name)(of, *value)
                return result

            ours, expected = await outcome(call(store)), await outcome(call(model))
            if isinstance(ours, NewestSnapshot) and isinstance(expected, NewestSnapshot) and not expected.token:
                ours = ours._replace(token=b"")  # Redis knows the last one that it trimmed
            if isinstance(ours, ServeReceipt) and isinstance(expected, ServeReceipt) and not expected.before:
                ours = ours._replace(before=b"")
            assert ours == expected, (name, learner, *arguments)
            assert await store.heads() == await model.heads()
            for learner, head in (await model.heads()).items():
                assert await store.pending(learner, head.birth) == await model.pending(learner, head.birth)
        for learner, head in (await model.heads()).items():
            assert await store.recall(learner, head.birth, IDS) == await model.recall(learner, head.birth, IDS)
            newest = await outcome(model.served(learner, head.birth, 10))
            assert await outcome(store.served(learner, head.birth, 10)) == newest
            oldest = await outcome(model.served_after(learner, head.birth, 10, 1))
            assert await outcome(store.served_after(learner, head.birth, 10, 1)) == oldest
            everything = await outcome(model.expired(learner, head.birth, math.inf, 10))
            assert await outcome(store.expired(learner, head.birth, math.inf, 10)) == everything
            for after in range(head.position + 1):
                read = await outcome(model.read(learner, head.birth, after, 100))
                assert await outcome(store.read(learner, head.birth, after, 100)) == read
    finally:
        await store.close()


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
@given(steps=st.lists(step, max_size=30))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_a_store_behaves_like_the_model(
    kind: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[Any, ...]]
) -> None:
    if kind == "redis":
        server = request.getfixturevalue("redis_server")
        server.flush()
        url = server.url
    else:
        url = f"sqlite:///{tmp_path_factory.mktemp('model') / 'store.db'}"
    with pytest.MonkeyPatch.context() as small:  # so that replies end early and much comes in steps
        for module in (memory, sqlite_log, sqlite_served, redis):
            small.setattr(module, "REPLY_BYTES", 100)
        for module in (memory, sqlite_served, redis_served):
            small.setattr(module, "DROPS", 2)
        small.setattr(stores, "IDS", 3)
        for module in (sqlite, redis):
            small.setattr(module, "SNAPSHOT_PART", 8)
        asyncio.run(compare(url, steps))
