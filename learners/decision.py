"""From what an algorithm computes to what is said of an event: the half of the pipeline behind the model.

two classes  score -> calibration -> probability -> threshold -> label
ordinal      the planes' values -> the algorithm's own rule -> rank
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from learners.algorithms import Ordinal, registry
from learners.config import Config
from learners.decisions import Calibration, CalibrationState, Threshold, calibration, threshold
from learners.model import Arrays, copied
from learners.numerics import Counts, Matrix, Vector

__all__ = ["BinaryDecision", "Decision", "OrdinalDecision", "Predictions", "decision_of"]


class Predictions(NamedTuple):
    """What is said of n events, n entries each; an ordinal learner has ranks for decisions, and nothing behind."""

    scores: Vector
    decisions: Counts  # 0 or 1, or a rank from 1
    probabilities: Vector | None = None
    thresholds: Vector | None = None


class BinaryDecision:
    """Calibration and threshold of a learner of two classes.

    `costs` (n,) multiply the cost of an event's errors (None: 1 each), `clocks` (n,) are the learner's clock after each
    event, NaN while it knows none.
    """

    def __init__(self, calibrated: Calibration, objective: Threshold) -> None:
        self._calibrated = calibrated
        self._objective = objective
        self._calibration = calibration.init(calibrated)
        self._threshold = threshold.init(objective)

    def restart(self) -> None:
        """Forget what was learnt: the model is another one, and so are its scores.

        Calibration, sketches and stages start anew, that of unlabelled events too. The account of a budget goes on: an
        alert of today is one whichever model gave it, and the traffic is what it was.
        """
        self._calibration = calibration.init(self._calibrated)
        self._threshold = threshold.restart(self._objective, self._threshold)

    def change(self, objective: Threshold) -> None:
        """Go on with other settings of the threshold; what was learnt stays."""
        self._threshold = threshold.change_settings(self._objective, objective, self._threshold)
        self._objective = objective

    @property
    def depends_on_order(self) -> bool:
        """Whether a decision depends on those before it: they then have to be made in order, on one account."""
        return self._objective.objective == "budget"

    @property
    def threshold(self) -> float | None:
        """The live threshold on the probability; of an event whose errors have cost 1."""
        return threshold.current(self._objective, self._threshold)

    def learn(
        self, values: Matrix, y: Vector, decided: NDArray[np.bool_], costs: Vector | None, clocks: Vector
    ) -> Predictions:
        """What is said of each event before its label is known; moves calibration and threshold, in order.

        Where `decided` (n,), that is also decided now, and accounted for; other events were when they were served.
        """
        n = len(y)
        probabilities = calibration.learn(self._calibrated, self._calibration, values, y)
        thresholds, decisions = np.empty(n), np.empty(n, dtype=np.int64)
        threshold.learn(
            self._objective,
            self._threshold,
            probabilities,
            y,
            decided,
            _factors(costs, n),
            clocks,
            thresholds,
            decisions,
        )
        return Predictions(values, decisions, probabilities, thresholds)

    def serve(self, values: Matrix, costs: Vector | None, clocks: Vector) -> Predictions:
        """Decide unlabelled events, in order, and account for them."""
        n = len(values)
        probabilities = calibration.apply(self._calibrated, self._calibration, values)
        thresholds, decisions = np.empty(n), np.empty(n, dtype=np.int64)
        factors = _factors(costs, n)
        threshold.serve(self._objective, self._threshold, probabilities, factors, clocks, thresholds, decisions)
        return Predictions(values, decisions, probabilities, thresholds)

    def note(self, scores: Predictions, clocks: Vector, ready: bool = True) -> None:
        """Account for unlabelled events of which this was said elsewhere: then the state is as after `serve` there.

        What was said before the learner was `ready` says nothing of its probabilities: such events are not counted.
        """
        if scores.probabilities is None:
            raise ValueError("the scores are an ordinal learner's: they have no probabilities")
        if not ready:
            return
        threshold.note(self._objective, self._threshold, scores.probabilities, scores.decisions, clocks)

    def without_model(self, values: Matrix) -> Predictions:
        """What is said as long as there is no model: no event is called positive, and nothing is learnt from that."""
        n = len(values)
        return Predictions(values, np.zeros(n, dtype=np.int64), np.zeros(n), np.ones(n))

    def look(self, values: Matrix, costs: Vector | None = None) -> Predictions:
        """What would be said of each event now, were it the next; nothing is accounted for."""
        probabilities = calibration.apply(self._calibrated, self._calibration, values)
        factors = _factors(costs, len(values))
        thresholds, decisions = threshold.preview(self._objective, self._threshold, probabilities, factors)
        return Predictions(values, decisions, probabilities, thresholds)

    def scoring_inputs(self) -> tuple[Calibration, CalibrationState, tuple[int, float, float, Vector]]:
        """What `look` reads, as views: for `dense_look.read_by`."""
        return self._calibrated, self._calibration, threshold.scoring_inputs(self._objective, self._threshold)

    def frozen(self) -> BinaryDecision:
        """A copy that stays as it is."""
        frozen = copy.copy(self)
        frozen.restore(self.state())
        return frozen

    def state(self) -> dict[str, Arrays]:
        """The arrays of the state by part."""
        return {"calibration": self._calibration._asdict(), "threshold": self._threshold._asdict()}

    def restore(self, groups: Mapping[str, Arrays]) -> None:
        """Take the arrays of a state, copied."""
        self._calibration = copied(CalibrationState, groups["calibration"])
        self._threshold = copied(threshold.ThresholdState, groups["threshold"])


class OrdinalDecision:
    """The rule of an ordinal algorithm; nothing to learn."""

    def __init__(self, algorithm: Ordinal, params: Any) -> None:
        self._algorithm = algorithm
        self._params = params

    threshold: float | None = None
    depends_on_order = False

    def restart(self) -> None:
        """Nothing was learnt."""

    def learn(
        self,
        values: Matrix,
        y: Vector,  # noqa: ARG002
        decided: NDArray[np.bool_],  # noqa: ARG002
        costs: Vector | None,  # noqa: ARG002
        clocks: Vector,  # noqa: ARG002
    ) -> Predictions:
        """What is said of each event before its label is known."""
        return self.look(values)

    def serve(self, values: Matrix, costs: Vector | None, clocks: Vector) -> Predictions:  # noqa: ARG002
        """What is said of each event."""
        return self.look(values)

    def note(self, scores: Predictions, clocks: Vector, ready: bool = True) -> None:
        """Nothing to account for."""

    def without_model(self, values: Matrix) -> Predictions:
        """What is said as long as there is no model: what the rule says of zeros."""
        return self.look(values)

    def look(self, values: Matrix, costs: Vector | None = None) -> Predictions:  # noqa: ARG002
        """What is said of each event."""
        return Predictions(*self._algorithm.decide(self._params, values))

    def frozen(self) -> OrdinalDecision:
        """Itself."""
        return self

    def state(self) -> dict[str, Arrays]:
        """No arrays."""
        return {}

    def restore(self, groups: Mapping[str, Arrays]) -> None:
        """Nothing to take."""


Decision = BinaryDecision | OrdinalDecision


def _factors(costs: Vector | None, n: int) -> Vector:
    return np.ones(n) if costs is None else costs


def decision_of(config: Config) -> Decision:
    """The stage that a learner's configuration asks for, before any event."""
    if config.calibration is not None and config.threshold is not None:
        return BinaryDecision(config.calibration, config.threshold)
    return OrdinalDecision(cast(Ordinal, registry.algorithms()[config.algorithm]), config.params)
