"""What a learner is created with: defaults, every problem at once, and the conveniences of the library's door."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import learners
from learners import Config, GroupConfig, InvalidInput, Learner, create, restore
from learners.algorithms.registry import algorithms, describe
from learners.features.labels import Labels
from tests.learners.pipelines import EVERY, FEATURES, Pipeline, events

DENSE = {"kind": "dense", "dim": 3}
SPARSE = {"kind": "sparse", "dim": 30}


def refused(values: Any) -> list[str]:
    """Return the pointers of all problems of a configuration."""
    with pytest.raises(InvalidInput) as caught:
        Config.of(values)
    assert all(problem.detail for problem in caught.value.problems)
    return [problem.pointer for problem in caught.value.problems]


@EVERY
def test_a_configuration_survives_json(pipeline: Pipeline) -> None:
    config = pipeline.config()
    plain = json.loads(json.dumps(config.to_json()))
    assert Config.of(plain) == config
    assert Config.of(plain).to_json() == plain


@pytest.mark.parametrize("name", algorithms())
@pytest.mark.parametrize("kind", FEATURES)
def test_defaults_depend_on_the_features_and_the_algorithm(name: str, kind: str) -> None:
    algorithm = algorithms()[name]
    if kind in ("sparse", "named") and not algorithm.TRAITS.sparse:
        assert refused({"algorithm": name, "features": FEATURES[kind]}) == ["/features/kind"]
        return
    parts = ("params", "scaling", "embedding", "calibration", "threshold", "window", "refit_every", "seed")
    nothing: dict[str, Any] = dict.fromkeys(parts)
    config = Config.of({"algorithm": name, "features": FEATURES[kind]})
    assert Config.of({"algorithm": name, "features": FEATURES[kind], **nothing}) == config
    scales = {"dense": "standard", "table": "standard", "named": "maxabs", "sparse": "none"}
    special = algorithm.TRAITS.defaults.get("scaling")
    log_odds = kind == "named" and algorithm.TRAITS.posterior
    usual = ("standard", 100.0 if name == "auto" else 10.0) if log_odds else (scales[kind], None)
    expected = usual if special is None or log_odds else (special["kind"], special.get("clip"))
    assert (config.scaling.kind, config.scaling.clip) == expected
    explicit = Config.of({"algorithm": name, "features": FEATURES[kind], "scaling": {"kind": "standard"}})
    assert explicit.scaling.clip is None
    defaults = algorithm.TRAITS.defaults
    assert config.embedding.kind == defaults.get("embedding", {}).get("kind", "none")
    if algorithm.TRAITS.ordinal:
        assert config.calibration is config.threshold is None
    else:
        assert config.calibration is not None
        assert config.threshold is not None
        usual = "posterior" if algorithm.TRAITS.posterior else "platt"
        assert config.calibration.kind == defaults.get("calibration", {}).get("kind", usual)
        usual = "f1" if algorithm.TRAITS.posterior else "f1-window"
        assert config.threshold.objective == defaults.get("threshold", {}).get("objective", usual)
    window = defaults.get("learner", {}).get("refit_window", 20_000)
    every = defaults.get("learner", {}).get("refit_every", 5_000)
    fits = (every, window) if config.batch else (None, None)
    assert (config.refit_every, config.refit_window) == fits
    assert (config.window, config.remembered_ids, config.seed) == (10_000, 2**20, 0)


def test_a_partially_specified_section_keeps_the_other_defaults() -> None:
    config = Config.of(
        {
            "algorithm": "fofo",
            "features": DENSE,
            "scaling": {"clip": 3},
            "calibration": {"memory": 50},
            "threshold": {"n1": 64},
        }
    )
    assert (config.scaling.kind, config.scaling.clip) == ("standard", 3.0)
    assert (config.calibration.kind, config.calibration.memory) == ("posterior", 50)
    assert (config.threshold.objective, config.threshold.n1) == ("f1", 64)
    assert Config.of({"algorithm": "cbr", "features": DENSE, "threshold": {}}).threshold.objective == "f1-window"


@pytest.mark.parametrize(
    ("values", "pointers"),
    [
        (None, [""]),
        ([], [""]),
        ({}, ["/features"]),
        ({"algorithm": "svm", "features": {"kind": "dense"}}, ["/algorithm", "/features/dim"]),
        ({"algorithm": ["cbr"], "features": None}, ["/algorithm", "/features"]),
        ({"algorithm": "cbr", "features": DENSE, "windw": 1, "a/b": 1, "\ud800": 1}, ["/windw", "/a~1b", "/\\ud800"]),
        ({"algorithm": "cbr", "features": DENSE, "params": 1, "scaling": "unit"}, ["/scaling", "/params"]),
        ({"algorithm": "cbr", "features": DENSE, "window": 0, "seed": 0.5, "remembered_ids": 2**27},
         ["/window", "/remembered_ids", "/seed"]),
        ({"algorithm": "cbr", "features": {**DENSE, "dim": 4097}, "params": {"C": 0}}, ["/params/C", "/features"]),
        ({"algorithm": "cbr", "features": {"kind": "named"}, "params": {"C": 0}}, ["/params/C", "/features/kind"]),
        ({"algorithm": "cbr", "features": DENSE, "calibration": {"kind": "posterior"}}, ["/calibration/kind"]),
        ({"algorithm": "cbr", "features": DENSE, "calibration": {"kind": "logistic"}}, ["/calibration/kind"]),
        ({"features": DENSE, "params": {"members": ["bins", "svm"]}}, ["/params/members/1"]),
        ({"features": DENSE, "params": {"members": ["bins", "fofo", "bins", "fofo"]}},
         ["/params/members/2", "/params/members/3"]),
        ({"features": DENSE, "params": {"members": []}}, ["/params/members"]),
        ({"features": DENSE, "params": {"members": "bins"}}, ["/params/members"]),
        ({"features": DENSE, "params": {"members": ["bins"], "budget": "best"}}, ["/params/budget"]),
        ({"features": DENSE, "params": {"members": ["gbdt"], "budget": "fast"}}, ["/params/budget"]),
        ({"features": DENSE, "params": {"members": ["bins"]}, "refit_every": 50}, ["/refit_every"]),
        ({"features": SPARSE, "params": {"members": ["loam-ada"]}}, ["/params/members"]),
        ({"features": DENSE, "params": {"memory": 99}}, ["/params/memory"]),
        ({"algorithm": "oam", "features": SPARSE, "embedding": {"kind": "fourier"}}, ["/embedding/kind"]),
        ({"algorithm": "oam", "features": DENSE, "embedding": {"kind": "odd", "width": 0, "warmup": 1}},
         ["/embedding/kind", "/embedding/warmup", "/embedding/width"]),
        ({"algorithm": "cbr", "features": DENSE, "embedding": {"kind": "fourier", "components": 4000},
          "params": {"capacity": 263}}, ["/params/capacity"]),
        ({"algorithm": "adaoam", "features": DENSE, "embedding": {"kind": "fourier", "components": 2049}},
         ["/embedding/components"]),
        ({"algorithm": "oam", "features": {"kind": "dense", "dim": 1000},
          "embedding": {"kind": "fourier", "warmup": 20_000}}, ["/embedding/warmup"]),
        ({"algorithm": "cbr", "features": DENSE, "refit_every": 10, "refit_window": 20},
         ["/refit_every", "/refit_window"]),
        ({"algorithm": "ranksvm", "features": DENSE, "refit_every": 0, "refit_window": 1},
         ["/refit_every", "/refit_window"]),
        ({"algorithm": "ranksvm", "features": {"kind": "dense", "dim": 10_000}, "refit_window": 2000},
         ["/refit_window"]),
        ({"algorithm": "svc", "features": DENSE, "threshold": {}, "calibration": {"kind": "platt"}},
         ["/calibration", "/threshold"]),
        ({"algorithm": "npsvor", "features": DENSE, "params": {"ranks": 1}}, ["/params/ranks"]),
        (
            {
                "algorithm": "cbr",
                "features": {"kind": "dense", "dim": 0, "x": 1},
                "params": {"C": -1, "M": 5},
                "scaling": {"kind": "odd"},
                "calibration": {"memory": 1, "kind": "odd"},
                "threshold": {"objective": "auc", "value": 2},
                "window": 0,
                "seed": -1,
                "name": "x",
            },
            ["/name", "/features/x", "/features/dim", "/scaling/kind", "/calibration/kind", "/calibration/memory",
             "/threshold/objective", "/threshold/value", "/params/M", "/params/C", "/window", "/seed"],
        ),
    ],
)  # fmt: skip
def test_all_problems_are_listed_together(values: Any, pointers: list[str]) -> None:
    assert refused(values) == pointers


def test_an_unknown_algorithm_does_not_hide_other_problems() -> None:
    values = {"features": {"kind": "odd"}, "scaling": {"clip": 0}, "threshold": {"kappa": 0}, "window": 0}
    pointers = ["/algorithm", "/features/kind", "/scaling/clip", "/threshold/kappa", "/window"]
    assert refused({**values, "algorithm": "svm"}) == pointers
    assert refused(values) == pointers[1:]


def test_create_accepts_http_configurations_and_shortcuts() -> None:
    learner = create(
        "fofo",
        dim=3,
        c=0.5,
        averaging="suffix",
        scaling="unit",
        calibration="posterior",
        threshold="fixed",
        window=5,
        remembered_ids=9,
        seed=1,
    )
    assert learner.config.to_json() == {
        "algorithm": "fofo",
        "params": {"c": 0.5, "averaging": "suffix"},
        "features": {"kind": "dense", "dim": 3},
        "scaling": {"kind": "unit", "clip": None, "outliers": "limited"},
        "embedding": {"kind": "none", "components": 100, "warmup": 1000, "width": None},
        "calibration": {"kind": "posterior", "memory": 10_000},
        "threshold": {
            "objective": "fixed",
            "horizon": None,
            "n1": 256,
            "kappa": 8.0,
            "memory": 30_000,
            "value": 0.5,
            "beta": 1.0,
            "target": None,
            "false_positive": 1.0,
            "false_negative": 1.0,
            "field": None,
            "alerts": None,
            "unit_seconds": 86_400.0,
            "rate": None,
            "cautious": True,
        },
        "figures": {"beta": 1.0, "k": 100, "max_fpr": 0.05, "segments": []},
        "late": {
            "label_ttl": 7_776_000.0,
            "unlabelled": "nothing",
            "max_events": 1_000_000,
            "max_bytes": 2**30,
            "keep_features": False,
        },
        "window": 5,
        "window_seconds": None,
        "remembered_ids": 9,
        "refit_every": None,
        "refit_window": None,
        "seed": 1,
        "precision": "float64",
    }
    assert create("oam", dim=3, embedding="fourier").config.embedding.kind == "fourier"
    assert create("fofo", features="named").config.features.to_json()["kind"] == "named"
    assert create("cbr", features=DENSE).config == create("cbr", dim=3).config
    assert create("cbr", dim=3, scaling={"kind": "none"}).config.scaling.kind == "none"


@pytest.mark.parametrize(
    ("settings", "pointer"),
    [
        ({"dim": 3, "features": DENSE}, "/features"),
        ({}, "/features"),
        ({"dim": 0}, "/features/dim"),
        ({"dim": 3, "gamma": 1}, "/params/gamma"),
        ({"dim": 3, "scaling": "odd"}, "/scaling/kind"),
        ({"dim": 3, "threshold": "odd"}, "/threshold/objective"),
    ],
)
def test_create_refuses_with_a_pointer(settings: dict[str, Any], pointer: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        create("cbr", **settings)
    assert [problem.pointer for problem in caught.value.problems] == [pointer]


def test_restore_accepts_a_configuration_and_a_state() -> None:
    learner = create("cbr", dim=4)
    carried, y = events(Pipeline("fofo", "dense"), 30)
    learner.learn(carried, y)
    other = restore(learner.config.to_json(), learner.state())
    assert isinstance(other, Learner)
    learner.learn(carried, y)
    assert other.digest() != learner.digest()  # it took copies
    assert other.learn(carried, y).shape == (30,)
    assert other.digest() == learner.digest()
    with pytest.raises(InvalidInput):
        restore({**learner.config.to_json(), "window": 0}, learner.state())
    with pytest.raises(InvalidInput):
        restore(learner.config.to_json(), {})


def test_public_names_of_the_package_exist() -> None:
    assert all(hasattr(learners, name) for name in learners.__all__)
    assert list(learners.algorithms()) == sorted(learners.algorithms())


@pytest.mark.parametrize("name", algorithms())
def test_the_catalogue_describes_an_algorithm(name: str) -> None:
    entry = describe(name)
    module = algorithms()[name]
    assert module.__name__.rpartition(".")[2] == name.replace("-", "_")
    assert entry["name"] == name
    assert entry["summary"].endswith(".")
    assert entry["summary"] in entry["description"]
    traits = module.TRAITS
    assert [entry[key] for key in ("dense", "sparse", "posterior", "ordinal")] == [
        traits.dense,
        traits.sparse,
        traits.posterior,
        traits.ordinal,
    ]
    assert entry["batch"] == (not hasattr(module, "learn"))
    assert hasattr(module, "fit") or not entry["batch"]
    assert entry["max_columns"] == module.TRAITS.max_dim
    json.dumps(entry, allow_nan=False)


# What events come as


@pytest.mark.parametrize(
    "labels",
    [[0, 1, 1, 0], [-1, 1, 1, -1], [False, True, True, False], [0, True, 1.0, -1.0], (0, 1, 1, 0),
     *(np.array([0, 1, 1, 0], dtype=dtype) for dtype in ("u1", "f2", "?", object))],
)  # fmt: skip
def test_labels_of_any_type_are_accepted(labels: Any) -> None:
    y = Labels().read(labels)
    assert y.dtype == np.float64
    assert y.tolist() == [-1.0, 1.0, 1.0, -1.0]


@pytest.mark.parametrize(
    ("labels", "pointers"),
    [
        ([1, 2], ["/labels/1"]),
        ([0.5, 0], ["/labels/0"]),
        ([1, math.nan], ["/labels/1"]),
        ([1, None, 0], ["/labels/1"]),
        ([1, "1"], ["/labels/1"]),
        (["1"], ["/labels/0"]),
        (np.array(["0"]), ["/labels/0"]),
        ([2**70], ["/labels/0"]),
        ([1j], ["/labels/0"]),
        (1, ["/labels"]),
        (None, ["/labels"]),
        ("01", ["/labels"]),
        ([[1], [0]], ["/labels"]),
        ([[1], [0, 1]], ["/labels"]),
        ([5] * 200, [f"/labels/{i}" for i in range(100)]),
    ],
    ids=str,
)  # fmt: skip
def test_invalid_labels_are_refused_with_a_pointer_to_each(labels: Any, pointers: list[str]) -> None:
    with pytest.raises(InvalidInput) as caught:
        Labels().read(labels)
    assert [problem.pointer for problem in caught.value.problems] == pointers


def test_ranks_are_integers_from_1() -> None:
    kind = Labels(ranks=3)
    assert kind.classes == ["1", "2", "3"]
    for good in ([1, 2, 3, 1.0], np.array([3, 1], dtype=np.int8)):
        ranks = kind.read(good)
        assert ranks.dtype == np.float64
        assert ranks.tolist() == list(good)
    for bad in (0, 4, -1, 1.5, True, None, "1", math.nan, math.inf, 2**70, 10**400):
        assert not kind.accepts(bad)
        assert kind.mismatch("/label", bad).pointer == "/label"
        if bad is True:  # in a list of numbers NumPy reads it as 1
            continue
        with pytest.raises(InvalidInput) as caught:
            kind.read([1, bad])
        assert [problem.pointer for problem in caught.value.problems] == ["/labels/1"]
    assert all(kind.accepts(good) for good in (1, 2.0, 3))


@pytest.mark.parametrize("form", ["csr_array", "csr_matrix", "csc_array", "coo_array", "lil_array"])
def test_scipy_sparse_matrices_are_accepted(form: str) -> None:
    plain, by_matrix = (create("fofo", features=FEATURES["sparse"]) for _ in range(2))
    carried, y = events(Pipeline("fofo", "sparse"), 20)
    dense = np.zeros((20, 300))
    for i, (columns, values) in enumerate(carried):
        dense[i, columns] = values
    matrix = getattr(scipy.sparse, form)(dense)
    assert plain.learn(carried, y).tobytes() == by_matrix.learn(matrix, y).tobytes()
    assert plain.digest() == by_matrix.digest()
    assert plain.score(carried).tobytes() == by_matrix.score(matrix).tobytes()
    np.testing.assert_array_equal(matrix.toarray(), dense)


def test_duplicate_entries_of_a_scipy_matrix_are_summed_in_a_copy() -> None:
    matrix = scipy.sparse.csr_array((np.array([1.0, 2.0, 3.0]), np.array([7, 2, 7]), np.array([0, 3])), shape=(1, 300))
    rows = create("fofo", features=FEATURES["sparse"]).encode(matrix)
    assert [part.tolist() for part in rows] == [[2.0, 4.0], [2, 7], [0, 2]]
    assert matrix.data.tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("kind", FEATURES)
def test_a_scipy_matrix_with_wrong_shape_or_features_is_refused(kind: str) -> None:
    learner = create("fofo", features=FEATURES[kind])
    for matrix in (
        scipy.sparse.csr_array((2, 299)),
        scipy.sparse.csr_array((2, 4)),
        scipy.sparse.coo_array(np.eye(1)[0]),
    ):
        with pytest.raises(InvalidInput):
            learner.encode(matrix)
    if kind == "sparse":
        with pytest.raises(InvalidInput) as caught:
            learner.encode(scipy.sparse.csr_array(np.full((1, 300), np.inf)))
        assert [problem.pointer for problem in caught.value.problems] == ["/0"]


def test_a_learner_reports_why_it_is_not_ready() -> None:
    learner = create("cbr", dim=1)
    assert learner.view().not_ready is not None
    learner.learn([[1.0]], [0])
    assert "positive" in (learner.view().not_ready or "")
    learner.learn([[1.0]], [1])
    assert learner.view().not_ready is None
    ranks = create("npsvor", dim=1)
    ranks.learn([[1.0]], [4])
    assert "4" in (ranks.view().not_ready or "")
    ranks.learn([[1.0]], [2])
    assert ranks.view().not_ready is None
    other = create("cbr", dim=1)
    other.learn([[1.0]], [1])
    assert "negative" in (other.view().not_ready or "")


def test_the_metrics_include_the_live_threshold() -> None:
    learner = create("fofo", dim=1, threshold={"objective": "fixed", "value": 0.25})
    assert learner.figures()["threshold"] == learner.threshold == 0.25
    assert set(learner.figures()) == {
        "threshold", "events", "class_counts", "duplicates", "corrections", "assumed", "served", "clock", "window",
        "settings", "since_start", "undefined",
    }  # fmt: skip


def test_an_undecided_threshold_is_undefined() -> None:
    learner = create("cbr", dim=1)
    learner.learn([[1.0]], [0])
    figures = learner.figures()
    assert (figures["threshold"], figures["window"]["f1"]) == (None, None)
    assert {"/threshold", "/window/f1"} <= figures["undefined"].keys()
    learner.learn([[2.0]], [1])
    figures = learner.figures()
    assert figures["threshold"] == learner.threshold
    assert "/threshold" not in figures["undefined"]


def test_a_change_keeps_unmentioned_settings() -> None:
    config = Config.of({"algorithm": "cbr", "features": DENSE, "threshold": {"objective": "fbeta", "beta": 2.0}})
    other = config.with_changes({"threshold": {"memory": 500}, "figures": {"k": 7}, "late": {"unlabelled": "negative"}})
    assert other.threshold is not None
    assert (other.threshold.objective, other.threshold.beta, other.threshold.memory) == ("fbeta", 2.0, 500)
    assert (other.figures.k, other.figures.beta, other.late.unlabelled) == (7, 1.0, "negative")
    assert other.immutable_part == config.immutable_part
    fixed = other.with_changes({"threshold": {"objective": "fixed"}}).threshold
    assert fixed is not None
    assert (fixed.beta, fixed.value) == (1.0, 0.5)  # another objective: from its defaults
    assert Config.of(other.to_json()) == other


@pytest.mark.parametrize(
    ("algorithm", "values", "pointers"),
    [
        ("cbr", {}, [""]),
        ("cbr", 7, [""]),
        ("cbr", {"window": 7, "figures": {"k": 0}}, ["/window", "/figures/k"]),
        ("cbr", {"threshold": {"objective": "recall"}}, ["/threshold/target"]),
        ("cbr", {"threshold": {"objective": "cost", "field": "99"}}, ["/threshold/field"]),
        ("cbr", {"late": None}, ["/late"]),
        ("svc", {"threshold": {"objective": "fixed"}}, ["/threshold"]),
        ("svc", {"late": {"unlabelled": "negative"}}, ["/late/unlabelled"]),
    ],
)
def test_invalid_changes_are_refused(algorithm: str, values: Any, pointers: list[str]) -> None:
    config = Config.of({"algorithm": algorithm, "features": DENSE})
    with pytest.raises(InvalidInput) as caught:
        config.with_changes(values)
    assert [problem.pointer for problem in caught.value.problems] == pointers


@pytest.mark.parametrize(
    ("field", "good"),
    [
        ("body", False),
        ("shop", False),
        ("f" * 257, False),
        ("amount", True),
        ("anything else", True),
        ("f" * 256, True),
    ],
)
def test_the_cost_field_must_be_numeric(field: str, good: bool) -> None:
    features = {"kind": "named", "text": ["body"], "categorical": ["shop"], "log": ["amount"]}
    plain = Config.of({"algorithm": "fofo", "features": features})
    assert plain.objections() == []
    config = plain.with_changes({"threshold": {"objective": "cost", "field": field}})  # a log may hold it
    assert [problem.pointer for problem in config.objections()] == ([] if good else ["/threshold/field"])
    assert Config.of(config.to_json()) == config


def test_objectionable_settings_are_refused_on_creation_but_restored() -> None:
    features = {"kind": "named", "categorical": ["shop", "amount"], "log": ["amount"]}
    threshold = {"objective": "cost", "field": "shop"}
    with pytest.raises(InvalidInput) as caught:
        create("cbr-diag", features=features, threshold=threshold)
    assert [problem.pointer for problem in caught.value.problems] == ["/features/log/0", "/threshold/field"]
    config = Config.of({"algorithm": "cbr-diag", "features": features, "threshold": threshold})  # of an older log
    assert [problem.pointer for problem in config.objections()] == ["/threshold/field"]  # all that a change may mend
    learner = Learner(config)
    assert restore(config.to_json(), learner.state()).digest() == learner.digest()


def test_events_too_long_for_the_buffers_are_refused() -> None:
    event = (list(range(2000)), [1.0] * 2000)
    features = {"kind": "sparse", "dim": 5000}
    stored = Config.of({"algorithm": "npsvor", "features": features})
    with pytest.raises(InvalidInput, match="2000"):
        stored.encode([event])
    for name, params in (("npsvor", {"replays": 0}), ("fofo", {}), ("oam", {"capacity": 100})):
        Config.of({"algorithm": name, "params": params, "features": features}).encode([event])


@pytest.mark.parametrize("odd", [np.longdouble(1) + np.finfo(np.longdouble).eps, np.longdouble("1e-4000")])
def test_labels_are_validated_before_rounding(odd: np.longdouble) -> None:
    with pytest.raises(InvalidInput, match="/labels/0"):
        create("oam", dim=1).learn([[1.0], [2.0]], np.array([odd, 1], dtype=np.longdouble))


@pytest.mark.parametrize(
    ("threshold", "cautious"), [({}, False), ({"objective": "recall", "target": 0.5}, False), ("fixed", True)]
)
def test_thresholds_of_earlier_versions_are_not_cautious(threshold: Any, cautious: bool) -> None:
    values = create("cbr-diag", dim=3, **({"threshold": threshold} if threshold else {})).config.to_json()
    del values["threshold"]["cautious"]
    stored = Config.of_stored(values).threshold
    assert stored is not None
    assert stored.cautious is cautious
    assert Config.of(values).threshold.cautious  # type: ignore[union-attr]
    assert Config.of_stored(create("cbr-diag", dim=3).config.to_json()).threshold.cautious  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"algorithm": "nsauc", "features": {"kind": "dense", "dim": 2}}, [("few-positives", "/algorithm")]),
        ({"algorithm": "cbr", "features": {"kind": "dense", "dim": 2}}, [("moving-base-rate", "/algorithm")]),
        ({"algorithm": "loam-ada", "features": {"kind": "named", "text": ["a"]}}, [("text", "/features/text")]),
        ({"algorithm": "loam-ada", "features": {"kind": "named"}}, []),
        ({"algorithm": "loam-ada", "features": {"kind": "dense", "dim": 2}}, []),
        ({"algorithm": "fofo", "features": {"kind": "named", "text": ["a"]}}, []),
        ({"features": {"kind": "named", "text": ["a"]}}, []),
    ],
)
def test_settings_that_rank_badly_on_some_streams_are_warned_of(values: Any, expected: list[tuple[str, str]]) -> None:
    assert [(warning.code, warning.pointer) for warning in Config.of(values).warnings()] == expected


def test_few_of_many_unknown_settings_or_names_are_reported() -> None:
    """A body may have a hundred thousand, and nobody else is answered meanwhile."""
    many = {f"a{number}": 1 for number in range(1000)}
    config = Config.of({"algorithm": "nsauc", "features": {"kind": "dense", "dim": 3}})
    for change in (many, {"threshold": many}):
        with pytest.raises(InvalidInput) as refused:
            config.with_changes(change)
        assert len(refused.value.problems) == 100
    with pytest.raises(InvalidInput) as refused:
        GroupConfig.of({"learners": ["a"] * 1000})
    assert [problem.pointer for problem in refused.value.problems][:2] == ["/learners", "/learners/1"]
    assert len(refused.value.problems) == 8
    with pytest.raises(InvalidInput) as refused:
        config.with_changes({"figures": {"segments": ["a"] * 1000}})
    assert len(refused.value.problems) == 16
