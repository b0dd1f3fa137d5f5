"""Requests that ask for another protocol: each is answered at once, as a handshake or as if it had not asked."""

from __future__ import annotations

import base64
import gc
import json
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from websockets.frames import Frame, Opcode
from websockets.sync.client import connect

from tests.docs.documents import ROOT
from tests.harness.raw import BODY, URL, Connection, Service, request, served
from tests.harness.waiting import eventually

pytestmark = pytest.mark.integration

HANDSHAKE = {
    "connection": "Upgrade",
    "upgrade": "websocket",
    "sec_websocket_version": "13",
    "sec_websocket_key": base64.b64encode(bytes(16)).decode(),
}
API = ROOT / "docs" / "reference" / "http-api.md"
CHUNKS = b"3\r\nabc\r\n0\r\n\r\n"


def handshake(path: str = "/v1/ws", method: str = "GET", body: bytes = b"", **headers: Any) -> bytes:
    """Build a handshake, which states a length only if it has a body."""
    raw = request(body, path, method, **{**HANDSHAKE, **headers})
    return raw if body else raw.replace(b"content-length: 0\r\n", b"")


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with served() as running:
        yield running


def status_of(connection: Connection, data: bytes) -> int:
    """Send a request; return the status of its reply, which may be a change of the protocol."""
    connection.send(data)
    return int(connection.socket.recv(12).split()[1])


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"content_length": "0"},
        {"cookie": "a" * 9000},
        {f"x{i}": "1" for i in range(129)},
        {"upgrade": "WebSocket"},
        {"connection": "keep-alive, Upgrade"},
        {"connection": "close, upgrade"},
        {"x": "na\u00efve"},
    ],
)
def test_handshakes_may_have_any_head_of_http(service: Service, headers: dict[str, str]) -> None:
    assert status_of(service.connect(), handshake(f"{URL}/ws", **headers)) == 101


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"sec_websocket_key": "short"}, "Sec-WebSocket-Key"),
        ({"sec_websocket_key": ""}, "Sec-WebSocket-Key"),
        ({"sec_websocket_version": "8"}, "Sec-WebSocket-Version"),
    ],
)
def test_a_malformed_handshake_is_refused_with_a_problem_document(
    service: Service, headers: dict[str, str], expected: str
) -> None:
    connection = service.connect()
    connection.send(handshake(x_request_id="mine", **headers))
    head, _, body = connection.socket.makefile("rb").read().partition(b"\r\n\r\n")  # up to the close
    document = json.loads(body)
    assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"\r\ncontent-type: application/problem+json" in head.lower()
    assert (document["status"], document["code"], document["request_id"]) == (400, "bad-request", "mine")
    assert expected in document["detail"]
    assert ("other", "other", 400) in service.app.access.requests


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("http://localhost/v1/ws", 101),
        ("http://localhost:8000/v1/ws?", 101),
        (f"http://127.0.0.1{URL}/ws", 101),
        (f"ws://localhost{URL}/ws", 101),
        ("http://localhost/v1/nothing", 404),
        ("http://localhost", 404),
        ("http://[/v1/ws", 400),
    ],
)
def test_a_handshake_may_name_the_host_in_its_target(service: Service, path: str, status: int) -> None:
    assert status_of(service.connect(), handshake(path)) == status


@pytest.mark.parametrize(
    "data",
    [
        request(),
        request(b"", "/v1/learners", "GET"),
        request(b"", "/v1/nothing", "GET"),
        handshake(),
        handshake(upgrade="h2c"),
        handshake(f"{URL}/predict", "POST", BODY),
    ],
)
@pytest.mark.parametrize("second", [b"localhost", b"elsewhere.example", b""])
def test_two_host_headers_are_refused(service: Service, data: bytes, second: bytes) -> None:
    start, _, rest = data.partition(b"\r\n")
    for again in (b"Host: %b\r\n" % second, b"hOST:%b\r\n" % second):
        connection = service.connect()
        reply = connection.ask(start + b"\r\n" + again + rest)
        assert (reply.status, reply.header("content-type")) == (400, "application/problem+json")
        assert reply.json["code"] == "bad-request"
        assert "Host" in reply.json["detail"]
        assert connection.ended()


def test_a_handshake_may_have_a_long_path(service: Service) -> None:
    assert status_of(service.connect(), handshake(f"{URL}/ws?{'a' * 9000}")) == 101  # closed by a frame with a reason


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (handshake(body=b"abc"), 426),
        (handshake(transfer_encoding="chunked") + CHUNKS, 426),
        (handshake().replace(b"HTTP/1.1", b"HTTP/1.0"), 426),
        (handshake(upgrade="h2c"), 426),
        (handshake(upgrade="h2c", connection="close, Upgrade"), 426),
        (handshake(upgrade="h2c, websocket"), 426),
        (handshake("/v1/learners", upgrade="h2c"), 200),
        (handshake(f"{URL}/predict", "POST", BODY), 200),
        (handshake(f"{URL}/predict", "POST", BODY, upgrade="h2c"), 200),
        (handshake(f"{URL}/predict", "POST", b"nonsense"), 400),
        (handshake("/v1/nothing", "PUT"), 404),
        (b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost:80\r\n\r\n", 400),
        (handshake("/v1/ws?\u00e4"), 400),
    ],
)
def test_other_upgrades_are_answered_as_if_they_had_not_asked(service: Service, data: bytes, status: int) -> None:
    for cut in (len(data), data.index(b"\r\n\r\n") + 4, len(data) - 1):  # the body may come in a piece of its own
        connection = service.connect()
        connection.send(data[:cut])
        connection.send(data[cut:])
        assert connection.reply().status == status


def test_requests_behind_an_ignored_upgrade_are_answered(service: Service) -> None:
    connection = service.connect()
    ignored = handshake(f"{URL}/predict", "POST", BODY, upgrade="h2c")
    connection.send(3 * (ignored + request()) + handshake())
    replies = [connection.reply() for _ in range(6)]
    assert {reply.body for reply in replies} == {service.ask(request()).body}


def test_a_handshake_behind_an_unanswered_request_is_answered_in_turn(service: Service) -> None:
    connection = service.connect()
    connection.send(request(b"", "/v1/learners", "GET") + handshake() + request())
    assert [connection.reply().status for _ in range(3)] == [200, 426, 200]


def test_frames_in_the_piece_of_the_handshake_are_answered(service: Service) -> None:
    message = json.dumps({"seq": 7, "op": "predict", "events": [{"x": [1, 2, 3]}]}).encode()
    connection = service.connect()
    connection.send(handshake(f"{URL}/ws") + Frame(Opcode.TEXT, message).serialize(mask=True))
    received = b""
    while b'"seq":7' not in received:
        received += connection.socket.recv(2**16)
    assert b'"status":200' in received


def test_the_headers_of_a_handshake_reach_the_application_as_they_were(service: Service) -> None:
    seen: list[Any] = []
    application: Any = service.server.config.app
    config = service.server.config

    async def noting(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope)
        await application(scope, receive, send)

    loaded, config.loaded_app = config.loaded_app, noting
    try:
        with connect(f"ws://127.0.0.1:{service.port}/v1/ws?", additional_headers={"x-y": "na\u00efve"}) as client:
            client.recv()
    finally:
        config.loaded_app = loaded
    (scope,) = (item for item in seen if item["type"] == "websocket")
    assert dict(scope["headers"])[b"x-y"].decode("latin-1") == "na\u00efve"
    assert scope["path"] == "/v1/ws"


@pytest.mark.parametrize(
    "data",
    [
        request(b"", "/v1/learners", "GET", transfer_encoding="chunked", content_length=""),
        handshake(transfer_encoding="chunked"),
        handshake(content_length="1000000"),
        handshake(f"{URL}/predict", "POST", upgrade="h2c", transfer_encoding="chunked"),
    ],
)
def test_a_body_that_drips_is_closed_by_its_deadline(data: bytes) -> None:
    data = data.replace(b"content-length: \r\n", b"")
    with served(body_seconds=0.2) as service:
        connection = service.connect()
        connection.send(data)
        connection.socket.settimeout(0.01)
        while not closed(connection):
            with suppress(ConnectionError):
                connection.send(b"1\r\na\r\n")


def closed(connection: Connection) -> bool:
    """Whether the server has closed the connection; reads what there is."""
    try:
        return not connection.socket.recv(2**16)
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def test_an_idle_websocket_keeps_no_message_in_memory(service: Service) -> None:
    body = {"seq": 7, "op": "predict", "events": [{"x": [1.25, 2.25, 3.25]}] * 8000}
    text = Frame(Opcode.TEXT, json.dumps(body).encode()).serialize(mask=True)
    assert len(text) > 200_000
    count, connections = 8, []

    def used() -> Connection:
        connection = service.connect()
        connection.send(handshake(f"{URL}/ws") + text)
        received = bytearray()
        while b'"seq":7' not in received or not received.endswith(b"}"):
            received += connection.socket.recv(2**16)
        return connection

    connections += [used() for _ in range(3)]
    tracemalloc.start()
    try:
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        connections += [used() for _ in range(count)]
        eventually(lambda: gc.collect() >= 0 and tracemalloc.get_traced_memory()[0] - before < count * 60_000)
    finally:
        tracemalloc.stop()
    del connections


@pytest.mark.parametrize("binary", [False, True])
def test_clients_with_their_default_limit_get_large_replies_in_parts(service: Service, binary: bool) -> None:
    (snippet,) = (line for line in API.read_text().splitlines() if line.startswith("with connect("))
    assert "max_size" not in snippet
    protocol: Any = msgspec.msgpack if binary else msgspec.json
    events = [{"x": [1, 2, 3]}] * 20_000
    rows = {"dtype": "float32", "shape": [100_000, 3], "data": bytes(1_200_000)}
    request: dict[str, Any] = {"seq": 8, "op": "predict", **({"x": rows} if binary else {"events": events})}
    message = protocol.encode(request)
    with connect(f"ws://127.0.0.1:{service.port}{URL}/ws") as client:
        assert json.loads(client.recv())["type"] == "hello"
        client.send(message if binary else message.decode())
        head = protocol.decode(client.recv())
        parts: list[Any] = [client.recv() for _ in range(head["parts"])]
        client.send(json.dumps({"seq": 9, "op": "predict", "events": events[:1]}))
        assert json.loads(client.recv())["seq"] == 9
    assert head == {"seq": 8, "parts": len(parts)}
    encoded = [part if isinstance(part, bytes) else part.encode() for part in parts]
    assert max(map(len, encoded)) <= 2**19
    reply = protocol.decode(b"".join(encoded))
    assert reply["seq"] == 8
