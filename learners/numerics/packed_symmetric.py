"""Multiply by and downdate symmetric matrices that are stored as one triangle, in one pass.

A matrix of `dim` rows is stored in a `packed` array (p, p), p being `dim` rounded up to a multiple of 8. Row i is
current from the first column of the 8 x 8 block on the diagonal; earlier entries are 0 and never read. So half of the
memory is moved, and symmetry holds to the bit. Rows and columns beyond `dim` are 0, and so are vectors (p,). Arrays
that begin at a multiple of 64 bytes are the fastest, see `at_lines`.

A downdate is S -= g g^T. With g = sqrt(beta) u, g_i g_j and g_j g_i are the same number. With (beta u_i) u_j they would
not be, and on badly scaled data S would stop being positive definite.

A float32 matrix is rounded once per downdate, when it is stored, and products use the stored numbers.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from learners.numerics.array_checks import Issues
from learners.numerics.arrays import Floats, Matrix
from learners.numerics.jit import kernel
from learners.numerics.simd import WIDTH, aligned, aligned_like, load, padded, put, row, spread, store, total

__all__ = [
    "at_lines",
    "begins_line",
    "downdate",
    "downdate_and_multiply",
    "identity",
    "lines",
    "multiply",
    "problems",
    "unpacked",
]


def lines(*shape: int) -> Floats:
    """Return zeros that begin at a multiple of 64 bytes; so does each row if rows are a multiple of 8 long."""
    zeros: Floats = aligned(math.prod(shape)).reshape(shape)
    return zeros


def begins_line(array: Floats) -> bool:
    """Return whether the array begins at a multiple of 64 bytes, as cache lines do."""
    return bool(array.ctypes.data % 64 == 0)


def at_lines(array: Floats) -> Floats:
    """Copy the array to a multiple of 64 bytes."""
    copy: Floats = aligned_like(array.reshape(-1), array.size).reshape(array.shape)
    copy[...] = array
    return copy


def identity(dim: int, scale: float) -> Matrix:
    """Return `scale` times the identity of `dim` rows, packed."""
    packed = lines(padded(dim), padded(dim))
    packed[np.arange(dim), np.arange(dim)] = scale
    return packed


def unpacked(packed: Matrix, dim: int) -> Matrix:
    """Copy the whole symmetric matrix, (dim, dim)."""
    upper = np.triu(packed[:dim, :dim])
    return upper + np.triu(upper, 1).T


def problems(name: str, packed: Matrix, dim: int) -> Issues:
    """Find impossible values in a restored packed matrix `name`. O(dim^2)."""
    places = np.arange(len(packed))
    used = (places[None, :] >= places[:, None] // WIDTH * WIDTH) & (np.maximum.outer(places, places) < dim)
    if packed[~used].any():
        yield name, "has numbers other than 0 where a packed symmetric matrix has none"
    elif not np.array_equal(*_both_triangles(packed)):
        yield name, "has a block on its diagonal that is not symmetric"


def _both_triangles(packed: Matrix) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the blocks on the diagonal, and their transposes, (p / 8, 8, 8)."""
    places = np.arange(len(packed) // WIDTH)
    diagonal = packed.reshape(len(places), WIDTH, len(places), WIDTH)[places, :, places]
    return diagonal, diagonal.transpose(0, 2, 1)


@kernel
def multiply(packed, dim, z, u):  # type: ignore[no-untyped-def]
    """Compute u = S z, four rows at a time: by symmetry each entry counts for its row and for its column."""
    width = z.shape[0]
    for j in range(0, width, 8):
        store(u, j, spread(0.0))
    for i in range(0, dim, 4):
        r0, r1, r2, r3 = row(packed, i), row(packed, i + 1), row(packed, i + 2), row(packed, i + 3)
        z0, z1, z2, z3 = spread(z[i]), spread(z[i + 1]), spread(z[i + 2]), spread(z[i + 3])
        first = i - i % 8
        e0, e1, e2, e3 = load(r0, first), load(r1, first), load(r2, first), load(r3, first)
        store(u, first, load(u, first) + ((z0 * e0 + z1 * e1) + (z2 * e2 + z3 * e3)))
        s0 = s1 = s2 = s3 = spread(0.0)
        for j in range(first + 8, width, 8):
            e0, e1, e2, e3 = load(r0, j), load(r1, j), load(r2, j), load(r3, j)
            zj = load(z, j)
            store(u, j, load(u, j) + ((z0 * e0 + z1 * e1) + (z2 * e2 + z3 * e3)))
            s0 = s0 + e0 * zj
            s1 = s1 + e1 * zj
            s2 = s2 + e2 * zj
            s3 = s3 + e3 * zj
        u[i] += total(s0)
        u[i + 1] += total(s1)
        u[i + 2] += total(s2)
        u[i + 3] += total(s3)


@kernel
def downdate_and_multiply(packed, dim, g, z, u):  # type: ignore[no-untyped-def]
    """Compute S -= g g^T, then u = S z, in one pass, with the same bits as `downdate` and `multiply`."""
    width = z.shape[0]
    for j in range(0, width, 8):
        store(u, j, spread(0.0))
    for i in range(0, dim, 4):
        r0, r1, r2, r3 = row(packed, i), row(packed, i + 1), row(packed, i + 2), row(packed, i + 3)
        z0, z1, z2, z3 = spread(z[i]), spread(z[i + 1]), spread(z[i + 2]), spread(z[i + 3])
        g0, g1, g2, g3 = spread(g[i]), spread(g[i + 1]), spread(g[i + 2]), spread(g[i + 3])
        first = i - i % 8
        gj = load(g, first)
        e0 = put(r0, first, load(r0, first) - g0 * gj)
        e1 = put(r1, first, load(r1, first) - g1 * gj)
        e2 = put(r2, first, load(r2, first) - g2 * gj)
        e3 = put(r3, first, load(r3, first) - g3 * gj)
        store(u, first, load(u, first) + ((z0 * e0 + z1 * e1) + (z2 * e2 + z3 * e3)))
        s0 = s1 = s2 = s3 = spread(0.0)
        for j in range(first + 8, width, 8):
            gj = load(g, j)
            zj = load(z, j)
            e0 = put(r0, j, load(r0, j) - g0 * gj)
            e1 = put(r1, j, load(r1, j) - g1 * gj)
            e2 = put(r2, j, load(r2, j) - g2 * gj)
            e3 = put(r3, j, load(r3, j) - g3 * gj)
            store(u, j, load(u, j) + ((z0 * e0 + z1 * e1) + (z2 * e2 + z3 * e3)))
            s0 = s0 + e0 * zj
            s1 = s1 + e1 * zj
            s2 = s2 + e2 * zj
            s3 = s3 + e3 * zj
        u[i] += total(s0)
        u[i + 1] += total(s1)
        u[i + 2] += total(s2)
        u[i + 3] += total(s3)


@kernel
def downdate(packed, dim, g):  # type: ignore[no-untyped-def]
    """Compute S -= g g^T."""
    for i in range(dim):
        ri = row(packed, i)
        gi = spread(g[i])
        for j in range(i - i % 8, g.shape[0], 8):
            put(ri, j, load(ri, j) - gi * load(g, j))
