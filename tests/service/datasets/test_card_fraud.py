"""The simulated stream: reproducible in parts, about 1 % fraud, not perfectly rankable, with a change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.feature_extraction import DictVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import StandardScaler

from service.cli.commands.demo import LEARNERS
from service.datasets.card_fraud import CardFraud, first_day, max_events

pytestmark = pytest.mark.integration

CHANGE = 40_000
EVENTS = 80_000


@pytest.fixture(scope="module")
def stream() -> list[dict[str, Any]]:
    return CardFraud(change=CHANGE).events(0, EVENTS)


@pytest.mark.parametrize(("start", "stop"), [(0, 1), (999, 1001), (39_500, 40_500), (12_345, 15_000), (7, 7)])
def test_any_slice_equals_the_same_part_of_the_stream(stream: list[dict[str, Any]], start: int, stop: int) -> None:
    assert CardFraud(change=CHANGE).events(start, stop) == stream[start:stop]


def test_another_seed_gives_another_stream(stream: list[dict[str, Any]]) -> None:
    assert CardFraud(change=CHANGE, seed=2).events(0, 10) != stream[:10]


def test_the_pattern_change_does_not_affect_earlier_events(stream: list[dict[str, Any]]) -> None:
    assert CardFraud(change=EVENTS).events(0, EVENTS)[:CHANGE] == stream[:CHANGE]


def test_ids_are_unique_and_times_ascend(stream: list[dict[str, Any]]) -> None:
    assert len({event["id"] for event in stream}) == EVENTS
    times = [event["time"] for event in stream]
    assert times == sorted(times)
    assert all(event["time"] // 3600 % 24 == event["features"]["hour"] for event in stream)


def test_about_one_percent_is_fraud_before_and_after_the_change(stream: list[dict[str, Any]]) -> None:
    labels = np.array([event["label"] for event in stream])
    for part in (labels[:CHANGE], labels[CHANGE:]):
        assert part.mean() == pytest.approx(0.01, abs=3 * np.sqrt(0.01 * 0.99 / CHANGE))


def test_features_are_plain_json_with_missing_values(stream: list[dict[str, Any]]) -> None:
    kinds: dict[str, set[type]] = {}
    for event in stream:
        for name, value in event["features"].items():
            kinds.setdefault(name, set()).add(type(value))
    nothing = type(None)
    assert kinds == {
        "amount": {float},
        "merchant": {str},
        "country": {str},
        "channel": {str},
        "hour": {int},
        "card_age_days": {int},
        "seconds_since_last": {int, nothing},
        "transactions_today": {int},
        "new_device": {bool, nothing},
    }


def test_the_demo_declares_every_feature(stream: list[dict[str, Any]]) -> None:
    fields = {field["name"]: field for field in LEARNERS["demo-cbr"]["features"]["fields"]}
    assert fields.keys() == stream[0]["features"].keys()
    for name, field in fields.items():
        if field["kind"] == "categorical":
            values = {event["features"][name] for event in stream} - {None}
            assert field["categories"] == len(values)


def test_a_ranker_fits_one_pattern_and_fails_on_the_other(stream: list[dict[str, Any]]) -> None:
    X = _matrix(stream)
    y = np.array([event["label"] for event in stream])
    half = CHANGE // 2
    first = LogisticRegression(max_iter=500).fit(X[:half], y[:half])
    second = LogisticRegression(max_iter=500).fit(X[CHANGE : CHANGE + half], y[CHANGE : CHANGE + half])
    assert 0.85 < roc_auc_score(y[half:CHANGE], first.decision_function(X[half:CHANGE])) < 0.96
    assert 0.85 < roc_auc_score(y[CHANGE + half :], second.decision_function(X[CHANGE + half :])) < 0.96
    assert roc_auc_score(y[CHANGE:], first.decision_function(X[CHANGE:])) < 0.7


def _matrix(events: list[dict[str, Any]]) -> Any:
    rows = []
    for event in events:
        row = dict(event["features"])
        for name in ("amount", "card_age_days", "seconds_since_last"):
            row[name] = np.log1p(row[name] if row[name] is not None else 40_000)
        rows.append({**row, "hour": str(row["hour"]), "new_device": str(row["new_device"])})
    return StandardScaler().fit_transform(DictVectorizer(sparse=False).fit_transform(rows))


def test_events_are_never_in_the_future() -> None:
    now = 20_500.5 * 86_400
    days = {1: 20_454, 46 * 4000: 20_454, 46 * 4000 + 1: 20_453, 48 * 4000: 20_452, 1_000_000: 20_250}
    for events, first in days.items():
        assert first_day(events, now) == first
        (last,) = CardFraud(change=1, first=first).events(events - 1, events)
        assert last["time"] < now
        assert first_day(events, now, last["time"]) == first  # where it goes on
        assert max_events(first, now) >= events
    assert max_events(20_501, now) == 0
