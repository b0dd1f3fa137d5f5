"""What readers of a learner see at one moment of its life: a scorer, and the figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from learners import calibration, scaling
from learners.algorithm import Linear, linear_scores
from learners.arrays import Rows, Vector
from learners.columns import Columns
from learners.config import Config
from learners.metrics import Figures

__all__ = ["Scorer", "Scores", "View"]


class Scores(NamedTuple):
    """What is said of n events, n entries each."""

    scores: Vector
    probabilities: Vector
    threshold: float
    decisions: NDArray[np.bool_]


@dataclass(frozen=True)
class Scorer:
    """Scores events as the learner would at one moment of its life."""

    config: Config
    columns: Columns
    scaled: NDArray[np.bool_]
    scaling: scaling.ScalingState
    weights: Linear
    calibration: calibration.CalibrationState
    threshold: float

    def score(self, rows: Rows) -> Scores:
        """Score encoded events. O(values given)."""
        config = self.config
        mapped = self.columns.look(rows)
        ready = scaling.look(config.scaling, self.scaling, mapped, self.scaled)
        scores = linear_scores(self.weights, ready)
        probabilities = calibration.look(config.calibration, self.calibration, scores)
        return Scores(scores, probabilities, self.threshold, probabilities >= self.threshold)

    def frozen(self) -> Scorer:
        """A copy that stays as it is while the learner moves on. O(state that scoring reads)."""
        return Scorer(
            self.config,
            self.columns.frozen(),
            self.scaled,
            scaling.ScalingState._make(array.copy() for array in self.scaling),
            Linear._make(array.copy() for array in self.weights),
            calibration.CalibrationState._make(array.copy() for array in self.calibration),
            self.threshold,
        )


@dataclass(frozen=True)
class View:
    """Everything that readers of a learner see, at one moment of its life."""

    scorer: Scorer
    figures: Figures
    sources: dict[str, int]
    columns: int  # that have a meaning so far

    def frozen(self) -> View:
        """A copy that stays as it is while the learner moves on."""
        return View(self.scorer.frozen(), self.figures.frozen(), self.sources, self.columns)

    @property
    def not_ready(self) -> str | None:
        """Why scores do not mean anything yet, or None once they do."""
        negatives, positives = self.figures.counts.tolist()
        if negatives and positives:
            return None
        missing = "event" if not negatives and not positives else "positive" if not positives else "negative"
        return f"no labelled {missing} has been learnt yet"
