"""The ordered multiset against a sorted list."""

from __future__ import annotations

import bisect

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners import ordered
from learners.jit import kernel


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


@kernel
def entered(held, waiting, x):
    ordered.enter(held, waiting, x)


@kernel
def left(held, waiting, x):
    ordered.leave(held, waiting, x)


def exchanged(held: ordered.Ordered, come: np.ndarray, gone: np.ndarray) -> ordered.Ordered:
    """With `come` and without `gone`, after they have waited for it if they are not few."""
    held, waiting = ordered.opened(held, len(come), len(gone))
    for x in come:
        entered(held, waiting, x)
    for x in gone:
        left(held, waiting, x)
    return ordered.settled(held, waiting)


@pytest.fixture(params=["one by one", "by a pass", "by what is cheaper"])
def way(request, monkeypatch):
    """How what waited is worked in."""
    if request.param != "by what is cheaper":
        monkeypatch.setattr(ordered, "_PER_MOVE", 0 if request.param == "one by one" else 10**9)


DRAWN = {
    "distinct": lambda rng, n: rng.normal(size=n),
    "heavy ties": lambda rng, n: rng.integers(0, 7, n) / 7.0,
    "all equal": lambda rng, n: rng.choice([2.5], n),
    "zeros": lambda rng, n: rng.choice([-0.0, 0.0, -5e-324, 5e-324], n),
    "infinite": lambda rng, n: rng.choice([-np.inf, -1e308, 0.5, 1e308, np.inf], n),
}


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("kind", DRAWN)
@pytest.mark.parametrize("n", [0, 1, 383, 384, 385, 768, 3000])
def test_many_that_come_and_go_leave_what_numpy_sorts(n, kind):
    rng = np.random.default_rng(n)
    model = np.sort(DRAWN[kind](rng, n))
    held = ordered.packed(model)
    for more, less in [(25, 0), (700, 90), (30, 700), (385, 385), (26, 26), (1, 1)]:
        come = DRAWN[kind](rng, more)
        together = rng.permutation(np.concatenate([model, come]))  # what comes may go along with the rest
        gone, model = together[:less], np.sort(together[less:])
        held = exchanged(held, come, gone)
        check(held, model.tolist(), [*come[:9], *gone[:9], -np.inf, 0.0, np.inf])
    assert not np.signbit(ordered.values(held)[model == 0.0]).any()


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("kind", DRAWN)
@pytest.mark.parametrize("n", [1, 500, 3000])
def test_all_that_was_goes(n, kind):
    rng = np.random.default_rng(n)
    old, come = DRAWN[kind](rng, n), DRAWN[kind](rng, 600)
    check(exchanged(ordered.packed(np.sort(old)), come, old), np.sort(come).tolist(), [0.0, 2.5])
    check(exchanged(ordered.packed(np.sort(old)), come, np.concatenate([come, old])), [], [0.0])
    check(exchanged(ordered.packed(np.sort(old)), come, come), np.sort(old).tolist(), [0.0, 2.5])


@pytest.mark.parametrize("kind", DRAWN)
def test_members_come_and_go_singly_between_passes(kind, monkeypatch):
    monkeypatch.setattr(ordered, "_PER_MOVE", 10**9)
    rng = np.random.default_rng(3)
    held, model = ordered.empty(), np.empty(0)
    for round_ in range(12):
        come = DRAWN[kind](rng, 400)
        held = exchanged(held, come, model[::3])
        model = np.delete(np.concatenate([model, come]), np.s_[: len(model) : 3])
        for x in DRAWN[kind](rng, 150):
            held = ordered.reserved(held, 1)
            ordered.add(held, x)
            model = np.append(model, x)
        for x in model[: 60 * round_]:
            ordered.remove(held, x)
        model = rng.permutation(model[60 * round_ :])
        check(held, np.sort(model).tolist(), model[:20].tolist())


@pytest.mark.parametrize("kind", DRAWN)
def test_what_waits_can_be_counted_in(kind):
    rng = np.random.default_rng(8)
    old, come = DRAWN[kind](rng, 900), DRAWN[kind](rng, 300)
    held, waiting = ordered.opened(ordered.packed(np.sort(old)), 300, 300)
    for i in range(300):
        entered(held, waiting, come[i])
        left(held, waiting, old[i])
        if i % 29 == 0:
            model = np.sort(np.concatenate([old[i + 1 :], come[: i + 1]])).tolist()
            for x in (come[i], old[i], -np.inf, 0.0, np.inf):
                both = np.array(ordered.counts(held, x)) + ordered.awaited(waiting, x)
                assert tuple(both) == (bisect.bisect_left(model, x), bisect.bisect_right(model, x))


def test_few_are_made_at_once():
    held, waiting = ordered.opened(ordered.empty(), ordered.FEW, 0)
    assert waiting is ordered.AT_ONCE
    for x in range(ordered.FEW):
        entered(held, waiting, float(x))
    assert members(held) == [float(x) for x in range(ordered.FEW)]
    assert ordered.settled(held, waiting) is held
