"""RedSVM: ranks by one weight vector and ordered thresholds, a binary machine over extended examples.

Event i gives ranks - 1 binary examples, "is its rank above k?": z_ik = +1 if y_i > k else -1, k = 1 ... ranks - 1.
With the absolute cost |r - y| of predicting r, a wrong answer costs 1 for any k, so all examples of an event weigh the
same. w and theta minimise

    (|w|^2 + |theta / s|^2) / 2 + C sum_i weight_i sum_k max(0, 1 - z_ik (w.x_i - theta_k))

The rank is 1 + the number of planes w.x - theta_k above 0. The score is the value of the middle plane,
k = ceil(ranks / 2): affine in w.x, and 0 before the first fit.

The thresholds are penalised, with s = `intercept_scaling`; s = 1 is the paper, whose kernel of extended examples is
x.x' + [k = k']. Two thresholds around a rank that did not occur are equal up to the tolerance of the solver. Thresholds
beyond the lowest and the highest rank that occurred lie a margin away from the events.

A fit takes O((ranks - 1) (entries + n)) time per sweep, and memory for as many entries, 28 bytes each. Scoring takes a
dot product per plane.

References
----------
Lin, Li. Reduction from Cost-Sensitive Ordinal Ranking to Weighted Binary Classification. Neural Computation 24(5),
2012: RED-SVM with the absolute cost.
Shi, Wang, Shen, Niu. A Novel Large-scale Ordinal Regression Model. 2018: compares it with npsvor.
Departure: none for s = 1; the solver is LIBLINEAR's, with no kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from learners.algorithms._liblinear import MachineParams, check_entries, examples, parallel, ranks_above, solve_svc
from learners.algorithms.base import Cost, Linear, RankDecisions, Traits
from learners.numerics import Counts, Matrix, Rows, Vector, grown

__all__ = ["TRAITS", "Params", "State", "decide", "fit", "grow", "init", "weights"]

TRAITS = Traits(
    max_dim=2**20,
    ordinal=True,
    cost=Cost(
        "O(ranks * values) per event; a fit O(ranks * values) per retained event and sweep",
        lambda params, size: 20 + params.ranks * (10 + size.each(0.2, 1.5)),
    ),
    halved=("w",),
)


@dataclass(frozen=True)
class Params(MachineParams):
    """Settings of redsvm."""


class State(NamedTuple):
    """The direction of the ranks, and the thresholds between them."""

    w: Vector  # (dim,)
    theta: Vector  # (ranks - 1,)
    sweeps: Counts  # (1,) of the last fit; the limit if it stopped early


def init(params: Params, dim: int, seed: int) -> State:  # noqa: ARG001
    """Return the state before any fit."""
    return State(np.zeros(dim), np.zeros(params.ranks - 1), np.zeros(1, dtype=np.int64))


def grow(params: Params, state: State, dim: int) -> State:  # noqa: ARG001
    """Return the state with `dim` columns."""
    return state._replace(w=grown(state.w, dim))


def fit(params: Params, rows: Rows, dim: int, y: Vector, weight: Vector, seed: int) -> State:
    """Fit w and theta to n rows with ranks `y`.

    Raises ValueError as `examples` and `solve_svc` do, and if the extended examples have too many entries.
    """
    X, ranks, share = examples(params.ranks, rows, dim, y, weight)
    levels = params.ranks - 1
    check_entries(levels * (X.nnz + len(ranks)))
    above = np.where(ranks > np.arange(1, params.ranks)[:, None], 1, -1).ravel()
    extended = _extended(X, levels, -params.intercept_scaling)
    planes = solve_svc(params, extended, above, np.tile(share, levels), seed, intercept=False)
    return State(planes.w[0, :dim], params.intercept_scaling * planes.w[0, dim:], planes.sweeps)


def _extended(X: Any, levels: int, fill: float) -> Any:
    """Build the CSR rows (levels n, dim + levels): X once for each level, with `fill` in the column of the level."""
    from scipy import sparse

    n, dim = X.shape
    data = np.insert(X.data, X.indptr[1:], fill)  # behind the end of each row
    indices = np.tile(np.insert(X.indices, X.indptr[1:], dim), levels)
    starts = X.indptr + np.arange(n + 1, dtype=np.int32)
    indices.reshape(levels, -1)[:, starts[1:] - 1] += np.arange(levels, dtype=np.int32)[:, None]
    indptr = np.append(0, (starts[1:] + starts[-1] * np.arange(levels)[:, None]).ravel()).astype(np.int32)
    return sparse.csr_array((np.tile(data, levels), indices, indptr), shape=(levels * n, dim + levels))


def weights(params: Params, state: State) -> Linear:  # noqa: ARG001
    """Return the weights that score events."""
    return parallel(state.w, state.theta)


def decide(params: Params, values: Matrix) -> RankDecisions:
    """Return the value of the middle plane and the rank, from the values (n, ranks - 1) of the planes."""
    return RankDecisions(values[:, (params.ranks - 1) // 2].copy(), ranks_above(values))
