"""A node's clock against the store: what confirms it, what is reported, and what waits meanwhile."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from service import clock
from service.clock import STEP_SECONDS
from service.engine.clock_check import ClockCheck
from service.engine.engine import Engine
from service.storage.memory import MemoryStore
from service.storage.redis.redis_store import RedisStore
from service.storage.store_protocol import SharedStore, Store
from tests.harness.fixtures import START, Machine
from tests.harness.msgpack_bodies import HEADERS, body, columns_of
from tests.harness.nodes import app_over, digest, posted, replayed, serving
from tests.harness.raw import URL, request, served
from tests.harness.redis_server import RedisServer
from tests.harness.scrapes import samples, scrape
from tests.harness.websocket import websocket

DAY = 86_400.0
STEPS = pytest.mark.parametrize("step", [3 * DAY, -7200.0])
FEATURES = {"kind": "dense", "dim": 2}
BUDGET: dict[str, Any] = {"objective": "budget", "alerts": 50}


def config(policy: str = "nothing", **more: Any) -> dict[str, Any]:
    return {"algorithm": "cbr", "features": FEATURES, "late": {"unlabelled": policy, "label_ttl": DAY}, **more}


def event(i: int, **more: Any) -> dict[str, Any]:
    return {"x": [1.0 + i * 7 % 11 / 11, i * 5 % 13 / 13], **more}


@pytest.fixture
def shared(store: Store, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Return a store; if it has a clock of its own, that runs evenly."""

    async def even() -> float:
        return machine.even

    if isinstance(store, SharedStore):
        monkeypatch.setattr(store, "time", even)
    return store


async def stream(http: httpx.AsyncClient, machine: Machine, step: float) -> list[int]:
    """Send four days of events without times; the machine's clock is wrong during 20 requests of the first day."""
    labels = [{"id": f"e{i}", "label": i % 2} for i in range(0, 400, 4)]
    for name, policy in (("a", "nothing"), ("b", "negative")):
        await http.put(f"/learners/{name}", json=config(policy, threshold=BUDGET))
        await posted(http, f"/learners/{name}/update", [event(i, label=i % 2) for i in range(50)])
    alerts = []
    for i in range(400):
        if i in (40, 60):
            machine.step(step if i == 40 else -step)
        reply = await posted(http, "/learners/a/predict", [event(i, id=f"e{i}")])
        alerts.append(reply["results"][0]["label"])
        await posted(http, "/learners/b/predict", [event(i, id=f"e{i}")])
        if i % 50 == 49:
            for name in "ab":
                await posted(http, f"/learners/{name}/labels", labels[i // 4 - 12 : i // 4 + 1])
        machine.wait(DAY / 100)
    return alerts


async def outcome(http: httpx.AsyncClient, engine: Engine) -> list[Any]:
    """Return the state of `a` and its served events, and what became of the events of `b`."""
    await engine.get("b").snapshots.save()  # it expires what is overdue
    metrics = (await http.get("/learners/b/metrics")).json()
    counts = [await engine.node.store.pending(name, engine.get(name).birth) for name in "ab"]
    pending = [count._replace(bytes=0) for count in counts]  # scores of `b` depend on when its labels expire
    return [(await digest(http))[1], pending, [metrics[name] for name in ("clock", "events", "assumed")]]


@STEPS
@pytest.mark.integration  # 900 requests
async def test_a_step_leaves_learners_as_they_are_without(shared: Store, machine: Machine, step: float) -> None:
    """Budgets, waiting labels, served events and their decisions, to the bit."""
    async with serving(shared) as (http, engine):
        alerts = await stream(http, machine, step)
        result = await outcome(http, engine)
        assert await digest(http) == await replayed(shared)
    with pytest.MonkeyPatch.context() as patch:
        even = Machine()
        patch.setattr(clock, "CLOCK", even.clock())
        async with serving(MemoryStore()) as (http, engine):
            assert alerts == await stream(http, even, 0.0)
            assert result == await outcome(http, engine)
    assert result[2][2] > 0  # labels expired in their time
    assert all(0 < sum(alerts[day : day + 100]) <= 2 * BUDGET["alerts"] for day in range(0, 400, 100))


@STEPS
@pytest.mark.parametrize("policy", ["nothing", "negative"])
async def test_what_waits_for_its_label_outlasts_a_step(
    shared: Store, machine: Machine, policy: str, step: float
) -> None:
    async with serving(shared) as (http, engine):
        await http.put("/learners/a", json=config(policy))
        await posted(http, "/learners/a/predict", [event(i, id=f"w{i}") for i in range(95)])
        machine.step(step)
        await posted(http, "/learners/a/predict", [event(0, id="one")])
        assert (await http.post("/learners/a/snapshots")).is_success  # it expires what is overdue
        await check(engine)
        health = (await http.get("/health/ready")).json()
        assert health["status"] == "degraded"
        assert "this node's clock is " in health["detail"]
        assert samples(await scrape(http))["rarestream_clock_offset_seconds", ()] == step
        machine.step(-step)
        await check(engine)
        assert (await http.get("/health/ready")).json()["status"] == "ok"
        labels = [{"id": f"w{i}", "label": i % 2} for i in range(95)]
        assert (await posted(http, "/learners/a/labels", labels))["applied"] == 95
        metrics = (await http.get("/learners/a/metrics")).json()
        assert (metrics["clock"], metrics["assumed"]) == (START, 0)
        assert (await engine.node.store.pending("a", engine.get("a").birth)).expired == 0


@pytest.mark.parametrize("door", ["predict", "update", "labels", "group", "websocket", "ndjson", "msgpack"])
async def test_no_door_moves_a_learner_beyond_this_node(machine: Machine, door: str) -> None:
    async with serving(MemoryStore()) as (http, engine):
        for name in "ab":
            await http.put(f"/learners/{name}", json=config(threshold={**BUDGET, "unit_seconds": 5}))
            await posted(http, f"/learners/{name}/update", [event(i, label=i) for i in (0, 1)])
            await posted(http, f"/learners/{name}/predict", [event(0, id="w")])
        await http.put("/groups/g", json={"learners": ["a", "b"]})
        machine.wait(1.0)
        await send_ahead(http, engine, door, START + 23 * 3600)
        await engine.get("a").log.catch_up()
        assert engine.get("a").newest_time() == START + 1.0
        assert engine.get("a").times_ahead == 1
        assert engine.get("a").learner.state()["threshold.clock"].tolist() == [START + 1.0]


def test_the_inline_path_moves_no_learner_beyond_this_node(machine: Machine) -> None:
    with served() as service:
        for operation in ("update", "predict"):
            with service.over_asgi(0):
                ahead = {"x": [1, 2, 3], "time": START + 23 * 3600} | ({"label": 1} if operation == "update" else {})
                reply = service.ask(request(json.dumps({"events": [ahead]}).encode(), f"{URL}/{operation}"))
            assert reply.status == 200
        metrics = service.http("GET", f"{URL}/metrics").json()
        assert metrics["clock"] == machine.time
        assert 'times_ahead_total{learner="fraud"} 2.0' in service.http("GET", "/metrics").text


async def send_ahead(http: httpx.AsyncClient, engine: Engine, door: str, moment: float) -> None:
    """Send an event whose time is ahead by a door."""
    ahead = event(1, id="new", label=1, time=moment)
    if door == "websocket":
        async with websocket(app_over(engine), "/v1/learners/a/ws") as client:
            client.send({"seq": 1, "op": "update", "events": [ahead]})
            assert (await client.reply())["status"] == 200
    elif door == "ndjson":
        kind = {"Content-Type": "application/x-ndjson"}
        assert (await http.post("/learners/a/update", content=json.dumps(ahead), headers=kind)).is_success
    elif door == "msgpack":
        content = body(columns_of([ahead]))
        assert (await http.post("/learners/a/update", content=content, headers=HEADERS)).is_success
    elif door == "labels":
        await posted(http, "/learners/a/labels", [{"id": "w", "label": 1, "time": moment}])
    elif door == "predict":
        del ahead["label"]
        await posted(http, "/learners/a/predict", [ahead])
    else:
        await posted(http, "/groups/g/update" if door == "group" else "/learners/a/update", [ahead])


@pytest.mark.usefixtures("machine")
async def test_a_refusal_names_the_clock_of_a_node_that_is_behind() -> None:
    async with serving(MemoryStore()) as (http, _engine):
        await http.put("/learners/a", json=config())
        ahead = event(0, label=1, time=START + 2 * DAY)
        for reply in (
            await http.post("/learners/a/update", json={"events": [ahead]}),
            await http.post("/learners/a/update", content=body(columns_of([ahead])), headers=HEADERS),
        ):
            assert reply.status_code == 422
            assert "at most a day ahead of this node's clock, which shows 2027-01-15T08:00:00.000Z" in reply.text


@pytest.mark.parametrize("policy", ["nothing", "negative"])
async def test_events_wait_on_a_node_that_starts_behind(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    store = MemoryStore()
    async with serving(store) as (http, engine):
        await http.put("/learners/a", json=config(policy))
        await posted(http, "/learners/a/predict", [event(0, id="w")])
        machine.step(-2 * DAY)
        monkeypatch.setattr(clock, "CLOCK", machine.clock())  # as of another process
        await posted(http, "/learners/a/predict", [event(1, id="none"), event(2, id="ahead", time=START - 1.5 * DAY)])
        await posted(http, "/learners/a/predict", [event(3, id="last")])
        assert (await http.post("/learners/a/snapshots")).is_success
        labels = [{"id": id, "label": 1} for id in ("w", "none", "ahead", "last")]
        assert (await posted(http, "/learners/a/labels", labels))["applied"] == 4
        assert engine.get("a").newest_time() == START
        await check(engine)
        health = (await http.get("/health/ready")).json()
        assert health["status"] == "degraded"
        assert "is 2 days, 0:00:00 behind the newest event of a" in health["detail"]


# The clock of the store


async def check(engine: Engine) -> None:
    """Check the clock as a node does now and then."""
    await engine.node.check_clock()
    engine.sync._check_newest()


@pytest.fixture
def starting(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], ClockCheck]:
    """Start a process whose clock is so far ahead."""

    def start(ahead: float) -> ClockCheck:
        machine.step(ahead)
        monkeypatch.setattr(clock, "CLOCK", machine.clock())
        return ClockCheck()

    return start


@pytest.mark.parametrize(("ahead", "counts"), [(3 * DAY, 0.0), (-2 * DAY, -2 * DAY), (30.0, 30.0)])
def test_a_node_starts_with_the_earlier_time(
    starting: Callable[[float], ClockCheck], ahead: float, counts: float
) -> None:
    clock_check = starting(ahead)
    clock_check.compare(START, 0.0)
    assert clock.now() == START + counts
    assert (clock_check.problem is None) == (abs(ahead) < STEP_SECONDS)
    assert clock_check.store_offset == ahead


@pytest.mark.parametrize("corrected", ["node", "store"])
def test_times_follow_the_machine_once_the_wrong_clock_is_corrected(
    machine: Machine, starting: Callable[[float], ClockCheck], corrected: str
) -> None:
    clock_check = starting(3 * DAY)
    clock_check.compare(START, 0.0)
    machine.wait(10.0)
    if corrected == "node":
        machine.step(-3 * DAY)
    clock_check.compare(machine.time, 0.0)
    assert clock.now() == machine.time
    assert clock_check.problem is None


def test_the_store_confirms_a_step_that_only_this_node_made(
    machine: Machine, starting: Callable[[float], ClockCheck]
) -> None:
    """As of a machine that was paused, or whose clock was wrong when the service started."""
    clock_check = starting(-2 * DAY)
    clock_check.compare(START, 0.0)
    assert "is 2 days, 0:00:00 behind the store's clock" in str(clock_check.problem)
    machine.wait(10.0)
    machine.step(2 * DAY)
    assert clock.now() == START - 2 * DAY + 10.0  # until the store confirms it
    clock_check.compare(machine.time, 0.0)
    assert clock.now() == machine.time
    assert clock_check.problem is None


@STEPS
def test_a_step_of_the_store_with_this_node_confirms_nothing(
    machine: Machine, starting: Callable[[float], ClockCheck], step: float
) -> None:
    """Both may run on one machine."""
    clock_check = starting(0.0)
    clock_check.compare(START, 0.0)
    machine.step(step)
    for _ in range(3):
        machine.wait(10.0)
        clock_check.compare(machine.time, 0.0)
        assert clock.now() == machine.time - step
        assert "restart the service" in str(clock_check.problem)
    machine.step(-step)
    clock_check.compare(machine.time, 0.0)
    assert clock_check.problem is None


def test_a_step_of_the_store_alone_is_only_reported(machine: Machine, starting: Callable[[float], ClockCheck]) -> None:
    clock_check = starting(0.0)
    clock_check.compare(START, 0.0)
    clock_check.compare(START - 7200.0, 0.0)
    assert clock.now() == machine.time
    assert "is 2:00:00 ahead of the store's clock" in str(clock_check.problem)


def test_a_slow_reply_of_the_store_is_no_difference(starting: Callable[[float], ClockCheck]) -> None:
    clock_check = starting(90.0)
    clock_check.compare(START, 80.0)
    assert (clock_check.store_offset, clock_check.problem) == (10.0, None)


async def test_redis_tells_its_time_and_a_node_starts_with_it(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, ahead = RedisStore(redis_server.url), [3 * DAY]
    monkeypatch.setattr(clock, "CLOCK", clock.Clock(lambda: time.time() + ahead[0]))
    try:
        before = time.time()
        assert before - 1 <= await store.time() <= time.time() + 1
        async with serving(store) as (http, engine):
            await http.put("/learners/a", json=config())
            await posted(http, "/learners/a/predict", [event(0, id="w")])
            await engine.get("a").log.catch_up()
            assert before - 1 <= engine.get("a").newest_time() <= time.time() + 1
            health = (await http.get("/health/ready")).json()
            assert health["status"] == "degraded"
            assert "ahead of the store's clock; times of events do not follow it" in health["detail"]
            ahead[0] = 0.0
            await check(engine)
            assert (await http.get("/health/ready")).json()["status"] == "ok"
    finally:
        await store.close()
