"""Layout in a browser: pages of few events, axes and gaps; no holes, and nothing cut off, at every width."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.dashboard.conftest import Opener
from tests.dashboard.serving import T0, Serving
from tests.harness.waiting import eventually_async

if TYPE_CHECKING:
    from playwright.async_api import Page

expect = pytest.importorskip("playwright.async_api").expect

pytestmark = pytest.mark.integration


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
    await expect(page.locator(".tiles [data-key='/events'] dd > span")).to_have_text(re.compile("[14]"))
    for item in await page.locator(".charts .chart").all():
        await item.scroll_into_view_if_needed()
        await expect(item.locator(".main-svg, .nothing:visible").first).to_be_visible()
    has_plots = page.locator(".plot:not([hidden])").filter(has=page.locator(".xtick"))
    await expect(has_plots.nth(2)).to_be_attached()


async def have_ticks(page: Page, pattern: str) -> None:
    """Wait until every tick of the charts over time reads so: they are drawn anew one after another, those in sight."""
    charts = page.locator(".charts").first

    async def has_plots() -> bool:
        for item in await charts.locator(".chart").all():
            await item.scroll_into_view_if_needed()
        ticks = await charts.locator(".xtick text").all_text_contents()
        return bool(ticks) and all(re.match(pattern, tick) for tick in ticks)

    await eventually_async(has_plots, pattern)


@pytest.mark.parametrize("name", ["one", "few", "ranks"])
@pytest.mark.campaign
async def test_axis_ticks_of_few_events_are_whole_seconds(service: Serving, visit: Opener, name: str) -> None:
    page = await visit(service.url, f"#/learners/{name}")
    await see_all(page)
    await have_ticks(page, r"\d\d:\d\d(:\d\d)?(?![\d.])")
    await page.locator("select[name=by]").select_option("events")
    await have_ticks(page, r"\d+$")


@pytest.mark.parametrize("name", ["one", "few", "ranks"])
@pytest.mark.campaign
async def test_empty_charts_draw_nothing(service: Serving, visit: Opener, name: str) -> None:
    page = await visit(service.url, f"#/learners/{name}")
    await see_all(page)
    has_plots = await page.evaluate(
        "() => [...document.querySelectorAll('.plot')].filter((one) => one.data && !one.hidden)"
        ".flatMap((one) => one.data.map(({y}) => [...y].filter(Number.isFinite).length))"
    )
    assert len(has_plots) >= 3
    assert 0 not in has_plots


@pytest.mark.parametrize("width", [1440, 1200, 1024, 800, 390])
@pytest.mark.parametrize("name", ["few", "ranks"])
@pytest.mark.campaign
async def test_the_charts_leave_no_gaps(service: Serving, visit: Opener, name: str, width: int) -> None:
    page = await visit(service.url, f"#/learners/{name}", width=width)
    await expect(page.locator(".charts .chart").first).to_be_visible()
    holes = await page.evaluate(HOLES)
    assert holes
    assert max(holes) <= 1, holes
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize(("width", "bar"), [(1440, 0.45), (390, 0.3)])
async def test_weight_names_fill_the_space_beside_numbers_and_bars(
    service: Serving, visit: Opener, width: int, bar: float
) -> None:
    """The number has what the longest needs, -8.12e-11; on a telephone the bar is short, so that names have a line."""
    page = await visit(service.url, "#/learners/few", width=width)
    row = page.locator(".bars tbody tr").first
    await expect(row).to_be_visible()
    name, number, has_plots = await row.evaluate(
        "row => [...row.cells].map((one) => one.getBoundingClientRect().width)"
    )
    assert abs(number - 76) < 1
    assert abs(has_plots / (name + number + has_plots) - bar) < 0.01


@pytest.mark.parametrize("width", [1440, 390])
async def test_the_longest_names_fit_the_window_width(service: Serving, visit: Opener, width: int) -> None:
    learner, group = "x" * 100, "y" * 100
    service.create(learner)
    service.http.put(f"/groups/{group}", json={"learners": ["few", learner]}).raise_for_status()
    page = await visit(service.url, width=width)
    for place, selector in (
        ("#/", f".group:has-text('{group}') .finding"),
        ("#/compare", f".links li:has-text('{group}') .finding"),
        (f"#/compare/{group}", ".pairs tbody th"),
        (f"#/compare/{group}", ".legend li:nth-child(2)"),
        (f"#/learners/{learner}", ".tiles dd"),
    ):
        await page.goto(f"{service.url}/{place}")
        await expect(page.locator(selector).first).to_be_visible()
        widths = "[document.documentElement, ...document.querySelectorAll('.scrolls')]"
        over = await page.evaluate(f"{widths}.map((one) => one.scrollWidth - one.clientWidth)")
        assert max(over) <= 0, (place, over)
    await page.locator("[data-action=delete]").click()
    dialog = page.get_by_role("dialog")
    assert await dialog.evaluate("one => one.scrollWidth <= one.clientWidth")


async def test_an_empty_comparison_has_no_scale(service: Serving, visit: Opener) -> None:
    service.http.put("/groups/idle", json={"learners": ["one", "few"]}).raise_for_status()
    page = await visit(service.url, "#/compare/idle")
    await expect(page.locator(".intervals tbody tr").first).to_be_visible()
    await expect(page.locator(".scale")).to_have_text(["", ""])
    service.feed("groups/idle", 60)
    await expect(page.locator(".scale").first).to_have_text(re.compile(r"^0\.\d\d\d*\.\d\d$"))
    low, high = await page.locator(".scale").first.locator("span").all_inner_texts()
    assert float(low) < float(high)


async def test_the_live_operating_point_is_fully_visible_at_the_chart_edge(service: Serving, visit: Opener) -> None:
    """A recall of 1 is at the upper edge, where the part of a mark above the axis was cut off."""
    page = await visit(service.url, "#/learners/few")
    figure = page.locator("figure[data-chart=roc]")
    await figure.scroll_into_view_if_needed()
    point = figure.locator(".scatterlayer .point")
    await expect(point).to_have_count(1)
    clipped = "one => { const all = []; for (; one !== null; one = one.parentElement) all.push(one); return all"
    clipped += ".filter((part) => getComputedStyle(part).clipPath !== 'none').length; }"
    assert await point.evaluate(clipped) == 0
