"""Refused settings are named by their options, and misplaced parameters get a hint."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest
import typer

from learners import FEATURE_KINDS
from learners.decisions.threshold import Threshold
from learners.features.scaling import Scaling
from rarestream import Client, InvalidValue, RequestRefused
from service.cli.main import app
from service.cli.request_errors import near_names
from service.cli.suggestions import SHORTCUTS, misplaced_params, settings_refused

CATALOGUE = {
    "parts": {
        "features": {"dense": {"properties": {"dim": {}}}},
        **{
            part: {"properties": {name: {} for name in names}}
            for part, names in {
                "scaling": ["kind", "clip"],
                "embedding": ["kind", "warmup"],
                "calibration": ["kind", "memory"],
                "threshold": ["objective", "alerts", "beta", "memory"],
                "figures": ["beta"],
                "late": ["label_ttl"],
                "learner": ["refit_every", "seed"],
            }.items()
        },
    }
}


def refusal(*problems: InvalidValue) -> RequestRefused:
    return RequestRefused("refused", status=422, problems=problems)


@pytest.mark.parametrize(
    ("params", "hint"),
    [
        ({"warmup": 30}, "--set embedding.warmup=30"),
        ({"refit_every": 9}, "--set refit_every=9"),
        ({"seed": 9}, "--seed 9"),
        ({"objective": "f1"}, "--threshold f1"),
        ({"alerts": 9}, "--alerts 9"),
        ({"label_ttl": 3600}, "--label-ttl 3600"),
        ({"beta": 2}, "--set threshold.beta=2 or --set figures.beta=2"),
        ({"nonsense": 2}, None),
    ],
)
def test_misplaced_settings_get_a_hint(params: dict[str, Any], hint: str | None) -> None:
    unknown = [InvalidValue(f"/params/{name}", "unknown setting", "unknown", name) for name in params]
    transport = httpx.MockTransport(lambda _: httpx.Response(200, json=CATALOGUE))
    with Client("http://service", patience=0, transport=transport) as client:
        (name,) = params
        hints = misplaced_params({"params": params}, refusal(*unknown), client)
        assert len(hints) == (hint is not None)
        assert all(text.startswith(f"{name} ") and text.endswith(f" {hint}") for text in hints)
        invalid = [InvalidValue(f"/params/{name}", "is wrong") for name in params]  # the algorithm has it
        assert misplaced_params({"params": params}, refusal(*invalid), client) == []
        assert misplaced_params({"params": 3}, refusal(*unknown), client) == []
        assert misplaced_params({}, refusal(), client) == []


@pytest.mark.parametrize(
    ("pointer", "label"),
    [
        ("/features", "--features"),
        ("/features/kind", "--features"),
        ("/features/dim", "--dim"),
        ("/features/bits", "--set features.bits"),
        ("/features/fields/1/name", "--field (/features/fields/1/name)"),
        ("/algorithm", "--algorithm"),
        ("/params/C", "--param C"),
        ("/scaling/kind", "--scaling"),
        ("/scaling/clip", "--set scaling.clip"),
        ("/threshold/unit_seconds", "--set threshold.unit_seconds"),
        ("/threshold", "--threshold"),
        ("/late/label_ttl", "--label-ttl"),
        ("/name", "NAME"),
        ("", ""),
    ],
)
def test_a_refused_setting_is_named_by_its_option(pointer: str, label: str) -> None:
    error = settings_refused(refusal(InvalidValue(pointer, "is 3")), hints=["more"])
    assert str(error).splitlines() == ["refused", f"  {label}: is 3", "more"]


ALGORITHMS = {"enum": ["cbr", "cbr-diag", "lr"]}


@pytest.mark.parametrize(
    ("problem", "suggestions"),
    [
        (InvalidValue("/algorithm", "no", "invalid", "cbr-dig", ALGORITHMS), ["--algorithm cbr-diag"]),
        (InvalidValue("/algorithm", "no", "invalid", "CBR", ALGORITHMS), ["--algorithm cbr"]),
        (InvalidValue("/algorithm", "no", "invalid", "forest", ALGORITHMS), []),
        (InvalidValue("/algorithm", "no", "invalid", 3, ALGORITHMS), []),
        (
            InvalidValue("/params/capcity", "no", "unknown", "capcity", {"enum": ["C", "capacity"]}),
            ["--param capacity"],
        ),
        (
            InvalidValue("/threshold/bta", "no", "unknown", "bta", {"enum": ["alerts", "beta"]}),
            ["--set threshold.beta"],
        ),
        (InvalidValue("/window", "no", "invalid", "x", {"type": "integer"}), []),
    ],
)
def test_misspelled_values_get_a_suggestion(problem: InvalidValue, suggestions: list[str]) -> None:
    hints = str(settings_refused(refusal(problem))).splitlines()[2:]
    assert [hint[hint.index("--") :].rstrip("?") for hint in hints] == suggestions


def test_settings_from_a_file_are_named_by_their_pointer() -> None:
    problems = [InvalidValue(pointer, "is 0") for pointer in ("/window", "/features/dim", "/scaling/kind")]
    error = settings_refused(refusal(*problems), {"window": 0, "features": {"kind": "dense"}})
    assert str(error).splitlines()[1:] == ["  --window: is 0", "  /features/dim: is 0", "  /scaling/kind: is 0"]


def test_a_refused_objective_is_named_as_argument() -> None:
    error = settings_refused(refusal(InvalidValue("/threshold/objective", "is 'x'")), objective="OBJECTIVE")
    assert str(error).splitlines()[1:] == ["  OBJECTIVE: is 'x'"]


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("demo-fof", ["demo-fofo"]),
        ("demo-cbr-dig", ["demo-cbr-diag"]),
        ("DEMO-FOFO", ["demo-fofo"]),
        ("demo", ["demo-cbr", "demo-fofo"]),  # about as far
        ("cards", []),
    ],
)
def test_similar_names_are_suggested(name: str, near: list[str]) -> None:
    assert near_names(name, ["demo-cbr", "demo-cbr-diag", "demo-fofo", "demo-loam-ada"]) == near


def test_a_similar_name_is_found_among_many() -> None:
    assert near_names("zebraa", [*(f"fraud-{k}" for k in range(5000)), "zebra"]) == ["zebra"]


def help_of(pointer: str) -> str:
    """Return the help text of the option that is the shortcut of a setting."""
    options = typer.main.get_command(app).commands["create"].params  # type: ignore[attr-defined]
    (text,) = (option.help for option in options if SHORTCUTS[pointer] in option.opts)
    assert isinstance(text, str)
    return text


@pytest.mark.parametrize(
    ("pointer", "values"),
    [
        ("/features/kind", list(FEATURE_KINDS)),
        ("/scaling/kind", Scaling.schema()["properties"]["kind"]["enum"]),
        ("/threshold/objective", Threshold.schema()["properties"]["objective"]["enum"]),
    ],
)
def test_the_help_of_a_shortcut_names_every_value_of_its_setting(pointer: str, values: list[str]) -> None:
    """The command line does not import the library, so it cannot read the schemas."""
    choices = re.sub(r"\(.*?\)|\bor\b", "", help_of(pointer).rpartition(": ")[2])
    assert re.findall(r"[\w-]+", choices) == values


@pytest.mark.parametrize(
    "pointer", [name for name in SHORTCUTS if name.startswith("/features/") and name != "/features/kind"]
)
def test_the_help_of_a_shortcut_of_features_names_the_kinds_that_have_it(pointer: str) -> None:
    setting = pointer.rpartition("/")[2]
    kinds = [kind for kind, features in FEATURE_KINDS.items() if setting in features.schema()["properties"]]
    assert help_of(pointer).partition(":")[0] == ", ".join(kinds)
