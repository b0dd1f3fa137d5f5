"""`rarestream consume` of Kafka topics: a real broker (Tansu), a real service, processes that are killed."""

from __future__ import annotations

import asyncio
import json
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from aiokafka.errors import OffsetOutOfRangeError

from service.cli.options_service import connected
from service.connectors.consumer import consume
from service.connectors.feed import FeedError, Message, OffsetRange
from service.connectors.kafka import KafkaFeed, KafkaPartition, Security
from service.connectors.message_decoding import Reading
from service.connectors.partition import ConsumePlan, Consumption
from service.connectors.progress import ReadCounts
from service.datasets.values import BinaryLabels
from service.exits import CommandFailed
from tests.harness.consumer import Consumer, Target, event
from tests.harness.kafka_broker import KafkaBroker
from tests.harness.process import Process
from tests.harness.waiting import eventually

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker() as running:
        yield running


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    folder = tmp_path_factory.mktemp("service")
    with Process(f"sqlite:///{folder / 'log.db'}", folder / "service.log", snapshot_events=100) as process:
        yield process


@pytest.fixture
def target(service: Process, request: pytest.FixtureRequest) -> Iterator[Target]:
    name = re.sub(r"[^\w-]+", "-", request.node.name.removeprefix("test_"))
    with Target(service.url, name[:80]) as learner:
        yield learner


def consumer(broker: KafkaBroker, target: Target, folder: Path, *options: str) -> Consumer:
    """Make a consumer of the topic with the learner's name."""
    return Consumer(target, f"kafka://{broker.address}/{target.name}", folder, *options)


def test_labelled_messages_are_learnt_and_unlabelled_ones_scored(
    broker: KafkaBroker, target: Target, tmp_path: Path
) -> None:
    scores, alerts = f"{target.name}-scores", f"{target.name}-alerts"
    broker.create(**{target.name: 2, scores: 1, alerts: 1})
    values = [event(i, labelled=i % 3 != 0, id=f"e{i}") for i in range(60)]
    broker.produce(target.name, [(i % 2, value) for i, value in enumerate(values)])
    broker.produce(target.name, [(0, None), (1, None)])
    options = ("--scores", scores, "--alerts", alerts, "--batch", "10")
    reading = consumer(broker, target, tmp_path, *options)
    did = reading.run()
    assert {name: did[name] for name in ("read", "applied", "scored", "passed", "skipped", "empty")} == {
        "read": 62, "applied": 40, "scored": 20, "passed": 0, "skipped": 0, "empty": 2
    }  # fmt: skip
    sources = {f"kafka:{target.name}/{partition}": 31 for partition in (0, 1)}
    assert did["positions"] == sources
    assert target.get()["sources"] == dict.fromkeys(sources, 30)
    assert target.learnt == 40
    assert [broker.committed(f"rarestream-{target.name}", target.name, item) for item in (0, 1)] == [31, 31]
    written = broker.messages(scores, 20)
    document = [json.loads(value) for _, value in written]
    assert sorted((item["id"], item["source"]["partition"], item["source"]["offset"]) for item in document) == sorted(
        (f"e{i}", i % 2, i // 2) for i in range(0, 60, 3)
    )
    assert {item["source"]["topic"] for item in document} == {target.name}
    assert [key for key, _ in written] == [item["id"].encode() for item in document]
    expected = [item for item in document if item["label"] == 1]
    assert expected
    assert [json.loads(value) for _, value in broker.messages(alerts, len(expected))] == expected
    # Once more: nothing is learnt, scored or written twice
    broker.produce(target.name, [(1, event(60, id="e60"))])
    did = reading.run()
    assert (did["applied"], did["duplicate"], did["scored"]) == (1, 0, 0)
    assert len(broker.messages(scores, 20)) == 20


@pytest.mark.campaign
def test_nothing_is_lost_or_learnt_twice_despite_kills(
    broker: KafkaBroker, target: Target, service: Process, tmp_path: Path
) -> None:
    rng = random.Random(6)
    total, kills = 1200, 6
    broker.create(**{target.name: 2})
    reading = consumer(broker, target, tmp_path, "--batch", "7", "--linger", "0")
    reading.start()
    for kill in range(kills):
        numbers = range(kill * total // kills, (kill + 1) * total // kills)
        before = target.learnt
        broker.produce(target.name, [(i % 2, event(i)) for i in numbers])
        eventually(lambda before=before: target.learnt > before)  # type: ignore[misc]
        time.sleep(rng.uniform(0, 0.2))
        if kill % 2:
            service.kill()
            service.start()
        else:
            reading.kill()
            reading.start()
    eventually(lambda: target.learnt >= total)
    assert reading.stop() == 0
    assert target.learnt == total
    assert target.get()["sources"] == {f"kafka:{target.name}/{partition}": total // 2 for partition in (0, 1)}


def test_offsets_come_from_the_learner_and_not_from_the_group(
    broker: KafkaBroker, target: Target, tmp_path: Path
) -> None:
    broker.create(**{target.name: 1})
    broker.produce(target.name, [(0, event(i)) for i in range(20)])
    broker.commit(f"rarestream-{target.name}", target.name, 0, 15)
    assert consumer(broker, target, tmp_path).run()["applied"] == 20
    broker.commit(f"rarestream-{target.name}", target.name, 0, 3)
    broker.produce(target.name, [(0, event(i)) for i in range(20, 25)])
    did = consumer(broker, target, tmp_path, "--what", "update").run()
    assert (did["applied"], did["duplicate"]) == (5, 0)
    assert target.learnt == 25


def test_messages_undone_by_a_rollback_are_read_again(broker: KafkaBroker, target: Target, tmp_path: Path) -> None:
    broker.create(**{target.name: 1})
    values = [event(i) for i in range(30)]
    broker.produce(target.name, [(0, value) for value in values[:10]])
    reading = consumer(broker, target, tmp_path)
    reading.start()
    eventually(lambda: target.learnt == 10)
    snapshot = target.post("/snapshots")["position"]
    broker.produce(target.name, [(0, value) for value in values[10:20]])
    eventually(lambda: target.learnt == 20)
    target.post(f"/snapshots/{snapshot}/restore")
    assert target.learnt == 10
    broker.produce(target.name, [(0, value) for value in values[20:]])
    eventually(lambda: target.learnt == 30)
    assert reading.stop() == 0
    source = f"kafka:{target.name}/0"
    assert "from 10" in reading.output()
    assert target.get()["sources"] == {source: 30}


def test_a_second_consumer_of_the_same_messages_changes_nothing(
    broker: KafkaBroker, target: Target, tmp_path: Path
) -> None:
    broker.create(**{target.name: 1})
    readers = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        reader = consumer(broker, target, folder, "--group", name, "--batch", "5")
        reader.start()
        readers.append(reader)
    broker.produce(target.name, [(0, event(i)) for i in range(200)])
    eventually(lambda: target.learnt >= 200)
    assert [reader.stop() for reader in readers] == [0, 0]
    assert target.learnt == 200


def test_only_the_selected_partitions_are_read(broker: KafkaBroker, target: Target, tmp_path: Path) -> None:
    broker.create(**{target.name: 3})
    broker.produce(target.name, [(i % 3, event(i)) for i in range(30)])
    reading = consumer(broker, target, tmp_path)
    did = reading.run("--partition", "2", "--partition", "0")
    assert did["positions"] == {f"kafka:{target.name}/0": 10, f"kafka:{target.name}/2": 10}
    status, output = reading.fail("--partition", "3")
    assert status == 1
    assert re.search(rf"{target.name} .*\b0, 1, 2\b.*\b3$", output, re.MULTILINE)


@pytest.mark.parametrize("numbers", [[], [0]], ids=["all", "some"])
def test_a_new_partition_is_reported(
    broker: KafkaBroker, target: Target, numbers: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.connectors.kafka._LOOK_SECONDS", 0.2)
    monkeypatch.setattr("service.connectors.consumer._LOOK_EVERY", 0.05)
    broker.create(**{target.name: 1})
    notes: list[str] = []

    def note(text: str) -> None:
        notes.append(text)
        if later.ident is None:
            later.start()

    def added() -> list[str]:
        return [name for text in notes for name in re.findall(r"/([12])\b", text)]

    def change_and_stop() -> None:
        broker.enlarge(target.name, 3)
        if not numbers:
            eventually(lambda: len(added()) == 2)
        else:
            time.sleep(3.0)  # several looks, which note nothing
        signal.raise_signal(signal.SIGINT)

    later = threading.Thread(target=change_and_stop)
    feed = KafkaFeed(broker.address, target.name, numbers, target.name, "kafka:", Security())
    did = consume(ConsumePlan(target.name), feed, lambda wait: connected(target.url, None, wait=wait), note)
    later.join()
    assert did["positions"] == {f"kafka:{target.name}/0": 0}
    assert added() == ([] if numbers else ["1", "2"])  # once


def test_a_malformed_message_stops_the_consumer_or_is_skipped(
    broker: KafkaBroker, target: Target, tmp_path: Path
) -> None:
    broker.create(**{target.name: 1})
    broker.produce(target.name, [(0, event(1)), (0, b"{}"), (0, b"?"), (0, event(3, x=["much"])), (0, event(2))])
    reading = consumer(broker, target, tmp_path, "--what", "update")
    status, error = reading.fail()
    assert status == 1
    assert "offset 1:" in error
    assert "--on-bad" in error
    did = reading.run("--on-bad", "skip")
    assert (did["skipped"], did["applied"]) == (3, 1)
    for offset in (1, 2, 3):
        assert f"offset {offset}:" in reading.output()
    assert target.get()["sources"] == {f"kafka:{target.name}/0": 5}


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_topics_are_read(broker: KafkaBroker, target: Target, tmp_path: Path, compression: str) -> None:
    broker.create(**{target.name: 1})
    header = b"\0\0\0\0\x11"
    values = [header + event(i) if i % 2 else event(i) for i in range(20)]
    broker.produce(target.name, [(0, value) for value in values], compression)
    did = consumer(broker, target, tmp_path).run()
    assert {name: did[name] for name in ("applied", "skipped", "schema_headers")} == {
        "applied": 20, "skipped": 0, "schema_headers": 10
    }  # fmt: skip


class Shortened(KafkaPartition):
    """A partition that reports its first messages as removed, which the broker of the tests cannot do."""

    async def bounds(self) -> OffsetRange:
        return (await super().bounds())._replace(first=12)


def consume_shortened(broker: KafkaBroker, target: Target, note: Callable[[str], None], *, skip: bool) -> None:
    """Consume the learner's topic, whose first messages are removed; `skip`: go on without them."""

    async def run() -> None:
        plan = ConsumePlan(target.name, skip_lost=skip, once=True)
        with connected(target.url, None) as client, ThreadPoolExecutor(1) as threads:
            learner = client.learner(target.name)
            async with KafkaFeed(broker.address, target.name, [], target.name, "kafka:", Security()) as feed:
                (original,) = feed.partitions
                partition = Shortened(original._consumer, original._partition, "kafka:")
                reading, stop = Reading("auto", BinaryLabels()), threading.Event()
                await Consumption(plan, feed, partition, reading, learner, threads, stop, ReadCounts(), note).run()

    asyncio.run(run())


@pytest.mark.parametrize("ahead", [False, True])
def test_messages_removed_before_reading_are_reported(
    ahead: bool, broker: KafkaBroker, target: Target, tmp_path: Path
) -> None:
    """`ahead`: the group is ahead of the learner, as after a roll-back."""
    broker.create(**{target.name: 1})
    broker.produce(target.name, [(0, event(i)) for i in range(5)])
    assert consumer(broker, target, tmp_path).run()["applied"] == 5
    broker.produce(target.name, [(0, event(i)) for i in range(5, 20)])
    if ahead:
        assert consumer(broker, target, tmp_path, "--group", target.name).run("--what", "predict")["scored"] == 20
    notes: list[str] = []
    pattern = rf"kafka:{target.name}/0: 7\b.* 5\b"
    with pytest.raises(CommandFailed, match=pattern):
        consume_shortened(broker, target, notes.append, skip=False)
    assert target.learnt == 5
    consume_shortened(broker, target, notes.append, skip=True)
    assert [bool(re.match(pattern, note)) for note in notes] == [True]
    assert target.learnt == 13
    assert target.get()["sources"] == {f"kafka:{target.name}/0": 20}


class Overtaken(KafkaPartition):
    """A partition that reports messages up to 12 as removed after 5 reads; the broker of the tests cannot do that.

    aiokafka finds the error where it keeps the responses of brokers.
    """

    trimmed = False
    ends: int | None = None  # where it ends then, if elsewhere

    async def bounds(self) -> OffsetRange:
        result = await super().bounds()
        end = self.ends or result.end
        return OffsetRange(12, end, end) if self.trimmed else result

    async def read(self, most: int, seconds: float) -> list[Message]:
        if not self.trimmed and (position := await self.position()) == 5:
            self.trimmed = True
            fetcher = self._consumer._fetcher
            fetcher._records.pop(self._partition, None)
            fetcher._set_error(self._partition, OffsetOutOfRangeError({self._partition: position}))
        return await super().read(most, seconds)


@pytest.mark.parametrize("course", ["stop", "skip", "anew"])
def test_messages_removed_during_the_run_are_reported(
    broker: KafkaBroker, target: Target, course: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create(**{target.name: 1})
    broker.produce(target.name, [(0, event(i)) for i in range(20)])
    notes: list[str] = []
    counts = ReadCounts()

    async def run() -> None:
        plan = ConsumePlan(target.name, skip_lost=course != "stop", once=True, batch=5, linger=0.0)
        with connected(target.url, None) as client, ThreadPoolExecutor(1) as threads:
            learner = client.learner(target.name)
            async with KafkaFeed(broker.address, target.name, [], target.name, "kafka:", Security()) as feed:
                (original,) = feed.partitions
                partition = Overtaken(original._consumer, original._partition, "kafka:")
                partition.ends = 3 if course == "anew" else None
                reading, stop = Reading("auto", BinaryLabels()), threading.Event()
                await Consumption(plan, feed, partition, reading, learner, threads, stop, counts, notes.append).run()

    source = f"kafka:{target.name}/0"
    message = rf"{source}: 7\b.* 5\b"
    match course:
        case "skip":
            asyncio.run(run())
            assert [bool(re.match(message, note)) for note in notes] == [True]
            assert (target.learnt, target.get()["sources"]) == (13, {source: 20})
            assert (counts.read, counts.learnt["applied"]) == (13, 13)
        case "stop":
            with pytest.raises(CommandFailed, match=message):
                asyncio.run(run())
            assert (target.learnt, target.get()["sources"]) == (5, {source: 5})
        case _:
            with pytest.raises(
                CommandFailed,
                match=source,
            ):
                asyncio.run(run())
            assert target.learnt == 5
    assert "Traceback" not in caplog.text


def test_a_recreated_topic_is_detected(broker: KafkaBroker, target: Target, tmp_path: Path) -> None:
    broker.create(**{target.name: 1})
    broker.produce(target.name, [(0, event(i)) for i in range(3)])
    source = {"name": f"kafka:{target.name}/0", "offset": 100}
    target.post("/update", {"source": source, "events": [json.loads(event(0))]})
    status, error = consumer(broker, target, tmp_path).fail()
    assert status == 1
    assert f"kafka:{target.name}/0 " in error
    assert "101" in error


def test_unreachable_brokers_topics_and_learners_are_named(broker: KafkaBroker, target: Target, tmp_path: Path) -> None:
    broker.create(other=1)
    status, error = consumer(broker, target, tmp_path).fail()
    assert (status, target.name in error) == (1, True)
    assert Consumer(target, "kafka://127.0.0.1:1/other", tmp_path).fail()[0] == 1
    status, error = Consumer(target, f"kafka://{broker.address}/other", tmp_path).fail("--learner", "nobody")
    assert (status, "nobody" in error) == (4, True)
    status, error = Consumer(target, f"kafka://me:secret@{broker.address}/other", tmp_path).fail()
    assert status == 2
    assert "secret" not in error


@pytest.mark.parametrize(
    ("options", "mechanism", "variable"),
    [
        ((), "SCRAM-SHA-512", "KAFKA_USERNAME"),
        (("--authentication",), "SCRAM-SHA-256", "KAFKA_PASSWORD"),
        (("--authentication",), "SCRAM-SHA-512", "KAFKA_PASSWORD"),
        (("--authentication",), "PLAIN", None),  # it closes the connection without a word
    ],
)
def test_a_refused_login_is_reported(
    options: tuple[str, ...], mechanism: str, variable: str | None, target: Target, tmp_path: Path
) -> None:
    with KafkaBroker(*options) as refusing:
        eventually(refusing.listens)
        login = {"KAFKA_USERNAME": "me", "KAFKA_PASSWORD": "tell-nobody"}
        reading = Consumer(target, f"kafka://{refusing.address}/t", tmp_path, "--sasl", mechanism, **login)
        status, error = reading.fail()
        assert status == 1
        assert refusing.address in error
        assert variable in error if variable else "KAFKA_" not in error
        assert "tell-nobody" not in error
        assert "Traceback" not in error
        feed = KafkaFeed(
            refusing.address, "t", [], "g", "kafka:", Security(False, None, None, None, "me", "x", mechanism)
        )

        async def entered() -> None:
            async with feed:
                pytest.fail("it let us in")

        with pytest.raises(FeedError):
            asyncio.run(entered())
        client = feed._consumer._client
        reached = [getattr(client, f"_{name}") for name in ("security_protocol", "sasl_mechanism")]
        assert reached == ["SASL_PLAINTEXT", mechanism]
        assert (client._sasl_plain_username, client._sasl_plain_password) == ("me", "x")


def test_a_missing_kafka_extra_is_reported(target: Target) -> None:
    program = "import sys; sys.modules['aiokafka'] = None; from service.cli.main import main; main()"
    arguments = ["consume", "kafka://127.0.0.1:1/topic", "--learner", target.name, "--url", target.url]
    completed = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)
    assert completed.returncode == 1
    assert "'.[kafka]'" in completed.stderr
    assert "Traceback" not in completed.stderr


def test_security_options_match_aiokafka(tmp_path: Path) -> None:
    assert Security().options() == {"security_protocol": "PLAINTEXT"}
    result = Security(tls=True, username="me", password="secret", mechanism="PLAIN").options()
    assert result.pop("ssl_context").check_hostname
    assert result == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "me",
        "sasl_plain_password": "secret",
    }
    assert "secret" not in repr(Security(password="secret"))
    with pytest.raises(FeedError, match=r"gone\.pem"):
        Security(tls=True, ca=tmp_path / "gone.pem").options()
