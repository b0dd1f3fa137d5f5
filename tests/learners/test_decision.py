"""Decisions behind the model: made once, counted once, the same on every node."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from learners.config import Config
from learners.decision import BinaryDecision, OrdinalDecision, Predictions, decision_of
from learners.decisions.calibration import Calibration
from learners.decisions.threshold import Threshold
from learners.numerics.arrays import Vector

KINDS = [Calibration("platt"), Calibration("posterior"), Calibration("none"), Calibration("isotonic")]
BUDGET = Threshold("budget", alerts=5)


def stream(n: int, seed: int = 0) -> tuple[Vector, Vector, Vector, Vector]:
    """Scores, labels, costs and clocks of n events over some days."""
    random = np.random.default_rng(seed)
    y = np.where(random.random(n) < 0.2, 1.0, -1.0)
    return random.normal(size=n) + y, y, random.lognormal(0, 1, n), 1e9 + np.cumsum(random.exponential(1500, n))


def bits(decision: BinaryDecision) -> list[bytes]:
    return [array.tobytes() for arrays in decision.state().values() for array in arrays.values()]


def column_bytes(scores: Predictions) -> list[bytes]:
    return [np.asarray(column).tobytes() for column in scores]


@pytest.mark.parametrize("calibrated", KINDS, ids=lambda item: item.kind)
@pytest.mark.parametrize("objective", [Threshold(), BUDGET, Threshold("cost", field="amount")], ids=str)
def test_a_node_recording_remote_predictions_has_the_same_state(calibrated: Calibration, objective: Threshold) -> None:
    remote, local = BinaryDecision(calibrated, objective), BinaryDecision(calibrated, objective)
    values, y, costs, clocks = stream(400)
    for start in range(0, 400, 80):
        learnt, served = slice(start, start + 30), slice(start + 30, start + 80)
        decided = np.arange(30) % 2 == 0
        outcomes = [
            item.learn(values[learnt], y[learnt], decided, costs[learnt], clocks[learnt]) for item in (remote, local)
        ]
        assert column_bytes(outcomes[0]) == column_bytes(outcomes[1])
        scores = remote.serve(values[served], costs[served], clocks[served])
        local.note(scores, clocks[served])
        assert bits(remote) == bits(local)
    assert column_bytes(remote.preview(values, costs)) == column_bytes(local.preview(values, costs))


def test_a_frozen_copy_stays_and_a_restored_copy_continues() -> None:
    values, y, costs, clocks = stream(300)
    decision = BinaryDecision(KINDS[0], BUDGET)
    now = np.ones(100, dtype=np.bool_)
    decision.learn(values[:100], y[:100], now, costs[:100], clocks[:100])
    frozen = decision.frozen()
    before = bits(frozen)
    other = BinaryDecision(KINDS[0], BUDGET)
    other.restore(decision.state())
    for item in (decision, other):
        item.serve(values[100:], costs[100:], clocks[100:])
    assert bits(decision) == bits(other)
    assert bits(frozen) == before != bits(decision)
    assert frozen.threshold is not None


def test_missing_costs_equal_costs_of_1_and_preview_spends_nothing() -> None:
    values, _, _, clocks = stream(50)
    decision = BinaryDecision(KINDS[1], Threshold("cost", false_positive=2.0, field="amount"))
    before = bits(decision)
    assert column_bytes(decision.preview(values)) == column_bytes(decision.preview(values, np.ones(50)))
    assert bits(decision) == before
    assert decision.threshold == 2 / 3
    served = decision.serve(values, None, clocks)
    assert served.thresholds is not None
    assert set(served.thresholds.tolist()) == {2 / 3}


def test_a_restart_forgets_the_model_but_not_the_spent_budget() -> None:
    values, y, costs, clocks = stream(300)
    clocks[:] = clocks[0]  # one day
    decision = BinaryDecision(Calibration("isotonic"), Threshold("budget", alerts=10))
    first = decision.learn(values[:150], y[:150], np.ones(150, dtype=np.bool_), costs[:150], clocks[:150])
    spent = first.decisions.sum()
    assert 0 < spent <= 10
    decision.restart()
    fresh = BinaryDecision(Calibration("isotonic"), Threshold("budget", alerts=10))
    assert column_bytes(decision.preview(values)) == column_bytes(fresh.preview(values))
    account = decision.state()["threshold"]
    assert account["spent"].tolist() == [150, spent, 0]
    # events that the new model learns again were decided before
    decision.learn(values[:150], y[:150], np.zeros(150, dtype=np.bool_), None, np.full(150, np.nan))
    assert decision.state()["threshold"]["spent"].tolist() == [150, spent, 0]
    more = decision.serve(values[150:], None, clocks[150:])
    assert spent + more.decisions.sum() <= 10


def test_the_threshold_can_be_changed_and_changed_back() -> None:
    values, y, costs, clocks = stream(640)
    decision, always = (BinaryDecision(KINDS[0], Threshold("f1-window")) for _ in range(2))
    now = np.ones(640, dtype=np.bool_)
    for item in (decision, always):
        item.learn(values, y, now, costs, clocks)
    live = always.threshold
    decision.change(Threshold("fixed", value=0.9))
    assert decision.threshold == 0.9
    decision.change(BUDGET)
    decision.change(Threshold("f1-window"))
    assert decision.threshold == live
    assert bits(decision) == bits(always)


def test_nothing_is_called_positive_without_a_model() -> None:
    scores = BinaryDecision(KINDS[0], Threshold()).without_model(np.zeros(3))
    assert scores.decisions.tolist() == [0, 0, 0]


def test_an_ordinal_learner_has_no_budget_account() -> None:
    config: dict[str, Any] = {"algorithm": "npsvor", "features": {"kind": "dense", "dim": 2}, "params": {"ranks": 3}}
    decision = decision_of(Config.of(config))
    assert isinstance(decision, OrdinalDecision)
    values = np.random.default_rng(0).normal(size=(20, 3))
    clocks = np.full(20, np.nan)
    ranks = [
        decision.preview(values),
        decision.serve(values, None, clocks),
        decision.learn(values, np.ones(20), np.ones(20, dtype=np.bool_), None, clocks),
    ]
    decision.note(ranks[0], clocks)
    decision.restart()
    assert len({tuple(rank.decisions.tolist()) for rank in ranks}) == 1
    assert decision.state() == {}
    with pytest.raises(ValueError, match="ordinal"):
        BinaryDecision(KINDS[0], Threshold()).note(ranks[0], clocks)
