"""What is particular to the Redis store: a server that goes away, lies, forgets or refuses, and its keys."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from service.errors import BehindLog, Damaged, LearnerGone, LostRecords, StoreUnavailable
from service.storage.open_store import open_store
from service.storage.redis.key_names import KeyNames
from service.storage.redis.redis_store import RedisStore
from service.storage.store_protocol import LogEntry, LogHead, ServedCounts, ServedLimits
from tests.harness.redis_server import RedisServer
from tests.harness.store_records import BIRTH, UNBOUNDED, events, filled, record, token, whole_log


@pytest.fixture
async def store(redis_server: RedisServer) -> AsyncIterator[RedisStore]:
    store = RedisStore(redis_server.url)
    yield store
    await store.close()


# Away and back.


async def test_the_store_opens_while_redis_is_down() -> None:
    with RedisServer() as server:
        server.stop()
        store = await open_store(server.url)
        try:
            for call in (store.heads(), store.create("a", BIRTH, b"")):
                with pytest.raises(StoreUnavailable, match=rf"\b{server.port}\b"):
                    await call
            server.start()
            await store.heads()
            assert await store.create("a", BIRTH, b"") == LogHead(BIRTH, 1)
        finally:
            await store.close()


async def test_a_killed_redis_loses_no_returned_data_and_is_reconnected(
    store: RedisStore, redis_server: RedisServer
) -> None:
    await store.create("a", BIRTH, b"")
    returned: list[LogEntry] = []

    async def append(node: int) -> bytes:
        """Until Redis is away; the token whose fate is unknown."""
        after, number = 1, 0
        while True:
            number += 1
            private = token(node * 1_000_000 + number)
            try:
                entries = await store.append("a", BIRTH, [(private, b"data")], after)
            except StoreUnavailable:
                return private
            after = entries[-1].position
            returned.extend(entry for entry in entries if entry.token == private)
            if len(returned) == 200:
                redis_server.kill()

    unknown = await asyncio.gather(*(append(node) for node in range(1, 9)))
    with pytest.raises(StoreUnavailable):
        await store.read("a", BIRTH, 0, 1)
    redis_server.start()

    log = await whole_log(store)
    assert len(returned) >= 200
    assert all(log[entry.position - 1] == entry for entry in returned)
    for local in unknown:
        await store.append("a", BIRTH, [(local, b"data")], 1)
    log = await whole_log(store)
    assert [entry.position for entry in log] == list(range(1, len(log) + 1))
    tokens = [entry.token for entry in log]
    assert len(set(tokens)) == len(tokens)
    assert set(tokens) == {BIRTH, *unknown, *(entry.token for entry in returned)}


async def nothing() -> None:
    pass


@asynccontextmanager
async def losing_replies(
    server: RedisServer, replies: int, meanwhile: Callable[[], Awaitable[None]] = nothing, to: bytes = b"EVAL"
) -> AsyncIterator[str]:
    """Return a proxy that breaks the connection instead of passing on the first so many replies to scripts; its URL.

    `to`: only to requests that contain this.
    """
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal replies
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", server.port)
        writers.extend([writer, server_writer])
        while request := await reader.read(2**16):
            server_writer.write(request)
            reply = await server_reader.read(2**16)
            if to in request and not reply.startswith(b"-NOSCRIPT") and replies > 0:
                replies -= 1
                await meanwhile()
                break
            writer.write(reply)
        writer.close()
        server_writer.close()

    proxy = await asyncio.start_server(serve, "127.0.0.1")
    try:
        yield f"redis://127.0.0.1:{proxy.sockets[0].getsockname()[1]}/0"
    finally:
        proxy.close()
        for writer in writers:
            writer.close()
            await writer.wait_closed()
        await proxy.wait_closed()


@pytest.mark.parametrize("count", [1, 2, 3])
async def test_an_append_with_a_lost_reply_is_stored_once(
    count: int, store: RedisStore, redis_server: RedisServer
) -> None:
    await filled(store, 3)
    async with losing_replies(redis_server, count) as url:
        unsure = RedisStore(url)
        try:
            if count > 1:  # one loss is made good unseen
                with pytest.raises(StoreUnavailable):
                    await unsure.append("a", BIRTH, [record(4), record(5)], 3)
            entries = await unsure.append("a", BIRTH, [record(4), record(5)], 3)
        finally:
            await unsure.close()
    assert entries == [LogEntry(4, *record(4)), LogEntry(5, *record(5))]
    assert await store.heads() == {"a": LogHead(BIRTH, 5)}


@pytest.mark.parametrize("count", [1, 2])
async def test_a_serve_with_a_lost_reply_is_stored_once(
    count: int, store: RedisStore, redis_server: RedisServer
) -> None:
    await filled(store, 3)
    async with losing_replies(redis_server, count) as url:
        unsure = RedisStore(url)
        try:
            if count > 1:  # one loss is made good unseen
                with pytest.raises(StoreUnavailable):
                    await unsure.serve("a", BIRTH, record(4), 1, events(0, 3), UNBOUNDED)
            within = ServedLimits(2, 99, -math.inf)
            receipt = await unsure.serve("a", BIRTH, record(4), 1, events(0, 3), within)
            assert receipt.pending == ServedCounts(*((3, 33, 0, 0) if count > 1 else (2, 22, 0, 1)))
        finally:
            await unsure.close()
    assert await store.heads() == {"a": LogHead(BIRTH, 4)}


@pytest.mark.parametrize("call", ["append", "serve"])
async def test_a_retry_that_finds_the_log_trimmed_has_unknown_outcome(
    call: str, store: RedisStore, redis_server: RedisServer
) -> None:
    """`BehindLog` would say that nothing was written."""
    await filled(store, 3)

    async def trim() -> None:
        await store.save("a", BIRTH, 4, b"four", 1, trim=True)

    async def append(to: RedisStore, number: int) -> None:
        if call == "append":
            await to.append("a", BIRTH, [record(number)], 3)
        else:
            await to.serve("a", BIRTH, record(number), 3, events(0, 3), UNBOUNDED)

    async with losing_replies(redis_server, 1, meanwhile=trim) as url:
        unsure = RedisStore(url)
        try:
            with pytest.raises(StoreUnavailable, match=r"\b4\b") as caught:
                await append(unsure, 4)
            assert not isinstance(caught.value, BehindLog)
            with pytest.raises(BehindLog):
                await append(unsure, 5)
        finally:
            await unsure.close()
    assert await store.heads() == {"a": LogHead(BIRTH, 4)}
    assert await store.pending("a", BIRTH) == (
        ServedCounts(0, 0, 0, 0) if call == "append" else ServedCounts(3, 33, 0, 0)
    )


async def test_a_delete_with_a_lost_reply_differs_from_a_foreign_delete(
    store: RedisStore, redis_server: RedisServer
) -> None:
    await filled(store, 3)
    async with losing_replies(redis_server, 1, to=b":part:") as url:
        unsure = RedisStore(url)
        try:
            with pytest.raises(StoreUnavailable):
                await unsure.delete("a", BIRTH)
        finally:
            await unsure.close()
    assert await store.heads() == {}
    with pytest.raises(LearnerGone):
        await store.delete("a", BIRTH)
    assert redis_server.key_names() == {KeyNames().deleted}


async def test_a_hanging_redis_is_unavailable(store: RedisStore, redis_server: RedisServer) -> None:
    await filled(store, 3)
    hasty = RedisStore(f"{redis_server.url}?socket_timeout=0.1")
    try:
        redis_server.command("CLIENT", "PAUSE", 60_000, "WRITE")
        with pytest.raises(StoreUnavailable, match="Timeout"):
            await hasty.append("a", BIRTH, [record(4)], 3)
        redis_server.command("CLIENT", "UNPAUSE")
        assert await store.append("a", BIRTH, [record(4)], 3) == [LogEntry(4, *record(4))]
        assert await store.heads() == {"a": LogHead(BIRTH, 4)}
    finally:
        redis_server.command("CLIENT", "UNPAUSE")
        await hasty.close()


async def test_calls_beyond_the_connections_wait(redis_server: RedisServer) -> None:
    store = RedisStore(f"{redis_server.url}?max_connections=2")
    try:
        await store.create("a", BIRTH, b"")
        await asyncio.gather(*(store.append("a", BIRTH, [record(number)], 1) for number in range(2, 102)))
        assert await store.heads() == {"a": LogHead(BIRTH, 101)}
    finally:
        await store.close()


# Refusals.


async def assert_refused(store: RedisStore, reason: str) -> None:
    """Nothing can be written, and nothing is half-written."""
    before = await whole_log(store)
    with pytest.raises(StoreUnavailable, match=reason):
        await store.append("a", BIRTH, [record(9), record(10)], len(before))
    with pytest.raises(StoreUnavailable, match=reason):
        await store.create("b", token(9), b"")
    with pytest.raises(StoreUnavailable, match=reason):
        await store.serve("a", BIRTH, record(9), 1, events(0, 9), UNBOUNDED)
    assert await store.recall("a", BIRTH, ["0"]) == [None]
    assert await whole_log(store) == before


async def test_a_redis_out_of_memory_is_unavailable(store: RedisStore, redis_server: RedisServer) -> None:
    await filled(store, 3)
    try:
        redis_server.command("CONFIG", "SET", "maxmemory", 1)
        await assert_refused(store, "maxmemory")
    finally:
        redis_server.command("CONFIG", "SET", "maxmemory", 0)
    assert await store.append("a", BIRTH, [record(4)], 3) == [LogEntry(4, *record(4))]


async def test_a_redis_demoted_to_replica_is_unavailable(store: RedisStore, redis_server: RedisServer) -> None:
    await filled(store, 3)
    try:
        redis_server.command("REPLICAOF", "127.0.0.1", 1)
        await assert_refused(store, "replica")
    finally:
        redis_server.command("REPLICAOF", "NO", "ONE")
    assert await store.append("a", BIRTH, [record(4)], 3) == [LogEntry(4, *record(4))]


async def test_a_wrong_password_is_masked(redis_server: RedisServer) -> None:
    redis_server.command("ACL", "SETUSER", "ann", "on", ">right", "~*", "+@all")
    store = RedisStore(f"redis://ann:hunter2@127.0.0.1:{redis_server.port}")
    try:
        with pytest.raises(StoreUnavailable, match="username-password") as caught:
            await store.heads()
        assert "hunter2" not in str(caught.value)
    finally:
        redis_server.command("ACL", "DELUSER", "ann")
        await store.close()


async def test_a_password_repeated_by_the_server_is_masked() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(2**16)
        writer.write(b"-ERR unknown command `AUTH`, with args beginning with: `hunter2`\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1")
    store = RedisStore(f"redis://:hunter2@127.0.0.1:{server.sockets[0].getsockname()[1]}")
    try:
        with pytest.raises(StoreUnavailable, match=r"`AUTH`.*\*\*\*") as caught:
            await store.heads()
        assert "hunter2" not in caught.value.detail
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__  # no traceback shows it
    finally:
        await store.close()
        server.close()
        await server.wait_closed()


# Losses.


async def test_a_redis_without_its_scripts_reloads_them(store: RedisStore, redis_server: RedisServer) -> None:
    await filled(store, 2)
    redis_server.command("SCRIPT", "FLUSH")
    assert await store.append("a", BIRTH, [record(3)], 2) == [LogEntry(3, *record(3))]


async def test_a_flushed_redis_has_lost_its_learners(store: RedisStore, redis_server: RedisServer) -> None:
    await filled(store, 3)
    redis_server.flush()
    with pytest.raises(LearnerGone):
        await store.append("a", BIRTH, [record(4)], 3)
    assert await store.heads() == {}


async def test_a_redis_restored_from_an_older_copy_is_detected(store: RedisStore, redis_server: RedisServer) -> None:
    await filled(store, 3)
    backup = {key: redis_server.command("DUMP", key) for key in redis_server.key_names()}
    await store.append("a", BIRTH, [record(4), record(5)], 3)
    for key, value in backup.items():
        assert isinstance(value, bytes)
        redis_server.command("RESTORE", key, 0, value, "REPLACE")
    assert await store.heads() == {"a": LogHead(BIRTH, 3)}
    with pytest.raises(LostRecords, match=r"\b5\b.*\b3\b"):
        await store.append("a", BIRTH, [record(6)], 5)
    assert await store.append("a", BIRTH, [record(6)], 3) == [LogEntry(4, *record(6))]


async def test_an_evicted_part_of_a_snapshot_is_reported_as_damage(
    store: RedisStore, redis_server: RedisServer
) -> None:
    await filled(store, 3)
    await store.save("a", BIRTH, 2, b"two", 2, trim=False)
    (part,) = [key for key in redis_server.key_names() if ":part:" in key]
    redis_server.command("DEL", part)
    with pytest.raises(Damaged, match=r"\ba\b.*\b2\b"):
        await store.load("a", BIRTH)
