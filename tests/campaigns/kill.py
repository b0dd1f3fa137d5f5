"""The kill campaign: clients post while the server is killed again and again; then every promise is checked.

    python -m tests.campaigns.kill --kills 300 [--store sqlite|redis]

Several clients post batches of events with ids and repeat each until it is acknowledged. The server is ended by
SIGKILL at random moments and started again. At the end every acknowledged event must be in the log, every event must
have been learnt exactly once, and the server's digest must be that of a library run over the log's order.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from learners import create
from learners.records import LabelledBatch
from service.engine.records.codec import unpack_record
from service.storage.open_store import open_store
from tests.harness.process import Process
from tests.harness.redis_server import RedisServer

CONFIG: dict[str, Any] = {
    "algorithm": "cbr",
    "params": {"capacity": 5, "buffer": "reservoir"},
    "features": {"kind": "dense", "dim": 4},
    "window": 500,
    "seed": 7,
}
NAME = "killed"


@dataclass
class Client:
    """Posts its batches one after the other, each until it is acknowledged."""

    number: int
    url: str
    stop: threading.Event
    sent_events: dict[str, tuple[list[float], int]] = field(default_factory=dict)  # every event by id
    acknowledged: set[str] = field(default_factory=set)
    retries: int = 0
    wrong: list[str] = field(default_factory=list)  # answers that should not be

    def run(self) -> None:
        """Until told to stop, and the last batch is acknowledged."""
        rng = random.Random(self.number)
        with httpx.Client(timeout=300, trust_env=False) as http:
            while not self.stop.is_set():
                self._post(http, self._events(rng))

    def _events(self, rng: random.Random) -> list[dict[str, Any]]:
        events = []
        for _ in range(rng.choice([1, 1, 2, 5, 20])):
            label = int(rng.random() < 0.2)
            x = [rng.gauss(label, 1.0) for _ in range(4)]
            name = f"c{self.number}-{len(self.sent_events)}"
            self.sent_events[name] = (x, label)
            events.append({"id": name, "x": x, "label": label})
        return events

    def _post(self, http: httpx.Client, events: list[dict[str, Any]]) -> None:
        while True:
            try:
                reply = http.post(f"{self.url}/v1/learners/{NAME}/update", json={"events": events})
            except httpx.TransportError:  # killed before the answer: was it logged? the ids will tell
                self.retries += 1
                time.sleep(0.02)
                continue
            if reply.status_code == 200:
                self.acknowledged.update(result["id"] for result in reply.json()["results"])
                return
            if reply.status_code != 503:  # 503: started, but its learners are not loaded yet, or the store is away
                self.wrong.append(f"{reply.status_code} {reply.text[:300]}")
                return
            self.retries += 1
            time.sleep(0.05)


@dataclass
class Result:
    """What a campaign found."""

    kills: int
    events: int
    acknowledged: int
    retries: int
    records: int
    repeated: int  # times that an event was in the log once more
    losses: list[str]
    wrong: list[str]
    server: dict[str, Any]
    library_digest: str

    @property
    def good(self) -> bool:
        """Nothing lost, nothing twice, the same bits."""
        counts = self.server["class_counts"]
        exact = counts["negative"] + counts["positive"] == self.events
        return not self.losses and not self.wrong and exact and self.server["digest"] == self.library_digest

    def __str__(self) -> str:
        return (
            f"{self.kills} kills, {self.events} events sent, {self.acknowledged} acknowledged, "
            f"{len(self.losses)} lost, {self.retries} retries, {self.records} records, "
            f"{self.repeated} repeated in the log and learnt once; "
            f"server {self.server['digest']}, library {self.library_digest}: {'agree' if self.good else 'DIFFER'}"
        )


async def _logged_ids(store_url: str) -> tuple[list[str], int]:
    """Return the event ids in log order, repeats included, and how many records there are."""
    store = await open_store(store_url)
    try:
        birth = (await store.heads())[NAME].birth
        ids: list[str] = []
        position = 0
        while entries := await store.read(NAME, birth, position, 500):
            for entry in entries:
                record = unpack_record(entry.data, f"record {entry.position}")
                if isinstance(record, LabelledBatch):
                    ids += [item or "" for item in record.ids or ()]
                position = entry.position
    finally:
        await store.close()
    return ids, position


def _library_digest(ids: list[str], sent_events: dict[str, tuple[list[float], int]]) -> str:
    settings = {key: value for key, value in CONFIG.items() if key not in ("algorithm", "params")}
    learner = create(CONFIG["algorithm"], **CONFIG["params"], **settings)
    events = [sent_events[name] for name in ids]
    learner.learn(np.array([x for x, _ in events]), [label for _, label in events], ids=ids)
    return learner.digest()


def campaign(store_url: str, log: Path, kills: int, clients: int = 4, seed: int = 0) -> Result:
    """Run one; blocks until it is over."""
    rng = random.Random(seed)
    process = Process(store_url, log, trim_log=False, snapshot_events=200, snapshot_seconds=0.5)
    stop = threading.Event()
    posting = [Client(number, process.url, stop) for number in range(clients)]
    threads = [threading.Thread(target=client.run) for client in posting]
    with process:
        httpx.put(f"{process.url}/v1/learners/{NAME}", json=CONFIG, trust_env=False, timeout=300).raise_for_status()
        for thread in threads:
            thread.start()
        try:
            for _ in range(kills):
                time.sleep(rng.uniform(0.02, 0.5))
                process.kill()
                process.start()
            time.sleep(0.3)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        server = httpx.get(f"{process.url}/v1/learners/{NAME}/digest", timeout=300, trust_env=False).json()
        server |= httpx.get(f"{process.url}/v1/learners/{NAME}", trust_env=False, timeout=300).json()
    ids, records = asyncio.run(_logged_ids(store_url))
    sent_events = {name: event for client in posting for name, event in client.sent_events.items()}
    acknowledged = set().union(*(client.acknowledged for client in posting))
    return Result(
        kills=kills,
        events=len(sent_events),
        acknowledged=len(acknowledged),
        retries=sum(client.retries for client in posting),
        records=records,
        repeated=len(ids) - len(set(ids)),
        losses=sorted(acknowledged - set(ids)),
        wrong=[item for client in posting for item in client.wrong],
        server=server,
        library_digest=_library_digest(ids, sent_events),
    )


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--store", choices=["sqlite", "redis"], default="sqlite")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        if options.store == "sqlite":
            result = campaign(f"sqlite:///{path / 'log.db'}", path / "server.log", options.kills, seed=options.seed)
        else:
            with RedisServer() as redis:
                result = campaign(redis.url, path / "server.log", options.kills, seed=options.seed)
    print(result)
    raise SystemExit(0 if result.good else 1)


if __name__ == "__main__":
    main()
