"""The words of the library's errors and of its reasons for undefined metrics. Other tests look at pointers and classes.

A changed sentence changes one row here.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from learners import CostChoice, ThresholdReview, create
from learners.algorithms._pairwise_hinge import PairLoss
from learners.algorithms.auc import cbr_diag
from learners.algorithms.baselines import oam, ranksvm, svc
from learners.algorithms.ordinal import npsvor, npsvor_batch
from learners.comparison import ComparedBatch
from learners.config import Config
from learners.decisions.threshold import Threshold
from learners.explain import explain_scores
from learners.features import kernel_approximation
from learners.features.feature_kinds import Dense, SparseColumns
from learners.features.kernel_approximation import Embedding
from learners.features.labels import Labels
from learners.features.named import Field, Named, Table
from learners.metrics import definitions
from learners.metrics.binary import BinaryMetrics
from learners.metrics.definitions import NO_SPREAD, MetricSettings, Undefined
from learners.metrics.history import ROWS, MetricHistory
from learners.metrics.ordinal import RankMetrics
from learners.metrics.ranking import ranking_figures
from learners.metrics.stream_stats import StreamStats
from learners.numerics.arrays import Sparse
from learners.settings import InvalidInput, Problem, show
from tests.learners.metrics.test_cumulative import Events, sketched
from tests.learners.metrics.test_definitions import RANKED
from tests.learners.metrics.test_history import impossible
from tests.learners.metrics.test_stream_stats import Step, feed
from tests.learners.streams import as_sparse, run, stream
from tests.learners.test_comparison import compared, cut, record
from tests.learners.test_settings import Sample

X, Y = stream(4, 3, seed=0)
RANKS = np.array([1.0, 2.0, 1.0, 2.0])
NOTHING: Any = None
NO_DELAY, NO_SERVED = "no label with a known delay", "no served events"
TWO, NO_TIME = "fewer than two labelled events with a time", "no time has passed"
EMBEDDING = Embedding(kind="nystroem", components=2)


def learn_other_rows(algorithm: Any, labels: Any) -> None:
    """Learn dense rows, then sparse ones."""
    params = algorithm.Params()
    state, _ = run(algorithm, params, X, labels, dim=3)
    algorithm.learn(params, state, as_sparse(X), labels, np.ones(4), np.empty(4))


def fit(algorithm: Any, labels: Any) -> None:
    """Fit a batch algorithm to four rows with these labels."""
    algorithm.fit(algorithm.Params(), X, 3, np.asarray(labels, dtype=np.float64), np.ones(4), 0)


def history(columns: tuple[str, ...] = ("events", "clock", "served")) -> MetricHistory:
    """Return an empty history with a row every ten events."""
    return MetricHistory(columns, 10)


ERRORS: list[tuple[Callable[[], Any], str]] = [
    (lambda: learn_other_rows(cbr_diag, Y), "this state holds dense rows; it cannot learn sparse ones"),
    (lambda: learn_other_rows(oam, Y), "this state holds dense rows; it cannot learn sparse ones"),
    (lambda: learn_other_rows(npsvor, RANKS), "this state holds dense rows; it cannot learn sparse ones"),
    (lambda: fit(ranksvm, np.ones(4)), "no event of positive weight has the label -1; a ranking needs both classes"),
    (lambda: fit(svc, np.ones(4)), "the events with a weight above 0 are of one rank or none; expected at least two"),
    (lambda: fit(svc, [1.0, 2.0, 3.0, 2.5]), "a label is not a rank; expected whole numbers from 1 to 5"),
    (
        lambda: PairLoss(np.ones(2), np.ones(2)),
        "no event of positive weight has the label -1; a ranking needs both classes",
    ),
    (
        lambda: kernel_approximation.fit(EMBEDDING, np.zeros((0, 3)), 1),
        "no rows; expected at least one to fit an embedding to",
    ),
    (
        lambda: kernel_approximation.transform(EMBEDDING, kernel_approximation.fit(EMBEDDING, X, 1), X[:, :2]),
        "rows have 2 columns; expected 3, as in the fit",
    ),
    (lambda: history(("events", "clock")), "the first columns are ('events', 'clock'); expected events, clock, served"),
    (lambda: history().add(np.array([20.0, 0.0, 0.0])), "a row of 20 steps; expected 10"),
    (lambda: history().view().points(step=0.0), "step is 0.0; expected more than 0"),
    (lambda: create("nbauc", dim=2).fit(), "there are no events to fit to"),
    (
        lambda: fit(npsvor_batch, np.full(4, 3.0)),
        "of the events with a weight above 0 all have rank 3; expected events of at least two ranks",
    ),
    (
        lambda: npsvor_batch.fit(npsvor_batch.Params(), X, 3, RANKS, np.zeros(4), 0),
        "of the events with a weight above 0 there are none; expected events of at least two ranks",
    ),
]
PROBLEMS: list[tuple[Callable[[], Any], list[tuple[str, str]]]] = [
    (
        lambda: Threshold.of({"objective": "fixed", "memory": 500, "target": 0.1}),
        [
            (
                "/memory",
                "is for f1-window, fbeta, jaccard, fpr, precision, recall, optroc, budget; the objective is fixed",
            ),
            ("/target", "is for fpr, precision, recall; the objective is fixed"),
        ],
    ),
    (
        lambda: Dense(dim=2).encode(np.array([[np.nan, 0.0], [0.0, np.inf]])),
        [("/0/0", "is nan; expected a finite number"), ("/1/1", "is inf; expected a finite number")],
    ),
    (
        lambda: SparseColumns(dim=9).encode(Sparse(np.ones(1), np.zeros(1, np.int32), np.array([0, 1]))),
        [("", "is not a CSR matrix: expected float64 data, int64 indices and int64 row ends")],
    ),
    (
        lambda: Named().encode([{"a": ["x"] * (2**16 + 1)}]),
        [("/0/a", "brings the event to more than 65536 features; expected at most so many")],
    ),
    (
        lambda: compared(record(20, seed=0)).apply(record(20, seed=1, m=2)),
        [("/scores", "has shape (20, 2); expected (20, 3)")],
    ),
    (lambda: create("cbr", dim=2).fit(X, Y), [("", "cbr learns from each event: use learn")]),
    (
        lambda: create("oam", dim=3, precision="single"),
        [("/precision", "is 'single'; expected one of float64, float32")],
    ),
    (
        lambda: create("oam", dim=3).config.with_changes({"precision": "float32"}),
        [("/precision", "unknown or unchangeable setting; expected one of threshold, figures, late")],
    ),
    (
        lambda: Config.of({"algorithm": "npsvor", "features": {"kind": "sparse", "dim": 5000}}).encode(
            [(list(range(2000)), [1.0] * 2000)]
        ),
        [("/0", "has 2000 columns; expected at most 1048 because 1000 events are stored")],
    ),
    (
        lambda: Sample.of({"other": 1}),
        [
            ("/other", "unknown setting; expected one of count, flag, kind, limit, names, share"),
            ("/count", "is missing"),
        ],
    ),
    (lambda: Sample.of(NOTHING), [("", "is null; expected an object")]),
]


NUMBER, MAGNITUDE = "expected a finite number", "expected at most 1e+30 in magnitude"
TABLE = Table(fields=(Field("amount", "numeric"), Field("country", "categorical"), Field("fee", "numeric")))
DENSE, SPARSE, NAMED = Dense(dim=2), SparseColumns(dim=10), Named(categorical=("c",), log=("log",))
EVENTS: list[tuple[Any, Any, str, str]] = [  # features, an event, a pointer from it on, and what is wrong
    (DENSE, [1.0], "", "has 1 numbers; expected 2"),
    (DENSE, np.array(1.0), "", "is array(1.); expected a list of 2 numbers"),
    (DENSE, {"x": 1}, "", "is {'x': 1}; expected a list of 2 numbers"),
    (DENSE, [1.0, -np.inf], "/1", f"is -inf; {NUMBER}"),
    (DENSE, [-2e30, 1.0], "/0", f"is -2e+30; {MAGNITUDE}"),
    (DENSE, [1.0, None], "/1", "is null; expected a number"),
    (DENSE, [1.0, True], "/1", "is true; expected a number"),
    (SPARSE, ([5, 3], [1, 1]), "/indices/1", "is 3 after 5; expected ascending, distinct columns"),
    (SPARSE, ([10], [1]), "/indices/0", "is 10; expected a whole number from 0 to 9"),
    (SPARSE, (["1"], [1]), "/indices/0", "is '1'; expected a whole number from 0 to 9"),
    (SPARSE, ([1, 2], [1]), "/values", "has 1 numbers for 2 indices"),
    (SPARSE, (3, [1]), "/indices", "is 3; expected a list of columns"),
    (SPARSE, ([1], "1"), "/values", "is '1'; expected a list of numbers"),
    (SPARSE, ([1], [np.nan]), "/values/0", f"is nan; {NUMBER}"),
    (SPARSE, ([1], [2e30]), "/values/0", f"is 2e+30; {MAGNITUDE}"),
    (SPARSE, ([1], ["1"]), "/values/0", "is '1'; expected a number"),
    (SPARSE, (list(range(65_537)), [1] * 65_537), "/indices", "has 65537 columns; expected at most 65536"),
    (SPARSE, [1], "", "is [1]; expected a pair: indices and values"),
    (NAMED, [["a", 1]], "", "is [['a', 1]]; expected an object of names and values"),
    (NAMED, {"a": 2e30}, "/a", f"is 2e+30; {MAGNITUDE}"),
    (NAMED, {"a": {"x": 1}}, "/a", "is a map of 1; expected a number, string, boolean, list of tokens or null"),
    (NAMED, {"a": b"x"}, "/a", "is b'x'; expected a number, string, boolean, list of tokens or null"),
    (NAMED, {"a": ["x", None]}, "/a/1", "is null; expected a string, number or boolean"),
    (NAMED, {"log": "twelve"}, "/log", "is 'twelve'; expected a number or null, as its log is taken"),
    (NAMED, {"n" * 257: 1}, "/" + "n" * 200, "is a name of 257 characters; expected at most 256"),
    (NAMED, {"a": 1, " a": 2}, "/ a", "is the name of another field, too, once trimmed and in form NFC"),
    (TABLE, {"ammount": 1}, "/ammount", "is not declared; declared fields are amount, country, fee"),
    (TABLE, {"amount": "12 EUR"}, "/amount", "is '12 EUR'; expected a number or null"),
    (TABLE, {"fee": 2e30}, "/fee", f"is 2e+30; {MAGNITUDE} or null"),
    (TABLE, {"country": ["DE"]}, "/country", "is a list of 1; expected a string, boolean, finite number or null"),
    (
        Table(fields=TABLE.fields, extra="ignore"),
        {"Amount": 1.0},
        "",
        "has none of the declared fields, which are amount, country, fee",
    ),
]
SETTINGS: list[tuple[str, Any, str]] = [  # of `Sample`
    ("count", 0, "is 0; expected at least 1"),
    ("count", 1_000_001, "is 1000001; expected at most 1000000"),
    ("count", 1.5, "is 1.5; expected a whole number"),
    ("count", None, "is null; expected a whole number"),
    ("share", 0, "is 0; expected more than 0"),
    ("share", 1.0, "is 1; expected less than 1"),
    ("share", np.nan, "is nan; expected a finite number"),
    ("share", [0.5], "is [0.5]; expected a finite number"),
    ("kind", "c", "is 'c'; expected one of a, b"),
    ("limit", "much", "is 'much'; expected a finite number or null"),
    ("flag", 1, "is 1; expected true or false"),
    ("names", "x", "is 'x'; expected a list, each item a string (of valid Unicode)"),
    ("names/1", ["x", 1], "is 1; expected a string (of valid Unicode)"),
    ("names/0", ["\ud800"], "is '\\ud800'; expected a string (of valid Unicode)"),
]
LABELS: list[tuple[Labels, Any, str, str]] = [
    (Labels(), [1, 2], "/labels/1", "is 2; expected -1, 0 or 1, or a boolean"),
    (Labels(), np.array(["0"]), "/labels/0", "is np.str_('0'); expected -1, 0 or 1, or a boolean"),
    (Labels(), "01", "/labels", "is '01'; expected a list of labels"),
    (Labels(ranks=3), [1, 4], "/labels/1", "is 4; expected a rank: a whole number from 1 to 3"),
]
EXPLAINED: list[tuple[str, int, Any, str, str]] = [  # algorithm, events, features of each, pointer and what is wrong
    ("redsvm", 1, 1, "", "explanations are for learners of two classes; redsvm predicts ranks"),
    ("oam", 1, 0, "/explain", "is 0; expected a whole number from 1 to 1000"),
    ("oam", 101, 1000, "/explain", "is 1000 for each of 101 events; expected at most 100000 features in all"),
]


def details(action: Callable[[], Any]) -> list[tuple[str, str]]:
    """Return pointer and detail of all problems of a refused action."""
    with pytest.raises(InvalidInput) as caught:
        action()
    return [(problem.pointer, problem.detail) for problem in caught.value.problems]


def test_events() -> None:
    for features, event, pointer, detail in EVENTS:
        assert details(lambda features=features, event=event: features.encode([event])) == [(f"/0{pointer}", detail)]


def test_settings_and_labels() -> None:
    for path, value, detail in SETTINGS:
        name = path.partition("/")[0]
        assert details(lambda name=name, value=value: Sample.of({"count": 1, name: value})) == [(f"/{path}", detail)]
    for kind, labels, pointer, detail in LABELS:
        assert details(lambda kind=kind, labels=labels: kind.read(labels)) == [(pointer, detail)]


@pytest.mark.parametrize(
    ("field", "detail"),
    [
        ("body", "is 'body', which is declared as text; expected a feature whose numbers are amounts"),
        ("shop", "is 'shop', which is declared as categorical; expected a feature whose numbers are amounts"),
        ("f" * 257, "has 257 characters; expected at most 256"),
    ],
)
def test_cost_fields(field: str, detail: str) -> None:
    features = {"kind": "named", "text": ["body"], "categorical": ["shop"]}
    threshold = {"objective": "cost", "field": field}
    config = Config.of({"algorithm": "fofo", "features": features, "threshold": threshold})
    assert [(problem.pointer, problem.detail) for problem in config.objections()] == [("/threshold/field", detail)]


WARNINGS = [
    (
        {"algorithm": "nsauc", "features": {"kind": "dense", "dim": 2}},
        "is nsauc, whose steps shrink from the first pair on: if few positives come early, they set its direction, "
        "and it may rank worse than chance; choose auto, unless classes are balanced",
    ),
    (
        {"algorithm": "loam-ada", "features": {"kind": "named", "text": ["subject", "body"]}},
        "declares text (subject, body), but loam-ada compares means of classes, which say little of rare words; "
        "choose auto, or fofo for the lowest cost",
    ),
    (
        {"algorithm": "cbr", "features": {"kind": "dense", "dim": 2}},
        "is cbr, whose score has no intercept: if the share of positives moves, scores of different times do not "
        "compare, and it may rank worse than chance; choose auto, unless the share is steady",
    ),
]


@pytest.mark.parametrize(("values", "detail"), WARNINGS)
def test_warnings(values: dict[str, Any], detail: str) -> None:
    assert [warning.detail for warning in Config.of(values).warnings()] == [detail]


def test_explanations() -> None:
    for algorithm, n, k, pointer, detail in EXPLAINED:
        scorer = create(algorithm, dim=1, **({"ranks": 3} if algorithm == "redsvm" else {})).scorer()
        assert details(lambda scorer=scorer, n=n, k=k: explain_scores(scorer, [[1.0]] * n, k)) == [(pointer, detail)]


@pytest.mark.parametrize(("action", "sentence"), ERRORS)
def test_errors(action: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the sentence is compared)
        action()
    assert str(caught.value) == sentence


@pytest.mark.parametrize(("action", "problems"), PROBLEMS)
def test_problems(action: Callable[[], Any], problems: list[tuple[str, str]]) -> None:
    with pytest.raises(InvalidInput) as caught:
        action()
    assert [(problem.pointer, problem.detail) for problem in caught.value.problems] == problems


def test_all_problems_are_one_sentence() -> None:
    assert str(InvalidInput([Problem("/a", "is bad"), Problem("", "is worse")])) == "/a: is bad; is worse"


def taught(algorithm: str, labels: list[float], **settings: Any) -> Any:
    """Return a learner of one column that learnt these labels."""
    learner = create(algorithm, dim=1, **settings)
    if labels:
        learner.learn([[1.0]] * len(labels), labels)
    return learner


def test_reasons_why_a_learner_is_not_ready() -> None:
    assert taught("cbr", []).view().not_ready == "no labelled event has been learnt yet"
    assert taught("cbr", [0]).view().not_ready == "no labelled positive has been learnt yet"
    assert taught("cbr", [1]).view().not_ready == "no labelled negative has been learnt yet"
    assert taught("npsvor", [4]).view().not_ready == "only events of rank 4 have been learnt yet"
    assert (
        taught("oam", [0, 1], embedding={"kind": "nystroem", "warmup": 500}).view().not_ready
        == "the embedding is fitted after 500 labelled events; linear until then"
    )
    waiting = taught("ranksvm", [], refit_every=100, refit_window=120)
    assert waiting.view().pending_fit == "the first fit comes after 100 labelled events"
    waiting.learn([[1.0]] * 200, [0] * 200)
    assert waiting.view().not_ready == "no labelled positive has been learnt yet"


def test_reasons_of_undefined_metrics() -> None:
    empty = BinaryMetrics(10, 60.0).view().as_json()["undefined"]
    ranks = RankMetrics(5, None, 3).view().as_json()["undefined"]
    for undefined, metric in ((empty, "auc"), (ranks, "mae")):
        assert undefined[f"/window/{metric}"] == "no labelled events in the window"
        assert undefined[f"/since_start/{metric}"] == "no labelled events yet"
    assert empty["/served/alert_rate"] == "no served events yet"
    assert empty["/clock"] == "no event and no label with a time yet"
    figures = taught("cbr", [0]).figures()["undefined"]
    assert figures["/threshold"] == "no labelled positive has been learnt yet"
    assert figures["/window/f1"] == "no positive in the window"


def test_reasons_of_thresholds_without_figures() -> None:
    learner = create("fofo", dim=2, threshold={"objective": "cost", "field": "0"})
    learner.learn(np.ones((3, 2)), np.zeros(3))
    undefined = ThresholdReview.of(learner).points(2, CostChoice())["undefined"]
    assert undefined["/costs"] == undefined["/points/cost"]
    assert undefined == undefined | {
        "/points/recall": "no positive in the window",
        "/points/cost": "the cost of a missed positive depends on '0', and the window has no values of features",
        "/points/alerts_per_day": "fewer than two labelled events with a time in the window",
        "/live": "no labelled positive has been learnt yet",
    }
    preview = ThresholdReview.of(learner).preview(learner.config, CostChoice())["undefined"]
    assert preview["/preview"] == "decisions depend on '0', and the window has no values of features"
    learner = create("fofo", dim=2)
    empty = ThresholdReview.of(learner).points(2, CostChoice())["undefined"]
    assert empty["/points"] == empty["/actual/cost"] == "no labelled events in the window"


@pytest.mark.parametrize(
    ("negatives", "positives", "reasons"),
    [
        (0, 0, dict.fromkeys(RANKED[:-1], "no labelled events")),
        (4, 0, dict.fromkeys(RANKED, "no positives")),
        (0, 4, dict.fromkeys([name for name in RANKED[:-1] if name != "average_precision"], "no negatives")),
        (4, 1, {"auc_interval": "only one positive"}),
        (1, 4, {"auc_interval": "only one negative"}),
        (1, 1, {"auc_interval": "only one negative"}),
        (2, 2, {"auc_interval": NO_SPREAD}),
    ],
)
@pytest.mark.parametrize(("scope", "where"), [("window", "in the window"), ("since_start", "yet")])
def test_reasons_name_the_missing_class(
    negatives: int, positives: int, reasons: dict[str, str], scope: str, where: str
) -> None:
    undefined = Undefined(scope, {})
    result = ranking_figures(np.zeros(negatives), np.zeros(positives), MetricSettings(k=4), undefined)
    if negatives + positives < 4:
        reasons = reasons | {"precision_at_k": "fewer than 4 labelled events"}
    assert undefined.reasons == {f"/{scope}/{name}": f"{reason} {where}" for name, reason in reasons.items()}
    assert {name for name, value in result.items() if value is None} == set(reasons)


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        ([], "no labelled events yet"),
        ([False, False], "no positives yet"),
        ([True, True], "no negatives yet"),
        ([True, False, False], "only one positive yet"),
        ([True, True, False], "only one negative yet"),
        ([True, True, False, False], f"{NO_SPREAD} yet"),
    ],
)
def test_reasons_of_a_sketch_without_an_interval(labels: list[bool], reason: str) -> None:
    _, undefined = sketched(Events(np.arange(len(labels)), labels)).view().figures(MetricSettings(k=4))
    assert undefined["/since_start/auc_interval"] == reason


@pytest.mark.parametrize(
    ("name", "place", "value", "sentence"),
    [
        ("count", 0, -1, f"has numbers from -1 to -1; expected 0 to {2 * 2**53 // 10}"),
        ("count", 0, 64, "is 64, which needs 1 levels, not 2"),
        ("count", 0, 200, "is 200, which needs 3 levels, not 2"),
        ("rows", 0, 5.0, "has steps in level 0 that are not those of rows 1 strides apart"),
        ("rows", 4 * (ROWS + 1), np.nan, "has steps in level 1 that are not those of rows 2 strides apart"),
        ("rows", 4 * 7 + 2, 1.0, "has steps in level 0 that are not those of rows 1 strides apart"),
        ("rows", 3, np.inf, "has infinite numbers"),
        ("rows", 4 * 7 + 1, 1e9, "has a clock that goes back in level 0"),
        ("rows", 4 * 7 + 1, np.nan, "has a clock that goes back in level 0"),
    ],
)
def test_impossible_histories(name: str, place: int, value: float, sentence: str) -> None:
    assert impossible(name, place, value) == [(name, sentence)]


@pytest.mark.parametrize(
    ("confusion", "reasons"),
    [
        ((0, 0, 0, 0), {"accuracy": "no labelled events", "mcc": "no labelled events"}),
        ((5, 0, 0, 0), {"f1": "no positive", "recall": "no positive", "mcc": "no positives"}),
        ((5, 3, 0, 0), {"f1": "no positive", "fbeta": "no positive", "recall": "no positive", "mcc": "no positives"}),
        ((0, 0, 0, 5), {"fpr": "no negative", "mcc": "no negatives"}),
        ((5, 0, 2, 0), {"precision": "no positive was predicted", "mcc": "no positive was predicted"}),
        ((0, 5, 0, 2), {"mcc": "no negative was predicted"}),
        ((3, 1, 2, 4), {}),
    ],
)
def test_reasons_for_undefined_ratios(confusion: tuple[int, int, int, int], reasons: dict[str, str]) -> None:
    undefined = Undefined("window", {})
    result = definitions.confusion_figures(confusion, 0.5, undefined)
    assert set(undefined.reasons) == {f"/window/{name}" for name, value in result.items() if value is None}
    for name, reason in reasons.items():
        assert undefined.reasons[f"/window/{name}"] == f"{reason} in the window"
    if not reasons:
        assert not undefined.reasons


def test_undefined_metrics_have_a_reason() -> None:
    traffic = StreamStats(5, None)
    figures, undefined = traffic.view().figures("window")
    assert figures == {
        "label_delay_median": None,
        "label_delay_p90": None,
        "label_coverage": None,
        "events_per_second": None,
        "served": 0,
        "served_alert_rate": None,
    }
    reasons = dict.fromkeys(["label_delay_median", "label_delay_p90"], NO_DELAY)
    reasons |= dict.fromkeys(["label_coverage", "served_alert_rate"], NO_SERVED) | {"events_per_second": TWO}
    assert undefined == {f"/window/{name}": f"{reason} in the window" for name, reason in reasons.items()}
    since = {f"/since_start/{name}": f"{reason} yet" for name, reason in reasons.items()}
    assert traffic.view().figures("since_start")[1] == since | {"/since_start/label_delay_error": f"{NO_DELAY} yet"}
    feed(traffic, [Step(3.0, labelled=True)] * 3)
    assert traffic.view().figures("window")[1]["/window/events_per_second"] == f"{NO_TIME} in the window"


@pytest.mark.parametrize(
    ("labels", "reason", "intervals"),
    [
        ([], "no events in the window", True),
        ([-1, -1], "no positives in the window", True),
        ([1], "no negatives in the window", True),
        ([1, -1, -1], "fewer than two events of a class in the window", False),
    ],
)
def test_undefined_values_state_their_reason(labels: list[int], reason: str, intervals: bool) -> None:
    n = len(labels)
    batch = ComparedBatch(np.zeros(n, np.uint64), np.array(labels, float), np.ones((n, 2)), np.full(n, np.nan))
    reported = compared(batch).view().as_json()
    pointers = [f"/window/{place}" for place in ("auc/a", "auc/b", "differences/0")]
    keys = ["auc", "auc", "difference"]
    expected = [f"{place}/interval" for place in pointers]
    if intervals:
        expected += [f"{place}/{key}" for place, key in zip(pointers, keys, strict=True)]
    assert reported["undefined"] == dict.fromkeys(expected, reason)
    assert reported["clock"] is None
    json.dumps(reported, allow_nan=False)


def test_verdicts_of_a_comparison_in_words() -> None:
    random = np.random.default_rng(6)
    labels = np.where(random.random(4000) < 0.2, 1.0, -1.0)
    scores = random.normal(size=(4000, 2)) + labels[:, None] * np.array([0.1, 0.8])
    batch = ComparedBatch(np.zeros(4000, np.uint64), labels, scores, np.arange(4000.0))
    turned = compared(batch)
    turned.apply(ComparedBatch(batch.hashes, -labels, scores, batch.clocks))
    for comparison, sentence in (
        (compared(batch), "b is better: evidence 10^40 to 1 since event 191"),
        (compared(cut(batch, 0, 191)), "b is better: evidence 44 to 1 since event 191"),
        (compared(cut(batch, 0, 10)), "not decided: evidence 1 to 1 for one of them; 40 to 1 decides"),
        (turned, "b was better: evidence reached 40 to 1 at event 191 and is 0.22 to 1 now"),
    ):
        assert [test["words"] for test in comparison.view().as_json()["tests"]] == [sentence]


def test_quotes_of_large_values() -> None:
    assert show(-(10**2000)) == "a number of 6644 bits"
