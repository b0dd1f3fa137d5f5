"""Forests against the library that fits them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesClassifier

from learners.algorithms._trees import tree_problems, tree_scores
from learners.algorithms.trees import forest
from tests.learners.streams import as_sparse, stream


def of_the_library(params: forest.Params, X: Any, y: Any, weight: Any) -> ExtraTreesClassifier:
    machine = ExtraTreesClassifier(
        params.trees,
        max_leaf_nodes=params.leaves,
        max_depth=64,
        min_samples_leaf=params.leaf_events,
        random_state=0,
    )
    return machine.fit(X, y > 0, sample_weight=weight)


@pytest.mark.parametrize("convert", [np.ascontiguousarray, as_sparse])
@pytest.mark.parametrize("params", [forest.Params(trees=30), forest.Params(trees=7, leaves=4, leaf_events=1)], ids=str)
def test_scores_equal_those_of_the_library(convert: Any, params: forest.Params) -> None:
    X, y = stream(1500, 8, seed=3, share=0.2, density=0.6)
    X[:, 2] = np.round(X[:, 2])
    weight = np.random.default_rng(0).choice([0.5, 1.0, 4.0], 1000)
    state = forest.fit(params, convert(X[:1000]), 8, y[:1000], weight, 0)
    machine = of_the_library(params, X[:1000], y[:1000], weight / weight.max())
    np.testing.assert_allclose(tree_scores(state, convert(X)), machine.predict_proba(X)[:, 1], atol=1e-6)
    assert not list(tree_problems(state))


def test_missing_numbers_go_where_the_library_sends_them() -> None:
    X, y = stream(800, 5, seed=4)
    X[np.random.default_rng(1).random(X.shape) < np.where(y > 0, 0.6, 0.1)[:, None]] = np.nan
    params = forest.Params(trees=10)
    state = forest.fit(params, X, 5, y, np.ones(800), 0)
    assert state.missing.any()
    machine = of_the_library(params, X, y, np.ones(800))
    np.testing.assert_allclose(tree_scores(state, X), machine.predict_proba(X)[:, 1], atol=1e-6)


def test_thresholds_on_float32_are_exact_for_float64() -> None:
    """The library rounds numbers to float32, and compares these with a threshold in float64."""
    random = np.random.default_rng(0)
    thresholds = np.concatenate([random.normal(size=200), random.normal(size=200).astype(np.float32), [0.0, 1.0, -1.0]])
    converted = forest._of_double(thresholds)
    for numbers in (
        converted,
        np.nextafter(converted, np.inf),
        np.nextafter(converted, -np.inf),
        thresholds,
        thresholds + random.normal(size=len(thresholds)) * 1e-8,
    ):
        assert ((numbers <= converted) == (numbers.astype(np.float32).astype(np.float64) <= thresholds)).all()
    assert (np.nextafter(converted, np.inf).astype(np.float32) > thresholds).all()  # so it is the largest
