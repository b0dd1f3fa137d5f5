"""Where a setting belongs that is no parameter of the algorithm."""

from __future__ import annotations

from typing import Any

import pytest

from learners import algorithms
from service.commands.hints import misplaced


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
