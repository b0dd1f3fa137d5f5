"""Linear support vector regression of the rank (SVR): ranks as equidistant numbers.

f(x) = w.x + b minimises

    (|w|^2 + (b / s)^2) / 2 + C sum_i weight_i max(0, |y_i - f(x_i)| - eps)

with s = `intercept_scaling`. The rank is f rounded, halves down, and clipped to 1 ... ranks. As planes: plane k is
f - (k + 1/2) for k = 1 ... ranks - 1, and the rank is 1 + the number above 0. The score is f, 0 before the first fit. A
rank that did not occur is predicted like any other.

A fit takes O(entries) time per sweep and memory; scoring a dot product per plane.

References
----------
Ho, Lin. Large-scale Linear Support Vector Regression. JMLR 13, 2012: the solver, LIBLINEAR's.
Shi, Wang, Shen, Niu. A Novel Large-scale Ordinal Regression Model. 2018: compares it with npsvor.
Departure: none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from learners.algorithms._liblinear import MachineParams, examples, parallel, ranks_above, solve_svr
from learners.algorithms.base import Cost, Linear, RankDecisions, Traits
from learners.numerics import Counts, Matrix, Rows, Vector, grown
from learners.settings import param

__all__ = ["TRAITS", "Params", "State", "decide", "fit", "grow", "init", "weights"]

TRAITS = Traits(
    max_dim=2**20,
    ordinal=True,
    cost=Cost(
        "O(ranks * values) per event; a fit O(values) per retained event and sweep",
        lambda params, size: 20 + params.ranks * (10 + size.each(0.2, 1.5)),
    ),
    halved=("w",),
)


@dataclass(frozen=True)
class Params(MachineParams):
    """Settings of svr."""

    eps: float = param(0.1, "largest error without a loss", least=0, most=2.0**6)


class State(NamedTuple):
    """The regression."""

    w: Vector  # (dim,)
    bias: Vector  # (1,)
    sweeps: Counts  # (1,) of the last fit; the limit if it stopped early


def init(params: Params, dim: int, seed: int) -> State:  # noqa: ARG001
    """Return the state before any fit."""
    return State(np.zeros(dim), np.zeros(1), np.zeros(1, dtype=np.int64))


def grow(params: Params, state: State, dim: int) -> State:  # noqa: ARG001
    """Return the state with `dim` columns."""
    return state._replace(w=grown(state.w, dim))


def fit(params: Params, rows: Rows, dim: int, y: Vector, weight: Vector, seed: int) -> State:
    """Fit the regression to n rows with ranks `y`. Raises ValueError as `examples` and `solve_svr` do."""
    X, ranks, share = examples(params.ranks, rows, dim, y, weight)
    planes = solve_svr(params, X, ranks, share, seed, eps=params.eps)
    return State(planes.w[0], planes.bias, planes.sweeps)


def weights(params: Params, state: State) -> Linear:
    """Return the planes that score events: f less 1.5, 2.5, ..."""
    return parallel(state.w, np.arange(1, params.ranks) + 0.5 - state.bias)


def decide(params: Params, values: Matrix) -> RankDecisions:  # noqa: ARG001
    """Return f and its rank, from the values (n, ranks - 1) of the planes."""
    return RankDecisions(values[:, 0] + 1.5, ranks_above(values))
