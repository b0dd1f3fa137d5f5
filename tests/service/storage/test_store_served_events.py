"""The promises of `Store`, kept by every store: what was served is remembered for its label."""

from __future__ import annotations

import asyncio
import math

import pytest

from service.errors import LearnerGone, StoreUnavailable
from service.storage import memory
from service.storage import store_protocol as stores
from service.storage.redis import redis_store as redis
from service.storage.redis import served_scripts as redis_served
from service.storage.served_labels import MAX_LABELS, ServedLabel
from service.storage.sqlite import served_rows as sqlite_served
from service.storage.store_protocol import (
    LogEntry,
    LogHead,
    ServedCounts,
    ServedEvent,
    ServedLimits,
    ServedPage,
    ServeReceipt,
    Store,
)
from tests.harness.fixtures import Opener
from tests.harness.store_records import (
    BIRTH,
    EVERY_BYTE,
    UNBOUNDED,
    event,
    events,
    filled,
    labels_of,
    record,
    served,
    token,
    whole_log,
)

LABELS = labels_of([""])[""]


def ids(start: int, stop: int) -> list[str]:
    return [str(number) for number in range(start, stop)]


def bounds(events: int = 2**53, bytes: int = 2**53, before: float = -math.inf) -> ServedLimits:
    return ServedLimits(events, bytes, before)


async def serve(
    store: Store, number: int, remembered: list[ServedEvent], within: ServedLimits = UNBOUNDED
) -> ServedCounts:
    return (await store.serve("a", BIRTH, record(number), 1, remembered, within)).pending


async def test_serve_appends_a_record_and_stores_events(store: Store) -> None:
    await filled(store, 2)
    assert await store.pending("a", BIRTH) == ServedCounts(0, 0, 0, 0)
    assert await serve(store, 3, events(10, 13)) == ServedCounts(3, 36, 0, 0)
    assert await serve(store, 4, []) == ServedCounts(3, 36, 0, 0)
    assert await store.append("a", BIRTH, [record(5)], 3) == [LogEntry(4, *record(4)), LogEntry(5, *record(5))]
    assert await serve(store, 6, events(13, 14)) == ServedCounts(4, 48, 0, 0) == await store.pending("a", BIRTH)
    assert await whole_log(store) == [
        LogEntry(1, BIRTH, b"created"),
        *(LogEntry(position, *record(position)) for position in range(2, 7)),
    ]
    assert await store.heads() == {"a": LogHead(BIRTH, 6)}
    assert await store.recall("a", BIRTH, ids(10, 14)) == events(10, 14)


async def test_recall_answers_in_the_requested_order(store: Store) -> None:
    await served(store, events(0, 5))
    assert await store.recall("a", BIRTH, []) == []
    request = ["3", "none", "0", "3", "03", "", "4"]
    assert await store.recall("a", BIRTH, request) == [event(3), None, event(0), event(3), None, None, event(4)]


async def test_many_ids_are_processed_in_steps(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "IDS", 3)
    await served(store, events(0, 20))
    for count in (2, 3, 4, 20):
        assert await store.recall("a", BIRTH, ids(0, count)) == events(0, count)
    await store.labelled("a", BIRTH, labels_of(ids(0, 7)))
    assert (await store.expired("a", BIRTH, 99.0, 99)).labelled == [True] * 7 + [False] * 13


ODD = [
    "",
    " ",
    "\0",
    "a\0b",
    "ä",
    "a\u0308",
    "漢字🦊",
    "x\ny",
    "1:2",
    "7",
    "07",
    "7.0",
    "%s",
    "{a}",
    "é" * 256,
    "🦊" * 256,
]


async def test_ids_may_be_any_text_and_data_any_bytes(store: Store) -> None:
    odd = [ServedEvent(id, -1.5e-300, EVERY_BYTE + id.encode()) for id in ODD]
    odd.append(ServedEvent("empty", 1e300, b""))
    await served(store, odd)
    assert await store.recall("a", BIRTH, [item.id for item in odd]) == odd
    assert (await store.pending("a", BIRTH)).bytes == sum(len(item.id.encode()) + len(item.data) for item in odd)
    assert (await store.expired("a", BIRTH, math.inf, 100)).events == odd
    await store.labelled("a", BIRTH, labels_of(ODD))
    assert (await store.expired("a", BIRTH, math.inf, 100)).labelled == [True] * len(ODD) + [False]
    await serve(store, 3, [], bounds(events=1))
    assert await store.recall("a", BIRTH, ODD) == [None] * (len(ODD) - 1) + [True]


async def test_a_repeated_serve_is_stored_once(open_again: Opener) -> None:
    item, other = await open_again(), await open_again()
    await filled(item, 2)
    first = await serve(item, 3, events(0, 3))
    assert await serve(item, 3, events(0, 3)) == first
    await serve(other, 4, [event(1, size=20)])
    for _ in range(2):
        assert await serve(item, 3, events(0, 3), bounds(events=0)) == ServedCounts(
            3, 43, 0, 0
        )  # nor is anything dropped
    assert await item.recall("a", BIRTH, ids(0, 3)) == [event(0), event(1, size=20), event(2)]
    assert await item.heads() == {"a": LogHead(BIRTH, 4)}
    await item.append("a", BIRTH, [record(5)], 4)
    assert await serve(item, 5, events(7, 8)) == ServedCounts(3, 43, 0, 0)  # whichever call appended it


async def test_serving_an_id_again_replaces_its_data_and_position(store: Store) -> None:
    await served(store, events(0, 4))
    assert await serve(store, 3, [event(1, size=25)]) == ServedCounts(4, 59, 0, 0)
    assert (await store.expired("a", BIRTH, 99.0, 9)).events == [event(0), event(2), event(3), event(1, size=25)]
    assert await serve(store, 4, [], bounds(events=1)) == ServedCounts(1, 26, 0, 3)
    assert await store.recall("a", BIRTH, ids(0, 4)) == [None, event(1, size=25), None, True]


async def test_the_later_of_two_equal_ids_in_a_call_wins(store: Store) -> None:
    await store.create("a", BIRTH, b"")
    twice = [event(1), event(2), ServedEvent("1", 5.0, b"later"), event(3)]
    assert await serve(store, 2, twice) == ServedCounts(3, 3 + 25, 0, 0)
    assert (await store.expired("a", BIRTH, 99.0, 9)).events == [event(2), twice[2], event(3)]


async def test_events_beyond_the_number_limit_are_evicted_oldest_first(store: Store) -> None:
    await store.create("a", BIRTH, b"")
    assert await serve(store, 2, events(0, 6), bounds(events=4)) == ServedCounts(4, 44, 0, 2)
    assert await serve(store, 3, events(6, 8), bounds(events=4)) == ServedCounts(4, 44, 0, 4)
    assert await store.recall("a", BIRTH, ids(0, 9)) == [True] * 4 + events(4, 8) + [None]
    assert await serve(store, 4, [], bounds(events=0)) == ServedCounts(0, 0, 0, 8)


async def test_events_beyond_the_byte_limit_are_evicted_oldest_first(store: Store) -> None:
    await store.create("a", BIRTH, b"")
    assert await serve(store, 2, events(0, 6), bounds(bytes=44)) == ServedCounts(4, 44, 0, 2)
    assert await serve(store, 3, events(6, 7), bounds(bytes=44)) == ServedCounts(4, 44, 0, 3)
    assert await serve(store, 4, [event(7, size=40)], bounds(bytes=44)) == ServedCounts(1, 41, 0, 7)
    assert await serve(store, 5, [event(8, size=50)], bounds(bytes=44)) == ServedCounts(0, 0, 0, 9)
    assert await store.recall("a", BIRTH, ids(0, 9)) == [True] * 9


async def test_events_with_an_earlier_time_expire(store: Store) -> None:
    await served(store, events(0, 6))
    assert await serve(store, 3, [], bounds(before=2.0)) == ServedCounts(4, 44, 2, 0)
    assert await serve(store, 4, events(6, 8), bounds(before=3.5, events=2)) == ServedCounts(2, 22, 4, 2)
    assert await store.recall("a", BIRTH, ids(0, 8)) == [None] * 4 + [True] * 2 + events(6, 8)


async def test_events_expire_in_serving_order(store: Store) -> None:
    """It goes by the order in which they were served: one with a time in the future, or none, holds up the others."""
    timeless = ServedEvent("timeless", math.nan, b"")
    await served(store, [event(0), event(50), event(1), timeless, event(2)])
    assert (await store.expired("a", BIRTH, 10.0, 9)).events == [event(0)]
    assert await serve(store, 3, [], bounds(before=10.0)) == ServedCounts(4, 42, 1, 0)
    assert await serve(store, 4, [], bounds(before=51.0)) == ServedCounts(2, 19, 3, 0)
    (actual,) = await store.recall("a", BIRTH, ["timeless"])
    assert isinstance(actual, ServedEvent)
    assert math.isnan(actual.time)
    assert (await store.expired("a", BIRTH, math.inf, 9)).events == []
    assert await serve(store, 5, [], bounds(before=math.inf)) == ServedCounts(2, 19, 3, 0)
    assert await serve(store, 6, [], bounds(before=math.inf, events=1)) == ServedCounts(0, 0, 4, 1)  # it makes room


async def test_expired_returns_the_oldest_and_removes_nothing(store: Store) -> None:
    await served(store, events(0, 300))
    assert (await store.expired("a", BIRTH, -1.0, 9)).events == []
    assert (await store.expired("a", BIRTH, 4.0, 9)).events == events(0, 4)  # not the one of just this time
    assert (await store.expired("a", BIRTH, 4.0, 3)).events == events(0, 3)
    assert (await store.expired("a", BIRTH, 4.0, 0)).events == []
    assert (await store.expired("a", BIRTH, 250.5, 1000)).events == events(0, 251)
    assert (await store.pending("a", BIRTH)).events == 300


async def test_expired_is_limited_in_bytes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (memory, sqlite_served, redis):
        monkeypatch.setattr(module, "REPLY_BYTES", 40)
    await served(store, [*events(0, 6), event(6, size=50), event(7)])
    assert (await store.expired("a", BIRTH, 99.0, 9)).events == events(0, 4)  # to the byte
    await store.settle("a", BIRTH, (await store.expired("a", BIRTH, 99.0, 9)).upto)
    actual = await store.expired("a", BIRTH, 99.0, 9)
    assert actual.events == events(4, 6)
    await store.settle("a", BIRTH, actual.upto)
    assert (await store.expired("a", BIRTH, 99.0, 9)).events == [event(6, size=50)]  # one always


async def test_served_lists_the_newest_first_in_pages(store: Store) -> None:
    await served(store, events(0, 6))
    await serve(store, 3, [event(2), event(6)], bounds(events=6))  # 2 is served again, 0 is dropped
    expected = [event(number) for number in (6, 2, 5, 4, 3, 1)]
    assert await store.served("a", BIRTH, 9) == ServedPage(expected, [8, 7, 6, 5, 4, 2], [None] * 6, more=False)
    assert await store.served("a", BIRTH, 6) == ServedPage(expected, [8, 7, 6, 5, 4, 2], [None] * 6, more=False)
    pages = [await store.served("a", BIRTH, 4)]
    await serve(store, 4, events(7, 9))
    await store.labelled("a", BIRTH, labels_of([event(1).id]))
    pages.append(await store.served("a", BIRTH, 4, pages[0].numbers[-1]))  # whatever came since
    assert [page.events for page in pages] == [expected[:4], expected[4:]]
    assert [page.more for page in pages] == [True, False]
    assert [page.labels for page in pages] == [[None] * 4, [None, LABELS]]
    assert await store.labels("a", BIRTH, ids(0, 4)) == [None, LABELS, None, None]
    await serve(store, 5, [event(1)])
    assert await store.labels("a", BIRTH, [event(1).id]) == [None]
    assert await store.served("a", BIRTH, 9, pages[1].numbers[-1]) == ServedPage([], [], [], more=False)
    with pytest.raises(LearnerGone):
        await store.served("a", token(99), 9)
    with pytest.raises(LearnerGone):
        await store.served_after("a", token(99), 9, 0)
    with pytest.raises(LearnerGone):
        await store.labels("a", token(99), [event(1).id])


async def test_served_after_lists_the_oldest_first_in_pages(store: Store) -> None:
    await served(store, events(0, 6))
    first = await store.served_after("a", BIRTH, 4, 0)
    assert first == ServedPage(events(0, 4), [1, 2, 3, 4], [None] * 4, more=True)
    await serve(store, 3, [event(0), event(6)], bounds(events=6))  # 0 is served again, 1 is dropped
    await store.labelled("a", BIRTH, labels_of([event(5).id]))
    rest = [event(4), event(5), event(0), event(6)]
    second = ServedPage(rest, [5, 6, 7, 8], [None, LABELS, None, None], more=False)
    assert await store.served_after("a", BIRTH, 4, first.numbers[-1]) == second
    assert await store.served_after("a", BIRTH, 9, first.numbers[-1]) == second
    assert await store.served_after("a", BIRTH, 9, 8) == ServedPage([], [], [], more=False)
    assert (await store.served_after("a", BIRTH, 9, 0)).numbers == [3, 4, 5, 6, 7, 8]


async def test_an_erased_event_is_as_if_it_had_never_been_served(store: Store) -> None:
    await served(store, events(0, 6))
    await serve(store, 3, [], bounds(events=4))  # 0 and 1 leave tombstones
    await store.labelled("a", BIRTH, labels_of(["2", "3"]))
    before = await store.pending("a", BIRTH)
    assert [await store.erase("a", BIRTH, id) for id in ("2", "2", "0", "0", "9", "4")] == [1, 0, 1, 0, 0, 1]
    assert await store.recall("a", BIRTH, ids(0, 6)) == [None, True, None, event(3), None, event(5)]
    assert await store.labels("a", BIRTH, ["2"]) == [None]
    assert (await store.served("a", BIRTH, 9)).events == [event(5), event(3)]
    assert (await store.expired("a", BIRTH, 99.0, 9)).events == [event(3), event(5)]
    after = await store.pending("a", BIRTH)
    assert after == before._replace(events=2, bytes=before.bytes - 2 * 11)
    await serve(store, 4, [event(2), event(0)])
    assert await store.recall("a", BIRTH, ["0", "2"]) == [event(0), event(2)]
    assert (await store.served("a", BIRTH, 1)).labels == [None]
    assert len(await whole_log(store)) == 4
    with pytest.raises(LearnerGone):
        await store.erase("a", token(99), "3")


async def test_a_page_of_served_events_is_limited_in_bytes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (memory, sqlite_served, redis):
        monkeypatch.setattr(module, "REPLY_BYTES", 40)
    await served(store, [event(0, size=50), *events(1, 7)])
    first = await store.served("a", BIRTH, 9)
    assert first.events == events(3, 7)[::-1]  # to the byte
    second = await store.served("a", BIRTH, 9, first.numbers[-1])
    assert second.events == events(1, 3)[::-1]
    assert await store.served("a", BIRTH, 9, second.numbers[-1]) == ServedPage(
        [event(0, size=50)], [1], [None], more=False
    )
    ascending = [await store.served_after("a", BIRTH, 9, after) for after in (0, 1, 5)]
    assert [page.events for page in ascending] == [[event(0, size=50)], events(1, 5), events(5, 7)]
    assert [page.more for page in ascending] == [True, True, False]


async def test_labels_are_added_once_in_the_order_of_the_log(store: Store) -> None:
    await served(store, events(0, 3))
    fraud, other, corrected = ServedLabel(3, 1, 20.5), ServedLabel(3, 0, 21.0), ServedLabel(7, 1, 1e9)
    await store.labelled("a", BIRTH, {"1": [fraud, other]})
    for _ in range(2):  # reports of several nodes overlap
        await store.labelled("a", BIRTH, {"1": [fraud, other, corrected], "unknown": [fraud], "2": []})
        await store.labelled("a", BIRTH, {"1": [other]})  # of a node that was behind
    await store.labelled("a", BIRTH, {"1": [ServedLabel(9, 1, 2e9)]})  # says nothing new
    assert await store.labels("a", BIRTH, ["0", "1", "unknown"]) == [None, [fraud, other, corrected], None]
    assert (await store.served("a", BIRTH, 2, 3)).labels == [[fraud, other, corrected], None]
    many = [ServedLabel(10 + number, number % 2, 3e9) for number in range(50)]
    await store.labelled("a", BIRTH, {"1": many})
    assert await store.labels("a", BIRTH, ["1"]) == [many[-MAX_LABELS:]]
    await serve(store, 9, [event(1)])  # scored anew: another life
    assert await store.labels("a", BIRTH, ["1"]) == [None]


async def test_the_time_of_a_label_may_be_unknown(store: Store) -> None:
    await served(store, events(0, 1))
    await store.labelled("a", BIRTH, {"0": [ServedLabel(2**53, 64, math.nan)]})
    ((label,),) = await store.labels("a", BIRTH, ["0"])  # type: ignore[misc]
    assert label[:2] == (2**53, 64)
    assert math.isnan(label.time)


async def test_settled_events_stay_but_are_not_returned_again(store: Store) -> None:
    await served(store, events(0, 6))
    first = await store.expired("a", BIRTH, 4.0, 3)
    assert first.events == events(0, 3) == (await store.expired("a", BIRTH, 4.0, 3)).events
    assert (await store.expired("a", BIRTH, 4.0, 9, first.upto)).events == [event(3)]
    for _ in range(2):
        await store.settle("a", BIRTH, first.upto)
        second = await store.expired("a", BIRTH, 4.0, 2)
        assert second.events == [event(3)]
        assert second.upto > first.upto
    await store.settle("a", BIRTH, second.upto)
    assert await store.expired("a", BIRTH, 4.0, 2) == (second.upto, [], [], False)
    await store.settle("a", BIRTH, first.upto)  # a node that is late
    assert await store.expired("a", BIRTH, 4.0, 2) == (second.upto, [], [], False)
    assert await store.recall("a", BIRTH, ids(0, 6)) == events(0, 6)
    assert await store.pending("a", BIRTH) == ServedCounts(6, 66, 0, 0)
    assert (await store.expired("a", BIRTH, 99.0, 9, 1)).events == events(4, 6)  # the cursor is further than that
    assert await serve(store, 3, [], bounds(events=4)) == ServedCounts(4, 44, 0, 2)  # the bounds reach what is settled
    for _ in range(2):
        await store.reopen("a", BIRTH)
        assert (await store.expired("a", BIRTH, 99.0, 9)).events == events(2, 6)


async def test_serving_an_id_again_makes_it_unsettled(store: Store) -> None:
    """Not even where it was the last that was served, or nothing else is known any more."""
    await served(store, events(0, 3))
    upto = 0
    for number in range(3, 6):
        actual = await store.expired("a", BIRTH, 99.0, 9)
        assert actual.upto > upto
        upto = actual.upto
        await store.settle("a", BIRTH, upto)
        assert await store.expired("a", BIRTH, 99.0, 9) == (upto, [], [], False)
        await serve(store, number, [event(2, size=number)])
        assert (await store.expired("a", BIRTH, 99.0, 9)).events == [event(2, size=number)]
    await serve(store, 6, [], bounds(events=0))
    await serve(store, 7, events(0, 1))
    assert (await store.expired("a", BIRTH, 99.0, 9)).events == events(0, 1)


async def test_labelled_events_are_marked_and_stay(store: Store) -> None:
    await served(store, events(0, 6))
    for marked in ([], ["3", "none", "1", "3"], ["3", "1"]):
        await store.labelled("a", BIRTH, labels_of(marked))
    assert await store.recall("a", BIRTH, ids(0, 6)) == events(0, 6)
    assert await store.pending("a", BIRTH) == ServedCounts(6, 66, 0, 0)
    actual = await store.expired("a", BIRTH, 4.5, 9)
    assert (actual.events, actual.labelled, actual.more) == (events(0, 5), [False, True, False, True, False], False)
    assert (await store.expired("a", BIRTH, 4.5, 2)).labelled == [False, True]
    await serve(store, 3, [event(3)])  # again: then its label is yet to come
    actual = await store.expired("a", BIRTH, 99.0, 9)
    assert (actual.events[-1], actual.labelled) == (event(3), [False, True, False, False, False, False])
    await serve(store, 4, [], bounds(events=4))
    await store.labelled("a", BIRTH, labels_of(["1"]))  # dropped meanwhile
    await serve(store, 5, [event(1)])
    assert (await store.expired("a", BIRTH, 99.0, 9)).labelled == [False] * 5


async def test_the_last_dropped_events_leave_tombstones(store: Store) -> None:
    await store.create("a", BIRTH, b"")
    for number in range(0, 12, 2):
        await serve(store, 2 + number, events(number, number + 2), bounds(events=3))
    assert await store.recall("a", BIRTH, ids(0, 13)) == [None] * 6 + [True] * 3 + events(9, 12) + [None]
    await serve(store, 20, [], bounds(events=1))
    assert await store.recall("a", BIRTH, ids(6, 12)) == [None] * 4 + [True, event(11)]
    await serve(store, 21, [], bounds(events=0))
    assert await store.recall("a", BIRTH, ids(6, 12)) == [None] * 6


async def test_serving_an_id_again_removes_its_tombstone(store: Store) -> None:
    await served(store, events(0, 3))
    await serve(store, 3, [], bounds(before=99.0))
    assert await serve(store, 4, [event(1), event(7)]) == ServedCounts(2, 22, 3, 0)
    assert await store.recall("a", BIRTH, ids(0, 3)) == [True, event(1), True]
    assert await serve(store, 5, [], bounds(events=2)) == ServedCounts(2, 22, 3, 0)
    assert await store.recall("a", BIRTH, ids(0, 3)) == [None, event(1), True]
    await serve(store, 6, [], bounds(events=1))
    assert await store.recall("a", BIRTH, ids(0, 3)) == [None, True, None]


async def test_reduced_limits_are_enforced_in_steps(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (memory, sqlite_served, redis_served):
        monkeypatch.setattr(module, "DROPS", 3)
    await served(store, events(0, 20))
    within = bounds(events=4)
    assert await serve(store, 3, [], within) == ServedCounts(17, 7 + 20 + 170, 0, 3)
    assert (await serve(store, 4, events(20, 22), within)).events == 14  # 3 more than came
    assert (await serve(store, 5, [], within)).events == 11
    assert (await serve(store, 6, [], within)).events == 8
    assert (await serve(store, 7, [], within)).events == 5
    assert await serve(store, 8, [], within) == ServedCounts(4, 48, 0, 18)
    await serve(store, 9, [], within)
    assert await store.recall("a", BIRTH, ids(0, 22)) == [None] * 14 + [True] * 4 + events(18, 22)


async def test_one_call_serves_many_events(store: Store) -> None:
    """As many as the service serves in one step, and more than any chunk that a store works by."""
    n = 10_000
    await store.create("a", BIRTH, b"")
    many = events(0, n)
    size = sum(len(item.id) + 10 for item in many)
    assert await serve(store, 2, many) == ServedCounts(n, size, 0, 0)
    assert await serve(store, 2, many) == ServedCounts(n, size, 0, 0)
    request = ids(0, n)
    assert await store.recall("a", BIRTH, request[::-7]) == many[::-7]
    assert (await store.expired("a", BIRTH, 5000.0, n)).events == many[:5000]
    other = [ServedEvent(f"other {item.id}", item.time, item.data) for item in many]
    outcome = await serve(store, 3, other, bounds(events=n))
    assert (outcome.events, outcome.evicted) == (n, n)
    assert await store.recall("a", BIRTH, request[::7]) == [True] * len(request[::7])
    assert (await serve(store, 4, [], bounds(events=n, before=1000.0))).expired == 1000
    assert await store.recall("a", BIRTH, ["0", "999", "1000", "9999"]) == [None, None, True, True]


async def test_a_recreated_learner_has_no_served_events(store: Store) -> None:
    await served(store, events(0, 5))
    await store.labelled("a", BIRTH, labels_of(["1"]))
    await store.settle("a", BIRTH, (await store.expired("a", BIRTH, 3.0, 9)).upto)
    await store.delete("a", BIRTH)
    anew = token(50)
    await store.create("a", anew, b"anew")
    assert await store.pending("a", anew) == ServedCounts(0, 0, 0, 0)
    assert await store.recall("a", anew, ids(0, 5)) == [None] * 5
    assert (await store.expired("a", anew, 99.0, 9)).events == []
    with pytest.raises(LearnerGone):
        await store.recall("a", BIRTH, ["0"])
    receipt = await store.serve("a", anew, record(2), 1, events(3, 5), UNBOUNDED)
    assert receipt == ServeReceipt(2, anew, ServedCounts(2, 22, 0, 0))
    assert await store.recall("a", anew, ids(0, 5)) == [None, None, None, event(3), event(4)]
    assert (await store.expired("a", anew, 99.0, 9)).events == events(3, 5)


async def test_a_receipt_states_the_position_and_the_previous_record(store: Store) -> None:
    await served(store, events(0, 1))
    await store.append("a", BIRTH, [record(3), record(4)], 2)
    for _ in range(2):  # a repetition tells the same
        receipt = await store.serve("a", BIRTH, record(5), 2, events(1, 2), UNBOUNDED)
        assert receipt == ServeReceipt(5, record(4)[0], ServedCounts(2, 22, 0, 0))
    receipt = await store.serve("a", BIRTH, record(6), 2, events(2, 3), UNBOUNDED)
    assert receipt == ServeReceipt(6, record(5)[0], ServedCounts(3, 33, 0, 0))
    receipt = await store.serve("a", BIRTH, record(5), 2, events(1, 2), UNBOUNDED)
    assert receipt == ServeReceipt(5, record(4)[0], ServedCounts(3, 33, 0, 0))


async def test_each_learner_has_its_own_served_events(store: Store) -> None:
    await served(store, events(0, 3), "a")
    await served(store, [event(1, size=30)], "b")
    await store.settle("b", BIRTH, (await store.expired("b", BIRTH, 99.0, 9)).upto)
    assert (await store.expired("a", BIRTH, 99.0, 9)).events == events(0, 3)
    await store.delete("a", BIRTH)
    assert await store.recall("b", BIRTH, ids(0, 3)) == [None, event(1, size=30), None]
    assert await store.pending("b", BIRTH) == ServedCounts(1, 31, 0, 0)


async def test_snapshots_and_trimming_keep_served_events(store: Store) -> None:
    await served(store, events(0, 3))
    await store.save("a", BIRTH, 2, b"snapshot", 1, trim=True)
    assert await store.recall("a", BIRTH, ids(0, 3)) == events(0, 3)
    receipt = await store.serve("a", BIRTH, record(3), 2, events(3, 4), UNBOUNDED)
    assert (receipt.position, receipt.pending) == (3, ServedCounts(4, 44, 0, 0))
    assert receipt.before in (b"", record(2)[0])  # it was trimmed
    assert await store.read("a", BIRTH, 2, 9) == [LogEntry(3, *record(3))]


async def test_nodes_serving_concurrently_lose_nothing(open_again: Opener) -> None:
    nodes = [await open_again(), await open_again()]
    await nodes[0].create("a", BIRTH, b"")
    calls = [serve(nodes[n % 2], n + 2, events(10 * n, 10 * n + 10)) for n in range(20)]
    appends = [nodes[n % 2].append("a", BIRTH, [record(n)], 1) for n in range(100, 110)]
    await asyncio.gather(*calls, *appends)
    assert (await nodes[0].pending("a", BIRTH))[::2] == (200, 0)
    assert await nodes[1].recall("a", BIRTH, ids(0, 200)) == events(0, 200)
    log = await whole_log(nodes[0])
    assert [entry.position for entry in log] == list(range(1, 32))
    assert {entry.token for entry in log} == {BIRTH, *map(token, range(2, 22)), *map(token, range(100, 110))}


async def test_served_events_are_present_after_reopening(open_again: Opener) -> None:
    first = await open_again()
    await served(first, events(0, 5))
    await serve(first, 3, events(5, 7), bounds(events=5))
    await first.settle("a", BIRTH, (await first.expired("a", BIRTH, 5.0, 9)).upto)
    await first.close()
    with pytest.raises(StoreUnavailable):
        await first.pending("a", BIRTH)
    second = await open_again()
    assert await second.recall("a", BIRTH, ids(0, 8)) == [True, True, *events(2, 7), None]
    assert (await second.expired("a", BIRTH, 99.0, 9)).events == events(5, 7)
    assert await serve(second, 3, events(5, 7), bounds(events=5)) == ServedCounts(5, 55, 0, 2)
    assert await serve(second, 4, events(7, 8), bounds(events=5)) == ServedCounts(5, 55, 0, 3)
