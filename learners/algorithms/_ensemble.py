"""Score by several models of the same rows and a combination of their scores."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from learners.algorithms import _crosses, _members, _mix
from learners.algorithms._custom_members import CustomModel, custom_scores
from learners.algorithms._trees import Trees, attributions, gather, score_leaves
from learners.algorithms.base import Linear, dense_scores, sparse_scores
from learners.numerics import Counts, Matrix, Rows, Sparse, Vector, bare_kernel, kernel, length

__all__ = [
    "MEMBERS",
    "EmbeddedMember",
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
_BINS, _PAIRS, _TREES = 3, 4, 5  # places in the combination


class Ensemble(NamedTuple):
    """What scores events: the models in the order of the combination."""

    scoring: NDArray[np.bool_]  # (models,) which models score; the others have the score 0
    linear: tuple[Linear, ...]
    crosses: _crosses.Crosses
    trees: Trees
    custom: tuple[CustomModel, ...]
    mix: _mix.MixState
    members: _members.MemberCounts

    @property
    def names(self) -> list[tuple[str, str]]:
        """Name and kind of each model; one that is no member may have the name of a member."""
        return [*MEMBERS.items(), *((custom.name, custom.kind) for custom in self.custom)]

    @property
    def forests(self) -> list[Trees]:
        """The trees of all models."""
        return [self.trees, *(custom.model for custom in self.custom if isinstance(custom.model, Trees))]


@kernel
def score_members(scoring, linear, crosses, trees, X, indices, indptr, scores):  # type: ignore[no-untyped-def]
    """Score n dense rows by each model: fill `scores` (n, models), 0 for models that do not score.

    `indices` and `indptr` are the layout of the rows as sparse ones.
    """
    values, read = np.empty(X.shape[0]), np.empty((X.shape[0], trees.columns.shape[0]))
    for k in range(len(linear)):
        if scoring[k]:
            dense_scores(X, linear[k].w, linear[k].bias[0], values)
            _fill_column(scores, k, values)
    for t in range(X.shape[0]):
        for c in range(trees.columns.shape[0]):
            read[t, c] = X[t, trees.columns[c]]
    _score_others(scoring, crosses, trees, X.ravel(), indices, indptr, read, scores)


@kernel
def _score_sparse_members(scoring, linear, crosses, trees, data, indices, indptr, scores):  # type: ignore[no-untyped-def]
    n = indptr.shape[0] - 1
    values, read = np.empty(n), np.zeros((n, trees.columns.shape[0]))
    for k in range(len(linear)):
        if scoring[k]:
            sparse_scores(data, indices, indptr, linear[k].w, linear[k].bias[0], values)
            _fill_column(scores, k, values)
    gather(data, indices, indptr, trees.columns, read)
    _score_others(scoring, crosses, trees, data, indices, indptr, read, scores)


@kernel
def _score_others(scoring, crosses, trees, data, indices, indptr, read, scores):  # type: ignore[no-untyped-def]
    """Fill the scores of bins, pairs and trees; `read` (n, c) are the columns of the trees."""
    bins, pairs = np.empty(scores.shape[0]), np.empty(scores.shape[0])
    if scoring[_BINS] or scoring[_PAIRS]:
        _crosses.score_cells(crosses, data, indices, indptr, bins, pairs)
        _fill_column(scores, _BINS, bins)
        _fill_column(scores, _PAIRS, pairs)
    if scoring[_TREES]:
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
        _fill_column(scores, _TREES, bins)


@bare_kernel
def _fill_column(scores, k, values):  # type: ignore[no-untyped-def]
    """Fill a column by a loop: an assignment to a slice would compile numba's text of an error, for three seconds."""
    for t in range(values.shape[0]):
        scores[t, k] = values[t]


def _scores(ensemble: Ensemble, rows: Rows) -> Matrix:
    """Return the score of each model, (n, models)."""
    model = ensemble[:4]
    scores = np.zeros((length(rows), len(ensemble.scoring)))
    if isinstance(rows, Sparse):
        _score_sparse_members(*model, *rows, scores)
    else:
        score_members(*model, rows, *_crosses.layout(*rows.shape), scores)
    for k, custom in enumerate(ensemble.custom, len(MEMBERS)):
        if ensemble.scoring[k]:
            scores[:, k] = custom_scores(custom, rows)
    return scores


def ensemble_scores(ensemble: Ensemble, rows: Rows) -> Vector:
    """Score each row, (n,)."""
    return _mix.mix(ensemble.mix, _scores(ensemble, rows))


def ensemble_weights(ensemble: Ensemble) -> dict[str, float]:
    """Return the weight of each model that scores already: log-odds per standard deviation of its score."""
    weights = np.where(ensemble.mix.variance > 0.0, ensemble.mix.factors[:-1], 0.0).tolist()
    return {
        name: weight
        for (name, _), weight, scores in zip(ensemble.names, weights, ensemble.scoring, strict=True)
        if scores
    }


def ensemble_members(ensemble: Ensemble) -> list[_members.Member]:
    """Return the models that score already, and last the combination. O(bins)."""
    *bins, combined = ensemble.members.bins.sum(axis=0, dtype=np.int64)
    weights = ensemble_weights(ensemble)
    members = [
        _members.Member(name, kind, weights[name], counts)
        for (name, kind), counts, scores in zip(ensemble.names, bins, ensemble.scoring, strict=True)
        if scores
    ]
    return [*members, _members.Member("auto", "combination", None, combined)]


class EmbeddedMember(NamedTuple):
    """A model behind an embedding, in the combination's scores of n rows."""

    model: CustomModel
    slopes: Vector  # (n,) what its score counts


class Parts(NamedTuple):
    """The scores of n rows as sums: intercept + the parts of the row's numbers + absent + the embedded models'."""

    intercepts: Vector  # (n,)
    numbers: Vector  # in the order of the rows' numbers
    absent: Vector  # (n,) of columns that a sparse row lacks
    embedded: list[EmbeddedMember]  # models whose scores are no sums


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
    parts, scoring = np.zeros(len(data)), ensemble.scoring
    absent = np.zeros(length(rows))
    if scoring[_BINS] or scoring[_PAIRS]:
        main, total = slopes[:, _BINS].copy(), slopes[:, _PAIRS].copy()
        parts = _crosses.attribute(ensemble.crosses, rows, main, total)
        intercepts = intercepts + (main + total) * ensemble.crosses.bias[0]
    singles = [*zip(range(len(MEMBERS)), (*ensemble.linear, None, None, ensemble.trees), strict=True)]
    embedded = []
    for k, custom in enumerate(ensemble.custom, len(MEMBERS)):
        if custom.space is None:
            singles.append((k, custom.model))
        elif scoring[k]:
            embedded.append(EmbeddedMember(custom, slopes[:, k].copy()))
    for k, model in singles:
        if not scoring[k]:
            continue
        if isinstance(model, Linear):
            parts[present_columns] += (slopes[row, k] * data * model.w[indices])[present_columns]
            intercepts = intercepts + slopes[:, k] * model.bias[0]
        elif isinstance(model, Trees):
            intercepts = intercepts + _attribute_trees(model, rows, slopes[:, k].copy(), row, indices, parts, absent)
    return Parts(intercepts, parts, absent, embedded)


def _attribute_trees(
    trees: Trees, rows: Rows, slopes: Vector, row: Counts, indices: Counts, parts: Vector, absent: Vector
) -> Vector:
    """Add the attributions by trees that count by slopes (n,) to `parts` and `absent`; return the intercepts (n,)."""
    columns = trees.columns
    expected, values = attributions(trees, rows, np.arange(len(columns)), len(columns))
    place = np.minimum(np.searchsorted(columns, indices), len(columns) - 1)
    read = columns[place] == indices
    parts[read] += slopes[row[read]] * values[row[read], place[read]]
    present = np.bincount(row[read], values[row[read], place[read]], len(absent))
    absent += slopes * (values.sum(axis=1) - present)
    return slopes * expected
