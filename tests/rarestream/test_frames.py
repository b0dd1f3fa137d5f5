"""Replies as rows and frames."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from rarestream import frame, rows

pytestmark = pytest.mark.integration  # pandas

EVENTS: dict[str, Any] = {
    "events": [
        {
            "id": "a",
            "time": 1.7e9,
            "time_iso": "2023-11-14T22:13:20.000Z",
            "label": None,
            "features": {"amount": 7, "in": {"x": 1}},
        },
        {"id": "b", "time": 1.7e9, "time_iso": None, "label": 1, "features": {"amount": 9, "items": ["x", "y"]}},
    ],
    "cursor": 4,
}


def test_an_entry_is_flat() -> None:
    assert rows(EVENTS)[0] == {
        "id": "a", "time": 1.7e9, "time_iso": "2023-11-14T22:13:20.000Z", "label": None, "features.amount": 7,
        "features.in.x": 1,
    }  # fmt: skip
    assert rows(EVENTS)[1]["features.items"] == ["x", "y"]


def test_intervals_are_two_columns() -> None:
    reply = {
        "by": "country",
        "segments": [{"value": "DE", "auc": 0.9, "auc_interval": [0.8, 1.0]}, {"value": "FR", "auc_interval": None}],
    }
    assert rows(reply) == [
        {"value": "DE", "auc": 0.9, "auc_low": 0.8, "auc_high": 1.0},
        {"value": "FR", "auc_low": None, "auc_high": None},
    ]


def test_lists_of_columns_become_rows() -> None:
    points = {
        "threshold": [0.1, 0.9],
        "alerts_per_day": None,
        "confusion": {"tp": [3, 1]},
        "recall_interval": [[0.2, 1.0], [0.1, 0.7]],
    }
    assert rows({"name": "a", "points": points}) == [
        {"threshold": 0.1, "confusion.tp": 3, "recall_low": 0.2, "recall_high": 1.0},
        {"threshold": 0.9, "confusion.tp": 1, "recall_low": 0.1, "recall_high": 0.7},
    ]


def test_a_frame_has_times() -> None:
    table = frame(EVENTS)
    assert len(table) == 2
    assert table["time_iso"][0] == pd.Timestamp("2023-11-14T22:13:20Z")
    assert pd.isna(table["time_iso"][1])
    assert frame({"annotations": [], "alarms": [{"number": 3}]}, "alarms")["number"].tolist() == [3]
    assert frame({"events": []}).empty


@pytest.mark.parametrize(
    ("reply", "member"), [({"name": "a"}, None), ({"events": []}, "segments"), ({"points": None}, None)]
)
def test_a_reply_without_a_list_is_refused(reply: dict[str, Any], member: str | None) -> None:
    with pytest.raises(ValueError, match="list"):
        rows(reply, member)
