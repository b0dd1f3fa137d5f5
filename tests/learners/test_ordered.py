"""The ordered multiset against a sorted list."""

from __future__ import annotations

import bisect

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners import ordered


def members(held: ordered.Ordered) -> list[float]:
    used = int(held.used[0])
    rows = [held.blocks[held.order[i], : held.sizes[i]] for i in range(used)]
    assert all(len(row) > 0 for row in rows)
    assert sorted(held.order.tolist()) == list(range(len(held.order)))
    assert held.sizes[used:].tolist() == [0] * (len(held.sizes) - used)
    return np.concatenate(rows).tolist() if rows else []


def check(held: ordered.Ordered, model: list[float], probes: list[float]) -> None:
    assert members(held) == model
    sizes = held.sizes[: int(held.used[0])]
    assert (sizes[1:] + sizes[:-1] > ordered.WIDTH // 2).all()
    assert len(sizes) <= 4 * len(model) / ordered.WIDTH + 1
    for x in probes:
        assert ordered.counts(held, x) == (bisect.bisect_left(model, x), bisect.bisect_right(model, x))


@pytest.mark.parametrize("spread", [1, 7, 10**6], ids=["all equal", "heavy ties", "distinct"])
@pytest.mark.parametrize("window", [1, 300, 3000])
def test_a_sliding_window_stays_a_sorted_list(window, spread):
    rng = np.random.default_rng(spread)
    stream = (rng.integers(0, spread, 6000) / 7.0).tolist()
    drift = [value + i // 500 for i, value in enumerate(stream)]
    held, model = ordered.empty(), []
    for i, x in enumerate(drift):
        held = ordered.reserved(held, 1)
        ordered.add(held, x)
        bisect.insort(model, x)
        if i >= window:
            ordered.remove(held, drift[i - window])
            model.pop(bisect.bisect_left(model, drift[i - window]))
        if i % 997 == 0:
            check(held, model, [x, x - 0.01, x + 0.01, -1e300, 1e300])
    check(held, model, drift[-20:])
    for x in list(model):
        ordered.remove(held, x)
    assert members(held) == []


@given(st.lists(st.tuples(st.booleans(), st.integers(-3, 3)), max_size=200), st.integers(0, 2**32 - 1))
@settings(max_examples=50, deadline=None, derandomize=True)
def test_any_order_of_adding_and_removing(steps, seed):
    rng = np.random.default_rng(seed)
    held, model = ordered.reserved(ordered.empty(), 4000), []
    for adding, level in steps:
        for x in (level + rng.random(20).round(1)).tolist():
            if adding:
                ordered.add(held, x)
                bisect.insort(model, x)
            elif model:
                gone = model.pop(int(rng.integers(len(model))))
                ordered.remove(held, gone)
    check(held, model, [-3.0, -0.05, 0.0, 0.1, 3.95])


@pytest.mark.parametrize("batch", [1, 7, 300, 5000])
def test_reserving_for_a_batch_is_enough_when_every_block_is_full(batch):
    """Blocks are filled to the brim, then one member after the other goes into another block and splits it."""
    rng = np.random.default_rng(0)
    held, model = ordered.empty(), []
    blocks = 40
    for x in np.arange(blocks * ordered.WIDTH // 2, dtype=float):  # ascending: each split leaves half a block behind
        held = ordered.reserved(held, 1)
        ordered.add(held, x)
        model.append(x)
    fill = np.repeat(np.arange(blocks) * ordered.WIDTH / 2, ordered.WIDTH // 2) + rng.random(
        blocks * ordered.WIDTH // 2
    )
    extra = rng.permutation(np.arange(blocks * ordered.WIDTH // 2)) + 0.5
    for values in (fill, extra):
        for start in range(0, len(values), batch):
            part = values[start : start + batch]
            held = ordered.reserved(held, len(part))
            for x in part:
                ordered.add(held, x)
                bisect.insort(model, x)
                assert int(held.used[0]) <= len(held.sizes)
    check(held, model, model[::997])


@pytest.mark.parametrize("order", ["ascending", "descending"])
def test_reserving_once_is_enough_for_any_order(order):
    values = np.arange(20_000.0)
    held = ordered.reserved(ordered.empty(), len(values))
    for x in values if order == "ascending" else values[::-1]:
        ordered.add(held, x)
    assert members(held) == values.tolist()


@pytest.mark.parametrize("spread", [1, 7, 10**6], ids=["all equal", "heavy ties", "distinct"])
@pytest.mark.parametrize("members_", [0, 1, 2, 511, 512, 513, 5000])
def test_selecting_by_rank(members_, spread):
    values = np.random.default_rng(members_).integers(0, spread, members_) / 7.0
    held = ordered.reserved(ordered.empty(), members_)
    for x in values:
        ordered.add(held, x)
    model = np.sort(values)
    ranks = range(members_) if members_ < 10 else [0, 1, 255, 256, 257, members_ // 2, members_ - 2, members_ - 1]
    assert [ordered.select(held, rank) for rank in ranks] == [model[rank] for rank in ranks]
    assert np.isnan([ordered.select(held, rank) for rank in (-1, members_, members_ + 1, 10**9)]).all()


def test_selecting_while_members_come_and_go():
    rng = np.random.default_rng(5)
    held, model = ordered.reserved(ordered.empty(), 6000), []
    for i in range(6000):
        if model and rng.random() < 0.45:
            ordered.remove(held, model.pop(int(rng.integers(len(model)))))
        else:
            x = float(rng.integers(0, 900))
            ordered.add(held, x)
            bisect.insort(model, x)
        if i % 50 == 0 and model:
            rank = int(rng.integers(len(model)))
            assert ordered.select(held, rank) == model[rank]
            below, upto = ordered.counts(held, model[rank])
            assert below <= rank < upto
