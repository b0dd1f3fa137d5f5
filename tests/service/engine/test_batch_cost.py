"""The expected time of a batch: from the algorithm first, from measurements later."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from learners import Config
from learners.numerics.arrays import Sparse
from learners.records import BatchOutcome, LabelledBatch, Status
from service.engine.batch_cost import BatchCost, work_units


@pytest.fixture(autouse=True)
def _new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BatchCost, "_loaded", set())


def config(algorithm: str = "fofo", dim: int = 8, **settings: Any) -> Config:
    return Config.of({"algorithm": algorithm, "features": {"kind": "dense", "dim": dim}, **settings})


def batch(n: int, dim: int = 8) -> LabelledBatch:
    return LabelledBatch(np.zeros((n, dim)), np.ones(n))


def outcome(n: int, status: Status = Status.APPLIED) -> BatchOutcome:
    return BatchOutcome(np.full(n, status, dtype=np.int8), np.zeros(n), np.zeros(n, dtype=np.int64))


def test_the_first_estimate_uses_the_declared_cost_of_the_algorithm() -> None:
    cheap, dear = BatchCost(config("fofo", 1000)), BatchCost(config("opauc", 1000))
    assert cheap.seconds(batch(100, 1000), 1000) < 1e-3 < 1e-2 < dear.seconds(batch(100, 1000), 1000)
    first, second, three = (dear.seconds(batch(100 * k, 1000), 1000) for k in (1, 2, 3))
    assert three - second == pytest.approx(second - first)
    assert 0 < first - (second - first) < 1e-3  # what a batch takes however small it is
    assert cheap.seconds(batch(0, 1000), 1000) == 0.0


def test_sparse_costs_count_known_and_possible_new_columns() -> None:
    pace = BatchCost(Config.of({"algorithm": "loam-ada", "features": {"kind": "sparse", "dim": 10**6}}))
    rows = Sparse(np.ones(30), np.tile(np.arange(3), 10), np.arange(0, 31, 3))
    few, many = (pace.seconds(LabelledBatch(rows, np.ones(10)), columns) for columns in (0, 10**5))
    assert many > 5 * few
    assert pace.seconds(LabelledBatch(rows, np.ones(10)), 10**7) == pace.seconds(
        LabelledBatch(rows, np.ones(10)), 10**6
    )


def test_measurements_replace_the_estimate() -> None:
    pace = BatchCost(config())
    pace.note(batch(10), 8, 5.0, outcome(10))
    assert pace.seconds(batch(10), 8) == pytest.approx(5.0)
    pace.note(batch(10), 8, 1e-4, outcome(10))  # the first one compiled the kernels
    assert pace.seconds(batch(10), 8) == pytest.approx(1e-4)
    pace.note(batch(10), 8, 1e-3, outcome(10))  # by chance, it may be
    assert pace.seconds(batch(10), 8) == pytest.approx(1e-4)
    pace.note(batch(10), 8, 2e-3, outcome(10))
    assert pace.seconds(batch(10), 8) == pytest.approx(1e-3)
    pace.note(batch(10), 8, 1e-4, outcome(10))
    assert pace.seconds(batch(10), 8) == pytest.approx(0.9e-3 + 0.1e-4)


def test_an_expensive_small_batch_does_not_inflate_large_ones() -> None:
    pace = BatchCost(config())
    for _ in range(3):
        pace.note(batch(1), 8, 3e-4, outcome(1))
    assert pace.seconds(batch(1), 8) == pytest.approx(3e-4)
    assert 3e-4 < pace.seconds(batch(64), 8) < 1e-3
    for _ in range(20):
        pace.note(batch(1000), 8, 3e-3, outcome(1000))
    assert pace.seconds(batch(1), 8) < 1e-3 < 2e-3 < pace.seconds(batch(1000), 8)


def test_single_events_do_not_hide_the_cost_of_large_batches() -> None:
    pace = BatchCost(config())
    for _ in range(10):
        pace.note(batch(1), 8, 3e-5, outcome(1))
        pace.note(batch(2000), 8, 6e-3, outcome(2000))
    assert pace.seconds(batch(1), 8) == pytest.approx(3e-5)
    assert pace.seconds(batch(2000), 8) == pytest.approx(6e-3)


def test_batches_without_learnt_events_are_not_measured() -> None:
    pace = BatchCost(config())
    before = pace.seconds(batch(10), 8)
    pace.note(batch(10), 8, 5.0, outcome(10, Status.DUPLICATE))
    pace.note(batch(0), 8, 5.0, outcome(0))
    assert pace.seconds(batch(10), 8) == before
    assert not pace.loaded


def test_kernels_count_as_loaded_after_a_similar_learner_has_learnt() -> None:
    first, alike, other = BatchCost(config()), BatchCost(config(dim=9)), BatchCost(config(precision="float32"))
    assert not first.loaded
    first.note(batch(10), 8, 5.0, outcome(10))
    assert first.loaded
    assert alike.loaded
    assert not other.loaded
    assert alike.seconds(batch(10, 9), 9) < 1e-3  # not what the first one took to compile them


def test_work_units_include_the_events() -> None:
    assert work_units(batch(10, 8)) == 160
