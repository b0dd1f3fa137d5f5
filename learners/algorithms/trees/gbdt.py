"""Gradient boosting of decision trees on the logistic loss, by histograms (GBDT).

    score(x) = log-odds of the base rate + sum over the trees t of value_t(leaf of x in tree t)

Each tree is fitted to the gradients of the loss at the scores so far, its leaf values are shrunk by `learning_rate`,
and it grows leaf by leaf, the best split first. The score is a log-odds, but a confident one: the learner calibrates
it. An event's weight multiplies its loss.

Fits come early and then rarely: the first after 200 labelled events, each later one when a quarter more labels are
known, and never more than `refit_every` apart. Until the first fit every score is 0. A fit says little about new events
by the events that it was fitted to, so the threshold and the probabilities begin with the events after the first fit.

What a tree reads are the columns that the learner's features have (no scaling by default):

- dense numbers: all of them
- tables: numbers as they are, a missing number as 0 and 1 in its column of missing values, each category as 0 or 1
- sparse and named events: the `columns` columns that most retained events have; a column that an event lacks is 0. A
  field with thousands of categories, or text, is therefore read in part: the reply to a request for the weights says
  how many columns are read. Use `cbr-diag` for such fields, or declare what matters in a table

A score takes O(trees * log leaves) time. A fit takes O(trees * n * columns * log leaves) time, on one core, and
n * columns bytes beside the rows.

References
----------
Friedman. Greedy Function Approximation: A Gradient Boosting Machine. Annals of Statistics 29, 2001.
Ke, Meng, Finley, Wang, Chen, Ma, Ye, Liu. LightGBM: A Highly Efficient Gradient Boosting Decision Tree. NIPS 2017.
Fits are made by scikit-learn's HistGradientBoostingClassifier: see docs/decisions/0034-trees.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from learners.algorithms._trees import (
    MAX_DEPTH,
    TreeNodes,
    Trees,
    chosen_columns,
    columns_of_rows,
    empty,
    examples,
    grow_columns,
    joined,
    tree_problems,
)
from learners.algorithms.base import Cost, Traits
from learners.numerics import Issues, Rows, Vector
from learners.settings import Parameters, param

__all__ = ["TRAITS", "Params", "State", "fit", "grow", "init", "problems", "weights"]

TRAITS = Traits(
    cost=Cost(
        "O(trees log leaves) per event; a fit O(trees columns log leaves) per retained event",
        lambda params, size: 20 + 40 * params.trees + size.each(1, 20) + 0.001 * size.dim,
    ),
    first_fit=200,
    memorises=True,
    halved=("gain", "value", "cover"),
    defaults={"scaling": {"kind": "none"}},
)

State = Trees


@dataclass(frozen=True)
class Params(Parameters):
    """Settings of gbdt."""

    trees: int = param(100, "trees of a fit", least=1, most=1000)
    learning_rate: float = param(0.1, "share of each tree's values that is added", above=0, most=1)
    leaves: int = param(31, "most leaves of a tree", least=2, most=255)
    leaf_events: int = param(20, "fewest fitted events in a leaf", least=1, most=1_000_000)
    l2: float = param(1.0, "penalty on squared leaf values", least=0, most=1e9)
    columns: int = param(256, "columns that the trees read of sparse and named events", least=1, most=4096)


def init(params: Params, dim: int, seed: int) -> State:  # noqa: ARG001
    """Return the state before the first fit: no trees."""
    return empty(dim)


def grow(params: Params, state: State, dim: int) -> State:  # noqa: ARG001
    """Return the state for `dim` columns; the trees do not read the new ones."""
    return grow_columns(state, dim)


def fit(params: Params, rows: Rows, dim: int, y: Vector, weight: Vector, seed: int) -> State:
    """Fit trees to n rows (n, dim). Raises ValueError if a class has no event of positive weight."""
    from sklearn.ensemble import HistGradientBoostingClassifier  # takes half a second, so only a fit imports it
    from threadpoolctl import threadpool_limits

    selection = examples(rows, y, weight)
    columns = chosen_columns(selection.rows, dim, params.columns)
    X = columns_of_rows(selection.rows, columns)
    machine = HistGradientBoostingClassifier(
        max_iter=params.trees,
        learning_rate=params.learning_rate,
        max_leaf_nodes=params.leaves,
        max_depth=MAX_DEPTH,
        min_samples_leaf=params.leaf_events,
        l2_regularization=params.l2,
        early_stopping=False,
        random_state=seed % 2**32,
    )
    # With weights, the library's choice of bins takes four times as long as the rest
    varied = None if (selection.weight == 1.0).all() else selection.weight
    with threadpool_limits(1):  # leave the other cores to the service's other threads
        machine.fit(X, selection.positive, sample_weight=varied)
    trees = [_nodes(predictors[0].nodes) for predictors in machine._predictors]
    return joined(trees, float(machine._baseline_prediction[0, 0]), columns, dim, X, selection.weight)


def _nodes(nodes: Any) -> TreeNodes:
    """Take what scoring needs of a fitted tree."""
    leaf = nodes["is_leaf"] != 0
    return TreeNodes(
        left=nodes["left"],
        right=np.where(leaf, 0, nodes["right"]),
        slot=np.where(leaf, 0, nodes["feature_idx"]),
        missing=np.where(leaf, 0, nodes["missing_go_to_left"]),
        threshold=np.where(leaf, 0.0, np.minimum(nodes["num_threshold"], np.finfo(np.float64).max)),
        value=np.where(leaf, nodes["value"], 0.0),
        gain=np.where(leaf, 0.0, nodes["gain"]),
    )


def weights(params: Params, state: State) -> Trees:  # noqa: ARG001
    """Return the trees, which score events."""
    return state


def problems(params: Params, state: State, sparse: bool) -> Issues:  # noqa: ARG001
    """Find what no fit makes; see `Algorithm.problems`."""
    return tree_problems(state)
