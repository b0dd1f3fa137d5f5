"""Online logistic regression: the posterior of FOFO; its threshold is in `learners.decisions.threshold`.

The last feature is a bias, always 1. With y01 in {0, 1} and t the events learnt, this one included:

    p = sigmoid(w.x);   w += (c / sqrt(t)) (y01 - p) x

The score is the log-odds of the current w ("last"), or of the mean of the iterates from the last t = 2^j on
("suffix"). The step always uses p of the current w. The weight of an event multiplies its step; an event of weight 0
makes no step and does not count in t. O(non-zeros) time per event; the mean of "suffix" adds O(dim) for dense rows and
at t = 2^j. O(dim) memory.

References
----------
Liu, Zhang, Zhou, Yang. Faster Online Learning of Optimal Threshold for Consistent F-measure Optimization. NeurIPS 2018,
the update of the posterior in FOFO.
Rakhlin, Shamir, Sridharan. Making Gradient Descent Optimal for Strongly Convex Stochastic Optimization. ICML 2012,
suffix averaging.
Departures: the paper's eq. (5) averages all iterates from the first on. "last" averages none; "suffix" restarts the
mean at each power of two. "suffix" gains a little AUC and F on a stationary stream (a9a, shuffled covtype) and loses
more on a changing one (card payments in order of time, ijcnn1 in its original order). So "last" is the default.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from learners.algorithms.base import Cost, Linear, Traits
from learners.numerics import Counts, Issues, Rows, Sparse, Vector, dot, grown, kernel, outside, sigmoid, simd
from learners.settings import Parameters, param

__all__ = ["TRAITS", "Params", "State", "grow", "init", "learn", "problems", "weights"]

TRAITS = Traits(
    posterior=True,
    cost=Cost(
        "O(values) per event",
        lambda params, size: 40 + size.each(0.25, 1.5) + (0.25 * size.dim if params.averaging == "suffix" else 0),
    ),
    halved=("w", "lag"),
)


@dataclass(frozen=True)
class Params(Parameters):
    """Settings of fofo."""

    c: float = param(1.0, "step size: .25-1 suits standardised features, 8-16 unit-norm rows", above=0, most=2.0**20)
    averaging: Literal["last", "suffix"] = param("last", "score with the last iterate, or with a mean of late ones")


class State(NamedTuple):
    """The iterate, and the sums behind the mean of the last iterates; see `_advance`."""

    w: Vector  # (dim,)
    bias: Vector  # (1,)
    lag: Vector  # (dim,) sum over the steps since t = start of (t - start) * step
    bias_lag: Vector  # (1,)
    clock: Counts  # (2,) t, and start: the t at which the mean began


def init(params: Params, dim: int, seed: int) -> State:  # noqa: ARG001
    """Return the state before any event."""
    return State(np.zeros(dim), np.zeros(1), np.zeros(dim), np.zeros(1), np.zeros(2, dtype=np.int64))


def grow(params: Params, state: State, dim: int) -> State:  # noqa: ARG001
    """Return the state with `dim` columns."""
    return state._replace(w=grown(state.w, dim), lag=grown(state.lag, dim))


def learn(params: Params, state: State, rows: Rows, y: Vector, weight: Vector, scores: Vector) -> State:
    """Score each row, then learn from it, in order. Changes `state` in place and fills `scores` (n,)."""
    suffix = params.averaging == "suffix"
    if isinstance(rows, Sparse):
        _learn_sparse(state, *rows, y, weight, params.c, suffix, scores)
    else:
        _learn_dense(state, rows, y, weight, params.c, suffix, scores)
    return state


def weights(params: Params, state: State) -> Linear:
    """Return the weights that score events; for "suffix" a new array, O(dim)."""
    if params.averaging == "last":
        return Linear(state.w, state.bias)
    count = state.clock[0] - state.clock[1] + 1
    return Linear(state.w - np.divide(state.lag, count, dtype=np.float64), state.bias - state.bias_lag / count)


def problems(params: Params, state: State, sparse: bool) -> Issues:  # noqa: ARG001
    """Find values in a restored state that no events lead to."""
    yield from outside("clock", state.clock[1:], 0, int(state.clock[0]))


@kernel
def _learn_dense(state, X, y, weight, c, suffix, scores):  # type: ignore[no-untyped-def]
    w_out, bias, lag_out, bias_lag, clock = state
    dim = w_out.shape[0]
    width = simd.padded(dim)
    x, w, lag = simd.aligned(width), simd.aligned_like(w_out, width), simd.aligned_like(lag_out, width)
    simd.pad(w_out, dim, w)
    simd.pad(lag_out, dim, lag)
    for t in range(X.shape[0]):
        simd.pad(simd.row(X, t), dim, x)
        score = dot(x, w) + bias[0]
        scores[t] = score
        if suffix:
            count = clock[0] - clock[1] + 1
            counts, mean_score = simd.spread(count), simd.spread(0.0)
            for j in range(0, width, 8):
                mean_score = mean_score + simd.load(x, j) * (simd.load(w, j) - simd.load(lag, j) / counts)
            scores[t] = simd.total(mean_score) + (bias[0] - bias_lag[0] / count)
        if weight[t] == 0.0:
            continue
        step, age = _advance(score, y[t], weight[t], c, suffix, clock)
        bias[0] += step
        bias_lag[0] = bias_lag[0] + age * step if age > 0 else 0.0
        steps, ages = simd.spread(step), simd.spread(age)
        for j in range(0, width, 8):
            move = steps * simd.load(x, j)
            simd.store(w, j, simd.load(w, j) + move)
            if suffix:
                simd.store(lag, j, simd.load(lag, j) + ages * move if age > 0 else simd.spread(0.0))
    simd.unpad(w, dim, w_out)
    simd.unpad(lag, dim, lag_out)


@kernel
def _learn_sparse(state, data, indices, indptr, y, weight, c, suffix, scores):  # type: ignore[no-untyped-def]
    w, bias, lag, bias_lag, clock = state
    for t in range(y.shape[0]):
        score = 0.0
        for k in range(indptr[t], indptr[t + 1]):
            score += data[k] * w[indices[k]]
        score += bias[0]
        scores[t] = score
        if suffix:
            count = clock[0] - clock[1] + 1
            mean_score = 0.0
            for k in range(indptr[t], indptr[t + 1]):
                mean_score += data[k] * (w[indices[k]] - np.float64(lag[indices[k]]) / count)
            scores[t] = mean_score + (bias[0] - bias_lag[0] / count)
        if weight[t] == 0.0:
            continue
        step, age = _advance(score, y[t], weight[t], c, suffix, clock)
        bias[0] += step
        bias_lag[0] = bias_lag[0] + age * step if age > 0 else 0.0
        if suffix and age == 0:
            for j in range(lag.shape[0]):
                lag[j] = 0.0
        for k in range(indptr[t], indptr[t + 1]):
            j = indices[k]
            w[j] = simd.within(w, w[j] + step * data[k])
            if age > 0:
                lag[j] = simd.within(lag, lag[j] + age * (step * data[k]))


@kernel
def _advance(score, y, weight, c, suffix, clock):  # type: ignore[no-untyped-def]
    """Advance the clock; return (step, t - start), for w += step x and lag += (t - start) step x.

    The mean of the iterates from start to t is then w - lag / (t - start + 1), because a step at time i is missing from
    the i - start iterates before it. So columns that an event does not have need no update. At t = start, which is
    always the case for "last", lag becomes 0: O(dim), at each power of two.
    """
    clock[0] += 1
    if suffix and clock[0] & (clock[0] - 1) == 0:
        clock[1] = clock[0]
    age = clock[0] - clock[1] if suffix else 0
    return weight * (c / math.sqrt(clock[0])) * ((1.0 if y > 0.0 else 0.0) - sigmoid(score)), age
