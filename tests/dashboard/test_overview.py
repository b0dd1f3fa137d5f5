"""The overview in a browser: every learner in one table, live, sorted, filtered, grouped."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.dashboard.conftest import Opener
from tests.dashboard.replies import replying
from tests.dashboard.serving import Serving, Stream
from tests.docs.consoles import Console

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page

expect = pytest.importorskip("playwright.async_api").expect

pytestmark = pytest.mark.integration

MANY = 30
NOTHING = "\N{EN DASH}"  # stands for what is undefined
NONE = ".message:has([data-command])"  # that there are no learners, and how to create one


@pytest.fixture(scope="module")
def learners(served: Serving) -> Serving:
    for name, count in (("alpha", 600), ("beta", 900)):
        served.create(name, window=1000)
        served.feed(f"learners/{name}", count)
    served.create("fresh", algorithm="fofo")
    served.create("negative")
    rows = [{"x": [0, 0, 0, 1], "label": 0} for _ in range(20)]
    served.http.post("/learners/negative/update", json={"events": rows}).raise_for_status()
    served.create("ranks", algorithm="npsvor", params={"ranks": 3})
    rows = [{"x": [i % 3, 0, 0, 1], "label": i % 3 + 1} for i in range(90)]
    served.http.post("/learners/ranks/update", json={"events": rows}).raise_for_status()
    return served


def row(page: Page, name: str) -> Locator:
    return page.get_by_role("row").filter(has=page.get_by_role("link", name=name, exact=True))


def cell(page: Page, name: str, column: str) -> Locator:
    return row(page, name).locator(f"[data-column={column}]")


async def expect_undefined(cell: Locator) -> None:
    """Expect no number in a cell, but a reason."""
    await expect(cell.locator("span")).to_have_text(NOTHING)
    await expect(cell.locator("small")).not_to_be_empty()


async def names(page: Page) -> list[str]:
    return await page.locator(".overview tbody th a").all_inner_texts()


async def test_rows_show_metrics_and_reasons_for_undefined_ones(learners: Serving, visit: Opener) -> None:
    page = await visit(learners.url)
    figures = learners.http.get("/learners/alpha/metrics").json()
    window = figures["window"]
    await expect(cell(page, "alpha", "auc")).to_have_text(
        f"{window['auc']:.3f}{window['auc_interval'][0]:.3f} to {window['auc_interval'][1]:.3f}"
    )
    await expect(cell(page, "alpha", "f1")).to_have_text(f"{window['f1']:.3f}")
    await expect(cell(page, "alpha", "positives")).to_have_text("6010 %")
    await expect(cell(page, "alpha", "algorithm")).to_have_text("loam-ada")
    await expect(cell(page, "alpha", "drift").locator("small")).to_be_empty()  # where an alarm has its time
    await expect(cell(page, "alpha", "trend").get_by_role("img")).to_have_attribute(
        "aria-label", re.compile(rf"\b{window['auc']:.3f}$")
    )
    await expect(cell(page, "alpha", "trend").locator("path.line")).to_have_attribute("d", re.compile("^M.*L"))

    await expect_undefined(cell(page, "negative", "auc"))  # not 0
    await expect(row(page, "fresh")).to_have_attribute("data-state", "trouble")  # not ready
    for name in ("fresh", "negative"):  # nor the threshold that nothing has been learnt of
        await expect_undefined(cell(page, name, "threshold"))
    fresh = learners.http.get("/learners/fresh/metrics").json()["undefined"]
    await expect(cell(page, "fresh", "threshold")).to_have_attribute("title", fresh["/threshold"])
    await expect(cell(page, "fresh", "trend").get_by_text(NOTHING)).to_have_attribute("title", fresh["/window/auc"])
    await expect(cell(page, "fresh", "trend").get_by_role("img")).to_be_hidden()
    await expect(cell(page, "alpha", "trend").get_by_text(NOTHING)).to_be_hidden()
    await expect_undefined(cell(page, "alpha", "delay"))
    await expect(cell(page, "ranks", "auc").locator("span")).to_have_text(re.compile(r" 0\.\d{3}$"))
    await expect(page.locator(".found")).to_have_text(re.compile(r"^5\b"))


async def test_rows_update_in_place_while_a_stream_runs(learners: Serving, visit: Opener) -> None:
    page = await visit(learners.url)
    link = row(page, "alpha").get_by_role("link")
    await link.focus()
    handle = await row(page, "alpha").element_handle()
    before = await cell(page, "alpha", "positives").inner_text()
    with Stream(learners, "learners/alpha"):
        await expect(cell(page, "alpha", "positives")).not_to_have_text(before.replace("\n", ""))
        await expect(cell(page, "alpha", "rate")).to_have_text(re.compile("^[1-9]"))
    await expect(cell(page, "alpha", "rate")).to_have_text("0")  # though no event says so
    assert await handle.evaluate("row => row.isConnected")  # the same element, brought up to date
    await expect(link).to_be_focused()


async def test_a_rate_that_needs_a_second_poll_is_shown_as_counting(learners: Serving, visit: Opener) -> None:
    visit.replies["**/v1/stream"] = replying({"detail": "none", "code": "too-many-streams"}, status=429)
    visit.expected = ("429",)
    page = await visit(learners.url, "#/compare")
    await expect(page.locator("#connection")).to_have_attribute("data-state", "live")
    await page.clock.install()
    await page.clock.pause_at(await page.evaluate("Date.now() + 1000"))
    await page.locator("[data-page=overview]").click()
    await expect_undefined(cell(page, "alpha", "rate"))
    await page.clock.run_for(2100)  # to the next poll
    await expect(cell(page, "alpha", "rate")).to_have_text("0")


async def test_sort_and_filter_are_stored_in_the_url(learners: Serving, visit: Opener) -> None:
    page = await visit(learners.url)
    head = page.locator("th[data-column=positives]")
    await expect(page.locator("thead [data-column=name]")).to_have_attribute("aria-sort", "ascending")
    await head.get_by_role("button").click()
    await expect(head).to_have_attribute("aria-sort", "descending")
    assert (await names(page))[-1] == "ranks"  # that has none stands last, whichever way
    assert page.url.endswith("#/?sort=positives&order=down")
    await page.get_by_role("searchbox").fill("loam")
    await expect(page.locator(".overview tbody tr")).to_have_count(3)
    await page.locator("[name=state]").select_option("unready")
    assert await names(page) == ["negative"]

    await page.reload()
    await expect(page.get_by_role("searchbox")).to_have_value("loam")
    await expect(page.locator(".overview tbody tr")).to_have_count(1)
    await expect(head).to_have_attribute("aria-sort", "descending")

    await page.get_by_role("searchbox").fill("no such thing")
    await expect(page.locator(".listed .message")).to_be_visible()
    await expect(head).to_be_hidden()
    await page.locator(".listed .message button").click()
    await expect(page.locator(".overview tbody tr")).to_have_count(5)
    assert page.url.endswith("#/?sort=positives&order=down")


async def test_a_moving_row_keeps_the_focus(learners: Serving, visit: Opener) -> None:
    for name, count in (("focus-a", 50), ("focus-b", 20), ("focus-c", 10)):
        learners.create(name)
        learners.feed(f"learners/{name}", count)
    page = await visit(learners.url, "#/?q=focus&sort=positives&order=down")
    for moved, order in (
        ("focus-c", ["focus-c", "focus-a", "focus-b"]),
        ("focus-a", ["focus-a", "focus-c", "focus-b"]),
    ):
        await row(page, "focus-c").get_by_role("link").focus()
        learners.feed(f"learners/{moved}", 200)
        await expect(page.locator(".overview tbody th a")).to_have_text(order)
        await expect(row(page, "focus-c").get_by_role("link")).to_be_focused()
    for name in ("focus-a", "focus-b", "focus-c"):
        learners.http.delete(f"/learners/{name}").raise_for_status()


async def test_a_narrow_screen_has_a_field_for_the_sort_order(learners: Serving, visit: Opener) -> None:
    page = await visit(learners.url, width=390)
    order = page.locator("[name=sort]")
    await expect(order).to_have_value("name up")
    await order.select_option("auc down")
    assert page.url.endswith("#/?sort=auc&order=down")
    await expect_undefined(cell(page, "ranks", "alerts"))  # not without a reason


async def test_one_stream_serves_any_number_of_learners(learners: Serving, visit: Opener) -> None:
    names = [f"many-{i}" for i in range(MANY)]
    page = await visit(learners.url)
    rows = page.locator(".overview tbody tr")
    await expect(rows).to_have_count(5)
    for name in names:
        learners.create(name)
    try:
        await expect(rows).to_have_count(5 + MANY)  # what comes appears
        positives = cell(page, "many-3", "positives")
        await expect(positives).to_have_text(re.compile(r"^0\D+$"))
        learners.feed("learners/many-3", 20)
        await expect(positives).to_have_text("210 %")
    finally:
        for name in names:
            learners.http.delete(f"/learners/{name}").raise_for_status()
    await expect(rows).to_have_count(5)  # what is deleted leaves
    paths = [path for path in visit.requests if path.startswith("/v1")]
    assert sorted(paths) == ["/v1/key", "/v1/stream"]


async def test_what_is_wrong_with_the_store_is_above_the_table(learners: Serving, visit: Opener) -> None:
    learners.create("lost")
    page = await visit(learners.url)
    trouble = page.locator(".trouble[role=alert]")
    await expect(row(page, "lost")).to_be_visible()
    await expect(trouble).to_be_hidden()
    with closing(sqlite3.connect(learners.database)) as database, database:
        database.execute("DELETE FROM learner WHERE name = 'lost'")
    await expect(trouble).to_contain_text("learners or groups that cannot be recovered: 1")
    await expect(row(page, "lost")).to_contain_text("vanished from the store")
    learners.http.delete("/learners/lost").raise_for_status()
    await expect(trouble).to_be_hidden()


async def test_groups_are_shown_side_by_side(learners: Serving, visit: Opener) -> None:
    learners.http.put("/groups/both", json={"learners": ["alpha", "beta"]}).raise_for_status()
    page = await visit(learners.url)
    group = page.locator(".group")
    await expect(group.get_by_role("listitem")).to_have_count(2)
    auc = learners.http.get("/learners/beta/metrics").json()["window"]["auc"]
    await expect(group.get_by_role("listitem").nth(1)).to_have_text(f"beta{auc:.3f}")
    await group.get_by_role("link", name="both").click()
    await expect(page.get_by_role("heading", name="both")).to_be_visible()
    learners.http.delete("/groups/both").raise_for_status()


async def test_a_verdict_contradicted_by_the_windows_is_flagged(learners: Serving, visit: Opener) -> None:
    learners.http.put("/groups/both", json={"learners": ["alpha", "beta"]}).raise_for_status()
    rows = learners.http.get("/learners?figures=true").json()
    auc = {row["name"]: row["window"].get("auc") for row in rows["learners"]}
    better, other = sorted(("alpha", "beta"), key=lambda name: auc[name])  # the better one is behind by now
    groups = learners.http.get("/groups?tests=true").json()
    test = {"a": better, "b": other, "verdict": "a", "evidence": {"a_better": 9.0, "b_better": 0.0}}
    groups["groups"][0] |= {"events": 500, "tests": [test | {"since_events": 400, "since_clock": None}]}
    visit.replies["**/stream"] = replying({"detail": "none", "code": "too-many-streams"}, status=429)
    visit.replies["**/groups?tests=true"] = replying(groups)
    visit.expected = ("429",)
    page = await visit(learners.url)
    finding = page.locator(".group .finding[data-state=decided]")
    behind = f"{auc[other] - auc[better]:.4f}"
    await expect(finding).to_have_text(re.compile(rf"^{better}\b.*\b{other}\b.* to 1;.*\b400\b.*\b{behind}\.$"))
    learners.http.delete("/groups/both").raise_for_status()


@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("place", ["#/", "#/learners/alpha", "#/compare", "#/create", "#/nowhere"])
@pytest.mark.campaign
async def test_everything_fits_the_screen_width(learners: Serving, visit: Opener, place: str, width: int) -> None:
    page = await visit(learners.url, place, width=width, scheme="dark")
    await expect(page.get_by_role("heading").first).to_be_attached()
    if place != "#/nowhere":
        await expect(page.locator("#connection")).to_have_attribute("data-state", "live")
    assert await page.evaluate("document.documentElement.scrollWidth") <= width


async def test_the_keyboard_reaches_everything(learners: Serving, visit: Opener) -> None:
    page = await visit(learners.url)
    await expect(row(page, "alpha")).to_be_visible()
    await page.keyboard.press("Tab")
    await expect(page.locator("a.skip")).to_be_focused()
    links = page.get_by_role("banner").get_by_role("link")
    await expect(links).to_have_count(5)  # of the brand, three pages and the API
    for link in await links.all():
        await page.keyboard.press("Tab")
        await expect(link).to_be_focused()
    outline = await page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    await page.locator("th[data-column=rate]").get_by_role("button").focus()
    await page.keyboard.press("Enter")
    await expect(page.locator("th[data-column=rate]")).to_have_attribute("aria-sort", "descending")
    await row(page, "beta").get_by_role("link").focus()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="beta", level=1)).to_be_visible()
    await expect(page.locator("main")).to_be_focused()  # a screen reader begins with the new page
    assert await page.title() == f"beta {NOTHING} rarestream"


async def test_an_empty_list_is_reported_after_the_first_reply(
    tmp_path_factory: pytest.TempPathFactory, visit: Opener
) -> None:
    """For who starts a service and asks for learners at once, as the demo does, the page is there before these are."""
    with Serving(tmp_path_factory.mktemp("starting")) as serving:
        page = await visit(serving.url, "#/compare")
        await expect(page.locator("#connection")).to_have_attribute("data-state", "live")
        await page.clock.install()
        await page.clock.pause_at(await page.evaluate("Date.now() + 1000"))
        await page.locator("[data-page=overview]").click()
        nothing, looking = page.locator(NONE), page.locator(".message[data-state=looking]")
        await expect(looking).to_be_visible()
        await page.clock.run_for(1400)
        await expect(looking).to_be_visible()
        await expect(nothing).to_be_hidden()
        await page.clock.run_for(200)
        await expect(nothing).to_be_visible()
        await expect(looking).to_be_hidden()

        await page.locator("[data-page=compare]").click()
        await page.locator("[data-page=overview]").click()
        await expect(looking).to_be_visible()
        serving.create("first")
        await expect(row(page, "first")).to_be_visible()
        await expect(looking).to_be_hidden()
        await page.close()  # before the service ends, which breaks its stream off


async def test_without_learners_the_page_explains_how_to_create_one(
    tmp_path_factory: pytest.TempPathFactory, visit: Opener
) -> None:
    console = Console(tmp_path_factory.mktemp("console"))
    with Serving(tmp_path_factory.mktemp("empty")) as serving:
        page = await visit(serving.url)
        await expect(page.locator(NONE)).to_be_visible()
        await expect(page.locator("pre[data-command=curl]")).to_contain_text(f"{serving.url}/v1/learners/fraud")
        await expect(page.locator(f"{NONE} a[href='#/create']")).to_be_visible()
        for program in ("curl", "rarestream"):  # as they are shown, one after the other
            command = await page.locator(f"pre[data-command={program}]").inner_text()
            await asyncio.to_thread(console.run, command)
            await expect(row(page, "fraud")).to_be_visible()  # by itself
            await expect(page.locator(NONE)).to_be_hidden()
            assert serving.http.delete("/learners/fraud").status_code == 204
            await expect(page.locator(NONE)).to_be_visible()
        await page.close()  # before the service ends, which breaks its stream off
