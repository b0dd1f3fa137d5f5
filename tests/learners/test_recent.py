"""Which events were learnt already: ids against an ordered dict, and the offsets of sources."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from learners.batch import Segment
from learners.recent import MAX_SOURCES, RecentIds, Sources
from tests.learners.slow_pipeline import Recent

ids = st.none() | st.sampled_from(["", "a", "b", "c", "d", "e", "f", "g", "h", "\ud800", "é"]) | st.text(max_size=2)
batches = st.lists(st.lists(st.tuples(ids, st.booleans()), max_size=12), max_size=8)


def admitted(recent: RecentIds | Sources, entries: Any, fresh: list[bool]) -> list[bool]:
    mask = np.array(fresh, dtype=np.bool_)
    recent.admit(entries, mask)
    return mask.tolist()


def same(a: RecentIds | Sources, b: RecentIds | Sources) -> bool:
    return all(
        x.dtype == y.dtype and x.tobytes() == y.tobytes()
        for x, y in zip(a.state().values(), b.state().values(), strict=True)
    )


def restored(recent: RecentIds) -> RecentIds:
    copy = RecentIds(recent.capacity)
    copy.restore({name: array.copy() for name, array in recent.state().items()})
    return copy


@pytest.mark.parametrize("capacity", [1, 2, 3, 7, 1000])
@given(batches)
@example([[("a", True), ("a", True), ("b", True), ("a", True)], [("a", True), ("b", False), ("b", True)]])
@settings(max_examples=40, deadline=None, derandomize=True)
def test_same_as_an_ordered_dict(capacity: int, stream: list[list[tuple[str | None, bool]]]) -> None:
    recent, model, other = RecentIds(capacity), Recent(capacity), RecentIds(capacity)
    for batch in stream:
        names, fresh = [name for name, _ in batch], [flag for _, flag in batch]
        expected = model.admit(names, fresh)
        assert admitted(recent, names, fresh) == expected
        assert recent.held == len(model.ids)
        other = restored(other)  # after every batch, and fed one by one
        assert [admitted(other, [name], [flag])[0] for name, flag in batch] == expected
        assert same(recent, other)


@pytest.mark.parametrize("capacity", [1, 63, 64, 65, 100, 200])
def test_long_streams_with_many_evictions(capacity: int) -> None:
    random = np.random.default_rng(capacity)
    recent, model = RecentIds(capacity), Recent(capacity)
    for size in (1, 0, 70, 300, 3, 500, 128):
        names = [f"{n}" for n in random.integers(0, 3 * capacity, size)]
        assert admitted(recent, names, [True] * size) == model.admit(names, [True] * size)
        assert same(recent, restored(recent))


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_the_state_does_not_tell_the_batches(step: int) -> None:
    names = [f"id-{n % 700}" for n in range(1000)]
    whole, parts = RecentIds(500), RecentIds(500)
    fresh = admitted(whole, names, [True] * 1000)
    assert [
        flag
        for i in range(0, 1000, step)
        for flag in admitted(parts, names[i : i + step], [True] * len(names[i : i + step]))
    ] == fresh
    assert same(whole, parts)
    assert whole.state()["ring"].shape == (500,)


def test_memory_follows_what_is_held_and_not_the_capacity() -> None:
    recent = RecentIds(2**26)
    admitted(recent, [str(n) for n in range(100)], [True] * 100)
    assert len(recent._ring) <= 128
    assert len(recent._table) <= 512
    assert recent.state()["ring"].shape == (100,)


def test_an_id_whose_hash_says_no_id_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("learners.recent.hash_strings", lambda texts: np.zeros(len(texts), dtype=np.uint64))
    recent = RecentIds(10)
    assert admitted(recent, ["x", None, "x", None], [True] * 4) == [True, True, False, True]


# Sources


def segment(name: str, offset: int, size: int, start: int = 0) -> Segment:
    return Segment(start, start + size, name, offset)


@pytest.mark.parametrize(
    ("steps", "fresh", "following"),
    [
        ([(0, 3)], ["111"], 3),
        ([(0, 3), (3, 2)], ["111", "11"], 5),
        ([(0, 3), (0, 3)], ["111", "000"], 3),
        ([(0, 3), (1, 4)], ["111", "0011"], 5),
        ([(0, 3), (10, 2), (5, 3)], ["111", "22", "222"], 3),
        ([(0, 3), (4, 2), (3, 1), (4, 2)], ["111", "22", "1", "11"], 6),
        ([(0, 5), (1, 2), (4, 2)], ["11111", "00", "01"], 6),
        ([(7, 1)], ["1"], 8),
        ([(2**53 - 1, 1)], ["1"], 2**53),
        ([(0, 0), (0, 0)], ["", ""], 0),
    ],
    ids=["first", "next", "again", "overlap", "gap", "gap filled", "within", "late start", "largest", "empty"],
)
def test_offsets_gaps_and_overlaps(steps: list[tuple[int, int]], fresh: list[str], following: int) -> None:
    sources = Sources()
    got = []
    for offset, size in steps:
        mask = np.ones(size, dtype=np.bool_)
        beyond = sources.admit([segment("s", offset, size)], mask)
        assert not (mask & beyond).any()
        got.append("".join(str(code) for code in (mask + 2 * beyond).tolist()))
    assert got == fresh
    assert sources.next == {"s": following}


def test_several_segments_of_a_batch_and_events_of_no_source() -> None:
    sources = Sources()
    parts = [segment("a", 0, 2, 1), segment("b", 5, 2, 3), segment("a", 1, 3, 6)]
    fresh = admitted(sources, parts, [True] * 10)
    assert "".join("01"[flag] for flag in fresh) == "1111110111"
    assert sources.next == {"b": 7, "a": 4}
    assert admitted(sources, [segment("a", 4, 2)], [True, False]) == [True, False]


def test_the_source_that_was_quiet_for_longest_is_forgotten() -> None:
    sources = Sources()
    for n in range(MAX_SOURCES):
        admitted(sources, [segment(f"s{n}", 0, 1)], [True])
    assert admitted(sources, [segment("s0", 0, 1)], [True]) == [False]  # used again: the quiet one is s1 now
    assert admitted(sources, [segment("new", 0, 1)], [True]) == [True]
    assert len(sources.next) == MAX_SOURCES == 64
    assert "s1" not in sources.next
    assert admitted(sources, [segment("s0", 0, 1)], [True]) == [False]
    assert admitted(sources, [segment("s2", 0, 1)], [True]) == [False]
    assert admitted(sources, [segment("s1", 0, 1)], [True]) == [True]


@given(
    st.lists(
        st.tuples(st.sampled_from(["", "a", "b", "é\ud800", "x" * 200]), st.integers(0, 20), st.integers(0, 6)),
        max_size=20,
    )
)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_sources_equal_a_dict_and_survive_a_restore(steps: list[tuple[str, int, int]]) -> None:
    sources, following = Sources(), dict[str, int]()
    for name, offset, size in steps:
        new = following.get(name, offset)
        if offset <= new:
            following.pop(name, None)
            following[name] = max(new, offset + size)
        expected = [new <= offset + i and offset <= new for i in range(size)]
        assert admitted(sources, [segment(name, offset, size)], [True] * size) == expected
        state = {key: array.copy() for key, array in sources.state().items()}
        sources = Sources()
        sources.restore(state)
        assert list(sources.next.items()) == list(following.items())  # the order of use too
