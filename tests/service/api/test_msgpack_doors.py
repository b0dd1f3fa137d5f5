"""Every route and message that takes MessagePack, written and read with the package `msgpack`, agrees with JSON."""

from __future__ import annotations

from typing import Any

import httpx
import msgpack
import pytest

from service.storage.memory import MemoryStore
from tests.harness.apps import client
from tests.harness.msgpack_bodies import HEADERS, columns_of, plain
from tests.harness.nodes import app_over, node
from tests.harness.websocket import websocket
from tests.service.api.test_msgpack_bodies import LEARNERS, bare, made

pytestmark = pytest.mark.integration

MISSING = {"decision": -128, "label": -128, "rank": -128}  # what stands for null in columns of small integers
COLUMNS = {
    "score": "scores",
    "probability": "probabilities",
    "threshold": "thresholds",
    "decision": "decisions",
    "label": "labels",
    "rank": "ranks",
}


def steps(kind: str) -> list[tuple[str, list[dict[str, Any]]]]:
    """List the operations of a session with their events in JSON's form."""
    predictions = [{**event, "id": f"s{i}", "time": 1.7e9 + 70} for i, event in enumerate(bare(made(kind, 5, seed=1)))]
    labels = [{"id": name, "label": 1, "time": 1.7e9 + 80} for name in ("s0", "e1", "never", "s4")]
    return [("update", made(kind, 40)), ("predict", predictions), ("labels", labels), ("update", made(kind, 9, seed=2))]


def as_json(reply: dict[str, Any], events: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a columnar reply as JSON has it: a list of results."""
    reply = plain(reply)
    results: list[dict[str, Any]] = [{} for _ in events]
    if "statuses" in reply:
        names = reply.pop("statuses")
        for result, status in zip(results, reply.pop("status"), strict=True):
            result["status"] = names[status]
    for name, column in COLUMNS.items():
        for result, value in zip(results, reply.pop(column, ()), strict=False):
            result[name] = None if value != value or value == MISSING.get(name) else value
    return {**reply, "results": results}


def without_ids(reply: dict[str, Any]) -> dict[str, Any]:
    """Return a reply in JSON without the ids of its results, which columns do not repeat."""
    reply["results"] = [{name: result[name] for name in result if name != "id"} for result in reply["results"]]
    return reply


@pytest.mark.parametrize("kind", LEARNERS)
async def test_every_route_agrees_with_json(kind: str) -> None:
    async with client() as http:
        for name in ("json", "msgpack"):
            await http.put(f"/v1/learners/{name}", json=LEARNERS[kind])
        for operation, events in steps(kind):
            expected = await http.post(f"/v1/learners/json/{operation}", json={"events": events})
            body = msgpack.packb(columns_of(events))
            reply = await http.post(f"/v1/learners/msgpack/{operation}", content=body, headers=HEADERS)
            assert reply.headers["content-type"] == "application/msgpack"
            assert as_json(msgpack.unpackb(reply.content), events) == without_ids(expected.json())
        digests = [(await http.get(f"/v1/learners/{name}/digest")).json()["digest"] for name in ("json", "msgpack")]
        assert digests[0] == digests[1]


@pytest.mark.parametrize("kind", LEARNERS)
async def test_every_websocket_message_agrees_with_json(kind: str) -> None:
    async with node(MemoryStore()) as engine:
        app = app_over(engine)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://rarestream/v1") as http:
            for name in ("json", "msgpack"):
                await http.put(f"/learners/{name}", json=LEARNERS[kind])
            async with websocket(app, "/v1/learners/msgpack/ws") as socket:
                for i, (operation, events) in enumerate(steps(kind)):
                    expected = await http.post(f"/learners/json/{operation}", json={"events": events})
                    socket.send(msgpack.packb({"seq": i, "op": operation, **columns_of(events)}))
                    event = await socket.event()
                    reply = msgpack.unpackb(event["bytes"])
                    assert reply.pop("seq") == i
                    assert as_json(reply, events) == without_ids(expected.json())
                socket.send(msgpack.packb({"seq": 9, "op": "update", "labels": [7]}))
                refusal = msgpack.unpackb((await socket.event())["bytes"])
                assert (refusal["seq"], refusal["status"], refusal["code"]) == (9, 422, "invalid")
                assert {"pointer", "detail", "code"} <= refusal["errors"][0].keys()
