"""Updates that connections answer themselves, over real sockets: what is acknowledged, in which order, how it ends."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from service.errors import StoreUnavailable
from tests.harness.apps import events
from tests.harness.raw import BODY, PATIENCE, URL, Service, request, served
from tests.harness.waiting import eventually, eventually_async

pytestmark = pytest.mark.integration

UPDATE = f"{URL}/update"


def learn(start: int, count: int = 1, **headers: str) -> bytes:
    """Return an update with so many events, with ids of their own."""
    return request(json.dumps({"events": events(count, start)}).encode(), UPDATE, **headers)


@pytest.fixture(scope="module")
def shared() -> Iterator[Service]:
    """One for all tests that leave it as it is, but for what it learns."""
    with served() as service:
        yield service


@contextmanager
def held_up(service: Service) -> Iterator[Callable[[], None]]:
    """Make appends wait until the yielded function is called."""
    store = service.app.state.engine.node.store
    append, going = store.append, threading.Event()

    async def waiting(*arguments: Any) -> Any:
        await eventually_async(going.is_set)  # by the test's thread
        return await append(*arguments)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(store, "append", waiting)
        try:
            yield going.set
        finally:
            going.set()


def learnt(service: Service) -> int:
    actual: int = service.app.state.engine.get("fraud").learner.metrics.events
    return actual


def test_a_reply_equals_that_over_asgi() -> None:
    with served() as item, served() as other:
        connection = item.connect()
        for start, count in ((100, 1), (101, 3), (102, 2), (104, 1), (104, 1)):  # some are repeated
            data = learn(start, count)
            with item.over_asgi(0):
                reply = connection.ask(data)
            with other.over_asgi(1):
                by_asgi = other.ask(learn(start, count, connection="close"))
            assert (reply.status, reply.body) == (200, by_asgi.body)
            assert [*reply.headers, ("connection", "close")][1:3] == by_asgi.headers[1:3]
        digests = [service.http("GET", f"{URL}/digest").json() for service in (item, other)]
        assert digests[0] == digests[1]


def test_heads_and_bodies_may_arrive_in_separate_pieces(shared: Service) -> None:
    connection = shared.connect()
    before = learnt(shared)
    with shared.over_asgi(0):
        for i, data in enumerate((learn(1000), request(), learn(1001), request())):
            head, body = data.split(b"\r\n\r\n")
            connection.send(head + b"\r\n\r\n" + body[:1])
            eventually(lambda: shared.app.state.bodies.bytes == 1)
            assert connection.ask(body[1:]).status == 200, i
            assert shared.app.state.bodies.bytes == 0
            connection.send(head)
            connection.send(b"\r\n\r\n")
            assert connection.ask(body).status == 200, i
    assert learnt(shared) == before + 2


def test_a_body_may_take_longer_than_the_idle_timeout() -> None:
    with served(uvicorn={"timeout_keep_alive": 1}) as service:
        connection = service.connect()
        connection.send(request() + learn(100)[:-5])  # the first one's reply sets the timer
        assert connection.reply().status == 200
        connection.socket.settimeout(2.5)
        with pytest.raises(TimeoutError):  # not closed
            connection.socket.recv(1)
        connection.socket.settimeout(PATIENCE)
        connection.send(learn(100)[-5:])
        data = connection.socket.recv(2**16)
        assert data.startswith(b"HTTP/1.1 200 OK\r\n")


def test_large_updates_may_be_pipelined(shared: Service) -> None:
    connection = shared.connect()
    before = learnt(shared)
    whole = b"".join(learn(5000 + 700 * i, 700) for i in range(12))  # of some 45 KB each
    thread = threading.Thread(target=connection.send, args=(whole,))
    thread.start()
    replies = [connection.reply() for _ in range(12)]
    thread.join(PATIENCE)
    assert [(reply.status, reply.json["applied"]) for reply in replies] == 12 * [(200, 700)]
    assert learnt(shared) == before + 12 * 700


def test_a_client_disconnecting_within_its_body_holds_no_memory(shared: Service) -> None:
    connection = shared.connect()
    connection.send(learn(1100)[:-5])
    eventually(lambda: shared.app.state.bodies.bytes > 0)
    connection.close()
    eventually(lambda: shared.app.state.bodies.bytes == 0)


def test_a_missing_body_is_reported() -> None:
    with served(body_seconds=0.2) as service:
        connection = service.connect()
        connection.send(learn(1100)[:-5])
        reply = connection.reply()
        assert (reply.status, reply.json["code"]) == (408, "too-slow")
        assert service.app.state.bodies.bytes == 0


def test_asgi_does_not_restart_the_body_timeout() -> None:
    with served(body_seconds=3600) as service:
        service.app.head_seconds = 0.2  # in which the connection itself waits for it
        connection = service.connect()
        connection.send(learn(1100)[:-5])
        reply = connection.reply()
        assert (reply.status, reply.json["code"]) == (408, "too-slow")
        assert service.app.state.bodies.bytes == 0


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b'{"events": [{"x": [1, 2], "label": 1}]}', 422, "invalid"),
        (b'{"events": [{"x": [1, 2, NaN], "label": 1}]}', 422, "invalid"),
        (b'{"events": [{"x": [1, 2, 3], "label": 7}]}', 422, "invalid"),
        (b'{"events": [{"x": [1, 2, 3]}]}', 422, "invalid"),
        (b"nonsense", 400, "bad-body"),
        (b"", 400, "bad-body"),
    ],
)
def test_a_refused_body_changes_nothing(shared: Service, body: bytes, status: int, code: str) -> None:
    connection = shared.connect()
    before = learnt(shared)
    for _ in range(2):
        with shared.over_asgi(0):
            reply = connection.ask(request(body, UPDATE))
        assert (reply.status, reply.json["code"]) == (status, code)
    assert learnt(shared) == before


def test_asgi_refuses_if_the_queue_is_full() -> None:
    with served(queue_bytes=1024) as service, held_up(service) as go_on:
        first, second, third = (service.connect() for _ in range(3))
        replica = service.app.state.engine.get("fraud")
        first.send(learn(100))
        eventually(lambda: replica.mailbox.busy)  # it is being logged,
        second.send(learn(101))
        eventually(lambda: replica.queued_events == 1)  # and this one waits
        with service.over_asgi(1):
            reply = third.ask(learn(102))
        assert (reply.status, reply.json["code"]) == (429, "queue-full")
        go_on()
        assert [item.reply().status for item in (first, second)] == [200, 200]


def test_replies_stay_in_order_while_the_store_is_slow(shared: Service) -> None:
    connection = shared.connect()
    requests = [learn(2000, x_request_id="a"), request(x_request_id="b"), learn(2001, x_request_id="c")]
    requests += [request(b"", URL, "GET", x_request_id="d"), learn(2002, x_request_id="e"), request(x_request_id="f")]
    for joined in (True, False):  # in one piece, and each in its own
        with held_up(shared) as go_on:
            for piece in [b"".join(requests)] if joined else requests:
                connection.send(piece)
            eventually(lambda: shared.app.state.engine.get("fraud").mailbox.busy)
            go_on()
            replies = [connection.reply() for _ in requests]
        assert [reply.header("x-request-id") for reply in replies] == list("abcdef")
        assert {reply.status for reply in replies} == {200}


def test_concurrent_updates_become_one_record() -> None:
    with served() as service, held_up(service) as go_on:
        connections = [service.connect() for _ in range(8)]
        replica = service.app.state.engine.get("fraud")
        connections[0].send(learn(100))
        eventually(lambda: replica.mailbox.busy)
        for i, connection in enumerate(connections[1:]):
            connection.send(learn(101 + i))
        eventually(lambda: replica.queued_events == 7)
        position = replica.position
        go_on()
        report = [connection.reply().json["position"] for connection in connections]
        assert report == [position + 1] + 7 * [position + 2]
        assert replica.users == 0


def test_a_store_failure_is_reported_and_the_connection_continues(shared: Service) -> None:
    store = shared.app.state.engine.node.store
    connection = shared.connect()
    before = learnt(shared)

    async def failing(*_: Any) -> Any:
        raise StoreUnavailable("unreachable")

    with pytest.MonkeyPatch.context() as patched, shared.over_asgi(0):
        patched.setattr(store, "append", failing)
        reply = connection.ask(learn(3000, x_request_id="mine"))
    assert (reply.status, reply.json["code"], reply.json["detail"]) == (503, "store-unavailable", "unreachable")
    assert reply.header("content-type") == "application/problem+json"
    assert reply.header("x-request-id") == reply.json["request_id"] == "mine"
    assert reply.header("retry-after") == "1"
    assert learnt(shared) == before
    assert connection.ask(learn(3000)).json["applied"] == 1


def test_an_internal_error_is_answered_and_logged(shared: Service, caplog: pytest.LogCaptureFixture) -> None:
    connection = shared.connect()

    def broken(*_: Any) -> Any:
        raise RuntimeError("faulty")

    with pytest.MonkeyPatch.context() as patched, shared.over_asgi(0):
        patched.setattr("service.wire.json_encode._results", broken)
        reply = connection.ask(learn(3100))
    assert (reply.status, reply.json["code"]) == (500, "internal")
    assert "RuntimeError: faulty" in caplog.text
    assert connection.ask(learn(3100)).json["duplicate"] == 1  # it was learnt


def test_the_update_of_a_disconnected_client_is_learnt_and_memory_freed(shared: Service) -> None:
    replica = shared.app.state.engine.get("fraud")
    before = learnt(shared)
    with held_up(shared) as go_on:
        connection = shared.connect()
        connection.send(learn(4000))
        eventually(lambda: replica.mailbox.busy)
        assert replica.users == 1
        connection.close()
        go_on()
        eventually(lambda: replica.users == 0)
    assert learnt(shared) == before + 1


def test_a_learner_is_not_evicted_during_an_update() -> None:
    with served() as service, held_up(service) as go_on:
        replica = service.app.state.engine.get("fraud")
        connection = service.connect()
        connection.send(learn(100))
        eventually(lambda: replica.mailbox.busy)
        assert not replica.idle
        go_on()
        assert connection.reply().status == 200
        eventually(lambda: replica.idle)


def test_shutdown_answers_updates_in_progress() -> None:
    with served() as service:
        with held_up(service) as go_on:
            connection = service.connect()
            connection.send(learn(100))
            eventually(lambda: service.app.state.engine.get("fraud").mailbox.busy)
            stopping = threading.Thread(target=service.stop)
            stopping.start()
            eventually(lambda: service.app.state.closing.is_set())
            go_on()
            reply = connection.reply()
        assert (reply.status, reply.header("connection"), reply.json["applied"]) == (200, "close", 1)
        assert connection.ended()
        stopping.join(PATIENCE)


def test_shutdown_closes_after_the_last_pipelined_reply() -> None:
    with served() as service:
        with held_up(service) as go_on:
            connection = service.connect()
            connection.send(learn(100) + learn(101))
            eventually(lambda: service.app.state.engine.get("fraud").mailbox.busy)
            stopping = threading.Thread(target=service.stop)
            stopping.start()
            eventually(lambda: service.app.state.closing.is_set())
            go_on()
            replies = [connection.reply(), connection.reply()]
        assert [(reply.status, reply.header("connection")) for reply in replies] == [(200, None), (200, "close")]
        assert connection.ended()
        stopping.join(PATIENCE)


def test_a_shutdown_timeout_reports_an_unknown_outcome() -> None:
    with served(uvicorn={"timeout_graceful_shutdown": 1}) as service:
        with held_up(service):
            connection = service.connect()
            connection.send(learn(100))
            eventually(lambda: service.app.state.engine.get("fraud").mailbox.busy)
            stopping = threading.Thread(target=service.stop)
            stopping.start()
            reply = connection.reply()
        assert (reply.status, reply.json["code"]) == (503, "store-unavailable")
        assert connection.ended()
        stopping.join(PATIENCE)


def test_asgi_answers_updates_without_features() -> None:
    with served() as service:
        named = BODY.replace(b"]}]", b'], "id": "served"}]')
        assert service.ask(request(named)).json["remembered"] == 1
        body = json.dumps({"events": [{"id": "served", "label": 1}]}).encode()
        with service.over_asgi(1):
            reply = service.ask(request(body, UPDATE))
        assert reply.json["applied"] == 1
