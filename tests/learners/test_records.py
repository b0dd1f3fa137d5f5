"""Records between labelled events, streams of all kinds of records however they are cut, and library calls."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners import Learner
from learners.numerics.hash_table import hashes_of
from learners.records import (
    BatchOutcome,
    LabelledBatch,
    Rollback,
    ServedBatch,
    SettingsChange,
    Status,
    join_outcomes,
    select_rows,
)
from tests.learners.late_labels import (
    SEVERAL,
    Vector,
    agree,
    bare,
    named,
    one_of,
    other_labels,
    outcome_of,
    pipelines_of,
    said_columns,
    said_of,
    same,
    state_but,
)
from tests.learners.pipelines import Pipeline, batch, bits, copied, events

pytestmark = pytest.mark.integration

APPLIED, DUPLICATE, RELABELLED, UNKNOWN = Status.APPLIED, Status.DUPLICATE, Status.RELABELLED, Status.UNKNOWN


def served(
    pipeline: Pipeline, ids: tuple[str, ...], times: Vector, *, ready: bool = True, seed: int = 5
) -> ServedBatch:
    """Return a record of served events, independent of a model."""
    scores, decisions, *rest = said_columns(pipeline, len(ids), seed)
    return ServedBatch(hashes_of(ids), times, scores, decisions, *rest, ready=ready)


def course(pipeline: Pipeline, learner: Learner, seed: int) -> list[Any]:
    """Draw records of all kinds: repeated ids, corrected labels, labels without features, assumed and served events."""
    random = np.random.default_rng(seed)
    records: list[Any] = []
    carried, y = events(pipeline, 90, seed)
    for start in range(0, 90, 30):
        n = 30
        time = 1e9 + 1000.0 * start
        ids = tuple(None if random.random() < 0.1 else f"e{i}" for i in random.integers(0, 40, n))
        records.append(served(pipeline, named(20, start // 3), time + np.arange(20.0), ready=start > 0, seed=start))
        kinds = np.array(
            [0 if event_id is None else kind for event_id, kind in zip(ids, random.integers(0, 5, n), strict=True)]
        )
        late = said_of(pipeline, n, start)
        has_id = (kinds == 1) | (kinds == 2)
        late = late._replace(
            served=has_id,
            assumed=(kinds == 2) & (y[start : start + n] < 0) & (not pipeline.traits.ordinal),
            bare=kinds == 3,
            labelled=np.where(has_id, time + 500.0 + np.arange(n), np.nan),
        )
        record = batch(
            learner,
            carried[start : start + n],
            y[start : start + n],
            ids=ids,
            weights=random.choice([0.0, 1.0, 2.5], n),
            times=np.where(random.random(n) < 0.3, np.nan, time + np.arange(n)),
            costs=random.choice([0.0, 1.0, 7.0], n),
            late=late,
        )
        records.append(replace(record, rows=select_rows(record.rows, ~late.bare)))
        if start == 30 and not pipeline.traits.ordinal:
            records.append(SettingsChange({"threshold": {"objective": "budget", "alerts": 5}, "figures": {"k": 9}}))
    return records


def run(learner: Learner, records: list[Any], cuts: Iterable[int] = ()) -> list[BatchOutcome]:
    """Apply the records, each batch in pieces, and fit where that is due after a batch."""
    out = []
    for record in records:
        if not isinstance(record, LabelledBatch):
            learner.apply(record)
            continue
        pieces = []
        for start, stop in pairwise([0, *sorted(cuts), len(record)]):
            pieces.append(outcome_of(learner, record.part(start, stop)))
        out.append(join_outcomes(pieces))
        if learner.fit_due:
            learner.apply(learner.fit_job().run())
    return out


@SEVERAL
def test_served_events_advance_the_clock_and_the_coverage(pipeline: Pipeline) -> None:
    learner = pipeline.learner()
    carried, y = events(pipeline, 10)
    before = state_but(learner)
    record = served(pipeline, named(10), 1e9 + np.arange(10.0)[::-1])
    assert learner.apply(record) is None
    assert learner.metrics.clock == 1e9 + 9.0
    view = learner.figures()["served"]
    assert (view if pipeline.traits.ordinal else view["events"]) == 10
    if not pipeline.traits.ordinal:
        assert view == {"events": 10, "labelled": 0, "alert_rate": pytest.approx(record.decisions.mean())}
    learner.apply(served(pipeline, named(5), np.full(5, np.nan)))  # once more: no new events, and no time
    view = learner.figures()["served"]
    assert (view if pipeline.traits.ordinal else view["events"]) == 10
    late = said_of(pipeline, 4)._replace(labelled=1e9 + np.array([30.0, 40.0, 50.0, 90.0]))
    learner.apply(batch(learner, carried[:4], y[:4], ids=named(4), times=np.full(4, 1e9), late=late))
    figures = learner.figures()
    assert figures["clock"] == 1e9 + 90.0
    for scope in ("window", "since_start"):
        assert figures[scope]["label_coverage"] == 0.4
        assert figures[scope]["label_delay_median"] == pytest.approx(45.0, rel=0.01)
    moved = {name for name, array in learner.state().items() if before[name] != array.tobytes()}
    assert "metrics.traffic_ids" in moved
    again = bare(other_labels(pipeline, y[:4]), named(4), learner, served=np.ones(4, dtype=np.bool_))
    learner.apply(again)  # corrected: they were labelled before
    assert learner.figures()["window"]["label_coverage"] == 0.4


def test_the_use_of_a_budget_is_that_of_the_present_unit() -> None:
    pipeline = one_of("cbr-diag")
    learner = pipeline.learner(threshold={"objective": "budget", "alerts": 4, "unit_seconds": 100.0})
    carried, y = events(pipeline, 42)
    assert learner.view().alert_budget == {"alerts": 0, "limit": 4.0, "resets": None}
    learner.apply(batch(learner, carried[:40], y[:40], times=np.full(40, 250.0)))
    outcome = outcome_of(learner, batch(learner, carried[40:41], y[40:41], times=np.full(1, 320.0)))
    assert learner.view().alert_budget == {"alerts": outcome.decisions.sum(), "limit": 4.0, "resets": 400.0}
    record = replace(served(pipeline, named(3), np.full(3, 399.0)), decisions=np.ones(3, dtype=np.int64))
    learner.apply(record)
    assert learner.view().alert_budget == {"alerts": outcome.decisions.sum() + 3, "limit": 4.0, "resets": 400.0}
    for other in ({"objective": "budget", "rate": 0.1}, {"objective": "f1"}):
        assert pipeline.learner(threshold=other).view().alert_budget is None
    assert one_of("npsvor").learner().view().alert_budget is None


def test_a_budget_counts_served_events_and_not_their_later_labels() -> None:
    pipeline = one_of("cbr-diag")
    budget = {"objective": "budget", "alerts": 4, "unit_seconds": 100.0}
    learner, plain = (pipeline.learner(threshold=budget) for _ in range(2))
    carried, y = events(pipeline, 40)
    ids, times = named(10), 1e9 + np.arange(10.0)
    for item in (learner, plain):
        item.apply(batch(item, carried[:20], y[:20], times=np.full(20, 1e9 - 500.0)))
        record = served(pipeline, ids, times)
        item.apply(replace(record, decisions=(np.arange(10) < 3).astype(np.int64)))
    assert learner.state()["threshold.spent"].tolist()[1] == 3
    late = said_of(pipeline, 10)._replace(labelled=times, decisions=(np.arange(10) < 3).astype(np.int64))
    learner.apply(batch(learner, carried[20:30], y[20:30], ids=ids, times=times, late=late))
    assert same(learner, plain, ("threshold.spent", "threshold.decided", "threshold.opening", "threshold.traffic"))
    outcome = outcome_of(learner, batch(learner, carried[30:], y[30:], times=np.full(10, 1e9 + 20.0)))
    assert outcome.decisions.sum() <= 1  # of four alerts three were given


@pipelines_of("cbr-diag", "ranksvm")
def test_predictions_before_readiness_count_as_traffic_only(pipeline: Pipeline) -> None:
    learner, ready = pipeline.learner(), pipeline.learner()
    record = served(pipeline, named(30), 1e9 + np.arange(30.0))
    learner.apply(replace(record, ready=False))
    ready.apply(record)
    fresh = pipeline.learner()
    assert same(learner, fresh, ("threshold.", "calibration.", "algorithm.", "metrics.drift_"))
    assert not same(ready, fresh, ("threshold.",))
    assert not same(ready, fresh, ("metrics.drift_",))
    assert same(learner, ready, ("metrics.traffic_",))
    # zeros before the first fit, scores after it: that is no change of the events
    for i in range(8):
        learner.apply(replace(served(pipeline, named(512), np.full(512, np.nan), seed=i), ready=i >= 5))
        learner.apply(
            replace(served(pipeline, named(512), np.full(512, np.nan), seed=i), scores=np.zeros(512), ready=False)
        )
    assert learner.view().figures.alarms() == []


def test_changed_settings_take_effect_and_keep_the_learnt_state() -> None:
    pipeline = one_of("cbr-diag")
    learner, plain = pipeline.learner(), pipeline.learner()
    carried, y = events(pipeline, 60)
    for item in (learner, plain):
        item.apply(batch(item, carried[:30], y[:30], ids=named(30)))
    parts = {
        "threshold": {"objective": "fixed", "value": 0.25},
        "figures": {"beta": 2.0, "k": 7, "max_fpr": 0.2},
        "late": {"label_ttl": 60.0, "max_events": 9},
    }
    before = copied(learner)
    assert learner.apply(SettingsChange(parts)) is None
    assert learner.threshold == 0.25
    assert (learner.config.figures.k, learner.config.late.max_events) == (7, 9)
    moved = [name for name, array in learner.state().items() if before[name].tobytes() != array.tobytes()]
    assert [name for name in moved if not name.startswith("threshold.")] == ["life.journal"]
    assert learner.figures()["window"]["precision_at_k"] is not None
    assert plain.figures()["window"]["precision_at_k"] is None
    assert learner.digest() != plain.digest()
    for item in (learner, plain):
        item.apply(batch(item, carried[30:], y[30:], ids=named(30, 30)))
    assert same(learner, plain, ("algorithm.", "calibration.", "scaling."))
    learner.apply(SettingsChange({"figures": plain.config.figures.to_json()}))
    window_metrics = {
        name: value for name, value in plain.figures()["window"].items() if name in ("auc", "partial_auc", "brier")
    }
    assert {name: learner.figures()["window"][name] for name in window_metrics} == window_metrics


def test_a_rollback_restores_the_settings_of_its_snapshot() -> None:
    pipeline = one_of("cbr-diag")
    learner = pipeline.learner()
    carried, y = events(pipeline, 60)
    learner.apply(batch(learner, carried[:30], y[:30], ids=named(30)))
    was = learner.config
    parts = {name: getattr(was, name).to_json() for name in ("threshold", "figures", "late")}
    state, digest = copied(learner), learner.digest()
    learner.apply(SettingsChange({"threshold": {"objective": "recall", "target": 0.9}, "figures": {"k": 3}}))
    changed = learner.config
    learner.apply(batch(learner, carried[30:], y[30:], ids=named(30, 30)))
    learner.apply(Rollback(1, state))
    assert (learner.config, learner.metrics.events) == (changed, int(state["metrics.window_span"][1]))
    assert learner.digest() != digest
    learner.apply(Rollback(1, state, parts))
    assert (learner.config, learner.digest()) == (was, digest)
    assert learner.figures()["window"]["precision_at_k"] is None


@SEVERAL
@given(cuts=st.lists(st.integers(0, 30), max_size=8), seed=st.integers(0, 3))
@settings(max_examples=10)
def test_batching_changes_neither_state_nor_outcome(pipeline: Pipeline, cuts: list[int], seed: int) -> None:
    settings_: dict[str, Any] = {"window_seconds": 50_000.0} if seed % 2 else {}
    full, parts, singles = (pipeline.learner(**settings_) for _ in range(3))
    records = course(pipeline, full, seed)
    result = run(full, records)
    statuses = {int(statu) for outcome in result for statu in outcome.status}
    assert statuses >= {APPLIED, DUPLICATE, RELABELLED, UNKNOWN}
    for other, where in ((parts, cuts), (singles, range(1, 30))):
        assert bits(run(other, records, where)) == bits(result)
        assert other.digest() == full.digest()
        assert other.figures() == full.figures()


@SEVERAL
def test_replays_from_the_start_and_from_a_snapshot_agree(pipeline: Pipeline) -> None:
    learner = pipeline.learner()
    records = course(pipeline, learner, 7)
    snapshots = []
    for record in records:
        snapshots.append((learner.config, copied(learner)))
        run(learner, [record])
    again = pipeline.learner()
    run(again, records)
    assert again.digest() == learner.digest()
    for position, (config, state) in enumerate(snapshots):
        other = Learner.restored(config, state)
        assert other.figures() is not None
        run(other, records[position:])
        assert other.digest() == learner.digest()


@SEVERAL
def test_library_calls_accept_ids_and_times(pipeline: Pipeline) -> None:
    learner, by_records = pipeline.learner(), pipeline.learner()
    carried, y = events(pipeline, 12)
    times = 1e9 + np.arange(12.0)
    first = learner.learn(carried, y, ids=named(12), times=times)
    by_records.apply(batch(by_records, carried, y, ids=named(12), times=times))
    assert learner.digest() == by_records.digest()
    assert learner.figures()["clock"] == times[-1]
    labels = np.append(other_labels(pipeline, y[:1]), y[1:2])
    again = learner.learn(carried[:2], labels, ids=named(2), times=[1e9 + 100, np.nan])
    assert again[0] == first[0]
    assert np.isnan(again[1])
    assert learner.figures()["clock"] == 1e9 + 100
    assert (learner.figures()["corrections"], learner.figures()["duplicates"]) == (1, 1)


def test_library_calls_read_costs_from_a_field() -> None:
    pipeline = one_of("cbr-diag", "table")
    threshold = {"objective": "cost", "false_positive": 3.0, "false_negative": 0.5, "field": "amount"}
    learner, by_records = (pipeline.learner(threshold=threshold) for _ in range(2))
    carried, y = events(pipeline, 60)
    for event in carried:
        event["amount"] = abs(event["amount"])
    learner.learn(carried, y, ids=named(60), times=1e9 + np.arange(60.0))
    costs = np.array([event["amount"] for event in carried])
    outcome = outcome_of(
        by_records, batch(by_records, carried, y, ids=named(60), times=1e9 + np.arange(60.0), costs=costs)
    )
    assert learner.digest() == by_records.digest()
    assert outcome.probabilities is not None
    assert outcome.thresholds is not None
    np.testing.assert_allclose(outcome.thresholds, 3.0 / (3.0 + 0.5 * costs), rtol=1e-12)
    assert outcome.decisions.tolist() == (outcome.probabilities >= outcome.thresholds).astype(int).tolist()
    assert 0 < outcome.decisions.sum() < 60
    agree(learner.figures()["window"], y[20:], outcome, slice(20, 60))
