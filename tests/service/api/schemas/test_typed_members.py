"""Members of the OpenAPI document have types: settings by components of the library, features by their `kind`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from learners import FEATURE_KINDS, algorithms
from service.api import create_app

DOCUMENT = create_app().openapi()
SCHEMAS = DOCUMENT["components"]["schemas"]
BARE = {  # objects whose members this document cannot know: JSON schemas, and what depends on the kind of a thing
    "/paths//v1/learners/{name}/metrics/curves/get/responses/200/content/application/json/schema",
    "/components/schemas/AlgorithmDocument/properties/defaults",
    "/components/schemas/AlgorithmDocument/properties/params",
    "/components/schemas/AlgorithmDocument/properties/usual/additionalProperties",
    "/components/schemas/Annotation/properties/data",
    "/components/schemas/Catalogue/properties/parts",
    "/components/schemas/ColumnarScores/properties/explanations/anyOf/0/items",
    "/components/schemas/ProblemItem/properties/expected/anyOf/0",
}


def parts(node: Any, place: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(node, dict):
        yield place, node
        for name, member in node.items():
            yield from parts(member, f"{place}/{name}")
    elif isinstance(node, list):
        for i, member in enumerate(node):
            yield from parts(member, f"{place}/{i}")


def test_no_other_object_is_without_members() -> None:
    bare = {
        place
        for place, part in parts(DOCUMENT)
        if part.get("type") == "object"
        and "properties" not in part
        and not isinstance(part.get("additionalProperties"), dict)
    }
    assert bare == BARE


def test_every_reference_has_its_component() -> None:
    references = {part["$ref"] for _, part in parts(DOCUMENT) if isinstance(part.get("$ref"), str)}
    assert {reference.rpartition("/")[2] for reference in references} <= set(SCHEMAS)
    assert "x-component" not in str(DOCUMENT)


def test_features_are_told_apart_by_their_kind() -> None:
    features = SCHEMAS["FeatureSettings"]
    mapping = features["discriminator"]["mapping"]
    assert set(mapping) == set(FEATURE_KINDS)
    assert [{"$ref": reference} for reference in mapping.values()] == features["oneOf"]
    for kind, reference in mapping.items():
        component = SCHEMAS[reference.rpartition("/")[2]]
        assert component["properties"]["kind"]["const"] == kind
        assert "kind" in component["required"]
    assert SCHEMAS["LearnerConfig"]["properties"]["features"]["$ref"].endswith("/FeatureSettings")
    assert len(SCHEMAS["AlgorithmParams"]["anyOf"]) == len(algorithms())


def test_a_custom_member_of_auto_has_the_components_of_a_learner() -> None:
    _, custom = SCHEMAS["AutoParams"]["properties"]["members"]["items"]["anyOf"]
    references = {name: custom["properties"][name]["$ref"].rpartition("/")[2] for name in ("params", "embedding")}
    assert references == {"params": "AlgorithmParams", "embedding": "EmbeddingSettings"}
