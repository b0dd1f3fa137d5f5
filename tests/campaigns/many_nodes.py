"""Many nodes, each a process of its own, over one Redis, with writers on all of them; then every promise is checked.

    python -m tests.campaigns.many_nodes --seconds 180

Each writer posts events with ids to a node of its own, some of them to another node too, at the same time, and after
some of its updates asks a third node for a prediction that is at least of that position. All the while a sampler asks
every node for its digest, and no two may differ at the same position. At the end every event must have been learnt
exactly once, and all nodes must have the same digest at the same position.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.harness.process import nodes
from tests.harness.redis_server import RedisServer

__all__ = ["NAME", "Result", "campaign"]

NAME = "shared"
CONFIG: dict[str, Any] = {"algorithm": "loam-ada", "features": {"kind": "dense", "dim": 4}, "window": 500}


@dataclass
class Writer:
    """Posts one request after the other, until it has sent so many events or its time is over."""

    number: int
    urls: Sequence[str]
    events: int
    ends: float  # by the monotonic clock
    sent_events: int = 0
    twice: int = 0  # events that went to two nodes
    waits: list[float] = field(default_factory=list)  # seconds of a predict on another node, of at least the position
    wrong: list[str] = field(default_factory=list)  # answers that should not be

    def run(self) -> None:
        """Post."""
        rng = random.Random(self.number)
        with httpx.Client(timeout=300, trust_env=False) as http:
            while self.sent_events < self.events and time.monotonic() < self.ends and not self.wrong:
                self._post(http, rng)

    def _post(self, http: httpx.Client, rng: random.Random) -> None:
        events = []
        for _ in range(min(rng.choice([1, 1, 2, 10]), self.events - self.sent_events)):
            label = int(rng.random() < 0.3)
            x = [rng.gauss(label, 1.0) for _ in range(4)]
            events.append({"id": f"w{self.number}-{self.sent_events}", "x": x, "label": label})
            self.sent_events += 1
        local = self.number % len(self.urls)
        others = [i for i in range(len(self.urls)) if i != local]
        if rng.random() < 0.2:  # and the same events on another node, as a client does that does not wait for long
            self.twice += len(events)
            again = threading.Thread(target=self._update, args=(http, rng.choice(others), events))
            again.start()
            position = self._update(http, local, events)
            again.join()
        else:
            position = self._update(http, local, events)
        if rng.random() < 0.3:
            began = time.perf_counter()
            query = {"at_least": position}
            path = f"{self.urls[rng.choice(others)]}/v1/learners/{NAME}/predict"
            reply = http.post(path, params=query, json={"events": [{"x": [0, 0, 0, 0]}]})
            self.waits.append(time.perf_counter() - began)
            if reply.status_code != 200 or reply.json()["position"] < position:
                self.wrong.append(f"at least {position}: {reply.status_code} {reply.text[:300]}")

    def _update(self, http: httpx.Client, node: int, events: list[dict[str, Any]]) -> int:
        reply = http.post(f"{self.urls[node]}/v1/learners/{NAME}/update", json={"events": events})
        if reply.status_code != 200:
            self.wrong.append(f"update: {reply.status_code} {reply.text[:300]}")
            return 0
        position: int = reply.json()["position"]
        return position


@dataclass
class Sampler:
    """Asks all nodes at once for their digests, again and again until it is told to stop, and compares them.

    Nodes come to a position at different moments. So each is asked a few times in a row, and not before it has come to
    where another was; those behind then mostly answer at that very position.
    """

    urls: Sequence[str]
    every: float = 0.5  # seconds between such rows
    row: int = 30
    last: int = 1  # the highest position that a node has told
    done: threading.Event = field(default_factory=threading.Event)
    seen: dict[int, dict[int, str]] = field(default_factory=dict)  # position: digest by node
    wrong: list[str] = field(default_factory=list)

    @property
    def compared(self) -> int:
        """How many positions were seen at two nodes or more."""
        return sum(len(actual) > 1 for actual in self.seen.values())

    def run(self) -> None:
        """Ask and compare."""
        with httpx.Client(timeout=300, trust_env=False) as http, ThreadPoolExecutor(len(self.urls)) as threads:
            while not self.done.wait(self.every):
                for node, replies in enumerate(threads.map(lambda url: self._poll(http, url), self.urls)):
                    for reply in replies:
                        self.compare(node, reply)

    def _poll(self, http: httpx.Client, url: str) -> list[httpx.Response]:
        actual = []
        for _ in range(self.row):
            reply = http.get(f"{url}/v1/learners/{NAME}/digest", params={"at_least": self.last})
            actual.append(reply)
            if reply.status_code == 200:
                self.last = max(self.last, reply.json()["position"])  # a thread may miss what another one enters
        return actual

    def compare(self, node: int, reply: httpx.Response) -> None:
        """Enter what a node answered."""
        if reply.status_code != 200:
            self.wrong.append(f"digest: {reply.status_code} {reply.text[:300]}")
            return
        position, digest = reply.json()["position"], reply.json()["digest"]
        scores = self.seen.setdefault(position, {})
        for other, theirs in scores.items():
            if theirs != digest:
                self.wrong.append(f"at {position} node {other} has {theirs}, and node {node} {digest}")
        scores[node] = digest


@dataclass
class Result:
    """What a campaign found."""

    seconds: float
    events: int
    twice: int
    learnt: list[int]  # by node
    digests: list[tuple[int, str]]  # position and digest, by node
    snapshots: list[int]  # positions of those that are retained
    snapshot_count: int  # snapshots that nodes saved, all together
    waits: list[float]
    wrong: list[str]
    compared: int  # positions at which two nodes or more told their digest while the writers wrote

    @property
    def good(self) -> bool:
        """Everything learnt exactly once, the same everywhere at all times, and read where it was asked for."""
        same = len(set(self.digests)) == 1 and self.compared > 0
        return not self.wrong and same and self.learnt == [self.events] * len(self.learnt)

    def __str__(self) -> str:
        waits = sorted(self.waits) or [0.0]
        median, late = (1000 * waits[int(share * (len(waits) - 1))] for share in (0.5, 0.99))
        return (
            f"{self.seconds:.0f} s, {self.events} events, {self.twice} of them to two nodes; learnt {self.learnt}; "
            f"position and digest {sorted(set(self.digests))}, compared at {self.compared} positions before; "
            f"{self.snapshot_count} snapshots, of which {self.snapshots} are retained; "
            f"{len(self.waits)} predicts of at least a position: median {median:.1f} ms, p99 {late:.1f} ms; "
            f"wrong: {self.wrong[:5] or 'nothing'}; {'good' if self.good else 'BAD'}"
        )


def campaign(
    redis: RedisServer, folder: Path, events: int, seconds: float = 1e9, count: int = 4, writers: int = 8
) -> Result:
    """Run one: until so many events were sent, or so many seconds are over. Blocks."""
    settings = {"snapshot_events": 2000, "snapshot_seconds": 2, "log_level": "warning", "at_least_seconds": 30}
    with nodes(redis.url, folder, count, **settings) as running:
        urls = [item.url for item in running]
        with httpx.Client(timeout=300, trust_env=False) as http:  # the first learner may have its kernels compiled
            assert http.put(f"{urls[0]}/v1/learners/{NAME}", json=CONFIG).status_code == 201
            for url in urls:
                _until_there(http, url)
            began = time.monotonic()
            posting = [Writer(i, urls, events // writers, began + seconds) for i in range(writers)]
            threads = [threading.Thread(target=item.run) for item in posting]
            sampler = Sampler(urls)
            sampling = threading.Thread(target=sampler.run)
            for thread in (*threads, sampling):
                thread.start()
            for thread in threads:
                thread.join()
            sampler.done.set()
            sampling.join()
            took = time.monotonic() - began
            learnt, digests = [], []
            head = max(http.get(f"{url}/v1/learners/{NAME}").json()["position"] for url in urls)
            for url in urls:
                document = http.get(f"{url}/v1/learners/{NAME}/digest", params={"at_least": head}).json()
                digests.append((document["position"], document["digest"]))
                learnt.append(http.get(f"{url}/v1/learners/{NAME}").json()["events"])
            retained = http.get(f"{urls[0]}/v1/learners/{NAME}/snapshots").json()["snapshots"]
            snapshot_count = sum(_saved(http.get(f"{url}/metrics").text) for url in urls)
    return Result(
        took,
        sum(item.sent_events for item in posting),
        sum(item.twice for item in posting),
        learnt,
        digests,
        [item["position"] for item in retained],
        snapshot_count,
        [wait for item in posting for wait in item.waits],
        [wrong for item in (*posting, sampler) for wrong in item.wrong],
        sampler.compared,
    )


def _until_there(http: httpx.Client, url: str) -> None:
    """Until a node has the learner that another has created."""
    ends = time.monotonic() + 60
    while http.get(f"{url}/v1/learners/{NAME}").status_code != 200:
        if time.monotonic() > ends:
            raise RuntimeError(f"{url} does not see {NAME}")
        time.sleep(0.01)


def _saved(metrics: str) -> int:
    """How often a node has saved a snapshot."""
    line = 'rarestream_store_seconds_count{operation="save"} '
    return sum(int(float(item.removeprefix(line))) for item in metrics.splitlines() if item.startswith(line))


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--writers", type=int, default=8)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, RedisServer() as redis:
        result = campaign(redis, Path(folder), 10**9, options.seconds, options.nodes, options.writers)
    print(result)
    raise SystemExit(0 if result.good else 1)


if __name__ == "__main__":
    main()
