"""Forest of extremely randomised trees (Extra-Trees).

    score(x) = mean over the trees of the share of positives in the leaf of x

Each tree is fitted to all retained events. At each node it draws one random threshold for each of the square root of
the number of columns, and takes the best of these splits. It grows by the best split first. An event's weight is its
share in the leaves.

As for `gbdt`: when fits come, what the trees read of each kind of features, and that threshold and probabilities begin
with the events after the first fit. Until that fit every score is 0.

A forest needs no step size, and errs less than `gbdt` when the stream changes or has few labels. Boosted trees are
better when there are many labels.

A score takes O(trees * depth) time. A fit takes O(trees * n * sqrt(columns) * depth) time, on one core.

References
----------
Geurts, Ernst, Wehenkel. Extremely Randomized Trees. Machine Learning 63, 2006.
Fits are made by scikit-learn's ExtraTreesClassifier: see docs/decisions/0034-trees.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learners.algorithms._trees import MAX_DEPTH, TreeNodes, Trees, chosen_columns, columns_of_rows, examples, joined
from learners.algorithms.base import Cost
from learners.algorithms.trees import gbdt
from learners.numerics import Rows, Vector
from learners.settings import Parameters, param

__all__ = ["TRAITS", "Params", "State", "fit", "grow", "init", "problems", "weights"]

TRAITS = gbdt.TRAITS._replace(
    cost=Cost(
        "O(trees depth) per event; a fit O(trees sqrt(columns) depth) per retained event",
        lambda params, size: 20 + 80 * params.trees + size.each(1, 20) + 0.001 * size.dim,
    ),
)

State = Trees


@dataclass(frozen=True)
class Params(Parameters):
    """Settings of forest."""

    trees: int = param(100, "trees of a fit", least=1, most=1000)
    leaves: int = param(500, "most leaves of a tree", least=2, most=4096)
    leaf_events: int = param(3, "fewest fitted events in a leaf", least=1, most=1_000_000)
    columns: int = param(256, "columns that the trees read of sparse and named events", least=1, most=4096)


init = gbdt.init
grow = gbdt.grow
weights = gbdt.weights
problems = gbdt.problems


def fit(params: Params, rows: Rows, dim: int, y: Vector, weight: Vector, seed: int) -> State:
    """Fit trees to n rows (n, dim). Raises ValueError if a class has no event of positive weight."""
    from sklearn.ensemble import ExtraTreesClassifier  # takes half a second, so only a fit imports it

    selection = examples(rows, y, weight)
    columns = chosen_columns(selection.rows, dim, params.columns)
    X = columns_of_rows(selection.rows, columns)
    machine = ExtraTreesClassifier(
        n_estimators=params.trees,
        max_leaf_nodes=params.leaves,
        max_depth=MAX_DEPTH,
        min_samples_leaf=params.leaf_events,
        n_jobs=1,
        random_state=seed % 2**32,
    )
    machine.fit(X, selection.positive, sample_weight=selection.weight)
    trees = [_nodes(estimator.tree_, params.trees) for estimator in machine.estimators_]
    return joined(trees, 0.0, columns, dim, X, selection.weight)


def _nodes(tree: Any, trees: int) -> TreeNodes:
    """Take what scoring needs of a fitted tree, one of so many."""
    leaf = tree.children_left < 0
    total = tree.weighted_n_node_samples
    impurities = np.where(leaf, 0.0, total * tree.impurity)
    inner = np.flatnonzero(~leaf)
    for child in (tree.children_left[inner], tree.children_right[inner]):
        impurities[inner] -= total[child] * tree.impurity[child]
    return TreeNodes(
        left=np.where(leaf, 0, tree.children_left),
        right=np.where(leaf, 0, tree.children_right),
        slot=np.where(leaf, 0, tree.feature),
        missing=np.where(leaf, 0, tree.missing_go_to_left),
        threshold=np.where(leaf, 0.0, _of_double(tree.threshold)),
        value=np.where(leaf, tree.value[:, 0, 1] / trees, 0.0),
        gain=impurities,
    )


def _of_double(threshold: Vector) -> Vector:
    """Convert thresholds on float32 numbers: a float64 is at most the result if its nearest float32 is at most this."""
    below: NDArray[np.float32] = threshold.astype(np.float32)
    below = np.where(below > threshold, np.nextafter(below, np.float32(-np.inf)), below)
    above = np.nextafter(below, np.float32(np.inf))
    middle = below.astype(np.float64) / 2.0 + above.astype(np.float64) / 2.0
    even = below.view(np.int32) % 2 == 0  # a tie goes to the even one
    return np.where(even, middle, np.nextafter(middle, -np.inf))
