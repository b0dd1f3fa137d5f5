"""Named events to columns, hashed or by declared fields: against a slow hashing, and every refusal with its pointer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.features.feature_kinds import MAX_COLUMNS, MAX_NONZERO, Features
from learners.features.named import MAX_NAME, MAX_SPELT, Field, Named, Table
from learners.numerics.arrays import Sparse
from learners.settings import InvalidInput, Problem, show
from tests.learners import naive_pipeline as slow

HUGE = 10**400


def problems(features: Features, values: Any, typed: bool = False) -> list[Problem]:
    with pytest.raises(InvalidInput) as caught:
        features.encode(values, typed)
    return caught.value.problems


def row_of(features: Named, event: Mapping[str, Any]) -> dict[int, float]:
    """Column -> number of one event."""
    rows = features.encode([event])
    assert isinstance(rows, Sparse)
    assert rows.indptr.tolist() == [0, len(rows.data)]
    return dict(zip(rows.indices.tolist(), rows.data.tolist(), strict=True))


def spelt(features: Named, *tokens: str) -> dict[int, float]:
    return slow.named_row([(token, 1.0) for token in tokens], features.bits)


# Hashed


@pytest.mark.parametrize(
    ("event", "tokens"),
    [
        ({}, []),
        ({"country": None, "amount": 0, "fee": -0.0, "items": []}, []),
        ({"country": "DE"}, ["country=DE"]),
        ({"country": ""}, ["country="]),
        ({"new": True, "old": False}, ["new=true", "old=false"]),
        ({"new": "true"}, ["new=true"]),
        ({"items": ["a", 7, 7.0, 2.5, True]}, ["items=a", "items=7", "items=7", "items=2.5", "items=true"]),
        ({"items": ("a",)}, ["items=a"]),
        ({"customer": 7}, ["customer=7"]),
        ({"customer": 7.0}, ["customer=7"]),
        ({"customer": 0}, ["customer=0"]),
        ({"customer": -0.0}, ["customer=0"]),
        ({"customer": 1e16}, ["customer=10000000000000000"]),
        ({"customer": 10**16}, ["customer=10000000000000000"]),
        ({"customer": 2.5}, ["customer=2.5"]),
        ({"customer": "7"}, ["customer=7"]),
        ({"body": "Buy now, NOW!"}, ["body~buy", "body~now", "body~now", "body~buy now", "body~now now"]),
        ({"body": "Grüße 東京"}, ["body~grüße", "body~東京", "body~grüße 東京"]),
        ({"body": " ,;"}, []),
        ({"body": ["Buy now"]}, ["body=Buy now"]),
        ({"body": True}, ["body=true"]),
        ({"\ud800": "\udfff"}, ["\ud800=\udfff"]),
        ({7: "x"}, ["7=x"]),
        (MappingProxyType({"country": np.str_("DE")}), ["country=DE"]),
    ],
)
def test_spelling_of_tokens(event: Any, tokens: list[str]) -> None:
    features = Named(bits=24, text=("body",), categorical=("customer",))
    assert row_of(features, event) == spelt(features, *tokens)


def test_numbers_are_used_as_they_are_or_by_their_logarithm() -> None:
    features = Named(bits=24, log=("amount",))
    for value in (12.5, -3, 1e30, 5e-324, np.float64(0.5)):
        sign = math.copysign(1.0, slow.named_row([("fee", 1.0)], 24).popitem()[1])
        assert list(row_of(features, {"fee": value}).values()) == [sign * value]
        expected = slow.named_row([("amount", slow.signed_log(value))], 24)
        assert row_of(features, {"amount": value}) == pytest.approx(expected, rel=1e-14)


numbers = st.none() | st.integers(-(10**30), 10**30) | st.floats(-1e30, 1e30)
values_of_a_feature = (
    numbers
    | st.booleans()
    | st.text(max_size=8)
    | st.text("ab ,", max_size=20)
    | st.lists(st.booleans() | st.integers(-5, 5) | st.text(max_size=3) | st.floats(-9, 9), max_size=4)
)
MEANING: dict[str, Any] = {"text": ("a", "b"), "categorical": ("c", "a", "e"), "log": ("d", "e")}
events_of_any_kind = st.fixed_dictionaries(
    {}, optional={name: numbers if name == "d" else values_of_a_feature for name in "hgfedcb~=a"}
)


@given(
    st.lists(events_of_any_kind, max_size=6),
    st.sampled_from([4, 10, 24]),
)
@settings(max_examples=50)
def test_hashing_equals_the_naive_python_version(events: list[dict[str, Any]], bits: int) -> None:
    features = Named(bits=bits, **MEANING)
    rows = features.encode(events)
    assert isinstance(rows, Sparse)
    assert [part.dtype for part in rows] == [np.float64, np.int64, np.int64]
    for i, event in enumerate(events):
        cut = slice(rows.indptr[i], rows.indptr[i + 1])
        columns = rows.indices[cut].tolist()
        assert columns == sorted(set(columns))
        expected = slow.named_row(slow.named_tokens(event, **MEANING), bits)
        assert dict(zip(columns, rows.data[cut].tolist(), strict=True)) == pytest.approx(expected, rel=1e-12, abs=1e-12)
    typed = features.encode(events, typed=True)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(rows, typed, strict=True))


def test_colliding_features_are_summed_in_order_of_arrival() -> None:
    features = Named(bits=4)
    event = {f"n{i}": 1.0 + i / 7 for i in range(200)}
    row = row_of(features, event)
    assert set(row) == set(range(16))
    assert row == slow.named_row(event.items(), 4)  # to the bit


def test_hashing_in_portions_has_no_visible_effect() -> None:
    features = Named(bits=24)
    events = [{"items": [f"{i}-{k}" for k in range(9000)]} for i in range(9)]
    rows = features.encode(events)
    assert isinstance(rows, Sparse)
    for i, event in enumerate(events):
        row = features.encode([event])
        assert isinstance(row, Sparse)
        cut = slice(rows.indptr[i], rows.indptr[i + 1])
        assert rows.indices[cut].tobytes() == row.indices.tobytes()
        assert rows.data[cut].tobytes() == row.data.tobytes()


@pytest.mark.parametrize("value", ["12.50", "", "n/a", True, ["a"], [1.0], (), {}, b"1"], ids=repr)
def test_log_features_refuse_non_numbers(value: Any) -> None:
    events = [{"amount/1": 3}, {"amount/1": value}, {"amount/1": None}]
    expected = f"is {show(value)}; expected a number or null, as its log is taken"
    assert problems(Named(log=("fee", "amount/1")), events) == [Problem("/1/amount~11", expected)]
    if value is not True:  # to a table that is the number 1
        table = Table(fields=(Field("amount/1", "numeric", log=True),))
        assert [problem.pointer for problem in problems(table, events)] == ["/1/amount~11"]


def test_a_field_may_be_category_or_text_and_log() -> None:
    features = Named(bits=24, text=("body",), categorical=("shop",), log=("body", "shop"))
    assert row_of(features, {"shop": "a"}) == spelt(features, "shop=a")
    assert row_of(features, {"shop": 7, "body": "one"}) == spelt(features, "shop=7", "body~one")


EXPECTED = "expected a number, string, boolean, list of tokens or null"


@pytest.mark.parametrize(
    ("event", "pointer", "detail"),
    [
        (None, "", "is null; expected an object of names and values"),
        ([["a", 1]], "", "is [['a', 1]]; expected an object of names and values"),
        ({"a": math.nan}, "/a", "is nan; expected a finite number"),
        ({"a": -math.inf}, "/a", "is -inf; expected a finite number"),
        ({"a": 2e30}, "/a", "is 2e+30; expected at most 1e+30 in magnitude"),
        ({"c": math.nan}, "/c", "is nan; expected a finite number"),
        ({"a/b~": {"x": 1}}, "/a~1b~0", f"is {{'x': 1}}; {EXPECTED}"),
        ({"\ud800": {}}, "/\\ud800", f"is {{}}; {EXPECTED}"),
        ({"a": b"x"}, "/a", f"is b'x'; {EXPECTED}"),
        ({"a": 1j}, "/a", f"is 1j; {EXPECTED}"),
        ({"a": ["x", None]}, "/a/1", "is null; expected a string, number or boolean"),
        ({"a": [["x"]]}, "/a/0", "is ['x']; expected a string, number or boolean"),
        ({"a": ["x", math.inf]}, "/a/1", "is inf; expected a string, number or boolean"),
        ({"x": 1, "y": {}, "z": {}}, "/y", f"is {{}}; {EXPECTED}"),
        ({"n" * 257: 1}, "/" + "n" * 200, "is a name of 257 characters; expected at most 256"),
        ({"n" * 257: None}, "/" + "n" * 200, "is a name of 257 characters; expected at most 256"),
    ],
)
def test_an_invalid_named_event_is_refused_with_a_pointer(event: Any, pointer: str, detail: str) -> None:
    good = {"a": 1}
    assert problems(Named(categorical=("c",)), [good, event, good]) == [Problem(f"/1{pointer}", detail)]


@pytest.mark.parametrize("number", [HUGE, -HUGE, 10**5000], ids=["huge", "minus huge", "unspeakable"])
@pytest.mark.parametrize("typed", [False, True])
def test_out_of_range_integers_are_refused(number: int, typed: bool) -> None:
    table = Table(fields=(Field("a", "numeric"), Field("c", "categorical")))
    for features, name in (
        (Named(categorical=("c",)), "a"),
        (Named(categorical=("c",)), "c"),
        (table, "a"),
        (table, "c"),
    ):
        assert [problem.pointer for problem in problems(features, [{name: 1}, {name: number}], typed)] == [f"/1/{name}"]


@pytest.mark.parametrize(
    "event",
    [
        {"items": ["x"] * (MAX_NONZERO + 1)},
        {"items": ["x"] * MAX_NONZERO, "more": "x"},
        {"body": "x " * (MAX_NONZERO // 2 + 1)},
        {"body": "x " * 3 * MAX_NONZERO},
        {f"n{i}": True for i in range(MAX_NONZERO + 1)},
    ],
    ids=["list", "list and one", "text", "long text", "names"],
)
def test_an_event_with_too_many_features_is_refused(event: Any) -> None:
    result = problems(Named(text=("body",)), [{}, event])
    assert [problem.pointer for problem in result] == ["/1"]
    assert str(MAX_NONZERO) in result[0].detail


def test_an_event_with_the_maximum_number_of_features_is_accepted() -> None:
    features = Named(text=("body",))
    rows = features.encode([{"items": ["x"] * MAX_NONZERO}, {"body": "x " * (MAX_NONZERO // 2)}])
    assert isinstance(rows, Sparse)
    assert sorted(np.abs(rows.data).tolist()) == [MAX_NONZERO / 2 - 1, MAX_NONZERO / 2, MAX_NONZERO]


# Names of columns


def names(features: Named, event: Any) -> list[str]:
    """Of all columns of the event's row."""
    return features.names(event, list(row_of(features, event)))


@given(events_of_any_kind, st.sampled_from([4, 10, 24]))
@settings(max_examples=50)
def test_hashed_column_names_equal_the_naive_python_version(event: dict[str, Any], bits: int) -> None:
    features = Named(bits=bits, **MEANING)
    sharing: dict[int, list[str]] = {}
    for token, _ in slow.named_tokens(event, **MEANING):
        here = sharing.setdefault(slow.hash_text(token) % 2**bits, [])
        here += [token] if token not in here else []
    columns = list(row_of(features, event))
    assert sorted(sharing) == columns
    assert features.names(event, columns[::-1]) == [" + ".join(sharing[column]) for column in columns[::-1]]
    assert features.names(event, []) == []


def test_long_names_are_cut_and_invalid_text_is_escaped() -> None:
    features = Named(bits=24)
    fits = "n" * (MAX_SPELT - 2)
    assert names(features, {"c": fits}) == [f"c={fits}"]
    assert names(features, {"c": fits + "n"}) == [f"c={fits}"[:-3] + "..."]
    assert names(features, {"c": "x" * 100_000}) == ["c=" + "x" * (MAX_SPELT - 5) + "..."]
    assert names(features, {"c": "Gr\ud800ße"}) == ["c=Gr\\ud800ße"]
    (shared,) = features.names({"c": "\ud800" * MAX_SPELT}, list(row_of(features, {"c": "\ud800" * MAX_SPELT})))
    assert len(shared.encode()) == MAX_SPELT
    crowd = {f"name {i}": 1 for i in range(5000)}
    assert all(len(name) == MAX_SPELT for name in names(Named(bits=4), crowd))


# By declared fields

TABLE = Table(
    fields=(
        Field("amount", "numeric"),
        Field("country", "categorical", categories=3),
        Field("fee", "numeric", log=True),
    )
)


def category(text: str) -> float:
    return float(slow.hash_text(text) >> 11)


@pytest.mark.parametrize(
    ("event", "row"),
    [
        ({}, [math.nan, math.nan, math.nan]),
        ({"amount": None, "country": None}, [math.nan, math.nan, math.nan]),
        ({"amount": 12, "country": "DE", "fee": -3}, [12.0, category("DE"), -math.log1p(3)]),
        ({"amount": True, "country": True}, [1.0, category("true"), math.nan]),
        ({"amount": -0.0, "country": 7.0, "fee": 0}, [-0.0, category("7"), 0.0]),
        ({"country": 7}, [math.nan, category("7"), math.nan]),
        ({"country": 1e16, "fee": 1e30}, [math.nan, category("1" + "0" * 16), math.log1p(1e30)]),
        ({"country": "\ud800"}, [math.nan, category("\ud800"), math.nan]),
        ({"country": ""}, [math.nan, category(""), math.nan]),
    ],
)
def test_a_table_event_has_one_number_per_field(event: Any, row: list[float]) -> None:
    for typed in (False, True):
        X = TABLE.encode([{}, event], typed)
        assert isinstance(X, np.ndarray)
        assert X.shape == (2, 3)
        np.testing.assert_allclose(X[1], row, rtol=1e-15)
    assert TABLE.encode([]).shape == (0, 3)


@pytest.mark.parametrize(
    ("event", "pointer", "detail"),
    [
        ([1], "", "is [1]; expected an object of names and values"),
        ({"ammount": 1}, "/ammount", "is not declared; declared fields are amount, country, fee"),
        ({"amount": 1, "a/\ud800": None}, "/a~1\\ud800", "is not declared; declared fields are amount, country, fee"),
        ({"amount": "12"}, "/amount", "is '12'; expected a number or null"),
        ({"amount": math.nan}, "/amount", "is nan; expected a finite number or null"),
        ({"amount": math.inf}, "/amount", "is inf; expected a finite number or null"),
        ({"fee": 2e30}, "/fee", "is 2e+30; expected at most 1e+30 in magnitude or null"),
        ({"fee": [1]}, "/fee", "is [1]; expected a number or null"),
        ({"country": ["DE"]}, "/country", "is ['DE']; expected a string, boolean, finite number or null"),
        ({"country": {}}, "/country", "is {}; expected a string, boolean, finite number or null"),
        ({"country": math.nan}, "/country", "is nan; expected a string, boolean, finite number or null"),
        ({"amount": [], "country": []}, "/amount", "is []; expected a number or null"),
    ],
)
def test_an_invalid_table_event_is_refused_with_a_pointer(event: Any, pointer: str, detail: str) -> None:
    for typed in (False, True):
        assert problems(TABLE, [{"amount": 1}, event], typed) == [Problem(f"/1{pointer}", detail)]


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ({}, ["amount (missing)", "country (missing)", "fee (missing)"]),
        ({"amount": 1, "country": "DE", "fee": None}, ["amount", "country=DE", "fee (missing)"]),
        ({"country": None}, ["amount (missing)", "country (missing)", "fee (missing)"]),
        ({"country": 7.0}, ["amount (missing)", "country=7", "fee (missing)"]),
        ({"country": False}, ["amount (missing)", "country=false", "fee (missing)"]),
        ({"country": ""}, ["amount (missing)", "country=", "fee (missing)"]),
        ({"country": "\udfff"}, ["amount (missing)", "country=\\udfff", "fee (missing)"]),
        ({"country": "x" * 600}, ["amount (missing)", "country=" + "x" * (MAX_SPELT - 11) + "...", "fee (missing)"]),
    ],
)
def test_columns_of_a_table_are_named_by_field_and_category(event: Any, expected: list[str]) -> None:
    assert TABLE.names(event, [0, 1, 2]) == expected
    assert TABLE.names(event, [2, 1]) == expected[:0:-1]


def test_undeclared_features_can_be_ignored() -> None:
    table = Table(fields=TABLE.fields, extra="ignore")
    events = [{"amount": 1.0, "other": [{}]}, {7: 1, "fee": None}, {}]
    np.testing.assert_array_equal(table.encode(events), TABLE.encode([{"amount": 1.0}, {}, {}]))
    detail = "has none of the declared fields, which are amount, country, fee"
    assert problems(table, [*events, {"Amount": 1.0, "other": 2}, {7: 1}]) == [
        Problem("/3", detail),
        Problem("/4", detail),
    ]


def test_a_log_field_has_no_other_declaration() -> None:
    named = Named(text=("body", "note"), categorical=("shop", "fee"), log=("amount", "fee", "body"))
    assert [(problem.pointer, problem.code) for problem in named.objections()] == [
        ("/log/1", "conflict"),
        ("/log/2", "conflict"),
    ]
    assert Named(text=("body",), categorical=("shop", "body"), log=("amount",)).objections() == []
    assert TABLE.objections() == []


@pytest.mark.parametrize("features", [Named(), TABLE])
def test_the_first_hundred_invalid_events_are_listed_once_each_in_order(features: Features) -> None:
    bad = [{"amount": {}}, {"fee": {}, "country": {}}, 7]
    values = [bad[i % 3] if i % 2 else {"amount": 1} for i in range(600)]
    pointers = [problem.pointer for problem in problems(features, values)]
    assert [int(pointer.split("/")[1]) for pointer in pointers] == list(range(1, 200, 2))


@pytest.mark.parametrize(
    ("values", "pointers"),
    [
        ({}, ["/fields"]),
        ({"fields": 7}, ["/fields"]),
        ({"fields": "name"}, ["/fields"]),
        ({"fields": []}, ["/fields"]),
        ({"fields": [7]}, ["/fields/0"]),
        ({"fields": [{"name": "a"}, {"kind": "text", "name": 1, "x": 1}]},
         ["/fields/0/kind", "/fields/1/x", "/fields/1/name", "/fields/1/kind"]),
        ({"fields": [{"name": "a", "kind": "categorical", "categories": 0}], "extra": "drop"},
         ["/fields/0/categories", "/extra"]),
        ({"fields": [{"name": name, "kind": "numeric"} for name in "abca"]}, ["/fields/3/name"]),
        ({"fields": [{"name": "n" * (MAX_NAME + 1), "kind": "numeric"}]}, ["/fields/0/name"]),
        ({"fields": [{"name": "\ud800", "kind": "numeric"}]}, ["/fields/0/name"]),
        ({"fields": [{"name": f"{i}", "kind": "categorical", "categories": 4096} for i in range(25)]}, ["/fields"]),
        ({"extra": 1, "other": 2}, ["/other", "/fields", "/extra"]),
    ],
)  # fmt: skip
def test_an_invalid_declaration_is_refused_with_every_pointer(values: Any, pointers: list[str]) -> None:
    with pytest.raises(InvalidInput) as caught:
        Table.of(values)
    assert [problem.pointer for problem in caught.value.problems] == pointers


def test_the_number_of_columns_of_each_feature_kind() -> None:
    assert TABLE.columns == 2 + 4 + 2
    assert not TABLE.sparse
    widest = tuple(Field(f"{i}", "categorical", categories=4096) for i in range(24))
    assert Table(fields=widest).columns == 24 * 4097 <= MAX_COLUMNS
    assert Named(bits=20).columns == 2**20
    assert Named().sparse
