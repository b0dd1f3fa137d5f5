"""Thresholds: against the naive ones, batching, and what they are good for."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners import threshold
from learners.arrays import Vector
from learners.threshold import Threshold
from tests.learners import naive, naive_f
from tests.learners.streams import same_bits

OBJECTIVES: list[dict[str, Any]] = [
    {"objective": "f1"},
    {"objective": "f1", "n1": 7, "kappa": 1.5},
    {"objective": "f1", "n1": 256, "kappa": 0.5},
    {"objective": "f1", "horizon": 400},
    {"objective": "f1", "horizon": 2000},
    {"objective": "f1-window", "memory": None},
    {"objective": "f1-window", "memory": 150},
    {"objective": "f1-ofo"},
    {"objective": "fixed", "value": 0.25},
]


def _events(n: int, seed: int, share: float = 0.2) -> tuple[Vector, Vector]:
    """Calibrated probabilities and labels drawn from them."""
    random = np.random.default_rng(seed)
    p = random.beta(0.5, 0.5 / share - 0.5, n)
    return p, np.where(random.random(n) < p, 1.0, -1.0)


def _run(setting: Threshold, p: Vector, y: Vector, cuts: list[int] | None = None) -> tuple[threshold.State, Vector]:
    state, thresholds = threshold.init(setting), np.empty(len(p))
    for start, stop in pairwise([0, *sorted(cuts or []), len(p)]):
        threshold.learn(setting, state, p[start:stop], y[start:stop], thresholds[start:stop])
    return state, thresholds


@pytest.mark.parametrize("values", OBJECTIVES, ids=str)
def test_same_as_naive(values: dict[str, Any]) -> None:
    p, y = _events(900, seed=1)
    _, thresholds = _run(Threshold(**values), p, y)
    if values["objective"] == "f1":
        expected = naive.fofo_threshold(p, y, **{name: v for name, v in values.items() if name != "objective"})
    elif values["objective"] == "f1-window":
        expected = naive.window_threshold(p, y, values["memory"])
    elif values["objective"] == "f1-ofo":
        expected = naive_f.ofo_threshold(p, y)
    else:
        expected = np.full(len(p), 0.25)
    np.testing.assert_allclose(thresholds, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("values", OBJECTIVES, ids=str)
@given(cuts=st.lists(st.integers(0, 300), max_size=8))
@settings(deadline=None, derandomize=True, database=None, max_examples=15)
def test_batching_shows_in_nothing(values: dict[str, Any], cuts: list[int]) -> None:
    p, y = _events(300, seed=2)
    whole, thresholds = _run(Threshold(**values), p, y)
    parts, pieces = _run(Threshold(**values), p, y, cuts)
    assert same_bits(whole, parts)
    assert thresholds.tobytes() == pieces.tobytes()


@pytest.mark.parametrize("values", OBJECTIVES, ids=str)
@pytest.mark.parametrize("label", [-1.0, 1.0])
def test_certain_probabilities_and_one_class(values: dict[str, Any], label: float) -> None:
    p = np.resize([0.0, 1.0, 5e-324, 0.5], 700)
    setting = Threshold(**values)
    state, thresholds = _run(setting, p, np.full(700, label))
    assert ((thresholds >= 0) & (thresholds <= 1)).all()
    assert all(np.isfinite(part).all() for part in state)
    assert threshold.current(setting, state) == state.live[0]


@pytest.mark.parametrize("values", [v for v in OBJECTIVES if v["objective"] != "fixed"], ids=str)
def test_starts_at_zero_and_nears_the_best(values: dict[str, Any]) -> None:
    p, y = _events(40_000, seed=3)
    state, thresholds = _run(Threshold(**values | ({"horizon": 40_000} if "horizon" in values else {})), p, y)
    assert thresholds[0] == 0

    def f1(live: float) -> float:
        return float(2 * np.sum((p >= live) & (y > 0)) / (np.sum(p >= live) + np.sum(y > 0)))

    best = max(f1(live) for live in np.linspace(0.01, 0.99, 99))
    assert f1(float(state.live[0])) > best - (0.05 if values.get("kappa") == 0.5 else 0.01)


def test_ofo_is_half_of_the_f_reached() -> None:
    p, y = _events(2000, seed=4)
    state, thresholds = _run(Threshold(objective="f1-ofo"), p, y)
    assert state.called.tolist() == [np.sum(p >= thresholds), np.sum(y[p >= thresholds] > 0)]
    assert state.live[0] == naive_f.f_measure(p >= thresholds, y) / 2


def test_stages_at_exact_powers() -> None:
    assert threshold._stages(256) == (2, 128)  # log2(512 / 8) is exactly 6
    assert threshold._stages(2) == (1, 2)
    assert threshold._stages(4) == (1, 4)
    for n in [*range(2, 3000), 2**20, 2**30 - 1, 2**30, 2**50]:
        assert threshold._stages(n) == naive.stages(n)
        assert threshold._log2(n) == pytest.approx(math.log2(n), rel=1e-14)


@pytest.mark.parametrize(
    "values",
    [{"horizon": 1}, {"n1": 1}, {"kappa": 0.0}, {"value": 1.1}, {"objective": "f2"}, {"horizon": 2.5}],
    ids=str,
)
def test_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(values))):
        Threshold.of(values)
