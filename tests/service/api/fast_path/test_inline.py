"""Predicts that connections answer themselves, over real sockets: nothing of HTTP is lost, and no reply differs."""

from __future__ import annotations

import gzip
import io
import json
import math
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from service.api.fast_path import inline
from service.api.fast_path.inline import InlinePath
from service.engine.replica import label_join
from service.server import http_protocol
from service.server.http_protocol import HttpProtocol
from service.telemetry.log_writer import LineWriter
from tests.harness.apps import DENSE, events
from tests.harness.raw import BODY, NAMED, PACKED, PATIENCE, ROUTE, URL, Service, request, served
from tests.harness.waiting import eventually


@pytest.fixture(scope="module")
def shared() -> Iterator[Service]:
    """One for all tests that leave it as it is."""
    with served() as service:
        yield service


# The same replies


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (BODY, {}),
        (
            b'{"events": [{"x": [1, 2, 3]}, {"x": [0.5, 0, 1], "time": 1.7e9}]}',
            {"accept": "application/json, */*;q=0.1"},
        ),
        (BODY, {"accept": "application/msgpack"}),
        (PACKED, {"content_type": "application/msgpack"}),
        (PACKED, {"content_type": "application/msgpack", "accept": "application/json"}),
        (BODY, {"content_type": "application/json; charset=utf-8", "x_request_id": "mine"}),
    ],
)
def test_an_inline_reply_equals_that_over_asgi(shared: Service, body: bytes, headers: dict[str, str]) -> None:
    data = request(body, **headers)
    with shared.over_asgi(0):
        connection = shared.connect()
        replies = [connection.ask(data), connection.ask(data)]  # by then its head is known
    with shared.over_asgi(1):
        closed = shared.ask(request(body, connection="close", **headers))
    assert closed.headers.pop(-1) == ("connection", "close")
    for reply in replies:
        assert (reply.status, reply.body) == (200, closed.body)
        assert [name for name, _ in reply.headers] == [name for name, _ in closed.headers]
        assert reply.headers[0][0] == "date"
        assert ("server", "uvicorn") in reply.headers
        for name in ("content-type", "content-length"):
            assert reply.header(name) == closed.header(name)
        if "x_request_id" in headers:
            assert reply.header("x-request-id") == "mine"
    local = {reply.header("x-request-id") for reply in (*replies, closed)}
    assert len(local) == (1 if "x_request_id" in headers else 3)


@pytest.mark.parametrize(
    ("data", "status", "code"),
    [
        (request(path="/v1/learners/nobody/predict"), 404, "unknown-learner"),
        (request(path="/v1/learners/-a/predict"), 422, "invalid"),
        (request(path=f"{URL}/predict?explain=0"), 422, "invalid"),
        (request(content_type="text/plain"), 415, "unsupported-type"),
        (request(accept="text/html"), 406, "not-acceptable"),
        (request(content_encoding="br"), 415, "unsupported-type"),
    ],
)
def test_asgi_refuses_invalid_heads(shared: Service, data: bytes, status: int, code: str) -> None:
    connection = shared.connect()
    for _ in range(2):  # the second head is cached
        with shared.over_asgi(1):
            reply = connection.ask(data)
        assert (reply.status, reply.header("content-type")) == (status, "application/problem+json")
        assert (reply.json["code"], reply.json["request_id"]) == (code, reply.header("x-request-id"))
        with shared.over_asgi(0):
            assert connection.ask(request()).status == 200  # the connection goes on


@pytest.mark.parametrize("operation", ["predict", "update"])
@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b'{"events": [{"x": [1, 2]}]}', 422, "invalid"),
        (b'{"events": [{"x": [1, 2, NaN], "label": 1}]}', 422, "invalid"),
        (b'{"events": [{"x": [1, 2, 3], "label": 7}]}', 422, "invalid"),
        (b'{"events": []}', 422, "invalid"),
        (b"nonsense", 400, "bad-body"),
        (b"", 400, "bad-body"),
    ],
)
def test_a_refused_body_gets_the_same_reply_inline_and_over_asgi(
    shared: Service, operation: str, body: bytes, status: int, code: str
) -> None:
    head = {"path": f"{URL}/{operation}", "x_request_id": "mine"}
    over_asgi = shared.ask(request(body, connection="close", **head))
    assert over_asgi.headers.pop(-1) == ("connection", "close")
    connection = shared.connect()
    for _ in range(2):
        with shared.over_asgi(0):
            inline_reply = connection.ask(request(body, **head))
        assert (inline_reply.status, inline_reply.json["code"]) == (status, code)
        assert inline_reply.body == over_asgi.body
        assert inline_reply.headers[1:] == over_asgi.headers[1:]  # but for the date
        with shared.over_asgi(0):
            assert connection.ask(request()).status == 200  # the connection goes on


@pytest.mark.parametrize(
    "data",
    [
        request(path=f"{URL}/predict?explain=2"),
        request(path=f"{URL}/p%72edict"),
        request(gzip.compress(BODY), content_encoding="gzip"),
        request(b'{"x": [1, 2, 3]}\n' * 3, content_type="application/x-ndjson"),
        request(b'{"events": [' + b" " * inline._MAX_BODY + b'{"x": [1, 2, 3]}]}'),
        request(content_length="0000000" + str(len(BODY))),
    ],
)
def test_asgi_handles_unusual_requests(shared: Service, data: bytes) -> None:
    connection = shared.connect()
    with shared.over_asgi(1):
        connection.send(data)
        if b"ndjson" in data:
            while not connection._file.readline().startswith(b"0\r\n"):
                pass
            assert connection._file.readline() == b"\r\n"
        else:
            assert connection.reply().status == 200
    with shared.over_asgi(0):
        assert connection.ask(request()).status == 200


def test_chunked_bodies_and_expect_continue(shared: Service) -> None:
    connection = shared.connect()
    head = request(b"").replace(b"content-length: 0", b"transfer-encoding: chunked")
    assert connection.ask(head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)).status == 200
    connection.send(request(expect="100-continue").removesuffix(BODY))
    assert connection._file.readline() == b"HTTP/1.1 100 Continue\r\n"
    assert connection._file.readline() == b"\r\n"
    assert connection.ask(BODY).status == 200


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "OPTIONS"])
def test_other_methods_are_refused(shared: Service, method: str) -> None:
    connection = shared.connect()
    connection.send(request(b"", method=method))
    reply = connection.reply(empty=method == "HEAD")
    assert (reply.status, reply.header("allow")) == (405, "POST")
    assert connection.ask(request()).status == 200


# Connections


def test_a_connection_stays_open_unless_the_client_requests_a_close(shared: Service) -> None:
    connection = shared.connect()
    for _ in range(3):
        assert connection.ask(request()).header("connection") is None
        assert connection.ask(request(connection="keep-alive")).header("connection") is None
    assert connection.ask(request(connection="close")).header("connection") == "close"
    assert connection.ended()
    for more in ({}, {"connection": "keep-alive"}):
        old = shared.connect()
        reply = old.ask(request(**more).replace(b"HTTP/1.1", b"HTTP/1.0"))
        assert (reply.status, reply.header("connection")) == (200, "close")
        assert old.ended()


def test_replies_to_pipelined_requests_stay_in_order(shared: Service) -> None:
    connection = shared.connect()
    with shared.over_asgi(0):
        connection.send(b"".join(request(x_request_id=f"n{i}") for i in range(50)))
        replies = [connection.reply() for _ in range(50)]
    assert [reply.header("x-request-id") for reply in replies] == [f"n{i}" for i in range(50)]


def test_replies_stay_in_order_if_some_take_longer(shared: Service) -> None:
    learn = json.dumps({"events": events(3, 100, ids=False)}).encode()
    slow = [
        request(learn, f"{URL}/update", x_request_id="update"),
        request(NAMED, x_request_id="named"),
        request(b"", URL, "GET", x_request_id="get"),
        request(b"nonsense", x_request_id="refused"),
    ]
    requests = []
    for i, entry in enumerate(slow * 3):
        requests += [request(x_request_id=f"n{i}"), entry, request()]
    connection = shared.connect()
    connection.send(b"".join(requests))
    replies = [connection.reply() for _ in requests]
    expected = [
        actual[1].decode() if (actual := re.search(rb"x-request-id: (\w+)", item)) else None for item in requests
    ]
    for reply, name in zip(replies, expected, strict=True):
        assert reply.status == (400 if name == "refused" else 200)
        assert name is None or reply.header("x-request-id") == name
    assert shared.ask(request()).status == 200  # without ids: from here on at once again
    with shared.over_asgi(0):
        assert connection.ask(request()).status == 200


def test_requests_may_be_split_anywhere(shared: Service) -> None:
    whole = request()
    expected = shared.ask(whole).body
    connection = shared.connect()
    connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for i in range(len(whole)):
        connection.send(whole[i : i + 1])
    assert connection.reply().body == expected
    for cut in range(1, len(whole), 7):  # the head is known by now
        connection.send(whole + whole[:cut])
        assert connection.reply().body == expected
        connection.send(whole[cut:])
        assert connection.reply().body == expected
        connection.send(whole[:cut])
        connection.send(whole[cut:] + whole)
        assert [connection.reply().body, connection.reply().body] == [expected, expected]
    assert shared.app.state.bodies.bytes == 0


def test_a_body_longer_than_its_content_length_is_refused(shared: Service) -> None:
    for _ in range(2):
        connection = shared.connect()
        assert connection.ask(request() + b"more").status == 200
        connection.send(b"\r\n\r\n")
        assert connection._file.readline() == b"HTTP/1.1 400 Bad Request\r\n"


def test_a_client_disconnecting_within_its_body(shared: Service) -> None:
    count = shared.answered(499)
    for cut in (0, 10):
        connection = shared.connect()
        assert connection.ask(request()).status == 200
        connection.send(request()[: -len(BODY) + cut])
        connection.close()
    eventually(lambda: shared.answered(499) == count + 2)
    eventually(lambda: shared.app.state.bodies.bytes == 0)
    assert shared.app.state.engine.get("fraud").users == 0


def flooded(headers: int) -> bytes:
    """Return a request with so many headers of 1,000 bytes."""
    flood = "".join(f"x-{i}: {'y' * 1000}\r\n" for i in range(headers)).encode()
    return request().replace(b"host: localhost\r\n", b"host: localhost\r\n" + flood)


def test_requests_with_many_headers_are_answered_and_not_cached(shared: Service) -> None:
    connection = shared.connect()
    for _ in range(2):
        assert connection.ask(flooded(60)).status == 200
    assert all(len(head) <= inline._MAX_HEAD for head in shared.app.inline._heads)
    assert connection.ask(request()).status == 200


def test_a_flood_of_headers_closes_only_that_connection(shared: Service) -> None:
    connection = shared.connect()
    with suppress(ConnectionError):  # it may be cut off while it still sends: then nothing of the reply is read
        connection.send(flooded(5000))
        assert connection._file.readline() == b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
        assert connection._file.read().endswith(b"}")
    assert shared.connect().ask(request()).status == 200


def test_a_body_with_two_lengths_is_refused(shared: Service) -> None:
    twice = request().replace(b"host: localhost\r\n", b"host: localhost\r\ntransfer-encoding: chunked\r\n")
    other = request().replace(b"host: localhost\r\n", b"host: localhost\r\ncontent-length: 3\r\n")
    for data in (twice, other):
        connection = shared.connect()
        connection.send(data)
        assert connection._file.readline() == b"HTTP/1.1 400 Bad Request\r\n"


# Cached heads


def test_the_head_cache_is_bounded_and_stores_single_requests_only() -> None:
    path = InlinePath(None, None, None)  # type: ignore[arg-type]
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(BODY)).encode())]
    head = path.parse(b"/v1/learners/fraud/predict", headers)
    assert head is not None
    whole = request()
    for piece in (whole + whole, whole + b"x", whole[:-1], whole.replace(b"host", b"X-Forwarded-For: 1.2.3.4\r\nhost")):
        path.remember(piece, head)
        assert path.match(piece) is None
    path.remember(whole, head)
    assert path.match(whole) == (head, BODY)
    assert path.match(whole + b"x") is None
    assert path.match(whole[:-1]) is None
    for i in range(3 * inline._MAX_HEADS):
        path.remember(request(x=str(i)), head)
        assert path.match(request(x=str(i))) == (head, BODY)
        assert len(path._heads) <= inline._MAX_HEADS
    with_id = path.parse(b"/v1/learners/fraud/predict", [*headers, (b"x-request-id", b"a")])
    assert with_id is not None
    path.remember(request(x_request_id="a"), with_id)
    assert path.match(request(x_request_id="a")) is None


# What a learner or a node says


def test_events_with_ids_are_stored() -> None:
    with served() as service:
        connection = service.connect()
        with service.over_asgi(2):
            for _ in range(2):
                assert connection.ask(request(NAMED)).json["remembered"] == 1
        with service.over_asgi(1):  # after one with ids others are expected
            assert connection.ask(request()).json["remembered"] == 0
        with service.over_asgi(0):
            assert connection.ask(request()).json["remembered"] == 0


def test_long_computations_run_in_a_thread() -> None:
    with served() as service, pytest.MonkeyPatch.context() as patched:
        expected = service.ask(request()).body
        patched.setattr(label_join, "_INLINE_WORK", 2)
        with service.over_asgi(1):
            assert service.ask(request()).body == expected


def test_an_evicted_learner_is_loaded() -> None:
    with served(max_resident=1) as service:
        expected = service.ask(request()).body
        service.http("PUT", "/v1/learners/another", json=DENSE)
        eventually(lambda: "fraud" in service.app.state.engine.evicted)
        with service.over_asgi(1):
            assert service.ask(request()).body == expected


def test_a_request_updates_the_last_use_of_a_learner(shared: Service) -> None:
    learner = shared.app.state.engine.get("fraud")
    connection = shared.connect()
    connection.ask(request())
    before = learner.last_used
    connection.ask(request())
    assert learner.last_used > before


def test_an_unreachable_store_is_reported(shared: Service) -> None:
    node = shared.app.state.engine.node
    connection = shared.connect()
    with pytest.MonkeyPatch.context() as patched, shared.over_asgi(0):
        patched.setattr(node, "_unreachable", "by the test")
        for _ in range(2):
            assert connection.ask(request()).json["stale_seconds"] > 0
    assert connection.ask(request()).json["stale_seconds"] == 0


def test_body_sizes_are_limited() -> None:
    with served(max_body_bytes=4096, max_buffered_bytes=8192) as service:
        connection = service.connect()
        assert connection.ask(request()).status == 200
        large = BODY[:-1] + b" " * 4096 + b"}"
        assert connection.ask(request(large)).json["code"] == "too-large"
        service.app.state.bodies.hold(8192)  # another's
        for _ in range(2):
            assert connection.ask(request()).json["code"] == "queue-full"
        service.app.state.bodies.let_go(8192)
        with service.over_asgi(0):
            assert connection.ask(request()).status == 200
        assert service.app.state.bodies.bytes == 0


def test_an_internal_error_is_answered_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    with served() as service, pytest.MonkeyPatch.context() as patched:
        connection = service.connect()
        assert connection.ask(request()).status == 200  # its head is known

        def broken(*_: Any) -> Any:
            raise RuntimeError("faulty")

        patched.setattr(service.app.state.engine.get("fraud").served_events, "at_once", broken)
        for i, item in enumerate((connection, service.connect())):
            reply = item.ask(request())
            assert (reply.status, reply.json["code"]) == (500, "internal")
            eventually(lambda count=i + 1: caplog.text.count("RuntimeError: faulty") == count)
            assert service.answered(500) == i + 1
            assert item.ended()  # which is uvicorn's way


def test_every_request_is_counted_and_logged() -> None:
    stream = io.BytesIO()
    with served(LineWriter(stream, "json")) as service:
        connection = service.connect()
        replies = [connection.ask(request()) for _ in range(3)]
        replies.append(connection.ask(request(b'{"events": [{"x": [1, 2, 3]}, {"x": [1, 2, 3]}]}', x_request_id="two")))
        assert service.answered() == 4
        assert service.server.server_state.total_requests == 6  # with those that made the learner
        behind = connection.ask(request(x_forwarded_for="10.9.8.7", x_request_id="behind"))
        assert behind.status == 200
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    report = [line for line in lines if line.get("route") == ROUTE[1]]
    assert [line["request_id"] for line in report] == [item.header("x-request-id") for item in (*replies, behind)]
    assert [line["events"] for line in report] == [1, 1, 1, 2, 1]
    assert [line["client"] for line in report] == ["127.0.0.1"] * 4 + ["10.9.8.7"]
    for line in report:
        assert (line["status"], line["learner"], line["method"]) == (200, "fraud", "POST")
        assert line["milliseconds"] >= 0
    assert {line["bytes"] for line in report} == {len(BODY), len(BODY) + 18}


def test_requests_take_the_uvicorn_path_if_it_limits_concurrency() -> None:
    with served(uvicorn={"limit_concurrency": 2}) as service:
        with service.over_asgi(1):
            assert service.ask(request()).status == 200
        reply = service.ask(request())
        assert (reply.status, reply.body) == (503, b"Service Unavailable")


# Flow, and the end


@pytest.mark.integration
@pytest.mark.parametrize(
    "data_sent", [request(), request(b"", URL, "GET")], ids=["answered at once", "answered by the application"]
)
def test_buffers_for_a_client_that_reads_nothing_are_bounded(data_sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "_STALL_SECONDS", 600.0)  # a machine that stands still meanwhile drops nobody
    with served(uvicorn={"timeout_keep_alive": 600.0}) as service:
        listeners = [listener for server in service.server.servers for listener in server.sockets]
        for end in (socket.SO_RCVBUF, socket.SO_SNDBUF):  # those of a connection are the listener's
            for listener in listeners:
                listener.setsockopt(socket.SOL_SOCKET, end, 2**16)
        connection = service.connect()
        for end in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            connection.socket.setsockopt(socket.SOL_SOCKET, end, 2**16)
        many = [data_sent] * 400
        assert connection.ask(many[0]).status == 200
        connection.socket.setblocking(False)
        requests, data = 0, b"".join(many)

        def paused() -> list[HttpProtocol]:
            """Return the connection, once nothing more is read of it."""
            actual = [
                connection
                for connection in service.server.server_state.connections
                if isinstance(connection, HttpProtocol)
            ]
            assert actual  # it is not dropped
            return [item for item in actual if item.flow.write_paused and item.flow.read_paused]

        while not paused():
            try:
                requests += connection.socket.send(data[requests % len(data) :])
            except BlockingIOError:
                threading.Event().wait(0.01)
            assert requests < 2**27
        (entry,) = paused()
        assert entry._plain.get_write_buffer_size() < 2**18
        assert len(entry.pipeline) < 2**13  # at most what a read or two bring
        assert service.ask(request()).status == 200  # others are served
        connection.socket.settimeout(PATIENCE)
        for _ in range(requests // len(many[0])):
            assert connection.reply().status == 200
        rest = requests % len(many[0])
        assert connection.ask(many[0][rest:] if rest else many[0]).status == 200


@pytest.mark.parametrize("method", ["POST", "GET"])
def test_the_time_of_a_head_begins_with_that_head(method: str) -> None:
    with served() as service:
        connection = service.connect()
        whole = request() if method == "POST" else request(b"", URL, "GET")
        first, rest = whole[:10], whole[10:]
        connection.send(whole + first)
        for _ in range(3):
            assert connection.reply().status == 200
            (protocol,) = service.server.server_state.connections
            assert isinstance(protocol, HttpProtocol)
            eventually(lambda: protocol._waits_since is not None)  # noqa: B023
            protocol._waits_since = math.inf  # the clock may stand still meanwhile
            connection.send(rest + first)
            eventually(lambda: protocol._waits_since not in (None, math.inf))  # noqa: B023


def test_an_idle_connection_is_closed_after_its_timeout() -> None:
    with served(uvicorn={"timeout_keep_alive": 0.2}) as service:
        connection = service.connect()
        assert connection.ask(request()).status == 200
        assert connection.ended()


def test_shutdown_closes_connections_and_answers_started_requests() -> None:
    with served() as service:
        idle, partial, never = service.connect(), service.connect(), service.connect()
        for item in (idle, partial):
            assert item.ask(request()).status == 200
        partial.send(request()[:-5])
        eventually(lambda: service.app.state.bodies.bytes == len(BODY) - 5)
        stopping = threading.Thread(target=service.stop)
        stopping.start()
        assert idle.ended()
        assert never.ended()
        partial.send(request()[-5:])
        reply = partial.reply()
        assert (reply.status, reply.header("connection")) == (200, "close")
        assert partial.ended()
        stopping.join(PATIENCE)
