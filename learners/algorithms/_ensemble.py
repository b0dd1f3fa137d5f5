"""Score by several models of the same rows and a combination of their scores."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from learners.algorithms import _crosses, _members, _mix
from learners.algorithms._trees import Trees, attributions, gather, score_leaves
from learners.algorithms.base import Linear, dense_scores, sparse_scores
from learners.numerics import Matrix, Rows, Sparse, Vector, kernel, length

__all__ = [
    "MEMBERS",
    "Ensemble",
    "MemberName",
    "Parts",
    "ensemble_members",
    "ensemble_parts",
    "ensemble_scores",
    "ensemble_weights",
    "score_members",
]

MemberName = Literal["cbr-diag", "loam-ada", "fofo", "bins", "pairs", "gbdt"]
MEMBERS: dict[MemberName, str] = {  # in the order of the combination
    "cbr-diag": "linear ranker",
    "loam-ada": "linear ranker",
    "fofo": "logistic regression",
    "bins": "logistic regression over bins",
    "pairs": "logistic regression over pairs of bins",
    "gbdt": "boosted trees",
}


class Ensemble(NamedTuple):
    """What scores events: the models in the order of the combination."""

    scoring: NDArray[np.bool_]  # (models,) which models score; the others have the score 0
    linear: tuple[Linear, ...]
    crosses: _crosses.Crosses
    trees: Trees
    mix: _mix.MixState
    members: _members.MemberCounts


@kernel
def score_members(scoring, linear, crosses, trees, X, indices, indptr, scores):  # type: ignore[no-untyped-def]
    """Score n dense rows by each model: fill `scores` (n, models), 0 for models that do not score.

    `indices` and `indptr` are the layout of the rows as sparse ones.
    """
    values, read = np.empty(X.shape[0]), np.empty((X.shape[0], trees.columns.shape[0]))
    for k in range(len(linear)):
        if scoring[k]:
            dense_scores(X, linear[k].w, linear[k].bias[0], values)
            scores[:, k] = values
    for c in range(trees.columns.shape[0]):
        read[:, c] = X[:, trees.columns[c]]
    _score_others(scoring, crosses, trees, X.ravel(), indices, indptr, read, scores)


@kernel
def _score_sparse_members(scoring, linear, crosses, trees, data, indices, indptr, scores):  # type: ignore[no-untyped-def]
    n = indptr.shape[0] - 1
    values, read = np.empty(n), np.zeros((n, trees.columns.shape[0]))
    for k in range(len(linear)):
        if scoring[k]:
            sparse_scores(data, indices, indptr, linear[k].w, linear[k].bias[0], values)
            scores[:, k] = values
    gather(data, indices, indptr, trees.columns, read)
    _score_others(scoring, crosses, trees, data, indices, indptr, read, scores)


@kernel
def _score_others(scoring, crosses, trees, data, indices, indptr, read, scores):  # type: ignore[no-untyped-def]
    """Fill the scores of bins, pairs and trees; `read` (n, c) are the columns of the trees."""
    n, models = scores.shape
    bins, pairs = np.empty(n), np.empty(n)
    if scoring[models - 3] or scoring[models - 2]:
        _crosses.score_cells(crosses, data, indices, indptr, bins, pairs)
        scores[:, models - 3] = bins
        scores[:, models - 2] = pairs
    if scoring[models - 1]:
        score_leaves(
            read,
            trees.starts,
            trees.right,
            trees.slot,
            trees.missing,
            trees.threshold,
            trees.value,
            trees.bias[0],
            bins,
        )
        scores[:, models - 1] = bins


def _scores(ensemble: Ensemble, rows: Rows) -> Matrix:
    """Return the score of each model, (n, models)."""
    model = ensemble[:4]
    scores = np.zeros((length(rows), len(ensemble.scoring)))
    if isinstance(rows, Sparse):
        _score_sparse_members(*model, *rows, scores)
    else:
        score_members(*model, rows, *_crosses.layout(*rows.shape), scores)
    return scores


def ensemble_scores(ensemble: Ensemble, rows: Rows) -> Vector:
    """Score each row, (n,)."""
    return _mix.mix(ensemble.mix, _scores(ensemble, rows))


def ensemble_weights(ensemble: Ensemble) -> dict[str, float]:
    """Return the weight of each model that scores already: log-odds per standard deviation of its score."""
    weights = np.where(ensemble.mix.variance > 0.0, ensemble.mix.factors[:-1], 0.0).tolist()
    return {name: weight for name, weight, scores in zip(MEMBERS, weights, ensemble.scoring, strict=True) if scores}


def ensemble_members(ensemble: Ensemble) -> list[_members.Member]:
    """Return the models that score already, and last the combination. O(bins)."""
    bins = dict(zip([*MEMBERS, "auto"], ensemble.members.bins.sum(axis=0, dtype=np.int64), strict=True))
    weights = ensemble_weights(ensemble)
    members = [
        _members.Member(name, kind, weights[name], bins[name]) for name, kind in MEMBERS.items() if name in weights
    ]
    return [*members, _members.Member("auto", "combination", None, bins["auto"])]


class Parts(NamedTuple):
    """The scores of n rows as sums: intercept + the parts of the row's numbers + absent."""

    intercepts: Vector  # (n,)
    numbers: Vector  # in the order of the rows' numbers
    absent: Vector  # (n,) of columns that a sparse row lacks


def ensemble_parts(ensemble: Ensemble, rows: Rows) -> Parts:
    """Attribute the score of each row to its numbers.

    Each model counts by its factor; the part of a limited score is smaller in proportion. A pair of columns counts half
    for each, and trees by `attributions`, so the parts are Shapley values of each model.
    """
    slopes, intercepts = _mix.shares(ensemble.mix, _scores(ensemble, rows))
    if isinstance(rows, Sparse):
        data, indices = rows.data, rows.indices
        row = np.repeat(np.arange(length(rows)), np.diff(rows.indptr))
    else:
        data, indices = rows.ravel(), np.tile(np.arange(rows.shape[1]), len(rows))
        row = np.repeat(np.arange(len(rows)), rows.shape[1])
    present_columns = indices >= 0
    main, total, by_trees = (slopes[:, -k].copy() for k in (3, 2, 1))
    parts, scoring = np.zeros(len(data)), ensemble.scoring
    if scoring[-3:-1].any():
        parts = _crosses.attribute(ensemble.crosses, rows, main, total)
        intercepts = intercepts + (main + total) * ensemble.crosses.bias[0]
    for k, linear in enumerate(ensemble.linear):
        if scoring[k]:
            parts[present_columns] += (slopes[row, k] * data * linear.w[indices])[present_columns]
            intercepts = intercepts + slopes[:, k] * linear.bias[0]
    absent = np.zeros(length(rows))
    trees = ensemble.trees
    if scoring[-1]:
        columns = trees.columns
        expected, values = attributions(trees, rows, np.arange(len(columns)), len(columns))
        place = np.minimum(np.searchsorted(columns, indices), len(columns) - 1)
        read = columns[place] == indices
        parts[read] += by_trees[row[read]] * values[row[read], place[read]]
        present = np.bincount(row[read], values[row[read], place[read]], len(absent))
        intercepts, absent = intercepts + by_trees * expected, by_trees * (values.sum(axis=1) - present)
    return Parts(intercepts, parts, absent)
