"""Metrics of decisions: intervals against scipy and simulations, the choice of thresholds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from learners.metrics.operating_points import (
    DecisionFigures,
    ErrorCosts,
    choose_thresholds,
    confusions_at,
    share_interval,
)

PROBABILITIES = st.lists(
    st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.7, 0.29, 1 - 1e-12, 1 - 2**-53, 1.0, 5e-324])),
    max_size=60,
)


@pytest.mark.parametrize(("part", "total"), [(0, 1), (1, 1), (0, 50), (50, 50), (7, 50), (1, 10**6), (999_999, 10**6)])
def test_the_interval_of_a_share_is_that_of_wilson(part: int, total: int) -> None:
    low, high = share_interval(part, total)
    scipy = binomtest(part, total).proportion_ci(method="wilson")
    assert [low, high] == pytest.approx([scipy.low, scipy.high], abs=1e-12)
    assert 0.0 <= low <= part / total <= high <= 1.0


def test_intervals_of_costs_cover_the_expected_cost() -> None:
    random = np.random.default_rng(0)
    events, shares, prices = 2000, np.array([0.9, 0.004, 0.016, 0.08]), ErrorCosts(1.0, 30.0)
    expected = events * (shares[1] * prices.false_positive + shares[2] * prices.false_negative)
    figures = DecisionFigures(None, prices, {"alerts_per_day": "no clock"}, {})
    samples = random.multinomial(events, shares, size=1000)
    intervals = [figures.of(sample, "live")["cost_interval"] for sample in samples.tolist()]
    covering = np.mean([low <= expected <= high for low, high in intervals])
    assert 0.93 <= covering <= 0.98


def test_figures_without_errors_have_intervals_that_allow_for_some() -> None:
    undefined: dict[str, str] = {}
    figures = DecisionFigures(0.5, ErrorCosts(2.0, 3.0), {}, undefined).of((90, 0, 0, 10), "live")
    assert figures["cost"] == 0.0
    assert figures["cost_interval"][0] == 0.0 < figures["cost_interval"][1]
    assert figures["precision_interval"][0] < figures["precision"] == figures["precision_interval"][1] == 1.0
    assert figures["alerts_per_day"] == pytest.approx(0.1 * 0.5 * 86_400)
    assert not undefined


def test_undefined_figures_name_what_they_lack() -> None:
    undefined: dict[str, str] = {}
    figures = DecisionFigures(None, None, {"alerts_per_day": "no clock", "cost": "no cost"}, undefined)
    values = figures.of((5, 0, 0, 0), "live")
    missing = {"precision", "recall", "f1", "alerts_per_day", "cost"}
    assert {at.rpartition("/")[2] for at in undefined} == missing
    assert all(values[name] is None is values[f"{name}_interval"] for name in missing)
    assert all(value is not None for name, value in values.items() if name.removesuffix("_interval") not in missing)
    empty = figures.of((0, 0, 0, 0), "actual")
    assert [name for name, value in empty.items() if value is not None] == ["confusion"]


@given(negatives=PROBABILITIES, positives=PROBABILITIES, most=st.integers(2, 40))
def test_thresholds_have_different_alerts_from_one_to_all(
    negatives: list[float], positives: list[float], most: int
) -> None:
    below, above = np.sort(np.array(negatives)), np.sort(np.array(positives))
    thresholds = choose_thresholds(below, above, most)
    if not negatives + positives:
        assert len(thresholds) == 0
        return
    assert 1 <= len(thresholds) <= most
    assert ((thresholds >= 0.0) & (thresholds <= 1.0)).all()
    confusions = confusions_at(below, above, thresholds)
    alerts = confusions[:, 1] + confusions[:, 3]
    assert (np.diff(alerts) < 0).all()
    assert alerts[0] == len(negatives) + len(positives)
    highest = max(negatives + positives)
    assert alerts[-1] == (negatives + positives).count(highest)
    for threshold, (tn, fp, fn, tp) in zip(thresholds.tolist(), confusions.tolist(), strict=True):
        assert (fp, tp) == (sum(p >= threshold for p in negatives), sum(p >= threshold for p in positives))
        assert (tn, fn) == (len(negatives) - fp, len(positives) - tp)


def test_thresholds_are_short_decimals() -> None:
    negatives, positives = np.array([0.123456, 0.2, 0.5004]), np.array([0.31234, 0.50041])
    assert choose_thresholds(negatives, positives, 20).tolist() == [0.0, 0.2, 0.3, 0.5, 0.50041]
