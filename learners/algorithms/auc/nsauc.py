"""Pairwise stochastic descent on AUC's hinge loss with scheduled decay and averaging (NSAUC), made for embedded rows.

Each event x makes pairs with `pairs` stored examples b of the other class, drawn uniformly. Pair number t is one step:

    z = y (x - b);   w += z / (lam (t + t0))  if  w.z < 1
    every 16th pair  w *= 1 - 16 / (t + t0),  then  average = mean of w after the 16th, 32nd, ... pair
    t0 = lam^(-3/4)

The average scores, or w itself up to the 16th pair. The weight of an event multiplies its steps; an event of weight 0
makes no pairs, so neither the decay nor the average moves. O(pairs * dim) time per event, O(capacity * dim) memory.

Only dense rows: the model is linear and meant for use behind an embedding, which makes dense rows of any kind.

Large rows need no guard: for any w, a step is at most |z| / lam^(1/4) times the weight of the event.

References
----------
Khalid, Ray, Chitsaz. Scalable Nonlinear AUC Maximization Methods. ECML PKDD 2018, the stochastic method.
Departures: the sign of the step, which is wrong in print; t0 = lam^(-3/4), as in Bottou's svmsgd2, and 16 pairs between
decays and between averages, because the paper leaves t0, rskip and askip to the user; pairs of the newest event with
buffered ones, while the paper draws both from a data set.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from learners.algorithms._buffers import choose_slot, slots_in_use
from learners.algorithms.base import Cost, Linear, Traits
from learners.numerics import Counts, Cube, Rows, Vector, Words, dot, kernel, next_random, simd
from learners.settings import Parameters, param

__all__ = ["TRAITS", "Params", "State", "init", "learn", "step", "weights"]

TRAITS = Traits(
    sparse=False,
    max_dim=2**14,
    cost=Cost("O(pairs * dim) per event", lambda params, size: 60 + params.pairs * (30 + 0.5 * size.dim)),
    halved=("w", "buffer"),
    defaults={"embedding": {"kind": "nystroem"}},
)

_SKIP = 16  # pairs from one decay to the next, and from one iterate of the average to the next


@dataclass(frozen=True)
class Params(Parameters):
    """Settings of nsauc."""

    lam: float = param(1e-6, "regularisation: larger shrinks the weights more", least=2.0**-40, most=1)
    pairs: int = param(4, "stored examples of the other class for each event", least=1, most=1000)
    capacity: int = param(200, "stored examples per class", least=1, most=1000)
    buffer: Literal["fifo", "reservoir"] = param("fifo", "keep the last examples of a class, or a uniform sample")


class State(NamedTuple):
    """The iterate, the average that scores, and the stored examples."""

    w: Vector  # (dim,)
    average: Vector  # (dim,)
    buffer: Cube  # (2, capacity, dim): negatives, positives
    seen: Counts  # (2,) events per class
    steps: Counts  # (1,) pairs so far
    rng: Words  # (1,) splitmix64


def init(params: Params, dim: int, seed: int) -> State:
    """Return the state before any event."""
    return State(
        w=np.zeros(dim),
        average=np.zeros(dim),
        buffer=np.zeros((2, params.capacity, dim)),
        seen=np.zeros(2, dtype=np.int64),
        steps=np.zeros(1, dtype=np.int64),
        rng=np.array([seed], dtype=np.uint64),
    )


def learn(params: Params, state: State, rows: Rows, y: Vector, weight: Vector, scores: Vector) -> State:
    """Score each row, then learn from it, in order. Changes `state` in place and fills `scores` (n,)."""
    root = math.sqrt(params.lam)
    t0 = 1.0 / (root * math.sqrt(root))  # square roots have the same bits on every machine, powers do not
    _learn(state, rows, y, weight, params.lam, t0, _SKIP, params.pairs, params.buffer == "fifo", scores)
    return state


def weights(params: Params, state: State) -> Linear:  # noqa: ARG001
    """Return the weights that score events."""
    return Linear(state.average, np.zeros(1))


@kernel
def step(z, share, lam, t0, rskip, askip, w, average, steps):  # type: ignore[no-untyped-def]
    """Learn from z (dim,), a positive less a negative; update `w`, `average` and `steps` (1,). O(dim).

    `share` multiplies the step. The decay happens every `rskip` pairs, the average every `askip` pairs.
    """
    dim = w.shape[0]
    steps[0] += 1
    t = steps[0]
    if dot(z, w) < 1.0:
        size = share / (lam * (t + t0))
        for j in range(dim):
            w[j] = simd.within(w, w[j] + size * z[j])
    if t % rskip == 0:
        left = 1.0 - rskip / (t + t0)
        for j in range(dim):
            w[j] = simd.within(w, np.float64(w[j]) * left)
    if t < askip:
        average[:] = w
    elif t % askip == 0:
        part = 1.0 / (t // askip)
        for j in range(dim):
            average[j] += part * (w[j] - average[j])


@kernel
def _learn(state, X, y, weight, lam, t0, skip, pairs, fifo, scores):  # type: ignore[no-untyped-def]
    w, average, buffer, seen, steps, rng = state
    dim = w.shape[0]
    capacity = buffer.shape[1]
    z = np.empty(dim)
    for t in range(X.shape[0]):
        x = X[t]
        scores[t] = dot(x, average)
        side = 1 if y[t] > 0.0 else 0
        seen[side] += 1
        s = choose_slot(seen[side], capacity, fifo, rng)
        if s >= 0:
            simd.unpad(x, dim, simd.row(buffer, side, s))
        others = slots_in_use(seen[1 - side], capacity)
        if others == 0 or weight[t] == 0.0:
            continue
        for _ in range(pairs):
            b = buffer[1 - side, np.int64(next_random(rng) % np.uint64(others))]
            for j in range(dim):
                z[j] = y[t] * (x[j] - b[j])
            step(z, weight[t], lam, t0, skip, skip, w, average, steps)
