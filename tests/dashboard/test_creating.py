"""The overview while learners are being created, on a machine that has no kernels yet: nobody is told that nothing is.

The service is a process with an empty kernel cache, so what is waited for is the compiler itself.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.dashboard.conftest import Opener
from tests.dashboard.serving import COLUMNS, Serving, events
from tests.harness.process import Process
from tests.harness.redis_server import RedisServer

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page

expect = pytest.importorskip("playwright.async_api").expect

LONG = 600.0  # seconds: the compiler on a busy machine
NAMES = ("first", "second")
STATES = (
    re.compile(r"^being created, for \d+ s by now: its kernels are compiled, once for this machine and version"),
    "being created, in its turn",
)
CONFIG = {"algorithm": "loam-ada", "features": {"kind": "dense", "dim": COLUMNS}}


def status_of(serving: Serving, method: str, path: str, body: dict[str, Any]) -> int:
    return httpx.request(method, f"{serving.url}/v1{path}", json=body, timeout=LONG, trust_env=False).status_code


def row(page: Page, name: str) -> Locator:
    return page.get_by_role("row").filter(has=page.get_by_role("rowheader", name=re.compile(rf"^{name}\b")))


async def test_learners_being_created_are_shown_until_they_exist(
    tmp_path_factory: pytest.TempPathFactory, visit: Opener
) -> None:
    folder = tmp_path_factory.mktemp("cold")
    serving = Serving(folder)
    serving.process.environment["NUMBA_CACHE_DIR"] = str(folder / "kernels")
    with serving, ThreadPoolExecutor() as threads:
        page = await visit(serving.url)
        nothing = page.get_by_role("heading", name="No learners yet")
        await expect(nothing).to_be_visible()
        created = [threads.submit(status_of, serving, "PUT", f"/learners/{name}", CONFIG) for name in NAMES]
        states = [page.locator(".overview tbody .state").filter(has_text=words) for words in STATES]
        for state in states:
            await expect(state).to_have_count(1)
        await expect(nothing).to_be_hidden()
        for name in NAMES:
            await expect(row(page, name)).to_be_visible()
            await expect(row(page, name).get_by_role("link")).to_have_count(0)  # there is no page of it yet
        await expect(page.get_by_role("status").filter(has_text="2 learners being created")).to_be_visible()
        assert not any(reply.done() for reply in created)
        await expect(page.locator("#state")).to_have_text("live")

        for name in NAMES:  # by themselves
            await expect(row(page, name).get_by_role("link", name=name)).to_be_visible(timeout=1000 * LONG)
            await expect(row(page, name)).to_contain_text("not ready: no labelled event", timeout=1000 * LONG)
        await expect(page.get_by_role("status").filter(has_text=re.compile("^2 learners$"))).to_be_visible()
        assert [reply.result() for reply in created] == [201, 201]

        learnt = threads.submit(status_of, serving, "POST", "/learners/first/update", {"events": events(0, 50)})
        await expect(row(page, "first")).to_contain_text("learning its first events: kernels are compiled")
        assert not learnt.done()
        await expect(row(page, "first").locator("[data-column=positives]")).to_have_text("510 %", timeout=1000 * LONG)
        await expect(row(page, "first").locator(".state")).to_be_empty()
        assert learnt.result() == 200
        await page.close()  # before the service ends, which breaks its stream off


async def test_a_node_waiting_for_its_store_does_not_report_zero_learners(
    tmp_path_factory: pytest.TempPathFactory, visit: Opener
) -> None:
    with RedisServer() as store:
        process = Process(store.url, tmp_path_factory.mktemp("away") / "log")
        store.kill()
        visit.expected = ("503 (Service Unavailable)",)
        try:
            process.start(ready=False)
            page = await visit(process.url)
            await expect(page.get_by_text("This node does not know its learners yet")).to_be_visible()
            nothing = page.get_by_role("heading", name="No learners yet")
            await expect(nothing).to_be_hidden()
            store.restart()
            await expect(nothing).to_be_visible(timeout=1000 * LONG)
            await expect(page.get_by_text("This node does not know its learners yet")).to_be_hidden()
            await page.close()
        finally:
            process.kill()
