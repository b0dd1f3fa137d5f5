"""Score rows by what an algorithm publishes: weights, trees, or an ensemble of both."""

from __future__ import annotations

from typing import Any

from learners.algorithms import _crosses, _members, _mix
from learners.algorithms._custom_members import single_scores
from learners.algorithms._ensemble import Ensemble, ensemble_scores
from learners.algorithms._trees import Trees
from learners.algorithms.base import Linear
from learners.features import EmbeddingState
from learners.numerics import Matrix, Rows

__all__ = ["ScoringModel", "copied", "embeddings_of", "model_scores", "size", "trees_of"]

ScoringModel = Linear | Trees | Ensemble


def model_scores(model: ScoringModel, rows: Rows) -> Matrix:
    """Score each row: (n,), or (n, k) for k planes."""
    return ensemble_scores(model, rows) if isinstance(model, Ensemble) else single_scores(model, rows)


def copied(model: ScoringModel) -> ScoringModel:
    """Copy what learning changes in place. O(size); trees never change in place, because a fit replaces them."""
    if isinstance(model, Ensemble):
        return model._replace(
            linear=tuple(_copied_weights(linear) for linear in model.linear),
            crosses=_crosses.Crosses._make(array.copy() for array in model.crosses),
            custom=tuple(custom._replace(model=_copied(custom.model)) for custom in model.custom),
            mix=_mix.MixState._make(array.copy() for array in model.mix),
            members=_members.MemberCounts._make(array.copy() for array in model.members),
        )
    return _copied(model)


def _copied(model: Linear | Trees) -> Linear | Trees:
    return model if isinstance(model, Trees) else _copied_weights(model)


def _copied_weights(model: Linear) -> Linear:
    return Linear._make(array.copy() for array in model)


def size(model: ScoringModel) -> int:
    """Return how many numbers of eight bytes `copied` copies."""
    if isinstance(model, Trees):
        return 0
    if isinstance(model, Linear):
        return _size(model)
    singles = (*model.linear, *(custom.model for custom in model.custom if isinstance(custom.model, Linear)))
    return _size((*sum(singles, ()), *model.crosses, *model.mix, *model.members))


def _size(arrays: tuple[Any, ...]) -> int:
    return int(sum(array.nbytes for array in arrays)) // 8


def trees_of(model: ScoringModel) -> list[Trees]:
    """Return the ensembles of trees that score events."""
    if isinstance(model, Ensemble):
        return model.forests
    return [model] if isinstance(model, Trees) else []


def embeddings_of(model: ScoringModel) -> list[EmbeddingState]:
    """Return the embeddings of an ensemble's members."""
    if not isinstance(model, Ensemble):
        return []
    return [custom.space for custom in model.custom if custom.space is not None]
