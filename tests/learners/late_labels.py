"""Late labels and corrections for tests: served predictions, labels without features, expected metrics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score

from learners import Learner
from learners.learner import State
from learners.records import BatchOutcome, LabelledBatch, LateColumns
from tests.learners.pipelines import PIPELINES, Pipeline

Vector = NDArray[np.float64]


def pipelines_of(*names: str) -> Any:
    """Return the pipelines of these algorithms for dense rows."""
    pipelines = [pipeline for pipeline in PIPELINES if pipeline.algorithm in names and pipeline.kind == "dense"]
    assert len(pipelines) == len(names)
    return pytest.mark.parametrize("pipeline", pipelines, ids=lambda item: item.algorithm)


SEVERAL = pipelines_of("cbr-diag", "fofo", "ranksvm", "npsvor", "nsauc")


def one_of(name: str, kind: str = "dense") -> Pipeline:
    """Return the pipeline of one algorithm."""
    (pipeline,) = (pipeline for pipeline in PIPELINES if (pipeline.algorithm, pipeline.kind) == (name, kind))
    return pipeline


def named(n: int, first: int = 0) -> tuple[str, ...]:
    """Return the ids of n events from number `first` on."""
    return tuple(f"e{i}" for i in range(first, first + n))


def said_of(pipeline: Pipeline, n: int, seed: int = 0, y: Vector | None = None) -> LateColumns:
    """Draw predictions for n served events, independent of a model; with `y` they depend on the labels."""
    random = np.random.default_rng(seed)
    scores = random.normal(size=n) + (0.0 if y is None else 0.7 * y)
    probabilities = 1.0 / (1.0 + np.exp(-np.round(scores, 1)))
    decisions = (probabilities > 0.55).astype(np.int64)
    if pipeline.traits.ordinal:
        probabilities, decisions = np.full(n, np.nan), random.integers(1, 6, n)
    return LateColumns.none(n)._replace(
        served=np.ones(n, dtype=np.bool_),
        scores=np.round(scores, 1),
        probabilities=probabilities,
        thresholds=np.full(n, np.nan if pipeline.traits.ordinal else 0.55),
        decisions=decisions,
        labelled=1e9 + 100.0 * np.arange(n) + random.integers(0, 2000, n),
    )


def bare(labels: Vector, ids: tuple[str, ...], learner: Learner, **columns: Any) -> LabelledBatch:
    """Labels of which nothing but the ids is at hand."""
    n = len(labels)
    late = LateColumns.none(n)._replace(bare=np.ones(n, dtype=np.bool_), **columns)
    return LabelledBatch(np.zeros((0, learner.config.features.columns)), labels, ids=ids, late=late)


def other_labels(pipeline: Pipeline, y: Vector) -> Vector:
    """Return another label for each event."""
    return y % 5 + 1 if pipeline.traits.ordinal else -y


def outcome_of(learner: Learner, record: LabelledBatch) -> BatchOutcome:
    """Return the outcomes of the events of a batch."""
    outcome = learner.apply(record)
    assert outcome is not None
    return outcome


def same(a: Learner, b: Learner, parts: Iterable[str]) -> bool:
    """Whether two states agree to the bit in the arrays whose names begin so."""
    parts = tuple(parts)
    mine, others = a.state(), b.state()
    names = [name for name in mine if name.startswith(parts)]
    assert names
    return all(mine[name].tobytes() == others[name].tobytes() for name in names)


def state_but(learner: Learner, *names: str) -> State:
    """Return the bytes of a state by name, without some arrays."""
    return {name: array.tobytes() for name, array in learner.state().items() if name not in names}  # type: ignore[misc]


def scopes(learner: Learner) -> dict[str, Any]:
    """Return the metrics that depend on labels and predictions, for both scopes."""
    figures = learner.figures()
    return {name: figures[name] for name in ("events", "class_counts", "window", "since_start")}


def refit(learner: Learner) -> None:
    """Make the fit that is due."""
    assert learner.fit_due
    learner.apply(learner.fit_job().run())


def agree(figures: dict[str, Any], y: Vector, outcome: BatchOutcome, cut: slice | list[int]) -> None:
    """Check the metrics of the window against scikit-learn."""
    assert outcome.probabilities is not None
    probabilities, called = outcome.probabilities[cut], outcome.decisions[cut] > 0
    assert figures["auc"] == pytest.approx(roc_auc_score(y, outcome.scores[cut]), abs=1e-12)
    assert figures["brier"] == pytest.approx(brier_score_loss(y > 0, probabilities), abs=1e-12)
    assert figures["log_loss"] == pytest.approx(log_loss(y > 0, probabilities), abs=1e-12)
    assert figures["confusion"] == {
        "tp": int((called & (y > 0)).sum()),
        "fp": int((called & (y < 0)).sum()),
        "tn": int((~called & (y < 0)).sum()),
        "fn": int((~called & (y > 0)).sum()),
    }


def said_columns(pipeline: Pipeline, n: int, seed: int = 5) -> tuple[Any, ...]:
    """Return the same predictions as columns of a record of served events."""
    predictions = said_of(pipeline, n, seed)
    if pipeline.traits.ordinal:
        return predictions.scores, predictions.decisions
    return predictions.scores, predictions.decisions, predictions.probabilities, predictions.thresholds
