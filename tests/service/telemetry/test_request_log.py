"""Requests as operators see them: a line for each in the log, with nothing in it that it may not hold."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.api.app import Application, create_app
from service.settings import Settings
from service.telemetry import request_log
from service.telemetry.log_writer import LineWriter, configure, current_request
from service.telemetry.request_log import Access
from tests.harness.apps import DENSE, events
from tests.harness.keyring import Keyring
from tests.harness.raw import request, served
from tests.harness.websocket import websocket
from tests.service.api.fast_path.test_asgi import ask, scope_of

SECRET = "4111-1111"  # stands in what clients send, where no line may have it
URL = "/v1/learners/fraud"


class Sink:
    """What the lines are written to."""

    def __init__(self) -> None:
        self.stream = io.BytesIO()
        self.writer = LineWriter(self.stream, "json")

    def lines(self) -> list[dict[str, Any]]:
        """All that was put, in order; there will be no more."""
        self.writer.close()
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]


@asynccontextmanager
async def logged(**settings: Any) -> AsyncIterator[tuple[Application, httpx.AsyncClient, Sink]]:
    """Return an application that logs into a sink, with one learner."""
    sink = Sink()
    app = create_app(Settings(store="memory:", **settings), sink.writer)
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app, raise_app_exceptions=False, client=("10.1.2.3", 4567))
        async with httpx.AsyncClient(transport=transport, base_url="http://rarestream") as http:
            await http.put(URL, json=DENSE)
            yield app, http, sink


async def test_every_request_has_one_line_with_the_id_of_its_reply() -> None:
    async with logged() as (_, http, sink):
        replies = [
            await http.post(f"{URL}/update", json={"events": events(3)}),
            await http.post(f"{URL}/predict", json={"events": [{"x": [1, 2, 3]}]}),
            await http.post(f"{URL}/update", json={"events": [{"x": [SECRET], "label": 1}]}),
            await http.post(f"{URL}/predict?card={SECRET}", content=b"{}"),
            await http.get(URL),
            await http.get("/v1/learners/nobody"),
            await http.get(f"/nothing/{SECRET}?card={SECRET}"),
            await http.put("/v1/groups/g", json={"learners": ["fraud", "nobody"]}),
            await http.get(f"/static/{SECRET}"),
        ]
    lines = sink.lines()[1:]  # the first one made the learner
    assert [line["request_id"] for line in lines] == [reply.headers["x-request-id"] for reply in replies]
    assert [line["status"] for line in lines] == [reply.status_code for reply in replies]
    for line, reply in zip(lines, replies, strict=True):
        assert line["code"] == reply.json()["code"] if reply.is_error else "code" not in line
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])
        assert line["client"] == "10.1.2.3"
        assert line["logger"] == "rarestream.requests"
        assert line["level"] == ("warning" if reply.is_error else "info")
        assert line["milliseconds"] >= 0
        assert line["message"] == f"{line['method']} {line['route']} {line['status']}"
    report = [{name: line[name] for name in ("learner", "group", "events", "bytes") if name in line} for line in lines]
    sizes = [len(reply.request.content) for reply in replies]
    assert report == [
        {"learner": "fraud", "events": 3, "bytes": sizes[0]},
        {"learner": "fraud", "events": 1, "bytes": sizes[1]},
        {"learner": "fraud", "bytes": sizes[2]},
        {"learner": "fraud"},
        {"learner": "fraud"},
        {"learner": "nobody"},
        {},
        {"group": "g", "bytes": sizes[7]},
        {},
    ]
    routes = [line["route"].removeprefix("/v1/learners/{name}") for line in lines]
    assert routes == [
        "/update",
        "/predict",
        "/update",
        "/predict",
        "",
        "",
        "other",
        "/v1/groups/{name}",
        "/static/{name}",
    ]
    assert SECRET not in sink.stream.getvalue().decode()


TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


async def test_lines_have_the_trace_of_the_request() -> None:
    good = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
    body = {"events": [{"x": [1, 2, 3]}]}
    async with logged() as (app, http, sink):
        await http.get(URL, headers=good)
        await http.post(f"{URL}/predict", json=body, headers=good)
        await http.post(f"{URL}/predict", json={}, headers=good)
        async with websocket(app, f"{URL}/ws", [(b"traceparent", good["traceparent"].encode())]):
            pass
        for wrong in (
            *("", TRACE, f"ff-{TRACE}-{PARENT}-01", f"00-{'0' * 32}-{PARENT}-01", f"00-{TRACE}-{'0' * 16}-01"),
            *(f"00-{TRACE.upper()}-{PARENT}-01", f"00-{TRACE}-{PARENT}-01 forged=1"),
        ):
            await http.get(URL, headers={"traceparent": wrong})
        await http.get(URL, headers=[*good.items(), *good.items()])
    traces = [(line.get("trace_id"), line.get("parent_id")) for line in sink.lines()[1:]]
    assert traces == [(TRACE, PARENT)] * 4 + [(None, None)] * 8


def test_inline_replies_log_their_own_trace() -> None:
    sink = Sink()
    with served(sink.writer) as service:
        connection = service.connect()
        with service.over_asgi(0):
            for trace in (TRACE, TRACE[::-1], None):
                headers = {} if trace is None else {"traceparent": f"00-{trace}-{PARENT}-00"}
                assert connection.ask(request(**headers)).status == 200
    lines = [line for line in sink.lines() if line.get("route", "").endswith("/predict")]
    assert [line.get("trace_id") for line in lines] == [TRACE, TRACE[::-1], None]


async def test_the_line_of_a_refused_request_names_its_key(tmp_path: Path) -> None:
    ring = Keyring(tmp_path)
    reads = ring.make("reads", "read")
    narrow = ring.make("narrow", "admin", pattern="other-*")
    async with logged(keys=str(ring.path)) as (_, http, sink):
        for key in (reads, narrow):
            await http.put(URL, json=DENSE, headers=key)
            await http.post(f"{URL}/update", json={"events": events(1)}, headers=key)
    lines = [(line["status"], line.get("key")) for line in sink.lines()]
    first, *rest = lines
    assert first == (401, None)
    assert rest == [(403, ring.id_of("reads"))] * 2 + [(403, ring.id_of("narrow")), (404, ring.id_of("narrow"))]


async def test_lines_of_ndjson_requests_and_streams() -> None:
    async with logged() as (app, http, sink):
        body = b'{"x": [1, 2, 3]}\n' * 3
        reply = await http.post(f"{URL}/predict", content=body, headers={"content-type": "application/x-ndjson"})
        assert reply.status_code == 200
        broken = b'{"x": [1, 2, 3]}\n' * 1000 + b"{\n"
        reply = await http.post(f"{URL}/predict", content=broken, headers={"content-type": "application/x-ndjson"})
        report = json.loads(reply.text.splitlines()[-1])
        assert (reply.status_code, report["code"]) == (200, "bad-body")
        app.state.closing.set()  # so that the stream ends by itself
        assert (await http.get(f"{URL}/metrics/stream")).status_code == 200
    lines = sink.lines()
    assert [line["route"].rpartition("/")[2] for line in lines[1:]] == ["predict", "predict", "stream"]
    assert [(line["level"], line.get("bytes"), line.get("code")) for line in lines[1:3]] == [
        ("info", len(body), None),
        ("warning", report["bytes"], report["code"]),
    ]
    assert lines[2]["request_id"] == report["request_id"]


async def test_a_client_disconnect_is_not_an_error() -> None:
    async with logged() as (app, _, sink):
        assert await ask(app, scope_of(f"{URL}/update"), [b'{"events": ', None]) == (0, {}, b"")
        await ask(app, scope_of(URL, "PUT"), [b"{", None])
    lines = sink.lines()[1:]
    assert [(line["status"], line["level"]) for line in lines] == [(499, "info")] * 2


async def test_probes_and_scrapes_are_logged_at_debug_level() -> None:
    paths = ["/v1/health/live", "/v1/health/ready", "/metrics"]
    for level, expected in (("info", 0), ("debug", 3)):
        async with logged(log_level=level) as (_, http, sink):
            for path in paths:
                assert (await http.get(path)).status_code == 200
        lines = [line for line in sink.lines() if line["route"] in paths]
        assert [line["level"] for line in lines] == ["debug"] * expected


@pytest.mark.parametrize(
    ("settings", "statuses"),
    [
        ({"log_requests": "all"}, [201, 200, 200, 422, 404]),
        ({"log_requests": "errors"}, [422, 404]),
        ({"log_level": "warning"}, [422, 404]),
        ({"log_level": "error"}, []),
    ],
)
async def test_logged_requests_depend_on_the_log_level(settings: dict[str, Any], statuses: list[int]) -> None:
    async with logged(**settings) as (_, http, sink):
        await http.post(f"{URL}/predict", json={"events": [{"x": [1, 2, 3]}]})
        await http.get(URL)
        await http.post(f"{URL}/predict", content=b"{}")
        await http.get("/v1/learners/nobody")
    assert [line["status"] for line in sink.lines()] == statuses


async def test_a_websocket_has_one_line_when_it_ends() -> None:
    async with logged() as (app, _, sink):
        async with websocket(app, f"{URL}/ws") as ws:
            ws.send(*({"seq": i, "op": "predict", "events": [{"x": [1, 2, 3]}]} for i in range(3)))
            ws.send({"seq": 7, "op": "predict", "events": [{"x": [SECRET]}]})
            await ws.replies(4)
        async with websocket(app, "/v1/ws", [(b"origin", b"http://elsewhere")], greeted=False) as refused:
            await refused.closed()
        async with websocket(app, "/v1/learners/nobody/ws", greeted=False) as missing:
            assert (await missing.event())["type"] == "websocket.accept"
            await missing.closed()
    opened, other, unknown = sink.lines()[1:]
    line = {name: opened[name] for name in ("method", "route", "status", "learner", "messages", "refused")}
    assert line == {
        "method": "WEBSOCKET",
        "route": "/v1/learners/{name}/ws",
        "status": 101,
        "learner": "fraud",
        "messages": 4,
        "refused": 1,
    }
    assert (other["route"], other["status"], "learner" in other) == ("/v1/ws", 403, False)
    assert (unknown["status"], unknown["code"], unknown["level"]) == (101, "closed-4404", "warning")
    assert SECRET not in sink.stream.getvalue().decode()


@pytest.mark.usefixtures("root_logger")
@pytest.mark.parametrize(
    ("path", "hot"), [(f"{URL}/predict", True), ("/v1/groups/g", False)], ids=["a hot route", "another"]
)
async def test_an_internal_error_is_logged_with_the_id_and_without_the_request(
    path: str, hot: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with logged() as (app, _, sink):

        async def broken(*_: Any) -> Any:
            raise ValueError(f"cannot read {SECRET}") from KeyError(SECRET)

        engine = app.state.engine
        monkeypatch.setattr(engine.get("fraud").served_events, "predict", broken)
        monkeypatch.setattr(engine, "create_group", broken)
        scope = scope_of(path, "POST" if hot else "PUT")
        scope["headers"].append((b"x-request-id", b"the-one"))
        body = b'{"events": [{"x": [1, 2, 3]}]}' if hot else b'{"learners": ["fraud", "other"]}'
        stream = io.BytesIO()
        lines = configure(stream, "json", "info")  # type: ignore[arg-type]
        try:
            await ask(app, scope, [body])
        except ValueError:
            logging.getLogger("uvicorn.error").exception("Exception in ASGI application\n")
        else:
            pytest.fail("nothing was raised")
        current_request.set("")
        lines.close()
    line = sink.lines()[-1]
    assert (line["status"], line["level"], line["request_id"], line["code"]) == (500, "error", "the-one", "internal")
    (report,) = [json.loads(item) for item in stream.getvalue().splitlines()]
    assert (report["logger"], report["request_id"]) == ("uvicorn", "the-one")
    assert report["message"].startswith("Exception")
    assert "ValueError:" in report["exception"]
    assert "KeyError:" in report["exception"]
    assert "in broken" in report["exception"]
    assert SECRET not in report["exception"]


async def test_later_log_lines_of_a_learner_have_no_request_id() -> None:
    async with logged() as (app, http, _):
        await http.get(URL, headers={"x-request-id": "first"})
        actual: list[str] = []

        async def look() -> None:
            actual.append(current_request.get())

        await app.state.engine.get("fraud").mailbox.run(look)
        assert actual == [""]


# The rate


async def test_requests_beyond_the_log_rate_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(request_log, "perf_counter", lambda: now)
    sink = Sink()
    item = Access(Settings(store="memory:", log_lines_per_second=2), sink.writer)
    scope = scope_of(f"{URL}/predict")

    def path_asked(status: int = 200) -> None:
        item.count("predict", status, now, scope, "id", "fraud", 10, 1)

    report: list[str] = []
    monkeypatch.setattr(request_log.logger, "warning", lambda message, *values: report.append(message % values))
    for _ in range(5):
        path_asked()
    for _ in range(3):
        path_asked(422)  # of which as many are logged, whatever else there is
    assert item.left_out == 4 + 1  # hot requests are spread over the second: one each half of it
    now += 0.25
    path_asked()
    assert (item.left_out, report) == (6, [])
    now += 0.25
    path_asked()
    path_asked()
    assert (item.left_out, [text.split()[0] for text in report]) == (7, ["5"])
    now += 0.5
    path_asked()
    now += 0.5
    path_asked()
    assert [text.split()[0] for text in report] == ["5", "1"]  # once a second
    assert [line["status"] for line in sink.lines()] == [200, 422, 422, 200, 200, 200]
    assert sum(histogram.count for histogram in item.requests.values()) == 13


async def test_a_tenth_of_the_inline_requests_per_second_is_logged_immediately(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr(request_log, "perf_counter", lambda: now)
    sink = Sink()
    item = Access(Settings(store="memory:", log_lines_per_second=100), sink.writer)
    scope = scope_of(f"{URL}/predict")
    lines: list[int] = []  # after each request
    for count in range(1, 2001):  # of two seconds
        item.count("predict", 200, now, scope, "id", "fraud", 10, 1)
        lines.append(count - item.left_out)
        now += 0.001
    assert lines[9] == 10  # at once
    in_a_tenth = [later - earlier for earlier, later in zip(lines[10:], lines[110:], strict=False)]
    assert 9 <= min(in_a_tenth) <= max(in_a_tenth) <= 11  # then evenly
    assert 109 <= lines[999] <= 111
    assert 209 <= lines[1999] <= 211

    failed = Access(Settings(store="memory:", log_lines_per_second=100), sink.writer)
    for _ in range(150):
        failed.count("predict", 422, now, scope, "id", "fraud", 10, 1)
    assert failed.left_out in (50, 51)  # what fails has all of a second at once


async def test_invalid_names_are_not_logged() -> None:
    async with logged() as (app, http, sink):
        for path in (f"learners/card={SECRET}", f"learners/card={SECRET}/metrics", f"groups/card={SECRET}"):
            await http.get(f"/v1/{path}")
        for path in (f"learners/card={SECRET}/predict", f"groups/card={SECRET}/update"):
            await http.post(f"/v1/{path}", json={"events": [{"x": [1]}]})
        async with websocket(app, f"/v1/learners/card={SECRET}/ws", greeted=False) as refused:
            assert (await refused.event())["type"] == "websocket.accept"
            await refused.closed()
        await http.get(f"/v1/learners/{'n' * 100}")
    lines = sink.lines()
    assert len(lines) == 8
    assert [line.get("learner", line.get("group")) for line in lines[1:]] == [None] * 6 + ["n" * 100]
    assert SECRET not in sink.stream.getvalue().decode()


async def test_forged_names_and_ids_over_http_are_escaped() -> None:
    async with logged() as (_, http, sink):
        forged = "x%0a2026-01-01T00:00:00.000Z%20ERROR" + "y" * 200
        reply = await http.post(f"/v1/learners/{forged}/predict", headers={"x-request-id": 'a" b\x09c'})
        assert reply.status_code == 422
        assert reply.headers["x-request-id"] != 'a" b\x09c'  # a control character is no sane id
    line = sink.lines()[-1]
    assert "learner" not in line
