"""A service and its programs: two nodes, a websocket, NDJSON, `replay`, `consume` and the demo."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import redis
from websockets.sync.client import connect

from tests.harness.apps import DENSE, events
from tests.harness.consumer import Consumer, Target, event
from tests.harness.kafka_broker import KafkaBroker
from tests.harness.process import Commands, Process, nodes
from tests.harness.redis_server import RedisServer
from tests.harness.waiting import eventually

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    folder = tmp_path_factory.mktemp("service")
    with Process(f"sqlite:///{folder / 'log.db'}", folder / "service.log") as process:
        yield process


@pytest.fixture
def learner(service: Process, request: pytest.FixtureRequest) -> Iterator[Target]:
    """Create a learner for the test."""
    with Target(service.url, request.node.name.removeprefix("test_")) as target:
        yield target


def test_two_nodes_learn_and_serve_one_log(redis_server: RedisServer, tmp_path: Path) -> None:
    path = "/v1/learners/shared"
    with (
        nodes(redis_server.url, tmp_path, 2, advertised=True) as running,
        httpx.Client(timeout=300, trust_env=False) as http,
    ):
        first, second = running
        assert http.put(f"{first.url}{path}", json=DENSE).status_code == 201
        eventually(lambda: http.get(f"{second.url}{path}").is_success)
        for start in range(0, 100, 10):  # to the nodes in turn
            reply = http.post(f"{running[start // 10 % 2].url}{path}/update", json={"events": events(10, start)})
            assert reply.is_success, reply.text
        eventually(lambda: all(http.get(f"{node.url}{path}").json()["events"] == 100 for node in running))
        digests = {http.get(f"{node.url}{path}/digest").json()["digest"] for node in running}
        first.kill()
        scored = http.post(f"{second.url}{path}/predict", json={"events": [{"x": [1, 0, 1]}]})
    assert len(digests) == 1
    assert scored.is_success


def test_websocket(service: Process, learner: Target) -> None:
    url = f"ws://127.0.0.1:{service.port}/v1/learners/{learner.name}/ws"
    with connect(url, proxy=None, open_timeout=300) as session:
        credit = json.loads(session.recv(300))["credit"]
        for seq in range(credit):
            session.send(json.dumps({"seq": seq, "op": "update", "events": [json.loads(event(seq))]}))
        replies = [json.loads(session.recv(300)) for _ in range(credit)]
        session.send(json.dumps({"seq": credit, "op": "predict", "events": [{"x": [1, 0]}]}))
        scored = json.loads(session.recv(300))
    assert [(reply["seq"], reply["applied"]) for reply in replies] == [(seq, 1) for seq in range(credit)]
    assert learner.learnt == credit
    assert isinstance(scored["results"][0]["score"], float)


def test_ndjson(service: Process, learner: Target) -> None:
    lines = (event(i) + b"\n" for i in range(300))
    headers = {"Content-Type": "application/x-ndjson"}
    url = f"{service.url}/v1/learners/{learner.name}/update"
    reply = httpx.post(url, content=lines, headers=headers, timeout=300, trust_env=False)
    report = [json.loads(line) for line in reply.text.splitlines()]
    assert reply.is_success
    assert (report[-1]["done"], report[-1]["lines"]) == (True, 300)
    assert learner.learnt == 300


def test_replay_of_a_file(service: Process, learner: Target, start: Commands, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    rows = [json.loads(event(i)) for i in range(500)]
    file.write_text("a,b,label\n" + "".join(f"{row['x'][0]},{row['x'][1]},{row['label']}\n" for row in rows))
    for _ in range(2):  # the second time there is nothing left to learn
        program = start("replay", file, "--learner", learner.name, "--url", service.url)
        out, err = program.communicate()
        assert program.returncode == 0, (out, err)
    assert learner.learnt == 500


def test_consume_of_a_kafka_topic(learner: Target, tmp_path: Path) -> None:
    with KafkaBroker() as broker:
        broker.create(**{learner.name: 2})
        broker.produce(learner.name, [(i % 2, event(i, labelled=i % 3 != 0, id=f"e{i}")) for i in range(60)])
        reading = Consumer(learner, f"kafka://{broker.address}/{learner.name}", tmp_path)
        totals = [reading.run() for _ in range(2)]
    assert [(total["applied"], total["scored"]) for total in totals] == [(40, 20), (0, 0)]
    assert learner.learnt == 40


def test_consume_of_a_redis_stream(redis_server: RedisServer, learner: Target, tmp_path: Path) -> None:
    with redis.Redis(port=redis_server.port) as client:
        for i in range(60):
            client.xadd("events", {"event": event(i, labelled=i % 3 != 0, id=f"e{i}")})
    reading = Consumer(learner, redis_server.url, tmp_path, "--stream", "events")
    totals = [reading.run() for _ in range(2)]
    assert [(total["applied"], total["scored"]) for total in totals] == [(40, 20), (0, 0)]
    assert learner.learnt == 40


def test_demo(start: Commands, tmp_path: Path) -> None:
    """At 100 events a second the demo streams for twenty seconds; Ctrl-C ends it cleanly."""
    store = f"sqlite:///{tmp_path / 'demo.db'}"
    program = start("demo", "--store", store, "--port", 0, "--events", 2000, "--rate", 100, PYTHONUNBUFFERED="1")
    assert program.stdout is not None
    lines: list[str] = []
    for line in program.stdout:
        lines.append(line)
        if "Ctrl-C" in line and any("2,000" in earlier for earlier in lines):
            break
    text = "".join(lines)
    address = re.search(r"dashboard +(http://\S+)/$", text, re.MULTILINE)
    assert address, text
    listing = httpx.get(f"{address[1]}/v1/learners", trust_env=False, timeout=300).json()["learners"]
    assert [learner["events"] for learner in listing] == [2000] * 4
    program.send_signal(signal.SIGINT)
    out, err = program.communicate()
    assert (program.returncode, err) == (0, ""), out
