"""Half a surrogate pair in a JSON string is refused at every door, and whole pairs are the same text at every door."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from learners.config import Config
from rarestream import Client
from service.connectors.feed import Message
from service.connectors.message_decoding import BadMessage, Reading
from service.datasets.bad_rows import ReadError
from service.datasets.event_inputs import Inputs
from service.datasets.readers import open_rows
from service.datasets.values import BinaryLabels, RowColumns
from service.storage.memory import MemoryStore
from tests.harness.nodes import app_over, digest, node, posted, serving
from tests.harness.websocket import websocket

NAMED = {"algorithm": "cbr-diag", "features": {"kind": "named"}}
GOOD = {"features": {"shop": "\U0001f980", "\U0001f980": 1}, "label": 1}
PLACES = {
    "a value": ({"features": {"shop": "\ud83e"}, "label": 1}, "/events/1/features/shop"),
    "the end of a value": ({"features": {"shop": "a\udd80"}, "label": 1}, "/events/1/features/shop"),
    "a token": ({"features": {"shop": ["a", "\udd80\ud83e"]}, "label": 1}, "/events/1/features/shop"),
    "a name": ({"features": {"\ud83e": 1}, "label": 1}, "/events/1/features/\\ud83e"),
}
BAD = pytest.mark.parametrize("bad", [event for event, _ in PLACES.values()], ids=list(PLACES))


@pytest.mark.parametrize(("bad", "pointer"), PLACES.values(), ids=list(PLACES))
@pytest.mark.parametrize("operation", ["update", "predict"])
async def test_http_points_at_half_a_character(bad: Any, pointer: str, operation: str) -> None:
    async with serving(MemoryStore()) as (http, _):
        await http.put("/learners/a", json=NAMED)
        before = await digest(http)
        events = [GOOD, bad] if operation == "update" else [{"features": item["features"]} for item in (GOOD, bad)]
        reply = await http.post(f"/learners/a/{operation}", content=json.dumps({"events": events}))
        assert (reply.status_code, [error["pointer"] for error in reply.json()["errors"]]) == (422, [pointer])
        lines = "".join(json.dumps(event) + "\n" for event in events)
        headers = {"Content-Type": "application/x-ndjson"}
        reply = await http.post(f"/learners/a/{operation}", content=lines, headers=headers)
        assert reply.status_code == 422
        assert await digest(http) == before
        await posted(http, "/learners/a/update", [GOOD])


@BAD
async def test_a_websocket_refuses_half_a_character(bad: Any) -> None:
    async with node(MemoryStore()) as engine:
        await engine.create("a", Config.of(NAMED))
        async with websocket(app_over(engine), "/v1/learners/a/ws") as client:
            client.send({"seq": 1, "op": "update", "events": [bad]})
            assert (await client.reply())["status"] == 422


@BAD
def test_commands_and_consume_refuse_half_a_character(bad: Any, tmp_path: Path) -> None:
    text = json.dumps(bad)
    with pytest.raises(BadMessage):
        Reading("auto", BinaryLabels()).event(Message(0, text.encode()))
    path = tmp_path / "a.jsonl"
    path.write_text(text + "\n")
    with pytest.raises(ReadError), open_rows(path, RowColumns()) as rows:
        list(rows.events())
    with pytest.raises(ReadError):
        list(Inputs((str(path),), "update", None, RowColumns()).events())


@BAD
def test_the_client_refuses_half_a_character(bad: Any) -> None:
    with Client("http://127.0.0.1:1") as client, pytest.raises(UnicodeEncodeError):
        client.learner("a").update([bad["features"]], [1])
