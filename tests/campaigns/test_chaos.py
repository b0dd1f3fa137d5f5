"""Run every course of faults for a short time, and test its parts."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from service.storage.open_store import open_store
from service.storage.redis.key_names import LOG, KeyNames
from tests.campaigns.chaos.checks import Verdict
from tests.campaigns.chaos.cluster import Cluster
from tests.campaigns.chaos.courses import COURSES, Report, run
from tests.campaigns.chaos.disk import Disk, small_disk
from tests.campaigns.chaos.faults import Faults
from tests.campaigns.chaos.history import entries
from tests.campaigns.chaos.proxy import Proxy
from tests.campaigns.chaos.traffic import Acknowledged, Traffic
from tests.harness.redis_server import RedisServer
from tests.harness.store_records import BIRTH, filled, log_after, record

SECONDS = 10.0


@pytest.mark.parametrize("course", COURSES)
def test_acknowledged_data_survives_faults(course: str, tmp_path: Path) -> None:
    report = run(course, SECONDS, seed=1, writers=4, keep=tmp_path)
    output = "\n".join(report.lines())
    assert report.good, output
    assert report.traffic.events > 0, output
    assert report.faults.injected, output


def reported(name: str, seconds: float, folder: Path, jumps: int = 1) -> Report:
    """Return what a course would say that has injected each of its faults once, and in which everything held."""
    course = COURSES[name]
    traffic = Traffic([], 0)
    faults = Faults(
        Cluster(folder, course.nodes, Disk(folder)), traffic, random.Random(0), course.of_nodes, course.of_store
    )
    faults.injected.update(dict.fromkeys(course.of_nodes + course.of_store, 1))
    return Report(course, seconds, traffic, faults, [], True, jumps)


@pytest.mark.parametrize("name", COURSES)
def test_a_long_run_without_one_of_its_faults_fails(name: str, tmp_path: Path) -> None:
    enough = COURSES[name].enough_seconds
    for kind in reported(name, enough, tmp_path).faults.injected:
        for seconds, good in ((enough, False), (enough - 1, True)):
            report = reported(name, seconds, tmp_path)
            assert report.good
            assert "was injected" in "\n".join(report.lines())
            del report.faults.injected[kind]
            report.faults.vain[kind] = 3
            assert report.good is good
            output = "\n".join(report.lines())
            assert (re.search(rf"TOO SHORT.* {enough:.0f} s", output) is not None) is good
            assert f"not injected: {kind}" in output if good else f"NEVER INJECTED: {kind}" in output


def test_a_long_trimming_run_fails_if_no_node_fell_behind_the_log(tmp_path: Path) -> None:
    enough = COURSES["trimmed"].enough_seconds
    for seconds, jumps, good in ((enough, 1, True), (enough, 0, False), (enough - 1, 0, True)):
        report = reported("trimmed", seconds, tmp_path, jumps)
        assert report.good is good
        assert ("NEVER TRIED" in "\n".join(report.lines())) is not good


def test_an_acknowledged_event_missing_from_the_log_is_detected(tmp_path: Path) -> None:
    """So is one that is learnt with other values than were sent, one that nobody sent, and a log that is not whole."""
    report = reported("aof", 0, tmp_path)
    nodes = [(4, "same")]
    for broken in ({"losses": ["a"]}, {"twice": ["a"]}, {"changed": ["a"]}, {"foreign": ["a"]}, {"records": 3}, {}):
        report.traffic.acknowledged["fast"] = {"a": Acknowledged(0.0, 0.0, 2)}
        sound: dict[str, Any] = {"records": 4, "head": 4, "library": nodes[0], "nodes": nodes}
        report.verdicts = [Verdict("fast", **(sound | broken))]
        assert report.good is not bool(broken)
        assert ("NOT EVERYTHING" in "\n".join(report.lines())) is bool(broken)


@pytest.mark.parametrize(
    ("name", "send_time", "kill", "good"),
    [
        ("memory", 99.5, 103.0, True),
        ("memory", 99.5, 106.0, False),
        ("memory", 89.0, 106.0, True),  # on its way when Redis was killed, at 90
        ("memory", 91.0, 106.0, False),
        ("aof", 99.5, 103.0, False),
        ("aof", 89.0, 106.0, False),
    ],
)
def test_unsynced_writes_may_be_lost_when_redis_is_killed(
    name: str, send_time: float, kill: float, good: bool, tmp_path: Path
) -> None:
    report = reported(name, 0, tmp_path)
    report.traffic.acknowledged["fast"] = {"a": Acknowledged(send_time, 100.0, 2)}
    report.faults.kills = [90.0, kill]
    same = [(4, "same")]
    report.verdicts = [Verdict("fast", records=4, head=4, library=same[0], nodes=same, losses=["a"])]
    assert report.good is good
    before = (90.0 if send_time < 90.0 else kill) - 100.0
    (line,) = [line for line in report.lines() if "fast never" in line]
    assert re.findall(r"(inf|-?[0-9.]+) s", line) == ["inf", f"{before:.2f}", f"{100.0 - send_time:.2f}"]


def test_every_fault_belongs_to_a_scenario(tmp_path: Path) -> None:
    kinds = {kind for course in COURSES.values() for kind in course.of_nodes + course.of_store}
    assert kinds == reported("aof", 0, tmp_path).faults.ways().keys()


async def test_the_append_only_file_contains_trimmed_entries(tmp_path: Path) -> None:
    file = tmp_path / "appendonly.aof"
    key = KeyNames().of("a", LOG)
    with RedisServer(dir=str(tmp_path), auto_aof_rewrite_percentage="0") as server:
        store = await open_store(server.url)
        try:
            log = await filled(store, 5)
            await store.save("a", BIRTH, 4, b"four", 1, trim=True)
            assert await log_after(store, 4) == log[4:]
            assert list(entries(file, key)) == log
            assert list(entries(file, KeyNames().of("b", LOG))) == []
        finally:
            await store.close()
        server.restart()
        store = await open_store(server.url)
        try:
            log += await store.append("a", BIRTH, [record(6)], 5)
        finally:
            await store.close()
        assert list(entries(file, key)) == log
    whole = file.read_bytes()
    file.write_bytes(whole[: whole.rindex(log[-1].data) + 1])  # half of it written
    assert list(entries(file, key)) == log[:-1]
    file.write_bytes(whole + b"REDIS0009")
    assert list(entries(file, key)) == log
    file.write_bytes(b"REDIS0009\r\n" + whole)
    with pytest.raises(ValueError, match="REDIS0009"):
        list(entries(file, key))


def test_the_disk_fills_up_and_is_freed_again(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        if disk.refused:
            pytest.skip(f"nothing can be mounted here: {disk.refused}")
        with contextlib.closing(sqlite3.connect(disk.file, isolation_level=None)) as db:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("CREATE TABLE entry (data BLOB)")
            for _ in range(2):
                disk.fill()
                assert disk.free == 0
                with pytest.raises(sqlite3.OperationalError) as refused:
                    db.execute("INSERT INTO entry VALUES (zeroblob(9000))")
                assert refused.value.sqlite_errorcode == sqlite3.SQLITE_FULL
                disk.empty()
                db.execute("INSERT INTO entry VALUES (zeroblob(9000))")
            assert db.execute("SELECT count(*) FROM entry").fetchone() == (2,)
    assert list((tmp_path / "disk").iterdir()) == []  # what was mounted is gone


async def test_a_proxy_corrupts_traffic() -> None:
    replies: list[bytes] = []

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1000):
            replies.append(data)
            writer.write(data)
        writer.close()

    async def exchange(data: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        try:
            writer.write(data)
            return await asyncio.wait_for(reader.read(1000), 1)
        finally:
            writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    proxy = Proxy(server.sockets[0].getsockname()[1])
    await proxy.start()
    try:
        assert await exchange(b"POST") == b"POST"
        assert proxy.heal() == 0  # nothing was done to anything
        proxy.cut()
        with contextlib.suppress(ConnectionResetError):
            assert await exchange(b"POST") == b""
        assert proxy.heal() > 0
        proxy.truncate = 1
        assert await exchange(b"POST") in (b"PO", b"")
        assert replies[-1] in (b"PO", b"POST")
        assert proxy.heal() == 1
        replies.clear()
        proxy.duplicate = 1
        assert await exchange(b"POST") == b"POST"
        await asyncio.sleep(0.2)
        assert replies == [b"POST", b"POST"]
        assert proxy.heal() == 1
        proxy.delay = 0.01
        assert await exchange(b"POST") == b"POST"
        assert proxy.heal() == 2  # there and back
        proxy.hold()
        with pytest.raises(TimeoutError):
            await exchange(b"POST")
        assert proxy.heal() > 0
        assert proxy.heal() == 0
    finally:
        await proxy.close()
        server.close()
        await server.wait_closed()
