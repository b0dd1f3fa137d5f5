"""Courses of faults: what runs, for how long, and what may be lost in it."""

from __future__ import annotations

import asyncio
import math
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tests.campaigns.chaos.checks import Verdict, examine
from tests.campaigns.chaos.cluster import Cluster, Servers
from tests.campaigns.chaos.disk import Disk, small_disk
from tests.campaigns.chaos.faults import DISK_FULL, Faults
from tests.campaigns.chaos.jumps import Jumps
from tests.campaigns.chaos.traffic import Acknowledged, Traffic
from tests.harness.redis_server import REDIS, VALKEY

__all__ = ["COURSES", "Course", "Report", "run"]

_DRAIN_SECONDS = 180.0
_UNWRITTEN = 5.0  # seconds before it is killed in which Redis may not have written what it told, where the disk is busy
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
    trims: bool = False  # nodes keep one snapshot, taken often, and of the log what follows it; no replica then

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
    "trimmed": Course(  # the append-only file has the whole log for the checks, if it has each write before the reply
        "four nodes, one Redis with fsync at each write, one snapshot kept and the log before it trimmed",
        4,
        ("node killed", "node stopped", "node paused", "clock jumped", *_OF_LINKS),
        _OF_REDIS,
        acks="memory",
        replica=False,
        trims=True,
    ),
    "sqlite": Course("two nodes over one SQLite file", 2, _OF_NODES, (DISK_FULL, "files kept from growing")),
}

_TRIMMING = {"trim_log": True, "snapshots_kept": 1, "snapshot_events": 100, "snapshot_seconds": 1}


@dataclass
class Report:
    """What a course brought."""

    course: Course
    seconds: float
    traffic: Traffic
    faults: Faults
    verdicts: list[Verdict]
    drained: bool
    jumps: int = 0  # times that a node which ran on began again from a snapshot, the log being trimmed past it
    unmounted: str = ""  # why no disk could be filled, where none could

    def _excused(self, outcome: Acknowledged) -> bool:
        """Whether the documents say that what was so acknowledged may be lost.

        A reply may come after the end of the Redis that it tells of: from a node that was paused, over a slow link.
        """
        fail_over, kill = self._next(self.faults.fail_overs, outcome), self._next(self.faults.kills, outcome)
        return self.course.may_lose and (fail_over <= _BEFORE or kill <= _UNWRITTEN)

    @staticmethod
    def _next(ends: list[float], outcome: Acknowledged) -> float:
        """Seconds from a reply to the next of these; negative, if that came while the request was under way."""
        return min((end - outcome.at for end in ends if end >= outcome.send_time), default=math.inf)

    def _outcome_of(self, verdict_: Verdict, id: str) -> Acknowledged:
        return self.traffic.acknowledged[verdict_.name][id]

    @property
    def excused(self) -> list[str]:
        """Acknowledged, not there, as the documents say."""
        return [
            id for verdict in self.verdicts for id in verdict.losses if self._excused(self._outcome_of(verdict, id))
        ]

    @property
    def losses(self) -> list[str]:
        """Acknowledged, not there, and not excused."""
        return [
            id for verdict in self.verdicts for id in verdict.losses if not self._excused(self._outcome_of(verdict, id))
        ]

    @property
    def long_enough(self) -> bool:
        """Whether every kind of fault of the course has to have been injected."""
        return self.seconds >= self.course.enough_seconds

    @property
    def missing(self) -> list[str]:
        """The kinds of faults of the course that were never injected."""
        return [kind for kind in self.faults.of_nodes + self.faults.of_store if not self.faults.injected.get(kind)]

    @property
    def good(self) -> bool:
        """Whether everything held, and was tried."""
        traffic = self.traffic
        unknown = [id for id, report in traffic.unknown.items() if not self._excused(report)]
        odd = [odd for verdict in self.verdicts for odd in (*verdict.twice, *verdict.changed, *verdict.foreign)]
        odd += [
            id for verdict in self.verdicts for id in verdict.beyond if not self._excused(self._outcome_of(verdict, id))
        ]
        agree = all(verdict.agree and verdict.whole for verdict in self.verdicts)
        untried = self.long_enough and (self.missing or (self.course.trims and not self.jumps))
        actual = self.losses or odd or unknown or traffic.wrong or self.faults.stuck or untried
        return self.drained and agree and not actual

    def lines(self) -> Iterator[str]:
        """Return the report in words."""
        traffic, faults = self.traffic, self.faults
        yield f"{self.course.about}: {self.seconds:.0f} s, seed {traffic.seed}"
        answers = ", ".join(f"{count:,} x {what}" for what, count in sorted(traffic.answers.items()))
        yield f"  events acknowledged {traffic.events:,}, requests sent again {traffic.retries:,}; answers: {answers}"
        yield f"  {'fault':30} {'times':>5}   served again after (median, longest)"
        for kind, times in sorted(faults.injected.items()):
            actual = faults.recovered.get(kind)
            took = f"{median(actual):.2f} s, {max(actual):.2f} s" if actual else "-"
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
        for kind, message in sorted(faults.reports):
            yield f"  {kind}: nodes said {message!r}"
        if self.unmounted:
            yield f"  {DISK_FULL}: not tried, as no file system could be mounted to be filled: {self.unmounted}"
        if self.course.trims:
            never = "" if self.jumps else "; NEVER TRIED" if self.long_enough else "; TOO SHORT for it"
            yield (
                "  times that a node which ran on found the log trimmed past it, and began again from a snapshot: "
                f"{self.jumps}{never}"
            )
        for verdict in self.verdicts:
            yield (
                f"  {verdict.name}: {verdict.records:,} records, {verdict.learnt:,} events learnt; "
                f"{verdict.repeated:,} logged again and not learnt again; "
                f"acknowledged and never learnt {len(verdict.losses)}, "
                f"learnt more than once {len(verdict.twice)}, learnt with other values {len(verdict.changed)}, "
                f"never sent {len(verdict.foreign)}; "
                f"digests of {len(verdict.nodes)} nodes and of a library run over the log "
                f"{'agree' if verdict.agree else f'DIFFER: {verdict.library} {verdict.nodes}'}"
            )
            if not verdict.whole:
                records = f"{verdict.records:,} of {verdict.head:,} records"
                yield f"  {verdict.name}: THE CHECK IS INCOMPLETE: {records} could be read"
        if self.excused:
            yield (
                f"  of those never learnt {len(self.excused)} were acknowledged up to {_BEFORE:g} s before a "
                f"fail-over, or {_UNWRITTEN:g} s before Redis was killed, as acks=memory with everysec allows"
            )
        for verdict in self.verdicts:
            for id in verdict.losses:
                report = self._outcome_of(verdict, id)
                ends = (self.faults.fail_overs, self.faults.kills)
                fail_over, kill = (f"{self._next(ends_, report):.2f} s" for ends_ in ends)
                when = f"{fail_over} before a fail-over, {kill} before a kill"
                after = f"{report.at - report.send_time:.2f} s after sending"
                yield f"  {verdict.name} never learnt {id}, acknowledged {when}, {after}"
        for what, actual in (("not served again", faults.stuck), ("wrong answers", traffic.wrong)):
            if actual:
                yield f"  {what}: {len(actual)}: {'; '.join(actual[:5])}"
        if traffic.unknown:
            yield f"  ids that were served, acknowledged, and unknown to a later label: {len(traffic.unknown)}"
        if not self.drained:
            yield f"  writers still had events that nobody acknowledged after {_DRAIN_SECONDS:g} s"
        if self.good:
            but = " but for what acks=memory may lose" if self.excused else ""
            yield f"  everything held: each event that was acknowledged{but} was learnt exactly once"
        else:
            yield "  NOT EVERYTHING HELD"


def _history(course: Course, folder: Path) -> Path | None:
    """Return the append-only file that the checks read, where the log is trimmed."""
    if not course.trims:
        return None
    (folder / "redis").mkdir(exist_ok=True)
    file = folder / "redis" / "appendonly.aof"
    file.unlink(missing_ok=True)  # of an earlier run, whose logs are kept here
    return file


async def _course(course: Course, seconds: float, seed: int, folder: Path, writers: int) -> Report:
    settings: dict[str, object] = {} if course.acks is None else {"acks": course.acks}
    settings |= _TRIMMING if course.trims else {}
    of_store, history = course.of_store, _history(course, folder)
    async with AsyncExitStack() as stack:
        if course.acks is None:
            store: Disk | Servers = stack.enter_context(small_disk(folder / "disk"))
        else:
            store = Servers(
                course.binary, course.appendfsync, course.replica, None if history is None else history.parent
            )
        unmounted = store.refused if isinstance(store, Disk) else ""
        if unmounted:
            of_store = tuple(kind for kind in of_store if kind != DISK_FULL)
        cluster = await stack.enter_async_context(Cluster(folder, course.nodes, store, **settings))
        traffic = Traffic([node.url for node in cluster.nodes], seed)
        await traffic.create()
        faults = Faults(cluster, traffic, random.Random(seed), course.of_nodes, of_store)
        jumps = Jumps(cluster.nodes)
        writing = asyncio.create_task(traffic.run(writers))
        beginning = asyncio.create_task(traffic.under_way())
        done, _ = await asyncio.wait((writing, beginning), return_when=asyncio.FIRST_COMPLETED)
        for task in done:  # an error of ours
            task.result()
        began = time.monotonic()
        watching = asyncio.create_task(jumps.run())
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
        verdicts = await examine(cluster.store_url, traffic, history)
        jumps.stopping = True
        await watching
    return Report(course, lasted, traffic, faults, verdicts, drained, jumps.count, unmounted)


def run(name: str, seconds: float, seed: int = 0, writers: int = 6, keep: Path | None = None) -> Report:
    """Run a course, which takes some more seconds than are asked for: for its start, its end and the checks.

    `keep`: the folder for the logs of the nodes, else a temporary one.
    """
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        return asyncio.run(_course(COURSES[name], seconds, seed, keep, writers))
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        return asyncio.run(_course(COURSES[name], seconds, seed, Path(folder), writers))
