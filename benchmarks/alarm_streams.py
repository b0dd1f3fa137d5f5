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
from learners.features import QUALITY_KINDS, Named, ValueKind, columns_of, field_quality
from learners.features.field_quality import BLOCK
from learners.features.fields import entry, field_hashes
from learners.learner import Learner
from learners.metrics import sequential_tests
from learners.metrics.drift import Drift
from learners.numerics.arrays import Matrix, Sparse, Vector
from learners.numerics.jit import kernel

__all__ = [
    "BEFORE",
    "CHANGES",
    "EARLY",
    "FIELDS",
    "LEARNERS",
    "LONGEST",
    "NUMBERS",
    "RUN_IN",
    "SETTINGS",
    "STEADY",
    "WITHIN",
    "WORSE",
    "WORSE_NUMBERS",
    "Effort",
    "Setting",
    "costs",
    "falls",
    "false_alarms",
    "learning",
    "served",
    "silences",
    "steady_fields",
    "steady_numbers",
    "verdicts",
    "worse_fields",
    "worse_numbers",
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


def silences(share: float, burst: int, effort: Effort) -> dict[str, Any]:
    """Alarms of positive labels that stop, by shares of positives in bursts of a mean length.

    False ones on a stationary stream, and the events until one after `RUN_IN` positives, in gaps between bursts.
    """
    random = np.random.default_rng([7, round(1e4 * share), burst])
    false, delays = 0, []
    for _ in range(effort.stationary):
        labels = bursts(share, burst, effort.events, random)
        false += int(drift_after(labels, 0.8, random).count[2])
    between = burst / share
    for _ in range(max(10, effort.streams // 10)):
        labels = bursts(share, burst, int(RUN_IN / share), random)
        stopped = np.concatenate([labels, np.zeros(int(40 * between))])
        last = int(np.flatnonzero(labels)[-1]) + 1 if labels.any() else 0
        late = [alarm["events"] for alarm in drift_after(stopped, 0.8, random).alarms() if alarm["kind"] == "positives"]
        delays += [(events - last) / between for events in late if events > len(labels)][:1]
    return {
        "share": share,
        "burst": burst,
        "alarms": false,
        "found": len(delays) / max(10, effort.streams // 10),
        "median": float(np.median(delays)) if delays else None,
    }


def bursts(share: float, burst: int, n: int, random: np.random.Generator) -> Vector:
    """Labels (n,) 0/1: bursts whose lengths are geometric with this mean, every second event a positive."""
    if burst == 1:
        return (random.random(n) < share).astype(np.float64)
    count = 2 * int(n * share / burst) + 10
    lengths, waits = random.geometric(1 / burst, count), random.geometric(share / burst, count)
    gaps = np.full(int(lengths.sum()), 2)
    gaps[np.cumsum(lengths) - lengths] = waits
    places = np.cumsum(gaps)
    labels = np.zeros(n)
    labels[places[places < n]] = 1.0
    return labels


FIELDS = 20
EARLY = 25 * BLOCK  # events in which only a large rise of a field counts
BEFORE = (20_000, 3_000)  # events of fields before a change
_EVENTS_AFTER = 10_000
Marks = Callable[[int, np.random.Generator], NDArray[np.bool_]]


def _independent(share: float) -> Marks:
    def marks(n: int, random: np.random.Generator) -> NDArray[np.bool_]:
        return random.random(n) < share

    return marks


def _bursts(share: float, length: int) -> Marks:
    """Bursts whose lengths, and the gaps between them, are geometric."""

    def marks(n: int, random: np.random.Generator) -> NDArray[np.bool_]:
        count = 2 * int(n * share / length) + 10
        lengths = np.empty(2 * count, dtype=np.int64)
        lengths[::2] = random.geometric(share / (length * (1 - share)), count)
        lengths[1::2] = random.geometric(1 / length, count)
        return np.repeat(np.arange(2 * count) % 2 == 1, lengths)[:n]

    return marks


def _cycle(n: int, random: np.random.Generator) -> NDArray[np.bool_]:
    return random.random(n) < 0.3 + 0.2 * np.sin(2 * np.pi * (np.arange(n) / 20_000 + random.random()))


def _first_appearances(n: int, random: np.random.Generator) -> NDArray[np.bool_]:
    result = np.zeros(n, dtype=np.bool_)
    result[np.unique(random.zipf(1.3, n), return_index=True)[1]] = True
    return result


STEADY: dict[str, Marks] = {
    **{f"{share:.1%} of the events": _independent(share) for share in (0.001, 0.01, 0.1, 0.5)},
    "10 % in bursts of 10": _bursts(0.1, 10),
    "10 % in bursts of 100": _bursts(0.1, 100),
    "30 % in bursts of 100": _bursts(0.3, 100),
    "2 % in bursts of 100": _bursts(0.02, 100),
    "10 to 50 % in cycles of 20,000 events": _cycle,
    "first appearances of a Zipf law": _first_appearances,
}
WORSE = (
    ("a field goes missing", "missing", 0.02, 1.0),
    ("a field changes its kind", "contradictions", 0.0, 1.0),
    ("new categories, in 20 % of the events", "new_categories", 0.01, 0.2),
    ("missing values, from 1 to 10 %", "missing", 0.01, 0.1),
    ("missing values, from 10 to 25 %", "missing", 0.1, 0.25),
    ("wrong kind, in 5 % of the events", "contradictions", 0.0, 0.05),
)


def quality_alarms(marks: NDArray[np.bool_]) -> list[field_quality.FieldAlarm]:
    """Return the alarms of a stream whose events of each field and kind, (events, fields, 3), are marked."""
    blocks = np.cumsum(marks[: len(marks) // BLOCK * BLOCK].reshape(-1, BLOCK, *marks.shape[1:]).sum(axis=1), axis=0)
    quality, reports = field_quality.initial_quality(marks.shape[1]), field_quality.report_buffer()
    has_values = np.ones(marks.shape[1], dtype=np.bool_)
    alarms = []
    for i, totals in enumerate(blocks):
        count = field_quality.end_block(quality, totals, has_values, BLOCK * (i + 1), reports)
        alarms += field_quality.alarms_of(reports[:count])
    return alarms


def steady_fields(name: str, effort: Effort) -> tuple[int, int, int]:
    """Return (alarms, those of the first `EARLY` events, events) of stationary streams.

    All fields are of this kind, in each of the four shares.
    """
    random = np.random.default_rng([8, list(STEADY).index(name)])
    streams, alarms, early = max(1, effort.stationary // 10), 0, 0
    for _ in range(streams):
        columns = [STEADY[name](effort.events, random) for _ in range(FIELDS * len(QUALITY_KINDS))]
        marks = np.stack(columns, axis=1).reshape(effort.events, FIELDS, len(QUALITY_KINDS))
        more = quality_alarms(marks)
        alarms, early = alarms + len(more), early + sum(alarm.event <= EARLY for alarm in more)
    return alarms, early, streams * effort.events


def worse_fields(change: int, run: int, effort: Effort) -> dict[str, Any]:
    """Share of streams of one field whose change is found within `_EVENTS_AFTER` events, and the median delay.

    The change is after `run` events or up to a block later.
    """
    name, kind, before, after = WORSE[change]
    random = np.random.default_rng([9, change, run])
    delays = []
    for _ in range(effort.streams):
        run_in = run + int(random.integers(BLOCK))
        marks = np.zeros((run_in + _EVENTS_AFTER, 1, len(QUALITY_KINDS)), dtype=np.bool_)
        shares = np.where(np.arange(len(marks)) < run_in, before, after)
        marks[:, 0, QUALITY_KINDS.index(kind)] = random.random(len(marks)) < shares
        delays += [alarm.event - run_in for alarm in quality_alarms(marks)[:1] if alarm.event > run_in]
    return _summarise(name, run, delays, effort)


def _summarise(change: str, run: int, delays: list[int], effort: Effort) -> dict[str, Any]:
    return {
        "change": change,
        "after": run,
        "streams": effort.streams,
        "found": len(delays) / effort.streams,
        "median": float(np.median(delays)) if delays else None,
        "most": max(delays, default=None),
    }


Shift = Callable[[Vector], Vector]
Draw = Callable[[int, np.random.Generator], Vector]


def _waves(n: int, random: np.random.Generator) -> Vector:
    return random.lognormal(3, 1, n) * np.exp(np.sin(2 * np.pi * (np.arange(n) / 20_000 + random.random())))


def _large_in_bursts(n: int, random: np.random.Generator) -> Vector:
    return random.lognormal(3, 1, n) * np.where(_bursts(0.01, 100)(n, random), 20.0, 1.0)


NUMBERS: dict[str, Draw] = {
    "normal": lambda n, random: random.normal(size=n),
    "exponential": lambda n, random: random.exponential(size=n),
    "log-normal": lambda n, random: random.lognormal(3, 1, n),
    "log-normal, sigma 2": lambda n, random: random.lognormal(3, 2, n),
    "Pareto, exponent 1": lambda n, random: 1 + random.pareto(1, n),
    "Cauchy": lambda n, random: random.standard_cauchy(n),
    "Poisson, mean 0.05": lambda n, random: random.poisson(0.05, n).astype(np.float64),
    "log-normal in cycles of 20,000 events": _waves,
    "log-normal, 1 % 20 times larger in bursts of 100": _large_in_bursts,
    "random walk": lambda n, random: 1000 + np.cumsum(random.normal(size=n)),
}
WORSE_NUMBERS: tuple[tuple[str, str, Shift], ...] = (
    ("log-normal amounts in cents", "log-normal", lambda x: 100 * x),
    ("log-normal amounts divided by 100", "log-normal", lambda x: x / 100),
    ("log-normal amounts of sigma 2 in cents", "log-normal, sigma 2", lambda x: 100 * x),
    ("every 20th amount 9999999999", "log-normal", lambda x: np.where(np.arange(len(x)) % 20, x, 9999999999.0)),
)


def number_alarms(values: Matrix) -> tuple[list[field_quality.FieldAlarm], int]:
    """Return the alarms of a stream of numbers, (events, fields), and how many are out of range."""
    n, count = values.shape
    names = [f"f{i}" for i in range(count)]
    stage = columns_of(Named(bits=8))
    stage.note_fields(names)
    entries = [entry(field, ValueKind.NUMBER) for field in field_hashes(names).tolist()]
    stage.learn(Sparse(values.ravel(), np.tile(np.array(entries), n), np.arange(n + 1) * count))
    out = sum(field.counts["out_of_range"] for field in stage.field_summaries() or ())
    return [alarm for block in stage.take_blocks() for alarm in block.alarms], out


def steady_numbers(name: str, effort: Effort) -> tuple[int, int, float, int]:
    """Return (alarms, those of the first `EARLY` events, share out of range, events) of fields of such numbers."""
    random = np.random.default_rng([10, list(NUMBERS).index(name)])
    streams, alarms, early, out = max(1, effort.stationary // 10), 0, 0, 0
    for _ in range(streams):
        columns = [NUMBERS[name](effort.events, random) for _ in range(FIELDS)]
        more, beyond = number_alarms(np.stack(columns, axis=1))
        alarms, early = alarms + len(more), early + sum(alarm.event <= EARLY for alarm in more)
        out += beyond
    return alarms, early, out / (streams * effort.events * FIELDS), streams * effort.events


def worse_numbers(change: int, run: int, effort: Effort) -> dict[str, Any]:
    """Return the same of a field of numbers."""
    name, numbers, shift = WORSE_NUMBERS[change]
    random = np.random.default_rng([11, change, run])
    delays = []
    for _ in range(effort.streams):
        run_in = run + int(random.integers(BLOCK))
        values = NUMBERS[numbers](run_in + _EVENTS_AFTER, random)
        values[run_in:] = shift(values[run_in:])
        delays += [alarm.event - run_in for alarm in number_alarms(values[:, None])[0][:1] if alarm.event > run_in]
    return _summarise(name, run, delays, effort)


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
