"""Connections that never become a request: others are answered beside them, and each ends by its deadline.

The limit of file descriptors is that of a process, so the service runs in one of its own.
"""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from service.settings import Settings
from tests.harness.apps import DENSE
from tests.harness.keyring import Keyring
from tests.harness.process import Process
from tests.harness.threads import in_thread
from tests.harness.waiting import eventually
from tests.service.server.test_upgrades import CHUNKS, handshake

pytestmark = pytest.mark.integration

HALF = b"POST /v1/learners/fraud/predict HTTP/1.1\r\nHost: local"
LIVE = b"GET /v1/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
CHUNKED = b"POST /v1/learners/fraud/predict HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"
HOSTILE = {
    "nothing": b"",
    "half a head": HALF,
    "a request and half a head": LIVE + HALF,
    "a request and a part of a body": LIVE + CHUNKED,
    "an upgrade with a part of its body": handshake(body=b"abc").replace(b"length: 3", b"length: 1000"),
}


REASONS = ("deadline", "address", "descriptors", "idle")


def connect(port: int) -> socket.socket:
    """Connect to the service."""
    return socket.create_connection(("127.0.0.1", port), timeout=300)


@pytest.fixture
def many_sockets() -> Iterator[None]:
    """Let this process open the sockets of 500 clients."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = 4096 if hard == resource.RLIM_INFINITY else min(hard, 4096)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, enough), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("start", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.usefixtures("many_sockets")
def test_others_are_answered_beside_500_hostile_connections_with_256_descriptors(
    start: bytes, keyed: bool, tmp_path: Path
) -> None:
    ring = Keyring(tmp_path)
    headers = ring.make("root", "admin") if keyed else {}
    settings: dict[str, object] = {"max_handshakes": 1000, "body_seconds": 3600} | (
        {"keys": ring.path} if keyed else {}
    )
    with Process("memory:", tmp_path / "log", **settings) as service, ExitStack() as sockets:
        reply = httpx.put(f"{service.url}/v1/learners/fraud", json=DENSE, headers=headers, timeout=300, trust_env=False)
        assert reply.status_code == 201
        resource.prlimit(service.pid, resource.RLIMIT_NOFILE, (256, 256))
        for _ in range(500):
            connection = sockets.enter_context(connect(service.port))
            if start:
                connection.sendall(start)
        with httpx.Client(base_url=service.url, headers=headers, timeout=300, trust_env=False) as client:
            assert [client.get("/v1/learners").status_code for _ in range(3)] == [200] * 3
            eventually(lambda: "file descriptors run short" in service.log(), service.log)
            metrics = client.get("/metrics").text.splitlines()
            values = dict(line.rsplit(" ", 1) for line in metrics if line.startswith("rarestream_"))
    closed = {reason: float(values[f'rarestream_connections_closed_total{{reason="{reason}"}}']) for reason in REASONS}
    assert closed["descriptors"] + closed["idle"] >= 500 - 256
    assert closed["address"] == closed["deadline"] == 0
    assert "Too many open files" not in (tmp_path / "log").read_text()


@pytest.mark.parametrize(
    "start",
    [
        b"",
        HALF,
        handshake(),
        handshake()[:-2],
        handshake(body=b"abc").replace(b"length: 3", b"length: 1000"),
        handshake(transfer_encoding="chunked") + CHUNKS,
        handshake(transfer_encoding="chunked"),
        handshake(**{f"x{i}": "1" for i in range(129)})[:-2],
        handshake(cookie="a" * 9000)[:-2],
        handshake(f"/{'a' * 9000}")[:-2],
    ],
)
def test_every_handshake_without_a_key_ends_by_its_deadline(start: bytes, tmp_path: Path) -> None:
    ring = Keyring(tmp_path)
    ring.make("root", "admin")
    settings = Settings(store="memory:", keys=str(ring.path), body_seconds=0.5)
    with in_thread(settings) as running, connect(running.port) as connection:
        connection.sendall(start)
        received = connection.makefile("rb").read()  # up to the close
    assert b" 200 " not in received
    assert b" 101 " not in received
