"""Log lines: their forms, which nothing can forge, the loggers of the process, and the thread that writes."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import re
import socket
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.errors import StoreUnavailable
from service.telemetry import log_writer
from service.telemetry.log_writer import Entry, LineWriter, configure, in_json, in_text
from tests.harness.apps import DENSE
from tests.harness.process import READY, Process

SECRET = "4111-1111"  # stands in what is logged, where no line may have it
URL = "/v1/learners/fraud"

ENTRY = Entry(
    1_700_000_000.1234,
    logging.INFO,
    "f8cb-1",
    "POST",
    "/v1/learners/{name}/update",
    200,
    0.0012345,
    client="127.0.0.1",
    learner="fraud",
    bytes=512,
    events=3,
)


def test_a_request_line_in_text_and_json() -> None:
    assert in_text(ENTRY).decode() == (
        "2023-11-14T22:13:20.123Z INFO    POST /v1/learners/{name}/update 200 1.234ms "
        "learner=fraud events=3 bytes=512 client=127.0.0.1 request_id=f8cb-1\n"
    )
    assert json.loads(in_json(ENTRY)) == {
        "time": "2023-11-14T22:13:20.123Z",
        "level": "info",
        "logger": "rarestream.requests",
        "message": "POST /v1/learners/{name}/update 200",
        "request_id": "f8cb-1",
        "method": "POST",
        "route": "/v1/learners/{name}/update",
        "status": 200,
        "milliseconds": 1.234,
        "learner": "fraud",
        "events": 3,
        "bytes": 512,
        "client": "127.0.0.1",
    }


@pytest.mark.parametrize(
    "odd", ["a\nb", "a\rb", "a b", 'a"b', "a=1 status=500", "\u2028x", "\x85", "\x1b[31m", "ü", ""]
)
def test_log_lines_cannot_be_forged(odd: str) -> None:
    entry = Entry(0.0, logging.WARNING, odd, "GET", "other", 404, 0.0, learner=odd)
    text = in_text(entry).decode()
    assert text.splitlines() == [text[:-1]]
    assert text.isascii()
    fields = dict(re.findall(r'(\w+)=("(?:[^"\\]|\\.)*")', text))
    assert {name: json.loads(value) for name, value in fields.items()} == {"learner": odd, "request_id": odd}
    line = in_json(entry)
    assert line.isascii()
    assert line.decode().splitlines() == [line.decode()[:-1]]
    assert json.loads(line)["learner"] == json.loads(line)["request_id"] == odd


@pytest.mark.usefixtures("root_logger")
@pytest.mark.parametrize("form", ["json", "text"])
def test_logger_messages_become_lines(form: Any) -> None:
    stream = io.BytesIO()
    lines = configure(stream, form, "info")  # type: ignore[arg-type]
    logging.getLogger("rarestream.engine").info("one\n%s", "two\u2028\x1b")
    logging.getLogger("rarestream.engine").debug("not this")
    logging.getLogger("httpx").info("nor this")
    logging.getLogger("somebody").warning("three")
    try:
        raise StoreUnavailable(f"cannot reach {SECRET}")
    except StoreUnavailable:
        logging.getLogger("rarestream.app").exception("four")
    lines.close()
    actual = stream.getvalue().decode()
    assert SECRET not in actual
    if form == "json":
        documents = [json.loads(line) for line in actual.splitlines()]
        two_lines = "one\ntwo\u2028\x1b"
        assert [(document["level"], document["logger"], document["message"]) for document in documents] == [
            ("info", "rarestream.engine", two_lines),
            ("warning", "somebody", "three"),
            ("error", "rarestream.app", "four"),
        ]
        assert documents[2]["exception"].split("\n")[-1].startswith("service.errors.StoreUnavailable:")
        return
    first, second, third, *trace = actual.splitlines()
    assert first.endswith("INFO    rarestream.engine: one\\x0atwo\\u2028\\x1b")
    assert second.endswith("WARNING somebody: three")
    assert third.endswith("ERROR   rarestream.app: four")
    assert trace[0].startswith("    Traceback ")
    assert all(line.startswith("    ") for line in trace)


@pytest.mark.usefixtures("root_logger")
def test_a_traceback_names_exception_types_without_their_messages() -> None:
    stream = io.BytesIO()
    lines = configure(stream, "json", "info")
    try:
        try:
            int(SECRET)
        except ValueError as error:
            error.add_note(SECRET)
            raise ExceptionGroup(SECRET, [KeyError(SECRET), StoreUnavailable(SECRET)]) from error
    except ExceptionGroup:
        logging.getLogger("rarestream.app").exception("it failed")
    looped = OSError(SECRET)
    looped.__cause__ = RuntimeError(SECRET)
    looped.__cause__.__cause__ = looped
    logging.getLogger("rarestream.app").error("again", exc_info=looped)
    lines.close()
    first, second = [json.loads(line) for line in stream.getvalue().splitlines()]
    kinds = ["ValueError", "ExceptionGroup", "KeyError", "service.errors.StoreUnavailable"]
    assert re.findall(r"^([\w.]+): \(its\b", first["exception"], re.MULTILINE) == kinds
    assert "led" in first["exception"]
    assert re.findall(r"(\w+): \(", second["exception"]) == ["RuntimeError", "OSError"]
    assert SECRET not in stream.getvalue().decode()


# The writer


class Stuck(io.RawIOBase):
    """A pipe that nobody reads, until somebody does."""

    def __init__(self) -> None:
        super().__init__()
        self.free = threading.Event()
        self.entered = threading.Event()
        self.got = b""

    def write(self, data: Any) -> int:
        self.entered.set()
        self.free.wait(60)
        self.got += data
        return len(data)


def test_a_blocked_pipe_blocks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_writer, "_WAITING", 5)
    pipe = Stuck()
    writer = LineWriter(pipe, "json")  # type: ignore[arg-type]
    writer.put(b"first\n")
    assert pipe.entered.wait(60)
    for i in range(8):
        writer.put(b"%d\n" % i)
    assert writer.dropped == 3
    pipe.free.set()
    writer.close()
    assert pipe.got == b"first\n0\n1\n2\n3\n4\n"
    assert (writer.written, writer.dropped) == (6, 3)
    writer.put(b"late\n")
    assert writer.dropped == 4


def test_close_waits_a_limited_time_for_a_blocked_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_writer, "_LEAVE", 0.05)
    pipe = Stuck()
    writer = LineWriter(pipe, "json")  # type: ignore[arg-type]
    writer.put(b"line\n")
    writer.close()  # comes back
    pipe.free.set()
    assert writer._thread is not None
    writer._thread.join(60)
    assert pipe.got == b"line\n"


def test_a_closed_pipe_loses_only_log_lines() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb", buffering=0) as pipe:
        writer = LineWriter(pipe, "json")  # type: ignore[arg-type]
        for _ in range(3):
            writer.put(b"line\n")
        writer.close()
    assert (writer.written, writer.dropped) == (0, 3)


def test_lines_of_many_threads_stay_intact() -> None:
    stream = io.BytesIO()
    writer = LineWriter(stream, "json")
    threads = [
        threading.Thread(target=lambda name=name: [writer.put(b"%d %d\n" % (name, i)) for i in range(500)])
        for name in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close()
    actual = [tuple(map(int, line.split())) for line in stream.getvalue().splitlines()]
    assert sorted(actual) == [(name, i) for name in range(4) for i in range(500)]
    assert all([i for item, i in actual if item == name] == list(range(500)) for name in range(4))


# The server


FOREIGN = (
    b"GET /v1/ws HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
    b"Origin: http://elsewhere.example\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


def breaking(request: bytes, kind: bytes = b"application/json") -> bytes:
    """One whose body breaks off."""
    head = b" HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nContent-Type: "
    return request + head + kind + b"\r\n\r\n1\r\n{\r\nno size\r\n"


REQUESTS = (
    b"nonsense\r\n\r\n",
    breaking(f"POST {URL}/update".encode()),
    breaking(f"POST {URL}/update".encode(), b"application/x-ndjson"),
    breaking(f"PUT {URL}".encode()),
    FOREIGN,
)


def refused(port: int, request: bytes) -> str:
    """Return the id of the request in the refusal that a connection gets which sends this."""
    with socket.create_connection(("127.0.0.1", port), timeout=300) as connection:
        connection.sendall(request)
        read = b"".join(iter(lambda: connection.recv(2**16), b""))
    document: dict[str, str] = json.loads(read.partition(b"\r\n\r\n")[2])
    return document["request_id"]


async def test_the_server_writes_only_json_lines_including_its_last_one(tmp_path: Path) -> None:
    log = tmp_path / "log"
    report: list[str] = []

    def run() -> int:
        with Process(f"sqlite:///{tmp_path / 'store.db'}", log, log_format="json") as process:
            httpx.put(f"{process.url}{URL}", json=DENSE, trust_env=False, timeout=300)
            httpx.get(f"{process.url}/v1/nothing?{SECRET}", trust_env=False, timeout=300)
            report.extend(refused(process.port, request) for request in REQUESTS)
            return process.stop()

    assert await asyncio.to_thread(run) == -15
    text = log.read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert [
        (line["method"], line["route"], line["status"]) for line in lines if line["logger"] == "rarestream.requests"
    ] == [
        ("PUT", "/v1/learners/{name}", 201),
        ("GET", "other", 404),
        ("other", "other", 400),
        ("POST", "/v1/learners/{name}/update", 400),
        ("POST", "/v1/learners/{name}/update", 400),
        ("PUT", "/v1/learners/{name}", 400),
        ("WEBSOCKET", "/v1/ws", 403),
    ]
    assert [line["request_id"] for line in lines if line.get("status") in (400, 403)] == report
    assert {line["code"] for line in lines if line.get("status") == 400} == {"bad-request"}
    assert ["HTTP/1.1" in line["reason"] for line in lines if "reason" in line] == [True]
    assert (lines[-1]["logger"], lines[-1]["level"]) == ("rarestream.server", "info")
    assert all(line["logger"].startswith("rarestream.") for line in lines)  # uvicorn does not say it again
    assert any(line["message"].startswith(READY) for line in lines)
    assert SECRET not in text
