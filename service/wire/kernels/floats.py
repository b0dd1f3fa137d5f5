"""Convert numbers in memory, single or double, to rows of float64 and back, in one compiled pass.

NumPy warns if it converts a signalling NaN. To suppress the warning takes longer than a small conversion.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from learners.features import LARGEST
from learners.numerics import Matrix, bare_kernel

__all__ = ["FLOATS", "narrowed", "widened"]

_FEW = 64  # numbers that are tried before all of them

FLOATS: dict[str, np.dtype[Any]] = {  # by the names that bodies have for them
    "float32": np.dtype("<f4"),
    "float64": np.dtype("<f8"),
}


@bare_kernel
def _widen(value, most, wide):  # type: ignore[no-untyped-def]
    """Fill `wide`; return whether no number exceeds `most` or is NaN."""
    good = True
    for i in range(value.shape[0]):
        x = np.float64(value[i])
        wide[i] = x
        good &= abs(x) <= most
    return good


@bare_kernel
def _narrow(wide, single):  # type: ignore[no-untyped-def]
    """Fill `single`; return whether all numbers keep their values."""
    same = True
    for i in range(wide.shape[0]):
        x = np.float32(wide[i])
        single[i] = x
        same &= np.float64(x) == wide[i]
    return same


def narrowed(wide: NDArray[np.float64]) -> NDArray[np.float32] | None:
    """Convert to float32, signed zeros included; None if that is not exact or a number is NaN. O(numbers)."""
    flat = wide.reshape(-1)
    single = np.empty(len(flat), dtype=np.float32)
    few = min(len(flat), _FEW)  # which tell most streams of decimal fractions apart
    return single.reshape(wide.shape) if _narrow(flat[:few], single[:few]) and _narrow(flat, single) else None


def widened(data: memoryview, dtype: np.dtype[Any], dim: int) -> Matrix | None:
    """Return rows of `dim` numbers as float64 in new memory; None if one is NaN or beyond 1e30. O(numbers).

    `dtype` is one of FLOATS; `data` has whole rows, at any alignment.
    """
    value: NDArray[Any] = np.frombuffer(data, dtype)
    wide = np.empty(len(value))
    return wide.reshape(-1, dim) if _widen(value, LARGEST, wide) else None
