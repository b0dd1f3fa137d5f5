"""The page when the service goes away and comes back, gives no stream, or wants a key."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.dashboard.conftest import Opener
from tests.dashboard.replies import replying
from tests.dashboard.serving import Serving, Stream
from tests.harness.waiting import eventually_async

if TYPE_CHECKING:
    from playwright.async_api import Route

expect = pytest.importorskip("playwright.async_api").expect

pytestmark = pytest.mark.integration

EVENTS = ".tiles [data-key='/events'] dd > span"
UNAUTHORISED = {"title": "Unauthorized", "status": 401, "code": "no-key", "detail": "a key is needed", "errors": []}


@pytest.fixture(scope="module")
def service(served: Serving) -> Serving:
    served.create("fraud")
    served.feed("learners/fraud", 300)
    return served


async def test_the_page_resumes_after_a_service_restart(service: Serving, visit: Opener) -> None:
    visit.expected = ("ERR_", "net::")  # what the browser says of requests that nobody answers
    overview = await visit(service.url)
    page = await visit(service.url, "#/learners/fraud")
    events = page.locator(EVENTS)
    with Stream(service, "learners/fraud", batch=10):
        for item in (overview, page):
            await expect(item.locator("#connection")).to_have_attribute("data-state", "live")
        await expect(events).not_to_have_text("300")
        service.process.kill()
        for item in (overview, page):
            await expect(item.locator("#connection")).to_have_attribute("data-state", "away")
            await expect(item.locator("#since")).to_contain_text(re.compile(r"\d\d:\d\d:\d\d"))  # of the metrics
            await expect(item.locator("#retry")).to_be_visible()
        before = await events.inner_text()
        ready = page.locator(".readiness[data-ready]")
        await expect(ready).to_have_attribute("data-past", "")
        away = await ready.evaluate("one => getComputedStyle(one).color")
        await expect(overview.get_by_role("row", name="fraud")).to_be_visible()  # the figures stay
        service.process.start()
        for item in (overview, page):
            await expect(item.locator("#connection")).to_have_attribute("data-state", "live")
        await expect(events).not_to_have_text(before)
        await expect(ready).not_to_have_attribute("data-past", "")
        assert await ready.evaluate("one => getComputedStyle(one).color") != away  # which was not the green of the well
    await expect(overview.locator("#retry")).to_be_hidden()


@pytest.mark.parametrize("status", [429, 404])  # there are too many, or the node is of a release before
async def test_without_a_stream_all_learners_are_polled(service: Serving, visit: Opener, status: int) -> None:
    refusal = {"detail": "no stream", "code": "not-found" if status == 404 else "too-many-streams"}
    visit.replies["**/v1/stream"] = replying(refusal, status=status)
    visit.expected = (str(status),)
    page = await visit(service.url)
    positives = page.get_by_role("row", name="fraud").locator("[data-column=positives]")
    await expect(page.locator("#connection[data-state=polling]")).to_be_visible()
    before = await positives.inner_text()
    with Stream(service, "learners/fraud"):
        await expect(positives).not_to_have_text(before.replace("\n", ""))
    assert visit.requests.count("/v1/stream") == 1
    assert visit.requests.count("/v1/learners?figures=true") > 1
    assert "/v1/groups?tests=true" in visit.requests


async def test_a_silent_stream_is_dropped_and_retried(service: Serving, visit: Opener) -> None:
    """A proxy holds it back."""
    blocked = asyncio.Event()

    async def holding(route: Route) -> None:
        await blocked.wait()
        await route.continue_()

    visit.replies["**/v1/stream"] = holding
    page = await visit(service.url)
    await expect(page.get_by_role("row", name="fraud")).to_be_visible()
    await expect(page.locator("#connection[data-state=polling]")).to_be_visible()
    blocked.set()

    async def live() -> bool:
        await page.evaluate("dispatchEvent(new Event('online'))")  # asks at once, not two seconds later
        return await page.locator("#connection[data-state=live]").count() == 1

    await eventually_async(live)
    assert visit.requests.count("/v1/stream") > 1
    assert visit.requests.count("/v1/learners?figures=true") >= 30


BARRED = {  # what programs between the page and the service make of a stream
    "cut": lambda route: route.abort(),
    "502": lambda route: route.fulfill(status=502, body="<html>Bad gateway</html>", content_type="text/html"),
    "403": lambda route: route.fulfill(status=403, body="<html>Not here</html>", content_type="text/html"),
    "a page": lambda route: route.fulfill(status=200, body="<html>Not here</html>", content_type="text/html"),
    "nothing": lambda route: route.fulfill(status=200, body="", content_type="text/event-stream"),
}


@pytest.mark.parametrize("bar", BARRED)
@pytest.mark.parametrize("place", ["#/", "#/learners/fraud"])
@pytest.mark.campaign
async def test_polling_replaces_blocked_streams(service: Serving, visit: Opener, bar: str, place: str) -> None:
    visit.replies["**/v1/**/stream"] = visit.replies["**/v1/stream"] = BARRED[bar]
    visit.expected = ("ERR_", "502", "403")
    page = await visit(service.url, place)
    element = page.get_by_role("row", name="fraud") if place == "#/" else page.locator(".tiles")
    await expect(element).to_be_visible()
    await expect(page.locator("#connection[data-state=polling]")).to_be_visible()
    assert not await page.get_by_role("dialog").count()  # a proxy's 403 is not for want of a key
    states = """async () => {
        const [line, found] = [document.querySelector("#connection"), new Set()];
        for (let n = 0; n < 30; n += 1) {
            found.add(line.dataset.state);
            await new Promise((done) => setTimeout(done, 100));
        }
        return [...found];
    }"""
    assert await page.evaluate(states) == ["polling"]  # whatever else on the page is answered, or tried again
    if place == "#/" and bar == "cut":  # a stream is tried again before long, and then is there
        await page.unroute_all()
        await expect(page.locator("#connection[data-state=live]")).to_be_visible()


async def test_without_a_stream_the_metrics_are_polled(service: Serving, visit: Opener) -> None:
    visit.replies["**/metrics/stream"] = replying({"detail": "none", "code": "too-many-streams"}, status=429)
    visit.expected = ("429",)
    page = await visit(service.url, "#/learners/fraud")
    events = page.locator(EVENTS)
    before = f"{service.http.get('/learners/fraud').json()['events']:,}"
    await expect(events).to_have_text(before)
    with Stream(service, "learners/fraud"):
        await expect(events).not_to_have_text(before)
    await expect(page.locator("#connection[data-state=polling]")).to_be_visible()


async def test_the_stream_of_an_idle_learner_continues(service: Serving, visit: Opener) -> None:
    """After the first event nothing need come but a sign of life each 15 seconds: it is not begun anew."""
    service.create("resting")
    service.feed("learners/resting", 50)
    page = await visit(service.url)
    await expect(page.get_by_role("row", name="resting")).to_be_visible()
    await page.clock.install()
    await page.clock.pause_at(await page.evaluate("Date.now()") + 3_600_000)  # from here on it goes as the test says
    await page.evaluate("location.hash = '#/learners/resting'")
    events = page.locator(EVENTS)
    await expect(events).to_have_text("50")
    await page.clock.run_for(12_000)  # longer than a stream is given to begin
    service.feed("learners/resting", 10)
    await expect(events).to_have_text("60")
    assert len([path for path in visit.requests if path.endswith("/metrics/stream")]) == 1


async def test_a_hidden_page_sends_no_requests(service: Serving, visit: Opener) -> None:
    page = await visit(service.url)
    await expect(page.get_by_role("row", name="fraud")).to_be_visible()
    hide = "document.dispatchEvent(new Event('visibilitychange'))"
    await page.evaluate(f"Object.defineProperty(document, 'hidden', {{value: true, configurable: true}}); {hide}")
    await page.clock.install()
    await page.clock.run_for(5_000)
    requests = len(visit.requests)
    await page.clock.run_for(60_000)
    assert len(visit.requests) <= requests + 1  # at most the one that was due
    async with page.expect_request("**/v1/stream"):
        await page.evaluate(f"Object.defineProperty(document, 'hidden', {{value: false}}); {hide}")


async def test_a_key_is_requested_sent_and_kept_in_the_tab(service: Serving, visit: Opener) -> None:
    seen: list[str | None] = []

    async def guarded(route: object) -> None:
        key = route.request.headers.get("authorization")  # type: ignore[attr-defined]
        seen.append(key)
        if key == "Bearer s3cret":
            await route.fallback()  # type: ignore[attr-defined]
        else:
            await route.fulfill(status=401, json=UNAUTHORISED)  # type: ignore[attr-defined]

    visit.replies["**/v1/**"] = guarded
    visit.expected = ("401",)
    page = await visit(service.url)
    dialog = page.locator("dialog.key")
    await expect(dialog).to_be_visible()
    assert seen[0] is None
    await dialog.locator("input").fill("s3cret")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("row", name="fraud")).to_be_visible()
    assert seen[-1] == "Bearer s3cret"
    assert await page.evaluate("[localStorage.length, document.cookie]") == [0, ""]
    assert await page.evaluate("Object.values(sessionStorage)") == ["s3cret"]
    await page.reload()
    await expect(page.get_by_role("row", name="fraud")).to_be_visible()

    other = await page.context.new_page()  # another tab has no key
    await other.goto(service.url)
    assert await other.evaluate("sessionStorage.length") == 0


async def test_a_forbidden_action_is_reported_beside_the_button(service: Serving, visit: Opener) -> None:
    forbidden: dict[str, Any] = {**UNAUTHORISED, "status": 403, "detail": "this key may only read"}
    visit.expected = ("403",)
    page = await visit(service.url, "#/learners/fraud")

    async def refused(route: object) -> None:
        if route.request.method == "POST":  # type: ignore[attr-defined]
            await route.fulfill(status=403, json=forbidden)  # type: ignore[attr-defined]
        else:
            await route.fallback()  # type: ignore[attr-defined]

    await page.route("**/snapshots", refused)
    await page.locator("[data-action=snapshot]").click()
    await page.locator("dialog [type=submit]").click()
    await expect(page.locator("dialog.key")).to_contain_text(forbidden["detail"])
    await page.keyboard.press("Escape")
    await expect(page.locator("dialog:not(.key)")).to_contain_text(forbidden["detail"])


@pytest.mark.parametrize("place", ["#/", "#/learners/fraud", "#/compare", "#/create"])
async def test_pending_content_is_shown_as_loading(service: Serving, visit: Opener, place: str) -> None:
    answered = asyncio.Event()

    async def late(route: Route) -> None:
        await answered.wait()
        await route.continue_()

    visit.replies["**/v1/**"] = late
    page = await visit(service.url, place)
    message = page.locator(".message:visible")
    promised = await message.inner_text()
    await expect(page.locator("#connection")).to_have_attribute("data-state", "loading")
    answered.set()
    await expect(message.filter(has_text=promised)).to_have_count(0)
    await expect(page.locator("#connection")).to_have_attribute("data-state", "live")


async def test_a_service_error_is_shown(service: Serving, visit: Opener) -> None:
    visit.replies["**/v1/**"] = replying({"detail": "no store"}, status=503)
    visit.expected = ("503",)
    page = await visit(service.url)
    await expect(page.locator("#connection[data-state=away]")).to_contain_text("no store")
    await page.unroute("**/v1/**")
    await page.locator("#retry").click()
    await expect(page.get_by_role("row", name="fraud")).to_be_visible()
