"""Named events to columns, hashed or by declared fields: against a slow hashing, and every refusal with its pointer."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.features.column_map import columns_of
from learners.features.feature_kinds import MAX_COLUMNS, MAX_NONZERO, Features
from learners.features.field_encoder import FieldEncoder
from learners.features.named import MAX_NAME, MAX_SPELT, Field, Named, Table
from learners.features.value_rule import normalised
from learners.numerics.arrays import Sparse
from learners.settings import InvalidInput, Problem
from tests.learners import naive_pipeline as slow

HUGE = 10**400


def problems(features: Features, values: Any, typed: bool = False) -> list[Problem]:
    with pytest.raises(InvalidInput) as caught:
        features.encode(values, typed)
    return caught.value.problems


def pointers(features: Features, values: Any, typed: bool = False) -> list[str]:
    return [problem.pointer for problem in problems(features, values, typed)]


def by_columns(features: Named, events: Sequence[Mapping[str, Any]]) -> Sparse:
    """Encode events whose fields are new to the learner, and map their entries to columns."""
    rows = columns_of(features).encoded(features.encode(events))
    assert isinstance(rows, Sparse)
    return rows


def row_of(features: Named, event: Mapping[str, Any]) -> dict[int, float]:
    """Column -> number of one event."""
    rows = by_columns(features, [event])
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
        ({"country": " ", "city": ""}, []),
        ({"country": " DE\t"}, ["country=DE"]),
        ({" city": "Co\u0301rdoba"}, ["city=C\u00f3rdoba"]),
        ({"ci\u0301ty": "x"}, ["c\u00edty=x"]),
        ({"zip": "01234"}, ["zip=01234"]),
        ({"zip": "00"}, ["zip=00"]),
        ({"id": "9007199254740993"}, ["id=9007199254740993"]),
        ({"id": 9007199254740993}, ["id=9007199254740993"]),
        ({"id": "+17"}, ["id=17"]),
        ({"state": "NA"}, ["state=NA"]),
        ({"new": "True", "old": "FALSE"}, ["new=true", "old=false"]),
        ({"new": True, "old": False}, ["new=true", "old=false"]),
        ({"new": "true"}, ["new=true"]),
        ({"items": ["a", 7, 7.0, 2.5, True]}, ["items=a", "items=7", "items=7", "items=2.5", "items=true"]),
        ({"items": ("a",)}, ["items=a"]),
        ({"customer": 7}, ["customer=7"]),
        ({"customer": 7.0}, ["customer=7"]),
        ({"customer": 0}, ["customer=0"]),
        ({"customer": -0.0}, ["customer=0"]),
        ({"customer": 10**16}, ["customer=10000000000000000"]),
        ({"customer": 2.5}, ["customer=2.5"]),
        ({"customer": "7"}, ["customer=7"]),
        ({"customer": "7.0"}, ["customer=7"]),
        ({"customer": "2.50"}, ["customer=2.5"]),
        ({"customer": "True"}, ["customer=true"]),
        ({"items": ["7.0", " a", ""]}, ["items=7", "items=a"]),
        ({"body": "Buy now, NOW!"}, ["body~buy", "body~now", "body~now", "body~buy now", "body~now now"]),
        ({"body": "Grüße 東京"}, ["body~grüße", "body~東京", "body~grüße 東京"]),
        ({"body": " ,;"}, []),
        ({"body": ["Buy now"]}, ["body=Buy now"]),
        ({"body": True}, ["body~true"]),
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
    for text, value in (("12.50", 12.5), (" 1e3", 1000.0), ("-.5", -0.5)):
        assert row_of(features, {"fee": text}) == row_of(features, {"fee": value})
        assert row_of(features, {"amount": text}) == row_of(features, {"amount": value})
    assert row_of(features, {"amount": "-"}) == row_of(features, {"amount": ""}) == {}


numbers = st.none() | st.integers(-(10**30), 10**30) | st.floats(-(2.0**53), 2.0**53)
values_of_a_feature = (
    numbers
    | st.booleans()
    | st.text(max_size=8)
    | st.text("ab ,", max_size=20)
    | st.lists(st.booleans() | st.integers(-5, 5) | st.text(max_size=3) | st.floats(-9, 9), max_size=4)
)


def is_exact(number: float | None) -> bool:
    """Tell whether a number is no name, so that its logarithm is taken."""
    return not isinstance(number, int) or abs(number) <= 2**53


MEANING: dict[str, Any] = {"text": ("a", "b"), "categorical": ("c", "a", "e"), "log": ("d", "e")}
events_of_any_kind = st.fixed_dictionaries(
    {}, optional={name: numbers.filter(is_exact) if name == "d" else values_of_a_feature for name in "hgfedcb~=a"}
)


@given(
    st.lists(events_of_any_kind, max_size=6),
    st.sampled_from([4, 10, 24]),
)
@settings(max_examples=30)
def test_hashing_equals_the_naive_python_version(events: list[dict[str, Any]], bits: int) -> None:
    features = Named(bits=bits, words="literal", **MEANING)
    rows = by_columns(features, events)
    assert [part.dtype for part in rows] == [np.float64, np.int64, np.int64]
    for i, event in enumerate(events):
        cut = slice(rows.indptr[i], rows.indptr[i + 1])
        columns = rows.indices[cut].tolist()
        assert columns == sorted(set(columns))
        expected = slow.named_row(slow.named_tokens(event, **MEANING), bits)
        if bits == 24:  # else colliding features may cancel out
            assert columns == sorted(expected)
        assert dict(zip(columns, rows.data[cut].tolist(), strict=True)) == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_colliding_features_are_summed_in_any_order_of_arrival() -> None:
    features = Named(bits=4)
    event = {f"n{i}": 1.0 + i / 7 for i in range(200)}
    row = row_of(features, event)
    assert set(row) == set(range(16))
    assert row == pytest.approx(slow.named_row(event.items(), 4), rel=1e-12)
    assert row == row_of(features, dict(reversed(event.items())))  # to the bit


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


_names_of_shapes: st.SearchStrategy[Any] = st.sampled_from(["a", "b", " a", "c\u0301", 1, True, 1.0, "1"])
_values_of_shapes = st.one_of(st.none(), st.booleans(), st.sampled_from(["x", "y", "7", "-", 2, 2.5]))


@given(st.lists(st.lists(st.dictionaries(_names_of_shapes, _values_of_shapes, max_size=4), max_size=4), max_size=6))
@settings(max_examples=60)
def test_what_was_encoded_before_has_no_visible_effect(batches: list[list[dict[Any, Any]]]) -> None:
    used, fresh = FieldEncoder(16, {}, "normalised"), FieldEncoder
    for batch in batches:
        accepted = []
        for event in batch:  # an event with the same field twice is refused
            try:
                fresh(16, {}, "normalised").encode([event])
                accepted.append(event)
            except InvalidInput:
                with pytest.raises(InvalidInput):
                    used.encode([event])
        rows = used.encode(accepted)
        each = [fresh(16, {}, "normalised").encode([event]) for event in accepted]
        assert rows.indices.tolist() == [index for row in each for index in row.indices.tolist()]
        assert rows.data.tolist() == [number for row in each for number in row.data.tolist()]
        names = dict.fromkeys(normalised(str(name)) for event in accepted for name in event)
        assert Named(bits=4).field_names(accepted) == tuple(names)


def test_more_texts_and_names_than_the_cache_takes_have_no_visible_effect() -> None:
    encoder = FieldEncoder(16, {}, "normalised")
    texts = [[{"a": f"{part}-{k}", f"b{part}-{k}": "x"} for k in range(3000)] for part in range(3)]
    first = [encoder.encode(batch) for batch in texts]
    again = [encoder.encode(batch) for batch in texts]
    for before, after in zip(first, again, strict=True):
        assert [column.tolist() for column in before] == [column.tolist() for column in after]


@pytest.mark.parametrize("value", ["twelve", "1e31", "1_000", "\u0661", ["a"], [1.0], (), {}, b"1"], ids=repr)
def test_log_features_refuse_non_numbers(value: Any) -> None:
    events = [{"amount/1": 3}, {"amount/1": value}, {"amount/1": None}]
    for features in (Named(log=("fee", "amount/1")), Table(fields=(Field("amount/1", "numeric", log=True),))):
        assert pointers(features, events) == ["/1/amount~11"]


def test_a_field_may_be_category_or_text_and_log() -> None:
    features = Named(bits=24, text=("body",), categorical=("shop",), log=("body", "shop"))
    assert row_of(features, {"shop": "a"}) == spelt(features, "shop=a")
    assert row_of(features, {"shop": 7, "body": "one"}) == spelt(features, "shop=7", "body~one")


@pytest.mark.parametrize(
    ("event", "pointer"),
    [
        (None, ""),
        ([["a", 1]], ""),
        ({"a": 2e30}, "/a"),
        ({"a/b~": {"x": 1}}, "/a~1b~0"),
        ({"\ud800": {}}, "/\\ud800"),
        ({"a": b"x"}, "/a"),
        ({"a": 1j}, "/a"),
        ({"a": ["x", None]}, "/a/1"),
        ({"a": [["x"]]}, "/a"),
        ({"a": ["x", math.nan]}, "/a/1"),
        ({"x": 1, "y": {}, "z": {}}, "/y"),
        ({"n" * 257: 1}, "/" + "n" * 200),
        ({"n" * 257: None}, "/" + "n" * 200),
        ({"a": 1, " a": 2}, "/ a"),
    ],
)
def test_an_invalid_named_event_is_refused_with_a_pointer(event: Any, pointer: str) -> None:
    good = {"a": 1}
    assert pointers(Named(categorical=("c",)), [good, event, good]) == [f"/1{pointer}"]


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
        assert pointers(features, [{name: 1}, {name: number}], typed) == [f"/1/{name}"]


@pytest.mark.parametrize(
    ("event", "field"),
    [
        ({"items": ["x"] * (MAX_NONZERO + 1)}, "items"),
        ({"items": ["x"] * (MAX_NONZERO - 1), "more": True}, "more"),
        ({"items": ["x"] * 2000, "body": "x " * MAX_NONZERO}, "body"),
        ({"body": "x " * MAX_NONZERO, "items": ["x"] * 2000}, "items"),
        ({f"n{i}": True for i in range(MAX_NONZERO + 1)}, f"n{MAX_NONZERO}"),
    ],
    ids=["list", "list and one", "list and text", "text and list", "names"],
)
def test_an_event_with_too_many_features_is_refused_with_the_field_and_the_limit(event: Any, field: str) -> None:
    result = problems(Named(text=("body",)), [{}, event])
    assert [problem.pointer for problem in result] == [f"/1/{field}"]
    assert str(MAX_NONZERO) in result[0].detail


def test_an_event_with_the_maximum_number_of_features_is_accepted() -> None:
    features = Named(text=("body",))
    rows = features.encode([{"items": ["x"] * (MAX_NONZERO - 1)}, {"body": "x " * (MAX_NONZERO // 2)}])
    assert isinstance(rows, Sparse)
    assert sorted(np.abs(rows.data).tolist()) == [0.0, 1.0, MAX_NONZERO / 2 - 1, MAX_NONZERO / 2, MAX_NONZERO - 1]


SHARE = 32_000  # words of the only text of an event that is too long


@pytest.mark.parametrize("word", ["w", "\u65e5"], ids=["spaces", "pairs of characters"])
def test_a_text_with_too_many_words_is_cut_to_the_first_and_contradicts(word: str) -> None:
    features = Named(text=("body",))

    def text(words: int) -> str:
        return " ".join(f"W{i}" for i in range(words)) if word == "w" else word * (words + 1)

    most = MAX_NONZERO // 2
    for words, learnt in [(most, most), (most + 1, SHARE), (most + 5, SHARE), (3 * MAX_NONZERO, SHARE)]:
        long, expected = (features.encode([{"n": 1, "body": text(size), "z": "q"}][:1]) for size in (words, learnt))
        assert isinstance(long, Sparse)
        assert isinstance(expected, Sparse)
        assert long.indices.tolist() == expected.indices.tolist()
        differing = long.data != expected.data
        assert long.data[differing].tolist() == [2.0] * (words != learnt)  # the entry of the field
        assert features.cut_texts({"body": text(words)}) == ["body"] * (words != learnt)


@pytest.mark.parametrize("most", [1048, 104])
def test_texts_are_cut_to_what_buffers_take_only_where_an_event_is_longer(most: int) -> None:
    features = Named(bits=24, text=("body",))
    share = (most - most // 4) // 2

    def encoded(*bodies: str) -> list[dict[int, float]]:
        rows = features.encode([{"body": body, "n": 2.5} for body in bodies], most=most)
        ends = rows.indptr.tolist()
        return [
            dict(zip(rows.indices[start:stop].tolist(), rows.data[start:stop].tolist(), strict=True))
            for start, stop in itertools.pairwise(ends)
        ]

    words = [f"w{i}" for i in range(most)]
    short, repeated, long = " ".join(words[: most // 2 - 1]), "a b " * most, " ".join(words)
    rows = encoded(short, repeated, long, short)
    assert [len(row) for row in rows] == [2 * (most // 2 - 1) + 1, 6, 2 * share + 1, 2 * (most // 2 - 1) + 1]
    assert rows[:2] == encoded(short, repeated) == [encoded(short)[0], encoded(repeated)[0]]
    cut, first = rows[2], encoded(" ".join(words[:share]))[0]
    assert (sorted(cut), sum(cut.values()) - sum(first.values())) == (sorted(first), 1.0)  # it contradicts
    assert [features.cut_texts({"body": body}, most) for body in (short, repeated, long)] == [[], [], ["body"]]


def test_texts_of_a_long_event_share_the_room_and_others_stay() -> None:
    features = Named(text=("body", "title", "note"))
    words = " ".join(f"w{i}" for i in range(40_000))
    first = " ".join(words.split()[: SHARE // 3])
    event = {"body": words, "title": "a few words", "n": 2, " note ": words}
    assert features.cut_texts(event) == ["body", "note"]
    assert features.cut_texts({"body": " ".join(words.split()[:30_000]), "title": "", "n": 2}) == []
    stage = columns_of(features)
    rows = [stage.encoded(features.encode([each])) for each in (event, {**event, "body": first, " note ": first})]
    assert rows[0].indices.tolist() == rows[1].indices.tolist()
    assert rows[0].data.tolist() == rows[1].data.tolist()
    stage.note_fields(features.field_names([event]))
    stage.learn(features.encode([event, {"title": "short"}]))
    counted = {field.name: field.counts["contradictions"] for field in stage.field_summaries() or ()}
    assert counted == {"body": 1, "title": 0, "note": 1, "n": 0}
    assert features.names(event, [int(rows[0].indices[0])])  # of a cut text, too


# Names of columns


def names(features: Named, event: Any) -> list[str]:
    """Of all columns of the event's row."""
    return features.names(event, list(row_of(features, event)))


@given(events_of_any_kind, st.sampled_from([4, 10, 24]))
@settings(max_examples=30)
def test_hashed_column_names_equal_the_naive_python_version(event: dict[str, Any], bits: int) -> None:
    features = Named(bits=bits, words="literal", **MEANING)
    sharing: dict[int, list[str]] = {}
    for token, _ in slow.named_tokens(event, **MEANING):  # each value is read as the first of its field
        tokens = sharing.setdefault(slow.hash_text(token) % 2**bits, [])
        tokens += [token] if token not in tokens else []
    columns = list(row_of(features, event))
    assert sorted(sharing) == columns
    for name, column in zip(features.names(event, columns), columns, strict=True):
        assert set(sharing[column]) <= set(name.split(" + "))  # and what a field of another kind would have there
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
        ({"country": 10**16, "fee": 1e30}, [math.nan, category("1" + "0" * 16), math.log1p(1e30)]),
        ({"country": "\ud800"}, [math.nan, category("\ud800"), math.nan]),
        ({"country": "", "amount": " ", "fee": ""}, [math.nan, math.nan, math.nan]),
        ({"country": " 7.0", "amount": "12.50", "fee": "007"}, [12.5, category("7"), math.log1p(7)]),
        ({"country": "True", "amount": "-", "fee": "TRUE"}, [math.nan, category("true"), math.log1p(1)]),
        ({"country": "01", "amount": "-inf", "fee": "1e3"}, [math.nan, category("01"), math.log1p(1000)]),
        ({"country": " Co\u0301rdoba", "amount": np.int64(3)}, [3.0, category("C\u00f3rdoba"), math.nan]),
        ({"country": "NA", " amount": 2}, [2.0, category("NA"), math.nan]),
        ({" amount ": 2, "amount": None}, [2.0, math.nan, math.nan]),
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
    ("event", "pointer"),
    [
        ([1], ""),
        ({"ammount": 1}, "/ammount"),
        ({"amount": 1, "a/\ud800": None}, "/a~1\\ud800"),
        ({"amount": "12 EUR"}, "/amount"),
        ({"fee ": 1, "fee": 2}, "/fee"),
        ({"fee": 2e30}, "/fee"),
        ({"fee": [1]}, "/fee"),
        ({"country": ["DE"]}, "/country"),
        ({"country": {}}, "/country"),
        ({"amount": [], "country": []}, "/amount"),
    ],
)
def test_an_invalid_table_event_is_refused_with_a_pointer(event: Any, pointer: str) -> None:
    for typed in (False, True):
        assert pointers(TABLE, [{"amount": 1}, event], typed) == [f"/1{pointer}"]


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ({}, ["amount (missing)", "country (missing)", "fee (missing)"]),
        ({"amount": 1, "country": "DE", "fee": None}, ["amount", "country=DE", "fee (missing)"]),
        ({"country": None}, ["amount (missing)", "country (missing)", "fee (missing)"]),
        ({"country": 7.0}, ["amount (missing)", "country=7", "fee (missing)"]),
        ({"country": False}, ["amount (missing)", "country=false", "fee (missing)"]),
        ({"country": "", "amount": "-"}, ["amount (missing)", "country (missing)", "fee (missing)"]),
        ({"country ": "7.0", "amount": "1"}, ["amount", "country=7", "fee (missing)"]),
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
    assert pointers(table, [*events, {"Amount": 1.0, "other": 2}, {7: 1}]) == ["/3", "/4"]


def test_a_log_field_has_no_other_declaration() -> None:
    named = Named(text=("body", "note"), categorical=("shop", "fee"), log=("amount", "fee", "body"))
    assert [(problem.pointer, problem.code) for problem in named.objections()] == [
        ("/log/1", "conflict"),
        ("/log/2", "conflict"),
    ]
    assert Named(text=("body",), categorical=("shop", "body"), log=("amount",)).objections() == []
    assert TABLE.objections() == []
    same = Table(fields=(Field("fee", "numeric"), Field(" fee", "numeric"), Field("shop", "categorical")))
    assert [(problem.pointer, problem.code) for problem in same.objections()] == [("/fields/1/name", "conflict")]


@pytest.mark.parametrize("features", [Named(), TABLE])
def test_the_first_hundred_invalid_events_are_listed_once_each_in_order(features: Features) -> None:
    bad = [{"amount": {}}, {"fee": {}, "country": {}}, 7]
    values = [bad[i % 3] if i % 2 else {"amount": 1} for i in range(600)]
    assert [int(pointer.split("/")[1]) for pointer in pointers(features, values)] == list(range(1, 200, 2))


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


@pytest.mark.parametrize("value", [1e16, 3.5e18, "3.5e+18", "-1e16", -3.5e18])
def test_a_category_that_has_lost_digits_is_refused(value: Any) -> None:
    for features in (Named(categorical=("f",)), Table(fields=(Field("f", "categorical"),))):
        with pytest.raises(InvalidInput, match="a number beyond 2\\^53 whose last digits are lost; send names as text"):
            features.encode([{"f": value}])
        features.encode([{"f": str(int(float(value)))}])
