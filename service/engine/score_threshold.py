"""Where the live threshold, which is one of the probability, lies among the scores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from learners import Scorer

__all__ = ["score_threshold"]

_GRID = 257  # scores tried at a time
_ROUNDS = 3  # each of which narrows the range by a factor of the grid


def score_threshold(scorer: Scorer, edges: Sequence[float]) -> float | None:
    """The least score in the range of `edges` (ascending) from which on the probability is the threshold or more.

    To 1e-7 of the range. None where there is no range, no model or no threshold yet, where no score of the range
    reaches it or all do, and where probabilities do not rise with the scores, so that no single score parts them.
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
