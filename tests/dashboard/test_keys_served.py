"""The dashboard of a service that asks for keys: pages, streams, forms and downloads go with the reader's key."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.async_api import Page

from tests.dashboard.conftest import Opener
from tests.dashboard.serving import Serving
from tests.harness.keyring import Keyring

expect = pytest.importorskip("playwright.async_api").expect

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Keyring:
    ring = Keyring(tmp_path_factory.mktemp("keys"))
    ring.make("root", "admin")
    ring.make("some", "read", pattern="fraud*")
    ring.make("scores", "predict")
    return ring


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory, browser: object, ring: Keyring) -> Iterator[Serving]:  # noqa: ARG001 - may skip
    serving = Serving(tmp_path_factory.mktemp("keyed"), keys=ring.path)
    serving.http.headers.update(ring["root"])
    with serving:
        for name in ("fraud", "spam"):
            serving.create(name)
            serving.feed(f"learners/{name}", 300)
        yield serving


async def enter(page: Page, key: str) -> None:
    """Answer the question for a key."""
    dialog = page.locator("dialog.key")
    await dialog.locator("input").fill(key)
    await page.keyboard.press("Enter")
    await expect(dialog).to_be_hidden()


@pytest.mark.campaign
async def test_a_key_enables_everything_and_without_one_nothing_is_shown(
    keyed: Serving, visit: Opener, ring: Keyring
) -> None:
    visit.expected = ("401",)
    page = await visit(keyed.url)
    await expect(page.locator("dialog.key")).to_be_visible()
    await expect(page.get_by_role("row", name="fraud")).to_have_count(0)
    await expect(page.locator("#connection")).to_have_attribute("data-state", "away")
    await enter(page, ring.secret("root"))
    await expect(page.get_by_role("row", name="spam")).to_be_visible()

    await page.get_by_role("link", name="fraud", exact=True).click()
    events = page.locator(".tiles [data-key='/events'] dd > span")
    await expect(page.locator("#connection")).to_have_attribute("data-state", "live")
    await expect(events).to_have_text("300")
    keyed.feed("learners/fraud", 50)
    await expect(events).to_have_text("350")  # by the stream of events
    assert "/v1/learners/fraud/metrics/stream" in visit.requests
    await page.locator("[data-action=snapshot]").click()
    await page.locator("dialog [type=submit]").click()
    await expect(page.get_by_role("dialog")).to_be_hidden()
    async with page.expect_download() as download:
        await page.locator("[data-action=export]").click()
    file = await download.value
    assert await file.failure() is None
    assert file.suggested_filename.endswith(".rarestream")
    assert not any(ring.secret("root") in request for request in visit.requests)


async def test_a_key_without_read_permission_is_reported(keyed: Serving, visit: Opener, ring: Keyring) -> None:
    visit.expected = ("401", "403")
    page = await visit(keyed.url)
    await enter(page, ring.secret("scores"))
    reason = re.compile(r"\bread\b.*\bscores\b")
    await expect(page.locator(".message:visible")).to_have_text(reason)
    await page.evaluate("location.hash = '#/learners/fraud'")
    await expect(page.get_by_role("heading", name="fraud", level=1)).to_be_visible()
    await expect(page.locator(".message")).to_have_text(reason)


async def test_a_key_for_some_learners_shows_only_those(keyed: Serving, visit: Opener, ring: Keyring) -> None:
    visit.expected = ("401", "404")
    page = await visit(keyed.url)
    await enter(page, ring.secret("some"))
    await expect(page.get_by_role("row", name="fraud")).to_be_visible()
    await expect(page.get_by_role("row", name="spam")).to_have_count(0)
