"""A stop of the service, and a request that takes its time."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from pathlib import Path

import httpx
import pytest

from tests.harness.apps import DENSE, events
from tests.harness.process import Process

pytestmark = [pytest.mark.integration, pytest.mark.campaign]

BODY = json.dumps({"events": events(3)}).encode()
HEAD = b"POST /v1/learners/a/update HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(("seconds", "status"), [(120, b"200"), (1, b"503")])
def test_requests_in_progress_get_the_grace_period(tmp_path: Path, seconds: int, status: bytes) -> None:
    with Process("memory:", tmp_path / "log", shutdown_seconds=seconds, body_seconds=100) as service:
        assert httpx.put(f"{service.url}/v1/learners/a", json=DENSE, trust_env=False, timeout=300).status_code == 201
        with (
            socket.create_connection(("127.0.0.1", service.port), timeout=300) as connection,
            connection.makefile("rb") as reply,
        ):
            connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY[:20])
            assert httpx.get(f"{service.url}/v1/health/live", trust_env=False, timeout=300).status_code == 200
            os.kill(service.pid, signal.SIGTERM)
            if seconds > 1:
                time.sleep(7)  # longer than websockets get to close
                connection.sendall(BODY[20:])
            assert status in reply.readline()
            assert b"connection: close" in reply.read().lower()
        service.ended()
