"""Live figures: scikit-learn's on the same window, the sketch within its own bound, a history that stays bounded."""

from __future__ import annotations

import json
import math
import warnings
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn import metrics as sk

from learners.batch import Outcome
from learners.metrics import HISTORY_COLUMNS, HISTORY_POINTS, HISTORY_STRIDE, Metrics

Events = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]  # scores, labels -1 or +1, decisions


def stream(n: int, seed: int, *, levels: int = 9, share: float = 0.3) -> Events:
    """Scores on few levels, so that most pairs tie, and decisions that are often right."""
    random = np.random.default_rng(seed)
    y = np.where(random.random(n) < share, 1.0, -1.0)
    scores = (
        np.round(random.normal(size=n) + 0.7 * y, 1) if levels > 9 else random.integers(0, levels, n) + 1.0 * (y > 0)
    )
    return scores.astype(np.float64), y, scores + random.normal(size=n) > levels / 2


def feed(metrics: Metrics, scores: Any, y: Any, decisions: Any, applied: Any = None, threshold: float = 0.5) -> None:
    """Learn some events at once."""
    n = len(scores)
    applied = np.ones(n, dtype=np.bool_) if applied is None else np.asarray(applied)
    blank = np.where(applied, 1.0, np.nan)
    metrics.learn(
        Outcome(
            applied,
            np.zeros_like(applied),
            np.array(scores) * blank,
            (np.asarray(decisions) & applied).astype(np.int64),
            blank * 0.5,
            blank * threshold,
        ),
        np.asarray(y, dtype=np.float64),
    )


def expected(y: Any, scores: Any, decisions: Any) -> dict[str, float | None]:
    """scikit-learn's figures; None where they are undefined."""
    label = np.asarray(y) > 0
    called = np.asarray(decisions)
    some_right = label.any() or called.any()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            "auc": sk.roc_auc_score(label, scores) if 0 < label.sum() < len(label) else None,
            "f1": sk.f1_score(label, called) if some_right else None,
            "precision": sk.precision_score(label, called) if called.any() else None,
            "recall": sk.recall_score(label, called) if label.any() else None,
            "accuracy": sk.accuracy_score(label, called) if len(label) else None,
        }


def check(figures: dict[str, Any], scope: str, y: Any, scores: Any, decisions: Any) -> None:
    """That every figure of a scope is scikit-learn's, and every null one has its reason."""
    undefined = {pointer for pointer in figures["undefined"] if pointer.startswith(f"/{scope}/")}
    for name, value in expected(y, scores, decisions).items():
        got = figures[scope][name]
        if value is None:
            assert got is None
            assert f"/{scope}/{name}" in undefined
        elif scope == "since_start" and name == "auc":
            assert abs(got - value) <= figures[scope]["auc_error"] + 1e-12
        else:
            assert got == pytest.approx(value, rel=0, abs=1e-12), name
            assert f"/{scope}/{name}" not in undefined
    tn, fp, fn, tp = sk.confusion_matrix(np.asarray(y) > 0, decisions, labels=[False, True]).ravel().tolist()
    assert figures[scope]["confusion"] == {"tp": tp, "fp": fp, "tn": tn, "fn": fn}


@pytest.mark.parametrize("levels", [1, 2, 9, 100])
@pytest.mark.parametrize("window", [1, 2, 37, 64, 200, 1000])
def test_every_figure_is_that_of_scikit_learn(window: int, levels: int) -> None:
    scores, y, decisions = stream(500, seed=window, levels=levels)
    metrics = Metrics(window)
    moments = sorted({1, 2, 3, 499, 500, *np.random.default_rng(levels).integers(4, 499, 12).tolist()})
    for start, stop in pairwise([0, *moments]):
        feed(metrics, scores[start:stop], y[start:stop], decisions[start:stop])
        figures = metrics.view().as_json()
        low = max(0, stop - window)
        check(figures, "window", y[low:stop], scores[low:stop], decisions[low:stop])
        check(figures, "since_start", y[:stop], scores[:stop], decisions[:stop])
        positives = int((y[low:stop] > 0).sum())
        assert figures["events"] == stop
        assert figures["window"]["size"] == window
        assert figures["window"]["events"] == stop - low
        assert figures["window"]["class_counts"] == {"negative": stop - low - positives, "positive": positives}
        json.dumps(figures, allow_nan=False)


EVENTS, MET, CALLED = "no labelled events", "no positive, met or predicted", "no positive was predicted"


@pytest.mark.parametrize(
    ("label", "called", "undefined"),
    [
        (None, False, {"auc": EVENTS, "f1": MET, "precision": CALLED, "recall": "no positive", "accuracy": EVENTS}),
        (-1.0, False, {"auc": "no positives", "f1": MET, "precision": CALLED, "recall": "no positive"}),
        (-1.0, True, {"auc": "no positives", "recall": "no positive"}),
        (1.0, False, {"auc": "no negatives", "precision": CALLED}),
        (1.0, True, {"auc": "no negatives"}),
    ],
)
def test_an_undefined_figure_is_null_with_its_reason(
    label: float | None, called: bool, undefined: dict[str, str]
) -> None:
    metrics = Metrics(5)
    n = 0 if label is None else 8
    feed(metrics, np.zeros(n), np.full(n, label or 1.0), np.full(n, called))
    figures = metrics.view().as_json()
    in_window = {f"/window/{name}": f"{reason} in the window" for name, reason in undefined.items()}
    in_all = {f"/since_start/{name}": f"{reason} yet" for name, reason in undefined.items()}
    in_all["/since_start/auc_error"] = in_all["/since_start/auc"]
    assert figures["undefined"] == in_window | in_all
    nulls = {
        f"/{scope}/{name}"
        for scope in ("window", "since_start")
        for name, value in figures[scope].items()
        if value is None
    }
    assert nulls == set(figures["undefined"])


def test_a_class_can_leave_the_window_and_come_back() -> None:
    metrics = Metrics(3)
    feed(metrics, [1.0, 2.0, 3.0, 4.0], [1, -1, -1, -1], [True, False, False, False])
    assert metrics.view().as_json()["window"]["auc"] is None
    assert metrics.view().as_json()["since_start"]["auc"] == 0.0
    feed(metrics, [9.0], [1], [True])
    assert metrics.view().as_json()["window"]["auc"] == 1.0


finite = st.floats(allow_nan=False, allow_infinity=False)
odd = st.sampled_from(
    [0.0, -0.0, 5e-324, -5e-324, 2.0**-24, -(2.0**-24), 2.0**-25, 2.0**16, -(2.0**16), 1e300, -1e300, 65535.9]
)


@given(st.lists(st.tuples(finite | odd | st.integers(-3, 3).map(float) | st.floats(-9, 9), st.booleans()), max_size=60))
@example([(1.0, True), (1.0, False)])
@example([(1e-300, True), (-1e-300, False)])
@settings(max_examples=100, deadline=None, derandomize=True)
def test_the_sketch_is_within_its_error_whatever_the_scores(events: list[tuple[float, bool]]) -> None:
    metrics = Metrics(1000)
    scores, label = [score for score, _ in events], np.array([flag for _, flag in events], dtype=np.bool_)
    feed(metrics, scores, np.where(label, 1.0, -1.0), label)
    figures = metrics.view().as_json()
    exact, sketched = figures["window"]["auc"], figures["since_start"]
    assert (exact is None) == (sketched["auc"] is None) == (sketched["auc_error"] is None)
    if exact is not None:
        positives, negatives = np.array(scores)[label][:, None], np.array(scores)[~label][None, :]
        assert exact == pytest.approx(np.mean((positives > negatives) + 0.5 * (positives == negatives)), abs=1e-12)
        assert 0 <= sketched["auc_error"] <= 0.5
        assert abs(sketched["auc"] - exact) <= sketched["auc_error"] + 1e-12


def test_the_sketch_is_close_on_ordinary_scores() -> None:
    random = np.random.default_rng(0)
    y = np.where(random.random(5000) < 0.2, 1.0, -1.0)
    for scale in (1e-3, 1.0, 1e3):
        metrics = Metrics(10)
        scores = scale * (random.normal(size=5000) + y)
        feed(metrics, scores, y, y > 0)
        since = metrics.view().as_json()["since_start"]
        assert since["auc_error"] < 0.005
        assert since["auc"] == pytest.approx(sk.roc_auc_score(y, scores), abs=0.001)


def test_bins_are_in_the_order_of_the_scores() -> None:
    sizes = np.concatenate([[0.0, 1e-320, 2.0**-24, 2.0**16, 1e308], np.exp(np.linspace(-20, 14, 400))])
    scores = np.sort(np.concatenate([-sizes, sizes]))
    bins = []
    for score in scores:
        metrics = Metrics(1)
        feed(metrics, [score], [1.0], [True])
        bins.append(int(np.flatnonzero(metrics.arrays.sketch[1])[0]))
    assert bins == sorted(bins)
    assert (bins[0], bins[-1]) == (0, metrics.arrays.sketch.shape[1] - 1)
    assert len(set(bins)) > 600


@given(st.lists(st.integers(0, 300), max_size=8), st.sampled_from([1, 7, 64, 65, 150, 1000]))
@settings(max_examples=25, deadline=None, derandomize=True)
def test_batch_cuts_are_invisible_and_a_restore_goes_on(cuts: list[int], window: int) -> None:
    scores, y, decisions = stream(300, seed=3)
    applied = np.random.default_rng(0).random(300) < 0.9
    whole, cut = Metrics(window), Metrics(window)
    feed(whole, scores, y, decisions, applied)
    for start, stop in pairwise([0, *sorted(cuts), 300]):
        feed(cut, scores[start:stop], y[start:stop], decisions[start:stop], applied[start:stop])
        copied = {name: array.copy() for name, array in cut.state().items()}
        cut = Metrics(window)
        cut.restore(copied)
    assert same(whole, cut)
    assert whole.view().as_json() == cut.view().as_json()
    assert whole.view().history() == cut.view().history()
    assert whole.view().as_json()["duplicates"] == int((~applied).sum())
    assert whole.events == int(applied.sum())


def same(a: Metrics, b: Metrics) -> bool:
    return all(
        x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()
        for x, y in zip(a.arrays, b.arrays, strict=True)
    )


def test_duplicates_count_as_such_and_nowhere_else() -> None:
    metrics, without = Metrics(50), Metrics(50)
    scores, y, decisions = stream(80, seed=1)
    applied = np.arange(80) % 4 != 0
    feed(metrics, scores, y, decisions, applied)
    feed(without, scores[applied], y[applied], decisions[applied])
    figures = metrics.view().as_json()
    assert figures.pop("duplicates") == 20
    expected_figures = without.view().as_json()
    assert expected_figures.pop("duplicates") == 0
    assert figures == expected_figures


def test_the_window_takes_no_more_room_than_its_events() -> None:
    metrics = Metrics(1_000_000)
    assert len(metrics.arrays.scores) == 64
    feed(metrics, *stream(100, seed=0))
    assert len(metrics.arrays.scores) == len(metrics.arrays.labels) == len(metrics.arrays.decisions) == 128
    assert len(Metrics(5).arrays.scores) == 5


def test_the_history_holds_the_window_at_each_stride() -> None:
    metrics = Metrics(100)
    scores, y, decisions = stream(400, seed=2)
    feed(metrics, scores, y, decisions, threshold=0.25)
    history = metrics.view().history()
    assert history["stride"] == HISTORY_STRIDE == 64
    assert [point["events"] for point in history["points"]] == [64, 128, 192, 256, 320, 384]
    for point in history["points"]:
        stop = point["events"]
        cut = slice(max(0, stop - 100), stop)
        figures = expected(y[cut], scores[cut], decisions[cut])
        assert tuple(point) == HISTORY_COLUMNS
        assert point["auc"] == pytest.approx(figures["auc"], abs=1e-12)
        assert point["f1"] == pytest.approx(figures["f1"], abs=1e-12)
        assert (point["threshold"], point["positives"]) == (0.25, int((y[cut] > 0).sum()))
        assert point["alerts"] == int(decisions[cut].sum())
        assert all(type(point[name]) is int for name in ("events", "positives", "alerts"))


def test_undefined_figures_are_null_in_the_history() -> None:
    metrics = Metrics(10)
    feed(metrics, np.zeros(64), np.full(64, -1.0), np.zeros(64, dtype=np.bool_))
    (point,) = metrics.view().history()["points"]
    assert point["auc"] is None
    assert point["f1"] is None


def test_the_history_is_thinned_and_never_longer_than_its_bound() -> None:
    metrics, n = Metrics(3), 2 * HISTORY_POINTS * HISTORY_STRIDE + 5 * HISTORY_STRIDE
    scores, y, decisions = stream(n, seed=4)
    kept: dict[int, Any] = {}
    cuts = [0, HISTORY_POINTS * HISTORY_STRIDE, (HISTORY_POINTS + 1) * HISTORY_STRIDE, n - 1, n]
    for start, stop in pairwise(cuts):
        feed(metrics, scores[start:stop], y[start:stop], decisions[start:stop])
        history = metrics.view().history()
        stride = history["stride"]
        assert [point["events"] for point in history["points"]] == list(range(stride, stop + 1, stride))
        assert len(history["points"]) <= HISTORY_POINTS
        for point in history["points"]:  # thinning changes no point that stays
            assert kept.setdefault(point["events"], point) == point
    assert stride == 4 * HISTORY_STRIDE


def test_frozen_figures_stay_and_live_ones_move() -> None:
    metrics = Metrics(20)
    feed(metrics, *stream(70, seed=5))
    live, frozen = metrics.view(), metrics.view().frozen()
    before, past = frozen.as_json(), frozen.history()
    assert before == live.as_json()
    feed(metrics, *stream(70, seed=6))
    assert (frozen.as_json(), frozen.history()) == (before, past)
    assert metrics.view().as_json() != before
    assert math.isclose(metrics.view().as_json()["events"], 140)
