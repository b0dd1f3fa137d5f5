"""The queue of alerts in a browser: reasons, labels by a key, undo, and what others label meanwhile."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from tests.dashboard.conftest import Opener
from tests.dashboard.serving import Serving
from tests.harness.waiting import eventually_async

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page

expect = pytest.importorskip("playwright.async_api").expect

pytestmark = pytest.mark.integration

CONFIG: dict[str, Any] = {
    "algorithm": "cbr-diag",
    "features": {"kind": "named", "categorical": ["card"], "log": ["amount"]},
    "threshold": {"objective": "fixed", "value": 0.0},  # every event is an alert, whatever the tests teach
    "late": {"keep_features": True},
}
HOSTILE = {"<img src=x onerror=throw1>": "<script>throw 1</script>", "amount": 900.0, "country": "XX", "card": 7}


def event(i: int, **more: Any) -> dict[str, Any]:
    """Return event `i`; one in four is a fraud, of a large amount."""
    fraud = i % 4 == 0
    features = {"amount": 900.0 + i if fraud else 10.0 + i % 50, "country": "XX" if fraud else "DE", "card": i % 16}
    return {"id": f"tx-{i}", "features": features, "time": time.time() - 1000 + i, **more}


@pytest.fixture(scope="module")
def service(served: Serving) -> Serving:
    served.create("cards", **CONFIG)
    send(served, "update", *(event(i, label=int(i % 4 == 0)) for i in range(3000)))
    return served


@pytest.fixture
def alerts(service: Serving, request: pytest.FixtureRequest) -> list[str]:
    """Serve ten events of their own, all alerts, and label all but three; return the ids of these."""
    name = request.node.name
    send(service, "predict", *(event(i, id=f"{name}-{i}") for i in range(400, 410)))
    ids = [f"{name}-{i}" for i in (400, 404, 408)]
    labels = [{"id": f"{name}-{i}", "label": 0} for i in range(400, 410) if f"{name}-{i}" not in ids]
    send(service, "labels", *labels)
    return ids


def send(service: Serving, operation: str, *events: dict[str, Any]) -> dict[str, Any]:
    reply = service.http.post(f"/learners/cards/{operation}", json={"events": events}).raise_for_status()
    document: dict[str, Any] = reply.json()
    return document


def label_of(service: Serving, id: str) -> int | None:
    document: dict[str, Any] = service.http.get(f"/learners/cards/events/{id}").raise_for_status().json()
    label: int | None = document["label"]
    return label


@pytest_asyncio.fixture(loop_scope="session")
async def queue(service: Serving, alerts: list[str], visit: Opener) -> AsyncIterator[Page]:
    prefix = alerts[0].rpartition("-")[0]
    page = await visit(service.url, f"#/alerts/cards?q={prefix}")
    await expect(rows(page)).to_have_count(3)
    yield page


def rows(page: Page) -> Locator:
    return page.locator("table.queue tbody tr:not(.whole)")


def row(page: Page, id: str) -> Locator:
    return rows(page).filter(has=page.get_by_role("button", name=id, exact=True))


def isolated(text: str) -> str:
    """Return a text as the page shows it within another: one that is written from right to left stays by itself."""
    return f"\u2068{text}\u2069"


async def marked(page: Page) -> str:
    return await page.locator("table.queue tr[aria-current] th").inner_text()


async def test_alerts_are_listed_with_fields_and_reasons_by_their_score(service: Serving, queue: Page) -> None:
    listed = service.http.get("/learners/cards/events?status=alert&sort=score").json()["events"]
    texts = await rows(queue).locator("th").all_inner_texts()
    assert texts == [item["id"] for item in listed if item["id"] in texts]
    first = rows(queue).first
    await expect(first).to_contain_text(f"{isolated('country')} {isolated('XX')}")
    await expect(first).to_contain_text(f"{isolated('country=XX')} +")


async def test_keys_move_the_mark_and_label(service: Serving, queue: Page, alerts: list[str]) -> None:
    order = await rows(queue).locator("th").all_inner_texts()
    assert await marked(queue) == order[0]
    await queue.keyboard.press("j")
    assert await marked(queue) == order[1]
    await queue.keyboard.press("k")
    await queue.keyboard.press("f")
    assert await marked(queue) == order[1]  # on with the next
    await queue.keyboard.press("l")
    await eventually_async(lambda: [label_of(service, id) for id in order] == [1, 0, None])
    await expect(rows(queue)).to_have_count(1)  # what is labelled leaves the queue
    assert set(order) == set(alerts)


async def test_a_label_is_undone_before_it_is_sent(service: Serving, queue: Page, visit: Opener) -> None:
    await queue.clock.install()
    order = await rows(queue).locator("th").all_inner_texts()
    await queue.keyboard.press("f")
    await expect(queue.locator("tr[data-waiting]")).to_have_count(1)
    await queue.keyboard.press("u")
    await expect(queue.locator("tr[data-waiting]")).to_have_count(0)
    assert await marked(queue) == order[0]
    await queue.clock.run_for(20_000)
    await expect(queue.get_by_role("button", name="Undo (u)")).to_be_disabled()
    assert [label_of(service, id) for id in order] == [None, None, None]
    assert not [path for path in visit.requests if path.endswith("/labels")]


async def test_a_label_is_sent_when_the_page_is_left(service: Serving, queue: Page) -> None:
    first = await rows(queue).locator("th").first.inner_text()
    await queue.keyboard.press("l")
    await queue.get_by_role("link", name="Overview").click()
    await eventually_async(lambda: label_of(service, first) == 0)


async def test_labels_of_long_ids_are_sent_together(service: Serving, visit: Opener) -> None:
    ids = [f"{'字' * 250}-{i}" for i in range(100)]  # more than a browser sends of a page that is closed
    send(service, "predict", *(event(400 + i, id=id) for i, id in enumerate(ids)))
    page = await visit(service.url, "#/alerts/cards?status=all&q=字")
    await page.get_by_role("button", name="Show more").click()
    await expect(rows(page)).to_have_count(100)
    await page.locator("table.queue").evaluate("table => table.querySelectorAll('input').forEach((box) => box.click())")
    await page.keyboard.press("l")
    await expect(page.locator("tr[data-waiting]")).to_have_count(100)
    await eventually_async(lambda: {label_of(service, id) for id in ids} == {0})


async def test_selected_events_are_labelled_together(service: Serving, queue: Page, alerts: list[str]) -> None:
    for id in alerts[:2]:
        await row(queue, id).get_by_role("checkbox").check()
    await queue.get_by_role("button", name="Fraud (f)").click()
    await eventually_async(lambda: [label_of(service, id) for id in alerts] == [1, 1, None])


async def test_what_somebody_else_labels_leaves_the_queue(service: Serving, queue: Page, alerts: list[str]) -> None:
    send(service, "labels", {"id": alerts[1], "label": 1})
    await expect(row(queue, alerts[1])).to_have_count(0)


async def test_a_key_labels_nothing_once_the_marked_event_has_gone(
    service: Serving, queue: Page, alerts: list[str], visit: Opener
) -> None:
    event_id = await marked(queue)
    send(service, "labels", {"id": event_id, "label": 1})
    await expect(row(queue, event_id)).to_have_count(0)
    await queue.keyboard.press("l")
    await expect(queue.locator("tr[data-waiting]")).to_have_count(0)
    await queue.keyboard.press("j")
    assert await marked(queue) in set(alerts) - {event_id}
    assert not [path for path in visit.requests if path.endswith("/labels")]


async def test_two_people_label_the_same_event(service: Serving, queue: Page, alerts: list[str]) -> None:
    await row(queue, alerts[0]).get_by_role("checkbox").check()
    await queue.get_by_role("button", name="Fraud (f)").click()
    send(service, "labels", {"id": alerts[0], "label": 0})
    await eventually_async(lambda: label_of(service, alerts[0]) == 1)
    await expect(queue.locator("#news")).to_contain_text(alerts[0])


async def test_an_event_opens_and_leads_to_those_that_share_a_field(service: Serving, queue: Page) -> None:
    await queue.keyboard.press("Enter")
    whole = queue.locator("tr.whole")
    await expect(whole.locator("table.bars")).to_contain_text("country=XX")
    await expect(whole.get_by_role("list", name="What happened to it").get_by_role("listitem")).to_have_text(
        re.compile("^scored, ")
    )
    card = await whole.locator("dt", has_text="card").locator("xpath=following-sibling::dd").inner_text()
    await whole.get_by_role("link", name=card, exact=True).click()
    await expect(queue).to_have_url(f"{service.url}/#/alerts/cards?status=all&sort=time&q=card%3D{card}")
    await expect(rows(queue).first).to_contain_text(f"{isolated('card')} {isolated(card)}")


async def test_a_filter_is_in_the_url(service: Serving, queue: Page, visit: Opener) -> None:
    await queue.get_by_label("Show").select_option("all")
    await expect(rows(queue)).to_have_count(10)
    await queue.get_by_label("Order").select_option("time")
    again = await visit(service.url, queue.url.removeprefix(f"{service.url}/"))
    await expect(rows(again)).to_have_count(10)


async def test_names_and_values_are_text(service: Serving, visit: Opener) -> None:
    send(service, "predict", {"id": "<b>bold</b>", "features": HOSTILE})
    page = await visit(service.url, "#/alerts/cards?status=all&q=%3Cb")
    await expect(rows(page)).to_have_count(1)
    await page.keyboard.press("Enter")
    await expect(page.locator("tr.whole")).to_contain_text("<script>throw 1</script>")
    assert await page.locator("table.queue").locator("b, img, script").count() == 0


async def test_a_long_queue_is_shown_in_parts(service: Serving, visit: Opener) -> None:
    for start in range(1000, 11_000, 2000):
        events = [event(i, id=f"long-{i}") for i in range(start, start + 2000)]
        send(service, "predict", *events)
    page = await visit(service.url, "#/alerts/cards?status=all&q=long-")
    await expect(rows(page)).to_have_count(50)
    await page.get_by_role("button", name="Show more").click()
    await expect(rows(page)).to_have_count(100)


async def test_an_empty_queue_shows_a_note(service: Serving, visit: Opener) -> None:
    page = await visit(service.url, "#/alerts/cards?q=nobody")
    await expect(page.locator("table.queue")).to_be_hidden()
    await expect(page.get_by_label("Queue").get_by_role("status").first).not_to_have_text("asking …")
