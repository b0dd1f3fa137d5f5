"""Schemas of a learner's settings as components of the OpenAPI document: the library describes them.

Models refer to a component by its name. Features are told apart by `kind`; parameters have a component for each
algorithm.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import WithJsonSchema

from learners import FEATURE_KINDS, Parameters, algorithms
from learners.algorithms import describe
from learners.decisions import Calibration, Threshold
from learners.features import Embedding, LateLabels, Scaling
from learners.metrics import MetricSettings

__all__ = [
    "AlgorithmParams",
    "CalibrationPart",
    "EmbeddingPart",
    "FeaturesPart",
    "LatePart",
    "MetricsPart",
    "ScalingPart",
    "ThresholdPart",
    "components",
    "with_references",
]

_PLACE = "#/components/schemas/"
_MARK = "x-component"
_PARTS: dict[str, type[Parameters]] = {
    "ScalingSettings": Scaling,
    "EmbeddingSettings": Embedding,
    "CalibrationSettings": Calibration,
    "ThresholdSettings": Threshold,
    "MetricSettings": MetricSettings,
    "LateLabelSettings": LateLabels,
}


def _component(name: str) -> WithJsonSchema:
    """Return the schema of a member that is a component, by a mark: Pydantic takes no reference but to its models."""
    return WithJsonSchema({_MARK: name})


FeaturesPart = Annotated[dict[str, Any], _component("FeatureSettings")]
AlgorithmParams = Annotated[dict[str, Any], _component("AlgorithmParams")]
ScalingPart = Annotated[dict[str, Any], _component("ScalingSettings")]
EmbeddingPart = Annotated[dict[str, Any], _component("EmbeddingSettings")]
CalibrationPart = Annotated[dict[str, Any], _component("CalibrationSettings")]
ThresholdPart = Annotated[dict[str, Any], _component("ThresholdSettings")]
MetricsPart = Annotated[dict[str, Any], _component("MetricSettings")]
LatePart = Annotated[dict[str, Any], _component("LateLabelSettings")]


def components() -> dict[str, dict[str, Any]]:
    """Return the components by name."""
    kinds = {kind: f"{kind.capitalize()}Features" for kind in FEATURE_KINDS}
    params = {name: f"{name.title().replace('-', '')}Params" for name in algorithms()}
    return {
        **{kinds[kind]: features.schema() for kind, features in FEATURE_KINDS.items()},
        "FeatureSettings": {
            "oneOf": [{"$ref": f"{_PLACE}{name}"} for name in kinds.values()],
            "discriminator": {
                "propertyName": "kind",
                "mapping": {kind: f"{_PLACE}{name}" for kind, name in kinds.items()},
            },
        },
        **{component: _params(name) for name, component in params.items()},
        "AlgorithmParams": {
            "anyOf": [{"$ref": f"{_PLACE}{name}"} for name in params.values()],
            "description": "those of the learner's `algorithm`",
        },
        **{name: part.schema() for name, part in _PARTS.items()},
    }


def _params(algorithm: str) -> dict[str, Any]:
    """Return the schema of an algorithm's parameters; a custom member refers to the components of its parts."""
    schema: dict[str, Any] = describe(algorithm)["params"]
    if "members" in schema["properties"]:
        _, custom = schema["properties"]["members"]["items"]["anyOf"]
        for name, component in (("params", "AlgorithmParams"), ("embedding", "EmbeddingSettings")):
            custom["properties"][name] = {"$ref": f"{_PLACE}{component}"}
    return schema


def with_references(schema: Any) -> Any:
    """Return an OpenAPI document, or a part of it, with references in place of the marks of components."""
    if isinstance(schema, list):
        return [with_references(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        "$ref" if name == _MARK else name: f"{_PLACE}{value}" if name == _MARK else with_references(value)
        for name, value in schema.items()
    }
