"""Streams of the Python client: the window, the order of answers, and errors of broken streams."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.sync.server import Server, ServerConnection, serve

import learners
from rarestream import EventBatch, OutcomeUnknown, RequestRefused, ServiceUnreachable, StreamBroken
from rarestream.client.stream_session import StreamSession
from tests.harness.clients import KINDS, client
from tests.harness.process import Process

pytestmark = pytest.mark.integration

DENSE: dict[str, Any] = {"algorithm": "loam-ada", "features": {"kind": "dense", "dim": 3}}
N = 60
RNG = np.random.default_rng(5)
Y = RNG.random(N) < 0.3
X = RNG.normal(size=(N, 3)) + Y[:, None]
IDS = [f"e{i}" for i in range(N)]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# Without a connection


def hello(credit: int = 4, max_bytes: int = 10_000) -> str:
    return msgspec.json.encode({"type": "hello", "credit": credit, "max_bytes": max_bytes}).decode()


def scored(seq: int, score: float = 0.0) -> bytes:
    """Return the reply to a predict of one event of an ordinal learner."""
    head = {"seq": seq, "position": 1, "ready": True, "remembered": 0, "stale_seconds": 0.0}
    scores = {"dtype": "float64", "shape": [1], "data": np.array([score], "<f8").tobytes()}
    return msgspec.msgpack.encode({**head, "scores": scores, "ranks": {"dtype": "int8", "shape": [1], "data": b"\1"}})


def refused(seq: int) -> bytes:
    errors = [{"pointer": "/x/shape", "detail": "is [1, 2]"}]
    body = {"seq": seq, "status": 429, "code": "queue-full", "detail": "busy", "errors": errors, "retry_after": 2}
    return msgspec.msgpack.encode(body)


def session(window: int = 8, **limits: int) -> StreamSession:
    stream = StreamSession(window)
    stream.greet(hello(**limits))
    return stream


def ask(of: StreamSession, ids: Any = None) -> tuple[dict[str, Any], Any]:
    message, pending = of.predict(X[:1], ids, None, None)
    return msgspec.msgpack.decode(message), pending


@pytest.mark.parametrize(("window", "credit", "most"), [(8, 4, 4), (3, 4, 3), (1, 1, 1)])
def test_in_flight_requests_stay_within_window_and_credit(window: int, credit: int, most: int) -> None:
    stream = session(window, credit=credit)
    for seq in range(most):
        assert stream.free
        assert ask(stream)[0]["seq"] == seq
    assert not stream.free
    stream.receive(scored(0))
    assert stream.free


def test_a_large_answer_comes_in_parts() -> None:
    stream = session()
    _, first = stream.predict(X[:1], None, None, None)
    _, second = stream.predict(X[:1], None, None, None)
    reply = scored(0, 0.5)
    for message in (msgspec.msgpack.encode({"seq": 0, "parts": 3}), reply[:10], reply[10:20]):
        stream.receive(message)
        assert not first.answered
    stream.receive(reply[20:])
    stream.receive(scored(1))
    assert first.take().scores[0] == 0.5
    assert second.answered


def test_text_among_the_parts_of_an_answer_is_refused() -> None:
    stream = session()
    stream.predict(X[:1], None, None, None)
    stream.receive(msgspec.msgpack.encode({"seq": 0, "parts": 2}))
    with pytest.raises(OutcomeUnknown):
        stream.receive("text")


def test_each_message_contains_the_body_and_its_head() -> None:
    stream = session()
    message, _ = stream.update(EventBatch(X[:2], Y[:2], ["a", "b"]), ("file", 5))
    body = msgspec.msgpack.decode(message)
    assert (body.pop("seq"), body.pop("op"), body.pop("source")) == (0, "update", {"name": "file", "offset": 5})
    assert body.keys() == {"x", "labels", "ids"}
    body = msgspec.msgpack.decode(stream.update(EventBatch(None, [1], ["a"]), None)[0])
    assert (body["seq"], body["op"], body.keys()) == (1, "labels", {"seq", "op", "labels", "ids"})
    body = msgspec.msgpack.decode(stream.predict(X[:1], None, None, 3, 7)[0])
    assert (body["seq"], body["op"], body["explain"], body["at_least"]) == (2, "predict", 3, 7)


def test_replies_are_matched_to_their_requests() -> None:
    stream = session()
    first, second = ask(stream)[1], ask(stream)[1]
    stream.receive(scored(1, 0.5))
    assert (first.answered, second.answered, stream.idle) == (False, True, False)
    stream.receive(scored(0, 0.25))
    assert (first.take().scores.tolist(), second.take().scores.tolist(), stream.idle) == ([0.25], [0.5], True)


def test_an_oversized_message_is_not_sent() -> None:
    stream = session(max_bytes=1000)
    with pytest.raises(ValueError, match="1000"):
        stream.predict(X, None, None, None)
    assert ask(stream)[0]["seq"] == 0


def test_an_unread_refusal_is_raised_at_the_end() -> None:
    stream = session()
    first, second = ask(stream)[1], ask(stream)[1]
    stream.receive(refused(0))
    stream.receive(refused(1))
    with pytest.raises(RequestRefused, match="busy") as caught:
        first.take()
    assert (caught.value.status, caught.value.code, caught.value.retry_after) == (429, "queue-full", 2.0)
    assert [(problem.pointer, problem.detail) for problem in caught.value.problems] == [("/x/shape", "is [1, 2]")]
    with pytest.raises(RequestRefused):
        stream.raise_unseen()
    with pytest.raises(RequestRefused):
        second.take()
    stream.raise_unseen()  # both are known


def test_a_broken_stream_names_the_unanswered_requests() -> None:
    stream = session()
    for i in range(3):
        ask(stream, [f"e{i}"])
    last = ask(stream)[1]
    stream.receive(scored(1))
    stream.end("gone")
    with pytest.raises(StreamBroken, match="gone") as caught:
        stream.raise_unseen()
    assert caught.value.unanswered == ((0, "predict", ["e0"]), (2, "predict", ["e2"]), (3, "predict", None))
    for call in (last.take, stream.check_open, lambda: ask(stream)):
        with pytest.raises(StreamBroken):
            call()
    stream.raise_unseen()  # the caller has seen it


def test_a_stream_may_break_with_nothing_in_flight() -> None:
    stream = session()
    stream.end("gone")
    stream.raise_unseen()
    with pytest.raises(StreamBroken, match="gone"):
        ask(stream)


@pytest.mark.parametrize("message", [scored(7), b"\xc1", b"\x80", "{}"])
def test_an_invalid_reply_is_refused(message: Any) -> None:
    with pytest.raises(OutcomeUnknown):
        session().receive(message)


@pytest.mark.parametrize("message", ["", "[]", '{"type":"hello"}', '{"type":"bye","credit":1,"max_bytes":1}'])
def test_an_invalid_hello_is_refused(message: str) -> None:
    with pytest.raises(OutcomeUnknown):
        StreamSession(1).greet(message)


def test_the_window_is_at_least_one() -> None:
    with pytest.raises(ValueError, match="window"):
        StreamSession(0)


# With a scripted server


@contextmanager
def serving(
    behaviour: Callable[[ServerConnection], None],
    answer: Callable[[ServerConnection, Request], Response | None] | None = None,
) -> Iterator[str]:
    """Return the HTTP URL of a websocket server."""
    server: Server = serve(behaviour, "127.0.0.1", 0, compression=None, max_queue=None, process_request=answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.socket.getsockname()[1]}"
    finally:
        server.shutdown()
        thread.join()


def test_the_credit_is_kept_on_the_wire(kind: str) -> None:
    beyond: list[bool] = []

    def behave(socket: ServerConnection) -> None:
        socket.send(hello(credit=3))
        for first in range(0, 12, 3):
            for _ in range(3):
                socket.recv()
            try:
                socket.recv(timeout=0.05)
                beyond.append(True)
            except TimeoutError:
                beyond.append(False)
            for seq in range(first, first + 3):
                socket.send(scored(seq, seq))
        with pytest.raises(ConnectionClosed):
            socket.recv()

    with serving(behave) as url, client(kind, url) as api, api.learner("a").stream(window=64) as stream:
        replies = [stream.predict(X[:1]) for _ in range(12)]
        stream.drain()
        assert [reply.seq for reply in replies] == list(range(12))
        assert [reply.result().scores.item() for reply in replies] == list(range(12))
    assert beyond == [False] * 4


def test_a_closing_server_gives_its_reason(kind: str) -> None:
    def behave(socket: ServerConnection) -> None:
        socket.send(hello(credit=64))
        for seq in range(2):
            socket.recv()
            socket.send(scored(seq, 7.0))
        socket.close(1001, "this node stops")

    with serving(behave) as url, client(kind, url) as api:
        stream = api.learner("a").stream()
        replies: list[Any] = []

        def ask_on() -> None:
            with stream:
                while True:
                    replies.append(stream.predict(X[:1], ids=[f"e{len(replies)}"]))

        with pytest.raises(StreamBroken, match="1001") as caught:
            ask_on()
        assert [reply.result().scores.item() for reply in replies[:2]] == [7.0, 7.0]
        assert [item.seq for item in caught.value.unanswered] == list(range(2, 2 + len(caught.value.unanswered)))
        assert all(item.ids == [f"e{item.seq}"] for item in caught.value.unanswered)


def test_an_invalid_reply_breaks_the_stream(kind: str) -> None:
    def behave(socket: ServerConnection) -> None:
        socket.send(hello())
        socket.recv()
        socket.send("what?")
        with pytest.raises(ConnectionClosed):
            socket.recv()

    with (
        serving(behave) as url,
        client(kind, url) as api,
        pytest.raises(StreamBroken, match="text"),
        api.learner("a").stream() as stream,
    ):
        stream.predict(X[:1]).result()


@pytest.mark.parametrize(
    ("status", "expected"),
    [(HTTPStatus.FORBIDDEN, RequestRefused), (HTTPStatus.SERVICE_UNAVAILABLE, ServiceUnreachable)],
)
def test_a_refused_handshake_is_reported(kind: str, status: HTTPStatus, expected: type[Exception]) -> None:
    with (
        serving(lambda _: None, lambda socket, _: socket.respond(status, "no")) as url,
        client(kind, url) as api,
        pytest.raises(expected, match=str(int(status))),
        api.learner("a").stream(),
    ):
        pass


def test_a_server_closing_immediately_is_reported(kind: str) -> None:
    with (
        serving(lambda socket: socket.close(1013, "256 websockets are open")) as url,
        client(kind, url) as api,
        pytest.raises(ServiceUnreachable, match="1013"),
        api.learner("a").stream(),
    ):
        pass


def test_an_unopened_stream_is_refused(kind: str) -> None:
    with client(kind, "http://127.0.0.1:9") as api:
        with pytest.raises(RuntimeError, match="with"):
            api.learner("a").stream().predict(X[:1])
        with pytest.raises(ServiceUnreachable), api.learner("a").stream():
            pass


def test_an_exception_in_the_block_takes_precedence(kind: str) -> None:
    def behave(socket: ServerConnection) -> None:
        socket.send(hello())
        socket.recv()
        with pytest.raises(ConnectionClosed):
            socket.recv()

    replies: list[Any] = []

    def fail(stream: Any) -> None:
        with stream:
            replies.append(stream.predict(X[:1]))
            raise KeyError

    with serving(behave) as url, client(kind, url) as api:
        with pytest.raises(KeyError):
            fail(api.learner("a").stream())
        with pytest.raises(StreamBroken):
            replies[0].result()


def test_a_late_result_times_out() -> None:
    def behave(socket: ServerConnection) -> None:
        socket.send(hello())
        socket.recv()
        socket.recv()
        socket.send(scored(0))
        socket.send(scored(1))

    with serving(behave) as url, client("sync", url) as api, api.learner("a").stream() as stream:
        reply = stream.predict(X[:1])
        with pytest.raises(TimeoutError):
            reply.result(timeout=0.01)
        assert not reply.done
        stream.predict(X[:1])
        assert reply.result().position == 1


# Against the service


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    folder = tmp_path_factory.mktemp("service")
    with Process(f"sqlite:///{folder / 'log.db'}", folder / "server.log") as process:
        yield process


def local() -> learners.Learner:
    return learners.create("loam-ada", features=DENSE["features"])


def test_a_stream_learns_in_the_order_of_its_requests(service: Process, kind: str) -> None:
    with client(kind, service.url) as api:
        remote = api.create(f"order-{kind}", **DENSE)
        with remote.stream(window=16) as stream:
            replies = [stream.update(X[i : i + 2], Y[i : i + 2], ids=IDS[i : i + 2]) for i in range(0, N, 2)]
            predictions = stream.predict(X, ids=[f"p{i}" for i in range(N)])
            late = stream.labels(["p0", "p1", "nobody"], [1, 0, 1])
        scores = local().learn(X, Y, ids=IDS)
        np.testing.assert_array_equal(np.concatenate([reply.result().scores for reply in replies]), scores)
        assert predictions.result().remembered == N
        assert late.result().status.tolist() == ["applied", "applied", "unknown"]
        np.testing.assert_array_equal(late.result().scores[:2], predictions.result().scores[:2])
        positions = [reply.result().position for reply in replies]
        assert positions == sorted(positions)


def test_refusals_of_the_service_are_raised_in_a_stream(service: Process, kind: str) -> None:
    with client(kind, service.url) as api:
        with pytest.raises(RequestRefused) as caught, api.learner("nobody").stream():
            pass
        assert caught.value.code == "unknown-learner"
        remote = api.create(f"refusing-{kind}", **DENSE)
        replies: list[Any] = []
        with pytest.raises(RequestRefused) as caught, remote.stream() as stream:
            replies += [stream.update(X, labels) for labels in (np.where(Y, 7, 0), Y)]
        assert (caught.value.code, caught.value.problems[0].pointer) == ("invalid", f"/labels/{int(np.argmax(Y))}")
        assert replies[1].result().applied == N


def test_unanswered_requests_of_a_broken_stream_can_be_repeated_by_id(kind: str, tmp_path: Path) -> None:
    process = Process(f"sqlite:///{tmp_path / 'log.db'}", tmp_path / "server.log")

    def learn_on(remote: Any) -> None:
        with remote.stream(window=4) as stream:
            for i in range(N):
                stream.update(X[i : i + 1], Y[i : i + 1], ids=IDS[i : i + 1])
                if i == N // 2:
                    process.kill()

    with process, client(kind, process.url) as api:
        remote = api.create("a", **DENSE)
        with pytest.raises(StreamBroken) as caught:
            learn_on(remote)
        process.start()
        unanswered = caught.value.unanswered
        first = unanswered[0].seq
        assert first > N // 2 - 4
        assert [item.ids for item in unanswered] == [[IDS[item.seq]] for item in unanswered]
        again = remote.update(X[first:], Y[first:], ids=IDS[first:])
        assert again.applied + again.duplicate == N - first
        assert remote.metrics()["events"] == N
        clean = local()
        clean.learn(X, Y, ids=IDS)
        np.testing.assert_array_equal(remote.predict(X).scores, clean.score(X))
