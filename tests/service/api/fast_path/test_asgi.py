"""The hot requests in front of FastAPI: as ASGI, with what the rest of the interface promises of every request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from service.api.app import Application, create_app
from service.api.fast_path.asgi import match_request
from service.settings import Settings
from tests.harness.apps import DENSE, client, events
from tests.harness.log_records import logged_data

URL = "/v1/learners/fraud"
PREDICT = json.dumps({"events": [{"x": [1, 2, 3]}]}).encode()


def scope_of(path: str, method: str = "POST", **members: Any) -> dict[str, Any]:
    headers = [(b"content-type", b"application/json")]
    return {"type": "http", "method": method, "path": path, "query_string": b"", "headers": headers, **members}


@asynccontextmanager
async def application(**settings: Any) -> AsyncIterator[Application]:
    """Return the application with one learner."""
    app = create_app(Settings(store="memory:", **settings))
    async with app.router.lifespan_context(app):
        created = json.dumps(DENSE).encode()
        assert (await ask(app, scope_of(URL, "PUT"), [created]))[0] == 201
        yield app


async def ask(app: Application, scope: dict[str, Any], parts: list[bytes | None]) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of a reply; status 0: none. The body comes in parts; None: the client goes away."""
    left = list(parts)
    messages: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if not left:
            await asyncio.Event().wait()
        part = left.pop(0)
        if part is None:
            return {"type": "http.disconnect"}
        if len(parts) > 1:
            await asyncio.sleep(0)
        return {"type": "http.request", "body": part, "more_body": bool(left)}

    async def send(message: Any) -> None:
        messages.append(message)

    await app(scope, receive, send)
    if not messages:
        return 0, {}, b""
    headers = {name.decode(): value.decode() for name, value in messages[0]["headers"]}
    return messages[0]["status"], headers, b"".join(message.get("body", b"") for message in messages[1:])


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        (scope_of(f"{URL}/predict"), ("fraud", "predict")),
        (scope_of(f"{URL}/update"), ("fraud", "update")),
        (scope_of(f"{URL}/labels"), ("fraud", "labels")),
        (scope_of(f"/behind/a/proxy{URL}/labels", root_path="/behind/a/proxy"), ("fraud", "labels")),
        (scope_of(f"{URL}/predict/"), None),
        (scope_of(f"{URL}/predict", "GET"), None),
        (scope_of(f"{URL}/digest"), None),
        (scope_of("/v1/learners//predict"), None),
        (scope_of("/v1/learners/predict"), None),
        (scope_of("/v1/learners/a/b/predict"), None),
        (scope_of("/v1/groups/fraud/predict"), None),
        ({"type": "websocket", "path": f"{URL}/predict"}, None),
    ],
)
def test_matching_of_inline_requests(scope, expected):
    assert match_request(scope) == expected


async def test_a_body_may_come_in_one_or_many_messages():
    async with application() as app:
        whole = await ask(app, scope_of(f"{URL}/predict"), [PREDICT])
        cut = await ask(app, scope_of(f"{URL}/predict"), [PREDICT[:9], b"", PREDICT[9:]])
        assert whole[0] == cut[0] == 200
        assert whole[2] == cut[2]
        assert app.state.bodies.bytes == 0


async def test_a_disconnected_client_gets_no_reply_and_holds_no_memory():
    async with application() as app:
        assert await ask(app, scope_of(f"{URL}/update"), [None]) == (0, {}, b"")
        assert await ask(app, scope_of(f"{URL}/update"), [b'{"events": ', None]) == (0, {}, b"")
        assert app.state.bodies.bytes == 0


async def test_a_missing_body_times_out():
    async with application(body_seconds=0.05) as app:
        status, _, body = await ask(app, scope_of(f"{URL}/predict"), [])
        assert (status, json.loads(body)["code"]) == (408, "too-slow")
        assert app.state.bodies.bytes == 0


async def test_a_request_cancelled_while_reading_its_body_holds_no_memory():
    async with application() as app:
        for parts in ([], [PREDICT[:5]]):
            more = asyncio.ensure_future(stuck(app, parts))
            await asyncio.sleep(0.01)
            more.cancel()
            await asyncio.wait([more])
            assert more.cancelled()
        assert app.state.bodies.bytes == 0


async def stuck(app: Application, parts: list[bytes]) -> None:
    """Return a request whose body comes so far and no further."""
    left = list(parts)

    async def receive() -> dict[str, Any]:
        if not left:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": left.pop(0), "more_body": True}

    async def send(message: Any) -> None:
        raise AssertionError(message)

    await app(scope_of(f"{URL}/predict"), receive, send)


async def test_a_client_not_reading_an_ndjson_reply_is_dropped(caplog):
    async with application(ws_stall_seconds=0.05) as app:
        learner = app.state.engine.get("fraud")
        uses, messages = learner.users, []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b'{"x":[1,2,3]}\n' * 1500, "more_body": True}

        async def send(message: Any) -> None:
            if len(messages) == 3:
                await asyncio.Event().wait()
            messages.append(message)

        scope = scope_of(f"{URL}/predict") | {"headers": [(b"content-type", b"application/x-ndjson")]}
        await asyncio.wait_for(app(scope, receive, send), 300)
        assert len(messages) == 3
        assert all(message["more_body"] for message in messages[1:])  # a reply without its end
        assert (learner.users, app.state.bodies.bytes) == (uses, 0)
        assert [seconds for _, seconds in logged_data(caplog, "rarestream.bodies", "WARNING")] == [0.05]


@pytest.mark.parametrize(
    ("length", "status"), [(b"9" * 5000, 413), (b"9" * 19, 413), (b"0" * 5000 + b"7", 200), (b"0" * 5000, 200)]
)
async def test_a_content_length_may_have_any_number_of_digits(length, status):
    async with application() as app:
        scope = scope_of(f"{URL}/predict") | {"headers": [(b"content-length", length)]}
        assert (await ask(app, scope, [PREDICT]))[0] == status


async def test_encodings_of_several_headers_are_combined():
    async with application() as app:
        headers = [(b"content-encoding", b"identity"), (b"content-encoding", b"gzip")]
        status, _, body = await ask(app, scope_of(f"{URL}/predict") | {"headers": headers}, [PREDICT])
        assert (status, json.loads(body)["code"]) == (415, "unsupported-type")


async def test_an_internal_error_is_answered_with_its_id_and_logged(monkeypatch):
    async with application() as app:

        async def broken(*_: Any) -> Any:
            raise RuntimeError("faulty")

        monkeypatch.setattr(app.state.engine.get("fraud").served_events, "predict", broken)
        messages: list[Any] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": PREDICT}

        async def send(message: Any) -> None:
            messages.append(message)

        with pytest.raises(RuntimeError, match="faulty"):
            await app(scope_of(f"{URL}/predict"), receive, send)
        problem = json.loads(messages[1]["body"])
        assert (messages[0]["status"], problem["code"]) == (500, "internal")
        assert (b"x-request-id", problem["request_id"].encode()) in messages[0]["headers"]
        assert app.state.bodies.bytes == 0


async def test_request_ids_are_returned():
    async with client() as http:
        await http.put(URL, json=DENSE)
        local = [(await http.post(f"{URL}/predict", content=PREDICT)).headers["x-request-id"] for _ in range(3)]
        assert len(set(local)) == 3
        assert all(len(item) == 32 for item in local)
        for path in ("predict", "update"):  # answered, and refused
            value = await http.post(f"{URL}/{path}", content=PREDICT, headers={"x-request-id": "abc-123"})
            assert value.headers.get_list("x-request-id") == ["abc-123"]
        odd = await http.post(f"{URL}/predict", content=PREDICT, headers={"x-request-id": "x" * 65})
        assert odd.headers["x-request-id"] != "x" * 65


async def test_other_methods_are_refused_with_the_allowed_ones():
    async with client() as http:
        for operation in ("predict", "update", "labels"):
            for method in ("GET", "HEAD", "OPTIONS", "PUT"):
                reply = await http.request(method, f"{URL}/{operation}")
                assert (reply.status_code, reply.headers["allow"]) == (405, "POST")


async def test_invalid_names_and_missing_learners_are_refused():
    async with client() as http:
        for operation in ("predict", "update", "labels"):
            missing = await http.post(f"/v1/learners/nobody/{operation}", content=b"no matter")
            odd = await http.post(f"/v1/learners/-a/{operation}", content=PREDICT)
            slash = await http.post(f"/v1/learners/a%2Fb/{operation}", content=PREDICT)
            assert (missing.status_code, missing.json()["code"]) == (404, "unknown-learner")
            assert (odd.status_code, odd.json()["errors"][0]["pointer"]) == (422, "/name")
            assert slash.status_code == 404


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("explain=0", "invalid"),
        ("explain=1001", "invalid"),
        ("explain=many", "invalid"),
        ("explain=", "invalid"),
        ("explain=2.0", "invalid"),
        ("explain=2&explain=3", "conflict"),
    ],
)
async def test_an_invalid_number_of_contributions_is_refused(query, code):
    async with client() as http:
        await http.put(URL, json=DENSE)
        reply = await http.post(f"{URL}/predict?{query}", content=PREDICT)
        (problem,) = reply.json()["errors"]
        assert (reply.status_code, problem["pointer"], problem["code"]) == (422, "/explain", code)
        refused = await http.post(f"{URL}/update?{query}", json={"events": events(2)})  # which explains nothing
        assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/explain")
        document = (await http.post(f"{URL}/predict?explain=2", content=PREDICT)).json()
        assert len(document["results"][0]["explanation"]["features"]) == 2


async def test_the_inline_routes_are_documented():
    async with client() as http:
        paths = (await http.get("/openapi.json")).json()["paths"]
        for operation in ("predict", "update", "labels"):
            message = paths[f"/v1/learners/{{name}}/{operation}"]["post"]
            names = [parameter["name"] for parameter in message["parameters"]]
            request = ["name", "explain", "at_least"] if operation == "predict" else ["name"]
            assert names == [*request, "Content-Encoding"]
            assert message["requestBody"]["content"]["application/json"]["examples"]
