"""Pages of lists: every entry once, in order, however the pages are cut."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from service.api.list_pages import ListPage, cut_list, cut_numbered
from service.storage.memory import MemoryStore
from tests.harness.nodes import fetched, posted, serving
from tests.service.engine.replica.test_served_events import SETUPS

DENSE = SETUPS["dense"]
NAMES = ["a", "b", "b.1", "c", "d"]


async def walked(http: httpx.AsyncClient, path: str, kind: str, limit: int) -> list[Any]:
    """Return the entries of all pages in their order."""
    entries: list[Any] = []
    query: dict[str, Any] = {"limit": limit}
    while True:
        page = await fetched(http, path, **query)
        size = len(page[kind]) + len(page.get("asleep", ())) + len(page.get("unavailable", ()))
        assert size <= limit
        entries += page[kind]
        if page["cursor"] is None:
            return entries
        assert size == limit
        query["cursor"] = page["cursor"]


@pytest.mark.parametrize("limit", [1, 2, 5, 1000])
def test_names_in_memory_and_elsewhere_share_the_pages(limit: int) -> None:
    document = {"x": [{"name": name} for name in "bdf"], "asleep": ["a", "e"], "unavailable": {"c": "why"}, "y": 1}
    names, cursor = [], ""
    while True:
        page = ListPage(limit, cursor).cut(document, "x")
        assert page["y"] == 1
        part = [*(row["name"] for row in page["x"]), *page["asleep"], *page["unavailable"]]
        assert len(part) <= limit
        names += sorted(part)
        if page["cursor"] is None:
            break
        cursor = page["cursor"]
    assert names == list("abcdef")


def test_a_page_of_nodes_goes_on_if_one_of_them_has_more() -> None:
    document = {"x": [{"name": "a"}], "unavailable": {}}
    assert ListPage(1).cut(document, "x", more=True)["cursor"] == "a"
    assert ListPage(1).cut(document, "x")["cursor"] is None
    assert ListPage(1, "z").cut(document, "x", more=True) == {"x": [], "unavailable": {}, "cursor": None}


def test_a_list_is_cut_by_numbers() -> None:
    assert cut_list("abc", 2, 0) == (["a", "b"], 2)
    assert cut_list("abc", 2, 2) == (["c"], None)
    assert cut_list("abc", None, 0) == (["a", "b", "c"], None)
    assert cut_list("abc", 2, 9) == ([], None)
    alarms = [{"number": 3}, {"number": 7}, {"number": 8}]
    assert cut_numbered(alarms, 1) == (alarms[:1], 7)
    assert cut_numbered(alarms, 3) == (alarms, None)
    assert cut_numbered(alarms, None) == (alarms, None)


async def test_every_list_has_each_entry_on_one_page() -> None:
    async with serving(MemoryStore()) as (http, _):
        for name in NAMES:
            await http.put(f"/learners/{name}", json=DENSE)
        for name in NAMES[:3]:
            await http.put(f"/groups/{name}", json={"learners": NAMES[:2]})
        for i in range(3):
            await posted(http, "/learners/a/update", [{"x": [i, 1, 2], "label": 0}])
            await http.post("/learners/a/snapshots")
            await http.post("/learners/a/annotations", json={"text": f"deployment {i}"})
        await http.put("/learners/named", json={"algorithm": "loam-ada", "features": {"kind": "named", "bits": 8}})
        features = {f"f{i}": i for i in range(5)}
        await posted(http, "/learners/named/update", [{"features": features, "label": 1}])
        for path, kind in (
            ("/learners", "learners"),
            ("/groups", "groups"),
            ("/learners/a/snapshots", "snapshots"),
            ("/learners/named/fields", "fields"),
            ("/learners/a/annotations", "annotations"),
            ("/algorithms", "algorithms"),
        ):
            whole = await fetched(http, path)
            assert whole["cursor"] is None
            assert len(whole[kind]) >= 3
            for limit in (1, 2, 1000):
                assert await walked(http, path, kind, limit) == whole[kind]
        figures = await fetched(http, "/learners", figures="true", limit=2)
        assert [[row["name"] for row in figures["learners"]], figures["cursor"]] == [["a", "b"], "b"]
        for query in ("limit=0", "limit=1001", f"cursor={'x' * 301}"):
            assert (await http.get(f"/learners?{query}")).status_code == 422
