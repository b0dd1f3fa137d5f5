"""Segments of a learner: as a slow count over the last events, whatever the batches, corrections and changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from learners import Config, InvalidInput, Learner, SettingsChange
from learners.metrics import share_interval
from learners.segments import SegmentRing, segments_of
from learners.segments.segment_ring import SLOTS

WINDOW = 150


def config(**more: Any) -> Config:
    figures = {"segments": ["country", "shop"]}
    features = {"kind": "named", "bits": 10, "categorical": ["shop"]}
    return Config.of({"algorithm": "lr", "features": features, "window": WINDOW, "figures": figures, **more})


def stream(n: int, values: int = 5) -> tuple[list[dict[str, Any]], list[int]]:
    """Make n events; `shop` has many values."""
    random = np.random.default_rng(n)
    countries = ["DE", "FR", "US", None, ["two", "values"]]
    events = [
        {"amount": float(amount), "country": countries[int(place)], "shop": int(shop)}
        for amount, place, shop in zip(
            random.normal(size=n), random.integers(0, 5, n), random.integers(0, values, n), strict=True
        )
    ]
    return events, [int(event["amount"] + random.normal() > 0.8) for event in events]


def figures(learner: Learner, field: str = "country", limit: int = 64, positives: int = 1) -> dict[str, Any]:
    return learner.review_segments(field).document(limit, positives)


@pytest.mark.parametrize("seconds", [None, 120.0])
def test_each_value_has_the_figures_of_its_events(seconds: float | None) -> None:
    learner = Learner(config(window_seconds=seconds))
    events, y = stream(400)
    ids = [f"e{i}" for i in range(400)]
    learner.learn(events, y, ids=ids, times=1e9 + np.arange(400.0))
    for i in range(300, 400, 7):  # corrections
        y[i] = 1 - y[i]
    learner.learn([events[i] for i in range(300, 400, 7)], [y[i] for i in range(300, 400, 7)], ids=ids[300::7])
    first = 400 - WINDOW if seconds is None else 280
    columns = learner.metrics.columns()
    document = figures(learner)
    assert document["all"]["events"] == 400 - first == len(columns.labels)
    assert {row["value"] for row in document["segments"]} == {"DE", "FR", "US"}
    sizes = [row["events"] for row in document["segments"]]
    assert sizes == sorted(sizes, reverse=True)
    for row, value in [
        *((row, row["value"]) for row in document["segments"]),
        (document["missing"], None),
        (document["other"], ["two", "values"]),
    ]:
        mask = np.array([events[i]["country"] == value for i in range(first, 400)])
        labels, alerts = np.array(y[first:])[mask] == 1, columns.decisions[mask] == 1
        scores = columns.scores[mask]
        assert row["events"] == mask.sum() > 0
        assert row["class_counts"] == {"negative": int((~labels).sum()), "positive": int(labels.sum())}
        assert row["label_rate"] == labels.mean()
        assert row["alert_rate"] == alerts.mean()
        assert row["alert_rate_interval"] == share_interval(int(alerts.sum()), len(alerts))
        if alerts.any():
            assert row["precision"] == labels[alerts].mean()
        pairs = [np.sign(p - n) / 2 + 0.5 for p in scores[labels] for n in scores[~labels]]
        assert row["auc"] == pytest.approx(np.mean(pairs))


def test_figures_need_positives_and_the_smaller_values_are_pooled() -> None:
    learner = Learner(config())
    learner.learn(*stream(300))
    every, few = figures(learner), figures(learner, limit=1, positives=10**6)
    assert few["segments"][0]["value"] == every["segments"][0]["value"]
    assert few["pooled_values"] == 2
    assert few["other"]["events"] == every["other"]["events"] + sum(row["events"] for row in every["segments"][1:])
    for name in ("auc", "precision", "label_rate"):
        assert (few["segments"][0][name], few["segments"][0][f"{name}_interval"]) == (None, None)
        assert f"/segments/0/{name}" in few["undefined"]
    assert few["segments"][0]["alert_rate"] == every["segments"][0]["alert_rate"]


def test_nothing_depends_on_the_batches_and_a_restored_learner_goes_on() -> None:
    events, y = stream(700, values=300)
    whole = Learner(config())
    whole.learn(events, y)
    pieces = Learner(config())
    start = 0
    for size in [1, 2, 64, 1, 199, 3, 151, 279]:
        pieces.learn(events[start : start + size], y[start : start + size])
        pieces = Learner.restored(pieces.config, pieces.state())
        start += size
    assert start == 700
    assert whole.digest() == pieces.digest()
    assert figures(whole, "shop") == figures(pieces, "shop")


def test_slots_are_bounded_and_free_again() -> None:
    ring = SegmentRing(100, ("shop",))
    features = config().features
    for start in range(0, 1000, 10):
        values = [{"shop": start + i} for i in range(9)] + [{"shop": "same"}]
        ring.learn(start, 10, segments_of(features, ("shop",), values))
        names = [name for name in ring.names[0] if name is not None]
        assert len(names) == len(set(names)) <= SLOTS
        assert "same" in names
    assert not list(SegmentRing.problems(ring.state()))
    codes = ring.window("shop", np.arange(900, 1000))
    texts = [ring.names[0][code] if code < SLOTS else "other" for code in codes.tolist()]
    expected = ["same" if i % 10 == 9 else str(i) for i in range(900, 1000)]
    assert all(value in (want, "other") for value, want in zip(texts, expected, strict=True))
    assert len(set(texts)) == SLOTS + 1


def test_fields_change_while_the_learner_lives() -> None:
    learner = Learner(config())
    events, y = stream(220)
    learner.learn(events[:100], y[:100])
    before = figures(learner)
    learner.apply(SettingsChange({"figures": {"segments": ["amount", "country"]}}))
    assert figures(learner) == before
    assert figures(learner, "amount")["unrecorded"] == 100
    learner.learn(events[100:], y[100:])
    assert figures(learner, "amount")["unrecorded"] == 30  # of the last 150
    restored = Learner.restored(learner.config, learner.state())
    assert restored.digest() == learner.digest()
    learner.apply(SettingsChange({"figures": {"segments": []}}))
    assert learner.state()["segments.codes"].size == learner.state()["segments.names"].size == 0


def test_a_state_of_an_earlier_release_has_no_values_yet() -> None:
    learner = Learner(config(figures={}))
    learner.learn(*stream(80))
    state = {name: array for name, array in learner.state().items() if not name.startswith("segments.")}
    assert Learner.restored(learner.config, state).digest() == learner.digest()
    declared = Learner.restored(learner.config.with_changes({"figures": {"segments": ["country"]}}), state)
    assert figures(declared)["unrecorded"] == 80


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("codes", lambda array: np.where(array < SLOTS, SLOTS + 1, array).astype(np.uint8)),
        ("codes", lambda array: np.zeros_like(array)),
        ("codes", lambda array: array[:, :1].copy()),
        ("codes", lambda array: array[:-1].copy()),
        ("names", lambda array: array[:-3].copy()),
        ("names", lambda array: np.frombuffer(bytearray(array.tobytes().replace(b"shop", b"country")), np.uint8)),
        ("names", lambda array: array[:0].copy()),
    ],
)
def test_states_that_no_events_lead_to_are_refused(name: str, damage: Any) -> None:
    learner = Learner(config())
    learner.learn(*stream(200))
    state = dict(learner.state())
    state[f"segments.{name}"] = damage(state[f"segments.{name}"])
    with pytest.raises(InvalidInput) as refused:
        Learner.restored(learner.config, state)
    assert {problem.pointer for problem in refused.value.problems} <= {"/segments.codes", "/segments.names"}
