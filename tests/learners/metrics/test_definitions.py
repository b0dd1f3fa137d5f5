"""What the figures are made of: reasons, exact sums, the one-pass merge, the curves."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn import metrics as sk

from learners.metrics import definitions
from learners.metrics.curves import HISTOGRAM_BINS, curves, thin
from learners.metrics.definitions import EPSILON, RELIABILITY_BINS, MetricSettings, Undefined
from learners.metrics.ranking import ranking_figures
from learners.settings import InvalidInput
from tests.learners.metrics.naive_metrics import exact_figures

RANKED = ("auc", "auc_interval", "average_precision", "partial_auc", "ks", "recall_at_fpr", "precision_at_k")


def ranked(
    label: NDArray[np.bool_], scores: NDArray[np.float64], metric_settings: MetricSettings
) -> tuple[dict[str, Any], dict[str, str]]:
    undefined = Undefined("window", {})
    result = ranking_figures(np.sort(scores[~label]), np.sort(scores[label]), metric_settings, undefined)
    return result, undefined.reasons


def check(label: NDArray[np.bool_], scores: NDArray[np.float64], metric_settings: MetricSettings) -> None:
    actual, reasons = ranked(label, scores, metric_settings)
    expected = exact_figures(label, scores, np.full(len(label), 0.5), label, metric_settings)
    assert tuple(actual) == RANKED
    for name, value in actual.items():
        assert (value is None) == (expected[name] is None) == (f"/window/{name}" in reasons), name
        if value is not None:
            assert value == pytest.approx(expected[name], rel=0, abs=1e-12), name


@given(
    st.lists(st.tuples(st.integers(0, 6), st.booleans()), max_size=60),
    st.sampled_from([1e-9, 0.05, 0.1, 0.3, 1 / 3, 0.5, 0.999, 1.0]),
    st.integers(1, 20),
)
@settings(max_examples=60)
def test_one_merge_gives_the_metrics_of_the_definitions(rows: list[tuple[int, bool]], max_fpr: float, k: int) -> None:
    label = np.array([flag for _, flag in rows], dtype=np.bool_)
    check(label, np.array([float(level) for level, _ in rows]), MetricSettings(max_fpr=max_fpr, k=k))


@pytest.mark.parametrize("share", [0.003, 0.05, 0.5, 0.99])
@pytest.mark.parametrize("digits", [0, 1, 2, 12])
def test_long_runs_are_merged_correctly(share: float, digits: int) -> None:
    random = np.random.default_rng(digits)
    label = random.random(3000) < share
    check(label, np.round(random.normal(size=3000) + label, digits), MetricSettings(max_fpr=0.1, k=250))


@pytest.mark.parametrize("n", [7, 10, 49, 100])
@pytest.mark.parametrize("part", range(1, 8))
def test_recall_at_an_exactly_reached_fpr(n: int, part: int) -> None:
    """count / n <= max_fpr is decided as floats divide, whichever side their product falls on."""
    label = np.arange(2 * n) % 2 == 0
    check(label, np.random.default_rng(n).permutation(2 * n).astype(float), MetricSettings(max_fpr=part / n, k=1))


def test_counts_do_not_overflow_in_the_largest_window() -> None:
    n, m = 660_000, 340_000
    positives, negatives = np.arange(m) + 2.0 * n, np.arange(n) * 1.0
    result, _ = ranked(np.arange(n + m) >= n, np.concatenate([negatives, positives]), MetricSettings())
    assert result["auc"] == result["ks"] == result["partial_auc"] == result["average_precision"] == 1.0
    positives[0], negatives[-1] = negatives[-1], positives[0]  # one pair out of order
    result, _ = ranked(np.arange(n + m) >= n, np.concatenate([negatives, positives]), MetricSettings())
    assert 0.999999 < result["auc_interval"][0] < result["auc"] < result["auc_interval"][1] == 1.0
    result, _ = ranked(np.arange(n + m) < m, np.arange(n + m) * 1.0, MetricSettings(max_fpr=1.0))
    assert (result["auc"], result["auc_interval"], result["ks"]) == (0.0, None, 0.0)


def test_mcc_of_counts_with_products_beyond_integer_range() -> None:
    huge = 2**52
    result = definitions.confusion_figures((huge, huge // 3, huge // 5, huge // 2), 1.0, Undefined("since_start", {}))
    tn, fp, fn, tp = (Fraction(part) for part in (1, Fraction(1, 3), Fraction(1, 5), Fraction(1, 2)))
    square = (tp * tn - fp * fn) ** 2 / ((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    assert result["mcc"] == pytest.approx(math.sqrt(square), rel=1e-12)


@given(st.lists(st.floats(0, 63, allow_subnormal=True), max_size=40), st.randoms(use_true_random=False))
@settings(max_examples=40)
def test_added_values_are_removed_exactly(numbers: list[float], random: Any) -> None:
    sums = np.zeros(2, dtype=np.int64)
    for x in numbers:
        definitions.tally(sums, definitions.parted(x), 1)
    exact = sum((Fraction(x) * 2**60).__floor__() for x in numbers)
    assert definitions.tallied(sums.tolist()) == exact
    random.shuffle(numbers)
    for x in numbers:
        definitions.tally(sums, definitions.parted(x), -1)
    assert sums.tolist() == [0, 0]


@pytest.mark.parametrize("probability", [0.0, 1e-300, 1e-17, EPSILON, 1e-9, 0.5, 0.7, 1 - 1e-9, 1 - 1e-16, 1.0])
@pytest.mark.parametrize("label", [0, 1])
def test_log_loss_equals_scikit_learn(probability: float, label: int) -> None:
    expected = sk.log_loss([label], [probability], labels=[0, 1])
    assert definitions.log_loss(probability, label) == pytest.approx(expected, rel=1e-14, abs=1e-30)
    assert 0.0 < definitions.log_loss(probability, label) < 36.05


def test_probabilities_fall_into_bins_of_equal_width() -> None:
    bins = [definitions.probability_bin(p) for p in (0.0, 0.0666, 0.0667, 0.5, 0.9333, 0.9334, 1.0)]
    assert bins == [0, 0, 1, 7, 13, 14, 14]


@pytest.mark.parametrize(
    "bad", [{"beta": 0.0}, {"beta": 101.0}, {"max_fpr": 0.0}, {"max_fpr": 1.1}, {"k": 0}, {"k": 10**7}]
)
def test_out_of_range_settings_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(bad))):
        MetricSettings.of(bad)


# Curves


def curve(label: NDArray[np.bool_], scores: NDArray[np.float64], points: int = 200) -> dict[str, Any]:
    called = scores >= 0
    bins = np.zeros((2, RELIABILITY_BINS), dtype=np.int64)
    bins[:, 3] = (~label).sum(), label.sum()
    mass = np.zeros(RELIABILITY_BINS)
    mass[3] = 0.22 * len(label)
    confusion = np.bincount(2 * label + called, minlength=4)
    return curves(np.sort(scores[~label]), np.sort(scores[label]), confusion, bins, mass, points)


@pytest.mark.parametrize("digits", [0, 1, 12])
def test_curve_points_equal_those_of_scikit_learn(digits: int) -> None:
    random = np.random.default_rng(0)
    label = random.random(2000) < 0.2
    scores = np.round(random.normal(size=2000) + label, digits)
    result = curve(label, scores, 50)
    roc, pr = result["roc"], result["precision_recall"]
    fpr, tpr, thresholds = sk.roc_curve(label, scores, drop_intermediate=False)
    every = {(a, b, c) for a, b, c in zip(fpr.tolist(), tpr.tolist(), thresholds.tolist(), strict=True)}
    points = list(zip(roc["fpr"], roc["tpr"], roc["threshold"], strict=True))
    assert len(points) <= 50
    assert digits < 12 or len(points) == 50  # few levels have neighbours on one line
    assert points[0] == (0.0, 0.0, None)
    assert {(a, b, math.inf if c is None else c) for a, b, c in points} <= every
    assert points[-1][:2] == (1.0, 1.0)
    # omitted points lie close to drawn points
    assert np.abs(np.interp(fpr, roc["fpr"], roc["tpr"]) - tpr).max() < 0.06
    assert sk.auc(roc["fpr"], roc["tpr"]) == pytest.approx(sk.roc_auc_score(label, scores), abs=0.004)
    precision, recall, cuts = sk.precision_recall_curve(label, scores)
    every = {(a, b, c) for a, b, c in zip(recall.tolist(), precision.tolist(), cuts.tolist(), strict=False)}
    assert set(zip(pr["recall"], pr["precision"], pr["threshold"], strict=True)) <= every
    assert len(pr["recall"]) <= 50
    assert pr["recall"] == sorted(pr["recall"])


def test_thinning_keeps_the_corners() -> None:
    x = np.concatenate([np.zeros(100), np.linspace(0, 0.5, 100), np.full(50, 0.5), np.linspace(0.5, 1, 100)])
    y = np.concatenate([np.linspace(0, 0.6, 100), np.full(100, 0.6), np.linspace(0.6, 1, 50), np.ones(100)])
    thinned_points = thin(x, y, 200)
    assert list(zip(x[thinned_points], y[thinned_points], strict=True)) == [
        (0, 0),
        (0, 0.6),
        (0.5, 0.6),
        (0.5, 1),
        (1, 1),
    ]
    assert thin(x, y, 2).tolist() == [0, 349]
    assert thin(np.zeros(9), np.zeros(9), 5).tolist() == [0, 8]  # a curve that ends where it began


def test_score_bins_contain_every_event_once() -> None:
    random = np.random.default_rng(1)
    label = random.random(500) < 0.3
    scores = random.normal(size=500)
    histogram = curve(label, scores)["histogram"]
    for name, part in (("negative", scores[~label]), ("positive", scores[label])):
        expected = np.histogram(part, bins=HISTOGRAM_BINS, range=(scores.min(), scores.max()))[0]
        assert sum(histogram[name]) == len(part)
        assert np.abs(np.array(histogram[name]) - expected).sum() <= 2  # a score on an edge, as floats round
    assert len(histogram["edges"]) == HISTOGRAM_BINS + 1


@pytest.mark.parametrize(
    "scores",
    [[0.0], [2.5] * 4, [1e308, -1e308], [math.inf, -math.inf, 0.0], [math.inf], [5e-324, 0.0], [1e300] * 3, []],
    ids=str,
)
@pytest.mark.parametrize("kind", ["negatives", "positives", "both"])
def test_curves_of_abnormal_scores_are_finite(scores: list[float], kind: str) -> None:
    label = np.array(
        [kind == "positives" or (kind == "both" and i % 2 == 0) for i in range(len(scores))], dtype=np.bool_
    )
    result = curve(label, np.array(scores, dtype=np.float64))
    json.dumps(result, allow_nan=False)
    assert sum(result["histogram"]["negative"]) + sum(result["histogram"]["positive"]) == len(scores)
    assert result["histogram"]["edges"] == sorted(result["histogram"]["edges"])
    assert bool(result["roc"]["fpr"]) == (0 < label.sum() < len(label))
    assert bool(result["precision_recall"]["recall"]) == label.any()


def test_calibration_curve_and_operating_point() -> None:
    label = np.arange(10) < 4
    result = curve(label, np.where(np.arange(10) % 2, 1.0, -1.0))
    assert result["reliability"]["count"] == [0, 0, 0, 10, *[0] * 11]
    assert result["reliability"]["mean_probability"][3] == pytest.approx(0.22)
    assert result["reliability"]["share_positive"] == [None] * 3 + [0.4] + [None] * 11
    assert result["reliability"]["edges"][3] == 0.2
    assert result["confusion"] == {"tp": 2, "fp": 3, "tn": 3, "fn": 2}
    assert result["operating_point"] == {"fpr": 0.5, "tpr": 0.5, "precision": 0.4}
    with pytest.raises(ValueError, match="2"):
        curve(label, np.zeros(10), points=1)
