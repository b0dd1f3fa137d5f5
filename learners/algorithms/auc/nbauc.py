"""Batch AUC maximization with the pairwise squared hinge (NBAUC), made for embedded rows.

    F(w) = |w|^2 / 2 + (C / 2) mean over (positive, negative) pairs of max(0, 1 - (w.x_i - w.x_j))^2

Events count in the mean by their weights, a pair by the product of two weights. The score is w.x. The model is linear
in its rows: behind the Nystroem embedding, the default, it is a kernel machine on the landmarks. A truncated Newton
method finds the minimiser without a list of the pairs, see `learners.algorithms._pairwise_hinge`.

A product with the rows takes O(n dim) time, with at most 60 products per Newton step; sorting takes O(n log n). 5 to 7
steps are usual. O(n + dim) memory beside the rows.

Only dense rows, as embeddings make them. `ranksvm` has the same objective for plain rows, sparse ones too.

References
----------
Khalid, Ray, Chitsaz. Scalable Nonlinear AUC Maximization Methods. ECML PKDD 2018, Algorithm 1.
Departure: half the mean over pairs, where the paper's objective has the sum without the factor 1/2. So a C here is
the paper's C times twice the number of pairs. The paper's C depends on the number of events, on their balance and on
the unit of their weights. With the mean, the best C was 2^10 to 2^22 on standardised
svmguide3, usps (digits 0-4 against 5-9), ijcnn1 and eeg_eye with 100 to 2000 landmarks and 500 to 30,000 events. It
grows with the number of events. With the default, AUC on held-out events was within .01 of the best for 100 landmarks.
For more landmarks it was within .005 on usps and ijcnn1, within .04 on svmguide3 (a lower C is better) and within .08
on eeg_eye (a higher C is better).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from learners.algorithms._pairwise_hinge import Minimum, PairLoss, minimise
from learners.algorithms.base import Cost, Linear, Traits
from learners.numerics import Rows, Sparse, Vector
from learners.settings import Parameters, param

__all__ = ["TRAITS", "Params", "State", "fit", "init", "weights"]

TRAITS = Traits(
    sparse=False,
    max_dim=2**14,
    cost=Cost(
        "O(dim) per event; a fit O(dim) per retained event and product, of which there are some hundred",
        lambda _, size: 20 + 0.2 * size.dim,
    ),
    halved=("w",),
    defaults={"embedding": {"kind": "nystroem"}},
)

State = Minimum


@dataclass(frozen=True)
class Params(Parameters):
    """Settings of nbauc."""

    C: float = param(2.0**14, "weight of the mean loss of a pair: smaller regularises more", least=2**-40, most=2**40)
    tolerance: float = param(1e-3, "stop at this share of the first gradient", above=0, below=1)
    iterations: int = param(100, "most Newton steps", least=1, most=1000)


def init(params: Params, dim: int, seed: int) -> State:  # noqa: ARG001
    """Return the state before the first fit: w = 0."""
    return State(np.zeros(dim), np.zeros(1), np.ones(1), np.zeros(1, dtype=np.int64))


def fit(params: Params, rows: Rows, dim: int, y: Vector, weight: Vector, seed: int) -> State:  # noqa: ARG001
    """Minimise for n rows (n, dim). Raises ValueError if a class has no event of positive weight."""
    assert not isinstance(rows, Sparse)
    loss = PairLoss(y, weight)
    return minimise(rows, loss, params.C, tolerance=params.tolerance, iterations=params.iterations)


def weights(params: Params, state: State) -> Linear:  # noqa: ARG001
    """Return the weights that score events."""
    return Linear(state.w, np.zeros(1))
