"""Linear ranking SVM with the squared hinge (RankSVM, by PRSVM+) for dense and sparse rows.

    F(w) = |w|^2 / 2 + (C / 2) mean over (positive, negative) pairs of max(0, 1 - (w.x_i - w.x_j))^2

Events count in the mean by their weights, a pair by the product of two weights. The score is w.x. A truncated Newton
method finds the minimiser without a list of the pairs, see `learners.algorithms._pairwise_hinge`.

A product with the rows takes O(non-zeros) time, with at most 60 products per Newton step; sorting takes O(n log n). 3
to 7 steps are usual. O(non-zeros + dim) memory: sparse rows stay sparse, and the vectors of the solver have an entry
for each column that occurs.

References
----------
Joachims. A Support Vector Method for Multivariate Performance Measures. ICML 2005, the ranking SVM for AUC.
Chapelle, Keerthi. Efficient algorithms for ranking with SVMs. Information Retrieval 13, 2010, PRSVM+.
Departures: the mean over pairs instead of the sum, so C does not depend on the number of events; event weights; step
halving instead of an exact line search. The best C is 2^2 to 2^6 on standardised svmguide3, usps (digits 0-4 against
5-9) and ijcnn1, where a higher C overfits small samples; 2^8 on w8a and a9a, 2^12 on unit-norm farm-ads. With the
default, AUC on held-out events is within .02 of the best, on unit-norm farm-ads within .03.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

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
    tolerance: float = param(1e-3, "stop at this share of the first gradient", above=0, below=1)
    iterations: int = param(100, "most Newton steps", least=1, most=1000)


def init(params: Params, dim: int, seed: int) -> State:  # noqa: ARG001
    """Return the state before the first fit: w = 0."""
    return State(np.zeros(dim), np.zeros(1), np.ones(1), np.zeros(1, dtype=np.int64))


def grow(params: Params, state: State, dim: int) -> State:  # noqa: ARG001
    """Return the state with `dim` columns."""
    return state._replace(w=grown(state.w, dim))


def fit(params: Params, rows: Rows, dim: int, y: Vector, weight: Vector, seed: int) -> State:  # noqa: ARG001
    """Minimise for n rows of `dim` columns. Raises ValueError if a class has no event of positive weight."""
    loss = PairLoss(y, weight)
    if not isinstance(rows, Sparse):
        return minimise(rows, loss, params.C, tolerance=params.tolerance, iterations=params.iterations)
    from scipy import sparse

    columns, places = np.unique(rows.indices, return_inverse=True)
    X = sparse.csr_array((rows.data, places, rows.indptr), shape=(len(y), len(columns)))
    minimum = minimise(X, loss, params.C, tolerance=params.tolerance, iterations=params.iterations)
    w = np.zeros(dim)  # for a column that no row has, 0 is the minimiser
    w[columns] = minimum.w
    return minimum._replace(w=w)


def weights(params: Params, state: State) -> Linear:  # noqa: ARG001
    """Return the weights that score events."""
    return Linear(state.w, np.zeros(1))
