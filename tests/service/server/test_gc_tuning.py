"""The collector of cycles walks through what is new, and only now and then through all that there is."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from service.server.gc_tuning import set_aside


class Knot:
    """Goes by the collector only."""

    def __init__(self) -> None:
        self.own = self


@pytest.fixture(autouse=True)
def by_hand() -> Iterator[None]:
    """Collected when it is asked for."""
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.enable()


def collected(knot: weakref.ref[Knot]) -> bool:
    gc.collect()
    return knot() is None


def test_what_has_outlived_one_is_not_walked_through_by_the_next() -> None:
    with set_aside():
        knot = Knot()
        seen = weakref.ref(knot)
        assert not collected(seen)
        assert not any(one is knot for one in gc.get_objects())
        del knot
        assert not collected(seen)
        young = Knot()
        seen_young = weakref.ref(young)
        del young
        assert collected(seen_young)


def test_what_has_no_cycle_leaves_the_memory_at_once() -> None:
    with set_aside():
        plain = Knot()
        del plain.own
        seen = weakref.ref(plain)
        gc.collect()
        del plain
        assert seen() is None


def test_all_is_walked_through_when_there_is_twice_as_much() -> None:
    with set_aside():
        there = gc.get_freeze_count()
        knot = Knot()
        seen = weakref.ref(knot)
        assert not collected(seen)
        del knot
        for _ in range(3):  # much comes, and goes
            passing = [[i] for i in range(2 * there)]
            assert not collected(seen)
            del passing
        assert not collected(seen)
        staying = [[i] for i in range(2 * there)]
        assert not collected(seen)  # but these are set aside, too
        assert collected(seen)
        assert not any(one is staying for one in gc.get_objects())  # nor is what is left walked through by the next


def test_it_is_as_before_afterwards() -> None:
    assert gc.get_threshold()[2] == 10, "left so by another test"
    thresholds, callbacks = gc.get_threshold(), list(gc.callbacks)
    with set_aside():
        assert gc.get_threshold() != thresholds
    assert (gc.get_threshold(), gc.callbacks) == (thresholds, callbacks)


def test_who_ends_before_another_takes_nothing_from_it() -> None:
    thresholds, callbacks = gc.get_threshold(), list(gc.callbacks)
    first, second = set_aside(), set_aside()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert gc.get_threshold() != thresholds
    assert len(gc.callbacks) == len(callbacks) + 1
    second.__exit__(None, None, None)
    assert (gc.get_threshold(), gc.callbacks) == (thresholds, callbacks)
