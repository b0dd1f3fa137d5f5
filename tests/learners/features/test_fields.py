"""The fields of named events: what a value becomes by its field's kind, what is counted, and what a state keeps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners import InvalidInput, Learner, create, restore
from learners.features import MAX_FIELDS, Features, Field, FieldKind, FieldSummary, Table
from learners.features.column_map import NamedColumns, columns_of
from learners.features.named import Named
from learners.numerics import Sparse

DECLARED: dict[str, Any] = {"kind": "named", "bits": 16, "categorical": ["shop"], "log": ["fee"], "text": ["body"]}


def stage_after(events: list[dict[str, Any]], features: Named) -> NamedColumns:
    """Learn events, all at once."""
    stage = columns_of(features)
    assert isinstance(stage, NamedColumns)
    stage.note_fields(features.field_names(events))
    stage.learn(features.encode(events))
    return stage


def spelt(stage: NamedColumns, features: Named, event: dict[str, Any]) -> dict[str, float]:
    """Name what an event becomes, without the signs of the hashes."""
    rows = stage.encoded(features.encode([event]))
    assert isinstance(rows, Sparse)
    names = features.names(event, rows.indices.tolist())
    return dict(zip(names, np.abs(rows.data).tolist(), strict=True))


def summary(stage: NamedColumns, name: str) -> FieldSummary:
    return next(field for field in stage.field_summaries() if field.name == name)


NEW, NUMBERS, NAMES, LISTS = [], [1.5, 2.5], ["DE", "FR"], [["a"]]


@pytest.mark.parametrize(
    ("before", "value", "becomes"),
    [
        (NEW, 12.5, {"f": 12.5}),
        (NEW, 17, {"f": 17.0}),
        (NEW, "17", {"f=17": 1.0}),
        (NEW, "12.50", {"f": 12.5}),
        (NEW, "1e3", {"f": 1000.0}),
        (NEW, "True", {"f=true": 1.0}),
        (NEW, "01234", {"f=01234": 1.0}),
        (NEW, 2**53 + 1, {"f=9007199254740993": 1.0}),
        (NEW, "-", {"f=-": 1.0}),
        (NEW, "1_000", {"f=1_000": 1.0}),
        (NEW, "inf", {"f=inf": 1.0}),
        (NUMBERS, "950", {"f": 950.0}),
        (NUMBERS, " 950.0 ", {"f": 950.0}),
        (NUMBERS, True, {"f": 1.0}),
        (NUMBERS, "DE", {}),
        (NUMBERS, "-", {}),
        (NUMBERS, "<na>", {}),
        (NUMBERS, "01234", {}),
        (NUMBERS, "inf", {}),
        (NUMBERS, 2**53 + 1, {}),
        (NUMBERS, ["a"], {"f=a": 1.0}),
        (NAMES, 17, {"f=17": 1.0}),
        (NAMES, 17.0, {"f=17": 1.0}),
        (NAMES, "17.0", {"f=17": 1.0}),
        (NAMES, -3, {"f=-3": 1.0}),
        (NAMES, 0, {"f=0": 1.0}),
        (NAMES, 12.5, {"f=12.5": 1.0}),
        (NAMES, "12.50", {"f=12.5": 1.0}),
        (NAMES, " DE", {"f=DE": 1.0}),
        (NAMES, "NA", {"f=NA": 1.0}),
        (NAMES, "true", {"f=true": 1.0}),
        (LISTS, "b", {"f=b": 1.0}),
        (LISTS, ["b", "7.0"], {"f=b": 1.0, "f=7": 1.0}),
    ],
)
def test_a_value_is_read_by_the_kind_of_its_field(before: list[Any], value: Any, becomes: dict[str, float]) -> None:
    features = Named(bits=22)
    stage = stage_after([{"f": earlier} for earlier in before], features)
    assert spelt(stage, features, {"f": value}) == becomes


def test_the_same_category_has_one_column_however_it_is_sent() -> None:
    features = Named(bits=20, categorical=("shop",))
    stage = stage_after([{"shop": 17, "id": "17"}], features)
    for name in ("shop", "id"):
        rows = stage.encoded(features.encode([{name: value} for value in (17, 17.0, "17", "17.0", " 17", "+17")]))
        assert isinstance(rows, Sparse)
        assert len(set(rows.indices.tolist())) == 1


def test_what_is_counted() -> None:
    features = Named(bits=16, log=("fee",))
    values = [1.5, "950", "-", None, True, "DE", ["a"], 3]
    stage = stage_after([{"amount": value} for value in values], features)
    amount = summary(stage, "amount")
    assert (amount.kind, amount.declared, amount.values) == (FieldKind.NUMBER, False, 6)
    assert amount.counts == {
        "numbers": 2,
        "numbers_as_text": 1,
        "booleans": 1,
        "texts": 1,
        "lists": 1,
        "missing_texts": 1,
        "contradictions": 3,
        "new_categories": 0,
        "out_of_range": 0,
    }
    assert (amount.smallest, amount.largest, amount.last) == (1.5, 950.0, 8)
    assert (summary(stage, "fee").last, summary(stage, "fee").declared) == (None, True)
    stage = stage_after([{"c": value} for value in ("a", "b", "a", "a")], features)
    assert summary(stage, "c").counts["new_categories"] == 2


@pytest.mark.parametrize("text", ["m1\u200b", "\ufeffm1", "m\u00ad1", " \u2060m1 ", "m1\u200e"])
def test_invisible_characters_make_no_other_name(text: str) -> None:
    features = Named(bits=16)
    assert [part.tolist() for part in features.encode([{"f": text}])] == [
        part.tolist() for part in features.encode([{"f": "m1"}])
    ]
    assert features.field_names([{text: 1.5}]) == features.field_names([{"m1": 1.5}])
    amount = summary(
        stage_after([{"f": 1.5}, {"f": text.replace("m1", "4.5").replace("m\u00ad1", "4.5")}], features), "f"
    )
    assert amount.counts["numbers_as_text"] == 1


@pytest.mark.parametrize("text", ["2e35", "-1e31", "1e999", "inf"])
def test_a_text_of_a_number_beyond_the_bound_is_missing_in_a_field_of_numbers_only(text: str) -> None:
    amount = summary(stage_after([{"f": 1.5}, {"f": text}], Named(bits=16)), "f")
    assert (amount.counts["missing_texts"], amount.counts["contradictions"]) == (1, 0)
    name = summary(stage_after([{"f": "DE"}, {"f": text}], Named(bits=16)), "f")
    assert (name.counts["new_categories"], name.counts["contradictions"]) == (2, 0)


@pytest.mark.parametrize("features", [Named(bits=8, log=("f",)), Table(fields=(Field("f", "numeric"),))])
def test_a_number_beyond_the_bound_is_refused_with_the_same_words_as_text(features: Features) -> None:
    for number, text in ((1e31, "1e31"), (-2e35, "-2e35"), (10**40, "1" + "0" * 40)):
        details = []
        for value in (number, text):
            with pytest.raises(InvalidInput) as refusal:
                features.encode([{"f": value}])
            details.append(refusal.value.problems[0].detail)
        assert all("expected at most 1e+30 in magnitude" in detail for detail in details)


@pytest.mark.parametrize("kind", ["log", "categorical"])
def test_a_declared_field_is_not_remarked_as_rounded(kind: str) -> None:
    value = 3.5e18 if kind == "log" else 3_500_000_000_000_000_000
    field = summary(stage_after([{"f": value}], Named(bits=16, **{kind: ("f",)})), "f")
    assert (field.values, field.remarks(1)) == (1, [])


@pytest.mark.parametrize("item", [3.5e18, "3.5e+18"])
def test_a_name_in_a_list_that_has_lost_digits_is_refused_as_in_a_categorical_field(item: Any) -> None:
    details = []
    for features, value in ((Named(bits=8), ["a", item]), (Named(bits=8, categorical=("f",)), item)):
        with pytest.raises(InvalidInput) as refusal:
            features.encode([{"f": value}])
        details.append(refusal.value.problems[0].detail)
    assert details[0] == details[1]
    assert "last digits are lost" in details[0]


def test_many_contradictions_make_a_field_mixed_and_a_few_do_not() -> None:
    features = Named(bits=16)
    few = stage_after([{"f": 1.5}] * 500 + [{"f": "DE"}] * 20, features)
    assert summary(few, "f").kind == FieldKind.NUMBER
    many = stage_after([{"f": 1.5}] * 300 + [{"f": "DE"}] * 20, features)
    assert (summary(many, "f").kind, summary(many, "f").counts["contradictions"]) == (FieldKind.MIXED, 20)
    assert spelt(many, features, {"f": "DE"}).keys() == {"f=DE"}
    declared = Named(bits=16, categorical=("f",))
    assert summary(stage_after([{"f": 1.5}] * 300, declared), "f").kind == FieldKind.CATEGORY


def test_fields_beyond_the_limit_are_learnt_as_sent_and_declared_ones_have_room() -> None:
    features = Named(bits=20, categorical=("shop",))
    stage = stage_after([{f"n{i}": 1.5} for i in range(MAX_FIELDS + 5)], features)
    assert len(stage.field_summaries()) == MAX_FIELDS + 1
    assert stage.new_fields(["more"]) == ()
    last = f"n{MAX_FIELDS + 4}"
    assert spelt(stage, features, {last: "17"}).keys() == {f"{last}=17"}


values = (
    st.none()
    | st.booleans()
    | st.integers(-20, 20)
    | st.floats(-9, 9)
    | st.sampled_from(["17", "17.0", "12.5", "-", "NA", "DE", " DE", "true", "01", ""])
    | st.lists(st.sampled_from(["a", "b", 7]), max_size=2)
)
streams = st.lists(
    st.fixed_dictionaries(
        {}, optional={"a": values, "b": values, "shop": values, "body": values, "fee": st.floats(0, 9) | st.just("-")}
    ),
    min_size=1,
    max_size=12,
)


def learn(events: list[dict[str, Any]], cuts: list[int]) -> Learner:
    """Learn events in parts that end at the cuts; the learner is saved and restored after each part."""
    learner = create("cbr-diag", features=DECLARED, seed=3)
    for start, stop in zip([0, *cuts], [*cuts, len(events)], strict=True):
        part = events[start:stop]
        if part:
            learner.learn(part, [i % 2 for i in range(start, stop)])
        learner = restore(learner.config.to_json(), learner.state())
    return learner


@given(streams, st.data())
@settings(max_examples=40, deadline=None)
def test_neither_batches_nor_restarts_are_visible(events: list[dict[str, Any]], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(events)), max_size=3)))
    whole, parts = learn(events, []), learn(events, cuts)
    assert whole.digest() == parts.digest()
    assert whole.view().fields == parts.view().fields
    assert whole.score(events).tobytes() == parts.score(events).tobytes()


def test_rows_of_earlier_versions_leave_a_state_of_earlier_versions() -> None:
    learner = create("cbr-diag", features=DECLARED, seed=3)
    assert not any(name.startswith("columns.field") for name in learner.state())
    row = Sparse(np.array([1.0]), np.array([7]), np.array([0, 1]))
    stage = columns_of(learner.config.features)
    stage.learn(row)
    assert stage.state().keys() == {"order"}
    learner.learn([{"a": 1}], [1])
    assert learner.state()["columns.field_events"].tolist() == [1]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("field_kinds", lambda array: array + 9),
        ("field_counts", lambda array: array - 1),
        ("field_last", lambda array: array + 100),
        ("field_events", lambda array: -array),
        ("field_bounds", lambda array: array * np.nan),
        ("field_lengths", lambda array: array + 1),
        ("field_names", lambda array: array[:-1]),
        ("field_names", lambda array: np.full_like(array, 0xFF)),
        ("field_names", lambda array: np.full_like(array, ord("a"))),
    ],
)
def test_an_impossible_state_is_refused(name: str, change: Any) -> None:
    learner = learn([{"a": 1.5, "b": "x"}], [])
    state = dict(learner.state())
    state[f"columns.{name}"] = change(state[f"columns.{name}"])
    with pytest.raises(InvalidInput) as caught:
        restore(learner.config.to_json(), state)
    assert {problem.pointer.partition("_")[0] for problem in caught.value.problems} == {"/columns.field"}
    del state[f"columns.{name}"]
    with pytest.raises(InvalidInput) as caught:
        restore(learner.config.to_json(), state)
    assert [problem.pointer for problem in caught.value.problems] == [f"/columns.{name}"]


def test_a_declared_field_that_never_comes_is_reported_after_a_thousand_events() -> None:
    learner = create("cbr-diag", features=DECLARED, seed=3)
    events, labels = [{"shop": i % 7, "amount": 1.5, "body": "x"} for i in range(999)], [i % 2 for i in range(999)]
    learner.learn(events, labels)
    assert learner.view().absent_fields == []
    learner.learn([{"shop": 3}], [1])
    assert learner.view().absent_fields == ["fee"]
    learner.learn([{" fee": "12"}], [1])
    assert learner.view().absent_fields == []


@pytest.mark.parametrize(
    ("values", "remarks"),
    [
        ([f"TX{i:05}" for i in range(1200)], ["unique"]),
        (["DE"] * 1200, ["constant"]),
        ([12.5] * 1200, ["constant"]),
        ([12.5] * 999, []),
        ([1.5, 2.5] * 600, []),
        (["DE", "FR"] * 600, []),
        ([1.5, 2.5] * 600 + [None] * 1000, ["stopped"]),
        ([1.5, 2.5] * 600 + [None] * 999, []),
        ([1.5, 2.5, *[None] * 58] * 20 + [None] * 1000, []),  # rare: its next value is not overdue
        ([1.5, 2.5] * 600 + [4.5] * 1000, ["constant"]),
        ([1.5, 2.5] * 600 + [0] * 1000, ["constant"]),
        ([1.5, 2.5] * 600 + [4.5] * 999, []),
        (["DE", "FR"] * 600 + ["DE"] * 1001, ["constant"]),
        ([True, False] * 600 + [False] * 1001, ["constant"]),
        (["DE", "FR"] * 600 + ["DE"] * 1001 + ["FR"], []),
        ([1.5, 2.5] * 600 + [None, 4.5] * 501, ["constant"]),
        ([*[0] * 299, 1] * 4 + [0] * 1100, []),  # rare: another value is not overdue
        ([float(i // 400) for i in range(3000)] + [9.5] * 1100, []),  # changes in steps
        ([f"s{i % 30}" for i in range(3072)] + [f"TX{i}" for i in range(1024)], ["unique"]),
        ([f"s{i % 30}" for i in range(3072)] + [f"TX{i}" for i in range(1023)], []),
        ([f"s{i % 30}" for i in range(3072)] + [f"TX{i}" if i % 2 else None for i in range(2048)], ["unique"]),
        ([f"s{i % 30}" for i in range(3072)] + [f"TX{i if i % 7 else 0}" for i in range(2048)], []),
        ([f"TX{i}" for i in range(2048)] + ["s1", "s2"] * 256, []),
        ([f"TX{i}" for i in range(50_000)], ["unique"]),  # 38 % of the columns are still free
        ([1.5, 3.5e18], ["rounded"]),
        (["12", "-3.5e+18"], ["rounded"]),
        (["DE", 3.5e18], ["rounded"]),
        ([2.0**53, "9007199254740993", 2**53 + 1, 3_500_000_000_000_000_000], []),  # all digits are there
    ],
)
def test_an_odd_field_is_remarked(values: list[Any], remarks: list[str]) -> None:
    learner = create("cbr-diag", features={"kind": "named", "bits": 16})
    learner.learn(
        [{"always": i % 7 + 0.5, "f": value} for i, value in enumerate(values)],
        [0, 1] * (len(values) // 2) + [1] * (len(values) % 2),
    )
    view = learner.view()
    actual = {field.name: field.remarks(view.field_events) for field in view.fields or []}
    assert actual == {"always": [], "f": remarks}
