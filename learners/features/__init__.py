"""Encoding of features as numbers: kinds of features, scaling, embeddings, labels, costs.

Start with `feature_kinds`, dense and sparse features, then `named`, hashed and declared ones. `scaling` comes next in
the pipeline, then `kernel_approximation`.
"""

from learners.features import field_quality, kernel_approximation, retained_events, scaling
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
from learners.features.field_encoder import MAX_NAME
from learners.features.field_quality import QUALITY_KINDS, FieldBlock
from learners.features.field_summary import REMARKS, FieldKind, FieldSummary
from learners.features.fields import MAX_FIELDS, completed_fields, is_entry, kind_after
from learners.features.kernel_approximation import Embedding, EmbeddingState
from learners.features.labels import Labels, as_array
from learners.features.late_labels import LateLabels
from learners.features.named import Field, Named, Table, spelt_category
from learners.features.retained_events import EventWindow
from learners.features.scaling import Scaling, ScalingState
from learners.features.value_rule import (
    MISSING,
    ValueKind,
    cell_value,
    column_number,
    declared_number,
    is_missing,
    is_plain,
    is_too_large,
    name_reason,
    normalised,
    read_text,
    sent_as,
    value_of,
)
from learners.features.words import WordRule, words_of

__all__ = [
    "LARGEST",
    "MAX_COLUMNS",
    "MAX_FIELDS",
    "MAX_NAME",
    "MAX_NONZERO",
    "MAX_PROBLEMS",
    "MISSING",
    "QUALITY_KINDS",
    "REMARKS",
    "ColumnMap",
    "Dense",
    "Embedding",
    "EmbeddingState",
    "EventWindow",
    "Features",
    "Field",
    "FieldBlock",
    "FieldKind",
    "FieldSummary",
    "Labels",
    "LateLabels",
    "Named",
    "OneHot",
    "Scaling",
    "ScalingState",
    "SparseColumns",
    "Table",
    "ValueKind",
    "WordRule",
    "as_array",
    "cell_value",
    "column_number",
    "columns_of",
    "completed_fields",
    "costs_of",
    "declared_number",
    "field_quality",
    "futile",
    "is_entry",
    "is_missing",
    "is_plain",
    "is_too_large",
    "kernel_approximation",
    "kind_after",
    "misfit",
    "name_reason",
    "normalised",
    "read_text",
    "retained_events",
    "scaling",
    "sent_as",
    "spelt_category",
    "value_of",
    "words_of",
]
