"""What the chart takes under `settings`: every setting of the service, no other, and no value that a node refuses."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from service.settings import Settings
from tests.deploy.helm import CHART, LEAST, environment, helm, node, template, with_helm
from tests.deploy.helm_schema import CHART_SETTINGS, at_least, at_most, of_settings

pytestmark = pytest.mark.integration

SCHEMA: dict[str, dict[str, Any]] = of_settings()["properties"]
LOOSE = {"HOSTS", "WEBHOOK_SECRET"}  # any text
VALUES = (CHART / "values.yaml").read_text()


def takes(name: str, value: str) -> bool:
    """Whether the schema takes the value of a setting."""
    field = SCHEMA[name]
    return value in field["enum"] if "enum" in field else all(re.search(pattern, value) for pattern in patterns(field))


def patterns(field: dict[str, Any]) -> list[str]:
    return [item["pattern"] for item in field.get("allOf", [field]) if "pattern" in item]


def served(name: str, value: str) -> bool:
    """Whether a node takes it from its environment."""
    try:
        Settings(**{name.lower(): value})
    except ValidationError:
        return False
    return True


def test_the_schema_has_exactly_the_settings() -> None:
    assert sorted([*SCHEMA, *CHART_SETTINGS]) == sorted(map(str.upper, Settings.model_fields))
    free = {name for name, field in SCHEMA.items() if "enum" not in field and not patterns(field)}
    assert free == LOOSE, "nothing is said of their values"


def test_the_schema_accepts_the_defaults() -> None:
    for name in SCHEMA:
        default = Settings.model_fields[name.lower()].default
        if default is not None:
            assert takes(name, str(default).lower()), name


@pytest.mark.parametrize("name", sorted(SCHEMA.keys() - LOOSE))
@settings(max_examples=20)
@given(data=st.data())
def test_a_node_accepts_every_value_of_the_schema(name: str, data: st.DataObject) -> None:
    field = SCHEMA[name]
    values = st.sampled_from(field["enum"]) if "enum" in field else st.from_regex(patterns(field)[-1], fullmatch=True)
    assert served(name, data.draw(values.filter(lambda value: takes(name, value))))


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("ACKS", ("memory", "aof", "replicas:2"), ("disk", "replicas:0", "AOF")),
        ("WORKERS", ("1", "256"), ("0", "257", "two", "1.5")),
        ("MAX_IMPORT_BYTES", ("1024", "512000000"), ("1023", "512000001")),
        ("WORKER_SECONDS", ("5", "5.0", "30.5"), ("4", "4.9", "-5")),
        ("SNAPSHOT_SECONDS", ("0.5", "30"), ("0", "0.0", "30s")),
        ("METRICS_LEARNERS", ("0", "500"), ("-1", "")),
        ("TRIM_LOG", ("true", "false"), ("maybe", "")),
        ("LOG_LEVEL", ("warning",), ("warn", "INFO")),
        (
            "WEBHOOK",
            ("", "https://hooks.example/x", "fraud=slack+https://a/b http://c"),
            ("hooks.example", "ftp://hooks.example"),
        ),
        ("CORS_ORIGINS", ("", "https://a.example, http://b.example:8080"), ("a.example", "https://a.example/path")),
    ],
)
def test_schema_and_node_accept_and_refuse_the_same_values(
    name: str, good: tuple[str, ...], bad: tuple[str, ...]
) -> None:
    for value in good:
        assert (takes(name, value), served(name, value)) == (True, True), value
    for value in bad:
        assert (takes(name, value), served(name, value)) == (False, False), value


@pytest.mark.parametrize("bound", [0, 1, 5, 9, 10, 19, 90, 99, 100, 256, 1024, 1999])
def test_patterns_match_numeric_bounds(bound: int) -> None:
    for number in range(12_000):
        assert bool(re.fullmatch(at_least(bound), str(number))) == (number >= bound)
        assert bound < 10 or bool(re.fullmatch(at_most(bound), str(number))) == (number <= bound)
    for text in ("", "-1", "01", "1.0", " 1"):
        assert not re.fullmatch(at_least(bound), text)


@with_helm
@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("ACSK=aof", "'ACSK' not allowed"),
        ("ACKS=disk", "/settings/ACKS': 'disk' does not match"),
        ("WORKERS=300", "/settings/WORKERS': '300' does not match"),
        ("SNAPSHOT_SECONDS=0", "/settings/SNAPSHOT_SECONDS': '0' does not match"),
        ("TRIM_LOG=maybe", "/settings/TRIM_LOG': value must be one of 'true', 'false'"),
    ],
)
def test_misspelled_and_invalid_settings_are_named(setting: str, message: str) -> None:
    options = (*LEAST, "--set-string", f"settings.{setting}")
    for reply in (template(*options, check=False), helm("lint", str(CHART), *options, check=False)):
        assert reply.returncode != 0
        assert message in reply.stdout + reply.stderr


@with_helm
@pytest.mark.parametrize("name", CHART_SETTINGS)
def test_settings_managed_by_the_chart_are_refused(name: str) -> None:
    reply = template(*LEAST, "--set-string", f"settings.{name}=x", check=False)
    assert reply.returncode != 0
    assert f"settings.{name}" in reply.stderr
    assert name in VALUES


@with_helm
def test_every_documented_value_is_rendered() -> None:
    """The example in values.yaml, and each setting with its default."""
    comments = dict(re.findall(r'^#   ([A-Z_]+): "?([^"\n]+)"?$', VALUES, flags=re.MULTILINE))
    assert comments
    for name in SCHEMA:
        default = Settings.model_fields[name.lower()].default
        if name not in comments and default is not None:
            comments[name] = str(default).lower()
    options = (item for name, value in comments.items() for item in ("--set-string", f"settings.{name}={value}"))
    variables = environment(node(*LEAST, *options)[2])
    assert {name: variables[f"RARESTREAM_{name}"] for name in comments} == comments
