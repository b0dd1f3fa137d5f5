"""Live metrics of ordinal learners: recomputed from scratch on the same events, a history that stays bounded."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from learners.metrics.ordinal import ORDINAL_HISTORY, RankMetrics
from learners.numerics.hash_table import hashes_of

COMMON_METRICS = ("label_delay_median", "label_delay_p90", "label_coverage", "events_per_second")


def stream(n: int, seed: int, ranks: int = 5) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Draw true ranks, and predicted ranks that are often near."""
    random = np.random.default_rng(seed)
    y = random.integers(1, ranks + 1, n)
    decisions = np.clip(np.rint(y + random.normal(size=n)), 1, ranks).astype(np.int64)
    return y.astype(np.float64), decisions


def feed(metrics: RankMetrics, y: Any, decisions: Any, times: Any = None) -> None:
    """Learn some events at once."""
    n = len(y)
    clocks = metrics.tick(np.full(n, np.nan) if times is None else times)
    no, nan = np.zeros(n, dtype=np.bool_), np.full(n, np.nan)
    metrics.learn(np.zeros(n), None, None, y, decisions, clocks, nan, np.zeros(n, dtype=np.uint64), no)


def expected(y: Any, decisions: Any, ranks: int) -> dict[str, Any]:
    """Compute the metrics of some events from scratch."""
    confusion = np.zeros((ranks, ranks), dtype=np.int64)
    np.add.at(confusion, (y.astype(np.int64) - 1, decisions - 1), 1)
    away = np.abs(y - decisions)
    sums = {"mae": np.sum(away), "mse": np.sum(away**2), "accuracy": np.sum(away == 0)}
    return {
        "class_counts": {str(rank): int(np.sum(y == rank)) for rank in range(1, ranks + 1)},
        **{name: float(total / len(y)) if len(y) else None for name, total in sums.items()},
        "confusion": confusion.tolist(),
    }


def check(metrics: Any, y: Any, decisions: Any, window: int, ranks: int) -> None:
    """Check every metric after these events."""
    figures = metrics.view().as_json()
    low = max(0, len(y) - window)
    recent = expected(y[low:], decisions[low:], ranks)
    total = expected(y, decisions, ranks)
    reported = dict.fromkeys(COMMON_METRICS)
    assert figures["window"] == {"size": window, "seconds": None, "events": len(y) - low, **recent, **reported}
    assert figures["since_start"] == {**total, **reported, "label_delay_error": None}
    assert figures["events"] == metrics.events == len(y)
    assert figures["class_counts"] == total["class_counts"]
    assert metrics.view().counts.tolist() == list(total["class_counts"].values())
    assert figures["undefined"].keys() == {
        f"/{scope}/{name}"
        for scope in ("window", "since_start")
        for name, value in figures[scope].items()
        if value is None and name != "seconds"
    }
    json.dumps(figures, allow_nan=False)


@pytest.mark.parametrize("ranks", [2, 5, 64])
@given(cuts=st.lists(st.integers(0, 300), max_size=8), window=st.sampled_from([1, 2, 37, 64, 65, 299, 1000]))
@settings(max_examples=15)
def test_every_metric_is_correct_for_any_batching(ranks: int, cuts: list[int], window: int) -> None:
    y, decisions = stream(300, seed=ranks, ranks=ranks)
    metrics = RankMetrics(window, None, ranks)
    for start, stop in pairwise([0, *sorted(cuts), 300]):
        feed(metrics, y[start:stop], decisions[start:stop])
        check(metrics, y[:stop], decisions[:stop], window, ranks)


def test_before_any_event_metrics_are_null_with_reasons() -> None:
    metrics = RankMetrics(5, None, 3)
    check(metrics, np.empty(0), np.empty(0, dtype=np.int64), 5, 3)
    figures = metrics.view().as_json()
    assert (figures["duplicates"], figures["corrections"], figures["served"], figures["clock"]) == (0, 0, 0, None)
    for name in ("mae", "mse", "accuracy"):
        assert {f"/window/{name}", f"/since_start/{name}"} <= figures["undefined"].keys()


def test_rows_of_the_confusion_matrix_are_true_ranks() -> None:
    metrics = RankMetrics(2, None, 3)
    feed(metrics, np.array([3.0, 1.0, 3.0]), np.array([1, 2, 3]))
    figures = metrics.view().as_json()
    assert figures["window"]["confusion"] == [[0, 1, 0], [0, 0, 0], [0, 0, 1]]
    assert figures["since_start"]["confusion"] == [[0, 1, 0], [0, 0, 0], [1, 0, 1]]
    assert (figures["since_start"]["mae"], figures["since_start"]["mse"]) == (1.0, 5 / 3)
    assert (figures["window"]["mae"], figures["window"]["accuracy"]) == (0.5, 0.5)


def states_equal(a: RankMetrics, b: RankMetrics) -> bool:
    return all(
        (array.dtype, array.shape, array.tobytes()) == (other.dtype, other.shape, other.tobytes())
        for array, other in zip(a.state().values(), b.state().values(), strict=True)
    )


@pytest.mark.parametrize("seconds", [None, 40.0])
@given(cuts=st.lists(st.integers(0, 300), max_size=8), window=st.sampled_from([1, 7, 64, 65, 150, 1000]))
@settings(max_examples=25)
def test_batching_is_invisible_and_a_restored_state_continues(
    seconds: float | None, cuts: list[int], window: int
) -> None:
    y, decisions = stream(300, seed=3)
    times = 1e9 + np.arange(300.0)
    full, cut = RankMetrics(window, seconds, 5), RankMetrics(window, seconds, 5)
    feed(full, y, decisions, times)
    for start, stop in pairwise([0, *sorted(cuts), 300]):
        part = slice(start, stop)
        feed(cut, y[part], decisions[part], times[part])
        copied = {name: array.copy() for name, array in cut.state().items()}
        cut = RankMetrics(window, seconds, 5)
        assert {name: array.shape for name, array in copied.items()} == cut.shapes(copied)
        assert list(cut.problems(copied)) == []
        cut.restore(copied)
    assert states_equal(full, cut)
    assert full.view().as_json() == cut.view().as_json()
    assert full.view().history() == cut.view().history()


def test_a_window_of_seconds_contains_only_younger_events() -> None:
    y, decisions = stream(300, seed=8)
    metrics = RankMetrics(1000, 40.0, 5)
    feed(metrics, y, decisions, np.arange(300.0))
    figures = metrics.view().as_json()["window"]
    assert (figures["events"], figures["seconds"]) == (40, 40.0)
    assert figures["confusion"] == expected(y[260:], decisions[260:], 5)["confusion"]
    clocks = metrics.tick(np.array([320.0]))  # an event that is served moves the clock, too
    metrics.serve(hashes_of(["a"]), np.zeros(1), None, np.ones(1, dtype=np.int64), clocks)
    figures = metrics.view().as_json()
    assert (figures["window"]["events"], figures["served"], figures["clock"]) == (19, 1, 320.0)


@given(
    corrections=st.lists(st.tuples(st.integers(0, 299), st.integers(1, 5)), max_size=20),
    window=st.sampled_from([1, 64, 150, 1000]),
)
@settings(max_examples=25)
def test_a_corrected_rank_counts_as_if_it_was_original(corrections: list[tuple[int, int]], window: int) -> None:
    y, decisions = stream(300, seed=5)
    metrics = RankMetrics(window, None, 5)
    feed(metrics, y, decisions)
    count = 0
    for number, label in corrections:
        if y[number] != label:
            metrics.correct(number, int(y[number]), label, 0.0, np.nan, int(decisions[number]))
            y[number] = label
            count += 1
    check(metrics, y, decisions, window, 5)
    assert metrics.view().as_json()["corrections"] == count


def test_a_restored_state_is_a_copy() -> None:
    first, second = RankMetrics(10, None, 4), RankMetrics(10, None, 4)
    feed(first, *stream(30, seed=1, ranks=4))
    second.restore(first.state())
    before = second.view().frozen().as_json()
    feed(first, *stream(30, seed=2, ranks=4))
    assert second.view().as_json() == before


def test_the_window_uses_no_more_memory_than_its_events() -> None:
    metrics = RankMetrics(1_000_000, None, 5)
    assert len(metrics.arrays.labels) == 64
    feed(metrics, *stream(100, seed=0))
    assert len(metrics.arrays.labels) == len(metrics.arrays.decisions) == 128
    check(metrics, *stream(100, seed=0), 1_000_000, 5)
    assert len(RankMetrics(5, None, 5).arrays.labels) == 5


def test_the_history_records_the_window_at_each_stride() -> None:
    metrics = RankMetrics(100, None, 5)
    y, decisions = stream(400, seed=2)
    feed(metrics, y, decisions)
    history = metrics.view().history()
    assert tuple(history["columns"]) == ORDINAL_HISTORY
    assert [point["events"] for point in history["points"]] == [64, 128, 192, 256, 320, 384]
    for point in history["points"]:
        assert tuple(point) == ORDINAL_HISTORY
        assert type(point["events"]) is int
        cut = slice(max(0, point["events"] - 100), point["events"])
        figures = expected(y[cut], decisions[cut], 5)
        assert [point[name] for name in ("mae", "mse", "accuracy")] == [
            figures[name] for name in ("mae", "mse", "accuracy")
        ]
        full = expected(y[: point["events"]], decisions[: point["events"]], 5)
        assert [point[f"since_start_{name}"] for name in ("mae", "accuracy")] == [full["mae"], full["accuracy"]]
    assert metrics.view().points_since(4) == [(5, history["points"][4]), (6, history["points"][5])]
    assert metrics.view().point_count == 6


def test_frozen_metrics_stay_and_live_metrics_follow() -> None:
    metrics = RankMetrics(20, None, 5)
    feed(metrics, *stream(70, seed=5))
    live, frozen = metrics.view(), metrics.view().frozen()
    before, past = frozen.as_json(), frozen.history()
    assert before == live.as_json()
    feed(metrics, *stream(70, seed=6))
    assert (frozen.as_json(), frozen.history()) == (before, past)
    assert metrics.view().as_json() != before
    assert metrics.events == 140
