"""Clients that waste connections: that send nothing, drip, flood, or open websockets and leave them idle.

What the server promises: it drops them in bounded time, and goes on answering others meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import httpx

from tests.campaigns.fuzz.report import Report
from tests.campaigns.fuzz.serving import LEARNERS, Served, served
from tests.harness.process import Process

__all__ = ["floods", "idle_websockets", "slow_clients"]

_HEAD_SECONDS = 1.0  # that the server of these tests gives a head, and a body
_PATIENCE = 300.0
_BODY = json.dumps({"events": [{"x": [1.0, 2.0, 3.0], "label": 1}]}).encode()
_POST = (
    b"POST /v1/learners/dense/update HTTP/1.1\r\nhost: localhost\r\n"
    b"content-type: application/json\r\ncontent-length: %d\r\n"
)
_TOO_SLOW = ("a body, byte by byte", "a body of one line, slowly", "a chunk, byte by byte")  # and nothing else wrong


def _drips() -> dict[str, list[bytes]]:
    """Return what slow clients send: a piece now and then, without an end or for too long."""
    head = _POST % len(_BODY)
    return {
        "nothing": [],
        "empty lines": [b"\r\n"] * 1000,
        "a head, byte by byte": [bytes([item]) for item in head],
        "headers without end": [head, *(f"x-{i}: 1\r\n".encode() for i in range(1000))],
        "a body, byte by byte": [head + b"\r\n", *(bytes([item]) for item in _BODY[:-1])],
        "a body of one line, slowly": [
            head.replace(b"json", b"x-ndjson") + b"\r\n",
            *(bytes([item]) for item in _BODY[:-1]),
        ],
        "a chunk, byte by byte": [
            b"POST /v1/learners/dense/update HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n400\r\n",
            *([b"a"] * 1000),
        ],
        "a body that nobody reads": [b"GET /v1/health/live HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n"]
        + [b"a"] * 990,
        "half a handshake": [b"GET /v1/ws HTTP/1.1\r\nupgrade: websocket\r\nconnection: upgrade\r\n"] + [b"a"] * 1000,
        "nothing after a reply": [b"GET /v1/health/live HTTP/1.1\r\nhost: localhost\r\n\r\n"],
    }


def slow_clients(seconds: float, seed: int = 0, count: int | None = None) -> Report:
    """Clients that drip; `count` of each kind. Each round takes as long as the slowest of them is waited for."""
    del seed  # nothing is drawn
    report = Report("slow clients")
    with served(body_seconds=_HEAD_SECONDS) as service:
        end = time.monotonic() + seconds
        rounds = 0
        while rounds == 0 or (count is None and time.monotonic() < end):
            asyncio.run(_slow(report, service, count or 20))
            rounds += 1
        for fault in service.faults():
            report.fail(fault)
    return report


async def _slow(report: Report, service: Served, count: int) -> None:
    """`count` clients of each kind at once, and one that is served meanwhile."""
    slow = asyncio.gather(*(_dripped(report, service.port, *item) for item in _drips().items() for _ in range(count)))
    longest = 0.0
    async with httpx.AsyncClient(base_url=service.url, timeout=_PATIENCE, trust_env=False) as http:
        while not slow.done():
            began = time.monotonic()
            reply = await http.post(
                "/v1/learners/dense/update", content=_BODY, headers={"content-type": "application/json"}
            )
            longest = max(longest, time.monotonic() - began)
            report.note("requests of others meanwhile", reply.status_code)
            if reply.status_code != 200:
                report.fail(f"another client was answered {reply.status_code} {reply.text[:200]}")
            await asyncio.sleep(0.05)
    report.figures["longest that another client waited"] = f"{longest:.3f} s"
    lasted = await slow
    report.figures["longest that a slow client was kept"] = f"{max(lasted):.1f} s"


async def _dripped(report: Report, port: int, what: str, pieces: list[bytes]) -> float:
    """Seconds that a client was kept that sends these pieces, ten a second."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    began = time.monotonic()
    message = asyncio.ensure_future(_all(reader))
    try:
        for piece in pieces:
            if message.done():
                break
            writer.write(piece)
            await asyncio.wait([message], timeout=0.1)
        actual = await asyncio.wait_for(message, _PATIENCE)
        status = actual[9:12].decode("latin-1") if actual.startswith(b"HTTP/1.1 ") else "no reply"
        report.note(what, f"{status}, then closed")
        if what in _TOO_SLOW and status != "408":
            report.fail(f"{what}: {status}, and not 408")
    except TimeoutError:
        report.note(what, "STILL OPEN")
        report.fail(f"{what}: still open after {time.monotonic() - began:.0f} s")
    finally:
        writer.transport.abort()
    return time.monotonic() - began


async def _all(reader: asyncio.StreamReader) -> bytes:
    """Read up to the end."""
    reply = b""
    with suppress(ConnectionError):
        while data := await reader.read(2**16):
            reply += data
    return reply


def floods(seconds: float, seed: int = 0, count: int | None = None) -> Report:
    """Heads that are too large: many headers, large ones, a long path, one that never ends; `count` of each."""
    del seed  # nothing is drawn
    report = Report("header floods")
    head = b"GET /v1/health/live HTTP/1.1\r\nhost: localhost\r\n"
    made = {
        "100,000 headers": head + b"".join(b"x-%d: y\r\n" % i for i in range(100_000)) + b"\r\n",
        "one header of 4 MiB": head + b"x: " + b"y" * 2**22 + b"\r\n\r\n",
        "a header's name of 4 MiB": head + b"y" * 2**22 + b": x\r\n\r\n",
        "a path of 4 MiB": b"GET /" + b"a" * 2**22 + b" HTTP/1.1\r\n\r\n",
        "a query of 4 MiB": b"GET /v1/learners?q=" + b"a" * 2**22 + b" HTTP/1.1\r\n\r\n",
        "a head without an end": head + b"x: y\r\n" * 2**20,
        "60 KiB of headers": head + b"".join(b"x-%d: %b\r\n" % (i, b"y" * 1000) for i in range(59)) + b"\r\n",
    }
    with served() as service:
        end = time.monotonic() + seconds
        rounds = 0
        while rounds < (count or 3) and time.monotonic() < end:
            for what, data in made.items():
                status = _flooded(service.port, data)
                report.note(what, status)
                allowed = ("200",) if "60 KiB" in what else ("431", "cut off")
                if status not in allowed:
                    report.fail(f"{what}: {status}")
            rounds += 1
        if not service.alive():
            report.fail("the server does not answer any more")
        for fault in service.faults():
            report.fail(fault)
    return report


def _flooded(port: int, data: bytes) -> str:
    """Return the status that such a head is answered with; "cut off": it was closed while it was still being sent."""
    with socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE) as client:
        with suppress(ConnectionError):
            client.sendall(data)
        try:
            message = client.recv(2**16)
        except ConnectionError:
            return "cut off"
        except TimeoutError:
            return "STILL OPEN"
    return message[9:12].decode("latin-1") if message else "cut off"


def idle_websockets(seconds: float, seed: int = 0, count: int | None = None) -> Report:
    """`count` websockets (10,000) that are opened and say nothing, and as many connections that send nothing at all.

    They are a process's of their own; the server is another, whose memory is read.
    """
    del seed  # nothing is drawn
    limit = count or 10_000
    report = Report("idle connections")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # what is started here has it as well
    if hard != resource.RLIM_INFINITY and hard < limit + 500:
        report.figures["open files that the system allows"] = str(hard)
        limit = hard - 500
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with Process("memory:", log, ws_connections=limit, body_seconds=5.0, log_requests="errors") as process:
            _idle(report, process, limit, seconds)
            if process.stop() not in (0, -15):
                report.fail("the server did not stop in order")
        text = log.read_text()
        if "Traceback" in text or "CRITICAL" in text:
            report.fail(f"the server logged {text[-2000:]}")
    return report


def _idle(report: Report, process: Process, limit: int, seconds: float) -> None:
    with httpx.Client(base_url=process.url, timeout=_PATIENCE, trust_env=False) as http:
        http.put("/v1/learners/dense", json=LEARNERS["dense"]).raise_for_status()
        before = _resident(process.pid)
        for kind in ("websocket", "silent"):
            with subprocess.Popen(
                [sys.executable, "-m", "tests.campaigns.fuzz.idle", kind, str(process.port), str(limit)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=os.environ,
            ) as clients:
                assert clients.stdin is not None
                assert clients.stdout is not None
                opened = json.loads(clients.stdout.readline())
                what = {"websocket": "idle websockets", "silent": "connections that send nothing"}[kind]
                report.counts[what, "opened"] += opened["open"]
                if opened["open"] < limit:
                    report.fail(f"{what}: {opened}; {limit} were wanted")
                if kind == "websocket":
                    each = (_resident(process.pid) - before) / max(opened["open"], 1)
                    report.figures["memory of the server for each idle websocket"] = f"{each / 1024:.1f} KiB"
                report.figures[f"seconds to open {what}"] = f"{opened['seconds']:.1f}"
                longest = _answering(report, http, min(seconds, 5.0))
                report.figures[f"longest that another client waited, {what}"] = f"{longest:.3f} s"
                clients.stdin.close()  # close them, or, where nothing was sent, wait for the server to do so
                closed = json.loads(clients.stdout.readline())
                clients.wait(_PATIENCE)
            report.counts[what, f"closed, {closed['how']}"] += closed["closed"]
            if closed["closed"] != opened["open"]:
                report.fail(f"{what}: {closed['closed']} of {opened['open']} were closed in order")
        until = time.monotonic() + _PATIENCE
        while (left := _open(http)) and time.monotonic() < until:
            time.sleep(0.2)
        if left:
            report.fail(f"{left} websockets are still open for the server")


def _answering(report: Report, http: httpx.Client, seconds: float) -> float:
    """Return the longest that a client waits for an update, of those in so many seconds."""
    end, longest = time.monotonic() + seconds, 0.0
    while time.monotonic() < end:
        began = time.monotonic()
        reply = http.post("/v1/learners/dense/update", content=_BODY, headers={"content-type": "application/json"})
        longest = max(longest, time.monotonic() - began)
        report.note("requests of others meanwhile", reply.status_code)
        if reply.status_code != 200:
            report.fail(f"another client was answered {reply.status_code}")
        time.sleep(0.02)
    return longest


def _open(http: httpx.Client) -> int:
    """Return the websockets that are open for the server."""
    for line in http.get("/metrics").text.splitlines():
        if line.startswith("rarestream_websockets "):
            return int(float(line.split()[1]))
    raise LookupError("there is no figure of open websockets")


def _resident(pid: int) -> int:
    """Bytes of memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
