"""Stochastic alternate maximization (STAMP): alternate between learning the model and measuring its F.

Let r be the reward of a correct prediction. The F of a model is at least v exactly if a sum over n events is at least
v n: (2 - v) r for each positive and v r for each negative. So stages alternate: one maximises that sum for the current
level v, the next measures the level of the model. The last feature is a bias, always 1. With m = y w.x and t the steps
so far, this one included:

    model stage   w += (c / sqrt(t)) (2 - v) sigmoid(-m) x for a positive, -= (c / sqrt(t)) v sigmoid(-m) x for a
                  negative: ascent on the logistic reward 1 - log2(1 + e^-m), with the factor 1 / ln 2 left to c
    level stage   w is constant, and at the end  v = 2 R+ / (n+ + R+ + n- - R-)
                  with R+, R- the sums of r over its n+ positives and n- negatives: "calls" counts correct predictions
                  (positive if w.x >= 0), so v is their F; "logistic" has r = max(0, 1 - log2(1 + e^-m))

The first model stage has `length` events and the level 1, so both classes weigh the same. Each further model stage has
twice the events of the last, and the level stage after it a quarter of them. The score is w.x, and sigmoid(score) is
the posterior with classes weighted by 2 - v and v: the right threshold is 1/2, not a learnt one.

The weight of an event multiplies its step and its part of R and n; an event of weight 0 is in no stage. O(non-zeros)
time per event, O(dim) memory.

References
----------
Narasimhan, Kar, Jain. Optimizing Non-decomposable Performance Measures: A Tale of Two Classes. ICML 2015, STAMP, for F.
Liu, Zhang, Zhou, Yang. Faster Online Learning of Optimal Threshold for Consistent F-measure Optimization. NeurIPS 2018,
where it is the baseline STAMP.
Departures: the default levels are those of "calls". "logistic", as in the paper, has the same reward in both stages
(clipped at 0 here, so v is in [0, 1]). It underestimates the levels: online F is .02 lower on a9a and ijcnn1, each at
its best step size, and .08 lower on w8a. The step size continues from stage to stage, without a projection of w; the
first level and the lengths of the stages are ours. A level below that of predicting every event positive is raised to
it, because the optimal F is no less. Without that, a model that predicts no positives yet would drop all negatives from
the next stage. A level stage without positives does not change v.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np

from learners.algorithms.base import Cost, Linear, Traits
from learners.numerics import Counts, Issues, Rows, Sparse, Vector, bare_kernel, dot, exp, grown, outside, sigmoid, simd
from learners.settings import Parameters, param

__all__ = ["TRAITS", "Params", "State", "grow", "init", "learn", "problems", "weights"]

TRAITS = Traits(
    posterior=True,
    cost=Cost("O(values) per event", lambda _, size: 70 + size.each(0.2, 1.8)),
    halved=("w",),
    defaults=MappingProxyType({"threshold": {"objective": "fixed", "value": 0.5}}),
)

_DOUBLINGS = 40  # no stream is long enough for more


@dataclass(frozen=True)
class Params(Parameters):
    """Settings of stamp."""

    c: float = param(1.0, "step size: .25-2 suits standardised features, 4-16 rows in [0, 1]", above=0, most=2.0**20)
    level: Literal["calls", "logistic"] = param("calls", "reward behind the level: correct calls, or logistic")
    length: int = param(64, "events of the first model stage; the others double", least=4, most=2**20)


class State(NamedTuple):
    """The model, its level, and the position in the stages."""

    w: Vector  # (dim,)
    bias: Vector  # (1,)
    level: Vector  # (1,) v
    sums: Vector  # (4,) of this level stage: R+, n- - R-, n+, n-
    steps: Counts  # (1,) t
    stage: Counts  # (3,) completed pairs of stages, 1 in a level stage else 0, events of the stage so far


def init(params: Params, dim: int, seed: int) -> State:  # noqa: ARG001
    """Return the state before any event."""
    return State(
        w=np.zeros(dim),
        bias=np.zeros(1),
        level=np.ones(1),
        sums=np.zeros(4),
        steps=np.zeros(1, dtype=np.int64),
        stage=np.zeros(3, dtype=np.int64),
    )


def grow(params: Params, state: State, dim: int) -> State:  # noqa: ARG001
    """Return the state with `dim` columns."""
    return state._replace(w=grown(state.w, dim))


def learn(params: Params, state: State, rows: Rows, y: Vector, weight: Vector, scores: Vector) -> State:
    """Score each row, then learn from it, in order. Changes `state` in place and fills `scores` (n,)."""
    if isinstance(rows, Sparse):
        _learn_sparse(state, *rows, y, weight, params.c, params.level == "calls", params.length, scores)
    else:
        _learn_dense(state, rows, y, weight, params.c, params.level == "calls", params.length, scores)
    return state


def weights(params: Params, state: State) -> Linear:  # noqa: ARG001
    """Return the weights that score events."""
    return Linear(state.w, state.bias)


def problems(params: Params, state: State, sparse: bool) -> Issues:  # noqa: ARG001
    """Find values in a restored state that no events lead to."""
    pairs, level, _ = state.stage.tolist()
    length = params.length << min(pairs, _DOUBLINGS)
    yield from outside("stage", state.stage[1:2], 0, 1)
    yield from outside("stage", state.stage[2:], 0, (length // 4 if level else length) - 1)


@bare_kernel
def _learn_dense(state, X, y, weight, c, calls, length, scores):  # type: ignore[no-untyped-def]
    w = state.w
    for t in range(X.shape[0]):
        x = X[t]
        scores[t] = dot(x, w) + state.bias[0]
        step = _advance(state, scores[t], y[t], weight[t], c, calls, length)
        if step != 0.0:
            for j in range(w.shape[0]):
                w[j] = simd.within(w, w[j] + step * x[j])


@bare_kernel
def _learn_sparse(state, data, indices, indptr, y, weight, c, calls, length, scores):  # type: ignore[no-untyped-def]
    w = state.w
    for t in range(y.shape[0]):
        score = 0.0
        for k in range(indptr[t], indptr[t + 1]):
            score += data[k] * w[indices[k]]
        scores[t] = score + state.bias[0]
        step = _advance(state, scores[t], y[t], weight[t], c, calls, length)
        if step != 0.0:
            for k in range(indptr[t], indptr[t + 1]):
                j = indices[k]
                w[j] = simd.within(w, w[j] + step * data[k])


@bare_kernel
def _advance(state, score, y, weight, c, calls, length):  # type: ignore[no-untyped-def]
    """Add an event to the current stage and update the bias; return the step for w += step x."""
    _, bias, level, sums, steps, stage = state
    if weight == 0.0:
        return 0.0
    events = length << min(stage[0], _DOUBLINGS)
    stage[2] += 1
    if stage[1] == 0:
        steps[0] += 1
        rate = weight * (c / math.sqrt(steps[0]))
        step = rate * (2.0 - level[0]) * sigmoid(-score) if y > 0.0 else -rate * level[0] * sigmoid(score)
        bias[0] += step
        if stage[2] == events:
            stage[1] = 1
            stage[2] = 0
            sums[:] = 0.0
        return step
    if y > 0.0:
        right = 1.0 if score >= 0.0 else 0.0
        sums[0] += weight * (right if calls else _reward(score))
        sums[2] += weight
    else:
        wrong = 1.0 if score >= 0.0 else 0.0
        sums[1] += weight * (wrong if calls else 1.0 - _reward(-score))
        sums[3] += weight
    if stage[2] == events // 4:
        if sums[2] > 0.0:
            reached = 2.0 * sums[0] / (sums[2] + sums[0] + sums[1])
            trivial = 2.0 * sums[2] / (2.0 * sums[2] + sums[3])
            level[0] = min(max(reached, trivial), 1.0)
        stage[0] += 1
        stage[1] = 0
        stage[2] = 0
    return 0.0


@bare_kernel
def _reward(m):  # type: ignore[no-untyped-def]
    """Compute max(0, 1 - log2(1 + e^-m)) within 1e-15 in plain arithmetic: the same bits on every machine."""
    if m <= 0.0:
        return 0.0
    z = exp(-m)
    s = z / (2.0 + z)  # log(1 + z) = 2 atanh(s), and s is below 1/3
    square = s * s
    series = 0.0
    for k in range(33, 0, -2):
        series = series * square + 1.0 / k
    return 1.0 - 2.0 * s * series * 1.4426950408889634
