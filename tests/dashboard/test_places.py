"""Addresses in a browser: what they keep, what names no page, and what names a learner or group that is not there."""

from __future__ import annotations

import re

import pytest

from tests.dashboard.conftest import Opener
from tests.dashboard.replies import replying
from tests.dashboard.serving import T0, Serving

expect = pytest.importorskip("playwright.async_api").expect

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def service(served: Serving) -> Serving:
    for name in ("fraud", "other"):
        served.create(name, window=1000)
    served.http.put("/groups/both", json={"learners": ["fraud", "other"]}).raise_for_status()
    served.feed("groups/both", 900)
    return served


async def test_the_skip_link_keeps_the_url(service: Serving, visit: Opener) -> None:
    page = await visit(service.url, "#/learners/fraud?by=events&from=500&to=900")
    await expect(page.get_by_role("heading", name="fraud", level=1)).to_be_visible()
    await page.keyboard.press("Tab")
    await expect(page.locator("a.skip")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.locator("main")).to_be_focused()
    assert page.url.endswith("#/learners/fraud?by=events&from=500&to=900")
    await page.reload()
    await expect(page.get_by_role("heading", name="fraud", level=1)).to_be_visible()


@pytest.mark.parametrize("place", ["#main", "#/nowhere", "#learners"])
async def test_an_unknown_url_is_reported(service: Serving, visit: Opener, place: str) -> None:
    page = await visit(service.url, place)
    await expect(page.locator(".message h1")).to_be_visible()
    await expect(page.locator("#connection")).to_be_hidden()  # "connecting" would be for good
    await page.locator(".message a").click()
    await expect(page.get_by_role("row", name="fraud")).to_be_visible()
    await expect(page.locator("#connection[data-state=live]")).to_be_visible()


async def test_the_back_link_restores_the_overview(service: Serving, visit: Opener) -> None:
    page = await visit(service.url, "#/?q=frau")
    await page.locator("th[data-column=positives]").get_by_role("button").click()
    await page.get_by_role("row", name="fraud").get_by_role("link").click()
    await page.locator(".title a").click()
    await expect(page.locator("th[data-column=positives]")).to_have_attribute("aria-sort", "descending")
    await expect(page.get_by_role("searchbox")).to_have_value("frau")
    await expect(page.locator(".overview tbody tr")).to_have_count(1)
    assert page.url.endswith("#/?q=frau&sort=positives&order=down")


async def test_dialogs_close_on_navigation(service: Serving, visit: Opener) -> None:
    page = await visit(service.url)
    await page.get_by_role("row", name="fraud").get_by_role("link").click()
    await page.locator("[data-action=delete]").click()
    await expect(page.get_by_role("dialog")).to_be_visible()
    await page.go_back()
    await expect(page.get_by_role("row", name="fraud")).to_be_visible()
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await page.get_by_role("row", name="other").get_by_role("link").click()  # nothing is in the way
    await expect(page.get_by_role("heading", name="other", level=1)).to_be_visible()


async def test_the_next_page_requests_the_key_again(service: Serving, visit: Opener) -> None:
    visit.replies["**/v1/**"] = replying({"detail": "a key is needed", "code": "unauthorized"}, status=401)
    visit.expected = ("401",)
    page = await visit(service.url, "#/compare")
    dialog = page.locator("dialog.key")
    await expect(dialog).to_be_visible()
    await page.evaluate("document.querySelector('dialog').dataset.first = 'yes'")
    await page.evaluate("location.hash = '#/learners/fraud'")
    await expect(page.get_by_role("heading", name="fraud", level=1)).to_be_attached()
    await expect(dialog).to_have_count(1)
    await expect(page.locator("dialog[data-first]")).to_have_count(0)  # it is another one
    await page.keyboard.press("Escape")
    await expect(dialog).to_have_count(0)


async def test_a_missing_learner_is_polled_rarely_until_it_exists(service: Serving, visit: Opener) -> None:
    visit.expected = ("404",)
    page = await visit(service.url, "#/learners/later")
    missing = page.locator(".message h1")
    await expect(missing).to_contain_text("later")
    await expect(page.locator("#connection[data-state=live]")).to_be_visible()  # the service answers
    await page.clock.install()
    await page.clock.run_for(10_000)
    requests = visit.requests.count("/v1/learners/later")
    assert requests <= 2
    service.create("later")
    service.feed("learners/later", 40)
    await page.evaluate("dispatchEvent(new Event('online'))")  # asks at once
    await expect(page.get_by_role("heading", name="later", level=1)).to_be_visible()
    events = page.locator(".tiles [data-key='/events'] dd > span")
    await expect(events).to_have_text("40")
    await expect(missing).to_have_count(0)


async def test_a_recreated_learner_is_shown_again(service: Serving, visit: Opener) -> None:
    visit.expected = ("404",)
    service.create("again")
    service.feed("learners/again", 20)
    page = await visit(service.url, "#/learners/again")
    events = page.locator(".tiles [data-key='/events'] dd > span")
    await expect(events).to_have_text("20")
    service.http.delete("/learners/again").raise_for_status()
    missing = page.locator(".message h1")
    await expect(missing).to_contain_text("again")
    service.create("again")
    body = {"events": [{"x": [0, 0, 0, 1], "label": 0}] * 3}
    service.http.post("/learners/again/update", json=body).raise_for_status()
    await page.evaluate("dispatchEvent(new Event('online'))")  # asks at once
    await expect(events).to_have_text("3")
    await expect(missing).to_have_count(0)


async def test_a_missing_group_is_polled_rarely(service: Serving, visit: Opener) -> None:
    visit.expected = ("404",)
    page = await visit(service.url, "#/compare/later")
    await expect(page.locator(".message")).to_contain_text("later")
    await expect(page.locator("#connection[data-state=live]")).to_be_visible()
    await page.clock.install()
    await page.clock.run_for(10_000)
    assert len([path for path in visit.requests if path.startswith("/v1/groups/later")]) <= 2


async def test_the_range_of_a_comparison_is_stored_in_the_url(service: Serving, visit: Opener) -> None:
    page = await visit(service.url, "#/compare/both")
    plot = page.locator(".chart .nsewdrag").first
    await plot.scroll_into_view_if_needed()
    box = await plot.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    await page.mouse.move(box["x"] + 0.3 * box["width"], middle)
    await page.mouse.down()
    await page.mouse.move(box["x"] + 0.6 * box["width"], middle, steps=5)
    await page.mouse.up()
    await expect(page).to_have_url(re.compile(r"#/compare/both\?from=\d+&to=\d+$"))
    ticks = page.locator(".chart .xtick text")
    labels = sorted(await ticks.all_text_contents())
    await page.reload()
    await expect(page.locator(".chart .main-svg").first).to_be_visible()
    await expect(ticks).to_have_count(len(labels))
    assert sorted(await ticks.all_text_contents()) == labels
    await page.locator(".range button").last.click()
    await expect(page).to_have_url(re.compile(r"#/compare/both$"))
    await expect(ticks.filter(has_text="11:00")).to_have_count(1)  # far beyond what was chosen


@pytest.mark.parametrize(
    ("query", "text"),  # in the reader's zone
    [
        ("from=2026-01-01T02:00:00Z", "11:00:00 to 11:2.:.."),
        (f"to={T0 + 1800:.0f}", "09:..:.. to 09:30:00"),
        ("from=2026-01-01T00:30:00Z&to=2026-01-01T01:00:00Z", "09:30:00 to 10:00:00"),
    ],
)
async def test_a_comparison_accepts_the_same_bounds_as_a_learner(
    service: Serving, visit: Opener, query: str, text: str
) -> None:
    page = await visit(service.url, f"#/compare/both?{query}")
    await page.locator(".chart").scroll_into_view_if_needed()
    await expect(page.locator(".chart .xtick text").first).to_be_visible()
    ends = await page.evaluate("document.querySelector('.js-plotly-plot').layout.xaxis.range")
    assert re.fullmatch(text, " to ".join(end[11:] for end in ends)), ends
    await expect(page.locator(".chart").get_by_role("status")).to_have_text("")
    await page.locator(".range button").last.click()
    await expect(page).to_have_url(re.compile(r"#/compare/both$"))


async def test_ignored_url_parameters_are_reported(service: Serving, visit: Opener) -> None:
    page = await visit(service.url, "#/compare/both?by=bogus&from=yesterday&to=1e20")
    await expect(page.locator(".chart").get_by_role("status")).to_have_text(re.compile("bogus.*yesterday.*1e20"))
    await page.locator(".range button").last.click()
    await expect(page).to_have_url(re.compile(r"#/compare/both$"))
    await expect(page.locator(".chart").get_by_role("status")).to_have_text("")

    overview = await visit(service.url, "#/?sort=nonsense&order=sideways&state=nope&algorithm=zzz")
    note = overview.locator(".tools .unread")
    await expect(note).to_have_text(re.compile("zzz.*nope.*nonsense.*sideways"))
    for name in ("fraud", "other"):  # all are shown
        await expect(overview.get_by_role("row", name=name)).to_be_visible()
    await expect(overview.locator("[name=algorithm]")).to_have_value("")
    await overview.locator("[name=state]").select_option("attention")
    await expect(note).to_have_text(re.compile("^((?!zzz|nope).)*nonsense.*sideways"))
    await overview.locator("[name=state]").select_option("all")
    await overview.locator("th[data-column=positives]").get_by_role("button").click()
    await expect(note).to_have_text("")
    followed = await visit(service.url, "#/?algorithm=loam-ada&state=all&sort=auc&order=up")
    await expect(followed.locator("[name=algorithm]")).to_have_value("loam-ada")
    await expect(followed.locator(".tools .unread")).to_have_text("")


@pytest.mark.parametrize("place", ["learners/fraud", "compare/both"])
@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("from=2030-01-01", "“2030-01-01”"),
        ("to=1", "“1”"),
        ("from=2019-01-01&to=2019-06-01", "“2019-01-01”.*“2019-06-01”"),
        ("from=soon&to=1", "“soon”.*“1”"),
    ],
)
@pytest.mark.campaign
async def test_a_bound_outside_the_data_is_reported(
    service: Serving, visit: Opener, place: str, query: str, named: str
) -> None:
    page = await visit(service.url, f"#/{place}?{query}")
    note = page.locator(".unread")
    await expect(note).to_have_text(re.compile(named))
    await expect(page.locator(".chart .xtick text").first).to_be_visible()
    ends = "document.querySelector('.js-plotly-plot').layout.xaxis.range"  # numbers until the axis has its dates
    await page.wait_for_function(f"{ends}.every((end) => String(end).startsWith('2026-01-01'))")  # all is shown
    await page.locator(".range button").last.click()
    await expect(note).to_have_text("")


async def test_bounds_of_a_missing_axis_are_ignored(service: Serving, visit: Opener) -> None:
    page = await visit(service.url, "#/compare/both?by=events&from=1&to=100000")
    await expect(page.locator(".unread")).to_contain_text("“events”")
    await expect(page.locator("[name=from]")).to_have_value("")
    await expect(page.locator(".chart .xtick text").first).to_be_visible()
    ends = await page.evaluate("document.querySelector('.js-plotly-plot').layout.xaxis.range")
    assert all(end.startswith("2026-01-01") for end in ends)  # not 1970


async def test_the_range_of_a_comparison_can_be_typed(service: Serving, visit: Opener) -> None:
    page = await visit(service.url, "#/compare/both")
    start = page.locator("[name=from]")
    await start.fill("2026-01-01T10:40:00")  # in the reader's zone
    await page.keyboard.press("Tab")
    await expect(page).to_have_url(re.compile(rf"#/compare/both\?from={T0 + 6000:.0f}$"))
    await page.reload()
    await expect(start).to_have_value("2026-01-01T10:40")
    await expect(page.locator(".chart .xtick text").first).to_be_visible()
    ends = await page.evaluate("document.querySelector('.js-plotly-plot').layout.xaxis.range")
    assert ends[0].startswith("2026-01-01T10:40")
    await page.locator(".range button").last.press("Enter")
    await expect(start).to_have_value("")
    await expect(page).to_have_url(re.compile(r"#/compare/both$"))


async def test_bounds_in_events_store_their_axis_in_the_url(service: Serving, visit: Opener) -> None:
    for name in ("timeless", "timeless-too"):
        service.create(name, window=1000)
    service.http.put("/groups/untimed", json={"learners": ["timeless", "timeless-too"]}).raise_for_status()
    rows = [{"id": str(i), "x": [i % 7, i % 5, 0, 1], "label": int(i % 7 == 3)} for i in range(600)]
    service.http.post("/groups/untimed/update", json={"events": rows}).raise_for_status()
    page = await visit(service.url, "#/compare/untimed")
    await page.locator("[name=from]").fill("200")
    await page.keyboard.press("Tab")
    await expect(page).to_have_url(re.compile(r"#/compare/untimed\?by=events&from=200$"))
    await expect(page.locator(".unread")).to_have_text("")
    await page.locator(".range button").last.press("Enter")
    await expect(page).to_have_url(re.compile(r"#/compare/untimed$"))


async def test_new_learner_entries_are_stored_in_the_url(service: Serving, visit: Opener) -> None:
    page = await visit(service.url, "#/create")
    await page.get_by_label("name", exact=True).first.fill("cards")
    await page.keyboard.press("Tab")
    await page.get_by_label("kind", exact=True).first.select_option("dense")
    await expect(page).to_have_url(re.compile(r"#/create\?name=cards&kind=dense$"))
    await page.reload()
    await expect(page.get_by_label("kind", exact=True).first).to_have_value("dense")
    await expect(page.get_by_label("dim")).to_be_visible()
    await page.goto(f"{service.url}/#/create?algorithm=npsvor&kind=woolly")
    note = page.locator(".create .unread")
    await expect(note).to_contain_text("“woolly”")
    await page.get_by_label("kind", exact=True).first.select_option("dense")
    await expect(note).to_have_text("")


async def test_a_filter_may_contain_a_question_mark(service: Serving, visit: Opener) -> None:
    page = await visit(service.url, "#/?q=a?b")
    await expect(page.get_by_role("searchbox")).to_have_value("a?b")


async def test_an_unknown_algorithm_is_reported_in_the_creation_form(service: Serving, visit: Opener) -> None:
    page = await visit(service.url, "#/create?algorithm=zzz&name=fine")
    algorithm = page.get_by_label("algorithm", exact=True)
    await expect(page.locator(".create .unread")).to_contain_text("“zzz”")
    await expect(algorithm).to_have_accessible_description(re.compile("“zzz”"))
    await expect(algorithm).to_have_value("auto")
    assert page.url.endswith("#/create?algorithm=zzz&name=fine")  # until another is chosen
    await algorithm.select_option("fofo")
    await expect(page.locator(".create .unread")).to_have_text("")
    await expect(page).to_have_url(re.compile(r"#/create\?algorithm=fofo&name=fine$"))
    await page.reload()
    await expect(algorithm).to_have_value("fofo")
    await expect(page.locator(".create .unread")).to_have_text("")
    await page.goto(f"{service.url}/#/create")  # nothing is said of none
    await expect(algorithm).to_have_value("auto")
    await expect(page.locator(".create .unread")).to_have_text("")


async def test_the_api_docs_page_loads_only_from_this_host(service: Serving, visit: Opener) -> None:
    """And what it does not ask for elsewhere leaves no error in the console: `visit` looks for either."""
    page = await visit(service.url, "docs")
    await expect(page.get_by_role("heading", name="rarestream")).to_be_visible()
    await page.locator(".opblock-summary-control").first.click()
    await expect(page.locator(".try-out__btn")).to_be_visible()
    assert "/openapi.json" in visit.requests
