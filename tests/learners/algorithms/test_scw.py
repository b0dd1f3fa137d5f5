"""The coefficients of SCW-I: conditions of the optimum, and no extreme that they cannot take."""

from __future__ import annotations

import math
from statistics import NormalDist

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from learners.algorithms._scw import coefficients
from learners.numerics.arrays import normal_quantile
from tests.learners.algorithms.naive import scw

PHI = normal_quantile(0.7)


@given(m=st.floats(-50, 50), v=st.floats(1e-6, 100), cap=st.floats(1e-6, 100))
def test_coefficients_are_optimal(m: float, v: float, cap: float) -> None:
    alpha, beta, growth = coefficients(m, v, cap, PHI)
    margin, variance = m + alpha * v, v - beta * v * v
    short = PHI * math.sqrt(variance) - margin
    scale = 1e-9 * (abs(m) + v + 1)
    if alpha == 0:
        assert m >= PHI * math.sqrt(v) - scale
    elif alpha < cap:
        assert abs(short) <= scale  # the constraint holds with equality
    else:
        assert short >= -scale  # alpha is at its cap: the constraint may still fail
    assert 0 < variance <= v
    assert 1 / variance == pytest.approx(1 / v + growth, rel=1e-9)


@given(m=st.floats(-10, 1), v=st.floats(0.1, 10), cap=st.floats(1e-3, 10))
def test_coefficients_equal_the_published_formula(m: float, v: float, cap: float) -> None:
    if m < 0.99 * PHI * math.sqrt(v):
        assert coefficients(m, v, cap, PHI) == pytest.approx(scw(m, v, cap, PHI), rel=1e-9)


_tiny = st.sampled_from([5e-324, 1e-310, 1e-160])
_wide = st.floats(1e-40, 1e68)


@given(
    m=st.one_of(st.floats(-1e80, 1e80), st.sampled_from([0.0, -0.0, 5e-324, -5e-324])),
    v=st.one_of(_tiny, _wide),
    cap=st.one_of(_tiny, st.floats(1e-40, 2.0**40)),
    phi=st.sampled_from([0.0, PHI, normal_quantile(0.999999)]),
)
@example(m=0.0, v=5e-324, cap=1.0, phi=PHI)
@example(m=-1e80, v=5e-324, cap=2.0**40, phi=PHI)
@settings(max_examples=100)
def test_coefficients_are_always_finite(m: float, v: float, cap: float, phi: float) -> None:
    result = coefficients(m, v, cap, phi)
    assert all(math.isfinite(value) and value >= 0 for value in result)
    assert result[0] <= cap


def test_normal_quantile_values() -> None:
    assert normal_quantile(0.5) == 0
    assert normal_quantile(0.7) == 0.5244005127080407
    assert normal_quantile(0.999) == pytest.approx(NormalDist().inv_cdf(0.999), rel=1e-14)
