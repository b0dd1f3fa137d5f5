"""Finds the score at which alerts begin: the live threshold applies to the probability."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from learners import Scorer

__all__ = ["score_threshold"]

_GRID = 257  # scores per round
_ROUNDS = 3  # each narrows the range by a factor of `_GRID`


def score_threshold(scorer: Scorer, edges: Sequence[float]) -> float | None:
    """Return the least score in the range of `edges` (ascending) whose probability reaches the threshold.

    It is exact to 1e-7 of the range. None if there is no range, no model or no threshold yet. Also None if no score or
    every score of the range reaches the threshold, or if probabilities do not rise with the scores.
    """
    threshold = scorer.threshold
    if len(edges) < 2 or threshold is None or not scorer.has_model:
        return None
    low, high = float(edges[0]), float(edges[-1])
    for _ in range(_ROUNDS):
        scores = np.linspace(low, high, _GRID)
        probabilities = scorer.decide(scores).probabilities
        if probabilities is None:
            return None
        above = probabilities >= threshold
        first = int(np.argmax(above))
        if above[0] or not above[first:].all() or not above.any():
            return None
        low, high = float(scores[first - 1]), float(scores[first])
    return high
