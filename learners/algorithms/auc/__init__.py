"""Algorithms of the papers that maximise AUC."""

from learners.algorithms.auc import nbauc
from learners.algorithms.auc.nbauc import Params, State, fit, init, weights

__all__ = ["Params", "State", "fit", "init", "nbauc", "weights"]
