"""The sketch: bounds that hold for any scores, exact sums, and parts that add up."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import digamma
from sklearn import metrics as sk

from learners.metrics.cumulative import SCORE_BINS, CumulativeSketch, score_bin
from learners.metrics.definitions import NO_SPREAD, MetricSettings
from learners.metrics.ranking_from_bins import reciprocals
from tests.learners.metrics.naive_metrics import ranking_figures

State = dict[str, NDArray[Any]]
RANKED = ("auc", "average_precision", "partial_auc", "ks", "recall_at_fpr", "precision_at_k")


class Events:
    """Predictions of some events by column, and their labels as bools."""

    def __init__(self, scores: Any, label: Any, probabilities: Any = None, decisions: Any = None) -> None:
        self.scores = np.array(scores, dtype=np.float64)
        self.label = np.array(label, dtype=np.bool_)
        n = len(self.scores)
        self.probabilities = np.full(n, 0.5) if probabilities is None else np.array(probabilities, dtype=np.float64)
        self.decisions = np.zeros(n, dtype=np.int64) if decisions is None else np.array(decisions, dtype=np.int64)

    def __getitem__(self, cut: Any) -> Events:
        return Events(self.scores[cut], self.label[cut], self.probabilities[cut], self.decisions[cut])


def sketched(events: Events, into: CumulativeSketch | None = None) -> CumulativeSketch:
    sketch = into or CumulativeSketch()
    y = np.where(events.label, 1.0, -1.0)
    sketch.learn(events.scores, events.probabilities, y, events.decisions)
    return sketch


def stream(n: int, seed: int, scale: float = 1.0, share: float = 0.2) -> Events:
    random = np.random.default_rng(seed)
    label = random.random(n) < share
    margin = random.normal(size=n) + 1.5 * label
    probabilities = 1 / (1 + np.exp(1.5 - margin))
    return Events(scale * margin, label, probabilities, probabilities > 0.4)


def exact(events: Events, settings: MetricSettings) -> dict[str, float | None]:
    """Compute the ranking metrics from their definitions; None if undefined."""
    return ranking_figures(events.label, np.where(np.isnan(events.scores), 0.0, events.scores), settings)


def check_bounds(events: Events, settings: MetricSettings) -> dict[str, Any]:
    """Check that every metric is within its stated error; return the metrics."""
    figures, undefined = sketched(events).view().figures(settings)
    for name, value in exact(events, settings).items():
        estimate, error = figures[name], figures[f"{name}_error"]
        if value is None:
            assert estimate is None
            assert error is None
            assert f"/since_start/{name}" in undefined
            assert f"/since_start/{name}_error" in undefined
        else:
            assert 0.0 <= error <= 1.0, name
            assert -1e-12 <= estimate <= 1 + 1e-12, name
            assert abs(estimate - value) <= error + 1e-12, name
    json.dumps(figures, allow_nan=False)
    return figures


any_float = st.floats(allow_nan=True, allow_infinity=True)
odd = st.sampled_from(
    [0.0, -0.0, 5e-324, -5e-324, 2.0**-24, -(2.0**-24), 2.0**-25, 2.0**16, -(2.0**16), 1e300, -1e300, 65535.9, math.nan]
)
few = st.integers(-2, 2).map(float)  # heavy ties
near = st.sampled_from([1.0, 1.01, 1.02, 1.03, 1.04, 1.05, 1.07, 1.1])  # most of them share a bin
scores = st.one_of(any_float, odd, few, near, st.floats(-9, 9))
limits = st.sampled_from([0.05, 0.25, 0.5, 1.0, 1e-9]) | st.floats(0.01, 1.0)


@given(
    st.lists(st.tuples(scores, st.booleans()), max_size=60)
    | st.lists(st.tuples(near, st.booleans()), max_size=60)
    | st.lists(st.tuples(st.just(1.5), st.booleans()), max_size=60),
    limits,
    st.integers(1, 30),
)
@example([(1.0, True), (1.0, False)], 0.5, 1)
@example([(1e-300, True), (-1e-300, False)], 1.0, 2)
@example([(1.0, True)] * 40, 0.05, 7)
@example([(1.0, False)] * 40, 0.05, 7)
@example([], 0.05, 1)
@settings(max_examples=120)
def test_every_metric_is_within_its_error_for_any_scores(
    events: list[tuple[float, bool]], max_fpr: float, k: int
) -> None:
    check_bounds(
        Events([score for score, _ in events], [flag for _, flag in events]), MetricSettings(max_fpr=max_fpr, k=k)
    )


@pytest.mark.parametrize("seed", range(12))
def test_the_error_bounds_hold_with_many_events_in_a_bin(seed: int) -> None:
    random = np.random.default_rng(seed)
    n = 3000
    label = random.random(n) < random.choice([0.01, 0.3, 0.9])
    wide = random.normal(size=n) * 0.4 + label * random.choice([-0.5, 0.0, 0.5])
    for scores_ in (1.5 + wide, np.round(1.5 + wide, 1), 1.0 + 0.05 * (wide > 0), np.where(label, 1.01, 1.02), wide**9):
        check_bounds(Events(scores_, label), MetricSettings(max_fpr=float(random.choice([0.01, 0.1, 0.7])), k=200))


@pytest.mark.parametrize(("above", "p", "n"), [(0, 1, 1), (0, 40, 40), (3, 30, 7), (50, 5, 200), (2, 100, 0)])
def test_the_error_bounds_are_tight(above: int, p: int, n: int) -> None:
    """`above` events of each class, then a bin with its positives on top and tied, or below and distinct."""
    settings_ = MetricSettings(
        max_fpr=(above + n / 3) / (above + n) if above + n else 0.5, k=2 * above + (p + n) // 2 + 1
    )
    top = [*np.linspace(40.0, 50.0, above), *np.linspace(20.0, 30.0, above)]
    label = [*([True] * above), *([False] * above), *([True] * p), *([False] * n)]
    best = Events([*top, *([1.05] * p), *([1.01] * n)], label)
    worst = Events([*top, *np.linspace(1.001, 1.01, p), *([1.05] * n)], label)
    figures = check_bounds(best, settings_)
    assert {score_bin(score) for score in (1.001, 1.05)} == {score_bin(1.0)}
    for name, error in ((name, figures[f"{name}_error"]) for name in RANKED if figures[name] is not None):
        distances = [abs(exact(events, settings_)[name] - figures[name]) for events in (best, worst)]  # type: ignore[operator]
        assert error == pytest.approx(max(distances), rel=1e-3, abs=1e-12), name


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_metrics_are_accurate_on_ordinary_scores(scale: float) -> None:
    events, settings_ = stream(20_000, seed=1, scale=scale), MetricSettings()
    figures = check_bounds(events, settings_)
    tolerances = (0.0005, 0.002, 0.002, 0.006, 0.005, 0.02)
    for (name, value), tolerance in zip(exact(events, settings_).items(), tolerances, strict=True):
        assert figures[name] == pytest.approx(value, abs=tolerance), name
        assert figures[f"{name}_error"] < 0.1, name
    assert figures["auc_error"] < 0.005


@pytest.mark.parametrize("levels", [2, 5, 300])
def test_scores_in_separate_bins_per_class_give_exact_metrics(levels: int) -> None:
    random = np.random.default_rng(levels)
    level = random.integers(0, levels, 400)
    label = level % 2 == 1
    events, settings_ = (
        Events(np.ldexp(1.03 + level % 16 / 16, level // 16 - 9), label),
        MetricSettings(k=17, max_fpr=0.3),
    )
    figures = check_bounds(events, settings_)
    for name, value in exact(events, settings_).items():
        if name != "average_precision":  # which tells ties from none, even among positives only
            assert figures[name] == pytest.approx(value, abs=1e-12), name


def delong(positives: NDArray[np.float64], negatives: NDArray[np.float64]) -> tuple[float, float]:
    """AUC and its variance, O(mn) (DeLong et al. 1988)."""
    pairs = (positives[:, None] > negatives) + 0.5 * (positives[:, None] == negatives)
    v10, v01 = pairs.mean(axis=1), pairs.mean(axis=0)
    return float(pairs.mean()), float(v10.var(ddof=1) / len(v10) + v01.var(ddof=1) / len(v01))


def test_the_interval_is_that_of_delong_widened_by_the_error() -> None:
    for events in (stream(500, seed=2), Events(np.arange(40) % 7 + 1.0, np.arange(40) % 3 == 0)):
        bins = np.array([score_bin(score) for score in events.scores], dtype=np.float64)
        auc, variance = delong(bins[events.label], bins[~events.label])
        figures = sketched(events).view().figures(MetricSettings())[0]
        reach = 1.959963984540054 * math.sqrt(variance) + figures["auc_error"]
        assert figures["auc_interval"] == pytest.approx([max(auc - reach, 0), min(auc + reach, 1)], abs=1e-12)
    perfect, undefined = (
        sketched(Events([1.0, 2.0, 3.0, 4.0], [False, False, True, True])).view().figures(MetricSettings())
    )
    assert perfect["auc"] == 1.0
    assert perfect["auc_interval"] is None
    assert undefined["/since_start/auc_interval"] == f"{NO_SPREAD} yet"


@pytest.mark.parametrize("n", [1, 2, 50, 3000])
def test_metrics_of_decisions_and_probabilities_are_exact(n: int) -> None:
    events = stream(n, seed=n, share=0.5)
    events.probabilities[: n // 10] = np.resize([0.0, 1.0, 1e-300, 1 / 3, 14 / 15, 5e-324], n // 10)
    figures = sketched(events).view().figures(MetricSettings(beta=2.0))[0]
    label, p = events.label.astype(float), events.probabilities
    bins = np.minimum((p * 15).astype(int), 14)
    apart = sum(abs((label - p)[bins == item].sum()) for item in range(15)) / n
    tn, fp, fn, tp = sk.confusion_matrix(events.label, events.decisions > 0, labels=[False, True]).ravel().tolist()
    assert figures["confusion"] == {"tp": tp, "fp": fp, "tn": tn, "fn": fn}
    expected = {
        "events": n,
        "f1": sk.f1_score(events.label, events.decisions) if fn + tp else None,
        "fbeta": sk.fbeta_score(events.label, events.decisions, beta=2.0) if fn + tp else None,
        "accuracy": (tp + tn) / n,
        "brier": ((label - p) ** 2).mean(),
        "log_loss": sk.log_loss(events.label, p, labels=[False, True]),
        "calibration_error": apart,
    }
    for name, value in expected.items():
        assert figures[name] == (None if value is None else pytest.approx(value, abs=1e-12)), name
    assert figures["class_counts"] == {"negative": int((~events.label).sum()), "positive": int(events.label.sum())}


def test_each_error_follows_its_metric() -> None:
    names = list(sketched(stream(300, seed=0)).view().figures(MetricSettings())[0])
    ranked = ["auc", "auc_error", "auc_interval"] + [x for name in RANKED[1:] for x in (name, f"{name}_error")]
    decided = ["f1", "fbeta", "precision", "recall", "fpr", "accuracy", "mcc", "alert_rate"]
    assert names == [
        "events",
        "class_counts",
        *ranked,
        *decided,
        "brier",
        "log_loss",
        "calibration_error",
        "confusion",
    ]


@pytest.mark.parametrize(
    ("label", "reason", "interval"),  # words of the reasons
    [
        ([], "events", "events"),
        ([False, False], "positives", "positives"),
        ([True, True], "negatives", "negatives"),
        ([True, False, False], None, "positive"),
        ([True, True, False], None, "negative"),
        ([True, True, False, False], None, NO_SPREAD),
        ([True, False, True, False], None, None),
        ([False, False, False, False], "positives", "positives"),
    ],
)
def test_an_undefined_metric_is_null_with_its_reason(
    label: list[bool], reason: str | None, interval: str | None
) -> None:
    figures, undefined = sketched(Events(np.arange(len(label)), label)).view().figures(MetricSettings(k=4))
    few = "4" if len(label) < 4 else None if any(label) else reason
    ranking = ("auc", "auc_error", "partial_auc", "partial_auc_error", "ks", "ks_error", "recall_at_fpr")
    expected = dict.fromkeys(ranking, reason) | {
        "auc_interval": interval,
        "average_precision": None if any(label) else reason,
        "precision_at_k_error": few,
    }
    for name, word in expected.items():
        stated = undefined.get(f"/since_start/{name}")
        assert stated is None if word is None else word in (stated or "")
    assert {pointer.removeprefix("/since_start/") for pointer in undefined} == {
        name for name, value in figures.items() if value is None
    }


def test_bins_are_ordered_by_score() -> None:
    sizes = np.concatenate([[0.0, 1e-320, 2.0**-24, 2.0**16, 1e308, np.inf], np.exp(np.linspace(-20, 14, 400))])
    bins = [score_bin(score) for score in np.sort(np.concatenate([-sizes, sizes]))]
    assert bins == sorted(bins)
    assert (bins[0], bins[-1]) == (0, SCORE_BINS - 1)
    assert len(set(bins)) > 600


@pytest.mark.parametrize("count", [0, 1, 16, 17, 33, 1000, 10**6])
@pytest.mark.parametrize("a", [0.0, 0.3, 1.0, 15.0, 500.5, 1e9])
def test_sums_of_reciprocals_are_slight_overestimates(a: float, count: int) -> None:
    full = float(digamma(a + count + 1) - digamma(a + 1)) if a < 1e6 else float(np.sum(1 / (a + np.arange(count) + 1)))
    assert full - 1e-12 <= reciprocals(a, count) <= full * (1 + 1e-3) + 1e-12


# State


def same(a: CumulativeSketch, b: CumulativeSketch) -> bool:
    return all(
        x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()
        for x, y in zip(a.state().values(), b.state().values(), strict=True)
    )


def restored(sketch: CumulativeSketch, state: State | None = None) -> CumulativeSketch:
    other = CumulativeSketch()
    other.restore({name: array.copy() for name, array in (state or sketch.state()).items()})
    return other


@given(st.lists(st.integers(0, 300), max_size=8))
@settings(max_examples=25)
def test_batching_is_invisible_and_a_restored_state_continues(cuts: list[int]) -> None:
    events = stream(300, seed=3)
    events.scores[::17] = np.nan
    full, cut = sketched(events), CumulativeSketch()
    for start, stop in pairwise([0, *sorted(cuts), 300]):
        cut = restored(sketched(events[start:stop], cut))
    assert same(full, cut)
    assert full.view().figures(MetricSettings()) == cut.view().figures(MetricSettings())
    assert full.events == 300
    assert list(full.problems(full.state())) == []


@given(st.lists(st.sampled_from([0, 1, 2, 3]), min_size=40, max_size=40), st.integers(0, 2**32 - 1))
@settings(max_examples=30)
def test_corrected_labels_count_as_if_they_were_original(changes: list[int], seed: int) -> None:
    events = stream(40, seed)
    sketch = sketched(events)
    final = events[:]
    for i, label in enumerate(changes):
        if label < 2:
            sketch.correct(
                int(final.label[i]), label, events.scores[i], events.probabilities[i], int(events.decisions[i])
            )
            final.label[i] = label
    assert same(sketch, sketched(final))


def test_a_reverted_event_leaves_no_trace() -> None:
    events = stream(50, seed=0)
    sketch = sketched(events)
    before = restored(sketch)
    for probability in (0.0, 1.0, 1e-300, 0.1, 1 / 3, 1 - 1e-16):
        sketch.correct(0, 1, math.nan, probability, 1)
        sketch.correct(1, 0, math.nan, probability, 1)
        assert same(sketch, before)


@given(st.integers(0, 200), st.integers(0, 200))
@settings(max_examples=20)
def test_sketches_of_parts_add_up_to_the_whole_in_any_order(first: int, second: int) -> None:
    events = stream(200, seed=9)
    low, high = sorted((first, second))
    parts = [sketched(events[:low]), sketched(events[low:high]), sketched(events[high:])]
    for order in ((0, 1, 2), (2, 0, 1), (1, 2, 0)):
        merged = CumulativeSketch()
        for i in order:
            merged.merge(parts[i])
        assert same(merged, sketched(events))


def test_sums_never_overflow_and_stay_exact() -> None:
    """A sketch added to itself over and over: 200 2^43 events."""
    events = stream(200, seed=4)
    sketch = sketched(events)
    once = sketch.view().frozen().figures(MetricSettings())[0]
    for _ in range(43):
        sketch.merge(restored(sketch))
    assert list(sketch.problems(sketch.state())) == []
    figures = sketch.view().figures(MetricSettings())[0]
    assert figures["events"] == 200 * 2**43
    for name in ("auc", "auc_error", "partial_auc", "ks", "recall_at_fpr", "f1", "mcc", "brier", "log_loss"):
        assert figures[name] == pytest.approx(once[name], abs=1e-12), name
    assert figures["calibration_error"] == pytest.approx(once["calibration_error"], abs=1e-12)
    assert figures["average_precision"] == pytest.approx(once["average_precision"], abs=0.05)
    assert 0 < figures["average_precision_error"] < 0.5
    assert figures["auc_interval"][1] - figures["auc_interval"][0] == pytest.approx(2 * figures["auc_error"], abs=1e-5)
    json.dumps(figures, allow_nan=False)


def test_a_restored_sketch_does_not_share_its_source_state() -> None:
    sketch, other = sketched(stream(50, seed=0)), CumulativeSketch()
    other.restore(sketch.state())
    sketched(stream(5, seed=1), other)
    assert same(sketch, sketched(stream(50, seed=0)))
    assert other.events == 55


def test_frozen_metrics_stay_and_live_metrics_follow() -> None:
    sketch = sketched(stream(70, seed=5))
    live, frozen = sketch.view(), sketch.view().frozen()
    before = frozen.figures(MetricSettings())
    assert before == live.figures(MetricSettings())
    sketched(stream(70, seed=6), sketch)
    assert frozen.figures(MetricSettings()) == before
    assert sketch.view().figures(MetricSettings()) != before


def add(name: str, place: tuple[int, ...], value: int) -> Callable[[State], None]:
    def change(state: State) -> None:
        state[name][place] += value

    return change


WRONG: list[tuple[str, Callable[[State], None]]] = [
    ("counts", add("counts", (0,), -1000)),
    ("counts", add("counts", (0,), 2**60)),
    ("confusion", add("confusion", (0,), -1000)),
    ("confusion", add("confusion", (3,), 1)),
    ("bins", add("bins", (0, 5), -1)),
    ("bins", add("bins", (1, 5), 1)),
    ("bins", lambda state: state["bins"].fill(2**53)),
    ("reliability", add("reliability", (0, 14), -1000)),
    ("reliability", add("reliability", (1, 14), 1)),
    ("losses", add("losses", (0, 0), -1)),
    ("losses", add("losses", (0, 0), 1)),
    ("losses", add("losses", (1, 0), 1000)),
    ("losses", add("losses", (1, 1), 2**60)),
    ("losses", add("losses", (1, 2), 2**30)),
    ("mass", add("mass", (7, 0), -1)),
    ("mass", add("mass", (7, 0), 1)),
    ("mass", add("mass", (7, 1), 2**35)),
    ("mass", add("mass", (7, 2), -(2**31))),
]


@pytest.mark.parametrize(("wrong", "change"), WRONG, ids=[f"{i}-{name}" for i, (name, _) in enumerate(WRONG)])
def test_impossible_states_are_detected(wrong: str, change: Callable[[State], None]) -> None:
    state = {name: array.copy() for name, array in sketched(stream(300, seed=2)).state().items()}
    assert list(CumulativeSketch().problems(state)) == []
    change(state)
    assert wrong in [name for name, _ in CumulativeSketch().problems(state)]


def test_probabilities_at_bin_edges_are_accepted() -> None:
    edges = np.arange(16) / 15
    around = np.clip(np.concatenate([edges, np.nextafter(edges, 0), np.nextafter(edges, 1)]), 0.0, 1.0)
    for probability in around:
        sketch = sketched(Events([0.0] * 3, [True] * 3, [probability] * 3))
        assert list(sketch.problems(sketch.state())) == []


@given(st.data())
@settings(max_examples=80)
def test_an_accepted_state_remains_usable(data: st.DataObject) -> None:
    """Change one number anywhere: either it is refused, or the learner works with it."""
    state = {name: array.copy() for name, array in sketched(stream(300, seed=2)).state().items()}
    name = data.draw(st.sampled_from(sorted(state)))
    place = data.draw(st.integers(0, state[name].size - 1))
    limits = np.iinfo(np.int64)
    values = [limits.min, limits.max, -1, 0, 1, 2**53, 2**59]
    state[name].reshape(-1)[place] = data.draw(st.sampled_from(values))
    if list(CumulativeSketch().problems(state)):
        return
    sketch = sketched(stream(300, seed=3), restored(CumulativeSketch(), state))
    json.dumps(sketch.view().figures(MetricSettings()), allow_nan=False)
    assert list(sketch.problems(sketch.state())) == []
