"""The hash table from ids to slots of a ring against a dict."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.numerics.hash_table import find, hashes_of, put, table_for


def empty(slots, room=0):
    ring = np.zeros(slots, dtype=np.uint64)
    return ring, table_for(ring, room)


def check(ring, table, model):
    """Check that the table finds exactly the entries of the dict from hash to slot in the ring."""
    for h, slot in model.items():
        assert ring[slot] == h
        assert find(ring, table, np.uint64(h)) == slot
    assert np.count_nonzero(table) == len(model) == np.count_nonzero(ring)


def test_ids_hash_to_non_zero_and_missing_ids_to_0():
    hashes = hashes_of(["a", None, "b", "", "a"])
    assert hashes.dtype == np.uint64
    assert hashes[0] == hashes[4]
    assert hashes[1] == 0
    assert len({int(h) for h in hashes}) == 4
    assert hashes[[0, 2, 3]].all()
    assert hashes_of([]).shape == (0,)


def test_an_id_hashing_to_0_is_distinguished_from_a_missing_id(monkeypatch):
    monkeypatch.setattr(
        "learners.numerics.hash_table.hash_strings", lambda texts: np.zeros(len(texts), dtype=np.uint64)
    )
    assert hashes_of(["x", None]).tolist() == [1, 0]


def test_lookups_of_missing_ids_find_nothing():
    for slots in (0, 1, 64):
        ring, table = empty(slots)
        for h in (0, 1, 256, 2**64 - 1):
            assert find(ring, table, np.uint64(h)) == -1
    ring, table = empty(4)
    put(ring, table, 2, np.uint64(5))
    assert find(ring, table, np.uint64(0)) == -1


@pytest.mark.parametrize("slots", [1, 2, 3, 64, 127, 128])
@pytest.mark.parametrize("homes", [1, 3, 10**6], ids=["one chain", "three chains", "spread"])
def test_a_ring_wraps_around(slots, homes):
    """Hashes of the same low bits share a chain, also one that wraps around the table's end."""
    random = np.random.default_rng(slots)
    ring, table = empty(slots)
    mask = len(table) - 1
    model = {}
    for number in range(4 * slots + 5):
        h = ((number + 1) << 32) + (mask - int(random.integers(homes)) & mask)
        slot = number % slots
        model.pop(int(ring[slot]), None)
        model[h] = slot
        put(ring, table, slot, np.uint64(h))
        if number % 7 == 0 or number > 4 * slots:
            check(ring, table, model)
            absent = ((number + 2) << 32) + mask
            assert find(ring, table, np.uint64(absent)) == -1
    rebuilt = table_for(ring, 0)
    check(ring, rebuilt, model)


words = st.integers(1, 12).map(lambda n: (n << 40) + n % 3 + 254) | st.just(0)


@given(st.lists(st.tuples(st.integers(0, 9), words), max_size=80))
@settings(max_examples=60)
def test_matches_a_dict_for_any_insertions_and_removals(steps):
    ring, table = empty(10)
    model = {}
    for slot, h in steps:
        if h in model:  # `put` takes only what no slot holds
            assert find(ring, table, np.uint64(h)) == model[h]
            continue
        model.pop(int(ring[slot]), None)
        if h:
            model[h] = slot
        put(ring, table, slot, np.uint64(h))
        check(ring, table, model)


@pytest.mark.parametrize("room", [0, 1, 128, 129, 1000, 5000])
@pytest.mark.parametrize("slots", [0, 1, 300])
def test_the_table_size_is_a_power_of_two_and_at_most_half_full(slots, room):
    table = table_for(np.zeros(slots, dtype=np.uint64), room)
    assert len(table) & (len(table) - 1) == 0
    assert 2 * max(room, slots) <= len(table) <= max(256, 4 * max(room, slots))


def test_a_ring_with_a_duplicate_id_terminates_every_search():
    """No stream leads to one, but a state from elsewhere may say so."""
    ring = np.array([7, 9, 7, 0], dtype=np.uint64)
    table = table_for(ring, 0)
    assert find(ring, table, np.uint64(7)) in (0, 2)
    for slot in (0, 2, 1):
        put(ring, table, slot, np.uint64(100 + slot))
    assert [find(ring, table, np.uint64(h)) for h in (100, 101, 102, 9)] == [0, 1, 2, -1]
