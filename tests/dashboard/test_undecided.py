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

NOTHING = "\N{EN DASH}"
WHY = "no positive event has been learnt yet"
FIGURES = ("f1", "fbeta", "precision_at_k")


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
    names = ["/threshold", *(f"/{scope}/{name}" for scope in ("window", "since_start") for name in FIGURES)]
    why: dict[str, str] = {
        name: WHY if name == "/threshold" else "no positive" + " in the window" * ("window" in name) for name in names
    }
    defined = {name: text for name, text in metrics["undefined"].items() if name not in names}
    undefined = {**defined, **(why if reasons else {})}
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
        row |= {"threshold": None, "window": row["window"] | {"f1": None}, "undefined": undefined, "not_ready": WHY}
    visit.replies["**/learners?figures=true"] = replying(rows)
    visit.expected = ("429",)


def tile(page: Page, title: str) -> Locator:
    return page.locator(".tiles > div").filter(has=page.get_by_text(title, exact=True)).locator("dd")


def chart(page: Page, title: str) -> Locator:
    return page.locator("figure").filter(has=page.get_by_role("heading", name=title, exact=True))


async def test_every_place_shows_the_reason(service: Serving, visit: Opener) -> None:
    override_replies(service, visit, reasons=True)
    page = await visit(service.url, "#/learners/negative")
    await expect(tile(page, "Threshold")).to_have_text(f"{NOTHING}{WHY}")
    await expect(tile(page, "F1")).to_have_text(f"{NOTHING}no positive in the window")
    await chart(page, "Threshold").scroll_into_view_if_needed()
    await expect(chart(page, "Threshold").locator(".nothing")).to_have_text(f"Nothing to draw: {WHY}.")
    await chart(page, "Scores by class").scroll_into_view_if_needed()
    await expect(chart(page, "Scores by class").locator(".note")).to_contain_text(f"no threshold: {WHY}")
    await expect(chart(page, "Scores by class").locator(".plot")).to_have_attribute(
        "aria-label", re.compile(rf"0 positives\. No threshold: {WHY}\.$")
    )
    await expect(chart(page, "Scores by class").locator(".main-svg").first).to_be_visible()
    await expect(chart(page, "Scores by class").locator(".shapelayer path")).to_have_count(0)  # no line of alerts
    await page.get_by_text("All metrics as a table").click()
    for title in ("F1", "F-beta, beta 1", "Precision among the 100 highest scores"):
        cells = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name=title, exact=True))
        await expect(cells.get_by_role("cell")).to_have_text(
            [f"{NOTHING} no positive in the window", f"{NOTHING} no positive"]
        )

    overview = await visit(service.url)
    cell = overview.locator("td[data-column=threshold]")
    await expect(cell).to_have_text(f"{NOTHING}none yet")
    await expect(cell).to_have_attribute("title", WHY)
    await expect(overview.locator("td[data-column=f1]")).to_have_text(f"{NOTHING}no positive")


async def test_no_number_is_shown_without_a_reason(service: Serving, visit: Opener) -> None:
    override_replies(service, visit, reasons=False)
    page = await visit(service.url, "#/learners/negative")
    await expect(tile(page, "Threshold")).to_have_text(f"{NOTHING}not known")
    await expect(tile(page, "F1")).to_have_text(f"{NOTHING}not known")
    await chart(page, "Threshold").scroll_into_view_if_needed()
    await expect(chart(page, "Threshold").locator(".nothing")).to_have_text("Nothing to draw: none yet.")
    await chart(page, "Scores by class").scroll_into_view_if_needed()
    await expect(chart(page, "Scores by class").locator(".note")).to_contain_text("no threshold: ")
    overview = await visit(service.url)
    await expect(overview.locator("td[data-column=threshold]")).to_have_text(f"{NOTHING}none yet")


async def test_changing_an_undecided_threshold_announces_no_value(service: Serving, visit: Opener) -> None:
    page = await visit(service.url, "#/learners/negative")
    not_ready = service.http.get("/learners/negative").json()["not_ready"]
    await page.get_by_role("button", name="Threshold …").click()
    await page.get_by_role("button", name="Change threshold").click()
    await expect(page.get_by_role("log")).to_contain_text(f"now; there is none yet: {not_ready}")


async def test_an_auc_without_an_interval_shows_the_reason(service: Serving, visit: Opener) -> None:
    assert service.http.get("/learners/pair/metrics").json()["window"]["auc_interval"] is None
    page = await visit(service.url)
    cell = page.locator(".overview tr", has=page.get_by_role("link", name="pair")).locator("[data-column=auc]")
    await expect(cell).to_have_text("0.500no interval: only one negative")
    await expect(cell).to_have_attribute("title", "no 95 % interval: only one negative in the window")
    members = page.locator(".group li")
    await expect(members.filter(has_text="pair")).to_have_attribute(
        "title", "no 95 % interval: only one negative in the window"
    )
    await expect(members.filter(has_text="negative")).to_have_attribute(
        "title", "no AUC to show: no positives in the window"
    )
    await page.get_by_role("row").get_by_role("link", name="pair").click()
    await expect(tile(page, "AUC")).to_contain_text("0.500no 95 % interval: only one negative in the window")


async def test_a_group_card_describes_a_learner_without_metrics(service: Serving, visit: Opener) -> None:
    rows = service.http.get("/learners?figures=true").json()
    rows |= {"learners": [], "asleep": ["pair"], "unavailable": {"negative": "its log is damaged"}}
    visit.replies["**/stream"] = replying({"detail": "none", "code": "too-many-streams"}, status=429)
    visit.replies["**/learners?figures=true"] = replying(rows)
    visit.expected = ("429",)
    page = await visit(service.url)
    members = page.locator(".group li")
    await expect(members.filter(has_text="pair")).to_have_attribute(
        "title", "no AUC to show: asleep until somebody asks for it"
    )
    await expect(members.filter(has_text="negative")).to_have_attribute("title", "no AUC to show: its log is damaged")


async def test_one_event_is_singular(service: Serving, visit: Opener) -> None:
    """Counts in words have the singular where there is one."""
    service.create("single")
    body = {"events": [{"id": "one", "x": [1, 0, 0, 1]}]}
    service.http.post("/learners/single/predict", json=body).raise_for_status()
    service.http.post("/learners/single/labels", json={"events": [{"id": "one", "label": 0}]}).raise_for_status()
    service.feed("learners/single", 4)  # the last of them positive
    page = await visit(service.url, "#/learners/single")
    await expect(tile(page, "Label coverage")).to_contain_text("1 event served")
    await page.get_by_text("All metrics as a table").click()
    await expect(page.locator(".figures p")).to_contain_text("1 event served, 1 of them labelled.")
    await chart(page, "Scores by class").scroll_into_view_if_needed()
    await expect(chart(page, "Scores by class").locator(".plot")).to_have_attribute(
        "aria-label", re.compile("4 negatives and 1 positive\\.")
    )


async def test_an_offscreen_chart_drops_its_empty_message_when_data_arrives(service: Serving, visit: Opener) -> None:
    service.create("late")
    service.feed("learners/late", 3)  # the next one is the first positive
    page = await visit(service.url, "#/learners/late")
    roc = chart(page, "ROC")
    await roc.scroll_into_view_if_needed()
    await expect(roc.locator(".nothing")).to_have_text("Nothing to draw: no positives in the window yet.")
    await page.evaluate("scrollTo(0, 0)")
    await page.wait_for_function(
        "one => one.getBoundingClientRect().top - innerHeight > 200", arg=await roc.element_handle()
    )
    service.feed("learners/late", 1)
    await expect(page.locator(".confusion tbody tr").nth(1)).to_contain_text("1")
    await expect(roc.locator(".nothing")).to_be_hidden()
    await expect(roc.locator(".plot")).to_have_attribute("aria-label", re.compile("recall 100 %|recall 0 %"))
    assert await page.evaluate("scrollY") == 0
    await expect(roc.locator(".main-svg")).to_have_count(0)  # drawn once it is in sight
    await roc.scroll_into_view_if_needed()
    await expect(roc.locator(".main-svg").first).to_be_visible()
