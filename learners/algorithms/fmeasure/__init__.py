"""Algorithms of the papers that maximise F-measure."""

from learners.algorithms.fmeasure import fofo
from learners.algorithms.fmeasure.fofo import Params, State, grow, init, learn, problems, weights

__all__ = ["Params", "State", "fofo", "grow", "init", "learn", "problems", "weights"]
