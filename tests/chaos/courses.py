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
from tests.chaos.cluster import Cluster, Pair
from tests.chaos.faults import Faults
from tests.chaos.traffic import Traffic

__all__ = ["COURSES", "Course", "Report", "run"]

_DRAIN_SECONDS = 180.0
_BEFORE = 10.0  # seconds before a fail-over in which a reply may have told of what the replica never got: see `Course`


@dataclass(frozen=True)
class Course:
    """One way to run, and to break, the service."""

    about: str
    nodes: int
    acks: str | None = None  # None: over SQLite
    appendfsync: str = "always"
    may_lose: bool = False  # what a Redis that failed over never told its replica, as the documents say


COURSES = {
    "replicas": Course("four nodes, Redis with a replica, acks=replicas:1", 4, acks="replicas:1"),
    "memory": Course(
        "four nodes, Redis with a replica, acks=memory", 4, acks="memory", appendfsync="everysec", may_lose=True
    ),
    "sqlite": Course("two nodes over one SQLite file", 2),
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
    def good(self) -> bool:
        """Whether everything held."""
        traffic = self.traffic
        unknown = [id for id, at in traffic.unknown.items() if not self._excused(at)]
        odd = [odd for one in self.verdicts for odd in (*one.twice, *one.changed, *one.foreign)]
        odd += [id for one in self.verdicts for id in one.beyond if not self._excused(self._at(one, id))]
        agree = all(one.agree for one in self.verdicts)
        return self.drained and agree and not (self.lost or odd or unknown or traffic.wrong or self.faults.stuck)

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
    pair = None if course.acks is None else Pair(course.appendfsync)
    settings = {} if course.acks is None else {"acks": course.acks}
    async with Cluster(folder, course.nodes, pair, **settings) as cluster:
        traffic = Traffic([node.url for node in cluster.nodes], seed)
        await traffic.create()
        faults = Faults(cluster, traffic, random.Random(seed))
        began = time.monotonic()
        writing = asyncio.create_task(traffic.run(writers))
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
        verdicts = await examine(cluster.store_url if pair is None else pair.url, traffic)
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
