"""Comparison of a group of learners on exactly the same events, as one state machine.

It takes each event's label with the scores that the learners gave it before. For the last `window` events it has AUCs
and paired differences with DeLong's intervals (`delong.py`); what is hard for all learners cancels in a difference.
Which learner is better is decided by sequential tests (`sequential_tests.py`). An interval that is read again and again
would sooner or later leave 0 by chance.

Ids are remembered for longer than scores, so that a repeated request is no new event. With the same label it is a
duplicate; another label is a correction. A correction in the window changes the metrics exactly, as if the label had
been so from the start. The tests stay as they are, because a bet cannot be undone.

Like a learner it has no clock, no network and no file. The same records give the same bits, however they are cut.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from learners.metrics import (
    NO_SPREAD,
    AucEstimates,
    SequentialTest,
    estimate_aucs,
    interval,
    lengthen,
    ring_capacity,
    sequential_tests,
)
from learners.model import check_arrays, check_shapes
from learners.numerics import Counts, Issues, Matrix, Vector, Words, counters, hash_table, kernel, outside
from learners.settings import InvalidInput, Parameters, Problem, param, required, show

__all__ = ["ComparedBatch", "GroupComparison", "GroupComparisonView", "GroupConfig"]

State = dict[str, NDArray[np.generic]]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_FEWEST, _MOST = 2, 8  # learners
_CONFIDENCE = 0.95  # of the intervals
_FEWEST_IDS = 2**17  # remembered ids, however short the window is


@dataclass(frozen=True)
class GroupConfig(Parameters):
    """Which learners are compared, and how."""

    learners: tuple[str, ...] = required("names of the compared learners: 2 to 8, all different")
    window: int = param(10_000, "labelled events in the window of the AUCs and differences", least=1, most=1_000_000)
    alpha: float = param(
        0.05,
        "largest probability of a verdict on two equal learners, per pair, at any time",
        above=0,
        most=0.5,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        names = self.learners
        problems = []
        if not _FEWEST <= len(names) <= _MOST:
            problems.append(
                Problem("/learners", f"has {len(names)} name{'s' * (len(names) != 1)}; expected {_FEWEST} to {_MOST}")
            )
        for i, name in enumerate(names[:_MOST]):
            if not _NAME.fullmatch(name):
                problems.append(Problem(f"/learners/{i}", f"is {show(name)}; expected a name like {_NAME.pattern}"))
            elif name in names[:i]:
                problems.append(Problem(f"/learners/{i}", f"is {show(name)}, which is listed twice"))
        if problems:
            raise InvalidInput(problems)


@dataclass(frozen=True)
class ComparedBatch:
    """A record: n labelled events in order, with the scores of the m learners from before the label."""

    hashes: Words  # (n,) of the ids, by `hashes_of`; 0 without an id
    labels: Vector  # (n,) -1 or +1
    scores: Matrix  # (n, m) in the order of the group's learners; NaN counts as 0
    clocks: Vector  # (n,) event times in seconds; NaN if unknown

    def __len__(self) -> int:
        return len(self.labels)


class ComparedEvents(NamedTuple):
    """The last events as a ring, event i at i % window, and counts since the start."""

    labels: NDArray[np.int8]  # (capacity,) 0 or 1
    scores: Matrix  # (capacity, m)
    counts: Counts  # (4,) events, duplicates, corrections, events with an id
    clock: Vector  # (1,) the largest event time so far; NaN if unknown


class ComparedIds(NamedTuple):
    """The last ids as a ring, id i at i % most; 17 bytes each."""

    hashes: Words  # (capacity,)
    labels: NDArray[np.int8]  # (capacity,) 0 or 1: the latest label
    numbers: Counts  # (capacity,) number of the event, from 0


_EVENTS, _DUPLICATES, _CORRECTIONS, _IDS = range(4)


@kernel
def _apply(window, ids, table, tests, size, most, limit, hashes, labels, scores, clocks):  # type: ignore[no-untyped-def]
    """Take labelled events in order; there are slots for them."""
    counts, clock = window.counts, window.clock
    row = np.empty(scores.shape[1])
    for i in range(labels.shape[0]):
        label = 1 if labels[i] > 0.0 else 0
        if math.isnan(clock[0]) or clocks[i] > clock[0]:
            clock[0] = clocks[i]
        place = hash_table.find(ids.hashes, table, hashes[i])
        if place >= 0:
            if ids.labels[place] == label:
                counts[_DUPLICATES] += 1
                continue
            ids.labels[place] = label
            if counts[_EVENTS] - ids.numbers[place] <= size:  # it is still in the window
                window.labels[ids.numbers[place] % size] = label
            counts[_CORRECTIONS] += 1
            continue
        if hashes[i] != 0:
            place = counts[_IDS] % most
            hash_table.put(ids.hashes, table, place, hashes[i])
            ids.labels[place] = label
            ids.numbers[place] = counts[_EVENTS]
            counts[_IDS] += 1
        slot = counts[_EVENTS] % size
        window.labels[slot] = label
        for j in range(row.shape[0]):
            row[j] = 0.0 if math.isnan(scores[i, j]) else scores[i, j]
            window.scores[slot, j] = row[j]
        counts[_EVENTS] += 1
        sequential_tests.observe(tests, limit, label, row, counts[_EVENTS], clock[0])


class GroupComparison:
    """One group, moved forward by records. No I/O, no await, no clock.

    O(m) per event of m learners on average. Memory grows with the events of the window, 8 m + 1 bytes each, and with
    the ids, 17 bytes each.
    """

    def __init__(self, config: GroupConfig) -> None:
        self.config = config
        m = len(config.learners)
        self._limit = sequential_tests.wealth_limit(config.alpha)
        self._window = ComparedEvents(
            labels=np.zeros(0, dtype=np.int8),
            scores=np.zeros((0, m)),
            counts=np.zeros(4, dtype=np.int64),
            clock=np.full(1, np.nan),
        )
        self._ids = ComparedIds(
            hashes=np.zeros(0, dtype=np.uint64), labels=np.zeros(0, dtype=np.int8), numbers=np.zeros(0, dtype=np.int64)
        )
        self._tests = sequential_tests.init(m)
        self._table = hash_table.table_for(self._ids.hashes, 0)

    @property
    def events(self) -> int:
        """Compared events, without duplicates and corrections."""
        return int(self._window.counts[_EVENTS])

    def apply(self, record: ComparedBatch) -> None:
        """Move forward by one record. Raises `InvalidInput` if its columns do not fit; then nothing changed."""
        n, m = len(record), len(self.config.learners)
        shapes = {"hashes": (n,), "labels": (n,), "scores": (n, m), "clocks": (n,)}
        wrong = {name: getattr(record, name).shape for name, shape in shapes.items()}
        problems = [
            Problem(f"/{name}", f"has shape {shape}; expected {shapes[name]}")
            for name, shape in wrong.items()
            if shape != shapes[name]
        ]
        if problems:
            raise InvalidInput(problems)
        self._reserve(n)
        _apply(
            self._window,
            self._ids,
            self._table,
            self._tests,
            self.config.window,
            _most_ids(self.config),
            self._limit,
            np.ascontiguousarray(record.hashes, dtype=np.uint64),
            np.ascontiguousarray(record.labels, dtype=np.float64),
            np.ascontiguousarray(record.scores, dtype=np.float64),
            np.ascontiguousarray(record.clocks, dtype=np.float64),
        )

    def _reserve(self, more: int) -> None:
        """Make room for so many more events and ids, up to the limits."""
        counts, most = self._window.counts, _most_ids(self.config)
        events, ids = _ring_lengths(counts, self.config)
        if (length := min(events + more, self.config.window)) > len(self._window.labels):
            slots = ring_capacity(length, self.config.window)
            self._window = self._window._replace(
                labels=lengthen(self._window.labels[:events], slots),
                scores=lengthen(self._window.scores[:events], slots),
            )
        if (length := min(ids + more, most)) > len(self._ids.hashes):
            slots = ring_capacity(length, most)
            self._ids = ComparedIds._make(lengthen(array[:ids], slots) for array in self._ids)
            self._table = hash_table.table_for(self._ids.hashes, slots)

    # Reading

    def view(self) -> GroupComparisonView:
        """Return what readers see: right until the next `apply`, or for good once `frozen()`."""
        window, (events, _) = self._window, _ring_lengths(self._window.counts, self.config)
        return GroupComparisonView(
            self.config, window.labels[:events], window.scores[:events], window.counts, window.clock, self._tests
        )

    # Saving

    def state(self) -> State:
        """Return every array of the state by name, as views: copy what must last. Rings are cut to their contents."""
        events, ids = _ring_lengths(self._window.counts, self.config)
        window = self._window._replace(labels=self._window.labels[:events], scores=self._window.scores[:events])
        remembered = ComparedIds._make(array[:ids] for array in self._ids)
        parts = {"window": window._asdict(), "ids": remembered._asdict(), "tests": self._tests._asdict()}
        return {f"{part}.{name}": array for part, arrays in parts.items() for name, array in arrays.items()}

    def digest(self) -> str:
        """Hash the configuration and every array's bytes: only equal states have equal digests. O(state)."""
        out = hashlib.blake2b(digest_size=16)
        out.update(json.dumps(self.config.to_json(), sort_keys=True).encode())
        for name, array in sorted(self.state().items()):
            out.update(f"\0{name} {array.dtype.str} {array.shape}\0".encode())
            out.update(np.ascontiguousarray(array).data)
        return out.hexdigest()

    @classmethod
    def restored(cls, config: GroupConfig, state: State) -> GroupComparison:
        """Restore a group from its configuration and `state()`. Raises `InvalidInput` if they do not match."""
        comparison = cls(config)
        current = comparison.state()
        check_arrays(state, current)
        counts = {"window.counts": state["window.counts"]}
        check_shapes(counts, {"window.counts": current["window.counts"].shape})
        _refuse(counters(counts))
        events, ids = _ring_lengths(state["window.counts"], config)
        lengths = {"window.labels": events, "window.scores": events} | {
            f"ids.{name}": ids for name in ComparedIds._fields
        }
        check_shapes(
            state,
            {
                name: (lengths[name], *array.shape[1:]) if name in lengths else array.shape
                for name, array in current.items()
            },
        )
        _refuse(_problems(state, config))
        comparison._restore(
            {name: np.array(array, dtype=current[name].dtype, order="C") for name, array in state.items()}
        )
        return comparison

    def _restore(self, state: State) -> None:
        self._window = _part(ComparedEvents, "window", state)
        self._ids = _part(ComparedIds, "ids", state)
        self._tests = _part(SequentialTest, "tests", state)
        self._table = hash_table.table_for(self._ids.hashes, len(self._ids.hashes))


def _most_ids(config: GroupConfig) -> int:
    """Return the most remembered ids: an id is remembered while its event is in the window."""
    return max(config.window, _FEWEST_IDS)


def _ring_lengths(counts: NDArray[Any], config: GroupConfig) -> tuple[int, int]:
    """Return the numbers of events and of ids in the rings."""
    return min(int(counts[_EVENTS]), config.window), min(int(counts[_IDS]), _most_ids(config))


def _part(kind: Any, name: str, state: State) -> Any:
    return kind(**{field: state[f"{name}.{field}"] for field in kind._fields})


def _refuse(issues: Issues) -> None:
    """Raise `InvalidInput` with the first issue of each array, if there is any."""
    details: dict[str, str] = {}
    for name, detail in issues:
        details.setdefault(f"/{name}", detail)
    if details:
        raise InvalidInput([Problem(pointer, detail) for pointer, detail in details.items()])


def _problems(state: State, config: GroupConfig) -> Issues:
    """Report what no records can have led to in a state of the right shapes."""
    yield from outside("window.labels", state["window.labels"], 0, 1)
    if np.isnan(state["window.scores"].astype(np.float64)).any():
        yield "window.scores", "has NaN"
    if np.isinf(state["window.clock"].astype(np.float64)).any():
        yield "window.clock", "is infinite"
    yield from _problems_of_ids(state, config)
    for name, detail in sequential_tests.problems(
        _part(SequentialTest, "tests", state), int(state["window.counts"][_EVENTS])
    ):
        yield f"tests.{name}", detail


def _problems_of_ids(state: State, config: GroupConfig) -> Issues:
    counts: Counts = state["window.counts"].astype(np.int64)
    events = int(counts[_EVENTS])
    if counts[_IDS] > events:
        yield "window.counts", f"has {counts[_IDS]} ids of {events} events"
    hashes, labels = state["ids.hashes"], state["ids.labels"]
    if not hashes.all():
        yield "ids.hashes", "has 0, which stands for no id"
    elif len(np.unique(hashes)) < len(hashes):
        yield "ids.hashes", "has an id twice"
    yield from outside("ids.labels", labels, 0, 1)
    wrong = list(outside("ids.numbers", state["ids.numbers"], 0, events - 1))
    yield from wrong
    if wrong:
        return
    numbers: Counts = state["ids.numbers"].astype(np.int64)
    oldest = int(counts[_IDS]) % _most_ids(config) if len(numbers) == _most_ids(config) else 0
    if (np.diff(np.roll(numbers, -oldest)) <= 0).any():
        yield "ids.numbers", "do not ascend"
    present = events - numbers <= config.window
    if (labels[present] != state["window.labels"][numbers[present] % config.window]).any():
        yield "ids.labels", "differ from those of the window"


@dataclass(frozen=True)
class GroupComparisonView:
    """A comparison at one moment. Metrics are computed for their first reader, and cached."""

    config: GroupConfig
    labels: NDArray[np.int8]  # (events,) of the window
    scores: Matrix  # (events, m)
    counts: Counts  # (4,) events, duplicates, corrections, events with an id
    clock: Vector  # (1,)
    tests: SequentialTest

    def frozen(self) -> GroupComparisonView:
        """Return a copy that stays as it is. O(window * m)."""
        return GroupComparisonView(
            self.config,
            self.labels.copy(),
            self.scores.copy(),
            self.counts.copy(),
            self.clock.copy(),
            SequentialTest._make(array.copy() for array in self.tests),
        )

    @cached_property
    def _positive(self) -> NDArray[np.bool_]:
        positive: NDArray[np.bool_] = self.labels == 1
        return positive

    @cached_property
    def aucs(self) -> AucEstimates | None:
        """The window's AUCs and their covariance; None if a class is missing. O(m n log n) for the first reader."""
        positive = self._positive
        if positive.all() or not positive.any():
            return None
        return estimate_aucs(self.scores[~positive], self.scores[positive])

    def as_json(self) -> dict[str, Any]:
        """Return the comparison as JSON: numbers, or None with the reason under `undefined`."""
        undefined: dict[str, str] = {}
        events, duplicates, corrections, _ = self.counts.tolist()
        return {
            "learners": list(self.config.learners),
            "alpha": self.config.alpha,
            "events": events,
            "duplicates": duplicates,
            "corrections": corrections,
            "clock": _time(float(self.clock[0])),
            "window": self._window(undefined),
            "tests": self._tests(),
            "undefined": undefined,
        }

    def _window(self, undefined: dict[str, str]) -> dict[str, Any]:
        names, aucs = self.config.learners, self.aucs
        positives = int(self._positive.sum())
        missing = f"no {'negatives' if positives else 'positives' if len(self.labels) else 'events'} in the window"

        def with_interval(pointer: str, metric: str, estimate: float | None, variance: float | None, low: float) -> Any:
            """Return an estimate and its interval; note why either is undefined."""
            spread = variance != 0.0 or metric != "auc"  # two learners that agree on all events differ by exactly 0
            reach = interval(estimate, variance, low, 1.0, _CONFIDENCE) if estimate is not None and spread else None
            for key, value in ((metric, estimate), ("interval", reach)):
                if value is None:
                    reason = missing if aucs is None else "fewer than two events of a class in the window"
                    if not spread:
                        reason = f"{NO_SPREAD} in the window"
                    undefined[f"/window/{pointer}/{key}"] = reason
            return {metric: estimate, "interval": reach}

        auc, differences = {}, []
        for j, name in enumerate(names):
            estimate = None if aucs is None else float(aucs.auc[j])
            variance = None if aucs is None or aucs.covariance is None else max(0.0, float(aucs.covariance[j, j]))
            auc[name] = with_interval(f"auc/{name}", "auc", estimate, variance, 0.0)
        for place, (a, b) in enumerate(sequential_tests.pairs(len(names))):
            estimate = None if aucs is None else float(aucs.auc[a] - aucs.auc[b])
            variance = None if aucs is None else aucs.variance(a, b)
            difference = with_interval(f"differences/{place}", "difference", estimate, variance, -1.0)
            differences.append({"a": names[a], "b": names[b], **difference})
        return {
            "size": self.config.window,
            "events": len(self.labels),
            "class_counts": {"negative": len(self.labels) - positives, "positive": positives},
            "auc": auc,
            "differences": differences,
        }

    def _tests(self) -> list[dict[str, Any]]:
        names, tests = self.config.learners, self.tests
        blocks, needed = int(tests.blocks[0]), 2.0 / self.config.alpha
        documents = []
        for pair, (a, b) in enumerate(sequential_tests.pairs(len(names))):
            evidence = [sequential_tests.decimal_log(wealth) for wealth in tests.wealth[pair].tolist()]
            verdict = int(tests.verdicts[pair])
            events = int(tests.verdict_events[pair]) if verdict else None
            if events is None:
                words = f"not decided: evidence {_odds(max(evidence))} to 1 for one of them; {needed:,.0f} to 1 decides"
            else:
                better, present = (names[a], names[b])[verdict - 1], evidence[verdict - 1]
                words = f"{better} is better: evidence {_odds(present)} to 1 since event {events:,}"
                if present < math.log10(needed):
                    reached = f"evidence reached {needed:,.0f} to 1 at event {events:,}"
                    words = f"{better} was better: {reached} and is {_odds(present)} to 1 now"
            documents.append(
                {
                    "a": names[a],
                    "b": names[b],
                    "evidence": {"a_better": evidence[0], "b_better": evidence[1]},
                    "verdict": (None, "a", "b")[verdict],
                    "words": words,
                    "since_events": events,
                    "since_clock": _time(float(tests.verdict_clocks[pair])),
                    "blocks": blocks,
                }
            )
        return documents


def _time(clock: float) -> float | None:
    return None if math.isnan(clock) else clock


def _odds(log10: float) -> str:
    """Format an amount of evidence for people: 0.4, 7.5, 1,234, 10^15."""
    if log10 >= 9:
        return f"10^{math.floor(log10)}"
    value = 10.0**log10 if log10 > -300 else 0.0
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"
