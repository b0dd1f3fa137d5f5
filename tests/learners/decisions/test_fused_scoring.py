"""Dense events scored in one compiled call: to the bit what the stages say one after the other, alone or in a batch."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from learners.config import Config
from learners.learner import Learner

TABLE = {"kind": "table", "fields": [{"name": "a", "kind": "numeric"}, {"name": "b", "kind": "categorical"}]}
SCALINGS = [
    {"kind": kind, "clip": clip} for kind, clip in product(("none", "unit", "standard", "maxabs"), (None, 0.75))
]
CALIBRATIONS = ("platt", "none", "histogram", "isotonic")
THRESHOLDS: list[dict[str, Any]] = [
    {"objective": "f1"},
    {"objective": "fixed", "value": 0.4},
    {"objective": "cost", "field": "1"},
    {"objective": "budget", "alerts": 2},
]


def agree(learner: Learner, events: Any) -> None:
    scorer = learner.scorer()
    rows = learner.encode(events)
    costs = learner.config.costs(events)
    staged = scorer.decide(scorer.values(rows), costs)
    assert scorer._dense_inputs is not None
    for fused, other in zip(scorer.score(rows, costs), staged, strict=True):
        assert fused is not None
        assert other is not None
        assert (fused.dtype, fused.tobytes()) == (other.dtype, other.tobytes())
    for i in range(len(rows)):
        single = scorer.score(rows[i : i + 1], None if costs is None else costs[i : i + 1])
        for alone, other in zip(single, staged, strict=True):
            assert alone is not None
            assert other is not None
            assert alone.tobytes() == other[i : i + 1].tobytes()


@pytest.mark.parametrize("scaling", SCALINGS, ids=str)
def test_the_fused_call_equals_the_separate_stages(scaling):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(60, 11)).round(3) * [1, 1e-9, 1e9, 0, 1, 1, 1, 1, 1, 1, -3]
    X[:, 1] = np.abs(X[:, 1])
    y = (rng.random(60) < 0.3).astype(int)
    for calibration, threshold in product(CALIBRATIONS, THRESHOLDS):
        config = {
            "algorithm": "loam-ada",
            "features": {"kind": "dense", "dim": 11},
            "scaling": scaling,
            "calibration": {"kind": calibration},
            "threshold": threshold,
        }
        learner = Learner(Config.of(config))
        agree(learner, X[:5])  # before anything was learnt
        learner.learn(X[:50], y[:50])
        agree(learner, X[45:])


def test_log_odds_and_tables_agree():
    events = [{"a": i % 7 - 3.0, "b": "xyz"[i % 3]} for i in range(40)] + [{"a": None, "b": "new"}]
    for calibration in ("posterior", "logistic"):
        learner = Learner(Config.of({"algorithm": "fofo", "features": TABLE, "calibration": {"kind": calibration}}))
        learner.learn(events[:40], [int(i % 3 == 0) for i in range(40)])
        agree(learner, events[30:])


@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("members", [None, ["fofo", "pairs"], ["gbdt"]], ids=str)
def test_the_models_of_an_ensemble_agree(precision, members):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(400, 7))
    X[::3, 2] = 0.0
    y = (X[:, 0] * X[:, 1] > 0.3).astype(int)
    params = {} if members is None else {"members": members}
    config = {"algorithm": "auto", "features": {"kind": "dense", "dim": 7}, "precision": precision, "params": params}
    learner = Learner(Config.of(config))
    agree(learner, X[:5])  # before anything was learnt
    learner.learn(X[:320], y[:320])
    assert bool(learner.scorer().weights.scoring[-1]) is (members != ["fofo", "pairs"])  # trees are fitted
    agree(learner, X[290:])


def test_embeddings_and_sparse_rows_use_the_separate_stages():
    X, y = np.random.default_rng(3).normal(size=(40, 3)), np.arange(40) % 2
    embedded = {"kind": "fourier", "components": 4, "warmup": 8}
    learner = Learner(Config.of({"algorithm": "fofo", "features": {"kind": "dense", "dim": 3}, "embedding": embedded}))
    learner.learn(X, y)
    scorer = learner.scorer()
    assert scorer._dense_inputs is None
    np.testing.assert_array_equal(scorer.score(X[:4]).scores, scorer.values(X[:4]))
    custom = {"members": ["fofo", {"algorithm": "cbr"}]}
    mixed = Learner(Config.of({"algorithm": "auto", "features": {"kind": "dense", "dim": 3}, "params": custom}))
    mixed.learn(X, y)
    scorer = mixed.scorer()
    assert scorer._dense_inputs is None
    np.testing.assert_array_equal(scorer.score(X[:4]).scores, scorer.values(X[:4]))
    fitted = Learner(Config.of({"algorithm": "ranksvm", "features": {"kind": "dense", "dim": 3}}))
    assert fitted.scorer()._dense_inputs is None  # no model yet
    assert fitted.scorer().score(X[:2]).decisions.tolist() == [0, 0]
