"""Thresholds: against the naive ones, batching, and what they are good for."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.decisions import fofo_stages, threshold, threshold_kernels
from learners.decisions.threshold import CAUTIOUS, Threshold
from learners.settings import InvalidInput
from tests.learners.algorithms import naive
from tests.learners.algorithms import naive_fmeasure as naive_f
from tests.learners.decisions.labelled_streams import (
    Stream,
    as_in_the_papers,
    copied,
    events,
    learnt,
    mixed,
    run,
    served,
    undated,
)
from tests.learners.streams import same_bits

OBJECTIVES: list[dict[str, Any]] = [
    {"objective": "f1"},
    {"objective": "f1", "n1": 7, "kappa": 1.5},
    {"objective": "f1", "n1": 256, "kappa": 0.5},
    {"objective": "f1", "horizon": 400},
    {"objective": "f1", "horizon": 2000},
    {"objective": "f1-window", "memory": None},
    {"objective": "f1-window", "memory": 150},
    {"objective": "f1-ofo"},
    {"objective": "fixed", "value": 0.25},
    {"objective": "fbeta", "beta": 2.0},
    {"objective": "fbeta", "beta": 0.5, "memory": 150},
    {"objective": "jaccard", "memory": 400},
    {"objective": "fpr", "target": 0.05, "memory": 300},
    {"objective": "precision", "target": 0.6},
    {"objective": "recall", "target": 0.8, "memory": 200},
    {"objective": "optroc"},
    {"objective": "cost", "false_positive": 2.0, "false_negative": 7.0, "field": "amount"},
    {"objective": "budget", "alerts": 20},
    {"objective": "budget", "alerts": 5.5, "unit_seconds": 3600},
    {"objective": "budget", "rate": 0.1, "memory": 200},
]


@pytest.mark.parametrize("values", OBJECTIVES, ids=str)
def test_matches_the_naive_version(values: dict[str, Any]) -> None:
    p, y = events(900, seed=1)
    _, thresholds = run(as_in_the_papers(**values), p, y)
    if values["objective"] == "f1":
        expected = naive.fofo_threshold(p, y, **{name: v for name, v in values.items() if name != "objective"})
    elif values["objective"] == "f1-window":
        expected = naive.window_threshold(p, y, values["memory"])
    elif values["objective"] == "f1-ofo":
        expected = naive_f.ofo_threshold(p, y)
    elif values["objective"] == "cost":
        expected = np.full(len(p), 2 / 9)
    elif values["objective"] == "budget":
        slow = naive_f.Budget(values.get("alerts", 0), values.get("rate", 0), memory=values.get("memory", 30_000))  # type: ignore[no-untyped-call]
        expected = np.array([slow.decide(item, math.nan)[0] for item in p])  # type: ignore[no-untyped-call]
    elif values["objective"] != "fixed":
        aim = values.get("beta", values.get("target", 1.0))
        expected = naive_f.sketch_threshold(values["objective"], p, y, values.get("memory", 30_000), aim)  # type: ignore[no-untyped-call]
    else:
        expected = np.full(len(p), 0.25)
    np.testing.assert_allclose(thresholds, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("values", OBJECTIVES, ids=str)
@given(cuts=st.lists(st.integers(0, 300), max_size=8))
@settings(max_examples=15)
def test_batching_has_no_effect(values: dict[str, Any], cuts: list[int]) -> None:
    setting, stream = Threshold(**values), mixed(300, seed=2)
    for go in (learnt, served):
        full, parts = threshold.init(setting), threshold.init(setting)
        predictions = go(setting, full, stream)
        pieces = [go(setting, parts, stream.part(*cut)) for cut in pairwise([0, *sorted(cuts), 300])]
        assert same_bits(full, parts)
        for i in range(2):
            assert np.concatenate([piece[i] for piece in pieces]).tobytes() == predictions[i].tobytes()


@pytest.mark.parametrize("values", OBJECTIVES, ids=str)
@pytest.mark.parametrize("label", [-1.0, 1.0])
def test_certain_probabilities_and_single_class_streams(values: dict[str, Any], label: float) -> None:
    p = np.resize([0.0, 1.0, 5e-324, 0.5], 700)
    setting = Threshold(**values)
    state, thresholds = run(setting, p, np.full(700, label))
    assert ((thresholds >= 0) & (thresholds <= 1)).all()
    assert all(np.isfinite(part).all() for part in state._replace(clock=np.zeros(1)))
    assert threshold.current(setting, state) == state.live[0]


@pytest.mark.parametrize("values", OBJECTIVES, ids=str)
def test_preview_equals_the_next_threshold_and_changes_nothing(values: dict[str, Any]) -> None:
    setting, stream = Threshold(**values), mixed(200, seed=5)
    stream.clocks[:] = np.nan
    state = threshold.init(setting)
    for t in range(200):
        before = copied(state)
        looked = threshold.preview(setting, state, stream.p[t:], stream.costs[t:])
        assert same_bits(state, before)
        predictions = learnt(setting, state, stream.part(t, t + 1))
        assert (looked[0][0], looked[1][0]) == (predictions.thresholds[0], predictions.decisions[0])


@pytest.mark.parametrize("values", OBJECTIVES, ids=str)
def test_recording_remotely_served_events_gives_the_same_bits(values: dict[str, Any]) -> None:
    setting, stream = Threshold(**values), mixed(600, seed=6)
    remote, local = threshold.init(setting), threshold.init(setting)
    for start in range(0, 600, 100):
        first, later = stream.part(start, start + 40), stream.part(start + 40, start + 100)
        for state in (remote, local):
            learnt(setting, state, first)
        predictions = served(setting, remote, later)
        for column in (later.p, predictions.decisions, later.clocks):
            column.setflags(write=False)  # as a record of the log has them
        threshold.note(setting, local, later.p, predictions.decisions, later.clocks)
        assert same_bits(remote, local)


def test_late_labels_of_served_events_equal_immediate_labels() -> None:
    stream = mixed(500, seed=7)
    at_once = stream._replace(decided=np.ones(500, dtype=np.bool_))
    later = stream._replace(decided=np.zeros(500, dtype=np.bool_))
    setting = Threshold()
    first, other = threshold.init(setting), threshold.init(setting)
    learnt(setting, first, at_once)
    served(setting, other, stream)
    assert other.seen.tolist() == [0, 0]
    account = (first.bins[2].copy(), first.traffic.copy(), first.decided.copy())
    learnt(setting, other, later)
    for name in ("seen", "theta", "mean", "called", "bins"):
        assert getattr(first, name).tobytes() == getattr(other, name).tobytes()
    # the alerts differ: at once FOFO had moved on; the events do not
    assert [array.tobytes() for array in account] == [
        array.tobytes() for array in (other.bins[2], other.traffic, other.decided)
    ]


@pytest.mark.parametrize("values", OBJECTIVES, ids=str)
@pytest.mark.parametrize("to", [{"objective": "f1-window"}, {"objective": "budget", "alerts": 20}], ids=str)
def test_changing_the_objective_loses_no_state(values: dict[str, Any], to: dict[str, Any]) -> None:
    """What fades by no other memory and goes by no other unit is as if the objective had always been the other."""
    stream = mixed(640, seed=8)  # a multiple of 32: a search was just made
    was, now = Threshold(**values), Threshold(**to)
    state, always = threshold.init(was), threshold.init(now)
    learnt(was, state, stream)
    learnt(now, always, stream)
    before = copied(state)
    changed = threshold.change_settings(was, now, state)
    assert same_bits(state, before)
    assert list(threshold.problems(now, changed)) == []
    same = ["seen", "called", "clock"]
    same += ["theta", "mean", "block"] if not {"n1", "horizon"} & set(values) else []
    for name in same:
        assert getattr(changed, name).tobytes() == getattr(always, name).tobytes()
    if was.memory == now.memory:
        rows = 2 if "budget" in (was.objective, now.objective) else 3  # a budget's third row fades by its own account
        assert changed.bins[:rows].tobytes() == always.bins[:rows].tobytes()
    if to["objective"] == "f1-window" and was.memory == now.memory:
        assert changed.live[0] == always.live[0]
    assert same_bits(threshold.change_settings(now, now, changed), changed)
    learnt(now, changed, stream)
    assert list(threshold.problems(now, changed)) == []


def test_stages_restart_if_their_settings_change() -> None:
    p, y = events(3000, seed=9)
    was, now = Threshold(), Threshold(n1=64)
    state, _ = run(was, p, y)
    changed = threshold.change_settings(was, now, state)
    assert changed.live[0] == state.live[0] == changed.theta[0] == changed.centre[0]
    assert (changed.block.tolist(), changed.radius[0]) == ([64, *fofo_stages.stages(64), 0], 0.5)
    assert changed.bins.tobytes() == state.bins.tobytes()
    unchanged = threshold.change_settings(was, Threshold("fixed", value=0.3), state)
    assert unchanged.block.tobytes() == state.block.tobytes()
    assert unchanged.live[0] == 0.3
    assert threshold.change_settings(Threshold("fixed", value=0.3), was, unchanged).live[0] == state.live[0]


def test_a_restart_keeps_only_the_budget_account() -> None:
    setting = Threshold("budget", alerts=4)
    stream = mixed(400, seed=10)
    state = threshold.init(setting)
    served(setting, state, stream)
    again = threshold.restart(setting, state)
    for name in ("clock", "spent", "opening", "traffic", "credit"):
        assert getattr(again, name).tobytes() == getattr(state, name).tobytes()
    fresh = threshold.init(setting)
    for name in ("seen", "theta", "bins", "decided", "called", "block"):
        assert getattr(again, name).tobytes() == getattr(fresh, name).tobytes()
    spent = int(state.spent[1])
    same_day = np.full(100, np.nextafter(state.clock[0], np.inf))
    predictions = served(
        setting, again, Stream(stream.p[:100], stream.y[:100], stream.decided[:100], same_day, same_day)
    )
    assert spent + predictions.decisions.sum() <= 4


def test_the_budget_account_is_kept_for_every_objective() -> None:
    stream = mixed(400, seed=11)
    fixed, budget = Threshold("fixed", value=0.2), Threshold("budget", alerts=4)
    state = threshold.init(fixed)
    predictions = served(fixed, state, stream)
    today = stream.clocks // 86400 == stream.clocks[-1] // 86400
    assert state.spent[:2].tolist() == [today.sum(), predictions.decisions[today].sum()]
    assert state.spent[1] > 4
    now = threshold.change_settings(fixed, budget, state)
    later = Stream(np.ones(5), np.ones(5), np.ones(5, dtype=np.bool_), np.ones(5), np.full(5, stream.clocks[-1]))
    assert threshold.current(budget, now) == 1.0
    assert served(budget, now, later).decisions.tolist() == [0] * 5
    tomorrow = later._replace(clocks=np.full(5, stream.clocks[-1] + 86400))
    assert served(budget, now, tomorrow).decisions.sum() > 0


def test_cost_is_minimal_by_the_bayes_rule() -> None:
    setting = Threshold("cost", false_positive=3.0, false_negative=0.5, field="amount")
    state = threshold.init(setting)
    assert threshold.current(setting, state) == 3 / 3.5
    costs = np.array([1.0, 100.0, 0.0, -5.0, np.nan, np.inf, 1e300])
    thresholds, decisions = threshold.preview(setting, state, np.full(7, 0.5), costs)
    np.testing.assert_allclose(thresholds, [3 / 3.5, 3 / 53, 1, 1, 3 / 3.5, 0, 0], atol=1e-90)
    assert decisions.tolist() == [0, 1, 0, 0, 0, 1, 1]
    random = np.random.default_rng(0)
    p, amounts = random.random(4000), random.lognormal(1, 2, 4000)
    called = threshold.preview(setting, state, p, amounts)[1] > 0
    losses = np.where(called, 3.0 * (1 - p), 0.5 * amounts * p)  # expected, of each event
    assert (losses <= np.where(called, 0.5 * amounts * p, 3.0 * (1 - p)) + 1e-12).all()


@pytest.mark.parametrize("values", OBJECTIVES[:8], ids=str)
def test_starts_at_zero_and_approaches_the_optimum(values: dict[str, Any]) -> None:
    p, y = events(40_000, seed=3)
    state, thresholds = run(as_in_the_papers(**values | ({"horizon": 40_000} if "horizon" in values else {})), p, y)
    assert thresholds[0] == 0

    def f1(live: float) -> float:
        return float(2 * np.sum((p >= live) & (y > 0)) / (np.sum(p >= live) + np.sum(y > 0)))

    best = max(f1(live) for live in np.linspace(0.01, 0.99, 99))
    assert f1(float(state.live[0])) > best - (0.05 if values.get("kappa") == 0.5 else 0.01)


@pytest.mark.parametrize("memory", [None, 150, 2000, 30_000])
def test_a_young_sketch_decays_faster(memory: int | None) -> None:
    p, y = events(24_000, seed=19)
    state, _ = run(Threshold("f1-window", memory=memory), p, y)
    left = 0.0
    for seen in range(32, 24_001, 32):
        left = (left + 32) * (1 - 32 / min(memory, max(1000, seen / 8)) if memory else 1.0)
    assert state.bins[:2].sum() == pytest.approx(left, rel=1e-9)


def test_ofo_is_half_of_the_reached_f() -> None:
    p, y = events(2000, seed=4)
    state, thresholds = run(as_in_the_papers(objective="f1-ofo"), p, y)
    assert state.called.tolist() == [np.sum(p >= thresholds), np.sum(y[p >= thresholds] > 0)]
    assert state.live[0] == naive_f.f_measure(p >= thresholds, y) / 2


def test_stages_at_exact_powers_of_two() -> None:
    assert fofo_stages.stages(256) == (2, 128)  # log2(512 / 8) is exactly 6
    assert fofo_stages.stages(2) == (1, 2)
    assert fofo_stages.stages(4) == (1, 4)
    for n in [*range(2, 3000), 2**20, 2**30 - 1, 2**30, 2**50]:
        assert fofo_stages.stages(n) == naive.stages(n)
        assert fofo_stages._log2(n) == pytest.approx(math.log2(n), rel=1e-14)


@pytest.mark.parametrize(
    ("values", "pointer"),
    [
        ({"horizon": 1}, "/horizon"),
        ({"n1": 1}, "/n1"),
        ({"kappa": 0.0}, "/kappa"),
        ({"value": 1.1}, "/value"),
        ({"objective": "f2"}, "/objective"),
        ({"horizon": 2.5}, "/horizon"),
        ({"objective": "f1", "value": 0.4}, "/value"),
        ({"objective": "f1-window", "n1": 300}, "/n1"),
        ({"objective": "f1-ofo", "memory": 200}, "/memory"),
        ({"objective": "jaccard", "beta": 2}, "/beta"),
        ({"objective": "fpr"}, "/target"),
        ({"objective": "precision", "target": None}, "/target"),
        ({"objective": "recall", "target": 0}, "/target"),
        ({"objective": "recall", "target": 1.1}, "/target"),
        ({"objective": "f1", "target": 0.5}, "/target"),
        ({"objective": "cost", "false_positive": 0}, "/false_positive"),
        ({"objective": "f1", "false_negative": 2}, "/false_negative"),
        ({"objective": "fixed", "field": "amount"}, "/field"),
        ({"objective": "budget"}, "/alerts"),
        ({"objective": "budget", "alerts": 5, "rate": 0.1}, "/alerts"),
        ({"objective": "budget", "alerts": 0.5}, "/alerts"),
        ({"objective": "budget", "rate": 0.1, "unit_seconds": 60}, "/unit_seconds"),
        ({"objective": "budget", "rate": 2}, "/rate"),
        ({"objective": "cost", "alerts": 5}, "/alerts"),
        ({"objective": "optroc", "unit_seconds": 60}, "/unit_seconds"),
    ],
    ids=str,
)
def test_invalid_settings_are_refused(values: dict[str, Any], pointer: str) -> None:
    with pytest.raises(InvalidInput, match=pointer.removeprefix("/")) as caught:
        Threshold.of(values)
    assert [problem.pointer for problem in caught.value.problems] == [pointer]


def test_settings_of_other_objectives_are_reported_with_their_objectives() -> None:
    with pytest.raises(InvalidInput) as caught:
        Threshold.of({"objective": "fixed", "memory": 500, "target": 0.1})
    assert [(problem.pointer, problem.code) for problem in caught.value.problems] == [
        ("/memory", "conflict"),
        ("/target", "conflict"),
    ]
    objectives = {name: entry.get("x-applies-to") for name, entry in Threshold.schema()["properties"].items()}
    assert objectives.pop("objective") is None
    assert objectives["target"] == {"objective": ["fpr", "precision", "recall"]}
    assert all(objectives.values())
    for values in OBJECTIVES:
        assert Threshold.of(Threshold(**values).to_json()) == Threshold(**values)


def test_one_compiled_signature_serves_every_objective() -> None:
    stream = mixed(40, seed=13)
    for values in OBJECTIVES:
        setting = Threshold(**values)
        state = threshold.init(setting)
        learnt(setting, state, stream)
        predictions = served(setting, state, stream)
        threshold.note(setting, state, stream.p, predictions.decisions, stream.clocks)
        threshold.preview(setting, state, stream.p, stream.costs)
        threshold.change_settings(setting, setting, state)
    kernels = threshold_kernels
    for item in (kernels.learn, kernels.decide, kernels.preview, kernels.refresh):
        assert len(getattr(item, "signatures", [None])) == 1  # plain Python has none


def test_problems_in_a_state_are_detected() -> None:
    setting = Threshold("budget", alerts=5)

    def wrong(**arrays: Any) -> list[str]:
        return [name for name, _ in threshold.problems(setting, threshold.init(setting)._replace(**arrays))]

    assert wrong() == []
    assert wrong(live=np.array([np.nan])) == ["live"]
    assert wrong(mean=np.array([0.6])) == ["mean"]
    assert wrong(called=np.array([3, 1])) == ["called"]
    assert wrong(bins=np.full((3, 256), -1.0)) == ["bins"]
    assert wrong(decided=np.array([-1])) == ["decided"]
    assert wrong(seen=np.array([5, 3]), labels=np.array([5, 2])) == ["seen"]
    assert wrong(aim=np.array([1.5])) == ["aim"]
    assert wrong(spent=np.array([1, 2, 0])) == ["spent"]
    assert wrong(silence=np.array([-1.0, 0.0, 0.0, 0.0, 0.0])) == ["silence"]
    assert wrong(silence=np.array([5.0, 3.0, 0.5, 0.5, 1.5])) == ["silence"]


# ---- Positive labels that stop arriving ------------------------------------------------------------------------------

TAUGHT: list[dict[str, Any]] = [
    {"objective": "f1"},
    {"objective": "f1-window"},
    {"objective": "f1-ofo"},
    {"objective": "fbeta", "beta": 2.0},
    {"objective": "jaccard"},
    {"objective": "precision", "target": 0.3},
    {"objective": "recall", "target": 0.8},
]


def falling(n: int, seed: int) -> Stream:
    """Negatives alone, whose log-odds fall by 4 as those of a calibration do that learns from them."""
    p, _ = events(n, seed, share=0.05)
    p = np.clip(p, 1e-9, 1 - 1e-9)
    return undated(1 / (1 + np.exp(-(np.log(p / (1 - p)) - np.linspace(0.0, 4.0, n)))), np.full(n, -1.0))


@pytest.mark.parametrize("values", TAUGHT, ids=str)
def test_the_share_of_alerts_stays_while_no_positive_labels_arrive(values: dict[str, Any]) -> None:
    setting, state = Threshold(**values), threshold.init(Threshold(**values))
    learnt(setting, state, undated(*events(20_000, 1, share=0.05)))
    before = state.silence[2]  # of the last events: precision calls six times as many at times
    assert state.silence[4] == 0.0
    silent = learnt(setting, state, falling(20_000, 2)).decisions.reshape(-1, 2500).mean(axis=1)
    assert state.silence[4] > 0.0
    assert list(threshold.problems(setting, state)) == []
    assert (silent > before / 2).all()
    assert (silent < before * 2).all()
    learnt(setting, state, undated(*events(2000, 3, share=0.05)))
    assert state.silence[4] == 0.0
    learnt_again, unaware = copied(state), copied(state)._replace(silence=np.zeros(5))
    stream = undated(*events(3000, 4, share=0.05))
    assert (
        learnt(setting, learnt_again, stream).thresholds.tobytes()
        == learnt(setting, unaware, stream).thresholds.tobytes()
    )


@pytest.mark.parametrize(
    "values", [{"objective": "fpr", "target": 0.05}, {"objective": "fixed", "value": 0.2}], ids=str
)
def test_objectives_without_positives_go_on_in_a_silence(values: dict[str, Any]) -> None:
    setting, state = Threshold(**values), threshold.init(Threshold(**values))
    learnt(setting, state, undated(*events(20_000, 1, share=0.05)))
    unaware, stream = copied(state), falling(2000, 2)
    unaware.silence[0] = -1e6  # a silence that is not noticed
    assert learnt(setting, state, stream).thresholds.tobytes() == learnt(setting, unaware, stream).thresholds.tobytes()
    assert state.silence[4] > 0.0


def test_positive_labels_in_batches_are_no_silence() -> None:
    setting, state = Threshold(), threshold.init(Threshold())
    p, _ = events(2000, 1, share=0.05)
    for i in range(20):
        learnt(setting, state, undated(p, np.full(2000, -1.0)))
        assert state.silence[4] == 0.0, i
        learnt(setting, state, undated(p[:100], np.ones(100)))
    assert state.silence[1] == 2001


def test_a_pause_between_bursts_of_positives_is_no_silence() -> None:
    """A class that is absent for a while has few alerts; the share of a burst would be much too large."""
    setting, state = Threshold("f1-window"), threshold.init(Threshold("f1-window"))
    p, y = events(4000, 1, share=0.3)
    negatives = undated(p[y < 0], y[y < 0])
    learnt(setting, state, undated(p, y))
    learnt(setting, state, Stream._make(column[:500] for column in negatives))
    learnt(setting, state, undated(p, y))
    longest = int(state.silence[1])
    assert 500 < longest < 550
    burst = state.silence[2]
    pause = learnt(setting, state, Stream._make(column[: 5 * longest // 2] for column in negatives))
    assert state.silence[4] == 0.0
    assert pause.decisions.mean() < burst / 2
    learnt(setting, state, Stream._make(column[:longest] for column in negatives))
    assert state.silence[4] > 0.0


def test_a_change_of_objective_in_a_silence_keeps_to_the_share() -> None:
    was, now, fixed = Threshold(), Threshold("recall", target=0.8), Threshold("fixed", value=0.2)
    state = threshold.init(was)
    learnt(was, state, undated(*events(20_000, 1, share=0.05)))
    learnt(was, state, falling(2000, 2))
    changed = threshold.change_settings(was, now, state)
    assert changed.live[0] == threshold.change_settings(was, was, state).live[0]
    assert threshold.change_settings(was, fixed, state).live[0] == 0.2


def test_without_alerts_before_a_silence_there_is_no_share_to_keep() -> None:
    rare, setting = Threshold("fixed", value=1.0), Threshold("precision", target=0.3)
    state = threshold.init(rare)
    learnt(rare, state, undated(*events(20_000, 1, share=0.05)))
    state = threshold.change_settings(rare, setting, state)
    unaware, stream = copied(state), falling(2000, 2)
    unaware.silence[0] = -1e6
    assert learnt(setting, state, stream).thresholds.tobytes() == learnt(setting, unaware, stream).thresholds.tobytes()


def test_a_share_of_alerts_is_estimated_only_in_states_that_have_none() -> None:
    setting, state = Threshold("fixed", value=1.0), threshold.init(Threshold("fixed", value=1.0))
    for stream in (undated(*events(1000, 1)), undated(*events(1000, 2))):
        served(setting, state, stream)
        before = copied(state)
        threshold.resume(state)
        assert same_bits(before, state)
        learnt(setting, state, stream)
    alerts, state = Threshold("f1-window"), threshold.init(Threshold("f1-window"))
    stream = undated(*events(20_000, 1, share=0.05))
    learnt(alerts, state, stream)
    state.silence[:] = 0.0
    threshold.resume(state)
    assert state.silence[2] == state.silence[3] == pytest.approx((stream.p >= state.live[0]).mean(), rel=0.1)


# ---- Few positive labels ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.002, 0.02, 0.3])
@pytest.mark.parametrize("objective", CAUTIOUS)
@pytest.mark.parametrize("late", [False, True], ids=["labels at once", "labels later"])
def test_few_events_are_alerts_until_positive_labels_are_known(objective: str, share: float, late: bool) -> None:
    target = {"target": 0.5} if objective in ("precision", "recall") else {}
    setting = Threshold(objective, **target)  # type: ignore[arg-type]
    n = int(14 / share)
    stream, later = undated(*events(n, 1, share=share)), undated(*events(n, 2, share=share))
    assert np.sum(stream.y > 0) < 20
    state = threshold.init(setting)
    alerts = learnt(setting, state, stream).decisions
    if late:
        alerts = np.concatenate([alerts, served(setting, state, later).decisions])
    assert threshold.paced(setting, state)
    limits = np.maximum(0.05, 10 * 20 / (np.arange(len(alerts)) + 200))
    assert np.all(np.cumsum(alerts) <= np.cumsum(limits) + 9)
    learnt(setting, state, undated(*events(int(100 / share), 3, share=share)))
    assert not threshold.paced(setting, state)
    before, other = copied(state), as_in_the_papers(objective=objective, **target)
    assert same_bits(learnt(setting, state, later), learnt(other, before, later))  # type: ignore[arg-type]


def test_positive_labels_that_come_first_raise_no_limit() -> None:
    setting = Threshold("f1-window")
    state = threshold.init(setting)
    p, y = events(4000, 1, share=0.02)
    served(setting, state, undated(p, y))
    late = undated(p[y > 0], y[y > 0])._replace(decided=np.zeros(np.sum(y > 0), dtype=np.bool_))
    learnt(setting, state, late.part(0, 19))
    assert served(setting, state, undated(*events(4000, 2, share=0.02))).decisions.mean() < 0.06


def test_labels_stay_known_when_the_model_is_fitted_anew() -> None:
    setting = Threshold("f1-window")
    state = threshold.init(setting)
    learnt(setting, state, undated(*events(2000, 1)))
    fitted = threshold.restart(setting, state)
    assert (fitted.seen.sum(), fitted.labels.sum()) == (0, 2000)
    assert list(threshold.problems(setting, fitted)) == []
    assert not threshold.paced(setting, fitted)
