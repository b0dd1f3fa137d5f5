"""Explanations of scores: against the definitions, against every pipeline's own score, and every refusal."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from learners import InvalidInput, Learner, Scorer, create, explain
from learners.algorithms.base import Linear
from learners.explain import MAX_FEATURES, MAX_REPORTED, MAX_WORK, ScoreExplanation
from learners.numerics.arrays import Matrix, Vector
from learners.settings import Problem
from tests.learners import naive_pipeline as slow
from tests.learners.pipelines import FEATURES, PIPELINES, Pipeline, events, parametrize

pytestmark = pytest.mark.integration

EVERYTHING = MAX_FEATURES
SCALINGS = ("none", "unit", "standard", "maxabs")
EMBEDDINGS: list[dict[str, Any]] = [
    {"kind": kind, "components": 6, "warmup": 25, "width": 4.0} for kind in ("nystroem", "fourier")
]


def taught(learner: Learner, kind: str, n: int = 60) -> Learner:
    """Return the learner after n events."""
    learner.learn(*events(Pipeline(learner.config.algorithm, kind), n))
    return learner


def total(explanation: ScoreExplanation) -> float:
    return math.fsum([explanation.intercept, *(part for _, part in explanation.features), explanation.rest])


def adds_up(scorer: Scorer, values: Sequence[Any], k: int) -> bool:
    """Whether each event's parts add up to the score that the scorer gives it."""
    scores = scorer.score(scorer.config.encode(values)).scores
    explanation = explain.explain_scores(scorer, values, k)
    full = explain.explain_scores(scorer, values, EVERYTHING)
    sizes = [math.fsum([abs(item.intercept), *(abs(part) for _, part in item.features)]) for item in full]
    close = [
        abs(total(item) - score) <= 1e-9 * size
        for item, score, size in zip(explanation, scores.tolist(), sizes, strict=True)
    ]
    return len(explanation) == len(values) and all(close)


# Every pipeline


@parametrize([pipeline for pipeline in PIPELINES if not pipeline.traits.ordinal])
def test_contributions_add_up_to_the_score_for_every_pipeline(pipeline: Pipeline) -> None:
    learner = taught(pipeline.learner(), pipeline.kind)
    new, _ = events(pipeline, 20, seed=1)
    scorer = learner.scorer()
    assert np.ptp(learner.score(new)) > 0.0
    before = learner.digest()
    assert adds_up(scorer, new, 2)
    assert adds_up(scorer.frozen(), new, EVERYTHING)
    assert learner.digest() == before


@pytest.mark.parametrize("kind", FEATURES)
@pytest.mark.parametrize("scaling", [{"kind": kind, "clip": clip} for kind in SCALINGS for clip in (None, 0.5)])
def test_contributions_add_up_for_any_scaling(kind: str, scaling: dict[str, Any]) -> None:
    pipeline = Pipeline("stamp", kind)
    learner = taught(pipeline.learner(scaling=scaling), kind)
    assert learner.scorer().weights.bias[0] != 0.0
    assert adds_up(learner.scorer(), events(pipeline, 20, seed=1)[0], 3)


@pytest.mark.parametrize("space", EMBEDDINGS, ids=lambda space: space["kind"])
@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("kind", ["dense", "table"])
def test_contributions_add_up_behind_an_embedding(kind: str, scaling: str, space: dict[str, Any]) -> None:
    pipeline = Pipeline("stamp", kind)
    learner = taught(pipeline.learner(scaling={"kind": scaling}, embedding=space), kind)
    assert learner.scorer().embedding is not None
    assert adds_up(learner.scorer(), events(pipeline, 20, seed=1)[0], 2)


# Linear scores, by definition


def weighed(learner: Learner, weights: Callable[[int], Vector], bias: float) -> Scorer:
    """Return the scorer of the learner with the given weights."""
    scorer = learner.scorer()
    linear = Linear(weights(len(scorer.weights.w)), np.array([bias]))
    return dataclasses.replace(scorer, published=lambda: linear)


def test_dense_numbers_contribute_by_their_distance_from_the_mean() -> None:
    X, y = np.random.default_rng(0).normal(3.0, 2.0, (30, 4)), np.tile([0, 1], 15)
    learner = create("oam", dim=4, scaling="standard")
    learner.learn(X[:-1], y[:-1])
    w = np.array([2.0, -0.5, 0.0, 1.0])
    (explanation,) = explain.explain_scores(weighed(learner, lambda _: w, 0.25), [X[-1].tolist()], 4)
    parts = w * slow.standardised(X, centre=True)[-1]
    assert explanation.intercept == 0.25
    assert explanation.rest == 0.0
    order = sorted(range(4), key=lambda j: -abs(parts[j]))
    assert [name for name, _ in explanation.features] == [f"x[{j}]" for j in order]
    np.testing.assert_allclose([part for _, part in explanation.features], parts[order], rtol=1e-10)


def test_sparse_numbers_contribute_by_their_distance_from_zero() -> None:
    X = np.array([[1.0, 0.0, -3.0], [0.0, 0.0, 2.0], [2.0, 0.0, 0.0], [4.0, 7.0, 1.0]])
    carried = [(np.flatnonzero(row).tolist(), row[row != 0.0].tolist()) for row in X]
    learner = create("oam", features={"kind": "sparse", "dim": 300}, scaling="standard")
    learner.learn(carried[:-1], [0, 1, 0])
    w = [0.5, 0.25]  # of columns 0 and 2; 1 never occurred
    scorer = weighed(learner, lambda dim: np.resize([*w, *[9.0] * dim], dim), -1.0)
    (explanation,) = explain.explain_scores(scorer, carried[-1:], 9)
    scaled = slow.standardised(X, centre=False)[-1]
    assert [name for name, _ in explanation.features] == ["[0]", "[2]", "[1]"]
    parts = [w[0] * scaled[0], w[1] * scaled[2], 0.0]
    np.testing.assert_allclose([part for _, part in explanation.features], parts, rtol=1e-12)
    assert (explanation.intercept, explanation.rest) == (-1.0, 0.0)


def test_sparse_columns_in_any_order_keep_their_names() -> None:
    learner = create("oam", features={"kind": "sparse", "dim": 300})
    for column in (7, 200, 3):
        learner.learn([([column], [1.0])], [1])
    scorer = weighed(learner, lambda dim: np.arange(1.0, dim + 1.0), 0.0)  # 7: 1, 200: 2, 3: 3
    (explanation,) = explain.explain_scores(scorer, [([3, 5, 7, 200], [1.0, 1.0, 100.0, 10.0])], 9)
    assert explanation.features == [("[7]", 100.0), ("[200]", 20.0), ("[3]", 3.0), ("[5]", 0.0)]


TABLE = {
    "kind": "table",
    "fields": [
        {"name": "amount", "kind": "numeric"},
        {"name": "country", "kind": "categorical", "categories": 2},
        {"name": "age", "kind": "numeric"},
    ],
}


@pytest.mark.parametrize(
    ("event", "features"),
    [
        # columns: amount, its missing bit, the first country, the second, others, age, its missing bit
        ({"amount": 3.0, "country": "DE", "age": 1.0}, {"amount": 3.0, "country=DE": 100.0, "age": 1e5}),
        ({"amount": -3.0, "country": "FR", "age": 0.0}, {"amount": -3.0, "country=FR": 1000.0, "age": 0.0}),
        ({"amount": 1.0, "country": "US"}, {"amount": 1.0, "country=US": 10_000.0, "age (missing)": 1e6}),
        ({"country": None}, {"amount (missing)": 10.0, "country (missing)": 0.0, "age (missing)": 1e6}),
    ],
)
def test_the_columns_of_a_field_are_one_feature(event: dict[str, Any], features: dict[str, float]) -> None:
    learner = create("oam", features=TABLE, scaling="none")
    learner.learn([{"country": "DE"}, {"country": "FR"}], [0, 1])
    (explanation,) = explain.explain_scores(weighed(learner, lambda dim: 10.0 ** np.arange(dim), 0.0), [event], 3)
    assert dict(explanation.features) == features
    assert explanation.rest == explanation.intercept == 0.0


def test_hashed_features_contribute_by_name() -> None:
    learner = create(
        "oam", features={"kind": "named", "bits": 20, "text": ["body"], "categorical": ["customer"]}, scaling="none"
    )
    event = {
        "amount": 2.5, "country": "DE", "customer": 7, "items": ["gift card", "pen", "pen"], "new": True,
        "body": "Free money", "fee": 0, "none": None,
    }  # fmt: skip
    learner.learn([event], [1])
    (explanation,) = explain.explain_scores(weighed(learner, lambda dim: np.ones(dim), 0.0), [event], EVERYTHING)
    tokens = slow.named_tokens(event, text=["body"], categorical=["customer"])
    row = slow.named_row(tokens, 20)
    expected = {token: row[slow.hash_text(token) % 2**20] for token, _ in tokens}
    assert dict(explanation.features) == expected
    assert {"amount", "country=DE", "customer=7", "items=gift card", "items=pen", "body~free money"} < set(expected)
    assert abs(expected["items=pen"]) == 2.0


def test_hashed_features_sharing_a_column_are_merged_under_both_names() -> None:
    learner = create("oam", features={"kind": "named", "bits": 4}, scaling="none")
    event = {f"n{i}": 1.0 + i for i in range(40)}
    learner.learn([event], [1])
    (explanation,) = explain.explain_scores(weighed(learner, lambda dim: np.ones(dim), 0.0), [event], EVERYTHING)
    row = slow.named_row(event.items(), 4)
    names = {column: " + ".join(n for n in event if slow.hash_text(n) % 16 == column) for column in row}
    assert dict(explanation.features) == {names[column]: pytest.approx(part) for column, part in row.items()}
    assert any(" + " in name for name in names.values())


# The k largest


def test_the_largest_contributions_are_first_and_ties_in_column_order() -> None:
    learner = create("oam", dim=6, scaling="none")
    learner.learn(np.eye(6), [0, 1] * 3)
    scorer = weighed(learner, lambda dim: np.ones(dim), 0.5)
    x = [1.0, -4.0, 2.0, -2.0, 0.0, 2.0]
    ranked = [("x[1]", -4.0), ("x[2]", 2.0), ("x[3]", -2.0), ("x[5]", 2.0), ("x[0]", 1.0), ("x[4]", 0.0)]
    for k in range(1, 9):
        (explanation,) = explain.explain_scores(scorer, [x], k)
        assert explanation == ScoreExplanation(0.5, ranked[:k], sum(part for _, part in ranked[k:]))
    assert str(explain.explain_scores(scorer, [[-0.0] * 6], 1)[0].features[0][1]) == "0.0"


def test_many_ties_stay_in_column_order() -> None:
    learner = create("oam", dim=300, scaling="none")
    sizes = [1.0 + j * j % 7 % 3 for j in range(300)]
    (explanation,) = explain.explain_scores(weighed(learner, lambda dim: np.ones(dim), 0.0), [sizes], 290)
    assert [name for name, _ in explanation.features] == [
        f"x[{j}]" for j in sorted(range(300), key=lambda j: -sizes[j])
    ][:290]


def test_an_event_without_features_gets_the_intercept() -> None:
    for kind, empty in (("sparse", ([], [])), ("named", {})):
        learner = taught(Pipeline("stamp", kind).learner(), kind)
        (explanation,) = explain.explain_scores(learner.scorer(), [empty], 5)
        assert explanation == ScoreExplanation(learner.score([empty])[0], [], 0.0)
        assert explain.explain_scores(learner.scorer(), [], 5) == []


# Independence


@pytest.mark.parametrize("kind", FEATURES)
def test_an_explanation_does_not_depend_on_other_events(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    learners = [taught(Pipeline("stamp", kind).learner(), kind)]
    if kind in ("dense", "table"):
        learners += [taught(Pipeline("stamp", kind).learner(embedding=space), kind) for space in EMBEDDINGS]
    new, _ = events(Pipeline("stamp", kind), 40, seed=1)
    for learner in learners:
        scorer = learner.scorer()
        together = explain.explain_scores(scorer, new, 3)
        assert together == [explain.explain_scores(scorer, [event], 3)[0] for event in new]
        with monkeypatch.context() as patch:
            patch.setattr(explain, "CHUNK_NUMBERS", 20)
            assert explain.explain_scores(scorer, new, 3) == together


def test_a_frozen_scorer_explains_its_own_scores_during_learning() -> None:
    for kind in FEATURES:
        learner = taught(Pipeline("cbr-diag", kind).learner(), kind)
        new, y = events(Pipeline("cbr-diag", kind), 40, seed=1)
        frozen = learner.scorer().frozen()
        before = explain.explain_scores(frozen, new, 3)
        learner.learn(new, y)
        assert explain.explain_scores(frozen, new, 3) == before
        assert explain.explain_scores(learner.scorer(), new, 3) != before


# Behind an embedding, by definition


def value_of(scorer: Scorer) -> Callable[[Matrix], float]:
    """Score a scaled row slowly."""
    space, kind = scorer.embedding, scorer.config.embedding.kind
    assert space is not None
    w, bias = scorer.weights.w, float(scorer.weights.bias[0])

    def score(row: Matrix) -> float:
        if kind == "fourier":
            features = np.sqrt(2.0 / len(space.phases)) * np.cos(row @ space.frequencies + space.phases)
        else:
            gaps = np.square(space.landmarks - row[:, None]).sum(axis=0)
            features = np.exp(-gaps / space.width[0]) @ space.projection
        return float(features @ w) + bias

    return score


def gains(score: Callable[[Matrix], float], row: Matrix, owner: list[int], orders: Any) -> Vector:
    """Return the mean change of the score when a feature is switched on, over all orders. `owner` of each column."""
    out: list[list[float]] = []
    for order in orders:
        now, gain = np.zeros_like(row), [0.0] * len(order)
        for feature in order:
            then = np.where(np.array(owner) == feature, row, now)
            gain[feature] = score(then) - score(now)
            now = then
        out.append(gain)
    return np.mean(out, axis=0)


@pytest.mark.parametrize("space", EMBEDDINGS, ids=lambda space: space["kind"])
def test_dense_features_are_switched_on_in_both_orders(space: dict[str, Any]) -> None:
    X = np.random.default_rng(0).normal(1.0, 2.0, (61, 5))
    learner = create("stamp", dim=5, scaling="standard", embedding=space)
    learner.learn(X[:-1], np.arange(60) % 2)
    scorer = learner.scorer()
    row = slow.standardised(X, centre=True)[-1]
    score = value_of(scorer)
    (explanation,) = explain.explain_scores(scorer, [X[-1].tolist()], 5)
    expected = gains(score, row, [0, 1, 2, 3, 4], [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0]])
    assert explanation.intercept == pytest.approx(score(np.zeros(5)), rel=1e-9)
    assert dict(explanation.features) == {f"x[{j}]": pytest.approx(part, abs=1e-9) for j, part in enumerate(expected)}
    assert np.ptp(expected) > 1e-3


@pytest.mark.parametrize("space", EMBEDDINGS, ids=lambda space: space["kind"])
def test_the_columns_of_a_field_are_switched_on_together(space: dict[str, Any]) -> None:
    learner = create("stamp", features=TABLE, scaling="none", embedding=space)
    random = np.random.default_rng(0)
    countries = ["DE", "FR", "US", None]
    carried = [{"amount": random.normal(), "country": countries[i % 4], "age": random.normal()} for i in range(60)]
    learner.learn(carried, np.arange(60) % 2)
    scorer = learner.scorer()
    (explanation,) = explain.explain_scores(scorer, [{"amount": 2.0, "country": "FR"}], 3)
    row = np.array([2.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0])
    expected = gains(value_of(scorer), row, [0, 0, 1, 1, 1, 2, 2], [[0, 1, 2], [2, 1, 0]])
    names = ["amount", "country=FR", "age (missing)"]
    assert dict(explanation.features) == {
        name: pytest.approx(part, abs=1e-9) for name, part in zip(names, expected, strict=True)
    }


@pytest.mark.parametrize("space", EMBEDDINGS, ids=lambda space: space["kind"])
@pytest.mark.parametrize("dim", [1, 2])
def test_contributions_of_two_features_are_the_shapley_values(dim: int, space: dict[str, Any]) -> None:
    X = np.random.default_rng(0).normal(0.0, 2.0, (60, dim))
    learner = create("stamp", dim=dim, scaling="none", embedding=space)
    learner.learn(X, np.arange(60) % 2)
    scorer = learner.scorer()
    for x, explanation in zip(X, explain.explain_scores(scorer, X.tolist(), dim), strict=True):
        expected = gains(value_of(scorer), x, list(range(dim)), itertools.permutations(range(dim)))
        assert dict(explanation.features) == {
            f"x[{j}]": pytest.approx(part, abs=1e-9) for j, part in enumerate(expected)
        }


# Before there is anything to explain


@pytest.mark.parametrize("kind", FEATURES)
def test_before_its_first_fit_a_batch_algorithm_contributes_zeros(kind: str) -> None:
    pipeline = Pipeline("ranksvm", kind)
    carried, y = events(pipeline, 12)
    learner = pipeline.learner()
    for events_before in (0, 12):
        learner.learn(carried[:events_before], y[:events_before])
        for score in explain.explain_scores(learner.scorer(), carried, EVERYTHING):
            assert (score.intercept, score.rest) == (0.0, 0.0)
            assert all(part == 0.0 for _, part in score.features)


def test_before_its_embedding_is_fitted_a_learner_is_explained_as_linear() -> None:
    space = {"kind": "nystroem", "components": 6, "warmup": 25}
    learner = create("stamp", dim=2, scaling="none", embedding=space)
    learner.learn([[1.0, 2.0], [3.0, 1.0]], [0, 1])
    w, bias = learner.scorer().weights
    (explanation,) = explain.explain_scores(learner.scorer(), [[5.0, 7.0]], 2)
    assert dict(explanation.features) == {"x[0]": 5.0 * w[0], "x[1]": 7.0 * w[1]}
    assert explanation.intercept == bias[0]


# Refusals


def refused(scorer: Scorer, values: Sequence[Any], k: Any) -> list[Problem]:
    with pytest.raises(InvalidInput) as caught:
        explain.explain_scores(scorer, values, k)
    return caught.value.problems


def test_ordinal_learners_are_refused() -> None:
    learner = create("redsvm", dim=2, ranks=3)
    assert [problem.pointer for problem in refused(learner.scorer(), [[1.0, 2.0]], 1)] == [""]


@pytest.mark.parametrize("k", [0, -1, MAX_FEATURES + 1, 10**400, True, 2.0, "3", None])
def test_an_out_of_range_k_is_refused(k: Any) -> None:
    (problem,) = refused(create("oam", dim=2).scorer(), [[1.0, 2.0]], k)
    assert problem.pointer == "/explain"


def test_too_many_contributions_in_total_are_refused() -> None:
    scorer = create("oam", dim=1).scorer()
    most = MAX_REPORTED // 1000
    assert len(explain.explain_scores(scorer, [[1.0]] * most, 1000)) == most
    assert [problem.pointer for problem in refused(scorer, [[1.0]] * (most + 1), 1000)] == ["/explain"]


def test_invalid_events_are_refused_with_their_pointers() -> None:
    scorer = create("oam", dim=2).scorer()
    assert [item.pointer for item in refused(scorer, [[1.0, 2.0], [1.0], [1.0, "x"]], 1)] == ["/1", "/2/1"]


def test_excessive_work_is_refused_with_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = taught(Pipeline("stamp", "dense").learner(embedding=EMBEDDINGS[0]), "dense")
    scorer = learner.scorer()
    new, _ = events(Pipeline("stamp", "dense"), 7)
    single = explain.work(scorer, scorer.config.encode(new[:1]))
    assert explain.work(scorer, scorer.config.encode(new)) == 7 * single < MAX_WORK
    monkeypatch.setattr(explain, "MAX_WORK", 5 * single)
    (problem,) = refused(scorer, new, 1)
    assert problem.pointer == "/explain"
    assert re.search(r"\b7\b.*\b5\b", problem.detail)
    assert len(explain.explain_scores(scorer, new[:5], 1)) == 5
    monkeypatch.setattr(explain, "MAX_WORK", single - 1)
    assert [problem.pointer for problem in refused(scorer, new[:1], 1)] == ["/explain"]


def test_the_work_estimate_grows_with_the_work() -> None:
    def work(values: list[Any], **settings: Any) -> int:
        scorer = create("oam", **settings).scorer()
        return explain.work(scorer, scorer.config.encode(values))

    assert work([[0.0]] * 4, dim=1) == 4 * work([[0.0]], dim=1)
    assert work([[0.0] * 8], dim=8) > work([[0.0]], dim=1)
    single, many = (
        {"kind": "table", "fields": [{"name": "a", "kind": "categorical", "categories": n}]} for n in (1, 4000)
    )
    assert work([{}], features=many) - work([{}], features=single) == 3999  # multiplications are all that is added
    sparse = {"kind": "sparse", "dim": 99}
    assert work([([1, 2], [1.0, 1.0])], features=sparse) > work([([], [])], features=sparse) > 0


def test_weights_near_overflow_raise_no_warning() -> None:
    learner = create("oam", dim=3, scaling="none")
    scorer = weighed(learner, lambda _: np.array([1e300, -1e300, 1.0]), 0.0)
    (explanation,) = explain.explain_scores(scorer, [[1e30, 1e30, 2.0]], 2)
    assert explanation.features == [("x[0]", math.inf), ("x[1]", -math.inf)]
    assert explanation.rest == 2.0
    (explanation,) = explain.explain_scores(scorer, [[1e30, 1e30, 2.0]], 1)
    assert explanation.rest == -math.inf
    scorer = weighed(learner, lambda _: np.array([1.0, math.inf, 5.0]), 0.0)
    (explanation,) = explain.explain_scores(scorer, [[1.0, 0.0, 1.0]], 1)  # what cannot be compared comes first
    assert str(explanation.features) == "[('x[1]', nan)]"
    assert explanation.rest == 6.0
