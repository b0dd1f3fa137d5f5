"""The slider over thresholds in a browser, and the preview of settings before they are set."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.dashboard.conftest import Opener
from tests.dashboard.replies import key, replying
from tests.dashboard.serving import Serving

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page

expect = pytest.importorskip("playwright.async_api").expect

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def service(served: Serving) -> Serving:
    served.create("fraud", window=1000)
    served.feed("learners/fraud", 1200)
    return served


def panel(page: Page) -> Locator:
    return page.locator("[data-panel=thresholds]")


def slider(page: Page) -> Locator:
    return panel(page).locator("input[type=range]")


async def move(page: Page, key: str) -> None:
    """Press a key on the slider once it is there: a key that comes before it goes to the page."""
    await expect(slider(page)).to_be_visible()
    await slider(page).press(key)


def figure(where: Locator, row: int, column: int) -> Locator:
    return where.locator(".outcomes tbody tr").nth(row).locator("td").nth(column).locator("span")


def thresholds(service: Serving, name: str = "fraud", **query: Any) -> dict[str, Any]:
    document: dict[str, Any] = service.http.get(f"/learners/{name}/thresholds", params={"points": 100, **query}).json()
    return document


def settings(service: Serving, name: str = "fraud") -> dict[str, Any]:
    document: dict[str, Any] = service.http.get(f"/learners/{name}").json()["config"]["threshold"]
    return document


async def test_the_slider_shows_the_figures_of_each_threshold(service: Serving, visit: Opener) -> None:
    reply = thresholds(service)
    page = await visit(service.url, "#/learners/fraud")
    level = panel(page).locator("output")
    await expect(level).to_have_text(str(reply["threshold"]))  # it begins at the one in force
    await expect(figure(panel(page), 0, 0)).to_have_text(f"{reply['actual']['precision']:.3f}")
    await expect(figure(panel(page), 0, 1)).to_have_text(f"{reply['live']['precision']:.3f}")
    points = reply["points"]
    cells = panel(page).locator(".confusion td span")
    for press, i in (("Home", 0), ("End", -1)):
        await move(page, press)
        await expect(level).to_have_text(f"{points['threshold'][i]:g}")
        await expect(figure(panel(page), 1, 1)).to_have_text(f"{points['recall'][i]:.3f}")
        counts = [f"{points['confusion'][cell][i]:,}" for cell in ("tn", "fp", "fn", "tp")]
        await expect(cells).to_have_text(counts)
        await expect(slider(page)).to_have_attribute("aria-valuetext", re.compile(r"precision \d\.\d\d, recall"))
    await move(page, "ArrowLeft")
    await expect(level).to_have_text(f"{points['threshold'][-2]:g}")
    await panel(page).locator("[data-trial=in-force]").press("Enter")
    await expect(level).to_have_text(str(reply["threshold"]))


async def test_costs_are_those_that_the_reader_enters(service: Serving, visit: Opener) -> None:
    page = await visit(service.url, "#/learners/fraud")
    await expect(figure(panel(page), 4, 1)).to_be_visible()
    for name, value in (("false_positive", "2"), ("false_negative", "50")):
        await panel(page).locator(f"input[name={name}]").fill(value)
        await panel(page).locator(f"input[name={name}]").press("Tab")
    cost = thresholds(service, false_positive=2, false_negative=50)["live"]["cost"]
    await expect(figure(panel(page), 4, 1)).to_have_text(f"{cost:,.0f}" if cost >= 1000 else f"{cost:g}")


async def test_a_chosen_threshold_stays_while_events_come(service: Serving, visit: Opener) -> None:
    service.create("moving", window=1000)
    service.feed("learners/moving", 600)
    page = await visit(service.url, "#/learners/moving")
    await move(page, "Home")
    await expect(panel(page).locator("output")).to_have_text("0")
    service.feed("learners/moving", 100)
    await expect(panel(page).locator("p").first).to_contain_text("700 labelled events")
    await expect(panel(page).locator("output")).to_have_text("0")


async def test_a_threshold_is_set_after_a_preview(service: Serving, visit: Opener) -> None:
    service.create("setting", window=1000)
    service.feed("learners/setting", 600)
    page = await visit(service.url, "#/learners/setting")
    await move(page, "End")
    highest = await panel(page).locator("output").text_content()
    await panel(page).locator("[data-trial=apply]").press("Enter")
    dialog = page.get_by_role("dialog")
    tried = service.http.post(
        "/learners/setting/thresholds/preview", json={"objective": "fixed", "value": float(highest or "nan")}
    ).json()
    await expect(figure(dialog, 1, 1)).to_have_text(f"{tried['preview']['recall']:.3f}")
    assert settings(service, "setting")["objective"] == "f1-window"
    await dialog.locator("[type=submit]").press("Enter")
    await expect(page.locator("#news > :last-child p")).to_have_text(re.compile("fixed"))
    assert settings(service, "setting")["objective"] == "fixed"
    assert settings(service, "setting")["value"] == float(highest or "nan")
    await panel(page).locator("[data-trial=in-force]").press("Enter")


async def test_another_objective_is_previewed_as_it_is_entered(service: Serving, visit: Opener) -> None:
    before = settings(service)
    page = await visit(service.url, "#/learners/fraud")
    await page.locator("[data-action=threshold]").press("Enter")
    dialog = page.get_by_role("dialog")
    await expect(dialog.locator(".outcomes")).to_be_visible()
    visit.expected = ("422",)
    await dialog.locator("select").select_option("recall")
    await expect(dialog.locator(".outcomes")).to_be_hidden()  # it has no target yet
    await expect(dialog.locator(".preview p").first).to_contain_text("target")
    await dialog.get_by_label("target", exact=True).fill("0.5")
    tried = service.http.post("/learners/fraud/thresholds/preview", json={"objective": "recall", "target": 0.5}).json()
    for row, name in enumerate(("precision", "recall", "f1")):
        await expect(figure(dialog, row, 0)).to_have_text(f"{tried['actual'][name]:.3f}")
        await expect(figure(dialog, row, 1)).to_have_text(f"{tried['preview'][name]:.3f}")
    await page.keyboard.press("Escape")
    await expect(dialog).to_have_count(0)
    assert settings(service) == before


async def test_learners_without_labels_or_without_a_threshold(service: Serving, visit: Opener) -> None:
    service.create("empty")
    service.create("ranks", algorithm="npsvor", params={"ranks": 3})
    page = await visit(service.url, "#/learners/empty")
    await expect(panel(page).locator("p").first).to_contain_text("no labelled events")
    await expect(panel(page).locator(".trial")).to_be_hidden()
    page = await visit(service.url, "#/learners/ranks")
    await expect(page.locator(".confusion").first).to_be_visible()
    await expect(panel(page)).to_have_count(0)


async def test_undefined_figures_state_their_reason(service: Serving, visit: Opener) -> None:
    service.create("timeless")
    rows = [{"x": [i % 7, 0, 0, 1], "label": int(i % 7 == 3)} for i in range(100)]
    service.http.post("/learners/timeless/update", json={"events": rows}).raise_for_status()
    page = await visit(service.url, "#/learners/timeless")
    await expect(figure(panel(page), 3, 1)).to_have_text("\N{EN DASH}")
    reason = thresholds(service, "timeless")["undefined"]["/points/alerts_per_day"]
    await expect(panel(page).locator(".outcomes p")).to_contain_text(reason)


async def test_a_key_without_admin_tries_and_sets_nothing(service: Serving, visit: Opener) -> None:
    visit.replies["**/v1/key"] = replying(key("ann", "read"))
    page = await visit(service.url, "#/learners/fraud")
    await move(page, "End")
    await expect(panel(page).locator("[data-trial=apply]")).to_be_disabled()
    await expect(panel(page).locator(".buttons + p")).to_contain_text("admin")
