"""Class buffers: slots, and what they hold."""

from __future__ import annotations

import numpy as np
import pytest

from learners.algorithms._buffers import choose_slot, slots_in_use, store_row
from tests.learners.algorithms.naive import Buffers


def stored_items(n: int, capacity: int, fifo: bool, seed: int) -> list[int]:
    rng = np.array([seed], dtype=np.uint64)
    stored = [-1] * capacity
    for item in range(n):
        at = choose_slot(item + 1, capacity, fifo, rng)
        if at >= 0:
            stored[at] = item
    return stored[: slots_in_use(n, capacity)]


@pytest.mark.parametrize("kind", ["fifo", "reservoir"])
@pytest.mark.parametrize("n", [0, 1, 4, 5, 23, 200])
def test_matches_the_naive_version(kind: str, n: int) -> None:
    plain = Buffers(5, kind, seed=7)
    for item in range(n):
        plain.add(1, item)
    assert stored_items(n, 5, kind == "fifo", seed=7) == plain.rows[1]


def test_fifo_keeps_the_latest_events() -> None:
    assert sorted(stored_items(103, 10, True, seed=0)) == list(range(93, 103))


def test_reservoir_is_uniform() -> None:
    runs, n, capacity = 2000, 20, 4
    hits = np.bincount([item for seed in range(runs) for item in stored_items(n, capacity, False, seed)], minlength=n)
    expected = runs * capacity / n
    assert np.sum((hits - expected) ** 2 / expected) < 43.8  # chi-squared, 19 degrees of freedom, p = .001


def test_only_a_full_reservoir_draws_random_numbers() -> None:
    rng = np.array([3], dtype=np.uint64)
    for count in range(1, 9):
        choose_slot(count, 8, False, rng)
        choose_slot(count + 100, 8, True, rng)
    assert rng[0] == 3
    choose_slot(9, 8, False, rng)
    assert rng[0] != 3


def test_a_dense_row_is_stored_without_columns():
    values, others, length = np.zeros(3), np.full(4, 7), np.zeros(1, dtype=np.int64)
    store_row(np.array([1.0, 2.0, 3.0]), np.empty(0, dtype=np.int64), values, others[:0], length)
    assert values.tolist() == [1.0, 2.0, 3.0]
    assert others.tolist() == [7, 7, 7, 7]  # the memory behind the empty columns
    assert length == 3
