"""Drift alarms: against plain NumPy, however a stream is cut, and on falls, rises and stationary streams."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from scipy.stats import ks_2samp

from learners import drift
from learners.drift import Drift

Vector = NDArray[np.float64]


def placed(auc: float, n: int, random: np.random.Generator) -> Vector:
    """Placements of n positives against very many negatives, both normal: their mean is the AUC."""
    return np.asarray(ndtr(random.normal(np.sqrt(2) * ndtri(auc), 1.0, n)))


def after_negatives(*placements: Vector | list[float]) -> Vector:
    """These placements behind as many negatives as are waited for."""
    return np.concatenate([np.full(100, np.nan), *placements])


def learn(*placements: Vector | list[float]) -> Drift:
    """What has met these placements behind enough negatives."""
    one, stream = Drift(), after_negatives(*placements)
    one.learn(stream, 0, np.full(len(stream), np.nan))
    return one


def fall(seed: int, n: int = 2000, at: int = 1000) -> Vector:
    """A stream of placements, NaN for the negatives: three of four."""
    random = np.random.default_rng(seed)
    v = np.concatenate([placed(0.9, at, random), placed(0.7, n - at, random)])
    out = np.full(4 * n, np.nan)
    out[3::4] = v
    return out


def naive_learn(placements: Vector) -> list[tuple[int, float, float]]:
    """(events, before, after) of each alarm, from the definitions."""
    found = []
    past: list[float] = []
    s, excursion, negatives = 0.0, list[float](), 0
    for number, v in enumerate(placements, start=1):
        negatives += bool(np.isnan(v))
        if np.isnan(v) or negatives < 100:
            continue
        past.append(float(np.clip(v, 0, 1)))
        older = np.array(past[:-128][-20_000:])
        if len(past) <= 128 + 256:
            continue
        ages = np.arange(len(older))[::-1]
        weights = (1 - 1 / 2048) ** np.minimum(ages, max(len(older) - 2048, 0))
        bins = np.minimum(np.floor(older * 256), 255)
        mine = min(np.floor(past[-1] * 256), 255)
        rank = (weights[bins < mine].sum() + weights[bins == mine].sum() / 2) / weights.sum()
        s = max(0.0, s + np.sqrt(12) * (0.5 - rank) - 0.2)
        excursion = [*excursion, past[-1]] if s > 0 else []
        if s >= 21.5:
            found.append((number, float(weights @ older / weights.sum()), float(np.mean(excursion))))
            past, s, excursion = [], 0.0, []
    return found


def same(a: Drift, b: Drift) -> bool:
    return all(
        x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()
        for x, y in zip(a.state().values(), b.state().values(), strict=True)
    )


def test_alarms_are_those_of_the_definition() -> None:
    random = np.random.default_rng(1)
    parts = [fall(0, 3500, 3000), placed(0.95, 700, random), placed(0.6, 700, random), np.array([-1.0, 2.0])]
    placements = np.concatenate(parts)
    found = Drift()
    found.learn(placements, 0, np.arange(len(placements), dtype=float))
    expected = naive_learn(placements)
    assert len(expected) == 2
    for alarm, (events, before, after) in zip(found.alarms(), expected, strict=True):
        assert alarm["events"] == events
        assert alarm["clock"] == events - 1
        assert (alarm["before"], alarm["after"]) == pytest.approx((before, after), rel=1e-9)
    assert found.count.tolist() == [2, 0]


@given(st.lists(st.integers(0, 8000), max_size=6))
@settings(max_examples=10, deadline=None, derandomize=True, database=None)
def test_however_a_stream_is_cut(cuts: list[int]) -> None:
    placements = fall(3)
    scores = np.concatenate([np.random.default_rng(4).normal(size=5000), np.full(3000, 2.5)])
    clocks = np.arange(8000.0)
    whole, parts = Drift(), Drift()
    whole.learn(placements, 7, clocks)
    whole.serve(scores, 99, clocks)
    edges = [0, *sorted(cuts), 8000]
    for start, stop in pairwise(edges):
        parts.learn(placements[start:stop], 7 + start, clocks[start:stop])
        copy = Drift()
        state = {name: array.copy() for name, array in parts.state().items()}
        assert list(copy.problems(state)) == []
        copy.restore(state)
        parts = copy
    for start, stop in pairwise(edges):
        parts.serve(scores[start:stop], 99, clocks[start:stop])
    assert same(whole, parts)
    assert whole.alarms() == parts.alarms()
    assert {alarm["kind"] for alarm in whole.alarms()} == {"auc", "scores"}


@pytest.mark.parametrize(("before", "after", "share"), [(0.95, 0.85, 1.0), (0.9, 0.8, 0.98), (0.85, 0.75, 0.93)])
def test_a_fall_of_ten_points_is_found_within_150_positives(before: float, after: float, share: float) -> None:
    random = np.random.default_rng(11)
    found = 0
    for _ in range(200):
        alarms = learn(placed(before, 500, random), placed(after, 150, random)).alarms()
        found += bool(alarms) and alarms[0]["events"] > 600
        if alarms:
            assert alarms[0]["clock"] is None
            assert alarms[0]["after"] < alarms[0]["before"]
    assert found >= 200 * share


@pytest.mark.parametrize("auc", [0.6, 0.9, 0.99])
def test_hardly_a_false_alarm_on_a_stationary_stream(auc: float) -> None:
    """Half an alarm in 50,000 positives is expected; six or more come by chance less than once in 10,000 times."""
    assert learn(placed(auc, 50_000, np.random.default_rng(5))).count[0] <= 5


def test_a_rise_and_a_slow_change_are_no_alarms() -> None:
    random = np.random.default_rng(6)
    rising = learn(placed(0.7, 1000, random), placed(0.9, 5000, random))
    slow = learn(*(placed(0.9 - 0.0005 * i, 500, random) for i in range(40)))
    assert rising.count.tolist() == slow.count.tolist() == [0, 0]


def test_placements_among_few_negatives_are_left_out() -> None:
    one = Drift()
    one.learn(np.concatenate([np.full(99, np.nan), np.full(500, 0.9), np.full(500, 0.0)]), 0, np.full(1099, np.nan))
    assert one.count[0] == 0
    assert not one.arrays.placements.any()
    one.learn(np.concatenate([[np.nan], np.full(500, 0.9), np.full(500, 0.0)]), 1099, np.full(1001, np.nan))
    (alarm,) = one.alarms()
    assert (alarm["before"], alarm["after"]) == pytest.approx((0.9, 0.0))
    assert 1600 < alarm["events"] < 1620


def test_a_bin_that_nothing_enters_fades_to_nothing() -> None:
    one = Drift()
    one.arrays.reference[:] = 1e-30
    one.arrays.placements[:] = 10_000, 0
    one.arrays.negatives[:] = 100
    one.learn(np.full(3, 0.5), 0, np.full(3, np.nan))
    assert np.count_nonzero(one.arrays.reference) == 1


@pytest.mark.parametrize("value", [0.0, 0.5, 1.0, np.nan])
def test_constant_placements(value: float) -> None:
    one = learn(np.full(3000, value))
    assert one.alarms() == []
    one.learn(np.empty(0), 3100, np.empty(0))
    one.learn(np.full(500, 0.0), 3100, np.full(500, np.nan))
    assert one.count[0] == (value in (0.5, 1.0))


def naive_serve(scores: Vector) -> list[tuple[int, float]]:
    """(scores met, distance) of each alarm."""
    found, start = [], 0
    for stop in range(512, len(scores) + 1):
        if stop - start >= 2560 and (stop - start) % 512 == 0:
            distance = ks_2samp(scores[stop - 2560 : stop - 512], scores[stop - 512 : stop], method="asymp").statistic
            if distance >= 0.15:
                found.append((stop, float(distance)))
                start = stop
    return found


@pytest.mark.parametrize("kind", ["normal", "ties", "infinite"])
def test_alarms_of_served_scores_are_those_of_the_definition(kind: str) -> None:
    random = np.random.default_rng(8)
    means = np.repeat([0.0, 0.1, 0.6, 0.6, 0.0, 3.0], [4000, 3000, 3000, 2000, 5000, 3000])
    scores = random.normal(means)
    if kind == "ties":
        scores = np.round(2 * scores) / 2
    if kind == "infinite":
        scores[scores > 3.5] = np.inf
        scores[scores < -2.5] = -np.inf
    expected = naive_serve(scores)
    assert len(expected) >= 3
    one = Drift()
    one.serve(scores, 5, np.arange(1.0, len(scores) + 1))
    alarms = one.alarms()
    assert [alarm["clock"] for alarm in alarms] == [met for met, _ in expected]
    assert [abs(alarm["after"] - alarm["before"]) for alarm in alarms] == pytest.approx([d for _, d in expected])
    assert {alarm["events"] for alarm in alarms} == {5}
    json.dumps(alarms, allow_nan=False)


def test_served_scores_that_stay_alike_are_no_alarm() -> None:
    random = np.random.default_rng(9)
    for scores in (random.normal(size=50_000), np.zeros(10_000), np.full(10_000, np.nan), np.full(10_000, np.inf)):
        one = Drift()
        one.serve(scores, 0, np.full(len(scores), np.nan))
        assert one.alarms() == []
    slow = Drift()
    slow.serve(random.normal(np.linspace(0, 2, 50_000)), 0, np.full(50_000, np.nan))
    assert slow.alarms() == []


def test_a_change_of_spread_is_found() -> None:
    random = np.random.default_rng(10)
    one = Drift()
    one.serve(np.concatenate([random.normal(size=5000), random.normal(0, 3, 1024)]), 0, np.full(6024, np.nan))
    assert one.count.tolist() == [0, 1]


def test_the_last_64_alarms_are_kept_and_a_view_can_last() -> None:
    one = Drift()
    scores = np.where(np.arange(70 * 2560) % 2560 < 2048, 0.0, 1.0)
    one.serve(scores, 3, np.full(len(scores), np.nan))
    assert one.count.tolist() == [0, 70]
    assert [alarm["number"] for alarm in one.alarms()] == list(range(6, 70))
    assert [alarm["number"] for alarm in one.alarms(68)] == [68, 69]
    assert one.alarms(70) == []
    frozen = one.view().frozen()
    one.serve(scores[:2560], 3, np.full(2560, np.nan))
    assert [alarm["number"] for alarm in frozen.alarms(68)] == [68, 69]
    assert [alarm["number"] for alarm in one.alarms(68)] == [68, 69, 70]
    assert list(one.problems(one.state())) == []


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("recent", (0, 1.5)),
        ("recent", (0, np.nan)),
        ("reference", (0, -1.0)),
        ("reference", (0, np.inf)),
        ("sums", (0, np.nan)),
        ("sums", (1, drift._LIMIT)),
        ("sums", (2, -1.0)),
        ("placements", (0, -1)),
        ("placements", (1, 10_000)),
        ("placements", (0, 2**60)),
        ("negatives", (0, 101)),
        ("served", (3, np.nan)),
        ("serves", (0, -5)),
        ("by_kind", (0, -1)),
        ("alarms", ((0, 0), 2.0)),
        ("alarms", ((0, 1), -1.0)),
        ("alarms", ((0, 2), np.inf)),
        ("alarms", ((0, 3), np.nan)),
    ],
)
def test_what_no_stream_leads_to_is_found(name: str, change: tuple[Any, Any]) -> None:
    one = Drift()
    one.learn(fall(12), 0, np.full(8000, np.nan))
    assert one.count[0] == 1
    state = {key: array.copy() for key, array in one.state().items()}
    assert list(one.problems(state)) == []
    place, value = change
    state[name][place] = value
    assert name in [found for found, _ in one.problems(state)]


def test_an_empty_reference_that_should_not_be_is_found() -> None:
    one = learn(placed(0.8, 300, np.random.default_rng(0)))
    state = {key: array.copy() for key, array in one.state().items()}
    state["reference"][:] = 0.0
    assert [name for name, _ in one.problems(state)] == ["reference"]


def test_one_compiled_signature_each() -> None:
    one = Drift()
    one.learn(np.array([0.5, np.nan]), 0, np.array([1.0, 2.0]))
    one.serve(np.array([0.5]), 2, np.array([1.0]))
    for kernel in (drift._learn, drift._serve):
        assert len(getattr(kernel, "signatures", [1])) == 1
