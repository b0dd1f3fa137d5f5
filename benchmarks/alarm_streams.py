"""Streams of scores and labels without a learner, with verdicts of the tests and alarms; see `benchmarks.alarms`.

Scores are normal; those of positives are shifted up to give the wanted AUC.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from learners.comparison import ComparedBatch, GroupComparison, GroupConfig
from learners.config import Config
from learners.learner import Learner
from learners.metrics import sequential_tests
from learners.metrics.drift import Drift
from learners.numerics.arrays import Matrix, Vector
from learners.numerics.jit import kernel

__all__ = [
    "CHANGES",
    "LEARNERS",
    "LONGEST",
    "RUN_IN",
    "SETTINGS",
    "WITHIN",
    "Effort",
    "Setting",
    "costs",
    "falls",
    "false_alarms",
    "learning",
    "served",
    "verdicts",
]

ALPHA = 0.05
RUN_IN = 500  # positives before a fall
WITHIN = 150  # positives in which it should be found
LONGEST = 600  # positives after it


class Effort(NamedTuple):
    """How many streams, and how long."""

    streams: int  # without a difference, and with a fall
    powers: int  # with a difference
    positives: int  # of a stream without a difference, in the mean; where they are rare a tenth
    most_positives: int  # of a stream with a difference; where they are rare a tenth
    stationary: int  # streams of `events` events
    events: int
    seconds: float  # of each measurement of costs


class Setting(NamedTuple):
    """A kind of stream that two scorers meet."""

    name: str
    share: float  # of positives
    correlation: float  # of the two scores within a class
    spread: float  # of the second one's positives: another ROC curve, of the same area
    levels: float  # scores are rounded to multiples of this; 0: they are not


SETTINGS = (
    Setting("rare positives", 0.01, 0.5, 2.0, 0.0),
    Setting("balanced", 0.5, 0.5, 2.0, 0.0),
    Setting("independent scores", 0.1, 0.0, 2.0, 0.0),
    Setting("correlated scores", 0.1, 0.95, 1.0, 0.0),
    Setting("heavy ties", 0.1, 0.5, 1.0, 1.5),
)


def compared(setting: Setting, n: int, aucs: tuple[float, float], random: np.random.Generator) -> tuple[Vector, Matrix]:
    """Labels (n,) 0/1 and scores (n, 2) of two scorers with these AUCs (before rounding)."""
    labels = (random.random(n) < setting.share).astype(np.float64)
    rho = setting.correlation
    scores = np.sqrt(rho) * random.normal(size=(n, 1)) + np.sqrt(1 - rho) * random.normal(size=(n, 2))
    positive = labels == 1
    spread = np.array([1.0, setting.spread])
    scores[positive] = scores[positive] * spread + np.sqrt(1 + spread**2) * ndtri(aucs)
    return labels, np.round(scores / setting.levels) * setting.levels if setting.levels else scores


@kernel
def _until_verdict(state, limit, labels, scores):  # type: ignore[no-untyped-def]
    """Count positives until the first verdict for either scorer; -1 without a verdict."""
    positives = 0
    for i in range(labels.shape[0]):
        label = 1 if labels[i] > 0.0 else 0
        positives += label
        sequential_tests.observe(state, limit, label, scores[i], i + 1, 0.0)
        if state.verdicts[0] != 0:
            return positives
    return -1


def verdicts(setting: Setting, effort: Effort, second: float) -> NDArray[np.int64]:
    """Count positives until a verdict on scorers of AUC .8 and `second`, per stream; -1 without a verdict."""
    equal = second == 0.8
    positives = effort.positives if equal else effort.most_positives
    n = int((positives if setting.share > 0.02 else positives / 10) / setting.share)
    random = np.random.default_rng([1, SETTINGS.index(setting), round(1000 * second)])
    counts = []
    for _ in range(effort.streams if equal else effort.powers):
        state, positives_met = sequential_tests.init(2), -1
        for _ in range(10):  # in parts: most verdicts come early
            labels, scores = compared(setting, n // 10, (0.8, second), random)
            count = _until_verdict(state, sequential_tests.wealth_limit(ALPHA), labels, scores)
            positives_met = max(positives_met, 0) + (count if count >= 0 else int(labels.sum()))
            if count >= 0:
                break
        counts.append(positives_met if state.verdicts[0] else -1)
    return np.array(counts)


def drift_after(labels: Vector, auc: Vector | float, random: np.random.Generator, levels: float = 0.0) -> Drift:
    """Return the drift alarms after a stream of labels (n,), with the AUC at each event; `levels` as in `Setting`."""
    scores = random.normal(size=len(labels)) + labels * np.sqrt(2) * ndtri(auc)
    if levels:
        scores = np.round(scores / levels) * levels
    drift = Drift()
    drift.learn(scores, labels, 0, np.full(len(labels), np.nan))
    return drift


def false_alarms(auc: float, levels: float, share: float, effort: Effort) -> tuple[int, int]:
    """(alarms, events) of stationary streams; `levels` as in `Setting`."""
    random = np.random.default_rng([2, round(1000 * auc), round(1000 * share)])
    total = 0
    for _ in range(effort.stationary):
        labels = (random.random(effort.events) < share).astype(np.float64)
        total += int(drift_after(labels, auc, random, levels).count[0])
    return total, effort.stationary * effort.events


def falls(before: float, share: float, streams: int) -> tuple[NDArray[np.int64], int]:
    """(positives from a fall by ten points to its alarm, those not found left out, alarms before it)."""
    random = np.random.default_rng([3, round(1000 * before), round(1000 * share)])
    delays, early = [], 0
    for _ in range(streams):
        gaps = random.geometric(share, RUN_IN + LONGEST)
        places = np.cumsum(gaps) - 1  # of the positives
        labels = np.zeros(places[-1] + 1)
        labels[places] = 1.0
        at = places[RUN_IN - 1] + 1
        auc = np.where(np.arange(len(labels)) < at, before, before - 0.1)
        alarms = [alarm["events"] for alarm in drift_after(labels, auc, random).alarms()]
        early += int(bool(alarms) and alarms[0] <= at)
        late = [events for events in alarms if events > at]
        if late:
            delays.append(int(labels[at : late[0]].sum()))
    return np.array(delays, dtype=np.int64), early


Shift = Callable[[Vector], Vector]
CHANGES: dict[str, Shift] = {
    "none": lambda z: z,
    "mean + 0.25 sd": lambda z: z + 0.25,
    "mean + 0.5 sd": lambda z: z + 0.5,
    "mean + 1 sd": lambda z: z + 1.0,
    "spread x 2": lambda z: 2.0 * z,
}


def served(change: str, effort: Effort) -> dict[str, Any]:
    """Alarms on served scores: of stationary streams, or of a change after 12,000 events."""
    random = np.random.default_rng([4, list(CHANGES).index(change)])
    if change == "none":
        total = 0
        for i in range(effort.stationary):
            scores = random.normal(size=effort.events)
            drift = Drift()
            drift.serve(np.round(scores) if i % 2 else scores, 0, np.full(effort.events, np.nan))
            total += int(drift.count[1])
        return {"change": change, "alarms": total, "events": effort.stationary * effort.events}
    delays = []
    for _ in range(effort.streams):
        run_in = 12_000 + int(random.integers(512))
        scores = np.concatenate([random.normal(size=run_in), CHANGES[change](random.normal(size=5000))])
        drift = Drift()
        drift.serve(scores, 0, np.arange(1.0, len(scores) + 1))
        delays += [alarm["clock"] - run_in for alarm in drift.alarms()[:1] if alarm["clock"] > run_in]
    return {
        "change": change,
        "streams": effort.streams,
        "found": len(delays) / effort.streams,
        "median": float(np.median(delays)) if delays else None,
    }


LEARNERS = ("cbr", "cbr-diag", "fofo", "loam-ada", "loam-ilsc", "lr")


def learning(algorithm: str, effort: Effort) -> tuple[int, int]:
    """(alarms on its own scores, events) of a learner from its first event on; the stream itself is stationary.

    5 % positives; 20 features, normal, of which 4 differ by class; the AUC of the best order is .85.
    """
    random = np.random.default_rng([6, LEARNERS.index(algorithm)])
    streams, n = max(1, effort.stationary // 10), min(effort.events, 50_000)
    total = 0
    for _ in range(streams):
        y = np.where(random.random(n) < 0.05, 1.0, -1.0)
        X = random.normal(size=(n, 20))
        X[:, :4] += (y > 0)[:, None] * ndtri(0.85) / np.sqrt(2)  # sqrt(2) ndtri(AUC) over sqrt(4) features
        learner = Learner(Config.of({"algorithm": algorithm, "features": {"kind": "dense", "dim": 20}}))
        drift = Drift()
        drift.serve(learner.learn(X, y), 0, np.full(n, np.nan))
        total += int(drift.count[1])
    return total, streams * n


def costs(effort: Effort) -> list[dict[str, Any]]:
    """Nanoseconds per event, and milliseconds per poll."""
    random = np.random.default_rng(5)
    n = min(20_000, effort.events)
    labels, none = np.where(random.random(n) < 0.1, 1.0, -1.0), np.full(n, np.nan)
    rows = []

    def add(what: str, unit: str, scale: float, call: Callable[[], object]) -> None:
        call()
        times: list[float] = []
        while not times or (sum(times) < effort.seconds and len(times) < 1000):
            began = time.perf_counter()
            call()
            times.append(time.perf_counter() - began)
        rows.append({"what": what, "unit": unit, "median": scale * float(np.median(times))})

    for m in (2, 8):
        group = GroupComparison(GroupConfig(tuple("abcdefgh"[:m])))
        hashes = np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        record = ComparedBatch(hashes, labels, random.normal(size=(n, m)) + labels[:, None], none)
        add(f"comparison of {m} learners, an event", "ns", 1e9 / n, lambda group=group, r=record: group.apply(r))
        add(f"comparison of {m} learners, a poll", "ms", 1e3, lambda group=group: group.view().as_json())
    drift, uniform = Drift(), random.random(n)
    add("drift, a labelled negative", "ns", 1e9 / n, lambda: drift.learn(uniform, -np.ones(n), 0, none))
    add("drift, a labelled positive", "ns", 1e9 / n, lambda: drift.learn(uniform, np.ones(n), 0, none))
    add("drift, a served event", "ns", 1e9 / n, lambda: drift.serve(uniform, 0, none))
    return rows
