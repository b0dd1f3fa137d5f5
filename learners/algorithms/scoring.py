"""Score rows by what an algorithm publishes: weights, trees, or an ensemble of both."""

from __future__ import annotations

from learners.algorithms import _crosses, _members, _mix
from learners.algorithms._ensemble import Ensemble, ensemble_scores
from learners.algorithms._trees import Trees, tree_scores
from learners.algorithms.base import Linear, linear_scores
from learners.numerics import Matrix, Rows

__all__ = ["ScoringModel", "copied", "model_scores", "size"]

ScoringModel = Linear | Trees | Ensemble


def model_scores(model: ScoringModel, rows: Rows) -> Matrix:
    """Score each row: (n,), or (n, k) for k planes."""
    if isinstance(model, Linear):
        return linear_scores(model, rows)
    return tree_scores(model, rows) if isinstance(model, Trees) else ensemble_scores(model, rows)


def copied(model: ScoringModel) -> ScoringModel:
    """Copy what learning changes in place. O(size); trees never change in place, because a fit replaces them."""
    if isinstance(model, Trees):
        return model
    if isinstance(model, Linear):
        return Linear._make(array.copy() for array in model)
    return Ensemble(
        model.scoring,
        tuple(Linear._make(array.copy() for array in linear) for linear in model.linear),
        _crosses.Crosses._make(array.copy() for array in model.crosses),
        model.trees,
        _mix.MixState._make(array.copy() for array in model.mix),
        _members.MemberCounts._make(array.copy() for array in model.members),
    )


def size(model: ScoringModel) -> int:
    """Return how many numbers of eight bytes `copied` copies."""
    if isinstance(model, Trees):
        return 0
    parts = model if isinstance(model, Linear) else (*sum(model.linear, ()), *model.crosses, *model.mix, *model.members)
    return int(sum(array.nbytes for array in parts)) // 8
