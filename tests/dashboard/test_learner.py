"""A learner's page in a browser: charts that move, the form that scores, alarms, and what can be done to it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from tests.dashboard.conftest import Opener
from tests.dashboard.replies import replying
from tests.dashboard.serving import T0, Serving, Stream
from tests.harness.waiting import eventually_async

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page, Route

expect = pytest.importorskip("playwright.async_api").expect

DRIFTED = 21 * 512  # served events after which another distribution of scores is found


@pytest.fixture(scope="module")
def service(served: Serving) -> Serving:
    served.create("fraud", window=1000)
    served.feed("learners/fraud", 1500)
    return served


@pytest_asyncio.fixture(loop_scope="session")
async def opened(service: Serving, visit: Opener) -> AsyncIterator[Page]:
    yield await visit(service.url, "#/learners/fraud")


def chart(page: Page, title: str) -> Locator:
    return page.locator("figure").filter(has=page.get_by_role("heading", name=title, exact=True))


def tile(page: Page, title: str) -> Locator:
    return page.locator(".tiles > div").filter(has=page.get_by_text(title, exact=True))


def weights(page: Page) -> Locator:
    return page.locator("section").filter(has=page.get_by_role("heading", name="Largest weights", exact=True)).last


def signed(number: float) -> str:
    """As the page shows it: how small a weight is depends on how far a stream has come."""
    sign = "\N{MINUS SIGN}" if number < 0 else "+"
    if number == 0 or 0.001 <= abs(number) < 1e5:
        return f"{sign}{abs(number):.3f}"
    digits, _, power = f"{abs(number):.2e}".partition("e")
    return f"{sign}{digits}e{int(power):+d}"


async def expect_news(page: Page, text: str) -> None:
    """Expect this text among the news at the edge of the page."""
    await expect(page.get_by_role("log").get_by_text(text)).to_be_visible()


async def test_charts_and_metrics_update_while_a_stream_runs(service: Serving, opened: Page) -> None:
    line = chart(opened, "Ranking").locator(".scatterlayer .js-line").last
    await expect(line).to_have_attribute("d", re.compile("^M.*L"))
    drawn = await line.get_attribute("d")
    events = tile(opened, "Events learnt").locator("dd > span")
    await expect(events).to_have_text("1,500")
    roc = chart(opened, "ROC").locator(".scatterlayer .js-line").last
    await chart(opened, "ROC").scroll_into_view_if_needed()  # charts out of sight are not drawn
    await expect(roc).to_have_attribute("d", re.compile("^M.*L"))
    before = await roc.get_attribute("d")
    with Stream(service, "learners/fraud"):
        await expect(events).not_to_have_text("1,500")
        await expect(roc).not_to_have_attribute("d", before or "")
        await chart(opened, "Ranking").scroll_into_view_if_needed()
        await expect(line).not_to_have_attribute("d", drawn or "")
    await expect(opened.locator("#state")).to_have_text("live")


async def test_a_chart_shows_events_that_arrived_during_drawing(service: Serving, visit: Opener) -> None:
    service.create("resting", window=1000)
    service.feed("learners/resting", 900)
    arrived = asyncio.Event()

    async def late(route: Route) -> None:
        await arrived.wait()
        await route.fallback()

    visit.replies["**/static/plotly.min.js?*"] = late
    page = await visit(service.url, "#/learners/resting")
    events = tile(page, "Events learnt").locator("dd > span")
    await expect(events).to_have_text("900")
    await expect(chart(page, "Ranking").locator(".plot")).to_have_attribute("aria-label", re.compile("AUC 0"))
    service.feed("learners/resting", 300)  # and nothing after them
    await expect(events).to_have_text("1,200")
    arrived.set()
    auc = service.http.get("/learners/resting/metrics").json()["window"]["auc"]
    await expect(chart(page, "Ranking").locator(".plot")).to_have_attribute("aria-label", re.compile(f"AUC {auc:.3f}"))


async def test_cumulative_metrics_are_drawn_as_of_each_point(service: Serving, visit: Opener) -> None:
    """A course, not today's value all along: the AUC falls, and recovers."""
    service.create("recovering", window=400)
    for shift in (3.0, -3.0, 3.0):
        service.feed("learners/recovering", 800, shift=shift)
    page = await visit(service.url, "#/learners/recovering")
    ranking = chart(page, "Ranking").locator(".plot")
    await expect(ranking.locator(".scatterlayer .js-line").last).to_have_attribute("d", re.compile("^M.*L"))
    drawn = {item["name"]: item for item in await ranking.evaluate("plot => plot.data") if "name" in item}
    points = service.http.get("/learners/recovering/metrics/history").json()["points"]
    now = service.http.get("/learners/recovering/metrics").json()["since_start"]
    for text, figure in (("AUC", "auc"), ("average precision", "average_precision")):
        course = drawn[f"{text} since the start"]
        values = [point[f"since_start_{figure}"] for point in points] + [now[figure]]
        assert course["y"] == values[: len(course["y"])]
        assert len(course["y"]) >= len(points)
        assert course["line"]["dash"] == "dot"
        assert min(values) < values[-1] < max(values)
    await expect(ranking).to_have_attribute("aria-label", re.compile(rf"AUC since the start {now['auc']:.3f}"))
    words = rf"F1 since the start {now['f1']:.3f}.*recall since the start {now['recall']:.3f}"
    await expect(chart(page, "Decisions").locator(".plot")).to_have_attribute("aria-label", re.compile(words))


async def test_every_chart_has_a_text_description(service: Serving, opened: Page) -> None:
    window = service.http.get("/learners/fraud/metrics").json()["window"]
    words = {
        "Ranking": f"AUC {window['auc']:.3f}",
        "Decisions": f"recall {window['recall']:.3f}",
        "Threshold": "threshold 0.",
        "Positives and alerts": "positive 10 %",
        "Events per second": "0.1",
        "ROC": "The live decisions: recall",
        "Precision and recall": "precision",
        "Scores by class": "900 negatives and 100 positives. Alerts begin at a score of",
        "Calibration": "Predicted",
    }
    for title, text in words.items():
        await chart(opened, title).scroll_into_view_if_needed()
        await expect(chart(opened, title).locator(".plot")).to_have_attribute("aria-label", re.compile(re.escape(text)))
        await expect(chart(opened, title).locator(".main-svg").first).to_be_visible()
    await expect(chart(opened, "Label coverage")).to_contain_text("no served events in the window")
    await expect(opened.locator(".confusion td").last).to_contain_text(str(window["confusion"]["tp"]))
    await expect(chart(opened, "ROC").locator(".scatterlayer .point")).to_have_count(1)  # the operating point

    await opened.get_by_text("All metrics as a table").click()
    await expect(opened.get_by_role("row", name="Brier score")).to_contain_text("0.0")


async def test_a_narrow_chart_of_weeks_shows_several_dates(service: Serving, visit: Opener) -> None:
    service.create("weeks")
    rows = [{"x": [i % 7, 0, 0, 0], "label": int(i % 10 == 3), "time": T0 + 7800 * i} for i in range(600)]  # 54 days
    for start in range(0, 600, 50):
        body = {"events": rows[start : start + 50]}
        service.http.post("/learners/weeks/update", json=body).raise_for_status()
    for width in (1440, 390):
        page = await visit(service.url, "#/learners/weeks", width=width)
        narrow = chart(page, "Threshold")
        await narrow.scroll_into_view_if_needed()
        ticks = narrow.locator(".xaxislayer-above text")

        async def told_apart(ticks: Locator = ticks) -> bool:
            boxes = [box for tick in await ticks.all() if (box := await tick.bounding_box())]
            apart = all(item["x"] + item["width"] < other["x"] for item, other in pairwise(boxes))
            return len(boxes) >= 3 and apart

        await eventually_async(told_apart, "ticks that do not overlap")


async def test_the_legend_of_a_chart_names_its_lines(opened: Page) -> None:
    """Nothing was served, so there is no line of alerts among what was; the live decisions are a mark, not a line."""
    key = chart(opened, "Positives and alerts").locator(".legend li:not([hidden])")
    await expect(key).to_have_text(["positive", "alerts", "alerts since the start"])
    marks = chart(opened, "ROC").locator(".legend li")
    await expect(marks.nth(0).locator("line")).to_have_count(1)
    await expect(marks.nth(1).locator("path")).to_have_count(1)
    await expect(marks.nth(1)).to_have_text("live decisions")


async def test_the_age_of_a_snapshot_is_in_whole_units(service: Serving, visit: Opener) -> None:
    page = await visit(service.url)
    say = "seconds => import('./static/format.js').then(({ago}) => seconds.map(ago))"
    ages = await page.evaluate(say, [-2, 0.4, 59, 61.8, 100, 5400, 90000])
    assert ages == ["0 s ago", "0 s ago", "59 s ago", "1 min ago", "2 min ago", "2 h ago", "1 d ago"]


async def test_label_coverage_is_shown_for_the_window_and_since_the_start(service: Serving, visit: Opener) -> None:
    service.create("answered", window=100)
    events = [{"id": f"a{i}", "x": [1, 0, 0, 0]} for i in range(400)]
    service.http.post("/learners/answered/predict", json={"events": events}).raise_for_status()
    labels = [{"id": f"a{i}", "label": int(i % 4 == 0)} for i in range(350)]
    service.http.post("/learners/answered/labels", json={"events": labels}).raise_for_status()
    page = await visit(service.url, "#/learners/answered")
    shown = tile(page, "Label coverage").locator("dd")
    metrics = service.http.get("/learners/answered/metrics").json()
    assert metrics["window"]["label_coverage"] != metrics["since_start"]["label_coverage"] == 0.875
    await expect(shown.locator("small")).to_have_text(["since start 87.5 %", "400 events served since start"])
    await expect(shown.locator("span")).to_have_text(f"{100 * metrics['window']['label_coverage']:.3g} %")


async def test_positives_are_shown_for_the_window_and_since_the_start(service: Serving, visit: Opener) -> None:
    service.create("rarer", window=100)
    rows = [{"x": [i % 7, 0, 0, 0], "label": int(i < 90)} for i in range(100)]
    rows += [{"x": [i % 7, 0, 0, 0], "label": int(i < 8)} for i in range(100)]
    service.http.post("/learners/rarer/update", json={"events": rows}).raise_for_status()
    page = await visit(service.url, "#/learners/rarer")
    shown = tile(page, "Events learnt").locator("dd")
    await expect(shown.locator("span")).to_have_text("200")
    await expect(shown.locator("small")).to_have_text(
        ["98 positive (49 %) since start", "8 positive (8 %) in the last 100"]
    )


async def test_largest_weights_equal_those_of_the_service(service: Serving, opened: Page) -> None:
    reply = service.http.get("/learners/fraud/weights?top=20").json()
    panel = weights(opened)
    rows = panel.locator("tbody tr")
    await expect(rows.locator("th")).to_have_text([weight["name"] for weight in reply["weights"]])
    await expect(rows.locator(".number")).to_have_text([signed(item["weight"]) for item in reply["weights"]])
    signs = ["against" if item["weight"] < 0 else "for" for item in reply["weights"]]
    for i, sign in enumerate(signs):
        await expect(rows.nth(i).locator(".bar")).to_have_attribute("data-sign", sign)
    await expect(panel).to_contain_text(f"4 of 4; intercept {signed(reply['intercept'])}.")
    widths = await rows.locator(".bar span").evaluate_all("all => all.map(one => one.getBoundingClientRect().width)")
    assert widths[0] > 10
    assert widths == sorted(widths, reverse=True)


async def test_the_reason_for_missing_weights_is_shown(service: Serving, visit: Opener) -> None:
    service.create("severity", algorithm="npsvor", params={"ranks": 3})
    rows = [{"x": [i % 3, 0, 0, 1], "label": i % 3 + 1} for i in range(90)]
    service.http.post("/learners/severity/update", json={"events": rows}).raise_for_status()
    page = await visit(service.url, "#/learners/severity")
    reason = service.http.get("/learners/severity/weights").json()["reason"]
    await expect(weights(page)).to_contain_text(f"No weights: {reason}")
    await expect(weights(page).get_by_role("table")).to_be_hidden()

    form = page.locator(".scoring")  # an ordinal learner's scores are not explained
    await form.get_by_label("The event in JSON").fill('{"x": [2, 0, 0, 1]}')
    await form.get_by_role("button", name="Score it").click()
    reply = service.http.post("/learners/severity/predict", json={"events": [{"x": [2, 0, 0, 1]}]}).json()
    await expect(form.locator(".verdict")).to_have_text(f"Rank {reply['results'][0]['rank']}")


async def test_hashed_features_are_named_when_their_events_arrive(service: Serving, visit: Opener) -> None:
    service.create("hashed", features={"kind": "named", "log": ["amount"]})
    rows = [{"features": {"amount": 1 + i % 5, "shop": f"s{i % 3}"}, "label": int(i % 5 == 4)} for i in range(200)]
    service.http.post("/learners/hashed/update", json={"events": rows}).raise_for_status()
    page = await visit(service.url, "#/learners/hashed")
    await expect(weights(page).get_by_role("row", name="amount")).to_be_visible()
    await expect(weights(page).get_by_role("row", name=re.compile(r"^column \d+"))).to_have_count(3)
    await expect(weights(page)).to_contain_text("3 unnamed so far: names appear with the next event that has the")
    events = [{"features": {"shop": f"s{i}"}} for i in range(2)]  # which moves no position
    service.http.post("/learners/hashed/predict", json={"events": events}).raise_for_status()
    for shop in ("s0", "s1"):
        await expect(weights(page).get_by_role("row", name=f"shop={shop}")).to_be_visible()
    await expect(weights(page)).to_contain_text("1 unnamed so far")
    form = page.locator(".scoring")
    await form.get_by_label("The event in JSON").fill('{"features": {"shop": "s2"}}')
    await form.get_by_role("button", name="Score it").click()
    await expect(weights(page).get_by_role("row", name="shop=s2")).to_be_visible()
    await expect(weights(page)).not_to_contain_text("without a name")


async def test_overflowed_numbers_are_marked(service: Serving, visit: Opener) -> None:
    """Given in place of the service: its bounds of numbers and weights leave this to unusually long streams."""
    entries = [{"name": "x[0]", "weight": None}, {"name": "x[1]", "weight": -2e9}, {"name": "x[2]", "weight": 0.0}]
    reply = {"intercept": None, "weights": entries, "total": 3, "unnamed": 0, "reason": None}
    visit.replies["**/weights?*"] = replying(reply)
    parts = {"intercept": 0.5, "features": [{"name": "x[0]", "contribution": None}], "rest": 0.0}
    result = {"id": None, "score": None, "probability": 1.0, "threshold": 0.5, "label": 1, "explanation": parts}
    visit.replies["**/predict?*"] = replying({"position": 1, "ready": True, "results": [result]})
    page = await visit(service.url, "#/learners/fraud")
    await expect(weights(page)).to_contain_text("3 of 3; intercept overflowed.")
    shown = ["overflowed", "\N{MINUS SIGN}2.00e+9", "+0.000"]
    await expect(weights(page).locator("tbody .number")).to_have_text(shown)
    await page.get_by_role("button", name="Score it").click()
    await expect(page.locator(".result dd").first).to_have_text("overflowed")
    await expect(page.locator(".result tbody .number")).to_have_text(["overflowed"])


async def test_a_time_axis_appears_on_an_open_page(service: Serving, visit: Opener) -> None:
    service.create("early")
    page = await visit(service.url, "#/learners/early")
    await expect(page.get_by_text("Nothing to draw: no", exact=False).first).to_be_visible()
    service.feed("learners/early", 1000)
    axis = page.locator("select[name=by]")
    await expect(axis.locator("option")).to_have_text(["time", "labelled events"])
    await expect(axis).to_have_value("clock")
    await expect(page.get_by_label("from (of the axis)")).to_have_attribute("type", "datetime-local")
    await axis.select_option("events")
    await page.get_by_label("from (of the axis)").fill("200")
    await page.get_by_label("from (of the axis)").blur()
    await expect(page).to_have_url(re.compile("by=events"))


async def test_the_score_form_shows_the_contribution_of_each_feature(
    service: Serving, opened: Page, visit: Opener
) -> None:
    form = opened.locator(".scoring")
    await form.get_by_label("The event in JSON").fill('{"id": "mine", "x": [6, 1, 0, 0]}')
    served = service.http.get("/learners/fraud/metrics").json()["served"]["events"]
    await form.get_by_role("button", name="Score it").click()
    await expect(form.locator(".verdict")).to_have_text("Alert")
    await expect(form.get_by_role("row")).to_have_count(5)  # the head, and four features
    reply = service.http.post("/learners/fraud/predict", json={"events": [{"x": [6, 1, 0, 0]}]}).json()
    await expect(form.locator("dd").nth(1)).to_have_text(f"{reply['results'][0]['probability']:.3g}")
    assert service.http.get("/learners/fraud/metrics").json()["served"]["events"] == served  # not remembered

    visit.expected = ("422",)
    await form.get_by_label("The event in JSON").fill('{"x": [6, 1]}')
    await form.get_by_role("button", name="Score it").click()
    await expect(form.get_by_role("alert")).to_contain_text("/x")
    await expect(form.locator(".verdict")).to_have_count(0)
    await form.get_by_label("The event in JSON").fill("{x")
    await form.get_by_role("button", name="Score it").click()
    await expect(form.get_by_role("alert")).to_contain_text("this is no JSON")
    await form.get_by_label("The event in JSON").fill("null")
    await form.get_by_role("button", name="Score it").click()
    await expect(form.get_by_role("alert")).to_contain_text("this is no event")


async def test_the_score_form_lists_table_fields_one_by_one(service: Serving, visit: Opener) -> None:
    fields = [{"name": "amount", "kind": "numeric"}, {"name": "shop", "kind": "categorical"}]
    service.create("table", features={"kind": "table", "fields": fields})
    rows: list[dict[str, Any]] = [
        {"features": {"amount": i % 5, "shop": f"<b>{i % 3}</b>"}, "label": int(i % 5 == 4)} for i in range(200)
    ]
    for row in rows[::7]:
        del row["features"]["amount"]
    service.http.post("/learners/table/update", json={"events": rows}).raise_for_status()
    page = await visit(service.url, "#/learners/table")
    await page.get_by_label("amount numeric").fill("4")
    await page.get_by_label("shop categorical").fill("<b>1</b>")
    await page.get_by_role("button", name="Score it").click()
    await expect(page.locator(".result").get_by_role("row", name="amount")).to_be_visible()
    await expect(page.locator(".result")).to_contain_text("shop=<b>1</b>")  # text, not markup
    await page.get_by_label("amount numeric").fill("")
    await page.get_by_role("button", name="Score it").click()
    await expect(page.locator(".result").get_by_role("row", name="amount (missing)")).to_be_visible()
    visit.expected = ("422",)
    await page.get_by_label("amount numeric").fill("much")
    await page.get_by_role("button", name="Score it").click()
    await expect(page.locator(".scoring").get_by_role("alert")).to_contain_text("amount")
    await expect(page.get_by_label("amount numeric")).to_have_attribute("aria-invalid", "true")
    await expect(page.get_by_label("amount numeric")).to_be_focused()
    await expect(page.get_by_label("shop categorical")).not_to_have_attribute("aria-invalid", "true")
    await page.get_by_label("amount numeric").fill("3")
    await page.get_by_role("button", name="Score it").click()
    await expect(page.locator(".verdict")).to_be_visible()
    await expect(page.get_by_label("amount numeric")).not_to_have_attribute("aria-invalid", "true")


async def test_the_zoom_is_stored_in_the_url(service: Serving, visit: Opener) -> None:
    page = await visit(service.url, "#/learners/fraud?by=events&from=500&to=900")
    await expect(page.get_by_label("from (of the axis)")).to_have_value("500")
    ticks = chart(page, "Ranking").locator(".xtick text")
    await expect(ticks.first).to_have_text("500")
    await page.get_by_label("to (of the axis)").fill("700")
    await page.keyboard.press("Tab")
    await expect(page).to_have_url(re.compile(r"#/learners/fraud\?by=events&from=500&to=700$"))
    await page.get_by_role("button", name="All", exact=True).click()
    await expect(page).to_have_url(re.compile(r"#/learners/fraud\?by=events$"))
    await expect(ticks.last).to_have_text(re.compile(r"^\d+,\d{3}$"))  # all 1,500 events, or more

    by_clock = await visit(service.url, f"#/learners/fraud?from={T0 + 6000:.0f}&to={T0 + 9000:.0f}")
    await expect(by_clock.get_by_label("from (of the axis)")).to_have_value("2026-01-01T10:40")  # in the reader's zone
    note = by_clock.locator(".range").get_by_role("status")
    await expect(note).to_have_text("")

    written = await visit(service.url, "#/learners/fraud?from=2026-01-01T01:40:00Z")
    await expect(written.get_by_label("from (of the axis)")).to_have_value("2026-01-01T10:40")
    odd = await visit(service.url, "#/learners/fraud?by=bogus&from=yesterday&to=")
    await expect(odd.locator(".range").get_by_role("status")).to_have_text(
        "Not followed: there is no axis “bogus” here; “yesterday” (from) is no time (epoch seconds, or ISO 8601); "
        "“” (to) is no time (epoch seconds, or ISO 8601)."
    )
    turned = await visit(service.url, "#/learners/fraud?by=events&from=700&to=500")
    await expect(turned.locator(".range").get_by_role("status")).to_contain_text("“from” has to be before “to”")


async def test_the_threshold_dialog_changes_the_threshold(service: Serving, opened: Page, visit: Opener) -> None:
    await opened.get_by_role("button", name="Threshold …").click()
    dialog = opened.get_by_role("dialog", name="What the threshold of fraud is for")
    await expect(dialog.get_by_label("objective")).to_have_value("f1-window")
    await expect(dialog.get_by_label("objective").locator("option:checked")).to_have_text("f1-window (default)")
    about = dialog.locator(".setting").first.locator(".help")
    await expect(about).to_have_text(re.compile(r"^The largest F1 [^(]*$"))
    memory = dialog.locator(".setting", has=opened.get_by_label("memory")).locator(".help")
    await expect(memory).to_have_text(
        re.compile("^How fast old events fade: .*at most 1,000,000,000, or none; default: 30,000")
    )
    await dialog.get_by_label("memory").fill("None")
    await dialog.get_by_role("button", name="Change threshold").click()
    await expect(dialog).to_have_count(0)
    assert service.http.get("/learners/fraud").json()["config"]["threshold"]["memory"] is None
    await opened.get_by_role("button", name="Threshold …").click()
    await expect(dialog.get_by_label("memory")).to_have_value("none")
    await dialog.get_by_label("memory").fill("")  # the default again
    await dialog.get_by_label("objective").select_option("budget")
    await expect(about).to_have_text(re.compile(r"^So many alerts [^(]*$"))
    alerts = dialog.locator(".setting", has=opened.get_by_label("alerts")).locator(".help")
    await expect(alerts).to_have_text(re.compile(r"is required\. \(at least 1, at most [^;]*\)$"))
    await expect(dialog.get_by_text("length of the unit of time")).to_be_visible()
    await expect(dialog.get_by_label("target")).to_be_hidden()  # of other objectives
    await dialog.get_by_label("objective").select_option("precision")
    await expect(dialog.get_by_label("memory")).to_be_visible()
    target = dialog.locator(".setting", has=opened.get_by_label("target")).locator(".help")
    await expect(target).to_have_text(re.compile(r"^Target rate: .* Required\. \(more than 0, at most 1\)$"))
    visit.expected = ("422",)
    await dialog.get_by_label("target").fill("2")
    await dialog.get_by_role("button", name="Change threshold").click()
    await expect(dialog.locator(".setting .trouble", has_text="at most 1")).to_be_visible()
    await expect(dialog.get_by_label("target")).to_have_attribute("aria-invalid", "true")
    await dialog.get_by_label("target").fill("0.8")
    await dialog.get_by_role("button", name="Change threshold").click()
    await expect(dialog).to_have_count(0)
    await expect_news(opened, "The threshold of fraud follows precision now")
    threshold = service.http.get("/learners/fraud").json()["config"]["threshold"]
    assert (threshold["objective"], threshold["target"], threshold["memory"]) == ("precision", 0.8, 30_000)


async def test_snapshot_is_taken_and_restored(service: Serving, opened: Page) -> None:
    await opened.get_by_role("button", name="Snapshot …").click()
    await opened.get_by_role("button", name="Save snapshot").click()
    await expect_news(opened, "Snapshot of fraud: position")
    position = service.http.get("/learners/fraud/snapshots").json()["snapshots"][0]["position"]
    row = opened.get_by_role("row").filter(
        has=opened.get_by_role("button", name=f"Restore the snapshot at position {position}")
    )
    cell = row.locator("td").first
    before = await cell.text_content()
    assert before
    await opened.wait_for_timeout(1100)  # times are shown to the second
    await opened.get_by_role("button", name="Snapshot …").click()
    await opened.get_by_role("button", name="Save snapshot").click()
    await expect(cell).not_to_have_text(before)  # another at the same position
    events = service.http.get("/learners/fraud").json()["events"]
    service.feed("learners/fraud", 100)
    await opened.get_by_role("button", name=f"Restore the snapshot at position {position}").click()
    dialog = opened.get_by_role("dialog", name="Roll fraud back?")
    await expect(dialog).to_contain_text("is undone")
    await opened.keyboard.press("Escape")
    await expect(dialog).to_have_count(0)
    assert service.http.get("/learners/fraud").json()["events"] == events + 100  # nothing was done
    restore = opened.get_by_role("button", name=f"Restore the snapshot at position {position}")
    await expect(restore).to_be_focused()
    await restore.click()
    await opened.get_by_role("button", name="Roll back").click()
    await expect_news(opened, "fraud goes on from position")
    await expect(tile(opened, "Events learnt").locator("dd > span")).to_have_text(f"{events:,}")


async def test_the_clone_dialog_requests_a_name(service: Serving, opened: Page, visit: Opener) -> None:
    await opened.get_by_role("button", name="Clone …").click()
    dialog = opened.get_by_role("dialog", name="Clone fraud")
    name = dialog.get_by_label("Name of the new one")
    await expect(name).to_have_value("fraud-copy")
    visit.expected = ("409", "422")
    await name.fill("fraud 2")
    await dialog.get_by_role("button", name="Clone it").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("“Name of the new one” is 'fraud 2'; expected")
    await name.fill("fraud")
    await dialog.get_by_role("button", name="Clone it").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("fraud")  # which there is already
    await name.fill("fraud-2")
    await dialog.get_by_role("button", name="Clone it").click()
    await expect_news(opened, "fraud-2 is a clone of fraud.")
    digests = {item: service.http.get(f"/learners/{item}/digest").json()["digest"] for item in ("fraud", "fraud-2")}
    assert digests["fraud-2"] == digests["fraud"]
    await opened.get_by_role("log").get_by_role("link").click()
    await expect(opened.get_by_role("heading", name="fraud-2", level=1)).to_be_visible()
    reply = service.http.get("/learners/fraud").json()
    await expect(tile(opened, "Events learnt").locator("dd > span")).to_have_text(f"{reply['events']:,}")


async def test_an_export_is_saved_as_an_importable_file(service: Serving, opened: Page, tmp_path: Path) -> None:
    async with opened.expect_download() as download:
        await opened.get_by_role("button", name="Export").click()
    file = await download.value
    position = service.http.get("/learners/fraud").json()["position"]
    assert file.suggested_filename == f"fraud-{position}.rarestream"
    await file.save_as(tmp_path / "exported")
    data = (tmp_path / "exported").read_bytes()
    headers = {"content-type": "application/octet-stream"}
    service.http.post("/learners/elsewhere/import", content=data, headers=headers).raise_for_status()
    digests = {item: service.http.get(f"/learners/{item}/digest").json()["digest"] for item in ("fraud", "elsewhere")}
    assert digests["elsewhere"] == digests["fraud"]


async def test_a_refused_export_is_reported(opened: Page, visit: Opener) -> None:
    visit.expected = ("503",)
    await opened.route("**/fraud/export", replying({"detail": "the store is away"}, status=503))
    await opened.get_by_role("button", name="Export").click()
    await expect_news(opened, "fraud: the store is away")


async def test_deletion_requires_typing_the_name(service: Serving, visit: Opener) -> None:
    service.create("doomed")
    page = await visit(service.url, "#/learners/doomed")
    await expect(tile(page, "AUC")).to_contain_text("no labelled events in the window")  # not 0
    await page.get_by_role("button", name="Delete …").click()
    await page.get_by_label("Type doomed to confirm").fill("doom")
    await page.get_by_role("button", name="Delete it for good").click()
    await expect(page.get_by_role("dialog")).to_contain_text("this is not its name")
    assert service.http.get("/learners/doomed").status_code == 200
    await page.get_by_label("Type doomed to confirm").fill("doomed")
    visit.expected = ("404",)  # of requests that were under way
    await page.get_by_role("button", name="Delete it for good").click()
    await expect(page).to_have_url(f"{service.url}/#/")
    assert service.http.get("/learners/doomed").status_code == 404


async def test_a_missing_learner_is_reported(service: Serving, visit: Opener) -> None:
    visit.expected = ("404",)
    page = await visit(service.url, "#/learners/nobody")
    await expect(page.get_by_role("heading", name="No learner nobody")).to_be_visible()
    await expect(page.get_by_role("alert")).to_contain_text("there is no learner named nobody")


async def test_a_malformed_url_shows_no_page(service: Serving, visit: Opener) -> None:
    page = await visit(service.url, "#/learners/%E0%A4%A")
    await expect(page.get_by_role("heading", name="There is no such page")).to_be_visible()


async def test_a_drift_alarm_is_announced_and_drawn(service: Serving, visit: Opener) -> None:
    service.create("drifting")
    service.feed("learners/drifting", 50)
    page = await visit(service.url, "#/learners/drifting")
    overview = await visit(service.url)
    await expect(overview.get_by_role("row", name="drifting")).to_be_visible()
    for start in range(0, DRIFTED, 512):
        moved = 50.0 if start == DRIFTED - 512 else 0.0
        body = [
            {"id": f"d{i}", "x": [i * 7 % 11 / 11 + moved, 0.5, 0.5, 0.5], "time": T0 + i}
            for i in range(start, start + 512)
        ]
        service.http.post("/learners/drifting/predict", json={"events": body}).raise_for_status()
    await expect_news(page, "Drift alarm: drifting: the served scores changed")
    await expect_news(overview, "Drift alarm: drifting: the served scores changed")
    await expect(page.locator(".alarms li")).to_have_count(1)
    await expect(chart(page, "Threshold").locator(".shapelayer path")).to_have_count(1)
    await expect(overview.get_by_role("row", name="drifting")).to_contain_text("scores changed")
