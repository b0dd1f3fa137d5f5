"""What the page withholds from a key that may not, in a browser: each key by the reply of `GET /v1/key`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.dashboard.conftest import Opener
from tests.dashboard.replies import key, replying
from tests.dashboard.serving import Serving

if TYPE_CHECKING:
    from playwright.async_api import Page, Route

expect = pytest.importorskip("playwright.async_api").expect

pytestmark = pytest.mark.integration

CHANGES = "[data-action], [data-panel=snapshots] button"  # of a learner, by a key with the scope admin
SCORE, CREATE = ".scoring [type=submit]", ".create [type=submit]"
IMPORT, GROUP = ".importing button", ".title button"


def lacking(scope: str) -> re.Pattern[str]:
    """Return the pattern of a reason that names the scope and the key that lacks it."""
    return re.compile(rf"\b{scope}\b.*\bviewer\b")


@pytest.fixture(scope="module")
def service(served: Serving) -> Serving:
    served.create("fraud")
    served.feed("learners/fraud", 200)
    served.http.post("/learners/fraud/snapshots").raise_for_status()
    return served


async def expect_buttons(page: Page, *, enabled: bool) -> None:
    """Expect that everything on a learner's page can be done, or nothing."""
    changes = page.locator(CHANGES)
    await expect(changes).to_have_count(6)
    for button in (*await changes.all(), page.locator(SCORE)):
        await expect(button).to_be_enabled(enabled=enabled)


async def all_may(page: Page) -> None:
    """Everything of a learner's page can be done."""
    await expect_buttons(page, enabled=True)
    await expect(page.locator(".withheld:visible")).to_have_count(0)


async def test_without_keys_everything_is_enabled_and_no_key_is_requested(service: Serving, visit: Opener) -> None:
    page = await visit(service.url, "#/learners/fraud")
    await all_may(page)
    await expect(page.locator("#key")).to_be_hidden()
    await page.locator("[data-page=create]").click()
    await expect(page.locator(CREATE)).to_be_enabled()
    await page.locator("[data-page=compare]").click()
    await expect(page.locator(GROUP)).to_be_enabled()
    await expect(page.locator(".withheld:visible")).to_have_count(0)
    assert visit.requests.count("/v1/key") == 1  # once for each load of the page


async def test_a_server_without_the_key_endpoint_enables_everything(service: Serving, visit: Opener) -> None:
    visit.replies["**/v1/key"] = replying({"detail": "there is no such path", "code": "not-found"}, status=404)
    visit.expected = ("404",)
    page = await visit(service.url, "#/learners/fraud")
    await all_may(page)
    await expect(page.locator("#key")).to_be_hidden()


async def test_a_read_only_key_disables_changes(service: Serving, visit: Opener) -> None:
    visit.replies["**/v1/key"] = replying(key("viewer", "read"))
    page = await visit(service.url, "#/learners/fraud")
    await expect_buttons(page, enabled=False)
    await expect(page.locator(".scoring textarea")).to_be_disabled()
    actions = page.locator(".actions")
    await expect(actions).to_have_accessible_description(lacking("admin"))
    scopes = ("admin", "update", "predict", "admin")  # for actions, notes, scores and snapshots
    reasons = [lacking(scope) for scope in scopes]
    await expect(page.locator(".withheld:visible")).to_have_text(reasons)
    await expect(page.locator("#key")).to_be_visible()
    await page.locator("[data-page=create]").click()
    await expect(page.locator(".create .withheld")).to_have_text(lacking("admin"))
    await expect(page.locator(CREATE)).to_be_disabled()
    await expect(page.locator(IMPORT)).to_be_disabled()
    await expect(page.locator(IMPORT)).to_have_accessible_description(lacking("admin"))
    await expect(page.get_by_role("textbox", name="name", exact=True).first).to_be_disabled()
    await page.locator("[data-page=compare]").click()
    await expect(page.locator(GROUP)).to_be_disabled()
    await expect(page.locator(GROUP)).to_have_accessible_description(lacking("admin"))
    await expect(page.locator(".withheld")).to_be_visible()


async def test_a_predict_key_and_a_key_for_some_learners(service: Serving, visit: Opener) -> None:
    visit.replies["**/v1/key"] = replying(key("scorer", "read", "predict"))
    page = await visit(service.url, "#/learners/fraud")
    await expect(page.locator("[data-action=delete]")).to_be_disabled()
    await expect(page.locator(".main-svg").first).to_be_visible()  # from now on nothing moves away under the pointer
    await page.locator(SCORE).click()
    await expect(page.locator(".result .verdict")).to_be_visible()
    visit.replies["**/v1/key"] = replying(key("team", "read", "predict", "update", "admin", learners="team-*"))
    page = await visit(service.url, "#/create")
    await expect(page.locator(".create .withheld")).to_have_text(re.compile(r"\bteam\b.*team-\*"))
    await expect(page.locator(CREATE)).to_be_enabled()


async def test_entering_another_key_updates_the_permissions(service: Serving, visit: Opener) -> None:
    """What may be done is asked anew when a key was entered; a 401 says that the server has keys."""
    keys: list[str | None] = []

    async def by_key(route: Route) -> None:
        header = route.request.headers.get("authorization")
        keys.append(header)
        if header == "Bearer s3cret":
            await route.fulfill(json=key("boss", "read", "predict", "update", "admin"))
        else:
            await route.fulfill(status=401, json={"detail": "a key is needed", "code": "unauthorized"})

    visit.replies["**/v1/key"] = by_key
    visit.expected = ("401",)
    page = await visit(service.url, "#/learners/fraud")
    dialog = page.locator("dialog.key")
    refusal = dialog.locator(".trouble").first
    without = await refusal.inner_text()
    field = dialog.locator("input")
    await expect(field).to_have_accessible_description(await dialog.locator(".help").inner_text())
    await field.fill("wrong")
    await page.keyboard.press("Enter")
    await expect(refusal).not_to_have_text(without)
    await page.keyboard.press("Escape")
    await expect(page.locator("#key")).to_contain_text("✗")
    await expect(page.locator("[data-action=delete]")).to_be_disabled()
    await expect(page.locator(".actions .withheld")).to_be_visible()
    await page.locator("#key").click()
    await dialog.locator("input").fill("s3cret")
    await page.keyboard.press("Enter")
    await all_may(page)
    await expect(page.locator("#key")).to_contain_text("✓")
    assert keys == [None, "Bearer wrong", "Bearer s3cret"]


@pytest.mark.parametrize("place", ["#/", "#/learners/fraud", "#/compare", "#/compare/both"])
async def test_a_key_without_read_permission(service: Serving, visit: Opener, place: str) -> None:
    forbidden = {"detail": "the key viewer lacks the scope read", "code": "forbidden"}
    visit.replies["**/v1/**"] = replying(forbidden, status=403)
    visit.replies["**/v1/key"] = replying(key("viewer", "predict"))
    visit.expected = ("403",)
    page = await visit(service.url, place)
    await expect(page.locator(".message:visible")).to_have_text(lacking("read"))  # and no other


async def test_the_new_learner_form_without_a_key(service: Serving, visit: Opener) -> None:
    unknown = {"detail": "this service needs a key: send it as `Authorization: Bearer KEY`", "code": "unauthorized"}
    visit.replies["**/v1/**"] = replying(unknown, status=401)
    visit.expected = ("401",)
    page = await visit(service.url, "#/create")
    await page.keyboard.press("Escape")
    await expect(page.locator(".message")).to_be_visible()
    await expect(page.locator(".create")).to_have_count(0)
    await expect(page.get_by_text("Bearer")).to_have_count(0)


async def test_a_key_is_revoked_while_the_page_is_open(service: Serving, visit: Opener) -> None:
    visit.replies["**/v1/key"] = replying(key("boss", "read", "predict", "update", "admin"))
    visit.expected = ("401",)
    page = await visit(service.url, "#/learners/fraud")
    await all_may(page)
    await page.route("**/v1/**", replying({"detail": "no such key", "code": "unauthorized"}, status=401))
    await page.locator(SCORE).press("Enter")
    await page.keyboard.press("Escape")  # the question for another key
    await expect_buttons(page, enabled=False)
