"""The members of auto that are chosen: what the others cost, and that a state is only for its members."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from learners import Config, InvalidInput, Learner, restore
from learners.algorithms import registry
from learners.algorithms.base import Size
from learners.algorithms.ensembles import auto
from learners.explain import explain_scores
from learners.numerics.arrays import Matrix, Vector
from learners.settings import Parameters

DENSE, NAMED = {"kind": "dense", "dim": 3}, {"kind": "named"}
CHOICES: list[list[auto.MemberName]] = [
    ["cbr-diag", "fofo"],
    ["bins"],
    ["pairs", "loam-ada"],
    ["fofo", "gbdt"],
    ["gbdt", "pairs", "bins", "fofo", "loam-ada", "cbr-diag"],
]


def stream(n: int) -> tuple[Matrix, Vector]:
    random = np.random.default_rng(0)
    X = random.normal(size=(n, 3))
    return X, (X[:, 0] * X[:, 1] + 0.3 * random.normal(size=n) > 1).astype(float)


def learner(members: Any, features: Any = DENSE, **settings: Any) -> Learner:
    if "gbdt" in members:
        settings |= {"refit_every": 200, "refit_window": 400}
    return Learner(Config.of({"features": features, "params": {"members": members}, **settings}))


def events(X: Matrix, features: Any) -> Any:
    return X if features is DENSE else [dict(zip("abc", x.tolist(), strict=True)) for x in X]


@pytest.mark.parametrize("features", [DENSE, NAMED], ids=["dense", "named"])
@pytest.mark.parametrize("members", CHOICES, ids="+".join)
def test_only_members_score_and_a_state_restores_to_the_bit(members: list[str], features: Any) -> None:
    X, y = stream(700)
    first = learner(members, features)
    first.learn(events(X[:500], features), y[:500])
    second = restore(json.loads(json.dumps(first.config.to_json())), first.state())
    later = [subject.learn(events(X[500:], features), y[500:]).tobytes() for subject in (first, second)]
    assert later[0] == later[1]
    assert first.digest() == second.digest()
    view = first.view()
    present = [name for name in auto.MEMBERS if name in members and (name != "loam-ada" or features is DENSE)]
    assert [member["name"] for member in view.members or []] == [*present, "auto"]
    assert list(view.member_weights or {}) == present
    assert first.config.batch == ("gbdt" in members)
    encoded = first.encode(events(X[:5], features))
    scores = first.scorer().score(encoded).scores
    frozen = first.view().frozen()
    assert frozen.scorer.score(encoded).scores.tobytes() == scores.tobytes()
    explanations = explain_scores(first.scorer(), list(events(X[:5], features)), 10)
    totals = [intercept + sum(part for _, part in parts) + rest for intercept, parts, rest in explanations]
    assert totals == pytest.approx(scores.tolist())


def test_the_order_of_members_does_not_matter() -> None:
    X, y = stream(600)
    states = []
    for members in (["gbdt", "fofo"], ["fofo", "gbdt"]):
        subject = learner(members)
        subject.learn(X, y)
        states.append({name: array.tobytes() for name, array in subject.state().items()})
    assert states[0] == states[1]


def test_a_shorter_memory_follows_a_change_sooner() -> None:
    X, y = stream(6000)
    y[3000:] = 1 - y[3000:]
    scores = []
    for memory in (100, 100_000):
        config = Config.of({"features": DENSE, "params": {"members": ["bins", "pairs"], "memory": memory}})
        scores.append(Learner(config).learn(X, y))
    errors = [np.log1p(np.exp(-s[3000:3600] * (2 * y[3000:3600] - 1))).mean() for s in scores]
    assert errors[0] < errors[1]


def test_a_model_that_is_no_member_has_no_columns_and_costs_nothing() -> None:
    X, y = stream(300)
    subject = learner(["fofo"])
    subject.learn(X, y)
    arrays = {name: array for name, array in subject.state().items() if name.startswith("algorithm.")}
    for name in ("cbr_diag_mu", "cbr_diag_values", "loam_ada_w"):
        assert arrays[f"algorithm.{name}"].size == 0
    assert sum(array.size for name, array in arrays.items() if ".crosses_" in name) <= 4  # counters
    assert not subject.config.batch
    assert not sum(array.size for name, array in subject.state().items() if name.startswith(("fits.", "retained.")))
    cost = registry.algorithms()["auto"].TRAITS.cost.nanoseconds
    size = Size(50, 50.0, sparse=False)

    def nanoseconds(*members: auto.MemberName) -> float:
        return cost(auto.Params(members=members), size)

    assert nanoseconds(*auto.MEMBERS) == pytest.approx(
        sum(nanoseconds(name) for name in ("cbr-diag", "loam-ada", "fofo", "pairs", "gbdt"))
    )
    assert nanoseconds("bins") < nanoseconds("pairs")


@pytest.mark.parametrize(
    ("has", "takes", "name"),
    [
        (["cbr-diag", "fofo"], ["fofo"], "cbr_diag_mu"),
        (["bins", "fofo"], ["fofo"], "crosses_w"),
        (["pairs", "fofo"], ["bins", "fofo"], "crosses_once"),
        (["fofo", "loam-ada"], ["fofo"], "loam_ada_w"),
    ],
    ids=str,
)
def test_a_state_with_another_member_is_refused(has: Any, takes: Any, name: str) -> None:
    X, y = stream(300)
    subject = learner(has)
    subject.learn(X, y)
    with pytest.raises(InvalidInput) as caught:
        restore(learner(takes).config.to_json(), subject.state())
    assert f"/algorithm.{name}" in [problem.pointer for problem in caught.value.problems]


def test_trees_of_a_learner_without_them_are_refused() -> None:
    params, with_trees = auto.Params(members=("fofo",)), auto.Params(members=("fofo", "gbdt"))
    X, y = stream(300)
    signs = 2 * y - 1
    fitted = auto.fit(with_trees, X, 3, signs, np.ones(300), 0)
    state = auto.adopt(params, auto.init(params, 3, 0), fitted._asdict(), 3, 0)
    assert [name for name, _ in auto.problems(params, state, False)] == ["trees_starts"]
    assert not len(auto.fit(params, X, 3, signs, np.ones(300), 0).trees_starts)
    assert isinstance(params, Parameters)
