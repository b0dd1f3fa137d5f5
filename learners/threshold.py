"""Probability -> label: the threshold that makes F large, learnt beside any algorithm.

An event is called positive where p >= the live threshold. "f1" is FOFO: the best threshold is half the best F, and it
is the minimiser of a strongly convex function, whose stochastic gradient at theta is

    g = pi theta - max(p - theta, 0)            pi: the running share of positives

    m = max(1, floor(log2(2n / log2 n) / 2) - 1) stages of n0 = floor(n / m) events, for n events in all;
    stage k: theta -= gamma g, clipped to within R of the stage's start and to [0, 1/2],  gamma = R / sqrt(10 n0)
    live: the mean of the stage's iterates, its start included; the next stage starts there, with R / 2

After the m stages the last is repeated. With no `horizon` to tell n, blocks of n1 2^j events are FOFO(n1 2^j) each;
theta is carried on, the first radius is 1/2, later ones min(1/2, kappa * that of the last stage).

"f1-window" needs no step size and forgives probabilities that are off: it counts each class in 256 bins of equal width
in log-odds over [-12, 12] and takes the bin edge of the largest 2 TP / (P + TP + FP + 2), the highest of several such,
after each of the first 64 events and then after every 32nd.

"f1-ofo" is half of the F that it has reached itself: TP / (positives + called positive) of the events before, 0 before
the first. It has nothing to set and gets near from the start, but never forgets. "fixed" stays at `value`.

Before the first event the learnt thresholds are 0: all call the first event positive, as the paper does. O(1) per
event; f1-window 256 additions more where it looks.

References
----------
Liu, Zhang, Zhou, Yang. Faster Online Learning of Optimal Threshold for Consistent F-measure Optimization. NeurIPS 2018,
Algorithms 1 and 2. Departures: the doubling blocks, and everything about f1-window, are ours.
Busa-Fekete, Szörényi, Dembczyński, Hüllermeier. Online F-Measure Optimization. NeurIPS 2015, Algorithm 1: f1-ofo.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from learners.arrays import Counts, Matrix, Vector, sigmoid
from learners.jit import kernel
from learners.parameters import Parameters, param
from learners.ranges import MAX_COUNT, Issues, counters, outside

__all__ = ["State", "Threshold", "current", "init", "learn", "problems"]

BINS = 256
REACH = 12.0  # log-odds
FIRST = 64  # f1-window looks after each of so many events,
EVERY = 32  # then after each so many


@dataclass(frozen=True)
class Threshold(Parameters):
    """Settings of the threshold."""

    objective: Literal["f1", "f1-window", "f1-ofo", "fixed"] = param(
        "f1", "FOFO's stages, a histogram's best F, half of the F reached, or fixed"
    )
    horizon: int | None = param(None, "f1: events there will be; null for a stream without end", least=2, most=2**50)
    n1: int = param(256, "f1 without a horizon: events of the first block", least=2, most=2**40)
    kappa: float = param(8.0, "f1 without a horizon: a block's first radius in last radii", above=0, most=2.0**20)
    memory: int | None = param(
        30_000, "f1-window: events after which a past event counts 1/e; null: all count alike", least=100, most=10**9
    )
    value: float = param(0.5, "fixed: the threshold", least=0, most=1)


class State(NamedTuple):
    """A learnt threshold. Arrays that the objective does not use stay as they started."""

    live: Vector  # (1,) the threshold
    seen: Counts  # (2,) events met per class: negatives, positives
    theta: Vector  # (1,) FOFO's iterate
    centre: Vector  # (1,) the iterate that the stage started from
    radius: Vector  # (1,) how far from there the stage may go
    block: Counts  # (4,) the block's events n, its stages m, their length n0, events into the block
    stage: Counts  # (2,) the stage's number in the block, events into the stage
    bins: Matrix  # (2, BINS) events per class and bin, faded; (2, 0) without f1-window
    called: Counts  # (2,) f1-ofo: events called positive, and how many of them were


def init(settings: Threshold) -> State:
    """The state before any event."""
    n = settings.horizon or settings.n1
    return State(
        live=np.array([settings.value if settings.objective == "fixed" else 0.0]),
        seen=np.zeros(2, dtype=np.int64),
        theta=np.zeros(1),
        centre=np.zeros(1),
        radius=np.array([0.5]),
        block=np.array([n, *_stages(n), 0], dtype=np.int64),
        stage=np.zeros(2, dtype=np.int64),
        bins=np.zeros((2, BINS if settings.objective == "f1-window" else 0)),
        called=np.zeros(2, dtype=np.int64),
    )


def problems(settings: Threshold, state: State) -> Issues:
    """What no events can have led to in a state of the right shapes."""
    yield from counters({"seen": state.seen, "called": state.called, "block": state.block, "stage": state.stage})
    yield from outside("live", state.live, 0.0, 1.0)
    yield from outside("theta", state.theta, 0.0, 0.5)
    yield from outside("centre", state.centre, 0.0, 0.5)
    yield from outside("radius", state.radius, 0.0, 0.5)
    yield from outside("bins", state.bins, 0.0, MAX_COUNT)
    first = settings.horizon or settings.n1
    events, stages, each, into = state.block.tolist()
    doubled = max(events, first) // first  # 2^j
    possible = events == first * doubled and doubled & (doubled - 1) == 0 and events <= MAX_COUNT
    if not possible or (settings.horizon and doubled > 1):
        yield "block", f"has a block of {events} events; expected {first}{'' if settings.horizon else ', doubled'}"
    elif (stages, each) != _stages(events):
        yield "block", f"has {stages} stages of {each}; {events} events make {_stages(events)}"
    else:
        yield from outside("block", state.block[3:], 0, MAX_COUNT if settings.horizon else events - 1)
        yield from outside("stage", state.stage[:1], 0, stages - 1)
        yield from outside("stage", state.stage[1:], 0, min(each - 1, into))


def learn(settings: Threshold, state: State, probabilities: Vector, y: Vector, thresholds: Vector) -> None:
    """Fill `thresholds` (n,) with what was live before each event was learnt, and move the state in place."""
    if settings.objective == "f1":
        kappa = settings.kappa if settings.horizon is None else 0.0
        _learn_fofo(state, probabilities, y, kappa, thresholds)
    elif settings.objective == "f1-window":
        keep = 1.0 if settings.memory is None else 1.0 - EVERY / max(settings.memory, EVERY)
        _learn_window(state, probabilities, y, _edges(), keep, thresholds)
    elif settings.objective == "f1-ofo":
        _learn_ofo(state, probabilities, y, thresholds)
    else:
        thresholds[:] = state.live[0]


def current(settings: Threshold, state: State) -> float:  # noqa: ARG001
    """The live threshold."""
    return float(state.live[0])


@kernel
def _log2(n):  # type: ignore[no-untyped-def]
    """log2 of a whole number from 2 to 2^53 in plain arithmetic: exact at powers of two, the same on every machine."""
    x = float(n)
    result = 0.0
    while x >= 2.0:
        x *= 0.5
        result += 1.0
    bit = 0.5
    for _ in range(52):
        x *= x
        if x >= 2.0:
            x *= 0.5
            result += bit
        bit *= 0.5
    return result


@kernel
def _stages(n):  # type: ignore[no-untyped-def]
    """(m, n0) of FOFO(n). floor(log2(q) / 2) is counted in fours: n = 256, where q is 4^3, must not come out as 2."""
    quotient = 2.0 * n / _log2(n)
    fours = 0
    while quotient >= 4.0:
        quotient *= 0.25
        fours += 1
    m = max(1, fours - 1)
    return m, n // m


@kernel
def _learn_fofo(state, probabilities, y, kappa, thresholds):  # type: ignore[no-untyped-def]
    live, seen, theta, centre, radius, block, stage, _, _ = state
    for t in range(y.shape[0]):
        thresholds[t] = live[0]
        seen[1 if y[t] > 0.0 else 0] += 1
        pi = seen[1] / (seen[0] + seen[1])
        gamma = radius[0] / math.sqrt(10.0 * block[2])
        g = pi * theta[0] - max(probabilities[t] - theta[0], 0.0)
        low = max(0.0, centre[0] - radius[0])
        high = min(0.5, centre[0] + radius[0])
        theta[0] = min(max(theta[0] - gamma * g, low), high)
        stage[1] += 1
        live[0] = (stage[1] * live[0] + theta[0]) / (stage[1] + 1)
        block[3] += 1
        if kappa > 0.0 and block[3] == block[0]:
            block[0] *= 2
            block[1], block[2] = _stages(block[0])
            block[3] = 0
            radius[0] = min(0.5, kappa * radius[0])
            stage[0] = 0
        elif stage[1] == block[2]:
            if stage[0] + 1 < block[1]:
                stage[0] += 1
                radius[0] *= 0.5
        else:
            continue
        stage[1] = 0
        theta[0] = live[0]
        centre[0] = live[0]


@kernel
def _learn_ofo(state, probabilities, y, thresholds):  # type: ignore[no-untyped-def]
    live, seen, called = state.live, state.seen, state.called
    for t in range(y.shape[0]):
        thresholds[t] = live[0]
        positive = 1 if y[t] > 0.0 else 0
        seen[positive] += 1
        if probabilities[t] >= live[0]:
            called[0] += 1
            called[1] += positive
        live[0] = called[1] / (seen[1] + called[0])  # at 0 the first event was called positive: no division by 0


@functools.cache
def _edges() -> Vector:
    """The lowest probability of each bin, (BINS,). The first bin takes in all that is below."""
    edges = np.array([sigmoid(-REACH + i * (2 * REACH / BINS)) for i in range(BINS)])
    edges[0] = 0.0
    return edges


@kernel
def _learn_window(state, probabilities, y, edges, keep, thresholds):  # type: ignore[no-untyped-def]
    live, seen, bins = state.live, state.seen, state.bins
    for t in range(y.shape[0]):
        thresholds[t] = live[0]
        own = 1 if y[t] > 0.0 else 0
        seen[own] += 1
        low, high = 0, edges.shape[0]  # the last edge at or below p is in [low, high)
        while high - low > 1:
            middle = (low + high) // 2
            if edges[middle] <= probabilities[t]:
                low = middle
            else:
                high = middle
        bins[own, low] += 1.0
        events = seen[0] + seen[1]
        if events <= FIRST or events % EVERY == 0:
            live[0] = edges[_best(bins)]
        if events % EVERY == 0 and keep < 1.0:
            for b in range(bins.shape[1]):
                bins[0, b] *= keep
                bins[1, b] *= keep


@kernel
def _best(bins):  # type: ignore[no-untyped-def]
    """The bin from which on calling events positive gives the largest F, shrunk by two imagined errors."""
    best, found = -1.0, 0
    hits = called = positives = 0.0
    for b in range(bins.shape[1]):
        positives += bins[1, b]
    for b in range(bins.shape[1] - 1, -1, -1):
        hits += bins[1, b]
        called += bins[0, b] + bins[1, b]
        f1 = 2.0 * hits / (positives + called + 2.0)
        if f1 > best:
            best, found = f1, b
    return found
