"""The life of alarms over HTTP: acknowledged by one of two, resolved, reopened; and annotations beside them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.storage.memory import MemoryStore
from service.storage.store_protocol import Store
from tests.harness.keyring import Keyring, keyed
from tests.harness.nodes import T0, fetched, node, over, posted, serving
from tests.harness.waiting import eventually_async
from tests.service.api.routes.test_metrics_routes import DENSE, DRIFTED, Reader, drifted
from tests.service.engine.replica.test_served_events import labelled

ACK = "/learners/a/alarms/0/acknowledge"
HOSTILE = "<script>alert(1)</script> & \"'<img src=x onerror=alert(1)>\nnext line"


async def the_alarm(http: httpx.AsyncClient) -> dict[str, Any]:
    alarms: list[dict[str, Any]] = (await fetched(http, "/learners/a/alarms"))["alarms"]
    (alarm,) = alarms
    return alarm


async def served(http: httpx.AsyncClient, start: int, moved: float) -> None:
    """Serve a block of events, as `drifted` does, whose scores are as before or are moved."""
    events = [
        {"id": f"d{i}", "x": [i * 7 % 11 / 11 + moved, 0.5, 0.5], "time": T0 + i} for i in range(start, start + 512)
    ]
    await posted(http, "/learners/a/predict", events)


async def test_an_alarm_is_acknowledged_resolved_and_reopened(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    def changes() -> list[tuple[str, str]]:
        """Return the learner and the state of each change so far, as the log has them."""
        lines = [record for record in caplog.records if record.name == "rarestream.webhook"]
        return [(record.args[0], record.args[3]) for record in lines if isinstance(record.args, tuple)]

    caplog.set_level("INFO", "rarestream")
    async with serving(store) as (http, engine):
        await http.put("/learners/a", json=DENSE)
        await drifted(http)
        replica = engine.get("a")
        await replica.log.catch_up()
        reader = Reader(replica)
        await reader.until("figures")
        opened = await the_alarm(http)
        assert (opened["state"], opened["reopened"], opened["acknowledged"]) == ("open", 0, None)
        assert opened["changed"] == {"events": 50, "clock": T0 + DRIFTED - 1}
        reply = await http.post(ACK, json={"note": HOSTILE, "by": "Ann <b>"})
        assert reply.status_code == 200
        signed = reply.json()
        assert signed["acknowledged"].pop("time") > T0
        assert signed["acknowledged"] == {"by": "Ann <b>", "key": None, "note": HOSTILE}
        assert signed["state"] == "acknowledged"
        assert [kind for kind, _ in await reader.until("figures")] == ["changes", "figures"]
        listed = (await http.get("/learners?figures=true")).json()["learners"][0]
        assert (listed["open_alarms"], listed["last_alarm"]["state"]) == (0, "acknowledged")
        await served(http, DRIFTED, 0.0)
        await replica.log.catch_up()
        assert (await the_alarm(http))["state"] == "resolved"
        await served(http, DRIFTED + 512, 50.0)
        await replica.log.catch_up()
        again = await the_alarm(http)
        assert (again["state"], again["reopened"], again["acknowledged"]) == ("reopened", 1, None)
        assert (await fetched(http, "/learners/a/alarms"))["open"]["scores"] == 1
        page = await http.get("http://node/metrics")
        assert 'rarestream_open_alarms{kind="scores",learner="a"} 1.0' in page.text
        assert changes() == [("a", "open"), ("a", "resolved"), ("a", "reopened")]
        assert (await http.post(ACK, json={})).json()["state"] == "acknowledged"
        last = await the_alarm(http)
        digest = await fetched(http, "/learners/a/digest")
    async with serving(store) as (http, _):  # after a crash
        assert await the_alarm(http) == last
        assert await fetched(http, "/learners/a/digest") == digest


async def test_of_two_people_on_two_nodes_the_first_acknowledges(store: Store, open_again: Any) -> None:
    settings = {"follow_seconds": 0.02}
    async with (
        serving(store, **settings) as (http, _),
        node(await open_again(), **settings) as other,
        over(other) as far,
    ):
        await http.put("/learners/a", json=DENSE)
        await drifted(http)
        await eventually_async(lambda: "a" in other.replicas and other.get("a").view.figures.alarm_count == 1)
        body = {name: {"note": f"{name} knows", "by": name} for name in ("Ann", "Bob")}
        replies = await asyncio.gather(http.post(ACK, json=body["Ann"]), far.post(ACK, json=body["Bob"]))
        assert sorted(reply.status_code for reply in replies) == [200, 409]
        first, (second,) = (
            "Ann" if replies[0].status_code == 200 else "Bob",
            [r for r in replies if r.status_code == 409],
        )
        assert (second.json()["code"], first in second.json()["detail"]) == ("acknowledged", True)
        for client in (http, far):
            assert (await client.post(ACK, json=body[first])).status_code == 200  # a repetition
            assert (await the_alarm(client))["acknowledged"]["by"] == first
        position = (await fetched(http, "/learners/a"))["position"]
        assert (await http.post(ACK, json=body[first])).status_code == 200
        assert (await fetched(http, "/learners/a"))["position"] == position
        note = (await far.post("/learners/a/annotations", json={"text": "deployed"})).json()
        await eventually_async(lambda: len(other.get("a").view.annotations()) == 1)
        assert (await fetched(http, "/learners/a/annotations", at_least=position + 1))["annotations"] == [note]


async def test_annotations_and_changes_stand_on_one_time_line(store: Store) -> None:
    async with serving(store) as (http, _):
        await http.put("/learners/a", json=DENSE)
        first = await http.post("/learners/a/annotations", json={"text": HOSTILE})
        assert (first.status_code, first.json()["text"], first.json()["clock"]) == (201, HOSTILE, None)
        await posted(http, "/learners/a/update", labelled("dense", 0, 10))
        saved = (await http.post("/learners/a/snapshots")).json()["position"]
        await http.patch("/learners/a", json={"threshold": {"objective": "fixed", "value": 0.5}})
        await posted(http, "/learners/a/update", labelled("dense", 10, 20))
        await http.post("/learners/a/annotations", json={"text": "deployed", "by": "CI"})
        await http.post(f"/learners/a/snapshots/{saved}/restore")
        entries = (await fetched(http, "/learners/a/annotations"))["annotations"]
        assert [(entry["number"], entry["kind"], entry["events"]) for entry in entries] == [
            (0, "note", 0),
            (1, "settings", 10),
            (2, "note", 20),
            (3, "restore", 10),
        ]
        assert entries[1]["data"]["threshold"]["value"] == 0.5
        assert (entries[2]["clock"], entries[2]["by"]) == (T0 + 190, "CI")
        assert entries[3]["data"] == {"position": saved}
        assert (await fetched(http, "/learners/a/annotations", since=2))["annotations"] == entries[2:]
        copied = await http.post("/learners/a/clone", json={"to": "b"})
        assert copied.status_code == 201
        assert (await fetched(http, "/learners/b/annotations"))["annotations"] == entries
    async with serving(store) as (http, _):
        assert (await fetched(http, "/learners/a/annotations"))["annotations"] == entries


@pytest.mark.parametrize(
    ("path", "body", "pointers"),
    [
        ("annotations", {}, ["/text"]),
        ("annotations", {"text": " "}, ["/text"]),
        ("annotations", {"text": "x" * 1001}, ["/text"]),
        ("annotations", {"text": "\x1b[2J"}, ["/text"]),
        ("annotations", {"text": 5, "by": ""}, ["/text"]),
        ("annotations", {"text": "ok", "by": "x" * 101, "who": "Ann"}, ["/who", "/by"]),
        ("annotations", {"text": "half \ud83d"}, ["/text"]),
        ("annotations", [], [""]),
        ("alarms/0/acknowledge", {"note": "\x00", "by": ""}, ["/note", "/by"]),
        ("alarms/0/acknowledge", {"text": "known"}, ["/text"]),
    ],
)
async def test_what_cannot_be_shown_is_refused_and_changes_nothing(path: str, body: Any, pointers: list[str]) -> None:
    async with serving(MemoryStore()) as (http, _):
        await http.put("/learners/a", json=DENSE)
        headers = {"content-type": "application/json"}
        reply = await http.post(f"/learners/a/{path}", content=json.dumps(body), headers=headers)
        assert (reply.status_code, reply.json()["code"]) == (422, "invalid")
        assert [error["pointer"] for error in reply.json()["errors"]] == pointers
        assert (await fetched(http, "/learners/a"))["position"] == 1
        assert (await fetched(http, "/learners/a/annotations"))["annotations"] == []


async def test_an_unknown_alarm_or_learner_is_not_found() -> None:
    async with serving(MemoryStore()) as (http, _):
        await http.put("/learners/a", json=DENSE)
        for path, code in ((ACK, "unknown-alarm"), ("/learners/b/alarms/0/acknowledge", "unknown-learner")):
            reply = await http.post(path, json={})
            assert (reply.status_code, reply.json()["code"]) == (404, code)
        assert (await http.post("/learners/a/alarms/-1/acknowledge", json={})).status_code == 422
        assert (await http.get("/learners/b/annotations")).status_code == 404


async def test_writing_needs_the_scope_update_and_has_the_name_of_the_key(tmp_path: Path) -> None:
    ring = Keyring(tmp_path)
    admin, reader, writer = ring.make("all", "admin"), ring.make("r", "read"), ring.make("desk", "update")
    async with keyed(ring) as (_, http):
        await http.put("/learners/a", json=DENSE, headers=admin)
        for path, body in (("annotations", {"text": "deployed"}), ("alarms/0/acknowledge", {})):
            assert (await http.post(f"/learners/a/{path}", json=body, headers=reader)).status_code == 403
            assert (await http.post(f"/learners/a/{path}", json=body)).status_code == 401
        note = await http.post("/learners/a/annotations", json={"text": "deployed", "by": "Ann"}, headers=writer)
        assert (note.json()["by"], note.json()["key"]) == ("Ann", "desk")
        assert (await http.get("/learners/a/annotations", headers=writer)).status_code == 403
        listed = (await http.get("/learners/a/annotations", headers=reader)).json()["annotations"]
        assert listed == [note.json()]


async def test_ordinal_learners_have_annotations_too() -> None:
    config = {"algorithm": "npsvor", "features": {"kind": "dense", "dim": 3}}
    async with serving(MemoryStore()) as (http, _):
        await http.put("/learners/a", json=config)
        assert (await http.post("/learners/a/annotations", json={"text": "deployed"})).status_code == 201
        assert (await fetched(http, "/learners/a/alarms"))["alarms"] == []
