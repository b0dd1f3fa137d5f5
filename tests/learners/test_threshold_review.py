"""Reviews of thresholds: figures against a recount, previews against learners that had the objective all the time."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from learners import CostChoice, Learner, ThresholdReview, create
from learners.config import Config
from learners.decisions import threshold
from learners.inputs import read_batch
from learners.numerics import Vector
from learners.records import BatchOutcome

N, WINDOW, EVERY = 6_000, 3_000, 60.0  # events, and seconds between them
START = 1_700_000_000.0
NO_CHOICE = CostChoice()
OBJECTIVES: list[dict[str, Any]] = [
    {"objective": "f1"},
    {"objective": "f1-window"},
    {"objective": "f1-ofo"},
    {"objective": "fbeta", "beta": 2.0},
    {"objective": "precision", "target": 0.7},
    {"objective": "recall", "target": 0.8},
    {"objective": "fpr", "target": 0.02},
    {"objective": "optroc"},
    {"objective": "cost", "false_negative": 10.0},
    {"objective": "fixed", "value": 0.4},
    {"objective": "budget", "alerts": 40},
    {"objective": "budget", "rate": 0.02},
]


@functools.cache
def stream() -> tuple[Vector, Vector, Vector]:
    """Features, labels and times: one event in 25 is positive."""
    random = np.random.default_rng(3)
    y = (random.random(N) < 0.04).astype(np.float64)
    return random.normal(size=(N, 3)) + 1.5 * y[:, None], y, START + EVERY * np.arange(N)


def learnt(**settings: Any) -> tuple[Learner, BatchOutcome]:
    """Return a learner of the stream, and the predictions from before each label."""
    X, y, times = stream()
    learner = create("fofo", dim=3, window=WINDOW, **settings)
    outcome = learner.apply(read_batch(learner.config, X, y, times=times))
    assert outcome is not None
    return learner, outcome


@functools.cache
def usual() -> tuple[Learner, BatchOutcome]:
    """Return a learner that no test changes."""
    return learnt(threshold="f1-window")


def preview(learner: Learner, costs: CostChoice = NO_CHOICE, **settings: Any) -> dict[str, Any]:
    return ThresholdReview.of(learner).preview(learner.config.with_changes({"threshold": settings}), costs)


def recount(p: Vector, y: Vector, decisions: Any, costs: tuple[float, float]) -> dict[str, Any]:
    """Count one by one."""
    tp = fp = tn = fn = 0
    for label, decision in zip(y.tolist(), decisions.tolist(), strict=True):
        tp += bool(label) and bool(decision)
        fp += not label and bool(decision)
        tn += not label and not decision
        fn += bool(label) and not decision
    days = len(p) * EVERY / 86_400.0
    return {
        "precision": tp / (tp + fp),
        "recall": tp / (tp + fn),
        "f1": 2 * tp / (2 * tp + fp + fn),
        "fpr": fp / (fp + tn),
        "alert_rate": (tp + fp) / len(p),
        "alerts_per_day": pytest.approx((tp + fp) / days, rel=1e-3),
        "cost": fp * costs[0] + fn * costs[1],
        "confusion": {"tp": tp, "fp": fp, "tn": tn, "fn": fn},
    }


def test_figures_are_those_of_a_recount_of_the_window() -> None:
    learner, outcome = usual()
    digest = learner.digest()
    document = ThresholdReview.of(learner).points(30, CostChoice(2.0, 25.0))
    assert outcome.probabilities is not None
    p, y = outcome.probabilities[-WINDOW:], stream()[1][-WINDOW:]
    points = document["points"]
    assert 25 <= len(points["threshold"]) <= 30
    rows = [{"threshold": document["threshold"], **document["live"]}]
    for i in range(len(points["threshold"])):
        row = {name: points[name][i] for name in points if name != "confusion"}
        rows.append({**row, "confusion": {cell: counts[i] for cell, counts in points["confusion"].items()}})
    for row in rows:
        expected = recount(p, y, p >= row["threshold"], (2.0, 25.0))
        assert {name: row[name] for name in expected} == expected
        for name in expected.keys() - {"confusion"}:
            low, high = row[f"{name}_interval"]
            assert 0.0 <= low <= row[name] <= high
    actual = recount(p, y, outcome.decisions[-WINDOW:], (2.0, 25.0))
    assert {name: document["actual"][name] for name in actual} == actual
    assert document["window"]["class_counts"] == {"negative": WINDOW - int(y.sum()), "positive": int(y.sum())}
    assert document["costs"] == {"false_positive": 2.0, "false_negative": 25.0}
    assert document["undefined"].keys() == {"/window/label_coverage"}
    assert learner.digest() == digest


def test_a_corrected_label_counts_as_corrected() -> None:
    X, y, times = (column[:400] for column in stream())
    learner = create("fofo", dim=3, window=WINDOW)
    learner.learn(X, y, ids=[f"e{i}" for i in range(400)], times=times)
    before = ThresholdReview.of(learner).points(10, NO_CHOICE)["window"]["class_counts"]
    first = int(np.argmin(y))
    learner.learn(X[first : first + 1], [1], ids=[f"e{first}"])
    after = ThresholdReview.of(learner).points(10, NO_CHOICE)["window"]["class_counts"]
    assert after == {"negative": before["negative"] - 1, "positive": before["positive"] + 1}


@pytest.mark.parametrize("settings", OBJECTIVES, ids=str)
def test_a_preview_is_close_to_a_learner_that_had_the_objective(settings: dict[str, Any]) -> None:
    learner, _ = usual()
    digest = learner.digest()
    document = preview(learner, **settings)
    other, _ = learnt(threshold=settings)
    actual = ThresholdReview.of(other).points(2, NO_CHOICE)["actual"]
    for name, apart in (("precision", 0.08), ("recall", 0.08), ("f1", 0.04)):
        assert abs(document["preview"][name] - actual[name]) <= apart
    low, high = document["threshold_range"]
    assert 0.0 <= low <= high <= 1.0
    assert learner.digest() == digest
    learner = Learner.restored(learner.config, learner.state())
    learner._change(learner.config.with_changes({"threshold": settings}))
    assert document["threshold"] == learner.threshold
    assert document["settings"] == learner.config.to_json()["threshold"]


def test_a_preview_of_a_fixed_threshold_is_the_figures_at_it() -> None:
    learner, _ = usual()
    document = preview(learner, objective="fixed", value=0.3)
    fixed, _ = learnt(threshold={"objective": "fixed", "value": 0.3})
    review = ThresholdReview.of(fixed).points(2, NO_CHOICE)
    assert document["preview"] == review["live"] == review["actual"]
    assert document["threshold_range"] == [0.3, 0.3]


@pytest.mark.parametrize("alerts", [3, 40, 300])
@pytest.mark.parametrize("hours", [2, 30, 120])
def test_a_replay_of_a_part_of_a_day_spends_a_part_of_the_budget(alerts: int, hours: int) -> None:
    decision = usual()[0].view().scorer.decision
    settings = threshold.Threshold("budget", alerts=alerts)
    replayed: Any = decision.frozen()
    replayed.change(settings)
    random = np.random.default_rng(hours)
    n = 60 * hours
    clocks = START + EVERY * np.arange(n)
    y = np.where(random.random(n) < 0.04, 1.0, -1.0)
    _, decisions = replayed.replay(random.random(n), y, clocks, 1 / EVERY)
    days, place = np.unique(np.floor(clocks / 86_400), return_inverse=True)
    spent = np.bincount(place, weights=decisions)
    assert (spent <= alerts).all()
    share = alerts * n * EVERY / 86_400
    assert spent.sum() <= share + max(2.0, alerts / 5.0) * len(days) + 1
    if alerts > 3:
        assert spent.sum() >= 0.7 * share


def test_a_replay_bears_any_clock_and_rate() -> None:
    decision = usual()[0].view().scorer.decision
    y = np.where(np.arange(200) % 10 == 0, 1.0, -1.0)
    for clocks in (np.full(200, np.nan), np.full(200, 1e10), np.append(np.full(100, np.nan), 1e9 + np.arange(100))):
        for rate in (np.nan, 5e-324, 1e300):
            for settings in (threshold.Threshold("budget", alerts=1e9, unit_seconds=1e9), threshold.Threshold()):
                replayed: Any = decision.frozen()
                replayed.change(settings)
                thresholds, decisions = replayed.replay(np.linspace(0, 1, 200), y, clocks, rate)
                assert ((thresholds >= 0) & (thresholds <= 1)).all()
                assert np.isin(decisions, (0, 1)).all()


def test_a_budget_without_clocks_is_replayed_without_a_unit() -> None:
    X, y, _ = (column[:1000] for column in stream())
    learner = create("fofo", dim=3, window=500)
    learner.learn(X, y)
    document = preview(learner, objective="budget", alerts=20)
    confusion = document["preview"]["confusion"]
    assert 0 < confusion["tp"] + confusion["fp"] <= 20
    assert document["preview"]["alerts_per_day"] is None
    assert "/preview/alerts_per_day" in document["undefined"]
    document = ThresholdReview.of(learner).points(5, NO_CHOICE)
    assert document["points"]["alerts_per_day"] is None
    assert document["points"]["recall"] is not None


def test_a_spent_budget_has_no_alerts_at_a_probability_of_1() -> None:
    learner = create("fofo", dim=1, threshold={"objective": "budget", "alerts": 1}, scaling="none")
    y = np.arange(200) % 4 == 0
    learner.learn(np.where(y, 1e3, -1e3)[:, None], y, times=START + np.arange(200.0))
    document = ThresholdReview.of(learner).points(5, NO_CHOICE)
    assert max(ThresholdReview.of(learner).columns.probabilities) == 1.0
    assert document["threshold"] == 1.0
    assert document["live"]["alert_rate"] == 0.0
    assert "/live/precision" in document["undefined"]


def test_costs_are_those_of_the_query_else_of_the_settings() -> None:
    learner, _ = usual()
    review = ThresholdReview.of(learner)
    assert review.points(2, NO_CHOICE)["costs"] == {"false_positive": 1.0, "false_negative": 1.0}
    assert review.points(2, CostChoice(None, 9.0))["costs"] == {"false_positive": 1.0, "false_negative": 9.0}
    settings = {"objective": "cost", "false_positive": 3.0, "false_negative": 7.0}
    document = preview(learner, **settings)
    assert document["costs"] == {"false_positive": 3.0, "false_negative": 7.0}
    confusion = document["actual"]["confusion"]
    assert document["actual"]["cost"] == 3 * confusion["fp"] + 7 * confusion["fn"]
    assert preview(learner, CostChoice(1.0, 5.0), **settings)["costs"] == {"false_positive": 1.0, "false_negative": 5.0}


def test_costs_by_a_field_have_no_figures() -> None:
    settings = {"objective": "cost", "false_positive": 3.0, "field": "1"}
    learner = create("fofo", dim=3, threshold=settings)
    X, y, times = (column[:300] for column in stream())
    learner.learn(np.abs(X), y, times=times)
    document = ThresholdReview.of(learner).points(5, NO_CHOICE)
    assert document["costs"] is None is document["live"]
    assert document["points"]["cost"] is None is document["actual"]["cost"]
    assert {"/costs", "/live", "/points/cost", "/actual/cost"} <= document["undefined"].keys()
    priced = ThresholdReview.of(learner).points(5, CostChoice(false_negative=8.0))
    assert priced["costs"] == {"false_positive": 3.0, "false_negative": 8.0}
    assert priced["live"] is None
    document = preview(usual()[0], **settings)
    assert document["preview"] is None is document["threshold_range"]
    assert {"/preview", "/threshold_range", "/costs"} <= document["undefined"].keys()
    assert document["threshold"] == 3.0 / 4.0


@pytest.mark.parametrize("labels", [[], [0.0], [1.0], [0.0] * 40, [1.0] * 40])
def test_learners_without_both_classes_say_what_they_lack(labels: list[float]) -> None:
    learner = create("fofo", dim=3)
    learner.learn(np.ones((len(labels), 3)), np.array(labels))
    document = ThresholdReview.of(learner).points(5, NO_CHOICE)
    assert document["threshold"] is None is document["live"]
    assert document["undefined"]["/threshold"] == document["undefined"]["/live"] == learner.view().not_ready
    assert (document["points"] is None) == (not labels)
    if not any(labels):
        assert document["actual"]["recall"] is None
        assert "/actual/recall" in document["undefined"]
    for settings in OBJECTIVES:
        tried = preview(learner, **settings)
        fixed = settings["objective"] == "fixed"
        assert tried["threshold"] == (settings["value"] if fixed else None)
        assert ("/threshold" in tried["undefined"]) != fixed
        assert (tried["threshold_range"] is None) == (not labels)
        assert sum(tried["preview"]["confusion"].values()) == len(labels)


def test_a_window_that_has_run_out_has_no_points() -> None:
    learner = create("fofo", dim=3, window_seconds=3600)
    X, y, times = (column[:50] for column in stream())
    learner.learn(X, y, times=times)
    learner.metrics.tick(np.array([times[-1] + 1e6]))
    learner.metrics.advance(learner.metrics.clock)
    document = ThresholdReview.of(learner).points(5, NO_CHOICE)
    assert document["points"] is None
    assert document["window"]["events"] == 0
    assert {"/points", "/actual/precision", "/actual/cost"} <= document["undefined"].keys()


def test_fewer_than_two_thresholds_are_refused() -> None:
    with pytest.raises(ValueError, match="1"):
        ThresholdReview.of(usual()[0]).points(1, NO_CHOICE)


def test_a_review_stays_as_it_was_copied() -> None:
    learner = Learner(Config.of({"algorithm": "fofo", "features": {"kind": "dense", "dim": 3}, "window": 100}))
    X, y, times = stream()
    learner.learn(X[:150], y[:150], times=times[:150])
    review = ThresholdReview.of(learner)
    before = review.points(10, NO_CHOICE)
    learner.learn(X[150:400], y[150:400], times=times[150:400])
    assert review.points(10, NO_CHOICE) == before
