"""`rarestream consume` of a Redis stream: a real server, a real service, processes that are killed."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from service.connectors.feed import FeedError, Partition
from service.connectors.redis_streams import RedisFeed, id_of, offset_of
from tests.harness.consumer import CONFIG, Consumer, Target, event
from tests.harness.process import Process
from tests.harness.redis_server import REDIS, VALKEY, RedisServer
from tests.harness.waiting import eventually

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def streams() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    folder = tmp_path_factory.mktemp("service")
    with Process(f"sqlite:///{folder / 'log.db'}", folder / "service.log", snapshot_events=100) as process:
        yield process


@pytest.fixture
def target(service: Process, request: pytest.FixtureRequest) -> Iterator[Target]:
    with Target(service.url, request.node.name.removeprefix("test_")[:80]) as learner:
        yield learner


def add(server: RedisServer, stream: str, *values: bytes) -> list[int]:
    """Add an entry per event; return their numbers."""
    with redis.Redis(port=server.port) as client, client.pipeline(transaction=False) as pipe:
        for value in values:
            pipe.xadd(stream, {"event": value})
        return [offset_of(id.decode()) for id in pipe.execute()]


def number_of(offset: int) -> int:
    """Return the number of an entry in a learner's source."""
    return (offset >> 64) * 4096 + offset % 2**64


def entries(server: RedisServer, stream: str) -> list[dict[str, Any]]:
    """Read the events of a stream."""
    with redis.Redis(port=server.port) as client:
        return [json.loads(fields[b"event"]) for _, fields in client.xrange(stream)]


def consumer(streams: RedisServer, target: Target, folder: Path, *options: str) -> Consumer:
    return Consumer(target, streams.url, folder, "--stream", target.name, *options)


def test_labelled_entries_are_learnt_and_unlabelled_ones_scored(
    streams: RedisServer, target: Target, tmp_path: Path
) -> None:
    ids = [f"e{i}" for i in range(60)]
    numbers = add(streams, target.name, *(event(i, labelled=i % 3 != 0, id=ids[i]) for i in range(60)))
    add(
        streams, target.name, json.dumps({"id": "e0", "label": 1}).encode()
    )  # by id alone, of one that is scored before
    reading = consumer(
        streams, target, tmp_path, "--scores", f"{target.name}-scores", "--alerts", f"{target.name}-alerts"
    )
    did = reading.run("--batch", "10")
    assert {name: did[name] for name in ("read", "applied", "scored", "passed", "skipped", "unknown")} == {
        "read": 61, "applied": 41, "scored": 20, "passed": 0, "skipped": 0, "unknown": 0
    }  # fmt: skip
    assert target.learnt == 41
    scores, alerts = (entries(streams, f"{target.name}-{what}") for what in ("scores", "alerts"))
    assert [score["id"] for score in scores] == ids[::3]
    assert [score["source"] for score in scores] == [
        {"stream": target.name, "entry": id_of(number)} for number in numbers[::3]
    ]
    assert alerts == [score for score in scores if score["label"] == 1]
    assert alerts
    assert all(0 <= score["probability"] <= 1 and score["position"] >= 1 for score in scores)
    # Once more: nothing is learnt, scored or written twice; what comes now is
    add(streams, target.name, event(60, labelled=False, id="e60"), event(61))
    did = reading.run()
    assert (did["applied"], did["duplicate"], did["scored"]) == (1, 0, 1)
    assert [score["id"] for score in entries(streams, f"{target.name}-scores")] == [*ids[::3], "e60"]


def test_a_missing_stream_is_reported_and_awaited(streams: RedisServer, target: Target, tmp_path: Path) -> None:
    reading = consumer(streams, target, tmp_path)
    assert reading.run()["read"] == 0
    assert f"redis:{target.name} " in reading.output()


@pytest.mark.campaign
def test_nothing_is_lost_or_learnt_twice_despite_kills(
    streams: RedisServer, target: Target, service: Process, tmp_path: Path
) -> None:
    rng = random.Random(5)
    total, kills = 3000, 8
    reading = consumer(streams, target, tmp_path, "--batch", "7", "--linger", "0")
    reading.start()
    requests: list[tuple[int, bytes]] = []
    for kill in range(kills):
        values = [event(i) for i in range(kill * total // kills, (kill + 1) * total // kills)]
        requests += zip(map(number_of, add(streams, target.name, *values)), values, strict=True)
        before = target.learnt
        eventually(lambda before=before: target.learnt > before)  # type: ignore[misc]
        time.sleep(rng.uniform(0, 0.2))
        match kill % 3:
            case 0:
                reading.kill()
                reading.start()
            case 1:
                service.kill()
                service.start()
            case 2:
                streams.restart()
    eventually(lambda: target.learnt >= total)
    assert reading.stop() == 0
    source = f"redis:{target.name}"
    assert target.learnt == total
    assert target.get()["sources"] == {source: requests[-1][0] + 1}
    probes = range(total, total + 50)  # digests differ where a request had to be repeated: repeats are counted
    assert target.said_of(probes) == target.sent_at_once(source, requests).said_of(probes)


def test_a_signal_stops_the_consumer_cleanly(streams: RedisServer, target: Target, tmp_path: Path) -> None:
    reading = consumer(streams, target, tmp_path)
    for number, ending in enumerate((signal.SIGTERM, signal.SIGINT), 1):
        reading.start()
        (last,) = add(streams, target.name, event(number))
        eventually(lambda number=number: target.learnt == number)  # type: ignore[misc]
        assert reading.stop(ending) == 0
        assert reading.did()["applied"] == 1
        assert reading.did()["positions"] == {f"redis:{target.name}": id_of(last)}
        with redis.Redis(port=streams.port) as client:
            (group,) = client.xinfo_groups(target.name)
        assert group["name"] == f"rarestream-{target.name}".encode()
        assert group["last-delivered-id"] == id_of(last).encode()


def test_a_signal_stops_the_consumer_while_redis_is_down(target: Target, tmp_path: Path) -> None:
    with RedisServer() as server:
        reading = consumer(server, target, tmp_path)
        reading.start()
        add(server, target.name, event(1))
        eventually(lambda: target.learnt == 1)
        server.kill()
        eventually(lambda: "retrying" in reading.output())
        assert reading.stop() == 0
        assert reading.did()["applied"] == 1


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (b"{", "JSON"),
        (b"\xff", "JSON"),
        (b'{"x": [1, 2], "label": 1, "id": "\xff"}', "UTF-8"),
        (b"[1]", "`array`"),
        (b"", "--entry flat"),
        (event(0, x=[1.0]), "x"),  # refused by the service, which points at it
        (event(0, labelled=False, x=[1.0, "2"]), "x"),
        (event(0, surplus=1), "surplus"),
    ],
)
def test_a_malformed_entry_stops_the_consumer_or_is_skipped(
    streams: RedisServer, service: Process, tmp_path: Path, bad: bytes, message: str
) -> None:
    target = Target(service.url, f"malformed-{hashlib.sha1(bad).hexdigest()}")
    before = add(streams, target.name, event(1), event(2, labelled=False))
    (number,) = add(streams, target.name, bad)
    last = add(streams, target.name, event(3), event(4, labelled=False))[-1]
    reading = consumer(streams, target, tmp_path)
    for learnt in (1, 1):
        status, error = reading.fail()
        assert status == 1
        assert f"stream {target.name}, entry {id_of(number)}: " in error
        assert message in error.partition(id_of(number))[2]
        assert target.learnt == learnt
    assert target.get()["sources"] == {f"redis:{target.name}": number_of(before[0]) + 1}
    did = reading.run("--on-bad", "skip")
    assert (did["skipped"], did["applied"], did["scored"], did["passed"]) == (1, 1, 1, 1)
    assert did["positions"] == {f"redis:{target.name}": id_of(last)}
    assert target.learnt == 2
    did = reading.run()  # it is not met once more
    assert (did["skipped"], did["applied"], did["scored"]) == (0, 0, 0)


def test_large_batches_are_split_into_several_requests(streams: RedisServer, tmp_path: Path) -> None:
    with Process("memory:", tmp_path / "service.log", max_body_bytes=4000) as small:
        target = Target(small.url, "too-large")
        add(streams, target.name, *(event(i, labelled=i % 2 == 0) for i in range(200)))
        (number,) = add(streams, target.name, event(200, id="x" * 5000))
        add(streams, target.name, event(201))
        reading = consumer(streams, target, tmp_path, "--batch", "300")
        did = reading.run("--on-bad", "skip")
        assert (did["applied"], did["scored"], did["skipped"]) == (101, 100, 1)
        assert f"skipped: stream {target.name}, entry {id_of(number)}: " in reading.output()
        assert target.learnt == 101


def test_flat_entries_are_events(streams: RedisServer, service: Process, target: Target, tmp_path: Path) -> None:
    del target
    named = Target(
        service.url, "flat", CONFIG | {"algorithm": "cbr-diag", "features": {"kind": "named", "categorical": ["shop"]}}
    )
    fields = {"id": "tx-1", "time": "2026-01-05T10:00:00Z", "amount": "12.5", "shop": "0881", "country": "DE"}
    for more in ({"label": "1"}, {"id": "tx-2", "weight": "2", "label": "0"}, {"id": "tx-3", "label": ""}):
        streams.command("XADD", "flat", "*", *(text for pair in (fields | more).items() for text in pair))
    did = consumer(streams, named, tmp_path, "--entry", "flat").run()
    assert (did["applied"], did["scored"]) == (2, 1)
    same = Target(
        service.url,
        "not-flat",
        CONFIG | {"algorithm": "cbr-diag", "features": {"kind": "named", "categorical": ["shop"]}},
    )
    features = {"amount": 12.5, "shop": "0881", "country": "DE"}
    time = 1767607200
    values = [
        {"id": "tx-1", "time": time, "features": features, "label": 1},
        {"id": "tx-2", "time": time, "weight": 2, "features": features, "label": 0},
    ]
    same.post("/update", {"events": values})
    probe = {"events": [{"features": {**features, "amount": 3}}]}
    assert named.post("/predict", probe)["results"] == same.post("/predict", probe)["results"]
    assert streams.command("XADD", "flat", "*", "amount", "1", "label", "maybe")
    status, error = consumer(streams, named, tmp_path, "--entry", "flat").fail()
    assert status == 1
    assert "maybe" in error


def test_the_start_position_applies_to_the_first_run_only(streams: RedisServer, target: Target, tmp_path: Path) -> None:
    numbers = add(streams, target.name, *(event(i) for i in range(6)))
    reading = consumer(streams, target, tmp_path)
    assert reading.run("--from", id_of(numbers[4]))["applied"] == 2
    assert reading.run("--from", "earliest")["read"] == 0  # the learner knows better
    other = consumer(streams, target, tmp_path, "--prefix", "another:")
    assert other.run("--from", "latest", "--group", "another")["read"] == 0
    assert other.run("--what", "predict", "--group", "third")["scored"] == 6  # labels are left out
    assert target.learnt == 2


def test_entries_trimmed_before_reading_cause_a_warning(streams: RedisServer, target: Target, tmp_path: Path) -> None:
    add(streams, target.name, *(event(i) for i in range(5)))
    reading = consumer(streams, target, tmp_path)
    assert reading.run()["applied"] == 5
    streams.command("XTRIM", target.name, "MAXLEN", 1)
    assert reading.run()["read"] == 0
    assert f"stream {target.name}, entry" not in reading.output()  # the last that was read is still there
    stored = add(streams, target.name, *(event(i) for i in range(5, 10)))[-2:]
    streams.command("XTRIM", target.name, "MAXLEN", 2)
    assert reading.run()["applied"] == 2
    assert f"stream {target.name}, entry {id_of(stored[0])} " in reading.output()


@pytest.mark.parametrize("binary", [VALKEY, REDIS], ids=["counts its entries", "does not"])
async def test_entries_trimmed_during_the_run_cause_a_warning(binary: str) -> None:
    """Redis before 7 shows only that known entries have gone; newer versions count them."""
    counts, stream, notes = binary is VALKEY, "s", list[str]()
    with RedisServer(binary) as streams:
        async with RedisFeed(streams.url, stream, "group", "redis:", note=notes.append) as feed:
            await trimmed(streams, feed.partitions[0], stream, notes, counts=counts)


async def trimmed(streams: RedisServer, partition: Partition, stream: str, notes: list[str], *, counts: bool) -> None:
    partition.seek(0)
    add(streams, stream, *(event(i) for i in range(5)))
    assert len(await partition.read(10, 0.1)) == 5
    assert await partition.read(10, 0.1) == []
    streams.command("XTRIM", stream, "MAXLEN", 0)  # of what has been read
    assert await partition.read(10, 0.1) == []
    add(streams, stream, event(5))
    assert len(await partition.read(10, 0.1)) == 1
    assert notes == []
    add(streams, stream, *(event(i) for i in range(6, 16)))
    assert len(await partition.read(3, 0.1)) == 3
    assert len(await partition.read(3, 0.1)) == 3
    stored = add(streams, stream, event(16), event(17))[0]
    streams.command("XTRIM", stream, "MAXLEN", 2)  # four are gone that were there at the last look
    assert [item.offset for item in await partition.read(10, 0.1)][:1] == [stored]
    assert await partition.read(10, 0.1) == []
    assert notes[0].startswith(f"redis:{stream}: ")
    assert ("4 entries" if counts else str(id_of(stored))) in notes[0]
    add(streams, stream, event(18))
    streams.command("XTRIM", stream, "MAXLEN", 0)
    assert await partition.read(10, 0.1) == []
    assert len(notes[1:]) == counts


def calls_of(streams: RedisServer, command: str) -> int:
    """Count the calls of a command, with its subcommands, that the server has executed."""
    statistics = streams.statistics("commandstats").items()
    return sum(item["calls"] for name, item in statistics if name.partition("|")[0] == f"cmdstat_{command}")


def test_a_recreated_stream_is_detected(streams: RedisServer, target: Target, tmp_path: Path) -> None:
    """Its new entries are before the position, so they would be skipped."""
    add(streams, target.name, event(0), event(1))
    reading = consumer(streams, target, tmp_path)
    assert reading.run()["applied"] == 2
    streams.command("DEL", target.name)
    assert reading.run()["read"] == 0  # there is none at the moment
    streams.command("DEL", target.name)  # with the group that it left
    reading.start()
    eventually(lambda: reading.output().count(f"redis:{target.name} ") == 2)  # that it is awaited
    streams.command("XADD", target.name, "5-0", "event", event(2))
    looks = calls_of(streams, "xinfo")
    eventually(lambda: calls_of(streams, "xinfo") > looks)
    streams.command("XADD", target.name, "6-0", "event", event(3))
    assert reading.wait() == 1
    assert f"{target.name} was " in reading.output()  # by a look at the stream, or by the position of its end
    status, error = reading.fail()
    assert status == 1
    assert "--prefix" in error
    assert target.learnt == 2
    add(streams, target.name, event(4))  # by the clock
    assert reading.run()["applied"] == 1


def test_an_id_beyond_the_year_2039_is_refused(streams: RedisServer, target: Target, tmp_path: Path) -> None:
    streams.command("XADD", target.name, f"{2**41}-0", "event", event(1))
    status, error = consumer(streams, target, tmp_path).fail()
    assert status == 1
    assert f"{2**41}-0" in error


@pytest.mark.parametrize("id", ["0-1", "1-0", "1-4095", "1-4096", "1767607200000-17", f"{2**41 - 1}-{2**64 - 1}"])
def test_ids_and_offsets_convert_both_ways(id: str) -> None:
    assert id_of(offset_of(id)) == id


async def test_a_reader_resumes_behind_the_last_entry_with_a_number() -> None:
    async with RedisFeed("redis://127.0.0.1:1", "s", "group", "redis:", note=print) as feed:
        partition = feed.partitions[0]
        for id, following in (("7-0", "7-1"), ("7-4094", "7-4095"), ("7-4095", "7-4096")):
            offset = offset_of(id)
            assert partition.numbered(offset)
            number = partition.number(offset)
            assert number == int(id[0]) * 4096 + int(id[2:]) < 2**53
            assert id_of(partition.resume(number + 1)) == following
        for id in ("7-4096", "7-1000000", f"7-{2**64 - 1}"):
            assert not partition.numbered(offset_of(id))
            assert partition.number(offset_of(id)) == partition.number(offset_of("8-0"))
        assert partition.resume(0) == 0


def test_a_millisecond_with_many_entries_is_read(streams: RedisServer, target: Target, tmp_path: Path) -> None:
    """Each entry is learnt once, also by readers that start again among them, and after a roll-back."""
    sequences = [1, 4094, 4095, 4096, 4097, 10_000, 2**63]
    ids = [*(f"7-{sequence}" for sequence in sequences), "8-0", *(f"9-{sequence}" for sequence in (5000, 5001)), "11-3"]
    reading = consumer(streams, target, tmp_path, "--batch", "3")
    for count, id in enumerate(ids, 1):
        fields = {"id": "own"} if id == "7-4097" else {}
        streams.command("XADD", target.name, id, "event", event(count, **fields))
        did = reading.run()
        assert (did["applied"], did["positions"]) == (1, {f"redis:{target.name}": id})
        assert target.learnt == count
    assert target.get()["sources"] == {f"redis:{target.name}": 11 * 4096 + 4}
    with redis.Redis(port=streams.port) as client:
        client.xgroup_setid(target.name, f"rarestream-{target.name}", "7-0")  # as if nothing had been committed
        assert reading.run()["applied"] == 0
        (group,) = client.xinfo_groups(target.name)
        assert group["last-delivered-id"] == b"11-3"
    other = consumer(streams, target, tmp_path, "--prefix", "again:", "--group", "again", "--batch", "1000")
    assert other.run()["applied"] == len(ids) - 1  # the source is another; only the event's own id tells
    with Target(target.url, f"{target.name}-2") as once:
        reading = Consumer(once, streams.url, tmp_path, "--stream", target.name)
        assert reading.run()["applied"] == len(ids)
        before = once.get("/digest")["digest"]
        assert reading.run()["applied"] == 0
        assert once.get("/digest")["digest"] == before
        assert reading.run("--from", "8-0", "--prefix", "late:", "--group", "late")["applied"] == 4


def test_unnumbered_entries_undone_by_a_rollback_are_learnt_again(
    streams: RedisServer, target: Target, tmp_path: Path
) -> None:
    reading = consumer(streams, target, tmp_path)
    for number, id in enumerate(("7-1", "7-5000")):
        streams.command("XADD", target.name, id, "event", event(number))
    assert reading.run()["applied"] == 2
    position = target.post("/snapshots")["position"]
    for number, id in enumerate(("7-5001", "7-5002")):
        streams.command("XADD", target.name, id, "event", event(number + 2))
    assert reading.run()["applied"] == 2
    target.post(f"/snapshots/{position}/restore")
    assert target.learnt == 2
    did = reading.run()
    assert (did["applied"], did["duplicate"]) == (2, 1)
    assert target.learnt == 4


async def test_a_password_repeated_by_the_server_is_masked() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"-ERR unknown command `AUTH`, with args beginning with: `a b/c`\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        at = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        for url, item in ((f"redis://:a%20b%2Fc@{at}", None), (f"redis://{at}", "a b/c")):
            async with RedisFeed(url, "s", "group", "redis:", password=item, patience=0.0, note=print) as feed:
                with pytest.raises(FeedError, match=r"\*\*\*") as caught:
                    await feed.partitions[0].bounds()
            assert "a b/c" not in str(caught.value)


def test_passwords_are_masked_in_messages(target: Target, tmp_path: Path) -> None:
    with RedisServer() as locked:
        locked.command("CONFIG", "SET", "requirepass", "tell-nobody")
        source = locked.url.replace("redis://", "redis://:wrong-one@")
        status, error = Consumer(target, source, tmp_path, "--stream", "s").fail()
        assert status == 1
        assert "wrong-one" not in error
        assert str(locked.port) in error
        assert Consumer(target, locked.url, tmp_path, "--stream", "s", REDIS_PASSWORD="tell-nobody").run()["read"] == 0
