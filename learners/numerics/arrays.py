"""Array types, and the numeric kernels that several algorithms share.

Rows of features are dense, a C-ordered float64 array (n, dim), or `Sparse`, a CSR matrix with sorted, distinct columns
in each row. Labels always reach a kernel as float64 -1 and +1: another dtype would compile a second version.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from learners.numerics.jit import kernel
from learners.numerics.simd import load, load_first, spread, total

__all__ = [
    "Counts",
    "Cube",
    "Floats",
    "Matrix",
    "Rows",
    "Sparse",
    "Vector",
    "Words",
    "dot",
    "exp",
    "grown",
    "length",
    "log",
    "next_random",
    "normal_quantile",
    "sigmoid",
]

Vector = NDArray[np.float64]  # (k,)
Matrix = NDArray[np.float64]  # (n, k)
Cube = NDArray[np.float64]  # (m, n, k)
Floats = NDArray[np.float64]  # of any shape
Counts = NDArray[np.int64]  # (k,)
Words = NDArray[np.uint64]  # (k,): random state, hashes


class Sparse(NamedTuple):
    """Rows of a sparse matrix in CSR form: row i has `data[indptr[i]:indptr[i + 1]]` in the columns `indices[...]`."""

    data: Vector  # (nnz,)
    indices: Counts  # (nnz,) ascending and distinct within a row
    indptr: Counts  # (n + 1,)


Rows = Matrix | Sparse


_INVERSE_FACTORIALS = tuple(1.0 / math.factorial(i) for i in range(14))
_POWERS = np.ldexp(1.0, np.arange(-1022, 1024))  # of 2, exact
_ATANH = tuple(2.0 / (2 * i + 3) for i in range(11))  # 2 atanh(s) = s (2 + s^2 (2/3 + s^2 (2/5 + ...)))


@kernel
def dot(a, b):  # type: ignore[no-untyped-def]
    """Compute a.b in a fixed order, with eight running sums: the same bits on every machine.

    Trailing zeros do not change the result.
    """
    n = a.shape[0]
    full = n - n % 8
    lanes = spread(0.0)
    for i in range(0, full, 8):
        lanes = lanes + load(a, i) * load(b, i)
    for i in range(full, n, 8):  # at most once
        lanes = lanes + load_first(a, i, n - full) * load_first(b, i, n - full)
    return total(lanes)


@kernel
def exp(x):  # type: ignore[no-untyped-def]
    """Compute e^x by range reduction and a Taylor polynomial, within 5e-16 relative; 0 below -708, e^709 above 709.

    C libraries choose their exp by the processor, with different last bits, so two nodes would diverge.
    """
    if not x >= -708.0:
        return 0.0 if x < -708.0 else x  # NaN stays NaN
    x = min(x, 709.0)
    k = np.floor(x * 1.4426950408889634 + 0.5)
    r = (x - k * 0.693147180369123816490) - k * 1.90821492927058770002e-10  # ln 2 in two parts (Cody and Waite)
    c = _INVERSE_FACTORIALS
    r2 = r * r
    r4 = r2 * r2
    # Estrin's scheme: independent pairs are faster than Horner's one long chain
    low = (c[0] + r * c[1]) + r2 * (c[2] + r * c[3])
    middle = (c[4] + r * c[5]) + r2 * (c[6] + r * c[7])
    high = (c[8] + r * c[9]) + r2 * (c[10] + r * c[11])
    term = low + r4 * (middle + r4 * (high + r4 * (c[12] + r * c[13])))
    return term * _POWERS[int(k) + 1022]


@kernel
def log(x):  # type: ignore[no-untyped-def]
    """Compute the natural logarithm of x > 0, subnormals included, within 3e-16 relative; -inf at 0, NaN below.

    x = 2^k m, sqrt(1/2) <= m < sqrt(2): ln x = k ln 2 + 2 atanh((m - 1) / (m + 1)), by the series of atanh. As with
    `exp`, C libraries differ in their last bits.
    """
    if not 0.0 < x < np.inf:
        if x == 0.0:
            return -np.inf
        return x if x > 0.0 else np.nan
    m, k = math.frexp(x)
    if m < 0.7071067811865476:
        m *= 2.0
        k -= 1
    f = m - 1.0
    s = f / (m + 1.0)
    z = s * s
    c = _ATANH
    z2 = z * z
    z4 = z2 * z2
    low = (c[0] + z * c[1]) + z2 * (c[2] + z * c[3])
    middle = (c[4] + z * c[5]) + z2 * (c[6] + z * c[7])
    rest = z * (low + z4 * (middle + z4 * (c[8] + z * c[9] + z2 * c[10])))
    # 2s = f - s f, and s f = f^2 / 2 - s f^2 / 2: the correction of f is small, so f keeps its last bits
    half = 0.5 * f * f
    small = half - (s * (half + rest) + k * 1.90821492927058770002e-10)
    return k * 0.693147180369123816490 - (small - f)


@kernel
def sigmoid(x):  # type: ignore[no-untyped-def]
    """Compute 1 / (1 + e^-x) without overflow."""
    e = exp(-abs(x))
    return (1.0 if x >= 0.0 else e) / (1.0 + e)


@kernel
def next_random(rng):  # type: ignore[no-untyped-def]
    """Return the next 64 random bits of splitmix64; `rng` (1,) uint64 is its whole state."""
    rng[0] += np.uint64(0x9E3779B97F4A7C15)
    z = rng[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def grown(array: Vector, dim: int, fill: float = 0.0) -> Vector:
    """Extend the last axis of `array` (..., k) to `dim` with `fill`."""
    out = np.full((*array.shape[:-1], dim), fill, array.dtype)
    out[..., : array.shape[-1]] = array
    return out


@lru_cache(maxsize=256)
def normal_quantile(eta: float) -> float:
    """Return Phi^-1(eta), the quantile of the standard normal distribution."""
    from scipy.special import ndtri  # slow to import, and few learners need it

    return float(ndtri(eta))


def length(rows: Rows) -> int:
    """Return the number of rows."""
    return len(rows.indptr) - 1 if isinstance(rows, Sparse) else len(rows)
