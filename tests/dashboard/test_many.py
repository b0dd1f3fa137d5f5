"""The overview of five hundred learners in a browser: all are shown, sorted and filtered, by one stream."""

from __future__ import annotations

import re

import pytest

from tests.dashboard.conftest import Opener
from tests.dashboard.serving import Serving, events

pytestmark = [pytest.mark.integration, pytest.mark.campaign]

expect = pytest.importorskip("playwright.async_api").expect

MANY = 500
LONG = 180_000  # milliseconds: on a busy machine the rows take their time


@pytest.fixture(scope="module")
def many(served: Serving) -> Serving:
    algorithms = ("loam-ada", "fofo", "cbr-diag", "oam")
    for number in range(MANY):
        name = f"tenant-{number:03}"
        served.create(name, algorithm=algorithms[number % len(algorithms)])
        if number % 5:  # every fifth has met nothing yet
            body = {"events": events(number, number + 60 + number % 40)}
            served.http.post(f"/learners/{name}/update", json=body).raise_for_status()
    return served


async def test_the_overview_handles_five_hundred_learners(many: Serving, visit: Opener) -> None:
    page = await visit(many.url)
    rows = page.locator(".overview tbody tr")
    await expect(rows).to_have_count(MANY, timeout=LONG)
    matches = page.locator(".found")
    await expect(matches).to_have_text(re.compile(rf"^{MANY}\b"))
    first = rows.filter(has=page.get_by_role("link", name="tenant-001", exact=True))
    await expect(first.locator("[data-column=auc] span")).to_have_text(re.compile(r"^[01]\.\d{3}$"))

    # what moves is shown, and nothing more is asked for
    positives = first.locator("[data-column=positives]")
    before = await positives.inner_text()
    body = {"events": events(1000, 1040)}
    many.http.post("/learners/tenant-001/update", json=body).raise_for_status()
    await expect(positives).not_to_have_text(before.replace("\n", ""), timeout=LONG)
    assert sorted(path for path in visit.requests if path.startswith("/v1")) == ["/v1/key", "/v1/stream"]

    # sorted: those without an AUC are last, whichever way
    listed = many.http.get("/learners", params={"figures": True}).json()["learners"]
    aucs = {row["name"]: row["window"]["auc"] for row in listed if row["window"]["auc"] is not None}
    assert 300 < len(aucs) < MANY
    names = page.locator(".overview tbody th a")
    for best in (min, max):
        await page.locator(".overview th[data-column=auc] button").click()
        await expect(names.first).to_have_text(
            min(name for name, auc in aucs.items() if auc == best(aucs.values())), timeout=LONG
        )
        texts = await names.all_inner_texts()
        figures = [aucs[name] for name in texts[: len(aucs)]]
        assert figures == sorted(figures, reverse=best is max)
        assert not aucs.keys() & set(texts[len(aucs) :])

    # filtered
    await page.get_by_role("searchbox").fill("tenant-12")
    await expect(rows).to_have_count(10, timeout=LONG)
    await expect(matches).to_have_text(re.compile(rf"^10\b.*\b{MANY}\b"))
    await page.get_by_role("searchbox").fill("")
    await page.locator("[name=algorithm]").select_option("fofo")
    await expect(rows).to_have_count(MANY // 4, timeout=LONG)
    await page.locator("[name=state]").select_option("unready")
    await expect(rows).to_have_count(MANY // 20, timeout=LONG)
    assert page.url.endswith("algorithm=fofo&state=unready")
