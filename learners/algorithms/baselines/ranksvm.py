"""Linear ranking SVM with the squared hinge (RankSVM, by PRSVM+) for dense and sparse rows.

    F(w) = |w|^2 / 2 + (C / 2) mean over (positive, negative) pairs of max(0, 1 - (w.x_i - w.x_j))^2

Events count in the mean by their weights, a pair by the product; the score is w.x. The minimiser comes from a
truncated Newton method that needs no list of the pairs, see `learners.algorithms._pairwise_hinge`.

O(non-zeros) time per product with the rows, of which there are at most 60 per Newton step, and O(n log n) for sorting;
3 to 7 steps are usual. O(non-zeros + dim) memory: sparse rows stay sparse, and the solver's vectors are as long as the
columns that occur in them.

References
----------
Joachims. A Support Vector Method for Multivariate Performance Measures. ICML 2005, the ranking SVM for AUC.
Chapelle, Keerthi. Efficient algorithms for ranking with SVMs. Information Retrieval 13, 2010, PRSVM+.
Departures: the mean over pairs instead of the sum, so that C means the same for any number of events; event weights;
halved steps instead of an exact line search. The best C is 2^2 to 2^6 on standardised svmguide3, usps (digits 0-4
against 5-9) and ijcnn1, where more overfits small samples; 2^8 on w8a and a9a, 2^12 on unit-norm farm-ads. With the
default, AUC on held-out events is within .02 of its best, with farm-ads' unit-norm rows .03.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from learners.algorithms._pairwise_hinge import Minimum, PairLoss, minimise
from learners.algorithms.base import Cost, Linear, Traits
from learners.numerics import Rows, Sparse, Vector, grown
from learners.settings import Parameters, param

__all__ = ["TRAITS", "Params", "State", "fit", "grow", "init", "weights"]

TRAITS = Traits(
    cost=Cost(
        "O(values) per event; a fit O(values) per retained event and product, of which there are some hundred",
        lambda _, size: 20 + size.each(0.2, 1.5),
    ),
    halved=("w",),
)

State = Minimum


@dataclass(frozen=True)
class Params(Parameters):
    """Settings of ranksvm."""

    C: float = param(2.0**6, "weight of the mean loss of a pair: smaller regularises more", least=2**-40, most=2**40)
    tolerance: float = param(1e-3, "stop when the gradient is so small a share of the first one", above=0, below=1)
    iterations: int = param(100, "Newton steps at most", least=1, most=1000)


def init(params: Params, dim: int, seed: int) -> State:  # noqa: ARG001
    """The state before the first fit: w = 0."""
    return State(np.zeros(dim), np.zeros(1), np.ones(1), np.zeros(1, dtype=np.int64))


def grow(params: Params, state: State, dim: int) -> State:  # noqa: ARG001
    """The state for `dim` columns."""
    return state._replace(w=grown(state.w, dim))


def fit(params: Params, rows: Rows, dim: int, y: Vector, weight: Vector, seed: int) -> State:  # noqa: ARG001
    """The minimiser for n rows of `dim` columns. Raises ValueError where a class has no event of positive weight."""
    loss = PairLoss(y, weight)
    if not isinstance(rows, Sparse):
        return minimise(rows, loss, params.C, tolerance=params.tolerance, iterations=params.iterations)
    columns, places = np.unique(rows.indices, return_inverse=True)
    X = sparse.csr_array((rows.data, places, rows.indptr), shape=(len(y), len(columns)))
    found = minimise(X, loss, params.C, tolerance=params.tolerance, iterations=params.iterations)
    w = np.zeros(dim)  # of a column that no row has, 0 is the minimiser
    w[columns] = found.w
    return found._replace(w=w)


def weights(params: Params, state: State) -> Linear:  # noqa: ARG001
    """What scoring needs."""
    return Linear(state.w, np.zeros(1))
