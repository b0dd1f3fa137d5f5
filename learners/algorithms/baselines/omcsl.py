"""Online multiple cost-sensitive learning (OMCSL): logistic learners for levels of F, drawn by their F so far.

A classifier with the best F minimises a cost-sensitive error, with costs that depend on that F. The best F is unknown,
so there are K = `learners` of them, for F_k = k / (K + 1), k = 1 to K. The last feature is a bias, always 1. With t the
events learnt, this one included:

    cost_k = 1 - F_k / 2 for a positive, F_k / 2 for a negative
    p_k = sigmoid(w_k.x);   w_k += (c / sqrt(t)) cost_k (y01 - p_k) x

Learner k predicts positive if w_k.x >= 0. Its F = 2 TP / (positives + predicted positives) counts these predictions,
made before learning the event. After each event the learner that scores the next event is drawn, with chances in
proportion to F^power; the chances are equal while every F is 0. So the score is w.x of the drawn learner, and
sigmoid(score) is the posterior with each class weighted by its cost: the right threshold is 1/2, not a learnt one.

The weight of an event multiplies its step. An event of weight 0 counts in each F, but makes no step, does not count in
t and draws no other learner. O(K * non-zeros) time per event, O(K * dim) memory.

References
----------
Yan, Yang, Yang, Chen. A Framework of Online Learning with Imbalanced Streaming Data. AAAI 2017.
Liu, Zhang, Zhou, Yang. Faster Online Learning of Optimal Threshold for Consistent F-measure Optimization. NeurIPS 2018,
where it is the baseline OMCSL.
Departures: the step size is that of `learners.algorithms.fmeasure.fofo`, without a projection of w; and chances use a
high power of F. With power 1 all learners are drawn nearly equally often, the poor ones too. Online F is then .03 to
.07 lower, each at its best step size, on a9a, w8a, ijcnn1 and the rarest class of covtype.
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
    power: int = param(128, "chances are in proportion to this power of F; the paper has 1", least=1, most=1024)


class State(NamedTuple):
    """The learners, counts of their predictions, and the learner that scores."""

    w: Matrix  # (learners, dim)
    bias: Vector  # (learners,)
    called: NDArray[np.int64]  # (learners, 2) predicted positives, and how many of them are positive
    positives: Counts  # (1,) positive events
    steps: Counts  # (1,) t
    drawn: Counts  # (1,) the learner that scores
    rng: Words  # (1,) splitmix64


def init(params: Params, dim: int, seed: int) -> State:
    """Return the state before any event."""
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
    """Return the state with `dim` columns."""
    return state._replace(w=grown(state.w, dim))


def learn(params: Params, state: State, rows: Rows, y: Vector, weight: Vector, scores: Vector) -> State:
    """Score each row, then learn from it, in order. Changes `state` in place and fills `scores` (n,)."""
    if isinstance(rows, Sparse):
        _learn_sparse(state, *rows, y, weight, params.c, params.power, scores)
    else:
        _learn_dense(state, rows, y, weight, params.c, params.power, scores)
    return state


def weights(params: Params, state: State) -> Linear:  # noqa: ARG001
    """Return the weights of the drawn learner, which score events."""
    k = int(state.drawn[0])
    return Linear(state.w[k], state.bias[k : k + 1])


def problems(params: Params, state: State, sparse: bool) -> Issues:  # noqa: ARG001
    """Find values in a restored state that no events lead to."""
    yield from outside("drawn", state.drawn, 0, params.learners - 1)
    if (state.called[:, 1] > np.minimum(state.called[:, 0], state.positives[0])).any():
        yield "called", "has a learner with more true positives than predicted or actual positives"


@kernel
def _learn_dense(state, X, y, weight, c, power, scores):  # type: ignore[no-untyped-def]
    w, bias = state.w, state.bias
    work = np.empty(w.shape[0])  # per learner: its score of the event, then its step, then its chance
    for t in range(X.shape[0]):
        x = X[t]
        for k in range(w.shape[0]):
            work[k] = dot(x, w[k]) + bias[k]
        scores[t] = work[state.drawn[0]]
        _count(state, work, y[t])
        if weight[t] == 0.0:
            continue
        _steps(state, work, y[t], weight[t], c)
        for k in range(w.shape[0]):
            step = work[k]
            row = w[k]
            for j in range(w.shape[1]):
                row[j] = simd.within(row, row[j] + step * x[j])
        _draw(state, work, power)


@kernel
def _learn_sparse(state, data, indices, indptr, y, weight, c, power, scores):  # type: ignore[no-untyped-def]
    w, bias = state.w, state.bias
    work = np.empty(w.shape[0])
    for t in range(y.shape[0]):
        for k in range(w.shape[0]):
            score = 0.0
            for i in range(indptr[t], indptr[t + 1]):
                score += data[i] * w[k, indices[i]]
            work[k] = score + bias[k]
        scores[t] = work[state.drawn[0]]
        _count(state, work, y[t])
        if weight[t] == 0.0:
            continue
        _steps(state, work, y[t], weight[t], c)
        for k in range(w.shape[0]):
            for i in range(indptr[t], indptr[t + 1]):
                j = indices[i]
                w[k, j] = simd.within(w, w[k, j] + work[k] * data[i])
        _draw(state, work, power)


@kernel
def _count(state, scores, y):  # type: ignore[no-untyped-def]
    """Count the prediction of each learner in its F."""
    positive = 1 if y > 0.0 else 0
    state.positives[0] += positive
    for k in range(scores.shape[0]):
        if scores[k] >= 0.0:
            state.called[k, 0] += 1
            state.called[k, 1] += positive


@kernel
def _steps(state, scores, y, weight, c):  # type: ignore[no-untyped-def]
    """Advance the clock, update the biases, and replace the score of each learner by its step, for w_k += step x."""
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
    """Draw the learner that scores the next event. `chances` (learners,) is scratch."""
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
            state.drawn[0] = k  # rounding may leave a rest; then the last learner with a chance
            left -= chances[k]
            if left < 0.0:
                break
