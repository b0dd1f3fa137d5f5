"""Background tasks that end by an error are reported and start again."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from service.engine import webhooks
from service.engine.engine import Engine
from service.engine.webhooks import Webhook
from service.settings import Settings
from service.storage.memory import MemoryStore
from service.telemetry import background_tasks
from service.telemetry.background_tasks import BackgroundTasks
from tests.harness.apps import application
from tests.harness.waiting import eventually_async
from tests.service.engine.test_webhooks import Posts


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the pauses before a new start."""
    monkeypatch.setattr(background_tasks, "_FIRST_PAUSE", 0.0)


async def test_a_task_starts_again_after_each_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tasks, starts = BackgroundTasks(), 0

    async def run() -> None:
        nonlocal starts
        starts += 1
        if starts < 4:
            raise ZeroDivisionError(f"start {starts}")

    assert tasks.trouble is None
    await tasks.keep("count", run)
    assert (starts, tasks.errors["count"]) == (4, 3)
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 3
    assert "start 3" in caplog.text
    assert "count (3 errors)" in str(tasks.trouble)
    monkeypatch.setattr(background_tasks, "_REPORTED_SECONDS", 0.0)
    assert tasks.trouble is None


async def test_pauses_grow_and_begin_anew_after_a_long_run(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    now = 0.0

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    async def run() -> None:
        nonlocal now
        if len(pauses) == 12:
            return
        now += 61.0 if len(pauses) == 11 else 0.0
        raise ZeroDivisionError

    monkeypatch.setattr(background_tasks, "_FIRST_PAUSE", 0.1)
    monkeypatch.setattr(background_tasks.time, "monotonic", lambda: now)
    monkeypatch.setattr(background_tasks.asyncio, "sleep", sleep)
    await BackgroundTasks().keep("fail", run)
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 60.0, 0.1]


async def test_a_cancelled_task_ends_with_what_it_runs() -> None:
    tasks, running = BackgroundTasks(), asyncio.Event()
    ended = False

    async def run() -> None:
        nonlocal ended
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended = True

    task = tasks.keep("wait", run)
    await running.wait()
    task.cancel()
    await asyncio.wait([task])
    assert (task.cancelled(), ended, tasks.errors["wait"]) == (True, True, 0)


async def test_the_error_of_a_watched_task_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    tasks = BackgroundTasks()

    async def fail() -> None:
        raise ZeroDivisionError

    async def wait() -> None:
        await asyncio.Event().wait()

    task = tasks.watch(asyncio.create_task(fail()), "fail")
    other = tasks.watch(asyncio.create_task(wait()), "wait")
    other.cancel()
    await asyncio.wait([task, other])
    await eventually_async(lambda: tasks.errors["fail"] == 1)
    assert (tasks.errors["wait"], len(caplog.records)) == (0, 1)


async def test_health_and_metrics_tell_of_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    faults = [ZeroDivisionError("a bug")]

    async def subscribe(*_: Any) -> None:
        if faults:
            raise faults.pop()
        await asyncio.Event().wait()

    monkeypatch.setattr("service.engine.cluster.notifier.Notifier.subscribe", subscribe)
    async with application(Settings(store="memory:", follow_seconds=0.01)) as (app, http):
        await eventually_async(lambda: app.state.engine.node.background.trouble, "an error")
        health = (await http.get("/v1/health/ready")).json()
        assert health["status"] == "degraded"
        assert "follow the store (1 error)" in health["detail"]
        assert 'rarestream_task_errors_total{task="follow the store"} 1.0' in (await http.get("/metrics")).text
        looks = app.state.engine.node.timings.store["heads"]
        before = looks.count
        await eventually_async(lambda: looks.count > before or app.state.engine.sync._check.set(), "a new start")


@pytest.mark.parametrize(
    ("variable", "value"),
    [("NO_PROXY", "[::1]"), ("HTTPS_PROXY", "nonsense://x"), ("SSL_CERT_FILE", "/nowhere.pem")],
)
async def test_settings_of_the_network_are_tried_at_the_start(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    Engine(MemoryStore(), Settings())  # nothing is posted
    with pytest.raises(ValueError, match=r"RARESTREAM_WEBHOOK is set, but the network settings .* correct NO_PROXY"):
        Engine(MemoryStore(), Settings(webhook="http://127.0.0.1:1/x"))


async def test_an_alarm_outlives_an_error_of_the_task_that_posts(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[int] = []

    async def attempt(_: Any, __: Any, ___: Any, alarm: dict[str, Any]) -> None:
        attempts.append(alarm["number"])
        if len(attempts) == 1:
            raise ZeroDivisionError

    monkeypatch.setattr(Webhook, "_attempt", attempt)
    monkeypatch.setattr(webhooks, "_AGAIN", 0.0)
    tasks, posts = BackgroundTasks(), Posts()
    webhook = Webhook("http://127.0.0.1:1/x", background=tasks)
    for number in (0, 1):
        posts.add(number=number)
    webhook.note(posts, 0.0)
    await eventually_async(lambda: not posts.posts)
    assert (attempts, tasks.errors["post news"]) == ([0, 0, 1], 1)
    await webhook.close()
