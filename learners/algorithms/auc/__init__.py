"""Algorithms of the papers that maximise AUC.

Start with `cbr_diag`, the shortest one that learns from each event; `nbauc` and `nsauc` learn from batches.
"""

from learners.algorithms.auc import nbauc
from learners.algorithms.auc.nbauc import Params, State, fit, init, weights

__all__ = ["Params", "State", "fit", "init", "nbauc", "weights"]
