"""Operation ids are what generated clients call their methods: they are short, and each is unique."""

from __future__ import annotations

import re

from service.api import create_app


def test_operation_ids_are_a_verb_and_its_object() -> None:
    paths = create_app().openapi()["paths"]
    names = [operation["operationId"] for methods in paths.values() for operation in methods.values()]
    assert len(set(names)) == len(names)
    assert [name for name in names if not re.fullmatch(r"[a-z]+([A-Z][a-z]+){1,3}", name)] == []
    assert paths["/v1/learners/{name}/predict"]["post"]["operationId"] == "predictEvents"
