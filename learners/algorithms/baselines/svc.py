"""One-vs-rest linear support vector machines (SVC): ranks as unordered classes, to measure the value of the order.

For each rank k the plane w_k.x + b_k that minimises

    (|w_k|^2 + (b_k / s)^2) / 2 + C sum_i weight_i max(0, 1 - y_ik (w_k.x_i + b_k)),   y_ik = +1 if y_i = k else -1

with s = `intercept_scaling`. The rank is that of the largest plane (ties: the lowest). The score is the expected rank
of a softmax of the planes, less the middle rank: sum_k (k - (ranks + 1) / 2) e^plane_k / sum_k e^plane_k. It is 0
before the first fit.

The plane of a rank that did not occur is the constant -1e300, so it is never the largest. A fitted plane would be -1,
and the largest wherever all others are below that. If only two ranks occur, one plane is the negative of the other.

A fit takes O(ranks entries) time per sweep, O(entries + ranks dim) memory; scoring O(ranks) times a dot product.

References
----------
Fan, Chang, Hsieh, Wang, Lin. LIBLINEAR: A Library for Large Linear Classification. JMLR 9, 2008: the solver.
Shi, Wang, Shen, Niu. A Novel Large-scale Ordinal Regression Model. 2018: compares it with npsvor.
Departure: the planes of ranks that did not occur; the score, which is ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from learners.algorithms._liblinear import MachineParams, examples, solve_svc
from learners.algorithms.base import Cost, Linear, RankDecisions, Traits
from learners.numerics import Counts, Matrix, Rows, Vector, exp, grown, kernel

__all__ = ["TRAITS", "Params", "State", "decide", "fit", "grow", "init", "weights"]

TRAITS = Traits(
    max_dim=2**20,
    ordinal=True,
    cost=Cost(
        "O(ranks * values) per event; a fit O(ranks * values) per retained event and sweep",
        lambda params, size: 20 + params.ranks * (20 + size.each(0.2, 1.5)),
    ),
    halved=("w",),
)

_NEVER = -1e300  # below the value of any plane; differences do not overflow


@dataclass(frozen=True)
class Params(MachineParams):
    """Settings of svc."""


class State(NamedTuple):
    """The planes of the ranks 1, 2, ..."""

    w: Matrix  # (ranks, dim)
    bias: Vector  # (ranks,)
    sweeps: Counts  # (1,) of the last fit; the limit if it stopped early


def init(params: Params, dim: int, seed: int) -> State:  # noqa: ARG001
    """Return the state before any fit."""
    return State(np.zeros((params.ranks, dim)), np.zeros(params.ranks), np.zeros(1, dtype=np.int64))


def grow(params: Params, state: State, dim: int) -> State:  # noqa: ARG001
    """Return the state with `dim` columns."""
    return state._replace(w=grown(state.w, dim))


def fit(params: Params, rows: Rows, dim: int, y: Vector, weight: Vector, seed: int) -> State:
    """Fit the planes to n rows with ranks `y`. Raises ValueError as `examples` and `solve_svc` do."""
    X, ranks, share = examples(params.ranks, rows, dim, y, weight)
    planes = solve_svc(params, X, ranks, share, seed)
    present = np.unique(ranks) - 1
    w, bias = np.zeros((params.ranks, dim)), np.full(params.ranks, _NEVER)
    if len(present) == 2:
        w[present], bias[present] = np.concatenate([-planes.w, planes.w]), np.concatenate([-planes.bias, planes.bias])
    else:
        w[present], bias[present] = planes.w, planes.bias
    return State(w, bias, planes.sweeps)


def weights(params: Params, state: State) -> Linear:  # noqa: ARG001
    """Return the weights that score events."""
    return Linear(state.w, state.bias)


def decide(params: Params, values: Matrix) -> RankDecisions:  # noqa: ARG001
    """Return the rank of the largest plane and the expected rank, from the values (n, ranks) of the planes."""
    scores, ranks = np.empty(len(values)), np.empty(len(values), dtype=np.int64)
    _decide(np.ascontiguousarray(values), scores, ranks)
    return RankDecisions(scores, ranks)


@kernel
def _decide(values, scores, ranks):  # type: ignore[no-untyped-def]
    n, p = values.shape
    for t in range(n):
        best = 0
        for k in range(1, p):
            if values[t, k] > values[t, best]:
                best = k
        total = 0.0
        above = 0.0
        for k in range(p):
            share = exp(values[t, k] - values[t, best])
            total += share
            above += share * (k - 0.5 * (p - 1))
        scores[t] = above / total
        ranks[t] = best + 1
