"""The life of alarms: against plain Python, by each detector, however a stream is cut, and in old states."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from learners import create, restore
from learners.learner import Learner
from learners.metrics.alarm_life import ALARMS, COLUMNS, KINDS, AlarmsView, judge, problems, store
from learners.metrics.drift import Drift
from tests.learners.features.test_field_quality import BLOCK, STEADY, stream
from tests.learners.metrics.naive_alarms import NaiveAlarm, judge_naively
from tests.learners.metrics.test_drift import CAPACITY, even, go_on, learn, placed, positives

Arrays = tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]


def empty() -> Arrays:
    counts = np.zeros(len(KINDS), dtype=np.int64)
    return np.zeros((ALARMS, COLUMNS)), counts, np.zeros(1, dtype=np.int64)


# eighths are exact, and so are their quotients here
STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 1), st.sampled_from([None, 0, 1, 2, 3, 4, 5, 6, 7, 8])), max_size=120
)


@given(STEPS, st.booleans())
@settings(max_examples=100, deadline=None)
def test_states_match_the_definition(steps: list[tuple[int, int, int | None]], rise: bool) -> None:
    arrays, naive = empty(), list[NaiveAlarm]()
    before, after = (0.0, 1.0) if rise else (1.0, 0.0)
    for number, (kind, mark, eighths) in enumerate(steps):
        if eighths is None:
            store(*arrays, kind, number, np.nan, before, after, 0, 0, mark)
            naive.append(NaiveAlarm(kind, mark, before, after))
            continue
        judge(*arrays, kind, 0, mark, eighths / 8, number, np.nan)
        judge_naively(
            [alarm for alarm in naive[-ALARMS:] if alarm.kind == kind],
            lambda alarm, mark=mark, value=eighths / 8: value if alarm.mark == mark else None,
        )
    listed = AlarmsView(*arrays).alarms()
    assert [(alarm["state"], alarm["reopened"]) for alarm in listed] == [
        (alarm.state, alarm.reopened) for alarm in naive[-ALARMS:]
    ]
    assert arrays[2][0] == sum(alarm.changes for alarm in naive)
    assert max(AlarmsView(*arrays).last_changes().values(), default=-1) == arrays[2][0] - 1  # the last is not lost
    assert list(problems(*arrays, 3)) == []


def test_an_alarm_without_a_change_is_resolved_and_stays_so() -> None:
    arrays = empty()
    store(*arrays, 0, 1, np.nan, 1.0, 1.0, 0, 0, 0.0)
    for value in (0.0, 1.0, 0.0):
        judge(*arrays, 0, 0, 0.0, value, 2, np.nan)
    assert [alarm["state"] for alarm in AlarmsView(*arrays).alarms()] == ["resolved"]


def test_changes_are_listed_from_an_ordinal_on() -> None:
    arrays = empty()
    for number in range(3):
        store(*arrays, number, number, np.nan, 1.0, 0.0, 0, 0, 0.0)
    judge(*arrays, 1, 0, 0.0, 1.0, 9, 5.0)
    view = AlarmsView(*arrays)
    assert [alarm["number"] for alarm in view.alarms(change=2)] == [1, 2]
    assert view.alarms(change=3)[0]["changed"] == {"events": 9, "clock": 5.0}
    assert view.alarms(change=4) == []


def states(detector: Drift) -> list[tuple[str, str, int]]:
    return [(alarm["kind"], alarm["state"], alarm["reopened"]) for alarm in detector.alarms()]


def test_an_alarm_of_the_auc_is_resolved_when_the_auc_is_back_and_reopened_while_the_detector_is_blind() -> None:
    random = np.random.default_rng(3)
    detector, start = Drift(), CAPACITY
    go_on(detector, even())
    outcomes = []
    for auc, n in ((0.9, 600), (0.75, 100), (0.99, 240), (0.55, 140)):
        go_on(detector, positives(placed(auc, n, random)), start)
        start += n
        outcomes.append([(alarm["state"], alarm["reopened"]) for alarm in detector.alarms()])
    assert outcomes[:3] == [[], [("open", 0)], [("resolved", 0)]]
    assert outcomes[3][0] == ("open", 1)


def test_an_auc_that_is_back_exactly_resolves_its_alarm_after_355_positives() -> None:
    detector = learn(np.full(600, 0.9), np.full(16, 0.5))
    (alarm,) = detector.alarms()
    start = CAPACITY + 616
    raised = alarm["events"]
    go_on(detector, positives(np.full(raised + 354 - start, 0.9)), start)
    assert states(detector) == [("auc", "open", 0)]
    go_on(detector, positives([0.9, 0.9]), raised + 354)
    assert states(detector) == [("auc", "resolved", 0)]


def test_a_fall_for_good_is_never_resolved() -> None:
    random = np.random.default_rng(4)
    detector = Drift()
    go_on(detector, even())
    go_on(detector, positives(placed(0.9, 600, random), placed(0.75, 8000, random)), CAPACITY)
    assert detector.alarms()[0]["state"] == "open"


def test_an_alarm_of_the_scores_is_resolved_by_the_next_block_that_is_as_before() -> None:
    detector, served = Drift(), 0

    def serve(scores: list[float]) -> None:
        nonlocal served
        detector.serve(np.array(scores), 7, np.arange(float(served), float(served + len(scores))))
        served += len(scores)

    serve([0.0] * 10_240)
    serve([1.0] * BLOCK)
    assert states(detector) == [("scores", "open", 0)]
    serve([1.0] * 4 * BLOCK)
    assert states(detector) == [("scores", "open", 0)]
    serve([0.0] * (BLOCK - 1))
    assert states(detector) == [("scores", "open", 0)]
    serve([0.0])
    assert states(detector) == [("scores", "resolved", 0)]
    assert detector.alarms()[0]["changed"] == {"events": 7, "clock": served - 1.0}
    serve([0.0, 1.0] * (BLOCK // 2))  # half-way moves nothing
    assert states(detector) == [("scores", "resolved", 0)]
    serve([1.0] * BLOCK)
    assert states(detector) == [("scores", "open", 1)]


def test_infinite_scores_have_a_life_too() -> None:
    detector = Drift()
    for value, n in ((-np.inf, 10_240), (np.inf, BLOCK), (-np.inf, BLOCK)):
        detector.serve(np.full(n, value), 0, np.full(n, np.nan))
    assert states(detector) == [("scores", "resolved", 0)]
    assert list(detector.problems(detector.state())) == []


def test_an_alarm_of_positive_labels_is_resolved_by_the_fifth_and_reopened_by_silence() -> None:
    detector, events = Drift(), 0

    def learn(labels: list[int]) -> None:
        nonlocal events
        detector.learn(np.zeros(len(labels)), 2.0 * np.array(labels) - 1.0, events, np.full(len(labels), np.nan))
        events += len(labels)

    learn([1, *[0] * 9] * 60)
    learn([0] * 400)
    assert states(detector) == [("positives", "open", 0)]
    learn([1, *[0] * 9] * 4)
    assert states(detector) == [("positives", "open", 0)]
    learn([1])
    assert states(detector) == [("positives", "resolved", 0)]
    learn([0] * 100)
    assert states(detector) == [("positives", "resolved", 0)]
    learn([0] * 200)
    assert states(detector) == [("positives", "open", 1)]
    detector.note_positive(events, 5.0)
    learn([1, *[0] * 2] * 60)
    assert states(detector) == [("positives", "resolved", 1)]


def named(events: list[dict[str, Any]], step: int) -> Learner:
    learner = create("cbr-diag", features={"kind": "named", "bits": 16}, seed=3)
    for start in range(0, len(events), step):
        part = range(start, min(start + step, len(events)))
        learner.learn([events[i] for i in part], [int(i % 5 == 0) for i in part], times=[1e9 + i for i in part])
        learner = restore(learner.config.to_json(), learner.state())
    return learner


def test_an_alarm_of_a_field_follows_the_field_however_the_stream_is_cut() -> None:
    away = stream("missing", STEADY, 1500)
    events = [*away, *away[:1500], *away[STEADY:]]
    learners = [
        named(events[:stop], step) for stop in (STEADY + 1500, STEADY + 3000, len(events)) for step in (450, 10**6)
    ]
    assert [learners[i].digest() for i in (0, 2, 4)] == [learners[i].digest() for i in (1, 3, 5)]
    outcomes = [
        [(alarm["field"], alarm["state"], alarm["reopened"]) for alarm in learner.view().alarms()]
        for learner in learners[::2]
    ]
    assert outcomes == [[("fee", "open", 0)], [("fee", "resolved", 0)], [("fee", "reopened", 1)]]
    assert [learner.view().open_alarms["missing"] for learner in learners[::2]] == [1, 0, 1]


def test_alarms_of_an_earlier_release_are_unknown_and_stay_so() -> None:
    events = stream("missing", STEADY, 1500)
    learner = named(events, 10**6)
    state = dict(learner.state())
    state["metrics.drift_alarms"] = np.ascontiguousarray(state["metrics.drift_alarms"][:, :7])
    for name in ("metrics.drift_changes", "metrics.drift_level", "life.journal"):
        del state[name]
    old = restore(learner.config.to_json(), state)
    old.learn(events[:1500], [int(i % 5 == 0) for i in range(1500)])
    old.learn(events[STEADY:], [int(i % 5 == 0) for i in range(1500)])
    (alarm,) = old.view().alarms()
    assert (alarm["state"], alarm["acknowledged"], alarm["changed"]["events"]) == ("unknown", None, alarm["events"])
    assert sum(old.view().open_alarms.values()) == 0
    assert old.metrics.alarm_changes == 1


@pytest.mark.parametrize(
    ("place", "value"),
    [((0, 7), np.nan), ((0, 8), 4.0), ((0, 9), -1.0), ((0, 10), 5.0), ((0, 11), -1.0), ((0, 12), np.inf)],
)
def test_an_impossible_life_is_refused(place: tuple[int, int], value: float) -> None:
    arrays = empty()
    store(*arrays, 0, 5, 1.0, 0.9, 0.7, 0, 0, 0.0)
    assert list(problems(*arrays, 3)) == []
    arrays[0][place] = value
    assert [name for name, _ in problems(*arrays, 3)] == ["alarms"]
