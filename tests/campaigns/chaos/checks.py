"""What has to hold at the end: the log read back, a library run over it, and the nodes beside it.

An event may stand in the log more than once, where it was sent again before its first record was read: what is asked is
that it was learnt once, from one of these. Where nodes trim the log, all of it is read from the append-only file.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np

from learners.config import Config
from learners.learner import Learner
from learners.records import LabelledBatch
from service.engine.records.codec import Created, unpack_record
from service.storage.open_store import open_store
from service.storage.redis.key_names import LOG, KeyNames
from service.storage.store_protocol import LogEntry, Store
from tests.campaigns.chaos.history import entries
from tests.campaigns.chaos.traffic import Event, Traffic

__all__ = ["Verdict", "examine"]

_AGREE_SECONDS = 180.0


@dataclass
class Verdict:
    """What was found of one learner."""

    name: str
    records: int = 0  # of its log that were read, the last of them at this position,
    head: int = 0  # and where the log ends
    learnt: int = 0  # events
    repeated: int = 0  # times that an event stood in the log again, and was not learnt again
    losses: list[str] = field(default_factory=list)  # acknowledged, and never learnt
    twice: list[str] = field(default_factory=list)  # learnt more than once
    changed: list[str] = field(default_factory=list)  # learnt with other features or another label than were sent
    foreign: list[str] = field(default_factory=list)  # learnt, and never sent
    beyond: list[str] = field(default_factory=list)  # acknowledged at a position that the log does not reach
    library: tuple[int, str] = (0, "")  # the position and the digest of a library run over the log
    nodes: list[tuple[int, str]] = field(default_factory=list)  # of each node

    @property
    def whole(self) -> bool:
        """Whether every record of the log was read; else nothing else that was found says much."""
        return self.records == self.head

    @property
    def agree(self) -> bool:
        """Whether all have the same bits."""
        return set(self.nodes) == {self.library}


async def examine(store_url: str, traffic: Traffic, history: Path | None = None) -> list[Verdict]:
    """Judge each learner, once the nodes have read the whole log.

    `history`: the append-only file of the Redis, where the log in it was trimmed.
    """
    store = await open_store(store_url)
    try:
        return [await _verdict(store, name, traffic, history) for name in traffic.sent_events]
    finally:
        await store.close()


async def _read(store: Store, name: str, birth: bytes) -> AsyncIterator[LogEntry]:
    position = 0
    while page := await store.read(name, birth, position, 500):
        for entry in page:
            yield entry
        position = page[-1].position


async def _appended(history: Path, name: str) -> AsyncIterator[LogEntry]:
    for entry in entries(history, KeyNames().of(name, LOG)):
        yield entry


async def _verdict(store: Store, name: str, traffic: Traffic, history: Path | None) -> Verdict:
    head = (await store.heads())[name]
    actual = Verdict(name, head=head.position)
    learnt: Counter[str] = Counter()
    learner: Learner | None = None
    position = 0
    async for entry in _read(store, name, head.birth) if history is None else _appended(history, name):
        if entry.position != position + 1:
            break
        record = unpack_record(entry.data, f"record {entry.position} of {name}")
        position = entry.position
        if isinstance(record, Created):
            learner = Learner(Config.of(record.config))
            continue
        assert learner is not None
        outcome = learner.apply(record)
        if isinstance(record, LabelledBatch):
            assert outcome is not None
            _note(actual, learnt, record, outcome.applied, traffic.sent_events[name])
    assert learner is not None
    acknowledged = traffic.acknowledged[name]
    actual.records, actual.library = position, (position, learner.digest())
    actual.learnt = sum(learnt.values())
    actual.losses = [id for id in acknowledged if id not in learnt]
    actual.twice = [id for id, times in learnt.items() if times > 1]
    actual.foreign = [id for id in learnt if id not in traffic.sent_events[name]]
    actual.beyond = [id for id, item in acknowledged.items() if item.position > position]
    actual.nodes = await _report_of(name, actual.library[0], traffic.urls)
    return actual


def _note(
    verdict: Verdict, learnt: Counter[str], record: LabelledBatch, applied: np.ndarray, sent_events: dict[str, Event]
) -> None:
    assert record.ids is not None
    assert isinstance(record.rows, np.ndarray)
    for i, id in enumerate(record.ids):
        assert id is not None
        if not applied[i]:
            verdict.repeated += 1
            continue
        learnt[id] += 1
        x, label = sent_events.get(id, ([], 0))
        if record.rows[i].tolist() != x or int(record.labels[i] > 0) != label:
            verdict.changed.append(id)


async def _report_of(name: str, position: int, urls: list[str]) -> list[tuple[int, str]]:
    """Return what each node reports of the learner at this position, or after some minutes."""
    async with httpx.AsyncClient(timeout=300, trust_env=False) as http:
        report: list[tuple[int, str]] = []
        try:
            async with asyncio.timeout(_AGREE_SECONDS):
                while True:
                    report = []
                    for url in urls:
                        reply = await http.get(f"{url}/v1/learners/{name}/digest")
                        document = reply.json() if reply.status_code == 200 else {"position": 0, "digest": reply.text}
                        report.append((document["position"], document["digest"]))
                    if all(item[0] == position for item in report):
                        return report
                    await asyncio.sleep(0.2)
        except TimeoutError:
            return report
