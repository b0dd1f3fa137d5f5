"""Update rules, one file each, found by their file.

Start with `base`, what an algorithm is, then read `auc/cbr_diag.py`. `registry` finds them. The families: `auc` ranks,
`fmeasure` optimises F-measure, `ordinal` has ranks for labels, `baselines` are what the papers compare with.
Files that begin with an underscore are steps that several algorithms share.
"""

from learners.algorithms import registry
from learners.algorithms.base import (
    Algorithm,
    Batch,
    Linear,
    Online,
    Ordinal,
    Size,
    Traits,
    dense_scores,
    linear_scores,
)
from learners.algorithms.registry import algorithms, describe, is_baseline

__all__ = [
    "Algorithm",
    "Batch",
    "Linear",
    "Online",
    "Ordinal",
    "Size",
    "Traits",
    "algorithms",
    "dense_scores",
    "describe",
    "is_baseline",
    "linear_scores",
    "registry",
]
