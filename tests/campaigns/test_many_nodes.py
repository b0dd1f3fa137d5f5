"""Several nodes over one store, each a process of its own: all learn the same, once, and find back by themselves."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.campaigns.many_nodes import campaign
from tests.harness.apps import DENSE, events
from tests.harness.process import Process, nodes
from tests.harness.redis_fleet import cluster, watched
from tests.harness.redis_server import RedisServer
from tests.harness.waiting import eventually

SECONDS = float(os.environ.get("MANY_NODES_SECONDS", "120"))  # of writing; 20 for a quick look


def test_writers_on_four_nodes(redis_server: RedisServer, tmp_path: Path) -> None:
    """`python -m tests.campaigns.many_nodes --seconds 180` does the same for as long as it is told, and prints it."""
    result = campaign(redis_server, tmp_path, 10**9, SECONDS)
    print(result)
    assert result.seconds >= SECONDS
    assert result.events > 20 * SECONDS
    assert result.snapshot_count > 1
    assert result.twice > 0
    assert result.waits
    assert result.good, str(result)


@pytest.fixture
def http() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=300, trust_env=False) as client:
        yield client


def learner(process: Process) -> str:
    return f"{process.url}/v1/learners/a"


def test_a_paused_node_resumes_from_a_snapshot_after_log_trimming(
    redis_server: RedisServer, tmp_path: Path, http: httpx.Client
) -> None:
    with nodes(redis_server.url, tmp_path, 2, snapshots_kept=1) as (entry, two):
        http.put(learner(entry), json=DENSE).raise_for_status()
        eventually(lambda: http.get(learner(two)).status_code == 200)
        two.pause()
        for i in range(10):
            http.post(f"{learner(entry)}/update", json={"events": events(5, 5 * i)}).raise_for_status()
            saved = http.post(f"{learner(entry)}/snapshots").json()["position"]
        last = http.post(f"{learner(entry)}/update", json={"events": events(5, 50)}).json()["position"]
        assert saved == last - 1
        two.resume()
        eventually(lambda: http.get(learner(two)).json()["position"] == last)  # without a request that needs it
        digests = [http.get(f"{learner(process)}/digest").json() for process in (entry, two)]
        assert digests[0] == digests[1]
        assert http.get(learner(two)).json()["events"] == 55
        lines = [line for path in tmp_path.glob("*.log") for line in path.read_text().splitlines()]
        (jump,) = [line for line in lines if re.search(r" INFO +rarestream\.log: ", line)]
        assert re.findall(r"\d+", jump)[-2:] == ["1", str(saved)]  # from there, with the snapshot at this position


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_a_rollback_applies_to_every_node(kind: str, tmp_path: Path, http: httpx.Client, request) -> None:
    url = f"sqlite:///{tmp_path / 'log.db'}" if kind == "sqlite" else request.getfixturevalue("redis_server").url
    with Process(url, tmp_path / "one.log") as item, Process(url, tmp_path / "two.log") as two:
        http.put(learner(item), json=DENSE).raise_for_status()
        eventually(lambda: http.get(learner(two)).status_code == 200)
        http.post(f"{learner(item)}/update", json={"events": events(10)}).raise_for_status()
        saved = http.post(f"{learner(item)}/snapshots").json()["position"]
        http.post(f"{learner(two)}/update", json={"events": events(10, 10)}).raise_for_status()
        restored = http.post(f"{learner(two)}/snapshots/{saved}/restore").json()["position"]
        actual = [http.get(f"{learner(process)}/digest?at_least={restored}").json() for process in (item, two)]
        assert actual[0] == actual[1]
        assert actual[0]["position"] == restored > saved
        assert [http.get(learner(process)).json()["events"] for process in (item, two)] == [10, 10]


@pytest.mark.parametrize("kind", ["sentinel", "cluster"])
def test_writers_on_nodes_across_several_servers(kind: str, tmp_path: Path, http: httpx.Client) -> None:
    with ExitStack() as running:
        fleet = running.enter_context(watched() if kind == "sentinel" else cluster(node_timeout_ms=3000))
        processes = [running.enter_context(Process(fleet.url, tmp_path / f"{i}.log", workers=2)) for i in range(2)]
        names = [f"{kind}-{i}" for i in range(4)]  # in slots of their own
        for name in names:
            http.put(f"{processes[0].url}/v1/learners/{name}", json=DENSE).raise_for_status()

        def write(node: Process, start: int) -> list[tuple[str, dict]]:
            with httpx.Client(timeout=300, trust_env=False) as local:
                bodies = [(name, {"events": events(5, start + 5 * i)}) for i in range(20) for name in names]
                return [
                    (name, local.post(f"{node.url}/v1/learners/{name}/update", json=body).raise_for_status().json())
                    for name, body in bodies
                ]

        for name in names:  # the other node has met it
            eventually(lambda name=name: http.get(f"{processes[1].url}/v1/learners/{name}").status_code == 200)  # type: ignore[misc]
        with ThreadPoolExecutor() as threads:
            written = threads.map(
                write, [*processes, *processes], (0, 1000, 0, 2000)
            )  # the first hundred by two of them
            report = [reply for replies in written for reply in replies]
        assert sum(reply["applied"] for _, reply in report) == 4 * 300
        for name in names:
            last = max(reply["position"] for to, reply in report if to == name)  # what a process shows may lag behind
            digests = [http.get(f"{item.url}/v1/learners/{name}/digest?at_least={last}").json() for item in processes]
            assert digests[0] == digests[1]
            assert http.get(f"{processes[0].url}/v1/learners/{name}?at_least={last}").json()["events"] == 300
