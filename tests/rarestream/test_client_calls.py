"""The client without a service: retries, calls in parts, and the meaning of answers and errors."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest

from rarestream import (
    AsyncClient,
    Client,
    ClientError,
    EventBatch,
    InvalidValue,
    OutcomeUnknown,
    RequestBounds,
    RequestRefused,
    ServiceUnreachable,
)
from rarestream.client.client_calls import ClientCalls
from rarestream.client.exchange import Answer, ApiRequest, ApiResponse, Call, Failure, Retries, RetryPause
from rarestream.client.service_address import ServiceAddress
from tests.harness.clients import KINDS, client

X = np.arange(6.0).reshape(3, 2)
Y = [0, 1, 0]
IDS = ["a", "b", "c"]
STATUSES = ["applied", "duplicate", "relabelled", "unknown", "expired"]
NOT_SENT, CUT = Failure(False, "refused"), Failure(True, "cut")


def array(values: Any, dtype: str) -> dict[str, Any]:
    column = np.asarray(values, dtype)
    return {"dtype": dtype, "shape": column.shape, "data": column.tobytes()}


def learnt(n: int, position: int = 1) -> ApiResponse:
    """Return the reply to n learnt events."""
    body = {
        **{name: n if name == "applied" else 0 for name in STATUSES},
        "position": position,
        "class_counts": {"negative": n, "positive": 0},
        "statuses": STATUSES,
        "status": array([0] * n, "int8"),
        "scores": array(np.arange(n), "float64"),
        "probabilities": array([0.5] * n, "float64"),
        "thresholds": array([0.5] * n, "float64"),
        "decisions": array([1] * n, "int8"),
    }
    return ApiResponse(200, {}, msgspec.msgpack.encode(body))


def refusal(status: int, code: str = "some", **headers: str) -> ApiResponse:
    body = {"code": code, "detail": "no", "errors": [{"pointer": "/labels/1", "detail": "is 7"}], "request_id": "r1"}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return ApiResponse(status, named, msgspec.json.encode(body))


class Time:
    """A clock that moves only by waiting."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def carried_out(call: Call[Any], clock: Time, answers: Iterable[Answer]) -> tuple[Any, list[ApiRequest], list[float]]:
    """Run a call with these answers; return its result or error, its requests and its pauses."""
    replies, requests, pauses = iter(answers), [], []
    answer: Answer = None
    while True:
        try:
            step = call.send(answer)
        except StopIteration as end:
            return end.value, requests, pauses
        except ClientError as error:
            return error, requests, pauses
        if isinstance(step, RetryPause):
            clock.now += step.seconds
            pauses.append(step.seconds)
            answer = None
        else:
            requests.append(step)
            answer = next(replies)


def updating(answers: Iterable[Answer], *, jitter: float = 1.0, patience: float = 60.0, **columns: Any) -> Any:
    clock = Time()
    calls = ClientCalls(Retries(patience, clock=clock, jitter=lambda: jitter), RequestBounds())
    batch = EventBatch(X, Y, columns.get("ids"))
    return carried_out(calls.update("a", batch, columns.get("source")), clock, answers)


# Retries


@pytest.mark.parametrize("columns", [{}, {"ids": IDS}, {"ids": ["a", None, "c"]}, {"source": ("file", 7)}])
@pytest.mark.parametrize("failure", [NOT_SENT, refusal(429)])
def test_calls_that_were_certainly_not_applied_are_retried(failure: Answer, columns: dict[str, Any]) -> None:
    reply, requests, pauses = updating([failure, failure, learnt(3)], **columns)
    assert (reply.applied, reply.repeats) == (3, 2)
    assert len(set(requests)) == 1  # the very same request
    assert len(pauses) == 2


@pytest.mark.parametrize("columns", [{"ids": IDS}, {"ids": np.arange(3)}, {"ids": "auto"}, {"source": ("file", 7)}])
@pytest.mark.parametrize("failure", [CUT, refusal(502), refusal(503), refusal(504)])
def test_calls_with_unknown_outcome_are_retried_if_repeats_are_detected(failure: Answer, columns: Any) -> None:
    reply, requests, _ = updating([failure, learnt(3)], **columns)
    assert (reply.applied, reply.repeats) == (3, 1)
    assert len(requests) == 2
    assert len(set(requests)) == 1  # with the same ids, above all


@pytest.mark.parametrize("columns", [{}, {"ids": ["a", None, "c"]}])
@pytest.mark.parametrize("failure", [CUT, refusal(502), refusal(503), refusal(504)])
def test_calls_with_unknown_outcome_are_not_retried_without_ids(failure: Answer, columns: Any) -> None:
    error, requests, pauses = updating([failure], **columns)
    assert isinstance(error, OutcomeUnknown)
    assert (len(requests), pauses, error.done) == (1, [], 0)


@pytest.mark.parametrize("status", [301, 400, 404, 409, 413, 415, 422])
def test_a_refusal_is_final(status: int) -> None:
    error, requests, _ = updating([refusal(status, "invalid")], ids=IDS)
    assert type(error) is RequestRefused
    assert (error.status, error.code, error.detail, error.request_id) == (status, "invalid", "no", "r1")
    assert error.problems == (InvalidValue("/labels/1", "is 7"),)
    assert str(error) == "no\n  /labels/1: is 7"
    assert len(requests) == 1


def test_an_internal_error_is_final_with_unknown_outcome() -> None:
    error, requests, _ = updating([refusal(500)], ids=IDS)
    assert (type(error), len(requests)) == (OutcomeUnknown, 1)


def test_an_abandoned_call_returns_its_generated_ids() -> None:
    error, requests, _ = updating([CUT], ids="auto", patience=0)
    body = msgspec.msgpack.decode(requests[0].body)
    assert isinstance(error, OutcomeUnknown)
    assert error.ids == body["ids"]
    assert len(set(error.ids)) == 3


# When


def test_pauses_double_up_to_a_limit_until_patience_runs_out() -> None:
    error, _, pauses = updating([NOT_SENT] * 100)
    assert isinstance(error, ServiceUnreachable)
    assert pauses == [0.25, 0.5, 1.0, 2.0, 4.0] + [8.0] * 6
    assert updating([NOT_SENT] * 3 + [learnt(3)], jitter=0.5)[2] == [0.125, 0.25, 0.5]


def test_retry_after_is_the_minimum_pause() -> None:
    answers = [refusal(429, retry_after="3"), refusal(503, retry_after="1"), learnt(3)]
    assert updating(answers, ids=IDS)[2] == [3.25, 1.5]
    error, _, pauses = updating([refusal(429, retry_after="61")])
    assert (error.retry_after, pauses) == (61.0, [])
    assert updating([refusal(429, retry_after="Fri, 13 Nov 2026 08:00:00 GMT"), learnt(3)])[2] == [0.25]


@pytest.mark.parametrize("jitter", [0.0, 0.5])
def test_without_patience_every_request_is_sent_once(jitter: float) -> None:
    assert len(updating([refusal(429)], patience=0, jitter=jitter)[1]) == 1


def test_the_default_jitter_is_within_its_limit() -> None:
    retries = Retries(10)
    assert all(0 <= retries.jitter() < 1 for _ in range(100))


# Other calls


def calling(make: Callable[[ClientCalls], Call[Any]], *answers: Answer) -> tuple[Any, list[ApiRequest]]:
    clock = Time()
    result, requests, _ = carried_out(
        make(ClientCalls(Retries(60.0, clock=clock), RequestBounds(events=2))), clock, answers
    )
    return result, requests


DOCUMENT = ApiResponse(200, {}, b'{"name":"a"}')


@pytest.mark.parametrize(
    "make",
    [
        lambda calls: calls.about("a", "metrics"),
        lambda calls: calls.change("a", {}),
        lambda calls: calls.snapshot("a"),
    ],
)
def test_idempotent_calls_are_retried(make: Callable[[ClientCalls], Call[Any]]) -> None:
    result, requests = calling(make, CUT, refusal(503), DOCUMENT)
    assert (result, len(requests)) == ({"name": "a"}, 3)


def test_a_delete_with_a_lost_reply_finds_nothing_left() -> None:
    assert calling(lambda calls: calls.delete("a"), CUT, refusal(404, "unknown-learner"))[0] is None
    assert calling(lambda calls: calls.delete("a"), refusal(503), refusal(429), refusal(404))[0] is None


@pytest.mark.parametrize("before", [[], [refusal(429)], [NOT_SENT], [NOT_SENT, refusal(429)]])
def test_a_delete_of_a_missing_learner_is_refused(before: list[Answer]) -> None:
    error, requests = calling(lambda calls: calls.delete("a"), *before, refusal(404, "unknown-learner"))
    assert (type(error), error.code, len(requests)) == (RequestRefused, "unknown-learner", len(before) + 1)


def test_names_are_percent_encoded() -> None:
    assert calling(lambda calls: calls.about("a b/c"), DOCUMENT)[1][0].path == "learners/a%20b%2Fc"


@pytest.mark.parametrize("body", [b"<html>", b"", b"[]", msgspec.msgpack.encode({"position": 1})])
def test_replies_of_other_servers_are_reported(body: bytes) -> None:
    error, _ = calling(lambda calls: calls.about("a"), ApiResponse(200, {}, body))
    assert isinstance(error, OutcomeUnknown)
    assert isinstance(updating([ApiResponse(200, {}, body)], ids=IDS)[0], OutcomeUnknown)
    error = updating([ApiResponse(404, {}, body)])[0]
    assert (type(error), error.code) == (RequestRefused, None)
    assert "404" in str(error)


COUNTED: list[tuple[str, Any, str]] = [
    ("status", array([0], "int8"), r"\b1\b.*\b3\b"),
    ("status", array([0] * 4, "int8"), r"\b4\b.*\b3\b"),
    ("status", array([0, -1, 0], "int8"), r"-1\b.*\b0\b.*\b4$"),
    ("status", array([0, 5, 0], "int8"), r"\b5\b"),
    ("scores", array([], "float64"), r"\b0\b.*\b3\b"),
    ("thresholds", array([0.5] * 2, "float64"), r"\b2\b.*\b3\b"),
    ("ranks", array([1] * 4, "int8"), r"\b4\b.*\b3\b"),
]


@pytest.mark.parametrize(("name", "column", "message"), COUNTED)
def test_a_reply_has_an_entry_for_each_event(name: str, column: Any, message: str) -> None:
    body = msgspec.msgpack.decode(learnt(3).body) | {name: column}
    error = updating([ApiResponse(200, {}, msgspec.msgpack.encode(body))])[0]
    assert type(error) is OutcomeUnknown
    assert re.search(message, str(error))


@pytest.mark.parametrize("name", ["scores", "labels", "explanations"])
def test_a_prediction_has_an_entry_for_each_event(name: str) -> None:
    explanation = {"intercept": 0.0, "features": [], "rest": 0.0}
    body = {"position": 1, "ready": True, "remembered": 0, "stale_seconds": 0.0, "scores": array([0.0] * 3, "float64")}
    body |= {"labels": array([1] * 3, "int8"), "explanations": [explanation] * 3}
    predict = ClientCalls(Retries(0.0), RequestBounds()).predict
    response = ApiResponse(200, {}, msgspec.msgpack.encode(body))
    assert carried_out(predict("a", X, None, None, 1, None), Time(), [response])[0].labels.tolist() == [1, 1, 1]
    few = {"scores": array([0.0], "float64"), "labels": array([1] * 4, "int8"), "explanations": [explanation]}[name]
    answer = ApiResponse(200, {}, msgspec.msgpack.encode({**body, name: few}))
    error = carried_out(predict("a", X, None, None, 1, None), Time(), [answer])[0]
    assert type(error) is OutcomeUnknown
    assert re.search(r"\b3\b", str(error))


def test_a_call_in_parts_reports_its_progress() -> None:
    error, requests = calling(lambda calls: calls.update("a", EventBatch(X, Y, IDS), None), learnt(2), refusal(422))
    assert (type(error), error.done, error.ids, len(requests)) == (RequestRefused, 2, IDS, 2)


def test_replies_to_parts_are_merged() -> None:
    reply, requests = calling(
        lambda calls: calls.update("a", EventBatch(X, Y, IDS), ("s", 5)), learnt(2), CUT, learnt(1, 9)
    )
    assert (reply.applied, reply.position, reply.repeats, reply.ids) == (3, 9, 1, IDS)
    assert reply.scores.tolist() == [0.0, 1.0, 0.0]
    assert reply.status.tolist() == ["applied"] * 3
    assert reply.decisions.tolist() == [1, 1, 1]
    assert reply.ranks is None
    assert [msgspec.msgpack.decode(item.body)["source"]["offset"] for item in requests] == [5, 7, 7]


def test_long_problem_lists_are_shortened() -> None:
    problems = [{"pointer": f"/labels/{i}", "detail": "no"} for i in range(100)]
    error = updating([ApiResponse(422, {}, msgspec.json.encode({"detail": "bad", "errors": problems}))])[0]
    assert str(error).splitlines()[-2:] == ["  /labels/9: no", "  and 90 more"]
    assert len(error.problems) == 100


# Failures of httpx in both clients


def call_through(kind: str, answer: Callable[[httpx.Request], httpx.Response]) -> Any:
    """Send an update without ids and without patience through a transport of httpx."""
    with client(kind, "http://service/", patience=0, transport=httpx.MockTransport(answer)) as api:
        return api.learner("a").update(X, Y)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (httpx.ConnectError("refused"), ServiceUnreachable),
        (httpx.ConnectTimeout("slow"), ServiceUnreachable),
        (httpx.PoolTimeout(""), ServiceUnreachable),
        (httpx.ReadTimeout("slow"), OutcomeUnknown),
        (httpx.WriteTimeout("slow"), OutcomeUnknown),
        (httpx.ReadError("reset"), OutcomeUnknown),
        (httpx.WriteError("pipe"), OutcomeUnknown),
        (httpx.RemoteProtocolError("cut"), OutcomeUnknown),
        (httpx.DecodingError("no gzip"), OutcomeUnknown),
    ],
)
def test_errors_tell_whether_a_request_was_sent(kind: str, error: Exception, expected: type[ClientError]) -> None:
    def fail(_: httpx.Request) -> httpx.Response:
        raise error

    with pytest.raises(expected, match=type(error).__name__):
        call_through(kind, fail)


@pytest.mark.parametrize("kind", KINDS)
def test_both_clients_retry_the_same_way(kind: str) -> None:
    bodies: list[bytes] = []

    def answer(request: httpx.Request) -> httpx.Response:
        bodies.append(request.content)
        if len(bodies) == 2:
            raise httpx.ReadError("cut")
        status = [refusal(429), None, refusal(503, retry_after="0"), learnt(3)][len(bodies) - 1]
        assert status is not None
        return httpx.Response(status.status, headers=status.headers, content=status.body)

    with client(kind, "http://service", transport=httpx.MockTransport(answer)) as api:
        reply = api.learner("a").update(X, Y, ids="auto")
        assert (reply.applied, reply.repeats, len(set(bodies))) == (3, 3, 1)
        bodies.clear()
        with pytest.raises(OutcomeUnknown, match="ReadError"):
            api.learner("a").update(X, Y)
        assert len(bodies) == 2  # after the 429 it was sent again, after the broken connection it was not


@pytest.mark.parametrize("kind", KINDS)
def test_requests_on_the_wire(kind: str) -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, content=learnt(3).body)

    assert call_through(kind, answer).applied == 3
    assert str(seen[0].url) == "http://service/v1/learners/a/update"
    assert seen[0].method == "POST"
    assert seen[0].headers["content-type"] == seen[0].headers["accept"] == "application/msgpack"
    assert seen[0].headers["user-agent"].startswith("rarestream-python/")


@pytest.mark.parametrize(
    ("url", "trusting", "stream"),
    [
        ("http://127.0.0.1:8000/", False, "ws://127.0.0.1:8000/v1/learners/a%2Fb/ws"),
        ("http://[::1]:8000", False, "ws://[::1]:8000/v1/learners/a%2Fb/ws"),
        ("HTTPS://Example.org/fraud/", True, "wss://example.org/fraud/v1/learners/a%2Fb/ws"),
    ],
)
def test_environment_proxies_are_not_used_for_loopback(url: str, trusting: bool, stream: str) -> None:
    for allowed in (True, False):
        connection = ServiceAddress(url, 120.0, {"Authorization": "Bearer x"}, None, allowed)
        assert connection.http["trust_env"] == (trusting and allowed)
        address, options = connection.stream("a/b")
        assert address == stream
        assert options["proxy"] == (True if trusting and allowed else None)
        assert options["additional_headers"] == {"Authorization": "Bearer x"}


def test_a_foreign_package_named_learners_is_reported(tmp_path: Path) -> None:
    folder = tmp_path / "learners"
    folder.mkdir()
    (folder / "__init__.py").write_text("create = restore = None\n")
    code = "import sys; sys.path.insert(0, sys.argv[1]); import rarestream; rarestream.create"
    result = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1].startswith(f"rarestream.LearnersShadowed: {folder}/__init__.py ")


def test_the_learners_package_is_imported_lazily() -> None:
    code = (
        "import sys, rarestream; print('learners' in sys.modules); rarestream.create; print('learners' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "False\nTrue\n"


def test_the_client_imports_neither_the_service_nor_the_library() -> None:
    names = "{'learners', 'numba', 'fastapi', 'uvicorn', 'redis', 'scipy', 'service', 'numpy', 'websockets'}"
    code = (
        f"import sys, rarestream; rarestream.Client, rarestream.AsyncClient; print(sorted({names} & set(sys.modules)))"
    )
    status = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert status.stdout == "[]\n"


@pytest.mark.parametrize("url", ["", "ftp://x", "http://", "http://x:port"])
def test_an_invalid_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="http"):
        Client(url)
    with pytest.raises(ValueError, match="http"):
        AsyncClient(url)


@pytest.mark.parametrize("port", [0, 65536, 83637, -1])
def test_an_invalid_port_is_refused(port: int) -> None:
    for kind in (Client, AsyncClient):
        with pytest.raises(ValueError, match=str(port)):
            kind(f"http://127.0.0.1:{port}")
