"""Online multiple cost-sensitive learning (OMCSL): logistic learners for levels of F, drawn by the F they reach.

A classifier of the best F is one of the least cost-sensitive error, with costs that depend on that very F. It is not
known, so K = `learners` of them stand for F_k = k / (K + 1), k = 1 to K. With a bias as the last feature, always 1, and
t the events learnt, this one included:

    cost_k = 1 - F_k / 2 for a positive, F_k / 2 for a negative
    p_k = sigmoid(w_k.x);   w_k += (c / sqrt(t)) cost_k (y01 - p_k) x

Each calls positive where w_k.x >= 0 and counts the F = 2 TP / (positives + called positive) of these calls, made before
the event was learnt. After each event one is drawn, with chances in proportion to F^power, all alike while each has 0:
it scores the next event. So the score is w.x of the one that is drawn, and sigmoid(score) is the posterior where a
class weighs by its cost: 1/2, not a learnt threshold, is where to call.

An event's weight multiplies its step. One of weight 0 counts in each F, but makes no step, is not counted in t and
draws no other learner. O(K * non-zeros) time per event, O(K * dim) memory.

References
----------
Yan, Yang, Yang, Chen. A Framework of Online Learning with Imbalanced Streaming Data. AAAI 2017.
Liu, Zhang, Zhou, Yang. Faster Online Learning of Optimal Threshold for Consistent F-measure Optimization. NeurIPS 2018,
where it is the baseline OMCSL.
Departures: the step size is that of `learners.algorithms.fmeasure.fofo`, without a projection of w; and chances go by a
high power of F.
With plain proportion, power 1, learners are drawn nearly alike and the poor ones show: online F is .03 to .07 lower,
each at its best step size, on a9a, w8a, ijcnn1 and the rarest class of covtype.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from learners.algorithms.base import Cost, Linear, Traits
from learners.numerics import (
    Counts,
    Issues,
    Matrix,
    Rows,
    Sparse,
    Vector,
    Words,
    dot,
    grown,
    kernel,
    next_random,
    outside,
    sigmoid,
    simd,
)
from learners.settings import Parameters, param

__all__ = ["TRAITS", "Params", "State", "grow", "init", "learn", "problems", "weights"]

TRAITS = Traits(
    max_dim=2**20,
    posterior=True,
    cost=Cost(
        "O(learners * values) per event", lambda params, size: 30 + params.learners * (13 + size.each(0.17, 1.6))
    ),
    halved=("w",),
    defaults=MappingProxyType({"threshold": {"objective": "fixed", "value": 0.5}}),
)


@dataclass(frozen=True)
class Params(Parameters):
    """Settings of omcsl."""

    c: float = param(2.0, "step size: 1-4 suits standardised features, 16-32 rows in [0, 1]", above=0, most=2.0**20)
    learners: int = param(10, "cost-sensitive learners: levels of F", least=1, most=32)
    power: int = param(128, "chances go by this power of each learner's F; 1 is the paper's", least=1, most=1024)


class State(NamedTuple):
    """The learners, what they have called, and the one drawn to score."""

    w: Matrix  # (learners, dim)
    bias: Vector  # (learners,)
    called: NDArray[np.int64]  # (learners, 2) events called positive, and how many of them were
    positives: Counts  # (1,) events that were positive
    steps: Counts  # (1,) t
    drawn: Counts  # (1,) which learner scores
    rng: Words  # (1,) splitmix64


def init(params: Params, dim: int, seed: int) -> State:
    """The state before any event."""
    return State(
        w=np.zeros((params.learners, dim)),
        bias=np.zeros(params.learners),
        called=np.zeros((params.learners, 2), dtype=np.int64),
        positives=np.zeros(1, dtype=np.int64),
        steps=np.zeros(1, dtype=np.int64),
        drawn=np.zeros(1, dtype=np.int64),
        rng=np.array([seed], dtype=np.uint64),
    )


def grow(params: Params, state: State, dim: int) -> State:  # noqa: ARG001
    """The state for `dim` columns."""
    return state._replace(w=grown(state.w, dim))


def learn(params: Params, state: State, rows: Rows, y: Vector, weight: Vector, scores: Vector) -> State:
    """Score each row, then learn from it, in order; `state` changes in place, `scores` (n,) is filled."""
    if isinstance(rows, Sparse):
        _learn_sparse(state, *rows, y, weight, params.c, params.power, scores)
    else:
        _learn_dense(state, rows, y, weight, params.c, params.power, scores)
    return state


def weights(params: Params, state: State) -> Linear:  # noqa: ARG001
    """What scoring needs: the learner that was drawn."""
    k = int(state.drawn[0])
    return Linear(state.w[k], state.bias[k : k + 1])


def problems(params: Params, state: State, sparse: bool) -> Issues:  # noqa: ARG001
    """What no events can have led to in a state from elsewhere."""
    yield from outside("drawn", state.drawn, 0, params.learners - 1)
    if (state.called[:, 1] > np.minimum(state.called[:, 0], state.positives[0])).any():
        yield "called", "has a learner that was right about more positives than it called or than there were"


@kernel
def _learn_dense(state, X, y, weight, c, power, scores):  # type: ignore[no-untyped-def]
    w, bias = state.w, state.bias
    own = np.empty(w.shape[0])  # each learner's score of the event, then its step, then its chance to be drawn
    for t in range(X.shape[0]):
        x = X[t]
        for k in range(w.shape[0]):
            own[k] = dot(x, w[k]) + bias[k]
        scores[t] = own[state.drawn[0]]
        _count(state, own, y[t])
        if weight[t] == 0.0:
            continue
        _steps(state, own, y[t], weight[t], c)
        for k in range(w.shape[0]):
            step = own[k]
            row = w[k]
            for j in range(w.shape[1]):
                row[j] = simd.within(row, row[j] + step * x[j])
        _draw(state, own, power)


@kernel
def _learn_sparse(state, data, indices, indptr, y, weight, c, power, scores):  # type: ignore[no-untyped-def]
    w, bias = state.w, state.bias
    own = np.empty(w.shape[0])
    for t in range(y.shape[0]):
        for k in range(w.shape[0]):
            score = 0.0
            for i in range(indptr[t], indptr[t + 1]):
                score += data[i] * w[k, indices[i]]
            own[k] = score + bias[k]
        scores[t] = own[state.drawn[0]]
        _count(state, own, y[t])
        if weight[t] == 0.0:
            continue
        _steps(state, own, y[t], weight[t], c)
        for k in range(w.shape[0]):
            for i in range(indptr[t], indptr[t + 1]):
                j = indices[i]
                w[k, j] = simd.within(w, w[k, j] + own[k] * data[i])
        _draw(state, own, power)


@kernel
def _count(state, scores, y):  # type: ignore[no-untyped-def]
    """Take each learner's call of the event into its F."""
    positive = 1 if y > 0.0 else 0
    state.positives[0] += positive
    for k in range(scores.shape[0]):
        if scores[k] >= 0.0:
            state.called[k, 0] += 1
            state.called[k, 1] += positive


@kernel
def _steps(state, scores, y, weight, c):  # type: ignore[no-untyped-def]
    """Move the clock and the biases, and put in the place of each learner's score the step that w_k += step x takes."""
    state.steps[0] += 1
    rate = weight * (c / math.sqrt(state.steps[0]))
    count = scores.shape[0]
    for k in range(count):
        half = 0.5 * (k + 1) / (count + 1)
        step = rate * (1.0 - half) * sigmoid(-scores[k]) if y > 0.0 else -rate * half * sigmoid(scores[k])
        state.bias[k] += step
        scores[k] = step


@kernel
def _draw(state, chances, power):  # type: ignore[no-untyped-def]
    """Draw the learner that scores next. `chances` (learners,) is room to work in."""
    count = chances.shape[0]
    best = 0.0
    for k in range(count):
        events = state.positives[0] + state.called[k, 0]
        chances[k] = 2.0 * state.called[k, 1] / events if events > 0 else 0.0
        best = max(best, chances[k])
    total = 0.0
    for k in range(count):
        square = chances[k] / best if best > 0.0 else 1.0
        chances[k] = 1.0
        bits = power
        while bits > 0:
            if bits & 1:
                chances[k] *= square
            square *= square
            bits >>= 1
        total += chances[k]
    # the top 53 bits are a uniform number in [0, 1)
    left = total * ((next_random(state.rng) >> np.uint64(11)) * 2.0**-53)
    for k in range(count):
        if chances[k] > 0.0:
            state.drawn[0] = k  # the last with a chance, should rounding leave something over
            left -= chances[k]
            if left < 0.0:
                break
