"""Merging two batches: events of the second go before given events of the first."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learners.numerics.arrays import Rows, Sparse
from learners.records import LabelledBatch, LateColumns, Segment, join_batches, merge_batches


def rows(n: int, base: float, sparse: bool) -> Rows:
    dense = base + np.arange(3.0 * n).reshape(n, 3)
    if not sparse:
        return dense
    return Sparse(dense.ravel(), np.tile(np.arange(3), n), 3 * np.arange(n + 1))


def batch(n: int, base: float, sparse: bool, bare: list[bool] | None = None, segments: int = 0) -> LabelledBatch:
    late = None
    if bare is not None:
        late = LateColumns.none(n)._replace(bare=np.array(bare, dtype=np.bool_), labelled=base + np.arange(n) / 4)
    cuts = np.linspace(0, n, segments + 1).astype(int).tolist()
    return LabelledBatch(
        rows(n - sum(bare or ()), base, sparse),
        base + np.arange(n),
        weights=np.full(n, base) if base else None,
        times=base + np.arange(n) / 2,
        ids=tuple(f"{base}/{i}" for i in range(n)),
        segments=tuple(
            Segment(a, b, f"source {j}", 100 * j + a, 100 * j + a)
            for j, (a, b) in enumerate(itertools.pairwise(cuts))
            if b > a
        ),
        late=late,
    )


def numbered(first_batch: LabelledBatch) -> list[tuple[str, int] | None]:
    """Of each event, its source and number."""
    numbers: list[tuple[str, int] | None] = [None] * len(first_batch)
    for segment in first_batch.segments:
        for i in range(segment.start, segment.stop):
            assert numbers[i] is None
            numbers[i] = (segment.name, segment.offset + i - segment.start)
    return numbers


@given(st.data())
@pytest.mark.parametrize("sparse", [False, True])
def test_merged_batches_equal_the_events_in_their_order(sparse: bool, data: st.DataObject) -> None:
    n, k = data.draw(st.integers(0, 6)), data.draw(st.integers(1, 5))
    bare = data.draw(st.none() | st.lists(st.booleans(), min_size=n, max_size=n))
    places = sorted(data.draw(st.lists(st.integers(0, n), min_size=k, max_size=k)))
    first, other = batch(n, 0.0, sparse, bare, data.draw(st.integers(0, 3))), batch(k, 1000.0, sparse, [False] * k)
    numbers, at = merge_batches(first, other, np.array(places))
    parts = []
    for i in range(n + 1):
        parts += [other.part(j, j + 1) for j in range(k) if places[j] == i]
        parts += [first.part(i, i + 1)] if i < n else []
    expected = join_batches(parts)
    assert len(numbers) == n + k
    for name in ("labels", "weights", "times"):
        np.testing.assert_array_equal(getattr(numbers, name), getattr(expected, name))
    assert numbers.ids == expected.ids
    assert numbers.late is not None
    assert expected.late is not None
    for column, expected_column in zip(numbers.late, expected.late, strict=True):
        np.testing.assert_array_equal(column, expected_column)
    assert numbered(numbers) == numbered(expected)
    assert [numbers.labels[i] for i in at] == first.labels.tolist()
    if isinstance(numbers.rows, Sparse) and isinstance(expected.rows, Sparse):
        for column, expected_column in zip(numbers.rows, expected.rows, strict=True):
            np.testing.assert_array_equal(column, expected_column)
    else:
        np.testing.assert_array_equal(numbers.rows, expected.rows)
