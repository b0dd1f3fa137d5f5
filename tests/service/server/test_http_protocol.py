"""HTTP under uvicorn: what is written, and when."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from uvicorn.config import Config
from uvicorn.server import ServerState

from service.api.body import pieces
from service.api.fast_path import RequestHead
from service.errors import ServiceError
from service.server.http_protocol import HttpProtocol
from service.wire.content_negotiation import JSON
from tests.harness.pipe import Pipe
from tests.harness.waiting import eventually_async

Application = Callable[[Any, Any, Any], Awaitable[None]]


async def replied(app: Application, *requests: bytes, peer: tuple[Any, ...] | None = None) -> list[bytes]:
    """Return what is written, write by write, to a client of HTTP at an address that sends these requests."""
    writes: list[bytes] = []

    class Noting(Pipe):
        def write(self, data: Any) -> None:
            writes.append(bytes(data))
            super().write(data)

        def get_extra_info(self, name: str, default: Any = None) -> Any:
            return peer if name == "peername" else default

    config = Config(
        app, lifespan="off", log_config=None, http=HttpProtocol, ws="none", server_header=False, date_header=False
    )
    config.load()
    protocol = HttpProtocol(config, ServerState(), {})
    protocol.connection_made(Noting())
    for request in requests:
        protocol.data_received(request)
    for _ in range(200):  # without processor, each turn of the loop takes one piece of a body
        await asyncio.sleep(0)
    protocol.connection_lost(None)
    return writes


def complete_reply(body: bytes, status: int = 200) -> Application:
    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        headers = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return app


GET = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc"


async def test_head_and_body_of_a_reply_are_written_together() -> None:
    assert await replied(complete_reply(b"abc"), GET) == [b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc"]
    assert len(await replied(complete_reply(b"abc"), GET + GET)) == 2
    crafted = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"  # a body that looks like a head
    (written,) = await replied(complete_reply(crafted), GET)
    assert written.endswith(b"\r\n\r\n" + crafted)


async def test_a_head_without_a_body_is_written_immediately() -> None:
    head = GET.replace(b"GET", b"HEAD")
    assert await replied(complete_reply(b"abc"), head) == [b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n"]
    assert len(await replied(complete_reply(b"", 204), GET)) == 1


async def test_a_stream_sends_its_head_immediately() -> None:
    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await asyncio.Event().wait()

    assert await replied(app, GET) == [b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"]


async def test_a_buffered_head_is_written_before_the_close() -> None:
    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"3")]})

    assert await replied(app, GET) == [b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n"]
    (refused,) = await replied(app, b"nonsense\r\n\r\n")
    assert refused.startswith(b"HTTP/1.1 400 ")


def problem_in(written: bytes) -> dict[str, Any]:
    """Return the problem that a refusal tells, whose id its header has too."""
    head, _, body = written.partition(b"\r\n\r\n")
    assert b"content-type: application/problem+json" in head
    assert b"connection: close" in head
    document: dict[str, Any] = json.loads(body)
    assert f"x-request-id: {document['request_id']}".encode() in head
    return document


@pytest.mark.parametrize(
    "payload",
    [
        b"nonsense\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",  # TLS
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: many\r\n\r\n",
        b"GET http://[/ HTTP/1.1\r\n\r\n",
    ],
)
async def test_malformed_requests_are_refused_with_an_id(payload: bytes) -> None:
    (written,) = await replied(complete_reply(b"abc"), payload)
    assert written.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    problem = problem_in(written)
    assert (problem["status"], problem["code"]) == (400, "bad-request")
    assert problem["request_id"]


@pytest.mark.parametrize("before", [1, 2])
@pytest.mark.parametrize("junk", [b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\nno colon\r\n\r\n"])
async def test_a_refusal_follows_the_replies_to_earlier_requests(before: int, junk: bytes) -> None:
    go_on = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await go_on.wait()
        await complete_reply(b"abc")(scope, receive, send)

    slow = Slow(app, 1000.0)
    slow.protocol.data_received(GET * before + junk)
    await asyncio.sleep(0.01)
    assert (bytes(slow.pipe.written), slow.pipe.closed) == (b"", False)
    slow.protocol.data_received(GET)  # nothing behind it is read
    go_on.set()
    await slow.pipe.until(before * len(OK) + 300)
    assert slow.pipe.closed
    assert slow.pipe.written.startswith(OK * before + b"HTTP/1.1 400 Bad Request\r\n")
    assert slow.pipe.written.count(b"\r\ncontent-length: ") == before + 1
    assert problem_in(bytes(slow.pipe.written[before * len(OK) :]))["code"] == "bad-request"
    slow.protocol.connection_lost(None)


async def test_a_request_answered_before_its_body_fails_has_one_reply() -> None:
    slow = Slow(complete_reply(b"abc"), 1000.0)
    slow.protocol.data_received(CHUNKED)
    await slow.pipe.until(len(OK))
    slow.protocol.data_received(b"no size\r\n")
    assert (bytes(slow.pipe.written), slow.pipe.closed) == (OK, True)
    slow.protocol.connection_lost(None)


async def reading(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the body, its headers' names, or the problem with either."""
    try:
        read = b"".join([piece async for piece in pieces(receive, scope)])
    except ServiceError as error:
        await complete_reply(error.detail.encode(), error.status)(scope, receive, send)
    else:
        await complete_reply(b",".join([read, *(name for name, _ in scope["headers"])]))(scope, receive, send)


@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize("cut", [0, len(CHUNKED), len(CHUNKED) + 6])
async def test_the_application_answers_a_request_with_a_broken_body(before: int, cut: int) -> None:
    payload = CHUNKED + b"3\r\nabc\r\nno size\r\n" + GET
    written = b"".join(await replied(reading, GET * before + payload[:cut], payload[cut:]))
    assert written.count(b"HTTP/1.1 200") == before  # and to what follows it there is no reply
    _, _, last = written.rpartition(b"HTTP/1.1 ")
    assert last.startswith(b"400 Bad Request\r\n")
    assert b"\r\nconnection: close\r\n" in last
    assert b"the body breaks off: Invalid character in chunk size; the connection is closed" in last


async def test_an_application_ignoring_the_body_answers_despite_its_failure() -> None:
    slow = Slow(complete_reply(b"abc"), 1000.0)
    slow.protocol.data_received(CHUNKED + b"no size\r\n")
    await slow.pipe.until(len(OK))
    assert (slow.pipe.written.count(b"HTTP/1.1 "), slow.pipe.closed) == (1, True)
    assert slow.pipe.written.startswith(b"HTTP/1.1 200 OK\r\n")
    slow.protocol.connection_lost(None)


async def test_trailers_are_not_headers_and_large_bodies_are_not_framing() -> None:
    chunk = b"x" * 2**14
    payload = [
        CHUNKED,
        *(b"4000\r\n" + chunk + b"\r\n" for _ in range(10)),
        b"0\r\nauthorization: Bearer x\r\n\r\n" + GET,
    ]
    written = b"".join(await replied(reading, *payload))
    assert written.count(b"HTTP/1.1 200 OK") == 2
    assert chunk * 10 + b",transfer-encoding" in written
    assert b"authorization" not in written


@pytest.mark.parametrize("framing", [b"0\r\n" + b"a: b\r\n" * 2**14, b"3;" + b"x" * 2**17, b"0\r\na: " + b"x" * 2**17])
async def test_endless_chunk_framing_is_refused(framing: bytes) -> None:
    parts = [framing[at : at + 2**12] for at in range(0, len(framing), 2**12)]
    written = b"".join(await replied(reading, CHUNKED, b"3\r\nabc\r\n", *parts))
    assert written.startswith(b"HTTP/1.1 431 ")
    assert b"the chunk framing or trailer of the body is over 65536 bytes" in written
    assert written.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize(
    ("payload", "expected"), [(b"\x16\x03\x01\x02\x00", "TLS"), (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/2")]
)
async def test_unsupported_protocols_are_named(payload: bytes, expected: str) -> None:
    (written,) = await replied(complete_reply(b"abc"), payload)
    assert expected in problem_in(written)["detail"]


async def test_inline_replies_restart_the_idle_timeout() -> None:
    class Answering:
        """An application that answers everything at once."""

        class inline:
            match = staticmethod(lambda _: (RequestHead("fraud", "predict", JSON, JSON, 0, b"", ()), b""))
            answer = staticmethod(lambda *_: (200, b"\r\n"))

        async def __call__(self, _scope: Any, _receive: Any, _send: Any) -> None:
            raise AssertionError("it came to the application")

    class Closing(Pipe):
        closed = False

        def close(self) -> None:
            self.closed = True

    app: Any = Answering()
    settings: Any = {"interface": "asgi3", "access_log": False, "timeout_keep_alive": 1000}
    config = Config(app, lifespan="off", log_config=None, http=HttpProtocol, ws="none", **settings)
    config.load()
    protocol, pipe = HttpProtocol(config, ServerState(), {}), Closing()
    protocol.connection_made(pipe)
    protocol.data_received(GET)
    timer = protocol.timeout_keep_alive_task
    protocol.data_received(GET)
    assert pipe.written == 2 * b"HTTP/1.1 200 OK\r\n\r\n"
    assert timer is not None
    assert protocol.timeout_keep_alive_task is timer
    protocol.timeout_keep_alive_handler()  # as if it were time
    assert protocol.timeout_keep_alive_task is not timer
    assert not pipe.closed
    protocol.timeout_keep_alive = 0
    protocol.timeout_keep_alive_handler()
    assert pipe.closed
    protocol.connection_lost(None)


# Clients that keep a connection, and do not use it


class Slow:
    """A connection of a client that sends and reads as little as it likes."""

    def __init__(self, app: Application, seconds: float = 0.05) -> None:
        config = Config(
            Patient(app, seconds),
            lifespan="off",
            log_config=None,
            http=HttpProtocol,
            ws="none",
            interface="asgi3",
            server_header=False,
            date_header=False,
        )
        config.load()
        self.pipe = Pipe()
        self.protocol = HttpProtocol(config, ServerState(), {})
        self.protocol.connection_made(self.pipe)

    async def wait_closed(self, *pieces: bytes) -> None:
        """Wait until the server closes the connection, and send it a piece at each look."""
        rest = list(pieces)

        def ended() -> bool:
            if rest and not self.pipe.closed:
                self.protocol.data_received(rest.pop(0))
            return self.pipe.closed

        await eventually_async(ended)
        self.protocol.connection_lost(None)


class Patient:
    """An application that says how long a head may take."""

    def __init__(self, app: Application, seconds: float) -> None:
        self.app = app
        self.head_seconds = seconds

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self.app(scope, receive, send)


@pytest.mark.parametrize(
    "pieces",
    [
        (),  # nothing at all
        [b"\r\n"] * 300,
        [b"G", *[b"E"] * 10],
        [b"GET / HTTP/1.1\r\n", *(f"x-{i}: 1\r\n".encode() for i in range(300))],
        [GET, *[b"\r\n"] * 300],  # after a reply
        [b"GET / HTTP/1.1\r\nContent-Length: 300\r\n\r\n", *[b"1"] * 290],  # a body that nobody waits for
    ],
)
async def test_a_stalled_client_is_dropped(pieces: list[bytes]) -> None:
    slow = Slow(complete_reply(b"abc"))
    await slow.wait_closed(*pieces)


async def test_a_long_running_request_is_awaited() -> None:
    requested = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await requested.wait()
        await complete_reply(b"abc")(scope, receive, send)

    slow = Slow(app)
    slow.protocol.data_received(GET + GET[:10])  # some of the next one's head is here
    await asyncio.sleep(0.3)
    assert not slow.pipe.closed
    requested.set()
    await slow.pipe.until(1)
    await slow.wait_closed()


@pytest.mark.parametrize("size", [1000, 2**14, 2**20])
@pytest.mark.parametrize("header", [b"x: %b", b"%b: x", b"x: 1\r\n" * 20_000 + b"x: %b"])
async def test_an_endless_head_is_refused(size: int, header: bytes) -> None:
    slow = Slow(complete_reply(b"abc"), 1000.0)
    payload = b"GET / HTTP/1.1\r\n" + header % (b"a" * 2**20) + b"\r\n\r\n"
    for start in range(0, len(payload), size):
        if slow.pipe.closed:
            break
        slow.protocol.data_received(payload[start : start + size])
    assert slow.pipe.closed
    assert start <= 2**16 + size
    assert slow.pipe.written.startswith(b"HTTP/1.1 431 ")
    assert b'"code":"head-too-large"' in slow.pipe.written
    slow.protocol.connection_lost(None)


async def test_a_large_body_does_not_count_towards_the_head() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        await complete_reply(b"abc")(scope, receive, send)

    slow = Slow(app, 1000.0)
    head = b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n"
    for payload in (head % 2**18 + b"a" * 2**18 + GET, GET):
        before = len(slow.pipe.written)
        for start in range(0, len(payload), 2**16):
            slow.protocol.data_received(payload[start : start + 2**16])
            await asyncio.sleep(0)
        await slow.pipe.until(before + 1)
    assert slow.pipe.written.startswith(b"HTTP/1.1 200 ")
    assert not slow.pipe.closed
    slow.protocol.connection_lost(None)


async def test_a_client_not_reading_its_last_reply_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.server.http_protocol._STALL_SECONDS", 0.01)
    slow = Slow(complete_reply(b"a" * 2**20))
    slow.protocol.data_received(GET)
    await slow.pipe.until(2**20)
    slow.protocol.timeout_keep_alive_handler()
    assert slow.pipe.closed
    await asyncio.wait_for(slow.pipe.aborted.wait(), 300)
    slow.protocol.connection_lost(None)


async def test_a_client_reading_nothing_of_a_long_reply_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.server.http_protocol._STALL_SECONDS", 0.1)
    over = asyncio.Event()

    async def endless(scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        protocol = scope["state"]["protocol"]
        while not protocol.transport.is_closing():
            await send({"type": "http.response.body", "body": bytes(2**16), "more_body": True})
        over.set()

    config = Config(endless, lifespan="off", log_config=None, http=HttpProtocol, ws="none", interface="asgi3")
    config.load()
    state: dict[str, Any] = {}

    def connected() -> HttpProtocol:
        state["protocol"] = HttpProtocol(config, ServerState(), state)
        return state["protocol"]

    server = await asyncio.get_running_loop().create_server(connected, "127.0.0.1", 0)
    async with server, asyncio.timeout(300):
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2], limit=2**10)
        writer.write(GET)
        await over.wait()
        writer.close()
        assert b"200 OK" in await reader.readline()


@pytest.mark.parametrize("ending", ["shutdown", "timeout_keep_alive_handler"])
async def test_a_request_that_meets_the_end_of_an_idle_connection_sees_no_reset(ending: str) -> None:
    config = Config(complete_reply(b"abc"), lifespan="off", log_config=None, http=HttpProtocol, ws="none")
    config.load()
    protocols: list[HttpProtocol] = []

    def connected() -> HttpProtocol:
        protocols.append(HttpProtocol(config, ServerState(), {}))
        return protocols[0]

    loop = asyncio.get_running_loop()
    server = await loop.create_server(connected, "127.0.0.1", 0)
    async with server, asyncio.timeout(300):
        with socket.create_connection(server.sockets[0].getsockname()[:2]) as client:
            client.setblocking(False)
            await loop.sock_sendall(client, GET)
            while b"abc" not in await loop.sock_recv(client, 1000):
                pass
            client.send(GET)  # the server's loop has not read it yet
            getattr(protocols[0], ending)()
            assert await loop.sock_recv(client, 1000) == b""
            client.send(GET)  # the client has not looked yet
            assert await loop.sock_recv(client, 1000) == b""


async def test_a_client_that_reads_slowly_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.server.http_protocol._STALL_SECONDS", 1000.0)
    slow = Slow(complete_reply(b"a" * 2**20), 1000.0)
    slow.protocol.data_received(GET)
    await slow.pipe.until(2**20)
    left = slow.pipe.get_write_buffer_size()
    slow.protocol.pause_writing()
    slow.protocol.resume_writing()
    slow.protocol.pause_writing()  # with as much to read as before
    slow.protocol._look_at_unread(left)  # as if it were time
    assert not slow.pipe.aborted.is_set()
    slow.protocol._look_at_unread(left)
    assert slow.pipe.aborted.is_set()
    slow.protocol.connection_lost(None)


async def test_the_application_sees_the_ipv4_address_of_a_client_that_a_socket_for_both_families_accepted() -> None:
    clients: list[Any] = []

    async def app(scope: Any, _receive: Any, send: Any) -> None:
        clients.append(scope["client"])
        await complete_reply(b"abc")(scope, _receive, send)

    await replied(app, GET, peer=("::ffff:192.0.2.1", 50_000))
    assert clients == [("192.0.2.1", 50_000)]
