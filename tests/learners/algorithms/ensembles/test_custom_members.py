"""Members of auto that the user configures: what they are called, when they score, and that a state is only theirs."""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from learners import Config, InvalidInput, Learner, restore
from learners.algorithms import registry
from learners.algorithms._custom_members import CustomMember
from learners.algorithms.base import Size
from learners.algorithms.ensembles import auto
from learners.explain import explain_scores
from learners.numerics.arrays import Matrix, Sparse, Vector
from learners.records import LabelledBatch

DENSE, NAMED = {"kind": "dense", "dim": 3}, {"kind": "named", "bits": 12}
TABLE = {"kind": "table", "fields": [{"name": name, "kind": "numeric"} for name in "abc"]}
FEATURES = {"dense": DENSE, "named": NAMED, "table": TABLE}
BEHIND = {"kind": "nystroem", "components": 12, "warmup": 250}
ONLINE: dict[str, Any] = {"algorithm": "cbr-diag", "params": {"capacity": 7}}
EMBEDDED: dict[str, Any] = {"algorithm": "cbr", "params": {"capacity": 20, "buffer": "reservoir"}, "embedding": BEHIND}
TREES: dict[str, Any] = {"algorithm": "forest", "params": {"trees": 5}}
BATCH: dict[str, Any] = {"algorithm": "ranksvm", "name": "rank"}
KERNEL: dict[str, Any] = {"algorithm": "nbauc", "embedding": {"warmup": 300, "components": 8}}
CHOICES = {
    "online": ["fofo", ONLINE, {"algorithm": "fofo", "params": {"c": 8.0}}],
    "trees": ["bins", TREES],
    "batch": [BATCH, "gbdt"],
    "embedded": ["fofo", EMBEDDED],
    "all": ["fofo", "gbdt", EMBEDDED, ONLINE, TREES, BATCH, KERNEL],
}
NAMES = {
    "online": ["fofo", "cbr-diag", "fofo-2"],
    "trees": ["bins", "forest"],
    "batch": ["gbdt", "rank"],
    "embedded": ["fofo", "cbr"],
    "all": ["fofo", "gbdt", "cbr", "cbr-diag", "forest", "rank", "nbauc"],
}
CASES = [
    (members, kind)
    for members, kinds in {
        "online": ["dense", "named"],
        "trees": ["named"],
        "batch": ["named"],
        "embedded": ["table"],
        "all": ["dense"],
    }.items()
    for kind in kinds
]
EACH = pytest.mark.parametrize(("members", "kind"), CASES)
PRECISIONS = pytest.mark.parametrize("precision", ["float64", "float32"])


def stream(n: int) -> tuple[Matrix, Vector]:
    random = np.random.default_rng(0)
    X, noise = np.split(random.normal(size=(n, 4)), [3], axis=1)
    return X, (X[:, 0] * X[:, 1] + 0.3 * noise[:, 0] > 1).astype(float)


def config(members: str, kind: str, **settings: Any) -> Config:
    features = FEATURES[kind]
    if members != "online":
        settings |= {"refit_every": 200, "refit_window": 400}
    return Config.of({"features": features, "params": {"members": CHOICES[members]}, **settings})


def events(X: Matrix, kind: str) -> Any:
    return X if kind == "dense" else [dict(zip("abc", x.tolist(), strict=True)) for x in X]


@functools.cache
def learnt(members: str, kind: str, precision: str = "float64") -> Learner:
    """Return a learner of 700 events, which no test may change."""
    learner = Learner(config(members, kind, precision=precision))
    X, y = stream(700)
    learner.learn(events(X, kind), y)
    return learner


def refused(members: Any, **settings: Any) -> dict[str, str]:
    """Return the detail by pointer of each problem of members beside fofo, and other settings."""
    values = {"features": DENSE, "params": {"members": ["fofo", *members]}, **settings}
    with pytest.raises(InvalidInput) as caught:
        Config.of(values)
    return {problem.pointer: problem.detail for problem in caught.value.problems}


# Settings


def test_settings_survive_json_with_names_and_defaults_written_out() -> None:
    subject = config("all", "dense")
    written = json.loads(json.dumps(subject.to_json()))
    assert Config.of(written) == subject
    embedded = written["params"]["members"][2]
    assert embedded == {
        "algorithm": "cbr",
        "params": {"C": 0.00390625, "eta": 0.7, "capacity": 20, "buffer": "reservoir"},
        "embedding": {**BEHIND, "width": None},
        "name": "cbr",
    }
    assert written["params"]["members"][-1]["embedding"]["kind"] == "nystroem"  # as of nbauc by default
    assert hash(subject.params) == hash(Config.of(written).params)


def test_names_are_all_different() -> None:
    cbr: dict[str, Any] = {"algorithm": "cbr"}
    params = auto.Params.of({"members": [cbr, cbr, {**cbr, "name": "cbr-2"}, {"algorithm": "gbdt"}, "gbdt"]})
    assert [member.name for member in params.custom] == ["cbr", "cbr-3", "cbr-2", "gbdt-2"]
    assert auto.Params.of(params.to_json()) == params


@pytest.mark.parametrize(
    ("members", "pointers"),
    [
        ([5], ["/params/members/1"]),
        ([{}], ["/params/members/1/algorithm"]),
        ([{"algorithm": "svm"}], ["/params/members/1/algorithm"]),
        ([ONLINE, {"algorithm": "svc"}], ["/params/members/2/algorithm"]),
        ([{"algorithm": "auto"}], ["/params/members/1/algorithm"]),
        ([{**ONLINE, "params": {"capacity": 0, "eta": 2}, "odd": 1}], ["/params/members/1/odd",
          "/params/members/1/params/capacity", "/params/members/1/params/eta"]),
        ([{**ONLINE, "params": 1, "embedding": {"kind": "odd"}}],
         ["/params/members/1/embedding/kind", "/params/members/1/params"]),
        ([{**ONLINE, "params": {"capacity": 2**20}}], ["/params/members/1/params/capacity"]),
        ([{**EMBEDDED, "params": {"capacity": 500}, "embedding": {"kind": "fourier", "components": 4000}}],
         ["/params/members/1/params/capacity"]),
        ([{"algorithm": "adaoam", "embedding": {"kind": "fourier", "components": 2049}}],
         ["/params/members/1/embedding/components"]),
        ([{**ONLINE, "embedding": {"components": 9}}], ["/params/members/1/embedding/components"]),
        ([{**ONLINE, "name": name} for name in ("a b", "a" * 65, 5, False)],
         [f"/params/members/{i}/name" for i in (1, 2, 3, 4)]),
        ([{**ONLINE, "name": name} for name in ("auto", "fofo", "a", "a")],
         [f"/params/members/{i}/name" for i in (1, 2, 4)]),
        ([ONLINE] * 16, ["/params/members"]),
    ],
)  # fmt: skip
def test_what_a_member_cannot_be_is_refused_at_its_own_pointer(members: Any, pointers: list[str]) -> None:
    assert sorted(refused(members)) == sorted(pointers)


def test_a_refused_algorithm_says_why() -> None:
    assert "predicts ranks" in refused([{"algorithm": "svc"}])["/params/members/1/algorithm"]
    assert "combination" in refused([{"algorithm": "auto"}])["/params/members/1/algorithm"]
    pointers = refused([{"algorithm": "cbr"}, {**ONLINE, "embedding": BEHIND}], features=NAMED)
    assert "takes only dense rows" in pointers["/params/members/1/algorithm"]
    assert "dense rows" in pointers["/params/members/2/embedding/kind"]
    wide = refused([{"algorithm": "cbr"}], features={"kind": "dense", "dim": 4097})
    assert "at most 4096" in wide["/params/members/1/algorithm"]


def test_an_embedding_needs_as_many_events_as_fits_retain() -> None:
    assert refused([EMBEDDED], refit_window=249) == {
        "/params/members/1/embedding/warmup": "is 250; expected at most refit_window, 249"
    }
    large = {**EMBEDDED, "params": {}, "embedding": {"kind": "fourier", "components": 4000}}
    assert Config.of({"features": DENSE, "params": {"members": [large]}}).refit_window == 2**24 // 4000
    assert list(refused([ONLINE], refit_every=50)) == ["/refit_every"]  # nothing is fitted


def test_a_long_sparse_event_must_fit_into_the_buffers_of_each_member() -> None:
    member = {"algorithm": "cbr-diag", "params": {"capacity": 1000}}
    subject = Config.of({"features": {"kind": "sparse", "dim": 2000}, "params": {"members": ["fofo", member]}})
    assert subject.most_nonzero == 2**20 // 1000
    with pytest.raises(InvalidInput, match="1000 events are stored"):
        subject.encode([(list(range(1049)), [1.0] * 1049)])


def test_the_schema_has_the_algorithms_of_two_classes() -> None:
    name, custom = auto.Params.schema()["properties"]["members"]["items"]["anyOf"]
    assert name["enum"] == list(auto.MEMBERS)
    assert custom["required"] == ["algorithm"]
    suitable = set(custom["properties"]["algorithm"]["enum"])
    ordinal = {name for name, module in registry.algorithms().items() if module.TRAITS.ordinal}
    assert suitable == set(registry.algorithms()) - ordinal - {"auto"}
    for algorithm in suitable:
        assert CustomMember.of({"algorithm": algorithm}).params == registry.algorithms()[algorithm].Params()


# Learning


@pytest.mark.parametrize("behind", [{}, {"embedding": BEHIND}], ids=["alone", "embedded"])
@pytest.mark.parametrize(
    "name", [name for name, item in registry.algorithms().items() if not item.TRAITS.ordinal and name != "auto"]
)
def test_each_algorithm_restores_before_any_event(name: str, behind: dict[str, Any]) -> None:
    members = ["fofo", {"algorithm": name, **(behind if registry.algorithms()[name].TRAITS.embeds else {})}]
    learner = Learner(Config.of({"features": DENSE, "params": {"members": members}}))
    assert Learner.restored(learner.config, learner.state()).digest() == learner.digest()


def test_embeddings_are_bounded_together() -> None:
    wide = {"algorithm": "lr", "embedding": {"kind": "fourier", "components": 2500, "warmup": 20}}
    features = {"kind": "dense", "dim": 4096}
    Config.of({"algorithm": "auto", "features": features, "params": {"members": ["fofo", wide]}, "refit_window": 300})
    with pytest.raises(InvalidInput, match="have embeddings of 5000 components together; expected at most 4096"):
        Config.of({"algorithm": "auto", "features": features, "params": {"members": ["fofo", wide, wide]}})


@PRECISIONS
@EACH
def test_a_state_restores_to_the_bit_however_the_stream_is_cut(members: str, kind: str, precision: str) -> None:
    X, y = stream(1100)
    first = learnt(members, kind, precision)
    whole, cut = (restore(json.loads(json.dumps(first.config.to_json())), first.state()) for _ in range(2))
    scores = whole.learn(events(X[700:], kind), y[700:])
    pieces = [cut.learn(events(X[i : i + 53], kind), y[i : i + 53]) for i in range(700, 1100, 53)]
    assert scores.tobytes() == np.concatenate(pieces).tobytes()
    assert whole.digest() == cut.digest()
    again = Learner(first.config)
    assert np.isfinite(again.learn(events(X, kind), y)).all()
    assert again.digest() == whole.digest()


@EACH
def test_members_are_listed_with_weights_and_metrics_and_explain_the_score(members: str, kind: str) -> None:
    subject = learnt(members, kind)
    view = subject.view()
    assert [member["name"] for member in view.members or []] == [*NAMES[members], "auto"]
    assert list(view.member_weights or {}) == NAMES[members]
    X, _ = stream(6)
    encoded = subject.encode(events(X, kind))
    scores = subject.scorer().score(encoded).scores
    assert view.frozen().scorer.score(encoded).scores.tobytes() == scores.tobytes()
    explanations = explain_scores(subject.scorer(), list(events(X, kind)), 10)
    totals = [intercept + sum(part for _, part in parts) + rest for intercept, parts, rest in explanations]
    assert totals == pytest.approx(scores.tolist())
    assert all(isinstance(intercept, float) for intercept, _, _ in explanations)


def test_a_member_behind_an_embedding_ranks_what_is_not_linear() -> None:
    X, y = stream(3000)
    members = ["cbr-diag", {"algorithm": "cbr"}, EMBEDDED]
    settings = {"refit_every": 1000, "refit_window": 1000}
    subject = Learner(Config.of({"features": DENSE, "params": {"members": members}, **settings}))
    subject.learn(X, y)
    figures = {member["name"]: member for member in subject.view().members or []}
    assert figures["cbr-2"]["auc"] > 0.9 > 0.7 > figures["cbr"]["auc"]
    assert figures["cbr-2"]["kind"] == "custom cbr behind nystroem"
    assert figures["cbr-2"]["events"] == 2600  # since the fit after 400 events, the first with 250 retained ones
    assert figures["cbr-2"]["weight"] > figures["cbr"]["weight"]


def test_an_embedding_stays_and_models_that_are_fitted_do_not() -> None:
    X, y = stream(1100)
    subject = restore(learnt("all", "dense").config.to_json(), learnt("all", "dense").state())
    before = {name: array.copy() for name, array in subject.state().items()}
    subject.learn(X[700:], y[700:])
    assert subject.view().fitted_events == 1000
    after = subject.state()

    def same(name: str) -> bool:
        return after[f"algorithm.{name}"].tobytes() == before[f"algorithm.{name}"].tobytes()

    assert same("custom1_embedding_landmarks")
    assert not any(map(same, ("custom1_mu", "custom3_threshold", "custom4_w", "custom5_embedding_landmarks")))


def test_the_result_of_a_fit_is_all_that_a_fit_changes() -> None:
    X, y = stream(1100)
    settings = config("all", "dense")
    fitting, following = Learner(settings), Learner(settings)
    for start in range(0, 1000, 100):
        part = slice(start, start + 100)
        for learner in (fitting, following):
            learner.apply(labelled(learner, X[part], y[part]))
        if fitting.fit_due:
            result = fitting.fit_job().run()
            for learner in (fitting, following):
                learner.apply(result)
    assert fitting.digest() == following.digest()
    assert {member["name"] for member in fitting.view().members or []} == {*NAMES["all"], "auto"}


def labelled(learner: Learner, X: Matrix, y: Vector) -> LabelledBatch:
    return LabelledBatch(learner.encode(X), 2 * y - 1)


def test_a_fit_that_is_damaged_is_refused() -> None:
    X, y = stream(400)
    subject = Learner(config("all", "dense"))
    subject.apply(labelled(subject, X, y))
    result = subject.fit_job().run()

    def pointers(**arrays: Any) -> list[str]:
        changed = {f"algorithm.{name}": array for name, array in arrays.items()}
        with pytest.raises(InvalidInput) as caught:
            subject.apply(replace(result, arrays={**result.arrays, **changed}))
        return [problem.pointer for problem in caught.value.problems]

    for name, array in (
        ("custom1_embedding_landmarks", np.zeros((4, 12))),
        ("custom4_w", np.zeros(2)),
        ("custom5_w", np.zeros(3)),
        ("custom3_right", result.arrays["algorithm.custom3_right"][:-1]),
    ):
        assert pointers(**{name: array})


@EACH
def test_a_state_of_other_members_is_refused(members: str, kind: str) -> None:
    subject = learnt(members, kind)
    others = {**subject.config.to_json()["params"], "members": ["fofo"]}
    values = {**subject.config.to_json(), "params": others, "refit_every": None, "refit_window": None}
    with pytest.raises(InvalidInput):
        restore(values, subject.state())


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("custom1_mu", lambda a: a[:-1]),
        ("custom1_buffer", lambda a: a[:, :-1]),
        ("custom1_embedding_landmarks", lambda a: a[:-1]),
        ("custom1_embedding_projection", lambda a: np.zeros((len(a), 99))),
        (
            "custom1_embedding_projection",
            lambda a: np.zeros((len(a[:0]), 10**8)),
        ),  # the model of so many columns needs 80 PB
        ("custom1_embedding_width", lambda a: a * np.nan),
        ("custom1_seen", lambda a: a - 10**6),
        ("custom2_values", lambda a: a[:, :-1]),
        ("custom3_right", lambda a: a + 1),
        ("custom3_gain", lambda a: a[:-1]),
        ("custom4_w", lambda a: a[:-1]),
        ("custom5_w", lambda a: np.append(a, 0.0)),
    ],
)
def test_a_damaged_state_is_refused(name: str, change: Any) -> None:
    subject = learnt("all", "dense")
    state = dict(subject.state())
    state[f"algorithm.{name}"] = np.ascontiguousarray(change(state[f"algorithm.{name}"]))
    with pytest.raises(InvalidInput) as caught:
        restore(subject.config.to_json(), state)
    part = name.partition("_")[0]
    assert all(problem.pointer.startswith(f"/algorithm.{part}_") for problem in caught.value.problems)


def test_a_failed_fit_names_the_member() -> None:
    X, y = stream(100)
    params = auto.Params.of({"members": [{**TREES, "name": "wood"}]})
    rows = Sparse(np.zeros(0), np.zeros(0, dtype=np.int64), np.zeros(101, dtype=np.int64))  # events without features
    with pytest.raises(ValueError, match=r"^wood: no event has a feature"):
        auto.fit(params, rows, 8, 2 * y - 1, np.ones(100), 0)
    with pytest.raises(ValueError, match="have 2 positive ones"):
        auto.fit(params, X, 3, np.where(np.arange(100) < 2, 1.0, -1.0), np.ones(100), 0)


def test_scores_without_bound_do_not_spoil_the_combination() -> None:
    X, y = stream(300)
    members = ["fofo", {"algorithm": "lr", "params": {}}]
    values = {"features": DENSE, "params": {"members": members}, "scaling": {"kind": "none"}}
    subject = Learner(Config.of(values))
    subject.learn(np.sign(X) * 1e30, y)
    assert np.isfinite(subject.score(X)).all()
    restore(subject.config.to_json(), subject.state())


def test_the_cost_of_an_event_has_that_of_each_member() -> None:
    nanoseconds, size = registry.algorithms()["auto"].TRAITS.cost.nanoseconds, Size(54, 54.0, sparse=False)

    def cost(*members: Any) -> float:
        return nanoseconds(auto.Params.of({"members": list(members)}), size)

    alone = registry.algorithms()["cbr"]
    assert cost("fofo", {"algorithm": "cbr"}) == pytest.approx(
        cost("fofo") + alone.TRAITS.cost.nanoseconds(alone.Params(), size)
    )
    behind = {"algorithm": "cbr", "embedding": {"kind": "nystroem", "components": 400}}
    assert cost("fofo", behind) > 10 * cost("fofo", {"algorithm": "cbr"})
