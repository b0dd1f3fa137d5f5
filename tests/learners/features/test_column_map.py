"""From encoded columns to the learner's own: against dicts, and looking against learning."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.features.column_map import ColumnMap, NamedColumns, OneHot, RenumberedColumns, capacity_for, columns_of
from learners.features.feature_kinds import Dense, SparseColumns
from learners.features.named import Field, Named, Table
from learners.numerics.arrays import Matrix, Sparse
from tests.learners.streams import piece

TABLE = Table(
    fields=(
        Field("a", "numeric"),
        Field("b", "categorical", categories=3),
        Field("c", "categorical", categories=1),
        Field("d", "numeric"),
    )
)
TWO_TO_24 = SparseColumns(dim=2**24)
HALF = settings(max_examples=40)


def sparse(rows: list[dict[int, float]]) -> Sparse:
    """CSR rows of dicts from column to number."""
    tidy = [sorted(row.items()) for row in rows]
    flat = [pair for row in tidy for pair in row]
    return Sparse(
        np.array([value for _, value in flat], dtype=np.float64),
        np.array([column for column, _ in flat], dtype=np.int64),
        np.cumsum([0, *map(len, tidy)], dtype=np.int64),
    )


def rows_of(rows: Any) -> list[list[tuple[int, float]]]:
    """Return the (column, number) pairs of each row in order."""
    ends = rows.indptr.tolist()
    pairs = list(zip(rows.indices.tolist(), rows.data.tolist(), strict=True))
    return [pairs[a:b] for a, b in pairwise(ends)]


def same(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return all(x.dtype == y.dtype and x.tobytes() == y.tobytes() for x, y in zip(a.values(), b.values(), strict=True))


def test_each_feature_kind_has_its_stage() -> None:
    kinds = (Dense(dim=3), TABLE, Named(bits=4), SparseColumns(dim=3))
    assert [type(columns_of(features)) for features in kinds] == [ColumnMap, OneHot, NamedColumns, RenumberedColumns]


def test_dense_rows_pass_unchanged() -> None:
    stage = columns_of(Dense(dim=3))
    X = np.ones((2, 3))
    assert stage.learn(X) is X
    assert stage.transform(X) is X
    assert (stage.dim, stage.used, stage.state()) == (3, 3, {})
    assert stage.scaled().tolist() == [True] * 3
    assert stage.frozen() is stage


# Tables


def one_hot(X: Matrix, categories: dict[str, list[float]], moving: bool) -> list[list[float]]:
    """Map the rows of TABLE slowly; `categories` has the categories of a field in order of first appearance."""
    out = []
    for a, b, c, d in X.tolist():
        row: list[float] = []
        for value, field in zip((a, b, c, d), TABLE.fields, strict=True):
            missing = value != value
            if field.kind == "numeric":
                row += [value, float(missing)]
                continue
            indicators = [0.0] * (field.categories + 1)
            if not missing:
                order = categories[field.name] if moving else list(categories[field.name])
                if value not in order and len(order) < field.categories:
                    order.append(value)
                indicators[order.index(value) if value in order else field.categories] = 1.0
            row += indicators
        out.append(row)
    return out


table_rows = st.lists(
    st.tuples(*[st.sampled_from([1.0, 2.0, 3.0, 4.0, 5.0, np.nan, 2.0**53 - 1])] * 4), min_size=1, max_size=8
)


@given(st.lists(table_rows, min_size=1, max_size=4))
@HALF
def test_one_hot_equals_the_naive_version(batches: list[list[tuple[float, ...]]]) -> None:
    stage = OneHot(TABLE)
    categories: dict[str, list[float]] = {"b": [], "c": []}
    for batch in batches:
        X = np.array(batch)
        for i in range(len(X)):  # looked at one by one: each as if it came next
            np.testing.assert_array_equal(
                stage.transform(X[i : i + 1]), one_hot(X[i : i + 1], categories, moving=False)
            )
        np.testing.assert_array_equal(stage.learn(X), one_hot(X, categories, moving=True))
        assert stage.category_counts.tolist() == [0, len(categories["b"]), len(categories["c"]), 0]


def test_categories_get_columns_in_order_of_first_appearance() -> None:
    stage = OneHot(TABLE)
    X = np.array([[np.nan, 9.0, np.nan, 1.0], [0.0, 7.0, 7.0, 1.0], [0.0, 9.0, 8.0, 1.0], [0.0, 5.0, 7.0, np.nan],
                  [0.0, 4.0, np.nan, 0.0]])  # fmt: skip
    expected = [
        [np.nan, 1, 1, 0, 0, 0, 0, 0, 1, 0],
        [0, 0, 0, 1, 0, 0, 1, 0, 1, 0],
        [0, 0, 1, 0, 0, 0, 0, 1, 1, 0],  # field c is full: 8 is "other"
        [0, 0, 0, 0, 1, 0, 1, 0, np.nan, 1],
        [0, 0, 0, 0, 0, 1, 0, 0, 0, 0],
    ]
    np.testing.assert_array_equal(stage.learn(X), expected)
    assert (stage.dim, stage.used) == (10, 10)
    assert np.flatnonzero(stage.scaled()).tolist() == [0, 8]


def test_previewing_a_table_changes_nothing_and_a_frozen_stage_stays() -> None:
    stage = OneHot(TABLE)
    stage.learn(np.array([[0.0, 9.0, 9.0, 1.0]]))
    before = {name: array.copy() for name, array in stage.state().items()}
    new = np.array([[0.0, 7.0, 9.0, 1.0]])
    frozen = stage.frozen()
    first = stage.transform(new)
    assert same(stage.state(), before)
    np.testing.assert_array_equal(first, stage.learn(new))  # the place it would get
    stage.learn(np.array([[0.0, 1.0, 9.0, 1.0]]))
    np.testing.assert_array_equal(frozen.transform(np.array([[0.0, 1.0, 9.0, 1.0]])), first)
    assert same(frozen.state(), before)


def test_a_restored_table_continues_identically() -> None:
    random = np.random.default_rng(0)
    X = random.integers(0, 5, (40, 4)).astype(np.float64)
    stage, other = OneHot(TABLE), OneHot(TABLE)
    stage.learn(X[:3])
    other.restore(stage.state())
    np.testing.assert_array_equal(stage.learn(X[3:]), other.learn(X[3:]))
    assert same(stage.state(), other.state())
    other.restore(OneHot(TABLE).state())
    assert same(other.state(), OneHot(TABLE).state())


# Sparse rows

keys = st.integers(0, 30) | st.sampled_from([0, 255, 256, 2**24 - 1, 2**20]) | st.integers(0, 2**24 - 1)
sparse_rows = st.lists(st.dictionaries(keys, st.floats(-9, 9), max_size=8), max_size=8)


@given(st.lists(sparse_rows, min_size=1, max_size=5))
@HALF
def test_renumbering_matches_a_dict(batches: list[list[dict[int, float]]]) -> None:
    stage = RenumberedColumns(TWO_TO_24)
    places: dict[int, int] = {}
    for batch in batches:
        before = {name: array.copy() for name, array in stage.state().items()}
        unknown = 2**62
        seen = [sorted((places.get(column, unknown), column, x) for column, x in row.items()) for row in batch]
        looked = stage.transform(sparse(batch))
        assert rows_of(looked) == [[(-1 if at == unknown else at, x) for at, _, x in row] for row in seen]
        assert same(stage.state(), before)
        learnt = stage.learn(sparse(batch))
        for row in batch:
            for column in sorted(row):
                places.setdefault(column, len(places))
        assert rows_of(learnt) == [sorted((places[column], x) for column, x in row.items()) for row in batch]
        assert stage.state()["order"].tolist() == list(places)
        assert (stage.used, stage.dim) == (len(places), capacity_for(len(places)))


@given(sparse_rows, st.dictionaries(keys, st.floats(-9, 9), max_size=8))
@HALF
def test_preview_gives_the_same_column_order_as_learning(past: list[dict[int, float]], row: dict[int, float]) -> None:
    """The sum of squares over a row is then the same to the bit, known columns or not."""
    stage = RenumberedColumns(TWO_TO_24)
    stage.learn(sparse(past))
    looked, learnt = stage.transform(sparse([row])), stage.learn(sparse([row]))
    assert isinstance(looked, Sparse)
    assert isinstance(learnt, Sparse)
    assert looked.data.tobytes() == learnt.data.tobytes()
    has_column = looked.indices >= 0
    assert looked.indices[has_column].tolist() == learnt.indices[has_column].tolist()


def test_thousands_of_columns_in_any_batching() -> None:
    random = np.random.default_rng(0)
    pool = random.choice(2**24, 3000, replace=False)
    rows = sparse([dict.fromkeys(random.choice(pool, 12, replace=False).tolist(), 1.0) for _ in range(600)])
    full, cut = RenumberedColumns(TWO_TO_24), RenumberedColumns(TWO_TO_24)
    together = full.learn(rows)
    parts = [cut.learn(piece(rows, start, stop)) for start, stop in pairwise([0, 1, 2, 50, 50, 51, 300, 600])]
    assert rows_of(together) == [row for part in parts for row in rows_of(part)]
    assert same(full.state(), cut.state())
    assert full.used > 2700
    assert full.dim == capacity_for(full.used)


@pytest.mark.parametrize("size", [63, 64, 65, 66, 1000])
def test_long_rows_are_sorted_like_short_ones(size: int) -> None:
    stage, random = RenumberedColumns(TWO_TO_24), np.random.default_rng(size)
    order = random.permutation(size - 9).tolist()
    stage.learn(sparse([{column: 1.0} for column in order]))
    values = random.normal(size=size).tolist()
    pairs = [(place, values[column]) for place, column in enumerate(order)]
    new = list(zip(range(size - 9, size), values[-9:], strict=True))
    row = sparse([dict(enumerate(values))])
    assert rows_of(stage.transform(row)) == [pairs + [(-1, value) for _, value in new]]
    assert rows_of(stage.learn(row)) == [pairs + new]


def test_few_possible_columns_need_little_memory() -> None:
    stage = RenumberedColumns(SparseColumns(dim=3))
    for _ in range(50):
        stage.learn(sparse([{0: 1.0, 2: 1.0}] * 50))
    assert (stage.used, stage.dim) == (2, 64)
    assert len(stage._keys) <= 256


def test_a_restored_stage_continues_identically() -> None:
    random = np.random.default_rng(1)
    rows = sparse([dict.fromkeys(random.choice(5000, 9, replace=False).tolist(), 1.0) for _ in range(300)])
    for events_before in (0, 1, 200):
        stage, other = RenumberedColumns(TWO_TO_24), RenumberedColumns(TWO_TO_24)
        stage.learn(piece(rows, 0, events_before))
        other.learn(piece(rows, 200, 300))
        other.restore(stage.state())
        assert rows_of(other.transform(rows)) == rows_of(stage.transform(rows))
        assert rows_of(other.learn(rows)) == rows_of(stage.learn(rows))
        assert same(other.state(), stage.state())


def test_a_frozen_stage_stays_unchanged() -> None:
    stage = RenumberedColumns(TWO_TO_24)
    stage.learn(sparse([{5: 1.0}]))
    frozen = stage.frozen()
    for columns in ([4], range(1000)):  # the index inserts a single column, and is rebuilt for many
        stage.learn(sparse([dict.fromkeys(columns, 1.0)]))
        assert rows_of(frozen.transform(sparse([{4: 2.0, 5: 3.0}]))) == [[(0, 3.0), (-1, 2.0)]]
        assert (frozen.used, frozen.dim) == (1, 64)


def test_the_capacity_depends_on_the_count_and_grows_in_small_steps() -> None:
    counts = [0, 1, 64, 65, 72, 73, 1000, 10_000, 10**6, 2**24]
    capacities = [capacity_for(count) for count in counts]
    assert capacities[:6] == [64, 64, 64, 72, 72, 88]
    for count, capacity in zip(counts, capacities, strict=True):
        assert capacity >= count
        assert capacity % 8 == 0  # so zeros at the end do not change a sum over eight lanes
        assert capacity <= max(64, 1.125 * count + 16)
        assert capacity_for(capacity) == capacity


@pytest.mark.parametrize("columns", [8, 128, 129])
def test_the_index_is_at_most_half_full(columns: int) -> None:
    stage = RenumberedColumns(TWO_TO_24)
    for column in range(columns):
        stage.learn(sparse([{column: 1.0}]))
        assert 2 * stage.used <= len(stage._keys)
