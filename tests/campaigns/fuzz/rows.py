"""Stores into which something else has written: a row of SQLite, or a key of Redis, is changed, and a node started.

The node starts, or says in plain words why it cannot; the learner that was not touched is served as ever; the other one
is as it was, or goes on from what is there, or says that it is damaged. Nothing is a fault of the service's own.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import sqlite3
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path
from random import Random
from typing import Any

import httpx
import redis

from service.errors import ServiceError
from service.storage.open_store import open_store
from service.storage.store_protocol import Store
from tests.campaigns.fuzz.bodies import events
from tests.campaigns.fuzz.mutations import mutated_bytes
from tests.campaigns.fuzz.report import Report, until
from tests.campaigns.fuzz.serving import LEARNERS
from tests.harness.nodes import node, over
from tests.harness.redis_server import RedisServer

__all__ = ["rows"]

_ODD: list[Any] = [b"", b"\x00", b"\xff\xfe", "text", 0, 1, 2, -1, 7, 2**40, 2**63 - 1, -(2**63), 1.5, 1e308]


class _Data(ABC):
    """The data of a store, as they were and as they are changed."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def fill(self) -> None:
        """Two learners that have learnt, been saved and served."""
        store = await open_store(self.url)
        async with node(store, snapshots_kept=2) as engine, over(engine) as http:
            for name in ("a", "b"):
                (await http.put(f"/learners/{name}", json=LEARNERS["dense"])).raise_for_status()
                for step in range(3):
                    body = [event | {"id": f"{step}-{event['id']}"} for event in events("dense", "update")]
                    (await http.post(f"/learners/{name}/update", json={"events": body})).raise_for_status()
                    if step < 2:
                        (await http.post(f"/learners/{name}/snapshots")).raise_for_status()
                request = {"events": [event | {"id": f"s-{event['id']}"} for event in events("dense", "predict")]}
                (await http.post(f"/learners/{name}/predict", json=request)).raise_for_status()
        await store.close()
        self.keep()

    @abstractmethod
    def keep(self) -> None:
        """Note the data."""

    @abstractmethod
    def change(self, random: Random) -> tuple[str, str]:
        """Put them back, and change something of learner `a`'s; what, and how."""


class _Sqlite(_Data):
    """A file."""

    def __init__(self, folder: Path) -> None:
        self._path, self._originals = folder / "store.db", folder / "kept.db"
        super().__init__(f"sqlite:///{self._path}")

    def keep(self) -> None:
        with sqlite3.connect(self._path) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        db.close()
        shutil.copy(self._path, self._originals)

    def change(self, random: Random) -> tuple[str, str]:
        for end in ("-wal", "-shm"):
            Path(f"{self._path}{end}").unlink(missing_ok=True)
        shutil.copy(self._originals, self._path)
        db = sqlite3.connect(self._path)
        try:
            (local,) = db.execute("SELECT id FROM learner WHERE name = 'a'").fetchone()
            where = {
                "learner": f"id = {local}",
                "entry": f"learner = {local}",
                "snapshot": f"learner = {local}",
                "part": f"snapshot IN (SELECT id FROM snapshot WHERE learner = {local})",
                "served": f"learner = {local}",
                "pending": f"learner = {local}",
            }
            table = random.choice([*where, "entry", "part", "served"])
            columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
            free = [item for item in columns if (table, item) not in (("learner", "id"), ("learner", "name"))]
            column = random.choice([item for item in free if item not in ("learner", "snapshot", "number")])
            actual = db.execute(f"SELECT rowid, {column} FROM {table} WHERE {where[table]}").fetchall()
            row, value = random.choice(actual)
            other = _other(random, value)
            try:
                db.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (other, row))
                db.commit()
            except (sqlite3.Error, OverflowError):  # the schema refuses it: a row is missing instead
                db.rollback()
                db.execute(f"DELETE FROM {table} WHERE rowid = ?", (row,))
                db.commit()
                other = "no row"
            return f"SQLite {table}.{column}", f"{str(value)[:60]} became {str(other)[:60]}"
        finally:
            db.close()


def _other(random: Random, value: Any) -> Any:
    if isinstance(value, bytes) and random.random() < 0.6:
        return mutated_bytes(random, value)
    if isinstance(value, int) and random.random() < 0.5:
        return value + random.choice([-1, 1, 100])
    return random.choice(_ODD)


class _Redis(_Data):
    """A server's keys."""

    def __init__(self, server: RedisServer) -> None:
        super().__init__(server.url)
        self._client: Any = redis.Redis.from_url(server.url)  # typed as if it might be asynchronous
        self._originals: dict[bytes, bytes] = {}

    def keep(self) -> None:
        self._originals = {key: self._client.dump(key) for key in self._client.keys("*")}

    def change(self, random: Random) -> tuple[str, str]:
        client = self._client
        client.flushall()
        for key, dumped in self._originals.items():
            client.restore(key, 0, dumped)
        key = random.choice(sorted(key for key in self._originals if b"{a}" in key or b":a" in key))
        kind = client.type(key)
        name = key.decode("utf-8", "replace")
        if random.random() < 0.1:
            client.delete(key)
            client.set(key, b"other")
            return f"Redis {name}", "of another type"
        if kind == b"string":
            client.set(key, _bytes(random, client.get(key)))
        elif kind == b"hash":
            field, value = random.choice(sorted(client.hgetall(key).items()))
            client.hset(key, field, _bytes(random, value))
            name += f" {field[:12]!r}"
        elif kind == b"stream":
            entries = client.xrange(key)
            at = random.randrange(len(entries))
            client.delete(key)
            for i, (number, fields) in enumerate(entries):
                if i == at:
                    field = random.choice(sorted(fields))
                    fields = {**fields, field: _bytes(random, fields[field])}
                    if random.random() < 0.1:
                        fields = {b"x": b"y"}
                client.xadd(key, fields, id=number)
        elif kind == b"zset":
            member, score = random.choice(client.zrange(key, 0, -1, withscores=True))
            client.zrem(key, member)
            client.zadd(key, {_bytes(random, member): score + random.choice([-1, 0, 0, 1, 1e6])})
        else:
            client.delete(key)
        return f"Redis {name}", f"a {kind.decode()}"


def _bytes(random: Random, value: Any) -> bytes:
    if random.random() < 0.6:
        return mutated_bytes(random, value)
    other = random.choice(_ODD)
    return other if isinstance(other, bytes) else str(other).encode()


def rows(seconds: float, seed: int = 0, count: int | None = None) -> Report:
    """Half of the time SQLite, half Redis."""
    report = Report("rows of stores")
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_rows(report, _Sqlite(Path(folder)), Random(seed), seconds / 2, count))
    with RedisServer() as server:
        asyncio.run(_rows(report, _Redis(server), Random(seed), seconds / 2, count))
    return report


async def _rows(report: Report, data: _Data, random: Random, seconds: float, count: int | None) -> None:
    await data.fill()
    logger = logging.getLogger("rarestream")
    level = logger.level
    logger.setLevel(logging.CRITICAL)  # what is damaged is told there, thousands of times
    try:
        for _ in until(seconds, count):
            what, how = data.change(random)
            try:
                became = await asyncio.wait_for(_served(data.url), 300)
            except ServiceError as error:  # it does not start, and says why
                became = f"no start: {error.code}"
            except Exception as error:  # the campaign is there to find any
                became = f"FAULT {type(error).__name__}"
                report.fail(f"{what}, {how}: {type(error).__name__}: {error}")
            report.note(what, became)
            if "WRONG" in became:
                report.fail(f"{what}, {how}: {became}")
    finally:
        logger.setLevel(level)


async def _served(url: str) -> str:
    """Return what becomes of learner `a` on a node that is started; of `b` everything has to be as ever."""
    store: Store = await open_store(url)
    try:
        async with node(store) as engine, over(engine) as http:
            body = {"events": [event | {"id": f"new-{event['id']}"} for event in events("dense", "update")]}
            labels = {"events": [event | {"id": f"s-{event['id']}"} for event in events("dense", "labels")]}
            replies: list[httpx.Response] = []
            for name in ("a", "b"):
                path = f"/learners/{name}"
                actual = [
                    await http.get(path),
                    await http.post(f"{path}/update", json=body),
                    await http.post(f"{path}/labels", json=labels),
                    await http.post(f"{path}/predict", json={"events": events("dense", "predict")}),
                    await http.get(f"{path}/digest"),
                    await http.get(f"{path}/snapshots"),
                ]
                if name == "b" and any(item.status_code != 200 for item in actual):
                    return (
                        f"WRONG: the other learner: {[item.text[:200] for item in actual if item.status_code != 200]}"
                    )
                replies = replies or actual
            bad = [reply for reply in replies if reply.status_code != 200]
            codes = sorted({str(item.json()["code"]) for item in bad})
            if "internal" in codes:
                report = next(item.text for item in bad if item.json()["code"] == "internal")
                return f"WRONG: {report[:400]}"
            return ", ".join(codes) or "as ever"
    finally:
        await store.close()
