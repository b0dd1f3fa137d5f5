"""The documents of the HTTP interface, as the OpenAPI page shows them.

The hot routes decode their bodies themselves (`wire.py`); these models describe them. Settings of a learner are
described by the library (`Parameters.schema`), so that a new algorithm is documented by existing.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from service.api.schemas.events import (
    ClassCounts,
    Contribution,
    Event,
    Explained,
    LabelledEvent,
    LabelsBody,
    LateLabel,
    OrdinalPrediction,
    OrdinalPredictReply,
    OrdinalUpdateReply,
    OrdinalUpdateResult,
    PredictBody,
    Prediction,
    PredictReply,
    Source,
    UpdateBody,
    UpdateReply,
    UpdateResult,
)
from service.api.schemas.groups import (
    Comparison,
    GroupBody,
    GroupDocument,
    GroupList,
    GroupPredictReply,
    GroupUpdateReply,
)
from service.api.schemas.learners import (
    CloneBody,
    Digest,
    FitDocument,
    LearnerChange,
    LearnerConfig,
    LearnerDocument,
    LearnerList,
    PendingDocument,
    Restored,
    SnapshotDocument,
    SnapshotList,
    Weight,
    Weights,
)
from service.api.schemas.metrics import (
    Alarm,
    Alarms,
    Confusion,
    FigureSettings,
    History,
    LearnerFigureList,
    LearnerFigures,
    LearnerInCreation,
    Metrics,
    OrdinalMetrics,
    RankFigures,
    ServedFigures,
    SmallWindow,
    TotalFigures,
    TotalRankFigures,
    WindowFigures,
    WindowRankFigures,
)
from service.api.schemas.node import AlgorithmDocument, Catalogue, Health, KeyDocument, KeyLimits, Nodes
from service.api.schemas.problems import ProblemDocument, ProblemItem

__all__ = [
    "MODELS",
    "Alarm",
    "Alarms",
    "AlgorithmDocument",
    "Catalogue",
    "ClassCounts",
    "CloneBody",
    "Comparison",
    "Confusion",
    "Contribution",
    "Digest",
    "Event",
    "Explained",
    "FigureSettings",
    "FitDocument",
    "GroupBody",
    "GroupDocument",
    "GroupList",
    "GroupPredictReply",
    "GroupUpdateReply",
    "Health",
    "History",
    "KeyDocument",
    "KeyLimits",
    "LabelledEvent",
    "LabelsBody",
    "LateLabel",
    "LearnerChange",
    "LearnerConfig",
    "LearnerDocument",
    "LearnerFigureList",
    "LearnerFigures",
    "LearnerInCreation",
    "LearnerList",
    "Metrics",
    "Nodes",
    "OrdinalMetrics",
    "OrdinalPredictReply",
    "OrdinalPrediction",
    "OrdinalUpdateReply",
    "OrdinalUpdateResult",
    "PendingDocument",
    "PredictBody",
    "PredictReply",
    "Prediction",
    "ProblemDocument",
    "ProblemItem",
    "RankFigures",
    "Restored",
    "ServedFigures",
    "SmallWindow",
    "SnapshotDocument",
    "SnapshotList",
    "Source",
    "TotalFigures",
    "TotalRankFigures",
    "UpdateBody",
    "UpdateReply",
    "UpdateResult",
    "Weight",
    "Weights",
    "WindowFigures",
    "WindowRankFigures",
    "request_body",
]

MODELS: list[type[BaseModel]] = [
    UpdateBody,
    PredictBody,
    LabelsBody,
    LearnerConfig,
    LearnerChange,
    CloneBody,
    GroupBody,
    ProblemDocument,
    UpdateReply,
    PredictReply,
]


def request_body(model: type[BaseModel], examples: dict[str, Any]) -> dict[str, Any]:
    """The OpenAPI entry of a body that the route decodes itself."""
    named = {name: {"value": value} for name, value in examples.items()}
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema, "examples": named}}}}
