"""Numbers as they are in memory, single or double, to rows of float64, in one pass of compiled code.

NumPy warns of NaNs that signal where it converts them; to have it not do so takes longer than a small conversion.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from learners.arrays import Matrix
from learners.features import LARGEST
from learners.jit import bare_kernel

__all__ = ["FLOATS", "widened"]

FLOATS: dict[str, np.dtype[Any]] = {  # by the names that bodies have for them
    "float32": np.dtype("<f4"),
    "float64": np.dtype("<f8"),
}


@bare_kernel
def _widen(given, most, wide):  # type: ignore[no-untyped-def]
    """Fill `wide`; whether no number is larger than `most`, nor NaN."""
    good = True
    for i in range(given.shape[0]):
        x = np.float64(given[i])
        wide[i] = x
        good &= abs(x) <= most
    return good


def widened(data: memoryview, dtype: np.dtype[Any], dim: int) -> Matrix | None:
    """Rows of `dim` numbers as float64, in memory of their own; None where one is NaN, or beyond 1e30. O(numbers).

    `dtype` is one of FLOATS; `data` holds whole rows, and may begin anywhere.
    """
    given: NDArray[Any] = np.frombuffer(data, dtype)
    wide = np.empty(len(given))
    return wide.reshape(-1, dim) if _widen(given, LARGEST, wide) else None
