"""What readers of a learner see at one moment of its life: a scorer, and the figures."""

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
from learners.features import Columns, EmbeddingState, scaling
from learners.features import kernel_approximation as embedding
from learners.metrics import BinaryMetricsView, RankMetricsView
from learners.numerics import Matrix, Rows, Sparse, Vector, nearest

__all__ = ["LearnerView", "Predictions", "Scorer"]


@dataclass(frozen=True)
class Scorer:
    """Scores events as the learner would at one moment of its life."""

    config: Config
    columns: Columns
    scaled: NDArray[np.bool_]
    scaling: scaling.ScalingState
    embedding: EmbeddingState | None  # None: the model takes the scaled rows
    published: Callable[[], Linear]  # the algorithm's weights, which some have to compute
    decision: Decision
    has_model: bool

    @cached_property
    def weights(self) -> Linear:
        """What the algorithm scores by: computed by the first who asks."""
        return self.published()

    @property
    def threshold(self) -> float | None:
        """The live threshold on the probability; None for an ordinal learner."""
        return self.decision.threshold

    def work(self, rows: Rows) -> int:
        """Roughly how many multiplications it takes to score the rows."""
        values = len(rows.data) if isinstance(rows, Sparse) else rows.size
        if self.embedding is None:
            return int(values)
        return int(values + len(rows) * sum(array.size for array in self.embedding))

    def _mapped(self, rows: Rows) -> Rows:
        """Encoded events in the learner's own columns."""
        return self.columns.look(nearest(self.config.input_precision, rows))

    def scaled_rows(self, rows: Rows) -> Rows:
        """Encoded events in the learner's own columns, scaled. O(values given)."""
        return scaling.look(self.config.scaling, self.scaling, self._mapped(rows), self.scaled)

    def values(self, rows: Rows) -> Matrix:
        """What the model says of encoded events. O(values given), and with an embedding O(components) of each."""
        ready = self.scaled_rows(rows)
        if self.embedding is not None:
            assert not isinstance(ready, Sparse)
            ready = embedding.look(self.config.embedding, self.embedding, ready)
        return linear_scores(self.weights, ready)

    def decide(self, values: Matrix, costs: Vector | None = None) -> Predictions:
        """What is said of n events with these values; `costs` (n,) of a miss of each."""
        if not self.has_model:
            return self.decision.without_model(values)
        return self.decision.look(values, np.ones(len(values)) if costs is None else costs)

    @cached_property
    def _read(self) -> tuple[Any, ...] | None:
        """What one compiled call reads to score dense rows; None where it takes the stages one by one."""
        if self.embedding is not None or not self.has_model or not isinstance(self.decision, BinaryDecision):
            return None
        calibrated, fit, said = self.decision.scoring_inputs()
        return dense_inputs(self.config.scaling, self.scaling, self.scaled, self.weights, calibrated, fit, said)

    def score(self, rows: Rows, costs: Vector | None = None) -> Predictions:
        """Score encoded events: `values` and `said` in one, to the bit. O(values given)."""
        if isinstance(rows, Sparse) or self._read is None:
            return self.decide(self.values(rows), costs)
        mapped = self._mapped(rows)
        assert not isinstance(mapped, Sparse)
        return Predictions(*score_dense(self._read, mapped, costs))

    def frozen(self) -> Scorer:
        """A copy that stays as it is while the learner moves on. O(state that scoring reads)."""
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
    """Everything that readers of a learner see, at one moment of its life."""

    scorer: Scorer
    figures: BinaryMetricsView | RankMetricsView
    sources: dict[str, int]
    columns: int  # that have a meaning so far
    pending_fit: str | None  # what the model has yet to be fitted by
    fitted_events: int | None  # that had been learnt when the last fit took its data; None where nothing is fitted
    rollbacks: int  # that the learner has been through

    def frozen(self) -> LearnerView:
        """A copy that stays as it is while the learner moves on."""
        return replace(self, scorer=self.scorer.frozen(), figures=self.figures.frozen())

    @cached_property
    def class_counts(self) -> dict[str, int]:
        """Labelled events learnt, by class."""
        return dict(zip(self.scorer.config.labels.classes, self.figures.counts.tolist(), strict=True))

    @property
    def threshold(self) -> float | None:
        """The live threshold, where it decides: None as long as `not_ready`, unless it is fixed, and of ranks."""
        settings = self.scorer.config.threshold
        fixed = settings is not None and settings.objective == "fixed"
        return self.scorer.threshold if fixed or self.not_ready is None else None

    def as_json(self, figures: dict[str, Any] | None = None) -> dict[str, Any]:
        """The live figures, JSON-ready, with the threshold: numbers, or None with the reason under `undefined`.

        `figures`: what those of this view say, where that is known already.
        """
        told = self.figures.as_json() if figures is None else figures
        if self.scorer.threshold is None:  # of ranks
            return told
        if self.threshold is None:
            told = {**told, "undefined": {"/threshold": self.not_ready, **told["undefined"]}}
        return {"threshold": self.threshold, **told}

    @cached_property
    def not_ready(self) -> str | None:
        """Why scores do not mean anything yet, or None once they do."""
        counts = self.class_counts
        met = [name for name, count in counts.items() if count]
        if not met:
            return "no labelled event has been learnt yet"
        if len(met) == 1:
            if self.scorer.config.labels.ranks is not None:
                return f"only events of rank {met[0]} have been learnt yet"
            missing = next(name for name in counts if name not in met)
            return f"no labelled {missing} has been learnt yet"
        return self.pending_fit
