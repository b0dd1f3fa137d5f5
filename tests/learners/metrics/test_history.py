"""The history of figures: every row of a level, everything covered, the same over a restore."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from learners.metrics.history import LEVELS, ROWS, MetricHistory

COLUMNS = ("events", "clock", "served", "auc")
STRIDE = 10


def row(number: int, clock: float | None = None, served: int = 0) -> NDArray[np.float64]:
    """Return row `number` after this many served and learnt events."""
    steps = number * STRIDE
    clock = 1000.0 + steps if clock is None else clock
    return np.array([steps - served, clock, served, number % 7 / 7 if number % 5 else np.nan])


def filled(count: int) -> MetricHistory:
    history = MetricHistory(COLUMNS, STRIDE)
    for number in range(1, count + 1):
        history.add(row(number))
    return history


def halves(number: int) -> int:
    """Events served by row `number`: all of the first three strides, and then every second event."""
    return number * STRIDE if number <= 3 else 3 * STRIDE + (number - 3) * STRIDE // 2


def stored_rows(count: int) -> list[int]:
    """Return the numbers of the rows in the history after `count` rows, from the definition."""
    numbers, level = set(), 0
    while not level or max(count - 1, 0) // ROWS >> (level - 1):
        numbers |= {n << level for n in range(max(1, (count >> level) - ROWS + 1), (count >> level) + 1)}
        level += 1
    return sorted(numbers)


def restored(history: MetricHistory, state: dict[str, NDArray[Any]] | None = None) -> MetricHistory:
    other = MetricHistory(history.columns, history.stride)
    other.restore({name: array.copy() for name, array in (state or history.state()).items()})
    return other


def same(a: MetricHistory, b: MetricHistory) -> bool:
    return all(
        x.shape == y.shape and x.tobytes() == y.tobytes()
        for x, y in zip(a.state().values(), b.state().values(), strict=True)
    )


@pytest.mark.parametrize("count", [0, 1, 2, 63, 64, 65, 66, 127, 128, 129, 130, 191, 192, 193, 256, 257, 1000, 5000])
def test_the_retained_rows_match_the_definition(count: int) -> None:
    history = filled(count)
    points = history.view().points()
    assert [point["events"] for point in points] == [STRIDE * n for n in stored_rows(count)]
    for point in points:
        expected = row(point["events"] // STRIDE)
        assert tuple(point) == COLUMNS
        assert type(point["events"]) is type(point["served"]) is int
        assert point["served"] == 0
        assert point["clock"] == expected[1]
        assert point["auc"] == (None if math.isnan(expected[3]) else expected[3])
    json.dumps(points, allow_nan=False)
    assert history.shapes(history.state()) == {name: array.shape for name, array in history.state().items()}
    assert list(history.problems(history.state())) == []


def test_the_whole_stream_is_covered_with_finer_steps_near_its_end() -> None:
    history = MetricHistory(COLUMNS, STRIDE)
    for count in range(1, 3000):
        history.add(row(count))
        if count % 37 and count > 200:
            continue
        numbers = [point["events"] // STRIDE for point in history.view().points()]
        assert numbers[-1] == count
        for older, newer in zip([0, *numbers], numbers, strict=False):
            assert newer - older <= (count - newer) / 16 + 1


def test_memory_grows_with_the_logarithm_of_the_stream() -> None:
    sizes = {count: filled(count).rows.shape for count in (0, 64, 65, 128, 129, 4096, 4097)}
    assert {count: shape[0] for count, shape in sizes.items()} == {0: 1, 64: 1, 65: 2, 128: 2, 129: 3, 4096: 7, 4097: 8}
    assert all(shape[1:] == (ROWS, 4) for shape in sizes.values())


def test_the_number_of_levels_is_bounded() -> None:
    """A state from far down a stream: the first rows are forgotten, and no more levels are added."""
    count = (ROWS << (LEVELS - 1)) * 4 + 12345
    rows = np.zeros((LEVELS, ROWS, 4))
    for level in range(LEVELS):
        for n in range((count >> level) - ROWS + 1, (count >> level) + 1):
            rows[level, n % ROWS] = row(n << level)
    state: dict[str, NDArray[Any]] = {"count": np.array([count]), "rows": rows}
    history = restored(MetricHistory(COLUMNS, STRIDE), state)
    assert history.shapes(state)["rows"] == rows.shape
    assert list(history.problems(state)) == []
    for number in range(count + 1, count + 200):
        history.add(row(number))
    assert history.rows.shape == rows.shape
    assert list(history.problems(history.state())) == []
    events = [point["events"] for point in history.view().points()]
    assert events == sorted(set(events))
    assert len(events) < LEVELS * ROWS


def test_rows_are_accepted_at_multiples_of_the_stride_only() -> None:
    history = filled(3)
    assert [history.steps_to_next(steps) for steps in (30, 31, 39, 40)] == [10, 9, 1, 0]
    for number in (2, 3, 5):
        with pytest.raises(ValueError, match="40"):
            history.add(row(number))
    history.add(row(4))
    assert [point["events"] for point in history.view().points()] == [10, 20, 30, 40]


@pytest.mark.parametrize("columns", [("events", "clock"), ("clock", "events", "served"), ("events", "clock", "auc")])
def test_the_first_columns_are_fixed(columns: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="served"):
        MetricHistory(columns, 1)


def test_served_and_learnt_events_are_counted_the_same_way() -> None:
    history = MetricHistory(COLUMNS, STRIDE)
    for number in range(1, 201):
        with pytest.raises(ValueError, match=str(number * STRIDE)):
            history.add(row(number, served=halves(number)) - [0, 0, 1, 0])
        history.add(row(number, served=halves(number)))
    points = history.view().points()
    assert [point["events"] + point["served"] for point in points] == [STRIDE * n for n in stored_rows(200)]
    assert [point["served"] for point in points] == [halves(n) for n in stored_rows(200)]
    assert list(history.problems(history.state())) == []
    assert history.view().since(0) == list(zip(stored_rows(200), points, strict=True))
    assert [number for number, _ in history.view().since(192)] == list(range(193, 201))


def test_rows_of_served_events_have_a_position_among_the_labelled_events() -> None:
    history = MetricHistory(COLUMNS, STRIDE)
    for number in range(1, 9):
        history.add(row(number, served=halves(number)))
    view = history.view()
    assert [point["events"] for point in view.points()] == [0, 0, 0, 5, 10, 15, 20, 25]
    assert [point["served"] for point in view.points(stop=5)] == [10, 20, 30, 35]
    assert [(point["events"], point["served"]) for point in view.points(step=10)] == [
        (0, 30), (10, 40), (20, 50), (25, 55)
    ]  # fmt: skip


@given(
    st.integers(0, 400),
    st.none() | st.floats(-100, 5000),
    st.none() | st.floats(-100, 5000),
    st.none() | st.sampled_from([1e-320, 1e-3, 1.0, 10.0, 25.0, 64.0, 1e3, 1e308, math.inf]) | st.floats(0.5, 500),
    st.sampled_from(["events", "clock"]),
)
@settings(max_examples=60)
def test_points_are_selected_by_axis_and_range(count: int, start: Any, stop: Any, step: Any, by: Any) -> None:
    view = filled(count).view()
    expected = [
        point
        for point in view.points()
        if (start is None or point[by] >= start) and (stop is None or point[by] <= stop)
    ]
    got = view.points(start, stop, step, by)
    if step is None:
        assert got == expected
        return
    if step >= 1e-3:
        last = {math.ceil(point[by] / step): point for point in expected}
        assert got == list(last.values())
    else:  # so small that every row has a step of its own
        assert got == expected


def test_a_step_keeps_only_its_multiples() -> None:
    events = [point["events"] for point in filled(40).view().points(start=95, step=50)]
    assert events == [100, 150, 200, 250, 300, 350, 400]


@pytest.mark.parametrize("step", [0.0, -1.0, math.nan])
def test_a_step_must_be_positive(step: float) -> None:
    with pytest.raises(ValueError, match="step"):
        filled(3).view().points(step=step)


def test_rows_without_a_clock_are_absent_from_the_clock_axis() -> None:
    history = MetricHistory(COLUMNS, STRIDE)
    for number in range(1, 6):
        history.add(row(number, clock=np.nan if number < 3 else 100.0 * number))
    view = history.view()
    assert [point["clock"] for point in view.points()] == [None, None, 300.0, 400.0, 500.0]
    assert [point["clock"] for point in view.points(by="clock")] == [300.0, 400.0, 500.0]
    assert [point["clock"] for point in view.points(start=301, by="clock", step=1000)] == [500.0]
    assert list(history.problems(history.state())) == []


@pytest.mark.parametrize("number", [0, 1, 2, 64, 150, 299, 300, 301, 10**18])
def test_rows_after_a_given_number(number: int) -> None:
    view = filled(300).view()
    numbered = [(point["events"] // STRIDE, point) for point in view.points()]
    assert view.since(number) == [(item, point) for item, point in numbered if item > number]


@given(st.lists(st.integers(0, 300), max_size=6))
@settings(max_examples=25)
def test_a_restored_history_continues_bit_for_bit(cuts: list[int]) -> None:
    full, cut = filled(300), MetricHistory(COLUMNS, STRIDE)
    for number in range(1, 301):
        if number in cuts:
            cut = restored(cut)
        cut.add(row(number))
    assert same(full, cut)
    assert full.view().points() == cut.view().points()


def test_a_restored_history_does_not_share_its_source_state() -> None:
    history = filled(70)
    other = MetricHistory(COLUMNS, STRIDE)
    other.restore(history.state())
    other.add(row(71))
    assert same(history, filled(70))
    assert not same(history, other)


def test_frozen_rows_stay_unchanged() -> None:
    history = filled(64)
    live, frozen = history.view(), history.view().frozen()
    before = frozen.points()
    assert live.points() == before
    history.add(row(65))
    assert frozen.points() == before
    assert history.view().points()[-1]["events"] == 650


IMPOSSIBLE = [  # array, place and value; tests of wording have the sentences
    ("count", 0, -1),
    ("count", 0, 2**60),
    ("count", 0, 64),
    ("count", 0, 200),
    ("rows", 0, 5.0),
    ("rows", 4 * (ROWS + 1), math.nan),
    ("rows", 4 * 7 + 2, 1.0),
    ("rows", 3, math.inf),
    ("rows", 4 * 7 + 1, 1e9),
    ("rows", 4 * 7 + 1, math.nan),
]


def impossible(name: str, place: int, value: float) -> list[tuple[str, str]]:
    """Return the problems of 100 rows with another value in one place."""
    history = filled(100)
    state = {key: array.copy() for key, array in history.state().items()}
    state[name].reshape(-1)[place] = value
    return list(history.problems(state))


@pytest.mark.parametrize(("name", "place", "value"), IMPOSSIBLE)
def test_impossible_states_are_detected(name: str, place: int, value: float) -> None:
    assert [where for where, _ in impossible(name, place, value)] == [name]


@pytest.mark.parametrize("moved", [0.5, 65.0, -65.0, 1e4])
def test_event_counts_are_integers_and_never_decrease(moved: float) -> None:
    """Of a row whose sum is right."""
    history = MetricHistory(COLUMNS, STRIDE)
    for number in range(1, 31):
        history.add(row(number, served=halves(number)))
    state = {key: array.copy() for key, array in history.state().items()}
    state["rows"][0, 15, [0, 2]] += [moved, -moved]
    ((wrong, why),) = history.problems(state)
    assert wrong == "rows"
    assert "events" in why


@pytest.mark.parametrize("count", [65, 99, 101, 128])
def test_a_count_that_contradicts_the_rows_is_detected(count: int) -> None:
    state = {**filled(100).state(), "count": np.array([count])}
    assert [name for name, _ in MetricHistory(COLUMNS, STRIDE).problems(state)] == ["rows"]
