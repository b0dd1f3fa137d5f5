"""The promises of `Store`, kept by every store: learners and their logs. Each test runs once with each kind."""

from __future__ import annotations

import asyncio

import pytest

from service.errors import LearnerGone, LostRecords
from service.storage.store_protocol import REPLY_BYTES, LogEntry, LogHead, Store
from tests.harness.fixtures import Opener
from tests.harness.store_records import BIRTH, EVERY_BYTE, UNBOUNDED, filled, labels_of, record, token, whole_log

NAMES = [
    "a",
    "fraud-EU_2.v1",
    "A",
    "ä é 漢字 🦊",
    "{tag}",
    "a}b",
    "}{",
    "%7B",
    "with space",
    "a:b",
    "a/../b",
    "line\nend",
    "x" * 100,
]


async def test_create_starts_a_log_with_its_creation_record(store: Store) -> None:
    assert await store.create("a", BIRTH, EVERY_BYTE) == LogHead(BIRTH, 1)
    assert await store.read("a", BIRTH, 0, 10) == [LogEntry(1, BIRTH, EVERY_BYTE)]


async def test_creating_an_existing_name_changes_nothing_and_returns_its_head(store: Store) -> None:
    log = await filled(store, 3)
    assert await store.create("a", token(9), b"other") == LogHead(BIRTH, 3)
    assert await whole_log(store) == log
    assert await store.heads() == {"a": LogHead(BIRTH, 3)}


async def test_create_can_be_repeated_with_the_same_token(store: Store) -> None:
    assert await store.create("a", BIRTH, b"created") == await store.create("a", BIRTH, b"created") == LogHead(BIRTH, 1)
    assert len(await whole_log(store)) == 1


async def test_one_of_several_concurrent_creations_wins(open_again: Opener) -> None:
    stores = [await open_again() for _ in range(4)]
    heads = await asyncio.gather(*(stores[n % 4].create("a", token(n), b"by %d" % n) for n in range(20)))
    assert len(set(heads)) == 1
    birth = heads[0].birth
    winner = int.from_bytes(birth[2:], "big")
    assert await whole_log(stores[0], birth=birth) == [LogEntry(1, birth, b"by %d" % winner)]
    assert await stores[1].heads() == {"a": LogHead(birth, 1)}


async def test_heads_lists_every_learner(store: Store) -> None:
    assert await store.heads() == {}
    await filled(store, 5, "a")
    await store.create("b", token(100), b"")
    assert await store.heads() == {"a": LogHead(BIRTH, 5), "b": LogHead(token(100), 1)}
    assert await store.head("a") == LogHead(BIRTH, 5)
    await store.delete("a", BIRTH)
    assert await store.head("a") is None
    assert await store.heads() == {"b": LogHead(token(100), 1)}


async def test_any_name_identifies_its_own_learner(store: Store) -> None:
    for number, name in enumerate(NAMES):
        await store.create(name, token(number), name.encode())
        await store.save(name, token(number), 1, name.encode(), 1, trim=False)
    assert await store.heads() == {name: LogHead(token(number), 1) for number, name in enumerate(NAMES)}
    for number, name in enumerate(NAMES):
        assert await store.read(name, token(number), 0, 9) == [LogEntry(1, token(number), name.encode())]
        assert await store.load(name, token(number)) == (1, name.encode())
        await store.delete(name, token(number))
    assert await store.heads() == {}


async def assert_gone(store: Store, birth: bytes) -> None:
    for call in [
        store.append("a", birth, [record(9)], 0),
        store.read("a", birth, 0, 10),
        store.save("a", birth, 1, b"snapshot", 2, trim=True),
        store.load("a", birth),
        store.load("a", birth, 1),
        store.snapshots("a", birth),
        store.load_newest("a", birth),
        store.serve("a", birth, record(9), 1, [], UNBOUNDED),
        store.recall("a", birth, ["1"]),
        store.recall("a", birth, []),
        store.served_after("a", birth, 10, 0),
        store.expired("a", birth, 0.0, 10),
        store.settle("a", birth, 1),
        store.reopen("a", birth),
        store.bookmark("a", birth, "b"),
        store.move_bookmark("a", birth, "b", 1),
        store.labelled("a", birth, labels_of(["1"])),
        store.labelled("a", birth, labels_of([])),
        store.pending("a", birth),
        store.delete("a", birth),
    ]:
        with pytest.raises(LearnerGone, match=r"\ba\b"):
            await call


async def test_a_deleted_learner_is_gone(store: Store) -> None:
    await filled(store, 3)
    await store.save("a", BIRTH, 2, b"snapshot", 2, trim=False)
    await store.delete("a", BIRTH)
    await assert_gone(store, BIRTH)
    assert await store.heads() == {}


async def test_a_recreated_learner_is_a_new_learner(store: Store) -> None:
    await filled(store, 3)
    await store.save("a", BIRTH, 2, b"snapshot", 2, trim=True)
    await store.delete("a", BIRTH)
    anew = token(50)
    assert await store.create("a", anew, b"anew") == LogHead(anew, 1)
    await assert_gone(store, BIRTH)
    assert await whole_log(store, birth=anew) == [LogEntry(1, anew, b"anew")]
    assert await store.load("a", anew) is None
    assert await store.snapshots("a", anew) == []
    assert await store.heads() == {"a": LogHead(anew, 1)}


async def test_a_learner_that_never_existed_is_gone(store: Store) -> None:
    await assert_gone(store, BIRTH)


async def test_append_returns_every_later_entry(store: Store) -> None:
    await store.create("a", BIRTH, b"created")
    assert await store.append("a", BIRTH, [(token(2), EVERY_BYTE)], 1) == [LogEntry(2, token(2), EVERY_BYTE)]
    assert await store.append("a", BIRTH, [record(3), record(4)], 0) == [
        LogEntry(1, BIRTH, b"created"),
        LogEntry(2, token(2), EVERY_BYTE),
        LogEntry(3, *record(3)),
        LogEntry(4, *record(4)),
    ]
    assert await store.append("a", BIRTH, [], 3) == [LogEntry(4, *record(4))]
    assert await store.append("a", BIRTH, [(token(5), b"")], 4) == [LogEntry(5, token(5), b"")]


async def test_append_returns_entries_of_other_nodes(open_again: Opener) -> None:
    item, other = await open_again(), await open_again()
    await filled(item, 3)
    await other.append("a", BIRTH, [record(4)], 3)
    assert await item.append("a", BIRTH, [record(5)], 3) == [LogEntry(4, *record(4)), LogEntry(5, *record(5))]


async def test_a_repeated_append_is_stored_once(open_again: Opener) -> None:
    item, other = await open_again(), await open_again()
    await filled(item, 2)
    first = await item.append("a", BIRTH, [record(3), record(4)], 2)
    assert await item.append("a", BIRTH, [record(3), record(4)], 2) == first
    await other.append("a", BIRTH, [record(5)], 2)
    assert await item.append("a", BIRTH, [record(3), record(4)], 2) == [*first, LogEntry(5, *record(5))]
    assert await item.append("a", BIRTH, [record(4), record(6), record(6)], 2) == [
        *first,
        LogEntry(5, *record(5)),
        LogEntry(6, *record(6)),
    ]
    assert await item.heads() == {"a": LogHead(BIRTH, 6)}


async def test_nodes_appending_concurrently_see_one_log(open_again: Opener) -> None:
    """Two nodes with several tasks each: positions without gaps, and every node sees every entry once, in order."""
    nodes = [await open_again(), await open_again()]
    await nodes[0].create("a", BIRTH, b"created")
    seen: list[list[LogEntry]] = [[], []]

    async def run(node: int) -> None:
        after = 1
        for number in range(25):
            records = [record(1000 * node + 10 * number + part + 2) for part in range(number % 3 + 1)]
            entries = await nodes[node].append("a", BIRTH, records, after)
            seen[node] += entries
            after = entries[-1].position
            assert [entry[1:] for entry in entries[-len(records) :]] == records  # nothing got between or behind

    await asyncio.gather(run(0), run(1))
    log = await whole_log(nodes[0])
    assert [entry.position for entry in log] == list(range(1, len(log) + 1))
    assert len({entry.token for entry in log}) == len(log) == 1 + 2 * sum(number % 3 + 1 for number in range(25))
    for entries in seen:
        assert entries == log[1 : 1 + len(entries)]
    assert max(map(len, seen)) == len(log) - 1


async def test_many_learners_append_concurrently(store: Store) -> None:
    names = [f"learner-{number}" for number in range(30)]
    await asyncio.gather(*(store.create(name, BIRTH, b"") for name in names))
    await asyncio.gather(*(store.append(name, BIRTH, [record(n)], 1) for name in names for n in range(2, 7)))
    assert await store.heads() == dict.fromkeys(names, LogHead(BIRTH, 6))
    for name in names:
        log = await whole_log(store, name)
        assert [entry.position for entry in log] == [1, 2, 3, 4, 5, 6]
        assert {entry.token for entry in log} == {BIRTH, *map(token, range(2, 7))}


async def test_read_returns_a_limited_number_of_entries(store: Store) -> None:
    log = await filled(store, 10)
    assert await store.read("a", BIRTH, 0, 100) == log
    assert await store.read("a", BIRTH, 3, 4) == log[3:7]
    assert await store.read("a", BIRTH, 9, 4) == log[9:]
    assert await store.read("a", BIRTH, 10, 4) == []
    assert await store.read("a", BIRTH, 99, 4) == []


async def test_a_reply_is_limited_in_bytes_and_the_caller_reads_on(store: Store) -> None:
    await store.create("a", BIRTH, b"")
    records = [(token(number), bytes([number]) * (REPLY_BYTES // 4)) for number in range(2, 10)]
    log = [LogEntry(position, *of) for position, of in enumerate(records, 2)]
    assert await store.append("a", BIRTH, records, 1) == log[:4]  # to the byte
    assert await store.heads() == {"a": LogHead(BIRTH, 9)}
    assert await store.read("a", BIRTH, 5, 100) == log[4:]
    assert await store.append("a", BIRTH, [(token(10), b"!")], 5) == log[4:]
    assert await store.read("a", BIRTH, 1, 2) == log[:2]


async def test_an_entry_larger_than_a_reply_is_returned_alone(store: Store) -> None:
    await store.create("a", BIRTH, b"")
    large = bytes(range(250)) * 80_000  # 20 MB
    entries = await store.append("a", BIRTH, [(token(2), large), record(3)], 1)
    assert entries == [LogEntry(2, token(2), large)]
    assert await store.read("a", BIRTH, 1, 9) == entries
    assert await store.append("a", BIRTH, [record(3)], 2) == [LogEntry(3, *record(3))]


async def test_an_append_ahead_of_the_log_is_refused(store: Store) -> None:
    """A node that knows more than the log: the store lost records. Appending would hide that."""
    log = await filled(store, 3)
    with pytest.raises(LostRecords, match=r"\b5\b.*\b3\b"):
        await store.append("a", BIRTH, [record(9)], 5)
    assert await whole_log(store) == log
