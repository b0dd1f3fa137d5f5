"""The promises of `Store`, kept by every store: opening, closing, cancelling; and the URLs."""

from __future__ import annotations

import asyncio

import pytest

from service.errors import StoreUnavailable
from service.storage.open_store import open_store
from service.storage.store_protocol import URL_FORMS, LogEntry, LogHead, Store
from tests.harness.fixtures import Opener
from tests.harness.store_records import BIRTH, UNBOUNDED, filled, labels_of, log_after, record, token, whole_log


async def test_written_data_is_present_after_reopening(open_again: Opener) -> None:
    first = await open_again()
    log = await filled(first, 6)
    await first.create("b", token(100), b"b")
    await first.save("a", BIRTH, 2, b"two", 2, trim=True)
    await first.close()
    second = await open_again()
    assert await second.heads() == {"a": LogHead(BIRTH, 6), "b": LogHead(token(100), 1)}
    assert await log_after(second, 2) == log[2:]
    assert await second.load("a", BIRTH) == (2, b"two")
    assert await second.append("a", BIRTH, [record(7)], 6) == [LogEntry(7, *record(7))]


async def test_bookmarks_move_both_ways_and_are_those_of_one_learner_and_reader(open_again: Opener) -> None:
    first = await open_again()
    await filled(first, 2)
    assert await first.bookmark("a", BIRTH, "x") is None
    await first.move_bookmark("a", BIRTH, "x", 2**53 - 1)
    await first.move_bookmark("a", BIRTH, "y", 0)
    await first.move_bookmark("a", BIRTH, "x", 7)
    await first.close()
    second = await open_again()
    assert [await second.bookmark("a", BIRTH, reader) for reader in "xyz"] == [7, 0, None]
    await second.delete("a", BIRTH)
    await second.create("a", BIRTH, b"")
    assert await second.bookmark("a", BIRTH, "x") is None


async def test_close_completes_started_calls(open_again: Opener) -> None:
    store = await open_again()
    await filled(store, 3)
    appends = [asyncio.create_task(store.append("a", BIRTH, [record(number)], 3)) for number in range(4, 44)]
    appends.append(asyncio.create_task(store.save("a", BIRTH, 3, b"three", 1, trim=False)))  # several steps
    await asyncio.sleep(0)  # each has run up to its first wait
    await store.close()
    assert all(task.done() for task in appends)
    await asyncio.gather(*appends)
    again = await open_again()
    assert await again.heads() == {"a": LogHead(BIRTH, 43)}
    assert await again.load("a", BIRTH) == (3, b"three")


async def test_a_closed_store_is_unavailable(store: Store) -> None:
    await filled(store, 2)
    await store.close()
    await store.close()
    for call in [
        store.create("b", token(3), b""),
        store.append("a", BIRTH, [record(3)], 2),
        store.read("a", BIRTH, 0, 1),
        store.heads(),
        store.delete("a", BIRTH),
        store.save("a", BIRTH, 1, b"", 1, trim=False),
        store.load("a", BIRTH),
        store.snapshots("a", BIRTH),
        store.serve("a", BIRTH, record(3), 1, [], UNBOUNDED),
        store.recall("a", BIRTH, ["1"]),
        store.served_after("a", BIRTH, 10, 0),
        store.expired("a", BIRTH, 0.0, 10),
        store.settle("a", BIRTH, 1),
        store.reopen("a", BIRTH),
        store.bookmark("a", BIRTH, "b"),
        store.move_bookmark("a", BIRTH, "b", 1),
        store.labelled("a", BIRTH, labels_of(["1"])),
        store.pending("a", BIRTH),
    ]:
        with pytest.raises(StoreUnavailable, match="closed"):
            await call


async def test_a_cancelled_append_does_not_affect_others(kind: str, store: Store) -> None:
    await store.create("a", BIRTH, b"created")
    tasks = [asyncio.create_task(store.append("a", BIRTH, [record(number)], 1)) for number in range(2, 42)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    if kind != "memory":  # which has appended by then
        assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes[::2])
    log = await whole_log(store)
    for number, outcome in list(enumerate(outcomes, 2))[1::2]:
        assert isinstance(outcome, list)
        assert token(number) in {entry.token for entry in outcome}
        assert outcome == log[1 : 1 + len(outcome)]
    assert [entry.position for entry in log] == list(range(1, len(log) + 1))


@pytest.mark.parametrize(
    "url",
    [
        "",
        "store.db",
        "memory",
        "memory://",
        "sqlite:",
        "sqlite://host/store.db",
        "sqlite:///",
        "sqlite:///:memory:",
        "postgres://user:hunter2@localhost/db",
        "redis://:hunter2@localhost/not-a-number",
        "redis://:hunter2/oops@localhost",
        "redis://:hunter2@localhost?no_such_option=hunter2",
        "rediss://:hunter2@localhost?ssl_cert_reqs=hunter2",
    ],
)
async def test_an_invalid_url_lists_the_forms_and_masks_passwords(url: str) -> None:
    with pytest.raises(ValueError, match="sqlite:///") as caught:
        await open_store(url)
    assert URL_FORMS in str(caught.value)
    assert "hunter2" not in str(caught.value)
