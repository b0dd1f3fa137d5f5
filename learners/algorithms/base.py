"""The protocol of an algorithm: a module with TRAITS, Params, State, init, weights, and `learn`, `fit` or both.

An online algorithm has `learn`, which scores each event and then learns from it. A batch algorithm has `fit`, which
makes a model of many events at once; a learner calls it now and then with the events that it retains. An algorithm with
both learns each event, and fits a part of its state: it has `adopt`, too. The registry
finds the module by its file: `learners/algorithms/auc/cbr_diag.py` is the algorithm "cbr-diag". A state is a
NamedTuple of arrays only, so one generic function can save, hash or compare the state of any algorithm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np

from learners.numerics import Counts, Issues, Matrix, Precision, Rows, Sparse, Vector, bare_kernel, dot, stored
from learners.settings import Parameters

__all__ = [
    "Algorithm",
    "BatchAlgorithm",
    "Cost",
    "FittedAlgorithm",
    "Linear",
    "OnlineAlgorithm",
    "OrdinalAlgorithm",
    "RankDecisions",
    "Size",
    "Traits",
    "dense_scores",
    "initial",
    "linear_scores",
    "sparse_scores",
    "traits_of",
]


class Size(NamedTuple):
    """Size of the encoded events and of the state."""

    dim: int  # columns of the state
    values: float  # numbers of an event: its columns, or its non-zeros
    sparse: bool

    def each(self, dense: float, sparse: float) -> float:
        """Return the cost of the numbers of an event, at `dense` or `sparse` for each number."""
        return self.values * (sparse if self.sparse else dense)


class Cost(NamedTuple):
    """Cost of learning an event; for a batch algorithm, between its fits."""

    order: str  # order of growth, such as "O(dim^2)", in terms of `Params` and the features
    nanoseconds: Callable[[Any, Size], float]  # from (params, size): on one core of a server, within a factor of three


class Traits(NamedTuple):
    """Properties of an algorithm; see `traits_of` for those that depend on its parameters."""

    dense: bool = True  # takes dense rows
    sparse: bool = True  # takes sparse rows; it needs `grow` then
    max_dim: int = 2**24  # largest dimension (bounds memory and time)
    posterior: bool = False  # the score is a log-odds: sigmoid(score) is a probability
    ordinal: bool = False  # labels are the ranks 1 to `params.ranks` instead of -1 and +1
    cost: Cost = Cost("not stated", lambda _params, _size: math.inf)
    # of a batch algorithm: labelled events before the first fit. Later ones come each time a quarter more labels are
    # known. `refit_every` bounds both. None: a fit every `refit_every` events
    first_fit: int | None = None
    of_each: int = 1  # and so many of the rarest class among the retained events
    memorises: bool = False  # scores of events that it was fitted to say little of other events
    # arrays of the state that `fit` makes, if it also learns from each event; nothing changes them in place
    fitted: tuple[str, ...] = ()
    embeds: bool = True  # may learn behind an embedding
    halved: tuple[str, ...] = ()  # arrays of the state that precision "float32" stores as float32
    named_clip: float = 10.0  # of the default scaling of named events, if the score is a log-odds
    defaults: Mapping[str, Mapping[str, Any]] = MappingProxyType({})  # unusual defaults of other parts


class Linear(NamedTuple):
    """Weights that score events: score = w.x + bias. An ordinal algorithm has k planes and k such values."""

    w: Vector  # (dim,) or (k, dim)
    bias: Vector  # (1,) or (k,)


class RankDecisions(NamedTuple):
    """Decisions of an ordinal algorithm for n events."""

    scores: Vector  # (n,) higher = a higher rank is more likely; orders events of one rank, too
    ranks: Counts  # (n,) 1 to params.ranks


class Algorithm(Protocol):
    """Members of every algorithm. `state` is a NamedTuple of arrays as `init` returns it.

    Attributes
    ----------
    TRAITS
        Properties, with the default parameters.
    Params
        The parameters: a frozen dataclass derived from `Parameters`, each field made by `param`. It may have a property
        `fits`, which is false if an algorithm with `fit` needs no fits with these parameters, and a property `traits`,
        which is `TRAITS` with what depends on these parameters.
    State
        The state: a NamedTuple of arrays. With some parameters, `init` may return another one.
    """

    TRAITS: Traits
    Params: type[Parameters]
    State: type[Any]

    def init(self, params: Any, dim: int, seed: int) -> Any:
        """Return the state before any event. Its arrays depend only on the arguments.

        All floats are float64. A learner may store the arrays in `TRAITS.halved` as float32 and pass these to `grow`,
        `weights` and `learn`: see `learners.numerics.float32`.
        """
        ...

    def grow(self, params: Any, state: Any, dim: int) -> Any:
        """Return the state with `dim` columns instead of fewer; new columns are as `init` makes them."""
        ...

    def weights(self, params: Any, state: Any) -> Any:
        """Return what scores events, a `learners.algorithms.ScoringModel`: views of the live state, not copies."""
        ...

    def problems(self, params: Any, state: Any, sparse: bool) -> Issues:
        """Find values in a restored state that no events lead to: pairs (array, detail). `sparse`: for sparse rows.

        Optional. The caller has checked the shapes, except for axes that `init` leaves empty. It has also checked that
        floats are finite and signed integers are from 0 to `MAX_COUNT`. So this function checks indices against the
        lengths of arrays, and counts against each other.
        """
        ...


class OnlineAlgorithm(Algorithm, Protocol):
    """An algorithm that learns event by event."""

    def learn(self, params: Any, state: Any, rows: Rows, y: Vector, weight: Vector, scores: Matrix) -> Any:
        """Score each row, then learn from it, in order; fill `scores` and return the state.

        `scores` is (n,), or (n, k) for an ordinal algorithm with k planes. The arrays of `state` change in place, but a
        longer array may replace one, hence the return value. `rows`, `y` and `weight` do not change. `y` is -1 or +1,
        or a rank. `weight` (n,), at least 0, multiplies the step of an event: 1 is the update of the paper; 0 counts
        the event in class counts, means and buffers and does not move the model. The result has the same bits however a
        stream is cut into calls.
        """
        ...


class BatchAlgorithm(Algorithm, Protocol):
    """An algorithm that makes a model of many events at once."""

    def fit(self, params: Any, rows: Rows, dim: int, y: Vector, weight: Vector, seed: int) -> Any:
        """Fit a state to n rows of `dim` columns with at least two different labels.

        `weight` multiplies the loss of an event, so 0 excludes it. All values of the state are finite. Raises
        ValueError with the reason if there is no such model. The arguments do not change. It may run in a thread. On
        other machines the last bits may differ, so the log of a learner records the result, not the request to fit.
        """
        ...


class FittedAlgorithm(OnlineAlgorithm, Protocol):
    """An algorithm that learns event by event, and whose `fit` makes the arrays `TRAITS.fitted` of the state."""

    def fit(
        self, params: Any, rows: Rows, dim: int, y: Vector, weight: Vector, seed: int, before: Mapping[str, Any]
    ) -> Any:
        """Fit, as `BatchAlgorithm.fit`; return a NamedTuple of the arrays `TRAITS.fitted`.

        `before` has these arrays of the present state.
        """
        ...

    def adopt(self, params: Any, state: Any, arrays: Mapping[str, Any], dim: int, seed: int) -> Any:
        """Return the state of `dim` columns with the arrays of a fit, which may have fewer columns."""
        ...

    def fit_problems(self, params: Any, arrays: Mapping[str, Any], sparse: bool) -> Issues:
        """Find what no fit makes in such arrays: pairs (array, detail)."""
        ...


class OrdinalAlgorithm(Algorithm, Protocol):
    """An algorithm that predicts ranks, online or by batch; `Params` has `ranks`."""

    def decide(self, params: Any, values: Matrix) -> RankDecisions:
        """Decide from the values (n, k) of the planes for n events."""
        ...


def traits_of(algorithm: Any, params: Any) -> Traits:
    """Return the properties of an algorithm with these parameters."""
    traits: Traits = getattr(params, "traits", algorithm.TRAITS)
    return traits


def initial(algorithm: Any, params: Any, dim: int, seed: int, precision: Precision) -> Any:
    """Return the state of an algorithm before the first event, in this precision; see `Algorithm.init`."""
    return stored(precision, algorithm.init(params, dim, seed), traits_of(algorithm, params).halved)


@bare_kernel
def dense_scores(X, w, bias, scores):  # type: ignore[no-untyped-def]
    for i in range(X.shape[0]):
        scores[i] = dot(X[i], w) + bias


@bare_kernel
def sparse_scores(data, indices, indptr, w, bias, scores):  # type: ignore[no-untyped-def]
    for i in range(indptr.shape[0] - 1):
        total = 0.0
        for k in range(indptr[i], indptr[i + 1]):
            if indices[k] >= 0:  # -1: a column that the learner has never seen
                total += data[k] * w[indices[k]]
        scores[i] = total + bias


def linear_scores(weights: Linear, rows: Rows) -> Matrix:
    """Score each row: (n,), or (n, k) for k planes."""
    if weights.w.ndim == 2:
        planes = [linear_scores(Linear(w, weights.bias[k : k + 1]), rows) for k, w in enumerate(weights.w)]
        return np.stack(planes, axis=1)
    if isinstance(rows, Sparse):
        scores = np.empty(len(rows.indptr) - 1)
        sparse_scores(rows.data, rows.indices, rows.indptr, weights.w, weights.bias[0], scores)
        return scores
    scores = np.empty(len(rows))
    dense_scores(rows, weights.w, weights.bias[0], scores)
    return scores
