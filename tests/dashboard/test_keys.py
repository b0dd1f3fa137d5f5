"""What the page withholds from a key that may not, in a browser: each key by the reply of `GET /v1/key`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.dashboard.conftest import Opener
from tests.dashboard.replies import key, replying
from tests.dashboard.serving import Serving

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page, Route

expect = pytest.importorskip("playwright.async_api").expect

ADMIN = ["Threshold …", "Snapshot …", "Clone …", "Export", "Delete …"]
LACKS = "you need the {} scope, which the key viewer lacks".format


@pytest.fixture(scope="module")
def service(served: Serving) -> Serving:
    served.create("fraud")
    served.feed("learners/fraud", 200)
    served.http.post("/learners/fraud/snapshots").raise_for_status()
    return served


def button(page: Page, name: str) -> Locator:
    return page.get_by_role("button", name=name, exact=True)


async def all_may(page: Page) -> None:
    """Everything of a learner's page can be done."""
    for name in [*ADMIN, "Score it"]:
        await expect(button(page, name)).to_be_enabled()
    await expect(page.get_by_role("button", name="Restore the snapshot")).to_be_enabled()
    await expect(page.locator(".withheld:visible")).to_have_count(0)


async def test_without_keys_everything_is_enabled_and_no_key_is_requested(service: Serving, visit: Opener) -> None:
    page = await visit(service.url, "#/learners/fraud")
    await all_may(page)
    await expect(page.locator("#key")).to_be_hidden()
    await page.get_by_role("link", name="New learner").click()
    await expect(button(page, "Create it")).to_be_enabled()
    await page.get_by_role("link", name="Compare").click()
    await expect(button(page, "New group …")).to_be_enabled()
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
    for name in [*ADMIN, "Score it"]:
        await expect(button(page, name)).to_be_disabled()
    await expect(page.get_by_role("button", name="Restore the snapshot")).to_be_disabled()
    await expect(page.get_by_label("The event in JSON")).to_be_disabled()
    actions = page.get_by_role("group", name="What can be done to fraud")
    await expect(actions).to_have_accessible_description(f"Not allowed: {LACKS('admin')}")
    await expect(page.get_by_text(f"None can be restored here: {LACKS('admin')}")).to_be_visible()
    await expect(page.get_by_text(f"No event can be scored here: {LACKS('predict')}")).to_be_visible()
    await expect(page.locator("#key")).to_be_visible()
    await page.get_by_role("link", name="New learner").click()
    await expect(page.get_by_text(f"No learner can be created here: {LACKS('admin')}")).to_be_visible()
    await expect(button(page, "Create it")).to_be_disabled()
    await expect(button(page, "Import a file …")).to_be_disabled()
    await expect(button(page, "Import a file …")).to_have_accessible_description(f"Not allowed: {LACKS('admin')}")
    await expect(page.get_by_role("textbox", name="name", exact=True).first).to_be_disabled()
    await page.get_by_role("link", name="Compare").click()
    await expect(button(page, "New group …")).to_be_disabled()
    await expect(button(page, "New group …")).to_have_accessible_description(
        f"No group can be made here: {LACKS('admin')}"
    )
    await expect(page.get_by_text("No group can be made here")).to_be_visible()


async def test_a_predict_key_and_a_key_for_some_learners(service: Serving, visit: Opener) -> None:
    visit.replies["**/v1/key"] = replying(key("scorer", "read", "predict"))
    page = await visit(service.url, "#/learners/fraud")
    await expect(button(page, "Delete …")).to_be_disabled()
    await expect(page.locator(".main-svg").first).to_be_visible()  # from now on nothing moves away under the pointer
    await button(page, "Score it").click()
    await expect(page.locator(".result")).to_contain_text("at log position")
    visit.replies["**/v1/key"] = replying(key("team", "read", "predict", "update", "admin", learners="team-*"))
    page = await visit(service.url, "#/create")
    await expect(page.get_by_text("the key team is for learners named team-*")).to_be_visible()
    await expect(button(page, "Create it")).to_be_enabled()


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
    dialog = page.get_by_role("dialog", name="API key")
    await expect(dialog).to_contain_text("This service shows itself to those with a key only.")
    await expect(dialog).to_contain_text("Whoever runs the service gives you one")
    field = dialog.get_by_label("Key")
    await expect(field).to_have_accessible_description(re.compile("kept in this tab alone"))
    await field.fill("wrong")
    await page.keyboard.press("Enter")
    await expect(dialog).to_contain_text("The key in use is not accepted")
    await page.keyboard.press("Escape")
    await expect(page.locator("#key")).to_have_text("Key ✗")
    await expect(button(page, "Delete …")).to_be_disabled()
    await expect(page.get_by_text("Not allowed: the API key is not accepted")).to_be_visible()
    await button(page, "The API key is not accepted; enter another").click()
    await dialog.get_by_label("Key").fill("s3cret")
    await page.keyboard.press("Enter")
    await all_may(page)
    await expect(page.locator("#key")).to_have_text("Key ✓")
    assert keys == [None, "Bearer wrong", "Bearer s3cret"]


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("#/", "No learner can be shown: "),
        ("#/learners/fraud", "The page cannot be shown: "),
        ("#/compare", "No group can be shown: "),
        ("#/compare/both", "The comparison cannot be shown: "),
    ],
)
async def test_a_key_without_read_permission(service: Serving, visit: Opener, place: str, message: str) -> None:
    forbidden = {"detail": "the key viewer lacks the scope read", "code": "forbidden"}
    visit.replies["**/v1/**"] = replying(forbidden, status=403)
    visit.replies["**/v1/key"] = replying(key("viewer", "predict"))
    visit.expected = ("403",)
    page = await visit(service.url, place)
    await expect(page.get_by_text(f"{message}{LACKS('read')}")).to_be_visible()
    await expect(page.get_by_text("as soon as the server has answered")).to_have_count(0)


async def test_the_new_learner_form_without_a_key(service: Serving, visit: Opener) -> None:
    unknown = {"detail": "this service needs a key: send it as `Authorization: Bearer KEY`", "code": "unauthorized"}
    visit.replies["**/v1/**"] = replying(unknown, status=401)
    visit.expected = ("401",)
    page = await visit(service.url, "#/create")
    await page.keyboard.press("Escape")
    message = "The form cannot be shown. This service shows itself to those with a key only."
    await expect(page.get_by_text(message)).to_be_visible()
    await expect(page.get_by_text("Bearer")).to_have_count(0)


async def test_a_key_is_revoked_while_the_page_is_open(service: Serving, visit: Opener) -> None:
    visit.replies["**/v1/key"] = replying(key("boss", "read", "predict", "update", "admin"))
    visit.expected = ("401",)
    page = await visit(service.url, "#/learners/fraud")
    await all_may(page)
    await page.route("**/v1/**", replying({"detail": "no such key", "code": "unauthorized"}, status=401))
    await button(page, "Score it").press("Enter")
    await page.keyboard.press("Escape")  # the question for another key
    for name in [*ADMIN, "Score it"]:
        await expect(button(page, name)).to_be_disabled()
