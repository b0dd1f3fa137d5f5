"""The shared numeric kernels: within an ulp of the truth, and the same bits on every machine."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest

from learners.numerics.arrays import dot, exp, log, next_random, sigmoid

NUMBERS = [
    0.0,
    1.0,
    -1.0,
    0.5,
    -0.34657359,
    0.34657360,
    709.0,
    -708.0,
    1e-300,
    -1e-17,
    88.02969,
    *np.linspace(-40, 40, 161),
]


def relative_error(got: float, x: float, logistic: bool) -> float:
    """Of e^x, or of its share 1 / (1 + e^-x), to 50 digits."""
    with localcontext() as context:
        context.prec = 50
        truth = 1 / (1 + (-Decimal(x)).exp()) if logistic else Decimal(x).exp()
        return float(abs(Decimal(float(got)) - truth) / truth)


@pytest.mark.parametrize("x", [*NUMBERS, *np.random.default_rng(0).uniform(-708, 709, 100)])
def test_exp_and_sigmoid_are_accurate_to_the_last_bits(x: float) -> None:
    assert relative_error(exp(x), x, logistic=False) < 3e-16
    assert relative_error(sigmoid(x), x, logistic=True) < 6e-16


def test_exp_and_sigmoid_are_finite_at_the_limits() -> None:
    assert exp(0.0) == 1.0
    assert exp(1e300) == exp(math.inf) == exp(709.0) < math.inf
    assert exp(-708.5) == exp(-1e300) == exp(-math.inf) == 0.0
    assert [sigmoid(x) for x in (-math.inf, -1e30, 0.0, 1e30, math.inf)] == [0.0, 0.0, 0.5, 1.0, 1.0]


def test_exp_and_sigmoid_of_nan_are_nan() -> None:
    assert math.isnan(exp(math.nan))
    assert math.isnan(sigmoid(math.nan))


def test_the_bits_of_exp_never_change() -> None:
    """Two nodes with different C libraries, or tomorrow's release, have to agree with a stored state."""
    assert [float(exp(x)).hex() for x in (1.0, -0.1, 20.7, -300.25, 700.123)] == [
        "0x1.5bf0a8b145769p+1",
        "0x1.cf46d99d52b3bp-1",
        "0x1.d1df072e9d819p+29",
        "0x1.c758233102acep-434",
        "0x1.0b9bc66f2e011p+1010",
    ]


def log_error(x: float) -> float:
    """Of ln x, relative to 50 digits."""
    with localcontext() as context:
        context.prec = 50
        truth = Decimal(x).ln()
        return float(abs((Decimal(float(log(x))) - truth) / truth))


@pytest.mark.parametrize(
    "numbers",
    [
        np.exp(np.random.default_rng(0).uniform(-690, 690, 300)),
        np.random.default_rng(1).uniform(0.0, 2.0, 300),
        1.0 + np.random.default_rng(2).normal(size=300) * 10.0 ** -(np.arange(300.0) % 15),
        np.array([2.0**-0.5, np.nextafter(2.0**-0.5, 0), 2.0**0.5, np.nextafter(2.0**0.5, 2), 5e-324, 1e-310, 1.7e308]),
        np.array([np.nextafter(1.0, 0), np.nextafter(1.0, 2), 0.5, 2.0, 2.220446049250313e-16, 1e-300, 1e300]),
    ],
    ids=["any size", "below two", "near one", "edges", "round"],
)
def test_log_is_accurate_to_the_last_bits(numbers: np.ndarray) -> None:
    assert max(log_error(float(x)) for x in np.abs(numbers)) < 3e-16


def test_log_has_its_limits_at_the_boundaries() -> None:
    assert log(1.0) == 0.0
    assert log(0.0) == log(-0.0) == -math.inf
    assert log(math.inf) == math.inf
    assert math.isnan(log(-1.0))
    assert math.isnan(log(-math.inf))
    assert math.isnan(log(math.nan))


def test_the_bits_of_log_never_change() -> None:
    assert [float(log(x)).hex() for x in (0.1, 3.0, 0.999, 1e-300, 12345.678, 2.0)] == [
        "-0x1.26bb1bbb55515p+1",
        "0x1.193ea7aad030ap+0",
        "-0x1.064670d979b73p-10",
        "-0x1.5963447f87fb5p+9",
        "0x1.2d79559791e31p+3",
        "0x1.62e42fefa39efp-1",
    ]


@pytest.mark.parametrize("n", [*range(20), 63, 64, 65, 100])
def test_dot_adds_in_a_fixed_order(n: int) -> None:
    random = np.random.default_rng(n)
    a, b = random.normal(size=(2, n)) * 10.0 ** random.integers(-8, 8, (2, n))
    lanes = [0.0] * 8
    for i in range(n):
        lanes[i % 8] += a[i] * b[i]
    total = ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]))
    assert dot(a, b) == total
    assert total == pytest.approx(math.fsum(a * b), rel=1e-9, abs=1e-9 * float(np.abs(a * b).sum()))


def test_trailing_zeros_change_no_bit_of_dot() -> None:
    """The arrays of sparse features grow by multiples of eight: a sum must not see that."""
    random = np.random.default_rng(1)
    a, b = random.normal(size=(2, 72))
    longer = np.zeros((2, 104))
    longer[:, :72] = a, b
    assert dot(a, b) == dot(*longer)


def test_random_numbers_follow_splitmix64() -> None:
    rng = np.array([1234567], dtype=np.uint64)
    assert [int(next_random(rng)) for _ in range(5)] == [  # of the reference implementation
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    assert int(rng[0]) == (1234567 + 5 * 0x9E3779B97F4A7C15) % 2**64
    rng[0] = 2**64 - 1
    assert int(next_random(rng)) != int(next_random(rng))
