"""Numbers with a unit name it in their JSON schemas: those of the catalogue, and those of the OpenAPI document."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from service.api.app import create_app
from service.settings import Settings
from tests.harness.apps import client

NAME_WITH_UNIT = re.compile(
    r"(^|_)(seconds|bytes)$|_per_second$|^(clock|time|times|since_clock|label_ttl|label_delay_(median|p90))$"
)
DESCRIPTION_WITH_UNIT = re.compile(r"^(seconds|bytes)\b|\bseconds since the epoch\b")


def numbers(schema: Any) -> Iterator[dict[str, Any]]:
    """Return the schemas of the numbers that a value may be, or may hold a list of."""
    for item in (schema, *schema.get("anyOf", ())):
        if item.get("type") in ("number", "integer"):
            yield item
        elif item.get("type") == "array":
            yield from numbers(item["items"])


def fields(schema: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Everything in a schema that has properties, by name."""
    if isinstance(schema, dict):
        properties = schema.get("properties")
        if isinstance(properties, dict):
            yield from properties.items()
        schema = list(schema.values())
    if isinstance(schema, list):
        for part in schema:
            yield from fields(part)


def unitless(schema: Any) -> Iterator[tuple[str, str | None]]:
    """Return the names of numbers that should have a unit and have none, or the other way round, with the unit."""
    for name, item in fields(schema):
        for number in numbers(item):
            has = bool(NAME_WITH_UNIT.search(name) or DESCRIPTION_WITH_UNIT.search(item.get("description", "")))
            if has != ("unit" in number):
                yield name, number.get("unit")


async def test_settings_name_their_units():
    async with client() as http:
        catalogue = (await http.get("/v1/algorithms")).json()
    assert list(unitless(catalogue)) == []
    parts = {part: catalogue["parts"][part]["properties"] for part in ("threshold", "late", "learner")}
    assert parts["threshold"]["unit_seconds"]["unit"] == parts["late"]["label_ttl"]["unit"] == "seconds"
    assert parts["learner"]["window_seconds"]["anyOf"][0]["unit"] == "seconds"
    assert parts["late"]["max_bytes"]["unit"] == "bytes"


def test_openapi_descriptions_name_their_units():
    document = create_app(Settings(store="memory:")).openapi()
    assert list(unitless(document["components"])) == []
    report = {number["unit"] for _, item in fields(document) for number in numbers(item) if "unit" in number}
    assert report == {"seconds", "seconds since the epoch", "per second", "bytes"}
    setting = document["components"]["schemas"]["LearnerConfig"]["properties"]["window_seconds"]["anyOf"][0]
    assert setting == {"type": "number", "exclusiveMinimum": 0, "maximum": 1e10, "unit": "seconds"}
