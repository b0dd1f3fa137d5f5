"""From what an algorithm computes to what is said of an event: the half of the pipeline behind the model.

two classes  score -> calibration -> probability -> threshold -> label
ordinal      the planes' values -> the algorithm's own rule -> rank
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import numpy as np

from learners import calibration, catalogue, threshold
from learners.algorithm import Ordinal
from learners.arrays import Counts, Matrix, Vector
from learners.calibration import Calibration, CalibrationState
from learners.config import Config
from learners.model import Arrays, copied
from learners.threshold import Threshold

__all__ = ["Decision", "Labelling", "Ranking", "Scores", "decision_of"]


class Scores(NamedTuple):
    """What is said of n events, n entries each; an ordinal learner has ranks for decisions, and nothing behind."""

    scores: Vector
    decisions: Counts  # 0 or 1, or a rank from 1
    probabilities: Vector | None = None
    thresholds: Vector | None = None


class Labelling:
    """Calibration and threshold of a learner of two classes."""

    def __init__(self, calibrated: Calibration, objective: Threshold) -> None:
        self._calibrated = calibrated
        self._objective = objective
        self.restart()

    def restart(self) -> None:
        """Forget what was learnt: the model is another one, and so are its scores."""
        self._calibration = calibration.init()
        self._threshold = threshold.init(self._objective)

    @property
    def threshold(self) -> float | None:
        """The live threshold on the probability."""
        return threshold.current(self._objective, self._threshold)

    def learn(self, values: Matrix, y: Vector) -> Scores:
        """What is said of each event before its label is known; moves calibration and threshold, in order."""
        probabilities = calibration.learn(self._calibrated, self._calibration, values, y)
        thresholds = np.empty(len(y))
        threshold.learn(self._objective, self._threshold, probabilities, y, thresholds)
        return Scores(values, (probabilities >= thresholds).astype(np.int64), probabilities, thresholds)

    def nothing(self, values: Matrix) -> Scores:
        """What is said as long as there is no model: no event is called positive, and nothing is learnt from that."""
        n = len(values)
        return Scores(values, np.zeros(n, dtype=np.int64), np.zeros(n), np.ones(n))

    def look(self, values: Matrix) -> Scores:
        """What is said of each event now."""
        probabilities = calibration.look(self._calibrated, self._calibration, values)
        live = threshold.current(self._objective, self._threshold)
        thresholds = np.full(len(probabilities), live)
        return Scores(values, (probabilities >= live).astype(np.int64), probabilities, thresholds)

    def frozen(self) -> Labelling:
        """A copy that stays as it is."""
        copy = Labelling(self._calibrated, self._objective)
        copy.restore(self.state())
        return copy

    def state(self) -> dict[str, Arrays]:
        """The arrays of the state by part."""
        return {"calibration": self._calibration._asdict(), "threshold": self._threshold._asdict()}

    def restore(self, groups: Mapping[str, Arrays]) -> None:
        """Take the arrays of a state, copied."""
        self._calibration = copied(CalibrationState, groups["calibration"])
        self._threshold = copied(threshold.State, groups["threshold"])


class Ranking:
    """The rule of an ordinal algorithm; nothing to learn."""

    def __init__(self, algorithm: Ordinal, params: Any) -> None:
        self._algorithm = algorithm
        self._params = params

    threshold: float | None = None

    def restart(self) -> None:
        """Nothing was learnt."""

    def learn(self, values: Matrix, y: Vector) -> Scores:  # noqa: ARG002
        """What is said of each event before its label is known."""
        return self.look(values)

    def nothing(self, values: Matrix) -> Scores:
        """What is said as long as there is no model: what the rule says of zeros."""
        return self.look(values)

    def look(self, values: Matrix) -> Scores:
        """What is said of each event."""
        return Scores(*self._algorithm.decide(self._params, values))

    def frozen(self) -> Ranking:
        """Itself."""
        return self

    def state(self) -> dict[str, Arrays]:
        """No arrays."""
        return {}

    def restore(self, groups: Mapping[str, Arrays]) -> None:
        """Nothing to take."""


Decision = Labelling | Ranking


def decision_of(config: Config) -> Decision:
    """The stage that a learner's configuration asks for, before any event."""
    if config.calibration is not None and config.threshold is not None:
        return Labelling(config.calibration, config.threshold)
    return Ranking(cast(Ordinal, catalogue.algorithms()[config.algorithm]), config.params)
