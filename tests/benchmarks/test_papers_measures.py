"""The measures against brute force and scikit-learn, and the order of the methods."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import f1_score, roc_auc_score

from benchmarks.papers import measures
from benchmarks.papers.figures import Printed
from benchmarks.papers.report import Row, order, ranks

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("seed", range(6))
def test_auc_equals_scikit_learn(seed: int) -> None:
    random = np.random.default_rng(seed)
    y = np.where(random.random(120) < 0.2, 1.0, -1.0)
    scores = random.normal(size=120).round(seed % 3) + 0.5 * y  # with ties
    assert measures.auc(scores, y) == pytest.approx(roc_auc_score(y, scores), abs=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_optroc_accuracy_is_the_maximum_over_all_thresholds(seed: int) -> None:
    random = np.random.default_rng(seed)
    y = np.where(random.random(40) < random.uniform(0.1, 0.9), 1.0, -1.0)
    scores = random.normal(size=40).round(seed % 3) + 0.3 * y
    thresholds = [-np.inf, *scores, np.inf]
    best = max(np.mean((scores >= threshold) == (y > 0)) for threshold in thresholds)
    assert measures.optroc_accuracy(scores, y) == best


def test_optroc_accuracy_allows_all_or_no_positives() -> None:
    scores = np.array([3.0, 2.0, 1.0])
    assert measures.optroc_accuracy(scores, np.array([-1.0, -1.0, -1.0])) == 1.0
    assert measures.optroc_accuracy(scores, np.array([1.0, 1.0, 1.0])) == 1.0


def test_f1_curve_counts_from_the_first_event() -> None:
    random = np.random.default_rng(0)
    y = np.where(random.random(300) < 0.2, 1.0, -1.0)
    called = random.random(300) < 0.4
    at, curve = measures.f1_curve(y, called, 25)
    assert len(at) == 25
    assert at[-1] == 300
    assert measures.f1(y, called) == curve[-1]
    assert measures.f1(y, np.zeros(300, dtype=np.bool_)) == measures.f1(-np.ones(3), np.zeros(3, dtype=np.bool_)) == 0.0
    for n, value in zip(at, curve, strict=True):
        assert value == pytest.approx(f1_score(y[:n] > 0, called[:n], zero_division=0.0))


def test_mae_mse_and_accuracy_of_ranks() -> None:
    result = measures.ordinal(np.array([1, 2, 3, 5]), np.array([1.0, 3.0, 3.0, 3.0]))
    assert result == {"mae": 0.75, "mse": 1.25, "accuracy": 0.5}


def test_equal_figures_share_a_rank() -> None:
    assert ranks([0.5, 0.9, None, 0.9, 0.1], lower_is_better=False) == [3, 1, None, 1, 4]
    assert ranks([0.5, 0.9, None, 0.9, 0.1], lower_is_better=True) == [2, 3, None, 3, 1]


def _row(method: str, values: tuple[float, ...], paper: Printed | None = None, lower: bool = False) -> Row:
    return Row("task", method, paper, values, 0.1, "", lower)


def test_our_order_and_the_order_of_the_papers() -> None:
    first, second = (Printed(mean, None, 0.0) for mean in (0.9, 0.95))
    rows = [_row("a", (0.7, 0.9), first), _row("b", (0.9,), second), _row("c", ()), _row("d", (0.8,))]
    assert order(rows, paper=False) == "b > a = d"
    assert order(rows, paper=True) == "b > a"


@pytest.mark.parametrize(
    ("values", "paper", "lower", "verdict"),
    [
        ((0.7, 0.9), None, False, None),
        ((), Printed(0.8, 0.01, 0.0), False, None),
        ((0.7, 0.9), Printed(0.84, 0.05, 0.0), False, "equal"),
        ((0.7, 0.9), Printed(0.84, 0.03, 0.0), False, "worse"),
        ((0.7, 0.9), Printed(0.76, 0.03, 0.0), False, "better"),
        ((0.7, 0.9), Printed(0.76, 0.03, 0.0), True, "worse"),
        ((0.7, 0.9), Printed(0.84, 0.03, 0.0), True, "better"),
        ((0.7, 0.9), Printed(0.94, None, 0.0), False, "equal"),  # our sd is .141
        ((0.7, 0.9), Printed(0.95, None, 0.0), False, "worse"),
        ((0.8,), Printed(0.81, None, 0.005), False, "worse"),  # a single run has no sd
        ((0.8,), Printed(0.804, None, 0.005), False, "equal"),
        ((0.8,), Printed(0.804, 0.0, 0.005), False, "equal"),
    ],
)
def test_a_result_is_judged_by_the_standard_deviation_of_the_paper(
    values: tuple[float, ...], paper: Printed | None, lower: bool, verdict: str | None
) -> None:
    assert _row("a", values, paper, lower).verdict == verdict
