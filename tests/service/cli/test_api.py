"""The HTTP client: what it tries again and how long, and what it says of an error."""

from __future__ import annotations

import re
import threading

import httpx
import pytest

from service.cli.api import Api, ApiError, Stopped
from service.exits import ExitStatus, WrongUsage

REPLY = {"applied": 2, "duplicate": 0, "position": 7, "class_counts": {"negative": 1, "positive": 1}, "results": []}


class Time:
    """A clock that moves only by waiting."""

    def __init__(self) -> None:
        self.now = 100.0
        self.waits: list[float] = []

    def clock(self) -> float:
        return self.now

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        self.now += seconds
        return False


@pytest.fixture
def time() -> Time:
    return Time()


def api(time: Time, *answers: httpx.Response | Exception, patience: float = 60.0) -> Api:
    """A client of a service that gives these answers, the last of them for ever."""
    left = list(answers)

    def answer(request: httpx.Request) -> httpx.Response:
        found = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(found, Exception):
            raise found
        return httpx.Response(found.status_code, headers=found.headers, content=found.content, request=request)

    return Api(
        "http://service/",
        patience=patience,
        wait=time.wait,
        clock=time.clock,
        transport=httpx.MockTransport(answer),
    )


def test_an_update_goes_out_as_it_is() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json=REPLY)

    with Api("http://service/", transport=httpx.MockTransport(answer)) as client:
        reply = client.update("a b/c", b'{"events":[]}')
    assert (reply.applied, reply.duplicate, reply.position) == (2, 0, 7)
    assert seen[0].url.raw_path == b"/v1/learners/a%20b%2Fc/update"
    assert seen[0].content == b'{"events":[]}'
    assert seen[0].headers["content-type"] == "application/json"


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_what_passes_is_tried_again_with_growing_pauses(time: Time, status: int) -> None:
    busy = httpx.Response(status)
    with api(time, busy, busy, busy, httpx.Response(200, json=REPLY)) as client:
        assert client.update("a", b"").position == 7
    assert time.waits == [0.25, 0.5, 1.0]


def test_pauses_stay_below_a_bound(time: Time) -> None:
    with (
        api(time, httpx.ConnectError("refused")) as client,
        pytest.raises(ApiError, match="cannot reach http://service"),
    ):
        client.update("a", b"")
    assert time.waits == [0.25, 0.5, 1.0, 2.0, 4.0] + [8.0] * 6
    assert time.now - 100.0 <= 60.0


@pytest.mark.parametrize(
    "error", [httpx.ConnectError("refused"), httpx.ReadTimeout("slow"), httpx.RemoteProtocolError("cut")]
)
def test_a_failed_connection_is_tried_again(time: Time, error: Exception) -> None:
    with api(time, error, httpx.Response(200, json=REPLY)) as client:
        assert client.update("a", b"").position == 7


def test_retry_after_is_honoured(time: Time) -> None:
    busy = httpx.Response(429, headers={"Retry-After": "3"})
    with api(time, busy, busy, httpx.Response(200, json=REPLY)) as client:
        client.update("a", b"")
    assert time.waits == [3.0, 3.0]


def test_retry_after_beyond_the_patience_fails_at_once(time: Time) -> None:
    busy = httpx.Response(503, headers={"Retry-After": "61"}, json={"detail": "the store is away", "errors": []})
    with api(time, busy) as client, pytest.raises(ApiError, match="the store is away"):
        client.update("a", b"")
    assert time.waits == []


def test_patience_begins_anew_with_each_call(time: Time) -> None:
    fine, away = httpx.Response(200, json=REPLY), httpx.Response(503, headers={"Retry-After": "40"})
    with api(time, away, fine, away, fine) as client:
        client.update("a", b"")
        client.update("a", b"")
    assert time.waits == [40.0, 40.0]


def test_without_patience_nothing_is_tried_again(time: Time) -> None:
    with api(time, httpx.ConnectError("refused"), patience=0) as client, pytest.raises(ApiError, match="refused"):
        client.learner("a")
    assert time.waits == []


def test_a_wait_can_be_ended_from_outside(time: Time) -> None:
    client = Api(
        "http://service",
        patience=60,
        wait=lambda _: True,
        clock=time.clock,
        transport=httpx.MockTransport(lambda _: httpx.Response(503)),
    )
    with client, pytest.raises(Stopped):
        client.update("a", b"")


def test_each_new_attempt_is_told(time: Time) -> None:
    notes: list[tuple[str, str]] = []
    answers = iter([httpx.Response(429, json={"detail": "too much"}), httpx.Response(200, json=REPLY)])
    transport = httpx.MockTransport(lambda _: next(answers))
    with Api(
        "http://s",
        patience=9,
        wait=time.wait,
        clock=time.clock,
        notice=lambda why, what: notes.append((why, what)),
        transport=transport,
    ) as client:
        client.update("a", b"")
    assert notes == [("too much", "trying again in 0.25 s, for 9 s more")]


@pytest.mark.parametrize("status", [400, 404, 409, 413, 415, 422, 500])
def test_a_refusal_is_final_and_says_why(time: Time, status: int) -> None:
    problem = {
        "type": "urn:x",
        "code": "unknown-learner",
        "status": status,
        "detail": "2 values are refused",
        "errors": [{"pointer": "/params/C", "detail": "is -1"}, {"pointer": "/features", "detail": "is missing"}],
    }
    with api(time, httpx.Response(status, json=problem)) as client, pytest.raises(ApiError) as caught:
        client.create("a", {})
    assert str(caught.value) == "2 values are refused\n  /params/C: is -1\n  /features: is missing"
    assert (caught.value.status, caught.value.code) == (status, "unknown-learner")
    assert caught.value.pointers == ("/params/C", "/features")
    assert time.waits == []


def test_many_problems_are_cut_short(time: Time) -> None:
    problem = {"detail": "refused", "errors": [{"pointer": f"/events/{i}", "detail": "no"} for i in range(100)]}
    with api(time, httpx.Response(422, json=problem)) as client, pytest.raises(ApiError) as caught:
        client.create("a", {})
    assert str(caught.value).splitlines()[-2:] == ["  /events/9: no", "  and 90 more"]


def test_answers_that_are_not_ours(time: Time) -> None:
    with (
        api(time, httpx.Response(404, text="<html>")) as client,
        pytest.raises(ApiError, match="answered 404 Not Found"),
    ):
        client.learner("a")
    with (
        api(time, httpx.Response(200, text="<html>")) as client,
        pytest.raises(ApiError, match="not answer like rarestr"),
    ):
        client.learner("a")


NOT_OURS = "no rarestream service answers at http://service: http://service/v1/learners/a answered 404 Not Found"


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(404, text="<html>"),
        httpx.Response(404, json={"detail": "Not Found"}),  # another service
        httpx.Response(404, json={"detail": "Not Found", "code": "not-found", "errors": []}),  # ours, at another path
    ],
)
def test_a_url_at_which_there_is_no_service(time: Time, answer: httpx.Response) -> None:
    with api(time, answer) as client, pytest.raises(ApiError) as caught:
        client.learner("a")
    assert str(caught.value) == NOT_OURS
    assert (caught.value.status, caught.value.code) == (404, None)


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://x", "http://", "http://x:port"])
def test_what_is_not_a_url(url: str) -> None:
    with pytest.raises(WrongUsage, match="is not"):
        Api(url)


@pytest.mark.parametrize("port", [0, 65536, 83637, -1])
def test_a_port_that_no_address_has(port: int) -> None:
    with pytest.raises(WrongUsage) as caught:
        Api(f"http://user:s3cret@127.0.0.1:{port}/")
    said = f"--url or RARESTREAM_URL: http://127.0.0.1:{port} has the port {port}; expected 1 to 65535"
    assert str(caught.value) == said
    Api("http://127.0.0.1:65535").close()


def test_a_password_in_the_url_is_not_shown() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.headers["authorization"].startswith("Basic ")
        return httpx.Response(200 if request.method == "GET" else 404, text="hello")

    with Api("http://user:s3cret@service:81/path/", transport=httpx.MockTransport(answer)) as client:
        assert client.url == "http://service:81/path"
        for call in (lambda: client.learner("a"), lambda: client.delete("a")):
            with pytest.raises(ApiError) as error:
                call()
            assert "s3cret" not in str(error.value)
            assert "http://service:81/path/v1/learners/a" in str(error.value)


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (httpx.ConnectError("refused"), ExitStatus.UNREACHABLE),
        (httpx.Response(404, text="nothing here"), ExitStatus.UNREACHABLE),
        (httpx.Response(404, json={"detail": "no", "code": "unknown-learner"}), ExitStatus.NOT_FOUND),
        (httpx.Response(409, json={"detail": "no", "code": "name-taken"}), ExitStatus.REFUSED),
        (httpx.Response(429, json={"detail": "no", "code": "queue-full"}), ExitStatus.REFUSED),
        (httpx.Response(500, json={"detail": "no", "code": "damaged"}), ExitStatus.FAILED),
        (httpx.Response(503, json={"detail": "no", "code": "store-unavailable"}), ExitStatus.FAILED),
    ],
)
def test_what_a_command_ends_with(time: Time, answer: httpx.Response | Exception, status: ExitStatus) -> None:
    with api(time, answer, patience=0.0) as client, pytest.raises(ApiError) as error:
        client.learner("a")
    assert error.value.exit_status == status


def test_a_first_answer_that_takes_long_is_told_and_a_quick_one_is_not(
    time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.cli.api._SLOW", 0.01)
    told = threading.Event()
    asked: list[tuple[str, bool]] = []  # method, and whether it was told while there was no answer

    def answer(request: httpx.Request) -> httpx.Response:
        first = request.method == "POST" and not asked
        asked.append((request.method, told.wait(60 if first else 0.1)))
        told.clear()
        return httpx.Response(200, json=REPLY)

    transport = httpx.MockTransport(answer)
    with Api("http://s", wait=time.wait, clock=time.clock, slow=told.set, transport=transport) as client:
        client.update("a", b"")
        client.update("a", b"")
        client.learners()
    assert asked == [("POST", True), ("POST", False), ("GET", False)]


def test_an_end_after_attempts_says_for_how_long_it_was_tried(time: Time) -> None:
    away = httpx.Response(503, json={"detail": "away"})
    with api(time, away, patience=20) as client, pytest.raises(ApiError) as caught:
        client.update("a", b"")
    assert re.fullmatch(r"away\nGiven up after 1\d s of trying", str(caught.value))
