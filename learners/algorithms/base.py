"""What an algorithm is: a module of this package that holds TRAITS, Params, State, init, weights, and one of two verbs.

An online algorithm has `learn`: each event is scored, then learnt. A batch algorithm has `fit` instead: it makes a
model of many events at once, and a learner calls it now and then over the events that it retains. The catalogue finds
the module by its file: `learners/algorithms/auc/cbr_diag.py` is the algorithm "cbr-diag". A state is a NamedTuple of
arrays only, so that saving, hashing and comparing it is one generic function for all algorithms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np

from learners.numerics import Counts, Issues, Matrix, Rows, Sparse, Vector, bare_kernel, dot
from learners.settings import Parameters

__all__ = [
    "Algorithm",
    "Batch",
    "Cost",
    "Linear",
    "Online",
    "Ordinal",
    "Ranked",
    "Size",
    "Traits",
    "dense_scores",
    "linear_scores",
]


class Size(NamedTuple):
    """How large events are, as an algorithm takes them, and its state."""

    dim: int  # columns of the state
    values: float  # numbers of an event: its columns, or its non-zeros
    sparse: bool

    def each(self, dense: float, sparse: float) -> float:
        """What the numbers of an event cost at so much for each in dense and in sparse rows."""
        return self.values * (sparse if self.sparse else dense)


class Cost(NamedTuple):
    """What it takes to learn an event; of a batch algorithm, between its fits."""

    order: str  # its order of growth, "O(dim^2)", in what `Params` and the features say
    nanoseconds: Callable[[Any, Size], float]  # by (params, size): on one core of a server, within a factor of three


class Traits(NamedTuple):
    """What holds for an algorithm whatever its parameters are."""

    dense: bool = True  # takes dense rows
    sparse: bool = True  # takes sparse rows, and then has `grow`
    max_dim: int = 2**24  # the largest dimension that it can be created with (memory and time of its state)
    posterior: bool = False  # the score is a log-odds: sigmoid(score) is a probability already
    ordinal: bool = False  # labels are the ranks 1 to `params.ranks` instead of -1 and +1
    cost: Cost = Cost("not stated", lambda _params, _size: math.inf)
    halved: tuple[str, ...] = ()  # arrays of the state that precision "float32" holds in half the memory
    defaults: Mapping[str, Mapping[str, Any]] = MappingProxyType({})  # of a learner's other parts, where not the usual


class Linear(NamedTuple):
    """What scoring needs of an algorithm: score = w.x + bias; of an ordinal one with k planes, k such values."""

    w: Vector  # (dim,) or (k, dim)
    bias: Vector  # (1,) or (k,)


class Ranked(NamedTuple):
    """What an ordinal algorithm says of n events."""

    scores: Vector  # (n,) a real number, higher = more likely a high rank: orders events of one rank, too
    ranks: Counts  # (n,) 1 to params.ranks


class Algorithm(Protocol):
    """What all have. `state` is whatever NamedTuple of arrays `init` returns.

    Attributes
    ----------
    TRAITS
        What holds whatever the parameters are.
    Params
        The parameters: a frozen dataclass derived from `Parameters`, each field made by `param`.
    State
        The state: a NamedTuple of arrays.
    """

    TRAITS: Traits
    Params: type[Parameters]
    State: type[Any]

    def init(self, params: Any, dim: int, seed: int) -> Any:
        """The state before any event. Its arrays depend on nothing but the arguments.

        All numbers are float64. A learner may hold what `TRAITS.halved` names as float32 instead, and hand that to
        `grow`, `weights` and `learn`: see `learners.numerics.float32`.
        """
        ...

    def grow(self, params: Any, state: Any, dim: int) -> Any:
        """The state for `dim` columns instead of the fewer it has: new columns as `init` makes them."""
        ...

    def weights(self, params: Any, state: Any) -> Linear:
        """What scoring needs: views of the live state, not copies."""
        ...

    def problems(self, params: Any, state: Any, sparse: bool) -> Issues:
        """What no events can have led to in a state from elsewhere: (array, what is wrong); `sparse`: of sparse rows.

        Optional. Shapes are right but for axes that `init` leaves empty, floats are finite, signed whole numbers are
        from 0 to `MAX_COUNT`: it is left to tell of indices beyond an array's end, and of counts that contradict.
        """
        ...


class Online(Algorithm, Protocol):
    """Learns event by event."""

    def learn(self, params: Any, state: Any, rows: Rows, y: Vector, weight: Vector, scores: Matrix) -> Any:
        """Score each row, then learn from it, in order; fill `scores` and return the state.

        `scores` is (n,), for an ordinal algorithm of k planes (n, k). The arrays of `state` change in place (an array
        may be replaced by a longer one, hence the return); `rows`, `y` and `weight` are not written to. `y` is -1 or
        +1, or a rank. `weight` (n,), at least 0, multiplies the step that an event makes: 1 is the paper's update, 0
        counts the event in class counts, means and buffers without moving the model. The result is bitwise the same
        however a stream is cut into calls.
        """
        ...


class Batch(Algorithm, Protocol):
    """Makes a model of many events at once."""

    def fit(self, params: Any, rows: Rows, dim: int, y: Vector, weight: Vector, seed: int) -> Any:
        """The state fitted to n rows of `dim` columns with labels of at least two kinds; `weight` as for `learn`.

        `weight` multiplies an event's loss, so 0 leaves it out. Everything in the state is finite. Raises ValueError
        where there is no such model, and says why. The arguments are not written to. It may run in a thread, and on
        other machines the last bits may differ: a learner's log holds what came out, not the order to fit.
        """
        ...


class Ordinal(Algorithm, Protocol):
    """Tells ranks, online or by batch; `Params` has `ranks`."""

    def decide(self, params: Any, values: Matrix) -> Ranked:
        """What the planes' values (n, k) say of n events."""
        ...


@bare_kernel
def dense_scores(X, w, bias, scores):  # type: ignore[no-untyped-def]
    for i in range(X.shape[0]):
        scores[i] = dot(X[i], w) + bias


@bare_kernel
def _sparse_scores(data, indices, indptr, w, bias, scores):  # type: ignore[no-untyped-def]
    for i in range(indptr.shape[0] - 1):
        total = 0.0
        for k in range(indptr[i], indptr[i + 1]):
            if indices[k] >= 0:  # -1: a column that was never met
                total += data[k] * w[indices[k]]
        scores[i] = total + bias


def linear_scores(weights: Linear, rows: Rows) -> Matrix:
    """The score of each row, (n,); of k planes (n, k)."""
    if weights.w.ndim == 2:
        planes = [linear_scores(Linear(w, weights.bias[k : k + 1]), rows) for k, w in enumerate(weights.w)]
        return np.stack(planes, axis=1)
    if isinstance(rows, Sparse):
        scores = np.empty(len(rows.indptr) - 1)
        _sparse_scores(rows.data, rows.indices, rows.indptr, weights.w, weights.bias[0], scores)
        return scores
    scores = np.empty(len(rows))
    dense_scores(rows, weights.w, weights.bias[0], scores)
    return scores
