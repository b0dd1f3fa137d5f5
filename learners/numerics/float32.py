"""Store large arrays as float32: which arrays a learner of precision "float32" rounds, and how.

The precision is chosen when a learner is created. With "float64", the default, every number is a float64. With
"float32" these are float32, in memory, in snapshots and in the records of fits:

    of the algorithm   those that its `TRAITS.halved` names: weights, covariances, stored examples, AdaGrad's sums of
    squares of an embedding    landmarks, projection, frequencies
    retained events    the features of their rows

Everything else stays float64 or integer: counts, random state, biases, thresholds, metrics, the running scaling, the
bounds and duals of single examples, and sums and means over the whole stream. A float32 sum of equal numbers stops
growing at 2^24 of them, and a running mean stops earlier. The covariances of opauc and adaoam are such means, but
float32 all the same: they are nearly all of the state, and freezing after ten million events does no harm.

Every update reads a float32 as the equal float64, computes in float64, and rounds each number once, when it is stored:
to the nearest, ties to even. A number beyond the largest float32, 3.4e38, becomes that one, so no input makes a state
infinite. Working copies of a kernel round where the state would, so the bits do not depend on batching or machine.

The state of most algorithms shrinks to a half, that of loam-ada, solam and opaucs to three quarters. Scores change in
the seventh digit, and AUC in the fifth at most. The exception is a full covariance of columns that nearly depend on
each other: if variances differ by more than 2^24, rounding hides the smallest. There cbr and loam-ilsc stay valid
(bounds hold, a diagonal stays positive), but rank worse than in float64.

A learner that retains events also reads features as float32, both to learn and to score. A fit then sees the same bits
as the running scaling. Otherwise a constant column would differ from its mean by the rounding and be scaled to
something large.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from learners.numerics.arrays import Rows, Sparse
from learners.numerics.simd import LARGEST_SINGLE

__all__ = ["Precision", "nearest", "number", "stored"]

Precision = Literal["float64", "float32"]
State = TypeVar("State")

_NUMBERS: dict[Precision, type[np.floating[Any]]] = {"float64": np.float64, "float32": np.float32}


def number(precision: Precision) -> type[np.floating[Any]]:
    """Return the dtype of large arrays."""
    return _NUMBERS[precision]


def stored(precision: Precision, state: State, names: Iterable[str]) -> State:
    """Convert the named arrays of a state (a NamedTuple) to the precision.

    With "float64" the state itself; otherwise the other arrays are shared. O(size of the named arrays).
    """
    if precision == "float64":
        return state
    arrays: Any = state
    converted: State = arrays._replace(**{name: _single(getattr(arrays, name)) for name in names})
    return converted


def nearest(precision: Precision, rows: Rows) -> Rows:
    """Round each number to the precision, in float64; NaN stays NaN. With "float64" the rows themselves."""
    if precision == "float64":
        return rows
    if isinstance(rows, Sparse):
        return rows._replace(data=_single(rows.data).astype(np.float64))
    return _single(rows).astype(np.float64)


def _single(array: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
    single: NDArray[np.float32] = np.clip(array, -LARGEST_SINGLE, LARGEST_SINGLE).astype(np.float32)
    return single
