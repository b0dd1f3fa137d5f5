"""Encoding of features as numbers: kinds of features, scaling, embeddings, labels, costs.

Start with `feature_kinds`, dense and sparse features, then `named`, hashed and declared ones. `scaling` comes next in
the pipeline, then `kernel_approximation`.
"""

from learners.features import kernel_approximation, retained_events, scaling
from learners.features.column_map import ColumnMap, OneHot, columns_of
from learners.features.costs import costs_of, futile, misfit
from learners.features.feature_kinds import (
    LARGEST,
    MAX_COLUMNS,
    MAX_NONZERO,
    MAX_PROBLEMS,
    Dense,
    Features,
    SparseColumns,
)
from learners.features.kernel_approximation import Embedding, EmbeddingState
from learners.features.labels import Labels, as_array
from learners.features.late_labels import LateLabels
from learners.features.named import Field, Named, Table
from learners.features.retained_events import Retained
from learners.features.scaling import Scaling, ScalingState

__all__ = [
    "LARGEST",
    "MAX_COLUMNS",
    "MAX_NONZERO",
    "MAX_PROBLEMS",
    "ColumnMap",
    "Dense",
    "Embedding",
    "EmbeddingState",
    "Features",
    "Field",
    "Labels",
    "LateLabels",
    "Named",
    "OneHot",
    "Retained",
    "Scaling",
    "ScalingState",
    "SparseColumns",
    "Table",
    "as_array",
    "columns_of",
    "costs_of",
    "futile",
    "kernel_approximation",
    "misfit",
    "retained_events",
    "scaling",
]
