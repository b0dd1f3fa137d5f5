"""A column that never changes carries no information, so it moves no score of a ranker that compares classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from learners import algorithms, create
from learners.algorithms._class_moments import rounding
from tests.learners.streams import as_sparse, run, stream

RANKERS = ("adaoam", "cbr", "cbr-diag", "loam-ada", "loam-ilsc", "noam", "nsauc", "oam", "opauc")
KINDS = [
    pytest.param(algorithms()[name], convert, id=f"{name}-{convert.__name__}")
    for name in RANKERS
    for convert in [np.ascontiguousarray] * algorithms()[name].TRAITS.dense
    + [as_sparse] * algorithms()[name].TRAITS.sparse
]


@pytest.mark.parametrize("share", [0.02, 0.5])
@pytest.mark.parametrize("value", [1.0, -0.1, 0.1, 1e-9, 1e6 / 3])
@pytest.mark.parametrize(("algorithm", "convert"), KINDS)
def test_a_constant_column_changes_no_bit(algorithm: Any, convert: Any, value: float, share: float) -> None:
    X, y = stream(600, 9, seed=3, share=share)
    constant = np.hstack([X, np.full((len(X), 1), value)])
    _, expected = run(algorithm, algorithm.Params(), convert(X), y, dim=9)
    state, scores = run(algorithm, algorithm.Params(), convert(constant), y, dim=10)
    assert scores.tobytes() == expected.tobytes()
    assert algorithm.weights(algorithm.Params(), state).w[9] == 0.0


@pytest.mark.parametrize("value", [0.1, 1 / 3, 0.7, 1e300])
def test_the_bound_of_the_rounding_holds(value: float) -> None:
    total = 0.0
    for n in range(1, 60_000):
        total += value
        assert abs(value - (1.0 / n) * total) <= rounding(n) * value


@pytest.mark.parametrize("algorithm", ["loam-ada", "loam-ilsc"])
def test_a_column_that_changes_late_is_learnt(algorithm: str) -> None:
    module: Any = algorithms()[algorithm]
    X, y = stream(400, 3, seed=1)
    X[:, 2] = 1.0
    X[300:, 2] += 1e-6 * (y[300:] > 0)
    state, _ = run(module, module.Params(), X, y, cuts=[300])
    assert module.weights(module.Params(), state).w[2] > 0.0


@pytest.mark.parametrize("algorithm", ["loam-ada", "loam-ilsc"])
def test_a_country_that_never_changes_moves_no_score_of_a_learner(algorithm: str) -> None:
    X, y = stream(1_000, 3, seed=4, share=0.05)
    names = ("amount", "age", "hour")
    plain = [dict(zip(names, row, strict=True)) for row in X.tolist()]
    fields = [{"name": name, "kind": "numeric"} for name in names]
    country = {"name": "country", "kind": "categorical", "categories": 3}
    scores = []
    for events, declared in ((plain, fields), ([{**event, "country": "DE"} for event in plain], [*fields, country])):
        kinds: list[dict[str, Any]] = [{"kind": "table", "fields": declared}]
        kinds += [{"kind": "named", "bits": 12}] if algorithm == "loam-ada" else []
        for features in kinds:
            learner = create(algorithm, features=features, scaling={"kind": "maxabs" if len(features) == 2 else "none"})
            scores.append(learner.learn(events, (y > 0).astype(int).tolist()))
    half = len(scores) // 2
    for without, constant in zip(scores[:half], scores[half:], strict=True):
        np.testing.assert_allclose(constant, without, rtol=1e-9, atol=1e-12)
