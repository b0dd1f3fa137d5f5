"""Lines over a real connection: answered while they come, and told of a stop."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import httpx
import pytest

from tests.harness.apps import DENSE, events
from tests.harness.process import Process

pytestmark = pytest.mark.integration

HEAD = (
    b"POST /v1/learners/a/update HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def test_shutdown_ends_an_ndjson_stream_with_an_error_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with Process("memory:", log) as service:
        assert httpx.put(f"{service.url}/v1/learners/a", json=DENSE, trust_env=False, timeout=300).status_code == 201
        with (
            socket.create_connection(("127.0.0.1", service.port), timeout=300) as connection,
            connection.makefile("rb") as reply,
        ):
            connection.sendall(HEAD)
            for i, event in enumerate(events(3)):
                connection.sendall(_chunk(json.dumps(event).encode() + b"\n"))
                while not (line := reply.readline()).startswith(b"{"):  # the head of the reply, and of its chunks
                    assert line
                assert json.loads(line)["lines"] == i + 1
            service.stop()
            report = [json.loads(line) for line in reply if line.startswith(b"{")]
    (last,) = report
    assert (last["code"], last["status"], last["lines"], last["done"]) == ("stopping", 503, 3, False)
    text = log.read_text()
    assert "Traceback" not in text
    assert "graceful" not in text
