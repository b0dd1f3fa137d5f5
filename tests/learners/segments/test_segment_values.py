"""Values of segment fields as they are read from events, and fields that cannot be segments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from learners import Config, InvalidInput
from learners.segments import NO_VALUE, POOLED, UNRECORDED, SegmentColumns, join_segment_columns, segments_of

NAMED = {"kind": "named", "categorical": ["shop"], "text": ["body"], "log": ["amount"]}
TABLE = {
    "kind": "table",
    "fields": [{"name": "country", "kind": "categorical"}, {"name": "amount", "kind": "numeric"}],
}
DENSE = {"kind": "dense", "dim": 3}
SPARSE = {"kind": "sparse", "dim": 3}


def config(features: dict[str, Any], *segments: str, algorithm: str = "cbr-diag") -> Config:
    return Config.of({"algorithm": algorithm, "features": features, "figures": {"segments": list(segments)}})


def texts(columns: SegmentColumns | None) -> list[list[str | int]]:
    """Return the values of each event in the order of the fields."""
    assert columns is not None
    return [list(columns.event(i).values()) for i in range(len(columns.codes))]


def test_values_are_texts_as_categories_are_spelt() -> None:
    events = [
        {"country": "DE", "shop": 17},
        {"country": " DE ", "shop": 17.0},
        {"country": None, "shop": "17"},
        {"shop": True, "country": "false"},
        {"country": "", "shop": np.float64(1.5)},
        {"country": "東京", "shop": ["a", "b"]},
        {"country": "x" * 64, "shop": "x" * 65},
        {"country": "-0.0", "shop": -0.0},
    ]
    assert texts(config(NAMED, "country", "shop").segment_values(events)) == [
        ["DE", "17"],
        ["DE", "17"],
        [NO_VALUE, "17"],
        ["false", "true"],
        [NO_VALUE, "1.5"],
        ["東京", POOLED],
        ["x" * 64, POOLED],
        ["0", "0"],
    ]


def test_tables_have_categories_and_columns_have_numbers() -> None:
    events = [{"country": "DE", "amount": 5}, {"amount": 5}]
    assert texts(config(TABLE, "country").segment_values(events)) == [["DE"], [NO_VALUE]]
    X = np.array([[0.0, 2.0, 0.1], [-0.0, 2.5, 0.1]])
    expected = [["0", "0.1"], ["0", "0.1"]]
    for rows in (X, X.tolist()):
        assert texts(config(DENSE, "0", "2").segment_values(rows)) == expected
    sparse = config(SPARSE, "0", "2")
    assert texts(sparse.segment_values([([1, 2], [2.0, 0.1]), ([2], [0.1])])) == expected
    assert texts(sparse.segment_values(csr_array(X))) == expected


def test_learners_without_segment_fields_read_nothing() -> None:
    assert config(NAMED).segment_values([{"country": "DE"}]) is None


@pytest.mark.parametrize(
    ("features", "field"),
    [
        (NAMED, "body"),
        (NAMED, "amount"),
        (NAMED, ""),
        (NAMED, " country"),
        (TABLE, "amount"),
        (TABLE, "shop"),
        (DENSE, "3"),
        (DENSE, "x"),
        (SPARSE, "01"),
    ],
)
def test_fields_without_categories_are_refused(features: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        config(features, field)
    assert [problem.pointer for problem in refused.value.problems] == ["/figures/segments"]


def test_ordinal_learners_have_no_segments() -> None:
    with pytest.raises(InvalidInput) as refused:
        config(DENSE, "0", algorithm="npsvor")
    assert [problem.pointer for problem in refused.value.problems] == ["/figures/segments"]


def test_segment_fields_are_distinct_and_at_most_sixteen() -> None:
    fields = [f"f{i}" for i in range(16)]
    assert config(NAMED, *fields).figures.segments == tuple(fields)
    for wrong, pointer in ((["a", "b", "a"], "/figures/segments/2"), ([*fields, "more"], "/figures/segments")):
        with pytest.raises(InvalidInput) as refused:
            config(NAMED, *wrong)
        assert [problem.pointer for problem in refused.value.problems] == [pointer]


def test_values_of_joined_batches_keep_their_fields() -> None:
    features = config(NAMED).features
    first = segments_of(features, ("country",), [{"country": "DE"}, {}])
    second = segments_of(
        features, ("shop", "country"), [{"country": "FR", "shop": ["a"]}, {"country": "DE", "shop": 1}]
    )
    joined = join_segment_columns([first, None, second], [2, 1, 2])
    assert joined is not None
    assert joined.fields == ("country", "shop")
    assert texts(joined) == [
        ["DE", UNRECORDED],
        [NO_VALUE, UNRECORDED],
        [UNRECORDED, UNRECORDED],
        ["FR", POOLED],
        ["DE", "1"],
    ]
    assert join_segment_columns([None, None], [2, 1]) is None
    events = [joined.event(i) for i in range(5)]
    assert texts(SegmentColumns.gather([*events, None])) == [*texts(joined), [UNRECORDED, UNRECORDED]]
    assert SegmentColumns.gather([None]) is None
