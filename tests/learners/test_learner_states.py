"""States of a learner: copies, restores, roll-backs, digests, and refusals of states that do not fit."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from learners import InvalidInput, Learner, algorithms, restore
from learners.learner import check_state
from learners.records import Rollback
from tests.learners.pipelines import EVERY, PIPELINES, Pipeline, bits, copied, crossed, cut, stream

pytestmark = pytest.mark.integration

UNTOLD = ("fits.restores", "life.rollbacks", "life.journal")  # a roll-back gives the digest back that the state had


@crossed("events_before", [0, 1, 30], usual=lambda _: 30)
def test_a_restored_learner_continues_identically(pipeline: Pipeline, events_before: int) -> None:
    learner = pipeline.learner()
    record, carried = stream(pipeline, learner, 60)
    first, second = cut(record, learner, carried, [events_before])
    learner.apply(first)
    other = restore(learner.config.to_json(), copied(learner))
    assert other.digest() == learner.digest()
    assert other.figures() == learner.figures()
    assert bits([other.apply(second)]) == bits([learner.apply(second)])  # type: ignore[list-item]
    assert other.digest() == learner.digest()
    assert other.view().figures.history() == learner.view().figures.history()


@EVERY
def test_the_digest_depends_on_every_array(pipeline: Pipeline) -> None:
    learner = pipeline.learner()
    record, _ = stream(pipeline, learner, 30)
    learner.apply(record)
    digests = {learner.digest()}
    filled = [name for name, array in learner.state().items() if array.size and name not in UNTOLD]
    twin, state = pipeline.learner(), copied(learner)
    twin.state = lambda: state  # type: ignore[method-assign]
    for name in filled:
        last = state[name].reshape(-1).view(np.uint8)[-1:]
        last ^= 1
        digests.add(twin.digest())
        last ^= 1
    assert len(digests) == 1 + len(filled)
    part: dict[str, Any] = {"threshold": {"objective": "fixed", "value": 0.3}}
    if pipeline.traits.ordinal:
        part = {"scaling": {"clip": 9}}
    for settings_ in ({"seed": 8}, {"window": 41}, {"remembered_ids": 26}, part):
        other = pipeline.learner(**settings_)
        other.apply(record)
        digests.add(other.digest())
    assert len(digests) == 5 + len(filled)


def test_the_digest_distinguishes_shapes_dtypes_and_names() -> None:
    learner = PIPELINES[0].learner()
    states: list[dict[str, Any]] = [
        {"a.x": np.zeros((2, 3))},
        {"a.x": np.zeros((3, 2))},
        {"a.x": np.zeros((2, 3), dtype=np.int64)},
        {"a.y": np.zeros((2, 3))},
        {"a.x": np.zeros((2, 0))},
        {},
        {"a.x": np.arange(6.0).reshape(2, 3)},
        {"a.x": np.arange(6.0).reshape(3, 2).T},
    ]
    digests = []
    for state in states:
        learner.state = lambda state=state: state  # type: ignore[method-assign]
        digests.append(learner.digest())
    assert len(set(digests)) == len(states)
    learner.state = lambda: {"a.x": np.asfortranarray(np.arange(6.0).reshape(2, 3))}  # type: ignore[method-assign]
    assert learner.digest() == digests[-2]


def without_roll_backs(learner: Learner) -> dict[str, bytes]:
    """Return the state without the count of roll-backs, which identifies earlier fits."""
    return {name: array.tobytes() for name, array in learner.state().items() if name not in UNTOLD}


@EVERY
def test_a_rollback_is_a_record(pipeline: Pipeline) -> None:
    learner, other = pipeline.learner(), pipeline.learner()
    record, carried = stream(pipeline, learner, 60)
    first, second = cut(record, learner, carried, [30])
    learner.apply(first)
    state, before = copied(learner), without_roll_backs(learner)
    learner.apply(second)
    after = without_roll_backs(learner)
    assert learner.apply(Rollback(5, state)) is None
    assert without_roll_backs(learner) == before
    learner.apply(second)
    assert without_roll_backs(learner) == after
    other.apply(Rollback(5, state))
    assert without_roll_backs(other) == before  # the record is not moved by who takes it


@EVERY
def test_an_invalid_state_is_refused_and_changes_nothing(pipeline: Pipeline) -> None:
    learner = pipeline.learner()
    record, _ = stream(pipeline, learner, 60)
    learner.apply(record)
    digest, good = learner.digest(), copied(learner)
    check_state(learner.config, good)
    counts = "metrics.counts" if pipeline.traits.ordinal else "metrics.sketch_counts"
    bad = {
        f"/{counts}": {name: array for name, array in good.items() if name != counts},
        "/algorithm.other": {**good, "algorithm.other": np.zeros(3)},
        "/other": {**good, "other": np.zeros(3)},
        "/metrics.history_rows": {**good, "metrics.history_rows": good["metrics.history_rows"][:-1]},
        "/metrics.traffic_flags": {**good, "metrics.traffic_flags": good["metrics.traffic_flags"][:-1]},
        "/metrics.drift_alarms": {**good, "metrics.drift_alarms": good["metrics.drift_alarms"][:-1]},
        "/ids.ring": {**good, "ids.ring": good["ids.ring"][:-1]},
        "/sources.names": {**good, "sources.names": good["sources.names"][:-1]},
        "/sources.offsets": {**good, "sources.offsets": good["sources.offsets"][:-1]},
    }
    if not pipeline.traits.ordinal:
        bad |= {
            "/calibration.coefficients": {**good, "calibration.coefficients": np.zeros(2, dtype=np.float32)},
            "/calibration.hessian": {**good, "calibration.hessian": np.eye(3)},
            "/metrics.window_scores": {**good, "metrics.window_scores": good["metrics.window_scores"][:-1]},
            "/metrics.sketch_bins": {**good, "metrics.sketch_bins": good["metrics.sketch_bins"][0]},
        }
    model = next(name for name in good if name.startswith("algorithm.") and len(good[name]) > 2)
    bad[f"/{model}"] = {**good, model: good[model][:-1]}
    for pointer, state in bad.items():
        for take in (
            lambda state=state: learner.apply(Rollback(1, state)),
            lambda s=state: restore(learner.config.to_json(), s),
        ):
            with pytest.raises(InvalidInput) as caught:
                take()
            assert [problem.pointer for problem in caught.value.problems] == [pointer]
    assert learner.digest() == digest


@functools.cache
def state_after_30_events(pipeline: Pipeline) -> dict[str, Any]:
    learner = pipeline.learner()
    learner.apply(stream(pipeline, learner, 30)[0])
    return copied(learner)


@EVERY
def test_a_state_of_another_configuration_is_refused(pipeline: Pipeline) -> None:
    def same(other: Pipeline) -> bool:  # fofo, lr and ofo differ by their thresholds alone
        states = [algorithms()[item.algorithm].State for item in (pipeline, other)]
        unscaled = "scaling" in other.traits.defaults and (pipeline.kind, other.kind) == ("named", "sparse")
        return (pipeline.kind == other.kind or unscaled) and states[0] is states[1]

    config = pipeline.config()
    for other in PIPELINES:
        alike = pipeline.algorithm == other.algorithm or pipeline.kind == other.kind
        if alike and not same(other):
            with pytest.raises(InvalidInput):
                Learner.restored(config, state_after_30_events(other))
    wider = {
        "dense": {"kind": "dense", "dim": 5},
        "table": {"kind": "table", "fields": [{"name": "a", "kind": "numeric"}]},
    }
    if pipeline.kind in wider:
        with pytest.raises(InvalidInput):
            Learner.restored(pipeline.config(features=wider[pipeline.kind]), state_after_30_events(pipeline))
