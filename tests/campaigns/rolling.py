"""A rolling restart under load: clients write to and ask several workers behind one port while all are replaced.

    python -m tests.campaigns.rolling --seconds 20 --restarts 1 [--workers 4]

Writers post batches of events with ids, predictors ask for scores; each sends a request once more where the connection
fails, and no further. At the end nobody may have seen an error, every acknowledged event has to be in the log, every
event there has to have been learnt exactly once, however often it stands in it, and all workers have to agree with a
library run over it.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from websockets.exceptions import ConnectionClosed, InvalidHandshake
from websockets.sync.client import connect

from tests.campaigns.kill import CONFIG, NAME, _library_digest, _logged_ids
from tests.harness.process import ROLLING_RESTART, Process
from tests.harness.redis_server import RedisServer
from tests.harness.scrapes import samples

__all__ = ["Result", "campaign", "digests"]

_COUNT = "rarestream_request_seconds_count"


@dataclass
class Client:
    """Sends one request after the other over connections that are kept open."""

    number: int
    url: str
    stop: threading.Event
    kind: str  # "update", "predict", or "socket": updates over a websocket
    sent_events: dict[str, tuple[list[float], int]] = field(default_factory=dict)  # every event by id
    acknowledged: set[str] = field(default_factory=set)
    requests: int = 0
    retried: int = 0
    longest: float = 0.0  # seconds from a request to its answer, retry included
    errors: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Until told to stop."""
        rng = random.Random(self.number)
        try:
            if self.kind == "socket":
                self._stream(rng)
            else:
                with httpx.Client(timeout=300, trust_env=False) as http:
                    while not self.stop.is_set():
                        self._ask(http, self._events(rng))
                        time.sleep(rng.choice([0, 0, 0, 0.002, 0.02]))  # a connection is idle now and then
        except Exception as error:  # an end of the thread that nobody sees would be no error
            self.errors.append(repr(error))
            raise

    def _events(self, rng: random.Random) -> list[dict[str, Any]]:
        events = []
        for _ in range(rng.choice([1, 1, 2, 5, 20])):
            label = int(rng.random() < 0.2)
            x = [rng.gauss(label, 1.0) for _ in range(4)]
            if self.kind == "predict":
                events.append({"x": x})
                continue
            name = f"c{self.number}-{len(self.sent_events)}"
            self.sent_events[name] = (x, label)
            events.append({"id": name, "x": x, "label": label})
        return events

    def _ask(self, http: httpx.Client, events: list[dict[str, Any]]) -> None:
        operation = "predict" if self.kind == "predict" else "update"
        began = time.monotonic()
        self.requests += 1
        for attempt in range(2):
            try:
                reply = http.post(f"{self.url}/v1/learners/{NAME}/{operation}", json={"events": events})
            except httpx.TransportError as error:
                self.retried += 1
                if attempt:
                    self.errors.append(repr(error))
                continue
            self._answered(reply.status_code, reply.json(), began)
            return

    def _answered(self, status: int, reply: dict[str, Any], began: float) -> None:
        self.longest = max(self.longest, time.monotonic() - began)
        if status != 200 or len(reply["results"]) == 0:
            self.errors.append(f"{status} {reply}")
        elif self.kind != "predict":
            self.acknowledged.update(result["id"] for result in reply["results"])

    def _stream(self, rng: random.Random) -> None:
        """Send one message after the other; after a close, go on over a new websocket."""
        url = f"{self.url.replace('http', 'ws')}/v1/learners/{NAME}/ws"
        events = self._events(rng)
        retries = 0
        while not self.stop.is_set():
            try:
                with connect(url, proxy=None, compression=None) as socket:
                    socket.recv()
                    while not self.stop.is_set():
                        began = time.monotonic()
                        socket.send(json.dumps({"seq": 1, "op": "update", "events": events}))
                        self._answered(200, json.loads(socket.recv()), began)
                        self.requests += 1
                        retries = 0
                        events = self._events(rng)
                        time.sleep(0.002)
            except (ConnectionClosed, InvalidHandshake, OSError) as error:
                self.retried += 1
                retries += 1
                code = error.rcvd.code if isinstance(error, ConnectionClosed) and error.rcvd else None
                if code not in (1001, None) or retries > 1:
                    self.errors.append(repr(error))


@dataclass
class Result:
    """What a campaign found."""

    workers: int
    requests: Counter[str]
    retried: Counter[str]
    errors: list[str]
    longest: float
    seconds: float  # that the restarts took
    sent_events: int
    acknowledged: int
    losses: list[str]
    twice: list[str]  # learnt, not only sent, twice
    digests: dict[str, tuple[int, str]]  # of each worker
    library_digest: str

    @property
    def good(self) -> bool:
        """No error, nothing lost, nothing twice, the same bits everywhere."""
        agreed = [digest for _, digest in self.digests.values()] == [self.library_digest] * self.workers
        return not self.errors and not self.losses and not self.twice and agreed

    def __str__(self) -> str:
        return (
            f"{self.workers} workers replaced in {self.seconds:.1f} s; requests {dict(self.requests)}, sent once more "
            f"{dict(self.retried)}, errors {len(self.errors)} {self.errors[:3]}, longest {1000 * self.longest:.0f} ms; "
            f"{self.sent_events} events sent, {self.acknowledged} acknowledged, "
            f"{len(self.losses)} lost, {len(self.twice)} learnt twice; "
            f"digests {self.digests}, library {self.library_digest}: "
            f"{'agree' if self.good else 'DIFFER'}"
        )


def digests(url: str, workers: int) -> dict[str, tuple[int, str]]:
    """Return position and digest of the learner at rest from each worker; `/metrics` tells which has answered.

    Each is asked over a connection of its own, which stays open, so that the next goes to another.
    """
    report: dict[str, tuple[int, str]] = {}
    before = _tellers(url, workers)
    with ExitStack() as opened:
        for _ in range(100):
            http = opened.enter_context(httpx.Client(trust_env=False, timeout=300))
            document = http.get(f"{url}/v1/learners/{NAME}/digest").raise_for_status().json()
            after = _tellers(url, workers)
            (worker,) = (item for item, count in after.items() if count > before.get(item, 0))
            report[worker] = (document["position"], document["digest"])
            before = after
            if len(report) == workers:
                break
    return report


def _tellers(url: str, workers: int) -> dict[str, float]:
    """How many digests each worker has told; all of them have to answer the scrape."""
    for _ in range(100):
        actual = samples(httpx.get(f"{url}/metrics", trust_env=False, timeout=300).raise_for_status().text)
        if actual["rarestream_workers", ()] == workers:
            break
    report = ((dict(labels), count) for (name, labels), count in actual.items() if name == _COUNT)
    return {item["worker"]: count for item, count in report if item["route"] == "/v1/learners/{name}/digest"}


def campaign(process: Process, store_url: str, seconds: float, restarts: int, workers: int) -> Result:
    """Load for so long, with restarts in the middle of it; the service runs, with so many workers, and goes on to."""
    stop = threading.Event()
    address = f"{process.url}/v1/learners/{NAME}"  # the first of its kind may have its kernels compiled
    httpx.put(address, json=CONFIG, trust_env=False, timeout=600).raise_for_status()
    time.sleep(2.0)  # until every worker has it
    kinds = ["update", "update", "update", "predict", "predict", "predict", "socket"]
    clients = [Client(number, process.url, stop, kind) for number, kind in enumerate(kinds)]
    threads = [threading.Thread(target=client.run) for client in clients]
    for thread in threads:
        thread.start()
    duration = 0.0
    try:
        time.sleep(seconds / 3)
        for round_number in range(1, restarts + 1):
            began = time.monotonic()
            process.hang_up()
            process.wait_for(ROLLING_RESTART, round_number)
            duration += time.monotonic() - began
        time.sleep(seconds / 3)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    time.sleep(2.5)  # until every worker has followed
    ids, _ = asyncio.run(_logged_ids(store_url))
    sent_events = {name: event for client in clients for name, event in client.sent_events.items()}
    acknowledged = set().union(*(client.acknowledged for client in clients))
    counts = httpx.get(f"{process.url}/v1/learners/{NAME}", trust_env=False, timeout=300).json()["class_counts"]
    learnt = counts["negative"] + counts["positive"]
    unique = list(dict.fromkeys(ids))
    requests: Counter[str] = Counter()
    retried: Counter[str] = Counter()
    for item in clients:
        requests[item.kind] += item.requests
        retried[item.kind] += item.retried
    return Result(
        workers=workers,
        requests=requests,
        retried=retried,
        errors=list(itertools.chain.from_iterable(client.errors for client in clients)),
        longest=max(client.longest for client in clients),
        seconds=duration,
        sent_events=len(sent_events),
        acknowledged=len(acknowledged),
        losses=sorted(acknowledged - set(ids)),
        twice=[] if learnt == len(unique) else [f"{learnt} events learnt, {len(unique)} different ones in the log"],
        digests=digests(process.url, workers),
        library_digest=_library_digest(ids, sent_events),
    )


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--restarts", type=int, default=1)
    parser.add_argument("--workers", type=int, default=4)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, RedisServer() as redis:
        log = Path(folder, "log")
        with Process(redis.url, log, workers=options.workers, trim_log=False) as process:
            result = campaign(process, redis.url, options.seconds, options.restarts, options.workers)
            process.stop()
    print(result)
    raise SystemExit(0 if result.good else 1)


if __name__ == "__main__":
    main()
