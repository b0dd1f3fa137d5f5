"""Alarms of positive labels that stop arriving: against plain NumPy, however a stream is cut, on several patterns."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from learners.config import Config
from learners.learner import Learner
from learners.metrics.alarm_life import KINDS
from learners.metrics.drift import Drift
from learners.metrics.positive_arrivals import GAPS

Vector = NDArray[np.float64]


def unknown(n: int) -> Vector:
    return np.full(n, np.nan)


def learn(detector: Drift, y: Vector, start: int = 0) -> None:
    """Learn labels whose scores never change, so that there is no other alarm."""
    detector.learn(np.zeros(len(y)), y, start, unknown(len(y)))


def alarms(detector: Drift) -> list[int]:
    return [alarm["events"] for alarm in detector.alarms() if alarm["kind"] == "positives"]


def random_labels(share: float, n: int, seed: int) -> Vector:
    return np.where(np.random.default_rng(seed).random(n) < share, 1.0, -1.0)


def naive_alarms(y: Vector) -> list[int]:
    """Follow the formulas, event by event."""
    alarms_at: list[int] = []
    gaps: list[int] = []
    last, limit = None, np.inf
    for number, label in enumerate(y, 1):
        if label < 0:
            if last is not None and number - last >= limit:
                alarms_at.append(number)
                gaps, last, limit = [], None, np.inf
            continue
        if last is not None:
            gaps.append(number - last)
        last = number
        recent = np.array(gaps[-GAPS:], dtype=float)
        if len(recent) < 20:
            continue
        mean = recent.mean()
        excess = recent[recent > mean] - mean
        limit = 2 * recent.max()
        if len(excess):
            k, e = len(excess), excess.mean()
            d = (k * excess.var() / e**2 + 10) / (k + 10)
            d = d if d < 0.5 else max(d, 1.0)
            chance = min(1e-6 * mean, 1e-3)
            limit = max(limit, mean + k * e * ((k / len(recent) / chance) ** (d / k) - 1))
    return alarms_at


@pytest.mark.parametrize("share", [0.02, 0.3])
def test_alarms_match_the_definition(share: float) -> None:
    pieces = [random_labels(share, int(900 / share), seed) for seed in range(4)]
    silent = -np.ones(int(30 / share))
    y = np.concatenate([part for piece in pieces for part in (piece, silent)])
    detector = Drift()
    learn(detector, y)
    assert alarms(detector) == naive_alarms(y)
    assert len(alarms(detector)) == 4
    assert list(detector.problems(detector.state())) == []


@given(cuts=st.lists(st.integers(1, 2999), max_size=8, unique=True))
@settings(max_examples=20)
def test_batching_changes_nothing(cuts: list[int]) -> None:
    y = np.concatenate([random_labels(0.1, 2500, 5), -np.ones(500)])
    whole, parts = Drift(), Drift()
    learn(whole, y)
    for start, stop in zip([0, *sorted(cuts)], [*sorted(cuts), 3000], strict=True):
        learn(parts, y[start:stop], start)
    assert len(alarms(whole)) == 1
    for name, array in whole.state().items():
        assert array.tobytes() == parts.state()[name].tobytes(), name


def test_an_alarm_says_how_many_positives_there_were() -> None:
    detector = Drift()
    learn(detector, np.where(np.arange(1000) % 20 == 0, 1.0, -1.0))
    learn(detector, -np.ones(100), 1000)
    (alarm,) = detector.alarms()
    assert alarm == {
        "number": 0,
        "kind": "positives",
        "events": 1021,
        "clock": None,
        "before": 0.05,
        "after": 0.0,
        "field": None,
        "fields": 0,
        "state": "open",
        "reopened": 0,
        "changed": {"events": 1021, "clock": None},
    }


@pytest.mark.parametrize("share", [0.002, 0.05, 0.5])
def test_few_false_alarms_on_a_stationary_stream(share: float) -> None:
    detector = Drift()
    learn(detector, random_labels(share, 300_000, 6))
    assert alarms(detector) == []


def test_bursts_of_positives_raise_no_alarm() -> None:
    random = np.random.default_rng(7)
    y = np.concatenate([np.r_[-np.ones(random.geometric(1 / 3000)), np.ones(10)] for _ in range(100)])
    detector = Drift()
    learn(detector, y)
    assert alarms(detector) == []
    learn(detector, -np.ones(60_000), len(y))
    assert len(alarms(detector)) == 1


def test_a_feed_of_weekly_labels_that_breaks_is_found_after_two_weeks() -> None:
    detector, events = Drift(), 0
    for week in range(30):
        detector.serve(np.zeros(2000), events, unknown(2000))
        learn(detector, random_labels(0.01, 2000, week), events)
        events += 2000
    assert alarms(detector) == []
    detector.serve(np.zeros(2000), events, unknown(2000))
    assert alarms(detector) == []
    detector.serve(np.zeros(4000), events, unknown(4000))
    assert alarms(detector) == [events]


def test_without_positives_there_is_no_alarm() -> None:
    detector = Drift()
    learn(detector, -np.ones(10_000))
    assert detector.alarms() == []


def test_a_label_corrected_to_positive_is_an_arrival() -> None:
    config = Config.of({"algorithm": "cbr-diag", "features": {"kind": "dense", "dim": 1}})
    learner, other = Learner(config), Learner(config)
    y = random_labels(0.2, 1000, 8)
    for item in (learner, other):
        item.learn(np.zeros((1000, 1)), y)
        item.learn(np.zeros((30, 1)), -np.ones(30))
    learner.metrics.correct(1029, -1, 1, 0.0, 0.5, 0)
    for item in (learner, other):
        item.learn(np.zeros((45, 1)), -np.ones(45))
    assert learner.metrics.view().alarm_count == 0
    assert other.metrics.view().alarm_count == 1


def test_a_state_of_an_earlier_release_is_completed() -> None:
    config = Config.of({"algorithm": "cbr-diag", "features": {"kind": "dense", "dim": 1}})
    learner = Learner(config)
    learner.learn(np.zeros((100, 1)), random_labels(0.2, 100, 9))
    state = dict(learner.state())
    for name in ("gaps", "gap_totals", "gap_count", "silence", "silence_limits"):
        del state[f"metrics.drift_{name}"]
    state["metrics.drift_by_kind"] = np.array([1, 1])
    state["metrics.drift_alarms"] = np.ascontiguousarray(state["metrics.drift_alarms"][:, :5])
    restored = Learner.restored(config, state)
    assert restored.metrics.view().alarm_counts == {**dict.fromkeys(KINDS, 0), "auc": 1, "scores": 1}
    restored.learn(np.zeros((2000, 1)), random_labels(0.2, 2000, 10))
    restored.learn(np.zeros((200, 1)), -np.ones(200))
    assert restored.metrics.view().alarm_counts["positives"] == 1
