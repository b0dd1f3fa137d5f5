"""A refused body is decoded once and read once for the error report, whichever door it comes in.

The fast decoding is a compiled pass. In JSON a typed decoder reads what the pass finds unusual. It does not read what
no learner of the width takes. Each of these parts runs at most once.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import msgspec
import pytest

from service.settings import Settings
from service.wire import json_decode, msgpack_decode
from tests.harness.apps import DENSE, application, client, events
from tests.harness.raw import Service, request, served
from tests.harness.websocket import websocket

BAD = {"x": [1, 2], "label": 1}


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count how often a body is decoded, and how often it is read for an error report."""
    counts: Counter[str] = Counter()

    def count(name: str) -> None:
        function: Any = getattr(json_decode, name)

        def counting(*arguments: Any, **options: Any) -> Any:
            counts[name] += 1
            return function(*arguments, **options)

        monkeypatch.setattr(json_decode, name, counting)

    class CountedDecoder:
        def __init__(self, name: str) -> None:
            self.name, self.decoder = name, getattr(json_decode, name)

        def decode(self, body: bytes) -> Any:
            counts[self.name] += 1
            return self.decoder.decode(body)

    count("scan")
    count("decode_json")
    for name in ("_update_decoder", "_predict_decoder"):
        monkeypatch.setattr(json_decode, name, CountedDecoder(name))
    return counts


@pytest.fixture(scope="module")
def service() -> Any:
    with served() as running:
        yield running


@pytest.mark.parametrize("operation", ["predict", "update"])
@pytest.mark.parametrize("connection", ["keep-alive", "close"])  # inline, and over ASGI
def test_a_refused_request_is_decoded_once(
    service: Service, readings: Counter[str], operation: str, connection: str
) -> None:
    body = json.dumps({"events": [BAD]}).encode()
    reply = service.ask(request(body, path=f"/v1/learners/fraud/{operation}", connection=connection))
    assert reply.status == 422
    assert readings == {"scan": 1, "decode_json": 1}


@pytest.mark.parametrize("bad", ['{"x": [1, 2, 1e31]}', '{"x": [1, 2, "3"]}', '{"x": [1, 2, 3, 4]}', '{"odd": 1}'])
@pytest.mark.parametrize("operation", ["predict", "update"])
def test_a_bad_event_behind_good_ones_is_found_without_the_typed_decoder(
    service: Service, readings: Counter[str], operation: str, bad: str
) -> None:
    label = ', "label": 1' if operation == "update" else ""
    body = f'{{"events": [{{"x": [1, 2, 3]{label}}}, {bad}]}}'.encode()
    reply = service.ask(request(body, path=f"/v1/learners/fraud/{operation}"))
    assert (reply.status, reply.json["errors"][0]["pointer"].startswith("/events/1")) == (422, True)
    assert readings == {"scan": 1, "decode_json": 1}


def test_an_unusual_body_is_read_by_the_typed_decoder(service: Service, readings: Counter[str]) -> None:
    body = b'{"events": [{"\\u0078": [1, 2, 3]}]}'
    assert service.ask(request(body, path="/v1/learners/fraud/predict")).status == 200
    assert readings == {"scan": 1, "_predict_decoder": 1}


def test_a_body_read_completely_by_the_scanner_is_not_decoded_again(service: Service, readings: Counter[str]) -> None:
    """Only its content is wrong, so the typed decoder does not read it."""
    body = json.dumps({"events": [{"x": [1, 2, 3], "label": 7}]}).encode()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(json_decode, "_update_decoder", None)
        reply = service.ask(request(body, path="/v1/learners/fraud/update"))
    assert (reply.status, reply.json["errors"][0]["pointer"]) == (422, "/events/0/label")
    assert readings == {"scan": 1, "decode_json": 1}


@pytest.mark.parametrize("operation", ["predict", "update"])
@pytest.mark.parametrize("connection", ["keep-alive", "close"])
def test_refused_columns_are_decoded_once(
    service: Service, monkeypatch: pytest.MonkeyPatch, operation: str, connection: str
) -> None:
    counts: Counter[str] = Counter()

    def count(name: str) -> None:
        function: Any = getattr(msgpack_decode, name)

        def counting(*arguments: Any, **options: Any) -> Any:
            counts[name] += 1
            return function(*arguments, **options)

        monkeypatch.setattr(msgpack_decode, name, counting)

    count("dense_events")
    count("_Body")
    narrow = {"dtype": "float64", "shape": [1, 2], "data": bytes(16)}
    body = msgspec.msgpack.encode({"x": narrow} if operation == "predict" else {"x": narrow, "labels": [1]})
    headers = {"content_type": "application/msgpack", "connection": connection}
    reply = service.ask(request(body, path=f"/v1/learners/fraud/{operation}", **headers))
    assert (reply.status, reply.json["errors"][0]["pointer"]) == (422, "/x/shape")
    assert counts == {"dense_events": 1, "_Body": 1}


async def test_refused_lines_are_decoded_once(readings: Counter[str]) -> None:
    async with client() as http:
        await http.put("/v1/learners/a", json=DENSE)
        lines = b"\n".join(json.dumps(event).encode() for event in [*events(3), BAD])
        headers = {"content-type": "application/x-ndjson"}
        reply = await http.post("/v1/learners/a/update", content=lines, headers=headers)
        assert reply.status_code == 422
    assert readings == {"scan": 1, "decode_json": 1}


async def test_a_refused_group_request_is_decoded_once(readings: Counter[str]) -> None:
    async with client() as http:
        for name in ("a", "b"):
            await http.put(f"/v1/learners/{name}", json=DENSE)
        await http.put("/v1/groups/both", json={"learners": ["a", "b"]})
        readings.clear()
        reply = await http.post("/v1/groups/both/update", json={"events": [BAD]})
        assert reply.status_code == 422
    assert readings == {"scan": 1, "decode_json": 1}


async def test_joined_websocket_messages_are_decoded_at_most_twice(readings: Counter[str]) -> None:
    """A joined body that is refused is executed message by message: the bad one is decoded twice, the others too."""
    async with application(Settings(store="memory:")) as (app, http):
        await http.put("/v1/learners/a", json=DENSE)
        readings.clear()
        async with websocket(app, "/v1/learners/a/ws", batched=True) as socket:
            messages = [{"seq": i, "op": "update", "events": [event]} for i, event in enumerate([*events(2), BAD])]
            socket.send(*messages)
            statuses = [reply["status"] for reply in await socket.replies(3)]
    assert statuses == [200, 200, 422]
    assert readings == {"scan": 4, "decode_json": 2}
