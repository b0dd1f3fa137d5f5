"""A learner's page of few events in a browser: axes, gaps, and a layout without holes at every width."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import Opener
from tests.browser.serving import T0, Serving

if TYPE_CHECKING:
    from playwright.async_api import Page

expect = pytest.importorskip("playwright.async_api").expect

PATIENCE = 60.0  # seconds that charts are waited for, on a busy machine

# Of each grid of charts, how far each row ends before the grid does, in pixels
HOLES = """() => [...document.querySelectorAll('.charts')].flatMap((grid) => {
  const rows = new Map();
  for (const one of grid.children) {
    const box = one.getBoundingClientRect();
    rows.set(Math.round(box.top), Math.max(rows.get(Math.round(box.top)) ?? 0, box.right));
  }
  return [...rows.values()].map((right) => Math.round(grid.getBoundingClientRect().right - right));
})"""


@pytest.fixture(scope="module")
def service(served: Serving) -> Serving:
    served.create("one")
    served.create("few")
    served.create("ranks", algorithm="npsvor", params={"ranks": 3})
    rows = [{"x": [i % 3, 0, 0, 1], "time": T0 + 0.2 * i, "label": i % 3 % 2} for i in range(4)]
    served.http.post("/learners/one/update", json={"events": rows[:1]}).raise_for_status()
    served.http.post("/learners/few/update", json={"events": rows}).raise_for_status()
    ranked = [{**row, "label": 1 + i % 3} for i, row in enumerate(rows)]
    served.http.post("/learners/ranks/update", json={"events": ranked}).raise_for_status()
    return served


async def see_all(page: Page) -> None:
    """Have every chart drawn: they are where they come into sight. Three have something to draw, of any learner."""
    await expect(page.locator(".tiles > div", has_text="Events learnt").locator("dd > span")).to_have_text(
        re.compile("[14]")
    )
    for one in await page.locator(".charts .chart").all():
        await one.scroll_into_view_if_needed()
        await expect(one.locator(".main-svg, .nothing:visible").first).to_be_visible()
    drawn = page.locator(".plot:not([hidden])").filter(has=page.locator(".xtick"))
    await expect(drawn.nth(2)).to_be_attached()


async def have_ticks(page: Page, pattern: str) -> None:
    """Wait until every tick of the charts over time reads so: they are drawn anew one after another, those in sight."""
    charts = page.locator(".charts").first
    until = time.monotonic() + PATIENCE
    while True:
        for one in await charts.locator(".chart").all():
            await one.scroll_into_view_if_needed()
        ticks = await charts.locator(".xtick text").all_text_contents()
        if ticks and all(re.match(pattern, tick) for tick in ticks):
            return
        assert time.monotonic() < until, ticks


@pytest.mark.parametrize("name", ["one", "few", "ranks"])
async def test_an_axis_of_few_events_counts_no_parts_of_seconds(service: Serving, visit: Opener, name: str) -> None:
    page = await visit(service.url, f"#/learners/{name}")
    await see_all(page)
    await have_ticks(page, r"\d\d:\d\d(:\d\d)?(?![\d.])")
    await page.locator("select[name=by]").select_option("labelled events")
    await have_ticks(page, r"\d+$")


@pytest.mark.parametrize("name", ["one", "few", "ranks"])
async def test_nothing_is_drawn_where_nothing_is(service: Serving, visit: Opener, name: str) -> None:
    page = await visit(service.url, f"#/learners/{name}")
    await see_all(page)
    drawn = await page.evaluate(
        "() => [...document.querySelectorAll('.plot')].filter((one) => one.data && !one.hidden)"
        ".flatMap((one) => one.data.map(({y}) => [...y].filter(Number.isFinite).length))"
    )
    assert len(drawn) >= 3
    assert 0 not in drawn


@pytest.mark.parametrize("width", [1440, 1200, 1024, 800, 390])
@pytest.mark.parametrize("name", ["few", "ranks"])
async def test_the_charts_leave_no_hole(service: Serving, visit: Opener, name: str, width: int) -> None:
    page = await visit(service.url, f"#/learners/{name}", width=width)
    await expect(page.locator(".charts .chart").first).to_be_visible()
    holes = await page.evaluate(HOLES)
    assert holes
    assert max(holes) <= 1, holes
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize(("width", "bar"), [(1440, 0.45), (390, 0.3)])
async def test_names_of_weights_have_the_room_that_numbers_and_bars_leave(
    service: Serving, visit: Opener, width: int, bar: float
) -> None:
    """The number has what the longest needs, -8.12e-11; on a telephone the bar is short, so that names have a line."""
    page = await visit(service.url, "#/learners/few", width=width)
    row = page.locator(".bars tbody tr").first
    await expect(row).to_be_visible()
    name, number, drawn = await row.evaluate("row => [...row.cells].map((one) => one.getBoundingClientRect().width)")
    assert abs(number - 76) < 1
    assert abs(drawn / (name + number + drawn) - bar) < 0.01
