"""Label expiry: how long an event waits for its label, and what it becomes."""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import AsyncExitStack
from typing import Any

import pytest

from service.engine.engine import Engine
from service.errors import StoreUnavailable
from service.storage.store_protocol import Store
from tests.harness.msgpack_bodies import HEADERS, body, columns_of
from tests.harness.nodes import T0, digest, posted, replayed, serving
from tests.harness.scrapes import samples, scrape
from tests.harness.waiting import eventually_async
from tests.service.engine.replica.test_served_events import SETUPS, event, labelled, late

pytestmark = pytest.mark.integration

TTL = 1000.0  # seconds: 100 events


def config(setup: str = "dense", **late: Any) -> dict[str, Any]:
    return {**SETUPS[setup], "late": {"label_ttl": TTL, **late}}


async def pending(engine: Engine) -> Any:
    """Return what the store remembers."""
    replica = engine.get("a")
    return await engine.node.store.pending("a", replica.birth)


def assumed(engine: Engine) -> int:
    """Return the number of expired labels on this node."""
    return int(engine.get("a").view.figures.counters[2])


async def figures(http: Any, name: str = "a") -> dict[str, Any]:
    metrics: dict[str, Any] = (await http.get(f"/learners/{name}/metrics")).json()
    return metrics


async def test_labels_are_late_by_their_own_time_and_events_by_the_learner_clock(store: Store) -> None:
    async with serving(store) as (http, engine):
        await http.put("/learners/a", json=config())
        await posted(http, "/learners/a/predict", [event("dense", i) for i in range(10)])
        in_time = await posted(http, "/learners/a/labels", [{"id": "e0", "label": 1, "time": T0 + TTL}])
        assert in_time["applied"] == 1
        await posted(http, "/learners/a/update", labelled("dense", 300, 301))  # whose time says nothing of the labels
        labels = [{**item, "time": T0 + TTL + 35} for item in late("dense", 1, 10)]
        answer = await posted(http, "/learners/a/labels", labels)
        assert [item["status"] for item in answer["results"]] == ["expired"] * 3 + ["applied"] * 6
        assert (await pending(engine)).expired == 0  # the store drops them with what is served next
        await posted(http, "/learners/a/predict", [event("dense", 301)])
        result = await pending(engine)
        assert (result.events, result.expired) == (1, 10)
        assert (await http.get("/learners/a")).json()["pending"] == result._asdict()
        answer = await posted(http, "/learners/a/labels", [{"id": "e1", "label": 1, "time": T0}])
        assert answer["expired"] == 1  # known by its tombstone


async def test_events_beyond_max_events_are_evicted(store: Store) -> None:
    async with serving(store) as (http, engine):
        await http.put("/learners/a", json=config(max_events=5))
        await posted(http, "/learners/a/predict", [event("dense", i) for i in range(8)])
        result = await pending(engine)
        assert (result.events, result.evicted, result.expired) == (5, 3, 0)
        answer = await posted(http, "/learners/a/labels", late("dense", 0, 8, 0.0))
        assert [outcome["status"] for outcome in answer["results"]] == ["expired"] * 3 + ["applied"] * 5


async def test_events_beyond_max_bytes_are_evicted(store: Store) -> None:
    async with serving(store) as (http, engine):
        await http.put("/learners/a", json=config(max_bytes=1024))
        for i in range(40):
            await posted(http, "/learners/a/predict", [event("dense", i)])
        result = await pending(engine)
        assert 0 < result.bytes <= 1024
        assert result.events + result.evicted == 40
        assert 5 <= result.events <= 20
        last = await posted(http, "/learners/a/labels", late("dense", 0, 40, 0.0))
        assert last["applied"] == result.events


async def test_after_label_ttl_an_event_is_learnt_as_negative(store: Store) -> None:
    async with serving(store, follow_seconds=0.02) as (http, engine):
        await http.put("/learners/a", json=config(unlabelled="negative"))
        await http.put("/learners/b", json=SETUPS["dense"])
        for name in "ab":
            await posted(http, f"/learners/{name}/update", labelled("dense", 0, 30))
        served = await posted(http, "/learners/a/predict", [event("dense", i) for i in range(30, 40)])
        await posted(http, "/learners/a/labels", late("dense", 35, 36, 0.0))  # the only one that gets its label
        await posted(http, "/learners/b/update", labelled("dense", 35, 36))
        await posted(http, "/learners/a/predict", [event("dense", 150)])  # which moves the clock past all of them
        await eventually_async(lambda: assumed(engine) == 9)

        metrics = await figures(http)
        assert (metrics["assumed"], metrics["events"], metrics["class_counts"]["positive"]) == (9, 40, 7)
        result = await pending(engine)
        assert result.events == 11  # what was assumed stays: a label may come after all; so does what has its label
        assert result.expired == 0  # the one that got its label was forgotten for that, not for its age
        assert (await http.get("/learners/a")).json()["pending"] == result._asdict()
        assert metrics["window"]["label_delay_median"] == 0.0  # nobody gave the others a label: no delay, no coverage
        assert metrics["served"]["labelled"] == 1
        others = [event("dense", i, label=0) for i in range(30, 40) if i != 35]
        await posted(http, "/learners/b/update", others)
        a, b = (engine.get(name).learner.state() for name in "ab")
        assert all((a[name] == b[name]).all() for name in a if name.startswith(("algorithm.", "scaling.")))

        answer = await posted(http, "/learners/a/labels", late("dense", 30, 33, 0.0))
        assert [outcome["status"] for outcome in answer["results"]] == ["relabelled", "duplicate", "duplicate"]
        assert answer["results"][0]["score"] == served["results"][0]["score"]
        again = await figures(http)
        assert (again["corrections"], again["assumed"], again["events"]) == (1, 9, 40)
        assert again["class_counts"]["positive"] == 8
        assert again["duplicates"] == metrics["duplicates"] + 2
        remembered = (await pending(engine)).events
        confirmed = await posted(http, "/learners/a/labels", late("dense", 33, 35, 0.0))
        assert confirmed["duplicate"] == 2
        assert {**await figures(http), "position": 0} == {**again, "duplicates": again["duplicates"] + 2, "position": 0}
        result = await pending(engine)
        assert (result.events, result.expired) == (remembered, 0)
        assert await digest(http) == await replayed(store)


@pytest.mark.parametrize("policy", ["nothing", "negative"])
@pytest.mark.parametrize("path", ["predict", "update", "labels", "group"])
async def test_a_time_ahead_of_the_node_makes_no_event_expire(store: Store, policy: str, path: str) -> None:
    async with serving(store) as (http, engine):
        settings = config(unlabelled=policy, label_ttl=3600.0)
        for name in "ab":
            await http.put(f"/learners/{name}", json=settings)
        await http.put("/groups/g", json={"learners": ["a", "b"]})
        began = time.time()
        await posted(
            http, "/learners/a/predict", [{"id": f"w{i}", "x": [1, 2, i], "time": began - 100} for i in range(100)]
        )
        ahead = {"id": "w0" if path == "labels" else "new", "time": time.time() + 86_000.0}
        if path != "labels":
            ahead["x"] = [0, 0, 0]
        if path != "predict":
            ahead["label"] = 1
        reply = await posted(http, "/groups/g/update" if path == "group" else f"/learners/a/{path}", [ahead])
        assert path == "group" or reply.get("remembered", 1) == 1
        await posted(http, "/learners/a/predict", [{"id": "last", "x": [0, 0, 0]}])
        assert await digest(http) == await replayed(store)
        assert (await http.post("/learners/a/snapshots")).is_success  # it expires what is overdue
        metrics = await figures(http)
        assert began - 100 <= metrics["clock"] <= time.time()
        assert assumed(engine) == 0
        assert (await pending(engine)).expired == 0
        labels = [{"id": f"w{i}", "label": 0} for i in range(1, 100)]
        assert (await posted(http, "/learners/a/labels", labels))["applied"] == 99
        assert engine.get("a").times_ahead == 1


async def test_times_ahead_are_counted_in_any_coding(store: Store) -> None:
    async with serving(store) as (http, engine):
        await http.put("/learners/a", json=SETUPS["dense"])
        hour = time.time() + 3600
        for when, counted in ((T0, 0), (None, 0), (hour, 1), (hour, 2)):
            content = body(columns_of([{"x": [1, 2, 3], "label": 1, "time": when}]))
            reply = await http.post("/learners/a/update", content=content, headers=HEADERS)
            assert reply.is_success
            assert engine.get("a").times_ahead == counted
        assert (await figures(http))["clock"] <= time.time()
        scraped = samples(await scrape(http))
        assert scraped["rarestream_times_ahead_total", (("learner", "a"),)] == 2


async def test_many_expired_events_are_learnt_in_steps(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.engine.replica.label_expiry._EXPIRED", 3)
    async with serving(store, follow_seconds=0.02) as (http, engine):
        await http.put("/learners/a", json=config(unlabelled="negative"))
        await posted(http, "/learners/a/predict", [event("dense", i) for i in range(20)])
        await posted(http, "/learners/a/predict", [event("dense", 300)])
        await eventually_async(lambda: assumed(engine) == 20)
        await eventually_async(lambda: _waiting(engine, 1))
        assert await digest(http) == await replayed(store)


def _stream(setup: str) -> list[dict[str, Any]]:
    """Return labelled events and labels by id that make served events overdue, alone and in groups."""
    labels = {item["id"]: item for item in late(setup, 0, 40, 2 * TTL)}
    return [
        *labelled(setup, 95, 110),
        {**labels["e20"], "time": T0 + 1150},  # in time
        {**labels["e3"], "time": T0 + 1150},  # positive is wrong for it; too late, so a correction or a duplicate
        {**labels["e5"], "label": 1, "time": T0 + 1200},
        *labelled(setup, 107, 109),  # again
        *labelled(setup, 130, 132),
        {"id": "never", "label": 1, "time": T0 + 1330},
        {**labels["e5"], "label": 0, "time": T0 + 1340},  # back again: learnt anew from what was served
        {**labels["e7"], "label": 1, "time": T0 + 1340},
        {**labels["e7"], "label": 0, "time": T0 + 1345},
        labels["e36"],  # its time moves the clock past all the others'
        *[{**item, "time": T0} for item in labelled(setup, 200, 205)],  # late themselves
        {**labels["e37"], "label": 1, "time": T0 + 1000},
        event(setup, 38, label=1),  # one that was served comes with its features
        {**labels["e38"], "label": 0},
        *labelled(setup, 400, 404),
    ]


@pytest.mark.parametrize("setup", [cut for cut in SETUPS if cut != "ordinal"])
@pytest.mark.parametrize(
    ("policy", "first", "assumed"), [("negative", 0, 39), ("negative", 30, 37), ("nothing", 0, 0)], ids=str
)
async def test_batching_has_no_effect_on_label_expiry(
    store: Store, setup: str, policy: str, first: int, assumed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of expired labels per record does not matter either. Others wait for the event served `first`."""
    events = _stream(setup)
    served = [event(setup, first), *[event(setup, i) for i in range(40) if i != first]]
    result = set()
    statuses = []
    async with serving(store) as (http, engine):
        for name, size, most in [("a", 1, 5000), ("b", 3, 5000), ("c", 8, 2), ("d", len(events), 5), ("e", 100, 5000)]:
            monkeypatch.setattr("service.engine.replica.label_expiry._EXPIRED", most)
            await http.put(f"/learners/{name}", json=config(setup, unlabelled=policy))
            await posted(http, f"/learners/{name}/predict", served)
            messages: list[str] = []
            for start in range(0, len(events), size):
                answer = await posted(http, f"/learners/{name}/update", events[start : start + size])
                messages += [cut["status"] for cut in answer["results"]]
            assert len(messages) == len(events)
            statuses.append(messages)
            replica = engine.get(name)
            result.add(replica.learner.digest())
            metrics = await figures(http, name)
            assert metrics["assumed"] == assumed  # all but e20, and what had its label by the time of the first
    assert len(result) == 1
    assert all(messages == statuses[0] for messages in statuses)


async def test_settings_changed_on_another_node_apply_before_label_expiry(store: Store, open_again: Any) -> None:
    second = await open_again()
    for name, change in (("a", {"label_ttl": 1e7}), ("b", {"unlabelled": "nothing"})):
        async with serving(store) as (local, _), serving(second) as (remote, other):
            await local.put(f"/learners/{name}", json=config(unlabelled="negative"))
            await remote.put(f"/learners/{name}", json=config(unlabelled="negative"))
            await posted(local, f"/learners/{name}/predict", [event("dense", i) for i in range(10)])
            reply = await local.patch(f"/learners/{name}", json={"late": change})
            assert reply.status_code == 200
            await posted(remote, f"/learners/{name}/update", labelled("dense", 300, 310))
            assert (await figures(remote, name))["assumed"] == 0
            assert other.get(name).learner.config.late.to_json().items() >= change.items()


async def test_a_rollback_undoes_expired_labels(store: Store) -> None:
    async with serving(store, trim_log=False) as (http, engine):
        await http.put("/learners/a", json=config(unlabelled="negative"))
        await posted(http, "/learners/a/update", labelled("dense", 0, 5))
        await posted(http, "/learners/a/predict", [event("dense", i) for i in range(10, 30)])
        await posted(http, "/learners/a/update", labelled("dense", 115, 116))  # e10 to e14 are assumed
        before = (await figures(http))["assumed"]
        assert before == 5
        position = (await http.post("/learners/a/snapshots")).json()["position"]
        for _ in range(2):
            reply = await posted(http, "/learners/a/labels", late("dense", 15, 17, 0.0))
            assert reply["applied"] == 2
            await posted(http, "/learners/a/update", labelled("dense", 300, 301))
            assert (await figures(http))["assumed"] == 18
            assert (await http.post(f"/learners/a/snapshots/{position}/restore")).status_code == 200
            assert (await figures(http))["assumed"] == before
        assert await digest(http) == await replayed(store)
        engine.get("a").tick()


async def test_a_store_failing_to_settle_fails_no_request(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store returns unreported events again, and the learner recognises them."""

    async def away(*_: Any) -> None:
        raise StoreUnavailable("away")

    async with serving(store, follow_seconds=0.02) as (http, engine):
        await http.put("/learners/a", json=config(unlabelled="negative"))
        monkeypatch.setattr(store, "settle", away)
        await posted(http, "/learners/a/predict", [event("dense", i) for i in range(10)])
        await posted(http, "/learners/a/update", labelled("dense", 300, 301))
        monkeypatch.undo()
        metrics = await figures(http)
        assert (metrics["assumed"], metrics["events"]) == (10, 11)
    async with serving(store) as (http, engine):  # as after a crash
        await posted(http, "/learners/a/update", labelled("dense", 400, 401))
        engine.get("a").tick()
        await engine.get("a").log.catch_up()
        metrics = await figures(http)
        assert (metrics["assumed"], metrics["events"], metrics["duplicates"]) == (10, 12, 0)
        assert await digest(http) == await replayed(store)


async def _waiting(engine: Engine, events: int) -> bool:
    """Tell whether so many events still wait for their labels."""
    result = await engine.node.store.expired("a", engine.get("a").birth, math.inf, 1000)
    return result.labelled.count(False) == events


async def test_a_timely_label_wins_over_label_expiry(store: Store) -> None:
    """The label wins in either order."""
    async with serving(store) as (http, engine):
        await http.put("/learners/a", json=config(unlabelled="negative"))
        await posted(http, "/learners/a/update", labelled("dense", 0, 20))
        await posted(http, "/learners/a/predict", [event("dense", i) for i in range(20, 40)])
        await posted(http, "/learners/a/predict", [event("dense", 500)])
        replica = engine.get("a")
        await replica.log.catch_up()
        labels = [{**item, "label": 1} for item in late("dense", 20, 40, 0.0)]
        answers = [asyncio.create_task(posted(http, "/learners/a/labels", labels[i : i + 1])) for i in range(20)]
        replica.tick()
        for answer in await asyncio.gather(*answers):
            assert answer["applied"] + answer["relabelled"] == 1
        await eventually_async(lambda: _waiting(engine, 1))
        metrics = await figures(http)
        assert metrics["events"] == 40
        assert metrics["class_counts"]["positive"] == 24
        assert metrics["assumed"] == metrics["corrections"]
        assert await digest(http) == await replayed(store)


async def test_two_nodes_do_not_expire_a_label_twice(store: Store, open_again: Any) -> None:
    second = await open_again()
    settings = {"follow_seconds": 0.02}
    async with serving(store, **settings) as (local, node_a), serving(second, **settings) as (remote, node_b):
        for http in (local, remote):
            await http.put("/learners/a", json=config(unlabelled="negative"))
        for round_ in range(4):
            start = 400 * round_
            requests = [event("dense", start + i) for i in range(20)]
            await asyncio.gather(
                posted(local, "/learners/a/predict", requests[:10]),
                posted(remote, "/learners/a/predict", requests[10:]),
            )
            await posted(local, "/learners/a/predict", [event("dense", start + 399)])
            await eventually_async(lambda n=21 * round_ + 20: assumed(node_a) >= n)
        await eventually_async(lambda: _waiting(node_a, 1))
        await asyncio.gather(node_a.get("a").log.catch_up(), node_b.get("a").log.catch_up())
        await eventually_async(lambda: node_a.get("a").position == node_b.get("a").position)
        assert await digest(local) == await digest(remote) == await replayed(store)
        metrics = await figures(remote)
        assert (metrics["assumed"], metrics["events"]) == (83, 83)


def calls(engine: Engine) -> dict[str, int]:
    """Return how often a node has read overdue events and reported labels."""
    return {name: engine.node.timings.store[name].count for name in ("expired", "labelled", "settle", "reopen")}


async def test_followers_leave_label_expiry_to_the_lease_holder(store: Store, open_again: Any) -> None:
    settings = {"follow_seconds": 0.02, "trim_log": False}
    async with AsyncExitStack() as nodes:
        http, first = await nodes.enter_async_context(serving(store, **settings))
        await http.put("/learners/a", json=config(unlabelled="negative"))
        assert await first.get("a").lease.take()
        _, second = await nodes.enter_async_context(serving(await open_again(), **settings))
        _, three = await nodes.enter_async_context(serving(await open_again(), **settings))
        await posted(http, "/learners/a/predict", [event("dense", i) for i in range(5)])
        for i in range(5, 45):
            await posted(http, "/learners/a/update", labelled("dense", i, i + 1))
            await posted(http, "/learners/a/predict", [event("dense", 1000 + i)])
        await first.get("a").log.catch_up()
        assert (await figures(http))["assumed"] == 5
        first.get("a").tick()
        await eventually_async(lambda: calls(first)["labelled"] >= 1)
        for node in (second, three):
            await node.get("a").log.catch_up()
            assert node.get("a").learner.digest() == first.get("a").learner.digest()
            assert set(calls(node).values()) == {0}, calls(node)


async def test_another_node_finishes_the_label_expiry_of_a_dead_node(
    store: Store, open_again: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node ended after its record, before it expired labels and reported others."""
    monkeypatch.setattr("service.engine.replica.lease._SECONDS", 0.2)
    settings = {"follow_seconds": 0.02, "trim_log": False}
    second = await open_again()
    async with serving(second, **settings) as (other, node_b):
        async with serving(store, follow_seconds=3600, trim_log=False) as (http, node_a):
            await http.put("/learners/a", json=config(unlabelled="negative"))
            await eventually_async(lambda: "a" in node_b.replicas)
            monkeypatch.setattr(
                node_a.get("a").label_expiry, "_expire", node_a.get("a").label_expiry._take_lease
            )  # does nothing
            await posted(http, "/learners/a/predict", [event("dense", i) for i in range(10)])
            labels = [{**item, "label": 1} for item in late("dense", 0, 4, 0.0)]
            await posted(http, "/learners/a/labels", labels)
            await posted(http, "/learners/a/predict", [event("dense", 500)])
        await eventually_async(lambda: assumed(node_b) >= 6)
        await eventually_async(lambda: _waiting(node_b, 1))
        metrics = await figures(other)
        assert (metrics["assumed"], metrics["events"], metrics["class_counts"]["positive"]) == (6, 10, 4)
        await node_b.get("a").log.catch_up()
        assert await digest(other) == await replayed(second)
        birth = node_b.get("a").birth
        jobs = await second.expired("a", birth, math.inf, 100)  # all else is settled
        assert [entry.id for entry in jobs.events] == [event("dense", 500)["id"]]


async def test_a_snapshot_notice_clears_the_reports_of_its_node(store: Store, open_again: Any) -> None:
    quiet = {"follow_seconds": 3600, "trim_log": False}
    async with serving(store, **quiet) as (http, _), serving(await open_again(), **quiet) as (_, two):
        await http.put("/learners/a", json=config(unlabelled="negative"))
        await two.sync.check_heads()
        await posted(http, "/learners/a/predict", [event("dense", i) for i in range(10)])
        await posted(http, "/learners/a/labels", late("dense", 0, 4, 0.0))
        position = (await http.post("/learners/a/snapshots")).json()["position"]
        await posted(http, "/learners/a/labels", late("dense", 4, 6, 0.0))
        remote = two.get("a")
        await remote.log.catch_up()
        before = calls(two)
        assert remote.label_expiry._unreported in (2, 6)  # by whether it has heard of the snapshot
        remote.label_expiry.note_report(position)
        assert remote.label_expiry._unreported == 2
        await remote.snapshots.save()
        assert remote.label_expiry._unreported == 0
        assert calls(two)["labelled"] == before["labelled"] + 1


async def test_an_event_learnt_with_its_features_does_not_expire(store: Store) -> None:
    async with serving(store, follow_seconds=0.02) as (http, engine):
        await http.put("/learners/a", json=config(unlabelled="negative"))
        await posted(http, "/learners/a/predict", [event("dense", i) for i in range(10)])
        await posted(http, "/learners/a/update", labelled("dense", 0, 9))
        await posted(http, "/learners/a/predict", [event("dense", 300)])
        await eventually_async(lambda: _waiting(engine, 1))
        metrics = await figures(http)
        assert (metrics["assumed"], metrics["events"], metrics["duplicates"]) == (1, 10, 0)


async def test_ordinal_labels_never_expire(store: Store) -> None:
    async with serving(store) as (http, _):
        reply = await http.put("/learners/a", json=config("ordinal", unlabelled="negative"))
        assert reply.status_code == 422
        assert [error["pointer"] for error in reply.json()["errors"]] == ["/late/unlabelled"]
