"""Drift alarms: against plain NumPy, however a stream is cut, and on falls, rises and stationary streams."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from scipy.stats import ks_2samp

from learners.metrics import drift
from learners.metrics.drift import Drift
from learners.numerics.order_statistics import values
from tests.learners.metrics.naive_alarms import NaiveAlarm, judge_naively

Vector = NDArray[np.float64]


CAPACITY = 8192  # negatives


class Labelled(NamedTuple):
    """A stream of labelled events: columns of (n,)."""

    scores: Vector
    y: Vector

    def part(self, start: int, stop: int) -> Labelled:
        return Labelled(self.scores[start:stop], self.y[start:stop])


def placed(auc: float, n: int, random: np.random.Generator) -> Vector:
    """Placements of n positives against very many negatives, both normal: their mean is the AUC."""
    return np.asarray(ndtr(random.normal(np.sqrt(2) * ndtri(auc), 1.0, n)))


def positives(*placements: Vector | list[float]) -> Labelled:
    """Positives whose scores are these numbers: their placements too, among negatives that are `even`."""
    scores = np.concatenate([np.asarray(part, dtype=float) for part in placements])
    return Labelled(scores, np.ones(len(scores)))


def even(n: int = CAPACITY) -> Labelled:
    """Negatives whose scores are evenly spread over (0, 1)."""
    return Labelled((np.arange(n) + 0.5) / n, -np.ones(n))


def go_on(detector: Drift, events: Labelled, start: int = 0) -> None:
    detector.learn(*events, start, np.full(len(events.y), np.nan))


def learn(*placements: Vector | list[float]) -> Drift:
    """Return a detector after a full ring of negatives and positives with these placements."""
    detector = Drift()
    go_on(detector, even())
    go_on(detector, positives(*placements), CAPACITY)
    return detector


def joined(*streams: Labelled) -> Labelled:
    return Labelled._make(np.concatenate(columns) for columns in zip(*streams, strict=True))


def batch_of_auc(auc: float, n: int, random: np.random.Generator, *, share: float = 0.25, digits: int = 9) -> Labelled:
    """n events with normal scores of this AUC, but for ties."""
    y = np.where(random.random(n) < share, 1.0, -1.0)
    return Labelled(np.round(random.normal(size=n) + np.sqrt(2) * ndtri(auc) * (y > 0), digits), y)


def fall(seed: int, n: int = 8000, at: int = 4000, *, digits: int = 9) -> Labelled:
    """Draw a stream whose AUC falls from .9 to .7 at an event."""
    random = np.random.default_rng(seed)
    return joined(batch_of_auc(0.9, at, random, digits=digits), batch_of_auc(0.7, n - at, random, digits=digits))


def naive_learn(events: Labelled) -> list[tuple[int, float, float]]:
    """(events, before, after) of each alarm, from the definitions."""
    result = []
    edges = np.arange(257) / 256
    n = len(events.y)
    negatives, seen = np.empty(n), 0
    placements, shares, count = np.empty(n), np.empty((n, 256)), 0  # of positives, and their shares of the bins
    s, excursion, began = 0.0, list[float](), 0
    for number, (score, y) in enumerate(zip(*events, strict=True), start=1):
        score = 0.0 if np.isnan(score) else score
        if y < 0:
            negatives[seen] = score
            seen += 1
        if y < 0 or seen < 100:
            continue
        ring = negatives[max(0, seen - CAPACITY) : seen]
        low, high = (ring < score).mean(), (ring <= score).mean()
        began = began if count else number - 1
        placements[count] = (low + high) / 2
        if low == high:
            shares[count] = np.eye(1, 256, min(int(low * 256), 255))
        else:
            shares[count] = np.diff(np.clip((edges - low) / (high - low), 0.0, 1.0))
        count += 1
        if count <= 128 + 256:
            continue
        ages = np.arange(count - 128)[::-1]
        weights = (1 - 1 / 2048) ** np.minimum(ages, max(len(ages) - 2048, 0))
        mass = weights @ shares[: count - 128]
        rank = shares[count - 1] @ (np.cumsum(mass) - mass / 2) / weights.sum()
        s = max(0.0, s + np.sqrt(12) * (0.5 - rank) - 0.2)
        excursion = [*excursion, placements[count - 1]] if s > 0 else []
        share = count / (number - began)
        if s >= max(15.0, 21.5 + 2.5 * np.log(2 * min(share, 0.5))):
            before = float(weights @ placements[: count - 128] / weights.sum())
            result.append((number, before, float(np.mean(excursion))))
            s, excursion, count = 0.0, [], 0
    return result


def same(a: Drift, b: Drift) -> bool:
    return all(
        x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()
        for x, y in zip(a.state().values(), b.state().values(), strict=True)
    )


@pytest.mark.long
def test_alarms_match_the_definition() -> None:
    random = np.random.default_rng(1)
    parts = [
        batch_of_auc(auc, n, random, digits=digits)  # 0: many scores are tied
        for auc, n, digits in ((0.9, 11_000, 9), (0.7, 2000, 0), (0.97, 3000, 0), (0.6, 1500, 9))
    ]
    wild = Labelled(np.array([np.nan, np.inf, -np.inf, -0.0, 1e308]), np.array([-1.0, -1.0, -1.0, -1.0, 1.0]))
    events = joined(wild, *parts, wild, batch_of_auc(0.9, 1000, random))
    first_drift = Drift()
    first_drift.learn(*events, 0, np.arange(len(events.y), dtype=float))
    assert first_drift.arrays.negatives[0] > CAPACITY
    expected = naive_learn(events)
    assert len(expected) == 2
    for alarm, (number, before, after) in zip(first_drift.alarms(), expected, strict=True):
        assert alarm["events"] == number
        assert alarm["clock"] == number - 1
        assert (alarm["before"], alarm["after"]) == pytest.approx((before, after), rel=1e-9)
    assert first_drift.count[:3].tolist() == [2, 0, 0]


def test_a_nan_score_counts_as_0() -> None:
    events = fall(2)
    events.scores[::3] = 0.0
    missing = Labelled(np.where(events.scores == 0.0, np.nan, events.scores), events.y)
    zero, nan = Drift(), Drift()
    go_on(zero, events)
    go_on(nan, missing)
    assert same(zero, nan)


@pytest.mark.long
@given(st.lists(st.integers(0, 15_000), max_size=6))
@settings(max_examples=10)
def test_batching_changes_nothing(cuts: list[int]) -> None:
    events = fall(3, 15_000, 9000, digits=2)
    scores = np.concatenate([np.random.default_rng(4).normal(size=11_000), np.full(4000, 2.5)])
    clocks = np.arange(15_000.0)
    full, parts = Drift(), Drift()
    full.learn(*events, 7, clocks)
    full.serve(scores, 99, clocks)
    assert full.arrays.negatives[0] > CAPACITY
    edges = [0, *sorted(cuts), 15_000]
    for start, stop in pairwise(edges):
        parts.learn(*events.part(start, stop), 7 + start, clocks[start:stop])
        copy = Drift()
        state = {name: array.copy() for name, array in parts.state().items()}
        assert list(copy.problems(state)) == []
        assert {name: array.shape for name, array in state.items()} == copy.shapes(state)
        copy.restore(state)
        parts = copy
    for start, stop in pairwise(edges):
        parts.serve(scores[start:stop], 99, clocks[start:stop])
    assert same(full, parts)
    assert full.alarms() == parts.alarms()
    assert {alarm["kind"] for alarm in full.alarms()} == {"auc", "scores"}


def test_events_may_arrive_one_at_a_time() -> None:
    events = fall(4, 1500, 1000)
    full, parts = Drift(), Drift()
    go_on(full, events)
    for i in range(1500):
        go_on(parts, events.part(i, i + 1), i)
        assert len(parts.arrays.scores) == parts.capacity(int(parts.arrays.negatives[0]))
    assert same(full, parts)


def test_the_ring_of_negatives_grows_by_powers_of_two() -> None:
    detector = Drift()
    assert [detector.capacity(n) for n in (0, 1, 64, 65, 128, 129, 4097, 8192, 8193, 10**6)] == [
        64, 64, 64, 128, 128, 256, 8192, 8192, 8192, 8192
    ]  # fmt: skip
    random, negatives = np.random.default_rng(5), 0
    for n in (1, 63, 1, 500, 5000, 2000, 9000):
        go_on(detector, Labelled(random.normal(size=n), -np.ones(n)))
        negatives += n
        assert detector.arrays.negatives[0] == negatives
        assert len(detector.arrays.scores) == detector.capacity(negatives)
        assert values(detector._negatives).tolist() == np.sort(detector.arrays.scores[:negatives]).tolist()


def test_negatives_in_any_order_are_inserted() -> None:
    for scores in (
        np.arange(40_000.0),
        -np.arange(40_000.0),
        np.resize([*np.arange(CAPACITY), *-np.arange(CAPACITY)], 40_000),
    ):
        detector = Drift()
        go_on(detector, Labelled(scores.astype(float), -np.ones(40_000)))
        assert values(detector._negatives).tolist() == np.sort(scores[-CAPACITY:]).tolist()


@pytest.mark.long
@pytest.mark.parametrize(("before", "after", "share"), [(0.95, 0.85, 1.0), (0.9, 0.8, 0.98), (0.85, 0.75, 0.93)])
def test_a_drop_of_ten_points_is_detected_within_150_positives(before: float, after: float, share: float) -> None:
    random = np.random.default_rng(11)
    result = 0
    for _ in range(200):
        alarms = learn(placed(before, 500, random), placed(after, 150, random)).alarms()
        result += bool(alarms) and alarms[0]["events"] > CAPACITY + 500
        if alarms:
            assert alarms[0]["clock"] is None
            assert alarms[0]["after"] < alarms[0]["before"]
    assert result >= 200 * share


@pytest.mark.long
@pytest.mark.parametrize("auc", [0.6, 0.9, 0.99])
def test_few_false_alarms_on_a_stationary_stream(auc: float) -> None:
    """Half an alarm in 50,000 positives is expected; six or more come by chance less than once in 10,000 times."""
    assert learn(placed(auc, 50_000, np.random.default_rng(5))).count[0] <= 5


@pytest.mark.long
@pytest.mark.parametrize("auc", [0.6, 0.75, 0.9])
def test_few_false_alarms_with_many_tied_scores(auc: float) -> None:
    """Six different scores or so: none of them may move all its positives to other ranks at once."""
    detector = Drift()
    go_on(detector, batch_of_auc(auc, 100_000, np.random.default_rng(6), share=0.5, digits=0))
    assert detector.count[0] <= 3


def test_a_rise_or_a_slow_change_raises_no_alarm() -> None:
    random = np.random.default_rng(6)
    rising = learn(placed(0.7, 1000, random), placed(0.9, 5000, random))
    slow = learn(*(placed(0.9 - 0.0005 * i, 500, random) for i in range(40)))
    assert not rising.count.any()
    assert not slow.count.any()


def test_positives_after_too_few_negatives_are_ignored() -> None:
    detector = Drift()
    go_on(detector, joined(even(99), positives(np.full(500, 0.9), np.full(500, 0.0))))
    assert detector.count[0] == 0
    assert not detector.arrays.placements.any()
    go_on(
        detector,
        joined(Labelled(np.array([0.5]), np.array([-1.0])), positives(np.full(500, 0.9), np.full(500, 0.0))),
        1099,
    )
    (alarm,) = detector.alarms()
    assert (alarm["before"], alarm["after"]) == pytest.approx((0.9, 0.0))
    assert 1600 < alarm["events"] < 1620


def test_an_unused_bin_decays_to_zero() -> None:
    detector = learn([])
    detector.arrays.reference[:] = 1e-30
    detector.arrays.placements[:] = 10_000, 0
    go_on(detector, positives(np.full(3, 0.5)))
    assert np.count_nonzero(detector.arrays.reference) == 1


@pytest.mark.parametrize("value", [0.0, 0.5, 1.0, np.nan])
def test_constant_scores_of_positives_raise_no_alarm(value: float) -> None:
    detector = learn(np.full(3000, value))
    assert detector.alarms() == []
    go_on(detector, positives([]), CAPACITY + 3000)
    go_on(detector, positives(np.full(500, 0.0)), CAPACITY + 3000)
    assert detector.count[0] == (value in (0.5, 1.0))


@pytest.mark.long
def test_all_scores_equal_raise_no_alarm() -> None:
    y = np.where(np.arange(20_000) % 2, 1.0, -1.0)
    for value in (0.0, np.inf, -np.inf, np.nan):
        detector = Drift()
        go_on(detector, Labelled(np.full(20_000, value), y))
        assert detector.alarms() == []
        assert detector.arrays.recent.tolist() == [[0.0, 1.0]] * 128


def naive_serve(scores: Vector) -> list[tuple[int, float]]:
    """Return (scores so far, distance) of each alarm; a return to what was before an alarm is none."""
    result, start, life = [], 0, list[NaiveAlarm]()
    quiet = list[float]()  # distances that were no alarms
    for stop in range(512, len(scores) + 1):
        if (stop - start) % 512:
            continue
        latest = scores[stop - 512 : stop]
        back = judge_naively(life, lambda alarm, latest=latest: float((latest > alarm.mark).mean()))
        if stop - start >= 2560:
            past = scores[stop - 2560 : stop - 512]
            test = ks_2samp(past, latest, method="asymp")
            d, mark = test.statistic, test.statistic_location
            recent = quiet[:-4][-32:]
            if len(recent) >= 12 and d >= max(0.15, 1.5 * max(recent)):
                start = stop
                if not back:
                    result.append((stop, float(d)))
                    life.append(NaiveAlarm(1, mark, float((past > mark).mean()), float((latest > mark).mean())))
            else:
                quiet.append(float(d))
    return result


@pytest.mark.parametrize("kind", ["normal", "ties", "infinite"])
def test_alarms_of_served_scores_match_the_definition(kind: str) -> None:
    random = np.random.default_rng(8)
    means = np.repeat([0.0, 0.1, 0.6, 0.6, 0.0, 3.0], [12_000, 3000, 3000, 2000, 5000, 3000])
    scores = random.normal(means)
    if kind == "ties":
        scores = np.round(2 * scores) / 2
    if kind == "infinite":
        scores[scores > 3.5] = np.inf
        scores[scores < -2.5] = -np.inf
    expected = naive_serve(scores)
    assert len(expected) >= 2
    detector = Drift()
    detector.serve(scores, 5, np.arange(1.0, len(scores) + 1))
    alarms = detector.alarms()
    assert [alarm["clock"] for alarm in alarms] == [clock for clock, _ in expected]
    assert [abs(alarm["after"] - alarm["before"]) for alarm in alarms] == pytest.approx([d for _, d in expected])
    assert {alarm["events"] for alarm in alarms} == {5}
    json.dumps(alarms, allow_nan=False)


def test_constant_or_stationary_served_scores_raise_no_alarm() -> None:
    random = np.random.default_rng(9)
    for scores in (random.normal(size=50_000), np.zeros(10_000), np.full(10_000, np.nan), np.full(10_000, np.inf)):
        detector = Drift()
        detector.serve(scores, 0, np.full(len(scores), np.nan))
        assert detector.alarms() == []
    slow = Drift()
    slow.serve(random.normal(np.linspace(0, 2, 50_000)), 0, np.full(50_000, np.nan))
    assert slow.alarms() == []


def test_regular_jumps_of_the_scores_raise_no_alarm_unless_they_grow() -> None:
    """Scores that jump by half their spread every 700 events from the start are how this learner is."""
    random = np.random.default_rng(13)
    jumps = np.repeat(np.arange(60) % 2 * 0.6, 700)
    detector = Drift()
    detector.serve(random.normal(jumps), 0, np.full(len(jumps), np.nan))
    assert detector.alarms() == []
    assert detector.arrays.distances.max() > 0.15
    detector.serve(random.normal(2.0, 1.0, 2048), 0, np.full(2048, np.nan))
    assert detector.count[:3].tolist() == [0, 1, 0]


def test_a_change_of_spread_is_detected() -> None:
    random = np.random.default_rng(10)
    detector = Drift()
    detector.serve(np.concatenate([random.normal(size=12_000), random.normal(0, 3, 1024)]), 0, np.full(13_024, np.nan))
    assert detector.count[:3].tolist() == [0, 1, 0]


def test_the_last_64_alarms_are_kept_and_views_persist() -> None:
    detector = Drift()
    scores = np.where(np.arange(70 * 2560) % 2560 < 2048, 0.0, 1.0)
    detector.serve(np.zeros(10_240), 3, np.full(10_240, np.nan))
    detector.serve(np.zeros(2560), 3, np.full(2560, np.nan))
    detector.serve(scores, 3, np.full(len(scores), np.nan))
    assert detector.count[:3].tolist() == [0, 70, 0]
    assert [alarm["number"] for alarm in detector.alarms()] == list(range(6, 70))
    assert [alarm["number"] for alarm in detector.alarms(68)] == [68, 69]
    assert detector.alarms(70) == []
    frozen = detector.view().frozen()
    detector.serve(scores[:2560], 3, np.full(2560, np.nan))
    assert [alarm["number"] for alarm in frozen.alarms(68)] == [68, 69]
    assert [alarm["number"] for alarm in detector.alarms(68)] == [68, 69, 70]
    assert list(detector.problems(detector.state())) == []


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("recent", ((0, 1), 1.5)),
        ("recent", ((0, 0), np.nan)),
        ("recent", (0, (0.6, 0.5))),
        ("reference", (0, -1.0)),
        ("reference", (0, np.inf)),
        ("sums", (0, np.nan)),
        ("sums", (1, drift._LIMIT)),
        ("sums", (2, -1.0)),
        ("placements", (0, -1)),
        ("placements", (1, 10_000)),
        ("placements", (0, 2**60)),
        ("began", (0, -1)),
        ("negatives", (0, -1)),
        ("negatives", (0, 2**60)),
        ("scores", (3, np.nan)),
        ("served", (3, np.nan)),
        ("serves", (0, -5)),
        ("distances", (0, 1.5)),
        ("distances", (0, np.nan)),
        ("blocks", (0, -1)),
        ("by_kind", (0, -1)),
        ("gaps", ((0, 1), -1.0)),
        ("gap_totals", (0, 1.0)),
        ("gap_count", (0, -2)),
        ("silence", (0, -1)),
        ("silence_limits", (1, 5.0)),
        ("alarms", ((0, 0), 6.0)),
        ("alarms", ((0, 0), 3.0)),
        ("alarms", ((0, 6), 1.0)),
        ("alarms", ((0, 5), -1.0)),
        ("alarms", ((0, 1), -1.0)),
        ("alarms", ((0, 2), np.inf)),
        ("alarms", ((0, 3), np.nan)),
    ],
)
def test_impossible_states_are_detected(name: str, change: tuple[Any, Any]) -> None:
    detector = Drift()
    go_on(detector, fall(12))
    assert detector.count[0] == 1
    state = {key: array.copy() for key, array in detector.state().items()}
    assert list(detector.problems(state)) == []
    place, value = change
    state[name][place] = value
    assert name in [result for result, _ in detector.problems(state)]


def test_an_unexpectedly_empty_reference_is_detected() -> None:
    detector = learn(placed(0.8, 300, np.random.default_rng(0)))
    state = {key: array.copy() for key, array in detector.state().items()}
    state["reference"][:] = 0.0
    assert [name for name, _ in detector.problems(state)] == ["reference"]


def test_each_kernel_has_one_compiled_signature() -> None:
    detector = Drift()
    detector.learn(np.array([0.5, np.nan]), np.array([1.0, -1.0]), 0, np.array([1.0, 2.0]))
    detector.serve(np.array([0.5]), 2, np.array([1.0]))
    for kernel in (drift._learn, drift._serve):
        assert len(getattr(kernel, "signatures", [1])) == 1


def test_a_restored_full_ring_accepts_further_events() -> None:
    random = np.random.default_rng(4)
    n = 9_000
    full, clocks = Drift(), np.full(n, np.nan)
    full.learn(random.normal(size=n), np.full(n, -1.0), 0, clocks)
    again = Drift()
    again.restore({name: array.copy() for name, array in full.state().items()})
    later = np.concatenate([random.normal(size=3_000), np.repeat(random.normal(size=300), 20)])
    for item in (full, again):
        item.learn(later, np.full(n, -1.0), n, clocks)
    for name, array in full.state().items():
        assert array.tobytes() == again.state()[name].tobytes()
    assert values(again._negatives).tolist() == np.sort(again.arrays.scores).tolist()


@pytest.mark.parametrize("share", [0.005, 0.3])
@pytest.mark.parametrize("digits", [9, 0])
def test_pending_negatives_give_the_same_placements(share: float, digits: int) -> None:
    random = np.random.default_rng(6)
    events = batch_of_auc(0.8, 14_000, random, share=share, digits=digits)
    events.scores[::40], events.scores[1::40], events.scores[2::40] = -0.0, np.inf, -np.inf
    single, together = Drift(), Drift()
    edges = [0, 30, 5000, 5100, 5124, 9000, 14_000]
    for start, stop in pairwise(edges):
        go_on(together, events.part(start, stop), start)
        for i in range(start, stop, 7):  # many calls until there are too many to wait
            go_on(single, events.part(i, min(i + 7, stop)), i)
        assert same(single, together)
        assert values(single._negatives).tobytes() == values(together._negatives).tobytes()
    assert single.arrays.placements[0] > 0
