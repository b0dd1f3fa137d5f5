"""Updates of a group by a source: repeated after a failure, and with a learner that lacks the source."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest

from service.storage.memory import MemoryStore
from tests.harness.nodes import posted, serving
from tests.service.engine.replica.test_group import MEMBERS, URL, Failing, created, event, labelled

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("after", [False, True], ids=["not written", "written"])
@pytest.mark.parametrize("log", ["one", "two", "three", "@g"])
@pytest.mark.parametrize("start", [0, 30], ids=["first", "later"])
@pytest.mark.parametrize("ids", [False, True], ids=["by source", "by source and ids"])
async def test_a_request_with_a_source_is_repeated_after_a_failure(
    ids: bool, start: int, log: str, after: bool
) -> None:
    def body(first: int, stop: int) -> dict[str, Any]:
        rows = [item if ids else {k: item[k] for k in item if k != "id"} for item in labelled(first, stop)]
        return {"source": {"name": "file", "offset": first}, "events": rows}

    async def post_range(first: int, stop: int) -> httpx.Response:
        return await http.post(f"{URL}/update", json=body(first, stop))

    store = Failing()
    async with serving(store) as (http, _):
        await created(http)
        if start:
            assert (await post_range(0, start)).status_code == 200
        store.log, store.after = log, after
        failed = await post_range(start, 50)
        assert (failed.status_code, failed.json()["code"]) == (503, "store-unavailable")
        if log != "@g" and not after:  # one of the learners lacks these, so nothing is learnt of what comes next
            gap = await post_range(50, 60)
            assert (gap.status_code, gap.json()["code"]) == (409, "source-gap")
        again = await post_range(start, 50)
        assert again.status_code == 200, again.text
        document = again.json()
        assert {item["applied"] + item["duplicate"] for item in document["learners"].values()} == {50 - start}
        assert document["compared"] == (50 - start if ids else 0)
        assert (await post_range(50, 80)).status_code == 200
        for name, config in MEMBERS.items():
            learner = (await http.get(f"/learners/{name}")).json()
            assert (learner["events"], learner["sources"]) == (80, {"file": 80})
            await http.put("/learners/alone", json=config)
            assert (await http.post("/learners/alone/update", json=body(0, 80))).status_code == 200
            requests = [{"features": event(i)["features"]} for i in range(20)]
            predictions = [await posted(http, f"/learners/{item}/predict", requests) for item in ("alone", name)]
            assert predictions[0]["results"] == predictions[1]["results"]  # it has learnt each event once
            await http.delete("/learners/alone")


async def test_a_member_without_the_source_does_not_start_in_its_middle() -> None:
    async with serving(MemoryStore()) as (http, _):
        await created(http)
        for name in ("one", "three"):
            body = {"source": {"name": "file", "offset": 0}, "events": labelled(0, 30)}
            await http.post(f"/learners/{name}/update", json=body)
        for first, stop in ((30, 40), (10, 20), (20, 40)):
            body = {"source": {"name": "file", "offset": first}, "events": labelled(first, stop)}
            refused = await http.post(f"{URL}/update", json=body)
            assert (refused.status_code, refused.json()["code"]) == (409, "source-gap")
            assert re.findall(r"\b(one|two|three) at (\d+)", refused.json()["detail"]) == [
                ("one", "30"),
                ("three", "30"),
            ]
            assert "two" in refused.json()["detail"]
        body = {"source": {"name": "file", "offset": 0}, "events": labelled(0, 20)}
        document = (await http.post(f"{URL}/update", json=body)).json()["learners"]
        assert [document[name]["applied"] for name in MEMBERS] == [0, 20, 0]
        body = {"source": {"name": "file", "offset": 20}, "events": labelled(20, 40)}
        document = (await http.post(f"{URL}/update", json=body)).json()["learners"]
        assert [document[name]["applied"] for name in MEMBERS] == [10, 20, 10]
