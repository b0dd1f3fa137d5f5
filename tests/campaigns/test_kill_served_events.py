"""kill -9 among predictions and late labels: what was remembered gets its label, once, and the log says it all."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.storage.open_store import open_store
from tests.harness.nodes import T0, posted, replayed, serving
from tests.harness.process import Process
from tests.service.engine.replica.test_served_events import SETUPS, event, labelled

KILLS = 4


class Client:
    """Serves events and labels them, each request until it is answered."""

    def __init__(self, number: int, url: str, stop: threading.Event) -> None:
        self.number, self.url, self.stop = number, url, stop
        self.scores: dict[str, float] = {}  # what was answered last of each event that is labelled
        self.labels: dict[str, int] = {}
        self.interrupted = 0
        self.wrong: list[str] = []

    def run(self) -> None:
        rng = random.Random(self.number)
        with httpx.Client(timeout=300, trust_env=False) as http:
            start = 0
            while not self.stop.is_set() and not self.wrong:
                names = [f"c{self.number}-{i}" for i in range(start, start + rng.choice([1, 2, 10]))]
                start += len(names)
                request = [{**event("dense", rng.randrange(1000)), "id": name} for name in names]
                served = self._post(http, "predict", request)
                expected = [{"id": name, "label": rng.randrange(2), "time": T0 + 10_000} for name in names]
                answer = self._post(http, "labels", expected)
                if served["remembered"] != len(names) or answer["applied"] + answer["duplicate"] != len(names):
                    self.wrong.append(f"{served['remembered']} of {len(names)} remembered; {answer}")
                self.labels.update({item["id"]: item["label"] for item in expected})
                self.scores.update({result["id"]: result["score"] for result in served["results"]})
                for entry in answer["results"]:
                    if entry["score"] not in (None, self.scores[entry["id"]]):
                        self.wrong.append(f"{entry} was served {self.scores[entry['id']]}")

    def _post(self, http: httpx.Client, path: str, events: list[dict[str, Any]]) -> dict[str, Any]:
        while True:
            try:
                reply = http.post(f"{self.url}/{path}", json={"events": events})
            except httpx.TransportError:
                self.interrupted += 1
                time.sleep(0.02)
                continue
            if reply.status_code == 200:
                answer: dict[str, Any] = reply.json()
                return answer
            if reply.status_code not in (404, 503):  # not loaded yet
                self.wrong.append(reply.text[:300])
            time.sleep(0.05)


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_every_label_is_learnt_once(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    store = f"sqlite:///{tmp_path / 'log.db'}" if kind == "sqlite" else request.getfixturevalue("redis_server").url
    stop = threading.Event()
    rng = random.Random(1)
    service = Process(store, tmp_path / "server.log", trim_log=False, snapshot_events=100, snapshot_seconds=0.5)
    with service:
        url = f"{service.url}/v1/learners/a"
        httpx.put(url, json=SETUPS["dense"], trust_env=False, timeout=300).raise_for_status()
        httpx.post(f"{url}/update", json={"events": labelled("dense", 0, 20)}, timeout=300, trust_env=False)
        clients = [Client(number, url, stop) for number in range(3)]
        threads = [threading.Thread(target=client.run) for client in clients]
        for thread in threads:
            thread.start()
        try:
            for _ in range(KILLS):
                time.sleep(rng.uniform(0.05, 0.5))
                service.kill()
                service.start()
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        document = httpx.get(url, trust_env=False, timeout=300).json()
        metrics = httpx.get(f"{url}/metrics", trust_env=False, timeout=300).json()
        actual = httpx.get(f"{url}/digest", timeout=300, trust_env=False).json()
    assert [client.wrong for client in clients] == [[], [], []]
    labels = {name: label for client in clients for name, label in client.labels.items()}
    assert len(labels) > 0
    assert sum(client.interrupted for client in clients) > 0, "no request was interrupted"
    assert document["events"] == 20 + len(labels)
    assert document["class_counts"]["positive"] == 4 + sum(labels.values())
    assert (metrics["served"]["events"], metrics["corrections"]) == (len(labels), 0)
    assert asyncio.run(_from_the_log(store)) == (actual["position"], actual["digest"])


async def _from_the_log(url: str) -> tuple[int, str]:
    store = await open_store(url)
    try:
        return await replayed(store)
    finally:
        await store.close()


def test_served_events_survive_a_kill(tmp_path: Path) -> None:
    with Process(f"sqlite:///{tmp_path / 'log.db'}", tmp_path / "server.log") as service:
        url = f"{service.url}/v1/learners/a"
        with httpx.Client(timeout=300, trust_env=False) as http:
            http.put(url, json=SETUPS["dense"]).raise_for_status()
            http.post(f"{url}/update", json={"events": labelled("dense", 0, 20)}).raise_for_status()
            request = {"events": [event("dense", i) for i in range(20, 30)]}
            served = http.post(f"{url}/predict", json=request).json()
        service.kill()
        service.start()
        with httpx.Client(timeout=300, trust_env=False) as http:
            expected = {"events": [{"id": f"e{i}", "label": 1, "time": T0 + 400} for i in range(20, 30)]}
            answer = http.post(f"{url}/labels", json=expected).json()
            assert answer["applied"] == 10
            assert [result["score"] for result in answer["results"]] == [
                result["score"] for result in served["results"]
            ]
            assert http.get(f"{url}/metrics").json()["window"]["label_coverage"] == 1.0


async def test_two_nodes_serve_and_label_concurrently(store: Any, open_again: Any) -> None:
    settings = {"follow_seconds": 0.02}
    async with serving(store, **settings) as (local, entry), serving(await open_again(), **settings) as (remote, two):
        for http in (local, remote):
            await http.put("/learners/a", json=SETUPS["dense"])
        nodes = (local, remote)
        await posted(local, "/learners/a/update", labelled("dense", 0, 20))
        events = [event("dense", i) for i in range(20, 120)]
        await asyncio.gather(
            *(posted(nodes[i % 2], "/learners/a/predict", events[i : i + 5]) for i in range(0, 100, 5))
        )
        expected = [{"id": item["id"], "label": i % 2, "time": T0 + 2000} for i, item in enumerate(events)]
        calls = [posted(nodes[i // 3 % 2], "/learners/a/labels", expected[i : i + 3]) for i in range(0, 100, 3)]
        calls += [posted(nodes[i % 2], "/learners/a/predict", [event("dense", 200 + i)]) for i in range(20)]
        calls += [posted(nodes[i % 2], "/learners/a/update", labelled("dense", 300 + i, 301 + i)) for i in range(20)]
        await asyncio.gather(*calls)
        for engine in (entry, two):
            await engine.get("a").log.catch_up()
        await entry.get("a").log.catch_up()
        ends = [await engine.get("a").log.digest() for engine in (entry, two)]
        assert ends[0] == ends[1] == await replayed(store)
        document = (await local.get("/learners/a/metrics")).json()
        assert document == (await remote.get("/learners/a/metrics")).json()
        assert (document["events"], document["served"]["events"], document["served"]["labelled"]) == (140, 120, 100)
