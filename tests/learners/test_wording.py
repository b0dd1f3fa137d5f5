"""The words of the library's errors and of its reasons for undefined metrics. Other tests look at pointers and classes.

A changed sentence changes one row here.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from learners import create
from learners.algorithms._pairwise_hinge import PairLoss
from learners.algorithms.auc import cbr_diag
from learners.algorithms.baselines import oam, ranksvm, svc
from learners.algorithms.ordinal import npsvor
from learners.comparison import ComparedBatch
from learners.config import Config
from learners.decisions.threshold import Threshold
from learners.features import kernel_approximation
from learners.features.feature_kinds import Dense, SparseColumns
from learners.features.kernel_approximation import Embedding
from learners.features.named import Named
from learners.metrics import definitions
from learners.metrics.binary import BinaryMetrics
from learners.metrics.definitions import NO_SPREAD, MetricSettings, Undefined
from learners.metrics.history import MetricHistory
from learners.metrics.ordinal import RankMetrics
from learners.metrics.ranking import ranking_figures
from learners.metrics.stream_stats import StreamStats
from learners.numerics.arrays import Sparse
from learners.settings import InvalidInput, Problem, show
from tests.learners.metrics.test_definitions import RANKED
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
        lambda: kernel_approximation.look(EMBEDDING, kernel_approximation.fit(EMBEDDING, X, 1), X[:, :2]),
        "rows have 2 columns; expected 3, as in the fit",
    ),
    (lambda: history(("events", "clock")), "the first columns are ('events', 'clock'); expected events, clock, served"),
    (lambda: history().add(np.array([20.0, 0.0, 0.0])), "a row of 20 steps; expected 10"),
    (lambda: history().view().points(step=0.0), "step is 0.0; expected more than 0"),
    (lambda: create("nbauc", dim=2).fit(), "there are no events to fit to"),
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
        lambda: Named(text=("a",)).encode([{"a": "x " * 2**16}]),
        [("/0", "has more than 65536 features; expected at most so many")],
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
