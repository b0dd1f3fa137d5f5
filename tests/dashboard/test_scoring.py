"""The event that the form begins with: of features that the learner knows, or that the reader sent last."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.dashboard.conftest import Opener
from tests.dashboard.serving import Serving

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page

expect = pytest.importorskip("playwright.async_api").expect

pytestmark = pytest.mark.integration


def area(page: Page) -> Locator:
    return page.locator(".scoring textarea")


async def features(page: Page) -> Any:
    return json.loads(await area(page).input_value())["features"]


async def test_the_score_form_lists_declared_features(served: Serving, visit: Opener) -> None:
    served.create("declared", features={"kind": "named", "log": ["amount"], "categorical": ["shop"]})
    page = await visit(served.url, "#/learners/declared")
    await expect(area(page)).to_be_visible()
    assert await features(page) == {"amount": 1, "shop": 0}


async def test_an_event_without_contributions_is_reported(served: Serving, visit: Opener) -> None:
    served.create("unmoved", features={"kind": "named"})
    page = await visit(served.url, "#/learners/unmoved")
    await area(page).fill('{"features": {}}')
    await page.locator(".scoring [type=submit]").press("Enter")  # a click might miss it while the page is built
    await expect(page.locator(".result > p:last-child")).to_contain_text("+0.000")  # the intercept alone
    await expect(page.locator(".result table")).to_have_count(0)


@pytest.mark.parametrize("id", ["", '"id": "mine", '])
async def test_numbers_are_sent_exactly_as_typed(served: Serving, visit: Opener, id: str) -> None:
    served.create(f"long-{len(id)}", features={"kind": "named", "categorical": ["shop"]})
    rows = [{"features": {"shop": 9007199254740993 - i % 2}, "label": 1 - i % 2} for i in range(20)]
    served.http.post(f"/learners/long-{len(id)}/update", json={"events": rows}).raise_for_status()
    page = await visit(served.url, f"#/learners/long-{len(id)}")
    score = page.locator(".scoring [type=submit]")
    for shop in ("9007199254740993", "9007199254740992"):
        await area(page).fill(f'{{{id}"features": {{"shop": {shop}}}}}')
        await score.click()
        event = {"features": {"shop": int(shop)}}
        reply = served.http.post(f"/learners/long-{len(id)}/predict", json={"events": [event]}).json()
        score_text = f"{reply['results'][0]['score']:.3g}".replace("-", "\N{MINUS SIGN}")
        await expect(page.locator(".result dd").first).to_have_text(score_text)
        await expect(page.locator(".result").get_by_role("row", name=f"shop={shop}")).to_be_visible()
    visit.expected = ("422",)
    await area(page).fill('{"features": {"shop": {}}}')
    await score.click()
    alert = page.locator(".scoring").get_by_role("alert")
    await expect(alert).to_contain_text("shop")
    await area(page).fill('{"events": [{"features": {"shop": 1}}]}')
    await score.click()
    await expect(alert).not_to_contain_text("shop")
    await expect(alert).not_to_be_empty()


async def test_missing_features_member_and_unreachable_server_are_reported(served: Serving, visit: Opener) -> None:
    served.create("flat", features={"kind": "named"})
    visit.expected = ("ERR_",)
    page = await visit(served.url, "#/learners/flat")
    score = page.locator(".scoring [type=submit]")
    await area(page).fill('{"words": 3}')
    await score.click()
    alert = page.locator(".scoring").get_by_role("alert")
    await expect(alert).to_contain_text('"features"')
    await area(page).fill('{"features": {"words": 3}}')
    await page.route("**/predict?*", lambda route: route.abort())
    await score.click()
    await expect(alert).not_to_contain_text('"features"')
    await expect(alert).to_be_visible()
    await page.unroute_all()
    await score.click()
    await expect(page.locator(".verdict")).to_be_visible()
    await expect(alert).to_be_hidden()


async def test_the_score_form_lists_observed_features_and_invents_none(served: Serving, visit: Opener) -> None:
    served.create("met", features={"kind": "named"})
    page = await visit(served.url, "#/learners/met")
    await expect(area(page)).to_be_visible()
    weights = page.locator("[data-panel=weights]")
    assert await features(page) == {}
    await expect(page.locator(".scoring textarea + small")).to_be_visible()
    rows = [{"features": {"words": 1 + i % 5, "from": f"s{i % 2}"}, "label": int(i % 5 == 4)} for i in range(200)]
    served.http.post("/learners/met/update", json={"events": rows}).raise_for_status()
    served.http.get("/learners/met/weights").raise_for_status()  # names come with events after a look at the weights
    served.http.post(
        "/learners/met/predict", json={"events": [{"features": row["features"]} for row in rows[:20]]}
    ).raise_for_status()
    await page.reload()
    await expect(weights.get_by_role("row", name="words")).to_be_visible()
    assert set(await features(page)) == {"words", "from"}
    await expect(page.locator(".scoring textarea + small")).to_be_hidden()

    await area(page).fill('{"features": {"words": 3}}')
    await page.locator(".scoring [type=submit]").click()
    await expect(page.locator(".verdict")).to_be_visible()
    await page.locator(".title a").click()
    await page.get_by_role("link", name="met", exact=True).click()
    await expect(weights.get_by_role("row", name="words")).to_be_visible()
    assert await features(page) == {"words": 3}  # as it was sent
