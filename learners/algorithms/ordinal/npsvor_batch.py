"""Ordinal regression by nonparallel support vectors, fitted by sweeps of dual coordinate descent (NPSVOR).

There is one plane per rank k of p, with s = +1 if y > k, else -1:

    min over w_k of |w_k|^2 / 2 + C1 sum over y = k of max(0, |w_k.x| - eps) + C sum over y != k of max(0, 1 - s w_k.x)

It is found by the coordinate steps of `learners.algorithms.ordinal.npsvor`, over the events in a new random order in
each sweep. With G = B - 1, G_p = B + eps, G_n = B - eps (B = s w_k.x) and M the largest violation of the last sweep,
further sweeps skip ("shrink") an event that seems settled:

    y != k   a = 0 and G > M, or a = C and G < -M
    y  = k   a = 0 and G_p > M and G_n < -M, or a = C1 and G_p < -M, or a = -C1 and G_n > M

That is the solver "dcd-2". "dcd-1" has two duals in [0, C1] for an event of rank k, one for each side of the plane: its
a is their difference. Each has a coordinate step of its own, with the gradient G_p or -G_n, and is shrunk like the dual
of another rank. Both solvers end at the same planes; a sweep of "dcd-1" has more coordinates, and it takes more sweeps.

When the violations of a sweep sum to at most `tolerance` of those of the first sweep, all events return for a sweep
that shrinks none. The plane is final when the condition holds with all events. Ranks and severities follow from the
planes as in `learners.algorithms.ordinal.npsvor`.

A rank without events also gets a plane: an ordinary support vector machine of the higher ranks against the lower ones.
It takes part in the votes. The weight of an event multiplies its C and C1; weight 0 excludes it. Without bias, rows of
length 0 are excluded too, because they move no plane.

O(ranks * sweeps * non-zeros) time, a few dozen sweeps at the default tolerance; O(n + ranks * dim) memory besides the
rows. Large rows need no guard, see `learners.algorithms.ordinal.npsvor`.

References
----------
Shi, Wang, Shen, Niu. A Novel Large-scale Ordinal Regression Model: problem (4), algorithms DCD-1 and DCD-2.
Departures: the printed shrinking test (32) on the projected gradient can never hold, and the printed lines 27-30 belong
outside the inner loop; both are as above. M is infinite again when all events return. C is the paper's C2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from learners.algorithms.base import Cost, Linear, RankDecisions, Traits
from learners.algorithms.ordinal.npsvor import as_parts, new_dual, rank_share, ranked
from learners.numerics import Matrix, Rows, Sparse, Vector, dot, grown, kernel, next_random
from learners.settings import Parameters, param

__all__ = ["TRAITS", "Params", "State", "decide", "fit", "grow", "init", "weights"]

TRAITS = Traits(
    max_dim=2**22,
    ordinal=True,
    cost=Cost(
        "O(ranks * values) per event; a fit O(ranks * values) per retained event and sweep",
        lambda params, size: 20 + params.ranks * (10 + size.each(0.2, 1.5)),
    ),
    halved=("w",),
)


@dataclass(frozen=True)
class Params(Parameters):
    """Settings of npsvor-batch."""

    ranks: int = param(5, "how many ranks there are: labels are 1 to this", least=2, most=64)
    C: float = param(1.0, "cap of a dual: weight of the loss of an event against |w|^2 / 2", above=0, most=2.0**20)
    C1: float | None = param(None, "cap of a dual of an event at the rank of the plane; null: C", above=0, most=2.0**20)
    eps: float = param(0.1, "distance from the plane of its rank within which an event has no loss", least=0, most=1)
    bias: bool = param(True, "planes need not pass through the origin: a feature that is always 1")
    tolerance: float = param(0.1, "largest share of the violations of the first sweep at the end", least=0, below=1)
    sweeps: int = param(1000, "most sweeps per plane", least=1, most=1_000_000)
    solver: Literal["dcd-1", "dcd-2"] = param("dcd-2", "two duals for an event at the rank of the plane, or one")
    rule: Literal["new", "old"] = param("new", "rank by votes of neighbouring planes, or by the nearest plane")


class State(NamedTuple):
    """The planes."""

    w: Matrix  # (ranks, dim)
    bias: Vector  # (ranks,)


def init(params: Params, dim: int, seed: int) -> State:  # noqa: ARG001
    """Return the state before any fit."""
    return State(np.zeros((params.ranks, dim)), np.zeros(params.ranks))


def grow(params: Params, state: State, dim: int) -> State:  # noqa: ARG001
    """Return the state with `dim` columns."""
    return state._replace(w=grown(state.w, dim))


def fit(params: Params, rows: Rows, dim: int, y: Vector, weight: Vector, seed: int) -> State:
    """Fit the planes to n rows with the ranks `y` (n,).

    Raises ValueError unless events with a weight above 0 have at least two ranks: w = 0 would be no model. If `sweeps`
    run out, the planes are those of the last sweep, finite as always; a large C on rows that no planes fit takes many
    sweeps.
    """
    state = init(params, dim, seed)
    caps = params.C * weight
    kinds = np.unique(y[weight > 0.0])
    if len(kinds) < 2:
        ranks = f"all have rank {int(kinds[0])}" if len(kinds) else "there are none"
        raise ValueError(f"of the events with a weight above 0 {ranks}; expected events of at least two ranks")
    dense, bias, rng = not isinstance(rows, Sparse), float(params.bias), np.array([seed], dtype=np.uint64)
    limits = params.tolerance, params.sweeps
    twins = params.solver == "dcd-1"
    _fit(state, *as_parts(rows), dense, y, caps, rank_share(params), params.eps, bias, twins, *limits, rng)
    return state


def weights(params: Params, state: State) -> Linear:  # noqa: ARG001
    """Return the weights that score events."""
    return Linear(state.w, state.bias)


def decide(params: Params, values: Matrix) -> RankDecisions:
    """Decide ranks and severities from the values (n, ranks) of the planes."""
    return ranked(values, params.rule)


@kernel
def _bounded_violation(a, G, cap):  # type: ignore[no-untyped-def]
    """Return violation and slack of a dual in [0, cap] with the gradient G; see `_violation`."""
    if a == 0.0:
        return max(-G, 0.0), max(G, 0.0)
    if a == cap:
        return max(G, 0.0), max(-G, 0.0)
    return abs(G), 0.0


@kernel
def _violation(a, B, eps, cap):  # type: ignore[no-untyped-def]
    """Return the violation of the only dual a of an event at the rank, and its slack; one of them is 0.

    The slack is how far the gradient lies inside the optimum at a kink or bound: an event is shrunk if it exceeds M.
    """
    up, down = B + eps, B - eps
    if a == 0.0:
        return max(-up, down, 0.0), max(min(up, -down), 0.0)
    if a == cap:
        return max(up, 0.0), max(-up, 0.0)
    if a == -cap:
        return max(-down, 0.0), max(down, 0.0)
    return abs(up if a > 0.0 else down), 0.0


@kernel
def _fit(state, data, indices, indptr, dense, y, caps, ratio, eps, bias, twins, tolerance, sweeps, rng):  # type: ignore[no-untyped-def]
    """Fit all planes. With `twins`, dual n + i is that of the other side of event i, for events at the rank."""
    n = y.shape[0]
    squares = np.empty(n)
    usual = np.empty(n, dtype=np.int64)
    events = 0
    for i in range(n):
        x = data[indptr[i] : indptr[i + 1]]
        squares[i] = dot(x, x) + bias
        if caps[i] > 0.0 and squares[i] > 0.0:
            usual[events] = i
            events += 1
    order = np.empty(2 * n, dtype=np.int64)
    order[:events] = usual[:events]
    for k in range(state.bias.shape[0]):
        plane = state.w[k]
        offset = state.bias[k : k + 1]
        count = events
        if twins:
            order[:events] = usual[:events]
            for e in range(events):
                if y[usual[e]] == k + 1.0:
                    order[count] = n + usual[e]
                    count += 1
        a = np.zeros(2 * n)
        size = count  # a sweep covers the first `size` of `order`; the others are shrunk
        M = np.inf
        first = 0.0
        for sweep in range(sweeps):
            worst = total = 0.0
            place = 0
            while place < size:
                index = place + np.int64(next_random(rng) % np.uint64(size - place))
                v = order[index]
                order[index] = order[place]
                order[place] = v
                i = v % n
                x = data[indptr[i] : indptr[i + 1]]
                ix = indices[indptr[i] : indptr[i + 1]]
                s = 1.0 if y[i] > k + 1.0 else -1.0
                at_rank = y[i] == k + 1.0
                cap = ratio * caps[i] if at_rank else caps[i]
                B = 0.0
                if dense:
                    B = dot(x, plane)
                else:
                    for e in range(x.shape[0]):
                        B += x[e] * plane[ix[e]]
                B = s * (B + offset[0])
                side = 1.0 if v < n else -1.0
                one_sided = twins or not at_rank
                if twins and at_rank:
                    B = side * B + eps + 1.0  # so that the margin -eps is 1, too
                if one_sided:
                    violation, settled = _bounded_violation(a[v], B - 1.0, cap)
                else:
                    violation, settled = _violation(a[v], B, eps, cap)
                if settled > M:
                    size -= 1
                    order[place] = order[size]
                    order[size] = v
                    continue
                worst = max(worst, violation)
                total += violation
                new = new_dual(a[v], B, squares[i], not one_sided, eps, cap)
                step = side * s * (new - a[v])
                a[v] = new
                offset[0] += bias * step
                if dense:
                    for j in range(x.shape[0]):
                        plane[j] += step * x[j]
                else:
                    for e in range(x.shape[0]):
                        plane[ix[e]] += step * x[e]
                place += 1
            M = worst
            if sweep == 0:
                first = total
            if total <= tolerance * first:
                if size == count:
                    break
                size = count
                M = np.inf
