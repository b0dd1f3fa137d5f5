"""A learner that no positive has come to: nothing decides its threshold, and the page says why, and shows no 0."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.dashboard.conftest import Opener
from tests.dashboard.replies import replying
from tests.dashboard.serving import Serving

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page

expect = pytest.importorskip("playwright.async_api").expect

pytestmark = pytest.mark.integration

NOTHING = "\N{EN DASH}"
FIGURES = ("f1", "fbeta", "precision_at_k")
REASONS = {  # by pointer: the page shows what the service says
    pointer: f"because of {pointer}"
    for pointer in ("/threshold", *(f"/{scope}/{name}" for scope in ("window", "since_start") for name in FIGURES))
}


@pytest.fixture(scope="module")
def service(served: Serving) -> Serving:
    served.create("negative")
    rows = [{"x": [i % 7, 0, 0, 1], "label": 0} for i in range(600)]
    served.http.post("/learners/negative/update", json={"events": rows}).raise_for_status()
    served.create("pair")
    rows = [{"x": [i, 0, 0, 1], "label": i} for i in range(2)]
    served.http.post("/learners/pair/update", json={"events": rows}).raise_for_status()
    served.http.put("/groups/few", json={"learners": ["negative", "pair"]}).raise_for_status()
    return served


def override_replies(service: Serving, visit: Opener, *, reasons: bool) -> None:
    """Make undecided members of the service's replies null, with or without their reasons."""
    http = service.http
    metrics = http.get("/learners/negative/metrics").json()
    defined = {name: text for name, text in metrics["undefined"].items() if name not in REASONS}
    undefined = {**defined, **(REASONS if reasons else {})}
    none: dict[str, Any] = dict.fromkeys(FIGURES)
    metrics |= {"threshold": None, "undefined": undefined}
    metrics |= {scope: metrics[scope] | none for scope in ("window", "since_start")}
    visit.replies["**/stream"] = replying({"detail": "none", "code": "too-many-streams"}, status=429)
    visit.replies["**/negative/metrics"] = replying(metrics)
    curves = http.get("/learners/negative/metrics/curves").json()
    visit.replies["**/metrics/curves"] = replying(curves | {"score_threshold": 0.25})
    rows = http.get("/learners?figures=true").json()
    rows["learners"] = [row for row in rows["learners"] if row["name"] == "negative"]
    for row in rows["learners"]:
        row |= {"threshold": None, "window": row["window"] | {"f1": None}, "undefined": undefined}
        row |= {"not_ready": REASONS["/threshold"]}
    visit.replies["**/learners?figures=true"] = replying(rows)
    visit.expected = ("429",)


def tile(page: Page, pointer: str) -> Locator:
    return page.locator(f".tiles [data-key='{pointer}'] dd")


def chart(page: Page, name: str) -> Locator:
    return page.locator(f"figure[data-chart={name}]")


async def test_every_place_shows_the_reason(service: Serving, visit: Opener) -> None:
    override_replies(service, visit, reasons=True)
    page = await visit(service.url, "#/learners/negative")
    for pointer in ("/threshold", "/window/f1"):
        await expect(tile(page, pointer)).to_have_text(f"{NOTHING}{REASONS[pointer]}")
    reason = re.compile(REASONS["/threshold"])
    await chart(page, "threshold").scroll_into_view_if_needed()
    await expect(chart(page, "threshold").locator(".nothing")).to_have_text(reason)
    await chart(page, "scores").scroll_into_view_if_needed()
    await expect(chart(page, "scores").locator(".note")).to_have_text(reason)
    await expect(chart(page, "scores").locator(".plot")).to_have_attribute("aria-label", reason)
    await expect(chart(page, "scores").locator(".main-svg").first).to_be_visible()
    await expect(chart(page, "scores").locator(".shapelayer path")).to_have_count(0)  # no line of alerts
    await page.locator(".figures summary").click()
    for name in FIGURES:
        await expect(page.locator(f".figures tr[data-key={name}] td")).to_have_text(
            [f"{NOTHING} {REASONS[f'/{scope}/{name}']}" for scope in ("window", "since_start")]
        )

    overview = await visit(service.url)
    cell = overview.locator("td[data-column=threshold]")
    await expect(cell.locator("span")).to_have_text(NOTHING)
    await expect(cell).to_have_attribute("title", reason)
    await expect(overview.locator("td[data-column=f1]")).to_have_text(f"{NOTHING}{REASONS['/window/f1']}")


async def test_no_number_is_shown_without_a_reason(service: Serving, visit: Opener) -> None:
    override_replies(service, visit, reasons=False)
    page = await visit(service.url, "#/learners/negative")
    no_number = re.compile(r"^\D+$")
    for pointer in ("/threshold", "/window/f1"):
        await expect(tile(page, pointer).locator("span")).to_have_text(NOTHING)
        await expect(tile(page, pointer).locator("small").first).to_have_text(no_number)
    await chart(page, "threshold").scroll_into_view_if_needed()
    await expect(chart(page, "threshold").locator(".nothing")).to_have_text(no_number)
    await chart(page, "scores").scroll_into_view_if_needed()
    await expect(chart(page, "scores").locator(".note")).to_have_text(no_number)
    overview = await visit(service.url)
    await expect(overview.locator("td[data-column=threshold] span")).to_have_text(NOTHING)


async def test_changing_an_undecided_threshold_announces_no_value(service: Serving, visit: Opener) -> None:
    page = await visit(service.url, "#/learners/negative")
    not_ready = service.http.get("/learners/negative").json()["not_ready"]
    await page.locator("[data-action=threshold]").click()
    await page.locator("dialog [type=submit]").click()
    await expect(page.locator("#news p")).to_have_text(re.compile(rf"\bnegative\b.*{not_ready}"))


async def test_an_auc_without_an_interval_shows_the_reason(service: Serving, visit: Opener) -> None:
    metrics = {name: service.http.get(f"/learners/{name}/metrics").json() for name in ("pair", "negative")}
    assert metrics["pair"]["window"]["auc_interval"] is None
    reasons = {
        "pair": re.compile(metrics["pair"]["undefined"]["/window/auc_interval"]),
        "negative": re.compile(metrics["negative"]["undefined"]["/window/auc"]),
    }
    page = await visit(service.url)
    cell = page.locator("tr[data-key=pair] [data-column=auc]")
    await expect(cell.locator("span")).to_have_text("0.500")
    await expect(cell.locator("small")).not_to_be_empty()
    await expect(cell).to_have_attribute("title", reasons["pair"])
    for name, reason in reasons.items():
        await expect(page.locator(f".group li[data-key={name}]")).to_have_attribute("title", reason)
    await page.get_by_role("row").get_by_role("link", name="pair").click()
    await expect(tile(page, "/window/auc").locator("span")).to_have_text("0.500")
    await expect(tile(page, "/window/auc").locator("small").first).to_have_text(reasons["pair"])


async def test_a_group_card_describes_a_learner_without_metrics(service: Serving, visit: Opener) -> None:
    rows = service.http.get("/learners?figures=true").json()
    rows |= {"learners": [], "asleep": ["pair"], "unavailable": {"negative": "its log is damaged"}}
    visit.replies["**/stream"] = replying({"detail": "none", "code": "too-many-streams"}, status=429)
    visit.replies["**/learners?figures=true"] = replying(rows)
    visit.expected = ("429",)
    page = await visit(service.url)
    for name, state in (("pair", "asleep"), ("negative", "trouble")):
        row = page.locator(f"tr[data-key={name}][data-state={state}]")
        reason = await row.locator(".state").inner_text()  # as in its row
        await expect(page.locator(f".group li[data-key={name}]")).to_have_attribute("title", re.compile(f"{reason}$"))


async def test_an_offscreen_chart_drops_its_empty_message_when_data_arrives(service: Serving, visit: Opener) -> None:
    service.create("late")
    service.feed("learners/late", 3)  # the next one is the first positive
    page = await visit(service.url, "#/learners/late")
    await page.set_viewport_size({"width": 1440, "height": 700})  # a chart within 200 pixels is drawn
    roc = chart(page, "roc")
    await roc.scroll_into_view_if_needed()
    await expect(roc.locator(".nothing")).to_be_visible()
    await page.evaluate("scrollTo(0, 0)")
    await page.wait_for_function(
        "one => one.getBoundingClientRect().top - innerHeight > 200", arg=await roc.element_handle()
    )
    service.feed("learners/late", 1)
    await expect(page.locator(".panel.confusion tbody tr").nth(1)).to_contain_text("1")
    await expect(roc.locator(".nothing")).to_be_hidden()
    await expect(roc.locator(".plot")).to_have_attribute("aria-label", re.compile(r"\b(100|0) %"))
    assert await page.evaluate("scrollY") == 0
    await expect(roc.locator(".main-svg")).to_have_count(0)  # drawn once it is in sight
    await roc.scroll_into_view_if_needed()
    await expect(roc.locator(".main-svg").first).to_be_visible()
