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

pytestmark = pytest.mark.integration

LOOKS = pytest.mark.parametrize(("scheme", "width"), [("light", 1440), ("dark", 390)])


@pytest.fixture(scope="module")
def service(served: Serving) -> Serving:
    for name in ("fraud", "other"):
        served.create(name, window=1000)
    served.http.put("/groups/both", json={"learners": ["fraud", "other"]}).raise_for_status()
    served.feed("groups/both", 300)
    served.http.post("/learners/fraud/snapshots").raise_for_status()
    scored = {"id": "e1", "x": [9, 0, 0, 1]}
    served.http.patch("/learners/fraud", json={"late": {"keep_features": True}}).raise_for_status()
    served.http.post("/learners/fraud/predict", json={"events": [scored]}).raise_for_status()
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
    ("place", "selector"),  # and what is waited for
    [
        ("#/", ".overview tbody tr"),
        ("#/?q=nobody", ".message:visible"),
        ("#/learners/fraud", ".chart .main-svg"),
        ("#/learners/fraud", ".trial:visible"),
        ("#/learners/bare", ".chart .nothing:visible"),
        ("#/learners/ranks", ".chart .main-svg"),
        ("#/learners/nobody", ".message h1"),
        ("#/alerts/fraud?status=all", ".queue tbody tr"),
        ("#/compare", ".links li"),
        ("#/compare/both", ".chart .main-svg"),
        ("#/create", ".create"),
        ("#/nowhere", ".message h1"),
    ],
)
async def test_pages_are_accessible(
    service: Serving, visit: Opener, place: str, selector: str, scheme: str, width: int
) -> None:
    visit.expected = ("404",)
    page = await visit(service.url, place, scheme=scheme, width=width)
    await expect(page.locator(selector).first).to_be_visible()
    assert await violations(page) == []


@LOOKS
async def test_refused_and_scored_events_are_accessible(
    service: Serving, visit: Opener, scheme: str, width: int
) -> None:
    visit.expected = ("422",)
    page = await visit(service.url, "#/create", scheme=scheme, width=width)
    await page.locator(".create [type=submit]").press("Enter")
    await expect(page.locator(".trouble:visible").first).to_be_visible()
    assert await violations(page) == []
    page = await visit(service.url, "#/learners/fraud", scheme=scheme, width=width)
    for event, selector in (('{"x": [1]}', ".scoring [role=alert]"), ('{"x": [1, 2, 3, 4]}', ".result table")):
        await page.locator(".scoring textarea").fill(event)
        await page.locator(".scoring [type=submit]").press("Enter")
        await expect(page.locator(selector)).to_be_visible()
        assert await violations(page) == []


@LOOKS
async def test_dialogs_are_accessible(service: Serving, visit: Opener, scheme: str, width: int) -> None:
    page = await visit(service.url, "#/learners/fraud", scheme=scheme, width=width)
    actions = [f"[data-action={action}]" for action in ("threshold", "snapshot", "clone", "delete")]
    for button in (*actions, "[data-panel=snapshots] button"):
        await page.locator(button).first.press("Enter")
        await expect(page.get_by_role("dialog")).to_be_visible()
        if button == actions[0]:
            await expect(page.locator("dialog .outcomes")).to_be_visible()
        assert await violations(page) == [], button
        await page.keyboard.press("Escape")
    page = await visit(service.url, "#/compare", scheme=scheme, width=width)
    await page.locator(".title button").press("Enter")
    await expect(page.get_by_role("dialog")).to_be_visible()
    assert await violations(page) == []
