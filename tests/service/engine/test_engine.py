"""The engine over each store: log first, recovery from any point, many nodes, no lost reply."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from learners.algorithms import registry
from learners.config import Config
from learners.learner import Learner
from service.engine.engine import Engine
from service.engine.records.codec import pack_snapshot
from service.engine.replica.learner_machine import LearnerMachine
from service.engine.replica.learner_replica import LearnerReplica
from service.errors import (
    BehindLog,
    Damaged,
    LearnerGone,
    NameTaken,
    QueueFull,
    ServiceError,
    StoreUnavailable,
    UnknownLearner,
)
from service.settings import Settings
from service.storage.memory import MemoryStore
from service.storage.open_store import open_store
from service.storage.store_protocol import LogEntry, SnapshotInfo, Store
from service.wire.json_decode import decode_update
from tests.harness.apps import DENSE, events
from tests.harness.log_records import logged_data
from tests.harness.waiting import eventually_async

CONFIGS: dict[str, dict[str, Any]] = {
    "dense": DENSE,
    "cbr": {"algorithm": "cbr", "params": {"buffer": "reservoir", "capacity": 3}, "features": DENSE["features"]},
    "fofo": {"algorithm": "fofo", "features": DENSE["features"], "scaling": {"kind": "unit"}},
}


def batch_of(count: int, start: int = 0) -> Any:
    body = msgspec.json.encode({"events": events(count, start)})
    return decode_update(body, Config.of(DENSE))[0]


@asynccontextmanager
async def engine(store: Store, **settings: Any) -> AsyncIterator[Engine]:
    """Run a node over a store that outlives it; like a crash, the end takes no snapshot and closes nothing."""
    node = Engine(store, Settings(**settings))
    await node.start()
    try:
        yield node
    finally:
        await crash(node)


async def crash(node: Engine) -> None:
    tasks = [replica.mailbox.task for replica in node.replicas.values()]
    tasks += [item for replica in node.replicas.values() if (item := replica.snapshots._saving) is not None]
    tasks += [] if node.sync.task is None else [node.sync.task]
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
    node.node._threads.shutdown()


def library(config: dict[str, Any], count: int) -> str:
    """Return the digest of a library learner after the first `count` events."""
    learner = Learner(Config.of(config))
    batch_events = events(count)
    if batch_events:
        learner.learn(
            [item["x"] for item in batch_events],
            [item["label"] for item in batch_events],
            ids=[item["id"] for item in batch_events],
        )
    return learner.digest()


async def digest(replica: LearnerReplica) -> str:
    return (await replica.log.digest())[1]


@pytest.mark.parametrize("name", CONFIGS)
async def test_a_stop_after_any_append_recovers_the_same_bits(store, name):
    config = Config.of(CONFIGS[name])
    sizes = [1, 3, 1, 10, 2, 40, 5]
    count = 0
    for size in sizes:
        async with engine(store, snapshot_events=12) as node:
            replica, _ = await node.create("a", config)
            assert await digest(replica) == library(CONFIGS[name], count)
            learnt = await replica.label(batch_of(size, count))
            count += size
            assert learnt.outcome.applied.all()
            assert learnt.position == replica.position
    async with engine(store) as node:
        assert await digest(node.get("a")) == library(CONFIGS[name], count)


async def test_concurrent_updates_share_records_and_get_their_own_replies(store):
    async with engine(store) as node:
        replica, _ = await node.create("a", Config.of(DENSE))
        answers = await asyncio.gather(*(replica.label(batch_of(3, 3 * i)) for i in range(100)))
        assert replica.position < 100
        assert sum(int(answer.outcome.applied.sum()) for answer in answers) == 300
        assert [len(answer.outcome.scores) for answer in answers] == [3] * 100
        assert await digest(replica) == library(DENSE, 300)


async def test_two_nodes_on_one_store_hold_the_same_bits(store):
    async with engine(store, follow_seconds=0.05) as first, engine(store, follow_seconds=0.05) as second:
        local, new = await first.create("a", Config.of(DENSE))
        remote, again = await second.create("a", Config.of(DENSE))
        assert (new, again) == (True, False)
        await asyncio.gather(*((local if i % 2 else remote).label(batch_of(2, 2 * i)) for i in range(60)))
        await asyncio.gather(local.log.catch_up(), remote.log.catch_up())
        assert await local.log.digest() == await remote.log.digest()
        assert local.view.figures.counts.sum() == 120
        with pytest.raises(NameTaken):
            await second.create("a", Config.of(CONFIGS["cbr"]))


async def test_a_node_follows_creations_appends_and_deletions_of_others(store):
    async with engine(store, follow_seconds=0.02) as first, engine(store, follow_seconds=0.02) as second:
        local, _ = await first.create("a", Config.of(DENSE))
        await local.label(batch_of(20))
        await eventually_async(lambda: "a" in second.replicas and second.replicas["a"].position == local.position)
        assert await second.get("a").log.digest() == await local.log.digest()
        await second.delete("a")
        await eventually_async(lambda: "a" not in first.replicas)
        with pytest.raises(LearnerGone):
            await local.label(batch_of(1))
        with pytest.raises(UnknownLearner):
            first.get("a")


async def test_a_learner_just_created_on_another_node_is_found_immediately(store):
    async with engine(store, follow_seconds=60) as first, engine(store, follow_seconds=60) as second:
        local, _ = await first.create("a", Config.of(DENSE))
        await local.label(batch_of(20))
        remote = await second.load("a")
        await remote.log.catch_up()
        assert await remote.log.digest() == await local.log.digest()
        await second.delete("a")
        failures = await asyncio.gather(*(second.load("a") for _ in range(50)), return_exceptions=True)
        assert all(isinstance(failure, UnknownLearner) for failure in failures)


async def test_a_node_behind_a_trimmed_log_resumes_from_the_snapshot(store):
    async with engine(store, follow_seconds=60) as behind, engine(store, follow_seconds=60, snapshots_kept=1) as ahead:
        late, _ = await behind.create("a", Config.of(DENSE))
        await ahead.create("a", Config.of(DENSE))
        remote = ahead.get("a")
        for i in range(4):
            await remote.label(batch_of(5, 5 * i))
            await remote.snapshots.save()
        with pytest.raises(BehindLog):
            await store.read("a", remote.birth, 1, 10)
        await late.label(batch_of(5, 20))
        await remote.log.catch_up()
        assert await late.log.digest() == await remote.log.digest()
        assert await digest(late) == library(DENSE, 25)


async def test_a_restore_rolls_back_every_node_and_survives_a_restart(store):
    async with engine(store, follow_seconds=60) as first, engine(store, follow_seconds=60) as second:
        local, _ = await first.create("a", Config.of(DENSE))
        remote, _ = await second.create("a", Config.of(DENSE))
        await local.label(batch_of(10))
        info = await local.snapshots.save()
        await local.label(batch_of(10, 10))
        await local.restore(info.position)
        await remote.log.catch_up()
        assert await remote.log.digest() == await local.log.digest()
        assert await digest(local) == library(DENSE, 10)
        await local.label(batch_of(5, 10))
    async with engine(store) as node:
        assert await digest(node.get("a")) == library(DENSE, 15)


async def test_a_damaged_snapshot_is_replaced_by_an_older_one_and_the_log(store, caplog):
    async with engine(store, trim_log=False) as node:
        replica, _ = await node.create("a", Config.of(DENSE))
        await replica.label(batch_of(10))
        await replica.snapshots.save()
        await replica.label(batch_of(10, 10))
        await replica.snapshots.save()
        birth, position = replica.birth, replica.position
    await store.save("a", birth, position, b"rare, but not one of ours", 3, False)
    async with engine(store) as node:
        assert await digest(node.get("a")) == library(DENSE, 20)
    ((reason,),) = logged_data(caplog, "rarestream.node", "ERROR")
    assert "snapshot 3" in str(reason)


async def test_a_learner_that_cannot_be_recovered_is_skipped_alone(store, caplog):
    async with engine(store) as node:
        for name in ("bad", "good"):
            replica, _ = await node.create(name, Config.of(DENSE))
            await replica.label(batch_of(10))
        bad = node.get("bad")
        await bad.snapshots.save()  # trims the log
        birth, position = bad.birth, bad.position
    await store.save("bad", birth, position, b"rubbish", 1, True)
    async with engine(store, follow_seconds=0.01) as node:
        assert set(node.replicas) == {"good"}
        await asyncio.sleep(0.1)
        with pytest.raises(Damaged, match=r"\bbad\b"):
            node.get("bad")
        await node.delete("bad")
        assert (await node.create("bad", Config.of(DENSE)))[1]
    details = [str(detail) for name, detail in logged_data(caplog, "rarestream.sync", "ERROR") if name == "bad"]
    assert sum("snapshot 2" in detail for detail in details) == 1


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize("mistake", [ZeroDivisionError("by 0"), ValueError("no shape")], ids=["arithmetic", "value"])
async def test_a_mistake_in_an_algorithm_is_the_end_of_its_learners_alone(store, monkeypatch, saved, mistake):
    async with engine(store) as node:
        for name, algorithm in (("bad", "solam"), ("good", "loam-ada")):
            replica, _ = await node.create(name, Config.of({**DENSE, "algorithm": algorithm}))
            await replica.label(batch_of(10))
            if saved:
                await replica.snapshots.save()

    def broken(*_: Any) -> None:
        raise mistake

    monkeypatch.setattr(registry.algorithms()["solam"], "init", broken)
    async with engine(store, follow_seconds=0.01) as node:
        assert set(node.replicas) == {"good"}
        with pytest.raises(Damaged, match="cannot make bad"):
            node.get("bad")
        await node.delete("bad")


async def test_no_metrics_are_computed_during_recovery(store, monkeypatch):
    """A metric that cannot be computed fails its request, not the start of the node."""
    async with engine(store) as node:
        replica, _ = await node.create("a", Config.of(DENSE))
        await replica.label(batch_of(10))
        await replica.snapshots.save()
    monkeypatch.setattr("service.engine.node_resources._loaded_metrics", set())  # as in a process that has just begun
    async with engine(store) as node:
        figures = node.get("a").view.figures
        assert figures.memory == {}
        assert figures.as_json()["events"] == 10
        assert figures.memory != {}


@pytest.mark.parametrize("step", ["load_newest", "snapshots"])
async def test_another_node_takes_a_snapshot_during_recovery(store, step, monkeypatch):
    """Without a snapshot, this node reads the log, which another node trims after a first snapshot."""
    async with engine(store, follow_seconds=60) as ahead:
        remote, _ = await ahead.create("a", Config.of(DENSE))
        await remote.label(batch_of(10))
        original, answers = getattr(store, step), []

        async def late(name: str, birth: bytes) -> Any:
            result = await original(name, birth)
            answers.append(result)
            if len(answers) == 1:
                await remote.snapshots.save()
            return result

        async def unreadable(*_: Any) -> Any:
            raise Damaged("it is not read at once")

        if step == "snapshots":
            monkeypatch.setattr(store, "load_newest", unreadable)
        setattr(store, step, late)
        async with engine(store, follow_seconds=60) as behind:
            assert await behind.get("a").log.digest() == await remote.log.digest()
        assert answers[0] == [] if step == "snapshots" else answers[0].snapshot is None


async def test_a_clean_shutdown_takes_a_last_snapshot(tmp_path):
    url = f"sqlite:///{tmp_path / 'log.db'}"
    node = Engine(await open_store(url), Settings())
    await node.start()
    replica, _ = await node.create("a", Config.of(DENSE))
    await replica.label(batch_of(30))
    await node.stop()
    store = await open_store(url)
    assert [snapshot.position for snapshot in await store.snapshots("a", replica.birth)] == [2]
    async with engine(store) as again:
        assert await digest(again.get("a")) == library(DENSE, 30)
    await store.close()


async def test_snapshots_follow_events_and_time_and_their_number_is_limited(store, monkeypatch):
    monkeypatch.setattr("service.engine.replica.lease._SECONDS", 0.2)  # that of the first node ends some time after it
    async with engine(store, snapshot_events=10, snapshot_seconds=3600, snapshots_kept=3) as node:
        replica, _ = await node.create("a", Config.of(DENSE))
        for i in range(6):
            position = (await replica.label(batch_of(10, 10 * i))).position
            await eventually_async(
                lambda at=position: replica.snapshots.newest is not None and replica.snapshots.newest.position == at
            )
        assert len(await store.snapshots("a", replica.birth)) == 3
    async with engine(store, snapshot_seconds=0.05, follow_seconds=0.02) as node:
        replica = node.get("a")
        await replica.label(batch_of(1, 60))
        await eventually_async(
            lambda: replica.snapshots.newest is not None and replica.snapshots.newest.position == replica.position
        )


class Failing(MemoryStore):
    """A store whose appends fail on demand, before or after the write."""

    before = after = False

    async def append(
        self, learner: str, birth: bytes, records: Any, after: int, known_token: bytes = b"", reserve: bool = False
    ) -> list[LogEntry]:
        if self.before:
            raise StoreUnavailable("away")
        entries = await super().append(learner, birth, records, after, known_token, reserve)
        if self.after:
            raise StoreUnavailable("the answer was lost")
        return entries


async def test_a_failed_append_learns_nothing_and_a_lost_reply_is_recovered():
    store = Failing()
    async with engine(store, follow_seconds=60) as node:
        replica, _ = await node.create("a", Config.of(DENSE))
        await replica.label(batch_of(10))
        store.before = True
        with pytest.raises(StoreUnavailable):
            await replica.label(batch_of(5, 10))
        assert node.node.stale_seconds > 0
        assert await digest(replica) == library(DENSE, 10)
        store.before, store.after = False, True
        with pytest.raises(StoreUnavailable):  # it is in the log, but nobody here knows
            await replica.label(batch_of(5, 10))
        store.after = False
        again = await replica.label(batch_of(5, 10))  # the client repeats it, as it was told to
        assert not again.outcome.applied.any()
        assert node.node.stale_seconds == 0
        assert replica.view.figures.counts.sum() == 15


async def test_an_unreadable_record_stops_only_its_learner_and_is_reported():
    store = MemoryStore()
    async with engine(store, follow_seconds=60) as node:
        bad, _ = await node.create("bad", Config.of(DENSE))
        good, _ = await node.create("good", Config.of(DENSE))
        await store.append("bad", bad.birth, [(b"t" * 16, b"rubbish")], 1)
        with pytest.raises(Damaged, match=r"\b2\b.*\bbad\b"):
            await bad.label(batch_of(1))
        with pytest.raises(Damaged):
            await bad.label(batch_of(1))
        assert (await good.label(batch_of(1))).outcome.applied.all()


async def test_an_internal_error_answers_every_waiting_caller(monkeypatch, caplog):
    async with engine(MemoryStore(), record_events=1) as node:
        replica, _ = await node.create("a", Config.of(DENSE))

        def broken(record: object) -> None:
            raise ZeroDivisionError(record)

        monkeypatch.setattr(replica.log.machine, "apply", broken)
        outcomes = await asyncio.gather(*(replica.label(batch_of(1, i)) for i in range(5)), return_exceptions=True)
        assert [type(item) for item in outcomes] == [ServiceError] * 5
        with pytest.raises(ServiceError, match="restart"):
            await replica.label(batch_of(1))
    assert logged_data(caplog, "rarestream.log", "CRITICAL") == [("a",)]
    assert "ZeroDivisionError" in caplog.text


async def test_a_long_record_aborted_by_shutdown_is_learnt_after_the_restart(monkeypatch, tmp_path):
    monkeypatch.setattr("service.engine.replica.snapshots._LAST_SECONDS", 0.0)
    monkeypatch.setattr(
        "service.engine.replica.learner_machine._PIECE_SECONDS", 0.0
    )  # every event is a piece of its own
    monkeypatch.setattr("service.engine.replica.learner_machine._INLINE_NUMBERS", 0)
    url = f"sqlite:///{tmp_path / 'log.db'}"
    node = Engine(await open_store(url), Settings())
    await node.start()
    replica, _ = await node.create("a", Config.of(DENSE))
    await replica.label(batch_of(3))
    learning = asyncio.create_task(replica.label(batch_of(5000, 3)))
    await eventually_async(lambda: replica.learner.metrics.events > 10)
    await node.stop()
    with pytest.raises(StoreUnavailable, match=r"\ba\b.*\blog\b"):
        await learning
    assert replica.learner.metrics.events < 5003
    store = await open_store(url)
    assert await store.snapshots("a", replica.birth) == []
    async with engine(store) as again:
        assert await digest(again.get("a")) == library(DENSE, 5003)
    await store.close()


async def test_shutdown_does_not_wait_for_an_unresponsive_store(monkeypatch):
    monkeypatch.setattr("service.engine.replica.snapshots._LAST_SECONDS", 0.0)
    monkeypatch.setattr("service.engine.replica.snapshots.STOP_SECONDS", 0.0)
    requests = []

    class Silent(MemoryStore):
        async def save(self, *_: Any) -> SnapshotInfo | None:
            requests.append("save")
            return await asyncio.Event().wait()

        async def lease(self, *words: Any) -> bool:
            if words[-1]:
                return await super().lease(*words)
            requests.append("let go")
            return await asyncio.Event().wait()

    async with engine(Silent()) as node:
        replica, _ = await node.create("a", Config.of(DENSE))
        await replica.label(batch_of(3))
        async with asyncio.timeout(300):
            await replica.close(save=True)
        assert sorted(requests) == ["let go", "save"]
        assert replica.mailbox.task.done()


async def test_a_long_record_does_not_block_other_learners(monkeypatch):
    monkeypatch.setattr("service.engine.replica.learner_machine._PIECE_SECONDS", 0.0)
    monkeypatch.setattr("service.engine.replica.learner_machine._INLINE_NUMBERS", 0)
    async with engine(MemoryStore(), threads=1) as node:
        slow, _ = await node.create("slow", Config.of(DENSE))
        quick, _ = await node.create("quick", Config.of(DENSE))
        long = asyncio.create_task(slow.label(batch_of(3000)))
        await eventually_async(lambda: slow.learner.metrics.events > 0)
        assert (await quick.label(batch_of(5))).outcome.applied.all()
        assert not long.done()
        assert slow.view.figures.counts.sum() == 0  # readers see whole records
        assert (await long).outcome.applied.all()
        assert await digest(slow) == library(DENSE, 3000)


async def test_a_long_record_waits_for_its_kernels_and_says_so(monkeypatch, caplog):
    machine = "service.engine.replica.learner_machine"
    kernels = [2]  # that run as plain Python
    sizes, before = [], []
    apply = LearnerMachine._apply_timed

    def apply_noted(self, batch):
        sizes.append(len(batch))
        return apply(self, batch)

    def wait(_):
        before.append(sum(sizes))
        kernels[0] -= 1
        return not kernels[0]

    async with engine(MemoryStore()) as node:
        replica, _ = await node.create("a", Config.of(DENSE))
        await replica.label(batch_of(3))
        monkeypatch.setattr(f"{machine}.waiting_kernels", lambda: kernels[0])
        monkeypatch.setattr(f"{machine}.wait_for_kernels", wait)
        monkeypatch.setattr(LearnerMachine, "_apply_timed", apply_noted)
        await replica.label(batch_of(40, 3))  # would not take long as plain Python
        assert max(sizes) <= 16
        assert not before
        monkeypatch.setattr(f"{machine}._COMPILE_SECONDS", 0.0)
        sizes.clear()
        with caplog.at_level("INFO"):
            await replica.label(batch_of(500, 43))
        assert sum(sizes) == 500
        assert before == [sizes[0], sizes[0]]  # after one small piece
        assert sizes[0] <= 16
        assert await digest(replica) == library(DENSE, 543)
    assert f"a waits for 2 kernels to be compiled before it learns {500 - sizes[0]} further events" in caplog.text


async def test_a_snapshot_of_another_configuration_is_refused_before_logging(store):
    async with engine(store) as node:
        replica, _ = await node.create("a", Config.of(DENSE))
        await replica.label(batch_of(5))
        before = await replica.log.digest()
        other = Learner(Config.of(CONFIGS["cbr"]))
        foreign = pack_snapshot(replica.position, other.config, other.state())
        await store.save("a", replica.birth, replica.position, foreign, 3, False)
        with pytest.raises(Damaged, match="configuration"):
            await replica.restore(replica.position)
        assert await replica.log.digest() == before


async def test_a_disconnected_caller_does_not_affect_others():
    store = MemoryStore()
    async with engine(store, record_events=1) as node:
        replica, _ = await node.create("a", Config.of(DENSE))
        calls = [asyncio.create_task(replica.label(batch_of(1, i))) for i in range(20)]
        await asyncio.sleep(0)
        for call in calls[5:10]:
            call.cancel()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert sum(isinstance(item, asyncio.CancelledError) for item in outcomes) == 5
        assert replica.view.figures.counts.sum() >= 15
        assert (replica.queued_events, replica.queued_bytes) == (0, 0)


async def test_the_queue_is_limited_by_bytes():
    async with engine(MemoryStore(), queue_bytes=4096) as node:
        replica, _ = await node.create("a", Config.of(DENSE))
        outcomes = await asyncio.gather(
            *(replica.label(batch_of(5, 5 * i)) for i in range(100)), return_exceptions=True
        )
        refused = [item for item in outcomes if isinstance(item, QueueFull)]
        assert refused
        assert replica.view.figures.counts.sum() == 5 * (100 - len(refused))


async def test_deletion_answers_waiting_callers():
    async with engine(MemoryStore(), record_events=1) as node:
        replica, _ = await node.create("a", Config.of(DENSE))
        calls = [asyncio.create_task(replica.label(batch_of(1, i))) for i in range(20)]
        await asyncio.sleep(0)
        await node.delete("a")
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(item, LearnerGone) or item.outcome.applied.all() for item in outcomes)


async def test_readers_see_complete_records_during_learning():
    wide = {"algorithm": "cbr", "params": {"capacity": 50}, "features": {"kind": "dense", "dim": 3}}
    async with engine(MemoryStore()) as node:
        replica, _ = await node.create("a", Config.of(wide))
        await replica.label(batch_of(100))
        replica._seconds_per_event = 1.0  # every record is taken to a thread
        learning = asyncio.create_task(replica.label(batch_of(3000, 100)))
        seen = set()
        while not learning.done():
            seen.add(int(replica.view.figures.counts.sum()))
            await asyncio.sleep(0)
        await learning
        assert seen <= {100, 3100}
        assert replica.view.figures.counts.sum() == 3100
