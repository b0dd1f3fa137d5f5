"""Online logistic regression with the threshold 1/2: the plain baseline of the F-measure.

The last feature is a bias, always 1. With y01 in {0, 1} and t the events learnt, this one included:

    p = sigmoid(w.x);   w += (c / sqrt(t)) (y01 - p) x;   positive if p >= 1/2

This is the posterior of `learners.algorithms.fmeasure.fofo`, options and all, with a fixed threshold. O(non-zeros)
time per event, O(dim) memory.

References
----------
Liu, Zhang, Zhou, Yang. Faster Online Learning of Optimal Threshold for Consistent F-measure Optimization. NeurIPS 2018,
where it is the baseline LR.
Departures: those of the posterior, see `learners.algorithms.fmeasure.fofo`.
"""

from __future__ import annotations

from types import MappingProxyType

from learners.algorithms.fmeasure import Params, State, fofo, grow, init, learn, problems, weights

__all__ = ["TRAITS", "Params", "State", "grow", "init", "learn", "problems", "weights"]

TRAITS = fofo.TRAITS._replace(defaults=MappingProxyType({"threshold": {"objective": "fixed", "value": 0.5}}))
