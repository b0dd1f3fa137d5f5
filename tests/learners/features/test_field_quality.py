"""Alarms of fields that got worse: against plain Python, however a stream is cut, on changes and on steady streams."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners import InvalidInput, Learner, create, restore
from learners.features import field_quality
from learners.features.field_quality import BLOCK, QUALITY_KINDS, FieldAlarm

pytestmark = pytest.mark.integration

FEWEST = 24  # blocks before an alarm of any material rise
STEADY = (FEWEST + 1) * BLOCK + 100  # events before a change
Blocks = list[list[list[int]]]  # of each block, of each field, the counts of each kind


def alarms_of(blocks: Blocks) -> list[FieldAlarm]:
    """Let the detector judge blocks of fields that all had a value before the first block."""
    count = len(blocks[0])
    quality, totals = field_quality.initial_quality(count), np.zeros((count, len(QUALITY_KINDS)), dtype=np.int64)
    reports, has_values = field_quality.report_buffer(), np.ones(count, dtype=np.bool_)
    alarms: list[FieldAlarm] = []
    for i, block in enumerate([[[7] * len(QUALITY_KINDS)] * count, *blocks]):
        totals += block
        reported = field_quality.end_block(quality, totals, has_values, BLOCK * i, reports)
        alarms += field_quality.alarms_of(reports[:reported])
        assert list(field_quality.problems(quality)) == []
    return alarms


def expected_rises(amounts: list[int]) -> list[tuple[int, float, float, float]]:
    """Return (block, rise, before, after) of each alarm of one field and kind, from the definitions."""
    result = []
    shares: list[float] = []  # since the last alarm, without blocks that may be a change
    n, largest, last = 0, 0.0, 0.0  # blocks, and rises
    for i, amount in enumerate(amounts):
        mean = 0.0
        for k, share in enumerate(shares):
            mean += (share - mean) / min(k + 1, 8)
        p = (amount + 3 / 8) / (BLOCK + 3 / 4)
        rise = math.sin(math.asin(math.sqrt(p)) - math.asin(math.sqrt(mean))) if n >= 2 else 0.0
        limit = max(0.15, (2 + 44 / max(n - 2, 22)) * largest)
        alike = rise >= limit and last >= limit and abs(rise - last) <= 0.15 * last
        alarm = alike and rise >= 0.85 - 0.015 * (n - 2) if n < FEWEST else alike or rise >= max(0.85, limit)
        n += 1
        if alarm:
            result.append((i, rise, mean, amount / BLOCK))
            shares, n, largest, last = [], 0, 0.0, 0.0
        elif rise >= limit and not alike:
            last = rise
        else:
            shares.append(amount / BLOCK)
            largest, last = max(largest * (1 - 1 / 4096), last), max(rise, 0.0)
    return result


@given(st.integers(0, 2**32), st.sampled_from([1, 2, 3]), st.floats(0.0, 1.0))
@settings(max_examples=40, deadline=None)
def test_alarms_match_the_definition(seed: int, fields: int, share: float) -> None:
    random = np.random.default_rng(seed)
    shares = np.clip(
        share * random.choice([1.0, 1.0, 1.0, 1.1, 2.0, 0.0], size=(90, fields, len(QUALITY_KINDS))), 0.0, 1.0
    )
    blocks = random.binomial(BLOCK, shares)
    expected = []
    for k, kind in enumerate(QUALITY_KINDS):
        rises = [
            (i, field, *rest) for field in range(fields) for i, *rest in expected_rises(blocks[:, field, k].tolist())
        ]
        for i in {item[0] for item in rises}:
            worse = [item for item in rises if item[0] == i]
            _, field, _, before, after = max(worse, key=lambda item: item[2])
            expected.append((BLOCK * (i + 1), kind, field, len(worse), before, after))
    expected.sort(key=lambda item: (item[0], QUALITY_KINDS.index(item[1])))
    actual = alarms_of(blocks.tolist())
    assert [alarm[:2] + alarm[3:4] for alarm in actual] == [item[:2] + item[3:4] for item in expected]
    assert [alarm.after for alarm in actual] == [item[5] for item in expected]
    assert [alarm.before for alarm in actual] == pytest.approx([item[4] for item in expected], abs=1e-12)


def missing_alarms(amounts: list[int]) -> list[FieldAlarm]:
    """Return the alarms of missing values of one field."""
    return alarms_of([[[amount, 0, 0, 0]] for amount in amounts])


@pytest.mark.parametrize(
    ("before", "after"), [(0, 13), (5, 35), (50, 110), (256, 340), (256, 512), (0, 512), (480, 511)]
)
def test_a_rise_is_reported_once_and_a_fall_never(before: int, after: int) -> None:
    (alarm,) = missing_alarms([before] * 30 + [after] * 100)
    blocks = 31 if after - before == BLOCK else 32
    assert (alarm.event, alarm.kind, alarm.after) == (blocks * BLOCK, "missing", after / BLOCK)
    assert alarm.before == pytest.approx(before / BLOCK)
    assert missing_alarms([after] * 30 + [before] * 100) == []


def test_a_material_rise_is_reported_after_24_blocks() -> None:
    assert missing_alarms([0] * 22 + [60, 60]) == []
    assert len(missing_alarms([0] * 24 + [60, 60])) == 1
    assert missing_alarms([0] * 23 + [512]) == []
    assert len(missing_alarms([0] * 24 + [512])) == 1


@pytest.mark.parametrize(("blocks", "amount"), [(2, 380), (5, 350), (10, 290), (20, 180)])
def test_a_large_rise_that_stays_is_reported_from_2_blocks_on(blocks: int, amount: int) -> None:
    (alarm,) = missing_alarms([0] * blocks + [amount] * 3)
    assert (alarm.event, alarm.before) == ((blocks + 2) * BLOCK, 0.0)
    assert missing_alarms([0] * blocks + [amount, 0, amount, 0]) == []
    assert missing_alarms([0] * blocks + [amount // 2] * 20) == []


def test_a_change_within_a_block_of_a_young_field_is_found() -> None:
    (alarm,) = missing_alarms([0] * 4 + [200] + [500] * 4)
    assert (alarm.event, alarm.before) == (7 * BLOCK, 0.0)


@pytest.mark.parametrize("first", [7, 15, 100, 200])
def test_a_change_within_a_block_is_found_once_two_blocks_are_alike(first: int) -> None:
    (alarm,) = missing_alarms([0] * 30 + [first] + [220] * 20)
    assert alarm.event == (32 if first == 200 else 33) * BLOCK
    assert alarm.before == pytest.approx(0.0, abs=0.002)


@pytest.mark.parametrize("burst", [[100], [20, 80], [80, 20], [300], [40, 170, 30]])
def test_a_burst_raises_no_alarm(burst: list[int]) -> None:
    assert missing_alarms([0] * 30 + burst + [0] * 200 + burst + [0] * 20) == []


def test_bursts_raise_no_alarm_unless_they_grow() -> None:
    bursts = [0, 0, 0, 60] * 20
    assert missing_alarms(bursts) == []
    assert len(missing_alarms([*bursts, 0, 0, 0, 512])) == 1


@pytest.mark.parametrize("share", [0.001, 0.01, 0.03, 0.1, 0.5, 0.97])
def test_a_steady_stream_raises_no_alarm(share: float) -> None:
    random = np.random.default_rng(round(1000 * share))
    assert alarms_of(random.binomial(BLOCK, share, size=(1000, 20, len(QUALITY_KINDS))).tolist()) == []


# ---- In a learner ----------------------------------------------------------------------------------------------------

Event = dict[str, Any]
Change = Callable[[int], Event]
CHANGES: dict[str, tuple[Change, str, int]] = {
    "missing": (lambda i: {"fee": None, "city": None, "shop": f"s{i % 30}"}, "fee", 2),
    "new_categories": (lambda i: {"fee": 1.5, "city": "DE", "shop": f"new{i}"}, "shop", 1),
    "contradictions": (lambda i: {"fee": "free", "city": "DE", "shop": f"s{i % 30}"}, "fee", 1),
    "out_of_range": (lambda i: {"fee": 150.0 + 100 * (i % 7), "city": "DE", "shop": f"s{i % 30}"}, "fee", 1),
}


def usual(i: int) -> Event:
    return {"fee": 1.5 + i % 7, "city": "DE", "shop": f"s{i % 30}"}


def stream(kind: str, steady: int, changed: int) -> list[Event]:
    return [usual(i) for i in range(steady)] + [CHANGES[kind][0](i) for i in range(changed)]


def learner_after(events: list[Event], cuts: list[int] | None = None, algorithm: str = "cbr-diag") -> Learner:
    """Learn events in parts, and save and restore the learner after each part."""
    learner = create(algorithm, features={"kind": "named", "bits": 16}, seed=3)
    for start, stop in zip([0, *(cuts or [])], [*(cuts or []), len(events)], strict=True):
        if start < stop:
            labels, times = [int(i % 5 == 0) for i in range(start, stop)], [1e9 + i for i in range(start, stop)]
            learner.learn(events[start:stop], labels, times=times)
        learner = restore(learner.config.to_json(), learner.state())
    return learner


@pytest.mark.parametrize("kind", QUALITY_KINDS)
def test_each_kind_of_change_is_reported_with_its_field(kind: str) -> None:
    learner = learner_after(stream(kind, STEADY, 1500))
    (alarm,) = [alarm for alarm in learner.view().alarms() if alarm["kind"] in QUALITY_KINDS]
    _, field, fields = CHANGES[kind]
    assert (alarm["kind"], alarm["field"], alarm["fields"]) == (kind, field, fields)
    assert (alarm["events"], alarm["clock"]) == (26 * BLOCK, 1e9 + 26 * BLOCK - 1)
    assert (alarm["before"], alarm["after"]) == (pytest.approx(0.0, abs=0.01), pytest.approx(1 - 100 / BLOCK, abs=0.02))
    assert learner.view().figures.alarm_counts[kind] == 1


@pytest.mark.parametrize("cuts", [[12800, 13312], [13311], [13312, 13313], [1, 512, 513, 8000, 13000, 13311, 13312]])
def test_neither_batches_nor_restarts_are_visible(cuts: list[int]) -> None:
    events = stream("missing", STEADY, 1500)
    whole, parts = learner_after(events), learner_after(events, cuts)
    assert whole.digest() == parts.digest()
    assert whole.view().alarms() == parts.view().alarms()


def test_other_alarms_of_a_batch_keep_their_order() -> None:
    """A field that told the label tells nothing after the change, so the AUC falls, too."""
    events = stream("missing", STEADY, 3000)
    labels = np.random.default_rng(0).integers(0, 2, len(events))
    random = np.random.default_rng(1).random(len(events))
    for i, event in enumerate(events):
        event["signal"] = float(labels[i] if i < STEADY else random[i])
    digests, orders = set(), set()
    for step in (len(events), 700):
        learner = create("cbr-diag", features={"kind": "named", "bits": 16}, seed=3)
        for start in range(0, len(events), step):
            learner.learn(events[start : start + step], labels[start : start + step])
        digests.add(learner.digest())
        orders.add(tuple(alarm["kind"] for alarm in learner.view().alarms()))
        places = [alarm["events"] for alarm in learner.view().alarms()]
        assert places == sorted(places)
    assert len(digests) == len(orders) == 1
    assert {"auc", "missing"} <= set(*orders)


def test_a_field_is_judged_from_its_first_value_on() -> None:
    later = [{**usual(i), **({"late": 1} if i >= 3000 else {})} for i in range(40 * BLOCK)]
    assert learner_after([*later, *({**event, "late": None} for event in later[:3000])]).view().figures.alarm_counts[
        "missing"
    ] == 1  # fmt: skip
    assert learner_after(later).view().figures.alarm_counts["missing"] == 0


def test_events_that_a_fit_replaces_raise_no_alarm() -> None:
    events = stream("missing", STEADY, 1500)
    learner = create("ranksvm", features={"kind": "named", "bits": 16}, refit_window=20_000)
    learner.fit(events, [int(i % 5 == 0) for i in range(len(events))])
    learner.learn([usual(0)] * 3, [0, 1, 0])
    assert learner.view().alarms() == []


def test_a_state_of_an_earlier_release_is_completed() -> None:
    learner = learner_after(stream("missing", 5 * BLOCK, 0))
    state = dict(learner.state())
    for name in ("marks", "blocks", "shares", "rises", "ranges"):
        del state[f"columns.field_{name}"]
    state["columns.field_counts"] = state["columns.field_counts"][:, :8].copy()
    state["metrics.drift_by_kind"] = state["metrics.drift_by_kind"][:3].copy()
    state["metrics.drift_alarms"] = np.ascontiguousarray(state["metrics.drift_alarms"][:, :5])
    restored = restore(learner.config.to_json(), state)
    assert [field[:6] for field in restored.view().fields or []] == [field[:6] for field in learner.view().fields or []]
    events = stream("missing", 26 * BLOCK, BLOCK)
    restored.learn(events, [int(i % 5 == 0) for i in range(len(events))])
    (alarm,) = [alarm for alarm in restored.view().alarms() if alarm["kind"] == "missing"]
    assert (alarm["field"], alarm["events"]) == ("fee", 32 * BLOCK)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("columns.field_marks", lambda array: array - 10_000),
        ("columns.field_blocks", lambda array: array - 10_000),
        ("columns.field_shares", lambda array: array + 1.5),
        ("columns.field_rises", lambda array: array * np.nan),
        ("columns.field_rises", lambda array: array[:, :, :1]),
        ("metrics.drift_alarms", lambda array: array + 3.0 * (np.arange(array.shape[1]) == 5)),
    ],
)
def test_an_impossible_state_is_refused(name: str, change: Any) -> None:
    learner = learner_after(stream("missing", 25 * BLOCK, BLOCK))
    state = {**learner.state(), name: change(learner.state()[name])}
    with pytest.raises(InvalidInput) as caught:
        restore(learner.config.to_json(), state)
    assert [problem.pointer for problem in caught.value.problems] == [f"/{name}"]
