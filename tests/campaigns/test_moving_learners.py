"""Learners move to a node that comes, and from one that leaves, while they are written to: nothing waits for it."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.harness.process import Process
from tests.harness.redis_server import RedisServer
from tests.harness.waiting import eventually

NAMES = [f"moving-{i}" for i in range(8)]
CONFIG = {"algorithm": "loam-ada", "features": {"kind": "dense", "dim": 2}}
WRITERS = 3
PATIENCE = 300.0  # seconds, on a busy machine


@dataclass
class Written:
    """What some threads write to two nodes that stay."""

    urls: list[str]
    acknowledged: dict[str, Counter[str]] = field(default_factory=lambda: {name: Counter() for name in NAMES})
    refused: list[str] = field(default_factory=list)
    slowest: float = 0.0
    stopping: threading.Event = field(default_factory=threading.Event)

    def write(self, number: int) -> None:
        """Until told to stop: an event a request, each to the next learner by the next node."""
        with httpx.Client(timeout=PATIENCE, trust_env=False) as http:
            for i in itertools.count():
                if self.stopping.is_set():
                    return
                name, url = NAMES[i % len(NAMES)], self.urls[(i // len(NAMES) + number) % len(self.urls)]
                id = f"{number}-{i}"
                event = {"id": id, "x": [i % 7, i % 5], "label": i % 3 == 0}
                began = time.monotonic()
                reply = http.post(f"{url}/v1/learners/{name}/update", json={"events": [event]})
                self.slowest = max(self.slowest, time.monotonic() - began)
                if reply.status_code == 200:
                    self.acknowledged[name][id] += reply.json()["applied"]
                else:
                    self.refused.append(f"{reply.status_code} {reply.text}")

    @property
    def count(self) -> int:
        return sum(sum(item.values()) for item in self.acknowledged.values())


def test_learners_move_while_being_written_to(redis_server: RedisServer, tmp_path: Path) -> None:
    nodes = [Process(redis_server.url, tmp_path / f"{i}.log", replication=1, advertised=True) for i in range(4)]
    *first, last = nodes
    with ExitStack() as stack, httpx.Client(timeout=PATIENCE, trust_env=False) as http:

        def hosts(name: str) -> str:
            (address,) = http.get(f"{nodes[0].url}/v1/nodes", params={"learner": name}).json()["hosts"]
            return str(address)

        def report(path: str, member: str) -> set[Any]:
            return {http.get(f"{node.url}/v1/learners/{path}").json()[member] for node in (*nodes[:2], last)}

        def seen(count: int) -> bool:
            return all(len(http.get(f"{node.url}/v1/nodes").json()["nodes"]) == count for node in nodes[:2])

        for node in first:
            stack.enter_context(node)
        eventually(lambda: seen(3))
        for name in NAMES:
            http.put(f"{nodes[0].url}/v1/learners/{name}", json=CONFIG).raise_for_status()
        before = {name: hosts(name) for name in NAMES}

        written = Written([node.url for node in nodes[:2]])
        threads = [threading.Thread(target=written.write, args=(number,)) for number in range(WRITERS)]
        stack.callback(written.stopping.set)
        for thread in threads:
            thread.start()
        eventually(lambda: written.count > 100)

        stack.enter_context(last)  # a fourth comes,
        eventually(lambda: seen(4))
        with_four = {name: hosts(name) for name in NAMES}
        so_far = written.count
        eventually(lambda: written.count > so_far + 100)
        nodes[2].stop()  # and one of the first leaves
        eventually(lambda: seen(3))
        so_far = written.count
        eventually(lambda: written.count > so_far + 100)
        written.stopping.set()
        for thread in threads:
            thread.join(PATIENCE)

        moved = [name for name in NAMES if with_four[name] != before[name]]
        assert all(with_four[name] == last.url for name in moved)  # its share, and nothing else
        assert written.refused == []
        for name in NAMES:
            assert set(written.acknowledged[name].values()) == {1}  # each learnt once
            eventually(lambda name=name: report(name, "events") == {len(written.acknowledged[name])})
            assert len(report(f"{name}/digest", "digest")) == 1
