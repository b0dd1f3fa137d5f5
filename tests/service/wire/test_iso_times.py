"""Times as text: what is taken, what is refused, and that every coding takes the same."""

from __future__ import annotations

import json
import math
import time
from typing import Any

import msgpack
import numpy as np
import pytest

from learners import Config
from rarestream.values import parse_time
from service.errors import Invalid
from service.wire import JSON, MSGPACK, iso_time

DENSE = Config.of({"algorithm": "loam-ada", "features": {"kind": "dense", "dim": 1}})
NAMED = Config.of({"algorithm": "loam-ada", "features": {"kind": "named", "bits": 8}})
AT = 1_767_225_600.0  # 2026-01-01


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-01-01", AT),
        ("2026-01-01T00:00", AT),
        ("2026-01-01 00:00:00", AT),
        ("2026-01-01T02:00:00+02:00", AT),
        ("2025-12-31T19:00:00.25-05:00", AT + 0.25),
        ("2026-01-01T00:00:00.123456789Z", AT + 0.123456),
        ("0001-01-01", -62_135_596_800.0),
    ],
)
def test_a_time_is_taken(text: str, seconds: float) -> None:
    assert parse_time(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        *("", "now", "1767225600", "20260101", "2026-01", "2026-W01-1", "2026-13-01", "2026-01-01T25:00"),
        *("2026-01-01T00:00z", "2026-01-01T00:00:60Z", "2026-01-01T00:00:00 02:00", "٢٠٢٦-01-01"),
        f"2026-01-01T00:00:00.{'1' * 99}",
    ],
)
def test_what_is_no_time_is_not(text: str) -> None:
    assert parse_time(text) is None


def test_a_time_is_given_in_utc() -> None:
    assert iso_time(AT + 0.2509) == "2026-01-01T00:00:00.250Z"
    assert iso_time(-0.5) == "1969-12-31T23:59:59.500Z"
    assert [iso_time(value) for value in (None, math.nan, math.inf, 1e12, -1e12)] == [None] * 5
    for seconds in (-62_135_596_800.0, 0.0, AT, 253_402_300_798.0):
        assert parse_time(iso_time(seconds) or "") == seconds


def bodies(times: list[Any]) -> list[tuple[Any, bytes, Config]]:
    """Return the same events in every coding: by the kernels' way, the typed decoder's, and in columns."""
    dense = [{"x": [1.0], "label": 1, "time": value} for value in times]
    named = [{"features": {"a": 1}, "label": 1, "time": value} for value in times]
    columns = {"x": [[1.0]] * len(times), "labels": [1] * len(times), "times": times}
    columns["x"] = {"dtype": "float64", "shape": [len(times), 1], "data": np.ones(len(times)).tobytes()}
    return [
        (JSON, json.dumps({"events": dense}).encode(), DENSE),
        (JSON, json.dumps({"events": named}).encode(), NAMED),
        (JSON, json.dumps({"events": [*named, {**named[0], "features": {"a": True}}]}).encode(), NAMED),
        (MSGPACK, msgpack.packb(columns), DENSE),
    ]


def test_every_coding_takes_text_beside_numbers() -> None:
    for coding, body, config in bodies(["2026-01-01", AT + 1, "2026-01-01T01:00:02+01:00"]):
        events, _ = coding.decode_update(body, config)
        assert events.times[:3].tolist() == [AT, AT + 1, AT + 2]


@pytest.mark.parametrize("ahead", [None, 3 * 86_400])
def test_every_coding_refuses_what_is_no_time_or_ahead(ahead: float | None) -> None:
    value = "now" if ahead is None else iso_time(time.time() + ahead)
    for coding, body, config in bodies([AT, value]):
        with pytest.raises(Invalid) as refused:
            coding.decode_update(body, config)
        assert refused.value.problems[0].pointer in ("/events/1/time", "/times/1")
