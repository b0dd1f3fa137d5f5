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

pytestmark = [pytest.mark.integration, pytest.mark.campaign]

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page

expect = pytest.importorskip("playwright.async_api").expect

NONE = ".message:has([data-command])"  # that there are no learners, and how to create one
LONG = 600.0  # seconds: the compiler on a busy machine
NAMES = ("first", "second")
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
        nothing = page.locator(NONE)
        await expect(nothing).to_be_visible()
        created = [threads.submit(status_of, serving, "PUT", f"/learners/{name}", CONFIG) for name in NAMES]
        making = page.locator(".overview tr[data-state=making] .state")
        await expect(making).to_have_count(2)
        await expect(making.filter(has_text=re.compile(r"\b\d+ s\b"))).to_have_count(1)  # the other is in its turn
        await expect(nothing).to_be_hidden()
        for name in NAMES:
            await expect(row(page, name)).to_be_visible()
            await expect(row(page, name).get_by_role("link")).to_have_count(0)  # there is no page of it yet
        await expect(page.locator(".found")).to_have_text(re.compile(r"^2\b"))
        assert not any(reply.done() for reply in created)
        await expect(page.locator("#connection")).to_have_attribute("data-state", "live")

        for name in NAMES:  # by themselves
            await expect(row(page, name).get_by_role("link", name=name)).to_be_visible(timeout=1000 * LONG)
            await expect(row(page, name)).to_have_attribute("data-state", "trouble", timeout=1000 * LONG)  # not ready
        await expect(page.locator(".found")).to_have_text(re.compile(r"^2\b\D*$"))
        assert [reply.result() for reply in created] == [201, 201]

        learnt = threads.submit(status_of, serving, "POST", "/learners/first/update", {"events": events(0, 50)})
        await expect(row(page, "first")).to_have_attribute("data-state", "making")
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
            unloaded = page.locator(".message[data-state=unloaded]")
            await expect(unloaded).to_be_visible()
            nothing = page.locator(NONE)
            await expect(nothing).to_be_hidden()
            store.restart()
            await expect(nothing).to_be_visible(timeout=1000 * LONG)
            await expect(unloaded).to_be_hidden()
            await page.close()
        finally:
            process.kill()
