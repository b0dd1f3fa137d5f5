"""What a refused setting is called, and where one belongs that is no parameter of the algorithm."""

from __future__ import annotations

from typing import Any

import pytest

from learners import algorithms
from service.cli.api_errors import ApiError, Problem
from service.cli.suggestions import misplaced, named, nearly


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"warmup": 30}, "warmup is a setting of the embedding: use --warmup 30"),
        ({"width": 0.5}, "width is a setting of the embedding: use --width 0.5"),
        ({"refit_every": 9}, "refit_every is a setting of the learner itself: use --refit-every 9"),
        ({"objective": "f1"}, "objective is a setting of the threshold: use --threshold f1"),
        ({"alerts": 9}, "alerts is a setting of the threshold: use --alerts 9"),
        ({"unit_seconds": 3600}, "unit_seconds is a setting of the threshold: use --unit 3600"),
        ({"label_ttl": 3600}, "label_ttl is a setting of late labels: use --label-ttl 3600"),
        (
            {"beta": 2},
            "beta is a setting of the threshold and the figures: "
            'use --beta 2 or --config with {"figures": {"beta": 2}}',
        ),
        ({"clip": 3}, 'clip is a setting of the scaling: use --config with {"scaling": {"clip": 3}}'),
        (
            {"memory": 90},
            "memory is a setting of the calibration and the threshold: "
            'use --config with {"calibration": {"memory": 90}} or --config with {"threshold": {"memory": 90}}',
        ),
        (
            {"remembered_ids": 9},
            'remembered_ids is a setting of the learner itself: use --config with {"remembered_ids": 9}',
        ),
    ],
)
def test_settings_of_other_parts(params: dict[str, Any], said: str) -> None:
    body = {"algorithm": "nsauc", "params": params}
    assert misplaced(body, ["/algorithm", *(f"/params/{name}" for name in params)]) == [said]
    assert misplaced(body, ["/features"]) == []


@pytest.mark.parametrize("name", algorithms())
def test_nothing_is_said_of_what_the_algorithm_has(name: str) -> None:
    params = dict.fromkeys(algorithms()[name].Params.schema()["properties"], "wrong")
    assert misplaced({"algorithm": name, "params": params}, [f"/params/{one}" for one in params]) == []


@pytest.mark.parametrize(
    "body", [{}, {"algorithm": "nsauc"}, {"algorithm": "none", "params": {"warmup": 1}}, {"params": {"warmup": 1}}]
)
def test_requests_of_which_nothing_can_be_said(body: dict[str, Any]) -> None:
    assert misplaced(body, ["/params/warmup", "/params"]) == []
    assert misplaced({"algorithm": "nsauc", "params": 3}, ["/params"]) == []
    assert misplaced({"algorithm": "nsauc", "params": {"nonsense": 1}}, ["/params/nonsense"]) == []


@pytest.mark.parametrize(
    ("pointer", "detail", "said"),
    [
        ("/features", "is missing", "--features: is missing"),
        ("/features/kind", "is 'x'", "--features: is 'x'"),
        ("/features/dim", "is missing", "--dim: is missing"),
        ("/features/fields/1/name", "is ''", "--field (/features/fields/1/name): is ''"),
        ("/algorithm", "is 'x'", "--algorithm: is 'x'"),
        ("/params/C", "is -1; expected more than 0", "--param C: is -1; expected more than 0"),
        ("/scaling/kind", "is 'x'", "--scaling: is 'x'"),
        ("/scaling/clip", "is 'x'", "/scaling/clip: is 'x'"),
        ("/threshold/unit_seconds", "is for alerts", "--unit: is for alerts"),
        ("/threshold", "is 3", "--threshold: is 3"),
        ("/late/label_ttl", "is 0", "--label-ttl: is 0"),
        ("/window_seconds", "is 0", "--window-seconds: is 0"),
        ("/figures/beta", "is 0", "/figures/beta: is 0"),
        ("/name", "is 'x y'", "NAME: is 'x y'"),
        ("", "is 3", ": is 3"),
    ],
)
def test_a_refused_setting_is_named_by_its_option(pointer: str, detail: str, said: str) -> None:
    error = named(ApiError("refused\n  old", 422, problems=[Problem(pointer, detail)]), more=["more"])
    assert str(error).splitlines() == ["refused", f"  {said}", "more"]


@pytest.mark.parametrize(
    ("pointer", "code", "value", "choices", "meant"),
    [
        ("/algorithm", "invalid", "cbr-dig", ["cbr", "cbr-diag", "lr"], ["Did you mean --algorithm cbr-diag?"]),
        ("/algorithm", "invalid", "CBR", ["cbr", "cbr-diag", "lr"], ["Did you mean --algorithm cbr?"]),
        ("/algorithm", "invalid", "forest", ["cbr", "cbr-diag", "lr"], []),
        ("/algorithm", "invalid", 3, ["cbr", "cbr-diag", "lr"], []),
        ("/algorithm", "missing", None, ["cbr", "cbr-diag", "lr"], []),
        ("/scaling/kind", "invalid", "standart", ["none", "standard"], ["Did you mean --scaling standard?"]),
        ("/params/capcity", "unknown", "capcity", ["C", "capacity"], ["Did you mean --param capacity?"]),
        ("/threshold/alrts", "unknown", "alrts", ["alerts", "beta"], ["Did you mean alerts?"]),
        ("/algoritm", "unknown", "algoritm", ["algorithm", "features"], ["Did you mean algorithm?"]),
        ("/window", "invalid", "x", [], []),
    ],
)
def test_what_was_meant(pointer: str, code: str, value: Any, choices: list[str], meant: list[str]) -> None:
    problem = Problem(pointer, "reworded", code, value, {"enum": choices})
    error = named(ApiError("refused", 422, problems=[problem]))
    assert str(error).splitlines()[2:] == meant


def test_what_came_from_a_file_is_named_by_its_pointer() -> None:
    problems = [Problem("/window", "is 0"), Problem("/features/dim", "is 0"), Problem("/scaling/kind", "is 0")]
    error = named(ApiError("refused", 422, problems=problems), {"window": 0, "features": {"kind": "dense"}})
    assert str(error).splitlines()[1:] == ["  --window: is 0", "  /features/dim: is 0", "  /scaling/kind: is 0"]


def test_the_objective_of_a_change_is_its_argument() -> None:
    error = named(ApiError("refused", 422, problems=[Problem("/threshold/objective", "is 'x'")]), objective="OBJECTIVE")
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
def test_names_that_are_nearly_so(name: str, near: list[str]) -> None:
    assert nearly(name, ["demo-cbr", "demo-cbr-diag", "demo-fofo", "demo-loam-ada"]) == near


def test_the_last_of_many_names_is_found() -> None:
    assert nearly("zebraa", [*(f"fraud-{k}" for k in range(5000)), "zebra"]) == ["zebra"]
