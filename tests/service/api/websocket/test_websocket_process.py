"""Websockets of the service as a process, with a client of another make: frames, sizes, a stop, and no reading."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import httpx
import msgspec
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Frame, Opcode

from tests.harness.apps import DENSE, events
from tests.harness.process import Process
from tests.harness.waiting import eventually
from tests.service.api.websocket.test_websocket import columns

pytestmark = pytest.mark.integration

SETTINGS: dict[str, Any] = {"ws_credit": 64, "ws_message_bytes": 2**17, "ws_stall_seconds": 0.5}


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("websockets") / "log"


@pytest.fixture(scope="module")
def service(log: Path) -> Iterator[Process]:
    with Process("memory:", log, **SETTINGS) as process:
        yield process


@pytest.fixture
def url(service: Process, request: pytest.FixtureRequest) -> str:
    """Return a learner of the test's own: the URL of its websocket."""
    name = request.node.name
    made = httpx.put(f"{service.url}/v1/learners/{name}", json=DENSE, timeout=300, trust_env=False)
    assert made.status_code == 201
    return f"ws://127.0.0.1:{service.port}/v1/learners/{name}/ws"


async def greeted(client: ClientConnection) -> dict[str, Any]:
    hello: dict[str, Any] = json.loads(await client.recv())
    assert hello["type"] == "hello"
    return hello


async def ending(client: ClientConnection) -> tuple[list[dict[str, Any]], int, str]:
    """Return the replies that come before the end, its code and its reason."""
    replies: list[dict[str, Any]] = []

    async def read() -> None:
        while True:
            replies.append(json.loads(await asyncio.wait_for(client.recv(), 300)))

    with pytest.raises(ConnectionClosed) as ended:
        await read()
    assert ended.value.rcvd is not None
    return replies, ended.value.rcvd.code, ended.value.rcvd.reason


async def test_text_and_binary_messages_are_answered_in_order(url: str) -> None:
    count = 600
    async with connect(url, proxy=None) as client:
        assert await greeted(client) == {"type": "hello", "credit": 64, "max_bytes": 2**17}
        sent_count = 0
        for seq in range(count):
            while sent_count < min(count, seq + 64):
                if sent_count % 3 == 2:
                    message = {"seq": sent_count, "op": "update", **columns(1, sent_count)}
                    await client.send(msgspec.msgpack.encode(message))
                else:
                    await client.send(json.dumps({"seq": sent_count, "op": "update", "events": events(1, sent_count)}))
                sent_count += 1
            reply = await client.recv()
            actual = msgspec.msgpack.decode(reply) if isinstance(reply, bytes) else json.loads(reply)
            assert (actual["seq"], actual["applied"]) == (seq, 1)
            assert isinstance(reply, bytes) == (seq % 3 == 2)
        await client.send(json.dumps({"seq": 0, "op": "predict", "events": [{"x": [1, 0, 1]}] * 1000}))
        assert len(json.loads(await client.recv())["results"]) == 1000  # a reply of more than 65,535 bytes


async def test_a_message_may_be_fragmented_and_must_be_utf8(url: str, log: Path) -> None:
    async with connect(url, proxy=None) as client:
        await greeted(client)
        text = json.dumps({"seq": 1, "op": "update", "events": events(40)})
        await client.send([text[:10], text[10:500], text[500:]])
        assert json.loads(await client.recv())["applied"] == 40
        await client.send(b'\xff"', text=True)
        assert (await ending(client))[:2] == ([], 1007)
    logged = await asyncio.to_thread(log.read_text)
    assert "UTF-8" not in logged
    assert "Traceback" not in logged


async def test_an_oversized_message_closes_the_connection_and_keeps_earlier_ones(url: str) -> None:
    async with connect(url, proxy=None) as client:
        await greeted(client)
        client.protocol.send_text(json.dumps({"seq": 1, "op": "update", "events": events(10)}).encode())
        client.protocol.send_text(b" " * (2**17 + 1))
        client.transport.write(b"".join(client.protocol.data_to_send()))  # both at once
        _, code, reason = await ending(client)
        assert (code, "131072" in reason) == (1009, True)
    async with connect(url, proxy=None) as client:
        await greeted(client)
        await client.send(json.dumps({"seq": 1, "op": "update", "events": events(11)}))
        assert json.loads(await client.recv())["duplicate"] == 10


async def test_a_page_of_another_origin_is_refused(url: str) -> None:
    with pytest.raises(InvalidStatus) as refused:
        async with connect(url, proxy=None, origin="http://elsewhere.example"):  # type: ignore[arg-type]
            pass
    assert refused.value.response.status_code == 403
    assert json.loads(refused.value.response.body)["code"] == "foreign-origin"


async def test_a_path_without_a_websocket_is_refused(url: str, log: Path) -> None:
    with pytest.raises(InvalidStatus) as refused:
        async with connect(f"{url}s", proxy=None):
            pass
    assert refused.value.response.status_code == 404
    assert json.loads(refused.value.response.body)["code"] == "not-found"
    assert "handshake" not in await asyncio.to_thread(log.read_text)


def test_a_request_without_an_upgrade_gets_426(url: str) -> None:
    reply = httpx.get(url.replace("ws://", "http://"), trust_env=False, timeout=300)
    assert (reply.status_code, reply.headers["upgrade"]) == (426, "websocket")


def handshake(client: socket.socket, url: str, port: int) -> None:
    """Connect a bare socket, and ask for the websocket at a URL."""
    key = base64.b64encode(bytes(16)).decode()
    client.settimeout(60)
    client.connect(("127.0.0.1", port))
    path = url.removeprefix(f"ws://127.0.0.1:{port}")
    client.sendall(
        f"GET {path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
    )


def test_fragmented_frames_equal_http_and_unmasked_frames_close(url: str, service: Process) -> None:
    random = Random(1)
    count = 120  # with pieces and pings between: all within the credit of 64 at a time
    http = httpx.Client(timeout=300, trust_env=False)
    path = url.replace("ws://", "http://").removesuffix("/ws")
    assert http.put(f"{path}-twin", json=DENSE).status_code == 201
    with socket.socket() as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        handshake(client, url, service.port)
        received = b""
        while b"max_bytes" not in received:  # what is sent before the handshake's end is lost
            received += client.recv(2**16)
        for start in range(0, count, 60):
            stream = b""
            for seq in range(start, start + 60):
                message = {"seq": seq, "op": "update"}
                if seq % 2:
                    packed = msgspec.msgpack.encode(message | columns(1, seq))
                    stream += Frame(Opcode.BINARY, packed).serialize(mask=True)
                    continue
                text = json.dumps(message | {"events": events(1, seq)}).encode()
                cut = random.randrange(len(text)) if seq % 3 == 0 else len(text)
                stream += Frame(Opcode.TEXT, text[:cut], fin=cut == len(text)).serialize(mask=True)
                if cut < len(text):
                    stream += Frame(Opcode.PING, b"?").serialize(mask=True)
                    stream += Frame(Opcode.CONT, text[cut:]).serialize(mask=True)
            while stream:
                size = random.choice([1, 2, 7, 130, 1000])
                client.sendall(stream[:size])
                stream = stream[size:]
            while received.count(b'"seq":') + received.count(b"\xa3seq") < start + 60:
                part = client.recv(2**16)
                assert part, received[-200:]
                received += part
        client.sendall(b"\x81\x02{}")
        while part := client.recv(2**16):
            received += part
    assert received.count(b"\x8a\x01?") == len([seq for seq in range(0, count, 2) if seq % 3 == 0])
    assert received.endswith(b"\x88\x13" + (1002).to_bytes(2, "big") + b"incorrect masking")
    for seq in range(count):
        assert http.post(f"{path}-twin/update", json={"events": events(1, seq)}).status_code == 200
    digests = [http.get(f"{item}/digest").json()["digest"] for item in (path, f"{path}-twin")]
    http.close()
    assert digests[0] == digests[1]


def test_a_client_that_reads_nothing_is_dropped_without_affecting_others(url: str, service: Process, log: Path) -> None:
    body = json.dumps({"op": "predict", "events": [{"x": [1, 0, 1]}] * 2000})[1:].encode()
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**12)
        handshake(client, url, service.port)
        for seq in range(60):  # within the credit, and more in reply than the system holds back for a client
            payload = b'{"seq":%d,%b' % (seq, body)
            client.sendall(b"\x81\xfe" + len(payload).to_bytes(2, "big") + bytes(4) + payload)

        def dropped() -> bool:
            reply = httpx.get(f"{service.url}/v1/health/live", timeout=300, trust_env=False)
            assert reply.status_code == 200
            return "rarestream.sockets" in log.read_text()

        eventually(dropped)
        received = b""
        with suppress(ConnectionResetError):
            while part := client.recv(2**20):
                received += part
        assert received.count(b'"status":200') < 60


async def test_shutdown_is_given_as_the_close_reason(log: Path) -> None:
    with Process("memory:", log, **SETTINGS) as process:
        async with httpx.AsyncClient(trust_env=False, timeout=300) as http:
            await http.put(f"{process.url}/v1/learners/a", json=DENSE)
        async with connect(f"ws://127.0.0.1:{process.port}/v1/ws", proxy=None) as client:
            await greeted(client)
            for seq in range(64):
                await client.send(json.dumps({"seq": seq, "learner": "a", "op": "update", "events": events(1, seq)}))
            assert json.loads(await client.recv())["seq"] == 0
            await asyncio.to_thread(process.stop)
            replies, code, _ = await ending(client)
            assert [reply["seq"] for reply in replies] == list(range(1, len(replies) + 1))
            assert code == 1001
