"""Websockets whose server hands over all that one read has brought: the same as message by message."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness.apps import events
from tests.harness.nodes import digest
from tests.harness.websocket import Gated, websocket
from tests.service.api.websocket.test_websocket import SINGLE, array, columns, serving, settled, updates


def mixed(binary: bool) -> list[dict[str, Any]]:
    """Messages that can be put together, those that cannot, and those that are refused among them."""
    made: list[dict[str, Any]] = []
    for seq in range(60):
        count = 1 + (seq % 7 == 3)
        local: dict[str, Any] = columns(count, seq) if binary else {"events": events(count, seq)}
        if seq % 10 == 4 and binary:
            local["labels"] = array([7] * count, "int8")
        elif seq % 10 == 4:
            local["events"][0]["label"] = "maybe"
        elif seq % 10 == 7:
            local = {"x": local["x"]} if binary else {"events": [{"x": event["x"]} for event in local["events"]]}
        elif seq % 20 == 9:
            local["surplus"] = 1
        made.append({"seq": seq, "op": "predict" if seq % 10 == 7 else "update", **local})
    return made


@pytest.mark.parametrize("binary", [False, True])
async def test_a_batched_read_is_answered_like_single_messages(binary: bool) -> None:
    messages = mixed(binary)
    async with serving(learners="ab", ws_credit=200) as (app, http, engine):
        async with websocket(app, SINGLE, batched=True) as client:
            client.send(*messages, binary=binary)
            actual = await client.replies(len(messages))
        async with websocket(app, "/v1/learners/b/ws") as client:
            expected = []
            for entry in messages:
                client.send(entry, binary=binary)
                expected.append(await client.reply())
        moment = {"position": None, "class_counts": None, "stale_seconds": None}
        assert [{**item, **moment} for item in actual] == [{**item, **moment} for item in expected]
        assert {item.get("status") for item in actual if "code" in item} == {422}
        assert (await digest(http, "a"))[1] == (await digest(http, "b"))[1]
        assert engine.get("a").position < engine.get("b").position
        counted = {key: item.count for key, item in app.state.access.messages.items()}
        assert counted[("update", 200)] == 2 * sum(
            message["op"] == "update" and "code" not in output for message, output in zip(messages, actual, strict=True)
        )
        assert app.state.bodies.bytes == 0


async def test_a_read_for_several_learners_is_answered_in_order_per_learner() -> None:
    async with serving(learners="ab") as (app, _, engine), websocket(app, batched=True) as client:
        made = [{**update, "learner": "abbaa"[i % 5]} for i, update in enumerate(updates(40))]
        made[7]["learner"] = "nobody"
        client.send(*made)
        actual = await client.replies(40)
        for name in "ab":
            local = [item["seq"] for item in made if item["learner"] == name]
            assert [item["seq"] for item in actual if item["seq"] in local] == local
        assert [item["code"] for item in actual if "code" in item] == ["unknown-learner"]
        assert sum(sum(engine.get(name).view.class_counts.values()) for name in "ab") == 39


@pytest.mark.parametrize(
    ("repeated", "replies", "learnt"),
    [
        (None, "10 ", 10),
        (6, "seq 6 ", 8),
        (10, "10 ", 10),
    ],
)
async def test_messages_beyond_the_credit_are_not_accepted(repeated: int | None, replies: str, learnt: int) -> None:
    store = Gated()
    async with serving(store, ws_credit=10) as (app, _, engine), websocket(app, SINGLE, batched=True) as client:
        gate = store.shut("a")
        client.send(*updates(2))
        await store.waiting.wait()
        made = list(updates(12, 2))
        if repeated is not None:
            made[8 if repeated == 10 else 6]["seq"] = repeated  # the first beyond the window, or one within it
        client.send(*made)
        code, reason = await client.closed()
        assert (code, replies in reason) == (1008, True)
        gate.set()
        learner = engine.get("a")
        with learner.mailbox.watch() as changed:
            while sum(learner.view.class_counts.values()) < learnt:
                await changed.wait()
                changed.clear()
        await settled()
        assert sum(learner.view.class_counts.values()) == learnt
        assert app.state.bodies.bytes == 0


async def test_messages_of_a_read_are_accepted_while_space_remains() -> None:
    store = Gated()
    async with serving(store, max_buffered_bytes=2048) as (app, _, _), websocket(app, SINGLE, batched=True) as client:
        gate = store.shut("a")
        client.send(*updates(1))
        await store.waiting.wait()
        client.send(*updates(30, 1))
        await settled()
        assert app.state.bodies.bytes <= 2048
        gate.set()
        status = [reply["status"] for reply in await client.replies(31)]
        assert status == sorted(status)
        assert set(status) == {200, 429}
        client.send(*updates(5, 100))
        assert [reply["status"] for reply in await client.replies(5)] == [200] * 5
        assert app.state.bodies.bytes == 0
