"""The window against scikit-learn over the very same events, after any number of them came, went or changed."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from learners.metrics.definitions import FIGURES, MetricSettings
from learners.metrics.window import Window
from learners.numerics.order_statistics import values
from tests.learners.metrics.naive_metrics import exact_figures

SETTINGS = MetricSettings(beta=2.0, max_fpr=0.3, k=5)


class Events(NamedTuple):
    """Columns for `Window.learn`."""

    scores: NDArray[np.float64]
    probabilities: NDArray[np.float64]
    y: NDArray[np.float64]
    decisions: NDArray[np.int64]
    clocks: NDArray[np.float64]

    def part(self, start: int, stop: int) -> Events:
        return Events._make(column[start:stop] for column in self)

    def picked(self, which: Any) -> Events:
        return Events._make(column[which] for column in self)


def stream(n: int, seed: int, *, share: float = 0.3, levels: int = 0, clocked: float = 0.0) -> Events:
    """`levels` above 0: so few distinct scores that most pairs tie; `clocked`: the mean gap between two clocks."""
    random = np.random.default_rng(seed)
    y = np.where(random.random(n) < share, 1.0, -1.0)
    scores = random.integers(0, levels, n) + 1.0 * (y > 0) if levels else random.normal(size=n) + y
    probabilities = 1 / (1 + np.exp(-scores + random.normal(size=n)))
    probabilities[random.random(n) < 0.05] = 0.0
    probabilities[random.random(n) < 0.05] = 1.0
    clocks = np.cumsum(random.exponential(clocked, n)) if clocked else np.full(n, np.nan)
    return Events(scores, probabilities, y, (probabilities >= 0.5).astype(np.int64), clocks)


def feed(window: Window, events: Events) -> None:
    window.learn(*events)


def check(window: Window, events: Events, tolerance: float = 1e-12) -> None:
    """Check the metrics of the window against their definitions over `events`, and the reasons of null metrics."""
    figures, undefined = window.view().figures(SETTINGS)
    label = events.y > 0
    expected = exact_figures(label, events.scores, events.probabilities, events.decisions > 0, SETTINGS)
    assert list(figures) == [name for name in FIGURES if name in expected]
    for name, value in expected.items():
        if value is None:
            assert figures[name] is None, name
        elif isinstance(value, dict):
            assert figures[name] == value
        else:
            assert figures[name] == pytest.approx(value, rel=0, abs=tolerance), name
    assert set(undefined) == {f"/window/{name}" for name, value in figures.items() if value is None}
    json.dumps(figures, allow_nan=False)


@pytest.mark.parametrize("share", [0.02, 0.5, 0.97])
@pytest.mark.parametrize("levels", [0, 1, 3, 9])
@pytest.mark.parametrize("size", [1, 2, 37, 64, 300])
def test_every_metric_matches_the_definitions(size: int, levels: int, share: float) -> None:
    events = stream(400, seed=size + levels, share=share, levels=levels)
    window = Window(size, None)
    moments = sorted({1, 2, 3, 399, 400, *np.random.default_rng(levels).integers(4, 399, 3).tolist()})
    check(window, events.part(0, 0))
    for start, stop in pairwise([0, *moments]):
        feed(window, events.part(start, stop))
        check(window, events.part(max(0, stop - size), stop))


def test_long_runs_accumulate_no_error() -> None:
    events = stream(60_000, seed=1, share=0.05)
    window = Window(500, None)
    feed(window, events)
    check(window, events.part(59_500, 60_000))
    fresh = Window(500, None)
    fresh.restore(window.state())
    assert fresh.view().figures(SETTINGS) == window.view().figures(SETTINGS)  # to the bit


@pytest.mark.parametrize("levels", [0, 4])
def test_events_expire_by_their_clock(levels: int) -> None:
    events = stream(600, seed=2, levels=levels, clocked=1.0)
    events.clocks[:40] = np.nan
    window = Window(80, 60.0)
    for stop in range(1, 601):
        feed(window, events.part(stop - 1, stop))
        now = events.clocks[stop - 1]
        inside = np.arange(stop) >= stop - 80
        if not np.isnan(now):
            inside &= events.clocks[:stop] > now - 60.0
        if stop in (39, 40, 41, 90, 300, 600):
            check(window, events.part(0, stop).picked(inside))
    last = float(events.clocks[-1])
    for clock in (np.nan, last, last + 30.0, last + 59.9, last + 1e9):
        window.advance(clock)
        inside = (events.clocks > clock - 60.0) | np.isnan(clock) & (events.clocks > last - 60.0)
        check(window, events.picked(inside & (np.arange(600) >= 520)))
    assert window.view().figures(SETTINGS)[0]["events"] == 0


def test_events_expire_immediately_if_the_clock_is_too_coarse() -> None:
    window = Window(10, 1e-9)
    feed(window, stream(5, seed=0)._replace(clocks=np.full(5, 1.7e9)))
    check(window, stream(0, seed=0))
    assert window.events == 5


@pytest.mark.parametrize("levels", [0, 3])
def test_a_corrected_label_counts_as_if_it_was_original(levels: int) -> None:
    events = stream(300, seed=4, levels=levels)
    window = Window(100, None)
    right = events.y.copy()
    random = np.random.default_rng(0)
    for start in range(0, 300, 20):
        feed(window, events.part(start, start + 20))
        for number in random.integers(0, start + 20, 10).tolist():
            label = int(random.integers(0, 2))
            window.correct(number, label)
            right[number] = 2.0 * label - 1.0
    check(window, events._replace(y=right).part(200, 300))
    straight = Window(100, None)
    feed(straight, events._replace(y=right))
    for name, array in straight.state().items():
        assert array.tobytes() == window.state()[name].tobytes(), name
    assert straight.view().figures(SETTINGS) == window.view().figures(SETTINGS)


@pytest.mark.parametrize("seed", range(8))
def test_batches_corrections_clocks_and_restores_in_any_combination(seed: int) -> None:
    random = np.random.default_rng(seed)
    size, seconds = int(random.choice([5, 40, 200])), float(random.choice([3.0, 30.0, 200.0]))
    events = stream(400, seed, share=float(random.choice([0.05, 0.5])), levels=int(random.choice([0, 4])), clocked=1.0)
    events.clocks[: random.integers(0, 60)] = np.nan
    window, stop = Window(size, seconds), 0
    while stop < 400:
        start, stop = stop, min(400, stop + int(random.integers(1, 120)))
        feed(window, events.part(start, stop))
        for number in random.integers(0, stop, 5).tolist():
            label = int(random.integers(0, 2))
            window.correct(number, label)
            events.y[number] = 2.0 * label - 1.0
        now = events.clocks[stop - 1]
        inside = (np.arange(400) < stop) & (np.arange(400) >= stop - size)
        check(window, events.picked(inside & (np.isnan(now) | (events.clocks > now - seconds))))
        state = window.state()
        assert list(window.problems(state)) == []
        if random.random() < 0.4:
            window = Window(size, seconds)
            window.restore(state)


def test_correcting_an_expired_or_unchanged_label_changes_nothing() -> None:
    window = Window(5, None)
    events = stream(12, seed=5)
    feed(window, events)
    before = {name: array.copy() for name, array in window.state().items()}
    for number in (0, 6):
        window.correct(number, int(events.y[number] < 0))
    window.correct(12, 1)  # not learnt yet
    window.correct(9, int(events.y[9] > 0))
    assert all((window.state()[name] == array).all() for name, array in before.items() if name != "clocks")
    check(window, events.part(7, 12))


@given(st.lists(st.integers(0, 260), max_size=6), st.sampled_from([1, 7, 64, 65, 150, 1000]), st.booleans())
@settings(max_examples=25)
def test_batching_is_invisible_and_a_restored_state_continues(cuts: list[int], size: int, timed: bool) -> None:
    events = stream(260, seed=6, levels=40, clocked=1.0 if timed else 0.0)
    window = Window(size, 70.0 if timed else None)
    feed(window, events)
    pieces = Window(size, 70.0 if timed else None)
    for start, stop in pairwise([0, *sorted(cuts), 260]):
        feed(pieces, events.part(start, stop))
        state = pieces.state()
        assert list(pieces.problems(state)) == []
        assert {name: array.shape for name, array in state.items()} == pieces.shapes(state)
        pieces = Window(size, 70.0 if timed else None)
        pieces.restore(state)
    for name, array in window.state().items():
        assert array.tobytes() == pieces.state()[name].tobytes(), name
    assert window.view().figures(SETTINGS) == pieces.view().figures(SETTINGS)


wild = st.floats(allow_nan=True, allow_infinity=True) | st.sampled_from([0.0, -0.0, 5e-324, 1e308, -1e308])


@given(st.lists(st.tuples(wild, st.floats(0, 1), st.booleans(), st.booleans()), max_size=40), st.integers(1, 30))
@settings(max_examples=40)
def test_any_scores_and_probabilities_are_accepted(rows: list[tuple[float, float, bool, bool]], size: int) -> None:
    table = np.array(rows, dtype=np.float64).reshape(-1, 4)
    scores, probabilities, label, called = np.ascontiguousarray(table.T)
    events = Events(
        scores,
        probabilities,
        2.0 * label - 1.0,
        called.astype(np.int64),
        np.full(len(rows), np.nan),
    )
    window = Window(size, None)
    feed(window, events)
    figures, _ = window.view().figures(SETTINGS)
    json.dumps([figures, window.view().curves(7)], allow_nan=False)
    last = events.picked(slice(max(0, len(rows) - size), None))
    clean = np.where(np.isnan(last.scores), 0.0, last.scores)
    order = np.unique(clean, return_inverse=True)[1].astype(float)  # scikit-learn refuses infinite scores
    check(window, last._replace(scores=order))


def test_a_frozen_view_stays_and_a_live_view_follows() -> None:
    window = Window(700, None)
    feed(window, stream(1500, seed=7))
    live, frozen = window.view(), window.view().frozen()
    before, curves = live.figures(SETTINGS), live.curves()
    assert frozen.figures(SETTINGS) == before
    for _ in range(3):
        feed(window, stream(300, seed=8))
        window.correct(window.events - 1, 1)
    assert (frozen.figures(SETTINGS), frozen.curves()) == (before, curves)
    assert window.view().figures(SETTINGS) != before


def test_the_ring_grows_by_powers_of_two() -> None:
    window = Window(1000, None)
    assert [window.capacity(n) for n in (0, 1, 64, 65, 128, 129, 512, 513, 1000, 5000)] == [
        64, 64, 64, 128, 128, 256, 512, 1000, 1000, 1000
    ]  # fmt: skip
    for n in (1, 63, 1, 500, 2000):
        feed(window, stream(n, seed=n))
        assert len(window.state()["scores"]) == window.capacity(window.events)
    assert Window(10, None).capacity(3) == 10


def broken(name: str, change: Any, seconds: float | None) -> list[tuple[str, str]]:
    """Return the problems of a state of 150 events in a window of 100 with one changed array."""
    window = Window(100, seconds)
    events = stream(150, seed=9, clocked=1.0)
    events.clocks[:70] = np.nan
    feed(window, events)
    state = {key: array.copy() for key, array in window.state().items()}
    assert list(window.problems(state)) == []
    change(state[name])
    return list(window.problems(state))


def put(at: Any, value: Any) -> Any:
    def change(array: NDArray[Any]) -> None:
        array[at] = value

    return change


@pytest.mark.parametrize(
    ("name", "change", "seconds"),
    [
        ("labels", put(3, 2), None),
        ("labels", put(3, -1), None),
        ("decisions", put(0, 2), None),
        ("probabilities", put(0, 1.5), None),
        ("probabilities", put(0, np.nan), None),
        ("scores", put(99, np.nan), None),
        ("clocks", put(0, np.inf), None),
        ("clocks", put(45, -5.0), None),  # number 145
        ("clocks", put(45, np.nan), None),
        ("clocks", put(49, np.nan), 1000.0),
        ("clocks", put(70, np.nan), 1000.0),  # the first one in the window
        ("span", put(0, 49), None),
        ("span", put(0, 51), None),
        ("span", put(0, 49), 1000.0),
        ("span", put(0, 151), 1000.0),
        ("span", put(1, 10), None),
        ("span", put(1, 2**60), None),
        ("span", put(0, -1), None),
    ],
)
def test_impossible_states_are_detected(name: str, change: Any, seconds: float | None) -> None:
    result = broken(name, change, seconds)
    assert {where for where, _ in result} == {name}


def test_the_scores_of_a_class_are_sorted() -> None:
    window = Window(3000, None)
    events = stream(5000, seed=10)
    feed(window, events)
    ordered_scores = events.part(2000, 5000)
    assert values(window.view().negatives).tolist() == np.sort(ordered_scores.scores[ordered_scores.y < 0]).tolist()
    assert (
        values(window.view().frozen().positives).tolist()
        == np.sort(ordered_scores.scores[ordered_scores.y > 0]).tolist()
    )


@pytest.mark.parametrize(
    ("size", "seconds", "share"),
    [(900, None, 0.3), (900, None, 0.0), (900, None, 1.0), (7, None, 0.5), (900, 400.0, 0.3), (50, 30.0, 0.02)],
)
@pytest.mark.parametrize("levels", [0, 3])
def test_one_call_equals_event_by_event_calls(size: int, seconds: float | None, share: float, levels: int) -> None:
    """Whether scores wait to be worked in or not: also those that come and go in one call, and all that were."""
    n = 4000
    events = stream(n, seed=size, share=share, levels=levels, clocked=1.0)
    events.clocks[2100:] += 1e6  # with `seconds` nothing of before is left
    events.scores[::50], events.scores[7::50], events.scores[9::50] = -0.0, np.inf, -np.inf
    events.scores[11::50] = np.nan
    single, together = Window(size, seconds), Window(size, seconds)
    for start, stop in pairwise([0, 1, 40, 300, 1200, 1210, 1300, 3500, 3530, n]):
        feed(together, events.part(start, stop))
        for i in range(start, stop):
            feed(single, events.part(i, i + 1))
        for name, array in single.state().items():
            assert array.tobytes() == together.state()[name].tobytes()
        left, other = single.view(), together.view()
        assert values(left.negatives).tobytes() == values(other.negatives).tobytes()
        assert values(left.positives).tobytes() == values(other.positives).tobytes()
        assert left.figures(SETTINGS) == other.figures(SETTINGS)
        first, last = single.arrays.span.tolist()
        recent = np.nan_to_num(events.scores[first:last], posinf=np.inf, neginf=-np.inf)
        assert values(other.positives).tolist() == np.sort(recent[events.y[first:last] > 0]).tolist()
