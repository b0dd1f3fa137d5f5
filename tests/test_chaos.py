"""A short run of every course of faults; `python -m tests.chaos --minutes 20` runs longer ones. And its proxy."""

from __future__ import annotations

import asyncio
import contextlib
import random
from pathlib import Path

import pytest

from tests.chaos.cluster import Cluster
from tests.chaos.courses import COURSES, Report, run
from tests.chaos.faults import Faults
from tests.chaos.proxy import Proxy
from tests.chaos.traffic import Traffic

SECONDS = 10.0


@pytest.mark.parametrize("course", COURSES)
def test_what_was_acknowledged_outlives_faults(course: str, tmp_path: Path) -> None:
    report = run(course, SECONDS, seed=1, writers=4, keep=tmp_path)
    told = "\n".join(report.lines())
    assert report.good, told
    assert report.traffic.events > 0, told
    assert report.faults.injected, told


def reported(name: str, seconds: float, folder: Path) -> Report:
    """What a course would say that has injected each of its faults once, and in which everything held."""
    course = COURSES[name]
    traffic = Traffic([], 0)
    faults = Faults(Cluster(folder, course.nodes, None), traffic, random.Random(0), course.of_nodes, course.of_store)
    faults.injected.update(dict.fromkeys(course.of_nodes + course.of_store, 1))
    return Report(course, seconds, traffic, faults, [], True)


@pytest.mark.parametrize("name", COURSES)
def test_a_fault_that_is_never_injected_is_found_by_a_run_that_is_long_enough(name: str, tmp_path: Path) -> None:
    enough = COURSES[name].enough_seconds
    for kind in reported(name, enough, tmp_path).faults.injected:
        for seconds, good in ((enough, False), (enough - 1, True)):
            report = reported(name, seconds, tmp_path)
            assert report.good
            assert "every kind of fault of this course was injected" in "\n".join(report.lines())
            del report.faults.injected[kind]
            report.faults.vain[kind] = 3
            assert report.good is good
            told = "\n".join(report.lines())
            assert (f"TOO SHORT for every kind of fault, which takes up to {enough:.0f} s" in told) is good
            assert f"not injected: {kind}" in told if good else f"NEVER INJECTED: {kind}" in told


def test_every_fault_belongs_to_a_course(tmp_path: Path) -> None:
    kinds = {kind for course in COURSES.values() for kind in course.of_nodes + course.of_store}
    assert kinds == reported("aof", 0, tmp_path).faults.ways().keys()


async def test_a_proxy_breaks_what_passes() -> None:
    came: list[bytes] = []

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1000):
            came.append(data)
            writer.write(data)
        writer.close()

    async def said(data: bytes) -> bytes:
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
        assert await said(b"POST") == b"POST"
        assert proxy.heal() == 0  # nothing was done to anything
        proxy.cut()
        with contextlib.suppress(ConnectionResetError):
            assert await said(b"POST") == b""
        assert proxy.heal() > 0
        proxy.truncate = 1
        assert await said(b"POST") in (b"PO", b"")
        assert came[-1] in (b"PO", b"POST")
        assert proxy.heal() == 1
        came.clear()
        proxy.duplicate = 1
        assert await said(b"POST") == b"POST"
        await asyncio.sleep(0.2)
        assert came == [b"POST", b"POST"]
        assert proxy.heal() == 1
        proxy.delay = 0.01
        assert await said(b"POST") == b"POST"
        assert proxy.heal() == 2  # there and back
        proxy.hold()
        with pytest.raises(TimeoutError):
            await said(b"POST")
        assert proxy.heal() > 0
        assert proxy.heal() == 0
    finally:
        await proxy.close()
        server.close()
        await server.wait_closed()
