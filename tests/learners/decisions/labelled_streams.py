"""Labelled events for the tests of thresholds, and decisions on them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from learners.decisions import threshold
from learners.decisions.threshold import CAUTIOUS, Threshold
from learners.numerics.arrays import Counts, Vector


def as_in_the_papers(**values: Any) -> Threshold:
    """Return the settings without a limit of alerts at the start."""
    return Threshold(**values, cautious=values["objective"] not in CAUTIOUS)


def events(n: int, seed: int, share: float = 0.2) -> tuple[Vector, Vector]:
    """Calibrated probabilities and labels drawn from them."""
    random = np.random.default_rng(seed)
    p = random.beta(0.5, 0.5 / share - 0.5, n)
    return p, np.where(random.random(n) < p, 1.0, -1.0)


class Stream(NamedTuple):
    """Events as the threshold meets them."""

    p: Vector
    y: Vector
    decided: NDArray[np.bool_]
    costs: Vector
    clocks: Vector

    def part(self, start: int, stop: int) -> Stream:
        return Stream._make(column[start:stop] for column in self)


def undated(p: Vector, y: Vector) -> Stream:
    """Events that are decided as they are learnt, at no time."""
    return Stream(p, y, np.ones(len(p), dtype=np.bool_), np.ones(len(p)), np.full(len(p), np.nan))


def mixed(n: int, seed: int) -> Stream:
    """Events of every kind, over some days."""
    random = np.random.default_rng(seed)
    p, y = events(n, seed)
    clocks = 1e9 + np.cumsum(random.exponential(2000.0, n))
    clocks[: n // 20] = np.nan
    return Stream(p, y, random.random(n) < 0.6, random.lognormal(0, 2, n), clocks)


class Decided(NamedTuple):
    """Thresholds and decisions of some events."""

    thresholds: Vector
    decisions: Counts


def learnt(setting: Threshold, state: threshold.ThresholdState, stream: Stream) -> Decided:
    decisions = Decided(np.empty(len(stream.p)), np.empty(len(stream.p), dtype=np.int64))
    threshold.learn(setting, state, *stream, *decisions)
    return decisions


def served(setting: Threshold, state: threshold.ThresholdState, stream: Stream) -> Decided:
    decisions = Decided(np.empty(len(stream.p)), np.empty(len(stream.p), dtype=np.int64))
    threshold.serve(setting, state, stream.p, stream.costs, stream.clocks, *decisions)
    return decisions


def run(setting: Threshold, p: Vector, y: Vector) -> tuple[threshold.ThresholdState, Vector]:
    state = threshold.init(setting)
    thresholds, decisions = learnt(setting, state, undated(p, y))
    if setting.objective != "budget":
        cautious = setting.cautious and setting.objective in CAUTIOUS
        none = cautious & (thresholds == 1.0)  # not even for a probability of 1
        np.testing.assert_array_equal(decisions, (p >= thresholds) & ~none)
    assert list(threshold.problems(setting, state)) == []
    return state, thresholds


def copied(state: threshold.ThresholdState) -> threshold.ThresholdState:
    return threshold.ThresholdState._make(array.copy() for array in state)
