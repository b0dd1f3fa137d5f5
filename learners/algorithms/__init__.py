"""The algorithms, one file each.

Start with the protocol in `base`, then read `auc/cbr_diag.py`. `registry` finds the files. There are six families:
`ensembles` combines models, `auc` maximises AUC, `fmeasure` optimises the F-measure, `ordinal` predicts ranks, `trees`
has ensembles of decision trees, and `baselines` has the algorithms that the papers compare with. Files that begin with
an underscore hold steps that several algorithms share. `scoring` scores rows by the model of any of them.
"""

from learners.algorithms import registry
from learners.algorithms._crosses import Crosses, layout
from learners.algorithms._custom_members import CustomMember, custom_scores
from learners.algorithms._ensemble import Ensemble, ensemble_members, ensemble_parts, ensemble_weights, score_members
from learners.algorithms._mix import MixState, mix_scores
from learners.algorithms._trees import Trees, attributions
from learners.algorithms.base import (
    Algorithm,
    BatchAlgorithm,
    FittedAlgorithm,
    Linear,
    OnlineAlgorithm,
    OrdinalAlgorithm,
    Size,
    Traits,
    dense_scores,
    initial,
    linear_scores,
    traits_of,
)
from learners.algorithms.registry import algorithms, describe, is_baseline
from learners.algorithms.scoring import ScoringModel, copied, embeddings_of, model_scores, size, trees_of

__all__ = [
    "Algorithm",
    "BatchAlgorithm",
    "Crosses",
    "CustomMember",
    "Ensemble",
    "FittedAlgorithm",
    "Linear",
    "MixState",
    "OnlineAlgorithm",
    "OrdinalAlgorithm",
    "ScoringModel",
    "Size",
    "Traits",
    "Trees",
    "algorithms",
    "attributions",
    "copied",
    "custom_scores",
    "dense_scores",
    "describe",
    "embeddings_of",
    "ensemble_members",
    "ensemble_parts",
    "ensemble_weights",
    "initial",
    "is_baseline",
    "layout",
    "linear_scores",
    "mix_scores",
    "model_scores",
    "registry",
    "score_members",
    "size",
    "traits_of",
    "trees_of",
]
