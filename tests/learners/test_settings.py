"""Declared settings: conversions, every refusal with its pointer, JSON round trips and schemas."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners import algorithms
from learners.config import FEATURE_KINDS
from learners.decisions.calibration import Calibration
from learners.decisions.threshold import Threshold
from learners.features.feature_kinds import Dense, SparseColumns
from learners.features.named import Field, Named, Table
from learners.features.scaling import Scaling
from learners.settings import InvalidInput, Parameters, Problem, param, pointer, required, show


@dataclass(frozen=True)
class Sample(Parameters):
    """One field of each type."""

    count: int = required("how many", least=1, most=1_000_000)
    share: float = param(0.5, "a share", above=0, below=1)
    kind: Literal["a", "b"] = param("a", "one of two")
    limit: float | None = param(None, "perhaps", above=0, unit="seconds")
    flag: bool = param(False, "yes or no")
    names: tuple[str, ...] = param((), "several")


def refused(values: Any, kind: type[Parameters] = Sample) -> dict[str, str]:
    """Pointer -> detail of everything that is wrong with `values`."""
    with pytest.raises(InvalidInput) as caught:
        kind.of(values)
    return {problem.pointer: problem.detail for problem in caught.value.problems}


def test_values_are_converted_to_their_types() -> None:
    sample = Sample.of({"count": 3.0, "share": 0.25, "limit": 2, "flag": True, "names": ["x", "y"]})
    assert sample == Sample(3, 0.25, "a", 2.0, True, ("x", "y"))
    assert [type(value) for value in (sample.count, sample.limit, sample.names)] == [int, float, tuple]
    assert Sample(1).to_json() == {
        "count": 1, "share": 0.5, "kind": "a", "limit": None, "flag": False, "names": []
    }  # fmt: skip
    with pytest.raises(dataclasses.FrozenInstanceError):
        sample.count = 4  # type: ignore[misc]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("count", 0),
        ("count", 1_000_001),
        ("count", 1.5),
        ("count", True),
        ("count", "3"),
        ("count", None),
        ("count", 1e300),
        ("count", math.nan),
        ("share", 0),
        ("share", -1),
        ("share", 1.0),
        ("share", math.nan),
        ("share", -math.inf),
        ("share", False),
        ("share", None),
        ("share", [0.5]),
        ("kind", "c"),
        ("kind", 1),
        ("kind", ["a"]),
        ("limit", 0.0),
        ("limit", "much"),
        ("flag", 1),
        ("names", "x"),
        ("names/1", ["x", 1]),
        ("names/0", ["\ud800"]),
    ],
)
def test_an_invalid_value_is_refused(path: str, value: Any) -> None:
    assert [*refused({"count": 1, path.partition("/")[0]: value})] == [f"/{path}"]


NAMES = ["count", "flag", "kind", "limit", "names", "share"]


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"count": 0}, ("/count", "invalid", 0, {"type": "integer", "minimum": 1, "maximum": 1_000_000})),
        ({"count": 1, "kind": "c"}, ("/kind", "invalid", "c", {"type": "string", "enum": ["a", "b"]})),
        ({"count": 1, "kind": ["a"]}, ("/kind", "invalid", None, {"type": "string", "enum": ["a", "b"]})),
        ({"count": 1, "kind": "c" * 10**6}, ("/kind", "invalid", "c" * 120, {"type": "string", "enum": ["a", "b"]})),
        ({"count": 1, "flag": 10**400}, ("/flag", "invalid", None, {"type": "boolean"})),
        ({"count": 1, "shar": 2}, ("/shar", "unknown", "shar", {"enum": NAMES})),
    ],
    ids=["bound", "choice", "list", "long", "large", "unknown"],
)  # fmt: skip
def test_a_problem_contains_code_value_and_expectation_as_data(
    values: dict[str, Any], problem: tuple[Any, ...]
) -> None:
    with pytest.raises(InvalidInput) as caught:
        Sample.of(values)
    (entry,) = [problem.to_json() for problem in caught.value.problems]
    assert (entry["pointer"], entry["code"], entry.get("value"), entry["expected"]) == problem
    json.dumps(entry, allow_nan=False).encode()


def test_a_missing_setting_has_no_value() -> None:
    with pytest.raises(InvalidInput) as caught:
        Sample.of({})
    (entry,) = [problem.to_json() for problem in caught.value.problems]
    assert (entry["pointer"], entry["code"], "value" in entry) == ("/count", "missing", False)


@pytest.mark.parametrize("digits", [400, 5000])
@pytest.mark.parametrize("name", ["count", "share"])
def test_numbers_beyond_float_range_are_refused(digits: int, name: str) -> None:
    details = refused({"count": 1, name: 10**digits})
    assert list(details) == [f"/{name}"]
    assert len(details[f"/{name}"]) < 120


def test_all_problems_are_listed_together() -> None:
    details = refused({"share": 7, "kind": "c", "a/b~c": 1, "\ud800": 1, 5: 1})
    assert set(details) == {"/share", "/kind", "/a~1b~0c", "/\\ud800", "/5", "/count"}
    assert set(refused({"count": 0, "share": 7, "other": 1})) == {"/count", "/share", "/other"}


@pytest.mark.parametrize("values", [None, 1, "x", [1], [["count", 1]]])
def test_non_objects_are_refused(values: Any) -> None:
    assert list(refused(values)) == [""]


def test_an_error_joins_all_problems_and_can_be_prefixed() -> None:
    error = InvalidInput([Problem("/a", "is bad"), Problem("", "is worse")])
    assert isinstance(error, ValueError)
    assert error.under("/params").problems == [Problem("/params/a", "is bad"), Problem("/params", "is worse")]


def test_a_mutable_default_raises_a_type_error() -> None:
    with pytest.raises(TypeError, match="immutable"):
        param([], "a list")


def test_the_schema_matches_the_checks() -> None:
    assert Sample.schema() == {
        "type": "object",
        "properties": {
            "count": {"type": "integer", "minimum": 1, "maximum": 1_000_000, "description": "how many"},
            "share": {
                "type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1, "description": "a share", "default": 0.5
            },
            "kind": {"type": "string", "enum": ["a", "b"], "description": "one of two", "default": "a"},
            "limit": {
                "anyOf": [{"type": "number", "exclusiveMinimum": 0, "unit": "seconds"}, {"type": "null"}],
                "description": "perhaps",
                "default": None,
            },
            "flag": {"type": "boolean", "description": "yes or no", "default": False},
            "names": {"type": "array", "items": {"type": "string"}, "description": "several", "default": []},
        },
        "additionalProperties": False,
        "required": ["count"],
    }  # fmt: skip


EVERY = [
    *(module.Params() for module in algorithms().values()),
    Scaling("standard", clip=1.0),
    Calibration("posterior"),
    Threshold("fixed", value=0.25),
    Dense(dim=8),
    SparseColumns(dim=2**24),
    Named(text=("body",)),
    Table(fields=(Field("a", "numeric", log=True), Field("b", "categorical", categories=3))),
]


@pytest.mark.parametrize("example", EVERY, ids=lambda item: f"{type(item).__module__}.{type(item).__name__}")
def test_every_kind_of_settings_survives_json_and_has_a_schema(example: Parameters) -> None:
    plain = example.to_json()
    kind = type(example)
    assert (
        kind.of({name: value for name, value in plain.items() if name != "kind" or kind not in FEATURE_KINDS.values()})
        == example
    )
    schema = kind.schema()
    assert set(schema["properties"]) == set(plain)
    for name, described in schema["properties"].items():
        assert described["description"], name
        if "enum" in described:
            assert plain[name] in described["enum"]
        if "default" not in described:
            assert name in schema["required"]


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(), st.lists))
@settings(max_examples=30)
def test_quotes_are_short_and_valid_utf8(value: Any) -> None:
    assert len(show(value)) <= 80
    show(value).encode()


def test_quotes_of_large_values_are_short() -> None:
    deep: Any = []
    for _ in range(500):
        deep = [deep]
    for value in (10**5000, -(10**5000), "x" * 10**6, {str(i): i for i in range(999)}, deep, [[1] * 99] * 99, object()):
        assert len(show(value)) <= 80
    assert "6644" in show(-(10**2000))
    assert show(12345678901234567890) == "12345678901234567890"


def test_pointers_are_escaped_and_short() -> None:
    assert pointer("a~/b") == "/a~0~1b"
    assert pointer("x" * 1000) == "/" + "x" * 200
    assert pointer("\udfff").encode() == b"/\\udfff"
    assert pointer(7) == "/7"
