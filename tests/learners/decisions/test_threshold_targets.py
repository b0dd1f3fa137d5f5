"""Targets of fpr, precision and recall are reached on future events, also while probabilities drift."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from learners.decisions import threshold
from learners.decisions.threshold import Threshold
from learners.numerics.arrays import Vector
from tests.learners.decisions.labelled_streams import as_in_the_papers, events, learnt, run, undated


@pytest.mark.parametrize("target", [0.1, 0.3])
def test_targets_are_met_on_future_events(target: float) -> None:
    p, y = events(30_000, seed=12)
    reached = {}
    for objective in ("fpr", "precision", "recall"):
        _, thresholds = run(Threshold(objective, target=target if objective == "fpr" else 1 - target), p, y)  # type: ignore[arg-type]
        reached[objective] = (p >= thresholds)[2000:]
    positive = y[2000:] > 0
    assert np.mean(reached["fpr"][~positive]) == pytest.approx(target, rel=0.02)
    error = math.sqrt(target * (1 - target) / reached["precision"].sum())  # of few events
    assert np.mean(positive[reached["precision"]]) == pytest.approx(1 - target, abs=0.01 + error)
    assert np.mean(reached["recall"][positive]) == pytest.approx(1 - target, abs=0.005)


def _shifted(n: int, by: float, seed: int) -> tuple[Vector, Vector]:
    """Draw events whose predicted and true log-odds move by `by` half way."""
    random = np.random.default_rng(seed)
    odds = random.normal(-2.0, 1.5, n) + by * (np.arange(n) >= n // 2)
    p = 1 / (1 + np.exp(-odds))
    return p, np.where(random.random(n) < p, 1.0, -1.0)


@pytest.mark.parametrize("by", [-1.5, 1.5])
@pytest.mark.parametrize(
    ("objective", "target"), [("fpr", 0.05), ("fpr", 0.01), ("recall", 0.8), ("recall", 0.95), ("precision", 0.5)]
)
def test_targets_are_met_while_log_odds_shift(objective: Any, target: float, by: float) -> None:
    """From right after the shift on; what the events of before had for a threshold is far off by then."""
    p, y = _shifted(30_000, by, seed=16)
    state, thresholds = run(Threshold(objective, target=target), p, y)
    called, positive = p >= thresholds, y > 0

    def reached(called: NDArray[np.bool_]) -> float:
        concerned, good = {
            "fpr": (~positive[15_000:], called),
            "recall": (positive[15_000:], called),
            "precision": (called, positive[15_000:]),
        }[objective]
        return float(np.mean(good[concerned]))

    tolerance = 0.15 * min(target, 1 - target) + 0.01 * (objective == "recall")
    assert reached(called[15_000:]) == pytest.approx(target, abs=tolerance)
    if objective != "precision":  # of which log-odds that are right know the threshold
        assert abs(reached(p[15_000:] >= thresholds[14_999]) - target) > 2 * tolerance
    assert 0.0 < state.aim[0] < 1.0


def test_only_events_relevant_to_the_target_move_the_aim() -> None:
    p = np.array([0.001, 0.999, 0.001, 0.999])
    y = np.array([-1.0, -1.0, 1.0, 1.0])
    decided = np.array([True, False, True, False])  # late labels count by the decision that the event would get now
    steps = {
        ("fpr", 0.4): [0.4, 0.4 - 1, 0, 0],
        ("recall", 0.4): [0, 0, 0.4, 0.4 - 1],
        ("precision", 0.4): [0, 0.4, 0, 0.4 - 1],
    }
    for (objective, target), expected in steps.items():
        setting = as_in_the_papers(objective=objective, target=target)
        for i in range(4):
            state = threshold.init(setting)
            assert state.aim[0] == target
            state.live[0] = 0.5
            learnt(setting, state, undated(p, y)._replace(decided=decided).part(i, i + 1))
            back = 0.95 if objective == "precision" and state.aim[0] > target else 1.0
            assert state.aim[0] - target == pytest.approx(0.005 * expected[i] * back, rel=0.06, abs=1e-15)
    for objective, target, step in (("fpr", 0.008, 0.002), ("recall", 0.996, 0.001), ("recall", 1.0, 0.0)):
        setting = as_in_the_papers(objective=objective, target=target)
        state = threshold.init(setting)
        state.live[0] = 0.5
        learnt(setting, state, undated(p, y).part(1, 4) if objective == "fpr" else undated(p, y).part(2, 3))
        assert state.aim[0] == pytest.approx(min(target + step * (target - (objective == "fpr")), 1.0), rel=1e-12)


def test_an_unreachable_precision_is_retried_if_the_aim_was_too_high() -> None:
    setting = Threshold("precision", target=0.6)
    p, y = events(20_000, seed=17)
    state, _ = run(setting, p[:4000], y[:4000])
    state.aim[0] = 0.999
    thresholds, decisions = learnt(setting, state, undated(p[4000:], y[4000:]))
    assert thresholds[64] == 1.0
    assert np.mean(y[8000:][decisions[4000:] == 1] > 0) == pytest.approx(0.6, abs=0.03)


@pytest.mark.parametrize("was", [{"objective": "fpr", "target": 0.1}, {"objective": "recall", "target": 0.8}], ids=str)
def test_a_new_target_or_objective_resets_the_aim(was: dict[str, Any]) -> None:
    p, y = events(4000, seed=18)
    old = Threshold(**was)
    state, _ = run(old, p, y)
    assert state.aim[0] != old.target
    assert threshold.change_settings(old, Threshold(**was, memory=500), state).aim[0] == state.aim[0]
    for to in ({"objective": "fpr", "target": 0.2}, {"objective": "precision", "target": 0.1}):
        setting = Threshold(**to)  # type: ignore[arg-type]
        changed = threshold.change_settings(old, setting, state)
        assert changed.aim[0] == setting.target
        assert (
            threshold.change_settings(Threshold(), setting, threshold.change_settings(old, Threshold(), state)).aim[0]
            == to["target"]
        )
    assert threshold.change_settings(old, Threshold(), state).aim[0] == 0.0
    assert threshold.restart(old, state).aim[0] == old.target
