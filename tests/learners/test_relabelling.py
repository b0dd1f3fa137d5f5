"""Labels that come late or are corrected: in the outcome, in the figures, in the model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners import Learner
from learners import model as model_module
from learners.numerics.hash_table import hashes_of
from learners.records import BatchOutcome, ServedBatch, Status
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
    refit,
    said_columns,
    said_of,
    same,
    scopes,
    state_but,
)
from tests.learners.pipelines import Pipeline, batch, events

pytestmark = pytest.mark.integration

APPLIED, DUPLICATE, RELABELLED, UNKNOWN = Status.APPLIED, Status.DUPLICATE, Status.RELABELLED, Status.UNKNOWN
# what a learner has learnt, without the account of its decisions
LEARNT = ("algorithm.", "columns.", "embedding.", "scaling.", "calibration.", "retained.")
ONLINE = pipelines_of("cbr-diag", "fofo", "npsvor")


def pipeline_twin(pipeline: Pipeline, carried: list[Any], y: Vector) -> Learner:
    twin = pipeline.learner()
    twin.apply(batch(twin, carried, y, ids=named(len(y))))
    return twin


@SEVERAL
def test_late_labels_train_the_model_and_metrics_use_the_served_prediction(pipeline: Pipeline) -> None:
    # no decision depends on those of other events
    free = {} if pipeline.traits.ordinal else {"threshold": {"objective": "f1", "cautious": False}}
    learner, plain = pipeline.learner(**free), pipeline.learner(**free)
    carried, y = events(pipeline, 60)
    predictions = said_of(pipeline, 60, y=y)
    predictions.served[::7] = False  # these come with their features, and are scored and decided now
    predictions.labelled[::7] = np.nan
    times = 1e9 + 100.0 * np.arange(60)
    record = batch(learner, carried, y, ids=named(60), times=times, late=predictions)
    outcome = outcome_of(learner, record)
    ordinary = outcome_of(plain, replace(record, late=None))
    parts = LEARNT if not pipeline.traits.ordinal else [part for part in LEARNT if part != "calibration."]
    assert same(learner, plain, parts)
    for name in ("scores", "decisions", "probabilities", "thresholds"):
        corrected, first = getattr(outcome, name), getattr(ordinary, name)
        assert (corrected is None) == (first is None)
        if corrected is not None:
            assert np.array_equal(
                corrected, np.where(predictions.served, getattr(predictions, name), first), equal_nan=True
            )
    assert outcome.applied.all()
    figures = learner.figures()
    assert figures["clock"] == max(np.nanmax(predictions.labelled), times.max())
    delays = (predictions.labelled - times)[20:][predictions.served[20:]]
    assert figures["window"]["label_delay_median"] == pytest.approx(np.median(delays))
    if not pipeline.traits.ordinal:
        agree(figures["window"], y[20:], outcome, slice(20, 60))


@SEVERAL
def test_a_label_by_id_is_unknown_a_duplicate_or_a_correction(pipeline: Pipeline) -> None:
    learner = pipeline.learner()
    carried, y = events(pipeline, 10)
    first = outcome_of(learner, batch(learner, carried, y, ids=named(10)))
    before = state_but(learner)
    unknown = outcome_of(learner, bare(y[:3], named(3, 100), learner))
    assert unknown.status.tolist() == [UNKNOWN] * 3
    assert np.isnan(unknown.scores).all()
    assert state_but(learner) == before
    duplicate = outcome_of(learner, bare(y[:3], named(3), learner))
    assert duplicate.status.tolist() == [DUPLICATE] * 3
    assert state_but(learner, "metrics.counters") == {k: v for k, v in before.items() if k != "metrics.counters"}
    assert learner.figures()["duplicates"] == 3
    labels = other_labels(pipeline, y[:3])
    relabelled = outcome_of(learner, bare(labels, named(3), learner))
    assert relabelled.status.tolist() == [RELABELLED] * 3
    assert relabelled.scores.tobytes() == first.scores[:3].tobytes()
    assert relabelled.decisions.tolist() == first.decisions[:3].tolist()
    assert same(learner, pipeline_twin(pipeline, carried, y), ("algorithm.", "scaling."))  # no row, nothing learnt anew
    assert learner.figures()["corrections"] == 3
    assert outcome_of(learner, bare(labels, named(3), learner)).status.tolist() == [DUPLICATE] * 3


@pipelines_of("cbr-diag", "ranksvm")
def test_assumed_negatives_are_counted_and_never_override(pipeline: Pipeline) -> None:
    learner = pipeline.learner()
    carried, y = events(pipeline, 12)
    y[:6], y[6:] = 1.0, -1.0
    learner.apply(ServedBatch(hashes_of(named(12)), 1e9 + np.arange(12.0), *said_columns(pipeline, 12)))
    record = batch(learner, carried[:6], y[:6], ids=named(6), late=said_of(pipeline, 6))
    assert outcome_of(learner, record).applied.all()
    assert learner.figures()["served"]["labelled"] == 6
    late = said_of(pipeline, 12)._replace(assumed=np.ones(12, dtype=np.bool_))
    outcome = outcome_of(
        learner, batch(learner, carried, np.full(12, -1.0), ids=named(12), times=np.zeros(12), late=late)
    )
    assert outcome.status.tolist() == [DUPLICATE] * 6 + [APPLIED] * 6
    figures = learner.figures()
    assert (figures["assumed"], figures["corrections"]) == (6, 0)
    assert figures["duplicates"] == 0  # a late assumption is no duplicate of a label
    assert figures["class_counts"] == {"negative": 6, "positive": 6}
    assert figures["served"]["labelled"] == 6  # an assumption is no label
    assert figures["window"]["label_delay_median"] is None
    real = bare(np.ones(1), named(1, 8), learner, served=np.ones(1, dtype=np.bool_))
    assert outcome_of(learner, real).status.tolist() == [RELABELLED]
    figures = learner.figures()
    assert (figures["assumed"], figures["corrections"], figures["served"]["labelled"]) == (6, 1, 7)


@SEVERAL
@given(
    wrong=st.lists(st.integers(0, 99), min_size=1, max_size=30),
    at=st.integers(0, 100),
    rows=st.booleans(),
)
@settings(max_examples=15)
def test_metrics_count_a_corrected_label_as_if_it_was_original(
    pipeline: Pipeline, wrong: list[int], at: int, rows: bool
) -> None:
    """The events carry their predictions, so these do not depend on the model; some events have left the window."""
    learner, right = (pipeline.learner(remembered_ids=200) for _ in range(2))
    carried, y = events(pipeline, 100)
    predictions, times = said_of(pipeline, 100, y=y), 1e9 + 100.0 * np.arange(100)
    record = batch(learner, carried, y, ids=named(100), times=times, late=predictions)
    right.apply(record)
    places = sorted(set(wrong))
    mistaken = y.copy()
    mistaken[places] = other_labels(pipeline, y[places])
    broken = replace(record, labels=mistaken)
    learner.apply(broken.part(0, at))
    early, late = [i for i in places if i < at], [i for i in places if i >= at]
    for some_places in (early, late):
        ids = tuple(f"e{i}" for i in some_places)
        if rows:
            again = batch(learner, [carried[i] for i in some_places], y[some_places], ids=ids)
        else:
            again = bare(y[some_places], ids, learner)
        outcome = outcome_of(learner, again)
        assert (outcome.status == RELABELLED).all()
        assert np.array_equal(outcome.scores, predictions.scores[some_places])
        if some_places is early:
            learner.apply(broken.part(at, 100))
    assert scopes(learner) == scopes(right)
    assert learner.figures()["corrections"] == len(places)
    if not pipeline.traits.ordinal:
        outcome = BatchOutcome(
            np.zeros(100, np.int8),
            predictions.scores,
            predictions.decisions,
            predictions.probabilities,
            predictions.thresholds,
        )
        agree(learner.figures()["window"], y[60:], outcome, slice(60, 100))
        assert same(learner, right, ("metrics.window_", "metrics.sketch_", "metrics.traffic_"))
    if not rows:
        assert same(learner, right, ("ids.",))


@ONLINE
def test_an_online_algorithm_relearns_a_corrected_event(pipeline: Pipeline) -> None:
    learner, other = (pipeline.learner(remembered_ids=100) for _ in range(2))
    carried, y = events(pipeline, 30)
    for item in (learner, other):
        item.apply(batch(item, carried, y, ids=named(30), times=1e9 + np.arange(30.0)))
    label, weights = other_labels(pipeline, y[4:5]), np.array([2.0])
    outcome = outcome_of(learner, batch(learner, carried[4:5], label, ids=named(1, 4), weights=weights))
    assert outcome.status.tolist() == [RELABELLED]
    late = said_of(pipeline, 1)._replace(labelled=np.full(1, np.nan))  # served: it is not decided anew
    other.apply(batch(other, carried[4:5], label, weights=weights, late=late))
    parts = ["algorithm.", "scaling."] + ([] if pipeline.traits.ordinal else ["calibration.", "threshold."])
    assert same(learner, other, parts)
    assert learner.figures()["events"] == 30


@pipelines_of("ranksvm", "svc")
def test_the_next_fit_of_a_batch_algorithm_uses_the_corrected_label(pipeline: Pipeline) -> None:
    learner, right = (pipeline.learner(remembered_ids=100) for _ in range(2))
    carried, y = events(pipeline, 60)
    mistaken = y.copy()
    wrong = [3, 29, 31, 45, 59]
    mistaken[wrong] = other_labels(pipeline, y[wrong])
    for item, labels in ((learner, mistaken), (right, y)):
        item.apply(batch(item, carried[:40], labels[:40], ids=named(40)))
        refit(item)
        item.apply(batch(item, carried[40:], labels[40:], ids=named(20, 40)))
    for i in wrong[:4]:  # the first has left the events that are retained
        learner.apply(batch(learner, carried[i : i + 1], y[i : i + 1], ids=named(1, i)))
    learner.apply(bare(y[59:], named(1, 59), learner))
    assert same(learner, right, ("retained.", "scaling."))
    assert not same(learner, right, ("algorithm.",))
    for item in (learner, right):
        item.apply(item.fit_job().run())
    assert same(learner, right, ("algorithm.", "retained.", "fits."))


@pytest.mark.parametrize("rows", [True, False])
def test_warm_up_events_are_learnt_with_corrected_labels(rows: bool) -> None:
    pipeline = one_of("nsauc")
    learner, right = (pipeline.learner(remembered_ids=100) for _ in range(2))
    carried, y = events(pipeline, 30)
    mistaken = y.copy()
    wrong = [0, 13, 29]
    mistaken[wrong] *= -1
    learner.apply(batch(learner, carried, mistaken, ids=named(30)))
    right.apply(batch(right, carried, y, ids=named(30)))
    for i in wrong:
        again = batch(learner, carried[i : i + 1], y[i : i + 1], ids=named(1, i))
        learner.apply(again if rows else bare(y[i : i + 1], named(1, i), learner))
    assert same(learner, right, ("retained.", "scaling."))
    for item in (learner, right):
        refit(item)
    assert same(learner, right, ("algorithm.", "scaling.", "embedding.", "calibration.", "retained."))


def test_evicted_warm_up_events_do_not_shift_the_corrections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_module, "_OVERTIME", 0)
    pipeline = one_of("nsauc")
    learner = pipeline.learner(remembered_ids=100)
    carried, y = events(pipeline, 40)
    y[::2], y[1::2] = 1.0, -1.0
    learner.apply(batch(learner, carried, y, ids=named(40)))
    weights = learner.state()["algorithm.w"].copy() if "algorithm.w" in learner.state() else None
    assert np.array_equal(learner.state()["retained.labels"], y[15:])
    learner.apply(batch(learner, carried[3:4], -y[3:4], ids=named(1, 3)))
    assert np.array_equal(learner.state()["retained.labels"], y[15:])  # learnt anew by the linear model alone
    assert weights is None or not np.array_equal(learner.state()["algorithm.w"], weights)
    learner.apply(batch(learner, carried[30:31], -y[30:31], ids=named(1, 30)))
    y[30] *= -1
    assert np.array_equal(learner.state()["retained.labels"], y[15:])


@SEVERAL
def test_a_forgotten_id_is_a_new_event(pipeline: Pipeline) -> None:
    learner = pipeline.learner()  # remembers 25
    carried, y = events(pipeline, 26)
    learner.apply(batch(learner, carried, y, ids=named(26)))
    label = other_labels(pipeline, y[:2])
    outcome = outcome_of(learner, batch(learner, carried[:2], label, ids=named(2)))
    assert outcome.status.tolist() == [APPLIED, APPLIED]  # the first of them pushed the second out
    assert (learner.figures()["events"], learner.figures()["corrections"]) == (28, 0)
    outcome = outcome_of(learner, bare(y[2:4], named(2, 2), learner))
    assert outcome.status.tolist() == [UNKNOWN, DUPLICATE]


@SEVERAL
def test_a_batch_may_contain_an_id_twice(pipeline: Pipeline) -> None:
    learner = pipeline.learner()
    carried, y = events(pipeline, 6)
    y[:] = y[0]
    other = other_labels(pipeline, y)
    labels = np.array([y[0], other[0], other[0], y[0], y[0], other[0]])
    ids = ("a", "a", "a", "b", "a", "b")
    outcome = outcome_of(learner, batch(learner, carried, labels, ids=ids))
    assert outcome.status.tolist() == [APPLIED, RELABELLED, DUPLICATE, APPLIED, RELABELLED, RELABELLED]
    assert outcome.scores[1] == outcome.scores[0] == outcome.scores[4]
    assert outcome.scores[3] == outcome.scores[5]
    figures = learner.figures()
    assert (figures["events"], figures["duplicates"], figures["corrections"]) == (2, 1, 3)
    expected = dict.fromkeys(learner.config.labels.classes, 0)
    for label in (y[0], other[0]):
        expected[list(expected)[int(label) - 1 if pipeline.traits.ordinal else int(label > 0)]] += 1
    assert figures["class_counts"] == expected
    assert learner.find_learnt(["a", "b", "c"]).tolist() == [True, True, False]
    assert learner.learnt_scores(["b"]).tobytes() == outcome.scores[3:4].tobytes()
