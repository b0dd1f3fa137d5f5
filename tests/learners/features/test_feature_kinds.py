"""Dense and sparse features to columns: every refusal with its pointer, and the typed way against the untyped one."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from learners.config import read_features
from learners.features.feature_kinds import (
    LARGEST,
    MAX_COLUMNS,
    MAX_NONZERO,
    Dense,
    Features,
    SparseColumns,
    number_fault,
)
from learners.numerics.arrays import Sparse
from learners.settings import InvalidInput

HUGE = 10**400


def refused(features: Features, values: Any, typed: bool = False) -> dict[str, str]:
    """Pointer -> detail of everything that is wrong with `values`."""
    with pytest.raises(InvalidInput) as caught:
        features.encode(values, typed)
    return {problem.pointer: problem.detail for problem in caught.value.problems}


def bits(rows: Any) -> list[tuple[Any, ...]]:
    return [(part.dtype, part.shape, part.tobytes()) for part in (rows if isinstance(rows, Sparse) else (rows,))]


# Dense


def test_dense_events_become_a_matrix() -> None:
    X = Dense(dim=2).encode([[1, 2.5], (True + 0, -0.0), [1e30, -(10**30)]])
    assert isinstance(X, np.ndarray)
    assert X.dtype == np.float64
    assert X.flags.c_contiguous
    assert X.tolist() == [[1.0, 2.5], [1.0, -0.0], [1e30, -1e30]]
    assert Dense(dim=2).encode([]).shape == Dense(dim=2).encode([], typed=True).shape == (0, 2)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f8", "i1", "u8", "i8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_of_numbers_are_copied(dtype: str, order: Any) -> None:
    given_array = np.arange(6).reshape(2, 3).astype(dtype, order=order)
    before = given_array.copy()
    X = Dense(dim=3).encode(given_array)
    assert bits(X) == bits(np.arange(6.0).reshape(2, 3))
    assert isinstance(X, np.ndarray)
    X[:] = -1.0
    np.testing.assert_array_equal(given_array, before)


def test_lists_of_arrays_and_object_arrays_are_read_item_by_item() -> None:
    assert Dense(dim=2).encode([np.arange(2.0), [1, 2]]).tolist() == [[0.0, 1.0], [1.0, 2.0]]
    assert Dense(dim=2).encode(np.array([[1, 2.5]], dtype=object)).tolist() == [[1.0, 2.5]]


@pytest.mark.parametrize(
    ("value", "pointer"),
    [
        ([1.0], ""),
        ([1.0, 2.0, 3.0], ""),
        ([], ""),
        (1.0, ""),
        (None, ""),
        ("ab", ""),
        ({"x": 1}, ""),
        (np.array(1.0), ""),
        ([1.0, math.nan], "/1"),
        ([math.inf, 1.0], "/0"),
        ([1.0, -math.inf], "/1"),
        ([1.0, 1.1e30], "/1"),
        ([-2e30, 1.0], "/0"),
        ([1.0, "2"], "/1"),
        ([1.0, None], "/1"),
        ([1.0, True], "/1"),
        ([1.0, [2.0]], "/1"),
        ([[1.0, 2.0], [3.0, 4.0]], "/0"),
        ([1.0, 2j], "/1"),
    ],
)
def test_an_invalid_dense_event_is_refused_with_a_pointer(value: Any, pointer: str) -> None:
    assert [*refused(Dense(dim=2), [[1.0, 2.0], value])] == [f"/1{pointer}"]


@pytest.mark.parametrize(
    "number", [HUGE, -HUGE, 10**5000, 2 * 10**30], ids=["huge", "minus huge", "unspeakable", "2e30"]
)
@pytest.mark.parametrize("typed", [False, True])
def test_out_of_range_integers_are_refused(number: int, typed: bool) -> None:
    assert list(refused(Dense(dim=1), [[1], [number]], typed)) == ["/1/0"]
    assert list(refused(SparseColumns(dim=9), [([1], [number])], typed)) == ["/0/values/0"]


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((2, 3)),
        np.zeros(2),
        np.zeros((2, 2, 1)),
        np.array([["1", "2"]]),
        np.array([[True, False]]),
        np.array([[1j, 2]]),
        np.array([["2020-01-01", "2020-01-02"]], dtype="M8[D]"),
        np.array([[1.0, None]]),
        np.array([[1.0, np.nan]]),
        np.array([[1.0, 2e30]]),
        np.array([[1.0, np.inf]], dtype=np.float32),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
def test_an_array_other_than_a_numeric_matrix_is_refused(array: Any) -> None:
    assert all(pointer.startswith(("/0", "/1")) for pointer in refused(Dense(dim=2), array))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_first_invalid_number_of_each_array_row_is_located(dtype: Any) -> None:
    X = np.zeros((300, 3), dtype=dtype)
    X[1, 2], X[4, 1:], X[250] = np.nan, [-2e30, np.inf], np.inf
    details = refused(Dense(dim=3), X)
    assert list(details) == ["/1/2", "/4/1", "/250/0"]
    assert details["/4/1"] == refused(Dense(dim=1), [[float(X[4, 1])]])["/0/0"]
    X[:] = np.nan
    assert list(refused(Dense(dim=3), X)) == [f"/{i}/0" for i in range(100)]


# Sparse


def test_sparse_events_become_csr() -> None:
    rows = SparseColumns(dim=10).encode([([0, 9], [1, -2.5]), ([], []), ((3,), (1e30,))])
    assert isinstance(rows, Sparse)
    assert [part.tolist() for part in rows] == [[1.0, -2.5, 1e30], [0, 9, 3], [0, 2, 2, 3]]
    assert [part.dtype for part in rows] == [np.float64, np.int64, np.int64]
    assert bits(SparseColumns(dim=10).encode(rows)) == bits(rows)
    for typed in (False, True):
        assert [part.tolist() for part in SparseColumns(dim=10).encode([], typed)] == [[], [], [0]]


@pytest.mark.parametrize(
    ("value", "pointer"),
    [
        (([5, 3], [1, 1]), "/indices/1"),
        (([5, 5], [1, 1]), "/indices/1"),
        (([10], [1]), "/indices/0"),
        (([-1], [1]), "/indices/0"),
        (([2**64], [1]), "/indices/0"),
        (([1.0], [1]), "/indices/0"),
        (([True], [1]), "/indices/0"),
        ((["1"], [1]), "/indices/0"),
        (([1, 2], [1]), "/values"),
        (([], [1]), "/values"),
        ((3, [1]), "/indices"),
        (([1], "1"), "/values"),
        (([1], None), "/values"),
        (([1], [math.nan]), "/values/0"),
        (([1, 2], [0, math.inf]), "/values/1"),
        (([1], [2e30]), "/values/0"),
        (([1], ["1"]), "/values/0"),
        (([1], [True]), "/values/0"),
        ((list(range(65_537)), [1] * 65_537), "/indices"),
        ([1], ""),
        ([1, 2, 3], ""),
        (7, ""),
        ({"indices": [1]}, ""),
    ],
)  # fmt: skip
def test_an_invalid_sparse_event_is_refused_with_a_pointer(value: Any, pointer: str) -> None:
    assert [*refused(SparseColumns(dim=10), [([1], [1.0]), value])] == [f"/1{pointer}"]


def csr(data: Any = (1.0, 2.0), indices: Any = (0, 1), indptr: Any = (0, 1, 2), integers: Any = np.int64) -> Sparse:
    return Sparse(np.array(data, dtype=np.float64), np.array(indices, dtype=integers), np.array(indptr, dtype=np.int64))


@pytest.mark.parametrize(
    "rows",
    [
        csr(indptr=(0, 1)),
        csr(indptr=(1, 2)),
        csr(indptr=(0, 9, 2)),
        csr(indptr=(0, -5, 2)),
        csr(indptr=(0, 1, 99)),
        csr(indptr=()),
        csr(data=(1.0,)),
        csr(indices=(0, 1, 2)),
        csr(indices=((0, 1),)),
        csr(integers=np.int32),
        csr()._replace(data=np.ones(2, dtype=np.float32)),
    ],
)
def test_invalid_csr_parts_never_reach_a_kernel(rows: Sparse) -> None:
    assert list(refused(SparseColumns(dim=10), rows)) == [""]


def test_each_invalid_row_of_a_csr_matrix_is_listed() -> None:
    rows = csr([1.0, 1.0, np.nan, 1.0, 1.0, np.inf, 1.0], [0, 10, 1, -1, 3, 2, 9], [0, 1, 2, 3, 4, 6, 7])
    assert list(refused(SparseColumns(dim=10), rows)) == ["/1", "/2", "/3", "/4"]
    long = csr(np.ones(MAX_NONZERO + 2), [*range(MAX_NONZERO + 1), 3], [0, MAX_NONZERO + 1, MAX_NONZERO + 2])
    assert list(refused(SparseColumns(dim=2**20), long)) == ["/0"]


# Both


@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize(
    ("features", "good", "bad", "tail"),
    [
        (Dense(dim=2), [1.0, 2.0], [math.nan, math.nan], "/0"),
        (SparseColumns(dim=5), ([1, 2], [1.0, 2.0]), ([1, 2], [math.nan, math.nan]), "/values/0"),
    ],
)
def test_the_first_hundred_invalid_events_are_listed_once_each(
    features: Features, good: Any, bad: Any, tail: str, typed: bool
) -> None:
    values = [bad if i % 3 == 1 else good for i in range(600)]
    assert list(refused(features, values, typed)) == [f"/{i}{tail}" for i in range(1, 300, 3)]


numbers = (
    st.floats(-LARGEST, LARGEST)
    | st.integers(-(10**30), 10**30)
    | st.sampled_from([math.nan, math.inf, 2e30, HUGE, -0.0, 5e-324])
)


@given(st.lists(st.lists(numbers, min_size=1, max_size=3), max_size=5), st.integers(1, 3))
@example([[1.0]], 1)
@settings(max_examples=40)
def test_typed_and_untyped_dense_events_agree(values: list[list[float]], dim: int) -> None:
    assert outcome(Dense(dim=dim), values, True) == outcome(Dense(dim=dim), values, False)


@given(st.lists(st.tuples(st.lists(st.integers(-1, 7), max_size=4), st.lists(numbers, max_size=4)), max_size=5))
@settings(max_examples=40)
def test_typed_and_untyped_sparse_events_agree(values: list[tuple[list[int], list[float]]]) -> None:
    tidy = [(sorted(set(indices))[: len(data)], data[: len(set(indices))]) for indices, data in values]
    for events in (values, tidy):
        features = SparseColumns(dim=7)
        result = outcome(features, events, True)
        assert result == outcome(features, events, False)
        if "refused" not in result:
            rows = features.encode(events)
            assert isinstance(rows, Sparse)
            rebuilt = [dict(zip(indices, data, strict=True)) for indices, data in events]
            ends = rows.indptr.tolist()
            got = [
                dict(zip(rows.indices[a:b].tolist(), rows.data[a:b].tolist(), strict=True)) for a, b in pairwise(ends)
            ]
            assert got == rebuilt


def outcome(features: Features, values: Any, typed: bool) -> Any:
    try:
        return bits(features.encode(values, typed))
    except InvalidInput as error:
        return ["refused", *error.problems]


@pytest.mark.parametrize(
    ("value", "good"),
    [
        (0, True), (1.5, True), (-LARGEST, True), (np.float64(2.0), True),
        (True, False), (np.float32(1.0), False), (b"1", False),
    ],
)  # fmt: skip
def test_number_faults(value: Any, good: bool) -> None:
    assert (number_fault(value) is None) == good


def test_columns_are_named_by_their_numbers() -> None:
    assert Dense(dim=4).names([1, 2, 3, 4], [3, 0]) == ["x[3]", "x[0]"]
    assert SparseColumns(dim=99).names(([7, 50], [1.0, 2.0]), [50, 7]) == ["[50]", "[7]"]


def test_every_feature_kind_survives_json() -> None:
    for features in (
        {"kind": "dense", "dim": 3},
        {"kind": "sparse", "dim": 3},
        {"kind": "named", "bits": 4, "text": ["a"], "categorical": [], "log": [], "words": "normalised"},
        {
            "kind": "table",
            "fields": [{"name": "a", "kind": "numeric", "log": False, "categories": 16}],
            "extra": "ignore",
        },
    ):
        created = read_features(features)
        assert created.to_json() == features
        assert created.KIND == features["kind"] == created.schema()["properties"]["kind"]["const"]
        assert "kind" in created.schema()["required"]


@pytest.mark.parametrize(
    ("values", "pointers"),
    [
        (None, [""]),
        ("dense", [""]),
        ({}, ["/kind"]),
        ({"kind": "text"}, ["/kind"]),
        ({"kind": ["dense"]}, ["/kind"]),
        ({"kind": "dense"}, ["/dim"]),
        ({"kind": "dense", "dim": 0}, ["/dim"]),
        ({"kind": "dense", "dim": MAX_COLUMNS + 1}, ["/dim"]),
        ({"kind": "dense", "dim": HUGE}, ["/dim"]),
        ({"kind": "dense", "dim": 3, "size": 3}, ["/size"]),
        ({"kind": "sparse", "dim": 2**24 + 1}, ["/dim"]),
        ({"kind": "named", "bits": 3, "text": "body", "x": 1}, ["/x", "/bits", "/text"]),
    ],
)
def test_invalid_feature_settings_are_refused_with_pointers(values: Any, pointers: list[str]) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_features(values)
    assert [problem.pointer for problem in caught.value.problems] == pointers
