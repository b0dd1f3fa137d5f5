"""Support vector ordinal regression (SVOR): ranks by one weight vector and free thresholds between them.

Event i gives ranks - 1 binary examples, "is its rank above k?": z_ik = +1 if y_i > k else -1, k = 1 ... ranks - 1.
w and theta minimise

    |w|^2 / 2 + C sum_i weight_i sum_k max(0, 1 - z_ik (w.x_i - theta_k))

The rank is 1 + the number of planes w.x - theta_k above 0. The score is the value of the middle plane,
k = ceil(ranks / 2): affine in w.x, and 0 before the first fit.

The thresholds are not penalised, so the duals a_ik in [0, C weight_i] obey sum_i z_ik a_ik = 0 for each k. At the
minimum the thresholds are in order without a constraint that says so ("implicit constraints"). `redsvm` is the same
with penalised thresholds.

The solver is dual coordinate descent inside the method of multipliers: a round starts from the present thresholds t,
adds |theta - t|^2 / (2 rho) to the objective, which frees the duals of their sums, and sweeps over all a_ik in random
order, with G = z_ik (w.x_i - theta_k) - 1:

    a = clip(a - G / (x.x + rho), 0, C weight_i);   w += change z_ik x_i;   theta_k -= rho change z_ik

until no dual violates its optimality by more than `tolerance`. The fit ends if a round has moved no threshold by more.
rho is the mean of x.x, or 1 if that is less.

A fit takes O(ranks (entries + n)) time per sweep and O(ranks n) memory. Scoring takes a dot product per plane.

References
----------
Chu, Keerthi. Support Vector Ordinal Regression. Neural Computation 19(3), 2007: the approach with implicit constraints.
Shi, Wang, Shen, Niu. A Novel Large-scale Ordinal Regression Model. 2018: compares its kernel form with npsvor.
Departures: linear, without a kernel; the solver, in place of SMO.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from learners.algorithms._liblinear import examples
from learners.algorithms.baselines.redsvm import TRAITS, State, decide, grow, init, weights
from learners.algorithms.ordinal.npsvor import new_dual
from learners.numerics import Rows, Vector, kernel, next_random
from learners.settings import Parameters, param

__all__ = ["TRAITS", "Params", "State", "decide", "fit", "grow", "init", "weights"]


@dataclass(frozen=True)
class Params(Parameters):
    """Settings of svor."""

    ranks: int = param(5, "how many ranks there are: labels are 1 to this", least=2, most=64)
    C: float = param(1.0, "weight of the losses against the penalty", above=0, most=2.0**20)
    tolerance: float = param(
        1e-3, "largest violation of an optimality condition, and last move of a threshold", least=1e-12, most=1
    )
    sweeps: int = param(1000, "most sweeps over the events", least=1, most=1_000_000)


def fit(params: Params, rows: Rows, dim: int, y: Vector, weight: Vector, seed: int) -> State:
    """Fit w and theta to n rows with ranks `y`.

    Raises ValueError as `examples` does. If `sweeps` run out, w and theta are those of the last sweep.
    """
    X, ranks, share = examples(params.ranks, rows, dim, y, weight)
    state = State(np.zeros(dim), np.zeros(params.ranks - 1), np.zeros(1, dtype=np.int64))
    parts = X.data, X.indices.astype(np.int64), X.indptr.astype(np.int64)
    rng = np.array([seed], dtype=np.uint64)
    _fit(state, *parts, ranks, params.C * share, params.tolerance, params.sweeps, rng)
    return state


@kernel
def _fit(state, data, indices, indptr, y, caps, tolerance, sweeps, rng):  # type: ignore[no-untyped-def]
    w, theta, done = state
    n, levels = y.shape[0], theta.shape[0]
    squares = np.zeros(n)
    total = 0.0
    for i in range(n):
        for e in range(indptr[i], indptr[i + 1]):
            squares[i] += data[e] * data[e]
        total += squares[i]
    rho = max(1.0, total / n)
    a = np.zeros((n, levels))
    order = np.arange(n)
    start = theta.copy()
    for _ in range(sweeps):
        done[0] += 1
        worst = 0.0
        for place in range(n):
            index = place + np.int64(next_random(rng) % np.uint64(n - place))
            i = order[index]
            order[index] = order[place]
            order[place] = i
            value = 0.0
            for e in range(indptr[i], indptr[i + 1]):
                value += data[e] * w[indices[e]]
            for k in range(levels):
                z = 1.0 if y[i] > k + 1 else -1.0
                B = z * (value - theta[k])
                old, cap = a[i, k], caps[i]
                violation = abs(B - 1.0)
                if (old == 0.0 and B >= 1.0) or (old == cap and B <= 1.0):
                    violation = 0.0
                worst = max(worst, violation)
                a[i, k] = new_dual(old, B, squares[i] + rho, False, 0.0, cap)
                change = z * (a[i, k] - old)
                if change == 0.0:
                    continue
                theta[k] -= rho * change
                value += change * squares[i]
                for e in range(indptr[i], indptr[i + 1]):
                    w[indices[e]] += change * data[e]
        if worst <= tolerance:
            moved = theta - start  # -rho times the sums of the duals
            if np.abs(moved).max() <= tolerance:
                break
            start[:] = theta
            theta += moved
