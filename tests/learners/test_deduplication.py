"""Which events were learnt already: ids against an ordered dict, and the offsets of sources."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from learners.deduplication import MAX_SOURCES, RecentIds, Sources
from learners.numerics.hash_table import hashes_of
from learners.records import LateColumns, Segment, Status
from tests.learners.naive_pipeline import Recent

pytestmark = pytest.mark.integration


class Event(NamedTuple):
    """Input of the table of ids."""

    name: str | None
    label: float = 1.0
    bare: bool = False
    assumed: bool = False


names = st.none() | st.sampled_from(["", "a", "b", "c", "d", "e", "f", "g", "h", "\ud800", "é"]) | st.text(max_size=2)
events = st.builds(
    lambda name, label, kind: Event(name, label, kind == 1 and name is not None, kind == 2 and name is not None),
    names,
    st.sampled_from([-1.0, 1.0, 1.0, 1.0]),
    st.sampled_from([0, 0, 0, 1, 2]),
)
batches = st.lists(st.lists(events, max_size=12), max_size=8)
WORDS = ["applied", "duplicate", "beyond", "relabelled", "unknown"]


def admitted(recent: RecentIds, batch: list[Event], number: int = 0) -> tuple[list[str], list[Any]]:
    """Return the outcome of each event of a batch, and the former label and predictions of each corrected event."""
    n = len(batch)
    late = LateColumns.none(n)._replace(
        bare=np.array([item.bare for item in batch], dtype=np.bool_),
        assumed=np.array([item.assumed for item in batch], dtype=np.bool_),
    )
    y = np.array([item.label for item in batch])
    hashes = hashes_of([item.name for item in batch])
    status, slots = np.zeros(n, dtype=np.int8), np.full(n, -1, dtype=np.int64)
    corrected = []
    start = 0
    while start < n:
        stop = recent.admit(hashes, y, late, status, slots, start)
        new = start + np.flatnonzero(status[start:stop] == Status.APPLIED)
        event_scores = number + np.arange(len(new), dtype=np.float64)  # an event's score is its number, here
        recent.note(slots[new], number, event_scores, event_scores / 1024, event_scores.astype(np.int64) % 2)
        number += len(new)
        if stop < n:
            corrected.append(recent.relabel(int(slots[stop]), float(y[stop])))
        start = stop + 1
    return [WORDS[code] for code in status.tolist()], corrected


def same(a: RecentIds, b: RecentIds) -> bool:
    return all(
        x.dtype == y.dtype and x.tobytes() == y.tobytes()
        for x, y in zip(a.state().values(), b.state().values(), strict=True)
    )


def restored(recent: RecentIds) -> RecentIds:
    copy = RecentIds(recent.capacity)
    state = {name: array.copy() for name, array in recent.state().items()}
    assert not list(copy.problems(state, None))
    copy.restore(state)
    return copy


@pytest.mark.parametrize("capacity", [1, 2, 3, 7, 1000])
@given(batches)
@example([[Event("a"), Event("a", -1.0), Event("b"), Event("a")], [Event("a", -1.0), Event("b"), Event("b", -1.0)]])
@settings(max_examples=40)
def test_matches_an_ordered_dict(capacity: int, stream: list[list[Event]]) -> None:
    recent, model, other = RecentIds(capacity), Recent(capacity), RecentIds(capacity)
    for batch in stream:
        number = model.events
        expected, corrections = [], []
        for name, label, bare, assumed in batch:
            before = model.ids.get(name) if name is not None else None
            expected.append(model.admit(name, label, bare, assumed))
            if expected[-1] == "relabelled":
                assert before is not None
                was, of = before
                corrections.append((of, was, float(of), of / 1024, of % 2))
        assert admitted(recent, batch, number) == (expected, corrections)
        assert recent.remembered == len(model.ids)
        other = restored(other)  # after every batch, and fed one by one
        for event, word in zip(batch, expected, strict=True):
            assert admitted(other, [event], number)[0] == [word]
            number += word == "applied"
        assert same(recent, other)


@pytest.mark.parametrize("capacity", [1, 63, 64, 65, 100, 200])
def test_long_streams_with_many_evictions_match_an_ordered_dict(capacity: int) -> None:
    random = np.random.default_rng(capacity)
    recent, model = RecentIds(capacity), Recent(capacity)
    number = 0
    for size in (1, 0, 70, 300, 3, 500, 128):
        batch = [Event(f"{n}") for n in random.integers(0, 3 * capacity, size)]
        words = admitted(recent, batch, number)[0]
        number += words.count("applied")
        assert words == [model.admit(item.name, item.label) for item in batch]
        assert same(recent, restored(recent))


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_the_state_is_independent_of_batching(step: int) -> None:
    stream = [Event(f"id-{n % 700}", 1.0 if n % 350 else -1.0) for n in range(1000)]
    full, parts = RecentIds(500), RecentIds(500)
    words = admitted(full, stream)[0]
    result: list[str] = []
    for i in range(0, 1000, step):
        result += admitted(parts, stream[i : i + step], result.count("applied"))[0]
    assert result == words
    assert same(full, parts)
    assert full.state()["ring"].shape == (500,)


def test_memory_depends_on_the_stored_ids_and_not_on_the_capacity() -> None:
    recent = RecentIds(2**26)
    admitted(recent, [Event(str(n)) for n in range(100)])
    assert len(recent._learnt.ring) <= 128
    assert len(recent._table) <= 1024
    assert recent.state()["ring"].shape == (100,)
    assert recent.find_learnt(["5", "100", "99"]).tolist() == [True, False, True]


def test_the_prediction_of_an_id_is_kept_as_long_as_the_id() -> None:
    recent = RecentIds(2)
    admitted(recent, [Event("a"), Event("b"), Event("c")], number=7)
    assert recent.scores(["c", "b"]).tolist() == [9.0, 8.0]
    assert np.isnan(recent.scores(["a", "x"])).all()  # c pushed a out


def test_an_id_hashing_to_0_is_distinguished_from_a_missing_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "learners.numerics.hash_table.hash_strings", lambda texts: np.zeros(len(texts), dtype=np.uint64)
    )
    recent = RecentIds(10)
    words, _ = admitted(recent, [Event("x"), Event(None), Event("x"), Event(None)])
    assert words == ["applied", "applied", "duplicate", "applied"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ring", np.array([5, 5], dtype=np.uint64)),
        ("ring", np.array([5, 0], dtype=np.uint64)),
        ("labels", np.array([1, 0], dtype=np.int8)),
        ("decisions", np.array([1, 2], dtype=np.int8)),
        ("probabilities", np.array([0.5, 1.5])),
        ("probabilities", np.array([0.5, np.nan])),
        ("numbers", np.array([1, 0])),
        ("numbers", np.array([1, 1])),
        ("numbers", np.array([-1, 1])),
        ("count", np.array([2**60])),
    ],
)
def test_impossible_states_are_detected(name: str, value: Any) -> None:
    recent = RecentIds(10)
    admitted(recent, [Event("a"), Event("b")])
    assert [where for where, _ in recent.problems({**recent.state(), name: value}, None)] == [name]


def test_ranks_have_no_probabilities_and_ordinals_ascend_around_the_ring() -> None:
    recent = RecentIds(3)
    admitted(recent, [Event(name, 2.0) for name in "abcde"])
    state = {**recent.state(), "decisions": np.array([1, 5, 2], dtype=np.int8), "probabilities": np.full(3, np.nan)}
    assert state["numbers"].tolist() == [3, 4, 2]
    assert not list(recent.problems(state, 5))
    for name, value in (
        ("labels", np.array([1, 6, 2], dtype=np.int8)),
        ("decisions", np.array([0, 1, 2], dtype=np.int8)),
        ("probabilities", np.array([np.nan, 0.5, np.nan])),
        ("numbers", np.array([2, 3, 4])),
        ("count", np.array([6])),
    ):
        array_name = "numbers" if name == "count" else name  # the oldest id is another then
        assert [where for where, _ in recent.problems({**state, name: value}, 5)] == [array_name]


# Sources


def fresh_of(sources: Sources, parts: list[Segment], n: int) -> list[bool]:
    status = np.zeros(n, dtype=np.int8)
    sources.admit(parts, status)
    return [bool(fresh) for fresh in (status == Status.APPLIED).tolist()]


def segment(name: str, offset: int, size: int, start: int = 0) -> Segment:
    return Segment(start, start + size, name, offset, offset)


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
        status = np.zeros(size, dtype=np.int8)
        sources.admit([segment("s", offset, size)], status)
        got.append("".join("102"[code] for code in status.tolist()))
    assert got == fresh
    assert sources.next == {"s": following}


def test_missing_offsets_of_a_sparse_source_are_no_gap() -> None:
    sources = Sources()
    assert fresh_of(sources, list(Segment.of(0, "s", [3, 4, 9, 12, 13])), 5) == [True] * 5
    assert sources.next == {"s": 14}
    again = Segment.of(0, "s", [12, 13, 20], 9)
    assert again == (Segment(0, 2, "s", 12, 9), Segment(2, 3, "s", 20, 14))
    assert fresh_of(sources, list(again), 3) == [False, False, True]
    assert sources.next == {"s": 21}
    assert fresh_of(sources, [Segment(0, 1, "s", 30, 21)], 1) == [True]
    beyond = list(Segment.of(0, "s", [40, 50], 35))
    status = np.zeros(2, dtype=np.int8)
    assert Sources.gaps(beyond, sources.next) == beyond
    sources.admit(beyond, status)
    assert status.tolist() == [Status.BEYOND] * 2
    assert sources.next == {"s": 31}
    assert Sources.gaps(list(Segment.of(0, "s", [40, 50], 31)), sources.next) == []
    assert Sources.gaps(list(Segment.of(0, "unknown", [40, 50])), sources.next) == []


def test_several_segments_of_a_batch_and_events_without_a_source() -> None:
    sources = Sources()
    parts = [segment("a", 0, 2, 1), segment("b", 5, 2, 3), segment("a", 1, 3, 6)]
    fresh = fresh_of(sources, parts, 10)
    assert "".join("01"[flag] for flag in fresh) == "1111110111"
    assert sources.next == {"b": 7, "a": 4}
    assert fresh_of(sources, [segment("a", 4, 2)], 2) == [True, True]


def test_the_least_recently_used_source_is_forgotten() -> None:
    sources = Sources()
    for n in range(MAX_SOURCES):
        fresh_of(sources, [segment(f"s{n}", 0, 1)], 1)
    assert fresh_of(sources, [segment("s0", 0, 1)], 1) == [False]  # used again: the quiet one is s1 now
    assert fresh_of(sources, [segment("new", 0, 1)], 1) == [True]
    assert len(sources.next) == MAX_SOURCES == 64
    assert "s1" not in sources.next
    assert fresh_of(sources, [segment("s0", 0, 1)], 1) == [False]
    assert fresh_of(sources, [segment("s2", 0, 1)], 1) == [False]
    assert fresh_of(sources, [segment("s1", 0, 1)], 1) == [True]


@given(
    st.lists(
        st.tuples(st.sampled_from(["", "a", "b", "é\ud800", "x" * 200]), st.integers(0, 20), st.integers(0, 6)),
        max_size=20,
    )
)
@settings(max_examples=40)
def test_sources_match_a_dict_and_survive_a_restore(steps: list[tuple[str, int, int]]) -> None:
    sources, following = Sources(), dict[str, int]()
    for name, offset, size in steps:
        new = following.get(name, offset)
        if offset <= new:
            following.pop(name, None)
            following[name] = max(new, offset + size)
        expected = [new <= offset + i and offset <= new for i in range(size)]
        assert fresh_of(sources, [segment(name, offset, size)], size) == expected
        state = {key: array.copy() for key, array in sources.state().items()}
        sources = Sources()
        sources.restore(state)
        assert list(sources.next.items()) == list(following.items())  # the order of use too
