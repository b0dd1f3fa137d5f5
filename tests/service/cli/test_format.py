"""Durations are formatted and parsed."""

from __future__ import annotations

import pytest

from learners.decisions.threshold import Threshold
from service.cli.format import format_duration, format_threshold, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"), [("7d", 604_800), ("1.5h", 5400), ("30m", 1800), ("45s", 45), (" 90 ", 90), ("0d", 0)]
)
def test_durations_are_parsed(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "d", "week", "-1d", "nan", "infd", "1e400s", "7 days", "1w"])
def test_invalid_durations_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="45s,"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (604_800, "7 d"),
        (90_000, "1.042 d"),
        (5400, "1.5 h"),
        (60, "1 min"),
        (59.5, "59.5 s"),
        (0, "0 s"),
        (0.25, "0.25 s"),
    ],
)
def test_durations_are_formatted(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_the_settings_shown_of_an_objective_belong_to_it() -> None:
    properties = Threshold.schema()["properties"]
    values = dict.fromkeys(properties, 7)
    for objective in properties["objective"]["enum"]:
        _, *parts = format_threshold({**values, "objective": objective, "rate": None}).split()
        for name in (pair.partition("=")[0] for pair in parts):
            assert objective in properties[name]["x-applies-to"]["objective"]
