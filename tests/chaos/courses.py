"""Courses of faults: what runs, for how long, and what may be lost in it."""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tests.chaos.checks import Verdict, examine
from tests.chaos.cluster import Cluster, Servers
from tests.chaos.faults import Faults
from tests.chaos.traffic import Traffic
from tests.service.redis_server import REDIS, VALKEY

__all__ = ["COURSES", "Course", "Report", "run"]

_DRAIN_SECONDS = 180.0
_BEFORE = 10.0  # seconds before a fail-over in which a reply may have told of what the replica never got: see `Course`
_EACH_SECONDS = 20.0  # for each kind of fault, one after the other; on two busy cores one takes some 5 to 10

_OF_NODES = (
    "node killed",
    "node stopped",
    "node paused",
    "clock jumped",
    "clients cut off",
    "clients' pieces truncated",
    "clients' requests duplicated",
)
_OF_LINKS = (
    "node cut off from Redis",
    "packets to Redis lost",
    "Redis far away",
    "pieces to Redis truncated",
    "commands to Redis duplicated",
)
_OF_REDIS = ("Redis killed", "Redis paused")


@dataclass(frozen=True)
class Course:
    """One way to run, and to break, the service."""

    about: str
    nodes: int
    of_nodes: tuple[str, ...]  # the kinds of faults that belong to it, of nodes and what leads to them,
    of_store: tuple[str, ...]  # and of their store
    acks: str | None = None  # None: over SQLite
    binary: str = REDIS
    appendfsync: str = "always"
    replica: bool = True
    may_lose: bool = False  # what a Redis that failed over never told its replica, as the documents say

    @property
    def enough_seconds(self) -> float:
        """After which a kind that was never injected is one that does not work; both sorts go on side by side."""
        return _EACH_SECONDS * max(len(self.of_nodes), len(self.of_store))


COURSES = {
    "replicas": Course(
        "four nodes, Redis with a replica, acks=replicas:1",
        4,
        _OF_NODES + _OF_LINKS,
        (*_OF_REDIS, "Redis failed over"),
        acks="replicas:1",
    ),
    "memory": Course(
        "four nodes, Redis with a replica, acks=memory",
        4,
        _OF_NODES + _OF_LINKS,
        (*_OF_REDIS, "Redis failed over"),
        acks="memory",
        appendfsync="everysec",
        may_lose=True,
    ),
    "aof": Course(  # alone: what is on the disk of one server is not promised to be on another's
        "four nodes, one Redis with WAITAOF, acks=aof",
        4,
        _OF_NODES + _OF_LINKS,
        _OF_REDIS,
        acks="aof",
        binary=VALKEY,
        appendfsync="everysec",
        replica=False,
    ),
    "sqlite": Course("two nodes over one SQLite file", 2, _OF_NODES, ("disk full",)),
}


@dataclass
class Report:
    """What a course brought."""

    course: Course
    seconds: float
    traffic: Traffic
    faults: Faults
    verdicts: list[Verdict]
    drained: bool

    def _excused(self, at: float) -> bool:
        """Whether the documents say that what was acknowledged at that time may be lost."""
        return self.course.may_lose and any(0 <= end - at <= _BEFORE for end in self.faults.fail_overs)

    def _at(self, one: Verdict, id: str) -> float:
        return self.traffic.acknowledged[one.name][id].at

    @property
    def excused(self) -> list[str]:
        """Acknowledged, not there, as the documents say."""
        return [id for one in self.verdicts for id in one.lost if self._excused(self._at(one, id))]

    @property
    def lost(self) -> list[str]:
        """Acknowledged, not there, and not excused."""
        return [id for one in self.verdicts for id in one.lost if not self._excused(self._at(one, id))]

    @property
    def long_enough(self) -> bool:
        """Whether every kind of fault of the course has to have been injected."""
        return self.seconds >= self.course.enough_seconds

    @property
    def missing(self) -> list[str]:
        """The kinds of faults of the course that were never injected."""
        return [kind for kind in self.course.of_nodes + self.course.of_store if not self.faults.injected.get(kind)]

    @property
    def good(self) -> bool:
        """Whether everything held, and was tried."""
        traffic = self.traffic
        unknown = [id for id, at in traffic.unknown.items() if not self._excused(at)]
        odd = [odd for one in self.verdicts for odd in (*one.twice, *one.changed, *one.foreign)]
        odd += [id for one in self.verdicts for id in one.beyond if not self._excused(self._at(one, id))]
        agree = all(one.agree for one in self.verdicts)
        untried = self.long_enough and self.missing
        found = self.lost or odd or unknown or traffic.wrong or self.faults.stuck or untried
        return self.drained and agree and not found

    def lines(self) -> Iterator[str]:
        """The report in words."""
        traffic, faults = self.traffic, self.faults
        yield f"{self.course.about}: {self.seconds:.0f} s, seed {traffic.seed}"
        answers = ", ".join(f"{count:,} x {what}" for what, count in sorted(traffic.answers.items()))
        yield f"  events acknowledged {traffic.events:,}, requests sent again {traffic.retries:,}; answers: {answers}"
        yield f"  {'fault':30} {'times':>5}   served again after (median, longest)"
        for kind, times in sorted(faults.injected.items()):
            found = faults.recovered.get(kind)
            took = f"{median(found):.2f} s, {max(found):.2f} s" if found else "-"
            yield f"  {kind:30} {times:5}   {took}"
        yield f"  faults in all {sum(faults.injected.values())}"
        if faults.vain:
            yield f"  of no effect: {', '.join(f'{kind} {times}' for kind, times in sorted(faults.vain.items()))}"
        if not self.missing:
            yield "  every kind of fault of this course was injected"
        elif self.long_enough:
            yield f"  NEVER INJECTED: {', '.join(self.missing)}"
        else:
            yield (
                f"  TOO SHORT for every kind of fault, which takes up to {self.course.enough_seconds:.0f} s; "
                f"not injected: {', '.join(self.missing)}"
            )
        for one in self.verdicts:
            yield (
                f"  {one.name}: {one.records:,} records, {one.learnt:,} events learnt, {one.repeated:,} repeats in the "
                f"log learnt once, {len(one.lost)} lost, {len(one.twice)} twice, {len(one.changed)} changed, "
                f"{len(one.foreign)} never sent; digests of {len(one.nodes)} nodes and of a library run over the log "
                f"{'agree' if one.agree else f'DIFFER: {one.library} {one.nodes}'}"
            )
        if self.excused:
            yield (
                f"  of those lost {len(self.excused)} were acknowledged up to {_BEFORE:g} s before a fail-over, as "
                "acks=memory allows"
            )
        for what, found in (("not served again", faults.stuck), ("wrong answers", traffic.wrong)):
            if found:
                yield f"  {what}: {len(found)}: {'; '.join(found[:5])}"
        if traffic.unknown:
            yield f"  ids that were served, acknowledged, and unknown to a later label: {len(traffic.unknown)}"
        if not self.drained:
            yield f"  writers still had events that nobody acknowledged after {_DRAIN_SECONDS:g} s"
        yield "  everything held" if self.good else "  NOT EVERYTHING HELD"


async def _course(course: Course, seconds: float, seed: int, folder: Path, writers: int) -> Report:
    servers = None if course.acks is None else Servers(course.binary, course.appendfsync, course.replica)
    settings = {} if course.acks is None else {"acks": course.acks}
    async with Cluster(folder, course.nodes, servers, **settings) as cluster:
        traffic = Traffic([node.url for node in cluster.nodes], seed)
        await traffic.create()
        faults = Faults(cluster, traffic, random.Random(seed), course.of_nodes, course.of_store)
        writing = asyncio.create_task(traffic.run(writers))
        beginning = asyncio.create_task(traffic.under_way())
        done, _ = await asyncio.wait((writing, beginning), return_when=asyncio.FIRST_COMPLETED)
        for task in done:  # an error of ours
            task.result()
        began = time.monotonic()
        breaking = asyncio.create_task(faults.run())
        done, _ = await asyncio.wait((writing, breaking), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in done:  # an error of ours
            task.result()
        faults.stopping = True
        await breaking
        lasted = time.monotonic() - began
        traffic.stopping = True
        done, _ = await asyncio.wait((writing,), timeout=_DRAIN_SECONDS)
        drained = bool(done)
        if drained:
            writing.result()
        else:
            writing.cancel()
            await asyncio.wait((writing,))
        verdicts = await examine(cluster.store_url, traffic)
    return Report(course, lasted, traffic, faults, verdicts, drained)


def run(name: str, seconds: float, seed: int = 0, writers: int = 6, keep: Path | None = None) -> Report:
    """Run a course, which takes some more seconds than are asked for: for its start, its end and the checks.

    `keep`: the folder for the logs of the nodes, else a temporary one.
    """
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        return asyncio.run(_course(COURSES[name], seconds, seed, keep, writers))
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        return asyncio.run(_course(COURSES[name], seconds, seed, Path(folder), writers))
