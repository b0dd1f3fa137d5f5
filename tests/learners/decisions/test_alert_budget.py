"""Budgets of alerts: never overspent, nearly used up, and spent on the right events; on simulated traffic."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.decisions import alert_budget, threshold
from learners.decisions.alert_budget import SLACK, SLOTS
from learners.decisions.threshold import Threshold
from learners.numerics.arrays import Counts, Vector
from tests.learners.algorithms import naive_fmeasure as naive_f

DAY = 86_400.0


class Traffic(NamedTuple):
    """Events in order of time."""

    days: Vector  # times, in days
    z: Vector  # evidence: a higher number makes a positive more likely
    positive: Vector  # bool
    p: Vector


def traffic(
    days: int = 12,
    events: int = 4000,
    *,
    share: float = 0.01,
    gap: float = 2.5,
    drift: float = 0.0,
    wave: float = 0.9,
    burst: float = 0.0,
    skip: tuple[int, ...] = (),
    start: float = 0.0,
    seed: int = 1,
) -> Traffic:
    """`events` a day on average with a daily `wave`, a `burst` of so many days' events, and scores that `drift`."""
    random = np.random.default_rng(seed)
    times = []
    for day in range(days):
        if day in skip:
            continue
        u = random.random(4 * events + 100)
        u = u[random.random(len(u)) < (1 + wave * np.sin(2 * np.pi * (u - 0.3))) / (1 + wave)]
        times.append(day + u[: random.poisson(events)])
        if day % 5 == 3:
            times.append(day + 0.2 + 0.01 * random.random(int(burst * events)))
    t = np.sort(np.concatenate(times))
    t = t[t >= start]
    positive = random.random(len(t)) < share
    z = random.normal(size=len(t)) + gap * positive
    odds = np.log(share / (1 - share)) + gap * z - gap**2 / 2 + drift * t
    return Traffic(t, z, positive, 1 / (1 + np.exp(-odds)))


def served(
    setting: Threshold, p: Vector, clocks: Vector, chunk: int = 500
) -> tuple[Vector, Counts, threshold.ThresholdState]:
    state = threshold.init(setting)
    thresholds, decisions = np.empty(len(p)), np.empty(len(p), dtype=np.int64)
    for i in range(0, len(p), chunk):
        cut = slice(i, i + chunk)
        costs = np.ones(len(p[cut]))
        threshold.serve(setting, state, p[cut], costs, clocks[cut], thresholds[cut], decisions[cut])
    assert list(threshold.problems(setting, state)) == []
    return thresholds, decisions, state


def per_day(days: Vector, decisions: Counts) -> Counts:
    result = np.bincount(days.astype(np.int64), decisions)
    return result[np.unique(days.astype(np.int64))].astype(np.int64)


STREAMS = {
    "flat": {"wave": 0.0},
    "diurnal": {},
    "rising scores": {"drift": 0.1},
    "falling scores": {"drift": -0.1},
    "bursts": {"burst": 0.5},
    "gaps": {"skip": (4, 5, 6, 9)},
    "opens late": {"start": 0.6},
    "opens at the end of the day": {"start": 0.97},
}


@pytest.mark.parametrize("name", STREAMS)
def test_a_daily_budget_is_kept_and_spent_on_nearly_the_best_events(name: str) -> None:
    stream = traffic(**STREAMS[name])  # type: ignore[arg-type]
    _, decisions, _ = served(Threshold("budget", alerts=40), stream.p, stream.days * DAY)
    spent = per_day(stream.days, decisions)
    assert spent.max() <= 40
    assert spent[1:].min() >= 0.8 * 40
    assert spent[2:].mean() >= 0.93 * 40
    called = decisions > 0
    best = np.argsort(-stream.z)[: called.sum()]  # of all days at once, by one threshold
    assert stream.positive[called].mean() > stream.positive[best].mean() - 0.06
    if name == "flat":  # neither silent nor spent on the first events
        first = stream.days[called & (stream.days < 1)]
        assert 0.6 * 40 <= len(first) <= 40
        assert np.mean(first < 0.25) < 0.6
        assert np.mean(first > 0.5) > 0.2


@pytest.mark.long
@pytest.mark.parametrize("by", [-4.6, -2.3, 2.3, 4.6])
@pytest.mark.parametrize(("events", "alerts", "wave"), [(9500, 100, 0.9), (4000, 40, 0.0), (2000, 200, 0.9)])
def test_a_budget_recovers_from_a_shift_of_all_probabilities(events: int, alerts: int, wave: float, by: float) -> None:
    """Odds that change tenfold or a hundredfold at midnight: a day later next to nothing of the budget is lost."""
    for seed in (1, 2):
        stream = traffic(8, events, wave=wave, seed=seed)
        p = 1 / (1 + np.exp(-np.log(stream.p / (1 - stream.p)) - by * (stream.days >= 5)))
        _, decisions, _ = served(Threshold("budget", alerts=alerts), p, stream.days * DAY)
        spent = per_day(stream.days, decisions)
        assert spent.max() <= alerts
        assert spent[5] >= 0.7 * alerts
        assert spent[6:].min() >= 0.9 * alerts
        called = (decisions > 0) & (stream.days >= 6)
        late = stream.z[stream.days >= 6]
        best = np.argsort(-late)[: called.sum()]
        assert stream.positive[called].mean() > stream.positive[stream.days >= 6][best].mean() - 0.08


@pytest.mark.parametrize("by", [-2.3, 2.3])
def test_a_share_of_all_events_recovers_from_a_shift_of_all_probabilities(by: float) -> None:
    stream = traffic(8, wave=0.0)
    p = 1 / (1 + np.exp(-np.log(stream.p / (1 - stream.p)) - by * (stream.days >= 5)))
    _, decisions, _ = served(Threshold("budget", rate=0.02), p, stream.days * DAY)
    behind = 0.02 * np.arange(1, len(p) + 1) - np.cumsum(decisions)
    assert behind.min() >= -SLACK - 1e-9
    assert per_day(stream.days, decisions)[6:].min() >= 0.75 * 80


def test_a_small_budget_on_low_traffic() -> None:
    stream = traffic(20, 300, share=0.05)
    _, decisions, _ = served(Threshold("budget", alerts=3), stream.p, stream.days * DAY)
    spent = per_day(stream.days, decisions)
    assert spent.max() <= 3
    assert spent[1:].mean() >= 0.9 * 3
    assert stream.positive[decisions > 0].mean() > 5 * stream.positive.mean()


@pytest.mark.parametrize("p", [0.0, 0.03, 0.5, 1.0])
def test_alerts_of_tied_probabilities_are_spread_over_the_day(p: float) -> None:
    stream = traffic(5, wave=0.0)
    _, decisions, _ = served(Threshold("budget", alerts=40), np.full(len(stream.p), p), stream.days * DAY)
    spent = per_day(stream.days, decisions)
    assert spent.max() <= 40
    assert spent[1:].min() >= 0.85 * 40
    hours = stream.days[(decisions > 0) & (stream.days >= 1)] % 1
    assert np.histogram(hours, 4, (0, 1))[0].max() <= 0.5 * len(hours)


def test_a_budget_larger_than_the_stream_flags_nearly_all_events() -> None:
    stream = traffic(4, 50)
    _, decisions, _ = served(Threshold("budget", alerts=1000), stream.p, stream.days * DAY)
    assert decisions[20:].mean() > 0.95


def test_without_times_the_budget_has_one_unit() -> None:
    stream = traffic(10)
    _, decisions, _ = served(Threshold("budget", alerts=40), stream.p, np.full(len(stream.p), np.nan))
    spent = np.cumsum(decisions)
    assert 5 <= spent[4000] <= 25  # of 4,000 events; ever more slowly
    assert spent[4000] < spent[-1] <= 40


times = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.0, 1.0, 30.0, 400.0, 3000.0, 9000.0]),
        st.sampled_from([0.0, 0.01, 0.3, 0.5, 0.9, 1.0]),
        st.booleans(),
    ),
    min_size=1,
    max_size=150,
)


@given(times, st.integers(1, 6), st.integers(0, 150), st.booleans())
@settings(max_examples=50)
def test_alerts_never_exceed_the_budget_of_a_unit(
    steps: list[tuple[float, float, bool]], alerts: int, cut: int, labelled: bool
) -> None:
    setting = Threshold("budget", alerts=alerts + 0.5, unit_seconds=3600)
    clocks = np.cumsum([step for step, _, _ in steps]) + 5000.0
    if cut % 3 == 0:
        clocks[: cut // 3] = np.nan
    p = np.array([step for _, step, _ in steps])
    y = np.array([1.0 if label else -1.0 for _, _, label in steps])
    n = len(p)
    state, thresholds, decisions = threshold.init(setting), np.empty(n), np.empty(n, dtype=np.int64)
    for part in (slice(0, cut), slice(cut, n)):
        if labelled and part.start == 0:
            now = np.ones(len(p[part]), dtype=np.bool_)
            threshold.learn(
                setting, state, p[part], y[part], now, p[part], clocks[part], thresholds[part], decisions[part]
            )
        else:
            threshold.serve(setting, state, p[part], p[part], clocks[part], thresholds[part], decisions[part])
    units = np.where(np.isnan(clocks), -1.0, np.floor(clocks / 3600))
    for unit in np.unique(units):
        assert decisions[units == unit].sum() <= alerts
    assert (decisions <= (p >= thresholds)).all()
    assert list(threshold.problems(setting, state)) == []


@given(times, st.sampled_from([0.001, 0.02, 0.3, 1.0]))
@settings(max_examples=40)
def test_alerts_never_exceed_the_share_of_all_events_plus_slack(
    steps: list[tuple[float, float, bool]], rate: float
) -> None:
    p = np.tile([step for _, step, _ in steps], 3)
    _, decisions, _ = served(Threshold("budget", rate=rate), p, np.full(len(p), np.nan))
    assert (np.cumsum(decisions) <= rate * np.arange(1, len(p) + 1) + SLACK + 1e-9).all()


@pytest.mark.long
@pytest.mark.parametrize("rate", [0.003, 0.05, 0.5, 1.0])
@pytest.mark.parametrize("digits", [15, 2])
def test_a_share_of_all_events_is_reached(rate: float, digits: int) -> None:
    stream = traffic(10, share=0.05, burst=0.5)
    _, decisions, _ = served(Threshold("budget", rate=rate), np.round(stream.p, digits), stream.days * DAY)
    behind = rate * np.arange(1, len(decisions) + 1) - np.cumsum(decisions)
    assert behind.min() >= -SLACK - 1e-9
    assert behind.max() <= 40
    called = decisions > 0
    best = np.argsort(-stream.z)[: called.sum()]
    assert stream.positive[called].mean() > stream.positive[best].mean() - 0.05


@pytest.mark.parametrize(
    ("values", "unit"),
    [
        ({"alerts": 7}, 86400.0),
        ({"alerts": 2.5, "memory": 200}, 7200.0),
        ({"alerts": 3, "memory": None}, 1100.0),
        ({"alerts": 60}, 172800.0),
        ({"rate": 0.05, "memory": 300}, 86400.0),
        ({"rate": 0.01}, 86400.0),
    ],
)
def test_matches_the_naive_version(values: dict[str, float], unit: float) -> None:
    stream = traffic(6, 150, skip=(3,), share=0.1, burst=0.3, start=0.3)
    clocks = 17 + stream.days * DAY / 2
    clocks[:40] = np.nan
    p = np.where(np.arange(len(clocks)) % 7 == 0, 0.3, stream.p)
    p[len(p) * 2 // 3 :] /= 20.0
    setting = Threshold.of({"objective": "budget", **values, **({} if "rate" in values else {"unit_seconds": unit})})
    thresholds, decisions, _ = served(setting, p, clocks, chunk=37)
    slow = naive_f.Budget(values.get("alerts", 0), values.get("rate", 0), unit, setting.memory)  # type: ignore[no-untyped-call]
    expected = np.array([slow.decide(*item) for item in zip(p, clocks, strict=True)])  # type: ignore[no-untyped-call]
    np.testing.assert_allclose(thresholds, expected[:, 0], rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(decisions, expected[:, 1])


def test_abnormal_clocks_keep_the_budget() -> None:
    stream = traffic(2, 200)
    for clocks in (np.full(400, -5e9), np.resize([1e308, -1e308, np.inf, -np.inf, np.nan, 0.0], 400)):
        _, decisions, state = served(Threshold("budget", alerts=5), stream.p[: len(clocks)], clocks[: len(stream.p)])
        assert decisions.sum() <= 5
        assert state.traffic[0].sum() > 0


def test_fully_decayed_traffic_counts_as_unknown() -> None:
    setting = Threshold("budget", alerts=5)
    state = threshold.init(setting)
    state.traffic[1, 3:7] = [0.0, 5e-324, 1e-310, 0.0]
    thresholds, decisions = np.empty(500), np.empty(500, dtype=np.int64)
    p = np.random.default_rng(0).random(500)
    threshold.serve(setting, state, p, p, 58 * DAY + 100.0 * np.arange(500), thresholds, decisions)
    assert 3 <= decisions.sum() <= 5
    assert list(threshold.problems(setting, state)) == []


def test_changing_the_time_unit_keeps_the_spent_budget() -> None:
    stream = traffic(3, 500)
    was = Threshold("budget", alerts=20)
    _, decisions, state = served(was, stream.p, stream.days * DAY)
    now = Threshold("budget", alerts=20, unit_seconds=3600)
    other = threshold.change_settings(was, now, state)
    assert other.spent.tolist()[:2] == state.spent.tolist()[:2]
    assert other.spent[1] == per_day(stream.days, decisions)[-1]
    assert (other.traffic[1] == -1).all()
    assert other.opening[0] == pytest.approx(state.clock[0] / 3600 % 1)
    assert list(threshold.problems(now, other)) == []
    again = threshold.change_settings(now, was, other)
    assert again.opening[0] == pytest.approx(state.clock[0] / DAY % 1)


def test_problems_in_an_account_are_detected() -> None:
    def wrong(**arrays: Vector | Counts) -> list[str]:
        return [name for name, _ in alert_budget.problems(alert_budget.init()._replace(**arrays))]

    assert wrong() == []
    assert wrong(spent=np.array([1, 2, 0])) == ["spent"]
    assert wrong(spent=np.array([1, 0, 2])) == ["spent"]
    assert wrong(clock=np.array([np.inf])) == ["clock"]
    assert wrong(opening=np.array([1.5])) == ["opening"]
    assert wrong(traffic=np.full((2, SLOTS), -1.0)) == ["traffic"]
    assert wrong(credit=np.array([50.0])) == ["credit"]
