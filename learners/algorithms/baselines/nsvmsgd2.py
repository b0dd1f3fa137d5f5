"""Support vector classification by stochastic descent with scheduled decay (SVMSGD2), behind an embedding (NSVMSGD2).

Event number t with the label s = +-1 is one step on |w|^2 lam / 2 + the mean hinge loss:

    w += s x / (lam (t + t0))  if  s w.x < 1;   every 16th event  w *= 1 - 16 / (t + t0);   t0 = lam^(-3/4)

The score is w.x. It has no intercept and no pairs: a classifier whose score also ranks, the plain baseline of `nsauc`.
The weight of an event multiplies its step; an event of weight 0 does not count in t. O(dim) time per event and memory.

Only dense rows: the model is linear and meant for use behind an embedding, which makes dense rows of any kind.

Large rows need no guard: for any w, a step is at most |x| / lam^(1/4) times the weight of the event.

References
----------
Khalid, Ray, Chitsaz. Scalable Nonlinear AUC Maximization Methods. ECML PKDD 2018, where it is a baseline.
Bordes, Bottou, Gallinari. SGD-QN: Careful Quasi-Newton Stochastic Gradient Descent. JMLR 10, 2009, Algorithm 1
(SVMSGD2).
Departures: one pass in the order of the stream instead of draws from a data set; t0 as in Bottou's svmsgd2, and 16
events between decays as in `nsauc`, because Algorithm 1 leaves them to the user.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from learners.algorithms.base import Cost, Linear, Traits
from learners.numerics import Counts, Rows, Vector, dot, kernel, simd
from learners.settings import Parameters, param

__all__ = ["TRAITS", "Params", "State", "init", "learn", "weights"]

TRAITS = Traits(
    sparse=False,
    max_dim=2**14,
    cost=Cost("O(dim) per event", lambda _, size: 40 + 0.3 * size.dim),
    halved=("w",),
    defaults={"embedding": {"kind": "nystroem"}},
)

_SKIP = 16  # events from one decay to the next


@dataclass(frozen=True)
class Params(Parameters):
    """Settings of nsvmsgd2."""

    lam: float = param(1e-6, "regularisation: larger shrinks the weights more", least=2.0**-40, most=1)


class State(NamedTuple):
    """The weights, and the steps so far."""

    w: Vector  # (dim,)
    steps: Counts  # (1,) events of positive weight so far


def init(params: Params, dim: int, seed: int) -> State:  # noqa: ARG001
    """Return the state before any event."""
    return State(np.zeros(dim), np.zeros(1, dtype=np.int64))


def learn(params: Params, state: State, rows: Rows, y: Vector, weight: Vector, scores: Vector) -> State:
    """Score each row, then learn from it, in order. Changes `state` in place and fills `scores` (n,)."""
    root = math.sqrt(params.lam)
    t0 = 1.0 / (root * math.sqrt(root))  # square roots have the same bits on every machine, powers do not
    _learn(state, rows, y, weight, params.lam, t0, scores)
    return state


def weights(params: Params, state: State) -> Linear:  # noqa: ARG001
    """Return the weights that score events."""
    return Linear(state.w, np.zeros(1))


@kernel
def _learn(state, X, y, weight, lam, t0, scores):  # type: ignore[no-untyped-def]
    w, steps = state
    for t in range(X.shape[0]):
        x = X[t]
        scores[t] = dot(x, w)
        if weight[t] == 0.0:
            continue
        steps[0] += 1
        age = steps[0] + t0
        label = 1.0 if y[t] > 0.0 else -1.0
        if label * scores[t] < 1.0:
            size = label * weight[t] / (lam * age)
            for j in range(x.shape[0]):
                w[j] = simd.within(w, w[j] + size * x[j])
        if steps[0] % _SKIP == 0:
            left = 1.0 - _SKIP / age
            for j in range(x.shape[0]):
                w[j] = simd.within(w, np.float64(w[j]) * left)
