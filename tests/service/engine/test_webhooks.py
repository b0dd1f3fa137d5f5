"""Alarms and alerts are posted in order, retried after failures and restarts, and never repeated by a replay."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from service.engine import Engine, webhooks
from service.engine.replica.news import Post
from service.engine.webhooks import Webhook, Webhooks
from service.errors import LearnerGone
from service.settings import Settings
from service.storage.memory import MemoryStore
from service.storage.store_protocol import Store
from service.telemetry import BackgroundTasks
from tests.harness.apps import events
from tests.harness.log_records import logged_data
from tests.harness.nodes import T0, node, posted, serving
from tests.harness.process import free_port
from tests.harness.waiting import eventually_async
from tests.service.api.routes.test_metrics_routes import DENSE, DRIFTED, drifted

ALERT, QUIET = [30.0, 0.5, 0.0], [-30.0, 0.5, 0.0]  # after `events`

pytestmark = pytest.mark.integration

ALARM = {"number": 0, "kind": "auc", "events": 5, "clock": None, "before": 0.9, "after": 0.5, "state": "open"}


class Posts:
    """News of a learner that a test makes, as `replica.news.News` reads them from the store."""

    def __init__(self, learner: str = "a") -> None:
        self.learner = learner
        self.posts: list[Post] = []
        self.leading = True
        self.looks = 0

    def add(self, **changed: Any) -> None:
        self.posts.append(Post({"type": "alarm", "learner": self.learner, **ALARM, **changed}, "", 0))

    async def leads(self) -> bool:
        return self.leading

    async def unposted(self) -> list[Post]:
        self.looks += 1
        return list(self.posts)

    async def note_posted(self, post: Post) -> None:
        self.posts.remove(post)


async def wait_for_bookmarks(store: Store, engine: Engine) -> None:
    """Wait until the learner a has its bookmarks."""
    while await store.bookmark("a", engine.get("a").birth, "posted-alerts") is None:  # noqa: ASYNC110 (no event)
        await asyncio.sleep(0)


class Receiver:
    """A small HTTP server that records posts; `answers` are its first responses."""

    def __init__(self, answers: list[int]) -> None:
        self.got: list[dict[str, Any]] = []
        self.signatures: list[tuple[str, str, bytes]] = []  # time, signature and body of each post that has them
        self.answers = answers
        self.url = ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode().lower().splitlines()
                assert lines[0].split()[:2] == ["post", "/alarms?key=secret"]
                assert "content-type: application/json" in lines
                size = next(int(line.split(":")[1]) for line in lines if line.startswith("content-length"))
                body = await reader.readexactly(size)
                self.got.append(json.loads(body))
                headers = dict(line.split(": ", 1) for line in lines[1:] if ": " in line)
                if "x-rarestream-signature" in headers:
                    self.signatures.append((headers["x-rarestream-timestamp"], headers["x-rarestream-signature"], body))
                status = self.answers.pop(0) if self.answers else 200
                writer.write(f"HTTP/1.1 {status} x\r\ncontent-length: 0\r\n\r\n".encode())
                await writer.drain()
        except asyncio.IncompleteReadError:  # the client has closed the connection
            writer.close()


@asynccontextmanager
async def receiver(*answers: int) -> AsyncIterator[Receiver]:
    item = Receiver(list(answers))
    server = await asyncio.start_server(item.answer, "127.0.0.1", 0)
    item.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/alarms?key=secret"
    try:
        yield item
    finally:
        server.close()


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the pauses between retries."""
    monkeypatch.setattr(webhooks, "_PAUSES", (0.0,) * 4)


@pytest.fixture(autouse=True)
def restless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for news without a pause."""
    monkeypatch.setattr(webhooks.Webhook.note, "__defaults__", (0.0,))
    monkeypatch.setattr(webhooks, "_AGAIN", 0.02)


async def test_an_alarm_is_posted_once_and_never_on_a_replay(store: Store, open_again: Any) -> None:
    async with receiver() as received:
        settings = {"webhook": received.url, "follow_seconds": 0.02}
        async with node(await open_again(), **settings) as follower, serving(store, **settings) as (http, _):
            await http.put("/learners/a", json=DENSE)
            await drifted(http)
            await eventually_async(lambda: len(received.got) > 0)
            await eventually_async(lambda: "a" in follower.replicas and follower.get("a").view.figures.alarm_count == 1)
            (output,) = received.got
            alarm = (await http.get("/learners/a/alarms")).json()["alarms"][0]
            assert output == {"type": "alarm", "learner": "a", **alarm}
            assert (output["kind"], output["events"], output["clock"]) == ("scores", 50, T0 + DRIFTED - 1)
        async with serving(store, **settings) as (http, engine):  # after a crash, the log is applied again
            await engine.get("a").log.catch_up()
            assert (await http.get("/learners/a/alarms")).json()["counts"]["scores"] == 1
            await http.put("/learners/b", json=DENSE)
            await drifted(http, "b")  # goes behind whatever else might have been sent
            await eventually_async(lambda: len(received.got) > 1)
        assert [item["learner"] for item in received.got] == ["a", "b"]


async def test_an_alarm_waits_for_its_receiver_across_a_restart(open_again: Any) -> None:
    settings = {"snapshot_seconds": 0.1}  # of which a lease lasts as long
    nowhere = f"http://127.0.0.1:{free_port()}/"
    async with serving(await open_again(), webhook=nowhere, **settings) as (http, engine):
        await http.put("/learners/a", json=DENSE)
        await drifted(http)
        await eventually_async(lambda: engine.node.webhooks.trouble)
        assert engine.node.webhooks.total("waiting") == 1
        health = (await http.get("/health/ready")).json()
        assert (health["status"], health["detail"]) == (
            "ok",
            "posts wait for the webhook, which is tried again: ConnectError",
        )
    async with receiver() as received, serving(await open_again(), webhook=received.url, **settings):
        await eventually_async(lambda: len(received.got) > 0)
        assert [(item["learner"], item["number"]) for item in received.got] == [("a", 0)]


async def test_alarms_raised_again_after_a_rollback_are_posted_again(store: Store) -> None:
    async with receiver() as received, serving(store, webhook=received.url) as (http, engine):
        await http.put("/learners/a", json=DENSE)
        position = (await http.post("/learners/a/snapshots")).json()["position"]
        await drifted(http)
        await eventually_async(lambda: len(received.got) == 1)
        await http.post(f"/learners/a/snapshots/{position}/restore")
        assert engine.get("a").view.figures.alarm_count == 0
        await drifted(http)
        await eventually_async(lambda: len(received.got) == 2)
        assert [item["number"] for item in received.got] == [0, 0]


async def test_alerts_before_the_first_look_at_a_new_learner_are_posted(monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        receiver() as received,
        serving(MemoryStore(), webhook=received.url, webhook_alerts="*") as (http, engine),
    ):
        monkeypatch.setattr(engine.node.webhooks, "note", lambda _: None)  # as while a post of another waits
        await http.put("/learners/a", json=DENSE)
        await posted(http, "/learners/a/update", events(200))
        await posted(http, "/learners/a/predict", [{"id": "early", "x": ALERT}])
        monkeypatch.undo()
        engine.node.webhooks.note(engine.get("a")._news)
        await eventually_async(lambda: [item["id"] for item in received.got] == ["early"])


async def test_a_node_that_lags_leaves_the_bookmark_where_it_is(store: Store, open_again: Any) -> None:
    async with receiver() as received, serving(store, webhook=received.url) as (http, engine):
        await http.put("/learners/a", json=DENSE)
        async with node(await open_again()) as lagging:
            learner, gate = lagging.get("a"), asyncio.Event()
            waiting = learner.mailbox.submit(gate.wait)
            await drifted(http)
            await eventually_async(lambda: len(received.got) == 1)
            birth = engine.get("a").birth
            while await store.bookmark("a", birth, "posted-alarms") != 1:  # noqa: ASYNC110 (no event)
                await asyncio.sleep(0)
            look = asyncio.create_task(learner._news.unposted())
            await asyncio.wait([look], timeout=0.1)  # it waits for the gate
            gate.set()
            await waiting
            assert await look == []
            assert await store.bookmark("a", birth, "posted-alarms") == 1


async def test_a_learner_without_bookmarks_begins_with_what_comes_then(store: Store, open_again: Any) -> None:
    async with serving(await open_again()) as (http, _):  # without a webhook
        await http.put("/learners/a", json=DENSE)
        await drifted(http)
        await posted(http, "/learners/a/update", events(200))
        await posted(http, "/learners/a/predict", [{"id": "old", "x": ALERT}])
        assert (await http.post("/learners/a/snapshots")).status_code == 201
    async with receiver() as received, serving(store, webhook=received.url, webhook_alerts="*") as (http, engine):
        await wait_for_bookmarks(store, engine)
        await posted(http, "/learners/a/predict", [{"id": "new", "x": ALERT}])
        await eventually_async(lambda: len(received.got) > 0)
        assert [item["id"] for item in received.got] == ["new"]


async def test_alerts_of_the_learners_named_are_posted_in_order(store: Store, open_again: Any) -> None:
    async with receiver() as received:
        settings = {"webhook": received.url, "webhook_alerts": "a, c", "follow_seconds": 0.02}
        async with node(await open_again(), **settings), serving(store, **settings) as (http, engine):
            for name in "ab":
                await http.put(f"/learners/{name}", json=DENSE)
                await posted(http, f"/learners/{name}/update", events(200))
            await wait_for_bookmarks(store, engine)
            for name in "ba":
                for first in range(0, 30, 10):
                    request = [{"id": f"{first + i}", "x": ALERT if i % 2 else QUIET} for i in range(10)]
                    await posted(http, f"/learners/{name}/predict", request)
            await eventually_async(lambda: len(received.got) >= 15)
            assert [(item["learner"], item["id"]) for item in received.got] == [
                ("a", str(number)) for number in range(1, 30, 2)
            ]
            listed = (await http.get("/learners/a/events", params={"id": "29"})).json()["events"][0]
            members = ("id", "time", "time_iso", "position", "score", "probability", "threshold", "decision")
            assert received.got[-1] == {"type": "alert", "learner": "a"} | {name: listed[name] for name in members}


@pytest.mark.usefixtures("at_once")
async def test_failed_posts_are_retried_in_order(caplog: pytest.LogCaptureFixture) -> None:
    async with receiver(500, 503, 200, 404) as received:
        webhook, posts = Webhook(received.url), Posts()
        for number in range(3):
            posts.add(number=number)
        webhook.note(posts)
        await eventually_async(lambda: not posts.posts)
        await webhook.close()
        assert [item["number"] for item in received.got] == [0, 0, 0, 1, 1, 2]
        assert webhook.losses == 0
        assert webhook.trouble is None
        problems = [data[1] for data in logged_data(caplog, "rarestream.webhook", "WARNING")]
        assert problems == ["the response was 500", "the response was 404"]  # one of each series of failures
        assert logged_data(caplog, "rarestream.webhook", "ERROR") == []


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("status", [301, 401, 403, 404, 410, 429, 500])
async def test_an_address_that_answers_wrongly_for_a_while_loses_nothing(status: int) -> None:
    async with receiver(*[status] * 4) as received:
        webhook, posts = Webhook(received.url), Posts()
        posts.add()
        webhook.note(posts)
        await eventually_async(lambda: not posts.posts)
        await webhook.close()
        assert (len(received.got), webhook.deliveries, webhook.losses) == (5, 1, 0)


class Over(Posts):
    """News of a learner that is over once a post has failed: another node posted it, or the learner was deleted."""

    def __init__(self, learner: str, deleted: bool) -> None:
        super().__init__(learner)
        self.deleted = deleted
        self.add()

    async def unposted(self) -> list[Post]:
        if self.looks and self.deleted:
            raise LearnerGone("the learner was deleted")
        return [] if self.looks else await super().unposted()


@pytest.mark.usefixtures("at_once")
async def test_what_another_node_posted_or_nobody_wants_any_more_is_not_repeated() -> None:
    async with receiver(500, 500) as received:
        webhook, posts = Webhook(received.url), Posts()
        posts.add()
        for item in (Over("deleted", True), Over("posted", False), posts):
            webhook.note(item)
        await eventually_async(lambda: posts.learner in [item["learner"] for item in received.got])
        await webhook.close()
        assert [item["learner"] for item in received.got] == ["deleted", "posted", "a"]


async def test_a_response_that_never_ends_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's own time-outs are for each read."""
    monkeypatch.setattr(webhooks, "_SECONDS", 0.3)

    async def trickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 x\r\ncontent-length: 1000000\r\n\r\n")
        try:
            while not reader.at_eof():
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.01)  # less than any time-out of one read
        except ConnectionError:  # as the client has left
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(trickle, "127.0.0.1", 0)
    async with server:
        webhook, posts = Webhook(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"), Posts()
        posts.add()
        webhook.note(posts)
        await eventually_async(lambda: webhook._failures[posts] == 1)
        await webhook.close()


@pytest.mark.usefixtures("at_once")
async def test_news_after_a_pause_is_posted() -> None:
    async with receiver() as received:
        webhook, posts = Webhook(received.url), Posts()
        for number in range(5):
            posts.add(number=number)
            webhook.note(posts)
            await eventually_async(lambda n=number: len(received.got) == n + 1)
            for _ in range(number):  # at different moments of what goes on after an answer
                await asyncio.sleep(0)
        await webhook.close()
        assert [item["number"] for item in received.got] == list(range(5))


@pytest.mark.usefixtures("at_once")
async def test_an_undeliverable_alarm_is_dropped_without_logging_the_address(caplog: pytest.LogCaptureFixture) -> None:
    async with receiver(*[500] * 5) as received:
        webhook, first, second = Webhook(received.url), Posts("a"), Posts("b")
        for posts in (first, second):
            posts.add()
            webhook.note(posts)
        await eventually_async(lambda: not second.posts)
        await webhook.close()
        assert [record["learner"] for record in received.got] == ["a"] * 5 + ["b"]
        assert (webhook.deliveries, webhook.losses) == (1, 1)
    ((_, learner, problem),) = logged_data(caplog, "rarestream.webhook", "ERROR")
    assert learner == "a"
    assert "500" in str(problem)
    caplog.clear()
    for url in (f"http://127.0.0.1:{free_port()}/?key=secret", "no address?key=secret", "http://[?key=secret"):
        webhook, posts = Webhook(url), Posts("c")
        posts.add()
        webhook.note(posts)
        await eventually_async(
            lambda: [data[1] for data in logged_data(caplog, "rarestream.webhook", "ERROR")] == ["c"]
        )
        await webhook.close()
        ours = [record.getMessage() for record in caplog.records if record.name == "rarestream.webhook"]
        assert not any("secret" in record for record in ours)
        caplog.clear()


async def test_only_the_node_with_the_lease_posts() -> None:
    async with receiver() as received:
        webhook, posts = Webhook(received.url), Posts()
        posts.leading = False
        posts.add()
        webhook.note(posts)
        await eventually_async(lambda: posts.looks > 3)
        assert received.got == []
        posts.leading = True
        await eventually_async(lambda: len(received.got) == 1)
        await webhook.close()


async def test_without_an_address_alarms_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(MemoryStore()) as (http, _):
        await http.put("/learners/a", json=DENSE)
        await drifted(http)
        await eventually_async(
            lambda: logged_data(caplog, "rarestream.webhook", "WARNING") == [("a", "scores", 50, "open")]
        )


async def test_a_failing_address_blocks_nothing() -> None:
    async with serving(MemoryStore(), webhook=f"http://127.0.0.1:{free_port()}/") as (http, engine):
        await http.put("/learners/a", json=DENSE)
        await drifted(http)
        await engine.get("a").log.catch_up()
        assert (await http.get("/learners/a/alarms")).json()["counts"]["scores"] == 1


@pytest.mark.usefixtures("at_once")
async def test_each_attempt_is_signed_and_posts_are_counted() -> None:
    async with receiver(503, 200, *[422] * 3) as received:
        webhook, posts = Webhook(received.url, "secret"), Posts()
        for number in range(3):
            posts.add(number=number)
        webhook.note(posts)
        await eventually_async(lambda: not posts.posts)
        assert (webhook.deliveries, webhook.losses) == (2, 1)
        await eventually_async(lambda: webhook.waiting == 0)
        await webhook.close()
    assert len(received.signatures) == len(received.got) == 6
    for moment, signature, body in received.signatures:
        mac = hmac.new(b"secret", f"{moment}.".encode() + body, hashlib.sha256)
        assert signature == f"v1={mac.hexdigest()}"


async def test_a_learner_may_have_an_address_and_a_format_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    """A receiver that is away holds up nobody else's posts."""
    away = f"http://127.0.0.1:{free_port()}/"
    async with receiver() as all_others, receiver() as fraud:
        addresses = f"spam={away} {away} fraud=slack+{fraud.url} {all_others.url}"
        settings = Settings(store="memory:", webhook=addresses)
        all_webhooks = Webhooks(settings.webhook_entries, None, BackgroundTasks())
        posts = [Posts(learner) for learner in ("spam", "fraud", "a", "b")]
        for source in posts:
            source.add()
            all_webhooks.note(source)
        await eventually_async(lambda: all_webhooks.total("deliveries") == 3)
        await eventually_async(lambda: all_webhooks.trouble)
        assert all_webhooks.total("waiting") == 1
        await all_webhooks.close()
    assert [item.keys() for item in fraud.got] == [{"text"}]
    assert sorted(item["learner"] for item in all_others.got) == ["a", "b"]
    assert logged_data(caplog, "rarestream.webhook", "WARNING")[0] == ("all others",)


async def test_without_a_secret_nothing_is_signed() -> None:
    async with receiver() as received:
        webhook, posts = Webhook(received.url), Posts()
        posts.add()
        webhook.note(posts)
        await eventually_async(lambda: webhook.deliveries == 1)
        await webhook.close()
    assert received.signatures == []


async def test_a_sentence_for_slack_has_no_markup_of_fields() -> None:
    async with receiver() as received:
        webhook, posts = Webhook(received.url, form="slack"), Posts()
        posts.add(kind="missing", field="<!channel> & co")
        alert = {"type": "alert", "learner": "a", "id": "<!here>", "probability": 0.9312}
        posts.posts.append(Post(alert, "", 0))
        webhook.note(posts)
        await eventually_async(lambda: webhook.deliveries == 2)
        await webhook.close()
    first, second = received.got
    assert first.keys() == {"text"}
    assert "&lt;!channel&gt; &amp; co" in first["text"]
    assert second["text"] == "a: alert &lt;!here&gt;, probability 0.931"


def test_a_receiver_that_is_away_for_an_hour_gets_its_alarms() -> None:
    assert sum(webhooks._PAUSES) > 86_400
    assert max(webhooks._PAUSES) <= 600
