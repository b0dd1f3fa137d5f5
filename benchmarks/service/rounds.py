"""Contests: each contestant is measured for a while, then the next, then all of them again; figures are medians.

What two contestants reach is compared round by round, so that what else the machine did in a round falls on both.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Literal, NamedTuple

import numpy as np

from benchmarks.service.http_load import LoadFailed, Traffic
from benchmarks.service.processors import Cores

__all__ = ["TICK", "Case", "Contest", "Measure", "Run", "Sample", "Verdict", "contest", "sample"]

TICK = 0.01  # seconds: what the kernel counts a process's time in


class Run(NamedTuple):
    """How to measure."""

    cores: Cores
    folder: Path  # of stores and logs
    rounds: int
    seconds: float  # of each contestant in a round
    quick: bool = False  # whether only to see that it works
    datasets: Path | None = None
    peers_python: Path = Path(sys.executable)

    def few(self, usual: int, quick: int) -> int:
        """A size: the usual one, or the quick one."""
        return quick if self.quick else usual


class Sample(NamedTuple):
    """What one contestant did in one round."""

    answered: int  # requests or messages
    events: int
    seconds: float
    server: float  # processor seconds of the server, all its threads
    client: float  # processor seconds of the sender
    tails: tuple[float, float, float]  # milliseconds: p50, p99, p99.9

    @property
    def per_core_second(self) -> float:
        """Requests or messages answered in each second of the server's processor time."""
        return self.answered / max(self.server, TICK)

    @property
    def per_second(self) -> float:
        """Requests or messages answered in a second."""
        return self.answered / self.seconds

    @property
    def events_per_second(self) -> float:
        """Events answered for in a second."""
        return self.events / self.seconds

    @property
    def p99(self) -> float:
        """Milliseconds that one request in a hundred takes, at least."""
        return self.tails[1]


def sample(traffic: Traffic, events: int = 1) -> Sample:
    """Of traffic with so many events in each request."""
    answered = len(traffic.latencies)
    p50, p99, p999 = np.percentile(traffic.latencies, [50, 99, 99.9]).tolist()
    return Sample(answered, answered * events, traffic.seconds, traffic.server, traffic.client, (p50, p99, p999))


Measure = Callable[[float], Sample]


class Contest(NamedTuple):
    """The samples of each contestant, round by round, and why others have none."""

    samples: dict[str, list[Sample]]
    absent: dict[str, str]

    def ratio(self, name: str, other: str, figure: Callable[[Sample], float]) -> float | None:
        """The median over the rounds of one's figure by the other's; None where either is absent."""
        if name not in self.samples or other not in self.samples:
            return None
        pairs = zip(self.samples[name], self.samples[other], strict=True)
        return median(figure(one) / figure(two) for one, two in pairs)

    def median(self, name: str, figure: Callable[[Sample], float]) -> float | None:
        """The median over the rounds; None where it is absent."""
        return median(map(figure, self.samples[name])) if name in self.samples else None

    def rows(self) -> list[dict[str, Any]]:
        """A row of figures for each contestant; of an absent one, its name and the reason."""
        made: list[dict[str, Any]] = []
        for name, samples in self.samples.items():
            p50, p99, p999 = np.median([one.tails for one in samples], axis=0).tolist()
            made.append(
                {
                    "what": name,
                    "per second": median(one.per_second for one in samples),
                    "events/s": median(one.events_per_second for one in samples),
                    "per core-second": median(one.per_core_second for one in samples),
                    "CPU us each": 1e6 * median(one.server / one.answered for one in samples),
                    "p50 ms": p50,
                    "p99 ms": p99,
                    "p99.9 ms": p999,
                    "sender busy": median(one.client / one.seconds for one in samples),
                }
            )
        return made + [{"what": name, "absent": reason} for name, reason in self.absent.items()]


def contest(contestants: Mapping[str, Measure], rounds: int, seconds: float) -> Contest:
    """Measure all of them in turn, `rounds` times, after a short turn each that does not count.

    Who cannot do it (the server refuses the first request) is absent, and the others go on.
    """
    absent: dict[str, str] = {}
    for name, measure in contestants.items():
        try:
            measure(min(0.3, seconds))
        except LoadFailed as error:
            absent[name] = str(error)
    present = {name: measure for name, measure in contestants.items() if name not in absent}
    samples: dict[str, list[Sample]] = {name: [] for name in present}
    for _ in range(rounds):
        for name, measure in present.items():
            samples[name].append(measure(seconds))
    return Contest(samples, absent)


@dataclass(frozen=True)
class Verdict:
    """What was asked for, and what came out."""

    what: str
    reached: float | None  # None: not measured
    asked: float
    bound: Literal["at least", "at most"] = "at least"

    @property
    def said(self) -> str:
        """`reached`, or by how much it is missed."""
        if self.reached is None:
            return "not measured"
        if self.bound == "at least":
            return "reached" if self.reached >= self.asked else f"short by {1 - self.reached / self.asked:.0%}"
        return "reached" if self.reached <= self.asked else f"over by {self.reached / self.asked - 1:.0%}"

    def as_json(self) -> dict[str, Any]:
        """Its parts."""
        parts = {"what": self.what, "reached": self.reached, self.bound: self.asked}
        return {**parts, "verdict": self.said}


@dataclass(frozen=True)
class Case:
    """What came out of one case."""

    title: str
    rows: Sequence[Mapping[str, Any]]
    verdicts: Sequence[Verdict] = ()
    notes: Sequence[str] = field(default=())

    def as_json(self) -> dict[str, Any]:
        """Its parts."""
        verdicts = [verdict.as_json() for verdict in self.verdicts]
        return {"title": self.title, "rows": list(self.rows), "verdicts": verdicts, "notes": list(self.notes)}
