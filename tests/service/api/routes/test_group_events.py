"""The events of a group: what each of its learners said of the same event."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from service.storage.store_protocol import Store
from tests.harness.keyring import Keyring, keyed
from tests.harness.nodes import T0, fetched, posted, serving
from tests.service.engine.replica.test_served_events import SETUPS, event, labelled

pytestmark = pytest.mark.integration

KEEPING = {**SETUPS["named"], "late": {"keep_features": True}}


async def scored(http: httpx.AsyncClient) -> None:
    """Score events 50 to 59 by a group, and event 60 by its first learner alone; label two."""
    await http.put("/learners/a", json=KEEPING)
    await http.put("/learners/b", json={**KEEPING, "threshold": {"objective": "fixed", "value": 0.001}})
    assert (await http.put("/groups/g", json={"learners": ["a", "b"]})).status_code == 201
    await posted(http, "/groups/g/update", labelled("named", 0, 50))
    await posted(http, "/groups/g/predict", [event("named", i) for i in range(50, 60)])
    await posted(http, "/learners/a/predict", [event("named", 60)])
    await posted(http, "/groups/g/labels", [{"id": "e51", "label": 1, "time": T0 + 600}])
    await posted(http, "/learners/b/labels", [{"id": "e52", "label": 1, "time": T0 + 600}])


async def test_an_event_is_beside_itself_for_each_learner(store: Store) -> None:
    async with serving(store) as (http, _):
        await scored(http)
        pages: list[dict[str, Any]] = [await fetched(http, "/groups/g/events", limit=4)]
        while pages[-1]["cursor"] is not None:
            pages.append(await fetched(http, "/groups/g/events", limit=4, cursor=pages[-1]["cursor"]))
        events = [item for page in pages for item in page["events"]]
        assert [item["id"] for item in events] == [f"e{i}" for i in range(60, 49, -1)]
        for name in "ab":
            alone = (await fetched(http, f"/learners/{name}/events"))["events"]
            assert [item["learners"][name] for item in events if item["learners"][name]] == alone
        assert events[0]["learners"]["b"] is None
        assert {page["learner"] for page in pages} == {"a"}
        of_b = await fetched(http, "/groups/g/events", learner="b", decision=1, explain=1)
        assert [item["id"] for item in of_b["events"]] == [f"e{i}" for i in range(59, 49, -1)]
        assert all(item["learners"]["a"]["explanation"] for item in of_b["events"])
        labels = [(await fetched(http, f"/groups/g/events/{id}"))["learners"] for id in ("e51", "e52", "e60")]
        assert [[learners[name] and learners[name]["label"] for name in "ab"] for learners in labels] == [
            [1, 1], [None, 1], [None, None],
        ]  # fmt: skip
        assert [step["kind"] for step in labels[0]["b"]["history"]] == ["served", "labelled"]
        assert (await http.get("/groups/g/events/nobody")).json()["code"] == "unknown-event"
        wrong = await http.get("/groups/g/events?learner=c")
        assert (wrong.status_code, wrong.json()["errors"][0]["pointer"]) == (422, "/learner")
        assert (await http.get("/groups/g/events?limit=0&colour=red")).status_code == 422


async def test_a_key_sees_features_by_its_scope_and_groups_by_its_learners(tmp_path: Path) -> None:
    ring = Keyring(tmp_path)
    reader, analyst, everything = ring.make("r", "read"), ring.make("a", "read", "events"), ring.make("all", "admin")
    stranger = ring.make("s", "read", "events", pattern="b*")
    async with keyed(ring) as (_, http):
        http.headers.update(everything)
        await scored(http)
        http.headers.pop("authorization")
        listed = [(await http.get("/groups/g/events", headers=key)).json()["events"] for key in (reader, analyst)]
        for events, visible in zip(listed, (False, True), strict=True):
            documents = [document for item in events for document in item["learners"].values() if document]
            assert len(documents) == 21
            assert {"features" in document for document in documents} == {visible}
        for path in ("/groups/g/events?explain=1", "/groups/g/events/e51?explain=1", "/groups/g/events?q=shop=s1"):
            assert [(await http.get(path, headers=key)).status_code for key in (reader, analyst)] == [403, 200]
        hidden = (await http.get("/groups/g", headers=stranger)).status_code
        assert hidden in (403, 404)
        for path in ("/groups/g/events", "/groups/g/events/e51"):
            assert (await http.get(path, headers=stranger)).status_code == hidden
