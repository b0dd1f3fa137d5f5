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
    quick: bool = False  # a smoke test
    datasets: Path | None = None
    peers_python: Path = Path(sys.executable)

    def few(self, usual: int, quick: int) -> int:
        """Return the usual size, or the quick one."""
        return quick if self.quick else usual


class Sample(NamedTuple):
    """Measurements of one contestant in one round."""

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
        """The 99th percentile of the latency in milliseconds."""
        return self.tails[1]


def sample(traffic: Traffic, events: int = 1) -> Sample:
    """Summarise traffic with `events` per request."""
    answered = len(traffic.latencies)
    p50, p99, p999 = np.percentile(traffic.latencies, [50, 99, 99.9]).tolist()
    return Sample(answered, answered * events, traffic.seconds, traffic.server, traffic.client, (p50, p99, p999))


Measure = Callable[[float], Sample]


class Contest(NamedTuple):
    """The samples of each contestant by round, and why others are absent."""

    samples: dict[str, list[Sample]]
    absent: dict[str, str]

    def ratio(self, name: str, other: str, figure: Callable[[Sample], float]) -> float | None:
        """Return the median over the rounds of the ratio of two contestants; None if either is absent."""
        if name not in self.samples or other not in self.samples:
            return None
        pairs = zip(self.samples[name], self.samples[other], strict=True)
        return median(figure(first) / figure(second) for first, second in pairs)

    def median(self, name: str, figure: Callable[[Sample], float]) -> float | None:
        """Return the median over the rounds; None if the contestant is absent."""
        return median(map(figure, self.samples[name])) if name in self.samples else None

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each contestant; for an absent one its name and the reason."""
        rows: list[dict[str, Any]] = []
        for name, samples in self.samples.items():
            p50, p99, p999 = np.median([item.tails for item in samples], axis=0).tolist()
            rows.append(
                {
                    "what": name,
                    "per second": median(item.per_second for item in samples),
                    "events/s": median(item.events_per_second for item in samples),
                    "per core-second": median(item.per_core_second for item in samples),
                    "CPU us each": 1e6 * median(item.server / item.answered for item in samples),
                    "p50 ms": p50,
                    "p99 ms": p99,
                    "p99.9 ms": p999,
                    "sender busy": median(item.client / item.seconds for item in samples),
                }
            )
        return rows + [{"what": name, "absent": reason} for name, reason in self.absent.items()]


def contest(contestants: Mapping[str, Measure], rounds: int, seconds: float) -> Contest:
    """Measure all contestants in turn, `rounds` times, after a short turn each that does not count.

    A contestant whose server refuses the first request is absent; the others go on.
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
    """A target and the result."""

    what: str
    reached: float | None  # None: not measured
    target: float
    bound: Literal["at least", "at most"] = "at least"

    @property
    def text(self) -> str:
        """The result in words: "reached", or by how much it misses the target."""
        if self.reached is None:
            return "not measured"
        if self.bound == "at least":
            return "reached" if self.reached >= self.target else f"short by {1 - self.reached / self.target:.0%}"
        return "reached" if self.reached <= self.target else f"over by {self.reached / self.target - 1:.0%}"

    def as_json(self) -> dict[str, Any]:
        """Return the parts as JSON."""
        parts = {"what": self.what, "reached": self.reached, self.bound: self.target}
        return {**parts, "verdict": self.text}


@dataclass(frozen=True)
class Case:
    """Result of one case."""

    title: str
    rows: Sequence[Mapping[str, Any]]
    verdicts: Sequence[Verdict] = ()
    notes: Sequence[str] = field(default=())

    def as_json(self) -> dict[str, Any]:
        """Return the parts as JSON."""
        verdicts = [verdict.as_json() for verdict in self.verdicts]
        return {"title": self.title, "rows": list(self.rows), "verdicts": verdicts, "notes": list(self.notes)}
