"""What the services of peers serve: river's logistic regression behind its scaler, one event scored, then learnt."""

from __future__ import annotations

from collections.abc import Sequence

from river import linear_model, preprocessing

__all__ = ["Model"]


class Model:
    """One model of two classes."""

    def __init__(self) -> None:
        self._pipeline = preprocessing.StandardScaler() | linear_model.LogisticRegression()

    def update(self, x: Sequence[float], label: bool) -> float:
        """Return the probability, then learn the label."""
        row = dict(enumerate(x))
        score: float = self._pipeline.predict_proba_one(row)[True]
        self._pipeline.learn_one(row, label)
        return score
