"""Comparison: a group of learners on exactly the same events, as one state machine.

It is told each event's label with the score that each learner had given it before, and keeps the last `window` events:
their AUCs and differences with DeLong's intervals (`delong.py`), each difference paired, so that what is hard for all
learners cancels. For the question which is better there are tests by betting (`betting.py`), since who looks at an
interval again and again until it leaves 0 is led astray in the end.

Ids are remembered for longer than scores, so that a request that is sent again is no new event. With the label that it
had it is a duplicate; another label is a correction, and while the event is in the window, the window's figures are
exactly as if the label had been so from the start. The tests keep what they saw, since a bet cannot be unplayed.

As a learner it has no clock, no network and no file, and the same records give the same bits, however they are cut.
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
_FEWEST_IDS = 2**17  # that are remembered, however short the window is


@dataclass(frozen=True)
class GroupConfig(Parameters):
    """Which learners are compared, and how."""

    learners: tuple[str, ...] = required("names of the learners that are compared: 2 to 8, no two alike")
    window: int = param(
        10_000, "labelled events that the AUCs and their differences are about", least=1, most=1_000_000
    )
    alpha: float = param(
        0.05, "how probable a verdict on two equal learners may be at most, per pair, however often one looks",
        above=0, most=0.5,
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        names = self.learners
        problems = []
        if not _FEWEST <= len(names) <= _MOST:
            problems.append(
                Problem("/learners", f"has {len(names)} name{'s' * (len(names) != 1)}; expected {_FEWEST} to {_MOST}")
            )
        for i, name in enumerate(names):
            if not _NAME.fullmatch(name):
                problems.append(Problem(f"/learners/{i}", f"is {show(name)}; expected a name like {_NAME.pattern}"))
            elif name in names[:i]:
                problems.append(Problem(f"/learners/{i}", f"is {show(name)}, which is there before"))
        if problems:
            raise InvalidInput(problems)


@dataclass(frozen=True)
class ComparedBatch:
    """A record: n labelled events in order, with what each of the m learners had said of them before."""

    hashes: Words  # (n,) of the ids, as `ids.hashes_of` gives them; 0 where there is none
    labels: Vector  # (n,) -1 or +1
    scores: Matrix  # (n, m) in the order of the group's learners; NaN counts as 0
    clocks: Vector  # (n,) event times in seconds; NaN where unknown

    def __len__(self) -> int:
        return len(self.labels)


class _Window(NamedTuple):
    """The last events as a ring, event i at i % window, and what has been counted."""

    labels: NDArray[np.int8]  # (capacity,) 0 or 1
    scores: Matrix  # (capacity, m)
    counts: Counts  # (4,) events, duplicates, corrections, events that had an id
    clock: Vector  # (1,) the largest event time met; NaN until one has come


class _Known(NamedTuple):
    """The last ids as a ring, id i at i % most; 17 bytes each."""

    hashes: Words  # (capacity,)
    labels: NDArray[np.int8]  # (capacity,) 0 or 1: the latest label
    numbers: Counts  # (capacity,) which of the events it is, from 0


_EVENTS, _DUPLICATES, _CORRECTIONS, _IDS = range(4)


@kernel
def _apply(window, known, table, tests, size, most, limit, hashes, labels, scores, clocks):  # type: ignore[no-untyped-def]
    counts, clock = window.counts, window.clock
    row = np.empty(scores.shape[1])
    for i in range(labels.shape[0]):
        label = 1 if labels[i] > 0.0 else 0
        if math.isnan(clock[0]) or clocks[i] > clock[0]:
            clock[0] = clocks[i]
        place = hash_table.find(known.hashes, table, hashes[i])
        if place >= 0:
            if known.labels[place] == label:
                counts[_DUPLICATES] += 1
                continue
            known.labels[place] = label
            if counts[_EVENTS] - known.numbers[place] <= size:  # it is still in the window
                window.labels[known.numbers[place] % size] = label
            counts[_CORRECTIONS] += 1
            continue
        if hashes[i] != 0:
            place = counts[_IDS] % most
            hash_table.put(known.hashes, table, place, hashes[i])
            known.labels[place] = label
            known.numbers[place] = counts[_EVENTS]
            counts[_IDS] += 1
        slot = counts[_EVENTS] % size
        window.labels[slot] = label
        for j in range(row.shape[0]):
            row[j] = 0.0 if math.isnan(scores[i, j]) else scores[i, j]
            window.scores[slot, j] = row[j]
        counts[_EVENTS] += 1
        sequential_tests.observe(tests, limit, label, row, counts[_EVENTS], clock[0])


class GroupComparison:
    """One group moved forward by records. No I/O, no await, no clock.

    O(m) per event of m learners in the mean. Memory for the window's events, 8 m + 1 bytes each, and for the ids, 17
    bytes each, as they come.
    """

    def __init__(self, config: GroupConfig) -> None:
        self.config = config
        m = len(config.learners)
        self._limit = sequential_tests.wealth_limit(config.alpha)
        self._window = _Window(
            labels=np.zeros(0, dtype=np.int8),
            scores=np.zeros((0, m)),
            counts=np.zeros(4, dtype=np.int64),
            clock=np.full(1, np.nan),
        )
        self._known = _Known(
            hashes=np.zeros(0, dtype=np.uint64), labels=np.zeros(0, dtype=np.int8), numbers=np.zeros(0, dtype=np.int64)
        )
        self._tests = sequential_tests.init(m)
        self._table = hash_table.table_for(self._known.hashes, 0)

    @property
    def events(self) -> int:
        """Events compared: neither duplicates nor corrections count."""
        return int(self._window.counts[_EVENTS])

    def apply(self, record: ComparedBatch) -> None:
        """Move forward by one record. Raises `InvalidInput` where its columns do not fit, and then nothing changed."""
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
            self._known,
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
        """Room for so many more events and ids, as far as they can be held."""
        counts, most = self._window.counts, _most_ids(self.config)
        scores, known = _held(counts, self.config)
        if (wanted := min(scores + more, self.config.window)) > len(self._window.labels):
            slots = ring_capacity(wanted, self.config.window)
            self._window = self._window._replace(
                labels=lengthen(self._window.labels[:scores], slots),
                scores=lengthen(self._window.scores[:scores], slots),
            )
        if (wanted := min(known + more, most)) > len(self._known.hashes):
            slots = ring_capacity(wanted, most)
            self._known = _Known._make(lengthen(array[:known], slots) for array in self._known)
            self._table = hash_table.table_for(self._known.hashes, slots)

    # Looking

    def view(self) -> GroupComparisonView:
        """What readers see, right until the next `apply`; `frozen()` makes it last."""
        window, (held, _) = self._window, _held(self._window.counts, self.config)
        return GroupComparisonView(
            self.config, window.labels[:held], window.scores[:held], window.counts, window.clock, self._tests
        )

    # Saving

    def state(self) -> State:
        """Every array of the state by name, as views: copy what has to last. Rings are as long as they are full."""
        scores, known = _held(self._window.counts, self.config)
        window = self._window._replace(labels=self._window.labels[:scores], scores=self._window.scores[:scores])
        remembered = _Known._make(array[:known] for array in self._known)
        parts = {"window": window._asdict(), "ids": remembered._asdict(), "tests": self._tests._asdict()}
        return {f"{part}.{name}": array for part, arrays in parts.items() for name, array in arrays.items()}

    def digest(self) -> str:
        """A hash of the configuration and of every array's bytes: equal states, and only those, agree. O(state)."""
        out = hashlib.blake2b(digest_size=16)
        out.update(json.dumps(self.config.to_json(), sort_keys=True).encode())
        for name, array in sorted(self.state().items()):
            out.update(f"\0{name} {array.dtype.str} {array.shape}\0".encode())
            out.update(np.ascontiguousarray(array).data)
        return out.hexdigest()

    @classmethod
    def restored(cls, config: GroupConfig, state: State) -> GroupComparison:
        """One with this configuration and the state that `state()` gave. Raises `InvalidInput` where they differ."""
        comparison = cls(config)
        own = comparison.state()
        check_arrays(state, own)
        counts = {"window.counts": state["window.counts"]}
        check_shapes(counts, {"window.counts": own["window.counts"].shape})
        _refuse(counters(counts))
        scores, known = _held(state["window.counts"], config)
        lengths = {"window.labels": scores, "window.scores": scores} | {f"ids.{name}": known for name in _Known._fields}
        check_shapes(
            state,
            {
                name: (lengths[name], *array.shape[1:]) if name in lengths else array.shape
                for name, array in own.items()
            },
        )
        _refuse(_problems(state, config))
        comparison._restore({name: np.array(array, dtype=own[name].dtype, order="C") for name, array in state.items()})
        return comparison

    def _restore(self, state: State) -> None:
        self._window = _part(_Window, "window", state)
        self._known = _part(_Known, "ids", state)
        self._tests = _part(SequentialTest, "tests", state)
        self._table = hash_table.table_for(self._known.hashes, len(self._known.hashes))


def _most_ids(config: GroupConfig) -> int:
    """Ids that are remembered at most: none is forgotten while its event is in the window."""
    return max(config.window, _FEWEST_IDS)


def _held(counts: NDArray[Any], config: GroupConfig) -> tuple[int, int]:
    """How many events and how many ids there are in the rings."""
    return min(int(counts[_EVENTS]), config.window), min(int(counts[_IDS]), _most_ids(config))


def _part(kind: Any, name: str, state: State) -> Any:
    return kind(**{field: state[f"{name}.{field}"] for field in kind._fields})


def _refuse(issues: Issues) -> None:
    """Raise `InvalidInput` with the first thing that is wrong with each array, if anything is."""
    found: dict[str, str] = {}
    for name, detail in issues:
        found.setdefault(f"/{name}", detail)
    if found:
        raise InvalidInput([Problem(pointer, detail) for pointer, detail in found.items()])


def _problems(state: State, config: GroupConfig) -> Issues:
    """What no records can have led to in a state of the right shapes."""
    yield from outside("window.labels", state["window.labels"], 0, 1)
    if np.isnan(state["window.scores"].astype(np.float64)).any():
        yield "window.scores", "has numbers that are not a number"
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
        yield "ids.labels", "are not those of the window"


@dataclass(frozen=True)
class GroupComparisonView:
    """What a reader of a comparison needs. Figures are computed when first asked for, and kept with the view."""

    config: GroupConfig
    labels: NDArray[np.int8]  # (held,)
    scores: Matrix  # (held, m)
    counts: Counts  # (4,) events, duplicates, corrections, events that had an id
    clock: Vector  # (1,)
    tests: SequentialTest

    def frozen(self) -> GroupComparisonView:
        """A copy that stays as it is. O(window * m)."""
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
    def areas(self) -> AucEstimates | None:
        """The window's AUCs and their covariance; None where it lacks a class. O(m n log n) when first asked for."""
        positive = self._positive
        if positive.all() or not positive.any():
            return None
        return estimate_aucs(self.scores[~positive], self.scores[positive])

    def as_json(self) -> dict[str, Any]:
        """The comparison as JSON: numbers, or None with the reason under `undefined`."""
        undefined: dict[str, str] = {}
        events, duplicates, corrections, _ = self.counts.tolist()
        return {
            "learners": list(self.config.learners),
            "alpha": self.config.alpha,
            "events": events,
            "duplicates": duplicates,
            "corrections": corrections,
            "clock": _known(float(self.clock[0])),
            "window": self._window(undefined),
            "tests": self._tests(),
            "undefined": undefined,
        }

    def _window(self, undefined: dict[str, str]) -> dict[str, Any]:
        names, found = self.config.learners, self.areas
        positives = int(self._positive.sum())
        missing = f"no {'negatives' if positives else 'positives' if len(self.labels) else 'events'} in the window"

        def told(pointer: str, figure: str, estimate: float | None, variance: float | None, low: float) -> Any:
            """An estimate with its interval."""
            spread = variance != 0.0 or figure != "auc"  # the difference of two that agree on all events is known
            reach = interval(estimate, variance, low, 1.0, _CONFIDENCE) if estimate is not None and spread else None
            for key, value in ((figure, estimate), ("interval", reach)):
                if value is None:
                    reason = missing if found is None else "fewer than two events of a class in the window"
                    if not spread:
                        reason = f"{NO_SPREAD} in the window"
                    undefined[f"/window/{pointer}/{key}"] = reason
            return {figure: estimate, "interval": reach}

        auc, differences = {}, []
        for j, name in enumerate(names):
            estimate = None if found is None else float(found.auc[j])
            variance = None if found is None or found.covariance is None else max(0.0, float(found.covariance[j, j]))
            auc[name] = told(f"auc/{name}", "auc", estimate, variance, 0.0)
        for place, (a, b) in enumerate(sequential_tests.pairs(len(names))):
            estimate = None if found is None else float(found.auc[a] - found.auc[b])
            variance = None if found is None else found.variance(a, b)
            figures = told(f"differences/{place}", "difference", estimate, variance, -1.0)
            differences.append({"a": names[a], "b": names[b], **figures})
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
        told = []
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
            told.append(
                {
                    "a": names[a],
                    "b": names[b],
                    "evidence": {"a_better": evidence[0], "b_better": evidence[1]},
                    "verdict": (None, "a", "b")[verdict],
                    "words": words,
                    "since_events": events,
                    "since_clock": _known(float(tests.verdict_clocks[pair])),
                    "blocks": blocks,
                }
            )
        return told


def _known(clock: float) -> float | None:
    return None if math.isnan(clock) else clock


def _odds(log10: float) -> str:
    """An amount of evidence as one would say it: 0.4, 7.5, 1,234, 10^15."""
    if log10 >= 9:
        return f"10^{math.floor(log10)}"
    value = 10.0**log10 if log10 > -300 else 0.0
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"
