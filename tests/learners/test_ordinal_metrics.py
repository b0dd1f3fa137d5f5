"""Live figures of ordinal learners: recomputed from scratch on the same events, a history that stays bounded."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from learners.metrics import HISTORY_POINTS, HISTORY_STRIDE
from learners.ordinal_metrics import ORDINAL_HISTORY_COLUMNS, OrdinalMetrics


class Told(NamedTuple):
    """What the metrics read of an outcome."""

    applied: NDArray[np.bool_]
    beyond: NDArray[np.bool_]
    decisions: NDArray[np.int64]


def stream(n: int, seed: int, ranks: int = 5) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """True ranks, and predicted ones that are often near."""
    random = np.random.default_rng(seed)
    y = random.integers(1, ranks + 1, n)
    decisions = np.clip(np.rint(y + random.normal(size=n)), 1, ranks).astype(np.int64)
    return y.astype(np.float64), decisions


def feed(metrics: Any, y: Any, decisions: Any, applied: Any = None, beyond: Any = None) -> None:
    """Learn some events at once."""
    applied = np.ones(len(y), dtype=np.bool_) if applied is None else applied
    beyond = np.zeros(len(y), dtype=np.bool_) if beyond is None else beyond
    metrics.learn(Told(applied, beyond, np.where(applied, decisions, 0)), y)


def expected(y: Any, decisions: Any, ranks: int) -> dict[str, Any]:
    """The figures of some events, from scratch."""
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
    """That every figure is right once the metrics have met these events."""
    figures = metrics.view().as_json()
    low = max(0, len(y) - window)
    recent = expected(y[low:], decisions[low:], ranks)
    total = expected(y, decisions, ranks)
    assert figures["window"] == {"size": window, "events": len(y) - low, **recent}
    assert figures["since_start"] == total
    assert figures["events"] == metrics.events == len(y)
    assert figures["class_counts"] == metrics.view().class_counts() == total["class_counts"]
    assert metrics.view().counts.tolist() == list(total["class_counts"].values())
    assert figures["undefined"].keys() == {
        f"/{scope}/{name}"
        for scope in ("window", "since_start")
        for name, value in figures[scope].items()
        if value is None
    }
    json.dumps(figures, allow_nan=False)


@pytest.mark.parametrize("ranks", [2, 5, 64])
@given(cuts=st.lists(st.integers(0, 300), max_size=8), window=st.sampled_from([1, 2, 37, 64, 65, 299, 1000]))
@settings(max_examples=15, deadline=None, derandomize=True, database=None)
def test_every_figure_is_right_however_the_stream_is_cut(ranks: int, cuts: list[int], window: int) -> None:
    y, decisions = stream(300, seed=ranks, ranks=ranks)
    metrics = OrdinalMetrics(window, ranks)
    for start, stop in pairwise([0, *sorted(cuts), 300]):
        feed(metrics, y[start:stop], decisions[start:stop])
        check(metrics, y[:stop], decisions[:stop], window, ranks)


def test_before_any_event_figures_are_null_with_their_reasons() -> None:
    figures = OrdinalMetrics(5, 3).view().as_json()
    assert figures == {
        "events": 0,
        "class_counts": {"1": 0, "2": 0, "3": 0},
        "duplicates": 0,
        "window": {
            "size": 5,
            "events": 0,
            "class_counts": {"1": 0, "2": 0, "3": 0},
            "mae": None,
            "mse": None,
            "accuracy": None,
            "confusion": [[0, 0, 0]] * 3,
        },
        "since_start": {
            "class_counts": {"1": 0, "2": 0, "3": 0},
            "mae": None,
            "mse": None,
            "accuracy": None,
            "confusion": [[0, 0, 0]] * 3,
        },
        "undefined": {
            **{f"/window/{name}": "no labelled events in the window" for name in ("mae", "mse", "accuracy")},
            **{f"/since_start/{name}": "no labelled events yet" for name in ("mae", "mse", "accuracy")},
        },
    }


def test_rows_of_the_confusion_are_true_ranks() -> None:
    metrics = OrdinalMetrics(2, 3)
    feed(metrics, np.array([3.0, 1.0, 3.0]), np.array([1, 2, 3]))
    figures = metrics.view().as_json()
    assert figures["window"]["confusion"] == [[0, 1, 0], [0, 0, 0], [0, 0, 1]]
    assert figures["since_start"]["confusion"] == [[0, 1, 0], [0, 0, 0], [1, 0, 1]]
    assert (figures["since_start"]["mae"], figures["since_start"]["mse"]) == (1.0, 5 / 3)
    assert (figures["window"]["mae"], figures["window"]["accuracy"]) == (0.5, 0.5)


@given(cuts=st.lists(st.integers(0, 300), max_size=8), window=st.sampled_from([1, 7, 64, 65, 150, 1000]))
@settings(max_examples=25, deadline=None, derandomize=True, database=None)
def test_batch_cuts_are_invisible_and_a_restore_goes_on(cuts: list[int], window: int) -> None:
    y, decisions = stream(300, seed=3)
    applied = np.random.default_rng(0).random(300) < 0.9
    beyond = ~applied & (np.arange(300) % 2 == 0)
    whole, cut = OrdinalMetrics(window, 5), OrdinalMetrics(window, 5)
    feed(whole, y, decisions, applied, beyond)
    for start, stop in pairwise([0, *sorted(cuts), 300]):
        part = slice(start, stop)
        feed(cut, y[part], decisions[part], applied[part], beyond[part])
        copied = {name: array.copy() for name, array in cut.state().items()}
        cut = OrdinalMetrics(window, 5)
        cut.restore(copied)
    for name, array in whole.state().items():
        other = cut.state()[name]
        assert (array.dtype, array.shape, array.tobytes()) == (other.dtype, other.shape, other.tobytes())
    assert whole.view().as_json() == cut.view().as_json()
    assert whole.view().history() == cut.view().history()
    assert whole.view().as_json()["duplicates"] == int((~applied & ~beyond).sum()) > 0
    check_again = OrdinalMetrics(window, 5)
    feed(check_again, y[applied], decisions[applied])
    check(check_again, y[applied], decisions[applied], window, 5)
    assert check_again.view().as_json() | {"duplicates": 0} == whole.view().as_json() | {"duplicates": 0}


def test_a_restored_state_is_a_copy() -> None:
    first, second = OrdinalMetrics(10, 4), OrdinalMetrics(10, 4)
    feed(first, *stream(30, seed=1, ranks=4))
    second.restore(first.state())
    before = second.view().frozen().as_json()
    feed(first, *stream(30, seed=2, ranks=4))
    assert second.view().as_json() == before
    assert all(array.dtype.kind == "i" for name, array in first.state().items() if name != "history")


def test_the_window_takes_no_more_room_than_its_events() -> None:
    metrics = OrdinalMetrics(1_000_000, 5)
    assert len(metrics.arrays.labels) == 64
    feed(metrics, *stream(100, seed=0))
    assert len(metrics.arrays.labels) == len(metrics.arrays.decisions) == 128
    metrics.reserve(1000)
    assert len(metrics.arrays.labels) == 1024
    check(metrics, *stream(100, seed=0), 1_000_000, 5)
    assert len(OrdinalMetrics(5, 5).arrays.labels) == 5


def test_the_history_holds_the_window_at_each_stride() -> None:
    metrics = OrdinalMetrics(100, 5)
    y, decisions = stream(400, seed=2)
    feed(metrics, y, decisions)
    history = metrics.view().history()
    assert history["stride"] == HISTORY_STRIDE == 64
    assert [point["events"] for point in history["points"]] == [64, 128, 192, 256, 320, 384]
    for point in history["points"]:
        assert tuple(point) == ORDINAL_HISTORY_COLUMNS == ("events", "mae", "accuracy")
        assert type(point["events"]) is int
        cut = slice(max(0, point["events"] - 100), point["events"])
        figures = expected(y[cut], decisions[cut], 5)
        assert (point["mae"], point["accuracy"]) == (figures["mae"], figures["accuracy"])


def test_the_history_is_thinned_and_never_longer_than_its_bound() -> None:
    metrics, n = OrdinalMetrics(3, 5), 2 * HISTORY_POINTS * HISTORY_STRIDE + 5 * HISTORY_STRIDE
    y, decisions = stream(n, seed=4)
    kept: dict[int, Any] = {}
    cuts = [0, HISTORY_POINTS * HISTORY_STRIDE, (HISTORY_POINTS + 1) * HISTORY_STRIDE, n - 1, n]
    for start, stop in pairwise(cuts):
        feed(metrics, y[start:stop], decisions[start:stop])
        history = metrics.view().history()
        stride = history["stride"]
        assert [point["events"] for point in history["points"]] == list(range(stride, stop + 1, stride))
        assert len(history["points"]) <= HISTORY_POINTS
        for point in history["points"]:  # thinning changes no point that stays
            assert kept.setdefault(point["events"], point) == point
    assert stride == 4 * HISTORY_STRIDE


def test_frozen_figures_stay_and_live_ones_move() -> None:
    metrics = OrdinalMetrics(20, 5)
    feed(metrics, *stream(70, seed=5))
    live, frozen = metrics.view(), metrics.view().frozen()
    before, past = frozen.as_json(), frozen.history()
    assert before == live.as_json()
    feed(metrics, *stream(70, seed=6))
    assert (frozen.as_json(), frozen.history()) == (before, past)
    assert metrics.view().as_json() != before
    assert metrics.events == 140
