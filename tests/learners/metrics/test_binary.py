"""The live metrics as a whole: each part sees each event, and all of them are the same however the stream is cut."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from learners.metrics.binary import HISTORY_COLUMNS, BinaryMetrics, history_stride
from learners.metrics.definitions import FIGURES, MetricSettings
from learners.numerics.hash_table import hashes_of
from tests.learners.metrics.naive_metrics import exact_figures

SETTINGS = MetricSettings(beta=0.5, max_fpr=0.2, k=20)
SINCE_START = ("auc", "average_precision", "f1", "precision", "recall", "alert_rate", "label_coverage")
BOUNDED = ("auc", "average_precision", "partial_auc", "ks", "recall_at_fpr", "precision_at_k")


class Events(NamedTuple):
    """What happens to n labelled events; `served` ones were answered before their label was known."""

    scores: NDArray[np.float64]
    probabilities: NDArray[np.float64]
    thresholds: NDArray[np.float64]
    y: NDArray[np.float64]
    decisions: NDArray[np.int64]
    times: NDArray[np.float64]
    delays: NDArray[np.float64]
    hashes: NDArray[np.uint64]
    served: NDArray[np.bool_]

    def part(self, start: int, stop: int) -> Events:
        return Events._make(column[start:stop] for column in self)

    def picked(self, which: Any) -> Events:
        return Events._make(column[which] for column in self)


def stream(n: int, seed: int, *, share: float = 0.3, shift: float = 1.0, digits: int = 1, timed: bool = True) -> Events:
    """Scores with ties; times that sometimes go back; one event in three was served, and its label came late."""
    random = np.random.default_rng(seed)
    y = np.where(random.random(n) < share, 1.0, -1.0)
    scores = np.round(random.normal(size=n) + shift * y, digits)
    probabilities = 1 / (1 + np.exp(-scores))
    thresholds = 0.4 + 0.2 * random.random(n)
    served = random.random(n) < 0.3
    times = 1e9 + np.cumsum(random.exponential(1.0, n)) + random.normal(size=n) if timed else np.full(n, np.nan)
    delays = np.where(served & timed, random.exponential(50.0, n), np.nan)
    called = (probabilities >= thresholds).astype(np.int64)
    hashes = hashes_of([f"{seed}-{i}" for i in range(n)])
    return Events(scores, probabilities, thresholds, y, called, times, delays, hashes, served)


def feed(metrics: BinaryMetrics, events: Events) -> None:
    """Serve those that were served, one after the other with learning them all."""
    late = events.picked(events.served)
    metrics.serve(late.hashes, late.scores, late.thresholds, late.decisions, np.full(len(late.y), metrics.clock))
    learn(metrics, events)


def learn(metrics: BinaryMetrics, events: Events) -> None:
    clocks = metrics.tick(events.times)
    metrics.learn(*events[:5], clocks, *events[6:])


def check_window(window: dict[str, Any], events: Events, tolerance: float = 1e-12) -> None:
    label, called = events.y > 0, events.decisions > 0
    for name, value in exact_figures(label, events.scores, events.probabilities, called, SETTINGS).items():
        if value is None or isinstance(value, dict):
            assert window[name] == value, name
        else:
            assert window[name] == pytest.approx(value, rel=0, abs=tolerance), name


def pointers(document: dict[str, Any]) -> set[str]:
    """Where figures are null."""
    nulls = {
        f"/{scope}/{name}"
        for scope in ("window", "since_start", "served")
        for name, value in document[scope].items()
        if value is None and name != "seconds"
    }
    return nulls | ({"/clock"} if document["clock"] is None else set())


def same_state(metrics: BinaryMetrics, other: BinaryMetrics) -> None:
    states = metrics.state(), other.state()
    assert states[0].keys() == states[1].keys()
    for name, array in states[0].items():
        assert array.tobytes() == states[1][name].tobytes(), name
        assert array.shape == states[1][name].shape, name


@pytest.mark.parametrize("share", [0.02, 0.4])
@pytest.mark.parametrize("size", [1, 30, 64, 300])
def test_the_document_has_every_metric_of_both_scopes(size: int, share: float) -> None:
    events = stream(700, seed=size, share=share)
    metrics = BinaryMetrics(size, settings=SETTINGS)
    for start, stop in pairwise([0, 0, 1, 5, 100, 700]):
        feed(metrics, events.part(start, stop))
        document = metrics.view().as_json()
        json.dumps(document, allow_nan=False)
        assert set(document["undefined"]) == pointers(document)
        assert list(document["window"])[:2] == ["size", "seconds"]
        assert list(document["window"])[2:] == [name for name in FIGURES if name != "label_delay_error"]
        with_errors = [(name, f"{name}_error") if name in BOUNDED else (name,) for name in FIGURES]
        assert list(document["since_start"]) == [name for names in with_errors for name in names]
        check_window(document["window"], events.part(max(0, stop - size), stop))
        past = events.part(0, stop)
        exact = exact_figures(past.y > 0, past.scores, past.probabilities, past.decisions > 0, SETTINGS)
        for name, value in exact.items():
            result = document["since_start"][name]
            if name == "auc_interval":
                continue  # widened by the sketch's error
            if value is None or isinstance(value, dict):
                assert result == value, name
            elif name in BOUNDED:
                assert abs(result - value) <= document["since_start"][f"{name}_error"] + 1e-12, name
            else:
                assert result == pytest.approx(value, rel=0, abs=1e-12), name
        assert document["events"] == stop == metrics.events
        assert document["class_counts"] == document["since_start"]["class_counts"]
        assert metrics.counts.tolist() == list(document["class_counts"].values())


def test_metrics_before_any_event() -> None:
    document = BinaryMetrics(10, 60.0).view().as_json()
    assert set(document["undefined"]) == pointers(document)
    assert (document["events"], document["duplicates"], document["clock"]) == (0, 0, None)
    assert (document["window"]["size"], document["window"]["seconds"]) == (10, 60.0)


def test_stream_statistics_come_from_clocks_and_served_events() -> None:
    metrics = BinaryMetrics(100)
    hashes = hashes_of(["a", "b", "c", "d"])
    metrics.serve(hashes, np.zeros(4), None, np.array([1, 0, 0, 0]), metrics.tick(np.array([10.0, 11.0, 12.0, 13.0])))
    clocks = metrics.tick(np.array([20.0, np.nan, 40.0]))
    assert clocks.tolist() == [20.0, 20.0, 40.0]
    half = np.full(3, 0.5)
    late = np.array([True, False, True])
    metrics.learn(
        np.array([1.0, np.nan, 3.0]),
        half,
        half,
        np.array([1.0, -1.0, 1.0]),
        np.array([1, 1, 0]),
        clocks,
        np.array([10.0, np.nan, 28.0]),
        np.array([hashes[0], 0, hashes[2]], dtype=np.uint64),
        late,
    )
    metrics.count_duplicates(3)
    metrics.count_duplicates(2)
    metrics.count_expired(1)
    document = metrics.view().as_json()
    assert document["served"] == {"events": 4, "labelled": 2, "alert_rate": 0.25}
    assert (document["duplicates"], document["corrections"], document["assumed"]) == (5, 0, 1)
    assert document["clock"] == metrics.clock == 40.0
    assert document["settings"] == {"beta": 1.0, "max_fpr": 0.05, "k": 100, "segments": []}
    window = document["window"]
    assert window["auc"] == 1.0  # NaN counts as 0
    assert (window["label_delay_median"], window["label_coverage"]) == (19.0, 0.5)
    assert window["label_delay_p90"] == pytest.approx(26.2)
    assert window["events_per_second"] == pytest.approx(0.1)
    since = document["since_start"]
    assert since["label_coverage"] == 0.5
    assert abs(since["label_delay_median"] / 19.0 - 1) < 0.6  # of two delays; its bins are tested with it
    assert 0 < since["label_delay_error"] <= 0.01


@pytest.mark.parametrize(("size", "stride"), [(1, 64), (4096, 64), (4097, 128), (10_000, 256), (100_000, 2048)])
def test_larger_windows_have_rarer_history_rows(size: int, stride: int) -> None:
    assert history_stride(size) == stride
    assert BinaryMetrics(size).view().rows.stride == stride


def test_a_history_point_has_the_metrics_right_after_its_event() -> None:
    events = stream(400, seed=1)
    metrics = BinaryMetrics(100, 200.0, SETTINGS)
    feed(metrics, events)
    history = metrics.view().history()
    assert history["columns"] == list(HISTORY_COLUMNS)
    served = events.picked(events.served)
    first = len(served.y)  # are served before any is learnt
    steps = [(min(n, first), max(0, n - first)) for n in range(64, first + 400, 64)]
    assert [(point["served"], point["events"]) for point in history["points"]] == steps
    for point in history["points"][first // 64 :]:
        now = point["events"]
        restored = BinaryMetrics(100, 200.0, SETTINGS)
        restored.serve(served.hashes, served.scores, None, served.decisions, np.full(len(served.y), np.nan))
        learn(restored, events.part(0, now))
        document = restored.view().as_json()
        window = document["window"]
        assert list(point) == list(HISTORY_COLUMNS)
        same = [name for name in HISTORY_COLUMNS if name in window and name != "events"]
        assert {name: point[name] for name in same} == {name: window[name] for name in same}
        since = {name: document["since_start"][name] for name in SINCE_START}
        assert {name: point[f"since_start_{name}"] for name in SINCE_START} == since
        assert [point["auc_low"], point["auc_high"]] == (window["auc_interval"] or [None, None])
        assert point["clock"] == document["clock"]
        assert point["threshold"] == events.thresholds[now - 1]
        assert point["positives"] == window["class_counts"]["positive"]
        assert point["alerts"] == window["confusion"]["tp"] + window["confusion"]["fp"]
    json.dumps(history, allow_nan=False)
    assert metrics.view().points_since(4) == list(enumerate(history["points"][4:], start=5))
    assert metrics.view().point_count == len(history["points"]) == (first + 400) // 64
    learned = [step for _, step in steps]
    cut = metrics.view().history(100, 330, 100)["points"]
    last = {-(-item // 100): item for item in learned if 100 <= item <= 330}
    assert [point["events"] for point in cut] == list(last.values())
    clock = history["points"][4]["clock"]
    by_clock = metrics.view().history(start=clock, by="clock")["points"]
    assert [point["events"] for point in by_clock] == learned[4:]


def test_undefined_metrics_are_null_in_the_history() -> None:
    metrics = BinaryMetrics(10, settings=SETTINGS)
    learn(metrics, stream(64, seed=2, share=0.0, timed=False))
    (point,) = metrics.view().history()["points"]
    assert point["auc"] is point["auc_low"] is point["auc_high"] is point["clock"] is point["recall"] is None
    assert point["positives"] == 0
    assert point["brier"] is not None
    since = [point[f"since_start_{name}"] for name in ("auc", "average_precision", "recall", "label_coverage")]
    assert since == [None] * 4
    assert point["since_start_alert_rate"] == metrics.view().as_json()["since_start"]["alert_rate"]


def test_cumulative_metrics_match_a_worked_example() -> None:
    """32 negatives score 1, 16 positives 2, and 16 positives 0; then 64 negatives score 0."""
    metrics = BinaryMetrics(16, settings=SETTINGS)
    scores = np.concatenate([np.repeat([1.0, 2.0, 0.0], [32, 16, 16]), np.zeros(64)])
    y = np.concatenate([np.repeat([-1.0, 1.0, 1.0], [32, 16, 16]), np.full(64, -1.0)])
    decisions = (scores > 1.5).astype(np.int64)
    unknown, no = np.full(128, np.nan), np.zeros(128, dtype=np.bool_)
    half, hashes = np.full(128, 0.5), np.zeros(128, dtype=np.uint64)
    metrics.learn(scores, half, half, y, decisions, unknown, unknown, hashes, no)
    first, second = metrics.view().history()["points"]
    result = [[point[f"since_start_{name}"] for name in SINCE_START[:-1]] for point in (first, second)]
    # average precision: 16 positives at a precision of 1; of the others the k-th is behind all 48 above it
    above = sum((16 + k) / (48 + k) for k in range(1, 17))
    assert result[0] == [0.5, pytest.approx((16 + above) / 32), 2 / 3, 1.0, 0.5, 0.25]
    # 64 negatives more tie with the lower positives: 32 of 96 pairs of each, and half of 64
    mixed = sum((16 + k) / (48 + k + 64 * k / 17) for k in range(1, 17))
    auc = (16 * 96 + 16 * 32) / (32 * 96)
    assert result[1] == [pytest.approx(auc), pytest.approx((16 + mixed) / 32), 2 / 3, 1.0, 0.5, 0.125]
    assert (first["recall"], second["recall"]) == (0.0, None)  # in the window


@given(st.lists(st.integers(0, 300), max_size=6), st.sampled_from([1, 64, 65, 150]), st.sampled_from([None, 90.0]))
@settings(max_examples=20)
def test_batching_is_invisible_and_a_restored_state_continues(
    cuts: list[int], size: int, seconds: float | None
) -> None:
    events = stream(300, seed=3)
    full, pieces = BinaryMetrics(size, seconds, SETTINGS), BinaryMetrics(size, seconds, SETTINGS)
    others = stream(50, seed=4)
    for metrics in (full, pieces):
        metrics.serve(
            others.hashes, others.scores, others.thresholds, others.decisions, metrics.tick(others.times - 1e6)
        )
    learn(full, events)
    for start, stop in pairwise([0, *sorted(cuts), 300]):
        learn(pieces, events.part(start, stop))
        pieces.advance(pieces.clock)
        state = pieces.state()
        assert list(pieces.problems(state)) == []
        assert {name: array.shape for name, array in state.items()} == pieces.shapes(state)
        document, history = pieces.view().as_json(), pieces.view().history()
        pieces = BinaryMetrics(size, seconds, SETTINGS)
        pieces.restore(state)
        assert pieces.view().as_json() == document
        assert pieces.view().history() == history
    same_state(full, pieces)
    assert full.view().as_json() == pieces.view().as_json()


def test_served_events_and_corrections_are_independent_of_batching() -> None:
    events = stream(500, seed=5)
    full, pieces = BinaryMetrics(120, 150.0, SETTINGS), BinaryMetrics(120, 150.0, SETTINGS)
    for start in range(0, 500, 100):
        part = events.part(start, start + 100)
        number, was = start + 50, int(part.y[50] > 0)
        for metrics, step in ((full, 100), (pieces, 7)):
            for low in range(0, 100, step):
                few = part.part(low, min(low + step, 100))
                metrics.serve(few.hashes, few.scores, few.thresholds, few.decisions, metrics.tick(few.times))
            for low in range(0, 100, step):
                learn(metrics, part.part(low, min(low + step, 100)))
            metrics.correct(number, was, 1 - was, part.scores[50], part.probabilities[50], int(part.decisions[50]))
    same_state(full, pieces)
    assert full.view().as_json() == pieces.view().as_json()
    assert full.view().as_json()["corrections"] == 5


def test_a_corrected_label_counts_as_if_it_was_original() -> None:
    events = stream(200, seed=6)
    events.scores[150] = np.nan
    right = events._replace(y=events.y.copy())
    metrics, straight = BinaryMetrics(80, settings=SETTINGS), BinaryMetrics(80, settings=SETTINGS)
    learn(metrics, events)
    for number in (3, 119, 120, 150, 199):  # the first two have left the window
        was = int(events.y[number] > 0)
        scored = (events.scores[number], events.probabilities[number], int(events.decisions[number]))
        metrics.correct(number, was, was, *scored)  # says nothing new
        metrics.correct(number, was, 1 - was, *scored)
        right.y[number] = 1.0 - 2.0 * was
    learn(straight, right)
    actual, expected = metrics.view().as_json(), straight.view().as_json()
    assert (actual.pop("corrections"), expected.pop("corrections")) == (5, 0)
    assert actual == expected
    assert list(metrics.problems(metrics.state())) == []


def test_events_too_old_for_the_window_leave_without_new_labels() -> None:
    events = stream(100, seed=7)
    metrics = BinaryMetrics(1000, 50.0, SETTINGS)
    learn(metrics, events)
    clock = metrics.clock
    window_events = metrics.view().as_json()["window"]["events"]
    assert 20 < window_events < 100
    nobody = np.zeros(0)
    metrics.serve(np.zeros(0, np.uint64), nobody, nobody, np.zeros(0, np.int64), metrics.tick(nobody))
    assert metrics.view().as_json()["window"]["events"] == window_events
    metrics.serve(
        hashes_of(["z"]), np.zeros(1), np.ones(1), np.zeros(1, np.int64), metrics.tick(np.array([clock + 25.0]))
    )
    assert 0 < metrics.view().as_json()["window"]["events"] < window_events
    metrics.advance(clock + 51.0)
    assert metrics.view().as_json()["window"]["events"] == 0
    assert list(metrics.problems(metrics.state())) == []


def test_frozen_views_stay_and_live_views_follow() -> None:
    metrics = BinaryMetrics(70, settings=SETTINGS)
    learn(metrics, stream(150, seed=8))
    frozen = metrics.view().frozen()
    before = frozen.history(), frozen.curves(), frozen.alarms(), frozen.counts.tolist()
    document = metrics.view().as_json()
    learn(metrics, stream(150, seed=9))
    metrics.correct(299, int(stream(150, seed=9).y[149] > 0), 1, 0.5, 0.5, 1)
    assert frozen.as_json() == document
    assert (frozen.history(), frozen.curves(), frozen.alarms(), frozen.counts.tolist()) == before
    assert metrics.view().as_json() != document


def test_an_unchanged_view_computes_its_metrics_once() -> None:
    metrics = BinaryMetrics(70, settings=SETTINGS)
    events = stream(65, seed=10)
    learn(metrics, events)
    document = metrics.view().as_json()
    assert metrics.view().as_json() is document
    frozen = metrics.view().frozen()
    assert frozen.as_json() is document
    assert metrics.view().frozen() is frozen.frozen() is frozen
    moves: list[Any] = [
        lambda: metrics.count_duplicates(1),
        lambda: metrics.count_expired(1),
        lambda: metrics.advance(metrics.clock + 1),
        lambda: metrics.tick(np.array([2e9])),
        lambda: metrics.serve(events.hashes[:1], events.scores[:1], None, events.decisions[:1], np.array([2e9])),
        lambda: metrics.correct(64, int(events.y[64] > 0), int(events.y[64] < 0), float(events.scores[64]), 0.5, 0),
        lambda: metrics.restore(metrics.state()),
    ]
    for move in moves:
        past = metrics.view()
        move()
        assert metrics.view() is not past


def test_curves_describe_the_window() -> None:
    events = stream(500, seed=11, digits=9)
    metrics = BinaryMetrics(200, settings=SETTINGS)
    learn(metrics, events)
    curves = metrics.view().curves(50)
    assert set(curves) == {
        "roc", "precision_recall", "histogram", "reliability", "confusion", "operating_point"
    }  # fmt: skip
    window = metrics.view().as_json()["window"]
    assert curves["confusion"] == window["confusion"]
    assert curves["operating_point"] == {
        "fpr": window["fpr"], "tpr": window["recall"], "precision": window["precision"]
    }  # fmt: skip
    assert len(curves["roc"]["fpr"]) <= 50
    expected = events.part(300, 500).probabilities
    reliability = curves["reliability"]
    assert sum(reliability["count"]) == 200
    total = sum(
        n * (mean or 0.0) for n, mean in zip(reliability["count"], reliability["mean_probability"], strict=True)
    )
    assert total == pytest.approx(expected.sum(), abs=1e-9)


def test_a_drop_of_the_auc_raises_an_alarm() -> None:
    metrics = BinaryMetrics(10_000)
    learn(metrics, stream(4000, seed=12, shift=0.8, digits=9))
    assert metrics.view().alarms() == []
    learn(metrics, stream(4000, seed=13, shift=-0.5, digits=9))
    alarms = metrics.view().alarms()
    assert alarms[0]["kind"] == "auc"
    assert 4000 < alarms[0]["events"] < 5000
    assert metrics.view().alarms(since=1) == alarms[1:]


def test_the_window_does_not_affect_drift_detection() -> None:
    events = stream(3000, seed=17, digits=9)
    states = []
    for size, seconds in ((10_000, None), (10, None), (1000, 5.0)):
        metrics = BinaryMetrics(size, seconds)
        learn(metrics, events)
        states.append({name: array for name, array in metrics.state().items() if name.startswith("drift_")})
    for other in states[1:]:
        assert all(array.tobytes() == states[0][name].tobytes() for name, array in other.items())
    assert states[0]["drift_negatives"][0] == np.count_nonzero(events.y < 0)


def learnt() -> BinaryMetrics:
    metrics = BinaryMetrics(100, 120.0)
    feed(metrics, stream(200, seed=14))
    return metrics


def put(at: Any, value: Any) -> Any:
    def change(array: NDArray[Any]) -> None:
        array[at] = value

    return change


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("counters", put(0, -1)),
        ("window_labels", put(0, 3)),
        ("window_span", put(1, 2**62)),
        ("sketch_counts", put(0, -1)),
        ("traffic_clock", put(0, np.inf)),
        ("history_count", put(0, -1)),
        ("history_rows", put((0, 1, 2), np.inf)),
        ("drift_serves", put(0, -1)),
        ("drift_negatives", put(0, 201)),
        ("drift_began", put(0, 201)),
    ],
)
def test_each_part_detects_its_own_problems(name: str, change: Any) -> None:
    metrics = learnt()
    state = {key: array.copy() for key, array in metrics.state().items()}
    assert list(metrics.problems(state)) == []
    change(state[name])
    assert name in {where for where, _ in metrics.problems(state)}


def test_parts_of_different_streams_are_refused_together() -> None:
    metrics, other = learnt(), BinaryMetrics(100, 120.0)
    feed(other, stream(203, seed=15))
    for part in ("window", "sketch", "traffic"):
        mixed = metrics.state() | {name: array for name, array in other.state().items() if name.startswith(f"{part}_")}
        assert list(metrics.problems(mixed)) != []
    longer = BinaryMetrics(100, 120.0)
    feed(longer, stream(320, seed=15))
    mixed = metrics.state() | {name: array for name, array in longer.state().items() if name.startswith("history_")}
    assert [name for name, _ in metrics.problems(mixed)] == ["history_count"]


def test_batches_ending_at_a_row_and_windows_longer_than_the_stream() -> None:
    metrics = BinaryMetrics(10**6)
    assert metrics.view().rows.stride == 16384
    learn(metrics, stream(128, seed=16))
    assert metrics.view().history()["points"] == []
    short = BinaryMetrics(5)
    learn(short, stream(128, seed=16))
    learn(short, stream(0, seed=16))
    assert [point["events"] for point in short.view().history()["points"]] == [64, 128]
    assert math.isclose(short.view().history()["points"][1]["clock"], short.clock)
