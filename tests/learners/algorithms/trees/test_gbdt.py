"""Boosted trees against the library that fits them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from threadpoolctl import threadpool_limits

from learners import create
from learners.algorithms._trees import chosen_columns, columns_of_rows, tree_problems, tree_scores
from learners.algorithms.trees import gbdt
from tests.learners.streams import as_sparse, same_bits, stream

pytestmark = pytest.mark.integration


def of_the_library(params: gbdt.Params, X: Any, y: Any, weight: Any) -> HistGradientBoostingClassifier:
    machine = HistGradientBoostingClassifier(
        max_iter=params.trees,
        learning_rate=params.learning_rate,
        max_leaf_nodes=params.leaves,
        max_depth=64,
        min_samples_leaf=params.leaf_events,
        l2_regularization=params.l2,
        early_stopping=False,
    )
    with threadpool_limits(1):
        return machine.fit(X, y > 0, sample_weight=weight)


@pytest.mark.parametrize("convert", [np.ascontiguousarray, as_sparse])
@pytest.mark.parametrize("params", [gbdt.Params(), gbdt.Params(trees=7, leaves=255, leaf_events=1, l2=0.0)], ids=str)
def test_scores_equal_those_of_the_library(convert: Any, params: gbdt.Params) -> None:
    X, y = stream(1500, 8, seed=3, share=0.2, density=0.6)
    X[:, 2] = np.round(X[:, 2])
    weight = np.random.default_rng(0).choice([0.5, 1.0, 4.0], 1000)
    state = gbdt.fit(params, convert(X[:1000]), 8, y[:1000], weight, 0)
    machine = of_the_library(params, X[:1000], y[:1000], weight / weight.max())
    np.testing.assert_allclose(tree_scores(state, convert(X)), machine.decision_function(X), atol=1e-6)
    assert len(state.starts) == params.trees
    assert not list(tree_problems(state))


def test_missing_numbers_go_where_the_library_sends_them() -> None:
    X, y = stream(1500, 5, seed=4)
    random = np.random.default_rng(1)
    X[random.random(X.shape) < np.where(y > 0, 0.6, 0.1)[:, None]] = np.nan
    state = gbdt.fit(gbdt.Params(), X, 5, y, np.ones(1500), 0)
    assert state.missing.any()
    machine = of_the_library(gbdt.Params(), X, y, None)
    X = np.vstack([X, np.full((1, 5), np.nan)])
    np.testing.assert_allclose(tree_scores(state, X), machine.decision_function(X), atol=1e-6)


def test_covers_are_the_weights_of_the_fitted_events() -> None:
    X, y = stream(500, 4, seed=5)
    weight = np.random.default_rng(0).choice([0.0, 1.0, 2.0], 500)
    state = gbdt.fit(gbdt.Params(trees=5), X, 4, y, weight, 0)
    np.testing.assert_allclose(state.cover[state.starts], weight.sum() / 2.0)
    inner = np.flatnonzero(state.right)
    np.testing.assert_allclose(state.cover[inner], state.cover[inner + 1] + state.cover[state.right[inner]])
    same = gbdt.fit(gbdt.Params(trees=5), X[weight > 0], 4, y[weight > 0], weight[weight > 0], 0)
    assert same_bits(state, same)


def test_of_sparse_events_the_most_frequent_columns_are_read() -> None:
    X, y = stream(800, 30, seed=6, density=0.3)
    X[:, 20:] *= np.random.default_rng(0).random((800, 10)) < 0.05
    rows = as_sparse(X)
    state = gbdt.fit(gbdt.Params(columns=12, leaf_events=5), rows, 30, y, np.ones(800), 0)
    assert state.columns.tolist() == chosen_columns(rows, 30, 12).tolist()
    assert (state.columns < 20).all()
    assert not state.gain[np.setdiff1d(np.arange(30), state.columns)].any()
    dense = gbdt.fit(gbdt.Params(leaf_events=5), columns_of_rows(rows, state.columns), 12, y, np.ones(800), 0)
    assert tree_scores(dense, X[:, state.columns]).tobytes() == tree_scores(state, rows).tobytes()


def test_fits_come_each_time_a_quarter_more_labels_are_known_and_at_least_every_so_many() -> None:
    X, y = stream(3000, 3, seed=7)
    learner = create("gbdt", dim=3, trees=2, refit_every=450)
    seen = [0]
    for i in range(0, 3000, 50):
        learner.learn(X[i : i + 50], y[i : i + 50])
        fitted = learner.view().fitted_events
        assert fitted is not None
        if fitted != seen[-1]:
            seen.append(fitted)
    assert seen == [0, 200, 400, 600, 800, 1000, 1250, 1562, 1952, 2402, 2852]
    pending = create("gbdt", dim=3, refit_every=60).view().pending_fit
    assert pending is not None
    assert "60" in pending


def test_the_decision_learns_from_no_event_that_the_trees_were_fitted_to() -> None:
    X, y = stream(500, 3, seed=8)
    learner = create("gbdt", dim=3)
    learner.learn(X[:200], y[:200])
    untouched = create("gbdt", dim=3)
    for name, array in learner.state().items():
        if name.startswith(("calibration.", "threshold.")):
            assert array.tobytes() == untouched.state()[name].tobytes()
    learner.learn(X[200:300], y[200:300])
    assert learner.state()["calibration.coefficients"].tobytes() != (
        untouched.state()["calibration.coefficients"].tobytes()
    )
