"""The window of events retained for fits, compared with lists."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from learners.features.retained_events import EventWindow
from learners.numerics.arrays import Rows, Sparse, Vector
from tests.learners.streams import as_sparse, piece

pytestmark = pytest.mark.integration

DIM = 3
REPRODUCIBLY = settings(max_examples=40)
KINDS = pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])

Event = tuple[list[float], float, float]  # a dense row, its label and weight


class NaiveEventWindow:
    """A naive reference: one event at a time; the oldest leaves while there are too many."""

    def __init__(self, window: int, most: int, sparse: bool) -> None:
        self.window, self.most, self.sparse = window, most, sparse
        self.events: list[Event] = []

    def numbers(self) -> int:
        return sum(sum(value != 0 for value in row) if self.sparse else len(row) for row, _, _ in self.events)

    def learn(self, event: Event) -> None:
        self.events.append(event)
        while len(self.events) > 1 and (len(self.events) > self.window or self.numbers() > self.most):
            del self.events[0]


def columns_of(events: list[Event], sparse: bool) -> tuple[Rows, Vector, Vector]:
    X = np.array([row for row, _, _ in events], dtype=np.float64).reshape(-1, DIM)
    y, weight = np.array([label for _, label, _ in events]), np.array([weight for _, _, weight in events])
    return (as_sparse(X) if sparse else X), y, weight


def arrays(rows: Rows) -> list[Any]:
    return list(rows) if isinstance(rows, Sparse) else [rows]


def equals(retained: EventWindow, events: list[Event], sparse: bool) -> bool:
    rows, y, weight = columns_of(events, sparse)
    actual = [*arrays(retained.rows()), retained.labels(), retained.weights()]
    expected = [*arrays(rows), y, weight]
    return len(retained) == len(events) and all(
        a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
        for a, b in zip(actual, expected, strict=True)
    )


def retained_events(window: int, most: int, sparse: bool) -> EventWindow:
    return EventWindow(window, most, None if sparse else DIM)


def restored(retained: EventWindow) -> EventWindow:
    state = {name: array.copy() for name, array in retained.state().items()}
    copy = EventWindow(retained.window, retained.most, retained.dim)
    assert {name: array.shape for name, array in state.items()} == copy.shapes(state)
    assert not len(copy)
    copy.restore(state)
    return copy


def same_state(a: EventWindow, b: EventWindow) -> bool:
    first, other = a.state(), b.state()
    return first.keys() == other.keys() and all(
        first[name].dtype == other[name].dtype
        and first[name].shape == other[name].shape
        and first[name].tobytes() == other[name].tobytes()
        for name in first
    )


def allocated(retained: EventWindow) -> int:
    """Numbers of the rows that there is memory for."""
    return retained._values.room * (retained.dim or 1)


event = st.tuples(
    st.lists(st.sampled_from([0.0, 0.0, 1.5, -2.0]), min_size=DIM, max_size=DIM),
    st.sampled_from([-1.0, 1.0, 4.0]),
    st.sampled_from([0.0, 1.0, 0.25]),
)
batches = st.lists(st.lists(event, max_size=12), max_size=8)
FULL, HALF, EMPTY = ([1.0, 2.0, 3.0], 1.0, 1.0), ([0.0, 0.0, 4.0], -1.0, 0.5), ([0.0, 0.0, 0.0], -1.0, 1.0)


@KINDS
@given(batches=batches, window=st.integers(1, 9), most=st.integers(1, 20))
@example(batches=[[FULL], [EMPTY], [EMPTY, FULL]], window=9, most=2)  # a row that is too long by itself
@example(batches=[[HALF], [FULL, EMPTY], [HALF], []], window=9, most=2)
@example(batches=[[HALF, EMPTY], [EMPTY, EMPTY], [EMPTY]], window=3, most=1)
@REPRODUCIBLY
def test_matches_plain_lists(sparse: bool, batches: list[list[Event]], window: int, most: int) -> None:
    retained, one_by_one, lists = (
        retained_events(window, most, sparse),
        retained_events(window, most, sparse),
        NaiveEventWindow(window, most, sparse),
    )
    for batch in batches:
        retained.learn(*columns_of(batch, sparse))
        for item in batch:
            lists.learn(item)
            one_by_one.learn(*columns_of([item], sparse))
            assert equals(one_by_one, lists.events, sparse)
        assert equals(retained, lists.events, sparse)
        assert same_state(retained, one_by_one)
        assert same_state(retained, restored(retained))
        one_by_one = restored(one_by_one)  # continues like the original


@KINDS
def test_long_streams_match_plain_lists(sparse: bool) -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(5000, DIM)) * (random.random((5000, DIM)) < 0.6)
    y, weight, rows = np.sign(random.normal(size=5000)), random.random(5000), as_sparse(X) if sparse else X
    events = list(zip(X.tolist(), y.tolist(), weight.tolist(), strict=True))
    for window, most in ((300, 10**6), (10**6, 500), (150, 270)):
        retained, lists, start = retained_events(window, most, sparse), NaiveEventWindow(window, most, sparse), 0
        for size in [*random.integers(0, 40, 100).tolist(), 700, 1, 900, 3]:
            stop = start + size
            retained.learn(piece(rows, start, stop), y[start:stop], weight[start:stop])
            for event in events[start:stop]:
                lists.learn(event)
            assert equals(retained, lists.events, sparse)
            start = stop


@KINDS
def test_retained_events_are_copies(sparse: bool) -> None:
    columns = columns_of([FULL, HALF], sparse)
    retained = retained_events(5, 100, sparse)
    retained.learn(*columns)
    for array in [*arrays(columns[0]), *columns[1:]]:
        array[:] = 9
    assert equals(retained, [FULL, HALF], sparse)
    state = {name: array.copy() for name, array in retained.state().items()}
    copy = retained_events(5, 100, sparse)
    copy.restore(state)
    for array in state.values():
        array[:] = 9
    assert equals(copy, [FULL, HALF], sparse)


@KINDS
def test_rows_may_start_anywhere_in_their_array(sparse: bool) -> None:
    rows, y, weight = columns_of([HALF, FULL, EMPTY, FULL], sparse)
    retained = retained_events(5, 100, sparse)
    if isinstance(rows, Sparse):
        rows = Sparse(rows.data, rows.indices, rows.indptr[1:])  # of a longer matrix
        retained.learn(rows, y[1:], weight[1:])
    else:
        retained.learn(rows[1:], y[1:], weight[1:])
    assert equals(retained, [FULL, EMPTY, FULL], sparse)


@KINDS
def test_clear_removes_all_events(sparse: bool) -> None:
    retained = retained_events(50, 1000, sparse)
    retained.learn(*columns_of([FULL] * 80, sparse))
    retained.clear()
    assert equals(retained, [], sparse)
    assert same_state(retained, retained_events(50, 1000, sparse))
    assert allocated(retained) == 0
    retained.learn(*columns_of([HALF, FULL], sparse))
    assert equals(retained, [HALF, FULL], sparse)


@KINDS
@pytest.mark.parametrize(("window", "most"), [(100, 10**6), (10**6, 300)], ids=["by events", "by numbers"])
@pytest.mark.parametrize("size", [1, 7, 99, 4000])
def test_memory_is_at_most_twice_the_retained_events(sparse: bool, window: int, most: int, size: int) -> None:
    retained = retained_events(window, most, sparse)
    for _ in range(8000 // size):
        retained.learn(*columns_of([FULL] * size, sparse))
        assert allocated(retained) <= 2 * 300
        assert retained._labels.room <= 2 * 100
    assert len(retained) == 100


def test_memory_depends_on_the_retained_events_and_not_on_the_window() -> None:
    retained = EventWindow(10**9, 10**12, DIM)
    retained.learn(*columns_of([FULL] * 50, False))
    assert allocated(retained) <= 64 * 2 * DIM


@KINDS
def test_an_event_is_moved_about_once(sparse: bool) -> None:
    """Learning one event after the other costs O(1) moves each: the arrays stay in place but for every 100th event."""
    retained, moves, before = retained_events(100, 10**6, sparse), 0, None
    for n in range(3000):
        retained.learn(*columns_of([FULL], sparse))
        start = retained.labels().__array_interface__["data"][0]
        moves += n >= 100 and start != before + retained.labels().itemsize
        before = start
    assert 0 < moves <= 2900 / 100 + 1


@KINDS
def test_shapes_identify_a_foreign_state(sparse: bool) -> None:
    large, small = retained_events(50, 1000, sparse), retained_events(50, 10, sparse)
    large.learn(*columns_of([FULL] * 20, sparse))
    state = {name: array.copy() for name, array in large.state().items()}
    shapes = {name: array.shape for name, array in state.items()}
    assert large.shapes(state) == shapes
    assert small.shapes(state)["labels"] == (3,)  # it keeps no more than that
    for name in state:
        cut = state | {name: state[name][:-1]}
        assert large.shapes(cut) != {key: array.shape for key, array in cut.items()}


@pytest.mark.parametrize("sizes", [[3, -3, 6], [2**63 - 1, 2**63 - 1, 8], [3, 4, -1]], ids=str)
def test_shapes_of_impossible_sizes_are_empty(sizes: list[int]) -> None:
    retained = retained_events(50, 1000, True)
    retained.learn(*columns_of([HALF, FULL, HALF], True))
    state = retained.state() | {"sizes": np.array(sizes)}
    assert retained.shapes(state) == dict.fromkeys(state, (0,))


def test_an_oversized_row_is_retained_alone() -> None:
    for dim, rows in ((None, as_sparse(np.ones((4, 50)))), (50, np.ones((4, 50)))):
        retained = EventWindow(10, 20, dim)
        retained.learn(rows, np.array([1.0, 2.0, 3.0, 4.0]), np.ones(4))
        assert retained.labels().tolist() == [4.0]
        assert allocated(retained) <= 128 * (dim or 1)
        assert same_state(retained, restored(retained))
