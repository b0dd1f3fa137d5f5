"""Online F-measure optimization (OFO): logistic regression with half of the F so far as the threshold.

The last feature is a bias, always 1. With y01 in {0, 1} and t the events learnt, this one included:

    p = sigmoid(w.x);   w += (c / sqrt(t)) (y01 - p) x
    positive if p >= TP / (positives + predicted positives), all three counted over the events before

The best threshold of a posterior is half of the best F, and the right-hand side is half of the F so far. It is the
objective "f1-ofo" of `learners.decisions.threshold`. The posterior is that of `learners.algorithms.fmeasure.fofo`,
options and all. O(non-zeros) time per event, O(dim) memory.

References
----------
Busa-Fekete, Szörényi, Dembczyński, Hüllermeier. Online F-Measure Optimization. NeurIPS 2015, Algorithm 1.
Liu, Zhang, Zhou, Yang. Faster Online Learning of Optimal Threshold for Consistent F-measure Optimization. NeurIPS 2018,
where it is the baseline OFO.
Departures: those of the posterior, see `learners.algorithms.fmeasure.fofo`.
"""

from __future__ import annotations

from types import MappingProxyType

from learners.algorithms.fmeasure import Params, State, fofo, grow, init, learn, problems, weights

__all__ = ["TRAITS", "Params", "State", "grow", "init", "learn", "problems", "weights"]

TRAITS = fofo.TRAITS._replace(defaults=MappingProxyType({"threshold": {"objective": "f1-ofo"}}))
