"""When the bytes of an erased event are gone from an SQLite file and from Redis: see docs/explanation/privacy.md."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from redis import Redis

from service.storage.open_store import open_store
from service.storage.store_protocol import ServedEvent
from tests.harness.redis_server import RedisServer
from tests.harness.store_records import BIRTH, UNBOUNDED, record, token

ID, SECRET = "passport-4711", b"account 0815 "


def rows(start: int, stop: int, size: int) -> list[ServedEvent]:
    return [ServedEvent(f"other-{i}", float(i), bytes([65 + i % 26]) * size) for i in range(start, stop)]


def in_files(folder: Path, what: bytes) -> list[str]:
    """Return the names of the store's files that have these bytes."""
    return sorted(file.name for file in folder.iterdir() if what in file.read_bytes())


@pytest.mark.parametrize("size", [60, 60_000])  # a cell of a page, and pages of its own
async def test_a_served_event_leaves_the_sqlite_file_at_once(tmp_path: Path, size: int) -> None:
    store = await open_store(f"sqlite:///{tmp_path / 'store.db'}")
    secret = ServedEvent(ID, 5.0, (SECRET * size)[:size])
    await store.create("a", BIRTH, b"created")
    served = [*rows(0, 5, size), secret, *rows(5, 10, size)]
    await store.serve("a", BIRTH, record(2), 1, served, UNBOUNDED)
    assert in_files(tmp_path, SECRET) == in_files(tmp_path, ID.encode()) != []
    assert await store.erase("a", BIRTH, ID)
    assert in_files(tmp_path, SECRET) == in_files(tmp_path, ID.encode()) == []
    await store.close()


async def test_a_record_leaves_the_sqlite_file_once_it_is_trimmed_and_the_file_vacuumed(tmp_path: Path) -> None:
    store = await open_store(f"sqlite:///{tmp_path / 'store.db'}")
    await store.create("a", BIRTH, b"created")
    data = [(token(i), (SECRET if i == 3 else b"another ") * 1000) for i in range(2, 6)]
    await store.append("a", BIRTH, data, 1)
    await store.save("a", BIRTH, 2, b"state", keep=1, trim=True)
    assert in_files(tmp_path, SECRET) != []  # position 3 is behind the snapshot
    await store.save("a", BIRTH, 5, b"state", keep=1, trim=True)
    await store.close()
    with closing(sqlite3.connect(tmp_path / "store.db")) as database:
        database.execute("VACUUM")
    assert in_files(tmp_path, SECRET) == []


async def test_an_erased_event_leaves_redis_with_its_neighbours(redis_server: RedisServer) -> None:
    store = await open_store(redis_server.url)
    await store.create("a", BIRTH, b"created")
    secret = ServedEvent(ID, 5.0, SECRET * 5)
    await store.serve("a", BIRTH, record(2), 1, [*rows(0, 5, 60), secret, *rows(5, 200, 60)], UNBOUNDED)
    assert await store.erase("a", BIRTH, ID)
    with Redis.from_url(redis_server.url) as client:
        keys = client.keys("*")

        def dumped() -> bytes:
            return b"".join(client.dump(key) or b"" for key in keys)  # as in an RDB file

        client.config_set("rdbcompression", "no")
        before = client.xlen("rarestream:{a}:served")
        assert before == 200
        assert client.hget("rarestream:{a}:ids", ID) is None
        assert SECRET in dumped()  # a stream only marks it
        # the neighbours in its block of at most 4 KB and 100 events go
        await store.serve("a", BIRTH, record(3), 2, rows(200, 201, 60), UNBOUNDED._replace(before=110.0))
        assert client.xlen("rarestream:{a}:served") < before
        assert SECRET not in dumped()
        assert ID.encode() not in dumped()
    await store.close()
