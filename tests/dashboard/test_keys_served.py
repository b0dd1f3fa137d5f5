"""The dashboard of a service that asks for keys: pages, streams, forms and downloads go with the reader's key."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.async_api import Page

from tests.dashboard.conftest import Opener
from tests.dashboard.serving import Serving
from tests.harness.keyring import Keyring

expect = pytest.importorskip("playwright.async_api").expect


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
    dialog = page.get_by_role("dialog", name="API key")
    await dialog.get_by_label("Key").fill(key)
    await page.keyboard.press("Enter")
    await expect(dialog).to_be_hidden()


async def test_a_key_enables_everything_and_without_one_nothing_is_shown(
    keyed: Serving, visit: Opener, ring: Keyring
) -> None:
    visit.expected = ("401",)
    page = await visit(keyed.url)
    await expect(page.get_by_role("dialog", name="API key")).to_contain_text(
        "This service shows itself to those with a key only."
    )
    await expect(page.get_by_role("row", name="fraud")).to_have_count(0)
    await expect(page.locator("#state")).to_have_text("a valid API key is required,")
    await enter(page, ring.secret("root"))
    await expect(page.get_by_role("row", name="spam")).to_be_visible()

    await page.get_by_role("link", name="fraud", exact=True).click()
    events = page.locator(".tiles > div", has_text="Events learnt").locator("dd > span")
    await expect(page.locator("#state")).to_have_text("live")
    await expect(events).to_have_text("300")
    keyed.feed("learners/fraud", 50)
    await expect(events).to_have_text("350")  # by the stream of events
    assert "/v1/learners/fraud/metrics/stream" in visit.requests
    await page.get_by_role("button", name="Snapshot …").click()
    await page.get_by_role("button", name="Save snapshot").click()
    await expect(page.get_by_role("dialog")).to_be_hidden()
    async with page.expect_download() as download:
        await page.get_by_role("button", name="Export").click()
    file = await download.value
    assert await file.failure() is None
    assert file.suggested_filename.endswith(".rarestream")
    assert not any(ring.secret("root") in request for request in visit.requests)


async def test_a_key_without_read_permission_is_reported(keyed: Serving, visit: Opener, ring: Keyring) -> None:
    visit.expected = ("401", "403")
    page = await visit(keyed.url)
    await enter(page, ring.secret("scores"))
    await expect(
        page.get_by_text("No learner can be shown: you need the read scope, which the key scores lacks.")
    ).to_be_visible()
    await page.evaluate("location.hash = '#/learners/fraud'")
    await expect(
        page.get_by_text("The page cannot be shown: you need the read scope, which the key scores lacks.")
    ).to_be_visible()


async def test_a_key_for_some_learners_shows_only_those(keyed: Serving, visit: Opener, ring: Keyring) -> None:
    visit.expected = ("401", "404")
    page = await visit(keyed.url)
    await enter(page, ring.secret("some"))
    await expect(page.get_by_role("row", name="fraud")).to_be_visible()
    await expect(page.get_by_role("row", name="spam")).to_have_count(0)
