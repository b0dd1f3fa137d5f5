"""Packed symmetric matrices, compared with NumPy, and invalid ones."""

from __future__ import annotations

import numpy as np
import pytest

from learners.numerics import packed_symmetric
from learners.numerics.arrays import Matrix, Vector
from learners.numerics.simd import padded


def packed(S: Matrix) -> Matrix:
    """S (dim, dim) as the kernels have it."""
    dim = len(S)
    P = packed_symmetric.identity(dim, 0.0)
    P[:dim, :dim] = S
    block = np.arange(len(P)) // 8
    P[block[:, None] > block] = 0.0
    return P


def vector(dim: int, random: np.random.Generator) -> Vector:
    out = np.zeros(padded(dim))
    out[:dim] = random.normal(size=dim)
    return out


def random_downdate(dim: int) -> tuple[Matrix, Vector, Vector]:
    """Draw a symmetric matrix and two vectors."""
    random = np.random.default_rng(dim)
    S = random.normal(size=(dim, dim))
    return S + S.T, vector(dim, random), vector(dim, random)


DIMS = [1, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 40]


@pytest.mark.parametrize("dim", DIMS)
def test_matches_numpy(dim: int) -> None:
    S, g, z = random_downdate(dim)
    P, u = packed(S), np.full(padded(dim), 7.0)
    packed_symmetric.multiply(P, dim, z, u)
    np.testing.assert_allclose(u[:dim], S @ z[:dim], rtol=1e-12, atol=1e-12)
    assert not u[dim:].any()
    packed_symmetric.downdate(P, dim, g)
    np.testing.assert_allclose(
        packed_symmetric.unpacked(P, dim), S - np.outer(g[:dim], g[:dim]), rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("dim", DIMS)
def test_one_pass_equals_two_passes_bit_for_bit(dim: int) -> None:
    S, g, z = random_downdate(dim)
    P, Q, u, v = packed(S), packed(S), np.empty(padded(dim)), np.empty(padded(dim))
    packed_symmetric.downdate_and_multiply(P, dim, g, z, u)
    packed_symmetric.downdate(Q, dim, g)
    packed_symmetric.multiply(Q, dim, z, v)
    assert P.tobytes() == Q.tobytes()
    assert u.tobytes() == v.tobytes()
    assert (packed_symmetric.unpacked(P, dim) == packed_symmetric.unpacked(P, dim).T).all()
    assert list(packed_symmetric.problems("P", P, dim)) == []


@pytest.mark.parametrize("dim", [5, 8, 13])
def test_non_zero_padding_is_detected(dim: int) -> None:
    P = packed(random_downdate(dim)[0])
    assert list(packed_symmetric.problems("P", P, dim)) == []
    for i in range(len(P)):
        for j in range(len(P)):
            Q = P.copy()
            Q[i, j] += 1.0
            harmless = i == j < dim or (i < dim and j < dim and j // 8 > i // 8)
            assert [name for name, _ in packed_symmetric.problems("P", Q, dim)] == ([] if harmless else ["P"])


def test_arrays_are_aligned_to_cache_lines() -> None:
    array = packed_symmetric.lines(3, 16)
    assert array.shape == (3, 16)
    assert packed_symmetric.begins_line(array)
    block = np.arange(50.0)
    shifted = [block[1:49].reshape(3, 16), block[2:].reshape(3, 16)]
    assert not all(packed_symmetric.begins_line(item) for item in shifted)
    for item in shifted:
        assert packed_symmetric.begins_line(packed_symmetric.at_lines(item))
        assert packed_symmetric.at_lines(item).tolist() == item.tolist()
