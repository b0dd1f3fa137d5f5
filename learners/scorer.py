"""Views of a learner at one moment, for its readers: a scorer, and the metrics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learners.algorithms import Linear, linear_scores
from learners.config import Config
from learners.decision import BinaryDecision, Decision, Predictions
from learners.decisions import dense_inputs, score_dense
from learners.features import ColumnMap, EmbeddingState, scaling
from learners.features import kernel_approximation as embedding
from learners.metrics import BinaryMetricsView, RankMetricsView
from learners.numerics import Matrix, Rows, Sparse, Vector, nearest

__all__ = ["LearnerView", "Predictions", "Scorer"]


@dataclass(frozen=True)
class Scorer:
    """Scores events as the learner does at one moment."""

    config: Config
    columns: ColumnMap
    scaled: NDArray[np.bool_]
    scaling: scaling.ScalingState
    embedding: EmbeddingState | None  # None: the model takes the scaled rows
    published: Callable[[], Linear]  # computes the algorithm's weights
    decision: Decision
    has_model: bool

    @cached_property
    def weights(self) -> Linear:
        """The weights of the algorithm, computed for the first reader."""
        return self.published()

    @property
    def threshold(self) -> float | None:
        """The live threshold on the probability; None for an ordinal learner."""
        return self.decision.threshold

    def work(self, rows: Rows) -> int:
        """Estimate the multiplications that scoring the rows takes."""
        values = len(rows.data) if isinstance(rows, Sparse) else rows.size
        if self.embedding is None:
            return int(values)
        return int(values + len(rows) * sum(array.size for array in self.embedding))

    def _mapped(self, rows: Rows) -> Rows:
        """Map encoded events to the learner's columns."""
        return self.columns.look(nearest(self.config.input_precision, rows))

    def scaled_rows(self, rows: Rows) -> Rows:
        """Map encoded events to the learner's columns and scale them. O(values)."""
        return scaling.look(self.config.scaling, self.scaling, self._mapped(rows), self.scaled)

    def values(self, rows: Rows) -> Matrix:
        """Compute the model's values of encoded events. O(values), times O(components) with an embedding."""
        ready = self.scaled_rows(rows)
        if self.embedding is not None:
            assert not isinstance(ready, Sparse)
            ready = embedding.look(self.config.embedding, self.embedding, ready)
        return linear_scores(self.weights, ready)

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
        calibrated, fit, rule = self.decision.scoring_inputs()
        return dense_inputs(self.config.scaling, self.scaling, self.scaled, self.weights, calibrated, fit, rule)

    def score(self, rows: Rows, costs: Vector | None = None) -> Predictions:
        """Score encoded events: the same bits as `decide(values(rows))`, but faster. O(values)."""
        if isinstance(rows, Sparse) or self._dense_inputs is None:
            return self.decide(self.values(rows), costs)
        mapped = self._mapped(rows)
        assert not isinstance(mapped, Sparse)
        return Predictions(*score_dense(self._dense_inputs, mapped, costs))

    def frozen(self) -> Scorer:
        """Return a copy that stays as it is while the learner moves on. O(state that scoring reads)."""
        weights = Linear._make(array.copy() for array in self.weights)
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

    def frozen(self) -> LearnerView:
        """Return a copy that stays as it is while the learner moves on."""
        return replace(self, scorer=self.scorer.frozen(), figures=self.figures.frozen())

    @cached_property
    def class_counts(self) -> dict[str, int]:
        """Labelled events learnt, by class."""
        return dict(zip(self.scorer.config.labels.classes, self.figures.counts.tolist(), strict=True))

    @property
    def threshold(self) -> float | None:
        """The live threshold if it decides: None while `not_ready`, unless it is fixed, and None for ranks."""
        settings = self.scorer.config.threshold
        fixed = settings is not None and settings.objective == "fixed"
        return self.scorer.threshold if fixed or self.not_ready is None else None

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
        """Why scores mean nothing yet; None once they do."""
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
