"""Trusted snapshots skip the validation when a learner is loaded; all others are validated."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from learners import Config, learner
from service.engine.engine import Engine
from service.engine.records.codec import pack_snapshot, unpack_snapshot
from service.engine.records.trusted_snapshots import TrustedSnapshots
from service.errors import Damaged
from service.storage.store_protocol import Store
from service.wire.json_decode import decode_update
from tests.harness.apps import DENSE, events
from tests.harness.log_records import logged_data
from tests.harness.nodes import node as engine
from tests.harness.waiting import eventually_async

CONFIG = Config.of(DENSE)


def batch_of(count: int, start: int = 0) -> Any:
    return decode_update(msgspec.json.encode({"events": events(count, start)}), CONFIG)[0]


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[Config]:
    """Record the configurations of validated states."""
    values: list[Config] = []
    check = learner.check_state

    def looked(config: Config, state: Any) -> None:
        values.append(config)
        check(config, state)

    monkeypatch.setattr(learner, "check_state", looked)
    return values


async def slept(node: Engine) -> None:
    async def evicted() -> bool:
        await node.residency.evict(node.get("a"))
        return "a" in node.evicted  # not while it looks at its log

    await eventually_async(evicted)


async def test_snapshots_written_by_this_process_are_not_validated(store: Store, looks: list[Config]) -> None:
    async with engine(store) as node:
        replica, _ = await node.create("a", CONFIG)
        await replica.label(batch_of(10))
        before = await replica.log.digest()
        for _ in range(2):  # the second time nothing has changed, and nothing is written
            await slept(node)
            replica = await node.load("a")
            assert await replica.log.digest() == before
        await replica.label(batch_of(10, 10))
        after = await replica.log.digest()
        await slept(node)
        assert await (await node.load("a")).log.digest() == after
    assert looks == []


async def test_snapshots_written_by_another_process_are_validated_once(store: Store, looks: list[Config]) -> None:
    async with engine(store) as node:
        replica, _ = await node.create("a", CONFIG)
        await replica.label(batch_of(10))
        before = await replica.log.digest()
        await replica.snapshots.save()
    async with engine(store) as node:
        assert len(looks) == 1
        await slept(node)
        assert await (await node.load("a")).log.digest() == before
    assert len(looks) == 1


@pytest.mark.parametrize("trim_log", [True, False])
async def test_a_snapshot_modified_during_eviction_is_refused(
    store: Store, caplog: pytest.LogCaptureFixture, trim_log: bool
) -> None:
    """The checksum, names, dtypes and shapes are right, but no events lead to this state."""
    async with engine(store, trim_log=trim_log, snapshots_kept=1) as node:
        replica, _ = await node.create("a", CONFIG)
        await replica.label(batch_of(10))
        before, birth, position = await replica.log.digest(), replica.birth, replica.position
        await slept(node)
        result = await store.load("a", birth)
        assert result is not None
        state = unpack_snapshot(result[1], "it").state
        state["metrics.window_scores"][0] = np.nan
        await store.save("a", birth, position, pack_snapshot(position, CONFIG, state), 1, trim_log)
        if trim_log:
            with pytest.raises(Damaged, match=r"\ba\b.*/metrics\.window_scores\b"):
                await node.load("a")
        else:
            assert await (await node.load("a")).log.digest() == before
            ((reason,),) = logged_data(caplog, "rarestream.node", "ERROR")
            assert "/metrics.window_scores" in str(reason)


def test_a_digest_depends_on_the_process() -> None:
    item, other = TrustedSnapshots(9), TrustedSnapshots(9)
    assert item.digest(b"data") == item.digest(b"data") != item.digest(b"date")
    assert item.digest(b"data") != other.digest(b"data")


def test_the_last_snapshots_of_a_limited_number_of_logs_are_trusted() -> None:
    sound = TrustedSnapshots(2)
    for birth, digest in [(b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"c", b"4")]:
        assert not sound.trusts(birth, digest)
        sound.add(birth, digest)
        assert sound.trusts(birth, digest)
    assert [sound.has_log(birth) for birth in (b"a", b"b", b"c")] == [True, False, True]
    trusted = [
        sound.trusts(birth, digest) for birth, digest in [(b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"c", b"4")]
    ]
    assert trusted == [False, False, True, True]
