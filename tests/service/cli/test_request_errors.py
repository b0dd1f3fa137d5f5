"""Failed requests of commands: exit status, retries, and the notice of a slow first response."""

from __future__ import annotations

import re
import threading
from typing import Any

import httpx
import pytest

from rarestream import Client, ClientError, InvalidValue, OutcomeUnknown, RequestRefused, ServiceUnreachable
from service.cli import options_service
from service.cli.options_service import open_client
from service.cli.request_errors import RequestFailed, exit_status_of
from service.exits import ExitStatus, WrongUsage
from service.pacing import WaitInterrupted, interruptible_sleep

REPLY = {"applied": 2, "duplicate": 0, "position": 7, "class_counts": {"negative": 1, "positive": 1}, "results": []}


class Time:
    """A clock that moves only by waiting."""

    def __init__(self) -> None:
        self.now = 100.0

    def clock(self) -> float:
        return self.now

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        return False


def error_of(answer: httpx.Response | Exception, *, repeatable: bool = True) -> ClientError:
    """Return the error of an update with this response."""

    def reply(_: httpx.Request) -> httpx.Response:
        if isinstance(answer, Exception):
            raise answer
        return answer

    with (
        Client("http://user:s3cret@service:81/path/", patience=0, transport=httpx.MockTransport(reply)) as client,
        pytest.raises(ClientError) as caught,
    ):
        client.learner("a b/c").update_json(b"{}", repeatable=repeatable)
    assert "s3cret" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("answer", "repeatable", "kind", "status"),
    [
        (httpx.ConnectError("refused"), True, ServiceUnreachable, ExitStatus.UNREACHABLE),
        (httpx.ReadError("cut"), True, OutcomeUnknown, ExitStatus.UNREACHABLE),
        (httpx.ReadError("cut"), False, OutcomeUnknown, ExitStatus.FAILED),
        (httpx.Response(200, text="<html>"), True, OutcomeUnknown, ExitStatus.UNREACHABLE),
        (httpx.Response(404, text="nothing here"), True, RequestRefused, ExitStatus.UNREACHABLE),
        (
            httpx.Response(404, json={"detail": "Not Found", "code": "not-found", "errors": []}),
            True,
            RequestRefused,
            ExitStatus.UNREACHABLE,
        ),
        (
            httpx.Response(404, json={"detail": "no", "code": "unknown-learner"}),
            True,
            RequestRefused,
            ExitStatus.NOT_FOUND,
        ),
        (httpx.Response(409, json={"detail": "no", "code": "name-taken"}), True, RequestRefused, ExitStatus.REFUSED),
        (httpx.Response(429, json={"detail": "no", "code": "queue-full"}), True, RequestRefused, ExitStatus.REFUSED),
        (httpx.Response(500, json={"detail": "no", "code": "damaged"}), True, OutcomeUnknown, ExitStatus.FAILED),
        (
            httpx.Response(503, json={"detail": "no", "code": "store-unavailable"}),
            False,
            OutcomeUnknown,
            ExitStatus.FAILED,
        ),
    ],
)
def test_the_exit_status_of_a_failed_request(
    answer: httpx.Response | Exception, repeatable: bool, kind: type[ClientError], status: ExitStatus
) -> None:
    error = error_of(answer, repeatable=repeatable)
    assert type(error) is kind
    assert exit_status_of(error) == RequestFailed(error).exit_status == status


def test_a_failure_has_a_line_for_each_problem_and_hints() -> None:
    problems = [InvalidValue(f"/events/{i}", "no") for i in range(100)]
    lines = str(RequestFailed(RequestRefused("refused", status=422, problems=problems), ["Try it"])).splitlines()
    assert (lines[0], lines[1]) == ("refused", "  /events/0: no")
    assert lines[-3:] == ["  /events/9: no", "  and 90 more", "Try it"]


def test_a_failure_says_how_long_the_client_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("rarestream.client.exchange.time.monotonic", lambda: now[0])
    away = httpx.MockTransport(lambda _: httpx.Response(503, json={"detail": "away"}, headers={"Retry-After": "5"}))

    def sleep(seconds: float) -> None:
        now[0] += seconds

    with (
        Client("http://s", patience=12, sleep=sleep, transport=away) as client,
        pytest.raises(OutcomeUnknown) as caught,
    ):
        client.learner("a").describe()
    assert re.match(r"away\n.*\d s\b", str(RequestFailed(caught.value)))


def test_a_wait_can_be_interrupted() -> None:
    busy = httpx.MockTransport(lambda _: httpx.Response(503))
    with (
        Client("http://s", sleep=interruptible_sleep(lambda _: True), transport=busy) as client,
        pytest.raises(WaitInterrupted),
    ):
        client.learners()


@pytest.mark.parametrize("url", ["localhost:port", "ftp://x", "http://", "http://x:port", "http://u:s3cret@a:65536/"])
def test_an_unusable_url_is_named_by_its_option(url: str) -> None:
    with pytest.raises(WrongUsage, match=r"^--url") as caught:
        open_client(url, None)
    assert "s3cret" not in str(caught.value)


def test_an_unusable_key_is_named_by_its_option() -> None:
    with pytest.raises(WrongUsage, match=r"^--key"):
        open_client("http://a", "a b")


def test_a_slow_first_answer_is_reported_and_a_quick_one_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options_service, "_SLOW", 0.01)
    reported = threading.Event()
    requests: list[tuple[str, bool]] = []  # method, and whether it was reported before the answer

    def answer(request: httpx.Request) -> httpx.Response:
        first = request.method == "POST" and not requests
        requests.append((request.method, reported.wait(60 if first else 0.1)))
        reported.clear()
        return httpx.Response(200, json=REPLY)

    trace: Any = options_service._SlowRequests(reported.set)
    with Client("http://s", trace=trace, transport=httpx.MockTransport(answer)) as client:
        client.learner("a").update_json(b"", repeatable=True)
        client.learner("a").update_json(b"", repeatable=True)
        client.learners()
    assert requests == [("POST", True), ("POST", False), ("GET", False)]
