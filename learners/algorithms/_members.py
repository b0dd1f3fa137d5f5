"""Count the scores of each model of an ensemble, and of the combination, by class.

Bins are those of `learners.numerics.log_bins`. Events are counted in blocks of `BLOCK`, and the block before stays, so
the counts are of the last `BLOCK` to 2 `BLOCK` events. A score is counted as the combination took it: from before the
event was learnt, and late if its label is late. An event of weight 0 is not counted, and a corrected label again.

O(models) time per event; 144 KB for six models.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from learners.numerics import BINS, Issues, Matrix, Vector, kernel, log_bins

__all__ = ["BLOCK", "Member", "MemberCounts", "init", "learn", "problems"]

BLOCK = 20_000  # events

_position = log_bins.position


class MemberCounts(NamedTuple):
    """Scores of k models and of their combination, by class."""

    bins: NDArray[np.int32]  # (2, k + 1, 2, BINS): this block and the one before; negatives, positives


class Member(NamedTuple):
    """One model of an ensemble, or the combination."""

    name: str
    kind: str
    weight: float | None  # what one standard deviation of its score adds to the log-odds; None: the combination
    bins: NDArray[np.int64]  # (2, BINS) its scores of the last events, by class


def init(models: int) -> MemberCounts:
    """Return the counts before any event."""
    return MemberCounts(np.zeros((2, models + 1, 2, BINS), dtype=np.int32))


def learn(
    state: MemberCounts,
    events: int,
    scores: Matrix,
    combined: Vector,
    y: Vector,
    weight: Vector,
    scoring: NDArray[np.bool_],
) -> None:
    """Count the scores (n, k) of n events and their combination (n,), after so many `events`.

    `scoring` (k,) tells which models score already.
    """
    _learn(state.bins, events, scores, combined, y, weight, scoring)


def problems(state: MemberCounts) -> Issues:
    """Find values in a restored state that no events lead to."""
    if (state.bins.sum(axis=(2, 3), dtype=np.int64) > BLOCK).any():
        yield "bins", f"has more than {BLOCK:,} events in a block"


@kernel
def _learn(bins, events, scores, combined, y, weight, scoring):  # type: ignore[no-untyped-def]
    models = scores.shape[1]
    for t in range(scores.shape[0]):
        if weight[t] == 0.0:
            continue
        if events % BLOCK == 0:
            newer, older = bins[0].ravel(), bins[1].ravel()
            for i in range(newer.shape[0]):
                older[i], newer[i] = newer[i], 0
        events += 1
        label = 1 if y[t] > 0.0 else 0
        for k in range(models):
            if scoring[k]:
                bins[0, k, label, int(_position(scores[t, k]))] += 1
        bins[0, models, label, int(_position(combined[t]))] += 1
