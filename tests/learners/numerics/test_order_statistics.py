"""The ordered multiset against a sorted list."""

from __future__ import annotations

import bisect
from collections import deque

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.numerics import order_statistics
from learners.numerics.jit import kernel
from learners.numerics.order_statistics import WAITING, MultisetArrays

DISTRIBUTIONS = {
    "distinct": lambda rng, n: rng.normal(size=n),
    "heavy ties": lambda rng, n: rng.integers(0, 7, n) / 7.0,
    "all equal": lambda rng, n: rng.choice([2.5], n),
    "zeros": lambda rng, n: rng.choice([-0.0, 0.0, -5e-324, 5e-324], n),
    "infinite": lambda rng, n: rng.choice([-np.inf, -1e308, 0.5, 1e308, np.inf], n),
}


@kernel
def moved(multiset, added, removals):
    """All of `added` enter, then all of `removals` leave."""
    for x in added:
        order_statistics.enter(multiset, x)
    for x in removals:
        order_statistics.leave(multiset, x)


def check(multiset: MultisetArrays, model: list[float], probes: list[float]) -> None:
    """Readers see the same before and after what waits is worked in."""
    waits = multiset.sizes.tolist()
    seen = order_statistics.values(multiset)
    quantiles = [order_statistics.counts(multiset, x) for x in probes]
    assert multiset.sizes.tolist() == waits
    assert seen.tolist() == model
    assert not np.signbit(seen[seen == 0.0]).any()
    assert quantiles == [(bisect.bisect_left(model, x), bisect.bisect_right(model, x)) for x in probes]
    assert order_statistics.settled(multiset).tobytes() == seen.tobytes() == order_statistics.values(multiset).tobytes()
    assert [order_statistics.counts(multiset, x) for x in probes] == quantiles


@pytest.mark.parametrize("kind", DISTRIBUTIONS)
@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 127, 128, 129, 3000])
def test_many_insertions_and_removals_match_numpy_sort(n: int, kind: str) -> None:
    rng = np.random.default_rng(n)
    model = np.sort(DISTRIBUTIONS[kind](rng, n))
    multiset = order_statistics.ordered(model)
    for more, less in [(25, 0), (700, 90), (30, 600), (385, 385), (26, 26), (1, 1), (0, 1), (3000, 2900)]:
        added = DISTRIBUTIONS[kind](rng, more)
        multiset = order_statistics.reserved(multiset, len(model) + more, max(more, less))
        together = rng.permutation(np.concatenate([model, added]))  # added numbers may leave together with the others
        removals, model = together[:less], np.sort(together[less:])
        moved(multiset, added, removals)
        check(multiset, model.tolist(), [*added[:9], *removals[:9], -np.inf, 0.0, np.inf])


@pytest.mark.parametrize("kind", DISTRIBUTIONS)
@pytest.mark.parametrize("n", [1, 500, 3000])
def test_all_previous_values_can_be_removed(n: int, kind: str) -> None:
    rng = np.random.default_rng(n)
    old, added = DISTRIBUTIONS[kind](rng, n), DISTRIBUTIONS[kind](rng, 600)
    for removals, left in ((old, added), (np.concatenate([added, old]), added[:0]), (added, old)):
        multiset = order_statistics.reserved(order_statistics.ordered(np.sort(old)), n + 600, n + 600)
        moved(multiset, added, removals)
        check(multiset, np.sort(left).tolist(), [0.0, 2.5])


@pytest.mark.parametrize("spread", [1, 7, 10**6], ids=["all equal", "heavy ties", "distinct"])
@pytest.mark.parametrize("window", [1, 300, 3000])
@pytest.mark.parametrize("step", [1, 90])
def test_a_sliding_window_equals_a_sorted_list(window: int, spread: int, step: int) -> None:
    rng = np.random.default_rng(spread)
    stream = rng.integers(0, spread, 6000) / 7.0 + np.arange(6000) // 500
    multiset, model, last = order_statistics.ordered(np.empty(0)), [], deque[float]()
    for start in range(0, len(stream), step):
        part = stream[start : start + step]
        multiset = order_statistics.reserved(multiset, len(model) + len(part), len(part))
        for x in part.tolist():
            bisect.insort(model, x)
            last.append(x)
        removals = [last.popleft() for _ in range(max(0, len(last) - window))]
        for x in removals:
            model.pop(bisect.bisect_left(model, x))
        moved(multiset, part, np.array(removals))
        if start % (step * 13) == 0:
            check(multiset, model, [part[0], part[0] - 0.01, part[0] + 0.01, -1e300, 1e300])
    check(multiset, model, stream[-20:].tolist())
    moved(multiset, np.empty(0), np.array(model))
    check(multiset, [], [0.0])


@given(st.lists(st.tuples(st.booleans(), st.integers(-3, 3)), max_size=200), st.integers(0, 2**32 - 1))
@settings(max_examples=30)
def test_insertions_and_removals_in_any_order(steps: list[tuple[bool, int]], seed: int) -> None:
    rng = np.random.default_rng(seed)
    multiset, model = order_statistics.reserved(order_statistics.ordered(np.empty(0)), 4000, 1), []
    for adding, level in steps:
        for x in (level + rng.random(20).round(1)).tolist():
            if adding:
                moved(multiset, np.array([x]), np.empty(0))
                bisect.insort(model, x)
            elif model:
                moved(multiset, np.empty(0), np.array([model.pop(int(rng.integers(len(model))))]))
    check(multiset, model, [-3.0, -0.05, 0.0, 0.1, 3.95])


@pytest.mark.parametrize("more", [WAITING - 1, WAITING, WAITING + 1, 5 * WAITING])
def test_an_overfull_buffer_is_merged_meanwhile(more: int) -> None:
    rng = np.random.default_rng(more)
    old, added = rng.normal(size=more).round(2), rng.normal(size=more).round(2)
    multiset = order_statistics.reserved(order_statistics.ordered(np.sort(old)), 2 * more, 1)
    moved(multiset, added, old)
    assert max(multiset.sizes[1:3]) <= WAITING
    check(multiset, np.sort(added).tolist(), added[:20].tolist())


def test_capacity_grows_with_the_members_and_is_kept() -> None:
    multiset = order_statistics.ordered(np.empty(0))
    assert multiset.sides.shape == (2, 64)
    same = order_statistics.reserved(multiset, 64, 64)
    assert same is multiset
    moved(multiset, np.arange(64.0), np.empty(0))
    larger = order_statistics.reserved(multiset, 65, 1)
    assert larger.sides.shape == (2, 128)
    check(larger, list(range(64)), [3.0])
    assert order_statistics.reserved(larger, 65, 1) is larger
    moved(larger, np.arange(60.0), np.empty(0))
    assert larger.sizes[1] == 60
    assert order_statistics.reserved(larger, 128, 100) is larger  # no room for 100 to wait: what waits is worked in
    assert larger.sizes.tolist()[:3] == [124, 0, 0]


@pytest.mark.parametrize("n", [0, 1, 2, 255, 1024])
@pytest.mark.parametrize("kind", DISTRIBUTIONS)
def test_the_buffer_is_sorted(n: int, kind: str) -> None:
    numbers = DISTRIBUTIONS[kind](np.random.default_rng(n), n + 3)
    expected = np.sort(numbers[:n])
    order_statistics.sort(numbers, n)
    assert (numbers[:n] == expected).all()
