"""Dialogs in a browser while the service takes its time: what was confirmed is told, also to a reader who has left."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import pytest

from tests.dashboard.conftest import Opener
from tests.dashboard.serving import Serving

if TYPE_CHECKING:
    from playwright.async_api import Page, Route

expect = pytest.importorskip("playwright.async_api").expect

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def service(served: Serving) -> Serving:
    served.create("other")
    return served


class BlockedChanges:
    """Requests that change something wait until they are let go."""

    def __init__(self) -> None:
        self.has_begun, self.let_go = asyncio.Event(), asyncio.Event()
        self.count = 0

    async def __call__(self, route: Route) -> None:
        if route.request.method != "GET":
            self.count += 1
            self.has_begun.set()
            await self.let_go.wait()
        await route.fallback()


async def confirm(page: Page, blocked: BlockedChanges, name: str, *, by: str) -> None:
    """Ask for a learner to be deleted, and leave the dialog while the service is at work."""
    await page.locator("[data-action=delete]").click()
    await page.keyboard.type(name)
    await page.keyboard.press("Enter")
    await blocked.has_begun.wait()
    if by == "Escape":
        await page.keyboard.press("Escape")
    else:
        await page.locator("dialog [type=button]").click()
    await expect(page.get_by_role("dialog")).to_have_count(0)


@pytest.mark.parametrize("by", ["Escape", "button"])
async def test_a_confirmed_change_is_announced_after_leaving_the_dialog(
    service: Serving, visit: Opener, by: str
) -> None:
    visit.expected = ("404",)
    service.create("brief")
    visit.replies["**/v1/learners/brief"] = blocked = BlockedChanges()
    page = await visit(service.url, "#/learners/brief")
    await confirm(page, blocked, "brief", by=by)
    blocked.let_go.set()
    await expect(page.locator("#news")).to_contain_text("brief")
    await expect(page.locator(".overview")).to_be_visible()


async def test_a_refusal_is_announced_after_leaving_the_dialog(service: Serving, visit: Opener) -> None:
    visit.expected = ("404", "503")
    service.create("kept")
    blocked = BlockedChanges()
    page = await visit(service.url, "#/learners/kept")

    async def refused(route: Route) -> None:
        if route.request.method == "GET":
            await route.fallback()
            return
        blocked.has_begun.set()
        await blocked.let_go.wait()
        await route.fulfill(status=503, json={"detail": "no store", "code": "store-unavailable"})

    await page.route("**/v1/learners/kept", refused)
    await confirm(page, blocked, "kept", by="Escape")
    blocked.let_go.set()
    await expect(page.locator("#news .alarm")).to_have_text(re.compile(r"\bkept\b.*no store"))


async def test_a_reader_on_another_page_stays_there(service: Serving, visit: Opener) -> None:
    visit.expected = ("404",)
    service.create("brief")
    visit.replies["**/v1/learners/brief"] = blocked = BlockedChanges()
    page = await visit(service.url, "#/learners/brief")
    await page.locator("[data-action=delete]").click()
    await page.keyboard.type("brief")
    await page.keyboard.press("Enter")
    await blocked.has_begun.wait()
    await page.evaluate("location.hash = '#/learners/other'")
    await expect(page.get_by_role("heading", name="other", level=1)).to_be_visible()
    blocked.let_go.set()
    await expect(page.locator("#news")).to_contain_text("brief")
    assert page.url.endswith("#/learners/other")


async def test_a_refusal_keeps_the_focus(service: Serving, visit: Opener) -> None:
    visit.expected = ("409",)
    page = await visit(service.url, "#/learners/other")
    await page.locator("[data-action=clone]").click()
    await page.get_by_role("dialog").get_by_role("textbox").fill("other")
    await page.locator("dialog [type=submit]").press("Enter")
    await expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("other")
    await expect(page.locator("dialog [type=submit]")).to_be_focused()
    await page.keyboard.press("Shift+Tab")
    await expect(page.locator("dialog [type=button]")).to_be_focused()


async def test_a_second_confirmation_is_not_sent(service: Serving, visit: Opener) -> None:
    visit.replies["**/v1/learners/other/snapshots"] = blocked = BlockedChanges()
    page = await visit(service.url, "#/learners/other")
    await page.locator("[data-action=snapshot]").click()
    go = page.locator("dialog [type=submit]")
    await go.press("Enter")
    await blocked.has_begun.wait()
    await go.press("Enter")
    await go.press("Enter")
    blocked.let_go.set()
    await expect(page.locator("#news")).to_contain_text("other")
    assert blocked.count == 1


async def test_the_form_keeps_the_focus_while_an_event_is_scored(service: Serving, visit: Opener) -> None:
    page = await visit(service.url, "#/learners/other")
    go = page.locator(".scoring [type=submit]")
    await go.press("Enter")
    await expect(page.locator(".verdict")).to_be_visible()
    await expect(go).to_be_focused()
