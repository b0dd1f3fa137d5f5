"""Half the memory: what a learner of precision "float32" holds as float32, and how it is rounded.

The precision is chosen when a learner is created. With "float64", the default, every number is a float64. With
"float32" these are float32, in memory, in snapshots and in the records of fits:

    of the algorithm   what its `TRAITS.halved` names: weights, covariances, stored examples, AdaGrad's sums of squares
    of an embedding    landmarks, projection, frequencies
    retained events    the features of their rows

Everything else stays what it is: counts, random state, biases, thresholds, figures, the running scaling, the bounds and
duals of single examples, and sums and means that run over the whole stream. A float32 sum of equal numbers stops
growing at 2^24 of them, and a mean that moves by 1/n of a difference stops before: a class mean made of such a sum
would fade from then on, silently. (The covariances of opauc and adaoam, which are such means, are float32 all the same:
they are nearly all of the state, and to stop moving after some ten million events does them no harm.)

Every update reads float32 as the float64 it is equal to, computes in float64, and rounds each number once, when it is
stored: to the nearest, ties to even. A number beyond the largest float32, 3.4e38, becomes that one; so no input makes a
state infinite. The working copies of a kernel round where the state itself would, so the bits do not depend on how a
stream is cut, and they are the same on every machine.

Of most algorithms that is half of the state, of loam-ada, solam and opaucs three quarters. Scores move in the seventh
digit, and AUC in the fifth at most, but for what keeps a full covariance of columns that nearly depend on each other:
where variances differ by more than 2^24, rounding drowns the smallest, and with them what only they could tell. There
cbr and loam-ilsc stay sound (bounds are bounds, a diagonal stays positive), and rank less well than in float64.

A learner that retains events also reads their features as float32, to learn and to score alike. What a fit is made of
is then to the bit what the running scaling has met: with rows that were rounded behind its back, a column that is
constant would lie off its mean by the rounding alone, and be scaled up to something large.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from learners.numerics.arrays import Rows, Sparse
from learners.numerics.simd import LARGEST_SINGLE

__all__ = ["Precision", "initial", "nearest", "number", "stored"]

Precision = Literal["float64", "float32"]
State = TypeVar("State")

_NUMBERS: dict[Precision, type[np.floating[Any]]] = {"float64": np.float64, "float32": np.float32}


def number(precision: Precision) -> type[np.floating[Any]]:
    """What the large arrays are made of."""
    return _NUMBERS[precision]


def stored(precision: Precision, state: State, names: Iterable[str]) -> State:
    """A state (a NamedTuple of arrays) whose arrays of these `names` are held in the precision.

    With "float64" the state itself; else the other arrays are shared. O(size of the arrays named).
    """
    if precision == "float64":
        return state
    arrays: Any = state
    held: State = arrays._replace(**{name: _single(getattr(arrays, name)) for name in names})
    return held


def initial(algorithm: Any, params: Any, dim: int, seed: int, precision: Precision) -> Any:
    """The state of an algorithm before any event; see `Algorithm.init`."""
    return stored(precision, algorithm.init(params, dim, seed), algorithm.TRAITS.halved)


def nearest(precision: Precision, rows: Rows) -> Rows:
    """Rows with each number as the precision has it, in float64; NaN as it is. With "float64" the rows themselves."""
    if precision == "float64":
        return rows
    if isinstance(rows, Sparse):
        return rows._replace(data=_single(rows.data).astype(np.float64))
    return _single(rows).astype(np.float64)


def _single(array: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
    single: NDArray[np.float32] = np.clip(array, -LARGEST_SINGLE, LARGEST_SINGLE).astype(np.float32)
    return single
