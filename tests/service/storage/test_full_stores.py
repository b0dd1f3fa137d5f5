"""A full store: what needs no room works on, and frees some."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.engine.engine import Engine
from service.errors import StoreFull
from service.storage.memory import MemoryStore
from service.storage.open_store import open_store
from service.storage.sqlite.reserve import RESERVE_BYTES
from service.storage.store_protocol import LogEntry, SnapshotInfo, Store
from tests.harness.apps import DENSE, events
from tests.harness.nodes import app_over, digest, posted, serving
from tests.harness.redis_server import RedisServer
from tests.harness.store_records import BIRTH, UNBOUNDED, filled, record, token, whole_log
from tests.harness.store_records import events as served_events

Fill = Callable[[], None]
DISK = 16 * 2**20


@pytest.fixture(params=["sqlite", "redis"])
def kind(request: pytest.FixtureRequest) -> str:
    """Leave out the memory store, whose limit is that of the process."""
    return str(request.param)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a disk of 16 MiB, which takes root."""
    path = tmp_path / "disk"
    path.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(path)], capture_output=True)
    if mounted.returncode:
        pytest.skip("a disk of its own takes root")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


@pytest.fixture
async def limited(kind: str, request: pytest.FixtureRequest) -> AsyncIterator[tuple[Store, Fill]]:
    """Open a store, and return a function that takes all the room that it has."""
    if kind == "sqlite":
        disk: Path = request.getfixturevalue("disk")

        def fill() -> None:
            with (disk / "other").open("ab") as file:
                file.write(bytes(shutil.disk_usage(disk).free))

        store = await open_store(f"sqlite:///{disk / 'store.db'}")
        yield store, fill
        await store.close()
    else:
        server: RedisServer = request.getfixturevalue("redis_server")
        store = await open_store(server.url)
        try:
            yield store, lambda: server.command("CONFIG", "SET", "maxmemory", 1) and None
        finally:
            server.command("CONFIG", "SET", "maxmemory", 0)
            await store.close()


async def test_a_full_store_refuses_growth_and_deletes(limited: tuple[Store, Fill]) -> None:
    store, fill = limited
    for name in "ab":
        await filled(store, 9, name)
    await store.serve("b", BIRTH, record(10), 9, served_events(0, 300), UNBOUNDED)
    fill()
    before = await whole_log(store)
    with pytest.raises(StoreFull) as refused:
        await store.append("a", BIRTH, [(token(99), bytes(10**6))], 9)
    assert refused.value.code == "store-full"
    assert "script" not in refused.value.detail  # the name of the Lua script that failed
    with pytest.raises(StoreFull):
        await store.save("a", BIRTH, 9, bytes(10**6), 1, trim=True)
    assert await whole_log(store) == before
    await store.delete("b", BIRTH)
    assert list(await store.heads()) == ["a"]
    assert await store.deleted([BIRTH, token(77)]) == [BIRTH]


async def test_a_full_store_takes_small_records_and_leases(limited: tuple[Store, Fill]) -> None:
    store, fill = limited
    await filled(store, 9)
    fill()
    entries = await store.append("a", BIRTH, [record(10)], 9, reserve=True)
    assert [entry.position for entry in entries] == [10]
    assert await store.lease("a", BIRTH, b"node", 10)
    assert not await store.lease("a", BIRTH, b"other", 10)


async def test_a_full_store_is_pruned(limited: tuple[Store, Fill]) -> None:
    store, fill = limited
    log = await filled(store, 9)
    for position in (3, 5, 7):
        await store.save("a", BIRTH, position, bytes(position), 9, trim=False)
    fill()
    await store.prune("a", BIRTH, 6, trim=True)  # there is no such snapshot
    assert [info.position for info in await store.snapshots("a", BIRTH)] == [7, 5, 3]
    await store.prune("a", BIRTH, 5, trim=False)
    assert [info.position for info in await store.snapshots("a", BIRTH)] == [7, 5]
    assert await whole_log(store) == log
    await store.prune("a", BIRTH, 7, trim=True)
    assert [info.position for info in await store.snapshots("a", BIRTH)] == [7]
    assert await store.read("a", BIRTH, 7, 9) == log[7:]


async def test_a_learner_on_a_full_store_is_changed_and_deleted_and_others_go_on(
    limited: tuple[Store, Fill], kind: str, request: pytest.FixtureRequest
) -> None:
    store, fill = limited
    quiet: dict[str, Any] = {"snapshot_seconds": 3600, "snapshot_events": 10**9}
    async with serving(store, **quiet) as (http, engine):
        for name in "ab":
            assert (await http.put(f"/learners/{name}", json=DENSE)).status_code == 201

        async def update(name: str, size: int = 2000) -> Any:
            return await http.post(f"/learners/{name}/update", json={"events": events(size)})

        for _ in range(5):
            assert (await update("b")).status_code == 200
        fill()
        while (reply := await update("a")).status_code == 200:  # SQLite has room left in its files
            pass
        assert (reply.status_code, reply.json()["code"]) == (503, "store-full")
        change = {"threshold": {"objective": "recall", "target": 0.9}}
        assert (await http.patch("/learners/a", json=change)).status_code == 200
        assert (await http.delete("/learners/b")).status_code == 204
        if kind == "redis":
            request.getfixturevalue("redis_server").command("CONFIG", "SET", "maxmemory", 2**30)
        assert (await update("a")).status_code == 200
        assert engine.node.full is None


class FullStore(MemoryStore):
    """A store of limited room, in bytes of records and snapshots."""

    room = 10**9

    def _take(self, size: int) -> None:
        used = sum(
            sum(len(entry.data) for entry in log.entries) + sum(len(data) for data, _ in log.snapshots.values())
            for log in self._logs.values()
        )
        if used + size > self.room:
            raise StoreFull("no room")

    async def append(self, learner: str, birth: bytes, records: Any, *rest: Any, **named: Any) -> list[LogEntry]:
        if not (named.get("reserve") or rest[2:] == (True,)):
            self._take(sum(len(data) for _, data in records))
        return await super().append(learner, birth, records, *rest, **named)

    async def save(self, learner: str, birth: bytes, position: int, snapshot: bytes, *rest: Any) -> SnapshotInfo | None:
        self._take(len(snapshot))
        return await super().save(learner, birth, position, snapshot, *rest)


async def test_a_full_store_is_reported_and_older_snapshots_and_the_log_make_room() -> None:
    store = FullStore()
    async with serving(store, snapshot_seconds=3600, snapshot_events=10**9) as (http, engine):
        assert (await http.put("/learners/a", json=DENSE)).status_code == 201
        for _ in range(4):
            await posted(http, "/learners/a/update", events(500))
            assert (await http.post("/learners/a/snapshots")).status_code == 201
        before = await digest(http)
        store.room = 0
        reply = await http.post("/learners/a/update", json={"events": events(500)})
        assert (reply.status_code, reply.json()["code"], reply.headers["retry-after"]) == (503, "store-full", "1")
        health = await http.get("/health/ready")
        assert (health.status_code, health.json()["status"], health.json()["detail"]) == (200, "store-full", "no room")
        assert b"rarestream_store_full 1.0" in await metrics(engine)
        assert (await http.post("/learners/a/snapshots")).status_code == 503
        replica = engine.get("a")
        assert [info.position for info in await store.snapshots("a", replica.birth)] == [before[0]]
        assert await store.read("a", replica.birth, before[0], 9) == []
        change = {"threshold": {"objective": "recall", "target": 0.9}}
        assert (await http.patch("/learners/a", json=change)).status_code == 200  # from the reserve
        assert (await http.get("/health/ready")).json()["status"] == "store-full"
        store.room = 10**6
        await posted(http, "/learners/a/update", events(1))  # fits where others do not
        assert (await http.get("/health/ready")).json()["status"] == "store-full"
        await posted(http, "/learners/a/update", events(500))
        assert (await http.get("/health/ready")).json()["status"] == "ok"
        assert b"rarestream_store_full 0.0" in await metrics(engine)


async def test_a_store_that_has_refused_nothing_for_long_is_not_reported_as_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody may send as much again after there is room."""
    store = FullStore()
    async with serving(store, snapshot_seconds=3600, snapshot_events=10**9) as (http, engine):
        assert (await http.put("/learners/a", json=DENSE)).status_code == 201
        store.room = 0
        assert (await http.post("/learners/a/update", json={"events": events(500)})).status_code == 503
        assert (await http.get("/health/ready")).json()["status"] == "store-full"
        monkeypatch.setattr("service.engine.node_resources._RECENT_SECONDS", 0.0)
        assert (await http.get("/health/ready")).json()["status"] == "ok"
        assert b"rarestream_store_full 0.0" in await metrics(engine)


async def metrics(engine: Engine) -> bytes:
    transport = httpx.ASGITransport(app=app_over(engine))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
        return (await http.get("/metrics")).content


async def test_the_reserve_is_filled_again_when_the_disk_has_room(disk: Path) -> None:
    store = await open_store(f"sqlite:///{disk / 'store.db'}")
    reserve = disk / "store.db-reserve"
    assert reserve.stat().st_size == RESERVE_BYTES
    await filled(store, 2)
    other = disk / "other"
    other.write_bytes(bytes(shutil.disk_usage(disk).free))
    await store.append("a", BIRTH, [(token(3), bytes(10**6))], 2, reserve=True)
    assert not reserve.exists()
    with pytest.raises(StoreFull):  # what is left is for deletions
        await store.append("a", BIRTH, [record(4)], 3)
    other.unlink()
    await store.append("a", BIRTH, [record(4)], 3)
    assert reserve.stat().st_size == RESERVE_BYTES
    await store.close()
