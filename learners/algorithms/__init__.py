"""The algorithms, one file each.

Start with the protocol in `base`, then read `auc/cbr_diag.py`. `registry` finds the files. There are four families:
`auc` maximises AUC, `fmeasure` optimises the F-measure, `ordinal` predicts ranks, and `baselines` has the algorithms
that the papers compare with. Files that begin with an underscore hold steps that several algorithms share.
"""

from learners.algorithms import registry
from learners.algorithms.base import (
    Algorithm,
    BatchAlgorithm,
    Linear,
    OnlineAlgorithm,
    OrdinalAlgorithm,
    Size,
    Traits,
    dense_scores,
    linear_scores,
)
from learners.algorithms.registry import algorithms, describe, is_baseline

__all__ = [
    "Algorithm",
    "BatchAlgorithm",
    "Linear",
    "OnlineAlgorithm",
    "OrdinalAlgorithm",
    "Size",
    "Traits",
    "algorithms",
    "dense_scores",
    "describe",
    "is_baseline",
    "linear_scores",
    "registry",
]
