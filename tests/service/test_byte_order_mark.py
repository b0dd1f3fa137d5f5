"""A byte order mark before UTF-8 text changes nothing, wherever the text comes in."""

from __future__ import annotations

import io
import json
import sys
from codecs import BOM_UTF8
from pathlib import Path
from typing import Any

import pytest

from service.auth.keys import read
from service.cli.options import json_file
from service.connectors.feed import Message
from service.connectors.message_decoding import Reading
from service.datasets.event_inputs import Inputs
from service.datasets.readers import open_rows
from service.datasets.values import BinaryLabels, RowColumns
from service.settings import Settings
from tests.harness.apps import DENSE, application, client, events
from tests.harness.websocket import websocket

JSON, NDJSON = "application/json", "application/x-ndjson"


async def digest(http: Any, name: str, mark: bytes, media_type: str) -> str:
    """Create a learner, teach it, score and label by id, each body after the mark; return its state's digest."""
    path = f"/v1/learners/{name}"

    async def send(method: str, at: str, rows: Any, kind: str = media_type) -> Any:
        lines = kind == NDJSON
        text = "\n".join(map(json.dumps, rows)) if lines else json.dumps({"events": rows} if at != path else rows)
        reply = await http.request(method, at, content=mark + text.encode(), headers={"content-type": kind})
        assert reply.status_code in (200, 201), reply.text
        return reply

    await send("PUT", path, DENSE, JSON)
    await send("POST", f"{path}/update", [{**row, "time": 1.7e9} for row in events(30)])
    unlabelled = [{"id": f"s{i}", "x": row["x"], "time": 1.7e9} for i, row in enumerate(events(5, 100))]
    await send("POST", f"{path}/predict", unlabelled)
    await send("POST", f"{path}/labels", [{"id": "s1", "label": 1, "time": 1.7e9}])
    return str((await http.get(f"{path}/digest")).json()["digest"])


@pytest.mark.parametrize("media_type", [JSON, NDJSON])
async def test_bodies(media_type: str) -> None:
    async with client() as http:
        assert await digest(http, "a", b"", media_type) == await digest(http, "b", BOM_UTF8, media_type)


async def test_only_the_first_line_may_have_a_mark() -> None:
    async with client() as http:
        await http.put("/v1/learners/a", json=DENSE)
        first, second = (json.dumps(row).encode() for row in events(2))
        content = b"%b\n%b%b\n" % (first, BOM_UTF8, second)
        reply = await http.post("/v1/learners/a/update", content=content, headers={"content-type": NDJSON})
        assert (reply.status_code, reply.json()["errors"][0]["pointer"]) == (400, "/lines/2")


async def test_websocket_messages() -> None:
    async with application(Settings(store="memory:")) as (app, http):
        await http.put("/v1/learners/a", json=DENSE)
        async with websocket(app) as socket:
            event = {"x": [1, 2, 3], "label": 1}
            for mark in ("", BOM_UTF8.decode()):
                text = json.dumps({"seq": 1, "op": "update", "learner": "a", "events": [event]})
                socket.send(mark + text)
                assert (await socket.reply())["status"] == 200


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in (b'{"features": {"a": 1}, "label": 1}\n', b'[{"features": {"a": 1}, "label": 1}]'):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(BOM_UTF8 + text)))
        learner = {"name": "a", "config": {"features": {"kind": "named", "bits": 10}}}
        events = list(Inputs(("-",), "update", learner, RowColumns()).events())
        assert events == [{"features": {"a": 1}, "label": 1}]


def test_messages_of_a_queue() -> None:
    body = b'{"x": [1], "label": 1}'
    reading = Reading("update", BinaryLabels())
    assert reading.event(Message(7, BOM_UTF8 + body)) == reading.event(Message(7, body))


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
def test_joined_files_have_several_marks(tmp_path: Path, name: str) -> None:
    part = '{"a": 1, "label": 1}\n{"a": 2, "label": 0}\n' if name == "a.jsonl" else "a,label\n1,1\n2,0\n"
    (tmp_path / name).write_bytes((BOM_UTF8 * 2 + part.encode()) * 2)
    with open_rows(tmp_path / name, RowColumns()) as rows:
        assert [(event["features"], event["label"]) for event in rows.events()] == [({"a": 1}, 1), ({"a": 2}, 0)] * 2


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "learner.json"
    path.write_bytes(BOM_UTF8 + b'{"algorithm": "fofo"}')
    assert json_file(path) == {"algorithm": "fofo"}
    assert read(BOM_UTF8 + b'{"keys": []}', path) == read(b'{"keys": []}', path)
