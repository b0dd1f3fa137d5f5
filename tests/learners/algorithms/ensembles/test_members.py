"""The figures of each member of auto: what they count, and that they equal those of the exact definitions."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from learners import Config, Learner
from learners.algorithms import _members
from learners.metrics import ranking
from learners.numerics.arrays import Matrix, Vector

SCORING = np.ones(2, dtype=np.bool_)  # models score


def stream(n: int) -> tuple[Matrix, Vector, Vector]:
    """Return the scores of two models and their combination, and labels, a tenth of them positive."""
    random = np.random.default_rng(0)
    y = np.where(random.random(n) < 0.1, 1.0, -1.0)
    scores = np.stack([y + random.normal(size=n), 40.0 * random.normal(size=n)], axis=1)
    return scores, scores[:, 0] - 3.0, y


def test_figures_are_those_of_the_scores() -> None:
    scores, combined, y = stream(3000)
    state = _members.init(2)
    _members.learn(state, 0, scores, combined, y, np.ones(3000), SCORING)
    for k, column in enumerate((*scores.T, combined)):
        auc, average_precision = ranking(state.bins.sum(axis=0, dtype=np.int64)[k])
        assert auc == pytest.approx(roc_auc_score(y, column), abs=0.002)
        assert average_precision == pytest.approx(average_precision_score(y, column), abs=0.01)


def test_a_block_replaces_the_one_before_however_the_stream_is_cut() -> None:
    n, block = 45_000, _members.BLOCK
    scores, combined, y = stream(n)
    weight = np.where(np.arange(n) % 9 == 0, 0.0, 2.0)  # 40,000 count
    whole, cut = _members.init(2), _members.init(2)
    _members.learn(whole, 0, scores, combined, y, weight, SCORING)
    for start in range(0, n, 7001):
        part = slice(start, start + 7001)
        before = int(np.count_nonzero(weight[:start]))
        _members.learn(cut, before, scores[part], combined[part], y[part], weight[part], SCORING)
    assert cut.bins.tobytes() == whole.bins.tobytes()
    assert whole.bins.sum(axis=(2, 3)).tolist() == [[block] * 3] * 2
    _members.learn(whole, 2 * block, scores[:9], combined[:9], y[:9], np.ones(9), np.array([True, False]))
    assert whole.bins.sum(axis=(2, 3)).tolist() == [[9, 0, 9], [block] * 3]  # the second model does not score


def test_too_many_events_in_a_block_are_a_problem() -> None:
    state = _members.init(2)
    assert not list(_members.problems(state))
    state.bins[1, 0, 1, 5] = _members.BLOCK + 1
    assert [name for name, _ in _members.problems(state)] == ["bins"]


def learner(**settings: object) -> Learner:
    return Learner(Config.of({"refit_every": 300, "refit_window": 600, **settings}))


def test_the_last_member_is_the_combination_with_the_metrics_of_the_learner() -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(900, 3))
    y = (X[:, 0] * X[:, 1] + 0.3 * random.normal(size=900) > 1).astype(int)
    auto = learner(features={"kind": "dense", "dim": 3})
    assert auto.view().members is not None
    auto.learn(X, y)
    members = auto.view().members
    assert members is not None
    assert [member["name"] for member in members] == ["cbr-diag", "loam-ada", "fofo", "bins", "pairs", "gbdt", "auto"]
    since_start = auto.figures()["since_start"]
    assert members[-1] == {
        "name": "auto",
        "kind": "combination",
        "weight": None,
        "auc": since_start["auc"],
        "average_precision": since_start["average_precision"],
        "events": 900,
    }
    assert members[5]["events"] < 900  # since its first fit
    best = max(members[:-1], key=lambda member: member["auc"])
    assert best["weight"] == max(member["weight"] for member in members[:-1])
    assert auto.view().frozen().members == members


def test_only_models_that_score_are_members() -> None:
    words = learner(features={"kind": "named"}, params={"budget": "fast"})
    words.learn([{"text": "a b"}, {"text": "c"}], [1, 0])
    names = [member["name"] for member in words.view().members or []]
    assert names == ["cbr-diag", "fofo", "bins", "pairs", "auto"]  # loam-ada takes dense rows
    assert Learner(Config.of({"algorithm": "fofo", "features": {"kind": "named"}})).view().members is None
