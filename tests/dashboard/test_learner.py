"""A learner's page in a browser: charts that move, the form that scores, alarms, and what can be done to it."""

from __future__ import annotations

import asyncio
import csv
import re
from collections.abc import AsyncIterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest
import pytest_asyncio

from tests.dashboard.conftest import Opener
from tests.dashboard.replies import replying
from tests.dashboard.serving import T0, Serving, Stream
from tests.harness.waiting import eventually_async

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page, Route

expect = pytest.importorskip("playwright.async_api").expect

pytestmark = pytest.mark.integration

DRIFTED = 21 * 512  # served events after which another distribution of scores is found


@pytest.fixture(scope="module")
def service(served: Serving) -> Serving:
    served.create("fraud", window=1000)
    served.feed("learners/fraud", 1500)
    return served


@pytest_asyncio.fixture(loop_scope="session")
async def opened(service: Serving, visit: Opener) -> AsyncIterator[Page]:
    yield await visit(service.url, "#/learners/fraud")


def chart(page: Page, name: str) -> Locator:
    return page.locator(f"figure[data-chart={name}]")


def tile(page: Page, pointer: str) -> Locator:
    return page.locator(f".tiles [data-key='{pointer}'] dd")


def weights(page: Page) -> Locator:
    return page.locator("[data-panel=weights]")


def signed(number: float) -> str:
    """As the page shows it: how small a weight is depends on how far a stream has come."""
    sign = "\N{MINUS SIGN}" if number < 0 else "+"
    if number == 0 or 0.001 <= abs(number) < 1e5:
        return f"{sign}{abs(number):.3f}"
    digits, _, power = f"{abs(number):.2e}".partition("e")
    return f"{sign}{digits}e{int(power):+d}"


async def expect_news(page: Page, pattern: str) -> None:
    """Expect names and numbers in the newest of the news at the edge of the page."""
    await expect(page.locator("#news > :last-child p")).to_have_text(re.compile(pattern))


async def test_charts_and_metrics_update_while_a_stream_runs(service: Serving, opened: Page) -> None:
    line = chart(opened, "ranking").locator(".scatterlayer .js-line").last
    await expect(line).to_have_attribute("d", re.compile("^M.*L"))
    path = await line.get_attribute("d")
    events = tile(opened, "/events").locator("span")
    await expect(events).to_have_text("1,500")
    roc = chart(opened, "roc").locator(".scatterlayer .js-line").last
    await chart(opened, "roc").scroll_into_view_if_needed()  # charts out of sight are not drawn
    await expect(roc).to_have_attribute("d", re.compile("^M.*L"))
    before = await roc.get_attribute("d")
    with Stream(service, "learners/fraud"):
        await expect(events).not_to_have_text("1,500")
        await expect(roc).not_to_have_attribute("d", before or "")
        await chart(opened, "ranking").scroll_into_view_if_needed()
        await expect(line).not_to_have_attribute("d", path or "")
    await expect(opened.locator("#connection")).to_have_attribute("data-state", "live")


async def test_a_chart_shows_events_that_arrived_during_drawing(service: Serving, visit: Opener) -> None:
    service.create("resting", window=1000)
    service.feed("learners/resting", 900)
    arrived = asyncio.Event()

    async def late(route: Route) -> None:
        await arrived.wait()
        await route.fallback()

    visit.replies["**/static/plotly.min.js?*"] = late
    page = await visit(service.url, "#/learners/resting")
    events = tile(page, "/events").locator("span")
    await expect(events).to_have_text("900")
    await expect(chart(page, "ranking").locator(".plot")).to_have_attribute("aria-label", re.compile(r"\b0\.\d{3}\b"))
    service.feed("learners/resting", 300)  # and nothing after them
    await expect(events).to_have_text("1,200")
    arrived.set()
    auc = service.http.get("/learners/resting/metrics").json()["window"]["auc"]
    await expect(chart(page, "ranking").locator(".plot")).to_have_attribute("aria-label", re.compile(rf"\b{auc:.3f}\b"))


async def test_cumulative_metrics_are_drawn_as_of_each_point(service: Serving, visit: Opener) -> None:
    """A course, not today's value all along: the AUC falls, and recovers."""
    service.create("recovering", window=400)
    for shift in (3.0, -3.0, 3.0):
        service.feed("learners/recovering", 800, shift=shift)
    page = await visit(service.url, "#/learners/recovering")
    ranking = chart(page, "ranking").locator(".plot")
    await expect(ranking.locator(".scatterlayer .js-line").last).to_have_attribute("d", re.compile("^M.*L"))
    path = {item["name"]: item for item in await ranking.evaluate("plot => plot.data") if "name" in item}
    points = service.http.get("/learners/recovering/metrics/history").json()["points"]
    now = service.http.get("/learners/recovering/metrics").json()["since_start"]
    for text, figure in (("AUC", "auc"), ("average precision", "average_precision")):
        course = next(item for name, item in path.items() if name.startswith(text) and "since" in name)
        values = [point[f"since_start_{figure}"] for point in points] + [now[figure]]
        assert course["y"] == values[: len(course["y"])]
        assert len(course["y"]) >= len(points)
        assert course["line"]["dash"] == "dot"
        assert min(values) < values[-1] < max(values)
    await expect(ranking).to_have_attribute("aria-label", re.compile(rf"\b{now['auc']:.3f}\b"))
    values = rf"\b{now['f1']:.3f}\b.*\b{now['recall']:.3f}\b"
    await expect(chart(page, "decisions").locator(".plot")).to_have_attribute("aria-label", re.compile(values))


async def test_every_chart_has_a_text_description(service: Serving, opened: Page) -> None:
    window = service.http.get("/learners/fraud/metrics").json()["window"]
    values = {
        "ranking": rf"\b{window['auc']:.3f}\b",
        "decisions": rf"\b{window['recall']:.3f}\b",
        "threshold": r"\b0\.\d",
        "positives": r"\b10 %",
        "rate": r"\b0\.1\b",
        "roc": r"\d %.*\d %",
        "precision-recall": r"\d %.*\d %",
        "scores": r"\b900\b.*\b100\b.*\b0\.\d",
        "calibration": r"\d %",
    }
    for name, pattern in values.items():
        await chart(opened, name).scroll_into_view_if_needed()
        await expect(chart(opened, name).locator(".plot")).to_have_attribute("aria-label", re.compile(pattern))
        await expect(chart(opened, name).locator(".main-svg").first).to_be_visible()
    await expect(chart(opened, "coverage").locator(".nothing")).to_be_visible()
    await expect(opened.locator(".panel.confusion td").last).to_contain_text(str(window["confusion"]["tp"]))
    await expect(chart(opened, "roc").locator(".scatterlayer .point")).to_have_count(1)  # the operating point

    await opened.locator(".figures summary").click()
    await expect(opened.locator(".figures tr[data-key=brier] td").first).to_contain_text("0.0")


async def test_a_narrow_chart_of_weeks_shows_several_dates(service: Serving, visit: Opener) -> None:
    service.create("weeks")
    rows = [{"x": [i % 7, 0, 0, 0], "label": int(i % 10 == 3), "time": T0 + 7800 * i} for i in range(600)]  # 54 days
    for start in range(0, 600, 50):
        body = {"events": rows[start : start + 50]}
        service.http.post("/learners/weeks/update", json=body).raise_for_status()
    for width in (1440, 390):
        page = await visit(service.url, "#/learners/weeks", width=width)
        narrow = chart(page, "threshold")
        await narrow.scroll_into_view_if_needed()
        ticks = narrow.locator(".xaxislayer-above text")

        async def told_apart(ticks: Locator = ticks) -> bool:
            # at one moment: a tick that a new drawing takes away would be waited for
            boxes = await ticks.evaluate_all("all => all.map((tick) => tick.getBoundingClientRect().toJSON())")
            apart = all(item["right"] < other["left"] for item, other in pairwise(boxes))
            return len(boxes) >= 3 and apart

        await eventually_async(told_apart, "ticks that do not overlap")


async def test_the_first_row_gives_the_change_of_a_week_and_the_use_of_the_budget(
    service: Serving, visit: Opener
) -> None:
    service.create("sound", threshold={"objective": "budget", "alerts": 5}, window=1000)
    rows = [{"x": [i % 10, 0, 0, 0], "label": int(i % 10 == 9), "time": T0 + 1200 * i} for i in range(1200)]  # 16 days
    for start in range(0, 1200, 50):
        body = {"events": rows[start : start + 50]}
        service.http.post("/learners/sound/update", json=body).raise_for_status()
    page = await visit(service.url, "#/learners/sound")
    document = service.http.get("/learners/sound").json()
    row = page.locator(".health li")
    await expect(row).to_have_count(5)
    states = [await item.get_attribute("data-state") for item in await row.all()]
    assert states == ["good", "neutral", "neutral", "unknown", "good"]
    ranking, _, alerts, *_ = [row.nth(i) for i in range(5)]
    await expect(ranking).to_contain_text(re.compile("\\b\\d\\.\\d{3}, [+\N{MINUS SIGN}]0\\.\\d{3} .*\\b[78]\\b"))
    await expect(alerts).to_contain_text(f"{document['alert_budget']['alerts']} of 5 ")


async def test_buttons_show_the_last_hours_days_or_weeks(service: Serving, visit: Opener) -> None:
    service.create("lasting")
    rows = [
        {"x": [i % 7, 0, 0, 0], "label": int(i % 10 == 3), "time": T0 + 7 + 7200 * i} for i in range(240)
    ]  # 20 days
    for start in range(0, 240, 40):
        body = {"events": rows[start : start + 40]}
        service.http.post("/learners/lasting/update", json=body).raise_for_status()
    page = await visit(service.url, "#/learners/lasting")
    beginning = page.locator(".range [name=from]")
    for name, seconds in (("1 h", 3600), ("7 d", 7 * 86_400), ("30 d", 30 * 86_400)):
        await page.get_by_role("button", name=name, exact=True).click()
        first = datetime.fromtimestamp(rows[-1]["time"] - seconds, ZoneInfo("Asia/Tokyo"))  # the browser's
        await expect(beginning).to_have_value(first.strftime("%Y-%m-%dT%H:%M:%S"))
        assert f"from={rows[-1]['time'] - seconds:.0f}" in page.url
    await page.locator(".range").get_by_role("button").last.click()
    await expect(beginning).to_have_value("")


async def test_a_chart_is_saved_as_its_values_and_as_a_picture(opened: Page, tmp_path: Path) -> None:
    figure = chart(opened, "ranking")
    await figure.scroll_into_view_if_needed()
    await expect(figure.locator(".js-line").first).to_be_visible()
    for form, begins in (("CSV", b"series,"), ("PNG", b"\x89PNG")):
        async with opened.expect_download() as saved:
            await figure.get_by_role("button", name=f"as {form}").click()
        download = await saved.value
        await download.save_as(tmp_path / form)
        assert download.suggested_filename == f"ranking.{form.lower()}"
        assert (tmp_path / form).read_bytes().startswith(begins)
    lines = list(csv.DictReader((tmp_path / "CSV").read_text().splitlines()))
    assert {"AUC", "average precision"} <= {line["series"] for line in lines}
    assert all(0 <= float(line["value"]) <= 1 for line in lines if line["value"])


async def test_the_legend_of_a_chart_names_its_lines(opened: Page) -> None:
    """Nothing was served, so there is no line of alerts among what was; the live decisions are a mark, not a line."""
    await expect(chart(opened, "positives").locator(".legend li:not([hidden])")).to_have_count(3)
    marks = chart(opened, "roc").locator(".legend li")
    await expect(marks.nth(0).locator("line")).to_have_count(1)
    await expect(marks.nth(1).locator("path")).to_have_count(1)


async def test_label_coverage_is_shown_for_the_window_and_since_the_start(service: Serving, visit: Opener) -> None:
    service.create("answered", window=100)
    events = [{"id": f"a{i}", "x": [1, 0, 0, 0]} for i in range(400)]
    service.http.post("/learners/answered/predict", json={"events": events}).raise_for_status()
    labels = [{"id": f"a{i}", "label": int(i % 4 == 0)} for i in range(350)]
    service.http.post("/learners/answered/labels", json={"events": labels}).raise_for_status()
    page = await visit(service.url, "#/learners/answered")
    coverage = tile(page, "/window/label_coverage")
    metrics = service.http.get("/learners/answered/metrics").json()
    assert metrics["window"]["label_coverage"] != metrics["since_start"]["label_coverage"] == 0.875
    await expect(coverage.locator("small")).to_have_text([re.compile(r"\b87\.5 %"), re.compile(r"\b400\b")])
    await expect(coverage.locator("span")).to_have_text(f"{100 * metrics['window']['label_coverage']:.3g} %")


async def test_positives_are_shown_for_the_window_and_since_the_start(service: Serving, visit: Opener) -> None:
    service.create("rarer", window=100)
    rows = [{"x": [i % 7, 0, 0, 0], "label": int(i < 90)} for i in range(100)]
    rows += [{"x": [i % 7, 0, 0, 0], "label": int(i < 8)} for i in range(100)]
    service.http.post("/learners/rarer/update", json={"events": rows}).raise_for_status()
    page = await visit(service.url, "#/learners/rarer")
    coverage = tile(page, "/events")
    await expect(coverage.locator("span")).to_have_text("200")
    parts = [re.compile(r"\b98\b.*\b49 %"), re.compile(r"\b8\b.*\b8 %.*\b100\b")]
    await expect(coverage.locator("small")).to_have_text(parts)


async def test_largest_weights_equal_those_of_the_service(service: Serving, opened: Page) -> None:
    reply = service.http.get("/learners/fraud/weights?top=20").json()
    panel = weights(opened)
    rows = panel.locator("tbody tr")
    await expect(rows.locator("th")).to_have_text([weight["name"] for weight in reply["weights"]])
    await expect(rows.locator(".number")).to_have_text([signed(item["weight"]) for item in reply["weights"]])
    signs = ["against" if item["weight"] < 0 else "for" for item in reply["weights"]]
    for i, sign in enumerate(signs):
        await expect(rows.nth(i).locator(".bar")).to_have_attribute("data-sign", sign)
    note = re.compile(rf"^4\b.*\b4\b.*{re.escape(signed(reply['intercept']))}\.$")
    await expect(panel.locator(".quiet")).to_have_text(note)
    widths = await rows.locator(".bar span").evaluate_all("all => all.map(one => one.getBoundingClientRect().width)")
    assert widths[0] > 10
    assert widths == sorted(widths, reverse=True)


async def test_the_models_of_auto_are_those_of_the_service(service: Serving, visit: Opener) -> None:
    models = ["fofo", "bins", {"algorithm": "cbr", "params": {"capacity": 5}, "name": "mine"}]
    service.create("several", algorithm="auto", params={"members": models})
    service.feed("learners/several", 300)
    members = service.http.get("/learners/several").json()["members"]
    rows = (await visit(service.url, "#/learners/several")).locator("[data-panel=members] tbody tr")
    await expect(rows.locator("th")).to_have_text([f"{member['name']} {member['kind']}" for member in members])
    for place, member in enumerate(members):
        metrics = [f"{member[name]:.3f}" for name in ("auc", "average_precision")]
        await expect(rows.nth(place).locator("td").nth(1)).to_have_text(metrics[0])
        await expect(rows.nth(place).locator("td").nth(2)).to_have_text(metrics[1])
    weights_shown = rows.locator("td:nth-child(2)")
    signs = ["\N{MINUS SIGN}" if member["weight"] < 0 else "+" for member in members[:-1]]
    texts = [f"{sign}{abs(member['weight']):.2f}" for sign, member in zip(signs, members[:-1], strict=True)]
    await expect(weights_shown).to_have_text([*texts, "\N{EN DASH}"])


async def test_the_reason_for_missing_weights_is_shown(service: Serving, visit: Opener) -> None:
    service.create("severity", algorithm="npsvor", params={"ranks": 3})
    rows = [{"x": [i % 3, 0, 0, 1], "label": i % 3 + 1} for i in range(90)]
    service.http.post("/learners/severity/update", json={"events": rows}).raise_for_status()
    page = await visit(service.url, "#/learners/severity")
    reason = service.http.get("/learners/severity/weights").json()["reason"]
    await expect(weights(page).locator(".quiet")).to_contain_text(reason)
    await expect(weights(page).get_by_role("table")).to_be_hidden()

    form = page.locator(".scoring")  # an ordinal learner's scores are not explained
    await form.locator("textarea").fill('{"x": [2, 0, 0, 1]}')
    await form.locator("[type=submit]").click()
    reply = service.http.post("/learners/severity/predict", json={"events": [{"x": [2, 0, 0, 1]}]}).json()
    await expect(form.locator(".verdict")).to_contain_text(str(reply["results"][0]["rank"]))


async def test_fields_and_what_contradicts_them_are_shown(service: Serving, visit: Opener) -> None:
    service.create("fields", features={"kind": "named", "categorical": ["shop", "Till"]})
    rows: list[dict[str, Any]] = [{"shop": i % 3, "amount": 1.5} for i in range(996)]
    rows += [{"shop": "x", "amount": "12.5"}, {"amount": "x"}, {"amount": -1234567}, {"shop": True}]
    events = [{"features": row, "label": i % 2} for i, row in enumerate(rows)]
    service.http.post("/learners/fields/update", json={"events": events}).raise_for_status()
    page = await visit(service.url, "#/learners/fields")
    panel = page.locator("[data-panel=fields]")
    cells = panel.locator("tbody tr")
    none = "\N{EN DASH}"
    await expect(cells.locator("th")).to_have_text(["amount", "shop", "Till"])  # by contradictions
    kinds = ["number", "99.8 %", "0.1 %", "0.1 %", none, "0.1 %", "0.1 %", none, "0.2 %"]
    bounds = ["\N{MINUS SIGN}1,234,600", "1.5", "1.5", "12.5"]
    await expect(cells.nth(0).locator("td")).to_have_text([*kinds, *bounds, "999"])
    await expect(cells.nth(1).locator("td")).to_have_text(
        ["category", "99.6 %", none, "0.2 %", none, "0.2 %", none, "5", none, "0", none, none, "2", "1,000"]
    )
    await expect(cells.nth(2).locator("td")).to_have_text(
        ["category", none, none, none, none, "100 %", none, none, none, none, none, none, none, re.compile("^[a-z]+$")]
    )
    await expect(panel.locator(".quiet")).to_have_text(re.compile(r"\bTill\b"))


async def test_hashed_features_are_named_when_their_events_arrive(service: Serving, visit: Opener) -> None:
    service.create("hashed", features={"kind": "named", "log": ["amount"]})
    rows = [{"features": {"amount": 1 + i % 5, "shop": f"s{i % 3}"}, "label": int(i % 5 == 4)} for i in range(200)]
    service.http.post("/learners/hashed/update", json={"events": rows}).raise_for_status()
    page = await visit(service.url, "#/learners/hashed")
    await expect(weights(page).get_by_role("row", name="amount")).to_be_visible()
    unnamed = weights(page).get_by_role("row", name=re.compile(r"^column \d+"))
    note = weights(page).locator(".quiet")
    await expect(unnamed).to_have_count(3)
    await expect(note).to_have_text(re.compile(r"\. 3\b"))
    events = [{"features": {"shop": f"s{i}"}} for i in range(2)]  # which moves no position
    service.http.post("/learners/hashed/predict", json={"events": events}).raise_for_status()
    for shop in ("s0", "s1"):
        await expect(weights(page).get_by_role("row", name=f"shop={shop}")).to_be_visible()
    await expect(unnamed).to_have_count(1)
    await expect(note).to_have_text(re.compile(r"\. 1\b"))
    form = page.locator(".scoring")
    await form.locator("textarea").fill('{"features": {"shop": "s2"}}')
    await form.locator("[type=submit]").click()
    await expect(weights(page).get_by_role("row", name="shop=s2")).to_be_visible()
    await expect(unnamed).to_have_count(0)
    await expect(note).to_have_text(re.compile(r"\d\.$"))


async def test_overflowed_numbers_are_marked(service: Serving, visit: Opener) -> None:
    """Given in place of the service: its bounds of numbers and weights leave this to unusually long streams."""
    entries = [{"name": "x[0]", "weight": None}, {"name": "x[1]", "weight": -2e9}, {"name": "x[2]", "weight": 0.0}]
    reply = {"intercept": None, "weights": entries, "total": 3, "unnamed": 0, "reason": None}
    visit.replies["**/weights?*"] = replying(reply)
    parts = {"intercept": 0.5, "features": [{"name": "x[0]", "contribution": None}], "rest": 0.0}
    result = {"id": None, "score": None, "probability": 1.0, "threshold": 0.5, "label": 1, "explanation": parts}
    visit.replies["**/predict?*"] = replying({"position": 1, "ready": True, "results": [result]})
    page = await visit(service.url, "#/learners/fraud")
    no_number = re.compile(r"^\D+$")
    await expect(weights(page).locator(".quiet")).to_have_text(re.compile(r"^3\b.*\b3\b\D+$"))  # no intercept
    coverage = [no_number, re.compile(re.escape("\N{MINUS SIGN}2.00e+9")), re.compile(re.escape("+0.000"))]
    await expect(weights(page).locator("tbody .number")).to_have_text(coverage)
    await page.locator(".scoring [type=submit]").click()
    await expect(page.locator(".result dd").first).to_have_text(no_number)
    await expect(page.locator(".result tbody .number")).to_have_text([no_number])


async def test_a_time_axis_appears_on_an_open_page(service: Serving, visit: Opener) -> None:
    service.create("early")
    page = await visit(service.url, "#/learners/early")
    await expect(page.locator(".nothing:visible").first).to_be_visible()
    service.feed("learners/early", 1000)
    axis = page.locator("select[name=by]")
    await expect(axis.locator("option")).to_have_count(2)
    await expect(axis).to_have_value("clock")
    await expect(page.locator("[name=from]")).to_have_attribute("type", "datetime-local")
    await axis.select_option("events")
    await page.locator("[name=from]").fill("200")
    await page.locator("[name=from]").blur()
    await expect(page).to_have_url(re.compile("by=events"))


async def test_the_score_form_shows_the_contribution_of_each_feature(
    service: Serving, opened: Page, visit: Opener
) -> None:
    form = opened.locator(".scoring")
    await form.locator("textarea").fill('{"id": "mine", "x": [6, 1, 0, 0]}')
    served = service.http.get("/learners/fraud/metrics").json()["served"]["events"]
    await form.locator("[type=submit]").click()
    await expect(form.locator(".verdict")).to_have_attribute("data-alert", "true")
    await expect(form.get_by_role("row")).to_have_count(5)  # the head, and four features
    reply = service.http.post("/learners/fraud/predict", json={"events": [{"x": [6, 1, 0, 0]}]}).json()
    await expect(form.locator("dd").nth(1)).to_have_text(f"{reply['results'][0]['probability']:.3g}")
    assert service.http.get("/learners/fraud/metrics").json()["served"]["events"] == served  # not remembered

    visit.expected = ("422",)
    await form.locator("textarea").fill('{"x": [6, 1]}')
    await form.locator("[type=submit]").click()
    await expect(form.get_by_role("alert")).to_contain_text("/x")
    await expect(form.locator(".verdict")).to_have_count(0)
    await form.locator("textarea").fill("{x")
    await form.locator("[type=submit]").click()
    await expect(form.get_by_role("alert")).not_to_contain_text("/x")
    trouble = await form.get_by_role("alert").inner_text()
    await form.locator("textarea").fill("null")
    await form.locator("[type=submit]").click()
    await expect(form.get_by_role("alert")).not_to_have_text(trouble)
    await expect(form.get_by_role("alert")).to_be_visible()


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
    await page.locator(".scoring [type=submit]").click()
    await expect(page.locator(".result").get_by_role("row", name="amount")).to_be_visible()
    await expect(page.locator(".result")).to_contain_text("shop=<b>1</b>")  # text, not markup
    await page.get_by_label("amount numeric").fill("")
    await page.locator(".scoring [type=submit]").click()
    await expect(page.locator(".result").get_by_role("row", name="amount (missing)")).to_be_visible()
    visit.expected = ("422",)
    await page.get_by_label("amount numeric").fill("much")
    await page.locator(".scoring [type=submit]").click()
    await expect(page.locator(".scoring").get_by_role("alert")).to_contain_text("amount")
    await expect(page.get_by_label("amount numeric")).to_have_attribute("aria-invalid", "true")
    await expect(page.get_by_label("amount numeric")).to_be_focused()
    await expect(page.get_by_label("shop categorical")).not_to_have_attribute("aria-invalid", "true")
    await page.get_by_label("amount numeric").fill("3")
    await page.locator(".scoring [type=submit]").click()
    await expect(page.locator(".verdict")).to_be_visible()
    await expect(page.get_by_label("amount numeric")).not_to_have_attribute("aria-invalid", "true")


async def test_the_zoom_is_stored_in_the_url(service: Serving, visit: Opener) -> None:
    page = await visit(service.url, "#/learners/fraud?by=events&from=500&to=900")
    await expect(page.locator("[name=from]")).to_have_value("500")
    ticks = chart(page, "ranking").locator(".xtick text")
    await expect(ticks.first).to_have_text("500")
    await page.locator("[name=to]").fill("700")
    await page.keyboard.press("Tab")
    await expect(page).to_have_url(re.compile(r"#/learners/fraud\?by=events&from=500&to=700$"))
    await page.locator(".range button").last.click()
    await expect(page).to_have_url(re.compile(r"#/learners/fraud\?by=events$"))
    await expect(ticks.last).to_have_text(re.compile(r"^\d+,\d{3}$"))  # all 1,500 events, or more

    by_clock = await visit(service.url, f"#/learners/fraud?from={T0 + 6000:.0f}&to={T0 + 9000:.0f}")
    await expect(by_clock.locator("[name=from]")).to_have_value("2026-01-01T10:40")  # in the reader's zone
    note = by_clock.locator(".range").get_by_role("status")
    await expect(note).to_have_text("")

    written = await visit(service.url, "#/learners/fraud?from=2026-01-01T01:40:00Z")
    await expect(written.locator("[name=from]")).to_have_value("2026-01-01T10:40")
    odd = await visit(service.url, "#/learners/fraud?by=bogus&from=yesterday&to=")
    await expect(odd.locator(".range .unread")).to_have_text(re.compile("“bogus”.*“yesterday”.*“”"))
    turned = await visit(service.url, "#/learners/fraud?by=events&from=700&to=500")
    await expect(turned.locator(".range .unread")).to_have_text(re.compile("“from”.*“to”"))


async def test_the_threshold_dialog_changes_the_threshold(service: Serving, opened: Page, visit: Opener) -> None:
    await opened.locator("[data-action=threshold]").click()
    dialog = opened.get_by_role("dialog")
    await expect(dialog.get_by_label("objective")).to_have_value("f1-window")
    await expect(dialog.get_by_label("objective").locator("option:checked")).to_have_text(re.compile(r"^f1-window \("))
    about = dialog.locator(".setting").first.locator(".help")
    no_bounds = re.compile(r"^[^(]+$")
    await expect(about).to_have_text(no_bounds)
    first = await about.inner_text()
    memory = dialog.locator(".setting", has=opened.get_by_label("memory")).locator(".help")
    await expect(memory).to_have_text(re.compile(r"\(.*\b1,000,000,000\b.*\bnull\b.*\b30,000\)$"))
    await dialog.get_by_label("memory").fill("Null")
    await dialog.locator("[type=submit]").click()
    await expect(dialog).to_have_count(0)
    assert service.http.get("/learners/fraud").json()["config"]["threshold"]["memory"] is None
    await opened.locator("[data-action=threshold]").click()
    await expect(dialog.get_by_label("memory")).to_have_value("null")
    await dialog.get_by_label("memory").fill("")  # the default again
    await dialog.get_by_label("objective").select_option("budget")
    await expect(about).not_to_have_text(first)
    await expect(about).to_have_text(no_bounds)
    alerts = dialog.locator(".setting", has=opened.get_by_label("alerts")).locator(".help")
    await expect(alerts).to_have_text(re.compile(r"\(\D*\b1, [^;]*\)$"))
    await expect(dialog.get_by_label("unit_seconds")).to_be_visible()
    await expect(dialog.get_by_label("target")).to_be_hidden()  # of other objectives
    await dialog.get_by_label("objective").select_option("precision")
    await expect(dialog.get_by_label("memory")).to_be_visible()
    target = dialog.locator(".setting", has=opened.get_by_label("target")).locator(".help")
    await expect(target).to_have_text(re.compile(r"\(\D*\b0, \D*\b1\)$"))
    visit.expected = ("422",)
    await dialog.get_by_label("target").fill("2")
    await dialog.locator("[type=submit]").click()
    wrong = dialog.locator(".setting", has=opened.get_by_label("target")).locator(".trouble")
    await expect(wrong).to_have_text(re.compile(r"\b2\b.*\b1$"))
    await expect(dialog.get_by_label("target")).to_have_attribute("aria-invalid", "true")
    await dialog.get_by_label("target").fill("0.8")
    await dialog.locator("[type=submit]").click()
    await expect(dialog).to_have_count(0)
    await expect_news(opened, r"\bfraud\b.*\bprecision\b")
    threshold = service.http.get("/learners/fraud").json()["config"]["threshold"]
    assert (threshold["objective"], threshold["target"], threshold["memory"]) == ("precision", 0.8, 30_000)


async def test_snapshot_is_taken_and_restored(service: Serving, opened: Page) -> None:
    await opened.locator("[data-action=snapshot]").click()
    await opened.locator("dialog [type=submit]").click()
    await expect_news(opened, r"\bfraud\b.*\d")
    position = service.http.get("/learners/fraud/snapshots").json()["snapshots"][0]["position"]
    row = opened.locator(f"[data-panel=snapshots] [data-key^='{position} ']")
    cell = row.locator("td").first
    before = await cell.text_content()
    assert before
    await opened.wait_for_timeout(1100)  # times are shown to the second
    await opened.locator("[data-action=snapshot]").click()
    await opened.locator("dialog [type=submit]").click()
    await expect(cell).not_to_have_text(before)  # another at the same position
    events = service.http.get("/learners/fraud").json()["events"]
    service.feed("learners/fraud", 100)
    await row.locator("button").click()
    dialog = opened.get_by_role("dialog")
    await expect(dialog).to_be_visible()
    await opened.keyboard.press("Escape")
    await expect(dialog).to_have_count(0)
    assert service.http.get("/learners/fraud").json()["events"] == events + 100  # nothing was done
    restore = row.locator("button")
    await expect(restore).to_be_focused()
    await restore.click()
    await opened.locator("dialog [type=submit]").click()
    await expect_news(opened, rf"^fraud\b.*\b{position}\.$")
    await expect(tile(opened, "/events").locator("span")).to_have_text(f"{events:,}")


async def test_the_clone_dialog_requests_a_name(service: Serving, opened: Page, visit: Opener) -> None:
    await opened.locator("[data-action=clone]").click()
    dialog = opened.get_by_role("dialog")
    name = dialog.get_by_role("textbox")
    await expect(name).to_have_value("fraud-copy")
    visit.expected = ("409", "422")
    await name.fill("fraud 2")
    await dialog.locator("[type=submit]").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("'fraud 2'")
    await name.fill("fraud")
    await dialog.locator("[type=submit]").click()
    await expect(dialog.get_by_role("alert")).to_have_text(re.compile(r"\bfraud\b(?! 2)"))  # which there is already
    await name.fill("fraud-2")
    await dialog.locator("[type=submit]").click()
    await expect_news(opened, r"\bfraud-2\b.*\bfraud\b")
    digests = {item: service.http.get(f"/learners/{item}/digest").json()["digest"] for item in ("fraud", "fraud-2")}
    assert digests["fraud-2"] == digests["fraud"]
    await opened.get_by_role("log").get_by_role("link").click()
    await expect(opened.get_by_role("heading", name="fraud-2", level=1)).to_be_visible()
    reply = service.http.get("/learners/fraud").json()
    await expect(tile(opened, "/events").locator("span")).to_have_text(f"{reply['events']:,}")


async def test_an_export_is_saved_as_an_importable_file(service: Serving, opened: Page, tmp_path: Path) -> None:
    async with opened.expect_download() as download:
        await opened.locator("[data-action=export]").click()
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
    await opened.route("**/fraud/export", replying({"detail": "no store"}, status=503))
    await opened.locator("[data-action=export]").click()
    await expect_news(opened, r"^fraud\b.*no store$")


async def test_deletion_requires_typing_the_name(service: Serving, visit: Opener) -> None:
    service.create("doomed")
    page = await visit(service.url, "#/learners/doomed")
    await expect(tile(page, "/window/auc").locator("span")).to_have_text("\N{EN DASH}")  # not 0
    await page.locator("[data-action=delete]").click()
    await page.get_by_role("dialog").get_by_role("textbox").fill("doom")
    await page.locator("dialog [type=submit]").click()
    await expect(page.get_by_role("dialog").get_by_role("alert")).to_be_visible()
    assert service.http.get("/learners/doomed").status_code == 200
    await page.get_by_role("dialog").get_by_role("textbox").fill("doomed")
    visit.expected = ("404",)  # of requests that were under way
    await page.locator("dialog [type=submit]").click()
    await expect(page).to_have_url(f"{service.url}/#/")
    assert service.http.get("/learners/doomed").status_code == 404


async def test_a_missing_learner_is_reported(service: Serving, visit: Opener) -> None:
    visit.expected = ("404",)
    page = await visit(service.url, "#/learners/nobody")
    for part in ("h1", "p >> nth=0"):
        await expect(page.locator(f".message[role=alert] {part}")).to_contain_text("nobody")


async def test_a_malformed_url_shows_no_page(service: Serving, visit: Opener) -> None:
    page = await visit(service.url, "#/learners/%E0%A4%A")
    await expect(page.locator(".message h1")).to_be_visible()


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
    for coverage in (page, overview):
        await expect(coverage.locator("#news .alarm")).to_contain_text("drifting")
    await expect(page.locator(".alarms li")).to_have_count(1)
    await expect(chart(page, "threshold").locator(".shapelayer path")).to_have_count(1)
    await expect(overview.get_by_role("row", name="drifting")).to_have_attribute("data-state", "drift")
    await acknowledge_and_annotate(page, service, visit)
    await expect(overview.get_by_role("row", name="drifting")).to_have_attribute("data-state", "well")


HOSTILE = "<img src=x onerror=alert(1)> & <b>bold</b>"


async def acknowledge_and_annotate(page: Page, service: Serving, visit: Opener) -> None:
    """Acknowledge the one alarm and note something; both are shown as they were written."""
    raised = page.locator(".alarms li").first
    await expect(raised.locator(".badge")).to_have_text("open")
    await raised.get_by_role("button").click()
    await page.locator("dialog textarea").fill(HOSTILE)
    await page.locator("dialog input").fill("Ann")
    await page.locator("dialog [type=submit]").click()
    await expect(raised.locator(".badge")).to_have_text("acknowledged")
    await expect(raised.locator("p").last).to_have_text(f"acknowledged by Ann: {HOSTILE}")
    await expect(raised.get_by_role("button")).to_have_count(0)
    await page.get_by_role("button", name="Annotate …").click()
    await expect(page.locator("dialog input")).to_have_value("Ann")
    visit.expected = ("422",)
    await page.locator("dialog [type=submit]").click()
    await expect(page.locator("dialog .trouble")).to_be_visible()  # nothing was written
    await page.locator("dialog textarea").fill(HOSTILE)
    await page.locator("dialog [type=submit]").click()
    await expect(page.locator(".alarms li")).to_have_count(2)
    await chart(page, "threshold").scroll_into_view_if_needed()  # others are not drawn
    await expect(chart(page, "threshold").locator(".shapelayer path")).to_have_count(2)
    note = {"text": "by another reader"}
    service.http.post("/learners/drifting/annotations", json=note).raise_for_status()
    await expect(page.locator(".alarms li")).to_have_count(3)
    await expect(chart(page, "threshold").locator(".annotation")).to_have_count(3)
    assert await page.locator(".alarms img, .alarms b, .annotation b").count() == 0
