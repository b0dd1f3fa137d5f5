"""Robust ranges of fields: against plain Python, on steady streams of every tail, on changes of scale, and restored."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners import InvalidInput, Learner, create, restore
from learners.features import FieldSummary
from learners.features.column_map import NamedColumns, columns_of
from learners.features.field_quality import BLOCK
from learners.features.named import Named

pytestmark = pytest.mark.integration

Draw = Callable[[np.random.Generator, int], Any]
STEADY: dict[str, Draw] = {
    "normal": lambda random, n: random.normal(size=n),
    "uniform": lambda random, n: random.random(n),
    "exponential": lambda random, n: random.exponential(50, n),
    "log-normal": lambda random, n: random.lognormal(3, 1, n),
    "log-normal, sigma 2": lambda random, n: random.lognormal(3, 2, n),
    "Pareto, exponent 1": lambda random, n: 1 + random.pareto(1, n),
    "Cauchy": lambda random, n: random.standard_cauchy(n),
    "counts, mostly 0": lambda random, n: random.poisson(0.05, n).astype(float),
    "ages": lambda random, n: random.integers(18, 90, n).astype(float),
    "999, or some days": lambda random, n: np.where(random.random(n) < 0.04, random.integers(1, 28, n), 999.0),
    "random walk": lambda random, n: 1000 + np.cumsum(random.normal(size=n)),
    "counter": lambda _, n: np.arange(n, dtype=float),
    "seconds since 1970": lambda random, n: 1.7e9 + np.cumsum(random.exponential(9, n)),
    "one number": lambda _, n: np.full(n, 4.25),
}


def stage_after(values: Any, step: int = 4096, log: bool = False) -> NamedColumns:
    """Learn events with the number `fee`, in batches."""
    features = Named(bits=12, log=("fee",) if log else ())
    stage = columns_of(features)
    assert isinstance(stage, NamedColumns)
    stage.note_fields(["fee"])
    for start in range(0, len(values), step):
        stage.learn(features.encode([{"fee": value} for value in values[start : start + step]]))
    return stage


def fee(stage: NamedColumns) -> FieldSummary:
    (summary,) = stage.field_summaries()
    return summary


def out_of_range(values: Any) -> int:
    return fee(stage_after(values)).counts["out_of_range"]


class Reference:
    """The range of a field, from the definitions."""

    def __init__(self, log: bool) -> None:
        self.log = log
        self.low = self.high = math.nan
        self.values: list[float] = []
        self.out = 0

    def take(self, x: float) -> None:
        if x == 0:
            return
        self.values.append(x)
        if math.isnan(self.low):
            return
        least, size = sorted((abs(self.low), abs(self.high)))
        one_side = self.low > 0 or self.high < 0
        if self.log:
            small = one_side and abs(x) < least - math.log(4)
            large = abs(x) > size + math.log(4)
        else:
            small, large = one_side and abs(x) < least / 4, abs(x) > 4 * size
        self.out += large or (small and (x > 0) == (self.low > 0))

    def end_block(self) -> None:
        n = len(self.values)
        if n < 256:
            return
        ordered = sorted(self.values)
        rank = min(n // 100, 7)
        low, high = ordered[rank], ordered[-1 - rank]
        if math.isnan(self.low):
            self.low, self.high = low, high
        else:
            size = max(abs(self.low), abs(self.high))
            self.high, self.low = self._move_edge(self.high, high, size), -self._move_edge(-self.low, -low, size)
            self.low = min(self.low, self.high)
        self.values = []

    def _move_edge(self, edge: float, quantile: float, size: float) -> float:
        if quantile <= edge:
            return edge + (quantile - edge) / 32
        step = math.log(9 / 8) if self.log else (-edge if quantile < 0 else size) / 8
        return edge + min(step, (quantile - edge) / 4)


@given(st.integers(0, 2**32), st.sampled_from(list(STEADY)), st.booleans(), st.sampled_from([0.0, 0.01, 0.05, 0.5]))
@settings(max_examples=30, deadline=None)
def test_ranges_and_counts_match_the_definition(seed: int, name: str, log: bool, wild: float) -> None:
    random = np.random.default_rng(seed)
    values = STEADY[name](random, 5000)
    marked = random.random(5000) < wild
    values[marked] = (values * random.choice([-1e9, -1.0, 1e-6, 0.0, 100.0, 1e10], 5000))[marked]
    values[random.random(5000) < random.choice([0.0, 0.7])] = 0.0
    values[3000:] *= random.choice([-1.0, 0.01, 1.0, 100.0])
    reference = Reference(log)
    for i, value in enumerate(values.tolist()):
        reference.take(math.copysign(math.log1p(abs(value)), value) if log else value)
        if (i + 1) % BLOCK == 0:
            reference.end_block()
    summary = fee(stage_after(values.tolist(), step=1999, log=log))
    learnt = np.copysign(np.log1p(np.abs(values)), values) if log else values
    assert (summary.smallest, summary.largest) == pytest.approx((learnt.min(), learnt.max()), rel=1e-12)
    if math.isnan(reference.low):
        assert (summary.low, summary.high) == (None, None)
    else:
        assert (summary.low, summary.high) == pytest.approx((reference.low, reference.high), rel=1e-9)
    assert summary.counts["out_of_range"] == reference.out


@pytest.mark.parametrize("name", STEADY)
def test_steady_numbers_are_seldom_out_of_range(name: str) -> None:
    values = STEADY[name](np.random.default_rng(1), 100_000)
    assert out_of_range(values.tolist()) <= 0.006 * len(values)


@pytest.mark.parametrize("name", ["normal", "uniform", "exponential", "log-normal", "log-normal, sigma 2"])
def test_a_range_is_about_from_1_to_99_percent(name: str) -> None:
    values = STEADY[name](np.random.default_rng(2), 50_000)
    summary = fee(stage_after(values.tolist()))
    assert summary.low is not None
    assert summary.high is not None
    assert 0.001 < np.mean(values < summary.low) < 0.015
    assert 0.001 < np.mean(values > summary.high) < 0.015


@pytest.mark.parametrize(
    ("name", "shares"),
    [
        ("normal", {100.0: 0.85, 1000.0: 0.95, 0.01: 0.0}),  # on both sides of 0 nothing is too small
        ("uniform", {100.0: 0.9, 1000.0: 0.95, 0.01: 0.15, 0.001: 0.8}),
        ("exponential", {100.0: 0.75, 1000.0: 0.95, 0.01: 0.15, 0.001: 0.8}),
        ("log-normal", {100.0: 0.7, 1000.0: 0.95, 0.01: 0.7, 0.001: 0.95}),
        ("log-normal, sigma 2", {100.0: 0.15, 1000.0: 0.6, 0.01: 0.15, 0.001: 0.6}),
        ("ages", {100.0: 1.0, 0.01: 1.0}),
    ],
)
def test_another_unit_is_out_of_range(name: str, shares: dict[float, float]) -> None:
    values = STEADY[name](np.random.default_rng(3), 20_000)
    before = out_of_range(values.tolist())
    for factor, share in shares.items():
        after = out_of_range([*values.tolist(), *(factor * values[:BLOCK]).tolist()]) - before
        assert after >= share * BLOCK, factor


def test_a_few_absurd_numbers_neither_change_the_range_nor_hide() -> None:
    values = STEADY["log-normal"](np.random.default_rng(4), 40_000)
    absurd = values.copy()
    absurd[::200] = 9999999999.0
    plain, summary = fee(stage_after(values.tolist())), fee(stage_after(absurd.tolist()))
    assert summary.high is not None
    assert plain.high is not None
    assert summary.high < 2 * plain.high
    assert summary.counts["out_of_range"] - plain.counts["out_of_range"] == pytest.approx(200, abs=6)
    assert summary.largest == 9999999999.0


def test_a_change_that_stays_becomes_the_range() -> None:
    values = STEADY["log-normal"](np.random.default_rng(5), 60_000)
    values[20_000:] *= 100
    stage = stage_after(values[:40_000].tolist())
    assert fee(stage).counts["out_of_range"] > 3000
    assert out_of_range(values.tolist()) - fee(stage).counts["out_of_range"] < 100


def learner_after(values: list[float], cuts: list[int]) -> Learner:
    """Learn numbers in parts, and save and restore the learner after each part."""
    learner = create("cbr-diag", features={"kind": "named", "bits": 12, "log": ["size"]}, seed=3)
    for start, stop in zip([0, *cuts], [*cuts, len(values)], strict=True):
        if start < stop:
            events = [{"fee": value, "size": abs(value), "shop": f"s{value:.0f}"} for value in values[start:stop]]
            learner.learn(events, [i % 2 for i in range(start, stop)])
        learner = restore(learner.config.to_json(), learner.state())
    return learner


@pytest.mark.parametrize("cuts", [[1, 511, 512, 513], [700, 1024, 1025, 2500]])
def test_neither_batches_nor_restarts_are_visible(cuts: list[int]) -> None:
    values = STEADY["log-normal"](np.random.default_rng(6), 3000)
    values[2000:] *= 100
    whole, parts = learner_after(values.tolist(), []), learner_after(values.tolist(), cuts)
    assert whole.digest() == parts.digest()
    assert whole.view().fields == parts.view().fields


@pytest.mark.parametrize(
    "change",
    [
        lambda array: array * np.nan,
        lambda array: array[:, :-1],
        lambda array: array + 1.0,
        lambda array: array - 1e6 * (np.arange(array.shape[1]) >= array.shape[1] - 4),
        lambda array: array + 1e6 * (np.arange(array.shape[1]) == array.shape[1] - 4),
    ],
)
def test_an_impossible_state_is_refused(change: Any) -> None:
    learner = learner_after(STEADY["normal"](np.random.default_rng(7), 1500).tolist(), [])
    state = {**learner.state(), "columns.field_ranges": change(learner.state()["columns.field_ranges"])}
    with pytest.raises(InvalidInput) as caught:
        restore(learner.config.to_json(), state)
    assert {problem.pointer for problem in caught.value.problems} == {"/columns.field_ranges"}


def test_a_state_of_an_earlier_release_is_completed() -> None:
    values = STEADY["log-normal"](np.random.default_rng(8), 2000).tolist()
    learner = learner_after(values, [])
    state = dict(learner.state())
    del state["columns.field_ranges"]
    for name in ("counts", "marks", "blocks", "shares", "rises"):
        state[f"columns.field_{name}"] = np.ascontiguousarray(state[f"columns.field_{name}"][:, :-1])
    state["metrics.drift_by_kind"] = state["metrics.drift_by_kind"][:-1].copy()
    restored = restore(learner.config.to_json(), state)
    fields = {field.name: field for field in restored.view().fields or []}
    assert (fields["fee"].low, fields["fee"].counts["out_of_range"], fields["fee"].values) == (None, 0, 2000)
    events = [{"fee": value, "size": value, "shop": "s"} for value in values]
    restored.learn(events, [i % 2 for i in range(len(events))])
    (after,) = [field for field in restored.view().fields or [] if field.name == "fee"]
    assert (after.low is not None, after.values, after.remarks(4000)) == (True, 4000, [])
    assert restored.score(events[:5]).tolist() == _further(learner, events).tolist()


def _further(learner: Learner, events: list[dict[str, Any]]) -> Any:
    learner.learn(events, [i % 2 for i in range(len(events))])
    return learner.score(events[:5])
