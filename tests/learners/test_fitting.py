"""Fits: embeddings after a warm-up and models fitted now and then, in the library and as records of a log."""

from __future__ import annotations

import dataclasses
import functools
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners import InvalidInput, Learner, algorithms, create
from learners.numerics.arrays import Vector
from learners.records import FitResult, LabelledBatch, Rollback
from tests.learners.pipelines import PIPELINES, Pipeline, batch, copied, events, parametrize
from tests.learners.streams import auc

pytestmark = pytest.mark.integration

FITTED = [pipeline for pipeline in PIPELINES if pipeline.batch or "embedding" in pipeline.traits.defaults]
EACH = parametrize(FITTED)
EMBEDDED = ("nsauc", "noam", "nsolam", "nsvmsgd2", "nbauc", "rbf-ranksvm")


def rings(n: int, seed: int) -> tuple[Any, Vector]:
    """Positives inside a ring of negatives: no linear score beats chance."""
    random = np.random.default_rng(seed)
    y = np.where(random.random(n) < 0.3, 1.0, -1.0)
    radius = np.where(y > 0, random.uniform(0.0, 0.8, n), random.uniform(1.0, 1.8, n))
    angle = random.uniform(0.0, 2 * np.pi, n)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1), y


@functools.cache
def learnt_at_once(pipeline: Pipeline, seed: int) -> tuple[list[Any], Vector, list[str], Learner, Vector]:
    """Return features, labels and ids of 90 events, a learner that learnt them by one call, and their scores."""
    carried, y = events(pipeline, 90, seed)
    ids = [f"e{i % 80}" for i in range(90)]
    learner = pipeline.learner()
    return carried, y, ids, learner, learner.learn(carried, y, ids=ids)


@EACH
@given(cuts=st.lists(st.integers(0, 90), max_size=6), seed=st.integers(0, 1))
@settings(max_examples=3)
def test_the_library_fits_at_the_same_events_for_any_batching(pipeline: Pipeline, cuts: list[int], seed: int) -> None:
    carried, y, ids, full, outcome = learnt_at_once(pipeline, seed)
    parts = pipeline.learner()
    pieces = [parts.learn(carried[a:b], y[a:b], ids=ids[a:b]) for a, b in pairwise([0, *sorted(cuts), 90])]
    assert np.concatenate(pieces).tobytes() == outcome.tobytes()
    assert parts.digest() == full.digest()
    assert full.view().fitted_events == (80 if pipeline.batch else 25)
    assert full.view().not_ready is None


def replayed(pipeline: Pipeline, log: list[Any]) -> Learner:
    other = pipeline.learner()
    for record in log:
        other.apply(record)
    return other


def logged(pipeline: Pipeline, n: int, late: int) -> tuple[Learner, list[Any]]:
    """Return a learner and its log; each fit arrives `late` records after its events."""
    learner, log = pipeline.learner(), []
    carried, y = events(pipeline, n)
    under_way: list[tuple[int, FitResult]] = []
    for start in range(0, n, 10):
        record: Any = batch(learner, carried[start : start + 10], y[start : start + 10])
        learner.apply(record)
        log.append(record)
        if learner.fit_due and not under_way:
            under_way.append((len(log) + late, learner.fit_job().run()))
        if under_way and under_way[0][0] <= len(log):
            fitted = under_way.pop()[1]
            learner.apply(fitted)
            log.append(fitted)
    return learner, log


@pytest.mark.long
@EACH
@pytest.mark.parametrize("late", [0, 2])
def test_replaying_a_log_with_fits_gives_the_same_bits(pipeline: Pipeline, late: int) -> None:
    learner, log = logged(pipeline, 90, late)
    fits = [record for record in log if isinstance(record, FitResult)]
    assert len(fits) == (1 if not pipeline.batch else 4 if late == 0 else 2)
    assert replayed(pipeline, log).digest() == learner.digest()
    early = pipeline.learner()
    for after, following in enumerate(log):  # a snapshot anywhere, and the log from there
        again = Learner.restored(early.config, copied(early))
        for record in log[after:]:
            again.apply(record)
        assert again.digest() == learner.digest()
        early.apply(following)


@EACH
def test_an_obsolete_fit_is_ignored(pipeline: Pipeline) -> None:
    learner, log = logged(pipeline, 60, 0)
    fitted = next(record for record in log if isinstance(record, FitResult))
    start = copied(pipeline.learner())
    digest = learner.digest()
    learner.apply(fitted)  # another node had made it, too
    assert learner.digest() == digest
    learner.apply(Rollback(1, start))
    rolled_back = learner.digest()
    learner.apply(fitted)  # from before the roll-back
    assert learner.digest() == rolled_back
    learner.apply(dataclasses.replace(fitted, restores=1))  # of events that have not been learnt
    assert learner.digest() == rolled_back
    for record in log:
        if not isinstance(record, FitResult):
            learner.apply(record)
    assert learner.fit_due
    learner.apply(learner.fit_job().run())
    assert learner.digest() != rolled_back
    assert not learner.fit_due


@EACH
def test_a_fit_of_another_learner_is_refused(pipeline: Pipeline) -> None:
    _, log = logged(pipeline, 40, 0)
    first = next(i for i, record in enumerate(log) if isinstance(record, FitResult))
    learner, fitted = replayed(pipeline, log[:first]), log[first]
    digest = learner.digest()
    name, array = next(iter(fitted.arrays.items()))
    # a projection onto more columns would be an embedding like any other
    odd = [
        (key, array)
        for key, array in fitted.arrays.items()
        if array.dtype.kind == "f" and key != "embedding.projection"
    ]
    broken = [
        {key: value for key, value in fitted.arrays.items() if key != name},
        {**fitted.arrays, "algorithm.other": array},
        {**fitted.arrays, name: array.astype(np.float32)},
        {**fitted.arrays, name: array[None]},
        *({**fitted.arrays, key: np.zeros((*value.shape[:-1], value.shape[-1] + 9999))} for key, value in odd),
    ]
    for arrays in broken:
        with pytest.raises(InvalidInput):
            learner.apply(dataclasses.replace(fitted, arrays=arrays))
        assert learner.digest() == digest


@pytest.mark.long
@pytest.mark.parametrize("name", EMBEDDED)
def test_an_embedding_learns_nonlinear_data(name: str) -> None:
    X, y = rings(3000, seed=0)
    more = {"refit_every": 400, "refit_window": 400} if hasattr(algorithms()[name], "fit") else {}
    learner = create(name, dim=2, embedding={"components": 40, "warmup": 300}, **more)
    scores = learner.learn(X, y)
    assert auc(scores[1000:], y[1000:]) > 0.9
    linear = create(name, dim=2, embedding="none", **more)
    assert auc(linear.learn(X, y)[1000:], y[1000:]) < 0.7


@pytest.mark.long
@pytest.mark.parametrize("kind", ["nystroem", "fourier"])
@pytest.mark.parametrize("name", ["cbr", "fofo", "loam-ilsc", "oam", "npsvor"])
def test_any_algorithm_works_behind_an_embedding(name: str, kind: str) -> None:
    X, y = rings(1500, seed=1)
    labels = np.where(y > 0, 4.0, 2.0) if name == "npsvor" else y
    learner = create(name, dim=2, embedding={"kind": kind, "components": 60, "warmup": 200})
    learner.learn(X, labels)
    X, y = rings(500, seed=2)
    assert auc(learner.score(X), y) > 0.9


def test_the_warm_up_events_are_learnt() -> None:
    X, y = rings(500, seed=3)
    space = {"kind": "nystroem", "components": 30, "warmup": 500}
    learner = create("oam", dim=2, embedding=space, calibration={"memory": 50})
    linear = create("oam", dim=2, calibration={"memory": 50})
    outcome = learner.learn(X[:499], y[:499])
    assert outcome.tobytes() == linear.learn(X[:499], y[:499]).tobytes()
    assert "500" in (learner.view().not_ready or "")
    learner.learn(X[499:], y[499:])
    assert learner.view().not_ready is None
    assert auc(learner.score(X), y) > 0.9
    assert learner.figures()["events"] == 500
    # as if the embedding had been there from the start: the same events through the same space, in order
    state = learner.state()
    assert state["algorithm.seen"].tolist() == [int((y < 0).sum()), int((y > 0).sum())]
    assert state["calibration.events"].tolist() == [500]
    assert state["threshold.seen"].tolist() == [int((y < 0).sum()), int((y > 0).sum())]
    assert len(state["retained.labels"]) == 0


def test_a_batch_algorithm_waits_for_both_classes() -> None:
    X, y = rings(200, seed=4)
    late = np.where(np.arange(200) < 150, -1.0, y)
    first = 150 + int(np.flatnonzero(late[150:] > 0)[0])
    for cuts in ([], [50], list(range(1, first))):
        learner = create("ranksvm", dim=2, refit_every=100, refit_window=120)
        for a, b in pairwise([0, *cuts, first]):
            learner.learn(X[a:b], late[a:b])
        assert learner.view().fitted_events == 0
        learner.learn(X[first:], late[first:])
        assert learner.view().fitted_events == first + 1
    weighted = create("ranksvm", dim=2, refit_every=100, refit_window=120)
    assert "100" in (weighted.view().pending_fit or "")
    weighted.learn(X, late, weights=(late < 0) * 1.0)
    assert not weighted.fit_due
    assert weighted.view().fitted_events == 0
    assert "120" in (weighted.view().not_ready or "")


def test_auto_waits_for_five_events_of_each_class() -> None:
    X, y = rings(400, seed=4)
    rare = np.where(np.arange(400) < 250, -1.0, y)
    fifth = int(np.flatnonzero(rare > 0)[4])
    digests = set()
    for cuts in ([], [210], [230, 260], list(range(240, fifth))):
        learner = create("auto", dim=2)
        for a, b in pairwise([0, *cuts, fifth]):
            learner.learn(X[a:b], rare[a:b])
        assert (learner.view().fitted_events, learner.fit_due) == (0, False)
        learner.learn(X[fifth:], rare[fifth:])
        assert learner.view().fitted_events > fifth
        digests.add(learner.digest())
    assert len(digests) == 1


def test_nothing_is_called_positive_before_the_first_fit() -> None:
    X, y = rings(150, seed=7)
    learner = create("ranksvm", dim=2, refit_every=100, refit_window=100)
    learner.learn(X[:99], y[:99])
    figures = learner.figures()["window"]
    assert (figures["auc"], figures["recall"], figures["confusion"]["fp"]) == (0.5, 0.0, 0)
    assert learner.state()["calibration.events"].tolist() == [0]
    learner.learn(X[99:], y[99:])
    assert learner.state()["calibration.events"].tolist() == [150]  # the fitted ones, then those that came since


def test_a_rollback_restores_the_digest() -> None:
    X, y = rings(300, seed=8)
    learner = create("ranksvm", dim=2, refit_every=100, refit_window=100)
    learner.learn(X[:150], y[:150])
    state, digest = copied(learner), learner.digest()
    learner.learn(X[150:], y[150:])
    for _ in range(2):
        learner.apply(Rollback(9, state))
        assert learner.digest() == digest


def test_a_fit_with_non_finite_numbers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = rings(100, seed=9)
    ranksvm = algorithms()["ranksvm"]
    fit = ranksvm.fit  # type: ignore[attr-defined]
    monkeypatch.setattr(ranksvm, "fit", lambda *arguments: fit(*arguments)._replace(w=np.array([1.0, np.nan])))
    learner = create("ranksvm", dim=2)
    digest = learner.digest()
    with pytest.raises(ValueError, match="finite"):
        learner.fit(X, y)
    assert learner.digest() == digest


def test_fit_accepts_data_or_uses_retained_events() -> None:
    X, y = rings(600, seed=5)
    settings_: dict[str, Any] = {"embedding": {"components": 50}, "refit_every": 200, "refit_window": 600}
    learner = create("nbauc", dim=2, **settings_)
    learner.fit(X, y)
    assert auc(learner.score(X), y) > 0.95
    assert learner.figures()["events"] == 0
    with_weights = create("nbauc", dim=2, **settings_)
    with_weights.fit(X, y, weights=np.ones(600))
    assert with_weights.score(X).tobytes() == learner.score(X).tobytes()
    learner.learn(X[:50], y[:50])  # joins what fit() was given
    learner.fit()
    assert len(learner.state()["retained.labels"]) == 600
    digest = learner.digest()
    with pytest.raises(ValueError, match=r"negative|class"):
        learner.fit(100.0 * X[y > 0] + 7.0, y[y > 0])
    assert learner.digest() == digest
    with pytest.raises(ValueError, match="events"):
        create("nbauc", dim=2).fit()
    for bad in ((X, y[:5]), (X, None), (X[:, :1], y)):
        with pytest.raises(InvalidInput):
            learner.fit(*bad)
    with pytest.raises(InvalidInput, match="cbr"):
        create("cbr", dim=2).fit(X, y)
    early = create("oam", dim=2, embedding={"kind": "nystroem", "components": 50, "warmup": 10_000})
    early.fit(X, y)
    assert early.view().pending_fit is None
    assert auc(early.score(X), y) > 0.9


def test_a_failed_fit_keeps_the_model_and_is_retried_later(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = rings(500, seed=6)
    learner = create("ranksvm", dim=2, refit_every=100, refit_window=100)
    learner.learn(X[:100], y[:100])
    before = learner.state()["algorithm.w"].tobytes()
    ranksvm = algorithms()["ranksvm"]
    fit, tried = ranksvm.fit, []  # type: ignore[attr-defined]

    def fails(*arguments: Any) -> Any:
        tried.append(learner.figures()["events"])
        if len(tried) < 3:
            raise ValueError("no such model")
        return fit(*arguments)

    monkeypatch.setattr(ranksvm, "fit", fails)
    for i in range(100, 500):
        learner.learn(X[i : i + 1], y[i : i + 1])
        if len(tried) < 3:
            assert learner.state()["algorithm.w"].tobytes() == before
    assert tried == [200, 300, 400, 500]
    assert learner.view().fitted_events == 500


def test_columns_added_during_a_fit_have_weight_0() -> None:
    learner = create("ranksvm", features={"kind": "named", "bits": 12}, refit_every=20, refit_window=20)
    early = [{"a": float(i), "b": float(-i)} for i in range(20)]
    y = np.where(np.arange(20) < 10, -1.0, 1.0)
    learner.apply(LabelledBatch(learner.encode(early), y))
    fitted = learner.fit_job().run()
    late = [{f"new{i}": 1.0, "a": float(i)} for i in range(20)]
    learner.apply(LabelledBatch(learner.encode(late), y))
    learner.apply(fitted)
    assert learner.score([{"new3": 100.0}]).tolist() == [0.0]
    assert learner.score([{"a": 2.0}])[0] != 0.0
