"""`rarestream consume` of a Redis stream on several servers: a fail-over by Sentinel, and a Cluster."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.harness.consumer import Consumer, Target, event
from tests.harness.process import Process
from tests.harness.redis_fleet import cluster, watched
from tests.harness.waiting import eventually

pytestmark = pytest.mark.integration

EVENTS = 300  # before a server ends, and after


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    folder = tmp_path_factory.mktemp("service")
    with Process(f"sqlite:///{folder / 'log.db'}", folder / "service.log") as process:
        yield process


@pytest.fixture
def target(service: Process, request: pytest.FixtureRequest) -> Iterator[Target]:
    name = re.sub(r"[^\w-]+", "-", request.node.name.removeprefix("test_"))
    with Target(service.url, name[:80]) as learner:
        yield learner


def fed(target: Target, reading: Consumer, client: redis.Redis, numbers: range) -> None:
    """Add labelled events and an unlabelled one to the stream `s`, and wait until they are learnt."""
    before = target.learnt
    for i in numbers:
        client.xadd("s", {"event": event(i, id=f"e{i}")})
    client.xadd("s", {"event": event(numbers.stop, labelled=False, id=f"e{numbers.stop}")})
    eventually(lambda: target.learnt == before + len(numbers))
    eventually(lambda: "\n".join(scores(client)).count(f"e{numbers.stop}") > 0)
    assert reading.output().count("Traceback") == 0


def scores(client: redis.Redis) -> list[str]:
    return [json.loads(fields[b"event"])["id"] for _, fields in client.xrange("t")]


@pytest.mark.campaign
def test_the_consumer_follows_the_sentinels_to_the_next_master(target: Target, tmp_path: Path) -> None:
    with watched(password="hidden-one", sentinel_password="hidden-two") as fleet:
        reading = Consumer(target, fleet.url, tmp_path, "--stream", "s", "--scores", "t", "--batch", "20")
        reading.start()
        old = fleet.master
        with redis.Redis(port=old.port, password="hidden-one") as client:
            fed(target, reading, client, range(EVENTS))
            last = client.xrevrange("s", count=1)[0][0].decode()
            eventually(lambda: committed(client) == last, "a position that is committed")
            assert client.wait(1, 60_000) == 1  # the replica has everything
        old.kill()
        fleet.failed_over(old)
        with redis.Redis(port=fleet.master.port, password="hidden-one") as client:
            fed(target, reading, client, range(1000, 1000 + EVENTS))
            assert target.learnt == 2 * EVENTS
            assert scores(client) == [f"e{EVENTS}", f"e{1000 + EVENTS}"]
            end = client.xrevrange("s", count=1)[0][0].decode()
        assert reading.stop() == 0
        assert reading.did()["positions"] == {"redis:s": end}
        output = reading.output()
        assert f"127.0.0.1:{fleet.sentinel.port} " in output
        assert "hidden" not in output


def committed(client: redis.Redis) -> str:
    """Return the last id of the stream's group."""
    return str(client.xinfo_groups("s")[0]["last-delivered-id"].decode())


@pytest.mark.campaign
def test_the_consumer_survives_the_end_of_a_cluster_master(target: Target, tmp_path: Path) -> None:
    with cluster(node_timeout_ms=3000) as fleet:
        reading = Consumer(target, fleet.url, tmp_path, "--stream", "s", "--scores", "t", "--batch", "20")
        reading.start()
        startup = [redis.cluster.ClusterNode("127.0.0.1", server.port) for server in fleet.servers]
        with redis.RedisCluster(startup_nodes=startup) as client:
            fed(target, reading, client, range(EVENTS))
            for name in ("s", "t"):
                client.set(f"{{{name}}}-of-the-slot", b"")
            home = fleet.masters[fleet.home("s")]
            home.restart()  # which has it all in its append-only file
            fed(target, reading, client, range(1000, 1000 + EVENTS))
            assert target.learnt == 2 * EVENTS
            assert {*scores(client)} == {f"e{EVENTS}", f"e{1000 + EVENTS}"}
        assert reading.stop() == 0
        assert "Traceback" not in reading.output()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("redis+sentinel://me:hidden@h:1/0", "redis+sentinel://h:1 "),
        ("redis+cluster://me:hidden@h:1/2", "redis+cluster://h:1 "),
        ("redis+sentinel://h:1/0?master=m&nonsense=1", "redis+sentinel://HOST:PORT,HOST:PORT/DB?master=NAME"),
    ],
    ids=["no-master", "database-of-a-cluster", "no-option"],
)
def test_invalid_urls_of_several_servers_are_refused(source: str, message: str, target: Target, tmp_path: Path) -> None:
    status, error = Consumer(target, source, tmp_path, "--stream", "s").fail()
    assert status == 2
    assert message in error.replace("\n", " ")
    assert "hidden" not in error


def test_unreachable_sentinels_are_reported(target: Target, tmp_path: Path) -> None:
    source = "redis+sentinel://127.0.0.1:1/0?master=main"
    status, error = Consumer(target, source, tmp_path, "--stream", "s", "--retry-seconds", "1").fail()
    assert status == 1
    assert "redis+sentinel://127.0.0.1:1 " in error
    assert "object" not in error  # nor a client's representation
