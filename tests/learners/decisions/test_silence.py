"""Learners whose positive labels stop arriving while negatives go on: the share of alerts, and earlier states."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from learners import Learner, create, restore
from learners.numerics.arrays import Matrix, Vector

OBJECTIVES: list[dict[str, Any]] = [{"objective": "f1"}, {"objective": "recall", "target": 0.7}]


def stream(n: int, seed: int) -> tuple[Matrix, Vector]:
    """Return n events of 4 features, 5 % of them positive; the best order has an AUC of .95."""
    random = np.random.default_rng(seed)
    y = np.where(random.random(n) < 0.05, 1.0, -1.0)
    X = random.normal(size=(n, 4))
    X[:, :2] += 1.2 * (y > 0)[:, None]
    return X, y


def taught(algorithm: str, **threshold: Any) -> Learner:
    learner = create(algorithm, dim=4, threshold=threshold)
    learner.learn(*stream(20_000, 1))
    return learner


def learn_negatives(learner: Learner, n: int, seed: int) -> None:
    X, y = stream(n, seed)
    learner.learn(X[y < 0], y[y < 0])


def share_of_alerts(learner: Learner) -> float:
    X, _ = stream(5000, 2)
    return float(learner.scorer().score(learner.encode(X)).decisions.mean())


def of_an_earlier_release(learner: Learner) -> Learner:
    state = dict(learner.state())
    del state["threshold.silence"], state["threshold.labels"]
    return restore(learner.config.to_json(), state)


@pytest.mark.parametrize("objective", OBJECTIVES, ids=str)
@pytest.mark.parametrize("algorithm", ["cbr-diag", "fofo"])
def test_the_share_of_alerts_stays_within_a_factor_of_two(algorithm: str, objective: dict[str, Any]) -> None:
    learner = taught(algorithm, **objective)
    before = share_of_alerts(learner)
    for i, n in enumerate((1000, 4000, 5000, 10_000)):
        learn_negatives(learner, n, 3 + i)
        assert before / 2 < share_of_alerts(learner) < before * 2
    assert learner.view().figures.alarm_counts["positives"] == 1


def test_a_state_of_an_earlier_release_is_completed() -> None:
    learner = taught("cbr-diag", objective="f1")
    restored = of_an_earlier_release(learner)
    assert restored.threshold == learner.threshold
    for item in (learner, restored):
        item.learn(*stream(2000, 5))
    assert restored.threshold == learner.threshold


@pytest.mark.parametrize("objective", OBJECTIVES, ids=str)
@pytest.mark.parametrize("positives", [0, 1], ids=["no positive since", "one positive since"])
def test_a_learner_of_an_earlier_release_keeps_its_share_of_alerts(objective: dict[str, Any], positives: int) -> None:
    learner = of_an_earlier_release(taught("cbr-diag", **objective))
    before = share_of_alerts(learner)
    X, y = stream(1000, 6)
    learner.learn(X[y > 0][:positives], y[y > 0][:positives])
    for i, n in enumerate((1000, 4000, 5000, 10_000)):
        learn_negatives(learner, n, 3 + i)
        assert before / 2 < share_of_alerts(learner) < before * 2
