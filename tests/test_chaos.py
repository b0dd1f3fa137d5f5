"""A short run of every course of faults; `python -m tests.chaos --minutes 20` runs longer ones. And its proxy."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from tests.chaos.courses import COURSES, run
from tests.chaos.proxy import Proxy

SECONDS = 15.0


@pytest.mark.parametrize("course", COURSES)
def test_what_was_acknowledged_outlives_faults(course: str, tmp_path: Path) -> None:
    report = run(course, SECONDS, seed=1, writers=4, keep=tmp_path)
    told = "\n".join(report.lines())
    assert report.good, told
    assert report.traffic.events > 0, told
    assert sum(report.faults.injected.values()) > 2, told


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
        proxy.cut()
        with contextlib.suppress(ConnectionResetError):
            assert await said(b"POST") == b""
        proxy.heal()
        proxy.truncate = 1
        assert await said(b"POST") in (b"PO", b"")
        assert came[-1] in (b"PO", b"POST")
        proxy.heal()
        came.clear()
        proxy.duplicate = 1
        assert await said(b"POST") == b"POST"
        await asyncio.sleep(0.2)
        assert came == [b"POST", b"POST"]
        proxy.hold()
        with pytest.raises(TimeoutError):
            await said(b"POST")
    finally:
        await proxy.close()
        server.close()
        await server.wait_closed()
