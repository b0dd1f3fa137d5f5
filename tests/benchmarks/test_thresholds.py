"""The comparison of threshold objectives: hindsight by brute force, its streams, and a run on made-up data."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import numpy as np
import pytest
from sklearn import metrics

from benchmarks import thresholds
from benchmarks.hindsight import DAY, Curve, figures_of
from benchmarks.papers.datasets import Task, make
from benchmarks.thresholds import OBJECTIVES, compared, decided, made_up_clocks, main, thin
from tests.benchmarks.made import binary, write_dense, write_sparse

pytestmark = pytest.mark.integration


def stream(n: int, levels: int | None = None, share: float = 0.2) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities (n,), on so many levels, and labels."""
    random = np.random.default_rng(n)
    y = np.where(random.random(n) < share, 1.0, -1.0)
    p = 1 / (1 + np.exp(1.5 - random.normal(size=n) - 1.5 * (y > 0)))
    return (np.floor(p * levels) / levels if levels else p), y


@pytest.mark.parametrize("levels", [None, 10, 1])
def test_hindsight_is_the_best_fixed_threshold(levels: int | None) -> None:
    p, y = stream(400, levels)
    curve = Curve.of(p, y)
    calls = [p >= threshold for threshold in (*np.unique(p), 2.0)]  # every set that a threshold can call positive
    each = [figures_of(called, y, np.zeros(len(y))) for called in calls]
    precise = [item for item in each if not item["precision"] < 0.4]
    assert curve.f_beta(1.0) == pytest.approx(max(item["f1"] for item in each))
    assert curve.f_beta(2.0) == pytest.approx(max(item["f2"] for item in each))
    assert curve.jaccard() == pytest.approx(max(item["jaccard"] for item in each))
    assert curve.accuracy() == pytest.approx(max(item["accuracy"] for item in each))
    assert curve.cost() == pytest.approx(min(item["cost"] for item in each))
    assert curve.recall_at_fpr(0.1) == pytest.approx(max(item["recall"] for item in each if item["fpr"] <= 0.1))
    assert curve.recall_at_precision(0.4) == pytest.approx(max(item["recall"] for item in precise))
    assert curve.precision_at_recall(0.8) == pytest.approx(
        max(item["precision"] for item in each if item["recall"] >= 0.8)
    )


def test_hindsight_precision_spreads_ties_evenly() -> None:
    curve = Curve.of(np.array([0.9, 0.5, 0.5, 0.1]), np.array([1.0, 1.0, -1.0, -1.0]))
    assert [curve.precision_at(calls) for calls in (1, 2, 3, 4)] == pytest.approx([1.0, 0.75, 2 / 3, 0.5])
    assert np.isnan(curve.precision_at(0))


def test_hindsight_with_no_events_or_one_class() -> None:
    nothing = Curve.of(np.empty(0), np.empty(0))
    assert (nothing.f_beta(1.0), nothing.accuracy(), nothing.cost(), nothing.recall_at_fpr(0.1)) == (0.0, 0.0, 0.0, 0.0)
    negatives = Curve.of(np.array([0.2, 0.7]), np.array([-1.0, -1.0]))
    assert (negatives.f_beta(1.0), negatives.accuracy(), negatives.cost()) == (0.0, 1.0, 0.0)
    positives = Curve.of(np.array([0.2, 0.7]), np.array([1.0, 1.0]))
    assert (positives.f_beta(1.0), positives.recall_at_fpr(0.01), positives.precision_at_recall(0.8)) == (1.0, 1.0, 1.0)


def test_figures_agree_with_scikit_learn() -> None:
    p, y = stream(300)
    called = p >= 0.4
    figures = figures_of(called, y, np.zeros(len(y)))
    labels = y > 0
    assert figures["f1"] == pytest.approx(metrics.f1_score(labels, called))
    assert figures["f2"] == pytest.approx(metrics.fbeta_score(labels, called, beta=2.0))
    assert figures["jaccard"] == pytest.approx(metrics.jaccard_score(labels, called))
    assert figures["accuracy"] == pytest.approx(metrics.accuracy_score(labels, called))
    assert figures["precision"] == pytest.approx(metrics.precision_score(labels, called))
    assert figures["recall"] == pytest.approx(metrics.recall_score(labels, called))
    (tn, fp), (fn, tp) = metrics.confusion_matrix(labels, called)
    assert figures["fpr"] == pytest.approx(fp / (fp + tn))
    assert figures["alert_rate"] == pytest.approx((tp + fp) / 300)
    assert figures["cost"] == pytest.approx((fp + 10 * fn) / 300)
    assert np.isnan(figures_of(np.zeros(300, dtype=bool), y, np.zeros(300))["precision"])


def test_the_maximum_number_of_alerts_per_day() -> None:
    clocks = DAY * np.array([0.1, 0.9, 1.0, 1.5, 1.9, 3.0])
    called = np.array([True, True, True, True, True, False])
    assert figures_of(called, np.ones(6), clocks)["most_a_day"] == 3


def test_thinning_keeps_the_first_half_and_all_negatives() -> None:
    y = stream(1001, share=0.4)[1]
    selection = thin(y, np.random.default_rng(0))
    assert (np.diff(selection) > 0).all()
    assert selection[:500].tolist() == list(range(500))
    late = int((y[500:] > 0).sum())
    assert int((y[selection[500:]] > 0).sum()) == round(late / 4)
    assert int((y[selection] < 0).sum()) == int((y < 0).sum())
    assert selection.tolist() == thin(y, np.random.default_rng(0)).tolist()
    assert selection.tolist() != thin(y, np.random.default_rng(1)).tolist()


def test_synthetic_days_have_about_a_thousand_events_mostly_around_noon() -> None:
    clocks = made_up_clocks(20_000, np.random.default_rng(1))
    assert (np.diff(clocks) > 0).all()
    days = np.bincount((clocks // DAY).astype(int))[:-1]
    assert len(days) >= 18
    assert (np.abs(days - thresholds.A_DAY) < 150).all()
    hours = (clocks % DAY) / DAY
    assert ((hours > 0.25) & (hours < 0.75)).mean() > 0.7


def test_f1_window_fbeta_1_and_jaccard_select_the_same_events() -> None:
    p, y = stream(3000)
    clocks = np.full(3000, np.nan)
    called = decided(OBJECTIVES["f1-window"], p, y, clocks)
    assert 0 < called.sum() < 3000
    for name in ("fbeta 1", "jaccard"):
        assert decided(OBJECTIVES[name], p, y, clocks).tolist() == called.tolist()


def test_no_day_exceeds_its_alert_budget() -> None:
    p, y = stream(5000)
    clocks = made_up_clocks(5000, np.random.default_rng(2))
    called = decided(OBJECTIVES["10 a day"], p, y, clocks)
    assert 5 < figures_of(called, y, clocks)["most_a_day"] <= thresholds.SHARE * thresholds.A_DAY


def test_each_part_is_evaluated_on_its_own_events(tmp_path: Path) -> None:
    write_dense(tmp_path, "ijcnn1", *binary(200, 3))
    task = Task("ijcnn1", (1,))
    data = make(tmp_path, task)
    runs, aucs = compared(task, data, 2)
    fixed = {part: runs["fofo", "posterior", "fixed 0.5", part] for part in ("whole", "before", "after")}
    assert [len(results) for results in fixed.values()] == [2, 2, 2]
    assert all(0.5 < auc < 1.0 for results in aucs.values() for auc in results)
    assert fixed["whole"] != fixed["before"]
    random = np.random.default_rng(zlib.crc32(b"ijcnn1 [1] 0"))
    y = data.y[random.permutation(200)]
    after = thin(y, random)[100:]
    # what a figure was a share of tells which events were counted
    for part, labels in (("whole", y), ("before", y[:100]), ("after", y[after])):
        result = fixed[part][0]
        assert result["recall"] * (labels > 0).sum() == pytest.approx(round(result["recall"] * (labels > 0).sum()))
        assert result["fpr"] * (labels < 0).sum() == pytest.approx(round(result["fpr"] * (labels < 0).sum()))
        assert result["f1"] <= result["hindsight"] + 1e-12
    again = compared(task, data, 1)[0]
    assert {key: results[:1] for key, results in runs.items()} == again


def test_a_run_on_synthetic_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    X, y = binary(250, 30, seed=1, share=0.2)
    write_sparse(tmp_path, "w8a", np.where(np.abs(X) < 0.8, 0.0, X), y)
    write_sparse(tmp_path, "farm-ads", np.where(np.abs(X) < 0.8, 0.0, X), y)
    write_dense(tmp_path, "ijcnn1", *binary(250, 3, seed=2))
    path = tmp_path / "deep" / "thresholds.json"
    main(["--datasets", str(tmp_path), "--quick", "--only", "w8a", "--only", "ijcnn1", "--json", str(path)])
    printed = capsys.readouterr().out
    written = json.loads(path.read_text(), parse_constant=pytest.fail)  # no NaN
    tasks = [task["task"] for task in written["tasks"]]
    assert tasks == ["w8a [1]", "ijcnn1 [1]", "ijcnn1 [1] 2%"]
    assert all(name in printed for name in tasks)
    assert "farm-ads" not in printed
    for task in written["tasks"]:
        assert {row["objective"] for row in task["rows"]} == set(OBJECTIVES)
        assert {row["part"] for row in task["rows"]} == {"whole", "before", "after"}
        for row in task["rows"]:
            assert len(row["f1"]) == 1
            assert 0.0 <= row["f1"][0] <= 1.0
            assert row["hindsight_of"] in row
    for title, _ in thresholds._tables():
        assert title in printed


@pytest.mark.parametrize(("arguments", "message"), [([], "a9a, w8a"), (["--only", "heart"], "invalid choice")])
def test_without_data_the_program_names_the_required_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--datasets", str(tmp_path), *arguments])
    assert message in capsys.readouterr().err
