"""Eight lanes: each function says the same compiled and not, and touches no memory but its own."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from learners.numerics.jit import kernel
from learners.numerics.simd import (
    LARGEST_SINGLE,
    WIDTH,
    aligned,
    aligned_like,
    beyond,
    larger,
    load,
    load_first,
    pad,
    padded,
    put,
    row,
    spread,
    square_root,
    store,
    store_first,
    total,
    unpad,
    within,
)

NUMBERS = np.random.default_rng(0).normal(size=40) * 10.0 ** np.random.default_rng(1).integers(-9, 9, 40)


@kernel
def _arithmetic(a, b, out):  # type: ignore[no-untyped-def]
    left, right = load(a, 1), load(b, 2)
    store(out, 0, left + right)
    store(out, 8, left - right)
    store(out, 16, left * right)
    store(out, 24, left / right)
    store(out, 32, larger(left, right))
    store(out, 40, square_root(left * left) + spread(0.1))
    store(out, 48, beyond(left, right))


def test_arithmetic_is_lane_by_lane() -> None:
    out = np.zeros(56)
    _arithmetic(NUMBERS[:20].copy(), NUMBERS[20:].copy(), out)
    a, b = NUMBERS[1:9], NUMBERS[22:30]
    expected = [a + b, a - b, a * b, a / b, np.maximum(a, b), np.sqrt(a * a) + 0.1, np.where(np.abs(a) > b, a, 0.0)]
    assert out.tolist() == np.concatenate(expected).tolist()


@kernel
def _largest(a, b, out):  # type: ignore[no-untyped-def]
    store(out, 0, larger(load(a, 0), load(b, 0)))


def test_maximum_returns_the_right_operand_for_ties_and_nan() -> None:
    a = np.array([0.0, -0.0, np.nan, 1.0, np.inf, -np.inf, 3.0, 2.0])
    b = np.array([-0.0, 0.0, 1.0, np.nan, 1.0, 1.0, 3.0, 4.0])
    out = np.empty(8)
    _largest(a, b, out)
    assert out.tobytes() == np.where(a > b, a, b).tobytes()
    assert math.copysign(1.0, out[0]) == -1.0


@kernel
def _sum(a):  # type: ignore[no-untyped-def]
    return total(load(a, 0))


def test_the_summation_tree_is_fixed() -> None:
    for start in range(32):
        v = NUMBERS[start : start + 8].copy()
        expected = ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]))
        assert _sum(v) == total(v) == expected


@kernel
def _first_lanes(a, n, out):  # type: ignore[no-untyped-def]
    store(out, 0, load_first(a, 0, n))
    store_first(out, 8, n, load(a, 1))


@pytest.mark.parametrize("n", range(1, WIDTH))
def test_only_the_first_lanes_are_read_and_written(n: int) -> None:
    a, out = NUMBERS[:20].copy(), np.full(20, 7.0)
    _first_lanes(a, n, out)
    assert out.tolist() == [*a[:n], *[0.0] * (8 - n), *a[1 : 1 + n], *[7.0] * (12 - n)]


@pytest.mark.parametrize("n", [1, 7, 8, 9, 15, 16, 17])
@pytest.mark.parametrize("copy", [pad, unpad])
def test_copies_with_and_without_zero_padding(copy: Callable[..., Any], n: int) -> None:
    out = np.full(padded(n) + 1, 7.0)
    copy(NUMBERS, n, out)
    behind = 0.0 if copy is pad else 7.0
    assert out.tolist() == [*NUMBERS[:n], *[behind] * (padded(n) - n), 7.0]


def test_padded_returns_the_next_multiple_of_eight() -> None:
    assert [padded(n) for n in (0, 1, 7, 8, 9, 300)] == [0, 8, 8, 8, 16, 304]


@kernel
def _columns(plane, n, out):  # type: ignore[no-untyped-def]
    store(out, 0, load(plane[:, 1], 1))
    store(out, 8, load_first(plane[:, 1], 8, n))


@pytest.mark.parametrize("n", range(1, WIDTH))
def test_strided_numbers_are_loaded_one_by_one(n: int) -> None:
    plane, out = np.random.default_rng(n).normal(size=(8 + n, 3)), np.empty(16)
    _columns(plane, n, out)
    assert out.tolist() == [*plane[1:9, 1], *plane[8:, 1], *[0.0] * (8 - n)]


@kernel
def _rows(plane, cube, out):  # type: ignore[no-untyped-def]
    store(out, 0, load(row(plane, 2), 1))
    store(row(cube, 1, 2), 1, load(row(cube, 0, 1), 0))


def test_rows_of_two_and_three_dimensional_arrays() -> None:
    plane, cube, out = NUMBERS[:36].reshape(4, 9).copy(), np.arange(54.0).reshape(2, 3, 9), np.empty(8)
    expected = cube.copy()
    expected[1, 2, 1:] = cube[0, 1, :8]
    _rows(plane, cube, out)
    assert out.tolist() == plane[2, 1:].tolist()
    assert cube.tolist() == expected.tolist()


@pytest.mark.parametrize("n", [0, 1, 8, 1000])
def test_aligned_arrays_start_at_multiples_of_64_bytes(n: int) -> None:
    for _ in range(5):
        array = aligned(n)
        assert array.shape == (n,)
        assert not array.any()
        assert array.ctypes.data % 64 == 0 or not n


# Numbers that float32 has and has not: ties in both directions, limits, underflow, NaN
MANY = np.array([0.1, -3.0, 1 + 2**-24, 1 + 3 * 2**-24, 3.4028235e38, 1e39, -1e300, 1e-46, 7e-46, -0.0, np.inf, np.nan])


@kernel
def _through_singles(numbers, plane, out):  # type: ignore[no-untyped-def]
    r = row(plane, 1)
    store(r, 0, load(numbers, 0))
    store_first(r, 8, 3, load_first(numbers, 8, 4))
    store(out, 0, load(r, 0))
    store(out, 8, load_first(r, 8, 4))
    plane[1, 11] = within(plane, numbers[11])
    for i in range(11):
        plane[0, i] = within(plane, numbers[i])


@pytest.mark.parametrize("called", ["compiled", "plain"])
def test_float32_is_rounded_once_and_stays_finite(called: str) -> None:
    plane, out = np.full((2, 16), 7.0, dtype=np.float32), np.full(16, 5.0)
    run = _through_singles if called == "compiled" else getattr(_through_singles, "py_func", _through_singles)
    run(MANY, plane, out)
    expected = np.clip(MANY, -LARGEST_SINGLE, LARGEST_SINGLE).astype(np.float32)
    assert plane[1].tobytes() == np.concatenate([expected, np.full(4, 7.0, np.float32)]).tobytes()
    assert plane[0].tobytes() == np.concatenate([expected[:11], np.full(5, 7.0, np.float32)]).tobytes()
    assert out.tolist() == [*expected[:11].astype(np.float64), 7.0, *[0.0] * 4]
    assert expected[2] == 1.0  # ties go to the even one
    assert expected[3] == np.float32(1 + 2**-22)


@kernel
def _put(a, b, out):  # type: ignore[no-untyped-def]
    store(out, 0, put(b, 0, load(a, 0)))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_stored_values_are_read_back_in_their_dtype(dtype: Any) -> None:
    stored, out = np.zeros(8, dtype=dtype), np.zeros(8)
    _put(NUMBERS, stored, out)
    assert stored.tolist() == NUMBERS[:8].astype(dtype).tolist() == out.tolist()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n", [1, 8, 1000])
def test_working_copies_are_aligned_and_equal(n: int, dtype: Any) -> None:
    array = aligned_like(np.ones(3, dtype=dtype), n)
    assert (array.shape, array.dtype) == ((n,), dtype)
    assert not array.any()
    assert array.ctypes.data % 64 == 0
