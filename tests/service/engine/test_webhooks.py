"""Alarms are posted once, retried after failures, and never sent by a replay."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from service.engine import webhooks
from service.engine.webhooks import Webhook
from service.storage.memory import MemoryStore
from service.storage.store_protocol import Store
from tests.harness.log_records import logged_data
from tests.harness.nodes import T0, node, serving
from tests.harness.process import free_port
from tests.harness.waiting import eventually_async
from tests.service.api.routes.test_metrics_routes import DENSE, DRIFTED, drifted

pytestmark = pytest.mark.integration

ALARM = {"number": 0, "kind": "auc", "events": 5, "clock": None, "before": 0.9, "after": 0.5, "state": "open"}


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


async def closed(webhook: Webhook) -> None:
    """Wait until nothing waits to be sent."""
    await eventually_async(lambda: webhook.waiting == 0)
    await webhook.close()


async def test_an_alarm_is_posted_once_and_never_on_a_replay(store: Store, open_again: Any) -> None:
    async with receiver() as received:
        settings = {"webhook": received.url, "follow_seconds": 0.02}
        async with node(await open_again(), **settings) as follower, serving(store, **settings) as (http, _):
            await http.put("/learners/a", json=DENSE)
            await drifted(http)
            await eventually_async(lambda: len(received.got) > 0)
            await eventually_async(lambda: "a" in follower.replicas and follower.get("a").view.figures.alarm_count == 1)
            (output,) = received.got
            assert output == {"learner": "a", **(await http.get("/learners/a/alarms")).json()["alarms"][0]}
            assert (output["kind"], output["events"], output["clock"]) == ("scores", 50, T0 + DRIFTED - 1)
        async with serving(store, **settings) as (http, engine):  # after a crash, the log is applied again
            await engine.get("a").log.catch_up()
            assert (await http.get("/learners/a/alarms")).json()["counts"]["scores"] == 1
            await http.put("/learners/b", json=DENSE)
            await drifted(http, "b")  # goes behind whatever else might have been sent
            await eventually_async(lambda: len(received.got) > 1)
        assert [item["learner"] for item in received.got] == ["a", "b"]


@pytest.mark.usefixtures("at_once")
async def test_failed_posts_are_retried_in_order(caplog: pytest.LogCaptureFixture) -> None:
    async with receiver(500, 503, 200, 404) as received:
        webhook = Webhook(received.url)
        for number in range(3):
            webhook.send("a", {**ALARM, "number": number})
        await eventually_async(lambda: len(received.got) == 6)
        await closed(webhook)
        assert [item["number"] for item in received.got] == [0, 0, 0, 1, 1, 2]
        assert logged_data(caplog, "rarestream.webhook", "ERROR") == []


@pytest.mark.usefixtures("at_once")
async def test_an_alarm_after_a_pause_is_sent() -> None:
    async with receiver() as received:
        webhook = Webhook(received.url)
        for number in range(5):
            webhook.send("a", {**ALARM, "number": number})
            await eventually_async(lambda n=number: len(received.got) == n + 1)
            for _ in range(number):  # at different moments of what goes on after an answer
                await asyncio.sleep(0)
        await closed(webhook)
        assert [item["number"] for item in received.got] == list(range(5))


@pytest.mark.usefixtures("at_once")
async def test_an_undeliverable_alarm_is_dropped_without_logging_the_address(caplog: pytest.LogCaptureFixture) -> None:
    async with receiver(*[500] * 5) as received:
        webhook = Webhook(received.url)
        webhook.send("a", ALARM)
        webhook.send("b", ALARM)
        await eventually_async(lambda: len(received.got) == 6)
        await closed(webhook)
        assert [record["learner"] for record in received.got] == ["a"] * 5 + ["b"]
    ((learner, problem),) = logged_data(caplog, "rarestream.webhook", "ERROR")
    assert learner == "a"
    assert "500" in str(problem)
    caplog.clear()
    for url in (f"http://127.0.0.1:{free_port()}/?key=secret", "no address?key=secret", "http://[?key=secret"):
        webhook = Webhook(url)
        webhook.send("c", ALARM)
        await eventually_async(
            lambda: [data[0] for data in logged_data(caplog, "rarestream.webhook", "ERROR")] == ["c"]
        )
        await webhook.close()
        ours = [record.getMessage() for record in caplog.records if record.name == "rarestream.webhook"]
        assert not any("secret" in record for record in ours)
        caplog.clear()


async def test_without_an_address_alarms_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    webhook = Webhook(None)
    webhook.send("a", ALARM)
    await webhook.close()
    assert logged_data(caplog, "rarestream.webhook", "WARNING") == [("a", "auc", 5, "open")]


async def test_alarms_beyond_the_queue_limit_are_only_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(webhooks, "_WAITING", 2)
    webhook = Webhook("http://127.0.0.1:1/")
    for number in range(4):
        webhook.send("a", {**ALARM, "number": number})
    await webhook.close()
    refused = [data for data in logged_data(caplog, "rarestream.webhook", "ERROR") if len(data) == 2]
    assert refused == [("a", 2)] * 2


async def test_a_failing_address_blocks_nothing() -> None:
    async with serving(MemoryStore(), webhook=f"http://127.0.0.1:{free_port()}/") as (http, engine):
        await http.put("/learners/a", json=DENSE)
        await drifted(http)
        await engine.get("a").log.catch_up()
        assert (await http.get("/learners/a/alarms")).json()["counts"]["scores"] == 1


@pytest.mark.usefixtures("at_once")
async def test_each_attempt_is_signed_and_alarms_are_counted() -> None:
    async with receiver(503, 200, *[400] * 5) as received:
        webhook = Webhook(received.url, "secret")
        for number in range(3):
            webhook.send("a", {**ALARM, "number": number})
        await eventually_async(lambda: webhook.deliveries == 2)
        assert (webhook.losses, webhook.waiting) == (1, 0)
        await webhook.close()
    assert len(received.signatures) == len(received.got) == 8
    for moment, signature, body in received.signatures:
        mac = hmac.new(b"secret", f"{moment}.".encode() + body, hashlib.sha256)
        assert signature == f"v1={mac.hexdigest()}"


async def test_without_a_secret_nothing_is_signed() -> None:
    async with receiver() as received:
        webhook = Webhook(received.url)
        webhook.send("a", ALARM)
        await eventually_async(lambda: webhook.deliveries == 1)
        await webhook.close()
    assert received.signatures == []


async def test_a_sentence_for_slack_has_no_markup_of_fields() -> None:
    async with receiver() as received:
        webhook = Webhook(received.url, form="slack")
        webhook.send("a", {**ALARM, "kind": "missing", "field": "<!channel> & co"})
        await eventually_async(lambda: webhook.deliveries == 1)
        await webhook.close()
    (message,) = received.got
    assert message.keys() == {"text"}
    assert "&lt;!channel&gt; &amp; co" in message["text"]


def test_a_receiver_that_is_away_for_an_hour_gets_its_alarms() -> None:
    assert sum(webhooks._PAUSES) > 86_400
    assert max(webhooks._PAUSES) <= 600
