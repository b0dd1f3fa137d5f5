"""Decision of a learner: from the values of its model to predictions.

two classes  score -> calibration -> probability -> threshold -> decision
ordinal      values of the planes -> the algorithm's rule -> rank
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from learners.algorithms import OrdinalAlgorithm, registry
from learners.config import Config
from learners.decisions import Calibration, CalibrationState, Threshold, calibration, threshold
from learners.decisions.threshold import BudgetUse
from learners.model import Arrays, copied
from learners.numerics import Counts, Matrix, Vector

__all__ = ["BinaryDecision", "Decision", "OrdinalDecision", "Predictions", "decision_of"]


class Predictions(NamedTuple):
    """Predictions for n events. Ordinal learners give ranks as decisions, and no probabilities or thresholds."""

    scores: Vector
    decisions: Counts  # 0 or 1, or a rank from 1
    probabilities: Vector | None = None
    thresholds: Vector | None = None


class BinaryDecision:
    """Calibration and threshold of a learner of two classes.

    `costs` (n,) multiply the cost of an event's errors (None: 1 each). `clocks` (n,) are the learner's clock after each
    event, NaN if unknown.
    """

    def __init__(self, calibrated: Calibration, objective: Threshold) -> None:
        self._calibrated = calibrated
        self._objective = objective
        self._calibration = calibration.init(calibrated)
        self._threshold = threshold.init(objective)

    def restart(self) -> None:
        """Forget what was learnt, because the scores are now of another model.

        Calibration, sketches and stages start again. The account of a budget goes on: an alert counts whichever model
        gave it, and the traffic is the same.
        """
        self._calibration = calibration.init(self._calibrated)
        self._threshold = threshold.restart(self._objective, self._threshold)

    def change(self, objective: Threshold) -> None:
        """Switch to other settings of the threshold; what was learnt stays."""
        self._threshold = threshold.change_settings(self._objective, objective, self._threshold)
        self._objective = objective

    @property
    def depends_on_order(self) -> bool:
        """Whether a decision depends on earlier ones, so that all must be made in order on one account."""
        return threshold.paced(self._objective, self._threshold)

    @property
    def threshold(self) -> float | None:
        """The live threshold on the probability, for an event whose errors cost 1."""
        return threshold.current(self._objective, self._threshold)

    @property
    def budget_use(self) -> BudgetUse | None:
        """The alerts of the unit of time so far; None without a budget of alerts per unit."""
        return threshold.budget_use(self._objective, self._threshold)

    def learn(
        self, values: Matrix, y: Vector, decided: NDArray[np.bool_], costs: Vector | None, clocks: Vector
    ) -> Predictions:
        """Predict each event before its label, then learn the label, in order.

        Only events that are `decided` now, (n,), go into the account; the others did when they were served.
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

    def replay(self, probabilities: Vector, y: Vector, clocks: Vector, rate: float) -> tuple[Vector, Counts]:
        """Decide n events of the past and learn their labels, in order; return thresholds and decisions, (n,).

        The state keeps what was learnt. A budget is spent by its plan at the first clock; `rate` is the traffic in
        events per second (NaN: unknown). Each error costs 1.
        """
        n = len(y)
        timed = clocks[~np.isnan(clocks)]
        start = float(timed[0]) if len(timed) else math.nan
        self._threshold = threshold.rewind(self._objective, self._threshold, start, rate)
        thresholds, decisions = np.empty(n), np.empty(n, dtype=np.int64)
        columns = np.ones(n, dtype=np.bool_), np.ones(n), clocks, thresholds, decisions
        threshold.learn(self._objective, self._threshold, probabilities, y, *columns)
        return thresholds, decisions

    def note(self, scores: Predictions, clocks: Vector, ready: bool = True) -> None:
        """Account for unlabelled events that another node served, so that the state is as after `serve` there.

        Events from before the learner was `ready` are not counted, because their probabilities mean nothing.
        """
        if scores.probabilities is None:
            raise ValueError("the predictions have no probabilities; they are of an ordinal learner")
        if not ready:
            return
        threshold.note(self._objective, self._threshold, scores.probabilities, scores.decisions, clocks)

    def without_model(self, values: Matrix) -> Predictions:
        """Predict without a model: no event is positive."""
        n = len(values)
        return Predictions(values, np.zeros(n, dtype=np.int64), np.zeros(n), np.ones(n))

    def preview(self, values: Matrix, costs: Vector | None = None) -> Predictions:
        """Predict each event as if it came next; changes nothing."""
        probabilities = calibration.apply(self._calibrated, self._calibration, values)
        factors = _factors(costs, len(values))
        thresholds, decisions = threshold.preview(self._objective, self._threshold, probabilities, factors)
        return Predictions(values, decisions, probabilities, thresholds)

    def scoring_inputs(self) -> tuple[Calibration, CalibrationState, tuple[int, float, float, Vector]]:
        """Return what `preview` reads, as views, for `dense_inputs`."""
        return self._calibrated, self._calibration, threshold.scoring_inputs(self._objective, self._threshold)

    def frozen(self) -> BinaryDecision:
        """Return a copy that stays as it is."""
        frozen = copy.copy(self)
        frozen.restore(self.state())
        return frozen

    def state(self) -> dict[str, Arrays]:
        """Return the arrays of the state by part."""
        return {"calibration": self._calibration._asdict(), "threshold": self._threshold._asdict()}

    def restore(self, groups: Mapping[str, Arrays]) -> None:
        """Take copies of the arrays of a state."""
        self._calibration = copied(CalibrationState, groups["calibration"])
        self._threshold = copied(threshold.ThresholdState, groups["threshold"])
        threshold.resume(self._threshold)


class OrdinalDecision:
    """The decision rule of an ordinal algorithm; it learns nothing."""

    def __init__(self, algorithm: OrdinalAlgorithm, params: Any) -> None:
        self._algorithm = algorithm
        self._params = params

    threshold: float | None = None
    depends_on_order = False

    def restart(self) -> None:
        """Do nothing: nothing was learnt."""

    def learn(
        self,
        values: Matrix,
        y: Vector,  # noqa: ARG002
        decided: NDArray[np.bool_],  # noqa: ARG002
        costs: Vector | None,  # noqa: ARG002
        clocks: Vector,  # noqa: ARG002
    ) -> Predictions:
        """Predict each event."""
        return self.preview(values)

    def serve(self, values: Matrix, costs: Vector | None, clocks: Vector) -> Predictions:  # noqa: ARG002
        """Predict each event."""
        return self.preview(values)

    def note(self, scores: Predictions, clocks: Vector, ready: bool = True) -> None:
        """Do nothing: there is no account."""

    def without_model(self, values: Matrix) -> Predictions:
        """Predict without a model: apply the rule to zeros."""
        return self.preview(values)

    def preview(self, values: Matrix, costs: Vector | None = None) -> Predictions:  # noqa: ARG002
        """Predict each event."""
        return Predictions(*self._algorithm.decide(self._params, values))

    def frozen(self) -> OrdinalDecision:
        """Return the rule itself, which never changes."""
        return self

    def state(self) -> dict[str, Arrays]:
        """Return no arrays."""
        return {}

    def restore(self, groups: Mapping[str, Arrays]) -> None:
        """Do nothing: there are no arrays."""


Decision = BinaryDecision | OrdinalDecision


def _factors(costs: Vector | None, n: int) -> Vector:
    return np.ones(n) if costs is None else costs


def decision_of(config: Config) -> Decision:
    """Create the decision stage of a configuration, before any event."""
    if config.calibration is not None and config.threshold is not None:
        return BinaryDecision(config.calibration, config.threshold)
    return OrdinalDecision(cast(OrdinalAlgorithm, registry.algorithms()[config.algorithm]), config.params)
