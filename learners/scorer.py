"""Views of a learner at one moment, for its readers: a scorer, and the metrics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learners.algorithms import (
    Ensemble,
    ScoringModel,
    Trees,
    copied,
    embeddings_of,
    ensemble_members,
    ensemble_weights,
    model_scores,
    trees_of,
)
from learners.config import Config
from learners.decision import BinaryDecision, Decision, Predictions
from learners.decisions import Threshold, dense_inputs, score_dense
from learners.features import MAX_FIELDS, ColumnMap, EmbeddingState, FieldSummary, scaling
from learners.features import kernel_approximation as embedding
from learners.metrics import BinaryMetricsView, Journal, JournalEntry, RankMetricsView, ranking
from learners.numerics import Matrix, Rows, Sparse, Vector, length

__all__ = ["ABSENT_AFTER", "LearnerView", "Predictions", "Scorer", "live_threshold"]

_TREE_WORK = 2**5  # of a tree for one event, in multiplications
ABSENT_AFTER = 1000  # events, before a declared field without a value is reported


def live_threshold(settings: Threshold | None, value: float | None, not_ready: str | None) -> float | None:
    """Return the value of the threshold if it decides; None while the learner is not ready, unless it is fixed."""
    fixed = settings is not None and settings.objective == "fixed"
    return value if fixed or not_ready is None else None


@dataclass(frozen=True)
class Scorer:
    """Scores events as the learner does at one moment."""

    config: Config
    columns: ColumnMap
    scaled: NDArray[np.bool_]
    scaling: scaling.ScalingState
    embedding: EmbeddingState | None  # None: the model takes the scaled rows
    published: Callable[[], ScoringModel]  # computes what the algorithm scores by
    decision: Decision
    has_model: bool

    @cached_property
    def weights(self) -> ScoringModel:
        """What the algorithm scores by, computed for the first reader."""
        return self.published()

    @property
    def threshold(self) -> float | None:
        """The live threshold on the probability; None for an ordinal learner."""
        return self.decision.threshold

    def work(self, rows: Rows) -> int:
        """Estimate the multiplications that scoring the rows takes."""
        values = len(rows.data) if isinstance(rows, Sparse) else rows.size
        return values + length(rows) * self._work_of_event

    @cached_property
    def _work_of_event(self) -> int:
        """Multiplications for one event, beside one for each of its values."""
        spaces = embeddings_of(self.weights) if self.embedding is None else [self.embedding]
        components = sum(array.size for space in spaces for array in space)
        return _TREE_WORK * sum(len(trees.starts) for trees in trees_of(self.weights)) + components

    def _mapped(self, rows: Rows) -> Rows:
        """Map encoded events to the learner's columns."""
        return self.columns.transform(rows)

    def scaled_rows(self, rows: Rows) -> Rows:
        """Map encoded events to the learner's columns and scale them. O(values)."""
        return scaling.transform(self.config.scaling, self.scaling, self._mapped(rows), self.scaled)

    def values(self, rows: Rows) -> Matrix:
        """Compute the model's values of encoded events. O(values), times O(components) with an embedding."""
        return self.scaled_values(self.scaled_rows(rows))

    def scaled_values(self, rows: Rows) -> Matrix:
        """Compute the model's values of scaled rows."""
        if self.embedding is not None:
            assert not isinstance(rows, Sparse)
            rows = embedding.transform(self.config.embedding, self.embedding, rows)
        return model_scores(self.weights, rows)

    def decide(self, values: Matrix, costs: Vector | None = None) -> Predictions:
        """Predict n events from their values; `costs` (n,) are of a miss of each."""
        if not self.has_model:
            return self.decision.without_model(values)
        return self.decision.preview(values, np.ones(len(values)) if costs is None else costs)

    @cached_property
    def _dense_inputs(self) -> tuple[Any, ...] | None:
        """What one compiled call reads to score dense rows; None if the stages must run one by one."""
        if self.embedding is not None or not self.has_model or not isinstance(self.decision, BinaryDecision):
            return None
        weights = self.weights
        if isinstance(weights, Trees) or (isinstance(weights, Ensemble) and weights.custom):
            return None
        calibrated, fit, rule = self.decision.scoring_inputs()
        return dense_inputs(self.config.scaling, self.scaling, self.scaled, weights, calibrated, fit, rule)

    def score(self, rows: Rows, costs: Vector | None = None) -> Predictions:
        """Score encoded events: the same bits as `decide(values(rows))`, but faster. O(values)."""
        if isinstance(rows, Sparse) or self._dense_inputs is None:
            return self.decide(self.values(rows), costs)
        mapped = self._mapped(rows)
        assert not isinstance(mapped, Sparse)
        return Predictions(*score_dense(self._dense_inputs, mapped, costs))

    def frozen(self) -> Scorer:
        """Return a copy that stays as it is while the learner moves on. O(state that scoring reads)."""
        weights = copied(self.weights)
        return Scorer(
            self.config,
            self.columns.frozen(),
            self.scaled,
            scaling.ScalingState._make(array.copy() for array in self.scaling),
            self.embedding,  # never changes in place: a fit replaces it
            lambda: weights,
            self.decision.frozen(),
            self.has_model,
        )


@dataclass(frozen=True)
class LearnerView:
    """Everything that readers of a learner see at one moment."""

    scorer: Scorer
    figures: BinaryMetricsView | RankMetricsView
    sources: dict[str, int]
    columns: int  # in use so far
    pending_fit: str | None  # which fit the model waits for
    fitted_events: int | None  # events learnt when the last fit took its data; None if nothing is fitted
    rollbacks: int  # so far
    journal: Journal

    def frozen(self) -> LearnerView:
        """Return a copy that stays as it is while the learner moves on."""
        return replace(self, scorer=self.scorer.frozen(), figures=self.figures.frozen())

    @property
    def fields(self) -> list[FieldSummary] | None:
        """What is remembered of each field of named events; None for features of another kind. O(fields)."""
        return self.scorer.columns.field_summaries()

    @property
    def field_events(self) -> int:
        """Number of events that the fields' counts are of: those since the first that had a field."""
        return self.scorer.columns.field_events

    @property
    def fields_full(self) -> bool:
        """Whether as many fields are remembered as can be: values of others are learnt, not counted. O(fields)."""
        return sum(not field.declared for field in self.fields or []) >= MAX_FIELDS

    @property
    def absent_fields(self) -> list[str]:
        """Declared fields that no event has had, once `ABSENT_AFTER` events are learnt. O(fields)."""
        if sum(self.class_counts.values()) < ABSENT_AFTER:
            return []
        return [field.name for field in self.fields or [] if field.declared and field.last is None]

    @cached_property
    def members(self) -> list[dict[str, Any]] | None:
        """Return what each model of an ensemble weighs and how it does, as JSON; None for one model. O(bins)."""
        if not isinstance(self.scorer.weights, Ensemble):
            return None
        members = []
        for name, kind, weight, bins in ensemble_members(self.scorer.weights):
            auc, average_precision = ranking(bins)
            figures = {"auc": auc, "average_precision": average_precision, "events": int(bins.sum())}
            members.append({"name": name, "kind": kind, "weight": weight, **figures})
        return members

    @property
    def member_weights(self) -> dict[str, float] | None:
        """The weights of the models of an ensemble, by name; None for other algorithms."""
        return ensemble_weights(self.scorer.weights) if isinstance(self.scorer.weights, Ensemble) else None

    @property
    def changes(self) -> int:
        """Changes of alarms, and entries of the journal, so far; a rollback undoes those of alarms."""
        return self.figures.alarm_changes + self.journal.count

    @property
    def open_alarms(self) -> dict[str, int]:
        """Stored alarms that are open and not acknowledged, by kind."""
        count = dict.fromkeys(self.figures.alarm_counts, 0)
        for alarm in self.figures.alarms():
            if alarm["state"] == "open" and (alarm["number"], alarm["reopened"]) not in self.journal.acknowledged:
                count[alarm["kind"]] += 1
        return count

    def alarms(self, since: int = 0, change: int = 0) -> list[dict[str, Any]]:
        """Return alarms as `AlarmsView.alarms`, with the name of the `field`, and who `acknowledged` each.

        An open alarm has the state "acknowledged" if it is so since it was raised or reopened, else "reopened" if it
        was, else "open".
        """
        label = self.scorer.columns.field_label
        alarms = self.figures.alarms(since, change)
        for alarm in alarms:
            if alarm["field"] is not None:
                alarm["field"] = label(alarm["field"])
            entry = self.journal.acknowledged.get((alarm["number"], alarm["reopened"]))
            alarm["acknowledged"] = None if entry is None else _signature(entry)
            if alarm["state"] == "open" and (entry is not None or alarm["reopened"]):
                alarm["state"] = "reopened" if entry is None else "acknowledged"
        return alarms

    def annotations(self) -> list[dict[str, Any]]:
        """Return the notes and changes of the journal as JSON, the oldest first; see `JournalEntry`."""
        return [entry._asdict() for entry in self.journal.entries if entry.kind != "acknowledgement"]

    @cached_property
    def class_counts(self) -> dict[str, int]:
        """Labelled events learnt, by class."""
        return dict(zip(self.scorer.config.labels.classes, self.figures.counts.tolist(), strict=True))

    @property
    def threshold(self) -> float | None:
        """The live threshold if it decides: None while `not_ready`, unless it is fixed, and None for ranks."""
        return live_threshold(self.scorer.config.threshold, self.scorer.threshold, self.not_ready)

    @property
    def alert_budget(self) -> dict[str, Any] | None:
        """The alerts of a budget's present unit of time, as JSON; None without a budget of alerts per unit."""
        decision = self.scorer.decision
        use = decision.budget_use if isinstance(decision, BinaryDecision) else None
        return None if use is None else use._asdict()

    def as_json(self, figures: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the live metrics and the threshold as JSON: numbers, or None with the reason under `undefined`.

        `figures` is the document of this view's metrics, if it is at hand.
        """
        document = self.figures.as_json() if figures is None else figures
        if self.scorer.threshold is None:  # ranks have no threshold
            return document
        if self.threshold is None:
            document = {**document, "undefined": {"/threshold": self.not_ready, **document["undefined"]}}
        return {"threshold": self.threshold, **document}

    @cached_property
    def not_ready(self) -> str | None:
        """Why scores are not meaningful yet, or None."""
        counts = self.class_counts
        present = [name for name, count in counts.items() if count]
        if not present:
            return "no labelled event has been learnt yet"
        if len(present) == 1:
            if self.scorer.config.labels.ranks is not None:
                return f"only events of rank {present[0]} have been learnt yet"
            missing = next(name for name in counts if name not in present)
            return f"no labelled {missing} has been learnt yet"
        return self.pending_fit


def _signature(entry: JournalEntry) -> dict[str, Any]:
    return {"time": entry.time, "by": entry.by, "key": entry.key, "note": entry.text}
