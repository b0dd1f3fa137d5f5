"""Ordinal regression by nonparallel support vectors, fitted by sweeps of dual coordinate descent (NPSVOR, DCD-2).

One plane per rank k of p, with s = +1 where y > k, else -1:

    min over w_k of |w_k|^2 / 2 + C sum over y = k of max(0, |w_k.x| - eps) + C sum over y != k of max(0, 1 - s w_k.x)

by the coordinate steps that `learners.algorithms.ordinal.npsvor` states, over the events in a new random order in each
sweep. With G = B - 1, G_p = B + eps, G_n = B - eps (B = s w_k.x) and M the largest violation of the last sweep, an
event is left out of the sweeps to come ("shrunk") where it seems settled:

    y != k   a = 0 and G > M, or a = C and G < -M
    y  = k   a = 0 and G_p > M and G_n < -M, or a = C and G_p < -M, or a = -C and G_n > M

When the violations of a sweep sum to at most `tolerance` of those of the first one, all events come back, for a sweep
that shrinks none; the plane is done once that holds with all of them. How ranks and severities follow from the planes:
see `learners.algorithms.ordinal.npsvor`.

A rank that the events do not have gets a plane all the same, an ordinary support vector machine of the higher ranks
against the lower ones, which takes its part in the votes. An event's weight multiplies its C; weight 0 leaves it out.
Without bias, rows of length 0 are left out too: no plane moves by them.

O(ranks * sweeps * non-zeros) time, a few dozen sweeps at the default tolerance; O(n + ranks * dim) memory besides the
rows. No guard is needed for large rows, see `learners.algorithms.ordinal.npsvor`.

References
----------
Shi, Wang, Shen, Niu. A Novel Large-scale Ordinal Regression Model: problem (4), algorithm DCD-2.
Departures: the printed shrinking test (32) on the projected gradient can never hold, and the printed lines 27-30 belong
outside the inner loop; both are as above. M is infinite again when all events come back. C1 = C2 = C.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from learners.algorithms.base import Cost, Linear, Ranked, Traits
from learners.algorithms.ordinal.npsvor import as_parts, moved, ranked
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
    C: float = param(1.0, "cap of a dual: what an event's loss counts against |w|^2 / 2", above=0, most=2.0**20)
    eps: float = param(0.1, "how far from its plane an event of the plane's rank may lie at no loss", least=0, most=1)
    bias: bool = param(True, "planes need not pass through the origin: a feature that is always 1")
    tolerance: float = param(0.1, "share of the first sweep's violations that may be left", least=0, below=1)
    sweeps: int = param(1000, "at most so many sweeps per plane", least=1, most=1_000_000)
    rule: Literal["new", "old"] = param("new", "rank by votes of neighbouring planes, or by the nearest plane")


class State(NamedTuple):
    """The planes."""

    w: Matrix  # (ranks, dim)
    bias: Vector  # (ranks,)


def init(params: Params, dim: int, seed: int) -> State:  # noqa: ARG001
    """The state before any fit."""
    return State(np.zeros((params.ranks, dim)), np.zeros(params.ranks))


def grow(params: Params, state: State, dim: int) -> State:  # noqa: ARG001
    """The state for `dim` columns."""
    return state._replace(w=grown(state.w, dim))


def fit(params: Params, rows: Rows, dim: int, y: Vector, weight: Vector, seed: int) -> State:
    """The planes of n rows with the ranks `y` (n,).

    Raises ValueError where events of two ranks or more with a weight above 0 are wanting: w = 0 would be no model.

    Where `sweeps` run out first they are those of the last sweep, finite like any others; a large C on rows that no
    planes fit takes many.
    """
    state = init(params, dim, seed)
    caps = params.C * weight
    kinds = np.unique(y[weight > 0.0])
    if len(kinds) < 2:
        met = f"all have rank {int(kinds[0])}" if len(kinds) else "there are none"
        raise ValueError(f"of the events with a weight above 0 {met}; expected events of at least two ranks")
    dense, bias, rng = not isinstance(rows, Sparse), float(params.bias), np.array([seed], dtype=np.uint64)
    _fit(state, *as_parts(rows), dense, y, caps, params.eps, bias, params.tolerance, params.sweeps, rng)
    return state


def weights(params: Params, state: State) -> Linear:  # noqa: ARG001
    """What scoring needs."""
    return Linear(state.w, state.bias)


def decide(params: Params, values: Matrix) -> Ranked:
    """Ranks and severities by the planes' values (n, ranks)."""
    return ranked(values, params.rule)


@kernel
def _violation(a, B, own, eps, cap):  # type: ignore[no-untyped-def]
    """(How far the dual a is from optimal, how far inside its optimum at a kink or bound): one of the two is 0.

    The second is what has to exceed M for the event to be shrunk.
    """
    if not own:
        G = B - 1.0
        if a == 0.0:
            return max(-G, 0.0), max(G, 0.0)
        if a == cap:
            return max(G, 0.0), max(-G, 0.0)
        return abs(G), 0.0
    up, down = B + eps, B - eps
    if a == 0.0:
        return max(-up, down, 0.0), max(min(up, -down), 0.0)
    if a == cap:
        return max(up, 0.0), max(-up, 0.0)
    if a == -cap:
        return max(-down, 0.0), max(down, 0.0)
    return abs(up if a > 0.0 else down), 0.0


@kernel
def _fit(state, data, indices, indptr, dense, y, caps, eps, bias, tolerance, sweeps, rng):  # type: ignore[no-untyped-def]
    n = y.shape[0]
    squares = np.empty(n)
    order = np.empty(n, dtype=np.int64)
    count = 0
    for i in range(n):
        x = data[indptr[i] : indptr[i + 1]]
        squares[i] = dot(x, x) + bias
        if caps[i] > 0.0 and squares[i] > 0.0:
            order[count] = i
            count += 1
    for k in range(state.bias.shape[0]):
        plane = state.w[k]
        offset = state.bias[k : k + 1]
        a = np.zeros(n)
        size = count  # the first `size` of `order` are swept, the others shrunk
        M = np.inf
        first = 0.0
        for sweep in range(sweeps):
            worst = total = 0.0
            place = 0
            while place < size:
                drawn = place + np.int64(next_random(rng) % np.uint64(size - place))
                i = order[drawn]
                order[drawn] = order[place]
                order[place] = i
                x = data[indptr[i] : indptr[i + 1]]
                ix = indices[indptr[i] : indptr[i + 1]]
                s = 1.0 if y[i] > k + 1.0 else -1.0
                own = y[i] == k + 1.0
                B = 0.0
                if dense:
                    B = dot(x, plane)
                else:
                    for e in range(x.shape[0]):
                        B += x[e] * plane[ix[e]]
                B = s * (B + offset[0])
                violation, settled = _violation(a[i], B, own, eps, caps[i])
                if settled > M:
                    size -= 1
                    order[place] = order[size]
                    order[size] = i
                    continue
                worst = max(worst, violation)
                total += violation
                new = moved(a[i], B, squares[i], own, eps, caps[i])
                step = s * (new - a[i])
                a[i] = new
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
