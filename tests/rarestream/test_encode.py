"""What the client makes of its arguments: columns that keep their types, and bodies of bounded size."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from rarestream import EventBatch, RequestBounds
from rarestream.client.encode import encode_labelled, encode_unlabelled

pytestmark = pytest.mark.integration

X = np.arange(6.0).reshape(3, 2)
Y = [0, 1, 0]
IDS = ["a", "b", "c"]


def decoded(columns: Any) -> dict[str, Any]:
    members: dict[str, Any] = msgspec.msgpack.decode(columns.body(0, columns.size))
    return members


def values(coded: dict[str, Any]) -> np.ndarray[Any, Any]:
    return np.frombuffer(coded["data"], np.dtype(coded["dtype"]).newbyteorder("<")).reshape(coded["shape"])


@pytest.mark.parametrize(
    ("array", "dtype"),
    [
        (X.astype(np.float32), "float32"),
        (X, "float64"),
        (X.astype(">f8"), "float64"),
        (np.asfortranarray(X), "float64"),
        (X.astype(int), "float64"),
        (X.tolist(), "float64"),
        (X.astype(np.float16), "float32"),
        (X.astype(np.uint8), "float64"),
        (np.repeat(X, 2, axis=1)[:, ::2], "float64"),
    ],
)
def test_dense_rows_keep_their_type(array: Any, dtype: str) -> None:
    coded = decoded(encode_unlabelled(array, None, None))["x"]
    assert coded["dtype"] == dtype
    assert (values(coded) == X).all()


@pytest.mark.parametrize(
    ("y", "dtype"),
    [
        ([True, False], "int8"),
        (np.array([-1, 1], np.int64), "int8"),
        (np.array([0, 1], np.uint8), "int8"),
        (np.array([False, True]), "int8"),
        (pd.Series([0, 1], index=[7, 8]), "int8"),
        (pd.Series([False, True]), "int8"),
        ([1, 300], "float64"),
        (np.array([0.0, 1.0], np.float32), "float32"),
        ([0.5, 1], "float64"),
    ],
)
def test_labels_are_sent_exactly(y: Any, dtype: str) -> None:
    coded = decoded(encode_labelled(EventBatch(X[:2], y)))["labels"]
    assert coded["dtype"] == dtype
    assert values(coded).tolist() == [float(item) for item in y]


def test_non_numbers_are_passed_to_the_service() -> None:
    body = decoded(encode_labelled(EventBatch(X, [1, None, "x"], weights=[1.0, None, 2.0], times=[None, 1.0, 2])))
    assert (body["labels"], body["weights"], body["times"]) == ([1, None, "x"], [1.0, None, 2.0], [None, 1.0, 2])


def test_times_may_be_dates() -> None:
    dates = np.array(["2026-11-13T08:00:00.25", "NaT", "1969-12-31T23:59:59"], "datetime64[ns]")
    seconds = values(decoded(encode_labelled(EventBatch(X, Y, times=dates)))["times"])
    assert seconds[0] == 1794556800.25
    assert math.isnan(seconds[1])
    assert seconds[2] == -1.0


def test_ids_of_every_type() -> None:
    assert values(decoded(encode_unlabelled(X, np.array([1, 2, 2**63], np.uint64), None))["ids"]).tolist() == [
        1,
        2,
        2**63,
    ]
    assert values(decoded(encode_unlabelled(X, np.array([1, 2, 3], np.int64), None))["ids"]).tolist() == [1, 2, 3]
    assert values(decoded(encode_unlabelled(X, pd.Series([1, 2, 3], index=[9, 8, 7]), None))["ids"]).tolist() == [
        1,
        2,
        3,
    ]
    assert decoded(encode_unlabelled(X, np.array([-1, 2, 3]), None))["ids"] == [-1, 2, 3]
    assert decoded(encode_unlabelled(X, np.array(IDS), None))["ids"] == IDS
    assert decoded(encode_unlabelled(X, ("a", 2, None), None))["ids"] == ["a", 2, None]


def test_sparse_rows_are_sent_sorted_and_the_matrix_is_unchanged() -> None:
    untidy = sp.csr_matrix((np.array([1.0, 2, 3, 4], np.float32), [2, 0, 0, 1], [0, 3, 4]), shape=(2, 3))
    coded = decoded(encode_unlabelled(untidy, None, None))["csr"]
    assert values(coded["indptr"]).tolist() == [0, 2, 3]
    assert values(coded["indices"]).tolist() == [0, 2, 1]
    assert values(coded["values"]).tolist() == [5.0, 1.0, 4.0]
    assert coded["values"]["dtype"] == "float32"
    assert untidy.indices.tolist() == [2, 0, 0, 1]


def test_named_features_are_encoded_by_event_and_by_column() -> None:
    events = [{"a": 1, "b": "x"}, {"a": np.int64(2), "c": [np.str_("t")]}]
    assert decoded(encode_unlabelled(events, None, None))["features"] == {
        "a": [1, 2],
        "b": ["x", None],
        "c": [None, ["t"]],
    }
    columns = {
        "whole": np.array([1, 2], np.int16),
        "real": np.array([0.5, 1.5], np.float32),
        "flag": np.array([True, False]),
        "text": np.array(["x", "y"]),
        "mixed": ("x", None),
    }
    coded = decoded(encode_unlabelled(columns, None, None))["features"]
    assert (coded["whole"]["dtype"], values(coded["whole"]).tolist()) == ("int64", [1, 2])
    assert (coded["real"]["dtype"], values(coded["real"]).tolist()) == ("float32", [0.5, 1.5])
    assert (coded["flag"]["dtype"], values(coded["flag"]).tolist()) == ("bool", [True, False])
    assert (coded["text"], coded["mixed"]) == (["x", "y"], ["x", None])


def test_a_data_frame_is_sent_as_named_features_with_null_for_missing() -> None:
    frame = pd.DataFrame(
        {
            "whole": [1, 2, 3],
            "gaps": [0.5, np.nan, 1.5],
            "text": ["x", None, np.nan],
            "flag": [True, False, True],
            "maybe": pd.array([1, pd.NA, 3], dtype="Int64"),
            "kind": pd.Categorical(["a", None, "b"]),
            "items": [["p", "q"], np.array(["r"]), None],
        },
        index=[5, 6, 7],
    )
    coded = decoded(encode_unlabelled(frame, None, None))["features"]
    assert values(coded["whole"]).tolist() == [1, 2, 3]
    assert values(coded["flag"]).tolist() == [True, False, True]
    assert coded["gaps"] == [0.5, None, 1.5]
    assert coded["text"] == ["x", None, None]
    assert coded["maybe"] == [1, None, 3]
    assert coded["kind"] == ["a", None, "b"]
    assert coded["items"] == [["p", "q"], ["r"], None]
    parts = list(encode_labelled(EventBatch(frame, frame["flag"])).parts(RequestBounds(events=1)))
    assert [msgspec.msgpack.decode(part.body)["features"]["gaps"] for part in parts][1] == [None]
    numbers = pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]})
    assert decoded(encode_unlabelled(numbers, None, None)).keys() == {"features"}
    assert decoded(encode_unlabelled(numbers.to_numpy(), None, None)).keys() == {"x"}


def test_missing_values_of_events_and_columns_are_null_as_those_of_a_frame() -> None:
    values = [
        0.5,
        np.nan,
        float("nan"),
        np.float32("nan"),
        pd.NA,
        pd.NaT,
        None,
        "NaN",
        True,
        ["p"],
        np.array(["q", "r"]),
    ]
    expected = [0.5, None, None, None, None, None, None, "NaN", True, ["p"], ["q", "r"]]
    events = [{"a": value} for value in values]
    assert decoded(encode_unlabelled(events, None, None))["features"] == {"a": expected}
    assert decoded(encode_unlabelled({"a": values}, None, None))["features"] == {"a": expected}
    gaps = np.array([0.5, np.nan])
    assert decoded(encode_unlabelled({"a": gaps, "b": tuple(gaps)}, None, None))["features"] == {
        "a": [0.5, None],
        "b": [0.5, None],
    }


def test_infinite_numbers_are_text_as_in_json_which_has_none() -> None:
    values = [0.5, np.inf, -math.inf, np.float32("inf")]
    expected = [0.5, "inf", "-inf", "inf"]
    for X in (pd.DataFrame({"a": values}), {"a": values}, {"a": np.array(values)}, [{"a": value} for value in values]):
        assert decoded(encode_unlabelled(X, None, None))["features"] == {"a": expected}


def test_whole_numbers_beyond_64_bits_are_text_which_is_a_name_as_they_are() -> None:
    values = [7, 2**64 - 1, 2**64, -(2**63) - 1, [2**70, "p"]]
    expected = [7, 2**64 - 1, "18446744073709551616", "-9223372036854775809", ["1180591620717411303424", "p"]]
    for X in (pd.DataFrame({"a": values}), {"a": values}, [{"a": value} for value in values]):
        body = decoded(encode_unlabelled(X, [2**64, "b", "c", "d", "e"], None))
        assert body == {"features": {"a": expected}, "ids": ["18446744073709551616", "b", "c", "d", "e"]}


@pytest.mark.parametrize("X", [[{}, {}, {}], pd.DataFrame(index=[3, 4, 5])], ids=["dicts", "frame"])
def test_events_without_any_feature_are_counted_by_another_column(X: Any) -> None:
    assert decoded(encode_unlabelled(X, None, None)) == {"features": {}, "times": [None] * 3}
    assert decoded(encode_unlabelled(X, IDS, None)) == {"features": {}, "ids": IDS}
    assert decoded(encode_labelled(EventBatch(X, Y))).keys() == {"features", "labels"}
    parts = list(encode_unlabelled(X, None, None).parts(RequestBounds(events=2)))
    assert [msgspec.msgpack.decode(part.body)["times"] for part in parts] == [[None] * 2, [None]]


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pd.DataFrame([[1.0, 2.0]]), r"\b0;"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "'a'"),
        (pd.DataFrame({}), "events"),
    ],
)
def test_an_unsuitable_data_frame_is_refused(frame: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        encode_unlabelled(frame, None, None)


@pytest.mark.parametrize(
    ("batch", "source", "message"),
    [
        (EventBatch(X, [0, 1]), None, r"labels\b.*\b2\b.*\b3\b"),
        (EventBatch(X, Y, ["a"]), None, r"ids\b.*\b1\b.*\b3\b"),
        (EventBatch(X, Y, times=[1.0]), None, r"times\b.*\b1\b.*\b3\b"),
        (EventBatch(X, Y, "mine"), None, "'mine'.*'auto'"),
        (EventBatch(X[:0], []), None, "events"),
        (EventBatch(X[0], [1]), None, r"X\b.* \(2,\)"),
        (EventBatch([["1", "2"]], [1]), None, "X .*<U1"),
        (EventBatch(X, np.zeros((3, 1))), None, r"y .* \(3, 1\)"),
        (EventBatch({"a": [1], "b": [1, 2]}, [1]), None, "'b': 2"),
        (EventBatch({}, []), None, r"X\b.* {} "),
        (EventBatch(None, Y), None, r"X\b.*\bids\b"),
        (EventBatch(None, Y, IDS), ("file", 0), "source"),
        (EventBatch(X, Y), "s", r"source\b.*'s'"),
        (EventBatch(X, Y), "st", r"source\b.*'st'"),
        (EventBatch(X, Y), ("s",), r"source\b"),
        (EventBatch(X, Y), ("s", "0"), r"source\b"),
        (EventBatch(X, Y), ("s", 0.5), r"source\b"),
        (EventBatch(X, Y), ("s", True), r"source\b"),
        (EventBatch(X, Y), (0, "s"), r"source\b"),
        (EventBatch(X, Y), ("s", [1, 2, "3"]), r"source\b"),
        (EventBatch(X, Y), ("s", 1, "2"), r"source\b"),
        (EventBatch(X, Y), ("s", [1, 2]), r"source\b.*\b2\b.*\b3\b"),
        (EventBatch([{"a": 1}, None, {}], Y), None, r"X\[1\].*\bNoneType\b"),
        (EventBatch([{}, "text", {}], Y), None, r"X\[1\].*\bstr\b"),
    ],
)
def test_conflicting_arguments_are_refused(batch: EventBatch, source: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        encode_labelled(batch, source)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (EventBatch(X, [2**70, 1, 0]), r"2\*\*6[34]"),
        (EventBatch([{"a": 10**31}] * 3, Y), r"1e\+30"),
        (EventBatch([{"a": object()}] * 3, Y), "object"),
    ],
)
def test_values_that_cannot_be_encoded_are_refused(batch: EventBatch, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        list(encode_labelled(batch).parts(RequestBounds()))


@pytest.mark.parametrize("source", [("file", 7), ["file", 7], ("file", np.int64(7))])
def test_the_source_offset_advances_with_each_part(source: Any) -> None:
    columns = encode_labelled(EventBatch(X, Y), source)
    assert columns.repeatable
    assert msgspec.msgpack.decode(columns.body(1, 3))["source"] == {"name": "file", "offset": 8}


@pytest.mark.parametrize("numbers", [[7, 9, 20], (7, 9, 20), np.array([7, 9, 20])])
def test_a_source_with_skipped_offsets_advances_with_each_part(numbers: Any) -> None:
    columns = encode_labelled(EventBatch(X, Y), ("topic", numbers, 5))
    assert columns.repeatable
    parts = [msgspec.msgpack.decode(columns.body(start, stop))["source"] for start, stop in ((0, 1), (1, 3))]
    assert parts == [
        {"name": "topic", "offsets": [7], "after": 5},
        {"name": "topic", "offsets": [9, 20], "after": 8},
    ]


def test_predict_requires_features() -> None:
    with pytest.raises(ValueError, match="X"):
        encode_unlabelled(None, IDS, None)


@given(
    sizes=st.lists(st.integers(0, 60), min_size=1, max_size=40),
    bound=st.integers(1, 3000),
    most=st.integers(1, 30),
    kind=st.sampled_from(["dense", "csr", "events", "columns"]),
)
def test_parts_contain_all_events_in_order_within_the_limits(
    sizes: list[int], bound: int, most: int, kind: str
) -> None:
    n = len(sizes)
    features: Any = np.arange(2.0 * n).reshape(n, 2)
    if kind == "csr":
        places = [i for size in sizes for i in range(size)]
        features = sp.csr_matrix((np.arange(sum(sizes)) + 1.0, places, np.cumsum([0, *sizes])), shape=(n, 60))
    if kind == "events":
        features = [{"text": "x" * size} for size in sizes]
    if kind == "columns":
        features = {"text": ["x" * size for size in sizes]}
    columns = encode_labelled(EventBatch(features, [0] * n, list(range(n))), ("file", 100))
    parts = list(columns.parts(RequestBounds(bound, most)))
    assert [part.start for part in parts] == [0, *(part.stop for part in parts[:-1])]
    assert parts[-1].stop == n
    for part in parts:
        assert 1 <= part.stop - part.start <= most
        assert len(part.body) <= bound or part.stop - part.start == 1
        body = msgspec.msgpack.decode(part.body)
        assert body["ids"] == list(range(part.start, part.stop))
        assert body["source"]["offset"] == 100 + part.start
        if kind == "csr":
            ends = values(body["csr"]["indptr"])
            assert np.diff(ends).tolist() == sizes[part.start : part.stop]
            assert (values(body["csr"]["values"]) == features[part.start : part.stop].data).all()
