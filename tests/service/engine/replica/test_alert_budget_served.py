"""An alert budget over HTTP is never exceeded, whatever the order of requests."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from service.engine.records.codec import unpack_record
from service.errors import StoreUnavailable
from service.storage.memory import MemoryStore
from service.storage.open_store import open_store
from service.storage.store_protocol import ServedLimits, ServeReceipt, Store
from tests.harness.nodes import T0, digest, posted, replayed, serving
from tests.harness.redis_server import RedisServer
from tests.harness.store_records import whole_log
from tests.harness.waiting import eventually_async
from tests.service.engine.replica.test_served_events import SETUPS, labelled

pytestmark = pytest.mark.integration

ALERTS = 7
DAY = 86_400.0
START = (T0 // DAY + 2) * DAY  # a unit's first second
BUDGET = {**SETUPS["dense"], "threshold": {"objective": "budget", "alerts": ALERTS}}


def budget_event(i: int, day: int = 0) -> dict[str, Any]:
    """Make an event with a high score in the last second of a day, when the budget is spent freely."""
    return {"id": f"q{day}-{i}", "x": [1.0 + (i * 7 % 11) / 11, 0.5, 0.0], "time": START + (day + 1) * DAY - 1.0}


def alerts(replies: list[dict[str, Any]]) -> int:
    return sum(result["label"] for reply in replies for result in reply["results"])


async def trained(http: httpx.AsyncClient) -> None:
    await http.put("/learners/a", json=BUDGET)
    await posted(http, "/learners/a/update", labelled("dense", 0, 100))


async def spent(engine: Any) -> list[int]:
    """Return the decided events and the alerts of the present unit, after all served events are applied."""
    await engine.get("a").log.catch_up()
    result: list[int] = engine.get("a").learner.state()["threshold.spent"].tolist()
    return result[:2]


@pytest.mark.parametrize(("size", "work"), [(1, 2**23), (3, 2**23), (3, 0), (200, 2**23)])
async def test_alerts_never_exceed_the_budget_of_the_unit(
    store: Store, monkeypatch: pytest.MonkeyPatch, size: int, work: int
) -> None:
    monkeypatch.setattr(
        "service.engine.replica.label_join._INLINE_WORK", work
    )  # with 0 threads score, and requests pass each other
    async with serving(store) as (http, engine):
        await trained(http)
        for day in range(3):
            events = [budget_event(i, day) for i in range(200)]
            requests = [events[start : start + size] for start in range(0, 200, size)]
            replies = await asyncio.gather(*(posted(http, "/learners/a/predict", request) for request in requests))
            assert 0 < alerts(replies) <= ALERTS
            assert await spent(engine) == [200, alerts(replies)]
        assert await digest(http) == await replayed(store)


async def test_the_log_contains_the_served_decisions(store: Store) -> None:
    async with serving(store) as (http, engine):
        await trained(http)
        events = [budget_event(i) for i in range(60)]
        mixed = [event if i % 3 else {**event, "id": None} for i, event in enumerate(events)]
        replies = await asyncio.gather(
            *(posted(http, "/learners/a/predict", mixed[i : i + 6]) for i in range(0, 60, 6))
        )
        answered = {event["id"]: event["label"] for reply in replies for event in reply["results"] if event["id"]}
        birth = engine.get("a").birth
        document = await posted(
            http, "/learners/a/labels", [{"id": event, "label": 0, "time": START} for event in answered]
        )
        assert {event["id"]: event["decision"] for event in document["results"]} == answered
        served = [unpack_record(entry.data, "") for entry in await whole_log(store, "a", birth)][2:-1]
        assert sum(int(record.decisions.sum()) for record in served) == sum(answered.values())  # type: ignore[union-attr]


async def test_events_without_an_id_are_not_counted(store: Store) -> None:
    async with serving(store) as (http, engine):
        await trained(http)
        before = await digest(http)
        reply = await posted(http, "/learners/a/predict", [{**budget_event(i), "id": None} for i in range(50)])
        assert reply["remembered"] == 0
        await engine.get("a").log.catch_up()
        assert await digest(http) == before


async def test_updates_and_labels_in_between_keep_the_bound(store: Store) -> None:
    async with serving(store, record_events=3) as (http, engine):
        await trained(http)
        calls = []
        for i in range(60):
            calls.append(posted(http, "/learners/a/predict", [budget_event(i)]))
            calls.append(
                posted(
                    http,
                    "/learners/a/update",
                    [{**result, "time": START} for result in labelled("dense", 200 + i, 201 + i)],
                )
            )
            calls.append(posted(http, "/learners/a/labels", [{"id": f"q0-{i - 5}", "label": 1, "time": START}]))
        replies = await asyncio.gather(*calls)
        count = alerts(replies[::3])
        decided = sum(result["decision"] or 0 for reply in replies[1::3] for result in reply["results"])
        assert 0 < count + decided <= ALERTS
        assert (await spent(engine))[1] == count + decided
        assert await digest(http) == await replayed(store)


async def test_the_account_survives_a_crash_and_a_settings_change(store: Store) -> None:
    async with serving(store) as (http, engine):
        await trained(http)
        first = await posted(http, "/learners/a/predict", [budget_event(i) for i in range(40)])
        had = await spent(engine)
    async with serving(store) as (http, engine):
        assert await spent(engine) == had == [40, alerts([first])]
        more = await posted(http, "/learners/a/predict", [budget_event(i) for i in range(40, 300)])
        total = alerts([first, more])
        assert total <= ALERTS
        assert await spent(engine) == [300, total]
        wider = {"threshold": {"objective": "budget", "alerts": ALERTS + 5}}
        assert (await http.patch("/learners/a", json=wider)).status_code == 200
        last = await posted(http, "/learners/a/predict", [budget_event(i) for i in range(300, 600)])
        assert total < alerts([first, more, last]) <= ALERTS + 5


async def test_nothing_is_spent_before_both_classes_are_known() -> None:
    async with serving(MemoryStore()) as (http, engine):
        await http.put("/learners/a", json=BUDGET)
        reply = await posted(http, "/learners/a/predict", [budget_event(i) for i in range(50)])
        assert {result["label"] for result in reply["results"]} == {None}
        assert await spent(engine) == [0, 0]  # nor do such probabilities count as traffic


class Away(MemoryStore):
    """A store that is away on demand: before or after it writes served events."""

    before = after = False

    async def serve(
        self, learner: str, birth: bytes, record: tuple[bytes, bytes], after: int, remembered: Any, bounds: ServedLimits
    ) -> ServeReceipt:
        if self.before:
            raise StoreUnavailable("away")
        result = await super().serve(learner, birth, record, after, remembered, bounds)
        if self.after:
            raise StoreUnavailable("the answer was lost")
        return result


@pytest.mark.parametrize("config", [BUDGET, SETUPS["dense"]], ids=["budget", "f1"])
async def test_predict_works_without_the_store_and_reports_nothing_stored(config: Any) -> None:
    store = Away()
    async with serving(store) as (http, engine):
        await http.put("/learners/a", json=config)
        await posted(http, "/learners/a/update", labelled("dense", 0, 100))
        before = await digest(http)
        store.before = True
        for _ in range(2):  # the second knows already
            reply = await posted(http, "/learners/a/predict", [budget_event(i) for i in range(5)])
            assert (reply["remembered"], len(reply["results"])) == (0, 5)
            assert reply["stale_seconds"] > 0
        store.before = False
        await engine.get("a").log.catch_up()
        assert await digest(http) == before
        store.after = True
        reply = await posted(http, "/learners/a/predict", [budget_event(i) for i in range(5)])
        assert reply["remembered"] == 0
        store.after = False
        await engine.get("a").log.catch_up()  # it was written after all
        assert (await store.pending("a", engine.get("a").birth)).events == 5
        reply = await posted(http, "/learners/a/predict", [budget_event(i) for i in range(5, 300)])
        assert reply["remembered"] == 295
        assert await digest(http) == await replayed(store)
        if config is BUDGET:
            assert (await spent(engine))[1] <= ALERTS
        assert not engine.get("a").served_events.busy


async def test_a_disconnected_caller_is_not_charged_to_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: Any) -> ServeReceipt:
        await asyncio.Event().wait()
        raise AssertionError

    store = MemoryStore()
    monkeypatch.setattr(store, "serve", never)
    async with serving(store) as (http, engine):
        await trained(http)
        call = asyncio.create_task(posted(http, "/learners/a/predict", [budget_event(i) for i in range(50)]))
        replica = engine.get("a")
        await eventually_async(lambda: len(replica.log.in_flight) == 1)
        call.cancel()
        await asyncio.wait([call])
        assert not replica.served_events.busy


async def test_predict_works_while_redis_is_down(redis_server: RedisServer) -> None:
    store = await open_store(redis_server.url)
    try:
        async with serving(store, follow_seconds=0.05) as (http, _):
            await trained(http)
            redis_server.kill()
            reply = await posted(http, "/learners/a/predict", [budget_event(0)])
            assert (reply["remembered"], reply["results"][0]["id"]) == (0, "q0-0")
            refused = await http.post("/learners/a/labels", json={"events": [{"id": "q0-0", "label": 1}]})
            assert (refused.status_code, refused.json()["code"]) == (503, "store-unavailable")
            redis_server.start()

            async def remembered() -> bool:
                return bool((await posted(http, "/learners/a/predict", [budget_event(1)]))["remembered"])

            await eventually_async(remembered)
            document = await posted(http, "/learners/a/labels", [{"id": "q0-1", "label": 1, "time": START + DAY}])
            assert document["applied"] == 1
    finally:
        await store.close()
