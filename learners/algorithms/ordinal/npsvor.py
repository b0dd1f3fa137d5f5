"""Ordinal regression by nonparallel support vectors (NPSVOR), online.

There is one plane per rank k of p. It passes within eps of the events of rank k; events of higher ranks lie beyond it
with margin 1, and events of lower ranks before it. x ends in a bias feature 1, s = +1 if y > k, else -1, and a is the
dual variable of the event for plane k. Each plane minimises

    |w_k|^2 / 2 + C1 sum over y = k of max(0, |w_k.x| - eps) + C sum over y != k of max(0, 1 - s w_k.x)

An event makes one exact step of dual coordinate descent per plane, from a = 0 (A = x.x, B = s w_k.x):

    y != k   a = clip(a - (B - 1) / A, 0, C)         y = k   a = clip(soft(a - B / A, eps / A), -C1, C1)
    w_k += (a_new - a_old) s x

Then `replays` events, drawn from the last `capacity`, make one more step each from their current duals. An event that
leaves the buffer leaves its part of w behind. The scoring planes are the average with polynomial decay, updated once
per event: v_k += min(1, 8 / (t + 7)) (w_k - v_k), with t the events learnt.

The rank is 1 + #{k < p: v_k.x + v_{k+1}.x > 0} ("new": two neighbouring planes vote on which side of their middle x
lies), or argmin_k |v_k.x| ("old"). The severity that orders events, of one rank too, is the sum over k < p of
v_k.x + v_{k+1}.x, for either rule.

The weight of an event multiplies its C and C1; an event of weight 0 is only scored. O(ranks * (1 + replays) *
non-zeros) time per event: the state has the distance between w and the average, because updating the average would
cost O(ranks * dim); see `_age`. O(ranks * dim + capacity * non-zeros) memory. Publishing costs O(ranks * dim).

Large rows need no guard: the dual objective starts at 0 and no step lowers it, so |w_k|^2 is at most twice the larger
of C and C1 times the sum of the weights.

References
----------
Shi, Wang, Shen, Niu. A Novel Large-scale Ordinal Regression Model: problem (4), the coordinate steps of DCD-2.
Shamir, Zhang. Stochastic Gradient Descent for Non-smooth Optimization. ICML 2013, polynomial-decay averaging (eta = 7).
Departures: the paper sweeps over all events until convergence ("npsvor-batch"); buffer, replays and average are ours.
On era, esl, lev, swd and Treebank one pass has at most .01 more mean absolute error. C is the paper's C2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from learners.algorithms._buffers import buffer_problems, prepare_dense, prepare_sparse, read_row, store_row
from learners.algorithms.base import Cost, Linear, RankDecisions, Traits
from learners.numerics import (
    Counts,
    Cube,
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
    simd,
)
from learners.settings import Parameters, param

__all__ = [
    "TRAITS",
    "Params",
    "State",
    "as_parts",
    "decide",
    "grow",
    "init",
    "learn",
    "new_dual",
    "problems",
    "rank_share",
    "ranked",
    "weights",
]

TRAITS = Traits(
    max_dim=2**22,
    ordinal=True,
    cost=Cost(
        "O(ranks * (1 + replays) * values) per event",
        lambda params, size: params.ranks * (1 + params.replays) * (22 + size.each(0.3, 1.4)),
    ),
    halved=("w", "values"),
)


@dataclass(frozen=True)
class Params(Parameters):
    """Settings of npsvor."""

    ranks: int = param(5, "how many ranks there are: labels are 1 to this", least=2, most=64)
    C: float = param(2.0**-2, "cap of a dual; 2^-4 suits replays = 0, .5 unit-norm text", above=0, most=2.0**20)
    C1: float | None = param(None, "cap of a dual of an event at the rank of the plane; null: C", above=0, most=2.0**20)
    eps: float = param(0.1, "distance from the plane of its rank within which an event has no loss", least=0, most=1)
    replays: int = param(4, "earlier events that make another step after each event", least=0, most=64)
    capacity: int = param(1000, "events for replays: the last ones", least=1, most=10_000)
    rule: Literal["new", "old"] = param("new", "rank by votes of neighbouring planes, or by the nearest plane")


class State(NamedTuple):
    """The planes, their distance from the average, and the events for replays.

    The buffer is as in `learners.algorithms._buffers`, with one class; without replays it has no slots.
    """

    w: Matrix  # (ranks, dim) the last iterate
    bias: Vector  # (ranks,)
    lag: Matrix  # (ranks, dim) (w - average) * _age(t)
    bias_lag: Vector  # (ranks,)
    values: Cube  # (1, slots, width)
    columns: NDArray[np.int64]  # (1, slots, width) ascending; (1, slots, 0) for dense rows
    lengths: NDArray[np.int64]  # (1, slots)
    labels: Vector  # (slots,) ranks
    caps: Vector  # (slots,) C times weight
    duals: Matrix  # (slots, ranks)
    clock: Counts  # (1,) t
    rng: Words  # (1,) splitmix64


def init(params: Params, dim: int, seed: int) -> State:
    """Return the state before any event."""
    slots = params.capacity if params.replays else 0
    return State(
        w=np.zeros((params.ranks, dim)),
        bias=np.zeros(params.ranks),
        lag=np.zeros((params.ranks, dim)),
        bias_lag=np.zeros(params.ranks),
        values=np.zeros((1, slots, 0)),
        columns=np.zeros((1, slots, 0), dtype=np.int64),
        lengths=np.zeros((1, slots), dtype=np.int64),
        labels=np.zeros(slots),
        caps=np.zeros(slots),
        duals=np.zeros((slots, params.ranks)),
        clock=np.zeros(1, dtype=np.int64),
        rng=np.array([seed], dtype=np.uint64),
    )


def grow(params: Params, state: State, dim: int) -> State:  # noqa: ARG001
    """Return the state of sparse rows with `dim` columns."""
    return state._replace(w=grown(state.w, dim), lag=grown(state.lag, dim))


def learn(params: Params, state: State, rows: Rows, y: Vector, weight: Vector, scores: Matrix) -> State:
    """Score each row by every plane, then learn from it, in order; fill `scores` (n, ranks), return the state.

    The arrays change in place, but a wider buffer replaces a narrow one for a long sparse row. With replays, raises
    ValueError for sparse rows after dense ones and for dense rows after sparse ones.
    """
    if not len(y):
        return state
    if params.replays and isinstance(rows, Sparse):
        state = prepare_sparse(state, int(np.diff(rows.indptr).max()))
    elif params.replays:
        state = prepare_dense(state, state.w.shape[1])
    dense = not isinstance(rows, Sparse)
    _learn(state, *as_parts(rows), dense, y, weight, params.C, rank_share(params), params.eps, params.replays, scores)
    return state


def rank_share(params: Any) -> float:
    """Return C1 / C: the cap of a dual of an event at the rank of the plane, as a share of that of the others."""
    return 1.0 if params.C1 is None else float(params.C1 / params.C)


def weights(params: Params, state: State) -> Linear:  # noqa: ARG001
    """Return the average planes, which score events: new arrays, O(ranks * dim)."""
    share = _share(state.clock[0])
    return Linear(state.w - state.lag * share, state.bias - state.bias_lag * share)


def problems(params: Params, state: State, sparse: bool) -> Issues:
    """Find values in a restored state that no events lead to."""
    slots = params.capacity if params.replays else 0
    for name, shape in (("labels", (slots,)), ("caps", (slots,)), ("duals", (slots, params.ranks))):
        if getattr(state, name).shape != shape:  # without replays the axis is empty, and not checked before
            yield name, f"has shape {getattr(state, name).shape}; expected {shape}"
    if state.lengths.shape != (1, slots):
        yield "lengths", f"has shape {state.lengths.shape}; expected {(1, slots)}"
    else:
        yield from buffer_problems(state, state.w.shape[1], sparse)
    yield from outside("labels", state.labels, 0, params.ranks)  # 0 in free slots
    if (state.labels % 1.0 != 0.0).any():
        yield "labels", "has ranks that are not whole"


def decide(params: Params, values: Matrix) -> RankDecisions:
    """Decide ranks and severities from the values (n, ranks) of the planes."""
    return ranked(values, params.rule)


def ranked(values: Matrix, rule: str) -> RankDecisions:
    """Decide ranks by the rule "new" or "old" (ties: the lowest rank); the severity is the sum of the votes.

    Before the first event all values are 0: rank 1, severity 0.
    """
    votes = values[:, :-1] + values[:, 1:]
    ranks = np.argmin(np.abs(values), axis=1) if rule == "old" else np.count_nonzero(votes > 0.0, axis=1)
    return RankDecisions(votes.sum(axis=1), ranks.astype(np.int64) + 1)


def as_parts(rows: Rows) -> Sparse:
    """Return rows of either kind as the parts of a CSR matrix, for one kernel.

    Dense rows keep their zeros and get no `indices`; the kernel needs a flag for them.
    """
    if isinstance(rows, Sparse):
        return rows
    n, dim = rows.shape
    return Sparse(rows.reshape(-1), np.empty(0, dtype=np.int64), np.arange(n + 1, dtype=np.int64) * dim)


@kernel
def new_dual(a, B, A, at_rank, eps, cap):  # type: ignore[no-untyped-def]
    """Return the dual after one exact coordinate step from a; `at_rank`: the event has the rank of the plane.

    Comparisons with the bounds come before any division, which could overflow. A row of length 0, or of a length beyond
    float64, makes no step.
    """
    if not 0.0 < A < np.inf:
        return a
    if not at_rank:
        return _clipped(a, 1.0 - B, A, 0.0, cap)
    if a * A - B > eps:  # the two sides of the soft threshold
        return _clipped(a, -eps - B, A, 0.0, cap)
    if a * A - B < -eps:
        return _clipped(a, eps - B, A, -cap, 0.0)
    return 0.0


@kernel
def _clipped(a, pull, A, low, high):  # type: ignore[no-untyped-def]
    """Compute clip(a + pull / A, low, high)."""
    if pull >= (high - a) * A:
        return high
    if pull <= (low - a) * A:
        return low
    return min(max(a + pull / A, low), high)


@kernel
def _age(t):  # type: ignore[no-untyped-def]
    """Compute t (t + 1) ... (t + 7), the factor of a change of w at event t + 1 in `lag`.

    With g = 8 / (t + 7) the distance L = w - v of the average obeys L_t = (1 - g) (L_{t-1} + change of w at t), and
    1 - g = _age(t - 1) / _age(t). So L_t _age(t) is the sum of the changes, each times _age(t - 1), and a column
    that an event does not have needs no update. It is below 1e130 for any t, so `lag` stays finite.
    """
    age = 1.0
    for i in range(8):
        age *= t + i
    return age


@kernel
def _share(t):  # type: ignore[no-untyped-def]
    """Return the factor of the lag: 1 / _age(t), or 0 before the first event, when w is 0 too."""
    return 1.0 / _age(t) if t > 0 else 0.0


@kernel
def _learn(state, data, indices, indptr, dense, y, weight, C, ratio, eps, replays, scores):  # type: ignore[no-untyped-def]
    """Learn in one kernel: passing a dozen arrays to another costs more than the step of a plane at 10 columns."""
    w, bias, lag, bias_lag, values, columns, lengths, labels, caps, duals, clock, rng = state
    ranks = bias.shape[0]
    slots = labels.shape[0]
    mean = np.empty(w.shape[1])
    fresh = np.empty(ranks)
    replayed = np.empty(values.shape[2])
    for t in range(y.shape[0]):
        x = data[indptr[t] : indptr[t + 1]]
        ix = indices[indptr[t] : indptr[t + 1]]
        share = _share(clock[0])
        for k in range(ranks):  # the same bits as from `weights` and `linear_scores`
            value = 0.0
            if dense:
                for j in range(x.shape[0]):
                    mean[j] = w[k, j] - lag[k, j] * share
                value = dot(x, mean)
            else:
                for i in range(x.shape[0]):
                    value += x[i] * (w[k, ix[i]] - lag[k, ix[i]] * share)
            scores[t, k] = value + (bias[k] - bias_lag[k] * share)
        if weight[t] == 0.0:
            continue
        label, cap, a = y[t], C * weight[t], fresh
        a[:] = 0.0
        age = _age(clock[0])
        clock[0] += 1
        for turn in range(1 + replays):
            if turn > 0:
                s = np.int64(next_random(rng) % np.uint64(min(clock[0], slots)))
                x = read_row(values[0, s, : lengths[0, s]], replayed)
                ix = columns[0, s, : lengths[0, s]]
                label, cap, a = labels[s], caps[s], duals[s]
            A = dot(x, x) + 1.0
            for k in range(ranks):
                B = 0.0
                if dense:
                    B = dot(x, w[k])
                else:
                    for i in range(x.shape[0]):
                        B += x[i] * w[k, ix[i]]
                sign = 1.0 if label > k + 1.0 else -1.0
                at_rank = label == k + 1.0
                most = ratio * cap if at_rank else cap
                new = new_dual(a[k], sign * (B + bias[k]), A, at_rank, eps, most)
                step = sign * (new - a[k])
                a[k] = new
                if step == 0.0:
                    continue
                bias[k] += step
                bias_lag[k] += age * step
                if dense:
                    for j in range(x.shape[0]):
                        w[k, j] = simd.within(w, w[k, j] + step * x[j])
                        lag[k, j] += age * (step * x[j])
                else:
                    for i in range(x.shape[0]):
                        j = ix[i]
                        w[k, j] = simd.within(w, w[k, j] + step * x[i])
                        lag[k, j] += age * (step * x[i])
            if turn == 0 and replays > 0:
                s = (clock[0] - 1) % slots
                store_row(x, ix, values[0, s], columns[0, s], lengths[0, s : s + 1])
                labels[s], caps[s] = label, cap
                duals[s] = a
