"""The panel of segments in a browser: values as rows, other fields by choice and by a change of the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.dashboard.conftest import Opener
from tests.dashboard.serving import Serving

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page

expect = pytest.importorskip("playwright.async_api").expect

pytestmark = pytest.mark.integration

NAMED = {"kind": "named", "bits": 10}
COUNTRIES = ["DE", "<b>FR</b>", "日本", None]


@pytest.fixture(scope="module")
def service(served: Serving) -> Serving:
    served.create("fraud", features=NAMED, algorithm="lr", figures={"segments": ["country", "shop"]})
    served.create("plain", features=NAMED, algorithm="lr")
    events = [
        {
            "features": {"amount": i * 7 % 11, "country": COUNTRIES[i % 4], "shop": f"s{i % 30}"},
            "label": int(i * 7 % 11 > 7),
        }
        for i in range(800)
    ]
    for name in ("fraud", "plain"):
        served.http.post(f"/learners/{name}/update", json={"events": events}).raise_for_status()
    return served


def panel(page: Page) -> Locator:
    return page.locator("[data-panel=segments]")


async def test_each_value_is_a_row_with_intervals(service: Serving, visit: Opener) -> None:
    reply: dict[str, Any] = service.http.get("/learners/fraud/segments", params={"by": "country"}).json()
    page = await visit(service.url, "#/learners/fraud")
    rows = panel(page).locator("tbody tr")
    names = [row["value"] for row in reply["segments"]]
    await expect(rows.locator("th")).to_have_text(["whole window", *names, "no value"])
    for i, row in enumerate([reply["all"], *reply["segments"], reply["missing"]]):
        cells = rows.nth(i).locator("td")
        await expect(cells.nth(0)).to_have_text(str(row["events"]))
        await expect(cells.nth(1)).to_have_text(str(row["class_counts"]["positive"]))
        low, high = row["auc_interval"] or (None, None)
        expected = f"{row['auc']:.3f}" + ("" if low is None else f" {low:.3f} to {high:.3f}")
        await expect(cells.nth(2)).to_have_text(expected)


async def test_another_field_is_chosen_and_small_values_are_pooled(service: Serving, visit: Opener) -> None:
    page = await visit(service.url, "#/learners/fraud")
    choice = panel(page).get_by_label("Segment field")
    await choice.select_option("shop")
    rows = panel(page).locator("tbody tr")
    await expect(rows).to_have_count(22)  # the window, 20 values, the others
    await expect(rows.nth(21).locator("th")).to_have_text("all other values")
    settings = {"figures": {"segments": ["country"]}}
    service.http.patch("/learners/fraud", json=settings).raise_for_status()
    await expect(choice.locator("option")).to_have_text(["country"])
    await expect(rows.nth(1).locator("th")).to_have_text("<b>FR</b>")  # as many events as DE


async def test_a_learner_without_segment_fields_has_no_panel(service: Serving, visit: Opener) -> None:
    page = await visit(service.url, "#/learners/plain")
    await expect(page.locator("[data-panel=thresholds]")).to_be_visible()
    await expect(panel(page)).to_be_hidden()
