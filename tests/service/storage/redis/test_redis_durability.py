"""What the Redis store waits for before it says that something is durable, and what it refuses."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import redis
from pydantic import ValidationError
from redis.exceptions import ResponseError

from service.errors import LearnerGone, StoreUnavailable
from service.settings import Settings
from service.storage.open_store import open_store
from service.storage.redis.durability import SETTINGS, Acks
from service.storage.store_protocol import LogEntry, LogHead, Store
from tests.harness.nodes import serving
from tests.harness.redis_fleet import linked, watched
from tests.harness.redis_server import REDIS, VALKEY, RedisServer
from tests.harness.store_records import BIRTH, UNBOUNDED, events, filled, labels_of, record, whole_log
from tests.harness.waiting import eventually, eventually_async

pytestmark = pytest.mark.integration

SHORT = "?socket_timeout=3"  # an acknowledgement is waited for over half of it


@asynccontextmanager
async def opened(url: str, acks: str) -> AsyncIterator[Store]:
    store = await open_store(url, acks)
    try:
        yield store
    finally:
        await store.close()


def waits(server: RedisServer, command: str) -> int:
    """How often the server has been sent a command."""
    stats = server.command("INFO", "commandstats")
    assert isinstance(stats, dict)
    return int(stats.get(f"cmdstat_{command}", {"calls": 0})["calls"])


# The setting


@pytest.mark.parametrize("acks", ["", "disk", "replicas", "replicas:0", "replicas:-1", "replicas:x", "AOF"])
async def test_invalid_acks_are_refused(acks: str) -> None:
    with pytest.raises(ValidationError, match="acks"):
        Settings(acks=acks)
    with pytest.raises(ValueError, match="acks"):
        await open_store("redis://127.0.0.1:1", acks)


@pytest.mark.parametrize("acks", ["aof", "replicas:1"])
async def test_other_stores_accept_the_default_acks_only(acks: str, tmp_path: Path) -> None:
    for url in ("memory:", f"sqlite:///{tmp_path / 'store.db'}"):
        with pytest.raises(ValueError, match=f"acks={acks}"):
            await open_store(url, acks)
        await (await open_store(url, "memory")).close()


@pytest.mark.parametrize("acks", ["memory", "aof", "replicas:1"])
async def test_the_store_opens_while_redis_is_down(acks: str) -> None:
    async with opened("redis://127.0.0.1:1", acks) as store:
        with pytest.raises(StoreUnavailable):
            await store.create("a", BIRTH, b"")


def test_serve_refuses_unsupported_acks(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'store.db'}"
    command = [sys.executable, "-m", "service", "serve", "--port", "0", "--store", store, "--acks", "aof"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 2
    assert "acks=aof" in ended.stderr


# memory


async def test_a_missing_append_only_file_is_reported_to_operators(caplog: pytest.LogCaptureFixture) -> None:
    with RedisServer(appendonly="no") as server, caplog.at_level(logging.WARNING, "rarestream.store"):
        async with opened(server.url, "memory") as store, serving(store) as (http, _):
            assert store.caution is not None
            assert [record.getMessage() for record in caplog.records] == [store.caution]
            ready = await http.get("/health/ready")
            assert ready.status_code == 200
            assert store.caution in ready.json()["detail"]
    with RedisServer() as server:
        async with opened(server.url, "memory") as store, serving(store) as (http, _):
            assert (await http.get("/health/ready")).json()["detail"] is None
            assert waits(server, "wait") == waits(server, "config|get") == 0


# aof


@pytest.mark.parametrize(
    ("binary", "options", "why"),
    [
        (REDIS, {"appendonly": "no"}, "appendfsync always"),
        (REDIS, {"appendfsync": "everysec"}, "appendfsync always"),
        (REDIS, {"no_appendfsync_on_rewrite": "yes"}, "no-appendfsync-on-rewrite no"),
        (VALKEY, {"appendonly": "no"}, "`appendonly yes`"),
        (VALKEY, {"appendfsync": "no"}, "`appendfsync no`"),
    ],
    ids=["no file", "everysec", "no fsync on rewrite", "no file, with WAITAOF", "no fsync, with WAITAOF"],
)
async def test_a_server_without_durable_writes_is_refused_at_the_start(
    binary: str, options: dict[str, str], why: str
) -> None:
    with RedisServer(binary, **options) as server, pytest.raises(ValueError, match=why):
        await open_store(server.url, "aof")


async def test_a_server_hiding_its_settings_is_refused_at_the_start() -> None:
    with RedisServer() as server:
        server.command("ACL", "SETUSER", "ann", "on", ">hunter2", "~*", "+@all", "-config")
        with pytest.raises(ValueError, match="CONFIG") as caught:
            await open_store(f"redis://ann:hunter2@127.0.0.1:{server.port}", "aof")
        assert "hunter2" not in str(caught.value)
    with RedisServer(VALKEY, appendfsync="everysec") as server:  # one with WAITAOF need not tell
        server.command("ACL", "SETUSER", "ann", "on", ">hunter2", "~*", "+@all", "-config")
        async with opened(f"redis://ann:hunter2@127.0.0.1:{server.port}", "aof") as store:
            await store.create("a", BIRTH, b"")


@pytest.mark.parametrize(("binary", "command"), [(REDIS, "config"), (VALKEY, "waitaof")], ids=["redis", "valkey"])
async def test_every_durable_call_waits_for_the_acknowledgement(binary: str, command: str) -> None:
    with RedisServer(binary) as server:
        async with opened(server.url, "aof") as store:

            def durable(name: str) -> list[Callable[[], Awaitable[Any]]]:
                return [
                    lambda: store.append(name, BIRTH, [record(2), record(3)], 1),
                    lambda: store.serve(name, BIRTH, record(4), 1, events(0, 3), UNBOUNDED),
                    lambda: store.settle(name, BIRTH, 2),
                    lambda: store.reopen(name, BIRTH),
                    lambda: store.labelled(name, BIRTH, labels_of(["1"])),
                    lambda: store.save(name, BIRTH, 3, b"three", 2, trim=True),
                ]

            await store.create("first", BIRTH, b"")
            for call in durable("first"):  # the server gets to know the scripts
                await call()
            await store.delete("first", BIRTH)
            last = waits(server, command)

            async def times(call: Awaitable[Any]) -> int:
                nonlocal last
                with suppress(LearnerGone):
                    await call
                before, last = last, waits(server, command)
                return last - before

            assert await times(store.create("a", BIRTH, b"")) == 2  # the list of learners, and the learner
            assert await times(store.create("a", record(9)[0], b"")) == 2
            for call in (
                lambda: store.read("a", BIRTH, 0, 9),
                lambda: store.token("a", BIRTH, 1),
                lambda: store.recall("a", BIRTH, ["1"]),
                lambda: store.expired("a", BIRTH, 0.0, 9),
                lambda: store.pending("a", BIRTH),
                lambda: store.snapshots("a", BIRTH),
                store.heads,
            ):
                assert await times(call()) == 0
            for call in durable("a"):
                assert [await times(call()), await times(call())] == [1, 1]  # also where all is there already
            for _ in range(2):
                assert await times(store.delete("a", BIRTH)) == 2  # the record of the deletion, and the learner


async def test_changed_settings_are_detected_by_the_next_write() -> None:
    for binary, setting, word in (
        (REDIS, ("appendfsync", "everysec", "always"), "WAITAOF"),
        (VALKEY, ("appendonly", "no", "yes"), "appendonly"),
    ):
        with RedisServer(binary) as server:
            async with opened(server.url, "aof") as store:
                await filled(store, 3)
                name, bad, good = setting
                server.command("CONFIG", "SET", name, bad)
                for _ in range(2):  # it is written, and not known to stay
                    with pytest.raises(StoreUnavailable, match=word):
                        await store.append("a", BIRTH, [record(4)], 3)
                server.command("CONFIG", "SET", name, good)
                assert await store.append("a", BIRTH, [record(4)], 3) == [LogEntry(4, *record(4))]
                assert await store.heads() == {"a": LogHead(BIRTH, 4)}


def test_a_reply_is_interpreted_according_to_its_command() -> None:
    """Two writes of a node are under way while the servers, that lack WAITAOF, are set up otherwise."""
    acks = Acks("aof", 5.0)
    lacking = ResponseError("unknown command 'WAITAOF'")
    assert acks.substitute(acks.command(), lacking) == SETTINGS
    settings = [b"appendonly", b"yes", b"no-appendfsync-on-rewrite", b"no", b"appendfsync"]
    first, second = acks.command(), acks.command()
    assert first == second == SETTINGS
    acks.check(first, [*settings, b"always"])
    for request in (first, second):
        with pytest.raises(StoreUnavailable, match="on-rewrite"):
            acks.check(request, [*settings, b"everysec"])
        with pytest.raises(StoreUnavailable, match="CONFIG"):
            acks.check(request, ResponseError("no permissions"))
    assert acks.command()[0] == "WAITAOF"  # the next server may have it
    acks.check(acks.command(), [1, 0])
    with pytest.raises(StoreUnavailable, match="disk"):
        acks.check(acks.command(), [0, 0])


async def test_concurrent_writes_each_check_the_setting() -> None:
    with RedisServer() as server:
        async with opened(server.url, "aof") as store:
            await filled(store, 3)
            server.command("CONFIG", "SET", "appendfsync", "everysec")
            for start in (4, 44):
                outcomes = await asyncio.gather(
                    *(store.append("a", BIRTH, [record(number)], 3) for number in range(start, start + 40)),
                    return_exceptions=True,
                )
                assert [type(outcome) for outcome in outcomes] == [StoreUnavailable] * 40


@pytest.mark.parametrize("fsync", ["always", "everysec"])
async def test_writes_acknowledged_by_waitaof_survive_a_kill_of_redis(fsync: str) -> None:
    with RedisServer(VALKEY, appendfsync=fsync) as server:
        async with opened(server.url, "aof") as store:
            await filled(store, 3)
            await asyncio.gather(*(store.append("a", BIRTH, [record(number)], 3) for number in range(4, 44)))
            log = await whole_log(store)
            server.restart()
            assert await whole_log(store) == log


# replicas


async def test_an_event_counts_when_enough_replicas_have_it() -> None:
    with watched() as servers:
        async with opened(f"{servers.url}&socket_timeout=3", "replicas:1") as store:
            assert store.caution is None
            await filled(store, 3)
            replica = servers.replica
            assert replica.command("XLEN", "rarestream:{a}:log") == 3
            replica.pause()
            for _ in range(2):  # the repeat writes nothing new, and waits all the same
                with pytest.raises(StoreUnavailable, match=r"\b0\b.*\b1\b.*\b1\.8\b"):
                    await store.append("a", BIRTH, [record(4)], 3)
            for call in (
                store.settle("a", BIRTH, 0),
                store.labelled("a", BIRTH, labels_of(["x"])),
                store.create("a", BIRTH, b""),
            ):
                with pytest.raises(StoreUnavailable, match=r"\b0\b.*\b1\b"):
                    await call
            assert len(await store.read("a", BIRTH, 0, 9)) == 4  # reading waits for nobody
            replica.resume()
            eventually(lambda: linked(replica), "a replica that follows")
            assert await store.append("a", BIRTH, [record(4)], 3) == [LogEntry(4, *record(4))]
            assert replica.command("XLEN", "rarestream:{a}:log") == 4


async def test_too_few_replicas_are_reported_at_the_start(caplog: pytest.LogCaptureFixture) -> None:
    with RedisServer() as server, caplog.at_level(logging.WARNING, "rarestream.store"):
        async with opened(server.url + SHORT, "replicas:2") as store:
            assert store.caution is not None
            assert "acks=replicas:2" in store.caution
            assert [record.getMessage() for record in caplog.records] == [store.caution]
            with pytest.raises(StoreUnavailable, match=r"\b0\b.*\b2\b"):
                await store.create("a", BIRTH, b"")


async def test_a_new_master_must_meet_the_same_durability() -> None:
    with watched(VALKEY) as servers:
        async with opened(servers.url, "aof") as store:
            await filled(store, 3)
            old, new = servers.master, servers.replica
            new.command("CONFIG", "SET", "appendonly", "no")
            old.kill()
            servers.failed_over(old)

            async def refused() -> bool:
                try:
                    await store.append("a", BIRTH, [record(4)], 3)
                except StoreUnavailable as error:
                    return "appendonly" in error.detail
                return False

            await eventually_async(refused)
            with pytest.raises(redis.ConnectionError):
                old.command("PING")
            new.command("CONFIG", "SET", "appendonly", "yes")
            eventually(lambda: new.command("WAITAOF", 1, 0, 100)[0] == 1, "an append-only file")  # type: ignore[index]
            assert await store.append("a", BIRTH, [record(4)], 3) == [LogEntry(4, *record(4))]
