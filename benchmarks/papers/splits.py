"""Training and test parts: seeded, with the classes' shares of the whole, in a random order for online learning."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from learners.numerics.arrays import Counts, Vector

__all__ = ["Split", "as_divided", "folds", "holdout"]


class Split(NamedTuple):
    """Row numbers; those of `train` in the order in which they are learnt."""

    train: Counts
    test: Counts


def folds(y: Vector, k: int, seed: int) -> list[Split]:
    """k-fold cross-validation: the k test parts are disjoint and cover all rows."""
    random = np.random.default_rng(seed)
    part = np.empty(len(y), dtype=np.int64)
    dealt = 0  # continues where the last class ended, so small classes spread over all parts
    for label in np.unique(y):
        rows = random.permutation(np.flatnonzero(y == label))
        part[rows] = (dealt + np.arange(len(rows))) % k
        dealt += len(rows)
    return [Split(random.permutation(np.flatnonzero(part != i)), np.flatnonzero(part == i)) for i in range(k)]


def holdout(y: Vector, share: float, seed: int) -> Split:
    """`share` of each class for the test, at least one row."""
    random = np.random.default_rng(seed)
    selection = []
    for label in np.unique(y):
        rows = random.permutation(np.flatnonzero(y == label))
        selection.append(rows[: max(1, round(share * len(rows)))])
    test = np.sort(np.concatenate(selection))
    return Split(random.permutation(np.setdiff1d(np.arange(len(y)), test)), test)


def as_divided(n: int, train: int, seed: int) -> Split:
    """Split as the data set does: the first `train` of n rows, in random order, and the others."""
    return Split(np.random.default_rng(seed).permutation(train), np.arange(train, n))
