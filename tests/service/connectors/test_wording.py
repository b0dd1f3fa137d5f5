"""The words of `rarestream consume`. Other tests look at exit statuses, counts, names, offsets and entries.

A changed sentence changes one row here. A row: what is done to a topic or stream before, the source, the options, the
exit status, and what is printed. `AT` stands for the address of a server, `N/s` for the speed.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from typer.testing import CliRunner

from service.cli.main import app
from service.connectors.consumer import _note_added
from service.connectors.feed import Message
from service.connectors.kafka import KafkaFeed, Security
from service.connectors.message_decoding import BadMessage, Reading
from service.connectors.redis_streams import RedisFeed
from service.datasets.values import BinaryLabels
from service.exits import CommandFailed
from tests.harness.consumer import CONFIG, Target, event
from tests.harness.kafka_broker import KafkaBroker
from tests.harness.process import Process
from tests.harness.redis_server import REDIS, VALKEY, RedisServer
from tests.harness.waiting import eventually, eventually_async
from tests.service.connectors.test_kafka import consume_shortened
from tests.service.connectors.test_redis_streams import trimmed

pytestmark = pytest.mark.integration

NAMED = CONFIG | {"algorithm": "cbr-diag", "features": {"kind": "named"}}
WRONG: list[bytes | None] = [event(1), b"{}", b"?", event(3, x=["much"]), event(2)]
NO_LABEL, NO_JSON = "it has no label", "it is not JSON: JSON is malformed: invalid character (byte 0)"
GO_ON = "; --on-bad skip continues without such messages"
PROBABLY = (
    "was probably deleted and created again, or lost its last messages. Read it under another name, with --prefix and "
    "--group"
)
REFUSED = "nothing listens there (connection refused)"
NO_MASTER = "no Sentinel knows the master"
GAVE_UP = "Gave up after 1 s (--retry-seconds)"
URLS = "redis+sentinel://HOST:PORT,HOST:PORT/DB?master=NAME or redis+cluster://HOST:PORT,HOST:PORT"
QUICK = ("--retry-seconds", "1")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    folder = tmp_path_factory.mktemp("service")
    with Process(f"sqlite:///{folder / 'log.db'}", folder / "service.log") as process:
        for name, config in {"k": CONFIG, "bad": CONFIG, "anew": CONFIG, "s": CONFIG, "flat": NAMED}.items():
            Target(process.url, name, config)
        target = Target(process.url, "k")  # whose kernels are compiled before anything waits for them
        target.post("/update", {"events": [{"x": [i, 0], "label": i} for i in (0, 1)]})
        target.post("/predict", {"events": [{"x": [0, 0]}]})
        yield process


@pytest.fixture(autouse=True)
def without_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """Print no progress, however long a busy machine takes."""
    monkeypatch.setattr("service.connectors.consumer._PROGRESS_EVERY", 1e6)


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker() as running:
        running.create(k=2, other=1, anew=1)
        yield running


def consume(service: Process, source: str, *options: str, learner: str = "k", **environment: str) -> tuple[int, str]:
    """Consume what is there now; return the exit status and what was printed."""
    arguments = ("consume", source, "--learner", learner, "--once", *options)
    result = CliRunner().invoke(app, arguments, env={"RARESTREAM_URL": service.url, **environment})
    lines = result.stderr.strip().splitlines()
    if lines[0].startswith("Usage: "):
        return result.exit_code, " ".join(line.strip("│ ") for line in lines if line.startswith("│"))
    printed = re.sub(r"127\.0\.0\.1:\d{2,}", "AT", "\n".join(lines))
    return result.exit_code, re.sub(r"[\d,]+/s$", "N/s", printed, flags=re.MULTILINE)


# ---- Kafka -----------------------------------------------------------------------------------------------------------

TOPICS: list[tuple[dict[str, list[bytes | None]], str, Sequence[str], int, str]] = [
    (
        {}, "k", (), 0,
        "reading kafka:k/0, kafka:k/1\n"
        "kafka:k/0 is empty or does not exist yet: waiting for its first message\n"
        "kafka:k/1 is empty or does not exist yet: waiting for its first message\n"
        "0 messages, 0 learnt, N/s",
    ),
    (
        {"k": [event(i, labelled=i > 3, id=f"e{i}") for i in range(12)]}, "k", ("--alerts", "k-alerts"), 0,
        "reading kafka:k/0, kafka:k/1\n"
        "kafka:k/1 is empty or does not exist yet: waiting for its first message\n"
        "12 messages, 8 learnt, 4 scored (4 alerts), N/s",
    ),
    ({}, "k", ("--partition", "7"), 1, "error: topic k has the partitions 0, 1, not 7"),
    ({}, "none", (), 1, "error: kafka://AT has no topic none"),
    ({}, "k", ("--learner", "nobody"), 4,
     "error: there is no learner named nobody\n`rarestream list` shows the learners."),
    (
        {"other": WRONG}, "other", ("--learner", "bad", "--what", "update"), 1,
        "reading kafka:other/0\n"
        "5 messages, 1 learnt, N/s\n"
        f"error: topic other, partition 0, offset 1: {NO_LABEL}{GO_ON}",
    ),
    (
        {}, "other", ("--learner", "bad", "--what", "update", "--on-bad", "skip"), 0,
        "reading kafka:other/0\n"
        f"skipped: topic other, partition 0, offset 1: {NO_LABEL}\n"
        f"skipped: topic other, partition 0, offset 2: {NO_JSON}\n"
        "skipped: topic other, partition 0, offset 3: x: has 1 numbers; expected 2\n"
        "4 messages, 1 learnt, 3 skipped, N/s",
    ),
    (
        {"other": [b"\0\0\0\0\x11" + event(4)]}, "other", ("--learner", "bad"), 0,
        "reading kafka:other/0\n"
        "warning: kafka:other/0: messages have the header of a schema registry (schema 17), which is skipped\n"
        "1 message, 1 learnt, N/s",
    ),
    (
        {"anew": [event(i) for i in range(3)]}, "anew", ("--learner", "anew"), 1,
        "reading kafka:anew/0\n"
        f"error: kafka:anew/0 was read up to 100 but ends at 3: the topic {PROBABLY}",
    ),
]  # fmt: skip


def test_topics(service: Process, broker: KafkaBroker) -> None:
    ahead = {"source": {"name": "kafka:anew/0", "offset": 99}, "events": [{"x": [0, 0], "label": 0}]}
    Target(service.url, "anew").post("/update", ahead)
    for added, topic, options, status, text in TOPICS:
        for name, messages in added.items():
            broker.produce(name, [(0, message) for message in messages])
        assert consume(service, f"kafka://{broker.address}/{topic}", *options) == (status, text)


def test_brokers(service: Process, broker: KafkaBroker) -> None:
    assert consume(service, "kafka://127.0.0.1:1/t") == (
        1, f"Kafka: no connection: {REFUSED}\nerror: kafka://127.0.0.1:1: no broker can be reached",
    )  # fmt: skip
    assert consume(service, "kafka://me:secret@h:1/t") == (
        2,
        "Invalid value for SOURCE: expected kafka://HOST:PORT,HOST:PORT/TOPIC; a password comes from KAFKA_PASSWORD",
    )
    login = {"KAFKA_USERNAME": "me", "KAFKA_PASSWORD": "secret"}
    refusals = {"SCRAM-SHA-512": "it does not support this login (--sasl, KAFKA_USERNAME)"}
    for mechanism, text in refusals.items():
        status, printed = consume(service, f"kafka://{broker.address}/k", "--sasl", mechanism, **login)
        assert (status, printed.splitlines()[0]) == (1, f"Kafka: no connection: {text}")
    with KafkaBroker("--authentication") as refusing:
        eventually(refusing.listens)
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            status, printed = consume(service, f"kafka://{refusing.address}/k", "--sasl", mechanism, **login)
            assert status == 1
            assert "login refused: check KAFKA_USERNAME, KAFKA_PASSWORD and --sasl" in printed
        status, printed = consume(service, f"kafka://{refusing.address}/k", "--sasl", "PLAIN", **login)
        assert (status, printed.splitlines()[-1]) == (1, "error: kafka://AT: no broker can be reached")


def test_removed_messages(service: Process, broker: KafkaBroker) -> None:
    broker.create(removed=1)
    with Target(service.url, "removed") as target:
        ahead = {"source": {"name": "kafka:removed/0", "offset": 4}, "events": [{"x": [0, 0], "label": 0}]}
        target.post("/update", ahead)
        broker.produce("removed", [(0, event(i)) for i in range(20)])
        text = "kafka:removed/0: 7 messages from 5 on were removed before they were read"
        notes: list[str] = []
        with pytest.raises(CommandFailed) as caught:
            consume_shortened(broker, target, notes.append, skip=False)
        assert str(caught.value) == f"{text}; --on-lost skip continues without them"
        consume_shortened(broker, target, notes.append, skip=True)
        assert notes == [text]


async def test_a_new_partition(broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.connectors.kafka._LOOK_SECONDS", 0.2)
    monkeypatch.setattr("service.connectors.consumer._LOOK_EVERY", 0.05)
    await asyncio.to_thread(broker.create, grows=1)
    notes: list[str] = []
    async with KafkaFeed(broker.address, "grows", [], "g", "kafka:", Security()) as feed:
        looking = asyncio.create_task(_note_added(feed, notes.append))
        await asyncio.to_thread(broker.enlarge, "grows", 2)
        await eventually_async(lambda: bool(notes))
        looking.cancel()
    assert notes[0] == "kafka:grows/1 is new and is not read: restart to read it too"


def test_a_missing_package(service: Process) -> None:
    program = "import sys; sys.modules['aiokafka'] = None; from service.cli.main import main; main()"
    arguments = ["consume", "kafka://127.0.0.1:1/topic", "--learner", "k", "--url", service.url]
    ended = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)
    assert ended.stderr == ("error: Kafka needs a package that is not installed: pip install '.[kafka]' in the clone\n")


# ---- Redis -----------------------------------------------------------------------------------------------------------

Command = tuple[Any, ...]


def entry(stream: str, id: str, value: bytes) -> Command:
    return ("XADD", stream, id, "event", value)


STREAMS: list[tuple[list[Command], str, Sequence[str], int, str]] = [
    (
        [], "s", (), 0,
        "reading redis:s\n"
        "redis:s is empty or does not exist yet: waiting for its first message\n"
        "0 messages, 0 learnt, N/s",
    ),
    (
        [entry("s", f"{i}-0", event(i)) for i in range(1, 6)], "s", (), 0,
        "reading redis:s\n5 messages, 5 learnt, N/s",
    ),
    (
        [*(entry("s", f"{i}-0", event(i)) for i in range(6, 11)), ("XTRIM", "s", "MAXLEN", "2")], "s", (), 0,
        "reading redis:s\n"
        "redis:s: any messages between stream s, entry 5-1 and stream s, entry 9-0 were trimmed\n"
        "2 messages, 2 learnt, N/s",
    ),
    (
        [("DEL", "s"), entry("s", "1-0", event(1))], "s", (), 1,
        f"reading redis:s\nerror: redis:s was read up to 10-0 but ends at 1-0: the stream {PROBABLY}",
    ),
    (
        [entry("m", "1-0", b"{"), entry("m", "2-0", event(0, x=[1.0])), ("XADD", "m", "3-0", "other", "1")], "m", (), 1,
        "reading redis:m\n"
        "3 messages, 0 learnt, N/s\n"
        f"error: stream m, entry 1-0: it is not JSON: Input data was truncated{GO_ON}",
    ),
    (
        [], "m", ("--on-bad", "skip"), 0,
        "reading redis:m\n"
        "skipped: stream m, entry 1-0: it is not JSON: Input data was truncated\n"
        "skipped: stream m, entry 3-0: it has no event: put it into the field event of the Redis entry, or use "
        "--entry flat\n"
        "skipped: stream m, entry 2-0: x: has 1 numbers; expected 2\n"
        "3 messages, 0 learnt, 3 skipped, N/s",
    ),
    (
        [("XADD", "flat", "1-0", "amount", "1", "label", "maybe")], "flat", ("--entry", "flat", "--learner", "flat"), 1,
        "reading redis:flat\n"
        "1 message, 0 learnt, N/s\n"
        "error: stream flat, entry 1-0: the labels seen are 'maybe'; expected 0/1, -1/1, false/true, no/yes, or the "
        f"positive one named with --positive{GO_ON}",
    ),
    (
        [entry("far", f"{2**41}-0", event(1))], "far", (), 1,
        f"error: the entry {2**41}-0 is later than the year 2039, which is not supported",
    ),
    (
        [("SET", "text", "x")], "text", (), 1,
        "error: redis://AT: WRONGTYPE Operation against a key holding the wrong kind of value",
    ),
    ([], "", (), 2, "Invalid value for --stream: is missing; a redis:// source needs it"),
    ([("CONFIG", "SET", "requirepass", "secret")], "s", (), 1, "error: redis://AT: Authentication required."),
]  # fmt: skip


def test_streams(service: Process) -> None:
    with RedisServer() as redis:
        for commands, stream, options, status, text in STREAMS:
            for command in commands:
                redis.command(*command)
            named = ("--stream", stream) if stream else ()
            assert consume(service, redis.url, "--learner", "s", *named, *options) == (status, text)


# the URL, in which AT is the address of a Sentinel that watches nothing, and HTTP that of the service
SERVERS: list[tuple[str, int, str]] = [
    (
        "redis://127.0.0.1:1/0", 1,
        f"redis://127.0.0.1:1 cannot be reached: {REFUSED}; retrying for 1 s\n"
        f"error: redis://127.0.0.1:1 cannot be reached: {REFUSED}\n{GAVE_UP}",
    ),
    ("redis://HTTP/0", 1, "error: the server at redis://AT is not Redis"),
    (
        "redis+sentinel://127.0.0.1:1/0?master=main", 1,
        f"redis+sentinel://127.0.0.1:1 cannot be reached: {NO_MASTER}; retrying for 1 s\n"
        f"error: redis+sentinel://127.0.0.1:1 cannot be reached: {NO_MASTER}\n{GAVE_UP}",
    ),
    (
        "redis+sentinel://AT/0?master=main", 1,
        f"redis+sentinel://AT cannot be reached: {NO_MASTER}; retrying for 1 s\n"
        f"error: redis+sentinel://AT cannot be reached: {NO_MASTER}\n{GAVE_UP}",
    ),
    (
        "redis+sentinel://me:secret@h:1/0", 2,
        f"error: redis+sentinel://h:1 or one of its options is malformed; expected {URLS}",
    ),
    (
        "redis+cluster://me:secret@h:1/2", 2,
        f"error: redis+cluster://h:1 or one of its options is malformed; expected {URLS}",
    ),
    ("redis://h:1/payments", 2, "error: redis://h:1 has no database 'payments'; expected redis://HOST:PORT/NUMBER"),
    ("http://h/t", 2, "Invalid value for SOURCE: expected kafka://HOST:PORT/TOPIC or redis://HOST:PORT/DB"),
]  # fmt: skip


def test_servers(service: Process) -> None:
    with RedisServer(REDIS, sentinel=True) as sentinel:
        for url, status, text in SERVERS:
            source = url.replace("AT", f"127.0.0.1:{sentinel.port}").replace("HTTP", service.url.partition("//")[2])
            assert consume(service, source, "--stream", "s", *QUICK) == (status, text)


@pytest.mark.parametrize(
    ("binary", "texts"),
    [
        (
            VALKEY,
            ["redis:s: 4 entries were trimmed before being read", "redis:s: 1 entry was trimmed before being read"],
        ),
        (REDIS, ["redis:s: entries before ID were trimmed before being read"]),
    ],
    ids=["counted", "not-counted"],
)
async def test_entries_trimmed_during_the_run(binary: str, texts: list[str]) -> None:
    notes: list[str] = []
    with RedisServer(binary) as redis:
        async with RedisFeed(redis.url, "s", "group", "redis:", note=notes.append) as feed:
            await trimmed(redis, feed.partitions[0], "s", notes, counts=binary is VALKEY)
    assert [re.sub(r"\d+-\d+", "ID", note) for note in notes] == texts


# ---- Messages --------------------------------------------------------------------------------------------------------

MESSAGES: list[tuple[bytes | Mapping[str, str], str]] = [
    (b"", "it has no event: put it into the field event of the Redis entry, or use --entry flat"),
    (b"{", "it is not JSON: Input data was truncated"),
    (
        b"\0\0",
        "it is not JSON behind the header of a schema registry (Avro and Protobuf are not read): JSON is malformed: "
        "invalid character (byte 0)",
    ),
    (b'{"id": 0.5}', "its id is 0.5; expected 1 to 256 printable characters, or a whole number"),
    (b"[1]", "it is not an event: Expected `object`, got `array`"),
    (b'"text"', "it is not an event: Expected `object`, got `str`"),
    (b'{"features": {"a": "\xff"}, "label": 1}', "it is not UTF-8"),
    (
        {"time": "yesterday"},
        "'yesterday' is neither seconds since the epoch nor an ISO 8601 time; give its form with --time-format, which "
        "inspect looks for",
    ),
    ({"weight": "-1"}, "the weight is -1; expected at least 0"),
]


@pytest.mark.parametrize(("value", "text"), MESSAGES)
def test_messages(value: bytes | Mapping[str, str], text: str) -> None:
    with pytest.raises(BadMessage) as caught:
        Reading("auto", BinaryLabels(stream=True)).event(Message(7, value))
    assert str(caught.value) == text
