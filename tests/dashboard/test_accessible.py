"""What axe, the checker of accessibility, finds on the pages and in the dialogs, in both schemes: nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from axe_playwright_python.async_playwright import Axe

from tests.dashboard.conftest import Opener
from tests.dashboard.serving import Serving

if TYPE_CHECKING:
    from playwright.async_api import Page

expect = pytest.importorskip("playwright.async_api").expect

LOOKS = pytest.mark.parametrize(("scheme", "width"), [("light", 1440), ("dark", 390)])


@pytest.fixture(scope="module")
def service(served: Serving) -> Serving:
    for name in ("fraud", "other"):
        served.create(name, window=1000)
    served.http.put("/groups/both", json={"learners": ["fraud", "other"]}).raise_for_status()
    served.feed("groups/both", 300)
    served.http.post("/learners/fraud/snapshots").raise_for_status()
    served.create("bare", features={"kind": "named", "log": ["amount"]})
    served.create("ranks", algorithm="npsvor", params={"ranks": 3})
    rows = [{"x": [i % 3, 0, 0, 1], "label": i % 3 + 1} for i in range(90)]
    served.http.post("/learners/ranks/update", json={"events": rows}).raise_for_status()
    return served


async def violations(page: Page) -> list[str]:
    """List the accessibility problems of the page, each with its elements."""
    await page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    problems = (await Axe().run(page)).response["violations"]
    return [
        f"{problem['id']}: {problem['help']} {[node['html'][:120] for node in problem['nodes']]}"
        for problem in problems
    ]


@LOOKS
@pytest.mark.parametrize(
    ("place", "there"),  # and what is waited for
    [
        ("#/", ".overview tbody tr"),
        ("#/?q=nobody", ".message:visible"),
        ("#/learners/fraud", ".chart .main-svg"),
        ("#/learners/bare", ".chart .nothing:visible"),
        ("#/learners/ranks", ".chart .main-svg"),
        ("#/learners/nobody", "h1:text('No learner nobody')"),
        ("#/compare", ".links li"),
        ("#/compare/both", ".chart .main-svg"),
        ("#/create", ".create"),
        ("#/nowhere", "h1:text('There is no such page')"),
    ],
)
async def test_pages_are_accessible(
    service: Serving, visit: Opener, place: str, there: str, scheme: str, width: int
) -> None:
    visit.expected = ("404",)
    page = await visit(service.url, place, scheme=scheme, width=width)
    await expect(page.locator(there).first).to_be_visible()
    assert await violations(page) == []


@LOOKS
async def test_refused_and_scored_events_are_accessible(
    service: Serving, visit: Opener, scheme: str, width: int
) -> None:
    visit.expected = ("422",)
    page = await visit(service.url, "#/create", scheme=scheme, width=width)
    await page.get_by_role("button", name="Create it").press("Enter")
    await expect(page.locator(".trouble:visible").first).to_be_visible()
    assert await violations(page) == []
    page = await visit(service.url, "#/learners/fraud", scheme=scheme, width=width)
    for event, shown in (('{"x": [1]}', ".scoring [role=alert]"), ('{"x": [1, 2, 3, 4]}', ".result table")):
        await page.get_by_label("The event in JSON").fill(event)
        await page.get_by_role("button", name="Score it").press("Enter")
        await expect(page.locator(shown)).to_be_visible()
        assert await violations(page) == []


@LOOKS
async def test_dialogs_are_accessible(service: Serving, visit: Opener, scheme: str, width: int) -> None:
    page = await visit(service.url, "#/learners/fraud", scheme=scheme, width=width)
    for name in ("Threshold …", "Snapshot …", "Clone …", "Delete …", "Restore the snapshot"):
        await page.get_by_role("button", name=name).first.press("Enter")
        await expect(page.get_by_role("dialog")).to_be_visible()
        assert await violations(page) == [], name
        await page.keyboard.press("Escape")
    page = await visit(service.url, "#/compare", scheme=scheme, width=width)
    await page.get_by_role("button", name="New group …").press("Enter")
    await expect(page.get_by_role("dialog")).to_be_visible()
    assert await violations(page) == []
