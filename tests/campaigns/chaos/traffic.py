"""Writers: events with ids to every node, each repeated, at whichever node, until it is acknowledged.

Some events go to two nodes at the same time. Some are served first, and labelled by id alone at another node.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import httpx

__all__ = ["CONFIGS", "Acknowledged", "Traffic"]

Event = tuple[list[float], int]

DIM = 4
CONFIGS: dict[str, dict[str, Any]] = {
    "ranked": {"algorithm": "cbr", "params": {"capacity": 5, "buffer": "reservoir"}, "window": 500, "seed": 7},
    "fast": {"algorithm": "loam-ada", "window": 500},
    "decided": {"algorithm": "fofo", "window": 500},
}
for _config in CONFIGS.values():
    _config["features"] = {"kind": "dense", "dim": DIM}

_SECONDS = 10.0  # that a request may take,
_CREATE_SECONDS = 600.0  # and a creation, or a beginning, for which nodes may have to compile their kernels
_SERVED_FIRST = 0.15  # of the batches
_TO_TWO = 0.1
_AGAIN = (429, 503)  # answers upon which the same is sent again


@dataclass
class Acknowledged:
    """What a 200 said of an event."""

    send_time: float  # on the monotonic clock: when the request went out,
    at: float  # and when its reply had come
    position: int


@dataclass
class Traffic:
    """Everything that was sent to some nodes, and what was answered."""

    urls: list[str]
    seed: int
    sent_events: dict[str, dict[str, Event]] = field(default_factory=lambda: {name: {} for name in CONFIGS})
    acknowledged: dict[str, dict[str, Acknowledged]] = field(default_factory=lambda: {name: {} for name in CONFIGS})
    unknown: dict[str, Acknowledged] = field(default_factory=dict)  # served, by ids that no node knew for a label
    retries: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)  # answers that should not be
    answered: dict[str, float] = field(default_factory=dict)  # by node: when it last acknowledged something,
    without_store: dict[str, tuple[float, str]] = field(default_factory=dict)  # and that its store fails, and how
    stopping: bool = False

    async def run(self, writers: int) -> None:
        """Until told to stop, and the last event is acknowledged."""
        async with httpx.AsyncClient(timeout=_SECONDS, trust_env=False) as http:
            await asyncio.gather(*(self._write(http, number) for number in range(writers)))

    async def create(self) -> None:
        """Return the learners."""
        async with httpx.AsyncClient(timeout=_CREATE_SECONDS, trust_env=False) as http:
            for name, config in CONFIGS.items():
                for url in self.urls:  # the first creates it, the others meet it
                    (await http.put(f"{url}/v1/learners/{name}", json=config)).raise_for_status()

    async def under_way(self) -> None:
        """Until each node has acknowledged something, and something of each learner: kernels are compiled by then."""
        async with asyncio.timeout(_CREATE_SECONDS):
            while len(self.answered) < len(self.urls) or not all(self.acknowledged.values()):  # noqa: ASYNC110 (once)
                await asyncio.sleep(0.05)

    @property
    def events(self) -> int:
        """How many were acknowledged."""
        return sum(map(len, self.acknowledged.values()))

    async def _write(self, http: httpx.AsyncClient, number: int) -> None:
        rng = random.Random(f"{self.seed} {number}")
        while not self.stopping:
            name = rng.choice(list(CONFIGS))
            events = self._events(rng, number, name)
            if rng.random() < _SERVED_FIRST:
                await self._served_first(http, rng, name, events)
            elif rng.random() < _TO_TWO:
                await asyncio.gather(*(self._update(http, rng, name, events) for _ in range(2)))
            else:
                await self._update(http, rng, name, events)
            await asyncio.sleep(rng.uniform(0, 0.02))

    def _events(self, rng: random.Random, number: int, name: str) -> dict[str, Event]:
        sent_events = self.sent_events[name]
        events: dict[str, Event] = {}
        for _ in range(rng.choice([1, 1, 2, 5, 20])):
            label = int(rng.random() < 0.2)
            events[f"{number}-{len(sent_events) + len(events)}"] = ([rng.gauss(label, 1.0) for _ in range(DIM)], label)
        sent_events.update(events)
        return events

    async def _update(self, http: httpx.AsyncClient, rng: random.Random, name: str, events: dict[str, Event]) -> None:
        body = [{"id": id, "x": x, "label": label} for id, (x, label) in events.items()]
        reply, send_time = await self._post(http, rng, f"{name}/update", body)
        self._learnt(name, reply, send_time)

    async def _served_first(
        self, http: httpx.AsyncClient, rng: random.Random, name: str, events: dict[str, Event]
    ) -> None:
        body = [{"id": id, "x": x} for id, (x, _) in events.items()]
        reply, send_time = await self._post(http, rng, f"{name}/predict", body)
        if reply["remembered"] != len(events):
            # the store was away: they were scored, and are not remembered, as the reply says
            await self._update(http, rng, name, events)
            return
        served = Acknowledged(send_time, time.monotonic(), reply["position"])
        labels = [{"id": id, "label": label} for id, (_, label) in events.items()]
        reply, send_time = await self._post(http, rng, f"{name}/labels", labels)
        unknown = {result["id"] for result in reply["results"] if result["status"] in ("unknown", "expired")}
        self.unknown.update(dict.fromkeys(unknown, served))
        self._learnt(name, reply, send_time, unknown)
        if unknown:
            await self._update(http, rng, name, {id: events[id] for id in unknown})

    def _learnt(self, name: str, reply: dict[str, Any], send_time: float, but: Collection[str] = ()) -> None:
        now = time.monotonic()
        for result in reply["results"]:
            if result["id"] not in but:
                self.acknowledged[name].setdefault(result["id"], Acknowledged(send_time, now, reply["position"]))
                if result["status"] not in ("applied", "duplicate"):
                    self.wrong.append(f"{result['id']} of {name} is {result['status']}")

    async def _post(
        self, http: httpx.AsyncClient, rng: random.Random, path: str, events: list[dict[str, Any]]
    ) -> tuple[dict[str, Any], float]:
        """Return the reply of the first node that acknowledges it, and when it was sent to that one."""
        while True:
            url, send_time = rng.choice(self.urls), time.monotonic()
            try:
                reply = await http.post(f"{url}/v1/learners/{path}", json={"events": events})
            except httpx.TransportError as error:  # what became of it is not known; the ids will tell
                self.answers[type(error).__name__] += 1
            else:
                self.answers[str(reply.status_code)] += 1
                if reply.status_code == 200:
                    self.answered[url] = time.monotonic()
                    answer: dict[str, Any] = reply.json()
                    return answer, send_time
                if reply.json().get("code") == "store-unavailable":
                    self.without_store[url] = time.monotonic(), reply.json()["detail"]
                if reply.status_code not in _AGAIN:
                    self.wrong.append(f"{path}: {reply.status_code} {reply.text[:300]}")
            self.retries += 1
            await asyncio.sleep(rng.uniform(0.02, 0.2))
