"""Rows are matched to learners, and mismatches are reported."""

from __future__ import annotations

from typing import Any

import pytest

from service.datasets.rows import Shape
from service.datasets.schema_match import SchemaMismatch, adapter, declared, labels_for, suggest_options
from service.datasets.values import RowColumns

NAMED = {"kind": "named", "bits": 18, "text": ["body"], "categorical": ["customer"], "log": ["amount"]}
TABLE = {
    "kind": "table",
    "fields": [{"name": "amount", "kind": "numeric"}, {"name": "country", "kind": "categorical"}],
    "extra": "refuse",
}
COLUMNS = Shape("named", columns=("amount", "country"), texts=("country",))
NUMBERS = Shape("named", columns=("a", "b"))


def test_declared_column_types_are_derived_from_the_features() -> None:
    assert declared(NAMED) == {"body": False, "customer": False, "amount": True}
    assert declared(TABLE) == {"amount": True, "country": False}
    assert declared({"kind": "dense", "dim": 3}) == {}


BINARY = {"name": "two", "class_counts": {"negative": 0, "positive": 0}}
ORDINAL = {"name": "grades", "class_counts": {"1": 0, "2": 7, "3": 0}}


def test_labels_are_read_according_to_the_learner() -> None:
    assert list(map(labels_for(RowColumns(), BINARY), ["0", "1"])) == [0, 1]
    assert list(map(labels_for(RowColumns(positive=("3",)), BINARY), ["1", "3"])) == [0, 1]
    assert list(map(labels_for(RowColumns(), ORDINAL), ["1", 3, "2.0"])) == [1, 3, 2]
    assert list(map(labels_for(RowColumns(ranks=("low", "mid", "0")), ORDINAL), ["0", "low"])) == [3, 1]


@pytest.mark.parametrize(
    ("columns", "learner", "message"),
    [
        (RowColumns(ranks=("1", "2")), BINARY, "--ranks .*two .*--positive"),
        (RowColumns(positive=("1",)), ORDINAL, "--positive .*grades"),
        (RowColumns(ranks=("a", "b")), ORDINAL, r"--ranks .*2 labels.*grades .*\b3\b"),
        (RowColumns(ranks=("1", "2", "1.0")), ORDINAL, "'1', '2', '1.0'"),
    ],
)
def test_label_options_that_do_not_suit_the_learner_are_refused(
    columns: RowColumns, learner: dict[str, Any], message: str
) -> None:
    with pytest.raises(SchemaMismatch, match=message):
        labels_for(columns, learner)


@pytest.mark.parametrize(
    ("shape", "features"),
    [
        (COLUMNS, NAMED),
        (COLUMNS, TABLE),
        (Shape("named", columns=("amount", "x")), {**TABLE, "extra": "ignore"}),
        (Shape("dense", width=3), {"kind": "dense", "dim": 3}),
        (Shape("sparse"), {"kind": "sparse", "dim": 3}),
        (Shape("sparse", width=3), {"kind": "sparse", "dim": 5}),
    ],
)
def test_matching_rows_are_passed_unchanged(shape: Shape, features: dict[str, Any]) -> None:
    assert adapter(shape, features) is None


@pytest.mark.parametrize(
    ("shape", "features", "message"),
    [
        (Shape("dense", width=3), {"kind": "dense", "dim": 8}, r"dense .*\b3\b.* dense .*\b8\b"),
        (Shape("dense", width=3), NAMED, r"dense .*\b3\b.* named "),
        (Shape("sparse"), TABLE, "sparse .* table "),
        (Shape("sparse", width=9), {"kind": "sparse", "dim": 8}, r"sparse .*\b9\b.* sparse .*\b8\b"),
        (Shape("sparse", width=9), {"kind": "dense", "dim": 8}, r"sparse .*\b9\b.* dense .*\b8\b"),
        (Shape("dense", width=9), {"kind": "sparse", "dim": 8}, r"dense .*\b9\b.* sparse .*\b8\b"),
        (COLUMNS, {"kind": "sparse", "dim": 8}, r"\b2 named .* sparse .*\b8\b"),
        (COLUMNS, {"kind": "dense", "dim": 2}, r"\b2\b.* country "),
        (NUMBERS, {"kind": "dense", "dim": 3}, r"\b3\b.*\b2: a, b"),
        (Shape("named", columns=("amount", "p", "q")), TABLE, "--drop p --drop q"),
    ],
)
def test_mismatched_rows_are_refused(shape: Shape, features: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaMismatch, match=message):
        adapter(shape, features)


def adapted(shape: Shape, features: dict[str, Any], event: dict[str, Any]) -> dict[str, Any]:
    adapt = adapter(shape, features)
    assert adapt is not None
    return adapt(event)


def test_named_numbers_are_ordered_by_column() -> None:
    event = {"features": {"b": 2.0, "a": 1.0}, "label": 1, "id": "e"}
    assert adapted(NUMBERS, {"kind": "dense", "dim": 2}, event) == {"x": [1.0, 2.0], "label": 1, "id": "e"}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"a": 1.0}, r"\bb\b"),
        ({"a": 1.0, "b": 2.0, "c": 3.0}, r"\b3\b.*\b2\b"),
        ({"a": 1.0, "b": None}, r"column b\b"),
    ],
)
def test_named_rows_with_non_numbers_are_refused(row: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        adapted(NUMBERS, {"kind": "dense", "dim": 2}, {"features": row, "label": 1})


def test_sparse_rows_are_converted_to_dense_and_back() -> None:
    sparse = {"indices": [0, 3], "values": [1.5, -2.0], "label": 0}
    dense = {"x": [1.5, 0.0, 0.0, -2.0], "label": 0}
    assert adapted(Shape("sparse"), {"kind": "dense", "dim": 4}, dict(sparse)) == dense
    assert adapted(Shape("dense", width=4), {"kind": "sparse", "dim": 9}, dict(dense)) == sparse
    with pytest.raises(ValueError, match="3;"):
        adapted(Shape("sparse"), {"kind": "dense", "dim": 3}, dict(sparse))


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_an_index_beyond_the_learner_is_named_as_the_file_has_it(kind: str) -> None:
    event = {"indices": [0, 3], "values": [1.5, -2.0], "label": 0}
    counted_from_1 = Shape("sparse", base=1)
    assert adapted(counted_from_1, {"kind": kind, "dim": 4}, dict(event))["label"] == 0
    with pytest.raises(ValueError, match=r"\b4\b.*\b1\b.*\b3\b"):
        adapted(counted_from_1, {"kind": kind, "dim": 3}, dict(event))


def test_options_to_create_a_suitable_learner_are_suggested() -> None:
    assert suggest_options(COLUMNS) == "--features named"
    assert suggest_options(Shape("dense", width=8)) == "--features dense --dim 8"
    assert suggest_options(Shape("sparse")) == "--features sparse --dim N"
